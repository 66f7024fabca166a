//! Processes as the host sees them, and starting one with a hard stop.
//!
//! A pid read from /proc may be another process a moment later: signals go by pidfd, opened and
//! then checked against the start time.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::wait::{now, readable};

/// Bytes kept of each stream of a started process.
const MAX_KEPT_BYTES: u64 = 256 << 20;
/// How long after a process's end its pipes may stay open before they count as held.
const PIPES_END_TIMEOUT: Duration = Duration::from_secs(3);

/// One line of /proc.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessStat {
    pub pid: u32,
    /// Clock ticks since boot.
    pub start: u64,
    pub parent: u32,
    pub name: String,
    /// The state letter: `Z` is dead and not yet reaped, all threads of it.
    pub state: char,
    pub arguments: Vec<String>,
}

impl ProcessStat {
    /// What /proc says of `pid` now.
    #[must_use]
    pub fn read(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let (open, close) = (stat.find('(')?, stat.rfind(')')?);
        let fields: Vec<&str> = stat.get(close + 2..)?.split(' ').collect();
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        Some(ProcessStat {
            pid,
            start: fields.get(19)?.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            name: stat[open + 1..close].into(),
            state: match fields.first()?.chars().next()? {
                // Its first thread has ended before others.
                'Z' if fields.get(17)?.parse::<u32>().ok()? > 1 => 'S',
                state => state,
            },
            arguments: arguments
                .split(|byte| *byte == 0)
                .map(|text| String::from_utf8_lossy(text).into_owned())
                .collect(),
        })
    }

    /// Whether it is dead or gone, or its pid another process's.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        ProcessStat::read(self.pid).is_none_or(|now| now.start != self.start || now.state == 'Z')
    }

    /// Whether it lives and `marker` is among its arguments.
    #[must_use]
    pub fn carries(&self, marker: &str) -> bool {
        self.state != 'Z' && self.arguments.iter().any(|argument| argument == marker)
    }

    /// Whether its program's name is `name`.
    #[must_use]
    pub fn runs(&self, name: &str) -> bool {
        self.arguments.first().is_some_and(|program| program.rsplit('/').next() == Some(name))
    }

    /// Sends a signal, unless it is gone.
    pub fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid as i32) else { return };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if !self.is_dead() {
            // It may have ended in between; then there is nothing to signal.
            let _ = pidfd_send_signal(pidfd, signal);
        }
    }
}

/// Every process of the host.
#[must_use]
pub fn all() -> Vec<ProcessStat> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return vec![] };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(ProcessStat::read)
        .collect()
}

/// Living processes with `marker` among their arguments.
#[must_use]
pub fn marked(marker: &str) -> Vec<ProcessStat> {
    all().into_iter().filter(|process| process.carries(marker)).collect()
}

/// Living children of `parent`, and theirs, and so on.
#[must_use]
pub fn descendants(parent: u32) -> Vec<ProcessStat> {
    let everything = all();
    let mut found: Vec<ProcessStat> = vec![];
    let mut parents = vec![parent];
    while let Some(parent) = parents.pop() {
        for process in everything.iter().filter(|process| process.parent == parent && process.state != 'Z') {
            parents.push(process.pid);
            found.push(process.clone());
        }
    }
    found
}

/// A text no other process of this machine has among its arguments.
#[must_use]
pub fn new_marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("st-mark-{}-{number}-{}", std::process::id(), now().as_nanos())
}

/// How a started process ended.
#[derive(Debug)]
pub struct FinishedProcess {
    /// `None` when its hard stop ended it.
    pub status: Option<ExitStatus>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Whether a pipe was still open after the process ended.
    pub pipe_held: bool,
    pub elapsed: Duration,
}

impl FinishedProcess {
    /// The exit code, where it exited by itself.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// Stdout as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Stderr as text.
    #[must_use]
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// A process that is killed when it is dropped, or when its hard stop has passed.
#[derive(Debug)]
pub struct StartedProcess {
    child: Child,
    pidfd: OwnedFd,
    begun: Duration,
    hard_stop: Duration,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
}

/// Starts `command` with `input` on its stdin.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn start(command: &mut Command, input: Vec<u8>, hard_stop: Duration) -> StartedProcess {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = now();
    let mut child = command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    let pid = Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("a child not yet reaped has a pidfd");
    let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    std::thread::spawn(move || {
        if let Some(stdin) = &mut stdin {
            // A reader that goes away is the reader's business.
            let _ = stdin.write_all(&input);
        }
    });
    StartedProcess {
        child,
        pidfd,
        begun,
        hard_stop,
        stdout: collect(stdout.expect("stdout is piped")),
        stderr: collect(stderr.expect("stderr is piped")),
    }
}

fn collect(from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut kept = vec![];
        let _ = from.take(MAX_KEPT_BYTES).read_to_end(&mut kept);
        let _ = send.send(kept);
    });
    receive
}

impl StartedProcess {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Time on the monotonic clock at which it was started.
    #[must_use]
    pub fn begun(&self) -> Duration {
        self.begun
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // It may have ended; it is not reaped before `finish`, so this cannot hit another.
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        readable(self.pidfd.as_fd(), Duration::ZERO)
    }

    /// Waits for its end, no longer than its hard stop.
    #[must_use]
    pub fn finish(mut self) -> FinishedProcess {
        let left = (self.begun + self.hard_stop).saturating_sub(now());
        let ended = readable(self.pidfd.as_fd(), left);
        if !ended {
            self.signal(Signal::KILL);
        }
        let status = self.child.wait().ok();
        let elapsed = now() - self.begun;
        let (stdout, stderr) =
            (self.stdout.recv_timeout(PIPES_END_TIMEOUT), self.stderr.recv_timeout(PIPES_END_TIMEOUT));
        FinishedProcess {
            status: status.filter(|_| ended),
            pipe_held: stdout.is_err() || stderr.is_err(),
            stdout: stdout.unwrap_or_default(),
            stderr: stderr.unwrap_or_default(),
            elapsed,
        }
    }
}

impl Drop for StartedProcess {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // Reaped or not, a killed child is no longer anybody's concern.
        let _ = self.child.wait();
    }
}
