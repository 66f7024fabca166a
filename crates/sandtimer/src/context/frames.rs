//! The packets between the engine and a live interpreter.

use sandtimer_os::wire::script;

use crate::supervise::run::Reply;

/// Tells what is said now from what was said before.
pub(crate) type Nonce = [u8; 8];

/// Asks for a checkpoint.
pub(crate) fn checkpoint_request(nonce: Nonce) -> Vec<u8> {
    [b"C", &nonce[..]].concat()
}

/// Asks for a cell to be executed. Its stdout and stderr come with it, then its stdin if it has one, then its source if that
/// does not stand here.
pub(crate) fn cell_request(source: Option<&str>, stdin: bool) -> Vec<u8> {
    let request = serde_json::json!({"source": source, "stdin": stdin, "file": source.is_none()});
    [b"X", request.to_string().as_bytes()].concat()
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
            Some((b'D', bytes)) => Frame::Display { bytes, last: true },
            Some((b'd', bytes)) => Frame::Display { bytes, last: false },
            Some((&sandtimer_os::wire::channel::ANSWER, _)) => Frame::Answer,
            _ => Frame::Unknown,
        }
    }
}

/// The interpreter's words on a cell, beside that there is an answer. What is not of its shape is left out.
pub(crate) fn reply(data: &[u8]) -> Reply {
    let Ok(mut said) = serde_json::from_slice::<serde_json::Value>(data) else { return Reply::default() };
    let mut take =
        |key: &str| said.get_mut(key).map(serde_json::Value::take).filter(|value| !value.is_null());
    let results = match take("results") {
        Some(serde_json::Value::Array(results)) => {
            results.into_iter().filter(|result| result.is_object()).collect()
        }
        _ => Vec::new(),
    };
    Reply {
        value: None,
        error: take("error").filter(serde_json::Value::is_object),
        results,
        execution_count: take("execution_count").and_then(|count| count.as_u64()),
        interrupted: take("interrupted") == Some(serde_json::Value::Bool(true)),
        exit_code: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
