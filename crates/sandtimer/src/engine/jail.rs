//! Live jails, and the runs in them: one for a command or a call, one after the other for a
//! context.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::process::Signal;
use sandtimer_os::control::InitControl;

use super::follow::ProgressFollower;
use super::inner::Inner;
use super::opened::OpenedRun;
use super::sandboxes::{Sandbox, SandboxUse};
use super::spawn::Jail;
use super::spec::Spec;
use crate::isolate::cgroup::Slot;
use crate::isolate::files::NoteKind;
use crate::isolate::networks::LentNetwork;
use crate::isolate::plan::StepName;
use crate::isolate::ptys::PtyShare;
use crate::limits::{EffectiveLimits, Key, nanoseconds};
use crate::model::{Isolation, LimitKind, Path as RunPath};
use crate::supervise::run::WatchdogId;
use crate::supervise::run::{HeldNamespaces, Job, PrivateDirectory, SharedRun};

/// A live jail, as the runs in it share it.
#[derive(Debug)]
pub(super) struct JailHandle {
    pub control: Arc<InitControl>,
    pub pidfd: Arc<OwnedFd>,
    pub slot: Arc<Slot>,
    pub isolation: Isolation,
    names: Vec<StepName>,
    optional: Vec<(u64, &'static str)>,
    missing: Vec<String>,
    hidden: Vec<String>,
    shown: Option<WatchdogId>,
    /// Whether it can make internet sockets.
    has_network: bool,
    pub spawned_at: u64,
    pub path: RunPath,
    is_adopted: bool,
}

impl JailHandle {
    /// Splits a jail into what stays for later runs and what ends with its first run.
    pub(super) fn of(jail: Jail) -> (Self, JailResources) {
        let notes = |about_the_directory: bool| {
            let notes = jail.files.notes.iter();
            let wanted =
                notes.filter(|note| (note.kind == NoteKind::CurrentDirectory) == about_the_directory);
            wanted.map(|note| note.text.clone()).collect()
        };
        let (missing, hidden) = (notes(true), notes(false));
        let isolation = Isolation {
            tier: jail.plan.tier,
            kill: jail.plan.kill,
            deadline_layers: Vec::new(),
            degraded: jail.plan.degraded,
        };
        let jail_handle = JailHandle {
            control: jail.control,
            pidfd: jail.pidfd,
            slot: Arc::new(jail.slot),
            isolation,
            names: jail.plan.names,
            optional: jail.plan.optional,
            missing,
            hidden,
            shown: jail.shown,
            has_network: jail.network.is_some(),
            spawned_at: jail.spawned_at,
            path: jail.path,
            is_adopted: jail.is_adopted,
        };
        let Jail { private, namespace, network, ptys, sandbox, .. } = jail;
        (jail_handle, JailResources { private, namespace, network, ptys, sandbox })
    }
}

/// What is held for a sandbox until it is dead.
#[derive(Debug, Default)]
pub(super) struct JailResources {
    pub private: Option<PrivateDirectory>,
    pub namespace: Option<OwnedFd>,
    pub network: Option<Arc<LentNetwork>>,
    pub ptys: Option<Arc<PtyShare>>,
    pub sandbox: Option<SandboxUse>,
}

/// A started sandbox as a run.
pub(super) fn running(
    inner: &Inner,
    jail: Jail,
    opened: OpenedRun,
    spec: &Spec,
    job: Option<Job>,
) -> Arc<SharedRun> {
    let (jail_handle, jail_resources) = JailHandle::of(jail);
    running_at(inner, &jail_handle, opened, spec, job, jail_resources)
}

/// Makes a run in a live jail.
pub(super) fn running_at(
    inner: &Inner,
    jail_handle: &JailHandle,
    opened: OpenedRun,
    spec: &Spec,
    job: Option<Job>,
    jail_resources: JailResources,
) -> Arc<SharedRun> {
    let follower = spec.is_followed().then(|| Arc::new(ProgressFollower::default()) as _);
    let effective = opened.effective;
    let deadline_layers = deadline_layers(inner, &effective);
    let denials = spec.sandbox.as_ref().and_then(|sandbox| sandbox.denials());
    Arc::new(SharedRun {
        id: opened.id,
        slot_index: jail_handle.slot.index,
        control: jail_handle.control.clone(),
        pidfd: jail_handle.pidfd.clone(),
        job,
        slot: jail_handle.slot.clone(),
        cell: opened.cell,
        wall: opened.wall,
        outer_wall: opened.outer_wall,
        grace: effective.get(Key::Grace).map_or(0, |effect| effect.value),
        requested_grace: opened.requested_grace,
        extended: Mutex::default(),
        warn: spec.warn.map(nanoseconds),
        warn_signal: spec.warn_signal.and_then(Signal::from_named_raw),
        notices: Mutex::default(),
        effective,
        sandbox_bound: spec.sandbox.as_ref().map(Sandbox::bound),
        scope: opened.scope_path,
        submitted_at: opened.submitted_at,
        spawned_at: jail_handle.spawned_at,
        started_at: AtomicU64::new(0),
        last_output: AtomicU64::new(0),
        outputs: OnceLock::new(),
        last_inspection: Mutex::default(),
        moves: Mutex::default(),
        is_to_be_measured: AtomicBool::new(false),
        is_killed_one_by_one: AtomicBool::new(false),
        stacks: Mutex::default(),
        isolation: Isolation { deadline_layers, ..jail_handle.isolation.clone() },
        late_degraded: Mutex::default(),
        step_names: jail_handle.names.clone(),
        optional_steps: jail_handle.optional.clone(),
        path: jail_handle.path,
        network: spec.network || jail_handle.has_network,
        lacks_network: !spec.network && denials.is_none(),
        denials,
        missing: jail_handle.missing.clone(),
        hidden: jail_handle.hidden.clone(),
        sweeps_itself: jail_handle.is_adopted || inner.sweeps_itself(),
        shown: jail_handle.shown,
        on_output_limit_end: spec.end_on_output_limit,
        follower,
        stall_by_progress: spec.stall_by_progress,
        private_directory: jail_resources.private,
        namespaces: Mutex::new(HeldNamespaces {
            mounts: jail_resources.namespace,
            _network: jail_resources.network,
            _ptys: jail_resources.ptys,
            _sandbox: jail_resources.sandbox.map(|sandbox| Box::new(sandbox) as _),
        }),
        waiting: Arc::default(),
    })
}

fn deadline_layers(inner: &Inner, effective: &EffectiveLimits) -> Vec<String> {
    let mut layers = vec!["enforcer".to_owned()];
    let armed = inner.armed();
    if armed.real_time.is_ok() {
        layers.push("real-time enforcer".to_owned());
    }
    layers.push("init timer".to_owned());
    if inner.enforcer.is_watched() {
        layers.push("watchdog".to_owned());
    }
    layers.push("liveness socket".to_owned());
    layers.push("parent death signal".to_owned());
    if effective.get(LimitKind::Cpu).is_some() {
        layers.push("RLIMIT_CPU".to_owned());
    }
    layers
}
