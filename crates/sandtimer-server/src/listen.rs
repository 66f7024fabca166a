//! Connections: how many there may be, how long they may take, and how they end.
//!
//! A connection belongs to one task. Closing it, or dropping that task, drops the handler's future:
//! that is how a handler learns that its client went away.

mod admission;
mod error_body;
mod head;
mod places;

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use axum::middleware::Next;
use error_body::ErrorBodyStream;
use head::{HEAD_BYTES, MAX_HEADERS};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use places::Seat;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tower_service::Service;

use crate::Listen;
use crate::connection::Connection;
use crate::intake::MappedBody;
use crate::state::SharedApp;
use crate::{
    api, compat, contexts, facts, files, jobs, judge, mcp, openapi, page, runs, sandboxes, tasks, workspaces,
};

pub(crate) use head::check_head;
pub(crate) use places::{ConnectionPermit, Connections, MAX_CONNECTIONS};

/// How long a connection may take to show a token, and then for the answer to what it has sent
/// without one.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(5);
const STRANGER_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// How long a client may take nothing of what is sent to it, in units of the server's patience:
/// usually a minute.
const SEND_STALL_TIMEOUT_FACTOR: u32 = 2;
/// How many times as much is read, to be refused with what it has: what is larger yet is refused as
/// too large to be read.
const READ_LIMIT_FACTOR: usize = 4;
/// After how much silence a client's machine is asked whether it is there, how often, and how many
/// times before it is gone: a minute in all. What is sent and never confirmed, of a stream, takes
/// the kernel's own patience (`tcp_retries2`).
const KEEPALIVE_IDLE_WINDOW: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const MAX_KEEPALIVE_PROBES: u32 = 3;
/// How long accepting pauses when the system has no descriptor or memory for another connection.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What is listened on, before there is a runtime.
#[derive(Debug)]
pub(crate) enum BoundListener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

/// Listens, and returns where: for port 0 the port that it got.
pub(crate) fn bind(listen: &Listen) -> io::Result<(BoundListener, Listen)> {
    match listen {
        Listen::Address(address) => {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((BoundListener::Tcp(listener), Listen::Address(address)))
        }
        Listen::Unix(path) => {
            let listener = bind_path(path)?;
            listener.set_nonblocking(true)?;
            Ok((BoundListener::Unix(listener), listen.clone()))
        }
    }
}

/// Binds a socket that has its mode before it has its name. A stale socket of that name, on which
/// no server listens, is replaced.
fn bind_path(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", crate::id::new_id()));
    let aside = PathBuf::from(aside);
    let listener = std::os::unix::net::UnixListener::bind(&aside)?;
    let named = std::fs::set_permissions(&aside, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::rename(&aside, path));
    named.inspect_err(|_| drop(std::fs::remove_file(&aside)))?;
    Ok(listener)
}

impl BoundListener {
    /// Inside the runtime.
    pub fn into_listener(self) -> io::Result<Listener> {
        match self {
            BoundListener::Tcp(listener) => TcpListener::from_std(listener).map(Listener::Tcp),
            BoundListener::Unix(listener) => UnixListener::from_std(listener).map(Listener::Unix),
        }
    }
}

/// What is listened on.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Both kinds of connection, as HTTP needs them.
trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

type BoxedByteStream = Box<dyn ByteStream>;

impl Listener {
    async fn accept(&self) -> io::Result<(Connection, BoxedByteStream)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // A client whose machine is gone sends nothing: the kernel probes it. Without it
                // the limits of its run decide.
                let _ = sockopt::set_socket_keepalive(&stream, true);
                let _ = sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE_WINDOW);
                let _ = sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL);
                let _ = sockopt::set_tcp_keepcnt(&stream, MAX_KEEPALIVE_PROBES);
                let _ = stream.set_nodelay(true);
                Ok((Connection::of(&stream, peer)?, Box::new(stream)))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Connection::of_unix(&stream)?, Box::new(stream)))
            }
        }
    }
}

