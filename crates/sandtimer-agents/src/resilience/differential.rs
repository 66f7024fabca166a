//! Compares retries with those of a well-known library, `backon`, on random configurations in which
//! both mean the same: how often something is tried, after which pauses, and how it ends.
//!
//! Left out is what one of them has alone or means otherwise. At random, ours is anything up to a
//! pause, and theirs that pause and up to once more of it: so theirs is asked for pauses without,
//! and ours is held to them times its own random number. A first pause above the longest, which
//! theirs makes and ours cuts. Their limit for the sum of all pauses, where ours is a deadline for
//! the attempts as well. Retry-After, budgets, breakers and fallbacks, which theirs has not. Theirs
//! multiplies in 32 bits of floating point, so the pauses agree to a ten-thousandth part. Breakers
//! have such a test in Python, against `pybreaker`.

use std::cell::RefCell;
use std::time::Duration;

use backon::{BackoffBuilder, BlockingRetryable, ConstantBuilder, ExponentialBuilder};
use fastrand::Rng;
use sandtimer::time::Moment;

use super::*;

/// How each attempt ends, the last for all that follow.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Success,
    Failure,
    /// An error that no repetition mends.
    Fatal,
}

/// What a call did.
#[derive(Debug, PartialEq)]
struct ObservedCall {
    attempts: usize,
    pauses: Vec<Duration>,
    ok: bool,
}

fn theirs(builder: impl BackoffBuilder, ends: &[End]) -> ObservedCall {
    let (attempts, pauses) = (RefCell::new(0), RefCell::new(Vec::new()));
    let attempt = || {
        *attempts.borrow_mut() += 1;
        match ends[(*attempts.borrow() - 1).min(ends.len() - 1)] {
            End::Success => Ok(()),
            end => Err(end),
        }
    };
    let done = attempt
        .retry(builder)
        .sleep(|_| {})
        .notify(|_, pause| pauses.borrow_mut().push(pause))
        .when(|end| *end == End::Failure)
        .call();
    ObservedCall { attempts: attempts.take(), pauses: pauses.take(), ok: done.is_ok() }
}

fn ours(retry: Retry, seed: u64, ends: &[End]) -> ObservedCall {
    let (mut breakers, mut budgets) = (Breakers::new(BreakerSettings::default(), seed), Budgets::default());
    let mut call = GuardedCall::new(vec![Way::new(retry)], None).seed(seed);
    let (mut now, mut did) =
        (Moment::from_nanos(0), ObservedCall { attempts: 0, pauses: Vec::new(), ok: false });
    loop {
        match call.next(&mut breakers, now) {
            CallStep::Attempt { .. } => {
                let end = ends[did.attempts.min(ends.len() - 1)];
                did.attempts += 1;
                let failure = AttemptFailure { retryable: end == End::Failure, ..AttemptFailure::new("no") };
                let judged = if end == End::Success {
                    AttemptResult::Success
                } else {
                    AttemptResult::Failure(failure)
                };
                call.ended(judged, &mut breakers, &mut budgets, now);
            }
            CallStep::Wait { until } => {
                did.pauses.push(until.since(now));
                now = until;
            }
            CallStep::Over(end) => return ObservedCall { ok: end.is_done(), ..did },
        }
    }
}

fn ends(random: &mut Rng) -> Vec<End> {
    let any = |random: &mut Rng| match random.u8(..8) {
        0 => End::Success,
        1 => End::Fatal,
        _ => End::Failure,
    };
    (0..random.usize(1..12)).map(|_| any(random)).collect()
}

fn are_alike(one: &[Duration], other: &[Duration]) -> bool {
    let close = |(one, other): (&Duration, &Duration)| {
        one.abs_diff(*other) <= *other / 10_000 + Duration::from_nanos(1)
    };
    one.len() == other.len() && one.iter().zip(other).all(close)
}

#[test]
fn exponential_retries_are_those_of_a_well_known_library() {
    for seed in 0..20_000 {
        let mut random = Rng::with_seed(seed);
        let (attempts, ends) = (random.u32(1..16), ends(&mut random));
        let base = Duration::from_micros(random.u64(1..2_000_000));
        let most = base * random.u32(1..3_000);
        let builder = ExponentialBuilder::new()
            .with_factor(2.0)
            .with_min_delay(base)
            .with_max_delay(most)
            .with_max_times(attempts as usize - 1);
        let mut theirs = theirs(builder, &ends);
        // What ours draws, in the same order.
        let mut draws = Rng::with_seed(seed);
        theirs.pauses.iter_mut().for_each(|pause| *pause = pause.mul_f64(draws.f64()));
        let retry = Retry { attempts, backoff: Backoff::FullJitter { base, most }, useful: Duration::ZERO };
        let ours = ours(retry, seed, &ends);
        assert_eq!((ours.attempts, ours.ok), (theirs.attempts, theirs.ok), "seed {seed}: {ends:?}");
        assert!(are_alike(&ours.pauses, &theirs.pauses), "seed {seed}: {ours:?} {theirs:?}");
    }
}

#[test]
fn retries_with_one_pause_are_those_of_a_well_known_library() {
    for seed in 0..5_000 {
        let mut random = Rng::with_seed(seed);
        let (attempts, ends) = (random.u32(1..16), ends(&mut random));
        let pause = Duration::from_micros(random.u64(1..2_000_000));
        let builder = ConstantBuilder::new().with_delay(pause).with_max_times(attempts as usize - 1);
        assert_eq!(ours(Retry::fixed(attempts, [pause]), seed, &ends), theirs(builder, &ends), "seed {seed}");
    }
}
