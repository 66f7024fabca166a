//! The head of the packet that an interpreter gets its job by.

use crate::sys::{call, nr};
use crate::wire::{CHANNEL_PACKET, JobHeader, ResourceLimit};

/// The processors that this process may run on, of a kernel that has no more than there is room for.
pub struct Processors {
    mask: [u64; 16],
    length: isize,
}

impl Processors {
    pub const UNKNOWN: Self = Processors { mask: [0; 16], length: 0 };

    /// Of this process as it is now; sched_getaffinity(2).
    pub fn note(&mut self) {
        self.length = call!(nr::SCHED_GETAFFINITY, 0, size_of_val(&self.mask), self.mask.as_mut_ptr());
    }

    /// Has this process run on all of them again, if the packet says that it was bound to one.
    pub fn free(&self, packet: &[u8; CHANNEL_PACKET]) {
        // SAFETY: long enough, and plain numbers.
        let header = unsafe { packet.as_ptr().cast::<JobHeader>().read_unaligned() };
        if header.bound != 0 && self.length > 0 {
            call!(nr::SCHED_SETAFFINITY, 0, self.length, self.mask.as_ptr());
        }
    }
}

/// Carries out the limits at the head of a packet; where the job begins. `None`: there is no job.
pub fn limit(packet: &[u8], length: isize) -> Option<usize> {
    let length = usize::try_from(length).ok()?;
    if length < size_of::<JobHeader>() {
        return None;
    }
    // SAFETY: long enough, and plain numbers.
    let header = unsafe { packet.as_ptr().cast::<JobHeader>().read_unaligned() };
    let mut at = size_of::<JobHeader>();
    for _ in 0..header.limits {
        if at + size_of::<ResourceLimit>() > length {
            return None;
        }
        // SAFETY: as above.
        let limit = unsafe { packet.as_ptr().add(at).cast::<ResourceLimit>().read_unaligned() };
        let values = [limit.soft, limit.hard];
        call!(nr::PRLIMIT64, 0, limit.resource, values.as_ptr(), 0);
        at += size_of::<ResourceLimit>();
    }
    Some(at)
}
