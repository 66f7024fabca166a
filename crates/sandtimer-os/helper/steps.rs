//! Carries out the steps of a program, one system call or a few for each.
//!
//! The program comes from the engine in a sealed memfd, so its shape is trusted; its effects are
//! checked one by one and every failure goes back with the number of the step.

use crate::sys::{self, Fd, call, nr};
use crate::wire::{FOLLOW_LINKS, StepHeader, channel, op};

/// A step's result above this is a success with a note: `NOTE + errno` of the part that did not
/// work.
pub const NOTE: isize = 100_000;

/// SECCOMP_FILTER_FLAG_NEW_LISTENER.
pub const NEW_LISTENER: usize = 1 << 3;

/// A string inside the program: NUL-terminated, with its length.
#[derive(Clone, Copy)]
pub struct Text {
    pub pointer: *const u8,
    pub length: usize,
}

impl Text {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `Step::string` made it from a record of the mapped program, which is never
        // unmapped before exec.
        unsafe { core::slice::from_raw_parts(self.pointer, self.length) }
    }
}

/// One record of a mapped program.
#[derive(Clone, Copy)]
pub struct Step {
    pub header: StepHeader,
    body: *const u8,
}

impl Step {
    pub fn number(&self, index: usize) -> u64 {
        // SAFETY: the engine writes `number_count` u64s after each header, aligned to eight.
        unsafe { *self.body.cast::<u64>().add(index) }
    }

    pub fn string(&self, index: usize) -> Text {
        // SAFETY: the engine writes `string_count` length-prefixed, NUL-terminated strings after
        // the numbers.
        unsafe {
            let mut at = self.body.add(self.header.number_count as usize * 8);
            for _ in 0..index {
                at = at.add(5 + at.cast::<u32>().read_unaligned() as usize);
            }
            Text { pointer: at.add(4), length: at.cast::<u32>().read_unaligned() as usize }
        }
    }
}

/// A mapped program and the place in it.
#[derive(Clone, Copy)]
pub struct Program {
    at: *const u8,
    end: *const u8,
    pub number: u64,
}

impl Program {
    /// Maps the program and closes its descriptor.
    pub fn map(fd: Fd, length: usize) -> Result<Self, isize> {
        let address = call!(nr::MMAP, 0, length, 1, 2, fd, 0);
        sys::close(fd);
        if (-4095..0).contains(&address) {
            return Err(address);
        }
        let at = address as *const u8;
        Ok(Program { at, end: at.wrapping_add(length), number: 0 })
    }
}

impl Program {
    /// Address of the mapping, before any step was taken from it.
    pub fn start(&self) -> *const u8 {
        self.at
    }
}

impl Iterator for Program {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.at >= self.end {
            return None;
        }
        // SAFETY: records follow one another from the start of the mapping to its end, aligned to
        // eight.
        let header = unsafe { *self.at.cast::<StepHeader>() };
        let step = Step { header, body: self.at.wrapping_add(size_of::<StepHeader>()) };
        self.at = self.at.wrapping_add(header.length as usize);
        self.number += 1;
        Some(step)
    }
}

/// Carries out one step that needs no knowledge of init or child; `extra` are the descriptors steps
/// name by index.
pub fn apply(step: &Step, extra: &[Fd]) -> isize {
    Builder::new().apply(step, extra)
}

/// Carries out steps one after another, and keeps from one to the next what many of them need: the
/// directory below which the places of steps are, the directory there in which something was made
/// last, and a mask that takes nothing from the modes of what is made. Dropping it closes the
/// directories and restores the mask.
pub struct Builder {
    /// The directory that was opened last, by its path.
    root: Option<(Text, Fd)>,
    /// The directory in which something was made last, by its path below `root`. Nothing is mounted
    /// on it or on a directory above it since.
    parent: Option<(Text, Fd)>,
    /// The process's own mask, if it is replaced.
    mask: Option<isize>,
}

