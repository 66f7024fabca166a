//! What an active run is doing, on request of a caller: its processes, what each waits for, and
//! since when it has had no output.
//!
//! An inspection from outside, as short as [`super::look`]'s and as bounded: nothing is stopped, no
//! memory of the job is read but that of Python interpreters (`python`), and what cannot be known
//! is not guessed. Between two reads a process may have gone; then it is not listed.

use std::fs;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::monotonic_nanoseconds;
use serde::Serialize;

use super::kept_inspection::{CommandInspection, Moves};
use super::look::{ProcDirectory, command_of, has_finished, leading};
use super::proc_files::{children, read};
use super::python;
use super::run::SharedRun;
use crate::model::{PythonThread, Tier, WaitingChild, WaitingFor, serialize_waiting};

/// Processes that are listed, from the first on.
const MAX_PROCESSES: usize = 64;
/// How long the stacks of a run's interpreters may take to be read; they take a millisecond.
const STACK_READ_TIMEOUT_NANOSECONDS: u64 = 100_000_000;
/// Milliseconds for which nothing was used from which on it is worth saying.
const MIN_REPORTED_AGE_MS: u64 = 1_000;

/// What a run is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunInspection {
    /// What its command waits for, or `cpu` where it computes; `None` where that cannot be known.
    #[serde(serialize_with = "serialize_waiting")]
    pub waiting_for: Option<WaitingFor>,
    /// Milliseconds since its latest output, or since its start where there was none.
    pub quiet_ms: u64,
    /// Processor time so far in milliseconds, of all its processes, ended ones too.
    pub cpu_ms: u64,
    /// For how many milliseconds at least that has not grown: since the first inspection that found
    /// this value. `None` if it was not sampled before.
    pub cpu_age_ms: Option<u64>,
    /// Bytes that those of its processes that live have read and written, from and to files, pipes
    /// and sockets; `None` if the kernel does not report them.
    pub io_bytes: Option<u64>,
    /// For how many milliseconds at least these have not moved.
    pub io_age_ms: Option<u64>,
    /// The command, then what it has started, in the order of the tree: the first 64.
    pub processes: Vec<ProcessInspection>,
    /// There are more.
    pub truncated: bool,
}

/// One process of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProcessInspection {
    /// Its number inside the sandbox.
    pub pid: u32,
    /// How far it is from the command, which is 0.
    pub depth: usize,
    /// What it calls itself, at most 15 bytes.
    pub name: String,
    /// The number of its threads.
    pub threads: u64,
    /// What its first thread waits for; `None` if that is not visible.
    #[serde(serialize_with = "serialize_waiting")]
    pub waiting_for: Option<WaitingFor>,
    /// What each of its threads waits for of which that is known, the first thread first. The
    /// sentence names them if they differ.
    #[serde(skip)]
    pub threads_wait_for: Vec<WaitingFor>,
    /// The kernel's function in which its first thread waits, such as `do_wait`; see
    /// proc_pid_wchan(5).
    pub wait_channel: Option<String>,
    /// Its own processor time in milliseconds.
    pub cpu_ms: u64,
    /// Bytes that it, and children that it has reaped, have read and written.
    pub io_bytes: Option<u64>,
    /// Where it is CPython (3.9 to 3.13) and could be read: the stack of each of its threads, the
    /// oldest thread first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<PythonThread>,
}

