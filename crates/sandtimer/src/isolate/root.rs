//! The file system of a run: a new root put together from parts of the host, and made the root.
//!
//! Most of it is the same for all runs of an engine. That part can be prepared in the launcher's
//! mount namespace, as a template: a jail's namespace is a copy of the launcher's, so the copy has
//! it, and init adds the jail's private parts (private directories, /proc, mapped directories, its
//! user's name) and makes it the root.
//!
//! The hard fact: below a directory of the host's that another run may write, every name may be
//! exchanged at any time. So names are made only on the root's own tmpfs and on that of the private
//! directories, and a mount below a part of the host goes onto what exists there, found without
//! following a link (helper/steps.rs).

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use sandtimer_os::program::StepProgram;
use sandtimer_os::wire::op;

use super::files::{FileKind, Mount};
use super::machine::{Contents, MEMORY, format_meminfo};
use super::plan::Builder;

/// Templates a launcher can hold.
pub const TEMPLATES: usize = 8;

pub(super) const READ_ONLY: u64 = 1;
pub(super) const NO_SUID: u64 = 2;
pub(super) const NO_DEVICES: u64 = 4;
/// MS_NOSUID | MS_NODEV.
pub(super) const PLAIN: u64 = 2 | 4;

/// MS_NOSUID | MS_NODEV | MS_NOEXEC.
pub(super) const PROC_FLAGS: u64 = 2 | 4 | 8;
/// What is shown of procfs itself: two links to files of the process that uses them, how long the
/// machine has been up, and which kinds of file systems it knows.
const OF_PROC: [&str; 4] = ["filesystems", "mounts", "net", "uptime"];

/// Where the new root is put together: covered for the time of building and never a source of
/// anything.
pub(super) const BASE: &str = "/sys";
/// The one sized tmpfs of all private directories. It stays where it is, and is covered: unmounting
/// waits for RCU, up to milliseconds.
const PRIVATE: &str = ".private";
/// The kernel's limit on the pages of a root that holds directories, links and a few small files.
pub(super) const ROOT_OPTIONS: &str = "mode=0755,size=16m";

fn template_base(index: usize) -> PathBuf {
    Path::new(BASE).join(format!("t{index}"))
}

