//! Schedules: jobs that recur. A schedule has a job's spec, the moments at which the job is due,
//! and what is done when moments were missed or the job before is still there. Nothing is submitted
//! here: stores do that, one job for each tick.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{SpecError, missing};
use super::queueing::Concurrency;
use super::recurrence::{Recurrence, ScheduledMoment};
use super::spec::JobSpec;
use super::table::{SpecTable, refused};

/// With [`MissedPolicy::All`], the largest number of missed moments for which the job is submitted:
/// the last ones.
pub const MAX_MISSED: usize = 100;
/// With `missed = "skip"` a moment counts as missed when it is this long ago. Ticks come within a
/// second where a worker runs.
const MAX_LATENESS_MS: u64 = 60_000;
/// Fields of a job that name one moment or one job.
const OF_ONE_JOB: [(&str, &str); 6] = [
    ("idempotency_key", "names one job; leave it out: each moment of a schedule has one job"),
    ("deadline_ms", "is one moment; use `wall_ms`, which counts from each submission"),
    ("not_before_ms", "is one moment; use `cron` or `every_ms`, and `delay_ms` for a later start"),
    ("map", "is several jobs, and each moment of a schedule has one; use `steps`"),
    ("scheduled", "is what a store adds; leave it out"),
    ("after", "names jobs that end once; leave it out, or put several `steps` into the job"),
];

/// What happens to moments at which no worker was there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissedPolicy {
    /// The job is submitted once, for the last one.
    #[default]
    One,
    /// The job is not submitted for them.
    Skip,
    /// The job is submitted for each, at most [`MAX_MISSED`].
    All,
}

/// What happens when the job before has not finished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    /// No job is submitted for this moment.
    #[default]
    Skip,
    /// The new job waits until the one before has finished.
    Queue,
    /// Both run.
    Allow,
}

/// A schedule: the moments at which a job is due, and the job's spec.
///
/// ```
/// use sandtimer_jobs::job::ScheduleSpec;
/// use serde_json::json;
///
/// let schedule = ScheduleSpec::read(json!({
///     "name": "report",
///     "cron": "30 3 * * *",
///     "job": {"command": ["python3", "report.py"], "wall_ms": "10m"},
/// }))?;
/// // Half past three in the morning of the first day of 1970, in UTC.
/// assert_eq!(schedule.recurrence.first(0), Some((3 * 3600 + 30 * 60) * 1000));
/// # Ok::<(), sandtimer_jobs::job::SpecError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ScheduleSpec {
    /// The name, unique among the schedules of an owner.
    pub name: String,
    /// The moments at which the job is due.
    pub recurrence: Recurrence,
    /// What happens to moments at which no worker was there; by default one job for all of them.
    pub missed: MissedPolicy,
    /// What happens at a moment at which the job before has not ended; by default no job is
    /// submitted.
    pub overlap: OverlapPolicy,
    /// `None` if it is not given: a schedule that is stored again stays paused, or not, as it was.
    pub is_paused: Option<bool>,
    /// The spec of the job, without a moment.
    pub job: JobSpec,
    source: Value,
}

/// What happens when a schedule is due. Moments are in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tick {
    /// The moment for which the job is submitted, if it is.
    pub moment_ms: Option<u64>,
    /// How many moments pass without a job; those before the last 100 are not counted.
    pub skipped: u64,
    /// When it is due again.
    pub next_ms: Option<u64>,
}

impl ScheduleSpec {
    /// Reads a schedule that is stored.
    ///
    /// # Errors
    /// The first field that is rejected: its path, its value, and what is allowed.
    pub fn read(source: Value) -> Result<Self, SpecError> {
        let mut table = SpecTable::of(source.clone(), "", 1.0)?;
        let name = table.name("name")?.ok_or_else(|| missing("name", "a name for the schedule"))?;
        let recurrence = Recurrence::read(&mut table)?;
        let missed = policy(&mut table, "missed", "`one`, `skip` or `all`")?;
        let overlap = policy(&mut table, "overlap", "`skip`, `queue` or `allow`")?;
        let is_named = source.get("paused").is_some_and(|paused| !paused.is_null());
        let is_paused = Some(table.flag("paused")?).filter(|_| is_named);
        let job = table.take("job").ok_or_else(|| missing("job", "a table with the spec of the job"))?;
        table.done()?;
        if missed == MissedPolicy::All && overlap == OverlapPolicy::Skip {
            let problem = "`all` needs `overlap = \"queue\"` or `\"allow\"`: with `skip` only the first job is submitted";
            return Err(SpecError { path: "missed".to_owned(), problem: problem.to_owned() });
        }
        let job = read_job(&name, job)?;
        if overlap == OverlapPolicy::Queue && job.concurrency.is_some() {
            let problem =
                "`queue` is a concurrency key of the schedule; leave `job.concurrency` out, or use `allow`";
            return Err(SpecError { path: "overlap".to_owned(), problem: problem.to_owned() });
        }
        Ok(ScheduleSpec { job, name, recurrence, missed, overlap, is_paused, source })
    }

