//! The events of a run: started, stdout, stderr, warning, lagged, ended.
//!
//! The id of each event is the reader's position after it: what it has had of each stream. A reader
//! that comes back with it continues exactly there, from the run itself or from its record, so the
//! server keeps nothing for readers that are gone. Output that was dropped before a reader came to
//! it is reported as gone (`lagged`).

use std::fmt;
use std::sync::Arc;

use sandtimer::engine::Stream;
use serde_json::{Value, json};

use super::encoding_error_mode::EncodingErrorMode;
use super::live::{LiveRun, RunPhase, enter_large};
use super::output::{Piece, chunk, name};
use super::record::Record;
use crate::error::{ApiRejection, Code};
use crate::events::{EventSource, StreamEvent};
use crate::registry::OwnedResource;

/// Bytes of output of one event.
const PIECE_BYTES: usize = 64 * 1024;

/// How far a reader has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RunPosition {
    started: bool,
    ended: bool,
    warnings: u64,
    /// Positions in stdout and stderr.
    cursors: [u64; 2],
}

impl fmt::Display for RunPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = if self.ended { 2 } else { u8::from(self.started) };
        write!(formatter, "{phase}-{}-{}-{}", self.warnings, self.cursors[0], self.cursors[1])
    }
}

impl RunPosition {
    /// Where a reader continues whose last event had this id.
    pub fn after(id: Option<&str>) -> Result<Self, ApiRejection> {
        let Some(id) = id else { return Ok(RunPosition::default()) };
        let numbers: Option<Vec<u64>> = id.split('-').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some([phase @ 0..=2, warnings, stdout, stderr]) => Ok(RunPosition {
                started: *phase > 0,
                ended: *phase == 2,
                warnings: *warnings,
                cursors: [*stdout, *stderr],
            }),
            _ => Err(ApiRejection::new(Code::BadField, "Last-Event-ID is not an id of this stream")
                .with("key", "Last-Event-ID")),
        }
    }

    pub fn is_end(self) -> bool {
        self.ended
    }
}

/// The events of one run for one reader.
#[derive(Debug)]
pub(crate) struct RunEvents {
    run: Arc<LiveRun>,
    position: RunPosition,
    errors: EncodingErrorMode,
    /// Output that was read and makes no whole character yet: only more than this is new.
    read_cursors: [u64; 2],
}

impl RunEvents {
    pub(super) fn new(run: Arc<LiveRun>, position: RunPosition, errors: EncodingErrorMode) -> Self {
        RunEvents { run, position, errors, read_cursors: position.cursors }
    }

    /// All events, with output as text whatever it is.
    pub fn with_replacement(run: Arc<LiveRun>) -> Self {
        Self::new(run, RunPosition::default(), EncodingErrorMode::Replace)
    }

    fn event(&mut self, position: RunPosition, name: &'static str, data: Value) -> StreamEvent {
        self.position = position;
        StreamEvent { id: position.to_string(), name, data }
    }

