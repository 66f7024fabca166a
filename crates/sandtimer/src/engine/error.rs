//! Errors before a run exists. How a run ends is never an error, but an
//! [`Outcome`](crate::model::Outcome).

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::sandboxes::SandboxError;
use crate::isolate::files::FilesError;
use crate::isolate::plan::PlanRejection;
use crate::limits::LimitError;
use crate::scope::ScopeError;

/// Workspaces of one run: the descriptors of one message to the launcher bound them.
pub(crate) const WORKSPACES: usize = 16;

/// Branches that are made at once.
pub const BRANCHES: usize = 64;

/// The reason why a run could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The specification names no command.
    #[error("no command given")]
    NoCommand,
    /// The command, a workspace or the starting directory is not usable.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// A limit's value is not valid.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// An outer scope has ended or has no time left.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// A stall limit by progress needs output that is read.
    #[error("a stall limit by progress needs output that is captured, or a progress channel")]
    NothingToFollow,
    /// No process can handle this signal.
    #[error("signal {0} cannot be a notice, because no process can handle it; use one such as SIGUSR1")]
    NoticeSignal(i32),
    /// A notice by signal has no time.
    #[error("a notice by signal needs a time before the limit")]
    NoticeTime,
    /// The host cannot give the isolation that was required.
    #[error(transparent)]
    Refused(#[from] PlanRejection),
    /// More workspaces than a sandbox can be given.
    #[error("{0} workspaces are more than the {WORKSPACES} that a run can have; give a directory above them")]
    Workspaces(usize),
    /// All slots are taken; try again when a run has ended.
    #[error("all {0} slots of this engine are taken")]
    Full(usize),
    /// The interpreter of a profile cannot be a zygote, and why.
    #[error("the interpreter {0}")]
    Interpreter(String),
    /// An interpreter or a shell did not start in time; nothing of it is left alive.
    #[error("the interpreter was not ready within the spawn limit of {0:?}")]
    SpawnLimit(Duration),
    /// A call's bytes are more than a packet holds, and no file came with them.
    #[error("a call of {0} bytes does not fit into a packet; put it into a file")]
    CallTooLong(usize),
    /// The pool of calls was closed.
    #[error("the pool of calls is closed")]
    Closed,
    /// The caller cancelled the run before it started.
    #[error("the caller cancelled the run")]
    Withdrawn,
    /// A sandbox cannot be made, used or removed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The context cannot be branched, and why.
    #[error("the context cannot be branched: {0}")]
    NoBranch(String),
    /// The number of branches is out of range.
    #[error("count = {0}: give a number from 1 to {most}", most = BRANCHES)]
    BranchCount(usize),
    /// Where the TypeScript is not valid, and why.
    #[cfg(feature = "javascript")]
    #[error(transparent)]
    Script(#[from] crate::script::SyntaxError),
    /// A NUL byte in an argument, a variable or a path.
    #[error("{what} `{value}` contains a NUL byte")]
    Nul {
        /// What contains it: an argument, a variable or a path.
        what: &'static str,
        /// The value as it was given, with the NUL byte.
        value: String,
    },
    /// An argument or a variable is longer than the kernel accepts.
    #[error("{}", crate::model::too_long(what, *bytes))]
    ArgumentTooLong {
        /// What is too long, such as an argument by its number.
        what: String,
        /// The length that was given, in bytes.
        bytes: usize,
    },
    /// A context cannot start in the requested directory.
    #[error(
        "the directory `{directory}` can be neither created nor entered: {reason}; give one below /workspace or /tmp"
    )]
    Directory {
        /// The path inside the run.
        directory: String,
        /// What the system answered.
        reason: String,
    },
    /// The directory for output that does not fit into memory is not usable.
    #[error("cannot use `{}` for output that outgrows memory: {source}; {}", path.display(), other_directory(*is_temporary))]
    SpoolDirectory {
        /// The directory that was tried.
        path: PathBuf,
        /// Whether it is the system's temporary directory, as the environment names it.
        is_temporary: bool,
        /// What the system answered.
        source: io::Error,
    },
    /// The system refused something Sandtimer needs.
    #[error("{doing}: {source}{}", remedy(source))]
    System {
        /// What failed, such as `cannot make a pipe`.
        doing: &'static str,
        /// The reason, as the system gave it.
        source: io::Error,
    },
}

fn other_directory(is_temporary: bool) -> &'static str {
    match is_temporary {
        true => "set TMPDIR to a directory that exists and takes files, or unset it",
        false => "name a directory that exists and takes files",
    }
}

/// The remedy for an error of the system, if it is known.
fn remedy(source: &io::Error) -> String {
    use rustix::process::{Resource, getrlimit};
    if source.raw_os_error() != Some(rustix::io::Errno::MFILE.raw_os_error()) {
        return String::new();
    }
    let most = getrlimit(Resource::Nofile).current.map_or_else(String::new, |most| format!(" {most}"));
    format!(
        "; this process may have{most} open at once (RLIMIT_NOFILE), and each sandbox that is ready takes about 20: raise it \
         (`ulimit -n`, `resource.setrlimit`), or let several functions share a pool"
    )
}

impl Error {
    /// The exit code of the command line: 126 and 127 as env(1), else 125.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Files(error) => error.exit_code(),
            _ => 125,
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Full(_) | Error::System { .. } | Error::SpawnLimit(_) => true,
            Error::Sandbox(error) => error.is_retryable(),
            _ => false,
        }
    }

    pub(crate) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { doing, source }
    }
}