/// A path inside as the second half of a [place](op::MOUNT).
pub(super) fn inside(target: &Path) -> &Path {
    let path = target.strip_prefix("/").unwrap_or(target);
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Where the mount point of a target is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountPoint<'a> {
    /// On the tmpfs of the root.
    Root,
    /// In the private directory that is shown at this path.
    Private(&'a Path),
    /// Below a part of the host: it exists there, or the run cannot be started.
    Host,
}

/// The mount points of a plan's mounts, one each.
pub(super) fn mount_points(mounts: &[Mount]) -> Vec<MountPoint<'_>> {
    // The mounts that the one at hand lies below, innermost last: what lies below a target comes
    // right after it.
    let mut above: Vec<(&Path, MountPoint<'_>)> = Vec::new();
    mounts
        .iter()
        .map(|mount| {
            let target = mount.target();
            while above.last().is_some_and(|(above, _)| !target.starts_with(above)) {
                above.pop();
            }
            let point = above.last().map_or(MountPoint::Root, |(_, below)| *below);
            let below = match mount {
                Mount::Directory { .. } => point,
                Mount::Tmpfs { .. } => MountPoint::Private(target),
                _ => MountPoint::Host,
            };
            above.push((target, below));
            point
        })
        .collect()
}

/// Which of a plan's mounts differ from run to run, or lie on one that does.
fn is_own(mounts: &[Mount]) -> Vec<bool> {
    // What lies below a target comes right after it, so only the last outermost one can hold the
    // next.
    let mut outermost: Option<&Path> = None;
    mounts
        .iter()
        .map(|mount| {
            let target = mount.target();
            let differs = match mount {
                Mount::Tmpfs { .. } | Mount::Proc { .. } | Mount::Terminals { .. } => true,
                // A directory that people work in may be replaced at any time, so it cannot be part
                // of a template.
                Mount::Bind { identity_mapped, writable, .. } => *identity_mapped || *writable,
                Mount::Accounts { .. } => true,
                _ => false,
            };
            let inside_own = outermost.is_some_and(|own| target.starts_with(own));
            if differs && !inside_own {
                outermost = Some(target);
            }
            differs || inside_own
        })
        .collect()
}

/// The steps by which the launcher makes template `index` for these mounts; `again` where an older
/// one is in its place.
pub fn template(mounts: &[Mount], index: usize, first: bool, again: bool) -> StepProgram {
    let base = template_base(index);
    let mut program = StepProgram::new();
    let mut push = |op: u16, numbers: &[u64], strings: &[&OsStr]| {
        program.push(op, true, numbers, strings);
    };
    let text = OsStr::new;
    let (base, here) = (base.as_os_str(), text("."));
    if first {
        push(op::PRIVATE_MOUNTS, &[], &[]);
        let strings = [text(BASE), here, text("sandtimer"), text("tmpfs"), text("mode=0755,size=1m")];
        push(op::MOUNT, &[PLAIN], &strings);
    }
    if again {
        push(op::UNMOUNT, &[], &[base, here]);
    }
    let name = Path::new(base).file_name().unwrap_or_default();
    push(op::DIRECTORY, &[0o755], &[text(BASE), name]);
    push(op::MOUNT, &[PLAIN], &[base, here, text("sandtimer"), text("tmpfs"), text(ROOT_OPTIONS)]);
    push(op::DIRECTORY, &[0o700], &[base, text(PRIVATE)]);
    let (own, points) = (is_own(mounts), mount_points(mounts));
    for ((mount, own), point) in mounts.iter().zip(&own).zip(&points) {
        let target = inside(mount.target()).as_os_str();
        let made = *point == MountPoint::Root;
        let is_file = matches!(
            mount,
            Mount::Bind { kind: FileKind::File, .. } | Mount::Device { .. } | Mount::Accounts { .. }
        );
        // Mount points, also of what each run adds.
        match mount {
            _ if !made => {}
            Mount::Symlink { points_to, .. } => {
                push(op::SYMLINK, &[], &[base, target, points_to.as_os_str()])
            }
            Mount::Synthetic { contents, .. } => {
                push(op::FILE, &[0o644], &[base, target, OsStr::from_bytes(contents)]);
            }
            _ if is_file => push(op::FILE, &[0o644], &[base, target, text("")]),
            _ => push(op::DIRECTORY, &[0o755], &[base, target]),
        }
        match mount {
            // Below the procfs that each run mounts.
            Mount::Proc { files, .. } if made => {
                for (name, contents) in files {
                    let path = Path::new(target).join(name);
                    push(op::FILE, &[0o644], &[base, path.as_os_str(), OsStr::from_bytes(contents)]);
                }
            }
            Mount::Bind { source, .. } if !own => {
                push(
                    op::BIND,
                    &[NO_SUID | NO_DEVICES | READ_ONLY, u64::MAX],
                    &[base, target, source.as_os_str()],
                );
            }
            Mount::Device { target: device } if !own => {
                push(op::BIND, &[NO_SUID | READ_ONLY, u64::MAX], &[base, target, device.as_os_str()]);
            }
            _ => {}
        }
    }
    push(op::MOUNT_ATTRIBUTES, &[READ_ONLY], &[base, here]);
    program
}

/// The root in the making, and one of its mounts.
#[derive(Clone, Copy)]
pub(super) struct MountTarget<'a> {
    pub(super) base: &'a OsStr,
    /// The directory of the private tmpfs.
    pub(super) private: &'a OsStr,
    /// Where the mount takes effect, as a path inside.
    pub(super) path: &'a Path,
    pub(super) point: MountPoint<'a>,
}

impl<'a> MountTarget<'a> {
    fn location(&self) -> [&'a OsStr; 2] {
        [self.base, inside(self.path).as_os_str()]
    }
}

