//! `POST /v1/runs/{id}/wait`: waiting until a run listens on a port.

use std::time::Duration;

use axum::extract::{Extension, State};
use axum::response::Response;
use serde_json::json;

use super::find;
use super::live::{LiveRun, Phase};
use crate::Shared;
use crate::auth::Owner;
use crate::body::{self, Id, Object, refused};
use crate::error::{Code, Refusal};
use crate::owned::Owned;

/// How often is looked: nothing tells when a socket begins to listen.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) async fn wait(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Id(id): Id,
    Object(mut fields): Object,
) -> Result<Response, Refusal> {
    let given = fields.value("port").unwrap_or_default();
    let most = fields.milliseconds("wait_ms")?;
    fields.finish()?;
    let port = given.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    let port = port.ok_or_else(|| refused("port", &given, "a number from 1 to 65535"))?;
    let run = find(&app, &id, &owner)?;
    let listening = listens(&run, port, most).await?;
    Ok(body::json(&json!({"run_id": id, "status": run.status(), "port": port, "listening": listening})))
}

/// Waits until a process of the run listens on the port, at most so long; false where it is over before, or the time is.
pub(crate) async fn listens(run: &LiveRun, port: u16, most: Option<Duration>) -> Result<bool, Refusal> {
    let look = async {
        let mut phase = run.watch_phase();
        loop {
            let now = phase.borrow_and_update().clone();
            match now {
                Phase::Ended(_) => return Ok(false),
                Phase::Queued(_) => drop(phase.changed().await),
                Phase::Running(running) if !running.has_network() => return Err(no_network(run)),
                Phase::Running(running) => {
                    let found = tokio::task::spawn_blocking(move || running.listens_on(port)).await;
                    if found.unwrap_or(false) {
                        return Ok(true);
                    }
                    let _ = tokio::time::timeout(LOOK_EVERY, phase.changed()).await;
                }
            }
        }
    };
    match most {
        None => look.await,
        Some(most) => tokio::time::timeout(most, look).await.unwrap_or(Ok(false)),
    }
}

fn no_network(run: &LiveRun) -> Refusal {
    let message = format!("the run `{}` has no network, so nothing in it can listen on a port", run.id());
    Refusal::new(Code::NoNetwork, message)
}
