//! The engine's side of a zygote: one order, one child, one answer; and the library that is its
//! native half.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::launcher::SpawnedProcess;
use crate::process;
use crate::processors::Processors;
use crate::program::sealed_memfd;
use crate::socket::{self, bytes_of, from_bytes};
use crate::wire::{self, Birth, JobHeader, Reply, ResourceLimit};

/// The native half of a Python zygote.
pub static PYTHON_LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/python.so"));

static SHELL_LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/shell.so"));

/// The native half of a shell session, in a sealed memfd.
pub fn shell_library() -> io::Result<OwnedFd> {
    sealed_memfd("sandtimer-shell", SHELL_LIBRARY, true)
}

static NODE_LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/node.so"));

/// The native half of a live JavaScript interpreter, in a sealed memfd.
pub fn node_library() -> io::Result<OwnedFd> {
    sealed_memfd("sandtimer-node", NODE_LIBRARY, true)
}

/// The native half of a Python zygote, in a sealed memfd.
pub fn python_library() -> io::Result<BorrowedFd<'static>> {
    static FILE: OnceLock<OwnedFd> = OnceLock::new();
    let fd = match FILE.get() {
        Some(fd) => fd,
        None => {
            let made = sealed_memfd("sandtimer-zygote", PYTHON_LIBRARY, true)?;
            FILE.get_or_init(|| made)
        }
    };
    Ok(fd.as_fd())
}

/// A text that a child reads, in a sealed memfd.
pub fn sealed_file(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = sealed_memfd(name, bytes, false)?;
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    Ok(file)
}

/// How long an answer may take: forking a large interpreter takes milliseconds.
const ANSWER_MILLISECONDS: u64 = 10_000;
/// The same once the caller no longer wants the child. Not zero: a child that is being made is
/// reaped only by the thread that receives its answer.
const LAST_ANSWER_MILLISECONDS: u64 = 1_000;

/// What a child is born with.
#[derive(Debug)]
pub struct BirthRequest<'a> {
    pub program: BorrowedFd<'a>,
    pub program_length: u32,
    /// The pid namespace of a waiting init.
    pub pids: BorrowedFd<'a>,
    /// The other namespaces it enters.
    pub namespaces: &'a [BorrowedFd<'a>],
    pub channel: BorrowedFd<'a>,
    pub stdio: [BorrowedFd<'a>; 3],
    /// The [memory](crate::stdout::UnwrittenOutput) that it writes its standard output to;
    /// something that cannot be mapped where it writes to the pipe at once.
    pub output: BorrowedFd<'a>,
    /// What the program's steps name by index.
    pub extra: &'a [BorrowedFd<'a>],
    /// Index into `extra` of the cgroup to be born in.
    pub cgroup: Option<usize>,
    /// The user namespace of the others, where the asked process is not in it.
    pub users: Option<BorrowedFd<'a>>,
    /// A caller waits for the child.
    pub hurried: bool,
}

/// Requests a child of a zygote. `stop` is readable once the caller no longer wants the child.
///
/// # Errors
/// The zygote's errno, that it is gone, or that it does not answer.
pub fn bear(
    commands: BorrowedFd<'_>,
    request: &BirthRequest<'_>,
    stop: Option<BorrowedFd<'_>>,
) -> io::Result<SpawnedProcess> {
    let birth = Birth {
        program_length: request.program_length,
        cgroup: request.cgroup.map_or(u32::MAX, |index| (index + wire::BIRTH_EXTRA) as u32),
        namespaces: (wire::BIRTH_EXTRA + request.extra.len() + usize::from(request.users.is_some())) as u32,
        users: request.users.map_or(u32::MAX, |_| (wire::BIRTH_EXTRA + request.extra.len()) as u32),
        hurried: u32::from(request.hurried),
    };
    let mut fds = vec![request.program, request.pids, request.channel];
    fds.extend_from_slice(&request.stdio);
    fds.push(request.output);
    fds.extend_from_slice(request.extra);
    fds.extend(request.users);
    fds.extend_from_slice(request.namespaces);
    socket::send(commands, bytes_of(&birth), &fds, true)?;
    if !answers(commands, stop) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the zygote does not answer"));
    }
    let mut bytes = [0u8; size_of::<Reply>()];
    let (length, pidfd) = socket::receive(commands, &mut bytes, true)?;
    let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the zygote is gone");
    let reply: Reply = from_bytes(&bytes[..length]).ok_or_else(gone)?;
    match (reply.error, pidfd) {
        (0, Some(pidfd)) => Ok(SpawnedProcess { pid: reply.pid, pidfd }),
        // The answer came and its descriptor did not: there was no number left for it here.
        (0, None) => {
            process::kill_and_reap_by_number(reply.pid);
            Err(io::Error::from_raw_os_error(libc::EMFILE))
        }
        (error, _) => Err(io::Error::from_raw_os_error(error)),
    }
}

