//! What a session over HTTP works in, as the address and the headers of its requests name it: a
//! sandbox of its own, and the host's network.
//!
//! ```text
//! asked for ─▶ initialize ─▶ made ⇄ used by all requests of its Mcp-Session-Id ─▶ deleted
//!                  └─▶ a JSON-RPC error, no session and no sandbox
//! ```
//! | the sandbox ends | by |
//! |---|---|
//! | with its session | DELETE, an hour without a request, a client that left during `initialize` |
//! | with the server | its stop, which waits for the deletion; after a kill the idle limit |
//! | before its session | its owner, a limit of it or of the operator; calls then get an error |
//!
//! | what fails | the client gets |
//! |---|---|
//! | no such template, a quota, no right to the network | an error of `initialize` |
//! | two spellings that differ, a limit that is none | an error of `initialize` and of calls |
//! | a request without a session | an error; clients that probe open a session then |
//! | a request for another place than its session has | an error |

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::request::Parts;
use rmcp::ErrorData;
use rmcp::model::Extensions;
use sandtimer::Limits;
use sandtimer::limits::Setting;
use sandtimer::model::LimitKind;

use super::conversation::{self, Conversation, ListedNames, OwnerState, ShownTools};
use crate::body::{RequestFields, refused};
use crate::error::{ApiRejection, Code};

/// The header for clients that cannot change the address.
const SANDBOX_HEADER: &str = "Sandtimer-Sandbox";
/// The limits of the sandbox as a whole that a client can choose.
const SANDBOX_LIMITS: [LimitKind; 3] = [LimitKind::Idle, LimitKind::Memory, LimitKind::Processes];
/// Of a value that an error names.
const MAX_SHOWN_CHARS: usize = 60;

/// What a request asks for. An error is kept for the JSON-RPC answer: most clients do not show the
/// bodies of HTTP errors.
#[derive(Debug, Clone)]
pub(crate) struct RequestedPlace(Result<SessionPlace, ApiRejection>);

#[derive(Debug, Clone, Default, PartialEq)]
struct SessionPlace {
    template: Option<String>,
    limits: Limits,
    network: bool,
}

impl RequestedPlace {
    /// `sandbox`, its limits, and `network`.
    pub fn parse(fields: &mut RequestFields, headers: &HeaderMap) -> Self {
        RequestedPlace(SessionPlace::parse(fields, headers))
    }

    /// Whether all of its fields were read.
    pub fn is_valid(&self) -> bool {
        self.0.is_ok()
    }

    fn of(extensions: &Extensions) -> Result<SessionPlace, ErrorData> {
        let parts = extensions.get::<Parts>();
        let requested = parts.and_then(|parts| parts.extensions.get::<RequestedPlace>());
        requested.map_or_else(|| Ok(SessionPlace::default()), |requested| requested.0.clone().map_err(error))
    }
}

impl SessionPlace {
    fn parse(fields: &mut RequestFields, headers: &HeaderMap) -> Result<Self, ApiRejection> {
        let template = template(fields.string("sandbox")?, headers)?;
        let limits = fields.limits(&SANDBOX_LIMITS.map(Into::into))?;
        let network = fields.boolean("network")?.unwrap_or(false);
        let given = SANDBOX_LIMITS.into_iter().find(|kind| limits.get(*kind) != Setting::Inherit);
        if let Some(kind) = given.filter(|_| template.is_none()) {
            let key = sandtimer::limits::Key::from(kind).wire();
            let message = format!("{key}: this is a limit of the session's sandbox; add `sandbox=host`");
            return Err(ApiRejection::new(Code::BadField, message).with("key", key));
        }
        // It ends the sandbox of a server that was killed.
        if limits.get(LimitKind::Idle) == Setting::Unlimited {
            let message = "idle_ms: `0` is not a limit, and the sandbox of a session has one; give milliseconds, or leave it out";
            return Err(ApiRejection::new(Code::BadField, message).with("key", "idle_ms"));
        }
        Ok(SessionPlace { template, limits, network })
    }

