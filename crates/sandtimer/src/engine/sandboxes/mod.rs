//! Sandboxes: private file systems in which many runs work, one after the other or at the same
//! time, and which outlive them, their engine, and a crash of it. docs/design/sandboxes.md has
//! states and failures.

mod changes;
pub(super) mod conflicts;
#[cfg(test)]
mod crash_tests;
mod ended;
mod error;
mod file_work;
mod files;
mod held;
mod import;
mod layers;
mod lifecycle;
mod lifetime;
mod locks;
mod mount;
mod mounted;
mod network;
mod network_server;
mod ports;
mod record;
mod sandbox;
mod snapshot;
mod stored;
#[cfg(test)]
mod tests;
mod usage;
mod visitors;
mod walk;
mod whole;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::StatFs;
use sandtimer_os::clock::{calendar_milliseconds, monotonic_nanoseconds};

pub use self::changes::{Change, ChangedFile, Reading};
use self::ended::EndedSandboxes;
pub use self::ended::SandboxEnd;
pub use self::error::SandboxError;
use self::file_work::remove_later;
pub use self::files::SandboxFiles;
pub(super) use self::held::SandboxUse;
pub use self::import::Import;
pub use self::layers::MAX_LAYERS;
use self::layers::{Base, Layers, Stack};
use self::lifetime::{Lifetime, RecordedLife};
pub use self::lifetime::{SandboxLife, SandboxLimit};
use self::locks::lock;
pub use self::network_server::{
    NetworkRequest, NetworkServer, NetworkSockets, SandboxNetwork, ServedNetwork,
};
pub use self::ports::ListeningPort;
use self::record::{Home, Record};
use self::sandbox::{Life, RunHandle, SandboxState};
pub use self::sandbox::{Sandbox, Sandboxes};
pub use self::snapshot::MAX_FORKS;
pub use self::stored::{Origin, StoredTemplate};
pub use self::usage::SandboxUsage;
pub(super) use self::visitors::Visitor;
use self::visitors::Visitors;
use self::whole::WholeLimits;
use super::error::Error;
use super::inner::Engine;
use super::opened::new_run_id;
use crate::isolate::host::NamespaceSupport;
use crate::isolate::sandbox::{SANDBOX_HOME, SANDBOX_USER};
use crate::isolate::sandbox_proxy::PROXY_VARIABLES;
use crate::limits::{Limits, ScopeBound};
use crate::model::{Layer, LimitKind};
use crate::scope::ScopeId;
use crate::supervise::commands::EnforcerCommand;
use crate::supervise::denials::NetworkDenials;
use crate::supervise::run::{Pauser, SharedRun};
use crate::time::Moment;

/// How long a deletion waits for what it has killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How often runs that are left are ended again.
const END_INTERVAL: Duration = Duration::from_millis(100);
/// statfs(2).
const OVERLAY_MAGIC: u64 = 0x794c_7630;

/// What lies under a sandbox's private layer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Template {
    /// What every run sees of the host: its programs, libraries and harmless settings, read-only.
    Host,
    /// A directory that holds a root tree, such as one that debootstrap has made.
    Directory(PathBuf),
    /// A template of [`Sandboxes::templates`] of the same owner, by its id or its name.
    Stored(String),
}

/// The template, owner, network and limits of a new sandbox.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// The root that the sandbox starts with.
    pub template: Template,
    /// What the caller calls the template.
    pub template_name: String,
    /// The owner, for [`Sandboxes::find`].
    pub owner: String,
    /// The scope that the sandbox's own scope is opened in.
    pub parent: Option<ScopeId>,
    /// What it may reach outside.
    pub network: SandboxNetwork,
    /// Of the sandbox as a whole: `idle`, `wall`, and `memory` and `processes` of all its runs
    /// together.
    pub limits: Limits,
}

/// Whether the files of a sandbox are all there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The machine has not been started again since they were first used.
    Certain,
    /// It has: what had not reached the disk by then is lost.
    Uncertain,
}

