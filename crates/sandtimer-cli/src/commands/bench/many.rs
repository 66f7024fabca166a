//! What a waiting run costs the engine: many sleeping runs at a time, started, counted and killed.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandtimer::engine::CAPACITY;
use sandtimer::{Engine, Error, Limits, Run, Spec};
use sandtimer_os::clock::monotonic_nanoseconds;
use serde_json::json;

use super::findings::Findings;
use super::samples::{MeasuredTarget, Samples, pause, targets_json};

/// The runs end by themselves after this, whatever happens to the bench.
const LIMIT: Duration = Duration::from_secs(300);
/// Descriptors asked for: for each run, and for the rest.
const DESCRIPTORS_PER_RUN: u64 = 16;
const EXTRA_DESCRIPTORS: u64 = 256;

/// What the engine's process holds.
#[derive(Debug, Clone, Copy)]
struct HeldResources {
    descriptors: u64,
    threads: u64,
    /// Anonymous memory in KiB.
    memory: u64,
}

impl HeldResources {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        // Reading the directory takes one itself, every time.
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
        HeldResources {
            descriptors,
            threads: field("Threads:").unwrap_or(0),
            memory: field("RssAnon:").unwrap_or(0),
        }
    }
}

/// Raises the soft limit of open files as far as the hard one allows, and the hard one where that
/// is allowed.
fn raise_descriptors(wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|soft| soft >= wanted) {
        return now.current.unwrap_or(u64::MAX);
    }
    let hard = now.maximum.unwrap_or(u64::MAX);
    let both = Rlimit { current: Some(wanted), maximum: Some(hard.max(wanted)) };
    let soft_only = Rlimit { current: Some(hard.min(wanted)), maximum: now.maximum };
    if setrlimit(Resource::Nofile, both).is_err() {
        // Then it stays as it is, and the count of runs follows it.
        let _ = setrlimit(Resource::Nofile, soft_only);
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Holds `asked` sleeping runs at a time, or as many as descriptors and rows allow.
///
/// # Errors
/// When the engine or a run cannot be started.
pub(super) fn measure(asked: usize) -> Result<Findings, Error> {
    let granted = raise_descriptors(asked as u64 * DESCRIPTORS_PER_RUN + EXTRA_DESCRIPTORS);
    let by_descriptors = (granted.saturating_sub(EXTRA_DESCRIPTORS) / DESCRIPTORS_PER_RUN) as usize;
    let runs = asked.min(CAPACITY).min(by_descriptors.max(1));
    let engine = Engine::new()?;
    let spec = || Spec::command(["sleep", "1000"]).limits(Limits::new().wall(LIMIT));
    // What is made once for all runs is not counted for them.
    let first = engine.start(spec())?;
    first.started_blocking();
    first.cancel("warm-up");
    first.settled_blocking();
    pause(20);

    let before = HeldResources::now();
    let begun = monotonic_nanoseconds();
    let mut list: Vec<Run> = Vec::with_capacity(runs);
    for _ in 0..runs {
        list.push(engine.start(spec())?);
    }
    list.iter().for_each(Run::started_blocking);
    let started = (monotonic_nanoseconds() - begun) as f64 / 1e6;
    pause(20);
    let holding = HeldResources::now();

    let begun = monotonic_nanoseconds();
    list.iter().for_each(|run| run.cancel("the bench has ended"));
    let outcomes: Vec<_> = list.iter().map(Run::settled_blocking).collect();
    let killed = (monotonic_nanoseconds() - begun) as f64 / 1e6;
    let early = outcomes.iter().filter(|outcome| outcome.ending != sandtimer::Ending::Cancelled).count();
    let unproven = outcomes.iter().filter(|outcome| outcome.tree.survivors != Some(0)).count();
    let dead = Samples::new(
        outcomes.iter().filter_map(|outcome| Some(outcome.tree.dead_after_ms? as f64)).collect(),
    );
    drop(list);

    let each = |after: u64, before: u64| after.saturating_sub(before) as f64 / runs as f64;
    let found = ManyRunsFindings {
        asked,
        runs,
        early,
        descriptors: each(holding.descriptors, before.descriptors),
        memory: each(holding.memory, before.memory),
        threads: holding.threads as f64 - before.threads as f64,
        started,
        killed,
        dead_after: dead.most(),
        unproven,
    };
    Ok(found.report())
}

/// The numbers; times in milliseconds, memory in KiB, both for one run if the name has that.
struct ManyRunsFindings {
    asked: usize,
    runs: usize,
    early: usize,
    descriptors: f64,
    memory: f64,
    threads: f64,
    started: f64,
    killed: f64,
    dead_after: Option<f64>,
    unproven: usize,
}

impl ManyRunsFindings {
    fn report(&self) -> Findings {
        let targets = [
            MeasuredTarget::with_max(
                "descriptors of the engine for each waiting run",
                Some(self.descriptors),
                12.0,
            ),
            MeasuredTarget::with_max(
                "memory of the engine for each waiting run (KiB)",
                Some(self.memory),
                64.0,
            ),
            MeasuredTarget::with_max("threads more than before", Some(self.threads), 0.0),
            MeasuredTarget::with_max("survivors, and runs without proof", Some(self.unproven as f64), 0.0),
        ];
        let mut text = format!("Waiting runs: {} times `sleep` at a time in one engine\n", self.runs);
        if self.runs < self.asked {
            text.push_str(&format!(
                "({} were asked for; open files, ulimit -Hn, or rows allow no more)\n",
                self.asked
            ));
        }
        if self.early > 0 {
            text.push_str(&format!("{} did not wait until they were killed\n", self.early));
        }
        text.push_str(&format!(
            "\n  all started after {:.0} ms, {:.2} ms each, one after the other\n  all killed and proven dead after {:.0} ms, {:.3} ms each\n",
            self.started,
            self.started / self.runs as f64,
            self.killed,
            self.killed / self.runs as f64,
        ));
        if let Some(most) = self.dead_after {
            text.push_str(&format!("  the slowest death took {most:.0} ms from its own kill to its proof\n"));
        }
        text.push_str("  memory is anonymous memory of this process; the sandboxes' own is not among it\n\n");
        targets.iter().for_each(|target| text.push_str(&target.line()));
        let json = json!({
            "bench": "many", "asked": self.asked, "runs": self.runs, "ended_early": self.early,
            "descriptors_per_run": self.descriptors, "memory_kib_per_run": self.memory, "threads_more": self.threads,
            "start_all_ms": self.started, "kill_all_ms": self.killed, "slowest_death_ms": self.dead_after,
            "without_proof_or_with_survivors": self.unproven, "targets": targets_json(&targets),
        });
        Findings { text, json }
    }
}
