//! What each tool takes, for the schemas that clients read and for telling what is unknown or missing.

use sandtimer_agents::estimate::MOST_MEGABYTES;
use serde_json::{Value, json};

use crate::contexts::LANGUAGES;

/// One argument of a tool.
#[derive(Debug)]
pub(super) struct Input {
    pub name: &'static str,
    pub required: bool,
    kind: Kind,
    pub meaning: &'static str,
}

#[derive(Debug)]
enum Kind {
    Text,
    Truth,
    /// A whole number up to this.
    Number(Option<u64>),
    /// Any number from 0 on, up to this.
    Amount(Option<f64>),
    /// An object of texts.
    Variables,
    Texts,
    Words(&'static [&'static str]),
    Language,
}

impl Input {
    const fn new(name: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Input { name, required: false, kind, meaning }
    }

    const fn required(name: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Input { name, required: true, kind, meaning }
    }

    /// A value of the type that it takes, where the one given says the same in another type; else that one.
    pub fn coerced(&self, value: Value) -> Value {
        match (&self.kind, value) {
            (Kind::Truth, Value::String(text)) if text.eq_ignore_ascii_case("true") => true.into(),
            (Kind::Truth, Value::String(text)) if text.eq_ignore_ascii_case("false") => false.into(),
            (Kind::Number(_), Value::String(text)) => {
                text.trim().parse::<u64>().map_or_else(|_| text.clone().into(), Value::from)
            }
            (Kind::Number(_), Value::Number(number)) => {
                whole(&number).map_or(Value::Number(number), Value::from)
            }
            (Kind::Amount(_), Value::String(text)) => match text.trim().parse::<f64>() {
                Ok(amount) if amount.is_finite() => amount.into(),
                _ => text.into(),
            },
            (Kind::Text, Value::Number(number)) => number.to_string().into(),
            (Kind::Variables, Value::Object(variables)) => {
                let text = |(name, value): (String, Value)| match value {
                    Value::Number(_) | Value::Bool(_) => (name, value.to_string().into()),
                    other => (name, other),
                };
                Value::Object(variables.into_iter().map(text).collect())
            }
            (Kind::Texts, Value::String(text)) => vec![text].into(),
            (_, value) => value,
        }
    }

    pub fn schema(&self) -> Value {
        let mut schema = match &self.kind {
            Kind::Text => json!({"type": "string"}),
            Kind::Truth => json!({"type": "boolean"}),
            Kind::Number(None) => json!({"type": "integer", "minimum": 0}),
            Kind::Number(Some(most)) => json!({"type": "integer", "minimum": 0, "maximum": most}),
            Kind::Amount(None) => json!({"type": "number", "minimum": 0}),
            Kind::Amount(Some(most)) => json!({"type": "number", "minimum": 0, "maximum": most}),
            Kind::Variables => json!({"type": "object", "additionalProperties": {"type": "string"}}),
            Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Kind::Words(words) => json!({"type": "string", "enum": words}),
            Kind::Language => json!({"type": "string", "enum": LANGUAGES}),
        };
        schema["description"] = self.meaning.into();
        schema
    }
}

/// A number without a fraction that is written as one with.
fn whole(number: &serde_json::Number) -> Option<u64> {
    let number = number.as_f64().filter(|_| number.is_f64())?;
    // Every whole number up to this is exact.
    let is_whole = number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number);
    is_whole.then_some(number as u64)
}

const DETAILS: Input = Input::new(
    "details",
    Kind::Truth,
    "Answer everything that is known in the structured content: use, isolation, limits, all of the verdict.",
);
const RUN_ID: Input =
    Input::required("run_id", Kind::Text, "The run, as bash, run_code or list_runs name it.");
const WAIT: Input = Input::new(
    "wait_ms",
    Kind::Number(Some(45_000)),
    "How long this call waits, 30000 unless given, at most 45000. Then the run continues.",
);
const TIMEOUT: Input = Input::new(
    "timeout_ms",
    Kind::Number(None),
    "Wall-clock limit: when the run is ended, with everything that it started. 0 means no limit.",
);
const WALL: Input = Input::new("wall_ms", Kind::Number(None), "The same as timeout_ms; give one of them.");
const STALL: Input = Input::new(
    "stall_ms",
    Kind::Number(None),
    "Ends the run when it neither writes output nor uses the processor for this long. 0 means no limit.",
);
const CPU: Input =
    Input::new("cpu_ms", Kind::Number(None), "Processor time of all its processes. 0 is none.");
