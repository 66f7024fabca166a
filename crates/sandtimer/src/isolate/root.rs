//! The file system of a run: a new root put together from parts of the host, and made the root.
//!
//! Most of it is the same for all runs of an engine. That part can stand ready in the launcher's mount namespace, as a
//! template: a sandbox's namespace is a copy of the launcher's, so the copy has it, and the sandbox adds what is its own
//! (private directories, /proc, mapped directories, its user's name) and makes it the root.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sandtimer_os::program::Program;
use sandtimer_os::wire::op;

use super::files::{Kind, Mount};
use super::plan::Builder;

/// Templates a launcher can hold.
pub const TEMPLATES: usize = 8;

const READ_ONLY: u64 = 1;
const NO_SUID: u64 = 2;
const NO_DEVICES: u64 = 4;
/// MS_NOSUID | MS_NODEV.
const PLAIN: u64 = 2 | 4;

/// Where the new root is put together: covered for the time of building and never a source of anything.
const BASE: &str = "/sys";
/// The one sized tmpfs behind all private directories. It stays where it is: unmounting waits for RCU, up to
/// milliseconds, and there is nothing in it that the run does not see elsewhere.
const PRIVATE: &str = "/.private";
/// The kernel's limit on the pages of a root that holds directories, links and a few small files.
const ROOT_OPTIONS: &str = "mode=0755,size=16m";

fn template_base(index: usize) -> PathBuf {
    Path::new(BASE).join(format!("t{index}"))
}

fn below(base: &Path, path: &Path) -> PathBuf {
    base.join(path.strip_prefix("/").unwrap_or(path))
}

