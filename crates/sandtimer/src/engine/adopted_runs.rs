//! Runs whose processes another part of the program sets up: the engine limits, watches, ends and
//! proves, and isolates nothing.
//!
//! The part brings a process with the messages of a sandbox's init (`sandtimer_os::wire`), adopts
//! every orphan of the run and sweeps what is left. The engine starts it, in control groups.

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::program::StepProgram;

use super::error::Error;
use super::known_files::KnownFiles;
use super::opened::{OpenedRun, close, open};
use super::spawn::{Jail, abandon};
use super::start::{finish, process_limits};
use super::streams::RunStreams;
use super::{Engine, Inner, Output, Run, Spec};
use crate::isolate::cgroup::{Slot, SlotLimits};
use crate::isolate::files::FilesPlan;
use crate::isolate::plan::{Plan, ProcessLimits};
use crate::limits::Key;
use crate::model::{Degradation, KillClass, LimitKind, Path as RunPath, Tier};

/// A process that is to be a run's init, still without the run.
#[derive(Debug)]
pub struct AdoptedInit {
    /// The engine's socket.
    pub control: OwnedFd,
    /// Readable once the process has ended.
    pub pidfd: OwnedFd,
    /// How the run is ended where there is no control group.
    pub kill: KillClass,
    /// A process of the run's own setup is in its groups, and is not counted.
    pub has_uncounted: bool,
    /// The kernel counts its user's processes apart from others of that user.
    pub has_own_users: bool,
    /// Whether its isolation is as applied: one line for the report.
    pub layers: String,
}

/// What a run begins with.
#[derive(Debug)]
pub struct StartSettings<'a> {
    /// The v2 group to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// `tasks` files of v1 groups to enter.
    pub tasks: &'a [OwnedFd],
    /// In place of stdout and stderr, where the run's owner reads them.
    pub outputs: [Option<BorrowedFd<'a>>; 2],
    /// Nanoseconds from the start of the command, `u64::MAX` for none, and from then until all of
    /// it must be dead.
    pub wall: u64,
    /// Nanoseconds from the wall-clock limit until the whole tree must be dead; 0 kills it at the
    /// limit.
    pub grace: u64,
    /// Limits that its processes put on themselves.
    pub limits: ProcessLimits,
}

