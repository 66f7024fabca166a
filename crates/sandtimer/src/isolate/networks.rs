//! Network namespaces: one for each jail, made ahead of need, or for all runs of a sandbox.
//!
//! ```text
//!          MAKE                      take                      its init is dead
//! (absent) ────▶ made, `lo` is up ─────────▶ lent to one sandbox ───────────────▶ checked ─┬─ nothing left in it ─▶ ready
//!                                                                                          └─ anything else ─▶ closed
//! ```
//! Making one costs the kernel as much as all the rest of a start, so it is not done while a run
//! waits, and a namespace that was left as it was made is used again. A helper process of the
//! launcher makes and checks (`networks.rs` and `network_residue.rs` of the helper); this pool
//! holds what is ready and requests what is missing. The bound of the pool is `MAX_READY`; those
//! that are lent are bounded by the engine's slots. A pool belongs to its launcher, whose user
//! namespace owns the network namespaces without root: a launcher that is replaced gets a new pool,
//! and what returns to the old one is closed with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::launcher::Launcher;
use sandtimer_os::networks::{Maker, Namespace, NetworkObject};
use sandtimer_os::process;

/// Namespaces that are ready, or asked for; a third of a MiB each.
const MAX_READY: usize = 32;
/// Spare namespaces that are made for starts that would have to wait.
const MAX_PREALLOCATED: usize = 16;
/// How long a start waits before it inspects the pool again.
const POLL_MILLISECONDS: u64 = 10;

/// The pool of one launcher.
#[derive(Debug)]
pub struct Networks {
    /// Absent where one sandbox is started, which has the launcher's own.
    maker: Option<Maker>,
    state: Mutex<PoolState>,
    /// A process that was forked from this one has copies of the descriptors, and may give nothing
    /// back.
    process: rustix::process::Pid,
}

/// What a namespace is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkUse {
    /// A jail: it may serve again.
    Jail,
    /// All runs of a sandbox, and nothing after it. The launcher's own does not do: it would
    /// outlive the sandbox.
    Sandbox,
}

#[derive(Debug, Default)]
struct PoolState {
    ready: Vec<OwnedFd>,
    /// The inode of the launcher's own namespace, which is the first that is made.
    first: Option<u64>,
    /// Requests that have no answer yet.
    unanswered: usize,
    /// How many are to be ready, or requested, after one was taken.
    target: usize,
    is_used: bool,
    /// Why a namespace was not made, for a start that waits.
    error: Option<io::Error>,
    /// errno of bringing up the loopback of one, or 0.
    loopback: i32,
}

/// A namespace that is lent to one jail, or to a sandbox and never again. Dropping it gives it
/// back, if the jail's init is dead by then.
#[derive(Debug)]
pub struct LentNetwork {
    namespace: Option<OwnedFd>,
    networks: Arc<Networks>,
    init: OnceLock<Arc<OwnedFd>>,
    is_reusable: bool,
    loopback: i32,
}

impl Networks {
    /// Starts the process that makes them, and has it make the first.
    ///
    /// # Errors
    /// The launcher cannot start it.
    pub fn start(launcher: &Launcher) -> io::Result<Arc<Self>> {
        let maker = launcher.networks()?;
        maker.make()?;
        let state = Mutex::new(PoolState { unanswered: 1, ..PoolState::default() });
        Ok(Arc::new(Networks { maker: Some(maker), state, process: rustix::process::getpid() }))
    }

    /// Makes a pool that has only the launcher's own namespace, for an engine of a single run: the
    /// first that is made is that one in any case. Whatever else is asked for fails as if the
    /// process that makes them were gone.
    ///
    /// # Errors
    /// The launcher cannot prepare it.
    pub fn of_launcher(launcher: &Launcher) -> io::Result<Arc<Self>> {
        let Namespace { fd, loopback } = launcher.own_network()?;
        let state = PoolState { first: inode(&fd), ready: vec![fd], loopback, ..PoolState::default() };
        Ok(Arc::new(Networks { maker: None, state: Mutex::new(state), process: rustix::process::getpid() }))
    }

