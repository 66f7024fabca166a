//! Ports of sandboxes: listed, waited for, and reached by HTTP and WebSocket, with a token or a
//! link.
#![allow(clippy::disallowed_methods)] // tests measure, and wait for a link to expire

use crate::support;

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, raw, read_to_end, tokens};

/// A server that shows what it was sent, counts what is uploaded, streams, and echoes after an
/// upgrade.
const SERVES: &str = r#"
import http.server, socket, sys, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *_): pass
    def do_GET(self):
        if self.path == '/stream':
            self.send_response(200); self.send_header('Transfer-Encoding', 'chunked'); self.end_headers()
            for word in (b'one', b'two'):
                self.wfile.write(b'3\r\n' + word + b'\r\n'); self.wfile.flush()
                if word == b'one': time.sleep(3)
            self.wfile.write(b'0\r\n\r\n')
            return
        if self.path == '/close':
            self.connection.shutdown(socket.SHUT_RDWR); self.close_connection = True
            return
        if 'Upgrade' in self.headers:
            self.send_response(101); self.send_header('Connection', 'Upgrade'); self.send_header('Upgrade', 'echo'); self.end_headers()
            while data := self.connection.recv(100): self.connection.sendall(data.upper())
            self.close_connection = True
            return
        body = f'{self.command} {self.path}\n{self.headers}'.encode()
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.send_header('Set-Cookie', 'a=b'); self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        left, count = int(self.headers['Content-Length']), 0
        while left > 0:
            data = self.rfile.read(min(left, 1 << 20)); left -= len(data); count += len(data)
        body = str(count).encode()
        self.send_response(200); self.send_header('Content-Length', str(len(body))); self.end_headers(); self.wfile.write(body)
class ServerHandle(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
ServerHandle((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"#;

fn made(client: &TestClient, body: &Value) -> String {
    let (status, sandbox) = client.post("/v1/sandboxes", body);
    assert_eq!(status, 201, "{sandbox}");
    sandbox["sandbox_id"].as_str().expect("an id").to_owned()
}

/// A server in the sandbox, once it listens.
fn serve(client: &TestClient, id: &str, address: &str, port: u16) -> String {
    let command = ["python3", "-c", SERVES, address, &port.to_string()];
    let run = client.start(json!({"command": command, "sandbox": id, "wall_ms": 60_000}));
    let (status, ports) = client.get(&format!("/v1/sandboxes/{id}/ports?port={port}&wait_ms=20000"));
    assert_eq!((status, &ports["listening"]), (200, &json!(true)), "{ports}");
    run
}

#[test]
fn ports_are_listed_waited_for_and_reached() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({"network": ["pypi.org"]}));
    let ports = format!("/v1/sandboxes/{id}/ports");
    // Those of the sandbox's own proxy are not among them.
    assert_eq!(client.get(&ports).1, json!({"ports": [], "listening": null}));
    let absent = client.get(&format!("{ports}?port=8000&wait_ms=100")).1;
    assert_eq!(absent, json!({"ports": [], "listening": false}));
    let run = serve(&client, &id, "127.0.0.1", 8000);
    serve(&client, &id, "::1", 8001);
    let listed = json!({"ports": [{"port": 8000, "addresses": ["127.0.0.1"]}, {"port": 8001, "addresses": ["::1"]}], "listening": null});
    assert_eq!(client.get(&ports).1, listed);
    for port in [8000, 8001] {
        let (status, page) = client.get(&format!("{ports}/{port}/a/b?c=d"));
        let page = page.as_str().expect("text").to_owned();
        assert!(status == 200 && page.starts_with("GET /a/b?c=d\n"), "{page}");
        assert!(page.contains(&format!("host: localhost:{port}")), "{page}");
    }
    let (status, count) = client.post_bytes(&format!("{ports}/8000/upload"), &vec![7; 100 << 20]);
    assert_eq!((status, count), (200, json!(100 << 20)));
    // Another sandbox has none of them.
    let other = made(&client, &json!({}));
    assert_eq!(client.get(&format!("/v1/sandboxes/{other}/ports")).1["ports"], json!([]));
    assert_eq!(client.get(&format!("/v1/sandboxes/{other}/ports/8000/")).1["code"], "port_unavailable");
    client.post(&format!("/v1/runs/{run}/kill"), &json!({}));
    client.ended(&run);
    let (status, gone) = client.get(&format!("{ports}/8000/"));
    assert_eq!(
        (status, &gone["code"], &gone["details"]["port"]),
        (502, &json!("port_unavailable"), &json!(8000)),
        "{gone}"
    );
}

#[test]
fn streams_and_upgrades_are_carried() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({}));
    serve(&client, &id, "127.0.0.1", 8000);
    let head = |path: &str, more: &str| {
        format!("GET /v1/sandboxes/{id}/ports/8000{path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
    };
    let mut stream = raw(serving.address, head("/stream", "").as_bytes());
    let mut read = Vec::new();
    let begun = std::time::Instant::now();
    while !read.windows(3).any(|word| word == b"one") {
        let mut piece = [0; 512];
        let count = stream.read(&mut piece).expect("an answer");
        assert!(count > 0, "{}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&piece[..count]);
    }
    // The second piece comes three seconds later.
    assert!(begun.elapsed() < Duration::from_millis(2_900), "{:?}", begun.elapsed());
    let mut echo = raw(serving.address, head("/echo", "Connection: Upgrade\r\nUpgrade: echo\r\n").as_bytes());
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        echo.read_exact(&mut byte).expect("a head");
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).expect("text").to_lowercase();
    assert!(answer.starts_with("http/1.1 101") && answer.contains("upgrade: echo"), "{answer}");
    for word in ["first", "second"] {
        echo.write_all(word.as_bytes()).expect("sent");
        let mut heard = vec![0; word.len()];
        echo.read_exact(&mut heard).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&heard), word.to_uppercase());
    }
    // Its process is killed with the sandbox, and the connection ends.
    assert_eq!(client.delete(&format!("/v1/sandboxes/{id}")).0, 204);
    assert_eq!(echo.read(&mut [0; 10]).unwrap_or(0), 0);
}

