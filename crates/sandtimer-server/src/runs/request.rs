//! From the fields of `POST /v1/runs` to a Spec. Everything is checked before anything is started.

mod command;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandtimer::engine::Terminal;
use sandtimer::limits::{Key, Setting};
use sandtimer::model::{
    FileCommand, InterpretedCommand, LimitKind, MAX_ARGUMENT_BYTES, ProgramSource, argument_name, too_long,
    variable_name,
};
use sandtimer::scope::ScopeId;
use sandtimer::supervise::signal_number;
use sandtimer::{Engine, Limits, Run, Spec, Stdin};
use sandtimer_agents::estimate::{Conditions, Question, TaskType};
use serde_json::Value;

pub(crate) use self::command::interpreted;
use self::command::{RequestedCommand, command};
use super::attached_runs;
use super::encoding_error_mode::EncodingErrorMode;
use super::service::RunService;
use crate::auth::OwnerId;
use crate::body::{RequestFields, refused};
use crate::error::{ApiRejection, Code};
use crate::quota::QuotaPermit;
use crate::workspaces::{ScratchWorkspace, TemporaryDirectory};

/// The limits of a run.
pub(crate) const LIMITS: [Key; 9] = [
    Key::Kind(LimitKind::Wall),
    Key::Grace,
    Key::Kind(LimitKind::Cpu),
    Key::Kind(LimitKind::Stall),
    Key::Kind(LimitKind::Memory),
    Key::Kind(LimitKind::Processes),
    Key::Kind(LimitKind::Output),
    Key::Kind(LimitKind::Disk),
    Key::Kind(LimitKind::OpenFiles),
];

/// What execve(2) takes of one text, its NUL included, and of all together: a quarter of the usual
/// stack.
const MAX_ARGUMENTS_BYTES: usize = 2 * 1024 * 1024 - 64 * 1024;
/// The usual type of terminal emulators.
const TERMINAL_KIND: &str = "xterm-256color";
/// Bytes of the command that records and listings show.
const MAX_SHOWN_BYTES: usize = 400;

/// What is to be run, and how the caller waits for it.
#[derive(Debug)]
pub(crate) struct RunRequest {
    command: Vec<String>,
    /// What of it is too long for an argument; read at descriptor 3.
    program: Option<ProgramSource>,
    /// The program in Python that the command executes.
    python: Option<String>,
    /// TypeScript that becomes the command once it is read.
    typescript: Option<String>,
    environment: Vec<(String, String)>,
    /// Where it starts, as a path in it; `None`: in its workspace.
    directory: Option<PathBuf>,
    /// `None`: no stdin. `Some` and `stdin_open`: these bytes, then what is sent later.
    pub stdin: Option<Vec<u8>>,
    pub stdin_open: bool,
    /// Columns and rows of the terminal that it is given.
    pub terminal: Option<(u16, u16)>,
    /// Has the host's network.
    pub network: bool,
    limits: Limits,
    warn: Option<Duration>,
    warn_signal: Option<i32>,
    end_on_output_limit: bool,
    stall_by_progress: bool,
    progress_channel: bool,
    /// `None`: until the run has ended.
    pub wait: Option<Duration>,
    /// Cancelled once no client waits for it any more.
    pub attached: bool,
    pub detach: bool,
    /// The id of what it works in, instead of a workspace of its own.
    pub workspace: Option<String>,
    /// The id of the sandbox that it runs in.
    pub sandbox: Option<String>,
    /// A workspace that is removed with its last user.
    pub scratch: Option<Arc<ScratchWorkspace>>,
    /// What is its /tmp, instead of a private one.
    pub temporary: Option<Arc<TemporaryDirectory>>,
    /// Where a link to its workspace is.
    workspace_link: Option<PathBuf>,
    /// A place under its owner's quota, if it has one already.
    pub quota_permit: Option<QuotaPermit>,
    /// The limits that apply where neither the request nor the operator sets one.
    pub builtin: Limits,
    /// What bounds it from further out.
    pub parent: Option<ScopeId>,
    /// For an agent: one stream for all that it writes.
    joins_streams: bool,
    /// What becomes of output that is not UTF-8 in the answer.
    pub errors: EncodingErrorMode,
    /// What kind of work it is, for estimates.
    task: Option<TaskType>,
}

