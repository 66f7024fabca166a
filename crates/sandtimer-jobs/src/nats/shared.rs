//! What the callers' threads and the thread of the connection share: the copy of the tables, the
//! store's clock, and which callers wait for which commands.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::{boot_milliseconds, monotonic_nanoseconds};

use crate::job::StoreError;

use super::command::CommandResult;
use super::replica::{Message, Replica};

/// How long a call waits for a server that is away or busy.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// When another snapshot is due: after this many messages, or bytes of them. All users of a log
/// need the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct SnapshotThresholds {
    pub messages: u64,
    pub bytes: u64,
}

#[derive(Debug)]
pub(super) struct SharedReplica {
    state: Mutex<ReplicaState>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct ReplicaState {
    pub replica: Replica,
    /// The store's clock, as what is added to CLOCK_BOOTTIME: as far ahead as any message has
    /// shown, so it never goes back.
    offset_ms: i64,
    /// The commands whose senders wait, and what they did.
    waiting: HashMap<String, Option<Result<CommandResult, StoreError>>>,
    /// Why the log is not being followed; `None` while it is.
    pub trouble: Option<Trouble>,
    /// How often the following has begun again.
    pub rounds: u64,
    /// Snapshots that are being written.
    pub writing: u32,
    /// Bytes of the log since the last place at which a snapshot was due.
    unsnapshotted_bytes: u64,
    /// The last snapshot could not be written, and that was reported.
    is_without: bool,
}

/// Why the log is not followed.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    since: u64,
    kind: TroubleKind,
}

#[derive(Debug, Clone)]
enum TroubleKind {
    Newer {
        found: i64,
        known: i64,
    },
    Unreachable(String),
    /// The server does not have this log any more.
    LogMissing(String),
    /// This program's own copy, not the server.
    Broken(String),
}

impl Trouble {
    pub fn new(error: &StoreError) -> Self {
        let kind = match error {
            StoreError::Newer { found, known } => TroubleKind::Newer { found: *found, known: *known },
            StoreError::Unreachable(message) => TroubleKind::Unreachable(message.clone()),
            StoreError::Gone(message) => TroubleKind::LogMissing(message.clone()),
            StoreError::Broken(message) => TroubleKind::Broken(message.clone()),
            other => TroubleKind::Broken(other.to_string()),
        };
        Trouble { since: monotonic_nanoseconds(), kind }
    }

    /// The same, beginning now.
    pub fn beginning_now(self) -> Self {
        Trouble { since: monotonic_nanoseconds(), ..self }
    }

    /// What is known of it by now, since when it is there.
    pub fn saying(self, error: &StoreError) -> Self {
        Trouble { since: self.since, ..Trouble::new(error) }
    }

    /// As the error of a call.
    pub fn error(&self) -> StoreError {
        match &self.kind {
            TroubleKind::Newer { found, known } => StoreError::Newer { found: *found, known: *known },
            TroubleKind::Unreachable(message) => StoreError::Unreachable(message.clone()),
            TroubleKind::LogMissing(message) => StoreError::Gone(message.clone()),
            TroubleKind::Broken(message) => StoreError::Broken(message.clone()),
        }
    }

    /// Whether waiting cannot mend it, or it has already lasted for too long.
    pub fn is_lasting(&self) -> bool {
        let age = Duration::from_nanos(monotonic_nanoseconds() - self.since);
        self.is_unreadable() || age > CALL_TIMEOUT
    }

    /// Whether it is this program's own, and not the server's.
    pub fn is_broken(&self) -> bool {
        matches!(self.kind, TroubleKind::Broken(_))
    }

    /// Whether the log is of a later version, or gone: waiting does not help.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.kind, TroubleKind::Newer { .. } | TroubleKind::LogMissing(_))
    }
}

impl SharedReplica {
    pub fn new() -> Result<Self, StoreError> {
        let state = ReplicaState {
            replica: Replica::empty()?,
            offset_ms: i64::MIN,
            waiting: HashMap::new(),
            trouble: None,
            rounds: 0,
            writing: 0,
            unsnapshotted_bytes: 0,
            is_without: false,
        };
        Ok(SharedReplica { state: Mutex::new(state), changed: Condvar::new() })
    }

    pub fn lock(&self) -> MutexGuard<'_, ReplicaState> {
        // A transaction that a panic left open was undone when it was dropped; the rest is whole
        // whatever happened.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it, and wakes all waiting threads.
    pub fn change<T>(&self, change: impl FnOnce(&mut ReplicaState) -> T) -> T {
        let done = change(&mut self.lock());
        self.changed.notify_all();
        done
    }

    /// Waits until `is` finds what it looks for, or until this moment of the monotonic clock.
    pub fn wait<T>(&self, until: u64, mut is: impl FnMut(&mut ReplicaState) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(found) = is(&mut state) {
                return Some(found);
            }
            let left = until.saturating_sub(monotonic_nanoseconds());
            if left == 0 {
                return None;
            }
            let waited = self.changed.wait_timeout(state, Duration::from_nanos(left));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl ReplicaState {
    /// The store's moment, from what the server's messages have shown; before the first one the
    /// beginning of time.
    pub fn now(&self) -> i64 {
        match self.offset_ms {
            i64::MIN => self.replica.now(),
            offset => offset + boot_milliseconds() as i64,
        }
    }

    /// Applies the next message. Returns whether its sender waits here and a snapshot is due: the
    /// sender is to write it.
    pub fn apply(&mut self, message: &Message<'_>, often: SnapshotThresholds) -> Result<bool, StoreError> {
        let done = self.replica.apply(message)?;
        // A message that was long on its way shows too little; the latest one shows most.
        self.offset_ms = self.offset_ms.max(self.replica.now() - boot_milliseconds() as i64);
        let waits = self.waiting.contains_key(message.id);
        self.unsnapshotted_bytes += message.payload.len() as u64;
        // What is written stays within four times of what came.
        let is_large =
            self.unsnapshotted_bytes >= often.bytes && self.unsnapshotted_bytes >= self.replica.bytes()? / 4;
        let is_due = message.sequence.is_multiple_of(often.messages) || is_large;
        if is_due {
            self.unsnapshotted_bytes = 0;
        }
        if let Some(done) = done {
            self.answer(message.id, done);
        }
        Ok(waits && is_due)
    }

    /// Begins again with another copy: an empty one, or that of a place at which a snapshot was
    /// due.
    pub fn begin_with(&mut self, replica: Replica) {
        (self.replica, self.unsnapshotted_bytes) = (replica, 0);
    }

    /// Notes the result of a snapshot. Returns whether it is to be reported: once, until one is
    /// written again.
    pub fn wrote(&mut self, written: &Result<(), StoreError>) -> bool {
        let was_without = std::mem::replace(&mut self.is_without, written.is_err());
        self.is_without && !was_without
    }

    /// Notes that a caller waits for this command.
    pub fn expect(&mut self, id: &str) {
        self.waiting.insert(id.to_owned(), None);
    }

    /// Keeps the result of a command, if a caller waits for it. The first answer stays.
    pub fn answer(&mut self, id: &str, answer: Result<CommandResult, StoreError>) {
        if let Some(slot @ None) = self.waiting.get_mut(id) {
            *slot = Some(answer);
        }
    }

    /// Takes the answer, if it is there.
    pub fn answered(&mut self, id: &str) -> Option<Result<CommandResult, StoreError>> {
        self.waiting.get_mut(id)?.take()
    }

    /// Notes that no caller waits for the command any more.
    pub fn forget(&mut self, id: &str) {
        self.waiting.remove(id);
    }
}
