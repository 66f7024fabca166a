//! A sandbox's root: mounted once, in a mount namespace of which each run gets a copy.
//!
//! ```text
//! unmounted ─▶ locked ─▶ built by a process that ends then ─▶ mounted ─▶ unmounted, once neither the sandbox nor a run holds it
//! ```
//! The kernel does not refuse a second overlay over the same layer, and what comes of it is
//! undefined. So whatever may write to the layer holds a lock on the sandbox: this engine, and the
//! first process of each run, which may outlive an engine that was killed by a moment.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::wire::notice;
use sandtimer_os::{probe, process, socket};

use super::super::error::Error;
use super::super::inner::Inner;
use super::super::known_files::KnownFiles;
use super::super::opened::new_run_id;
use super::super::owners::owner_namespace;
use super::super::plans::host_files;
use super::super::pool::{CAPACITY, SandboxSlot};
use super::super::spawn::{self, Descriptors, Jail, PreparedJail};
use super::super::spec::Spec;
use super::error::SandboxError;
use super::layers::{Base, Layers};
use super::mounted::{MountedNetwork, MountedRoot};
use super::network_server::SandboxNetwork;
use super::record::{Home, Record};
use super::whole::WholeLimits;
use crate::isolate::cgroup::{SandboxGroups, Slot};
use crate::isolate::files::Mount;
use crate::isolate::host::NamespaceSupport;
use crate::isolate::lease::{WORKSPACES, has_uids};
use crate::isolate::plan::RootView;
use crate::isolate::plan::{NEWNS, NEWPID, Plan};
use crate::isolate::sandbox::{
    OVERLAY_STEP, RootRequest, SANDBOX_PATH, TemplateTree, own_mounts, root_steps,
};
use crate::isolate::sandbox_proxy::{OWN_SETTINGS, add_proxy_files};
use crate::model::{Degradation, Path as RunPath};

/// How long the processes of an engine that was killed may take to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the lock is tried.
const LOCK_INTERVAL_MILLISECONDS: u64 = 10;
/// How long building the root may take.
const BUILD_TIMEOUT_MILLISECONDS: u64 = 60_000;
/// Where directories are that every template gets from the engine, besides its own.
const WRITABLE: [&str; 5] = ["/home", "/tmp", "/var", "/workspace", "/dev/shm"];

/// Mounts the root of a sandbox.
pub(super) fn mount(
    inner: &Inner,
    home: &Home,
    layers: &Layers,
    record: &Record,
    whole: WholeLimits,
) -> Result<MountedRoot, Error> {
    if let NamespaceSupport::None(reason) = &inner.host()?.namespaces {
        return Err(SandboxError::NoNamespaces(reason.clone()).into());
    }
    let lock = take_lock(home)?;
    let storage = |source| SandboxError::Storage { doing: "cannot prepare the sandbox's layers", source };
    home.finish_stacking(layers, record, &|_| {}).map_err(storage)?;
    let slot = inner
        .pool
        .take()
        .map_err(Error::system("cannot make the sandbox's control groups"))?
        .ok_or(Error::Full(CAPACITY))?;
    // A sandbox's runs can keep descriptors in its files, and with them what is charged to its uid.
    inner.pool.note_shared(slot.index);
    let (slot_index, mut slot) = (slot.index, Some(slot));
    let built = build(inner, home, layers, record, &mut slot);
    match built {
        Ok((BuiltRoot { namespace, root }, mut view)) => {
            let limited = limited_groups(slot, whole);
            let unlimited = limited.as_ref().err().map(ToString::to_string);
            if let Some(reason) = unlimited.clone() {
                view.degraded.push(Degradation { layer: "sandbox limits".to_owned(), reason });
            }
            let slot = SandboxSlot::new(slot_index, limited.unwrap_or_default(), &inner.pool);
            let (network, lock) = (MountedNetwork::default(), lock.into());
            Ok(MountedRoot { network, namespace, root, lock, view, slot: Arc::new(slot), unlimited })
        }
        Err(error) => {
            drop(slot);
            inner.pool.give_back(slot_index, None);
            Err(error)
        }
    }
}

