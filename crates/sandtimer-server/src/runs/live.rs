//! What the server knows of each run, from its beginning until its record is forgotten. `drive`
//! moves it from phase to phase.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use sandtimer::Run;
use sandtimer::engine::{RunOutput, Stream};
use sandtimer::model::{Encoding, Outcome, Progress, StartDelays, WaitingFor, Warning};
use sandtimer::supervise::output::Chunk;
use sandtimer_agents::estimate::Question;
use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};
use sandtimer_records::RunStart;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::encoding_error_mode::EncodingErrorMode;
use super::input::RunInput;
use super::record::{Record, nothing};
use super::waiters::{Waiter, Waiters};
use crate::auth::OwnerId;
use crate::body::MayBeLong;
use crate::error::{ApiRejection, Code};
use crate::intake::MAX_SHORT_BYTES;
use crate::quota::{ConcurrencyLimit, Permit, PermittedValue};
use crate::registry::OwnedResource;
use crate::trace;

/// Warnings that are kept of a run; the first ones.
const MAX_WARNINGS: usize = 100;

/// Outcomes and output of one owner, and of all, that are large and in memory at a time, to be
/// written as JSON.
static LARGE_OUTPUT_LIMIT: ConcurrencyLimit = ConcurrencyLimit::new(1, 2);

/// A permit for an output of `bytes`; `None` if that is not large. While one exists, the owner's
/// next request waits: the holder of one must not request another.
pub(crate) async fn enter_large(owner: &OwnerId, bytes: u64) -> Option<Permit> {
    if bytes > MAX_SHORT_BYTES as u64 { Some(LARGE_OUTPUT_LIMIT.enter(owner).await) } else { None }
}

/// An Outcome, with the permit to have it in memory where it is large.
pub(crate) type LoadedOutcome = PermittedValue<OutcomeJson>;

/// Where a run is.
#[derive(Debug, Clone)]
pub(crate) enum RunPhase {
    /// Not before its turn. Set, it does not begin any more.
    Queued(Arc<AtomicBool>),
    Running(Arc<Run>),
    Ended(Record),
}

/// One run, as the server knows it.
#[derive(Debug)]
pub(crate) struct LiveRun {
    /// Without the limits.
    begun: RunStart,
    /// The limits that apply, known once it has begun.
    effective: OnceLock<Value>,
    owner: OwnerId,
    phase: watch::Sender<RunPhase>,
    warnings: watch::Sender<Vec<Warning>>,
    /// What it left running writes on, which only the engine has.
    left: std::sync::Mutex<Weak<RunOutput>>,
    pub input: RunInput,
    pub(super) waiters: Waiters,
    /// What its duration will be remembered under; `None` for code in a context.
    question: OnceLock<std::sync::Mutex<Question>>,
    /// The request that asked for it.
    span_context: Option<trace::SpanContext>,
}

