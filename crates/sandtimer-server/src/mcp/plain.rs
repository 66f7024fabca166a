//! Output as a person reads it in the end: progress that overwrote its line, or several lines
//! above, folded to its last state, colours and other codes for terminals left out. What a run has
//! written stays as it is in its record.

use std::collections::VecDeque;

/// Bytes of the lines that are held back; a line that is longer is passed on in parts.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Lines that later output can overwrite: more than a terminal shows of bars.
const MAX_HELD_LINES: usize = 64;

const ESCAPE: u8 = 0x1b;
const BEL: u8 = 0x07;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

/// How far a code for terminals has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    None,
    /// ESC.
    Escape,
    /// ESC and a byte that names a set of characters, which one more byte chooses.
    Charset,
    /// ESC [, up to a final byte.
    Control(Parameters),
    /// ESC ] and the like, up to BEL or ESC \; whether the byte before was ESC.
    StringSequence { is_escaped: bool },
}

/// The parameters between ESC [ and the final byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Parameters {
    /// The first number.
    number: u16,
    /// It is not of the standard's codes.
    is_private: bool,
    /// The first number has ended.
    has_more: bool,
}

/// A part of folded output, and which bytes of the stream it is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoldedPart<'a> {
    pub bytes: &'a [u8],
    /// Where these bytes begin in the stream, and where the next part's do.
    pub start: u64,
    pub end: u64,
    /// It is the stream's bytes as they are.
    pub is_exact: bool,
}

/// A line that later output may still overwrite.
#[derive(Debug, Default)]
struct FoldedLine {
    text: Vec<u8>,
    /// Where it begins in the stream.
    start: u64,
    was_rewritten: bool,
}

/// Folds output that comes in pieces. The last lines are held back: output that moves the cursor up
/// overwrites them, as bars of several tasks do.
#[derive(Debug)]
pub(super) struct Fold {
    /// The lines that are held back; all but the last have an end.
    lines: VecDeque<FoldedLine>,
    /// The one in which the cursor is.
    cursor_line: usize,
    /// Bytes of all of them.
    held: usize,
    /// The buffer of a line that was passed on, for the next one.
    reused_buffer: Vec<u8>,
    /// Where the next byte is expected.
    next: u64,
    code: EscapeState,
    /// The next character is the first of its line.
    has_returned: bool,
}

impl Default for Fold {
    fn default() -> Self {
        Fold::from(0)
    }
}

impl Fold {
    /// Of a stream from this position on.
    pub fn from(start: u64) -> Self {
        let lines = VecDeque::from([FoldedLine { start, ..FoldedLine::default() }]);
        Fold {
            lines,
            cursor_line: 0,
            held: 0,
            reused_buffer: Vec::new(),
            next: start,
            code: EscapeState::None,
            has_returned: false,
        }
    }

