//! Every sentence of a run's verdict, composed of the values of examples, for `spec/sentences.md`.

use std::sync::Arc;

use super::kept_inspection::CommandInspection;
use super::verdict_sentences::{Remains, VerdictSentences};
use crate::isolate::cgroup::Shortage;
use crate::limits::Effect;
use crate::model::{
    Ending, Layer, LimitKind, Progress, PythonFrame, RemainingState, Source, WaitingChild, WaitingFor,
};

/// The limits that end runs, with the ending that each makes, and whether the command fails at it.
const LIMITS: [(LimitKind, Ending, &[bool]); 6] = [
    (LimitKind::Wall, Ending::Timeout, &[false]),
    (LimitKind::Cpu, Ending::Timeout, &[false, true]),
    (LimitKind::Stall, Ending::Stalled, &[false]),
    (LimitKind::Memory, Ending::OutOfMemory, &[false, true]),
    (LimitKind::Processes, Ending::ProcessLimit, &[true]),
    (LimitKind::Disk, Ending::DiskLimit, &[true]),
];

/// The sources of a scope's own limit.
const OWN_SOURCES: [Source; 6] =
    [Source::Call, Source::Session, Source::Env, Source::Config, Source::Builtin, Source::Ceiling];

/// The layers around a run.
const OUTER_LAYERS: [Layer; 9] = [
    Layer::Tenant,
    Layer::Job,
    Layer::Sandbox,
    Layer::Session,
    Layer::Loop,
    Layer::Turn,
    Layer::Task,
    Layer::Call,
    Layer::Attempt,
];

const WAITING: [WaitingFor; 9] = [
    WaitingFor::Stdin,
    WaitingFor::Sleep,
    WaitingFor::Network,
    WaitingFor::Child,
    WaitingFor::Cpu,
    WaitingFor::Io,
    WaitingFor::Stopped,
    WaitingFor::Lock,
    WaitingFor::Pipe,
];

/// Returns the sentences in sections, each with its title.
pub fn sections() -> Vec<(&'static str, Vec<String>)> {
    vec![
        ("Limits of a run", own_limits()),
        ("Limits of outer scopes", outer_limits()),
        ("Memory that ran out outside of the run", outer_memory()),
        ("What a run was doing at a limit of time", activities()),
        ("Cancelled runs, and what is left of a run", remains()),
    ]
}

fn own_limits() -> Vec<String> {
    let mut sentences = Vec::new();
    for (kind, ending, failures) in LIMITS {
        for is_failure in failures {
            for source in OWN_SOURCES {
                let effect = effect(kind, source, Layer::Run);
                sentences.push(text(kind, ending, *is_failure, &effect).compose());
            }
        }
    }
    let origin = Some(Arc::from("SANDTIMER_WALL"));
    let named = Effect { origin, ..effect(LimitKind::Wall, Source::Env, Layer::Run) };
    let of_wall = text(LimitKind::Wall, Ending::Timeout, false, &named);
    sentences.push(of_wall.compose());
    sentences.push(VerdictSentences { extended_ms: Some(500), ..of_wall }.compose());
    sentences
}

fn outer_limits() -> Vec<String> {
    let mut sentences = Vec::new();
    for (kind, ending, failures) in LIMITS {
        for layer in OUTER_LAYERS {
            for is_failure in failures {
                let effect = effect(kind, Source::Ancestor, layer);
                sentences.push(text(kind, ending, *is_failure, &effect).compose());
            }
            if kind == LimitKind::Wall {
                let effect = effect(kind, Source::Ceiling, layer);
                sentences.push(text(kind, ending, false, &effect).compose());
            }
        }
    }
    sentences
}

fn outer_memory() -> Vec<String> {
    let effect = effect(LimitKind::Memory, Source::Call, Layer::Run);
    let base = text(LimitKind::Memory, Ending::OutOfMemory, true, &effect);
    let (whole, engine) = (Shortage::Sandbox(Some(1 << 30)), Shortage::Engine(Some(8 << 30)));
    let shortages = [whole, engine, Shortage::Engine(None), Shortage::Outside];
    let each =
        |own| shortages.map(|shortage| VerdictSentences { outer: Some((shortage, own)), ..base.clone() });
    [Some(&effect), None].into_iter().flat_map(each).map(|text| text.compose()).collect()
}

