//! The race between extending and firing is run for real, on threads that start together many times
//! over.

use super::*;

const ROUNDS: u64 = 100_000;

fn at(nanoseconds: u64) -> Moment {
    Moment::from_nanos(nanoseconds)
}

fn cell(wall_end: u64) -> DeadlineCell {
    let cell = DeadlineCell::new(Duration::ZERO);
    cell.set(Some(at(wall_end))).unwrap();
    cell
}

#[test]
fn moments_saturate() {
    assert_eq!(at(u64::MAX), Moment::MAX);
    assert_eq!(Moment::MAX.after(Duration::from_nanos(1)), Moment::MAX);
    assert_eq!(at(5).after(Duration::MAX), at(5).after(FAR_FUTURE));
    assert_eq!(at(5).before(Duration::from_nanos(9)), at(0));
    assert_eq!(at(5).since(at(9)), Duration::ZERO);
    assert_eq!(at(9).since(at(5)), Duration::from_nanos(4));
}

#[test]
fn the_last_moment_is_not_never() {
    let cell = DeadlineCell::new(Duration::ZERO);
    cell.set(Some(Moment::MAX)).unwrap();
    assert_eq!(cell.wall_end(), Some(Moment::MAX));
    assert_eq!(cell.fire(at(1)), Fire::NotYet(Moment::MAX));
    assert_eq!(cell.fire(Moment::MAX), Fire::Fired(Moment::MAX));
    assert_eq!(cell.wall_end(), Some(Moment::MAX));
}

#[test]
fn a_deadline_fires_once_and_when_due() {
    let clock = FakeClock::default();
    let cell = cell(100);
    clock.advance(Duration::from_nanos(99));
    assert_eq!(cell.fire(clock.now()), Fire::NotYet(at(100)));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(cell.fire(clock.now()), Fire::Fired(at(100)));
    assert_eq!(cell.fire(clock.now()), Fire::AlreadyFired);
    assert_eq!(cell.set(Some(at(900))), Err(TooLate));
    assert_eq!(cell.set(None), Err(TooLate));
    assert_eq!(cell.wall_end(), Some(at(100)));
}

#[test]
fn without_a_deadline_nothing_fires_until_sealed() {
    let cell = DeadlineCell::new(Duration::ZERO);
    assert_eq!(cell.fire(Moment::MAX), Fire::Never);
    assert_eq!(cell.hard_end(), None);
    assert!(cell.seal());
    assert!(!cell.seal());
    assert_eq!(cell.fire(Moment::MAX), Fire::AlreadyFired);
    assert_eq!(cell.set(Some(at(1))), Err(TooLate));
    assert_eq!(cell.wall_end(), None);
}

#[test]
fn the_hard_end_is_wall_plus_grace_within_the_bound() {
    let cell = DeadlineCell::new(Duration::from_nanos(30));
    cell.set(Some(at(100))).unwrap();
    assert_eq!(cell.hard_end(), Some(at(130)));
    cell.set_bound(Some(at(120)));
    assert_eq!(cell.hard_end(), Some(at(120)));
    assert!(cell.seal());
    cell.set_bound(Some(at(500)));
    assert_eq!(cell.hard_end(), Some(at(130)));
}

/// Where two threads meet before every round. A blocking barrier wakes one of them microseconds
/// after the other, which is longer than the whole race; so they spin.
#[derive(Default)]
struct Meeting([AtomicU64; 2]);

impl Meeting {
    const MAX_YIELDS: u64 = 100_000_000;

