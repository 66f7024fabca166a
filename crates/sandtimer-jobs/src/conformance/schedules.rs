//! What every store of jobs must do with schedules.

use std::time::Duration;

use crate::job::{JobState, JobStatus, LOCAL_OWNER, MAX_SCHEDULES, ScheduleRecord, ScheduleSpec, StoreError};
use serde_json::{Value, json};

use super::ConformancePart;

/// A little more than the interval of the schedules here.
const INTERVAL: Duration = Duration::from_millis(1_050);

fn spec(part: &ConformancePart<'_>, more: Value) -> ScheduleSpec {
    let mut source = json!({"name": part.name, "every_ms": 1_000, "job": {"command": ["true"]}});
    source.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
    ScheduleSpec::read(source).expect("a valid schedule")
}

fn put(part: &ConformancePart<'_>, more: Value) -> ScheduleRecord {
    part.store.put_schedule(part.name, part.name, &spec(part, more)).expect("stored")
}

fn record(part: &ConformancePart<'_>) -> ScheduleRecord {
    part.store.schedules(Some(part.name)).expect("listed").remove(0)
}

fn remove(part: &ConformancePart<'_>) {
    assert!(part.store.remove_schedule(part.name, part.name).expect("removed"));
}

pub(super) fn moment_submits_one_job(part: &ConformancePart<'_>) {
    // Long enough that a machine that stops for a moment misses none.
    let stored = put(part, json!({"every_ms": 3_000}));
    assert_eq!((stored.submitted, stored.last_job.as_deref()), (0, None));
    assert!(part.lease(5).is_empty(), "it is due after its interval");
    let due = stored.next_ms.expect("a moment");
    (part.pass)(Duration::from_millis(3_050));
    let leased = part.lease(5);
    assert_eq!(leased.len(), 1);
    assert_eq!(leased[0].spec["name"], part.name);
    assert_eq!(leased[0].spec["scheduled"], json!({"schedule": part.name, "moment_ms": due}));
    let after = record(part);
    assert_eq!((after.submitted, after.skipped, after.last_ms), (1, 0, Some(due)));
    assert_eq!(after.last_job.as_deref(), Some(leased[0].held.id.as_str()));
    assert_eq!(after.last_state, Some(JobState::Leased));
    assert_eq!(after.next_ms, Some(due + 3_000));
    remove(part);
    assert!(!part.store.remove_schedule(part.name, part.name).expect("asked"), "it is gone");
    assert_eq!(part.store.schedules(Some(part.name)).expect("listed"), []);
    assert_eq!(part.state(&leased[0].held.id), JobState::Leased, "its jobs stay");
}

pub(super) fn moment_is_skipped_while_the_job_before_runs(part: &ConformancePart<'_>) {
    put(part, json!({}));
    (part.pass)(INTERVAL);
    let first = part.lease(5).remove(0);
    (part.pass)(INTERVAL);
    assert!(part.lease(5).is_empty());
    let during = record(part);
    assert_eq!(during.submitted, 1);
    assert!(during.skipped >= 1, "{during:?}");
    part.finish(&first.held, JobStatus::Ok, false);
    (part.pass)(INTERVAL);
    assert_eq!(part.lease(5).len(), 1);
    remove(part);
}

pub(super) fn queued_overlap_runs_one_at_a_time(part: &ConformancePart<'_>) {
    put(part, json!({"overlap": "queue"}));
    (part.pass)(INTERVAL);
    let first = part.lease(5).remove(0);
    (part.pass)(INTERVAL);
    assert!(part.lease(5).is_empty());
    assert!(record(part).submitted >= 2);
    part.finish(&first.held, JobStatus::Ok, false);
    assert_eq!(part.lease(5).len(), 1);
    remove(part);
}

pub(super) fn missed_moments_follow_their_policy(part: &ConformancePart<'_>) {
    let due = put(part, json!({})).next_ms.expect("a moment");
    (part.pass)(INTERVAL * 3);
    assert_eq!(part.lease(5).len(), 1, "one job stands for all that were missed");
    let after = record(part);
    assert_eq!(after.submitted, 1);
    assert!(after.skipped >= 2, "{after:?}");
    let last = after.last_ms.expect("a moment");
    assert_eq!((last > due, (last - due) % 1_000), (true, 0), "the last one, with no drift");
    remove(part);

    put(part, json!({"missed": "all", "overlap": "allow"}));
    (part.pass)(INTERVAL * 3);
    let mut jobs = 0;
    while part.lease(5).len() + record(part).submitted as usize > jobs {
        jobs = record(part).submitted as usize;
    }
    assert!(jobs >= 3, "each moment has its job: {jobs}");
    assert_eq!(record(part).skipped, 0);
    remove(part);
}

