//! Cuts output into lines as a terminal would show them: without control sequences, each redrawn frame by itself.
//!
//! The bytes are the job's. So a line is kept up to [`LONGEST`] bytes whatever its length, a control sequence is dropped
//! however long it is, and nothing is decoded.

/// Bytes of a line that are kept: progress stands near its beginning.
const LONGEST: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Text,
    /// Behind ESC.
    Escape,
    /// In a control sequence (`ESC [`), which a letter ends.
    Sequence,
    /// In a string (`ESC ]` and the like), which BEL or `ESC \` ends.
    Words,
    /// In such a string, behind ESC.
    WordsEscape,
}

/// What is known of the line that is being written.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    state: State,
    line: Vec<u8>,
}

impl Default for Lines {
    fn default() -> Self {
        Lines { state: State::Text, line: Vec::new() }
    }
}

impl Lines {
    /// Takes more bytes; gives each line that they end. A bar is redrawn behind `\r`, or moved to by a control sequence: its
    /// frames are lines too.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for &byte in bytes {
            match self.state {
                State::Text => self.text(byte, &mut each),
                State::Escape => {
                    self.state = match byte {
                        b'[' => State::Sequence,
                        b']' | b'P' | b'X' | b'^' | b'_' => State::Words,
                        0x1b => State::Escape,
                        _ => State::Text,
                    }
                }
                State::Sequence if (0x40..=0x7e).contains(&byte) => {
                    self.state = State::Text;
                    // Cursor moves and erasures begin a new frame.
                    if matches!(byte, b'A'..=b'H' | b'J' | b'K' | b'f') {
                        self.end(&mut each);
                    }
                }
                State::Sequence if byte == 0x1b => self.state = State::Escape,
                State::Sequence => {}
                State::Words => match byte {
                    0x07 => self.state = State::Text,
                    0x1b => self.state = State::WordsEscape,
                    _ => {}
                },
                State::WordsEscape => {
                    self.state = match byte {
                        b'\\' => State::Text,
                        0x1b => State::WordsEscape,
                        _ => State::Words,
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
        self.state = State::Text;
    }

    fn text(&mut self, byte: u8, each: &mut impl FnMut(&[u8])) {
        match byte {
            b'\n' | b'\r' => self.end(each),
            0x1b => self.state = State::Escape,
            0x08 => drop(self.line.pop()),
            b'\t' | 0x20.. if self.line.len() < LONGEST => self.line.push(byte),
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
