//! The head of the packet that an interpreter gets its job by.

use crate::sys::{call, nr};
use crate::wire::{JobHeader, ResourceLimit};

/// Carries out the limits at the head of a packet, and has this process run on the processors that
/// it names; where the job begins. `None`: there is no job.
pub fn prepare(packet: &[u8], length: isize) -> Option<usize> {
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
    let mask = 8 * header.processors as usize;
    if at + mask > length {
        return None;
    }
    if mask > 0 {
        call!(nr::SCHED_SETAFFINITY, 0, mask, packet.as_ptr().wrapping_add(at));
    }
    Some(at + mask)
}
