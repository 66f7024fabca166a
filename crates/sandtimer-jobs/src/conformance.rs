//! What every store of jobs must do, as one function over the trait. Each part uses queues, keys
//! and owners of its own, so that it may be run on a store that has jobs already.

mod breakers;
mod deadlines;
mod finding;
mod logs;
mod queueing;
mod schedules;
pub(crate) mod versions;
mod webhooks;
mod workers;

use std::time::Duration;

use crate::job::{
    CancelResult, Delivery, FILE_PIECE, FileOf, Filter, Finish, FinishResult, JobAssignment, JobLease,
    JobRecord, JobResult, JobSpec, JobState, JobStatus, JobStore, LOCAL_OWNER, LeaseRequest, MAX_QUEUES,
    Renewal, Room, StoreError, Submission, WebhookShares,
};
use serde_json::{Value, json};

const LONG_LEASE: Duration = Duration::from_secs(60);

/// Runs every part. `pass` lets this much time pass on the store's clock.
///
/// # Panics
/// When the store does not do what it must.
pub(crate) fn check(store: &dyn JobStore, pass: &dyn Fn(Duration)) {
    let of = |name: &'static str| ConformancePart { store, pass, name };
    a_job_from_submission_to_its_result(&of("plain"));
    a_batch_is_taken_whole_or_not_at_all(&of("batch"));
    an_idempotency_key_is_one_job(&of("idempotent"));
    priority_is_a_head_start_without_starvation(&of("priority"));
    queues_take_turns(&of("turns"));
    a_stream_in_one_queue_keeps_no_other_waiting(&of("stream"));
    key_limits_concurrent_jobs(&of("concurrency"));
    key_is_free_after_waiters_pass_their_deadlines(&of("key"));
    what_is_scheduled_waits_for_its_moment(&of("scheduled"));
    a_delay_counts_from_the_submission_on_the_stores_clock(&of("delayed"));
    a_lost_lease_is_fenced(&of("fence"));
    job_is_dead_after_max_deliveries_until_retried(&of("dead"));
    draining_worker_costs_no_delivery(&of("drained"));
    workers::returned_job_waits_for_its_pause(&of("returned job"));
    deadlines::a_deadline_that_passes_in_the_queue_ends_the_job_there(&of("overdue"));
    deadlines::overdue_jobs_are_never_leased(&of("all overdue"));
    deadlines::what_cannot_be_done_any_more_is_not_begun(&of("too late"));
    a_cancel_reaches_every_state(&of("cancel"));
    a_paused_queue_hands_out_nothing(&of("paused"));
    a_log_is_read_by_position(&of("log"));
    logs::log_keeps_the_time_of_each_piece(&of("times"));
    files_are_kept_in_pieces_and_fenced(&of("files"));
    webhooks::ends_are_sent_until_acknowledged(&of("webhooks"));
    webhooks::webhooks_are_shared_out_among_owners(&of("shares"));
    webhooks::returned_webhook_counts_no_attempt_and_keeps_its_error(&of("returned"));
    webhooks::paused_destinations_hide_no_other_webhook(&of("hidden"));
    webhooks::webhook_outlives_its_jobs_record(&of("outlives"));
    webhooks::webhook_sends_the_ends_that_it_names(&of("events"));
    webhooks::webhook_is_redelivered_by_hand(&of("redelivered"));
    listing_continues_after_its_cursor(&of("list"));
    finding::jobs_are_found_by_the_beginning_of_their_ids(&of("find"));
    finding::filter_acts_on_all_that_it_matches(&of("matching"));
    ended_jobs_are_purged_and_forgotten(&of("purge"));
    memory_admits_what_fits_and_keeps_room_for_who_waits(&of("memory"));
    queues_per_owner_are_limited(&of("queues"));
    schedules::moment_submits_one_job(&of("recurring"));
    schedules::moment_is_skipped_while_the_job_before_runs(&of("recurring single"));
    schedules::queued_overlap_runs_one_at_a_time(&of("recurring queue"));
    schedules::missed_moments_follow_their_policy(&of("recurring missed"));
    schedules::stored_again_keeps_its_next_moment(&of("recurring again"));
    schedules::paused_schedule_submits_nothing(&of("recurring paused"));
    schedules::removed_and_stored_again_stays_single(&of("recurring removed"));
    schedules::schedule_is_its_owners_and_bounded(&of("recurring owners"));
    schedules::impossible_day_is_refused(&of("recurring never"));
    queueing::rate_bounds_starts_in_any_period(&of("rate"));
    queueing::rate_is_not_held_by_jobs_that_cannot_start(&of("rate held"));
    queueing::retry_forgets_the_first_end(&of("waits retried"));
    queueing::rate_outlives_cancelled_jobs(&of("rate cancelled"));
    queueing::job_waits_for_others(&of("waits"));
    queueing::jobs_wait_for_workers_with_their_handlers(&of("handlers"));
    queueing::blockers_of_queued_jobs(&of("blockers"));
    queueing::failure_cancels_what_waits(&of("waits failed"));
    queueing::unknown_predecessors_are_refused(&of("waits unknown"));
    queueing::fan_in_waits_for_a_thousand(&of("fan in"));
    queueing::purged_predecessor_lets_go(&of("waits purged"));
    queueing::failure_releases_its_key(&of("released"));
    workers::workers_are_listed_with_their_jobs(&of("workers"));
    breakers::breakers_are_kept(store);
    breakers::breakers_are_listed_by_owner(&of("breakers"));
    breakers::breakers_are_listed_in_parts(&of("breaker parts"));
}

