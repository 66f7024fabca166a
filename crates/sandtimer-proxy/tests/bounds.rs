//! What ends connections: idle time, the time for a head, bytes, connections at once, the end of
//! the proxy.

use crate::support;

use std::time::Duration;

use sandtimer_proxy::{ConnectionEnd, DenialReason, Event, ProxyBounds};
use support::{RecordingServer, World, any_port, client_hello, patiently, read_all, read_until, server_name};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SHORT_TIMEOUT: Duration = Duration::from_millis(100);

/// A server that accepts, and sends nothing.
fn silent() -> RecordingServer {
    RecordingServer::with(any_port(), async |mut stream, _| {
        let _ = read_all(&mut stream).await;
    })
}

/// A server that sends without end.
fn endless() -> RecordingServer {
    RecordingServer::with(any_port(), async |mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    })
}

fn target(server: &RecordingServer) -> String {
    format!("server.test:{}", server.address.port())
}

async fn end_of(world: &World) -> ConnectionEnd {
    world.events.wait(|event| if let Event::Closed { end, .. } = event { Some(*end) } else { None }).await
}

async fn rejected(world: &World) -> String {
    world
        .events
        .wait(|event| if let Event::Rejected { reason, .. } = event { Some(reason.clone()) } else { None })
        .await
}

#[tokio::test]
async fn idle_tunnel_ends() {
    let server = silent();
    let world = World::for_server(&server, ProxyBounds { idle: SHORT_TIMEOUT, ..ProxyBounds::default() });
    let mut stream = world.tunnel(&target(&server)).await;
    assert_eq!(read_all(&mut stream).await, "");
    assert_eq!(end_of(&world).await, ConnectionEnd::Idle);
}

#[tokio::test]
async fn half_closed_tunnel_ends_when_idle() {
    let server = silent();
    let world = World::for_server(&server, ProxyBounds { idle: SHORT_TIMEOUT, ..ProxyBounds::default() });
    let mut stream = world.tunnel(&target(&server)).await;
    // The silent server reads to the end, and ends: so this one does not.
    let other = RecordingServer::with(any_port(), async |_stream, _| std::future::pending().await);
    let world_of_other =
        World::for_server(&other, ProxyBounds { idle: SHORT_TIMEOUT, ..ProxyBounds::default() });
    let mut held = world_of_other.tunnel(&target(&other)).await;
    for stream in [&mut stream, &mut held] {
        stream.shutdown().await.unwrap();
        assert_eq!(read_all(stream).await, "");
    }
    assert_eq!(end_of(&world).await, ConnectionEnd::Finished);
    assert_eq!(end_of(&world_of_other).await, ConnectionEnd::Idle);
}

#[tokio::test]
async fn client_that_does_not_read_ends_idle() {
    let server = endless();
    let world = World::for_server(&server, ProxyBounds { idle: SHORT_TIMEOUT, ..ProxyBounds::default() });
    let _stream = world.tunnel(&target(&server)).await;
    assert_eq!(end_of(&world).await, ConnectionEnd::Idle);
}

