//! Made-up runs, the same from the same seed: noise of every width with late outliers, drift of
//! several kinds, limits.
//!
//! The widths are those that were measured over 25,000 series of test durations of a large project:
//! the 10th, 50th, 90th and 99th percentile of the logarithm's local standard deviation are 0.015,
//! 0.07, 0.35 and 1.47.

use sandtimer_agents::estimate::Question;

use super::evaluation::EvaluatedRun;

const WIDTHS: [(f64, f64); 6] =
    [(0.0, 0.005), (0.1, 0.015), (0.5, 0.07), (0.9, 0.35), (0.99, 1.47), (1.0, 2.0)];
/// Part of the runs that are late, and by how many widths on average.
const LATE: f64 = 0.02;
const LATENESS: f64 = 3.0;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Between 0 and 1, neither of them.
    fn part(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.part()
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.part().ln()).sqrt() * (std::f64::consts::TAU * self.part()).cos()
    }

    fn exponential(&mut self) -> f64 {
        -self.part().ln()
    }

    fn width(&mut self) -> f64 {
        let part = self.part();
        let above = WIDTHS.iter().position(|(at, _)| *at >= part).unwrap_or(WIDTHS.len() - 1).max(1);
        let ((low, from), (high, to)) = (WIDTHS[above - 1], WIDTHS[above]);
        (from.ln() + (to.ln() - from.ln()) * (part - low) / (high - low)).exp()
    }
}

/// How what a thing takes moves from run to run.
enum Drift {
    None,
    /// A random walk, of steps that are this part of the width.
    Walk(f64),
    /// A step at a time, now and then.
    Jumps,
    /// By this much with each run.
    Trend(f64),
}

impl Drift {
    fn any(chance: &mut Chance) -> Self {
        match chance.part() {
            part if part < 0.4 => Drift::None,
            part if part < 0.6 => Drift::Walk(chance.between(0.1, 0.4)),
            part if part < 0.8 => Drift::Jumps,
            _ => Drift::Trend(chance.between(-0.01, 0.01)),
        }
    }

    fn step(&self, width: f64, chance: &mut Chance) -> f64 {
        match self {
            Drift::None => 0.0,
            Drift::Walk(part) => part * width * chance.normal(),
            Drift::Jumps if chance.part() < 0.02 => {
                let size = chance.between(0.1, 0.7);
                if chance.part() < 0.5 { -size } else { size }
            }
            Drift::Jumps => 0.0,
            Drift::Trend(step) => *step,
        }
    }
}

/// Makes `each` runs of each of `keys` things, which begin one after the other and overlap.
pub(crate) fn runs(keys: usize, each: usize, seed: u64) -> Vec<EvaluatedRun> {
    let mut chance = Chance(seed);
    let mut timed = Vec::with_capacity(keys * each);
    for key in 0..keys {
        let mut log = chance.between(0.01_f64.ln(), 3600.0_f64.ln());
        let width = chance.width();
        let drift = Drift::any(&mut chance);
        // One of ten has limits that now and then stop a healthy run.
        let has_limits = chance.part() < 0.1;
        let question = Question::command(&[format!("tool-{}", letters(key))]);
        let mut time = chance.part();
        for _ in 0..each {
            time += 0.004 * chance.exponential();
            log += drift.step(width, &mut chance);
            let late = if chance.part() < LATE { LATENESS * chance.exponential() } else { 0.0 };
            let seconds = (log + width * (chance.normal() + late)).exp();
            let limit = (log + 2.0 * width).exp();
            let stopped_at = (has_limits && seconds > limit).then_some(limit);
            timed.push((
                time,
                EvaluatedRun { key, question: question.clone(), seconds, stopped_at, idle: false },
            ));
        }
    }
    sort_by_time(timed)
}

/// Runs without drift, of which limits stop this part.
pub(crate) fn limited(keys: usize, each: usize, stopped: f64, seed: u64) -> Vec<EvaluatedRun> {
    let mut chance = Chance(seed);
    let mut timed = Vec::new();
    for key in 0..keys {
        let question = Question::command(&[format!("tool-{}", letters(key))]);
        let mut time = chance.part();
        for _ in 0..each {
            time += 0.004 * chance.exponential();
            let seconds = (0.5 * chance.normal()).exp();
            // The limits differ from run to run, as budgets do.
            let stopped_at = (chance.part() < 2.0 * stopped).then(|| (0.5 * chance.normal()).exp());
            let stopped_at = stopped_at.filter(|limit| *limit < seconds);
            timed.push((
                time,
                EvaluatedRun { key, question: question.clone(), seconds, stopped_at, idle: false },
            ));
        }
    }
    sort_by_time(timed)
}

fn sort_by_time(mut timed: Vec<(f64, EvaluatedRun)>) -> Vec<EvaluatedRun> {
    timed.sort_by(|one, other| one.0.total_cmp(&other.0));
    timed.into_iter().map(|(_, run)| run).collect()
}

/// A name without digits, which a template would drop.
fn letters(number: usize) -> String {
    number.to_string().bytes().map(|digit| char::from(digit + b'a' - b'0')).collect()
}
