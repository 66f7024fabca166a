//! A response's head: parsed, checked, and as it is forwarded.

use crate::http::fields::{Framing, HeaderFields, MAX_FIELDS, append, append_framing};
use crate::http::request::HttpRequest;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The head for the client.
    pub(crate) head: Vec<u8>,
    /// How the server's body ends.
    pub(crate) framing: Framing,
    /// How the client's does.
    pub(crate) client_framing: Framing,
    pub(crate) keeps_open: bool,
}

impl Response {
    pub(crate) fn is_interim(&self) -> bool {
        matches!(self.status, 100..=199) && self.status != 101
    }

    /// Parses the head of a response to `request`. Fails if it is not a response of HTTP/1 that is
    /// read in one way only.
    pub(crate) fn parse(head: &[u8], request: &HttpRequest, is_upgrade: bool) -> Result<Response, String> {
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut parsed = httparse::Response::new(&mut fields);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            Err(error) => return Err(format!("the head of the response is not HTTP/1: {error}")),
            Ok(_) => return Err("the head of the response is not one head of HTTP/1".to_owned()),
        }
        let Some(status) = parsed.code else { return Err("the response has no status".to_owned()) };
        let fields = HeaderFields(parsed.headers);
        let options = fields.connection_options()?;
        let named = fields.framing()?;
        let has_no_body = request.is_head() || matches!(status, 100..=199 | 204 | 304);
        let framing = if has_no_body { Framing::Empty } else { named.unwrap_or(Framing::UntilClose) };
        // HTTP/1.0 has no chunks: the client gets their contents.
        let client_framing =
            if request.version == 0 && framing == Framing::Chunked { Framing::UntilClose } else { framing };
        let is_final = !matches!(status, 100..=199);
        let keeps_open = request.keeps_open && client_framing != Framing::UntilClose;
        let mut head = format!("HTTP/1.1 {status} {}\r\n", parsed.reason.unwrap_or_default()).into_bytes();
        fields.forward(&options, &mut head);
        match named {
            // What the body of a GET would have.
            Some(length @ Framing::Length(_)) if request.is_head() || status == 304 => {
                append_framing(&mut head, length)
            }
            _ => append_framing(&mut head, client_framing),
        }
        if status == 101 {
            let protocol = fields.one("Upgrade")?;
            if !is_upgrade || !protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket")) {
                return Err("the server switched to a protocol that was not asked for".to_owned());
            }
            append(&mut head, "Connection", b"upgrade");
            append(&mut head, "Upgrade", b"websocket");
        }
        if is_final && !keeps_open {
            append(&mut head, "Connection", b"close");
        }
        head.extend_from_slice(b"\r\n");
        Ok(Response { status, head, framing, client_framing, keeps_open })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> HttpRequest {
        HttpRequest::parse(format!("{line}\r\nHost: a.example\r\n\r\n").as_bytes()).unwrap()
    }

    fn parse(line: &str, response: &str) -> Result<Response, String> {
        Response::parse(response.replace('\n', "\r\n").as_bytes(), &request(line), false)
    }

    const GET: &str = "GET http://a.example/ HTTP/1.1";

    #[test]
    fn framing_is_the_servers_or_what_the_client_can_read() {
        let framing = |line: &str, fields: &str| {
            let response = parse(line, &format!("HTTP/1.1 200 OK\n{fields}\n")).unwrap();
            (response.framing, response.client_framing, response.keeps_open)
        };
        assert_eq!(framing(GET, "Content-Length: 3\n"), (Framing::Length(3), Framing::Length(3), true));
        assert_eq!(framing(GET, "Transfer-Encoding: chunked\n"), (Framing::Chunked, Framing::Chunked, true));
        assert_eq!(framing(GET, ""), (Framing::UntilClose, Framing::UntilClose, false));
        let old = "GET http://a.example/ HTTP/1.0";
        assert_eq!(
            framing(old, "Transfer-Encoding: chunked\n"),
            (Framing::Chunked, Framing::UntilClose, false)
        );
        let head = "HEAD http://a.example/ HTTP/1.1";
        assert_eq!(framing(head, "Content-Length: 3\n"), (Framing::Empty, Framing::Empty, true));
        let not_modified = parse(GET, "HTTP/1.1 304 Not Modified\nContent-Length: 3\n\n").unwrap();
        assert_eq!(not_modified.framing, Framing::Empty);
        assert!(String::from_utf8(not_modified.head).unwrap().contains("Content-Length: 3\r\n"));
    }

    #[test]
    fn ambiguous_responses_are_refused() {
        for response in [
            "HTTP/1.1 200 OK\nContent-Length: 3\nTransfer-Encoding: chunked\n\n",
            "HTTP/1.1 200 OK\nContent-Length: 3\nContent-Length: 4\n\n",
            "HTTP/1.1 200 OK\nContent-Length : 3\n\n",
            "HTTP/1.1 200 OK\nConnection: Content-Length\nContent-Length: 3\n\n",
            "HTTP/1.1 101 Switching Protocols\nUpgrade: websocket\n\n",
            "HTTP/1.1 2000 OK\n\n",
            "ICY 200 OK\n\n",
        ] {
            assert!(parse(GET, response).is_err(), "{response}");
        }
    }
}
