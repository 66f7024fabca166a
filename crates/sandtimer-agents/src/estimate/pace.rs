//! How much longer than usual everything takes lately: a machine that is slower for a while is
//! slower for all that runs on it, and a thing that was not run in the meantime does not know.
//!
//! What a series keeps is what its runs would have taken at the usual pace; what is foretold of the
//! next has today's. Where runs have nothing in common it stays near zero: each run moves it as far
//! as those before it foretold their next.

use serde::{Deserialize, Serialize};

/// How far one run moves the pace, and how much of it goes with each: what lasts becomes usual.
const GAIN: f32 = 0.15;
const LEAK: f32 = 0.01;
/// A run that is further off counts as this much: it has other reasons.
const MAX_LATENESS: f32 = 0.3;
/// How much less an older pair of runs counts for what runs have in common.
const FADING: f32 = 0.98;
/// Pairs that had nothing in common, which are assumed before any is recorded; and how far off they
/// were.
const ASSUMED: f32 = 5.0;
const ASSUMED_LATE: f32 = 0.1;

/// The pace of one load, on the scale of logarithms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Pace {
    late: f32,
    /// Of the last run.
    last: f32,
    /// Sums over pairs of successive runs.
    products: f32,
    squares: f32,
}

impl Pace {
    pub fn usual() -> Self {
        Pace { late: 0.0, last: 0.0, products: 0.0, squares: ASSUMED * ASSUMED_LATE * ASSUMED_LATE }
    }

    /// What it adds to the logarithm of a duration.
    pub fn late(self) -> f32 {
        // The correlation of successive runs: the part of how late one is that the next will be.
        self.late * (self.products / self.squares).clamp(0.0, 1.0)
    }

    /// Learns from a run that took `late` longer than it would have at the usual pace.
    pub fn see(&mut self, late: f32) {
        let late = late.clamp(-MAX_LATENESS, MAX_LATENESS);
        self.products = FADING * self.products + late * self.last;
        self.squares = FADING * self.squares + late * late;
        self.last = late;
        self.late += GAIN * (late - self.late) - LEAK * self.late;
    }
}
