//! Estimates of when something will be done, held against made-up runs whose end is known.
//! Everything is drawn from a generator with a fixed seed.

use super::*;

/// Numbers between 0 and 1 (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A factor around 1 with this much spread.
    fn noise(&mut self, spread: f64) -> f64 {
        let normal: f64 = (0..12).map(|_| self.next()).sum::<f64>() - 6.0;
        (spread * normal).exp()
    }
}

/// How long each epoch takes, by its number and how far it is in the run.
type Shape = fn(usize, f64) -> f64;

const PLAIN: Shape = |_, _| 1.0;
/// The first epoch imports, compiles and reads ahead.
const WARM_UP: Shape = |epoch, _| if epoch == 0 { 3.0 } else { 1.0 };
const EVALUATED: Shape = |epoch, _| if epoch % 5 == 4 { 1.8 } else { 1.0 };
/// Slower and slower, to twice the time.
const DRIFTING: Shape = |_, part| 1.0 + part;

struct EtaSample {
    error: f64,
    inside_band: bool,
    p_at_end: [f64; 2],
}

/// What is predicted when `part` of a run is done, as the tracker reads it out of what the run
/// prints.
fn predicted(shape: Shape, part: f64, chance: &mut Chance) -> EtaSample {
    let epochs = 15 + (chance.next() * 26.0) as usize;
    let spread = 0.02 + 0.06 * chance.next();
    let times: Vec<f64> = (0..epochs)
        .map(|epoch| 60.0 * shape(epoch, epoch as f64 / epochs as f64) * chance.noise(spread))
        .collect();
    let whole: f64 = times.iter().sum();
    let finished = (part * epochs as f64).round() as usize;
    let mut tracker = Tracker::new(at(0));
    let mut elapsed = 0.0;
    for (epoch, time) in times.iter().take(finished).enumerate() {
        elapsed += time;
        let line = format!("Epoch {}/{epochs}: loss=1.0\n", epoch + 1);
        tracker.feed(0, line.as_bytes(), at((1000.0 * elapsed) as u64));
    }
    let now = at((1000.0 * elapsed) as u64);
    let eta = tracker.eta(now).expect("it is known");
    let left = Duration::from_secs_f64(whole - elapsed);
    let p_at =
        |factor: f64| tracker.p_finish_before(now.after(left.mul_f64(factor)), now).expect("it is known");
    EtaSample {
        error: (elapsed + eta.remaining.as_secs_f64() - whole).abs() / whole,
        inside_band: eta.low <= left && left <= eta.high,
        p_at_end: [p_at(0.5), p_at(2.0)],
    }
}

fn many(shape: Shape, part: f64) -> Vec<EtaSample> {
    let mut chance = Chance(7);
    (0..400).map(|_| predicted(shape, part, &mut chance)).collect()
}

fn median_error(samples: &[EtaSample]) -> f64 {
    let mut errors: Vec<f64> = samples.iter().map(|sample| sample.error).collect();
    errors.sort_by(f64::total_cmp);
    errors[errors.len() / 2]
}

#[test]
fn the_end_is_foreseen_within_the_errors_that_are_promised() {
    let bounds: [(&str, Shape, f64, f64); 5] = [
        ("plain", PLAIN, 0.25, 0.05),
        ("warming up", WARM_UP, 0.25, 0.05),
        ("evaluating every fifth", EVALUATED, 0.5, 0.05),
        ("drifting", DRIFTING, 0.5, 0.15),
        ("drifting", DRIFTING, 0.75, 0.05),
    ];
    let errors: Vec<(&str, f64, f64, f64)> = bounds
        .iter()
        .map(|(name, shape, part, most)| (*name, *part, median_error(&many(*shape, *part)), *most))
        .collect();
    // Shown by `--no-capture`.
    let message = format!("median errors (of, at, error, at most): {errors:?}");
    std::io::Write::write_all(&mut std::io::stderr(), message.as_bytes()).expect("it is open");
    assert!(errors.iter().all(|(_, _, error, most)| error <= most), "{message}");
}

#[test]
fn bands_cover_about_their_stated_share() {
    let kinds: [(&str, Shape, f64); 4] = [
        ("plain", PLAIN, 0.25),
        ("plain", PLAIN, 0.5),
        ("warming up", WARM_UP, 0.25),
        ("drifting", DRIFTING, 0.5),
    ];
    let inside = kinds.map(|(name, shape, part)| {
        let seen = many(shape, part);
        (name, part, seen.iter().filter(|sample| sample.inside_band).count() as f64 / seen.len() as f64)
    });
    assert!(inside.iter().all(|(.., inside)| (0.7..=1.0).contains(inside)), "in bands of 0.8: {inside:?}");
}

#[test]
fn far_earlier_deadline_is_missed_and_far_later_is_met() {
    for shape in [PLAIN, WARM_UP] {
        for sample in many(shape, 0.25) {
            let [early, late] = sample.p_at_end;
            assert!(early < 0.25 && late > 0.75, "{:?}", sample.p_at_end);
        }
    }
}

#[test]
fn one_outlier_does_not_spoil_the_estimate() {
    let mut pace = super::super::Pace::default();
    pace.begin(0.0, at(0));
    let mut now = 0;
    for epoch in 1..=10 {
        // The machine was suspended in the fifth.
        now += if epoch == 5 { 3_600_000 } else { 1000 };
        pace.note(f64::from(epoch), at(now));
    }
    let eta = pace.eta(20.0, at(now)).expect("it is known");
    assert!(eta.remaining < Duration::from_secs(60), "{eta:?}");
}

#[test]
fn a_unit_that_goes_on_counts_for_what_was_spent_on_it() {
    let mut pace = super::super::Pace::default();
    pace.begin(0.0, at(0));
    for epoch in 1..=5 {
        pace.note(f64::from(epoch), at(10_000 * epoch as u64));
    }
    let remaining = |milliseconds| pace.eta(10.0, at(milliseconds)).expect("it is known").remaining.as_secs();
    assert_eq!((remaining(50_000), remaining(54_000)), (50, 46));
    // Longer than it should take: it is not done, and becomes no more likely to be.
    assert_eq!((remaining(60_000), remaining(90_000)), (41, 55));
}
