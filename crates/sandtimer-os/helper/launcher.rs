//! Starts sandboxes for the engine: one request, one clone3, one answer.
//!
//! It exists because the engine may be a large, threaded process (a server, a Python interpreter
//! with gigabytes) that must not fork. Sandboxes are made with CLONE_PARENT: they are children of
//! the engine, which waits for them by pidfd, and losing the launcher loses no run.

use crate::clone::{self, CLONE_PARENT, CLONE_PIDFD};
use crate::init;
use crate::networks;
use crate::steps::{self, Builder, Program};
use crate::sys::{self, Fd, call, nr};
use crate::watchdog;
use crate::wire::{ENGINE_SOCKET, FD_CONTROL, FD_EXTRA, FD_PROGRAM, FD_STDIN, Reply, Request, request};
use crate::zygote;

const CLONE_NEWUSER: u64 = 0x1000_0000;
const CLONE_NEWNET: usize = 0x4000_0000;
const CLONE_NEWNS: usize = 0x0002_0000;

pub fn main() -> ! {
    sys::prctl(sys::PR_SET_NAME, c"st-launcher".as_ptr() as usize);
    sys::prctl(sys::PR_SET_PDEATHSIG, sys::SIGKILL as usize);
    call!(nr::SETSID);
    // For every sandbox: nothing that is executed in one can gain a capability. A zygote inherits
    // what it needs.
    sys::keep_inheritable(zygote::CAPABILITIES);
    sys::drop_bounding_set();
    call!(nr::CLOSE_RANGE, ENGINE_SOCKET + 1, u32::MAX, 0);
    let mut has_score = false;
    let mut birth = Birth::Untried;
    // Whether no sandbox was, and no other process makes namespaces, in the network namespace that
    // this process is in.
    let mut is_network_unused = true;
    let mut networks_process: Option<Fd> = None;
    loop {
        let mut request = Request {
            kind: 0,
            map_length: 0,
            flags: 0,
            cgroup: 0,
            program_length: 0,
            network: u32::MAX,
            mounts: u32::MAX,
            map: [0; 1024],
        };
        // SAFETY: Request is plain numbers; any bytes are a valid value of it.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut((&raw mut request).cast::<u8>(), size_of::<Request>()) };
        let received = sys::receive(ENGINE_SOCKET, bytes, 0);
        if received.length == sys::EINTR {
            continue;
        }
        // No room for the descriptors of this request; the next one may have fewer.
        if received.length == sys::EINVAL {
            reply(sys::EMFILE, 0, None);
            continue;
        }
        if received.length <= 0 {
            sys::exit(0);
        }
        if !has_score && request.kind != request::WATCHDOG {
            has_score = true;
            // The kernel's choice under global pressure, inherited by all sandboxes: lowering the
            // engine's own score would need CAP_SYS_RESOURCE, and losing the launcher itself costs
            // nothing.
            steps::write_file(c"/proc/self/oom_score_adj".as_ptr().cast(), b"900");
        }
        match request.kind {
            request::SPAWN | request::ZYGOTE => {
                spawn(&request, &received.fds[..received.fd_count], &mut birth, &mut is_network_unused)
            }
            request::ENTER_GROUP => {
                birth = Birth::Untried;
                reply(sys::write(received.fds[0], b"0"), 0, None);
            }
            request::USER_NAMESPACE => user_namespace(&request),
            request::PREPARE => {
                let result = prepare(&request, received.fds[0]);
                reply(result, 0, None);
                continue;
            }
            request::NETWORKS => {
                let is_unused = core::mem::take(&mut is_network_unused);
                start_networks(&received.fds[..received.fd_count], is_unused, &mut networks_process);
            }
            request::OWN_NETWORK => own_network(core::mem::take(&mut is_network_unused)),
            request::WATCHDOG => start_watchdog(&received.fds[..received.fd_count]),
            request::ENTER_NAMESPACES => reply(enter_namespaces(&request), 0, None),
            _ => reply(sys::EINVAL, 0, None),
        }
        for fd in &received.fds[..received.fd_count] {
            sys::close(*fd);
        }
    }
}

fn reply(result: isize, pid: i32, fd: Option<Fd>) {
    let answer = Reply { error: if result < 0 { -result as i32 } else { 0 }, pid };
    // SAFETY: Reply is plain numbers without padding.
    let bytes = unsafe { core::slice::from_raw_parts((&raw const answer).cast::<u8>(), size_of::<Reply>()) };
    sys::send(ENGINE_SOCKET, bytes, fd, 0);
}

