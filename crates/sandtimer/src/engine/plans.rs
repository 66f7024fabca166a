//! File plans kept for a moment: thousands of like runs a second do not look at the same thousand files each.
//!
//! A plan that is out of date shows what it names or fails to mount; it never shows something else, because sources are
//! opened without following links.

use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use sandtimer_os::program::Program;

use crate::isolate::files::FilesPlan;
use crate::isolate::root;

/// How long a plan may be used: shorter than it takes a person to install a program and try it.
const LIFETIME: u64 = 1_000_000_000;
/// Plans kept at a time.
const MOST: usize = 256;

/// Everything a plan depends on that differs between the runs of one engine. Not who the job is: that a plan leaves open.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FilesKey {
    pub command: OsString,
    pub path: OsString,
    pub host_cwd: PathBuf,
    pub cwd: Option<PathBuf>,
    pub workspaces: Vec<PathBuf>,
    pub read_only: Vec<PathBuf>,
    pub world_readable: Vec<PathBuf>,
    pub private_workspace: bool,
    pub workspace: Option<PathBuf>,
    pub host_proc: bool,
    pub show_credentials: bool,
    pub network: bool,
    pub terminal: bool,
    pub gpu: bool,
}

/// A plan, and what a template for it is known by.
#[derive(Debug)]
pub(super) struct KnownFiles {
    plan: FilesPlan,
    /// The steps that make its template, as if it were the first: plans that agree in them can share one.
    pub shared: Program,
    /// Which template it has, once that is settled; `None` where there is no room for one.
    pub template: OnceLock<Option<usize>>,
}

impl KnownFiles {
    pub(super) fn new(plan: FilesPlan) -> Self {
        let shared = root::template(&plan.mounts, 0, false, false);
        KnownFiles { plan, shared, template: OnceLock::new() }
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
    /// A plan made less than [`LIFETIME`] before `now` (monotonic nanoseconds).
    pub(super) fn get(&self, key: &FilesKey, now: u64) -> Option<Arc<KnownFiles>> {
        let (made, plan) = self.plans.get(key)?;
        (now.saturating_sub(*made) < LIFETIME).then(|| plan.clone())
    }

    /// Keeps a plan; the old ones go when there are too many.
    pub(super) fn keep(&mut self, key: FilesKey, plan: Arc<KnownFiles>, now: u64) {
        if self.plans.len() >= MOST {
            self.plans.retain(|_, (made, _)| now.saturating_sub(*made) < LIFETIME);
        }
        if self.plans.len() < MOST {
            self.plans.insert(key, (now, plan));
        }
    }
}
