//! A request's head: parsed, checked, and as it is forwarded.

use crate::http::answer::Rejection;
use crate::http::fields::{Framing, HeaderFields, MAX_FIELDS, append, append_framing};
use crate::target::Target;

const HTTP_PORT: u16 = 80;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HttpRequest {
    pub(crate) target: Target,
    pub(crate) kind: RequestKind,
    method: String,
    /// The minor version: 0 or 1.
    pub(crate) version: u8,
    /// True if the client may send another request after this one.
    pub(crate) keeps_open: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Connect,
    Forward {
        /// The head for the server.
        head: Vec<u8>,
        framing: Framing,
        /// True if the client asks for a WebSocket.
        is_upgrade: bool,
    },
}

impl HttpRequest {
    /// Fails if the head is not one that every server reads in the same way.
    pub(crate) fn parse(head: &[u8]) -> Result<HttpRequest, Rejection> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut parsed = httparse::Request::new(&mut fields);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            Err(httparse::Error::TooManyHeaders) => {
                let message = format!("The request has more than {MAX_FIELDS} fields. Send fewer.");
                return Err(Rejection::new(431, message));
            }
            Err(error) => return Err(bad(format!("The head of the request is not HTTP/1: {error}."))),
            Ok(_) => return Err(bad("The head of the request is not one head of HTTP/1.")),
        }
        let (Some(method), Some(url), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(bad("The request line is not complete."));
        };
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad(
                "The target of the request has characters that are not ASCII. Write them percent-encoded.",
            ));
        }
        let line = RequestLine { method, url, version };
        if method == "CONNECT" {
            connect(line, HeaderFields(parsed.headers))
        } else {
            forward(line, HeaderFields(parsed.headers))
        }
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }
}

#[derive(Clone, Copy)]
struct RequestLine<'a> {
    method: &'a str,
    url: &'a str,
    version: u8,
}

fn bad(message: impl Into<String>) -> Rejection {
    Rejection::bad_request(message)
}

fn connect(line: RequestLine<'_>, fields: HeaderFields<'_>) -> Result<HttpRequest, Rejection> {
    let target = Target::parse(line.url, None)
        .map_err(|error| bad(format!("CONNECT to \"{}\" is refused: {error}.", line.url)))?;
    check_host(fields, &target, target.port)?;
    if fields.framing().map_err(bad)?.is_some() {
        return Err(bad("CONNECT has no body. Send it without Content-Length and Transfer-Encoding."));
    }
    let kind = RequestKind::Connect;
    Ok(HttpRequest { target, kind, method: line.method.to_owned(), version: line.version, keeps_open: false })
}

fn forward(line: RequestLine<'_>, fields: HeaderFields<'_>) -> Result<HttpRequest, Rejection> {
    let RequestLine { method, version, .. } = line;
    let (target, path) = split_url(line)?;
    if !check_host(fields, &target, HTTP_PORT)? && version == 1 {
        return Err(bad("The request has no Host field. Send the host of the URL."));
    }
    let framing = fields.framing().map_err(bad)?.unwrap_or(Framing::Empty);
    if version == 0 && framing == Framing::Chunked {
        return Err(bad("HTTP/1.0 has no transfer encodings. Send a Content-Length."));
    }
    let options = fields.connection_options().map_err(bad)?;
    let has_option = |name: &str| options.iter().any(|option| option == name);
    let websocket =
        fields.one("Upgrade").map_err(bad)?.is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"));
    let is_upgrade =
        websocket && has_option("upgrade") && version == 1 && method == "GET" && framing == Framing::Empty;
    let mut head = format!("{method} {path} HTTP/1.{version}\r\n").into_bytes();
    append(&mut head, "Host", target.authority(HTTP_PORT).as_bytes());
    fields.forward(&options, &mut head);
    append_framing(&mut head, framing);
    append(&mut head, "Via", format!("1.{version} sandtimer").as_bytes());
    if is_upgrade {
        append(&mut head, "Connection", b"upgrade");
        append(&mut head, "Upgrade", b"websocket");
    } else {
        append(&mut head, "Connection", b"close");
    }
    head.extend_from_slice(b"\r\n");
    let kind = RequestKind::Forward { head, framing, is_upgrade };
    Ok(HttpRequest {
        target,
        kind,
        method: method.to_owned(),
        version,
        keeps_open: version == 1 && !has_option("close"),
    })
}

