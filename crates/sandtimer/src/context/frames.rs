//! The packets between the engine and a live interpreter.

use std::collections::BTreeMap;

use sandtimer_os::wire::{channel, script};
use serde::de::{Deserialize, Deserializer, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::model::json::{JsonAllowance, JsonRejection};
use crate::supervise::displays::MAX_SHOWN_VALUES;
use crate::supervise::run::CellReply;

/// What a bundle names of what was left out of it, at most.
const MAX_NOTICES: usize = 10;
/// Where it does.
pub(crate) const NOTICE: &str = "application/vnd.sandtimer.notice";

/// Distinguishes the packets about one request from those about earlier ones.
pub(crate) type Nonce = [u8; channel::NONCE];

/// Asks for a checkpoint. `ahead`, for Python alone: after it the interpreter has a processor for
/// itself until the next cell comes, and uses it to prepare pages.
pub(crate) fn checkpoint_request(nonce: Nonce, ahead: bool) -> Vec<u8> {
    let ahead: &[u8] = if ahead { b"A" } else { b"" };
    [b"C", &nonce[..], ahead].concat()
}

/// Asks for an image of the interpreter, over the base whose inode this is, 0 for none. The image's
/// file comes with it, then one for files. `shares`: what is in the workspace is not among those.
pub(crate) fn image_request(nonce: Nonce, base: u64, shares: bool) -> Vec<u8> {
    [b"B", &nonce[..], &base.to_le_bytes(), &[u8::from(shares)]].concat()
}

/// Comes with an image for the process that is to take it, and with the file that belongs to it.
pub(crate) const IMAGE: &[u8] = &[channel::IMAGE];

/// The result of writing an image.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum ImageResult {
    /// This many bytes, without a base.
    Whole(u64),
    /// This many bytes over the base.
    Delta(u64),
    /// The file must have this many bytes.
    TooShort(u64),
}

impl ImageResult {
    fn parse(code: u64) -> Option<Self> {
        let length = code >> 2;
        match code & 3 {
            1 => Some(ImageResult::Whole(length)),
            2 => Some(ImageResult::Delta(length)),
            3 => Some(ImageResult::TooShort(length)),
            _ => None,
        }
    }
}

/// Asks for a cell to be executed. Its stdout and stderr come with it, then its stdin if it has
/// one, then its source if that is not in the request.
pub(crate) fn cell_request(nonce: Nonce, source: Option<&str>, stdin: bool) -> Vec<u8> {
    let kind = [b'X', u8::from(stdin) | u8::from(source.is_none()) << 1];
    [&kind, &nonce[..], source.unwrap_or_default().as_bytes()].concat()
}

/// Asks a shell to execute the command that comes with it.
pub(crate) fn command_request(nonce: Nonce) -> Vec<u8> {
    [b"X", &nonce[..]].concat()
}

/// Distinguishes the messages of a JavaScript cell from what other code writes to its channel.
pub(crate) type ScriptNonce = [u8; script::NONCE];

/// Asks for a JavaScript cell to be executed. Its stdout and stderr come with it, then its stdin if
/// it has one, then a file of `length` bytes.
pub(crate) fn script_request(nonce: ScriptNonce, length: u64) -> Vec<u8> {
    [b"X", &nonce[..], &length.to_ne_bytes()].concat()
}

/// A message of a JavaScript cell; the last part of an answer contains how it ended.
#[derive(Debug, PartialEq)]
pub(crate) enum ScriptMessage<'a> {
    Part(&'a [u8]),
    Answer { bytes: &'a [u8], raised: bool },
    Display { bytes: &'a [u8], last: bool },
}

/// Parses a message of the cell with this nonce; `None` for everything else.
pub(crate) fn script_message<'a>(packet: &'a [u8], nonce: &ScriptNonce) -> Option<ScriptMessage<'a>> {
    let (header, bytes) = packet.split_at_checked(script::HEADER)?;
    if header[0] != script::SAID || header[1..=script::NONCE] != nonce[..] {
        return None;
    }
    match header[script::NONCE + 1] {
        script::PART => Some(ScriptMessage::Part(bytes)),
        script::RETURNED => Some(ScriptMessage::Answer { bytes, raised: false }),
        script::RAISED => Some(ScriptMessage::Answer { bytes, raised: true }),
        script::DISPLAY_PART => Some(ScriptMessage::Display { bytes, last: false }),
        script::DISPLAY => Some(ScriptMessage::Display { bytes, last: true }),
        _ => None,
    }
}

