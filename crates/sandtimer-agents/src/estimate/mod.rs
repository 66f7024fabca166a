//! How long something is likely to take: from the runs of it that are known, from those that are
//! like it, or from a table.
//!
//! ```text
//! Question ─▶ keys, from this very thing to anything ─▶ the closest with runs: centre and scale (`series`)
//!          ─▶ how slow everything is lately (`pace`)
//!          ─▶ pooled scores of that rung and size of history (`scores`) ─▶ best, typical, worst (`answer`)
//! Finished ─▶ is scored against what was foretold of it, then added to the series of all its keys
//! ```
//! Pure arithmetic: no I/O, no clock, the same answers from the same runs. A [`History`] keeps the
//! runs; an [`Estimator`] is made from them and holds at most [`MAX_KEYS`] keys.
//!
//! Runs that were stopped count as longer than they lasted; were they left out, estimates would
//! tighten with each limit that fires, until they end healthy runs.
//!
//! ```
//! use sandtimer_agents::estimate::{Estimator, FinishedRun, Question, Rung, TaskType};
//!
//! let mut estimator = Estimator::new();
//! let question = Question::task(TaskType::parse("train_complex_model")?).data_size_mb(2300.0)?;
//! let guess = estimator.predict(&question);
//! assert_eq!((guess.basis, guess.typical_seconds), (Rung::Prior, 1800.0));
//!
//! for seconds in [610.0, 640.0, 598.0] {
//!     estimator.record(&FinishedRun { question: question.clone(), seconds, stopped: false, ended_at_ms: 0 })?;
//! }
//! let estimate = estimator.predict(&question);
//! assert_eq!((estimate.basis, estimate.runs), (Rung::Exact, 3));
//! assert!(estimate.best_seconds < 610.0 && estimate.worst_seconds > 610.0 && estimate.worst_seconds < 900.0);
//! // It has taken longer than ever before: what is left is still not nothing.
//! assert!(estimate.after(1200.0).typical_seconds > 0.0);
//! # Ok::<(), sandtimer_agents::estimate::EstimateError>(())
//! ```

mod answer;
mod asked;
mod error;
mod history;
mod kind;
mod pace;
mod question;
mod rung;
mod scores;
mod series;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

pub(crate) use answer::LIMIT_FACTOR;
pub use answer::{Estimate, RemainingTime, format_duration};
pub use asked::{EstimateAnswer, EstimateRequest};
pub use error::{EstimateError, MAX_MEGABYTES};
pub use history::{FinishedRun, History, HistoryError};
pub use kind::{Complexity, TaskType};
pub use question::{Conditions, Question};
pub use rung::Rung;

use pace::Pace;
use rung::RUNGS;
use scores::{ScorePool, UsualScale, WithinWorstCase};
use series::{Lens, RunSample, Series, SeriesView};

/// Keys that an estimator holds; the longest unused go first.
pub const MAX_KEYS: usize = 16_384;
/// Loads that are distinguished: unknown, quiet, busy, crowded.
const LOADS: usize = 4;
/// An estimate from runs of one thing, and from runs of several, is not wider than this on either
/// side: a wider one would be no more useful.
const MAX_WIDTHS: (f32, f32) = (4.6, 14.0);
/// Sizes of history that are calibrated apart: 1, 2, 3, 4–6, 7–12, 13 and more runs.
const SIZES: usize = 6;
/// The part of runs above the worst case, and the part below the best.
const OUTSIDE: f32 = 0.05;
/// How far one run moves these parts for its key (adaptive conformal inference), and within which
/// bounds.
const ADAPTION: f32 = 0.03;
const BOUNDS: (f32, f32) = (0.004, 0.2);
/// The scale that is assumed on each rung before runs show theirs: standard deviations of the
/// logarithm. That of the first is assumed by load, unknown, quiet, busy and crowded, and followed.
const ASSUMED_SCALES: [f32; RUNGS] = [0.0, 0.2, 0.2, 0.5, 0.7];
const ASSUMED_BY_LOAD: [f32; LOADS] = [0.037, 0.037, 0.1, 0.2];
/// Histories up to this length whose surprises show what is usual.
const SHORT: usize = 2;
/// Rungs from here on have runs of several things.
const OF_SEVERAL: usize = 2;
/// The rung of a type.
const OF_TYPE: usize = 4;
/// Below this many completed runs, each moves the typical duration of a type down by `MAX_PULL` at
/// most, and the worst case not at all: the first may be a mistake, a trial, or something that only
/// begins the work.
const TRUSTED_RUNS: usize = 3;
const MAX_PULL: f32 = 4.0;
/// Upper half of the normal distribution at every twentieth, which pools begin with.
const NORMAL: [f32; 10] = [0.0, 0.126, 0.253, 0.385, 0.524, 0.674, 0.842, 1.036, 1.282, 1.645];
/// Scores that a pool takes over from that of a shorter history: enough that no single one of them
/// is the worst case.
const INHERITED_SCORES: usize = 39;
/// How much wider than normal scores begin, by size of history.
const STARTING_WIDTHS: [f32; SIZES] = [3.0, 1.9, 1.6, 1.4, 1.2, 1.1];

