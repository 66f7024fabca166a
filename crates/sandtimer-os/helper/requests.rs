//! What a live interpreter waits for between cells, while the threads that cells have left run.
//!
//! ```text
//! one thread     waits with the GIL held: nothing else needs it, and waiting touches no page that a copy shares
//! more threads   release the GIL to wait ────┬─ a request for a checkpoint is refused here, whatever holds the GIL
//!                                            └─ all others ─▶ takes the GIL back, and returns
//! ```
//! Only the interpreter's own thread makes a copy, and holds the GIL from its count of the threads
//! to the fork: no other thread can begin in between.

use core::ffi::c_void;

use crate::surroundings;
use crate::sys::{self, Fd, Received, call, nr};
use crate::wire::{CHANNEL_PACKET, JobHeader};
use crate::job;

// The part of CPython's stable ABI that is used; PEP 384.
unsafe extern "C" {
    fn PyEval_SaveThread() -> *mut c_void;
    fn PyEval_RestoreThread(state: *mut c_void);
}

/// The first byte of a request for a checkpoint, which its nonce follows.
const CHECKPOINT: u8 = b'C';
const NONCE: usize = 8;

/// Returns the next packet, and where the request in it begins, once the resource limits at its
/// head hold for this process. `None` when the engine has closed its end. `releases_gil`: whether
/// other threads of this process run until then; called with the GIL held.
pub fn next(socket: Fd, packet: &mut [u8; CHANNEL_PACKET], releases_gil: bool) -> Option<(Received, usize)> {
    if !releases_gil || surroundings::threads() <= 1 {
        return receive(socket, packet);
    }
    // SAFETY: the GIL is held, and taken back below.
    let state = unsafe { PyEval_SaveThread() };
    let request = loop {
        match receive(socket, packet) {
            Some((received, start)) if reject_checkpoint(socket, &packet[start..received.length as usize]) => {}
            request => break request,
        }
    };
    // SAFETY: the state that was saved above.
    unsafe { PyEval_RestoreThread(state) };
    request
}

fn receive(socket: Fd, packet: &mut [u8; CHANNEL_PACKET]) -> Option<(Received, usize)> {
    let received = loop {
        let received = sys::receive(socket, packet, 0);
        // A shorter one was for an interpreter that has ended.
        let is_stray = received.length > 0 && received.length < size_of::<JobHeader>() as isize;
        if received.length != sys::EINTR && !is_stray {
            break received;
        }
    };
    let start = job::prepare(packet, received.length)?;
    Some((received, start))
}

/// Answers a request for a checkpoint while there are other threads; false for every other request.
fn reject_checkpoint(socket: Fd, request: &[u8]) -> bool {
    let others = surroundings::threads() - 1;
    let Some((&CHECKPOINT, rest)) = request.split_first() else { return false };
    let Some(nonce) = rest.get(..NONCE) else { return false };
    if others < 1 {
        return false;
    }
    drop_interrupts();
    let mut answer = Answer { bytes: [0; 160], length: 0 };
    answer.add(b"K");
    answer.add(nonce);
    answer.add(&[0; 4]);
    answer.number(others as u64);
    answer.add(b" other threads are running in the interpreter, and a copy has none of them");
    // An engine that does not receive it ends this process.
    call!(nr::WRITE, socket, answer.bytes.as_ptr(), answer.length);
    true
}

/// An interrupt that waits now came too late for the cell before this; the interpreter's own thread
/// blocks it between cells.
fn drop_interrupts() {
    const SIGINT: u64 = 1 << 1;
    let (interrupts, at_once) = (SIGINT, [0u64; 2]);
    call!(nr::RT_SIGTIMEDWAIT, &raw const interrupts, 0, at_once.as_ptr(), 8);
}

struct Answer {
    bytes: [u8; 160],
    length: usize,
}

impl Answer {
    fn add(&mut self, text: &[u8]) {
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text);
        self.length += text.len();
    }

    fn number(&mut self, number: u64) {
        if number >= 10 {
            self.number(number / 10);
        }
        self.add(&[b'0' + (number % 10) as u8]);
    }
}
