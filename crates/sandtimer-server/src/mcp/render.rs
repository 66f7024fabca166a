//! Answers: a text for the model, whose first line has the status, and the same as data for
//! programs.

use rmcp::model::{CallToolResult, ContentBlock};
use sandtimer::engine::Stream;
use sandtimer::model::{Ending, Outcome, RemainingState, RemarkKind, time};
use sandtimer::time::instant;
use sandtimer_agents::budget::Check;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Map, Value, json};

use super::bounds::{ANSWER_BYTES, FRAME_BYTES, beginning, clipped, fit, fit_line, fit_str};
use super::excerpt::{DEFAULT_EXCERPT_BYTES, Excerpt};
use super::plain::plain;
use super::results::{self, ResultImage, Results};
use crate::error::{ApiRejection, Code};
use crate::registry::OwnedResource;
use crate::runs::{LiveRun, LoadedOutcome};

/// Bytes of the first line of an answer.
const HEADLINE_BYTES: usize = 1_000;

/// What a tool answers.
#[derive(Debug, Default)]
pub(super) struct ToolAnswer {
    pub text: String,
    pub structured: Value,
    pub images: Vec<ResultImage>,
    /// Bytes of output that the call asked for, where it did.
    pub data_bytes: usize,
}

impl ToolAnswer {
    /// Adds notes to the answer, such as arguments that were taken in another way than they were
    /// given.
    pub fn add_notes(&mut self, notes: Vec<String>) {
        if notes.is_empty() {
            return;
        }
        for note in &notes {
            self.text += &format!("\n[{note}]");
        }
        let mut all = self.structured["notes"].as_array().cloned().unwrap_or_default();
        all.extend(notes.into_iter().map(Value::from));
        self.structured["notes"] = all.into();
    }

    /// The same within its bounds. Clients that show the model only the structured content find the
    /// first lines in it.
    pub fn bounded(mut self) -> Self {
        let mut lines = self.text.lines();
        let (first, sentence) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
        let (first_length, headline) = (first.len(), fit_line(first, HEADLINE_BYTES));
        if let Some(fields) = self.structured.as_object_mut() {
            let is_of_run = fields.contains_key("run_id");
            let named = fields.get("headline").and_then(Value::as_str);
            let named = named.map_or(headline.clone(), |named| fit_line(named, HEADLINE_BYTES));
            fields.insert("headline".to_owned(), named.into());
            if is_of_run && fields.get("sentence").is_none_or(Value::is_null) {
                fields.insert("sentence".to_owned(), sentence.into());
            }
        }
        self.text.replace_range(..first_length, &headline);
        let most = ANSWER_BYTES.max(self.data_bytes.saturating_add(FRAME_BYTES));
        self.text = fit_str(&self.text, most);
        fit(&mut self.structured, most);
        self
    }

    /// The run that it is about, if that is not over.
    pub fn running_run_id(&self) -> Option<&str> {
        let is_live = matches!(self.structured["status"].as_str(), Some("running" | "queued"));
        self.structured["run_id"].as_str().filter(|_| is_live)
    }

    /// Adds the notice of the budget, unless the answer is about the budget and already has it.
    pub fn add_budget_notice(&mut self, check: &Check) {
        if self.structured.get("budget").is_some() {
            return;
        }
        for line in check.message.iter().chain(&closing(check)).chain(&check.warnings) {
            self.text += &format!("\n\n{line}");
        }
        self.structured["budget"] = budget(check);
    }
}

/// The result of a call of a tool. An error is the tool's, not the protocol's: the model is to see
/// it.
pub(super) fn tool_result(answered: Result<ToolAnswer, ToolAnswer>) -> CallToolResult {
    let is_error = answered.is_err();
    let (Ok(answer) | Err(answer)) = answered;
    let ToolAnswer { text, structured, images, .. } = answer.bounded();
    let mut content = vec![ContentBlock::text(text)];
    content.extend(images.into_iter().map(|image| ContentBlock::image(image.data, image.mime_type)));
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(structured);
    result.is_error = Some(is_error);
    result
}

