//! What a host holds that a run could leave behind, before and after.
//!
//! It looks at the whole host, so it is only taken by tests that hold [`crate::wait::alone`].

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::process::{self, descendants};
use crate::wait::until;

/// How long things that end by themselves after a run may take to be gone.
const SETTLE: Duration = Duration::from_secs(2);

/// One look at the host. Each entry is a line a person can read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    entries: BTreeSet<String>,
    /// Groups of engines that live: what one leaves when it is gone was here before.
    of_living: BTreeSet<String>,
}

impl Census {
    /// Looks now.
    #[must_use]
    pub fn take() -> Self {
        let mut census = Census::default();
        for hierarchy in cgroup_mounts() {
            cgroups(Path::new(&hierarchy), 6, false, &mut census);
        }
        let entries = &mut census.entries;
        processes(entries);
        for mount in lines("/proc/self/mountinfo") {
            entries.insert(format!("mount {mount}"));
        }
        for kind in ["shm", "sem", "msg"] {
            // The first two columns say which; the others change as others use it.
            for line in lines(&format!("/proc/sysvipc/{kind}")).iter().skip(1) {
                let which: Vec<&str> = line.split_whitespace().take(2).collect();
                entries.insert(format!("System V {kind} {}", which.join(" ")));
            }
        }
        for directory in ["/dev/mqueue", "/tmp", "/var/tmp", "/dev/shm", "/run"] {
            names(directory, entries);
        }
        census
    }

    /// What is here and was not in `before`.
    #[must_use]
    pub fn added_since(&self, before: &Census) -> Vec<&String> {
        let was_there = |entry: &String| before.entries.contains(entry) || before.of_living.contains(entry);
        self.entries.iter().filter(|entry| !was_there(entry)).collect()
    }
}

/// Processes of this test's own, the engine's helpers, and payloads wherever they went. Helpers
/// whose engine lives, and is not this test's, are that engine's.
fn processes(entries: &mut BTreeSet<String>) {
    let own = descendants(std::process::id());
    let orphan = |process: &process::ProcessStat| process.parent <= 1;
    let strays = process::all().into_iter().filter(|process| {
        let marked = process.arguments.iter().any(|argument| argument.starts_with("st-mark-"));
        process.state != 'Z' && (marked || (process.name.starts_with("st-") && orphan(process)))
    });
    for process in own.into_iter().chain(strays) {
        // A test's threads are named after it and are no processes; its own entry is the same
        // before and after.
        entries.insert(format!("process {} started {} '{}'", process.pid, process.start, process.name));
        if let Ok(namespace) = std::fs::read_link(format!("/proc/{}/ns/net", process.pid)) {
            entries.insert(format!("network namespace {}", namespace.display()));
        }
    }
}

/// Whether a group is that of an engine which is alive: it holds the lock of its number.
fn is_alive(group: &str) -> bool {
    let Some(number) = group.rsplit('-').next() else { return false };
    let Ok(lock) = std::fs::File::open(format!("/run/sandtimer/engine-{number}.lock")) else { return false };
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}

fn cgroup_mounts() -> BTreeSet<String> {
    let mounts = lines("/proc/self/mounts");
    let cgroups = mounts.iter().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (at, kind) = (fields.next()?, fields.next()?);
        kind.starts_with("cgroup").then(|| at.to_string())
    });
    cgroups.collect()
}

/// Directories at or below one whose name says it is the engine's.
fn cgroups(directory: &Path, depth: u32, of_living: bool, census: &mut Census) {
    let Ok(children) = std::fs::read_dir(directory) else { return };
    for child in children.filter_map(Result::ok) {
        if depth == 0 || !child.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = child.path();
        let name = child.file_name().to_string_lossy().into_owned();
        let inode = child.metadata().map(|facts| facts.ino()).unwrap_or(0);
        let entry = format!("cgroup {} inode {inode}", path.display());
        let of_living = of_living || name.starts_with("sandtimer-") && is_alive(&name);
        if of_living {
            census.of_living.insert(entry);
        } else if path.to_string_lossy().contains("sandtimer") {
            census.entries.insert(entry);
        }
        cgroups(&path, depth - 1, of_living, census);
    }
}

fn names(directory: &str, entries: &mut BTreeSet<String>) {
    let Ok(children) = std::fs::read_dir(directory) else { return };
    for child in children.filter_map(Result::ok) {
        let name = child.file_name().to_string_lossy().into_owned();
        let inode = child.metadata().map(|facts| facts.ino()).unwrap_or(0);
        if directory == "/dev/mqueue" || name.contains("sandtimer") || name.contains("hostile") {
            entries.insert(format!("file {directory}/{name} inode {inode}"));
        }
    }
}

fn lines(path: &str) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(Into::into).collect()
}

/// What is left over since `before`, once two seconds have been given for it to go.
///
/// Directories an engine keeps for its next run (`allowed`, by a part of the entry) do not count.
#[must_use]
pub fn left_over(before: &Census, allowed: &[&str]) -> Vec<String> {
    let mut left = vec![];
    until(SETTLE, || {
        let after = Census::take();
        left = after
            .added_since(before)
            .into_iter()
            .filter(|entry| !allowed.iter().any(|part| entry.contains(part)))
            .cloned()
            .collect();
        left.is_empty()
    });
    left
}

/// # Panics
/// When something is left over since `before`.
pub fn assert_clean(before: &Census, what: &str) {
    let left = left_over(before, &[]);
    assert!(left.is_empty(), "{what} left behind:\n{}", left.join("\n"));
}
