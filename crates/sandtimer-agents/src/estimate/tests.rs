//! The figures that are promised without any run, the ladder, and what is refused.

use super::*;

const MINUTE: f64 = 60.0;

fn task(name: &str) -> Question {
    Question::task(TaskType::parse(name).expect("a type"))
}

fn minutes(question: &Question) -> [f64; 3] {
    let estimate = Estimator::new().predict(question);
    assert_eq!((estimate.basis, estimate.runs, estimate.limit_rests_on_runs), (Rung::Prior, 0, false));
    [estimate.best_seconds, estimate.typical_seconds, estimate.worst_seconds].map(|seconds| seconds / MINUTE)
}

fn finished(question: &Question, seconds: f64) -> FinishedRun {
    FinishedRun { question: question.clone(), seconds, stopped: false, ended_at_ms: 0 }
}

#[test]
fn the_figures_of_the_description_hold_without_history() {
    let training = task("train_complex_model").data_size_mb(2300.0).expect("a size");
    assert_eq!(minutes(&training.clone().complexity(Complexity::Moderate)), [12.0, 30.0, 90.0]);
    // The walk-through leaves the complexity out.
    assert_eq!(minutes(&training), [12.0, 30.0, 90.0]);
    let [_, typical, worst] = minutes(&task("explore_data"));
    assert_eq!((typical, worst), (5.0, 15.0));
    assert_eq!(minutes(&task("feature_engineering"))[1], 25.0);
    assert_eq!(minutes(&task("train_deep_learning"))[1], 120.0);
    assert_eq!(minutes(&task("train_simple_model"))[1], 30.0);
    assert_eq!(TaskType::all().count(), 29);
}

#[test]
fn what_the_description_concludes_from_its_figures_follows() {
    let estimate = |name| Estimator::new().predict(&task(name));
    let minutes = |count: u64| std::time::Duration::from_secs(60 * count);
    // 15 minutes of a budget of two hours are left.
    assert!(!estimate("feature_engineering").fits(minutes(15)));
    assert!(!estimate("train_deep_learning").fits(minutes(120)));
    assert!(estimate("train_simple_model").fits(minutes(110)));
}

#[test]
fn more_data_and_more_complexity_take_longer_within_bounds() {
    let typical = |size: f64| minutes(&task("train_complex_model").data_size_mb(size).expect("a size"))[1];
    assert!(
        typical(1.0) < typical(230.0)
            && typical(230.0) < typical(2300.0)
            && typical(2300.0) < typical(23_000.0)
    );
    assert_eq!(typical(0.0), 3.0);
    assert_eq!(typical(MAX_MEGABYTES), 1500.0);
    let complex = |complexity| minutes(&task("train_complex_model").complexity(complexity));
    assert_eq!(complex(Complexity::Complex), [18.0, 60.0, 225.0]);
    assert_eq!(complex(Complexity::Simple), [7.2, 21.0, 72.0]);
    for kind in TaskType::all() {
        for complexity in Complexity::ALL {
            let [best, typical, worst] = kind.prior(None, complexity);
            assert!(0.0 < best && best < typical && typical < worst, "{kind:?}");
        }
    }
}

