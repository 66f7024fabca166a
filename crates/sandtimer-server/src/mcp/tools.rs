//! The table of tools. Their order and every byte of it are the same in every answer: clients cache
//! them.

mod inputs;

use std::sync::Arc;

use rmcp::model::{Tool as Described, ToolAnnotations};
use serde_json::{Map, Value, json};

use sandtimer::vocabulary;

use super::call::ToolCall;
use super::render::ToolAnswer;
use super::{aliases, read, start, steer, tasks};
use crate::body::RequestFields;
use crate::error::{ApiRejection, Code};
use crate::settings::ToolNames;
use inputs::ToolArgument;

/// The effect of a tool, for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    /// Changes nothing.
    Reads,
    /// Runs what it is given.
    Runs,
    /// Changes a run.
    Steers,
    /// Ends something.
    Ends,
}

/// What is done for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Bash,
    RunCode,
    ReadOutput,
    Wait,
    Kill,
    Extend,
    Pause,
    Resume,
    WriteStdin,
    ListRuns,
    TimeLeft,
    EstimateDuration,
    ReportProgress,
    BeginTask,
    EndTask,
    AliasBash,
    AliasBashOutput,
    AliasReadBashOutput,
    AliasKillShell,
    AliasEstimate,
}

/// One tool.
#[derive(Debug)]
pub(super) struct Tool {
    name: &'static str,
    description: &'static str,
    nature: Nature,
    action: Action,
    inputs: &'static [ToolArgument],
}

/// Does what is asked for.
pub(super) async fn act(
    tool: &Tool,
    call: &ToolCall,
    fields: RequestFields,
) -> Result<ToolAnswer, ApiRejection> {
    match tool.action {
        Action::Bash => start::bash(call, fields).await,
        Action::RunCode => start::run_code(call, fields).await,
        Action::ReadOutput => read::output(call, fields).await,
        Action::Wait => read::wait(call, fields).await,
        Action::Kill => steer::kill(call, fields).await,
        Action::Extend => steer::extend(call, fields),
        Action::Pause => steer::pause(call, fields, true),
        Action::Resume => steer::pause(call, fields, false),
        Action::WriteStdin => steer::write_stdin(call, fields).await,
        Action::ListRuns => read::list(call, fields),
        Action::TimeLeft => read::time_left(call, fields),
        Action::EstimateDuration => tasks::estimate(call, fields),
        Action::AliasEstimate => tasks::register(call, fields),
        Action::ReportProgress => tasks::report(call, fields),
        Action::BeginTask => tasks::begin(call, fields),
        Action::EndTask => tasks::end(call, fields),
        Action::AliasBash => aliases::bash(call, fields).await,
        Action::AliasBashOutput => aliases::output(call, fields, "bash_id").await,
        Action::AliasReadBashOutput => aliases::output(call, fields, "shell_id").await,
        Action::AliasKillShell => aliases::kill(call, fields).await,
    }
}

/// The sentence of a description about the network, and its replacement on a connection that has
/// one.
const NO_NETWORK: &str = "No network, but each call has a loopback of its own.";
const NETWORK: &str = "It has the host's network.";

