//! The engine's side of the launcher: one request at a time, each answered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::networks::Namespace;
use crate::socket::{self, bytes_of, from_bytes};
use crate::watchdog::Watchdog;
use crate::wire::{Reply, Request, request};

/// A request without any part that not every kind has.
fn plain(kind: u32) -> Request {
    Request {
        kind,
        map_length: 0,
        flags: 0,
        cgroup: u32::MAX,
        program_length: 0,
        network: u32::MAX,
        mounts: u32::MAX,
        map: [0; 1024],
    }
}

/// Whether an error of [`Launcher::spawn`] means that children die at birth in new groups.
pub fn dies_at_birth(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESTALE)
}

/// How long an answer may take: building is the sandbox's own work, the launcher's is a few system
/// calls.
const ANSWER_MILLISECONDS: u64 = 10_000;

/// A launcher process and the socket to it. Dropping it ends the launcher, not the sandboxes it
/// started.
#[derive(Debug)]
pub struct Launcher {
    socket: OwnedFd,
    pidfd: OwnedFd,
}

/// A started sandbox: its first process, still building.
#[derive(Debug)]
pub struct SpawnedProcess {
    /// Process id in the engine's namespace: for reports and, right after a check of the pidfd, for
    /// calls that take no descriptor; never for signals.
    pub pid: i32,
    pub pidfd: OwnedFd,
}

/// What a sandbox is started with.
#[derive(Debug)]
pub struct SpawnRequest<'a> {
    /// Namespace flags for clone3(2).
    pub flags: u64,
    /// Index into `extra` of the cgroup to start in.
    pub cgroup: Option<usize>,
    /// Index into `extra` of the network namespace to start in; else it is the launcher's own.
    pub network: Option<usize>,
    /// Index into `extra` of the mount namespace to start in, or in a copy of it; else it is the
    /// launcher's own.
    pub mounts: Option<usize>,
    pub program: BorrowedFd<'a>,
    pub program_length: u32,
    pub control: BorrowedFd<'a>,
    pub stdio: [BorrowedFd<'a>; 3],
    pub extra: &'a [BorrowedFd<'a>],
}

impl Launcher {
    /// Starts a launcher. The calling thread must live as long as it; see [`crate::helper`].
    pub fn start() -> io::Result<Self> {
        let (socket, theirs) = socket::pair()?;
        let pidfd = crate::helper::start(c"launcher", theirs.as_fd())?;
        Ok(Launcher { socket, pidfd })
    }

    /// Readable when the launcher has died.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Moves the launcher into new namespaces (`flags` as for unshare(2)), optionally with user and
    /// group maps.
    pub fn enter_namespaces(&self, flags: u64, maps: Option<(&str, &str)>) -> io::Result<()> {
        self.ask(request::ENTER_NAMESPACES, flags, maps).map(|_| ())
    }

