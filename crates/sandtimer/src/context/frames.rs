//! The packets between the engine and a live interpreter.

use std::collections::BTreeMap;

use sandtimer_os::wire::{channel, script};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::supervise::run::Reply;

/// How deep a value may be nested. Answers and records put more around it, and who reads them takes 128 levels in all.
const DEEPEST: usize = 100;

/// Distinguishes the packets about one request from those about earlier ones.
pub(crate) type Nonce = [u8; channel::NONCE];

/// Asks for a checkpoint. `ahead`, of Python alone: behind it the interpreter has a processor for itself until the next cell comes,
/// and something to do for that.
pub(crate) fn checkpoint_request(nonce: Nonce, ahead: bool) -> Vec<u8> {
    let ahead: &[u8] = if ahead { b"A" } else { b"" };
    [b"C", &nonce[..], ahead].concat()
}

/// Asks for an image of the interpreter, over the base whose inode this is, 0 for none. The image's file comes with it, then one for
/// files. `shares`: what is in the workspace is not among those.
pub(crate) fn image_request(nonce: Nonce, base: u64, shares: bool) -> Vec<u8> {
    [b"B", &nonce[..], &base.to_le_bytes(), &[u8::from(shares)]].concat()
}

/// Comes with an image for who is to become it, and with the file that comes along.
pub(crate) const IMAGE: &[u8] = &[channel::IMAGE];

/// What became of an image.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Image {
    /// So many bytes, which need no other.
    Whole(u64),
    /// So many bytes over the base.
    Delta(u64),
    /// The file is to have so many bytes.
    TooShort(u64),
}

impl Image {
    fn parse(said: u64) -> Option<Self> {
        let length = said >> 2;
        match said & 3 {
            1 => Some(Image::Whole(length)),
            2 => Some(Image::Delta(length)),
            3 => Some(Image::TooShort(length)),
            _ => None,
        }
    }
}

/// Asks for a cell to be executed. Its stdout and stderr come with it, then its stdin if it has one, then its source if that
/// is not in the request.
pub(crate) fn cell_request(nonce: Nonce, source: Option<&str>, stdin: bool) -> Vec<u8> {
    let kind = [b'X', u8::from(stdin) | u8::from(source.is_none()) << 1];
    [&kind, &nonce[..], source.unwrap_or_default().as_bytes()].concat()
}

/// Asks a shell to execute the command that comes with it.
pub(crate) fn command_request(nonce: Nonce) -> Vec<u8> {
    [b"X", &nonce[..]].concat()
}

/// Tells what a JavaScript cell says from what others write.
pub(crate) type ScriptNonce = [u8; script::NONCE];

/// Asks for a JavaScript cell to be executed. Its stdout and stderr come with it, then its stdin if it has one, then a file of
/// `length` bytes.
pub(crate) fn script_request(nonce: ScriptNonce, length: u64) -> Vec<u8> {
    [b"X", &nonce[..], &length.to_ne_bytes()].concat()
}

/// What a JavaScript cell says; the last of the parts of an answer says how it ended.
#[derive(Debug, PartialEq)]
pub(crate) enum Said<'a> {
    Part(&'a [u8]),
    Answer { bytes: &'a [u8], raised: bool },
    Display { bytes: &'a [u8], last: bool },
}

/// What the cell with this nonce says; `None` for everything else.
pub(crate) fn said<'a>(packet: &'a [u8], nonce: &ScriptNonce) -> Option<Said<'a>> {
    let (header, bytes) = packet.split_at_checked(script::HEADER)?;
    if header[0] != script::SAID || header[1..=script::NONCE] != nonce[..] {
        return None;
    }
    match header[script::NONCE + 1] {
        script::PART => Some(Said::Part(bytes)),
        script::RETURNED => Some(Said::Answer { bytes, raised: false }),
        script::RAISED => Some(Said::Answer { bytes, raised: true }),
        script::DISPLAY_PART => Some(Said::Display { bytes, last: false }),
        script::DISPLAY => Some(Said::Display { bytes, last: true }),
        _ => None,
    }
}

/// What an interpreter says.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame<'a> {
    /// A checkpoint was made, or why not.
    Checkpoint { nonce: Nonce, made: Result<i32, String> },
    /// An image was written, or why not.
    Image { nonce: Nonce, made: Result<Image, String> },
    /// It is a new context's, or has become an image.
    Begun,
    /// It could not become an image, and ends.
    Failed(String),
    /// A part of something that is displayed; the last one or not.
    Display { bytes: &'a [u8], last: bool },
    /// It answers; to be read by [`crate::zygote::Answer`].
    Answer,
    /// Nothing that it says.
    Unknown,
}

impl<'a> Frame<'a> {
    pub fn parse(packet: &'a [u8]) -> Self {
        match packet.split_first() {
            Some((b'K', rest)) if rest.len() >= 12 => {
                let nonce = std::array::from_fn(|index| rest[index]);
                let pid = i32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]);
                let made = match pid {
                    2.. => Ok(pid),
                    _ if rest.len() == 12 => Err("a copy could not be made".to_owned()),
                    _ => Err(String::from_utf8_lossy(&rest[12..]).into_owned()),
                };
                Frame::Checkpoint { nonce, made }
            }
            Some((b'B', rest)) if rest.len() >= 16 => {
                let nonce = std::array::from_fn(|index| rest[index]);
                let said = u64::from_le_bytes(std::array::from_fn(|index| rest[8 + index]));
                let reason = || String::from_utf8_lossy(&rest[16..]).into_owned();
                Frame::Image { nonce, made: Image::parse(said).ok_or_else(reason) }
            }
            Some((b'b', [])) => Frame::Begun,
            Some((b'y', reason)) => Frame::Failed(String::from_utf8_lossy(reason).into_owned()),
            Some((b'Y', [a, b, c, d, stage, ..])) => {
                let error = std::io::Error::from_raw_os_error(i32::from_le_bytes([*a, *b, *c, *d]));
                Frame::Failed(format!("{error} (at its stage {stage})"))
            }
            Some((b'D', bytes)) => Frame::Display { bytes, last: true },
            Some((b'd', bytes)) => Frame::Display { bytes, last: false },
            Some((&sandtimer_os::wire::channel::ANSWER, _)) => Frame::Answer,
            _ => Frame::Unknown,
        }
    }
}

