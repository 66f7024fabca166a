//! Rules by example; then a tree that is opened, extended, paused, resumed, fired and closed at
//! random, checked after every step.

use proptest::prelude::*;

use super::*;
use crate::limits::precedence;
use crate::time::{Clock, FakeClock, Fire};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn at(seconds: u64) -> Moment {
    Moment::from_nanos(0).after(s(seconds))
}

fn opening(parent: Option<ScopeId>, layer: Layer, name: &str, limits: &Limits) -> Opening {
    let own = precedence(&[(Source::Call, limits)]);
    Opening { parent, layer, name: name.into(), own, warn: None }
}

fn wall(seconds: u64) -> Limits {
    Limits::new().wall(s(seconds))
}

/// A job and a run in it, both opened at second 0.
fn job_and_run(job: &Limits, run: &Limits) -> (ScopeTree, ScopeId, ScopeId) {
    let mut tree = ScopeTree::new(Ceilings::none());
    let job = tree.open(opening(None, Layer::Job, "job/7f3", job), at(0)).unwrap();
    let run = tree.open(opening(Some(job), Layer::Run, "run-3", run), at(0)).unwrap();
    (tree, job, run)
}

fn ends(tree: &ScopeTree, id: ScopeId) -> Option<(Moment, Moment)> {
    tree.deadline(id).unwrap().map(|deadline| (deadline.wall_end, deadline.hard_end))
}

#[test]
fn a_lifted_ceiling_bounds_what_is_inside_each_by_itself() {
    let mut tree = ScopeTree::new(Ceilings::none().with_operator(&wall(5)));
    let job = tree.open(opening(None, Layer::Job, "job/7f3", &Limits::new()), at(0)).unwrap();
    assert_eq!(ends(&tree, job), Some((at(5), at(5))));
    tree.lift_wall_ceiling(job, at(0)).unwrap();
    assert_eq!(ends(&tree, job), None);
    assert!(tree.effective(job, at(0)).unwrap().get(LimitKind::Wall).is_none());
    // Each has its whole ceiling, however long the work around it has gone on.
    for start in [1, 20] {
        let run = tree.open(opening(Some(job), Layer::Run, "run", &Limits::new()), at(start)).unwrap();
        assert_eq!(ends(&tree, run), Some((at(start + 5), at(start + 5))));
        assert!(tree.effective(run, at(start)).unwrap().get(LimitKind::Wall).is_some());
    }
}

#[test]
fn paths_follow_the_tree() {
    let (mut tree, job, _) = job_and_run(&Limits::new(), &Limits::new());
    let turn = tree.open(opening(Some(job), Layer::Turn, "turn-12", &Limits::new()), at(0)).unwrap();
    let run = tree.open(opening(Some(turn), Layer::Run, "run-3", &Limits::new()), at(0)).unwrap();
    assert_eq!(tree.location(run).unwrap().scope, "job/7f3/turn-12/run-3");
    assert_eq!(tree.deadline(run).unwrap(), None);
    tree.close(turn);
    assert_eq!(tree.location(run), Err(ScopeError::Unknown(run)));
    assert!(tree.location(job).is_ok());
    assert!(tree.open(opening(Some(turn), Layer::Run, "run-4", &Limits::new()), at(0)).is_err());
}

#[test]
fn a_job_ends_its_runs_and_is_named() {
    let (mut tree, job, run) = job_and_run(&wall(10).grace(s(2)), &wall(60).grace(s(5)));
    assert_eq!(ends(&tree, job), Some((at(10), at(12))));
    assert_eq!(ends(&tree, run), Some((at(7), at(12))));
    let deadline = tree.deadline(run).unwrap().unwrap();
    assert_eq!((deadline.effect.source, deadline.effect.layer), (Source::Ancestor, Layer::Job));
    assert_eq!(deadline.effect.scope, "job/7f3");
    assert_eq!((deadline.effect.value, deadline.limit), (7_000_000_000, s(10)));
    let late = tree.open(opening(Some(job), Layer::Run, "run-4", &wall(60).grace(s(5))), at(20)).unwrap();
    assert_eq!(ends(&tree, late), Some((at(12), at(12))), "opened after its job's end");
}

