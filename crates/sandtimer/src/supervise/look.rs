//! What a command was waiting for, inspected from outside shortly before its limit ends it.
//!
//! This is only a sample: a process continues between two reads, and if the kernel does not show
//! what it waits for there is no answer. It decides nothing. Every read is bounded, and none is of
//! the job's memory, which can keep its reader waiting.

use std::fs;
use std::os::fd::AsFd;

use sandtimer_os::process;

use super::proc_files::{children, number_of, read};
use super::run::SharedRun;
use crate::model::WaitingFor;

/// Threads and descriptors that are inspected; a process with more is judged by its first ones.
const MAX_INSPECTED: usize = 64;

/// System calls in which processes wait, by their numbers on x86_64.
mod call {
    pub(super) const READ: u64 = 0;
    pub(super) const WRITE: u64 = 1;
    pub(super) const POLL: u64 = 7;
    pub(super) const READV: u64 = 19;
    pub(super) const WRITEV: u64 = 20;
    pub(super) const SELECT: u64 = 23;
    pub(super) const PAUSE: u64 = 34;
    pub(super) const NANOSLEEP: u64 = 35;
    pub(super) const SENDFILE: u64 = 40;
    pub(super) const CONNECT: u64 = 42;
    pub(super) const ACCEPT: u64 = 43;
    pub(super) const SENDTO: u64 = 44;
    pub(super) const RECVFROM: u64 = 45;
    pub(super) const SENDMSG: u64 = 46;
    pub(super) const RECVMSG: u64 = 47;
    pub(super) const CLONE: u64 = 56;
    pub(super) const VFORK: u64 = 58;
    pub(super) const WAIT4: u64 = 61;
    pub(super) const SEMOP: u64 = 65;
    pub(super) const FCNTL: u64 = 72;
    pub(super) const FLOCK: u64 = 73;
    pub(super) const RT_SIGSUSPEND: u64 = 130;
    pub(super) const FUTEX: u64 = 202;
    pub(super) const SEMTIMEDOP: u64 = 220;
    pub(super) const CLOCK_NANOSLEEP: u64 = 230;
    pub(super) const EPOLL_WAIT: u64 = 232;
    pub(super) const WAITID: u64 = 247;
    pub(super) const PSELECT6: u64 = 270;
    pub(super) const PPOLL: u64 = 271;
    pub(super) const SPLICE: u64 = 275;
    pub(super) const EPOLL_PWAIT: u64 = 281;
    pub(super) const ACCEPT4: u64 = 288;
    pub(super) const RECVMMSG: u64 = 299;
    pub(super) const SENDMMSG: u64 = 307;
    pub(super) const COPY_FILE_RANGE: u64 = 326;
    pub(super) const CLONE3: u64 = 435;
    pub(super) const EPOLL_PWAIT2: u64 = 441;
    pub(super) const FUTEX_WAITV: u64 = 449;
}

/// What the command of this run waits for; `None` where that cannot be known.
pub(crate) fn inspect_wait(run: &SharedRun) -> Option<WaitingFor> {
    let waiting_for = ProcDirectory::of(command_of(run)?).waits_for();
    waiting_for.filter(|_| !has_finished(run))
}

/// The command of this run, by its number on the host.
pub(super) fn command_of(run: &SharedRun) -> Option<u32> {
    if let Some(job) = &run.job {
        return number_of(job.pidfd.as_fd());
    }
    let init = number_of(run.pidfd.as_fd())?;
    // The command is the first process that init made; orphans come after it.
    children(&format!("/proc/{init}/task/{init}")).first().copied()
}

/// PIDs are reused: what was read belongs to this run if the run has not ended by now.
pub(super) fn has_finished(run: &SharedRun) -> bool {
    process::is_dead(run.job.as_ref().map_or(&run.pidfd, |job| &job.pidfd).as_fd())
}

/// A process by its directory in /proc.
pub(super) struct ProcDirectory(String);

impl ProcDirectory {
    pub(super) fn of(pid: u32) -> Self {
        ProcDirectory(format!("/proc/{pid}"))
    }