/// Where a task's time is up, the tool that has work begin again.
pub(super) fn closing(check: &Check) -> Option<String> {
    check.message.as_ref()?;
    let task = check.limits.iter().find(|limit| limit.binding)?.task.as_ref()?;
    Some(format!("end_task with label `{task}` ends this task; then new work can begin."))
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

/// The remedy that a model is given for an error, in place of the hint for HTTP clients.
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
            "what is running continues under its limits: read_output, wait and kill still work; time_left shows what is used up"
        }
        Code::CommandNotFound => {
            "bash finds the programs of this machine that a sandbox shows; this one is not there"
        }
        other => other.hint(),
    }
}

/// A tool that could not do what it was asked.
pub(super) fn rejection_answer(refused: &ApiRejection) -> ToolAnswer {
    let mut structured = refused.json();
    let hint = remedy(refused.code);
    structured["hint"] = hint.into();
    let text = format!("REFUSED {}\n{}\nRemedy: {hint}.", refused.code.name(), refused.message);
    ToolAnswer { text, structured, ..ToolAnswer::default() }.bounded()
}

/// When a run's wall limit ends it: calendar milliseconds, and how long that is from now.
pub(super) fn kills_at(run: &LiveRun) -> Option<(u64, u64)> {
    let left = run.summary()["wall_left_ms"].as_u64()?;
    Some((calendar_milliseconds() + left, left))
}

/// A run's status, with its output.
pub(super) async fn run(run: &LiveRun) -> Result<ToolAnswer, ApiRejection> {
    Ok(with_outcome(run, false).await?.0)
}

/// The same, and the Outcome that it is made of once the run has ended: loading it again would take
/// as long. `details`: the whole Outcome in the structured content, or the run's status with its
/// limits.
pub(super) async fn with_outcome(
    run: &LiveRun,
    details: bool,
) -> Result<(ToolAnswer, Option<LoadedOutcome>), ApiRejection> {
    // Before the output: what is written until it has ended is then all there.
    match run.outcome().await? {
        Some(outcome) => Ok((ended(run, &outcome, details).await?, Some(outcome))),
        None => Ok((running_answer(run, details).await?, None)),
    }
}

/// Both streams of a run, of which most have only one.
async fn both(run: &LiveRun, most: usize) -> Result<[Excerpt; 2], ApiRejection> {
    let stderr = Excerpt::read(run, Stream::Stderr, 0, most / 2).await?;
    let left = if stderr.is_empty() { most } else { most / 2 };
    Ok([Excerpt::read(run, Stream::Stdout, 0, left).await?, stderr])
}

async fn running_answer(run: &LiveRun, details: bool) -> Result<ToolAnswer, ApiRejection> {
    let [stdout, stderr] = both(run, DEFAULT_EXCERPT_BYTES).await?;
    let (id, end) = (run.id(), kills_at(run));
    let seconds = calendar_milliseconds().saturating_sub(run.created_at_ms());
    let mut sentence = if run.status() == "queued" {
        format!("Run {id} waits for its turn after what its interpreter executes. ")
    } else {
        format!("Run {id} continues in the background after {}. ", time(seconds))
    };
    sentence += &ends_at(end);
    sentence += &how_far(run);
    let hint = format!(
        "read_output with run_id \"{id}\" and cursor {} reads on; wait waits for its end; kill ends it.",
        stdout.cursor
    );
    let text = format!("STILL RUNNING\n{sentence}\n{hint}\n{}", shown(run, &stdout, &stderr));
    let mut structured = if details { run.summary() } else { json!({"run_id": id, "status": run.status()}) };
    if details {
        structured["effective"] = run.effective().clone();
    } else if let Some(progress) = run.progress() {
        structured["progress"] = json!(progress);
    }
    structured["kills_at"] = end.map(|(at, _)| instant(at)).into();
    structured["kills_at_ms"] = end.map(|(at, _)| at).into();
    structured["kills_in_ms"] = end.map(|(_, left)| left).into();
    structured["cursor"] = stdout.cursor.into();
    structured["sentence"] = sentence.into();
    structured["hint"] = hint.into();
    structured["stdout"] = stdout.text(run).into();
    structured["stderr"] = stderr.text(run).into();
    Ok(ToolAnswer { text, structured, ..ToolAnswer::default() })
}

