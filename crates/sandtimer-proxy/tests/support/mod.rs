//! A proxy on loopback, servers that may and may not be reached through it, and clients by hand.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sandtimer_proxy::{
    Capacity, Event, Proxy, ProxyBounds, ProxyConfig, ProxyPolicy, Resolver, ResolverFuture,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// How long anything in these tests may take.
pub const LONG_TIMEOUT: Duration = Duration::from_secs(20);

/// Where the servers that must not be reached listen.
pub const FORBIDDEN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
pub const ALLOWED: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Answers from a script: the n-th lookup of a name gets the n-th answer, and the last one from
/// then on.
#[derive(Default)]
pub struct ScriptedResolver {
    script: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub lookups: Mutex<Vec<String>>,
}

impl ScriptedResolver {
    pub fn answer(&self, name: &str, answers: &[&[&str]]) {
        let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        self.script.lock().unwrap().insert(name.to_owned(), answers.iter().map(parse).collect());
    }
}

impl Resolver for ScriptedResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolverFuture<'a> {
        let mut lookups = self.lookups.lock().unwrap();
        let before = lookups.iter().filter(|earlier| *earlier == name).count();
        lookups.push(name.to_owned());
        let script = self.script.lock().unwrap();
        let answer = match script.get(name) {
            Some(answers) => Ok(answers[before.min(answers.len() - 1)].clone()),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "not in the script")),
        };
        // A name without addresses never gets an answer.
        Box::pin(async move {
            match answer {
                Ok(addresses) if addresses.is_empty() => std::future::pending().await,
                answer => answer,
            }
        })
    }
}

/// What the proxy reported, in sequence.
#[derive(Clone, Default)]
pub struct Events {
    list: Arc<Mutex<Vec<Event>>>,
    changed: Arc<Notify>,
}

impl Events {
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.list.lock().unwrap())
    }

    /// Waits until there is an event for which `wanted` is true.
    pub async fn wait<T>(&self, wanted: impl Fn(&Event) -> Option<T>) -> T {
        patiently(async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = self.list.lock().unwrap().iter().find_map(&wanted) {
                    return found;
                }
                changed.await;
            }
        })
        .await
    }
}

/// A proxy with its script and its events.
pub struct World {
    pub proxy: Option<Proxy>,
    pub address: SocketAddr,
    pub resolver: Arc<ScriptedResolver>,
    pub events: Events,
}

impl World {
    pub fn new(entries: &[String], bounds: ProxyBounds) -> World {
        let listener = StdListener::bind((ALLOWED, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let resolver = Arc::new(ScriptedResolver::default());
        let events = Events::default();
        let sink = events.clone();
        let config = ProxyConfig {
            policy: ProxyPolicy::parse(entries).unwrap(),
            bounds,
            resolver: resolver.clone(),
            events: Arc::new(move |event| {
                sink.list.lock().unwrap().push(event);
                sink.changed.notify_one();
            }),
            capacity: Capacity::default(),
        };
        let proxy = Some(Proxy::start([listener.into()], config).unwrap());
        World { proxy, address, resolver, events }
    }

    /// A proxy that allows `server.test` and its sub-domains, which are at the server's address.
    pub fn for_server(server: &RecordingServer, bounds: ProxyBounds) -> World {
        let port = server.address.port();
        let entries =
            [format!("server.test:{port}"), format!("*.server.test:{port}"), server.address.to_string()];
        let world = World::new(&entries, bounds);
        world.resolver.answer("server.test", &[&["127.0.0.1"]]);
        world
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes on a new connection, and returns everything that comes back until its end.
    pub async fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        read_all(&mut stream).await
    }

    /// A connection through CONNECT.
    pub async fn tunnel(&self, target: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream
            .write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let answer = read_until(&mut stream, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        stream
    }
}

/// A server that counts its connections and keeps what it receives.
pub struct RecordingServer {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    pub received: Arc<Mutex<Vec<u8>>>,
    task: tokio::task::JoinHandle<()>,
}

impl RecordingServer {
    pub fn count(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn received(&self) -> String {
        String::from_utf8_lossy(&self.received.lock().unwrap()).into_owned()
    }

    /// Serves each connection with `handler`.
    pub fn with<F>(
        listener: StdListener,
        handler: impl Fn(TcpStream, Arc<Mutex<Vec<u8>>>) -> F + Send + 'static,
    ) -> RecordingServer
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (count, kept) = (connections.clone(), received.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(handler(stream, kept.clone()));
            }
        });
        RecordingServer { address, connections, received, task }
    }

    /// Answers every HTTP request, and every other beginning, with `reached`.
    pub fn reached(listener: StdListener) -> RecordingServer {
        RecordingServer::with(listener, async |mut stream, received| {
            let mut buffer = [0; 4096];
            let mut own = Vec::new();
            let mut answered = 0;
            while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
                received.lock().unwrap().extend_from_slice(&buffer[..bytes]);
                own.extend_from_slice(&buffer[..bytes]);
                let requests = if own[0].is_ascii_alphabetic() {
                    String::from_utf8_lossy(&own).matches("\r\n\r\n").count()
                } else {
                    1
                };
                while answered < requests {
                    answered += 1;
                    if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nreached").await.is_err()
                    {
                        return;
                    }
                }
            }
        })
    }

