//! Host and Origin: a browser sends both truthfully, so a page of another site, even if its name
//! resolves to loopback, is distinguished from a client of the server.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, Uri, header};

use crate::error::{ApiRejection, Code};
use crate::sandboxes::is_port_host;

/// Refuses a Host, or an authority in the request's own line, that is neither loopback nor the
/// address of the connection, and an Origin that is not the Host. `by_host`: the request goes to a
/// port of a sandbox that its Host names.
pub(crate) fn check(
    uri: &Uri,
    by_host: bool,
    headers: &HeaderMap,
    local: SocketAddr,
) -> Result<(), ApiRejection> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    let named = uri.authority().is_none_or(|authority| is_ours(authority.as_str(), local.ip()));
    if hosts.next().is_some() || !named || !(by_host && is_port_host(host) || is_ours(host, local.ip())) {
        return Err(ApiRejection::new(
            Code::HostRefused,
            "the Host header is neither loopback nor the address of this server",
        ));
    }
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let same =
            |scheme: &str| origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(host));
        if !same("http://") && !same("https://") {
            return Err(ApiRejection::new(
                Code::OriginRefused,
                "the request comes from a page of another origin",
            ));
        }
    }
    Ok(())
}

/// Whether a Host header names loopback or this address. The port may be a forwarder's.
fn is_ours(host: &str, local: IpAddr) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) if port.is_empty() || is_port(port) => name,
            _ => return false,
        },
        None => match host.find(':') {
            Some(at) if is_port(&host[at..]) => &host[..at],
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.to_canonical().is_loopback() || ip.to_canonical() == local.to_canonical())
}

/// `:7880`.
fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn checked(host: &str, origin: Option<&str>) -> Option<Code> {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).expect("a value"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).expect("a value"));
        }
        let by_host = is_port_host(host);
        check(&Uri::from_static("/v1"), by_host, &headers, "10.1.2.3:7880".parse().expect("an address"))
            .err()
            .map(|rejection| rejection.code)
    }

    #[test]
    fn loopback_and_the_listened_address_are_ours() {
        for host in [
            "localhost",
            "LOCALHOST:7880",
            "127.0.0.1:7880",
            "127.3.2.1",
            "[::1]:80",
            "[::1]",
            "10.1.2.3:7880",
            "8000-abc.localhost:7880",
        ] {
            assert_eq!(checked(host, None), None, "{host}");
        }
        let others = [
            "",
            "evil.example",
            "evil.example:7880",
            "localhost.evil.example",
            "10.1.2.4",
            "127.0.0.1:x",
            "[::1",
            "::1",
        ];
        for host in others {
            assert_eq!(checked(host, None), Some(Code::HostRefused), "{host}");
        }
        assert_eq!(
            check(
                &Uri::from_static("/v1"),
                false,
                &HeaderMap::new(),
                "127.0.0.1:1".parse().expect("an address")
            )
            .expect_err("none")
            .code,
            Code::HostRefused
        );
    }

    #[test]
    fn an_origin_must_be_the_host() {
        assert_eq!(checked("localhost:7880", Some("http://localhost:7880")), None);
        let of_port = |host| checked(host, Some("http://8000-abc.localhost:7880"));
        assert_eq!(of_port("8000-abc.localhost:7880"), None);
        for other in ["localhost:7880", "8001-abc.localhost:7880"] {
            assert_eq!(of_port(other), Some(Code::OriginRefused), "{other}");
        }
        for origin in ["http://localhost:3000", "http://evil.example", "null", "localhost:7880"] {
            assert_eq!(checked("localhost:7880", Some(origin)), Some(Code::OriginRefused), "{origin}");
        }
    }
}
