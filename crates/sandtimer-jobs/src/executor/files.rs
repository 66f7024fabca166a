//! The files of a job: its directory is filled before its first run, and searched after its last.
//!
//! What is done in it is done on a thread with the rights of the files' owner, beneath it, over no
//! link, and nothing is opened that is no file. The store is asked by the job's own thread alone,
//! which has the rights that the store needs.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2};
use rustix::io::{Errno, pread, retry_on_intr};
use sandtimer::engine::{as_files_owner, open_workspace};
use sandtimer::supervise::bytes;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::execution::{JobExecution, StopCause};
use crate::job::{
    FILE_PIECE, FileOf, InputFile, JobFile, JobFileRefused, MAX_JOB_FILES, MAX_PATH_DEPTH, OutputSpec,
    StoreError, hexadecimal,
};

/// Entries of directories that are matched with the patterns of a job.
const MAX_ENTRIES: usize = 100_000;
/// Bytes of the results of other jobs that a job is given.
const MAX_RESULTS_BYTES: usize = 64 << 20;
/// Files that are named as not kept; of more their number.
const MAX_REJECTED_FILES: usize = 100;

impl JobExecution<'_> {
    /// Makes the job's directory, with its inputs in it.
    pub(super) fn prepare(&mut self) -> Result<(), StopCause> {
        if !self.spec.has_files() {
            return Ok(());
        }
        let scratch = self.scratch.as_ref().map_err(|why| {
            StopCause::Infrastructure(format!("this worker has no place for the files of jobs: {why}"))
        })?;
        let failed = |error: io::Error| {
            StopCause::Infrastructure(format!("the job's directory cannot be made: {error}"))
        };
        let made = scratch.make(&format!("{}-{}", self.held.id, self.held.epoch)).map_err(failed)?;
        let directory = self.directory.insert(Arc::new(made));
        let root = open_workspace(directory.path()).map_err(failed)?;
        let mut contents = Vec::with_capacity(self.spec.inputs.len());
        for input in &self.spec.inputs {
            contents.push((input.path.as_str(), self.fetch(input)?));
        }
        if let Some(path) = &self.spec.after.results {
            contents.push((path, self.results_of_others()?));
        }
        let write = || contents.iter().try_for_each(|(path, content)| write(root.as_fd(), path, content));
        as_files_owner(write).map_err(failed)
    }

    /// The results of the jobs that this one waited for, as a list in JSON in the order of its
    /// `after`.
    fn results_of_others(&self) -> Result<Vec<u8>, StopCause> {
        let mut list = b"[".to_vec();
        for id in self.after {
            let record =
                self.context.store.get(id).map_err(|error| StopCause::Infrastructure(error.to_string()))?;
            let shown = match &record {
                // Its retention has passed, or a person purged it.
                None => json!({"id": id, "state": "removed", "ok": null}),
                Some(record) => {
                    let result = record.result.as_ref();
                    let outcome = result.and_then(|result| result.outcome.as_ref());
                    json!({
                        "id": id,
                        "name": record.line.name,
                        "state": record.line.state,
                        "ok": record.line.ok,
                        "error": record.line.error,
                        "value": result.and_then(|result| result.value.as_ref()),
                        "stdout": outcome.map(|outcome| &outcome.stdout),
                    })
                }
            };
            if list.len() > 1 {
                list.push(b',');
            }
            list.extend_from_slice(format!("\n{shown}").as_bytes());
            if list.len() > MAX_RESULTS_BYTES {
                let problem = format!(
                    "`after_results`: the results of the jobs in `after` have more than {}; have them leave `outputs`",
                    bytes(MAX_RESULTS_BYTES as u64)
                );
                return Err(StopCause::failed(problem));
            }
        }
        list.extend_from_slice(b"\n]\n");
        Ok(list)
    }

    /// An input's content, as the store has it.
    fn fetch(&self, input: &InputFile) -> Result<Vec<u8>, StopCause> {
        let mut content = Vec::new();
        loop {
            let read = self.context.store.read_file(
                &self.held.id,
                FileOf::Input(&input.path),
                content.len() as u64,
                FILE_PIECE,
            );
            let piece = read.map_err(|error| StopCause::Infrastructure(error.to_string()))?;
            if piece.is_empty() {
                break;
            }
            content.extend_from_slice(&piece);
        }
        match crate::job::digest(&content) == input.sha256 {
            true => Ok(content),
            false => Err(StopCause::Infrastructure(format!(
                "the store has another content of the input `{}`",
                input.path
            ))),
        }
    }

    /// Keeps what the job was to leave, whatever became of it.
    pub(super) fn collect(&mut self) {
        let Some(directory) = self.directory.as_ref().filter(|_| !self.spec.outputs.is_empty()) else {
            return;
        };
        let (sender, messages) = sync_channel(2);
        let most = self.context.max_file_bytes;
        let search = || {
            let root = open_workspace(directory.path())?;
            let outputs = &self.spec.outputs;
            as_files_owner(move || {
                let mut search = OutputSearch {
                    root: root.as_fd(),
                    most,
                    left: most,
                    sender,
                    reported: BTreeSet::new(),
                    kept: 0,
                    entries: 0,
                };
                // If the lease was lost, the collector no longer receives.
                let _ = outputs.iter().try_for_each(|output| search.output(output));
                Ok(())
            })
        };
        let mut kept = CollectedFiles::default();
        let searched = std::thread::scope(|scope| {
            let searching = std::thread::Builder::new().spawn_scoped(scope, search)?;
            for message in messages {
                if self.keep(&mut kept, message).is_err() {
                    break;
                }
            }
            searching
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread that looked for them failed")))
        });
        if let Err(error) = searched {
            kept.refuse("outputs".to_owned(), error.to_string());
        }
        kept.sum_up();
        (self.result.files, self.result.files_refused) = (kept.files, kept.refused);
    }

    /// Takes up what was found. An error where the rest is not wanted.
    fn keep(&self, kept: &mut CollectedFiles, message: SearchMessage) -> Result<(), StoreError> {
        match message {
            SearchMessage::Piece { name, start, bytes } => {
                if kept.broken.as_deref() == Some(name.as_str()) {
                    return Ok(());
                }
                match self.context.store.write_file(self.held, &name, start, &bytes) {
                    Err(lost @ StoreError::Lost(_)) => return Err(lost),
                    Err(error) => {
                        kept.refuse(name.clone(), format!("the store did not take it: {error}"));
                        kept.broken = Some(name);
                    }
                    Ok(()) => {}
                }
            }
            SearchMessage::File(file) if kept.broken.as_ref() == Some(&file.name) => {}
            SearchMessage::File(file) => kept.files.push(file),
            SearchMessage::Refused { name, reason } => kept.refuse(name, reason),
        }
        Ok(())
    }
}

