//! What a sandboxed run costs beside a bare process and bubblewrap, interleaved round by round.

use sandtimer::{Engine, Error};
use sandtimer_os::probe::processors;
use serde_json::{Value, json};

use super::Findings;
use super::contenders::{Contender, Meter};
use super::samples::{Samples, Target, pause, targets_json};
use super::throughput::{self, Throughput};
use crate::commands::doctor::Ticks;

/// Rounds that are run and not counted: caches, plans and slots are made in them.
const WARM_UP: usize = 3;

/// What one contender did.
#[derive(Debug)]
struct Lane {
    contender: Contender,
    unavailable: Option<String>,
    milliseconds: Vec<f64>,
    cpu_microseconds: u64,
}

/// Starts every contender once in each of `rounds` rounds, then measures pass-through.
///
/// # Errors
/// When the engine or a contender cannot be started.
pub(super) fn measure(rounds: usize) -> Result<Findings, Error> {
    let engine = Engine::new()?;
    let meter = Meter::new();
    let mut lanes: Vec<Lane> = Contender::ALL
        .into_iter()
        .map(|contender| Lane {
            contender,
            unavailable: contender.unavailable(),
            milliseconds: Vec::with_capacity(rounds),
            cpu_microseconds: 0,
        })
        .collect();
    let before = Ticks::now();
    for round in 0..rounds + WARM_UP {
        for position in 0..lanes.len() {
            // Each starts a round as often as the others: nobody always follows the same one.
            let index = (round + position) % lanes.len();
            take_turn(&mut lanes[index], &engine, &meter, round >= WARM_UP);
        }
    }
    let throughput = throughput::measure();
    let steal = before.steal_percent(&Ticks::now());
    Ok(report(&lanes, &throughput, meter.counts_sandboxes(), steal))
}

fn take_turn(lane: &mut Lane, engine: &Engine, meter: &Meter, counts: bool) {
    if lane.unavailable.is_some() {
        return;
    }
    let used = meter.microseconds();
    match lane.contender.run(engine) {
        Ok(nanoseconds) => {
            // What goes on behind a contender's back belongs to its processor time, not to its latency.
            pause(1);
            if counts {
                lane.milliseconds.push(nanoseconds as f64 / 1e6);
                lane.cpu_microseconds += meter.microseconds().saturating_sub(used);
            }
        }
        Err(error) => lane.unavailable = Some(error.to_string()),
    }
}

impl Lane {
    fn samples(&self) -> Samples {
        Samples::new(if self.unavailable.is_some() { Vec::new() } else { self.milliseconds.clone() })
    }

    fn cpu(&self) -> Option<f64> {
        let runs = self.milliseconds.len();
        (runs > 0 && self.unavailable.is_none()).then(|| self.cpu_microseconds as f64 / 1000.0 / runs as f64)
    }

    fn line(&self) -> String {
        let name = self.contender.name();
        if let Some(reason) = &self.unavailable {
            return format!("  {name:<34}{reason}\n");
        }
        let samples = self.samples();
        let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        format!(
            "  {name:<34}{:>9}{:>9}{:>9}{:>11}{:>9}\n",
            cell(samples.at(0.5)),
            cell(samples.at(0.9)),
            cell(samples.at(0.99)),
            cell(self.cpu()),
            samples.count()
        )
    }

    fn json(&self) -> Value {
        json!({
            "contender": self.contender.key(), "latency_ms": self.samples().json(), "cpu_ms_per_run": self.cpu(),
            "cpu_counts": self.contender.counted(), "unavailable": self.unavailable,
        })
    }
}

fn ratio(lanes: &[Lane], above: Contender, below: Contender) -> Option<f64> {
    let median = |contender| lanes.iter().find(|lane| lane.contender == contender)?.samples().at(0.5);
    Some(median(above)? / median(below)?)
}

fn report(
    lanes: &[Lane],
    throughput: &Result<Throughput, String>,
    counts_sandboxes: bool,
    steal: f64,
) -> Findings {
    let shares = throughput.as_ref().ok();
    let targets = [
        Target::at_most(
            "c/b  new sandbox / bwrap",
            ratio(lanes, Contender::Library, Contender::Bubblewrap),
            0.5,
        ),
        Target::at_most(
            "d/a  parked sandbox / bare process",
            ratio(lanes, Contender::Parked, Contender::Bare),
            1.5,
        ),
        Target::at_most(
            "e/b  sandtimer run / bwrap",
            ratio(lanes, Contender::CommandLine, Contender::Bubblewrap),
            1.0,
        ),
        Target::at_most(
            "f/b  sandtimer bwrap / bwrap",
            ratio(lanes, Contender::BubblewrapFrontDoor, Contender::Bubblewrap),
            1.0,
        ),
        Target::at_least(
            "g    pass-through / cat",
            shares.map(|found| found.through_sandtimer / found.through_cat),
            0.8,
        ),
    ];
    let mut text = format!(
        "Cost of running /bin/true to its end: {} rounds, each contender once in each, the first one rotating\n{} processors, steal {steal:.2} %\n\n",
        lanes.iter().map(|lane| lane.milliseconds.len()).max().unwrap_or(0),
        processors(),
    );
    text.push_str(&format!(
        "milliseconds{:<24}{:>9}{:>9}{:>9}{:>11}{:>9}\n",
        "", "p50", "p90", "p99", "CPU/run", "samples"
    ));
    lanes.iter().for_each(|lane| text.push_str(&lane.line()));
    text.push_str("\nCPU/run counts, from the start to 1 ms after the end:\n");
    for lane in lanes.iter().filter(|lane| lane.unavailable.is_none()) {
        text.push_str(&format!("  {:<34}{}\n", lane.contender.name(), lane.contender.counted()));
    }
    if !counts_sandboxes {
        text.push_str("  without a v2 control group, what the library's sandboxes use is not among it\n");
    }
    text.push('\n');
    match throughput {
        Ok(found) => text.push_str(&format!(
            "g  pass-through of {} GiB of zeros, median of {} rounds, interleaved: sandtimer run {:.2} GiB/s, head | cat {:.2} GiB/s\n\n",
            throughput::BYTES >> 30,
            throughput::ROUNDS,
            found.through_sandtimer,
            found.through_cat,
        )),
        Err(error) => text.push_str(&format!("g  pass-through: {error}\n\n")),
    }
    text.push_str("Ratios of medians\n");
    targets.iter().for_each(|target| text.push_str(&target.line()));
    let lanes: Vec<Value> = lanes.iter().map(Lane::json).collect();
    let json = json!({
        "bench": "spawn", "contenders": lanes, "processors": processors(), "steal_percent": steal,
        "throughput_gib_per_s": shares.map(|found| json!({
            "sandtimer": found.through_sandtimer, "cat": found.through_cat, "rounds": throughput::ROUNDS,
        })),
        "throughput_error": throughput.as_ref().err(), "targets": targets_json(&targets),
    });
    Findings { text, json }
}
