//! A loop. Each turn is a new run of the driver, which gets the result of the turn before on stdin,
//! and answers with one line of JSON: `{"action": "…", "input": …}` or `{"done": …}`, and
//! `"state"`, which it gets back the next time.

use sandtimer::model::json::{JsonAllowance, JsonRejection};
use sandtimer::model::{Layer, Source};
use sandtimer_agents::loop_guard::{LoopStop, TurnGuard};
use serde_json::{Value, json};

use super::calls::{DRIVER, JobCallCompletion};
use super::clock::now;
use super::execution::{JobExecution, StopCause};
use super::level::Level;
use crate::job::sentences::{self, JobActivity};
use crate::job::{CallRecord, JobPhase, JobVerdict, LoopSpec};

/// The driver gets at most this many bytes of the end of an action's output.
const MAX_OUTPUT_TAIL_BYTES: usize = 16 << 10;

/// The longest answer of a driver.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Values of one answer, which is kept for the next turn.
const MAX_ANSWER_VALUES: usize = 100_000;

/// What the driver wants.
enum Wish {
    Act { action: String, input: Value },
    Finish(Value),
}

impl JobExecution<'_> {
    pub(super) fn turns(&mut self, job: &Level, spec: &LoopSpec) -> Result<(), StopCause> {
        let level = job.open(&self.context.engine, Layer::Loop, "loop", spec.wall)?;
        let mut guard = TurnGuard::of(spec.iterations, spec.failures, spec.repeats);
        let mut report = Value::Null;
        let mut state = Value::Null;
        loop {
            self.check(&level, JobPhase::Running, JobActivity::BetweenTurns)?;
            let number = guard.begin().map_err(|stop| StopCause::Limit(Box::new(budget(stop, &level))))?;
            self.result.turns = Some(number);
            let turn =
                level.open(&self.context.engine, Layer::Turn, &format!("turn-{number}"), spec.turn_wall)?;
            let mut asked = json!({
                "turn": number,
                "feedback": report["feedback"].take(),
                "last": report["last"].take(),
                "left": {
                    "turns": spec.iterations.map(|most| most - number),
                    "wall_ms": level.end().map(|end| end.since(now()).as_millis() as u64),
                },
            });
            asked["state"] = state;
            let stdin = format!("{asked}\n").into_bytes();
            drop(asked);
            let wish;
            (wish, state) = self.ask(&turn, spec, number, &stdin)?;
            match wish {
                Wish::Finish(value) => {
                    self.result.value = Some(value);
                    return Ok(());
                }
                Wish::Act { action, input } => {
                    let ok;
                    (report, ok) = self.act(&turn, spec, number, &action, &input)?;
                    guard.ended(&action, &input, ok);
                }
            }
        }
    }

    /// Asks the driver what to do.
    fn ask(
        &mut self,
        turn: &Level,
        spec: &LoopSpec,
        number: u32,
        stdin: &[u8],
    ) -> Result<(Wish, Value), StopCause> {
        let called = self.call(turn, DRIVER, Some(number), &spec.driver, stdin)?;
        let failed = |message: String| format!("the driver failed in turn {number}: {message}");
        if let (false, message) = (called.record.ok, called.record.said.clone()) {
            let verdict = called.verdict;
            self.note(called.record);
            return Err(StopCause::Failed { message: failed(message.unwrap_or_default()), verdict });
        }
        let stdout = called.outcome.as_ref().map_or("", |outcome| outcome.stdout.as_str());
        let wish = match called.value() {
            // What a handler returned has the same bounds as a line.
            Some(value) => wish(&value.to_string()),
            None => wish(stdout),
        };
        wish.map_err(|message| StopCause::failed(failed(message)))
    }

    /// Calls an action. Returns the report for the driver, and whether the turn was a success.
    fn act(
        &mut self,
        turn: &Level,
        spec: &LoopSpec,
        number: u32,
        name: &str,
        input: &Value,
    ) -> Result<(Value, bool), StopCause> {
        let Some(action) = spec.actions.get(name) else {
            let known: Vec<&str> = spec.actions.keys().map(String::as_str).collect();
            let feedback = format!("[SYSTEM: there is no action `{name}`; there are: {}]", known.join(", "));
            self.remark(&format!("turn {number}: {feedback}"));
            return Ok((driver_report(name, input, None, Some(feedback)), false));
        };
        let stdin = format!("{input}\n").into_bytes();
        let called = self.call(turn, name, Some(number), action, &stdin)?;
        let feedback = called.feedback.clone();
        let answer = (driver_report(name, input, Some(&called), feedback), called.record.ok);
        self.note(called.record);
        Ok(answer)
    }
}

