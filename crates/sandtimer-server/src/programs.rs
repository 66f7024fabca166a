//! Programs for the front doors of other systems (see `api`): compiled if their language is, run,
//! and how that ended.
//!
//! ```text
//! language   the table of languages, and which of them this host has
//! execution  one program from its source to the end of its run
//! compiled   compiled programs, kept by the hash of what they were made of
//! ending     how a stage ended, in the terms that judges share
//! ```
//! Compiling and running are two runs, each isolated and with its own limits; both are found under
//! /v1/runs. So few programs are executed at a time that a program which needs a quarter of its
//! time limit in processor time is not ended by it because of others. Further ones wait for their
//! turn, which does not count towards their limits. A program that has a turn waits for nothing
//! else before it runs, and one that only waits while it runs releases its turn.

mod compile_cache;
mod ending;
mod execution;
pub(crate) mod language;

use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::Bytes;
use sandtimer::Limits;
use sandtimer::limits::Key;
use sandtimer::scope::ScopeId;
use sandtimer_os::clock::monotonic_nanoseconds;

use crate::auth::OwnerId;
use crate::connection::{Connection, while_there};
use crate::error::{ApiRejection, Code};
use crate::files::{self, FilePath, WriteOptions};
use crate::quota::{ConcurrencyLimit, Permit, PermittedValue, QuotaKind, QuotaPermit};
use crate::runs::LiveRun;
use crate::state::SharedApp;
use crate::workspaces::{ScratchWorkspace, Workspace};

use compile_cache::CompileCache;
use language::Toolchains;

pub(crate) use ending::{StageEnd, StageReport};
pub(crate) use execution::{execute, execute_queued};
pub(crate) use language::ProgramLanguage;

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

/// A file that a program comes with.
#[derive(Debug, Clone)]
pub(crate) struct ProgramFile {
    /// Relative to the directory that the program starts in.
    pub path: String,
    pub content: Bytes,
}

/// The limits of one stage: those of the request, and those of the front door where neither it nor
/// the operator chose.
#[derive(Debug, Clone, Default)]
pub(crate) struct StageLimits {
    pub limits: Limits,
    pub defaults: Limits,
    /// Ends it at its output limit.
    pub ends_at_output_limit: bool,
}

/// Where a program runs.
#[derive(Debug, Clone, Default)]
pub(crate) enum Directory {
    /// In a directory of its own, which has its files if there are any.
    #[default]
    Own,
    /// In a directory of its own that is read after its end.
    Kept,
    /// In this workspace.
    Named(Arc<Workspace>),
}

/// A program to execute.
#[derive(Debug, Clone)]
pub(crate) struct ProgramSpec {
    pub language: &'static ProgramLanguage,
    /// The file that the source is written to; that of the language if it has no name.
    pub file_name: Option<String>,
    pub source: Bytes,
    pub files: Vec<ProgramFile>,
    pub arguments: Vec<String>,
    pub compiler_options: Vec<String>,
    pub stdin: Option<Vec<u8>>,
    pub network: bool,
    pub directory: Directory,
    /// Where a link to its directory is.
    pub directory_link: Option<&'static str>,
    /// One stream, stdout, for all that it writes.
    pub joins_streams: bool,
    /// The size of its stack, if that is not the usual one.
    pub stack_kibibytes: Option<u64>,
    pub compile: StageLimits,
    pub run: StageLimits,
    /// The scope that its runs are in; that of the owner if there is none.
    pub scope: Option<ScopeId>,
}

impl ProgramSpec {
    pub fn new(language: &'static ProgramLanguage, source: impl Into<Bytes>) -> Self {
        ProgramSpec {
            language,
            file_name: None,
            source: source.into(),
            files: Vec::new(),
            arguments: Vec::new(),
            compiler_options: Vec::new(),
            stdin: None,
            network: false,
            directory: Directory::Own,
            directory_link: None,
            joins_streams: false,
            stack_kibibytes: None,
            compile: StageLimits::default(),
            run: StageLimits::default(),
            scope: None,
        }
    }

    fn file(&self) -> &str {
        self.file_name.as_deref().unwrap_or(self.language.file)
    }