/// Estimates durations from those of known runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Estimator {
    series: HashMap<u64, Series>,
    /// By load on the first rung, then by rung; and by size of history.
    pools: Vec<Vec<ScorePool>>,
    /// By load.
    usual: [UsualScale; LOADS],
    /// By load.
    pace: [Pace; LOADS],
    /// How many were made.
    records: u64,
}

impl Default for Estimator {
    fn default() -> Self {
        Estimator::new()
    }
}

/// Which of the pools of scores.
#[derive(Debug, Clone, Copy)]
struct PoolIndex {
    group: usize,
    /// Of the history.
    size: usize,
}

/// What is foretold from runs, on the scale of logarithms.
#[derive(Debug, Clone, Copy)]
struct Forecast {
    rung: usize,
    view: SeriesView,
    /// Where its scores are pooled.
    pool_index: PoolIndex,
    /// Scores of the best, typical and worst case.
    scores: [f32; 3],
}

impl Forecast {
    fn at(&self, score: f32) -> f32 {
        let most = if self.rung < OF_SEVERAL { MAX_WIDTHS.0 } else { MAX_WIDTHS.1 };
        self.view.centre + (score * self.view.scale).clamp(-most, most)
    }

    fn seconds(&self) -> [f64; 3] {
        self.scores.map(|score| f64::from(self.at(score)).exp())
    }

    fn score(&self, log: f32) -> f32 {
        (log - self.view.centre) / self.view.scale
    }
}

impl Estimator {
    /// Makes an estimator that knows no run.
    pub fn new() -> Self {
        let pools = (0..LOADS + RUNGS - 1).map(|_| STARTING_WIDTHS.map(starting).into()).collect();
        Estimator {
            series: HashMap::new(),
            pools,
            usual: ASSUMED_BY_LOAD.map(UsualScale::assumed),
            pace: [Pace::usual(); LOADS],
            records: 0,
        }
    }

