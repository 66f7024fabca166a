//! Who is told of a job's end. What is asked for and what became of it; nothing is sent here.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::result::JobResult;
use super::spec::{SpecError, missing};
use super::store::JobLine;
use super::table::{Table, refused};

const MOST_URL: usize = 2_048;
const MOST_HEADERS: usize = 32;
const MOST_TEXT: usize = 4_096;
/// The longest body; of a longer result the body has only how it ended.
const MAX_BODY_BYTES: usize = 1 << 20;
const URL: &str = "an address such as `https://host/path`, without a name and password, in printable ASCII";
/// Headers that a request has anyway.
const OURS: [&str; 9] = [
    "host",
    "connection",
    "content-length",
    "content-type",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
];

/// Where a job's end is told.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// What requests are signed with. A store does not show it.
    pub secret: Option<String>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Webhook").field("url", &self.url).finish_non_exhaustive()
    }
}

/// What became of the telling.
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
        let behind_scheme = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        behind_scheme.split(['/', '?', '#']).next().unwrap_or_default()
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
    /// Those that have failed and are left alone for a while.
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

/// A job's end that one worker tells now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Delivery {
    /// The job.
    pub id: String,
    /// Whose it is.
    #[serde(default)]
    pub owner: String,
    /// Rises with each claim: who comes back after its claim ran out changes nothing.
    pub claim: u64,
    pub webhook: Webhook,
    /// This one included.
    pub attempts: u32,
    /// How often workers returned it since the job ended, because their policy forbids the destination.
    #[serde(default)]
    pub returns: u32,
    /// How long ago the job ended.
    pub age: Duration,
    /// What is to be sent, where the job's record has been removed since.
    #[serde(skip)]
    pub body: Option<Vec<u8>>,
}

impl Delivery {
    pub fn destination(&self) -> Destination {
        Destination { owner: self.owner.clone(), host: self.webhook.destination_host() }
    }
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivered {
    Taken,
    /// It failed, and is tried once more when this time has passed.
    Again {
        after: Duration,
        error: String,
    },
    /// This worker may not send it: the claim counts as no attempt, and other workers may have it when this time has passed.
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

/// Reads `webhook`: from what somebody submits, or as a store gives it back.
pub(super) fn webhook(table: &mut Table, stored: bool) -> Result<Option<Webhook>, SpecError> {
    let Some(mut inner) = table.table("webhook")? else { return Ok(None) };
    let at = inner.at("url");
    let url = inner.text("url")?.ok_or_else(|| missing(&at, URL))?;
    if !is_url(&url) {
        return Err(refused(&at, &url.into(), URL));
    }
    let headers = headers(&mut inner)?;
    let secret = match inner.take("secret") {
        Some(Value::Bool(true)) if stored => None,
        Some(Value::String(text)) if !text.is_empty() && text.len() <= MOST_TEXT => Some(text),
        // Not repeated, whatever it is.
        Some(_) => {
            let problem = format!("is no text of 1 to {MOST_TEXT} bytes");
            return Err(SpecError { path: inner.at("secret"), problem });
        }
        None => None,
    };
    inner.done()?;
    Ok(Some(Webhook { url, headers, secret }))
}

fn is_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let authority = rest.map_or("", |rest| rest.split(['/', '?']).next().unwrap_or_default());
    let is_plain = url.len() <= MOST_URL
        && url.bytes().all(|byte| byte.is_ascii_graphic())
        && !url.contains(['#', '\\']);
    is_plain && !authority.is_empty() && !authority.starts_with(':') && !authority.contains('@')
}

fn headers(table: &mut Table) -> Result<Vec<(String, String)>, SpecError> {
    let at = table.at("headers");
    let headers = table.table("headers")?.map(Table::open_texts).transpose()?.unwrap_or_default();
    if headers.len() > MOST_HEADERS {
        let problem = format!("has {} headers; at most {MOST_HEADERS} are taken", headers.len());
        return Err(SpecError { path: at, problem });
    }
    for (name, value) in &headers {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let is_name = !name.is_empty() && name.len() <= 200 && name.bytes().all(is_token);
        let is_value =
            value.len() <= MOST_TEXT && value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        let lower = name.to_ascii_lowercase();
        let problem = if !is_name {
            "is no name of a header; use letters, digits and dashes"
        } else if OURS.contains(&lower.as_str()) || lower.starts_with("sandtimer-") {
            "is set by whoever sends the request; leave it out"
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
