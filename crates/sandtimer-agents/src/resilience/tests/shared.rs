//! Breakers that several share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::*;

/// What several programs share, in one of them.
#[derive(Debug, Default)]
struct SharedMemoryBreakers(Mutex<HashMap<String, (u64, BreakerSnapshot)>>);

impl SharedMemoryBreakers {
    /// Lets this many milliseconds pass.
    fn pass(&self, milliseconds: u64) {
        for (_, kept) in self.0.lock().expect("whole").values_mut() {
            kept.retry_after_ms = kept.retry_after_ms.map(|left| left.saturating_sub(milliseconds));
            kept.probe_ends_ms = kept.probe_ends_ms.map(|left| left - milliseconds.cast_signed());
        }
    }
}

impl SharedBreakers for SharedMemoryBreakers {
    fn load(&self, key: &str) -> Option<(u64, Option<BreakerSnapshot>)> {
        let kept = self.0.lock().expect("whole").get(key).cloned();
        Some(kept.map_or((0, None), |(version, kept)| (version, Some(kept))))
    }

    fn swap(&self, version: u64, snapshot: &BreakerSnapshot) -> Option<bool> {
        let mut kept = self.0.lock().expect("whole");
        let there = kept.get(&snapshot.key).map_or(0, |(version, _)| *version);
        if there == version {
            kept.insert(snapshot.key.clone(), (version + 1, snapshot.clone()));
        }
        Some(there == version)
    }
}

#[test]
fn shared_breaker_counts_all_failures_and_admits_one_probe() {
    let store = Arc::new(SharedMemoryBreakers::default());
    let shared = |seed: u64, settings| {
        Breakers::new(settings, seed).shared(Arc::clone(&store) as Arc<_>, &seed.to_string())
    };
    let patient = || BreakerSettings { consecutive: Some(100_000), ..short() };
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let mut breakers = shared(seed, patient());
            scope.spawn(move || fail(&mut breakers, 1_000, at(0)));
        }
    });
    let counted = store.load(KEY).expect("there").1.expect("kept").failures_in_a_row;
    assert_eq!(counted, 4_000);
    // One more than any of these allows: it opens, and when that has ended one of many is let in.
    let mut breakers = shared(4, short());
    let ticket = breakers.admit(KEY, None, at(0)).expect("it is closed");
    breakers.settle(ticket, &failure("no"), at(0));
    store.pass(1_000);
    let admitted: usize = std::thread::scope(|scope| {
        let ask = |seed| {
            let mut breakers = shared(seed, short());
            scope.spawn(move || breakers.admit(KEY, None, at(1_000)).map(|_ticket| ()).is_ok())
        };
        let asked: Vec<_> = (0..8).map(ask).collect();
        asked.into_iter().map(|asked| usize::from(asked.join().expect("no panic"))).sum()
    });
    assert_eq!(admitted, 1);
}

#[test]
fn success_admitted_before_another_opened_does_not_close() {
    let store = Arc::new(SharedMemoryBreakers::default());
    let shared =
        |seed: u64| Breakers::new(short(), seed).shared(Arc::clone(&store) as Arc<_>, &seed.to_string());
    let (mut slow, mut others) = (shared(1), shared(2));
    let early = slow.admit(KEY, None, at(0)).expect("it is closed");
    fail(&mut others, 3, at(0));
    slow.settle(early, &AttemptResult::Success, at(10));
    assert!(others.admit(KEY, None, at(20)).is_err(), "an old success closed it");
    assert_eq!(store.load(KEY).expect("there").1.expect("kept").failures_in_a_row, 3);
}

#[test]
fn lost_probe_is_readmitted_to_its_owner_only() {
    let store = Arc::new(SharedMemoryBreakers::default());
    let shared = |who: &str| Breakers::new(short(), 1).shared(Arc::clone(&store) as Arc<_>, who);
    fail(&mut shared("earlier"), 3, at(0));
    store.pass(1_000);
    let lost = shared("job").admit(KEY, None, at(1_000)).expect("it is the probe");
    assert!(shared("other").admit(KEY, None, at(1_100)).is_err());
    let again = shared("job").admit(KEY, None, at(1_100)).expect("its worker was lost with the first");
    shared("job").settle(lost, &failure("late"), at(1_200));
    shared("job").settle(again, &AttemptResult::Success, at(1_300));
    assert_eq!(store.load(KEY).expect("there").1.expect("kept").state, "closed");
}

#[test]
fn a_probe_that_ended_long_ago_costs_no_further_time() {
    let store = Arc::new(SharedMemoryBreakers::default());
    let shared = |who: &str| Breakers::new(short(), 1).shared(Arc::clone(&store) as Arc<_>, who);
    fail(&mut shared("earlier"), 3, at(0));
    store.pass(1_000);
    let _lost = shared("job").admit(KEY, None, at(1_000)).expect("it is the probe");
    // Its half a second, and the two seconds at most for which it is open again.
    store.pass(60_000);
    assert!(shared("other").admit(KEY, None, at(61_000)).is_ok());
}

#[test]
fn rules_with_different_windows_share_one_window() {
    let rate = |share, window, least| Some(Rate { share, window, least });
    let by = |rate| BreakerSettings { consecutive: Some(1_000), rate, ..short() };
    let store = Arc::new(SharedMemoryBreakers::default());
    let shared = |rate| Breakers::new(by(rate), 1).shared(Arc::clone(&store) as Arc<_>, "job");
    fail(&mut shared(rate(1.0, 4, 4)), 3, at(0));
    fail(&mut shared(None), 1, at(0));
    assert_eq!(store.load(KEY).expect("there").1.expect("kept").window, [true; 3], "those of the last three");
    fail(&mut shared(rate(1.0, 4, 4)), 1, at(0));
    assert!(shared(None).admit(KEY, None, at(0)).is_err(), "four of four failed");
    // 14 of 25 are 56 %, whatever that is as a product of floating point numbers.
    let mut exact = Breakers::new(by(rate(0.56, 25, 25)), 1);
    for number in 0..25 {
        let ticket = exact.admit(KEY, None, at(0)).expect("it is closed");
        exact.settle(ticket, &if number < 11 { AttemptResult::Success } else { failure("no") }, at(0));
    }
    assert!(exact.admit(KEY, None, at(0)).is_err());
}
