//! Terminals over WebSockets: what is typed is read, what is shown arrives once, and a client
//! without the right to read it gets nothing.

use crate::support;

use std::net::TcpStream;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde_json::{Value, json};
use support::{HARD_STOP, ServerFixture, tokens};
use tungstenite::client::IntoClientRequest;
use tungstenite::http::HeaderValue;
use tungstenite::{Message, WebSocket};

/// A client at a terminal.
struct Screen {
    socket: WebSocket<TcpStream>,
    shown: Vec<u8>,
    /// Text messages, without the one of the end.
    messages: Vec<Value>,
    ended: Option<Value>,
}

impl Screen {
    fn at(serving: &ServerFixture, id: &str, query: &str) -> Self {
        Self::with(serving, id, query, &[])
    }

    fn with(serving: &ServerFixture, id: &str, query: &str, headers: &[(&'static str, &str)]) -> Self {
        let url = format!("ws://{}/v1/runs/{id}/terminal{query}", serving.address);
        let mut request = url.into_client_request().expect("an address");
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).expect("a value"));
        }
        let stream = TcpStream::connect(serving.address).expect("connected");
        // Shorter than the heartbeat, which would be one message after the other.
        stream.set_read_timeout(Some(HARD_STOP / 2)).expect("set");
        let (socket, _) = tungstenite::client(request, stream).expect("a WebSocket");
        Screen { socket, shown: Vec::new(), messages: Vec::new(), ended: None }
    }

    /// Reads one message; false after the last.
    fn read(&mut self) -> bool {
        match self.socket.read() {
            Ok(Message::Binary(bytes)) => self.shown.extend_from_slice(&bytes),
            Ok(Message::Text(text)) => {
                let mut message: Value = serde_json::from_str(&text).expect("JSON");
                match message.get_mut("ended") {
                    Some(ended) => self.ended = Some(ended.take()),
                    None => self.messages.push(message),
                }
            }
            Ok(_) => {}
            Err(_) => return false,
        }
        true
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Reads until this is shown.
    fn until(&mut self, expected: &str) {
        while !self.text().contains(expected) {
            assert!(self.read(), "`{expected}` is not shown: {}", self.text());
        }
    }

    /// Reads to the end, and gives the outcome.
    fn outcome(&mut self) -> Value {
        while self.read() {}
        let ended = self.ended.take().unwrap_or_else(|| panic!("no end: {}", self.text()));
        ended["outcome"].clone()
    }

    fn type_in(&mut self, keys: impl Into<Vec<u8>>) {
        self.socket.send(Message::Binary(keys.into().into())).expect("sent");
    }

    fn send_control(&mut self, control: &Value) {
        self.socket.send(Message::Text(control.to_string().into())).expect("sent");
    }
}

#[test]
fn a_command_has_a_terminal_with_a_name_and_a_size_that_changes() {
    let serving = ServerFixture::start();
    let script = "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo $TERM; read x; stty size; echo named >$(tty); exit 4";
    let id =
        serving.client().start(json!({"command": script, "terminal": {"columns": 90}, "wall_ms": 20_000}));
    let mut screen = Screen::at(&serving, &id, "");
    screen.until("xterm-256color\r\n");
    assert_eq!(screen.text(), "/dev/pts/0\r\n24 90\r\nxterm-256color\r\n");
    screen.send_control(&json!({"resize": {"columns": 101, "rows": 33}}));
    screen.type_in("ä\n");
    // Typed keys are echoed.
    screen.until("ä\r\n33 101\r\nnamed\r\n");
    let outcome = screen.outcome();
    assert_eq!(
        (&outcome["ending"], &outcome["exit_code"]),
        (&json!("exited"), &json!(4)),
        "{}",
        screen.text()
    );
    assert_eq!(outcome["tree"]["survivors"], 0);
    let record = serving.client().ended(&id);
    assert_eq!(record["outcome"]["stdout"], screen.text());
}

