//! An answer: three durations, what they rest on, and what follows from them while the work
//! continues.
//!
//! Between and beyond its three points an answer is a log-logistic distribution with a side of its
//! own below and above the typical duration. Its upper tail is heavy: work that has taken longer
//! than usual is expected to take longer still.

use std::time::Duration;

use serde::Serialize;

use super::rung::Rung;

/// Odds of 19 to 1: what best and worst case are to the typical one.
const ODDS: f64 = 19.0;
/// A limit at this many times the worst case ends hardly any healthy run if it rests on
/// `LIMIT_RUNS` runs; if runs differ much, at as much above the worst case, in the logarithm, as
/// twice what that is above the typical one.
pub(crate) const LIMIT_FACTOR: f64 = 4.0;
pub(super) const LIMIT_RUNS: usize = 5;
/// What a command takes that nothing is known of: from a second to an hour.
const UNKNOWN_SECONDS: [f64; 3] = [1.0, 60.0, 3600.0];

/// How long something is likely to take.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// One run of twenty is shorter.
    pub best_seconds: f64,
    /// Half of the runs are shorter.
    pub typical_seconds: f64,
    /// One run of twenty is longer.
    pub worst_seconds: f64,
    /// The number of runs it rests on; from [`Rung::Template`] on, the number of different things
    /// that were run.
    pub runs: usize,
    /// What these runs have in common with what was asked.
    pub basis: Rung,
    /// The part of these runs that was stopped before its end.
    pub censored_rate: f64,
    /// The part of recent runs with a history like this that took no longer than their worst case;
    /// measured, once there are twenty.
    pub coverage: Option<f64>,
    /// A wall-clock limit, in seconds, that ends next to no healthy run.
    pub suggested_limit_seconds: f64,
    /// Whether runs show that the limit does that, and not only a table.
    pub limit_rests_on_runs: bool,
}

/// How much longer something that is still active is likely to take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RemainingTime {
    /// Seconds that are left in half of such runs.
    pub typical_seconds: f64,
    /// Seconds that are left at most, in 19 of 20 such runs.
    pub worst_seconds: f64,
}

impl Estimate {
    pub(super) fn new([best, typical, worst]: [f64; 3], basis: Rung, runs: usize) -> Self {
        let limit_rests_on_runs = runs >= LIMIT_RUNS && basis == Rung::Exact;
        let differ = if limit_rests_on_runs { (worst / typical).powi(2) } else { 1.0 };
        Estimate {
            best_seconds: best,
            typical_seconds: typical,
            worst_seconds: worst,
            runs,
            basis,
            censored_rate: 0.0,
            coverage: None,
            suggested_limit_seconds: LIMIT_FACTOR.max(differ) * worst,
            limit_rests_on_runs,
        }
    }

    /// Of a command that nothing is known of.
    pub(super) fn unknown() -> Self {
        Estimate::new(UNKNOWN_SECONDS, Rung::Unknown, 0)
    }

    /// With a worst case that is not below this.
    pub(super) fn at_worst(self, least: f64) -> Self {
        let worst_seconds = self.worst_seconds.max(least);
        let differ = worst_seconds / self.worst_seconds;
        let suggested_limit_seconds = self.suggested_limit_seconds * differ;
        Estimate { worst_seconds, suggested_limit_seconds, ..self }
    }

    /// What it is once it is known that it takes longer than this.
    pub(super) fn given_longer(self, seconds: f64) -> Self {
        if seconds <= self.best_seconds {
            return self;
        }
        let RemainingTime { typical_seconds, worst_seconds } = self.after(seconds);
        let worst_seconds = seconds + worst_seconds;
        Estimate {
            best_seconds: seconds,
            typical_seconds: seconds + typical_seconds,
            worst_seconds,
            suggested_limit_seconds: LIMIT_FACTOR * worst_seconds,
            ..self
        }
    }

    /// Whether the worst case fits into the remaining time.
    pub fn fits(&self, remaining: Duration) -> bool {
        self.worst_seconds <= remaining.as_secs_f64()
    }

    /// Returns the chance, from 0 to 1, that it takes longer than this in all.
    pub fn chance_longer(&self, seconds: f64) -> f64 {
        if seconds <= 0.0 {
            return 1.0;
        }
        let far = (seconds / self.typical_seconds).ln() / self.width(seconds >= self.typical_seconds);
        1.0 / (1.0 + far.exp())
    }

