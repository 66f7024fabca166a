//! Compiled programs, kept on the disk by the hash of what they were made of.
//!
//! ```text
//! programs/KEY   a line of JSON (the report of the compiler), then the program
//! ```
//! The key covers the owner, so that an owner is only ever given what its own sources were compiled
//! to. Programs that were not used for longest are removed first. Errors in a program are kept too:
//! a trainer sends it once for each test case. A result that a limit affected is not kept: only the
//! requests that waited for it get it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::ending::StageReport;
use super::spec::ProgramSpec;
use crate::auth::OwnerId;

/// Bytes of all programs that are kept.
const MAX_BYTES: u64 = 256 << 20;
/// Changes when the compilers' commands or the form of the files do.
const FORM: &str = "2";

/// What a compiler made.
#[derive(Debug, Clone)]
pub(crate) struct CompiledProgram {
    pub report: StageReport,
    /// The program; empty if it does not compile.
    pub program: Vec<u8>,
}

/// The hash of what a program is made of, as the name of its file.
pub(super) fn key(owner: &OwnerId, version: &str, program: &ProgramSpec) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    let language = program.language;
    for text in
        [FORM, owner.as_str(), language.name, version, language.compile.unwrap_or_default(), program.file()]
    {
        add(text.as_bytes());
    }
    add(&program.source);
    program.compiler_options.iter().for_each(|option| add(option.as_bytes()));
    // Between the options and the files, whose numbers vary.
    add(b"\0");
    for file in &program.files {
        add(file.path.as_bytes());
        add(&file.content);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The programs that are kept.
#[derive(Debug)]
pub(crate) struct CompileCache {
    directory: PathBuf,
    index: Mutex<ProgramIndex>,
    gates: Mutex<HashMap<String, Weak<CompileGate>>>,
}

/// A result of a compiler that is not cached, and its number.
type NumberedResult = Option<(u64, CompiledProgram)>;

/// Lets one of the requests for the same program compile it; the others wait for the result.
#[derive(Debug, Default)]
pub(super) struct CompileGate {
    /// How many results were published.
    results: AtomicU64,
    latest: tokio::sync::Mutex<NumberedResult>,
}

impl CompileGate {
    pub fn results(&self) -> u64 {
        self.results.load(Ordering::Acquire)
    }

    pub async fn enter(&self) -> tokio::sync::MutexGuard<'_, NumberedResult> {
        self.latest.lock().await
    }

    /// The result that was published after number `since`.
    pub fn result_since(&self, since: u64, latest: &NumberedResult) -> Option<CompiledProgram> {
        latest.as_ref().filter(|(number, _)| *number > since).map(|(_, compiled)| compiled.clone())
    }

    /// Gives a result to all that have waited for it: a later request is compiled again.
    pub fn publish(&self, latest: &mut NumberedResult, compiled: &CompiledProgram) {
        let number = self.results.fetch_add(1, Ordering::AcqRel) + 1;
        *latest = Some((number, compiled.clone()));
    }
}

/// The programs in the cache, without their content.
#[derive(Debug, Default)]
struct ProgramIndex {
    /// The size of each program, and its last use in the order of all uses.
    programs: HashMap<String, (u64, u64)>,
    bytes: u64,
    uses: u64,
}

impl ProgramIndex {
    fn add(&mut self, key: String, bytes: u64) {
        self.uses += 1;
        let before = self.programs.insert(key, (bytes, self.uses));
        self.bytes = self.bytes + bytes - before.map_or(0, |(bytes, _)| bytes);
    }

    fn remove(&mut self, key: &str) {
        self.bytes -= self.programs.remove(key).map_or(0, |(bytes, _)| bytes);
    }

    /// Those to remove, so that all fit.
    fn excess(&mut self) -> Vec<String> {
        let mut removed = Vec::new();
        while self.bytes > MAX_BYTES {
            let oldest = self.programs.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.remove(&oldest);
            removed.push(oldest);
        }
        removed
    }
}