const TOOLS: &[Tool] = &[
    Tool {
        name: "bash",
        description: "Run a shell command with bash in a sandbox. Each call is a new shell in /workspace, whose files are kept; \
            files in /tmp and HOME are kept as long as the connection; cd and variables are not kept, so pass cwd and env. No \
            network, but each call has a loopback of its own. Waits up to wait_ms for the end; a command that takes longer continues in the background, and the answer is STILL RUNNING with its run_id and cursor. Standard output and error are one stream.",
        nature: Nature::Runs,
        action: Action::Bash,
        inputs: inputs::BASH,
    },
    Tool {
        name: "run_code",
        description: "Run code in a live interpreter: python, javascript, typescript or bash. Variables, imports and functions \
            stay for the next call; a timeout brings back what was there before it. Answers the last expression's value, what was \
            displayed, and output.",
        nature: Nature::Runs,
        action: Action::RunCode,
        inputs: inputs::RUN_CODE,
    },
    Tool {
        name: "read_output",
        description: "Read the output of a run from a cursor on, while it is running and after its end. With wait_ms it waits for new \
            output, for the end (until: exit) or for a line that matches the filter (until: match).",
        nature: Nature::Reads,
        action: Action::ReadOutput,
        inputs: inputs::READ_OUTPUT,
    },
    Tool {
        name: "wait",
        description: "Wait until one or all of several runs have ended, up to wait_ms. Never ends a run.",
        nature: Nature::Reads,
        action: Action::Wait,
        inputs: inputs::WAIT_TOOL,
    },
    Tool {
        name: "kill",
        description: "End a run and everything it started, and confirm that nothing of it is left; its output stays readable. \
            With signal it only sends that signal.",
        nature: Nature::Ends,
        action: Action::Kill,
        inputs: inputs::KILL,
    },
    Tool {
        name: "extend",
        description: "Give a running run more time before its wall-clock limit ends it. Refused once the limit has fired; outer limits still bound it, and the answer names the one that does.",
        nature: Nature::Steers,
        action: Action::Extend,
        inputs: inputs::EXTEND,
    },
    Tool {
        name: "pause",
        description: "Stop the processes of a run and its own clocks until resume.",
        nature: Nature::Steers,
        action: Action::Pause,
        inputs: inputs::ONE_RUN,
    },
    Tool {
        name: "resume",
        description: "Resume a paused run; its wall-clock limit moves by the length of the pause.",
        nature: Nature::Steers,
        action: Action::Resume,
        inputs: inputs::ONE_RUN,
    },
    Tool {
        name: "write_stdin",
        description: "Write to the standard input of a run that was started with stdin_open, and answer what it has written \
            since.",
        nature: Nature::Steers,
        action: Action::WriteStdin,
        inputs: inputs::WRITE_STDIN,
    },
    Tool {
        name: "list_runs",
        description: "List your runs, also those of earlier conversations: which are running, for how long, and when a limit ends them; for runs without recent output also what they wait for, with the stacks of Python.",
        nature: Nature::Reads,
        action: Action::ListRuns,
        inputs: inputs::LIST_RUNS,
    },
    Tool {
        name: "time_left",
        description: "Show the limits of one run, or of all that are running: how much is used, what is left, and who set each. The one that ends it first comes first.",
        nature: Nature::Reads,
        action: Action::TimeLeft,
        inputs: inputs::TIME_LEFT,
    },
    Tool {
        name: "estimate_duration",
        description: "Say how long a task or a command is likely to take, from earlier runs or from a table: best, typical and worst \
            case, what they rest on, whether it fits the budget, and a limit that ends next to no healthy run. Ends nothing.",
        nature: Nature::Reads,
        action: Action::EstimateDuration,
        inputs: inputs::ESTIMATE,
    },
    Tool {
        name: "report_progress",
        description: "Say how far a run or a task is; answers when it should be done, and how likely that is before its limit.",
        nature: Nature::Steers,
        action: Action::ReportProgress,
        inputs: inputs::REPORT_PROGRESS,
    },
    Tool {
        name: "begin_task",
        description: "Begin a named task; several may be open at a time. Answers and time_left compare it with its estimate and its maximum time; it ends nothing.",
        nature: Nature::Steers,
        action: Action::BeginTask,
        inputs: inputs::BEGIN_TASK,
    },
    Tool {
        name: "end_task",
        description: "End a named piece of work: the one of this label, or the one begun last.",
        nature: Nature::Steers,
        action: Action::EndTask,
        inputs: inputs::END_TASK,
    },
    Tool {
        name: "Bash",
        description: "Another name of bash: runs a command; with run_in_background it answers at once with the id that BashOutput takes as bash_id \
            and KillShell as shell_id. timeout is in milliseconds and ends the command.",
        nature: Nature::Runs,
        action: Action::AliasBash,
        inputs: inputs::ALIAS_BASH,
    },
    Tool {
        name: "BashOutput",
        description: "Another name of read_output: what a background command has written since the last look, and its status.",
        nature: Nature::Reads,
        action: Action::AliasBashOutput,
        inputs: inputs::ALIAS_BASH_OUTPUT,
    },
    Tool {
        name: "ReadBashOutput",
        description: "Another name of BashOutput, which calls the command's id shell_id.",
        nature: Nature::Reads,
        action: Action::AliasReadBashOutput,
        inputs: inputs::ALIAS_SHELL,
    },
    Tool {
        name: "KillShell",
        description: "Another name of kill: ends a background command and everything it started.",
        nature: Nature::Ends,
        action: Action::AliasKillShell,
        inputs: inputs::ALIAS_SHELL,
    },
    Tool {
        name: "EstimateTaskDuration",
        description: "Estimate a task before it is started: the next command in the background is then this task, from its start to \
            its end, and answers say when it takes longer than expected.",
        nature: Nature::Steers,
        action: Action::AliasEstimate,
        inputs: inputs::ALIAS_ESTIMATE,
    },
];

