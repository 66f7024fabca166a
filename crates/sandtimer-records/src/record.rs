//! The record of one run, and its file.
//!
//! ```text
//! <id>.begun   JSON of `Begun`, while the run is active
//! <id>.run     what was there │ bytes of stdout that were kept │ of stderr │ JSON of `Ended` │ its length, 8 bytes │ MARK
//! ```
//! A `.run` file is written under another name and then renamed: a writer that is killed leaves it
//! whole or not at all. Usually that is the `.begun` file, continued: making a file takes longer
//! than writing it. A later record of the same run continues a copy of the earlier one and replaces
//! it: the output keeps its offsets, for readers that have the earlier head. After a loss of power
//! a file may be cut short, which the missing mark shows. Its head comes last because only then it
//! is known which parts of the output were kept. Of a head that is long only what listings need
//! stays in memory.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandtimer::engine::Stream;
use sandtimer::model::{Encoding, Outcome};
use sandtimer::supervise::output::{Chunk, CollectedOutput, encode};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// The last bytes of a whole file; the digit is the version of the layout.
const MARK: &[u8; 8] = b"sandrun1";
/// No head is longer, except where it carries output itself.
const MAX_HEAD_BYTES: u64 = 1 << 30;
/// Output up to here is rebuilt from the kept bytes; an Outcome of more, which carries only some of
/// them, keeps its own.
const MAX_REBUILT_BYTES: u64 = 64 << 20;
/// Output of each stream up to this size also stays in memory with a record that was just written.
const MAX_OUTPUT_BYTES_IN_MEMORY: u64 = 4 << 10;
/// Heads up to here stay in memory as they are, where their value, error and results are few:
/// parsed, each takes some hundred bytes.
const MAX_HEAD_IN_MEMORY: usize = 4 << 10;
const MAX_VALUES_IN_MEMORY: usize = 64;
/// Bytes that are moved at a time.
const PIECE: usize = 1 << 20;

/// What is known of a run when it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStart {
    /// The identifier of the run, unique in the directory; the name of its files.
    pub run_id: String,
    /// The owner of the run, in the form of the program that keeps the records, such as `uid:1000`.
    pub owner: String,
    /// The command, as lists of runs show it.
    pub command: Vec<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// The limits that apply, with their sources, as the wire has them.
    pub effective: serde_json::Value,
    /// The context or session that executes it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// The sandbox that it ran in, if it ran in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// What was known at its start.
    #[serde(flatten)]
    pub begun: RunStart,
    /// Milliseconds since 1970.
    pub ended_at_ms: u64,
    /// The part of the Outcome that is in memory: perhaps without stdout and stderr, and of a large
    /// record without value, error and results. [`StoredRun::outcome`] returns all of it.
    // The file has it without stdout and stderr, which are rebuilt, unless `own_output`.
    #[serde(deserialize_with = "facts")]
    pub outcome: Outcome,
    own_output: bool,
    streams: [KeptOutput; 2],
    #[serde(skip)]
    in_memory: InMemory,
}

/// What of an Outcome is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum InMemory {
    All,
    /// What the head in the file has.
    #[default]
    Head,
    /// What is of the same size for all runs. With the length of the head.
    Facts(u64),
}

impl RunEnd {
    /// Leaves out of memory what takes much of it; the file has it.
    fn shrink(&mut self, head_bytes: usize) {
        let outcome = &mut self.outcome;
        let values = outcome.results.iter().chain(&outcome.value).chain(&outcome.error);
        if head_bytes <= MAX_HEAD_IN_MEMORY && values.map(count).sum::<usize>() <= MAX_VALUES_IN_MEMORY {
            return;
        }
        (outcome.stdout, outcome.stderr) = (String::new(), String::new());
        (outcome.value, outcome.error, outcome.results) = (None, None, Vec::new());
        self.in_memory = InMemory::Facts(head_bytes as u64);
    }
}

/// The values that a value is made of.
fn count(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    1 + match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(object) => object.values().map(count).sum(),
        _ => 0,
    }
}

