//! How long the rest takes, from when units were done so far.
//!
//! What has been measured on real and made-up traces decides: the first interval is left out, for
//! it holds the warming up; the mean of the others is robust against single outliers; where the
//! later half differs from the earlier one by more than their noise explains, the later half and
//! half of the trend count instead. A smoothed rate, as bars show it, jumps with each slow unit and
//! is not used.

use std::time::Duration;

use crate::limits::FAR_FUTURE;
use crate::time::Moment;

/// Points that are kept; with more, every second one goes.
const MAX_POINTS: usize = 128;
/// An interval counts at most this many times the median.
const OUTLIER: f64 = 10.0;
/// Relative error that is left however regular it all was.
const FLOOR: f64 = 0.02;
/// The same when only the first interval is known.
const FIRST: f64 = 0.7;
/// Half the width of a band that holds 80 %, in standard deviations.
const BAND: f64 = 1.2816;
/// How much of a trend is assumed to continue.
const DAMPING: f64 = 0.5;
/// Fewer intervals show no trend.
const MIN_INTERVALS_FOR_TREND: usize = 4;

/// When something will be done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Eta {
    /// The most likely time until it is done.
    pub remaining: Duration,
    /// Between these two it ends in four of five cases.
    pub low: Duration,
    /// The longer end of that range.
    pub high: Duration,
    /// Of the logarithm of the remaining time.
    deviation: f64,
}

impl Eta {
    /// How likely it is done within this time.
    pub fn p_finish_within(&self, time: Duration) -> f64 {
        if self.remaining.is_zero() {
            return 1.0;
        }
        let ratio = time.as_secs_f64() / self.remaining.as_secs_f64();
        if ratio <= 0.0 { 0.0 } else { normal(ratio.ln() / self.deviation) }
    }
}

/// The distribution function of the standard normal distribution, to 1e-4 (Abramowitz and Stegun
/// 26.2.17).
fn normal(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let tail = t
        * (0.319_381_53 + t * (-0.356_563_78 + t * (1.781_477_94 + t * (-1.821_255_98 + t * 1.330_274_43))));
    let upper = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt() * tail;
    if x > 0.0 { 1.0 - upper } else { upper }
}

/// Seconds for a unit, and how many units that was measured over.
#[derive(Debug, Clone, Copy)]
struct Interval {
    seconds: f64,
    units: f64,
}

impl Interval {
    fn rate(&self) -> f64 {
        self.seconds / self.units
    }
}

/// What was done when.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace {
    points: Vec<(f64, Moment)>,
}

impl Pace {
    /// Begins again: `done` units are done at this moment.
    pub(super) fn begin(&mut self, done: f64, now: Moment) {
        self.points.clear();
        self.points.push((done, now));
    }

    /// Notes that `done` units are done now.
    pub(super) fn note(&mut self, done: f64, now: Moment) {
        let Some((before, _)) = self.points.last() else { return self.begin(done, now) };
        if done <= *before {
            return;
        }
        if self.points.len() == MAX_POINTS {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                // The first interval stays what it is.
                index <= 2 || index % 2 == 0
            });
        }
        self.points.push((done, now));
    }

    /// When the rest is done; None without an interval.
    pub(super) fn eta(&self, total: f64, now: Moment) -> Option<Eta> {
        let (done, at) = *self.points.last()?;
        let left = total - done;
        if left <= 0.0 {
            return Some(made(0.0, FLOOR));
        }
        let all = self.intervals();
        let (rate, deviation) = match &all[..] {
            [] => return None,
            [only] => (only.rate(), FIRST),
            [_, rest @ ..] => rate_of(rest, left),
        };
        // Of the unit that is active what was spent on it is spent, but it is not done yet; the
        // longer one has waited beyond what it should take, the longer it may take still.
        let spent = now.since(at).as_secs_f64();
        let unit = rate * left.min(1.0);
        let current = (unit - spent).max(unit / 10.0).max((spent - unit) / 2.0);
        Some(made(rate * left - unit + current, deviation))
    }

    fn intervals(&self) -> Vec<Interval> {
        let pairs = self.points.iter().zip(self.points.iter().skip(1));
        pairs
            .map(|((from, began), (to, ended))| Interval {
                seconds: ended.since(*began).as_secs_f64(),
                units: to - from,
            })
            .collect()
    }
}

fn made(seconds: f64, deviation: f64) -> Eta {
    let duration = |seconds: f64| {
        // A lie may make it anything.
        let longest = FAR_FUTURE.as_secs_f64();
        Duration::from_secs_f64(if seconds.is_finite() { seconds.clamp(0.0, longest) } else { longest })
    };
    let factor = (BAND * deviation).exp();
    Eta {
        remaining: duration(seconds),
        low: duration(seconds / factor),
        high: duration(seconds * factor),
        deviation,
    }
}

/// Seconds for each of the units that are left, and the relative error of that.
fn rate_of(intervals: &[Interval], left: f64) -> (f64, f64) {
    let mut rates: Vec<f64> = intervals.iter().map(Interval::rate).collect();
    rates.sort_by(f64::total_cmp);
    let most = OUTLIER * rates[rates.len() / 2];
    let capped: Vec<Interval> = intervals
        .iter()
        .map(|interval| Interval { seconds: interval.seconds.min(most * interval.units), ..*interval })
        .collect();
    let count = capped.len() as f64;
    let (mean, variance) = moments(&capped);
    let units = capped.iter().map(|interval| interval.units).sum::<f64>();
    // The rest has its own noise, in as many intervals as there were for so many units.
    let ahead = (left / units * count).max(1.0);
    let noise = variance / (mean * mean).max(f64::MIN_POSITIVE) * (1.0 / count + 1.0 / ahead);
    if capped.len() < MIN_INTERVALS_FOR_TREND {
        return (mean, (noise + FLOOR * FLOOR + 0.1 / (count * count)).sqrt());
    }
    let (early, late) = capped.split_at(capped.len() / 2);
    let ((before, spread_before), (after, spread_after)) = (moments(early), moments(late));
    let error = spread_before / early.len() as f64 + spread_after / late.len() as f64;
    let significance = (after - before).powi(2) / error.max((1e-3 * mean).powi(2)).max(f64::MIN_POSITIVE);
    // Noise alone gives about 1.
    let weight = (significance / (significance + 6.0)).clamp(0.0, 1.0);
    // From the middle of the later half to the middle of what is left, in distances between the
    // middles of the halves.
    let late_units = late.iter().map(|interval| interval.units).sum::<f64>();
    let steps = (late_units / 2.0 + left / 2.0) / (units / 2.0);
    let trend = after + DAMPING * (after - before) * steps;
    let moved = trend.clamp(0.5 * after, 2.0 * after);
    let rate = mean + weight * (moved - mean);
    let drift = weight * (moved - mean).abs() / mean.max(f64::MIN_POSITIVE);
    (rate, (noise + FLOOR * FLOOR + drift * drift).sqrt())
}

/// Mean and variance of the seconds for a unit, each interval weighing as many units as it has.
fn moments(intervals: &[Interval]) -> (f64, f64) {
    let units: f64 = intervals.iter().map(|interval| interval.units).sum();
    let mean = intervals.iter().map(|interval| interval.seconds).sum::<f64>() / units;
    let squares = intervals.iter().map(|interval| interval.units * (interval.rate() - mean).powi(2));
    let corrected = intervals.len() as f64 / (intervals.len() as f64 - 1.0).max(1.0);
    (mean, squares.sum::<f64>() / units * corrected)
}
