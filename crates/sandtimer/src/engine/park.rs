//! Sandboxes built ahead of need: sealed, waiting for a command.
//!
//! Everything a run is walled in by is in force before the command is known. Starting costs one
//! message and the exec.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process;
use sandtimer_os::program::StepProgram;
use sandtimer_os::socket;
use sandtimer_os::wire::{notice, op, order};

use super::error::Error;
use super::known_files::KnownFiles;
use super::memory_file::MemoryFile;
use super::opened;
use super::sandboxes::SandboxError;
use super::spawn::{self, Descriptors, Jail, null};
use super::start::{self, HeldSlot};
use super::streams::RunStreams;
use super::{Engine, Inner, Run, Spec};
use crate::isolate::plan::ProcessLimits;
use crate::limits::Key;
use crate::model::{LimitKind, Path};
use crate::supervise::run::{PrivateDirectory, group_is_gone};

/// How long building may take. Infrastructure: always finite.
const PARK_LIMIT_MILLISECONDS: u64 = 60_000;

/// A sealed sandbox without a command. Dropping it ends it.
#[derive(Debug)]
pub struct ParkedJail {
    inner: Arc<Inner>,
    jail: Option<Jail>,
    dispatch: OwnedFd,
    files: Arc<KnownFiles>,
    shape: JailShape,
}

/// What of a spec is built into a sandbox and cannot be changed afterwards.
#[derive(Debug, PartialEq)]
struct JailShape {
    command: std::ffi::OsString,
    workspaces: Vec<std::path::PathBuf>,
    workspace: Option<std::path::PathBuf>,
    workspace_link: Option<std::path::PathBuf>,
    temporary: Option<std::path::PathBuf>,
    working_directory: Option<std::path::PathBuf>,
    network: bool,
    gpu: bool,
    umask: Option<u32>,
    limits: ProcessLimits,
    memory: Option<u64>,
    processes: Option<u64>,
}

impl JailShape {
    fn of(spec: &Spec, effective: &crate::limits::EffectiveLimits) -> Self {
        let value = |kind: LimitKind| effective.get(kind).map(|effect| effect.value);
        JailShape {
            command: spec.command[0].clone(),
            workspaces: spec.workspaces.clone(),
            workspace: spec.workspace.clone(),
            workspace_link: spec.workspace_link.clone(),
            temporary: spec.temporary.clone(),
            working_directory: spec.working_directory.clone(),
            network: spec.network,
            gpu: spec.gpu,
            umask: spec.umask,
            limits: ProcessLimits { cpu_seconds: None, ..start::process_limits(effective) },
            memory: value(LimitKind::Memory),
            processes: value(LimitKind::Processes),
        }
    }
}

impl Engine {
    /// Builds a sandbox for commands like `spec`'s: the same program, files, network, memory,
    /// processes, disk and open files. Arguments, environment, stdin and the limits of time may
    /// differ. Blocks until it is sealed.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn park(&self, spec: &Spec) -> Result<ParkedJail, Error> {
        if spec.sandbox.is_some() {
            let remedy = "start the run without parking a jail for it";
            return Err(SandboxError::Conflict { field: "sandbox", remedy }.into());
        }
        let opened = opened::open(&self.inner, spec)?;
        opened::close(&self.inner, opened.scope);
        let mut held = HeldSlot::take(&self.inner, spec, "cannot make the run's control groups")?;
        let slot_index = held.slot.index;
        let shape = JailShape::of(spec, &opened.effective);
        let built = build(&self.inner, spec, &opened.effective, &mut held);
        let (control, pidfd, dispatch, prepared, spawned_at) = match built {
            Ok(built) => built,
            Err(error) => {
                drop(held);
                self.inner.pool.give_back(slot_index, None);
                return Err(error);
            }
        };
        let files = prepared.files.clone();
        let jail = Some(Jail { spawned_at, ..prepared.started(held.slot, control, pidfd, Path::Parked) });
        let mut parked = ParkedJail { inner: self.inner.clone(), jail, dispatch, files, shape };
        if let Some(jail) = parked.jail.as_mut() {
            wait_sealed(jail)?;
            // Building the jail does not count against the run's limits.
            jail.slot.start_counting();
        }
        Ok(parked)
    }
}

