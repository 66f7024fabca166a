use std::time::Duration;

use proptest::prelude::*;

use super::patterns::{Form, sightings};
use super::*;

mod pace;

fn at(milliseconds: u64) -> Moment {
    Moment::from_nanos(1_000_000_000 + 1_000_000 * milliseconds)
}

/// Returns done and total after each piece of output, a second apart.
fn progress_of(pieces: &[&[u8]]) -> Vec<(f64, f64)> {
    let mut tracker = Tracker::new(at(0));
    let reported = pieces.iter().enumerate().filter_map(|(index, piece)| {
        let now = at(1000 * (index as u64 + 1));
        tracker.feed(0, piece, now);
        let progress = tracker.progress(now)?;
        Some((progress.done, progress.total?))
    });
    reported.collect()
}

fn lines(text: &str) -> Vec<(f64, f64)> {
    let pieces: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
    progress_of(&pieces.iter().map(String::as_bytes).collect::<Vec<_>>())
}

/// Asserts that the counter reported last advances while it is active, and never goes back.
#[track_caller]
fn assert_advances(reported: &[(f64, f64)]) {
    let last = reported.last().expect("something is told");
    let mut steps: Vec<f64> =
        reported.iter().filter(|(_, total)| *total == last.1).map(|(done, _)| *done).collect();
    steps.dedup();
    assert!(steps.len() > 1 && steps.is_sorted(), "{steps:?}");
}

/// What real tools printed: tqdm 4.70 (`2>`), pytest 9.2 (`-v`), ninja 1.13 into a file and on a
/// terminal, cargo 1.95 on a terminal.
#[test]
fn the_output_of_real_tools_is_read() {
    let samples: [(&str, &[u8], f64, f64); 7] = [
        ("tqdm", include_bytes!("samples/tqdm.txt"), 15.0, 15.0),
        ("tqdm in tqdm", include_bytes!("samples/tqdm_nested.txt"), 3.0, 3.0),
        ("tqdm with units, an epoch each", include_bytes!("samples/tqdm_scaled.txt"), 3.0, 3.0),
        ("pytest", include_bytes!("samples/pytest_verbose.txt"), 100.0, 100.0),
        ("ninja", include_bytes!("samples/ninja.txt"), 30.0, 30.0),
        ("ninja on a terminal", include_bytes!("samples/ninja_terminal.txt"), 30.0, 30.0),
        ("cargo on a terminal", include_bytes!("samples/cargo_terminal.txt"), 3.0, 4.0),
    ];
    for (tool, output, done, total) in samples {
        for length in [1, 7, 64, 300] {
            let pieces: Vec<&[u8]> = output.chunks(length).collect();
            let reported = progress_of(&pieces);
            assert_eq!(reported.last(), Some(&(done, total)), "{tool}, {length} bytes at a time");
            assert_advances(&reported);
        }
    }
}

#[test]
fn bars_within_bars_count_parts_of_the_outer_one() {
    let output = include_bytes!("samples/tqdm_nested.txt");
    let reported = progress_of(&output.chunks(40).collect::<Vec<_>>());
    let parts = reported.iter().filter(|(done, _)| done.fract() > 0.0).count();
    assert!(parts > 5, "{reported:?}");
    let told = lines(
        "Epoch 1/3 - step 50/100 - loss 0.5\nEpoch 1/3 - step 99/100 - loss 0.5\nEpoch 2/3 - step 50/100 - loss 0.4",
    );
    assert_eq!(told.last(), Some(&(1.5, 3.0)));
    let told = lines(
        "Fold 1/5\nEpoch 1/10: loss 0.5\nEpoch 5/10: loss 0.4\nFold 2/5\nEpoch 1/10: loss 0.5\nEpoch 5/10: loss 0.4",
    );
    assert_eq!(told.last(), Some(&(1.5, 5.0)));
    // As keras has it.
    let told = lines(
        "Epoch 1/3\n1/10 [==>...........................] - ETA: 1s\n5/10 [=====>...] - ETA: 1s\nEpoch 2/3\n5/10 [=====>...] - \
         ETA: 1s",
    );
    assert_eq!(told.last(), Some(&(1.5, 3.0)));
}

