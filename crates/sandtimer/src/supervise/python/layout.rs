//! Where the fields of an interpreter's structures are, by its version.
//!
//! From 3.13 on an interpreter contains them itself, in a table at the beginning of its runtime
//! (`_Py_DebugOffsets`); for older ones the numbers are those of the headers of the last releases,
//! of which none has changed them within a minor version.

use super::image::PythonImage;
use super::memory::Memory;

/// How a code object encodes line numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineTableKind {
    /// Until 3.9: pairs of bytes of code and lines.
    Table,
    /// 3.10: the same with ranges.
    Ranges,
    /// From 3.11 on.
    Locations,
}

/// Distances in bytes from the beginning of each structure.
#[derive(Debug, Clone, Copy)]
pub(super) struct PythonLayout {
    /// In the runtime.
    pub interpreters: u64,
    /// In an interpreter.
    pub next_interpreter: u64,
    pub threads: u64,
    /// In a thread's state. `indirect`: what is there points to something that has the frame at
    /// this distance.
    pub next_thread: u64,
    pub native_id: Option<u64>,
    pub frame: u64,
    pub indirect: Option<u64>,
    /// In a frame.
    pub code: u64,
    pub previous: u64,
    pub instruction: u64,
    pub owner: Option<u64>,
    /// In a code object.
    pub file: u64,
    pub name: u64,
    pub first_line: u64,
    pub lines: u64,
    pub instructions: u64,
    /// In a text: of ASCII, and of others.
    pub ascii: u64,
    pub compact: u64,
    pub kind: LineTableKind,
}

const PYTHON_3_9: PythonLayout = PythonLayout {
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    native_id: None,
    frame: 24,
    indirect: None,
    code: 32,
    previous: 24,
    instruction: 104,
    owner: None,
    file: 104,
    name: 112,
    first_line: 40,
    lines: 120,
    instructions: 0,
    ascii: 48,
    compact: 72,
    kind: LineTableKind::Table,
};

const PYTHON_3_11: PythonLayout = PythonLayout {
    interpreters: 40,
    threads: 16,
    native_id: Some(160),
    frame: 56,
    indirect: Some(8),
    previous: 48,
    instruction: 56,
    file: 112,
    // The qualified name.
    name: 128,
    first_line: 72,
    lines: 136,
    instructions: 184,
    kind: LineTableKind::Locations,
    ..PYTHON_3_9
};

const PYTHON_3_12: PythonLayout = PythonLayout {
    threads: 72,
    native_id: Some(144),
    indirect: Some(0),
    code: 0,
    previous: 8,
    owner: Some(70),
    first_line: 68,
    instructions: 192,
    ascii: 40,
    compact: 56,
    ..PYTHON_3_11
};

impl PythonLayout {
    pub fn of(image: PythonImage, memory: &mut Memory) -> Option<Self> {
        match image.minor {
            9 => Some(PYTHON_3_9),
            10 => Some(PythonLayout { instruction: 96, kind: LineTableKind::Ranges, ..PYTHON_3_9 }),
            11 => Some(PYTHON_3_11),
            12 => Some(PYTHON_3_12),
            13 => Self::from_debug_offsets(image.runtime, memory),
            _ => None,
        }
    }

    /// As the interpreter has it.
    fn from_debug_offsets(runtime: u64, memory: &mut Memory) -> Option<Self> {
        const VERSION: u64 = 0x030d;
        let table = memory.bytes(runtime, 568)?;
        let at =
            |distance: usize| Some(u64::from_le_bytes(table.get(distance..distance + 8)?.try_into().ok()?));
        let is_free_threaded = at(16)? != 0;
        if !table.starts_with(b"xdebugpy") || at(8)? >> 16 != VERSION || is_free_threaded {
            return None;
        }
        let ascii = at(560)?;
        Some(PythonLayout {
            interpreters: at(40)?,
            next_interpreter: at(64)?,
            threads: at(72)?,
            next_thread: at(168)?,
            native_id: Some(at(200)?),
            frame: at(184)?,
            indirect: None,
            code: at(240)?,
            previous: at(232)?,
            instruction: at(248)?,
            owner: Some(at(264)?),
            file: at(280)?,
            name: at(296)?,
            first_line: at(312)?,
            lines: at(304)?,
            instructions: at(344)?,
            ascii,
            compact: ascii.checked_add(16)?,
            kind: LineTableKind::Locations,
        })
    }
}
