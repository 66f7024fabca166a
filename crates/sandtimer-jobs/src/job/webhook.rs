//! Webhooks, which receive the end of a job: what a spec requests, and the state of the delivery;
//! nothing is sent here.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_PAD_INDIFFERENT;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{SpecError, missing};
use super::result::{JobResult, JobStatus};
use super::state::JobState;
use super::store::JobLine;
use super::table::{SpecTable, refused};

const MAX_URL_BYTES: usize = 2_048;
const MAX_HEADERS: usize = 32;
const MAX_FIELD_BYTES: usize = 4_096;
/// The longest body; of a longer result the body has only how it ended.
const MAX_BODY_BYTES: usize = 1 << 20;
const URL: &str = "an address such as `https://host/path`, without a name and password, in printable ASCII";
/// Headers that a request has anyway.
const OURS: [&str; 12] = [
    "host",
    "connection",
    "content-length",
    "content-type",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
];
/// What a secret of Standard Webhooks begins with; the key follows in base64.
const KEY_PREFIX: &str = "whsec_";

/// How a job ended, as a webhook's spec names ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEnd {
    Ok,
    Failed,
    Timeout,
    Budget,
    Cancelled,
    Dead,
}

impl JobEnd {
    pub const ALL: [JobEnd; 6] =
        [JobEnd::Ok, JobEnd::Failed, JobEnd::Timeout, JobEnd::Budget, JobEnd::Cancelled, JobEnd::Dead];

    pub fn name(self) -> &'static str {
        match self {
            JobEnd::Ok => "ok",
            JobEnd::Failed => "failed",
            JobEnd::Timeout => "timeout",
            JobEnd::Budget => "budget",
            JobEnd::Cancelled => "cancelled",
            JobEnd::Dead => "dead",
        }
    }

    /// The end of a job that has ended in this state with this status.
    pub fn of(state: JobState, status: JobStatus) -> Self {
        match (state, status) {
            (JobState::Dead, _) => JobEnd::Dead,
            (JobState::Cancelled, _) | (_, JobStatus::Cancelled) => JobEnd::Cancelled,
            (_, JobStatus::Ok) => JobEnd::Ok,
            (_, JobStatus::Timeout) => JobEnd::Timeout,
            (_, JobStatus::Budget) => JobEnd::Budget,
            (_, JobStatus::Failed | JobStatus::InfraError | JobStatus::Lost | JobStatus::Drained) => {
                JobEnd::Failed
            }
        }
    }
}

/// Where a job's end is delivered.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// What requests are signed with. A store does not show it.
    pub secret: Option<String>,
    /// The ends that are sent; all of them if it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<JobEnd>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Webhook").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The state of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookState {
    pub url: String,
    /// How often it was tried since the job's end.
    pub attempts: u32,
    /// When it was taken, in milliseconds since 1970.
    pub delivered_ms: Option<u64>,
    /// Why the last attempt failed, or none will be made any more.
    pub error: Option<String>,
    /// When the next attempt is due; `None` where there is none.
    pub due_ms: Option<u64>,
}

impl Webhook {
    /// The host with its port, as the address has it.
    pub fn host(&self) -> &str {
        let without_scheme = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        without_scheme.split(['/', '?', '#']).next().unwrap_or_default()
    }

    /// The same as destinations are compared by.
    pub fn destination_host(&self) -> String {
        self.host().to_ascii_lowercase()
    }
}

/// Whose webhook goes where.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Destination {
    pub owner: String,
    pub host: String,
}

/// How a worker's webhooks are shared out among owners and hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookShares {
    /// How many one owner, and one host, may have under way; 0 is any number.
    pub each: usize,
    /// Those under way.
    pub under_way: Vec<Destination>,
    /// Destinations that have failed and are left alone for a while.
    pub paused: Vec<Destination>,
}

