//! The engine's launchers: one whose sandboxes have no network of the host's, and one, when asked
//! for, whose sandboxes have it.
//!
//! A thread of its own starts them and lives as long as the engine: PDEATHSIG follows the thread
//! that forked. It starts the watchdogs as well, for the enforcer must not wait for a process to
//! execute, unless the engine is given one. The first launcher is asked for before anything else
//! and waited for only when a sandbox is to be planned.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use sandtimer_os::launcher::Launcher;
use sandtimer_os::watchdog::{SharedTable, Watchdog};
use sandtimer_os::{process, thread};

use super::error::Error;
use super::templates::LauncherTemplates;
use crate::isolate::host::{self, NamespaceSupport};
use crate::isolate::networks::{LentNetwork, NetworkUse, Networks};

/// How long a start waits for a network namespace before the process that makes them is replaced:
/// it may be stopped. Making one takes half a millisecond; while the kernel frees many, some ten.
const NETWORK_STALL: Duration = Duration::from_secs(2);
/// How long it waits for the new process.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(10);

/// A launcher in its namespaces, and the templates of roots in it.
#[derive(Debug)]
pub(super) struct ReadyLauncher {
    pub launcher: Launcher,
    pub made: LauncherTemplates,
}

/// What a launcher found it could have.
pub(super) type LauncherCapabilities = (NamespaceSupport, Result<(), String>);

type LaunchResult = std::io::Result<StartedLauncher>;

/// A launcher that was started, what it found, and its pool of network namespaces, where it can
/// make them.
type StartedLauncher = (Launcher, LauncherCapabilities, Option<Arc<Networks>>);

/// What the starting thread is asked for.
enum StarterRequest {
    /// A launcher.
    Launch { kind: LauncherKind, reply: SyncSender<LaunchResult> },
    /// Something else that starts a process.
    Do(Box<dyn FnOnce() + Send>),
}

/// Which launcher is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LauncherKind {
    /// Its sandboxes have the host's network.
    Network,
    /// Its sandboxes have network namespaces of their own.
    Plain,
    /// The same, for a single run: it starts the watchdog too, and has the one network namespace
    /// that is needed.
    OneShot,
}

/// A watchdog that a launcher has started, until it is asked for.
type PreparedWatchdog = Arc<Mutex<Option<Watchdog>>>;

/// The way to the thread that starts processes. The thread is started with the first request.
#[derive(Debug, Clone)]
pub(super) struct Starter(Arc<StarterThread>);

#[derive(Debug)]
struct StarterThread {
    requests: Mutex<Option<Sender<StarterRequest>>>,
    watchdog: PreparedWatchdog,
    no_namespaces: bool,
}

impl Starter {
    fn new(no_namespaces: bool) -> Self {
        let (requests, watchdog) = Default::default();
        Starter(Arc::new(StarterThread { requests, watchdog, no_namespaces }))
    }

    /// Sends the thread a request; if the thread is gone, the request is dropped.
    ///
    /// # Errors
    /// If the thread cannot be started.
    fn send(&self, request: StarterRequest) -> std::io::Result<()> {
        let _ = self.prepare()?.send(request);
        Ok(())
    }

    /// Starts the thread unless it has been started; returns the way to it.
    ///
    /// # Errors
    /// If the thread cannot be started.
    fn prepare(&self) -> std::io::Result<Sender<StarterRequest>> {
        let mut requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = match &mut *requests {
            Some(requests) => requests,
            none => none.insert(start_thread(self.0.no_namespaces, self.0.watchdog.clone())?),
        };
        Ok(requests.clone())
    }

    /// Has the thread start a watchdog for this table, and do something with it; also with the
    /// error where there is no thread.
    pub(super) fn start_watchdog(
        &self,
        table: Arc<SharedTable>,
        then: impl FnOnce(std::io::Result<Watchdog>) + Send + 'static,
    ) {
        let requests = match self.prepare() {
            Ok(requests) => requests,
            Err(error) => return then(Err(error)),
        };
        let prepared = self.0.watchdog.clone();
        let start = move || {
            let prepared = prepared.lock().unwrap_or_else(PoisonError::into_inner).take();
            let prepared = prepared.filter(|watchdog| watchdog.watch(&table).is_ok());
            then(prepared.map_or_else(|| Watchdog::start(&table), Ok));
        };
        // If the thread is gone, this is dropped, and with it the channel that reports its end.
        let _ = requests.send(StarterRequest::Do(Box::new(start)));
    }
}

