//! What is counted, and the text in which Prometheus reads it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandtimer::engine::Stats;
use sandtimer::model::{LimitKind, Outcome};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde::Serialize;

use crate::sandboxes::NetworkCounts;

/// Upper bounds of the buckets, in seconds.
const LATENESS: [f64; 10] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.3, 1.0];
/// The same of waits, which may be for another run's end.
const WAITS: [f64; 10] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 1800.0];

#[derive(Debug, Default)]
pub(crate) struct Metrics {
    ended: Mutex<EndedRunCounts>,
    queue: Arc<Queue>,
    store_failures: AtomicU64,
}

#[derive(Debug, Default)]
struct EndedRunCounts {
    by_ending: BTreeMap<String, u64>,
    /// By the limit's kind and the layer that it is of.
    verdicts: BTreeMap<(String, String), u64>,
    lateness: Histogram<{ LATENESS.len() }>,
    survivors: u64,
    unproven: u64,
}

/// Seconds, by the bounds that they are within.
#[derive(Debug)]
struct Histogram<const BOUNDS: usize> {
    within: [u64; BOUNDS],
    /// How many there are in all, those past every bound included.
    count: u64,
    sum: f64,
}

impl<const BOUNDS: usize> Default for Histogram<BOUNDS> {
    fn default() -> Self {
        Histogram { within: [0; BOUNDS], count: 0, sum: 0.0 }
    }
}

impl<const BOUNDS: usize> Histogram<BOUNDS> {
    fn add(&mut self, bounds: &[f64; BOUNDS], seconds: f64) {
        for (within, _) in self.within.iter_mut().zip(bounds).filter(|(_, bound)| seconds <= **bound) {
            *within += 1;
        }
        self.count += 1;
        self.sum += seconds;
    }

    fn write(&self, text: &mut String, name: &str, help: &str, bounds: &[f64; BOUNDS]) {
        head(text, name, "histogram", help);
        for (bound, within) in bounds.iter().zip(&self.within) {
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {within}");
        }
        let Histogram { count, sum, .. } = self;
        let _ =
            write!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}\n");
    }
}

/// The name of a value on the wire.
fn wire_name(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or("unknown").to_owned()
}

/// The runs that were asked for and have not begun, and how long those waited that have.
#[derive(Debug, Default)]
struct Queue {
    queued: AtomicU64,
    waits: Mutex<Histogram<{ WAITS.len() }>>,
}

/// A run that was asked for and has not begun. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct QueueWait {
    queue: Arc<Queue>,
    /// In monotonic nanoseconds.
    since: u64,
}

impl QueueWait {
    /// It begins. What never does has no wait to count.
    pub fn begun(self) {
        let waited = Duration::from_nanos(monotonic_nanoseconds().saturating_sub(self.since));
        let mut waits = self.queue.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.add(&WAITS, waited.as_secs_f64());
    }
}

impl Drop for QueueWait {
    fn drop(&mut self) {
        self.queue.queued.fetch_sub(1, Ordering::Relaxed);
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
    /// What the networks of sandboxes have done.
    pub networks: Arc<NetworkCounts>,
    /// Pre-warm scripts of shells that have failed; there are no warm shells.
    pub shell_prewarm_failures: u64,
}

impl Metrics {
    pub fn queued(&self) -> QueueWait {
        self.queue.queued.fetch_add(1, Ordering::Relaxed);
        QueueWait { queue: self.queue.clone(), since: monotonic_nanoseconds() }
    }

