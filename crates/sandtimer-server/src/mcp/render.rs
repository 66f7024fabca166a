//! Answers: a text for the model, whose first line says how it stands, and the same as data for programs.

use sandtimer::engine::Stream;
use sandtimer::model::{Ending, Outcome, time};
use sandtimer::task::budget::Check;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};

use super::excerpt::Excerpt;
use crate::compat::instant;
use crate::error::{Code, Refusal};
use crate::owned::Owned;
use crate::runs::{LiveRun, LoadedOutcome};

/// What a tool answers.
#[derive(Debug)]
pub(super) struct Answer {
    pub text: String,
    pub structured: Value,
}

impl Answer {
    /// The run that it is about, if that is not over.
    pub fn goes_on(&self) -> Option<&str> {
        let goes_on = matches!(self.structured["status"].as_str(), Some("running" | "queued"));
        self.structured["run_id"].as_str().filter(|_| goes_on)
    }

    /// Adds what the budget has to say, unless the answer is about the budget and has said it.
    pub fn tell(&mut self, check: &Check) {
        if self.structured.get("budget").is_some() {
            return;
        }
        for line in check.message.iter().chain(&closing(check)).chain(&check.warnings) {
            self.text += &format!("\n\n{line}");
        }
        self.structured["budget"] = budget(check);
    }
}

/// Where a task's time is up, the tool that has work begin again.
pub(super) fn closing(check: &Check) -> Option<String> {
    check.message.as_ref()?;
    let task = check.limits.iter().find(|limit| limit.binding)?.task.as_ref()?;
    Some(format!("end_task with label `{task}` says that this task is over; then work begins as before."))
}

/// A check as data. Its lines are in the answer's text.
pub(super) fn budget(check: &Check) -> Value {
    // Plain data with text keys always serialises.
    let mut budget = serde_json::to_value(check).unwrap_or_default();
    if let Some(fields) = budget.as_object_mut() {
        fields.remove("text");
    }
    budget
}

/// What a model is told of an error, instead of what is said to programs that speak HTTP.
fn remedy(code: Code) -> &'static str {
    match code {
        Code::BadField | Code::UnknownField | Code::BadLimit => {
            "correct the argument; the tool's input schema has all of them"
        }
        Code::RunNotFound => "list_runs shows your runs; old ones are removed",
        Code::ContextNotFound | Code::ContextEnded => "leave context_id out, or give `new`",
        Code::RunEnded => "read_output has what it wrote; start a new one",
        Code::RunQueued => "wait for its turn with wait, or give it up with kill",
        Code::AnswerUnavailable => {
            "do not make the call again: it was carried out; read the answers of your other calls, then read_output has what it wrote"
        }
        Code::StdinClosed => "start the run with `stdin_open: true` to write to it later",
        Code::WrongState => "time_left shows its state",
        Code::SpawnTimeout => "make the same call again; what takes long to open is kept for it",
        Code::BudgetOver => {
            "what runs goes on under its limits: read_output, wait and kill work as before; time_left shows what is used up"
        }
        Code::CommandNotFound => {
            "bash finds the programs of this machine that a sandbox shows; this one is not there"
        }
        other => other.hint(),
    }
}

/// A tool that could not do what it was asked.
pub(super) fn refusal(refused: &Refusal) -> Answer {
    let mut structured = refused.json();
    let hint = remedy(refused.code);
    structured["hint"] = hint.into();
    Answer {
        text: format!("REFUSED {}\n{}\nRemedy: {hint}.", refused.code.name(), refused.message),
        structured,
    }
}

/// When a run's wall limit ends it: calendar milliseconds, and how long that is from now.
pub(super) fn kills_at(run: &LiveRun) -> Option<(u64, u64)> {
    let left = run.summary()["wall_left_ms"].as_u64()?;
    Some((calendar_milliseconds() + left, left))
}

/// How a run stands, with what it has written.
pub(super) async fn run(run: &LiveRun, most: usize) -> Result<Answer, Refusal> {
    Ok(with_outcome(run, most).await?.0)
}

/// The same, and the Outcome that it is made of once the run has ended: loading it again would take as long.
pub(super) async fn with_outcome(
    run: &LiveRun,
    most: usize,
) -> Result<(Answer, Option<LoadedOutcome>), Refusal> {
    // Before the output: what is written until it is over is then all there.
    match run.outcome().await? {
        Some(outcome) => Ok((ended(run, &outcome, most).await?, Some(outcome))),
        None => Ok((going_on(run, most).await?, None)),
    }
}

/// Both streams of a run, of which most have only one.
async fn both(run: &LiveRun, most: usize) -> Result<[Excerpt; 2], Refusal> {
    let stderr = Excerpt::read(run, Stream::Stderr, 0, most / 2).await?;
    let left = if stderr.is_empty() { most } else { most / 2 };
    Ok([Excerpt::read(run, Stream::Stdout, 0, left).await?, stderr])
}

