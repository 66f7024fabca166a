//! What is kept of the inspections of a run.

use crate::model::{WaitingChild, WaitingFor};

/// Share of one processor below which a run does nothing, in parts of a hundred: the stall limit's.
const IDLE_PERCENT: u64 = 1;
/// How long a process counts as reading or writing after it was last found to do so.
const IO_ACTIVITY_NANOSECONDS: u64 = 1_000_000_000;

/// What was found of a command shortly before its limit, for the verdict.
#[derive(Debug, Clone)]
pub(crate) struct CommandInspection {
    pub at: u64,
    pub waiting_for: Option<WaitingFor>,
    pub threads: Vec<WaitingFor>,
    pub child: Option<WaitingChild>,
    pub wait_channel: Option<String>,
}

/// Since when a run's use of resources has not grown, as far as inspections have found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moves {
    cpu: Option<Growth>,
    io: Option<Growth>,
}

/// Something that grows.
#[derive(Debug, Clone, Copy)]
struct Growth {
    value: u64,
    /// When this value was first sampled.
    since: u64,
    /// When it was last sampled.
    at: u64,
    /// It was sampled before.
    again: bool,
}

impl Growth {
    fn next(before: Option<Growth>, value: u64, now: u64, is_more: impl Fn(&Growth) -> bool) -> Self {
        match before {
            Some(before) if !is_more(&before) => Growth { value, at: now, again: true, ..before },
            before => Growth { value, since: now, at: now, again: before.is_some() },
        }
    }
}

impl Moves {
    pub fn note(&mut self, cpu_microseconds: u64, io_bytes: Option<u64>, now: u64) {
        self.cpu = Some(Growth::next(self.cpu, cpu_microseconds, now, |before| {
            let used = cpu_microseconds.saturating_sub(before.value).saturating_mul(1_000);
            used > now.saturating_sub(before.at) / 100 * IDLE_PERCENT
        }));
        if let Some(bytes) = io_bytes {
            self.io = Some(Growth::next(self.io, bytes, now, |before| bytes != before.value));
        }
    }

    /// Milliseconds since the processor time, and what is read and written, moved at the latest.
    /// `None` for what was not sampled within the last `recent` nanoseconds.
    pub fn ages_ms(&self, now: u64, recent: u64) -> [Option<u64>; 2] {
        let is_known = |growth: &Growth| growth.again && now.saturating_sub(growth.at) <= recent;
        let age = |growth: &Growth| is_known(growth).then(|| now.saturating_sub(growth.since) / 1_000_000);
        [self.cpu.as_ref().and_then(age), self.io.as_ref().and_then(age)]
    }

    /// Whether inspections have found it to read or write.
    pub fn is_at_it(&self, now: u64) -> bool {
        self.io.is_some_and(|io| io.again && now.saturating_sub(io.since) < IO_ACTIVITY_NANOSECONDS)
    }
}
