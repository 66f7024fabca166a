//! Calls: jobs for the children of a zygote, of the calling process, or of an interpreter of their
//! own.
//!
//! ```text
//! caller ── take a child ─▶ give it the job ─▶ wait for answer or verdict ─▶ take the answer (seals the deadline's cell)
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::{thread, zygote as os};

use super::answered_jobs::AnsweredJob;
use super::children::{AssignedRun, Child, ChildJob, Parent};
use super::error::Error;
use super::opened;
use super::parts::Parts;
use super::pre_warmer::{CANCELLATION_CHECK_INTERVAL, ChildPool, ChildPoolState, Stats};
use super::start;
use super::which_processor::ActiveWork;
use super::zygotes::{self, Zygote};
use super::{Engine, Inner, Require, Run, Spec};
use crate::limits::Limits;
use crate::model::{Ending, LimitKind, Outcome, Path, Source};
use crate::scope::ScopeId;
use crate::supervise::at_once::RunHandoff;
use crate::supervise::commands::EnforcerCommand;
use crate::supervise::run::{ANSWERED_RAISED, ANSWERED_VALUE, SharedRun};
use crate::supervise::waiting::RunNotifier;
use crate::zygote::{AnswerKind, AnswerPart, CallAnswer, MalformedAnswer, Profile, REPORT};

/// The launcher and the zygote do their part for one child at a time, so that more threads would
/// wait for them.
const MAX_PRE_WARMERS: usize = 8;
/// How many children in a row may be unusable for a call: a cause that is common to all of them
/// would last for ever.
const MAX_LOST_CHILDREN: u32 = 16;
/// Bytes of a result if no scope limits them.
const DEFAULT_RESULT: u64 = 1 << 30;

/// What to call, and under which limits.
#[derive(Debug, Default)]
pub struct CallSpec {
    /// The job, as the program of the children reads it; at most [`CallSpec::MAX_JOB_BYTES`].
    pub job: Vec<u8>,
    /// Sealed memory files for it, which the job describes.
    pub files: Vec<OwnedFd>,
    /// A whole program, which may end without an answer.
    pub program: bool,
    /// The call's own limits; they take precedence over `defaults`.
    pub limits: Limits,
    /// Limits from further out, by source.
    pub defaults: Vec<(Source, Limits)>,
    /// The scope that the call belongs to; none by default.
    pub parent: Option<ScopeId>,
    /// The minimum of isolation; with less the call does not start.
    pub require: Require,
    /// Ends the call at its output limit; by default it continues and further output is dropped.
    pub end_on_output_limit: bool,
    /// As [`Spec::warn`] and [`Spec::warn_signal`].
    pub warn: Option<Duration>,
    /// A signal that its processes are sent that long before the limit; none by default.
    pub warn_signal: Option<i32>,
}

impl CallSpec {
    /// Bytes of a packet besides the limits that it carries.
    pub const MAX_JOB_BYTES: usize = 60 * 1024;
}

/// A pool of children of one profile. Dropping it ends them; active calls continue.
#[derive(Debug)]
pub struct Calls {
    shared: Arc<ChildPool>,
    pre_warmers: Vec<JoinHandle<()>>,
}

impl Engine {
    /// A pool of `size` children of this profile, being filled.
    ///
    /// # Errors
    /// When the system refuses a thread. The first call reports what is wrong with the profile.
    pub fn calls(&self, profile: Profile, size: usize) -> Result<Calls, Error> {
        let state = ChildPoolState { wanted: size, ..ChildPoolState::default() };
        let closing = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::System { doing: "cannot make a descriptor", source: error.into() })?;
        let shared = Arc::new(ChildPool {
            inner: self.inner.clone(),
            profile,
            size,
            state: Mutex::new(state),
            changed: Condvar::new(),
            lacking: Condvar::new(),
            closing,
            source: Mutex::default(),
            calls_begun: AtomicUsize::new(0),
            failed_starts: AtomicU64::new(0),
            idle_jails: Arc::default(),
        });
        let mut calls = Calls { shared, pre_warmers: Vec::new() };
        for _ in 0..(sandtimer_os::probe::processors() + 2).min(MAX_PRE_WARMERS) {
            let own = calls.shared.clone();
            let pre_warm = move || {
                thread::block_signals();
                own.pre_warm();
            };
            let pre_warmer = std::thread::Builder::new().name("st-refiller".to_owned()).stack_size(256 << 10);
            calls
                .pre_warmers
                .push(pre_warmer.spawn(pre_warm).map_err(Error::system("cannot start a thread"))?);
        }
        Ok(calls)
    }
}

