//! `/api/*`: the HTTP interface of the containers of the npm package `@cloudflare/sandbox` 0.12,
//! over the calls that /v1 uses.
//!
//! ```text
//! failure      errors in the shape of that interface
//! place        a sandbox of the package: the owner of sessions, processes and contexts that belong together
//! shell        texts for bash: a command with a directory and variables of its own, what a process takes over from a session
//! execute      commands, answered at their end or as a stream
//! processes    commands in the background
//! code         code contexts and what is executed in them
//! files        the files of its workspace and of its /tmp
//! frames       the events of a run as that interface has them
//! git, ports   what there is of them
//! socket       all of it over one WebSocket
//! ```
//! A session is a context of bash, a process a detached run, a code context a context, and a
//! sandbox a workspace that they share, with one /tmp: all are found under /v1 as well. The state
//! kept here maps names of the package to them. It is not in /openapi.json: the package describes
//! it, and unknown fields are not refused.

mod code;
mod execute;
mod failure;
mod files;
mod frames;
mod git;
mod ports;
mod processes;
mod sandbox;
mod shell;
mod socket;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, FromRef, FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sandtimer::time::instant;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};

use crate::auth::OwnerId;
use crate::body::{self, Object, RequestFields};
use crate::connection::Connection;
use crate::error::ApiRejection;
use crate::intake::Messages;
use crate::state::SharedApp;
use crate::trace;

use failure::ContainerFailure;
use sandbox::{CompatSandbox, Sandboxes};

/// The session for requests that name none, and the name that means no session.
const DEFAULT_SESSION: &str = "default";
const NO_SESSION: &str = "__DISABLE_SESSION__";

/// Its routes. `with_fallbacks` adds to those that are answered over a socket what other paths and
/// methods get.
pub(crate) fn routes(app: &SharedApp, with_fallbacks: impl FnOnce(Router) -> Router) -> Router<SharedApp> {
    let requests = Router::new()
        .route("/api/ping", get(ping))
        .route("/api/version", get(version))
        .merge(sandbox::routes())
        .merge(execute::routes())
        .merge(processes::routes())
        .merge(code::routes())
        .merge(files::routes())
        .merge(git::routes())
        .merge(ports::routes())
        .layer(Extension(Arc::new(Sandboxes::default())));
    let handlers = with_fallbacks(requests.clone().with_state(app.clone()))
        .layer(axum::middleware::from_fn_with_state(app.core.traces.clone(), trace::observe));
    requests.merge(socket::routes(handlers))
}

/// Renders a refusal that was met before a handler, in the shape that the path's clients read.
pub(crate) fn refuse(path: &str, rejection: ApiRejection) -> Response {
    if path.starts_with("/api/") || path == "/ws" {
        ContainerFailure::from(rejection).into_response()
    } else {
        rejection.into_response()
    }
}

async fn ping() -> Response {
    success(json!({"status": "healthy", "message": "pong"}))
}

async fn version() -> Response {
    success(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// An answer of this interface: the given fields, that it went well, and when.
fn success(fields: Value) -> Response {
    body::json(&completed(fields))
}

/// The fields of such an answer.
fn completed(mut fields: Value) -> Value {
    if fields.get("success").is_none() {
        fields["success"] = true.into();
    }
    fields["timestamp"] = now().into();
    fields
}

fn now() -> String {
    instant(calendar_milliseconds())
}

/// The caller, and the one of its sandboxes that it uses.
#[derive(Debug)]
struct Caller {
    sandbox: Arc<CompatSandbox>,
    /// The session that the request's head or query names.
    session: Option<String>,
    connection: Arc<Connection>,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ContainerFailure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ContainerFailure> {
        let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        // The layer before all handlers has put it there.
        let owner = parts
            .extensions
            .get::<OwnerId>()
            .cloned()
            .ok_or_else(|| ContainerFailure::internal("no owner"))?;
        // So have those of /api.
        let sandboxes = parts.extensions.get::<Arc<Sandboxes>>().cloned();
        let sandboxes = sandboxes.ok_or_else(|| ContainerFailure::internal("no sandboxes"))?;
        let no_connection = || ContainerFailure::internal("no connection");
        let connection = parts.extensions.get::<Arc<Connection>>().cloned().ok_or_else(no_connection)?;
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map(|query| query.0);
        let named =
            |(name, value): (String, String)| (name == "session" || name == "sessionId").then_some(value);
        Ok(Caller {
            sandbox: sandboxes.of(&owner, header("x-sandbox-id").as_deref().unwrap_or_default())?,
            session: header("x-session-id").or_else(|| query.unwrap_or_default().into_iter().find_map(named)),
            connection,
        })
    }
}

impl Caller {
    /// The session that a request means.
    fn session(&self, fields: &mut RequestFields) -> Result<String, ContainerFailure> {
        let named = fields.string("sessionId")?.or_else(|| self.session.clone());
        let session = named.unwrap_or_else(|| DEFAULT_SESSION.to_owned());
        if session.trim().is_empty() || session.len() > sandbox::MAX_NAME_BYTES {
            return Err(ContainerFailure::invalid("sessionId", "it is empty or longer than 1024 bytes"));
        }
        Ok(session)
    }
}

/// The fields of a body.
struct BodyFields(RequestFields);

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
