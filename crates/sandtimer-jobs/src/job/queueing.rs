//! The relations of a job to other jobs: how many with one key run at the same time, how many start
//! in a period, and which have to end before.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{SpecError, missing};
use super::files::check_path;
use super::table::{SpecTable, refused};

/// Jobs that one may wait for.
const MAX_AFTER: usize = 10_000;
/// A period is longer than what workers need to find a job.
const MIN_RATE_PERIOD: Duration = Duration::from_secs(1);
const MAX_RATE_PERIOD: Duration = Duration::from_secs(24 * 3600);
/// Starts of a period that a store remembers.
const MAX_RATE: u32 = 10_000;

/// The largest number of ids in [`JobBlocker::Jobs`].
pub const MAX_BLOCKING_JOBS: usize = 20;

/// A reason why no worker can lease a scheduled or queued job now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum JobBlocker {
    /// Its queue is paused.
    QueuePaused {
        /// The name of the queue.
        queue: String,
    },
    /// Jobs of its `after` have not ended.
    Jobs {
        /// The ids of the first [`MAX_BLOCKING_JOBS`] of them.
        ids: Vec<String>,
        /// The number of all of them.
        count: u64,
    },
    /// Its start, or the pause before its next attempt, is in the future.
    NotBefore {
        /// Milliseconds since 1970.
        at_ms: u64,
    },
    /// Its rate key is used up.
    Rate {
        /// The rate key.
        key: String,
        /// When the next job with the key may start, in milliseconds since 1970; `None` if that is
        /// not known.
        at_ms: Option<u64>,
    },
    /// Its concurrency key is used up.
    Concurrency {
        /// The concurrency key.
        key: String,
    },
    /// A run of it may have more memory than any live worker of its queue has.
    Memory {
        /// The memory of the run.
        bytes: u64,
        /// The memory of the worker that has most of it.
        largest_bytes: u64,
    },
    /// No live worker takes jobs from its queue.
    NoWorker {
        /// The name of the queue.
        queue: String,
    },
    /// No live worker of its queue has all the handlers that it names.
    NoHandler {
        /// The names of the handlers, sorted.
        handlers: Vec<String>,
    },
    /// The worker that had it last could not read its spec, and returned it.
    UnreadableSpec(UnreadableSpec),
}

/// A spec that a worker cannot read, because a later version has written it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableSpec {
    /// The name of the worker.
    pub worker: String,
    /// The version of the worker's program.
    pub version: String,
    /// The path of the field that the worker does not know.
    pub field: String,
    /// Why the field was rejected.
    pub problem: String,
}

/// At most `most` jobs with this key run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// Jobs of one owner with the same key count together.
    pub key: String,
    /// The number of jobs, at least 1; by default 1.
    pub most: u32,
}

impl Concurrency {
    pub(super) fn read(table: &mut SpecTable) -> Result<Option<Self>, SpecError> {
        let Some(mut inner) = table.table("concurrency")? else { return Ok(None) };
        let (path, most) = (inner.at("key"), inner.small("most", 1)?.unwrap_or(1));
        let key = inner.name("key")?;
        let key = key.ok_or_else(|| missing(&path, "a string; jobs with the same one count together"))?;
        inner.done()?;
        Ok(Some(Concurrency { key, most }))
    }
}

/// At most `most` jobs with this key start in any `per_ms` milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// Jobs of one owner with the same key count together.
    pub key: String,
    /// The number of starts, 1 to 10,000. Each delivery of a job is a start.
    pub most: u32,
    /// The period in milliseconds, from 1 s to 24 h; by default 1 s.
    pub per_ms: u64,
}

impl RateLimit {
    /// Reads `rate`: `{ key, most, per_ms }`.
    pub(super) fn read(table: &mut SpecTable) -> Result<Option<Self>, SpecError> {
        let Some(mut inner) = table.table("rate")? else { return Ok(None) };
        let (key_path, most_path, per_path) = (inner.at("key"), inner.at("most"), inner.at("per_ms"));
        let key = inner.name("key")?;
        let key = key.ok_or_else(|| missing(&key_path, "a string; jobs with the same one count together"))?;
        let most = inner.small("most", 1)?;
        let most = most.ok_or_else(|| missing(&most_path, "how many jobs start in the time of `per_ms`"))?;
        let per = inner.time("per_ms")?.unwrap_or(Duration::from_secs(1));
        inner.done()?;
        if !(MIN_RATE_PERIOD..=MAX_RATE_PERIOD).contains(&per) {
            return Err(refused(&per_path, &(per.as_millis() as u64).into(), "1s to 24h"));
        }
        if most > MAX_RATE {
            return Err(refused(&most_path, &most.into(), "1 to 10000; for more, use a shorter `per_ms`"));
        }
        Ok(Some(RateLimit { key, most, per_ms: per.as_millis() as u64 }))
    }
}