fn activities() -> Vec<String> {
    let effect = effect(LimitKind::Wall, Source::Call, Layer::Run);
    let base = text(LimitKind::Wall, Ending::Timeout, false, &effect);
    let idle =
        CommandInspection { at: 0, waiting_for: None, threads: Vec::new(), child: None, wait_channel: None };
    let waiting = |waiting_for| CommandInspection { waiting_for: Some(waiting_for), ..idle.clone() };
    let child = |waiting_for| CommandInspection {
        child: Some(WaitingChild { name: "sleep".to_owned(), waiting_for }),
        ..waiting(WaitingFor::Child)
    };
    let threads = vec![WaitingFor::Lock, WaitingFor::Sleep, WaitingFor::Sleep, WaitingFor::Cpu];
    let mut noted: Vec<CommandInspection> = WAITING.map(waiting).into();
    noted.extend([child(Some(WaitingFor::Sleep)), child(None)]);
    noted.push(CommandInspection { threads, ..waiting(WaitingFor::Lock) });
    noted.push(CommandInspection { wait_channel: Some("do_wait".to_owned()), ..idle });
    let of_noted = |noted| VerdictSentences { noted: Some(noted), ..base.clone() }.compose();
    let mut sentences: Vec<String> = noted.into_iter().map(of_noted).collect();
    let (function, file) = ("main".to_owned(), "/app/train.py".to_owned());
    let frame = PythonFrame { function, file, line: Some(7) };
    let progress =
        Progress { done: 8.0, total: Some(15.0), eta_ms: Some(125_000), p_finish_before_deadline: None };
    sentences.extend([
        VerdictSentences { last_output_age_ms: None, ..base.clone() }.compose(),
        VerdictSentences { frame: Some(&frame), ..base.clone() }.compose(),
        VerdictSentences { progress: Some(progress), ..base }.compose(),
    ]);
    sentences
}

fn remains() -> Vec<String> {
    let effect = effect(LimitKind::Wall, Source::Call, Layer::Run);
    let base = text(LimitKind::Wall, Ending::Cancelled, false, &effect);
    let base = VerdictSentences { cancelled: Some("sandtimer received SIGTERM"), ..base };
    let left = |killed, is_dead, continues, state| Remains { killed, is_dead, continues, state };
    let mut all = Vec::new();
    for killed in [0, 1, 3] {
        all.extend([left(killed, true, false, None), left(killed, false, false, None)]);
    }
    all.push(left(0, false, true, Some(RemainingState::Kept)));
    all.extend(
        [RemainingState::Kept, RemainingState::RolledBack, RemainingState::Reset]
            .map(|state| left(1, true, false, Some(state))),
    );
    all.into_iter().map(|remains| VerdictSentences { remains, ..base.clone() }.compose()).collect()
}

fn effect(kind: LimitKind, source: Source, layer: Layer) -> Effect {
    let value = match kind {
        LimitKind::Memory | LimitKind::Disk => 512 << 20,
        LimitKind::Processes => 64,
        _ => 2_000_000_000,
    };
    let scope = match layer {
        Layer::Run => "run-1".to_owned(),
        outer => format!("{}-1", super::verdict_sentences::layer_name(outer)),
    };
    Effect { value, source, origin: None, layer, scope }
}

fn text(kind: LimitKind, ending: Ending, is_failure: bool, effect: &Effect) -> VerdictSentences<'_> {
    VerdictSentences {
        ending,
        cancelled: None,
        is_failure,
        kind: Some(kind),
        effect: Some(effect),
        extended_ms: None,
        outer: None,
        elapsed_ms: 2_000,
        cpu_ms: 350,
        memory_peak_bytes: 510 << 20,
        last_output_age_ms: Some(1_250),
        noted: None,
        frame: None,
        progress: None,
        remains: Remains { killed: 1, is_dead: true, continues: false, state: None },
    }
}
