//! Runs from their start to their record.
//!
//! ```text
//! start ─▶ Running ─▶ Ended               one task per run drives it (`drive`), and it alone ends it
//! queue ─▶ Queued ─▶ Running ─▶ Ended     in a context, when its turn comes; or Ended at once, when it is cancelled first
//! ```
//! A run is Ended for others only when its record is written, which outlives this process; within a second it is on the disk.
//! Where the disk does not take it, it stays in memory and the operator is told. The driver outlives every request; a request that goes away cancels its run only while it waits
//! and did not detach it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use sandtimer::Run;
use sandtimer::engine::Stream;
use sandtimer::model::{Outcome, Proof, Warning};
use sandtimer::supervise::output::Chunk;
use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};
use sandtimer_store::{Begun, RunStore, StoredRun};
use serde_json::{Value, json};
use tokio::sync::{Mutex, Notify, oneshot, watch};

use super::control::Input;
use super::copy::Copies;
use super::record::Record;
use super::request::RunRequest;
use crate::auth::Owner;
use crate::error::{Code, Refusal, storage};
use crate::owned::{Owned, Registry};
use crate::quota::{Kind, Taken};
use crate::workspaces::{self, Using};
use crate::{Retention, Shared};

/// Warnings that are kept of a run; the first ones.
const MOST_WARNINGS: usize = 100;
/// How long a record may be written and not yet on the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How often records are looked at for their age.
const HOUSEKEEPING: Duration = Duration::from_secs(600);

/// Where a run is.
#[derive(Debug, Clone)]
pub(crate) enum Phase {
    /// Not before its turn. Set, it does not begin any more.
    Queued(Arc<AtomicBool>),
    Running(Arc<Run>),
    Ended(Record),
}

/// One run, as the server knows it.
#[derive(Debug)]
pub(crate) struct LiveRun {
    /// Without the limits.
    begun: Begun,
    /// The limits that apply, known once it has begun.
    effective: OnceLock<Value>,
    owner: Owner,
    phase: watch::Sender<Phase>,
    warnings: watch::Sender<Vec<Warning>>,
    pub(super) input: Input,
}

impl Owned for LiveRun {
    fn id(&self) -> &str {
        &self.begun.run_id
    }

    fn owner(&self) -> &Owner {
        &self.owner
    }
}

impl LiveRun {
    fn new(mut begun: Begun, phase: Phase, input: Input) -> Self {
        let owner = Owner::recorded(&begun.owner);
        let effective = match &phase {
            Phase::Queued(_) => OnceLock::new(),
            _ => OnceLock::from(begun.effective.take()),
        };
        let (phase, warnings) = (watch::Sender::new(phase), watch::Sender::default());
        LiveRun { begun, effective, owner, phase, warnings, input }
    }

    /// Milliseconds since 1970.
    pub fn created_at_ms(&self) -> u64 {
        self.begun.created_at_ms
    }

    /// Null while it waits for its turn.
    pub fn effective(&self) -> &Value {
        self.effective.get().unwrap_or(&Value::Null)
    }

    /// What is recorded of its beginning.
    fn recorded(&self) -> Begun {
        Begun { effective: self.effective().clone(), ..self.begun.clone() }
    }

    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    pub fn watch_phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    pub fn watch_warnings(&self) -> watch::Receiver<Vec<Warning>> {
        self.warnings.subscribe()
    }

    /// The run while it goes on.
    pub fn running(&self) -> Result<Arc<Run>, Refusal> {
        match self.phase() {
            Phase::Running(run) => Ok(run),
            Phase::Queued(_) => {
                let message = format!("the run `{}` waits for its turn", self.id());
                Err(Refusal::new(Code::RunQueued, message))
            }
            Phase::Ended(_) => Err(Refusal::new(Code::RunEnded, format!("the run `{}` is over", self.id()))),
        }
    }

