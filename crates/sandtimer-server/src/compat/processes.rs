//! Processes: commands in the background. Each is a detached run, which outlives its client and its
//! session.
//!
//! It takes over the session's directory, exported variables and functions as they are when its
//! turn in the session comes.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::{get, post};
use futures_util::future::join_all;
use sandtimer::engine::Stream;
use serde_json::{Value, json};

use super::answer::{completed, success};
use super::caller::{BodyFields, Caller};
use super::command::{MAX_OUTPUT_BYTES, SandboxCommand, output_of, read_bounded_string};
use super::failure::ContainerFailure;
use super::frames::{CommandFrames, respond};
use super::outcome::{on_new_line, status, timed_out};
use super::process::SandboxProcess;
use super::{sandbox, shell};
use crate::body::{self, Id, Parameters};
use crate::connection::Connection;
use crate::contexts::ContextService;
use crate::error::ApiRejection;
use crate::intake::MAX_SHORT_BYTES;
use crate::quota::PermittedValue;
use crate::registry::OwnedResource;
use crate::runs::{self, LiveRun, RunPhase, RunRequest, ScriptRun};

/// Processes of a sandbox that are known at a time, ended ones included.
const MAX_PROCESSES: usize = 4096;

pub(super) fn routes() -> Router<Arc<ContextService>> {
    Router::new()
        .route("/api/process/start", post(start))
        .route("/api/process/list", get(list))
        .route("/api/process/kill-all", axum::routing::delete(kill_all))
        .route("/api/process/{id}", get(show).delete(kill))
        .route("/api/process/{id}/logs", get(logs))
        .route("/api/process/{id}/stream", get(stream))
}

/// The run of a process.
pub(super) fn run_of(caller: &Caller, id: &str) -> Result<Arc<LiveRun>, ContainerFailure> {
    Ok(find(caller, id)?.run.clone())
}

fn find(caller: &Caller, id: &str) -> Result<Arc<SandboxProcess>, ContainerFailure> {
    let found = caller.sandbox.processes().get(id).cloned();
    found.ok_or_else(|| {
        let shown: String = id.chars().take(60).collect();
        ContainerFailure::new(404, "PROCESS_NOT_FOUND", format!("Process {shown} not found"))
            .with("processId", shown)
    })
}

async fn start(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    Extension(connection): Extension<Arc<Connection>>,
    BodyFields(mut fields): BodyFields,
) -> Result<Response, ContainerFailure> {
    let call = SandboxCommand::parse(&mut fields, &caller)?;
    let id = fields.string("processId")?;
    start_call(&service, &caller, call, id, &connection).await
}

/// Starts a process.
pub(super) async fn start_call(
    service: &Arc<ContextService>,
    caller: &Caller,
    call: SandboxCommand,
    id: Option<String>,
    connection: &Connection,
) -> Result<Response, ContainerFailure> {
    if call.is_empty() {
        return Err(ContainerFailure::new(400, "INVALID_COMMAND", "the command is empty"));
    }
    let claim = claim(service, caller, id.as_deref())?;
    let handoff = match &call.session {
        None => String::new(),
        Some(name) => read_handoff(service, caller, name, connection).await?,
    };
    let text = shell::program(&handoff, &call.command, call.directory.as_deref(), &call.variables);
    let script = caller.sandbox.storage(service).await?.script(text, call.limits.clone());
    let request = RunRequest::script(ScriptRun { detach: true, ..script })?;
    let (sandbox, wanted, command) = (caller.sandbox.clone(), id.clone(), call.command.clone());
    // It continues without the request, and is to be found then.
    let note = move |run: &Arc<LiveRun>| {
        let id = wanted.unwrap_or_else(|| run.id().to_owned());
        let process = Arc::new(SandboxProcess { id: id.clone(), command, run: run.clone() });
        sandbox.processes().insert(id, process);
        drop(claim);
    };
    let run = runs::start_noted(service.runs.clone(), caller.sandbox.owner.clone(), request, note).await?;
    let id = id.unwrap_or_else(|| run.id().to_owned());
    Ok(success(json!({"processId": id, "command": call.command})))
}

/// A claim on a process id: no other request uses the id until this is dropped.
struct ProcessIdClaim {
    sandbox: Arc<sandbox::CompatSandbox>,
    id: String,
}

impl Drop for ProcessIdClaim {
    fn drop(&mut self) {
        self.sandbox.claims().remove(&self.id);
    }
}

