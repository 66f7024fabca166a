//! A submission from its creation to its record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::{languages, verdict};
use crate::auth::OwnerId;
use crate::intake::Reservation;
use crate::registry::OwnedResource;

/// All attributes, `status` and `language` included.
pub(super) const FIELDS: &[&str] = &[
    "source_code",
    "language_id",
    "stdin",
    "expected_output",
    "stdout",
    "status_id",
    "created_at",
    "finished_at",
    "time",
    "memory",
    "stderr",
    "token",
    "number_of_runs",
    "cpu_time_limit",
    "cpu_extra_time",
    "wall_time_limit",
    "memory_limit",
    "stack_limit",
    "max_processes_and_or_threads",
    "enable_per_process_and_thread_time_limit",
    "enable_per_process_and_thread_memory_limit",
    "max_file_size",
    "compile_output",
    "exit_code",
    "exit_signal",
    "message",
    "wall_time",
    "compiler_options",
    "command_line_arguments",
    "redirect_stderr_to_stdout",
    "callback_url",
    "additional_files",
    "enable_network",
    "status",
];
/// Attributes that are shown by default.
const DEFAULT_FIELDS: [&str; 8] =
    ["stdout", "time", "memory", "stderr", "token", "compile_output", "message", "status"];
/// Attributes that are bytes, which a record has in base64.
const BYTE_ATTRIBUTES: [&str; 7] =
    ["source_code", "stdin", "expected_output", "stdout", "stderr", "compile_output", "message"];
/// Attributes that are decimal numbers, which are written as strings.
const DECIMALS: [&str; 5] = ["time", "wall_time", "cpu_time_limit", "cpu_extra_time", "wall_time_limit"];
/// What is answered where a text attribute is not text.
pub(super) const NOT_UTF8_MESSAGE: &str = "some attributes for this submission cannot be converted to UTF-8, use base64_encoded=true query parameter";
/// Letters of a token.
pub(super) const TOKEN_LENGTH: usize = 36;
/// Letters of a line of base64, as Ruby writes it.
const LINE: usize = 60;

/// How submissions are shown.
#[derive(Debug)]
pub(super) struct SubmissionViewOptions {
    pub is_base64: bool,
    /// The usual ones if there are none; all if one is `*`.
    pub fields: Vec<String>,
}

/// A submission as it is shown.
#[derive(Debug)]
pub(super) enum SubmissionView {
    Shown(Value),
    /// One of its attributes is not text, which was asked for.
    NotUtf8,
}

/// A submission that waits or is executed.
#[derive(Debug)]
pub(crate) struct LiveSubmission {
    token: String,
    owner: OwnerId,
    record: Mutex<Map<String, Value>>,
    has_finished: watch::Sender<bool>,
    /// Memory for what was sent.
    _memory: Option<Reservation>,
}