impl Calls {
    /// The pool itself.
    pub(super) fn shared(&self) -> &Arc<ChildPool> {
        &self.shared
    }

    /// Gives a job to a child. `is_cancelled` is asked now and then should there be none ready.
    ///
    /// # Errors
    /// Only what stops Sandtimer before a run exists; see [`Error`].
    pub fn call(&self, call: CallSpec, is_cancelled: &mut dyn FnMut() -> bool) -> Result<CallHandle, Error> {
        let shared = &self.shared;
        let take = |again: bool| {
            if again {
                shared.lock().stats.lost += 1;
            }
            let (child, waited) = shared.take(is_cancelled)?;
            Ok((child, if waited { Path::Cold } else { Path::Parked }))
        };
        let mut begun = begin(&shared.inner, &shared.profile, call, take)?;
        begun.shared = Arc::downgrade(shared);
        shared.call_begun();
        Ok(begun)
    }

    /// Waits until `count` children are ready, growing the pool if need be.
    ///
    /// # Errors
    /// Why none can be made ready.
    pub fn warm(&self, count: usize, is_cancelled: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        let mut state = self.shared.lock();
        state.wanted = state.wanted.max(count);
        state.failure = None;
        state.waiting += 1;
        self.shared.lacking.notify_one();
        let result = loop {
            if state.closed {
                break Err(Error::Closed);
            }
            if state.ready.len() >= count {
                break Ok(());
            }
            if let Some((reason, _)) = state.failure.clone() {
                break Err(Error::Interpreter(reason));
            }
            let (woken, _) = self
                .shared
                .changed
                .wait_timeout(state, CANCELLATION_CHECK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            drop(woken);
            let was_cancelled = is_cancelled();
            state = self.shared.lock();
            if was_cancelled {
                break Ok(());
            }
        };
        state.waiting -= 1;
        result
    }

    /// Ends the children and interpreters that are idle or being started, and fails the callers
    /// that wait for one. Active calls continue. [Dropping](Calls) the pool waits for their end.
    pub fn close(&self) {
        if self.shared.inner.is_a_copy() {
            return;
        }
        self.shared.lock().closed = true;
        // Full it is readable as well.
        let _ = rustix::io::write(&self.shared.closing, &1u64.to_ne_bytes());
        self.shared.changed.notify_all();
        self.shared.lacking.notify_all();
    }

    /// Why no child can be made ready, where the last try failed and none is ready.
    pub fn failure(&self) -> Option<String> {
        let state = self.shared.lock();
        state.failure.as_ref().filter(|_| state.ready.is_empty()).map(|(reason, _)| reason.clone())
    }

    /// What the pool has done so far.
    pub fn stats(&self) -> Stats {
        let state = self.shared.lock();
        Stats { ready: state.ready.len(), wanted: state.wanted, ..state.stats.clone() }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if self.shared.inner.is_a_copy() {
            // The children are another process's, and so are the threads.
            std::mem::forget((self.shared.clone(), std::mem::take(&mut self.pre_warmers)));
            return;
        }
        self.close();
        for pre_warmer in self.pre_warmers.drain(..) {
            // A panic there was reported by itself.
            let _ = pre_warmer.join();
        }
        drop(std::mem::take(&mut *self.shared.source()));
    }
}

/// Kills a job whose answer was taken; the enforcer handles the rest. It does not kill it itself
/// where that can be: it is real-time, and would put what dies in the place of the caller.
fn kill_answered_job(inner: &Inner, running: &SharedRun) {
    if !running.kill_answered() {
        inner.enforcer.wake();
    }
}

/// Gives a job to a child that `take` finds; the argument of `take` is whether an earlier child had
/// died while it waited.
fn begin(
    inner: &Arc<Inner>,
    profile: &Profile,
    call: CallSpec,
    mut take: impl FnMut(bool) -> Result<(Child, Path), Error>,
) -> Result<CallHandle, Error> {
    if call.job.len() > CallSpec::MAX_JOB_BYTES {
        return Err(Error::CallTooLong(call.job.len()));
    }
    let builtin = (Source::Builtin, Limits::new().result(DEFAULT_RESULT));
    // Files and environment are the child's already.
    let mut spec = Spec::command([&profile.interpreter]);
    spec.limits = call.limits;
    spec.defaults = call.defaults.into_iter().chain([builtin]).collect();
    spec.parent = call.parent;
    spec.require = call.require;
    spec.end_on_output_limit = call.end_on_output_limit;
    (spec.warn, spec.warn_signal) = (call.warn, call.warn_signal);
    let files: Vec<_> = call.files.iter().map(AsFd::as_fd).collect();
    let work = ChildJob { bytes: &call.job, files: &files, program: call.program };
    let opened = opened::open(inner, &spec)?;
    let scope = opened.scope;
    let (under_way, is_alone) = ActiveWork::begin(&inner.callers);
    // Before a child is taken: that there is none is not a child's fault.
    inner.spool_directory().inspect_err(|_| opened::close(inner, scope))?;
    let mut lost = 0;
    let sent_job = loop {
        let sent_job = take(lost > 0).and_then(|(mut child, path)| {
            child.check(&spec)?;
            // A child that is not parked may be running on another processor.
            Ok((child.hand_over(&opened, &work, is_alone && path == Path::Parked), child, path))
        });
        match sent_job {
            Ok((Ok(sent_job), child, path)) => break Ok((sent_job, child, path)),
            // It died while it waited: the next one.
            Ok((Err(Error::System { .. }), ..)) if lost < MAX_LOST_CHILDREN => lost += 1,
            Ok((Err(error), ..)) | Err(error) => break Err(error),
        }
    };
    let (sent_job, child, path) = sent_job.inspect_err(|_| opened::close(inner, scope))?;
    let assigned = child.into_run(opened, &spec, work, path, sent_job).ok_or(Error::Closed)?;
    Ok(begun(inner, assigned, scope, under_way))
}

fn begun(inner: &Arc<Inner>, assigned: AssignedRun, scope: ScopeId, under_way: ActiveWork) -> CallHandle {
    let outputs = &assigned.attachment.outputs;
    let spools = [0, 1].map(|index: usize| outputs[index].as_ref().map(|(_, spool)| spool.clone()));
    let handoff = start::watch(inner, assigned.attachment);
    let run = Run { inner: inner.clone(), running: assigned.running, scope, spools, pipes: Mutex::default() };
    CallHandle::of(run, Some((handoff, under_way)))
}

/// A run that gives no answer, to be waited for as calls are.
impl From<Run> for CallHandle {
    fn from(run: Run) -> Self {
        CallHandle::of(run, None)
    }
}

impl Engine {
    /// Calls in an interpreter started for this call alone.
    ///
    /// # Errors
    /// As [`Calls::call`].
    pub fn call_spawned(&self, profile: &Profile, call: CallSpec) -> Result<CallHandle, Error> {
        let inner = &self.inner;
        begin(inner, profile, call, |_| {
            let zygote = Zygote::start(inner, profile, None)?;
            let parent = Parent {
                request_socket: zygote.request_socket(),
                turn: None,
                is_caller: false,
                is_live: false,
                hurried: true,
                stop: None,
            };
            let child = Child::bear(inner, &parent, &zygotes::spec_of(profile))?;
            Ok((child, Path::Spawn))
        })
    }