/// That there may be one more, and none is active or being started that has its id.
fn claim(
    service: &Arc<ContextService>,
    caller: &Caller,
    id: Option<&str>,
) -> Result<Option<ProcessIdClaim>, ContainerFailure> {
    let mut processes = caller.sandbox.processes();
    let mut claim = None;
    if let Some(id) = id {
        if id.is_empty()
            || id.len() > sandbox::MAX_NAME_BYTES
            || id.contains('/')
            || id == "list"
            || id == "kill-all"
        {
            return Err(ContainerFailure::invalid("processId", "it cannot be a part of a path"));
        }
        let is_running = processes.get(id).is_some_and(|process| process.is_running());
        if is_running || !caller.sandbox.claims().insert(id.to_owned()) {
            return Err(ContainerFailure::new(409, "PROCESS_ERROR", format!("Process {id} is running"))
                .with("processId", id));
        }
        claim = Some(ProcessIdClaim { sandbox: caller.sandbox.clone(), id: id.to_owned() });
    }
    if processes.len() >= MAX_PROCESSES {
        // Processes whose record is gone can no longer be queried.
        processes
            .retain(|_, process| service.runs.records.find(process.run.id(), process.run.owner()).is_some());
    }
    if processes.len() >= MAX_PROCESSES {
        return Err(ContainerFailure::new(
            503,
            "CONTAINER_UNAVAILABLE",
            format!("{MAX_PROCESSES} processes are known"),
        ));
    }
    Ok(claim)
}

/// What a process takes over from a session.
async fn read_handoff(
    service: &Arc<ContextService>,
    caller: &Caller,
    session: &str,
    connection: &Connection,
) -> Result<String, ContainerFailure> {
    let context = caller.sandbox.session(service, session).await?;
    output_of(service, &context, shell::HANDOFF_SCRIPT, connection)
        .await?
        .map_err(|note| ContainerFailure::new(500, "PROCESS_ERROR", format!("session '{session}': {note}")))
}

async fn list(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    parameters: Result<Parameters, ApiRejection>,
) -> Result<Response, ContainerFailure> {
    let Parameters(mut fields) = parameters?;
    let wanted = fields.string("status")?;
    let mut processes: Vec<Arc<SandboxProcess>> = caller.sandbox.processes().values().cloned().collect();
    processes.retain(|process| service.runs.records.find(process.run.id(), process.run.owner()).is_some());
    processes.retain(|process| wanted.as_deref().is_none_or(|wanted| wanted == status(&process.run)));
    processes.sort_by_key(|process| process.run.created_at_ms());
    let views: Vec<Value> = processes.iter().map(|process| process.view()).collect();
    Ok(success(json!({"processes": views})))
}

async fn show(caller: Caller, Id(id): Id) -> Result<Response, ContainerFailure> {
    Ok(success(json!({"process": find(&caller, &id)?.view()})))
}

/// Of a process that has ended already it is no error: it is dead, which was asked for.
async fn kill(caller: Caller, Id(id): Id) -> Result<Response, ContainerFailure> {
    let process = find(&caller, &id)?;
    if process.kill().await {
        return Ok(success(json!({"processId": id})));
    }
    Err(ContainerFailure::new(
        500,
        "PROCESS_ERROR",
        format!("Process {id} is being killed and is not dead yet"),
    )
    .with("processId", id))
}

async fn kill_all(caller: Caller) -> Result<Response, ContainerFailure> {
    let mut running: Vec<Arc<SandboxProcess>> = caller.sandbox.processes().values().cloned().collect();
    running.retain(|process| process.is_running());
    let killed = join_all(running.iter().map(|process| process.kill())).await;
    let left = killed.iter().filter(|dead| !**dead).count();
    if left > 0 {
        let message = format!("{left} of {} processes are being killed and are not dead yet", running.len());
        return Err(ContainerFailure::new(500, "PROCESS_ERROR", message));
    }
    Ok(success(json!({"cleanedCount": running.len()})))
}

async fn logs(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    Id(id): Id,
) -> Result<Response, ContainerFailure> {
    let process = find(&caller, &id)?;
    let (owner, run) = (&caller.sandbox.owner, &process.run);
    body::long_json(&service.runs.core.messages, owner, || async {
        // How much it has written is not known before it is read: a permit is waited for only where
        // it is not short.
        if let (logs, true) = logs_up_to(run, &id, MAX_SHORT_BYTES).await? {
            return Ok(PermittedValue::new(logs, None));
        }
        let permit = runs::enter_large(owner, u64::MAX).await;
        let (logs, _) = logs_up_to(run, &id, MAX_OUTPUT_BYTES).await?;
        Ok::<_, ContainerFailure>(PermittedValue::new(logs, permit))
    })
    .await
}

/// What a process has written, up to `most` bytes of each stream, and whether that is all.
async fn logs_up_to(run: &LiveRun, id: &str, most: usize) -> Result<(Value, bool), ContainerFailure> {
    let (stdout, is_all_stdout) = read_bounded_string(run, Stream::Stdout, most).await?;
    let (mut stderr, is_all_stderr) = read_bounded_string(run, Stream::Stderr, most).await?;
    if let RunPhase::Ended(record) = run.phase()
        && let Some(note) = timed_out(record.facts())
    {
        stderr = on_new_line(&stderr, &note);
    }
    let logs = completed(json!({"processId": id, "stdout": stdout, "stderr": stderr}));
    Ok((logs, is_all_stdout && is_all_stderr))
}

async fn stream(
    State(service): State<Arc<ContextService>>,
    caller: Caller,
    Id(id): Id,
) -> Result<Response, ContainerFailure> {
    let process = find(&caller, &id)?;
    let frames = CommandFrames::process(process.run.clone(), id, process.command.clone());
    Ok(respond(frames, service.runs.core.messages.heartbeat))
}