pub(super) fn stored_again_keeps_its_next_moment(part: &ConformancePart<'_>) {
    let first = put(part, json!({"every_ms": 60_000}));
    let again = put(part, json!({"every_ms": 60_000, "job": {"command": ["false"]}}));
    assert_eq!((again.next_ms, again.created_ms), (first.next_ms, first.created_ms));
    assert_eq!(again.spec["job"]["command"], json!(["false"]));
    let other = put(part, json!({"every_ms": 120_000}));
    assert!(other.next_ms > first.next_ms, "{other:?}");
    assert_eq!(put(part, json!({"every_ms": 120_000, "paused": true})).next_ms, None);
    assert!(put(part, json!({"every_ms": 120_000, "paused": false})).next_ms.is_some());
    remove(part);
}

pub(super) fn paused_schedule_submits_nothing(part: &ConformancePart<'_>) {
    let pause = |paused| part.store.pause_schedule(part.name, part.name, paused).expect("asked");
    assert_eq!(pause(true), None, "there is no such schedule");
    let due = put(part, json!({"missed": "all", "overlap": "allow"})).next_ms.expect("a moment");
    let paused = pause(true).expect("there");
    assert_eq!((paused.next_ms, &paused.spec["paused"]), (None, &json!(true)));
    assert_eq!(pause(true).as_ref(), Some(&paused));
    assert_eq!(part.store.pause_schedule("another owner", part.name, false).expect("asked"), None);
    (part.pass)(INTERVAL * 2);
    assert!(part.lease(5).is_empty());
    // Stored again without `paused`, as a deployment does.
    let again = put(part, json!({"missed": "all", "overlap": "allow", "job": {"command": ["false"]}}));
    assert_eq!((again.next_ms, &again.spec["paused"]), (None, &json!(true)));
    (part.pass)(INTERVAL);
    assert!(part.lease(5).is_empty());
    let now = part.store.calendar_ms();
    let resumed = pause(false).expect("there");
    let next = resumed.next_ms.expect("a moment");
    assert!(next >= now && next > due + 2_000, "{resumed:?}");
    assert_eq!(
        (&resumed.spec["paused"], resumed.spec["job"]["command"][0].as_str()),
        (&json!(false), Some("false"))
    );
    assert_eq!(pause(false).expect("there").next_ms, Some(next), "it stays due");
    (part.pass)(INTERVAL);
    let leased = part.lease(5);
    assert_eq!(leased[0].spec["scheduled"]["moment_ms"], next, "no moment of the pause has a job");
    assert_eq!(record(part).skipped, 0);
    for job in &leased {
        part.finish(&job.held, JobStatus::Ok, false);
    }
    remove(part);
}

pub(super) fn removed_and_stored_again_stays_single(part: &ConformancePart<'_>) {
    put(part, json!({}));
    (part.pass)(INTERVAL);
    let first = part.lease(5).remove(0);
    remove(part);
    let again = put(part, json!({"job": {"command": ["false"]}}));
    assert_eq!(again.last_job.as_ref(), Some(&first.held.id), "{again:?}");
    assert_eq!((again.last_state, again.submitted), (Some(JobState::Leased), 0));
    (part.pass)(INTERVAL);
    assert!(part.lease(5).is_empty(), "the job of the removed schedule has not finished");
    assert!(record(part).skipped >= 1);
    // Removed twice: the job is still known.
    remove(part);
    put(part, json!({}));
    remove(part);
    part.finish(&first.held, JobStatus::Ok, false);
    let fresh = put(part, json!({}));
    assert_eq!((fresh.last_job, fresh.last_ms), (None, None), "that job has finished");
    (part.pass)(INTERVAL);
    let next = part.lease(5).remove(0);
    part.finish(&next.held, JobStatus::Ok, false);
    remove(part);
}

pub(super) fn schedule_is_its_owners_and_bounded(part: &ConformancePart<'_>) {
    let put = |owner: &str, name: &str| {
        part.store.put_schedule(owner, part.name, &spec(part, json!({"name": name, "every_ms": 3_600_000})))
    };
    put("bounded a", "same").expect("stored");
    put("bounded b", "same").expect("stored");
    assert!(!part.store.remove_schedule("bounded c", "same").expect("asked"));
    assert!(part.store.remove_schedule("bounded b", "same").expect("removed"));
    assert_eq!(part.store.schedules(Some("bounded a")).expect("listed").len(), 1);
    let all = part.store.schedules(None).expect("listed");
    assert!(all.iter().any(|record| record.owner == "bounded a"), "{all:?}");
    for number in 1..MAX_SCHEDULES {
        put("bounded a", &number.to_string()).expect("stored");
    }
    assert!(matches!(put("bounded a", "more"), Err(StoreError::Schedules { .. })));
    put("bounded a", "7").expect("one that is there can be replaced");
    put(LOCAL_OWNER, "bounded").expect("stored");
    assert!(part.store.remove_schedule(LOCAL_OWNER, "bounded").expect("removed"));
}

pub(super) fn impossible_day_is_refused(part: &ConformancePart<'_>) {
    let never = json!({"name": "never", "cron": "0 0 30 2 *", "job": {"command": ["true"]}});
    let never = ScheduleSpec::read(never).expect("well formed");
    match part.store.put_schedule(part.name, part.name, &never) {
        Err(StoreError::Spec(error)) => assert_eq!(error.path, "cron"),
        other => panic!("{other:?}"),
    }
}
