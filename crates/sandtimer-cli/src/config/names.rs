//! The names of the limits that can be set, and what each setting holds for.

use sandtimer::limits::{Format, Key};
use sandtimer::model::LimitKind;

/// What a setting holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uses {
    Everything,
    /// Runs, and commands in sessions.
    Commands,
    /// Code in contexts, in every language.
    Code,
    /// Code in JavaScript and TypeScript contexts, in addition to the limits for all code: the
    /// smaller one counts.
    JavaScript,
}

/// One limit's names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name {
    /// In files; as a flag with `--` and dashes.
    pub(crate) file: &'static str,
    pub(crate) variable: &'static str,
    pub(crate) key: Key,
    pub(crate) uses: Uses,
}

const fn name(file: &'static str, variable: &'static str, kind: LimitKind) -> Name {
    Name { file, variable, key: Key::Kind(kind), uses: Uses::Everything }
}

const fn shared(file: &'static str, variable: &'static str, kind: LimitKind, uses: Uses) -> Name {
    Name { file, variable, key: Key::Kind(kind), uses }
}

impl Name {
    /// As a flag of whatever can be given it.
    pub(crate) fn flag(&self) -> String {
        format!("--{}", self.file.replace('_', "-"))
    }
}

/// Every limit that can be set here, in the order in which they are listed to people.
pub(crate) const NAMES: [Name; 9] = [
    name("wall", "SANDTIMER_WALL", LimitKind::Wall),
    Name { file: "grace", variable: "SANDTIMER_GRACE", key: Key::Grace, uses: Uses::Everything },
    name("cpu", "SANDTIMER_CPU", LimitKind::Cpu),
    name("stall", "SANDTIMER_STALL", LimitKind::Stall),
    name("memory", "SANDTIMER_MEMORY", LimitKind::Memory),
    name("processes", "SANDTIMER_PROCESSES", LimitKind::Processes),
    name("output", "SANDTIMER_OUTPUT", LimitKind::Output),
    name("disk", "SANDTIMER_DISK", LimitKind::Disk),
    name("open_files", "SANDTIMER_OPEN_FILES", LimitKind::OpenFiles),
];

/// Names shared with other programs, counted in whole milliseconds and bytes; those of [`NAMES`]
/// win over them.
pub(crate) const SHARED_NAMES: [Name; 4] = [
    shared("command_timeout_ms", "COMMAND_TIMEOUT_MS", LimitKind::Wall, Uses::Commands),
    shared(
        "interpreter_execution_timeout_ms",
        "INTERPRETER_EXECUTION_TIMEOUT_MS",
        LimitKind::Wall,
        Uses::Code,
    ),
    shared("vm_execution_timeout_ms", "VM_EXECUTION_TIMEOUT_MS", LimitKind::Wall, Uses::JavaScript),
    shared("max_output_size_bytes", "MAX_OUTPUT_SIZE_BYTES", LimitKind::Output, Uses::Everything),
];

/// All names of limits, and whether they are shared; in order of precedence.
pub(super) fn names() -> impl Iterator<Item = (Name, bool)> {
    NAMES.into_iter().map(|name| (name, false)).chain(SHARED_NAMES.into_iter().map(|name| (name, true)))
}

pub(super) fn format(key: Key, shared: bool) -> Format {
    if shared { Format { whole: true, ..Format::wire(key) } } else { Format::flag(key) }
}