    /// Its source, if an interpreter may be given it without a file.
    fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.source).ok().filter(|text| !text.contains('\0'))
    }

    /// Whether its interpreter may be given it without a file. A workspace with a name has only the
    /// files that belong there.
    fn can_run_inline(&self) -> bool {
        let is_alone = self.files.is_empty() && self.arguments.is_empty();
        self.text().is_some()
            && match self.directory {
                Directory::Own => is_alone,
                Directory::Kept => false,
                Directory::Named(_) => true,
            }
    }
}

/// The runs of a program that has been executed.
#[derive(Debug)]
pub(crate) struct ProgramResult {
    /// `None` if nothing had to be compiled.
    pub compile: Option<StageReport>,
    /// The run of the program, which has ended; `None` if it did not compile.
    pub run: Option<Arc<LiveRun>>,
    /// Where it ran, if its directory is read after its end.
    pub workspace: Option<Arc<ScratchWorkspace>>,
}

/// What executes programs.
#[derive(Debug)]
pub(crate) struct ProgramService {
    toolchains: Toolchains,
    cache: CompileCache,
}

impl ProgramService {
    /// Opens the one of a state directory.
    ///
    /// # Errors
    /// When the directory of compiled programs cannot be made or read.
    pub fn open(state_directory: &Path) -> io::Result<Self> {
        Ok(ProgramService { toolchains: Toolchains::default(), cache: CompileCache::open(state_directory)? })
    }
}

/// The version of a language, if this host has it.
pub(crate) async fn version(app: &SharedApp, language: &'static ProgramLanguage) -> Option<String> {
    app.program_service.toolchains.version(&app.engine, language).await
}

/// All languages that this host has, with their versions.
pub(crate) async fn installed(app: &SharedApp) -> Vec<(&'static ProgramLanguage, String)> {
    app.program_service.toolchains.all(&app.engine).await
}

/// The least that the operator and the machine allow this owner's runs of one kind.
pub(crate) fn ceiling(app: &SharedApp, owner: &OwnerId, key: impl Into<Key>) -> Option<u64> {
    let key = key.into();
    let of_owner = app.tenants.ceiling(owner, key);
    [app.engine.ceilings().get(key), of_owner].into_iter().flatten().min()
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
async fn enter_queued(owner: &OwnerId) -> Permit {
    TURNS.enter(owner).await
}

/// Waits for a place under an owner's quota.
///
/// # Errors
/// At the timeout, and when the server ends.
async fn take_quota_permit(
    app: &SharedApp,
    owner: &OwnerId,
    wait_limit: WaitLimit<'_>,
) -> Result<QuotaPermit, ApiRejection> {
    let mut closing = app.closing.subscribe();
    let timeout = async {
        match wait_limit {
            WaitLimit::OfClient => tokio::time::sleep(QUOTA_TIMEOUT).await,
            WaitLimit::Unlimited(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        taken = app.quotas.wait(owner, QuotaKind::Runs) => Ok(taken),
        () = timeout => app.quotas.take(owner, QuotaKind::Runs),
        _ = closing.wait_for(|closing| *closing) => app.quotas.take(owner, QuotaKind::Runs),
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
pub(crate) async fn while_quota<T, F>(app: &SharedApp, mut work: impl FnMut() -> F) -> Result<T, ApiRejection>
where
    F: Future<Output = Result<T, ApiRejection>>,
{
    let since = monotonic_nanoseconds();
    loop {
        match work().await {
            Err(rejection) if rejection.code == Code::Quota => {
                let has_waited = monotonic_nanoseconds() - since > QUOTA_TIMEOUT.as_nanos() as u64;
                if has_waited || *app.closing.borrow() {
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
    done.unwrap_or_else(|| Err(ApiRejection::new(Code::RequestTimeout, "the client went away")))
}

/// Writes files of a program.
pub(crate) async fn write(
    workspace: &Arc<Workspace>,
    written: Vec<(ProgramFile, u32)>,
) -> Result<(), ApiRejection> {
    let placed =
        written.into_iter().map(|(file, mode)| Ok((FilePath::parse(&file.path)?, file.content, mode)));
    let placed: Vec<(FilePath, Bytes, u32)> = placed.collect::<Result<_, ApiRejection>>()?;
    files::act(workspace, move |tree| {
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
