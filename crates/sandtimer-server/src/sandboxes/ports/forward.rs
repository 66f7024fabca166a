//! Forwards requests to a port of a sandbox.
//!
//! What listens there is not trusted. Below `/v1/sandboxes/ID/ports/PORT/` its pages have the
//! address of the API: they get no origin (`Content-Security-Policy: sandbox`), so that their
//! scripts are refused there as those of other sites are, and no cookies are carried in either
//! direction, since cookies know no ports. Under `PORT-ID.localhost` they have an origin of their
//! own. In both it does not get what its visitor has shown to this server: token or link.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sandtimer::engine::Sandbox;
use serde_json::Value;
use tokio::net::{TcpSocket, TcpStream};

use super::address::{ByHost, PATH_PREFIX, port_of, port_path};
use super::link;
use crate::auth::{self, OwnerId};
use crate::contexts::ContextService;
use crate::error::{ApiRejection, Code};
use crate::listen::ConnectionPermit;

/// How long a server in a sandbox may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Headers of a connection, not of the message that is forwarded; RFC 9110, 7.6.1.
const HOP_BY_HOP_HEADERS: [HeaderName; 6] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// What a page below the server's own origin may do.
const WITHOUT_ORIGIN: &str = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts";

pub(super) async fn forward(
    State(contexts): State<Arc<ContextService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(permit): Extension<ConnectionPermit>,
    request: Request,
) -> Response {
    let is_for_person = accepts_html(request.headers());
    let answered = answer(&contexts, &owner, permit, request).await;
    answered.unwrap_or_else(|refusal| if is_for_person { page(&refusal) } else { refusal.into_response() })
}

async fn answer(
    contexts: &Arc<ContextService>,
    owner: &OwnerId,
    permit: ConnectionPermit,
    request: Request,
) -> Result<Response, ApiRejection> {
    let by_host = request.extensions().get::<ByHost>().is_some();
    let path = request.uri().path().to_owned();
    let not_found = || ApiRejection::new(Code::NotFound, "the path names no port");
    let (id, port, rest) = port_path(&path).ok_or_else(not_found)?;
    let port = port_of(&Value::from(port))?;
    let sandbox = contexts.runs.sandboxes.get(id, owner)?;
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let link = link::in_query(request.uri());
    if reads && (rest.is_empty() || link.is_some() && accepts_html(request.headers())) {
        return Ok(redirect(request.uri(), by_host, &sandbox, port, rest));
    }
    let target = Target { port, rest: rest.to_owned(), by_host };
    // Otherwise the kernel accepts the connection, and nothing answers.
    sandbox.check_running()?;
    let stream = connect(&sandbox, port).await?;
    send(contexts, permit, stream, request, &target).await
}

/// To the same page without the link, which becomes a cookie; and with the slash that links of the
/// page are relative to.
fn redirect(uri: &Uri, by_host: bool, sandbox: &Sandbox, port: u16, rest: &str) -> Response {
    let base = if by_host { String::new() } else { format!("{PATH_PREFIX}{}/ports/{port}", sandbox.id()) };
    let rest = if rest.is_empty() { "/" } else { rest };
    let location = format!("{base}{rest}{}", without_link(uri.query()));
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    let cookie = link::in_query(uri).and_then(|value| {
        let cookie = format!("{}={value}; Path={base}/; HttpOnly; SameSite=Lax", link::LINK);
        HeaderValue::from_str(&cookie).ok()
    });
    response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// A query with its question mark, without the link.
fn without_link(query: Option<&str>) -> String {
    let is_link = |pair: &&str| pair.strip_prefix(link::LINK).is_some_and(|rest| rest.starts_with('='));
    let kept: Vec<&str> =
        query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !is_link(pair)).collect();
    if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) }
}

/// Where a request goes.
struct Target {
    port: u16,
    rest: String,
    by_host: bool,
}

