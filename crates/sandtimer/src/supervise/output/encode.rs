//! How a stream of collected output is written into an Outcome: as text where it is text, else as
//! base64.
//!
//! The hard fact is that a cut at a byte limit may fall inside a character. That must not turn a
//! text stream into base64, so the pieces of a character that the cut has left are removed. Nothing
//! else ever is: a stream from which nothing was dropped is passed on to the byte.

use crate::model::Encoding;

/// What is left of a stream: its head, then its tail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CollectedOutput {
    /// The head and the tail without what was dropped between them.
    pub bytes: Vec<u8>,
    /// How many of `bytes` come before the cut; all of them where nothing was cut out between.
    pub head_len: usize,
    /// Bytes of the stream that are not in `bytes`.
    pub dropped: u64,
}

impl CollectedOutput {
    /// Whether anything of the stream is missing.
    pub fn truncated(&self) -> bool {
        self.dropped > 0
    }
}

/// A stream as a string, and how that is to be read: UTF-8 if the stream is text, else base64 of
/// every collected byte.
pub fn encode(output: &CollectedOutput) -> (String, Encoding) {
    match text(output) {
        Some(text) => (text, Encoding::Utf8),
        None => (base64(&output.bytes), Encoding::Base64),
    }
}

fn text(output: &CollectedOutput) -> Option<String> {
    if !output.truncated() {
        return std::str::from_utf8(&output.bytes).ok().map(str::to_owned);
    }
    let (head, tail) = output.bytes.split_at(output.head_len);
    let head = without_cut_end(head)?;
    let tail = without_cut_end(without_cut_start(tail))?;
    Some([head, tail].concat())
}

/// `bytes` without an unfinished character at the end; `None` if something else in it is not UTF-8.
fn without_cut_end(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok(),
        Err(_) => None,
    }
}

/// `bytes` without the last bytes of a character that began before it, of which there are at most
/// three.
fn without_cut_start(bytes: &[u8]) -> &[u8] {
    let cut = bytes.iter().take(3).take_while(|byte| *byte & 0xC0 == 0x80).count();
    &bytes[cut..]
}

/// RFC 4648 section 4, with padding.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, index| bits << 8 | u32::from(*group.get(index).unwrap_or(&0)));
        for index in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * index)) as usize & 63];
            text.push(if index <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> CollectedOutput {
        CollectedOutput { bytes: bytes.to_vec(), head_len: bytes.len(), dropped: 0 }
    }

    fn cut(head: &[u8], tail: &[u8]) -> CollectedOutput {
        CollectedOutput { bytes: [head, tail].concat(), head_len: head.len(), dropped: 100 }
    }

    #[test]
    fn base64_agrees_with_the_vectors_of_rfc_4648() {
        let vectors = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let expected = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        assert_eq!(vectors.map(|vector| base64(vector.as_bytes())), expected);
        assert_eq!(base64(&[0xFB, 0xFF, 0xBF]), "+/+/");
    }

    #[test]
    fn utf8_stays_and_other_bytes_become_base64() {
        let text = whole("häßlich 😀".as_bytes());
        assert_eq!(encode(&text), ("häßlich 😀".into(), Encoding::Utf8));
        assert_eq!(encode(&whole(b"")), (String::new(), Encoding::Utf8));
        assert_eq!(encode(&whole(&[0xFF])), ("/w==".into(), Encoding::Base64));
    }

    #[test]
    fn cut_inside_character_leaves_valid_utf8() {
        let face = "😀".as_bytes();
        for head_cut in 0..4 {
            for tail_cut in 1..=4 {
                let head = [b"ab", &face[..head_cut]].concat();
                let tail = [&face[tail_cut..], b"yz"].concat();
                let (stdout, encoding) = encode(&cut(&head, &tail));
                assert_eq!((stdout.as_str(), encoding), ("abyz", Encoding::Utf8), "{head_cut} {tail_cut}");
                let (stdout, _) = encode(&cut(b"ab", &[b"yz", &face[..head_cut]].concat()));
                assert_eq!(stdout, "abyz");
            }
        }
    }

    #[test]
    fn a_cut_excuses_nothing_but_the_cut_character() {
        let face = "😀".as_bytes();
        // Not truncated: the program itself wrote half a character.
        assert_eq!(encode(&whole(&face[..2])).1, Encoding::Base64);
        // A broken character away from the cut, and more continuation bytes than a character has.
        assert_eq!(encode(&cut(b"a\xFFb", b"c")).1, Encoding::Base64);
        assert_eq!(encode(&cut(b"a", &[0x80; 4])).1, Encoding::Base64);
        assert_eq!(encode(&cut(b"a", b"c\x80")).1, Encoding::Base64);
        // The stream's own first bytes were not cut.
        assert_eq!(encode(&cut(b"\x80a", b"c")).1, Encoding::Base64);
        // Base64 carries every collected byte, also the pieces of a cut character.
        let (stdout, _) = encode(&cut(&[0xFF, 0xF0], b""));
        assert_eq!(stdout, base64(&[0xFF, 0xF0]));
    }
}