/// All paths. Each module has its routes, which are merged here.
fn router(app: &SharedApp) -> Router {
    let compat = compat::routes(&app.contexts, |requests| {
        requests.fallback(facts::not_found).method_not_allowed_fallback(facts::method_not_allowed)
    });
    Router::new()
        .merge(runs::routes().with_state(app.runs.clone()))
        .merge(contexts::routes().with_state(app.contexts.clone()))
        .merge(tasks::routes().with_state(app.agents.tasks.clone()))
        .merge(jobs::routes().with_state(app.jobs.clone()))
        .merge(judge::routes().with_state(app.front_doors.programs.clone()))
        .merge(compat.with_state(app.contexts.clone()))
        .merge(api::routes(&app.front_doors))
        .merge(mcp::routes(&app.agents))
        .merge(workspaces::routes().with_state(app.runs.clone()))
        .merge(sandboxes::routes().with_state(app.contexts.clone()))
        .merge(files::routes().with_state(app.contexts.clone()))
        .merge(facts::routes().with_state(app.clone()))
        .merge(openapi::routes())
        .merge(page::routes())
        .fallback(facts::not_found)
        .method_not_allowed_fallback(facts::method_not_allowed)
        .layer(axum::middleware::from_fn_with_state(app.clone(), admission::admit))
        .layer(axum::middleware::from_fn(crate::body::with_pretty))
        .layer(axum::middleware::from_fn(bounded))
        .layer(axum::middleware::from_fn_with_state(app.core.traces.clone(), crate::trace::observe))
}

/// Refuses heads that are too large before any handler reads them.
async fn bounded(request: Request, next: Next) -> Response<Body> {
    match check_head(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(rejection) => api::refuse(request.uri().path(), rejection),
    }
}

/// Accepts connections until the server is to stop.
pub(crate) async fn serve(listener: Listener, app: SharedApp, connections: Connections) {
    let router = router(&app);
    let mut closing = app.core.closing.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.wait_for(|closing| *closing) => return,
        };
        match accepted {
            Ok((connection, stream)) => {
                let seat = connections.accept(connection.peer());
                tokio::spawn(converse(stream, connection, seat, router.clone(), app.clone()));
            }
            // A connection was reset while it waited, or there are no descriptors left.
            Err(_) => tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await,
        }
    }
}

async fn converse(
    stream: BoxedByteStream,
    connection: Connection,
    seat: Arc<Seat>,
    router: Router,
    app: SharedApp,
) {
    let connection = Arc::new(connection);
    let stream = ErrorBodyStream::new(
        stream,
        connection.clone(),
        app.core.messages.patience * SEND_STALL_TIMEOUT_FACTOR,
    );
    let of_requests = seat.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let connection_permit = ConnectionPermit::of(&of_requests);
        sandboxes::route_by_host(&mut request);
        request.extensions_mut().insert(connection.clone());
        request.extensions_mut().insert(connection_permit.clone());
        let answer = router.clone().call(request);
        async move {
            let answer = answer.await.unwrap_or_else(|never| match never {});
            // The place of the connection is kept until the answer is sent.
            let sent = move |frame| {
                let _connection_permit = &connection_permit;
                Ok(frame)
            };
            Ok::<_, Infallible>(answer.map(|body| MappedBody::new(body, sent)))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.core.messages.patience)
        .max_headers(MAX_HEADERS * READ_LIMIT_FACTOR)
        .max_buf_size(HEAD_BYTES * READ_LIMIT_FACTOR)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut served = std::pin::pin!(served);
    let mut closing = app.core.closing.subscribe();
    // An error here is the client's: what it sent is no HTTP, or it went away.
    tokio::select! {
        _ = served.as_mut() => return,
        () = seat.closed() => return,
        () = stays_stranger(&seat, STRANGER_TIMEOUT) => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
    served.as_mut().graceful_shutdown();
    tokio::select! {
        _ = served => {}
        () = seat.closed() => {}
        () = stays_stranger(&seat, STRANGER_GRACE_PERIOD) => {}
    }
}

/// Waits until a connection has shown no token for too long; for ever where it has.
async fn stays_stranger(seat: &Seat, limit: Duration) {
    tokio::time::sleep(limit).await;
    if !seat.is_stranger() {
        std::future::pending::<()>().await;
    }
}