/// The jobs that must have ended before a job starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct After {
    /// Ids of the store, or names of jobs that are submitted together with it.
    pub jobs: Vec<String>,
    /// It starts even if one of those did not succeed; otherwise it is cancelled then.
    pub runs_after_failure: bool,
    /// The path, below its directory, of a file with their results; by default there is none.
    pub results: Option<String>,
}

/// Reads `after`, `after_failure` and `after_results`.
pub(super) fn after(table: &mut SpecTable) -> Result<After, SpecError> {
    let (path, failure_path) = (table.at("after"), table.at("after_failure"));
    let results_path = table.at("after_results");
    let after = table.strings("after")?.unwrap_or_default();
    if after.len() > MAX_AFTER {
        let problem = format!("has {} jobs; use at most {MAX_AFTER}", after.len());
        return Err(SpecError { path, problem });
    }
    let runs = match table.string("after_failure")?.as_deref() {
        None | Some("cancel") => false,
        Some("run") if after.is_empty() => {
            let problem = "has no effect without `after`; name the jobs there, or leave it out";
            return Err(SpecError { path: failure_path, problem: problem.to_owned() });
        }
        Some("run") => true,
        Some(other) => return Err(refused(&failure_path, &other.into(), "`cancel` or `run`")),
    };
    let results = table.string("after_results")?;
    if let Some(results) = &results {
        let refuse = |problem: String| SpecError { path: results_path.clone(), problem };
        if after.is_empty() {
            return Err(refuse(
                "has no effect without `after`; name the jobs there, or leave it out".to_owned(),
            ));
        }
        check_path(results).map_err(|problem| refuse(format!("{results:?} {problem}")))?;
    }
    Ok(After { jobs: after, runs_after_failure: runs, results })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::spec::JobSpec;
    use super::*;

    fn spec(more: Value) -> Result<JobSpec, SpecError> {
        let mut source = json!({"command": ["true"]});
        source.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
        JobSpec::read(source)
    }

    #[test]
    fn malformed_values_are_refused() {
        let many: Vec<String> = (0..=MAX_AFTER).map(|number| number.to_string()).collect();
        for (more, path, part) in [
            (json!({"rate": 5}), "rate", "a table"),
            (json!({"rate": {"most": 5}}), "rate.key", "is missing"),
            (json!({"rate": {"key": "k"}}), "rate.most", "is missing"),
            (json!({"rate": {"key": "k", "most": 0}}), "rate.most", "from 1 to"),
            (json!({"rate": {"key": "k", "most": -1}}), "rate.most", "from 1 to"),
            (json!({"rate": {"key": "k", "most": 1, "per_ms": 0}}), "rate.per_ms", "0"),
            (json!({"rate": {"key": "k", "most": 1, "per_ms": "48h"}}), "rate.per_ms", "1s to 24h"),
            (json!({"rate": {"key": "k", "most": 1, "per_ms": 10}}), "rate.per_ms", "1s to 24h"),
            (json!({"rate": {"key": "k", "most": 20_000}}), "rate.most", "1 to 10000"),
            (json!({"rate": {"key": "k", "most": 1, "burst": 3}}), "rate.burst", "unknown field"),
            (json!({"after": "0123456789ab"}), "after", "a list of texts"),
            (json!({"after": [5]}), "after", "a list of texts"),
            (json!({"after": many}), "after", "at most 10000"),
            (json!({"after": ["a"], "after_failure": "go"}), "after_failure", "`cancel` or `run`"),
            (json!({"after_failure": "run"}), "after_failure", "no effect without `after`"),
            (json!({"after_results": "r.json"}), "after_results", "no effect without `after`"),
            (json!({"after": ["a"], "after_results": "../r"}), "after_results", "not a plain path"),
            (json!({"after": ["a"], "after_results": "r", "inputs": {"r": "x"}}), "after_results", "inputs"),
            (json!({"release_on_failure": true}), "release_on_failure", "idempotency_key"),
        ] {
            let error = spec(more.clone()).expect_err("refused");
            assert_eq!(error.path, path, "{more}: {error}");
            assert!(error.problem.contains(part), "{more}: {error}");
        }
    }
}
