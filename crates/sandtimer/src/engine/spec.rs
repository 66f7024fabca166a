//! What to run, and under which limits: plain data, filled in by a builder.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::terminal::Terminal;
use crate::isolate::plan::Wall;
use crate::limits::Limits;
use crate::model::{KillClass, Layer, Source, Tier};
use crate::scope::ScopeId;

/// Where a run's stdin comes from.
#[derive(Debug, Default)]
pub enum Stdin {
    /// /dev/null.
    #[default]
    Null,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// A descriptor of the caller's, handed to the command as it is. Only for files opened read-only and for the read
    /// ends of pipes: the command can do with it whatever the kernel allows.
    Descriptor(OwnedFd),
    /// A pipe whose write end the caller takes with [`Run::take_stdin`](super::Run::take_stdin).
    Piped,
}

/// Where a run's stdout and stderr go.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Kept up to the output limit, in memory and then on disk, and part of the Outcome.
    #[default]
    Capture,
    /// A pipe whose read end the caller takes with [`Run::take_output`](super::Run::take_output); not limited.
    Piped,
    /// /dev/null.
    Null,
    /// For stderr only: the same pipe as stdout, so that the order of what is written to both is kept.
    SameAsStdout,
}

/// The least that must be in force, or nothing is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Require {
    pub tier: Option<Tier>,
    pub kill: Option<KillClass>,
}

/// A command and everything about how it is to run.
///
/// ```
/// use std::time::Duration;
/// use sandtimer::{Limits, Spec};
///
/// let spec = Spec::command(["python3", "-c", "print('hello')"])
///     .limits(Limits::new().wall(Duration::from_secs(2)).memory(512 << 20))
///     .env("GREETING", "hello");
/// assert_eq!(spec.command[0], "python3");
/// ```
#[derive(Debug, Default)]
pub struct Spec {
    /// Program and arguments. A program without a slash is looked for on the caller's PATH.
    pub command: Vec<OsString>,
    /// Variables added to the clean environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The mode bits that files which it makes do not get; 0o022 unless given.
    pub umask: Option<u32>,
    /// The directory to start in; by default the caller's current directory, shown read-only.
    pub working_directory: Option<PathBuf>,
    /// Directories shown writable at their own paths.
    pub workspaces: Vec<PathBuf>,
    /// Directories and files shown read-only at their own paths, as far as they may be shown at all.
    pub read_only: Vec<PathBuf>,
    /// `read_only` is the caller's own `sys.path`: where links of packages there lead is shown, too.
    pub follows_package_links: bool,
    /// Directories shown read-only at their own paths, without what only the owner of a file may read.
    pub world_readable: Vec<PathBuf>,
    /// Starts in an empty private /workspace instead of the caller's current directory.
    pub private_workspace: bool,
    /// Starts in this directory, shown writable as /workspace; made by [`make_workspace`](super::make_workspace).
    pub workspace: Option<PathBuf>,
    /// A link to /workspace at this path, for programs that look for their files there, such as `/mnt/data`.
    pub workspace_link: Option<PathBuf>,
    /// Shown writable as /tmp, which is the home directory too, in place of an empty private one; made by
    /// [`make_temporary_directory`](super::make_temporary_directory). What a run leaves there, the next run with it finds.
    pub temporary: Option<PathBuf>,
    /// Shows credentials that lie below what is shown; else they are covered.
    pub show_credentials: bool,
    /// The host's network instead of none.
    pub network: bool,
    /// Shows the host's GPUs: their device nodes, and what their libraries look at. Reported as degraded.
    pub gpu: bool,
    pub stdin: Stdin,
    /// A text that the command reads at descriptor 3: a program that is too long for a command.
    pub program: Option<String>,
    pub stdout: Output,
    pub stderr: Output,
    /// Makes stdin a terminal, in place of `stdin`, and stdout and stderr, as it says. What is shown on it goes where `stdout` says, or
    /// `stderr` where it is not stdout; [`Run::take_stdin`](super::Run::take_stdin) gives what is typed on.
    pub terminal: Option<Terminal>,
    /// The call's own limits.
    pub limits: Limits,
    /// Limits from further out, by source.
    pub defaults: Vec<(Source, Limits)>,
    pub require: Require,
    /// How long before its wall limit, and its cpu limit, the run's owner wants a word; see [`Run::warned`](super::Run::warned).
    pub warn: Option<Duration>,
    /// A signal that is then sent to those of the run's processes that handle it, such as SIGUSR1; of its cpu limit too.
    pub warn_signal: Option<i32>,
    /// Past the output limit the run is ended instead of going on with its output dropped.
    pub end_on_output_limit: bool,
    /// The stall limit counts from when the run last got further, as its captured output says, and from nothing else.
    pub stall_by_progress: bool,
    /// Gives the command a pipe as descriptor 3, which the variable SANDTIMER_PROGRESS_FD names, to report its progress to:
    /// lines such as `{"done": 8, "total": 15, "unit": "epoch"}`. What it reports beats what is read out of its output.
    /// With `warn` there is a second one, named by SANDTIMER_NOTICE_FD, from which it reads a line such as
    /// `{"limit": "wall", "left_ms": 30000}` before a limit.
    pub progress_channel: bool,
    /// For whom it is run, where several share an engine: of what a machine has only so much of, none of them has more than half.
    pub owner: Option<Arc<str>>,
    /// The scope the run belongs to.
    pub parent: Option<ScopeId>,
    /// The level of the run's own scope.
    pub layer: Option<Layer>,
    /// Walls left out, for tests that show what each of them stops. Reported as degraded.
    #[doc(hidden)]
    pub without: Vec<Wall>,
    /// Shows the host's /proc: for a zygote, which is in the host's pid namespace.
    #[doc(hidden)]
    pub host_proc: bool,
    /// A live sandbox: init is asked about calls that send signals.
    #[doc(hidden)]
    pub supervised: bool,
    /// Other code runs in its sandbox later: a context or session.
    #[doc(hidden)]
    pub is_live: bool,
    /// Its sandbox is built before the limits of its job are known.
    #[doc(hidden)]
    pub is_pooled: bool,
    /// Has no pseudo-terminals, which cost a mount.
    #[doc(hidden)]
    pub without_ptys: bool,
}

