//! Runs from their start to their record.
//!
//! ```text
//! start ─▶ Running ─▶ Ended               one task per run drives it (`drive`), and it alone ends it
//! queue ─▶ Queued ─▶ Running ─▶ Ended     in a context, when its turn comes; or Ended at once, when it is cancelled first
//! ```
//! A run is Ended for others only when its record is written, which outlives this process; within a
//! second it is on the disk. If it cannot be written, it stays in memory and the failure is logged.
//! The driver outlives every request; a request that goes away cancels its run only while it waits
//! and did not detach it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use sandtimer::Run;
use sandtimer::model::{Outcome, Proof, Source};
use sandtimer_os::clock::calendar_milliseconds;
use sandtimer_records::RunStart;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::copy::Copies;
use super::input::RunInput;
use super::live::{LiveRun, RunPhase};
use super::record::Record;
use super::request::RunRequest;
use super::service::RunService;
use crate::auth::OwnerId;
use crate::connection::OnDrop;
use crate::error::{ApiRejection, Code, storage};
use crate::intake::{MAX_SHORT_BYTES, Reservation};
use crate::metrics::QueueWait;
use crate::quota::{QuotaKind, QuotaPermit, Share, Shares};
use crate::registry::OwnedResource;
use crate::trace;
use crate::workspaces::{ScratchWorkspace, TemporaryDirectory, WorkspaceUse};

/// How often records are checked for their age.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(600);
/// How long a record may be written and not yet on the disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// How often a task checks whether there are files for more records.
const PREPARE_INTERVAL: Duration = Duration::from_millis(100);
/// Runs that are being started on threads that serve requests, at a time: another thread serves in
/// the place of each.
const MAX_STARTS_HERE: usize = 64;
/// Why a run was cancelled whose request went away.
pub(crate) const CLIENT_GONE: &str = "the client that waited for it disconnected";
/// Why a run is cancelled that the disk does not take.
const UNRECORDED_REASON: &str = "its beginning cannot be recorded";

/// Runs with a terminal: each opens at most 16 (`isolate/ptys.rs`), and the kernel has 3,072 for
/// all mounts of devpts but the first. Those without one have a third of them.
static TERMINALS: Shares = Shares::of("runs with a terminal", 128);

/// A run on its way to the request that waits for it. Cancels the run if the request has gone,
/// which then cannot.
struct RunHandover {
    run: Option<Arc<LiveRun>>,
    /// Whether to cancel the run if no request takes it.
    cancel: bool,
}

impl Drop for RunHandover {
    fn drop(&mut self) {
        if let Some(run) = self.run.take()
            && self.cancel
        {
            run.cancel(CLIENT_GONE);
        }
    }
}

/// Starts a run and its driver. A caller that does not wait for the answer any more cancels it,
/// unless it is detached.
pub(crate) async fn start(
    service: Arc<RunService>,
    owner: OwnerId,
    request: RunRequest,
) -> Result<Arc<LiveRun>, ApiRejection> {
    start_noted(service, owner, request, |_| {}).await
}

/// As [`start`]; `note` is given the run once it has begun, even if no request waits for the answer
/// any more.
pub(crate) async fn start_noted(
    service: Arc<RunService>,
    owner: OwnerId,
    mut request: RunRequest,
    note: impl FnOnce(&Arc<LiveRun>) + Send + 'static,
) -> Result<Arc<LiveRun>, ApiRejection> {
    let admission = Admission::new(&service, &owner, &mut request)?;
    let (reply_sender, reply_receiver) = oneshot::channel();
    // On a thread of its own, so that a request that is dropped leaves no run without a driver.
    tokio::task::spawn_blocking(move || {
        let cancel = !request.detach;
        let begun = admission.begin(&service, &owner, request);
        // Where nothing waits for it any more, the handover cancels it.
        let _ = reply_sender.send(begun.map(|live| {
            note(&live);
            RunHandover { run: Some(live), cancel }
        }));
    });
    let mut handover = reply_receiver.await.map_err(|_| could_not_start())??;
    handover.run.take().ok_or_else(could_not_start)
}