/// The interpreter's words on a cell, beside that there is an answer. What is not of its shape is left out.
pub(crate) fn reply(data: &[u8]) -> Reply {
    let Ok(said) = serde_json::from_slice::<Words<'_>>(data) else { return Reply::default() };
    let word = |key: &str| said.get(key).and_then(|word| value(word));
    let results = said.get("results").and_then(|results| serde_json::from_str(results.get()).ok());
    let results: Vec<&RawValue> = results.unwrap_or_default();
    Reply {
        value: None,
        error: said.get("error").and_then(|error| bundle(error.get().as_bytes())),
        results: results.into_iter().filter_map(|result| bundle(result.get().as_bytes())).collect(),
        execution_count: word("execution_count").and_then(|count| count.as_u64()),
        interrupted: word("interrupted") == Some(Value::Bool(true)),
        exit_code: None,
    }
}

/// How long what it shows is.
pub(crate) fn shown_bytes(data: &[u8]) -> u64 {
    let said = serde_json::from_slice::<Words<'_>>(data).unwrap_or_default();
    let results = said.get("results").and_then(|results| serde_json::from_str(results.get()).ok());
    let results: Vec<&RawValue> = results.unwrap_or_default();
    results.iter().map(|result| result.get().len() as u64).sum()
}

/// An object of which nothing but the names is read yet, however deep it is.
type Words<'a> = BTreeMap<String, &'a RawValue>;

/// What is shown, by MIME type, or an error. Left out is what is nested too deep, and JSON with half characters, which would
/// be another value without them; its text is beside it. Texts come without them.
pub(crate) fn bundle(data: &[u8]) -> Option<Value> {
    let shown: Words<'_> = serde_json::from_slice(data).ok()?;
    let read = |(kind, data): (String, &RawValue)| {
        let value = value(data).or_else(|| if kind == "application/json" { None } else { text(data) });
        Some((kind, value?))
    };
    Some(shown.into_iter().filter_map(read).collect())
}

/// The text that this would be, were all of its escapes characters.
fn text(raw: &RawValue) -> Option<Value> {
    let Bytes(bytes) = serde_json::from_str(raw.get()).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned().into())
}

/// A JSON text, read as bytes: those of a half character are no UTF-8.
struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Bytes;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a text")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Read)
    }
}

fn value(raw: &RawValue) -> Option<Value> {
    serde_json::from_str(raw.get()).ok().filter(|value| is_within(DEEPEST, value))
}

fn is_within(levels: usize, value: &Value) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(levels - 1, item)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| is_within(levels - 1, field)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nested_too_deep_is_left_out_and_its_text_kept() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        for (levels, kept) in [(DEEPEST, true), (DEEPEST + 1, false), (127, false), (100_000, false)] {
            let said = format!(
                r#"{{"results": [{{"text/plain": "a", "application/json": {}}}, 1], "execution_count": 7}}"#,
                nested(levels)
            );
            let reply = reply(said.as_bytes());
            assert_eq!((reply.results.len(), reply.execution_count), (1, Some(7)), "{levels}");
            let shown = &reply.results[0];
            assert_eq!((&shown["text/plain"], shown["application/json"].is_array()), (&"a".into(), kept));
        }
        assert_eq!(bundle(b"[1]"), None);
    }

    #[test]
    fn half_characters_cost_no_more_than_themselves() {
        let said = r#"{"results": [{"text/plain": "a\ud800", "application/json": "a\ud800", "b": 1}], "error": {"type": "E", "message": "\udc00b"}}"#;
        let reply = reply(said.as_bytes());
        let [shown] = &reply.results[..] else { panic!("{reply:?}") };
        assert!(shown["text/plain"].as_str().is_some_and(|text| text.starts_with("a\u{fffd}")), "{shown}");
        assert_eq!((shown.get("application/json"), &shown["b"]), (None, &1.into()));
        let error = reply.error.expect("an error");
        assert!(
            error["type"] == "E" && error["message"].as_str().is_some_and(|text| text.ends_with('b')),
            "{error}"
        );
    }

    #[test]
    fn only_what_carries_the_nonce_is_said() {
        let nonce = [7; script::NONCE];
        let packet = |nonce: ScriptNonce, kind: u8| [&[script::SAID][..], &nonce, &[kind], b"x"].concat();
        let own = packet(nonce, script::RAISED);
        assert_eq!(said(&own, &nonce), Some(Said::Answer { bytes: b"x", raised: true }));
        assert_eq!(said(&packet([0; script::NONCE], script::RAISED), &nonce), None);
        assert_eq!(said(&packet(nonce, b'?'), &nonce), None);
        for length in 0..script::HEADER {
            assert_eq!(said(&own[..length], &nonce), None, "cut to {length}");
        }
    }
}
