//! Cuts output into lines as a terminal would show them: without control sequences, each redrawn
//! frame by itself.
//!
//! The bytes are the job's. So a line is kept up to [`MAX_LINE_BYTES`] bytes whatever its length, a
//! control sequence is dropped however long it is, and nothing is decoded.

/// Bytes of a line that are kept: progress is near its beginning.
const MAX_LINE_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    Plain,
    /// After ESC.
    Escape,
    /// In a control sequence (`ESC [`), which a letter ends.
    Sequence,
    /// In a string (`ESC ]` and the like), which BEL or `ESC \` ends.
    ControlString,
    /// In such a string, after ESC.
    ControlStringEscape,
}

/// What is known of the line that is being written.
#[derive(Debug, Clone)]
pub(super) struct LineParser {
    state: LineState,
    line: Vec<u8>,
}

impl Default for LineParser {
    fn default() -> Self {
        LineParser { state: LineState::Plain, line: Vec::new() }
    }
}

impl LineParser {
    /// Takes more bytes; gives each line that they end. A bar is redrawn after `\r`, or after a
    /// control sequence that moves the cursor: its frames are lines too.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for &byte in bytes {
            match self.state {
                LineState::Plain => self.text(byte, &mut each),
                LineState::Escape => {
                    self.state = match byte {
                        b'[' => LineState::Sequence,
                        b']' | b'P' | b'X' | b'^' | b'_' => LineState::ControlString,
                        0x1b => LineState::Escape,
                        _ => LineState::Plain,
                    }
                }
                LineState::Sequence if (0x40..=0x7e).contains(&byte) => {
                    self.state = LineState::Plain;
                    // Cursor moves and erasures begin a new frame.
                    if matches!(byte, b'A'..=b'H' | b'J' | b'K' | b'f') {
                        self.end(&mut each);
                    }
                }
                LineState::Sequence if byte == 0x1b => self.state = LineState::Escape,
                LineState::Sequence => {}
                LineState::ControlString => match byte {
                    0x07 => self.state = LineState::Plain,
                    0x1b => self.state = LineState::ControlStringEscape,
                    _ => {}
                },
                LineState::ControlStringEscape => {
                    self.state = match byte {
                        b'\\' => LineState::Plain,
                        0x1b => LineState::ControlStringEscape,
                        _ => LineState::ControlString,
                    }
                }
            }
        }
    }

    /// Gives what was written of a line that may never be ended: progress is often shown without.
    pub(super) fn peek(&self) -> &[u8] {
        &self.line
    }

    /// Forgets the line that is being written.
    pub(super) fn skip(&mut self) {
        self.line.clear();
        self.state = LineState::Plain;
    }

    fn text(&mut self, byte: u8, each: &mut impl FnMut(&[u8])) {
        match byte {
            b'\n' | b'\r' => self.end(each),
            0x1b => self.state = LineState::Escape,
            0x08 => drop(self.line.pop()),
            b'\t' | 0x20.. if self.line.len() < MAX_LINE_BYTES => self.line.push(byte),
            _ => {}
        }
    }

    fn end(&mut self, each: &mut impl FnMut(&[u8])) {
        if !self.line.is_empty() {
            each(&self.line);
            self.line.clear();
        }
    }
}
