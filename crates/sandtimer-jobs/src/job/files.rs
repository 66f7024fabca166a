//! Files of jobs: the inputs of a job, and which of the files that it leaves are kept. Names and
//! bounds; only [`embedded`] opens files, for callers that submit a spec from this machine.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use globset::{GlobBuilder, GlobMatcher};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::error::SpecError;
use super::table::{SpecTable, refused};

/// Bytes of all inputs of a spec.
pub const MAX_INPUT_BYTES: u64 = 8 << 20;
/// Files that a spec may have as inputs, and files of a job that are kept.
pub const MAX_JOB_FILES: usize = 256;
/// Names and patterns in `outputs`.
const MAX_PATTERNS: usize = 64;
/// Of a path: bytes, bytes of one name, and names.
const MAX_PATH_BYTES: usize = 1_024;
const MAX_NAME_BYTES: usize = 255;
pub const MAX_PATH_DEPTH: usize = 32;

const CONTENT: &str = "a string, or a table such as {base64 = \"…\"}";
const BY_THE_COMMAND_LINE: &str = "is read where a spec is submitted by the command line, on its own machine; \
    send the content as a string, or as {base64 = \"…\"}";

/// A file that a job is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// Below the job's directory.
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
    /// `None` in what a store gives back: it is read with
    /// [`JobStore::read_file`](super::JobStore::read_file).
    pub content: Option<Vec<u8>>,
}

/// What of a job's files is kept: one name, or a pattern.
#[derive(Debug, Clone)]
pub struct OutputSpec {
    /// As it was written.
    pub text: String,
    matcher: Option<GlobMatcher>,
}

impl OutputSpec {
    fn read(text: &str) -> Result<Self, String> {
        check_path(text)?;
        if !text.contains(['*', '?', '[', ']', '{', '}', '\\']) {
            return Ok(OutputSpec { text: text.to_owned(), matcher: None });
        }
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        let glob = glob.map_err(|error| format!("is not a pattern: {}", error.kind()))?;
        Ok(OutputSpec { text: text.to_owned(), matcher: Some(glob.compile_matcher()) })
    }

    /// Whether it names one file.
    pub fn is_name(&self) -> bool {
        self.matcher.is_none()
    }

    /// Whether a path below the job's directory is meant.
    pub fn is_match(&self, path: &str) -> bool {
        match &self.matcher {
            Some(matcher) => matcher.is_match(path),
            None => self.text == path,
        }
    }

    /// The directory that all that is meant lies below; empty for the job's own.
    pub fn base(&self) -> &str {
        let plain = self.text.find(['*', '?', '[', ']', '{', '}', '\\']).unwrap_or(self.text.len());
        self.text[..plain].rsplit_once('/').map_or("", |(base, _)| base)
    }
}

/// The digest of a file's content as it is written.
pub fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Bytes as lower-case hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a path is relative, without detours, and neither too long nor too deep.
pub(super) fn check_path(path: &str) -> Result<(), String> {
    let names = || path.split('/');
    let is_plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if path.contains('\0') {
        Err("has a NUL byte".to_owned())
    } else if path.is_empty() {
        Err("is empty; use a path such as `data/table.csv`".to_owned())
    } else if !is_plain || names().any(|name| name.is_empty() || name == ".") {
        Err("is not a plain path; use one below the job's directory, without `.`, `..` and a `/` at its ends"
            .to_owned())
    } else if path.len() > MAX_PATH_BYTES || names().any(|name| name.len() > MAX_NAME_BYTES) {
        Err(format!("is too long; at most {MAX_PATH_BYTES} bytes are taken, and {MAX_NAME_BYTES} for a name"))
    } else if names().count() > MAX_PATH_DEPTH {
        Err(format!("is too deep; at most {MAX_PATH_DEPTH} names are taken"))
    } else {
        Ok(())
    }
}

/// The way to an input in a spec.
fn input_path(path: &str) -> String {
    let shown: String = path.chars().take(120).collect();
    format!("inputs[{shown:?}]")
}

/// Reads `inputs`: from a submitted spec, or from one that a store returns.
pub(super) fn inputs(table: &mut SpecTable, stored: bool) -> Result<Vec<InputFile>, SpecError> {
    let fields = match table.take("inputs") {
        None => return Ok(Vec::new()),
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(refused("inputs", &other, "a table of paths, each with its content")),
    };
    if fields.len() > MAX_JOB_FILES {
        let problem = format!("has {} files; at most {MAX_JOB_FILES} are taken: pack them", fields.len());
        return Err(SpecError { path: "inputs".to_owned(), problem });
    }
    let names: BTreeSet<String> = fields.keys().cloned().collect();
    let mut total = 0;
    let mut inputs = Vec::with_capacity(fields.len());
    for (path, value) in fields {
        let refuse = |problem| SpecError { path: input_path(&path), problem };
        check_path(&path).map_err(refuse)?;
        if let Some(above) =
            Path::new(&path).ancestors().skip(1).filter_map(Path::to_str).find(|above| names.contains(*above))
        {
            return Err(refuse(format!("lies below `{above}`, which is a file as well; rename one of them")));
        }
        let file = if stored { summary(path, &value)? } else { content(path, value)? };
        total += file.bytes;
        if total > MAX_INPUT_BYTES {
            let problem = format!(
                "makes the inputs longer than {MAX_INPUT_BYTES} bytes; pack them, or name a directory in `workspaces`"
            );
            return Err(SpecError { path: input_path(&file.path), problem });
        }
        inputs.push(file);
    }
    Ok(inputs)
}

