//! The clock is a number here. What is random is a seed, and is printed by what fails.

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;
use sandtimer::time::Moment;

use super::breaker::{Breaker, BreakerState};
use super::*;

mod shared;

const KEY: &str = "calculator:calculate";

fn at(milliseconds: u64) -> Moment {
    Moment::from_nanos(milliseconds * 1_000_000)
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn failure(message: &str) -> AttemptResult {
    AttemptResult::Failure(AttemptFailure::new(message))
}

/// Opens after 3 in a row, for half a second to a second; one success closes it.
fn short() -> BreakerSettings {
    BreakerSettings {
        consecutive: Some(3),
        rate: None,
        open: ms(1_000),
        max_open: ms(8_000),
        successes: 1,
        probe: ms(500),
    }
}

fn fail(breakers: &mut Breakers, times: u32, now: Moment) {
    for _ in 0..times {
        let ticket = breakers.admit(KEY, None, now).expect("it is closed");
        breakers.settle(ticket, &failure("missing arg `expr`"), now);
    }
}

fn state(breakers: &mut Breakers, now: Moment) -> String {
    breakers.snapshot(now)[0].state.clone()
}

#[test]
fn default_opens_after_five_with_feedback_for_the_model() {
    let mut breakers = Breakers::new(BreakerSettings::default(), 7);
    fail(&mut breakers, 5, at(0));
    let open = breakers.admit(KEY, None, at(0)).expect_err("it is open");
    let left = open.retry_after.expect("it has an end");
    assert!(left >= ms(15_000) && left <= ms(30_000), "{left:?}");
    let feedback = open.feedback(KEY);
    let first = "[SYSTEM: calculator:calculate circuit breaker open - try different approach]\n";
    assert!(feedback.starts_with(first), "{feedback}");
    assert!(feedback.contains("after 5 failures in a row; the last: missing arg `expr`"), "{feedback}");
    // Another key is another matter.
    assert!(breakers.admit("calculator:explain", None, at(0)).is_ok());
}

#[test]
fn success_resets_the_count_but_not_the_rate() {
    let settings = BreakerSettings {
        consecutive: Some(5),
        rate: Some(Rate { share: 0.5, window: 8, least: 8 }),
        ..short()
    };
    let mut breakers = Breakers::new(settings, 1);
    for round in 0..4 {
        assert_eq!(round < 4, breakers.admit(KEY, None, at(0)).is_ok());
        fail(&mut breakers, 1, at(0));
        let ticket = breakers.admit(KEY, None, at(0));
        if let Ok(ticket) = ticket {
            breakers.settle(ticket, &AttemptResult::Success, at(0));
        }
    }
    // 4 of 8 failed, the last was no failure: the rate is checked when one fails.
    assert_eq!(state(&mut breakers, at(0)), "closed");
    fail(&mut breakers, 1, at(0));
    assert_eq!(state(&mut breakers, at(0)), "open");
}

#[test]
fn half_open_it_admits_one_probe_and_each_opening_is_longer() {
    let mut breakers = Breakers::new(short(), 3);
    fail(&mut breakers, 3, at(0));
    let mut now = at(0);
    let mut last = Duration::ZERO;
    for _ in 0..4 {
        let open = breakers.admit(KEY, None, now).expect_err("it is open");
        let left = open.retry_after.expect("it has an end");
        assert!(left <= ms(8_000));
        last = last.max(left);
        now = now.after(left);
        let probe = breakers.admit(KEY, None, now).expect("a probe");
        assert!(breakers.admit(KEY, None, now).is_err(), "one probe at a time");
        breakers.settle(probe, &failure("again"), now);
    }
    assert!(last > ms(3_900), "it grew: {last:?}");
    now = now.after(ms(8_000));
    let probe = breakers.admit(KEY, None, now).expect("a probe");
    breakers.settle(probe, &AttemptResult::Success, now);
    assert_eq!(state(&mut breakers, now), "closed");
    assert_eq!(breakers.snapshot(now)[0].times_opened, 0);
}

#[test]
fn hung_probe_fails_and_its_late_result_is_ignored() {
    let mut breakers = Breakers::new(short(), 3);
    fail(&mut breakers, 3, at(0));
    let hangs = breakers.admit(KEY, Some(ms(200)), at(1_000)).expect("a probe");
    assert!(breakers.admit(KEY, None, at(1_199)).is_err());
    let open = breakers.admit(KEY, None, at(1_200)).expect_err("open anew");
    assert_eq!(open.messages.last().map(String::as_str), Some("the probe did not end in time"));
    breakers.settle(hangs, &AttemptResult::Success, at(1_300));
    assert_eq!(state(&mut breakers, at(1_300)), "open");
}

#[test]
fn results_admitted_before_opening_are_ignored() {
    let mut breakers = Breakers::new(short(), 3);
    let old: Vec<_> = (0..100).map(|_| breakers.admit(KEY, None, at(0)).expect("it is closed")).collect();
    fail(&mut breakers, 3, at(1));
    let probe = breakers.admit(KEY, None, at(2_000)).expect("a probe");
    for (index, ticket) in old.into_iter().enumerate() {
        let judged = if index % 2 == 0 { AttemptResult::Success } else { failure("late") };
        breakers.settle(ticket, &judged, at(2_001));
    }
    assert_eq!(state(&mut breakers, at(2_001)), "half_open");
    breakers.settle(probe, &AttemptResult::Success, at(2_002));
    assert_eq!(state(&mut breakers, at(2_002)), "closed");
}

#[test]
fn ignored_result_is_not_counted_and_releases_the_probe() {
    let mut breakers = Breakers::new(short(), 3);
    for _ in 0..10 {
        let ticket = breakers.admit(KEY, None, at(0)).expect("it is closed");
        breakers.settle(ticket, &AttemptResult::Ignored, at(0));
    }
    fail(&mut breakers, 3, at(0));
    let probe = breakers.admit(KEY, None, at(1_000)).expect("a probe");
    breakers.settle(probe, &AttemptResult::Ignored, at(1_001));
    assert!(breakers.admit(KEY, None, at(1_002)).is_ok(), "the next one is the probe");
}

#[test]
fn a_person_holds_it_open_or_closed_and_releases_it() {
    let mut breakers = Breakers::new(short(), 3);
    breakers.hold(KEY, Some(Hold::Open), at(0));
    let open = breakers.admit(KEY, None, at(1_000_000)).expect_err("it is held");
    assert_eq!((open.retry_after, open.to_string().as_str()), (None, "is held open by a person"));
    breakers.hold(KEY, Some(Hold::Closed), at(0));
    fail(&mut breakers, 20, at(0));
    breakers.hold(KEY, None, at(0));
    fail(&mut breakers, 3, at(0));
    assert_eq!(state(&mut breakers, at(0)), "open");
}

#[test]
fn a_snapshot_outlives_the_clock_it_was_taken_by() {
    let mut breakers = Breakers::new(short(), 3);
    fail(&mut breakers, 3, at(5_000_000));
    let taken = breakers.snapshot(at(5_000_100));
    let text = serde_json::to_string(&taken).expect("it serialises");
    let mut again = Breakers::new(short(), 9);
    again.restore(serde_json::from_str(&text).expect("it is read"), at(3));
    assert_eq!(again.snapshot(at(3)), taken);
    let left = again.admit(KEY, None, at(3)).expect_err("it is open").retry_after.expect("an end");
    assert!(again.admit(KEY, None, at(3).after(left)).is_ok());
}

#[test]
fn keys_are_dropped_by_age_and_number_unless_held() {
    let mut breakers = Breakers::new(short(), 3);
    breakers.hold("held", Some(Hold::Open), at(0));
    for index in 0..5_000 {
        let ticket = breakers.admit(&format!("key-{index}"), None, at(index)).expect("it is closed");
        breakers.settle(ticket, &failure("no"), at(index));
    }
    let kept = breakers.snapshot(at(5_000));
    assert_eq!(kept.len(), 1_024);
    assert!(kept.iter().any(|one| one.key == "held") && kept.iter().any(|one| one.key == "key-4999"));
    let hours_later = at(5_000).after(Duration::from_secs(7_200));
    let ticket = breakers.admit("key-4999", None, hours_later).expect("it is closed");
    breakers.settle(ticket, &failure("no"), hours_later);
    let found = breakers.snapshot(hours_later);
    assert_eq!(found.iter().find(|one| one.key == "key-4999").expect("it is there").failures_in_a_row, 1);
}

#[test]
fn a_deadline_around_it_does_not_make_a_probe_longer() {
    let mut breakers = Breakers::new(short(), 1);
    fail(&mut breakers, 3, at(0));
    let ways = vec![Way::new(Retry::default()).key(KEY)];
    let mut call = GuardedCall::new(ways, Some(at(3_600_000)));
    assert!(matches!(call.next(&mut breakers, at(1_000)), CallStep::Attempt { .. }));
    let left = breakers.admit(KEY, None, at(1_000)).expect_err("there is one").retry_after;
    assert_eq!(left, Some(ms(500)));
    // With limits it is the sum of this way and those after it, for the result comes after them.
    let limited = |limit| Way { limit: Some(ms(limit)), ..Way::new(Retry::default()) };
    call.abandon(&mut breakers, at(1_000));
    let mut call = GuardedCall::new(vec![limited(2_000).key(KEY), limited(5_000)], None);
    assert!(matches!(call.next(&mut breakers, at(1_000)), CallStep::Attempt { .. }));
    let left = breakers.admit(KEY, None, at(1_000)).expect_err("there is one").retry_after;
    assert_eq!(left, Some(ms(7_000)));
}

#[test]
fn what_is_not_gone_on_with_gives_its_probe_back() {
    let mut breakers = Breakers::new(short(), 1);
    fail(&mut breakers, 3, at(0));
    let mut call = GuardedCall::new(vec![Way::new(source()).key(KEY)], None);
    assert!(matches!(call.next(&mut breakers, at(1_000)), CallStep::Attempt { .. }));
    call.ended(failure("no"), &mut breakers, &mut Budgets::default(), at(1_010));
    assert!(matches!(call.next(&mut breakers, at(1_010)), CallStep::Wait { .. }));
    assert!(breakers.admit(KEY, None, at(1_020)).is_err(), "its probe goes on in the pause");
    call.abandon(&mut breakers, at(1_020));
    assert!(breakers.admit(KEY, None, at(1_020)).is_ok());
}

#[test]
fn calls_that_take_longer_than_keys_are_remembered_count() {
    let mut breakers = Breakers::new(short(), 3);
    let hours = |count: u64| at(0).after(Duration::from_secs(3_700 * count));
    for call in 0..3 {
        let ticket = breakers.admit(KEY, None, hours(call)).expect("it is closed");
        breakers.settle(ticket, &failure("no"), hours(call + 1));
    }
    assert!(breakers.admit(KEY, None, hours(3)).is_err());
}

#[test]
fn breaker_open_longer_than_key_retention_stays_open() {
    let day = Duration::from_secs(86_400);
    let settings = BreakerSettings { open: day, max_open: day, ..short() };
    let mut breakers = Breakers::new(settings, 3);
    fail(&mut breakers, 3, at(0));
    assert!(breakers.admit(KEY, None, at(0).after(day / 3)).is_err());
    assert!(breakers.admit(KEY, None, at(0).after(day)).is_ok());
}

/// Plays a call with attempts of given durations and results; returns its end and its clock.
fn play(
    call: &mut GuardedCall,
    breakers: &mut Breakers,
    took: Duration,
    mut judged: impl FnMut(usize, u32) -> AttemptResult,
) -> (CallEnd, Moment) {
    let (mut budgets, mut now) = (Budgets::default(), at(0));
    for _ in 0..1_000 {
        match call.next(breakers, now) {
            CallStep::Attempt { way, number } => {
                now = now.after(took);
                call.ended(judged(way, number), breakers, &mut budgets, now);
            }
            CallStep::Wait { until } => {
                assert!(until > now);
                now = until;
            }
            CallStep::Over(end) => return (end, now),
        }
    }
    panic!("it does not end");
}

fn source() -> Retry {
    Retry::fixed(3, [100, 200, 400].map(ms))
}

#[test]
fn source_call_takes_three_attempts_700_ms_and_a_fallback() {
    let mut breakers = Breakers::new(BreakerSettings::default(), 1);
    let ways = vec![Way::new(source()).key(KEY), Way::new(Retry::default())];
    let mut call = GuardedCall::new(ways.clone(), None);
    let mut tried = Vec::new();
    let (end, now) = play(&mut call, &mut breakers, ms(10), |way, number| {
        tried.push((way, number));
        failure("missing parameter")
    });
    assert_eq!(tried, [(0, 1), (0, 2), (0, 3), (1, 1)]);
    assert_eq!(now, at(740));
    assert_eq!(end, CallEnd::Failed(Why::Attempts { message: "missing parameter".to_owned() }));
    let pauses: Vec<_> =
        call.spent().iter().filter(|spent| matches!(spent, SpentOn::Backoff { .. })).collect();
    assert_eq!(pauses, [100, 200, 400].map(|ms| SpentOn::Backoff { ms }).iter().collect::<Vec<_>>());
    // One call is one failure, and the fifth opens the breaker.
    for _ in 0..4 {
        assert_eq!(breakers.snapshot(now)[0].state, "closed");
        play(&mut GuardedCall::new(ways.clone(), None), &mut breakers, ms(10), |_, _| {
            failure("missing parameter")
        });
    }
    assert_eq!(breakers.snapshot(now)[0].state, "open");
    // Now only the fallback is tried.
    let mut tried = Vec::new();
    let mut call = GuardedCall::new(ways, None);
    let (end, _) = play(&mut call, &mut breakers, ms(10), |way, _| {
        tried.push(way);
        AttemptResult::Success
    });
    assert_eq!((tried, end), (vec![1], CallEnd::Succeeded { way: 1 }));
    assert!(call.feedback().expect("it was refused").starts_with("[SYSTEM: calculator:calculate circuit"));
}

#[test]
fn no_pause_precedes_an_attempt_that_cannot_start() {
    let mut breakers = Breakers::new(short(), 1);
    let ways = vec![Way::new(source()).key(KEY), Way::new(Retry::default())];
    let mut call = GuardedCall::new(ways, Some(at(50)));
    let no = |_, _| {
        AttemptResult::Failure(AttemptFailure {
            retryable: false,
            ..AttemptFailure::new("its time was over")
        })
    };
    let (end, now) = play(&mut call, &mut breakers, ms(60), no);
    let message = "its time was over".to_owned();
    assert_eq!((end, now), (CallEnd::Failed(Why::WouldExceedDeadline { message }), at(60)));
    assert_eq!(breakers.snapshot(now)[0].failures_in_a_row, 1);
}

#[test]
fn open_breaker_without_fallback_ends_the_call_with_feedback() {
    let mut breakers = Breakers::new(short(), 1);
    fail(&mut breakers, 3, at(0));
    let (end, now) = play(
        &mut GuardedCall::new(vec![Way::new(source()).key(KEY)], None),
        &mut breakers,
        ms(10),
        |_, _| panic!("nothing may be tried"),
    );
    let CallEnd::Failed(Why::BreakerOpen { feedback }) = end else { panic!("{end:?}") };
    assert!(
        feedback.starts_with("[SYSTEM: calculator:calculate circuit breaker open - try different approach]")
    );
    assert_eq!(now, at(0));
}

#[test]
fn no_attempt_starts_that_could_not_end_before_the_deadline() {
    let mut breakers = Breakers::new(short(), 1);
    let way = Way::new(Retry { useful: ms(50), ..source() }).key(KEY);
    let mut attempts = 0;
    let mut call = GuardedCall::new(vec![way], Some(at(300)));
    let (end, now) = play(&mut call, &mut breakers, ms(60), |_, _| {
        attempts += 1;
        failure("no")
    });
    // 60, pause 100, 60, then 80 are left: 200 + 50 do not fit.
    assert_eq!((attempts, now), (2, at(220)));
    assert_eq!(end, CallEnd::Failed(Why::WouldExceedDeadline { message: "no".to_owned() }));
}

#[test]
fn outer_limit_is_not_retried_and_not_counted() {
    let mut breakers = Breakers::new(short(), 1);
    let ways = vec![Way::new(source()).key(KEY), Way::new(Retry::default())];
    let (end, _) =
        play(&mut GuardedCall::new(ways, None), &mut breakers, ms(10), |_, _| AttemptResult::Ignored);
    assert_eq!(end, CallEnd::Ignored);
    assert_eq!(breakers.snapshot(at(0))[0].failures_in_a_row, 0);
}

#[test]
fn non_retryable_failure_goes_straight_to_the_fallback() {
    let mut breakers = Breakers::new(short(), 1);
    let other = Way::new(Retry::default()).key("calculator:approximate");
    let mut tried = Vec::new();
    let (end, now) = play(
        &mut GuardedCall::new(vec![Way::new(source()).key(KEY), other], None),
        &mut breakers,
        ms(0),
        |way, _| {
            tried.push(way);
            AttemptResult::Failure(AttemptFailure { retryable: false, ..AttemptFailure::new("bad argument") })
        },
    );
    assert_eq!((tried, now), (vec![0, 1], at(100)));
    assert_eq!(end, CallEnd::Failed(Why::Attempts { message: "bad argument".to_owned() }));
    let counted: Vec<u32> = breakers.snapshot(at(0)).iter().map(|one| one.failures_in_a_row).collect();
    assert_eq!(counted, [1, 1], "each key has one failure");
}

#[test]
fn a_budget_of_retries_runs_out_and_comes_back() {
    let (mut breakers, mut budgets) =
        (Breakers::new(BreakerSettings { consecutive: None, ..short() }, 1), Budgets::default());
    let way = || vec![Way::new(Retry::fixed(2, [])).key(KEY)];
    let mut once = |judged: AttemptResult, budgets: &mut Budgets| {
        let mut call = GuardedCall::new(way(), None);
        let mut attempts = 0;
        while let CallStep::Attempt { .. } = call.next(&mut breakers, at(0)) {
            attempts += 1;
            call.ended(judged.clone(), &mut breakers, budgets, at(0));
        }
        attempts
    };
    let tried: u32 = (0..200).map(|_| once(failure("no"), &mut budgets)).sum();
    assert_eq!(tried, 200 + 100, "500 tokens are 100 retries");
    for _ in 0..5 {
        once(AttemptResult::Success, &mut budgets);
    }
    assert_eq!(once(failure("no"), &mut budgets), 2);
    assert_eq!(once(failure("no"), &mut budgets), 1);
}

proptest! {
    #[test]
    fn pauses_are_within_their_bounds(seed: u64, attempt in 1u32..100) {
        let mut random = fastrand::Rng::with_seed(seed);
        let pause = Retry::jittered(3).backoff.after(attempt, &mut random);
        prop_assert!(pause <= ms(100 << (attempt - 1).min(10)).min(ms(20_000)));
    }

    /// Whatever its attempts do and however long they take, a call ends, starts nothing that is of
    /// no use, and tries each way at most as often as it may.
    #[test]
    fn every_call_ends(
        seed: u64,
        deadline in prop::option::of(0u64..5_000),
        ways in prop::collection::vec((1u32..6, any::<bool>(), 0u64..300), 0..4),
        endings in prop::collection::vec((0u8..4, 0u64..1_000), 40),
    ) {
        let mut breakers = Breakers::new(short(), seed);
        let mut budgets = Budgets::default();
        let made = ways.iter().enumerate().map(|(index, &(attempts, keyed, useful))| {
            let retry = Retry { useful: ms(useful), ..Retry::jittered(attempts) };
            let way = Way::new(retry);
            if keyed { way.key(format!("key-{index}")) } else { way }
        });
        let end = deadline.map(at);
        let mut call = GuardedCall::new(made.collect(), end).seed(seed);
        let (mut now, mut endings, mut tried) = (at(0), endings.into_iter(), vec![0u32; ways.len()]);
        loop {
            match call.next(&mut breakers, now) {
                CallStep::Over(_) => break,
                CallStep::Wait { until } => { prop_assert!(until > now); now = until; }
                CallStep::Attempt { way, number } => {
                    tried[way] += 1;
                    prop_assert_eq!(number, tried[way]);
                    prop_assert!(tried[way] <= ways[way].0);
                    prop_assert!(end.is_none_or(|end| now < end && end.since(now) >= ms(ways[way].2)));
                    let (kind, took) = endings.next().expect("no call has so many attempts");
                    now = now.after(ms(took));
                    let judged = match kind { 0 => AttemptResult::Success, 1 => AttemptResult::Ignored, _ => failure("no") };
                    call.ended(judged, &mut breakers, &mut budgets, now);
                }
            }
        }
    }
}

/// A million steps of admissions, endings, expiries and openings in random order.
#[test]
fn random_event_sequences_keep_breaker_invariants() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (settings, mut breaker, mut now) = (short(), Breaker::new(), at(0));
        let mut under_way: Vec<(Permit, u64)> = Vec::new();
        let mut probes: HashSet<u64> = HashSet::new();
        for step in 0..5_000u64 {
            let before = breaker.state;
            match random.u8(0..10) {
                0..=3 => {
                    let admitted = breaker.admit(&settings, Some(ms(100)), None, now, &mut random);
                    match (before, admitted) {
                        (BreakerState::Closed, admitted) => {
                            under_way.push((admitted.expect("closed admits"), step))
                        }
                        (BreakerState::Open { until }, Ok(_)) if until > now => {
                            panic!("seed {seed}: open admits")
                        }
                        (BreakerState::HalfOpen { probe_ends: Some(end), .. }, Ok(_)) if end > now => {
                            panic!("seed {seed}: two probes")
                        }
                        (_, Ok(permit)) => {
                            probes.insert(step);
                            under_way.push((permit, step));
                        }
                        (_, Err(open)) => assert!(open.retry_after.is_some_and(|left| left <= ms(8_000))),
                    }
                }
                4..=7 if !under_way.is_empty() => {
                    let (permit, admitted_at) = under_way.swap_remove(random.usize(..under_way.len()));
                    let judged = match random.u8(0..4) {
                        0 => AttemptResult::Success,
                        1 => AttemptResult::Ignored,
                        _ => failure("no"),
                    };
                    breaker.refresh(&settings, now, &mut random);
                    let before_settling = breaker.state;
                    breaker.settle(&settings, &permit, &judged, now, &mut random);
                    let is_probe = probes.contains(&admitted_at);
                    if matches!(before_settling, BreakerState::HalfOpen { .. }) && !is_probe {
                        assert_eq!(
                            breaker.state, before_settling,
                            "seed {seed}: an old result moved a half open breaker"
                        );
                    }
                    if matches!(before_settling, BreakerState::Open { .. }) {
                        assert_eq!(
                            breaker.state, before_settling,
                            "seed {seed}: a result moved an open breaker"
                        );
                    }
                }
                _ => now = now.after(ms(random.u64(0..400))),
            }
        }
        // It is never shut for good: a probe expires, then the opening.
        let later = now.after(settings.probe).after(settings.max_open);
        assert!(
            breaker.admit(&settings, None, None, later, &mut random).is_ok(),
            "seed {seed}: shut for good"
        );
    }
}