/// A program of another system's client.
#[derive(Debug)]
pub(crate) struct ProgramRun {
    pub code: InterpretedCommand,
    /// The same as a program in Python, for an interpreter that is warm.
    pub python: Option<String>,
    pub stdin: Option<Vec<u8>>,
    pub network: bool,
    pub limits: Limits,
    /// The limits that apply where neither the request nor the operator sets any.
    pub builtin: Limits,
    pub end_on_output_limit: bool,
    pub scratch: Option<Arc<ScratchWorkspace>>,
    /// The id of a workspace to run in.
    pub workspace: Option<String>,
    /// Where a link to its workspace is.
    pub workspace_link: Option<PathBuf>,
    /// One stream for all that it writes.
    pub joins_streams: bool,
    pub quota_permit: Option<QuotaPermit>,
    /// What bounds it from further out.
    pub parent: Option<ScopeId>,
}

/// How long before a limit an agent's run is warned by default: a tenth of its wall-clock limit, at
/// most this.
const WARN: Duration = Duration::from_secs(30);

/// How long before its limits an agent's run is warned.
pub(crate) fn warn_of(limits: &Limits) -> Duration {
    match limits.get(LimitKind::Wall) {
        Setting::At(nanoseconds) => WARN.min(Duration::from_nanos(nanoseconds) / 10),
        _ => WARN,
    }
}

/// Joins the streams, and becomes the command after it.
const JOIN_COMMAND: [&str; 4] = ["sh", "-c", "exec 2>&1; exec \"$@\"", "sh"];
/// What relative paths of directories begin in.
const WORKSPACE: &str = "/workspace";

/// Whose files runs and interpreters have.
#[derive(Debug)]
pub(crate) enum RunLocation {
    /// The workspace with this id, and their /tmp.
    Workspace(String, Arc<TemporaryDirectory>),
    /// The sandbox with this id.
    Sandbox(String),
}

/// A bash script.
#[derive(Debug)]
pub(crate) struct ScriptRun {
    pub text: String,
    pub environment: Vec<(String, String)>,
    pub location: RunLocation,
    pub limits: Limits,
    pub detach: bool,
}

impl RunRequest {
    pub fn parse(mut fields: RequestFields) -> Result<Self, ApiRejection> {
        let limits = fields.limits(&LIMITS)?;
        let RequestedCommand { command, program, python, typescript } = command(&mut fields)?;
        let (attached, detach) = attached_runs::parse(&mut fields)?;
        let mut request = RunRequest {
            limits,
            command,
            program,
            python,
            typescript,
            environment: environment(&mut fields)?,
            directory: directory(&mut fields)?,
            stdin: fields.bytes("stdin", "stdin_encoding")?,
            stdin_open: fields.boolean("stdin_open")?.unwrap_or(false),
            terminal: fields.value("terminal").map(|size| terminal_size("terminal", size)).transpose()?,
            network: fields.boolean("network")?.unwrap_or(false),
            warn: fields.milliseconds("warn_ms")?,
            warn_signal: warn_signal(&mut fields)?,
            end_on_output_limit: fields.enumeration("on_output_limit", &["drop", "end"])? == Some("end"),
            stall_by_progress: fields.enumeration("stall_by", &["output", "progress"])? == Some("progress"),
            progress_channel: fields.boolean("progress_channel")?.unwrap_or(false),
            wait: fields.milliseconds("wait_ms")?,
            attached,
            detach,
            workspace: fields.string("workspace")?,
            sandbox: None,
            scratch: None,
            temporary: None,
            workspace_link: None,
            quota_permit: None,
            builtin: Limits::new(),
            parent: None,
            joins_streams: false,
            errors: EncodingErrorMode::parse(&mut fields)?,
            task: fields.string("task_type")?.as_deref().map(TaskType::parse).transpose()?,
        };
        let sandbox = fields.string("sandbox")?;
        fields.finish()?;
        request.check_lengths()?;
        if request.terminal.is_some() {
            request.prepare_terminal();
        }
        if let Some(id) = sandbox {
            request.enter_sandbox(id)?;
        }
        Ok(request)
    }

    /// Has it run in a sandbox.
    pub fn enter_sandbox(&mut self, id: String) -> Result<(), ApiRejection> {
        if let Some(workspace) = &self.workspace {
            let wanted = "left out with `sandbox`, whose /workspace it is";
            return Err(refused("workspace", &workspace.as_str().into(), wanted));
        }
        // Warm interpreters cannot enter a sandbox.
        self.python = None;
        self.sandbox = Some(id);
        Ok(())
    }