/// The table, with the tools that estimate or without them.
fn shown(estimates: bool) -> impl Iterator<Item = &'static Tool> {
    TOOLS.iter().filter(move |tool| estimates || !tool.estimates())
}

pub(super) fn find(name: &str, estimates: bool) -> Option<&'static Tool> {
    shown(estimates).find(|tool| tool.name == name)
}

pub(super) fn names(estimates: bool) -> impl Iterator<Item = &'static str> {
    shown(estimates).map(|tool| tool.name)
}

/// All shown tools, as the protocol lists them. Tools that a choice of names leaves out can still
/// be called.
pub(super) fn listed(estimates: bool, names: ToolNames, network: bool) -> Vec<Described> {
    let is_listed = |tool: &&Tool| match names {
        ToolNames::Both => true,
        ToolNames::Ours => !tool.is_alias(),
        ToolNames::Trained => !tool.has_alias(),
    };
    shown(estimates).filter(is_listed).map(|tool| tool.described(network)).collect()
}

/// All of them, for `spec/mcp-tools.json`.
pub fn document() -> Value {
    // Plain data with text keys always serialises.
    json!({"tools": serde_json::to_value(listed(true, ToolNames::Both, false)).unwrap_or_default()})
}

impl Tool {
    fn estimates(&self) -> bool {
        matches!(self.action, Action::EstimateDuration | Action::AliasEstimate)
    }

    /// Whether its name is one that agents were trained on, for another tool.
    fn is_alias(&self) -> bool {
        matches!(
            self.action,
            Action::AliasBash
                | Action::AliasBashOutput
                | Action::AliasReadBashOutput
                | Action::AliasKillShell
                | Action::AliasEstimate
        )
    }

    /// Whether there is another tool of such a name for it.
    fn has_alias(&self) -> bool {
        matches!(self.action, Action::Bash | Action::ReadOutput | Action::Kill | Action::EstimateDuration)
    }

    /// As the protocol lists it, to those whose calls have the host's network or not.
    pub fn described(&self, network: bool) -> Described {
        let reads = self.nature == Nature::Reads;
        let annotations = ToolAnnotations::new()
            .read_only(reads)
            .destructive(matches!(self.nature, Nature::Ends | Nature::Runs))
            .idempotent(reads)
            .open_world(network && self.nature == Nature::Runs);
        let description = self.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let description = if network { description.replace(NO_NETWORK, NETWORK) } else { description };
        Described::new(self.name, description, Arc::new(self.schema())).with_annotations(annotations)
    }

    fn schema(&self) -> Map<String, Value> {
        let properties: Map<String, Value> =
            self.inputs.iter().map(|input| (input.name.to_owned(), input.schema())).collect();
        let required: Vec<&str> =
            self.inputs.iter().filter(|input| input.required).map(|input| input.name).collect();
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        if !required.is_empty() {
            schema.insert("required".to_owned(), required.into());
        }
        schema.insert("additionalProperties".to_owned(), false.into());
        schema
    }