/// The whole Outcome of a head.
#[derive(Debug, Deserialize)]
struct WholeOutcome {
    outcome: Outcome,
}

/// Reads a head without making anything of what may be large in it.
fn head(text: &[u8]) -> io::Result<RunEnd> {
    Ok(serde_json::from_slice(text)?)
}

fn whole_outcome(text: &[u8]) -> io::Result<Outcome> {
    let mut outcome = serde_json::from_slice::<WholeOutcome>(text)?.outcome;
    if outcome.encoding == Encoding::Base64
        && [outcome.stdout_encoding, outcome.stderr_encoding] == [Encoding::Utf8; 2]
    {
        // Written by a version that had one encoding for both.
        (outcome.stdout_encoding, outcome.stderr_encoding) = (Encoding::Base64, Encoding::Base64);
    }
    Ok(outcome)
}

/// An Outcome without what may be large: a head of which only the facts are kept is read without
/// making anything of the rest.
fn facts<'de, D: Deserializer<'de>>(from: D) -> Result<Outcome, D::Error> {
    struct FactsVisitor;
    impl<'de> Visitor<'de> for FactsVisitor {
        type Value = serde_json::Map<String, serde_json::Value>;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("an Outcome")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
            let mut facts = serde_json::Map::new();
            while let Some(name) = fields.next_key::<String>()? {
                let left_out = match name.as_str() {
                    "stdout" | "stderr" => serde_json::Value::String(String::new()),
                    "value" | "error" => serde_json::Value::Null,
                    "results" => serde_json::Value::Array(Vec::new()),
                    _ => {
                        let value = fields.next_value()?;
                        facts.insert(name, value);
                        continue;
                    }
                };
                fields.next_value::<IgnoredAny>()?;
                facts.insert(name, left_out);
            }
            Ok(facts)
        }
    }
    let facts = from.deserialize_map(FactsVisitor)?;
    serde_json::from_value(facts.into()).map_err(serde::de::Error::custom)
}

/// Which parts of a stream were kept, and where in the file they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptOutput {
    /// Bytes ever written to the stream.
    total: u64,
    /// Where in the file the first part begins; the others follow.
    at: u64,
    /// Position in the stream and length.
    parts: Vec<(u64, u64)>,
}

impl KeptOutput {
    fn length(&self) -> u64 {
        self.parts.iter().map(|(_, length)| length).sum()
    }

    fn add(&mut self, start: u64, length: u64) {
        match self.parts.last_mut() {
            Some((last, before)) if *last + *before == start => *before += length,
            _ => self.parts.push((start, length)),
        }
    }
}

/// Where a record is written: after the present contents of a file.
#[derive(Debug)]
pub(crate) struct Beginning {
    /// At its end.
    pub file: File,
    /// Its length.
    pub at: u64,
    /// What of the output it has.
    pub streams: [KeptOutput; 2],
}

impl Beginning {
    /// After the bytes of a file, or in a new one, without any output.
    pub fn after_bytes(file: File, at: u64) -> Self {
        Beginning { file, at, streams: Default::default() }
    }

    /// In a copy of an earlier record of the same run, in place of its head.
    pub fn copied(mut file: File, earlier: &Path) -> io::Result<Self> {
        let RecordHead { text, begins } = RecordHead::read(&File::open(earlier)?)?;
        let streams = head(&text)?.streams;
        let at = io::copy(&mut File::open(earlier)?.take(begins), &mut file)?;
        Ok(Beginning { file, at, streams })
    }
}

/// The record of a run that has ended. Its output is read from the disk each time.
#[derive(Debug, Clone)]
pub struct StoredRun {
    pub(crate) path: PathBuf,
    ended: Arc<RunEnd>,
}

/// Reads a run's output from a position, as [`sandtimer::Run::output`] does.
pub(crate) type Source<'a> = dyn FnMut(Stream, u64, usize) -> io::Result<Chunk> + 'a;

