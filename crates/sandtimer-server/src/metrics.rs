//! What is counted, and the text in which Prometheus reads it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sandtimer::engine::Stats;
use sandtimer::model::{LimitKind, Outcome};

/// Upper bounds of the buckets, in seconds.
const LATENESS: [f64; 10] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1.0];

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    ended: Mutex<Ended>,
    queued: Arc<AtomicU64>,
    store_failures: AtomicU64,
}

#[derive(Debug, Default)]
struct Ended {
    by_ending: BTreeMap<String, u64>,
    /// The last one is for what is later than all bounds.
    lateness: [u64; LATENESS.len() + 1],
    lateness_sum: f64,
    survivors: u64,
    unproven: u64,
}

/// A run that was asked for and has not begun. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Queued(Arc<AtomicU64>);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is measured at the moment of asking.
#[derive(Debug, Clone)]
pub(crate) struct Gauges {
    pub running: usize,
    pub kept: usize,
    pub quarantined: usize,
    /// What the pools of interpreters have done, by language.
    pub pools: Vec<(&'static str, Stats)>,
}

impl Metrics {
    pub fn queued(&self) -> Queued {
        self.queued.fetch_add(1, Ordering::Relaxed);
        Queued(self.queued.clone())
    }

    /// Counts a run that is over, with its last word on survivors.
    pub fn ended(&self, outcome: &Outcome) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let name = serde_json::to_value(outcome.ending).unwrap_or_default();
        *ended.by_ending.entry(name.as_str().unwrap_or("unknown").to_owned()).or_default() += 1;
        if let Some(verdict) =
            outcome.verdict.as_ref().filter(|verdict| verdict.kind == Some(LimitKind::Wall))
        {
            let late = verdict.late_ms / 1000.0;
            let bucket = LATENESS.iter().position(|bound| late <= *bound).unwrap_or(LATENESS.len());
            ended.lateness[bucket] += 1;
            ended.lateness_sum += late;
        }
        match outcome.tree.survivors {
            Some(count) => ended.survivors += count,
            None => ended.unproven += 1,
        }
    }

    pub fn store_failed(&self) {
        self.store_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// In Prometheus' text format, version 0.0.4.
    pub fn text(&self, gauges: Gauges) -> String {
        let mut text = String::new();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        head(&mut text, "sandtimer_runs_total", "counter", "Runs that are over, by ending.");
        for (ending, count) in &ended.by_ending {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "sandtimer_runs_total{{ending=\"{ending}\"}} {count}");
        }
        lateness(&mut text, &ended);
        let one = |text: &mut String, name: &str, kind: &str, help: &str, value: u64| {
            head(text, name, kind, help);
            let _ = writeln!(text, "{name} {value}");
        };
        one(
            &mut text,
            "sandtimer_survivors_total",
            "counter",
            "Processes that were alive when their run was over.",
            ended.survivors,
        );
        one(
            &mut text,
            "sandtimer_unproven_total",
            "counter",
            "Runs whose processes' death could not be proven.",
            ended.unproven,
        );
        let failures = self.store_failures.load(Ordering::Relaxed);
        one(
            &mut text,
            "sandtimer_store_failures_total",
            "counter",
            "Records that could not be written.",
            failures,
        );
        one(&mut text, "sandtimer_runs_running", "gauge", "Runs that go on.", gauges.running as u64);
        let queued = self.queued.load(Ordering::Relaxed);
        one(
            &mut text,
            "sandtimer_runs_queued",
            "gauge",
            "Runs that were asked for and have not begun.",
            queued,
        );
        one(&mut text, "sandtimer_runs_kept", "gauge", "Records of runs that are over.", gauges.kept as u64);
        let quarantined = gauges.quarantined as u64;
        one(
            &mut text,
            "sandtimer_slots_quarantined",
            "gauge",
            "Places for runs that hold something unkillable.",
            quarantined,
        );
        pools(&mut text, &gauges.pools);
        text
    }
}

fn pools(text: &mut String, pools: &[(&'static str, Stats)]) {
    type Count = fn(&Stats) -> u64;
    let families: [(&str, &str, &str, Count); 4] = [
        ("sandtimer_pool_hits_total", "counter", "Contexts that found an interpreter ready.", |stats| {
            stats.calls - stats.cold
        }),
        ("sandtimer_pool_misses_total", "counter", "Contexts that waited for an interpreter.", |stats| {
            stats.cold
        }),
        ("sandtimer_pool_ready", "gauge", "Interpreters that stand ready.", |stats| stats.ready as u64),
        (
            "sandtimer_prewarm_failures_total",
            "counter",
            "Pre-warm scripts that failed or were ended at their limit.",
            |stats| stats.prewarm_failures,
        ),
    ];
    for (name, kind, help, count) in families {
        head(text, name, kind, help);
        for (language, stats) in pools {
            let _ = writeln!(text, "{name}{{language=\"{language}\"}} {}", count(stats));
        }
    }
}

pub(crate) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn lateness(text: &mut String, ended: &Ended) {
    let name = "sandtimer_wall_verdict_late_seconds";
    head(text, name, "histogram", "How late verdicts of wall limits were.");
    let mut count = 0;
    for (bound, inside) in LATENESS.iter().zip(&ended.lateness) {
        count += inside;
        let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {count}");
    }
    count += ended.lateness[LATENESS.len()];
    let _ = write!(
        text,
        "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {}\n{name}_count {count}\n",
        ended.lateness_sum
    );
}
