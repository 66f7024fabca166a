//! What a worker executes jobs with, and which jobs it executes.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandtimer::engine::{Engine, Interpreters, machine_memory};
use sandtimer::limits::Limits;
use sandtimer::model::Source;
use sandtimer::scope::ScopeId;

use super::observing::Observer;
use crate::job::{JobSpec, JobStore};

/// Share of all jobs of a worker, in percent: that of one run without an operator's ceiling.
const JOBS_PERCENT: u64 = 80;

/// Returns 80 % of [`machine_memory`], in bytes.
pub fn usable_memory() -> u64 {
    machine_memory() / 100 * JOBS_PERCENT
}

/// What a worker executes jobs with: the engine, the store, and bounds of its own.
#[derive(Debug, Clone)]
pub struct WorkerContext {
    /// Starts the runs of jobs.
    pub engine: Engine,
    /// The store that the jobs are leased from.
    pub store: Arc<dyn JobStore>,
    /// The warm interpreters in which Python programs of jobs run.
    pub interpreters: Arc<Interpreters>,
    /// The worker's own limits, by source, for runs whose spec names none; by default there are
    /// none.
    pub defaults: Vec<(Source, Limits)>,
    /// The directory below which jobs with inputs or outputs have theirs.
    /// [`Worker::work`](super::Worker::work) makes it.
    pub directories: PathBuf,
    /// The number of bytes that are stored of a job's output files together; by default
    /// [`MAX_JOB_FILE_BYTES`].
    pub max_file_bytes: u64,
    /// Is notified of the end of each scope of a job; by default there is no observer.
    pub observer: Option<Arc<dyn Observer>>,
}

/// The default of [`WorkerContext::max_file_bytes`].
pub const MAX_JOB_FILE_BYTES: u64 = 64 << 20;

impl WorkerContext {
    /// Makes a context without limits of its own, whose jobs have their directories in `job-files`
    /// below a state directory.
    pub fn new(engine: Engine, store: Arc<dyn JobStore>, state_directory: &Path) -> Self {
        let directories = state_directory.join("job-files");
        let (defaults, max_file_bytes) = (Vec::new(), MAX_JOB_FILE_BYTES);
        let interpreters = Arc::new(Interpreters::new(engine.clone(), "python3"));
        WorkerContext { engine, store, interpreters, defaults, directories, max_file_bytes, observer: None }
    }
}

/// Decides whether a worker executes a job, by the job's owner.
pub trait Admission: Send + Sync + Debug {
    /// Returns the scope in which the job runs; `None` if its owner has none.
    ///
    /// # Errors
    /// The reason if the job is not to be executed: it fails with that reason.
    fn admit(&self, owner: &str, spec: &JobSpec) -> Result<Option<ScopeId>, String>;
}
