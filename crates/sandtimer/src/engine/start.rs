//! From a Spec to a watched run.
//!
//! The order: its scope and limits (`opened`), files, row, descriptors, plan, launcher (`spawn`),
//! threads. Until the request to the launcher nothing exists that could remain; after it, the
//! enforcer owns the run.

mod checks;
mod command;
mod limits;

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::socket;

use checks::{check_user, check_workspace};
use command::candidates;
pub(super) use command::{PlanContext, push_execute, push_interpreter};
pub(super) use limits::process_limits;

pub(super) use super::environment::environment;
use super::error::Error;
use super::inner::Inner;
use super::jail;
use super::known_files::KnownFiles;
use super::opened::{OpenedRun, close, open};
use super::owners::{idmap_namespaces, unmapped_owner};
use super::plans;
use super::pool::CAPACITY;
use super::private_directory::private_directory;
use super::program_file::ProgramFile;
use super::run::Run;
use super::sandboxes::{SandboxError, SandboxUse, Visitor};
use super::spawn::{Descriptors, Jail, PreparedJail, abandon, spawn};
use super::spec::Spec;
use super::streams::RunStreams;
use crate::isolate::cgroup::{Slot, SlotLimits};
use crate::isolate::host::{HostCapabilities, NamespaceSupport};
use crate::isolate::lease::has_uids;
use crate::isolate::networks::{LentNetwork, NetworkUse};
use crate::isolate::plan::{
    self, Identity, InitClock, IsolationLayer, IsolationPolicy, Network, Plan, PlanRejection,
};
use crate::isolate::ptys::{self};
use crate::isolate::sandbox::USER_ID;
use crate::limits::{EffectiveLimits, Key};
use crate::model::{LimitKind, Path as RunPath, Tier};
use crate::supervise::at_once::RunHandoff;
use crate::supervise::deliveries::Attachment;
use crate::supervise::run::{Job, PrivateDirectory};

/// Files of a job are for all to read, and for itself to write.
pub(super) const USUAL_UMASK: u32 = 0o022;
/// Names the descriptor that a command can read notices of its limits from.
const NOTICE_VARIABLE: &str = "SANDTIMER_NOTICE_FD";
/// Names the descriptor that a command can report its progress to.
pub const PROGRESS_VARIABLE: &str = "SANDTIMER_PROGRESS_FD";

/// Starts a run.
pub(super) fn start(inner: &Arc<Inner>, mut spec: Spec) -> Result<Run, Error> {
    spec.network |= spec.sandbox.as_ref().is_some_and(|sandbox| sandbox.has_network_of_host());
    let opened = open(inner, &spec)?;
    let scope = opened.scope;
    begin(inner, spec, opened).inspect_err(|_| close(inner, scope))
}

fn begin(inner: &Arc<Inner>, spec: Spec, opened: OpenedRun) -> Result<Run, Error> {
    let slot = HeldSlot::take(inner, &spec, "cannot make the run's control groups")?;
    let slot_index = slot.slot.index;
    let mut holder = Some(slot);
    let result = begin_in(inner, spec, opened, &mut holder);
    if result.is_err() {
        if let Some(HeldSlot { slot, .. }) = holder {
            // A sandbox may have been started all the same: its control socket is closed, and
            // nothing of it stays.
            slot.kill_all();
        }
        inner.pool.give_back(slot_index, None);
    }
    result
}

/// As [`begin`]; leaves the slot in `holder` on an error before a process was in it.
fn begin_in(
    inner: &Arc<Inner>,
    mut spec: Spec,
    opened: OpenedRun,
    holder: &mut Option<HeldSlot>,
) -> Result<Run, Error> {
    let Some(held) = holder.as_mut() else { return Err(Error::Full(0)) };
    let mut prepared = prepare(inner, &spec, &opened.effective, held)?;
    let slot = &held.slot;
    let private = prepared.private.as_ref().map(PrivateDirectory::path);
    let open_files = process_limits(&opened.effective).open_files;
    let program = ProgramFile::take(&mut spec, private, open_files)?;
    append_command(&mut prepared, &mut spec, program.as_ref());
    let mut streams = RunStreams::make(inner, &mut spec, &opened.effective)?;
    let (control, init_control) = socket::pair().map_err(Error::system("cannot make the control socket"))?;
    let spawned_at = monotonic_nanoseconds();
    let program = program.iter().map(|program| program.text.as_fd());
    let given: Vec<_> = program.chain(streams.channels()).collect();
    let descriptors =
        Descriptors { slot, stdio: streams.inside(), control: init_control.as_fd(), given: &given };
    let spawned = spawn(inner, &spec, &prepared, &descriptors)?;
    if let Err(error) = streams.open_terminal() {
        drop(control);
        abandon(slot, spawned.pidfd.as_fd());
        return Err(error);
    }
    let Some(HeldSlot { slot, .. }) = holder.take() else { return Err(Error::Full(0)) };
    let jail = Jail { spawned_at, ..prepared.started(slot, control, spawned.pidfd, RunPath::Exec) };
    Ok(finish(inner, jail, opened, &spec, streams, None))
}

