//! Programs for the front doors of other systems (see `api`): compiled if their language is, run, and how that ended.
//!
//! ```text
//! language   the table of languages, and which of them this host has
//! execution  one program from its source to the end of its run
//! compiled   compiled programs, kept by the hash of what they were made of
//! ending     how a stage ended, in the terms that judges share
//! ```
//! Compiling and running are two runs, each isolated and with its own limits; both are found under /v1/runs. Only so many
//! programs are executed at a time that one which needs a quarter of its time limit in processor time is not ended by it
//! because of others. Further ones wait for their turn, which does not count towards their limits; a program that only waits gives its
//! turn up.

mod compiled;
mod ending;
mod execution;
pub(crate) mod language;

use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use sandtimer::Limits;
use sandtimer::limits::Key;
use sandtimer_os::clock::monotonic_nanoseconds;

use crate::Shared;
use crate::auth::Owner;
use crate::error::{Code, Refusal};
use crate::files::{self, Place, WriteOptions};
use crate::quota::{ConcurrencyLimit, Kind, Permit, Permitted, Taken};
use crate::runs::LiveRun;
use crate::workspaces::{ScratchWorkspace, Workspace};

use compiled::CompileCache;
use language::Toolchains;

pub(crate) use ending::{StageEnd, StageReport};
pub(crate) use execution::{execute, execute_in_turn};
pub(crate) use language::Language;

/// Programs that are executed at a time for each processor.
const PER_PROCESSOR: usize = 4;
/// How long a program waits for its turn at most: its sender waits only so long for an answer.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a program waits for room under its owner's quota before its sender is asked to come again.
const ROOM_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a place is tried for: no event reports that one is free.
const ROOM_INTERVAL: Duration = Duration::from_millis(20);
static TURNS: LazyLock<ConcurrencyLimit> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let turns = processors * PER_PROCESSOR;
    ConcurrencyLimit::new(turns, turns)
});

/// A file that a program comes with.
#[derive(Debug, Clone)]
pub(crate) struct ProgramFile {
    /// Relative to the directory that the program starts in.
    pub path: String,
    pub content: Vec<u8>,
}

/// The limits of one stage: those of the request, and those of the front door where neither it nor the operator chose.
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
pub(crate) struct Program {
    pub language: &'static Language,
    /// The file that the source is written to; that of the language if it has no name.
    pub file_name: Option<String>,
    pub source: Vec<u8>,
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
}

impl Program {
    pub fn new(language: &'static Language, source: impl Into<Vec<u8>>) -> Self {
        Program {
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
        }
    }

    fn file(&self) -> &str {
        self.file_name.as_deref().unwrap_or(self.language.file)
    }

    /// Its source, if an interpreter may be given it without a file.
    fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.source).ok().filter(|text| !text.contains('\0'))
    }

    /// Whether its interpreter may be given it without a file. A workspace with a name has only the files that belong there.
    fn runs_as_text(&self) -> bool {
        let is_alone = self.files.is_empty() && self.arguments.is_empty();
        self.text().is_some()
            && match self.directory {
                Directory::Own => is_alone,
                Directory::Kept => false,
                Directory::Named(_) => true,
            }
    }
}

/// What has been executed.
#[derive(Debug)]
pub(crate) struct Executed {
    /// `None` where nothing had to be compiled.
    pub compile: Option<StageReport>,
    /// The run of the program, which has ended; `None` where it did not compile.
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
pub(crate) async fn version(app: &Shared, language: &'static Language) -> Option<String> {
    app.program_service.toolchains.version(&app.engine, language).await
}

/// All languages that this host has, with their versions.
pub(crate) async fn installed(app: &Shared) -> Vec<(&'static Language, String)> {
    app.program_service.toolchains.all(&app.engine).await
}

/// The least that the operator and the machine allow this owner's runs of one kind.
pub(crate) fn ceiling(app: &Shared, owner: &Owner, key: impl Into<Key>) -> Option<u64> {
    let key = key.into();
    let of_owner = app.tenants.ceiling(owner, key);
    [app.engine.ceilings().get(key), of_owner].into_iter().flatten().min()
}

/// Waits for a turn to execute a program, in a run or in a context. `None`: it begins without one, as it has waited for long.
pub(crate) async fn enter(owner: &Owner) -> Option<Permit> {
    tokio::time::timeout(TURN_TIMEOUT, TURNS.enter(owner)).await.ok()
}

/// Waits for a place under an owner's quota.
///
/// # Errors
/// When there is none for long.
async fn take_place(app: &Shared, owner: &Owner) -> Result<Taken, Refusal> {
    while_quota(app, || std::future::ready(app.places.take(owner, Kind::Runs))).await
}

/// Does again what a quota does not allow now, for a while.
///
/// # Errors
/// Those of `work`.
pub(crate) async fn while_quota<T, F>(app: &Shared, mut work: impl FnMut() -> F) -> Result<T, Refusal>
where
    F: Future<Output = Result<T, Refusal>>,
{
    let since = monotonic_nanoseconds();
    loop {
        match work().await {
            Err(refusal) if refusal.code == Code::Quota => {
                let has_waited = monotonic_nanoseconds() - since > ROOM_TIMEOUT.as_nanos() as u64;
                if has_waited || *app.closing.borrow() {
                    return Err(refusal);
                }
            }
            done => return done,
        }
        tokio::time::sleep(ROOM_INTERVAL).await;
    }
}

/// Writes files of a program.
pub(crate) async fn write(
    workspace: &Arc<Workspace>,
    written: Vec<(ProgramFile, u32)>,
) -> Result<(), Refusal> {
    let placed = written.into_iter().map(|(file, mode)| Ok((Place::parse(&file.path)?, file.content, mode)));
    let placed: Vec<(Place, Vec<u8>, u32)> = placed.collect::<Result<_, Refusal>>()?;
    files::act(workspace, move |tree| {
        for (place, content, mode) in &placed {
            let options = WriteOptions { parents: true, create_only: false, mode: Some(*mode) };
            tree.write(place, content, options)?;
        }
        Ok(())
    })
    .await
}

/// The report of a run that has ended, with its output.
///
/// # Errors
/// When its record cannot be read.
pub(crate) async fn report(run: &LiveRun) -> Result<Permitted<StageReport>, Refusal> {
    let missing = || Refusal::new(Code::Internal, "the run has no outcome");
    let outcome = run.outcome().await?.ok_or_else(missing)?;
    let report = StageReport::of(&outcome);
    Ok(outcome.map(|_| report))
}
