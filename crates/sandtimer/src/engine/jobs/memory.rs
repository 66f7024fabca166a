//! How much memory a worker's jobs may have together unless somebody says.

use std::path::{Path, PathBuf};

use sandtimer_os::probe::total_memory_bytes;

/// Of the machine's memory, in percent; as much as one run may have without an operator's word.
const SHARE: u64 = 80;

/// Bytes: 80 % of the machine's memory, or the least limit of this process's cgroups where that is less.
pub fn usable_memory() -> u64 {
    let machine = total_memory_bytes() / 100 * SHARE;
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits(&cgroups, Path::new("/sys/fs/cgroup")).into_iter().fold(machine, u64::min)
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
        // Where none is set there is a word, or no file.
        limits.extend(
            files.filter_map(|file: PathBuf| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()),
        );
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_all_cgroups_above_count() {
        let place = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            std::fs::create_dir_all(path.parent().expect("one")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        write("a/memory.max", "5000\n");
        write("a/b/memory.max", "max\n");
        write("memory/c/memory.limit_in_bytes", "700\n");
        assert_eq!(limits("4:cpu,memory:/c/d\n3:pids:/x\n0::/a/b\n", place.path()), [700, 5000]);
        assert!(limits("0::/\nnonsense\n", place.path()).is_empty());
        assert!(usable_memory() <= total_memory_bytes());
    }
}
