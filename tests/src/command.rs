//! `sandtimer run`, as a user types it, with a hard stop of the test's own.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::outcome::Outcome;
use crate::process::{FinishedProcess, StartedProcess, new_marker, start};

/// The binary under test: `SANDTIMER_BIN`, else the newer of the workspace's release and debug
/// builds.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn sandtimer() -> PathBuf {
    if let Some(path) = std::env::var_os("SANDTIMER_BIN") {
        return PathBuf::from(path);
    }
    let target = hostile().parent().and_then(Path::parent).map(Path::to_path_buf).unwrap_or_default();
    let builds = ["release", "debug"].map(|profile| target.join(profile).join("sandtimer"));
    let age = |path: &PathBuf| path.metadata().and_then(|facts| facts.modified()).ok();
    let newest = builds.iter().filter(|path| path.exists()).max_by_key(|path| age(path));
    let missing =
        || panic!("no sandtimer in {} (build sandtimer-cli, or set SANDTIMER_BIN)", target.display());
    newest.cloned().unwrap_or_else(missing)
}

/// The program that misbehaves, which cargo builds beside every test.
///
/// # Panics
/// When the test does not run from a target directory.
#[must_use]
pub fn hostile() -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    let sibling = own.parent().and_then(Path::parent).map(|directory| directory.join("hostile"));
    sibling.filter(|path| path.exists()).unwrap_or_else(|| panic!("no hostile beside {}", own.display()))
}

/// The inode name of this process's pid namespace, which no payload may take for a cage.
#[must_use]
pub fn host_pid_namespace() -> OsString {
    std::fs::read_link("/proc/self/ns/pid").map(Into::into).unwrap_or_default()
}

/// The arguments of `hostile` with its marker and its longest life.
#[must_use]
pub fn hostile_arguments(marker: &str, life: Duration, payload: &[String]) -> Vec<OsString> {
    let seconds = life.as_secs().max(1).to_string();
    let mut list: Vec<OsString> = vec!["--life".into(), seconds.into(), "--marker".into(), marker.into()];
    list.extend(["--host-pid-namespace".into(), host_pid_namespace()]);
    list.extend(payload.iter().map(OsString::from));
    list
}

/// A user without privileges, and copies of the binaries where they can be executed: a target
/// directory often lies below a home that only its owner enters.
#[derive(Debug)]
pub struct Visitor {
    pub user: u32,
    directory: TempDir,
}

impl Visitor {
    /// # Panics
    /// When the binaries cannot be copied.
    #[must_use]
    pub fn new(user: u32) -> Self {
        let directory =
            tempfile::Builder::new().prefix("st-visitor-").tempdir().expect("a temporary directory");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("own directory");
        for (name, binary) in [("sandtimer", sandtimer()), ("hostile", hostile())] {
            let copied = std::fs::copy(&binary, directory.path().join(name));
            copied.unwrap_or_else(|error| panic!("copy {}: {error}", binary.display()));
        }
        Visitor { user, directory }
    }