async fn going_on(run: &LiveRun, most: usize) -> Result<Answer, Refusal> {
    let [stdout, stderr] = both(run, most).await?;
    let (id, end) = (run.id(), kills_at(run));
    let seconds = calendar_milliseconds().saturating_sub(run.created_at_ms());
    let mut text = "STILL RUNNING\n".to_owned();
    text += &if run.status() == "queued" {
        format!("Run {id} waits for its turn behind what its interpreter executes. ")
    } else {
        format!("Run {id} goes on in the background after {}. ", time(seconds))
    };
    text += &ends_at(end);
    text += &how_far(run);
    text += &format!(
        "\nread_output with run_id \"{id}\" and cursor {} reads on; wait waits for its end; kill ends it.\n",
        stdout.cursor
    );
    text += &shown(run, &stdout, &stderr);
    let mut structured = standing(run, &stdout);
    structured["stdout"] = stdout.text(run).into();
    structured["stderr"] = stderr.text(run).into();
    Ok(Answer { text, structured })
}

/// What is known of a run that goes on.
pub(super) fn standing(run: &LiveRun, stdout: &Excerpt) -> Value {
    let mut summary = run.summary();
    let end = kills_at(run);
    summary["kills_at"] = end.map(|(at, _)| instant(at)).into();
    summary["kills_at_ms"] = end.map(|(at, _)| at).into();
    summary["kills_in_ms"] = end.map(|(_, left)| left).into();
    summary["effective"] = run.effective().clone();
    summary["cursor"] = stdout.cursor.into();
    summary
}

pub(super) fn ends_at(end: Option<(u64, u64)>) -> String {
    match end {
        Some((at, left)) => format!("Its wall limit ends it at {}, in {}.", instant(at), time(left)),
        None => "No wall limit will end it.".to_owned(),
    }
}

/// How far it is, where that is known.
pub(super) fn how_far(run: &LiveRun) -> String {
    run.progress().map_or(String::new(), |progress| format!(" It is at {}.", progress.words()))
}

/// Output as it is, or that there is none.
fn shown(run: &LiveRun, stdout: &Excerpt, stderr: &Excerpt) -> String {
    let mut text = "\n".to_owned();
    if stdout.is_empty() && stderr.is_empty() {
        text += "(no output)";
    }
    text += &stdout.text(run);
    if !stderr.is_empty() {
        text += &format!("\n--- stderr ---\n{}", stderr.text(run));
    }
    let dropped = stdout.dropped + stderr.dropped;
    if dropped > 0 {
        text += &format!("\n[{dropped} bytes were past the output limit and are gone]");
    }
    text
}

async fn ended(run: &LiveRun, outcome: &Outcome, most: usize) -> Result<Answer, Refusal> {
    let [stdout, stderr] = both(run, most).await?;
    let mut text = format!("{}\n{}\n", headline(outcome), sentence(run, outcome));
    if let Some(value) = outcome.value.as_ref().filter(|value| !value.is_null()) {
        text += &format!("\nValue: {}\n", clipped(value, most));
    }
    if let Some(error) = &outcome.error {
        text += &format!("\n{}\n", clipped(&error_text(error), most));
    }
    text += &shown(run, &stdout, &stderr);
    // Plain data with text keys always serialises.
    let mut structured = serde_json::to_value(outcome).unwrap_or_default();
    bound(&mut structured, most);
    if !(stdout.is_whole() && stderr.is_whole()) {
        structured["stdout"] = stdout.text(run).into();
        structured["stderr"] = stderr.text(run).into();
        structured["stdout_truncated"] = (!stdout.is_whole() || outcome.stdout_truncated).into();
        structured["stderr_truncated"] = (!stderr.is_whole() || outcome.stderr_truncated).into();
        structured["encoding"] = "utf-8".into();
    }
    structured["status"] = "ended".into();
    structured["cursor"] = stdout.cursor.into();
    Ok(Answer { text, structured })
}

/// Keeps the beginning of the value, the error and the results of an Outcome, as the text does, and says of each that it was cut.
fn bound(outcome: &mut Value, most: usize) {
    for name in ["value", "error", "results"] {
        let mut is_cut = false;
        let bounded = match &outcome[name] {
            // Each of its fields: the type of an error comes after its traceback.
            Value::Object(fields) if name == "error" => {
                let bounded =
                    fields.iter().map(|(key, value)| (key.clone(), beginning(value, most, &mut is_cut)));
                Value::Object(bounded.collect())
            }
            value => beginning(value, most, &mut is_cut),
        };
        if is_cut {
            outcome[name] = bounded;
            outcome[format!("{name}_truncated")] = true.into();
        }
    }
}

