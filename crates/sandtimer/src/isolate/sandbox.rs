//! The root of a sandbox, and how a run starts in it.
//!
//! ```text
//! root_steps     once for a mount: the template under the sandbox's private layer, in a mount namespace that the engine keeps
//! in_sandbox     for each run: a copy of that namespace, with the run's own /proc, /dev/shm and terminals
//! ```
//! The first is carried out with the rights of the launcher, before any code of the sandbox runs.
//! Nothing of a sandbox can change it afterwards: its runs have no capability, and the namespace
//! belongs to the launcher's user namespace.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sandtimer_os::program::StepProgram;
use sandtimer_os::wire::op;

use super::files::{AccountFile, FileKind, Mount, WORKSPACE};
use super::plan::{Builder, StepName};
use super::root::{
    BASE, MountPoint, MountTarget, NO_DEVICES, NO_SUID, PLAIN, PROC_FLAGS, READ_ONLY, ROOT_OPTIONS, inside,
    mount_points,
};

/// The uid and gid of a sandbox's user inside.
pub const USER_ID: u32 = 1000;
/// The name of a sandbox's user.
pub const SANDBOX_USER: &str = "user";
/// The home directory of a sandbox's user.
pub const SANDBOX_HOME: &str = "/home/user";
/// Where programs are searched in a directory template.
pub const SANDBOX_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The file in which passwords would be; see [`with_user`].
const ACCOUNTS: [(&str, AccountFile); 2] =
    [("/etc/passwd", AccountFile::Passwd), ("/etc/group", AccountFile::Group)];

/// Directories of the root's tmpfs, while it is put together.
const LAYER: &str = "layer";
const TEMPLATE: &str = "template";
/// Followed by a number.
const LOWER: &str = "lower";
const OWN: &str = "own";
const ROOT: &str = "root";
const EMPTY: &str = "empty";

/// What the engine itself shows in a sandbox over a directory template.
const OVER_TEMPLATE: [&str; 7] = ["/dev", "/proc", "/sys", "/sandtimer", "/tmp", "/var/tmp", WORKSPACE];
const FILES_OVER_TEMPLATE: [&str; 4] = ["/etc", "/etc/hosts", "/etc/hostname", "/var"];

/// What the root of a sandbox is made of.
#[derive(Debug)]
pub struct RootRequest<'a> {
    /// The directory that holds `upper` and the directory for overlayfs's work: a canonical path on
    /// the host.
    pub layer: &'a Path,
    /// The name of the latter, which no earlier mount has used.
    pub work: &'a str,
    /// Whether the files of layers are shown under other ids, by the user namespace that is the
    /// first descriptor.
    pub is_mapped: bool,
    /// Layers under it that nothing writes to, the lowest first: directories that hold `upper`.
    pub layers: &'a [PathBuf],
    /// A tree to show under all of them, in place of the host's programs.
    pub template: Option<TemplateTree>,
    /// What the engine shows itself; see [`own_mounts`].
    pub mounts: &'a [Mount],
    /// Whether the launcher is in a user namespace, where overlayfs keeps its notes in other
    /// attributes.
    pub in_user_namespace: bool,
}

/// A tree to show in place of the host's programs, by its canonical path on the host.
#[derive(Debug, Clone)]
pub enum TemplateTree {
    /// A root tree, shown with the ids that it has on disk.
    Directory(PathBuf),
    /// A directory that holds a root tree as `upper`, whose ids are those of layers.
    Layer(PathBuf),
}

impl TemplateTree {
    /// Where the root of the tree is.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        match self {
            TemplateTree::Directory(path) => path.clone(),
            TemplateTree::Layer(path) => path.join("upper"),
        }
    }
}