    /// A server at a port of its own whose connections get `answer` once the request has `until`,
    /// and then end.
    pub fn answering(until: &'static str, answer: &'static str) -> RecordingServer {
        RecordingServer::with(any_port(), move |mut stream, received| async move {
            let request = read_until(&mut stream, until).await;
            received.lock().unwrap().extend_from_slice(request.as_bytes());
            let _ = stream.write_all(answer.as_bytes()).await;
        })
    }
}

impl Drop for RecordingServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub fn any_port() -> StdListener {
    StdListener::bind((ALLOWED, 0)).unwrap()
}

/// Listeners at one port of the allowed and the forbidden addresses.
pub fn same_port() -> (StdListener, StdListener, StdListener) {
    loop {
        let allowed = any_port();
        let port = allowed.local_addr().unwrap().port();
        let others = (StdListener::bind((FORBIDDEN, port)), StdListener::bind(("::1", port)));
        match others {
            (Ok(v4), Ok(v6)) => return (allowed, v4, v6),
            (v4, v6) => {
                let busy = |result: &io::Result<StdListener>| {
                    result.as_ref().err().is_none_or(|error| error.kind() == io::ErrorKind::AddrInUse)
                };
                assert!(busy(&v4) && busy(&v6), "loopback needs 127.0.0.2 and ::1: {v4:?} {v6:?}");
            }
        }
    }
}

pub async fn patiently<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG_TIMEOUT, future).await.expect("the test waited for too long")
}

/// Reads until the end of the stream; a reset is one too.
pub async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = patiently(stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until `end` has been received, or the stream has ended.
pub async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    patiently(async {
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&bytes).contains(end) {
            match stream.read(&mut buffer).await {
                Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
                _ => break,
            }
        }
    })
    .await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A TLS ClientHello with these extensions, in records of at most `size` bytes.
pub fn client_hello(extensions: &[(u16, Vec<u8>)], size: usize) -> Vec<u8> {
    let sized = |content: &[u8]| [&(content.len() as u16).to_be_bytes()[..], content].concat();
    let extensions: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, content)| [kind.to_be_bytes().to_vec(), sized(content)].concat())
        .collect();
    let body = [&[3, 3][..], &[9; 32], &[0], &sized(&[0x13, 0x01]), &[1, 0], &sized(&extensions)].concat();
    let message = [&[1][..], &(body.len() as u32).to_be_bytes()[1..], &body].concat();
    message.chunks(size).flat_map(|part| [vec![22, 3, 1], sized(part)].concat()).collect()
}

/// The server_name extension.
pub fn server_name(name: &str) -> (u16, Vec<u8>) {
    let entry = [&[0][..], &(name.len() as u16).to_be_bytes(), name.as_bytes()].concat();
    (0, [&(entry.len() as u16).to_be_bytes()[..], &entry].concat())
}

/// An encrypted ClientHello's extension, as far as a proxy can read it.
pub fn encrypted_hello() -> (u16, Vec<u8>) {
    (0xfe0d, vec![0; 60])
}

/// SOCKS5's request to connect to a name.
pub fn socks_name(name: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, 3, name.len() as u8][..], name, &port.to_be_bytes()].concat()
}

/// SOCKS5's request to connect to an address.
pub fn socks_address(address: IpAddr, port: u16) -> Vec<u8> {
    let (kind, octets) = match address {
        IpAddr::V4(address) => (1, address.octets().to_vec()),
        IpAddr::V6(address) => (4, address.octets().to_vec()),
    };
    [&[5, 1, 0, kind][..], &octets, &port.to_be_bytes()].concat()
}
