use std::time::Duration;

use sandtimer::limits::{Ceilings, EffectiveLimits, Limits, ScopeLocation, Setting, nest, precedence};
use sandtimer::model::{Layer, LimitKind, Source};

use super::*;

const MINUTE: u64 = 60;

/// The moment this many seconds after the start.
fn at(seconds: u64) -> Moment {
    Moment::from_nanos(1_000_000_000 * (1_000 + seconds))
}

fn minutes(minutes: u64) -> Moment {
    at(minutes * MINUTE)
}

fn effective(limits: &Limits) -> EffectiveLimits {
    let location = ScopeLocation { layer: Layer::Loop, scope: "loop".to_owned() };
    nest(&location, &precedence(&[(Source::Call, limits)]), &[], &Ceilings::none())
}

fn budget_with(limits: &Limits, options: BudgetOptions) -> Budget {
    Budget::new(effective(limits), options, at(0)).expect("sound options")
}

/// As the source has it: 2 hours, 100 turns, 20 minutes of silence.
fn source() -> Budget {
    let limits =
        Limits::new().wall(Duration::from_secs(7200)).turns(100).stall(Duration::from_secs(20 * MINUTE));
    budget_with(&limits, BudgetOptions::default())
}

fn unlimited() -> Budget {
    budget_with(&Limits::new(), BudgetOptions::default())
}

fn task(name: &str, estimated: u64, max: u64) -> TaskOf<'_> {
    let minutes = |minutes| Some(Duration::from_secs(minutes * MINUTE));
    TaskOf { name, estimated: minutes(estimated), max: minutes(max), ends_after: None }
}

fn training(budget: &mut Budget, now: Moment) {
    budget.start_task(task("train_complex_model", 30, 90), false, now).expect("a task");
}

fn binding(check: &Check) -> (LimitKind, Option<&str>) {
    let limit = check.limits.iter().find(|limit| limit.binding).expect("one binds");
    (limit.kind, limit.task.as_deref())
}

#[test]
fn check_lists_every_limit_with_its_usage() {
    let mut budget = source();
    for turn in 0..17 {
        budget.start_turn(at(turn * 7));
    }
    let check = budget.check(minutes(2));
    assert_eq!((check.state, check.timed_out), (BudgetState::Going, false));
    let reported: Vec<_> = check
        .limits
        .iter()
        .map(|limit| (limit.kind, limit.used, limit.limit, limit.remaining, limit.source))
        .collect();
    let seconds = |seconds| Quantity::Time(Duration::from_secs(seconds));
    let count = Quantity::Count;
    let call = Some(Source::Call);
    assert_eq!(
        reported,
        [
            (LimitKind::Wall, seconds(120), Some(seconds(7200)), Some(seconds(7080)), call),
            (LimitKind::Turns, count(17), Some(count(100)), Some(count(83)), call),
            (LimitKind::Stall, seconds(8), Some(seconds(1200)), Some(seconds(1192)), call),
            (LimitKind::Failures, count(0), None, None, None),
        ]
    );
    // 83 turns of 7 s come before 118 minutes.
    assert_eq!(binding(&check), (LimitKind::Turns, None));
    assert_eq!(check.remaining_ms, Some(7_080_000));
    let wire = serde_json::to_value(&check).expect("plain data");
    assert_eq!(wire["limits"][0]["used"], 120_000);
    assert_eq!(wire["limits"][3]["limit"], serde_json::Value::Null);
    assert_eq!(wire["state"], "going");
}

