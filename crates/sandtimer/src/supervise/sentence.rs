//! Puts the Outcome of a dead run together: its ending, its verdict, and the sentence that explains
//! them.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::displays::MAX_SHOWN_VALUES;
use super::kept_inspection::CommandInspection;
use super::output::{CollectedOutput, SharedSpool, encode};
use super::remarks::remarks;
use super::run::{CellReply, SharedRun, SlotUsage};
use super::run_facts::{Cause, RunFacts};
use super::verdict_sentences::{Remains, VerdictSentences};
use crate::isolate::cgroup::{Counters, ForkShortage, Shortage};
use crate::limits::Effect;
use crate::model::{
    Encoding, Ending, Enforcer, KillClass, Layer, LimitKind, Outcome, Proof, PythonThread, RemainingState,
    Reporter, SentSignal, Source, SpentTime, TreeReport, Usage, Verdict,
};

/// The most output an Outcome carries of each stream; the rest is read by cursor.
const OUTPUT_IN_OUTCOME: usize = 64 << 20;

const fn milliseconds(nanoseconds: u64) -> u64 {
    nanoseconds / 1_000_000
}

/// The Outcome of a run, as far as `facts` go.
pub(crate) fn outcome(run: &SharedRun, facts: &RunFacts, spools: &[Option<SharedSpool>; 2]) -> Outcome {
    let collected = [0, 1].map(|index| collect(&spools[index]));
    let status = facts.exit.map(|exit| exit.status);
    let (exit_code, signal) = status.map_or((None, None), status_parts);
    let used = run.used();
    let kernel = kernel_limit(run, facts, status, &used.counters);
    let ending = match ending(facts, kernel, status) {
        // A call must answer.
        Ending::Exited if run.job.as_ref().is_some_and(|job| !job.program) => Ending::NoResult,
        ending => ending,
    };
    let end = facts.dead_at.or(facts.killed_at).unwrap_or(facts.verdict_at);
    let finished = facts.exit.map_or(end, |exit| exit.at);
    let usage = usage(run, facts, &used, finished);
    let verdict = verdict(run, facts, kernel, &used.counters, ending, &usage);
    let reply = reply(run, facts);
    let error = reply.error.or_else(|| error(facts, explain_signal(ending, status)));
    let remarks = remarks(run, facts, &collected, spools, error.as_ref());
    let mut outcome = Outcome {
        run_id: run.id.clone(),
        ending,
        ok: ending == Ending::Returned || (ending == Ending::Exited && exit_code == Some(0)),
        exit_code,
        signal,
        stdout: String::new(),
        stderr: String::new(),
        stdout_truncated: collected[0].truncated(),
        stderr_truncated: collected[1].truncated(),
        encoding: Encoding::Utf8,
        stdout_encoding: Encoding::Utf8,
        stderr_encoding: Encoding::Utf8,
        value: reply.value,
        error,
        results: reply.results,
        execution_count: reply.execution_count,
        verdict,
        tree: tree(run, facts),
        state: facts.state.unwrap_or(RemainingState::None),
        usage,
        isolation: run.applied(facts),
        path: run.path,
        reported_by: reporter(run, facts, ending),
        notices: run.notices.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        remarks,
    };
    outcome.set_output(encode(&collected[0]), encode(&collected[1]));
    outcome
}

/// A session's command that ended without its shell has its exit code from that.
fn reporter(run: &SharedRun, facts: &RunFacts, ending: Ending) -> Reporter {
    let is_kept_shell =
        facts.state == Some(RemainingState::Kept) && run.live().is_some_and(|live| live.is_shell);
    match ending {
        Ending::Returned | Ending::Raised => Reporter::Interpreter,
        Ending::Exited if is_kept_shell => Reporter::Interpreter,
        _ => Reporter::Kernel,
    }
}

/// What a job in a live sandbox has shown, and what came with its answer, if that counts.
fn reply(run: &SharedRun, facts: &RunFacts) -> CellReply {
    let Some(live) = run.live() else { return CellReply::default() };
    let answered = facts.state == Some(RemainingState::Kept);
    let given = || live.reply.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut reply = answered.then(given).flatten().unwrap_or_default();
    let displayed = live.displays.displayed(facts.dead_at.is_some());
    let mut results = displayed.values;
    if displayed.dropped > 0 {
        let limit = run.effective.get(LimitKind::Result).map_or(0, |effect| effect.value);
        let text = format!(
            "{} more were displayed, past the result limit of {limit} bytes or {MAX_SHOWN_VALUES} values",
            displayed.dropped
        );
        results.push(serde_json::json!({"text/plain": text}));
    }
    results.append(&mut reply.results);
    CellReply { results, ..reply }
}