fn answers(commands: BorrowedFd<'_>, stop: Option<BorrowedFd<'_>>) -> bool {
    let Some(stop) = stop else { return process::wait_readable(commands, ANSWER_MILLISECONDS) };
    process::wait_readable_unless(commands, stop, ANSWER_MILLISECONDS)
        || process::wait_readable(stop, 0) && process::wait_readable(commands, LAST_ANSWER_MILLISECONDS)
}

/// What a child says before its answer.
#[derive(Debug)]
pub enum ChildMessage {
    /// It is sealed and waits for its job.
    Ready,
    /// A step of its program failed.
    Failed { step: u64, errno: i32, required: bool },
    /// It is supervised through this from now on; [`crate::wire::channel::LISTENER`].
    Listener(OwnedFd),
    /// Something else.
    Other,
}

/// Has init supervise what a child may signal; see [`wire::order::SUPERVISE`].
pub fn supervise(control: BorrowedFd<'_>, listener: BorrowedFd<'_>, shell: bool) -> io::Result<()> {
    let command = wire::Order { kind: wire::order::SUPERVISE, argument: i32::from(shell), value: 0 };
    socket::send(control, bytes_of(&command), &[listener], false)
}

/// Has init keep the sandbox of an interpreter without checkpoints, and say which process that is.
pub fn stand(control: BorrowedFd<'_>) -> io::Result<()> {
    let command = wire::Order { kind: wire::order::SUPERVISE, argument: 2, value: 0 };
    socket::send(control, bytes_of(&command), &[], false)
}

/// Receives the next message of a child that is being made; `None` when its end is closed.
pub fn receive_message(channel: BorrowedFd<'_>) -> io::Result<Option<ChildMessage>> {
    let mut packet = [0u8; 16];
    let (length, fd) = socket::receive(channel, &mut packet, true)?;
    Ok(match (length, packet[0]) {
        (1, wire::channel::LISTENER) => {
            fd.map_or(Some(ChildMessage::Other), |fd| Some(ChildMessage::Listener(fd)))
        }
        (0, _) => None,
        (_, wire::channel::READY) => Some(ChildMessage::Ready),
        (16, wire::channel::FAILED) => Some(ChildMessage::Failed {
            required: packet[1] == 1,
            errno: i32::from_ne_bytes([packet[4], packet[5], packet[6], packet[7]]),
            step: u64::from_ne_bytes(std::array::from_fn(|index| packet[8 + index])),
        }),
        _ => Some(ChildMessage::Other),
    })
}

/// Has the kernel refuse descriptors that the other end sends from now on. The receiver closes
/// those of a packet, and the sender can make that take long: closing the last descriptor of a
/// socket may wait for its peer (SO_LINGER in socket(7)). Returns false without SO_PASSRIGHTS
/// (before Linux 6.16): there the filter lets no socket linger.
pub fn refuse_descriptors(channel: BorrowedFd<'_>) -> bool {
    const SO_PASSRIGHTS: i32 = 83;
    let off = 0i32;
    // SAFETY: a live descriptor, and a pointer to as many bytes as are named.
    unsafe {
        libc::setsockopt(
            channel.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            std::ptr::from_ref(&off).cast(),
            size_of_val(&off) as u32,
        ) == 0
    }
}

/// What a process does to itself before its job begins.
#[derive(Debug, Default)]
pub struct ProcessSetup<'a> {
    /// Resource, soft and hard value; prlimit(2).
    pub limits: &'a [(u64, u64, u64)],
    /// Where it runs from then on; it was bound to one of them.
    pub processors: Option<Processors>,
}

