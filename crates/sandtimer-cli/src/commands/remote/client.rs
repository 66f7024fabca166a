//! A client of a server's `/v1`, for commands that send one request and end. No wait is without
//! end.

use std::fmt;
use std::io::Read;
use std::time::Duration;

use serde_json::Value;
use ureq::config::Config;
use ureq::http::Response;
use ureq::typestate::WithBody;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::{Agent, RequestBuilder, SendBody};

use super::super::{CommandFailure, mcp};
use super::socket::Agents;
use crate::args::ServerFlags;

const SERVER: &str = "http://127.0.0.1:7880";
/// An address that nothing is resolved for: what is connected to is a socket.
const AGENTS: &str = "http://127.0.0.1";
/// How long connecting, and the head of an answer, may take. A kill's answer may wait for the run's
/// end.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one answer may take as a whole. A stream of events is asked for again then, from where
/// it was.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a file or directory may take.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(6 * 3600);
/// More than any answer but a stream has.
const MAX_RESPONSE_BYTES: u64 = 256 << 20;
/// The longest file of a token.
const MAX_TOKEN_FILE_BYTES: u64 = 64 << 10;

/// What a server answered instead of what was asked for, or why there is no answer.
#[derive(Debug)]
pub(super) enum RequestRejection {
    Answer { code: String, message: String, hint: String },
    Unreachable { server: String, problem: String },
}

impl RequestRejection {
    /// Whether it is this error of the server's.
    pub fn is(&self, wanted: &str) -> bool {
        matches!(self, RequestRejection::Answer { code, .. } if code == wanted)
    }
}

impl fmt::Display for RequestRejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestRejection::Answer { code, message, hint } => {
                write!(formatter, "{code}: {message}; {hint}")
            }
            RequestRejection::Unreachable { server, problem } => write!(
                formatter,
                "cannot reach the server at {server}: {problem}; start one with `sandtimer serve`, or name it with --server or \
                 SANDTIMER_SERVER"
            ),
        }
    }
}

#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    server: String,
    token: Option<String>,
}

impl Client {
    /// Of this user's server for MCP clients, where one is up and no other server was named.
    pub fn of_agents(flags: &ServerFlags) -> Option<Self> {
        let is_named = std::env::var_os("SANDTIMER_SERVER").is_some_and(|value| !value.is_empty());
        if flags.server.is_some() || is_named || mcp::connect().is_err() {
            return None;
        }
        let agent = Agent::with_parts(config(), Agents, DefaultResolver::default());
        Some(Client { agent, server: AGENTS.to_owned(), token: None })
    }

    /// Of the server that has this run: the one that is named, or that of MCP clients where it is
    /// there.
    pub fn having(flags: &ServerFlags, id: &str) -> Result<Self, CommandFailure> {
        let has = |client: &Client| client.get(&format!("/v1/runs/{id}")).is_ok();
        let usual = Self::new(flags)?;
        let other = Self::of_agents(flags).filter(|agents| has(agents) && !has(&usual));
        Ok(other.unwrap_or(usual))
    }