#[test]
fn a_shell_answers_keys_and_an_interrupt_ends_its_command_alone() {
    let serving = ServerFixture::start();
    let id = serving
        .client()
        .start(json!({"command": ["bash", "--norc", "-i"], "terminal": {}, "env": {"PS1": "prompt> "}}));
    let mut screen = Screen::at(&serving, &id, "");
    screen.until("prompt> ");
    // Each is a command of its own: between two of them the keys are the shell's.
    screen.type_in("sh -c 'echo $((6 * 7)); exec sleep 600'\n");
    screen.until("42\r\n");
    screen.type_in(b"\x03".to_vec());
    screen.until("^C");
    screen.type_in("echo code $?\n");
    screen.until("code 130");
    // Jobs can be stopped and resumed, as on any terminal.
    screen.type_in("sh -c 'echo $((8 * 9)); exec sleep 600'\n");
    screen.until("72\r\n");
    screen.type_in(b"\x1a".to_vec());
    screen.until("Stopped");
    screen.type_in("kill %1; exit 7\n");
    // A shell with stopped jobs warns once.
    screen.type_in("exit 7\n");
    let outcome = screen.outcome();
    assert_eq!(
        (&outcome["exit_code"], &outcome["tree"]["survivors"]),
        (&json!(7), &json!(0)),
        "{}",
        screen.text()
    );
}

#[test]
fn every_byte_passes_both_ways_and_many_of_them() {
    let serving = ServerFixture::start();
    let script = "stty raw -echo; printf ready; exec cat";
    let id = serving.client().start(json!({"command": script, "terminal": {}}));
    let mut screen = Screen::at(&serving, &id, "?on_close=end");
    screen.until("ready");
    let all: Vec<u8> = (0..=255).collect();
    let mut sent = b"ready".to_vec();
    for round in 0..=255_u8 {
        let piece: Vec<u8> = all.iter().cycle().skip(round.into()).take(3_001).copied().collect();
        screen.type_in(piece.clone());
        sent.extend(piece);
        while screen.shown.len() < sent.len() {
            assert!(screen.read(), "{} of {} bytes", screen.shown.len(), sent.len());
        }
    }
    assert!(screen.shown == sent, "some bytes are others");
    // Input that the program has not read yet waits at the client's end.
    let paste = vec![b'x'; 300_000];
    screen.type_in(paste.clone());
    while screen.shown.len() < sent.len() + paste.len() {
        assert!(screen.read());
    }
}

#[test]
fn reconnected_client_and_others_get_the_same_output() {
    let serving = ServerFixture::start();
    let script = "i=0; while [ $i -lt 400 ]; do i=$((i + 1)); echo line $i; done; read x; echo behind";
    let id = serving.client().start(json!({"command": script, "terminal": {"rows": 5}}));
    let mut second = Screen::at(&serving, &id, "");
    let mut whole = Vec::new();
    for expected in ["line 3\r", "line 100\r", "line 250\r", "line 400\r\n"] {
        let mut screen = Screen::at(&serving, &id, &format!("?cursor={}", whole.len()));
        while !String::from_utf8_lossy(&[&whole[..], &screen.shown].concat()).contains(expected) {
            assert!(screen.read());
        }
        whole.extend_from_slice(&screen.shown);
        // Its connection is dropped without a close message, probably in the middle of output.
    }
    let mut last = Screen::at(&serving, &id, &format!("?cursor={}", whole.len()));
    last.type_in("\n");
    assert_eq!(last.outcome()["ok"], true);
    whole.extend_from_slice(&last.shown);
    let expected: String = (1..=400).map(|line| format!("line {line}\r\n")).collect();
    assert_eq!(String::from_utf8_lossy(&whole), format!("{expected}\r\nbehind\r\n"));
    second.outcome();
    assert_eq!(second.shown, whole);
    // And when it has ended, again.
    let mut late = Screen::at(&serving, &id, "?cursor=6");
    assert_eq!(late.outcome()["ok"], true);
    assert_eq!(late.shown, whole[6..]);
}

