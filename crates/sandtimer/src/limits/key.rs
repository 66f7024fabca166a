//! The names and units of limits on wires. Inside, time is nanoseconds; only the wire counts
//! milliseconds.

use crate::model::LimitKind;

/// A key of [`Limits`](super::Limits): a limit, or the grace period after the wall-clock limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// A limit of this kind.
    Kind(LimitKind),
    /// Time between the wall-clock limit and the kill; not a limit itself.
    Grace,
}

impl From<LimitKind> for Key {
    fn from(kind: LimitKind) -> Self {
        Key::Kind(kind)
    }
}

/// How a bare number is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Flags and Python: `2` is two seconds.
    Seconds,
    /// Keys that end in `_ms`: `2000` is two seconds.
    Milliseconds,
    /// Sizes: `2` is two bytes.
    Bytes,
    /// Processes, files, turns, failures.
    Count,
}

impl Key {
    pub(super) const COUNT: usize = 13;

    /// Every key, in the order in which they are listed to people.
    pub const ALL: [Key; Key::COUNT] = [
        Key::Kind(LimitKind::Wall),
        Key::Grace,
        Key::Kind(LimitKind::Cpu),
        Key::Kind(LimitKind::Stall),
        Key::Kind(LimitKind::Idle),
        Key::Kind(LimitKind::Memory),
        Key::Kind(LimitKind::Processes),
        Key::Kind(LimitKind::Output),
        Key::Kind(LimitKind::Disk),
        Key::Kind(LimitKind::OpenFiles),
        Key::Kind(LimitKind::Result),
        Key::Kind(LimitKind::Turns),
        Key::Kind(LimitKind::Failures),
    ];

    /// Its place in [`Key::ALL`].
    pub(super) fn index(self) -> usize {
        match self {
            Key::Kind(LimitKind::Wall) => 0,
            Key::Grace => 1,
            Key::Kind(LimitKind::Cpu) => 2,
            Key::Kind(LimitKind::Stall) => 3,
            Key::Kind(LimitKind::Idle) => 4,
            Key::Kind(LimitKind::Memory) => 5,
            Key::Kind(LimitKind::Processes) => 6,
            Key::Kind(LimitKind::Output) => 7,
            Key::Kind(LimitKind::Disk) => 8,
            Key::Kind(LimitKind::OpenFiles) => 9,
            Key::Kind(LimitKind::Result) => 10,
            Key::Kind(LimitKind::Turns) => 11,
            Key::Kind(LimitKind::Failures) => 12,
        }
    }

    /// Its name in JSON and in configuration files.
    pub fn wire(self) -> &'static str {
        match self {
            Key::Kind(LimitKind::Wall) => "wall_ms",
            Key::Grace => "grace_ms",
            Key::Kind(LimitKind::Cpu) => "cpu_ms",
            Key::Kind(LimitKind::Stall) => "stall_ms",
            Key::Kind(LimitKind::Idle) => "idle_ms",
            Key::Kind(LimitKind::Memory) => "memory_bytes",
            Key::Kind(LimitKind::Processes) => "processes",
            Key::Kind(LimitKind::Output) => "output_bytes",
            Key::Kind(LimitKind::Disk) => "disk_bytes",
            Key::Kind(LimitKind::OpenFiles) => "open_files",
            Key::Kind(LimitKind::Result) => "result_bytes",
            Key::Kind(LimitKind::Turns) => "turns",
            Key::Kind(LimitKind::Failures) => "failures",
        }
    }

    /// The key with this name on wires.
    ///
    /// ```
    /// use sandtimer::limits::{Key, Unit};
    /// use sandtimer::model::LimitKind;
    ///
    /// let key = Key::from_wire("memory_bytes").unwrap();
    /// assert_eq!((key, key.unit()), (Key::Kind(LimitKind::Memory), Unit::Bytes));
    /// assert_eq!(Key::from_wire("memory"), None);
    /// ```
    pub fn from_wire(name: &str) -> Option<Self> {
        Key::ALL.into_iter().find(|key| key.wire() == name)
    }

    /// The unit of its wire name.
    pub fn unit(self) -> Unit {
        match self {
            Key::Grace => Unit::Milliseconds,
            Key::Kind(kind) => match kind {
                LimitKind::Wall | LimitKind::Cpu | LimitKind::Stall | LimitKind::Idle => Unit::Milliseconds,
                LimitKind::Memory | LimitKind::Output | LimitKind::Disk | LimitKind::Result => Unit::Bytes,
                LimitKind::Turns | LimitKind::Failures | LimitKind::Processes | LimitKind::OpenFiles => {
                    Unit::Count
                }
            },
        }
    }

    /// The smallest limit under which any command can be started: executing one takes some pages of
    /// memory, and building its sandbox some descriptors, more with each workspace.
    pub(crate) fn least(self) -> u64 {
        match self {
            Key::Kind(LimitKind::Memory) => 1 << 20,
            Key::Kind(LimitKind::OpenFiles) => 32,
            _ => 0,
        }
    }

    /// A value of this key as its wire counts it. Part of a millisecond counts as a whole one, so
    /// that a short limit is never written as the 0 that means unlimited.
    pub(super) fn to_wire(self, value: u64) -> u64 {
        match self.unit() {
            Unit::Milliseconds => value.div_ceil(1_000_000),
            Unit::Seconds | Unit::Bytes | Unit::Count => value,
        }
    }
}