    pub(super) fn waits_for(&self) -> Option<WaitingFor> {
        leading(&self.threads_wait_for())
    }

    /// What each of its threads waits for of which that is known, the first thread first.
    pub(super) fn threads_wait_for(&self) -> Vec<WaitingFor> {
        let threads: Vec<(String, char)> = self
            .numbers("task")
            .into_iter()
            .filter_map(|number| {
                let path = format!("{}/task/{number}", self.0);
                let state = state(&read(&format!("{path}/stat"))?)?;
                Some((path, state))
            })
            .collect();
        if threads.iter().any(|(_, state)| *state == 'R') {
            return vec![WaitingFor::Cpu];
        }
        let waits = threads.iter().filter_map(|(path, state)| match state {
            'T' | 't' => Some(WaitingFor::Stopped),
            'D' => match call_of(path) {
                Some(SystemCall::In(call::CLONE | call::VFORK | call::CLONE3, _)) => Some(WaitingFor::Child),
                _ => Some(WaitingFor::Io),
            },
            'S' => match call_of(path) {
                Some(SystemCall::Running) => Some(WaitingFor::Cpu),
                Some(SystemCall::In(number, arguments)) => {
                    self.waits_in(number, arguments).or_else(|| wait_of_channel(path))
                }
                None => wait_of_channel(path),
            },
            _ => None,
        });
        waits.collect()
    }

    /// What it waits for in a system call.
    fn waits_in(&self, number: u64, arguments: [u64; 6]) -> Option<WaitingFor> {
        let [first, second, third, fourth, fifth, _] = arguments;
        match number {
            call::NANOSLEEP | call::CLOCK_NANOSLEEP => Some(WaitingFor::Sleep),
            call::WAIT4 | call::WAITID => Some(WaitingFor::Child),
            // How some shells wait.
            call::PAUSE | call::RT_SIGSUSPEND => self.has_children().then_some(WaitingFor::Child),
            call::CONNECT | call::ACCEPT | call::ACCEPT4 | call::SENDTO | call::SENDMSG | call::SENDMMSG => {
                Some(WaitingFor::Network)
            }
            call::READ | call::READV | call::RECVFROM | call::RECVMSG | call::RECVMMSG => {
                self.waits_on(first)
            }
            call::SPLICE | call::COPY_FILE_RANGE => self.waits_on(first),
            call::SENDFILE => self.waits_on(second),
            call::WRITE | call::WRITEV => match self.descriptor(first) {
                Descriptor::Socket => Some(WaitingFor::Network),
                Descriptor::Pipe => Some(WaitingFor::Pipe),
                _ => None,
            },
            call::FUTEX | call::FUTEX_WAITV | call::FLOCK | call::FCNTL | call::SEMOP | call::SEMTIMEDOP => {
                Some(WaitingFor::Lock)
            }
            call::POLL => self.waits_on_any(second, third as i32 >= 0),
            call::PPOLL => self.waits_on_any(second, third != 0),
            call::SELECT | call::PSELECT6 => match first {
                1 => Some(WaitingFor::Stdin),
                _ => self.waits_on_any(first, fifth != 0),
            },
            call::EPOLL_WAIT | call::EPOLL_PWAIT => self.waits_on_epoll(first, fourth as i32 >= 0),
            call::EPOLL_PWAIT2 => self.waits_on_epoll(first, fourth != 0),
            _ => None,
        }
    }

    /// What reading this descriptor waits for.
    fn waits_on(&self, descriptor: u64) -> Option<WaitingFor> {
        match self.descriptor(descriptor) {
            Descriptor::Input => Some(WaitingFor::Stdin),
            Descriptor::Socket => Some(WaitingFor::Network),
            Descriptor::Timer => Some(WaitingFor::Sleep),
            Descriptor::Process => Some(WaitingFor::Child),
            Descriptor::Pipe if self.has_children() => Some(WaitingFor::Child),
            Descriptor::Pipe => Some(WaitingFor::Pipe),
            Descriptor::Other => None,
        }
    }

