//! Sealed children of a zygote, each waiting for its one job.
//!
//! ```text
//! init built, or left by an earlier job ─▶ child born ─▶ sealed ─▶ warm (READY) ─▶ given a job: from here on a run
//! ```
//! Everything that walls a job in is in force before the job's bytes arrive; what differs from job
//! to job (memory, processes, resource limits, time) is put on with them. Owned here until then;
//! dropping one ends it.

mod node;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use sandtimer_os::clock::{file_nanoseconds, monotonic_nanoseconds};
use sandtimer_os::control::InitControl;
use sandtimer_os::launcher::SpawnedProcess;
use sandtimer_os::process;
use sandtimer_os::socket;
use sandtimer_os::stdout::UnwrittenOutput;
use sandtimer_os::zygote::{self as os, BirthRequest, ChildMessage};

use super::error::Error;
use super::idle_jails::{self, EntryHandles, IdleJail, IdleJails};
use super::jail;
use super::known_files::KnownFiles;
use super::opened::{self, OpenedRun};
use super::park;
use super::spawn::{self, Descriptors, Jail};
use super::start::{self, HeldSlot, PlanContext};
use super::streams::{RunStreams, WRITING, open_to_all};
use super::which_processor::bind_here;
use super::workspace::make_workspace;
use super::zygotes;
use super::{Inner, Run, Spec};
use crate::isolate::cgroup::SlotLimits;
use crate::isolate::host::NamespaceSupport;
use crate::isolate::plan::{self, Plan};
use crate::limits::{EffectiveLimits, Key};
use crate::model::{Degradation, LimitKind, Path, Tier};
use crate::supervise::deliveries::Attachment;
use crate::supervise::output::{Spool, SpoolDirectory};
use crate::supervise::proc_files::number_of;
use crate::supervise::run::{Job, ReusableJail, SharedRun, group_is_gone};

/// The process that is asked for a child.
#[derive(Debug)]
pub(super) struct Parent<'a> {
    pub request_socket: BorrowedFd<'a>,
    /// Held while it is asked, where others ask it too. True: an answer did not come, so that the
    /// next would be taken for it.
    pub turn: Option<&'a Mutex<bool>>,
    /// It is a fork of the calling process, not a zygote of ours.
    pub is_caller: bool,
    /// Its children are live interpreters.
    pub is_live: bool,
    /// A caller waits: the child does not run a dummy job first.
    pub hurried: bool,
    /// Readable when the pool no longer wants the child.
    pub stop: Option<BorrowedFd<'a>>,
}

/// A child that waits.
#[derive(Debug)]
pub(super) struct Child {
    inner: Arc<Inner>,
    jail: Option<Jail>,
    born: Option<ChildProcess>,
    /// The directory that was made for it; nothing is in it yet.
    pub own_workspace: Option<OwnWorkspace>,
    /// What it was forked from.
    pub zygote: Option<Arc<zygotes::Zygote>>,
    /// How it came into its sandbox, if that may see another.
    entry_handles: Option<EntryHandles>,
    /// Where its sandbox goes if its job leaves nothing there.
    pub idle_jails: Option<Arc<IdleJails>>,
}

/// An empty directory, removed unless it is kept.
#[derive(Debug)]
pub(super) struct OwnWorkspace(PathBuf);

impl OwnWorkspace {
    pub fn make(parent: &std::path::Path) -> Result<Self, Error> {
        let path = parent.join(opened::new_run_id());
        make_workspace(&path).map_err(Error::system("cannot make a workspace"))?;
        Ok(OwnWorkspace(path))
    }

    pub fn path(&self) -> &std::path::Path {
        &self.0
    }

    fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for OwnWorkspace {
    fn drop(&mut self) {
        // One that is kept has no path here.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The descriptors of a child's process.
#[derive(Debug)]
struct ChildProcess {
    process: SpawnedProcess,
    /// The number of the process in the engine's pid namespace, once it has become a context.
    number: Option<u32>,
    channel: OwnedFd,
    outputs: [OwnedFd; 2],
    /// What it writes its standard output to first.
    unwritten: Option<Arc<UnwrittenOutput>>,
}

/// The parts of a warm interpreter.
pub(super) struct InterpreterParts {
    pub jail_handle: jail::JailHandle,
    pub jail_resources: jail::JailResources,
    pub process: SpawnedProcess,
    /// The number of the process in the engine's pid namespace.
    pub number: Option<u32>,
    pub channel: OwnedFd,
    pub own_workspace: Option<PathBuf>,
    pub zygote: Option<Arc<zygotes::Zygote>>,
}

/// A job that was given to a child.
pub(super) struct AssignedRun {
    pub running: Arc<SharedRun>,
    pub attachment: Attachment,
}

/// What a job is given with.
#[derive(Debug)]
pub(super) struct ChildJob<'a> {
    pub bytes: &'a [u8],
    pub files: &'a [BorrowedFd<'a>],
    pub program: bool,
}

impl Child {
    /// Has a zygote make one, and waits until it is ready.
    pub fn bear(inner: &Arc<Inner>, parent: &Parent<'_>, spec: &Spec) -> Result<Self, Error> {
        let opened = opened::open(inner, spec)?;
        opened::close(inner, opened.scope);
        let mut held = HeldSlot::take(inner, spec, "cannot make the run's control groups")?;
        let slot_index = held.slot.index;
        let finish = |plan: &mut Plan, context: &PlanContext<'_>| {
            plan::serve(plan, context.host, context.policy, context.tasks);
            plan::child(context.host, context.policy, plan.flags, context.tasks, !parent.is_caller)
        };
        let built = start::prepare_to(inner, spec, &opened.effective, &mut held, finish).and_then(
            |(prepared, sealing)| {
                let (control, init_control) =
                    socket::pair().map_err(Error::system("cannot make the control socket"))?;
                let control =
                    InitControl::with_timer(control).map_err(Error::system("cannot make a timer"))?;
                let null = spawn::null()?;
                let stdio = [null.as_fd(); 3];
                let given: Vec<_> = control.timer().into_iter().collect();
                let descriptors =
                    Descriptors { slot: &held.slot, stdio, control: init_control.as_fd(), given: &given };
                let spawned = spawn::spawn(inner, spec, &prepared, &descriptors)?;
                Ok((prepared, sealing, control, spawned))
            },
        );
        let (mut prepared, sealing, control, spawned) =
            built.inspect_err(|_| inner.pool.give_back(slot_index, None))?;
        let tasks = std::mem::take(&mut prepared.tasks);
        let jail = prepared.started(held.slot, control, spawned.pidfd, Path::Parked).show(inner);
        let mut child = Child::without_process(inner, jail);
        if let Some(jail) = child.jail.as_mut() {
            let namespaces = park::wait_sealed(jail)?;
            child.entry_handles = Some(EntryHandles::new(jail, namespaces, tasks, sealing)?);
        }
        child.seal(parent)?;
        Ok(child)
    }

    /// A sandbox in which nothing is.
    pub fn idle_jail(inner: &Arc<Inner>, idle_jail: IdleJail) -> Self {
        let mut child = Child::without_process(inner, idle_jail.jail);
        child.entry_handles = Some(idle_jail.entry_handles);
        child
    }

    fn without_process(inner: &Arc<Inner>, jail: Jail) -> Self {
        Child {
            inner: inner.clone(),
            jail: Some(jail),
            born: None,
            own_workspace: None,
            zygote: None,
            entry_handles: None,
            idle_jails: None,
        }
    }

