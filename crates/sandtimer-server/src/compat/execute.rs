//! Commands in a session, or without one: answered at their end, or as a stream.
//!
//! A client that goes away cancels its command. In a session one command is executed at a time;
//! others wait for their turn.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::post;
use sandtimer::Limits;
use sandtimer::engine::Stream;
use sandtimer::model::{Ending, Outcome, RemainingState as Left};
use sandtimer::supervise::signal_number;
use serde_json::{Value, json};

use super::failure::ContainerFailure;
use super::frames::{CommandFrames, respond};
use super::{BodyFields, Caller, NO_SESSION, completed, processes, sandbox, shell};
use crate::body::{self, RequestFields};
use crate::connection::{Connection, while_there};
use crate::contexts::{self, CellRequest, LiveContext};
use crate::intake::MAX_SHORT_BYTES;
use crate::quota::PermittedValue;
use crate::registry::OwnedResource;
use crate::runs::{self, CLIENT_GONE, LiveRun, LoadedOutcome, RunRequest};
use crate::state::SharedApp;

/// Bytes of a stream that one answer carries, as an Outcome does.
pub(super) const MAX_OUTPUT_BYTES: usize = 64 << 20;
/// Bytes of it that are read at a time.
const PIECE_BYTES: usize = 4 << 20;

pub(super) fn routes() -> Router<SharedApp> {
    Router::new().route("/api/execute", post(execute)).route("/api/execute/stream", post(stream))
}

/// A command as it is asked for.
#[derive(Debug, Clone)]
pub(super) struct SandboxCommand {
    pub command: String,
    /// `None`: in a shell of its own.
    pub session: Option<String>,
    pub directory: Option<String>,
    pub variables: Vec<(String, String)>,
    pub limits: Limits,
}