    /// What poll or select waits for. Which descriptors it names is in the job's memory, so all
    /// that it could name count.
    fn waits_on_any(&self, count: u64, timed: bool) -> Option<WaitingFor> {
        let open = if count == 0 { Vec::new() } else { self.numbers("fd") };
        self.agreed(open.into_iter().filter(|descriptor| ![1, 2].contains(descriptor)), timed)
    }

    fn waits_on_epoll(&self, epoll: u64, timed: bool) -> Option<WaitingFor> {
        let information = read(&format!("{}/fdinfo/{epoll}", self.0))?;
        let watched = information
            .lines()
            .filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok());
        self.agreed(watched.take(MAX_INSPECTED), timed)
    }

    /// What a wait on several descriptors is for, if they agree; if none gives a reason, for its
    /// time to pass. A local socket gives no reason, and a pipe only if nothing else does: event
    /// loops wake themselves through one.
    fn agreed(&self, descriptors: impl Iterator<Item = u64>, timed: bool) -> Option<WaitingFor> {
        let (mut agreed, mut pipe) = (None, None);
        for descriptor in descriptors {
            if self.descriptor(descriptor) == Descriptor::Socket && self.is_local_socket(descriptor) {
                continue;
            }
            let Some(found) = self.waits_on(descriptor) else { continue };
            if found == WaitingFor::Pipe {
                pipe = Some(found);
                continue;
            }
            if *agreed.get_or_insert(found) != found {
                return None;
            }
        }
        agreed.or(timed.then_some(WaitingFor::Sleep)).or(pipe)
    }

    fn descriptor(&self, number: u64) -> Descriptor {
        let Some(target) = self.target(number) else { return Descriptor::Other };
        let kind = kind(&target);
        // A copy of stdin is stdin.
        let is_input = || number == 0 || self.target(0).as_ref() == Some(&target);
        if kind != Descriptor::Other && is_input() { Descriptor::Input } else { kind }
    }

    fn target(&self, number: u64) -> Option<String> {
        let target = fs::read_link(format!("{}/fd/{number}", self.0)).ok()?;
        Some(target.to_string_lossy().into_owned())
    }

    fn is_local_socket(&self, number: u64) -> bool {
        let target = self.target(number).unwrap_or_default();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        let local = read(&format!("{}/net/unix", self.0)).unwrap_or_default();
        inode.is_some_and(|inode| local.lines().any(|line| line.split_whitespace().nth(6) == Some(inode)))
    }

    fn has_children(&self) -> bool {
        let threads = self.numbers("task").into_iter();
        threads.map(|number| format!("{}/task/{number}", self.0)).any(|thread| !children(&thread).is_empty())
    }

    /// The first entries of one of its directories, in order.
    pub(super) fn numbers(&self, directory: &str) -> Vec<u64> {
        let entries = fs::read_dir(format!("{}/{directory}", self.0)).into_iter().flatten().flatten();
        entries.take(MAX_INSPECTED).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }
}

/// What a process waits for as a whole: its first thread, but threads wait for locks of one
/// another, and then the wait of another thread explains more. A thread that only sleeps explains
/// one that waits for it, and not several that wait for locks.
pub(super) fn leading(threads: &[WaitingFor]) -> Option<WaitingFor> {
    let (first, others) = threads.split_first()?;
    if *first != WaitingFor::Lock {
        return Some(*first);
    }
    let more_specific = others.iter().find(|other| !matches!(other, WaitingFor::Lock | WaitingFor::Sleep));
    let is_deadlock = others.contains(&WaitingFor::Lock);
    let sleeps = others.first().filter(|_| !is_deadlock);
    Some(*more_specific.or(sleeps).unwrap_or(first))
}

/// What a descriptor is, as far as waiting on it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Descriptor {
    /// Stdin, or a terminal.
    Input,
    Socket,
    Pipe,
    Timer,
    /// A pidfd.
    Process,
    Other,
}

