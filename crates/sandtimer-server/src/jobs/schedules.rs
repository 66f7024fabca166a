//! `/v1/jobs/schedules`: jobs that recur. A schedule is stored by its name; the job in it is checked as a submission is.

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::Request;
use axum::response::Response;
use sandtimer_jobs::job::{ScheduleRecord, ScheduleSpec, SpecError, Unambiguous};
use serde_json::{Value, json};

use super::submission::{bad_spec, check_paths};
use super::view::{Whose, whose};
use crate::Shared;
use crate::auth::Owner;
use crate::body::{self, Fields, Id, Object, Parameters};
use crate::error::{Code, Refusal};
use crate::scan::Scanner;

pub(super) async fn store(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Id(name): Id,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    let bytes = body::bytes(request, &app, Some(Scanner::batch())).await?;
    let spec = read(&bytes, &name)?;
    if spec.job.network && !app.tenants.may_have_network(&owner) {
        let message = "job.network: this token may not give jobs the host's network";
        return Err(Refusal::new(Code::NetworkRefused, message).with("key", "job.network"));
    }
    let whose = whose(&owner);
    let (of, queue) = (whose.clone(), whose.stored_queue(&spec.job.queue));
    let stored = app.jobs.ask(move |store| Ok(store.put_schedule(of.name(), &queue, &spec)?)).await?;
    Ok(body::json(&shown(&whose, stored)))
}

pub(super) async fn list(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Parameters(fields): Parameters,
) -> Result<Response, Refusal> {
    fields.finish()?;
    let whose = whose(&owner);
    let of = whose.clone();
    let records = app
        .jobs
        .ask(move |store| {
            store.sweep()?;
            Ok(store.schedules(Some(of.name()))?)
        })
        .await?;
    let records: Vec<Value> = records.into_iter().map(|record| shown(&whose, record)).collect();
    Ok(body::json(&json!({"schedules": records})))
}

/// Removes a schedule. Removing an unknown one succeeds.
pub(super) async fn remove(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Id(name): Id,
    Parameters(fields): Parameters,
) -> Result<Response, Refusal> {
    fields.finish()?;
    let (of, which) = (whose(&owner), name.clone());
    let removed = app.jobs.ask(move |store| Ok(store.remove_schedule(of.name(), &which)?)).await?;
    Ok(body::json(&json!({"name": name, "removed": removed})))
}

pub(super) async fn pause(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Id(name): Id,
    Object(fields): Object,
) -> Result<Response, Refusal> {
    set_paused(&app, &owner, (name, true), fields).await
}

pub(super) async fn resume(
    State(app): State<Shared>,
    Extension(owner): Extension<Owner>,
    Id(name): Id,
    Object(fields): Object,
) -> Result<Response, Refusal> {
    set_paused(&app, &owner, (name, false), fields).await
}

async fn set_paused(
    app: &Shared,
    owner: &Owner,
    (name, paused): (String, bool),
    fields: Fields,
) -> Result<Response, Refusal> {
    fields.finish()?;
    let whose = whose(owner);
    let (of, which) = (whose.clone(), name.clone());
    let found = app.jobs.ask(move |store| Ok(store.pause_schedule(of.name(), &which, paused)?)).await?;
    let record = found.ok_or_else(|| {
        Refusal::new(Code::ScheduleNotFound, format!("there is no schedule `{name}`")).with("name", name)
    })?;
    Ok(body::json(&shown(&whose, record)))
}

/// The schedule in a body. Its name is the path's; a body may repeat it.
fn read(bytes: &[u8], name: &str) -> Result<ScheduleSpec, Refusal> {
    let Unambiguous(mut source) = serde_json::from_slice(bytes).map_err(|error| {
        let code = if error.is_data() { Code::BadSpec } else { Code::BadJson };
        Refusal::new(code, format!("the body is not a schedule in JSON: {error}"))
    })?;
    if let Value::Object(fields) = &mut source {
        match fields.get("name") {
            Some(other) if other != name => {
                let problem = format!("{other} is not the name in the path, `{name}`; leave it out");
                return Err(bad_spec(&SpecError { path: "name".to_owned(), problem }, None));
            }
            _ => drop(fields.insert("name".to_owned(), name.into())),
        }
    }
    let spec = ScheduleSpec::read(source).map_err(|error| bad_spec(&error, None))?;
    check_paths(&spec.job)
        .map_err(|error| bad_spec(&SpecError { path: format!("job.{}", error.path), ..error }, None))?;
    Ok(spec)
}

fn shown(whose: &Whose, mut record: ScheduleRecord) -> Value {
    record.queue = whose.own_queue(&record.queue).unwrap_or(&record.queue).to_owned();
    // Plain data with string keys always serialises.
    serde_json::to_value(record).unwrap_or_default()
}