impl SandboxCommand {
    pub fn parse(fields: &mut RequestFields, caller: &Caller) -> Result<Self, ContainerFailure> {
        let command = fields
            .string("command")?
            .ok_or_else(|| ContainerFailure::invalid("command", "give it as a string"))?;
        if command.contains('\0') {
            return Err(ContainerFailure::invalid("command", "it has a NUL byte"));
        }
        Ok(SandboxCommand {
            command,
            session: Some(caller.session(fields)?).filter(|session| session != NO_SESSION),
            directory: sandbox::directory(fields)?,
            variables: sandbox::variables(fields, "env")?,
            limits: sandbox::timeout(fields, "timeoutMs")?,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.command.trim().is_empty()
    }

    /// Its run, once its turn has come. Until then a client that goes away withdraws it.
    pub async fn begin(
        &self,
        app: &SharedApp,
        caller: &Caller,
        connection: &Connection,
    ) -> Result<StartedCommand, ContainerFailure> {
        let Some(name) = &self.session else {
            let text = shell::program("", &self.command, self.directory.as_deref(), &self.variables);
            let (workspace, temporary) = caller.sandbox.directories(app).await?.for_run();
            let request = RunRequest::script(text, self.limits.clone(), workspace, temporary, false)?;
            let run = runs::start(app.runs.clone(), caller.sandbox.owner.clone(), request).await?;
            return Ok(StartedCommand { run, session: None });
        };
        let session = caller.sandbox.session(app, name).await?;
        let source = shell::around(&self.command, self.directory.as_deref(), &self.variables);
        let cell = CellRequest::of(source, self.limits.clone());
        match begin_in(app, &session, cell, connection).await {
            Ok(run) => Ok(StartedCommand { run, session: Some(session) }),
            Err(_) if was_deleted(app, &session) => Err(destroyed(name)),
            Err(failure) => Err(failure),
        }
    }

    /// Its run once that has finished. A client that disconnects cancels it.
    async fn finish(
        &self,
        app: &SharedApp,
        caller: &Caller,
        connection: &Connection,
    ) -> Result<StartedCommand, ContainerFailure> {
        let begun = self.begin(app, caller, connection).await?;
        let run = &begun.run;
        while_there(connection, run.wait_ended(None), || run.cancel(CLIENT_GONE)).await;
        Ok(begun)
    }

    /// What is answered when it has ended. A client that goes away cancels it.
    pub async fn result_of(
        &self,
        app: &SharedApp,
        caller: &Caller,
        connection: &Connection,
    ) -> Result<PermittedValue<Value>, ContainerFailure> {
        let begun = self.finish(app, caller, connection).await?;
        self.answer(app, &begun).await
    }

    /// What is answered of its end.
    async fn answer(
        &self,
        app: &SharedApp,
        begun: &StartedCommand,
    ) -> Result<PermittedValue<Value>, ContainerFailure> {
        let run = &begun.run;
        let outcome = ended(run).await?;
        let (stdout, stderr) = (text(run, Stream::Stdout).await?, text(run, Stream::Stderr).await?);
        let failure = |status, code, message: String| {
            ContainerFailure::new(status, code, message)
                .with("command", clipped(&self.command))
                .with("stdout", clipped(&stdout))
                .with("state", json!(outcome.state))
                .with("verdict", json!(outcome.verdict))
        };
        let Some(session) = &self.session else {
            let stderr = match note_without_session(&outcome) {
                Some(note) => on_new_line(&stderr, &note),
                None => stderr,
            };
            let result = self.result(&outcome, &stdout, &stderr);
            return Ok(outcome.map(|_| result));
        };
        let was_lost = matches!(outcome.state, Left::Reset | Left::Lost);
        match (outcome.ending, note(&outcome)) {
            (Ending::Exited | Ending::Signaled, _) if was_lost => {
                let message =
                    format!("Session '{session}' ended with its shell, by exit code {}", code(&outcome));
                Err(failure(410, "SESSION_TERMINATED", message)
                    .with("stderr", clipped(&stderr))
                    .with("sessionId", session.as_str())
                    .with("exitCode", code(&outcome)))
            }
            (Ending::Cancelled, _)
                if begun.session.as_ref().is_some_and(|session| was_deleted(app, session)) =>
            {
                Err(destroyed(session)
                    .with("command", clipped(&self.command))
                    .with("stdout", clipped(&stdout)))
            }
            (_, None) => {
                let result = self.result(&outcome, &stdout, &stderr);
                Ok(outcome.map(|_| result))
            }
            (_, Some(note)) => {
                let message = format!(
                    "Failed to execute command '{}' in session '{session}': {note}",
                    clipped(&self.command)
                );
                Err(failure(500, "COMMAND_EXECUTION_ERROR", message)
                    .with("stderr", clipped(&stderr) + &note)
                    .with("exitCode", code(&outcome)))
            }
        }
    }

    fn result(&self, outcome: &Outcome, stdout: &str, stderr: &str) -> Value {
        let exit_code = code(outcome);
        json!({
            "success": exit_code == 0,
            "exitCode": exit_code,
            "stdout": without_newline(stdout),
            "stderr": without_newline(stderr),
            "command": self.command,
            "duration": outcome.usage.wall_ms,
            "sessionId": self.session.as_deref().unwrap_or(NO_SESSION),
        })
    }
}

/// A command that has begun, and the session that it is in.
#[derive(Debug)]
pub(super) struct StartedCommand {
    pub run: Arc<LiveRun>,
    session: Option<Arc<LiveContext>>,
}

/// A session that is not there any more has cancelled what was executed in it.
fn was_deleted(app: &SharedApp, session: &LiveContext) -> bool {
    app.contexts.find(session.id_str(), session.owner()).is_none()
}

/// Sends something to a context and waits for its turn there, while the client is there.
pub(super) async fn begin_in(
    app: &SharedApp,
    context: &Arc<LiveContext>,
    cell: CellRequest,
    connection: &Connection,
) -> Result<Arc<LiveRun>, ContainerFailure> {
    contexts::check_waiting(context)?;
    let mut queued = contexts::send(app.contexts.clone(), context.owner().clone(), context.clone(), cell)?;
    let (withdraw, mut begun) = (queued.withdrawal(), Ok(None));
    while_there(connection, async { begun = queued.begun(None).await }, withdraw).await;
    begun?.ok_or_else(|| ContainerFailure::internal("the client that asked for it went away"))
}

fn destroyed(session: &str) -> ContainerFailure {
    let message = format!("Session '{session}' was deleted while a command was executed or waited in it");
    ContainerFailure::new(410, "SESSION_DESTROYED", message).with("sessionId", session)
}

/// The Outcome of a run that is waited for to its end.
pub(super) async fn ended(run: &Arc<LiveRun>) -> Result<LoadedOutcome, ContainerFailure> {
    run.wait_ended(None).await;
    run.outcome().await?.ok_or_else(|| ContainerFailure::internal("the run has no outcome"))
}

/// Why something other than the command itself ended it, as text for people.
pub(super) fn note(outcome: &Outcome) -> Option<String> {
    let sentence = || outcome.verdict.as_ref().map(|verdict| verdict.sentence.clone());
    match outcome.ending {
        Ending::Exited | Ending::Signaled | Ending::Returned | Ending::Raised | Ending::NoResult => None,
        Ending::Timeout | Ending::Stalled => {
            let limit = outcome.verdict.as_ref().and_then(|verdict| verdict.limit_ms).unwrap_or_default();
            Some(format!("Command timeout after {limit}ms. {}", sentence().unwrap_or_default()))
        }
        other => Some(sentence().unwrap_or_else(|| format!("the command did not end by itself ({other:?})"))),
    }
}

/// What follows the stderr of a command without a session. For a timeout its last line is that of
/// the package's own server.
pub(super) fn note_without_session(outcome: &Outcome) -> Option<String> {
    timed_out(outcome).or_else(|| note(outcome).map(|note| note + "\n"))
}

/// What follows the stderr of a command or process that its timeout ended.
pub(super) fn timed_out(outcome: &Outcome) -> Option<String> {
    if !matches!(outcome.ending, Ending::Timeout | Ending::Stalled) {
        return None;
    }
    let verdict = outcome.verdict.as_ref();
    let limit = verdict.and_then(|verdict| verdict.limit_ms).unwrap_or_default();
    let sentence = verdict.map(|verdict| format!("{}\n", verdict.sentence)).unwrap_or_default();
    Some(format!("{sentence}Command timed out after {limit}ms\n"))
}

/// A text and a note after it, on a line of its own.
pub(super) fn on_new_line(text: &str, note: &str) -> String {
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{newline}{note}")
}

/// The exit code, or a shell's value in its place.
pub(super) fn code(outcome: &Outcome) -> i32 {
    match (outcome.exit_code, outcome.ending) {
        (Some(code), _) => code,
        (None, Ending::Signaled) => {
            128 + outcome.signal.as_deref().and_then(signal_number).unwrap_or_default()
        }
        (None, Ending::OutOfMemory) => 137,
        (None, Ending::Cancelled) => 143,
        (None, Ending::InfraError) => 125,
        (None, _) => 124,
    }
}

/// All that a stream has so far, as text, up to what an answer carries. Bytes that are not UTF-8
/// are replaced, dropped output is noted.
pub(super) async fn text(run: &LiveRun, stream: Stream) -> Result<String, ContainerFailure> {
    Ok(read_bounded_string(run, stream, MAX_OUTPUT_BYTES).await?.0)
}

/// The same up to `most` bytes; false if there are more, which are left out with a notice.
pub(super) async fn read_bounded_string(
    run: &LiveRun,
    stream: Stream,
    most: usize,
) -> Result<(String, bool), ContainerFailure> {
    let (mut bytes, mut cursor, mut is_whole) = (Vec::new(), 0, true);
    loop {
        let chunk = run.output(stream, cursor, PIECE_BYTES.min(most)).await?;
        if chunk.dropped_before > 0 {
            bytes.extend(
                format!("\n[{} bytes were dropped at the output limit]\n", chunk.dropped_before).bytes(),
            );
        }
        cursor = chunk.next_cursor;
        if chunk.bytes.is_empty() {
            break;
        }
        bytes.extend(chunk.bytes);
        if bytes.len() > most {
            is_whole = false;
            bytes.truncate(most);
            bytes.extend(left_out(most).bytes());
            break;
        }
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok((text, is_whole))
}

/// A text as a failure carries it: that is an error with what led to it, and no place for all of
/// the output.
fn clipped(text: &str) -> String {
    if text.len() <= MAX_SHORT_BYTES {
        return text.to_owned();
    }
    let end = (0..=MAX_SHORT_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].to_owned() + &left_out(MAX_SHORT_BYTES)
}

fn left_out(most: usize) -> String {
    format!("\n[an answer carries {most} bytes; the rest is left out]\n")
}

/// Without the newline at its end, which that interface leaves out of results.
fn without_newline(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
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
