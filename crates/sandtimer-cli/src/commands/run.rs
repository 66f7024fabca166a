//! `run` and the languages' commands: from typed settings to a run, and from its Outcome to an exit
//! code.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use sandtimer::isolate::files::{FilesError, home_directories};
use sandtimer::isolate::plan::IsolationLayer;
use sandtimer::limits::Setting;
use sandtimer::model::{
    Ending, FileCommand, InterpretedCommand, KillClass, LimitKind, ProgramSource, RemainingState, Tier,
};
use sandtimer::script::{JavaScriptProgram, SyntaxError};
use sandtimer::{Engine, Options, Output, Spec, Stdin, engine};
use sandtimer_records::bare_outcome;

use super::{CommandFailure, INSIDE_A_RUN, is_inside_a_run, read};
use crate::args::{LanguageArguments, OmittedLayer, OnOutputLimit, Require, RunArguments, Settings, StallBy};
use crate::config::{self, Config, Origins};
use crate::input::{self, Feed};
use crate::passthrough;
use crate::render;
use crate::signals::Signals;
use crate::terminal::{self, StdinTerminal};

pub(in crate::commands) mod exit;
mod session;

use session::{ServedStreams, Session};

/// A language with a subcommand of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandLanguage {
    Python,
    Bash,
    JavaScript,
    TypeScript,
}

/// `sandtimer run`.
pub(crate) fn command(given: RunArguments) -> Result<ExitCode, CommandFailure> {
    if given.command.is_empty() {
        return Err(CommandFailure::usage(
            "no command given; use `sandtimer run [flags] -- COMMAND ARGUMENTS…`",
        ));
    }
    go(&given.settings, |_| Ok(RequestedProgram::command(given.command)))
}

/// `sandtimer python`, `bash`, `node` and `ts`.
pub(crate) fn language(
    language: CommandLanguage,
    given: LanguageArguments,
) -> Result<ExitCode, CommandFailure> {
    if matches!(language, CommandLanguage::JavaScript | CommandLanguage::TypeScript) {
        let LanguageArguments { settings, code, arguments } = given;
        return go(&settings, |engine| node(language, code, arguments, &settings, engine));
    }
    let mut command = vec![language.interpreter()];
    let has_code = given.code.is_some();
    let text =
        given.code.as_ref().filter(|_| language == CommandLanguage::Bash).and_then(|code| code.to_str());
    let mut program = text.and_then(|text| InterpretedCommand::bash(text).program);
    if let Some(code) = given.code {
        command.extend([OsString::from("-c"), code]);
        if language == CommandLanguage::Bash {
            // What bash takes for its own name, where it has no file.
            command.push("bash".into());
        }
        if let Some(FileCommand { replaced, .. }) = program.as_mut().and_then(|program| program.file.as_mut())
        {
            *replaced = 0..command.len();
        }
    } else {
        let Some(file) = given.arguments.first() else {
            return Err(CommandFailure::usage("no program given; use a FILE, `-` for stdin, or -c CODE"));
        };
        if file != "-" {
            check_visible(Path::new(file), &given.settings)?;
        }
    }
    let mut arguments = given.arguments.into_iter().peekable();
    if language == CommandLanguage::Bash && !has_code && arguments.next_if(|first| first == "-").is_some() {
        // For bash `-` ends its options, and a file follows.
        command.extend(["-s", "--"].map(OsString::from));
    }
    command.extend(arguments);
    go(&given.settings, |_| Ok(RequestedProgram { command, program }))
}

/// What is asked for.
struct RequestedProgram {
    command: Vec<OsString>,
    program: Option<ProgramSource>,
}

impl RequestedProgram {
    fn command(command: Vec<OsString>) -> Self {
        RequestedProgram { command, program: None }
    }

    /// Code, and its arguments.
    fn code(code: InterpretedCommand, arguments: impl Iterator<Item = OsString>) -> Self {
        let command = code.command.into_iter().map(OsString::from).chain(arguments).collect();
        RequestedProgram { command, program: code.program }
    }
}