/// Puts the limits of a sandbox as a whole on the groups of its slot, which no process is in.
fn limited_groups(slot: Option<Slot>, whole: WholeLimits) -> io::Result<Option<SandboxGroups>> {
    match slot {
        Some(slot) if whole.is_limited() => SandboxGroups::new(slot, whole.of_slot()).map(Some),
        _ => Ok(None),
    }
}

/// Waits until nothing may write to the layer, and keeps others from it as long as the file is
/// open.
pub(super) fn take_lock(home: &Home) -> Result<File, Error> {
    let file = File::options().read(true).write(true).open(home.lock());
    let file = file.map_err(|source| SandboxError::Storage { doing: "cannot open the sandbox", source })?;
    let end = monotonic_nanoseconds().saturating_add(LOCK_TIMEOUT.as_nanos() as u64);
    while !probe::try_lock(file.as_fd()) {
        if monotonic_nanoseconds() >= end {
            return Err(SandboxError::Locked.into());
        }
        // It is never readable: no process writes to the other end.
        let (waiting, _other) = socket::pair().map_err(Error::system("cannot make a socket"))?;
        process::wait_readable(waiting.as_fd(), LOCK_INTERVAL_MILLISECONDS);
    }
    Ok(file)
}

/// The way to the files of the layer.
struct Access {
    /// The user's uid outside.
    uid: Option<u32>,
    namespace: Option<Arc<OwnedFd>>,
    degraded: Vec<Degradation>,
}

/// Files of a layer belong to one uid on disk whatever engine has it mounted, and to the user of
/// the sandbox in it.
fn access(inner: &Inner, layer: &Path, slot_index: usize) -> Result<Access, Error> {
    if !has_uids() {
        return Ok(Access { uid: None, namespace: None, degraded: Vec::new() });
    }
    let uid = inner.lease.uid(slot_index);
    let namespace = owner_namespace(inner, layer, uid, slot_index)?;
    let is_mappable = probe::allows_idmap(layer, namespace.as_fd())
        .map_err(|source| SandboxError::Storage { doing: "cannot use the sandbox's layer", source })?;
    if is_mappable {
        return Ok(Access { uid: Some(uid), namespace: Some(namespace), degraded: Vec::new() });
    }
    let reason = "the file system of the state directory has no idmapped mounts: all sandboxes have one uid outside their user namespaces";
    let degraded = vec![Degradation { layer: "own uid".to_owned(), reason: reason.to_owned() }];
    Ok(Access { uid: Some(WORKSPACES), namespace: None, degraded })
}

/// The tree under all layers, if it is not the host's.
fn template_tree(layers: &Layers, base: &Base) -> Option<TemplateTree> {
    match base {
        Base::Host => None,
        Base::Directory(path) => Some(TemplateTree::Directory(path.clone())),
        Base::Layer(id) => Some(TemplateTree::Layer(layers.layer(id))),
    }
}

