//! What programs are executed with: the languages of this host, what is compiled, turns and places.

use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::FromRef;
use sandtimer::limits::Key;
use sandtimer_os::clock::monotonic_nanoseconds;

use super::compile_cache::CompileCache;
use super::ending::StageReport;
use super::language::{ProgramLanguage, Toolchains};
use super::spec::ProgramFile;
use crate::auth::OwnerId;
use crate::connection::{Connection, while_there};
use crate::error::{ApiRejection, Code};
use crate::files::{FilePath, WriteOptions, act};
use crate::intake::Messages;
use crate::quota::{ConcurrencyLimit, Permit, PermittedValue, QuotaKind, QuotaPermit};
use crate::runs::{LiveRun, RunService};
use crate::workspaces::Workspace;

/// Programs that are executed at a time for each processor, of all owners and of one.
const MAX_PER_PROCESSOR: usize = 4;
const MAX_PER_PROCESSOR_AND_OWNER: usize = 3;
/// The longest wait for a turn of a program whose sender waits for the answer.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait for a place under the owner's quota of a program whose sender waits for the
/// answer.
const QUOTA_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval at which work is tried again that a quota does not allow: no event reports that it
/// may succeed.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// The interval at which the processor time of a program is sampled, and the part of it that a
/// program has to use to keep its turn.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const COMPUTING_SHARE: u32 = 10;
static TURNS: LazyLock<ConcurrencyLimit> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    ConcurrencyLimit::new(processors * MAX_PER_PROCESSOR_AND_OWNER, processors * MAX_PER_PROCESSOR)
});

/// What executes programs.
#[derive(Debug)]
pub(crate) struct ProgramService {
    pub runs: Arc<RunService>,
    toolchains: Toolchains,
    pub(super) cache: CompileCache,
}

impl ProgramService {
    /// Opens the one of a state directory.
    ///
    /// # Errors
    /// When the directory of compiled programs cannot be made or read.
    pub fn open(state_directory: &Path, runs: Arc<RunService>) -> io::Result<Self> {
        Ok(ProgramService {
            runs,
            toolchains: Toolchains::default(),
            cache: CompileCache::open(state_directory)?,
        })
    }
}

/// The version of a language, if this host has it.
pub(crate) async fn version(service: &ProgramService, language: &'static ProgramLanguage) -> Option<String> {
    service.toolchains.version(&service.runs.core.engine, language).await
}

/// All languages that this host has, with their versions.
pub(crate) async fn installed(service: &ProgramService) -> Vec<(&'static ProgramLanguage, String)> {
    service.toolchains.all(&service.runs.core.engine).await
}

/// The least that the operator and the machine allow this owner's runs of one kind.
pub(crate) fn ceiling(service: &ProgramService, owner: &OwnerId, key: impl Into<Key>) -> Option<u64> {
    let key = key.into();
    let of_owner = service.runs.core.tenants.ceiling(owner, key);
    [service.runs.core.engine.ceilings().get(key), of_owner].into_iter().flatten().min()
}

/// How long a program waits for its place and its turn.
#[derive(Clone, Copy)]
pub(crate) enum WaitLimit<'a> {
    /// As long as a client waits for an answer; then it is executed without a turn, or refused
    /// without a place.
    OfClient,
    /// Until they come: no client waits for it. The function is called when the turn has come.
    Unlimited(&'a (dyn Fn() + Sync)),
}

/// Waits for a turn to execute a program, in a run or in a context. `None`: it begins without a
/// turn, at the timeout.
pub(crate) async fn enter(owner: &OwnerId) -> Option<Permit> {
    tokio::time::timeout(TURN_TIMEOUT, TURNS.enter(owner)).await.ok()
}

/// Waits for a turn until it comes.
pub(super) async fn enter_queued(owner: &OwnerId) -> Permit {
    TURNS.enter(owner).await
}

