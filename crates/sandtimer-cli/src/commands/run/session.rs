//! From a run that has begun to an exit code: passes its streams on, ends it on request, and
//! reports why it ended.
//!
//! This thread never writes to stdout and never waits for a thread that does: the reader of stdout
//! may have stopped. The verdict's line and the exit code come nevertheless.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use sandtimer::Run;
use sandtimer::engine::{SettledFuture, Stream, WarningFuture};
use sandtimer::model::{Ending, LimitKind, Outcome, Remark, RemarkKind, Source};
use sandtimer_os::clock::monotonic_nanoseconds;

use super::CommandFailure;
use super::exit::{exit_code, is_own_end};
use crate::args::{EncodingErrors, OnOutputLimit, Settings};
use crate::config::{Config, written};
use crate::input::{self, Feed, ReadFile};
use crate::passthrough::{Flow, Pump, PumpOwner, PumpState, Sink};
use crate::render;
use crate::signals::{self, InterruptTarget, ReceivedSignal, Signals, end_as_interrupted};
use crate::terminal::{Interrupts, KeyRequests, RawMode, copy_size, is_foreground};
use crate::waker::EventWaker;

/// How long a reader may take nothing, once a limit or a cancel has ended the run.
const DELIVERY_TIMEOUT: u64 = 5_000_000_000;
/// How long the verdict's line waits for the last output, so that it comes after it.
const VERDICT_OUTPUT_TIMEOUT: u64 = 20_000_000;
/// How long Ctrl-C waits for the command's start if the engine has not noticed it yet, in
/// nanoseconds.
const START_TIMEOUT: u64 = 300_000_000;
/// The exit code of a command that wrote to a closed pipe.
const BROKEN_PIPE: u8 = 128 + 13;

/// The ends of a run's streams that are this process's to serve.
#[derive(Debug, Default)]
pub(super) struct ServedStreams {
    pub(super) input: Feed,
    /// stdout and stderr come by one pipe.
    pub(super) are_one: bool,
}

/// The exit code of a command that Ctrl-C ended.
const INTERRUPTED: u8 = 128 + 2;
/// Nanoseconds within which a command ends that the interrupt key has ended.
const MAX_INTERRUPT_DELAY: u64 = 2_000_000_000;

/// How long the thread that reads what is typed waits for raw mode after the run came back to the
/// foreground.
const TAKE_TERMINAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Why this process ended the run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum EndCause {
    Signal(u8),
    BrokenPipe,
    OutputLimit,
    /// Stdout cannot be written; the pump knows why.
    Undeliverable,
}

