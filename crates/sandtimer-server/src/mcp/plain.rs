//! Output as a person reads it in the end: progress that overwrote its line folded to its last state, colours and other codes for
//! terminals left out. What a run has written stays as it is in its record.

/// A line that is longer is passed on in parts.
const MAX_LINE_BYTES: usize = 64 * 1024;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const BACKSPACE: u8 = 0x08;
const DELETE: u8 = 0x7f;

/// How far a code for terminals has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Code {
    #[default]
    None,
    /// ESC.
    Begun,
    /// ESC and a byte that names a set of characters, which one more byte chooses.
    Charset,
    /// ESC [, up to a final byte; whether its last parameter is 2.
    Control { is_whole_line: bool },
    /// ESC ] and the like, up to BEL or ESC \; whether the byte before was ESC.
    Text { is_escaped: bool },
}

/// A part of folded output, and which bytes of the stream it is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Folded<'a> {
    pub bytes: &'a [u8],
    /// Where these bytes begin in the stream, and where the next part's do.
    pub start: u64,
    pub end: u64,
}

impl Folded<'_> {
    /// Whether nothing was left out.
    pub fn is_exact(&self) -> bool {
        self.end - self.start == self.bytes.len() as u64
    }
}

/// Folds output that comes in pieces, line by line.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// The current line, as far as it has been read and not passed on.
    line: Vec<u8>,
    /// Where that begins in the stream, and the next byte is expected.
    start: u64,
    next: u64,
    code: Code,
    /// The next character is the first of its line.
    has_returned: bool,
}

impl Fold {
    /// Of a stream from this position on.
    pub fn from(start: u64) -> Self {
        Fold { start, next: start, ..Fold::default() }
    }

    /// Reads the bytes of a stream that end at a position; passes on each line that is whole.
    pub fn feed(&mut self, mut bytes: &[u8], end: u64, take: &mut dyn FnMut(Folded<'_>)) {
        let mut at = end - bytes.len() as u64;
        if self.line.is_empty() && at != self.next {
            self.start = at;
        }
        self.next = end;
        while let Some(first) = bytes.first() {
            let plain = if self.is_plain() { plain_length(bytes) } else { 0 };
            let length = plain.max(1);
            at += length as u64;
            if plain > 0 {
                self.line.extend_from_slice(&bytes[..plain]);
            } else {
                self.read(*first);
            }
            if self.line.last() == Some(&b'\n') || self.line.len() > MAX_LINE_BYTES {
                take(Folded { bytes: &self.line, start: self.start, end: at });
                self.line.clear();
                self.start = at;
            }
            bytes = &bytes[length..];
        }
    }

    /// Passes on what there is of the last line, without the bytes that begin a character; how many those are.
    pub fn finish(
        &mut self,
        end: u64,
        cut: impl FnOnce(&[u8]) -> usize,
        take: &mut dyn FnMut(Folded<'_>),
    ) -> u64 {
        let cut = cut(&self.line);
        self.line.truncate(self.line.len() - cut);
        let end = end - cut as u64;
        if !self.line.is_empty() {
            take(Folded { bytes: &self.line, start: self.start, end });
        }
        self.line.clear();
        cut as u64
    }

    /// Whether the next byte is read for itself alone.
    fn is_plain(&self) -> bool {
        self.code == Code::None && !self.has_returned
    }

    fn read(&mut self, byte: u8) {
        match self.code {
            Code::None => self.read_text(byte),
            Code::Begun => {
                self.code = match byte {
                    b'[' => Code::Control { is_whole_line: false },
                    b']' | b'P' | b'X' | b'^' | b'_' => Code::Text { is_escaped: false },
                    b' ' | b'#' | b'%' | b'('..=b'/' => Code::Charset,
                    _ => Code::None,
                }
            }
            Code::Charset => self.code = Code::None,
            Code::Control { is_whole_line } => {
                match byte {
                    b'K' if is_whole_line || self.has_returned => self.line.clear(),
                    // What is no part of a code ends it.
                    b'\n' => return self.end_code(byte),
                    _ => {}
                }
                self.code = match byte {
                    0x40..=0x7e => Code::None,
                    _ => Code::Control { is_whole_line: byte == b'2' },
                };
            }
            Code::Text { is_escaped } => {
                self.code = match byte {
                    BELL => Code::None,
                    b'\\' if is_escaped => Code::None,
                    b'\n' => return self.end_code(byte),
                    _ => Code::Text { is_escaped: byte == ESCAPE },
                }
            }
        }
    }

    fn end_code(&mut self, byte: u8) {
        self.code = Code::None;
        self.read_text(byte);
    }

    fn read_text(&mut self, byte: u8) {
        match byte {
            ESCAPE => self.code = Code::Begun,
            b'\r' => self.has_returned = true,
            b'\n' => {
                self.has_returned = false;
                self.line.push(byte);
            }
            BACKSPACE => self.remove_character(),
            b'\t' => self.write(byte),
            0..0x20 | DELETE => {}
            _ => self.write(byte),
        }
    }

    fn write(&mut self, byte: u8) {
        if std::mem::take(&mut self.has_returned) {
            self.line.clear();
        }
        self.line.push(byte);
    }

    fn remove_character(&mut self) {
        while let Some(byte) = self.line.pop() {
            if byte & 0xc0 != 0x80 {
                break;
            }
        }
    }
}

/// How many bytes from the beginning are text, up to a newline and that included.
fn plain_length(bytes: &[u8]) -> usize {
    let is_code = |byte: &u8| (*byte < 0x20 && *byte != b'\t') || *byte == DELETE;
    match bytes.iter().position(is_code) {
        None => bytes.len(),
        Some(at) if bytes[at] == b'\n' => at + 1,
        Some(at) => at,
    }
}

/// A whole text folded. What is not UTF-8 is replaced.
pub(super) fn plain(text: &[u8]) -> String {
    let mut folded = Vec::with_capacity(text.len());
    let mut fold = Fold::default();
    let end = text.len() as u64;
    let mut take = |part: Folded<'_>| folded.extend_from_slice(part.bytes);
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
        let written = "first\n\r10%\r\x1b[32m100%\x1b[0m\nlast".as_bytes();
        for length in 1..written.len() {
            let (mut fold, mut parts, mut end) = (Fold::from(0), Vec::new(), 0);
            let mut take = |part: Folded<'_>| parts.push((part.bytes.to_vec(), part.start, part.end));
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