pub(super) fn ends_at(end: Option<(u64, u64)>) -> String {
    match end {
        Some((at, left)) => format!("Its wall-clock limit ends it at {}, in {}.", instant(at), time(left)),
        None => "It has no wall-clock limit.".to_owned(),
    }
}

/// How far it is, where that is known.
pub(super) fn how_far(run: &LiveRun) -> String {
    run.progress().map_or(String::new(), |progress| format!(" It is at {}.", progress.description()))
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

async fn ended(run: &LiveRun, outcome: &Outcome, details: bool) -> Result<ToolAnswer, ApiRejection> {
    let sentence = sentence(run, outcome);
    let mut text = format!("{}\n{sentence}\n", headline(outcome));
    let value = outcome.value.as_ref().filter(|value| !value.is_null());
    if let Some(value) = value {
        text += &format!("\nValue: {}\n", clipped(value, PART_BYTES));
    }
    let results = results::of(outcome, PART_BYTES);
    text += &results.text;
    if let Some(error) = &outcome.error {
        text += &format!("\n{}\n", fit_str(&error_traceback(error), PART_BYTES));
    }
    let [stdout, stderr] =
        both(run, DEFAULT_EXCERPT_BYTES.saturating_sub(text.len()).max(PART_BYTES)).await?;
    if !(stdout.is_empty() && stderr.is_empty() && (value.is_some() || !results.text.is_empty())) {
        text += &shown(run, &stdout, &stderr);
    }
    let mut structured = match details {
        // Plain data with text keys always serialises.
        true => serde_json::to_value(outcome).unwrap_or_default(),
        false => summary(outcome, &results),
    };
    bound(&mut structured, PART_BYTES);
    structured["headline"] = headline(outcome).into();
    structured["sentence"] = sentence.into();
    structured["status"] = "ended".into();
    structured["cursor"] = stdout.cursor.into();
    for (name, excerpt, is_cut) in
        [("stdout", &stdout, outcome.stdout_truncated), ("stderr", &stderr, outcome.stderr_truncated)]
    {
        structured[name] = excerpt.text(run).into();
        if details {
            structured[format!("{name}_encoding")] = "utf-8".into();
        }
        if details || is_cut || !excerpt.is_whole() {
            structured[format!("{name}_truncated")] = (is_cut || !excerpt.is_whole()).into();
        }
    }
    if details {
        structured["encoding"] = "utf-8".into();
    }
    Ok(ToolAnswer { text, structured, images: results.images, ..ToolAnswer::default() })
}

/// Bytes of a value, of results and of an error, each.
const PART_BYTES: usize = DEFAULT_EXCERPT_BYTES / 4;

/// What of an Outcome a model needs: what is empty is left out.
fn summary(outcome: &Outcome, results: &Results) -> Value {
    let mut fields = Map::new();
    let mut add = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    add("run_id", outcome.run_id.clone().into());
    add("ending", json!(outcome.ending));
    add("ok", outcome.ok.into());
    let is_there = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    for (name, value) in [
        ("exit_code", json!(outcome.exit_code)),
        ("signal", json!(outcome.signal)),
        ("value", outcome.value.clone().unwrap_or_default()),
        ("error", outcome.error.clone().unwrap_or_default()),
        ("results", json!(results.structured)),
        ("verdict", outcome.verdict.as_ref().map_or(Value::Null, verdict)),
        ("state", if outcome.state == RemainingState::None { Value::Null } else { json!(outcome.state) }),
        ("notices", json!(outcome.notices)),
        ("remarks", json!(outcome.remarks)),
    ] {
        if is_there(&value) {
            add(name, value);
        }
    }
    if results.is_cut {
        add("results_truncated", true.into());
    }
    Value::Object(fields)
}

/// The fields of a verdict that its sentence does not give in a form for programs.
fn verdict(verdict: &sandtimer::model::Verdict) -> Value {
    const SHOWN_FIELDS: [&str; 10] = [
        "kind",
        "layer",
        "scope",
        "limit_ms",
        "limit",
        "source",
        "origin",
        "elapsed_ms",
        "waiting_for",
        "progress",
    ];
    let mut fields = json!(verdict);
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, value| {
            SHOWN_FIELDS.contains(&name.as_str()) && (name == "kind" || !value.is_null())
        });
    }
    fields
}