    /// Whether a call of it that was given these arguments waits for what it starts.
    pub fn waits(&self, arguments: Option<&Map<String, Value>>) -> bool {
        let is_set = |name: &str| match arguments.and_then(|given| given.get(name)) {
            Some(Value::Bool(is_set)) => *is_set,
            Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
            _ => false,
        };
        self.nature == Nature::Runs && !is_set("background") && !is_set("run_in_background")
    }

    /// The arguments of a call, each with a name that the tool knows.
    pub fn fields(&self, arguments: Map<String, Value>) -> Result<RequestFields, ApiRejection> {
        let arguments = self.with_own_names(arguments);
        let known = || self.inputs.iter().map(|input| input.name);
        if let Some(name) = arguments.keys().find(|name| !known().any(|known| known == *name)) {
            let mut message = format!("{} has no argument `{}`", self.name, shortened(name));
            let (meant, near) = (vocabulary::meant(name, known()), nearest(name, known()));
            match (meant, near) {
                (Some(meant), _) => message += &format!("; it is called `{meant}` here"),
                (None, Some(near)) => message += &format!("; the nearest is `{near}`"),
                (None, None) => message += &format!("; it has {}", known().collect::<Vec<_>>().join(", ")),
            }
            let value = shortened(&arguments[name].to_string());
            return Err(ApiRejection::new(Code::UnknownField, message)
                .with("key", shortened(name))
                .with("value", value)
                .with("nearest", meant.or(near)));
        }
        let missing = self
            .inputs
            .iter()
            .find(|input| input.required && arguments.get(input.name).is_none_or(Value::is_null));
        match missing {
            Some(input) => {
                let message = format!("{}: `{}` is missing: {}", self.name, input.name, input.meaning);
                Err(ApiRejection::new(Code::BadField, message).with("key", input.name))
            }
            None => Ok(RequestFields::new(self.coerced(arguments))),
        }
    }

    /// Arguments in which a command and its id have this tool's names: models take them from other
    /// tools.
    fn with_own_names(&self, mut arguments: Map<String, Value>) -> Map<String, Value> {
        for names in [&aliases::IDS[..], &COMMANDS[..]] {
            let own = self.inputs.iter().find(|input| names.contains(&input.name));
            if let Some(own) = own.filter(|own| !arguments.contains_key(own.name))
                && let Some(value) = names.iter().find_map(|name| arguments.remove(*name))
            {
                arguments.insert(own.name.to_owned(), value);
            }
        }
        arguments
    }

    /// Converts arguments to the types that the tool takes, if they mean the same in another:
    /// models are not strict.
    fn coerced(&self, arguments: Map<String, Value>) -> Map<String, Value> {
        let coerced = |(name, value): (String, Value)| {
            let input = self.inputs.iter().find(|input| input.name == name);
            let value = match input {
                Some(input) => input.coerced(value),
                None => value,
            };
            (name, value)
        };
        arguments.into_iter().map(coerced).collect()
    }
}

/// What tools call the command that they execute.
const COMMANDS: [&str; 2] = ["command", "cmd"];

pub(super) fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Longer names are compared with none: that takes memory and time by their length.
const MAX_COMPARED_BYTES: usize = 64;