fn content(path: String, value: Value) -> Result<InputFile, SpecError> {
    let at = input_path(&path);
    let bytes = match value {
        Value::String(text) => text.into_bytes(),
        Value::Object(fields) => {
            let mut table = SpecTable::of(Value::Object(fields), &at, 1.0)?;
            if table.has("file") {
                return Err(SpecError { path: table.at("file"), problem: BY_THE_COMMAND_LINE.to_owned() });
            }
            let field = table.at("base64");
            let encoded = table.take("base64");
            table.done()?;
            match encoded {
                Some(Value::String(text)) => STANDARD.decode(&text).map_err(|error| SpecError {
                    path: field,
                    problem: format!("is not base64 ({error}); use its standard alphabet, with padding"),
                })?,
                Some(other) => return Err(refused(&field, &other, "a string in base64")),
                None => {
                    return Err(SpecError { path: at, problem: format!("has no content; use {CONTENT}") });
                }
            }
        }
        other => return Err(refused(&at, &other, CONTENT)),
    };
    Ok(InputFile { path, bytes: bytes.len() as u64, sha256: digest(&bytes), content: Some(bytes) })
}

/// What a store keeps in a spec in a file's place.
fn summary(path: String, value: &Value) -> Result<InputFile, SpecError> {
    match (value["bytes"].as_u64(), value["sha256"].as_str()) {
        (Some(bytes), Some(sha256)) => {
            Ok(InputFile { path, bytes, sha256: sha256.to_owned(), content: None })
        }
        _ => Err(refused(&input_path(&path), value, "what a store has written")),
    }
}

/// Returns a spec as a store keeps it: with the digests of the inputs, whose content is kept
/// separately.
pub(super) fn stored(source: &Value, inputs: &[InputFile]) -> Value {
    let mut kept = source.clone();
    if let Some(fields) = kept.get_mut("inputs") {
        let one = |file: &InputFile| (file.path.clone(), json!({"bytes": file.bytes, "sha256": file.sha256}));
        *fields = Value::Object(inputs.iter().map(one).collect::<Map<_, _>>());
    }
    kept
}

/// Reads `outputs`.
pub(super) fn outputs(table: &mut SpecTable) -> Result<Vec<OutputSpec>, SpecError> {
    let texts = match table.take("outputs") {
        None => return Ok(Vec::new()),
        Some(Value::Array(texts)) => texts,
        Some(other) => {
            return Err(refused("outputs", &other, "a list of paths and patterns, such as [\"out/**\"]"));
        }
    };
    if texts.len() > MAX_PATTERNS {
        let problem = format!("has {} entries; at most {MAX_PATTERNS} are taken: use a pattern", texts.len());
        return Err(SpecError { path: "outputs".to_owned(), problem });
    }
    let mut outputs: Vec<OutputSpec> = Vec::with_capacity(texts.len());
    for (index, value) in texts.iter().enumerate() {
        let path = format!("outputs[{index}]");
        let text = value.as_str().ok_or_else(|| refused(&path, value, "a path or a pattern"))?;
        if outputs.iter().any(|other| other.text == text) {
            return Err(SpecError { path, problem: format!("`{text}` is there twice; leave one out") });
        }
        outputs.push(OutputSpec::read(text).map_err(|problem| SpecError { path, problem })?);
    }
    Ok(outputs)
}

/// A spec with the files of this machine that its inputs name (`{file = "…"}`) in their place.
/// Relative paths count from `directory`.
///
/// # Errors
/// The way to an input whose file cannot be read, is no file, or is too long.
pub fn embedded(mut source: Value, directory: &Path) -> Result<Value, SpecError> {
    let Some(inputs) = source.get_mut("inputs").and_then(Value::as_object_mut) else { return Ok(source) };
    for (path, value) in inputs {
        let Some(named) = value.get("file") else { continue };
        let at = format!("{}.file", input_path(path));
        let alone = value.as_object().is_some_and(|fields| fields.len() == 1);
        let file = match named.as_str() {
            Some(text) if alone && !text.is_empty() && !text.contains('\0') => directory.join(text),
            _ => return Err(refused(&at, named, "the path of a file, and no other key")),
        };
        let bytes = read_file(&file)
            .map_err(|problem| SpecError { path: at, problem: format!("{}: {problem}", file.display()) })?;
        *value = match String::from_utf8(bytes) {
            Ok(text) => Value::String(text),
            Err(bytes) => json!({"base64": STANDARD.encode(bytes.as_bytes())}),
        };
    }
    Ok(source)
}

fn read_file(file: &Path) -> Result<Vec<u8>, String> {
    let describe = |error: std::io::Error| error.to_string();
    let facts = std::fs::metadata(file).map_err(describe)?;
    if !facts.is_file() {
        return Err("is not a file; name one".to_owned());
    }
    if facts.len() > MAX_INPUT_BYTES {
        return Err(format!("has {} bytes; at most {MAX_INPUT_BYTES} are taken", facts.len()));
    }
    std::fs::read(file).map_err(describe)
}
