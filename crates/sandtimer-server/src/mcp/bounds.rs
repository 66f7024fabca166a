//! Answers within their bounds, in text and in structured content: what is too long keeps its
//! beginning, or both ends, with a mark.

use serde_json::{Map, Value};

use crate::body::json_bytes;

/// Bytes of an answer's text, and of its structured content, unless a call asks for more output.
pub(super) const ANSWER_BYTES: usize = 20_000;
/// What there is around the output of an answer.
pub(super) const FRAME_BYTES: usize = 2_000;
/// Fields that a reader needs in order to continue are never cut.
const KEPT_FIELDS: [&str; 5] = ["headline", "run_id", "status", "cursor", "next_cursor"];
/// As long as "[… 18446744073709551615 bytes are left out …]" with its line ends.
const MARK_BYTES: usize = 64;
/// Of a list or an object in JSON, with the comma after it; of a key, its quotes, colon and comma.
const BRACKET_BYTES: usize = 3;
const KEY_BYTES: usize = 4;

/// Shortens a text to at most `most` bytes: its beginning and its end.
pub(super) fn fit_str(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(MARK_BYTES);
    let head = boundary_before(text, room - room / 3);
    let tail = boundary_after(text, text.len() - room / 3);
    format!("{}\n[… {} bytes are left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

/// A line of at most `most` bytes, and a mark if it was longer.
pub(super) fn fit_line(line: &str, most: usize) -> String {
    if line.len() <= most { line.to_owned() } else { format!("{} …", &line[..boundary_before(line, most)]) }
}

/// The last boundary of a character up to a position.
fn boundary_before(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// The first one from a position on.
fn boundary_after(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// Cuts the longest fields of an object until its JSON has at most `most` bytes; each cut is marked
/// by another field, such as `stdout_truncated`.
pub(super) fn fit(structured: &mut Value, most: usize) {
    let mut bytes = json_bytes(structured);
    while bytes > most {
        let Value::Object(fields) = structured else { return };
        let sizes = fields.iter().filter(|(name, _)| !KEPT_FIELDS.contains(&name.as_str()));
        let sizes = sizes.map(|(name, value)| (json_bytes(value), name.clone()));
        let Some((size, name)) = sizes.max().filter(|(size, _)| *size > MARK_BYTES) else { return };
        // With the field that marks the cut; at least a quarter less, so that this ends soon.
        let target = size.saturating_sub(bytes - most + name.len() + 20).min(size / 2 + size / 4);
        let cut = match &fields[&name] {
            _ if target < MARK_BYTES => Value::Null,
            Value::String(text) => cut_string(text, target),
            value => beginning(value, target, &mut true),
        };
        // Each round has to make it shorter, or this would not end.
        let cut = if json_bytes(&cut) < size { cut } else { Value::Null };
        fields.insert(format!("{name}_truncated"), true.into());
        fields.insert(name, cut);
        bytes = json_bytes(structured);
    }
}

/// Both ends of a text, whose JSON then has at most `most` bytes.
fn cut_string(text: &str, most: usize) -> Value {
    let mut room = most;
    loop {
        let cut = Value::String(fit_str(text, room));
        if json_bytes(&cut) <= most || room <= MARK_BYTES {
            return cut;
        }
        room = room * 3 / 4;
    }
}

/// The beginning of a value, of the same type, with about `most` bytes of JSON: its JSON is
/// counted.
pub(super) fn beginning(value: &Value, most: usize, is_cut: &mut bool) -> Value {
    part(value, &mut { most }, is_cut)
}

fn part(value: &Value, left: &mut usize, is_cut: &mut bool) -> Value {
    match value {
        Value::String(text) => {
            let shown = fitting_prefix(text, *left);
            *is_cut |= shown.len() < text.len();
            *left = left.saturating_sub(json_length(shown) + 3);
            if shown.len() < text.len() { format!("{shown} …").into() } else { shown.into() }
        }
        Value::Array(list) => {
            let mut kept = Vec::new();
            *left = left.saturating_sub(BRACKET_BYTES);
            for value in list {
                if *left == 0 {
                    *is_cut = true;
                    break;
                }
                kept.push(part(value, left, is_cut));
            }
            kept.into()
        }
        Value::Object(fields) => {
            let mut kept = Map::new();
            *left = left.saturating_sub(BRACKET_BYTES);
            for (key, value) in fields {
                let length = json_length(key) + KEY_BYTES;
                if *left <= length {
                    (*left, *is_cut) = (0, true);
                    break;
                }
                *left -= length;
                kept.insert(key.clone(), part(value, left, is_cut));
            }
            kept.into()
        }
        other => {
            *left = left.saturating_sub(other.to_string().len() + 1);
            other.clone()
        }
    }
}

/// The beginning of a text whose JSON has at most `most` bytes.
fn fitting_prefix(text: &str, most: usize) -> &str {
    let mut length = 0;
    let end = text.char_indices().find(|(_, character)| {
        length += character_length(*character);
        length > most
    });
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

fn json_length(text: &str) -> usize {
    text.chars().map(character_length).sum()
}

/// Bytes of a character in a text of JSON (RFC 8259, section 7).
fn character_length(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

/// The beginning of a text, or of a value's JSON, of at most `most` bytes without the mark.
pub(super) fn clipped(value: &Value, most: usize) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if text.len() <= most {
        return text;
    }
    fit_line(&text, most)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_keep_both_ends() {
        assert_eq!(fit_str("short", 5), "short");
        let cut = fit_str(&format!("begin{}end", "ä".repeat(10_000)), 1000);
        assert!(cut.len() <= 1000 && cut.starts_with("beginä") && cut.ends_with("äend"), "{cut}");
        assert!(cut.contains("bytes are left out"), "{cut}");
    }

    #[test]
    fn structured_content_is_cut_where_it_is_longest() {
        let long = "\"\n".repeat(50_000);
        let runs: Vec<Value> =
            (0..1000).map(|index| json!({"run_id": index, "command": "x".repeat(100)})).collect();
        let mut answer = json!({"headline": "EXITED 0", "stdout": long, "stderr": "kept", "runs": runs, "value": [1, long]});
        fit(&mut answer, 20_000);
        assert!(json_bytes(&answer) <= 20_000, "{} bytes", json_bytes(&answer));
        assert_eq!((&answer["headline"], &answer["stderr"]), (&json!("EXITED 0"), &json!("kept")));
        for name in ["stdout", "runs", "value"] {
            assert_eq!(answer[format!("{name}_truncated")], true, "{name}");
        }
        assert!(answer.get("stderr_truncated").is_none() && answer["runs"][0]["run_id"] == 0);
        let whole = json!({"value": [1, "é"], "error": null});
        let mut same = whole.clone();
        fit(&mut same, 100);
        assert_eq!(same, whole);
    }

    #[test]
    fn values_that_json_writes_longer_than_they_are_have_an_end() {
        let nested = (0..100).fold(json!([]), |value, _| json!([value]));
        for value in [
            json!([["\u{1}".repeat(100_000)]]),
            json!(vec![json!([]); 100_000]),
            json!(vec![nested; 1000]),
            json!({"\u{1}".repeat(30_000): 1}),
            json!(vec![json!({"": {}}); 50_000]),
        ] {
            let mut answer = json!({"headline": "RETURNED", "value": value});
            fit(&mut answer, 20_000);
            assert!(json_bytes(&answer) <= 20_000 && answer["value_truncated"] == true);
        }
    }

    #[test]
    fn values_are_cut_to_the_same_type() {
        let mut is_cut = false;
        let cut = beginning(&json!({"a": [1, "x".repeat(10_000)], "b": 2}), 100, &mut is_cut);
        assert!(is_cut && cut["a"][0] == 1 && cut.to_string().len() < 200, "{cut}");
    }
}
