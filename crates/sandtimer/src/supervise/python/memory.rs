//! Reads another process's memory, bounded in bytes and time.
//!
//! What is read is the job's: any number in it may be a lie, and any pointer may lead anywhere or
//! round in circles. So every read is charged, and once the account is empty nothing more is read.

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process::read_memory;

/// Reads, and bytes, of one process.
const MAX_READS: u32 = 20_000;
const MAX_BYTES: usize = 4 << 20;

/// The memory of a process, as long as there is anything left on the account.
#[derive(Debug)]
pub(super) struct Memory {
    pid: i32,
    reads: u32,
    bytes: usize,
    until: u64,
}

impl Memory {
    /// Nothing is read after `until`, in monotonic nanoseconds.
    pub fn of(pid: u32, until: u64) -> Option<Self> {
        Some(Memory { pid: pid.try_into().ok()?, reads: MAX_READS, bytes: MAX_BYTES, until })
    }

    pub fn read(&mut self, address: u64, buffer: &mut [u8]) -> Option<()> {
        self.reads = self.reads.checked_sub(1)?;
        self.bytes = self.bytes.checked_sub(buffer.len())?;
        let is_address = address != 0 && address.checked_add(buffer.len() as u64).is_some();
        if !is_address || monotonic_nanoseconds() > self.until {
            return None;
        }
        read_memory(self.pid, address, buffer).ok()
    }

    pub fn bytes(&mut self, address: u64, length: usize) -> Option<Vec<u8>> {
        if length > self.bytes {
            return None;
        }
        let mut buffer = vec![0; length];
        self.read(address, &mut buffer)?;
        Some(buffer)
    }

    pub fn number(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    pub fn half(&mut self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    pub fn byte(&mut self, address: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.read(address, &mut bytes)?;
        Some(bytes[0])
    }
}
