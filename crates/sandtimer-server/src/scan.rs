//! Bounds of the JSON that clients send, checked byte by byte while it arrives and before anything
//! is made of it.
//!
//! A parsed value takes up to a hundred times the memory of its text, so the length of a body alone
//! bounds nothing: 60 MiB of `{"":0},` become 6 GiB. Long are only the strings that carry code,
//! input or files; all the rest of a message is small. The scanner allocates nothing and does not
//! check the grammar, which the parser does: up to the first mistake both read the same, and after
//! it the parser reads nothing.

use memchr::memchr2;

use crate::error::{ApiRejection, Code};

/// Bytes of one message, or of one job of a batch, apart from the strings that carry content.
pub(crate) const MAX_JSON_BYTES: usize = 1 << 20;
/// Values of one message, or of one job of a batch.
pub(crate) const MAX_VALUES: usize = 10_000;
/// Values of all jobs of a batch together.
pub(crate) const MAX_BATCH_VALUES: usize = 500_000;
/// Lists and objects within one another.
pub(crate) const MAX_DEPTH: u32 = 64;
/// Fields whose strings, at any depth, carry code, input or the content of files.
const CARRIERS: [&[u8]; 6] = [b"code", b"command", b"stdin", b"data", b"content", b"inputs"];
/// The longest name of these.
const MAX_CARRIER_BYTES: usize = 7;

/// What of a message is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    Bytes,
    Values,
    BatchValues,
    Depth,
}

impl Excess {
    fn limit(self) -> usize {
        match self {
            Excess::Bytes => MAX_JSON_BYTES,
            Excess::Values => MAX_VALUES,
            Excess::BatchValues => MAX_BATCH_VALUES,
            Excess::Depth => MAX_DEPTH as usize,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Excess::Bytes => "json_bytes",
            Excess::Values => "json_values",
            Excess::BatchValues => "batch_values",
            Excess::Depth => "json_depth",
        }
    }

    /// `what` is the message: "the body".
    pub fn into_rejection(self, what: &str) -> ApiRejection {
        let limit = self.limit();
        let message = match self {
            Excess::Bytes => format!(
                "{what} has more than {limit} bytes of JSON apart from the strings of code, command, stdin, data, content \
                 and inputs"
            ),
            Excess::Values => format!("{what} has more than {limit} values"),
            Excess::BatchValues => format!("{what} has more than {limit} values in all its jobs"),
            Excess::Depth => format!("{what} has lists and objects more than {limit} deep"),
        };
        ApiRejection::new(Code::JsonTooLarge, message).with("counted", self.name()).with("limit", limit)
    }
}

/// What the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Between,
    /// A number or a literal.
    Scalar,
    Key,
    String {
        /// Carries content, which is not counted.
        carries: bool,
    },
}

/// Counts what a message has so far.
#[derive(Debug, Clone)]
pub(crate) struct Scanner {
    /// The values of the outermost list, or consecutive values, are counted each by itself.
    is_batch: bool,
    token: Token,
    /// The byte before was a backslash in a string.
    is_escaped: bool,
    depth: u32,
    /// A bit for each list or object that is open: whether it is an object.
    objects: u128,
    /// The same: whether the strings in it carry content.
    carrying: u128,
    expects_key: bool,
    key: [u8; MAX_CARRIER_BYTES],
    /// May be more than there is room for.
    key_bytes: usize,
    /// The next value belongs to a field that carries content.
    carries: bool,
    json_bytes: usize,
    values: usize,
    all_values: usize,
}

impl Scanner {
    pub fn new() -> Self {
        Scanner {
            is_batch: false,
            token: Token::Between,
            is_escaped: false,
            depth: 0,
            objects: 0,
            carrying: 0,
            expects_key: false,
            key: [0; MAX_CARRIER_BYTES],
            key_bytes: 0,
            carries: false,
            json_bytes: 0,
            values: 0,
            all_values: 0,
        }
    }

    /// For a batch: a list of values, or consecutive values.
    pub fn batch() -> Self {
        Scanner { is_batch: true, ..Self::new() }
    }

    /// Values so far, of all messages of a batch.
    pub fn values_in_all(&self) -> usize {
        self.all_values
    }