    /// Makes an estimator that knows these runs, the oldest first. Runs that cannot be recorded are
    /// left out.
    pub fn from_runs<'a>(runs: impl IntoIterator<Item = &'a FinishedRun>) -> Self {
        let mut estimator = Estimator::new();
        for run in runs {
            // What a damaged file may hold foretells nothing.
            let _ = estimator.record(run);
        }
        estimator
    }

    /// Returns how long this is likely to take. For a command that was never run, nor one like it,
    /// the runs of other commands do not count.
    pub fn predict(&self, question: &Question) -> Estimate {
        let keys = question.keys();
        let known = self.forecast(question, &keys, false);
        let estimate = match (known, question.task_type()) {
            (Some(forecast), Some(_)) => {
                let estimate = self.estimate(&forecast);
                match prior_of_few(question, forecast.rung, forecast.view.completed) {
                    Some([.., worst]) => estimate.at_worst(worst),
                    None => estimate,
                }
            }
            (Some(forecast), None) => self.estimate(&forecast),
            (None, Some(task)) => {
                let seconds = task.prior(question.size_mb(), question.how_complex());
                Estimate::new(seconds, Rung::Prior, 0)
            }
            (None, None) => {
                let stopped = self.forecast(question, &keys, true);
                return stopped.map_or_else(Estimate::unknown, |stopped| self.estimate(&stopped));
            }
        };
        match self.only_stopped(&keys) {
            Some(seconds) if estimate.basis != Rung::Exact => estimate.given_longer(seconds),
            _ => estimate,
        }
    }

    /// As [`predict`](Self::predict), for a question as a caller writes it.
    ///
    /// # Errors
    /// As [`EstimateRequest::question`].
    pub fn answer(
        &self,
        asked: EstimateRequest,
        owner: &str,
        conditions: Conditions,
    ) -> Result<EstimateAnswer, EstimateError> {
        let question = asked.question(owner, conditions)?;
        let estimate = self.predict(&question);
        Ok(EstimateAnswer { asked, question, estimate, without: None })
    }

    /// Adds a run: scores what was foretold of it, then learns from it.
    ///
    /// # Errors
    /// [`EstimateError::BadDuration`] if its duration is negative or not finite.
    pub fn record(&mut self, run: &FinishedRun) -> Result<(), EstimateError> {
        if !run.seconds.is_finite() || run.seconds < 0.0 {
            return Err(EstimateError::BadDuration(run.seconds));
        }
        // At least a microsecond, since 0 has no logarithm.
        let log = run.seconds.max(1e-6).ln() as f32;
        let keys = run.question.keys();
        let forecast = self.forecast(&run.question, &keys, false);
        if let Some(forecast) = &forecast {
            self.score(forecast, keys[0], log, run.stopped);
        }
        self.records += 1;
        let own = forecast.filter(|forecast| forecast.rung == 0);
        let load = run.question.load_class();
        let pace = self.pace[load].late();
        let surprise =
            own.map(|forecast| log - forecast.view.centre).filter(|late| !run.stopped || *late > 0.0);
        if let (Some(forecast), Some(surprise)) = (own, surprise)
            && forecast.view.runs <= SHORT
        {
            self.usual[load].see(surprise);
        }
        if let (Some(forecast), false) = (own, run.stopped) {
            self.pace[load].see(log - forecast.view.centre + pace);
        }
        let [exact, ..] = keys;
        let of = exact.map_or(0, |key| (key ^ (key >> 32)) as u32);
        for (rung, key) in keys.into_iter().enumerate() {
            let Some(key) = key else { continue };
            let series = self.series.entry(key).or_insert_with(|| Series::new(OUTSIDE));
            let surprise = surprise.filter(|_| rung == 0);
            // A run that a limit ended early is no evidence about the pace.
            let log = if rung == 0 && !run.stopped { log - pace } else { log };
            let sample = RunSample { log, size: run.question.log_size(), of, stopped: run.stopped, surprise };
            series.push(sample, rung < OF_SEVERAL);
            series.used = self.records;
        }
        if self.series.len() > MAX_KEYS {
            self.forget();
        }
        Ok(())
    }

    /// Returns how many keys have runs; at most [`MAX_KEYS`].
    pub fn keys(&self) -> usize {
        self.series.len()
    }

    fn forecast(
        &self,
        question: &Question,
        keys: &[Option<u64>; RUNGS],
        even_stopped: bool,
    ) -> Option<Forecast> {
        for (rung, key) in keys.iter().enumerate() {
            let Some(series) = key.and_then(|key| self.series.get(&key)) else { continue };
            let Some(mut view) = series.view(&self.lens(question, keys, rung), even_stopped) else {
                continue;
            };
            if rung == 0 {
                view.centre += self.pace[question.load_class()].late();
            }
            if let Some([_, typical, _]) = prior_of_few(question, rung, view.completed) {
                view.centre = view.centre.max(typical.ln() as f32 - view.completed as f32 * MAX_PULL.ln());
            }
            let group = if rung == 0 { question.load_class() } else { LOADS - 1 + rung };
            let pool_index = PoolIndex { group, size: size_of_history(view.runs) };
            let pool = &self.pools[pool_index.group][pool_index.size];
            let (above, below) = if rung == 0 { (series.above, series.below) } else { (OUTSIDE, OUTSIDE) };
            let scores = [pool.lower(below), pool.upper(0.5), pool.upper(above)];
            return Some(Forecast { rung, view, pool_index, scores });
        }
        None
    }

    fn lens(&self, question: &Question, keys: &[Option<u64>; RUNGS], rung: usize) -> Lens {
        let assumed_scale =
            if rung == 0 { self.usual[question.load_class()].scale() } else { ASSUMED_SCALES[rung] };
        let lens = Lens { follows_drift: rung == 0, assumed_scale, slope: 0.0, size: None };
        if rung < OF_SEVERAL || question.log_size().is_none() {
            return lens;
        }
        let of_type = keys[OF_TYPE].and_then(|key| self.series.get(&key));
        let slope = of_type.map_or(kind::GROWTH as f32, |series| series.slope(kind::GROWTH as f32));
        Lens { slope, size: question.log_size(), ..lens }
    }

    fn estimate(&self, forecast: &Forecast) -> Estimate {
        let runs = forecast.view.runs;
        Estimate {
            censored_rate: forecast.view.stopped.into(),
            coverage: self.pools[forecast.pool_index.group][forecast.pool_index.size].coverage(),
            ..Estimate::new(forecast.seconds(), Rung::WITH_RUNS[forecast.rung], runs)
        }
    }

    /// The longest time after which this very thing was stopped, if it never came to its end.
    fn only_stopped(&self, keys: &[Option<u64>; RUNGS]) -> Option<f64> {
        let series = keys[0].and_then(|key| self.series.get(&key))?;
        series.only_stopped().map(|log| f64::from(log).exp())
    }

    /// Has a pool that saw nothing yet begin with what is known of histories that are shorter by a
    /// step.
    fn begin(&mut self, index: PoolIndex) {
        let PoolIndex { group, size } = index;
        let Some(shorter) = size.checked_sub(1).filter(|_| self.pools[group][size].is_new()) else { return };
        if let Some(shape) = self.pools[group][shorter].shape(INHERITED_SCORES) {
            let ratio = STARTING_WIDTHS[size] / STARTING_WIDTHS[shorter];
            self.pools[group][size] = ScorePool::starting(shape.into_iter().map(|score| ratio * score));
        }
    }

    /// Compares a run with what was foretold of it.
    fn score(&mut self, forecast: &Forecast, key: Option<u64>, log: f32, stopped: bool) {
        let score = forecast.score(log);
        let (is_above, is_below) = (score > forecast.scores[2], score < forecast.scores[0]);
        self.begin(forecast.pool_index);
        let pool = &mut self.pools[forecast.pool_index.group][forecast.pool_index.size];
        match (stopped, is_above) {
            (false, above) => {
                pool.push(score, if above { WithinWorstCase::No } else { WithinWorstCase::Yes })
            }
            (true, above) => {
                let drawn = pool.drawn_above(score);
                pool.push(drawn, if above { WithinWorstCase::No } else { WithinWorstCase::Unknown });
            }
        }
        // For a run that was stopped before its worst case it is unknown whether the forecast would
        // have held.
        if forecast.rung != 0 || (stopped && !is_above) {
            return;
        }
        if let Some(series) = key.and_then(|key| self.series.get_mut(&key)) {
            let moved = |part: f32, outside: bool| {
                let missed = if outside { 1.0 } else { 0.0 };
                (part + ADAPTION * (OUTSIDE - missed)).clamp(BOUNDS.0, BOUNDS.1)
            };
            series.above = moved(series.above, is_above);
            series.below = moved(series.below, is_below);
        }
    }

    /// Drops the eighth of the keys that was not used for longest.
    fn forget(&mut self) {
        let mut used: Vec<u64> = self.series.values().map(|series| series.used).collect();
        let eighth = used.len() / 8;
        let (_, oldest, _) = used.select_nth_unstable(eighth);
        let oldest = *oldest;
        self.series.retain(|_, series| series.used > oldest);
    }
}

/// Returns the figures of the table if the type has too few runs yet. Runs of the same command
/// always count.
fn prior_of_few(question: &Question, rung: usize, completed: usize) -> Option<kind::Triple> {
    let task = question.task_type()?;
    let is_known = completed >= TRUSTED_RUNS || (rung < OF_SEVERAL && question.is_command());
    (!is_known).then(|| task.prior(question.size_mb(), question.how_complex()))
}

/// From the middle outwards, for the first go first.
fn starting(width: f32) -> ScorePool {
    let sides = NORMAL.iter().flat_map(|score| [width * score, -width * score]);
    // The middle is one score, not two.
    ScorePool::starting(sides.skip(1))
}

/// The size of history of this many runs.
fn size_of_history(runs: usize) -> usize {
    match runs {
        0..=1 => 0,
        2 => 1,
        3 => 2,
        4..=6 => 3,
        7..=12 => 4,
        _ => 5,
    }
}