#[test]
fn the_usual_forms_are_known() {
    let counted = [
        ("Epoch 8/15: loss=1.234", Form::Epoch, 8.0, 15.0),
        ("epoch: 8 of 15 - loss: 0.3", Form::Epoch, 8.0, 15.0),
        ("Epoch [8/15], Loss: 0.3", Form::Epoch, 8.0, 15.0),
        ("[8/15] fetching", Form::Step, 8.0, 15.0),
        ("  [ 8/15 ] fetching", Form::Step, 8.0, 15.0),
        ("step 800/1500 loss=2.1", Form::Step, 800.0, 1500.0),
        ("Iteration 3 of 10, best 0.5", Form::Step, 3.0, 10.0),
        ("Fold 2/5 auc 0.81", Form::Fold, 2.0, 5.0),
        ("Epoch: [0][ 10/391]\tTime 0.1", Form::Bar, 10.0, 391.0),
        ("469/469 [==============================] - 2s 3ms/step", Form::Bar, 469.0, 469.0),
        ("100/469 ━━━━━━━━ 2s 3ms/step - loss: 0.5", Form::Bar, 100.0, 469.0),
        ("    Building [====>   ] 345/512: serde, syn(build)", Form::Bar, 345.0, 512.0),
        (" 53%|█████▎    | 8/15 [00:12<00:10,  1.50s/it]", Form::Bar, 8.0, 15.0),
        ("x: 1.20k/3.40k [00:12<1:00:10, 1.5it/s, loss=3]", Form::Bar, 1200.0, 3400.0),
        ("53%", Form::Percent, 53.0, 100.0),
        ("Progress: 53.5%", Form::Percent, 53.5, 100.0),
        ("it is 53% complete", Form::Percent, 53.0, 100.0),
        ("tests/test_x.py ........... [ 45%]", Form::Percent, 45.0, 100.0),
        ("[ 45%] Building CXX object main.o", Form::Percent, 45.0, 100.0),
    ];
    for (line, form, done, total) in counted {
        let sighting = sightings(line.as_bytes())[0].unwrap_or_else(|| panic!("nothing in {line}"));
        assert_eq!((sighting.form, sighting.done, sighting.total), (form, done, Some(total)), "{line}");
    }
    for line in [
        "[100]\ttrain-rmse:0.35\tvalid-rmse:0.36",
        "[100]\tvalid_0's l2: 0.35",
        "{'loss': 0.5, 'epoch': 1.5}",
    ] {
        let sighting = sightings(line.as_bytes())[0].unwrap_or_else(|| panic!("nothing in {line}"));
        assert_eq!(sighting.total, None, "{line}");
    }
}

#[test]
fn what_is_no_progress_is_left_alone() {
    for line in [
        "",
        "2026/11/22 10:00:00 started",
        "accuracy: 53%",
        "val_acc: 0.847 (84.7%)",
        "GET /v1/3/4 200",
        "a ratio of 3/4",
        "Epoch 16/15",
        "[9/0]",
        "Epoch 3/00000000000000000000000000000000000000000000000000000000000000000000",
        "Epoch 1/99999999999999999999999999",
        "153%",
        "[INFO] 12",
        "stage",
    ] {
        assert_eq!(sightings(line.as_bytes()), [None, None], "{line}");
    }
}

#[test]
fn rounds_without_a_total_need_one_that_was_declared() {
    let boosting = "[0]\ttrain-rmse:0.9\n[50]\ttrain-rmse:0.5\n[99]\ttrain-rmse:0.4\n";
    assert_eq!(lines(boosting), []);
    let mut tracker = Tracker::new(at(0));
    for lie in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
        tracker.declare_total(lie);
    }
    tracker.feed(0, boosting.as_bytes(), at(1));
    assert_eq!(tracker.progress(at(1)), None);
    let mut tracker = Tracker::new(at(0));
    tracker.declare_total(200.0);
    tracker.feed(0, boosting.as_bytes(), at(1));
    assert_eq!(
        tracker.progress(at(1)).map(|progress| (progress.done, progress.total)),
        Some((100.0, Some(200.0)))
    );
}