/// As [`start`], on this thread where not too many do the same: that saves the waking of another.
/// For a request that has its task for itself.
pub(crate) async fn start_here(
    service: &Arc<RunService>,
    owner: &OwnerId,
    mut request: RunRequest,
) -> Result<Arc<LiveRun>, ApiRejection> {
    static STARTS: AtomicUsize = AtomicUsize::new(0);
    let _one_less = OnDrop::new(|| {
        STARTS.fetch_sub(1, Ordering::Relaxed);
    });
    if STARTS.fetch_add(1, Ordering::Relaxed) >= MAX_STARTS_HERE {
        return start(service.clone(), owner.clone(), request).await;
    }
    let admission = Admission::new(service, owner, &mut request)?;
    tokio::task::block_in_place(|| admission.begin(service, owner, request))
}

/// What a run is given before it begins.
struct Admission {
    quota_permit: QuotaPermit,
    terminal: Option<Share>,
    stdin: Option<Reservation>,
    queued: QueueWait,
    asked_in: Option<trace::SpanContext>,
}

impl Admission {
    fn new(
        service: &Arc<RunService>,
        owner: &OwnerId,
        request: &mut RunRequest,
    ) -> Result<Self, ApiRejection> {
        if *service.core.closing.borrow() {
            return Err(ApiRejection::new(Code::ShuttingDown, "the server is ending and takes no more runs"));
        }
        if request.network {
            service.core.tenants.check_network(owner, "runs")?;
        }
        let quota_permit = request
            .quota_permit
            .take()
            .map_or_else(|| service.core.quotas.take(owner, QuotaKind::Runs), Ok)?;
        let terminal = request.terminal.is_some().then(|| TERMINALS.take(owner)).transpose()?;
        let stdin =
            service.core.messages.requests.reserve_long(owner, request.stdin.as_ref().map_or(0, Vec::len))?;
        Ok(Admission {
            quota_permit,
            terminal,
            stdin,
            queued: service.core.metrics.queued(),
            asked_in: trace::current_span(),
        })
    }

    /// Starts the run and its driver. Blocks, inside the runtime.
    fn begin(
        mut self,
        service: &Arc<RunService>,
        owner: &OwnerId,
        request: RunRequest,
    ) -> Result<Arc<LiveRun>, ApiRejection> {
        let (temporary, scratch) = (request.temporary.clone(), request.scratch.clone());
        let started = trace::within(self.asked_in, || begin(service, owner, request, &mut self.stdin));
        let (live, run, using) = started?;
        self.queued.begun();
        live.span().begun();
        let held = RunResources {
            _quota_permit: Some(self.quota_permit),
            _using: using,
            _temporary: temporary,
            _scratch: scratch,
            _terminal: self.terminal,
            _stdin: self.stdin,
        };
        tokio::spawn(drive(service.clone(), live.clone(), run, held));
        Ok(live)
    }
}

fn could_not_start() -> ApiRejection {
    ApiRejection::new(Code::Internal, "the run could not be started")
}

/// A run that has begun, and the workspace that it keeps until it has ended.
type StartedRun = (Arc<LiveRun>, Arc<Run>, Option<WorkspaceUse>);

/// Starts a run and records that it has begun. The memory for stdin is left to the caller, except
/// where it is fed to the run here. Blocks.
fn begin(
    service: &Arc<RunService>,
    owner: &OwnerId,
    mut request: RunRequest,
    stdin: &mut Option<Reservation>,
) -> Result<StartedRun, ApiRejection> {
    let using =
        request.workspace.as_ref().map(|id| service.workspaces.get(id, owner)?.enter()).transpose()?;
    let scope = request.parent.or_else(|| service.core.tenants.scope(owner));
    request.read(&service.core.engine, scope)?;
    let mut spec = request.spec();
    spec.sandbox = request.sandbox.as_ref().map(|id| service.sandboxes.get(id, owner)).transpose()?;
    let workspace = using
        .as_ref()
        .map(WorkspaceUse::workspace)
        .or(request.scratch.as_ref().map(|scratch| scratch.files()));
    spec.workspace = workspace.map(|workspace| workspace.directory().to_owned());
    spec.defaults = service.defaults.clone();
    spec.defaults.push((Source::Builtin, std::mem::take(&mut request.builtin)));
    spec.parent = scope;
    spec.owner = Some(owner.as_str().into());
    let (command, question, sandbox) = (request.shown(), request.question(owner), request.sandbox.clone());
    let run = Arc::new(request.start(service, owner, spec)?);
    let first = request.stdin.take().filter(|_| request.stdin_open);
    let input = RunInput::of(&run, first.map(|bytes| (bytes, stdin.take())));
    let begun = RunStart { sandbox, ..beginning(owner, run.id().to_owned(), command) };
    let live = Arc::new(LiveRun::new(begun, RunPhase::Running(run.clone()), input));
    live.set_question(question);
    record_beginning(service, &live, &run)?;
    service.records.registry.add(live.clone());
    Ok((live, run, using))
}