/// A message of an interpreter.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame<'a> {
    /// A checkpoint was made, or why not.
    Checkpoint { nonce: Nonce, made: Result<i32, String> },
    /// An image was written, or why not.
    Image { nonce: Nonce, made: Result<ImageResult, String> },
    /// It is a new context's, or has become an image.
    Started,
    /// It could not become an image, and ends.
    Failed(String),
    /// A part of something that is displayed; the last one or not.
    Display { bytes: &'a [u8], last: bool },
    /// It answers; to be read by [`crate::zygote::AnswerKind`].
    Answer,
    /// Not a message of the interpreter.
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
                let code = u64::from_le_bytes(std::array::from_fn(|index| rest[8 + index]));
                let reason = || String::from_utf8_lossy(&rest[16..]).into_owned();
                Frame::Image { nonce, made: ImageResult::parse(code).ok_or_else(reason) }
            }
            Some((b'b', [])) => Frame::Started,
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

/// What the interpreter reports of a cell, besides that it has answered. What is not of its shape
/// is left out, and so is what has more values than a cell may show.
pub(crate) fn reply(data: &[u8]) -> CellReply {
    let mut allowance = JsonAllowance::new(MAX_SHOWN_VALUES);
    let Ok(fields) = allowance.split::<RawFields<'_>>(data) else { return CellReply::default() };
    let mut value = |key: &str| fields.get(key).and_then(|value| allowance.parse(value.get()).ok());
    let execution_count = value("execution_count").and_then(|count| count.as_u64());
    let interrupted = value("interrupted") == Some(Value::Bool(true));
    let error = fields.get("error").and_then(|error| bundle(error.get().as_bytes(), &mut allowance).ok());
    let results =
        fields.get("results").map(|results| results_of(results, &mut allowance)).unwrap_or_default();
    CellReply { value: None, error, results, execution_count, interrupted, exit_code: None }
}

/// What a cell shows, one bundle after the other; what is not a bundle is left out, and a notice
/// has the number of bundles that were too large.
fn results_of(shown: &RawValue, allowance: &mut JsonAllowance) -> Vec<Value> {
    let left_out = |what: String| serde_json::json!({"text/plain": what, NOTICE: what});
    let parts: Vec<&RawValue> = match allowance.split(shown.get().as_bytes()) {
        Ok(parts) => parts,
        Err(rejection @ JsonRejection::Values { .. }) => {
            return vec![left_out(format!("the results were left out: {rejection}"))];
        }
        Err(_) => return Vec::new(),
    };
    let (mut results, mut dropped) = (Vec::new(), 0_usize);
    for part in parts {
        match bundle(part.get().as_bytes(), allowance) {
            Ok(shown) => results.push(shown),
            Err(JsonRejection::Values { .. }) => dropped += 1,
            Err(_) => {}
        }
    }
    if dropped > 0 {
        results.push(left_out(format!(
            "{dropped} results were left out: a cell shows at most {MAX_SHOWN_VALUES} values"
        )));
    }
    results
}

/// How long what it shows is.
pub(crate) fn shown_bytes(data: &[u8]) -> u64 {
    let mut allowance = JsonAllowance::new(MAX_SHOWN_VALUES);
    let fields = allowance.split::<RawFields<'_>>(data).unwrap_or_default();
    let Some(results) = fields.get("results").map(|results| results.get().as_bytes()) else { return 0 };
    match allowance.split::<Vec<&RawValue>>(results) {
        Ok(parts) => parts.iter().map(|result| result.get().len() as u64).sum(),
        Err(_) => results.len() as u64,
    }
}

/// An object of which nothing but the names is read yet, however deep it is.
type RawFields<'a> = BTreeMap<String, &'a RawValue>;

