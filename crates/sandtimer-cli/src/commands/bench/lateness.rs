//! How late the wall-clock limit's verdict is, over hostile code, compared with a canary timer at
//! the same deadlines.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sandtimer::{Ending, Engine, Error, Limits, Run, Spec};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::probe::processors;
use serde_json::json;

use super::canary::{Canary, CanaryHandle};
use super::findings::Findings;
use super::hostile::Behaviour;
use super::samples::{COLUMNS, Jitter, MeasuredTarget, Samples, targets_json};
use crate::commands::doctor::Ticks;

/// Runs at a time.
const CONCURRENCY: usize = 2;
/// A canary that is later than this was kept from the processor, in nanoseconds.
const ON_TIME: u64 = 500_000;
/// Busy loops for each processor under load.
const LOOPS: usize = 8;
/// The load ends by itself after this, whatever happens to the bench.
const LOAD_LIMIT: Duration = Duration::from_secs(1800);

/// One run and its canary. Times in milliseconds.
#[derive(Debug)]
struct LatenessSample {
    number: usize,
    behaviour: Behaviour,
    ending: Ending,
    late: Option<f64>,
    /// From the deadline to the moment at which the waiting thread continued.
    caller: Option<f64>,
    survivors: Option<u64>,
    canary: Option<u64>,
}

/// Runs `runs` hostile commands; under load when asked for.
///
/// # Errors
/// When the engine or a run cannot be started.
pub(super) fn measure(runs: usize, load: bool) -> Result<Findings, Error> {
    let engine = Engine::new()?;
    let starting = |source| Error::System { doing: "cannot start the canary", source };
    let (canary, canary_handle) = Canary::start().map_err(starting)?;
    let canary_real_time = canary.real_time;
    let background = if load { start_load(&engine)? } else { Vec::new() };
    let before = Ticks::now();
    let begun = monotonic_nanoseconds();
    let collected = run_all(&engine, runs, &canary_handle);
    drop(canary_handle);
    let seconds = (monotonic_nanoseconds() - begun) as f64 / 1e9;
    let steal = before.steal_percent(&Ticks::now());
    let noted = canary.finish();
    end_load(background);
    let mut samples = collected?;
    samples.sort_by_key(|sample| sample.number);
    for (number, late) in noted {
        if let Ok(index) = samples.binary_search_by_key(&number, |sample| sample.number) {
            samples[index].canary = late;
        }
    }
    let setting =
        Setting { load, seconds, steal, canary_real_time, real_time: engine.armed().real_time.is_ok() };
    Ok(report(&samples, &setting))
}

fn start_load(engine: &Engine) -> Result<Vec<Run>, Error> {
    let spec =
        || Spec::command(["/bin/sh", "-c", "while :; do :; done"]).limits(Limits::new().wall(LOAD_LIMIT));
    let loops: Result<Vec<Run>, Error> = (0..LOOPS * processors()).map(|_| engine.start(spec())).collect();
    let loops = loops?;
    loops.iter().for_each(Run::started_blocking);
    Ok(loops)
}

fn end_load(loops: Vec<Run>) {
    loops.iter().for_each(|run| run.cancel("the bench has ended"));
    for run in loops {
        run.settled_blocking();
    }
}