/// One run from begin to end.
pub(super) struct Session<'a> {
    run: Arc<Run>,
    wait: SettledFuture,
    /// Until the first warning: one line for each run is enough.
    warned: Option<WarningFuture>,
    signals: Signals,
    settings: &'a Settings,
    config: &'a Config,
    wake: EventWaker,
    dead: EventWaker,
    pumps: Vec<Pump>,
    terminal: Option<OwnedFd>,
    raw: Option<RawMode>,
    is_raw: Arc<AtomicBool>,
    /// How often an end was asked for on the job's terminal.
    asked: Arc<AtomicUsize>,
    /// A shell has brought this process to the foreground again, without a signal: it was running.
    /// The thread that reads what is typed detects it, and waits until the other end of what it
    /// sends here is dropped: what is read before the terminal is in raw mode is shown twice.
    foreground: (Sender<SyncSender<()>>, Receiver<SyncSender<()>>),
    /// Ctrl-Z was typed there.
    is_stop_requested: Arc<AtomicBool>,
    why: Option<EndCause>,
    /// Ctrl-C was pressed, and is why it ends.
    is_interrupted: bool,
    /// Ctrl-C was pressed shortly before it ended, on its terminal or on ours.
    was_interrupted: bool,
    /// When the interrupt key was typed last on the job's terminal, in monotonic nanoseconds.
    interrupt_typed_at: Arc<AtomicU64>,
    outcome: Option<Arc<Outcome>>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        run: Run,
        signals: Signals,
        settings: &'a Settings,
        config: &'a Config,
    ) -> Result<Self, CommandFailure> {
        let new_waker =
            || EventWaker::new().map_err(CommandFailure::system("cannot make an event descriptor"));
        let (wake, dead) = (new_waker()?, new_waker()?);
        // With its proof: the process that would settle it later ends with this one.
        let (wait, warned) = (run.settled(), run.warned());
        Ok(Session {
            run: Arc::new(run),
            wait,
            warned: (!settings.json).then_some(warned),
            signals,
            settings,
            config,
            wake,
            dead,
            pumps: Vec::new(),
            terminal: None,
            raw: None,
            is_raw: Arc::default(),
            asked: Arc::default(),
            foreground: channel(),
            is_stop_requested: Arc::default(),
            why: None,
            is_interrupted: false,
            was_interrupted: false,
            interrupt_typed_at: Arc::default(),
            outcome: None,
        })
    }

    /// Serves the run to its end.
    pub(super) fn conduct(mut self, mut streams: ServedStreams) -> Result<ExitCode, CommandFailure> {
        let read = self.feed(std::mem::take(&mut streams.input))?;
        self.attach(streams.are_one)?;
        let outcome = self.wait_for_outcome();
        let ended_at = monotonic_nanoseconds();
        self.dead.notify();
        if let Some(file) = read {
            file.hand_back();
        }
        self.outcome = Some(outcome.clone());
        if self.settings.json {
            let json = match self.settings.errors {
                EncodingErrors::Strict => render::outcome_json(&outcome),
                EncodingErrors::Replace => {
                    let mut outcome = Outcome::clone(&outcome);
                    outcome.replace_invalid_utf8();
                    render::outcome_json(&outcome)
                }
            };
            self.pump(Sink::Stdout, Flow::Message(json))?;
        }
        self.deliver(Some(VERDICT_OUTPUT_TIMEOUT), VERDICT_OUTPUT_TIMEOUT);
        // On a terminal of its own the key has interrupted the command itself, unless that was long
        // before.
        let since = ended_at.saturating_sub(self.interrupt_typed_at.load(Ordering::Relaxed));
        self.was_interrupted = self.is_interrupted || since < MAX_INTERRUPT_DELAY;
        // After the job's output, which is written for a raw terminal, and before ours, which is
        // not.
        self.raw = None;
        self.explain(&outcome);
        let patience = (!is_own_end(&outcome)).then_some(DELIVERY_TIMEOUT);
        let delivered = self.deliver(None, patience.unwrap_or(u64::MAX));
        self.report_output(delivered);
        let code = self.exit_code(&outcome);
        let is_own = self.was_interrupted && outcome.signal.as_deref() == Some("SIGINT");
        if code == INTERRUPTED && (self.is_interrupted || is_own) {
            let passed_on = self.run.has_terminal();
            end_as_interrupted(if passed_on { InterruptTarget::Command } else { InterruptTarget::Group });
        }
        Ok(ExitCode::from(code))
    }

    /// Begins to pass stdin on; the file whose place is to be handed back, if it is one.
    fn feed(&mut self, input: Feed) -> Result<Option<ReadFile>, CommandFailure> {
        let thread = CommandFailure::system("cannot start a thread");
        match (self.run.take_stdin(), input) {
            (Some(master), _) if self.run.has_terminal() => {
                self.feed_terminal(master)?;
                Ok(None)
            }
            (Some(write), Feed::Stream) => {
                input::feed_stream(write, self.dead.clone()).map_err(thread)?;
                Ok(None)
            }
            (_, Feed::File(file)) => {
                let fed = file.feed(self.dead.clone()).map_err(thread)?;
                Ok(Some(ReadFile::Fed(fed)))
            }
            (_, Feed::Inherited(position)) => Ok(position.map(ReadFile::ByRun)),
            (_, Feed::Stream | Feed::Nothing) => Ok(None),
        }
    }

    /// Passes on what is typed.
    fn feed_terminal(&mut self, master: OwnedFd) -> Result<(), CommandFailure> {
        let copy = master.try_clone().map_err(CommandFailure::system("cannot copy the terminal"))?;
        self.raw = Some(
            RawMode::enter(self.is_raw.clone())
                .map_err(CommandFailure::system("cannot set the terminal to raw mode"))?,
        );
        let (asked, is_stop_requested, wake) =
            (self.asked.clone(), self.is_stop_requested.clone(), self.wake.clone());
        let mut interrupts = Interrupts::default();
        self.interrupt_typed_at = interrupts.typed_at();
        let on_typed = move |master: &OwnedFd, bytes: &[u8]| {
            let requests = interrupts.inspect_typed(master, bytes, monotonic_nanoseconds());
            if requests != KeyRequests::default() {
                asked.fetch_add(requests.ends, Ordering::Relaxed);
                is_stop_requested.fetch_or(requests.stops, Ordering::Relaxed);
                wake.notify();
            }
        };
        let (is_raw, foreground, wake) = (self.is_raw.clone(), self.foreground.0.clone(), self.wake.clone());
        let before_reading = move || {
            let (done, wait) = sync_channel(0);
            // Cannot be sent if the run has ended.
            let waits = !is_raw.load(Ordering::Relaxed) && foreground.send(done).is_ok();
            if waits {
                wake.notify();
                let _ = wait.recv_timeout(TAKE_TERMINAL_TIMEOUT);
            }
            waits
        };
        input::feed_terminal(copy, self.dead.clone(), on_typed, before_reading)
            .map_err(CommandFailure::system("cannot start a thread"))?;
        self.terminal = Some(master);
        Ok(())
    }

    /// Begins to pass output on.
    fn attach(&mut self, are_one: bool) -> Result<(), CommandFailure> {
        let limit = self.output_limit();
        for (stream, sink) in [(Stream::Stdout, Sink::Stdout), (Stream::Stderr, Sink::Stderr)] {
            if let Some(from) = self.run.take_output(stream) {
                let is_watched = are_one || sink == Sink::Stderr;
                self.pump(sink, Flow::Stream { from, limit, is_watched })?;
            }
        }
        Ok(())
    }

    /// The limit of output that is passed through: a chosen limit, not the built-in one for
    /// captured output.
    fn output_limit(&self) -> Option<u64> {
        let effect = self.run.effective().get(LimitKind::Output)?;
        (effect.source != Source::Builtin).then_some(effect.value)
    }

    fn pump(&mut self, sink: Sink, flow: Flow) -> Result<(), CommandFailure> {
        let owner =
            PumpOwner { wake: self.wake.clone(), dead: self.dead.clone(), run: Arc::downgrade(&self.run) };
        let pump =
            Pump::start(sink, flow, &owner).map_err(CommandFailure::system("cannot start a thread"))?;
        self.pumps.push(pump);
        Ok(())
    }

    fn wait_for_outcome(&mut self) -> Arc<Outcome> {
        let waker = Waker::from(Arc::new(self.wake.clone()));
        loop {
            // Silenced before the look: a ring after the look wakes the next wait.
            self.wake.drain();
            if let Poll::Ready(outcome) = Pin::new(&mut self.wait).poll(&mut Context::from_waker(&waker)) {
                return outcome;
            }
            if let Some(warned) = &mut self.warned
                && let Poll::Ready(warning) = Pin::new(warned).poll(&mut Context::from_waker(&waker))
            {
                self.warned = None;
                if let Some(warning) = warning {
                    render::warning(&warning.to_string(), self.raw.is_some());
                }
            }
            self.check_pumps();
            if self.is_stop_requested.swap(false, Ordering::Relaxed) {
                // Includes this process, which handles it as a SIGTSTP from a shell.
                let _ = rustix::process::kill_current_process_group(Signal::TSTP);
            }
            while let Ok(_done) = self.foreground.1.try_recv() {
                self.take_terminal();
            }
            for _ in 0..self.asked.swap(0, Ordering::Relaxed) {
                self.why.get_or_insert(EndCause::Signal(INTERRUPTED));
                self.is_interrupted = true;
                self.run.cancel("interrupted by Ctrl-C, again and again");
            }
            if let Some(code) = self.listen(None) {
                if code.is_interactive_interrupt() && self.pass_interrupt_on() {
                    continue;
                }
                let reason = code.reason();
                self.why.get_or_insert(EndCause::Signal(code.exit_code()));
                self.is_interrupted |= code.is_interactive_interrupt();
                // A second one does not wait for the grace; the engine knows by itself that it is
                // the second.
                self.run.cancel(reason);
            }
        }
    }

    /// The first Ctrl-C is the command's: as on a terminal that it shares, it may have something to
    /// do. False where it is not to have it.
    fn pass_interrupt_on(&mut self) -> bool {
        if self.is_interrupted || self.why.is_some() || !self.has_begun() {
            return false;
        }
        self.is_interrupted = true;
        self.run.signal(Signal::INT.as_raw()).is_ok()
    }

    /// Whether the command has begun. What it has written may be shown here before the engine has
    /// noticed that.
    fn has_begun(&self) -> bool {
        let waker = Waker::from(Arc::new(self.wake.clone()));
        let mut started = self.run.started();
        let until = monotonic_nanoseconds() + START_TIMEOUT;
        loop {
            if Pin::new(&mut started).poll(&mut Context::from_waker(&waker)).is_ready() {
                return true;
            }
            let left = until.saturating_sub(monotonic_nanoseconds());
            if left == 0 {
                return false;
            }
            // The caller's loop checks everything else that may have notified.
            let _ = poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&timespec(left)));
            self.wake.drain();
        }
    }

    /// Stops the run and this process, until a shell continues both. The limits of the run are in
    /// force all the while.
    fn stop(&mut self) {
        self.raw = None;
        // A run that has ended has nothing to stop.
        let _ = self.run.signal(Signal::STOP.as_raw());
        signals::stop();
        let _ = self.run.signal(Signal::CONT.as_raw());
        self.take_terminal();
    }

    /// Sets our terminal for the job's again, if it is ours now.
    fn take_terminal(&mut self) {
        if let Some(master) = &self.terminal
            && is_foreground()
        {
            // First as the shell has left it.
            self.raw = None;
            self.raw = RawMode::enter(self.is_raw.clone()).ok();
            copy_size(master);
        }
    }

    /// Waits for a ring, a signal or the timeout; the signal, if it asks for an end.
    fn listen(&mut self, timeout: Option<u64>) -> Option<crate::signals::EndRequest> {
        let timeout = timeout.map(timespec);
        let mut watched = [PollFd::new(&self.wake, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        // An interrupted wait is one that ended early; every caller looks again.
        let _ = poll(&mut watched, timeout.as_ref());
        while let Some(arrived) = self.signals.next() {
            match (arrived, &self.terminal) {
                (ReceivedSignal::End(ending), _) => return Some(ending),
                (ReceivedSignal::Resized, Some(master)) => copy_size(master),
                (ReceivedSignal::Resized, None) => {}
                (ReceivedSignal::Stopped, _) => self.stop(),
                (ReceivedSignal::Continued, _) => self.take_terminal(),
            }
        }
        None
    }

    /// Ends the run when its output cannot be passed on.
    fn check_pumps(&mut self) {
        if self.why.is_some() {
            return;
        }
        let ends = self.settings.on_output_limit == OnOutputLimit::End;
        let why = self.pumps.iter().find_map(|pump| match (pump.sink, pump.state()) {
            (Sink::Stdout, PumpState::Broken) => {
                Some((EndCause::BrokenPipe, "its stdout has no reader".to_owned()))
            }
            (Sink::Stdout, PumpState::Failed(errno)) => {
                Some((EndCause::Undeliverable, format!("its stdout cannot be passed on: {errno}")))
            }
            _ if ends && pump.dropped() > 0 => {
                let limit = written(LimitKind::Output.into(), self.output_limit());
                Some((
                    EndCause::OutputLimit,
                    format!("its {} passed the output limit of {limit}", pump.sink.name()),
                ))
            }
            _ => None,
        });
        if let Some((why, reason)) = why {
            self.why = Some(why);
            self.run.cancel(reason);
        }
    }

    /// Waits until everything is delivered, at most `most` in all, and without progress at most
    /// `idle` nanoseconds. A signal ends the wait.
    fn deliver(&mut self, most: Option<u64>, idle: u64) -> bool {
        let begun = monotonic_nanoseconds();
        let mut moved = (0, begun);
        loop {
            self.wake.drain();
            if self.pumps.iter().all(|pump| pump.state() != PumpState::Running) {
                return true;
            }
            let now = monotonic_nanoseconds();
            let total = self.pumps.iter().map(|pump| pump.delivered() + pump.dropped()).sum();
            if total > moved.0 {
                moved = (total, now);
            }
            let mut left = idle.saturating_sub(now - moved.1);
            if let Some(most) = most {
                left = left.min(most.saturating_sub(now - begun));
            }
            if left == 0 {
                return false;
            }
            // Progress does not notify: it is polled at least ten times within the patience.
            let pause = if idle == u64::MAX { None } else { Some(left.min(idle / 10)) };
            if let Some(ending) = self.listen(pause) {
                if self.outcome.as_deref().is_some_and(is_own_end) {
                    self.why.get_or_insert(EndCause::Signal(ending.exit_code()));
                }
                return false;
            }
        }
    }

    /// Prints on stderr what ended the run, if not the command itself.
    fn explain(&self, outcome: &Outcome) {
        if self.settings.json {
            return;
        }
        let mid_line = self.pumps.iter().any(Pump::is_mid_line);
        for note in self.run.missing() {
            render::note(note);
        }
        if let Some(error) = &outcome.error {
            render::report_error(error["message"].as_str().unwrap_or("the run could not continue"));
        } else if let Some(verdict) = &outcome.verdict
            && !matches!(self.why, Some(EndCause::BrokenPipe | EndCause::Undeliverable))
        {
            let ceiling = verdict.kind.filter(|_| verdict.source == Source::Ceiling);
            render::verdict(verdict, ceiling.and_then(|kind| self.config.ceiling_file(kind)), mid_line);
        }
        let is_network = |remark: &Remark| remark.kind == RemarkKind::NoNetwork;
        let passed = self.pumps.iter().find_map(|pump| self.run.remark_of(&pump.copied()));
        let passed = passed.filter(|_| !outcome.remarks.iter().any(is_network));
        // Processes that Ctrl-C has ended are not leftovers.
        let is_own_doing =
            |remark: &&Remark| self.was_interrupted && remark.kind == RemarkKind::KilledLeftovers;
        for remark in outcome.remarks.iter().chain(&passed).filter(|remark| !is_own_doing(remark)) {
            render::note(&remark.message);
        }
        if self.settings.verbose {
            self.report_settings(outcome);
        }
        let bounded = |kind| self.run.effective().get(kind).is_some();
        if self.settings.warn.is_some() && !bounded(LimitKind::Wall) && !bounded(LimitKind::Cpu) {
            render::note("--warn: there was no wall or cpu limit to warn of");
        }
    }

    /// Prints on stderr the run's limits, files and isolation layers.
    fn report_settings(&self, outcome: &Outcome) {
        let limits = self.config.applied(self.run.effective(), self.settings.json);
        render::note(&format!("limits: {}", limits.join(", ")));
        let files: Vec<_> = self.config.files().map(|path| path.display().to_string()).collect();
        let files = if files.is_empty() { "no file".to_owned() } else { files.join(", ") };
        render::note(&format!("configuration: {files}"));
        for note in self.run.hidden() {
            render::note(note);
        }
        render::isolation(outcome);
    }

    /// Prints on stderr which output did not arrive.
    fn report_output(&self, delivered: bool) {
        for pump in &self.pumps {
            let name = pump.sink.name();
            if pump.dropped() > 0 {
                let limit = written(LimitKind::Output.into(), self.output_limit());
                render::note(&format!(
                    "{name} was cut at the output limit of {limit}; {} bytes after it were dropped",
                    pump.dropped()
                ));
            }
            match pump.state() {
                PumpState::Running if !delivered => {
                    render::note(&format!("{name} was not delivered to its end: its reader takes nothing"));
                }
                PumpState::Failed(errno) if pump.sink == Sink::Stdout => {
                    render::report_error(&format!("stdout cannot be written: {errno}"));
                }
                _ => {}
            }
        }
    }

    fn exit_code(&self, outcome: &Outcome) -> u8 {
        let stdout = self.pumps.iter().find(|pump| pump.sink == Sink::Stdout).map(Pump::state);
        let own = exit_code(outcome);
        match (&self.why, stdout) {
            (Some(EndCause::Signal(code)), _)
                if outcome.ending == Ending::Cancelled || is_own_end(outcome) =>
            {
                *code
            }
            (Some(EndCause::OutputLimit), _) if outcome.ending == Ending::Cancelled => 124,
            (_, Some(PumpState::Broken)) if outcome.ok || outcome.ending == Ending::Cancelled => BROKEN_PIPE,
            (_, Some(PumpState::Failed(_))) if outcome.ok || outcome.ending == Ending::Cancelled => 125,
            _ => own,
        }
    }
}

fn timespec(nanoseconds: u64) -> Timespec {
    Timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as i64 }
}