impl OwnedResource for LiveRun {
    fn id(&self) -> &str {
        &self.begun.run_id
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

impl LiveRun {
    /// The limits are set later, if the beginning does not have them.
    pub(super) fn new(mut begun: RunStart, phase: RunPhase, input: RunInput) -> Self {
        let owner = OwnerId::recorded(&begun.owner);
        let effective = match begun.effective.take() {
            Value::Null => OnceLock::new(),
            known => OnceLock::from(known),
        };
        let (phase, warnings) = (watch::Sender::new(phase), watch::Sender::default());
        LiveRun {
            begun,
            effective,
            owner,
            phase,
            warnings,
            left: std::sync::Mutex::default(),
            input,
            waiters: Waiters::default(),
            question: OnceLock::new(),
            span_context: trace::current_span(),
        }
    }

    pub fn id_str(&self) -> &str {
        &self.begun.run_id
    }

    /// What is executed, as listings show it.
    pub fn command_line(&self) -> String {
        self.begun.command.join(" ")
    }

    /// The id of the sandbox that it is in.
    pub fn sandbox(&self) -> Option<&str> {
        self.begun.sandbox.as_deref()
    }

    /// What its log lines and its span have of it.
    pub(super) fn span(&self) -> trace::RunSpan<'_> {
        trace::RunSpan {
            run_id: self.id(),
            owner: self.owner().as_str(),
            requested_in: self.span_context,
            created_at_ms: self.created_at_ms(),
        }
    }

    /// Milliseconds since 1970.
    pub fn created_at_ms(&self) -> u64 {
        self.begun.created_at_ms
    }

    /// Null while it waits for its turn.
    pub fn effective(&self) -> &Value {
        self.effective.get().unwrap_or(&Value::Null)
    }

    /// Sets the limits that apply to it. To be called once.
    pub(super) fn set_effective(&self, run: &Run) {
        // Plain data with text keys always serialises.
        let _ = self.effective.set(serde_json::to_value(run.effective()).unwrap_or_default());
    }

    /// Sets the question under which its duration will be recorded. To be called once.
    pub(super) fn set_question(&self, question: Question) {
        let _ = self.question.set(question.into());
    }

    /// It is work of the type, size and context that this question is about.
    pub fn work_of(&self, other: &Question) {
        if let Some(question) = self.question.get() {
            let mut question = question.lock().unwrap_or_else(PoisonError::into_inner);
            *question = question.clone().work_of(other);
        }
    }

    pub(super) fn question(&self) -> Option<Question> {
        let question = self.question.get()?;
        Some(question.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// What is recorded of its beginning.
    pub(super) fn recorded(&self) -> RunStart {
        RunStart { effective: self.effective().clone(), ..self.begun.clone() }
    }

    pub fn phase(&self) -> RunPhase {
        self.phase.borrow().clone()
    }

    pub fn watch_phase(&self) -> watch::Receiver<RunPhase> {
        self.phase.subscribe()
    }

    pub fn watch_warnings(&self) -> watch::Receiver<Vec<Warning>> {
        self.warnings.subscribe()
    }

    /// The run while it is active.
    pub fn running(&self) -> Result<Arc<Run>, ApiRejection> {
        match self.phase() {
            RunPhase::Running(run) => Ok(run),
            RunPhase::Queued(_) => {
                let message = format!("the run `{}` waits for its turn", self.id());
                Err(ApiRejection::new(Code::RunQueued, message))
            }
            RunPhase::Ended(_) => {
                Err(ApiRejection::new(Code::RunEnded, format!("the run `{}` has ended", self.id())))
            }
        }
    }

    pub fn status(&self) -> &'static str {
        self.phase.borrow().name()
    }

    pub fn ended_at_ms(&self) -> Option<u64> {
        match &*self.phase.borrow() {
            RunPhase::Queued(_) | RunPhase::Running(_) => None,
            RunPhase::Ended(record) => Some(record.ended_at_ms()),
        }
    }

    /// The run, once its turn has come.
    pub async fn begun(&self) -> Result<Arc<Run>, ApiRejection> {
        let mut phase = self.watch_phase();
        // The sender is in self: the wait cannot fail.
        let _ = phase.wait_for(|phase| !matches!(phase, RunPhase::Queued(_))).await;
        self.running()
    }

    /// Counts a waiting request until the returned guard is dropped.
    pub fn waiter(&self) -> Waiter<'_> {
        self.waiters.add()
    }

    /// Waits until it has ended, at most `most`; `None` is without end.
    pub async fn wait_ended(&self, most: Option<Duration>) {
        let mut phase = self.watch_phase();
        // The sender is in self: the wait cannot fail.
        let ended = phase.wait_for(|phase| matches!(phase, RunPhase::Ended(_)));
        match most {
            None => drop(ended.await),
            Some(most) => drop(tokio::time::timeout(most, ended).await),
        }
    }

    /// Waits until it has written past a position of a stream, or has ended.
    pub async fn grown(&self, stream: Stream, cursor: u64) {
        let mut ending = self.watch_phase();
        let mut cursors = [u64::MAX; 2];
        cursors[stream as usize] = cursor;
        loop {
            let phase = ending.borrow_and_update().clone();
            match phase {
                RunPhase::Ended(_) => return,
                // The sender is in self.
                RunPhase::Queued(_) => drop(ending.changed().await),
                RunPhase::Running(run) => {
                    if run.output(stream, cursor, 1).is_ok_and(|chunk| chunk.next_cursor > cursor) {
                        return;
                    }
                    tokio::select! {
                        // Of a run that has ended nothing grows: then its record is what is waited
                        // for.
                        () = run.grown(cursors), if !run.has_finished() => {}
                        _ = ending.changed() => {}
                    }
                }
            }
        }
    }

    /// Its Outcome, once it has ended.
    pub async fn outcome(&self) -> Result<Option<LoadedOutcome>, ApiRejection> {
        match self.phase() {
            RunPhase::Queued(_) | RunPhase::Running(_) => Ok(None),
            RunPhase::Ended(record) => self.load(&record, EncodingErrorMode::Strict).await.map(Some),
        }
    }

    async fn load(&self, record: &Record, errors: EncodingErrorMode) -> Result<LoadedOutcome, ApiRejection> {
        let permit = enter_large(&self.owner, record.bytes()).await;
        let mut outcome = record.outcome().await?;
        if errors == EncodingErrorMode::Replace && outcome.encoding != Encoding::Utf8 {
            tokio::task::block_in_place(|| Arc::make_mut(&mut outcome).replace_invalid_utf8());
        }
        Ok(PermittedValue::new(OutcomeJson(outcome), permit))
    }

    /// Bytes that its Outcome takes, and has to be read for, once it has finished.
    pub fn outcome_bytes(&self) -> u64 {
        match &*self.phase.borrow() {
            RunPhase::Queued(_) | RunPhase::Running(_) => 0,
            RunPhase::Ended(record) => record.bytes(),
        }
    }

    /// Sets the output of the processes that it left running; available for as long as `output` is
    /// held.
    pub fn set_left(&self, output: &Arc<RunOutput>) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(output);
    }