fn build(
    inner: &Inner,
    home: &Home,
    layers: &Layers,
    record: &Record,
    holder: &mut Option<Slot>,
) -> Result<(BuiltRoot, RootView), Error> {
    let (host, stack) = (inner.host()?, &record.stack);
    let in_user_namespace = host.namespaces == NamespaceSupport::User;
    if stack.has_user_attributes != in_user_namespace {
        return Err(SandboxError::OtherPrivileges { was_privileged: in_user_namespace }.into());
    }
    let Some(slot) = holder.as_mut() else { return Err(Error::Full(0)) };
    let storage = |doing| move |source| Error::from(SandboxError::Storage { doing, source });
    let work = home.renew_work(&new_run_id()).map_err(storage("cannot prepare the sandbox's layer"))?;
    let layer = home.layer();
    let access = access(inner, &layer, slot.index)?;
    let template = template_tree(layers, &stack.base);
    let root = template.as_ref().map(TemplateTree::root);
    let accounts = root.as_deref().map(|root| read_files(root, ["etc/passwd", "etc/group"])).transpose()?;
    let files = host_files(inner)?;
    let path_variable = match &root {
        None => files.path_variable.clone(),
        Some(_) => SANDBOX_PATH.into(),
    };
    let mut mounts = own_mounts(files.mounts.clone(), accounts);
    if let SandboxNetwork::Allowed(_) = record.network {
        let own = root.as_deref().map(|root| read_files(root, OWN_SETTINGS)).transpose()?;
        add_proxy_files(&mut mounts, own.unwrap_or_default());
    }
    let view = RootView {
        uid: access.uid,
        writable: writable(root.as_deref())?,
        proc: proc_files(&mounts),
        path_variable,
        degraded: access.degraded,
    };
    let idmaps: Vec<Arc<OwnedFd>> = access.namespace.into_iter().collect();
    let below: Vec<_> = stack.layers.iter().map(|id| layers.layer(id)).collect();
    let request = RootRequest {
        layer: &layer,
        work: &work,
        is_mapped: !idmaps.is_empty(),
        layers: &below,
        template,
        mounts: &mounts,
        in_user_namespace,
    };
    let steps = root_steps(&request, idmaps.len() as u64);
    let plan = Plan { flags: NEWNS | NEWPID, program: steps.program, names: steps.names, ..Plan::none() };
    let prepared = PreparedJail::of_plan(Arc::new(KnownFiles::new(files)), plan, idmaps);
    let built = carry_out(inner, prepared, holder)?;
    Ok((built, view))
}

/// What is left of the process that has put a root together.
struct BuiltRoot {
    namespace: OwnedFd,
    root: OwnedFd,
}

/// Starts a process that puts the root together, takes its mount namespace, and ends it. The slot
/// comes back empty.
fn carry_out(inner: &Inner, prepared: PreparedJail, holder: &mut Option<Slot>) -> Result<BuiltRoot, Error> {
    let pair = || socket::pair().map_err(Error::system("cannot make a socket"));
    let ((control, init_control), (dispatch, waiting)) = (pair()?, pair()?);
    let null = spawn::null()?;
    let Some(slot) = holder.take() else { return Err(Error::Full(0)) };
    let descriptors = Descriptors {
        slot: &slot,
        stdio: [null.as_fd(); 3],
        control: init_control.as_fd(),
        given: &[waiting.as_fd()],
    };
    let spawned = spawn::spawn(inner, &Spec::command(["true"]), &prepared, &descriptors);
    let spawned = match spawned {
        Ok(spawned) => spawned,
        Err(error) => {
            slot.kill_all();
            *holder = Some(slot);
            return Err(error);
        }
    };
    drop(init_control);
    let jail = prepared.started(slot, control, spawned.pidfd, RunPath::Exec);
    let built = wait_built(&jail);
    // Its namespace stays as long as the descriptor of it does.
    drop(dispatch);
    let pidfd = jail.pidfd.clone();
    spawn::abandon(&jail.slot, pidfd.as_fd());
    *holder = Some(jail.slot);
    built
}

fn wait_built(jail: &Jail) -> Result<BuiltRoot, Error> {
    const MOUNTS: u64 = 0x0002_0000;
    let doing = "cannot build the sandbox's root";
    let (mut namespace, mut root) = (None, None);
    loop {
        if !process::wait_readable(jail.control.as_fd(), BUILD_TIMEOUT_MILLISECONDS) {
            return Err(Error::System { doing, source: io::ErrorKind::TimedOut.into() });
        }
        match process::notice(&jail.control).map_err(Error::system(doing))? {
            Some((notice, Some(fd))) if notice.kind == notice::ROOT => root = Some(fd),
            Some((notice, Some(fd))) if notice.a == MOUNTS => namespace = Some(fd),
            Some((notice, None)) if notice.kind == notice::STEP_FAILED => {
                let source = io::Error::from_raw_os_error(notice.b as i32);
                let name = jail.plan.names.get(notice.a as usize).map_or("a step", |name| name);
                return Err(failed_step(name, source));
            }
            Some((notice, None)) if notice.kind == notice::PARKED => break,
            Some(_) => {}
            None => return Err(Error::System { doing, source: io::ErrorKind::UnexpectedEof.into() }),
        }
    }
    let built = namespace.zip(root).map(|(namespace, root)| BuiltRoot { namespace, root });
    built.ok_or(Error::System { doing, source: io::ErrorKind::NotFound.into() })
}

