//! The runs of one key: the newest of them, and the forecast of the next from them.
//!
//! Durations are logarithms of seconds, so that "twice as long" is the same step everywhere. On the
//! lowest rung a series follows drift: its centre is the median of the newest runs, its scale comes
//! from how far each run was from the forecast by the runs before it. On the other rungs its scale
//! is how far its runs lie apart; where it is about several things, it has one run of each, the
//! newest.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Runs that are kept of a key.
const MAX_SAMPLES: usize = 32;
/// Runs that the centre of a series of one thing is the median of. More would lag behind drift.
const WINDOW: usize = 8;
/// How much less each older surprise counts for the scale.
const FADING: f32 = 0.85;
/// How many surprises the assumed scale counts as.
const ASSUMED_WEIGHT: f32 = 0.91;
/// The scale of a logistic distribution whose standard deviation is 1.
const LOGISTIC: f32 = 0.551_33;
/// Sizes have a spread from which a slope can be read, as a standard deviation of their logarithms;
/// and enough runs.
const SPREAD: f32 = 0.5;
const RUNS_OF_SLOPE: usize = 20;
/// How much spread the assumed slope counts as.
const SLOPE_WEIGHT: f32 = 2.0;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RunSample {
    /// Of the seconds that it took, or took until it was stopped.
    pub log: f32,
    /// Logarithm of its size of data.
    pub size: Option<f32>,
    /// Which thing it was a run of.
    pub of: u32,
    /// It would have taken longer.
    pub stopped: bool,
    /// How far it was from what was foretold.
    pub surprise: Option<f32>,
}

/// As little text as does: a sample is an array.
type StoredSample = (f32, Option<f32>, u32, bool, Option<f32>);

impl Serialize for RunSample {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.log, self.size, self.of, self.stopped, self.surprise).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RunSample {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (log, size, of, stopped, surprise) = StoredSample::deserialize(deserializer)?;
        Ok(RunSample { log, size, of, stopped, surprise })
    }
}

/// The runs of one key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Series {
    samples: VecDeque<RunSample>,
    /// Which part of the next runs is to be above the worst case, and below the best, so that the
    /// right part of all is.
    pub above: f32,
    pub below: f32,
    /// When it was used last, in records.
    pub used: u64,
}

/// The forecast of the next run by a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SeriesView {
    /// Logarithm of the typical duration.
    pub centre: f32,
    pub scale: f32,
    /// Runs that it rests on, and those of them that came to their end.
    pub runs: usize,
    pub completed: usize,
    /// The part of them that was stopped.
    pub stopped: f32,
}

/// How a series is evaluated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lens {
    /// The newest runs count more than the others.
    pub follows_drift: bool,
    /// The scale that is assumed before runs show theirs.
    pub assumed_scale: f32,
    /// How durations grow with size, by which power.
    pub slope: f32,
    /// Logarithm of the size that is asked about.
    pub size: Option<f32>,
}

impl Lens {
    /// What the run would have taken with the size that is asked about.
    fn adjusted(&self, sample: &RunSample) -> f32 {
        match (self.size, sample.size) {
            (Some(asked), Some(size)) => sample.log + self.slope * (asked - size),
            _ => sample.log,
        }
    }
}

impl Series {
    pub fn new(outside: f32) -> Self {
        Series { samples: VecDeque::new(), above: outside, below: outside, used: 0 }
    }

