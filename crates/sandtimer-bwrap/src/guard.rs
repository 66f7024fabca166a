//! The guard: to the engine a sandbox's init, to the command the process that ends what it leaves.
//!
//! It is a copy of the caller, made while that has a single thread, in a session of its own: what
//! signals the caller's process group does not reach it. It is outside of the command's control
//! group and namespaces. States: waiting for [`StartRequest`], running, ending. It ends when the
//! command has ended, at its own deadline, by a command of the engine, and if the caller is gone.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::fork::{
    Child, CloneRequest, clone_process, has_children, reap_any, signal_child, watch_children,
};
use sandtimer_os::process::End;
use sandtimer_os::wire::{INIT_SLACK_NANOSECONDS, order};
use sandtimer_os::{descriptors, socket, thread};

use crate::failure::BwrapFailure;
use crate::message::{Message, kind};
use crate::mount_points::MountPointList;
use crate::options::BwrapOptions;
use crate::processes;
use crate::rlimits::{PROCESS_RLIMITS, ProcessRlimit};
use crate::setup::{Ids, Setup};

mod birth;
mod engine;

use birth::StartParameters;
use engine::Notices;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCHLD: i32 = 17;

/// The caller's side of the guard.
#[derive(Debug)]
pub struct BwrapGuard {
    pub pidfd: OwnedFd,
    /// The socket for the engine's commands and the notices to it.
    pub control: OwnedFd,
    /// By which the command is started, and events are received.
    guard: OwnedFd,
    proceed: OwnedFd,
}

/// What a command is started with.
#[derive(Debug, Clone, Copy)]
pub struct StartRequest<'a> {
    /// The v2 group to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// `tasks` files of v1 groups to enter.
    pub tasks: &'a [OwnedFd],
    /// In place of stdout and stderr.
    pub outputs: [Option<BorrowedFd<'a>>; 2],
    /// Nanoseconds from its start until it is ended, and until all of it is dead from then on.
    pub wall: u64,
    pub grace: u64,
    pub limits: &'a [(ProcessRlimit, u64)],
}

/// What the guard reports to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardEvent {
    Started,
    NotExecuted,
}

impl BwrapGuard {
    /// Makes the guard, in which everything that this process was started with is kept for the
    /// command. `kept` are the descriptors that this process keeps as well.
    ///
    /// # Errors
    /// As fork(2) and socketpair(2), and when this process has other threads.
    pub fn start(options: Box<BwrapOptions>, kept: &[i32]) -> Result<Self, BwrapFailure> {
        watch_children();
        let cannot = |error: io::Error| BwrapFailure::because("Can't fork the guard", error);
        let terminal = terminal();
        let proc = openat(CWD, "/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| BwrapFailure::because("Can't open /proc", error))?;
        let (control, guard_engine) = socket::pair().map_err(cannot)?;
        let (guard, guard_caller) = socket::pair().map_err(cannot)?;
        let (setup, setup_guard) = socket::pair().map_err(cannot)?;
        let (waits, proceed) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| cannot(error.into()))?;
        let own = Ids::of_caller();
        let ours = [&control, &guard, &proceed].map(AsRawFd::as_raw_fd);
        let child = clone_process(CloneRequest::default(), || {
            for fd in ours {
                descriptors::close_inherited(fd);
            }
            let builder = Setup {
                options,
                guard: setup_guard,
                proceed: waits,
                proc,
                terminal,
                limits: Vec::new(),
                own,
            };
            PendingGuard { caller: guard_caller, engine: guard_engine, setup, builder }.main()
        });
        let child = child.map_err(cannot)?;
        let own = [&control, &guard, &proceed, &child.pidfd].map(AsRawFd::as_raw_fd);
        descriptors::close_others(&own.into_iter().chain(kept.iter().copied()).collect::<Vec<_>>());
        Ok(BwrapGuard { pidfd: child.pidfd, control, guard, proceed })
    }

    /// Starts the command's setup in the guard; returns its PID. The setup waits for
    /// [`BwrapGuard::proceed`].
    ///
    /// # Errors
    /// If the guard has ended; it has then reported the reason on stderr.
    pub fn begin(&self, begin: &StartRequest<'_>) -> io::Result<i32> {
        if let Some(cgroup) = begin.cgroup {
            Message::of(kind::CGROUP).send(&self.guard, Some(cgroup))?;
        }
        for file in begin.tasks {
            Message::of(kind::TASKS).send(&self.guard, Some(file.as_fd()))?;
        }
        for (number, output) in (1u64..).zip(begin.outputs) {
            if output.is_some() {
                Message::with(kind::OUTPUT, &[number]).send(&self.guard, output)?;
            }
        }
        for (which, most) in begin.limits {
            let number = PROCESS_RLIMITS.iter().position(|known| known == which).unwrap_or_default();
            Message::with(kind::LIMIT, &[number as u64, *most]).send(&self.guard, None)?;
        }
        Message::with(kind::GO, &[begin.wall, begin.grace]).send(&self.guard, None)?;
        match Message::receive(&self.guard, true)? {
            Some((Message { kind: kind::CREATED, values, .. }, _)) => Ok(values[0] as i32),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Lets the setup begin.
    ///
    /// # Errors
    /// When it has ended.
    pub fn proceed(&self) -> io::Result<()> {
        rustix::io::write(&self.proceed, b"1")?;
        Ok(())
    }

    /// What was reported since; never blocks.
    pub fn events(&self) -> Vec<GuardEvent> {
        let mut events = Vec::new();
        while let Ok(Some((message, _))) = Message::receive(&self.guard, false) {
            match message.kind {
                kind::STARTED => events.push(GuardEvent::Started),
                kind::NOT_EXECUTED => events.push(GuardEvent::NotExecuted),
                _ => {}
            }
        }
        events
    }
}

/// The terminal at stdout, which `--dev` shows as the console.
fn terminal() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let name = rustix::termios::ttyname(rustix::stdio::stdout(), Vec::new()).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(name.as_bytes())))
}