/// Splits an absolute URL into the target and what the server gets.
fn split_url(line: RequestLine<'_>) -> Result<(Target, String), Rejection> {
    let url = line.url;
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(bad(
            "The target of the request has no host. A proxy needs the whole URL: http://HOST/PATH.",
        ));
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(bad(format!(
            "The scheme \"{scheme}\" is not carried. Use CONNECT for https, and http for the rest."
        )));
    }
    if rest.contains('#') {
        return Err(bad(
            "The URL has a fragment, which is not sent to servers. Leave out the `#` and what follows.",
        ));
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let target = Target::parse(authority, Some(HTTP_PORT))
        .map_err(|error| bad(format!("The URL \"{url}\" is refused: {error}.")))?;
    let path = match path {
        "" if line.method == "OPTIONS" => "*".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        query => format!("/{query}"),
    };
    Ok((target, path))
}

/// Returns whether there is a Host field. Fails if there are several, or if it does not name the
/// target.
fn check_host(fields: HeaderFields<'_>, target: &Target, default_port: u16) -> Result<bool, Rejection> {
    let Some(host) = fields.one("Host").map_err(bad)? else { return Ok(false) };
    let named = std::str::from_utf8(host).ok().and_then(|host| Target::parse(host, Some(default_port)).ok());
    if named.as_ref() == Some(target) {
        return Ok(true);
    }
    let host = host.escape_ascii();
    Err(bad(format!(
        "The Host field has \"{host}\", and the target is {target}. Send the host of the target."
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str) -> Result<HttpRequest, Rejection> {
        HttpRequest::parse(head.replace('\n', "\r\n").as_bytes())
    }

    fn forwarded(head: &str) -> String {
        match parse(head).unwrap().kind {
            RequestKind::Forward { head, .. } => String::from_utf8(head).unwrap().replace("\r\n", "\n"),
            RequestKind::Connect => panic!("{head} is CONNECT"),
        }
    }

    #[test]
    fn request_is_forwarded_without_fields_of_the_connection() {
        let head = "GET http://A.example:80/p?q=1 HTTP/1.1\nHost: a.example.\nProxy-Connection: keep-alive\nX-Kept: 1\n\
                    Connection: keep-alive, X-Own\nX-Own: 2\nTE: trailers\nProxy-Authorization: Basic eA==\n\n";
        assert_eq!(
            forwarded(head),
            "GET /p?q=1 HTTP/1.1\nHost: a.example\nX-Kept: 1\nVia: 1.1 sandtimer\nConnection: close\n\n"
        );
    }

    #[test]
    fn path_is_made_for_the_server() {
        let line = |url: &str, method: &str| {
            let head = format!("{method} {url} HTTP/1.0\n\n");
            forwarded(&head).lines().next().unwrap().to_owned()
        };
        assert_eq!(line("http://a.example", "GET"), "GET / HTTP/1.0");
        assert_eq!(line("http://a.example?x", "GET"), "GET /?x HTTP/1.0");
        assert_eq!(line("http://a.example", "OPTIONS"), "OPTIONS * HTTP/1.0");
        assert_eq!(line("HTTP://a.example:8080/http://b/", "GET"), "GET /http://b/ HTTP/1.0");
    }

    #[test]
    fn body_has_one_framing() {
        let with =
            |fields: &str| parse(&format!("POST http://a.example/ HTTP/1.1\nHost: a.example\n{fields}\n"));
        let framing = |fields: &str| match with(fields).unwrap().kind {
            RequestKind::Forward { framing, .. } => framing,
            RequestKind::Connect => Framing::Empty,
        };
        assert_eq!(framing("Content-Length: 7\n"), Framing::Length(7));
        assert_eq!(framing("Transfer-Encoding: Chunked\n"), Framing::Chunked);
        for fields in [
            "Content-Length: 7\nTransfer-Encoding: chunked\n",
            "Content-Length: 7\nContent-Length: 7\n",
            "Content-Length: 7\nContent-Length: 8\n",
            "Content-Length: 7, 7\n",
            "Content-Length: +7\n",
            "Content-Length: -7\n",
            "Content-Length: 0x7\n",
            "Content-Length: \n",
            "Content-Length: 99999999999999999999\n",
            "Content-Length : 7\n",
            "Transfer-Encoding: gzip, chunked\n",
            "Transfer-Encoding: chunked, chunked\n",
            "Transfer-Encoding: chunked\nTransfer-Encoding: identity\n",
            "Transfer-Encoding: identity\n",
            "Transfer-Encoding: xchunked\n",
            "Connection: Content-Length\nContent-Length: 7\n",
            "Connection: close, host\n",
        ] {
            assert_eq!(with(fields).expect_err(fields).status, 400, "{fields}");
        }
        assert!(parse("POST http://a.example/ HTTP/1.0\nTransfer-Encoding: chunked\n\n").is_err());
    }

    #[test]
    fn host_must_be_the_target() {
        for head in [
            "GET http://a.example/ HTTP/1.1\nHost: b.example\n\n",
            "GET http://a.example/ HTTP/1.1\nHost: a.example:8080\n\n",
            "GET http://a.example:8080/ HTTP/1.1\nHost: a.example\n\n",
            "GET http://a.example/ HTTP/1.1\nHost: a.example\nHost: b.example\n\n",
            "GET http://a.example/ HTTP/1.1\nHost: a.example\nHost: a.example\n\n",
            "GET http://a.example/ HTTP/1.1\nHost: \n\n",
            "GET http://a.example/ HTTP/1.1\nHost: a.example, b.example\n\n",
            "GET http://a.example/ HTTP/1.1\nHost: b.example@a.example\n\n",
            "GET http://a.example/ HTTP/1.1\n\n",
            "GET http://a.example/ HTTP/1.0\nHost: b.example\n\n",
            "CONNECT a.example:443 HTTP/1.1\nHost: b.example:443\n\n",
        ] {
            assert_eq!(parse(head).expect_err(head).status, 400, "{head}");
        }
        assert!(parse("CONNECT a.example:443 HTTP/1.1\nHost: a.example\n\n").is_ok());
        assert!(parse("CONNECT a.example:443 HTTP/1.1\n\n").is_ok());
    }

    #[test]
    fn other_targets_are_refused() {
        for head in [
            "GET / HTTP/1.1\nHost: a.example\n\n",
            "OPTIONS * HTTP/1.1\nHost: a.example\n\n",
            "GET https://a.example/ HTTP/1.1\nHost: a.example\n\n",
            "GET ftp://a.example/ HTTP/1.1\nHost: a.example\n\n",
            "GET http:/a.example/ HTTP/1.1\nHost: a.example\n\n",
            "GET http://b.example@a.example/ HTTP/1.1\nHost: a.example\n\n",
            "GET http://a.example\\@b.example/ HTTP/1.1\nHost: a.example\n\n",
            "GET http://a.example#.b.example/ HTTP/1.1\nHost: a.example\n\n",
            "GET http:///a.example/ HTTP/1.1\nHost: a.example\n\n",
            "GET http://a.example/ HTTP/2.0\nHost: a.example\n\n",
            "GET http://a.example/ x HTTP/1.1\nHost: a.example\n\n",
            "GET  http://a.example/ HTTP/1.1\nHost: a.example\n\n",
            "GET http://a.example/\n\n",
            "CONNECT a.example HTTP/1.1\n\n",
            "CONNECT http://a.example:80 HTTP/1.1\n\n",
            "CONNECT a.example:443 HTTP/1.1\nContent-Length: 3\n\n",
            "connect a.example:443 HTTP/1.1\nHost: a.example\n\n",
        ] {
            assert_eq!(parse(head).expect_err(head).status, 400, "{head}");
        }
    }

    #[test]
    fn only_websockets_are_upgrades() {
        let upgrade = |name: &str| {
            let head = format!(
                "GET http://a.example/ HTTP/1.1\nHost: a.example\nConnection: Upgrade\nUpgrade: {name}\n\n"
            );
            matches!(parse(&head).unwrap().kind, RequestKind::Forward { is_upgrade: true, .. })
        };
        assert!(upgrade("WebSocket") && !upgrade("h2c") && !upgrade("websocket, h2c"));
    }
}