impl RunInspection {
    /// The same in a sentence.
    pub fn sentence(&self) -> String {
        let doing = match self.waiting_for {
            Some(WaitingFor::Stdin) => "waits for input on stdin",
            Some(WaitingFor::Sleep) => "sleeps",
            Some(WaitingFor::Network) => "waits for the network",
            Some(WaitingFor::Child) => "waits for a process that it started",
            Some(WaitingFor::Cpu) => "computes",
            Some(WaitingFor::Io) => "waits for a disk or another device",
            Some(WaitingFor::Stopped) => "is stopped",
            Some(WaitingFor::Lock) => "waits for a lock",
            Some(WaitingFor::Pipe) => "waits for the other end of a pipe",
            None => "waits for something that cannot be seen from outside",
        };
        let below = match (self.waiting_for, innermost(&self.processes)) {
            (Some(WaitingFor::Child), Some(process)) => {
                let wait = process.waiting_for.map(describe_wait).unwrap_or_default();
                format!(" ({}, {wait})", process.name)
            }
            (None, _) => {
                let channel = self.processes.first().and_then(|process| process.wait_channel.as_deref());
                channel.map_or(String::new(), |channel| format!(" (in the kernel's {channel})"))
            }
            _ => String::new(),
        };
        let ages =
            [(self.cpu_age_ms, "used no processor time"), (self.io_age_ms, "read and written nothing")];
        let still: String = ages
            .into_iter()
            .filter_map(|(age, what)| Some((age.filter(|age| *age >= MIN_REPORTED_AGE_MS)?, what)))
            .map(|(age, what)| format!(" It has {what} for {}.", time(age)))
            .collect();
        let threads =
            self.processes.first().map_or(String::new(), |first| differing(&first.threads_wait_for));
        let frame = self.processes.iter().find_map(|process| process.python.first()?.user_frame());
        let python_location = frame.map_or(String::new(), |frame| format!(" Python is in {frame}."));
        format!(
            "It {doing}{below}{threads}, has printed nothing for {}, and used {} of processor time.{still}{python_location}",
            time(self.quiet_ms),
            time(self.cpu_ms)
        )
    }
}

/// ` (its first thread: a lock; 2 others: a lock; 1 other: sleep)`; nothing where all wait for the
/// same.
pub(super) fn differing(threads: &[WaitingFor]) -> String {
    let Some((first, others)) = threads.split_first() else { return String::new() };
    if others.iter().all(|other| other == first) {
        return String::new();
    }
    let mut counts: Vec<(WaitingFor, usize)> = Vec::new();
    for other in others {
        match counts.iter_mut().find(|(what, _)| what == other) {
            Some((_, count)) => *count += 1,
            None => counts.push((*other, 1)),
        }
    }
    let each = |(what, count): (WaitingFor, usize)| {
        format!("; {count} other{}: {}", if count == 1 { "" } else { "s" }, noun(what))
    };
    let others: String = counts.into_iter().map(each).collect();
    format!(" (its first thread: {}{others})", noun(*first))
}

fn noun(waiting_for: WaitingFor) -> &'static str {
    match waiting_for {
        WaitingFor::Stdin => "stdin",
        WaitingFor::Sleep => "sleep",
        WaitingFor::Network => "the network",
        WaitingFor::Child => "a child process",
        WaitingFor::Cpu => "computing",
        WaitingFor::Io => "a device",
        WaitingFor::Stopped => "stopped",
        WaitingFor::Lock => "a lock",
        WaitingFor::Pipe => "a pipe",
    }
}

fn describe_wait(waiting_for: WaitingFor) -> &'static str {
    match waiting_for {
        WaitingFor::Stdin => "which waits for stdin",
        WaitingFor::Sleep => "which sleeps",
        WaitingFor::Network => "which waits for the network",
        WaitingFor::Child => "which waits for one of its own",
        WaitingFor::Cpu => "which computes",
        WaitingFor::Io => "which waits for a device",
        WaitingFor::Stopped => "which is stopped",
        WaitingFor::Lock => "which waits for a lock",
        WaitingFor::Pipe => "which waits for the other end of a pipe",
    }
}

/// The last process of a tree, other than the command, of which it is known what it waits for.
fn innermost(processes: &[ProcessInspection]) -> Option<&ProcessInspection> {
    processes.iter().skip(1).rfind(|process| process.waiting_for.is_some())
}

fn time(milliseconds: u64) -> String {
    if milliseconds < 1_000 {
        return format!("{milliseconds} ms");
    }
    format!("{:.1} s", milliseconds as f64 / 1_000.0)
}

