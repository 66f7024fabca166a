//! Probes by doing: tiny commands in real sandboxes, and limits that have to bite.
//!
//! Every run here has a wall limit, so the doctor ends whatever the machine does.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{Timespec, poll};
use sandtimer::engine::Stream;
use sandtimer::limits::Limits;
use sandtimer::model::Proof;
use sandtimer::{Ending, Engine, Error, Outcome, Run, Spec};
use sandtimer_os::clock::monotonic_nanoseconds;

use super::engine::RemedyContext;
use super::inside;
use super::report::{DoctorReport, LayerFinding};

/// No probe takes longer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
const COLD_STARTS: usize = 10;

fn shell(script: &str) -> Spec {
    Spec::command(["/bin/sh", "-c", script]).limits(Limits::new().wall(PROBE_TIMEOUT))
}

/// The finding for a layer that could not be probed.
fn failed(layer: &str, error: &Error) -> LayerFinding {
    LayerFinding::missing(layer, error.to_string())
        .consequence("this could not be tried")
        .remedy("make the step that is named here work")
}

pub(super) fn examine(engine: &Engine, context: &RemedyContext<'_>, report: &mut DoctorReport) {
    match engine
        .run_blocking(shell(inside::SCRIPT).limits(Limits::new().wall(PROBE_TIMEOUT).cpu(PROBE_TIMEOUT)))
    {
        Ok(outcome) if outcome.ending == Ending::InfraError => report.layers.push(unbuilt(&outcome)),
        Ok(outcome) => {
            report.tier = Some(outcome.isolation.tier);
            report.kill = Some(outcome.isolation.kill);
            report.deadline_layers.clone_from(&outcome.isolation.deadline_layers);
            inside::examine(&outcome, context, &mut report.layers);
        }
        Err(error) => report.layers.push(failed("a first run", &error)),
    }
    for probe in [memory, processes, freeze, ownership] {
        report.layers.push(probe(engine));
    }
    ending(engine, report);
    cold_start(engine, report);
}

/// A host that grants every layer by itself, and still builds no run.
fn unbuilt(outcome: &Outcome) -> LayerFinding {
    let message = outcome.error.as_ref().and_then(|error| error["message"].as_str()).unwrap_or_default();
    let remedy = match message.contains("change root") {
        true => {
            "the root directory must be a mount that pivot_root(2) can leave: leave an initramfs by switch_root(8); before \
             a chroot, bind-mount its directory onto itself"
        }
        false => "make the step that is named here work, then run `sandtimer doctor` again",
    };
    LayerFinding::missing("a first run", message)
        .consequence("nothing can be run, whatever the layers below say")
        .remedy(remedy)
}

fn memory(engine: &Engine) -> LayerFinding {
    const LIMIT: u64 = 32 << 20;
    let name = "memory limit";
    // Doubling a string: 32 MiB are reached after 25 rounds, and nothing but a shell is needed.
    let spec = shell("x=0123456789abcdef; while :; do x=$x$x; done")
        .limits(Limits::new().wall(PROBE_TIMEOUT).memory(LIMIT));
    let outcome = match engine.run_blocking(spec) {
        Ok(outcome) => outcome,
        Err(error) => return failed(name, &error),
    };
    let peak = outcome.usage.memory_peak_bytes;
    let evidence = format!(
        "a run with 32 MiB that wanted more: {}, peak {:.1} MiB",
        ending_name(outcome.ending),
        peak as f64 / 1_048_576.0
    );
    match outcome.ending {
        Ending::OutOfMemory => LayerFinding::ok(name, evidence),
        _ if peak <= LIMIT + (LIMIT / 4) && !outcome.ok => LayerFinding::degraded(name, evidence)
            .consequence("the limit held, by refusing memory to each process; the ending does not name it")
            .remedy("see `cgroup limits`"),
        _ => LayerFinding::missing(name, evidence)
            .consequence("a run can take all memory of the machine")
            .remedy("see `cgroup limits`"),
    }
}

