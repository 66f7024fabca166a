//! Work with the files of sandboxes on threads of its own.

use std::path::PathBuf;

use sandtimer_os::remove::remove_tree;

use super::super::inner::Inner;
use super::locks::lock;

/// Removes a directory on a thread of its own. What cannot be removed now is removed at the next
/// start.
pub(super) fn remove_later(inner: &Inner, path: PathBuf) {
    start_later(inner, move || {
        let _ = remove_tree(&path);
    });
}

/// Does something with files on a thread of its own, for which the end of the engine waits.
pub(super) fn start_later(inner: &Inner, work: impl FnOnce() + Send + 'static) {
    let started = std::thread::Builder::new().name("st-trash".to_owned()).stack_size(256 << 10).spawn(work);
    if let Ok(thread) = started {
        let mut threads = lock(&inner.removals);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }
}
