//! What changes in a directory, or in it and all below, reported by inotify(7).
//!
//! The kernel watches single directories. Of a tree each one has a watch of its own, and what is
//! made or moved in later gets one as its event is read; files that were made before it had one are
//! searched, and reported as created.
//!
//! The kernel keeps events for a reader that is slow, up to its own bound; past that it drops them
//! and reports so (`lagged`). Nothing is kept for a reader that is gone: a reader that comes back
//! lists the directory again.

mod tree;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags};
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use super::paths::{self, FilePath, path_rejection};
use super::source::FileSource;
use crate::error::{ApiRejection, Code, storage};
use crate::events::{EventSource, StreamEvent};
use crate::quota::{Share, Shares};
use tree::{WatchWalk, WatchedDirectories};

/// Watchers at a time: the kernel has few for each user.
static WATCHERS: Shares = Shares::of("watchers of directories", 64);
/// Bytes of events that are taken at a time.
const PIECE_BYTES: usize = 16 << 10;

/// What an event is called, by the first of these that it has.
const EVENT_NAMES: [(ReadFlags, &str); 7] = [
    (ReadFlags::QUEUE_OVERFLOW, "lagged"),
    (ReadFlags::CREATE, "created"),
    (ReadFlags::MODIFY, "modified"),
    (ReadFlags::ATTRIB, "attributes"),
    (ReadFlags::DELETE, "deleted"),
    (ReadFlags::MOVED_FROM, "moved_from"),
    (ReadFlags::MOVED_TO, "moved_to"),
];

