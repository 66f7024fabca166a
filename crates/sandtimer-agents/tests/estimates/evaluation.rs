//! Walking forward: foretelling each run from those before it, and counting how often that held.

use std::collections::HashMap;
use std::fmt::Write;

use sandtimer_agents::estimate::{Estimator, FinishedRun, Question, Rung};

/// Sizes of history that are distinguished.
pub(crate) const SIZES: [&str; 6] = ["1", "2", "3", "4–6", "7–12", "13+"];

/// One run, with what an estimator does not see of it.
#[derive(Debug, Clone)]
pub(crate) struct EvaluatedRun {
    pub key: usize,
    pub question: Question,
    /// What it took, or would have taken.
    pub seconds: f64,
    /// When a limit stopped it.
    pub stopped_at: Option<f64>,
    pub idle: bool,
}

impl EvaluatedRun {
    pub fn finished(&self) -> FinishedRun {
        FinishedRun {
            question: self.question.clone(),
            seconds: self.stopped_at.unwrap_or(self.seconds),
            stopped: self.stopped_at.is_some(),
            ended_at_ms: 0,
        }
    }
}

/// How often a method held.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub total: usize,
    /// Between best and worst.
    pub inside: usize,
    /// Not longer than the worst case.
    pub covered: usize,
    widths: Vec<f64>,
    /// What each run took, in typical durations.
    lateness: Vec<f64>,
}

impl Tally {
    fn add(&mut self, [best, typical, worst]: [f64; 3], seconds: f64) {
        self.total += 1;
        self.inside += usize::from((best..=worst).contains(&seconds));
        self.covered += usize::from(seconds <= worst);
        self.widths.push(worst / typical);
        self.lateness.push(seconds / typical);
    }

    fn median_width(&self) -> f64 {
        quantiles(&self.widths).map_or(f64::NAN, |[_, median, _]| median)
    }

    /// The one width that would have held for 95 % of these runs, known only afterwards: of those
    /// that hold for so many, and are the same for all, none is less.
    fn needed_width(&self) -> f64 {
        quantiles(&self.lateness).map_or(f64::NAN, |[_, _, high]| high)
    }

    /// Whether so many of the predictions are what `target` of them is, give or take so many
    /// standard errors.
    pub fn is_within(&self, count: usize, target: f64, errors: f64) -> bool {
        let total = self.total as f64;
        (count as f64 / total - target).abs() <= errors * (target * (1.0 - target) / total).sqrt()
    }
}

/// The result of walking forward. Tallies are by size of history.
#[derive(Debug, Default)]
pub(crate) struct Evaluation {
    pub ours: [Tally; 6],
    idle: [Tally; 6],
    quantiles: [Tally; 6],
    ratios: [Tally; 6],
    /// By key: what runs on an idle machine took.
    idle_seconds: HashMap<usize, Vec<f64>>,
    /// By rung, where the thing itself had no run yet.
    first: HashMap<Rung, Tally>,
    /// By key: predictions, and how many held.
    keys: HashMap<usize, (usize, usize)>,
    /// Runs that had a limit which rests on runs, and those longer than it.
    limited: (usize, usize),
    /// Runs whose thing had runs, and those that would be ended in a task whose runs are: those
    /// longer than the suggested limit, and than the worst case, where they were ended before.
    in_tasks: (usize, usize, usize),
}

fn size_of_history(runs: usize) -> usize {
    [2, 3, 4, 7, 13].iter().filter(|least| runs >= **least).count()
}

/// Foretells and learns each run, in their order.
pub(crate) fn walk(runs: Vec<EvaluatedRun>) -> Evaluation {
    let mut estimator = Estimator::new();
    let mut known: HashMap<usize, Vec<f64>> = HashMap::new();
    let mut evaluation = Evaluation::default();
    for run in runs {
        let seconds = run.seconds;
        if run.idle {
            evaluation.idle_seconds.entry(run.key).or_default().push(seconds);
        }
        let past = known.entry(run.key).or_default();
        let estimate = estimator.predict(&run.question);
        if estimate.basis != Rung::Unknown {
            let points = [estimate.best_seconds, estimate.typical_seconds, estimate.worst_seconds];
            if estimate.basis == Rung::Exact {
                let size = size_of_history(estimate.runs);
                evaluation.ours[size].add(points, seconds);
                if run.idle {
                    evaluation.idle[size].add(points, seconds);
                }
                evaluation.in_tasks.0 += 1;
                evaluation.in_tasks.1 += usize::from(seconds > estimate.suggested_limit_seconds);
                evaluation.in_tasks.2 += usize::from(seconds > estimate.worst_seconds);
                let key = evaluation.keys.entry(run.key).or_default();
                key.0 += 1;
                key.1 += usize::from(seconds <= estimate.worst_seconds);
                if let Some(points) = quantiles(past) {
                    evaluation.quantiles[size].add(points, seconds);
                    evaluation.ratios[size].add([0.2 * points[1], points[1], 6.0 * points[1]], seconds);
                }
            } else {
                evaluation.first.entry(estimate.basis).or_default().add(points, seconds);
            }
            if estimate.limit_rests_on_runs {
                evaluation.limited.0 += 1;
                evaluation.limited.1 += usize::from(seconds > estimate.suggested_limit_seconds);
            }
        }
        if run.stopped_at.is_none() {
            past.push(seconds);
        }
        estimator.record(&run.finished()).expect("a duration");
    }
    evaluation
}

