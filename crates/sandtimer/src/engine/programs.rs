//! Python programs as runs in children of a zygote: a warm interpreter takes the place of one that
//! is started.
//!
//! ```text
//! a ready child of the pool      where the program asks for nothing that is built into a sandbox
//! a child made for this run      where it does: a workspace, a directory to start in, a disk limit
//! none                           no zygote serves, or it asks for what no child has: the caller starts an interpreter
//! ```
//! The child gives the program what `python3 FILE` gives it: the run's environment and streams, a
//! file, and an end by exit code. The file is a name in the sandbox's root that leads to the source
//! in the child's memory.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use sandtimer_os::zygote as os;

use super::children::{Child, ChildJob, Parent};
use super::error::Error;
use super::named_directories::NamedDirectories;
use super::opened::{self, OpenedRun};
use super::start;
use super::streams::RunStreams;
use super::which_processor::ActiveWork;
use super::{Calls, Output, Run, Spec};
use crate::model::{LimitKind, Path};

/// What the packet of such a program begins with; `SCRIPT` in the children's program.
const MARK: [u8; 4] = [0xff; 4];
/// How many children in a row may have died while they waited.
const MAX_LOST_CHILDREN: u32 = 4;
/// Variables that an interpreter or a library reads at its start, by their beginnings: a zygote has
/// started already.
const READ_AT_START: [&str; 9] =
    ["PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "OMP_", "MKL_", "OPENBLAS_"];
/// The one of them that a child reads itself.
const PYTHON_PATH: &str = "PYTHONPATH";

impl Calls {
    /// Starts a program as the run that `spec` describes, whose command and `program` are ignored,
    /// in a child of this pool's zygote. `None` where none serves yet, or the spec asks for what
    /// only an interpreter of its own can have (a terminal, a network, a variable that is read at
    /// the start): `spec` is as it was then, and the caller starts that interpreter.
    ///
    /// # Errors
    /// What stops Sandtimer before a run exists, whichever way it is started; see [`Error`].
    pub fn start_program(&self, spec: &mut Spec, source: &str) -> Result<Option<Run>, Error> {
        if !suits(spec) {
            return Ok(None);
        }
        let inner = &self.shared().inner;
        let opened = opened::open(inner, spec)?;
        let scope = opened.scope;
        let started = self.start_opened(spec, source, opened);
        if !matches!(started, Ok(Some(_))) {
            opened::close(inner, scope);
        }
        started
    }

    fn start_opened(&self, spec: &mut Spec, source: &str, opened: OpenedRun) -> Result<Option<Run>, Error> {
        let inner = &self.shared().inner;
        let (_under_way, is_alone) = ActiveWork::begin(&inner.callers);
        let Some(mut child) = self.child(spec, &opened) else { return Ok(None) };
        if child.check(spec).is_err() {
            return Ok(None);
        }
        let source = os::sealed_file("sandtimer-program", source.as_bytes())
            .map_err(Error::system("cannot write the program"))?;
        let mut streams = RunStreams::make(inner, spec, &opened.effective)?;
        let mut lost = 0;
        let sent_job = loop {
            let files: Vec<_> =
                [source.as_fd()].into_iter().chain(streams.inside()).chain(streams.channels()).collect();
            let bytes = packet(spec.stdout == Output::Capture, &child.environment(spec));
            let work = ChildJob { bytes: &bytes, files: &files, program: true };
            match child.hand_over(&opened, &work, is_alone && child.is_parked()) {
                Ok(sent_job) => break sent_job,
                Err(error @ Error::System { .. }) if lost < MAX_LOST_CHILDREN => {
                    lost += 1;
                    child = self.child(spec, &opened).ok_or(error)?;
                }
                Err(error) => return Err(error),
            }
        };
        streams.close_inside();
        let run = child.into_run_of(opened, spec, sent_job, streams).ok_or(Error::Closed)?;
        self.shared().call_ended();
        Ok(Some(run))
    }

    /// A child for a run of this spec; none where none can be had at once.
    fn child(&self, spec: &Spec, opened: &OpenedRun) -> Option<Child> {
        let shared = self.shared();
        let is_plain = is_plain(spec) && opened.effective.get(LimitKind::Disk).is_none();
        if let Some(child) = is_plain.then(|| shared.take_ready()).flatten() {
            return Some(child);
        }
        let zygote = shared.serving_zygote()?;
        // If the child cannot be made, the interpreter that is started instead reports the reason.
        let mut child = match is_plain {
            true => shared.make_of(&zygote, &NamedDirectories::default()).ok()?,
            false => {
                let parent = Parent {
                    request_socket: zygote.request_socket(),
                    turn: Some(&zygote.turn),
                    is_caller: false,
                    is_live: false,
                    hurried: true,
                    stop: None,
                };
                Child::bear(&shared.inner, &parent, &jail_spec(spec, &shared.profile.interpreter)).ok()?
            }
        };
        child.zygote = Some(zygote);
        child.came_by(Path::Cold);
        Some(child)
    }
}

/// Whether a child can be what this spec asks for.
fn suits(spec: &Spec) -> bool {
    let is_read_at_start = |name: &OsStr| {
        name == "PATH"
            || name != PYTHON_PATH
                && READ_AT_START.iter().any(|start| name.as_bytes().starts_with(start.as_bytes()))
    };
    let is_ordinary = !spec.network
        && !spec.gpu
        && spec.terminal.is_none()
        && matches!(spec.umask, None | Some(start::USUAL_UMASK))
        && spec.stderr != Output::SameAsStdout;
    let is_walled = spec.without.is_empty() && !spec.host_proc && !spec.supervised && !spec.is_live;
    is_ordinary && is_walled && !spec.environment.iter().any(|(name, _)| is_read_at_start(name))
}

/// Whether the sandbox of a pool's child is what this spec asks for.
fn is_plain(spec: &Spec) -> bool {
    let shown = spec.workspaces.len() + spec.read_only.len() + spec.world_readable.len();
    let own = [&spec.workspace, &spec.workspace_link, &spec.temporary, &spec.working_directory];
    let has_own = own.iter().any(|path| path.is_some());
    spec.private_workspace && !has_own && shown == 0
}

/// What of a spec is built into a sandbox.
fn jail_spec(spec: &Spec, interpreter: &OsStr) -> Spec {
    Spec {
        command: vec![interpreter.to_owned()],
        working_directory: spec.working_directory.clone(),
        workspaces: spec.workspaces.clone(),
        read_only: spec.read_only.clone(),
        follows_package_links: spec.follows_package_links,
        world_readable: spec.world_readable.clone(),
        private_workspace: spec.private_workspace,
        workspace: spec.workspace.clone(),
        workspace_link: spec.workspace_link.clone(),
        temporary: spec.temporary.clone(),
        show_credentials: spec.show_credentials,
        limits: spec.limits.clone(),
        defaults: spec.defaults.clone(),
        owner: spec.owner.clone(),
        parent: spec.parent,
        require: spec.require,
        ..Spec::default()
    }
}

/// What the child's program reads; see `script` there. `is_captured`: the engine reads stdout, and
/// the memory before it.
fn packet(is_captured: bool, environment: &[(OsString, OsString)]) -> Vec<u8> {
    let variables =
        environment.iter().map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
    let variables: Vec<_> = variables.collect();
    [&MARK[..], &[u8::from(is_captured)], &variables.join(&0)].concat()
}

impl Child {
    /// The environment of a run of this spec here.
    fn environment(&self, spec: &Spec) -> Vec<(OsString, OsString)> {
        self.files().map_or_else(Vec::new, |files| {
            let mut environment = start::environment(spec, files, None);
            let channels = start::channels_of(spec, 3);
            environment.extend(channels.map(|(name, number)| (name.into(), number.to_string().into())));
            environment
        })
    }
}
