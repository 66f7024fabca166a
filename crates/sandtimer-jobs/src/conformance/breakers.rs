//! What every store of jobs must do with circuit breakers that workers share.

use std::time::Duration;

use sandtimer_agents::resilience::BreakerSnapshot;

use super::ConformancePart;
use crate::job::{JobStore, StoreError, breaker_key};
pub(super) fn breakers_are_listed_by_owner(part: &ConformancePart<'_>) {
    for (owner, key) in [("breakers", "b"), ("breakers", "a\nc"), ("breakers x", "b")] {
        let snapshot = breaker(&breaker_key(owner, key));
        assert!(part.store.swap_breaker(0, &snapshot).expect("kept"));
    }
    let list = |owner: Option<&str>| {
        let page = part.store.breakers(owner, None, 1_000).expect("listed");
        page.breakers.into_iter().map(|one| (one.owner, one.snapshot.key)).collect::<Vec<_>>()
    };
    let entry = |owner: &str, key: &str| (owner.to_owned(), key.to_owned());
    assert_eq!(list(Some("breakers")), [entry("breakers", "a\nc"), entry("breakers", "b")]);
    assert_eq!(list(Some("breaker")), []);
    assert!(list(None).contains(&entry("breakers x", "b")), "{:?}", list(None));
    (part.pass)(Duration::from_millis(50));
    let page = part.store.breakers(Some("breakers"), None, 1).expect("listed");
    let left = page.breakers[0].snapshot.retry_after_ms;
    assert!(left.is_some_and(|left| left <= 9_950), "its time is counted down: {left:?}");
}

/// The parts of a list have each breaker once, also if one is added or removed in between, and none
/// of another owner.
pub(super) fn breakers_are_listed_in_parts(part: &ConformancePart<'_>) {
    let keep = |owner: &str, key: &str| {
        assert!(part.store.swap_breaker(0, &breaker(&breaker_key(owner, key))).expect("kept"));
    };
    for number in 0..5 {
        keep(part.name, &format!("k{number}"));
    }
    keep("breaker part", "k9");
    keep("breaker parts\u{b}", "k0");
    let read = |owner, cursor: Option<&str>, most| {
        let page = part.store.breakers(owner, cursor, most).expect("listed");
        let keys: Vec<_> = page.breakers.into_iter().map(|one| one.snapshot.key).collect();
        (keys, page.next)
    };
    let own = Some(part.name);
    let (first, next) = read(own, None, 2);
    assert_eq!(first, ["k0", "k1"]);
    keep(part.name, "k15");
    keep(part.name, "k05");
    let (second, next) = read(own, next.as_deref(), 2);
    assert_eq!(second, ["k15", "k2"]);
    assert_eq!(read(own, next.as_deref(), 3), (vec!["k3".to_owned(), "k4".to_owned()], None));
    let (first, next) = read(None, None, 1);
    let (second, _) = read(None, next.as_deref(), 1_000);
    let all = part.store.breakers(None, None, 1_001).expect("listed").breakers;
    assert_eq!([first, second].concat().len(), all.len());
    // A cursor of another owner's list is only a place among the owner's own.
    let (_, other) = read(Some("breaker part"), None, 1);
    assert_eq!(read(own, other.as_deref(), 1).0, ["k0"]);
    for wrong in ["k1", "*", "_w"] {
        let refused = part.store.breakers(own, Some(wrong), 1).expect_err("refused");
        assert!(matches!(&refused, StoreError::Cursor(shown) if shown == wrong), "{wrong}: {refused:?}");
    }
}

fn breaker(key: &str) -> BreakerSnapshot {
    BreakerSnapshot {
        key: key.to_owned(),
        state: "open".to_owned(),
        held: None,
        retry_after_ms: Some(10_000),
        failures_in_a_row: 5,
        times_opened: 1,
        successes: 0,
        probe_ends_ms: Some(5_000),
        probe_of: Some("7f3".to_owned()),
        generation: 7,
        window: vec![true],
        said: vec!["no".to_owned()],
    }
}

pub(super) fn breakers_are_kept(store: &dyn JobStore) {
    let snapshot = breaker("calculator:calculate");
    let load = || store.load_breaker(&snapshot.key).expect("loaded");
    let swap =
        |version: u64, snapshot: &BreakerSnapshot| store.swap_breaker(version, snapshot).expect("asked");
    assert_eq!(load(), (0, None));
    assert!(!swap(3, &snapshot), "there is no third version");
    assert!(swap(0, &snapshot));
    let (version, kept) = load();
    let kept = kept.expect("there");
    assert!(kept.retry_after_ms.expect("open") <= 10_000 && kept.probe_ends_ms.expect("a probe") <= 5_000);
    assert_eq!(
        BreakerSnapshot { retry_after_ms: Some(10_000), probe_ends_ms: Some(5_000), ..kept },
        snapshot
    );
    let other = BreakerSnapshot { failures_in_a_row: 6, ..snapshot.clone() };
    assert!(!swap(0, &other), "somebody else was first");
    assert!(swap(version, &other));
    assert!(!swap(version, &snapshot), "that version is gone");
    assert_eq!(load().1.expect("there").failures_in_a_row, 6);
}
