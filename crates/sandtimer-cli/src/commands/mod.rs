//! One module per command. A command parses nothing and prints nothing itself: it gets typed
//! arguments, calls the engine, and hands what it has to `render`.

pub(crate) mod bench;
pub(crate) mod bwrap;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod estimate;
pub(crate) mod generate;
pub(crate) mod jobs;
pub(crate) mod jupyter;
pub(crate) mod mcp;
pub(crate) mod progress;
pub(crate) mod read;
pub(crate) mod remote;
pub(crate) mod run;
mod sentences;
pub(crate) mod serve;

/// Why a command could not do its work: one line for stderr, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandFailure {
    pub(crate) message: String,
    pub(crate) exit_code: u8,
}

impl CommandFailure {
    /// Exit code 125: wrong use, or Sandtimer's own failure.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        CommandFailure { message: message.into(), exit_code: 125 }
    }

    /// For `map_err`: what was being done, and the system's answer.
    pub(crate) fn system<E: std::fmt::Display>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |error| CommandFailure::usage(format!("{doing}: {error}"))
    }
}

impl From<sandtimer::Error> for CommandFailure {
    fn from(error: sandtimer::Error) -> Self {
        CommandFailure { exit_code: error.exit_code(), message: error.to_string() }
    }
}

impl From<sandtimer::limits::LimitError> for CommandFailure {
    fn from(error: sandtimer::limits::LimitError) -> Self {
        CommandFailure::usage(error.to_string())
    }
}

/// The error if a run would begin inside another.
pub(crate) const INSIDE_A_RUN: &str = "this is inside a run of Sandtimer, where no further sandbox can be made; start the command itself, \
     which is under the limits of that run";

/// Whether this process is inside a run: every sandbox with a root of its own has this directory,
/// and commands there this user name. A machine may have one of them by chance.
pub(crate) fn is_inside_a_run() -> bool {
    std::path::Path::new("/sandtimer").is_dir()
        && std::env::var_os("LOGNAME").is_some_and(|name| name == "sandbox" || name == "user")
}