/// What is known of a run before its limits are.
fn beginning(owner: &OwnerId, run_id: String, command: Vec<String>) -> RunStart {
    let owner = owner.as_str().to_owned();
    let created_at_ms = calendar_milliseconds();
    let effective = Value::Null;
    RunStart { run_id, owner, command, created_at_ms, effective, context_id: None, sandbox: None }
}

/// Records that a run has begun, with the limits that apply; a run that cannot be recorded is
/// cancelled. Blocks.
fn record_beginning(service: &Arc<RunService>, live: &LiveRun, run: &Run) -> Result<(), ApiRejection> {
    live.set_effective(run);
    service.records.store.begin(&live.recorded()).map_err(|error| {
        run.cancel(UNRECORDED_REASON);
        storage("the run's beginning cannot be recorded", &error)
    })
}

/// What is known of a run in a context before its turn.
pub(crate) struct QueuedCell {
    pub run_id: String,
    pub command: Vec<String>,
    pub context_id: String,
    pub sandbox: Option<String>,
}

/// A run that waits for its turn in a context. `withdrawn` keeps it from beginning.
pub(crate) fn queue(
    service: &Arc<RunService>,
    owner: &OwnerId,
    cell: QueuedCell,
    withdrawn: Arc<AtomicBool>,
    input: RunInput,
) -> Arc<LiveRun> {
    let QueuedCell { run_id, command, context_id, sandbox } = cell;
    let begun = RunStart { context_id: Some(context_id), sandbox, ..beginning(owner, run_id, command) };
    let live = Arc::new(LiveRun::new(begun, RunPhase::Queued(withdrawn), input));
    service.records.registry.add(live.clone());
    live
}

/// Its turn has come: records that it has begun. Blocks.
pub(crate) fn begin_queued(
    service: &Arc<RunService>,
    live: &Arc<LiveRun>,
    run: &Arc<Run>,
) -> Result<(), ApiRejection> {
    record_beginning(service, live, run)
        .inspect_err(|rejection| end_unbegun(service, live, &rejection.message))?;
    live.span().begun();
    live.input.open(run);
    if !live.begin(run) {
        // It was cancelled at the last moment, which it is recorded with in its turn.
        run.cancel("it was cancelled before it began");
    }
    Ok(())
}

/// Starts a task that drives a run that has begun to its end. To be called inside the runtime.
pub(crate) fn drive_queued(service: &Arc<RunService>, live: &Arc<LiveRun>, run: &Arc<Run>) {
    let driven = drive(service.clone(), live.clone(), run.clone(), RunResources::default());
    tokio::runtime::Handle::current().spawn(driven);
}

/// Ends one that has begun and has ended, which no task handles. Inside the runtime, on whose
/// thread it writes the record: to memory, as a rule, which takes less than having another thread
/// do so.
pub(crate) fn end_queued(
    service: &Arc<RunService>,
    live: &Arc<LiveRun>,
    run: &Arc<Run>,
    outcome: &Arc<Outcome>,
) {
    live.input.close();
    let ended_at = calendar_milliseconds();
    record(service, live, run, outcome.clone(), ended_at);
    over(service, live, outcome, ended_at);
}

/// Counts and traces a run that has ended. To be called inside the runtime.
fn over(service: &Arc<RunService>, live: &LiveRun, outcome: &Outcome, ended_at: u64) {
    service.core.metrics.ended(outcome);
    live.span().ended(&service.core.traces, outcome, ended_at);
    count_ended(service);
}

/// Ends one that has not begun, whose record is kept as that of every other. Inside the runtime.
fn end_unbegun(service: &Arc<RunService>, live: &LiveRun, reason: &str) {
    live.end_unbegun(reason);
    count_ended(service);
}

/// Has records thinned out, where that one more is one too many.
fn count_ended(service: &Arc<RunService>) {
    if service.records.count_ended() {
        let service = service.clone();
        // A panic there was reported by itself.
        tokio::task::spawn_blocking(move || service.records.thin_out());
    }
}