impl Builder {
    pub fn new() -> Self {
        Builder { root: None, parent: None, mask: None }
    }

    /// As [`apply`].
    pub fn apply(&mut self, step: &Step, extra: &[Fd]) -> isize {
        match step.header.op {
            op::WRITE => sys::write(extra[step.number(0) as usize], step.string(0).bytes()),
            op::PRIVATE_MOUNTS => {
                let (none, root) = (c"none".as_ptr().cast(), c"/".as_ptr().cast());
                mount(none, root, core::ptr::null(), (1 << 14) | (1 << 18), core::ptr::null())
            }
            op::MOUNT => {
                let [source, kind, data] = [2, 3, 4].map(|index| step.string(index).pointer);
                let here = enter(self.open(Place::of(step)));
                // What is mounted may cover the directory.
                self.close_root();
                here.map_or_else(
                    |error| error,
                    |here| mount(source, here, kind, step.number(0) as usize, data),
                )
            }
            op::OVERLAY => self.overlay(step),
            op::BIND => self.bind(step, extra),
            op::DIRECTORY => self.make(step, |parent, name| call!(nr::MKDIRAT, parent, name, step.number(0))),
            op::SYMLINK => {
                self.make(step, |parent, name| call!(nr::SYMLINKAT, step.string(2).pointer, parent, name))
            }
            op::FILE => self.make(step, |parent, name| {
                make_file(parent, name, step.number(0) as usize, step.string(2).bytes())
            }),
            op::SESSION => call!(nr::SETSID),
            op::PIVOT => {
                let here = enter(self.open(Place::of(step)));
                self.close_root();
                here.map_or_else(|error| error, pivot)
            }
            op::MOUNT_ATTRIBUTES => match self.open(Place::of(step)) {
                Ok(place) => {
                    let result =
                        set_attributes(place as isize, EMPTY, [step.number(0), 0, 0, 0], AT_EMPTY_PATH);
                    sys::close(place);
                    result
                }
                Err(error) => error,
            },
            op::UNMOUNT => {
                let here = enter(self.open(Place::of(step)));
                self.close_root();
                here.map_or_else(|error| error, |here| call!(nr::UMOUNT2, here, MNT_DETACH))
            }
            op::UMASK => {
                self.mask = None;
                call!(nr::UMASK, step.number(0))
            }
            _ => apply_to_process(step),
        }
    }

    /// What a place names.
    fn open(&mut self, place: Place) -> Result<Fd, isize> {
        locate(self.root(place.root)? as isize, place.path.pointer, resolve::INSIDE)
    }

    /// The directory at `path`, which stays open.
    fn root(&mut self, path: Text) -> Result<Fd, isize> {
        if let Some((known, root)) = &self.root
            && known.bytes() == path.bytes()
        {
            return Ok(*root);
        }
        self.close_root();
        let root = locate(sys::AT_FDCWD, path.pointer, resolve::NO_LINKS)?;
        self.root = Some((path, root));
        Ok(root)
    }

    fn close_root(&mut self) {
        self.close_parent();
        if let Some((_, root)) = self.root.take() {
            sys::close(root);
        }
    }

    /// The directory that the last name of a path lies in, on the very mount of the root, which is
    /// where the place is below: below another mount, which may be a part of the host, this fails.
    /// It is the root itself for a path of one name; else it stays open.
    fn parent(&mut self, place: Place) -> Result<(Fd, *const u8), isize> {
        let root = self.root(place.root)?;
        let bytes = place.path.bytes();
        let Some(slash) = bytes.iter().rposition(|byte| *byte == b'/') else {
            return Ok((root, place.path.pointer));
        };
        let name = place.path.pointer.wrapping_add(slash + 1);
        if let Some((known, parent)) = &self.parent
            && known.bytes() == &bytes[..slash]
        {
            return Ok((*parent, name));
        }
        self.close_parent();
        let mut path = [0u8; 4096];
        if slash >= path.len() {
            return Err(sys::ENAMETOOLONG);
        }
        path[..slash].copy_from_slice(&bytes[..slash]);
        let how = resolve::INSIDE | resolve::NO_MOUNT_CROSSING;
        let parent = locate(root as isize, path.as_ptr(), how)?;
        self.parent = Some((Text { pointer: place.path.pointer, length: slash }, parent));
        Ok((parent, name))
    }

