//! Commands in a session, or without one: answered at their end, or as a stream.
//!
//! A client that goes away cancels its command. In a session one command is executed at a time;
//! others wait for their turn.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::post;

use super::answer::completed;
use super::caller::{BodyFields, Caller};
use super::command::SandboxCommand;
use super::failure::ContainerFailure;
use super::frames::{CommandFrames, respond};
use super::processes;
use crate::body;
use crate::connection::Connection;
use crate::contexts::ContextService;
use crate::registry::OwnedResource;

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new().route("/api/execute", post(execute)).route("/api/execute/stream", post(stream))
}

async fn execute(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    Extension(connection): Extension<Arc<Connection>>,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let call = SandboxCommand::parse(&mut fields, &caller)?;
    if fields.boolean("background")? == Some(true) {
        return processes::start_call(&service, &caller, call, None, &connection).await;
    }
    let begun = call.finish(&service, &caller, &connection).await?;
    let answer = body::long_json(&service.runs.core.messages, &caller.sandbox.owner, || async {
        Ok::<_, ContainerFailure>(call.answer(&service, &begun).await?.map(completed))
    });
    answer.await.map_err(|failure| failure.after_execution(Some(begun.run.id())))
}

async fn stream(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    Extension(connection): Extension<Arc<Connection>>,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let call = SandboxCommand::parse(&mut fields, &caller)?;
    if call.is_empty() {
        return Err(ContainerFailure::new(400, "INVALID_COMMAND", "the command is empty"));
    }
    let begun = call.begin(&service, &caller, &connection).await?;
    let frames = CommandFrames::foreground(begun.run, connection, call.command, begun.session.is_some());
    Ok(respond(frames, service.runs.core.messages.heartbeat))
}
