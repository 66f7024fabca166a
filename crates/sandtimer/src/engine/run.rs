//! The handle of one run.

mod control;
mod futures;
mod output;

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;

pub use self::futures::{OutcomeFuture, OutputFuture, SettledFuture, StartFuture, WarningFuture};
use self::output::read_output;
pub use self::output::{RunOutput, Stream};
use super::Inner;
use super::error::Error;
use super::terminal;
use crate::limits::EffectiveLimits;
use crate::model::{Outcome, Progress, Remark, StartDelays, WaitingFor, Warning};
use crate::progress::ProgressReport;
use crate::scope::{Deadline, ScopeId};
use crate::supervise::RunInspection;
use crate::supervise::follower::OutputPiece;
use crate::supervise::look::inspect_wait;
use crate::supervise::output::{Chunk, SharedSpool};
use crate::supervise::run::SharedRun;
use crate::supervise::run_inspection::inspect_run;
use crate::supervise::{ports, remarks};
use crate::time::Moment;

/// The handle of a run that was started.
///
/// Dropping the handle does not end the run; its limits do, and [`Run::cancel`].
#[derive(Debug)]
pub struct Run {
    pub(super) inner: Arc<Inner>,
    pub(super) running: Arc<SharedRun>,
    pub(super) scope: ScopeId,
    pub(super) spools: [Option<SharedSpool>; 2],
    pub(super) pipes: Mutex<Pipes>,
}

/// The caller's ends of pipes.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
    /// The master of its terminal.
    pub terminal: Option<OwnedFd>,
}

impl Run {
    /// The run's id.
    pub fn id(&self) -> &str {
        &self.running.id
    }

    /// Another handle of the same run, without the caller's ends of piped streams.
    pub fn another(&self) -> Run {
        Run {
            inner: self.inner.clone(),
            running: self.running.clone(),
            scope: self.scope,
            spools: self.spools.clone(),
            pipes: Mutex::default(),
        }
    }

    /// The scope of the run, for runs inside it.
    pub fn scope(&self) -> ScopeId {
        self.scope
    }

    /// What of the host the caller will miss inside, such as the current directory, and why it is
    /// not there.
    pub fn missing(&self) -> &[String] {
        &self.running.missing
    }

    /// What else of the host is not shown, such as an installation or an entry of PATH, and why.
    pub fn hidden(&self) -> &[String] {
        &self.running.hidden
    }