    /// The forecast; `None` without runs, and, unless `even_stopped`, without a completed one.
    pub fn view(&self, lens: &Lens, even_stopped: bool) -> Option<SeriesView> {
        let count = self.samples.len();
        let completed = self.samples.iter().filter(|sample| !sample.stopped).count();
        if count == 0 || (completed == 0 && !even_stopped) {
            return None;
        }
        let newest =
            self.samples.range(if lens.follows_drift { count.saturating_sub(WINDOW).. } else { 0.. });
        let values: Vec<(f32, bool)> = newest.map(|sample| (lens.adjusted(sample), sample.stopped)).collect();
        let mut ended: Vec<f32> = values.iter().filter(|value| !value.1).map(|value| value.0).collect();
        if ended.is_empty() {
            ended = values.iter().map(|value| value.0).collect();
        }
        let first = median(&mut ended);
        let scale = if lens.follows_drift {
            self.surprise_scale(lens.assumed_scale)
        } else {
            spread_scale(&values, first, lens.assumed_scale)
        };
        let mut all: Vec<f32> = values
            .iter()
            .map(|(log, stopped)| if *stopped { expected(*log, first, scale) } else { *log })
            .collect();
        let stopped = (count - completed) as f32 / count as f32;
        Some(SeriesView { centre: median(&mut all), scale, runs: count, completed, stopped })
    }

    /// Logarithm of the longest time after which a run was stopped, if all were.
    pub fn only_stopped(&self) -> Option<f32> {
        let all = self.samples.iter().all(|sample| sample.stopped);
        self.samples.iter().map(|sample| sample.log).max_by(f32::total_cmp).filter(|_| all)
    }

    fn surprise_scale(&self, assumed: f32) -> f32 {
        let (mut sum, mut weight) = (ASSUMED_WEIGHT * assumed * assumed, ASSUMED_WEIGHT);
        let mut share = 1.0;
        for surprise in self.samples.iter().rev().filter_map(|sample| sample.surprise) {
            sum += share * surprise * surprise;
            weight += share;
            share *= FADING;
        }
        (sum / weight).sqrt()
    }