#[test]
fn dead_and_refused_ports_have_a_clear_page() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({}));
    serve(&client, &id, "127.0.0.1", 8000);
    let of = |path: &str| format!("/v1/sandboxes/{id}/ports/{path}");
    let (status, dead) = client.get(&of("8000/close"));
    assert_eq!((status, &dead["code"]), (502, &json!("port_unavailable")), "{dead}");
    assert!(dead["message"].as_str().is_some_and(|message| message.contains("gave no answer")), "{dead}");
    let (status, page) = client.bytes(&of("9/"), &[("Accept", "text/html")]);
    let page = String::from_utf8(page).expect("text");
    assert!(status == 502 && page.contains("listens on port 9") && page.contains("start a server"), "{page}");
    for port in ["65536", "0", "x", "-1", "99999999999999999999"] {
        for answer in [
            client.get(&of(&format!("{port}/"))),
            client.get(&format!("/v1/sandboxes/{id}/ports?port={port}")),
        ] {
            assert_eq!((answer.0, &answer.1["code"]), (400, &json!("bad_field")), "{answer:?}");
            assert_eq!(
                (&answer.1["details"]["key"], &answer.1["details"]["value"]),
                (&json!("port"), &json!(port))
            );
        }
    }
    let (status, error) = client.post(&format!("/v1/sandboxes/{id}/expose"), &json!({"port": 65536}));
    assert_eq!((status, &error["details"]["value"]), (400, &json!("65536")), "{error}");
    assert_eq!(client.get("/v1/sandboxes/absent/ports/8000/").1["code"], "sandbox_not_found");
    let host = made(&client, &json!({"network": "host"}));
    let (status, error) = client.get(&format!("/v1/sandboxes/{host}/ports/{}/", serving.address.port()));
    assert_eq!((status, &error["code"]), (400, &json!("bad_field")), "{error}");
}