/// The guard before there is a command.
struct PendingGuard {
    caller: OwnedFd,
    engine: OwnedFd,
    setup: OwnedFd,
    builder: Setup,
}

impl PendingGuard {
    fn main(self) -> i32 {
        let messages = self.builder.options.messages;
        let Some(parameters) = self.wait() else { return 1 };
        let PendingGuard { caller, engine, setup, builder } = self;
        let (wall, grace) = (parameters.wall, parameters.grace);
        let is_init = builder.options.has_init();
        let child = match birth::start(builder, parameters, &setup) {
            Ok(child) => child,
            Err(failure) => {
                messages.error(&failure);
                return 1;
            }
        };
        let name = c"st-guard";
        // For people who look at a list of processes.
        let _ = rustix::thread::set_name(name);
        // Fails only for the leader of a group, which a copy is not.
        let _ = rustix::process::setsid();
        // Blocked before anything can send one.
        thread::block_signals();
        let Ok(signals) = thread::signal_descriptor(&[SIGCHLD, SIGTERM]) else { return 1 };
        let own = [&caller, &engine, &setup, &signals, &child.pidfd].map(AsRawFd::as_raw_fd);
        descriptors::close_others(&own);
        release_standard_streams();
        let _ = Message::with(kind::CREATED, &[child.pid as u64]).send(&caller, None);
        let notices = Notices::new(engine);
        let guard = ActiveGuard {
            child,
            is_init,
            caller,
            setup: Some(setup),
            signals,
            notices,
            made: MountPointList::default(),
            end: None,
            deadline: u64::MAX,
            wall,
            grace,
        };
        guard.serve()
    }

    /// Waits for what the caller gives; `None` if it is gone.
    fn wait(&self) -> Option<StartParameters> {
        let mut given = StartParameters::default();
        loop {
            let (message, fd) = Message::receive(&self.caller, true).ok()??;
            match message.kind {
                kind::CGROUP => given.cgroup = fd,
                kind::TASKS => given.tasks.extend(fd),
                kind::OUTPUT => given.outputs[(message.values[0] == 2) as usize] = fd,
                kind::LIMIT => {
                    let [number, most, ..] = message.values;
                    given.limits.extend(PROCESS_RLIMITS.get(number as usize).map(|which| (*which, most)));
                }
                kind::GO => {
                    let [wall, grace, ..] = message.values;
                    return Some(StartParameters { wall, grace, ..given });
                }
                _ => {}
            }
        }
    }
}

/// Pipes of the caller must not stay open because the guard has them.
fn release_standard_streams() {
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    for number in 0..3 {
        match &null {
            Ok(null) => drop(descriptors::replace(number, null)),
            Err(_) => descriptors::close_inherited(number),
        }
    }
}

/// The guard of a command.
struct ActiveGuard {
    child: Child,
    /// The child is an init, and reports how the command ended.
    is_init: bool,
    caller: OwnedFd,
    /// To the setup and the init; `None` once both ends there are closed, as the command's
    /// execution does without an init.
    setup: Option<OwnedFd>,
    signals: OwnedFd,
    notices: Notices,
    made: MountPointList,
    /// How the command ended, as the init reports.
    end: Option<End>,
    deadline: u64,
    wall: u64,
    grace: u64,
}

