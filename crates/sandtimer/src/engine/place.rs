//! Sandboxes that stand, and the runs in them: one for a command or a call, one after the other for a context.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::process::Signal;
use sandtimer_os::control::Control;

use super::follow::Following;
use super::opened::Opened;
use super::sandboxes::SandboxUse;
use super::start::Sandbox;
use super::{Inner, Spec};
use crate::isolate::cgroup::Slot;
use crate::isolate::files::NoteKind;
use crate::isolate::networks::LentNetwork;
use crate::isolate::plan::StepName;
use crate::isolate::ptys::PtyShare;
use crate::limits::{Effective, Key, nanoseconds};
use crate::model::{Isolation, LimitKind, Path as RunPath};
use crate::supervise::orders::Shown;
use crate::supervise::run::{Job, Namespaces, PrivateDirectory, Running};

/// A sandbox that stands, as the runs in it share it.
#[derive(Debug)]
pub(super) struct Place {
    pub control: Arc<Control>,
    pub pidfd: Arc<OwnedFd>,
    pub slot: Arc<Slot>,
    pub isolation: Isolation,
    names: Vec<StepName>,
    optional: Vec<(u64, &'static str)>,
    missing: Vec<String>,
    hidden: Vec<String>,
    shown: Option<Shown>,
    /// Whether it can make internet sockets.
    has_network: bool,
    pub spawned_at: u64,
    pub path: RunPath,
    is_adopted: bool,
}

impl Place {
    /// What a sandbox is, beside what ends with its first run.
    pub(super) fn of(sandbox: Sandbox) -> (Self, Belongings) {
        let notes = |about_the_directory: bool| {
            let notes = sandbox.files.notes.iter();
            let wanted =
                notes.filter(|note| (note.kind == NoteKind::CurrentDirectory) == about_the_directory);
            wanted.map(|note| note.text.clone()).collect()
        };
        let (missing, hidden) = (notes(true), notes(false));
        let isolation = Isolation {
            tier: sandbox.plan.tier,
            kill: sandbox.plan.kill,
            deadline_layers: Vec::new(),
            degraded: sandbox.plan.degraded,
        };
        let place = Place {
            control: sandbox.control,
            pidfd: sandbox.pidfd,
            slot: Arc::new(sandbox.slot),
            isolation,
            names: sandbox.plan.names,
            optional: sandbox.plan.optional,
            missing,
            hidden,
            shown: sandbox.shown,
            has_network: sandbox.network.is_some(),
            spawned_at: sandbox.spawned_at,
            path: sandbox.path,
            is_adopted: sandbox.is_adopted,
        };
        let Sandbox { private, namespace, network, ptys, sandbox, .. } = sandbox;
        (place, Belongings { private, namespace, network, ptys, sandbox })
    }
}

/// What is held for a sandbox until it is dead.
#[derive(Debug, Default)]
pub(super) struct Belongings {
    pub private: Option<PrivateDirectory>,
    pub namespace: Option<OwnedFd>,
    pub network: Option<Arc<LentNetwork>>,
    pub ptys: Option<Arc<PtyShare>>,
    pub sandbox: Option<SandboxUse>,
}

/// A started sandbox as a run.
pub(super) fn running(
    inner: &Inner,
    sandbox: Sandbox,
    opened: Opened,
    spec: &Spec,
    job: Option<Job>,
) -> Arc<Running> {
    let (place, belongings) = Place::of(sandbox);
    running_at(inner, &place, opened, spec, (job, belongings))
}

/// A run in a sandbox that stands.
pub(super) fn running_at(
    inner: &Inner,
    place: &Place,
    opened: Opened,
    spec: &Spec,
    (job, belongings): (Option<Job>, Belongings),
) -> Arc<Running> {
    let follower = spec.is_followed().then(|| Arc::new(Following::default()) as _);
    let effective = opened.effective;
    let deadline_layers = deadline_layers(inner, &effective);
    let denials = spec.sandbox.as_ref().and_then(|sandbox| sandbox.denials());
    Arc::new(Running {
        id: opened.id,
        row: place.slot.row,
        control: place.control.clone(),
        pidfd: place.pidfd.clone(),
        job,
        slot: place.slot.clone(),
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
        scope: opened.place,
        submitted_at: opened.submitted_at,
        spawned_at: place.spawned_at,
        started_at: AtomicU64::new(0),
        last_output: AtomicU64::new(0),
        outputs: OnceLock::new(),
        looked: Mutex::default(),
        moves: Mutex::default(),
        is_to_be_measured: AtomicBool::new(false),
        is_killed_one_by_one: AtomicBool::new(false),
        stacks: Mutex::default(),
        isolation: Isolation { deadline_layers, ..place.isolation.clone() },
        late_degraded: Mutex::default(),
        step_names: place.names.clone(),
        optional_steps: place.optional.clone(),
        path: place.path,
        network: spec.network || place.has_network,
        lacks_network: !spec.network && denials.is_none(),
        denials,
        missing: place.missing.clone(),
        hidden: place.hidden.clone(),
        sweeps_itself: place.is_adopted || inner.sweeps_itself(),
        shown: place.shown,
        on_output_limit_end: spec.end_on_output_limit,
        follower,
        stall_by_progress: spec.stall_by_progress,
        private_directory: belongings.private,
        namespaces: Mutex::new(Namespaces {
            mounts: belongings.namespace,
            _network: belongings.network,
            _ptys: belongings.ptys,
            _sandbox: belongings.sandbox.map(|sandbox| Box::new(sandbox) as _),
        }),
        waiting: Arc::default(),
    })
}

fn deadline_layers(inner: &Inner, effective: &Effective) -> Vec<String> {
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
