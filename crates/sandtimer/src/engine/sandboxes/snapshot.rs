//! Snapshots and forks: what a sandbox has written becomes a layer that nothing writes to any more,
//! and that others are stacked on.
//!
//! ```text
//! idle ─▶ unmounted ─▶ locked ─▶ stacked, by the steps of record.rs ─▶ snapshot: the record of a template is written
//!                                                                   └▶ fork: sandboxes over the same layers are made
//! ```
//! No file is copied: both take as long for many files as for few.

use std::fs::File;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};

use super::super::error::Error;
use super::super::opened::new_run_id;
use super::file_work::start_later;
use super::layers::MAX_LAYERS;
use super::record::{self, Record};
use super::stored::{self, Origin, StoredTemplate};
use super::{Life, Sandbox, SandboxError, SandboxState, Sandboxes, lock, mount, walk};
use crate::scope::ScopeId;

/// Sandboxes that one call may make.
pub const MAX_FORKS: usize = 100;
/// How long a snapshot waits for runs that have ended, or are being started.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);

impl Sandboxes {
    /// Makes a template of the files of a sandbox, which nothing changes any more. Nothing may run
    /// in the sandbox.
    ///
    /// # Errors
    /// The sandbox has runs, contexts or [`MAX_LAYERS`] layers, its files are being read or
    /// written, the owner has a template of this name, or the disk is full.
    ///
    /// ```
    /// # use sandtimer::{Engine, Limits, SandboxNetwork, SandboxSpec, Spec, Template};
    /// #
    /// # let engine = Engine::new()?;
    /// # let state = tempfile::tempdir()?;
    /// # let sandboxes = engine.sandboxes(state.path(), &|_| None, &|_| ())?;
    /// # let sandbox = sandboxes.create(SandboxSpec {
    /// #     template: Template::Host,
    /// #     template_name: "host".to_owned(),
    /// #     owner: "user".to_owned(),
    /// #     parent: None,
    /// #     network: SandboxNetwork::None,
    /// #     limits: Limits::new(),
    /// # })?;
    /// let line = ["sh", "-c", "echo kept >/workspace/file"];
    /// engine.run_blocking(Spec { sandbox: Some(sandbox.clone()), ..Spec::command(line) })?;
    /// let template = sandboxes.snapshot(&sandbox, Some("with-file"))?;
    /// assert_eq!(template.name, "with-file");
    /// assert_eq!(sandboxes.templates("user").len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self, sandbox: &Sandbox, name: Option<&str>) -> Result<StoredTemplate, Error> {
        self.snapshot_by_steps(sandbox, name, &|_| {})
    }

    pub(super) fn snapshot_by_steps(
        &self,
        sandbox: &Sandbox,
        name: Option<&str>,
        reached: &dyn Fn(&str),
    ) -> Result<StoredTemplate, Error> {
        let id = new_run_id();
        let name = name.unwrap_or(&id).to_owned();
        stored::check_free(&lock(&self.templates), &name, &sandbox.owner())?;
        let record = self.push_layer(sandbox, reached)?;
        let template = StoredTemplate {
            id,
            name,
            owner: record.owner,
            origin: Origin::Snapshot(sandbox.id().to_owned()),
            created_at_ms: calendar_milliseconds(),
            made_from: record.template_name,
            stack: record.stack,
            // What is lost already stays so.
            boot_id: if record.is_uncertain { String::new() } else { record::boot_id() },
            is_synced: false,
            size_bytes: None,
        };
        self.record_template(template, reached)
    }

    /// Makes sandboxes with the files of another one, which then change independently. Nothing may
    /// run in the other one. All are made, or none.
    ///
    /// # Errors
    /// As [`Sandboxes::snapshot`]; `count` is not a number from 1 to [`MAX_FORKS`].
    ///
    /// ```
    /// # use sandtimer::{Engine, Limits, SandboxNetwork, SandboxSpec, Spec, Template};
    /// #
    /// # let engine = Engine::new()?;
    /// # let state = tempfile::tempdir()?;
    /// # let sandboxes = engine.sandboxes(state.path(), &|_| None, &|_| ())?;
    /// # let sandbox = sandboxes.create(SandboxSpec {
    /// #     template: Template::Host,
    /// #     template_name: "host".to_owned(),
    /// #     owner: "user".to_owned(),
    /// #     parent: None,
    /// #     network: SandboxNetwork::None,
    /// #     limits: Limits::new(),
    /// # })?;
    /// let line = ["sh", "-c", "echo kept >/workspace/file"];
    /// engine.run_blocking(Spec { sandbox: Some(sandbox.clone()), ..Spec::command(line) })?;
    /// let forks = sandboxes.fork(&sandbox, 2, None)?;
    /// let fork = Some(forks[1].clone());
    /// let spec = Spec { sandbox: fork, ..Spec::command(["cat", "/workspace/file"]) };
    /// let outcome = engine.run_blocking(spec)?;
    /// assert_eq!(outcome.stdout, "kept\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fork(
        &self,
        sandbox: &Sandbox,
        count: usize,
        parent: Option<ScopeId>,
    ) -> Result<Vec<Sandbox>, Error> {
        self.fork_by_steps(sandbox, count, parent, &|_| {})
    }

    pub(super) fn fork_by_steps(
        &self,
        sandbox: &Sandbox,
        count: usize,
        parent: Option<ScopeId>,
        reached: &dyn Fn(&str),
    ) -> Result<Vec<Sandbox>, Error> {
        if !(1..=MAX_FORKS).contains(&count) {
            return Err(SandboxError::ForkCount { count, most: MAX_FORKS }.into());
        }
        let origin = self.push_layer(sandbox, reached)?;
        let (mut forks, mut failed) = (Vec::new(), None);
        while forks.len() < count && failed.is_none() {
            let created_at_ms = calendar_milliseconds();
            let life = origin.life.renewed(created_at_ms);
            let record = Record { created_at_ms, life, boot_id: record::boot_id(), ..origin.clone() };
            self.layers.retain(record.stack.references());
            match self.make(record, parent) {
                Ok(fork) => forks.push(fork),
                Err(error) => failed = Some(error),
            }
            reached("fork made");
        }
        self.release(&origin.stack);
        if let Some(error) = failed {
            forks.iter().for_each(|fork| self.unmake(fork));
            return Err(error);
        }
        lock(&self.all).extend(forks.iter().map(|fork| (fork.id().to_owned(), fork.clone())));
        Ok(forks)
    }

    /// Makes the sandbox's own layer the topmost read-only layer. Returns its record, whose layers
    /// are retained for the caller.
    fn push_layer(&self, sandbox: &Sandbox, reached: &dyn Fn(&str)) -> Result<Record, Error> {
        let state = &sandbox.state;
        let mut life = state.wait_unused()?;
        // The next run mounts it again. Until then what is held here keeps it out.
        life.mounted = None;
        let _lock = mount::take_lock(&state.home)?;
        // What is made of it is as uncertain as it is.
        state.note_boot()?;
        let storage = |source| SandboxError::Storage { doing: "cannot stack the sandbox's layer", source };
        let mut record = lock(&state.record);
        state.home.finish_stacking(&self.layers, &record, &|_| {}).map_err(storage)?;
        if !state.home.is_upper_empty().map_err(storage)? {
            if record.stack.layers.len() >= MAX_LAYERS {
                return Err(SandboxError::TooDeep { id: state.id.clone(), most: MAX_LAYERS }.into());
            }
            let mut next = record.clone();
            let layer = new_run_id();
            next.stack.layers.push(layer.clone());
            let stacked = state.home.stack(&self.layers, &next, reached);
            // What is on disk counts: the rest of the steps is done later.
            if stacked.is_ok() || state.home.read().is_ok_and(|read| read.stack == next.stack) {
                self.layers.retain([&layer]);
                *record = next;
            }
            stacked.map_err(storage)?;
        }
        self.layers.retain(record.stack.references());
        Ok(record.clone())
    }

    /// Records a template, whose layers are retained for it. On failure they are released.
    pub(super) fn record_template(
        &self,
        template: StoredTemplate,
        reached: &dyn Fn(&str),
    ) -> Result<StoredTemplate, Error> {
        let storage = |source| SandboxError::Storage { doing: "cannot record the template", source };
        let mut templates = lock(&self.templates);
        let written = stored::check_free(&templates, &template.name, &template.owner)
            .and_then(|()| template.write(&self.directory.join(record::TEMPLATES)).map_err(storage));
        if let Err(error) = written {
            drop(templates);
            self.release(&template.stack);
            return Err(error.into());
        }
        reached("template recorded");
        templates.insert(template.id.clone(), template.clone());
        drop(templates);
        self.sync_in_background(&template);
        Ok(template)
    }

    /// Syncs the files of a template to the disk, and counts their bytes, on a thread of its own.
    fn sync_in_background(&self, template: &StoredTemplate) {
        let Some(top) = template.stack.references().last() else { return };
        let (upper, id, templates) = (self.layers.upper(top), template.id.clone(), self.templates.clone());
        let directory = self.directory.join(record::TEMPLATES);
        let sync = move || {
            let is_synced = File::open(&upper).is_ok_and(|file| rustix::fs::syncfs(file).is_ok());
            // Unknown for a layer with too many files.
            let size_bytes = walk::size(&upper).ok();
            let mut templates = lock(&templates);
            // It may be deleted by now.
            if let Some(template) = templates.get_mut(&id) {
                template.is_synced = is_synced && !template.boot_id.is_empty();
                template.size_bytes = size_bytes;
                // Else it is as uncertain as it was.
                let _ = template.write(&directory);
            }
        };
        start_later(&self.inner, sync);
    }

    /// The templates of an owner, the oldest first.
    pub fn templates(&self, owner: &str) -> Vec<StoredTemplate> {
        let templates = lock(&self.templates);
        let mut found: Vec<_> =
            templates.values().filter(|template| template.owner == owner).cloned().collect();
        found.sort_by_key(|template| template.created_at_ms);
        found
    }

    /// Those of all owners.
    pub fn all_templates(&self) -> Vec<StoredTemplate> {
        lock(&self.templates).values().cloned().collect()
    }

    /// Deletes a template. Sandboxes that were made from it keep its layers until they are deleted,
    /// too.
    ///
    /// # Errors
    /// There is none of this owner, or the disk.
    pub fn delete_template(&self, name: &str, owner: &str) -> Result<StoredTemplate, Error> {
        let storage = |source| SandboxError::Storage { doing: "cannot remove the template", source };
        let mut templates = lock(&self.templates);
        let template = stored::find(&templates, name, owner)?.clone();
        template.remove(&self.directory.join(record::TEMPLATES)).map_err(storage)?;
        templates.remove(&template.id);
        drop(templates);
        self.release(&template.stack);
        Ok(template)
    }
}

