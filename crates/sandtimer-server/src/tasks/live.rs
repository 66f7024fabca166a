//! Tasks that are followed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandtimer_agents::estimate::{EstimateAnswer, FinishedRun};
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};

use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};
use crate::id::new_id;
use crate::registry::{OwnedResource, Registry};
use crate::runs::LiveRun;

/// Tasks that are kept of one owner; the ones that ended first are dropped first.
const MAX_KEPT_TASKS: usize = 1000;
/// Bytes that are kept of a task's name, of its command and of its context. Estimates are of
/// fingerprints of the whole.
const MAX_FIELD_BYTES: usize = 400;

/// A piece of work that is compared with its estimate while it runs.
#[derive(Debug)]
pub(crate) struct Task {
    id: String,
    owner: OwnerId,
    name: String,
    answer: EstimateAnswer,
    begun_at_ms: u64,
    state: Mutex<TaskRecord>,
}

#[derive(Debug, Default)]
struct TaskRecord {
    run: Option<Arc<LiveRun>>,
    /// When it was reported as ended.
    ended_at_ms: Option<u64>,
}

impl OwnedResource for Task {
    fn id(&self) -> &str {
        &self.id
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

impl Task {
    fn lock(&self) -> MutexGuard<'_, TaskRecord> {
        // Each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it ended: its own end, or its run's.
    fn ended_at(&self, state: &TaskRecord) -> Option<u64> {
        state.ended_at_ms.or_else(|| state.run.as_ref()?.ended_at_ms())
    }

    fn open(&self) -> Result<MutexGuard<'_, TaskRecord>, ApiRejection> {
        let state = self.lock();
        match self.ended_at(&state) {
            None => Ok(state),
            Some(_) => Err(ApiRejection::new(Code::TaskEnded, format!("the task `{}` has ended", self.id))),
        }
    }

    /// From now on its clock is the run's, and it ends with it.
    pub fn bind(&self, run: &Arc<LiveRun>) -> Result<(), ApiRejection> {
        let mut state = self.open()?;
        run.work_of(&self.answer.question);
        state.run = Some(run.clone());
        Ok(())
    }

    /// Ends the task. Returns its duration, if no run has that.
    pub fn complete(&self) -> Result<Option<FinishedRun>, ApiRejection> {
        let mut state = self.open()?;
        let now = calendar_milliseconds();
        state.ended_at_ms = Some(now);
        let seconds = now.saturating_sub(self.begun_at_ms) as f64 / 1000.0;
        let question = self.answer.question.clone();
        let finished = FinishedRun { question, seconds, stopped: false, ended_at_ms: now };
        Ok(state.run.is_none().then_some(finished))
    }

    pub fn view(&self) -> Value {
        let state = self.lock();
        let ended_at = self.ended_at(&state);
        let status = match (&state.run, ended_at) {
            (_, Some(_)) => "ended",
            (Some(run), None) => run.status(),
            (None, None) => "open",
        };
        let begun_at = state.run.as_ref().map_or(self.begun_at_ms, |run| run.created_at_ms());
        let elapsed_ms = ended_at.unwrap_or_else(calendar_milliseconds).saturating_sub(begun_at);
        let estimate = &self.answer.estimate;
        let elapsed = elapsed_ms as f64 / 1000.0;
        let left = ended_at.is_none().then(|| estimate.after(elapsed));
        let milliseconds = |seconds: f64| (seconds * 1000.0).round() as u64;
        json!({
            "task_id": self.id,
            "name": self.name,
            "status": status,
            "run_id": state.run.as_ref().map(|run| run.id()),
            "begun_at_ms": begun_at,
            "ended_at_ms": ended_at,
            "elapsed_ms": elapsed_ms,
            "left_typical_ms": left.map(|left| milliseconds(left.typical_seconds)),
            "left_worst_ms": left.map(|left| milliseconds(left.worst_seconds)),
            "is_overdue": elapsed > estimate.typical_seconds,
            "is_over_worst": elapsed > estimate.worst_seconds,
            "estimate": self.answer.object(),
        })
    }
}

/// A copy of the beginning of a longer text: what is cut off is given back.
fn shortened(text: String) -> String {
    match text.len() {
        0..=MAX_FIELD_BYTES => text,
        _ => beginning(&text, MAX_FIELD_BYTES).to_owned(),
    }
}

/// As much of a text as that many bytes hold whole characters of it.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// What is kept of an answer for as long as its task is.
fn kept(mut answer: EstimateAnswer) -> EstimateAnswer {
    let asked = &mut answer.asked;
    asked.task_type = asked.task_type.take().map(shortened);
    asked.complexity = asked.complexity.take().map(shortened);
    asked.context = asked.context.take().map(shortened);
    let mut left = MAX_FIELD_BYTES;
    asked.command = asked.command.take().map(|parts| {
        let parts = parts.into_iter().map_while(|part| {
            let part = (left > 0).then(|| shortened(part))?;
            let part = beginning(&part, left).to_owned();
            left = left.saturating_sub(part.len().max(1));
            Some(part)
        });
        parts.collect()
    });
    answer
}

/// All tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Registry<Task>);

impl Tasks {
    pub fn begin(&self, owner: &OwnerId, name: Option<String>, answer: EstimateAnswer) -> Arc<Task> {
        let task = Arc::new(Task {
            id: new_id(),
            owner: owner.clone(),
            name: shortened(name.unwrap_or_else(|| answer.name())),
            answer: kept(answer),
            begun_at_ms: calendar_milliseconds(),
            state: Mutex::default(),
        });
        self.thin_out(owner);
        self.0.add(task.clone());
        task
    }

    pub fn find(&self, id: &str, owner: &OwnerId) -> Result<Arc<Task>, ApiRejection> {
        self.0.find(id, owner).ok_or_else(|| {
            let shown: String = id.chars().take(60).collect();
            ApiRejection::new(Code::TaskNotFound, format!("there is no task `{shown}`"))
        })
    }

    /// The oldest first.
    pub fn of(&self, owner: &OwnerId) -> Vec<Arc<Task>> {
        let mut tasks = self.0.of(owner);
        tasks.sort_by(|one, other| (one.begun_at_ms, &one.id).cmp(&(other.begun_at_ms, &other.id)));
        tasks
    }

    /// Makes room for one more: what ended first goes, else what began first.
    fn thin_out(&self, owner: &OwnerId) {
        let mut tasks = self.of(owner);
        if tasks.len() < MAX_KEPT_TASKS {
            return;
        }
        tasks.sort_by_key(|task| task.ended_at(&task.lock()).unwrap_or(u64::MAX));
        self.0.remove(&tasks[0].id);
    }
}
