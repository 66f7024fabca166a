//! Which jobs a command is about: ids, the beginnings of ids, and filters.

use std::collections::HashSet;

use sandtimer_jobs::job::{Filter, JobLine, JobStore, ShownState, StoreError, each_open};

use super::text;
use crate::args::jobs::OpenJobs;
use crate::commands::CommandFailure;

/// The shortest beginning of an id.
const MIN_PREFIX: usize = 4;
/// Jobs that a message names at most.
const MAX_CANDIDATES: usize = 5;

/// The id of the one job that is meant by an id or the beginning of one.
///
/// # Errors
/// No job has it, several have, or it is too short.
pub(super) fn resolve(store: &dyn JobStore, given: &str) -> Result<String, CommandFailure> {
    let found = store.find(given, MAX_CANDIDATES + 1)?;
    match &found[..] {
        // The one whose id it is comes first.
        [first, ..] if first.id == given => Ok(first.id.clone()),
        _ if given.chars().count() < MIN_PREFIX => Err(CommandFailure::usage(format!(
            "`{given}` is too short for the beginning of a job's id; use {MIN_PREFIX} characters or more of it"
        ))),
        [one] => Ok(one.id.clone()),
        [] => Err(StoreError::Unknown(given.to_owned()).into()),
        several => Err(CommandFailure::usage(ambiguous(given, several))),
    }
}

fn ambiguous(given: &str, several: &[JobLine]) -> String {
    let name = |line: &JobLine| {
        let name: String = line.name.chars().map(text::visible).take(40).collect();
        format!("{} ({name}, {})", line.id, text::state(line))
    };
    let named: Vec<String> = several.iter().take(MAX_CANDIDATES).map(name).collect();
    let more = if several.len() > MAX_CANDIDATES { " and others" } else { "" };
    format!(
        "`{given}` is the beginning of several jobs' ids; use more characters of one: {}{more}",
        named.join(", ")
    )
}

/// The same of several, each job once.
pub(super) fn resolve_all(store: &dyn JobStore, given: &[String]) -> Result<Vec<String>, CommandFailure> {
    let ids = given.iter().map(|one| resolve(store, one)).collect::<Result<Vec<_>, _>>()?;
    Ok(each_once(ids))
}

/// The jobs that are named, or those that the filter matches now.
pub(super) fn open(store: &dyn JobStore, given: &OpenJobs) -> Result<Vec<String>, CommandFailure> {
    if !given.ids.is_empty() {
        return resolve_all(store, &given.ids);
    }
    store.sweep()?;
    let mut ids = Vec::new();
    each_open(store, &of_queue(given.queue.as_ref()), given.state, &mut |line| {
        ids.push(line.id.clone());
        Ok(())
    })?;
    // A job that left its state during the listing may be in the next state's as well.
    Ok(each_once(ids))
}

fn each_once(mut ids: Vec<String>) -> Vec<String> {
    let mut known = HashSet::new();
    ids.retain(|id| known.insert(id.clone()));
    ids
}

/// The jobs of one queue, or of all.
pub(super) fn of_queue(queue: Option<&String>) -> Filter {
    Filter { queue: queue.cloned(), ..Filter::default() }
}

/// The same in one state, if one is named.
pub(super) fn filter(queue: Option<&String>, shown: Option<ShownState>) -> Filter {
    of_queue(queue).shown(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_prefix_lists_up_to_five_jobs() {
        let line = |id: &str| JobLine {
            id: id.to_owned(),
            name: "a\nname".to_owned(),
            queue: "default".to_owned(),
            priority: 0,
            state: sandtimer_jobs::job::JobState::Queued,
            ok: None,
            error: None,
            submitted_ms: 0,
            due_ms: 0,
            deadline_ms: None,
            leased_ms: None,
            ended_ms: None,
            deliveries: 0,
            worker: None,
            cancel: None,
            waiting_for: 0,
        };
        let lines = ["ab1", "ab2", "ab3", "ab4", "ab5", "ab6"].map(line);
        let all = ambiguous("ab", &lines);
        assert!(
            all.contains("ab1 (a name, queued), ") && all.ends_with("ab5 (a name, queued) and others"),
            "{all}"
        );
        let two = ambiguous("ab", &lines[..2]);
        assert!(two.ends_with("one: ab1 (a name, queued), ab2 (a name, queued)"), "{two}");
    }
}