impl Engine {
    /// Opens the sandboxes below a directory that only this engine's user can enter, and removes
    /// what was being made or removed when an earlier engine ended. `parent` gives the scope for
    /// the sandboxes of an owner; `report` gets what is left out, and why.
    ///
    /// # Errors
    /// The directory cannot be made or read.
    ///
    /// ```
    /// use sandtimer::{Engine, Limits, SandboxNetwork, SandboxSpec, Spec, Template};
    ///
    /// let engine = Engine::new()?;
    /// let state = tempfile::tempdir()?;
    /// let sandboxes = engine.sandboxes(state.path(), &|_| None, &|_| ())?;
    /// let sandbox = sandboxes.create(SandboxSpec {
    ///     template: Template::Host,
    ///     template_name: "host".to_owned(),
    ///     owner: "user".to_owned(),
    ///     parent: None,
    ///     network: SandboxNetwork::None,
    ///     limits: Limits::new(),
    /// })?;
    /// let shell = |line: &str| {
    ///     let sandbox = Some(sandbox.clone());
    ///     Spec { sandbox, ..Spec::command(["sh", "-c", line]) }
    /// };
    /// engine.run_blocking(shell("echo kept >/workspace/file"))?;
    /// assert_eq!(engine.run_blocking(shell("cat /workspace/file"))?.stdout, "kept\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sandboxes(
        &self,
        directory: &Path,
        parent: &dyn Fn(&str) -> Option<ScopeId>,
        report: &dyn Fn(&str),
    ) -> Result<Sandboxes, Error> {
        use std::os::unix::fs::DirBuilderExt;
        let storage =
            |source| SandboxError::Storage { doing: "cannot use the directory of the sandboxes", source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(storage)?;
        let directory = directory.canonicalize().map_err(storage)?;
        let found = record::read_all(&directory).map_err(storage)?;
        let (templates, unreadable) =
            stored::read_all(&directory.join(record::TEMPLATES)).map_err(storage)?;
        let are_all_read = found.unreadable.is_empty() && unreadable.is_empty();
        found.unreadable.iter().chain(&unreadable).for_each(|reason| report(reason));
        // A record that cannot be read may name any layer.
        let layers = Arc::new(Layers::below(&directory, !are_all_read));
        templates.values().for_each(|template| layers.retain(template.stack.references()));
        let templates = Arc::new(Mutex::new(templates));
        let inner = self.inner.clone();
        let ended = EndedSandboxes::open(&directory).map_err(storage)?;
        let sandboxes = Sandboxes { inner, directory, all: Mutex::default(), layers, templates, ended };
        let mut trash = found.trash;
        for (id, home, record) in found.homes {
            if sandboxes.ended.contains(&id) {
                // The engine was killed before it had removed it.
                trash.push(home.discard().map_err(storage)?);
                continue;
            }
            let parent = parent(&record.owner);
            sandboxes.layers.retain(record.stack.references());
            let sandbox = sandboxes.sandbox(id, home, record, parent)?;
            lock(&sandboxes.all).insert(sandbox.id().to_owned(), sandbox);
        }
        let unused = sandboxes.layers.unreferenced().map_err(storage)?;
        for trash in trash.into_iter().chain(unused) {
            remove_later(&sandboxes.inner, trash);
        }
        Ok(sandboxes)
    }
}

impl Sandboxes {
    fn sandbox(
        &self,
        id: String,
        home: Home,
        record: Record,
        parent: Option<ScopeId>,
    ) -> Result<Sandbox, Error> {
        let engine = Engine { inner: self.inner.clone() };
        let now = Moment::from_nanos(monotonic_nanoseconds());
        let limits = record.whole.in_scope(record.life.scope_limits());
        let carried = Some(record.life.carried(now, calendar_milliseconds()));
        let scope = engine.open_work(parent, Layer::Sandbox, format!("sandbox-{id}"), &limits, carried)?;
        let mut scopes = self.inner.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let ceiling = scopes.ceilings(Some(scope.id()))?.get(LimitKind::Idle);
        let effective = scopes.effective(scope.id(), now)?;
        let whole = record.whole.bounded(|kind| effective.get(kind).map(|effect| effect.value));
        let bound = whole.in_verdicts(scopes.location(scope.id())?.clone());
        if record.life.paused_at_ms.is_some() {
            scopes.pause(scope.id(), now)?;
        }
        drop(scopes);
        let lifetime = Lifetime::new(&record.life, ceiling, home.used_at_ms());
        let state = SandboxState {
            id,
            owner: record.owner.clone(),
            template_name: record.template_name.clone(),
            created_at_ms: record.created_at_ms,
            network: record.network.clone(),
            denials: Arc::default(),
            home,
            layers: self.layers.clone(),
            record: Mutex::new(record),
            life: Mutex::default(),
            released: Condvar::new(),
            visitors: Visitors::default(),
            is_closed: AtomicBool::new(false),
            lifetime,
            whole,
            bound: Arc::new(bound),
            slot: Mutex::default(),
        };
        Ok(Sandbox { inner: self.inner.clone(), state: Arc::new(state), scope: Arc::new(scope) })
    }