/// The report of a turn for the driver.
fn driver_report(
    name: &str,
    input: &Value,
    called: Option<&JobCallCompletion>,
    feedback: Option<String>,
) -> Value {
    let record = called.map(|called| &called.record);
    let message = record.and_then(|record| record.said.clone());
    let stdout = || Some(end_of(&called?.outcome.as_ref()?.stdout).to_owned());
    let value = called.and_then(JobCallCompletion::value).map(|value| end_of(&value.to_string()).to_owned());
    let output = value.or_else(stdout);
    let is = |what: fn(&CallRecord) -> bool| record.is_some_and(what);
    // The message may be the feedback already.
    let failed = message.as_ref().filter(|message| feedback.as_ref() != Some(message));
    let failed = failed.map(|message| format!("[SYSTEM: {name} failed: {message}]"));
    let lines: Vec<String> = feedback.into_iter().chain(failed).collect();
    json!({
        "feedback": (!lines.is_empty()).then(|| lines.join("\n")),
        "last": {
            "action": name,
            "input": input,
            "ok": is(|record| record.ok),
            "degraded": is(|record| record.degraded),
            "output": output,
            "error": message,
        },
    })
}

fn end_of(text: &str) -> &str {
    let start = (text.len().saturating_sub(MAX_OUTPUT_TAIL_BYTES)..=text.len())
        .find(|index| text.is_char_boundary(*index));
    &text[start.unwrap_or(0)..]
}

const ALLOWED: &str = "one line of JSON, {\"action\": \"…\", \"input\": …} or {\"done\": …}";

fn rejection(answer: &str) -> String {
    let shown: String = answer.chars().take(200).collect();
    format!("it answered `{shown}`; it must answer with {ALLOWED}")
}

/// Reads the driver's answer: the last line it wrote, or what a handler returned.
fn wish(stdout: &str) -> Result<(Wish, Value), String> {
    let line = stdout.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if line.len() > MAX_ANSWER_BYTES {
        return Err(format!(
            "its answer has {} bytes, more than the limit of {MAX_ANSWER_BYTES}",
            line.len()
        ));
    }
    let refused = || rejection(line);
    let mut answer = match JsonAllowance::new(MAX_ANSWER_VALUES).parse(line) {
        Ok(answer) => answer,
        Err(JsonRejection::NotJson) => return Err(refused()),
        Err(rejection) => return Err(format!("its answer is too large: {rejection}")),
    };
    let fields = answer.as_object_mut().ok_or_else(refused)?;
    let state = fields.remove("state").unwrap_or(Value::Null);
    match (fields.remove("action"), fields.remove("done")) {
        (Some(Value::String(action)), None) => {
            let input = fields.remove("input").unwrap_or(Value::Null);
            Ok((Wish::Act { action, input }, state))
        }
        (None, Some(value)) => Ok((Wish::Finish(value), state)),
        _ => Err(refused()),
    }
}

/// The verdict of a loop that reached a number of turns or failures.
fn budget(stop: LoopStop, level: &Level) -> JobVerdict {
    let LoopStop { kind, limit, what } = stop;
    JobVerdict {
        kind,
        layer: LoopStop::LAYER,
        source: Source::Call,
        scope: level.path().to_owned(),
        phase: JobPhase::Running,
        limit_ms: None,
        limit: Some(limit.into()),
        elapsed_ms: level.age_ms(),
        sentence: sentences::loop_limit(limit, what),
    }
}