/// Raw quantiles of all runs so far, interpolated: what one would do without thinking.
fn quantiles(past: &[f64]) -> Option<[f64; 3]> {
    let mut sorted = past.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = |part: f64| {
        let position = part * last as f64;
        let (low, high) = (position.floor() as usize, position.ceil() as usize);
        sorted[low] + (sorted[high] - sorted[low]) * position.fract()
    };
    Some([at(0.05), at(0.5), at(0.95)])
}

impl Evaluation {
    /// All sizes of history together.
    pub fn whole(&self) -> Tally {
        let mut whole = Tally::default();
        for tally in &self.ours {
            whole.total += tally.total;
            whole.inside += tally.inside;
            whole.covered += tally.covered;
        }
        whole
    }

    /// The part of all predictions within the worst case.
    pub fn covered(&self) -> f64 {
        let whole = self.whole();
        super::share(whole.covered, whole.total)
    }

    /// The part of keys with 60 predictions and more, of which nine of ten were within the worst
    /// case.
    pub fn keys_covered(&self) -> f64 {
        let tried: Vec<f64> =
            self.keys.values().filter(|key| key.0 >= 60).map(|key| super::share(key.1, key.0)).collect();
        super::share(tried.iter().filter(|part| **part >= 0.9).count(), tried.len())
    }

    pub fn ended_by_limit(&self) -> f64 {
        super::share(self.limited.1, self.limited.0)
    }

    /// The part of healthy runs that `on_task_timeout="end"` ends, whether one run was known before
    /// or many.
    pub fn ended_in_tasks(&self) -> f64 {
        super::share(self.in_tasks.1, self.in_tasks.0)
    }

    /// Median of worst to typical on an idle machine, by size of history.
    pub fn idle_widths(&self) -> [f64; 6] {
        [0, 1, 2, 3, 4, 5].map(|size| self.idle[size].median_width())
    }

    /// The ratio of worst to typical for an estimator that knew all idle runs of a key, of which
    /// each is another draw: the 95th percentile to the median. The median of all keys.
    pub fn idle_hindsight(&self) -> f64 {
        let points = self.idle_seconds.values().filter_map(|seconds| quantiles(seconds));
        let mut widths: Vec<f64> = points.map(|[_, median, high]| high / median).collect();
        widths.sort_by(f64::total_cmp);
        widths.get(widths.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn idle_width(&self, size: usize) -> String {
        match self.idle[size].total {
            0 => "–".to_owned(),
            _ => {
                let idle = &self.idle[size];
                format!("{:.2} of {:.2}", idle.median_width(), idle.needed_width())
            }
        }
    }

    pub fn report(&self, title: &str) -> String {
        let mut text = format!("\n{title}\n");
        self.write(&mut text).expect("a text takes everything");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let percent = |part: usize, whole: usize| 100.0 * super::share(part, whole);
        writeln!(
            text,
            "  runs known    predictions   best–worst  ≤ worst   worst/typical (idle, of what 95 % needed)   raw quantiles: best–worst  ≤ worst   fixed ratios: best–worst  width"
        )?;
        for (size, name) in SIZES.iter().enumerate() {
            let (ours, quantiles, ratios) = (&self.ours[size], &self.quantiles[size], &self.ratios[size]);
            writeln!(
                text,
                "  {name:<10} {:14} {:10.1} % {:6.1} % {:10.2} {:>14} {:42.1} % {:6.1} % {:24.1} %    30×",
                ours.total,
                percent(ours.inside, ours.total),
                percent(ours.covered, ours.total),
                ours.median_width(),
                self.idle_width(size),
                percent(quantiles.inside, quantiles.total),
                percent(quantiles.covered, quantiles.total),
                percent(ratios.inside, ratios.total),
            )?;
        }
        let whole = self.whole();
        writeln!(
            text,
            "  all        {:14} {:10.1} % {:6.1} %",
            whole.total,
            percent(whole.inside, whole.total),
            percent(whole.covered, whole.total)
        )?;
        if !self.idle_seconds.is_empty() {
            let width = self.idle_hindsight();
            writeln!(text, "  idle, in hindsight: 95th percentile to median of a command's runs {width:.2}")?;
        }
        let mut first: Vec<_> = self.first.iter().collect();
        first.sort_by_key(|(rung, _)| rung.name());
        for (rung, tally) in first {
            writeln!(
                text,
                "  first run, from {:8} {:7} {:9.1} % {:6.1} %",
                rung.name(),
                tally.total,
                percent(tally.inside, tally.total),
                percent(tally.covered, tally.total)
            )?;
        }
        writeln!(
            text,
            "  keys of 60 predictions and more with at least 90 % within the worst case: {:.1} %",
            100.0 * self.keys_covered()
        )?;
        writeln!(
            text,
            "  healthy runs that the suggested limit would have ended, where it rests on runs: {} of {}, {:.3} %",
            self.limited.1,
            self.limited.0,
            100.0 * self.ended_by_limit()
        )?;
        let (all, ended, at_worst) = self.in_tasks;
        writeln!(
            text,
            "  healthy runs that on_task_timeout=\"end\" would have ended, whatever is known: {ended} of {all}, {:.3} %; at the worst case it would be {:.1} %",
            100.0 * self.ended_in_tasks(),
            percent(at_worst, all),
        )
    }
}
