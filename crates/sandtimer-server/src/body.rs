//! What comes in with a request and what goes out: JSON objects of a bounded size, read within a
//! bounded time, whose fields are taken one by one so that each refusal names its field and value
//! and nothing is left unread.
//!
//! A body is scanned while it arrives ([`Scanner`]) and, where it is long, reserved
//! ([`HeldReservations`]) and parsed on a thread that may block: a server that parses for one
//! client continues to answer the others.

mod json_text;

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRef, FromRequest, FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{Request, header};
use axum::response::Response;
use base64::prelude::{BASE64_STANDARD as STANDARD, Engine as _};
use http_body_util::BodyExt;
use sandtimer::Limits;
use sandtimer::limits::{Key, from_json, name_wall};
use sandtimer::model::LimitKind;
use sandtimer::vocabulary;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::auth::OwnerId;
use crate::error::{ApiRejection, Code};
use crate::intake::{
    self, AnswerReservation, HeldReservations, Intake, MAX_SHORT_BYTES, Messages, Reservation,
};
use crate::scan::Scanner;

pub use json_text::{json, with_pretty};
use json_text::{of_json, write_json};

/// The largest body.
pub const MAX_BODY_BYTES: usize = 64 << 20;
/// How long the sender of a body that is refused may pause before it has its answer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// What a value takes in memory that is hardly longer than its text, such as `{"":0}`.
const VALUE_BYTES: usize = 600;
/// The longest part of a refused value that a message repeats.
const MAX_SHOWN_CHARS: usize = 60;

/// A value that knows whether its JSON may be long.
pub trait MayBeLong: serde::Serialize {
    /// Whether it has a permit for what is large: its JSON is written where that may block.
    fn may_be_long(&self) -> bool;
}

/// An answer of JSON that may be long. Memory is reserved for it before it is written, on a thread
/// that may block; where there is none, what it is of is dropped, and made again when there is.
///
/// # Errors
/// Those of `make`; when the owner's answers leave no memory for this one in time.
pub async fn long_json<T, E, F>(
    messages: &Messages,
    owner: &OwnerId,
    mut make: impl FnMut() -> F,
) -> Result<Response, E>
where
    T: MayBeLong,
    E: From<ApiRejection>,
    F: Future<Output = Result<T, E>>,
{
    let mut waited: Option<(usize, Reservation)> = None;
    loop {
        let value = make().await?;
        let text = if value.may_be_long() {
            tokio::task::block_in_place(|| JsonPrefix::of(&value))
        } else {
            JsonPrefix::of(&value)
        };
        let Err(bytes) = text.whole() else { return Ok(of_json(text.beginning)) };
        drop(text);
        // What was reserved and is too little is given back first.
        let mut reserved = waited.take().filter(|(enough, _)| *enough >= bytes).map(|(_, reserved)| reserved);
        if reserved.is_none() {
            reserved = messages.answers.try_reserve(owner, bytes).ok();
        }
        if let Some(reserved) = reserved {
            let mut answer = of_json(long_json_bytes(&value, bytes));
            answer.extensions_mut().insert(AnswerReservation::new(reserved));
            return Ok(answer);
        }
        drop(value);
        waited = Some((bytes, messages.answers.reserve(owner, bytes, messages.patience).await?));
    }
}

/// The first [`MAX_SHORT_BYTES`] of a value's JSON, and the length of all of it.
#[derive(Debug, Default)]
pub(crate) struct JsonPrefix {
    pub beginning: Vec<u8>,
    bytes: usize,
}

impl JsonPrefix {
    pub fn of(value: &impl serde::Serialize) -> Self {
        let mut text = JsonPrefix::default();
        write_json(&mut text, value);
        text
    }

    /// Whether the beginning is all of it.
    ///
    /// # Errors
    /// The length of all of it where it is longer.
    pub fn whole(&self) -> Result<(), usize> {
        if self.bytes == self.beginning.len() { Ok(()) } else { Err(self.bytes) }
    }
}

