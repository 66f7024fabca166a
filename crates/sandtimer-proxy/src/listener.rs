//! Sockets that accept a sandbox's connections.

use std::io;
use std::net;
use std::os::unix::net as unix;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use crate::buffered::Buffered;

/// A listening socket of a sandbox, as it was passed out of the sandbox's network namespace.
#[derive(Debug)]
pub enum ProxyListener {
    Tcp(net::TcpListener),
    Unix(unix::UnixListener),
}

impl From<net::TcpListener> for ProxyListener {
    fn from(listener: net::TcpListener) -> ProxyListener {
        ProxyListener::Tcp(listener)
    }
}

impl From<unix::UnixListener> for ProxyListener {
    fn from(listener: unix::UnixListener) -> ProxyListener {
        ProxyListener::Unix(listener)
    }
}

/// The two directions of an accepted connection.
pub(crate) struct ClientConnection {
    pub(crate) reader: Buffered<Box<dyn AsyncRead + Send + Unpin>>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
}

/// A listener that is registered with the runtime.
#[derive(Debug)]
pub(crate) enum AsyncListener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsyncListener {
    /// Must be called within a runtime.
    pub(crate) fn new(listener: ProxyListener) -> io::Result<AsyncListener> {
        match listener {
            ProxyListener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener).map(AsyncListener::Tcp)
            }
            ProxyListener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                UnixListener::from_std(listener).map(AsyncListener::Unix)
            }
        }
    }

    pub(crate) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<ClientConnection>> {
        match self {
            AsyncListener::Tcp(listener) => listener.poll_accept(context).map_ok(|(stream, _)| {
                // Only a delay is lost if the socket is not a TCP one after all.
                let _ = stream.set_nodelay(true);
                let (reader, writer) = stream.into_split();
                ClientConnection { reader: Buffered::new(Box::new(reader)), writer: Box::new(writer) }
            }),
            AsyncListener::Unix(listener) => listener.poll_accept(context).map_ok(|(stream, _)| {
                let (reader, writer) = stream.into_split();
                ClientConnection { reader: Buffered::new(Box::new(reader)), writer: Box::new(writer) }
            }),
        }
    }
}