    /// Returns the next event, if there is one now. The future may be dropped: it changes the state
    /// only at its end.
    async fn ready(&mut self, phase: &RunPhase) -> Result<Option<StreamEvent>, ApiRejection> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let index = stream as usize;
            let (chunk, last) = chunk(phase, stream, self.position.cursors[index], PIECE_BYTES).await?;
            let end = chunk.next_cursor;
            let piece = Piece::with(self.errors, chunk, last);
            let mut position = self.position;
            if piece.dropped_before > 0 {
                position.cursors[index] = piece.cursor;
                let data = json!({"stream": name(stream), "dropped": piece.dropped_before, "next_cursor": piece.cursor});
                return Ok(Some(self.event(position, "lagged", data)));
            }
            self.read_cursors[index] = end;
            if !piece.data.is_empty() {
                position.cursors[index] = piece.next_cursor;
                let data = json!({
                    "cursor": piece.cursor,
                    "next_cursor": piece.next_cursor,
                    "data": piece.data,
                    "encoding": piece.encoding,
                });
                return Ok(Some(self.event(position, name(stream), data)));
            }
        }
        let warning = self.run.watch_warnings().borrow().get(self.position.warnings as usize).copied();
        if let Some(warning) = warning {
            let position = RunPosition { warnings: self.position.warnings + 1, ..self.position };
            // Plain data with text keys always serialises.
            let mut data = serde_json::to_value(warning).unwrap_or_default();
            data["message"] = warning.to_string().into();
            return Ok(Some(self.event(position, "warning", data)));
        }
        Ok(None)
    }

    /// The outcome without the output, which came before.
    async fn ended(&mut self, phase: &RunPhase) -> Result<Option<StreamEvent>, ApiRejection> {
        let RunPhase::Ended(record) = phase else { return Ok(None) };
        let data = ending(&self.run, record).await?;
        let position = RunPosition { ended: true, ..self.position };
        Ok(Some(self.event(position, "ended", data)))
    }

    async fn find_next(&mut self) -> Result<Option<StreamEvent>, ApiRejection> {
        if self.position.ended {
            return Ok(None);
        }
        loop {
            // Subscribed before the read: later changes wake this.
            let (mut ending, mut warnings) = (self.run.watch_phase(), self.run.watch_warnings());
            let phase = ending.borrow_and_update().clone();
            warnings.borrow_and_update();
            if let RunPhase::Queued(_) = &phase {
                // The sender is in the run.
                let _ = ending.changed().await;
                continue;
            }
            if !self.position.started {
                if let RunPhase::Running(run) = &phase {
                    run.started().await;
                }
                let run = &self.run;
                let data = json!({"run_id": run.id(), "created_at_ms": run.created_at_ms(), "effective": run.effective()});
                let position = RunPosition { started: true, ..self.position };
                return Ok(Some(self.event(position, "started", data)));
            }
            if let Some(event) = self.ready(&phase).await? {
                return Ok(Some(event));
            }
            let RunPhase::Running(run) = &phase else { return self.ended(&phase).await };
            tokio::select! {
                // Of a run that has ended nothing grows: then its record is what is waited for.
                () = run.grown(self.read_cursors), if !has_outcome(run) => {}
                _ = ending.changed() => {}
                _ = warnings.changed() => {}
            }
        }
    }
}

/// The end of a run, without its output.
///
/// # Errors
/// When its record cannot be read.
pub(super) async fn ending(run: &LiveRun, record: &Record) -> Result<Value, ApiRejection> {
    let _permit = enter_large(run.owner(), record.head_bytes()).await;
    let mut outcome = serde_json::to_value(record.outcome_without_output().await?).unwrap_or_default();
    if let Some(outcome) = outcome.as_object_mut() {
        outcome.remove("stdout");
        outcome.remove("stderr");
    }
    Ok(
        json!({"run_id": run.id(), "status": "ended", "ended_at_ms": record.ended_at_ms(), "outcome": outcome}),
    )
}

/// Whether its Outcome is there, though not yet its record.
pub(super) fn has_outcome(run: &sandtimer::Run) -> bool {
    use std::task::{Context, Poll, Waker};
    let mut wait = std::pin::pin!(run.wait());
    matches!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

impl EventSource for RunEvents {
    async fn next(&mut self) -> Option<StreamEvent> {
        // If the record was removed during the stream, or cannot be read, the stream ends, and a
        // reader that reconnects gets the error.
        self.find_next().await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_id_round_trips_the_position() {
        let position = RunPosition { started: true, ended: false, warnings: 2, cursors: [17, u64::MAX] };
        assert_eq!(RunPosition::after(Some(&position.to_string())).expect("an id"), position);
        assert_eq!(RunPosition::after(None).expect("the beginning"), RunPosition::default());
        for wrong in
            ["", "1", "1-2-3", "1-2-3-4-5", "3-0-0-0", "1-0--5-0", "1-0-x-0", "1-0-0-99999999999999999999"]
        {
            assert!(RunPosition::after(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