/// A slot that was taken for a run, and the sandbox that the run is in, held.
pub(super) struct HeldSlot {
    pub slot: Slot,
    /// There until the run is prepared.
    sandbox: Option<SandboxUse>,
}

impl HeldSlot {
    /// Takes a slot for a run of this spec: below its sandbox's, if that has limits as a whole.
    pub fn take(inner: &Inner, spec: &Spec, doing: &'static str) -> Result<Self, Error> {
        // First: it may have to be mounted.
        let sandbox = spec.sandbox.as_ref().map(|sandbox| sandbox.enter(Visitor::Run)).transpose()?;
        let taken = match sandbox.as_ref().and_then(SandboxUse::slot) {
            Some(above) => inner.pool.take_in(above),
            None => inner.pool.take(),
        };
        let slot = taken.map_err(Error::system(doing))?.ok_or(Error::Full(CAPACITY))?;
        Ok(HeldSlot { slot, sandbox })
    }
}

/// Limits the slot and plans the sandbox, up to the job's sealed process.
pub(super) fn prepare(
    inner: &Inner,
    spec: &Spec,
    effective: &EffectiveLimits,
    held: &mut HeldSlot,
) -> Result<PreparedJail, Error> {
    let clock = InitClock {
        wall: effective.get(LimitKind::Wall).map_or(u64::MAX, |effect| effect.value),
        grace: effective.get(Key::Grace).map_or(0, |effect| effect.value),
    };
    let seal = |plan: &mut Plan, context: &PlanContext<'_>| {
        plan::seal(plan, context.host, context.policy, context.tasks, clock);
    };
    Ok(prepare_to(inner, spec, effective, held, seal)?.0)
}