/// Namespaces of an init that serves, for a zygote's child to enter.
#[derive(Debug, Default)]
pub(super) struct JailNamespaces {
    pub pids: Option<OwnedFd>,
    pub users: Option<OwnedFd>,
    pub others: Vec<OwnedFd>,
}

/// Waits for init's message that the jail is built; steps that failed become part of the report.
///
/// Returns the namespaces that a serving init has sent, besides its mounts.
pub(super) fn wait_sealed(jail: &mut Jail) -> Result<JailNamespaces, Error> {
    const MOUNTS: u64 = 0x0002_0000;
    const USERS: u64 = 0x1000_0000;
    const PIDS: u64 = 0x2000_0000;
    let mut namespaces = JailNamespaces::default();
    let doing = "cannot build a parked sandbox";
    loop {
        if !process::wait_readable(jail.control.as_fd(), PARK_LIMIT_MILLISECONDS) {
            return Err(Error::System { doing, source: std::io::ErrorKind::TimedOut.into() });
        }
        match process::notice(&jail.control).map_err(Error::system(doing))? {
            Some((notice, Some(file))) if notice.kind == notice::MEMORY_FILE => {
                jail.memory_file = Some(Arc::new(MemoryFile::new(file)));
            }
            Some((notice, Some(namespace))) if notice.a == MOUNTS => jail.namespace = Some(namespace),
            Some((notice, Some(namespace))) if notice.a == USERS => namespaces.users = Some(namespace),
            Some((notice, Some(namespace))) if notice.a == PIDS => namespaces.pids = Some(namespace),
            Some((_, Some(namespace))) => namespaces.others.push(namespace),
            Some((notice, None)) if notice.kind == notice::PARKED => return Ok(namespaces),
            Some((notice, None)) if notice.kind == notice::STEP_FAILED => {
                let error = std::io::Error::from_raw_os_error(notice.b as i32);
                let name = jail.plan.names.get(notice.a as usize).map_or("a step", |name| name);
                if notice.c == 1 {
                    let source = std::io::Error::other(format!("{name}: {error}"));
                    return Err(Error::System { doing, source });
                }
                let degraded =
                    crate::model::Degradation { layer: name.to_owned(), reason: error.to_string() };
                jail.plan.degraded.push(degraded);
            }
            Some(_) => {}
            None => {
                return Err(Error::System { doing, source: std::io::ErrorKind::UnexpectedEof.into() });
            }
        }
    }
}

type ParkedJailParts = (OwnedFd, OwnedFd, OwnedFd, spawn::PreparedJail, u64);

fn build(
    inner: &Inner,
    spec: &Spec,
    effective: &crate::limits::EffectiveLimits,
    held: &mut HeldSlot,
) -> Result<ParkedJailParts, Error> {
    let mut prepared = start::prepare(inner, spec, effective, held)?;
    let socket = || socket::pair().map_err(Error::system("cannot make a socket"));
    let (control, init_control) = socket()?;
    let (dispatch, parked) = socket()?;
    let index = prepared.numbered().len() as u64;
    prepared.plan.program.push(op::PARK, true, &[index], &[]);
    prepared.plan.names.push("wait for a command".into());
    let null = null()?;
    let spawned_at = monotonic_nanoseconds();
    let descriptors = Descriptors {
        slot: &held.slot,
        stdio: [null.as_fd(); 3],
        control: init_control.as_fd(),
        given: &[parked.as_fd()],
    };
    let spawned = spawn::spawn(inner, spec, &prepared, &descriptors)?;
    Ok((control, spawned.pidfd, dispatch, prepared, spawned_at))
}

