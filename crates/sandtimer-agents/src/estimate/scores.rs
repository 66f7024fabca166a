//! How far runs were from what was foretold, in units of the foretold scale, pooled over all keys:
//! what turns a centre and a scale into quantiles that hold.
//!
//! A pool is for one rung and one size of history, because a scale that rests on one run is off in
//! other ways than one that rests on ten. A pool has only runs that were forecast before they
//! ended.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Scores that are kept of a pool; the newest.
const MAX_SCORES: usize = 1000;
/// Scores above a stopped run's from which its own is drawn; with fewer it is guessed to lie this
/// far above, on average.
const MIN_SCORES: usize = 8;
const BEYOND: f32 = 1.0;
/// Draws that cover an interval evenly: the golden ratio's fraction.
const STEP: f32 = 0.618_034;

/// The scores of one rung and one size of history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "StoredPool", from = "StoredPool")]
pub(super) struct ScorePool {
    newest: VecDeque<Score>,
    sorted: Vec<f32>,
    /// Scores at the front that are assumed, not measured: each measured score replaces one.
    assumed: usize,
    /// Of those in `newest`.
    measured: u32,
    held: u32,
    draws: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Score(f32, WithinWorstCase);

/// Whether the run took no longer than its foretold worst case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WithinWorstCase {
    #[serde(rename = "y")]
    Yes,
    #[serde(rename = "n")]
    No,
    /// It was stopped before, or nothing was foretold.
    #[serde(rename = "-")]
    Unknown,
}

#[derive(Serialize, Deserialize)]
struct StoredPool {
    newest: VecDeque<Score>,
    assumed: usize,
    draws: u32,
}

impl From<ScorePool> for StoredPool {
    fn from(pool: ScorePool) -> Self {
        StoredPool { newest: pool.newest, assumed: pool.assumed, draws: pool.draws }
    }
}

impl From<StoredPool> for ScorePool {
    fn from(written: StoredPool) -> Self {
        let mut pool = ScorePool {
            newest: VecDeque::new(),
            sorted: Vec::new(),
            assumed: 0,
            measured: 0,
            held: 0,
            draws: written.draws,
        };
        written.newest.into_iter().for_each(|score| pool.push(score.0, score.1));
        ScorePool { assumed: written.assumed, ..pool }
    }
}

impl ScorePool {
    /// Makes a pool that begins with these assumed scores; each measured score replaces one, the
    /// first of them first.
    pub fn starting(scores: impl IntoIterator<Item = f32>) -> Self {
        let newest: VecDeque<Score> =
            scores.into_iter().map(|score| Score(score, WithinWorstCase::Unknown)).collect();
        ScorePool::from(StoredPool { assumed: newest.len(), newest, draws: 0 })
    }

    /// Whether no score was measured yet.
    pub fn is_new(&self) -> bool {
        self.assumed == self.newest.len()
    }

    /// `count` scores, from the middle outwards, with the distribution of the measured ones; `None`
    /// while some are only assumed.
    pub fn shape(&self, count: usize) -> Option<Vec<f32>> {
        let at = |index: usize| self.sorted[(2 * index + 1) * self.sorted.len() / (2 * count)];
        let middle = count / 2;
        let outwards = (0..=middle).flat_map(|far| [middle + far, middle - far]).skip(1);
        (self.assumed == 0 && self.sorted.len() >= count).then(|| outwards.map(at).collect())
    }

    pub fn push(&mut self, score: f32, held: WithinWorstCase) {
        if (self.assumed > 0 || self.newest.len() == MAX_SCORES)
            && let Some(oldest) = self.newest.pop_front()
        {
            let index = self.sorted.partition_point(|other| *other < oldest.0);
            self.sorted.remove(index);
            self.assumed = self.assumed.saturating_sub(1);
            self.measured -= u32::from(oldest.1 != WithinWorstCase::Unknown);
            self.held -= u32::from(oldest.1 == WithinWorstCase::Yes);
        }
        let index = self.sorted.partition_point(|other| *other < score);
        self.sorted.insert(index, score);
        self.newest.push_back(Score(score, held));
        self.measured += u32::from(held != WithinWorstCase::Unknown);
        self.held += u32::from(held == WithinWorstCase::Yes);
    }

    /// The score that a run may have had in the end that was stopped at this one: one of those
    /// above it.
    pub fn drawn_above(&mut self, score: f32) -> f32 {
        self.draws = self.draws.wrapping_add(1);
        let part = (self.draws as f32 * STEP).fract();
        let above = &self.sorted[self.sorted.partition_point(|other| *other <= score)..];
        if above.len() < MIN_SCORES {
            return score - BEYOND * (1.0 - part).max(1e-3).ln();
        }
        above[((part * above.len() as f32) as usize).min(above.len() - 1)]
    }

