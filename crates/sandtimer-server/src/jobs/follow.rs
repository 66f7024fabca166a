//! Waiting for a job's end, and the events of a job: state, log, ended.
//!
//! Any process may work on the store, so it is polled: at once after a change, then less and less
//! often. The id of each event is the reader's position after it, the state it knows and how much
//! of the log it has; the server keeps nothing for readers that are gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sandtimer::supervise::output::Chunk;
use sandtimer_jobs::job::{JobRecord, JobState};
use serde_json::{Value, json};

use super::keeping::JobService;
use super::view::StoreOwner;
use crate::error::{ApiRejection, Code};
use crate::events::{EventSource, StreamEvent};
use crate::runs::{EncodingErrorMode, Piece};

/// The interval between two polls of the store, first and at most.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes of the log of one event.
const PIECE_BYTES: usize = 64 * 1024;

/// The pauses between looks.
#[derive(Debug)]
struct PollIntervals(Duration);

impl PollIntervals {
    fn new() -> Self {
        PollIntervals(MIN_POLL_INTERVAL)
    }

    async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 3 / 2).min(MAX_POLL_INTERVAL);
    }
}

/// The job once it has ended, or as it is when `wait` is, or the server ends.
pub(super) async fn until_over(
    service: &Arc<JobService>,
    store_owner: &StoreOwner,
    id: &str,
    wait: Duration,
) -> Result<JobRecord, ApiRejection> {
    let mut closing = service.core.closing.subscribe();
    let mut pauses = PollIntervals::new();
    let over = async {
        loop {
            let found = service.find(store_owner, id).await;
            if found.as_ref().map_or(true, |record| record.line.state.is_over()) {
                return found;
            }
            pauses.pause().await;
        }
    };
    let waited = async {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    };
    tokio::select! {
        biased;
        found = over => found,
        () = waited => service.find(store_owner, id).await,
    }
}

/// How far a reader has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct JobPosition {
    /// The state that it knows, and how often the job had been handed out.
    known: Option<(JobState, u32)>,
    cursor: u64,
}

impl fmt::Display for JobPosition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (state, deliveries) = self.known.map_or(("none", 0), |(state, count)| (state.name(), count));
        write!(formatter, "{state}-{deliveries}-{}", self.cursor)
    }
}

impl JobPosition {
    /// Where a reader continues whose last event had this id.
    pub fn after(id: Option<&str>) -> Result<Self, ApiRejection> {
        let Some(id) = id else { return Ok(JobPosition::default()) };
        let read = || {
            let [state, deliveries, cursor] = id.split('-').collect::<Vec<_>>().try_into().ok()?;
            let known = match state {
                "none" => None,
                name => Some((JobState::from_name(name)?, deliveries.parse().ok()?)),
            };
            Some(JobPosition { known, cursor: cursor.parse().ok()? })
        };
        read().ok_or_else(|| {
            ApiRejection::new(Code::BadField, "Last-Event-ID is not an id of this stream")
                .with("key", "Last-Event-ID")
        })
    }

    /// Whether the reader has had the last event. A job that was queued again since has more.
    pub fn has_last_event(self, record: &JobRecord) -> bool {
        record.line.state.is_over() && self.known == Some(state(record))
    }
}

fn state(record: &JobRecord) -> (JobState, u32) {
    (record.line.state, record.line.deliveries)
}

/// The events of one job for one reader.
#[derive(Debug)]
pub(super) struct JobEvents {
    service: Arc<JobService>,
    store_owner: StoreOwner,
    id: String,
    position: JobPosition,
    errors: EncodingErrorMode,
}

impl JobEvents {
    pub fn new(
        service: Arc<JobService>,
        store_owner: StoreOwner,
        id: String,
        position: JobPosition,
        errors: EncodingErrorMode,
    ) -> Self {
        JobEvents { service, store_owner, id, position, errors }
    }

    /// Returns the next update: what was written before the end comes before it. Changes nothing.
    async fn next_update(&self) -> Result<JobUpdate, ApiRejection> {
        let record = self.service.find(&self.store_owner, &self.id).await?;
        if self.position.has_last_event(&record) {
            return Ok(JobUpdate::Over);
        }
        let (has_ended, now) = (record.line.state.is_over(), Some(state(&record)));
        if !has_ended && self.position.known != now {
            let position = JobPosition { known: now, ..self.position };
            return Ok(JobUpdate::Event(position, "state", self.store_owner.line(&record.line)));
        }
        let (id, cursor) = (self.id.clone(), self.position.cursor);
        let log = self.service.ask(move |store| Ok(store.read_log(&id, cursor, PIECE_BYTES)?)).await?;
        // Of a full piece there may be more, which begins with the rest of the last character.
        let last = has_ended && log.bytes.len() < PIECE_BYTES;
        let chunk = Chunk { bytes: log.bytes, next_cursor: log.next_cursor, dropped_before: 0 };
        let piece = Piece::with(self.errors, chunk, last);
        if !piece.data.is_empty() {
            let position = JobPosition { cursor: piece.next_cursor, ..self.position };
            let data = json!({
                "cursor": piece.cursor,
                "next_cursor": piece.next_cursor,
                "data": piece.data,
                "encoding": piece.encoding,
            });
            return Ok(JobUpdate::Event(position, "log", data));
        }
        if has_ended {
            let position = JobPosition { known: now, ..self.position };
            return Ok(JobUpdate::Event(position, "ended", ending(&self.store_owner, &record)));
        }
        Ok(JobUpdate::Nothing)
    }
}

/// What a look came to.
enum JobUpdate {
    Event(JobPosition, &'static str, Value),
    Nothing,
    /// Nothing more will come.
    Over,
}

/// The end of a job: its line and its result, without the output that came before and the spec that
/// its owner has.
fn ending(store_owner: &StoreOwner, record: &JobRecord) -> Value {
    let mut data = store_owner.line(&record.line);
    let mut result = serde_json::to_value(&record.result).unwrap_or_default();
    if let Some(outcome) = result.get_mut("outcome").and_then(Value::as_object_mut) {
        outcome.remove("stdout");
        outcome.remove("stderr");
    }
    data["result"] = result;
    data
}

impl EventSource for JobEvents {
    async fn next(&mut self) -> Option<StreamEvent> {
        let mut pauses = PollIntervals::new();
        let mut closing = self.service.core.closing.subscribe();
        loop {
            // A job that was purged during the stream: the stream ends, and a reader that
            // reconnects gets the error.
            match self.next_update().await.ok()? {
                JobUpdate::Event(position, name, data) => {
                    self.position = position;
                    return Some(StreamEvent { id: position.to_string(), name, data });
                }
                JobUpdate::Over => return None,
                JobUpdate::Nothing => {}
            }
            tokio::select! {
                () = pauses.pause() => {}
                // The job continues after a restart, and so can its reader.
                _ = closing.wait_for(|closing| *closing) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_id_round_trips_the_position() {
        let begun = JobPosition { known: None, cursor: 0 };
        let later = JobPosition { known: Some((JobState::Leased, 2)), cursor: u64::MAX };
        for position in [begun, later] {
            assert_eq!(JobPosition::after(Some(&position.to_string())).expect("an id"), position);
        }
        assert_eq!(JobPosition::after(None).expect("the beginning"), begun);
        for wrong in ["", "leased", "leased-1", "leased--1", "gone-1-0", "leased-x-0", "leased-1-0-0"] {
            assert!(JobPosition::after(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