/// One part: its queue and its owner have its name.
struct ConformancePart<'a> {
    store: &'a dyn JobStore,
    pass: &'a dyn Fn(Duration),
    name: &'static str,
}

impl ConformancePart<'_> {
    fn submission(&self, more: Value) -> Submission {
        let mut source = json!({"queue": self.name, "command": ["true"]});
        source.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
        Submission { spec: JobSpec::read(source).expect("a valid spec"), owner: self.name.to_owned() }
    }

    fn submit(&self, more: Value) -> String {
        self.store.submit(&[self.submission(more)]).expect("submitted").remove(0).id
    }

    fn lease_from(&self, queues: &[&str], slots: usize, lease: Duration) -> Vec<JobAssignment> {
        let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
        let worker = "w".to_owned();
        let request =
            LeaseRequest { worker, slots, queues, only: None, lease, memory: None, handlers: Vec::new() };
        self.store.lease(&request).expect("leased")
    }

    fn lease(&self, slots: usize) -> Vec<JobAssignment> {
        self.lease_from(&[self.name], slots, LONG_LEASE)
    }

    fn ids(&self, slots: usize) -> Vec<String> {
        self.lease(slots).into_iter().map(|leased| leased.held.id).collect()
    }

    fn finish(&self, held: &JobLease, status: JobStatus, again: bool) -> FinishResult {
        let result = JobResult::bare(status, (status != JobStatus::Ok).then(|| "it failed".to_owned()));
        let finish = Finish { held: held.clone(), result, again, pause_ms: 0 };
        self.store.finish(&[finish]).expect("finished").remove(0)
    }

    /// Claims what is due, of all owners. Returns the part's own.
    fn claim_own(&self, claim: Duration) -> Vec<Delivery> {
        let mut claimed =
            self.store.claim_webhooks(1_000, claim, &WebhookShares::default()).expect("claimed");
        claimed.retain(|delivery| delivery.owner == self.name);
        claimed
    }

    fn get(&self, id: &str) -> JobRecord {
        self.store.get(id).expect("readable").expect("there")
    }

    fn state(&self, id: &str) -> JobState {
        self.get(id).line.state
    }
}