#[test]
fn what_is_not_known_is_refused_with_what_is() {
    let refused = TaskType::parse("train_model").expect_err("no such type").to_string();
    for name in ["train_model", "train_simple_model", "train_complex_model"] {
        assert!(refused.contains(name), "{refused}");
    }
    for wrong in ["", "e", "data", "train", "train_complex_model2", "𝓽rain"] {
        assert!(TaskType::parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!(TaskType::parse(" Train Complex-Model ").expect("its name").name(), "train_complex_model");
    for wrong in [-1.0, -f64::MIN_POSITIVE, f64::NAN, f64::INFINITY, 1e300, MAX_MEGABYTES * 1.1] {
        let refused = task("load_data").data_size_mb(wrong).expect_err("no size").to_string();
        assert!(refused.contains(&format!("data_size_mb: `{wrong:?}`")), "{refused}");
        assert!(refused.contains("from 0 to 1000000000000") && refused.len() < 100, "{refused}");
    }
    assert!(task("load_data").data_size_mb(MAX_MEGABYTES).is_ok());
    assert!(Complexity::parse("medium").expect_err("no such word").to_string().contains("moderate"));
    let mut estimator = Estimator::new();
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(estimator.record(&finished(&task("load_data"), wrong)).is_err(), "{wrong}");
    }
    assert_eq!(estimator.predict(&Question::command(&["x"])).basis, Rung::Unknown);
    assert_eq!(estimator.keys(), 0);
}

#[test]
fn the_closest_rung_with_runs_is_taken() {
    let mut estimator = Estimator::new();
    let conditions = |hardware: &str| Conditions { hardware: hardware.to_owned(), load: Some(0.0) };
    let asked = |epochs: &str| {
        let question = Question::command(&["train.py", "--epochs", epochs]);
        question
            .of_type(TaskType::parse("train_simple_model").expect("a type"))
            .conditions(conditions("here"))
    };
    let basis = |estimator: &Estimator, question: &Question| estimator.predict(question).basis;
    assert_eq!(basis(&estimator, &asked("3")), Rung::Prior);
    estimator.record(&finished(&asked("3"), 10.0)).expect("recorded");
    assert_eq!(basis(&estimator, &asked("3")), Rung::Exact);
    assert_eq!(basis(&estimator, &asked("4")), Rung::Template);
    let loaded = Conditions { load: Some(3.0), ..conditions("here") };
    assert_eq!(basis(&estimator, &asked("3").conditions(loaded)), Rung::AnyLoad);
    let other = task("train_simple_model");
    assert_eq!(basis(&estimator, &other), Rung::Type);
    assert_eq!(basis(&estimator, &other.clone().owner("another")), Rung::Prior);
    assert_eq!(basis(&estimator, &Question::command(&["make"])), Rung::Unknown);
    // A task of a size was recorded: another of about that size, and one of quite another.
    let sized = |size| other.clone().conditions(conditions("here")).data_size_mb(size).expect("a size");
    estimator.record(&finished(&sized(100.0), 10.0)).expect("recorded");
    assert_eq!(basis(&estimator, &sized(110.0)), Rung::Class);
    let larger = estimator.predict(&sized(10_000.0));
    assert_eq!(larger.basis, Rung::Type);
    assert!(larger.typical_seconds > 20.0, "{larger:?}");
}

#[test]
fn stopped_runs_do_not_shorten_the_estimate() {
    let mut estimator = Estimator::new();
    let question = task("load_data");
    let before = estimator.predict(&question);
    for _ in 0..10 {
        let run = FinishedRun { stopped: true, ..finished(&question, 60.0) };
        estimator.record(&run).expect("recorded");
    }
    let after = estimator.predict(&question);
    assert_eq!((before.basis, after.basis), (Rung::Prior, Rung::Prior));
    assert!(
        after.best_seconds >= 60.0 && after.typical_seconds > 60.0 && after.worst_seconds > 60.0,
        "{after:?}"
    );
    // Of a command without a type there is nothing else.
    let command = Question::command(&["make"]);
    let run = FinishedRun { stopped: true, ..finished(&command, 60.0) };
    estimator.record(&run).expect("recorded");
    let only = estimator.predict(&command);
    assert!(only.typical_seconds > 60.0 && only.censored_rate == 1.0, "{only:?}");
}

#[test]
fn few_short_runs_do_not_replace_the_table_figures() {
    let of_type = || task("train_complex_model").data_size_mb(2300.0).expect("a size");
    let command = |name: &str| Question::command(&[name]).work_of(&of_type());
    let asked =
        [of_type(), command("train"), Question::command(&["train", "--seed", "2"]).work_of(&of_type())];
    let mut estimator = Estimator::new();
    for (index, least) in [450.0, 112.0].into_iter().enumerate() {
        let short = command(["probe", "smoke"][index]);
        estimator.record(&finished(&short, 0.05)).expect("recorded");
        for question in &asked {
            let estimate = estimator.predict(question);
            assert!(estimate.typical_seconds >= least && estimate.worst_seconds >= 5400.0, "{estimate:?}");
        }
        let same = estimator.predict(&short);
        assert!(same.typical_seconds < 1.0, "of the command itself it is known: {same:?}");
    }
    estimator.record(&finished(&command("other"), 0.05)).expect("recorded");
    let third = estimator.predict(&of_type());
    assert!(third.typical_seconds < 1.0, "three that agree are believed: {third:?}");
    // A run that took longer than in the table counts; a duration near the table's is believed at
    // once.
    for seconds in [900.0, 36_000.0] {
        let mut estimator = Estimator::new();
        estimator.record(&finished(&command("train"), seconds)).expect("recorded");
        let estimate = estimator.predict(&of_type());
        assert!((estimate.typical_seconds / seconds - 1.0).abs() < 0.01, "{estimate:?}");
    }
}

#[test]
fn single_run_is_described_in_the_singular() {
    let mut estimator = Estimator::new();
    let run = |command: &[&str]| Question::command(command).owner("me");
    estimator.record(&finished(&run(&["train", "--seed", "1"]), 10.0)).expect("recorded");
    let stopped = FinishedRun { stopped: true, ..finished(&run(&["make"]), 60.0) };
    estimator.record(&stopped).expect("recorded");
    for (command, basis) in [
        (["train", "--seed", "2"].as_slice(), "Basis: 1 run of a command that differs in numbers or paths\n"),
        (&["make"], "Basis: 1 run of this very thing; it was stopped before its end\n"),
    ] {
        let command = command.iter().map(|argument| (*argument).to_owned()).collect();
        let asked = EstimateRequest { command: Some(command), ..EstimateRequest::default() };
        let text = estimator.answer(asked, "me", Conditions::default()).expect("known").text();
        assert!(text.contains(basis), "{text}");
    }
}

#[test]
fn memory_is_bounded_and_the_state_can_be_written() {
    let mut estimator = Estimator::new();
    let last = MAX_KEYS * 2;
    for index in 0..last {
        let name: String = format!("{index}").chars().map(|digit| char::from(digit as u8 + 49)).collect();
        estimator.record(&finished(&Question::command(&[name]), 1.0)).expect("recorded");
    }
    assert!(estimator.keys() <= MAX_KEYS);
    let small = Estimator::from_runs(&[finished(&task("load_data"), 3.0)]);
    let text = serde_json::to_string(&small).expect("JSON");
    let read: Estimator = serde_json::from_str(&text).expect("JSON");
    assert_eq!(read, small);
    assert_eq!(read.predict(&task("load_data")), small.predict(&task("load_data")));
}

#[test]
fn output_matches_the_description() {
    let asked = EstimateRequest {
        task_type: Some("train_complex_model".to_owned()),
        data_size_mb: Some(2300.0),
        context: Some("slow GPU".to_owned()),
        budget: Some(std::time::Duration::from_secs(7200)),
        ..EstimateRequest::default()
    };
    let answer = Estimator::new().answer(asked, "me", Conditions::default()).expect("a prior");
    let text = answer.text();
    assert!(
        text.starts_with(
            "⏱️ Task Duration Estimate: train_complex_model\n\n📊 Estimated Duration:\n   ⚡ Best case:  12m 0s\n   \
             📈 Typical:    30m 0s\n   ⚠️ Worst case: 1h 30m\n"
        ),
        "{text}"
    );
    for part in ["Data size: 2300 MB", "moderate", "slow GPU", "no runs", "remaining 2h 0m: yes", "6h 0m"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let object = answer.object();
    assert_eq!(object["worst_ms"], 5_400_000);
    assert_eq!((&object["fits_budget"], &object["basis"]), (&true.into(), &"prior".into()));
    let nothing = EstimateRequest::default().question("me", Conditions::default());
    assert_eq!(nothing, Err(EstimateError::NothingAsked));
}

#[test]
fn runs_of_other_things_do_not_outweigh_the_table() {
    let mut estimator = Estimator::new();
    for number in 0..40 {
        // Numbers would make them one thing.
        let other = Question::command(&["echo".to_owned() + &"y".repeat(number), "now".to_owned()]);
        estimator.record(&finished(&other, 0.004)).expect("a run");
    }
    // Nor are they evidence for another command, whose range stays plausible.
    for command in [&["make"][..], &["make", "-j2"]] {
        let unknown = estimator.predict(&Question::command(command));
        assert_eq!((unknown.basis, unknown.runs), (Rung::Unknown, 0), "{unknown:?}");
        let seconds = [unknown.best_seconds, unknown.typical_seconds, unknown.worst_seconds];
        assert_eq!(seconds, [1.0, 60.0, 3600.0]);
        assert!(!unknown.limit_rests_on_runs);
    }
    let training = estimator.predict(&task("train_complex_model"));
    assert_eq!((training.basis, training.typical_seconds), (Rung::Prior, 30.0 * MINUTE));
}

/// Runs of 20 things, round after round, each of which takes `late(round, thing)` longer, as a
/// logarithm.
fn rounds(count: usize, late: impl Fn(usize, usize) -> f64) -> (Estimator, Question) {
    let things: Vec<Question> = (0..20).map(|thing| Question::command(&["x".repeat(thing + 1)])).collect();
    let mut estimator = Estimator::new();
    for round in 0..count {
        for (index, thing) in things.iter().enumerate() {
            estimator.record(&finished(thing, late(round, index).exp())).expect("a run");
        }
    }
    // The one that was longest not run.
    (estimator, things[0].clone())
}

fn typical(estimator: &Estimator, question: &Question) -> f64 {
    estimator.predict(question).typical_seconds
}

#[test]
fn slower_machine_raises_estimates_of_commands_not_run_since() {
    // Slower by a fifth for three rounds, as fast as usual for three, and so on.
    let slow = |round: usize, _| if round / 3 % 2 == 1 { 0.2 } else { 0.0 };
    let (usual, thing) = rounds(15, slow);
    let mut slower = usual.clone();
    for other in 1..20 {
        slower.record(&finished(&Question::command(&["x".repeat(other + 1)]), 0.2_f64.exp())).expect("a run");
    }
    let (before, after) = (typical(&usual, &thing), typical(&slower, &thing));
    assert!((0.93..1.07).contains(&before) && after > before * 1.1 && after < 1.3, "{before} {after}");
}

#[test]
fn lateness_of_one_command_does_not_affect_others() {
    // As many are late as are early, each for itself.
    let alone = |round: usize, thing: usize| if (round * 7 + thing * 13) % 5 % 2 == 1 { 0.2 } else { -0.1 };
    let (estimator, _) = rounds(30, alone);
    let late = estimator.pace[0].late();
    assert!(late.abs() < 0.02, "{late}");
    // Runs that a limit stopped are no evidence either.
    let mut stopped = estimator.clone();
    for thing in 0..20 {
        let run = finished(&Question::command(&["x".repeat(thing + 1)]), 9.0);
        stopped.record(&FinishedRun { stopped: true, ..run }).expect("a run");
    }
    assert_eq!(stopped.pace, estimator.pace);
}