fn kind(target: &str) -> Descriptor {
    if target.starts_with("socket:") {
        Descriptor::Socket
    } else if target.starts_with("pipe:") {
        Descriptor::Pipe
    } else if target == "/dev/tty" || target.starts_with("/dev/pts/") {
        Descriptor::Input
    } else if target == "anon_inode:[timerfd]" {
        Descriptor::Timer
    } else if target == "anon_inode:[pidfd]" || target.starts_with("pidfd:") {
        Descriptor::Process
    } else {
        Descriptor::Other
    }
}

/// The state's letter in `/proc/<pid>/stat`. The name before it may hold anything; the last
/// parenthesis closes it.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The wait by the kernel's function in which a thread waits, if its system call does not show it:
/// for named pipes, or where calls have other numbers.
fn wait_of_channel(thread: &str) -> Option<WaitingFor> {
    let channel = read(&format!("{thread}/wchan"))?;
    let is_one_of = |names: &[&str]| names.iter().any(|name| channel.contains(name));
    match () {
        () if is_one_of(&["pipe_", "fifo_open", "wait_for_partner"]) => Some(WaitingFor::Pipe),
        () if is_one_of(&["futex", "locks_lock", "flock", "posix_lock"]) => Some(WaitingFor::Lock),
        () if is_one_of(&["do_wait", "kernel_wait"]) => Some(WaitingFor::Child),
        () if is_one_of(&["nanosleep"]) => Some(WaitingFor::Sleep),
        () => None,
    }
}

/// What `/proc/<pid>/syscall` shows.
#[derive(Debug, PartialEq, Eq)]
enum SystemCall {
    Running,
    /// Its number and its arguments.
    In(u64, [u64; 6]),
}

fn call_of(thread: &str) -> Option<SystemCall> {
    parse_call(&read(&format!("{thread}/syscall"))?)
}

fn parse_call(text: &str) -> Option<SystemCall> {
    if text.trim() == "running" {
        return Some(SystemCall::Running);
    }
    let mut fields = text.split_whitespace();
    let number = fields.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some(SystemCall::In(number, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_proc_are_read_whatever_is_in_them() {
        assert_eq!(state("7 (a) R (b)) S 1 7 7"), Some('S'));
        assert_eq!(state("7 (sh"), None);
        let call = parse_call("230 0x0 0x1 0x7ffe 0x0 0x0 0x0 0x7ffe 0x7f93\n");
        assert_eq!(call, Some(SystemCall::In(230, [0, 1, 0x7ffe, 0, 0, 0])));
        assert_eq!(parse_call("running\n"), Some(SystemCall::Running));
        for nothing in ["", "-1 0x7ffe 0x7f93\n", "0 0x1", "x 0x0 0x0 0x0 0x0 0x0 0x0"] {
            assert_eq!(parse_call(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn first_thread_leads_unless_another_explains_its_lock() {
        use WaitingFor::{Lock, Network, Sleep};
        for (threads, expected) in [
            (&[][..], None),
            (&[Lock, Sleep], Some(Sleep)),
            (&[Lock, Lock], Some(Lock)),
            (&[Lock, Lock, Sleep], Some(Lock)),
            (&[Lock, Sleep, Lock, Lock], Some(Lock)),
            (&[Lock, Lock, Network], Some(Network)),
            (&[Sleep, Lock, Lock], Some(Sleep)),
        ] {
            assert_eq!(leading(threads), expected, "{threads:?}");
        }
    }

    #[test]
    fn descriptor_kinds_are_distinguished() {
        for (target, expected) in [
            ("socket:[1]", Descriptor::Socket),
            ("pipe:[1]", Descriptor::Pipe),
            ("/dev/pts/3", Descriptor::Input),
            ("anon_inode:[timerfd]", Descriptor::Timer),
            ("anon_inode:[pidfd]", Descriptor::Process),
            ("anon_inode:[eventfd]", Descriptor::Other),
            ("/dev/null", Descriptor::Other),
        ] {
            assert_eq!(kind(target), expected, "{target}");
        }
    }
}