fn a_job_from_submission_to_its_result(part: &ConformancePart<'_>) {
    let id = part.submit(json!({"name": "first", "wall_ms": 60_000}));
    assert_eq!(part.state(&id), JobState::Queued);
    let leased = part.lease(5);
    assert_eq!(leased.len(), 1);
    assert_eq!((leased[0].held.id.as_str(), leased[0].held.epoch, leased[0].deliveries), (id.as_str(), 1, 1));
    assert_eq!(leased[0].deadline_ms, Some(leased[0].submitted_ms + 60_000));
    assert!(part.lease(5).is_empty(), "it is leased once");
    assert_eq!(
        part.store.renew(std::slice::from_ref(&leased[0].held), LONG_LEASE).expect("renewed"),
        [Renewal::Kept]
    );
    assert_eq!(part.finish(&leased[0].held, JobStatus::Ok, false), FinishResult::Recorded);
    let record = part.get(&id);
    assert_eq!(
        (record.line.state, record.line.ok, record.line.name.as_str()),
        (JobState::Ended, Some(true), "first")
    );
    assert_eq!(record.result.expect("a result").status, JobStatus::Ok);
    assert_eq!(part.finish(&leased[0].held, JobStatus::Failed, false), FinishResult::Duplicate);
    assert_eq!(part.get(&id).result.expect("a result").status, JobStatus::Ok, "the first result stays");
    assert!(part.store.get("no such job").expect("readable").is_none());
}

fn a_batch_is_taken_whole_or_not_at_all(part: &ConformancePart<'_>) {
    let past = part.submission(json!({"deadline_ms": 1000}));
    let refused = part.store.submit(&[part.submission(json!({})), past]).expect_err("a deadline in the past");
    assert!(matches!(refused, StoreError::Spec(_)), "{refused}");
    assert!(part.lease(1).is_empty());
    let batch: Vec<Submission> = (0..50).map(|_| part.submission(json!({}))).collect();
    let ids: Vec<String> =
        part.store.submit(&batch).expect("submitted").into_iter().map(|one| one.id).collect();
    assert_eq!(part.ids(50), ids, "in their order");
}

fn an_idempotency_key_is_one_job(part: &ConformancePart<'_>) {
    let spec = json!({"idempotency_key": "k", "name": "a"});
    let first = part.submit(spec.clone());
    let again = part.store.submit(&[part.submission(spec.clone())]).expect("known").remove(0);
    assert_eq!((again.id.as_str(), again.existed), (first.as_str(), true));
    let other = part.submission(json!({"idempotency_key": "k", "name": "b"}));
    let [once, twice] = ["a", "b"].map(|name| part.submission(json!({"idempotency_key": "l", "name": name})));
    let together = part.store.submit(&[once, twice]).expect_err("one of them would be lost");
    assert!(together.to_string().contains("`l` is given to two jobs"), "{together}");
    match part.store.submit(&[other]) {
        Err(StoreError::Conflict { existing, .. }) => assert_eq!(existing, first),
        other => panic!("{other:?}"),
    }
    let elses = Submission { owner: "somebody else".to_owned(), ..part.submission(spec) };
    assert!(!part.store.submit(&[elses]).expect("another owner").remove(0).existed);
    assert_eq!(part.lease(9).len(), 2);
}

fn priority_is_a_head_start_without_starvation(part: &ConformancePart<'_>) {
    let low = part.submit(json!({"priority": -1}));
    let plain = part.submit(json!({}));
    let high = part.submit(json!({"priority": 5}));
    assert_eq!(part.ids(3), [high, plain, low]);
}

fn queues_take_turns(part: &ConformancePart<'_>) {
    let many: Vec<String> = (0..6).map(|_| part.submit(json!({"queue": "turns-many"}))).collect();
    let few: Vec<String> = (0..2).map(|_| part.submit(json!({"queue": "turns-few"}))).collect();
    let leased = part.lease_from(&["turns-many", "turns-few"], 4, LONG_LEASE);
    let got: Vec<&String> = leased.iter().map(|leased| &leased.held.id).collect();
    assert!(few.iter().all(|id| got.contains(&id)), "both of the short queue are among the first four");
    assert_eq!(
        part.lease_from(&["turns-many", "turns-few"], 9, LONG_LEASE).len(),
        many.len() + few.len() - 4
    );
}