impl ParkedJail {
    /// Starts a command in it. `spec` must be like the one it was parked for; see [`Engine::park`].
    ///
    /// # Errors
    /// If it is not, if the jail has died while it was parked, and as [`Engine::start`].
    pub fn start(mut self, mut spec: Spec) -> Result<Run, Error> {
        let inner = self.inner.clone();
        let opened = opened::open(&inner, &spec)?;
        let scope = opened.scope;
        let started = (|| {
            if JailShape::of(&spec, &opened.effective) != self.shape
                || spec.terminal.is_some()
                || spec.progress_channel
            {
                let reason = "program, files, umask, network, GPU, memory, processes, disk and open files must be those it was parked for, \
                              and there is no room for a terminal or a progress channel";
                let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, reason);
                return Err(Error::System { doing: "cannot use the parked sandbox", source });
            }
            self.check_group()?;
            // Before its stdin is taken from it.
            let environment = self.environment(&spec);
            let streams = RunStreams::make(&inner, &mut spec, &opened.effective)?;
            self.dispatch(&spec, &environment, &opened.effective, &streams)?;
            let Some(jail) = self.jail.take() else { return Err(Error::Full(0)) };
            Ok(start::finish(&inner, jail, opened, &spec, streams, None))
        })();
        started.inspect_err(|_| opened::close(&inner, scope))
    }

    /// Fails if the jail's v2 group is gone: a jail may be parked for hours, another program may
    /// remove the group in that time, and then nothing ends the jail as a whole.
    fn check_group(&self) -> Result<(), Error> {
        let Some(jail) = self.jail.as_ref() else { return Ok(()) };
        let doing = "cannot use the parked sandbox";
        if !group_is_gone(&jail.slot) {
            return Ok(());
        }
        let source = std::io::Error::new(std::io::ErrorKind::NotFound, "its control group was removed");
        Err(Error::System { doing, source })
    }

    fn environment(&self, spec: &Spec) -> Vec<(OsString, OsString)> {
        let private = self.jail.as_ref().and_then(|jail| jail.private.as_ref());
        start::environment(spec, &self.files, private.map(PrivateDirectory::path))
    }

    fn dispatch(
        &mut self,
        spec: &Spec,
        environment: &[(OsString, OsString)],
        effective: &crate::limits::EffectiveLimits,
        streams: &RunStreams,
    ) -> Result<(), Error> {
        let Some(jail) = self.jail.as_mut() else { return Err(Error::Full(0)) };
        jail.slot.begin_run();
        let mut program = StepProgram::new();
        let limits = start::process_limits(effective);
        if let Some(seconds) = limits.cpu_seconds {
            program.push(op::RLIMIT, true, &[0, seconds, seconds + 1], &[]);
        }
        if let Some(executable) = &self.files.executable {
            start::push_execute(&mut program, &spec.command, executable, environment, &[]);
        }
        let doing = "cannot use the parked sandbox";
        jail.spawned_at = monotonic_nanoseconds();
        let wall = effective.get(LimitKind::Wall).map_or(u64::MAX, |effect| effect.value);
        let grace = effective.get(Key::Grace).map_or(0, |effect| effect.value);
        process::send_command(&jail.control, order::CLOCK, 0, wall.saturating_add(grace))
            .map_err(Error::system(doing))?;
        process::dispatch(&self.dispatch, &program, streams.inside()).map_err(Error::system(doing))
    }
}

impl Drop for ParkedJail {
    fn drop(&mut self) {
        let Some(jail) = self.jail.take() else { return };
        if self.inner.is_a_copy() {
            // It is another process's.
            std::mem::forget((jail, self.inner.clone()));
            return;
        }
        let slot_index = jail.slot.index;
        if !jail.slot.kill_all() {
            // Gone already is as good.
            let _ = process::kill(jail.pidfd.as_fd());
        }
        process::wait_readable(jail.pidfd.as_fd(), 1000);
        process::reap(jail.pidfd.as_fd());
        let limits = jail.slot.limits();
        drop(jail);
        self.inner.pool.give_back(slot_index, limits);
    }
}
