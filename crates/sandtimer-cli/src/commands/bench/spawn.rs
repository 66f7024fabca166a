//! What an isolated run costs compared with a bare process and bubblewrap, interleaved round by
//! round.

use sandtimer::{Engine, Error};
use sandtimer_os::probe::processors;
use serde_json::{Value, json};

use super::contenders::{Contender, CpuMeter};
use super::findings::Findings;
use super::samples::{MeasuredTarget, Samples, pause, targets_json};
use super::throughput::{self, Throughput};
use crate::commands::doctor::Ticks;

/// Rounds that are run and not counted: caches, plans and slots are made in them.
const WARM_UP: usize = 3;

/// What one contender did.
#[derive(Debug)]
struct ContenderSeries {
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
    let meter = CpuMeter::new();
    let mut all_series: Vec<ContenderSeries> = Contender::ALL
        .into_iter()
        .map(|contender| ContenderSeries {
            contender,
            unavailable: contender.unavailable(),
            milliseconds: Vec::with_capacity(rounds),
            cpu_microseconds: 0,
        })
        .collect();
    let before = Ticks::now();
    for round in 0..rounds + WARM_UP {
        for position in 0..all_series.len() {
            // Each series starts a round as often as the others, so that none always follows the
            // same one.
            let index = (round + position) % all_series.len();
            take_turn(&mut all_series[index], &engine, &meter, round >= WARM_UP);
        }
    }
    let throughput = throughput::measure();
    let steal = before.steal_percent(&Ticks::now());
    Ok(report(&all_series, &throughput, meter.counts_sandboxes(), steal))
}

fn take_turn(series: &mut ContenderSeries, engine: &Engine, meter: &CpuMeter, counts: bool) {
    if series.unavailable.is_some() {
        return;
    }
    let used = meter.microseconds();
    match series.contender.run(engine) {
        Ok(nanoseconds) => {
            // Work that a contender does in the background belongs to its processor time, not to
            // its latency.
            pause(1);
            if counts {
                series.milliseconds.push(nanoseconds as f64 / 1e6);
                series.cpu_microseconds += meter.microseconds().saturating_sub(used);
            }
        }
        Err(error) => series.unavailable = Some(error.to_string()),
    }
}

impl ContenderSeries {
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

fn ratio(all_series: &[ContenderSeries], above: Contender, below: Contender) -> Option<f64> {
    let median =
        |contender| all_series.iter().find(|series| series.contender == contender)?.samples().at(0.5);
    Some(median(above)? / median(below)?)
}

fn report(
    all_series: &[ContenderSeries],
    throughput: &Result<Throughput, String>,
    counts_sandboxes: bool,
    steal: f64,
) -> Findings {
    let shares = throughput.as_ref().ok();
    let targets = [
        MeasuredTarget::with_max(
            "c/b  new sandbox / bwrap",
            ratio(all_series, Contender::Library, Contender::Bubblewrap),
            0.5,
        ),
        MeasuredTarget::with_max(
            "d/a  parked sandbox / bare process",
            ratio(all_series, Contender::Parked, Contender::Bare),
            1.5,
        ),
        MeasuredTarget::with_max(
            "e/b  sandtimer run / bwrap",
            ratio(all_series, Contender::CommandLine, Contender::Bubblewrap),
            1.0,
        ),
        MeasuredTarget::with_max(
            "f/b  sandtimer bwrap / bwrap",
            ratio(all_series, Contender::BubblewrapFrontDoor, Contender::Bubblewrap),
            1.0,
        ),
        MeasuredTarget::with_min(
            "g    pass-through / cat",
            shares.map(|found| found.through_sandtimer / found.through_cat),
            0.8,
        ),
    ];
    let mut text = format!(
        "Cost of running /bin/true to its end: {} rounds, each contender once in each, the first one rotating\n{} processors, steal {steal:.2} %\n\n",
        all_series.iter().map(|series| series.milliseconds.len()).max().unwrap_or(0),
        processors(),
    );
    text.push_str(&format!(
        "milliseconds{:<24}{:>9}{:>9}{:>9}{:>11}{:>9}\n",
        "", "p50", "p90", "p99", "CPU/run", "samples"
    ));
    all_series.iter().for_each(|series| text.push_str(&series.line()));
    text.push_str("\nCPU/run counts, from the start to 1 ms after the end:\n");
    for series in all_series.iter().filter(|series| series.unavailable.is_none()) {
        text.push_str(&format!("  {:<34}{}\n", series.contender.name(), series.contender.counted()));
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
    let all_series: Vec<Value> = all_series.iter().map(ContenderSeries::json).collect();
    let json = json!({
        "bench": "spawn", "contenders": all_series, "processors": processors(), "steal_percent": steal,
        "throughput_gib_per_s": shares.map(|found| json!({
            "sandtimer": found.through_sandtimer, "cat": found.through_cat, "rounds": throughput::ROUNDS,
        })),
        "throughput_error": throughput.as_ref().err(), "targets": targets_json(&targets),
    });
    Findings { text, json }
}