    /// Returns the value it was read from, with the secret of the job's webhook.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Returns what stores show of it: without the secret of the job's webhook, and with digests in
    /// place of inputs.
    pub fn shown(&self) -> Value {
        let mut shown = self.source.clone();
        if let Value::Object(fields) = &mut shown {
            fields.insert("job".to_owned(), self.job.stored());
        }
        shown
    }

    /// Returns a string that is the same for two schedules which are due at the same moments.
    pub fn timing(&self) -> String {
        let of = |key| self.source.get(key).cloned().unwrap_or_default();
        Value::Array(["cron", "time_zone", "every_ms"].map(of).to_vec()).to_string()
    }

    /// Returns what happens at `now_ms` if the schedule is due since `due_ms`.
    pub fn tick(&self, due_ms: u64, now_ms: u64) -> Tick {
        let last = self.recurrence.last(due_ms, now_ms.max(due_ms));
        let next_ms = self.recurrence.next(last, now_ms.max(last));
        let moment_ms = match self.missed {
            MissedPolicy::All => return self.tick_of_all(due_ms, now_ms),
            MissedPolicy::Skip => Some(last).filter(|last| now_ms.saturating_sub(*last) <= MAX_LATENESS_MS),
            MissedPolicy::One => Some(last),
        };
        let moments = self.last_moments(due_ms, now_ms).len() as u64;
        Tick { moment_ms, skipped: moments - u64::from(moment_ms.is_some()), next_ms }
    }

    fn tick_of_all(&self, due_ms: u64, now_ms: u64) -> Tick {
        let moments = self.last_moments(due_ms, now_ms);
        let first = moments.last().copied().unwrap_or(due_ms);
        Tick { moment_ms: Some(first), skipped: 0, next_ms: self.recurrence.next(first, first) }
    }

    /// The last moments from `due_ms` to `now_ms`, the latest first, at most [`MAX_MISSED`].
    fn last_moments(&self, due_ms: u64, now_ms: u64) -> Vec<u64> {
        let mut moments = vec![self.recurrence.last(due_ms, now_ms.max(due_ms))];
        while let Some(last) = moments.last().copied().filter(|last| *last > due_ms)
            && moments.len() < MAX_MISSED
        {
            moments.push(self.recurrence.last(due_ms, last - 1));
        }
        moments
    }

    /// Returns the spec of the job for one moment.
    pub fn job_for(&self, moment_ms: u64) -> JobSpec {
        let scheduled = ScheduledMoment { schedule: self.name.clone(), moment_ms };
        let mut job = self.job.clone().for_moment(scheduled);
        if self.overlap == OverlapPolicy::Queue {
            job.concurrency = Some(Concurrency { key: format!("schedule {}", self.name), most: 1 });
        }
        job
    }
}

/// Reads the job of a schedule. It has the schedule's name unless it has one of its own.
fn read_job(name: &str, mut job: Value) -> Result<JobSpec, SpecError> {
    let in_job = |error: SpecError| SpecError { path: format!("job.{}", error.path), ..error };
    if let Value::Object(fields) = &mut job {
        if let Some((field, problem)) = OF_ONE_JOB.into_iter().find(|(field, _)| fields.contains_key(*field))
        {
            return Err(in_job(SpecError { path: field.to_owned(), problem: problem.to_owned() }));
        }
        fields.entry("name").or_insert_with(|| name.into());
    }
    JobSpec::read(job).map_err(in_job)
}