/// The result of collecting the files.
#[derive(Debug, Default)]
struct CollectedFiles {
    files: Vec<JobFile>,
    refused: Vec<JobFileRefused>,
    /// How many more are not kept.
    more: usize,
    /// The file whose beginning the store did not take.
    broken: Option<String>,
}

impl CollectedFiles {
    fn refuse(&mut self, name: String, reason: String) {
        if self.refused.len() < MAX_REJECTED_FILES {
            self.refused.push(JobFileRefused { name, reason });
        } else {
            self.more += 1;
        }
    }

    fn sum_up(&mut self) {
        if self.more > 0 {
            let reason = format!("{} more are not kept", self.more);
            self.refused.push(JobFileRefused { name: "…".to_owned(), reason });
        }
    }
}

/// Writes an input where nothing is yet but other inputs.
fn write(root: BorrowedFd<'_>, path: &str, content: &[u8]) -> io::Result<()> {
    let path = Path::new(path);
    let above: Vec<&Path> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
    for directory in above.into_iter().rev() {
        match mkdirat(root, directory, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut left = content;
    let file = openat2(root, path, flags, Mode::from_raw_mode(0o644), BENEATH)?;
    while !left.is_empty() {
        left = &left[retry_on_intr(|| rustix::io::write(&file, left))?..];
    }
    Ok(())
}

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// A message of the thread that searches to the thread that stores.
#[derive(Debug)]
enum SearchMessage {
    Piece {
        name: String,
        start: u64,
        bytes: Vec<u8>,
    },
    /// All pieces of the file were sent.
    File(JobFile),
    Refused {
        name: String,
        reason: String,
    },
}

/// The collector accepts no more files.
#[derive(Debug)]
struct CollectorClosed;

/// Searches a job's directory. All processes of the job are dead by then, so the directory does not
/// change during the search.
#[derive(Debug)]
struct OutputSearch<'a> {
    root: BorrowedFd<'a>,
    /// Bytes that are kept of one job, and how many of them are left.
    most: u64,
    left: u64,
    sender: SyncSender<SearchMessage>,
    /// What was kept or refused.
    reported: BTreeSet<String>,
    kept: usize,
    entries: usize,
}

impl OutputSearch<'_> {
    fn output(&mut self, output: &OutputSpec) -> Result<(), CollectorClosed> {
        if output.is_name() {
            return self.file(&output.text);
        }
        let before = self.reported.len();
        let base = output.base();
        match self.open(if base.is_empty() { "." } else { base }, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(directory) => self.walk(output, &directory, base, 0)?,
            Err(Errno::NOENT) => {}
            Err(error) => return self.refuse(&output.text, &errno_message(error)),
        }
        match self.reported.len() == before {
            true => self.refuse(&output.text, "nothing is there that it names"),
            false => Ok(()),
        }
    }

    /// Walks through a directory, in the order of its names.
    fn walk(
        &mut self,
        output: &OutputSpec,
        directory: &OwnedFd,
        path: &str,
        depth: usize,
    ) -> Result<(), CollectorClosed> {
        if depth == MAX_PATH_DEPTH {
            return self.refuse(
                path,
                &format!("lies deeper than {MAX_PATH_DEPTH} directories, and was not looked into"),
            );
        }
        let mut entries = BTreeSet::new();
        let Ok(listed) = Dir::read_from(directory) else {
            return self.refuse(if path.is_empty() { &output.text } else { path }, "cannot be listed");
        };
        for entry in listed.flatten() {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if self.entries == MAX_ENTRIES {
                let reason =
                    format!("was not looked into to its end: there are more than {MAX_ENTRIES} files");
                return self.refuse(&output.text, &reason);
            }
            self.entries += 1;
            entries.insert(name.to_owned());
        }
        for name in entries {
            let Ok(text) = name.to_str() else {
                let shown = format!("{path}/{}", name.to_string_lossy().escape_default());
                self.refuse(shown.trim_start_matches('/'), "its name is not UTF-8")?;
                continue;
            };
            let below = if path.is_empty() { text.to_owned() } else { format!("{path}/{text}") };
            match self.kind(&below) {
                Ok(FileType::Directory) => match self.open(&below, OFlags::RDONLY | OFlags::DIRECTORY) {
                    Ok(opened) => self.walk(output, &opened, &below, depth + 1)?,
                    Err(error) => self.refuse(&below, &errno_message(error))?,
                },
                _ if output.is_match(&below) => self.file(&below)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps one file, or reports why not.
    fn file(&mut self, name: &str) -> Result<(), CollectorClosed> {
        if self.reported.contains(name) {
            return Ok(());
        }
        match self.kind(name) {
            Ok(FileType::RegularFile) => {}
            Ok(FileType::Directory) => {
                return self.refuse(name, &format!("is a directory; its files are named `{name}/**`"));
            }
            Ok(FileType::Symlink) => return self.refuse(name, "is a symbolic link, which is not followed"),
            Ok(_) => return self.refuse(name, "is a FIFO, a socket or a device, which is not opened"),
            Err(error) => return self.refuse(name, &errno_message(error)),
        }
        if self.kept == MAX_JOB_FILES {
            return self
                .refuse(name, &format!("a job keeps at most {MAX_JOB_FILES} files; let it pack them"));
        }
        let opened = self.open(name, OFlags::RDONLY).and_then(|file| Ok((fstat(&file)?, file)));
        let (facts, file) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.refuse(name, &errno_message(error)),
        };
        let size = u64::try_from(facts.st_size).unwrap_or(u64::MAX);
        if size > self.left {
            let reason = format!(
                "has {}, of the {} that are kept of a job only {} are left; the worker's operator sets them",
                bytes(size),
                bytes(self.most),
                bytes(self.left)
            );
            return self.refuse(name, &reason);
        }
        self.left -= size;
        self.send_file(name, &file, size)
    }

    /// Sends a whole file, a piece at a time.
    fn send_file(&mut self, name: &str, file: &OwnedFd, size: u64) -> Result<(), CollectorClosed> {
        let (mut start, mut digest) = (0, Sha256::new());
        while start < size {
            let mut piece = vec![0; FILE_PIECE.min(usize::try_from(size - start).unwrap_or(FILE_PIECE))];
            let length = match retry_on_intr(|| pread(file, &mut piece[..], start)) {
                Ok(0) => return self.refuse(name, "became shorter while it was read"),
                Ok(length) => length,
                Err(error) => return self.refuse(name, &errno_message(error)),
            };
            piece.truncate(length);
            digest.update(&piece);
            self.send(SearchMessage::Piece { name: name.to_owned(), start, bytes: piece })?;
            start += length as u64;
        }
        self.reported.insert(name.to_owned());
        self.kept += 1;
        let sha256 = hexadecimal(&digest.finalize());
        self.send(SearchMessage::File(JobFile { name: name.to_owned(), bytes: size, sha256 }))
    }

    fn refuse(&mut self, name: &str, reason: &str) -> Result<(), CollectorClosed> {
        match self.reported.insert(name.to_owned()) {
            true => self.send(SearchMessage::Refused { name: name.to_owned(), reason: reason.to_owned() }),
            false => Ok(()),
        }
    }

    fn send(&self, message: SearchMessage) -> Result<(), CollectorClosed> {
        self.sender.send(message).map_err(|_| CollectorClosed)
    }

    /// What is there, which is not opened for that.
    fn kind(&self, path: &str) -> Result<FileType, Errno> {
        let entry = openat2(
            self.root,
            path,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            BENEATH,
        )?;
        Ok(FileType::from_raw_mode(fstat(&entry)?.st_mode))
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        openat2(self.root, path, flags, Mode::empty(), BENEATH)
    }
}

fn errno_message(error: Errno) -> String {
    match error {
        Errno::NOENT => "is not there".to_owned(),
        Errno::ACCESS | Errno::PERM => {
            "its mode, or that of a directory above it, forbids reading it".to_owned()
        }
        Errno::LOOP => "is reached through a symbolic link, which is not followed".to_owned(),
        Errno::NOTDIR => "is below a path that is not a directory".to_owned(),
        other => format!("cannot be read: {other}"),
    }
}
