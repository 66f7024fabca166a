//! Keeps children of one profile ready, off the path of the callers that take them.
//!
//! As many threads for each pool as processors: while one child seals itself, the next passes
//! through launcher and zygote. They make children in moments without calls, or as soon as few are
//! left, and end answered jobs then as well; in the idle jails that calls have left (`idle_jails`)
//! if there are any. A caller that finds none ready waits for the next (`path: cold`). A pool that
//! is used up is made larger, one that is idle goes back to its size. All children of a zygote
//! share the layout of its memory, so zygotes are replaced after a number of children or a time;
//! the next one is ready before the old one ends.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::{process, thread};

use super::Inner;
use super::answered_jobs::AnsweredJob;
use super::children::{Child, OwnWorkspace, Parent};
use super::error::Error;
use super::idle_jails::{IdleJail, IdleJails};
use super::named_directories::NamedDirectories;
use super::room;
use super::zygotes::{self, NotServing, Zygote};
use crate::zygote::{Language, Profile};

/// A zygote is replaced after this many children, or this long.
const MAX_CHILDREN_PER_ZYGOTE: u64 = 10_000;
const MAX_ZYGOTE_AGE_NANOSECONDS: u64 = 3_600_000_000_000;
/// A pool that grew goes back to its size after this long without a call.
const SHRINK_TIMEOUT: Duration = Duration::from_secs(30);
/// While enough children are warm, answered jobs are ended and new children made only after this
/// long without a call, so that a call has the processors for itself.
const IDLE_WINDOW_NANOSECONDS: u64 = 2_000_000;
/// The same for interpreters of contexts: opening or branching a context continues after the
/// interpreter was taken.
const CONTEXT_IDLE_WINDOW_NANOSECONDS: u64 = 20_000_000;
/// An answered job is ended after this long at the latest.
const ANSWERED_LIMIT: u64 = 5_000_000;
/// How many answered jobs one pre-warmer thread ends at a time.
const MAX_ANSWERED_AT_A_TIME: usize = 4;
/// How often it is checked whether the caller has closed descriptors that a child needs.
const ROOM_INTERVAL: Duration = Duration::from_millis(5);
/// How often a waiting caller looks up.
pub(super) const CANCELLATION_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// After a failure, how long until the next try.
const TRY_AGAIN_MILLISECONDS: u64 = 200;
/// Failures in a row after which callers get an error: a single killed zygote is replaced without
/// one.
pub(super) const TRIES: u32 = 3;

#[derive(Debug)]
pub(super) struct ChildPool {
    pub inner: Arc<Inner>,
    pub profile: Profile,
    pub size: usize,
    pub state: Mutex<ChildPoolState>,
    pub source: Mutex<ZygoteSource>,
    /// Sandboxes that jobs have left.
    pub idle_jails: Arc<IdleJails>,
    /// Calls that have begun and whose callers have not let go of them.
    pub calls_begun: AtomicUsize,
    /// Zygotes that did not come to serve; counted with the source held.
    pub failed_starts: AtomicU64,
    /// For callers that wait for children.
    pub changed: Condvar,
    /// For threads that make children.
    pub lacking: Condvar,
    /// Readable once the pool is closed, for whatever is being made ready then.
    pub closing: OwnedFd,
}

#[derive(Debug, Default)]
pub(super) struct ChildPoolState {
    pub ready: VecDeque<Child>,
    /// Jobs whose answer was taken, and when the first of them was.
    pub answered: Vec<AnsweredJob>,
    pub answered_since: u64,
    /// How many are being made.
    pub making: usize,
    /// How many are to be ready.
    pub wanted: usize,
    /// Attempts in a row that failed.
    pub failures: u32,
    /// Callers that found none.
    pub waiting: usize,
    /// When a call last began or ended, in monotonic nanoseconds.
    pub last_call: u64,
    /// A pre-warmer thread waits for an idle window, and reads the clock by itself.
    pub awaits_idle_window: bool,
    /// Why none could be made ready the last time.
    pub failure: Option<(String, PoolFailure)>,
    pub closed: bool,
    pub stats: Stats,
}

/// What a failure means to the next caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolFailure {
    /// It is of no use to try again.
    Last,
    SpawnLimit,
    Other,
}

