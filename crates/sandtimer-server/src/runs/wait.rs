//! `POST /v1/runs/{id}/wait`: waiting until a run listens on a port, or has written a line that
//! matches.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::response::Response;
use sandtimer::engine::Stream;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::lines::{LineSearch, expression};
use super::live::{LiveRun, RunPhase};
use super::output;
use super::service::RunService;
use crate::auth::OwnerId;
use crate::body::{self, Id, Object, RequestFields, refused};
use crate::connection::{Connection, awaited, while_there};
use crate::error::{ApiRejection, Code};
use crate::quota::ConcurrencyLimit;
use crate::registry::OwnedResource;

/// How often sockets are polled: there is no event for a socket that begins to listen.
const INSPECT_INTERVAL: Duration = Duration::from_millis(50);

/// Inspections of sockets at a time, of one owner and in all: each reads all processes of a run and
/// their descriptors.
static SOCKET_INSPECTIONS: ConcurrencyLimit = ConcurrencyLimit::new(2, 8);

/// What is waited for.
#[derive(Debug)]
enum WaitCondition {
    Port(u16),
    /// Compiled once it is known that there is such a run.
    Line {
        stream: Stream,
        cursor: u64,
        pattern: String,
    },
}

impl WaitCondition {
    fn parse(fields: &mut RequestFields) -> Result<Self, ApiRejection> {
        match (fields.value("port"), fields.string("pattern")?) {
            (Some(_), Some(_)) => {
                let message = "give `port` or `pattern`, not both: one thing is waited for";
                Err(ApiRejection::new(Code::BadField, message).with("key", "pattern"))
            }
            (None, Some(pattern)) => {
                let stream = output::stream(fields)?;
                let cursor = fields.number("cursor")?.unwrap_or(0);
                Ok(WaitCondition::Line { stream, cursor, pattern })
            }
            (given, None) => {
                let given = given.unwrap_or_default();
                let port = given.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
                port.map(WaitCondition::Port)
                    .ok_or_else(|| refused("port", &given, "a number from 1 to 65535"))
            }
        }
    }
}

impl WaitCondition {
    /// Waits for the condition, at most `most`. Returns the answer.
    async fn wait(self, run: &LiveRun, most: Option<Duration>) -> Result<Value, ApiRejection> {
        match self {
            WaitCondition::Port(port) => {
                Ok(json!({"port": port, "listening": listens(run, port, most).await?}))
            }
            WaitCondition::Line { stream, cursor, pattern } => {
                // What is too long to be a moment is without end.
                let until = most.and_then(|most| Instant::now().checked_add(most));
                let mut search = LineSearch::new(stream, cursor, expression("pattern", &pattern)?);
                search.go(run, until).await?;
                Ok(described(&search))
            }
        }
    }
}

pub(super) async fn wait(
    State(service): State<Arc<RunService>>,
    Extension(owner): Extension<OwnerId>,
    Extension(connection): Extension<Arc<Connection>>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, ApiRejection> {
    let wanted = WaitCondition::parse(&mut fields)?;
    let most = fields.milliseconds("wait_ms")?;
    fields.finish()?;
    let run = service.get(&id, &owner)?;
    let _waiter = run.waiter();
    let mut answered = None;
    let waiting = async { answered = Some(wanted.wait(&run, most).await) };
    while_there(&connection, waiting, || {}).await;
    // This answer is sent to no client.
    let has_left = || ApiRejection::new(Code::RequestTimeout, "the client disconnected");
    let mut answer = answered.ok_or_else(has_left)??;
    stands(&run, &mut answer);
    Ok(body::json(&answer))
}

fn described(search: &LineSearch) -> Value {
    json!({
        "pattern": search.expression.as_str(),
        "stream": output::name(search.stream),
        "matched": search.line.is_some(),
        "line": search.line,
        "cursor": search.cursor,
        "next_cursor": search.next_cursor,
        "dropped_before": search.dropped,
    })
}

/// Adds the run's status: what was waited for may come later, or never.
fn stands(run: &LiveRun, answer: &mut Value) {
    let phase = run.phase();
    let facts = match &phase {
        RunPhase::Ended(record) => Some(record.facts()),
        RunPhase::Queued(_) | RunPhase::Running(_) => None,
    };
    answer["run_id"] = run.id().into();
    answer["status"] = phase.name().into();
    answer["ending"] = json!(facts.map(|outcome| outcome.ending));
    answer["exit_code"] = json!(facts.and_then(|outcome| outcome.exit_code));
    answer["sentence"] =
        json!(facts.and_then(|outcome| outcome.verdict.as_ref()).map(|verdict| &verdict.sentence));
}

/// Waits until a process of the run listens on the port, at most `most`. Returns false if the run
/// or the time ended before.
pub(crate) async fn listens(run: &LiveRun, port: u16, most: Option<Duration>) -> Result<bool, ApiRejection> {
    let wait_for_listener = async {
        let mut phase = run.watch_phase();
        loop {
            let now = phase.borrow_and_update().clone();
            match now {
                RunPhase::Ended(_) => return Ok(false),
                RunPhase::Queued(_) => drop(phase.changed().await),
                RunPhase::Running(running) if !running.has_network() => return Err(no_network(run)),
                RunPhase::Running(running) => {
                    let turn = SOCKET_INSPECTIONS.enter(run.owner()).await;
                    let (is_awaited, _awaited) = awaited();
                    let inspect_sockets = move || {
                        let _turn = turn;
                        running.listens_on_while(port, &is_awaited)
                    };
                    if tokio::task::spawn_blocking(inspect_sockets).await.unwrap_or(false) {
                        return Ok(true);
                    }
                    let _ = tokio::time::timeout(INSPECT_INTERVAL, phase.changed()).await;
                }
            }
        }
    };
    match most {
        None => wait_for_listener.await,
        Some(most) => tokio::time::timeout(most, wait_for_listener).await.unwrap_or(Ok(false)),
    }
}

fn no_network(run: &LiveRun) -> ApiRejection {
    let message = format!("the run `{}` has no network, so nothing in it can listen on a port", run.id());
    ApiRejection::new(Code::NoNetwork, message)
}