impl SandboxState {
    /// Waits until nothing uses it: for runs that have ended only as long as their ends take. No
    /// run enters it while the guard is held.
    fn wait_unused(&self) -> Result<MutexGuard<'_, Life>, SandboxError> {
        let end = monotonic_nanoseconds() + SETTLE_TIMEOUT.as_nanos() as u64;
        let mut life = lock(&self.life);
        loop {
            if life.is_deleted {
                return Err(SandboxError::NotFound(self.id.clone()));
            }
            if life.users == 0 {
                return Ok(life);
            }
            life.runs.retain(|run| !run.waiting.has_finished());
            let left = Duration::from_nanos(end.saturating_sub(monotonic_nanoseconds()));
            if !life.runs.is_empty() || left.is_zero() {
                return Err(self.use_error(&life));
            }
            let waited = self.released.wait_timeout(life, left.min(SETTLE_INTERVAL));
            life = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the error for a sandbox in use, which names its users by kind.
    fn use_error(&self, life: &Life) -> SandboxError {
        let runs: Vec<String> = life.runs.iter().map(|run| run.id.clone()).collect();
        // Both change only while `life` is locked.
        let visitors = self.visitors.count();
        // A visitor without a run that is inside after SETTLE_TIMEOUT is a live interpreter. Before
        // that it may be a run that is being started or ended.
        let contexts = if runs.is_empty() { visitors } else { 0 };
        let files = life.users.saturating_sub(visitors);
        SandboxError::HasRuns { id: self.id.clone(), runs, contexts, files }
    }
}
