//! The inputs of each tool, for the schemas that clients read and for errors about unknown or
//! missing fields.

use sandtimer_agents::estimate::MAX_MEGABYTES;
use serde_json::{Value, json};

use crate::language::LANGUAGES;

/// One argument of a tool.
#[derive(Debug)]
pub(super) struct ToolArgument {
    pub name: &'static str,
    pub required: bool,
    kind: ArgumentKind,
    pub meaning: &'static str,
}

#[derive(Debug)]
enum ArgumentKind {
    String,
    Boolean,
    /// A whole number up to this.
    Number(Option<u64>),
    /// Any number from 0 on, up to this.
    Amount(Option<f64>),
    /// An object of texts.
    Variables,
    Strings,
    Enumeration(&'static [&'static str]),
    Language,
}

impl ToolArgument {
    const fn new(name: &'static str, kind: ArgumentKind, meaning: &'static str) -> Self {
        ToolArgument { name, required: false, kind, meaning }
    }

    const fn required(name: &'static str, kind: ArgumentKind, meaning: &'static str) -> Self {
        ToolArgument { name, required: true, kind, meaning }
    }

    /// Converts a value to the type that the input takes, if it means the same in another type;
    /// else returns it unchanged.
    pub fn coerced(&self, value: Value) -> Value {
        match (&self.kind, value) {
            (ArgumentKind::Boolean, Value::String(text)) if text.eq_ignore_ascii_case("true") => true.into(),
            (ArgumentKind::Boolean, Value::String(text)) if text.eq_ignore_ascii_case("false") => {
                false.into()
            }
            (ArgumentKind::Number(_), Value::String(text)) => {
                text.trim().parse::<u64>().map_or_else(|_| text.clone().into(), Value::from)
            }
            (ArgumentKind::Number(_), Value::Number(number)) => {
                whole(&number).map_or(Value::Number(number), Value::from)
            }
            (ArgumentKind::Amount(_), Value::String(text)) => match text.trim().parse::<f64>() {
                Ok(amount) if amount.is_finite() => amount.into(),
                _ => text.into(),
            },
            (ArgumentKind::String, Value::Number(number)) => number.to_string().into(),
            (ArgumentKind::Variables, Value::Object(variables)) => {
                let text = |(name, value): (String, Value)| match value {
                    Value::Number(_) | Value::Bool(_) => (name, value.to_string().into()),
                    other => (name, other),
                };
                Value::Object(variables.into_iter().map(text).collect())
            }
            (ArgumentKind::Strings, Value::String(text)) => vec![text].into(),
            (_, value) => value,
        }
    }