    /// A user namespace with these maps, for idmapped mounts. Needs CAP_SETUID and CAP_SETGID.
    pub fn user_namespace(&self, user_map: &str, group_map: &str) -> io::Result<OwnedFd> {
        let (_, fd) = self.ask(request::USER_NAMESPACE, 0, Some((user_map, group_map)))?;
        fd.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))
    }

    /// Carries out a program in the launcher's own mount namespace, of which every later sandbox
    /// gets a copy.
    pub fn prepare(&self, program: &crate::program::StepProgram) -> io::Result<()> {
        let memfd = program.seal()?;
        let message = Request { program_length: program.length(), ..plain(request::PREPARE) };
        self.exchange(&message, &[memfd.as_fd()]).map(|_| ())
    }

    /// Starts the process that makes network namespaces for what this launcher starts.
    pub fn networks(&self) -> io::Result<crate::networks::Maker> {
        let (socket, theirs) = socket::pair()?;
        self.exchange(&plain(request::NETWORKS), &[theirs.as_fd()])?;
        Ok(crate::networks::Maker::new(socket))
    }

    /// The launcher's own network namespace, made ready for the only sandbox that it is to start
    /// there, in place of a process that makes them.
    ///
    /// # Errors
    /// If something was started there already.
    pub fn own_network(&self) -> io::Result<Namespace> {
        let (reply, fd) = self.exchange(&plain(request::OWN_NETWORK), &[])?;
        let fd = fd.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        Ok(Namespace { fd, loopback: reply.pid })
    }

    /// Starts a watchdog as a copy of the launcher, which takes a fraction of the time of a program
    /// that is executed. The caller sends it a table. Before any other request: it is to have the
    /// engine's namespaces. It outlives the launcher.
    ///
    /// # Errors
    /// As clone3(2).
    pub fn watchdog(&self) -> io::Result<Watchdog> {
        let (socket, theirs) = socket::pair()?;
        let (_, pidfd) = self.exchange(&plain(request::WATCHDOG), &[theirs.as_fd()])?;
        // Without a descriptor for it the socket closes, and it ends.
        let pidfd = pidfd.ok_or_else(|| io::Error::from_raw_os_error(libc::EMFILE))?;
        Ok(Watchdog::new(socket, pidfd))
    }

    /// Moves the launcher into another v2 group, given its cgroup.procs open for writing.
    pub fn enter_group(&self, procs: BorrowedFd<'_>) -> io::Result<()> {
        self.exchange(&plain(request::ENTER_GROUP), &[procs]).map(|_| ())
    }

    /// Starts a sandbox. With [`dies_at_birth`] for an error nothing was started and nothing is
    /// until [`Launcher::enter_group`].
    pub fn spawn(&self, spawn: &SpawnRequest<'_>) -> io::Result<SpawnedProcess> {
        self.clone_process(request::SPAWN, spawn)
    }

    /// Starts a zygote: a process that carries out the whole program itself. As
    /// [`Launcher::spawn`].
    pub fn zygote(&self, spawn: &SpawnRequest<'_>) -> io::Result<SpawnedProcess> {
        self.clone_process(request::ZYGOTE, spawn)
    }

    fn clone_process(&self, kind: u32, spawn: &SpawnRequest<'_>) -> io::Result<SpawnedProcess> {
        let first_extra = crate::wire::FD_EXTRA;
        let message = Request {
            flags: spawn.flags,
            cgroup: spawn.cgroup.map_or(u32::MAX, |index| (index + first_extra) as u32),
            network: spawn.network.map_or(u32::MAX, |index| (index + first_extra) as u32),
            mounts: spawn.mounts.map_or(u32::MAX, |index| (index + first_extra) as u32),
            program_length: spawn.program_length,
            ..plain(kind)
        };
        let mut fds = vec![spawn.program, spawn.control];
        fds.extend_from_slice(&spawn.stdio);
        fds.extend_from_slice(spawn.extra);
        let (reply, pidfd) = self.exchange(&message, &fds)?;
        // The answer came and its descriptor did not: there was no number left for it here.
        let Some(pidfd) = pidfd else {
            crate::process::kill_and_reap_by_number(reply.pid);
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        };
        Ok(SpawnedProcess { pid: reply.pid, pidfd })
    }

    fn ask(&self, kind: u32, flags: u64, maps: Option<(&str, &str)>) -> io::Result<(Reply, Option<OwnedFd>)> {
        let mut message = Request { flags, ..plain(kind) };
        if let Some((users, groups)) = maps {
            let length = users.len() + 1 + groups.len();
            if length > message.map.len() {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            }
            message.map[..users.len()].copy_from_slice(users.as_bytes());
            message.map[users.len() + 1..length].copy_from_slice(groups.as_bytes());
            message.map_length = length as u32;
        }
        self.exchange(&message, &[])
    }

    fn exchange(&self, message: &Request, fds: &[BorrowedFd<'_>]) -> io::Result<(Reply, Option<OwnedFd>)> {
        socket::send(&self.socket, bytes_of(message), fds, false)?;
        if !crate::process::wait_readable(self.socket.as_fd(), ANSWER_MILLISECONDS) {
            // A stopped launcher must not delay the engine; it is replaced.
            crate::process::kill_and_reap(self.pidfd.as_fd());
            return Err(lost("did not answer"));
        }
        let mut bytes = [0u8; size_of::<Reply>()];
        let (length, fd) = socket::receive(&self.socket, &mut bytes, true).map_err(|_| lost("went away"))?;
        let reply: Reply = from_bytes(&bytes[..length]).ok_or_else(|| lost("went away"))?;
        if reply.error != 0 { Err(io::Error::from_raw_os_error(reply.error)) } else { Ok((reply, fd)) }
    }
}

/// The error of a launcher that was lost after a request: whether it handled the request is not
/// known, so the caller must not repeat it.
fn lost(how: &str) -> io::Error {
    io::Error::other(format!("the launcher {how} after it was asked"))
}

impl Drop for Launcher {
    fn drop(&mut self) {
        crate::process::kill_and_reap(self.pidfd.as_fd());
    }
}
