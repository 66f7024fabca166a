//! How much memory there is, and how much of it runs may have together unless the operator sets
//! another limit.

use std::path::{Path, PathBuf};

use sandtimer_os::probe::{read_string, total_memory_bytes};

use crate::limits::{Limits, Setting};
use crate::model::LimitKind;

/// Share of all runs of an engine, in percent. More than one run has by default, so that a run
/// reaches its own limit first.
const ALL_RUNS_PERCENT: u64 = 90;

/// Returns the machine's memory in bytes, or the least limit of this process's control groups (a
/// container's) where that is less.
pub fn machine_memory() -> u64 {
    let cgroups = read_string("/proc/self/cgroup").unwrap_or_default();
    limits(&cgroups, Path::new("/sys/fs/cgroup")).into_iter().fold(total_memory_bytes(), u64::min)
}

/// Returns the memory of all runs together in bytes: 90 % of `machine`, or the operator's ceiling
/// of one run where that is more. `None` where the operator has removed that ceiling.
pub(super) fn memory_of_all(machine: u64, maxima: &Limits) -> Option<u64> {
    let share = machine / 100 * ALL_RUNS_PERCENT;
    match maxima.get(LimitKind::Memory) {
        Setting::Inherit => Some(share),
        Setting::Unlimited => None,
        Setting::At(bytes) => Some(bytes.max(share)),
    }
}

/// The limits of the cgroups of /proc/self/cgroup, and of those above them.
fn limits(cgroups: &str, mounted: &Path) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in cgroups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (roots, name) = match controllers {
            "" => (vec![mounted.to_owned(), mounted.join("unified")], "memory.max"),
            named if named.split(',').any(|one| one == "memory") => {
                (vec![mounted.join("memory")], "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        let files =
            roots.iter().flat_map(|root| path.ancestors().map(move |above| root.join(above).join(name)));
        // If no limit is set the file has the text `max`, or is absent.
        limits.extend(files.filter_map(|file: PathBuf| read_string(file).ok()?.trim().parse::<u64>().ok()));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_all_cgroups_above_count() {
        let scratch = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = scratch.path().join(path);
            std::fs::create_dir_all(path.parent().expect("one")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("a/memory.max", "5000\n");
        write("a/b/memory.max", "max\n");
        write("memory/c/memory.limit_in_bytes", "700\n");
        assert_eq!(limits("4:cpu,memory:/c/d\n3:pids:/x\n0::/a/b\n", scratch.path()), [700, 5000]);
        assert!(limits("0::/\nnonsense\n", scratch.path()).is_empty());
        assert!(machine_memory() <= total_memory_bytes());
    }

    #[test]
    fn all_runs_have_more_than_the_default_of_one() {
        use crate::limits::Ceilings;
        let machine = 16 << 30;
        let one = Ceilings::for_machine(machine).get(LimitKind::Memory).expect("a ceiling");
        let all = memory_of_all(machine, &Limits::new()).expect("a bound");
        assert!(one < all && all < machine, "{one} {all}");
        assert_eq!(memory_of_all(machine, &Limits::new().memory(machine)), Some(machine));
        assert_eq!(memory_of_all(machine, &Limits::new().unlimited(LimitKind::Memory)), None);
    }
}