/// Gives a child its job: the job's bytes, and at most six files.
pub fn dispatch(
    channel: BorrowedFd<'_>,
    head: &ProcessSetup<'_>,
    job: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mask = head.processors.as_ref().map_or(&[][..], |processors| processors.mask_bits());
    let header = JobHeader { limits: head.limits.len() as u32, processors: mask.len() as u32 };
    let mut packet = bytes_of(&header).to_vec();
    for (resource, soft, hard) in head.limits {
        packet.extend_from_slice(bytes_of(&ResourceLimit { resource: *resource, soft: *soft, hard: *hard }));
    }
    mask.iter().for_each(|bits| packet.extend_from_slice(&bits.to_ne_bytes()));
    packet.extend_from_slice(job);
    if packet.len() > wire::CHANNEL_PACKET {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    socket::send(channel, &packet, files, false)
}

/// The next packet of a job, as [`packet`] without waiting and into a buffer of its length; empty
/// when the other end is closed.
///
/// # Errors
/// As `recv(2)`; `InvalidData` for a packet that is longer than [`wire::CHANNEL_PACKET`], or that
/// another reader took between the two calls.
pub fn whole_packet(channel: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    use rustix::net::{RecvFlags, recv};
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK | RecvFlags::TRUNC;
    let (_, length) = recv(channel, &mut [0; 0][..], flags)?;
    let mut bytes = vec![0; length.min(wire::CHANNEL_PACKET)];
    match packet(channel, &mut bytes, false)? {
        length if length != bytes.len() => Err(io::ErrorKind::InvalidData.into()),
        _ => Ok(bytes),
    }
}

/// How long [`wait_for_packet`] waits.
const MAX_PACKET_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Waits for a packet or the end of the channel.
///
/// # Errors
/// `Interrupted` by a signal, and after 50 ms: a signal that arrives just before the wait does not
/// interrupt it, so that the caller has to check for signals now and then.
pub fn wait_for_packet(channel: BorrowedFd<'_>) -> io::Result<()> {
    match poll(&mut [PollFd::new(&channel, PollFlags::IN)], Some(&MAX_PACKET_WAIT))? {
        0 => Err(io::ErrorKind::Interrupted.into()),
        _ => Ok(()),
    }
}

/// Has the kernel name the sender of every packet that arrives at this end from now on, for
/// [`whole_packet_from`].
pub fn name_senders(channel: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(channel, true)?)
}

/// As [`whole_packet`] without waiting, with the process that sent the packet, by its number in the
/// caller's pid namespace. `None` where no process did: the other end is closed.
///
/// # Errors
/// As [`whole_packet`].
pub fn whole_packet_from(channel: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Option<i32>)> {
    use rustix::net::{RecvFlags, recv};
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK | RecvFlags::TRUNC;
    let (_, length) = recv(channel, &mut [0; 0][..], flags)?;
    let mut bytes = vec![0; length.min(wire::CHANNEL_PACKET)];
    match packet_from(channel, &mut bytes)? {
        (length, _) if length != bytes.len() => Err(io::ErrorKind::InvalidData.into()),
        (_, sender) => Ok((bytes, sender)),
    }
}

/// As [`packet`] without waiting, with its sender as [`whole_packet_from`] has it. An unprivileged
/// process cannot name another one than itself; unix(7). The number stays that of the sender even
/// if the sender is dead by now.
pub fn packet_from(channel: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    // SAFETY: a constant expression of the lengths.
    const SPACE: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize;
    let mut vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // Room for the sender and nothing else: the kernel drops descriptors that come along.
    let mut control = [0u64; SPACE.div_ceil(8)];
    // SAFETY: plain numbers and null pointers.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
    (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), SPACE);
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: a live descriptor; the header names one buffer and the control buffer, with their
    // lengths.
    let length = unsafe { libc::recvmsg(channel.as_raw_fd(), &raw mut header, flags) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled in the control buffer, and its length in the header.
    let sender = unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        let is_sender = !message.is_null()
            && (*message).cmsg_level == libc::SOL_SOCKET
            && (*message).cmsg_type == libc::SCM_CREDENTIALS;
        is_sender.then(|| libc::CMSG_DATA(message).cast::<libc::ucred>().read_unaligned().pid)
    };
    Ok((length, sender))
}

/// Waits for the next packet of a job and drops every descriptor that comes with it. The length is
/// that of the packet, which is longer than `buffer` where it was cut short; 0 when the other end
/// is closed. A signal interrupts the wait.
pub fn packet(channel: BorrowedFd<'_>, buffer: &mut [u8], wait: bool) -> io::Result<usize> {
    use rustix::net::{RecvFlags, recv};
    let flags = RecvFlags::TRUNC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let (_, length) = recv(channel, buffer, flags)?;
    Ok(length)
}