/// What a pool has done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Children that wait for a job.
    pub ready: usize,
    /// How many are to be.
    pub wanted: usize,
    /// Calls that were started, those without a waiting child included.
    pub calls: u64,
    /// Calls that found no child ready.
    pub cold: u64,
    /// Children that were put into a sandbox which an earlier call had left as it found it.
    pub reused: u64,
    /// Children that died or became useless while they waited, or did not become the branch that
    /// they were to be.
    pub lost: u64,
    /// Zygotes that were started, replacements of earlier ones included.
    pub zygotes: u64,
    /// Zygotes, and interpreters without one, that were ended because of their pre-warm script.
    pub prewarm_failures: u64,
    /// Why the zygote that serves, or an interpreter without one, has not run its pre-warm script.
    pub not_prewarmed: Option<String>,
    /// The interpreter's version; empty before the first zygote serves.
    pub version: String,
}

impl Stats {
    fn prewarm_failed(&mut self, reason: String) {
        self.prewarm_failures += 1;
        self.not_prewarmed = Some(reason);
    }
}

/// The zygote that children come from, and the one that is to follow it.
#[derive(Debug, Default)]
pub(super) struct ZygoteSource {
    zygote: Option<Arc<Zygote>>,
    born: u64,
    since: u64,
    next: Option<Receiver<Result<Zygote, Error>>>,
}

impl ZygoteSource {
    /// Returns a serving zygote: the next one once it is ready, else the present one, else a new
    /// one.
    pub(super) fn serving(&mut self, shared: &Arc<ChildPool>) -> Result<Arc<Zygote>, Error> {
        match self.next.as_ref().map(Receiver::try_recv) {
            Some(Ok(Ok(next))) => self.adopt(next),
            // It did not come to be: tried again when it is due again.
            Some(Ok(Err(_)) | Err(TryRecvError::Disconnected)) => {
                (self.next, self.born, self.since) = (None, 0, monotonic_nanoseconds())
            }
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        if self.zygote.as_ref().is_none_or(|zygote| zygote.is_dead()) {
            let zygote = shared.start_zygote()?;
            self.adopt(zygote);
        }
        self.born += 1;
        let old = monotonic_nanoseconds().saturating_sub(self.since) >= MAX_ZYGOTE_AGE_NANOSECONDS;
        if self.next.is_none() && (old || self.born >= MAX_CHILDREN_PER_ZYGOTE) {
            self.ask_for_next(shared);
        }
        self.zygote.clone().ok_or(Error::Closed)
    }

    /// Has the next child come from another zygote than this. False where it does already.
    pub(super) fn discard(&mut self, zygote: &Arc<Zygote>) -> bool {
        let own = self.zygote.as_ref().is_some_and(|own| Arc::ptr_eq(own, zygote));
        if own {
            *self = ZygoteSource::default();
        }
        own
    }

    fn adopt(&mut self, zygote: Zygote) {
        *self = ZygoteSource {
            zygote: Some(Arc::new(zygote)),
            born: 0,
            since: monotonic_nanoseconds(),
            next: None,
        };
    }

    /// Starts the next zygote on a thread of its own, while this one continues to serve.
    fn ask_for_next(&mut self, shared: &Arc<ChildPool>) {
        let (sender, next) = sync_channel(1);
        let shared = shared.clone();
        let start = move || {
            thread::block_signals();
            // A pool that was closed before this drops the zygote with the receiver.
            let _ = sender.send(shared.start_zygote());
        };
        let spawned = std::thread::Builder::new().name("st-refiller".to_owned()).spawn(start);
        // Without a thread the old one continues; asked for again with the next child.
        self.next = spawned.ok().map(|_| next);
    }
}

impl ChildPoolState {
    /// Too few are left to wait for a lull.
    pub fn is_short(&self) -> bool {
        self.waiting > 0 || 4 * self.coming() < self.wanted
    }

    /// Children that are ready, or will be.
    fn coming(&self) -> usize {
        self.ready.len() + self.making
    }
}

impl ChildPool {
    /// A call has begun, and its caller holds it.
    pub fn call_begun(&self) {
        self.calls_begun.fetch_add(1, Ordering::Relaxed);
    }