    /// Returns the chance, from 0 to 1, that it has ended `end_seconds` after its start, if it is
    /// still active `elapsed_seconds` after its start.
    pub fn chance_over_by(&self, end_seconds: f64, elapsed_seconds: f64) -> f64 {
        if end_seconds <= elapsed_seconds {
            return 0.0;
        }
        1.0 - self.chance_longer(end_seconds) / self.chance_longer(elapsed_seconds).max(f64::MIN_POSITIVE)
    }

    /// Returns the time that is left, if it is still active after `elapsed_seconds`. It is never
    /// negative, and grows once the usual time has passed.
    pub fn after(&self, elapsed_seconds: f64) -> RemainingTime {
        let survived = self.chance_longer(elapsed_seconds);
        let left = |part: f64| (self.longer_with_chance(part * survived) - elapsed_seconds).max(0.0);
        RemainingTime { typical_seconds: left(0.5), worst_seconds: left(1.0 / (ODDS + 1.0)) }
    }

    /// The duration that it is longer than with this chance.
    fn longer_with_chance(&self, chance: f64) -> f64 {
        let odds = 1.0 / chance.max(f64::MIN_POSITIVE) - 1.0;
        self.typical_seconds * odds.powf(self.width(odds >= 1.0))
    }

    /// The distribution's width on one side of the typical duration.
    fn width(&self, above: bool) -> f64 {
        let ratio = if above {
            self.worst_seconds / self.typical_seconds
        } else {
            self.typical_seconds / self.best_seconds
        };
        (ratio.ln() / ODDS.ln()).max(1e-6)
    }
}

/// Returns a duration in two units, such as `12m 0s` and `1h 30m`; below ten seconds with one digit
/// after the point, below a second in milliseconds.
pub fn format_duration(seconds: f64) -> String {
    let whole = seconds.round();
    match seconds {
        _ if !seconds.is_finite() => "unlimited".to_owned(),
        _ if seconds < 0.9995 => format!("{:.0}ms", (seconds * 1000.0).max(0.0)),
        _ if seconds < 9.95 && (seconds - whole).abs() >= 0.05 => format!("{seconds:.1}s"),
        _ if whole < 60.0 => format!("{whole:.0}s"),
        _ if whole < 3600.0 => format!("{:.0}m {:.0}s", (whole / 60.0).floor(), whole % 60.0),
        _ => format!("{:.0}h {:.0}m", (whole / 3600.0).floor(), (whole % 3600.0 / 60.0).floor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate() -> Estimate {
        Estimate::new([720.0, 1800.0, 5400.0], Rung::Prior, 0)
    }

    #[test]
    fn durations_are_written_as_the_description_does() {
        for (seconds, text) in [
            (720.0, "12m 0s"),
            (1800.0, "30m 0s"),
            (5400.0, "1h 30m"),
            (627.0, "10m 27s"),
            (0.085, "85ms"),
            (0.0, "0ms"),
            (1.25, "1.2s"),
            (5.0, "5s"),
            (59.7, "1m 0s"),
            (3599.9, "1h 0m"),
            (1_799.999_9, "30m 0s"),
        ] {
            assert_eq!(format_duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn the_three_points_are_the_distributions_own() {
        let estimate = estimate();
        for (seconds, chance) in [(720.0, 0.95), (1800.0, 0.5), (5400.0, 0.05)] {
            assert!((estimate.chance_longer(seconds) - chance).abs() < 1e-9, "{seconds}");
            assert!((estimate.longer_with_chance(chance) / seconds - 1.0).abs() < 1e-9, "{seconds}");
        }
        let start = estimate.after(0.0);
        assert!((start.worst_seconds - 5400.0).abs() < 1e-6 && (start.typical_seconds - 1800.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_left_grows_once_the_usual_time_is_over() {
        let estimate = estimate();
        let mut end = 0.0;
        for elapsed in [0.0, 60.0, 1800.0, 5400.0, 20_000.0, 1e6, 1e12] {
            let left = estimate.after(elapsed);
            assert!(
                left.typical_seconds > 0.0 && left.worst_seconds > left.typical_seconds,
                "{elapsed}: {left:?}"
            );
            assert!(elapsed + left.worst_seconds >= end, "{elapsed}");
            end = elapsed + left.worst_seconds;
        }
        assert!(estimate.after(20_000.0).worst_seconds > estimate.after(5400.0).worst_seconds);
        assert_eq!(estimate.chance_over_by(10.0, 20.0), 0.0);
        assert!((estimate.chance_over_by(5400.0, 0.0) - 0.95).abs() < 1e-9);
    }

    #[test]
    fn what_fits_is_what_the_worst_case_fits_in() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert!(estimate().fits(minutes(90)) && !estimate().fits(minutes(89)));
    }
}