impl StoredRun {
    /// Writes a record. Output that is there already is not written again.
    pub(crate) fn write(
        beginning: Beginning,
        begun: RunStart,
        ended_at_ms: u64,
        outcome: &Outcome,
        source: &mut Source<'_>,
    ) -> io::Result<RunEnd> {
        let Beginning { file, mut at, mut streams } = beginning;
        let mut file = BufWriter::new(file);
        for (stream, kept) in [Stream::Stdout, Stream::Stderr].into_iter().zip(&mut streams) {
            if kept.total > 0 && source(stream, kept.total, 1)?.next_cursor == kept.total {
                continue;
            }
            *kept = KeptOutput { at, ..KeptOutput::default() };
            copy(stream, kept, source, &mut file)?;
            at += kept.length();
        }
        let own_output = streams.iter().any(|kept| kept.length() > MAX_REBUILT_BYTES);
        // Of a run whose server died only the bytes are there, and no Outcome with text.
        let mut texts = streams.iter().zip([&outcome.stdout, &outcome.stderr]);
        let in_memory = texts.all(|(kept, text)| {
            kept.length() <= MAX_OUTPUT_BYTES_IN_MEMORY && text.is_empty() == (kept.length() == 0)
        });
        let mut outcome = outcome.clone();
        let mut output = (String::new(), String::new());
        if !own_output {
            output = (std::mem::take(&mut outcome.stdout), std::mem::take(&mut outcome.stderr));
        }
        let mut ended =
            RunEnd { begun, ended_at_ms, outcome, own_output, streams, in_memory: InMemory::Head };
        let head = serde_json::to_vec(&ended)?;
        file.write_all(&head)?;
        file.write_all(&(head.len() as u64).to_le_bytes())?;
        file.write_all(MARK)?;
        file.flush()?;
        ended.shrink(head.len());
        if in_memory && ended.in_memory == InMemory::Head {
            if !own_output {
                (ended.outcome.stdout, ended.outcome.stderr) = output;
            }
            ended.in_memory = InMemory::All;
        }
        Ok(ended)
    }

    /// Reads the head of a file. Of one that is long nothing is made but what stays in memory.
    pub(crate) fn read(path: PathBuf) -> io::Result<Self> {
        let text = RecordHead::read(&File::open(&path)?)?.text;
        let mut ended = head(&text)?;
        if text.len() <= MAX_HEAD_IN_MEMORY {
            ended.outcome = whole_outcome(&text)?;
        }
        ended.shrink(text.len());
        Ok(Self::new(path, ended))
    }

    pub(crate) fn new(path: PathBuf, ended: RunEnd) -> Self {
        StoredRun { path, ended: Arc::new(ended) }
    }

    /// Returns the part of the record that is in memory; see [`RunEnd::outcome`].
    pub fn ended(&self) -> &RunEnd {
        &self.ended
    }

    /// Returns the whole Outcome if it is in memory.
    pub fn outcome_in_memory(&self) -> Option<&Outcome> {
        (self.ended.in_memory == InMemory::All).then_some(&self.ended.outcome)
    }

    /// The number of bytes that [`StoredRun::outcome`] has to read.
    pub fn bytes_on_disk(&self) -> u64 {
        let output = || self.ended.streams.iter().map(KeptOutput::length).sum::<u64>();
        match self.ended.in_memory {
            InMemory::All => 0,
            InMemory::Head => output(),
            InMemory::Facts(head) => head + output(),
        }
    }

    /// Returns the whole Outcome, from the disk if it is not in memory.
    ///
    /// # Errors
    /// If the file cannot be read, or was removed.
    pub fn outcome(&self) -> io::Result<Outcome> {
        let file = match self.ended.in_memory {
            InMemory::All => return Ok(self.ended.outcome.clone()),
            InMemory::Head | InMemory::Facts(_) => File::open(&self.path)?,
        };
        let mut outcome = match self.ended.in_memory {
            InMemory::Facts(_) => whole_outcome(&RecordHead::read(&file)?.text)?,
            _ => self.ended.outcome.clone(),
        };
        if !self.ended.own_output {
            let [stdout, stderr] = [0, 1].map(|stream| self.collect(&file, stream));
            outcome.set_output(encode(&stdout?), encode(&stderr?));
        }
        Ok(outcome)
    }