/// Keeps the beginning of the value, the error and the results of an Outcome, and marks each that
/// was cut.
fn bound(outcome: &mut Value, most: usize) {
    for name in ["value", "error", "results"] {
        let mut is_cut = false;
        let bounded = match &outcome[name] {
            // Each of its fields: the type of an error comes after its traceback, whose end says
            // most.
            Value::Object(fields) if name == "error" => {
                let part = |(key, value): (&String, &Value)| {
                    let bounded = match value {
                        Value::String(text) => fit_str(text, most).into(),
                        value => beginning(value, most, &mut is_cut),
                    };
                    is_cut |= bounded != *value;
                    (key.clone(), bounded)
                };
                Value::Object(fields.iter().map(part).collect())
            }
            value => beginning(value, most, &mut is_cut),
        };
        if is_cut {
            outcome[name] = bounded;
            outcome[format!("{name}_truncated")] = true.into();
        }
    }
}

/// An error's traceback, or what there is of it.
fn error_traceback(error: &Value) -> String {
    let traceback = error["traceback"].as_str().or(error["message"].as_str());
    traceback.map_or_else(|| error.to_string(), |text| plain(text.as_bytes()))
}

/// The first line of the answer on a run that has ended.
pub(super) fn headline(outcome: &Outcome) -> String {
    if let Some(verdict) = &outcome.verdict {
        let wire_name = |value: Value| value.as_str().unwrap_or_default().replace('_', " ");
        let layer = wire_name(json!(verdict.layer));
        let Some(kind) = verdict.kind else { return "STOPPED BY cancel".to_owned() };
        let limit = match (verdict.limit_ms, verdict.limit) {
            (Some(limit), _) => format!(" {}", time(limit)),
            (None, Some(limit)) => format!(" {limit}"),
            (None, None) => String::new(),
        };
        return format!("STOPPED BY {layer} {} limit{limit}", wire_name(json!(kind)));
    }
    match outcome.ending {
        Ending::Exited => format!("EXITED {}", outcome.exit_code.unwrap_or_default()),
        Ending::Returned => "EXITED 0".to_owned(),
        Ending::Raised => {
            let error_field = |key: &str| outcome.error.as_ref().and_then(|error| error[key].as_str());
            let code = match (error_field("type"), error_field("message").unwrap_or_default()) {
                (Some("SystemExit"), message) => exit_code(message),
                _ => 1,
            };
            error_field("type")
                .map_or_else(|| "EXITED 1".to_owned(), |name| format!("EXITED {code} ({name})"))
        }
        Ending::Signaled => exited_by(outcome.signal.as_deref()),
        // Code that ended its interpreter.
        Ending::NoResult if outcome.exit_code.is_some() => {
            format!("EXITED {}", outcome.exit_code.unwrap_or_default())
        }
        Ending::NoResult if outcome.signal.is_some() => exited_by(outcome.signal.as_deref()),
        Ending::Cancelled => "STOPPED BY cancel".to_owned(),
        Ending::OutOfMemory => "STOPPED BY out of memory".to_owned(),
        other => format!("STOPPED BY {}", json!(other).as_str().unwrap_or_default().replace('_', " ")),
    }
}

/// The exit code of a SystemExit with this argument, as Python has it.
fn exit_code(argument: &str) -> i64 {
    match argument {
        "" | "None" => 0,
        code => code.parse::<i64>().map_or(1, |code| code & 0xff),
    }
}