/// Drops a queued run that could not begin. `is_reported`: its client has the error, and no other
/// request knows the run.
pub(crate) fn drop_queued(service: &Arc<RunService>, live: &Arc<LiveRun>, reason: &str, is_reported: bool) {
    if is_reported && live.status() == "queued" {
        service.records.registry.remove(live.id());
        live.end_unbegun(reason);
    } else {
        end_unbegun(service, live, reason);
    }
}

/// Ends a run that waits for its turn when it is dropped, unless that has come: a thread that
/// panics leaves no run that is queued for ever.
#[derive(Debug)]
pub(crate) struct UnbegunGuard(Arc<LiveRun>);

impl UnbegunGuard {
    pub fn new(live: Arc<LiveRun>) -> Self {
        UnbegunGuard(live)
    }
}

impl Deref for UnbegunGuard {
    type Target = Arc<LiveRun>;

    fn deref(&self) -> &Arc<LiveRun> {
        &self.0
    }
}

impl Drop for UnbegunGuard {
    fn drop(&mut self) {
        self.0.end_unbegun("the server failed to execute it");
    }
}

/// What a run holds until its end: of its owner's quota, of a workspace, of a shared /tmp, of the
/// machine's terminals, of the memory for its stdin.
#[derive(Debug, Default)]
struct RunResources {
    _quota_permit: Option<QuotaPermit>,
    _using: Option<WorkspaceUse>,
    _temporary: Option<Arc<TemporaryDirectory>>,
    _scratch: Option<Arc<ScratchWorkspace>>,
    _terminal: Option<Share>,
    _stdin: Option<Reservation>,
}

/// Drives a run to its end and its record.
async fn drive(service: Arc<RunService>, live: Arc<LiveRun>, run: Arc<Run>, held: RunResources) {
    let mut copies = Copies::new(service.records.store.clone(), run.clone());
    let outcome = {
        let mut waiting = run.wait();
        let mut feeding = std::pin::pin!(live.input.feed_first().fuse());
        loop {
            tokio::select! {
                outcome = &mut waiting => break outcome,
                () = &mut feeding, if !feeding.is_terminated() => {}
                () = copies.due() => {
                    let (same, done) = copies.copy().await;
                    copies = same;
                    if let Err(error) = done {
                        service.core.metrics.store_failed();
                        (service.core.host.log_error)(&format!("the output of run {} is not copied any more: {error}", live.id()));
                    }
                }
                Some(warning) = run.warned() => live.warn(warning),
            }
        }
    };
    // Before any client is notified that it has ended.
    drop((copies, held));
    live.input.close();
    let ended_at = calendar_milliseconds();
    let pending = outcome.tree.proof == Proof::Pending;
    let learned = live.question().and_then(|question| service.durations.learn(question, &outcome));
    // Not on a thread for what blocks: waking one would usually cost more than the write.
    let write = || record(&service, &live, &run, outcome.clone(), ended_at);
    if service.records.is_quick() && is_short(&outcome) {
        write();
    } else {
        tokio::task::block_in_place(write);
    }
    let last = if pending {
        let settled = run.settled().await;
        // Not if it was purged during the wait.
        if service.records.find(live.id(), live.owner()).is_some() {
            tokio::task::block_in_place(|| record(&service, &live, &run, settled.clone(), ended_at));
        }
        settled
    } else {
        outcome
    };
    if let Some(finished) = learned {
        service.keep_duration(&finished);
    }
    over(&service, &live, &last, ended_at);
}

/// Its record is written in less time than other tasks need to move to another thread.
fn is_short(outcome: &Outcome) -> bool {
    let is_truncated = outcome.stdout_truncated || outcome.stderr_truncated;
    let is_plain = outcome.value.is_none() && outcome.results.is_empty() && outcome.error.is_none();
    is_plain && !is_truncated && outcome.stdout.len() + outcome.stderr.len() <= MAX_SHORT_BYTES
}