fn policy<T: Default + for<'de> Deserialize<'de>>(
    table: &mut SpecTable,
    key: &'static str,
    allowed: &str,
) -> Result<T, SpecError> {
    let path = table.at(key);
    let Some(value) = table.take(key) else { return Ok(T::default()) };
    serde_json::from_value(value.clone()).map_err(|_| refused(&path, &value, allowed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schedule(more: Value) -> Result<ScheduleSpec, SpecError> {
        let mut source = json!({"name": "s", "every_ms": 1_000, "job": {"command": ["true"]}});
        source.as_object_mut().expect("a table").extend(more.as_object().expect("a table").clone());
        ScheduleSpec::read(source)
    }

    #[test]
    fn missed_moments_follow_the_policy() {
        let tick = |missed: &str, now| {
            let spec = schedule(json!({"missed": missed, "overlap": "queue"})).expect("valid");
            let Tick { moment_ms, skipped, next_ms } = spec.tick(5_000, now);
            (moment_ms, skipped, next_ms)
        };
        for missed in ["one", "skip", "all"] {
            assert_eq!(tick(missed, 5_020), (Some(5_000), 0, Some(6_000)), "{missed}: on time");
        }
        assert_eq!(tick("one", 8_300), (Some(8_000), 3, Some(9_000)));
        assert_eq!(tick("all", 8_300), (Some(5_000), 0, Some(6_000)));
        assert_eq!(tick("all", 505_500), (Some(406_000), 0, Some(407_000)), "the last 100");
        // Of an interval of a second the last moment is always recent.
        assert_eq!(tick("skip", 8_300), (Some(8_000), 3, Some(9_000)));
    }

    #[test]
    fn missed_day_is_skipped_on_request() {
        let day = 86_400_000;
        let spec = schedule(json!({"every_ms": day, "missed": "skip"})).expect("valid");
        assert_eq!(spec.tick(day, day + 59_000).moment_ms, Some(day));
        let late = spec.tick(day, day * 3 + 61_000);
        assert_eq!(late, Tick { moment_ms: None, skipped: 3, next_ms: Some(day * 4) });
    }

    #[test]
    fn job_of_a_moment_names_it() {
        let spec = schedule(json!({"overlap": "queue", "job": {"command": ["true"], "wall_ms": 5_000}}));
        let job = spec.expect("valid").job_for(7_000);
        assert_eq!((job.name.as_str(), job.concurrency.as_ref().map(|of| of.most)), ("s", Some(1)));
        assert_eq!(job.stored()["scheduled"], json!({"schedule": "s", "moment_ms": 7_000}));
        let read = JobSpec::read_stored(job.stored()).expect("a store reads it");
        assert_eq!(read.scheduled, job.scheduled);
        assert_eq!(
            read.work_digest(),
            JobSpec::read_stored(spec_without_moment()).expect("valid").work_digest()
        );
        assert!(JobSpec::read(job.stored()).is_err(), "callers do not choose it");
    }

    fn spec_without_moment() -> Value {
        json!({"command": ["true"], "wall_ms": 5_000})
    }

    #[test]
    fn malformed_schedules_are_refused() {
        for (more, path, part) in [
            (json!({"name": ""}), "name", "not empty"),
            (json!({"missed": "never"}), "missed", "`one`, `skip` or `all`"),
            (json!({"overlap": 1}), "overlap", "`skip`, `queue` or `allow`"),
            (json!({"missed": "all"}), "missed", "overlap"),
            (json!({"paused": "yes"}), "paused", "true or false"),
            (json!({"job": []}), "job.", "a table"),
            (json!({"job": {"command": ["true"], "walls": 1}}), "job.walls", "unknown field"),
            (
                json!({"job": {"command": ["true"], "idempotency_key": "k"}}),
                "job.idempotency_key",
                "leave it out",
            ),
            (json!({"job": {"command": ["true"], "deadline_ms": 1}}), "job.deadline_ms", "wall_ms"),
            (json!({"job": {"command": ["true"], "not_before_ms": 1}}), "job.not_before_ms", "cron"),
            (json!({"when": "daily"}), "when", "unknown field"),
            (json!({"job": {"command": ["true"], "map": {"over": [1]}}}), "job.map", "use `steps`"),
            (json!({"job": {"command": ["true"], "scheduled": {}}}), "job.scheduled", "leave it out"),
            (
                json!({"overlap": "queue", "job": {"command": ["true"], "concurrency": {"key": "k"}}}),
                "overlap",
                "job.concurrency",
            ),
        ] {
            let error = schedule(more.clone()).expect_err("refused");
            assert_eq!(error.path, path, "{more}: {error}");
            assert!(error.problem.contains(part), "{more}: {error}");
        }
    }
}