impl WebhookShares {
    /// Whether one more may be sent there.
    pub fn admit(&self, to: &Destination) -> bool {
        let count =
            |same: &dyn Fn(&Destination) -> bool| self.under_way.iter().filter(|other| same(other)).count();
        !self.paused.contains(to)
            && (self.each == 0
                || (count(&|other| other.owner == to.owner) < self.each
                    && count(&|other| other.host == to.host) < self.each))
    }
}

/// A job's end that one worker delivers now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delivery {
    /// The job.
    pub id: String,
    /// Whose it is.
    #[serde(default)]
    pub owner: String,
    /// Rises with each claim: a worker that comes back after its claim has expired changes nothing.
    pub claim: u64,
    pub webhook: Webhook,
    /// This one included.
    pub attempts: u32,
    /// How often workers returned it since the job ended, because their policy forbids the
    /// destination.
    #[serde(default)]
    pub returns: u32,
    /// How long ago the job ended, or its end was to be delivered again.
    pub age: Duration,
    /// When the job ended, in milliseconds since 1970.
    #[serde(default)]
    pub ended_ms: u64,
    /// What is to be sent, where the job's record has been removed since.
    #[serde(skip)]
    pub body: Option<Vec<u8>>,
}

impl Delivery {
    /// The id of what is sent: the same for each attempt to deliver this end, and another one for
    /// each other end.
    pub fn message_id(&self) -> String {
        format!("{}-{}", self.id, self.ended_ms)
    }

    pub fn destination(&self) -> Destination {
        Destination { owner: self.owner.clone(), host: self.webhook.destination_host() }
    }
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryResult {
    Taken,
    /// It failed, and is tried once more when this time has passed.
    Again {
        after: Duration,
        error: String,
    },
    /// This worker may not send it: the claim counts as no attempt, and other workers may have it
    /// when this time has passed.
    Returned {
        after: Duration,
        error: String,
    },
    /// It failed, and is not tried any more.
    Never {
        error: String,
    },
}

/// The body of a request: the job's end and its result without the output, which the log has.
pub fn webhook_body(line: &JobLine, result: Option<&JobResult>) -> Vec<u8> {
    let complete = body_with(line, result);
    if complete.len() <= MAX_BODY_BYTES {
        return complete;
    }
    let bare = |result: &JobResult| JobResult {
        verdict: result.verdict.clone(),
        files: result.files.clone(),
        ..JobResult::bare(result.status, result.error.clone())
    };
    body_with(line, result.map(bare).as_ref())
}

fn body_with(line: &JobLine, result: Option<&JobResult>) -> Vec<u8> {
    // Plain data with string keys always serialises.
    let mut result = serde_json::to_value(result).unwrap_or_default();
    if let Some(outcome) = result.get_mut("outcome").and_then(Value::as_object_mut) {
        outcome.remove("stdout");
        outcome.remove("stderr");
    }
    let body = serde_json::json!({
        "id": line.id,
        "name": line.name,
        "state": line.state,
        "ok": line.ok,
        "error": line.error,
        "submitted_ms": line.submitted_ms,
        "ended_ms": line.ended_ms,
        "deliveries": line.deliveries,
        "result": result,
    });
    body.to_string().into_bytes()
}

/// Reads `webhook`: from a submitted spec, or from one that a store returns.
pub(super) fn webhook(table: &mut SpecTable, stored: bool) -> Result<Option<Webhook>, SpecError> {
    let Some(mut inner) = table.table("webhook")? else { return Ok(None) };
    let at = inner.at("url");
    let url = inner.string("url")?.ok_or_else(|| missing(&at, URL))?;
    if !is_url(&url) {
        return Err(refused(&at, &url.into(), URL));
    }
    let headers = headers(&mut inner, stored)?;
    let secret = match inner.take("secret") {
        Some(Value::Bool(true)) if stored => None,
        Some(Value::String(text)) if !text.is_empty() && text.len() <= MAX_FIELD_BYTES => {
            check_secret(&text).map_err(|problem| SpecError { path: inner.at("secret"), problem })?;
            Some(text)
        }
        // Not repeated, whatever it is.
        Some(_) => {
            let problem = format!("is not a string of 1 to {MAX_FIELD_BYTES} bytes");
            return Err(SpecError { path: inner.at("secret"), problem });
        }
        None => None,
    };
    let events = events(&mut inner)?;
    inner.done()?;
    Ok(Some(Webhook { url, headers, secret, events }))
}

/// Refuses a secret of Standard Webhooks whose key receivers could not read.
fn check_secret(secret: &str) -> Result<(), String> {
    match secret.strip_prefix(KEY_PREFIX).map(|text| STANDARD_PAD_INDIFFERENT.decode(text)) {
        None => Ok(()),
        Some(Ok(key)) if !key.is_empty() => Ok(()),
        Some(_) => Err(format!(
            "begins with `{KEY_PREFIX}`, and what follows is not a key in base64; correct it, or use a secret that begins \
             with something else"
        )),
    }
}

/// Returns the key of a secret: the decoded key of one of Standard Webhooks, else its own bytes.
pub fn signing_key(secret: &str) -> Vec<u8> {
    let key = secret.strip_prefix(KEY_PREFIX).and_then(|text| STANDARD_PAD_INDIFFERENT.decode(text).ok());
    key.filter(|key| !key.is_empty()).unwrap_or_else(|| secret.as_bytes().to_vec())
}

/// The ends that are chosen; none if all are sent.
fn events(table: &mut SpecTable) -> Result<Vec<JobEnd>, SpecError> {
    let at = table.at("events");
    let Some(names) = table.strings("events")? else { return Ok(Vec::new()) };
    let known = || JobEnd::ALL.map(JobEnd::name).join(", ");
    if names.is_empty() {
        let problem = format!("is empty; name one or more of {}, or leave it out for all ends", known());
        return Err(SpecError { path: at, problem });
    }
    let mut events = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let found = JobEnd::ALL.into_iter().find(|end| end.name() == name);
        let end = found.ok_or_else(|| {
            refused(&format!("{at}[{index}]"), &name.into(), &format!("one of {}", known()))
        })?;
        if !events.contains(&end) {
            events.push(end);
        }
    }
    Ok(events)
}