    fn close_parent(&mut self) {
        if let Some((_, parent)) = self.parent.take() {
            sys::close(parent);
        }
    }

    /// Makes something at the place that a step names, with exactly the mode it asks for. What
    /// exists there stays.
    fn make(&mut self, step: &Step, make: impl Fn(Fd, *const u8) -> isize) -> isize {
        let (parent, name) = match self.parent(Place::of(step)) {
            Ok(found) => found,
            Err(error) => return error,
        };
        self.mask.get_or_insert_with(|| call!(nr::UMASK, 0));
        let result = make(parent, name);
        if result == sys::EEXIST { 0 } else { result }
    }

    /// Mounts an overlay, and checks that it can be written to.
    fn overlay(&mut self, step: &Step) -> isize {
        let kind = c"overlay".as_ptr().cast();
        let here = enter(self.open(Place::of(step)));
        // What is mounted covers the directory.
        self.close_root();
        let mounted = here.map_or_else(
            |error| error,
            |here| mount(kind, here, kind, step.number(0) as usize, step.string(2).pointer),
        );
        if mounted < 0 {
            return mounted;
        }
        match self.open(Place::of(step)) {
            Ok(place) => {
                let result = check_writable(place);
                sys::close(place);
                result
            }
            Err(error) => error,
        }
    }

    /// Clones the source tree, sets its attributes while no process can reach it, then attaches it
    /// to what exists at the target.
    fn bind(&mut self, step: &Step, extra: &[Fd]) -> isize {
        let (attributes, namespace) = (step.number(0), step.number(1));
        // The plan's sources are canonical. A link that appeared there since must not lead
        // elsewhere.
        let source = match locate(sys::AT_FDCWD, step.string(2).pointer, resolve::NO_LINKS) {
            Ok(source) => source,
            Err(error) => return error,
        };
        let tree = call!(nr::OPEN_TREE, source, EMPTY, 1 | sys::O_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH);
        sys::close(source);
        if tree < 0 {
            return tree;
        }
        let mut refused = 0;
        let mut result =
            set_attributes(tree, EMPTY, [attributes, 0, 1 << 18, 0], AT_EMPTY_PATH | AT_RECURSIVE);
        if result >= 0 && namespace != u64::MAX {
            let mapped = [ATTRIBUTE_IDMAP, 0, 0, extra[namespace as usize] as u64];
            // With all that is mounted below; a file system there that cannot be mapped must not
            // keep the top from it.
            refused = set_attributes(tree, EMPTY, mapped, AT_EMPTY_PATH | AT_RECURSIVE).min(0);
            if refused < 0 {
                refused = set_attributes(tree, EMPTY, mapped, AT_EMPTY_PATH).min(0);
            }
        }
        if result >= 0 {
            result = self.attach(tree as Fd, Place::of(step));
        }
        sys::close(tree as Fd);
        // A file system that cannot be idmapped is shown as it is: what works, and reported.
        if result >= 0 && refused < 0 { NOTE - refused } else { result }
    }

    /// move_mount(2) from a descriptor to a descriptor.
    fn attach(&mut self, tree: Fd, target: Place) -> isize {
        const FROM_EMPTY_PATH: usize = 0x4;
        const TO_EMPTY_PATH: usize = 0x40;
        let covered = target.path.bytes();
        let covers_root = covered == b".";
        let covers_parent = self.parent.as_ref().is_some_and(|(path, _)| path.bytes().starts_with(covered));
        let target = match self.open(target) {
            Ok(target) => target,
            Err(error) => return error,
        };
        let result = call!(nr::MOVE_MOUNT, tree, EMPTY, target, EMPTY, FROM_EMPTY_PATH | TO_EMPTY_PATH);
        sys::close(target);
        if covers_root {
            self.close_root();
        } else if covers_parent {
            self.close_parent();
        }
        result
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        self.close_root();
        if let Some(mask) = self.mask {
            call!(nr::UMASK, mask);
        }
    }
}

