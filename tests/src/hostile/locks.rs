//! Attacks A18, G4 and F12: payloads that reach others through the inode of a file that many see.
//!
//! Each only needs a file that can be opened for reading. What it takes it holds no longer than it
//! lives.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Duration;

use crate::arguments::PayloadArguments;
use crate::call;
use crate::files::c_path;
use crate::report::{Finding, line};
use crate::system::{address, end_of_life, now, pause_for};

/// DN_ACCESS of fcntl(2).
const NOTIFY_ACCESS: usize = 1;

/// Takes a lock, says `{"holding":true}` and holds it that long: `lock KIND PATH [MS]`.
pub(crate) fn lock(arguments: &PayloadArguments) -> Finding {
    let path = match arguments.path(1) {
        Ok(path) => path,
        Err(refused) => return refused,
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return error.into(),
    };
    let descriptor = file.as_raw_fd();
    // SAFETY: all-zero is a valid flock: the whole file, from its beginning.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = libc::F_RDLCK as i16;
    let record_lock = |command: i32| call!(libc::SYS_fcntl, descriptor, command, address(&record));
    let taken = match arguments.text(0, "").as_str() {
        "flock" => call!(libc::SYS_flock, descriptor, libc::LOCK_EX | libc::LOCK_NB),
        "posix" => record_lock(libc::F_SETLK),
        "ofd" => record_lock(libc::F_OFD_SETLK),
        "write" => {
            let write = libc::flock { l_type: libc::F_WRLCK as i16, ..record };
            call!(libc::SYS_fcntl, descriptor, libc::F_OFD_SETLK, address(&write))
        }
        "lease" => call!(libc::SYS_fcntl, descriptor, libc::F_SETLEASE, libc::F_RDLCK),
        "notify" => call!(libc::SYS_fcntl, descriptor, libc::F_NOTIFY, NOTIFY_ACCESS),
        other => return Finding::Untried(format!("no kind of lock '{other}'")),
    };
    if let Err(errno) = taken {
        return Finding::Denied(errno);
    }
    line("{\"holding\":true}");
    pause_for(Duration::from_millis(arguments.number(2, 0)));
    Finding::Succeeded("taken".into())
}

/// Watches a path, says `{"watching":true}` and waits that long for an event: `inotify PATH [MS]`.
/// Without a time the watch itself is the finding.
pub(crate) fn watch(arguments: &PayloadArguments) -> Finding {
    let path = match arguments.path(0) {
        Ok(path) => c_path(&path),
        Err(refused) => return refused,
    };
    let made = call!(libc::SYS_inotify_init1, libc::IN_NONBLOCK).and_then(|watcher| {
        call!(libc::SYS_inotify_add_watch, watcher, path.as_ptr(), libc::IN_ALL_EVENTS)?;
        Ok(watcher as i32)
    });
    let mut watcher = match made {
        // SAFETY: the descriptor was just made and has no other owner.
        Ok(watcher) => unsafe { File::from_raw_fd(watcher) },
        Err(errno) => return Finding::Denied(errno),
    };
    let patience = Duration::from_millis(arguments.number(1, 0));
    if patience.is_zero() {
        return Finding::Succeeded("watching".into());
    }
    line("{\"watching\":true}");
    let end = (now() + patience).min(end_of_life());
    while now() < end {
        if watcher.read(&mut [0; 4096]).is_ok() {
            return Finding::Succeeded("an event".into());
        }
        pause_for(Duration::from_millis(2));
    }
    Finding::Denied(libc::EAGAIN)
}