    /// Reads the bytes of a stream that end at a position; passes on lines that nothing overwrites
    /// any more.
    pub fn feed(&mut self, mut bytes: &[u8], end: u64, take: &mut dyn FnMut(FoldedPart<'_>)) {
        let mut at = end - bytes.len() as u64;
        if at != self.next
            && let Some(last) = self.lines.back_mut()
            && last.text.is_empty()
        {
            last.start = at;
        }
        self.next = end;
        while let Some(first) = bytes.first() {
            let plain = if self.is_plain() { plain_length(bytes) } else { 0 };
            let length = plain.max(1);
            at += length as u64;
            if plain > 0 {
                self.current().text.extend_from_slice(&bytes[..plain]);
                self.held += plain;
            } else {
                self.read(*first, at);
            }
            while self.lines.len() > MAX_HELD_LINES || (self.lines.len() > 1 && self.held > MAX_LINE_BYTES) {
                self.pass_first(take);
            }
            if self.held > MAX_LINE_BYTES {
                self.pass_all(at, take);
            }
            bytes = &bytes[length..];
        }
    }

    /// Passes on what is held back, without the bytes that begin a character; how many those are.
    pub fn finish(
        &mut self,
        end: u64,
        cut: impl FnOnce(&[u8]) -> usize,
        take: &mut dyn FnMut(FoldedPart<'_>),
    ) -> u64 {
        let line = self.current();
        let cut = cut(&line.text);
        line.text.truncate(line.text.len() - cut);
        let end = end - cut as u64;
        self.pass_all(end, take);
        cut as u64
    }

    /// Passes on the first line, which is not the last one.
    fn pass_first(&mut self, take: &mut dyn FnMut(FoldedPart<'_>)) {
        let Some(mut line) = self.lines.pop_front() else { return };
        self.held = self.held.saturating_sub(line.text.len());
        self.cursor_line = self.cursor_line.saturating_sub(1);
        line.text.push(b'\n');
        pass(&line, self.lines.front().map_or(self.next, |next| next.start), take);
        line.text.clear();
        self.reused_buffer = line.text;
    }

    /// Passes on all lines; what comes next begins at this position.
    fn pass_all(&mut self, at: u64, take: &mut dyn FnMut(FoldedPart<'_>)) {
        while self.lines.len() > 1 {
            self.pass_first(take);
        }
        if let Some(line) = self.lines.pop_front().filter(|line| !line.text.is_empty()) {
            pass(&line, at, take);
        }
        self.lines.push_back(FoldedLine { start: at, ..FoldedLine::default() });
        (self.cursor_line, self.held) = (0, 0);
    }

    /// The line in which the cursor is.
    fn current(&mut self) -> &mut FoldedLine {
        // There is always one, and the cursor in one of them.
        &mut self.lines[self.cursor_line]
    }

    fn is_last(&self) -> bool {
        self.cursor_line + 1 == self.lines.len()
    }

    /// Whether the next byte is read for itself alone.
    fn is_plain(&self) -> bool {
        self.code == EscapeState::None && !self.has_returned && self.is_last()
    }

    /// Reads one byte, after which the stream is at this position.
    fn read(&mut self, byte: u8, at: u64) {
        match self.code {
            EscapeState::None => self.read_plain_byte(byte, at),
            EscapeState::Escape => {
                self.code = match byte {
                    b'[' => EscapeState::Control(Parameters::default()),
                    b']' | b'P' | b'X' | b'^' | b'_' => EscapeState::StringSequence { is_escaped: false },
                    b' ' | b'#' | b'%' | b'('..=b'/' => EscapeState::Charset,
                    _ => EscapeState::None,
                }
            }
            EscapeState::Charset => self.code = EscapeState::None,
            EscapeState::Control(parameters) => {
                // What is not a part of a code ends it.
                if byte == b'\n' {
                    return self.end_code(byte, at);
                }
                self.code = match byte {
                    0x40..=0x7e => {
                        if !parameters.is_private {
                            self.control(byte, parameters.number);
                        }
                        EscapeState::None
                    }
                    byte => EscapeState::Control(parameters.with(byte)),
                };
            }
            EscapeState::StringSequence { is_escaped } => {
                self.code = match byte {
                    BEL => EscapeState::None,
                    b'\\' if is_escaped => EscapeState::None,
                    b'\n' => return self.end_code(byte, at),
                    _ => EscapeState::StringSequence { is_escaped: byte == ESCAPE },
                }
            }
        }
    }

    fn end_code(&mut self, byte: u8, at: u64) {
        self.code = EscapeState::None;
        self.read_plain_byte(byte, at);
    }

    /// Moves the cursor and erases, as far as that concerns whole lines.
    fn control(&mut self, code: u8, number: u16) {
        let count = usize::from(number.max(1));
        match code {
            b'A' | b'F' => self.cursor_line = self.cursor_line.saturating_sub(count),
            b'B' | b'E' => self.cursor_line = (self.cursor_line + count).min(self.lines.len() - 1),
            b'K' if number == 2 || self.has_returned => self.erase(),
            b'J' if number == 0 => {
                if self.has_returned {
                    self.erase();
                }
                self.erase_below();
            }
            _ => {}
        }
        self.has_returned |= matches!(code, b'E' | b'F') || (code == b'G' && number <= 1);
    }

    fn erase(&mut self) {
        let line = self.current();
        let erased = line.text.len();
        line.was_rewritten |= erased > 0;
        line.text.clear();
        self.held = self.held.saturating_sub(erased);
    }

    fn erase_below(&mut self) {
        let erased: usize = self.lines.drain(self.cursor_line + 1..).map(|line| line.text.len()).sum();
        self.held = self.held.saturating_sub(erased);
        // The lines that it has taken are not there to be found by length.
        self.current().was_rewritten = true;
    }

    fn read_plain_byte(&mut self, byte: u8, at: u64) {
        match byte {
            ESCAPE => self.code = EscapeState::Escape,
            b'\r' => self.has_returned = true,
            b'\n' => self.end_line(at),
            BACKSPACE => self.remove_character(),
            b'\t' => self.write(byte),
            0..0x20 | DELETE => {}
            _ => self.write(byte),
        }
    }

    fn end_line(&mut self, at: u64) {
        if self.is_last() {
            let text = std::mem::take(&mut self.reused_buffer);
            self.lines.push_back(FoldedLine { text, start: at, was_rewritten: false });
            self.has_returned = false;
        } else {
            // At the beginning of a line that is there.
            self.has_returned = true;
        }
        self.cursor_line += 1;
    }

    fn write(&mut self, byte: u8) {
        if std::mem::take(&mut self.has_returned) {
            self.erase();
        }
        let is_last = self.is_last();
        let line = self.current();
        line.was_rewritten |= !is_last;
        line.text.push(byte);
        self.held += 1;
    }

    fn remove_character(&mut self) {
        let line = self.current();
        let before = line.text.len();
        while let Some(byte) = line.text.pop() {
            if byte & 0xc0 != 0x80 {
                break;
            }
        }
        let removed = before - line.text.len();
        self.held = self.held.saturating_sub(removed);
    }
}

impl Parameters {
    /// With one more byte of them.
    fn with(self, byte: u8) -> Self {
        match byte {
            b'0'..=b'9' if !self.has_more => {
                let number = self.number.saturating_mul(10).saturating_add(u16::from(byte - b'0'));
                Parameters { number, ..self }
            }
            b';' | b':' => Parameters { has_more: true, ..self },
            b'<'..=b'?' => Parameters { is_private: true, ..self },
            _ => self,
        }
    }
}

/// Passes on a line, or a part of one, before this position.
fn pass(line: &FoldedLine, end: u64, take: &mut dyn FnMut(FoldedPart<'_>)) {
    let is_exact = !line.was_rewritten && end.checked_sub(line.start) == Some(line.text.len() as u64);
    take(FoldedPart { bytes: &line.text, start: line.start, end, is_exact });
}

/// How many bytes from the beginning are text of one line.
fn plain_length(bytes: &[u8]) -> usize {
    let is_code = |byte: &u8| (*byte < 0x20 && *byte != b'\t') || *byte == DELETE;
    bytes.iter().position(is_code).unwrap_or(bytes.len())
}

/// A whole text folded. What is not UTF-8 is replaced.
pub(super) fn plain(text: &[u8]) -> String {
    let mut folded = Vec::with_capacity(text.len());
    let mut fold = Fold::default();
    let end = text.len() as u64;
    let mut take = |part: FoldedPart<'_>| folded.extend_from_slice(part.bytes);
    fold.feed(text, end, &mut take);
    fold.finish(end, |_| 0, &mut take);
    String::from_utf8(folded).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_folded_to_its_last_state() {
        for (written, read) in [
            ("plain\ntext", "plain\ntext"),
            ("\r  0%|    |\r 50%|##  |\r100%|####|\ndone\n", "100%|####|\ndone\n"),
            ("dos\r\nlines\r\n", "dos\nlines\n"),
            ("10%\x08\x08\x0820%\n", "20%\n"),
            ("ä\x08ö\n", "ö\n"),
            ("working\r\x1b[K\n", "\n"),
            ("one\x1b[2Ktwo\n", "two\n"),
            ("left\r", "left"),
        ] {
            assert_eq!(plain(written.as_bytes()), read, "{written:?}");
        }
    }

    #[test]
    fn several_bars_are_folded_to_their_last_states() {
        for (written, read) in [
            // tqdm with position=0 and position=1.
            (
                "\ra:  0%|   |\n\rb:  0%|   |\x1b[A\ra: 50%|#  |\n\rb: 50%|#  |\x1b[A\ra:100%|###|\n\rb:100%|###|\x1b[A\n\n",
                "a:100%|###|\nb:100%|###|\n",
            ),
            // rich, and pip's bars.
            (
                "\x1b[?25la 10%\nb 20%\r\x1b[2K\x1b[1A\x1b[2Ka 90%\nb 95%\r\x1b[2K\x1b[1A\x1b[2Ka 100%\nb 100%\n\x1b[?25hdone\n",
                "a 100%\nb 100%\ndone\n",
            ),
            // docker pull.
            (
                "one: Pulling\ntwo: Pulling\n\x1b[2A\x1b[2K\rone: Done\r\x1b[2B\x1b[1A\x1b[2K\rtwo: Done\r\x1b[1Bend\n",
                "one: Done\ntwo: Done\nend\n",
            ),
            // npm, ninja and others: to the beginning, and all that follows erased.
            ("a\nb\nc\x1b[2F\x1b[Jx\ny\n", "x\ny\n"),
            ("10%\x1b[1G20%\n", "20%\n"),
            // Above the first line that is known there is nothing.
            ("a\x1b[9A\rb\n", "b\n"),
            ("\x1b[2J\x1b[1;1Hx\n", "x\n"),
        ] {
            assert_eq!(plain(written.as_bytes()), read, "{written:?}");
        }
        let lines: String = (0..200).map(|number| format!("line {number}\n")).collect();
        let folded = plain(format!("{lines}\x1b[500A\rover\n").as_bytes());
        assert_eq!(folded.lines().count(), 200, "what was passed on stays, and the window has an end");
        assert_eq!(folded.lines().next(), Some("line 0"));
        assert!(folded.contains("\nover\n"), "{folded}");
    }

    #[test]
    fn codes_for_terminals_are_left_out() {
        for (written, read) in [
            ("\x1b[1;31mred\x1b[0m and \x1b[38;5;12mblue\x1b[m\n", "red and blue\n"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1b(Bascii\x1b=\x1b>", "ascii"),
            ("bell\x07 and nul\0\n", "bell and nul\n"),
            ("broken \x1b[12\nline", "broken \nline"),
            ("open \x1b]title\nline", "open \nline"),
        ] {
            assert_eq!(plain(written.as_bytes()), read, "{written:?}");
        }
        assert_eq!(plain(b"a\xff\tb"), "a\u{fffd}\tb");
    }

    #[test]
    fn pieces_do_not_matter_and_positions_are_the_streams() {
        let written = "first\n\r10%\r\x1b[32m100%\x1b[0m\nlow\x1b[1A\r100%\x1b[1B\rlast".as_bytes();
        for length in 1..written.len() {
            let (mut fold, mut parts, mut end) = (Fold::from(0), Vec::new(), 0);
            let mut take = |part: FoldedPart<'_>| parts.push((part.bytes.to_vec(), part.start, part.end));
            for piece in written.chunks(length) {
                end += piece.len() as u64;
                fold.feed(piece, end, &mut take);
            }
            fold.finish(end, |_| 0, &mut take);
            let text: Vec<u8> = parts.iter().flat_map(|part| part.0.clone()).collect();
            assert_eq!(text, b"first\n100%\nlast", "in pieces of {length}");
            assert_eq!(parts.first().map(|part| (part.1, part.2)), Some((0, 6)));
            assert_eq!(parts.last().map(|part| part.2), Some(written.len() as u64));
            assert!(parts.windows(2).all(|two| two[0].2 == two[1].1), "{parts:?}");
        }
    }
}