#[test]
fn the_lines_are_those_of_the_source() {
    let mut budget = source();
    for _ in 0..16 {
        budget.start_turn(at(0));
    }
    training(&mut budget, at(0));
    budget.start_turn(minutes(2));
    let lines = |budget: &mut Budget, now| budget.check(now).text;
    assert_eq!(
        lines(&mut budget, minutes(2)),
        "✓ Global: 2m / 120m OK\n✓ Turns: 17 / 100 OK\n✓ Stall: 0m / 20m OK (activity registered)\n✓ Task: 2m / 90m OK \
         (2% of max)"
    );
    budget.note_activity(minutes(15));
    let text = lines(&mut budget, minutes(15));
    assert!(text.ends_with("✓ Task: 15m / 90m OK (50% of estimated, 17% of max)"), "{text}");
    budget.note_activity(minutes(30));
    let text = lines(&mut budget, minutes(30));
    assert!(
        text.ends_with("⚠️ Task: 30m / 90m (REACHED ESTIMATED DURATION)\nℹ️  Still OK - within max duration"),
        "{text}"
    );
    budget.note_activity(minutes(42));
    assert_eq!(
        budget.complete_task(None, minutes(42)),
        Some(("train_complex_model".to_owned(), Duration::from_secs(42 * MINUTE)))
    );
    let text = lines(&mut budget, minutes(42));
    assert!(text.ends_with("✓ All checks OK (no active task)"), "{text}");
}

#[test]
fn an_overrun_of_the_estimate_is_a_warning_and_no_more() {
    let mut budget = source();
    training(&mut budget, at(0));
    for now in [minutes(15), minutes(25), minutes(35)] {
        budget.note_activity(now);
    }
    let check = budget.check(minutes(35));
    assert_eq!(check.state, BudgetState::Going);
    assert_eq!(
        check.warnings,
        [
            "⚠️ Task 'train_complex_model' is taking longer than expected\n   Expected: 30m, Actual: 35m (5m overrun)\n   \
          Max allowed: 1h 30m"
        ]
    );
    assert!(check.text.contains("⚠️ Task: 35m / 90m (OVERRUN by 5m)"), "{}", check.text);
    let status = budget.task_status(None, minutes(35)).expect("it goes on");
    assert_eq!((status.is_overdue, status.progress_percent), (true, Some(100.0)));
}

#[test]
fn a_task_is_up_at_its_maximum_and_grants_one_more_turn() {
    let mut budget = source();
    training(&mut budget, minutes(5));
    for minute in (10..=95).step_by(5) {
        assert_eq!(budget.start_turn(minutes(minute)), TurnKind::Work);
        let check = budget.check(minutes(minute));
        assert_eq!(check.timed_out, minute == 95, "at {minute} minutes");
    }
    let check = budget.check(minutes(95));
    assert_eq!(check.state, BudgetState::WrapUp);
    assert_eq!(
        check.reason.as_deref(),
        Some("Task timeout: 'train_complex_model' exceeded 1h 30m (estimated 30m 0s)")
    );
    let message = check.message.expect("something to tell");
    assert!(
        message.starts_with("⏱️ TIMEOUT: Task 'train_complex_model' exceeded 1h 30m (estimated 30m 0s)"),
        "{message}"
    );
    assert!(message.contains("Please stop this task and proceed with current best model."), "{message}");
    assert_eq!(binding(&budget.check(minutes(95))), (LimitKind::Wall, Some("train_complex_model")));
    assert_eq!(budget.start_turn(minutes(96)), TurnKind::WrapUp);
    assert_eq!(budget.check(minutes(96)).state, BudgetState::WrapUp);
    assert_eq!(budget.start_turn(minutes(97)), TurnKind::Refused);
    let check = budget.check(minutes(97));
    assert_eq!((check.state, check.turn), (BudgetState::Over, 19));
    assert!(
        budget.summary(minutes(97)).contains("Ended by: Task timeout"),
        "{}",
        budget.summary(minutes(97))
    );
}

#[test]
fn the_factor_moves_the_end_of_tasks() {
    let options = BudgetOptions { max_duration_factor: 1.5, ..BudgetOptions::default() };
    let mut budget = budget_with(&Limits::new(), options);
    training(&mut budget, at(0));
    assert!(!budget.check(minutes(134)).timed_out);
    assert!(budget.check(minutes(135)).timed_out);
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = BudgetOptions { max_duration_factor: factor, ..BudgetOptions::default() };
        let refused = Budget::new(effective(&Limits::new()), options, at(0));
        assert!(matches!(refused, Err(OptionsError::Factor(_))), "{factor}");
    }
}

