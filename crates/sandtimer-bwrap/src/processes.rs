//! What descends from this process, read from /proc.

use std::collections::BTreeMap;

/// A process as /proc shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    pub pid: i32,
    parent: i32,
    is_dead: bool,
    ticks: u64,
    threads: u64,
    resident_pages: u64,
}

impl ProcessEntry {
    pub fn is_child_of(&self, parent: i32) -> bool {
        self.parent == parent
    }

    /// Sends it a signal, unless the number is another process's by now.
    pub fn signal(&self, signal: i32) {
        use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
        let (Some(pid), Some(signal)) = (Pid::from_raw(self.pid), Signal::from_named_raw(signal)) else {
            return;
        };
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        let now = std::fs::read(format!("/proc/{}/stat", self.pid)).ok().and_then(|stat| parse(&stat));
        if now.is_some_and(|now| now.parent == self.parent) {
            // It may have ended since, which has the same result.
            let _ = pidfd_send_signal(pidfd, signal);
        }
    }
}

/// What a set of processes uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UsageSample {
    pub cpu_microseconds: u64,
    pub processes: u64,
    pub threads: u64,
    pub resident_bytes: u64,
}

/// All descendants of a process that are alive; orphans are among them only where it is their
/// reaper.
pub(crate) fn descendants(of: i32) -> Vec<ProcessEntry> {
    let mut children: BTreeMap<i32, Vec<ProcessEntry>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let stat = pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/stat")).ok());
        if let Some(process) = stat.and_then(|stat| parse(&stat)) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut found: Vec<ProcessEntry> = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.pid);
            found.push(child);
        }
    }
    found.retain(|process| !process.is_dead);
    found
}

/// The direct children of this process, dead ones included.
pub(crate) fn children() -> Vec<i32> {
    let own = std::process::id();
    // One file where the kernel has it; a list that changes during the read may lack some, which
    // the next pass has.
    if let Ok(list) = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")) {
        return list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    }
    let own = own.cast_signed();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let stat = |entry: std::fs::DirEntry| parse(&std::fs::read(entry.path().join("stat")).ok()?);
    all.filter_map(stat).filter(|process| process.parent == own).map(|process| process.pid).collect()
}

/// What they use together.
pub(crate) fn sample(processes: &[ProcessEntry]) -> UsageSample {
    const TICK_MICROSECONDS: u64 = 10_000;
    let page = rustix::param::page_size() as u64;
    processes.iter().fold(UsageSample::default(), |sum, process| UsageSample {
        cpu_microseconds: sum.cpu_microseconds + process.ticks * TICK_MICROSECONDS,
        processes: sum.processes + 1,
        threads: sum.threads + process.threads,
        resident_bytes: sum.resident_bytes + process.resident_pages * page,
    })
}

/// A line of /proc/PID/stat; proc_pid_stat(5).
fn parse(stat: &[u8]) -> Option<ProcessEntry> {
    let text = String::from_utf8_lossy(stat);
    let pid = text.split(' ').next()?.parse().ok()?;
    // The name in parentheses may hold anything; the last one closes it. What follows begins with
    // field 3.
    let fields: Vec<&str> = text[text.rfind(')')? + 2..].split(' ').collect();
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.trim().parse::<u64>().ok());
    let threads = field(20)?;
    Some(ProcessEntry {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        is_dead: matches!(fields.first(), Some(&"Z" | &"X")) && threads <= 1,
        ticks: field(14)? + field(15)? + field(16)? + field(17)?,
        threads,
        resident_pages: field(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_in_parentheses_may_hold_anything() {
        let line = b"7 (a) R (b) S 3 7 7 0 -1 0 0 0 0 0 5 6 1 2 20 0 4 0 99 1000 25 18446744073709551615";
        let expected =
            ProcessEntry { pid: 7, parent: 3, is_dead: false, ticks: 14, threads: 4, resident_pages: 25 };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse(b"garbage"), None);
    }

    #[allow(clippy::disallowed_methods, reason = "a child to be found")]
    #[test]
    fn child_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id().cast_signed();
        let own = std::process::id().cast_signed();
        assert!(children().contains(&pid) || descendants(own).iter().any(|found| found.pid == pid));
        assert!(descendants(own).iter().any(|found| found.pid == pid));
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
}