fn collect(spool: &Option<SharedSpool>) -> CollectedOutput {
    spool.as_ref().map_or_else(CollectedOutput::default, |spool| {
        // A spool that cannot be read back counts as wholly dropped.
        spool.lock().unwrap_or_else(PoisonError::into_inner).collect(OUTPUT_IN_OUTCOME).unwrap_or_default()
    })
}

fn error(facts: &RunFacts, signaled: Option<&str>) -> Option<serde_json::Value> {
    match (&facts.cause, facts.execute_errno) {
        (Some(Cause::Infrastructure(reason)), _) => {
            Some(serde_json::json!({"code": "infra_error", "message": reason}))
        }
        (_, Some(errno)) => {
            let error = std::io::Error::from_raw_os_error(errno);
            let remedy = if errno == Errno::TOOBIG.raw_os_error() { ALL_TOO_LONG } else { "" };
            let message = format!("the command could not be executed: {error}{remedy}");
            Some(serde_json::json!({"code": "execute_failed", "message": message}))
        }
        _ => signaled.map(|message| serde_json::json!({"code": "signaled", "message": message})),
    }
}

/// What to do where single arguments are short enough, and all of them are not.
const ALL_TOO_LONG: &str = "; all arguments and variables together are longer than the kernel takes (a quarter of the stack limit, \
     2 MiB as a rule): write them to a file and name that, pass them by standard input, or split the command, as `xargs` does";

/// Why the kernel sends a signal whose name explains little, if no limit of ours explains it.
fn explain_signal(ending: Ending, status: Option<i32>) -> Option<&'static str> {
    const XCPU: i32 = 24;
    const XFSZ: i32 = 25;
    const SYS: i32 = 31;
    match status? & 0x7f {
        _ if ending != Ending::Signaled => None,
        SYS => Some(
            "the command was ended by SIGSYS: the sandbox kills what makes 32-bit or x32 system calls, unless the command \
             has a filter of its own or sent itself this signal",
        ),
        XCPU => Some(
            "the command was ended by SIGXCPU: it passed a limit of processor time that it or the caller had set \
             (RLIMIT_CPU, ulimit -t); no cpu limit applied",
        ),
        XFSZ => Some(
            "the command was ended by SIGXFSZ: it passed a limit of file size that it or the caller had set \
             (RLIMIT_FSIZE, ulimit -f); no disk limit applied",
        ),
        _ => None,
    }
}

/// Exit code and signal name of a wait status.
fn status_parts(status: i32) -> (Option<i32>, Option<String>) {
    if status & 0x7f == 0 {
        (Some(status >> 8 & 0xff), None)
    } else {
        (None, Some(signal_name(status & 0x7f)))
    }
}

/// The number of a signal by its name, with or without `SIG`.
pub fn signal_number(name: &str) -> Option<i32> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    (1..32).find(|number| signal_name(*number)[3..] == *name)
}

/// `SIGSEGV` and the like; `SIG<n>` for one without a name.
pub fn signal_name(number: i32) -> String {
    const NAMES: [&str; 32] = [
        "", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU",
        "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match NAMES.get(number as usize) {
        Some(name) if number > 0 => format!("SIG{name}"),
        _ => format!("SIG{number}"),
    }
}

/// A limit that the kernel enforced by itself, derived from how the command ended.
fn kernel_limit(
    run: &SharedRun,
    facts: &RunFacts,
    status: Option<i32>,
    used: &Counters,
) -> Option<LimitKind> {
    if facts.cause != Some(Cause::Exit) {
        return None;
    }
    let status = status?;
    let signal = status & 0x7f;
    let cpu = run.effective.get(LimitKind::Cpu).map(|effect| effect.value / 1000);
    let spent = used
        .cpu_microseconds
        .max(facts.exit.map_or(0, |exit| exit.user_microseconds + exit.system_microseconds));
    if used.out_of_memory_kills > 0 {
        // Whatever the command made of it: a part of it was killed, and where the kernel can do so
        // all of it is.
        Some(LimitKind::Memory)
    } else if status == 0 {
        None
    } else if signal == 24 || (signal == 9 && cpu.is_some_and(|limit| spent >= limit)) {
        cpu.map(|_| LimitKind::Cpu)
    } else if signal == 25 {
        run.effective.get(LimitKind::Disk).map(|_| LimitKind::Disk)
    } else if run.slot.fork_shortage(used).is_some() {
        Some(LimitKind::Processes)
    } else {
        None
    }
}