impl Builder<'_> {
    /// How many places below parts of the host the plan covers.
    pub(super) fn covered(&self) -> usize {
        let mounts = &self.policy.files.mounts;
        let covers = |mount: &Mount| {
            matches!(mount, Mount::Tmpfs { .. } | Mount::Bind { writable: false, identity_mapped: false, .. })
        };
        let points = mount_points(mounts);
        mounts.iter().zip(points).filter(|(mount, point)| *point == MountPoint::Host && covers(mount)).count()
    }

    /// Puts the new root together, wholly or from a template, and makes it the root.
    pub(super) fn root(&mut self) {
        let text = OsStr::new;
        let here = text(".");
        let base = self.policy.template.map_or_else(|| PathBuf::from(BASE), template_base);
        let private = base.join(PRIVATE);
        let (base, private) = (base.as_os_str(), private.as_os_str());
        let templated = self.policy.template.is_some();
        if !templated {
            self.push::<&str>("make mounts private", op::PRIVATE_MOUNTS, &[], &[]);
            let strings = [base, here, text("sandtimer"), text("tmpfs"), text(ROOT_OPTIONS)];
            self.push("mount the root", op::MOUNT, &[PLAIN], &strings);
            self.push("make the private directory", op::DIRECTORY, &[0o700], &[base, text(PRIVATE)]);
        }
        let size = format!("mode=0755,size={},nr_inodes=262144", self.policy.limits.private_bytes);
        let strings = [private, here, text("sandtimer"), text("tmpfs"), text(&size)];
        self.push("mount the private tmpfs", op::MOUNT, &[PLAIN], &strings);
        let mounts = &self.policy.files.mounts;
        let (own, points) = (is_own(mounts), mount_points(mounts));
        for ((mount, own), point) in mounts.iter().zip(own).zip(points) {
            if own || !templated {
                self.mount(mount, MountTarget { base, private, path: mount.target(), point });
            }
        }
        self.cover_private(base, private);
        self.push("change root", op::PIVOT, &[], &[base, here]);
        if !templated {
            self.push("make the root read-only", op::MOUNT_ATTRIBUTES, &[READ_ONLY], &["/", "."]);
        }
    }

    /// What is in the private directories has no second name inside.
    fn cover_private(&mut self, base: &OsStr, private: &OsStr) {
        const NAME: &str = "empty";
        self.push("make an empty directory", op::DIRECTORY, &[0], &[private, OsStr::new(NAME)]);
        let source = Path::new(private).join(NAME);
        let strings = [base, OsStr::new(PRIVATE), source.as_os_str()];
        self.push(
            "cover the private tmpfs",
            op::BIND,
            &[NO_SUID | NO_DEVICES | READ_ONLY, u64::MAX],
            &strings,
        );
    }

    pub(super) fn mount(&mut self, mount: &Mount, target: MountTarget<'_>) {
        let [base, path] = target.location();
        match mount {
            Mount::Directory { .. } => self.make_directory(target),
            Mount::Bind { source, writable, identity_mapped, kind, .. } => {
                match kind {
                    FileKind::Directory => self.make_directory(target),
                    FileKind::File => {
                        self.make(target, "make a mount point", op::FILE, &[0o644], OsStr::new(""))
                    }
                }
                let attributes = NO_SUID | NO_DEVICES | if *writable { 0 } else { READ_ONLY };
                let mapped = self.identity().is_some_and(|identity| identity.owner.is_none());
                let namespace = if *identity_mapped && mapped {
                    self.plan.idmapped.push(source.clone());
                    (self.idmap_base + self.plan.idmapped.len() - 1) as u64
                } else {
                    u64::MAX
                };
                if namespace != u64::MAX {
                    self.plan.optional.push((self.plan.program.steps(), "ownership of a mapped directory"));
                }
                let name = if *identity_mapped || *writable || target.point == MountPoint::Host {
                    Cow::Owned(format!("mount {}", target.path.display()))
                } else {
                    Cow::Borrowed("bind a part of the host")
                };
                self.push(name, op::BIND, &[attributes, namespace], &[base, path, source.as_os_str()]);
            }
            Mount::Symlink { points_to, .. } => {
                self.make(target, "make a link", op::SYMLINK, &[], points_to.as_os_str());
            }
            Mount::Tmpfs { mode, .. } => {
                self.make_directory(target);
                let own = private_name(target.path);
                let strings = [target.private, own.as_os_str()];
                self.push("make a private directory", op::DIRECTORY, &[u64::from(*mode)], &strings);
                self.bind_private(target, &own, NO_SUID | NO_DEVICES);
            }
            Mount::Synthetic { contents, .. } => self.file(target, contents),
            Mount::Accounts { file, .. } => {
                let job = self.policy.identity.map(|identity| (identity.job, identity.job));
                let (uid, gid) = job.unwrap_or((self.host.uid, self.host.gid));
                self.file(target, file.contents(uid, gid).as_bytes());
            }
            Mount::Device { target: device } => {
                self.make(target, "make a mount point", op::FILE, &[0o644], OsStr::new(""));
                // Read-only is the node, not the device: its times are not a channel between runs.
                let strings = [base, path, device.as_os_str()];
                self.push("bind a device", op::BIND, &[NO_SUID | READ_ONLY, u64::MAX], &strings);
            }
            Mount::Terminals { most, .. } => {
                self.make_directory(target);
                // The machine has a fixed number of terminals (`kernel.pty.max`).
                let options = format!("newinstance,ptmxmode=0666,mode=620,max={most}");
                let [kind, options] = ["devpts", &options].map(OsStr::new);
                let strings = [base, path, kind, kind, options];
                if self.policy.terminal.is_some() {
                    self.push("mount terminals", op::MOUNT, &[2 | 8], &strings);
                } else {
                    self.optional("pseudo-terminals", op::MOUNT, &[2 | 8], &strings);
                }
            }
            Mount::Proc { files, .. } => self.mount_proc(target, files),
        }
    }

    /// Makes something where the plan permits; elsewhere it exists.
    fn make(
        &mut self,
        target: MountTarget<'_>,
        name: &'static str,
        op: u16,
        numbers: &[u64],
        content: &OsStr,
    ) {
        let private = match target.point {
            // The root of a template is read-only, and has it.
            MountPoint::Root if self.policy.template.is_none() => None,
            MountPoint::Private(holder) => Some(private_path(holder, target.path)),
            MountPoint::Root | MountPoint::Host => return,
        };
        let [root, path] = match &private {
            Some(path) => [target.private, path.as_os_str()],
            None => target.location(),
        };
        let strings = [root, path, content];
        let count = if op == op::DIRECTORY { 2 } else { 3 };
        self.push(name, op, numbers, &strings[..count]);
    }

    fn make_directory(&mut self, target: MountTarget<'_>) {
        self.make(target, "make a directory", op::DIRECTORY, &[0o755], OsStr::new(""));
    }

    /// On a template's root nothing can be written: there the file lies with the private
    /// directories.
    fn file(&mut self, target: MountTarget<'_>, contents: &[u8]) {
        let contents = OsStr::from_bytes(contents);
        if self.policy.template.is_none() || target.point != MountPoint::Root {
            self.make(target, "write a file", op::FILE, &[0o644], contents);
            return;
        }
        let own = private_name(target.path);
        let strings = [target.private, own.as_os_str(), contents];
        self.push("write a file", op::FILE, &[0o644], &strings);
        self.bind_private(target, &own, NO_SUID | NO_DEVICES | READ_ONLY);
    }

    /// Shows a file or directory of the private tmpfs at its place.
    fn bind_private(&mut self, target: MountTarget<'_>, own: &Path, attributes: u64) {
        let source = Path::new(target.private).join(own);
        let [base, path] = target.location();
        let strings = [base, path, source.as_os_str()];
        let name = match target.point {
            MountPoint::Host => Cow::Owned(format!("cover {}", target.path.display())),
            _ => Cow::Borrowed("bind a private directory or file"),
        };
        self.push(name, op::BIND, &[attributes, u64::MAX], &strings);
    }

    /// Shows only processes, and of those only the job's own, and the files with the size of the
    /// machine.
    fn mount_proc(&mut self, target: MountTarget<'_>, files: &[(&str, Contents)]) {
        self.make_directory(target);
        for (name, contents) in files {
            let path = target.path.join(name);
            let file = MountTarget { path: &path, ..target };
            self.make(file, "write a file", op::FILE, &[0o644], OsStr::from_bytes(contents));
        }
        // Hidden from the job, not from init, which counts. Where both have one uid init would be
        // shut out as well, from every process that is not dumpable; there is no other run's
        // process to hide in any case.
        let hiding = match self.identity() {
            Some(identity) => format!("hidepid=invisible,gid={}", identity.init),
            None => String::new(),
        };
        let [base, path] = target.location();
        let whole = Path::new(base).join(path);
        let own = self.policy.own_memory.map(|bytes| {
            let file = Path::new(target.private).join(private_name(&target.path.join(MEMORY)));
            (file, format_meminfo(bytes))
        });
        let (file, text) =
            own.as_ref().map_or((Path::new(""), ""), |(file, text)| (file.as_path(), text.as_str()));
        let mut strings: Vec<&OsStr> = vec![base, path, hiding.as_ref(), file.as_ref(), text.as_ref()];
        let targets: Vec<PathBuf> = files.iter().map(|(name, _)| whole.join(name)).collect();
        for ((name, _), target) in files.iter().zip(&targets) {
            let is_own = own.is_some() && *name == MEMORY;
            strings.extend([if is_own { file.as_os_str() } else { OsStr::new(name) }, target.as_os_str()]);
        }
        strings.extend(OF_PROC.map(OsStr::new));
        let numbers = [PROC_FLAGS, files.len() as u64, u64::from(self.policy.is_pooled)];
        self.optional("files of the machine in /proc", op::PROC, &numbers, &strings);
        let options =
            if hiding.is_empty() { "subset=pid".to_owned() } else { format!("subset=pid,{hiding}") };
        let strings = [base, path, OsStr::new(&options)];
        self.optional("mount /proc", op::PROC_OF_PROCESSES, &[PROC_FLAGS], &strings);
    }
}