/// The beginning of a value of the same type, about so many bytes of JSON.
fn beginning(value: &Value, most: usize, is_cut: &mut bool) -> Value {
    fn part(value: &Value, left: &mut usize, is_cut: &mut bool) -> Value {
        match value {
            Value::String(text) => {
                let shown = clipped(value, *left);
                *is_cut |= shown != *text;
                *left = left.saturating_sub(shown.len() + 3);
                shown.into()
            }
            Value::Array(list) => {
                let mut kept = Vec::new();
                for value in list {
                    if *left == 0 {
                        *is_cut = true;
                        break;
                    }
                    kept.push(part(value, left, is_cut));
                }
                kept.into()
            }
            Value::Object(fields) => {
                let mut kept = serde_json::Map::new();
                for (key, value) in fields {
                    if *left <= key.len() {
                        (*left, *is_cut) = (0, true);
                        break;
                    }
                    *left -= key.len();
                    kept.insert(key.clone(), part(value, left, is_cut));
                }
                kept.into()
            }
            other => {
                *left = left.saturating_sub(other.to_string().len() + 1);
                other.clone()
            }
        }
    }
    part(value, &mut { most }, is_cut)
}

/// An error's traceback, or what there is of it.
fn error_text(error: &Value) -> Value {
    let traceback = error["traceback"].as_str().or(error["message"].as_str());
    traceback.map_or_else(|| error.clone(), Value::from)
}

fn clipped(value: &Value, most: usize) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut clipped: String = text.chars().take(most).collect();
    if clipped.len() < text.len() {
        clipped += " …";
    }
    clipped
}

/// The first line of what is told of a run that is over.
pub(super) fn headline(outcome: &Outcome) -> String {
    if let Some(verdict) = &outcome.verdict {
        let word = |value: Value| value.as_str().unwrap_or_default().replace('_', " ");
        let layer = word(json!(verdict.layer));
        let Some(kind) = verdict.kind else { return "STOPPED BY cancel".to_owned() };
        let limit = match (verdict.limit_ms, verdict.limit) {
            (Some(limit), _) => format!(" {}", time(limit)),
            (None, Some(limit)) => format!(" {limit}"),
            (None, None) => String::new(),
        };
        return format!("STOPPED BY {layer} {} limit{limit}", word(json!(kind)));
    }
    match outcome.ending {
        Ending::Exited => format!("EXITED {}", outcome.exit_code.unwrap_or_default()),
        Ending::Returned => "EXITED 0".to_owned(),
        Ending::Raised => {
            let name = outcome.error.as_ref().and_then(|error| error["type"].as_str());
            name.map_or_else(|| "EXITED 1".to_owned(), |name| format!("EXITED 1 ({name})"))
        }
        Ending::Signaled => {
            let name = outcome.signal.as_deref().unwrap_or("a signal");
            let number = sandtimer::supervise::signal_number(name).unwrap_or(0);
            format!("EXITED {} ({name})", 128 + number)
        }
        Ending::Cancelled => "STOPPED BY cancel".to_owned(),
        Ending::OutOfMemory => "STOPPED BY out of memory".to_owned(),
        other => format!("STOPPED BY {}", json!(other).as_str().unwrap_or_default().replace('_', " ")),
    }
}

/// What happened and what is left of it.
pub(super) fn sentence(run: &LiveRun, outcome: &Outcome) -> String {
    let id = run.id();
    if let Some(verdict) = &outcome.verdict {
        return format!("Run {id}: {}", verdict.sentence);
    }
    let left = match outcome.tree.survivors {
        Some(0) => "nothing of it is left alive",
        Some(_) => "something of it could not be killed",
        None => "that nothing of it is left alive is not proven yet",
    };
    format!("Run {id} ended after {}; {left}.", time(outcome.usage.wall_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structured_values_are_cut_as_the_text_is() {
        let long = "x".repeat(10_000);
        let error = json!({"traceback": long, "type": "ValueError"});
        let results: Vec<Value> = (0..1000).map(|index| json!({"text/plain": index})).collect();
        let mut outcome =
            json!({"ok": false, "value": {"a": [1, long], "b": 2}, "error": error, "results": results});
        bound(&mut outcome, 100);
        assert!(outcome.to_string().len() < 1000, "{outcome}");
        assert_eq!((&outcome["value"]["a"][0], &outcome["error"]["type"]), (&json!(1), &json!("ValueError")));
        let cut = |name: &str| outcome[format!("{name}_truncated")] == true;
        assert!(cut("value") && cut("error") && cut("results"));
        let whole = json!({"value": [1, "é"], "error": null, "results": []});
        let mut same = whole.clone();
        bound(&mut same, 100);
        assert_eq!(same, whole);
    }
}
