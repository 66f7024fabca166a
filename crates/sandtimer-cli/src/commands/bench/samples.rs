//! Percentiles, targets and pauses that all benches share.

use rustix::event::{Timespec, poll};
use serde_json::{Value, json};

/// Measured values of one kind, in one unit.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    pub(super) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Samples { sorted: values }
    }

    pub(super) fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest value that is not below `share` of all (nearest rank): always one that was
    /// measured.
    pub(super) fn at(&self, share: f64) -> Option<f64> {
        let rank = (share * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).copied()
    }

    pub(super) fn most(&self) -> Option<f64> {
        self.sorted.last().copied()
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "samples": self.count(), "p50": self.at(0.5), "p90": self.at(0.9), "p99": self.at(0.99),
            "p99_9": self.at(0.999), "max": self.most(),
        })
    }

    /// `p50 p90 p99 p99.9 max`, each 10 wide. A percentile that has no sample beyond it is the
    /// maximum by another name: it is marked with `*`.
    pub(super) fn columns(&self) -> String {
        let mut text = String::new();
        for share in [0.5, 0.9, 0.99, 0.999, 1.0] {
            let cell = self.at(share).map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
            let thin = share < 1.0 && (self.count() as f64) * (1.0 - share) < 1.0;
            text.push_str(&format!("{:>10}", if thin { format!("{cell}*") } else { cell }));
        }
        text
    }
}

/// The heading over [`Samples::columns`].
pub(super) const COLUMNS: &str = "       p50       p90       p99     p99.9       max";

/// A measured number with its bound.
#[derive(Debug, Clone)]
pub(super) struct MeasuredTarget {
    pub(super) name: String,
    pub(super) measured: Option<f64>,
    pub(super) bound: f64,
    /// Met at or above the bound instead of at or below.
    pub(super) is_min: bool,
}

impl MeasuredTarget {
    pub(super) fn with_max(name: impl Into<String>, measured: Option<f64>, bound: f64) -> Self {
        MeasuredTarget { name: name.into(), measured, bound, is_min: false }
    }

    pub(super) fn with_min(name: impl Into<String>, measured: Option<f64>, bound: f64) -> Self {
        MeasuredTarget { name: name.into(), measured, bound, is_min: true }
    }

    fn verdict(&self) -> &'static str {
        match self.measured {
            None => "not measured",
            Some(value) if self.is_min && value >= self.bound => "met",
            Some(value) if !self.is_min && value <= self.bound => "met",
            Some(_) => "missed",
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({"name": self.name, "measured": self.measured, "bound": self.bound, "verdict": self.verdict()})
    }

    pub(super) fn line(&self) -> String {
        let measured = self.measured.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let sign = if self.is_min { "≥" } else { "≤" };
        format!("  {:<58}{measured:>10}   target {sign} {:<6} {}\n", self.name, self.bound, self.verdict())
    }
}

/// The targets as an array.
pub(super) fn targets_json(targets: &[MeasuredTarget]) -> Value {
    targets.iter().map(MeasuredTarget::json).collect()
}

/// A bounded pause.
pub(super) fn pause(milliseconds: u64) {
    let time =
        Timespec { tv_sec: (milliseconds / 1000) as i64, tv_nsec: (milliseconds % 1000) as i64 * 1_000_000 };
    // Ends early only on a signal, which ends the bench as well.
    let _ = poll(&mut [], Some(&time));
}

/// Numbers that look random and are the same in every run of the bench; xorshift64.
#[derive(Debug)]
pub(super) struct Jitter(pub(super) u64);

impl Jitter {
    /// A number from `least` to `most`.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        least + self.0 % (most - least + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let samples = Samples::new((1..=1000).rev().map(f64::from).collect());
        assert_eq!(samples.at(0.5), Some(500.0));
        assert_eq!(samples.at(0.99), Some(990.0));
        assert_eq!(samples.at(0.999), Some(999.0));
        assert_eq!(samples.at(1.0), Some(1000.0));
        assert_eq!(Samples::default().at(0.5), None);
        assert_eq!(Samples::new(vec![7.0]).at(0.5), Some(7.0));
    }

    #[test]
    fn a_percentile_without_a_sample_beyond_it_is_marked() {
        assert!(!Samples::new(vec![1.0; 1000]).columns().contains('*'));
        assert!(Samples::new(vec![1.0; 999]).columns().contains('*'));
    }

    #[test]
    fn targets_know_their_direction() {
        assert_eq!(MeasuredTarget::with_max("late", Some(1.0), 1.0).verdict(), "met");
        assert_eq!(MeasuredTarget::with_max("late", Some(1.1), 1.0).verdict(), "missed");
        assert_eq!(MeasuredTarget::with_min("share", Some(0.7), 0.8).verdict(), "missed");
        assert_eq!(MeasuredTarget::with_min("share", None, 0.8).verdict(), "not measured");
    }

    #[test]
    fn jitter_stays_in_its_range() {
        let mut jitter = Jitter(0x5EED);
        let values: Vec<u64> = (0..1000).map(|_| jitter.between(20, 24)).collect();
        assert!((20..=24).all(|value| values.contains(&value)));
        assert!(values.iter().all(|value| (20..=24).contains(value)));
    }
}
