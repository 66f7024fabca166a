//! A submission from its creation to its record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sandtimer::limits::Setting;
use sandtimer::model::LimitKind;
use sandtimer::time::instant;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::request::{SubmissionRequest, split_options};
use super::store::empty_record;
use super::{languages, verdict};
use crate::auth::OwnerId;
use crate::error::{ApiRejection, storage};
use crate::intake::Reservation;
use crate::programs::{self, ProgramSpec, StageEnd, StageLimits, StageReport};
use crate::registry::OwnedResource;
use crate::state::SharedApp;

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

    fn set(&self, attributes: Value) {
        let mut record = self.record();
        if let Value::Object(attributes) = attributes {
            record.extend(attributes);
        }
    }
}

fn now() -> Value {
    instant(calendar_milliseconds()).into()
}

/// Bytes as a record has them.
pub(super) fn encoded(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Bytes as an attribute; null if there are none.
fn attribute(bytes: &[u8]) -> Value {
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

/// Returns a random token in the form of a UUID.
fn new_token() -> String {
    let (first, second) = (crate::id::new_id(), crate::id::new_id());
    let variant = ["8", "9", "a", "b"][usize::from(second.as_bytes()[0]) % 4];
    format!("{}-{}-4{}-{variant}{}-{}", &first[..8], &first[8..12], &first[13..], &second[1..4], &second[4..])
}

/// Takes a submission in, which is executed when its turn comes.
pub(super) fn submit(
    app: &SharedApp,
    owner: &OwnerId,
    request: SubmissionRequest,
) -> Result<Submission, ApiRejection> {
    let others = [&request.stdin, &request.expected_output].into_iter().flatten();
    let bytes = request.source.len() + others.map(Vec::len).sum::<usize>();
    let memory = app.messages.requests.reserve_long(owner, bytes)?;
    let token = new_token();
    let live = LiveSubmission::new(token.clone(), owner.clone(), memory);
    live.set(json!({
        "token": token,
        "source_code": encoded(&request.source),
        "stdin": request.stdin.as_deref().map(encoded),
        "expected_output": request.expected_output.as_deref().map(encoded),
        "language_id": request.language_id,
        "created_at": now(),
        "compiler_options": request.compiler_options,
        "command_line_arguments": request.arguments,
        "redirect_stderr_to_stdout": request.redirects_stderr,
        "enable_network": request.network,
        "enable_per_process_and_thread_time_limit": false,
        "enable_per_process_and_thread_memory_limit": false,
    }));
    live.set(Value::Object(request.numbers.clone()));
    let added = tokio::task::block_in_place(|| app.submissions.add(live.clone()));
    added.map_err(|error| storage("the submission cannot be recorded", &error))?;
    tokio::spawn(execute(app.clone(), live.clone(), request));
    Ok(Submission::live(live))
}

/// Executes a submission and records how it ended.
async fn execute(app: SharedApp, live: Arc<LiveSubmission>, request: SubmissionRequest) {
    let attributes = execute_all(&app, &live, &request).await.unwrap_or_else(|rejection| {
        json!({"status_id": verdict::INTERNAL_ERROR, "message": encoded(rejection.message.as_bytes())})
    });
    live.set(attributes);
    live.set(json!({"finished_at": now()}));
    if let Err(error) = tokio::task::block_in_place(|| app.submissions.end(&live)) {
        (app.host.log_error)(&format!("the record of a submission is kept in memory only: {error}"));
    }
    live.finish();
}

/// What it used, of each of its runs.
#[derive(Debug, Default)]
struct ResourceUse {
    runs: f64,
    cpu: f64,
    wall: f64,
    memory: f64,
}

/// Executes a program as often as it asks for, while it is accepted. Each time it waits for its
/// turn.
async fn execute_all(
    app: &SharedApp,
    live: &LiveSubmission,
    request: &SubmissionRequest,
) -> Result<Value, ApiRejection> {
    let mut used = ResourceUse::default();
    let note = || live.set(json!({"status_id": verdict::PROCESSING}));
    loop {
        let executed = programs::execute_queued(app, &live.owner, program(request), &note).await?;
        let compile = executed.compile.as_ref();
        let Some(run) = &executed.run else { return Ok(not_compiled(compile)) };
        let report = StageReport::clone(&*programs::report(run).await?);
        used.runs += 1.0;
        used.cpu += report.cpu_ms as f64 / 1_000.0;
        used.wall += report.wall_ms as f64 / 1_000.0;
        used.memory += (report.memory_bytes / 1024) as f64;
        let in_force = run.effective()["cpu_ms"]["limit"].as_f64();
        let limit =
            cpu_limit_ms(in_force, request.number("cpu_time_limit"), request.number("cpu_extra_time"));
        let verdict = verdict::of(&report, limit, request.expected_output.as_deref());
        if verdict.status != verdict::ACCEPTED || used.runs >= request.number("number_of_runs") {
            let output = compile.map(compiler_output).unwrap_or_default();
            return Ok(json!({
                "status_id": verdict.status,
                "message": verdict.message.map(|message| encoded(message.as_bytes())),
                "exit_code": verdict.exit_code,
                "exit_signal": verdict.exit_signal,
                "stdout": attribute(&report.stdout),
                "stderr": attribute(&report.stderr),
                "compile_output": attribute(&output),
                "time": used.cpu / used.runs,
                "wall_time": used.wall / used.runs,
                "memory": (used.memory / used.runs).round() as u64,
            }));
        }
    }
}

/// The processor time that a program may use, in milliseconds, by the limit that is in force and
/// those of the request in seconds: without the extra time, if that is in the limit.
fn cpu_limit_ms(in_force_ms: Option<f64>, limit: f64, extra: f64) -> Option<u64> {
    let in_force = in_force_ms.filter(|in_force| *in_force > 0.0)?;
    // A difference by rounding is not another limit.
    let is_of_another = limit <= 0.0 || in_force > (limit + extra) * 1e3 + 1.0;
    Some(if is_of_another { in_force } else { limit * 1e3 } as u64)
}

fn compiler_output(report: &StageReport) -> Vec<u8> {
    [&report.stdout[..], &report.stderr].concat()
}

/// What is recorded of a program that did not compile.
fn not_compiled(report: Option<&StageReport>) -> Value {
    let output = match report {
        Some(report) if report.end == StageEnd::TimeLimit => {
            let reason = report.sentence.as_deref().unwrap_or_default();
            format!("Compilation time limit exceeded. {reason}").trim_end().as_bytes().to_vec()
        }
        Some(report) => {
            let mut output = compiler_output(report);
            output.extend(report.sentence.as_deref().unwrap_or_default().bytes());
            output
        }
        None => Vec::new(),
    };
    json!({"status_id": verdict::COMPILATION_ERROR, "compile_output": attribute(&output)})
}

fn program(request: &SubmissionRequest) -> ProgramSpec {
    let (mut chosen, mut usual) = (request.chosen.clone(), request.usual.clone());
    // The extra time is within the limit of the run; the verdict checks how much of it was used.
    for limits in [&mut chosen, &mut usual] {
        if let Setting::At(nanoseconds) = limits.get(LimitKind::Cpu) {
            let extra = (request.number("cpu_extra_time") * 1e9) as u64;
            limits.set(LimitKind::Cpu, Setting::At(nanoseconds + extra));
        }
    }
    let compile = StageLimits { defaults: compile_limits(), ..StageLimits::default() };
    let stack = request.numbers.get("stack_limit").and_then(Value::as_f64);
    ProgramSpec {
        stdin: request.stdin.clone().or(Some(Vec::new())),
        arguments: request.arguments.as_deref().map(split_options).unwrap_or_default(),
        compiler_options: request.compiler_options.as_deref().map(split_options).unwrap_or_default(),
        network: request.network,
        joins_streams: request.redirects_stderr,
        stack_kibibytes: stack.filter(|stack| *stack > 0.0).map(|stack| stack as u64),
        compile,
        run: StageLimits { limits: chosen, defaults: usual, ends_at_output_limit: true },
        ..ProgramSpec::new(request.language.language, request.source.clone())
    }
}

/// The limits of compilers, which are Judge0's maxima.
fn compile_limits() -> sandtimer::Limits {
    let seconds = std::time::Duration::from_secs;
    sandtimer::Limits::new().cpu(seconds(15)).wall(seconds(20)).memory(512_000 << 10).processes(120)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_limit_is_the_one_in_force_without_extra_time() {
        // Those of the request or of Judge0, also under a ceiling.
        assert_eq!(cpu_limit_ms(Some(6_000.0), 5.0, 1.0), Some(5_000));
        assert_eq!(cpu_limit_ms(Some(15_000.0), 15.0, 5.0), Some(15_000));
        // The operator's default in place of Judge0's, and a ceiling without another limit.
        assert_eq!(cpu_limit_ms(Some(30_000.0), 5.0, 1.0), Some(30_000));
        assert_eq!(cpu_limit_ms(Some(30_000.0), 0.0, 1.0), Some(30_000));
        assert_eq!((cpu_limit_ms(None, 5.0, 1.0), cpu_limit_ms(Some(0.0), 5.0, 1.0)), (None, None));
    }

    #[test]
    fn tokens_are_uuids() {
        let token = new_token();
        let lengths: Vec<usize> = token.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{token}");
        assert_ne!(token, new_token());
    }

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