impl ActiveGuard {
    /// Waits for whatever comes first; returns what this process exits with.
    fn serve(mut self) -> i32 {
        // It may have died before its signal was blocked.
        if self.handle_signals() {
            return self.finish();
        }
        loop {
            let ready = {
                let mut fds = vec![
                    PollFd::new(&self.notices, PollFlags::IN),
                    PollFd::new(&self.signals, PollFlags::IN),
                ];
                fds.extend(self.setup.as_ref().map(|setup| PollFd::new(setup, PollFlags::IN)));
                let left = self.deadline.saturating_sub(monotonic_nanoseconds());
                let timeout = Timespec {
                    tv_sec: (left / 1_000_000_000) as i64,
                    tv_nsec: (left % 1_000_000_000) as i64,
                };
                let _ = poll(&mut fds, (self.deadline != u64::MAX).then_some(&timeout));
                let is_ready = |number: usize| fds.get(number).is_some_and(|fd| !fd.revents().is_empty());
                [is_ready(0), is_ready(1), is_ready(2)]
            };
            if ready[0] && !self.handle_commands() {
                return self.finish();
            }
            if ready[2] {
                self.read_reports();
            }
            if monotonic_nanoseconds() >= self.deadline {
                self.notices.fired(self.alive());
                return self.finish();
            }
            if ready[1] && self.handle_signals() {
                return self.finish();
            }
        }
    }

    /// Processes of the command that are alive, its init left out.
    fn alive(&self) -> u64 {
        // The usual end, in which nothing is left: a list of all processes would cost more than
        // everything else.
        if !has_children() {
            return 0;
        }
        let all = processes::descendants(std::process::id().cast_signed());
        all.iter().filter(|process| !self.is_init || process.pid != self.child.pid).count() as u64
    }

    /// Returns false if the engine is gone, or commands the end.
    fn handle_commands(&mut self) -> bool {
        loop {
            let command = match self.notices.next_command() {
                Ok(Some(command)) => command,
                Ok(None) => return false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            };
            match command.kind {
                order::DEADLINE => {
                    let end = command.value.saturating_add(INIT_SLACK_NANOSECONDS);
                    self.deadline = if command.argument == 1 { self.deadline.min(end) } else { end };
                }
                order::SIGNAL_ALL => self.signal(command.argument, false),
                order::SIGNAL_MAIN => self.signal(command.argument, true),
                order::SAMPLE => {
                    let own = std::process::id().cast_signed();
                    self.notices.sample(processes::sample(&processes::descendants(own)));
                }
                order::END => return false,
                _ => {}
            }
        }
    }

    /// Signals the command's processes; from outside its namespace the init ignores all but
    /// SIGKILL.
    fn signal(&self, signal: i32, only_command: bool) {
        let first = match self.is_init {
            true => self.child.pid,
            false if only_command => return signal_child(self.child.pid, signal),
            false => std::process::id().cast_signed(),
        };
        let all = processes::descendants(first);
        let to = all.iter().filter(|process| !only_command || process.is_child_of(first));
        to.for_each(|process| process.signal(signal));
    }

    fn read_reports(&mut self) {
        while let Some(setup) = &self.setup {
            let (message, fd) = match Message::receive(setup, false) {
                Ok(Some(received)) => received,
                // Closed: poll(2) would report it for ever.
                Ok(None) => {
                    self.setup = None;
                    return;
                }
                Err(_) => return,
            };
            match message.kind {
                kind::STARTED => {
                    let started = message.values[0];
                    let hard = started.saturating_add(self.wall).saturating_add(self.grace);
                    self.deadline = self.deadline.min(hard.saturating_add(INIT_SLACK_NANOSECONDS));
                    self.notices.started(started);
                    let _ = message.send(&self.caller, None);
                }
                kind::NOT_EXECUTED => drop(message.send(&self.caller, None)),
                kind::EXITED => {
                    let [status, user_microseconds, system_microseconds, resident_peak_kib, ..] =
                        message.values;
                    let status = (status as u32).cast_signed();
                    self.end =
                        Some(End { status, user_microseconds, system_microseconds, resident_peak_kib });
                }
                _ => self.made.note(message, fd),
            }
        }
    }

    /// Reaps; true if the command has ended, or SIGTERM asks for its end.
    fn handle_signals(&mut self) -> bool {
        let mut information = [0u8; 128];
        let mut has_ended = false;
        while rustix::io::read(&self.signals, &mut information) == Ok(128) {
            has_ended |= information[0] == SIGTERM as u8;
        }
        while let Some((pid, end)) = reap_any() {
            if pid == self.child.pid {
                // The init's report comes before its end.
                self.read_reports();
                let end = self.end.unwrap_or(end);
                self.notices.exited(&end, self.alive());
                has_ended = true;
            }
        }
        has_ended
    }

    /// Ends whatever is left, and removes what was made on the host.
    fn finish(mut self) -> i32 {
        let left = sweep();
        self.read_reports();
        std::mem::take(&mut self.made).remove();
        self.notices.swept(left);
        0
    }
}

/// Kills and reaps until no child is left; orphans come to this process, so each pass finds the
/// children of those that the last one killed. Returns how many are left.
fn sweep() -> u64 {
    const MAX_PASSES: usize = 1000;
    for _ in 0..MAX_PASSES {
        for pid in processes::children() {
            signal_child(pid, SIGKILL);
        }
        while reap_any().is_some() {}
        if !has_children() {
            return 0;
        }
        // The loop that reads SIGCHLD has ended, so the death of a child wakes nothing here.
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 }));
    }
    processes::children().len() as u64
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control()
    }
}