/// Writes the record, then notifies all waiting requests that the run has ended. Blocks.
fn record(
    service: &Arc<RunService>,
    live: &Arc<LiveRun>,
    run: &Arc<Run>,
    outcome: Arc<Outcome>,
    ended_at_ms: u64,
) {
    let written =
        service.records.store.finish(live.recorded(), ended_at_ms, &outcome, &mut |stream, cursor, most| {
            run.output(stream, cursor, most).map_err(std::io::Error::other)
        });
    let error = match written {
        Ok(stored) => {
            live.end(Record::Disk(stored));
            service.records.written.notify_one();
            return;
        }
        Err(error) => error,
    };
    service.core.metrics.store_failed();
    (service.core.host.log_error)(&format!(
        "the record of run {} is kept in memory only: {error}",
        live.id()
    ));
    live.end(Record::Memory { run: run.clone(), outcome, ended_at_ms });
}

/// Removes records that are too old, until the server ends.
pub(crate) async fn remove_expired_records(service: Arc<RunService>) {
    let mut closing = service.core.closing.subscribe();
    loop {
        let closed = closing.wait_for(|closing| *closing);
        if tokio::time::timeout(HOUSEKEEPING_INTERVAL, closed).await.is_ok() {
            return;
        }
        let service = service.clone();
        // A panic there was reported by itself.
        let _ = tokio::task::spawn_blocking(move || service.records.thin_out()).await;
    }
}

/// Syncs records to the disk, [`SYNC_INTERVAL`] after the first of them was written, until the
/// server ends.
pub(crate) async fn sync_records(service: Arc<RunService>) {
    let mut closing = service.core.closing.subscribe();
    loop {
        tokio::select! {
            () = service.records.written.notified() => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
        tokio::time::sleep(SYNC_INTERVAL).await;
        sync(&service).await;
        service.records.unprepared.notify_one();
    }
}

/// Preallocates files for later records, a few at a time, until the server ends.
pub(crate) async fn prepare_records(service: Arc<RunService>) {
    let mut closing = service.core.closing.subscribe();
    let prepare = async {
        let mut prepare_ticks = tokio::time::interval(PREPARE_INTERVAL);
        prepare_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            prepare_ticks.tick().await;
            let store = service.records.store.clone();
            // A panic there was reported by itself.
            if tokio::task::spawn_blocking(move || store.prepare()).await.unwrap_or(true) {
                service.records.unprepared.notified().await;
            }
        }
    };
    tokio::select! {
        () = prepare => {}
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

/// Waits until all records so far are on the disk.
pub(crate) async fn sync(service: &Arc<RunService>) {
    let store = service.records.store.clone();
    service.records.is_syncing.store(true, Ordering::Relaxed);
    let synced = tokio::task::spawn_blocking(move || store.sync()).await;
    service.records.is_syncing.store(false, Ordering::Relaxed);
    let Ok(Err(error)) = synced else { return };
    service.core.metrics.store_failed();
    (service.core.host.log_error)(&format!("records may not outlive a loss of power: {error}"));
}

#[cfg(test)]
mod tests {
    use sandtimer::{Engine, Spec};

    use super::*;

    fn queued() -> (Arc<LiveRun>, Arc<AtomicBool>) {
        let withdrawn = Arc::new(AtomicBool::new(false));
        let begun = beginning(&OwnerId::recorded("a"), "r".to_owned(), vec!["python".to_owned()]);
        (Arc::new(LiveRun::new(begun, RunPhase::Queued(withdrawn.clone()), RunInput::closed())), withdrawn)
    }

    fn fail_with(guard: UnbegunGuard) {
        let failed = std::thread::spawn(move || {
            let _guard = guard;
            std::panic::resume_unwind(Box::new("a cell's thread fails"));
        });
        assert!(failed.join().is_err());
    }

    #[test]
    fn panic_ends_a_run_that_waits() {
        let (live, withdrawn) = queued();
        fail_with(UnbegunGuard::new(live.clone()));
        assert!(live.status() == "ended" && withdrawn.load(Ordering::Acquire));
    }

    #[test]
    fn panic_leaves_a_run_that_has_begun_alone() {
        let engine = Engine::new().expect("an engine");
        let command = ["sleep", "60"].map(Into::into).to_vec();
        let run = Arc::new(engine.start(Spec { command, ..Spec::default() }).expect("started"));
        let (live, withdrawn) = queued();
        assert!(live.begin(&run));
        fail_with(UnbegunGuard::new(live.clone()));
        assert!(live.status() == "running" && !withdrawn.load(Ordering::Acquire) && !run.has_finished());
        run.cancel("the test is over");
    }
}