#[test]
fn equal_wall_limits_name_the_outermost() {
    let (mut tree, job, run) = job_and_run(&wall(10), &wall(10));
    assert_eq!(tree.deadline(run).unwrap().unwrap().effect.scope, "job/7f3");
    let turn = tree.open(opening(Some(job), Layer::Turn, "turn-1", &wall(10)), at(0)).unwrap();
    let run = tree.open(opening(Some(turn), Layer::Run, "run-1", &wall(10)), at(0)).unwrap();
    assert_eq!(tree.deadline(run).unwrap().unwrap().effect.scope, "job/7f3");
}

#[test]
fn a_ceiling_around_is_named_as_a_ceiling() {
    let mut tree = ScopeTree::new(Ceilings::none().with_operator(&wall(10)));
    let open = Limits::new().unlimited(LimitKind::Wall);
    let job = tree.open(opening(None, Layer::Job, "job/7f3", &open), at(0)).unwrap();
    let run = tree.open(opening(Some(job), Layer::Run, "run-3", &open), at(4)).unwrap();
    for id in [job, run] {
        let deadline = tree.deadline(id).unwrap().unwrap();
        assert_eq!((deadline.wall_end, deadline.limit), (at(10), s(10)));
        assert_eq!((deadline.effect.source, deadline.effect.layer), (Source::Ceiling, Layer::Job));
    }
    let extended = tree.extend(run, Extension::By(s(100)), at(5)).unwrap().unwrap();
    assert_eq!((extended.wall_end, extended.effect.source), (at(10), Source::Ceiling));
}

#[test]
fn an_extension_reaches_the_cell_and_the_scopes_inside() {
    let (mut tree, job, run) = job_and_run(&wall(10), &wall(60));
    let cell = tree.cell(run).unwrap();
    assert_eq!(cell.wall_end(), Some(at(10)));
    let extended = tree.extend(job, Extension::By(s(5)), at(1)).unwrap().unwrap();
    assert_eq!((extended.wall_end, extended.limit), (at(15), s(15)));
    assert_eq!((cell.wall_end(), cell.hard_end()), (Some(at(15)), Some(at(15))));
    tree.extend(job, Extension::Until(at(100)), at(2)).unwrap();
    assert_eq!(cell.wall_end(), Some(at(60)));
    assert_eq!(tree.deadline(run).unwrap().unwrap().effect.source, Source::Call);
}

#[test]
fn extension_names_the_capping_scope() {
    let (mut tree, _, run) = job_and_run(&wall(10), &wall(5));
    let extended = tree.extend(run, Extension::By(s(20)), at(1)).unwrap().unwrap();
    assert_eq!((extended.wall_end, extended.effect.scope.as_str()), (at(10), "job/7f3"));
}

#[test]
fn extensions_that_cannot_be() {
    let (mut tree, job, run) = job_and_run(&wall(10), &wall(5));
    let earlier = tree.extend(run, Extension::Until(at(4)), at(1)).unwrap_err();
    assert_eq!(
        earlier.to_string(),
        "`job/7f3/run-3`: an end 3s from now is not after the present one, 4s; ask for a later one"
    );
    assert_eq!(ends(&tree, run), Some((at(5), at(5))));
    let too_late = |over: &str| Err(ScopeError::TooLate { scope: "job/7f3/run-3".into(), over: over.into() });
    assert_eq!(tree.extend(run, Extension::By(s(9)), at(5)), too_late("job/7f3/run-3"));
    assert_eq!(tree.cell(run).unwrap().fire(at(5)), Fire::Fired(at(5)));
    assert_eq!(tree.extend(run, Extension::By(s(9)), at(1)), too_late("job/7f3/run-3"));
    assert_eq!(tree.pause(run, at(1)), too_late("job/7f3/run-3"));
    assert_eq!(tree.fired(run), Ok(false));
    assert_eq!(tree.fired(job), Ok(true));
    assert_eq!(tree.extend(run, Extension::By(s(9)), at(1)), too_late("job/7f3"));
}

