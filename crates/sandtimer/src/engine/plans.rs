//! Plans of the files that a run sees, kept for a moment: thousands of like runs a second do not
//! inspect the same thousand files each.
//!
//! A plan that is out of date shows what it names or fails to mount; it never shows something else,
//! because sources are opened without following links.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, PoisonError};

use sandtimer_os::clock::monotonic_nanoseconds;

use super::error::Error;
use super::known_files::{FilesKey, KnownFiles};
use super::owners::skip_identity_maps;
use super::workspace::make_mount_points;
use super::{Inner, Spec};
use crate::isolate::files::{
    DeviceUser, FileKind, FilesPlan, FilesRequest, Gpus, Mount, StartDirectory, WORKSPACE, find_gpus,
    plan_files,
};
use crate::isolate::lease::has_uids;
use crate::isolate::machine::MachineFiles;
use crate::model::{NODE_FILE, NODE_FILE_SOURCE};
use crate::zygote::{PYTHON_DIRECTORY, python_directory};

/// The files that have the Pythons of commands write their output soon, and the one that Node.js
/// executes before a program.
fn own_files() -> &'static [(PathBuf, &'static [u8])] {
    static FILES: OnceLock<Vec<(PathBuf, &'static [u8])>> = OnceLock::new();
    let path = |name| Path::new(PYTHON_DIRECTORY).join(name);
    let node = || (PathBuf::from(NODE_FILE), NODE_FILE_SOURCE.as_bytes());
    FILES.get_or_init(|| {
        let python = python_directory().map(|(name, contents)| (path(name), contents));
        python.into_iter().chain([node()]).collect()
    })
}

/// Plans the files of a run of this spec that may open `ptys` pseudo-terminals, or returns the
/// recent plan of a run like it.
pub(super) fn plan_files_of(inner: &Inner, spec: &Spec, ptys: u32) -> Result<Arc<KnownFiles>, Error> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    // Of a directory that was removed the kernel still has the name: notes about it contain that.
    let cwd = std::env::current_dir().or_else(|_| std::fs::read_link("/proc/self/cwd"));
    let cwd = cwd.unwrap_or_else(|_| PathBuf::from("/"));
    let callers_directories = inner.callers_directories.lock().unwrap_or_else(PoisonError::into_inner);
    let is_callers = spec.workspace.as_ref().is_some_and(|path| callers_directories.contains(path));
    drop(callers_directories);
    let key = FilesKey {
        command: spec.command[0].clone(),
        path: path.clone(),
        host_cwd: cwd.clone(),
        cwd: spec.working_directory.clone(),
        workspaces: spec.workspaces.clone(),
        read_only: spec.read_only.clone(),
        follows_package_links: spec.follows_package_links,
        world_readable: spec.world_readable.clone(),
        private_workspace: spec.private_workspace,
        workspace: spec.workspace.clone(),
        workspace_link: spec.workspace_link.clone(),
        is_callers,
        temporary: spec.temporary.clone(),
        host_proc: spec.host_proc,
        show_credentials: spec.show_credentials,
        network: spec.network,
        ptys,
        gpu: spec.gpu,
    };
    let now = monotonic_nanoseconds();
    if is_start_there(spec)
        && let Some(plan) = inner.plans.lock().unwrap_or_else(PoisonError::into_inner).get(&key, now)
    {
        return Ok(plan);
    }
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let request = FilesRequest {
        root: Path::new("/"),
        command: Some(&key.command),
        path_variable: &path,
        variables: &variables,
        host_cwd: &cwd,
        start: match &spec.workspace {
            Some(directory) if is_callers => StartDirectory::CallersDirectory(directory),
            Some(directory) => StartDirectory::Workspace(directory),
            None if spec.private_workspace => StartDirectory::EmptyWorkspace,
            None => StartDirectory::CurrentDirectory,
        },
        cwd: spec.working_directory.as_deref(),
        workspaces: &spec.workspaces,
        homes: inner.homes(),
        extra_read_only: &spec.read_only,
        follows_package_links: spec.follows_package_links,
        show_credentials: spec.show_credentials,
        temporary: spec.temporary.as_deref(),
        world_readable: &spec.world_readable,
        own: own_files(),
        machine: &MachineFiles::here(inner.usual_memory()),
        network: spec.network,
        ptys,
        gpus: spec.gpu.then(device_user),
    };
    let mut plan = plan_files(&request)?;
    skip_identity_maps(&mut plan);
    if let Some(link) = &spec.workspace_link {
        link_workspace(&mut plan, link);
    }
    if spec.host_proc {
        show_host_proc(&mut plan);
    }
    if let Some(temporary) = &spec.temporary {
        make_mount_points(temporary, &plan.mounts)
            .map_err(Error::system("cannot make a mount point in the run's /tmp"))?;
    }
    let plan = Arc::new(KnownFiles::new(plan));
    inner.plans.lock().unwrap_or_else(PoisonError::into_inner).keep(key, plan.clone(), now);
    Ok(plan)
}

