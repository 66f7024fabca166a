//! Ways around an allow-list. Each has a control: the same shape with what is allowed, which must
//! work.
//!
//! A server that may be reached and two that must not be (127.0.0.2, ::1) listen on one port of
//! loopback.

use crate::support;

use sandtimer_proxy::{DenialReason, Event, ProxyBounds};
use support::{
    FORBIDDEN, RecordingServer, World, any_port, client_hello, encrypted_hello, patiently, read_all,
    read_until, same_port, server_name, socks_address, socks_name,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// One connection of a client.
enum Attempt {
    /// Bytes of HTTP.
    Http(String),
    /// CONNECT, then a request through the tunnel.
    Connect(String),
    /// CONNECT, then these bytes.
    Tls(String, Vec<u8>),
    /// A request of SOCKS5, then one of HTTP through the tunnel.
    Socks(Vec<u8>),
}
use Attempt::{Connect, Http, Socks, Tls};

struct AttackScene {
    world: World,
    allowed: RecordingServer,
    forbidden: [RecordingServer; 3],
    port: u16,
    other_port: u16,
}

impl AttackScene {
    fn new(more_entries: &[&str]) -> AttackScene {
        let (allowed, v4, v6) = same_port();
        let port = allowed.local_addr().unwrap().port();
        let forbidden = [
            RecordingServer::reached(v4),
            RecordingServer::reached(v6),
            RecordingServer::reached(any_port()),
        ];
        let other_port = forbidden[2].address.port();
        let mut entries = vec![
            format!("allowed.test:{port}"),
            format!("*.wild.test:{port}"),
            format!("127.0.0.1:{port}"),
            // Names another port, and a network that includes every address.
            "other.test".to_owned(),
            format!("0.0.0.0/0:{port}"),
            format!("[64:ff9b::/96]:{port}"),
        ];
        entries.extend(more_entries.iter().map(|entry| format!("{entry}:{port}")));
        let world = World::new(&entries, ProxyBounds::default());
        for name in ["allowed.test", "a.wild.test", "b.a.wild.test"] {
            world.resolver.answer(name, &[&["127.0.0.1"]]);
        }
        // At the address that is allowed, so that nothing but the name is in the way.
        for name in [
            "evil.test",
            "allowed.test.evil.test",
            "evilallowed.test",
            "sub.allowed.test",
            "wild.test",
            "evilwild.test",
            "a.wild.test.evil.test",
            "other.test",
            "localhost",
            "test",
        ] {
            world.resolver.answer(name, &[&["127.0.0.1"]]);
        }
        for (name, address) in [
            ("private.wild.test", "127.0.0.2"),
            ("metadata.wild.test", "169.254.169.254"),
            ("v6.wild.test", "::1"),
            ("mapped.wild.test", "::ffff:127.0.0.2"),
            ("compatible.wild.test", "::127.0.0.2"),
            ("nat64.wild.test", "64:ff9b::127.0.0.2"),
            ("local-nat64.wild.test", "64:ff9b:1::127.0.0.2"),
            ("6to4.wild.test", "2002:7f00:2::1"),
            ("zero.wild.test", "0.0.0.0"),
            ("unspecified.wild.test", "::"),
            ("link-local.wild.test", "fe80::1"),
            ("multicast.wild.test", "224.0.0.1"),
            ("broadcast.wild.test", "255.255.255.255"),
            ("cgnat.wild.test", "100.64.0.1"),
        ] {
            world.resolver.answer(name, &[&[address]]);
        }
        AttackScene { world, allowed: RecordingServer::reached(allowed), forbidden, port, other_port }
    }

    /// Returns what the client got. `reached` is in it if a server was.
    async fn run(&self, attempt: &Attempt) -> String {
        let mut stream = self.world.connect().await;
        const REQUEST: &[u8] = b"GET /through HTTP/1.1\r\nHost: through\r\n\r\n";
        match attempt {
            Http(bytes) => {
                stream.write_all(bytes.as_bytes()).await.unwrap();
                read_all(&mut stream).await
            }
            Connect(target) | Tls(target, _) => {
                let head = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                let answer = read_until(&mut stream, "\r\n\r\n").await;
                if !answer.starts_with("HTTP/1.1 200 ") {
                    return answer;
                }
                let bytes = if let Tls(_, bytes) = attempt { bytes } else { REQUEST };
                stream.write_all(bytes).await.unwrap();
                read_until(&mut stream, "reached").await
            }
            Socks(request) => {
                stream.write_all(&[&[5, 1, 0][..], request].concat()).await.unwrap();
                let mut reply = [0; 12];
                patiently(stream.read_exact(&mut reply)).await.unwrap();
                if reply[..4] != [5, 0, 5, 0] {
                    return format!("SOCKS5 reply {}", reply[3]);
                }
                stream.write_all(REQUEST).await.unwrap();
                read_until(&mut stream, "reached").await
            }
        }
    }

    fn reached_forbidden(&self) -> usize {
        self.forbidden.iter().map(RecordingServer::count).sum()
    }
}

/// A GET of this authority, with this Host, on a connection that ends afterwards.
fn get(authority: &str, host: &str) -> Attempt {
    Http(format!("GET http://{authority}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
}

/// A POST to the allowed host with these fields and this body, and a request that must not arrive
/// after it.
fn post(port: u16, fields: &str, body: &str) -> Attempt {
    Http(format!(
        "POST http://allowed.test:{port}/ HTTP/1.1\r\nHost: allowed.test:{port}\r\n{fields}\r\n{body}\
         GET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n"
    ))
}

/// A POST that is framed well, on a connection that ends afterwards.
fn good_post(port: u16, fields: &str, body: &str) -> Attempt {
    Http(format!(
        "POST http://allowed.test:{port}/ HTTP/1.1\r\nHost: allowed.test:{port}\r\nConnection: close\r\n{fields}\r\n{body}"
    ))
}

struct AttackCase {
    name: &'static str,
    attack: Attempt,
    /// The beginning of what the attacker gets.
    answer: &'static str,
    control: Attempt,
}

const DENIED: &str = "HTTP/1.1 403 ";
const BAD: &str = "HTTP/1.1 400 ";
const SOCKS_DENIED: &str = "SOCKS5 reply 2";
const ALERT: &str = "\u{15}\u{3}\u{3}\0\u{2}\u{2}p";

fn case(name: &'static str, answer: &'static str, attack: Attempt, control: Attempt) -> AttackCase {
    AttackCase { name, attack, answer, control }
}

fn names(scene: &AttackScene) -> Vec<AttackCase> {
    let port = scene.port;
    let at = |host: &str| format!("{host}:{port}");
    let connect = |host: &str| Connect(at(host));
    let plain = |host: &str| get(&at(host), &at(host));
    let allowed = || connect("allowed.test");
    let wild = || connect("a.wild.test");
    vec![
        case("another name", DENIED, plain("evil.test"), plain("allowed.test")),
        case("another name by CONNECT", DENIED, connect("evil.test"), allowed()),
        case("the name as a prefix", DENIED, connect("allowed.test.evil.test"), allowed()),
        case("the name as a suffix", DENIED, connect("evilallowed.test"), allowed()),
        case("a sub-domain of a name", DENIED, connect("sub.allowed.test"), connect("ALLOWED.test")),
        case("the domain of a wildcard", DENIED, connect("wild.test"), wild()),
        case("not at a label", DENIED, connect("evilwild.test"), connect("b.a.wild.test")),
        case("a wildcard's name as a prefix", DENIED, connect("a.wild.test.evil.test"), wild()),
        case("an empty label", BAD, connect("allowed..test"), connect("allowed.test.")),
        case("an empty first label", BAD, connect(".wild.test"), wild()),
        case("two dots at the end", BAD, connect("allowed.test.."), connect("allowed.test.")),
        case("a parent domain", DENIED, connect("test"), allowed()),
        case("another port", DENIED, Connect(format!("allowed.test:{}", scene.other_port)), allowed()),
        case("a port of the default ones", DENIED, connect("other.test"), allowed()),
        case("a percent sign", BAD, connect("allowed%2etest"), allowed()),
        case("a null byte", BAD, connect("allowed.test\0.evil.test"), allowed()),
        case("letters that are not ASCII", BAD, connect("allowed.tést"), allowed()),
        case("a full stop that is not ASCII", BAD, connect("evil.test\u{3002}wild.test"), wild()),
        case("a user name", BAD, plain("allowed.test@evil.test"), plain("allowed.test")),
        case("a user name with a port", BAD, plain("allowed.test:80@evil.test"), plain("allowed.test")),
        case("a backslash", BAD, plain("evil.test\\.wild.test"), plain("a.wild.test")),
        case("a fragment", BAD, plain("evil.test#.wild.test"), plain("a.wild.test")),
        case("two ports", BAD, connect(&at("allowed.test")), allowed()),
        case("a port with a sign", BAD, Connect(format!("allowed.test:+{port}")), allowed()),
        case("localhost", DENIED, connect("localhost"), allowed()),
        case(
            "another name by SOCKS5",
            SOCKS_DENIED,
            Socks(socks_name(b"evil.test", port)),
            Socks(socks_name(b"Allowed.TEST.", port)),
        ),
        case(
            "a null byte by SOCKS5",
            SOCKS_DENIED,
            Socks(socks_name(b"allowed.test\0.evil.test", port)),
            Socks(socks_name(b"allowed.test", port)),
        ),
        case(
            "a name of bytes by SOCKS5",
            SOCKS_DENIED,
            Socks(socks_name(b"\xff.wild.test", port)),
            Socks(socks_name(b"a.wild.test", port)),
        ),
    ]
}

fn addresses(scene: &AttackScene) -> Vec<AttackCase> {
    let port = scene.port;
    let connect = |host: &str| Connect(format!("{host}:{port}"));
    let allowed = || connect("127.0.0.1");
    let wild = || connect("a.wild.test");
    let socks = |address: &str| Socks(socks_address(address.parse().unwrap(), port));
    let socks_as_name = |name: &[u8]| Socks(socks_name(name, port));
    let mut cases = vec![
        case("another address", DENIED, connect("127.0.0.2"), allowed()),
        case("the unspecified address", DENIED, connect("0.0.0.0"), allowed()),
        case("one decimal number", BAD, connect("2130706434"), allowed()),
        case("one hexadecimal number", BAD, connect("0x7f000002"), allowed()),
        case("octal numbers", BAD, connect("0177.0.0.2"), allowed()),
        case("a short form", BAD, connect("127.2"), allowed()),
        case("an address with a dot", BAD, connect("127.0.0.2."), allowed()),
        case("loopback of IPv6", DENIED, connect("[::1]"), allowed()),
        case("IPv4-mapped", DENIED, connect("[::ffff:127.0.0.2]"), allowed()),
        case("IPv4-mapped of the allowed one", DENIED, connect("[::ffff:127.0.0.1]"), allowed()),
        case("NAT64 of a network that is named", DENIED, connect("[64:ff9b::127.0.0.2]"), allowed()),
        case("a zone", BAD, connect("[::1%25lo]"), allowed()),
        case("IPv6 without brackets", BAD, connect("::1"), allowed()),
        case("another address by SOCKS5", SOCKS_DENIED, socks("127.0.0.2"), socks("127.0.0.1")),
        case("IPv6 by SOCKS5", SOCKS_DENIED, socks("::1"), socks("127.0.0.1")),
        case("IPv4-mapped by SOCKS5", SOCKS_DENIED, socks("::ffff:127.0.0.2"), socks("127.0.0.1")),
        case(
            "an address as a name by SOCKS5",
            SOCKS_DENIED,
            socks_as_name(b"127.0.0.2"),
            socks_as_name(b"127.0.0.1"),
        ),
        case("hexadecimal by SOCKS5", SOCKS_DENIED, socks_as_name(b"0x7f.2"), socks_as_name(b"127.0.0.1")),
        case("brackets by SOCKS5", SOCKS_DENIED, socks_as_name(b"[::1]"), socks_as_name(b"127.0.0.1")),
    ];
    for name in [
        "private.wild.test",
        "metadata.wild.test",
        "v6.wild.test",
        "mapped.wild.test",
        "compatible.wild.test",
        "nat64.wild.test",
        "local-nat64.wild.test",
        "6to4.wild.test",
        "zero.wild.test",
        "unspecified.wild.test",
        "link-local.wild.test",
        "multicast.wild.test",
        "broadcast.wild.test",
        "cgnat.wild.test",
    ] {
        cases.push(case(name, DENIED, connect(name), wild()));
    }
    cases
}

fn requests(scene: &AttackScene) -> Vec<AttackCase> {
    let port = scene.port;
    let at = |host: &str| format!("{host}:{port}");
    let plain = || get(&at("allowed.test"), &at("allowed.test"));
    let sized = || good_post(port, "Content-Length: 3\r\n", "abc");
    let chunked = || good_post(port, "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n");
    let connect_host =
        format!("CONNECT {} HTTP/1.1\r\nHost: {}\r\n\r\n", at("allowed.test"), at("evil.test"));
    let second = format!(
        "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\nGET http://{1}/smuggled HTTP/1.1\r\nHost: {1}\r\n\r\n",
        at("allowed.test"),
        at("evil.test")
    );
    let second_origin = format!(
        "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        at("allowed.test")
    );
    let two_allowed = format!(
        "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\nGET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n",
        at("allowed.test")
    );
    let bare =
        format!("GET http://{0}/ HTTP/1.1\nHost: {0}\n\nGET /smuggled HTTP/1.1\n\n", at("allowed.test"));
    let folded =
        format!("GET http://{0}/ HTTP/1.1\r\nHost:\r\n evil.test\r\nHost: {0}\r\n\r\n", at("allowed.test"));
    let twice =
        format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nHost: evil.test\r\n\r\n", at("allowed.test"));
    let dropped = format!(
        "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nConnection: close, Host\r\n\r\n",
        at("allowed.test")
    );
    let return_only =
        format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nX: a\rHost: evil.test\r\n\r\n", at("allowed.test"));
    vec![
        case("Host of another name", BAD, get(&at("allowed.test"), &at("evil.test")), plain()),
        case("Host with another port", BAD, get(&at("allowed.test"), "allowed.test"), plain()),
        case("Host of another name by CONNECT", BAD, Http(connect_host), Connect(at("allowed.test"))),
        case("two Hosts", BAD, Http(twice), plain()),
        case("Host that the connection drops", BAD, Http(dropped), plain()),
        case("a folded line", BAD, Http(folded), plain()),
        case("LF alone", BAD, Http(bare), plain()),
        case("CR alone", BAD, Http(return_only), plain()),
        case(
            "no host in the target",
            BAD,
            Http("GET /smuggled HTTP/1.1\r\nHost: allowed.test\r\n\r\n".to_owned()),
            plain(),
        ),
        case("the second request", "HTTP/1.1 200 ", Http(second), Http(two_allowed)),
        case("the second request without a host", "HTTP/1.1 200 ", Http(second_origin), plain()),
        case(
            "length and chunks",
            BAD,
            post(port, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            chunked(),
        ),
        case("two lengths", BAD, post(port, "Content-Length: 0\r\nContent-Length: 3\r\n", "abc"), sized()),
        case("a list of lengths", BAD, post(port, "Content-Length: 3, 0\r\n", "abc"), sized()),
        case("a length with a sign", BAD, post(port, "Content-Length: +3\r\n", "abc"), sized()),
        case("a space before the colon", BAD, post(port, "Content-Length : 3\r\n", "abc"), sized()),
        case("an unknown coding", BAD, post(port, "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), chunked()),
        case(
            "two codings",
            BAD,
            post(port, "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"),
            chunked(),
        ),
        case(
            "a chunk that is longer",
            BAD,
            post(port, "Transfer-Encoding: chunked\r\n", "2\r\nabc\r\n0\r\n\r\n"),
            chunked(),
        ),
        case(
            "a chunk's line with LF alone",
            BAD,
            post(port, "Transfer-Encoding: chunked\r\n", "3\nabc\r\n0\r\n\r\n"),
            chunked(),
        ),
        case(
            "a chunk's size with 0x",
            BAD,
            post(port, "Transfer-Encoding: chunked\r\n", "0x3\r\nabc\r\n0\r\n\r\n"),
            chunked(),
        ),
    ]
}

fn handshakes(scene: &AttackScene) -> Vec<AttackCase> {
    let target = format!("allowed.test:{}", scene.port);
    let hello = |extensions: &[(u16, Vec<u8>)], size| Tls(target.clone(), client_hello(extensions, size));
    let good = || hello(&[server_name("allowed.test")], 9999);
    vec![
        case("another server name", ALERT, hello(&[server_name("evil.test")], 9999), good()),
        case(
            "another allowed name",
            ALERT,
            hello(&[server_name("a.wild.test")], 9999),
            hello(&[server_name("Allowed.test")], 9999),
        ),
        case(
            "a server name in small records",
            ALERT,
            hello(&[server_name("evil.test")], 3),
            hello(&[server_name("allowed.test")], 3),
        ),
        case(
            "an encrypted hello with another outer name",
            ALERT,
            hello(&[encrypted_hello(), server_name("evil.test")], 9999),
            hello(&[encrypted_hello(), server_name("allowed.test")], 9999),
        ),
        case(
            "two server names",
            "",
            hello(&[server_name("allowed.test"), server_name("evil.test")], 9999),
            hello(&[], 9999),
        ),
        case(
            "a record of no length",
            "",
            Tls(
                target.clone(),
                [&[22, 3, 1, 0, 0][..], &client_hello(&[server_name("evil.test")], 9999)].concat(),
            ),
            good(),
        ),
        case("an address as server name", ALERT, hello(&[server_name("127.0.0.2")], 9999), good()),
    ]
}

async fn check(cases: impl Fn(&AttackScene) -> Vec<AttackCase>, at_least: usize) {
    let scene = AttackScene::new(&[]);
    let cases = cases(&scene);
    assert!(cases.len() >= at_least);
    for AttackCase { name, attack, answer, control } in cases {
        scene.world.events.take();
        let got = scene.run(&attack).await;
        assert!(got.starts_with(answer), "{name}: {got:?}");
        assert_eq!(scene.reached_forbidden(), 0, "{name}");
        assert!(!scene.allowed.received().contains("smuggled"), "{name}: {}", scene.allowed.received());
        scene
            .world
            .events
            .wait(|event| matches!(event, Event::Denied { .. } | Event::Rejected { .. }).then_some(()))
            .await;
        let before = scene.allowed.count();
        let got = scene.run(&control).await;
        assert!(got.contains("reached"), "control of {name}: {got:?}");
        assert!(scene.allowed.count() > before, "control of {name}");
    }
}

#[tokio::test]
async fn names_are_not_a_way_around() {
    check(names, 28).await;
}

#[tokio::test]
async fn addresses_are_not_a_way_around() {
    check(addresses, 33).await;
}

#[tokio::test]
async fn requests_are_not_a_way_around() {
    check(requests, 21).await;
}

#[tokio::test]
async fn handshakes_are_not_a_way_around() {
    check(handshakes, 7).await;
}

/// The control of the scene: what must not be reached is reached if entries name it.
#[tokio::test]
async fn forbidden_servers_are_reached_if_they_are_named() {
    let scene = AttackScene::new(&["127.0.0.2", "[::1]"]);
    for host in ["private.wild.test", "127.0.0.2", "[::1]", "v6.wild.test"] {
        let got = scene.run(&Connect(format!("{host}:{}", scene.port))).await;
        assert!(got.contains("reached"), "{host}: {got}");
    }
    assert_eq!((scene.reached_forbidden(), scene.allowed.count()), (4, 0));
}

/// The check and the connection have one answer of the resolver.
#[tokio::test]
async fn answer_that_changes_is_not_a_way_around() {
    let scene = AttackScene::new(&[]);
    scene
        .world
        .resolver
        .answer("rebind.wild.test", &[&["127.0.0.1"], &["127.0.0.2"], &["127.0.0.1", "127.0.0.2"]]);
    let connect = Connect(format!("rebind.wild.test:{}", scene.port));
    assert!(scene.run(&connect).await.contains("reached"));
    assert_eq!(scene.world.resolver.lookups.lock().unwrap().len(), 1);
    let denied = scene.run(&connect).await;
    assert!(denied.starts_with(DENIED), "{denied}");
    // Of several addresses only those that pass are used.
    assert!(scene.run(&connect).await.contains("reached"));
    assert_eq!((scene.allowed.count(), scene.reached_forbidden()), (2, 0));
}

/// A lookup leaves the machine, with whatever a name has in it.
#[tokio::test]
async fn names_that_are_not_allowed_are_not_resolved() {
    let scene = AttackScene::new(&[]);
    for host in ["evil.test", "data-to-smuggle.evil.test", "sub.allowed.test"] {
        scene.run(&Connect(format!("{host}:{}", scene.port))).await;
    }
    assert_eq!(*scene.world.resolver.lookups.lock().unwrap(), Vec::<String>::new());
}

/// A redirect is the client's to follow, with a request that is checked by itself.
#[tokio::test]
async fn redirect_is_checked_as_a_request() {
    let server = RecordingServer::answering(
        "\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: http://evil.test/\r\nContent-Length: 0\r\n\r\n",
    );
    let world = World::for_server(&server, ProxyBounds::default());
    world.resolver.answer("evil.test", &[&["127.0.0.2"]]);
    let port = server.address.port();
    let mut stream = world.connect().await;
    let first = format!("GET http://server.test:{port}/ HTTP/1.1\r\nHost: server.test:{port}\r\n\r\n");
    stream.write_all(first.as_bytes()).await.unwrap();
    assert!(read_until(&mut stream, "\r\n\r\n").await.starts_with("HTTP/1.1 302 "));
    stream.write_all(b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n").await.unwrap();
    assert!(read_all(&mut stream).await.starts_with(DENIED));
}

#[tokio::test]
async fn denial_names_host_address_and_entry() {
    let scene = AttackScene::new(&[]);
    let got = scene.run(&Connect(format!("private.wild.test:{}", scene.port))).await;
    assert!(got.contains("HTTP/1.1 403 Not in the sandbox's network allow-list\r\n"), "{got}");
    assert!(got.contains("Proxy-Status: sandtimer; error=destination_ip_prohibited\r\n"), "{got}");
    let denial = scene
        .world
        .events
        .wait(|event| if let Event::Denied { denial, .. } = event { Some(denial.clone()) } else { None })
        .await;
    assert_eq!(denial.target.to_string(), format!("private.wild.test:{}", scene.port));
    assert!(
        matches!(denial.reason, DenialReason::Address { address, .. } if address == FORBIDDEN),
        "{denial:?}"
    );
    let sentences = format!(
        "The network allow-list of the sandbox has private.wild.test, but the name resolves to 127.0.0.2, which is a \
         loopback address that no entry names. To allow the connection, add \"127.0.0.2:{}\" to the list.",
        scene.port
    );
    assert_eq!(denial.to_string(), sentences);
}