/// Carries out a step that changes this process alone.
fn apply_to_process(step: &Step) -> isize {
    match step.header.op {
        op::HOSTNAME => call!(nr::SETHOSTNAME, step.string(0).pointer, step.string(0).length),
        op::RLIMIT => {
            let limits = [step.number(1), step.number(2)];
            call!(nr::PRLIMIT64, 0, step.number(0), limits.as_ptr(), 0)
        }
        op::IDENTITY => identity_of(step),
        op::USER_NAMESPACE => user_namespace(step.string(0), step.string(1)),
        op::PRIVILEGED_IDENTITY => privileged_identity(step.number(0), step.number(1), step.number(2)),
        op::OWN => {
            // The other way round than usual: changing the identity cleared both; prctl(2).
            sys::prctl(sys::PR_SET_DUMPABLE, 1);
            sys::prctl(sys::PR_SET_PDEATHSIG, sys::SIGKILL as usize)
        }
        op::NO_CAPABILITIES => sys::set_capabilities(0),
        op::NO_NEW_PRIVILEGES => sys::prctl(sys::PR_SET_NO_NEW_PRIVS, 1),
        op::LANDLOCK => landlock(step, -1),
        op::SECCOMP => seccomp(step.string(0), 0),
        op::WORKING_DIRECTORY => call!(nr::CHDIR, step.string(0).pointer),
        op::SUBREAPER => sys::prctl(sys::PR_SET_CHILD_SUBREAPER, 1),
        _ => sys::EINVAL,
    }
}

pub fn mount(source: *const u8, target: *const u8, kind: *const u8, flags: usize, data: *const u8) -> isize {
    call!(nr::MOUNT, source, target, kind, flags, data)
}

pub fn write_file(path: *const u8, bytes: &[u8]) -> isize {
    let fd = sys::open_at(sys::AT_FDCWD, path, sys::O_WRONLY, 0);
    if fd < 0 {
        return fd;
    }
    let written = sys::write(fd as Fd, bytes);
    sys::close(fd as Fd);
    written
}

/// Further groups that a process can be given.
const MOST_GROUPS: usize = 16;

fn identity_of(step: &Step) -> isize {
    let mut groups = [0u32; MOST_GROUPS];
    let count = step.header.number_count as usize - 2;
    if count > MOST_GROUPS {
        return sys::EINVAL;
    }
    for (index, group) in groups[..count].iter_mut().enumerate() {
        *group = step.number(2 + index) as u32;
    }
    identity(step.number(0) as usize, step.number(1) as usize, &groups[..count])
}

/// setgroups first (it needs the group capability), then gid, then uid, which drops the
/// capabilities.
fn identity(uid: usize, gid: usize, groups: &[u32]) -> isize {
    let groups = call!(nr::SETGROUPS, groups.len(), groups.as_ptr());
    let group = call!(nr::SETRESGID, gid, gid, gid);
    if group < 0 {
        return group;
    }
    let user = call!(nr::SETRESUID, uid, uid, uid);
    if user < 0 { user } else { groups }
}

/// As [`identity`], but with `keep` of the capabilities, and across the next exec.
fn privileged_identity(uid: u64, gid: u64, keep: u64) -> isize {
    let mut result = 0;
    if uid != u64::MAX {
        sys::prctl(sys::PR_SET_KEEPCAPS, 1);
        result = identity(uid as usize, gid as usize, &[]);
    }
    if result < 0 { result } else { sys::set_ambient_capabilities(keep) }
}

