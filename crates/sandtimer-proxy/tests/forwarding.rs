//! What a client gets through the proxy: HTTP requests, tunnels, half-closed connections, answers
//! of the proxy's own.

use crate::support;

use std::net::TcpListener as StdListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use sandtimer_proxy::{
    Capacity, ConnectionEnd, Event, Protocol, Proxy, ProxyBounds, ProxyConfig, ProxyPolicy, SystemResolver,
};
use support::{
    ALLOWED, RecordingServer, World, any_port, client_hello, patiently, read_all, read_until, server_name,
    socks_address, socks_name,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn get(server: &RecordingServer, path: &str) -> String {
    let port = server.address.port();
    format!("GET http://server.test:{port}{path} HTTP/1.1\r\nHost: server.test:{port}\r\n\r\n")
}

fn target(server: &RecordingServer) -> String {
    format!("server.test:{}", server.address.port())
}

/// A server that sends back what it gets, and ends its side when the client has ended its own.
fn echo() -> RecordingServer {
    RecordingServer::with(any_port(), async |mut stream, _| {
        let (mut reader, mut writer) = stream.split();
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
        let _ = writer.write_all(b"<end>").await;
        let _ = writer.shutdown().await;
    })
}

#[tokio::test]
async fn requests_of_one_connection_go_to_their_servers() {
    let first = RecordingServer::answering("\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst");
    let second = RecordingServer::answering(
        "\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nsecond\r\n0\r\n\r\n",
    );
    let entries = [first.address.to_string(), second.address.to_string()];
    let world = World::new(&entries, ProxyBounds::default());
    let mut stream = world.connect().await;
    for (server, body) in [(&first, "first"), (&second, "6\r\nsecond\r\n0\r\n\r\n"), (&first, "first")] {
        let request = format!("GET http://{0}/p HTTP/1.1\r\nHost: {0}\r\n\r\n", server.address);
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, body).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(!answer.contains("Connection: close"), "{answer}");
    }
    assert_eq!((first.count(), second.count()), (2, 1));
    let head = "GET /p HTTP/1.1\r\nHost: ";
    assert!(second.received().starts_with(head), "{}", second.received());
}

#[tokio::test]
async fn old_client_gets_the_contents_of_chunks() {
    let server = RecordingServer::answering(
        "\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
    );
    let world = World::for_server(&server, ProxyBounds::default());
    let answer = world.ask(format!("GET http://{}/ HTTP/1.0\r\n\r\n", target(&server))).await;
    assert!(answer.ends_with("Connection: close\r\n\r\nabc"), "{answer}");
    assert!(server.received().starts_with("GET / HTTP/1.0\r\n"), "{}", server.received());
}

#[tokio::test]
async fn body_without_length_ends_with_the_connection() {
    let server = RecordingServer::answering("\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nall of it");
    let world = World::for_server(&server, ProxyBounds::default());
    let answer = world.ask(get(&server, "/")).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall of it");
}

#[tokio::test]
async fn head_request_has_no_body() {
    let server = RecordingServer::answering("\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n");
    let world = World::for_server(&server, ProxyBounds::default());
    let head =
        format!("HEAD http://{0}/ HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n", target(&server));
    assert_eq!(world.ask(head).await, "HTTP/1.1 200 OK\r\nContent-Length: 999\r\nConnection: close\r\n\r\n");
}

#[tokio::test]
async fn client_that_expects_continue_gets_it_first() {
    let server = RecordingServer::with(any_port(), async |mut stream, received| {
        let mut all = read_until(&mut stream, "\r\n\r\n").await;
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        all += &read_until(&mut stream, "body").await;
        received.lock().unwrap().extend_from_slice(all.as_bytes());
        stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    });
    let world = World::for_server(&server, ProxyBounds::default());
    let mut stream = world.connect().await;
    let head = format!(
        "PUT http://{0}/ HTTP/1.1\r\nHost: {0}\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n",
        target(&server)
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"body").await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    assert!(server.received().contains("Expect: 100-continue\r\n"), "{}", server.received());
}