impl Spec {
    /// Whether it is shown a directory that other runs may be shown too, as far as one of them may write there.
    pub(super) fn shares_directory(&self) -> bool {
        // Without a private workspace it starts in the caller's current directory.
        let has_shared = self.workspace.is_some() || self.temporary.is_some() || !self.workspaces.is_empty();
        !self.private_workspace || has_shared
    }

    /// The directories below which it can make the host's disk fuller.
    pub(super) fn growing_directories(&self) -> Vec<PathBuf> {
        self.workspaces.iter().chain(&self.workspace).chain(&self.temporary).cloned().collect()
    }

    /// A program and its arguments.
    pub fn command<S: AsRef<OsStr>>(command: impl IntoIterator<Item = S>) -> Self {
        Spec {
            command: command.into_iter().map(|part| part.as_ref().to_owned()).collect(),
            ..Spec::default()
        }
    }

    /// Sets the call's limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds a variable to the clean environment.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Shows a directory writable at its own path.
    pub fn workspace(mut self, directory: impl Into<PathBuf>) -> Self {
        self.workspaces.push(directory.into());
        self
    }

    /// Starts in this directory.
    pub fn working_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.working_directory = Some(directory.into());
        self
    }

    /// Gives the host's network.
    pub fn network(mut self, granted: bool) -> Self {
        self.network = granted;
        self
    }

    /// Feeds these bytes to stdin.
    pub fn stdin_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Stdin::Bytes(bytes.into());
        self
    }

    /// Gives a [`Warning`](crate::model::Warning) this long before the wall limit, and before the cpu limit.
    pub fn warn(mut self, before: Duration) -> Self {
        self.warn = Some(before);
        self
    }

    /// Has the run itself hear of that by this signal.
    pub fn warn_signal(mut self, signal: i32) -> Self {
        self.warn_signal = Some(signal);
        self
    }

    /// Whether it is given a channel to hear of limits by.
    pub(crate) fn has_notices(&self) -> bool {
        self.progress_channel && self.warn.is_some()
    }

    /// Whether the engine hears of its progress.
    pub(crate) fn is_followed(&self) -> bool {
        let is_captured = self.terminal.is_none() && [self.stdout, self.stderr].contains(&Output::Capture);
        is_captured || self.progress_channel
    }

    /// Refuses to run below this tier.
    pub fn require(mut self, tier: Tier) -> Self {
        self.require.tier = Some(tier);
        self
    }
}