#[tokio::test]
async fn server_that_does_not_answer_is_a_504() {
    let server = silent();
    let world = World::for_server(&server, ProxyBounds { idle: SHORT_TIMEOUT, ..ProxyBounds::default() });
    let answer = world.ask(format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n", target(&server))).await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert_eq!(end_of(&world).await, ConnectionEnd::Idle);
}

#[tokio::test]
async fn heads_that_are_not_complete_end() {
    let server = silent();
    let world = World::for_server(&server, ProxyBounds { head: SHORT_TIMEOUT, ..ProxyBounds::default() });
    let slow_head = world.ask("GET http://server.test/ HTTP/1.1\r\n").await;
    assert!(slow_head.starts_with("HTTP/1.1 408 "), "{slow_head}");
    assert_eq!(world.ask("").await, "");
    let slow_socks = world.ask([5, 1, 0, 5, 1]).await;
    assert_eq!(slow_socks, "\u{5}\0");
    let mut stream = world.tunnel(&target(&server)).await;
    stream.write_all(&client_hello(&[server_name("server.test")], 9999)[..30]).await.unwrap();
    assert_eq!(read_all(&mut stream).await, "");
    assert_eq!(end_of(&world).await, ConnectionEnd::Denied);
    assert_eq!(server.received(), "");
}

#[tokio::test]
async fn head_that_is_too_long_is_refused() {
    let server = silent();
    let world = World::for_server(&server, ProxyBounds { head_bytes: 1000, ..ProxyBounds::default() });
    let answer = world.ask(format!("GET http://server.test/ HTTP/1.1\r\nX: {}", "x".repeat(2000))).await;
    assert!(answer.starts_with("HTTP/1.1 431 ") && answer.contains("1000 bytes"), "{answer}");
}

#[tokio::test]
async fn handshake_that_is_too_long_is_refused() {
    let server = silent();
    let world = World::for_server(&server, ProxyBounds::default());
    let mut stream = world.tunnel(&target(&server)).await;
    let padding = (21, vec![0; 60_000]);
    let _ = stream.write_all(&client_hello(&[padding, server_name("server.test")], 9999)).await;
    read_all(&mut stream).await;
    assert!(rejected(&world).await.contains("too long"));
}

#[tokio::test]
async fn received_bytes_are_bounded_for_all_connections() {
    let server = endless();
    let world =
        World::for_server(&server, ProxyBounds { received_bytes: Some(50_000), ..ProxyBounds::default() });
    let mut stream = world.tunnel(&target(&server)).await;
    let received = read_all(&mut stream).await;
    assert!(received.len() <= 50_000, "{}", received.len());
    assert_eq!(end_of(&world).await, ConnectionEnd::BytesUsed);
    let answer = world.ask(format!("CONNECT {} HTTP/1.1\r\n\r\n", target(&server))).await;
    assert!(answer.starts_with("HTTP/1.1 403 The sandbox has used the bytes"), "{answer}");
    let denial = world
        .events
        .wait(|event| if let Event::Denied { denial, .. } = event { Some(denial.clone()) } else { None })
        .await;
    assert_eq!(denial.reason, DenialReason::BytesUsed);
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn sent_bytes_are_bounded() {
    let server = silent();
    let world = World::for_server(&server, ProxyBounds { sent_bytes: Some(1000), ..ProxyBounds::default() });
    let body = "x".repeat(5000);
    let answer = world
        .ask(format!(
            "POST http://{0}/ HTTP/1.1\r\nHost: {0}\r\nContent-Length: 5000\r\n\r\n{body}",
            target(&server)
        ))
        .await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("raise the limit of bytes"), "{answer}");
    assert_eq!(end_of(&world).await, ConnectionEnd::BytesUsed);
}

#[tokio::test]
async fn connection_over_the_bound_waits() {
    let server = RecordingServer::reached(any_port());
    let world = World::for_server(&server, ProxyBounds { connections: 1, ..ProxyBounds::default() });
    let first = world.tunnel(&target(&server)).await;
    assert_eq!(world.proxy.as_ref().unwrap().usage().connections, 1);
    let mut second = world.connect().await;
    second.write_all(format!("CONNECT {} HTTP/1.1\r\n\r\n", target(&server)).as_bytes()).await.unwrap();
    world.events.wait(|event| (*event == Event::ConnectionsUsed { bound: 1 }).then_some(())).await;
    let mut byte = [0];
    assert!(tokio::time::timeout(SHORT_TIMEOUT, second.read(&mut byte)).await.is_err());
    drop(first);
    let answer = read_until(&mut second, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn slots_are_free_after_connections_of_every_kind() {
    let server = RecordingServer::reached(any_port());
    let world = World::for_server(&server, ProxyBounds { connections: 4, ..ProxyBounds::default() });
    let target = target(&server);
    let requests: [Vec<u8>; 6] = [
        format!("CONNECT {target} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n").into_bytes(),
        format!("GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes(),
        b"CONNECT other.test:443 HTTP/1.1\r\n\r\n".to_vec(),
        b"GET".to_vec(),
        vec![5, 1, 0],
        vec![0xff],
    ];
    for round in 0..60 {
        let mut stream = world.connect().await;
        stream.write_all(&requests[round % requests.len()]).await.unwrap();
        if round % 2 == 0 {
            stream.shutdown().await.unwrap();
            read_all(&mut stream).await;
        }
    }
    patiently(async {
        while world.proxy.as_ref().unwrap().usage().connections > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn dropped_proxy_ends_all_connections() {
    let server = silent();
    let mut world = World::for_server(&server, ProxyBounds::default());
    let mut tunnel = world.tunnel(&target(&server)).await;
    let mut waiting = world.connect().await;
    drop(world.proxy.take());
    assert_eq!(read_all(&mut tunnel).await, "");
    assert_eq!(read_all(&mut waiting).await, "");
    assert_eq!(end_of(&world).await, ConnectionEnd::ProxyDropped);
    // The listener is closed too.
    patiently(async { while tokio::net::TcpStream::connect(world.address).await.is_ok() {} }).await;
}