/// The name of a private directory or file on the run's own tmpfs.
fn private_name(path: &Path) -> PathBuf {
    let name = path.as_os_str().as_bytes().iter().map(|byte| if *byte == b'/' { b'_' } else { *byte });
    PathBuf::from(OsString::from_vec(name.collect()))
}

/// The path on the run's own tmpfs of what is shown at `path`, in the private directory that is
/// shown at `holder`.
fn private_path(holder: &Path, path: &Path) -> PathBuf {
    private_name(holder).join(path.strip_prefix(holder).unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(target: &str, writable: bool) -> Mount {
        let path = PathBuf::from(target);
        Mount::Bind {
            source: path.clone(),
            target: path,
            writable,
            identity_mapped: true,
            kind: FileKind::Directory,
        }
    }

    #[test]
    fn mount_points_below_host_are_never_made() {
        let directory = |target: &str| Mount::Directory { target: target.into() };
        let tmpfs = |target: &str| Mount::Tmpfs { target: target.into(), mode: 0o777 };
        let mounts = [
            directory("/srv"),
            bind("/srv/p", false),
            bind("/srv/p/x/out", true),
            tmpfs("/tmp"),
            directory("/tmp/a"),
            bind("/tmp/a/b", false),
            bind("/tmp/a/b/c", true),
            directory("/tmp/d"),
            bind("/workspace", true),
        ];
        let private = MountPoint::Private(Path::new("/tmp"));
        let (root, host) = (MountPoint::Root, MountPoint::Host);
        assert_eq!(mount_points(&mounts), [root, root, host, root, private, private, host, private, root]);
    }
}
