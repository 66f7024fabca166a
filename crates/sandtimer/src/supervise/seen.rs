//! What a run is doing while it goes on, for whoever asks: its processes, what each waits for, and since when nothing came.
//!
//! A look from outside, as short as [`super::look`]'s and as bounded: nothing is stopped, no memory of the job is read, and what
//! cannot be known is not guessed. Between two reads a process may have gone; then it is not listed.

use std::fs;
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::look::{Process, children, command_of, is_over, read};
use super::run::Running;
use crate::model::WaitingFor;

/// Processes that are listed, from the first on.
const MOST: usize = 64;

/// What a run is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Look {
    /// What its command waits for, or `cpu` where it computes; `None` where that cannot be known.
    pub waiting_for: Option<WaitingFor>,
    /// Milliseconds since its latest output, or since its start where there was none.
    pub quiet_ms: u64,
    /// Processor time so far in milliseconds, of all its processes, ended ones too.
    pub cpu_ms: u64,
    /// The command, then what it has started, in the order of the tree: the first 64.
    pub processes: Vec<SeenProcess>,
    /// There are more.
    pub truncated: bool,
}

/// One process of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeenProcess {
    /// Its number inside the sandbox.
    pub pid: u32,
    /// How far it is from the command, which is 0.
    pub depth: usize,
    /// What it calls itself, at most 15 bytes.
    pub name: String,
    pub threads: u64,
    pub waiting_for: Option<WaitingFor>,
    /// The kernel's function in which its first thread waits, such as `do_wait`; see proc_pid_wchan(5).
    pub wait_channel: Option<String>,
    /// Its own processor time in milliseconds.
    pub cpu_ms: u64,
}

impl Look {
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
            None => "waits for something that cannot be seen from outside",
        };
        let innermost = self.processes.iter().skip(1).rfind(|process| process.waiting_for.is_some());
        let below = match (self.waiting_for, innermost) {
            (Some(WaitingFor::Child), Some(process)) => {
                let word = process.waiting_for.map(word).unwrap_or_default();
                format!(" ({}, {word})", process.name)
            }
            _ => String::new(),
        };
        format!(
            "It {doing}{below}, has printed nothing for {}, and used {} of processor time.",
            time(self.quiet_ms),
            time(self.cpu_ms)
        )
    }
}

fn word(waiting_for: WaitingFor) -> &'static str {
    match waiting_for {
        WaitingFor::Stdin => "which waits for stdin",
        WaitingFor::Sleep => "which sleeps",
        WaitingFor::Network => "which waits for the network",
        WaitingFor::Child => "which waits for one of its own",
        WaitingFor::Cpu => "which computes",
        WaitingFor::Io => "which waits for a device",
        WaitingFor::Stopped => "which is stopped",
    }
}

fn time(milliseconds: u64) -> String {
    if milliseconds < 1_000 {
        return format!("{milliseconds} ms");
    }
    format!("{:.1} s", milliseconds as f64 / 1_000.0)
}

/// What this run is doing at `now`, in monotonic nanoseconds.
pub(crate) fn look_closer(run: &Running, now: u64) -> Look {
    let since = match run.last_output.load(Ordering::Relaxed) {
        0 => run.started_at.load(Ordering::Acquire),
        last => last,
    };
    let (processes, truncated) = processes(run);
    Look {
        waiting_for: processes.first().and_then(|process| process.waiting_for),
        quiet_ms: if since == 0 { 0 } else { now.saturating_sub(since) / 1_000_000 },
        cpu_ms: run.cpu_microseconds() / 1_000,
        processes,
        truncated,
    }
}

fn processes(run: &Running) -> (Vec<SeenProcess>, bool) {
    let first = command_of(run);
    let (mut open, mut seen) = (first.map(|pid| (pid, 0)).into_iter().collect::<Vec<_>>(), Vec::new());
    while let Some((pid, depth)) = open.pop() {
        if seen.len() == MOST {
            return (seen, true);
        }
        seen.extend(process(pid, depth));
        let process = Process::of(pid);
        let below = process.numbers("task").into_iter();
        let below = below.flat_map(|thread| children(&format!("/proc/{pid}/task/{thread}")));
        let at = open.len();
        open.extend(below.map(|child| (child, depth + 1)));
        // The first of them is looked at next.
        open[at..].reverse();
    }
    if is_over(run) { (Vec::new(), false) } else { (seen, false) }
}

fn process(pid: u32, depth: usize) -> Option<SeenProcess> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    let (head, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // Counted from the state, which is the third field of proc_pid_stat(5).
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let ticks = number(14)? + number(15)?;
    let channel = read(&format!("/proc/{pid}/wchan")).filter(|name| !name.is_empty() && name != "0");
    Some(SeenProcess {
        pid: number_inside(pid)?,
        depth,
        name: head.split_once('(')?.1.to_owned(),
        threads: number(20)?,
        waiting_for: Process::of(pid).waits_for(),
        wait_channel: channel,
        cpu_ms: ticks * 1_000 / rustix::param::clock_ticks_per_second(),
    })
}

/// Its number in the innermost namespace.
fn number_inside(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}