    /// The output of the processes that it left running.
    pub(super) fn left(&self) -> Option<Arc<RunOutput>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Its output from a position.
    pub async fn output(&self, stream: Stream, cursor: u64, most: usize) -> Result<Chunk, ApiRejection> {
        match self.phase() {
            RunPhase::Queued(_) => Ok(nothing()),
            RunPhase::Running(run) => Ok(run.output(stream, cursor, most)?),
            RunPhase::Ended(record) => record.output(stream, cursor, most).await,
        }
    }

    /// How far it is, while it is active and as far as its output shows that. Its progress when a
    /// limit ended it is in the verdict.
    pub fn progress(&self) -> Option<Progress> {
        match self.phase() {
            RunPhase::Running(run) => run.progress(),
            RunPhase::Queued(_) | RunPhase::Ended(_) => None,
        }
    }

    /// What is answered about it.
    pub async fn view(&self) -> Result<RunView, ApiRejection> {
        self.view_with(EncodingErrorMode::Strict).await
    }

    /// The same with output that is not UTF-8 as it is wanted.
    pub async fn view_with(&self, errors: EncodingErrorMode) -> Result<RunView, ApiRejection> {
        let phase = self.phase();
        let (outcome, ended_at_ms) = match &phase {
            RunPhase::Queued(_) | RunPhase::Running(_) => (None, None),
            RunPhase::Ended(record) => (Some(self.load(record, errors).await?), Some(record.ended_at_ms())),
        };
        Ok(RunView {
            run_id: self.id().to_owned(),
            status: phase.name(),
            command: self.begun.command.clone(),
            created_at_ms: self.begun.created_at_ms,
            ended_at_ms,
            effective: self.effective().clone(),
            context_id: self.begun.context_id.clone(),
            sandbox: self.begun.sandbox.clone(),
            progress: self.progress(),
            outcome,
        })
    }