    /// Calls in a fork of the calling process, which must be serving `orders` already; see
    /// `docs/design/zygotes.md`.
    ///
    /// # Errors
    /// As [`Calls::call`].
    pub fn call_forked(
        &self,
        profile: &Profile,
        request_socket: OwnedFd,
        call: CallSpec,
    ) -> Result<CallHandle, Error> {
        let inner = &self.inner;
        begin(inner, profile, call, |again| {
            if again {
                return Err(Error::Closed);
            }
            let parent = Parent {
                request_socket: request_socket.as_fd(),
                turn: None,
                is_caller: true,
                is_live: false,
                hurried: true,
                stop: None,
            };
            let child = Child::bear(inner, &parent, &zygotes::spec_of(profile))?;
            Ok((child, Path::Fork))
        })
    }
}

/// A call under way. Dropping it does not end it, unless its answer was taken; its limits do.
#[derive(Debug)]
pub struct CallHandle {
    run: Run,
    shared: Weak<ChildPool>,
    /// What the enforcer and the collector were given of it, as long as they have not looked.
    handoff: Option<RunHandoff>,
    parts: Mutex<Parts>,
    /// The enforcer has not been notified yet that the answer was taken.
    accepted: AtomicBool,
    /// Counted as active while a caller may wait for it.
    under_way: Mutex<Option<ActiveWork>>,
}

/// What a call's wait ends with.
#[derive(Debug)]
pub enum CallEvent {
    /// The job answered. It counts once it is [accepted](CallHandle::accept).
    Answer(CallAnswer),
    /// The job has reported progress, and continues: to be waited for again.
    Progress,
    /// It answered with something that is not an answer.
    Malformed(MalformedAnswer),
    /// There is a verdict, or the job ended without an answer.
    Nothing,
}

/// The end of a call, for callers that keep nothing else of it.
#[derive(Debug, Clone)]
pub struct CallCompletion {
    waiting: Arc<RunNotifier>,
    /// Weak: the caller may never ask for the end, so this keeps neither descriptors nor the
    /// engine.
    running: Weak<SharedRun>,
    inner: Weak<Inner>,
    /// The pool in which its answered job may wait for its end.
    shared: Weak<ChildPool>,
}

impl Run {
    /// Its end, for callers that keep nothing else of it.
    pub fn completion(&self) -> CallCompletion {
        CallCompletion::of(self)
    }
}

impl CallCompletion {
    pub(super) fn of(run: &Run) -> Self {
        CallCompletion {
            shared: Weak::new(),
            waiting: run.running.waiting.clone(),
            running: Arc::downgrade(&run.running),
            inner: Arc::downgrade(&run.inner),
        }
    }