/// The command that runs code or a file with Node.js.
fn node(
    language: CommandLanguage,
    code: Option<OsString>,
    arguments: Vec<OsString>,
    settings: &Settings,
    engine: &Engine,
) -> Result<RequestedProgram, CommandFailure> {
    let is_typescript = language == CommandLanguage::TypeScript;
    let name = if is_typescript { "ts" } else { "node" };
    let mut arguments = arguments.into_iter();
    if let Some(code) = code {
        let code =
            code.to_str().ok_or_else(|| CommandFailure::usage("the code given with -c is not UTF-8"))?;
        let program = match is_typescript {
            true => typescript(engine, "-c", code, settings)?,
            false => JavaScriptProgram::of(code, false).map_err(|error| unreadable("-c", &error))?,
        };
        return Ok(RequestedProgram::code(program.interpreted(), arguments));
    }
    let Some(file) = arguments.next() else {
        return Err(CommandFailure::usage(format!(
            "no program given; use `sandtimer {name} FILE` or -c CODE"
        )));
    };
    if file == "-" && !is_typescript {
        return Ok(RequestedProgram::command(
            ["node".into(), "-".into()].into_iter().chain(arguments).collect(),
        ));
    }
    check_visible(Path::new(&file), settings)?;
    if !is_typescript {
        let command = ["node".into(), "--".into(), file].into_iter().chain(arguments);
        return Ok(RequestedProgram::command(command.collect()));
    }
    let shown = file.display();
    let cannot = |error: std::io::Error| CommandFailure::usage(format!("`{shown}` cannot be read: {error}"));
    let path = Path::new(&file).canonicalize().map_err(cannot)?;
    let source = std::fs::read_to_string(&path).map_err(cannot)?;
    let path = path
        .to_str()
        .ok_or_else(|| CommandFailure::usage(format!("`{shown}` has a path that is not UTF-8")))?;
    let program = typescript(engine, &shown.to_string(), &source, settings)?;
    Ok(RequestedProgram::code(program.file_command(path), arguments))
}

/// Has TypeScript read, within the wall limit that is given.
fn typescript(
    engine: &Engine,
    name: &str,
    source: &str,
    settings: &Settings,
) -> Result<JavaScriptProgram, CommandFailure> {
    let within = match config::from_flags(&settings.limits)?.get(LimitKind::Wall) {
        Setting::At(nanoseconds) => Some(Duration::from_nanos(nanoseconds)),
        _ => None,
    };
    engine.typescript(source, within, None).map_err(|error| match error {
        sandtimer::Error::Script(error) => unreadable(name, &error),
        other => CommandFailure::from(other),
    })
}

fn unreadable(name: &str, error: &SyntaxError) -> CommandFailure {
    let SyntaxError { line, column, message } = error;
    CommandFailure { message: format!("{name}:{line}:{column}: SyntaxError: {message}"), exit_code: 1 }
}

