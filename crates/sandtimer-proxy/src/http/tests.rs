//! Properties of requests that are put together from pieces on which parsers disagree.

use proptest::prelude::*;

use crate::buffered::Buffered;
use crate::http::head;
use crate::http::request::{HttpRequest, RequestKind};

const LINES: [&str; 22] = [
    "Host: a.example",
    "Host: b.example",
    "Host:a.example",
    "Host : a.example",
    "host: A.EXAMPLE.",
    "Content-Length: 5",
    "Content-Length: 6",
    "Content-Length: +5",
    "Content-Length:",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip",
    "Transfer-Encoding:\tchunked",
    "Connection: close",
    "Connection: keep-alive, Content-Length",
    "Connection: host",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "X: y",
    "X: y\u{b}Host: b.example",
    "X",
    ": y",
    "",
];
const STARTS: [&str; 8] = [
    "GET http://a.example/ HTTP/1.1",
    "GET http://a.example/ HTTP/1.0",
    "POST http://a.example:80/p?q HTTP/1.1",
    "GET http://a.example HTTP/1.1 ",
    "GET http://b.example@a.example/ HTTP/1.1",
    "GET / HTTP/1.1",
    "GET http://a.example/\thttp://b.example/ HTTP/1.1",
    "OPTIONS http://a.example HTTP/1.1",
];
const ENDS: [&str; 8] = ["\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\n ", "\r\r\n"];

/// A head of usual and unusual pieces; some have the usual ones only.
fn written() -> impl Strategy<Value = String> {
    let line =
        (0..LINES.len(), 0..ENDS.len()).prop_map(|(line, end)| format!("{}{}", LINES[line], ENDS[end]));
    let usual = (0..LINES.len()).prop_map(|line| format!("{}\r\n", LINES[line]));
    let lines = prop_oneof![prop::collection::vec(line, 0..6), prop::collection::vec(usual, 0..6)];
    (0..STARTS.len(), lines)
        .prop_map(|(start, lines)| format!("{}\r\nHost: a.example\r\n{}\r\n", STARTS[start], lines.concat()))
}

fn read(written: &str) -> Option<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(head::read(&mut Buffered::new(written.as_bytes()), 4096)).ok()
}

/// Checks a head that is sent to a server, line by line: one Host, one framing, and only whole
/// lines.
fn check(sent: &str) -> Result<(), TestCaseError> {
    let lines = sent.strip_suffix("\r\n\r\n").expect("the head is complete").split("\r\n").skip(1);
    let mut names = Vec::new();
    for line in lines {
        prop_assert!(!line.contains(['\r', '\n', '\0']) && !line.starts_with([' ', '\t']), "{sent:?}");
        let (name, value) = line.split_once(':').expect("a line is a field");
        prop_assert!(!name.is_empty() && !name.contains(char::is_whitespace), "{sent:?}");
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "host" => prop_assert_eq!(value.trim(), "a.example"),
            "transfer-encoding" => prop_assert_eq!(value.trim(), "chunked"),
            "content-length" => prop_assert!(value.trim().bytes().all(|byte| byte.is_ascii_digit())),
            _ => {}
        }
        names.push(name);
    }
    let count = |wanted: &[&str]| names.iter().filter(|name| wanted.contains(&name.as_str())).count();
    prop_assert_eq!(count(&["host"]), 1);
    prop_assert!(count(&["content-length", "transfer-encoding"]) <= 1, "{sent:?}");
    prop_assert_eq!(count(&["connection"]), 1);
    Ok(())
}

proptest! {
    #[test]
    fn forwarded_heads_are_read_in_one_way(written in written()) {
        if let Some(HttpRequest { kind: RequestKind::Forward { head, .. }, target, .. }) =
            read(&written).and_then(|head| HttpRequest::parse(&head).ok())
        {
            prop_assert_eq!(target.to_string(), "a.example:80");
            check(std::str::from_utf8(&head).unwrap())?;
        }
    }
}

/// The property is about something: some of the heads are forwarded, and some are not.
#[test]
fn heads_of_pieces_are_forwarded_and_refused() {
    let forwarded = |written: &str| read(written).is_some_and(|head| HttpRequest::parse(&head).is_ok());
    let head = |lines: &str| format!("{}\r\nHost: a.example\r\n{lines}\r\n", STARTS[2]);
    assert!(forwarded(&head("")) && forwarded(&head("Content-Length: 5\r\nX: y\r\n")));
    assert!(!forwarded(&head("Host: a.example\r\n")) && !forwarded(&head("X: y\n")));
}