/// Which of a plan's mounts differ from run to run, or lie on one that does.
fn is_own(mounts: &[Mount]) -> Vec<bool> {
    // What lies below a target comes right after it, so only the last outermost one can hold the next.
    let mut outermost: Option<&Path> = None;
    mounts
        .iter()
        .map(|mount| {
            let target = mount.target();
            let differs = match mount {
                Mount::Tmpfs { .. } | Mount::Proc { .. } | Mount::Terminals { .. } => true,
                // A directory that people work in may be replaced at any time; what stands ready may not.
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

/// The steps by which the launcher makes template `index` for these mounts; `again` where an older one is in its place.
pub fn template(mounts: &[Mount], index: usize, first: bool, again: bool) -> Program {
    let base = template_base(index);
    let mut program = Program::new();
    let mut push = |op: u16, numbers: &[u64], strings: &[&OsStr]| {
        program.push(op, true, numbers, strings);
    };
    let text = OsStr::new;
    if first {
        push(op::PRIVATE_MOUNTS, &[], &[]);
        push(op::MOUNT, &[PLAIN], &[text("sandtimer"), text(BASE), text("tmpfs"), text("mode=0755,size=1m")]);
    }
    if again {
        push(op::UNMOUNT, &[], &[base.as_os_str()]);
    }
    push(op::DIRECTORY, &[0o755], &[base.as_os_str()]);
    push(op::MOUNT, &[PLAIN], &[text("sandtimer"), base.as_os_str(), text("tmpfs"), text(ROOT_OPTIONS)]);
    push(op::DIRECTORY, &[0o700], &[below(&base, Path::new(PRIVATE)).as_os_str()]);
    let own = is_own(mounts);
    for (mount, own) in mounts.iter().zip(&own) {
        let target = below(&base, mount.target());
        let target = target.as_os_str();
        match mount {
            // Places for what each run adds.
            Mount::Bind { kind: Kind::File, .. } | Mount::Accounts { .. } if *own => {
                push(op::FILE, &[0o644], &[target, text("")]);
            }
            Mount::Symlink { points_to, .. } => push(op::SYMLINK, &[], &[points_to.as_os_str(), target]),
            _ if *own => push(op::DIRECTORY, &[0o755], &[target]),
            Mount::Bind { source, kind, .. } => {
                let numbers = [NO_SUID | NO_DEVICES | READ_ONLY, u64::MAX, u64::from(*kind == Kind::File)];
                push(op::BIND, &numbers, &[source.as_os_str(), target]);
            }
            Mount::Device { target: device } => {
                push(op::BIND, &[NO_SUID | READ_ONLY, u64::MAX, 1], &[device.as_os_str(), target]);
            }
            Mount::Synthetic { contents, .. } => {
                push(op::FILE, &[0o644], &[target, OsStr::from_bytes(contents)])
            }
            _ => push(op::DIRECTORY, &[0o755], &[target]),
        }
    }
    push(op::MOUNT_ATTRIBUTES, &[READ_ONLY], &[base.as_os_str()]);
    program
}

impl Builder<'_> {
    /// Puts the new root together, wholly or from a template, and makes it the root.
    pub(super) fn root(&mut self) {
        let base = match self.policy.template {
            Some(index) => template_base(index),
            None => {
                self.push::<&str>("make mounts private", op::PRIVATE_MOUNTS, &[], &[]);
                self.push("mount the root", op::MOUNT, &[PLAIN], &["sandtimer", BASE, "tmpfs", ROOT_OPTIONS]);
                PathBuf::from(BASE)
            }
        };
        let private = below(&base, Path::new(PRIVATE));
        if self.policy.template.is_none() {
            self.push("make the private directory", op::DIRECTORY, &[0o700], &[&private]);
        }
        let size = format!("mode=0755,size={},nr_inodes=262144", self.policy.limits.private_bytes);
        let strings = [OsStr::new("sandtimer"), private.as_os_str(), OsStr::new("tmpfs"), OsStr::new(&size)];
        self.push("mount the private tmpfs", op::MOUNT, &[PLAIN], &strings);
        let mounts = &self.policy.files.mounts;
        let own = is_own(mounts);
        for (mount, own) in mounts.iter().zip(own) {
            if own || self.policy.template.is_none() {
                self.mount(mount, &base);
            }
        }
        self.push("change root", op::PIVOT, &[], &[&base]);
        if self.policy.template.is_none() {
            self.push("make the root read-only", op::MOUNT_ATTRIBUTES, &[READ_ONLY], &["/"]);
        }
    }

    fn mount(&mut self, mount: &Mount, base: &Path) {
        let target = below(base, mount.target());
        match mount {
            Mount::Directory { .. } => self.push("make a directory", op::DIRECTORY, &[0o755], &[&target]),
            Mount::Bind { source, writable, identity_mapped, kind, .. } => {
                let attributes = NO_SUID | NO_DEVICES | if *writable { 0 } else { READ_ONLY };
                let mapped = self.identity().is_some_and(|identity| identity.owner.is_none());
                let namespace = if *identity_mapped && mapped {
                    self.plan.idmapped.push(source.clone());
                    (self.idmap_base + self.plan.idmapped.len() - 1) as u64
                } else {
                    u64::MAX
                };
                let file = u64::from(*kind == Kind::File);
                if namespace != u64::MAX {
                    self.plan.optional.push((self.plan.program.steps(), "ownership of a mapped directory"));
                }
                self.push(
                    "bind a part of the host",
                    op::BIND,
                    &[attributes, namespace, file],
                    &[source, &target],
                );
            }
            Mount::Symlink { points_to, .. } => {
                self.push("make a link", op::SYMLINK, &[], &[points_to, &target])
            }
            Mount::Tmpfs { target: inside, mode } => {
                let own = private_place(base, inside);
                self.push("make a private directory", op::DIRECTORY, &[u64::from(*mode)], &[&own]);
                let numbers = [NO_SUID | NO_DEVICES, u64::MAX, 0];
                self.push("bind a private directory", op::BIND, &numbers, &[&own, &target]);
            }
            Mount::Synthetic { target: inside, contents } => self.file(base, inside, contents),
            Mount::Accounts { target: inside, file } => {
                let job = self.policy.identity.map(|identity| (identity.job, identity.job));
                let (uid, gid) = job.unwrap_or((self.host.uid, self.host.gid));
                self.file(base, inside, file.contents(uid, gid).as_bytes());
            }
            Mount::Device { target: device } => {
                // Read-only is the node, not the device: its times are not a channel between runs.
                self.push("bind a device", op::BIND, &[NO_SUID | READ_ONLY, u64::MAX, 1], &[device, &target]);
            }
            Mount::Terminals { .. } => {
                self.push("make a directory", op::DIRECTORY, &[0o755], &[&target]);
                // The machine has a fixed number of terminals (`kernel.pty.max`).
                let options = OsStr::new("newinstance,ptmxmode=0666,mode=620,max=16");
                let strings = [OsStr::new("devpts"), target.as_os_str(), OsStr::new("devpts"), options];
                self.push("mount terminals", op::MOUNT, &[2 | 8], &strings);
            }
            Mount::Proc { .. } => self.mount_proc(&target),
        }
    }

    /// On a template's root nothing can be written: there the file lies with the private directories.
    fn file(&mut self, base: &Path, inside: &Path, contents: &[u8]) {
        let (target, contents) = (below(base, inside), OsStr::from_bytes(contents));
        if self.policy.template.is_none() {
            self.push("write a file", op::FILE, &[0o644], &[target.as_os_str(), contents]);
            return;
        }
        let own = private_place(base, inside);
        self.push("write a file", op::FILE, &[0o644], &[own.as_os_str(), contents]);
        let numbers = [NO_SUID | NO_DEVICES | READ_ONLY, u64::MAX, 1];
        self.push("bind a file", op::BIND, &numbers, &[&own, &target]);
    }

    /// Only processes, and of those only the job's own.
    fn mount_proc(&mut self, target: &Path) {
        self.push("make a directory", op::DIRECTORY, &[0o755], &[target]);
        // Hidden from the job, not from init, which counts. Where both have one uid init would be shut out as well, from
        // every process that is not dumpable; there is no other run's process to hide in any case.
        let options = match self.identity() {
            Some(identity) => format!("subset=pid,hidepid=invisible,gid={}", identity.init),
            None => "subset=pid".to_owned(),
        };
        let strings = [OsStr::new("proc"), target.as_os_str(), OsStr::new("proc"), OsStr::new(&options)];
        self.optional("mount /proc", op::MOUNT, &[2 | 4 | 8], &strings);
    }
}

/// The place of a private directory or file on the run's own tmpfs.
fn private_place(base: &Path, inside: &Path) -> PathBuf {
    let name: Vec<u8> =
        inside.as_os_str().as_bytes().iter().map(|byte| if *byte == b'/' { b'_' } else { *byte }).collect();
    below(base, Path::new(PRIVATE)).join(OsStr::from_bytes(&name))
}