    pub fn new(flags: &ServerFlags) -> Result<Self, CommandFailure> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let server = flags.server.clone().or_else(|| variable("SANDTIMER_SERVER"));
        let server = server.unwrap_or_else(|| SERVER.to_owned());
        let server = server.trim_end_matches('/').to_owned();
        if !server.starts_with("http://") || server.contains(char::is_whitespace) {
            return Err(CommandFailure::usage(format!(
                "--server: `{}` is not a server's address; use one such as {SERVER}",
                printable(&server)
            )));
        }
        let token = match &flags.token_file {
            Some(path) => Some(token_of(path)?),
            None => variable("SANDTIMER_TOKEN"),
        };
        if token.as_ref().is_some_and(|token| token.contains(|letter: char| !letter.is_ascii_graphic())) {
            return Err(CommandFailure::usage("SANDTIMER_TOKEN: a token is one word"));
        }
        Ok(Client { agent: config().into(), server, token })
    }

    pub fn get(&self, path: &str) -> Result<Value, RequestRejection> {
        self.value(self.send(path, &[])?)
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Value, RequestRejection> {
        let mut request = self.agent.post(format!("{}{path}", self.server));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = request.header("content-type", "application/json").send(body.to_string());
        self.value(answer.map_err(|error| self.unreachable(&error))?)
    }

    /// Sends a body as it is read.
    pub fn put(&self, path: &str, body: impl Read) -> Result<Value, RequestRejection> {
        self.send_body(self.agent.put(format!("{}{path}", self.server)), body)
    }

    /// Posts bytes as they are read.
    pub fn upload(&self, path: &str, body: impl Read) -> Result<Value, RequestRejection> {
        let request = self.agent.post(format!("{}{path}", self.server));
        self.send_body(request.header("content-type", "application/octet-stream"), body)
    }

    fn send_body(
        &self,
        mut request: RequestBuilder<WithBody>,
        mut body: impl Read,
    ) -> Result<Value, RequestRejection> {
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        // What was sent may be unpacked before it is answered.
        let request = request.config().timeout_recv_response(Some(TRANSFER_TIMEOUT)).build();
        let answer = request.send(SendBody::from_reader(&mut body));
        self.value(answer.map_err(|error| self.unreachable(&error))?)
    }

    /// The body of an answer, to be read as it comes, and its length if the server knows it.
    pub fn stream(&self, path: &str) -> Result<(Option<u64>, impl Read + use<>), RequestRejection> {
        let mut request = self.agent.get(format!("{}{path}", self.server));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.config().timeout_recv_body(Some(TRANSFER_TIMEOUT)).build();
        let answer = request.call().map_err(|error| self.unreachable(&error))?;
        if answer.status().is_success() {
            let body = answer.into_body();
            return Ok((body.content_length(), body.into_reader()));
        }
        Err(match self.value(answer) {
            Err(refused) => refused,
            Ok(_) => {
                let problem = "it answered with an error that is not in Sandtimer's format".to_owned();
                RequestRejection::Unreachable { server: self.server.clone(), problem }
            }
        })
    }

    pub fn delete(&self, path: &str) -> Result<(), RequestRejection> {
        let mut request = self.agent.delete(format!("{}{path}", self.server));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = request.call().map_err(|error| self.unreachable(&error))?;
        if answer.status().is_success() { Ok(()) } else { self.value(answer).map(drop) }
    }

    /// The events of a run after this one, to be read as they come; `None` if there are no more.
    pub fn events(
        &self,
        id: &str,
        after: Option<&str>,
    ) -> Result<Option<impl Read + use<>>, RequestRejection> {
        let header = after.map(|after| ("last-event-id", after));
        let answer = self.send(&format!("/v1/runs/{id}/events"), header.as_slice())?;
        match answer.status().as_u16() {
            204 => Ok(None),
            200 => Ok(Some(answer.into_body().into_reader())),
            _ => self.value(answer).map(|_| None),
        }
    }

    fn send(&self, path: &str, headers: &[(&str, &str)]) -> Result<Response<ureq::Body>, RequestRejection> {
        let mut request = self.agent.get(format!("{}{path}", self.server));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.call().map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &ureq::Error) -> RequestRejection {
        RequestRejection::Unreachable { server: self.server.clone(), problem: error.to_string() }
    }

    fn value(&self, mut answer: Response<ureq::Body>) -> Result<Value, RequestRejection> {
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_string();
        let text = text.map_err(|error| self.unreachable(&error))?;
        let value: Option<Value> = serde_json::from_str(&text).ok();
        let field = |name: &str| value.as_ref().and_then(|value| value[name].as_str()).map(str::to_owned);
        match (status.is_success(), &value, field("code")) {
            (true, Some(_), _) => Ok(value.unwrap_or_default()),
            (false, _, Some(code)) => Err(RequestRejection::Answer {
                code,
                message: field("message").unwrap_or_default(),
                hint: field("hint").unwrap_or_default(),
            }),
            _ => Err(RequestRejection::Unreachable {
                server: self.server.clone(),
                problem: format!("it answered with HTTP status {status} and not as Sandtimer does"),
            }),
        }
    }
}

fn config() -> Config {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .timeout_recv_response(Some(CONNECT_TIMEOUT))
        .timeout_recv_body(Some(RESPONSE_TIMEOUT))
        .build()
}

fn token_of(path: &std::path::Path) -> Result<String, CommandFailure> {
    let refused =
        |problem: String| CommandFailure::usage(format!("--token-file: {} {problem}", path.display()));
    let kind = std::fs::metadata(path).map_err(|error| refused(format!("cannot be read: {error}")))?;
    if !kind.is_file() || kind.len() > MAX_TOKEN_FILE_BYTES {
        return Err(refused("is not a file of one token".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refused(format!("cannot be read: {error}")))?;
    match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        [token] => Ok((*token).to_owned()),
        _ => Err(refused("has to hold one word, the token alone".to_owned())),
    }
}

/// An id as it is put into a path.
pub(super) fn checked_id(id: &str) -> Result<&str, CommandFailure> {
    let is_id = !id.is_empty()
        && id.len() <= 100
        && id.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    if is_id {
        return Ok(id);
    }
    let shown = printable(&id.chars().take(100).collect::<String>());
    Err(CommandFailure::usage(format!("`{shown}` is not the id of a run; `sandtimer ps` lists them")))
}

/// Untrusted text on one line of a terminal.
pub(super) fn printable(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        match letter {
            '\n' => shown.push(' '),
            _ if letter.is_control() => shown.extend(letter.escape_default()),
            _ => shown.push(letter),
        }
    }
    shown
}