/// Nor does what is urgent in one queue come before what is in another.
fn a_stream_in_one_queue_keeps_no_other_waiting(part: &ConformancePart<'_>) {
    let queues = ["stream-busy", "stream-quiet", "stream-other"];
    let urgent = || part.submit(json!({"queue": queues[0], "priority": 100}));
    (0..3).for_each(|_| drop(urgent()));
    for _ in 0..4 {
        let mut quiet = [
            part.submit(json!({"queue": queues[1], "priority": -100})),
            part.submit(json!({"queue": queues[2]})),
        ];
        let mut leased = Vec::new();
        for _ in queues {
            leased.extend(part.lease_from(&queues, 1, LONG_LEASE).into_iter().map(|leased| leased.held.id));
            urgent();
        }
        leased.retain(|id| quiet.contains(id));
        leased.sort();
        quiet.sort();
        assert_eq!(leased, quiet, "each queue is served once before one is served twice");
    }
}

fn key_limits_concurrent_jobs(part: &ConformancePart<'_>) {
    let limited = json!({"concurrency": {"key": "gpu", "most": 2}});
    let ids: Vec<String> = (0..4).map(|_| part.submit(limited.clone())).collect();
    let free = part.submit(json!({}));
    let leased = part.lease(9);
    let got: Vec<String> = leased.iter().map(|leased| leased.held.id.clone()).collect();
    assert_eq!(got, [ids[0].clone(), ids[1].clone(), free]);
    part.finish(&leased[0].held, JobStatus::Ok, false);
    let next = part.lease(9);
    assert_eq!(next.iter().map(|leased| leased.held.id.clone()).collect::<Vec<_>>(), [ids[2].clone()]);
    // A job that is cancelled while it waits outside the queue has no place to give back.
    assert_eq!(part.store.cancel(&ids[3], "no more").expect("cancelled"), CancelResult::Cancelled);
    part.finish(&leased[1].held, JobStatus::Failed, false);
    part.finish(&next[0].held, JobStatus::Ok, false);
    let more: Vec<String> = (0..3).map(|_| part.submit(limited.clone())).collect();
    assert_eq!(part.ids(9), more[..2]);
}

fn key_is_free_after_waiters_pass_their_deadlines(part: &ConformancePart<'_>) {
    let limited =
        |wall_ms: u64| part.submit(json!({"wall_ms": wall_ms, "concurrency": {"key": "one", "most": 1}}));
    (0..3).for_each(|_| drop(limited(50)));
    (part.pass)(Duration::from_millis(70));
    assert!(part.lease(9).is_empty());
    let next = limited(60_000);
    assert_eq!(part.ids(9), [next]);
}

fn what_is_scheduled_waits_for_its_moment(part: &ConformancePart<'_>) {
    let start = part.store.now_ms() + 300;
    let id = part.submit(json!({"not_before_ms": start}));
    assert_eq!(part.state(&id), JobState::Scheduled);
    assert!(part.lease(1).is_empty());
    (part.pass)(Duration::from_millis(320));
    let leased = part.lease(1);
    assert_eq!((leased[0].held.id.as_str(), leased[0].due_ms), (id.as_str(), start));
    assert!(leased[0].leased_ms >= start);
}

fn a_delay_counts_from_the_submission_on_the_stores_clock(part: &ConformancePart<'_>) {
    let delayed = json!({"delay_ms": 1_000, "idempotency_key": "delayed", "wall_ms": 60_000});
    let id = part.submit(delayed.clone());
    assert_eq!(part.state(&id), JobState::Scheduled);
    assert!(part.lease(1).is_empty());
    (part.pass)(Duration::from_millis(100));
    assert_eq!(part.submit(delayed), id, "the same key and spec is the same job");
    (part.pass)(Duration::from_millis(920));
    let leased = part.lease(9);
    assert_eq!(leased.iter().map(|leased| &leased.held.id).collect::<Vec<_>>(), [&id]);
    assert_eq!(leased[0].due_ms, part.get(&id).line.submitted_ms + 1_000, "asking again moves nothing");
    assert!(leased[0].leased_ms >= leased[0].due_ms);
    let longest = part.submission(json!({"delay_ms": 1_000, "wall_ms": 1_000}));
    let refused = part.store.submit(&[longest]).expect_err("it could never begin");
    assert!(refused.to_string().contains("`delay_ms`"), "{refused}");
}