#[test]
fn idle_time_counts_despite_a_turn_before_the_check() {
    let mut budget = source();
    budget.start_turn(at(0));
    budget.start_turn(at(3600));
    let check = budget.check(at(3600));
    assert_eq!(check.state, BudgetState::WrapUp);
    assert_eq!(check.reason.as_deref(), Some("Stalled: no activity for 20m 0s"));
    assert_eq!(binding(&check), (LimitKind::Stall, None));
}

#[test]
fn activity_in_time_counts_when_reported_late() {
    let mut budget = source();
    budget.note_activity_at(minutes(15), minutes(30));
    assert!(!budget.check(minutes(30)).timed_out);
    // The same without it.
    assert!(source().check(minutes(30)).timed_out);
}

#[test]
fn running_run_counts_as_activity() {
    let mut budget = source();
    budget.note_run(minutes(1), None, minutes(60));
    assert!(!budget.check(minutes(60)).timed_out);
    // After the end of a run the silence counts.
    let mut budget = source();
    budget.note_run(minutes(1), Some(minutes(30)), minutes(60));
    assert_eq!(budget.check(minutes(60)).reason.as_deref(), Some("Stalled: no activity for 20m 0s"));
    let mut budget = source();
    budget.note_run(minutes(1), Some(minutes(30)), minutes(60));
    budget.note_run(minutes(45), Some(minutes(55)), minutes(60));
    assert!(!budget.check(minutes(60)).timed_out);
    // The silence before it counts.
    let mut budget = source();
    budget.note_run(minutes(25), None, minutes(60));
    assert!(budget.check(minutes(60)).timed_out);
}

#[test]
fn turns_are_worked_before_they_are_used_up() {
    let mut budget = budget_with(&Limits::new().turns(3), BudgetOptions::default());
    let mut worked = 0;
    loop {
        let turn = budget.start_turn(at(worked));
        let check = budget.check(at(worked));
        if turn == TurnKind::Refused {
            assert_eq!(check.state, BudgetState::Over);
            break;
        }
        worked += 1;
        assert_eq!(check.timed_out, worked >= 3);
        assert_eq!(turn == TurnKind::WrapUp, worked == 4);
    }
    assert_eq!(worked, 4);
}

#[test]
fn timed_wrap_up_takes_as_many_calls_as_fit_its_time() {
    for (wrap_up_is_timed, second) in [(true, TurnKind::WrapUp), (false, TurnKind::Refused)] {
        let limits = Limits::new().wall(Duration::from_secs(100));
        let mut budget = budget_with(&limits, BudgetOptions { wrap_up_is_timed, ..BudgetOptions::default() });
        budget.check(at(95));
        assert_eq!(budget.start_turn(at(96)), TurnKind::WrapUp);
        assert_eq!(budget.start_turn(at(97)), second);
        assert_eq!(budget.start_turn(at(100)), TurnKind::Refused);
    }
}

#[test]
fn failures_are_counted() {
    let mut budget = budget_with(&Limits::new().failures(2), BudgetOptions::default());
    budget.note_failure(at(1));
    assert!(!budget.check(at(1)).timed_out);
    budget.note_failure(at(2));
    let check = budget.check(at(2));
    assert_eq!(check.reason.as_deref(), Some("Failure limit: 2 failures are used up"));
}