fn ending(facts: &RunFacts, kernel: Option<LimitKind>, status: Option<i32>) -> Ending {
    match facts.cause.as_ref().map_or(Some(Ending::InfraError), ending_of) {
        Some(ending) => ending,
        None if kernel.is_some() => kernel.map_or(Ending::Exited, ending_by),
        None if status.is_some_and(|status| status & 0x7f != 0) => Ending::Signaled,
        None => Ending::Exited,
    }
}

/// The ending that a cause alone makes; `None` where it depends on how the command exited.
pub(crate) fn ending_of(cause: &Cause) -> Option<Ending> {
    match cause {
        Cause::Exit => None,
        Cause::Limit(kind) => Some(ending_by(*kind)),
        Cause::Cancel(_) => Some(Ending::Cancelled),
        Cause::Infrastructure(_) => Some(Ending::InfraError),
        Cause::Answer { raised: true } => Some(Ending::Raised),
        Cause::Answer { raised: false } => Some(Ending::Returned),
    }
}

fn ending_by(kind: LimitKind) -> Ending {
    match kind {
        LimitKind::Wall | LimitKind::Cpu => Ending::Timeout,
        LimitKind::Stall | LimitKind::Idle => Ending::Stalled,
        LimitKind::Memory => Ending::OutOfMemory,
        LimitKind::Processes => Ending::ProcessLimit,
        LimitKind::Output | LimitKind::Result => Ending::OutputLimit,
        LimitKind::Disk | LimitKind::OpenFiles => Ending::DiskLimit,
        LimitKind::Turns | LimitKind::Failures => Ending::Budget,
    }
}

fn usage(run: &SharedRun, facts: &RunFacts, used: &SlotUsage, finished: u64) -> Usage {
    let exit = facts.exit;
    let (user, system) = if run.slot.counts_cpu() {
        (used.counters.user_microseconds, used.counters.system_microseconds)
    } else {
        let whole = exit.map_or((0, 0), |exit| (exit.user_microseconds, exit.system_microseconds));
        (whole.0.max(facts.sampled_cpu_microseconds.saturating_sub(whole.1)), whole.1)
    };
    let resident = exit.map_or(0, |exit| exit.resident_peak_kib * 1024).max(facts.sampled_resident_bytes);
    Usage {
        wall_ms: facts.started_at.map_or(0, |start| milliseconds(finished.saturating_sub(start))),
        user_ms: user / 1000,
        system_ms: system / 1000,
        memory_peak_bytes: run.slot.memory_peak().unwrap_or(resident),
        processes_peak: run.slot.processes_peak().unwrap_or(facts.sampled_processes.max(1)),
        run_queue_ms: used.run_queue_microseconds.map(|microseconds| microseconds / 1000),
        queued_ms: milliseconds(run.spawned_at.saturating_sub(run.submitted_at)),
        spawn_ms: facts.started_at.map_or(0, |start| milliseconds(start.saturating_sub(run.spawned_at))),
    }
}

fn tree(run: &SharedRun, facts: &RunFacts) -> TreeReport {
    let proof = match (facts.dead_at, facts.overdue) {
        (None, Some(true)) => Proof::Unkillable,
        (None, _) => Proof::Pending,
        _ if facts.is_continuing => Proof::Pending,
        _ if facts.stands || facts.vacant => Proof::SubreaperSweep,
        (Some(_), _) => match run.isolation.kill {
            KillClass::K3 if run.slot.is_empty() => Proof::CgroupEmpty,
            KillClass::K3 | KillClass::K2 if !run.sweeps_itself => Proof::PidNamespaceRemoved,
            _ => Proof::SubreaperSweep,
        },
    };
    let dead = facts.dead_at.is_some() && !facts.is_continuing;
    let after =
        facts.dead_at.zip(facts.killed_at).map(|(dead, killed)| milliseconds(dead.saturating_sub(killed)));
    TreeReport { killed: facts.killed, survivors: dead.then_some(0), proof, dead_after_ms: after }
}

