//! Bounded reads of files of /proc.

use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes read of a file of /proc.
const MAX_PROC_FILE_BYTES: u64 = 64 << 10;

pub(crate) fn number_of(process: BorrowedFd<'_>) -> Option<u32> {
    let information = read(&format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    information.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
}

pub(super) fn read(path: &str) -> Option<String> {
    read_prefix(path, MAX_PROC_FILE_BYTES)
}

/// The beginning of a file, as text.
pub(super) fn read_prefix(path: &str, most: u64) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn children(thread: &str) -> Vec<u32> {
    let list = read(&format!("{thread}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