const GRACE: Input =
    Input::new("grace_ms", Kind::Number(None), "Time between SIGTERM and the kill; 0 unless given.");
const BACKGROUND: Input = Input::new(
    "background",
    Kind::Truth,
    "Answer at once. Its limits hold all the same, and cancelling this call does not end it.",
);

const WARN: Input = Input::new(
    "warn_ms",
    Kind::Number(None),
    "How long before its wall-clock limit, and its cpu limit, the run is warned: by warn_signal, and a command by a line of JSON on the descriptor that SANDTIMER_NOTICE_FD names. A tenth of its wall-clock limit unless given, at most 30000.",
);
const WARN_SIGNAL: Input = Input::new(
    "warn_signal",
    Kind::Text,
    "A signal, such as SIGUSR1, for those of its processes that handle it: to save what is done by then.",
);

pub(super) const BASH: &[Input] = &[
    Input::required("command", Kind::Text, "What bash is to run."),
    Input::new("description", Kind::Text, "What it is for, in a few words."),
    Input::new("cwd", Kind::Text, "Where it starts; /workspace unless given."),
    Input::new("env", Kind::Variables, "Variables that are added."),
    Input::new("stdin", Kind::Text, "What it reads; nothing unless given."),
    Input::new("stdin_open", Kind::Truth, "Leave its standard input open for write_stdin."),
    BACKGROUND,
    WAIT,
    TIMEOUT,
    WALL,
    STALL,
    CPU,
    GRACE,
    WARN,
    WARN_SIGNAL,
    Input::new("task_type", Kind::Text, "What kind of work it is, for estimates."),
    DETAILS,
    Input::new(
        "idempotency_key",
        Kind::Text,
        "A call that is made again with the same key finds the run of the first one.",
    ),
];

pub(super) const RUN_CODE: &[Input] = &[
    Input::required("language", Kind::Language, "The language."),
    Input::required("code", Kind::Text, "What is to be run."),
    Input::new(
        "context_id",
        Kind::Text,
        "The interpreter: one that an answer named, or `new`. Unless given, this conversation's own of that language.",
    ),
    BACKGROUND,
    WAIT,
    TIMEOUT,
    WALL,
    STALL,
    CPU,
    GRACE,
    WARN,
    WARN_SIGNAL,
    DETAILS,
];

pub(super) const READ_OUTPUT: &[Input] = &[
    RUN_ID,
    Input::new("cursor", Kind::Number(None), "Where to begin; the beginning unless given."),
    Input::new(
        "max_bytes",
        Kind::Number(Some(200_000)),
        "How much at most, 18000 unless given; beginning and end of what is more.",
    ),
    Input::new("tail", Kind::Number(None), "Only this many of the last lines."),
    Input::new("filter", Kind::Text, "Only lines that match this regular expression."),
    Input::new(
        "stream",
        Kind::Words(&["stdout", "stderr"]),
        "stdout unless given. Only code in interpreters has a stderr of its own.",
    ),
    Input::new("wait_ms", Kind::Number(Some(45_000)), "How long to wait; 0 unless given."),
    Input::new(
        "until",
        Kind::Words(&["new", "exit", "match"]),
        "What to wait for: new output, which is meant unless given, the end, or a line that matches filter.",
    ),
];

pub(super) const WAIT_TOOL: &[Input] = &[
    Input::required("run_ids", Kind::Texts, "The runs."),
    Input::new(
        "mode",
        Kind::Words(&["any", "all"]),
        "Until any or all of them have ended; all unless given.",
    ),
    WAIT,
];
pub(super) const KILL: &[Input] = &[
    RUN_ID,
    Input::new("signal", Kind::Text, "Only send this signal, such as SIGINT."),
    Input::new(
        "grace_ms",
        Kind::Number(Some(40_000)),
        "Send SIGTERM first, and kill so much later what is left.",
    ),
    Input::new("reason", Kind::Text, "Why, for the run's verdict."),
];