#[test]
fn token_or_link_is_needed_and_kept_from_the_sandbox() {
    let list = format!("a {}\nb {}\n", "t".repeat(40), "u".repeat(40));
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens(&list)));
    let [a, b] = ["t", "u"].map(|letter| serving.client_with(&letter.repeat(40)));
    let stranger = serving.client();
    let id = made(&a, &json!({}));
    serve(&a, &id, "127.0.0.1", 8000);
    let path = format!("/v1/sandboxes/{id}/ports/8000/");
    let (status, page) = a.get(&path);
    assert!(status == 200 && !page.to_string().contains("ttttt"), "{page}");
    assert_eq!(b.get(&path).1["code"], "sandbox_not_found");
    assert_eq!(stranger.get(&path).1["code"], "unauthorized");
    let (status, link) =
        a.post(&format!("/v1/sandboxes/{id}/expose"), &json!({"port": 8000, "ttl_ms": 60_000}));
    assert_eq!(status, 200, "{link}");
    let linked = link["path"].as_str().expect("a path").to_owned();
    let (status, page) = stranger.get(&format!("{linked}&x=1"));
    let page = page.as_str().expect("text").to_owned();
    assert!(status == 200 && page.starts_with("GET /?x=1\n") && !page.contains("sandtimer_link"), "{page}");
    // It is for this port and nothing else.
    let signed = linked.split_once('?').expect("a query").1;
    for other in [
        format!("/v1/sandboxes/{id}/ports/8001/?{signed}"),
        format!("/v1/sandboxes/{id}?{signed}"),
        format!("/v1/runs?{signed}"),
    ] {
        assert_eq!(stranger.get(&other).1["code"], "unauthorized", "{other}");
    }
    assert_eq!(
        b.post(&format!("/v1/sandboxes/{id}/expose"), &json!({"port": 8000})).1["code"],
        "sandbox_not_found"
    );
    let short = a.post(&format!("/v1/sandboxes/{id}/expose"), &json!({"port": 8000, "ttl_ms": 1})).1;
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(stranger.get(short["path"].as_str().expect("a path")).1["code"], "unauthorized");
    // A browser gets the link as a cookie, and an address without it.
    let url = link["url"].as_str().expect("a URL");
    let host = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a host").0;
    assert_eq!(host, format!("8000-{id}.localhost:{}", serving.address.port()));
    let get = |path: &str, more: &str| {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\nConnection: close\r\n{more}\r\n"
        );
        read_to_end(raw(serving.address, head.as_bytes()))
    };
    let redirected = get(&format!("/page?{signed}"), "");
    assert!(
        redirected.starts_with("HTTP/1.1 303") && redirected.contains("location: /page\r\n"),
        "{redirected}"
    );
    let cookie = redirected.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    let cookie = cookie.split(';').next().expect("a value");
    let page = get("/v1/runs", &format!("Cookie: {cookie}; own=1\r\n"));
    // Under this name there is the port alone, whatever the path is.
    assert!(page.contains("GET /v1/runs\n") && page.contains("cookie: own=1"), "{page}");
    assert!(page.contains("set-cookie: a=b") && !page.contains("content-security-policy"), "{page}");
    assert!(get("/", "").contains("401"), "a name alone gives no access");
    let foreign = get("/", &format!("Cookie: {cookie}\r\nOrigin: http://evil.example\r\n"));
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
}

#[test]
fn page_below_the_api_is_without_origin() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = made(&client, &json!({}));
    serve(&client, &id, "127.0.0.1", 8000);
    let head = format!(
        "GET /v1/sandboxes/{id}/ports/8000/ HTTP/1.1\r\nHost: localhost\r\nCookie: jupyter=1\r\nConnection: close\r\n\r\n"
    );
    let page = read_to_end(raw(serving.address, head.as_bytes()));
    assert!(page.contains("content-security-policy: sandbox "), "{page}");
    assert!(!page.contains("set-cookie") && !page.contains("jupyter"), "{page}");
    // A script of such a page has the origin `null`, which the API refuses.
    let head = "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nConnection: close\r\n\r\n";
    assert!(read_to_end(raw(serving.address, head.as_bytes())).starts_with("HTTP/1.1 403"));
}
