//! Workspaces from their beginning to their end.
//!
//! ```text
//! workspaces/kept/ID, ID.json   made by request: they outlive the server
//! workspaces/own/ID             of a context; those of a server that died are found at the next start, and removed
//! workspaces/trash/ID           being removed
//! workspaces/temporary/ID       see `temporary`
//! ```
//! Only the server's user can enter these directories: jobs see theirs through mounts of their own.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use sandtimer::engine::make_workspace;
use sandtimer_os::clock::calendar_milliseconds;
use serde_json::{Value, json};

use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code, storage};
use crate::files::empty;
use crate::registry::{OwnedResource, Registry};

/// Where jobs see their workspace and their temporary directory.
const WORKSPACE_MOUNT: &str = "/workspace";
const TEMPORARY: &str = "/tmp";

/// A directory that is shown as /workspace, or as /tmp.
#[derive(Debug)]
pub(crate) struct Workspace {
    id: String,
    owner: OwnerId,
    /// The name of the sandbox of another interface (see `compat`) that it belongs to.
    sandbox: Option<String>,
    created_at_ms: u64,
    directory: PathBuf,
    /// Where jobs see it, besides their own view of the user's directories.
    mount_path: &'static str,
    /// Its directory is the user's, and nothing of it is removed.
    is_users: bool,
    /// How many runs and contexts work in it; `None` once it is being removed.
    users: Mutex<Option<usize>>,
}

impl OwnedResource for Workspace {
    fn id(&self) -> &str {
        &self.id
    }

    fn owner(&self) -> &OwnerId {
        &self.owner
    }
}

impl Workspace {
    /// Makes a workspace that is not found by its id: a context's own.
    pub fn own(owner: OwnerId, directory: PathBuf) -> Arc<Self> {
        Arc::new(Self::new(String::new(), owner, directory, calendar_milliseconds()))
    }

    /// As [`Workspace::own`], of a directory that is shown as /tmp.
    pub fn temporary(owner: OwnerId, directory: PathBuf) -> Arc<Self> {
        let found = Self::new(String::new(), owner, directory, calendar_milliseconds());
        Arc::new(Workspace { mount_path: TEMPORARY, ..found })
    }

    fn new(id: String, owner: OwnerId, directory: PathBuf, created_at_ms: u64) -> Self {
        let (sandbox, is_users, users) = (None, false, Mutex::new(Some(0)));
        Workspace {
            id,
            owner,
            sandbox,
            created_at_ms,
            directory,
            mount_path: WORKSPACE_MOUNT,
            is_users,
            users,
        }
    }

    /// The absolute paths by which jobs name it.
    pub fn mount_paths(&self) -> Vec<PathBuf> {
        let own_path = self.is_users.then(|| self.directory.clone());
        std::iter::once(PathBuf::from(self.mount_path)).chain(own_path).collect()
    }

    /// Empty for a context's own.
    pub fn id_str(&self) -> &str {
        &self.id
    }

    /// A context's, which goes with it.
    pub fn is_own(&self) -> bool {
        self.id.is_empty()
    }

    /// Whether it belongs to the sandbox of this name of another interface.
    pub fn is_of_sandbox(&self, name: &str) -> bool {
        self.sandbox.as_deref() == Some(name)
    }

    pub fn created_at_ms(&self) -> u64 {
        self.created_at_ms
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn lock(&self) -> MutexGuard<'_, Option<usize>> {
        // A number.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn users(&self) -> usize {
        self.lock().unwrap_or(0)
    }

    /// Keeps it from being removed for as long as what is returned is there.
    pub fn enter(self: &Arc<Self>) -> Result<WorkspaceUse, ApiRejection> {
        match &mut *self.lock() {
            Some(users) => *users += 1,
            None => {
                let message = format!("there is no workspace `{}`", self.id);
                return Err(ApiRejection::new(Code::WorkspaceNotFound, message));
            }
        }
        Ok(WorkspaceUse(self.clone()))
    }

    /// Closes the workspace to new users. Returns false if it is in use.
    pub fn close(&self) -> bool {
        let mut users = self.lock();
        let unused = users.is_none_or(|users| users == 0);
        if unused {
            *users = None;
        }
        unused
    }

    /// Its directory, for access by descriptor. The path to it is canonical: a link that it leads
    /// through by now was put there by a run that writes a directory above.
    pub fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat2(CWD, &self.directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
    }
}