fn a_lost_lease_is_fenced(part: &ConformancePart<'_>) {
    let id = part.submit(json!({"wall_ms": 60_000}));
    let first = part.lease_from(&[part.name], 1, Duration::from_millis(50)).remove(0);
    (part.pass)(Duration::from_millis(70));
    let second = part.lease(1).remove(0);
    assert_eq!((second.held.epoch, second.deliveries), (first.held.epoch + 1, 2));
    assert_eq!(second.deadline_ms, first.deadline_ms, "a deadline is never reset");
    assert!(second.due_ms >= first.leased_ms + 50, "it waits anew from when its worker was lost");
    assert_eq!(
        part.store.renew(std::slice::from_ref(&first.held), LONG_LEASE).expect("answered"),
        [Renewal::Lost]
    );
    assert!(matches!(part.store.append_log(&first.held, b"late"), Err(StoreError::Lost(_))));
    assert_eq!(part.finish(&first.held, JobStatus::Failed, false), FinishResult::Duplicate);
    assert_eq!(part.state(&id), JobState::Leased);
    assert_eq!(part.finish(&second.held, JobStatus::Ok, false), FinishResult::Recorded);
    let record = part.get(&id);
    assert_eq!(record.result.expect("a result").status, JobStatus::Ok);
    assert_eq!(record.earlier.iter().map(|result| result.status).collect::<Vec<_>>(), [JobStatus::Lost]);
    assert_eq!(record.duplicates.iter().map(|result| result.status).collect::<Vec<_>>(), [JobStatus::Failed]);
}

fn job_is_dead_after_max_deliveries_until_retried(part: &ConformancePart<'_>) {
    let id = part.submit(json!({"deliveries": 2}));
    let first = part.lease(1).remove(0);
    assert_eq!(part.finish(&first.held, JobStatus::InfraError, true), FinishResult::Returned);
    assert_eq!(part.state(&id), JobState::Scheduled);
    assert!(part.lease(1).is_empty(), "whatever was in the way is not gone at once");
    (part.pass)(Duration::from_millis(1_100));
    let second = part.lease(1).remove(0);
    assert_eq!(part.finish(&second.held, JobStatus::InfraError, true), FinishResult::Returned);
    assert_eq!(part.state(&id), JobState::Dead);
    let record = part.get(&id);
    assert_eq!((record.earlier.len(), record.result.expect("the last").status), (1, JobStatus::InfraError));
    assert_eq!(part.store.retry(&id).expect("queued again"), JobState::Queued);
    let leased = part.lease(1).remove(0);
    assert_eq!(leased.deliveries, 1);
    part.finish(&leased.held, JobStatus::Ok, false);
    assert!(matches!(part.store.retry(&id), Err(StoreError::WrongState { .. })), "it succeeded");
    assert!(matches!(part.store.retry("none"), Err(StoreError::Unknown(_))));
    let brief = part.submit(json!({"deadline_ms": part.store.now_ms() + 100}));
    (part.pass)(Duration::from_millis(130));
    part.store.sweep().expect("swept");
    assert_eq!(part.state(&brief), JobState::Ended);
    assert!(matches!(part.store.retry(&brief), Err(StoreError::WrongState { .. })), "it would end at once");
}

fn draining_worker_costs_no_delivery(part: &ConformancePart<'_>) {
    let id = part.submit(json!({"deliveries": 1}));
    for _ in 0..4 {
        let held = part.lease(1).remove(0).held;
        assert_eq!(part.finish(&held, JobStatus::Drained, true), FinishResult::Returned);
        assert_eq!((part.state(&id), part.get(&id).line.deliveries), (JobState::Queued, 0));
    }
    assert_eq!(part.get(&id).earlier.len(), 3);
    let leased = part.lease(1).remove(0);
    assert_eq!((leased.held.epoch, leased.deliveries), (5, 1));
    part.finish(&leased.held, JobStatus::InfraError, true);
    assert_eq!(part.state(&id), JobState::Dead);
}