fn is_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let authority = rest.map_or("", |rest| rest.split(['/', '?']).next().unwrap_or_default());
    let is_plain = url.len() <= MAX_URL_BYTES
        && url.bytes().all(|byte| byte.is_ascii_graphic())
        && !url.contains(['#', '\\']);
    is_plain && !authority.is_empty() && !authority.starts_with(':') && !authority.contains('@')
}

/// `stored`: jobs of earlier versions may have headers that a request has by itself today.
fn headers(table: &mut SpecTable, stored: bool) -> Result<Vec<(String, String)>, SpecError> {
    let at = table.at("headers");
    let headers = table.table("headers")?.map(SpecTable::open_strings).transpose()?.unwrap_or_default();
    if headers.len() > MAX_HEADERS {
        let problem = format!("has {} headers; at most {MAX_HEADERS} are taken", headers.len());
        return Err(SpecError { path: at, problem });
    }
    for (name, value) in &headers {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_name = !name.is_empty() && name.len() <= 200 && name.bytes().all(is_token);
        let is_value = value.len() <= MAX_FIELD_BYTES
            && value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let lower = name.to_ascii_lowercase();
        let problem = if !is_name {
            "is not the name of a header; use letters, digits and dashes"
        } else if !stored && (OURS.contains(&lower.as_str()) || lower.starts_with("sandtimer-")) {
            "is set by the sender of the request; leave it out"
        } else if !is_value {
            "has a value that no header can have; use printable ASCII on one line"
        } else {
            continue;
        };
        let shown: String = name.chars().take(80).collect();
        return Err(SpecError { path: format!("{at}.{shown:?}"), problem: problem.to_owned() });
    }
    Ok(headers)
}

/// Takes the secret out of a spec that a store keeps.
pub(super) fn hide(source: &mut Value) {
    if let Some(secret) = source.get_mut("webhook").and_then(|webhook| webhook.get_mut("secret")) {
        *secret = Value::Bool(true);
    }
}