    /// Makes one, and mounts it once, so that what the host cannot give is known now.
    ///
    /// # Errors
    /// The template cannot be shown, the host has no namespaces or refuses the layer, or the disk
    /// is full. Nothing is left of it.
    pub fn create(&self, spec: SandboxSpec) -> Result<Sandbox, Error> {
        self.check_directory()?;
        network::check(&self.inner, &spec.network)?;
        whole::check(&spec.limits)?;
        let (stack, is_uncertain) = self.resolve(&spec)?;
        let created_at_ms = calendar_milliseconds();
        let record = Record {
            owner: spec.owner,
            template_name: spec.template_name,
            template_layers: stack.layers.len(),
            stack,
            created_at_ms,
            network: spec.network,
            life: RecordedLife::new(&spec.limits, created_at_ms),
            boot_id: record::boot_id(),
            is_uncertain,
            whole: WholeLimits::new(&spec.limits),
        };
        let sandbox = self.make(record, spec.parent)?;
        if let Err(error) = sandbox.check_whole() {
            self.unmake(&sandbox);
            return Err(error);
        }
        lock(&self.all).insert(sandbox.id().to_owned(), sandbox.clone());
        Ok(sandbox)
    }

    /// Whether layers can be where the sandboxes are.
    fn check_directory(&self) -> Result<(), SandboxError> {
        let storage = |source| SandboxError::Storage { doing: "cannot make the sandbox", source };
        let system: StatFs = rustix::fs::statfs(&self.directory).map_err(|error| storage(error.into()))?;
        match system.f_type as u64 == OVERLAY_MAGIC {
            true => Err(SandboxError::OnOverlay { path: self.directory.clone() }),
            false => Ok(()),
        }
    }

    /// What a sandbox is stacked on, kept for its record; and whether files of it may be lost.
    fn resolve(&self, spec: &SandboxSpec) -> Result<(Stack, bool), Error> {
        let has_user_attributes = self.inner.host()?.namespaces == NamespaceSupport::User;
        let of = |base| (Stack { base, layers: Vec::new(), has_user_attributes }, false);
        Ok(match &spec.template {
            Template::Host => of(Base::Host),
            Template::Directory(path) => of(Base::Directory(mount::check_template(path, &self.directory)?)),
            Template::Stored(name) => {
                let templates = lock(&self.templates);
                let template = stored::find(&templates, name, &spec.owner)?;
                // As long as it is in the list, its layers are there.
                self.layers.retain(template.stack.references());
                (template.stack.clone(), template.is_uncertain())
            }
        })
    }

    /// Makes the files of a sandbox, whose layers are retained for it. On failure nothing is left,
    /// and they are released.
    fn make(&self, record: Record, parent: Option<ScopeId>) -> Result<Sandbox, Error> {
        let storage = |source| SandboxError::Storage { doing: "cannot make the sandbox", source };
        let (id, stack) = (new_run_id(), record.stack.clone());
        let made = Home::create(&self.directory, &id, &record).map_err(|source| storage(source).into());
        let made = made.and_then(|home| {
            self.sandbox(id, home.clone(), record, parent).inspect_err(|_| home.remove_at_once())
        });
        made.inspect_err(|_| self.release(&stack))
    }

    /// Removes a sandbox that was made and is not in the list.
    fn unmake(&self, sandbox: &Sandbox) {
        let stack = lock(&sandbox.state.record).stack.clone();
        lock(&sandbox.state.life).mounted = None;
        // At once: the disk may be full, and the caller may know that.
        sandbox.state.home.remove_at_once();
        self.release(&stack);
    }

    /// Releases the layers that a record names.
    fn release(&self, stack: &Stack) {
        for trash in self.layers.release(stack.references()) {
            remove_later(&self.inner, trash);
        }
    }

    /// The sandbox of this owner.
    ///
    /// # Errors
    /// There is none: another owner's is as absent as one that was never made. For a sandbox that
    /// ended at a limit the error names the limit.
    pub fn find(&self, id: &str, owner: &str) -> Result<Sandbox, SandboxError> {
        if let Some(end) = self.ended.find(id, owner) {
            return Err(SandboxError::Ended(end));
        }
        self.existing(id, owner)
    }