/// Waits for a place under an owner's quota.
///
/// # Errors
/// At the timeout, and when the server ends.
pub(super) async fn take_quota_permit(
    service: &ProgramService,
    owner: &OwnerId,
    wait_limit: WaitLimit<'_>,
) -> Result<QuotaPermit, ApiRejection> {
    let mut closing = service.runs.core.closing.subscribe();
    let timeout = async {
        match wait_limit {
            WaitLimit::OfClient => tokio::time::sleep(QUOTA_TIMEOUT).await,
            WaitLimit::Unlimited(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        taken = service.runs.core.quotas.wait(owner, QuotaKind::Runs) => Ok(taken),
        () = timeout => service.runs.core.quotas.take(owner, QuotaKind::Runs),
        _ = closing.wait_for(|closing| *closing) => service.runs.core.quotas.take(owner, QuotaKind::Runs),
    }
}

/// Waits for the end of a run. A program that does not compute releases its turn for another one.
pub(crate) async fn wait_ended(run: &LiveRun, turn: &mut Option<Permit>) {
    let mut computed = 0;
    while turn.is_some() {
        if tokio::time::timeout(SAMPLE_INTERVAL, run.wait_ended(None)).await.is_ok() {
            return;
        }
        let Ok(running) = run.running() else { continue };
        let sample = tokio::task::spawn_blocking(move || running.inspect().cpu_ms);
        let Ok(now) = sample.await else { continue };
        if u128::from(now.saturating_sub(computed)) < (SAMPLE_INTERVAL / COMPUTING_SHARE).as_millis() {
            *turn = None;
        }
        computed = now;
    }
    run.wait_ended(None).await;
}

/// Does again what a quota does not allow now, for a while.
///
/// # Errors
/// Those of `work`.
pub(crate) async fn while_quota<T, F>(
    service: &ProgramService,
    mut work: impl FnMut() -> F,
) -> Result<T, ApiRejection>
where
    F: Future<Output = Result<T, ApiRejection>>,
{
    let since = monotonic_nanoseconds();
    loop {
        match work().await {
            Err(rejection) if rejection.code == Code::Quota => {
                let has_waited = monotonic_nanoseconds() - since > QUOTA_TIMEOUT.as_nanos() as u64;
                if has_waited || *service.runs.core.closing.borrow() {
                    return Err(rejection);
                }
            }
            done => return done,
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Waits for work while the client is there.
pub(crate) async fn attended<T>(
    connection: &Connection,
    work: impl Future<Output = Result<T, ApiRejection>>,
) -> Result<T, ApiRejection> {
    let mut done = None;
    while_there(connection, async { done = Some(work.await) }, || {}).await;
    // This answer is sent to no client.
    done.unwrap_or_else(|| Err(ApiRejection::new(Code::RequestTimeout, "the client disconnected")))
}

/// Writes files of a program.
pub(crate) async fn write(
    workspace: &Arc<Workspace>,
    written: Vec<(ProgramFile, u32)>,
) -> Result<(), ApiRejection> {
    let placed =
        written.into_iter().map(|(file, mode)| Ok((FilePath::parse(&file.path)?, file.content, mode)));
    let placed: Vec<(FilePath, Bytes, u32)> = placed.collect::<Result<_, ApiRejection>>()?;
    act(workspace, move |tree| {
        for (file_path, content, mode) in &placed {
            let options = WriteOptions { parents: true, create_only: false, mode: Some(*mode) };
            tree.write(file_path, content, options)?;
        }
        Ok(())
    })
    .await
}

/// The report of a run that has ended, with its output.
///
/// # Errors
/// When its record cannot be read.
pub(crate) async fn report(run: &LiveRun) -> Result<PermittedValue<StageReport>, ApiRejection> {
    let missing = || ApiRejection::new(Code::Internal, "the run has no outcome");
    let outcome = run.outcome().await?.ok_or_else(missing)?;
    let report = StageReport::of(&outcome);
    Ok(outcome.map(|_| report))
}

impl FromRef<Arc<ProgramService>> for Messages {
    fn from_ref(service: &Arc<ProgramService>) -> Self {
        service.runs.core.messages.clone()
    }
}