impl OwnedResource for LiveSubmission {
    fn id(&self) -> &str {
        &self.token
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

impl LiveSubmission {
    pub fn new(token: String, owner: OwnerId, memory: Option<Reservation>) -> Arc<Self> {
        let mut record = empty_record(FIELDS);
        record.remove("status");
        record.insert("status_id".to_owned(), verdict::IN_QUEUE.into());
        let (record, has_finished) = (Mutex::new(record), watch::Sender::new(false));
        Arc::new(LiveSubmission { token, owner, record, has_finished, _memory: memory })
    }

    /// Its attributes, which cannot change before what is returned is dropped.
    pub fn record(&self) -> MutexGuard<'_, Map<String, Value>> {
        // Each change is one call on the map.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn has_finished(&self) -> bool {
        *self.has_finished.borrow()
    }

    pub fn finish(&self) {
        self.has_finished.send_replace(true);
    }

    /// About as many bytes as its record has.
    pub fn bytes(&self) -> usize {
        self.record().values().filter_map(Value::as_str).map(str::len).sum()
    }

    pub fn set(&self, attributes: Value) {
        let mut record = self.record();
        if let Value::Object(attributes) = attributes {
            record.extend(attributes);
        }
    }
}

/// Bytes as a record has them.
pub(super) fn encoded(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Bytes as an attribute; null if there are none.
pub(super) fn attribute(bytes: &[u8]) -> Value {
    if bytes.is_empty() { Value::Null } else { encoded(bytes).into() }
}

/// A submission that is live, or has a record.
#[derive(Debug)]
pub(super) enum Submission {
    Live(Arc<LiveSubmission>),
    Stored { token: String, record: Map<String, Value> },
}

impl Submission {
    pub fn live(live: Arc<LiveSubmission>) -> Self {
        Submission::Live(live)
    }

    pub fn stored(token: String, record: Map<String, Value>) -> Self {
        Submission::Stored { token, record }
    }

    pub fn token(&self) -> &str {
        match self {
            Submission::Live(live) => &live.token,
            Submission::Stored { token, .. } => token,
        }
    }

    /// Waits for its end.
    pub async fn finished(&self) {
        if let Submission::Live(live) = self {
            // The sender is in the submission.
            let _ = live.has_finished.subscribe().wait_for(|has_finished| *has_finished).await;
        }
    }

    pub fn render(&self, view: &SubmissionViewOptions) -> SubmissionView {
        match self {
            Submission::Live(live) => render(&live.record(), view),
            Submission::Stored { record, .. } => render(record, view),
        }
    }
}

fn render(record: &Map<String, Value>, view: &SubmissionViewOptions) -> SubmissionView {
    let wanted: Vec<&str> = if view.fields.iter().any(|name| name == "*") {
        FIELDS.iter().copied().chain(["language"]).collect()
    } else if view.fields.is_empty() {
        DEFAULT_FIELDS.to_vec()
    } else {
        view.fields.iter().map(String::as_str).collect()
    };
    let mut shown = Map::new();
    for name in wanted {
        let Some(value) = shown_attribute(record, name, view.is_base64) else {
            return SubmissionView::NotUtf8;
        };
        shown.insert(name.to_owned(), value);
    }
    SubmissionView::Shown(shown.into())
}

/// An attribute as it is shown; `None` where it is not text, which it is to be.
fn shown_attribute(record: &Map<String, Value>, name: &str, is_base64: bool) -> Option<Value> {
    let value = record.get(name).cloned().unwrap_or_default();
    match (name, &value) {
        ("status", _) => {
            let id = record["status_id"].as_u64().unwrap_or(verdict::INTERNAL_ERROR);
            let description = verdict::STATUSES.get(usize::try_from(id).unwrap_or(0).saturating_sub(1));
            Some(json!({"id": id, "description": description}))
        }
        ("language", _) => {
            let id = record["language_id"].as_u64();
            let title = id.and_then(languages::find).map(|known| known.language.title);
            Some(json!({"id": id, "name": title}))
        }
        (_, Value::String(text)) if BYTE_ATTRIBUTES.contains(&name) => {
            if is_base64 {
                let lines = text.as_bytes().chunks(LINE).map(String::from_utf8_lossy);
                return Some(lines.map(|line| format!("{line}\n")).collect::<String>().into());
            }
            String::from_utf8(BASE64_STANDARD.decode(text).unwrap_or_default()).ok().map(Value::String)
        }
        (_, Value::Number(number)) if DECIMALS.contains(&name) => {
            let number = number.as_f64().unwrap_or_default();
            let short = format!("{number:.3}");
            let short = short.trim_end_matches('0');
            Some(if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }.into())
        }
        _ => Some(value),
    }
}

/// The attributes of a submission, without any.
pub(super) fn empty_record(names: &[&str]) -> Map<String, Value> {
    names.iter().map(|name| ((*name).to_owned(), Value::Null)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_utf8_base64_or_neither() {
        let record = Map::from_iter([
            ("stdout".to_owned(), encoded(&[b'x'; 100]).into()),
            ("stderr".to_owned(), encoded(b"\xff").into()),
            ("time".to_owned(), json!(0.1)),
            ("wall_time_limit".to_owned(), json!(10.0)),
        ]);
        let shown = |name, is_base64| shown_attribute(&record, name, is_base64);
        assert_eq!(shown("stdout", false), Some("x".repeat(100).into()));
        let lines = shown("stdout", true).expect("base64");
        let lengths: Vec<usize> = lines.as_str().expect("text").lines().map(str::len).collect();
        assert_eq!(lengths, [60, 60, 16]);
        assert_eq!((shown("stderr", false), shown("stderr", true)), (None, Some("/w==\n".into())));
        assert_eq!(
            (shown("time", false), shown("wall_time_limit", false)),
            (Some("0.1".into()), Some("10.0".into()))
        );
    }
}
