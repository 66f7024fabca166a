//! What comes in with a request and what goes out: JSON objects of a bounded size, read within a bounded time, whose fields
//! are taken one by one so that each refusal names its field and value and nothing is left unread.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD as STANDARD, Engine as _};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use sandtimer::Limits;
use sandtimer::limits::{Key, from_json};
use serde_json::{Map, Value};

use crate::Shared;
use crate::error::{Code, Refusal};

/// The largest body.
pub const MOST_BYTES: usize = 64 << 20;
/// The longest part of a refused value that a message repeats.
const SHOWN: usize = 60;

/// An answer of JSON.
pub fn json(value: &impl serde::Serialize) -> Response {
    // Plain data with text keys always serialises.
    let text = serde_json::to_vec(value).unwrap_or_default();
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

/// In characters.
const LONGEST_REASON: usize = 200;

/// The fields of a request's body or query, taken one by one.
#[derive(Debug, Default)]
pub struct Fields {
    left: Map<String, Value>,
    known: Vec<&'static str>,
    /// A query knows only texts, so its numbers are read from them.
    texts: bool,
}

impl Fields {
    pub fn new(object: Map<String, Value>) -> Self {
        Fields { left: object, known: Vec::new(), texts: false }
    }

    /// Takes a field. `null` is a field that is not there.
    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.left.remove(name).filter(|value| !value.is_null())
    }

    /// Any value.
    pub fn value(&mut self, name: &'static str) -> Option<Value> {
        self.take(name)
    }

    /// Any value, `null` too.
    pub fn raw(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.left.remove(name)
    }

    /// What is not taken yet, as one text.
    pub fn left(&self) -> String {
        // Plain data with text keys always serialises.
        serde_json::to_string(&self.left).unwrap_or_default()
    }

    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(refused(name, &other, "a text")),
        }
    }

    /// Bytes: a text, or base64 where the field `encoding` says so.
    pub fn bytes(&mut self, name: &'static str, encoding: &'static str) -> Result<Option<Vec<u8>>, Refusal> {
        let is_base64 = self.word(encoding, &["utf-8", "base64"])? == Some("base64");
        let Some(text) = self.text(name)? else { return Ok(None) };
        if !is_base64 {
            return Ok(Some(text.into_bytes()));
        }
        let wrong = || refused(name, &Value::String(text.clone()), "base64 with its padding");
        STANDARD.decode(&text).map(Some).map_err(|_| wrong())
    }

    /// Why something is to be ended, as `who` says it; cut to what a verdict shows.
    pub fn reason(&mut self, who: &str) -> Result<String, Refusal> {
        let given = self.text("reason")?.unwrap_or_else(|| format!("{who} asked for its end"));
        Ok(given.chars().take(LONGEST_REASON).collect())
    }

    pub fn truth(&mut self, name: &'static str) -> Result<Option<bool>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(truth)),
            Some(Value::String(text)) if self.texts && (text == "true" || text == "false") => {
                Ok(Some(text == "true"))
            }
            Some(other) => Err(refused(name, &other, "true or false")),
        }
    }

    /// A whole number from 0 on.
    pub fn number(&mut self, name: &'static str) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = match &value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) if self.texts => text.parse().ok(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| refused(name, &value, "a whole number from 0 on"))
    }

    /// A number of milliseconds.
    pub fn milliseconds(&mut self, name: &'static str) -> Result<Option<Duration>, Refusal> {
        Ok(self.number(name)?.map(Duration::from_millis))
    }

    /// One of these words.
    pub fn word(
        &mut self,
        name: &'static str,
        words: &[&'static str],
    ) -> Result<Option<&'static str>, Refusal> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let found = words.iter().find(|word| value.as_str() == Some(**word));
        found
            .map(|word| Some(*word))
            .ok_or_else(|| refused(name, &value, &format!("one of {}", words.join(", "))))
    }

    /// The limits of these kinds, by their names on wires.
    pub fn limits(&mut self, keys: &[Key]) -> Result<Limits, Refusal> {
        let mut limits = Limits::new();
        for key in keys {
            self.known.push(key.wire());
            if let Some(value) = self.left.remove(key.wire()) {
                limits.set(*key, from_json(key.wire(), &value, "the request")?);
            }
        }
        Ok(limits)
    }

    /// Refuses what was not taken.
    pub fn finish(self) -> Result<(), Refusal> {
        let Some((name, _)) = self.left.into_iter().next() else { return Ok(()) };
        let known = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        Err(Refusal::new(
            Code::UnknownField,
            format!("unknown field `{}`; known are: {known}", shortened(&name)),
        )
        .with("key", name))
    }
}

