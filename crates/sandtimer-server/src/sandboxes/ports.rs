//! Ports of sandboxes: which ones are listened on, waiting for one, and links to one.
//!
//! ```text
//! /v1/sandboxes/ID/ports/PORT/…       ─┐
//! http://PORT-ID.localhost:7880/…     ─┴▶ forward: HTTP/1.1 and WebSockets to 127.0.0.1:PORT, or [::1]:PORT, of the sandbox
//! ```
//! A sandbox's code is not trusted: it gets neither the token nor the cookies of its visitor, and a
//! page that it serves below the server's own origin is a page without an origin (`forward`).

mod address;
mod forward;
mod link;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::routing::{any, get, post};
use sandtimer::engine::{ListeningPort, Sandbox};
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::auth::OwnerId;
use crate::body::{self, Id, Object, Parameters, RequestFields, refused};
use crate::connection::{Connection, while_there};
use crate::contexts::ContextService;
use crate::error::{ApiRejection, Code};

use address::port_of;
pub(crate) use address::{ByHost, is_port_host, route_by_host};
pub(crate) use forward::connect;
pub(crate) use link::LinkKey;

/// How often the ports are read while a request waits for one: the kernel does not notify when a
/// socket begins to listen.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a link is valid, by default and at most.
const LINK_LIFETIME: Duration = Duration::from_secs(3600);
const MAX_LINK_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new()
        .route("/v1/sandboxes/{id}/ports", get(list))
        .route("/v1/sandboxes/{id}/expose", post(expose))
        .route("/v1/sandboxes/{id}/ports/{port}", any(forward::forward))
        .route("/v1/sandboxes/{id}/ports/{port}/", any(forward::forward))
        .route("/v1/sandboxes/{id}/ports/{port}/{*path}", any(forward::forward))
}

fn given_port(fields: &mut RequestFields) -> Result<Option<u16>, ApiRejection> {
    fields.value("port").map(|port| port_of(&port)).transpose()
}

pub(crate) async fn ports(sandbox: &Sandbox) -> Result<Vec<ListeningPort>, ApiRejection> {
    let sandbox = sandbox.clone();
    let read = tokio::task::spawn_blocking(move || sandbox.listening_ports());
    Ok(read.await.map_err(|_| ApiRejection::new(Code::Internal, "the ports could not be read"))??)
}

/// The ports; with `port` whether that one is listened on, waiting for it at most `wait_ms`.
async fn list(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Id(id): Id,
    Parameters(mut fields): Parameters,
) -> Result<Response, ApiRejection> {
    let wanted = given_port(&mut fields)?;
    let max_wait = fields.milliseconds("wait_ms")?.unwrap_or_default();
    fields.finish()?;
    let sandbox = contexts.runs.sandboxes.get(&id, &owner)?;
    let until = Instant::now().checked_add(max_wait);
    let mut answered = None;
    let poll = async {
        answered = Some(loop {
            let found = ports(&sandbox).await;
            let is_there = |found: &Vec<ListeningPort>| {
                wanted.is_none_or(|wanted| found.iter().any(|one| one.port == wanted))
            };
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            if is_late || found.as_ref().map_or(true, is_there) {
                break found;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        });
    };
    while_there(&connection, poll, || {}).await;
    let gone = || ApiRejection::new(Code::RequestTimeout, "the client disconnected");
    let found = answered.ok_or_else(gone)??;
    let shown: Vec<Value> =
        found.iter().map(|one| json!({"port": one.port, "addresses": one.addresses})).collect();
    let listening = wanted.map(|wanted| found.iter().any(|one| one.port == wanted));
    Ok(body::json(&json!({"ports": shown, "listening": listening})))
}

/// Makes a link by which a port is reached without a token, for a time.
async fn expose(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    headers: HeaderMap,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let port = given_port(&mut fields)?
        .ok_or_else(|| ApiRejection::new(Code::BadField, "port is missing").with("key", "port"))?;
    let lifetime = fields.milliseconds("ttl_ms")?.unwrap_or(LINK_LIFETIME);
    fields.finish()?;
    if lifetime.is_zero() || lifetime > MAX_LINK_LIFETIME {
        let milliseconds = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        return Err(refused("ttl_ms", &milliseconds.into(), "a number of milliseconds, at most 30 days"));
    }
    let sandbox = contexts.runs.sandboxes.get(&id, &owner)?;
    if sandbox.has_network_of_host() {
        // The same error as for a connection.
        sandbox.listening_ports()?;
    }
    let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    let expires_at_ms = calendar_milliseconds().saturating_add(lifetime_ms);
    let signed = contexts.runs.sandboxes.link_key.sign(sandbox.id(), port, expires_at_ms);
    let query = format!("?{}={signed}", link::LINK);
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let server_port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
    let suffix = server_port.map_or_else(String::new, |port| format!(":{port}"));
    Ok(body::json(&json!({
        "port": port,
        "url": format!("http://{port}-{}.localhost{suffix}/{query}", sandbox.id()),
        "path": format!("/v1/sandboxes/{}/ports/{port}/{query}", sandbox.id()),
        "expires_at_ms": expires_at_ms,
    })))
}