/// The enforcer fires between the check and the compare-and-set: nothing of the extension stays.
#[test]
fn a_lost_race_changes_nothing() {
    let (mut tree, _, run) = job_and_run(&Limits::new(), &wall(5));
    assert_eq!(tree.cell(run).unwrap().fire(at(5)), Fire::Fired(at(5)));
    let longer = Timing { allowance: Some(s(50)), ..tree.node(run).unwrap().timing };
    assert!(matches!(tree.retime(run, longer, at(4)), Err(ScopeError::TooLate { .. })));
    assert_eq!(ends(&tree, run), Some((at(5), at(5))));
    assert_eq!(tree.carried(run, at(5)).unwrap().own_end, Some(at(5)));
}

#[test]
fn a_pause_moves_the_own_wall_and_not_the_one_around() {
    let (mut tree, _, run) = job_and_run(&wall(30), &wall(10));
    let paused = tree.pause(run, at(4)).unwrap().unwrap();
    assert_eq!((paused.wall_end, paused.effect.layer), (at(30), Layer::Job));
    assert_eq!(tree.pause(run, at(5)), Err(ScopeError::AlreadyPaused("job/7f3/run-3".into())));
    assert_eq!(tree.paused(run, at(6)), Ok(s(2)));
    assert_eq!(tree.resume(run, at(9)).unwrap().unwrap().wall_end, at(15));
    assert_eq!(tree.resume(run, at(9)), Err(ScopeError::NotPaused("job/7f3/run-3".into())));
    tree.pause(run, at(10)).unwrap();
    let resumed = tree.resume(run, at(29)).unwrap().unwrap();
    assert_eq!((resumed.wall_end, resumed.limit), (at(30), s(30)), "15 + 19 is past the job's end");
}

#[test]
fn a_pause_around_stops_the_clocks_inside() {
    let (mut tree, job, run) = job_and_run(&wall(30), &wall(10));
    let cell = tree.cell(run).unwrap();
    tree.pause(job, at(4)).unwrap();
    assert_eq!((cell.wall_end(), tree.is_paused(run)), (None, Ok(true)));
    assert_eq!(tree.resume(run, at(5)), Err(ScopeError::NotPaused("job/7f3/run-3".into())));
    tree.pause(run, at(6)).unwrap();
    tree.resume(job, at(7)).unwrap();
    assert_eq!(cell.wall_end(), Some(at(33)), "still paused itself; the job's end is bound again");
    let late = tree.open(opening(Some(run), Layer::Attempt, "attempt-1", &wall(1)), at(8)).unwrap();
    tree.resume(run, at(9)).unwrap();
    assert_eq!(cell.wall_end(), Some(at(15)));
    assert_eq!(ends(&tree, late), Some((at(10), at(10))), "opened in the pause, ran from its end");
}

#[test]
fn until_in_a_pause_counts_from_now() {
    let (mut tree, _, run) = job_and_run(&Limits::new(), &wall(10));
    tree.pause(run, at(4)).unwrap();
    assert_eq!(tree.extend(run, Extension::Until(at(20)), at(6)), Ok(None));
    assert_eq!(tree.resume(run, at(6)).unwrap().unwrap().wall_end, at(20));
}

#[test]
fn a_restart_does_not_reset_the_deadline() {
    let (mut tree, job, _) = job_and_run(&wall(10), &Limits::new());
    tree.extend(job, Extension::By(s(2)), at(1)).unwrap();
    tree.pause(job, at(2)).unwrap();
    tree.resume(job, at(5)).unwrap();
    let carried = tree.carried(job, at(6)).unwrap();
    assert_eq!(carried, CarriedDeadline { start: at(0), own_end: Some(at(15)) });

    let mut restarted = ScopeTree::new(Ceilings::none().with_operator(&wall(40)));
    let job = restarted
        .open_with_deadline(opening(None, Layer::Job, "job/7f3", &wall(10)), carried, at(9))
        .unwrap();
    assert_eq!(ends(&restarted, job), Some((at(15), at(15))));
    let extended = restarted.extend(job, Extension::By(s(90)), at(9)).unwrap().unwrap();
    assert_eq!(extended.wall_end, at(40), "a ceiling counts from the first start too");
}

