//! Pieces of an agent's work: `estimate_duration`, `begin_task`, `end_task`, `report_progress`.

use std::time::Duration;

use sandtimer::model::Progress;
use sandtimer::progress::ProgressReport;
use sandtimer_agents::budget::TaskOf;
use sandtimer_agents::estimate::EstimateAnswer as Estimated;
use serde_json::{Value, json};

use super::call::{ToolCall, required};
use super::conversation::RegisteredTask;
use super::render::{ToolAnswer, budget as budget_of};
use super::start::bare;
use crate::body::{RequestFields, refused};
use crate::error::{ApiRejection, Code};
use crate::tasks;

/// `estimate_duration`. Fits the rest of the budget by default.
pub(super) fn estimate(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let answer = estimated(call, &mut fields)?;
    fields.finish()?;
    let text = answer.text();
    let mut structured = answer.object();
    structured["suggested_timeout_ms"] = structured["suggested_limit_ms"].clone();
    Ok(ToolAnswer { text, structured, ..ToolAnswer::default() })
}

fn estimated(call: &ToolCall, fields: &mut RequestFields) -> Result<Estimated, ApiRejection> {
    let mut asked = tasks::asked(fields)?;
    if asked.budget.is_none() {
        let (budget, now) = call.conversation.budget()?.lock();
        asked.budget = budget.inspect(now).remaining_ms.map(Duration::from_millis);
    }
    call.service().contexts.runs.durations.answer(asked, call.owner())
}

/// `EstimateTaskDuration`: what is estimated is bound to the next command in the background.
pub(super) fn register(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let mut given = serde_json::Map::new();
    for (name, known) in [
        ("task_type", "task_type"),
        ("data_size_mb", "data_size_mb"),
        ("complexity", "complexity"),
        ("additional_context", "context"),
    ] {
        given.insert(known.to_owned(), fields.value(name).unwrap_or_default());
    }
    fields.finish()?;
    let answer = estimated(call, &mut RequestFields::new(given))?;
    let text = format!("{}\nThe next command in the background is this task.", answer.text());
    let task = call.service().tasks.tasks.begin(call.owner(), None, answer.clone());
    let structured = json!({"task": task.view(), "estimate": answer.object()});
    *call.conversation.estimated() = Some(RegisteredTask { task, answer });
    Ok(ToolAnswer { text, structured, ..ToolAnswer::default() })
}

/// `begin_task`.
pub(super) fn begin(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let label = required(&mut fields, "label")?;
    let (estimated, max) = (fields.milliseconds("estimated_ms")?, fields.milliseconds("max_ms")?);
    fields.finish()?;
    let limited = |time: Option<Duration>| time.filter(|time| !time.is_zero());
    let task = TaskOf { name: &label, estimated: limited(estimated), max: limited(max), ends_after: None };
    let (mut budget, now) = call.conversation.budget()?.lock();
    budget.start_task(task, true, now)?;
    let check = budget.check(now);
    Ok(ToolAnswer {
        text: format!("Task `{label}` has begun.\n\n{}", check.text),
        structured: json!({"label": label, "budget": budget_of(&check)}),
        ..ToolAnswer::default()
    })
}

/// `end_task`.
pub(super) fn end(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let label = fields.string("label")?;
    fields.finish()?;
    let (mut budget, now) = call.conversation.budget()?.lock();
    let Some((label, took)) = budget.complete_task(label.as_deref(), now) else {
        let message = match label {
            Some(label) => format!("label: there is no open task `{label}`; time_left shows the open ones"),
            None => "there is no open task".to_owned(),
        };
        return Err(ApiRejection::new(Code::BadField, message).with("key", "label"));
    };
    let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let check = budget.check(now);
    let text = format!("Task `{label}` took {}.\n\n{}", sandtimer::model::time(took), check.text);
    let structured = json!({"label": label, "took_ms": took, "budget": budget_of(&check)});
    Ok(ToolAnswer { text, structured, ..ToolAnswer::default() })
}

/// `report_progress`, of a run or of a task.
pub(super) fn report(call: &ToolCall, mut fields: RequestFields) -> Result<ToolAnswer, ApiRejection> {
    let (run, task) = (fields.string("run_id")?, fields.string("task")?);
    let (done, total) = (fields.value("done").unwrap_or_default(), fields.value("total"));
    let message = fields.string("message")?.unwrap_or_default();
    fields.finish()?;
    let report = ProgressReport::parse(json!({"done": done, "total": total}).to_string().as_bytes());
    let given = total.map_or_else(|| done.to_string(), |total: Value| format!("{done} of {total}"));
    let report = report.ok_or_else(|| {
        refused(
            "done",
            &given.clone().into(),
            "progress: done is a number from 0 on, total one above 0 and not below done",
        )
    })?;
    let (of, progress) = match (run, task) {
        (Some(run), None) => {
            let run = call.service().contexts.runs.get(bare(&run), call.owner())?.running()?;
            run.report_progress(&report);
            (format!("run {}", run.id()), run.progress())
        }
        (None, Some(task)) => (format!("task {task}"), of_task(call, &task, report)?),
        _ => {
            let message = "give run_id or task: what it is the progress of";
            return Err(ApiRejection::new(Code::BadField, message).with("key", "run_id"));
        }
    };
    let mut text = format!("Noted: {of} is at {given}. {message}").trim_end().to_owned();
    if let Some(progress) = progress.as_ref().filter(|progress| progress.eta_ms.is_some()) {
        text += &format!("\nIt is at {}.", progress.description());
    }
    let chance = progress.as_ref().and_then(|progress| progress.p_finish_before_deadline);
    let structured = json!({"of": of, "progress": progress, "p_finish_before_deadline": chance});
    Ok(ToolAnswer { text, structured, ..ToolAnswer::default() })
}

/// Notes how far a task is; how far that makes it.
fn of_task(call: &ToolCall, task: &str, report: ProgressReport) -> Result<Option<Progress>, ApiRejection> {
    let (mut budget, now) = call.conversation.budget()?.lock();
    let Some(status) = budget.task_status(Some(task), now) else {
        let message = format!("task: there is no open task `{task}`; begin_task begins one");
        return Err(ApiRejection::new(Code::BadField, message).with("key", "task").with("value", task));
    };
    drop(budget);
    let deadline = status.max.map(|max| now.after(max.saturating_sub(status.elapsed)));
    Ok(call.conversation.with_reported(task, now.before(status.elapsed), |tracker| {
        tracker.report(report, now);
        tracker.progress_until(deadline, now)
    }))
}