    /// Adds a run. Among several things the newest run of each is kept.
    pub fn push(&mut self, sample: RunSample, one_thing: bool) {
        if !one_thing {
            self.samples.retain(|other| other.of != sample.of);
        }
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// By which power durations grow with size: what is assumed, until enough runs of different
    /// sizes show another power.
    pub fn slope(&self, assumed: f32) -> f32 {
        let points: Vec<(f32, f32)> = self
            .samples
            .iter()
            .filter(|sample| !sample.stopped)
            .filter_map(|sample| Some((sample.size?, sample.log)))
            .collect();
        if points.len() < RUNS_OF_SLOPE {
            return assumed;
        }
        let count = points.len() as f32;
        let mean = |of: fn(&(f32, f32)) -> f32| points.iter().map(of).sum::<f32>() / count;
        let (size, log) = (mean(|point| point.0), mean(|point| point.1));
        let squares: f32 = points.iter().map(|point| (point.0 - size).powi(2)).sum();
        if (squares / count).sqrt() < SPREAD {
            return assumed;
        }
        let products: f32 = points.iter().map(|point| (point.0 - size) * (point.1 - log)).sum();
        (products + SLOPE_WEIGHT * assumed) / (squares + SLOPE_WEIGHT)
    }
}

fn spread_scale(values: &[(f32, bool)], centre: f32, assumed: f32) -> f32 {
    let squares: f32 = values
        .iter()
        // A run that was stopped before the usual time is no evidence about the spread.
        .filter(|(log, stopped)| !stopped || *log > centre)
        .map(|(log, _)| (log - centre).powi(2))
        .sum();
    let freedom = values.len().saturating_sub(1) as f32;
    ((ASSUMED_WEIGHT * assumed * assumed + squares) / (ASSUMED_WEIGHT + freedom)).sqrt()
}

/// What a run is likely to have taken in the end that was stopped at `log`: the median of what is
/// longer than that.
fn expected(log: f32, centre: f32, scale: f32) -> f32 {
    let width = LOGISTIC * scale;
    let late = (log - centre) / width;
    // Beyond this, exp would overflow and the formula is its own asymptote.
    if late > 30.0 {
        log + width * std::f32::consts::LN_2
    } else {
        centre + width * (2.0 * late.exp()).ln_1p()
    }
}

fn median(values: &mut [f32]) -> f32 {
    values.sort_unstable_by(f32::total_cmp);
    let middle = values.len() / 2;
    match values {
        [] => 0.0,
        _ if values.len() % 2 == 1 => values[middle],
        _ => f32::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENS: Lens = Lens { follows_drift: true, assumed_scale: 0.1, slope: 0.7, size: None };

    fn sample(log: f32, stopped: bool) -> RunSample {
        RunSample { log, size: None, of: 0, stopped, surprise: None }
    }

    fn series(samples: &[RunSample], one_thing: bool) -> Series {
        let mut series = Series::new(0.05);
        samples.iter().for_each(|sample| series.push(*sample, one_thing));
        series
    }

    #[test]
    fn the_centre_follows_the_newest_runs() {
        let old = (0..20).map(|_| sample(0.0, false));
        let new = (0..5).map(|_| sample(2.0, false));
        let all: Vec<RunSample> = old.chain(new).collect();
        let view = series(&all, true).view(&LENS, false).expect("runs");
        assert_eq!((view.centre, view.runs), (2.0, 25));
    }

    #[test]
    fn a_stopped_run_counts_as_longer_never_as_shorter() {
        let ended = [sample(1.0, false); 3];
        let with = |log| series(&[&ended[..], &[sample(log, true); 3]].concat(), true);
        let centre = |log| with(log).view(&LENS, false).expect("runs").centre;
        assert!((centre(-3.0) - 1.0).abs() < 0.01, "{}", centre(-3.0));
        assert!(centre(1.0) > 1.0 && centre(2.0) > 1.5, "{} {}", centre(1.0), centre(2.0));
        assert!(expected(90.0, 0.0, 0.1) > 90.0);
    }

    #[test]
    fn only_stopped_runs_are_no_basis_unless_there_is_no_other() {
        let stopped = series(&[sample(1.0, true)], true);
        assert_eq!(stopped.view(&LENS, false), None);
        assert!(stopped.view(&LENS, true).expect("asked for").centre > 1.0);
    }

    #[test]
    fn a_slope_needs_runs_with_spread() {
        let run = |of: u32, size: f32| RunSample {
            size: Some(size),
            of,
            log: 1.5 * size,
            stopped: false,
            surprise: None,
        };
        let of_sizes = |count: u32, step: f32| {
            let runs: Vec<RunSample> = (0..count).map(|index| run(index, index as f32 * step)).collect();
            series(&runs, false).slope(0.7)
        };
        assert_eq!(of_sizes(19, 0.5), 0.7);
        assert_eq!(of_sizes(20, 0.01), 0.7);
        assert!((of_sizes(24, 0.5) - 1.5).abs() < 0.05, "{}", of_sizes(24, 0.5));
    }

    #[test]
    fn among_several_things_the_newest_of_each_counts() {
        let of = |of, log| RunSample { of, ..sample(log, false) };
        let several = series(&[of(1, 9.0), of(2, 2.0), of(1, 0.0)], false);
        let view = several.view(&Lens { follows_drift: false, ..LENS }, false).expect("runs");
        assert_eq!((view.centre, view.runs), (1.0, 2));
    }

    #[test]
    fn key_fits_in_two_kibibytes() {
        let worst = RunSample {
            log: -12.345_678,
            size: Some(-9.876_543),
            of: u32::MAX,
            stopped: false,
            surprise: Some(-0.012_345_678),
        };
        let mut full = series(&[worst; 40], true);
        full.used = u64::MAX;
        let text = serde_json::to_string(&full).expect("JSON");
        assert!(
            text.len() <= 2048 && size_of::<RunSample>() * MAX_SAMPLES + size_of::<Series>() <= 2048,
            "{}",
            text.len()
        );
        assert_eq!(serde_json::from_str::<Series>(&text).expect("JSON"), full);
    }
}