/// Whether what this process clones into a fresh group lives.
#[derive(Clone, Copy, PartialEq)]
enum Birth {
    Untried,
    Lives,
}

/// Since Linux 6.14 a child is killed at birth if the group of its parent has had more kills than
/// the group it is cloned into, or fewer: docs/design/cgroup-layouts.md. A child that only exits
/// shows it.
fn lives_in(cgroup: Fd) -> bool {
    let mut pidfd: Fd = -1;
    let pid = clone::process(CLONE_PIDFD, &mut pidfd, Some(cgroup), 17);
    if pid == 0 {
        sys::exit(0);
    }
    if pid < 0 {
        // The jail itself will report why.
        return true;
    }
    let mut status = 0i32;
    while call!(nr::WAIT4, pid, &raw mut status, 0, 0) == sys::EINTR {}
    sys::close(pidfd);
    status != sys::SIGKILL
}

fn spawn(request: &Request, fds: &[Fd], birth: &mut Birth, is_network_unused: &mut bool) {
    if fds.len() < FD_EXTRA {
        reply(sys::EINVAL, 0, None);
        return;
    }
    let mut pidfd: Fd = -1;
    let cgroup = fds.get(request.cgroup as usize).copied();
    if let Some(cgroup) = cgroup
        && *birth == Birth::Untried
    {
        if !lives_in(cgroup) {
            reply(sys::ESTALE, 0, None);
            return;
        }
        *birth = Birth::Lives;
    }
    let is_in_sandbox = fds.len() > request.mounts as usize;
    let mut own_network = None;
    if let Some(network) = fds.get(request.network as usize) {
        // What this process clones is there from its first instruction on. It stays there until the
        // next start, unless the namespace is a sandbox's, which is to be freed with the sandbox.
        *is_network_unused = false;
        own_network = is_in_sandbox.then(OwnNetwork::open).flatten();
        let entered = call!(nr::SETNS, *network, CLONE_NEWNET);
        if entered < 0 {
            own_network.into_iter().for_each(OwnNetwork::close);
            reply(entered, 0, None);
            return;
        }
    }
    let own = match fds.get(request.mounts as usize).map(|mounts| OwnMounts::leave_for(*mounts)) {
        Some(Err(error)) => {
            own_network.into_iter().for_each(OwnNetwork::enter);
            reply(error, 0, None);
            return;
        }
        Some(Ok(own)) => Some(own),
        None => None,
    };
    let pid = clone::process(request.flags | CLONE_PARENT | CLONE_PIDFD, &mut pidfd, cgroup, 0);
    if let Some(own) = own_network {
        match pid {
            0 => own.close(),
            _ => own.enter(),
        }
    }
    if let Some(own) = own {
        match pid {
            0 => own.close(),
            _ => own.enter(),
        }
    }
    if pid == 0 {
        sys::close(ENGINE_SOCKET);
        match Program::map(fds[FD_PROGRAM], request.program_length as usize) {
            Ok(program) if request.kind == request::ZYGOTE => {
                zygote::main(program, fds[FD_CONTROL], &fds[FD_STDIN..FD_EXTRA], &fds[FD_EXTRA..])
            }
            Ok(program) => init::main(program, fds[FD_CONTROL], &fds[FD_STDIN..FD_EXTRA], &fds[FD_EXTRA..]),
            Err(_) => sys::exit(122),
        }
    }
    if pid < 0 {
        reply(pid, 0, None);
        return;
    }
    reply(0, pid as i32, Some(pidfd));
    sys::close(pidfd);
}

/// The way back to the network namespace that this process was in.
struct OwnNetwork(Fd);

impl OwnNetwork {
    /// Without a descriptor for it this process stays in the other one until the next start.
    fn open() -> Option<Self> {
        let path = c"/proc/self/ns/net".as_ptr().cast();
        let namespace = sys::open_at(sys::AT_FDCWD, path, sys::O_RDONLY | sys::O_CLOEXEC, 0);
        (namespace >= 0).then_some(OwnNetwork(namespace as Fd))
    }

    fn enter(self) {
        call!(nr::SETNS, self.0, CLONE_NEWNET);
        self.close();
    }

