//! The layer in front of all handlers: whose request it is, and whether it is admitted.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, Request, Uri, header};
use axum::middleware::Next;
use axum::response::Response;

use super::places::ConnectionPermit;
use crate::auth::{self, OwnerId, Tokens};
use crate::connection::Connection;
use crate::error::{ApiRejection, Code};
use crate::intake::{self, HeldReservations};
use crate::sandboxes::ByHost;
use crate::state::SharedApp;
use crate::{api, page};

const WRONG_TOKEN: &str = "the token is not one of this server's";

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
    let owner = owner_of(&app, &connection, request.uri(), by_host, request.headers()).await;
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
            intake::hold(&app.core.messages.answers, &owner, answer).unwrap_or_else(|rejection| {
                let rejection = if only_reads { rejection } else { rejection.after_execution(None) };
                api::refuse(&path, rejection)
            })
        }
        Err(rejection) => api::refuse(request.uri().path(), rejection),
    }
}

/// Whose request it is; `None` where it does not matter.
async fn owner_of(
    app: &SharedApp,
    connection: &Connection,
    uri: &Uri,
    by_host: bool,
    headers: &HeaderMap,
) -> Result<Option<OwnerId>, ApiRejection> {
    auth::check_origin(uri, by_host, headers, connection.local())?;
    if PUBLIC_PATHS.contains(&uri.path()) {
        return Ok(None);
    }
    if let Some(owner) = app.runs.sandboxes.owner_by_link(uri, headers)? {
        return Ok(Some(owner));
    }
    match &app.core.tenants.tokens {
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
        None => {
            tokens.name_of(&auth::token_from_protocols(headers).ok_or_else(|| refused("no token was sent"))?)
        }
    };
    name.map(OwnerId::token).ok_or_else(|| refused(WRONG_TOKEN))
}