fn processes(engine: &Engine) -> LayerFinding {
    const LIMIT: u64 = 8;
    let name = "process limit";
    let script = "for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 5 & done; wait";
    let limits = Limits::new().wall(Duration::from_millis(500)).processes(LIMIT);
    let outcome = match engine.run_blocking(shell(script).limits(limits)) {
        Ok(outcome) => outcome,
        Err(error) => return failed(name, &error),
    };
    let peak = outcome.usage.processes_peak;
    let evidence = format!(
        "a run with 8 that wanted 17: {}{}, at most {peak} at once",
        ending_name(outcome.ending),
        error_suffix(&outcome)
    );
    if outcome.ending == Ending::ProcessLimit && peak <= LIMIT {
        return LayerFinding::ok(name, evidence);
    }
    if peak <= LIMIT && outcome.stderr.to_lowercase().contains("fork") {
        return LayerFinding::degraded(name, evidence)
            .consequence("the limit held, by RLIMIT_NPROC; the ending does not name it")
            .remedy("see `cgroup limits`");
    }
    LayerFinding::missing(name, evidence)
        .consequence("a fork bomb can take every process number of the machine")
        .remedy("see `cgroup limits`")
}

/// A bounded pause.
fn pause(milliseconds: i64) {
    let time = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
    // Ends early only on a signal, which ends the doctor as well.
    let _ = poll(&mut [], Some(&time));
}

fn output_length(run: &Run, from: u64) -> u64 {
    let mut cursor = from;
    while let Ok(chunk) = run.output(Stream::Stdout, cursor, 1 << 20) {
        if chunk.next_cursor == cursor {
            break;
        }
        cursor = chunk.next_cursor;
    }
    cursor
}

fn freeze(engine: &Engine) -> LayerFinding {
    let name = "freezing";
    let run = match engine
        .start(shell("n=0; while :; do n=$((n+1)); echo $n; done").limits(Limits::new().wall(PROBE_TIMEOUT)))
    {
        Ok(run) => run,
        Err(error) => return failed(name, &error),
    };
    run.started_blocking();
    pause(20);
    let paused = run.pause();
    // The collector reads what is still in the pipe during this.
    pause(40);
    let before = output_length(&run, 0);
    pause(50);
    let frozen = output_length(&run, before) - before;
    let resumed = run.resume();
    pause(50);
    let after = output_length(&run, before) - before;
    run.cancel("the doctor has seen enough");
    run.settled_blocking();
    if let Err(error) = paused.and(resumed) {
        return failed(name, &error);
    }
    let evidence =
        format!("a writing run wrote {frozen} bytes while paused and {after} after it was resumed");
    if before > 0 && frozen == 0 && after > 0 {
        return LayerFinding::ok(name, evidence);
    }
    LayerFinding::degraded(name, evidence)
        .consequence("`pause` stops the clocks of a run but not reliably its processes")
        .remedy("see `cgroup.kill`: the v2 hierarchy has the freezer as well")
}

/// A directory that goes when it is dropped.
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn make() -> std::io::Result<Self> {
        let name = format!("sandtimer-doctor-{}-{}", std::process::id(), monotonic_nanoseconds());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)?;
        Ok(TemporaryDirectory(path))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // What cannot be removed lies in the temporary directory, which is emptied by others.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ownership(engine: &Engine) -> LayerFinding {
    let name = "workspace ownership";
    let directory = match TemporaryDirectory::make() {
        Ok(directory) => directory,
        Err(error) => {
            return failed(
                name,
                &Error::System { doing: "cannot make a temporary directory", source: error },
            );
        }
    };
    let spec = shell("echo written > file && stat -c %u file")
        .workspace(&directory.0)
        .working_directory(&directory.0);
    let outcome = match engine.run_blocking(spec) {
        Ok(outcome) => outcome,
        Err(error) => return failed(name, &error),
    };
    let consequence = "files that a run writes to a --workspace get another owner, or cannot be written";
    let remedy = "use a file system with idmapped mounts (ext4, xfs, btrfs, tmpfs), or run without root";
    let file_owner = match fs::metadata(directory.0.join("file")) {
        Ok(metadata) => metadata.uid(),
        Err(error) => {
            let evidence = format!(
                "the file was not written: {error}; {}{}",
                ending_name(outcome.ending),
                error_suffix(&outcome)
            );
            return LayerFinding::missing(name, evidence).consequence(consequence).remedy(remedy);
        }
    };
    let own = rustix::process::getuid().as_raw();
    let inside = outcome.stdout.trim();
    let evidence = format!(
        "in {}: uid {inside} inside, uid {file_owner} outside, the directory's is {own}",
        std::env::temp_dir().display()
    );
    if file_owner == own {
        return LayerFinding::ok(name, evidence);
    }
    LayerFinding::degraded(name, evidence).consequence(consequence).remedy(remedy)
}