/// Starts the thread, which ends when the sender that this returns is dropped.
fn start_thread(no_namespaces: bool, watchdog: PreparedWatchdog) -> std::io::Result<Sender<StarterRequest>> {
    let (requests, received) = channel::<StarterRequest>();
    let serve = move || {
        thread::block_signals();
        while let Ok(request) = received.recv() {
            let serve = || match request {
                StarterRequest::Launch { kind, reply } => {
                    // An asker that is gone drops the launcher, which ends it.
                    let _ = reply.send(launch(kind, no_namespaces, &watchdog));
                }
                StarterRequest::Do(work) => work(),
            };
            // A panic, whose message is on stderr, drops the reply; the next request is served all
            // the same.
            let _ = catch_unwind(AssertUnwindSafe(serve));
        }
    };
    std::thread::Builder::new().name("st-starter".to_owned()).stack_size(64 << 10).spawn(serve)?;
    Ok(requests)
}

/// The launchers of an engine.
#[derive(Debug)]
pub(super) struct Launchers {
    slots: Mutex<[Option<ReadyLauncher>; 2]>,
    first: Mutex<Option<Receiver<LaunchResult>>>,
    starter: Starter,
    /// What the first one found: a later one must not find less.
    found: OnceLock<LauncherCapabilities>,
    /// The namespaces of the launcher without network.
    networks: Mutex<Option<Arc<Networks>>>,
}

impl Launchers {
    /// Asks for the first launcher, which is one without network; with `None` that waits until one
    /// is needed.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(super) fn start(no_namespaces: bool, first: Option<LauncherKind>) -> Result<Self, Error> {
        let starter = Starter::new(no_namespaces);
        let first = first.map(|kind| request_launch(&starter, kind)).transpose();
        Ok(Launchers {
            slots: Mutex::default(),
            first: Mutex::new(first.map_err(Error::system("cannot start a thread"))?),
            starter,
            found: OnceLock::new(),
            networks: Mutex::default(),
        })
    }

    /// Asks for a launcher. Should the thread be gone, its answer is an error.
    fn ask(&self, network: bool) -> LaunchResult {
        let gone = |_| Err(std::io::ErrorKind::BrokenPipe.into());
        let kind = if network { LauncherKind::Network } else { LauncherKind::Plain };
        request_launch(&self.starter, kind)?.recv().unwrap_or_else(gone)
    }

    /// The thread that starts processes.
    pub(super) fn starter(&self) -> Starter {
        self.starter.clone()
    }

    /// What the first launcher found; waits for it, and asks for another where it could not be
    /// started. Such a failure does not show what the host can do, so nothing is planned by it.
    pub(super) fn found(&self) -> Result<&LauncherCapabilities, Error> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        let receive = |from: Receiver<LaunchResult>| {
            from.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::BrokenPipe.into()))
        };
        // What kept the first one from being started may have passed by now.
        let answer = first.take().map(receive).and_then(Result::ok);
        let answer = answer.map_or_else(|| self.ask(false), Ok);
        let (launcher, found, networks) = answer.map_err(Error::system("cannot start the launcher"))?;
        *self.networks.lock().unwrap_or_else(PoisonError::into_inner) = networks;
        let ready = ReadyLauncher { launcher, made: LauncherTemplates::default() };
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)[0] = Some(ready);
        Ok(self.found.get_or_init(|| found))
    }

    /// Lends a network namespace for what the launcher without network is to start.
    ///
    /// # Errors
    /// As [`Networks::take`].
    pub(super) fn network(&self, for_use: NetworkUse) -> Result<LentNetwork, Error> {
        let networks = || self.networks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let used = networks();
        match used.as_ref().map(|networks| networks.take(NETWORK_STALL, for_use)) {
            Some(Err(error)) if is_loss(&error) || error.kind() == std::io::ErrorKind::TimedOut => {}
            Some(taken) => return taken.map_err(Error::system("cannot make a network namespace")),
            None => {}
        }
        // The process that makes them is gone, with its launcher or alone, or does not answer.
        self.with(false, |ready| {
            let now = networks();
            let is_same = |now: &Arc<Networks>| used.as_ref().is_some_and(|used| Arc::ptr_eq(now, used));
            let is_replaced = now.is_some_and(|now| !is_same(&now));
            if !is_replaced {
                let started = Networks::start(&ready.launcher)?;
                *self.networks.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
            }
            Ok(())
        })?;
        let gone = || Err(std::io::ErrorKind::BrokenPipe.into());
        let taken = networks().map_or_else(gone, |networks| networks.take(NETWORK_TIMEOUT, for_use));
        taken.map_err(Error::system("cannot make a network namespace"))
    }

    /// Ends the launchers without waiting for them; the runs that they started continue.
    pub(super) fn dismiss(&self) {
        for ready in self.slots.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten() {
            // Gone already is as good.
            let _ = process::kill(ready.launcher.pidfd());
        }
    }

    /// Does something with the launcher for this kind of network, starting one first where there is
    /// none or it died.
    pub(super) fn with<T>(
        &self,
        network: bool,
        mut act: impl FnMut(&mut ReadyLauncher) -> std::io::Result<T>,
    ) -> Result<T, Error> {
        let doing = "cannot start a sandbox";
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut slots[usize::from(network)];
        for attempt in 0..2 {
            let ready = match slot {
                Some(ready) if !process::is_dead(ready.launcher.pidfd()) => ready,
                _ => {
                    let (launcher, found, networks) =
                        self.ask(network).map_err(Error::system("cannot start the launcher"))?;
                    let less =
                        |first: &LauncherCapabilities| first.0 != found.0 || (!network && first.1 != found.1);
                    if self.found.get().is_some_and(less) {
                        let source = std::io::Error::other("the kernel gives fewer namespaces than before");
                        return Err(Error::System { doing, source });
                    }
                    if !network {
                        *self.networks.lock().unwrap_or_else(PoisonError::into_inner) = networks;
                    }
                    slot.insert(ReadyLauncher { launcher, made: LauncherTemplates::default() })
                }
            };
            match act(ready) {
                // It is gone, going, or does not answer: another one takes its place, once.
                Err(error) if attempt == 0 && is_loss(&error) => *slot = None,
                result => return result.map_err(Error::system(doing)),
            }
        }
        Err(Error::System { doing, source: std::io::ErrorKind::BrokenPipe.into() })
    }
}