impl CommandLanguage {
    fn interpreter(self) -> OsString {
        match self {
            CommandLanguage::Python if !is_on_path("python3") && is_on_path("python") => "python".into(),
            CommandLanguage::Python => "python3".into(),
            CommandLanguage::Bash => "bash".into(),
            CommandLanguage::JavaScript | CommandLanguage::TypeScript => "node".into(),
        }
    }
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Refuses a program file that would not be there inside, where the remedy can still be named.
fn check_visible(file: &Path, settings: &Settings) -> Result<(), CommandFailure> {
    let shown = file.display();
    let real = file
        .canonicalize()
        .map_err(|error| CommandFailure::usage(format!("`{shown}` cannot be read: {error}")))?;
    if !real.is_file() {
        return Err(CommandFailure::usage(format!("`{shown}` is not a file")));
    }
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    let homes = home_directories(&passwd, std::env::var_os("HOME").as_deref());
    let here = std::env::current_dir().ok().and_then(|here| here.canonicalize().ok());
    // An ancestor of a home is not shown inside, nor is a home.
    let here = here.filter(|here| !homes.iter().any(|home| home.starts_with(here)));
    let workspaces = settings.workspace.iter().filter_map(|workspace| workspace.canonicalize().ok());
    let system = ["/usr", "/opt"].map(PathBuf::from);
    if here.into_iter().chain(workspaces).chain(system).any(|root| real.starts_with(root)) {
        return Ok(());
    }
    let directory = real.parent().unwrap_or(Path::new("/")).display();
    Err(CommandFailure::usage(format!(
        "`{shown}` is not visible inside: it is neither below a current directory that can be shown nor in a workspace; \
         start from {directory}, or give --workspace {directory}"
    )))
}

fn go(
    settings: &Settings,
    ask: impl FnOnce(&Engine) -> Result<RequestedProgram, CommandFailure>,
) -> Result<ExitCode, CommandFailure> {
    sandtimer_os::thread::share_heap();
    let limits = config::from_flags(&settings.limits)?;
    let origins = Origins { file: settings.config.as_deref(), writable: &settings.workspace };
    let config = Config::load_for_run(&limits, settings.json, origins)?;
    let mut spec = Spec {
        environment: variables(&settings.env)?,
        umask: Some(own_umask()),
        working_directory: settings.cwd.clone(),
        workspaces: settings.workspace.clone(),
        show_credentials: settings.show_credentials,
        network: settings.network,
        limits,
        defaults: config.defaults(config::Uses::Commands),
        require: requirement(&settings.require),
        end_on_output_limit: settings.on_output_limit == OnOutputLimit::End,
        stall_by_progress: settings.stall_by == StallBy::Progress,
        progress_channel: settings.progress_channel,
        without: left_out(&settings.without)?,
        ..Spec::default()
    };
    if let Some(given) = &settings.warn {
        let (before, signal) = config::notice(given)?;
        (spec.warn, spec.warn_signal) = (Some(before), signal);
    }
    let stdin_terminal = terminal::stdin_terminal();
    let mut streams = ServedStreams::default();
    match stdin_terminal {
        StdinTerminal::Own(outputs) if !settings.json => {
            let like_ours = terminal::like_ours(outputs)
                .map_err(CommandFailure::system("cannot read the terminal's settings"))?;
            spec.terminal = Some(like_ours);
        }
        _ => {
            (spec.stdin, streams.input) = stdin(stdin_terminal, &users_outside(settings))
                .map_err(CommandFailure::system("cannot make a pipe for stdin"))?;
        }
    }
    if !settings.json {
        streams.are_one = passthrough::is_same_sink();
        spec.stdout = Output::Piped;
        spec.stderr = if streams.are_one { Output::SameAsStdout } else { Output::Piped };
    }
    // Before the engine, whose threads must not get these signals.
    let signals = Signals::watch_all().map_err(CommandFailure::system("cannot watch for signals"))?;
    let reader = read::reader();
    let options = Options { maxima: config.maxima(), reader, is_one_shot: true, ..Options::default() };
    let engine =
        Engine::with_options(options).map_err(|error| not_started(by_flag(error, settings), settings))?;
    let asked = ask(&engine).map_err(|failure| not_started(failure, settings))?;
    (spec.command, spec.program) = (asked.command, asked.program);
    let run = engine.start(spec).map_err(|error| not_started(by_flag(error, settings), settings))?;
    Session::new(run, signals, settings, &config)?.conduct(streams)
}

/// The failure of a run that could not start. A reader of `--json` has an Outcome all the same.
fn not_started(failure: CommandFailure, settings: &Settings) -> CommandFailure {
    if settings.json {
        let error = serde_json::json!({"code": "infra_error", "message": failure.message});
        let mut outcome = bare_outcome("", Ending::InfraError, error, "the run was not started");
        outcome.state = RemainingState::None;
        // As env(1) ends for a command that is not there, or cannot be executed.
        outcome.exit_code = matches!(failure.exit_code, 126 | 127).then_some(failure.exit_code.into());
        render::print(&render::outcome_json(&outcome));
    }
    failure
}

/// The engine's error, beginning with the flag it is about, if that was given.
fn by_flag(error: sandtimer::Error, settings: &Settings) -> CommandFailure {
    if is_inside_a_run() && matches!(error, sandtimer::Error::Refused(_) | sandtimer::Error::System { .. }) {
        return CommandFailure { message: INSIDE_A_RUN.to_owned(), ..CommandFailure::from(error) };
    }
    let flag = match &error {
        sandtimer::Error::Files(FilesError::Workspace { .. }) => "--workspace: ",
        sandtimer::Error::Files(FilesError::StartingDirectory { .. }) => "--cwd: ",
        sandtimer::Error::Refused(_) if !settings.require.is_empty() => "--require: ",
        sandtimer::Error::NothingToFollow => "--stall-by: ",
        sandtimer::Error::NoticeSignal(_) => "--warn: ",
        _ => "",
    };
    let failure = CommandFailure::from(error);
    CommandFailure { message: format!("{flag}{}", failure.message), ..failure }
}

/// Uids that the job may have on the outside, and are not its alone: this user's, or where a
/// workspace cannot be mapped its owner's.
fn users_outside(settings: &Settings) -> Vec<u32> {
    if engine::workspace_owner().is_none() {
        return vec![rustix::process::geteuid().as_raw()];
    }
    let owner = |workspace: &PathBuf| workspace.metadata().ok().map(|metadata| metadata.uid());
    settings.workspace.iter().filter_map(owner).collect()
}

/// Where the run's stdin comes from, and what this process has to do for it.
fn stdin(stdin_terminal: StdinTerminal, users: &[u32]) -> std::io::Result<(Stdin, Feed)> {
    match stdin_terminal {
        StdinTerminal::Background => Ok((Stdin::Null, Feed::Nothing)),
        StdinTerminal::InputOnly | StdinTerminal::Own(_) => Ok((Stdin::Piped, Feed::Stream)),
        StdinTerminal::None => input::input(users),
    }
}

/// The umask of this process. umask(2) can be read only by setting it, so this needs a single
/// thread.
fn own_umask() -> u32 {
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    umask.bits()
}

/// `NAME=VALUE` as it is, `NAME` with the caller's value if there is one.
fn variables(given: &[OsString]) -> Result<Vec<(OsString, OsString)>, CommandFailure> {
    let mut list = Vec::with_capacity(given.len());
    for entry in given {
        let bytes = entry.as_bytes();
        let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => (&bytes[..at], Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned())),
            None => (bytes, None),
        };
        if name.is_empty() {
            let shown = entry.display();
            return Err(CommandFailure::usage(format!(
                "--env: `{shown}` has no name (from the command line); use NAME=VALUE, or NAME to pass on your own"
            )));
        }
        let name = OsString::from_vec(name.to_vec());
        if let Some(value) = value.or_else(|| std::env::var_os(&name)) {
            list.push((name, value));
        }
    }
    Ok(list)
}