#[test]
fn events_come_in_sequence() {
    let mut tree = ScopeTree::new(Ceilings::none());
    let limits = wall(10).grace(s(2));
    let opened = Opening { warn: Some(s(3)), ..opening(None, Layer::Run, "run-1", &limits) };
    let run = tree.open(opened, at(0)).unwrap();
    assert_eq!(tree.next_event(run), Ok(Some(DeadlineEvent::Warn(at(7)))));
    tree.warned(run).unwrap();
    assert_eq!(tree.next_event(run), Ok(Some(DeadlineEvent::Wall(at(10)))));
    tree.extend(run, Extension::By(s(10)), at(8)).unwrap();
    assert_eq!(tree.next_event(run), Ok(Some(DeadlineEvent::Warn(at(17)))), "a new end gets its own notice");
    tree.warned(run).unwrap();
    assert_eq!(tree.cell(run).unwrap().fire(at(20)), Fire::Fired(at(20)));
    assert_eq!(tree.next_event(run), Ok(Some(DeadlineEvent::Hard(at(22)))));

    let short = Opening { warn: Some(s(60)), ..opening(None, Layer::Run, "run-2", &limits) };
    let short = tree.open(short, at(5)).unwrap();
    assert_eq!(tree.next_event(short), Ok(Some(DeadlineEvent::Warn(at(5)))), "not before its start");
    let endless = tree.open(opening(None, Layer::Run, "run-3", &Limits::new()), at(5)).unwrap();
    assert_eq!(tree.next_event(endless), Ok(None));
}

#[test]
fn effective_limits_come_from_the_whole_tree() {
    let (mut tree, _, run) =
        job_and_run(&wall(100).memory(1000).unlimited(LimitKind::Cpu), &wall(5).memory(4000));
    tree.extend(run, Extension::By(s(1)), at(1)).unwrap();
    let effective = tree.effective(run, at(1)).unwrap();
    assert_eq!(effective.get(LimitKind::Wall).unwrap().value, 6_000_000_000);
    let memory = effective.get(LimitKind::Memory).unwrap();
    assert_eq!((memory.value, memory.source, memory.layer), (1000, Source::Ancestor, Layer::Job));
    assert_eq!(effective.get(LimitKind::Cpu), None);
}

#[derive(Debug, Clone)]
enum TreeStep {
    Open { parent: Option<usize>, wall: Option<u64>, grace: u64 },
    Reopen { parent: Option<usize>, start: u64, end: Option<u64> },
    ExtendBy(usize, u64),
    ExtendUntil(usize, u64),
    Pause(usize),
    Resume(usize),
    Fire(usize),
    Seal(usize),
    Close(usize),
    Advance(u64),
}

fn any_step() -> impl Strategy<Value = TreeStep> {
    let scope = 0_usize..64;
    let seconds = 0_u64..30;
    let maybe = || proptest::option::of(1_u64..30);
    let parent = proptest::option::weighted(0.9, scope.clone());
    prop_oneof![
        6 => (parent.clone(), maybe(), 0_u64..8)
            .prop_map(|(parent, wall, grace)| TreeStep::Open { parent, wall, grace }),
        1 => (parent, seconds.clone(), maybe())
            .prop_map(|(parent, start, end)| TreeStep::Reopen { parent, start, end }),
        3 => (scope.clone(), seconds.clone()).prop_map(|(scope, by)| TreeStep::ExtendBy(scope, by)),
        2 => (scope.clone(), 0_u64..90).prop_map(|(scope, until)| TreeStep::ExtendUntil(scope, until)),
        4 => scope.clone().prop_map(TreeStep::Pause),
        4 => scope.clone().prop_map(TreeStep::Resume),
        2 => scope.clone().prop_map(TreeStep::Fire),
        1 => scope.clone().prop_map(TreeStep::Seal),
        1 => scope.prop_map(TreeStep::Close),
        4 => (0_u64..4).prop_map(TreeStep::Advance),
    ]
}

/// A tree under random steps; indices wrap around the scopes that are open.
struct TreeWalk {
    tree: ScopeTree,
    clock: FakeClock,
}