    /// Sets what a run with a terminal needs: the client uses the terminal before the run has
    /// ended, so the request does not wait.
    fn prepare_terminal(&mut self) {
        self.wait.get_or_insert(Duration::ZERO);
        self.stdin_open = true;
        if !self.environment.iter().any(|(name, _)| name == "TERM") {
            self.environment.push(("TERM".to_owned(), TERMINAL_KIND.to_owned()));
        }
    }

    /// A text for bash.
    pub fn script(script: ScriptRun) -> Result<Self, ApiRejection> {
        let code = InterpretedCommand::shell("bash", &script.text);
        let mut request = RunRequest {
            environment: script.environment,
            limits: script.limits,
            detach: script.detach,
            program: code.program,
            ..RunRequest::of(code.command)
        };
        request.enter(script.location)?;
        request.check_lengths()?;
        Ok(request)
    }

    fn enter(&mut self, location: RunLocation) -> Result<(), ApiRejection> {
        match location {
            RunLocation::Sandbox(id) => self.enter_sandbox(id)?,
            RunLocation::Workspace(workspace, temporary) => {
                (self.workspace, self.temporary) = (Some(workspace), Some(temporary));
            }
        }
        Ok(())
    }

    /// A program of another system's client, waited for to its end.
    pub fn program(program: ProgramRun) -> Result<Self, ApiRejection> {
        let request = RunRequest {
            program: program.code.program,
            python: program.python,
            stdin: program.stdin,
            network: program.network,
            limits: program.limits,
            builtin: program.builtin,
            end_on_output_limit: program.end_on_output_limit,
            workspace: program.workspace,
            scratch: program.scratch,
            workspace_link: program.workspace_link,
            joins_streams: program.joins_streams,
            quota_permit: program.quota_permit,
            parent: program.parent,
            ..RunRequest::of(program.code.command)
        };
        request.check_lengths()?;
        Ok(request)
    }

    /// A command, waited for to its end.
    fn of(command: Vec<String>) -> Self {
        RunRequest {
            command,
            program: None,
            python: None,
            typescript: None,
            environment: Vec::new(),
            directory: None,
            stdin: None,
            stdin_open: false,
            terminal: None,
            network: false,
            limits: Limits::new(),
            warn: None,
            warn_signal: None,
            end_on_output_limit: false,
            stall_by_progress: false,
            progress_channel: false,
            wait: None,
            attached: false,
            detach: false,
            workspace: None,
            sandbox: None,
            scratch: None,
            temporary: None,
            workspace_link: None,
            quota_permit: None,
            builtin: Limits::new(),
            parent: None,
            joins_streams: false,
            errors: EncodingErrorMode::default(),
            task: None,
        }
    }

    /// Makes it a run of an agent, in its directories. Such a run may report its progress and is
    /// warned of its limits, since no caller requests that.
    pub fn for_agent(&mut self, limits: Limits, location: RunLocation) -> Result<(), ApiRejection> {
        self.warn = self.warn.or_else(|| Some(warn_of(&limits)));
        self.progress_channel = true;
        self.limits = limits;
        self.joins_streams = true;
        self.enter(location)
    }

    /// Has code read that has to be, within the run's wall limit and its owner's scope. Blocks.
    pub fn read(&mut self, engine: &Engine, scope: Option<ScopeId>) -> Result<(), ApiRejection> {
        let Some(code) = self.typescript.take() else { return Ok(()) };
        let within = match self.limits.get(LimitKind::Wall) {
            Setting::At(nanoseconds) => Some(Duration::from_nanos(nanoseconds)),
            _ => None,
        };
        let InterpretedCommand { command, program } = engine.typescript(&code, within, scope)?.interpreted();
        (self.command, self.program) = (command, program);
        self.check_lengths()
    }