    /// Every limit that applies, with where it came from.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{Engine, LimitKind, Limits, Source, Spec};
    ///
    /// let limits = Limits::new().wall(Duration::from_secs(2));
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["true"]).limits(limits))?;
    /// let wall = run.effective().get(LimitKind::Wall).unwrap();
    /// assert_eq!((wall.value, wall.source), (2_000_000_000, Source::Call));
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn effective(&self) -> &EffectiveLimits {
        &self.running.effective
    }

    /// Waits for the Outcome. Its proof of death may still be pending; see [`Run::settled`].
    ///
    /// ```
    /// # use std::{future::Future, sync::Arc, task::{Context, Poll, Wake, Waker}, thread::Thread};
    /// # struct Unpark(Thread);
    /// # impl Wake for Unpark { fn wake(self: Arc<Self>) { self.0.unpark(); } }
    /// # fn block_on<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    /// #     loop {
    /// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
    /// #             Poll::Ready(output) => return output,
    /// #             Poll::Pending => std::thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// use sandtimer::{Engine, Spec};
    ///
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["echo", "hello"]))?;
    /// let outcome = block_on(run.wait());
    /// assert_eq!(outcome.stdout, "hello\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn wait(&self) -> OutcomeFuture {
        OutcomeFuture { running: self.running.clone(), settled: false, key: None }
    }

    /// Waits for the Outcome with its final proof: dead, or after 2 s at the earliest unkillable.
    pub fn settled(&self) -> SettledFuture {
        SettledFuture(OutcomeFuture { running: self.running.clone(), settled: true, key: None })
    }

    /// How long it waited before its command started.
    pub fn start_delays(&self) -> StartDelays {
        let SharedRun { submitted_at, spawned_at, started_at, .. } = &*self.running;
        let started_at = started_at.load(Ordering::Acquire);
        let spawned = (started_at > 0).then(|| started_at.saturating_sub(*spawned_at));
        StartDelays {
            queued_ms: spawned_at.saturating_sub(*submitted_at) / 1_000_000,
            spawn_ms: spawned.map(|nanoseconds| nanoseconds / 1_000_000),
        }
    }

    /// Waits until the command was started or the run has ended.
    pub fn started(&self) -> StartFuture {
        StartFuture { running: self.running.clone(), key: None }
    }

    /// Waits until captured output goes past these positions of stdout and stderr, or the run is
    /// over.
    pub fn grown(&self, cursors: [u64; 2]) -> OutputFuture {
        OutputFuture { running: self.running.clone(), spools: self.spools.clone(), cursors, key: None }
    }

    /// As [`Run::wait`], blocking the calling thread.
    pub fn wait_blocking(&self) -> Arc<Outcome> {
        self.running.waiting.wait_outcome(false)
    }

    /// As [`Run::settled`], blocking the calling thread.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec};
    ///
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["sh", "-c", "sleep 3600 &"]))?;
    /// let outcome = run.settled_blocking();
    /// assert_eq!(outcome.tree.survivors, Some(0)); // the background process is dead, too
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn settled_blocking(&self) -> Arc<Outcome> {
        self.running.waiting.wait_outcome(true)
    }

    /// Whether the Outcome is there.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec};
    ///
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["sleep", "3600"]))?;
    /// assert!(!run.has_finished());
    /// run.cancel("not needed");
    /// run.wait_blocking();
    /// assert!(run.has_finished());
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn has_finished(&self) -> bool {
        self.running.waiting.has_finished()
    }

    /// Blocks until the verdict is there or the run ended without one; its time in monotonic
    /// nanoseconds.
    pub fn verdict_blocking(&self) -> Option<u64> {
        self.running.waiting.wait_verdict()
    }

    /// Blocks until the command was started or the run has ended.
    pub fn started_blocking(&self) {
        self.running.waiting.wait_started();
    }

    /// Waits for the next warning of a limit that has not ended the run: of its wall-clock limit if
    /// [`Spec::warn`](super::Spec::warn) requests it, again if the limit is extended, and of a
    /// stall limit that the run passes only because it is too busy. Each is returned once; `None`
    /// when the run has ended.
    pub fn warned(&self) -> WarningFuture {
        WarningFuture { running: self.running.clone(), key: None }
    }

    /// As [`Run::warned`], blocking the calling thread.
    pub fn warned_blocking(&self) -> Option<Warning> {
        self.running.waiting.wait_warning()
    }

    /// When everything of the run must be dead, in monotonic nanoseconds; `None` without a limit or
    /// before its start.
    pub fn deadline(&self) -> Option<u64> {
        self.running.cell.hard_end().map(Moment::as_nanos)
    }

    /// When its ending starts, in monotonic nanoseconds; `None` without a limit, in a pause of its
    /// clocks, and once it has ended.
    pub fn wall_end(&self) -> Option<u64> {
        self.wall().map(|deadline| deadline.wall_end.as_nanos())
    }

    /// What bounds its wall now, with what extended it: `None` where [`wall_end`](Run::wall_end)
    /// is.
    pub fn wall(&self) -> Option<Deadline> {
        self.scopes().ok()?.deadline(self.scope).ok()?
    }

    /// What it is doing: its processes, and what each waits for. Reads /proc for a moment; of a run
    /// that has ended there is nothing to see.
    pub fn inspect(&self) -> RunInspection {
        inspect_run(&self.running, monotonic_nanoseconds())
    }

    /// How long it has written nothing.
    pub fn quiet_for(&self) -> Duration {
        Duration::from_nanos(self.running.quiet_for(monotonic_nanoseconds()))
    }

    /// What its command waits for, or that it computes: the first part of [`Run::inspect`], for
    /// many runs at once.
    pub fn waiting_for(&self) -> Option<WaitingFor> {
        inspect_wait(&self.running)
    }

    /// The write end of stdin, for [`Stdin::Piped`](super::Stdin::Piped), or of its terminal; once.
    ///
    /// ```
    /// use std::io::Write;
    /// use sandtimer::{Engine, Spec, Stdin};
    ///
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec { stdin: Stdin::Piped, ..Spec::command(["cat"]) })?;
    /// let mut stdin = std::fs::File::from(run.take_stdin().unwrap());
    /// stdin.write_all(b"hello")?;
    /// drop(stdin); // the command reads the end of the file
    /// assert_eq!(run.wait_blocking().stdout, "hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_stdin(&self) -> Option<OwnedFd> {
        self.pipes().stdin.take()
    }

    /// Whether something in it can listen on a port: on a loopback of its own, or in the host's
    /// network.
    pub fn has_network(&self) -> bool {
        self.running.network
    }

    /// Whether a process of it listens on this TCP port. Reads files of /proc, as many as it has
    /// processes and descriptors.
    pub fn listens_on(&self, port: u16) -> bool {
        self.listens_on_while(port, &|| true)
    }

    /// As [`Run::listens_on`], for a caller that may leave before all processes of the run are
    /// inspected.
    pub fn listens_on_while(&self, port: u16, is_wanted: &dyn Fn() -> bool) -> bool {
        let job = self.running.job.as_ref().map(|job| job.pidfd.as_fd());
        ports::listens(self.running.pidfd.as_fd(), job, port, is_wanted) && !self.has_finished()
    }

    /// A connection to a port of its loopback. Blocks for at most twice `within`.
    ///
    /// # Errors
    /// `PermissionDenied` where this process may not enter the run's network namespace, which takes
    /// CAP_SYS_ADMIN; else those of connect(2).
    pub fn connect(&self, port: u16, within: Duration) -> io::Result<TcpStream> {
        if self.has_finished() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let connected = ports::connect(self.running.pidfd.as_fd(), port, within)?;
        // Its network may have been given to another run in between.
        if self.has_finished() { Err(io::ErrorKind::NotConnected.into()) } else { Ok(connected) }
    }

    /// Whether it was given a terminal.
    pub fn has_terminal(&self) -> bool {
        self.pipes().terminal.is_some()
    }

    /// Resizes its terminal; the kernel sends SIGWINCH to the foreground of the job.
    ///
    /// # Errors
    /// When it has no terminal.
    pub fn resize(&self, columns: u16, rows: u16) -> Result<(), Error> {
        match &self.pipes().terminal {
            Some(master) => terminal::resize(master, columns, rows),
            None => {
                let source = rustix::io::Errno::NOTTY.into();
                Err(Error::System { doing: "the run has no terminal", source })
            }
        }
    }

    /// The read end of an output stream, for [`Output::Piped`](super::Output::Piped); once. Of a
    /// terminal or a pipe that both are, as stdout.
    ///
    /// ```
    /// use std::io::Read;
    /// use sandtimer::{Engine, Output, Spec, Stream};
    ///
    /// let spec = Spec { stdout: Output::Piped, ..Spec::command(["echo", "hello"]) };
    /// let engine = Engine::new()?;
    /// let run = engine.start(spec)?;
    /// let mut text = String::new();
    /// std::fs::File::from(run.take_output(Stream::Stdout).unwrap()).read_to_string(&mut text)?;
    /// assert_eq!(text, "hello\n");
    /// assert_eq!(run.wait_blocking().stdout, ""); // nothing was captured
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_output(&self, stream: Stream) -> Option<OwnedFd> {
        let mut pipes = self.pipes();
        match stream {
            Stream::Stdout => pipes.stdout.take(),
            Stream::Stderr => pipes.stderr.take(),
        }
    }

    /// How far it is, when it will be done and how likely that is before its wall ends it, as far
    /// as its captured output or its reports show that.
    pub fn progress(&self) -> Option<Progress> {
        self.running.progress(self.wall_end(), monotonic_nanoseconds())
    }

    /// In which order it has written to its captured streams since this was last asked: where each
    /// piece ends in its stream.
    pub fn take_write_sequence(&self) -> Vec<OutputPiece> {
        self.running.follower.as_ref().map(|follower| follower.take_write_sequence()).unwrap_or_default()
    }

    /// Records progress that the caller reports on behalf of the run; from then on progress is not
    /// read from the run's output.
    ///
    /// ```
    /// use sandtimer::progress::ProgressReport;
    /// use sandtimer::{Engine, Spec};
    ///
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["sleep", "3600"]))?;
    /// run.report_progress(&ProgressReport { done: 8.0, total: Some(15.0), unit: None });
    /// let progress = run.progress().unwrap();
    /// assert_eq!((progress.done, progress.total), (8.0, Some(15.0)));
    /// run.cancel("the example has ended");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn report_progress(&self, report: &ProgressReport) {
        // Plain data always serialises.
        let line = serde_json::to_vec(report).unwrap_or_default();
        self.running.handle_report(&line, monotonic_nanoseconds());
    }

    /// Notes for the stall limit that there was output: for callers that read piped output
    /// themselves.
    pub fn note_output(&self) {
        self.running.note_output(monotonic_nanoseconds());
    }

    /// Reads captured output from an absolute byte position, while the run is active and after.
    ///
    /// # Errors
    /// When spilled output cannot be read back.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec, Stream};
    ///
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["echo", "hello"]))?;
    /// run.wait_blocking();
    /// let first = run.output(Stream::Stdout, 0, 3)?;
    /// assert_eq!((first.bytes.as_slice(), first.next_cursor), (&b"hel"[..], 3));
    /// assert_eq!(run.output(Stream::Stdout, first.next_cursor, 100)?.bytes, b"lo\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn output(&self, stream: Stream, cursor: u64, most: usize) -> Result<Chunk, Error> {
        read_output(&self.spools, stream, cursor, most)
    }

    /// Bytes at the end of a stream that [`Run::remark_of`] inspects.
    pub const REMARKED_OUTPUT: usize = remarks::MAX_SEARCHED_BYTES;

    /// The remark that the end of a stream gives reason for, if the stream is not captured and the
    /// engine does not see it.
    pub fn remark_of(&self, output: &[u8]) -> Option<Remark> {
        remarks::of_output(&self.running, output)
    }

    /// The captured output alone, which does not keep the Outcome in memory.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec, Stream};
    ///
    /// let engine = Engine::new()?;
    /// let run = engine.start(Spec::command(["echo", "hello"]))?;
    /// run.wait_blocking();
    /// let output = run.captured_output();
    /// drop(run);
    /// assert_eq!(output.read(Stream::Stdout, 0, 100)?.bytes, b"hello\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn captured_output(&self) -> RunOutput {
        RunOutput { spools: self.spools.clone() }
    }

    pub(super) fn pipes(&self) -> MutexGuard<'_, Pipes> {
        // Plain options; whole whatever happened.
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.inner.is_a_copy() {
            // The run is another process's, and a lock that a thread held at the fork is held here
            // for good.
            std::mem::forget((self.inner.clone(), self.running.clone()));
            return;
        }
        self.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner).close(self.scope);
    }
}
