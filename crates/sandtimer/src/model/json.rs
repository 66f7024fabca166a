//! JSON of untrusted code, parsed only where the memory that its values take is bounded.
//!
//! A parsed value takes up to a hundred times the memory of its text: 5 MiB of `[{"":0},…]` become
//! 500. So its length alone bounds nothing. The text is read once before it is parsed; reading it
//! allocates nothing and does not check the grammar, which the parser does: up to the first mistake
//! both read the same, and after it the parser reads nothing.

use std::fmt;

use serde_json::Value;

/// Lists and objects within one another. Answers and records put more around a value, and their
/// readers take 128 levels in all.
const MAX_DEPTH: usize = 100;
/// What an object counts as besides its fields, a field besides its value, and a string besides
/// being a value. One that counts takes some 32 bytes, and an object with one field has room for
/// eleven.
const PER_OBJECT: usize = 20;
const PER_FIELD: usize = 3;
const PER_STRING: usize = 1;

/// How many values may still be parsed.
#[derive(Debug, Clone, Copy)]
pub struct JsonAllowance {
    limit: usize,
    left: usize,
}

/// Why a text was not parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonRejection {
    /// It has more values than are allowed.
    Values {
        /// What the text counts as.
        counted: usize,
        /// The allowance for all texts together.
        limit: usize,
    },
    /// Lists and objects are nested too deeply.
    Depth,
    /// The text is not JSON.
    NotJson,
}

impl fmt::Display for JsonRejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonRejection::Values { counted, limit } => write!(
                formatter,
                "it counts as {counted} values, and the limit is {limit} (an object counts as {PER_OBJECT}, a field as \
                 {PER_FIELD} and a string as {PER_STRING} more)"
            ),
            JsonRejection::Depth => write!(formatter, "it has lists and objects more than {MAX_DEPTH} deep"),
            JsonRejection::NotJson => formatter.write_str("it is not JSON"),
        }
    }
}

impl JsonAllowance {
    /// Allows this many values.
    pub fn new(limit: usize) -> Self {
        JsonAllowance { limit, left: limit }
    }

    /// Parses a text whose values are within what is left, which is less by them then.
    ///
    /// # Errors
    /// When it has more values than are left, is nested too deep, or is not JSON.
    pub fn parse(&mut self, text: &str) -> Result<Value, JsonRejection> {
        self.take(count(text.as_bytes()))?;
        serde_json::from_str(text).map_err(|_| JsonRejection::NotJson)
    }

    /// Values that were taken so far.
    pub fn used(&self) -> usize {
        self.limit - self.left
    }

    /// Takes this many values from the rest. Returns whether there are as many.
    pub fn take_values(&mut self, values: usize) -> bool {
        self.take(JsonCount { values, ..JsonCount::default() }).is_ok()
    }

    /// Takes what was counted from what is left.
    fn take(&mut self, counted: JsonCount) -> Result<(), JsonRejection> {
        if counted.depth > MAX_DEPTH {
            return Err(JsonRejection::Depth);
        }
        match self.left.checked_sub(counted.values) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(JsonRejection::Values { counted: counted.values, limit: self.limit }),
        }
    }

    /// Splits a list or an object into the texts of its values, each to be parsed by itself. `T` is
    /// a list or a map of them.
    ///
    /// # Errors
    /// As [`JsonAllowance::parse`], of the outermost level; when the text is not of this shape.
    pub fn split<'a, T: serde::Deserialize<'a>>(&mut self, text: &'a [u8]) -> Result<T, JsonRejection> {
        let outermost = count(text).outermost;
        self.take(JsonCount { values: outermost, depth: 0, outermost })?;
        serde_json::from_slice(text).map_err(|_| JsonRejection::NotJson)
    }
}

/// What a text has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct JsonCount {
    /// Values, in the units of their memory.
    values: usize,
    depth: usize,
    /// Of these values, those of the outermost list or object.
    outermost: usize,
}

/// Counts what a text has that is parsed.
fn count(text: &[u8]) -> JsonCount {
    let (mut counted, mut depth) = (JsonCount { values: 1, ..JsonCount::default() }, 0_usize);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let values = match byte {
            b'"' => {
                skip_string(&mut bytes);
                PER_STRING
            }
            b'[' | b'{' => {
                depth += 1;
                counted.depth = counted.depth.max(depth);
                if *byte == b'{' { 1 + PER_OBJECT } else { 1 }
            }
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                0
            }
            b',' => 1,
            b':' => PER_FIELD,
            _ => 0,
        };
        counted.values += values;
        if depth <= 1 {
            counted.outermost += values;
        }
    }
    counted
}

/// Reads to the end of a string.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn values(text: &str) -> usize {
        count(text.as_bytes()).values
    }

    #[test]
    fn values_count_by_their_memory() {
        assert_eq!((values("7"), values("[1,2,3]"), values(r#"["a","b"]"#)), (1, 4, 5));
        assert_eq!(values(r#"{"a":1}"#), 1 + 21 + 3 + 1);
        assert_eq!(values(r#""[{,:\"[{,:""#), 2, "what is in a string is text");
        assert_eq!(count(b"[[],{\"a\":[1,2]}]").depth, 3);
        assert_eq!(count(b"[[1,2,3],[4]]").outermost, 2, "a list, and a comma in it");
    }

    #[test]
    fn more_than_is_allowed_is_rejected_by_the_limit() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        let mut allowance = JsonAllowance::new(1_000);
        assert!(allowance.parse(&list(499)).is_ok());
        assert_eq!(allowance.parse(&list(501)), Err(JsonRejection::Values { counted: 502, limit: 1_000 }));
        assert!(allowance.parse(&list(499)).is_ok(), "what was rejected took nothing");
        assert!(allowance.parse("0").is_err(), "and nothing is left");
        for text in [r#"[{"":0}]"#, r#"[""]"#, "[[]]"] {
            let many = text[1..text.len() - 1].to_owned() + ",";
            let rejected = JsonAllowance::new(1_000).parse(&format!("[{}0]", many.repeat(1_000)));
            assert!(matches!(rejected, Err(JsonRejection::Values { .. })), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded_before_it_is_parsed() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let mut allowance = JsonAllowance::new(1_000);
        assert!(allowance.parse(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(allowance.parse(&nested(MAX_DEPTH + 1)), Err(JsonRejection::Depth));
        assert_eq!(allowance.parse("[1"), Err(JsonRejection::NotJson));
    }

    #[test]
    fn only_the_outermost_level_counts_where_it_is_split() {
        let text = format!("[[{}0],1]", "0,".repeat(5_000));
        let parts: Vec<&RawValue> = JsonAllowance::new(10).split(text.as_bytes()).expect("two parts");
        assert_eq!(parts.len(), 2);
        let many = format!("[{}0]", "0,".repeat(5_000));
        let rejected = JsonAllowance::new(10).split::<Vec<&RawValue>>(many.as_bytes());
        assert!(matches!(rejected, Err(JsonRejection::Values { counted: 5_001, limit: 10 })));
    }
}