    fn check_lengths(&self) -> Result<(), ApiRejection> {
        let variables = self.environment.iter().map(|(name, value)| name.len() + value.len() + 1);
        // TypeScript becomes another command.
        let command = if self.typescript.is_some() { &[][..] } else { &self.command };
        let refused = |message: String, key: &'static str, length: usize, most: usize| {
            Err(ApiRejection::new(Code::TooLong, message)
                .with("key", key)
                .with("length", length)
                .with("most", most))
        };
        let is_long = |length: &usize| *length > MAX_ARGUMENT_BYTES;
        if let Some(index) = command.iter().position(|argument| is_long(&argument.len())) {
            let length = command[index].len();
            let message = too_long(&argument_name(index, &command[0]), length);
            return refused(message, "command", length, MAX_ARGUMENT_BYTES);
        }
        if let Some(((name, _), length)) =
            self.environment.iter().zip(variables.clone()).find(|(_, length)| is_long(length))
        {
            return refused(too_long(&variable_name(name), length), "env", length, MAX_ARGUMENT_BYTES);
        }
        // Each one costs a pointer and a NUL as well.
        let all = command.iter().map(String::len).chain(variables).map(|length| length + 9).sum();
        if all <= MAX_ARGUMENTS_BYTES {
            return Ok(());
        }
        let message = format!(
            "the command with its variables has {all} bytes; the kernel takes at most {MAX_ARGUMENTS_BYTES}"
        );
        refused(message, "command", all, MAX_ARGUMENTS_BYTES)
    }

    /// The command as records and listings show it.
    pub fn shown(&self) -> Vec<String> {
        let mut left = MAX_SHOWN_BYTES;
        let mut shown = Vec::new();
        for part in &self.command {
            if left == 0 {
                break;
            }
            let text: String = part.chars().take(left).collect();
            left -= text.chars().count();
            shown.push(text);
        }
        shown
    }

    /// What its duration is remembered under.
    pub fn question(&self, owner: &OwnerId) -> Question {
        let question = Question::command(&self.command).conditions(Conditions::here()).owner(owner.as_str());
        match self.task {
            Some(task) => question.of_type(task),
            None => question,
        }
    }

    /// Starts it; a Python program in a warm interpreter, if there is one.
    pub fn start(
        &mut self,
        service: &RunService,
        owner: &OwnerId,
        mut spec: Spec,
    ) -> Result<Run, ApiRejection> {
        if let Some(source) = self.python.take()
            && let Some(run) = service.programs.start(owner.as_str(), &mut spec, &source)?
        {
            return Ok(run);
        }
        Ok(service.core.engine.start(spec)?)
    }

    /// The run itself, in a workspace of its own. `stdin_open` leaves the first bytes to the
    /// caller.
    pub fn spec(&mut self) -> Spec {
        let stdin = match (self.stdin_open, &mut self.stdin) {
            (true, _) => Stdin::Piped,
            (false, Some(bytes)) => Stdin::Bytes(std::mem::take(bytes)),
            (false, None) => Stdin::Null,
        };
        let owned = |(name, value): &(String, String)| (OsString::from(name), OsString::from(value));
        let before: &[&str] = if self.joins_streams { &JOIN_COMMAND } else { &[] };
        let arguments = before.iter().copied().chain(self.command.iter().map(String::as_str));
        let mut program = self.program.take();
        if let Some(FileCommand { replaced, .. }) = program.as_mut().and_then(|program| program.file.as_mut())
        {
            *replaced = replaced.start + before.len()..replaced.end + before.len();
        }
        Spec {
            command: arguments.map(OsString::from).collect(),
            program,
            parent: self.parent,
            environment: self.environment.iter().map(owned).collect(),
            private_workspace: self.sandbox.is_none(),
            workspace_link: self.workspace_link.clone(),
            temporary: self.temporary.as_ref().map(|temporary| temporary.path().to_owned()),
            working_directory: self.directory.clone(),
            network: self.network,
            stdin,
            terminal: self.terminal.map(|(columns, line_count)| Terminal::new(columns, line_count)),
            limits: self.limits.clone(),
            warn: self.warn,
            warn_signal: self.warn_signal,
            end_on_output_limit: self.end_on_output_limit,
            stall_by_progress: self.stall_by_progress,
            progress_channel: self.progress_channel,
            ..Spec::default()
        }
    }
}

/// `warn_signal`.
pub(crate) fn warn_signal(fields: &mut RequestFields) -> Result<Option<i32>, ApiRejection> {
    fields.value("warn_signal").map(|given| signal("warn_signal", &given)).transpose()
}

/// A signal, by its name or number.
pub(super) fn signal(name: &str, given: &Value) -> Result<i32, ApiRejection> {
    let number = match given {
        Value::String(name) => signal_number(name),
        Value::Number(number) => number.as_i64().and_then(|number| i32::try_from(number).ok()),
        _ => None,
    };
    let number = number.filter(|number| (1..=64).contains(number));
    number.ok_or_else(|| refused(name, given, "a signal, such as \"SIGUSR1\" or 10"))
}

