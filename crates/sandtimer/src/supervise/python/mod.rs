//! The Python stack of every thread of a process that is CPython, read from outside: nothing is
//! installed, stopped or asked.
//!
//! Memory is the job's and moves while it is read: an inconsistency ends the stack there, with a
//! note. Bounds are those of `memory`, and the counts below. The kernel may keep a reader waiting
//! for as long as it is busy with the process, so stacks are read on a few threads on which nothing
//! else depends.

mod image;
mod layout;
mod lines;
mod memory;

use std::fs;

use image::PythonImage;
use layout::PythonLayout;
use memory::Memory;

use super::bounded_threads::BoundedThreads;
use super::proc_files::read_prefix;
use crate::model::{PythonFrame, PythonThread};

const MAX_INTERPRETERS: usize = 4;
const MAX_THREADS: usize = 16;
const MAX_FRAMES: usize = 32;
/// Frames without code between others.
const MAX_SKIPPED_FRAMES: usize = 256;
/// Letters of a name.
const MAX_STRING_LEN: u64 = 256;
/// Bytes of a table of lines.
const MAX_LINE_TABLE_BYTES: u64 = 64 << 10;
/// Bytes of the list of mappings.
const MAX_MAPS_BYTES: u64 = 256 << 10;
/// Readers at a time.
const MAX_READERS: usize = 4;

pub(super) static READERS: BoundedThreads = BoundedThreads::new("st-look", MAX_READERS);

/// Whether its file is called as interpreters are.
pub(super) fn is_python(pid: u32) -> bool {
    let file = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"python"))
}

/// The threads of a process that is an interpreter, the oldest first; `None` where it is none that
/// is known.
pub(super) fn threads(pid: u32, until: u64) -> Option<Vec<PythonThread>> {
    let maps = read_prefix(&format!("/proc/{pid}/maps"), MAX_MAPS_BYTES)?;
    let mut memory = Memory::of(pid, until)?;
    let image = PythonImage::find(&maps, &mut memory)?;
    let layout = PythonLayout::of(image, &mut memory)?;
    let mut walk = StackWalk { layout, memory };
    let mut threads = Vec::new();
    let mut interpreter = walk.memory.number(image.runtime.checked_add(layout.interpreters)?)?;
    for _ in 0..MAX_INTERPRETERS {
        if interpreter == 0 || walk.threads_of(interpreter, &mut threads).is_none() {
            break;
        }
        interpreter = walk.field(interpreter, layout.next_interpreter).unwrap_or(0);
    }
    threads.reverse();
    (!threads.is_empty()).then_some(threads)
}

struct StackWalk {
    layout: PythonLayout,
    memory: Memory,
}

impl StackWalk {
    fn field(&mut self, structure: u64, distance: u64) -> Option<u64> {
        self.memory.number(structure.checked_add(distance)?)
    }

    fn threads_of(&mut self, interpreter: u64, threads: &mut Vec<PythonThread>) -> Option<()> {
        let mut state = self.field(interpreter, self.layout.threads)?;
        while state != 0 && threads.len() < MAX_THREADS {
            let number = self.layout.native_id.and_then(|distance| self.field(state, distance));
            let mut thread = PythonThread {
                thread: number.and_then(|number| number.try_into().ok()),
                frames: Vec::new(),
                truncated: false,
            };
            thread.truncated = self.frames_of(state, &mut thread.frames).is_none();
            threads.push(thread);
            state = self.field(state, self.layout.next_thread)?;
        }
        Some(())
    }

    /// `None` where the stack continues, or cannot be read.
    fn frames_of(&mut self, state: u64, frames: &mut Vec<PythonFrame>) -> Option<()> {
        let mut frame = self.field(state, self.layout.frame)?;
        if let Some(distance) = self.layout.indirect {
            frame = self.field(frame, distance)?;
        }
        for _ in 0..MAX_SKIPPED_FRAMES {
            if frame == 0 {
                return Some(());
            }
            if frames.len() == MAX_FRAMES {
                return None;
            }
            if !self.is_of_c(frame)? {
                let python_frame = self.frame(frame)?;
                frames.push(python_frame);
            }
            frame = self.field(frame, self.layout.previous)?;
        }
        None
    }

    /// Whether the frame marks a call from C to Python.
    fn is_of_c(&mut self, frame: u64) -> Option<bool> {
        const OF_C: u8 = 3;
        let Some(distance) = self.layout.owner else { return Some(false) };
        Some(self.memory.byte(frame.checked_add(distance)?)? == OF_C)
    }

    fn frame(&mut self, frame: u64) -> Option<PythonFrame> {
        let code = self.field(frame, self.layout.code)?;
        let file = self.field(code, self.layout.file)?;
        let name = self.field(code, self.layout.name)?;
        let (file, function) = (self.text(file)?, self.text(name)?);
        Some(PythonFrame { function, file, line: self.line(frame, code) })
    }

    fn line(&mut self, frame: u64, code: u64) -> Option<u32> {
        let layout = self.layout;
        let first = i64::from(self.memory.half(code.checked_add(layout.first_line)?)? as i32);
        let at = frame.checked_add(layout.instruction)?;
        let offset = match layout.kind {
            layout::LineTableKind::Table => i64::from(self.memory.half(at)? as i32),
            layout::LineTableKind::Ranges => i64::from(self.memory.half(at)? as i32) * 2,
            layout::LineTableKind::Locations => {
                self.memory.number(at)?.wrapping_sub(code.checked_add(layout.instructions)?) as i64
            }
        };
        let table = self.field(code, layout.lines)?;
        let length = self.field(table, 16).filter(|length| *length <= MAX_LINE_TABLE_BYTES)?;
        let table = self.memory.bytes(table.checked_add(32)?, length as usize)?;
        lines::line(layout.kind, &table, first, offset)
    }

    /// A compact text, or its beginning.
    fn text(&mut self, address: u64) -> Option<String> {
        const LENGTH: u64 = 16;
        const STATE: u64 = 32;
        let state = self.memory.half(address.checked_add(STATE)?)?;
        let (width, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
        if !is_compact || ![1, 2, 4].contains(&width) {
            return None;
        }
        let length = self.field(address, LENGTH)?.min(MAX_STRING_LEN);
        let data = address.checked_add(if is_ascii { self.layout.ascii } else { self.layout.compact })?;
        let bytes = self.memory.bytes(data, length as usize * width as usize)?;
        let letter = |bytes: &[u8]| {
            let number = bytes.iter().rev().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
            let letter = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
            if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter }
        };
        Some(bytes.chunks_exact(width as usize).map(letter).collect())
    }
}