/// One use of a workspace, until this is dropped.
#[derive(Debug)]
pub(crate) struct WorkspaceUse(Arc<Workspace>);

impl WorkspaceUse {
    pub fn workspace(&self) -> &Arc<Workspace> {
        &self.0
    }
}

impl Drop for WorkspaceUse {
    fn drop(&mut self) {
        if let Some(users) = &mut *self.0.lock() {
            *users -= 1;
        }
    }
}

/// All workspaces that are found by their ids, and where the others are.
#[derive(Debug)]
pub(crate) struct Workspaces {
    registry: Registry<Workspace>,
    /// `kept`, `own`, `trash` and `temporary`, in that order.
    directories: [PathBuf; 4],
}

impl Workspaces {
    /// Opens the workspaces below a state directory that no other server uses. What earlier servers
    /// left is moved to the trash; see [`Workspaces::sweep`].
    pub fn open(state_directory: &Path, log_error: &dyn Fn(&str)) -> io::Result<Self> {
        let parent = state_directory.join("workspaces");
        DirBuilder::new().recursive(true).mode(0o700).create(&parent)?;
        // The launcher follows no link, and has another current directory.
        let parent = fs::canonicalize(parent)?;
        let directories = ["kept", "own", "trash", "temporary"].map(|name| parent.join(name));
        for directory in &directories {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let workspaces = Workspaces { registry: Registry::default(), directories };
        workspaces.load(log_error)?;
        for entry in fs::read_dir(&workspaces.directories[1])? {
            workspaces.discard(&entry?.path())?;
        }
        workspaces.discard_orphans()?;
        Ok(workspaces)
    }

    fn load(&self, log_error: &dyn Fn(&str)) -> io::Result<()> {
        for entry in fs::read_dir(&self.directories[0])? {
            let path = entry?.path();
            let record = path.with_extension("json");
            if path.extension().is_some() {
                if !path.with_extension("").is_dir() {
                    fs::remove_file(&path)?;
                }
                continue;
            }
            match read_record(&record) {
                Ok((owner, sandbox, created_at_ms)) => {
                    let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    let found = Workspace::new(id, owner, path, created_at_ms);
                    self.registry.add(Arc::new(Workspace { sandbox, ..found }));
                }
                // It was being made or removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.discard(&path)?,
                Err(error) => log_error(&format!("{} is left out: {error}", record.display())),
            }
        }
        Ok(())
    }

    /// Where contexts' own are made.
    pub fn own_directory(&self) -> &Path {
        &self.directories[1]
    }

    pub(super) fn trash_directory(&self) -> &Path {
        &self.directories[2]
    }

    pub(super) fn temporary_directory(&self) -> &Path {
        &self.directories[3]
    }

    /// Whether there is one with this id, of any owner.
    pub(super) fn is_kept(&self, id: &str) -> bool {
        self.directories[0].join(id).is_dir()
    }

    pub fn find(&self, id: &str, owner: &OwnerId) -> Option<Arc<Workspace>> {
        self.registry.find(id, owner)
    }

    /// The workspace of this owner, or that there is none.
    pub fn get(&self, id: &str, owner: &OwnerId) -> Result<Arc<Workspace>, ApiRejection> {
        self.find(id, owner).ok_or_else(|| {
            let shown: String = id.chars().take(60).collect();
            ApiRejection::new(Code::WorkspaceNotFound, format!("there is no workspace `{shown}`"))
        })
    }

    pub fn of(&self, owner: &OwnerId) -> Vec<Arc<Workspace>> {
        self.registry.of(owner)
    }

    /// Those of all owners.
    pub fn all(&self) -> Vec<Arc<Workspace>> {
        self.registry.all()
    }

    /// The one that belongs to a sandbox of another interface.
    pub fn of_sandbox(&self, owner: &OwnerId, name: &str) -> Option<Arc<Workspace>> {
        self.registry.of(owner).into_iter().find(|workspace| workspace.sandbox.as_deref() == Some(name))
    }

    /// Makes one that outlives the server. Blocks.
    pub fn create(&self, owner: &OwnerId, sandbox: Option<&str>) -> Result<Arc<Workspace>, ApiRejection> {
        let failed = |error: io::Error| storage("the workspace cannot be made", &error);
        let id = crate::id::new_id();
        let (directory, created_at_ms) = (self.directories[0].join(&id), calendar_milliseconds());
        make_workspace(&directory).map_err(failed)?;
        let record =
            json!({"owner": owner.as_str(), "sandbox": sandbox, "created_at_ms": created_at_ms}).to_string();
        let path = directory.with_extension("json");
        let aside = directory.with_extension("part");
        let written = fs::write(&aside, record).and_then(|()| fs::rename(&aside, &path));
        written.map_err(failed).inspect_err(|_| drop(fs::remove_dir(&directory)))?;
        let made = Workspace::new(id, owner.clone(), directory, created_at_ms);
        let made = Arc::new(Workspace { sandbox: sandbox.map(str::to_owned), ..made });
        self.registry.add(made.clone());
        Ok(made)
    }

    /// A directory of the user's own, canonical and checked, as a workspace until the server ends
    /// or it is deleted as one.
    pub fn of_directory(&self, owner: &OwnerId, directory: PathBuf) -> Arc<Workspace> {
        let known = |workspace: &Arc<Workspace>| workspace.is_users && workspace.directory == directory;
        if let Some(known) = self.registry.of(owner).into_iter().find(known) {
            return known;
        }
        let made = Workspace::new(crate::id::new_id(), owner.clone(), directory, calendar_milliseconds());
        let made = Arc::new(Workspace { is_users: true, ..made });
        self.registry.add(made.clone());
        made
    }

    /// Makes a context's own. Blocks.
    pub fn create_own(&self, owner: &OwnerId) -> Result<Arc<Workspace>, ApiRejection> {
        let directory = self.directories[1].join(crate::id::new_id());
        make_workspace(&directory)
            .map_err(|error| storage("the context's workspace cannot be made", &error))?;
        Ok(Workspace::own(owner.clone(), directory))
    }

    /// Removes one that is closed, and all that is in it unless that is the user's. Blocks.
    pub fn remove(&self, workspace: &Workspace) -> Result<(), ApiRejection> {
        let failed = |error: io::Error| storage("the workspace cannot be removed", &error);
        self.registry.remove(&workspace.id);
        if workspace.is_users {
            return Ok(());
        }
        match fs::remove_file(workspace.directory.with_extension("json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        self.discard(&workspace.directory).map_err(failed)?;
        if !workspace.is_own() {
            self.remove_temporary_of(workspace).map_err(failed)?;
        }
        let name = workspace.directory.file_name().unwrap_or_default();
        remove_all(&self.directories[2].join(name)).map_err(failed)
    }

    /// Removes a context's own. What cannot be removed now is met again at the next start.
    pub fn remove_own(&self, workspace: &Workspace, log_error: &dyn Fn(&str)) {
        if let Err(rejection) = self.remove(workspace) {
            log_error(&rejection.message);
        }
    }

    /// Removes what was being removed when an earlier server died. Blocks for as long as that
    /// takes.
    pub fn sweep(&self, log_error: &dyn Fn(&str)) {
        for entry in fs::read_dir(self.trash_directory()).into_iter().flatten().flatten() {
            if let Err(error) = remove_all(&entry.path()) {
                log_error(&format!("{} cannot be removed: {error}", entry.path().display()));
            }
        }
    }

    fn discard(&self, directory: &Path) -> io::Result<()> {
        fs::rename(directory, self.directories[2].join(directory.file_name().unwrap_or_default()))
    }
}

/// Removes a directory of files that a job made, with the rights of their owner.
pub(super) fn remove_all(directory: &Path) -> io::Result<()> {
    // One whose maker died before it could give it away is not the files' owner's, and has none.
    if fs::remove_dir(directory).is_ok() {
        return Ok(());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = openat(CWD, directory, flags, Mode::empty())?;
    empty(root)?;
    fs::remove_dir(directory)
}

fn read_record(path: &Path) -> io::Result<(OwnerId, Option<String>, u64)> {
    let record: Value = serde_json::from_slice(&fs::read(path)?)?;
    match (record["owner"].as_str(), record["created_at_ms"].as_u64()) {
        (Some(owner), Some(created_at_ms)) => {
            let sandbox = record["sandbox"].as_str().map(str::to_owned);
            Ok((OwnerId::recorded(owner), sandbox, created_at_ms))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
