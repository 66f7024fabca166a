//! `/mcp`: the same runs and contexts for agents, by the Model Context Protocol.
//!
//! ```text
//! tools         the table of tools: names, descriptions, inputs, in their order
//! handler       what the protocol asks, given to a tool
//! conversation  what one client keeps: its interpreters, its keys, how far it has read
//! session_place what a session over HTTP works in, and what of it fails
//! call          one call of a tool: waiting with progress messages, and cancellation
//! start         bash, run_code
//! read          read_output, wait, list_runs, time_left
//! steer         kill, extend, pause, resume, write_stdin
//! tasks         estimate_duration, begin_task, end_task, report_progress
//! aliases       the names that agents were trained on
//! resources     runs and their output as documents
//! polled        runs as tasks of the protocol
//! render        answers: a text for the model, the same as data for programs
//! results       what code has displayed: texts and images
//! bounds        answers within their bounds
//! transport     a message in each line of a connection
//! lines         output by lines: filters, the last ones
//! excerpt       output cut to what a model can take
//! plain         output without what only terminals need
//! ```
//! `POST /mcp` is streamable HTTP; a conversation of a client that opens a session is that
//! session's, one of clients without sessions is their owner's. `GET /mcp/stdio` becomes a stream
//! of lines, one message each, for programs that carry a client's stdin and stdout; closing it
//! cancels what was waited for, and nothing else.

mod aliases;
mod bounds;
mod call;
mod conversation;
mod excerpt;
mod handler;
mod lines;
mod plain;
mod polled_task;
mod read;
mod render;
mod resources;
mod results;
mod service;
mod session_place;
mod start;
mod steer;
mod tasks;
mod tools;
mod transport;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use rmcp::ServiceExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use crate::auth::{OwnerId, owners};
use crate::body::{MAX_BODY_BYTES, Parameters, bytes};
use crate::connection::Connection;
use crate::error::{ApiRejection, Code};
use crate::events;
use crate::intake;
use crate::listen::ConnectionPermit;
use crate::scan::Scanner;

use conversation::{Conversation, OwnerState};
use handler::Handler;
use session_place::RequestedPlace;
use transport::LineTransport;

pub(crate) use service::AgentService;
pub use tools::document;

/// The sessions of one owner at a time.
const MAX_SESSIONS: usize = 256;
/// How long an unused session is kept.
const SESSION_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// The Upgrade header of a connection of lines.
const LINES_PROTOCOL: &str = "sandtimer-mcp";
/// The text that the program that carries a client's lines is to print on its stderr.
const REMARK_HEADER: &str = "sandtimer-remark";

/// The service of one owner: no other owner can reach its sessions.
struct OwnerService {
    state: Arc<OwnerState>,
    sessions: Arc<LocalSessionManager>,
    http: StreamableHttpService<Handler, LocalSessionManager>,
}

/// What the routes share.
#[derive(Clone)]
struct Mcp {
    service: AgentService,
    owners: Arc<HashMap<OwnerId, OwnerService>>,
}

pub(crate) fn routes(service: &AgentService) -> Router {
    Router::new().route("/mcp", any(converse)).route("/mcp/stdio", get(upgrade)).with_state(Mcp::new(service))
}

impl Mcp {
    fn new(service: &AgentService) -> Self {
        // Host and Origin are checked before any route.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_max_request_body_bytes(MAX_BODY_BYTES);
        let ending = config.cancellation_token.clone();
        let mut closing = service.contexts.runs.core.closing.subscribe();
        tokio::spawn(async move {
            let _ = closing.wait_for(|closing| *closing).await;
            ending.cancel();
        });
        let of_owner = |owner: OwnerId| {
            let state = Arc::new(OwnerState::new(service.clone(), owner.clone()));
            let mut sessions = LocalSessionManager::default();
            sessions.session_config.keep_alive = Some(SESSION_IDLE_TIMEOUT);
            let sessions = Arc::new(sessions);
            let handlers = state.clone();
            let make = move || Ok(Handler::new(handlers.clone()));
            let http = StreamableHttpService::new(make, sessions.clone(), config.clone());
            (owner, OwnerService { state, sessions, http })
        };
        Mcp {
            service: service.clone(),
            owners: Arc::new(
                owners(service.contexts.runs.core.tenants.tokens.as_ref())
                    .into_iter()
                    .map(of_owner)
                    .collect(),
            ),
        }
    }
}