#[test]
fn a_counter_is_believed_at_its_second_sighting() {
    assert_eq!(lines("Epoch 1/15: loss 2"), []);
    assert_eq!(lines("Epoch 1/15: loss 2\nEpoch 2/15: loss 1"), [(2.0, 15.0)]);
    // Of another total it is another one.
    assert_eq!(lines("Epoch 1/15: loss 2\nEpoch 2/30: loss 1"), []);
    // A heading is of what begins.
    assert_eq!(lines("Epoch 1/15\nEpoch 2/15"), [(1.0, 15.0)]);
}

#[test]
fn going_back_is_a_new_phase() {
    let mut tracker = Tracker::new(at(0));
    for (second, epoch) in [(10, 1), (20, 2), (30, 3), (31, 1), (33, 2), (35, 3)] {
        tracker.feed(0, format!("Epoch {epoch}/5: loss 1\n").as_bytes(), at(1000 * second));
    }
    let progress = tracker.progress(at(35_000)).expect("it is known");
    assert_eq!((progress.done, progress.total), (3.0, Some(5.0)));
    let eta = progress.eta_ms.expect("it is known");
    // Two epochs of the second phase, which take 2 s each, and not of the first.
    assert!((3000..=5000).contains(&eta), "{eta}");
}

#[test]
fn finished_bar_does_not_affect_later_output() {
    let told =
        lines("50%|█| 5/10 [00:01<00:01]\n100%|█| 10/10 [00:01<00:00]\n[1/8] link\n[2/8] link\n[3/8] link");
    assert_eq!(told.last(), Some(&(3.0, 8.0)));
}

#[test]
fn redrawn_frames_are_no_advance() {
    let mut tracker = Tracker::new(at(0));
    for second in 0..50 {
        tracker.feed(
            1,
            b"\r\x1b[32m 53%|#####     | 8/15 [00:12<00:10,  1.50s/it]\x1b[0m",
            at(1000 * second),
        );
    }
    assert_eq!(tracker.advances(), 1);
    assert_eq!(tracker.progress(at(60_000)).map(|progress| progress.done), Some(8.0));
}

#[test]
fn control_sequences_are_dropped() {
    let told = lines(
        "\x1b[1m\x1b[92mEpoch\x1b[0m 1/4: loss 2\n\x1b]0;title 9/9\x07Epoch 2/4: l\x08loss 1\nE\x1b[3mpoch 3/4: 0\x1bM",
    );
    assert_eq!(told.last(), Some(&(3.0, 4.0)));
}