    /// A sandbox of this owner, also one that is being ended at a limit.
    fn existing(&self, id: &str, owner: &str) -> Result<Sandbox, SandboxError> {
        let found = lock(&self.all).get(id).filter(|sandbox| sandbox.state.owner == owner).cloned();
        found.ok_or_else(|| SandboxError::NotFound(id.chars().take(60).collect()))
    }

    /// The owner of a sandbox; `None` if there is no such sandbox.
    pub fn owner_of(&self, id: &str) -> Option<String> {
        lock(&self.all).get(id).map(|sandbox| sandbox.state.owner.clone())
    }

    /// Those of all owners.
    pub fn all(&self) -> Vec<Sandbox> {
        lock(&self.all).values().cloned().collect()
    }

    /// Those of one owner, the oldest first; without those that are being removed because a limit
    /// was reached.
    pub fn of(&self, owner: &str) -> Vec<Sandbox> {
        let mut found: Vec<Sandbox> =
            lock(&self.all).values().filter(|sandbox| sandbox.state.owner == owner).cloned().collect();
        found.retain(|sandbox| !self.ended.contains(sandbox.id()));
        found.sort_by_key(Sandbox::created_at_ms);
        found
    }

    /// Ends all runs in a sandbox, waits for the proof of their death, and removes its files. For a
    /// sandbox that ended at a limit the reason is forgotten. Blocks.
    ///
    /// # Errors
    /// There is none, or its processes do not end; then it takes no further run, and can be deleted
    /// again.
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
    /// sandboxes.delete(sandbox.id(), "user")?;
    /// assert!(sandboxes.find(sandbox.id(), "user").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn delete(&self, id: &str, owner: &str) -> Result<(), Error> {
        match self.existing(id, owner) {
            Ok(sandbox) => {
                self.remove(&sandbox, "its sandbox was deleted")?;
                // The reason of one that was being ended at a limit is forgotten after its removal.
                self.ended.forget(id, owner);
                Ok(())
            }
            Err(_) if self.ended.forget(id, owner) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn remove(&self, sandbox: &Sandbox, reason: &str) -> Result<(), Error> {
        sandbox.close(reason)?;
        let storage = |source| SandboxError::Storage { doing: "cannot remove the sandbox", source };
        let trash = sandbox.state.home.discard().map_err(storage)?;
        if lock(&self.all).remove(sandbox.id()).is_some() {
            self.release(&lock(&sandbox.state.record).stack);
        }
        remove_later(&self.inner, trash);
        Ok(())
    }
}

impl Sandbox {
    /// Returns the sandbox's id, which stays the same over restarts of the engine.
    pub fn id(&self) -> &str {
        &self.state.id
    }

    /// Returns the token or user to whom the sandbox belongs.
    pub fn owner(&self) -> String {
        self.state.owner.clone()
    }

    /// What its maker called its template.
    pub fn template_name(&self) -> String {
        self.state.template_name.clone()
    }

    /// The ids of the layers under its own, the lowest first.
    pub fn layers(&self) -> Vec<String> {
        lock(&self.state.record).stack.references().cloned().collect()
    }

    /// Milliseconds since the epoch.
    pub fn created_at_ms(&self) -> u64 {
        self.state.created_at_ms
    }

    /// How many runs are in it. Each live context or session counts as one, also between its runs.
    pub fn runs(&self) -> usize {
        self.state.visitors.count_live()
    }

    /// Whether all that was written is there.
    pub fn durability(&self) -> Durability {
        let record = lock(&self.state.record);
        match record.is_uncertain || record.boot_id != record::boot_id() {
            true => Durability::Uncertain,
            false => Durability::Certain,
        }
    }

    /// Whether its programs are the host's, at the same paths.
    pub(super) fn has_programs_of_host(&self) -> bool {
        matches!(lock(&self.state.record).stack.base, Base::Host)
    }

    /// The scope of the sandbox, in which its runs are opened.
    pub fn scope(&self) -> ScopeId {
        self.scope.id()
    }

    /// What a verdict names if its runs have reached a limit together.
    pub(super) fn bound(&self) -> Arc<ScopeBound> {
        self.state.bound.clone()
    }

