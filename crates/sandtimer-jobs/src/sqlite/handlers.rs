//! Which jobs a worker has the handlers for.
//!
//! `jobs.handlers` is the list of a job's handlers. The index of what can be leased is by queue and
//! then by this list, so that a worker reads only jobs that it can execute, however many others
//! wait.

use crate::job::StoreError;
use rusqlite::Transaction;

use super::values::{broken, unreadable};

/// The list of a job's handlers as it is stored; empty without any.
pub(super) fn list_to_json(handlers: &[String]) -> Result<String, StoreError> {
    match handlers {
        [] => Ok(String::new()),
        some => serde_json::to_string(some).map_err(unreadable),
    }
}

/// The handlers of a stored list.
pub(super) fn list_from_json(stored: &str) -> Result<Vec<String>, StoreError> {
    match stored {
        "" => Ok(Vec::new()),
        list => serde_json::from_str(list).map_err(unreadable),
    }
}

/// Returns the lists of the jobs that can be leased from a queue by a worker with these handlers.
/// The first is that of jobs without handlers.
///
/// Lists that name other handlers cost nothing, however many there are.
pub(super) fn leasable_lists(
    tx: &Transaction<'_>,
    queue: &str,
    handlers: &[String],
) -> Result<Vec<String>, StoreError> {
    let mut leasable = vec![String::new()];
    // Most queues have no job that needs a handler.
    if !handlers.is_empty() && has_list_between(tx, queue, "[", "\\")? {
        let mut sorted = handlers.to_vec();
        sorted.sort();
        add_lists(tx, queue, "[", &sorted, &mut leasable)?;
    }
    Ok(leasable)
}

/// Adds the lists that begin with `start`, which ends before a name, and continue with some of
/// these handlers, in their order.
fn add_lists(
    tx: &Transaction<'_>,
    queue: &str,
    start: &str,
    handlers: &[String],
    leasable: &mut Vec<String>,
) -> Result<(), StoreError> {
    for (index, handler) in handlers.iter().enumerate() {
        let longer = start.to_owned() + &serde_json::to_string(handler).map_err(unreadable)?;
        // What begins with this name, whose last character is the quotation mark, comes before the
        // text with the next character there.
        let after = format!("{}#", &longer[..longer.len() - 1]);
        if !has_list_between(tx, queue, &longer, &after)? {
            continue;
        }
        let list = format!("{longer}]");
        if has_list_between(tx, queue, &list, &format!("{longer}^"))? {
            leasable.push(list);
        }
        add_lists(tx, queue, &format!("{longer},"), &handlers[index + 1..], leasable)?;
    }
    Ok(())
}

/// Whether a job can be leased from a queue whose list is at least `first`, and before `end`.
fn has_list_between(tx: &Transaction<'_>, queue: &str, first: &str, end: &str) -> Result<bool, StoreError> {
    let select = "SELECT 1 FROM jobs INDEXED BY jobs_ready WHERE state = 1 AND ready = 1 AND queue = ?1
        AND handlers >= ?2 AND handlers < ?3 LIMIT 1";
    let mut select = tx.prepare_cached(select).map_err(broken)?;
    select.exists((queue, first, end)).map_err(broken)
}