/// user_namespaces(7): a process may map its own ids without any capability, its group once it has
/// given up setgroups(2).
fn user_namespace(users: Text, groups: Text) -> isize {
    const CLONE_NEWUSER: usize = 0x1000_0000;
    // The map files of a process that is not dumpable belong to root. Until it executes the command
    // it is one of ours.
    sys::prctl(sys::PR_SET_DUMPABLE, 1);
    // Without a map the process would have no uid in the namespace, so it enters none that it
    // cannot map.
    let mut result = sys::open_at(sys::AT_FDCWD, c"/proc/self/uid_map".as_ptr().cast(), sys::O_WRONLY, 0);
    if result >= 0 {
        sys::close(result as Fd);
        result = call!(nr::UNSHARE, CLONE_NEWUSER);
    }
    // Entering it has taken that away.
    sys::prctl(sys::PR_SET_DUMPABLE, 1);
    let files = [
        (c"/proc/self/setgroups", b"deny".as_slice()),
        (c"/proc/self/uid_map", users.bytes()),
        (c"/proc/self/gid_map", groups.bytes()),
    ];
    for (path, bytes) in files {
        if result >= 0 {
            result = write_file(path.as_ptr().cast(), bytes);
        }
    }
    sys::prctl(sys::PR_SET_DUMPABLE, 0);
    sys::drop_bounding_set();
    result
}

/// Opens a terminal for this process's session, sends its master over `socket` and waits until the
/// receiver has set it up; pty(7), ioctl_tty(2). Returns the slave.
pub fn terminal(socket: Fd) -> Result<Fd, isize> {
    const READ_WRITE_NO_TTY: usize = 0o2 | 0o400;
    const TIOCSCTTY: usize = 0x540E;
    const TIOCGPTPEER: usize = 0x5441;
    const TIOCSPTLCK: usize = 0x4004_5431;
    let check = |result: isize| if result < 0 { Err(result) } else { Ok(result as Fd) };
    let master = check(sys::open_at(sys::AT_FDCWD, c"/dev/ptmx".as_ptr().cast(), READ_WRITE_NO_TTY, 0))?;
    let unlocked = 0i32;
    check(call!(nr::IOCTL, master, TIOCSPTLCK, &raw const unlocked))?;
    let slave = check(call!(nr::IOCTL, master, TIOCGPTPEER, READ_WRITE_NO_TTY | sys::O_CLOEXEC))?;
    check(call!(nr::IOCTL, slave, TIOCSCTTY, 0))?;
    check(sys::send(socket, &[1], Some(master), 0))?;
    sys::close(master);
    // The read returns no byte if the engine no longer wants the terminal.
    if check(sys::read(socket, &mut [0; 1]))? == 1 { Ok(slave) } else { Err(sys::ESRCH) }
}

pub const O_PATH: u64 = 0o10000000;
pub const AT_EMPTY_PATH: usize = 0x1000;
pub const AT_RECURSIVE: usize = 0x8000;
pub const MNT_DETACH: usize = 2;
pub const EMPTY: *const u8 = c"".as_ptr().cast();
/// The current directory.
const HERE: *const u8 = c".".as_ptr().cast();

/// openat2(2).
mod resolve {
    pub const NO_MOUNT_CROSSING: u64 = 1;
    const NO_MAGIC_LINKS: u64 = 2;
    const NO_SYMLINKS: u64 = 4;
    const BENEATH: u64 = 8;
    /// Another run may exchange any name below a directory that it may write, while this process
    /// walks along it. Without links such a name leads to a directory of the same tree.
    pub const NO_LINKS: u64 = NO_SYMLINKS | NO_MAGIC_LINKS;
    pub const INSIDE: u64 = NO_LINKS | BENEATH;
}

