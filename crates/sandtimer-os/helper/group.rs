//! Kills the processes of a control group one by one.
//!
//! A write to `cgroup.kill` sends SIGKILL to the first thread of each process. A process whose
//! first thread has ended while others run does not get it; kill(2) and pidfd_send_signal(2) reach
//! it.

use crate::sys::{self, Fd, call, nr};

/// Processes that one pass kills. Processes that are forked during it are left to the next pass.
const MAX_AT_A_TIME: usize = 64;

/// Kills what the group `name` below `directory` lists, as far as one pass goes. `name` ends with
/// NUL.
pub fn kill_each(directory: Fd, name: &[u8]) {
    let group = sys::open_at(directory as isize, name.as_ptr(), sys::O_DIRECTORY, 0);
    if group < 0 {
        return;
    }
    let list = sys::open_at(group, c"cgroup.procs".as_ptr().cast(), sys::O_RDONLY, 0);
    sys::close(group as Fd);
    if list < 0 {
        return;
    }
    let list = list as Fd;
    let mut opened = [(0u32, -1 as Fd); MAX_AT_A_TIME];
    let mut bytes = [0u8; 1024];
    for (pid, entry) in listed(list, &mut bytes).zip(&mut opened) {
        *entry = (pid, call!(nr::PIDFD_OPEN, pid, 0) as Fd);
    }
    // A PID may be another process's by the time it is opened: then it is not listed any more, or
    // it is again and harmless.
    for (pid, pidfd) in opened.into_iter().filter(|(_, pidfd)| *pidfd >= 0) {
        if listed(list, &mut bytes).any(|listed| listed == pid) {
            call!(nr::PIDFD_SEND_SIGNAL, pidfd, sys::SIGKILL, 0, 0);
        }
        sys::close(pidfd);
    }
    sys::close(list);
}

/// The PIDs at the beginning of the list as it is now; the last one may be cut off, and is left
/// out.
fn listed(list: Fd, bytes: &mut [u8]) -> impl Iterator<Item = u32> {
    let length = usize::try_from(sys::read_at(list, bytes, 0)).unwrap_or(0);
    let end = bytes[..length].iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = bytes[..end].split(|byte| *byte == b'\n');
    lines.filter(|line| !line.is_empty()).map(|line| {
        line.iter()
            .fold(0u32, |pid, digit| pid.wrapping_mul(10).wrapping_add(u32::from(digit.wrapping_sub(b'0'))))
    })
}
