//! What can be done to a run that is active: kill, extend, pause, resume, signal, stdin.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::post;
use rustix::fs::OFlags;
use sandtimer::Run;
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::json;
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, watch};

use super::{find, request};
use crate::auth::OwnerId;
use crate::body::{self, Id, Object};
use crate::error::{ApiRejection, Code};
use crate::intake::Reservation;
use crate::state::SharedApp;

/// How long a kill waits for the end by default.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// How long bytes for stdin wait for a command that does not read them.
pub(crate) const STDIN_WAIT: Duration = Duration::from_secs(10);

pub(super) fn routes() -> Router<SharedApp> {
    Router::new()
        .route("/v1/runs/{id}/kill", post(kill))
        .route("/v1/runs/{id}/extend", post(extend))
        .route("/v1/runs/{id}/pause", post(pause))
        .route("/v1/runs/{id}/resume", post(resume))
        .route("/v1/runs/{id}/signal", post(signal))
        .route("/v1/runs/{id}/stdin", post(stdin))
}

/// Of a run that has ended already it is no error: it is dead, which was asked for.
async fn kill(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let reason = fields.reason("the caller")?;
    let wait = fields.milliseconds("wait_ms")?.unwrap_or(KILL_WAIT);
    fields.finish()?;
    let run = find(&app, &id, &owner)?;
    run.cancel(&reason);
    run.wait_ended(Some(wait)).await;
    body::long_json(&app.messages, &owner, || run.view()).await
}

async fn extend(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let by = fields.milliseconds("by_ms")?;
    fields.finish()?;
    let by = by.filter(|by| *by > Duration::ZERO).ok_or_else(|| {
        ApiRejection::new(Code::BadField, "by_ms: give a positive number of milliseconds")
            .with("key", "by_ms")
    })?;
    let run = find(&app, &id, &owner)?.running()?;
    let deadline = run.extend(by)?;
    let left = |moment: u64| moment.saturating_sub(monotonic_nanoseconds()) / 1_000_000;
    Ok(body::json(&match deadline {
        None => json!({"run_id": id, "wall_left_ms": null, "source": null}),
        Some(deadline) => json!({
            "run_id": id,
            "wall_left_ms": left(deadline.wall_end.as_nanos()),
            "source": deadline.effect.source,
        }),
    }))
}

async fn pause(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    find(&app, &id, &owner)?.running()?.pause()?;
    Ok(body::json(&json!({"run_id": id, "paused": true})))
}

async fn resume(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    find(&app, &id, &owner)?.running()?.resume()?;
    Ok(body::json(&json!({"run_id": id, "paused": false})))
}

async fn signal(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let given = fields.value("signal").unwrap_or_default();
    fields.finish()?;
    let number = request::signal("signal", &given)?;
    let run = find(&app, &id, &owner)?.running()?;
    run.signal(number).map_err(|_| ApiRejection::new(Code::RunEnded, format!("the run `{id}` has ended")))?;
    Ok(body::json(&json!({"run_id": id, "signal": number})))
}

/// Writes what the command takes, and answers how much that was.
async fn stdin(
    State(app): State<SharedApp>,
    Extension(owner): Extension<OwnerId>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let data = fields.bytes("data", "encoding")?.unwrap_or_default();
    let eof = fields.boolean("eof")?.unwrap_or(false);
    let wait = fields.milliseconds("wait_ms")?.unwrap_or(STDIN_WAIT);
    fields.finish()?;
    let run = find(&app, &id, &owner)?;
    if run.running()?.has_terminal() && eof {
        let message = "eof: a terminal has no end of its input; send \"\\u0004\" (Ctrl-D) as data";
        return Err(ApiRejection::new(Code::BadField, message).with("key", "eof"));
    }
    let written = run.input.write(&data, wait).await?;
    // What was not taken is the caller's to send again: the end does not pass it.
    let closed = eof && written == data.len();
    if closed {
        run.input.close();
    }
    Ok(body::json(&json!({"run_id": id, "written": written, "closed": closed})))
}

/// What was given with the request, and the memory that is reserved for it.
pub(crate) type FirstInput = (Vec<u8>, Option<Reservation>);

/// The way to a run's stdin, for [`sandtimer::Stdin::Piped`], or to its terminal.
#[derive(Debug)]
pub(crate) struct RunInput {
    /// The request that writes holds the lock, so that bytes of two requests do not mix.
    pipe: Mutex<Option<pipe::Sender>>,
    /// What was given with the request, written before anything else.
    first: SyncMutex<Option<FirstInput>>,
    closed: watch::Sender<bool>,
}

impl RunInput {
    pub fn closed() -> Self {
        RunInput::later(None)
    }

    /// Closed until the run that it is for has begun.
    pub fn later(first: Option<FirstInput>) -> Self {
        RunInput { pipe: Mutex::new(None), first: SyncMutex::new(first), closed: watch::Sender::new(true) }
    }

    /// Opens it where the run has a stdin to write to. Inside the runtime, and before anything is
    /// written.
    pub fn open(&self, run: &Run) {
        let pipe = run.take_stdin().and_then(|pipe| sender(pipe).ok());
        if let (Some(pipe), Ok(mut pipe_slot)) = (pipe, self.pipe.try_lock()) {
            *pipe_slot = Some(pipe);
            self.closed.send_replace(false);
        }
    }

    /// Of a run that has one. Must be called inside the runtime.
    pub fn of(run: &Run, first: Option<FirstInput>) -> Self {
        let input = RunInput::later(first);
        input.open(run);
        input
    }

    /// Writes what was given with the request.
    pub async fn feed_first(&self) {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((first, _reserved)) = first {
            // A command may not read its first input; a request that writes more gets that error.
            let _ = self.write(&first, Duration::MAX).await;
        }
    }

    /// Closes it, also under one that waits to write, and forgets what was not written.
    pub fn close(&self) {
        self.closed.send_replace(true);
        drop(self.first.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Ok(mut pipe) = self.pipe.try_lock() {
            *pipe = None;
        }
    }

    /// Writes as much as is taken within `most`.
    pub async fn write(&self, bytes: &[u8], most: Duration) -> Result<usize, ApiRejection> {
        let mut written = 0;
        let work = async {
            let mut pipe = self.pipe.lock().await;
            let Some(open) = &*pipe else { return Err(is_closed()) };
            let mut closed = self.closed.subscribe();
            while written < bytes.len() {
                let ready = tokio::select! {
                    ready = open.writable() => ready,
                    _ = closed.wait_for(|closed| *closed) => Err(io::ErrorKind::BrokenPipe.into()),
                };
                match ready.and_then(|()| open.try_write(&bytes[written..])) {
                    Ok(count) => written += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => {
                        *pipe = None;
                        return Err(is_closed());
                    }
                }
            }
            if *closed.borrow() {
                *pipe = None;
            }
            Ok(())
        };
        match tokio::time::timeout(most, work).await {
            Ok(Err(rejection)) if written == 0 => Err(rejection),
            _ => Ok(written),
        }
    }
}

fn is_closed() -> ApiRejection {
    ApiRejection::new(Code::StdinClosed, "the run's stdin is closed")
}

fn sender(pipe: OwnedFd) -> io::Result<pipe::Sender> {
    rustix::fs::fcntl_setfl(&pipe, OFlags::WRONLY | OFlags::NONBLOCK)?;
    // A terminal is used in the same way, and is no pipe.
    pipe::Sender::from_owned_fd_unchecked(pipe)
}