fn exited_by(signal: Option<&str>) -> String {
    let name = signal.unwrap_or("a signal");
    let number = sandtimer::supervise::signal_number(name).unwrap_or(0);
    format!("EXITED {} ({name})", 128 + number)
}

/// What happened and what is left of it.
pub(super) fn sentence(run: &LiveRun, outcome: &Outcome) -> String {
    let id = run.id();
    let mut text = match &outcome.verdict {
        Some(verdict) => format!("Run {id}: {}", verdict.sentence),
        None => {
            let left = match outcome.tree.survivors {
                Some(0) => "nothing of it is left alive",
                Some(_) => "something of it could not be killed",
                None => "that nothing of it is left alive is not proven yet",
            };
            let ended = format!("Run {id} ended after {}; {left}.", time(outcome.usage.wall_ms));
            ended + state(outcome)
        }
    };
    for remark in &outcome.remarks {
        // The message begins with how many processes there were; `tree` counts threads as well.
        let count = remark.message.split(' ').next().and_then(|count| count.parse().ok());
        text += &match (remark.kind, count.unwrap_or(outcome.tree.killed)) {
            (RemarkKind::KilledLeftovers, 1) => {
                format!(" 1 process it had left behind was killed; {KEEP_HINT}.")
            }
            (RemarkKind::KilledLeftovers, count) => {
                format!(" {count} processes it had left behind were killed; {KEEP_HINT}.")
            }
            (RemarkKind::NoNetwork, _) => format!(" {NO_NETWORK}"),
            _ => format!(" {}", remark.message),
        };
    }
    text
}

/// What keeps a process from ending with the command that started it.
const KEEP_HINT: &str = "to keep such a process, make it the command of a call with background: true";
const NO_NETWORK: &str = "It has no network, only a loopback of its own, and no argument gives it one: work with what is installed and with \
    files in /workspace, or ask the user for a server with a network (`sandtimer mcp --network`).";

/// What has become of an interpreter that code ended itself.
fn state(outcome: &Outcome) -> &'static str {
    match (outcome.ending, outcome.state) {
        (Ending::Returned | Ending::Raised, _) => "",
        (_, RemainingState::RolledBack) => {
            " The code ended its interpreter, which has the state from before this code: nothing that it set is there."
        }
        (_, RemainingState::Reset) => {
            " The code ended its interpreter, which was started again: all variables are gone."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use sandtimer_records::bare_outcome;

    use super::*;

    #[test]
    fn structured_values_are_cut_like_the_output() {
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

    #[test]
    fn summary_leaves_out_what_is_empty() {
        let outcome = Outcome {
            exit_code: Some(0),
            ok: true,
            error: None,
            state: RemainingState::None,
            ..bare_outcome("r", Ending::Exited, Value::Null, "a test")
        };
        let expected = json!({"run_id": "r", "ending": "exited", "ok": true, "exit_code": 0});
        assert_eq!(summary(&outcome, &Results::default()), expected);
    }

    #[test]
    fn answers_are_bounded_and_begin_alike() {
        let text = format!("EXITED 0\nRun r ended.\n\n{}", "\"\n".repeat(50_000));
        let structured = json!({"run_id": "r", "stdout": text});
        let answer = ToolAnswer { text, structured, ..ToolAnswer::default() }.bounded();
        assert!(answer.text.len() <= ANSWER_BYTES && answer.structured.to_string().len() <= ANSWER_BYTES);
        let actual = (&answer.structured["headline"], &answer.structured["sentence"]);
        assert_eq!(actual, (&json!("EXITED 0"), &json!("Run r ended.")));
    }

    #[test]
    fn ended_interpreter_names_its_cause() {
        let ended = Outcome {
            exit_code: Some(3),
            state: RemainingState::RolledBack,
            ..bare_outcome("r", Ending::NoResult, Value::Null, "a test")
        };
        assert_eq!(headline(&ended), "EXITED 3");
        assert!(state(&ended).contains("from before this code"));
    }
}