/// A field that has a value it cannot have.
pub fn refused(name: &str, value: &Value, wanted: &str) -> Refusal {
    let shown = match value {
        Value::String(text) => shortened(text),
        other => shortened(&other.to_string()),
    };
    Refusal::new(Code::BadField, format!("{name}: `{shown}` is not {wanted}"))
        .with("key", name)
        .with("value", shown)
}

fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_default).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

/// The fields of a body. An empty body is an empty object.
#[derive(Debug)]
pub struct Object(pub Fields);

impl FromRequest<Shared> for Object {
    type Rejection = Refusal;

    async fn from_request(request: Request<Body>, state: &Shared) -> Result<Self, Refusal> {
        let bytes = bytes(request, state.patience).await?;
        if bytes.is_empty() {
            return Ok(Object(Fields::default()));
        }
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(object)) => Ok(Object(Fields::new(object))),
            Ok(_) => Err(Refusal::new(Code::BadJson, "the body is JSON, but not an object")),
            Err(error) => Err(Refusal::new(Code::BadJson, format!("the body is not JSON: {error}"))),
        }
    }
}

fn too_large() -> Refusal {
    Refusal::new(Code::BodyTooLarge, format!("the body has more than {MOST_BYTES} bytes"))
        .with("most_bytes", MOST_BYTES)
}

/// All bytes of a body.
pub async fn bytes(request: Request<Body>, patience: Duration) -> Result<Bytes, Refusal> {
    let declared =
        request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: u64| length > MOST_BYTES as u64) {
        return Err(too_large());
    }
    read(request.into_body(), patience).await
}

async fn read(body: Body, patience: Duration) -> Result<Bytes, Refusal> {
    match tokio::time::timeout(patience, Limited::new(body, MOST_BYTES).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Refusal::new(Code::BadJson, "the body ended before it was whole")),
        Err(_) => {
            Err(Refusal::new(Code::RequestTimeout, format!("the body did not arrive within {patience:?}")))
        }
    }
}

/// The parameters of a query.
#[derive(Debug)]
pub struct Parameters(pub Fields);

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        if !is_text(parts.uri.query().unwrap_or_default()) {
            return Err(Refusal::new(Code::BadField, "the query is not UTF-8 behind its %-escapes"));
        }
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|error| Refusal::new(Code::BadField, format!("the query cannot be read: {error}")))?;
        let mut left = Map::new();
        for (name, value) in pairs {
            if left.insert(name.clone(), Value::String(value)).is_some() {
                return Err(Refusal::new(Code::BadField, format!("`{}` is given twice", shortened(&name))));
            }
        }
        Ok(Parameters(Fields { left, known: Vec::new(), texts: true }))
    }
}

/// Whether a query is UTF-8 once its escapes are undone: what is not would be read as something else.
fn is_text(query: &str) -> bool {
    let (mut undone, mut left) = (Vec::with_capacity(query.len()), query.as_bytes());
    while let [byte, rest @ ..] = left {
        let escaped = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *byte == b'%');
        undone.push(value.unwrap_or(*byte));
        left = if value.is_some() { &rest[2..] } else { rest };
    }
    std::str::from_utf8(&undone).is_ok()
}

/// The id in a path.
#[derive(Debug)]
pub struct Id(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        // What is not even text is nobody's id.
        path.map(|Path(id)| Id(id))
            .map_err(|_| Refusal::new(Code::NotFound, "the id in the path is not text"))
    }
}

#[cfg(test)]
mod tests {
    use sandtimer::model::LimitKind;
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        let Value::Object(object) = value else { panic!("an object") };
        Fields::new(object)
    }

    #[test]
    fn each_refusal_names_its_field_and_value() {
        let mut given = fields(json!({"a": 1, "b": "x", "c": -1, "d": [1]}));
        assert_eq!(given.text("a").expect_err("a number").message, "a: `1` is not a text");
        assert_eq!(given.truth("b").expect_err("a text").message, "b: `x` is not true or false");
        assert_eq!(
            given.number("c").expect_err("negative").message,
            "c: `-1` is not a whole number from 0 on"
        );
        let refusal = given.finish().expect_err("d is left");
        assert_eq!((refusal.code, refusal.details["key"].as_str()), (Code::UnknownField, Some("d")));
        assert_eq!(refusal.message, "unknown field `d`; known are: a, b, c");
    }

    #[test]
    fn limits_are_the_engines_and_null_is_said_explicitly() {
        let wall = Key::from(LimitKind::Wall);
        let mut given = fields(json!({"wall_ms": null, "cpu_ms": -3}));
        let limits = given.limits(&[wall]).expect("valid");
        assert_eq!(limits.get(wall), sandtimer::limits::Setting::Unlimited);
        let refusal = given.limits(&[LimitKind::Cpu.into()]).expect_err("negative");
        assert!(refusal.message.contains("cpu_ms") && refusal.message.contains("-3"), "{}", refusal.message);
        assert_eq!(refusal.code, Code::BadLimit);
    }
}