#[test]
fn what_is_reported_beats_what_is_printed() {
    let mut tracker = Tracker::new(at(0));
    tracker.feed(0, b"[1/100] a\n[2/100] b\n", at(1000));
    let report = ProgressReport::parse(br#"{"done": 8, "total": 15, "unit": "epoch"}"#).expect("a report");
    tracker.report(report, at(2000));
    tracker.feed(0, b"[3/100] c\n", at(3000));
    let progress = tracker.progress(at(3000)).expect("it is known");
    assert_eq!((progress.done, progress.total), (8.0, Some(15.0)));
    tracker.report(ProgressReport { done: 9.0, total: Some(15.0), unit: Some("epoch".to_owned()) }, at(4000));
    assert_eq!(tracker.progress(at(4000)).map(|progress| progress.done), Some(9.0));
    // A counter that begins again is a new phase.
    tracker.report(ProgressReport { done: 1.0, total: Some(15.0), unit: Some("epoch".to_owned()) }, at(5000));
    assert_eq!(tracker.progress(at(5000)).map(|progress| progress.done), Some(1.0));
    let mut tracker = Tracker::new(at(0));
    tracker.report(ProgressReport { done: 7.0, total: None, unit: None }, at(1000));
    let progress = tracker.progress(at(1000)).expect("it is known");
    assert_eq!((progress.done, progress.total, progress.eta_ms), (7.0, None, None));
}

#[test]
fn with_a_deadline_there_is_a_chance_to_be_done_by_it() {
    let mut tracker = Tracker::new(at(0));
    let epochs = (1..=5).map(|epoch| (format!("Epoch {epoch}/10: loss 1\n"), at(10_000 * epoch)));
    for (line, now) in epochs {
        tracker.feed(0, line.as_bytes(), now);
    }
    let now = at(50_000);
    let until = |seconds: u64| {
        let deadline = now.after(Duration::from_secs(seconds));
        tracker.progress_until(Some(deadline), now).and_then(|progress| progress.p_finish_before_deadline)
    };
    assert!(until(90) > Some(0.95) && until(20) < Some(0.05) && until(0) == Some(0.0), "{:?}", until(90));
    let endless = tracker.progress_until(None, now).expect("it is known");
    assert_eq!(endless.p_finish_before_deadline, None);
    assert_eq!(
        endless.description(),
        format!("5 of 10, done in about {}", crate::model::time(endless.eta_ms.expect("known")))
    );
}

#[test]
fn reports_that_cannot_be_are_none() {
    for line in [
        "",
        "{}",
        "8/15",
        r#"{"done": -1}"#,
        r#"{"done": 16, "total": 15}"#,
        r#"{"done": 0, "total": 0}"#,
        r#"{"done": 1e400}"#,
        r#"{"done": 1, "total": 1e300}"#,
        r#"{"done": 1, "tota": 2}"#,
        r#"{"done": "8"}"#,
        "[[[[[[[[[[[[[[[[",
    ] {
        assert_eq!(ProgressReport::parse(line.as_bytes()), None, "{line}");
    }
    let long = format!(r#"{{"done": 1, "unit": "{}"}}"#, "x".repeat(5000));
    assert_eq!(ProgressReport::parse(long.as_bytes()), None);
}

#[test]
fn a_line_of_a_gigabyte_takes_neither_memory_nor_much_time() {
    let mut tracker = Tracker::new(at(0));
    let piece = vec![b'x'; 64 << 10];
    for number in 0..(1 << 30) / piece.len() as u64 {
        tracker.feed(0, &piece, at(number));
    }
    for _ in 0..(32 << 20) / 1000 {
        tracker.feed(0, &piece[..1000], at(1));
    }
    assert!(tracker.streams[0].lines.peek().len() <= 4096);
    tracker.feed(0, b"\nEpoch 1/2: loss 1\nEpoch 2/2: loss 1\n", at(1 << 20));
    assert_eq!(tracker.progress(at(1 << 20)).map(|progress| progress.done), Some(2.0));
}

#[test]
fn lies_are_bounded() {
    let mut tracker = Tracker::new(at(0));
    tracker.feed(0, b"Epoch 0/999999999999999: 1\nEpoch 1/999999999999999: 1\n", at(1));
    tracker.feed(0, b"Epoch 2/999999999999999: 1\n", at(1 << 40));
    let progress = tracker.progress(at(1 << 40)).expect("it is known");
    let years = Duration::from_millis(progress.eta_ms.expect("it is known")).as_secs() / (365 * 24 * 3600);
    assert_eq!(years, 30);
    // A thousand counters take the room of a few.
    for number in 0..1000_u32 {
        let name = "x".repeat(number as usize);
        tracker.feed(0, format!("{name}:  50%|#| 1/2 [00:01<00:01]\n").as_bytes(), at(1 << 40));
    }
    assert!(tracker.progress(at(1 << 40)).is_some());
}

/// Pieces of what tools print, cut and mixed as no tool would.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop_oneof![
        Just(&b"Epoch 1/15: loss=2.1\n"[..]).prop_map(<[u8]>::to_vec),
        Just(&b"\r 53%|#####| 8/15 [00:12<00:10]"[..]).prop_map(<[u8]>::to_vec),
        Just(&b"\x1b[2K\x1b]0;"[..]).prop_map(<[u8]>::to_vec),
        "[0-9/\\[\\]%:. kMof\\n\\r]{0,40}".prop_map(String::into_bytes),
        "(epoch|step|fold) [0-9]{1,20}/[0-9]{1,20}\n".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..60),
    ];
    prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn nothing_that_is_printed_does_harm(bytes in noise(), length in 1_usize..200, step in 0_u64..10_000_000) {
        let mut tracker = Tracker::new(at(0));
        let mut now = at(0);
        for (index, piece) in bytes.chunks(length).enumerate() {
            now = now.after(Duration::from_millis(step));
            tracker.feed(index % 3, piece, now);
            let Some(progress) = tracker.progress(now) else { continue };
            let total = progress.total.expect("text always has one");
            prop_assert!(progress.done >= 0.0 && progress.done <= total && total <= 1e15, "{progress:?}");
            let eta = tracker.eta(now);
            prop_assert!(eta.is_none_or(|eta| eta.low <= eta.remaining && eta.remaining <= eta.high));
            let p = tracker.p_finish_before(now.after(Duration::from_secs(5)), now);
            prop_assert!(p.is_none_or(|p| (0.0..=1.0).contains(&p)), "{p:?}");
        }
    }

    #[test]
    fn no_line_does_harm(line in prop::collection::vec(any::<u8>(), 0..4200)) {
        sightings(&line);
        ProgressReport::parse(&line);
    }
}

