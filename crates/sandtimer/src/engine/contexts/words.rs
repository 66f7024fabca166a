//! What a cell displays: heard by whoever executes it, and behind its end by whoever puts its Outcome together.
//!
//! ```text
//! displayed ─┬─ before a verdict ─▶ heard by whoever executes
//!            └─ still in the channel when the job is dead ─▶ heard for the Outcome, told by whoever executes
//! answered, or the Outcome is out ─▶ closed: what comes is not this cell's
//! ```
//! Both may be at it at the same time. A packet is received and noted under one lock, so that none is with somebody who is too
//! late with it, and what comes in parts is put together in its order. Nothing of it is trusted: no more is kept than the
//! result limit.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::zygote as os;
use serde_json::Value;

use crate::context::{Frame, Said, ScriptNonce, bundle, said};
use crate::supervise::run::{Displayed, Running, Words};
use crate::zygote::REPORT;

/// Packets that are heard behind an end: more than a channel holds.
const MOST_LEFT: usize = 4096;

/// The words of one cell.
#[derive(Debug)]
pub(super) struct CellWords {
    channel: Arc<OwnedFd>,
    /// Of a JavaScript cell, whose words it tells.
    script: Option<ScriptNonce>,
    noted: Mutex<Noted>,
}

#[derive(Debug)]
struct Noted {
    parts: Pieces,
    displayed: Displayed,
    untold: Vec<Value>,
    is_closed: bool,
}

impl CellWords {
    pub fn new(channel: Arc<OwnedFd>, script: Option<ScriptNonce>, limit: u64) -> Self {
        let (parts, displayed) = (Pieces::new(limit), Displayed::default());
        let noted = Noted { parts, displayed, untold: Vec::new(), is_closed: false };
        CellWords { channel, script, noted: Mutex::new(noted) }
    }

    /// The next packet, without waiting: `None` where that was something displayed, which is noted. Empty where the interpreter has
    /// closed its end.
    ///
    /// # Errors
    /// As [`os::whole_packet`].
    pub fn next(&self) -> io::Result<Option<Vec<u8>>> {
        self.receive(&mut self.noted())
    }

    /// What was displayed since this was asked for the last time.
    pub fn take_untold(&self) -> Vec<Value> {
        std::mem::take(&mut self.noted().untold)
    }

    /// Nothing that comes from now on is this cell's.
    pub fn close(&self) {
        self.noted().is_closed = true;
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, noted: &mut Noted) -> io::Result<Option<Vec<u8>>> {
        let packet = os::whole_packet(self.channel.as_fd(), false)?;
        let (bytes, last) = match &self.script {
            Some(nonce) => match said(&packet, nonce) {
                Some(Said::Display { bytes, last }) => (bytes, last),
                _ => return Ok(Some(packet)),
            },
            None => match Frame::parse(&packet) {
                Frame::Display { bytes, last } => (bytes, last),
                _ => return Ok(Some(packet)),
            },
        };
        if let Some(whole) = noted.parts.hear(bytes, last) {
            noted.keep(&whole);
        }
        Ok(None)
    }
}

impl Words for CellWords {
    fn displayed(&self, run: &Running) -> Displayed {
        let mut noted = self.noted();
        let most = if noted.is_closed { 0 } else { MOST_LEFT };
        for _ in 0..most {
            match self.receive(&mut noted) {
                Ok(Some(packet)) if packet.is_empty() => break,
                Ok(Some(packet)) => {
                    if let Some(report) = packet.strip_prefix(REPORT) {
                        run.hear_report(report, monotonic_nanoseconds());
                    }
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                Err(_) => break,
            }
        }
        noted.displayed.clone()
    }
}

impl Noted {
    /// Keeps what was displayed, as far as the result limit goes. What is longer than all of that limit is no value, and nobody
    /// is told.
    fn keep(&mut self, whole: &Pieces) {
        self.displayed.bytes = self.displayed.bytes.saturating_add(whole.length);
        let value = bundle(&whole.bytes);
        if value.is_none() && whole.length <= whole.limit {
            return;
        }
        match &value {
            Some(value) if self.displayed.bytes <= whole.limit => self.displayed.values.push(value.clone()),
            _ => self.displayed.dropped += 1,
        }
        self.untold.extend(value);
    }
}

/// Something that is said in several packets, of which no more than `limit` bytes are kept.
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

    /// Hears one part; all of it with the last one.
    pub fn hear(&mut self, bytes: &[u8], last: bool) -> Option<Pieces> {
        self.length = self.length.saturating_add(bytes.len() as u64);
        if self.length <= self.limit {
            self.bytes.extend_from_slice(bytes);
        }
        last.then(|| std::mem::replace(self, Pieces::new(self.limit)))
    }
}