impl TreeWalk {
    fn pick(&self, index: usize) -> Option<ScopeId> {
        let mut ids: Vec<ScopeId> = self.tree.nodes.keys().copied().collect();
        ids.sort();
        (!ids.is_empty()).then(|| ids[index % ids.len()])
    }

    fn open(&mut self, parent: Option<usize>, limits: &Limits, carried: Option<CarriedDeadline>) {
        let now = self.clock.now();
        let parent = parent.and_then(|index| self.pick(index));
        let opening = opening(parent, Layer::Run, "x", limits);
        match carried {
            Some(carried) => self.tree.open_with_deadline(opening, carried, now).unwrap(),
            None => self.tree.open(opening, now).unwrap(),
        };
    }

    /// Takes a step; what the tree refuses must leave every deadline where it was.
    fn take(&mut self, step: &TreeStep) {
        let now = self.clock.now();
        let before = self.all_ends();
        let refused = match *step {
            TreeStep::Open { parent, wall, grace } => {
                let limits = Limits::new().grace(s(grace));
                self.open(parent, &wall.map_or(limits.clone(), |wall| limits.wall(s(wall))), None);
                false
            }
            TreeStep::Reopen { parent, start, end } => {
                let carried = CarriedDeadline { start: at(start).min(now), own_end: end.map(at) };
                self.open(parent, &Limits::new().grace(s(2)), Some(carried));
                false
            }
            TreeStep::ExtendBy(scope, by) => self.extend(scope, Extension::By(s(by))),
            TreeStep::ExtendUntil(scope, until) => self.extend(scope, Extension::Until(at(until))),
            TreeStep::Pause(scope) => self.pick(scope).is_some_and(|id| self.tree.pause(id, now).is_err()),
            TreeStep::Resume(scope) => self.pick(scope).is_some_and(|id| self.tree.resume(id, now).is_err()),
            TreeStep::Fire(scope) => {
                self.pick(scope).map(|id| self.tree.cell(id).unwrap().fire(now));
                true
            }
            TreeStep::Seal(scope) => {
                self.pick(scope).map(|id| self.tree.fired(id).unwrap());
                true
            }
            TreeStep::Close(scope) => {
                if let Some(id) = self.pick(scope) {
                    self.tree.close(id);
                }
                false
            }
            TreeStep::Advance(seconds) => {
                self.clock.advance(s(seconds));
                true
            }
        };
        if refused {
            assert_eq!(self.all_ends(), before, "{step:?}");
        }
    }

    /// Returns whether it was refused; an extension never moves anything earlier.
    fn extend(&mut self, scope: usize, extension: Extension) -> bool {
        let Some(id) = self.pick(scope) else { return false };
        let before = self.tree.deadline(id).unwrap();
        let now = self.clock.now();
        let Ok(after) = self.tree.extend(id, extension, now) else { return true };
        let end = |deadline: Option<Deadline>| deadline.map_or(Moment::MAX, |deadline| deadline.wall_end);
        assert!(end(after) >= end(before));
        false
    }

    fn all_ends(&self) -> std::collections::BTreeMap<ScopeId, Option<(Moment, Moment)>> {
        self.tree.nodes.keys().map(|id| (*id, ends(&self.tree, *id))).collect()
    }

    fn check(&self) {
        let now = self.clock.now();
        for (id, node) in &self.tree.nodes {
            let mine = ends(&self.tree, *id);
            let hard = mine.map_or(Moment::MAX, |(wall_end, hard_end)| {
                assert!(wall_end <= hard_end && hard_end <= wall_end.after(node.cell.grace()));
                hard_end
            });
            let around = node.parent.and_then(|parent| ends(&self.tree, parent));
            assert!(hard <= around.map_or(Moment::MAX, |(_, hard_end)| hard_end), "{node:?}");
            if let Some(ceiling) = self.tree.ceilings.get(LimitKind::Wall) {
                assert!(hard <= node.timing.watch.start().after(Duration::from_nanos(ceiling)));
            }
            assert_eq!(node.cell.hard_end(), mine.map(|(_, hard_end)| hard_end), "{node:?}");
            if !node.cell.is_fired() {
                assert_eq!(node.cell.wall_end(), mine.map(|(wall_end, _)| wall_end));
                self.check_against_nesting(*id, now);
            }
        }
    }