fn verdict(
    run: &SharedRun,
    facts: &RunFacts,
    kernel: Option<LimitKind>,
    counters: &Counters,
    ending: Ending,
    usage: &Usage,
) -> Option<Verdict> {
    let (kind, enforcer) = match (&facts.cause, kernel) {
        (Some(Cause::Limit(kind)), _) => (Some(*kind), facts.enforced_by.unwrap_or(Enforcer::Kernel)),
        (Some(Cause::Cancel(_)), _) => (None, Enforcer::Enforcer),
        (_, Some(kind)) => (Some(kind), Enforcer::Kernel),
        _ => return None,
    };
    let moved = || run.extended.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let extended = (kind == Some(LimitKind::Wall)).then(moved).flatten();
    let outer = run.slot.shortage(counters).filter(|shortage| *shortage != Shortage::Own);
    let outer = outer.filter(|_| kind == Some(LimitKind::Memory));
    let effect = match (&extended, outer) {
        (Some(extended), _) => Some(extended.effect.clone()),
        (None, Some(shortage)) => Some(outer_memory(run, shortage)),
        (None, None) if kind == Some(LimitKind::Processes) => process_limit(run, counters),
        (None, None) => kind.and_then(|kind| run.effective.get(kind)).map(|effect| quoted(run, kind, effect)),
    };
    let effect = effect.as_ref();
    let extended_by = extended.as_ref().map(|extended| extended.by).filter(|by| *by > 0);
    let extended_ms = extended_by.map(milliseconds);
    let start = facts.started_at.unwrap_or(run.spawned_at);
    let at = facts.verdict_at;
    let limit = QuotedLimit { kind, effect, extended_ms, outer };
    let last_output = run.last_output.load(Ordering::Relaxed);
    let in_time = matches!(kind, Some(LimitKind::Wall | LimitKind::Cpu | LimitKind::Stall | LimitKind::Idle));
    let late = if kind == Some(LimitKind::Wall) { at.saturating_sub(facts.due_at) } else { 0 };
    let noted = noted(run, facts, kind);
    let [last_cpu_age_ms, last_io_age_ms] = ages(run, facts, kind);
    let verdict = Verdict {
        kind,
        layer: effect.map_or(Layer::Run, |effect| effect.layer),
        scope: effect.map_or_else(|| run.scope.clone(), |effect| effect.scope.clone()),
        limit_ms: effect.filter(|_| in_time).map(|effect| milliseconds(effect.value)),
        extended_ms,
        limit: effect.filter(|effect| !in_time && effect.value > 0).map(|effect| effect.value),
        source: effect.map_or(Source::Call, |effect| effect.source),
        origin: effect.and_then(|effect| effect.origin.as_deref().map(str::to_owned)),
        elapsed_ms: milliseconds(at.saturating_sub(start)),
        late_ms: (late / 1000) as f64 / 1000.0,
        enforced_by: enforcer,
        signals: facts
            .signals
            .iter()
            .map(|(name, time)| SentSignal {
                signal: (*name).to_owned(),
                at_ms: milliseconds(time.saturating_sub(start)),
            })
            .collect(),
        last_output_age_ms: (last_output > 0).then(|| milliseconds(at.saturating_sub(last_output))),
        progress: run.progress(None, at),
        waiting_for: noted.as_ref().and_then(|noted| noted.waiting_for),
        child: noted.as_ref().and_then(|noted| noted.child.clone()),
        wait_channel: noted.and_then(|noted| noted.wait_channel),
        last_cpu_age_ms,
        last_io_age_ms,
        python: stacks(run, facts, kind),
        spent: SpentTime {
            queued_ms: milliseconds(run.spawned_at.saturating_sub(run.submitted_at)),
            spawn_ms: milliseconds(start.saturating_sub(run.spawned_at)),
            attempts: Vec::new(),
            paused_ms: facts.paused.as_millis() as u64,
        },
        sentence: sentence(run, facts, &limit, ending, usage, last_output),
    };
    Some(verdict)
}

/// The limit that a verdict quotes; a cancelled run has none.
struct QuotedLimit<'a> {
    kind: Option<LimitKind>,
    effect: Option<&'a Effect>,
    extended_ms: Option<u64>,
    /// Memory was short although the run's own limit was not reached.
    outer: Option<Shortage>,
}

/// The limit of processes that a run failed at: its own, or the one of all runs of its sandbox.
fn process_limit(run: &SharedRun, counters: &Counters) -> Option<Effect> {
    let of_sandbox = || run.sandbox_bound.as_ref()?.effect(LimitKind::Processes);
    let outer = match run.slot.fork_shortage(counters) {
        Some(ForkShortage::Sandbox) => of_sandbox(),
        _ => None,
    };
    outer.or_else(|| run.effective.get(LimitKind::Processes).cloned())
}