/// Streamable HTTP. The body is read here, within the bounds of all bodies.
async fn converse(
    State(mcp): State<Mcp>,
    Extension(owner): Extension<OwnerId>,
    Parameters(mut fields): Parameters,
    mut request: Request,
) -> Result<Response, ApiRejection> {
    let listed = conversation::ListedNames::parse(&mut fields)?;
    let place = RequestedPlace::parse(&mut fields, request.headers());
    if place.is_valid() {
        fields.finish()?;
    }
    request.extensions_mut().insert(listed);
    request.extensions_mut().insert(place);
    let served = mcp.owners.get(&owner).ok_or_else(unknown_owner)?;
    let begins = request.method() == Method::POST && !request.headers().contains_key("mcp-session-id");
    let ends = request.method() == Method::DELETE;
    if begins && served.sessions.sessions.read().await.len() >= MAX_SESSIONS {
        return Err(ApiRejection::new(Code::Capacity, format!("{MAX_SESSIONS} MCP sessions are open")));
    }
    let (parts, body) = request.into_parts();
    let asked = Request::from_parts(parts.clone(), body);
    let body =
        Bytes::from(bytes(asked, &mcp.service.contexts.runs.core.messages, Some(Scanner::new())).await?);
    let length = body.len();
    let answer = Box::pin(served.http.handle(Request::from_parts(parts, Full::new(body))));
    let mut answer = intake::begin(answer, length).await.map(Body::new).into_response();
    if ends && answer.status() == StatusCode::ACCEPTED {
        // The session has ended: clients take 202 for a failure here.
        *answer.status_mut() = StatusCode::NO_CONTENT;
        *answer.body_mut() = Body::empty();
        answer.headers_mut().remove(header::CONTENT_LENGTH);
    }
    events::keep_live(&mut answer);
    Ok(answer)
}

fn unknown_owner() -> ApiRejection {
    ApiRejection::new(Code::Internal, "the caller is not one of the server's owners")
}

/// Turns the connection into a stream of lines.
async fn upgrade(
    State(mcp): State<Mcp>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Extension(connection_permit): Extension<ConnectionPermit>,
    Parameters(mut fields): Parameters,
    mut request: Request,
) -> Result<Response, ApiRejection> {
    let limits = conversation::limits(&mut fields)?;
    let directory = conversation::directory(&mcp.service, &mut fields)?;
    let network = conversation::network(&mcp.service, &owner, &mut fields)?;
    let shown = conversation::ShownTools::parse(&mut fields)?;
    let template = fields.string("sandbox")?;
    fields.finish()?;
    let asked = request.headers().get(header::UPGRADE).and_then(|name| name.to_str().ok());
    if !asked.is_some_and(|name| name.eq_ignore_ascii_case(LINES_PROTOCOL)) {
        return Err(ApiRejection::new(
            Code::BadField,
            format!("the Upgrade header is not `{LINES_PROTOCOL}`"),
        )
        .with("key", "Upgrade"));
    }
    let served = mcp.owners.get(&owner).ok_or_else(unknown_owner)?;
    let (messages, requester) = (mcp.service.contexts.runs.core.messages.clone(), owner.clone());
    let place_of_work = conversation::place(&mcp.service, &owner, template, directory).await?;
    let conversation = Conversation::with(served.state.clone(), limits, place_of_work, network, shown)?;
    let upgraded = hyper::upgrade::on(&mut request);
    connection.meter.begin(&mcp.service.contexts.runs.core.messages.requests, &owner);
    let mut closing = mcp.service.contexts.runs.core.closing.subscribe();
    tokio::spawn(async move {
        let _connection_permit = connection_permit;
        // The client went away before it was a stream.
        let Ok(upgraded) = upgraded.await else { return };
        let (read, write) = tokio::io::split(TokioIo::new(upgraded));
        let serving = async {
            // A message before `initialize`, or invalid JSON, is the client's mistake, and the end.
            let lines = LineTransport::new(read, write, connection, messages, requester);
            if let Ok(service) = Handler::of(conversation).serve(lines).await {
                let _ = service.waiting().await;
            }
        };
        tokio::select! {
            () = serving => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    });
    let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, LINES_PROTOCOL)];
    let mut answer = (StatusCode::SWITCHING_PROTOCOLS, headers).into_response();
    // The program at the other end can show this to its user; few read the log of this server.
    if let Some(remark) =
        mcp.service.contexts.runs.durations.without().and_then(|text| HeaderValue::from_str(text).ok())
    {
        answer.headers_mut().insert(REMARK_HEADER, remark);
    }
    Ok(answer)
}
