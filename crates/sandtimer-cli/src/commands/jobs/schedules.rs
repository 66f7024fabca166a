//! `sandtimer jobs schedule`, `schedules`, `unschedule`, and `pause` and `resume` of schedules.

use std::process::ExitCode;

use sandtimer_jobs::job::{JobStore, LOCAL_OWNER, ScheduleRecord, rfc3339, schedule_from};
use serde_json::json;

use super::answers::answer;
use super::store::open;
use super::text::columns;
use crate::args::jobs::{PauseArguments, ScheduleArguments, StoreFlags, UnscheduleArguments};
use crate::commands::CommandFailure;

/// Moments that are printed when a schedule is stored, so that a wrong expression or time zone is
/// noticed at once.
const LISTED_MOMENTS: usize = 3;

/// `sandtimer jobs schedule`.
pub(super) fn put(given: &ScheduleArguments) -> Result<ExitCode, CommandFailure> {
    let here =
        std::env::current_dir().map_err(CommandFailure::system("the current directory cannot be read"))?;
    let mut sources = super::submitting::sources(&given.file, &here)?;
    let (origin, source, directory) = match (sources.pop(), sources.is_empty()) {
        (Some(one), true) => one,
        _ => {
            return Err(CommandFailure::usage(
                "standard input has more than one schedule; store them one by one",
            ));
        }
    };
    let spec = schedule_from(source, &directory)
        .map_err(|error| CommandFailure::usage(format!("{origin}: {error}")))?;
    let record = open(&given.store)?.put_schedule(LOCAL_OWNER, &spec.job.queue, &spec)?;
    let following = |moment: &u64| spec.recurrence.next(*moment, *moment);
    let moments = std::iter::successors(record.next_ms, following).take(LISTED_MOMENTS);
    let moments: Vec<String> = moments.map(|moment| rfc3339(moment, time_zone(&record))).collect();
    answer(&given.store, &record, || match moments.is_empty() {
        true if record.spec["paused"] == true => {
            format!(
                "schedule {0} is paused; `sandtimer jobs resume --schedule {0}` resumes it\n",
                record.name
            )
        }
        true => format!("schedule {} is never due again\n", record.name),
        false => format!("schedule {} is due at {}, …\n", record.name, moments.join(", ")),
    });
    Ok(ExitCode::SUCCESS)
}

/// `sandtimer jobs schedules`.
pub(super) fn list(flags: &StoreFlags) -> Result<ExitCode, CommandFailure> {
    let store = open(flags)?;
    store.sweep()?;
    let records = store.schedules(None)?;
    let with_owner = |record: &ScheduleRecord| {
        let mut value = serde_json::to_value(record).unwrap_or_default();
        value["owner"] = json!(record.owner);
        value
    };
    let values: Vec<_> = records.iter().map(with_owner).collect();
    answer(flags, &json!({"schedules": values}), || table(&records));
    Ok(ExitCode::SUCCESS)
}

/// `sandtimer jobs unschedule`.
pub(super) fn remove(given: &UnscheduleArguments) -> Result<ExitCode, CommandFailure> {
    let name = &given.name;
    let owner = given.owner.as_deref().unwrap_or(LOCAL_OWNER);
    if !open(&given.store)?.remove_schedule(owner, name)? {
        return Err(unknown(owner, name));
    }
    answer(&given.store, &json!({"name": name, "removed": true}), || {
        format!("schedule {name} is removed; its jobs stay\n")
    });
    Ok(ExitCode::SUCCESS)
}

/// `sandtimer jobs pause --schedule` and `resume --schedule`.
pub(super) fn pause(
    store: &dyn JobStore,
    given: &PauseArguments,
    paused: bool,
) -> Result<ExitCode, CommandFailure> {
    let name = given.schedule.as_deref().unwrap_or_default();
    let owner = given.owner.as_deref().unwrap_or(LOCAL_OWNER);
    let record = store.pause_schedule(owner, name, paused)?.ok_or_else(|| unknown(owner, name))?;
    answer(&given.store, &record, || match record.next_ms {
        _ if paused => format!("schedule {name} is paused: it submits no jobs\n"),
        Some(next) => format!("schedule {name} is due at {}\n", rfc3339(next, time_zone(&record))),
        None => format!("schedule {name} is never due again\n"),
    });
    Ok(ExitCode::SUCCESS)
}

fn unknown(owner: &str, name: &str) -> CommandFailure {
    CommandFailure::usage(format!(
        "owner `{owner}` has no schedule `{name}`; `sandtimer jobs schedules` lists the schedules of all owners"
    ))
}

fn time_zone(record: &ScheduleRecord) -> Option<&str> {
    record.spec["time_zone"].as_str()
}

fn table(records: &[ScheduleRecord]) -> String {
    if records.is_empty() {
        return "no schedules\n".to_owned();
    }
    let mut lines =
        vec![["OWNER", "NAME", "DUE", "NEXT", "LAST", "LAST JOB", "JOBS", "SKIPPED", ""].map(str::to_owned)];
    lines.extend(records.iter().map(line));
    columns(&lines)
}

fn line(record: &ScheduleRecord) -> [String; 9] {
    let dash = || "-".to_owned();
    let moment = |moment: Option<u64>| moment.map_or_else(dash, |moment| rfc3339(moment, time_zone(record)));
    let due = match (record.spec["cron"].as_str(), &record.spec["every_ms"]) {
        (Some(cron), _) => format!("{cron} {}", time_zone(record).unwrap_or("UTC")),
        (None, serde_json::Value::String(every)) => format!("every {every}"),
        (None, every) => format!("every {every} ms"),
    };
    let job = match (&record.last_job, record.last_state) {
        (Some(id), Some(state)) => format!("{id} {}", state.name()),
        (Some(id), None) => id.clone(),
        (None, _) => dash(),
    };
    let remark = match (&record.error, record.spec["paused"] == true) {
        (_, true) => "paused".to_owned(),
        (Some(error), false) => error.clone(),
        (None, false) => String::new(),
    };
    [
        record.owner.clone(),
        record.name.clone(),
        due,
        moment(record.next_ms),
        moment(record.last_ms),
        job,
        record.submitted.to_string(),
        record.skipped.to_string(),
        remark,
    ]
}