#[test]
fn the_wrap_up_turn_has_time_within_the_wall() {
    let mut budget = source();
    for minute in (0..=112).step_by(16) {
        budget.note_activity(minutes(minute));
    }
    let wall = |budget: &mut Budget, now| budget.run_bound(None, now).limits(1.0).get(LimitKind::Wall);
    let seconds = |seconds: u64| Setting::At(seconds * 1_000_000_000);
    assert_eq!(wall(&mut budget, minutes(113)), seconds(MINUTE));
    assert_eq!(budget.next_event(), Some(minutes(114)));
    assert!(!budget.check(minutes(113)).timed_out);
    let check = budget.check(minutes(114));
    let wrap_up = check.wrap_up.expect("it is granted");
    assert_eq!((wrap_up.turn, wrap_up.left_ms), (None, 6 * 60_000));
    assert_eq!(wall(&mut budget, minutes(115)), seconds(5 * MINUTE));
    assert!(check.text.contains("❌ Global: 114m / 120m (6m 0s are kept for wrapping up)"), "{}", check.text);
    assert_eq!(budget.next_event(), Some(minutes(120)));
    assert_eq!(budget.start_turn(minutes(116)), TurnKind::WrapUp);
    assert_eq!(budget.check(minutes(120)).state, BudgetState::Over);
    assert_eq!(wall(&mut budget, minutes(121)), seconds(0));
}

#[test]
fn late_check_still_grants_the_wrap_up_turn() {
    let limits = Limits::new().wall(Duration::from_secs(7200));
    let mut budget = budget_with(&limits, BudgetOptions::default());
    let check = budget.check(minutes(180));
    assert_eq!(check.wrap_up.expect("it is granted").left_ms, 3 * 60_000);
    assert_eq!(budget.start_turn(minutes(181)), TurnKind::WrapUp);
    assert_eq!(budget.check(minutes(183)).state, BudgetState::Over);
}

#[test]
fn a_wrap_up_of_no_time_is_none() {
    let options = BudgetOptions { wrap_up: Some(Duration::ZERO), ..BudgetOptions::default() };
    let mut budget = budget_with(&Limits::new().wall(Duration::from_secs(10)), options);
    assert_eq!(budget.check(at(9)).state, BudgetState::Going);
    assert_eq!(budget.check(at(10)).state, BudgetState::Over);
    let options = BudgetOptions { wrap_up: Some(Duration::from_secs(10)), ..BudgetOptions::default() };
    let limits = effective(&Limits::new().wall(Duration::from_secs(10)));
    assert!(matches!(Budget::new(limits, options, at(0)), Err(OptionsError::WrapUp { .. })));
}

#[test]
fn looking_grants_nothing() {
    let budget = source();
    assert_eq!(budget.inspect(minutes(200)).state, BudgetState::Hit);
    assert_eq!(budget.inspect(minutes(10)).state, BudgetState::Going);
}

#[test]
fn task_completed_before_the_check_does_not_stop_the_run() {
    let mut budget = unlimited();
    training(&mut budget, at(0));
    budget.note_activity(minutes(91));
    budget.complete_task(None, minutes(91));
    assert_eq!(budget.check(minutes(91)).state, BudgetState::Going);
    let summary = budget.summary(minutes(91));
    assert!(summary.contains("Over their maximum durations: train_complex_model by 1m 0s"), "{summary}");
}

#[test]
fn tasks_follow_one_another_or_go_on_together() {
    let mut budget = unlimited();
    budget.start_task(task("EDA", 5, 15), false, at(0)).expect("a task");
    training(&mut budget, minutes(7));
    assert!(budget.task_status(Some("EDA"), minutes(8)).is_none());
    budget.start_task(task("evaluation", 5, 10), true, minutes(8)).expect("a task");
    let refused = budget.start_task(task("evaluation", 5, 10), true, minutes(8));
    assert_eq!(refused, Err(TaskError::Active("evaluation".to_owned())));
    let check = budget.check(minutes(9));
    assert!(check.text.contains("✓ Task 'train_complex_model': 2m / 90m OK"), "{}", check.text);
    assert!(check.text.contains("✓ Task 'evaluation': 1m / 10m OK (20% of estimated, 10% of max)"));
    assert_eq!(binding(&check), (LimitKind::Wall, Some("evaluation")));
    assert_eq!(budget.complete_task(Some("nothing"), minutes(9)), None);
    assert!(budget.complete_task(Some("train_complex_model"), minutes(52)).is_some());
    // The one that is active is up.
    let check = budget.check(minutes(52));
    assert!(check.text.contains("❌ Task timeout: 'evaluation' exceeded 10m 0s"), "{}", check.text);
    assert!(budget.complete_task(None, minutes(52)).is_some());
    assert_eq!(budget.complete_task(None, minutes(52)), None);
}

