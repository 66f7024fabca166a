//! `/v1/jobs/schedules`: jobs that recur. A schedule is stored by its name; the job in it is
//! checked as a submission is.

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::Request;
use axum::response::Response;
use sandtimer_jobs::job::{ScheduleRecord, ScheduleSpec, SpecError, UnambiguousValue};
use serde_json::{Value, json};
use std::sync::Arc;

use super::keeping::JobService;
use super::submission::{bad_spec, check_paths};
use super::view::{StoreOwner, store_owner};
use crate::auth::OwnerId;
use crate::body::{self, Id, Object, Parameters, RequestFields};
use crate::error::{ApiRejection, Code};
use crate::scan::Scanner;

pub(super) async fn store(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(name): Id,
    request: Request<Body>,
) -> Result<Response, ApiRejection> {
    let bytes = body::bytes(request, &service.core.messages, Some(Scanner::batch())).await?;
    let spec = read(&bytes, &name)?;
    if spec.job.network && !service.core.tenants.may_have_network(&owner) {
        let message = "job.network: this token may not give jobs the host's network";
        return Err(ApiRejection::new(Code::NetworkRefused, message).with("key", "job.network"));
    }
    let store_owner = store_owner(&owner);
    let (of, queue) = (store_owner.clone(), store_owner.stored_queue(&spec.job.queue));
    let stored = service.ask(move |store| Ok(store.put_schedule(of.name(), &queue, &spec)?)).await?;
    Ok(body::json(&shown(&store_owner, stored)))
}

pub(super) async fn list(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let store_owner = store_owner(&owner);
    let of = store_owner.clone();
    let records = service
        .ask(move |store| {
            store.sweep()?;
            Ok(store.schedules(Some(of.name()))?)
        })
        .await?;
    let records: Vec<Value> = records.into_iter().map(|record| shown(&store_owner, record)).collect();
    Ok(body::json(&json!({"schedules": records})))
}

/// Removes a schedule. Removing an unknown one succeeds.
pub(super) async fn remove(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(name): Id,
    Parameters(fields): Parameters,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let (of, which) = (store_owner(&owner), name.clone());
    let removed = service.ask(move |store| Ok(store.remove_schedule(of.name(), &which)?)).await?;
    Ok(body::json(&json!({"name": name, "removed": removed})))
}

pub(super) async fn pause(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(name): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    set_paused(&service, &owner, name, true, fields).await
}

pub(super) async fn resume(
    State(service): State<Arc<JobService>>,
    Extension(owner): Extension<OwnerId>,
    Id(name): Id,
    Object(fields): Object,
) -> Result<Response, ApiRejection> {
    set_paused(&service, &owner, name, false, fields).await
}

async fn set_paused(
    service: &Arc<JobService>,
    owner: &OwnerId,
    name: String,
    paused: bool,
    fields: RequestFields,
) -> Result<Response, ApiRejection> {
    fields.finish()?;
    let store_owner = store_owner(owner);
    let (of, which) = (store_owner.clone(), name.clone());
    let found = service.ask(move |store| Ok(store.pause_schedule(of.name(), &which, paused)?)).await?;
    let record = found.ok_or_else(|| {
        ApiRejection::new(Code::ScheduleNotFound, format!("there is no schedule `{name}`")).with("name", name)
    })?;
    Ok(body::json(&shown(&store_owner, record)))
}

/// The schedule in a body. Its name is the path's; a body may repeat it.
fn read(bytes: &[u8], name: &str) -> Result<ScheduleSpec, ApiRejection> {
    let UnambiguousValue(mut source) = serde_json::from_slice(bytes).map_err(|error| {
        let code = if error.is_data() { Code::BadSpec } else { Code::BadJson };
        ApiRejection::new(code, format!("the body is not a schedule in JSON: {error}"))
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

fn shown(store_owner: &StoreOwner, mut record: ScheduleRecord) -> Value {
    record.queue = store_owner.own_queue(&record.queue).unwrap_or(&record.queue).to_owned();
    // Plain data with string keys always serialises.
    serde_json::to_value(record).unwrap_or_default()
}