    fn maker(&self) -> io::Result<&Maker> {
        self.maker.as_ref().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // Poisoning is harmless: nothing panics between two updates.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a namespace; if none is ready, waits for one at most `timeout`.
    ///
    /// # Errors
    /// The kernel's, where it gives no more of them (ENOSPC: `user.max_net_namespaces`); BrokenPipe
    /// when the process that makes them is gone; TimedOut.
    pub fn take(self: &Arc<Self>, timeout: Duration, for_use: NetworkUse) -> io::Result<LentNetwork> {
        let until = monotonic_nanoseconds() + timeout.as_nanos() as u64;
        let (mut has_asked, mut has_waited) = (false, false);
        loop {
            let mut state = self.lock();
            if self.maker.is_some() {
                self.collect(&mut state)?;
            }
            if let Some(namespace) = state.pop(for_use) {
                state.is_used = true;
                let missing = state.target.saturating_sub(state.ready.len() + state.unanswered);
                if missing > 0 && self.maker()?.preallocate(missing as u32).is_ok() {
                    state.unanswered += missing;
                }
                let loopback = state.loopback;
                let (namespace, init) = (Some(namespace), OnceLock::new());
                return Ok(LentNetwork {
                    namespace,
                    networks: self.clone(),
                    init,
                    is_reusable: for_use == NetworkUse::Jail,
                    loopback,
                });
            }
            // One from before is of a spare namespace: the kernel may give them again by now.
            if let Some(error) = state.error.take().filter(|_| has_waited) {
                return Err(error);
            }
            if state.unanswered == 0 || state.is_used && !has_asked {
                self.ask(&mut state)?;
                if state.is_used {
                    // The next start is likely to follow soon.
                    if state.ready.len() + state.unanswered < MAX_PREALLOCATED {
                        self.ask(&mut state)?;
                    }
                    state.target = (2 * state.target).clamp(1, MAX_PREALLOCATED);
                }
                has_asked = true;
            }
            drop(state);
            let left = until.saturating_sub(monotonic_nanoseconds()) / 1_000_000;
            if left == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // Another start may have taken the answer from the socket and given this one's
            // namespace to the pool.
            self.maker()?.wait(left.min(POLL_MILLISECONDS));
            has_waited = true;
        }
    }

    /// Asks for one more namespace. Where the socket is full of such requests, their answers are
    /// waited for.
    fn ask(&self, state: &mut PoolState) -> io::Result<()> {
        match self.maker()?.make() {
            Ok(()) => state.unanswered += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes the answers that have come.
    fn collect(&self, state: &mut PoolState) -> io::Result<()> {
        let maker = self.maker()?;
        loop {
            match maker.answer() {
                Ok(None) => return Ok(()),
                Ok(Some(namespace)) => {
                    if namespace.loopback != 0 {
                        state.loopback = namespace.loopback;
                    }
                    if state.first.is_none() {
                        state.first = inode(&namespace.fd);
                    }
                    if state.ready.len() < MAX_READY {
                        state.ready.push(namespace.fd);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(error),
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                Err(error) => state.error = Some(error),
            }
            state.unanswered = state.unanswered.saturating_sub(1);
        }
    }

    fn give_back(&self, namespace: OwnedFd) {
        let mut state = self.lock();
        if self.collect(&mut state).is_err() || state.ready.len() + state.unanswered >= MAX_READY {
            return;
        }
        // A namespace that cannot be sent is closed.
        if self.maker().is_ok_and(|maker| maker.check(namespace.as_fd()).is_ok()) {
            state.unanswered += 1;
        }
    }
}

impl PoolState {
    fn pop(&mut self, for_use: NetworkUse) -> Option<OwnedFd> {
        let is_fit = |namespace: &OwnedFd| for_use == NetworkUse::Jail || inode(namespace) != self.first;
        let at = self.ready.iter().rposition(is_fit)?;
        Some(self.ready.remove(at))
    }
}

fn inode(namespace: &OwnedFd) -> Option<u64> {
    rustix::fs::fstat(namespace).ok().map(|status| status.st_ino)
}

impl LentNetwork {
    /// The namespace.
    pub fn namespace(&self) -> Option<BorrowedFd<'_>> {
        self.namespace.as_ref().map(AsFd::as_fd)
    }

    /// Why its loopback is down, if it is.
    pub fn loopback_error(&self) -> Option<io::Error> {
        (self.loopback != 0).then(|| io::Error::from_raw_os_error(self.loopback))
    }

    /// Has it freed instead of checked and lent again when it is given back.
    pub fn keep_from_pool(&mut self) {
        self.is_reusable = false;
    }

    /// Opens something in it. Waits at most two seconds.
    ///
    /// # Errors
    /// As [`Maker::open`].
    pub fn open(&self, object: NetworkObject) -> io::Result<OwnedFd> {
        let namespace = self.namespace().ok_or(io::ErrorKind::NotFound)?;
        self.networks.maker()?.open(namespace, object)
    }

    /// Names the process whose death is the death of all processes in it: a pid namespace's first
    /// process.
    pub fn set_init(&self, init: Arc<OwnedFd>) {
        // It is lent once.
        let _ = self.init.set(init);
    }
}

impl Drop for LentNetwork {
    fn drop(&mut self) {
        let Some(namespace) = self.namespace.take() else { return };
        let is_empty = self.init.get().is_some_and(|init| process::is_dead(init.as_fd()));
        if self.is_reusable && is_empty && rustix::process::getpid() == self.networks.process {
            self.networks.give_back(namespace);
        }
    }
}