impl std::io::Write for JsonPrefix {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let room = MAX_SHORT_BYTES - self.beginning.len();
        self.beginning.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.bytes += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A value's JSON, which has `bytes` bytes. Blocks this thread, not the others' work on it.
pub(crate) fn long_json_bytes(value: &impl serde::Serialize, bytes: usize) -> Vec<u8> {
    // For a newline after it, too.
    let mut text = Vec::with_capacity(bytes + 1);
    tokio::task::block_in_place(|| write_json(&mut text, value));
    text
}

/// How many bytes a value's JSON has.
pub(crate) fn json_bytes(value: &impl serde::Serialize) -> usize {
    JsonPrefix::of(value).bytes
}

/// In characters.
const MAX_REASON_CHARS: usize = 200;

/// The fields of a request's body or query, taken one by one.
#[derive(Debug, Default)]
pub struct RequestFields {
    left: Map<String, Value>,
    known: Vec<&'static str>,
    /// A query knows only texts, so its numbers are read from them.
    texts: bool,
}

impl RequestFields {
    pub fn new(object: Map<String, Value>) -> Self {
        RequestFields { left: object, known: Vec::new(), texts: false }
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

    /// Whether a field is there that was not taken yet.
    pub fn has(&self, name: &str) -> bool {
        self.left.contains_key(name)
    }

    /// A digest of what is not taken yet: the same for the same fields.
    pub fn digest(&self) -> Vec<u8> {
        let mut digest = Digest(Sha256::new());
        // Plain data with text keys always serialises.
        let _ = serde_json::to_writer(&mut digest, &self.left);
        digest.0.finalize().to_vec()
    }

    pub fn string(&mut self, name: &'static str) -> Result<Option<String>, ApiRejection> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(refused(name, &other, "a string")),
        }
    }

    /// Bytes: a text, or base64 where the field `encoding` says so.
    pub fn bytes(
        &mut self,
        name: &'static str,
        encoding: &'static str,
    ) -> Result<Option<Vec<u8>>, ApiRejection> {
        let is_base64 = self.enumeration(encoding, &["utf-8", "base64"])? == Some("base64");
        let Some(text) = self.string(name)? else { return Ok(None) };
        if !is_base64 {
            return Ok(Some(text.into_bytes()));
        }
        let decoded = intake::decode(text.len(), || STANDARD.decode(&text));
        decoded.map(Some).map_err(|_| refused(name, &Value::String(text), "base64 with its padding"))
    }

    /// Takes the reason for an end, with `who` as the default; cut to what a verdict shows.
    pub fn reason(&mut self, who: &str) -> Result<String, ApiRejection> {
        let given = self.string("reason")?.unwrap_or_else(|| format!("{who} asked for its end"));
        Ok(given.chars().take(MAX_REASON_CHARS).collect())
    }

    pub fn boolean(&mut self, name: &'static str) -> Result<Option<bool>, ApiRejection> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(Value::String(text)) if self.texts && (text == "true" || text == "false") => {
                Ok(Some(text == "true"))
            }
            Some(other) => Err(refused(name, &other, "true or false")),
        }
    }

    /// A whole number from 0 on.
    pub fn number(&mut self, name: &'static str) -> Result<Option<u64>, ApiRejection> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let number = match &value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) if self.texts => text.parse().ok(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| refused(name, &value, "a whole number from 0 on"))
    }

    /// A number of milliseconds.
    pub fn milliseconds(&mut self, name: &'static str) -> Result<Option<Duration>, ApiRejection> {
        Ok(self.number(name)?.map(Duration::from_millis))
    }

    /// Takes a field that must be one of `choices`.
    pub fn enumeration(
        &mut self,
        name: &'static str,
        choices: &[&'static str],
    ) -> Result<Option<&'static str>, ApiRejection> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let found = choices.iter().find(|choice| value.as_str() == Some(**choice));
        found
            .map(|choice| Some(*choice))
            .ok_or_else(|| refused(name, &value, &format!("one of {}", choices.join(", "))))
    }

    /// A language by its name, or by another name of it that is as good.
    pub fn language(
        &mut self,
        name: &'static str,
        languages: &[&'static str],
    ) -> Result<Option<&'static str>, ApiRejection> {
        if let Some(Value::String(given)) = self.left.get_mut(name) {
            *given = vocabulary::language(given).to_owned();
        }
        self.enumeration(name, languages)
    }

    /// The limits of these kinds, by their names on wires.
    pub fn limits(&mut self, keys: &[Key]) -> Result<Limits, ApiRejection> {
        let mut limits = Limits::new();
        if keys.contains(&LimitKind::Wall.into()) {
            name_wall(&mut self.left, "the request")?;
        }
        for key in keys {
            self.known.push(key.wire());
            if let Some(value) = self.left.remove(key.wire()) {
                limits.set(*key, from_json(key.wire(), &value, "the request")?);
            }
        }
        Ok(limits)
    }

    /// The refusal of a field that is another tool's name for one of these, which are missing, or
    /// one of them misspelled.
    pub fn misnamed(&self, names: &[&str]) -> Option<ApiRejection> {
        let names = names.iter().copied();
        self.left.keys().find_map(|name| {
            let (meant, hint) = vocabulary::meant_or_misspelled(name, names.clone())?;
            let message = format!("unknown field `{}`{hint}", shortened(name));
            Some(
                ApiRejection::new(Code::UnknownField, message)
                    .with("key", name.clone())
                    .with("nearest", meant),
            )
        })
    }

    /// Refuses what was not taken.
    pub fn finish(self) -> Result<(), ApiRejection> {
        let Some((name, _)) = self.left.into_iter().next() else { return Ok(()) };
        let known = if self.known.is_empty() { "none".to_owned() } else { self.known.join(", ") };
        let meant = vocabulary::meant(&name, self.known.iter().copied());
        let called = meant.map_or_else(String::new, |meant| format!(", which is `{meant}` here"));
        let message = format!("unknown field `{}`{called}; known are: {known}", shortened(&name));
        let rejection = ApiRejection::new(Code::UnknownField, message).with("key", name);
        Err(match meant {
            Some(meant) => rejection.with("nearest", meant),
            None => rejection,
        })
    }
}