    pub fn schema(&self) -> Value {
        let mut schema = match &self.kind {
            ArgumentKind::String => json!({"type": "string"}),
            ArgumentKind::Boolean => json!({"type": "boolean"}),
            ArgumentKind::Number(None) => json!({"type": "integer", "minimum": 0}),
            ArgumentKind::Number(Some(most)) => json!({"type": "integer", "minimum": 0, "maximum": most}),
            ArgumentKind::Amount(None) => json!({"type": "number", "minimum": 0}),
            ArgumentKind::Amount(Some(most)) => json!({"type": "number", "minimum": 0, "maximum": most}),
            ArgumentKind::Variables => json!({"type": "object", "additionalProperties": {"type": "string"}}),
            ArgumentKind::Strings => json!({"type": "array", "items": {"type": "string"}}),
            ArgumentKind::Enumeration(choices) => json!({"type": "string", "enum": choices}),
            ArgumentKind::Language => json!({"type": "string", "enum": LANGUAGES}),
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

const DETAILS: ToolArgument = ToolArgument::new(
    "details",
    ArgumentKind::Boolean,
    "Answer everything that is known in the structured content: use, isolation, limits, all of the verdict.",
);
const RUN_ID: ToolArgument = ToolArgument::required(
    "run_id",
    ArgumentKind::String,
    "The run, as bash, run_code or list_runs name it.",
);
const WAIT: ToolArgument = ToolArgument::new(
    "wait_ms",
    ArgumentKind::Number(Some(45_000)),
    "How long this call waits, 30000 unless given, at most 45000. Then the run continues.",
);
const TIMEOUT: ToolArgument = ToolArgument::new(
    "timeout_ms",
    ArgumentKind::Number(None),
    "Wall-clock limit: when the run is ended, with everything that it started. 0 means no limit.",
);
const WALL: ToolArgument =
    ToolArgument::new("wall_ms", ArgumentKind::Number(None), "The same as timeout_ms; give one of them.");
const STALL: ToolArgument = ToolArgument::new(
    "stall_ms",
    ArgumentKind::Number(None),
    "Ends the run when it neither writes output nor uses the processor for this long. 0 means no limit.",
);
const CPU: ToolArgument = ToolArgument::new(
    "cpu_ms",
    ArgumentKind::Number(None),
    "Processor time of all its processes. 0 is none.",
);
const GRACE: ToolArgument = ToolArgument::new(
    "grace_ms",
    ArgumentKind::Number(None),
    "Time between SIGTERM and the kill; 0 unless given.",
);
const BACKGROUND: ToolArgument = ToolArgument::new(
    "background",
    ArgumentKind::Boolean,
    "Answer at once. Its limits hold all the same, and cancelling this call does not end it.",
);

const WARN: ToolArgument = ToolArgument::new(
    "warn_ms",
    ArgumentKind::Number(None),
    "How long before its wall-clock limit, and its cpu limit, the run is warned: by warn_signal, and a command by a line of JSON on the descriptor that SANDTIMER_NOTICE_FD names. A tenth of its wall-clock limit unless given, at most 30000.",
);
const WARN_SIGNAL: ToolArgument = ToolArgument::new(
    "warn_signal",
    ArgumentKind::String,
    "A signal, such as SIGUSR1, for those of its processes that handle it: to save what is done by then.",
);

pub(super) const BASH: &[ToolArgument] = &[
    ToolArgument::required("command", ArgumentKind::String, "What bash is to run."),
    ToolArgument::new("description", ArgumentKind::String, "What it is for, in a few words."),
    ToolArgument::new("cwd", ArgumentKind::String, "Where it starts; /workspace unless given."),
    ToolArgument::new("env", ArgumentKind::Variables, "Variables that are added."),
    ToolArgument::new("stdin", ArgumentKind::String, "What it reads; nothing unless given."),
    ToolArgument::new("stdin_open", ArgumentKind::Boolean, "Leave its standard input open for write_stdin."),
    BACKGROUND,
    WAIT,
    TIMEOUT,
    WALL,
    STALL,
    CPU,
    GRACE,
    WARN,
    WARN_SIGNAL,
    ToolArgument::new("task_type", ArgumentKind::String, "What kind of work it is, for estimates."),
    DETAILS,
    ToolArgument::new(
        "idempotency_key",
        ArgumentKind::String,
        "A call that is made again with the same key finds the run of the first one.",
    ),
];

pub(super) const RUN_CODE: &[ToolArgument] = &[
    ToolArgument::required("language", ArgumentKind::Language, "The language."),
    ToolArgument::required("code", ArgumentKind::String, "What is to be run."),
    ToolArgument::new(
        "context_id",
        ArgumentKind::String,
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

pub(super) const READ_OUTPUT: &[ToolArgument] = &[
    RUN_ID,
    ToolArgument::new("cursor", ArgumentKind::Number(None), "Where to begin; the beginning unless given."),
    ToolArgument::new(
        "max_bytes",
        ArgumentKind::Number(Some(200_000)),
        "How much at most, 18000 unless given; beginning and end of what is more.",
    ),
    ToolArgument::new("tail", ArgumentKind::Number(None), "Only this many of the last lines."),
    ToolArgument::new("filter", ArgumentKind::String, "Only lines that match this regular expression."),
    ToolArgument::new(
        "stream",
        ArgumentKind::Enumeration(&["stdout", "stderr"]),
        "stdout unless given. Only code in interpreters has a stderr of its own.",
    ),
    ToolArgument::new("wait_ms", ArgumentKind::Number(Some(45_000)), "How long to wait; 0 unless given."),
    ToolArgument::new(
        "until",
        ArgumentKind::Enumeration(&["new", "exit", "match"]),
        "What to wait for: new output, which is meant unless given, the end, or a line that matches filter.",
    ),
];

pub(super) const WAIT_TOOL: &[ToolArgument] = &[
    ToolArgument::required("run_ids", ArgumentKind::Strings, "The runs."),
    ToolArgument::new(
        "mode",
        ArgumentKind::Enumeration(&["any", "all"]),
        "Until any or all of them have ended; all unless given.",
    ),
    WAIT,
];
pub(super) const KILL: &[ToolArgument] = &[
    RUN_ID,
    ToolArgument::new("signal", ArgumentKind::String, "Only send this signal, such as SIGINT."),
    ToolArgument::new(
        "grace_ms",
        ArgumentKind::Number(Some(40_000)),
        "Send SIGTERM first, and kill so much later what is left.",
    ),
    ToolArgument::new("reason", ArgumentKind::String, "Why, for the run's verdict."),
];

pub(super) const EXTEND: &[ToolArgument] = &[
    RUN_ID,
    ToolArgument::new("by_ms", ArgumentKind::Number(None), "The time to add to its wall-clock limit."),
    ToolArgument::new(
        "until",
        ArgumentKind::Number(None),
        "The new time of its wall-clock limit: milliseconds since 1970, as in kills_at_ms.",
    ),
    ToolArgument::new(
        "unlimited",
        ArgumentKind::Boolean,
        "Removes its own wall-clock limit: it moves by thirty years.",
    ),
    ToolArgument::new(
        "kind",
        ArgumentKind::Enumeration(&["wall"]),
        "Which limit; only the wall-clock limit can be moved.",
    ),
    ToolArgument::new("reason", ArgumentKind::String, "Why."),
];

pub(super) const ONE_RUN: &[ToolArgument] = &[RUN_ID];

pub(super) const WRITE_STDIN: &[ToolArgument] = &[
    RUN_ID,
    ToolArgument::new("data", ArgumentKind::String, "What to write. A line ends with a newline."),
    ToolArgument::new("eof", ArgumentKind::Boolean, "Close its standard input afterwards."),
    ToolArgument::new(
        "cursor",
        ArgumentKind::Number(None),
        "Where to read its output from; from now on unless given.",
    ),
    ToolArgument::new(
        "wait_ms",
        ArgumentKind::Number(Some(45_000)),
        "How long to wait for output after it; 1000 unless given.",
    ),
];

pub(super) const LIST_RUNS: &[ToolArgument] = &[
    ToolArgument::new(
        "status",
        ArgumentKind::Enumeration(&["queued", "running", "ended"]),
        "Only these; those that are not over unless given.",
    ),
    ToolArgument::new(
        "limit",
        ArgumentKind::Number(Some(200)),
        "How many, the newest first; 20 unless given.",
    ),
];

pub(super) const TIME_LEFT: &[ToolArgument] =
    &[ToolArgument::new("run_id", ArgumentKind::String, "The run; all that are running unless given.")];

const TASK_TYPE: ToolArgument = ToolArgument::new(
    "task_type",
    ArgumentKind::String,
    "What kind of work it is, such as load_data, train_complex_model, feature_engineering; the nearest are named for others.",
);
const SIZE: ToolArgument = ToolArgument::new(
    "data_size_mb",
    ArgumentKind::Amount(Some(MAX_MEGABYTES)),
    "How much data, in megabytes.",
);
const COMPLEXITY: ToolArgument = ToolArgument::new(
    "complexity",
    ArgumentKind::Enumeration(&["simple", "moderate", "complex"]),
    "moderate unless given.",
);

pub(super) const ESTIMATE: &[ToolArgument] = &[
    TASK_TYPE,
    ToolArgument::new("command", ArgumentKind::String, "The command; with or instead of the type."),
    SIZE,
    COMPLEXITY,
    ToolArgument::new("context", ArgumentKind::String, "What distinguishes it from others of its type."),
    ToolArgument::new(
        "budget_ms",
        ArgumentKind::Number(None),
        "What it is to fit; what is left of this connection's budget unless given.",
    ),
];

pub(super) const ALIAS_ESTIMATE: &[ToolArgument] = &[
    ToolArgument { required: true, ..TASK_TYPE },
    SIZE,
    COMPLEXITY,
    ToolArgument::new(
        "additional_context",
        ArgumentKind::String,
        "What distinguishes it from others of its type.",
    ),
];

pub(super) const REPORT_PROGRESS: &[ToolArgument] = &[
    ToolArgument::new("run_id", ArgumentKind::String, "The run that it is about."),
    ToolArgument::new("task", ArgumentKind::String, "The task that it is about, by its label."),
    ToolArgument::required("done", ArgumentKind::Amount(None), "How much is done."),
    ToolArgument::new("total", ArgumentKind::Amount(None), "How much there is to do."),
    ToolArgument::new("message", ArgumentKind::String, "What is being done, in a few words."),
];

pub(super) const BEGIN_TASK: &[ToolArgument] = &[
    ToolArgument::required("label", ArgumentKind::String, "Its name."),
    ToolArgument::new("estimated_ms", ArgumentKind::Number(None), "How long it typically takes."),
    ToolArgument::new(
        "max_ms",
        ArgumentKind::Number(None),
        "The longest it should take; beyond it answers say TIMEOUT.",
    ),
];

pub(super) const END_TASK: &[ToolArgument] =
    &[ToolArgument::new("label", ArgumentKind::String, "Its name; the one begun last unless given.")];

pub(super) const ALIAS_BASH: &[ToolArgument] = &[
    ToolArgument::required("command", ArgumentKind::String, "What bash is to run."),
    ToolArgument::new("description", ArgumentKind::String, "What it is for, in a few words."),
    ToolArgument::new("background", ArgumentKind::Boolean, "Answer at once."),
    ToolArgument::new("run_in_background", ArgumentKind::Boolean, "The same as background."),
    ToolArgument::new(
        "timeout",
        ArgumentKind::Number(None),
        "Milliseconds until the command is ended; no limit unless given.",
    ),
];

pub(super) const ALIAS_BASH_OUTPUT: &[ToolArgument] = &[
    ToolArgument::required("bash_id", ArgumentKind::String, "The command, as Bash named it."),
    ToolArgument::new("filter", ArgumentKind::String, "Only lines that match this regular expression."),
];

pub(super) const ALIAS_SHELL: &[ToolArgument] =
    &[ToolArgument::required("shell_id", ArgumentKind::String, "The command, as Bash named it.")];
