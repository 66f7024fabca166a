//! What is done to all jobs that a filter matches, one after the other.

use super::state::{JobState, ShownState};
use super::store::{Filter, JobLine, JobStore, StoreError};

/// Jobs that are listed at a time.
const PAGE: usize = 1_000;

/// States of jobs that have not ended, by their names: such jobs can be cancelled or waited for.
pub const OPEN_STATES: [&str; 5] = ["scheduled", "queued", "running", "ending", "leased"];
/// States of jobs that can be retried, by their names.
pub const RETRIED_STATES: [&str; 3] = ["failed", "dead", "cancelled"];

/// The states that are meant: the one that is named, else all of these, each job in one of them.
fn states(shown: Option<ShownState>, all: &[&str]) -> Vec<ShownState> {
    shown.map_or_else(
        || all.iter().filter_map(|name| ShownState::from_name(name)).collect(),
        |shown| vec![shown],
    )
}

/// Passes each job of `filter` to `act` that has not ended, or is in the state `shown`.
///
/// # Errors
/// As [`JobStore::list`] and `act`. It is not an error if a job has left its state since it was
/// listed.
pub fn each_open(
    store: &dyn JobStore,
    filter: &Filter,
    shown: Option<ShownState>,
    act: &mut dyn FnMut(&JobLine) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    // In the order in which a job passes through them.
    each(store, filter, &states(shown, &["scheduled", "queued", "leased"]), act)
}

/// Passes each job of `filter` to `act` that can be retried, or is in the state `shown`.
///
/// # Errors
/// As [`each_open`].
pub fn each_retried(
    store: &dyn JobStore,
    filter: &Filter,
    shown: Option<ShownState>,
    act: &mut dyn FnMut(&JobLine) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    each(store, filter, &states(shown, &RETRIED_STATES), act)
}

/// Queues all dead jobs of a filter again, whatever state it names. Returns how many that were.
///
/// # Errors
/// See [`JobStore::lease`]; those before it are queued.
pub fn requeue_dead(store: &dyn JobStore, filter: &Filter) -> Result<u64, StoreError> {
    let dead = ShownState { state: JobState::Dead, ok: None, cancel: None };
    let mut requeued = 0;
    each(store, filter, &[dead], &mut |line| store.retry(&line.id).map(|_| requeued += 1))?;
    Ok(requeued)
}

fn each(
    store: &dyn JobStore,
    filter: &Filter,
    states: &[ShownState],
    act: &mut dyn FnMut(&JobLine) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for shown in states {
        let filter = filter.clone().shown(Some(*shown));
        let mut cursor = None;
        loop {
            let page = store.list(&filter, cursor.as_deref(), PAGE)?;
            for line in &page.jobs {
                match act(line) {
                    // Another caller was first.
                    Err(StoreError::Unknown(_) | StoreError::WrongState { .. }) => {}
                    done => done?,
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(())
}
