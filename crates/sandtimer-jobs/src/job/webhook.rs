//! The delivery of a job's end: where it is sent, and its state. Nothing is sent here.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_PAD_INDIFFERENT;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{SpecError, missing};
use super::result::JobStatus;
use super::state::JobState;
use super::table::{SpecTable, refused};

const MAX_URL_BYTES: usize = 2_048;
const MAX_HEADERS: usize = 32;
const MAX_FIELD_BYTES: usize = 4_096;
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

/// How a job ended, as a webhook selects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobEnd {
    /// It succeeded.
    Ok,
    /// A program failed, or Sandtimer could not do its part.
    Failed,
    /// A limit of time ended it.
    Timeout,
    /// A limit on the turns or failures of a loop ended it.
    Budget,
    /// It was cancelled.
    Cancelled,
    /// It was handed out too often without a result.
    Dead,
}

impl JobEnd {
    /// All ends.
    pub const ALL: [JobEnd; 6] =
        [JobEnd::Ok, JobEnd::Failed, JobEnd::Timeout, JobEnd::Budget, JobEnd::Cancelled, JobEnd::Dead];

    /// Returns the name on wires, such as `ok`.
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

    /// Returns the end of a job that has ended in this state with this status.
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

/// A request that is made when a job has ended.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// The address of the request: `http` or `https`, at most 2,048 bytes.
    pub url: String,
    /// Further headers of the request, at most 32.
    pub headers: Vec<(String, String)>,
    /// The secret by which requests are signed, if they are. A store does not show it.
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

/// The state of the delivery of a job's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookState {
    /// The address of the request.
    pub url: String,
    /// The number of attempts since the job's end.
    pub attempts: u32,
    /// When the receiver accepted it, in milliseconds since 1970.
    pub delivered_ms: Option<u64>,
    /// Why the last attempt failed, or why no further one is made.
    pub error: Option<String>,
    /// When the next attempt is due, in milliseconds since 1970; `None` if there is none.
    pub due_ms: Option<u64>,
}

impl Webhook {
    /// Returns the host with its port, as the address has it.
    pub fn host(&self) -> &str {
        let without_scheme = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        without_scheme.split(['/', '?', '#']).next().unwrap_or_default()
    }

    /// Returns the host with its port in lower case, as [`Destination`] has it.
    pub fn destination_host(&self) -> String {
        self.host().to_ascii_lowercase()
    }
}

/// The owner of a webhook, and the host that receives it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Destination {
    /// The owner of the job.
    pub owner: String,
    /// The host with its port, in lower case.
    pub host: String,
}

/// How a worker shares its deliveries out among owners and hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookShares {
    /// The largest number of deliveries under way for one owner, and to one host; 0 is unlimited.
    pub each: usize,
    /// The destinations of the deliveries that are under way, one entry for each.
    pub under_way: Vec<Destination>,
    /// The destinations that failed lately and get nothing for a while.
    pub paused: Vec<Destination>,
}

impl WebhookShares {
    /// Whether one more may be sent to a destination.
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
    /// The id of the job.
    pub id: String,
    /// The owner of the job.
    #[serde(default)]
    pub owner: String,
    /// A number that is higher for each claim: a worker whose claim has run out changes nothing.
    pub claim: u64,
    /// Where it is sent, and how it is signed.
    pub webhook: Webhook,
    /// The number of attempts, this one included.
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
    /// The body of the request, if the job's record has been removed since its end.
    #[serde(skip)]
    pub body: Option<Vec<u8>>,
}

impl Delivery {
    /// Returns the id of the message: the same for each attempt to deliver this end, and another
    /// one for each other end.
    pub fn message_id(&self) -> String {
        format!("{}-{}", self.id, self.ended_ms)
    }

    /// Returns the owner and host that the shares count.
    pub fn destination(&self) -> Destination {
        Destination { owner: self.owner.clone(), host: self.webhook.destination_host() }
    }
}

/// The result of an attempt to deliver a job's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryResult {
    /// The receiver answered with a 2xx status.
    Taken,
    /// It failed, and is tried once more when this time has passed.
    Again {
        /// The time until the next attempt.
        after: Duration,
        /// Why it failed.
        error: String,
    },
    /// This worker may not send it: the claim counts as no attempt, and other workers may have it
    /// when this time has passed.
    Returned {
        /// The time until a worker may claim it.
        after: Duration,
        /// What forbids it.
        error: String,
    },
    /// It failed, and is not tried any more.
    Never {
        /// Why it failed.
        error: String,
    },
}

/// Reads `webhook`: from a spec that is submitted, or from one that a store has kept.
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

/// Returns the key that a secret stands for: the decoded key of a secret of Standard Webhooks,
/// which begins with `whsec_`, else the bytes of the secret.
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
