//! The other end of a connection: whose it is, and whether it is still there.

mod meter;
mod peer;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OnceCell, Semaphore};

use meter::MessageMeter;
use peer::belongs_to;

/// Look-ups of the other end's user at a time, of all connections: each reads tables of the whole
/// machine, which clients make long. Those of connections that are closed by then are cancelled.
static PEER_LOOKUPS: Semaphore = Semaphore::const_new(2);

/// One connection, as far as its other end matters.
#[derive(Debug)]
pub(crate) struct Connection {
    ends: ConnectionEnds,
    /// The socket itself, to detect its end.
    socket: OwnedFd,
    /// Looked up once: a socket does not change hands unseen.
    own: OnceCell<bool>,
    /// Counts messages, once it is no longer HTTP.
    pub meter: MessageMeter,
}

#[derive(Debug, Clone, Copy)]
enum ConnectionEnds {
    Tcp {
        peer: SocketAddr,
        local: SocketAddr,
    },
    /// With the uid that connected.
    Unix(u32),
}

impl Connection {
    pub fn of(stream: &TcpStream, peer: SocketAddr) -> io::Result<Self> {
        let socket = rustix::io::fcntl_dupfd_cloexec(stream, 0)?;
        let ends = ConnectionEnds::Tcp { peer, local: stream.local_addr()? };
        Ok(Connection { ends, socket, own: OnceCell::new(), meter: MessageMeter::default() })
    }

    /// A connection over a socket in the file system. The kernel names the user that connected.
    pub fn of_unix(stream: &UnixStream) -> io::Result<Self> {
        let socket = rustix::io::fcntl_dupfd_cloexec(stream, 0)?;
        let uid = rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw();
        Ok(Connection {
            ends: ConnectionEnds::Unix(uid),
            socket,
            own: OnceCell::new(),
            meter: MessageMeter::default(),
        })
    }

    /// The machine that it comes from; `None` for this one's sockets in the file system.
    pub fn peer(&self) -> Option<IpAddr> {
        match self.ends {
            ConnectionEnds::Tcp { peer, .. } => Some(peer.ip().to_canonical()),
            ConnectionEnds::Unix(_) => None,
        }
    }

    /// Our end of it; loopback where it has no address.
    pub fn local(&self) -> SocketAddr {
        match self.ends {
            ConnectionEnds::Tcp { local, .. } => local,
            ConnectionEnds::Unix(_) => SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }

    /// Waits until the other end has closed.
    ///
    /// The HTTP library detects it by reading, and does not read while it holds bytes after a
    /// request: a second request, or an extra line break. With no other event requested, epoll
    /// reports the end alone.
    pub async fn closed(&self) {
        let watch = || -> io::Result<AsyncFd<OwnedFd>> {
            let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&watch, &self.socket, epoll::EventData::new_u64(0), epoll::EventFlags::RDHUP)?;
            #[allow(
                deprecated,
                reason = "sound for an OwnedFd, which stays open during the call; the others are unsafe"
            )]
            AsyncFd::with_interest(watch, Interest::READABLE)
        };
        match watch() {
            Ok(watch) => drop(watch.readable().await),
            // Without descriptors it is as if it had not been asked for.
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether the other end belongs to the server's own user.
    pub async fn is_own(&self) -> bool {
        let uid = rustix::process::geteuid().as_raw();
        let (peer, local) = match self.ends {
            ConnectionEnds::Tcp { peer, local } => (peer, local),
            ConnectionEnds::Unix(connected) => return connected == uid,
        };
        let inspect_peer = || async move {
            // The semaphore is never closed.
            let turn = PEER_LOOKUPS.acquire().await;
            let (is_awaited, _awaited) = awaited();
            let read_tables = move || {
                let _turn = turn;
                belongs_to(peer, local, uid, &is_awaited)
            };
            tokio::task::spawn_blocking(read_tables).await.unwrap_or(false)
        };
        *self.own.get_or_init(inspect_peer).await
    }
}

/// Waits for `done` while the client is there, and calls `gone` if it goes away first: whether this
/// detects it, or the connection's task does and drops this.
pub(crate) async fn while_there(
    connection: &Connection,
    done: impl Future<Output = ()>,
    gone: impl FnOnce(),
) {
    let mut gone = OnDrop::new(gone);
    tokio::select! {
        // First: if `done` is ready, the connection does not matter.
        biased;
        () = done => gone.0 = None,
        () = connection.closed() => {}
    }
}

/// Waits for `done`, and calls `gone` if this wait is dropped before.
pub(crate) async fn unless_dropped(done: impl Future<Output = ()>, gone: impl FnOnce()) {
    let mut gone = OnDrop::new(gone);
    done.await;
    gone.0 = None;
}

/// For a thread: whether its result is awaited. For the caller: the guard to keep for as long as it
/// awaits the result.
pub(crate) fn awaited() -> (impl Fn() -> bool + Send + Sync + 'static, OnDrop<impl FnOnce()>) {
    let withdrawn = Arc::new(AtomicBool::new(false));
    let asked = withdrawn.clone();
    let withdraw = move || withdrawn.store(true, Ordering::Release);
    (move || !asked.load(Ordering::Acquire), OnDrop::new(withdraw))
}

/// Calls a function when it is dropped.
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub fn new(call: F) -> Self {
        OnDrop(Some(call))
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}