/// The mounts of a host's plan as those of a sandbox: over a directory template only what every run
/// needs, and the sandbox's user in place of a run's. `accounts` are the template's own /etc/passwd
/// and /etc/group.
#[must_use]
pub fn own_mounts(mounts: Vec<Mount>, template: Option<[Vec<u8>; 2]>) -> Vec<Mount> {
    let is_over = |target: &Path| {
        OVER_TEMPLATE.iter().any(|tree| target.starts_with(tree))
            || FILES_OVER_TEMPLATE.iter().any(|file| target == Path::new(file))
    };
    let accounts = template
        .clone()
        .unwrap_or_else(|| [b"root:x:0:0:root:/root:/usr/sbin/nologin\n".to_vec(), b"root:x:0:\n".to_vec()]);
    let accounts: Vec<Mount> = ACCOUNTS
        .iter()
        .zip(accounts)
        .map(|((path, file), contents)| Mount::Synthetic {
            target: path.into(),
            contents: Cow::Owned(with_user(*file, contents)),
        })
        .collect();
    let mut shown: Vec<Mount> = mounts
        .into_iter()
        .filter(|mount| !matches!(mount, Mount::Accounts { .. }))
        .filter(|mount| template.is_none() || is_over(mount.target()))
        .collect();
    let etc =
        shown.iter().position(|mount| mount.target() == Path::new("/etc")).map_or(shown.len(), |at| at + 1);
    shown.splice(etc..etc, accounts);
    shown
}

/// The file with the sandbox's user in it, unless it has one of that number.
fn with_user(file: AccountFile, mut contents: Vec<u8>) -> Vec<u8> {
    let id = USER_ID.to_string();
    let has = contents
        .split(|byte| *byte == b'\n')
        .any(|line| line.split(|byte| *byte == b':').nth(2).is_some_and(|field| field == id.as_bytes()));
    if has {
        return contents;
    }
    if contents.last().is_some_and(|last| *last != b'\n') {
        contents.push(b'\n');
    }
    let line = match file {
        AccountFile::Passwd => {
            format!("{SANDBOX_USER}:x:{USER_ID}:{USER_ID}:{SANDBOX_USER}:{SANDBOX_HOME}:/bin/sh\n")
        }
        AccountFile::Group => format!("{SANDBOX_USER}:x:{USER_ID}:\n"),
    };
    contents.extend_from_slice(line.as_bytes());
    contents
}

/// Steps with their names.
#[derive(Debug, Default)]
pub struct Steps {
    /// The steps as the helper process executes them.
    pub program: StepProgram,
    /// What each step does, by number, for errors.
    pub names: Vec<StepName>,
}

impl Steps {
    fn push(&mut self, name: impl Into<StepName>, op: u16, numbers: &[u64], strings: &[&OsStr]) {
        self.program.push(op, true, numbers, strings);
        self.names.push(name.into());
    }
}

/// The step by which the overlay is mounted: its failure has a meaning of its own.
pub const OVERLAY_STEP: &str = "mount the private layer over the template";