    /// Puts the zygote's child into the sandbox.
    pub fn seal(&mut self, parent: &Parent<'_>) -> Result<(), Error> {
        let (Some(jail), Some(entry_handles)) = (self.jail.as_mut(), &self.entry_handles) else {
            return Ok(());
        };
        let namespaces = &entry_handles.namespaces;
        let failed = |doing: &'static str| {
            move |error: rustix::io::Errno| Error::System { doing, source: error.into() }
        };
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(failed("cannot make a pipe"));
        let null = spawn::null()?;
        let (stdout, stdout_write) = pipe()?;
        let (stderr, stderr_write) = pipe()?;
        open_to_all(&stdout_write, WRITING);
        open_to_all(&stderr_write, WRITING);
        for fd in [&stdout, &stderr] {
            rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK).map_err(failed("cannot prepare a pipe"))?;
        }
        let (channel, theirs) = socket::pair().map_err(Error::system("cannot make a socket"))?;
        // Cells have streams of their own.
        let unwritten = if parent.is_live { None } else { Some(UnwrittenOutput::new().map(Arc::new)) };
        let unwritten = unwritten.transpose().map_err(Error::system("cannot make a file in memory"))?;
        let mut extra: Vec<_> = entry_handles.tasks.iter().map(AsFd::as_fd).collect();
        let cgroup = jail.slot.unified().map(|unified| {
            extra.push(unified);
            extra.len() - 1
        });
        let doing = "cannot enter the sandbox";
        let missing = || Error::System { doing, source: std::io::ErrorKind::NotFound.into() };
        let pids = namespaces.pids.as_ref().ok_or_else(missing)?;
        let mounts = jail.namespace.as_ref().ok_or_else(missing)?;
        let network = jail.network.as_ref().and_then(|network| network.namespace());
        let others = namespaces.others.iter().chain([mounts]).map(AsFd::as_fd);
        let others: Vec<_> = others.chain(network).collect();
        let outside = parent.is_caller && self.inner.host()?.namespaces == NamespaceSupport::User;
        let users = namespaces.users.as_ref().filter(|_| outside).map(AsFd::as_fd);
        let request = BirthRequest {
            program: entry_handles.program.as_fd(),
            program_length: entry_handles.program_length,
            pids: pids.as_fd(),
            namespaces: &others,
            channel: theirs.as_fd(),
            stdio: [null.as_fd(), stdout_write.as_fd(), stderr_write.as_fd()],
            output: unwritten.as_ref().map_or(null.as_fd(), |memory| memory.as_fd()),
            extra: &extra,
            cgroup,
            users,
            hurried: parent.hurried,
        };
        let mut turn = parent.turn.map(|turn| turn.lock().unwrap_or_else(PoisonError::into_inner));
        let doing = "cannot fork the interpreter";
        if turn.as_deref() == Some(&true) {
            return Err(Error::System { doing, source: std::io::ErrorKind::BrokenPipe.into() });
        }
        let asked = os::bear(parent.request_socket, &request, parent.stop);
        if let (Err(_), Some(broken)) = (&asked, turn.as_deref_mut()) {
            *broken = true;
        }
        drop(turn);
        let process = asked.map_err(Error::system(doing))?;
        if parent.is_caller {
            let reason = "the call was forked from its caller and sees all of the caller's memory".to_owned();
            jail.plan.degraded.push(Degradation { layer: "memory".to_owned(), reason });
        }
        self.born =
            Some(ChildProcess { process, number: None, channel, outputs: [stdout, stderr], unwritten });
        drop(theirs);
        self.wait_ready(parent.stop)
    }

    fn wait_ready(&mut self, stop: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let (Some(jail), Some(born)) = (self.jail.as_mut(), &self.born) else { return Ok(()) };
        let names = self.entry_handles.as_ref().map_or(&[][..], |entry_handles| &entry_handles.names);
        let doing = "cannot make a child of the zygote ready";
        loop {
            let limit = self.inner.spawn_limit();
            if !zygotes::wait_unless(stop, born.channel.as_fd(), zygotes::milliseconds(limit))? {
                return Err(Error::SpawnLimit(limit));
            }
            match os::receive_message(born.channel.as_fd()).map_err(Error::system(doing))? {
                Some(ChildMessage::Ready) => break,
                // It has no job yet: this is the zygote's own program.
                Some(ChildMessage::Listener(listener)) => {
                    os::supervise(jail.control.as_fd(), listener.as_fd(), false)
                        .map_err(Error::system(doing))?;
                }
                Some(ChildMessage::Failed { step, errno, required }) => {
                    let error = std::io::Error::from_raw_os_error(errno);
                    let name = names.get(step as usize).map_or("enter the sandbox", |name| name);
                    if required {
                        let source = std::io::Error::other(format!("{name}: {error}"));
                        return Err(Error::System { doing, source });
                    }
                    let reason = error.to_string();
                    jail.plan.degraded.push(Degradation { layer: name.to_owned(), reason });
                }
                Some(ChildMessage::Other) | None => {
                    return Err(Error::System { doing, source: std::io::ErrorKind::UnexpectedEof.into() });
                }
            }
        }
        let _ = os::refuse_descriptors(born.channel.as_fd());
        // Preparing the child does not count against the job's limits.
        jail.slot.start_counting();
        Ok(())
    }

    /// Refuses a job that requires more isolation than the child has.
    pub fn check(&self, spec: &Spec) -> Result<(), Error> {
        self.jail.as_ref().map_or(Ok(()), |jail| start::check_requirement(spec, &jail.plan))
    }

    /// Sets the limits of its job on the jail. Returns the limits that its process is to set on
    /// itself.
    fn limit(&mut self, opened: &OpenedRun) -> Result<Vec<(u64, u64, u64)>, Error> {
        let doing = "cannot use a parked child";
        let Some(jail) = self.jail.as_mut() else { return Err(Error::Closed) };
        if group_is_gone(&jail.slot) {
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, "its control group was removed");
            return Err(Error::System { doing, source });
        }
        let effective = &opened.effective;
        let limit = |kind: LimitKind| effective.get(kind).map(|effect| effect.value);
        let refused = jail.slot.limit(SlotLimits {
            memory_bytes: limit(LimitKind::Memory),
            processes: limit(LimitKind::Processes),
        });
        for name in refused {
            let reason = format!("the controller refused the {name} limit");
            jail.plan.degraded.push(Degradation { layer: "cgroup limits".to_owned(), reason });
            jail.plan.tier = jail.plan.tier.min(Tier::T2);
        }
        if let Some(file) = &jail.memory_file {
            file.show(start::shown_memory(&self.inner, effective)).map_err(Error::system(doing))?;
        }
        let host = self.inner.host()?;
        Ok(plan::resource_limits(host, &start::process_limits(effective), host.has_namespaces()))
    }

    /// Puts the job's limits on, arms init, and sends the job. `opened` is the job's scope; `here`:
    /// whether it is to begin on this thread's processor.
    ///
    /// # Errors
    /// `System` when it died while it waited, or its group is gone: another one is to be taken.
    pub fn hand_over(
        &mut self,
        opened: &OpenedRun,
        work: &ChildJob<'_>,
        here: bool,
    ) -> Result<SentJob, Error> {
        let doing = "cannot use a parked child";
        let limits = self.limit(opened)?;
        let (Some(jail), Some(born)) = (self.jail.as_mut(), &self.born) else {
            return Err(Error::Closed);
        };
        let effective = &opened.effective;
        let begun_at = monotonic_nanoseconds();
        let end = hard_end(opened, effective, begun_at);
        // Before the job: were the engine stopped between the two, init would not know when to end
        // it.
        jail.control.end_by(end).map_err(Error::system(doing))?;
        if process::is_dead(jail.pidfd.as_fd()) {
            return Err(Error::System { doing, source: std::io::ErrorKind::BrokenPipe.into() });
        }
        let stamp = file_nanoseconds();
        let directory = self.inner.spool_directory()?;
        let processors = here.then(|| bind_here(&born.process)).flatten();
        let head = os::ProcessSetup { limits: &limits, processors };
        os::dispatch(born.channel.as_fd(), &head, work.bytes, work.files).map_err(Error::system(doing))?;
        Ok(SentJob { begun_at, stamp, until: end, directory })
    }

    /// Has it become the interpreter of a context, under the limits of `opened`. `here`: as in
    /// [`Child::hand_over`].
    ///
    /// # Errors
    /// As [`Child::hand_over`].
    pub fn become_context(
        &mut self,
        opened: &OpenedRun,
        settings: &[u8],
        files: &[BorrowedFd<'_>],
        here: bool,
    ) -> Result<(), Error> {
        let limits = self.limit(opened)?;
        let Some(born) = &mut self.born else { return Err(Error::Closed) };
        // Before it can end: the kernel does not tell the number of a process that is gone.
        born.number = number_of(born.process.pidfd.as_fd());
        let processors = here.then(|| bind_here(&born.process)).flatten();
        // Before it sends anything as a context.
        os::name_senders(born.channel.as_fd()).map_err(Error::system("cannot prepare a socket"))?;
        os::dispatch(born.channel.as_fd(), &os::ProcessSetup { limits: &limits, processors }, settings, files)
            .map_err(Error::system("cannot use a parked child"))
    }

    /// What there will be in its sandbox if its job leaves nothing there.
    fn reusable_jail(&mut self) -> Option<Box<dyn ReusableJail>> {
        let (idle_jails, entry_handles) = (self.idle_jails.take()?, self.entry_handles.take()?);
        idle_jails::reusable_jail(self.jail.as_ref()?, entry_handles, idle_jails)
    }

    /// Its sandbox and its process, which are the caller's to end from now on.
    pub fn into_parts(mut self) -> Option<InterpreterParts> {
        let (jail, born) = self.jail.take().zip(self.born.take())?;
        let (jail_handle, jail_resources) = jail::JailHandle::of(jail);
        let own_workspace = self.own_workspace.take().map(OwnWorkspace::keep);
        let ChildProcess { process, number, channel, .. } = born;
        let zygote = self.zygote.take();
        Some(InterpreterParts {
            jail_handle,
            jail_resources,
            process,
            number,
            channel,
            own_workspace,
            zygote,
        })
    }

    /// Makes the child that has its job a run.
    pub fn into_run(
        mut self,
        opened: OpenedRun,
        spec: &Spec,
        work: ChildJob<'_>,
        path: Path,
        sent_job: SentJob,
    ) -> Option<AssignedRun> {
        let output = opened.effective.get(LimitKind::Output).map(|effect| effect.value);
        let (mut jail, job, outputs, unwritten) = self.take_job(work.program, &sent_job)?;
        jail.path = path;
        let running = jail::running(&self.inner, jail, opened, spec, Some(job));
        let spool = || Arc::new(Mutex::new(Spool::new(output, sent_job.directory.clone())));
        let attachment = Attachment {
            run: running.clone(),
            outputs: outputs.map(|fd| Some((Arc::new(fd), spool()))),
            unwritten,
            stdin: None,
            terminal: None,
            reports: None,
            notices: None,
        };
        Some(AssignedRun { running, attachment })
    }

    /// Makes the child that has its program a run with streams of its own.
    pub fn into_run_of(
        mut self,
        opened: OpenedRun,
        spec: &Spec,
        sent_job: SentJob,
        mut streams: RunStreams,
    ) -> Option<Run> {
        let (jail, job, _, unwritten) = self.take_job(true, &sent_job)?;
        streams.unwritten = unwritten;
        let inner = self.inner.clone();
        Some(start::finish(&inner, jail, opened, spec, streams, Some(job)))
    }

    /// Its sandbox, what its process is in a run, the ends of the streams that it was born with,
    /// and what it writes to first.
    fn take_job(&mut self, program: bool, sent_job: &SentJob) -> Option<JobParts> {
        let reusable_jail = self.reusable_jail();
        let (mut jail, born) = self.jail.take().zip(self.born.take())?;
        jail.spawned_at = sent_job.begun_at;
        let job = Job {
            pid: born.process.pid,
            pidfd: Arc::new(born.process.pidfd),
            channel: Arc::new(born.channel),
            begun_at: sent_job.begun_at,
            until: sent_job.until,
            program,
            answered: AtomicU8::new(0),
            killed: AtomicU64::new(0),
            leftovers: AtomicU64::new(0),
            live: None,
            one_of_many: reusable_jail.is_some().then_some(sent_job.stamp),
            reusable_jail: Mutex::new(reusable_jail),
        };
        Some((jail, job, born.outputs, born.unwritten))
    }

    /// The plan of the files that it sees.
    pub fn files(&self) -> Option<&KnownFiles> {
        self.jail.as_ref().map(|jail| &*jail.files)
    }

    /// How it came to be, for the record of its run.
    pub fn came_by(&mut self, path: Path) {
        self.jail.iter_mut().for_each(|jail| jail.path = path);
    }

    /// Whether it stood ready.
    pub fn is_parked(&self) -> bool {
        self.jail.as_ref().is_some_and(|jail| jail.path == Path::Parked)
    }
}