/// A connection to a port, of IPv4 if that is listened on.
pub(crate) async fn connect(sandbox: &Sandbox, port: u16) -> Result<TcpStream, ApiRejection> {
    let id = sandbox.id();
    let closed = || {
        let message = format!("nothing in the sandbox `{id}` listens on port {port}");
        ApiRejection::new(Code::PortUnavailable, message).with("port", port)
    };
    if sandbox.is_own_port(port) {
        return Err(closed());
    }
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let made = sandbox.clone();
        let socket = tokio::task::spawn_blocking(move || made.port_socket(address.is_ipv6())).await;
        let socket = socket.map_err(|_| ApiRejection::new(Code::Internal, "no socket could be made"))??;
        let Some(socket) = socket else { continue };
        let address = SocketAddr::new(address, port);
        match tokio::time::timeout(CONNECT_TIMEOUT, TcpSocket::from_std_stream(socket).connect(address)).await
        {
            Ok(Ok(stream)) if is_other(&stream) => {
                // Without it small writes are late, no more.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(_) => {}
            Err(_) => {
                let message = format!(
                    "what listens on port {port} of the sandbox `{id}` did not accept a connection within 5 s"
                );
                return Err(ApiRejection::new(Code::PortUnavailable, message).with("port", port));
            }
        }
    }
    Err(closed())
}

/// Whether a connection has another end. A socket that the kernel has given the port that it
/// connects to is connected to itself.
fn is_other(stream: &TcpStream) -> bool {
    let ends = || io::Result::Ok((stream.local_addr()?, stream.peer_addr()?));
    ends().is_ok_and(|(local, peer)| local != peer)
}

async fn send(
    contexts: &Arc<ContextService>,
    permit: ConnectionPermit,
    stream: TcpStream,
    mut request: Request,
    target: &Target,
) -> Result<Response, ApiRejection> {
    let failed = |error: &dyn std::fmt::Display| {
        let message = format!("what listens on port {} of the sandbox gave no answer: {error}", target.port);
        ApiRejection::new(Code::PortUnavailable, message).with("port", target.port)
    };
    let upgrade = upgrade_of(request.headers());
    let upgraded = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let query = without_link(request.uri().query());
    *request.uri_mut() = format!("{}{query}", target.rest).parse().map_err(|error| failed(&error))?;
    *request.version_mut() = axum::http::Version::HTTP_11;
    // Without a token of this server's, what is sent is for the program in the sandbox.
    clean_request(request.headers_mut(), target, contexts.runs.core.tenants.tokens.is_some());
    for (name, value) in upgrade_headers(upgrade) {
        request.headers_mut().insert(name, value);
    }
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    tokio::spawn(connection.with_upgrades());
    let mut response = sender.send_request(request).await.map_err(|error| failed(&error))?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let accepted = upgrade_headers(upgrade_of(response.headers()));
        let Some(client) = upgraded else { return Err(failed(&"it has changed the protocol")) };
        let server = hyper::upgrade::on(&mut response);
        tokio::spawn(carry(contexts.clone(), permit, client, server));
        clean_response(response.headers_mut(), target);
        response.headers_mut().extend(accepted);
    } else {
        clean_response(response.headers_mut(), target);
    }
    Ok(response.map(Body::new))
}

/// Carries bytes in both directions until one side has ended, or the server ends.
async fn carry(
    contexts: Arc<ContextService>,
    _permit: ConnectionPermit,
    client: OnUpgrade,
    server: OnUpgrade,
) {
    let (Ok(client), Ok(server)) = tokio::join!(client, server) else { return };
    let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
    let mut closing = contexts.runs.core.closing.subscribe();
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

/// The protocol that a message changes to, if it does.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut words = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let is_asked =
        words.any(|words| words.split(',').any(|word| word.trim().eq_ignore_ascii_case("upgrade")));
    headers.get(header::UPGRADE).filter(|_| is_asked).cloned()
}

fn upgrade_headers(upgrade: Option<HeaderValue>) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let both =
        |upgrade| [(header::CONNECTION, HeaderValue::from_static("upgrade")), (header::UPGRADE, upgrade)];
    upgrade.map(both).into_iter().flatten()
}

/// Removes what belongs to the connection: by name, and what the connection's own header names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(',').filter_map(|name| name.trim().parse().ok()))
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP_HEADERS) {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers.remove("proxy-connection");
}