/// What is shown, by MIME type, or an error. Left out are values with more entries than are allowed
/// or with too deep nesting, which a notice in the bundle reports, and JSON with half characters,
/// which would be another value without them; its text is kept. Half characters are removed from
/// texts.
///
/// # Errors
/// When its names are more than are allowed, or it is not an object.
pub(crate) fn bundle(data: &[u8], allowance: &mut JsonAllowance) -> Result<Value, JsonRejection> {
    let shown: RawFields<'_> = allowance.split(data)?;
    let mut bundle = serde_json::Map::new();
    let mut notices = Vec::new();
    for (kind, data) in shown {
        match allowance.parse(data.get()) {
            Ok(value) => drop(bundle.insert(kind, value)),
            Err(JsonRejection::NotJson) if kind == "application/json" => {}
            Err(JsonRejection::NotJson) => drop(text(data).map(|text| bundle.insert(kind, text))),
            Err(_) if notices.len() >= MAX_NOTICES => {}
            Err(rejection) => notices.push(format!("{kind:.100} was left out: {rejection}")),
        }
    }
    if !notices.is_empty() {
        bundle.insert(NOTICE.to_owned(), notices.join("; ").into());
    }
    Ok(Value::Object(bundle))
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
                formatter.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_deep_values_are_dropped_and_plain_output_kept() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        for (levels, kept) in [(100, true), (101, false), (127, false), (100_000, false)] {
            let data = format!(
                r#"{{"results": [{{"text/plain": "a", "application/json": {}}}, 1], "execution_count": 7}}"#,
                nested(levels)
            );
            let reply = reply(data.as_bytes());
            assert_eq!((reply.results.len(), reply.execution_count), (1, Some(7)), "{levels}");
            let shown = &reply.results[0];
            assert_eq!((&shown["text/plain"], shown["application/json"].is_array()), (&"a".into(), kept));
            assert_eq!(shown.get(NOTICE).is_none(), kept, "{shown}");
        }
        assert!(bundle(b"[1]", &mut JsonAllowance::new(10)).is_err());
    }

    #[test]
    fn what_has_too_many_values_is_left_out_with_a_notice() {
        let many = |count: usize| format!("[{}0]", r#"{"":0},"#.repeat(count));
        let data =
            |value: &str| format!(r#"{{"results": [{{"text/plain": "a", "application/json": {value}}}]}}"#);
        let kept = reply(data(&many(1_000)).as_bytes());
        assert_eq!(kept.results[0]["application/json"].as_array().map(Vec::len), Some(1_001));
        let mut reply = reply(data(&many(200_000)).as_bytes());
        let shown = reply.results.remove(0);
        assert_eq!((&shown["text/plain"], shown.get("application/json")), (&"a".into(), None));
        let notice = shown[NOTICE].as_str().expect("a notice");
        assert!(notice.contains("application/json was left out") && notice.contains("2000000"), "{notice}");
    }

    #[test]
    fn many_results_are_bounded_together() {
        let result = format!(r#"{{"text/plain": "a", "application/json": [{}0]}},"#, "0,".repeat(800_000));
        let data = format!(r#"{{"results": [{}{{"text/plain": "last"}}]}}"#, result.repeat(3));
        let results = reply(data.as_bytes()).results;
        let kept = results.iter().filter(|shown| shown["application/json"].is_array()).count();
        assert_eq!((results.len(), kept), (4, 2));
        assert!(results[2][NOTICE].is_string() && results[3]["text/plain"] == "last", "{:?}", results[3]);
        for hostile in ["1,".repeat(4_000_000), r#"{"a":"b"},"#.repeat(200_000)] {
            let data = format!(r#"{{"results": [{hostile}0], "execution_count": 7}}"#);
            let reply = reply(data.as_bytes());
            let notice = reply.results.last().and_then(|shown| shown[NOTICE].as_str()).expect("a notice");
            assert!(notice.contains("left out") && reply.results.len() <= 100_001, "{notice}");
            assert_eq!(reply.execution_count, Some(7));
        }
        let names = format!(r#"{{"results": [{{{}"z":0}}]}}"#, r#""a":0,"#.repeat(1_000_000));
        assert_eq!(super::reply(names.as_bytes()).results.len(), 1, "only the notice");
    }

    #[test]
    fn half_characters_cost_no_more_than_themselves() {
        let data = r#"{"results": [{"text/plain": "a\ud800", "application/json": "a\ud800", "b": 1}], "error": {"type": "E", "message": "\udc00b"}}"#;
        let reply = reply(data.as_bytes());
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
    fn only_packets_with_the_nonce_are_accepted() {
        let nonce = [7; script::NONCE];
        let packet = |nonce: ScriptNonce, kind: u8| [&[script::SAID][..], &nonce, &[kind], b"x"].concat();
        let own = packet(nonce, script::RAISED);
        assert_eq!(script_message(&own, &nonce), Some(ScriptMessage::Answer { bytes: b"x", raised: true }));
        assert_eq!(script_message(&packet([0; script::NONCE], script::RAISED), &nonce), None);
        assert_eq!(script_message(&packet(nonce, b'?'), &nonce), None);
        for length in 0..script::HEADER {
            assert_eq!(script_message(&own[..length], &nonce), None, "cut to {length}");
        }
    }
}