/// What a sandbox shows of the host, whatever its runs execute.
pub(super) fn host_files(inner: &Inner) -> Result<FilesPlan, Error> {
    /// Every run mounts terminals of its own over these.
    const PTYS: u32 = 1;
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let request = FilesRequest {
        root: Path::new("/"),
        command: None,
        path_variable: &path,
        variables: &[],
        host_cwd: Path::new("/"),
        start: StartDirectory::EmptyWorkspace,
        cwd: None,
        workspaces: &[],
        homes: inner.homes(),
        extra_read_only: &[],
        follows_package_links: false,
        show_credentials: false,
        temporary: None,
        world_readable: &[],
        own: own_files(),
        machine: &MachineFiles::here(inner.usual_memory()),
        // Its file of name servers is there for runs with the network; to others no name server
        // answers.
        network: true,
        ptys: PTYS,
        gpus: None,
    };
    Ok(plan_files(&request)?)
}

/// Makes a link to /workspace, where nothing else is shown and its directory is not one of the
/// host's.
fn link_workspace(plan: &mut FilesPlan, link: &Path) {
    let is_taken = |mount: &Mount| link.starts_with(mount.target()) || mount.target().starts_with(link);
    let Some(directory) = link.parent().filter(|directory| directory.parent() == Some(Path::new("/"))) else {
        return;
    };
    if plan.mounts.iter().any(is_taken) {
        return;
    }
    if !plan.mounts.iter().any(|mount| mount.target().starts_with(directory)) {
        plan.mounts.push(Mount::Directory { target: directory.to_owned() });
        plan.mounts.push(Mount::Symlink { target: link.to_owned(), points_to: WORKSPACE.into() });
    }
}

/// Whether the directory that a run is to start in still exists in its workspace: runs make and
/// remove such directories, and a recent plan does not show that.
fn is_start_there(spec: &Spec) -> bool {
    match (&spec.workspace, &spec.working_directory) {
        (Some(source), Some(directory)) => match directory.strip_prefix(WORKSPACE) {
            Ok(below) => source.join(below).is_dir(),
            Err(_) => true,
        },
        _ => true,
    }
}

/// Whose rights the runs of this process's engines open device nodes with.
fn device_user() -> DeviceUser {
    if has_uids() { DeviceUser::Own } else { DeviceUser::Caller }
}

/// The GPUs that a run with [`Spec::gpu`] would be given now.
///
/// # Errors
/// There are none that it could open.
pub fn gpus() -> Result<Gpus, Error> {
    Ok(find_gpus(device_user())?)
}

/// The host's /proc in place of one of a pid namespace's own, which only that namespace's first
/// process could mount.
fn show_host_proc(plan: &mut FilesPlan) {
    for mount in &mut plan.mounts {
        if let Mount::Proc { target, .. } = mount {
            let (source, target) = (PathBuf::from("/proc"), target.clone());
            let kind = FileKind::Directory;
            *mount = Mount::Bind { source, target, writable: false, identity_mapped: false, kind };
        }
    }
}