/// What this run is doing at `now`, in monotonic nanoseconds.
pub(crate) fn inspect_run(run: &Arc<SharedRun>, now: u64) -> RunInspection {
    let (mut processes, truncated) = processes(run);
    let io_bytes = io_of(processes.iter().map(|(_, inspected)| inspected.io_bytes));
    let moves = moved(run, io_bytes, now);
    if let Some((_, command)) = processes.first_mut() {
        command.waiting_for = judged(command.waiting_for, &moves, now);
    }
    add_stacks(run, &mut processes, now);
    if has_finished(run) {
        processes.clear();
    }
    let processes: Vec<ProcessInspection> = processes.into_iter().map(|(_, inspected)| inspected).collect();
    let [cpu_age_ms, io_age_ms] = moves.ages_ms(now, u64::MAX);
    RunInspection {
        waiting_for: processes.first().and_then(|process| process.waiting_for),
        quiet_ms: run.quiet_for(now) / 1_000_000,
        cpu_ms: run.cpu_microseconds() / 1_000,
        cpu_age_ms,
        io_bytes,
        io_age_ms,
        truncated: truncated && !processes.is_empty(),
        processes,
    }
}

/// What the command of a run does, for a verdict that may come.
pub(super) fn note(run: &SharedRun, now: u64) -> Option<CommandInspection> {
    // The command first, and the rest only where it waits for that: it may be much, and the end is
    // near.
    let pid = command_of(run)?;
    let (threads, wait_channel) = (ProcDirectory::of(pid).threads_wait_for(), wait_channel(pid));
    if has_finished(run) {
        return None;
    }
    let waiting_for = judged(leading(&threads), &moved(run, None, now), now);
    let noted = CommandInspection { at: now, waiting_for, threads, child: None, wait_channel };
    if waiting_for != Some(WaitingFor::Child) {
        return Some(noted);
    }
    let inspected: Vec<ProcessInspection> =
        processes(run).0.into_iter().map(|(_, inspected)| inspected).collect();
    Some(match innermost(&inspected).filter(|_| !has_finished(run)) {
        Some(process) => CommandInspection {
            child: Some(WaitingChild { name: process.name.clone(), waiting_for: process.waiting_for }),
            wait_channel: process.wait_channel.clone(),
            ..noted
        },
        None => noted,
    })
}

/// Looks whether a quiet run still uses anything, and no further.
pub(super) fn measure(run: &SharedRun, now: u64) {
    let io = tree(run).0.into_iter().map(|(pid, _)| io_bytes(pid));
    moved(run, io_of(io), now);
}

/// What cannot be known of a process that reads and writes: that it is at it.
fn judged(waiting_for: Option<WaitingFor>, moves: &Moves, now: u64) -> Option<WaitingFor> {
    waiting_for.or_else(|| moves.is_at_it(now).then_some(WaitingFor::Io))
}

/// Notes what a run has used by now.
fn moved(run: &SharedRun, io_bytes: Option<u64>, now: u64) -> Moves {
    let cpu = run.cpu_microseconds();
    let mut moves = run.moves.lock().unwrap_or_else(PoisonError::into_inner);
    moves.note(cpu, io_bytes, now);
    *moves
}

/// The sum of what is known.
fn io_of(each: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    each.flatten().reduce(u64::saturating_add)
}