/// The changes of one directory, or of a tree, for one reader.
#[derive(Debug)]
pub(super) struct DirectoryChanges {
    files: Arc<dyn FileSource>,
    kernel: AsyncFd<OwnedFd>,
    file_path: FilePath,
    /// Device and number of the directory itself. A descriptor would keep the kernel from reporting
    /// its end.
    identity: (u64, u64),
    watched: WatchedDirectories,
    waiting: VecDeque<(&'static str, Value)>,
    event_count: u64,
    ended: bool,
    closing: watch::Receiver<bool>,
    _share: Share,
}

impl DirectoryChanges {
    pub async fn of(
        files: &Arc<dyn FileSource>,
        file_path: FilePath,
        is_recursive: bool,
        closing: watch::Receiver<bool>,
    ) -> Result<Self, ApiRejection> {
        let share = WATCHERS.take(files.owner())?;
        let (path, owner) = (file_path.clone(), files.owner().clone());
        let begun = super::act(files, move |tree| {
            // A user who may read a directory may watch it.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory = paths::open(tree.root(), path.path(), flags, Mode::empty())?;
            let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
                .map_err(|error| path_rejection(path.path(), error))?;
            let walk = WatchWalk::begin(&kernel, &directory, is_recursive, &owner).map_err(|error| match error {
                Errno::NOSPC => ApiRejection::new(
                    Code::Capacity,
                    "no more directories can be watched: the server has 8192 watches, an owner half of them, and the kernel \
                     fs.inotify.max_user_watches of each user",
                ),
                error => path_rejection(path.path(), error),
            })?;
            let identity = identity(&directory).map_err(|error| path_rejection(path.path(), error))?;
            Ok((kernel, identity, walk))
        });
        let (kernel, identity, walk) = begun.await?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that change their descriptor; this one cannot"
        )]
        let kernel = AsyncFd::with_interest(kernel, Interest::READABLE)
            .map_err(|error| storage("the directory cannot be watched", &error))?;
        let mut changes = DirectoryChanges {
            files: files.clone(),
            kernel,
            file_path,
            identity,
            watched: WatchedDirectories::new(is_recursive),
            waiting: VecDeque::new(),
            event_count: 0,
            ended: false,
            closing,
            _share: share,
        };
        let ready = json!({"path": changes.file_path.text(), "directories": walk.count()});
        changes.waiting.push_back(("ready", ready));
        changes.take_walk(walk);
        Ok(changes)
    }

    /// A path below the watched directory as readers know it.
    fn shown(&self, path: &Path) -> String {
        self.file_path.prefix().join(path).to_string_lossy().into_owned()
    }

    /// Takes what the kernel has. `Err` where that is nothing.
    fn take(&mut self) -> Result<(), Errno> {
        let mut buffer = [MaybeUninit::uninit(); PIECE_BYTES];
        let mut reader = inotify::Reader::new(self.kernel.get_ref(), &mut buffer);
        loop {
            let event = reader.next()?;
            let flags = event.events();
            let is_root = self.watched.is_root(event.wd());
            let is_gone =
                flags.intersects(ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF);
            self.ended |= is_root && is_gone;
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            let path = name.and_then(|name| self.watched.path_of(event.wd(), name));
            let kind = EVENT_NAMES.iter().find(|(flag, _)| flags.contains(*flag)).map(|(_, kind)| *kind);
            // What happens to a directory itself is an event of the one that holds it, too.
            let is_reported = path.is_some() || (name.is_none() && (is_root || kind == Some("lagged")));
            let is_known = kind == Some("created") && self.watched.was_found(path.as_deref());
            if let Some(kind) = kind
                && is_reported
                && !is_known
            {
                let cookie = (event.cookie() != 0).then(|| event.cookie());
                self.waiting.push_back((
                    kind,
                    json!({
                        "path": path.as_deref().map(|path| self.shown(path)),
                        "directory": flags.contains(ReadFlags::ISDIR),
                        "cookie": cookie,
                    }),
                ));
            }
            // The walk that has found a directory has been in it.
            let path = path.filter(|_| !is_known);
            for removed in self.watched.follow(event.wd(), flags, event.cookie(), path) {
                // The kernel has removed it with its directory.
                let _ = inotify::remove_watch(self.kernel.get_ref(), removed);
            }
            if reader.is_buffer_empty() {
                return Ok(());
            }
        }
    }

    /// Watches the directories that have come. Nothing is changed before it returns.
    async fn watch_more(&mut self) -> Result<(), ApiRejection> {
        let failed = |error: std::io::Error| storage("the directory cannot be watched", &error);
        let kernel = self.kernel.get_ref().try_clone().map_err(failed)?;
        let (file_path, expected, owner) =
            (self.file_path.clone(), self.identity, self.files.owner().clone());
        let (wanted, known) = self.watched.wanted();
        let walk = move |tree: &super::FileTree| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let directory = paths::open(tree.root(), file_path.path(), flags, Mode::empty())?;
            // Another directory has its name by now: the kernel's event of its end is under way.
            let is_same = identity(&directory) == Ok(expected);
            Ok(is_same.then(|| WatchWalk::more(&kernel, &directory, wanted, known, &owner)))
        };
        match super::act(&self.files, walk).await {
            Ok(walk) => self.take_walk(walk.unwrap_or_default()),
            Err(refused) if matches!(refused.code, Code::FileNotFound | Code::SandboxNotFound) => {
                self.take_walk(WatchWalk::default())
            }
            Err(refused) => return Err(refused),
        }
        Ok(())
    }

    fn take_walk(&mut self, walk: WatchWalk) {
        for (path, is_directory) in &walk.found {
            let data = json!({"path": self.shown(path), "directory": is_directory, "cookie": null});
            self.waiting.push_back(("created", data));
        }
        if walk.is_cut {
            self.waiting.push_back(("lagged", json!({"path": null, "directory": false, "cookie": null})));
        }
        for (path, reason) in self.watched.add(walk) {
            let data = json!({
                "path": self.shown(&path),
                "directory": true,
                "reason": reason,
                "directories": self.watched.count(),
            });
            self.waiting.push_back(("unwatched", data));
        }
    }
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    fstat(directory).map(|status| (status.st_dev, status.st_ino))
}

impl EventSource for DirectoryChanges {
    async fn next(&mut self) -> Option<StreamEvent> {
        loop {
            // Before anything is sent: the longer a directory has no watch, the more of its events
            // are missed.
            if self.watched.has_wanted() {
                self.watch_more().await.ok()?;
            }
            if let Some((name, data)) = self.waiting.pop_front() {
                self.event_count += 1;
                return Some(StreamEvent { id: self.event_count.to_string(), name, data });
            }
            if self.ended || *self.closing.borrow() {
                return None;
            }
            tokio::select! {
                ready = self.kernel.readable() => ready.ok()?.clear_ready(),
                _ = self.closing.changed() => continue,
            }
            match self.take() {
                Err(Errno::AGAIN) => self.watched.forget_found(),
                Ok(()) | Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}