/// The strictest of what is required.
fn requirement(given: &[Require]) -> engine::Require {
    let mut tier: Option<Tier> = None;
    let mut kill: Option<KillClass> = None;
    for require in given {
        match *require {
            Require::Tier(least) => tier = tier.max(Some(least)),
            Require::Kill(least) => kill = kill.max(Some(least)),
        }
    }
    engine::Require { tier, kill }
}

fn left_out(layers: &[OmittedLayer]) -> Result<Vec<IsolationLayer>, CommandFailure> {
    if !layers.is_empty() && std::env::var_os("SANDTIMER_UNSAFE_TESTING").is_none_or(|value| value != "1") {
        return Err(CommandFailure::usage(
            "--without takes a wall away and is for tests only; it is refused unless SANDTIMER_UNSAFE_TESTING=1",
        ));
    }
    let wall = |layer: &OmittedLayer| match layer {
        OmittedLayer::Seccomp => IsolationLayer::Seccomp,
        OmittedLayer::Landlock => IsolationLayer::Landlock,
        OmittedLayer::Mount => IsolationLayer::Mount,
        OmittedLayer::Pid => IsolationLayer::Pid,
        OmittedLayer::Ipc => IsolationLayer::Ipc,
        OmittedLayer::Net => IsolationLayer::Net,
        OmittedLayer::Uid => IsolationLayer::Uid,
        OmittedLayer::Cgroup => IsolationLayer::Cgroup,
        OmittedLayer::Rlimits => IsolationLayer::Rlimits,
    };
    Ok(layers.iter().map(wall).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_bytes_and_need_a_name() {
        let odd = OsString::from_vec(b"NAME=\xff=x".to_vec());
        let read = variables(&[odd, "SANDTIMER_TEST_UNSET".into(), "EMPTY=".into()]).expect("valid");
        let value = OsString::from_vec(b"\xff=x".to_vec());
        assert_eq!(read, [("NAME".into(), value), ("EMPTY".into(), OsString::new())]);
        for nameless in ["=x", "", "="] {
            let failure = variables(&[nameless.into()]).expect_err("no name");
            assert!(failure.message.starts_with(&format!("--env: `{nameless}` has no name")), "{failure:?}");
        }
    }

    #[test]
    fn the_strictest_requirement_counts() {
        let given = [Require::Tier(Tier::T3), Require::Kill(KillClass::K1), Require::Tier(Tier::T1)];
        let required = requirement(&given);
        assert_eq!((required.tier, required.kill), (Some(Tier::T3), Some(KillClass::K1)));
        assert_eq!(requirement(&[]), engine::Require::default());
    }
}