#[test]
fn summary_matches_the_source_and_the_facts() {
    let mut budget = unlimited();
    budget.start_task(task("EDA", 10, 15), false, at(0)).expect("a task");
    budget.start_task(task("Training", 60, 90), false, minutes(7)).expect("a task");
    budget.complete_task(None, minutes(52));
    assert_eq!(
        budget.summary(minutes(52)),
        "Summary:\n  - Tasks completed: 2 (EDA, Training)\n  - Total runtime: 52 minutes\n  - All tasks within estimated \
         durations"
    );
    let mut budget = unlimited();
    budget.start_task(task("EDA", 5, 15), false, at(0)).expect("a task");
    budget.complete_task(None, minutes(7));
    assert_eq!(
        budget.summary(minutes(7)),
        "Summary:\n  - Tasks completed: 1 (EDA)\n  - Total runtime: 7 minutes\n  - Over their estimates: EDA by 2m 0s\n  \
         - All tasks within maximum durations"
    );
}

#[test]
fn only_ending_tasks_bound_their_runs() {
    for (on_task_timeout, expected) in [
        (OnTaskTimeout::Notify, Setting::Inherit),
        // At the suggested limit: four times the longest duration, which only the agent is given.
        (OnTaskTimeout::End, Setting::At(350 * MINUTE * 1_000_000_000)),
    ] {
        let mut budget =
            budget_with(&Limits::new(), BudgetOptions { on_task_timeout, ..BudgetOptions::default() });
        training(&mut budget, at(0));
        let wall =
            |budget: &mut Budget, task| budget.run_bound(task, minutes(10)).limits(1.0).get(LimitKind::Wall);
        assert_eq!(wall(&mut budget, Some("train_complex_model")), expected);
        assert_eq!(wall(&mut budget, None), Setting::Inherit);
        assert!(budget.check(minutes(90)).timed_out);
    }
    for (ends_after, expected) in [(120, 120), (10, 90)] {
        let options = BudgetOptions { on_task_timeout: OnTaskTimeout::End, ..BudgetOptions::default() };
        let mut budget = budget_with(&Limits::new(), options);
        let given = TaskOf { ends_after: Some(Duration::from_secs(60 * ends_after)), ..task("x", 30, 90) };
        budget.start_task(given, false, at(0)).expect("a task");
        assert_eq!(
            budget.run_bound(Some("x"), at(0)).end,
            Some(minutes(expected)),
            "never before its time is up"
        );
    }
}

#[test]
fn tasks_that_cannot_be_are_refused() {
    let mut budget = unlimited();
    for name in ["", "  ", "a\nb", &"x".repeat(201)] {
        let refused = budget.start_task(task(name, 1, 2), false, at(0));
        assert!(matches!(refused, Err(TaskError::Name(_))), "{name:?}");
    }
    let refused = budget.start_task(task("short", 2, 1), false, at(0));
    assert!(matches!(refused, Err(TaskError::DurationsReversed { .. })));
    for number in 0..64 {
        budget.start_task(task(&format!("task {number}"), 1, 2), true, at(0)).expect("a task");
    }
    assert_eq!(budget.start_task(task("one more", 1, 2), true, at(0)), Err(TaskError::Full));
}

#[test]
fn a_clock_that_goes_back_moves_nothing() {
    let mut budget = source();
    training(&mut budget, minutes(10));
    let before = budget.check(minutes(20));
    assert_eq!(budget.check(minutes(3)), before);
}