#[tokio::test]
async fn early_response_ends_an_upload() {
    let server =
        RecordingServer::answering("\r\n\r\n", "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n");
    let world = World::for_server(&server, ProxyBounds::default());
    let head = format!(
        "POST http://{0}/ HTTP/1.1\r\nHost: {0}\r\nContent-Length: 9000000\r\n\r\nonly this",
        target(&server)
    );
    let answer = world.ask(head).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

/// A client that has its answer may still be sending: it gets no reset.
#[tokio::test]
async fn early_response_does_not_reset_the_client() {
    let server =
        RecordingServer::answering("\r\n\r\n", "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n");
    let world = World::for_server(&server, ProxyBounds::default());
    let mut stream = world.connect().await;
    let head = format!(
        "POST http://{0}/ HTTP/1.1\r\nHost: {0}\r\nContent-Length: 90000000\r\n\r\n",
        target(&server)
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    for _ in 0..20 {
        stream.write_all(&[b'x'; 10_000]).await.unwrap();
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn websocket_is_a_tunnel_after_101() {
    let server = RecordingServer::with(any_port(), async |mut stream, received| {
        let head = read_until(&mut stream, "\r\n\r\n").await;
        received.lock().unwrap().extend_from_slice(head.as_bytes());
        let answer =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    });
    let world = World::for_server(&server, ProxyBounds::default());
    let mut stream = world.connect().await;
    let request = get(&server, "/").trim_end().to_owned()
        + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "first").await;
    assert!(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"), "{answer}");
    stream.write_all(b"frame").await.unwrap();
    assert_eq!(read_until(&mut stream, "frame").await, "frame");
    assert!(
        server.received().contains("Connection: upgrade\r\nUpgrade: websocket\r\n"),
        "{}",
        server.received()
    );
}

#[tokio::test]
async fn half_that_is_closed_leaves_the_other() {
    let server = echo();
    let world = World::for_server(&server, ProxyBounds::default());
    let mut stream = world.tunnel(&target(&server)).await;
    stream.write_all(b"to the end").await.unwrap();
    stream.shutdown().await.unwrap();
    // The server answers after the client has ended its half.
    assert_eq!(read_all(&mut stream).await, "to the end<end>");
    let (sent, received, end) = world
        .events
        .wait(|event| match event {
            Event::Closed { sent, received, end, .. } => Some((*sent, *received, *end)),
            _ => None,
        })
        .await;
    assert_eq!((sent, received, end), (10, 15, ConnectionEnd::Finished));
    let usage = world.proxy.as_ref().unwrap().usage();
    assert_eq!((usage.sent, usage.received), (10, 15));
}

#[tokio::test]
async fn server_that_ends_its_half_still_receives() {
    let server = RecordingServer::with(any_port(), async |mut stream, received| {
        stream.write_all(b"all").await.unwrap();
        stream.shutdown().await.unwrap();
        let rest = read_all(&mut stream).await;
        received.lock().unwrap().extend_from_slice(rest.as_bytes());
    });
    let world = World::for_server(&server, ProxyBounds::default());
    // The server begins: the client's first bytes are not waited for.
    let mut stream = world.tunnel(&target(&server)).await;
    assert_eq!(read_all(&mut stream).await, "all");
    stream.write_all(b"afterwards").await.unwrap();
    stream.shutdown().await.unwrap();
    let sent = world
        .events
        .wait(|event| if let Event::Closed { sent, .. } = event { Some(*sent) } else { None })
        .await;
    assert_eq!(sent, 10);
    patiently(async {
        while server.received() != "afterwards" {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn large_bodies_arrive_whole() {
    let server = echo();
    let world = World::for_server(&server, ProxyBounds::default());
    let stream = world.tunnel(&target(&server)).await;
    let (mut reader, mut writer) = stream.into_split();
    let data: Vec<u8> = (0..4_000_000_u32).map(|number| ((number * 31) >> 7) as u8).collect();
    let sent = data.clone();
    let upload = tokio::spawn(async move {
        writer.write_all(&sent).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    patiently(reader.read_to_end(&mut received)).await.unwrap();
    upload.await.unwrap();
    assert!(received.strip_suffix(b"<end>") == Some(&data), "{} bytes of {}", received.len(), data.len());
}

#[tokio::test]
async fn handshake_in_many_segments_arrives_whole() {
    let server = echo();
    let world = World::for_server(&server, ProxyBounds::default());
    let mut stream = world.tunnel(&target(&server)).await;
    stream.set_nodelay(true).unwrap();
    let hello = client_hello(&[server_name("server.test")], 50);
    for byte in &hello {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut echoed = vec![0; hello.len()];
    patiently(stream.read_exact(&mut echoed)).await.unwrap();
    assert_eq!(echoed, hello);
}

#[tokio::test]
async fn socks_carries_names_and_addresses() {
    let server = echo();
    let port = server.address.port();
    let world = World::for_server(&server, ProxyBounds::default());
    for request in [socks_name(b"server.test", port), socks_address(ALLOWED, port)] {
        let mut stream = world.connect().await;
        // A client may send everything at once.
        stream.write_all(&[&[5, 2, 2, 0][..], &request, b"hello"].concat()).await.unwrap();
        let mut answer = [0; 2 + 10 + 5];
        patiently(stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer[..], *b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0hello");
    }
}

#[tokio::test]
async fn socks_names_what_it_does_not_serve() {
    let server = echo();
    let port = server.address.port();
    let world = World::for_server(&server, ProxyBounds::default());
    world.resolver.answer("closed.server.test", &[&["127.0.0.1"]]);
    let request = socks_name(b"server.test", port);
    let with = |at: usize, value: u8| {
        let mut request = request.clone();
        request[at] = value;
        [&[5, 1, 0][..], &request].concat()
    };
    for (bytes, reply) in [
        (with(1, 2), &[5, 0, 5, 7][..]), // BIND
        (with(1, 3), &[5, 0, 5, 7]),     // UDP ASSOCIATE
        (with(3, 9), &[5, 0, 5, 8]),     // an unknown type of address
        (with(0, 4), &[5, 0, 5, 1]),     // another version
        (vec![5, 1, 2], &[5, 0xff]),     // user name and password only
        ([&[5, 1, 0][..], &socks_name(b"unknown.server.test", port)].concat(), &[5, 0, 5, 4]), // no address
        ([&[4, 1][..], &port.to_be_bytes(), &[127, 0, 0, 1, 0]].concat(), &[0, 0x5b]), // SOCKS4
    ] {
        let mut stream = world.connect().await;
        stream.write_all(&bytes).await.unwrap();
        let mut answer = vec![0; reply.len()];
        patiently(stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(answer, reply, "{bytes:?}");
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn unreachable_servers_have_their_status() {
    let closed = any_port();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let bounds = ProxyBounds { connect: Duration::from_millis(50), ..ProxyBounds::default() };
    let entries =
        ["127.0.0.1", "closed.test", "unknown.test", "slow.test"].map(|host| format!("{host}:{port}"));
    let world = World::new(&entries, bounds);
    world.resolver.answer("closed.test", &[&["127.0.0.1"]]);
    world.resolver.answer("slow.test", &[&[]]);
    for (host, status, error) in [
        ("closed.test", "502", "connection_refused"),
        ("127.0.0.1", "502", "connection_refused"),
        ("unknown.test", "502", "dns_error"),
        ("slow.test", "504", "connection_timeout"),
    ] {
        let expected = format!("error={error}\r\n");
        let by_connect = world.ask(format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n")).await;
        let by_url =
            world.ask(format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")).await;
        for answer in [by_connect, by_url] {
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(answer.contains(&expected) && answer.contains(host), "{answer}");
        }
    }
    let mut stream = world.connect().await;
    stream.write_all(&[&[5, 1, 0][..], &socks_name(b"slow.test", port)].concat()).await.unwrap();
    let mut answer = [0; 4];
    patiently(stream.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, [5, 0, 5, 6]);
}

#[tokio::test]
async fn broken_responses_are_bad_gateways() {
    for (response, expected) in [
        ("not HTTP\r\n\r\n", "is not HTTP/1"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "several Content-Length"),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", "not asked for"),
        ("HTTP/1.1 200 OK\r\nCut", "ended before the head did"),
        ("", "ended before the head did"),
    ] {
        let server = RecordingServer::answering("\r\n\r\n", response);
        let world = World::for_server(&server, ProxyBounds::default());
        let answer = world.ask(get(&server, "/")).await;
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(expected), "{answer}");
    }
}

#[tokio::test]
async fn other_protocols_get_a_reason() {
    let server = echo();
    let world = World::for_server(&server, ProxyBounds::default());
    let tls = world.ask(client_hello(&[server_name("server.test")], 9999)).await;
    assert!(tls.starts_with("HTTP/1.1 400 ") && tls.contains("without TLS"), "{tls}");
    let other = world.ask([0, 1, 2]).await;
    assert!(other.starts_with("HTTP/1.1 400 ") && other.contains("SOCKS5"), "{other}");
}

#[tokio::test]
async fn events_have_the_whole_connection() {
    let server = RecordingServer::reached(any_port());
    let world = World::for_server(&server, ProxyBounds::default());
    let request = get(&server, "/").replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let answer = world.ask(request).await;
    assert!(answer.ends_with("reached"), "{answer}");
    world.events.wait(|event| matches!(event, Event::Closed { .. }).then_some(())).await;
    match &world.events.take()[..] {
        [
            Event::Allowed { connection: 1, protocol: Protocol::Http, target: asked, address, entry },
            Event::Closed { connection: 1, sent, received, end: ConnectionEnd::Finished, .. },
        ] => {
            assert_eq!((asked.to_string(), entry), (target(&server), &target(&server)));
            assert_eq!(*address, server.address);
            assert_eq!(*sent, server.received().len() as u64);
            assert_eq!(*received, answer.len() as u64);
        }
        other => panic!("{other:?}"),
    }
}

/// A listener may be a Unix socket, and names may come from the machine.
#[tokio::test]
async fn unix_listener_and_system_resolver_serve() {
    let server = echo();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("proxy");
    let config = ProxyConfig {
        policy: ProxyPolicy::parse([
            format!("localhost:{}", server.address.port()),
            server.address.to_string(),
        ])
        .unwrap(),
        bounds: ProxyBounds::default(),
        resolver: Arc::new(SystemResolver::new(&Capacity::default())),
        events: Arc::new(|_| ()),
        capacity: Capacity::default(),
    };
    let second = StdListener::bind((ALLOWED, 0)).unwrap();
    let second_address = second.local_addr().unwrap();
    let proxy = Proxy::start([UnixListener::bind(&path).unwrap().into(), second.into()], config).unwrap();
    let connect = format!("CONNECT localhost:{} HTTP/1.1\r\n\r\nhello", server.address.port());
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    stream.write_all(connect.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    patiently(stream.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\nhello<end>");
    // The other listener of the same proxy.
    let mut stream = tokio::net::TcpStream::connect(second_address).await.unwrap();
    stream.write_all(connect.as_bytes()).await.unwrap();
    assert!(read_until(&mut stream, "hello").await.ends_with("hello"));
    drop(proxy);
}