    /// Counts the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Excess> {
        while let [first, rest @ ..] = bytes {
            bytes = match self.token {
                Token::Key | Token::String { .. } => self.feed_string(bytes)?,
                Token::Between | Token::Scalar => {
                    self.count(1)?;
                    self.feed_structure(*first)?;
                    rest
                }
            };
        }
        Ok(())
    }

    /// Counts up to the next quote or backslash of a string, that included; what is left.
    fn feed_string<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], Excess> {
        let (length, last) = if std::mem::take(&mut self.is_escaped) {
            (1, None)
        } else {
            let found = memchr2(b'"', b'\\', bytes);
            (found.map_or(bytes.len(), |at| at + 1), found.map(|at| bytes[at]))
        };
        let (read, rest) = bytes.split_at(length);
        if self.token == Token::Key {
            self.add_to_key(read, last);
        }
        if self.token != (Token::String { carries: true }) {
            self.count(length)?;
        }
        match last {
            Some(b'\\') => self.is_escaped = true,
            Some(_) => self.end_string(),
            None => {}
        }
        Ok(rest)
    }

    /// A name that is written with escapes is none that carries.
    fn add_to_key(&mut self, read: &[u8], last: Option<u8>) {
        let name = if last == Some(b'"') { &read[..read.len() - 1] } else { read };
        if let Some(key_part) = self.key.get_mut(self.key_bytes..self.key_bytes.saturating_add(name.len())) {
            key_part.copy_from_slice(name);
        }
        self.key_bytes = self.key_bytes.saturating_add(name.len());
    }

    fn end_string(&mut self) {
        if self.token == Token::Key {
            let name = self.key.get(..self.key_bytes);
            self.carries = name.is_some_and(|name| CARRIERS.contains(&name));
        } else {
            self.carries = false;
        }
        self.token = Token::Between;
    }

    fn feed_structure(&mut self, byte: u8) -> Result<(), Excess> {
        match byte {
            b'"' if self.expects_key => {
                (self.token, self.expects_key, self.key_bytes) = (Token::Key, false, 0);
            }
            b'"' => {
                self.begin_value()?;
                self.token = Token::String { carries: self.carries || self.is_set(self.carrying) };
            }
            b'{' | b'[' => self.open(byte == b'{')?,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                (self.token, self.expects_key, self.carries) = (Token::Between, false, false);
            }
            b',' => {
                (self.token, self.carries) = (Token::Between, false);
                self.expects_key = self.is_set(self.objects);
            }
            b':' | b' ' | b'\t' | b'\r' | b'\n' => self.token = Token::Between,
            _ if self.token == Token::Between => {
                self.begin_value()?;
                self.token = Token::Scalar;
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the innermost list or object has its bit.
    fn is_set(&self, bits: u128) -> bool {
        self.depth > 0 && bits >> (self.depth - 1) & 1 == 1
    }

    fn open(&mut self, is_object: bool) -> Result<(), Excess> {
        let carries = self.carries || self.is_set(self.carrying);
        self.begin_value()?;
        // The list of a batch is around its messages.
        if self.depth >= MAX_DEPTH + u32::from(self.is_batch) {
            return Err(Excess::Depth);
        }
        let bit = 1 << self.depth;
        let set = |bits: u128, is_set: bool| if is_set { bits | bit } else { bits & !bit };
        (self.objects, self.carrying) = (set(self.objects, is_object), set(self.carrying, carries));
        self.depth += 1;
        (self.token, self.expects_key, self.carries) = (Token::Between, is_object, false);
        Ok(())
    }

    fn begin_value(&mut self) -> Result<(), Excess> {
        let is_in_outermost_list = self.depth == 1 && !self.is_set(self.objects);
        if self.is_batch && (self.depth == 0 || is_in_outermost_list) {
            (self.values, self.json_bytes) = (0, 0);
        }
        self.values += 1;
        self.all_values += 1;
        match () {
            () if self.values > MAX_VALUES => Err(Excess::Values),
            () if self.all_values > MAX_BATCH_VALUES => Err(Excess::BatchValues),
            () => Ok(()),
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), Excess> {
        self.json_bytes += bytes;
        if self.json_bytes > MAX_JSON_BYTES { Err(Excess::Bytes) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In pieces of each of these lengths, which must not matter.
    fn scan(scanner: &Scanner, text: &str) -> Result<(), Excess> {
        let whole = scanner.clone().feed(text.as_bytes());
        for length in [1, 7, 4096] {
            let mut scanner = scanner.clone();
            let pieces = text.as_bytes().chunks(length).try_for_each(|piece| scanner.feed(piece));
            assert_eq!(pieces, whole, "in pieces of {length}");
        }
        whole
    }

    fn one(text: &str) -> Result<(), Excess> {
        scan(&Scanner::new(), text)
    }

    fn batch(text: &str) -> Result<(), Excess> {
        scan(&Scanner::batch(), text)
    }

    fn long(bytes: usize) -> String {
        "x".repeat(bytes)
    }

    #[test]
    fn values_up_to_the_limit_are_accepted() {
        let list = |count: usize| format!("[{}0]", "0, ".repeat(count - 2));
        assert_eq!(one(&list(MAX_VALUES)), Ok(()));
        assert_eq!(one(&list(MAX_VALUES + 1)), Err(Excess::Values));
        assert_eq!(one(&format!("[{}", r#"{"":0},"#.repeat(MAX_VALUES))), Err(Excess::Values));
        assert_eq!(one(&format!("[{}", "\"\",".repeat(MAX_VALUES + 1))), Err(Excess::Values));
    }

    #[test]
    fn depth_up_to_the_limit_is_accepted() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(one(&nested(64)), Ok(()));
        assert_eq!(one(&nested(65)), Err(Excess::Depth));
        assert_eq!(batch(&nested(65)), Ok(()));
        assert_eq!(batch(&nested(66)), Err(Excess::Depth));
        assert_eq!(one(&r#"{"a":[],"b":{}},"#.repeat(100)), Ok(()));
    }

    #[test]
    fn only_strings_of_carrying_fields_are_exempt() {
        let text = long(MAX_JSON_BYTES);
        for exempt in [
            format!(r#"{{"code": "{text}"}}"#),
            format!(r#"{{"stdin":"{}"}}"#, r#"\\\"{"#.repeat(MAX_JSON_BYTES)),
            format!(r#"{{"params": {{"arguments": {{"x": 1, "command": "{text}"}}}}}}"#),
            format!(r#"{{"command": ["a", "{text}"]}}"#),
            format!(r#"{{"inputs": {{"a/b": {{"base64": "{text}"}}, "c": "{text}"}}}}"#),
        ] {
            assert_eq!(one(&exempt), Ok(()), "{}", &exempt[..30]);
        }
        for counted in [
            format!(r#"{{"name": "{text}"}}"#),
            format!(r#"{{"{text}": 0}}"#),
            format!(r#"{{"codes": "{text}"}}"#),
            format!(r#"{{"\u0063ode": "{text}"}}"#),
            format!(r#"{{"code": 1, "name": "{text}"}}"#),
            format!(r#"{{"code": "x", "name": "{text}"}}"#),
            format!(r#"{{"code": ["x"], "name": "{text}"}}"#),
            format!(r#"{{"inputs": {{"{text}": 0}}}}"#),
            format!(r#"{{"a": {{"command": ["x"]}}, "name": ["{text}"]}}"#),
            format!("\"{text}\""),
            format!("[1{}]", " ".repeat(MAX_JSON_BYTES)),
            format!("[{}]", "1".repeat(MAX_JSON_BYTES)),
        ] {
            assert_eq!(one(&counted), Err(Excess::Bytes), "{}", &counted[..30]);
        }
    }

    #[test]
    fn jobs_of_a_batch_are_counted_each_by_itself() {
        let job = format!(r#"{{"name": "{}", "list": [{}0]}}"#, long(MAX_JSON_BYTES / 4), "0,".repeat(5000));
        assert_eq!(batch(&format!("[{job}, {job}, {job}, {job}, {job}]")), Ok(()));
        assert_eq!(batch(&format!("{job}\n{job}\n{job}\n{job}\n{job}")), Ok(()));
        assert_eq!(one(&format!("[{job}, {job}, {job}]")), Err(Excess::Values));
        assert_eq!(batch(&format!("[{{}}, {{\"a\": [{job}, {job}, {job}]}}]")), Err(Excess::Values));
        let many = "0,".repeat(9_000);
        assert_eq!(batch(&format!("[{}]", format!("[{many}0],").repeat(200))), Err(Excess::BatchValues));
    }

    #[test]
    fn a_rejection_names_the_limit_and_the_remedy() {
        for excess in [Excess::Bytes, Excess::Values, Excess::BatchValues, Excess::Depth] {
            let rejection = excess.into_rejection("the body");
            assert!(rejection.message.contains(&excess.limit().to_string()), "{}", rejection.message);
            assert_eq!(rejection.details["limit"], excess.limit());
            assert_eq!(
                (rejection.code, rejection.details["counted"].as_str()),
                (Code::JsonTooLarge, Some(excess.name()))
            );
        }
    }
}