    pub fn status(&self) -> &'static str {
        self.phase.borrow().name()
    }

    pub fn ended_at_ms(&self) -> Option<u64> {
        match &*self.phase.borrow() {
            Phase::Queued(_) | Phase::Running(_) => None,
            Phase::Ended(record) => Some(record.ended_at_ms()),
        }
    }

    /// Waits until it is over, at most so long; `None` is without end.
    pub async fn wait_ended(&self, most: Option<Duration>) {
        let mut phase = self.watch_phase();
        // The sender is in self: the wait cannot fail.
        let ended = phase.wait_for(|phase| matches!(phase, Phase::Ended(_)));
        match most {
            None => drop(ended.await),
            Some(most) => drop(tokio::time::timeout(most, ended).await),
        }
    }

    /// Its Outcome, once it is over.
    pub async fn outcome(&self) -> Result<Option<Arc<Outcome>>, Refusal> {
        match self.phase() {
            Phase::Queued(_) | Phase::Running(_) => Ok(None),
            Phase::Ended(record) => record.outcome().await.map(Some),
        }
    }

    /// Its output from a position.
    pub async fn output(&self, stream: Stream, cursor: u64, most: usize) -> Result<Chunk, Refusal> {
        match self.phase() {
            Phase::Queued(_) => Ok(nothing()),
            Phase::Running(run) => Ok(run.output(stream, cursor, most)?),
            Phase::Ended(record) => record.output(stream, cursor, most).await,
        }
    }

    /// What is answered about it.
    pub async fn view(&self) -> Result<Value, Refusal> {
        let phase = self.phase();
        let (outcome, ended_at) = match &phase {
            Phase::Queued(_) | Phase::Running(_) => (None, None),
            Phase::Ended(record) => (Some(record.outcome().await?), Some(record.ended_at_ms())),
        };
        Ok(json!({
            "run_id": self.id(),
            "status": phase.name(),
            "command": self.begun.command,
            "created_at_ms": self.begun.created_at_ms,
            "ended_at_ms": ended_at,
            "effective": self.effective(),
            "outcome": outcome.as_deref(),
        }))
    }

    /// One line of a listing.
    pub fn summary(&self) -> Value {
        let phase = self.phase();
        let (record, is_paused, wall_end) = match &phase {
            Phase::Queued(_) => (None, false, None),
            Phase::Running(run) => (None, run.is_paused(), run.wall_end()),
            Phase::Ended(record) => (Some(record), false, None),
        };
        let facts = record.map(Record::facts);
        let end = record.map_or_else(calendar_milliseconds, Record::ended_at_ms);
        let left = |end: u64| end.saturating_sub(monotonic_nanoseconds()) / 1_000_000;
        json!({
            "run_id": self.id(),
            "status": phase.name(),
            "paused": is_paused,
            "command": self.begun.command,
            "wall_ms": self.effective()["wall_ms"]["limit"],
            "wall_left_ms": wall_end.map(left),
            "created_at_ms": self.begun.created_at_ms,
            "elapsed_ms": end.saturating_sub(self.begun.created_at_ms),
            "ended_at_ms": record.map(Record::ended_at_ms),
            "ending": facts.map(|outcome| outcome.ending),
            "ok": facts.map(|outcome| outcome.ok),
            "exit_code": facts.and_then(|outcome| outcome.exit_code),
            "sentence": facts.and_then(|outcome| outcome.verdict.as_ref()).map(|verdict| &verdict.sentence),
        })
    }

    /// Ends it, if it goes on, or sees that it does not begin.
    pub fn cancel(&self, reason: &str) {
        // In the order of its phases: its turn may come in between.
        self.end_unbegun(reason);
        if let Phase::Running(run) = self.phase() {
            run.cancel(reason);
        }
    }

    /// Ends it, if it has not begun.
    fn end_unbegun(&self, reason: &str) {
        self.phase.send_if_modified(|phase| {
            let Phase::Queued(withdrawn) = &*phase else { return false };
            withdrawn.store(true, Ordering::Release);
            *phase = Phase::Ended(Record::unbegun(self.id(), reason));
            true
        });
    }
}

impl Phase {
    pub fn name(&self) -> &'static str {
        match self {
            Phase::Queued(_) => "queued",
            Phase::Running(_) => "running",
            Phase::Ended(_) => "ended",
        }
    }
}

/// The output of what has not begun.
pub(super) fn nothing() -> Chunk {
    Chunk { bytes: Vec::new(), next_cursor: 0, dropped_before: 0 }
}

/// Why a run was cancelled whose request went away.
pub(crate) const CLIENT_GONE: &str = "the client that waited for it went away";

/// All runs and their records.
#[derive(Debug)]
pub(crate) struct Runs {
    registry: Registry<LiveRun>,
    store: Arc<RunStore>,
    retention: Retention,
    /// One at a time thins records out.
    thinning: Mutex<()>,
    /// A record was written that is not on the disk yet.
    written: Notify,
}