#[test]
fn repetition_is_detected() {
    let detected = |steps: &[(&str, &str, bool)]| {
        let mut budget = unlimited();
        for (action, observation, failed) in steps {
            budget.note_action(action, observation, *failed, at(1));
        }
        let check = budget.check(at(1));
        assert_eq!(check.state, BudgetState::Going);
        assert_eq!(check.warnings.len(), usize::from(check.repeated.is_some()));
        check.repeated
    };
    let (a, b) = (("ls", "x", false), ("cat x", "1", false));
    assert_eq!(detected(&[a, a, a]), None);
    assert_eq!(detected(&[a, a, a, a]), Some(RepetitionKind::SameAction));
    assert_eq!(detected(&[a, a, ("ls", "y", false), a, a]), None);
    let failed = |text| ("make", text, true);
    assert_eq!(detected(&[failed("1"), failed("2")]), None);
    assert_eq!(detected(&[failed("1"), failed("2"), failed("3")]), Some(RepetitionKind::SameError));
    assert_eq!(detected(&[a, b, a, b, a]), None);
    assert_eq!(detected(&[a, b, a, b, a, b]), Some(RepetitionKind::Alternating));
    assert_eq!(detected(&[a, b, a, b, a, b, ("pwd", "/", false)]), None);
}

#[test]
fn estimate_output_is_parsed() {
    let text = "⏱️ Task Duration Estimate: train_complex_model\n\n📊 Estimated Duration:\n   ⚡ Best case:  12m 0s\n   📈 \
                Typical:    30m 0s\n   ⚠️ Worst case: 1h 30m\n";
    let read = parse_estimate(text).expect("all is there");
    assert_eq!(
        (read.task_name.as_str(), read.typical.as_secs(), read.max.as_secs()),
        ("train_complex_model", 1800, 5400)
    );
    for (written, milliseconds) in [
        ("205ms", 205),
        ("0ms", 1),
        ("6.5s", 6500),
        ("45s", 45_000),
        ("1 m 30 s", 90_000),
        ("300 ms", 300),
        ("2.05 s", 2050),
        ("2 h 5 m (a guess: fewer than 5 runs of this very thing are known)", 7_500_000),
        ("1h 30m", 5_400_000),
    ] {
        let text = format!(
            "said before: Typical: 1s\nTask Duration Estimate: make -j 2\nTypical: {written}\nWorst case: {written}\nSuggested \
             limit: {written}\n\nmore"
        );
        let read = parse_estimate(&text).expect(written);
        let all = [read.typical, read.max, read.suggested_limit.expect("there")];
        assert_eq!(all.map(|duration| duration.as_millis()), [milliseconds; 3], "{written}");
        assert_eq!(read.task_name, "make -j 2");
    }
    for broken in [
        "",
        "Task Duration Estimate: x",
        "Task Duration Estimate: x\nTypical: soon\nWorst case: 2m",
        "Task Duration Estimate: x\nTypical: 3m\nWorst case: 2m",
        "Task Duration Estimate: !\nTypical: 1m\nWorst case: 2m",
        "Typical: 1m\nWorst case: 2m",
        "Task Duration Estimate: x\nTypical: -1m\nWorst case: 2m",
        "Task Duration Estimate: x\nTypical: 0s\nWorst case: 2m",
    ] {
        assert_eq!(parse_estimate(broken), None, "{broken}");
    }
}

#[test]
fn work_resumes_after_an_overdue_task_if_chosen() {
    for resumes_after_task in [false, true] {
        let options = BudgetOptions { resumes_after_task, ..BudgetOptions::default() };
        let mut budget = budget_with(&Limits::new(), options);
        budget.start_task(task("short", 1, 2), true, at(0)).expect("a task");
        assert!(budget.check(minutes(3)).wrap_up.is_some());
        assert_eq!(budget.start_turn(minutes(3)), TurnKind::WrapUp);
        assert_eq!(budget.start_turn(minutes(3)), TurnKind::Refused, "while the task goes on");
        budget.complete_task(Some("short"), minutes(3));
        let then = if resumes_after_task { TurnKind::Work } else { TurnKind::Refused };
        assert_eq!(budget.start_turn(minutes(4)), then);
    }
}