    fn close(self) {
        sys::close(self.0);
    }
}

/// The way back to this process's own mount namespace, and to its root there.
struct OwnMounts {
    namespace: Fd,
    root: Fd,
}

impl OwnMounts {
    /// Enters another mount namespace, of which what is cloned next gets a copy.
    fn leave_for(mounts: Fd) -> Result<Self, isize> {
        let open = |path: &core::ffi::CStr, flags| {
            sys::open_at(sys::AT_FDCWD, path.as_ptr().cast(), flags | sys::O_CLOEXEC, 0)
        };
        let namespace = open(c"/proc/self/ns/mnt", sys::O_RDONLY);
        if namespace < 0 {
            return Err(namespace);
        }
        let root = open(c"/", sys::O_RDONLY | sys::O_DIRECTORY);
        let own = OwnMounts { namespace: namespace as Fd, root: root as Fd };
        let entered = if root < 0 { root } else { call!(nr::SETNS, mounts, CLONE_NEWNS) };
        if entered < 0 {
            own.close();
            return Err(entered);
        }
        Ok(own)
    }

    /// Enters it. A launcher that cannot ends: another one takes its place.
    fn enter(self) {
        let mut result = call!(nr::SETNS, self.namespace, CLONE_NEWNS);
        if result >= 0 {
            result = call!(nr::FCHDIR, self.root);
        }
        if result >= 0 {
            result = call!(nr::CHROOT, c".".as_ptr());
        }
        if result < 0 {
            sys::exit(122);
        }
        self.close();
    }

    fn close(self) {
        sys::close(self.namespace);
        sys::close(self.root);
    }
}

/// Starts the process that makes network namespaces, as a child of this one: it is to die with it.
/// It replaces the one before, which may be stopped.
fn start_networks(fds: &[Fd], is_unused: bool, running: &mut Option<Fd>) {
    let [socket] = *fds else {
        reply(sys::EINVAL, 0, None);
        return;
    };
    if let Some(previous) = running.take() {
        call!(nr::PIDFD_SEND_SIGNAL, previous, sys::SIGKILL, 0, 0);
        sys::close(previous);
    }
    // Reaps children that have died by now. A child may be dying in the kernel for long, and no
    // start waits for that.
    const WNOHANG: usize = 1;
    while call!(nr::WAIT4, -1isize, 0, WNOHANG, 0) > 0 {}
    let parent = call!(nr::GETPID);
    let mut pidfd: Fd = -1;
    let pid = clone::process(CLONE_PIDFD, &mut pidfd, None, 17);
    if pid == 0 {
        sys::prctl(sys::PR_SET_PDEATHSIG, sys::SIGKILL as usize);
        if call!(nr::GETPPID) != parent {
            sys::exit(0);
        }
        sys::close(ENGINE_SOCKET);
        networks::main(socket, is_unused);
    }
    *running = (pid > 0).then_some(pidfd);
    reply(pid.min(0), 0, None);
}

/// Makes the network namespace of this process ready for a sandbox, and sends it.
fn own_network(is_unused: bool) {
    match if is_unused { networks::make_own() } else { Err(sys::EINVAL) } {
        Ok((namespace, loopback)) => {
            reply(0, loopback, Some(namespace));
            sys::close(namespace);
        }
        Err(error) => reply(error, 0, None),
    }
}

/// Starts a watchdog that is independent of this process: it is the engine's child, and has the
/// engine's namespaces.
fn start_watchdog(fds: &[Fd]) {
    let [socket] = *fds else {
        reply(sys::EINVAL, 0, None);
        return;
    };
    let mut pidfd: Fd = -1;
    let pid = clone::process(CLONE_PARENT | CLONE_PIDFD, &mut pidfd, None, 0);
    if pid == 0 {
        call!(nr::DUP2, socket, ENGINE_SOCKET);
        watchdog::main();
    }
    if pid < 0 {
        reply(pid, 0, None);
        return;
    }
    reply(0, pid as i32, Some(pidfd));
    sys::close(pidfd);
}

/// Carries out a program here, where every later sandbox gets a copy of the mounts.
fn prepare(request: &Request, program: Fd) -> isize {
    let length = request.program_length as usize;
    let program = match Program::map(program, length) {
        Ok(program) => program,
        Err(error) => return error,
    };
    let start = program.start();
    let mut result = 0;
    let mut builder = Builder::new();
    for step in program {
        result = builder.apply(&step, &[]);
        if result < 0 {
            break;
        }
    }
    // It has a path of the program.
    drop(builder);
    call!(nr::MUNMAP, start, length);
    call!(nr::CHDIR, c"/".as_ptr());
    result
}

