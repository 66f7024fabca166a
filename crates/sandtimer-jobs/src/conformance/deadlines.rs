//! What every store of jobs must do with deadlines that pass before a job is leased.

use std::time::Duration;

use serde_json::json;

use super::{ConformancePart, LONG_LEASE};
use crate::job::{FinishResult, JobLease, JobState, JobStatus, Submission};
pub(super) fn a_deadline_that_passes_in_the_queue_ends_the_job_there(part: &ConformancePart<'_>) {
    let never = part.submit(json!({"wall_ms": 100}));
    let begun = part.submit(json!({"wall_ms": 100, "queue": "overdue-begun"}));
    let leased = part.lease_from(&["overdue-begun"], 1, Duration::from_millis(50));
    assert_eq!(leased.len(), 1);
    (part.pass)(Duration::from_millis(130));
    assert!(part.lease(9).is_empty() && part.lease_from(&["overdue-begun"], 9, LONG_LEASE).is_empty());
    for (id, expected) in [
        (never, "no worker had started it"),
        (begun, "a worker had leased it before, and returned no result"),
    ] {
        let result = part.get(&id).result.expect("a result");
        let verdict = result.verdict.expect("a verdict");
        assert_eq!(result.status, JobStatus::Timeout);
        let facts = (json!(verdict.layer), json!(verdict.phase), verdict.limit_ms);
        assert_eq!(facts, (json!("job"), json!("queued"), Some(100)));
        assert!(verdict.sentence.contains(expected), "{}", verdict.sentence);
    }
}

pub(super) fn overdue_jobs_are_never_leased(part: &ConformancePart<'_>) {
    let batch: Vec<Submission> = (0..600).map(|_| part.submission(json!({"wall_ms": 300}))).collect();
    let jobs = part.store.submit(&batch).expect("submitted");
    (part.pass)(Duration::from_millis(350));
    assert!(part.lease(700).is_empty() && part.lease(700).is_empty());
    assert!(jobs.iter().all(|job| part.state(&job.id) == JobState::Ended));
}

/// What is known of a command is what those took that are like it, all of it but when they were
/// done, and of one owner.
pub(super) fn what_cannot_be_done_any_more_is_not_begun(part: &ConformancePart<'_>) {
    let of =
        |argument: &str, wall_ms: u64| part.submit(json!({"command": ["a", argument], "wall_ms": wall_ms}));
    for name in ["one", "two", "three", "four", "five"] {
        part.submit(json!({"command": ["a", "known"], "name": name, "wall_ms": 60_000}));
    }
    let held: Vec<JobLease> = part.lease(5).into_iter().map(|leased| leased.held).collect();
    (part.pass)(Duration::from_secs(3));
    held[..4]
        .iter()
        .for_each(|held| assert_eq!(part.finish(held, JobStatus::Ok, false), FinishResult::Recorded));
    let wait = || (part.pass)(Duration::from_millis(1_500));
    let too_few = of("known", 4_000);
    wait();
    assert_eq!(part.ids(9), [too_few]);
    part.finish(&held[4], JobStatus::Ok, false);
    let (late, unknown) = (of("known", 4_000), of("unknown", 4_000));
    wait();
    // A job whose whole time is shorter is executed within that time.
    let short = of("known", 2_500);
    assert_eq!(part.ids(9), [unknown, short]);
    let result = part.get(&late).result.expect("a result");
    let verdict = result.verdict.expect("a verdict");
    assert_eq!((result.status, json!(verdict.phase)), (JobStatus::Timeout, json!("queued")));
    assert!(
        verdict.sentence.contains("s were left, and no similar job has taken less than"),
        "{}",
        verdict.sentence
    );
    assert_eq!(part.get(&late).line.deliveries, 0);
}