#[test]
fn limits_end_a_terminal_and_a_connection_only_where_it_was_to() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(json!({"command": "trap '' HUP INT TERM; setsid sleep 60 & sleep 60", "terminal": {}, "wall_ms": 300}));
    let outcome = Screen::at(&serving, &id, "").outcome();
    assert_eq!((&outcome["ending"], &outcome["tree"]["survivors"]), (&json!("timeout"), &json!(0)));

    let id = client.start(json!({"command": "echo up; sleep 60", "terminal": {}, "wall_ms": 25_000}));
    let mut screen = Screen::at(&serving, &id, "");
    screen.until("up");
    drop(screen);
    let mut screen = Screen::at(&serving, &id, "?on_close=end");
    screen.until("up");
    assert_eq!(client.get(&format!("/v1/runs/{id}")).1["status"], "running");
    drop(screen);
    assert_eq!(client.ended(&id)["outcome"]["ending"], "cancelled");
}

#[test]
fn client_after_the_output_limit_gets_a_lag_notice() {
    let serving = ServerFixture::start();
    let script = "stty -opost; head -c 3000000 /dev/zero | tr '\\0' a; printf end";
    let id = serving.client().start(json!({"command": script, "terminal": {}, "output_bytes": 100_000}));
    serving.client().ended(&id);
    let mut screen = Screen::at(&serving, &id, "");
    screen.outcome();
    assert_eq!(screen.messages, [json!({"lagged": {"dropped": 2_900_003, "next_cursor": 2_950_003}})]);
    assert!(screen.shown.len() == 100_000 && screen.shown.ends_with(b"aend"), "{}", screen.shown.len());
}

#[test]
fn invalid_message_is_reported_and_session_continues() {
    let serving = ServerFixture::start();
    let id = serving.client().start(json!({"command": "read x; stty size", "terminal": {}}));
    let mut screen = Screen::at(&serving, &id, "");
    for wrong in [
        "x",
        "[]",
        "{}",
        r#"{"resize": 1}"#,
        r#"{"resize": {"columns": 0}}"#,
        r#"{"resize": {"rows": 70000}}"#,
        r#"{"resize": {}, "more": 1}"#,
    ] {
        screen.socket.send(Message::Text(wrong.into())).expect("sent");
        let had = screen.messages.len();
        while screen.messages.len() == had {
            assert!(screen.read(), "{wrong}");
        }
    }
    let codes: Vec<_> = screen
        .messages
        .iter()
        .map(|message| message["error"]["code"].as_str().expect("an error").to_owned())
        .collect();
    assert_eq!(
        codes,
        ["bad_json", "bad_json", "bad_field", "bad_field", "bad_field", "bad_field", "unknown_field"]
    );
    screen.type_in("\n");
    screen.outcome();
    assert!(screen.text().ends_with("24 80\r\n"), "{}", screen.text());
}

/// The status and code of a request for a WebSocket that is refused.
fn refused(serving: &ServerFixture, path: &str, headers: &str) -> (u16, String) {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{headers}\r\n",
        serving.address
    );
    let reply = support::read_to_end(support::raw(serving.address, request.as_bytes()));
    let status = reply.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body: Value = serde_json::from_str(reply.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    (status, body["code"].as_str().expect("a code").to_owned())
}

#[test]
fn only_its_owner_and_no_page_of_another_site_gets_a_terminal() {
    let serving =
        ServerFixture::with(|settings| settings.tokens = Some(tokens("alice a/secret+1\nbob another\n")));
    let id = serving.client_with("a/secret+1").start(json!({"command": "read x", "terminal": {}}));
    let at = format!("/v1/runs/{id}/terminal");
    let offer = |token: &str| format!("sandtimer, sandtimer.token.{}", BASE64_URL_SAFE_NO_PAD.encode(token));
    let by_header = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let by_offer = |token: &str| format!("Sec-WebSocket-Protocol: {}\r\n", offer(token));
    let wanted = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(refused(&serving, &at, ""), wanted(401, "unauthorized"));
    assert_eq!(refused(&serving, &at, &by_offer("wrong")), wanted(401, "unauthorized"));
    for bob in [by_header("another"), by_offer("another")] {
        assert_eq!(refused(&serving, &at, &bob), wanted(404, "run_not_found"));
    }
    let foreign = format!("{}Origin: http://evil.example\r\n", by_header("a/secret+1"));
    assert_eq!(refused(&serving, &at, &foreign), wanted(403, "origin_refused"));
    let (status, plain) = serving.client_with("a/secret+1").get(&at);
    assert_eq!((status, &plain["code"]), (426, &json!("upgrade_required")));
    for (query, code) in [("?cursor=x", "bad_field"), ("?on_close=x", "bad_field"), ("?x=1", "unknown_field")]
    {
        assert_eq!(refused(&serving, &format!("{at}{query}"), &by_header("a/secret+1")), wanted(400, code));
    }
    let mut screen = Screen::with(&serving, &id, "", &[("Sec-WebSocket-Protocol", &offer("a/secret+1"))]);
    screen.type_in("\n");
    assert_eq!(screen.outcome()["ok"], true);
}