/// The steps that put a sandbox's root together and make it the root, followed by those by which
/// the process waits until the engine has its namespace. `dispatch`: the index of the socket that
/// it waits at.
pub fn root_steps(request: &RootRequest<'_>, dispatch: u64) -> Steps {
    let text = OsStr::new;
    let base_path = |name: &str| Path::new(BASE).join(name);
    let [layer, template, own, root, empty] = [LAYER, TEMPLATE, OWN, ROOT, EMPTY].map(base_path);
    let mut steps = Steps::default();
    steps.push("make mounts private", op::PRIVATE_MOUNTS, &[], &[]);
    let strings = [text(BASE), text("."), text("sandtimer"), text("tmpfs"), text(ROOT_OPTIONS)];
    steps.push("mount a tmpfs", op::MOUNT, &[PLAIN], &strings);
    for name in [LAYER, TEMPLATE, OWN, ROOT] {
        steps.push("make a directory", op::DIRECTORY, &[0o755], &[text(BASE), text(name)]);
    }
    steps.push("make an empty directory", op::DIRECTORY, &[0o555], &[text(BASE), text(EMPTY)]);
    let mapped = if request.is_mapped { 0 } else { u64::MAX };
    let strings = [layer.as_os_str(), text("."), request.layer.as_os_str()];
    steps.push("show the private layer", op::BIND, &[NO_SUID | NO_DEVICES, mapped], &strings);
    let points = mount_points(request.mounts);
    for (mount, point) in request.mounts.iter().zip(&points) {
        if *point != MountPoint::Host {
            fill_own_layer(&mut steps, own.as_os_str(), mount);
        }
    }
    let mut lower = std::ffi::OsString::new();
    for (index, directory) in request.layers.iter().enumerate().rev() {
        let name = format!("{LOWER}{index}");
        let at = base_path(&name);
        steps.push("make a directory", op::DIRECTORY, &[0o755], &[text(BASE), text(&name)]);
        let strings = [at.as_os_str(), text("."), directory.as_os_str()];
        steps.push("show a layer", op::BIND, &[NO_SUID | NO_DEVICES | READ_ONLY, mapped], &strings);
        lower.push(at.join("upper"));
        lower.push(":");
    }
    lower.push(&own);
    if let Some(tree) = &request.template {
        let (directory, mapped, root) = match tree {
            TemplateTree::Directory(path) => (path, u64::MAX, template.clone()),
            TemplateTree::Layer(path) => (path, mapped, template.join("upper")),
        };
        let strings = [template.as_os_str(), text("."), directory.as_os_str()];
        steps.push("show the template", op::BIND, &[NO_SUID | NO_DEVICES | READ_ONLY, mapped], &strings);
        lower.push(":");
        lower.push(&root);
    }
    let mut options = std::ffi::OsString::from("lowerdir=");
    options.push(&lower);
    options.push(",upperdir=");
    options.push(layer.join("upper"));
    options.push(",workdir=");
    options.push(layer.join(request.work));
    // What the kernel would take its defaults for: with an index or renamed directories recorded, a
    // layer is not mounted over another lower layer again; overlayfs.rst.
    options.push(",volatile,index=off,metacopy=off,redirect_dir=nofollow");
    if request.in_user_namespace {
        options.push(",userxattr");
    }
    steps.push(OVERLAY_STEP, op::OVERLAY, &[PLAIN], &[root.as_os_str(), text("."), &options]);
    for (mount, point) in request.mounts.iter().zip(&points) {
        show(&mut steps, root.as_os_str(), empty.as_os_str(), mount, *point);
    }
    if request.in_user_namespace {
        // There the kernel mounts a procfs only if a whole one is visible already. Every run covers
        // this one, or does not start.
        let strings = [root.as_os_str(), text("dev/shm"), text("proc"), text("proc"), text("")];
        steps.push("mount a procfs", op::MOUNT, &[PROC_FLAGS], &strings);
    }
    steps.push("change root", op::PIVOT, &[], &[root.as_os_str(), text(".")]);
    steps.push("send the root", op::SEND_ROOT, &[], &[]);
    let numbers = [u64::MAX, u64::MAX, 0, u64::MAX, 0];
    steps.push("fork", op::FORK, &numbers, &[]);
    steps.push("wait for the root", op::JOIN, &[], &[]);
    steps.push("wait for the engine", op::PARK, &[dispatch], &[]);
    steps
}

/// Makes what the engine shows itself in the topmost layer of the template, which is the root's
/// tmpfs: files, links and mount points.
fn fill_own_layer(steps: &mut Steps, own: &OsStr, mount: &Mount) {
    let target = inside(mount.target()).as_os_str();
    match mount {
        Mount::Symlink { points_to, .. } => {
            steps.push("make a link", op::SYMLINK, &[], &[own, target, points_to.as_os_str()]);
        }
        Mount::Synthetic { contents, .. } => {
            steps.push("write a file", op::FILE, &[0o644], &[own, target, OsStr::from_bytes(contents)]);
        }
        Mount::Bind { kind: FileKind::File, .. } | Mount::Device { .. } | Mount::Accounts { .. } => {
            steps.push("make a mount point", op::FILE, &[0o644], &[own, target, OsStr::new("")]);
        }
        Mount::Tmpfs { mode, .. } => {
            steps.push("make a directory", op::DIRECTORY, &[u64::from(*mode)], &[own, target]);
        }
        Mount::Proc { files, .. } => {
            steps.push("make a mount point", op::DIRECTORY, &[0o755], &[own, target]);
            for (name, contents) in files {
                let path = Path::new(target).join(name);
                let strings = [own, path.as_os_str(), OsStr::from_bytes(contents)];
                steps.push("write a file", op::FILE, &[0o644], &strings);
            }
        }
        Mount::Directory { .. } | Mount::Bind { .. } | Mount::Terminals { .. } => {
            steps.push("make a directory", op::DIRECTORY, &[0o755], &[own, target]);
        }
    }
}