/// The error of the run, or of Sandtimer about it.
fn error_suffix(outcome: &Outcome) -> String {
    let error = outcome.error.as_ref().map(|error| format!(", {error}")).unwrap_or_default();
    let text = outcome.stderr.trim();
    if text.is_empty() { error } else { format!("{error}, {text}") }
}

/// An ending as it is written on the wires.
fn ending_name(ending: Ending) -> String {
    serde_json::to_value(ending).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Ends a tree that does not want to, by its wall limit.
fn ending(engine: &Engine, report: &mut DoctorReport) {
    let name = "ending";
    let script = "trap '' TERM INT HUP; (trap '' TERM INT HUP; while :; do :; done) & (setsid sleep 60 &) ; while :; do :; done";
    let outcome: Arc<Outcome> =
        match engine.start(shell(script).limits(Limits::new().wall(Duration::from_millis(60)))) {
            Ok(run) => run.settled_blocking(),
            Err(error) => return report.layers.push(failed(name, &error)),
        };
    let late = outcome.verdict.as_ref().map(|verdict| verdict.late_ms);
    report.measured.verdict_late_ms = late;
    report.measured.dead_after_ms = outcome.tree.dead_after_ms;
    let proof =
        serde_json::to_value(outcome.tree.proof).ok().and_then(|value| value.as_str().map(str::to_owned));
    let evidence = format!(
        "processes that ignore SIGTERM, and a daemon: {}{}, {} killed, survivors {}, proof: {}",
        ending_name(outcome.ending),
        error_suffix(&outcome),
        outcome.tree.killed,
        outcome.tree.survivors.map_or_else(|| "unknown".to_owned(), |count| count.to_string()),
        proof.unwrap_or_default(),
    );
    let proven = outcome.tree.survivors == Some(0)
        && !matches!(outcome.tree.proof, Proof::Pending | Proof::Unkillable);
    report.layers.push(if outcome.ending == Ending::Timeout && proven {
        LayerFinding::ok(name, evidence)
    } else {
        LayerFinding::missing(name, evidence)
            .consequence("a run could outlive its limit")
            .remedy("do not run untrusted code here; see the layers above for what is missing")
    });
}

fn cold_start(engine: &Engine, report: &mut DoctorReport) {
    let mut times: Vec<f64> = Vec::with_capacity(COLD_STARTS);
    for _ in 0..COLD_STARTS {
        let begun = monotonic_nanoseconds();
        let spec = Spec::command(["/bin/true"]).limits(Limits::new().wall(PROBE_TIMEOUT));
        if engine.run_blocking(spec).is_ok_and(|outcome| outcome.ok) {
            times.push((monotonic_nanoseconds() - begun) as f64 / 1e6);
        }
    }
    times.sort_by(f64::total_cmp);
    report.measured.cold_start_runs = times.len() as u64;
    report.measured.cold_start_p50_ms = times.get(times.len() / 2).copied();
    report.measured.cold_start_min_ms = times.first().copied();
    report.measured.cold_start_max_ms = times.last().copied();
}
