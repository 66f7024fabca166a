//! Who is asking, and whether they may: decided before any handler sees a request.
//!
//! Without tokens only the user who runs the server is answered, whom the other end's socket shows; with tokens whoever
//! has one. What a request makes belongs to that [`Owner`]; for everyone else it is not there. Pages of other sites that
//! a browser of the same user shows are kept out by Host and Origin, which they cannot set.

mod origin;
mod tokens;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, Request, Uri, header};
use axum::middleware::Next;
use axum::response::Response;

use crate::connection::Connection;
use crate::error::{Code, Refusal};
use crate::{Shared, compat, page};

pub use tokens::{TokenError, Tokens};

/// Whom a run, a context or a session belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    fn token(name: &str) -> Self {
        Owner(format!("token:{name}").into())
    }

    fn user(uid: u32) -> Self {
        Owner(format!("uid:{uid}").into())
    }

    /// As it was written to a record.
    pub fn recorded(text: &str) -> Self {
        Owner(text.into())
    }

    /// For a record.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Everybody who may ask.
pub(crate) fn owners(tokens: Option<&Tokens>) -> Vec<Owner> {
    match tokens {
        Some(tokens) => tokens.names().map(Owner::token).collect(),
        None => vec![Owner::user(rustix::process::geteuid().as_raw())],
    }
}

/// Paths that say nothing about anybody, for probes, generators, and browsers, which send no token with an address.
const PUBLIC: [&str; 3] = ["/healthz", "/openapi.json", page::PATH];

/// The layer in front of all handlers: refuses, or lets the handler know the [`Owner`].
pub(crate) async fn admit(
    State(app): State<Shared>,
    Extension(connection): Extension<Arc<Connection>>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    match asks(&app, &connection, request.uri(), request.headers()).await {
        Ok(owner) => {
            if let Some(owner) = owner {
                request.extensions_mut().insert(owner);
            }
            next.run(request).await
        }
        Err(refusal) => compat::refuse(request.uri().path(), refusal),
    }
}

/// Whose request it is; `None` where it does not matter.
async fn asks(
    app: &Shared,
    connection: &Connection,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<Owner>, Refusal> {
    origin::check(uri, headers, connection.local())?;
    if PUBLIC.contains(&uri.path()) {
        return Ok(None);
    }
    match &app.tokens {
        Some(tokens) => by_token(tokens, headers).map(Some),
        None if connection.is_own().await => Ok(Some(Owner::user(rustix::process::geteuid().as_raw()))),
        None => Err(Refusal::new(
            Code::PeerRefused,
            "the other end of this connection does not belong to the user who runs the server",
        )),
    }
}

fn by_token(tokens: &Tokens, headers: &HeaderMap) -> Result<Owner, Refusal> {
    let refused = |why: &str| Refusal::new(Code::Unauthorized, why);
    let value = headers.get(header::AUTHORIZATION).ok_or_else(|| refused("no token was sent"))?.as_bytes();
    let scheme = b"bearer ";
    if value.len() <= scheme.len() || !value[..scheme.len()].eq_ignore_ascii_case(scheme) {
        return Err(refused("the Authorization header is not `Bearer TOKEN`"));
    }
    let name = tokens.name_of(value[scheme.len()..].trim_ascii());
    name.map(Owner::token).ok_or_else(|| refused("the token is not one of this server's"))
}
