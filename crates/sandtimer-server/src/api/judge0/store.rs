//! Submissions that are executed, in memory, and the records of all, on the disk: a record outlives the server.
//!
//! ```text
//! submissions/TOKEN.json   the owner, and the attributes
//! ```

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Map, Value, json};

use super::submission::{LiveSubmission, Submission};
use super::verdict;
use crate::auth::Owner;
use crate::error::{Code, Refusal};
use crate::owned::{Owned, Registry};

/// Submissions of one owner that may wait or be executed.
pub(super) const MAX_QUEUED: usize = 1_000;
/// What is kept of those that have ended: so many, of so many bytes, for so long.
const MAX_KEPT: usize = 10_000;
const MAX_BYTES: u64 = 1 << 30;
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// After this number of ended submissions, old records are removed.
const THINNED_EVERY: usize = 64;

/// All submissions.
#[derive(Debug)]
pub(crate) struct Submissions {
    directory: PathBuf,
    live: Registry<LiveSubmission>,
    ended: AtomicUsize,
}

impl Submissions {
    /// Opens those of a state directory.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn open(state_directory: &Path) -> io::Result<Self> {
        let directory = state_directory.join("submissions");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let submissions = Submissions { directory, live: Registry::default(), ended: AtomicUsize::new(0) };
        submissions.thin_out()?;
        Ok(submissions)
    }

    /// Refuses what does not fit into this owner's queue.
    pub(super) fn check_room(&self, owner: &Owner, count: usize) -> Result<(), Refusal> {
        if self.live.of(owner).len() + count <= MAX_QUEUED {
            return Ok(());
        }
        Err(Refusal::new(Code::Capacity, "queue is full"))
    }

    /// The submission of this owner. Reads the disk.
    pub(super) fn find(&self, token: &str, owner: &Owner) -> Option<Submission> {
        if let Some(live) = self.live.find(token, owner) {
            return Some(Submission::live(live));
        }
        let is_token = token.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
        let bytes = fs::read(self.path(token)).ok().filter(|_| is_token)?;
        let mut stored: Value = serde_json::from_slice(&bytes).ok()?;
        if stored["owner"].as_str() != Some(owner.as_str()) {
            return None;
        }
        let Value::Object(mut record) = stored["record"].take() else { return None };
        if [verdict::IN_QUEUE, verdict::PROCESSING].contains(&record["status_id"].as_u64()?) {
            record["status_id"] = verdict::INTERNAL_ERROR.into();
            record["message"] = super::submission::encoded(b"the server ended before the program did").into();
        }
        Some(Submission::stored(token.to_owned(), record))
    }

    fn path(&self, token: &str) -> PathBuf {
        self.directory.join(format!("{token}.json"))
    }

    /// Adds one, of which there is a record from now on. Writes the disk.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub(super) fn add(&self, live: Arc<LiveSubmission>) -> io::Result<()> {
        self.write(&live)?;
        self.live.add(live);
        Ok(())
    }

    /// Records one that has ended. Writes the disk.
    ///
    /// # Errors
    /// When the disk does not take it; it stays in memory then.
    pub(super) fn end(&self, live: &LiveSubmission) -> io::Result<()> {
        self.write(live)?;
        self.live.remove(live.id());
        if self.ended.fetch_add(1, Ordering::Relaxed) % THINNED_EVERY == THINNED_EVERY - 1 {
            self.thin_out()?;
        }
        Ok(())
    }

    fn write(&self, live: &LiveSubmission) -> io::Result<()> {
        let record = json!({"owner": live.owner().as_str(), "record": live.record()});
        let (path, part) = (self.path(live.id()), self.directory.join(format!("{}.part", live.id())));
        fs::write(&part, record.to_string())?;
        fs::rename(part, path)
    }

    /// Removes the oldest records beyond what is kept.
    fn thin_out(&self) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            // One that another request has removed.
            let Ok(status) = entry.metadata() else { continue };
            found.push((status.modified()?, status.len(), entry.path()));
        }
        found.sort_by(|one, other| other.0.cmp(&one.0));
        let oldest =
            SystemTime::UNIX_EPOCH + Duration::from_millis(calendar_milliseconds()).saturating_sub(MAX_AGE);
        let live: HashSet<String> = self.live.all().iter().map(|live| live.id().to_owned()).collect();
        let mut bytes = 0;
        for (index, (modified, length, path)) in found.into_iter().enumerate() {
            bytes += length;
            let is_live = path.file_stem().is_some_and(|token| live.contains(&*token.to_string_lossy()));
            if (index >= MAX_KEPT || bytes > MAX_BYTES || modified < oldest) && !is_live {
                // One that cannot be removed is met again.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

/// The attributes of a submission, without any.
pub(super) fn empty_record(names: &[&str]) -> Map<String, Value> {
    names.iter().map(|name| ((*name).to_owned(), Value::Null)).collect()
}
