//! Processes as /proc shows them, for the suites that find those of an engine by name.
#![allow(dead_code, reason = "no suite uses all of it")]

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, dead ones that are not reaped included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedProcess {
    pub pid: i32,
    pub parent: i32,
    pub name: String,
    pub is_zombie: bool,
    pub is_stopped: bool,
    /// When it was made, in ticks of the kernel's clock.
    pub made_at: u64,
}

impl ListedProcess {
    /// The process with this PID, if there is one.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may have any character in it, `)` too.
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let state = *fields.first()?;
        Some(ListedProcess {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            name: name.to_owned(),
            is_zombie: state == "Z",
            is_stopped: state == "T",
            made_at: fields.get(19)?.parse().ok()?,
        })
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid).expect("a PID");
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("it is there");
        pidfd_send_signal(pidfd, signal).expect("sent");
    }
}

/// All processes of the machine.
pub fn processes() -> Vec<ListedProcess> {
    let entries = std::fs::read_dir("/proc").expect("there");
    entries.filter_map(|entry| ListedProcess::of(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

/// The processes that are alive.
pub fn living() -> Vec<ListedProcess> {
    processes().into_iter().filter(|process| !process.is_zombie).collect()
}

/// The children of this process.
pub fn children() -> Vec<ListedProcess> {
    let own = i32::try_from(std::process::id()).expect("a PID");
    processes().into_iter().filter(|process| process.parent == own).collect()
}

/// The children of this process with this name that are alive, the oldest first.
pub fn children_named(name: &str) -> Vec<ListedProcess> {
    let mut named = children();
    named.retain(|child| child.name == name && !child.is_zombie);
    named.sort_by_key(|child| (child.made_at, child.pid));
    named
}