    fn meet(&self, side: usize, round: u64) {
        self.0[side].store(round, Ordering::SeqCst);
        for turn in 0..Self::MAX_YIELDS {
            if self.0[1 - side].load(Ordering::SeqCst) >= round {
                // A delay that differs between rounds moves one side across all of the other's
                // steps.
                (0..round * (side as u64) % 41).for_each(|_| std::hint::spin_loop());
                return;
            }
            if turn % 256 == 255 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        panic!("the other thread never came to round {round}");
    }
}

/// Runs `one` and `other` on two threads, released together, once per round on a fresh cell, and
/// hands what each returned to `check`.
fn race<A: Send, B: Send>(
    one: impl Fn(&DeadlineCell) -> A + Sync,
    other: impl Fn(&DeadlineCell) -> B + Sync,
    check: impl Fn(A, B, &DeadlineCell),
) {
    let cells: Vec<DeadlineCell> = (0..ROUNDS).map(|_| cell(100)).collect();
    let meeting = Meeting::default();
    let rounds = || (1_u64..).zip(&cells);
    let (ones, others) = std::thread::scope(|scope| {
        let run_one =
            || rounds().map(|(round, cell)| (meeting.meet(0, round), one(cell)).1).collect::<Vec<_>>();
        let ones = scope.spawn(run_one);
        let others: Vec<B> = rounds().map(|(round, cell)| (meeting.meet(1, round), other(cell)).1).collect();
        (ones.join().unwrap(), others)
    });
    for ((one, other), cell) in ones.into_iter().zip(others).zip(&cells) {
        check(one, other, cell);
    }
}

#[test]
fn an_extension_and_a_firing_never_both_win() {
    race(
        |cell| cell.set(Some(at(200))),
        |cell| cell.fire(at(150)),
        |extended, fired, cell| match extended {
            Ok(()) => {
                assert_eq!(fired, Fire::NotYet(at(200)));
                assert_eq!(cell.wall_end(), Some(at(200)));
                assert!(!cell.is_fired());
            }
            Err(TooLate) => {
                assert_eq!(fired, Fire::Fired(at(100)));
                assert_eq!(cell.wall_end(), Some(at(100)));
            }
        },
    );
}

#[test]
fn a_burst_of_extensions_is_all_before_the_firing() {
    // The extensions stay below `now`, so the firing always wins in the end, with the last one that
    // held.
    race(
        |cell| (101..=140).filter(|end| cell.set(Some(at(*end))).is_ok()).last().unwrap_or(100),
        |cell| cell.fire(at(150)),
        |last_extension, fired, _| assert_eq!(fired, Fire::Fired(at(last_extension))),
    );
}

/// A clock that begins, on one thread, while the wall is moved on another, which learns of the
/// beginning before or after that: what was acknowledged holds, counted from the beginning.
#[test]
fn extension_holds_while_the_clock_starts() {
    use crate::limits::Limits;
    use crate::model::{Layer, Source};
    use crate::scope::{Extension, Opening, ScopeTree};

    const BEGINNING: u64 = 50;
    let nanoseconds = Duration::from_nanos;
    let limits = Limits::new().wall(nanoseconds(100));
    let open = |_| {
        let mut tree = ScopeTree::new(crate::limits::Ceilings::default());
        let own = crate::limits::precedence(&[(Source::Call, &limits)]);
        let opening = Opening { parent: None, layer: Layer::Run, name: "run".into(), own, warn: None };
        let scope = tree.open(opening, at(0)).unwrap();
        let cell = tree.cell(scope).unwrap();
        (std::sync::Mutex::new(tree), scope, cell, AtomicU64::new(0))
    };
    let runs: Vec<_> = (0..ROUNDS / 4).map(open).collect();
    let meeting = Meeting::default();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for (round, (_, _, cell, started)) in (1..).zip(&runs) {
                meeting.meet(0, round);
                started.store(BEGINNING, Ordering::Release);
                // It was submitted at 0.
                cell.begin(at(BEGINNING), |before| before.map(|end| end.after(nanoseconds(BEGINNING))))
                    .unwrap();
            }
        });
        for (round, (tree, scope, _, started)) in (1..).zip(&runs) {
            let mut tree = tree.lock().unwrap();
            meeting.meet(1, round);
            let begin = |tree: &mut ScopeTree| match started.load(Ordering::Acquire) {
                0 => {}
                at => tree.begin(*scope, Moment::from_nanos(at)).unwrap(),
            };
            begin(&mut tree);
            tree.extend(*scope, Extension::By(nanoseconds(30)), at(60)).unwrap();
            begin(&mut tree);
        }
    });
    for (_, _, cell, _) in &runs {
        assert_eq!(cell.wall_end(), Some(at(BEGINNING + 130)));
    }
}

#[test]
fn of_two_firings_one_wins() {
    race(
        |cell| cell.fire(at(100)),
        |cell| cell.fire(at(100)),
        |one, other, _| {
            let expected = [Fire::Fired(at(100)), Fire::AlreadyFired];
            assert!([one, other] == expected || [other, one] == expected, "{one:?} {other:?}");
        },
    );
}

#[test]
fn a_firing_and_another_cause_never_both_win() {
    race(
        DeadlineCell::seal,
        |cell| cell.fire(at(100)),
        |sealed, fired, _| {
            assert_eq!(fired, if sealed { Fire::AlreadyFired } else { Fire::Fired(at(100)) });
        },
    );
}

#[test]
fn a_stopwatch_leaves_pauses_out() {
    let clock = FakeClock::default();
    let second = Duration::from_secs(1);
    let mut watch = Stopwatch::started(clock.now());
    clock.advance(second);
    watch.pause(clock.now()).unwrap();
    assert_eq!(watch.pause(clock.now()), Err(StopwatchError::AlreadyPaused));
    clock.advance(second * 10);
    assert_eq!((watch.elapsed(clock.now()), watch.paused(clock.now())), (second, second * 10));
    assert_eq!(watch.resume(clock.now()), Ok(second * 10));
    assert_eq!(watch.resume(clock.now()), Err(StopwatchError::NotPaused));
    clock.advance(second);
    watch.pause(clock.now()).unwrap();
    clock.advance(second * 5);
    assert_eq!(watch.resume(clock.now()), Ok(second * 5));
    assert_eq!((watch.elapsed(clock.now()), watch.paused(clock.now())), (second * 2, second * 15));
}