pub(super) const EXTEND: &[Input] = &[
    RUN_ID,
    Input::new("by_ms", Kind::Number(None), "The time to add to its wall-clock limit."),
    Input::new(
        "until",
        Kind::Number(None),
        "The new time of its wall-clock limit: milliseconds since 1970, as in kills_at_ms.",
    ),
    Input::new("unlimited", Kind::Truth, "Removes its own wall-clock limit: it moves by thirty years."),
    Input::new("kind", Kind::Words(&["wall"]), "Which limit; only the wall-clock limit can be moved."),
    Input::new("reason", Kind::Text, "Why."),
];

pub(super) const ONE_RUN: &[Input] = &[RUN_ID];

pub(super) const WRITE_STDIN: &[Input] = &[
    RUN_ID,
    Input::new("data", Kind::Text, "What to write. A line ends with a newline."),
    Input::new("eof", Kind::Truth, "Close its standard input afterwards."),
    Input::new("cursor", Kind::Number(None), "Where to read its output from; from now on unless given."),
    Input::new(
        "wait_ms",
        Kind::Number(Some(45_000)),
        "How long to wait for output after it; 1000 unless given.",
    ),
];

pub(super) const LIST_RUNS: &[Input] = &[
    Input::new(
        "status",
        Kind::Words(&["queued", "running", "ended"]),
        "Only these; those that are not over unless given.",
    ),
    Input::new("limit", Kind::Number(Some(200)), "How many, the newest first; 20 unless given."),
];

pub(super) const TIME_LEFT: &[Input] =
    &[Input::new("run_id", Kind::Text, "The run; all that are running unless given.")];

const TASK_TYPE: Input = Input::new(
    "task_type",
    Kind::Text,
    "What kind of work it is, such as load_data, train_complex_model, feature_engineering; the nearest are named for others.",
);
const SIZE: Input =
    Input::new("data_size_mb", Kind::Amount(Some(MOST_MEGABYTES)), "How much data, in megabytes.");
const COMPLEXITY: Input =
    Input::new("complexity", Kind::Words(&["simple", "moderate", "complex"]), "moderate unless given.");

pub(super) const ESTIMATE: &[Input] = &[
    TASK_TYPE,
    Input::new("command", Kind::Text, "The command; with or instead of the type."),
    SIZE,
    COMPLEXITY,
    Input::new("context", Kind::Text, "What distinguishes it from others of its type."),
    Input::new(
        "budget_ms",
        Kind::Number(None),
        "What it is to fit; what is left of this connection's budget unless given.",
    ),
];

pub(super) const ALIAS_ESTIMATE: &[Input] = &[
    Input { required: true, ..TASK_TYPE },
    SIZE,
    COMPLEXITY,
    Input::new("additional_context", Kind::Text, "What distinguishes it from others of its type."),
];

pub(super) const REPORT_PROGRESS: &[Input] = &[
    Input::new("run_id", Kind::Text, "The run that it is about."),
    Input::new("task", Kind::Text, "The task that it is about, by its label."),
    Input::required("done", Kind::Amount(None), "How much is done."),
    Input::new("total", Kind::Amount(None), "How much there is to do."),
    Input::new("message", Kind::Text, "What is being done, in a few words."),
];

pub(super) const BEGIN_TASK: &[Input] = &[
    Input::required("label", Kind::Text, "Its name."),
    Input::new("estimated_ms", Kind::Number(None), "How long it typically takes."),
    Input::new("max_ms", Kind::Number(None), "The longest it should take; beyond it answers say TIMEOUT."),
];

pub(super) const END_TASK: &[Input] =
    &[Input::new("label", Kind::Text, "Its name; the one begun last unless given.")];

pub(super) const ALIAS_BASH: &[Input] = &[
    Input::required("command", Kind::Text, "What bash is to run."),
    Input::new("description", Kind::Text, "What it is for, in a few words."),
    Input::new("background", Kind::Truth, "Answer at once."),
    Input::new("run_in_background", Kind::Truth, "The same as background."),
    Input::new(
        "timeout",
        Kind::Number(None),
        "Milliseconds until the command is ended; no limit unless given.",
    ),
];

pub(super) const ALIAS_BASH_OUTPUT: &[Input] = &[
    Input::required("bash_id", Kind::Text, "The command, as Bash named it."),
    Input::new("filter", Kind::Text, "Only lines that match this regular expression."),
];

pub(super) const ALIAS_SHELL: &[Input] =
    &[Input::required("shell_id", Kind::Text, "The command, as Bash named it.")];
