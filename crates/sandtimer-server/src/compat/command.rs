//! A command from its fields to what is answered of it.

use std::sync::Arc;
use std::time::Duration;

use sandtimer::Limits;
use sandtimer::engine::Stream;
use sandtimer::model::{Ending, LimitKind, Outcome, RemainingState as Left};
use serde_json::{Value, json};

use super::caller::{Caller, NO_SESSION};
use super::failure::ContainerFailure;
use super::outcome::{code, ended, note, note_without_session, on_new_line};
use super::{sandbox, shell};
use crate::body::RequestFields;
use crate::connection::{Connection, while_there};
use crate::contexts::{self, CellRequest, ContextService, LiveContext};
use crate::intake::MAX_SHORT_BYTES;
use crate::quota::PermittedValue;
use crate::registry::OwnedResource;
use crate::runs::{self, CLIENT_GONE, LiveRun, RunRequest};

/// Bytes of a stream that one answer carries, as an Outcome does.
pub(super) const MAX_OUTPUT_BYTES: usize = 64 << 20;
/// Bytes of it that are read at a time.
const PIECE_BYTES: usize = 4 << 20;

/// How long a session may take to write the state that a process takes over from it.
const HANDOFF_TIMEOUT: Duration = Duration::from_secs(10);

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
        service: &Arc<ContextService>,
        caller: &Caller,
        connection: &Connection,
    ) -> Result<StartedCommand, ContainerFailure> {
        let Some(name) = &self.session else {
            let text = shell::program("", &self.command, self.directory.as_deref(), &self.variables);
            let storage = caller.sandbox.storage(service).await?;
            let request = RunRequest::script(storage.script(text, self.limits.clone()))?;
            let run = runs::start(service.runs.clone(), caller.sandbox.owner.clone(), request).await?;
            return Ok(StartedCommand { run, session: None });
        };
        let session = caller.sandbox.session(service, name).await?;
        let source = shell::around(&self.command, self.directory.as_deref(), &self.variables);
        let cell = CellRequest::of(source, self.limits.clone());
        match begin_in(service, &session, cell, connection).await {
            Ok(run) => Ok(StartedCommand { run, session: Some(session) }),
            Err(_) if was_deleted(service, &session) => Err(destroyed(name)),
            Err(failure) => Err(failure),
        }
    }

    /// Its run once that has finished. A client that disconnects cancels it.
    pub async fn finish(
        &self,
        service: &Arc<ContextService>,
        caller: &Caller,
        connection: &Connection,
    ) -> Result<StartedCommand, ContainerFailure> {
        let begun = self.begin(service, caller, connection).await?;
        let run = &begun.run;
        while_there(connection, run.wait_ended(None), || run.cancel(CLIENT_GONE)).await;
        Ok(begun)
    }

    /// What is answered when it has ended. A client that goes away cancels it.
    pub async fn result_of(
        &self,
        service: &Arc<ContextService>,
        caller: &Caller,
        connection: &Connection,
    ) -> Result<PermittedValue<Value>, ContainerFailure> {
        let begun = self.finish(service, caller, connection).await?;
        self.answer(service, &begun).await
    }

    /// What is answered of its end.
    pub async fn answer(
        &self,
        service: &Arc<ContextService>,
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
                if begun.session.as_ref().is_some_and(|session| was_deleted(service, session)) =>
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
    pub session: Option<Arc<LiveContext>>,
}

/// A session that is not there any more has cancelled what was executed in it.
fn was_deleted(service: &Arc<ContextService>, session: &LiveContext) -> bool {
    service.find(session.id_str(), session.owner()).is_none()
}

/// Sends something to a context and waits for its turn there, while the client is there.
pub(super) async fn begin_in(
    service: &Arc<ContextService>,
    context: &Arc<LiveContext>,
    cell: CellRequest,
    connection: &Connection,
) -> Result<Arc<LiveRun>, ContainerFailure> {
    contexts::check_waiting(context)?;
    let mut queued = contexts::send(service.clone(), context.owner().clone(), context.clone(), cell)?;
    let (withdraw, mut begun) = (queued.withdrawal(), Ok(None));
    while_there(connection, async { begun = queued.begun(None).await }, withdraw).await;
    begun?.ok_or_else(|| ContainerFailure::internal("the client that requested it disconnected"))
}

fn destroyed(session: &str) -> ContainerFailure {
    let message = format!("Session '{session}' was deleted while a command was executed or waited in it");
    ContainerFailure::new(410, "SESSION_DESTROYED", message).with("sessionId", session)
}

/// What a session writes when it executes this command, or why the command did not end by itself.
pub(super) async fn output_of(
    service: &Arc<ContextService>,
    session: &Arc<LiveContext>,
    command: &str,
    connection: &Connection,
) -> Result<Result<String, String>, ContainerFailure> {
    let mut limits = Limits::new();
    let wall = u64::try_from(HANDOFF_TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
    limits.set(LimitKind::Wall, sandtimer::limits::Setting::At(wall));
    let run = begin_in(service, session, CellRequest::of(command.to_owned(), limits), connection).await?;
    let outcome = ended(&run).await?;
    match note(&outcome) {
        None => Ok(Ok(text(&run, Stream::Stdout).await?)),
        Some(note) => Ok(Err(note)),
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
