//! The events of a run: started, stdout, stderr, warning, lagged, ended.
//!
//! The id of each event is the reader's place behind it: what it has had of each stream. A reader that comes back with it
//! goes on exactly there, from the run itself or from its record, so the server keeps nothing for readers that are gone.
//! Output that was dropped before a reader came to it is said to be gone (`lagged`).

use std::fmt;
use std::sync::Arc;

use sandtimer::engine::Stream;
use serde_json::{Value, json};

use super::live::{LiveRun, Phase, enter_large};
use super::output::{Piece, TextErrors, chunk, name};
use super::record::Record;
use crate::error::{Code, Refusal};
use crate::events::{Event, EventSource};
use crate::owned::Owned;

/// Bytes of output of one event.
const PIECE: usize = 64 * 1024;

/// How far a reader has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    started: bool,
    ended: bool,
    warnings: u64,
    /// Positions in stdout and stderr.
    cursors: [u64; 2],
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = if self.ended { 2 } else { u8::from(self.started) };
        write!(formatter, "{phase}-{}-{}-{}", self.warnings, self.cursors[0], self.cursors[1])
    }
}

impl Place {
    /// Where a reader goes on whose last event had this id.
    pub fn after(id: Option<&str>) -> Result<Self, Refusal> {
        let Some(id) = id else { return Ok(Place::default()) };
        let numbers: Option<Vec<u64>> = id.split('-').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some([phase @ 0..=2, warnings, stdout, stderr]) => Ok(Place {
                started: *phase > 0,
                ended: *phase == 2,
                warnings: *warnings,
                cursors: [*stdout, *stderr],
            }),
            _ => Err(Refusal::new(Code::BadField, "Last-Event-ID is not an id of this stream")
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
    place: Place,
    errors: TextErrors,
    /// Output that was looked at and makes no whole character yet: more than this is news.
    seen: [u64; 2],
}

impl RunEvents {
    pub(super) fn new(run: Arc<LiveRun>, place: Place, errors: TextErrors) -> Self {
        RunEvents { run, place, errors, seen: place.cursors }
    }

    /// All events, with output as text whatever it is.
    pub fn of_text(run: Arc<LiveRun>) -> Self {
        Self::new(run, Place::default(), TextErrors::Replace)
    }

    fn event(&mut self, place: Place, name: &'static str, data: Value) -> Event {
        self.place = place;
        Event { id: place.to_string(), name, data }
    }

    /// What there is to tell now. The future may be dropped: everything is changed at the end.
    async fn ready(&mut self, phase: &Phase) -> Result<Option<Event>, Refusal> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let index = stream as usize;
            let (chunk, last) = chunk(phase, stream, self.place.cursors[index], PIECE).await?;
            let end = chunk.next_cursor;
            let piece = Piece::with(self.errors, chunk, last);
            let mut place = self.place;
            if piece.dropped_before > 0 {
                place.cursors[index] = piece.cursor;
                let data = json!({"stream": name(stream), "dropped": piece.dropped_before, "next_cursor": piece.cursor});
                return Ok(Some(self.event(place, "lagged", data)));
            }
            self.seen[index] = end;
            if !piece.data.is_empty() {
                place.cursors[index] = piece.next_cursor;
                let data = json!({
                    "cursor": piece.cursor,
                    "next_cursor": piece.next_cursor,
                    "data": piece.data,
                    "encoding": piece.encoding,
                });
                return Ok(Some(self.event(place, name(stream), data)));
            }
        }
        let warning = self.run.watch_warnings().borrow().get(self.place.warnings as usize).copied();
        if let Some(warning) = warning {
            let place = Place { warnings: self.place.warnings + 1, ..self.place };
            // Plain data with text keys always serialises.
            let mut data = serde_json::to_value(warning).unwrap_or_default();
            data["message"] = warning.to_string().into();
            return Ok(Some(self.event(place, "warning", data)));
        }
        Ok(None)
    }

    /// The outcome without the output, which came before.
    async fn ended(&mut self, phase: &Phase) -> Result<Option<Event>, Refusal> {
        let Phase::Ended(record) = phase else { return Ok(None) };
        let data = ending(&self.run, record).await?;
        let place = Place { ended: true, ..self.place };
        Ok(Some(self.event(place, "ended", data)))
    }

    async fn find_next(&mut self) -> Result<Option<Event>, Refusal> {
        if self.place.ended {
            return Ok(None);
        }
        loop {
            // Before the look: what changes after it is heard.
            let (mut ending, mut warnings) = (self.run.watch_phase(), self.run.watch_warnings());
            let phase = ending.borrow_and_update().clone();
            warnings.borrow_and_update();
            if let Phase::Queued(_) = &phase {
                // The sender is in the run.
                let _ = ending.changed().await;
                continue;
            }
            if !self.place.started {
                if let Phase::Running(run) = &phase {
                    run.started().await;
                }
                let run = &self.run;
                let data = json!({"run_id": run.id(), "created_at_ms": run.created_at_ms(), "effective": run.effective()});
                let place = Place { started: true, ..self.place };
                return Ok(Some(self.event(place, "started", data)));
            }
            if let Some(event) = self.ready(&phase).await? {
                return Ok(Some(event));
            }
            let Phase::Running(run) = &phase else { return self.ended(&phase).await };
            tokio::select! {
                // Of a run that is over nothing grows: then its record is what is waited for.
                () = run.grown(self.seen), if !is_over(run) => {}
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
pub(super) async fn ending(run: &LiveRun, record: &Record) -> Result<Value, Refusal> {
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
pub(super) fn is_over(run: &sandtimer::Run) -> bool {
    use std::task::{Context, Poll, Waker};
    let mut wait = std::pin::pin!(run.wait());
    matches!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

impl EventSource for RunEvents {
    async fn next(&mut self) -> Option<Event> {
        // A record that was removed meanwhile, or cannot be read: the stream ends, and the reader that comes back is told.
        self.find_next().await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_place_behind_its_event() {
        let place = Place { started: true, ended: false, warnings: 2, cursors: [17, u64::MAX] };
        assert_eq!(Place::after(Some(&place.to_string())).expect("an id"), place);
        assert_eq!(Place::after(None).expect("the beginning"), Place::default());
        for wrong in
            ["", "1", "1-2-3", "1-2-3-4-5", "3-0-0-0", "1-0--5-0", "1-0-x-0", "1-0-0-99999999999999999999"]
        {
            assert!(Place::after(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