    /// Returns the Outcome without stdout and stderr.
    ///
    /// # Errors
    /// As [`StoredRun::outcome`], if it is not in memory.
    pub fn outcome_without_output(&self) -> io::Result<Outcome> {
        let outcome = match self.ended.in_memory {
            InMemory::Facts(_) => whole_outcome(&RecordHead::read(&File::open(&self.path)?)?.text)?,
            _ => self.ended.outcome.clone(),
        };
        Ok(Outcome { stdout: String::new(), stderr: String::new(), ..outcome })
    }

    /// The number of bytes that [`StoredRun::outcome_without_output`] has to read.
    pub fn head_bytes_on_disk(&self) -> u64 {
        match self.ended.in_memory {
            InMemory::Facts(head) => head,
            InMemory::All | InMemory::Head => 0,
        }
    }

    fn collect(&self, file: &File, stream: usize) -> io::Result<CollectedOutput> {
        let kept = &self.ended.streams[stream];
        let mut bytes = vec![0; usize::try_from(kept.length()).unwrap_or(0)];
        file.read_exact_at(&mut bytes, kept.at)?;
        let head = kept.parts.first().filter(|(start, _)| *start == 0);
        let head_len = head.map_or(0, |(_, length)| *length as usize);
        Ok(CollectedOutput { dropped: kept.total - bytes.len() as u64, bytes, head_len })
    }

    /// Reads at most `most` bytes of output from a position, as [`sandtimer::Run::output`] does.
    ///
    /// # Errors
    /// If the file cannot be read, or was removed.
    pub fn output(&self, stream: Stream, cursor: u64, most: usize) -> io::Result<Chunk> {
        let kept = &self.ended.streams[stream as usize];
        let cursor = cursor.min(kept.total);
        let mut at = kept.at;
        for (start, length) in &kept.parts {
            let end = start + length;
            if cursor < end {
                let from = cursor.max(*start);
                let count = (end - from).min(most as u64);
                let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
                File::open(&self.path)?.read_exact_at(&mut bytes, at + (from - start))?;
                return Ok(Chunk { bytes, next_cursor: from + count, dropped_before: from - cursor });
            }
            at += length;
        }
        Ok(Chunk { bytes: Vec::new(), next_cursor: kept.total, dropped_before: kept.total - cursor })
    }
}

/// The head of a file, and where it begins.
struct RecordHead {
    text: Vec<u8>,
    begins: u64,
}

impl RecordHead {
    fn read(mut file: &File) -> io::Result<Self> {
        let broken = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let length = file.metadata()?.len();
        if length < 16 {
            return Err(broken("it is too short"));
        }
        let mut tail = [0; 16];
        file.read_exact_at(&mut tail, length - 16)?;
        let mut head_length = [0; 8];
        head_length.copy_from_slice(&tail[..8]);
        let head_length = u64::from_le_bytes(head_length);
        if &tail[8..] != MARK || head_length > (length - 16).min(MAX_HEAD_BYTES) {
            return Err(broken("it is not the whole record of a run"));
        }
        let begins = length - 16 - head_length;
        file.seek(SeekFrom::Start(begins))?;
        let mut text = Vec::new();
        file.take(head_length).read_to_end(&mut text)?;
        Ok(RecordHead { text, begins })
    }
}

/// A new file for this user alone.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

fn copy(
    stream: Stream,
    kept: &mut KeptOutput,
    source: &mut Source<'_>,
    to: &mut impl Write,
) -> io::Result<()> {
    loop {
        let chunk = source(stream, kept.total, PIECE)?;
        let length = chunk.bytes.len() as u64;
        kept.total = chunk.next_cursor;
        if length == 0 {
            return Ok(());
        }
        kept.add(chunk.next_cursor - length, length);
        to.write_all(&chunk.bytes)?;
    }
}
