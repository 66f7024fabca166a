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
use crate::registry::OwnedResource;
use crate::state::SharedApp;

pub(super) fn routes() -> Router<SharedApp> {
    Router::new().route("/api/execute", post(execute)).route("/api/execute/stream", post(stream))
}

async fn execute(
    State(app): State<SharedApp>,
    caller: Caller,
    Extension(connection): Extension<Arc<Connection>>,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let call = SandboxCommand::parse(&mut fields, &caller)?;
    if fields.boolean("background")? == Some(true) {
        return processes::start_call(&app, &caller, call, None, &connection).await;
    }
    let begun = call.finish(&app, &caller, &connection).await?;
    let answer = body::long_json(&app.core.messages, &caller.sandbox.owner, || async {
        Ok::<_, ContainerFailure>(call.answer(&app, &begun).await?.map(completed))
    });
    answer.await.map_err(|failure| failure.after_execution(Some(begun.run.id())))
}

async fn stream(
    State(app): State<SharedApp>,
    caller: Caller,
    Extension(connection): Extension<Arc<Connection>>,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let call = SandboxCommand::parse(&mut fields, &caller)?;
    if call.is_empty() {
        return Err(ContainerFailure::new(400, "INVALID_COMMAND", "the command is empty"));
    }
    let begun = call.begin(&app, &caller, &connection).await?;
    let frames = CommandFrames::foreground(begun.run, connection, call.command, begun.session.is_some());
    Ok(respond(frames, app.core.messages.heartbeat))
}
