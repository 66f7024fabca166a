//! Makes network namespaces ahead of need, inspects whether a used one can serve again, and opens
//! sockets in one.
//!
//! ```text
//! MAKE, MAKE_SPARE ─▶ made, lo up ─┐
//! CHECK ─▶ nothing left in it ─────┴─▶ its descriptor        anything left in it, or refused ─▶ an errno
//! OPEN ─▶ a socket that was made in it
//! ```
//! A process of its own, forked by the launcher, so that no start waits while the kernel makes or
//! looks: it is in the launcher's user namespace, as every process that enters these namespaces
//! must be. It ends with the launcher and with its socket.

use crate::network_residue::NetworkFiles;
use crate::network_sockets;
use crate::steps;
use crate::sys::{self, Fd, PollFd, call, nr};
use crate::wire::{NetworkOrder, NetworkReply, network_order};

const CLONE_NEWNET: usize = 0x4000_0000;
/// Time without a command before a spare namespace is made: making one takes a processor from what
/// was started.
const IDLE_WINDOW_MILLISECONDS: i32 = 20;

/// `is_unused`: whether no sandbox was or can be in this process's own namespace. It is as good as
/// a new one then.
pub fn main(socket: Fd, is_unused: bool) -> ! {
    sys::prctl(sys::PR_SET_NAME, c"st-networks".as_ptr() as usize);
    let mut opened = OpenedFiles::default();
    let mut first = is_unused;
    let mut spares = 0u32;
    let mut home = Home::default();
    loop {
        if spares > 0
            && sys::poll(
                &mut [PollFd { fd: socket, events: sys::POLLIN, revents: 0 }],
                IDLE_WINDOW_MILLISECONDS,
            ) == 0
        {
            spares -= 1;
            reply(socket, make(&mut first));
            home.enter();
            continue;
        }
        let mut order = NetworkOrder { kind: 0, count: 0 };
        // SAFETY: NetworkOrder is plain numbers; any bytes are a valid value of it.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut((&raw mut order).cast::<u8>(), size_of::<NetworkOrder>())
        };
        let received = sys::receive(socket, bytes, 0);
        if received.length == sys::EINTR {
            continue;
        }
        if received.length == sys::EINVAL {
            // There was no room for the descriptor of a namespace to check: it is not used again.
            reply(socket, Err(sys::ENOTEMPTY));
            continue;
        }
        if received.length <= 0 {
            sys::exit(0);
        }
        match order.kind {
            network_order::MAKE => reply(socket, make(&mut first)),
            network_order::MAKE_SPARE => spares = spares.saturating_add(order.count),
            network_order::CHECK if received.fd_count == 1 => {
                first = false;
                reply(socket, check(&mut opened, received.fds[0]));
            }
            network_order::OPEN if received.fd_count == 2 => {
                first = false;
                let made = network_sockets::open(received.fds[0], order.count).map(|fd| (fd, 0));
                // A namespace that has been left is freed with its last socket.
                home.enter();
                reply(received.fds[1], made);
            }
            _ => reply(socket, Err(sys::EINVAL)),
        }
        for fd in &received.fds[..received.fd_count] {
            sys::close(*fd);
        }
    }
}

/// A namespace of this process's own, so that it keeps no other one alive. It is made at the first
/// use: a command line that runs one command needs none.
#[derive(Default)]
struct Home(Option<Fd>);

impl Home {
    /// Returns to it. A process that cannot stays where it is.
    fn enter(&mut self) {
        if let Some(namespace) = self.0 {
            call!(nr::SETNS, namespace, CLONE_NEWNET);
        } else if call!(nr::UNSHARE, CLONE_NEWNET) >= 0 {
            let namespace =
                sys::open_at(sys::AT_FDCWD, c"/proc/self/ns/net".as_ptr().cast(), sys::O_RDONLY, 0);
            self.0 = (namespace >= 0).then_some(namespace as Fd);
        }
    }
}

/// A namespace, and the errno of bringing its loopback up, 0 for none.
pub type Made = Result<(Fd, i32), isize>;