    /// The absolute deadline and the pure nesting of durations are the same rule.
    fn check_against_nesting(&self, id: ScopeId, now: Moment) {
        let node = &self.tree.nodes[&id];
        let deadline = self.tree.deadline(id).unwrap();
        // Durations cannot show which of several ancestors ended first if all had ended at the
        // start; and an ancestor that has fired keeps its end even if a later extension further out
        // would move it.
        let stillborn =
            deadline.as_ref().is_some_and(|deadline| deadline.wall_end < node.timing.watch.start());
        let fired_around =
            self.tree.ancestors(id).iter().any(|around| self.tree.nodes[around].cell.is_fired());
        if !node.timing.watch.is_paused() && !stillborn && !fired_around {
            let effective = self.tree.effective(id, now).unwrap();
            let effect = deadline.clone().map(|deadline| deadline.effect);
            assert_eq!(effective.get(LimitKind::Wall), effect.as_ref(), "{node:?}");
        }
        let own_end = node.timing.own_end(now).filter(|_| !node.timing.watch.is_paused());
        if let (Some(own_end), Some(deadline)) = (own_end, deadline) {
            assert!(deadline.wall_end <= own_end);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn nothing_lets_a_scope_outlive_its_parent(
        ceiling in proptest::option::of(5_u64..40),
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let maxima = ceiling.map_or(Limits::new(), wall);
        let tree = ScopeTree::new(Ceilings::none().with_operator(&maxima));
        let mut walk = TreeWalk { tree, clock: FakeClock::default() };
        for step in &steps {
            walk.take(step);
            walk.check();
        }
    }

    /// Sums the pauses by hand: the own wall is later by exactly the time the scope stood still.
    #[test]
    fn a_pause_costs_a_run_nothing(
        spells in proptest::collection::vec((1_u64..5, 1_u64..5, any::<bool>()), 1..8),
    ) {
        let (mut tree, job, run) = job_and_run(&Limits::new(), &wall(1000));
        let clock = FakeClock::default();
        let mut still = 0;
        for (running, pausing, around) in spells {
            clock.advance(s(running));
            let paused = if around { job } else { run };
            tree.pause(paused, clock.now()).unwrap();
            prop_assert_eq!(ends(&tree, run), None);
            clock.advance(s(pausing));
            tree.resume(paused, clock.now()).unwrap();
            still += pausing;
            prop_assert_eq!(ends(&tree, run), Some((at(1000 + still), at(1000 + still))));
            prop_assert_eq!(tree.deadline(run).unwrap().unwrap().limit, s(1000));
        }
    }
}

#[test]
fn nested_scope_inherits_ceilings_that_bound_extensions() {
    let machine = Ceilings::none().with_operator(&Limits::new().memory(1 << 30));
    let mut tree = ScopeTree::new(machine);
    let tenant = tree.open(opening(None, Layer::Tenant, "tenant-a", &Limits::new()), at(0)).unwrap();
    tree.lower_ceilings(tenant, &wall(10).memory(2 << 30).processes(7)).unwrap();
    // Long after the tenant: a ceiling counts from the start of what it bounds.
    let run = tree.open(opening(Some(tenant), Layer::Run, "run-1", &wall(60)), at(100)).unwrap();
    let effective = tree.effective(run, at(100)).unwrap();
    let found = |kind: LimitKind| effective.get(kind).map(|effect| (effect.value, effect.source));
    assert_eq!(found(LimitKind::Wall), Some((10_000_000_000, Source::Ceiling)));
    assert_eq!(found(LimitKind::Memory), Some((1 << 30, Source::Ceiling)), "the machine's is lower");
    assert_eq!(found(LimitKind::Processes), Some((7, Source::Ceiling)));
    assert_eq!(ends(&tree, run), Some((at(110), at(110))));
    tree.extend(run, Extension::By(s(500)), at(101)).unwrap();
    assert_eq!(ends(&tree, run), Some((at(110), at(110))));
    let other = tree.open(opening(None, Layer::Run, "run-2", &wall(60)), at(100)).unwrap();
    assert_eq!(ends(&tree, other), Some((at(160), at(160))));
}