fn a_cancel_reaches_every_state(part: &ConformancePart<'_>) {
    let scheduled = part.submit(json!({"not_before_ms": part.store.now_ms() + 60_000}));
    let queued = part.submit(json!({}));
    for id in [&scheduled, &queued] {
        assert_eq!(part.store.cancel(id, "not wanted").expect("cancelled"), CancelResult::Cancelled);
        let record = part.get(id);
        assert_eq!(
            (record.line.state, record.result.expect("one").status),
            (JobState::Cancelled, JobStatus::Cancelled)
        );
        assert_eq!(part.store.cancel(id, "again").expect("answered"), CancelResult::TooLate);
    }
    let running = part.submit(json!({}));
    let held = part.lease(9).remove(0).held;
    assert_eq!(held.id, running);
    assert_eq!(part.store.cancel(&running, "not wanted").expect("asked"), CancelResult::Asked);
    let wanted = [Renewal::Cancel("not wanted".to_owned())];
    assert_eq!(part.store.check_leases(std::slice::from_ref(&held)).expect("answered"), wanted);
    assert_eq!(part.store.renew(std::slice::from_ref(&held), LONG_LEASE).expect("answered"), wanted);
    assert_eq!(part.finish(&held, JobStatus::Cancelled, false), FinishResult::Recorded);
    assert_eq!(part.state(&running), JobState::Cancelled);
    assert!(matches!(part.store.cancel("none", ""), Err(StoreError::Unknown(_))));
}

fn a_paused_queue_hands_out_nothing(part: &ConformancePart<'_>) {
    part.store.pause(part.name, true).expect("paused");
    let id = part.submit(json!({}));
    assert!(part.lease(1).is_empty());
    let facts = part.store.queues().expect("readable");
    let facts = facts.iter().find(|facts| facts.queue == part.name).expect("there");
    assert!(facts.paused && facts.queued == 1 && facts.oldest_ms.is_some());
    part.store.pause(part.name, false).expect("resumed");
    assert_eq!(part.ids(1), [id]);
}

fn a_log_is_read_by_position(part: &ConformancePart<'_>) {
    let id = part.submit(json!({}));
    let held = part.lease(1).remove(0).held;
    for piece in [b"one ".as_slice(), b"two ", b"three"] {
        part.store.append_log(&held, piece).expect("written");
    }
    let read = |cursor, most| {
        let log = part.store.read_log(&id, cursor, most).expect("readable");
        (String::from_utf8(log.bytes).expect("text"), log.next_cursor)
    };
    assert_eq!(read(0, 100), ("one two three".to_owned(), 13));
    assert_eq!(read(2, 4), ("e tw".to_owned(), 6));
    assert_eq!(read(13, 4), (String::new(), 13));
    part.finish(&held, JobStatus::Ok, false);
    assert_eq!(read(8, 100), ("three".to_owned(), 13), "after its end as well");
}