    /// The caller has let go of a call that had begun.
    pub fn call_dropped(&self) {
        self.calls_begun.fetch_sub(1, Ordering::Relaxed);
        self.call_ended();
    }

    /// A call has ended: there is room for the next child to be made.
    pub fn call_ended(&self) {
        let mut state = self.lock();
        state.last_call = monotonic_nanoseconds();
        if !state.awaits_idle_window {
            self.lacking.notify_one();
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, ChildPoolState> {
        // Lists and counters; whole whatever happened to the thread that held them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a pre-warmer thread.
    pub fn pre_warm(self: &Arc<Self>) {
        while let Some((hurried, _making)) = self.wait_for_want() {
            let zygote = match self.profile.language {
                Language::JavaScript => None,
                Language::Python => match self.zygote() {
                    Some(zygote) => Some(zygote),
                    None => {
                        self.lock().making -= 1;
                        continue;
                    }
                },
            };
            let made = self.make(zygote.as_ref(), hurried, &NamedDirectories::default());
            let mut state = self.lock();
            state.making -= 1;
            match made {
                Ok(child) => {
                    (state.failures, state.failure) = (0, None);
                    state.ready.push_back(child);
                    self.changed.notify_all();
                }
                Err(error) => {
                    drop(state);
                    // Another zygote may have better luck. That one was lost counts once, however
                    // many children it was to have.
                    if zygote.is_none_or(|zygote| self.source().discard(&zygote)) {
                        self.failed(error);
                    }
                }
            }
        }
        let rest = std::mem::take(&mut self.lock().ready);
        drop(rest);
        self.end(self.idle_jails.close());
    }

    /// The serving zygote. `None` if none could be started, by this thread or by the one that it
    /// waited for: then callers were notified, and the process that did not start is dead.
    fn zygote(self: &Arc<Self>) -> Option<Arc<Zygote>> {
        let before = self.failed_starts.load(Ordering::Acquire);
        let mut source = self.source();
        if self.failed_starts.load(Ordering::Acquire) != before {
            return None;
        }
        let serving = source.serving(self);
        serving
            .map_err(|error| {
                self.failed_starts.fetch_add(1, Ordering::AcqRel);
                // While the other threads wait for the source: no thread tries again before the
                // callers that wait were notified.
                self.failed(error);
            })
            .ok()
    }

    /// Where children come from. While one starts a zygote the others wait for it.
    pub fn source(&self) -> MutexGuard<'_, ZygoteSource> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a failure, and passes it to the callers if they are to get it.
    fn failed(&self, error: Error) {
        let failures = {
            let mut state = self.lock();
            state.failures += 1;
            state.failures
        };
        let failure = match error {
            Error::Interpreter(_) | Error::Files(_) | Error::Refused(_) => PoolFailure::Last,
            // The callers that wait have waited for that long.
            Error::SpawnLimit(_) => PoolFailure::SpawnLimit,
            _ if failures < TRIES => return,
            _ => PoolFailure::Other,
        };
        let text = match error {
            Error::Interpreter(reason) => reason,
            other => other.to_string(),
        };
        self.lock().failure = Some((text, failure));
        self.changed.notify_all();
        self.pause();
    }

    fn start_zygote(&self) -> Result<Zygote, Error> {
        let start = |profile: &Profile| Zygote::start(&self.inner, profile, Some(self.closing.as_fd()));
        let zygote = match start(&self.profile) {
            Err(NotServing::Prewarm(reason)) => {
                self.lock().stats.prewarm_failed(reason);
                start(&self.plain())
            }
            started => {
                self.lock().stats.not_prewarmed = None;
                started
            }
        };
        let zygote = zygote?;
        let mut state = self.lock();
        state.stats.zygotes += 1;
        state.stats.version.clone_from(&zygote.version);
        Ok(zygote)
    }

    /// The profile without its pre-warm script.
    fn plain(&self) -> Profile {
        Profile { prewarm: None, ..self.profile.clone() }
    }

    /// An interpreter that no zygote is there for. Each runs the pre-warm script itself, so one
    /// that has failed is not run again.
    fn start(&self, directories: &NamedDirectories, stop: BorrowedFd<'_>) -> Result<Child, Error> {
        let start = |profile: &Profile| Child::start(&self.inner, profile, directories, stop);
        let has_failed = self.lock().stats.not_prewarmed.is_some();
        let started = match has_failed {
            true => start(&self.plain()),
            false => start(&self.profile),
        };
        if let Err(NotServing::Prewarm(reason)) = started {
            {
                let mut state = self.lock();
                // Of several at the same time one counts.
                if state.stats.not_prewarmed.is_none() {
                    state.stats.prewarm_failed(reason);
                }
            }
            return Ok(start(&self.plain())?);
        }
        Ok(started?)
    }

    /// Waits before the next try, unless the pool is closed.
    fn pause(&self) {
        process::wait_readable(self.closing.as_fd(), TRY_AGAIN_MILLISECONDS);
    }

    /// Waits until another child is wanted, and returns whether a caller waits for it; `None` once
    /// the pool is closed.
    fn wait_for_want(&self) -> Option<(bool, room::PendingChild)> {
        let idle_window =
            if self.profile.live { CONTEXT_IDLE_WINDOW_NANOSECONDS } else { IDLE_WINDOW_NANOSECONDS };
        let mut state = self.lock();
        loop {
            let now = monotonic_nanoseconds();
            let quiet = now.saturating_sub(state.last_call);
            let over = now.saturating_sub(state.answered_since) >= ANSWERED_LIMIT;
            if !state.answered.is_empty()
                && (state.closed || state.is_short() || quiet >= idle_window || over)
            {
                let count = state.answered.len().min(MAX_ANSWERED_AT_A_TIME);
                let mut answered: Vec<AnsweredJob> = state.answered.drain(..count).collect();
                if !state.answered.is_empty() {
                    self.lacking.notify_one();
                }
                drop(state);
                // All are killed before the first is awaited: they die at the same time.
                answered.retain_mut(|answered| answered.kill(&self.inner));
                answered.into_iter().for_each(|answered| answered.finish(&self.inner));
                state = self.lock();
                continue;
            }
            if state.closed {
                return None;
            }
            self.idle_jails.hold(state.wanted);
            // The last try failed and no caller waits: the next try begins with the next caller.
            let vain = state.failure.is_some() && state.waiting == 0;
            let lacking = state.coming() < state.wanted.max(state.waiting) && !vain;
            let is_due = lacking && (state.is_short() || quiet >= idle_window);
            if is_due && self.may_make(&state) {
                let hurried =
                    state.waiting > state.coming() || quiet < IDLE_WINDOW_NANOSECONDS && state.is_short();
                state.making += 1;
                if state.coming() < state.wanted.max(state.waiting) {
                    self.lacking.notify_one();
                }
                return Some((hurried, room::PendingChild::begin()));
            }
            let old = self.idle_jails.take_old();
            if !old.is_empty() {
                drop(state);
                self.end(old);
                state = self.lock();
                continue;
            }
            if is_due {
                // What is made ahead of need can wait until something happens.
                let is_urgent = state.waiting > state.making || !state.answered.is_empty();
                let most = if is_urgent { ROOM_INTERVAL } else { SHRINK_TIMEOUT };
                let waited = self.lacking.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner);
                state = waited.0;
                continue;
            }
            let awaits_idle_window = lacking || !state.answered.is_empty();
            state.awaits_idle_window = awaits_idle_window;
            let most = if awaits_idle_window {
                Duration::from_nanos(idle_window.saturating_sub(quiet))
            } else {
                SHRINK_TIMEOUT
            };
            let (woken, waited) =
                self.lacking.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.awaits_idle_window = false;
            if awaits_idle_window {
                continue;
            }
            if waited.timed_out() && state.wanted > self.size {
                state.wanted = self.size;
                let keep = self.size.min(state.ready.len());
                let surplus = state.ready.split_off(keep);
                drop(state);
                drop(surplus);
                state = self.lock();
            }
        }
    }

    /// Whether the caller's descriptors allow another child now. The first one that a caller waits
    /// for is tried in any case, if no call is there whose end makes room.
    fn may_make(&self, state: &ChildPoolState) -> bool {
        let is_only_way =
            state.waiting > 0 && state.making == 0 && self.calls_begun.load(Ordering::Relaxed) == 0;
        is_only_way || room::has_room_for_child(state.waiting <= state.making)
    }

    /// Makes a child, of a zygote where its language has them, with these directories. A workspace
    /// that is not named is its own.
    pub(super) fn make(
        &self,
        zygote: Option<&Arc<Zygote>>,
        hurried: bool,
        directories: &NamedDirectories,
    ) -> Result<Child, Error> {
        let own = match (&directories.workspace, &self.profile.workspaces) {
            (None, Some(parent)) if directories.sandbox.is_none() => Some(OwnWorkspace::make(parent)?),
            _ => None,
        };
        let made = || own.as_ref().map(|own| own.path().to_owned());
        let workspace = directories.workspace.clone().or_else(made);
        let directories = NamedDirectories { workspace, ..directories.clone() };
        let stop = self.closing.as_fd();
        let mut child = match zygote {
            None => self.start(&directories, stop)?,
            Some(zygote) => {
                let spec = directories.of(zygotes::spec_of(&self.profile));
                let (turn, stop) = (Some(&zygote.turn), Some(stop));
                let parent = Parent {
                    request_socket: zygote.request_socket(),
                    turn,
                    is_caller: false,
                    is_live: self.profile.live,
                    hurried,
                    stop,
                };
                // Init can answer for what Landlock lets a job make, of sandboxes that are all
                // alike, and not in a live one.
                let landlocked = self.inner.host()?.landlock_abi > 0;
                let is_private =
                    spec.workspace.is_none() && spec.temporary.is_none() && spec.sandbox.is_none();
                let may_leave = landlocked && is_private && !spec.supervised;
                // A jail that died while it was idle is no evidence about the zygote.
                let again = may_leave.then(|| self.child_in_idle_jail()).flatten();
                let again = again.and_then(|mut child| child.seal(&parent).ok().map(|()| child));
                let mut child = again.map_or_else(|| Child::bear(&self.inner, &parent, &spec), Ok)?;
                child.idle_jails = may_leave.then(|| self.idle_jails.clone());
                child
            }
        };
        child.own_workspace = own;
        child.zygote = zygote.cloned();
        Ok(child)
    }

    /// A sandbox that a job has left.
    fn child_in_idle_jail(&self) -> Option<Child> {
        while let Some(mut idle_jail) = self.idle_jails.take() {
            let is_fit = idle_jail.is_fit();
            let child = Child::idle_jail(&self.inner, idle_jail);
            if is_fit {
                self.lock().stats.reused += 1;
                return Some(child);
            }
        }
        None
    }

    fn end(&self, idle_jails: Vec<IdleJail>) {
        for idle_jail in idle_jails {
            drop(Child::idle_jail(&self.inner, idle_jail));
        }
    }

    /// The zygote that serves, if one does at this moment.
    pub fn serving_zygote(&self) -> Option<Arc<Zygote>> {
        let mut source = self.source.try_lock().ok()?;
        let zygote = source.zygote.clone().filter(|zygote| !zygote.is_dead())?;
        source.born += 1;
        Some(zygote)
    }

    /// Defers the end of a job whose answer was taken until the pool is idle; kills it at once
    /// while the pool lacks children or makes one.
    pub fn defer_reap(&self, mut answered: AnsweredJob) {
        let mut state = self.lock();
        if state.making > 0 || state.is_short() {
            drop(state);
            if !answered.kill(&self.inner) {
                return;
            }
            state = self.lock();
        }
        if state.closed || state.failures > 0 {
            drop(state);
            answered.hand_over(&self.inner);
            return;
        }
        if state.answered.is_empty() {
            state.answered_since = monotonic_nanoseconds();
        }
        state.answered.push(answered);
        if !state.awaits_idle_window || state.is_short() {
            self.lacking.notify_one();
        }
    }

    /// Hands all answered jobs over to the enforcer, because a caller waits for the end of one.
    pub fn hand_over_answered(&self) {
        let answered = std::mem::take(&mut self.lock().answered);
        answered.into_iter().for_each(|answered| answered.hand_over(&self.inner));
    }
}