fn reply(socket: Fd, made: Made) {
    match made {
        Ok((namespace, loopback)) => {
            let sent = send(socket, NetworkReply { error: 0, loopback }, Some(namespace));
            sys::close(namespace);
            // Such as ETOOMANYREFS. Each order is answered, or the engine would wait for the
            // answer.
            if sent < 0 {
                send(socket, NetworkReply { error: -sent as i32, loopback: 0 }, None);
            }
        }
        Err(error) => {
            send(socket, NetworkReply { error: -error as i32, loopback: 0 }, None);
        }
    }
}

fn send(socket: Fd, message: NetworkReply, fd: Option<Fd>) -> isize {
    // SAFETY: NetworkReply is plain numbers without padding.
    let bytes =
        unsafe { core::slice::from_raw_parts((&raw const message).cast::<u8>(), size_of::<NetworkReply>()) };
    sys::send(socket, bytes, fd, 0)
}

/// Makes this process's own namespace ready, which no sandbox was in.
pub fn make_own() -> Made {
    make(&mut true)
}

fn make(first: &mut bool) -> Made {
    if !core::mem::take(first) {
        let made = call!(nr::UNSHARE, CLONE_NEWNET);
        if made < 0 {
            return Err(made);
        }
    }
    let loopback = -bring_up() as i32;
    // All ports are the run's. Where this cannot be written (a read-only /proc/sys) the low ones
    // are refused, as to any user.
    steps::write_file(c"/proc/sys/net/ipv4/ip_unprivileged_port_start".as_ptr().cast(), b"0");
    // Closed connections stay a minute each, in memory that is charged to no run. The kernel's
    // bound is for a whole machine.
    steps::write_file(c"/proc/sys/net/ipv4/tcp_max_tw_buckets".as_ptr().cast(), b"4096");
    let namespace = sys::open_at(sys::AT_FDCWD, c"/proc/self/ns/net".as_ptr().cast(), sys::O_RDONLY, 0);
    if namespace < 0 { Err(namespace) } else { Ok((namespace as Fd, loopback)) }
}

/// Sets `lo` up, and with it its addresses 127.0.0.1 and ::1; netdevice(7). An errno or 0.
fn bring_up() -> isize {
    const AF_INET: usize = 2;
    const SOCK_DGRAM: usize = 2;
    const SIOCSIFFLAGS: usize = 0x8914;
    const IFF_UP: u8 = 1;
    let socket = call!(nr::SOCKET, AF_INET, SOCK_DGRAM | sys::O_CLOEXEC, 0);
    if socket < 0 {
        return socket;
    }
    // struct ifreq: the name in 16 bytes, then the flags as a short.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16] = IFF_UP;
    let result = call!(nr::IOCTL, socket, SIOCSIFFLAGS, request.as_ptr());
    sys::close(socket as Fd);
    result
}

/// The files of the namespaces that were checked last, kept open because opening takes as long as
/// reading. They keep their namespaces alive, so that an inode number names one namespace only.
#[derive(Default)]
struct OpenedFiles {
    entries: [Option<(u64, NetworkFiles)>; 8],
    /// The one that is closed next.
    next: usize,
}

impl OpenedFiles {
    /// The place of this namespace's files. Fails with an errno.
    fn find(&mut self, namespace: Fd) -> Result<&mut Option<(u64, NetworkFiles)>, isize> {
        let inode = sys::inode(namespace)?;
        let found = self.entries.iter().position(|entry| entry.as_ref().is_some_and(|(of, _)| *of == inode));
        let index = match found {
            Some(index) => index,
            None => {
                let entered = call!(nr::SETNS, namespace, CLONE_NEWNET);
                if entered < 0 {
                    return Err(entered);
                }
                let files = NetworkFiles::open()?;
                let index = self.next;
                self.next = (index + 1) % self.entries.len();
                if let Some((_, oldest)) = self.entries[index].replace((inode, files)) {
                    oldest.close();
                }
                index
            }
        };
        Ok(&mut self.entries[index])
    }
}

/// Gives the namespace back if nothing was left in it.
fn check(opened: &mut OpenedFiles, namespace: Fd) -> Made {
    let entry = opened.find(namespace)?;
    if !entry.as_ref().is_some_and(|(_, files)| files.are_unused()) {
        if let Some((_, files)) = entry.take() {
            files.close();
        }
        return Err(sys::ENOTEMPTY);
    }
    let copy = call!(nr::FCNTL, namespace, crate::execute::F_DUPFD_CLOEXEC, 3);
    if copy < 0 { Err(copy) } else { Ok((copy as Fd, 0)) }
}