/// Splits `map` into the lines of uid_map and gid_map.
fn maps(request: &Request) -> (&[u8], &[u8]) {
    let map = &request.map[..(request.map_length as usize).min(request.map.len())];
    let middle = map.iter().position(|byte| *byte == 0).unwrap_or(map.len());
    (&map[..middle], map.get(middle + 1..).unwrap_or(&[]))
}

fn enter_namespaces(request: &Request) -> isize {
    let result = call!(nr::UNSHARE, request.flags);
    if request.flags & CLONE_NEWUSER != 0 {
        // A new user namespace comes with a full set, and nothing to inherit.
        sys::keep_inheritable(zygote::CAPABILITIES);
        sys::drop_bounding_set();
    }
    if result < 0 || request.map_length == 0 {
        sys::prctl(sys::PR_SET_DUMPABLE, 0);
        return result;
    }
    let (users, groups) = maps(request);
    // An unprivileged process may map its group only after giving up setgroups(2);
    // user_namespaces(7).
    steps::write_file(c"/proc/self/setgroups".as_ptr().cast(), b"deny");
    let result = steps::write_file(c"/proc/self/uid_map".as_ptr().cast(), users);
    if result < 0 {
        return result;
    }
    let result = steps::write_file(c"/proc/self/gid_map".as_ptr().cast(), groups);
    // Only now: the map files of a process that is not dumpable belong to root.
    sys::prctl(sys::PR_SET_DUMPABLE, 0);
    result
}

/// A user namespace lives as long as a process or descriptor holds it: a child makes it, the
/// descriptor keeps it.
fn user_namespace(request: &Request) {
    let mut pidfd: Fd = -1;
    let parent = call!(nr::GETPID);
    let pid = clone::process(CLONE_NEWUSER | CLONE_PIDFD, &mut pidfd, None, 17);
    if pid == 0 {
        // It must not outlive this process, which may be killed at any point of what follows.
        sys::prctl(sys::PR_SET_PDEATHSIG, sys::SIGKILL as usize);
        if call!(nr::GETPPID) != parent {
            sys::exit(0);
        }
        loop {
            sys::poll(&mut [], -1);
        }
    }
    if pid < 0 {
        reply(pid, 0, None);
        return;
    }
    let (users, groups) = maps(request);
    let mut path = ProcPath::new(pid as u32);
    let mut result = steps::write_file(path.file(b"uid_map\0"), users);
    if result >= 0 {
        result = steps::write_file(path.file(b"gid_map\0"), groups);
    }
    if result >= 0 {
        result = sys::open_at(sys::AT_FDCWD, path.file(b"ns/user\0"), sys::O_RDONLY, 0);
    }
    call!(nr::PIDFD_SEND_SIGNAL, pidfd, sys::SIGKILL, 0, 0);
    call!(nr::WAIT4, pid, 0, 0, 0);
    sys::close(pidfd);
    if result < 0 {
        reply(result, 0, None);
    } else {
        reply(0, 0, Some(result as Fd));
        sys::close(result as Fd);
    }
}

/// `/proc/<pid>/<file>` without a heap.
struct ProcPath {
    bytes: [u8; 48],
    prefix: usize,
}

impl ProcPath {
    fn new(pid: u32) -> Self {
        let mut path = ProcPath { bytes: [0; 48], prefix: 6 };
        path.bytes[..6].copy_from_slice(b"/proc/");
        let mut digits = [0u8; 10];
        let (mut value, mut count) = (pid, 0);
        while count == 0 || value > 0 {
            digits[count] = b'0' + (value % 10) as u8;
            value /= 10;
            count += 1;
        }
        while count > 0 {
            count -= 1;
            path.bytes[path.prefix] = digits[count];
            path.prefix += 1;
        }
        path.bytes[path.prefix] = b'/';
        path.prefix += 1;
        path
    }

    fn file(&mut self, name: &[u8]) -> *const u8 {
        self.bytes[self.prefix..self.prefix + name.len()].copy_from_slice(name);
        self.bytes.as_ptr()
    }
}