/// Bytes that a process has read and written; see proc_pid_io(5).
fn io_bytes(pid: u32) -> Option<u64> {
    let counters = read(&format!("/proc/{pid}/io"))?;
    let counter = |name: &str| -> Option<u64> {
        counters.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    Some(counter("rchar:")?.saturating_add(counter("wchar:")?))
}

/// Has the Python stacks of a run's first interpreter noted, without waiting for that.
pub(super) fn note_stacks(run: Arc<SharedRun>) {
    if !may_be_read(&run) {
        return;
    }
    // Where all readers are at work there are none.
    python::READERS.try_spawn(move || {
        let now = monotonic_nanoseconds();
        let found = tree(&run).0.into_iter().find(|(pid, _)| python::is_python(*pid));
        if let Some((pid, _)) = found
            && let Some(stacks) = stacks_of(&run, pid, now + STACK_READ_TIMEOUT_NANOSECONDS)
        {
            run.note_stacks(now, stacks);
        }
    });
}

/// With the filter of system calls no job can leave its own memory unmapped (userfaultfd(2)), and
/// so keep a reader waiting.
fn may_be_read(run: &SharedRun) -> bool {
    run.isolation.tier != Tier::T0
}

/// Adds the Python stacks of interpreters, as far as they are read in time.
fn add_stacks(run: &Arc<SharedRun>, processes: &mut [(u32, ProcessInspection)], now: u64) {
    let interpreters: Vec<u32> =
        processes.iter().map(|(pid, _)| *pid).filter(|pid| python::is_python(*pid)).collect();
    if interpreters.is_empty() || !may_be_read(run) {
        return;
    }
    let (sender, receiver) = channel();
    let (until, reader) = (now + STACK_READ_TIMEOUT_NANOSECONDS, run.clone());
    python::READERS.try_spawn(move || {
        for pid in interpreters {
            // The caller may no longer wait.
            let _ = sender.send((pid, stacks_of(&reader, pid, until)));
        }
    });
    let left = || {
        Duration::from_nanos((until + STACK_READ_TIMEOUT_NANOSECONDS).saturating_sub(monotonic_nanoseconds()))
    };
    while let Ok((pid, stacks)) = receiver.recv_timeout(left()) {
        if let Some((_, inspected)) = processes.iter_mut().find(|(number, _)| *number == pid) {
            inspected.python = stacks.unwrap_or_default();
        }
    }
}

/// The Python stacks of a process, if it was the run's all the while: numbers are used again.
fn stacks_of(run: &SharedRun, pid: u32, until: u64) -> Option<Vec<PythonThread>> {
    let begun = || begun_at(&read(&format!("/proc/{pid}/stat"))?);
    let before = begun()?;
    let stacks = python::threads(pid, until)?;
    let is_it = tree(run).0.iter().any(|(number, _)| *number == pid) && begun() == Some(before);
    (is_it && !has_finished(run)).then_some(stacks)
}

/// When a process began, in ticks: the 22nd field of proc_pid_stat(5).
fn begun_at(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// The processes of a run with their depths, and whether there are more.
fn tree(run: &SharedRun) -> (Vec<(u32, usize)>, bool) {
    let mut open: Vec<(u32, usize)> = command_of(run).map(|pid| (pid, 0)).into_iter().collect();
    let mut found = Vec::new();
    while let Some((pid, depth)) = open.pop() {
        if found.len() == MAX_PROCESSES {
            return (found, true);
        }
        found.push((pid, depth));
        let below = ProcDirectory::of(pid).numbers("task").into_iter();
        let below = below.flat_map(|thread| children(&format!("/proc/{pid}/task/{thread}")));
        let at = open.len();
        open.extend(below.map(|child| (child, depth + 1)));
        // The first of them is inspected next.
        open[at..].reverse();
    }
    (found, false)
}

fn processes(run: &SharedRun) -> (Vec<(u32, ProcessInspection)>, bool) {
    let (found, truncated) = tree(run);
    let inspected = found.into_iter().filter_map(|(pid, depth)| Some((pid, process(pid, depth)?)));
    (inspected.collect(), truncated)
}

fn process(pid: u32, depth: usize) -> Option<ProcessInspection> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    let (head, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // Counted from the state, which is the third field of proc_pid_stat(5).
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)?;
    let threads_wait_for = ProcDirectory::of(pid).threads_wait_for();
    Some(ProcessInspection {
        pid: number_inside(pid)?,
        depth,
        // The process gives it to itself: no line of its own, and no order to a terminal.
        name: head.split_once('(')?.1.replace(char::is_control, "\u{fffd}"),
        threads: number(20)?,
        waiting_for: leading(&threads_wait_for),
        threads_wait_for,
        wait_channel: wait_channel(pid),
        cpu_ms: ticks * 1_000 / rustix::param::clock_ticks_per_second(),
        io_bytes: io_bytes(pid),
        python: Vec::new(),
    })
}

/// The kernel's function in which its first thread waits; see proc_pid_wchan(5).
fn wait_channel(pid: u32) -> Option<String> {
    read(&format!("/proc/{pid}/wchan")).filter(|name| !name.is_empty() && name != "0")
}

/// Its number in the innermost namespace.
fn number_inside(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}