type JobParts = (Jail, Job, [OwnedFd; 2], Option<Arc<UnwrittenOutput>>);

/// A job that was sent.
#[derive(Debug)]
pub(super) struct SentJob {
    /// In monotonic nanoseconds; as is when all of it must be dead, as far as init knows.
    begun_at: u64,
    /// What files were stamped with.
    stamp: u64,
    until: u64,
    directory: Arc<SpoolDirectory>,
}

/// When all of a job must be dead, as far as is known when it begins.
pub(super) fn hard_end(opened: &OpenedRun, effective: &EffectiveLimits, begun_at: u64) -> u64 {
    let grace = effective.get(Key::Grace).map_or(0, |effect| effect.value);
    let own = opened.wall.map_or(u64::MAX, |wall| begun_at.saturating_add(wall).saturating_add(grace));
    opened.bound().map_or(own, |bound| own.min(bound))
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(jail) = self.jail.take() else { return };
        if self.inner.is_a_copy() {
            // It is another process's.
            std::mem::forget((jail, self.born.take(), self.inner.clone()));
            return;
        }
        let slot_index = jail.slot.index;
        if !jail.slot.kill_all() {
            // Gone already is as good.
            let _ = process::kill(jail.pidfd.as_fd());
        }
        if let Some(born) = self.born.take() {
            // Init's end waits for it to be reaped, and that is for its parent to do.
            process::wait_readable(born.process.pidfd.as_fd(), 1000);
            process::reap(born.process.pidfd.as_fd());
        }
        process::wait_readable(jail.pidfd.as_fd(), 1000);
        process::reap(jail.pidfd.as_fd());
        let limits = jail.slot.limits();
        drop(jail);
        self.inner.pool.give_back(slot_index, limits);
    }
}