    /// Counts a run that has ended, with the survivors of its settled Outcome.
    pub fn ended(&self, outcome: &Outcome) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended.by_ending.entry(wire_name(&outcome.ending)).or_default() += 1;
        if let Some(verdict) = &outcome.verdict {
            let kind = verdict.kind.map_or_else(|| "cancel".to_owned(), |kind| wire_name(&kind));
            *ended.verdicts.entry((kind, wire_name(&verdict.layer))).or_default() += 1;
            if verdict.kind == Some(LimitKind::Wall) {
                ended.lateness.add(&LATENESS, verdict.late_ms / 1000.0);
            }
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
        head(&mut text, "sandtimer_runs_total", "counter", "Ended runs, by ending.");
        for (ending, count) in &ended.by_ending {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "sandtimer_runs_total{{ending=\"{ending}\"}} {count}");
        }
        verdicts(&mut text, &ended.verdicts);
        let late = "How late verdicts of wall-clock limits were.";
        ended.lateness.write(&mut text, "sandtimer_wall_verdict_late_seconds", late, &LATENESS);
        let waited =
            "How long runs waited to begin: for their sandbox, or for their turn in a context or session.";
        let waits = self.queue.waits.lock().unwrap_or_else(PoisonError::into_inner);
        waits.write(&mut text, "sandtimer_queue_wait_seconds", waited, &WAITS);
        drop(waits);
        let one = |text: &mut String, name: &str, kind: &str, help: &str, value: u64| {
            head(text, name, kind, help);
            let _ = writeln!(text, "{name} {value}");
        };
        one(
            &mut text,
            "sandtimer_survivors_total",
            "counter",
            "Processes that were alive when their run had ended.",
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
        one(&mut text, "sandtimer_runs_running", "gauge", "Runs that are running.", gauges.running as u64);
        let queued = self.queue.queued.load(Ordering::Relaxed);
        one(
            &mut text,
            "sandtimer_runs_queued",
            "gauge",
            "Runs that were asked for and have not begun.",
            queued,
        );
        one(&mut text, "sandtimer_runs_kept", "gauge", "Records of ended runs.", gauges.kept as u64);
        let quarantined = gauges.quarantined as u64;
        one(
            &mut text,
            "sandtimer_slots_quarantined",
            "gauge",
            "Places for runs that hold something unkillable.",
            quarantined,
        );
        networks(&mut text, &gauges.networks);
        pools(&mut text, &gauges.pools);
        prewarm_failures(&mut text, &gauges);
        text
    }
}

fn networks(text: &mut String, counts: &NetworkCounts) {
    let families = [
        ("connections", &counts.allowed, "Connections of sandboxes that their network allow-lists allowed."),
        ("denials", &counts.denied, "Connections and lookups of sandboxes that were refused."),
        ("sent_bytes", &counts.sent, "Bytes of ended connections that sandboxes sent."),
        ("received_bytes", &counts.received, "Bytes of ended connections that sandboxes received."),
    ];
    for (name, count, help) in families {
        let name = format!("sandtimer_sandbox_network_{name}_total");
        head(text, &name, "counter", help);
        let _ = writeln!(text, "{name} {}", count.load(Ordering::Relaxed));
    }
}

fn pools(text: &mut String, pools: &[(&'static str, Stats)]) {
    type StatCount = fn(&Stats) -> u64;
    let families: [(&str, &str, &str, StatCount); 3] = [
        ("sandtimer_pool_hits_total", "counter", "Contexts that found an interpreter ready.", |stats| {
            stats.calls - stats.cold
        }),
        ("sandtimer_pool_misses_total", "counter", "Contexts that waited for an interpreter.", |stats| {
            stats.cold
        }),
        ("sandtimer_pool_ready", "gauge", "Pre-warmed interpreters.", |stats| stats.ready as u64),
    ];
    for (name, kind, help, count) in families {
        head(text, name, kind, help);
        for (language, stats) in pools {
            let _ = writeln!(text, "{name}{{language=\"{language}\"}} {}", count(stats));
        }
    }
}

fn prewarm_failures(text: &mut String, gauges: &Gauges) {
    let name = "sandtimer_prewarm_failures_total";
    head(text, name, "counter", "Pre-warm scripts that failed or were ended at their limit.");
    let of_pools = gauges.pools.iter().map(|(language, stats)| (*language, stats.prewarm_failures));
    for (language, count) in of_pools.chain([("bash", gauges.shell_prewarm_failures)]) {
        let _ = writeln!(text, "{name}{{language=\"{language}\"}} {count}");
    }
}

pub(crate) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn verdicts(text: &mut String, verdicts: &BTreeMap<(String, String), u64>) {
    let name = "sandtimer_verdicts_total";
    let help =
        "Runs that were ended by a limit or a cancellation (cancel), by the kind and the scope of the limit.";
    head(text, name, "counter", help);
    for ((kind, layer), count) in verdicts {
        let _ = writeln!(text, "{name}{{kind=\"{kind}\",layer=\"{layer}\"}} {count}");
    }
}