fn memory_admits_what_fits_and_keeps_room_for_who_waits(part: &ConformancePart<'_>) {
    const MIB: u64 = 1 << 20;
    let queues = ["memory-a", "memory-b"];
    let submit = |queue: &str, memory: u64| {
        part.submit(json!({"queue": queue, "limits": if memory == 0 { json!({}) } else { json!({"memory_bytes": memory * MIB}) }}))
    };
    let patience = Duration::from_millis(300);
    let lease = |free, slots| {
        let request = LeaseRequest {
            worker: "w".to_owned(),
            slots,
            queues: queues.map(str::to_owned).to_vec(),
            only: None,
            lease: LONG_LEASE,
            memory: Some(Room { free: free * MIB, total: 1_000 * MIB, patience }),
            handlers: Vec::new(),
        };
        let leased = part.store.lease(&request).expect("leased");
        leased.into_iter().map(|leased| (leased.held.id, leased.memory / MIB)).collect::<Vec<_>>()
    };
    let big = submit("memory-a", 800);
    let small = submit("memory-a", 300);
    let plain = submit("memory-a", 0);
    let huge = submit("memory-a", 5_000);
    assert_eq!(lease(1_000, 9), [(big, 800), (plain, 0)], "what does not fit beside it waits");
    assert_eq!(lease(299, 9), []);
    assert_eq!(lease(300, 9), [(small, 300)]);
    assert_eq!(lease(1_000, 9), [], "another worker has more");
    let request = |memory| LeaseRequest {
        worker: "large".to_owned(),
        slots: 9,
        queues: queues.map(str::to_owned).to_vec(),
        only: None,
        lease: LONG_LEASE,
        memory,
        handlers: Vec::new(),
    };
    let room = Room { free: 8_000 * MIB, total: 8_000 * MIB, patience };
    assert_eq!(part.store.lease(&request(Some(room))).expect("leased")[0].held.id, huge);
    // A job that waits for long is no longer passed by others, in any queue; only jobs that name no
    // memory still pass it.
    let big = submit("memory-a", 800);
    let early = submit("memory-b", 300);
    assert_eq!(lease(500, 9), [(early, 300)]);
    (part.pass)(patience);
    let late = submit("memory-b", 300);
    let plain = submit("memory-b", 0);
    let fitting = submit("memory-a", 200);
    assert_eq!(lease(500, 9), [(plain, 0)]);
    let mut both = lease(1_000, 9);
    both.sort();
    let mut wanted = [(big, 800), (fitting, 200)];
    wanted.sort();
    assert_eq!(both, wanted, "its room is kept, and used beside it");
    assert_eq!(lease(1_000, 9), [(late, 300)]);
    // A request for one job gets it.
    let alone = submit("memory-a", 5_000);
    let only =
        LeaseRequest { only: Some(alone.clone()), ..request(Some(Room { free: 0, total: 10, patience })) };
    assert_eq!(part.store.lease(&only).expect("leased")[0].held.id, alone);
}

fn queues_per_owner_are_limited(part: &ConformancePart<'_>) {
    let into = |queue: usize| part.submission(json!({"queue": format!("queues-{queue}")}));
    let ids: Vec<String> = (0..MAX_QUEUES)
        .map(|queue| part.store.submit(&[into(queue)]).expect("submitted").remove(0).id)
        .collect();
    let refused = part.store.submit(&[into(0), into(MAX_QUEUES)]);
    assert!(matches!(refused, Err(StoreError::Queues { .. })), "{refused:?}");
    part.store.submit(&[into(7)]).expect("it has that one");
    let local = Submission { owner: LOCAL_OWNER.to_owned(), ..into(MAX_QUEUES + 1) };
    part.store.submit(&[local]).expect("whoever owns the machine has as many as they like");
    part.store.cancel(&ids[3], "enough").expect("cancelled");
    let filter = Filter { queue: Some("queues-3".to_owned()), ..Filter::default() };
    part.store.purge(&filter).expect("purged");
    part.store.submit(&[into(MAX_QUEUES)]).expect("one is not used any more");
}

fn files_are_kept_in_pieces_and_fenced(part: &ConformancePart<'_>) {
    let large: String = "0123456789abcdef".repeat(FILE_PIECE / 8);
    let id = part.submit(json!({"inputs": {"small": "hi", "d/large": large, "none": ""}, "outputs": ["**"]}));
    let inputs = &part.get(&id).spec["inputs"];
    assert_eq!((&inputs["small"]["bytes"], &inputs["none"]["bytes"]), (&json!(2), &json!(0)));
    let read = |file, start, most| part.store.read_file(&id, file, start, most).expect("readable");
    assert_eq!(read(FileOf::Input("small"), 0, 99), b"hi");
    assert_eq!(read(FileOf::Input("d/large"), FILE_PIECE as u64 - 2, 4), b"ef01");
    assert_eq!(read(FileOf::Input("d/large"), large.len() as u64 - 1, 99), b"f");
    for (file, start) in
        [(FileOf::Input("small"), 2), (FileOf::Input("none"), 0), (FileOf::Output("small"), 0)]
    {
        assert!(read(file, start, 99).is_empty(), "{file:?}");
    }
    let lease = || part.lease(1).remove(0).held;
    let first = lease();
    let write = |held: &JobLease, start, bytes: &[u8]| part.store.write_file(held, "out", start, bytes);
    write(&first, 0, b"early").expect("written");
    part.finish(&first, JobStatus::Drained, true);
    assert!(matches!(write(&first, 5, b"x"), Err(StoreError::Lost(_))), "it was given back");
    assert_eq!(read(FileOf::Output("out"), 0, 99), b"early");
    let second = lease();
    assert!(read(FileOf::Output("out"), 0, 99).is_empty(), "each delivery begins with none");
    write(&second, 0, b"whole").expect("written");
    write(&second, 5, b" file").expect("written");
    assert_eq!(part.finish(&second, JobStatus::Failed, false), FinishResult::Recorded);
    assert!(matches!(write(&second, 10, b"x"), Err(StoreError::Lost(_))), "it is over");
    assert_eq!(
        (read(FileOf::Output("out"), 3, 99), read(FileOf::Output("out"), 3, 4)),
        (b"le file".to_vec(), b"le f".to_vec())
    );
    let filter = Filter { queue: Some(part.name.to_owned()), ..Filter::default() };
    assert_eq!(part.store.purge(&filter).expect("purged"), 1);
    assert!(read(FileOf::Output("out"), 0, 99).is_empty() && read(FileOf::Input("small"), 0, 99).is_empty());
}