impl Engine {
    /// Runs what `adopted` sets up; `begin` has it start. Of the spec only limits, requirements and
    /// outputs count: stdin and what is not piped are what the process has.
    ///
    /// # Errors
    /// As [`Engine::start`], and what `begin` returns.
    pub fn adopt(
        &self,
        spec: Spec,
        adopted: AdoptedInit,
        begin: impl FnOnce(&StartSettings<'_>) -> io::Result<()>,
    ) -> Result<Run, Error> {
        let inner = &self.inner;
        let opened = open(inner, &spec)?;
        let scope = opened.scope;
        adopt(inner, spec, opened, adopted, begin).inspect_err(|_| close(inner, scope))
    }
}

fn adopt(
    inner: &Arc<Inner>,
    mut spec: Spec,
    opened: OpenedRun,
    adopted: AdoptedInit,
    begin: impl FnOnce(&StartSettings<'_>) -> io::Result<()>,
) -> Result<Run, Error> {
    let taken = inner.pool.take().map_err(Error::system("cannot make the run's control groups"))?;
    let mut slot = taken.ok_or(Error::Full(super::CAPACITY))?;
    let slot_index = slot.index;
    // The command may share files and sockets with any process of the host.
    inner.pool.note_shared(slot_index);
    let (plan, limits) = plan(&opened, &mut slot, &adopted);
    let tasks = slot.take_task_files();
    // Where no output is read nothing is opened, not even /dev/null: a sandbox may show no devices.
    let has_pipes = [spec.stdout, spec.stderr].iter().any(|kind| *kind != Output::Null);
    let made = match has_pipes {
        true => RunStreams::make(inner, &mut spec, &opened.effective),
        false => Ok(RunStreams::none()),
    };
    let begun = made.and_then(|streams| {
        let inside = has_pipes.then(|| streams.inside());
        let piped = |kind: Output, number: usize| {
            inside.filter(|_| kind != Output::Null).map(|inside| inside[number])
        };
        let settings = StartSettings {
            cgroup: slot.unified(),
            tasks: &tasks,
            outputs: [piped(spec.stdout, 1), piped(spec.stderr, 2)],
            wall: opened.effective.get(LimitKind::Wall).map_or(u64::MAX, |effect| effect.value),
            grace: opened.effective.get(Key::Grace).map_or(0, |effect| effect.value),
            limits,
        };
        // Before anything runs: the enforcer watches from the start.
        inner.armed();
        begin(&settings).map_err(Error::system("cannot begin the run"))?;
        Ok(streams)
    });
    let streams = match begun {
        Ok(streams) => streams,
        Err(error) => {
            let AdoptedInit { control, pidfd, .. } = adopted;
            drop(control);
            abandon(&slot, std::os::fd::AsFd::as_fd(&pidfd));
            inner.pool.give_back(slot_index, None);
            return Err(error);
        }
    };
    let jail = Jail {
        slot,
        control: Arc::new(adopted.control.into()),
        pidfd: Arc::new(adopted.pidfd),
        plan,
        files: Arc::new(KnownFiles::new(no_files())),
        private: None,
        spawned_at: monotonic_nanoseconds(),
        path: RunPath::Exec,
        namespace: None,
        network: None,
        shown: None,
        ptys: None,
        memory_file: None,
        is_adopted: true,
        sandbox: None,
    };
    Ok(finish(inner, jail, opened, &spec, streams, None))
}

/// Limits the slot; what is reported of the run's isolation, and the limits that its processes put
/// on themselves.
fn plan(opened: &OpenedRun, slot: &mut Slot, adopted: &AdoptedInit) -> (Plan, ProcessLimits) {
    let value = |kind: LimitKind| opened.effective.get(kind).map(|effect| effect.value);
    let mut limits = process_limits(&opened.effective);
    let mut degraded = vec![Degradation { layer: "isolation".to_owned(), reason: adopted.layers.clone() }];
    // A slot lets one process more into its groups than its limit: its init, which is outside of
    // these.
    let others = u64::from(!adopted.has_uncounted);
    let processes = value(LimitKind::Processes).map(|most| most.saturating_sub(others).max(1));
    let refused = slot.limit(SlotLimits { memory_bytes: value(LimitKind::Memory), processes });
    let holds = |what: &str| slot.has_controllers() && !refused.contains(&what);
    if holds("memory") {
        limits.memory_bytes = None;
    } else if limits.memory_bytes.is_some() {
        let reason = "no control group holds it: it is put on each process by itself".to_owned();
        degraded.push(Degradation { layer: "memory limit".to_owned(), reason });
    }
    if holds("processes") {
        limits.processes = None;
    } else if limits.processes.is_some() && !adopted.has_own_users {
        limits.processes = None;
        let reason =
            "no control group holds it, and the kernel would count all processes of the user".to_owned();
        degraded.push(Degradation { layer: "process limit".to_owned(), reason });
    }
    let kill = if slot.kill_file().is_some() { KillClass::K3 } else { adopted.kill };
    let plan = Plan {
        flags: 0,
        program: StepProgram::new(),
        optional: Vec::new(),
        tier: Tier::T0,
        kill,
        degraded,
        idmapped: Vec::new(),
        names: Vec::new(),
    };
    (plan, limits)
}

fn no_files() -> FilesPlan {
    FilesPlan {
        mounts: Vec::new(),
        cwd: PathBuf::from("/"),
        executable: None,
        path_variable: OsString::new(),
        environment: Vec::new(),
        notes: Vec::new(),
        gpus: None,
    }
}
