//! The sentences of verdicts, composed from plain facts. `spec/sentences.md` has each of them with
//! the values of examples.

use super::kept_inspection::CommandInspection;
use super::run_inspection::differing;
use crate::isolate::cgroup::Shortage;
use crate::limits::Effect;
use crate::model::{
    Ending, Layer, LimitKind, Progress, PythonFrame, RemainingState, Source, WaitingFor, time,
};

/// What the sentences of a verdict are made of.
#[derive(Debug, Clone)]
pub(super) struct VerdictSentences<'a> {
    pub ending: Ending,
    /// The reason of a cancel.
    pub cancelled: Option<&'a str>,
    /// The command failed at the limit; otherwise Sandtimer ended it.
    pub is_failure: bool,
    pub kind: Option<LimitKind>,
    pub effect: Option<&'a Effect>,
    pub extended_ms: Option<u64>,
    /// Where memory had run out outside of the run, and the run's own limit of it.
    pub outer: Option<(Shortage, Option<&'a Effect>)>,
    pub elapsed_ms: u64,
    pub cpu_ms: u64,
    pub memory_peak_bytes: u64,
    pub last_output_age_ms: Option<u64>,
    /// What the command was doing shortly before.
    pub noted: Option<CommandInspection>,
    /// The innermost frame of its own Python code.
    pub frame: Option<&'a PythonFrame>,
    pub progress: Option<Progress>,
    pub remains: Remains,
}

/// What is left of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remains {
    pub killed: u64,
    /// The death of all its processes is proven.
    pub is_dead: bool,
    /// Its processes belong to a context, and continue.
    pub continues: bool,
    pub state: Option<RemainingState>,
}

impl VerdictSentences<'_> {
    /// Returns the sentences: what ended the run, what it was doing, and what is left of it.
    pub fn compose(&self) -> String {
        let remains = self.remains.describe();
        match self.cancelled {
            Some(reason) => format!("Cancelled after {}: {reason}. {remains}", time(self.elapsed_ms)),
            None => format!("{}{} {remains}", self.limit(), self.last_moments()),
        }
    }

    /// `Stopped by the run's wall limit of 2 s (set by the call).`
    fn limit(&self) -> String {
        if let Some((shortage, own)) = self.outer {
            return outer_memory(shortage, own);
        }
        let name = self.kind.map_or("", limit_name);
        let owner = self.effect.map_or("run", |effect| layer_name(effect.layer));
        let verb = if self.is_failure { "Failed at" } else { "Stopped by" };
        let extended = self.extended_ms.map_or_else(String::new, |by| format!(", extended by {}", time(by)));
        let (limit, source) = match (self.effect, self.kind) {
            (Some(effect), Some(kind)) => {
                (format!(" of {}", amount(kind, effect.value)), format!(" ({}{extended})", origin(effect)))
            }
            _ => Default::default(),
        };
        format!("{verb} the {owner}'s {name} limit{limit}{source}.")
    }

    /// What the run had used, and what it was doing.
    fn last_moments(&self) -> String {
        match self.ending {
            Ending::Timeout | Ending::Stalled => {
                let cpu = time(self.cpu_ms);
                let output = match self.last_output_age_ms {
                    None => "it never wrote output".to_owned(),
                    Some(age) => format!("its last output was {} earlier", time(age)),
                };
                let waiting = self.noted.as_ref().map_or(String::new(), activity);
                let python_location =
                    self.frame.map_or(String::new(), |frame| format!("; Python was in {frame}"));
                let progress = self.progress.as_ref().map_or(String::new(), how_far);
                format!(" It had used {cpu} of CPU; {output}{waiting}{python_location}{progress}.")
            }
            Ending::OutOfMemory => format!(" At its peak it used {}.", bytes(self.memory_peak_bytes)),
            _ => String::new(),
        }
    }
}

impl Remains {
    fn describe(self) -> String {
        let killed = match self.killed {
            0 => String::new(),
            1 => "1 process was killed; ".to_owned(),
            count => format!("{count} processes were killed; "),
        };
        let dead = match (self.is_dead, killed.is_empty()) {
            (false, _) if self.continues => "What it started continues in the context.".to_owned(),
            (true, true) => "Nothing of it is left alive.".to_owned(),
            (true, false) => format!("{killed}nothing of it is left alive."),
            (false, true) => "Its death is not confirmed yet.".to_owned(),
            (false, false) => format!("{killed}its death is not confirmed yet."),
        };
        let state = match self.state {
            Some(RemainingState::Kept) => " All of the context's state is kept.",
            Some(RemainingState::RolledBack) => " The context has its state from before the run.",
            Some(RemainingState::Reset) => " The context was reset, and its state is lost.",
            Some(RemainingState::Lost | RemainingState::None) | None => "",
        };
        dead + state
    }
}

