//! How children of a pool are taken, by calls, programs and contexts.
//!
//! Ready ones come first. A caller that finds none waits for the next one, or has one made for
//! itself: of one zygote, or in directories that were named.

use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, PoisonError};

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::{descriptors, thread};

use super::children::Child;
use super::error::Error;
use super::named_directories::NamedDirectories;
use super::pre_warmer::{CANCELLATION_CHECK_INTERVAL, ChildPool, PoolFailure, TRIES};
use super::room;
use super::zygotes::Zygote;
use crate::zygote::Language;

impl ChildPool {
    /// A child of this zygote, whichever serves now, made while the caller waits.
    pub fn make_of(&self, zygote: &Arc<Zygote>, directories: &NamedDirectories) -> Result<Child, Error> {
        for attempt in 1.. {
            match self.make(Some(zygote), true, directories) {
                Err(Error::System { .. }) if attempt < TRIES && !zygote.is_dead() => {}
                child => return child,
            }
        }
        Err(Error::Closed)
    }

    /// Takes warm children of this zygote, at most `most`.
    pub fn take_of(&self, zygote: &Arc<Zygote>, most: usize) -> Vec<Child> {
        let is_of = |child: &Child| child.zygote.as_ref().is_some_and(|other| Arc::ptr_eq(other, zygote));
        let (mut taken, mut left) = (Vec::new(), VecDeque::new());
        let mut state = self.lock();
        for child in state.ready.drain(..) {
            match taken.len() < most && is_of(&child) {
                true => taken.push(child),
                false => left.push_back(child),
            }
        }
        state.ready = left;
        state.last_call = monotonic_nanoseconds();
        self.lacking.notify_one();
        taken
    }

    /// A child with these directories, made while the caller waits. `is_cancelled` is asked now and
    /// then; what is being made then ends by itself.
    pub fn make_in(
        self: &Arc<Self>,
        directories: NamedDirectories,
        is_cancelled: &mut dyn FnMut() -> bool,
    ) -> Result<Child, Error> {
        let (sender, receiver) = sync_channel(1);
        let shared = self.clone();
        let make = move || {
            thread::block_signals();
            // Without a caller that waits it is ended with the channel.
            let _ = sender.send(shared.make_there(&directories));
        };
        let spawned = std::thread::Builder::new().name("st-refiller".to_owned()).spawn(make);
        spawned.map_err(Error::system("cannot start a thread"))?;
        loop {
            match receiver.recv_timeout(CANCELLATION_CHECK_INTERVAL) {
                Ok(made) => return made,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Closed),
                Err(RecvTimeoutError::Timeout) if is_cancelled() => return Err(cancellation_error()),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn make_there(self: &Arc<Self>, directories: &NamedDirectories) -> Result<Child, Error> {
        if self.profile.language == Language::JavaScript {
            return self.make(None, true, directories);
        }
        for attempt in 1.. {
            let zygote = self.source().serving(self)?;
            match self.make(Some(&zygote), true, directories) {
                Err(Error::System { .. }) if attempt < TRIES => drop(self.source().discard(&zygote)),
                child => return child,
            }
        }
        Err(Error::Closed)
    }

    /// Takes a warm child, if there is one.
    pub fn take_ready(&self) -> Option<Child> {
        let mut state = self.lock();
        let child = state.ready.pop_front();
        if state.ready.is_empty() {
            state.wanted = (state.wanted * 2).clamp(1, self.most());
        }
        state.stats.calls += 1;
        state.stats.cold += u64::from(child.is_none());
        state.last_call = monotonic_nanoseconds();
        if state.is_short() {
            self.lacking.notify_one();
        }
        child
    }

    /// How large the pool may grow: by the processors, and by the descriptors that this process may
    /// have.
    fn most(&self) -> usize {
        let usual = (4 * sandtimer_os::probe::processors()).max(16);
        let by_descriptors = descriptors::limit().map_or(usize::MAX, room::max_children);
        usual.min(by_descriptors).max(self.size)
    }

    /// A child, and whether it had to be waited for. `is_cancelled` is asked now and then while
    /// waiting.
    pub fn take(&self, is_cancelled: &mut dyn FnMut() -> bool) -> Result<(Child, bool), Error> {
        let most = self.most();
        let mut state = self.lock();
        if let Some(child) = state.ready.pop_front() {
            if state.ready.is_empty() {
                state.wanted = (state.wanted * 2).clamp(1, most);
            }
            state.stats.calls += 1;
            state.last_call = monotonic_nanoseconds();
            if state.is_short() {
                self.lacking.notify_one();
            }
            return Ok((child, false));
        }
        // A temporary failure may have passed by now; a permanent one is returned at once.
        if state.failure.as_ref().is_some_and(|(_, failure)| *failure != PoolFailure::Last) {
            state.failure = None;
        }
        state.waiting += 1;
        self.lacking.notify_one();
        let taken = loop {
            if state.closed {
                break Err(Error::Closed);
            }
            if let Some((reason, failure)) = state.failure.clone() {
                break Err(match failure {
                    PoolFailure::Last => Error::Interpreter(reason),
                    PoolFailure::SpawnLimit => Error::SpawnLimit(self.inner.spawn_limit()),
                    PoolFailure::Other => Error::System {
                        doing: "cannot make a sandbox ready",
                        source: std::io::Error::other(reason),
                    },
                });
            }
            if let Some(child) = state.ready.pop_front() {
                state.stats.calls += 1;
                state.stats.cold += 1;
                state.wanted = (state.wanted * 2).clamp(1, most);
                break Ok((child, true));
            }
            let (woken, _) = self
                .changed
                .wait_timeout(state, CANCELLATION_CHECK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            drop(woken);
            let was_cancelled = is_cancelled();
            state = self.lock();
            if was_cancelled {
                break Err(cancellation_error());
            }
        };
        state.waiting -= 1;
        taken
    }
}

/// The error of a caller that has cancelled its wait.
fn cancellation_error() -> Error {
    Error::System { doing: "waiting for a sandbox", source: std::io::ErrorKind::Interrupted.into() }
}
