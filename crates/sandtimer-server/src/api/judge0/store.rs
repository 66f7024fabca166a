//! Submissions that are executed, in memory, and the records of all, on the disk: a record outlives
//! the server.
//!
//! ```text
//! submissions/OWNER/TOKEN.json   the owner, by a hash of the name and by the name, and the attributes
//! ```

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::submission::{LiveSubmission, Submission, TOKEN_LENGTH};
use super::verdict;
use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};
use crate::registry::{OwnedResource, Registry};

/// Submissions of one owner that may wait or be executed.
pub(super) const MAX_QUEUED: usize = 1_000;
/// Records of each owner that are kept: their number, their bytes and their age.
const MAX_RECORDS: usize = 10_000;
const MAX_BYTES: u64 = 1 << 30;
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// The longest record that is read.
const MAX_RECORD_BYTES: u64 = 256 << 20;
/// After this number of ended submissions, old records are removed.
const THINNING_INTERVAL: usize = 64;

/// All submissions.
#[derive(Debug)]
pub(crate) struct Submissions {
    directory: PathBuf,
    live: Registry<LiveSubmission>,
    ended: AtomicUsize,
    max_records: usize,
}

impl Submissions {
    /// Opens those of a state directory.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn open(state_directory: &Path) -> io::Result<Self> {
        let directory = state_directory.join("submissions");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let (live, ended) = (Registry::default(), AtomicUsize::new(0));
        let submissions = Submissions { directory, live, ended, max_records: MAX_RECORDS };
        submissions.thin_out_all()?;
        Ok(submissions)
    }

    /// Refuses what does not fit into this owner's queue.
    pub(super) fn check_room(&self, owner: &OwnerId, count: usize) -> Result<(), ApiRejection> {
        let queued = self.live.of(owner).iter().filter(|live| !live.has_finished()).count();
        if queued + count <= MAX_QUEUED {
            return Ok(());
        }
        Err(ApiRejection::new(Code::Capacity, "queue is full"))
    }

    /// The submission of this owner. Reads the disk.
    pub(super) fn find(&self, token: &str, owner: &OwnerId) -> Option<Submission> {
        if let Some(live) = self.live.find(token, owner) {
            return Some(Submission::live(live));
        }
        let mut stored: Value = serde_json::from_slice(&read(&self.path(token, owner)?).ok()?).ok()?;
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

    /// The bytes of a submission's record, 0 if this owner has no such submission. Reads the disk.
    pub(super) fn size(&self, token: &str, owner: &OwnerId) -> usize {
        if let Some(live) = self.live.find(token, owner) {
            return live.bytes();
        }
        let status = self.path(token, owner).and_then(|path| fs::symlink_metadata(path).ok());
        status.map_or(0, |status| usize::try_from(status.len()).unwrap_or(usize::MAX))
    }

    /// The directory of this owner's records.
    fn directory_of(&self, owner: &OwnerId) -> PathBuf {
        let hash = Sha256::digest(owner.as_str());
        self.directory.join(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    /// The record of a submission; `None` for what is not a token, such as a path.
    fn path(&self, token: &str, owner: &OwnerId) -> Option<PathBuf> {
        let is_letter = |byte: u8| byte == b'-' || byte.is_ascii_hexdigit();
        let is_token = token.len() == TOKEN_LENGTH && token.bytes().all(is_letter);
        is_token.then(|| self.directory_of(owner).join(format!("{token}.json")))
    }

    /// Adds one, of which there is a record from now on. Writes the disk.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub(super) fn add(&self, live: Arc<LiveSubmission>) -> io::Result<()> {
        let directory = self.directory_of(live.owner());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        self.write(&live)?;
        self.live.add(live);
        Ok(())
    }

    /// Records one that has ended. Writes the disk.
    ///
    /// # Errors
    /// When the disk does not take it; it stays in memory then, until the disk does.
    pub(super) fn end(&self, live: &LiveSubmission) -> io::Result<()> {
        self.write(live)?;
        self.live.remove(live.id());
        if self.ended.fetch_add(1, Ordering::Relaxed) % THINNING_INTERVAL == THINNING_INTERVAL - 1 {
            self.thin_out(&self.directory_of(live.owner()))?;
        }
        Ok(())
    }

    fn write(&self, live: &LiveSubmission) -> io::Result<()> {
        let path = self.path(live.id(), live.owner()).ok_or(io::ErrorKind::InvalidInput)?;
        let record = json!({"owner": live.owner().as_str(), "record": &*live.record()});
        let part = path.with_extension("part");
        fs::write(&part, record.to_string())?;
        fs::rename(part, path)
    }

    /// Writes the records that the disk did not take when their submissions ended, and removes old
    /// ones. Writes the disk.
    ///
    /// # Errors
    /// When the disk does not take a record still, or the directory cannot be read.
    pub fn maintain_records(&self) -> io::Result<()> {
        for live in self.live.all().into_iter().filter(|live| live.has_finished()) {
            self.end(&live)?;
        }
        self.thin_out_all()
    }

    fn thin_out_all(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.thin_out(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the oldest records of an owner beyond what is kept.
    fn thin_out(&self, directory: &Path) -> io::Result<()> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // Another request may have removed the file.
            let Ok(status) = entry.metadata() else { continue };
            found.push((status.modified()?, status.len(), entry.path()));
        }
        found.sort_by_key(|record| std::cmp::Reverse(record.0));
        let oldest =
            SystemTime::UNIX_EPOCH + Duration::from_millis(calendar_milliseconds()).saturating_sub(MAX_AGE);
        let live: HashSet<String> = self.live.all().iter().map(|live| live.id().to_owned()).collect();
        let mut bytes = 0;
        for (index, (modified, length, path)) in found.into_iter().enumerate() {
            bytes += length;
            let is_live = path.file_stem().is_some_and(|token| live.contains(&*token.to_string_lossy()));
            if (index >= self.max_records || bytes > MAX_BYTES || modified < oldest) && !is_live {
                // A file that cannot be removed is found again by the next pass.
                let _ = fs::remove_file(path);
            }
        }
        Ok(())
    }
}

/// Reads a record, which is a regular file of a bounded length.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let status = file.metadata()?;
    if !status.is_file() || status.len() > MAX_RECORD_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(owner: &str, index: usize) -> Arc<LiveSubmission> {
        LiveSubmission::new(format!("00000000-0000-4000-8000-{index:012}"), OwnerId::recorded(owner), None)
    }

    #[test]
    fn records_of_one_owner_do_not_remove_those_of_another() {
        let state_directory = tempfile::tempdir().expect("a directory");
        let submissions =
            Submissions { max_records: 3, ..Submissions::open(state_directory.path()).expect("opened") };
        let ended = |owner: &str, index| {
            let live = live(owner, index);
            submissions.add(live.clone()).and_then(|()| submissions.end(&live)).expect("recorded");
        };
        ended("quiet", 0);
        (1..9).for_each(|index| ended("busy", index));
        submissions.maintain_records().expect("thinned out");
        let count = |owner: &str| {
            let directory = submissions.directory_of(&OwnerId::recorded(owner));
            fs::read_dir(directory).map_or(0, Iterator::count)
        };
        assert_eq!((count("quiet"), count("busy")), (1, 3));
    }

    #[test]
    fn record_that_the_disk_did_not_take_is_written_later() {
        let state_directory = tempfile::tempdir().expect("a directory");
        let submissions = Submissions::open(state_directory.path()).expect("opened");
        let (live, owner) = (live("owner", 1), OwnerId::recorded("owner"));
        submissions.add(live.clone()).expect("added");
        let part = submissions.path(live.id(), &owner).expect("a path").with_extension("part");
        fs::create_dir(&part).expect("made");
        submissions.end(&live).expect_err("the disk does not take it");
        assert!(submissions.check_room(&owner, MAX_QUEUED).is_err(), "it has not finished");
        live.finish();
        assert!(submissions.check_room(&owner, MAX_QUEUED).is_ok(), "it has finished");
        submissions.maintain_records().expect_err("not yet");
        assert_eq!(submissions.live.all().len(), 1);
        fs::remove_dir(&part).expect("removed");
        submissions.maintain_records().expect("now");
        assert!(submissions.live.all().is_empty() && submissions.find(live.id(), &owner).is_some());
    }

    #[test]
    fn only_tokens_and_regular_files_are_read() {
        let state_directory = tempfile::tempdir().expect("a directory");
        let submissions = Submissions::open(state_directory.path()).expect("opened");
        let owner = OwnerId::recorded("owner");
        for path in ["../../other", "..", "", "abc", "00000000-0000-4000-8000-00000000000/"] {
            assert_eq!(submissions.path(path, &owner), None, "{path}");
        }
        let path = submissions.path(live("owner", 1).id(), &owner).expect("a path");
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("linked");
        assert!(read(&path).is_err());
        fs::remove_file(&path).expect("removed");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .expect("a fifo");
        assert!(read(&path).is_err());
    }
}