/// Memory had run out outside of the run.
fn outer_memory(shortage: Shortage, own: Option<&Effect>) -> String {
    let reached = |of: &str, limit: Option<u64>| {
        let limit = limit.map_or_else(String::new, |limit| format!(" of {}", bytes(limit)));
        format!("all runs of its {of} together had reached their memory limit{limit}")
    };
    let outer = match shortage {
        Shortage::Sandbox(limit) => reached("sandbox", limit),
        Shortage::Engine(limit) => reached("engine", limit),
        Shortage::Own | Shortage::Outside => {
            "memory had run out on the machine, or in a control group around the engine".to_owned()
        }
    };
    let own = match own {
        Some(effect) => {
            format!("Its own limit of {} ({}) was not reached.", bytes(effect.value), origin(effect))
        }
        None => "It had no memory limit of its own.".to_owned(),
    };
    format!("Killed by the kernel: {outer}. {own}")
}

fn was_waiting(what: WaitingFor) -> &'static str {
    match what {
        WaitingFor::Stdin => "was waiting for its stdin",
        WaitingFor::Sleep => "was sleeping",
        WaitingFor::Network => "was waiting for the network",
        WaitingFor::Child => "was waiting for a child process",
        WaitingFor::Cpu => "was computing",
        WaitingFor::Io => "was waiting for input or output",
        WaitingFor::Stopped => "was stopped",
        WaitingFor::Lock => "was waiting for a lock",
        WaitingFor::Pipe => "was waiting for the other end of a pipe",
    }
}

/// `; it was waiting for a child process (sleep, which was sleeping)`
fn activity(noted: &CommandInspection) -> String {
    let child = noted.child.as_ref().map_or(String::new(), |child| {
        let doing = child.waiting_for.map_or(String::new(), |what| format!(", which {}", was_waiting(what)));
        format!(" ({}{doing})", child.name)
    });
    match (noted.waiting_for, &noted.wait_channel) {
        (Some(what), _) => format!("; it {}{child}{}", was_waiting(what), differing(&noted.threads)),
        (None, Some(channel)) => format!("; it was waiting in the kernel's {channel}"),
        (None, None) => String::new(),
    }
}

/// `; it was at 8 of 15`
fn how_far(progress: &Progress) -> String {
    format!("; it was at {}", Progress { eta_ms: None, ..progress.clone() }.description())
}

fn origin(effect: &Effect) -> String {
    if let Some(origin) = &effect.origin {
        return format!("set by {origin}");
    }
    let description = match effect.source {
        Source::Call => "set by the call",
        Source::Session => "set by the session",
        Source::Env => "set by the environment",
        Source::Config => "set by a configuration file",
        Source::Builtin => "the built-in default",
        Source::Ceiling => "a ceiling of this machine or its operator",
        Source::Ancestor => return format!("set by the outer scope `{}`", effect.scope),
    };
    description.to_owned()
}

pub(super) fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Tenant => "tenant",
        Layer::Job => "job",
        Layer::Sandbox => "sandbox",
        Layer::Session => "session",
        Layer::Loop => "loop",
        Layer::Turn => "turn",
        Layer::Task => "task",
        Layer::Call => "call",
        Layer::Attempt => "attempt",
        Layer::Run => "run",
        Layer::Infrastructure => "infrastructure",
    }
}

fn limit_name(kind: LimitKind) -> &'static str {
    match kind {
        LimitKind::Wall => "wall",
        LimitKind::Cpu => "cpu",
        LimitKind::Stall => "stall",
        LimitKind::Idle => "idle",
        LimitKind::Turns => "turn",
        LimitKind::Failures => "failure",
        LimitKind::Memory => "memory",
        LimitKind::Processes => "process",
        LimitKind::Output => "output",
        LimitKind::Disk => "disk",
        LimitKind::OpenFiles => "open-file",
        LimitKind::Result => "result",
    }
}

/// A limit in its own unit.
fn amount(kind: LimitKind, value: u64) -> String {
    match kind {
        LimitKind::Wall | LimitKind::Cpu | LimitKind::Stall | LimitKind::Idle => time(value / 1_000_000),
        LimitKind::Memory | LimitKind::Output | LimitKind::Disk | LimitKind::Result => bytes(value),
        LimitKind::Turns | LimitKind::Failures | LimitKind::Processes | LimitKind::OpenFiles => {
            value.to_string()
        }
    }
}

/// `512 B`, `1.5 KiB`, `64 MiB`.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() < 0.05 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}