/// A descriptor of the file or directory at `path` that gives no access to its contents.
fn locate(directory: isize, path: *const u8, resolve: u64) -> Result<Fd, isize> {
    let how = [O_PATH | sys::O_CLOEXEC as u64, 0, resolve];
    let fd = call!(nr::OPENAT2, directory, path, how.as_ptr(), 24);
    if fd < 0 { Err(fd) } else { Ok(fd as Fd) }
}

/// Where a step takes effect: a path below a directory that no job can write.
#[derive(Clone, Copy)]
pub struct Place {
    root: Text,
    path: Text,
}

impl Place {
    /// The first two strings of a step.
    pub fn of(step: &Step) -> Self {
        Place { root: step.string(0), path: step.string(1) }
    }

    pub fn open(self) -> Result<Fd, isize> {
        let root = locate(sys::AT_FDCWD, self.root.pointer, resolve::NO_LINKS)?;
        let found = locate(root as isize, self.path.pointer, resolve::INSIDE);
        sys::close(root);
        found
    }
}

/// Makes the current directory what is opened, because mount(2) and umount2(2) take no descriptor.
pub fn enter(place: Result<Fd, isize>) -> Result<*const u8, isize> {
    let place = place?;
    let result = call!(nr::FCHDIR, place);
    sys::close(place);
    if result < 0 { Err(result) } else { Ok(HERE) }
}

/// mount_setattr(2): `attributes` are to-set, to-clear, propagation, user namespace.
pub fn set_attributes(directory: isize, path: *const u8, attributes: [u64; 4], flags: usize) -> isize {
    call!(nr::MOUNT_SETATTR, directory, path, flags, attributes.as_ptr(), 32)
}

const ATTRIBUTE_IDMAP: u64 = 0x0010_0000;

/// EROFS for a file system that is mounted read-only; statfs(2).
fn check_writable(file: Fd) -> isize {
    const ST_RDONLY: u64 = 1;
    // `struct statfs` of x86-64, in words; the flags are the eleventh.
    let mut status = [0u64; 15];
    let result = call!(nr::FSTATFS, file, status.as_mut_ptr());
    if result >= 0 && status[10] & ST_RDONLY != 0 { sys::EROFS } else { result }
}

fn make_file(parent: Fd, name: *const u8, mode: usize, contents: &[u8]) -> isize {
    const O_EXCL: usize = 0o200;
    let fd = sys::open_at(parent as isize, name, sys::O_WRONLY | sys::O_CREAT | O_EXCL, mode);
    if fd < 0 {
        return fd;
    }
    let result = if contents.is_empty() { 0 } else { sys::write(fd as Fd, contents) };
    sys::close(fd as Fd);
    result
}

/// pivot_root(2) onto itself stacks the old root over the new one, from where it is detached.
fn pivot(here: *const u8) -> isize {
    let mut result = call!(nr::PIVOT_ROOT, here, here);
    if result >= 0 {
        result = call!(nr::UMOUNT2, HERE, MNT_DETACH);
    }
    if result >= 0 { call!(nr::CHDIR, c"/".as_ptr()) } else { result }
}

/// Also has stdin opened by its name, for reading, where it is a regular file (-1 for none): pipes
/// always can be.
pub fn landlock(step: &Step, stdin: Fd) -> isize {
    let attributes = [step.number(0), step.number(1), step.number(2)];
    let ruleset = call!(nr::LANDLOCK_CREATE_RULESET, attributes.as_ptr(), 24, 0);
    if ruleset < 0 {
        return ruleset;
    }
    let mut result = allow_paths(step, ruleset as Fd);
    if result >= 0 {
        if is_regular(stdin) {
            // Of some file systems nothing can be allowed; it is read by its number then.
            allow(ruleset as Fd, stdin, access::READ_FILE);
        }
        result = call!(nr::LANDLOCK_RESTRICT_SELF, ruleset, 0);
    }
    sys::close(ruleset as Fd);
    result
}