    fn waiting(&self) -> &RunNotifier {
        // The caller waits for the end of an answered job, so its end is no longer deferred.
        if !self.waiting.wait_for(Duration::ZERO, true, false)
            && let (Some(inner), Some(running)) = (self.inner.upgrade(), self.running.upgrade())
            && !inner.is_a_copy()
            && running.job.as_ref().is_some_and(|job| job.answer().is_some())
        {
            if let Some(shared) = self.shared.upgrade() {
                shared.hand_over_answered();
            }
            kill_answered_job(&inner, &running);
            inner.enforcer.wake();
        }
        &self.waiting
    }

    /// Waits for the Outcome; its proof of death may still be pending.
    pub fn wait(&self) -> Arc<Outcome> {
        self.waiting().wait_outcome(false)
    }

    /// Whether the Outcome, with its final proof where `settled`, is there within this time.
    pub fn is_there_within(&self, most: Duration, settled: bool) -> bool {
        self.waiting().wait_for(most, true, settled)
    }

    /// Waits for the Outcome with its final proof.
    pub fn settled(&self) -> Arc<Outcome> {
        self.waiting().wait_outcome(true)
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        if self.run.inner.is_a_copy() {
            // The run is another process's, and a lock that a thread held at the fork is held here
            // for good.
            std::mem::forget(self.handoff.take());
            return;
        }
        self.end_answered();
        if let Some(shared) = self.shared.upgrade() {
            shared.call_dropped();
        }
    }
}

impl CallHandle {
    fn of(run: Run, begun: Option<(RunHandoff, ActiveWork)>) -> Self {
        let (handoff, under_way) = begun.unzip();
        let (accepted, under_way) = (AtomicBool::new(false), Mutex::new(under_way));
        CallHandle { run, shared: Weak::new(), handoff, parts: Mutex::default(), accepted, under_way }
    }

    /// The run that it is.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Its end, which needs none of its descriptors.
    pub fn completion(&self) -> CallCompletion {
        CallCompletion { shared: self.shared.clone(), ..CallCompletion::of(&self.run) }
    }

    fn job(&self) -> Option<&crate::supervise::run::Job> {
        self.run.running.job.as_ref()
    }

    /// Readable when [`CallHandle::wait`] would not block.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.job().map(|job| job.channel.as_fd())
    }

    /// Waits for the answer, the verdict, or a progress report.
    ///
    /// # Errors
    /// As [`CallHandle::wait_interruptibly`], without its `Interrupted`.
    pub fn wait(&self) -> std::io::Result<CallEvent> {
        self.wait_interruptibly(&mut || false)
    }