#[test]
fn only_a_new_best_or_a_new_bar_is_further() {
    let report = |tracker: &mut Tracker, done: f64, total: f64, unit: &str| {
        let before = tracker.advances();
        let report = ProgressReport { done, total: Some(total), unit: Some(unit.to_owned()) };
        tracker.report(report, Moment::from_nanos(1));
        tracker.advances() - before
    };
    let mut tracker = Tracker::new(Moment::from_nanos(0));
    assert_eq!(report(&mut tracker, 8.0, 15.0, "epoch"), 1);
    let to_and_fro: u64 = (0..50)
        .map(|_| report(&mut tracker, 7.0, 15.0, "epoch") + report(&mut tracker, 8.0, 15.0, "epoch"))
        .sum();
    assert_eq!(to_and_fro, 0);
    assert_eq!(report(&mut tracker, 9.0, 15.0, "epoch"), 1);
    assert_eq!(report(&mut tracker, 3.0, 15.0, "fold"), 1, "another label");
    assert_eq!(report(&mut tracker, 3.0, 20.0, "fold"), 1, "another total");
    assert_eq!(report(&mut tracker, 9.0, 15.0, "epoch"), 0, "which was there before");
    assert_eq!(report(&mut tracker, 1.0, 15.0, "epoch"), 1, "its beginning");
    let totals: u64 = (100..5100).map(|total| report(&mut tracker, 1.0, f64::from(total), "step")).sum();
    assert!(totals < 1000, "{totals}");
    assert_eq!(report(&mut tracker, 2.0, 5099.0, "step"), 1, "a new best always counts");
}

#[test]
fn a_counter_in_the_output_that_goes_to_and_fro_is_no_progress() {
    let mut tracker = Tracker::new(Moment::from_nanos(0));
    for line in ["Epoch 7/15: loss 1\n", "Epoch 8/15: loss 1\n"] {
        tracker.feed(0, line.as_bytes(), Moment::from_nanos(1));
    }
    let before = tracker.advances();
    for _ in 0..100 {
        for line in ["Epoch 7/15: loss 1\n", "Epoch 8/15: loss 1\n"] {
            tracker.feed(0, line.as_bytes(), Moment::from_nanos(2));
        }
    }
    assert_eq!(tracker.advances(), before);
    tracker.feed(0, b"Epoch 9/15: loss 1\n", Moment::from_nanos(3));
    assert_eq!(tracker.advances(), before + 1);
}
