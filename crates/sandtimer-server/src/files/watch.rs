//! What changes in a directory, told by inotify(7).
//!
//! The kernel keeps events for a reader that is slow, up to its own bound; past that it drops them and says so (`lagged`).
//! Nothing is kept for a reader that is gone: one that comes back looks at the directory again.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::place::{self, Place, refusal};
use crate::error::{Refusal, storage};
use crate::events::{Event, EventSource};
use crate::owned::Owned;
use crate::quota::{Share, Shares};
use crate::workspaces::Workspace;

/// Watchers at a time: the kernel has few for each user.
static WATCHERS: Shares = Shares::of("watched directories", 64);
/// Bytes of events that are taken at a time.
const PIECE: usize = 16 << 10;

/// What an event is called, by the first of these that it has.
const NAMES: [(ReadFlags, &str); 7] = [
    (ReadFlags::QUEUE_OVERFLOW, "lagged"),
    (ReadFlags::CREATE, "created"),
    (ReadFlags::MODIFY, "modified"),
    (ReadFlags::ATTRIB, "attributes"),
    (ReadFlags::DELETE, "deleted"),
    (ReadFlags::MOVED_FROM, "moved_from"),
    (ReadFlags::MOVED_TO, "moved_to"),
];

/// The changes of one directory for one reader.
#[derive(Debug)]
pub(super) struct Changes {
    kernel: AsyncFd<OwnedFd>,
    place: Place,
    waiting: VecDeque<(&'static str, Value)>,
    told: u64,
    ended: bool,
    closing: watch::Receiver<bool>,
    _share: Share,
}

impl Changes {
    pub async fn of(
        workspace: &Arc<Workspace>,
        place: Place,
        closing: watch::Receiver<bool>,
    ) -> Result<Self, Refusal> {
        let share = WATCHERS.take(workspace.owner())?;
        let watched = place.clone();
        let kernel = super::act(workspace, move |tree| {
            // Whoever may read a directory may watch it.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory = place::open(tree.root(), watched.path(), flags, Mode::empty())?;
            begin(&directory).map_err(|error| refusal(watched.path(), error))
        });
        let kernel = kernel.await?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that change their descriptor; this one cannot"
        )]
        let kernel = AsyncFd::with_interest(kernel, Interest::READABLE)
            .map_err(|error| storage("the directory cannot be watched", &error))?;
        let waiting = VecDeque::from([("ready", json!({"path": place.text()}))]);
        Ok(Changes { kernel, place, waiting, told: 0, ended: false, closing, _share: share })
    }

    /// Takes what the kernel has. `Err` where that is nothing.
    fn take(&mut self) -> Result<(), Errno> {
        let mut buffer = [MaybeUninit::uninit(); PIECE];
        let mut reader = inotify::Reader::new(self.kernel.get_ref(), &mut buffer);
        loop {
            let event = reader.next()?;
            let flags = event.events();
            if flags.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
                self.ended = true;
            }
            if let Some((_, name)) = NAMES.iter().find(|(flag, _)| flags.contains(*flag)) {
                let file = event.file_name().map(|name| name.to_string_lossy().into_owned());
                let path = file.map(|file| {
                    let directory = self.place.text();
                    if directory.is_empty() { file } else { format!("{directory}/{file}") }
                });
                let cookie = (event.cookie() != 0).then(|| event.cookie());
                let data =
                    json!({"path": path, "directory": flags.contains(ReadFlags::ISDIR), "cookie": cookie});
                self.waiting.push_back((name, data));
            }
            if reader.is_buffer_empty() {
                return Ok(());
            }
        }
    }
}

/// A watch on an open directory.
fn begin(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let wanted = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE
        | WatchFlags::MOVE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF;
    // It takes only a name; this one is of the directory that was opened, whatever has that name by now.
    inotify::add_watch(&kernel, format!("/proc/self/fd/{}", directory.as_raw_fd()), wanted)?;
    Ok(kernel)
}

impl EventSource for Changes {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((name, data)) = self.waiting.pop_front() {
                self.told += 1;
                return Some(Event { id: self.told.to_string(), name, data });
            }
            if self.ended || *self.closing.borrow() {
                return None;
            }
            tokio::select! {
                ready = self.kernel.readable() => ready.ok()?.clear_ready(),
                _ = self.closing.changed() => continue,
            }
            match self.take() {
                Ok(()) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}