fn listing_continues_after_its_cursor(part: &ConformancePart<'_>) {
    let ids: Vec<String> = (0..5).map(|_| part.submit(json!({}))).collect();
    let filter = Filter { queue: Some(part.name.to_owned()), ..Filter::default() };
    let (mut collected, mut cursor) = (Vec::new(), None);
    for _ in 0..4 {
        let page = part.store.list(&filter, cursor.as_deref(), 2).expect("listed");
        collected.extend(page.jobs.into_iter().map(|line| line.id));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    collected.reverse();
    assert_eq!(collected, ids);
    let listed = |more: Filter| -> Vec<String> {
        let filter = Filter { queue: filter.queue.clone(), ..more };
        part.store.list(&filter, None, 9).expect("listed").jobs.into_iter().map(|line| line.id).collect()
    };
    assert!(listed(Filter { owner: Some("nobody".to_owned()), ..Filter::default() }).is_empty());
    let refused = part.store.list(&filter, Some("junk"), 9);
    assert!(matches!(refused, Err(StoreError::Cursor(cursor)) if cursor == "junk"));
    let held: Vec<JobLease> = part.lease(4).into_iter().map(|leased| leased.held).collect();
    part.finish(&held[0], JobStatus::Ok, false);
    part.finish(&held[1], JobStatus::Failed, false);
    part.store.cancel(&ids[2], "a test").expect("asked");
    let of = |ok, cancel| listed(Filter { ok, cancel, ..Filter::default() });
    assert_eq!((of(Some(true), None), of(Some(false), None)), (vec![ids[0].clone()], vec![ids[1].clone()]));
    let leased = Filter { state: Some(JobState::Leased), cancel: Some(false), ..Filter::default() };
    assert_eq!((of(None, Some(true)), listed(leased)), (vec![ids[2].clone()], vec![ids[3].clone()]));
}

fn ended_jobs_are_purged_and_forgotten(part: &ConformancePart<'_>) {
    let kept = part.submit(json!({}));
    let held = part.lease(1).remove(0).held;
    let filter = Filter { queue: Some(part.name.to_owned()), ..Filter::default() };
    assert_eq!(part.store.purge(&filter).expect("purged"), 0, "what goes on is not forgotten");
    part.finish(&held, JobStatus::Failed, false);
    let dead = Filter { state: Some(JobState::Dead), ..filter.clone() };
    assert_eq!(part.store.purge(&dead).expect("purged"), 0);
    assert_eq!(part.store.purge(&filter).expect("purged"), 1);
    assert!(part.store.get(&kept).expect("readable").is_none());
    let brief = part.submit(json!({"retention_ms": 50}));
    let held = part.lease(1).remove(0).held;
    part.finish(&held, JobStatus::Ok, false);
    (part.pass)(Duration::from_millis(70));
    part.store.sweep().expect("swept");
    assert!(part.store.get(&brief).expect("readable").is_none());
}