/// Where 20 minutes of silence are built in, or chosen.
fn with_stall_of(source: Source) -> Budget {
    let location = ScopeLocation { layer: Layer::Loop, scope: "agent".to_owned() };
    let limits = Limits::new().stall(Duration::from_secs(20 * MINUTE));
    let limits = nest(&location, &precedence(&[(source, &limits)]), &[], &Ceilings::none());
    Budget::new(limits, BudgetOptions::default(), at(0)).expect("sound options")
}

#[test]
fn builtin_stall_limit_is_widened_by_a_task() {
    let mut budget = with_stall_of(Source::Builtin);
    training(&mut budget, at(0));
    assert!(budget.check(minutes(2)).text.contains("✓ Stall: 2m / 20m OK\n"));
    let check = budget.check(minutes(25));
    assert!(!check.timed_out, "{}", check.text);
    assert!(check.text.contains("✓ Stall: 25m / 90m OK (within the time of the task)"), "{}", check.text);
    assert_eq!(
        budget.run_bound(Some("train_complex_model"), minutes(25)).stall,
        Some(Duration::from_secs(90 * MINUTE))
    );
    assert_eq!(budget.run_bound(Some("other"), minutes(25)).stall, Some(Duration::from_secs(20 * MINUTE)));
    assert!(!budget.check(minutes(89)).timed_out);
    let reason = budget.check(minutes(90)).reason;
    assert_eq!(
        reason.as_deref(),
        Some("Task timeout: 'train_complex_model' exceeded 1h 30m (estimated 30m 0s)")
    );
}

#[test]
fn stall_limit_is_its_own_again_after_the_task() {
    let mut budget = with_stall_of(Source::Builtin);
    training(&mut budget, at(0));
    budget.complete_task(None, minutes(40));
    assert!(!budget.check(minutes(59)).timed_out);
    assert_eq!(budget.check(minutes(60)).reason.as_deref(), Some("Stalled: no activity for 20m 0s"));
    // Silence before the task counts.
    let mut budget = with_stall_of(Source::Builtin);
    training(&mut budget, minutes(21));
    assert!(budget.check(minutes(21)).timed_out);
}

#[test]
fn chosen_stall_limit_stands_in_a_task() {
    for source in [Source::Call, Source::Env, Source::Config] {
        let mut budget = with_stall_of(source);
        training(&mut budget, at(0));
        assert_eq!(budget.check(minutes(20)).reason.as_deref(), Some("Stalled: no activity for 20m 0s"));
    }
}

#[test]
fn killed_task_is_not_completed() {
    let mut budget = source();
    training(&mut budget, at(0));
    let took = Duration::from_secs(5 * MINUTE);
    assert_eq!(budget.stop_task(None, minutes(5)), Some(("train_complex_model".to_owned(), took)));
    assert_eq!(budget.check(minutes(5)).tasks_completed, 0);
    let summary = budget.summary(minutes(5));
    assert!(summary.contains("Tasks completed: 0\n  - Tasks stopped: 1 (train_complex_model)"), "{summary}");
    assert_eq!(budget.stop_task(None, minutes(5)), None);
}

#[test]
fn where_it_was_chosen_only_what_runs_is_silent() {
    for counts_idle_time in [true, false] {
        let options = BudgetOptions { counts_idle_time, ..BudgetOptions::default() };
        let mut budget = budget_with(&Limits::new().stall(Duration::from_secs(60)), options);
        assert_eq!(budget.next_event().is_some(), counts_idle_time);
        assert_eq!(budget.check(minutes(5)).timed_out, counts_idle_time);
        assert_eq!(
            budget.run_bound(None, minutes(5)).stall,
            Some(Duration::from_secs(60)),
            "what runs is bounded"
        );
    }
}
