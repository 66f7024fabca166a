//! The `sandtimer` command: parses, calls one command, renders. What a command does is in
//! `commands`.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod config;
mod input;
mod passthrough;
mod render;
mod signals;
mod terminal;
mod waker;

use std::process::ExitCode;

use args::{CliArguments, Command};
use commands::{
    CommandFailure, bench, bwrap, config as settings, doctor, estimate, generate, jobs, jupyter, mcp,
    progress, read, remote, run, serve,
};

fn main() -> ExitCode {
    // A panic has been reported on stderr by then; what is left is that it is Sandtimer's failure.
    let code = std::panic::catch_unwind(start).unwrap_or(ExitCode::from(125));
    signals::end_if_interrupted();
    code
}

fn start() -> ExitCode {
    if let Some(code) = bubblewrap() {
        return code;
    }
    raise_open_files();
    if let Some(message) = file_size_problem() {
        render::report_error(&message);
        return ExitCode::from(125);
    }
    let arguments = match CliArguments::of_process() {
        Ok(arguments) => arguments,
        Err(error) => return render::usage(&error),
    };
    dispatch(arguments).unwrap_or_else(|failure| {
        render::report_error(&failure.message);
        ExitCode::from(failure.exit_code)
    })
}

/// Runs a command line of bubblewrap's, if this is one. First of all: its processes are copies of
/// this one, with its descriptors and limits as the caller left them.
fn bubblewrap() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next();
    if bwrap::is_name_of(name.as_deref()) {
        return Some(bwrap::main(&name.unwrap_or_default(), arguments.collect()));
    }
    let is_command = arguments.next().is_some_and(|first| first == "bwrap");
    is_command.then(|| bwrap::main("sandtimer bwrap".as_ref(), arguments.collect()))
}

/// Each sandbox and connection takes descriptors, and the usual soft limit is one for programs that
/// call select(2). What is run has limits of its own.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If refused, the limit stays as it was, and what does not fit reports an error.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// The limit of file sizes (setrlimit(2)) holds for the engine's files in memory too, and the
/// kernel ends a process that passes it with SIGXFSZ, without a message.
fn file_size_problem() -> Option<String> {
    use rustix::process::{Resource, getrlimit};
    const MIN_BYTES: u64 = 128 << 10;
    let bytes = getrlimit(Resource::Fsize).current.filter(|bytes| *bytes < MIN_BYTES)?;
    Some(format!(
        "the limit of file sizes is {bytes} bytes (ulimit -f), and Sandtimer needs {MIN_BYTES}; raise it, and limit what the \
         command writes with --disk"
    ))
}

fn dispatch(arguments: CliArguments) -> Result<ExitCode, CommandFailure> {
    match arguments.command {
        None => Err(CommandFailure::usage("no command given; `sandtimer --help` lists them")),
        Some(Command::Run(given)) => run::command(given),
        Some(Command::Python(given)) => run::language(run::CommandLanguage::Python, given),
        Some(Command::Bash(given)) => run::language(run::CommandLanguage::Bash, given),
        Some(Command::Node(given)) => run::language(run::CommandLanguage::JavaScript, given),
        Some(Command::Ts(given)) => run::language(run::CommandLanguage::TypeScript, given),
        Some(Command::Jupyter(given)) => jupyter::main(&given),
        Some(Command::Bwrap(given)) => Ok(bwrap::main("sandtimer bwrap".as_ref(), given.arguments)),
        Some(Command::Serve(given)) if given.on_demand => mcp::start_on_demand(),
        Some(Command::Serve(given)) => serve::main(&given),
        Some(Command::Mcp(given)) => mcp::main(&given),
        Some(Command::Jobs(given)) => jobs::main(given),
        Some(Command::Ps(given)) => remote::ps(&given),
        Some(Command::Logs(given)) => remote::logs(&given),
        Some(Command::Kill(given)) => remote::kill(&given),
        Some(Command::Extend(given)) => remote::extend(&given),
        Some(Command::Pause(given)) => remote::pause(&given),
        Some(Command::Resume(given)) => remote::resume(&given),
        Some(Command::Sandbox(given)) => remote::sandbox(&given),
        Some(Command::Template(given)) => remote::template(&given),
        Some(Command::Estimate(given)) => estimate::main(given),
        Some(Command::Progress(given)) => progress::main(&given),
        Some(Command::Doctor(given)) => Ok(doctor::main(&given)),
        Some(Command::Bench(given)) => Ok(bench::main(&given)),
        Some(Command::Config(given)) => settings::main(&given),
        Some(Command::Completions(given)) => generate::completions(given.shell),
        Some(Command::ReadTypescript(given)) => read::main(&given),
        Some(Command::Generate(given)) => generate::all(&given.dir),
    }
}