    /// The variables by which programs in it find its proxy, if it has one.
    pub(super) fn network_variables(&self) -> &'static [(&'static str, &'static str)] {
        match self.state.network {
            SandboxNetwork::Allowed(_) => &PROXY_VARIABLES,
            _ => &[],
        }
    }

    /// Where connections that its network was refused are recorded, if it has an allow-list.
    pub(super) fn denials(&self) -> Option<Arc<NetworkDenials>> {
        matches!(self.state.network, SandboxNetwork::Allowed(_)).then(|| self.state.denials.clone())
    }

    /// The directory on the host below which its files grow.
    pub(super) fn upper(&self) -> PathBuf {
        self.state.home.upper()
    }

    /// Holds it, mounted.
    pub(super) fn enter(&self, visitor: Visitor) -> Result<SandboxUse, Error> {
        let mut life = lock(&self.state.life);
        self.check_open(&life)?;
        if visitor == Visitor::Run {
            self.check_running()?;
        }
        let mounted = match &life.mounted {
            Some(mounted) => mounted.clone(),
            None => {
                self.state.note_boot()?;
                let record = lock(&self.state.record).clone();
                let state = &self.state;
                let whole = state.whole;
                let mut mounted = mount::mount(&self.inner, &state.home, &state.layers, &record, whole)?;
                *lock(&state.slot) = Arc::downgrade(&mounted.slot);
                let denials = self.state.denials.clone();
                mounted.network = network::start(&self.inner, &record.owner, &record.network, denials)?;
                life.mounted.insert(Arc::new(mounted)).clone()
            }
        };
        life.users += 1;
        let visitor = (visitor == Visitor::Run).then(|| self.state.visitors.enter());
        Ok(SandboxUse { state: self.state.clone(), visitor, mounted: Some(mounted) })
    }

    /// Has the run be ended if the sandbox is deleted.
    pub(super) fn note_run(&self, running: &Arc<SharedRun>, scope: ScopeId) {
        let handle = RunHandle {
            slot_index: running.slot_index,
            id: running.id.clone(),
            waiting: running.waiting.clone(),
            running: Arc::downgrade(running),
            scope,
        };
        let mut life = lock(&self.state.life);
        life.runs.retain(|run| !run.waiting.has_finished());
        if life.is_deleted {
            handle.end(&self.inner.enforcer, "its sandbox was deleted");
        } else if self.is_paused() {
            let (slot_index, id) = (handle.slot_index, handle.id.clone());
            let pause = EnforcerCommand::Pause { slot_index, id, paused: true, by: Pauser::Sandbox };
            self.inner.enforcer.send(pause);
        }
        life.runs.push(handle);
    }

    /// Lets no further run in, ends those that are there, and unmounts it.
    fn close(&self, reason: &str) -> Result<(), Error> {
        let end = monotonic_nanoseconds() + END_TIMEOUT.as_nanos() as u64;
        let state = &self.state;
        let mut life = lock(&state.life);
        life.is_deleted = true;
        state.is_closed.store(true, Ordering::Relaxed);
        while life.users > 0 {
            // Again: a run that was being started is noted later.
            life.runs.iter().for_each(|run| run.end(&self.inner.enforcer, reason));
            let left = Duration::from_nanos(end.saturating_sub(monotonic_nanoseconds()));
            if left.is_zero() {
                return Err(SandboxError::Busy(self.id().to_owned()).into());
            }
            let waited = state.released.wait_timeout(life, left.min(END_INTERVAL));
            life = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        life.runs.clear();
        life.mounted = None;
        Ok(())
    }
}

impl SandboxState {
    /// Records in which start of the machine its files are used.
    fn note_boot(&self) -> Result<(), Error> {
        let mut record = lock(&self.record);
        let boot_id = record::boot_id();
        if record.boot_id != boot_id {
            let noted = Record { boot_id, is_uncertain: true, ..record.clone() };
            let storage = |source| SandboxError::Storage { doing: "cannot record the sandbox", source };
            self.home.write(&noted).map_err(storage)?;
            *record = noted;
        }
        Ok(())
    }
}

/// What the variables of an interpreter name that is made for whatever files.
pub(super) fn user_variables() -> [(&'static str, &'static str); 3] {
    [("HOME", SANDBOX_HOME), ("USER", SANDBOX_USER), ("LOGNAME", SANDBOX_USER)]
}