fn failed_step(name: &str, source: io::Error) -> Error {
    if name == OVERLAY_STEP {
        return SandboxError::Overlay { source }.into();
    }
    let source = io::Error::new(source.kind(), format!("{name}: {source}"));
    Error::System { doing: "cannot build the sandbox's root", source }
}

/// Files of a directory template; empty where there is none. No link in the template leads out of
/// it.
fn read_files(template: &Path, names: [&str; 2]) -> Result<[Vec<u8>; 2], Error> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    /// Of a file; no system has a larger one.
    const MAX_BYTES: u64 = 1 << 20;
    let problem = |error: Errno| {
        Error::from(SandboxError::Template {
            path: template.to_owned(),
            problem: format!("cannot be read ({})", io::Error::from(error)),
        })
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat2(CWD, template, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(problem)?;
    let read = |name: &str| -> Result<Vec<u8>, Error> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = match openat2(&root, name, flags, Mode::empty(), resolve) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(error) => return Err(problem(error)),
        };
        let mut contents = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(&file, MAX_BYTES), &mut contents)
            .map_err(|error| problem(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok(contents)
    };
    let [first, second] = names;
    Ok([read(first)?, read(second)?])
}

/// The directories directly below the root that Landlock opens for writing. What is in them still
/// has owners and modes.
fn writable(template: Option<&Path>) -> Result<Vec<std::path::PathBuf>, Error> {
    let mut writable: Vec<_> = WRITABLE.map(std::path::PathBuf::from).into();
    let Some(directory) = template else { return Ok(writable) };
    let read = std::fs::read_dir(directory).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let entries = read.map_err(|error| SandboxError::Template {
        path: directory.to_owned(),
        problem: format!("cannot be read ({error})"),
    })?;
    for entry in entries {
        let path = Path::new("/").join(entry.file_name());
        let is_engines = ["/dev", "/proc", "/sys"].iter().any(|own| path == Path::new(own));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !is_engines && !writable.contains(&path) {
            writable.push(path);
        }
    }
    Ok(writable)
}

fn proc_files(mounts: &[Mount]) -> Vec<(&'static str, crate::isolate::machine::Contents)> {
    let files = mounts.iter().find_map(|mount| match mount {
        Mount::Proc { files, .. } => Some(files.clone()),
        _ => None,
    });
    files.unwrap_or_default()
}

/// Whether a directory is a template that can be shown: its canonical path, if it is one and shares
/// nothing with the sandboxes.
pub(super) fn check_template(directory: &Path, sandboxes: &Path) -> Result<std::path::PathBuf, SandboxError> {
    let error =
        |problem: &str| SandboxError::Template { path: directory.to_owned(), problem: problem.to_owned() };
    let path = directory.canonicalize().map_err(|cause| error(&format!("cannot be used ({cause})")))?;
    if !path.is_dir() {
        return Err(error("is not a directory"));
    }
    if path.parent().is_none() {
        return Err(error("is the root of this host: the template `host` shows what may be shown of it"));
    }
    if path.starts_with(sandboxes) || sandboxes.starts_with(&path) {
        return Err(error("shares files with the directory of the sandboxes; put one of them elsewhere"));
    }
    if path.to_str().is_none() {
        return Err(error("has a path that is not UTF-8"));
    }
    Ok(path)
}