fn run_all(engine: &Engine, runs: usize, canary_handle: &CanaryHandle) -> Result<Vec<LatenessSample>, Error> {
    let behaviours = Behaviour::available();
    let next = AtomicUsize::new(0);
    let samples = Mutex::new(Vec::with_capacity(runs));
    let work = |seed: u64, canary_handle: CanaryHandle| -> Result<(), Error> {
        let mut jitter = Jitter(seed);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= runs {
                return Ok(());
            }
            let behaviour = behaviours[number % behaviours.len()];
            let wall = Duration::from_micros(jitter.between(20_000, 120_000));
            let sample = one(engine, &canary_handle, number, (behaviour, wall))?;
            // Only pushed to; whole whatever happens to the other threads.
            samples.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
        }
    };
    let results: Vec<Result<(), Error>> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..CONCURRENCY as u64)
            .map(|index| {
                let canary_handle = canary_handle.clone();
                scope.spawn(move || work(0x5EED_0001 + index, canary_handle))
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    results.into_iter().collect::<Result<(), Error>>()?;
    Ok(samples.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn one(
    engine: &Engine,
    canary_handle: &CanaryHandle,
    number: usize,
    what: (Behaviour, Duration),
) -> Result<LatenessSample, Error> {
    let (behaviour, wall) = what;
    let run = engine.start(behaviour.spec(wall))?;
    run.started_blocking();
    if let Some(deadline) = run.deadline() {
        canary_handle.wake_at(deadline, number);
    }
    let verdict_at = run.verdict_blocking();
    let noticed = monotonic_nanoseconds();
    let outcome = run.settled_blocking();
    let late = outcome.verdict.as_ref().map(|verdict| verdict.late_ms);
    let deadline = verdict_at.zip(late).map(|(at, late)| at.saturating_sub((late * 1e6) as u64));
    Ok(LatenessSample {
        number,
        behaviour,
        ending: outcome.ending,
        late,
        caller: deadline.map(|deadline| noticed.saturating_sub(deadline) as f64 / 1e6),
        survivors: outcome.tree.survivors,
        canary: None,
    })
}

struct Setting {
    load: bool,
    seconds: f64,
    steal: f64,
    canary_real_time: bool,
    real_time: bool,
}

fn targets(setting: &Setting, all: &Samples, on_time: &Samples, unproven: usize) -> Vec<MeasuredTarget> {
    let mut targets = Vec::new();
    if setting.real_time && !setting.load {
        targets.push(MeasuredTarget::with_max("late, p99, all samples (ms)", all.at(0.99), 1.0));
        targets.push(MeasuredTarget::with_max("late, p99.9, canary on time (ms)", on_time.at(0.999), 5.0));
    } else {
        targets.push(MeasuredTarget::with_max("late, p99, all samples (ms)", all.at(0.99), 50.0));
    }
    targets.push(MeasuredTarget::with_max("survivors, and runs without proof", Some(unproven as f64), 0.0));
    targets
}

fn report(samples: &[LatenessSample], setting: &Setting) -> Findings {
    let timeouts: Vec<&LatenessSample> =
        samples.iter().filter(|sample| sample.ending == Ending::Timeout).collect();
    let collect = |value: &dyn Fn(&&&LatenessSample) -> Option<f64>| {
        Samples::new(timeouts.iter().filter_map(|s| value(&s)).collect())
    };
    let punctual = |sample: &LatenessSample| sample.canary.is_some_and(|late| late <= ON_TIME);
    let all = collect(&|sample| sample.late);
    let on_time = collect(&|sample| sample.late.filter(|_| punctual(sample)));
    let caller = collect(&|sample| sample.caller);
    let canary = collect(&|sample| sample.canary.map(|late| late as f64 / 1e6));
    let excluded = timeouts.iter().filter(|sample| !punctual(sample)).count();
    let unproven = samples.iter().filter(|sample| sample.survivors != Some(0)).count();
    let other: Vec<String> = samples
        .iter()
        .filter(|sample| sample.ending != Ending::Timeout)
        .map(|sample| format!("{}: {:?}", sample.behaviour.name(), sample.ending))
        .collect();
    let targets = targets(setting, &all, &on_time, unproven);

    let mut text = format!(
        "Lateness of the wall-clock limit: {} runs, {CONCURRENCY} at a time, limits of 20 to 120 ms{}\n{} processors, {}, {:.1} s, steal {:.2} %\n\n",
        samples.len(),
        if setting.load {
            format!(", under {LOOPS} busy loops for each processor in sandboxes")
        } else {
            String::new()
        },
        processors(),
        if setting.real_time {
            "real-time enforcer"
        } else {
            "no real-time scheduling: only the 50 ms class is promised"
        },
        setting.seconds,
        setting.steal,
    );
    text.push_str(&format!("milliseconds{:<24}{COLUMNS}   samples\n", ""));
    let mut add_line = |name: &str, samples: &Samples| {
        text.push_str(&format!("  {name:<34}{}   {}\n", samples.columns(), samples.count()));
    };
    add_line("verdict late, all", &all);
    add_line("verdict late, canary on time", &on_time);
    add_line("caller resumed", &caller);
    add_line(
        if setting.canary_real_time {
            "canary late (SCHED_FIFO timer)"
        } else {
            "canary late (ordinary timer)"
        },
        &canary,
    );
    for behaviour in Behaviour::available() {
        let late = collect(&|sample| sample.late.filter(|_| sample.behaviour == behaviour));
        add_line(&format!("  {}", behaviour.name()), &late);
    }
    text.push_str(&format!(
        "\nexcluded as the canary itself was more than {} ms late or received the deadline after it: {excluded}\n",
        ON_TIME as f64 / 1e6,
    ));
    if !other.is_empty() {
        text.push_str(&format!(
            "not ended by their wall-clock limit: {}, such as {}\n",
            other.len(),
            other[0]
        ));
    }
    text.push_str("* fewer samples than this percentile needs\n\n");
    targets.iter().for_each(|target| text.push_str(&target.line()));
    let json = json!({
        "bench": "lateness", "unit": "ms", "runs": samples.len(), "concurrency": CONCURRENCY, "load": setting.load,
        "loops_per_processor": if setting.load { LOOPS } else { 0 }, "processors": processors(),
        "real_time": setting.real_time, "canary_real_time": setting.canary_real_time, "seconds": setting.seconds,
        "steal_percent": setting.steal, "late": all.json(), "late_canary_on_time": on_time.json(),
        "caller": caller.json(), "canary": canary.json(), "excluded": excluded,
        "not_ended_by_wall": other, "without_proof_or_with_survivors": unproven, "targets": targets_json(&targets),
    });
    Findings { text, json }
}
