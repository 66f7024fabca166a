//! The guard's side of the engine's conversation with a sandbox's init.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process::{self, End};
use sandtimer_os::wire::{Order, notice};

use crate::processes::UsageSample;

/// Sends notices and reads commands.
#[derive(Debug)]
pub(super) struct Notices {
    control: OwnedFd,
}

impl Notices {
    pub fn new(control: OwnedFd) -> Self {
        Notices { control }
    }

    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The next order; `Ok(None)` when the engine is gone, `WouldBlock` while there is none.
    pub fn next_command(&self) -> io::Result<Option<Order>> {
        process::receive_command(&self.control)
    }

    pub fn started(&self, at: u64) {
        self.send(notice::STARTED, [at, 0, 0, 0, 0, 0]);
    }

    pub fn exited(&self, end: &End, alive: u64) {
        let status = u64::from(end.status.cast_unsigned());
        let End { user_microseconds, system_microseconds, resident_peak_kib, .. } = *end;
        let now = monotonic_nanoseconds();
        let values = [status, user_microseconds, system_microseconds, resident_peak_kib, now, alive];
        self.send(notice::EXITED, values);
    }

    pub fn fired(&self, alive: u64) {
        self.send(notice::FIRED, [monotonic_nanoseconds(), alive, 0, 0, 0, 0]);
    }

    pub fn sample(&self, sample: UsageSample) {
        let UsageSample { cpu_microseconds, processes, threads, resident_bytes } = sample;
        self.send(notice::SAMPLE, [cpu_microseconds, processes, resident_bytes, threads, 0, 0]);
    }

    pub fn swept(&self, left: u64) {
        self.send(notice::SWEPT, [left, 0, 0, 0, 0, 0]);
    }

    fn send(&self, kind: u32, values: [u64; 6]) {
        // An engine that is gone closes its end, which is read next.
        let _ = process::send_notice(&self.control, kind, values);
    }
}
