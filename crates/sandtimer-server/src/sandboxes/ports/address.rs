//! How a request names a port of a sandbox: by its path, or by its Host.

use axum::http::{Uri, header};
use serde_json::Value;

use crate::body::refused;
use crate::error::ApiRejection;

pub(super) const PATH_PREFIX: &str = "/v1/sandboxes/";
const DOMAIN: &str = ".localhost";

/// Marks a request whose Host names the port.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByHost;

/// A port as a field has it.
pub(super) fn port_of(value: &Value) -> Result<u16, ApiRejection> {
    let number = match value {
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        other => other.as_u64(),
    };
    let port = number.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    port.ok_or_else(|| refused("port", value, "a number from 1 to 65535"))
}

/// The parts of a path to a port of a sandbox: the id, the port, and the rest.
pub(super) fn port_path(path: &str) -> Option<(&str, &str, &str)> {
    let (id, rest) = path.strip_prefix(PATH_PREFIX)?.split_once("/ports/")?;
    let (port, rest) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    (!id.contains('/')).then_some((id, port, rest))
}

/// The port and the id of a Host such as `8000-c731329c7bb9.localhost:7880`.
fn parse_port_host(host: &str) -> Option<(&str, &str)> {
    let name = match host.rsplit_once(':') {
        Some((name, port)) => port.parse::<u16>().is_ok().then_some(name)?,
        None => host,
    };
    let at = name.len().checked_sub(DOMAIN.len())?;
    let (label, domain) = name.split_at_checked(at)?;
    let (port, id) = label.split_once('-')?;
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_named = domain.eq_ignore_ascii_case(DOMAIN) && is_plain(id);
    (is_named && is_plain(port) && port.parse::<u32>().is_ok()).then_some((port, id))
}

/// Whether a Host names a port of a sandbox.
pub(crate) fn is_port_host(host: &str) -> bool {
    parse_port_host(host).is_some()
}

/// Gives a request whose Host names a port the path to that port: before there is a route for it,
/// so that it has no other one.
pub(crate) fn route_by_host<B>(request: &mut axum::http::Request<B>) {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let Some((port, id)) = host.and_then(parse_port_host) else { return };
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    // An absolute URL names a host by itself, and `*` is not a path.
    if request.uri().authority().is_some() || !target.starts_with('/') {
        return;
    }
    let routed = format!("{PATH_PREFIX}{}/ports/{port}{target}", id.to_ascii_lowercase());
    if let Ok(uri) = routed.parse::<Uri>() {
        *request.uri_mut() = uri;
        request.extensions_mut().insert(ByHost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_a_port_or_nothing() {
        assert_eq!(parse_port_host("8000-abc.localhost:7880"), Some(("8000", "abc")));
        assert_eq!(parse_port_host("8000-ABC.LOCALHOST"), Some(("8000", "ABC")));
        let others = [
            "localhost",
            "localhost:7880",
            "8000.localhost",
            "-abc.localhost",
            "8000-.localhost",
            "8000-abc.localhost.evil.example",
            "8000-abc.evil.localhost",
            "8000-abc.localhost:x",
            "x-abc.localhost",
            "8000-a/b.localhost",
            "é.localhost",
            "",
        ];
        for host in others {
            assert_eq!(parse_port_host(host), None, "{host}");
        }
    }

    #[test]
    fn request_by_host_has_no_route_but_the_port() {
        let routed = |target: &str| {
            let mut request =
                axum::http::Request::builder().uri(target).header("host", "8000-abc.localhost:1");
            request = request.method("GET");
            let mut request = request.body(()).expect("a request");
            route_by_host(&mut request);
            request.uri().to_string()
        };
        assert_eq!(routed("/v1/runs?a=b"), "/v1/sandboxes/abc/ports/8000/v1/runs?a=b");
        assert_eq!(routed("/../../x"), "/v1/sandboxes/abc/ports/8000/../../x");
        assert_eq!(routed("http://127.0.0.1:1/v1/runs"), "http://127.0.0.1:1/v1/runs");
        assert_eq!(port_path("/v1/sandboxes/abc/ports/8000/a/b"), Some(("abc", "8000", "/a/b")));
        assert_eq!(port_path("/v1/sandboxes/abc/x/ports/8000"), None);
    }
}
