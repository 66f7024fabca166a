//! SEQPACKET pairs with descriptors in messages: how the engine talks to its helpers.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// A connected pair of packet sockets, both close-on-exec and blocking.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one packet with at most 28 descriptors.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>], wait: bool) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(28))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let flags = SendFlags::NOSIGNAL | if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
    rustix::io::retry_on_intr(|| sendmsg(&socket, &[io::IoSlice::new(bytes)], &mut ancillary, flags))?;
    Ok(())
}

/// Receives one packet and at most one descriptor. 0 bytes: the other end is closed.
pub fn receive(socket: impl AsFd, bytes: &mut [u8], wait: bool) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [io::IoSliceMut::new(bytes)], &mut ancillary, flags)
    })?;
    let mut fd = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            for right in rights {
                fd = Some(right);
            }
        }
    }
    Ok((received.bytes, fd))
}

/// The bytes of a wire structure.
pub(crate) fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: only called with the `repr(C)` structures of `wire`, which are integers without
    // padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// A wire structure from its bytes; `None` when there are too few.
pub(crate) fn from_bytes<T: Copy>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: only called with the `repr(C)` structures of `wire`, for which every bit pattern is a
    // value.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}
