//! What a request of that interface comes with: its caller, and the fields of its body.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRef, FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;

use super::failure::{ContainerFailure, NETWORK_HEADER, header_failure};
use super::sandbox::{CompatSandbox, MAX_NAME_BYTES, Sandboxes};
use crate::auth::OwnerId;
use crate::body::{Object, RequestFields};
use crate::connection::Connection;
use crate::contexts::ContextService;
use crate::intake::Messages;
use crate::sandboxes::network;

/// The session for requests that name none, and the name that means no session.
const DEFAULT_SESSION: &str = "default";
pub(super) const NO_SESSION: &str = "__DISABLE_SESSION__";

/// What names a sandbox, and what it may reach outside.
pub(super) const SANDBOX_HEADERS: [&str; 2] = ["X-Sandbox-Id", NETWORK_HEADER];
const SESSION_HEADER: &str = "X-Session-Id";

/// The caller, and the one of its sandboxes that it uses.
#[derive(Debug)]
pub(super) struct Caller {
    pub sandbox: Arc<CompatSandbox>,
    /// The session that the request's head or query names.
    pub session: Option<String>,
    pub connection: Arc<Connection>,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller
where
    Arc<ContextService>: FromRef<S>,
{
    type Rejection = ContainerFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ContainerFailure> {
        let header = |name| header_text(parts, name);
        // The layer before all handlers has put it there.
        let owner = parts
            .extensions
            .get::<OwnerId>()
            .cloned()
            .ok_or_else(|| ContainerFailure::internal("no owner"))?;
        // The routes of /api have added these.
        let sandboxes = parts.extensions.get::<Arc<Sandboxes>>().cloned();
        let sandboxes = sandboxes.ok_or_else(|| ContainerFailure::internal("no sandboxes"))?;
        let no_connection = || ContainerFailure::internal("no connection");
        let connection = parts.extensions.get::<Arc<Connection>>().cloned().ok_or_else(no_connection)?;
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map(|query| query.0);
        let named =
            |(name, value): (String, String)| (name == "session" || name == "sessionId").then_some(value);
        let sandbox = sandboxes.of(&owner, header(SANDBOX_HEADERS[0])?.as_deref().unwrap_or_default())?;
        if let Some(network) = header(SANDBOX_HEADERS[1])? {
            let network = network::parse_header(&network).map_err(header_failure)?;
            sandbox.require_network(&Arc::from_ref(state), network).await?;
        }
        Ok(Caller {
            sandbox,
            session: header(SESSION_HEADER)?
                .or_else(|| query.unwrap_or_default().into_iter().find_map(named)),
            connection,
        })
    }
}

/// The value of a header.
///
/// # Errors
/// It has bytes other than those of ASCII.
fn header_text(parts: &Parts, name: &str) -> Result<Option<String>, ContainerFailure> {
    let Some(value) = parts.headers.get(name) else { return Ok(None) };
    let why = "give it in printable characters of ASCII";
    value.to_str().map(|text| Some(text.to_owned())).map_err(|_| ContainerFailure::invalid(name, why))
}

impl Caller {
    /// The session that a request means.
    pub fn session(&self, fields: &mut RequestFields) -> Result<String, ContainerFailure> {
        let named = fields.string("sessionId")?.or_else(|| self.session.clone());
        let session = named.unwrap_or_else(|| DEFAULT_SESSION.to_owned());
        if session.trim().is_empty() || session.len() > MAX_NAME_BYTES {
            return Err(ContainerFailure::invalid("sessionId", "it is empty or longer than 1024 bytes"));
        }
        Ok(session)
    }
}

/// The fields of a body.
pub(super) struct BodyFields(pub RequestFields);

impl<S: Send + Sync> FromRequest<S> for BodyFields
where
    Messages: FromRef<S>,
{
    type Rejection = ContainerFailure;

    async fn from_request(request: Request<Body>, state: &S) -> Result<Self, ContainerFailure> {
        let Object(fields) = Object::from_request(request, state).await?;
        Ok(BodyFields(fields))
    }
}