/// Mounts the parts of the host over the overlay, and covers their hidden parts.
fn show(steps: &mut Steps, root: &OsStr, empty: &OsStr, mount: &Mount, point: MountPoint<'_>) {
    let target = inside(mount.target()).as_os_str();
    match mount {
        Mount::Bind { source, target: path, .. } => {
            let name = format!("show {}", path.display());
            let strings = [root, target, source.as_os_str()];
            steps.push(name, op::BIND, &[NO_SUID | NO_DEVICES | READ_ONLY, u64::MAX], &strings);
        }
        Mount::Device { target: device } => {
            let strings = [root, target, device.as_os_str()];
            steps.push("bind a device", op::BIND, &[NO_SUID | READ_ONLY, u64::MAX], &strings);
        }
        Mount::Tmpfs { target: path, .. } if point == MountPoint::Host => {
            let name = format!("cover {}", path.display());
            let strings = [root, target, empty];
            steps.push(name, op::BIND, &[NO_SUID | NO_DEVICES | READ_ONLY, u64::MAX], &strings);
        }
        _ => {}
    }
}

impl Builder<'_> {
    /// What a run in a sandbox adds to its copy of the sandbox's mounts. `held`: the index of the
    /// descriptor that marks the sandbox as in use, which init keeps as long as it lives.
    pub(super) fn in_sandbox(&mut self, held: u64) {
        self.push::<&str>("hold the sandbox", op::HOLD, &[held], &[]);
        let [dev, shm] = ["/dev", "shm"].map(OsStr::new);
        let size = format!("mode=1777,size={},nr_inodes=262144", self.policy.limits.private_bytes);
        let strings = [dev, shm, OsStr::new("sandtimer"), OsStr::new("tmpfs"), OsStr::new(&size)];
        if self.policy.own_memory.is_some() {
            // The file that /proc shows in place of the machine's lies below the run's root.
            self.push("mount a tmpfs for a file of /proc", op::MOUNT, &[PLAIN], &strings);
        }
        let base = OsStr::new("/");
        for mount in &self.policy.files.mounts {
            let path = mount.target();
            self.mount(
                mount,
                MountTarget { base, private: OsStr::new("/dev/shm"), path, point: MountPoint::Host },
            );
        }
        self.push("mount /dev/shm", op::MOUNT, &[PLAIN], &strings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_accounts_keep_their_lines_and_get_the_user() {
        let passwd = with_user(AccountFile::Passwd, b"root:x:0:0::/root:/bin/sh".to_vec());
        let passwd = String::from_utf8(passwd).expect("text");
        assert_eq!(passwd, "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n");
        let own = b"node:x:1000:1000::/home/node:/bin/sh\n".to_vec();
        assert_eq!(
            with_user(AccountFile::Passwd, own.clone()),
            own,
            "a user of that number is the template's own"
        );
        assert_eq!(with_user(AccountFile::Group, Vec::new()), b"user:x:1000:\n");
    }

    #[test]
    fn directory_template_gets_devices_and_no_programs_of_the_host() {
        let bind = |path: &str| Mount::Bind {
            source: path.into(),
            target: path.into(),
            writable: false,
            identity_mapped: false,
            kind: FileKind::Directory,
        };
        let mounts = vec![
            Mount::Directory { target: "/dev".into() },
            Mount::Device { target: "/dev/null".into() },
            Mount::Directory { target: "/etc".into() },
            Mount::Accounts { target: "/etc/passwd".into(), file: AccountFile::Passwd },
            bind("/etc/ssl"),
            bind("/usr"),
        ];
        let shown = own_mounts(mounts, Some([Vec::new(), Vec::new()]));
        let targets: Vec<&str> = shown.iter().filter_map(|mount| mount.target().to_str()).collect();
        assert_eq!(targets, ["/dev", "/dev/null", "/etc", "/etc/passwd", "/etc/group"]);
    }
}
