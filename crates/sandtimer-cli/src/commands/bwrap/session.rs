//! From a command that has begun to an exit code: passes signals and, where it is limited, output
//! on.

use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandtimer::Run;
use sandtimer::engine::{SettledFuture, Stream};
use sandtimer::model::{LimitKind, Outcome, Source};
use sandtimer_bwrap::{BwrapFailure, GuardEvent};
use sandtimer_os::clock::monotonic_nanoseconds;

use super::request::{BwrapRequest, CommandHandles, ExitDisposition};
use crate::commands::run::exit::{exit_code, is_own_end};
use crate::passthrough::{Flow, Pump, PumpOwner, PumpState, Sink};
use crate::render;
use crate::signals::{self, ReceivedSignal};
use crate::waker::EventWaker;

/// How long a reader may take nothing, once the command has ended.
const DELIVERY_TIMEOUT: u64 = 5_000_000_000;

/// EndReason this process ended the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndReason {
    Signal(u8),
    ParentExited,
}

/// A command and what it is watched by.
pub(super) struct Session {
    run: Arc<Run>,
    wait: SettledFuture,
    request: BwrapRequest,
    handles: CommandHandles,
    wake: EventWaker,
    dead: EventWaker,
    pumps: Vec<Pump>,
    why: Option<EndReason>,
    /// The terminal has interrupted the command and this process.
    is_interrupted: bool,
}

impl Session {
    pub(super) fn new(
        run: Run,
        request: BwrapRequest,
        handles: CommandHandles,
    ) -> Result<Self, BwrapFailure> {
        let new_waker = || {
            EventWaker::new().map_err(|error| BwrapFailure::because("cannot make an event descriptor", error))
        };
        let (wake, dead) = (new_waker()?, new_waker()?);
        let wait = run.settled();
        let mut session = Session {
            run: Arc::new(run),
            wait,
            request,
            handles,
            wake,
            dead,
            pumps: Vec::new(),
            why: None,
            is_interrupted: false,
        };
        for (stream, sink) in [(Stream::Stdout, Sink::Stdout), (Stream::Stderr, Sink::Stderr)] {
            if let Some(from) = session.run.take_output(stream) {
                session.pump(sink, from)?;
            }
        }
        Ok(session)
    }

    fn pump(&mut self, sink: Sink, from: OwnedFd) -> Result<(), BwrapFailure> {
        let owner =
            PumpOwner { wake: self.wake.clone(), dead: self.dead.clone(), run: Arc::downgrade(&self.run) };
        let effect = self.run.effective().get(LimitKind::Output);
        let limit = effect.filter(|effect| effect.source != Source::Builtin).map(|effect| effect.value);
        let flow = Flow::Stream { from, limit, is_watched: sink == Sink::Stderr };
        let pump = Pump::start(sink, flow, &owner)
            .map_err(|error| BwrapFailure::because("cannot start a thread", error))?;
        self.pumps.push(pump);
        Ok(())
    }

    /// Serves the command to its end.
    pub(super) fn conduct(mut self) -> Result<ExitDisposition, BwrapFailure> {
        let outcome = self.wait();
        self.dead.notify();
        self.deliver();
        let events = self.handles.guard.events();
        let is_executed = events.contains(&GuardEvent::Started) && !events.contains(&GuardEvent::NotExecuted);
        let code = match self.why {
            Some(EndReason::Signal(number)) if !is_own_end(&outcome) => 128 + number,
            Some(EndReason::ParentExited) if !is_own_end(&outcome) => 128 + SIGKILL,
            _ => exit_code(&outcome),
        };
        self.explain(&outcome);
        self.handles.status.report_end(code, is_executed, Some(&outcome));
        // A shell that waits for this process ends its loop only if the interrupt has ended both.
        let is_interrupted = self.is_interrupted && outcome.signal.as_deref() == Some("SIGINT");
        let signal = match self.why {
            Some(EndReason::Signal(number)) if !is_own_end(&outcome) => Some(number),
            _ => is_interrupted.then_some(SIGINT),
        };
        Ok(ExitDisposition { code, signal })
    }