struct Digest(Sha256);

impl std::io::Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A field that has a value it cannot have.
pub fn refused(name: &str, value: &Value, wanted: &str) -> ApiRejection {
    let shown = match value {
        Value::String(text) => shortened(text),
        other => shortened(&beginning(other)),
    };
    ApiRejection::new(Code::BadField, format!("{name}: `{shown}` is not {wanted}"))
        .with("key", name)
        .with("value", shown)
}

/// As much of a value's JSON as is ever shown.
fn beginning(value: &Value) -> String {
    struct PrefixWriter(Vec<u8>);
    impl std::io::Write for PrefixWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.extend_from_slice(&bytes[..bytes.len().min(MAX_SHOWN_CHARS * 4 + 4)]);
            // What follows is not made.
            if self.0.len() > MAX_SHOWN_CHARS * 4 {
                Err(std::io::ErrorKind::WriteZero.into())
            } else {
                Ok(bytes.len())
            }
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut text = PrefixWriter(Vec::new());
    let _ = serde_json::to_writer(&mut text, value);
    String::from_utf8_lossy(&text.0).into_owned()
}

fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_default).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// The fields of a body. An empty body is an empty object.
#[derive(Debug)]
pub struct Object(pub RequestFields);

impl<S: Send + Sync> FromRequest<S> for Object
where
    Messages: FromRef<S>,
{
    type Rejection = ApiRejection;

    async fn from_request(request: Request<Body>, state: &S) -> Result<Self, ApiRejection> {
        let bytes = bytes(request, &Messages::from_ref(state), Some(Scanner::new())).await?;
        if bytes.is_empty() {
            return Ok(Object(RequestFields::default()));
        }
        match intake::parse(bytes, |bytes| serde_json::from_slice(&bytes)).await? {
            Ok(Value::Object(object)) => Ok(Object(RequestFields::new(object))),
            Ok(_) => Err(ApiRejection::new(Code::BadJson, "the body is JSON, but not an object")),
            Err(error) => Err(ApiRejection::new(Code::BadJson, format!("the body is not JSON: {error}"))),
        }
    }
}

fn too_large() -> ApiRejection {
    ApiRejection::new(Code::BodyTooLarge, format!("the body has more than {MAX_BODY_BYTES} bytes"))
        .with("most_bytes", MAX_BODY_BYTES)
}

/// All bytes of a body, which the scanner bounds where it is JSON.
pub async fn bytes(
    request: Request<Body>,
    messages: &Messages,
    scanner: Option<Scanner>,
) -> Result<Vec<u8>, ApiRejection> {
    let declared = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        return Err(too_large());
    }
    let (parts, mut body) = request.into_parts();
    let reader = BodyReader {
        intake: &messages.requests,
        owner: parts.extensions.get::<OwnerId>(),
        held: parts.extensions.get::<HeldReservations>(),
        patience: messages.patience,
        declared: declared.and_then(|length| usize::try_from(length).ok()),
    };
    let read = reader.read(&mut body, scanner).await;
    if matches!(&read, Err(rejection) if rejection.code != Code::RequestTimeout) {
        // Its sender reads the answer once all of it is sent.
        let rest = drain(&mut body);
        let _ = tokio::time::timeout(messages.patience, rest).await;
    }
    read
}

/// Reads and forgets what is left of a body, until its sender pauses.
async fn drain(body: &mut Body) {
    let mut left = MAX_BODY_BYTES;
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(DRAIN_TIMEOUT, body.frame()).await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}

/// Reads one body.
struct BodyReader<'a> {
    intake: &'a Intake,
    owner: Option<&'a OwnerId>,
    held: Option<&'a HeldReservations>,
    patience: Duration,
    /// How many bytes it is to have.
    declared: Option<usize>,
}