/// The limit that a run died of which had not reached its own: its sandbox's, or no scope's; 0
/// bytes where it cannot be known.
fn outer_memory(run: &SharedRun, shortage: Shortage) -> Effect {
    let of_sandbox = run.sandbox_bound.as_ref().and_then(|bound| bound.effect(LimitKind::Memory));
    let (value, scope) = match shortage {
        Shortage::Sandbox(limit) => match of_sandbox {
            Some(effect) => return effect,
            None => (limit.unwrap_or(0), "sandbox"),
        },
        Shortage::Engine(limit) => (limit.unwrap_or(0), "engine"),
        Shortage::Own | Shortage::Outside => (0, "machine"),
    };
    let scope = scope.to_owned();
    Effect { value, source: Source::Ceiling, origin: None, layer: Layer::Infrastructure, scope }
}

/// What the command was doing when the enforcer ended it, if it was inspected shortly before.
fn noted(run: &SharedRun, facts: &RunFacts, kind: Option<LimitKind>) -> Option<CommandInspection> {
    let recent = recent(run, kind)?;
    let noted = run.last_inspection.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    let by_enforcer = facts.enforced_by == Some(Enforcer::Enforcer);
    (by_enforcer && facts.verdict_at.saturating_sub(noted.at) <= recent).then_some(noted)
}

/// For how long it had used no processor time, and read and written nothing, when a limit ended it
/// that looks for that.
fn ages(run: &SharedRun, facts: &RunFacts, kind: Option<LimitKind>) -> [Option<u64>; 2] {
    match recent(run, kind).filter(|_| facts.enforced_by == Some(Enforcer::Enforcer)) {
        None => [None; 2],
        Some(recent) => {
            run.moves.lock().unwrap_or_else(PoisonError::into_inner).ages_ms(facts.verdict_at, recent)
        }
    }
}

/// Its Python stacks, if they were read as shortly before.
fn stacks(run: &SharedRun, facts: &RunFacts, kind: Option<LimitKind>) -> Vec<PythonThread> {
    let Some(recent) = recent(run, kind).filter(|_| facts.enforced_by == Some(Enforcer::Enforcer)) else {
        return Vec::new();
    };
    let noted_stacks = run.stacks.lock().unwrap_or_else(PoisonError::into_inner);
    if facts.verdict_at.saturating_sub(noted_stacks.0) <= recent {
        noted_stacks.1.clone()
    } else {
        Vec::new()
    }
}

/// How long before the end of a limit a look counts.
fn recent(run: &SharedRun, kind: Option<LimitKind>) -> Option<u64> {
    match kind {
        Some(LimitKind::Wall) => Some(1_000_000_000),
        // Whatever it waits for, it has waited for since.
        Some(LimitKind::Stall) => Some(run.effective.get(LimitKind::Stall)?.value),
        _ => None,
    }
}

/// An effect as a verdict quotes it: of a scope further out its limit, not what the run had left of
/// it.
fn quoted(run: &SharedRun, kind: Option<LimitKind>, effect: &Effect) -> Effect {
    let is_outer = kind == Some(LimitKind::Wall) && effect.source == Source::Ancestor;
    let limit = run.outer_wall.filter(|_| is_outer).unwrap_or(effect.value);
    Effect { value: limit, ..effect.clone() }
}

/// What happened, in a sentence or two for a person or a model.
fn sentence(
    run: &SharedRun,
    facts: &RunFacts,
    limit: &QuotedLimit<'_>,
    ending: Ending,
    usage: &Usage,
    last_output: u64,
) -> String {
    let QuotedLimit { kind, effect, extended_ms, outer } = *limit;
    let cancelled = match &facts.cause {
        Some(Cause::Cancel(reason)) => Some(reason.as_str()),
        _ => None,
    };
    let stacks = stacks(run, facts, kind);
    let tree = tree(run, facts);
    let text = VerdictSentences {
        ending,
        cancelled,
        is_failure: facts.cause == Some(Cause::Exit),
        kind,
        effect,
        extended_ms,
        outer: outer.map(|shortage| (shortage, run.effective.get(LimitKind::Memory))),
        elapsed_ms: usage.wall_ms,
        cpu_ms: usage.user_ms + usage.system_ms,
        memory_peak_bytes: usage.memory_peak_bytes,
        last_output_age_ms: (last_output > 0)
            .then(|| milliseconds(facts.verdict_at.saturating_sub(last_output))),
        noted: noted(run, facts, kind),
        frame: stacks.first().and_then(PythonThread::user_frame),
        progress: run.progress(None, facts.verdict_at),
        remains: Remains {
            killed: tree.killed,
            is_dead: tree.survivors.is_some(),
            continues: facts.is_continuing,
            state: facts.state,
        },
    };
    text.compose()
}