/// As [`prepare`], with another end than the sealing of init's own child.
pub(super) fn prepare_to<T>(
    inner: &Inner,
    spec: &Spec,
    effective: &EffectiveLimits,
    held: &mut HeldSlot,
    finish: impl FnOnce(&mut Plan, &PlanContext<'_>) -> T,
) -> Result<(PreparedJail, T), Error> {
    let value = |kind: LimitKind| effective.get(kind).map(|effect| effect.value);
    let HeldSlot { slot, sandbox } = held;
    let (slot_index, sandbox) = (slot.index, sandbox.take());
    let root = has_uids();
    let mut identity = root.then(|| Identity {
        job: inner.lease.uid(slot_index),
        init: inner.lease.init_uid(),
        owner: None,
    });
    let may_have = spec.terminal.is_none() && !spec.without_ptys && !spec.host_proc;
    let ptys = may_have.then(|| inner.ptys.take(spec.owner.clone()));
    let (ptys, lacking) = match ptys.transpose() {
        Ok(ptys) => (ptys.map(Arc::new), None),
        Err(reason) => (None, Some(reason)),
    };
    let most = ptys::most(spec.terminal.is_some(), ptys.as_deref());
    let files = match &sandbox {
        Some(sandbox) => Arc::new(KnownFiles::new(sandbox.files(spec.working_directory.as_deref(), most))),
        None => plans::plan_files_of(inner, spec, most)?,
    };
    let view = sandbox.as_ref().and_then(SandboxUse::view);
    if spec.shares_directory() {
        inner.pool.note_shared(slot_index);
    }
    // Only now: the launcher was being started until here.
    let host = inner.host()?;
    check_user(root, host)?;
    check_workspace(spec.workspace.is_some() || spec.temporary.is_some(), host)?;
    if let Some(view) = view {
        identity = view.uid.map(|uid| Identity {
            job: USER_ID,
            init: inner.lease.init_uid(),
            owner: Some((uid, uid)),
        });
        check_network(spec, host)?;
    } else if let Some(identity) = identity.as_mut().filter(|_| host.has_namespaces()) {
        identity.owner = unmapped_owner(inner, &files, *identity, slot_index)?;
    }
    let private = if host.has_namespaces() { None } else { Some(private_directory(inner, identity)?) };
    let plain = private.is_none() && spec.without.is_empty() && !spec.host_proc && sandbox.is_none();
    let template = match plain {
        true => inner.templates.lock().unwrap_or_else(PoisonError::into_inner).find(&files),
        false => None,
    };
    let refused = slot.limit(match spec.without.contains(&IsolationLayer::Cgroup) {
        true => SlotLimits { memory_bytes: None, processes: None },
        false => {
            SlotLimits { memory_bytes: value(LimitKind::Memory), processes: value(LimitKind::Processes) }
        }
    });
    let own = match &sandbox {
        Some(sandbox) if !spec.network => sandbox.network(),
        _ => lend_network(inner, spec, host)?.map(Arc::new),
    };
    let network = match (&own, &host.private_network) {
        _ if spec.network => Network::Host,
        (Some(own), _) => {
            Network::Own { loopback_error: own.loopback_error().map(|error| error.to_string()) }
        }
        (None, Err(reason)) => Network::Refused(reason.clone()),
        (None, Ok(())) => Network::Refused("it was left out".to_owned()),
    };
    let shown = shown_memory(inner, effective);
    let policy = IsolationPolicy {
        files: &files,
        network: &network,
        terminal: spec.terminal.as_ref().map(|terminal| terminal.outputs.is()),
        identity,
        limits: process_limits(effective),
        umask: spec.umask.unwrap_or(USUAL_UMASK),
        own_memory: Some(shown).filter(|shown| spec.is_pooled || *shown != inner.usual_memory()),
        is_pooled: spec.is_pooled,
        supervised: spec.supervised,
        is_live: spec.is_live,
        template,
        private: private.as_ref().map(PrivateDirectory::path),
        sandbox: view,
        without: &spec.without,
    };
    let tasks = slot.take_task_files();
    let mut plan = plan::plan(host, &policy, tasks.len());
    if let Some(reason) = lacking {
        plan.degraded.push(crate::model::Degradation { layer: "pseudo-terminals".to_owned(), reason });
    }
    for name in refused {
        let reason = format!("the controller refused the {name} limit");
        plan.degraded.push(crate::model::Degradation { layer: "cgroup limits".to_owned(), reason });
        plan.tier = plan.tier.min(Tier::T2);
    }
    check_requirement(spec, &plan)?;
    let finished = finish(&mut plan, &PlanContext { host, policy: &policy, tasks: tasks.len() });
    let idmaps = idmap_namespaces(inner, &plan.idmapped, identity, slot_index)?;
    Ok((
        PreparedJail { files, plan, template, private, network: own, ptys, tasks, idmaps, sandbox },
        finished,
    ))
}

/// The network namespace of a jail, if it is to have one.
fn lend_network(inner: &Inner, spec: &Spec, host: &HostCapabilities) -> Result<Option<LentNetwork>, Error> {
    let has_one =
        !spec.network && host.private_network.is_ok() && !spec.without.contains(&IsolationLayer::Net);
    let mut lent = has_one.then(|| inner.launchers.network(NetworkUse::Jail)).transpose()?;
    if let Some(lent) = lent.as_mut().filter(|_| spec.shares_directory()) {
        // By a socket in a directory that it shares, the run can give an open file of
        // /proc/self/net to another, which would read there what the next run does.
        lent.keep_from_pool();
    }
    Ok(lent)
}

/// The launcher of runs with the host's network is in a user namespace of its own where the engine
/// has no privileges.
fn check_network(spec: &Spec, host: &HostCapabilities) -> Result<(), Error> {
    let remedy = "run the engine as root for that, or start it without a sandbox";
    match spec.network && host.namespaces == NamespaceSupport::User {
        true => Err(SandboxError::Conflict { field: "network", remedy }.into()),
        false => Ok(()),
    }
}

/// Makes the run and hands it to the two threads. `job`: what its process is where a zygote made
/// that.
pub(super) fn finish(
    inner: &Arc<Inner>,
    jail: Jail,
    opened: OpenedRun,
    spec: &Spec,
    streams: RunStreams,
    job: Option<Job>,
) -> Run {
    let scope = opened.scope;
    let visitor = jail.sandbox.as_ref().and_then(SandboxUse::visitor);
    let running = jail::running(inner, jail, opened, spec, job);
    if let Some(visitor) = visitor {
        visitor.note(running.waiting.clone());
    }
    let spools = streams.spools();
    let (attachment, pipes) = streams.attach(running.clone());
    watch(inner, attachment);
    // The enforcer knows it: it can be ended.
    if let Some(sandbox) = &spec.sandbox {
        sandbox.note_run(&running, scope);
    }
    inner.disk.watch(&running, &spec.growing_directories(), &inner.enforcer);
    Run { inner: inner.clone(), running, scope, spools, pipes: Mutex::new(pipes) }
}

/// From here on the run is the two threads'.
pub(super) fn watch(inner: &Inner, attachment: Attachment) -> RunHandoff {
    let running = attachment.run.clone();
    let streams = inner.collector.attach(attachment);
    RunHandoff { ending: inner.enforcer.watch(running), streams }
}

/// The memory that a run is shown, in bytes: its limit, or the machine's.
pub(super) fn shown_memory(inner: &Inner, effective: &EffectiveLimits) -> u64 {
    let limit = effective.get(LimitKind::Memory).map_or(u64::MAX, |effect| effect.value);
    limit.min(inner.machine_memory)
}

pub(super) fn check_requirement(spec: &Spec, plan: &Plan) -> Result<(), Error> {
    let reason = || {
        let reasons: Vec<String> =
            plan.degraded.iter().map(|degraded| format!("{}: {}", degraded.layer, degraded.reason)).collect();
        if reasons.is_empty() { "unknown".to_owned() } else { reasons.join("; ") }
    };
    if plan.tier == Tier::T0 && spec.require.tier.is_none() && spec.without.is_empty() {
        let required = "a sandbox (or `--require T0`, to run without one)".to_owned();
        return Err(PlanRejection { required, possible: "T0".to_owned(), reason: reason() }.into());
    }
    if let Some(tier) = spec.require.tier
        && plan.tier < tier
    {
        let (required, possible) = (format!("tier {tier:?}"), format!("{:?}", plan.tier));
        return Err(PlanRejection { required, possible, reason: reason() }.into());
    }
    if let Some(kill) = spec.require.kill
        && plan.kill < kill
    {
        let (required, possible) = (format!("kill class {kill:?}"), format!("{:?}", plan.kill));
        return Err(PlanRejection { required, possible, reason: reason() }.into());
    }
    Ok(())
}

/// Has the jail's process become the command, which is given the descriptors after the plan's own,
/// from number 3 on: that of its program, if it has one without a number of its own, and those of
/// its progress channel and its notices.
fn append_command(prepared: &mut PreparedJail, spec: &mut Spec, file: Option<&ProgramFile>) {
    let first = prepared.numbered().len() as u64;
    let number = file.and_then(|file| file.number);
    let is_first = file.is_some() && number.is_none();
    let mut given: Vec<u64> = is_first.then_some(first).into_iter().collect();
    let channels: Vec<_> = channels_of(spec, 3 + given.len()).collect();
    for (index, (variable, number)) in (first + u64::from(file.is_some())..).zip(channels) {
        given.push(index);
        spec.environment.push((variable.into(), number.to_string().into()));
    }
    given.extend(number.map(|number| first | number << 32));
    let environment =
        environment(spec, &prepared.files, prepared.private.as_ref().map(PrivateDirectory::path));
    let program = &mut prepared.plan.program;
    match &prepared.files.executable {
        _ if prepared.sandbox.is_some() => {
            plan::execute_first(
                program,
                &candidates(&spec.command[0], &environment),
                &spec.command,
                &environment,
                &given,
            );
        }
        Some(executable) => push_execute(program, &spec.command, executable, &environment, &given),
        None => return,
    }
    prepared.plan.names.push("execute the command".into());
}

/// The channels that a run of this spec is given from descriptor `first` on: the variable that
/// names each, and its number.
pub(super) fn channels_of(spec: &Spec, first: usize) -> impl Iterator<Item = (&'static str, usize)> + use<> {
    let channels = [(spec.progress_channel, PROGRESS_VARIABLE), (spec.has_notices(), NOTICE_VARIABLE)];
    let given = channels.into_iter().filter(|(is_given, _)| *is_given);
    given.enumerate().map(move |(index, (_, variable))| (variable, first + index))
}