/// Has the thread start a launcher. Should the thread be gone, the reply's sender is dropped with
/// the request and the receiver returns an error.
fn request_launch(starter: &Starter, kind: LauncherKind) -> std::io::Result<Receiver<LaunchResult>> {
    let (reply, answer) = sync_channel(1);
    starter.send(StarterRequest::Launch { kind, reply })?;
    Ok(answer)
}

/// Whether an error means that the launcher was lost before it got the request. Later errors cause
/// no second request: a command must not run twice.
fn is_loss(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected)
}

fn launch(kind: LauncherKind, no_namespaces: bool, watchdog: &Mutex<Option<Watchdog>>) -> LaunchResult {
    let launcher = Launcher::start()?;
    let network = kind == LauncherKind::Network;
    if kind == LauncherKind::OneShot {
        // Where it cannot, the engine starts one otherwise.
        *watchdog.lock().unwrap_or_else(PoisonError::into_inner) = launcher.watchdog().ok();
    }
    let found = if no_namespaces {
        (NamespaceSupport::None("switched off".to_owned()), Err("no network namespace".to_owned()))
    } else {
        let uid = rustix::process::getuid().as_raw();
        let gid = rustix::process::getgid().as_raw();
        host::enter(&launcher, uid, gid, network)
    };
    if matches!(found.0, NamespaceSupport::None(_)) && !no_namespaces {
        // The first launcher may be in a user namespace in which its uid is not mapped.
        return Ok((Launcher::start()?, found, None));
    }
    let networks = match network || found.1.is_err() {
        true => None,
        false if kind == LauncherKind::OneShot => Some(Networks::of_launcher(&launcher)?),
        false => Some(Networks::start(&launcher)?),
    };
    Ok((launcher, found, networks))
}
