//! Every sentence of a job's verdict, composed of the values of examples, for `spec/sentences.md`.

use sandtimer::model::Layer;
use sandtimer_agents::loop_guard::REASONS;

use super::result::JobSpent;
use super::sentences::{JobActivity, loop_limit, overdue, too_late, wall};

/// Returns the sentences.
pub fn sentences() -> Vec<String> {
    let activities = [
        JobActivity::BetweenTurns,
        JobActivity::BeforeCall("fetch"),
        JobActivity::BeforeAttempt("fetch"),
        JobActivity::InAttempt("fetch"),
        JobActivity::BetweenAttempts("fetch"),
    ];
    let mut sentences = Vec::new();
    for layer in [Layer::Job, Layer::Loop] {
        sentences.extend(activities.map(|activity| wall(layer, 24_000, activity)));
    }
    // These end an attempt only: the job continues.
    for layer in [Layer::Turn, Layer::Call] {
        sentences.push(wall(layer, 24_000, JobActivity::InAttempt("fetch")));
    }
    sentences.extend(REASONS.map(|what| loop_limit(15, what)));
    sentences.extend([overdue(24_000, 0), overdue(24_000, 2), too_late(24_000, 2_000, 4_500)]);
    let spent = JobSpent {
        queued_ms: 250,
        attempts_ms: 20_000,
        backoff_ms: 3_000,
        attempts: 20,
        ..JobSpent::default()
    };
    let again = JobSpent { earlier_ms: 8_000, attempts_ms: 12_000, ..spent };
    for spent in [spent, JobSpent { driver_ms: 750, attempts: 1, ..spent }, again] {
        sentences.push(wall(Layer::Job, 24_000, JobActivity::InAttempt("fetch")) + &spent.sentence());
    }
    sentences
}
