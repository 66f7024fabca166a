//! How many bytes the files below directories take on their disks, counted in steps of bounded
//! length.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, Dir, DirEntry, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, open, openat2, statx,
};
use sandtimer_os::clock::{calendar_nanoseconds, monotonic_nanoseconds};

/// Nested directories that are read. A deeper one counts as more than any limit, so that none is
/// out of reach.
const MAX_DEPTH: usize = 128;
/// Entries after which the time of a step is compared with its bound.
const ENTRIES_PER_CLOCK: u32 = 16;

/// A count of the files below some directories, as far as it has come. Links are not followed,
/// other file systems not entered, and nothing that a run puts in the way leads out of a directory.
#[derive(Debug)]
pub(super) struct DiskCount {
    /// Directories that are still to be read.
    directories: Vec<PathBuf>,
    /// The directories that are being read, each in the one before.
    levels: Vec<Dir>,
    /// Bytes of all files so far.
    pub total: u64,
    /// Of these, the ones of files that were made after `since`. None where the file system does
    /// not keep it.
    pub born: u64,
    /// In nanoseconds of the calendar's clock.
    since: u64,
}

impl DiskCount {
    pub fn new(directories: &[PathBuf], since: u64) -> Self {
        DiskCount { directories: directories.to_vec(), levels: Vec::new(), total: 0, born: 0, since }
    }

    /// How many directories it has open.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Counts on, until `until` (in monotonic nanoseconds) at the most. True once all is counted.
    /// `progress` moves with each entry: a file system that does not answer keeps this thread.
    pub fn advance(&mut self, until: u64, progress: &AtomicU64) -> bool {
        for entries in 1_u32.. {
            progress.fetch_add(1, Ordering::Relaxed);
            if entries % ENTRIES_PER_CLOCK == 0 && monotonic_nanoseconds() >= until {
                return false;
            }
            let Some(level) = self.levels.last_mut() else {
                let Some(directory) = self.directories.pop() else { return true };
                self.levels.extend(open_top(&directory));
                continue;
            };
            match level.read() {
                None => drop(self.levels.pop()),
                Some(Err(_)) => {}
                Some(Ok(entry)) => self.add(&entry),
            }
        }
        false
    }

    fn add(&mut self, entry: &DirEntry) {
        let name = entry.file_name();
        let Some(directory) = self.levels.last().and_then(|level| level.fd().ok()) else { return };
        if name == c"." || name == c".." {
            return;
        }
        #[cfg(test)]
        tests::read_entry(name);
        let fields = StatxFlags::TYPE | StatxFlags::BLOCKS | StatxFlags::BTIME;
        let Ok(status) = statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, fields) else { return };
        let is_directory = FileType::from_raw_mode(status.stx_mode.into()).is_dir();
        let is_too_deep = is_directory && self.levels.len() > MAX_DEPTH;
        let bytes = if is_too_deep { u64::MAX } else { status.stx_blocks.saturating_mul(512) };
        let below = (is_directory && !is_too_deep).then(|| {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            openat2(directory, name, FLAGS, Mode::empty(), resolve).and_then(Dir::new)
        });
        self.total = self.total.saturating_add(bytes);
        // Not those from before the clock was set back.
        if born_at(&status).is_some_and(|born| born >= self.since && born <= calendar_nanoseconds()) {
            self.born = self.born.saturating_add(bytes);
        }
        self.levels.extend(below.and_then(Result::ok));
    }
}

const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOFOLLOW);

fn open_top(directory: &Path) -> Option<Dir> {
    #[cfg(test)]
    tests::wait_like_a_slow_file_system(directory);
    let top: OwnedFd = open(directory, FLAGS, Mode::empty()).ok()?;
    Dir::new(top).ok()
}

/// When a file was made, in nanoseconds of the calendar's clock.
fn born_at(status: &Statx) -> Option<u64> {
    StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME).then_some(())?;
    let seconds = u64::try_from(status.stx_btime.tv_sec).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(status.stx_btime.tv_nsec.into())
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// An entry whose name begins with this takes 1 ms.
    pub const SLOW: &str = "slow-";
    /// Reading an entry of this name panics.
    pub const PANICS: &str = "panics";
    /// A directory with this entry is of a file system that does not answer.
    const HANGS: &str = "hangs";

    /// Simulates the file system that the entry's name selects.
    pub fn read_entry(name: &std::ffi::CStr) {
        assert_ne!(name.to_bytes(), PANICS.as_bytes(), "as the test wants it");
        if name.to_bytes().starts_with(SLOW.as_bytes()) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Has the file system of a directory not answer from now on.
    pub fn hang(directory: &Path) {
        std::fs::write(directory.join(HANGS), "").expect("written");
    }

    /// Has it answer again.
    pub fn answer(directory: &Path) {
        std::fs::remove_file(directory.join(HANGS)).expect("it hangs");
    }

    pub fn wait_like_a_slow_file_system(directory: &Path) {
        while directory.join(HANGS).exists() {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    fn whole(directory: &Path) -> DiskCount {
        let mut count = DiskCount::new(&[directory.to_owned()], 0);
        assert!(count.advance(u64::MAX, &AtomicU64::new(0)));
        count
    }

    #[test]
    fn steps_count_what_one_pass_counts() {
        let directory = tempfile::tempdir().expect("a directory");
        for number in 0..200 {
            let below = directory.path().join(format!("{}", number % 7));
            std::fs::create_dir_all(&below).expect("made");
            std::fs::write(below.join(number.to_string()), vec![1; 5000]).expect("written");
        }
        std::os::unix::fs::symlink("/usr", directory.path().join("link")).expect("made");
        let expected = whole(directory.path());
        assert!(expected.total >= 200 * 5000, "{expected:?}");
        let (mut count, progress) = (DiskCount::new(&[directory.path().to_owned()], 0), AtomicU64::new(0));
        let mut steps = 0;
        let mut before = 0;
        while !count.advance(0, &progress) {
            steps += 1;
            assert!(progress.load(Ordering::Relaxed) > before, "a step that does nothing");
            before = progress.load(Ordering::Relaxed);
        }
        assert!(steps > 5, "{steps}");
        assert_eq!((count.total, count.born), (expected.total, expected.born));
    }

    #[test]
    fn directory_that_is_too_deep_counts_as_more_than_any_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let nested = |depth: usize| directory.path().join(vec!["d"; depth].join("/"));
        std::fs::create_dir_all(nested(MAX_DEPTH)).expect("made");
        assert!(whole(directory.path()).total < u64::MAX);
        std::fs::create_dir_all(nested(MAX_DEPTH + 1)).expect("made");
        assert_eq!(whole(directory.path()).total, u64::MAX);
    }
}
