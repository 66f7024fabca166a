//! The other end of a connection: whose it is, and whether it is still there.

mod peer;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use peer::belongs_to;

/// One connection, as far as its other end matters.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: SocketAddr,
    local: SocketAddr,
    /// The socket itself, to hear of its end.
    socket: OwnedFd,
    /// Looked up once: a socket does not change hands unseen.
    own: OnceCell<bool>,
}

impl Connection {
    pub fn of(stream: &TcpStream, peer: SocketAddr) -> io::Result<Self> {
        let socket = rustix::io::fcntl_dupfd_cloexec(stream, 0)?;
        Ok(Connection { peer, local: stream.local_addr()?, socket, own: OnceCell::new() })
    }

    /// Our end of it.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Waits until the other end has closed.
    ///
    /// The HTTP library hears of it by reading, and does not read while it holds bytes behind a request: a second request,
    /// or a line break too many. Asked for nothing else, epoll tells of the end alone.
    pub async fn closed(&self) {
        let watch = || -> io::Result<AsyncFd<OwnedFd>> {
            let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&watch, &self.socket, epoll::EventData::new_u64(0), epoll::EventFlags::RDHUP)?;
            #[allow(
                deprecated,
                reason = "sound for an OwnedFd, which nobody closes meanwhile; the others are unsafe"
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
        let (peer, local) = (self.peer, self.local);
        let look = || async move {
            let uid = rustix::process::geteuid().as_raw();
            tokio::task::spawn_blocking(move || belongs_to(peer, local, uid)).await.unwrap_or(false)
        };
        *self.own.get_or_init(look).await
    }
}

/// Waits for `done` while the client is there, and calls `gone` if it goes away first: whether that is heard of here, or
/// the connection's task hears of it and drops this.
pub(crate) async fn while_there(
    connection: &Connection,
    done: impl Future<Output = ()>,
    gone: impl FnOnce(),
) {
    let mut gone = OnDrop(Some(gone));
    tokio::select! {
        () = done => gone.0 = None,
        () = connection.closed() => {}
    }
}

struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}
