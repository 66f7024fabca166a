//! Which jobs a worker has the handlers for.
//!
//! `jobs.handlers` is the list of a job's handlers. The index of what can be leased is by queue and
//! then by this list, so that a worker reads only jobs that it can execute, however many others
//! wait. Which lists there are is found by one step in the index for each.

use crate::job::StoreError;
use rusqlite::{OptionalExtension, Transaction};

use super::values::{broken, unreadable};

/// The list of a job's handlers as it is stored; empty without any.
pub(super) fn stored(handlers: &[String]) -> Result<String, StoreError> {
    match handlers {
        [] => Ok(String::new()),
        some => serde_json::to_string(some).map_err(unreadable),
    }
}

/// The handlers of a stored list.
pub(super) fn listed(stored: &str) -> Result<Vec<String>, StoreError> {
    match stored {
        "" => Ok(Vec::new()),
        list => serde_json::from_str(list).map_err(unreadable),
    }
}

/// The lists of handlers, of jobs that can be leased from a queue, of which a worker with these
/// handlers has each. The empty one is first.
pub(super) fn within(
    tx: &Transaction<'_>,
    queue: &str,
    handlers: &[String],
) -> Result<Vec<String>, StoreError> {
    let mut within = vec![String::new()];
    let select =
        "SELECT handlers FROM jobs INDEXED BY jobs_ready WHERE state = 1 AND ready = 1 AND queue = ?1
        AND handlers > ?2 ORDER BY handlers LIMIT 1";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    for first in handlers {
        // The lists that begin with this handler, without the bracket or comma that follows it.
        let start = stored(std::slice::from_ref(first))?;
        let start = start.trim_end_matches(']').to_owned();
        let mut last = start.clone();
        loop {
            let found: Option<String> =
                select.query_row((queue, &last), |row| row.get(0)).optional().map_err(broken)?;
            let Some(list) = found.filter(|list| list.starts_with(&start)) else { break };
            if listed(&list)?.iter().all(|needed| handlers.contains(needed)) {
                within.push(list.clone());
            }
            last = list;
        }
    }
    Ok(within)
}