    /// One line of a listing. Reads /proc for a moment.
    pub fn summary(&self) -> Value {
        let phase = self.phase();
        let delays = self.start_delays(&phase);
        let (record, is_paused, wall_end, waiting_for) = match &phase {
            RunPhase::Queued(_) => (None, false, None, None),
            RunPhase::Running(run) => (None, run.is_paused(), run.wall_end(), run.waiting_for()),
            RunPhase::Ended(record) => (Some(record), false, None, None),
        };
        let facts = record.map(Record::facts);
        let end = record.map_or_else(calendar_milliseconds, Record::ended_at_ms);
        let left = |end: u64| end.saturating_sub(monotonic_nanoseconds()) / 1_000_000;
        let mut summary = json!({
            "run_id": self.id(),
            "status": phase.name(),
            "paused": is_paused,
            "waiting_for": waiting_for.and_then(WaitingFor::as_recorded),
            "command": self.begun.command,
            "wall_ms": self.effective()["wall_ms"]["limit"],
            "wall_left_ms": wall_end.map(left),
            "created_at_ms": self.begun.created_at_ms,
            "elapsed_ms": end.saturating_sub(self.begun.created_at_ms),
            "queued_ms": delays.queued_ms,
            "spawn_ms": delays.spawn_ms,
            "context_id": self.begun.context_id,
            "ended_at_ms": record.map(Record::ended_at_ms),
            "ending": facts.map(|outcome| outcome.ending),
            "ok": facts.map(|outcome| outcome.ok),
            "exit_code": facts.and_then(|outcome| outcome.exit_code),
            "progress": self.progress(),
            "sentence": facts.and_then(|outcome| outcome.verdict.as_ref()).map(|verdict| &verdict.sentence),
        });
        if let Some(sandbox) = &self.begun.sandbox {
            summary["sandbox"] = sandbox.as_str().into();
        }
        summary
    }

    /// How long it waited before its command started: so far, if it still waits.
    fn start_delays(&self, phase: &RunPhase) -> StartDelays {
        match phase {
            RunPhase::Queued(_) => StartDelays { queued_ms: self.age_ms(), spawn_ms: None },
            RunPhase::Running(run) => run.start_delays(),
            RunPhase::Ended(record) => {
                let usage = &record.facts().usage;
                StartDelays { queued_ms: usage.queued_ms, spawn_ms: Some(usage.spawn_ms) }
            }
        }
    }

    /// Milliseconds since it was submitted.
    fn age_ms(&self) -> u64 {
        calendar_milliseconds().saturating_sub(self.begun.created_at_ms)
    }

    /// Ends it, if it is active, or prevents its start.
    pub fn cancel(&self, reason: &str) {
        // In the order of its phases: its turn may come in between.
        self.end_unbegun(reason);
        if let RunPhase::Running(run) = self.phase() {
            run.cancel(reason);
        }
    }

    /// Its turn has come; false if it was cancelled before.
    pub(super) fn begin(&self, run: &Arc<Run>) -> bool {
        self.phase.send_if_modified(|phase| {
            let waited = matches!(phase, RunPhase::Queued(_));
            if waited {
                *phase = RunPhase::Running(run.clone());
            }
            waited
        })
    }

    /// Notifies all clients that it has ended.
    pub(super) fn end(&self, record: Record) {
        self.phase.send_replace(RunPhase::Ended(record));
    }

    pub(super) fn warn(&self, warning: Warning) {
        self.warnings.send_modify(|warnings| {
            if warnings.len() < MAX_WARNINGS {
                warnings.push(warning);
            }
        });
    }

    /// Ends it, if it has not begun.
    pub(super) fn end_unbegun(&self, reason: &str) {
        let is_ended = self.phase.send_if_modified(|phase| {
            let RunPhase::Queued(withdrawn) = &*phase else { return false };
            withdrawn.store(true, Ordering::Release);
            *phase = RunPhase::Ended(Record::unbegun(self.id(), reason, self.age_ms()));
            true
        });
        if is_ended {
            self.input.close();
        }
    }
}

/// An Outcome as it is answered. It is not copied.
#[derive(Debug)]
pub(crate) struct OutcomeJson(Arc<Outcome>);

impl Deref for OutcomeJson {
    type Target = Outcome;

    fn deref(&self) -> &Outcome {
        &self.0
    }
}

impl Serialize for OutcomeJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// What is answered about a run.
#[derive(Debug, Serialize)]
pub(crate) struct RunView {
    run_id: String,
    pub status: &'static str,
    command: Vec<String>,
    created_at_ms: u64,
    ended_at_ms: Option<u64>,
    effective: Value,
    context_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
    progress: Option<Progress>,
    pub outcome: Option<LoadedOutcome>,
}

impl MayBeLong for RunView {
    fn may_be_long(&self) -> bool {
        self.outcome.as_ref().is_some_and(PermittedValue::may_be_long)
    }
}

impl RunPhase {
    pub fn name(&self) -> &'static str {
        match self {
            RunPhase::Queued(_) => "queued",
            RunPhase::Running(_) => "running",
            RunPhase::Ended(_) => "ended",
        }
    }
}