impl Runs {
    pub fn new(store: RunStore, stored: Vec<StoredRun>, retention: Retention) -> Self {
        let registry = Registry::default();
        for run in stored {
            let begun = run.ended().begun.clone();
            registry.add(Arc::new(LiveRun::new(begun, Phase::Ended(Record::Disk(run)), Input::closed())));
        }
        let runs = Runs {
            registry,
            store: Arc::new(store),
            retention,
            thinning: Mutex::default(),
            written: Notify::new(),
        };
        runs.thin_out();
        runs
    }

    pub fn find(&self, id: &str, owner: &Owner) -> Option<Arc<LiveRun>> {
        self.registry.find(id, owner)
    }

    pub fn of(&self, owner: &Owner) -> Vec<Arc<LiveRun>> {
        self.registry.of(owner)
    }

    /// How many go on, and how many are over.
    pub fn counts(&self) -> (usize, usize) {
        let all = self.registry.all();
        let running = all.iter().filter(|run| run.status() == "running").count();
        let ended = all.iter().filter(|run| run.status() == "ended").count();
        (running, ended)
    }

    /// Forgets a run that is over.
    pub async fn purge(&self, run: &Arc<LiveRun>) -> Result<(), Refusal> {
        let Phase::Ended(record) = run.phase() else {
            return Err(Refusal::new(Code::RunRunning, format!("the run `{}` goes on", run.id())));
        };
        if let Record::Disk(stored) = record {
            let store = self.store.clone();
            let removed = tokio::task::spawn_blocking(move || store.remove(&stored)).await;
            let removed =
                removed.map_err(|_| Refusal::new(Code::Internal, "the record cannot be removed"))?;
            removed.map_err(|error| storage("the record cannot be removed", &error))?;
        }
        self.registry.remove(run.id());
        Ok(())
    }

    /// Removes the oldest records beyond what is to be kept. Waits for the disk.
    fn thin_out(&self) {
        // Whoever is at it sees what is over by now, or the next one does.
        let Ok(_one) = self.thinning.try_lock() else { return };
        let ended = |run: Arc<LiveRun>| match run.phase() {
            Phase::Ended(record) => Some((record.ended_at_ms(), run, record)),
            Phase::Queued(_) | Phase::Running(_) => None,
        };
        let mut ended: Vec<_> = self.registry.all().into_iter().filter_map(ended).collect();
        ended.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
        let most = self.retention.runs.map_or(usize::MAX, |runs| usize::try_from(runs).unwrap_or(usize::MAX));
        let age =
            self.retention.age.map_or(u64::MAX, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let oldest = calendar_milliseconds().saturating_sub(age);
        for (index, (at, run, record)) in ended.iter().enumerate() {
            if index >= most || *at < oldest {
                if let Record::Disk(stored) = record {
                    // One that cannot be removed is met again at the next start.
                    let _ = self.store.remove(stored);
                }
                self.registry.remove(run.id());
            }
        }
    }

    fn is_over_full(&self) -> bool {
        self.retention.runs.is_some_and(|most| self.counts().1 as u64 > most)
    }

    /// Cancels all runs and waits until they are recorded: first with the grace they have, then without.
    pub async fn end_all(&self, gentle: Duration, last: Duration) {
        let all = || self.registry.all().into_iter().filter(|run| run.status() == "running");
        let wait = |most| join_all(all().map(|run| async move { run.wait_ended(Some(most)).await }));
        for most in [gentle, last] {
            all().for_each(|run| run.cancel("the server was told to end"));
            wait(most).await;
        }
    }
}

/// Sees that records reach the disk, [`SYNC_EVERY`] after the first of them was written, until the server ends.
pub(crate) async fn sync_records(app: Shared) {
    let mut closing = app.closing.subscribe();
    loop {
        tokio::select! {
            () = app.runs.written.notified() => {}
            _ = closing.wait_for(|closing| *closing) => return,
        }
        tokio::time::sleep(SYNC_EVERY).await;
        sync(&app).await;
    }
}

/// Waits until all records so far are on the disk.
pub(crate) async fn sync(app: &Shared) {
    let store = app.runs.store.clone();
    let Ok(Err(error)) = tokio::task::spawn_blocking(move || store.sync()).await else { return };
    app.metrics.store_failed();
    (app.host.complain)(&format!("records may not outlive a loss of power: {error}"));
}

/// Removes records that are too old, until the server ends.
pub(crate) async fn keep_house(app: Shared) {
    let mut closing = app.closing.subscribe();
    loop {
        let told = closing.wait_for(|closing| *closing);
        if tokio::time::timeout(HOUSEKEEPING, told).await.is_ok() {
            return;
        }
        let app = app.clone();
        // A panic there was reported by itself.
        let _ = tokio::task::spawn_blocking(move || app.runs.thin_out()).await;
    }
}

/// A run on its way to the request that waits for it. Where that went away meanwhile, nobody else would cancel it.
#[derive(Debug)]
pub(crate) struct Handover {
    run: Option<Arc<LiveRun>>,
    /// Whether to cancel it if nobody takes it.
    cancel: Arc<AtomicBool>,
}

impl Handover {
    pub fn new(run: Arc<LiveRun>, cancel: Arc<AtomicBool>) -> Self {
        Handover { run: Some(run), cancel }
    }