/// The name that was meant, perhaps.
pub(super) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_COMPARED_BYTES {
        return None;
    }
    let name = name.to_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&name, &known.to_lowercase());
    let found = names.map(|known| (distance(known), known)).min_by_key(|(distance, _)| *distance);
    found.filter(|(distance, known)| *distance <= known.len().max(3) / 3).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_recognised() {
        assert_eq!(nearest("read_ouput", names(true)), Some("read_output"));
        assert_eq!(nearest("BASHOUTPUT", names(true)), Some("BashOutput"));
        assert_eq!(nearest("deploy_rocket", names(true)), None);
        // Of two that are as near, the one that is too long is compared with none.
        let known = "x".repeat(MAX_COMPARED_BYTES);
        let near = |length: usize| nearest(&"x".repeat(length), [&*known].into_iter()).is_some();
        assert_eq!((near(MAX_COMPARED_BYTES), near(MAX_COMPARED_BYTES + 1)), (true, false));
    }

    #[test]
    fn unknown_and_missing_arguments_are_named() {
        let fields = |given: Value| {
            let Value::Object(given) = given else { panic!("an object") };
            find("bash", true).expect("there").fields(given).map(drop)
        };
        let refused = fields(json!({"command": "true", "timout_ms": 5})).expect_err("unknown");
        assert_eq!(
            (refused.details["nearest"].as_str(), refused.details["value"].as_str()),
            (Some("timeout_ms"), Some("5"))
        );
        let refused = fields(json!({"command": null})).expect_err("missing");
        assert_eq!(refused.details["key"], "command");
        assert!(fields(json!({"command": "true", "timeout_ms": null})).is_ok());
        assert!(fields(json!({"cmd": "true"})).is_ok());
        assert!(fields(json!({"command": "true", "cmd": "false"})).is_err());
    }

    #[test]
    fn arguments_of_equivalent_types_are_accepted() {
        let taken = |given: Value| {
            let Value::Object(given) = given else { panic!("an object") };
            find("bash", true).expect("there").fields(given).expect("valid")
        };
        let mut fields = taken(json!({
            "command": "true", "background": "true", "wait_ms": "500", "timeout_ms": 5.0, "env": {"A": 1, "B": true, "C": "x"}
        }));
        assert_eq!(fields.boolean("background").expect("true"), Some(true));
        assert_eq!(fields.number("wait_ms").expect("a number"), Some(500));
        assert_eq!(fields.number("timeout_ms").expect("a number"), Some(5));
        assert_eq!(fields.value("env"), Some(json!({"A": "1", "B": "true", "C": "x"})));
        // Other values are left as they are, to be refused with the value.
        let mut fields = taken(json!({"command": "true", "background": "maybe", "wait_ms": "soon"}));
        assert!(fields.boolean("background").is_err() && fields.number("wait_ms").is_err());
    }

    #[test]
    fn names_of_other_tools_are_known() {
        for (tool, argument, ours) in [
            ("bash", "commandline", "command"),
            ("bash", "timeout", "timeout_ms"),
            ("kill", "shell_id", "run_id"),
            ("run_code", "source", "code"),
        ] {
            let given = Map::from_iter([(argument.to_owned(), json!("x"))]);
            let refused = find(tool, true).expect("there").fields(given).map(drop).expect_err("unknown");
            assert_eq!(refused.details["nearest"], ours, "{}", refused.message);
        }
    }

    #[test]
    fn choices_of_names_list_each_tool_once() {
        let names = |choice| -> Vec<String> {
            listed(true, choice, false).into_iter().map(|tool| tool.name.into_owned()).collect()
        };
        let (ours, trained, both) =
            (names(ToolNames::Ours), names(ToolNames::Trained), names(ToolNames::Both));
        assert!(ours.contains(&"bash".to_owned()) && !ours.contains(&"Bash".to_owned()));
        assert!(trained.contains(&"Bash".to_owned()) && !trained.contains(&"bash".to_owned()));
        assert!(trained.contains(&"run_code".to_owned()) && both.len() == TOOLS.len());
        let bytes = |choice| json!(listed(true, choice, false)).to_string().len();
        assert!(
            bytes(ToolNames::Ours) < bytes(ToolNames::Both)
                && bytes(ToolNames::Trained) < bytes(ToolNames::Both)
        );
    }

    #[test]
    fn table_is_stable_and_describes_each_tool() {
        assert_eq!(document().to_string(), document().to_string());
        for tool in listed(true, ToolNames::Both, false) {
            let description = tool.description.expect("described");
            assert!(description.len() > 20 && !description.contains("  "), "{}", tool.name);
        }
    }
}