    /// What of it needs a session, with its value.
    fn named(&self) -> Option<(&'static str, &str)> {
        let network = self.network.then_some(("network", "true"));
        self.template.as_deref().map(|template| ("sandbox", template)).or(network)
    }
}

/// The template that the query and the header name; fails if two of them differ.
fn template(queried: Option<String>, headers: &HeaderMap) -> Result<Option<String>, ApiRejection> {
    let mut named: Vec<(&str, String)> = queried.map(|name| ("the address", name)).into_iter().collect();
    for value in headers.get_all(SANDBOX_HEADER) {
        let Ok(name) = std::str::from_utf8(value.as_bytes()) else {
            let shown = String::from_utf8_lossy(value.as_bytes()).into_owned();
            return Err(refused(SANDBOX_HEADER, &shown.into(), "the name of a template, which is UTF-8"));
        };
        named.push(("the header Sandtimer-Sandbox", name.to_owned()));
    }
    let Some((source, first)) = named.first() else { return Ok(None) };
    if let Some((other_source, other)) = named.iter().find(|(_, name)| name != first) {
        let message = format!(
            "sandbox: {source} has `{}` and {other_source} has `{}`; give one of them, or the same template in both",
            shown(first),
            shown(other)
        );
        return Err(ApiRejection::new(Code::BadField, message).with("key", "sandbox"));
    }
    Ok(Some(first.clone()))
}

/// Opens the conversation of a new session.
pub(super) async fn open(
    owner: &Arc<OwnerState>,
    extensions: &Extensions,
) -> Result<Conversation, ErrorData> {
    let names = ListedNames::of(extensions);
    let requested = RequestedPlace::of(extensions)?;
    if requested == SessionPlace::default() {
        return Ok(Conversation::new(owner.clone(), names));
    }
    let SessionPlace { template, limits, network } = requested;
    let opening = async {
        if network {
            owner.service.contexts.runs.core.tenants.check_network(&owner.owner, "runs")?;
        }
        let place = conversation::sandbox_or_usual(&owner.service, &owner.owner, template, limits).await?;
        let shown = ShownTools { estimates: None, names };
        Conversation::with(owner.clone(), Limits::new(), place, network, shown)
    };
    opening.await.map_err(error)
}

/// Fails if a request asks for another place than its session, if it has one, works in.
pub(super) fn check(session: Option<&Conversation>, extensions: &Extensions) -> Result<(), ErrorData> {
    let requested = RequestedPlace::of(extensions)?;
    let Some((mut key, value)) = requested.named() else { return Ok(()) };
    let value = shown(value);
    let message = match session {
        None => format!(
            "{key}: `{value}` needs a session, and this request has none: send `initialize`, and the Mcp-Session-Id of its answer with each request; or leave `{key}` out"
        ),
        Some(session) => match (session.template(), &requested.template) {
            (Some(template), Some(other)) if template != *other => format!(
                "sandbox: `{value}` is not the template of this session's sandbox, `{}`; open another session by `initialize`",
                shown(&template)
            ),
            (None, Some(_)) => format!(
                "sandbox: this session has none, and cannot get one of `{value}` now; open another session by `initialize`"
            ),
            _ if requested.network && !session.has_network() => {
                key = "network";
                "network: this session began without it; open another session by `initialize`".to_owned()
            }
            _ => return Ok(()),
        },
    };
    Err(error(ApiRejection::new(Code::BadField, message).with("key", key)))
}

fn error(rejection: ApiRejection) -> ErrorData {
    let message = match rejection.code {
        // The message has the remedy.
        Code::BadField | Code::BadLimit => rejection.message.clone(),
        code => format!("{}\nRemedy: {}.", rejection.message, code.hint()),
    };
    ErrorData::invalid_request(message, Some(rejection.json()))
}

fn shown(value: &str) -> String {
    value.chars().take(MAX_SHOWN_CHARS).collect()
}