/// Landlock's rights for files; landlock(7).
mod access {
    pub const READ_FILE: u64 = 1 << 2;
    /// Directories have it, files do not.
    pub const READ_DIRECTORY: u64 = 1 << 3;
}

/// A path that does not exist grants nothing and needs no rule. The same for one that leads through
/// a link since it was planned: without mounts, what it leads to would be granted.
fn allow_paths(step: &Step, ruleset: Fd) -> isize {
    let root = match open_path(sys::AT_FDCWD, c"/".as_ptr().cast(), 0) {
        Ok(root) => root,
        Err(error) => return error,
    };
    let mut result = 0;
    for index in 0..step.header.string_count as usize {
        let (path, rights) = (step.string(index), step.number(3 + index));
        let found = if rights & FOLLOW_LINKS == 0 {
            walk(root, path, rights & access::READ_DIRECTORY != 0)
        } else {
            open_path(sys::AT_FDCWD, path.pointer, 0)
        };
        let Ok(fd) = found else { continue };
        result = allow(ruleset, fd, rights & !FOLLOW_LINKS);
        if fd != root {
            sys::close(fd);
        }
        if result < 0 {
            break;
        }
    }
    sys::close(root);
    result
}

/// Opens `path` without following links; name by name, because the job's filter, which is already
/// loaded, refuses openat2(2).
///
/// A link fails with ENOTDIR, except at the end of the path of a file: a rule about a link itself
/// grants nothing.
fn walk(root: Fd, path: Text, is_directory: bool) -> Result<Fd, isize> {
    let mut name = [0u8; 256];
    let mut here = root;
    let mut names = path.bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(bytes) = names.next() {
        let next = if bytes.len() < name.len() {
            name[..bytes.len()].copy_from_slice(bytes);
            name[bytes.len()] = 0;
            let only = if is_directory || names.peek().is_some() { sys::O_DIRECTORY } else { 0 };
            open_path(here as isize, name.as_ptr(), sys::O_NOFOLLOW | only)
        } else {
            Err(sys::ENAMETOOLONG)
        };
        if here != root {
            sys::close(here);
        }
        here = next?;
    }
    Ok(here)
}

fn open_path(directory: isize, path: *const u8, flags: usize) -> Result<Fd, isize> {
    let fd = sys::open_at(directory, path, O_PATH as usize | flags, 0);
    if fd < 0 { Err(fd) } else { Ok(fd as Fd) }
}

fn allow(ruleset: Fd, fd: Fd, access: u64) -> isize {
    // struct landlock_path_beneath_attr is packed: u64 access, i32 descriptor.
    let mut rule = [0u8; 12];
    rule[..8].copy_from_slice(&access.to_ne_bytes());
    rule[8..].copy_from_slice(&fd.to_ne_bytes());
    call!(nr::LANDLOCK_ADD_RULE, ruleset, 1, rule.as_ptr(), 0)
}

fn is_regular(fd: Fd) -> bool {
    // `struct stat` of x86-64, in words; the mode is the first half of the fourth.
    let mut status = [0u64; 18];
    call!(nr::FSTAT, fd, status.as_mut_ptr()) == 0 && status[3] & 0o170000 == 0o100000
}

/// Loads the filter of a live jail, and sends its listener over this socket to the engine, which
/// passes it to init.
pub fn supervised(step: &Step, socket: Fd) -> isize {
    let listener = seccomp(step.string(0), NEW_LISTENER);
    if listener >= 0 {
        sys::send(socket, &[channel::LISTENER], Some(listener as Fd), 0);
        sys::close(listener as Fd);
    }
    listener
}

/// Loads a filter; with [`NEW_LISTENER`] the result is the descriptor of its listener.
pub fn seccomp(program: Text, flags: usize) -> isize {
    #[repr(C)]
    struct Filter {
        length: u16,
        instructions: *const u8,
    }
    let filter = Filter { length: (program.length / 8) as u16, instructions: program.pointer };
    call!(nr::SECCOMP, 1, flags, &raw const filter)
}