#[test]
fn missing_terminal_and_invalid_sizes_are_rejected() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(json!({"command": "sleep 20", "wall_ms": 15_000}));
    assert_eq!(refused(&serving, &format!("/v1/runs/{id}/terminal"), ""), (409, "no_terminal".to_owned()));
    for wrong in
        [json!(1), json!(true), json!({"columns": 0}), json!({"rows": -1}), json!({"columns": 65_536})]
    {
        let (status, answer) = client.post("/v1/runs", &json!({"command": "true", "terminal": wrong}));
        assert_eq!((status, &answer["code"]), (400, &json!("bad_field")), "{wrong}: {answer}");
    }
    let id = client.start(json!({"command": "read x; echo got $x", "terminal": {}}));
    let (status, answer) = client.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": "x\n", "eof": true}));
    assert_eq!((status, &answer["details"]["key"]), (400, &json!("eof")), "{answer}");
    assert_eq!(client.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": "x\n"})).1["written"], 2);
    assert_eq!(client.ended(&id)["outcome"]["stdout"], "x\r\ngot x\r\n");
}

/// Opens terminals until one is refused, at most 40; prints how many there are.
const OPEN_TERMINALS: &str = "
import os
masters = []
try:
    while len(masters) < 40:
        masters.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
except OSError as error:
    print(error.strerror)
print(len(masters), 'opened')
";

#[test]
#[allow(clippy::disallowed_methods)] // the control runs without the engine
fn terminals_of_a_run_are_bounded() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let holder = client
        .start(json!({"command": ["python3", "-c", format!("{OPEN_TERMINALS}\ninput()")], "terminal": {}}));
    let mut screen = Screen::at(&serving, &holder, "");
    // The first is the run's own.
    screen.until("No space left on device\r\n15 opened\r\n");
    // Another run has all of its own terminals during that time.
    let id = client.start(json!({"command": ["python3", "-c", OPEN_TERMINALS], "terminal": {}}));
    assert_eq!(client.ended(&id)["outcome"]["stdout"], "No space left on device\r\n15 opened\r\n");
    screen.type_in("\n");
    assert_eq!(screen.outcome()["ok"], true);
    // The control: without the bound of the mount the script opens all it wants.
    let bare = std::process::Command::new("python3").args(["-c", OPEN_TERMINALS]).output().expect("python3");
    assert_eq!(String::from_utf8_lossy(&bare.stdout), "40 opened\n");
}

#[test]
fn owner_has_up_to_half_of_the_terminals() {
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens("alice one\nbob two\n")));
    let (alice, bob) = (serving.client_with("one"), serving.client_with("two"));
    let run = json!({"command": "read x", "terminal": {}, "wall_ms": 60_000});
    let held: Vec<String> = (0..64).map(|_| alice.start(run.clone())).collect();
    let (status, refused) = alice.post("/v1/runs", &run);
    assert_eq!(
        (status, &refused["code"], &refused["details"]["limit"]),
        (429, &json!("quota"), &json!(64)),
        "{refused}"
    );
    let of_bob = bob.start(run.clone());
    // A run without a terminal needs none of them.
    let id = alice.start(json!({"command": "true"}));
    assert_eq!(alice.ended(&id)["outcome"]["ok"], true);
    for id in &held {
        alice.post(&format!("/v1/runs/{id}/kill"), &json!({}));
        alice.ended(id);
    }
    let id = alice.start(json!({"command": "true", "terminal": {}}));
    assert_eq!(alice.ended(&id)["outcome"]["ok"], true);
    bob.post(&format!("/v1/runs/{of_bob}/kill"), &json!({}));
    bob.ended(&of_bob);
}
