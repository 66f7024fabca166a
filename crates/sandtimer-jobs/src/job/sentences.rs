//! The sentences of jobs' verdicts. `spec/sentences.md` has each of them with the values of
//! examples.

use sandtimer::model::{Layer, time};

/// What a job was doing when a limit of its own ended it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum JobActivity<'a> {
    BetweenTurns,
    BeforeCall(&'a str),
    BeforeAttempt(&'a str),
    InAttempt(&'a str),
    BetweenAttempts(&'a str),
}

impl JobActivity<'_> {
    fn describe(self) -> String {
        match self {
            JobActivity::BetweenTurns => "between turns".to_owned(),
            JobActivity::BeforeCall(name) => format!("before `{name}`"),
            JobActivity::BeforeAttempt(name) => format!("before an attempt of `{name}`"),
            JobActivity::InAttempt(name) => {
                format!("in an attempt of `{name}`; everything it had started is dead")
            }
            JobActivity::BetweenAttempts(name) => format!("in a pause between attempts of `{name}`"),
        }
    }
}

/// `the job's wall limit of 24 s`
pub(crate) fn wall_limit(layer: Layer, limit_ms: u64) -> String {
    format!("the {}'s wall limit of {}", format!("{layer:?}").to_lowercase(), time(limit_ms))
}

/// A wall limit of the job's spec ended a part of the job.
pub(crate) fn wall(layer: Layer, limit_ms: u64, activity: JobActivity<'_>) -> String {
    format!("Stopped by {} (set by the job's spec), {}.", wall_limit(layer, limit_ms), activity.describe())
}

/// A loop has reached a limit of its spec.
pub(crate) fn loop_limit(limit: u32, what: &str) -> String {
    format!("Stopped by the loop's limit of {limit} {what} (set by the job's spec).")
}

/// The deadline of a job passed while it was queued.
pub(super) fn overdue(limit_ms: u64, deliveries: u32) -> String {
    queued(
        limit_ms,
        match deliveries {
            0 => "no worker had started it",
            _ => "a worker had leased it before, and returned no result",
        },
    )
}

/// A queued job had less time left than any similar job has taken.
pub(super) fn too_late(limit_ms: u64, left_ms: u64, shortest_ms: u64) -> String {
    let (left, shortest) = (time(left_ms), time(shortest_ms));
    queued(limit_ms, &format!("{left} were left, and no similar job has taken less than {shortest}"))
}

fn queued(limit_ms: u64, why: &str) -> String {
    format!(
        "Stopped by {} (set by the job's spec), while it was queued: {why}.",
        wall_limit(Layer::Job, limit_ms)
    )
}