fn clean_request(headers: &mut HeaderMap, target: &Target, has_tokens: bool) {
    remove_hop_by_hop(headers);
    if has_tokens {
        headers.remove(header::AUTHORIZATION);
        auth::remove_offered_token(headers);
    }
    if target.by_host {
        let kept = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let own = format!("{}=", link::LINK);
        let kept: Vec<&str> = kept
            .flat_map(|cookies| cookies.split(';').map(str::trim))
            .filter(|cookie| !cookie.starts_with(&own))
            .collect();
        let kept = HeaderValue::from_str(&kept.join("; ")).ok().filter(|kept| !kept.is_empty());
        headers.remove(header::COOKIE);
        headers.extend(kept.map(|kept| (header::COOKIE, kept)));
    } else {
        headers.remove(header::COOKIE);
        // Development servers refuse hosts that they do not know.
        if let Ok(host) = HeaderValue::from_str(&format!("localhost:{}", target.port)) {
            headers.insert(header::HOST, host);
        }
    }
}

fn clean_response(headers: &mut HeaderMap, target: &Target) {
    remove_hop_by_hop(headers);
    headers.remove("alt-svc");
    headers.remove("clear-site-data");
    if target.by_host {
        // One for a domain is other sites' as well.
        let is_own = |cookie: &&HeaderValue| {
            !cookie
                .as_bytes()
                .to_ascii_lowercase()
                .split(|byte| *byte == b';')
                .any(|part| part.trim_ascii().starts_with(b"domain"))
        };
        let kept: Vec<HeaderValue> =
            headers.get_all(header::SET_COOKIE).iter().filter(is_own).cloned().collect();
        headers.remove(header::SET_COOKIE);
        headers.extend(kept.into_iter().map(|cookie| (header::SET_COOKIE, cookie)));
    } else {
        headers.remove(header::SET_COOKIE);
        headers.remove("service-worker-allowed");
        headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(WITHOUT_ORIGIN));
    }
}

fn accepts_html(headers: &HeaderMap) -> bool {
    headers
        .get(header::ACCEPT)
        .and_then(|accepted| accepted.to_str().ok())
        .is_some_and(|accepted| accepted.contains("text/html"))
}

/// An error for a person in a browser.
fn page(refusal: &ApiRejection) -> Response {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let (message, hint) = (escaped(&refusal.message), escaped(refusal.code.hint()));
    let page = format!(
        "<!doctype html><meta charset=utf-8><title>{status}</title><h1>{message}</h1><p>{hint}</p>\n",
        status = refusal.code.status()
    );
    let mut response = page.into_response();
    *response.status_mut() =
        StatusCode::from_u16(refusal.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_in_sandboxes_get_neither_token_nor_link() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer secret"),
            ("cookie", "a=b; sandtimer_link=1.x"),
            ("cookie", "c=d"),
            ("connection", "close, x-private"),
            ("x-private", "1"),
            ("sec-websocket-protocol", "chat, sandtimer.token.YQ"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let by_host = Target { port: 80, rest: "/".to_owned(), by_host: true };
        let mut own = headers.clone();
        clean_request(&mut own, &by_host, true);
        assert_eq!(own.get("cookie"), Some(&HeaderValue::from_static("a=b; c=d")));
        assert_eq!(own.get("sec-websocket-protocol"), Some(&HeaderValue::from_static("chat")));
        assert!(own.get("authorization").is_none() && own.get("x-private").is_none(), "{own:?}");
        clean_request(&mut headers, &Target { by_host: false, ..by_host }, false);
        assert!(headers.get("cookie").is_none() && headers.get("authorization").is_some(), "{headers:?}");
        assert_eq!(without_link(Some("a=1&sandtimer_link=1.x&b")), "?a=1&b");
        assert_eq!(without_link(Some("sandtimer_link=1.x")), "");
    }

    #[test]
    fn pages_below_the_api_have_no_origin_and_no_cookies() {
        let mut headers = HeaderMap::new();
        headers.append("set-cookie", HeaderValue::from_static("a=b"));
        headers.append("set-cookie", HeaderValue::from_static("c=d; Domain=localhost"));
        headers.append("content-security-policy", HeaderValue::from_static("default-src *"));
        let target = Target { port: 80, rest: "/".to_owned(), by_host: false };
        let mut below = headers.clone();
        clean_response(&mut below, &target);
        assert!(below.get("set-cookie").is_none());
        assert!(below.get_all("content-security-policy").iter().any(|policy| policy == WITHOUT_ORIGIN));
        clean_response(&mut headers, &Target { by_host: true, ..target });
        let cookies: Vec<_> = headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=b"]);
    }
}
