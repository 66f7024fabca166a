//! Plans of files that are kept, and what they are known by.

use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use sandtimer_os::program::StepProgram;

use crate::isolate::files::FilesPlan;
use crate::isolate::root;

/// How long a plan may be used: shorter than it takes a person to install a program and try it.
const LIFETIME_NANOSECONDS: u64 = 1_000_000_000;
/// Plans kept at a time.
const MAX_PLANS: usize = 256;

/// Everything a plan depends on that differs between the runs of one engine. Not the job's uid,
/// which a plan leaves open.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FilesKey {
    pub command: OsString,
    pub path: OsString,
    pub host_cwd: PathBuf,
    pub cwd: Option<PathBuf>,
    pub workspaces: Vec<PathBuf>,
    pub read_only: Vec<PathBuf>,
    pub follows_package_links: bool,
    pub world_readable: Vec<PathBuf>,
    pub private_workspace: bool,
    pub workspace: Option<PathBuf>,
    pub workspace_link: Option<PathBuf>,
    /// The workspace is one of the caller's directories.
    pub is_callers: bool,
    pub temporary: Option<PathBuf>,
    pub host_proc: bool,
    pub show_credentials: bool,
    pub network: bool,
    pub ptys: u32,
    pub gpu: bool,
}

/// A plan, and what a template for it is known by.
#[derive(Debug)]
pub(super) struct KnownFiles {
    plan: FilesPlan,
    /// See [`KnownFiles::shared`]. Made when plans are compared: a single run has none.
    shared: OnceLock<StepProgram>,
    /// Which template it has, once that is settled; `None` where there is no room for one.
    pub template: OnceLock<Option<usize>>,
}

impl KnownFiles {
    pub(super) fn new(plan: FilesPlan) -> Self {
        KnownFiles { plan, shared: OnceLock::new(), template: OnceLock::new() }
    }

    /// The steps that make its template, as if it were the first: plans that agree in them can
    /// share one.
    pub(super) fn shared(&self) -> &StepProgram {
        self.shared.get_or_init(|| root::template(&self.plan.mounts, 0, false, false))
    }
}

impl Deref for KnownFiles {
    type Target = FilesPlan;

    fn deref(&self) -> &FilesPlan {
        &self.plan
    }
}

/// Recent plans.
#[derive(Debug, Default)]
pub(super) struct FilesPlans {
    plans: HashMap<FilesKey, (u64, Arc<KnownFiles>)>,
}

impl FilesPlans {
    /// A plan made less than [`LIFETIME_NANOSECONDS`] before `now` (monotonic nanoseconds).
    pub(super) fn get(&self, key: &FilesKey, now: u64) -> Option<Arc<KnownFiles>> {
        let (made, plan) = self.plans.get(key)?;
        (now.saturating_sub(*made) < LIFETIME_NANOSECONDS).then(|| plan.clone())
    }

    /// Keeps a plan; the old ones go when there are too many.
    pub(super) fn keep(&mut self, key: FilesKey, plan: Arc<KnownFiles>, now: u64) {
        if self.plans.len() >= MAX_PLANS {
            self.plans.retain(|_, (made, _)| now.saturating_sub(*made) < LIFETIME_NANOSECONDS);
        }
        if self.plans.len() < MAX_PLANS {
            self.plans.insert(key, (now, plan));
        }
    }
}