    /// As [`CallHandle::wait`]; `is_cancelled` is asked now and then, and whenever a signal
    /// interrupts the wait.
    ///
    /// # Errors
    /// `Interrupted` if `is_cancelled` returns true.
    pub fn wait_interruptibly(&self, is_cancelled: &mut dyn FnMut() -> bool) -> std::io::Result<CallEvent> {
        use std::io::ErrorKind;
        let Some(job) = self.job() else { return Ok(CallEvent::Nothing) };
        let channel = job.channel.as_fd();
        let packet = loop {
            match os::wait_for_packet(channel).and_then(|()| os::whole_packet(channel)) {
                Ok(packet) if !packet.is_empty() => break packet,
                // Another thread may have taken the packet.
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {
                    if is_cancelled() {
                        return Err(ErrorKind::Interrupted.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    return Ok(CallEvent::Malformed(MalformedAnswer("the packet is too long")));
                }
                Ok(_) | Err(_) => return Ok(CallEvent::Nothing),
            }
        };
        if let Some(report) = packet.strip_prefix(REPORT) {
            self.run.running.handle_report(report, monotonic_nanoseconds());
            return Ok(CallEvent::Progress);
        }
        Ok(match CallAnswer::parse(&packet) {
            Ok(answer) => CallEvent::Answer(answer),
            Err(malformed) => CallEvent::Malformed(malformed),
        })
    }

    /// The result limit in bytes, where there is one.
    pub fn result_limit(&self) -> Option<u64> {
        self.run.running.effective.get(LimitKind::Result).map(|effect| effect.value)
    }

    /// The wall-clock limit of the call, where there is one.
    pub fn wall_limit(&self) -> Option<Duration> {
        let wall = self.run.running.effective.get(LimitKind::Wall);
        wall.map(|effect| Duration::from_nanos(effect.value))
    }

    /// Reads a part of the answer into a buffer of its length: out of the job's memory, which is
    /// the job's as long as the job lives, so the read fails if it no longer did at the end; or, if
    /// that is not permitted, as the job sends it. Parts are read in their order, each once.
    /// `is_cancelled` is called whenever a signal interrupts the wait.
    ///
    /// # Errors
    /// The job is dead, there is nothing at that place, or (EPROTO) it sent something else.
    pub fn read(
        &self,
        part: AnswerPart,
        buffer: &mut [u8],
        is_cancelled: &mut dyn FnMut() -> bool,
    ) -> std::io::Result<()> {
        let Some(job) = self.job() else { return Err(std::io::ErrorKind::NotFound.into()) };
        // Poisoning is harmless: every update is a single assignment.
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.read(job, part.address, buffer, is_cancelled)
    }

    /// Takes the answer: from now on no limit ends the run, and nothing of the job is needed any
    /// more. False when a limit has ended it before.
    pub fn accept(&self, kind: AnswerKind) -> bool {
        let taken = self.take(kind);
        self.end_answered();
        taken
    }

    /// As [`CallHandle::accept`], but the job is ended by [`CallHandle::end_answered`], or when
    /// this is dropped: until then the thread that takes the answer has the processor for itself.
    pub fn take(&self, kind: AnswerKind) -> bool {
        let running = &self.run.running;
        let Some(job) = self.job() else { return false };
        let answer_code = if kind == AnswerKind::Value { ANSWERED_VALUE } else { ANSWERED_RAISED };
        // One of several threads takes the answer; the codes of the others must not replace its
        // own.
        if job.answered.compare_exchange(0, answer_code, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return false;
        }
        let taken = running.cell.seal();
        self.accepted.store(true, Ordering::Relaxed);
        if !taken {
            job.answered.store(0, Ordering::Release);
            // In the grace of a limit; there is nothing left to wait for.
            self.end_answered();
        }
        taken
    }

    /// Ends the job if its answer was taken and it has not been ended yet. No limit ends it any
    /// more.
    pub fn end_answered(&self) {
        drop(self.under_way.lock().unwrap_or_else(PoisonError::into_inner).take());
        if !self.accepted.swap(false, Ordering::Relaxed) {
            return;
        }
        let (running, enforcer) = (&self.run.running, &self.run.inner.enforcer);
        enforcer.queue(EnforcerCommand::Answered { slot_index: running.slot_index, id: running.id.clone() });
        match (self.shared.upgrade(), &self.handoff) {
            (Some(shared), Some(handoff)) => shared.defer_reap(AnsweredJob::new(running, handoff)),
            _ => kill_answered_job(&self.run.inner, running),
        }
    }

    /// Whether the verdict is published, or the run ended without one, within this time.
    pub fn verdict_within(&self, most: Duration) -> bool {
        self.run.running.waiting.wait_for(most, false, false)
    }

    /// How it ended, if the verdict alone determines that.
    pub fn ending(&self) -> Option<Ending> {
        self.run.running.waiting.ending()
    }
}