    /// The score that the part `above` of the next runs lies above, in expectation.
    pub fn upper(&self, above: f32) -> f32 {
        let count = self.sorted.len();
        let index = ((1.0 - above) * (count + 1) as f32).ceil() as usize;
        self.sorted.get(index.clamp(1, count.max(1)) - 1).copied().unwrap_or(0.0)
    }

    /// The score that the part `below` of the next runs lies below.
    pub fn lower(&self, below: f32) -> f32 {
        let index = (below * (self.sorted.len() + 1) as f32).floor() as usize;
        self.sorted.get(index.max(1) - 1).copied().unwrap_or(0.0)
    }

    /// The part of recent runs that took no longer than their worst case, once there are enough of
    /// them.
    pub fn coverage(&self) -> Option<f64> {
        (self.measured >= 20).then(|| f64::from(self.held) / f64::from(self.measured))
    }
}

/// How far runs of one load usually are from what one or two runs before foretold: what the scale
/// of a key with such a short history is taken to be. A running median: each surprise moves it by a
/// step, up or down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct UsualScale {
    /// Logarithm of the median.
    log: f32,
    #[serde(rename = "seen")]
    samples: u32,
}

/// The first step, over how many surprises it halves, and the least.
const FIRST_STEP: f32 = 0.4;
const HALVING: f32 = 12.0;
const MIN_STEP: f32 = 0.02;
/// The median distance of a normal distribution from its centre.
const MEDIAN: f32 = 0.6745;

impl UsualScale {
    /// Begins with this scale.
    pub fn assumed(scale: f32) -> Self {
        UsualScale { log: (MEDIAN * scale).ln(), samples: 0 }
    }

    pub fn scale(self) -> f32 {
        self.log.exp() / MEDIAN
    }

    pub fn see(&mut self, surprise: f32) {
        let step = (FIRST_STEP / (1.0 + self.samples as f32 / HALVING)).max(MIN_STEP);
        self.log += if surprise.abs() > self.log.exp() { step } else { -step };
        self.samples += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_scale_follows_the_samples() {
        let mut usual = UsualScale::assumed(0.037);
        assert!((usual.scale() - 0.037).abs() < 1e-6);
        (0..200).for_each(|index| usual.see(if index % 2 == 0 { 0.5 } else { -0.7 }));
        assert!((0.65..1.1).contains(&usual.scale()), "{}", usual.scale());
    }

    #[test]
    fn quantiles_are_conformal_and_the_oldest_goes_first() {
        let mut pool = ScorePool::starting((1..=19).map(|value| value as f32));
        assert_eq!((pool.upper(0.05), pool.lower(0.05)), (19.0, 1.0));
        assert_eq!((pool.upper(0.5), pool.lower(0.5)), (10.0, 10.0));
        assert_eq!(pool.coverage(), None);
        (0..MAX_SCORES).for_each(|_| pool.push(0.5, WithinWorstCase::Yes));
        assert_eq!((pool.upper(0.001), pool.sorted.len(), pool.coverage()), (0.5, MAX_SCORES, Some(1.0)));
        pool.push(2.0, WithinWorstCase::No);
        assert_eq!(pool.coverage(), Some(0.999));
        let text = serde_json::to_string(&pool).expect("JSON");
        assert_eq!(serde_json::from_str::<ScorePool>(&text).expect("JSON"), pool);
    }

    #[test]
    fn pool_has_the_shape_of_its_scores_once_none_is_assumed() {
        let mut pool = ScorePool::starting((1..=19).map(|value| value as f32));
        assert!(pool.is_new() && pool.shape(5).is_none());
        (0..18).for_each(|_| pool.push(0.0, WithinWorstCase::Yes));
        assert!(!pool.is_new() && pool.shape(5).is_none(), "one is assumed still");
        let mut pool = ScorePool::starting(Vec::new());
        (0..100).rev().for_each(|value| pool.push(value as f32, WithinWorstCase::Yes));
        assert_eq!(pool.shape(5), Some(vec![50.0, 70.0, 30.0, 90.0, 10.0]), "from the middle outwards");
        assert!(pool.shape(101).is_none(), "of so many it knows too few");
    }

    #[test]
    fn a_stopped_run_is_given_a_score_above_where_it_was_stopped() {
        let mut pool = ScorePool::starting((1..=100).map(|value| value as f32));
        let drawn: Vec<f32> = (0..200).map(|_| pool.drawn_above(50.0)).collect();
        assert!(drawn.iter().all(|score| *score > 50.0));
        let mean = drawn.iter().sum::<f32>() / 200.0;
        assert!((mean - 75.5).abs() < 2.0, "{mean}");
        assert!(pool.drawn_above(1000.0) > 1000.0);
    }
}
