//! What to run, and under which limits: plain data, filled in by a builder.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::sandboxes::Sandbox;
use super::terminal::Terminal;
use crate::isolate::plan::IsolationLayer;
use crate::limits::Limits;
use crate::model::{KillClass, Layer, ProgramSource, Source, Tier};
use crate::scope::ScopeId;

/// Where a run's stdin comes from.
#[derive(Debug, Default)]
pub enum Stdin {
    /// /dev/null.
    #[default]
    Null,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// A descriptor of the caller, which the command inherits. Only for files opened read-only and
    /// for the read ends of pipes: the command can do with it whatever the kernel allows.
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
    /// A pipe whose read end the caller takes with [`Run::take_output`](super::Run::take_output);
    /// not limited.
    Piped,
    /// /dev/null.
    Null,
    /// For stderr only: the same pipe as stdout, so that the order of what is written to both is
    /// kept.
    SameAsStdout,
}

/// The minimum of isolation with which a run may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Require {
    /// The lowest tier that will do; `None` accepts each of them.
    pub tier: Option<Tier>,
    /// The lowest kill class that will do; `None` accepts each of them.
    pub kill: Option<KillClass>,
}

/// Describes a run: the command, its limits, and what it can reach.
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
    /// Program and arguments. A program without a slash is searched on the caller's PATH.
    pub command: Vec<OsString>,
    /// Variables added to the clean environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The umask of the command; by default 0o022.
    pub umask: Option<u32>,
    /// The directory to start in; by default the caller's current directory, shown read-only.
    pub working_directory: Option<PathBuf>,
    /// Directories shown writable at their own paths.
    pub workspaces: Vec<PathBuf>,
    /// Directories and files shown read-only at their own paths, as far as they may be shown at
    /// all.
    pub read_only: Vec<PathBuf>,
    /// `read_only` is the caller's own `sys.path`: where links of packages there lead is shown,
    /// too.
    pub follows_package_links: bool,
    /// Directories shown read-only at their own paths, without what only the owner of a file may
    /// read.
    pub world_readable: Vec<PathBuf>,
    /// Starts in an empty private /workspace instead of the caller's current directory.
    pub private_workspace: bool,
    /// Starts in this directory, shown writable as /workspace; made by
    /// [`make_workspace`](super::make_workspace).
    pub workspace: Option<PathBuf>,
    /// A link to /workspace at this path, for programs that look for their files there, such as
    /// `/mnt/data`.
    pub workspace_link: Option<PathBuf>,
    /// Shown writable as /tmp, which is the home directory too, in place of an empty private one;
    /// made by [`make_temporary_directory`](super::make_temporary_directory). The next run with the
    /// same directory finds what this one leaves there.
    pub temporary: Option<PathBuf>,
    /// The sandbox that it runs in: its files are the sandbox's. A relative `working_directory` is
    /// below /workspace.
    pub sandbox: Option<Sandbox>,
    /// Shows credential files below the directories that are shown; by default they are covered.
    pub show_credentials: bool,
    /// The host's network instead of none.
    pub network: bool,
    /// Shows the host's GPUs: their device nodes, and the files that their libraries read. Reported
    /// as degraded.
    pub gpu: bool,
    /// What the command reads from descriptor 0; nothing by default.
    pub stdin: Stdin,
    /// The text of the program that the command executes, which the run has as a file.
    pub program: Option<ProgramSource>,
    /// The destination of descriptor 1; captured by default.
    pub stdout: Output,
    /// The destination of descriptor 2; captured by default.
    pub stderr: Output,
    /// Makes stdin a terminal, in place of `stdin`, and stdout and stderr, as it describes. Its
    /// output goes to the destination of `stdout`, or of `stderr` if stdout is not on it;
    /// [`Run::take_stdin`](super::Run::take_stdin) returns its input.
    pub terminal: Option<Terminal>,
    /// The call's own limits.
    pub limits: Limits,
    /// Limits with lower precedence than the call's own, by source.
    pub defaults: Vec<(Source, Limits)>,
    /// The minimum of isolation; with less the run does not start.
    pub require: Require,
    /// How long before its wall-clock limit, and its CPU limit, the run's owner is warned; see
    /// [`Run::warned`](super::Run::warned).
    pub warn: Option<Duration>,
    /// A signal, such as SIGUSR1, that is then sent to those of the run's processes that handle it.
    pub warn_signal: Option<i32>,
    /// Ends the run at its output limit; by default it continues and further output is dropped.
    pub end_on_output_limit: bool,
    /// The stall limit counts only from the last progress that the run's captured output shows.
    pub stall_by_progress: bool,
    /// Gives the command a pipe as descriptor 3, which the variable SANDTIMER_PROGRESS_FD names, to
    /// report its progress to: lines such as `{"done": 8, "total": 15, "unit": "epoch"}`. These
    /// reports take precedence over progress in its output. With `warn` there is a second one,
    /// named by SANDTIMER_NOTICE_FD, from which it reads a line such as `{"limit": "wall",
    /// "left_ms": 30000}` before a limit.
    pub progress_channel: bool,
    /// The owner of the run, if several share an engine: no owner gets more than half of what a
    /// machine has few of.
    pub owner: Option<Arc<str>>,
    /// The scope the run belongs to. In a sandbox it has to be inside the sandbox's own scope, or
    /// around it.
    pub parent: Option<ScopeId>,
    /// The level of the run's own scope.
    pub layer: Option<Layer>,
    /// Isolation layers that are left out, for tests that show what each of them stops. Reported as
    /// degraded.
    #[doc(hidden)]
    pub without: Vec<IsolationLayer>,
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
    /// Whether it is shown a directory that other runs may be shown too, as far as one of them may
    /// write there.
    pub(super) fn shares_directory(&self) -> bool {
        // Without a private workspace it starts in the caller's current directory.
        let has_shared = self.workspace.is_some() || self.temporary.is_some() || !self.workspaces.is_empty();
        !self.private_workspace || has_shared || self.sandbox.is_some()
    }

    /// The directories below which it can make the host's disk fuller.
    pub(super) fn growing_directories(&self) -> Vec<PathBuf> {
        let upper = self.sandbox.as_ref().map(Sandbox::upper);
        self.workspaces.iter().chain(&self.workspace).chain(&self.temporary).cloned().chain(upper).collect()
    }

    /// Describes a run of a program with its arguments, without limits.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec};
    ///
    /// // Arguments are not interpreted by a shell.
    /// let outcome = Engine::new()?.run_blocking(Spec::command(["echo", "$HOME", "a b"]))?;
    /// assert_eq!(outcome.stdout, "$HOME a b\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn command<S: AsRef<OsStr>>(command: impl IntoIterator<Item = S>) -> Self {
        Spec {
            command: command.into_iter().map(|part| part.as_ref().to_owned()).collect(),
            ..Spec::default()
        }
    }

    /// Sets the limits of this run.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{Engine, LimitKind, Limits, Spec};
    ///
    /// let limits = Limits::new().wall(Duration::from_millis(100));
    /// let spec = Spec::command(["sleep", "3600"]).limits(limits);
    /// let outcome = Engine::new()?.run_blocking(spec)?;
    /// let verdict = outcome.verdict.as_ref().unwrap();
    /// assert_eq!((verdict.kind, verdict.limit_ms), (Some(LimitKind::Wall), Some(100)));
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds a variable to the clean environment.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec};
    ///
    /// let spec = Spec::command(["sh", "-c", "echo $GREETING"]).env("GREETING", "hello");
    /// assert_eq!(Engine::new()?.run_blocking(spec)?.stdout, "hello\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Shows a directory writable at its own path.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let spec = Spec::command(["sh", "-c", "echo done >result"])
    ///     .workspace(directory.path())
    ///     .working_directory(directory.path());
    /// assert!(Engine::new()?.run_blocking(spec)?.ok);
    /// assert_eq!(std::fs::read_to_string(directory.path().join("result"))?, "done\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn workspace(mut self, directory: impl Into<PathBuf>) -> Self {
        self.workspaces.push(directory.into());
        self
    }

    /// Starts in this directory.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec};
    ///
    /// let spec = Spec::command(["pwd"]).working_directory("/usr");
    /// assert_eq!(Engine::new()?.run_blocking(spec)?.stdout, "/usr\n");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn working_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.working_directory = Some(directory.into());
        self
    }

    /// Sets whether the run has the host's network; by default it has a loopback only.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec};
    ///
    /// let outcome = Engine::new()?.run_blocking(Spec::command(["true"]).network(true))?;
    /// // The Outcome reports the layer that the run did without.
    /// assert!(outcome.isolation.degraded.iter().any(|missing| missing.layer == "network"));
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn network(mut self, granted: bool) -> Self {
        self.network = granted;
        self
    }

    /// Feeds these bytes to stdin.
    ///
    /// ```
    /// use sandtimer::{Engine, Spec};
    ///
    /// let spec = Spec::command(["tr", "a-z", "A-Z"]).stdin_bytes("hello");
    /// assert_eq!(Engine::new()?.run_blocking(spec)?.stdout, "HELLO");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn stdin_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Stdin::Bytes(bytes.into());
        self
    }

    /// Emits a [`Warning`](crate::model::Warning) this long before the wall-clock limit, and before
    /// the CPU limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{Engine, Limits, Spec, Warning};
    ///
    /// let limits = Limits::new().wall(Duration::from_secs(60));
    /// // The warning is due at once: 59.9 s before the limit.
    /// let before = Duration::from_millis(59_900);
    /// let spec = Spec::command(["sleep", "3600"]).limits(limits).warn(before);
    /// let engine = Engine::new()?;
    /// let run = engine.start(spec)?;
    /// let warning = run.warned_blocking();
    /// assert!(matches!(warning, Some(Warning::Wall { left_ms }) if left_ms < 60_000));
    /// run.cancel("the example has ended");
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn warn(mut self, before: Duration) -> Self {
        self.warn = Some(before);
        self
    }

    /// Sends that warning to the run itself, too, as this signal.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sandtimer::{Engine, Limits, Spec};
    ///
    /// const SIGUSR1: i32 = 10;
    /// let script = "trap 'echo saved; exit 0' USR1; while :; do sleep 0.1; done";
    /// let spec = Spec::command(["sh", "-c", script])
    ///     .limits(Limits::new().wall(Duration::from_secs(60)))
    ///     .warn(Duration::from_secs(58))
    ///     .warn_signal(SIGUSR1);
    /// let outcome = Engine::new()?.run_blocking(spec)?;
    /// assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("saved\n", Some(0)));
    /// assert_eq!(outcome.notices[0].signal.as_deref(), Some("SIGUSR1"));
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn warn_signal(mut self, signal: i32) -> Self {
        self.warn_signal = Some(signal);
        self
    }

    /// Whether it has a channel on which it reads of its limits.
    pub(crate) fn has_notices(&self) -> bool {
        self.progress_channel && self.warn.is_some()
    }

    /// Whether the engine reads its progress.
    pub(crate) fn is_followed(&self) -> bool {
        let is_captured = self.terminal.is_none() && [self.stdout, self.stderr].contains(&Output::Capture);
        is_captured || self.progress_channel
    }

    /// Refuses to start below this tier.
    ///
    /// ```
    /// use sandtimer::{Engine, Error, Spec, Tier};
    ///
    /// match Engine::new()?.run_blocking(Spec::command(["true"]).require(Tier::T3)) {
    ///     Ok(outcome) => assert_eq!(outcome.isolation.tier, Tier::T3),
    ///     // This host gives less, and nothing has run.
    ///     Err(error) => assert!(matches!(error, Error::Refused(_))),
    /// }
    /// # Ok::<(), sandtimer::Error>(())
    /// ```
    pub fn require(mut self, tier: Tier) -> Self {
        self.require.tier = Some(tier);
        self
    }
}