    fn wait(&mut self) -> Arc<Outcome> {
        let waker = Waker::from(Arc::new(self.wake.clone()));
        loop {
            // Silenced before it is inspected: what rings later wakes the next wait.
            self.wake.drain();
            if let Poll::Ready(outcome) = Pin::new(&mut self.wait).poll(&mut Context::from_waker(&waker)) {
                return outcome;
            }
            let is_parent_gone = {
                let parent = self.handles.parent.as_ref().filter(|_| self.why.is_none());
                let mut fds = vec![
                    PollFd::new(&self.wake, PollFlags::IN),
                    PollFd::new(&self.handles.signals, PollFlags::IN),
                ];
                fds.extend(parent.map(|parent| PollFd::new(parent, PollFlags::IN)));
                // An interrupted wait ends early, and everything is inspected again.
                let _ = poll(&mut fds, None);
                fds.get(2).is_some_and(|parent| !parent.revents().is_empty())
            };
            if is_parent_gone {
                self.why = Some(EndReason::ParentExited);
                self.run.cancel("the process that started it has ended (--die-with-parent)");
            }
            self.handle_signals();
        }
    }

    fn handle_signals(&mut self) {
        while let Some(arrived) = self.handles.signals.next() {
            match arrived {
                // The command is in the group that the terminal interrupts, and decides what to do.
                ReceivedSignal::End(ending)
                    if ending.is_interactive_interrupt() && !self.request.new_session =>
                {
                    self.is_interrupted = true;
                }
                ReceivedSignal::End(ending) => {
                    self.why.get_or_insert(EndReason::Signal(ending.exit_code() - 128));
                    self.run.cancel(ending.reason());
                }
                // The terminal has stopped the command as well.
                ReceivedSignal::Stopped => signals::stop(),
                ReceivedSignal::Resized | ReceivedSignal::Continued => {}
            }
        }
    }

    /// Waits until the output is delivered, as long as its reader takes some.
    fn deliver(&mut self) {
        let mut moved = (0, monotonic_nanoseconds());
        while self.pumps.iter().any(|pump| pump.state() == PumpState::Running) {
            self.wake.drain();
            let now = monotonic_nanoseconds();
            let total: u64 = self.pumps.iter().map(|pump| pump.delivered() + pump.dropped()).sum();
            if total > moved.0 {
                moved = (total, now);
            }
            if now - moved.1 > DELIVERY_TIMEOUT
                || self.pumps.iter().all(|pump| pump.state() != PumpState::Running)
            {
                return;
            }
            let pause = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let _ = poll(&mut [PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)], Some(&pause));
        }
    }

    /// One line on stderr for a limit that fired, and for one that cannot be held.
    fn explain(&self, outcome: &Outcome) {
        let mid_line = self.pumps.iter().any(Pump::is_mid_line);
        if let Some(error) = &outcome.error {
            render::report_error(error["message"].as_str().unwrap_or("the command could not be run"));
        } else if let Some(verdict) = outcome.verdict.as_ref().filter(|verdict| verdict.kind.is_some()) {
            let ceiling = verdict.kind.filter(|_| verdict.source == Source::Ceiling);
            render::verdict(
                verdict,
                ceiling.and_then(|kind| self.request.config.ceiling_file(kind)),
                mid_line,
            );
        }
        for (kind, layer) in [(LimitKind::Memory, "memory limit"), (LimitKind::Processes, "process limit")] {
            let is_chosen = self.request.config.is_chosen(kind);
            for degraded in outcome.isolation.degraded.iter().filter(|one| is_chosen && one.layer == layer) {
                render::note(&format!("{layer}: {}", degraded.reason));
            }
        }
        for pump in self.pumps.iter().filter(|pump| pump.dropped() > 0) {
            let name = pump.sink.name();
            render::note(&format!(
                "{name} was cut at the output limit; {} bytes were dropped",
                pump.dropped()
            ));
        }
    }
}

const SIGINT: u8 = 2;
const SIGKILL: u8 = 9;
