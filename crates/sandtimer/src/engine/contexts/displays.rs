//! What a cell displays: received by the thread that executes the cell, or after the cell's end by
//! a thread of its own.
//!
//! ```text
//! displayed ─┬─ before a verdict ─▶ received by the thread that executes the cell
//!            └─ still in the channel when the job is dead ─▶ received on a thread of its own for the
//!               Outcome, which waits a bounded time for it; emitted by the thread that executes it
//! answered, or the rest was received ─▶ closed: later packets do not belong to this cell
//! ```
//! One thread receives at a time, and notes what was displayed before another thread receives:
//! parts are put together in their order, and no thread comes too late with one. Receiving may take
//! as long as the job wants: the job can send descriptors, and closing the last descriptor of a
//! socket may wait for its peer. So only the thread that executes the cell waits for the receiver.
//! Nothing of it is trusted: no more is kept than the result limit, nor more values than a cell may
//! show.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::channel::Channel;
use crate::context::{Frame, Nonce, ScriptMessage, ScriptNonce, bundle, script_message};
use crate::model::json::{JsonAllowance, JsonRejection};
use crate::supervise::displays::{DisplaySource, DisplayedValues, MAX_SHOWN_VALUES};
use crate::zygote::REPORT;

/// Bytes and packets that are received after an end, more than a channel usually holds: processes
/// that the job has left may continue to write.
const MAX_LATE_BYTES: usize = 1 << 20;
const MAX_LATE_PACKETS: usize = 4096;

/// The displays of one cell.
#[derive(Debug)]
pub(super) struct CellDisplays {
    channel: Channel,
    /// What the packets about this cell begin with.
    nonce: Nonce,
    /// The same of a JavaScript cell, which has one of another length.
    script: Option<ScriptNonce>,
    /// Held by the thread that receives, with the parts so far of the next displayed value.
    receiving: Mutex<Pieces>,
    noted: Mutex<DisplayState>,
}

#[derive(Debug)]
struct DisplayState {
    displayed: DisplayedValues,
    /// Values that may still be kept.
    allowance: JsonAllowance,
    unsent: Vec<Value>,
    is_closed: bool,
}

impl CellDisplays {
    pub fn new(channel: Channel, nonce: Nonce, script: Option<ScriptNonce>, limit: u64) -> Self {
        let receiving = Mutex::new(Pieces::new(limit));
        let noted = Mutex::new(DisplayState {
            displayed: DisplayedValues::default(),
            allowance: JsonAllowance::new(MAX_SHOWN_VALUES),
            unsent: Vec::new(),
            is_closed: false,
        });
        CellDisplays { channel, nonce, script, receiving, noted }
    }

    /// The next packet about this cell, without waiting for one and without its nonce: `None` where
    /// that was something displayed, which is noted. Empty where the interpreter has closed its
    /// end.
    ///
    /// # Errors
    /// As [`Channel::receive`].
    pub fn next(&self) -> io::Result<Option<Vec<u8>>> {
        self.receive(&mut self.receiving()).map(|(_, other)| other)
    }

    /// What was displayed since this was asked for the last time.
    pub fn take_unsent(&self) -> Vec<Value> {
        std::mem::take(&mut self.noted().unsent)
    }

    /// Closes the cell's displays: nothing that arrives later belongs to the cell, and no thread
    /// receives for it after this returns.
    pub fn close(&self) {
        self.noted().is_closed = true;
        drop(self.receiving());
    }

    pub fn is_of_a_living_interpreter(&self) -> bool {
        self.channel.is_alive()
    }

    fn noted(&self) -> MutexGuard<'_, DisplayState> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receiving(&self) -> MutexGuard<'_, Pieces> {
        self.receiving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next packet's length, and all of it where that was nothing displayed.
    fn receive(&self, parts: &mut Pieces) -> io::Result<(usize, Option<Vec<u8>>)> {
        let mut packet = self.channel.receive()?;
        let length = packet.len();
        let (bytes, last) = match &self.script {
            Some(nonce) => match script_message(&packet, nonce) {
                Some(ScriptMessage::Display { bytes, last }) => (bytes, last),
                _ => return Ok((length, Some(packet))),
            },
            None => {
                let of_this_cell = packet.starts_with(&self.nonce);
                if !of_this_cell {
                    let is_other = length == 0 || packet.starts_with(REPORT);
                    return Ok((length, is_other.then_some(packet)));
                }
                packet.drain(..self.nonce.len());
                match Frame::parse(&packet) {
                    Frame::Display { bytes, last } => (bytes, last),
                    _ => return Ok((length, Some(packet))),
                }
            }
        };
        if let Some(whole) = parts.append(bytes, last) {
            self.note(&whole);
        }
        Ok((length, None))
    }

    /// Notes what was displayed, as far as the result limit goes and the values that a cell may
    /// show. What is not kept because of these is counted.
    fn note(&self, whole: &Pieces) {
        let mut of_this_one = JsonAllowance::new(MAX_SHOWN_VALUES);
        let value = match bundle(&whole.bytes, &mut of_this_one) {
            Ok(value) => Some(value),
            Err(JsonRejection::Values { .. }) => None,
            Err(_) if whole.length > whole.limit => None,
            Err(_) => return,
        };
        // Before the lock: a copy of many values takes a while.
        let copy = value.clone();
        let mut noted = self.noted();
        if noted.is_closed {
            return;
        }
        let DisplayState { displayed, allowance, unsent, .. } = &mut *noted;
        displayed.bytes = displayed.bytes.saturating_add(whole.length);
        let is_kept =
            copy.is_some() && displayed.bytes <= whole.limit && allowance.take_values(of_this_one.used());
        if is_kept {
            displayed.values.extend(copy);
        } else {
            displayed.dropped += 1;
        }
        unsent.extend(value);
    }
}

impl DisplaySource for CellDisplays {
    fn displayed(&self, last: bool) -> DisplayedValues {
        let mut noted = self.noted();
        noted.is_closed |= last;
        noted.displayed.clone()
    }

    fn is_drained(&self) -> bool {
        // A thread that is receiving may have a display that is not noted yet. An end that is
        // closed is readable, and nothing is left there.
        self.noted().is_closed || self.receiving.try_lock().is_ok_and(|_parts| self.channel.is_empty())
    }

    fn receive_rest(&self, on_report: &mut dyn FnMut(&[u8])) {
        let mut parts = self.receiving();
        let mut bytes = 0;
        for _ in 0..MAX_LATE_PACKETS {
            if bytes > MAX_LATE_BYTES || self.noted().is_closed {
                break;
            }
            match self.receive(&mut parts) {
                // Its end is closed.
                Ok((0, _)) => break,
                Ok((length, other)) => {
                    bytes += length;
                    if let Some(report) = other.as_deref().and_then(|packet| packet.strip_prefix(REPORT)) {
                        on_report(report);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {}
            }
        }
        self.noted().is_closed = true;
    }
}

/// A message in several packets, of which no more than `limit` bytes are kept.
#[derive(Debug)]
pub(super) struct Pieces {
    pub bytes: Vec<u8>,
    pub length: u64,
    pub limit: u64,
}

impl Pieces {
    pub fn new(limit: u64) -> Self {
        Pieces { bytes: Vec::new(), length: 0, limit }
    }

    /// Appends one part; returns all of them with the last one.
    pub fn append(&mut self, bytes: &[u8], last: bool) -> Option<Pieces> {
        self.length = self.length.saturating_add(bytes.len() as u64);
        if self.length <= self.limit {
            self.bytes.extend_from_slice(bytes);
        }
        last.then(|| std::mem::replace(self, Pieces::new(self.limit)))
    }
}