    /// The copy of `name`.
    #[must_use]
    pub fn binary(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// One invocation, before it is made.
#[derive(Debug)]
pub struct RunInvocation {
    /// Where it is started: a fresh directory that anybody may read.
    pub directory: TempDir,
    pub marker: String,
    pub hard_stop: Duration,
    pub life: Duration,
    pub input: Vec<u8>,
    /// Layers to leave out, for negative controls.
    pub without: Vec<String>,
    /// The user the command line itself runs as, where not the test's.
    user: Option<u32>,
    /// Where the binaries are, where not in the target directory.
    copies: Option<PathBuf>,
    flags: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    command: Vec<OsString>,
}

impl Default for RunInvocation {
    fn default() -> Self {
        RunInvocation::new()
    }
}

impl RunInvocation {
    /// # Panics
    /// When no temporary directory can be made.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("st-run-").tempdir().expect("a temporary directory");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("own directory");
        RunInvocation {
            directory,
            marker: new_marker(),
            hard_stop: Duration::from_secs(60),
            life: Duration::from_secs(45),
            input: vec![],
            without: vec![],
            user: None,
            copies: None,
            flags: vec![],
            environment: vec![],
            command: vec![],
        }
    }

    #[must_use]
    pub fn flags<T: AsRef<OsStr>>(mut self, flags: &[T]) -> Self {
        self.flags.extend(flags.iter().map(|flag| flag.as_ref().into()));
        self
    }

    #[must_use]
    pub fn environment(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.as_ref().into(), value.as_ref().into()));
        self
    }

    #[must_use]
    pub fn command<T: AsRef<OsStr>>(mut self, command: &[T]) -> Self {
        self.command = command.iter().map(|part| part.as_ref().into()).collect();
        self
    }

    /// The command is the misbehaving program.
    #[must_use]
    pub fn hostile<T: AsRef<str>>(mut self, payload: &[T]) -> Self {
        let payload: Vec<String> = payload.iter().map(|part| part.as_ref().into()).collect();
        self.command = vec![self.binary("hostile", hostile).into()];
        self.command.extend(hostile_arguments(&self.marker, self.life, &payload));
        self
    }

    #[must_use]
    pub fn without<T: AsRef<str>>(mut self, layers: &[T]) -> Self {
        self.without.extend(layers.iter().map(|layer| layer.as_ref().into()));
        self
    }

    /// The command line runs as another user, from copies that this user can reach.
    #[must_use]
    pub fn by(mut self, visitor: &Visitor) -> Self {
        self.user = Some(visitor.user);
        self.with_binaries_of(visitor).environment("HOME", visitor.directory.path())
    }

    /// With a visitor's copies of the binaries, for those who see the host's files as they are.
    #[must_use]
    pub fn with_binaries_of(mut self, visitor: &Visitor) -> Self {
        self.copies = Some(visitor.directory.path().into());
        self
    }

    fn binary(&self, name: &str, built: fn() -> PathBuf) -> PathBuf {
        self.copies.as_ref().map_or_else(built, |copies| copies.join(name))
    }

    /// The invocation as it is.
    #[must_use]
    pub fn build(&self) -> Command {
        let mut command = Command::new(self.binary("sandtimer", sandtimer));
        command.arg("run").args(&self.flags).current_dir(self.directory.path());
        for layer in &self.without {
            command.args(["--without", layer]).env("SANDTIMER_UNSAFE_TESTING", "1");
        }
        if !self.command.is_empty() {
            command.arg("--").args(&self.command);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    #[must_use]
    pub fn start(&self) -> StartedProcess {
        start(&mut self.build(), self.input.clone(), self.hard_stop)
    }

    #[must_use]
    pub fn finish(&self) -> FinishedProcess {
        self.start().finish()
    }

    /// Runs with `--json` and reads the Outcome.
    ///
    /// # Errors
    /// What was wrong with the invocation or with what it printed.
    pub fn outcome(mut self) -> Result<(Outcome, FinishedProcess), String> {
        self.flags.insert(0, "--json".into());
        let finished = self.finish();
        read_outcome(finished)
    }
}

/// The Outcome a finished `--json` invocation printed.
///
/// # Errors
/// When its hard stop ended it, or it printed no Outcome, or its exit code does not fit the ending.
pub fn read_outcome(finished: FinishedProcess) -> Result<(Outcome, FinishedProcess), String> {
    let describe = |what: &str| format!("{what}; exit {:?}, stderr: {}", finished.code(), finished.errors());
    if finished.status.is_none() {
        return Err(describe("the command line did not end by itself before the test's hard stop"));
    }
    let outcome =
        Outcome::parse(&finished.text()).map_err(|error| describe(&format!("no Outcome: {error}")))?;
    if let Some(expected) = outcome.expected_exit()
        && finished.code() != Some(expected)
    {
        return Err(describe(&format!("ending '{}' must exit {expected}", outcome.ending())));
    }
    Ok((outcome, finished))
}

/// Runs `hostile` bare: bounded, unsandboxed. For payloads that leave the host as it is.
#[must_use]
pub fn bare(payload: &[String], user: Option<u32>) -> FinishedProcess {
    let visitor = user.map(Visitor::new);
    let binary = visitor.as_ref().map_or_else(hostile, |visitor| visitor.binary("hostile"));
    let mut command = Command::new(binary);
    command.args(hostile_arguments(&new_marker(), Duration::from_secs(10), payload));
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    start(&mut command, vec![], Duration::from_secs(15)).finish()
}