impl CompileCache {
    /// Opens the one in a state directory.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn open(state_directory: &Path) -> io::Result<Self> {
        let directory = state_directory.join("programs");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let (path, status) = (entry.path(), entry.metadata()?);
            if path.extension().is_some() {
                // It was being written when a server died.
                fs::remove_file(&path)?;
            } else {
                let key = entry.file_name().to_string_lossy().into_owned();
                found.push((status.modified()?, key, status.len()));
            }
        }
        found.sort();
        let mut index = ProgramIndex::default();
        found.into_iter().for_each(|(_, key, bytes)| index.add(key, bytes));
        Ok(CompileCache { directory, index: Mutex::new(index), gates: Mutex::default() })
    }

    fn index(&self) -> MutexGuard<'_, ProgramIndex> {
        // Each change is one call on it.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gate of this key.
    pub fn gate(&self, key: &str) -> Arc<CompileGate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(key).and_then(Weak::upgrade) {
            return gate;
        }
        gates.retain(|_, gate| gate.strong_count() > 0);
        let gate = Arc::<CompileGate>::default();
        gates.insert(key.to_owned(), Arc::downgrade(&gate));
        gate
    }

    pub fn has(&self, key: &str) -> bool {
        self.index().programs.contains_key(key)
    }

    /// The program of this key, if it is kept. Reads the disk.
    pub fn load(&self, key: &str) -> Option<CompiledProgram> {
        if !self.has(key) {
            return None;
        }
        let read = || -> io::Result<CompiledProgram> {
            let mut bytes = fs::read(self.directory.join(key))?;
            let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(io::ErrorKind::InvalidData)?;
            let report: StageReport = serde_json::from_slice(&bytes[..end])?;
            bytes.drain(..=end);
            Ok(CompiledProgram { report, program: bytes })
        };
        let found = read().ok();
        let mut index = self.index();
        match (&found, index.programs.get(key).map(|(bytes, _)| *bytes)) {
            (Some(_), Some(bytes)) => index.add(key.to_owned(), bytes),
            // It was removed while it was read.
            (Some(_), None) => {}
            (None, _) => index.remove(key),
        }
        found
    }

    /// Keeps a program unless it is too large; returns whether it is kept. Writes the disk.
    ///
    /// # Errors
    /// When the disk does not take it; nothing of it is left then.
    pub fn store(&self, key: &str, compiled: &CompiledProgram) -> io::Result<bool> {
        let (path, part) = (self.directory.join(key), self.directory.join(format!("{key}.part")));
        let report: Value = serde_json::to_value(&compiled.report)?;
        let mut bytes = report.to_string().into_bytes();
        bytes.push(b'\n');
        bytes.extend_from_slice(&compiled.program);
        if bytes.len() as u64 > MAX_BYTES / 4 {
            return Ok(false);
        }
        let written = fs::write(&part, &bytes).and_then(|()| fs::rename(&part, &path));
        written.inspect_err(|_| drop(fs::remove_file(&part)))?;
        let excess = {
            let mut index = self.index();
            index.add(key.to_owned(), bytes.len() as u64);
            index.excess()
        };
        for key in excess {
            // A file that cannot be removed is counted at the next start.
            let _ = fs::remove_file(self.directory.join(key));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(program: &[u8]) -> CompiledProgram {
        CompiledProgram { report: StageReport::unreadable("warning"), program: program.to_vec() }
    }

    #[test]
    fn cache_survives_a_restart() {
        let cache_directory = tempfile::tempdir().expect("a directory");
        let cache = CompileCache::open(cache_directory.path()).expect("opened");
        assert!(cache.load("a").is_none());
        cache.store("a", &compiled(b"one\ntwo")).expect("stored");
        fs::write(cache_directory.path().join("programs/b.part"), "half").expect("written");
        let again = CompileCache::open(cache_directory.path()).expect("opened");
        let found = again.load("a").expect("kept");
        assert_eq!((found.program, found.report.stderr), (b"one\ntwo".to_vec(), b"warning\n".to_vec()));
        assert!(!cache_directory.path().join("programs/b.part").exists());
        fs::write(cache_directory.path().join("programs/a"), "no JSON").expect("written");
        assert!(again.load("a").is_none() && again.load("a").is_none());
    }

    #[tokio::test]
    async fn gate_gives_result_to_those_that_waited() {
        let gate = CompileGate::default();
        let since = gate.results();
        let mut latest = gate.enter().await;
        assert!(gate.result_since(since, &latest).is_none());
        gate.publish(&mut latest, &compiled(b"one"));
        let found = gate.result_since(since, &latest).map(|compiled| compiled.program);
        assert_eq!(found, Some(b"one".to_vec()));
        // A request that comes later compiles again.
        assert!(gate.result_since(gate.results(), &latest).is_none());
    }

    #[test]
    fn cache_is_bounded() {
        let mut kept = ProgramIndex::default();
        for key in ["a", "b", "c", "d"] {
            kept.add(key.to_owned(), MAX_BYTES / 3);
        }
        kept.add("b".to_owned(), MAX_BYTES / 3);
        assert_eq!(kept.excess(), ["a"]);
        assert!(kept.bytes <= MAX_BYTES && kept.excess().is_empty());
        kept.add("e".to_owned(), MAX_BYTES / 3);
        assert_eq!(kept.excess(), ["c"]);
    }
}