impl BodyReader<'_> {
    async fn read(&self, body: &mut Body, mut scanner: Option<Scanner>) -> Result<Vec<u8>, ApiRejection> {
        let mut reserved = match self.declared {
            Some(length) if length > MAX_SHORT_BYTES => self.reserve(length).await?,
            _ => None,
        };
        let mut read = Vec::new();
        let deadline = tokio::time::Instant::now() + self.patience;
        loop {
            let frame = match tokio::time::timeout_at(deadline, body.frame()).await {
                Ok(None) => break,
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(_))) => {
                    return Err(ApiRejection::new(Code::BadJson, "the body ended before it was whole"));
                }
                Err(_) => {
                    let message = format!("the body did not arrive within {:?}", self.patience);
                    return Err(ApiRejection::new(Code::RequestTimeout, message));
                }
            };
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > MAX_BODY_BYTES - read.len() {
                return Err(too_large());
            }
            if let Some(scanner) = &mut scanner {
                scanner.feed(&data).map_err(|excess| excess.into_rejection("the body"))?;
            }
            // Its length was not declared.
            if reserved.is_none() && read.len() + data.len() > MAX_SHORT_BYTES {
                reserved = self.reserve(MAX_BODY_BYTES).await?;
            }
            read.extend_from_slice(&data);
        }
        let parsed = scanner.map_or(0, |scanner| scanner.values_in_all() * VALUE_BYTES);
        let parsed = match self.owner {
            // Not waited for, with bytes reserved that others may wait for.
            Some(owner) if parsed > MAX_SHORT_BYTES * 4 => Some(self.intake.try_reserve(owner, parsed)?),
            _ => None,
        };
        if let Some(held) = self.held {
            reserved.into_iter().chain(parsed).for_each(|reserved| held.keep(reserved));
        }
        Ok(read)
    }

    async fn reserve(&self, bytes: usize) -> Result<Option<Reservation>, ApiRejection> {
        match self.owner {
            Some(owner) => self.intake.reserve(owner, bytes, self.patience).await.map(Some),
            // Paths without an owner take no body.
            None => Err(too_large()),
        }
    }
}

/// The parameters of a query.
#[derive(Debug)]
pub struct Parameters(pub RequestFields);

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = ApiRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiRejection> {
        if !is_utf8(parts.uri.query().unwrap_or_default()) {
            return Err(ApiRejection::new(
                Code::BadField,
                "the query is not UTF-8 once its %-escapes are decoded",
            ));
        }
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_err(|error| {
            ApiRejection::new(Code::BadField, format!("the query cannot be read: {error}"))
        })?;
        let mut left = Map::new();
        for (name, value) in pairs {
            if left.insert(name.clone(), Value::String(value)).is_some() {
                return Err(ApiRejection::new(
                    Code::BadField,
                    format!("`{}` is given twice", shortened(&name)),
                ));
            }
        }
        Ok(Parameters(RequestFields { left, known: Vec::new(), texts: true }))
    }
}

/// Whether a query is UTF-8 once its escapes are undone: what is not would be read as something
/// else.
fn is_utf8(query: &str) -> bool {
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
    type Rejection = ApiRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiRejection> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        // A string that is not UTF-8 is not an id.
        path.map(|Path(id)| Id(id))
            .map_err(|_| ApiRejection::new(Code::NotFound, "the id in the path is not text"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> RequestFields {
        let Value::Object(object) = value else { panic!("an object") };
        RequestFields::new(object)
    }

    #[test]
    fn each_rejection_names_its_field_and_value() {
        let mut given = fields(json!({"a": 1, "b": "x", "c": -1, "d": [1]}));
        assert_eq!(given.string("a").expect_err("a number").message, "a: `1` is not a string");
        assert_eq!(given.boolean("b").expect_err("a string").message, "b: `x` is not true or false");
        assert_eq!(
            given.number("c").expect_err("negative").message,
            "c: `-1` is not a whole number from 0 on"
        );
        let rejection = given.finish().expect_err("d is left");
        assert_eq!((rejection.code, rejection.details["key"].as_str()), (Code::UnknownField, Some("d")));
        assert_eq!(rejection.message, "unknown field `d`; known are: a, b, c");
    }

    #[test]
    fn limits_match_the_engine_and_null_is_explicit() {
        let wall = Key::from(LimitKind::Wall);
        let mut given = fields(json!({"wall_ms": null, "cpu_ms": -3}));
        let limits = given.limits(&[wall]).expect("valid");
        assert_eq!(limits.get(wall), sandtimer::limits::Setting::Unlimited);
        let rejection = given.limits(&[LimitKind::Cpu.into()]).expect_err("negative");
        assert!(
            rejection.message.contains("cpu_ms") && rejection.message.contains("-3"),
            "{}",
            rejection.message
        );
        assert_eq!(rejection.code, Code::BadLimit);
    }
}
