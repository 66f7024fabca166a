//! The owner of a request, and whether it is admitted: decided before any handler gets the request.
//!
//! Without tokens the server admits only the user who runs it, whom the peer's socket identifies;
//! with tokens every client that has one. What a request makes belongs to that [`OwnerId`]; all
//! other owners get 404 for it. Pages of other sites that a browser of the same user shows are kept
//! out by Host and Origin, which they cannot set. A WebSocket of a browser, which can set no
//! header, has its token among the protocols that it offers.

mod origin;
mod tokens;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, Request, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};

use crate::connection::Connection;
use crate::error::{ApiRejection, Code};
use crate::intake::{self, HeldReservations};
use crate::listen::ConnectionPermit;
use crate::sandboxes::{ByHost, owner_by_link};
use crate::{SharedApp, api, page};

pub use tokens::{TokenError, Tokens};

/// Whom a run, a context or a session belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    fn token(name: &str) -> Self {
        OwnerId(format!("token:{name}").into())
    }

    fn user(uid: u32) -> Self {
        OwnerId(format!("uid:{uid}").into())
    }

    /// As it was written to a record.
    pub fn recorded(text: &str) -> Self {
        OwnerId(text.into())
    }

    /// For a record.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// All owners that are admitted.
pub(crate) fn owners(tokens: Option<&Tokens>) -> Vec<OwnerId> {
    match tokens {
        Some(tokens) => tokens.names().map(OwnerId::token).collect(),
        None => vec![OwnerId::user(rustix::process::geteuid().as_raw())],
    }
}

/// Paths that reveal nothing of any owner, for probes, generators, and browsers, which send no
/// token with an address.
const PUBLIC_PATHS: [&str; 4] = ["/healthz", api::HEALTH, "/openapi.json", page::PATH];

/// The layer in front of all handlers: refuses the request, or passes the [`OwnerId`] to the
/// handler.
pub(crate) async fn admit(
    State(app): State<SharedApp>,
    Extension(connection): Extension<Arc<Connection>>,
    Extension(connection_permit): Extension<ConnectionPermit>,
    mut request: Request<Body>,
    next: Next,
) -> Response {
    let by_host = request.extensions().get::<ByHost>().is_some();
    let owner = asks(&app, &connection, request.uri(), by_host, request.headers()).await;
    if let Ok(Some(owner)) = &owner
        && let Err(rejection) = connection_permit.claim(owner)
    {
        let mut answer = api::refuse(request.uri().path(), rejection);
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return answer;
    }
    match owner {
        Ok(owner) => {
            if let Some(owner) = &owner {
                request.extensions_mut().insert(owner.clone());
            }
            let path = request.uri().path().to_owned();
            let only_reads = request.method().is_safe();
            // Until it is answered: what was sent is in memory until then.
            let held = HeldReservations::default();
            request.extensions_mut().insert(held.clone());
            let answer = next.run(request).await;
            drop(held);
            let Some(owner) = owner else { return answer };
            intake::hold(&app, &owner, answer).unwrap_or_else(|rejection| {
                let rejection = if only_reads { rejection } else { rejection.after_execution(None) };
                api::refuse(&path, rejection)
            })
        }
        Err(rejection) => api::refuse(request.uri().path(), rejection),
    }
}

/// Whose request it is; `None` where it does not matter.
async fn asks(
    app: &SharedApp,
    connection: &Connection,
    uri: &Uri,
    by_host: bool,
    headers: &HeaderMap,
) -> Result<Option<OwnerId>, ApiRejection> {
    origin::check(uri, by_host, headers, connection.local())?;
    if PUBLIC_PATHS.contains(&uri.path()) {
        return Ok(None);
    }
    if let Some(owner) = owner_by_link(app, uri, headers)? {
        return Ok(Some(owner));
    }
    match &app.tokens {
        Some(tokens) => by_token(tokens, uri.path(), headers).map(Some),
        None if connection.is_own().await => Ok(Some(OwnerId::user(rustix::process::geteuid().as_raw()))),
        None => Err(ApiRejection::new(
            Code::PeerRefused,
            "the other end of this connection does not belong to the user who runs the server",
        )),
    }
}

fn by_token(tokens: &Tokens, path: &str, headers: &HeaderMap) -> Result<OwnerId, ApiRejection> {
    let refused = |why: &str| ApiRejection::new(Code::Unauthorized, why);
    if let Some(token) = api::token(path, headers) {
        let name = tokens.name_of(&token);
        return name.map(OwnerId::token).ok_or_else(|| refused(WRONG_TOKEN));
    }
    let name = match headers.get(header::AUTHORIZATION) {
        Some(value) => {
            let (value, scheme) = (value.as_bytes(), b"bearer ");
            if value.len() <= scheme.len() || !value[..scheme.len()].eq_ignore_ascii_case(scheme) {
                return Err(refused("the Authorization header is not `Bearer TOKEN`"));
            }
            tokens.name_of(value[scheme.len()..].trim_ascii())
        }
        None => tokens.name_of(&token_from_protocols(headers).ok_or_else(|| refused("no token was sent"))?),
    };
    name.map(OwnerId::token).ok_or_else(|| refused(WRONG_TOKEN))
}

const WRONG_TOKEN: &str = "the token is not one of this server's";

/// The protocol that WebSockets speak here, where one is offered.
pub(crate) const PROTOCOL: &str = "sandtimer";

/// The prefix of a token, in base64url, among the protocols that a WebSocket offers.
const TOKEN_PROTOCOL_PREFIX: &str = "sandtimer.token.";

/// The token among the protocols that a WebSocket offers.
fn token_from_protocols(headers: &HeaderMap) -> Option<Vec<u8>> {
    let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|list| list.to_str().ok());
    let token = lists
        .flat_map(|list| list.split(','))
        .find_map(|offer| offer.trim().strip_prefix(TOKEN_PROTOCOL_PREFIX))?;
    BASE64_URL_SAFE_NO_PAD.decode(token).ok()
}

/// Removes the token from the protocols that a WebSocket offers.
pub(crate) fn remove_offered_token(headers: &mut HeaderMap) {
    let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|list| list.to_str().ok());
    let offers = lists.flat_map(|list| list.split(',').map(str::trim));
    let kept: Vec<&str> = offers.filter(|offer| !offer.starts_with(TOKEN_PROTOCOL_PREFIX)).collect();
    let kept = HeaderValue::from_str(&kept.join(", ")).ok().filter(|kept| !kept.is_empty());
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    headers.extend(kept.map(|kept| (header::SEC_WEBSOCKET_PROTOCOL, kept)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_may_be_among_the_protocols_of_a_websocket() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(value));
            token_from_protocols(&headers)
        };
        assert_eq!(of("sandtimer, sandtimer.token.YS9iPys"), Some(b"a/b?+".to_vec()));
        for none in ["sandtimer", "sandtimer.token.", "sandtimer.token.===", "other.token.YQ"] {
            assert_eq!(of(none).filter(|token| !token.is_empty()), None, "{none}");
        }
    }
}