    pub fn take(mut self) -> Option<Arc<LiveRun>> {
        self.run.take()
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        if let Some(run) = self.run.take()
            && self.cancel.load(Ordering::Acquire)
        {
            run.cancel(CLIENT_GONE);
        }
    }
}

/// Starts a run and its driver. A caller that does not wait for the answer any more cancels it, unless it is detached.
pub(crate) async fn start(app: Shared, owner: Owner, request: RunRequest) -> Result<Arc<LiveRun>, Refusal> {
    if *app.closing.borrow() {
        return Err(Refusal::new(Code::ShuttingDown, "the server is ending and takes no more runs"));
    }
    let place = app.places.take(&owner, Kind::Runs)?;
    let (tell, told) = oneshot::channel();
    // A task of its own: were the request dropped in the middle, there would be a run that nobody knows.
    tokio::spawn(async move {
        let cancel = Arc::new(AtomicBool::new(!request.detach));
        let queued = app.metrics.queued();
        let starter = app.clone();
        let started = tokio::task::spawn_blocking(move || begin(&starter, &owner, request)).await;
        drop(queued);
        let started = started.unwrap_or_else(|_| Err(could_not_start()));
        // One that is not heard is dropped.
        let _ = tell.send(started.map(|(live, run, using)| {
            tokio::spawn(drive(app, live.clone(), run, (Some(place), using)));
            Handover::new(live, cancel)
        }));
    });
    let handover = told.await.map_err(|_| could_not_start())??;
    handover.take().ok_or_else(could_not_start)
}

fn could_not_start() -> Refusal {
    Refusal::new(Code::Internal, "the run could not be started")
}

/// A run that waits for its turn in a context. `withdrawn` keeps it from beginning.
pub(crate) fn queue(
    app: &Shared,
    owner: &Owner,
    id: String,
    command: Vec<String>,
    withdrawn: Arc<AtomicBool>,
) -> Arc<LiveRun> {
    let begun = Begun {
        run_id: id,
        owner: owner.as_str().to_owned(),
        command,
        created_at_ms: calendar_milliseconds(),
        effective: Value::Null,
    };
    let live = Arc::new(LiveRun::new(begun, Phase::Queued(withdrawn), Input::closed()));
    app.runs.registry.add(live.clone());
    live
}

/// Its turn has come: records that it has begun, and drives it. Blocks; inside the runtime.
pub(crate) fn begin_queued(app: &Shared, live: &Arc<LiveRun>, run: Arc<Run>) -> Result<(), Refusal> {
    // Plain data with text keys always serialises. It is set once: here.
    let _ = live.effective.set(serde_json::to_value(run.effective()).unwrap_or_default());
    if let Err(error) = app.runs.store.begin(&live.recorded()) {
        run.cancel(UNRECORDED);
        let refusal = storage("the run's beginning cannot be recorded", &error);
        live.end_unbegun(&refusal.message);
        return Err(refusal);
    }
    let has_begun = live.phase.send_if_modified(|phase| {
        let waited = matches!(phase, Phase::Queued(_));
        if waited {
            *phase = Phase::Running(run.clone());
        }
        waited
    });
    if !has_begun {
        // It was cancelled at the last moment, which it is recorded with in its turn.
        run.cancel("it was cancelled before it began");
    }
    tokio::runtime::Handle::current().spawn(drive(app.clone(), live.clone(), run, (None, None)));
    Ok(())
}

/// Its turn has come and it could not begin. `told`: whoever sent it knows, and nobody else knows of it.
pub(crate) fn drop_queued(app: &Shared, live: &Arc<LiveRun>, reason: &str, told: bool) {
    if told && live.status() == "queued" {
        app.runs.registry.remove(live.id());
    }
    live.end_unbegun(reason);
}

/// Why a run is cancelled that the disk does not take.
const UNRECORDED: &str = "its beginning cannot be recorded";

/// Records that a run has begun. Blocks.
fn enter(
    app: &Shared,
    owner: &Owner,
    run: Arc<Run>,
    command: Vec<String>,
    input: Input,
) -> Result<Arc<LiveRun>, Refusal> {
    let begun = Begun {
        run_id: run.id().to_owned(),
        owner: owner.as_str().to_owned(),
        command,
        created_at_ms: calendar_milliseconds(),
        // Plain data with text keys always serialises.
        effective: serde_json::to_value(run.effective()).unwrap_or_default(),
    };
    if let Err(error) = app.runs.store.begin(&begun) {
        run.cancel(UNRECORDED);
        return Err(storage("the run's beginning cannot be recorded", &error));
    }
    let live = Arc::new(LiveRun::new(begun, Phase::Running(run), input));
    app.runs.registry.add(live.clone());
    Ok(live)
}

/// A run that has begun, and the workspace that it keeps until it is over.
type Started = (Arc<LiveRun>, Arc<Run>, Option<Using>);

/// Starts a run and records that it has begun. Blocks.
fn begin(app: &Shared, owner: &Owner, mut request: RunRequest) -> Result<Started, Refusal> {
    let using = request.workspace.as_ref().map(|id| workspaces::find(app, id, owner)?.enter()).transpose()?;
    let mut spec = request.spec();
    spec.workspace = using.as_ref().map(|using| using.workspace().directory().to_owned());
    spec.defaults = app.defaults.commands.clone();
    let command = request.shown();
    let run = Arc::new(app.engine.start(spec)?);
    let input = Input::of(&run, request.stdin.take().filter(|_| request.stdin_open));
    let live = enter(app, owner, run.clone(), command, input)?;
    Ok((live, run, using))
}

/// Sees a run to its end and its record. What it holds of its owner's quota and of a workspace is given back at its end.
async fn drive(app: Shared, live: Arc<LiveRun>, run: Arc<Run>, held: (Option<Taken>, Option<Using>)) {
    let feeding = live.clone();
    let fed = tokio::spawn(async move { feeding.input.feed_first().await });
    let mut waiting = run.wait();
    let mut copies = Copies::new(app.runs.store.clone(), run.clone());
    let outcome = loop {
        tokio::select! {
            outcome = &mut waiting => break outcome,
            () = copies.due() => {
                let (same, done) = copies.copy().await;
                copies = same;
                if let Err(error) = done {
                    app.metrics.store_failed();
                    (app.host.complain)(&format!("the output of run {} is not copied any more: {error}", live.id()));
                }
            }
            Some(warning) = run.warned() => live.warnings.send_modify(|warnings| {
                if warnings.len() < MOST_WARNINGS {
                    warnings.push(warning);
                }
            }),
        }
    };
    // Before anybody is told that it is over.
    drop((copies, held));
    fed.abort();
    live.input.close();
    let ended_at = calendar_milliseconds();
    let pending = outcome.tree.proof == Proof::Pending;
    record(&app, &live, &run, outcome.clone(), ended_at);
    let last = if pending {
        let settled = run.settled().await;
        // Not if it was purged meanwhile.
        if app.runs.find(live.id(), &live.owner).is_some() {
            record(&app, &live, &run, settled.clone(), ended_at);
        }
        settled
    } else {
        outcome
    };
    app.metrics.ended(&last);
    if app.runs.is_over_full() {
        // A panic there was reported by itself.
        let _ = tokio::task::spawn_blocking(move || app.runs.thin_out()).await;
    }
}

/// Writes the record, then lets everybody know that the run is over.
fn record(app: &Shared, live: &Arc<LiveRun>, run: &Arc<Run>, outcome: Arc<Outcome>, ended_at_ms: u64) {
    // Not on a thread for what blocks: waking one would cost more than what is written, as a rule.
    let written = tokio::task::block_in_place(|| {
        app.runs.store.finish(live.recorded(), ended_at_ms, &outcome, &mut |stream, cursor, most| {
            run.output(stream, cursor, most).map_err(std::io::Error::other)
        })
    });
    let error = match written {
        Ok(stored) => {
            live.phase.send_replace(Phase::Ended(Record::Disk(stored)));
            app.runs.written.notify_one();
            return;
        }
        Err(error) => error,
    };
    app.metrics.store_failed();
    (app.host.complain)(&format!("the record of run {} is kept in memory only: {error}", live.id()));
    live.phase.send_replace(Phase::Ended(Record::Memory { run: run.clone(), outcome, ended_at_ms }));
}
