//! Waiting for a job's end, and the events of a job: state, log, ended.
//!
//! Any process may work on the store, so it is looked at: at once where something has just happened, then less and less often.
//! The id of each event is the reader's place behind it, the state it knows and how much of the log it has; the server keeps
//! nothing for readers that are gone.

use std::fmt;
use std::time::Duration;

use sandtimer::supervise::output::Chunk;
use sandtimer_jobs::job::{JobRecord, JobState};
use serde_json::{Value, json};

use super::view::Whose;
use crate::Shared;
use crate::error::{Code, Refusal};
use crate::events::{Event, EventSource};
use crate::runs::{Piece, TextErrors};

/// How long it is from one look at the store to the next, first and at most.
const FIRST: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_millis(250);
/// Bytes of the log of one event.
const PIECE: usize = 64 * 1024;

/// The pauses between looks.
#[derive(Debug)]
struct Pauses(Duration);

impl Pauses {
    fn new() -> Self {
        Pauses(FIRST)
    }

    async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 3 / 2).min(MOST);
    }
}

/// The job once it is over, or as it is when `wait` is, or the server ends.
pub(super) async fn until_over(
    app: &Shared,
    whose: &Whose,
    id: &str,
    wait: Duration,
) -> Result<JobRecord, Refusal> {
    let mut closing = app.closing.subscribe();
    let mut pauses = Pauses::new();
    let over = async {
        loop {
            let found = app.jobs.find(whose, id).await;
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
        () = waited => app.jobs.find(whose, id).await,
    }
}

/// How far a reader has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The state that it knows, and how often the job had been handed out.
    known: Option<(JobState, u32)>,
    cursor: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (state, deliveries) = self.known.map_or(("none", 0), |(state, count)| (state.name(), count));
        write!(formatter, "{state}-{deliveries}-{}", self.cursor)
    }
}

impl Place {
    /// Where a reader goes on whose last event had this id.
    pub fn after(id: Option<&str>) -> Result<Self, Refusal> {
        let Some(id) = id else { return Ok(Place::default()) };
        let read = || {
            let [state, deliveries, cursor] = id.split('-').collect::<Vec<_>>().try_into().ok()?;
            let known = match state {
                "none" => None,
                name => Some((JobState::from_name(name)?, deliveries.parse().ok()?)),
            };
            Some(Place { known, cursor: cursor.parse().ok()? })
        };
        read().ok_or_else(|| {
            Refusal::new(Code::BadField, "Last-Event-ID is not an id of this stream")
                .with("key", "Last-Event-ID")
        })
    }

    /// Whether the reader has had the last event. A job that was queued again since has more.
    pub fn is_behind(self, record: &JobRecord) -> bool {
        record.line.state.is_over() && self.known == Some(state(record))
    }
}

fn state(record: &JobRecord) -> (JobState, u32) {
    (record.line.state, record.line.deliveries)
}

/// The events of one job for one reader.
#[derive(Debug)]
pub(super) struct JobEvents {
    app: Shared,
    whose: Whose,
    id: String,
    place: Place,
    errors: TextErrors,
}

impl JobEvents {
    pub fn new(app: Shared, (whose, id): (Whose, String), place: Place, errors: TextErrors) -> Self {
        JobEvents { app, whose, id, place, errors }
    }

    /// What there is to tell now: what was written before the end comes before it. Nothing is changed.
    async fn look(&self) -> Result<Look, Refusal> {
        let record = self.app.jobs.find(&self.whose, &self.id).await?;
        if self.place.is_behind(&record) {
            return Ok(Look::Over);
        }
        let (is_over, now) = (record.line.state.is_over(), Some(state(&record)));
        if !is_over && self.place.known != now {
            let place = Place { known: now, ..self.place };
            return Ok(Look::Event(place, "state", self.whose.line(&record.line)));
        }
        let (id, cursor) = (self.id.clone(), self.place.cursor);
        let log = self.app.jobs.ask(move |store| Ok(store.read_log(&id, cursor, PIECE)?)).await?;
        // Of a full piece there may be more, which begins with the rest of the last character.
        let last = is_over && log.bytes.len() < PIECE;
        let chunk = Chunk { bytes: log.bytes, next_cursor: log.next_cursor, dropped_before: 0 };
        let piece = Piece::with(self.errors, chunk, last);
        if !piece.data.is_empty() {
            let place = Place { cursor: piece.next_cursor, ..self.place };
            let data = json!({
                "cursor": piece.cursor,
                "next_cursor": piece.next_cursor,
                "data": piece.data,
                "encoding": piece.encoding,
            });
            return Ok(Look::Event(place, "log", data));
        }
        if is_over {
            let place = Place { known: now, ..self.place };
            return Ok(Look::Event(place, "ended", ending(&self.whose, &record)));
        }
        Ok(Look::Nothing)
    }
}

/// What a look came to.
enum Look {
    Event(Place, &'static str, Value),
    Nothing,
    /// Nothing more will come.
    Over,
}

/// The end of a job: its line and its result, without the output that came before and the spec that its owner has.
fn ending(whose: &Whose, record: &JobRecord) -> Value {
    let mut data = whose.line(&record.line);
    let mut result = serde_json::to_value(&record.result).unwrap_or_default();
    if let Some(outcome) = result.get_mut("outcome").and_then(Value::as_object_mut) {
        outcome.remove("stdout");
        outcome.remove("stderr");
    }
    data["result"] = result;
    data
}

impl EventSource for JobEvents {
    async fn next(&mut self) -> Option<Event> {
        let mut pauses = Pauses::new();
        let mut closing = self.app.closing.subscribe();
        loop {
            // A job that was forgotten meanwhile: the stream ends, and the reader that comes back is told.
            match self.look().await.ok()? {
                Look::Event(place, name, data) => {
                    self.place = place;
                    return Some(Event { id: place.to_string(), name, data });
                }
                Look::Over => return None,
                Look::Nothing => {}
            }
            tokio::select! {
                () = pauses.pause() => {}
                // The job goes on after a restart, and so can its reader.
                _ = closing.wait_for(|closing| *closing) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_place_behind_its_event() {
        let begun = Place { known: None, cursor: 0 };
        let later = Place { known: Some((JobState::Leased, 2)), cursor: u64::MAX };
        for place in [begun, later] {
            assert_eq!(Place::after(Some(&place.to_string())).expect("an id"), place);
        }
        assert_eq!(Place::after(None).expect("the beginning"), begun);
        for wrong in ["", "leased", "leased-1", "leased--1", "gone-1-0", "leased-x-0", "leased-1-0-0"] {
            assert!(Place::after(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