/// `{"columns": 80, "rows": 24}`, each of which may be left out.
pub(super) fn terminal_size(name: &str, size: Value) -> Result<(u16, u16), ApiRejection> {
    let Value::Object(object) = size else {
        return Err(refused(name, &size, "an object of columns and rows"));
    };
    let mut fields = RequestFields::new(object);
    let mut one = |name: &'static str, usual: u16| {
        let Some(given) = fields.number(name)? else { return Ok(usual) };
        let fits = u16::try_from(given).ok().filter(|count| *count > 0);
        fits.ok_or_else(|| refused(name, &given.into(), "a number from 1 to 65535"))
    };
    let size = (one("columns", 80)?, one("rows", 24)?);
    fields.finish()?;
    Ok(size)
}

/// `cwd`: a directory of the run, relative to its workspace where it is relative.
fn directory(fields: &mut RequestFields) -> Result<Option<PathBuf>, ApiRejection> {
    let Some(given) = fields.string("cwd")? else { return Ok(None) };
    if given.is_empty() {
        return Err(refused("cwd", &given.into(), "the path of a directory"));
    }
    Ok(Some(Path::new(WORKSPACE).join(given)))
}

/// `env`: an object of texts.
pub(crate) fn environment(fields: &mut RequestFields) -> Result<Vec<(String, String)>, ApiRejection> {
    let Some(given) = fields.value("env") else { return Ok(Vec::new()) };
    let Value::Object(object) = &given else { return Err(refused("env", &given, "an object of texts")) };
    let variable = |(name, value): (&String, &Value)| {
        let text = value.as_str().ok_or_else(|| refused(&format!("env.{name}"), value, "a string"))?;
        if name.is_empty() || name.contains('=') {
            return Err(refused("env", &Value::String(name.clone()), "a variable's name"));
        }
        Ok((name.clone(), text.to_owned()))
    };
    object.iter().map(variable).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: Value) -> Result<RunRequest, ApiRejection> {
        let Value::Object(object) = value else { panic!("an object") };
        RunRequest::parse(RequestFields::new(object))
    }

    #[test]
    fn a_command_is_a_list_or_a_line_and_code_has_a_language() {
        assert_eq!(parse(json!({"command": ["a", "b"]})).expect("valid").command, ["a", "b"]);
        assert_eq!(parse(json!({"command": "a | b"})).expect("valid").command[1..], ["-c", "a | b"]);
        let bash = parse(json!({"code": "true", "language": "bash"})).expect("valid");
        assert_eq!(bash.command, ["bash", "-c", "true"]);
        for wrong in [
            json!({}),
            json!({"command": []}),
            json!({"command": ""}),
            json!({"command": [""]}),
            json!({"command": ["a", 1]}),
            json!({"command": 1}),
            json!({"code": "x"}),
            json!({"language": "python"}),
            json!({"code": "x", "language": "cobol"}),
            json!({"command": ["a"], "code": "x", "language": "python"}),
        ] {
            assert_eq!(parse(wrong.clone()).expect_err("refused").code, Code::BadField, "{wrong}");
        }
    }

    #[test]
    fn arguments_above_kernel_limits_are_rejected() {
        let fits = "x".repeat(MAX_ARGUMENT_BYTES);
        parse(json!({"command": ["a", fits]})).expect("what the kernel takes is taken");
        let line = format!("true #{fits}");
        let by_file = parse(json!({"command": line})).expect("a line for a shell has no such limit");
        assert_eq!(by_file.command[1], "/sandtimer/main.sh");
        assert_eq!(by_file.program.map(|program| program.text), Some(line));
        for (wrong, named) in [
            (json!({"command": ["bash", "-c", format!("{fits}x")]}), "argument 2 of `bash` has 131072 bytes"),
            (json!({"command": ["a"], "env": {"A": fits}}), "the variable `A` has 131073 bytes"),
            (json!({"command": vec!["x".repeat(100_000); 21]}), "the command with its variables"),
        ] {
            let rejection = parse(wrong).expect_err("refused");
            assert_eq!(rejection.code, Code::TooLong);
            assert!(rejection.message.contains(named), "{}", rejection.message);
        }
    }

    #[test]
    fn listings_show_the_beginning_of_a_command() {
        let request = parse(json!({"command": ["ä".repeat(300), "b".repeat(300), "c"]})).expect("valid");
        let shown = request.shown();
        assert_eq!((shown.len(), shown[1].len()), (2, 100));
    }
}
