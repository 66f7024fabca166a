//! The spec of a job. Read from JSON or TOML by [`JobSpec::read`], which rejects whatever is not
//! clear; kept as the JSON it was read from, so that a store can compare and hand on what it got.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandtimer::limits::{Limits, Setting};
use sandtimer::model::LimitKind;
use sandtimer_agents::resilience::{BreakerSettings, Rate};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{SpecError, missing};
use super::files::{self, InputFile, OutputSpec};
use super::graph::{self, StepSpec};
use super::program::JobProgram;
use super::queueing::{self, After, Concurrency, RateLimit};
use super::recurrence::ScheduledMoment;
use super::table::{SpecTable, name_wall_of, refused};
use super::ways::{Action, WaySpec, action, ways};
use super::webhook::{self, Webhook};

/// The default of `retention_ms`.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often a job is handed to a worker before it is dead.
const DELIVERIES: u32 = 3;

/// Steps of a job that are executed at the same time.
const MAX_PARALLEL: i64 = 64;

/// Fields that do not change what is executed.
const SCHEDULING: [&str; 18] = [
    "name",
    "queue",
    "priority",
    "wall_ms",
    "deadline_ms",
    "not_before_ms",
    "delay_ms",
    "idempotency_key",
    "concurrency",
    "retention_ms",
    "deliveries",
    "webhook",
    "scheduled",
    "rate",
    "release_on_failure",
    "after",
    "after_failure",
    "after_results",
];

/// The spec of a job: what it executes, when and where, under which limits.
///
/// ```
/// use std::time::Duration;
/// use sandtimer_jobs::job::JobSpec;
/// use serde_json::json;
///
/// let source = JobSpec::json_of_toml(
///     r#"
///     name = "train"
///     command = ["python3", "train.py"]
///     wall_ms = "2h"
///     attempts = 3
///     limits = { memory_bytes = "4G" }
///     "#,
/// )?;
/// let spec = JobSpec::read(source)?;
/// assert_eq!((spec.name.as_str(), spec.wall), ("train", Some(Duration::from_secs(7200))));
/// assert_eq!(spec.memory_bytes(), 4 << 30);
///
/// let error = JobSpec::read(json!({"command": ["true"], "atempts": 3})).expect_err("misspelt");
/// assert_eq!(error.path, "atempts");
/// # Ok::<(), sandtimer_jobs::job::SpecError>(())
/// ```
#[derive(Debug, Clone)]
pub struct JobSpec {
    /// A name for people, 1 to 200 characters; by default `job`.
    pub name: String,
    /// The queue it waits in; by default `default`.
    pub queue: String,
    /// From −100 to 100, by default 0; a job with a higher one starts earlier.
    pub priority: i32,
    /// The wall-clock limit of the whole job, from its submission; `None` is unlimited.
    pub wall: Option<Duration>,
    /// That limit as a moment, in milliseconds since 1970, in place of `wall`.
    pub deadline_ms: Option<u64>,
    /// The earliest start, in milliseconds since 1970; by default at once.
    pub not_before_ms: Option<u64>,
    /// The earliest start as a time from its submission, in place of `not_before_ms`.
    pub delay: Option<Duration>,
    /// A second job of the owner with this key and the same spec is the same job.
    pub idempotency_key: Option<String>,
    /// Its idempotency key may be used again once it has ended without success; false by default.
    pub releases_key: bool,
    /// How many jobs with the same key run at the same time; by default any number.
    pub concurrency: Option<Concurrency>,
    /// How many jobs with the same key start in a period; by default any number.
    pub rate: Option<RateLimit>,
    /// Jobs that must have ended before it starts.
    pub after: After,
    /// How long the store keeps it after its end; by default 7 days, `None` is for ever.
    pub retention: Option<Duration>,
    /// How often it is handed to a worker without a result before it is dead; by default 3.
    pub deliveries: u32,
    /// The limits of each run.
    pub limits: Limits,
    /// The circuit breakers of its keys.
    pub breaker: BreakerChoice,
    /// Variables added to the clean environment of each run.
    pub environment: Vec<(String, String)>,
    /// The directory in which its runs start; an absolute path.
    pub working_directory: Option<PathBuf>,
    /// Directories shown writable to its runs at their own paths; absolute paths.
    pub workspaces: Vec<PathBuf>,
    /// Files that are in its directory when its first run starts.
    pub inputs: Vec<InputFile>,
    /// Which of the files that it leaves are stored.
    pub outputs: Vec<OutputSpec>,
    /// Where its end is delivered, if it is.
    pub webhook: Option<Webhook>,
    /// The moment of a schedule for which it was submitted, if it was.
    pub scheduled: Option<ScheduledMoment>,
    /// Its runs have the host's network instead of none.
    pub network: bool,
    /// The factor by which its durations were multiplied; by default 1.
    pub time_scale: f64,
    /// The number of steps that are executed at the same time; by default 1.
    pub parallel: u32,
    /// What the job executes.
    pub work: JobWork,
    source: Value,
}

/// The moments in a job's spec, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The wall-clock limit, from the submission.
    pub wall_ms: Option<u64>,
    /// That limit as a moment, since 1970.
    pub deadline_ms: Option<u64>,
    /// The earliest start, since 1970.
    pub not_before_ms: Option<u64>,
    /// The earliest start, from the submission.
    #[serde(default)]
    pub delay_ms: Option<u64>,
}

impl Times {
    /// Returns the moment at which the limit of a job is reached that is submitted at `now_ms`;
    /// `None` if it is unlimited.
    ///
    /// # Errors
    /// If that moment has passed, or the job could not start before it.
    pub fn deadline(&self, now_ms: u64) -> Result<Option<u64>, SpecError> {
        if let Some(deadline) = self.deadline_ms
            && deadline <= now_ms
        {
            let ago = now_ms - deadline;
            let problem =
                format!("{deadline} is {ago} ms in the past; use a moment after {now_ms}, or `wall_ms`");
            return Err(SpecError { path: "deadline_ms".to_owned(), problem });
        }
        let deadline = self.deadline_ms.or_else(|| self.wall_ms.map(|wall| now_ms.saturating_add(wall)));
        if let (Some(deadline), Some(start)) = (deadline, self.not_before_ms)
            && start >= deadline
        {
            let problem =
                format!("{start} is not before the job's deadline, {deadline}; use an earlier moment");
            return Err(SpecError { path: "not_before_ms".to_owned(), problem });
        }
        if let (Some(deadline), Some(delay)) = (deadline, self.delay_ms)
            && now_ms.saturating_add(delay) >= deadline
        {
            let left = deadline - now_ms;
            let problem = format!(
                "a delay of {delay} ms ends at or after the job's deadline, which is in {left} ms; use a shorter delay"
            );
            return Err(SpecError { path: "delay_ms".to_owned(), problem });
        }
        Ok(deadline)
    }

    /// Returns the same moments on a clock that is this many milliseconds behind the calendar.
    #[must_use]
    pub fn corrected_for_skew(self, skew_ms: i64) -> Self {
        let shift = |moment: u64| moment.saturating_add_signed(skew_ms.saturating_neg());
        Times {
            deadline_ms: self.deadline_ms.map(shift),
            not_before_ms: self.not_before_ms.map(shift),
            ..self
        }
    }

    /// Returns the moment from which a job may run that is submitted at `now_ms`.
    pub fn start(&self, now_ms: u64) -> u64 {
        let delayed = now_ms.saturating_add(self.delay_ms.unwrap_or(0));
        self.not_before_ms.map_or(delayed, |start| start.max(delayed))
    }
}

/// Whose results a breaker counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BreakerScope {
    /// Those of one job.
    #[default]
    Job,
    /// Those of all jobs of one owner in a store.
    Store,
}

/// The circuit breakers of a job.
#[derive(Debug, Clone, Default)]
pub struct BreakerChoice {
    /// When a breaker opens and closes.
    pub settings: BreakerSettings,
    /// Whose results it counts; by default those of this job.
    pub scope: BreakerScope,
}

/// What a job executes.
#[derive(Debug, Clone)]
pub enum JobWork {
    /// One call.
    Action(Action),
    /// Calls, in an order in which each comes after those that it needs.
    Steps(Vec<StepSpec>),
    /// A driver with the actions that it chooses from.
    Loop(Box<LoopSpec>),
}

/// The first number that is infinite or none, by its path.
fn endless(path: &str, value: &toml::Value) -> Option<(String, f64)> {
    match value {
        toml::Value::Float(number) if !number.is_finite() => Some((path.to_owned(), *number)),
        toml::Value::Array(all) => {
            all.iter().enumerate().find_map(|(index, value)| endless(&format!("{path}[{index}]"), value))
        }
        toml::Value::Table(all) => {
            all.iter().find_map(|(key, value)| endless(&format!("{path}.{key}"), value))
        }
        _ => None,
    }
}

/// A loop: a driver that is asked each turn what to do.
#[derive(Debug, Clone)]
pub struct LoopSpec {
    /// The call that returns the next action, or ends the loop.
    pub driver: Action,
    /// The calls that the driver chooses from, by name.
    pub actions: BTreeMap<String, Action>,
    /// The largest number of turns; `None` is unlimited.
    pub iterations: Option<u32>,
    /// The largest number of turns that fail, in all; `None` is unlimited.
    pub failures: Option<u32>,
    /// The largest number of turns in a row with the same action and input; `None` is unlimited.
    pub repeats: Option<u32>,
    /// The wall-clock limit of the whole loop; `None` is unlimited.
    pub wall: Option<Duration>,
    /// The wall-clock limit of each turn; `None` is unlimited.
    pub turn_wall: Option<Duration>,
}

impl JobSpec {
    /// Reads a spec that is submitted.
    ///
    /// # Errors
    /// The first field that is rejected: its path, its value, and what is allowed.
    pub fn read(source: Value) -> Result<Self, SpecError> {
        Self::read_as(source, false)
    }

    /// Reads a spec that a store has kept ([`JobSpec::stored`]).
    ///
    /// # Errors
    /// As [`JobSpec::read`].
    pub fn read_stored(source: Value) -> Result<Self, SpecError> {
        Self::read_as(source, true)
    }

    fn read_as(mut source: Value, stored: bool) -> Result<Self, SpecError> {
        // What is kept has its own name for it, by which specs are compared.
        name_wall_of(&mut source)?;
        let mut table = SpecTable::of(source.clone(), "", 1.0)?;
        let time_scale = scale(&mut table)?;
        table.scale = time_scale;
        let (working_directory, workspaces) = take_directories(&mut table)?;
        let after = queueing::after(&mut table)?;
        let spec = JobSpec {
            name: table.name("name")?.unwrap_or_else(|| "job".to_owned()),
            queue: table.name("queue")?.unwrap_or_else(|| "default".to_owned()),
            priority: table.count("priority", -100, 100)?.unwrap_or(0) as i32,
            wall: table.wall()?.flatten(),
            deadline_ms: table.moment("deadline_ms")?,
            not_before_ms: table.moment("not_before_ms")?,
            delay: delay(&mut table)?,
            idempotency_key: table.name("idempotency_key")?,
            releases_key: table.flag("release_on_failure")?,
            concurrency: Concurrency::read(&mut table)?,
            rate: RateLimit::read(&mut table)?,
            after,
            retention: table.limit("retention_ms")?.unwrap_or(Some(RETENTION)),
            deliveries: table.small("deliveries", 1)?.unwrap_or(DELIVERIES),
            limits: table.limits("limits")?,
            breaker: breaker(&mut table)?,
            environment: table.table("env")?.map(SpecTable::open_strings).transpose()?.unwrap_or_default(),
            working_directory,
            workspaces,
            inputs: files::inputs(&mut table, stored)?,
            outputs: files::outputs(&mut table)?,
            webhook: webhook::webhook(&mut table, stored)?,
            scheduled: if stored { scheduled(&mut table)? } else { None },
            network: table.flag("network")?,
            time_scale,
            parallel: table.count("parallel", 1, MAX_PARALLEL)?.unwrap_or(1) as u32,
            work: work(&mut table)?,
            source,
        };
        table.done()?;
        spec.check_combinations()?;
        spec.check_handler_fields()?;
        Ok(spec)
    }

    /// Parses TOML, and returns it as a value for [`JobSpec::read`].
    ///
    /// # Errors
    /// The line that is not TOML, with the reason, or the path of a number that is not finite.
    pub fn json_of_toml(text: &str) -> Result<Value, SpecError> {
        let failed = |error: toml::de::Error| {
            let before =
                error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count());
            SpecError { path: format!("line {}", before + 1), problem: error.message().to_owned() }
        };
        // JSON has no such numbers, and would have null in their place, which is no limit.
        match toml::from_str::<toml::Table>(text)
            .map_err(failed)?
            .iter()
            .find_map(|(key, value)| endless(key, value))
        {
            Some((path, number)) => Err(SpecError {
                path,
                problem: format!("`{number}` is not a number that can be used; use a finite one"),
            }),
            None => toml::from_str::<Value>(text).map_err(failed),
        }
    }

    /// Returns what a store shows of it: with digests in place of inputs, and without secrets. A
    /// store keeps those apart.
    pub fn stored(&self) -> Value {
        let mut kept = files::stored(&self.source, &self.inputs);
        webhook::hide(&mut kept);
        kept
    }

    /// Returns a digest of what is executed, apart from when, in which order and for whom: jobs
    /// with the same digest are alike.
    pub fn work_digest(&self) -> String {
        let mut work = self.stored();
        if let Some(fields) = work.as_object_mut() {
            fields.retain(|name, _| !SCHEDULING.contains(&name.as_str()));
        }
        files::digest(work.to_string().as_bytes())
    }

    /// Returns the memory that its runs may have together, in bytes; 0 if it is not limited. Of
    /// runs one after another the largest counts.
    pub fn memory_bytes(&self) -> u64 {
        let actions: Vec<&Action> = match &self.work {
            JobWork::Action(action) => vec![action],
            JobWork::Steps(steps) => steps.iter().map(|step| &step.action).collect(),
            JobWork::Loop(turns) => turns.actions.values().chain([&turns.driver]).collect(),
        };
        let of = |way: &WaySpec| match way.limits.over(&self.limits).get(LimitKind::Memory) {
            Setting::At(bytes) => bytes,
            Setting::Unlimited | Setting::Inherit => 0,
        };
        let largest = actions.iter().flat_map(|action| &action.ways).map(of).max().unwrap_or(0);
        let together = match &self.work {
            JobWork::Steps(steps) => u64::from(self.parallel).min(steps.len() as u64),
            JobWork::Action(_) | JobWork::Loop(_) => 1,
        };
        largest.saturating_mul(together)
    }

    /// Whether its runs work in a directory of its own.
    pub fn has_files(&self) -> bool {
        !self.inputs.is_empty() || !self.outputs.is_empty() || self.after.results.is_some()
    }

    /// The same for one moment of a schedule.
    #[must_use]
    pub(super) fn for_moment(mut self, scheduled: ScheduledMoment) -> Self {
        if let Value::Object(fields) = &mut self.source {
            let named = serde_json::json!({"schedule": scheduled.schedule, "moment_ms": scheduled.moment_ms});
            fields.insert("scheduled".to_owned(), named);
        }
        JobSpec { scheduled: Some(scheduled), ..self }
    }

    /// Returns the value it was read from.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Returns the moment at which its limit is reached if it is submitted at `now_ms`; `None` if
    /// it is unlimited.
    ///
    /// # Errors
    /// As [`Times::deadline`].
    pub fn deadline(&self, now_ms: u64) -> Result<Option<u64>, SpecError> {
        self.times().deadline(now_ms)
    }

    /// Rejects a deadline that has passed. With an idempotency key only the store knows whether
    /// that matters, because the job may have been submitted before.
    ///
    /// # Errors
    /// As [`JobSpec::deadline`].
    pub fn check_deadline(&self, now_ms: u64) -> Result<(), SpecError> {
        if self.idempotency_key.is_some() { Ok(()) } else { self.deadline(now_ms).map(drop) }
    }

    /// Returns its moments.
    pub fn times(&self) -> Times {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Times {
            wall_ms: self.wall.map(|wall| milliseconds(wall).max(1)),
            deadline_ms: self.deadline_ms,
            not_before_ms: self.not_before_ms,
            delay_ms: self.delay.map(milliseconds),
        }
    }

    fn check_combinations(&self) -> Result<(), SpecError> {
        if self.source.get("parallel").is_some() && !matches!(self.work, JobWork::Steps(_)) {
            let problem = "is how many `steps` are executed at the same time; add steps, or leave it out";
            return Err(SpecError { path: "parallel".to_owned(), problem: problem.to_owned() });
        }
        if let Some(results) = &self.after.results
            && let Some(input) = self.inputs.iter().find(|input| {
                Path::new(&input.path).starts_with(results) || Path::new(results).starts_with(&input.path)
            })
        {
            let problem =
                format!("`{results}` is in the way of `{}` in `inputs`; use another path", input.path);
            return Err(SpecError { path: "after_results".to_owned(), problem });
        }
        if self.releases_key && self.idempotency_key.is_none() {
            let problem = "has no effect without `idempotency_key`; add one, or leave it out";
            return Err(SpecError { path: "release_on_failure".to_owned(), problem: problem.to_owned() });
        }
        for (path, other, both) in [
            ("deadline_ms", "wall_ms", self.wall.is_some() && self.deadline_ms.is_some()),
            ("not_before_ms", "delay_ms", self.delay.is_some() && self.not_before_ms.is_some()),
        ] {
            if both {
                let problem = format!("cannot be combined with `{other}`; use one of them");
                return Err(SpecError { path: path.to_owned(), problem });
            }
        }
        Ok(())
    }
}

impl JobSpec {
    /// Returns the names of all handlers that its work names, sorted.
    pub fn handlers(&self) -> BTreeSet<&str> {
        let actions: Vec<&Action> = match &self.work {
            JobWork::Action(action) => vec![action],
            JobWork::Steps(steps) => steps.iter().map(|step| &step.action).collect(),
            JobWork::Loop(spec) => std::iter::once(&spec.driver).chain(spec.actions.values()).collect(),
        };
        let mut names = BTreeSet::new();
        for way in actions.into_iter().flat_map(|action| &action.ways) {
            if let JobProgram::Handler { name, .. } = &way.program {
                names.insert(name.as_str());
            }
        }
        names
    }

    /// A handler runs as its worker's program determines: fields without an effect on it are
    /// refused.
    fn check_handler_fields(&self) -> Result<(), SpecError> {
        if self.has_files() && self.working_directory.is_some() {
            let problem = "cannot be used together with `inputs` or `outputs`, whose job works in a directory of its own; leave it out, or name the directory in `workspaces`";
            return Err(SpecError { path: "cwd".to_owned(), problem: problem.to_owned() });
        }
        let JobWork::Action(action) = &self.work else { return Ok(()) };
        let is_handler = |way: &WaySpec| matches!(way.program, JobProgram::Handler { .. });
        let given = [
            ("env", !self.environment.is_empty()),
            ("workspaces", !self.workspaces.is_empty()),
            ("inputs", !self.inputs.is_empty()),
            ("outputs", !self.outputs.is_empty()),
            ("network", self.network),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((name, _)) if action.ways.iter().all(is_handler) => Err(SpecError {
                path: name.to_owned(),
                problem: "is of commands and code; a handler has what its worker gives it".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

fn scale(table: &mut SpecTable) -> Result<f64, SpecError> {
    let Some(value) = table.take("time_scale") else { return Ok(1.0) };
    let scale = value.as_f64().filter(|scale| (0.000_001..=1_000.0).contains(scale));
    scale.ok_or_else(|| refused("time_scale", &value, "a number from 0.000001 to 1000"))
}

fn take_directories(table: &mut SpecTable) -> Result<(Option<PathBuf>, Vec<PathBuf>), SpecError> {
    let absolute = |path: &str, text: String| {
        let is_absolute = Path::new(&text).is_absolute();
        is_absolute
            .then(|| PathBuf::from(&text))
            .ok_or_else(|| refused(path, &text.into(), "an absolute path"))
    };
    let cwd = table.string("cwd")?.map(|text| absolute("cwd", text)).transpose()?;
    let workspaces = table.strings("workspaces")?.unwrap_or_default().into_iter().enumerate();
    let workspaces = workspaces.map(|(index, text)| absolute(&format!("workspaces[{index}]"), text));
    Ok((cwd, workspaces.collect::<Result<_, _>>()?))
}

fn breaker(table: &mut SpecTable) -> Result<BreakerChoice, SpecError> {
    let mut choice = BreakerChoice::default();
    let BreakerSettings { open, max_open: most_open, probe, .. } = &mut choice.settings;
    [open, most_open, probe].into_iter().for_each(|time| *time = time.mul_f64(table.scale));
    let Some(mut inner) = table.table("breaker")? else { return Ok(choice) };
    let (failures, rate) = (inner.small("failures", 1)?, rate(&mut inner)?);
    if failures.is_some() || rate.is_some() {
        // A spec that names only one rule turns the other off.
        (choice.settings.consecutive, choice.settings.rate) = (failures, rate);
    }
    choice.settings.open = inner.time("open_ms")?.unwrap_or(choice.settings.open);
    choice.settings.max_open = choice.settings.max_open.max(choice.settings.open);
    choice.settings.successes = inner.small("successes", 1)?.unwrap_or(choice.settings.successes);
    choice.settings.probe = inner.time("probe_ms")?.unwrap_or(choice.settings.probe);
    if let Some(scope) = inner.string("scope")? {
        choice.scope = match scope.as_str() {
            "job" => BreakerScope::Job,
            "store" => BreakerScope::Store,
            _ => return Err(refused(&inner.at("scope"), &scope.into(), "`job` or `store`")),
        };
    }
    inner.done()?;
    Ok(choice)
}

/// `{ share = 0.5, window = 20, least = 5 }`.
fn rate(breaker: &mut SpecTable) -> Result<Option<Rate>, SpecError> {
    let Some(mut inner) = breaker.table("rate")? else { return Ok(None) };
    let (path, share) = (inner.at("share"), inner.take("share"));
    let allowed = "a number above 0, at most 1";
    let share = share.ok_or_else(|| missing(&path, allowed))?;
    let share = share
        .as_f64()
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| refused(&path, &share, allowed))?;
    let window = inner.count("window", 1, 1_000)?.unwrap_or(20);
    let least = inner.count("least", 1, window)?.unwrap_or(window.min(5));
    inner.done()?;
    let size = |count: i64| usize::try_from(count).unwrap_or(1);
    Ok(Some(Rate { share, window: size(window), least: size(least) }))
}

const KINDS: [&str; 5] = ["command", "code", "handler", "steps", "loop"];

fn work(table: &mut SpecTable) -> Result<JobWork, SpecError> {
    let given: Vec<&str> = KINDS.into_iter().filter(|kind| table.has(kind)).collect();
    match given[..] {
        ["command" | "code" | "handler"] => Ok(JobWork::Action(Action { ways: ways(table)?, wall: None })),
        ["steps"] => steps(table),
        ["loop"] => Ok(JobWork::Loop(Box::new(turns(table)?))),
        // Taken by the reader of the rest, so that it is not unknown as well.
        [] => Err(table.misnamed(&KINDS).unwrap_or_else(|| {
            missing("command", "one of `command`, `code` with `language`, `handler`, `steps`, `loop`")
        })),
        _ => {
            let problem =
                format!("cannot be used together with `{}`; a job has exactly one of them", given[1]);
            Err(SpecError { path: given[0].to_owned(), problem })
        }
    }
}

fn steps(table: &mut SpecTable) -> Result<JobWork, SpecError> {
    let mut steps = Vec::new();
    for mut inner in table.tables("steps")? {
        let path = inner.at("name");
        let name =
            inner.name("name")?.ok_or_else(|| missing(&path, "a string; other steps name it in `needs`"))?;
        let needs = inner.strings("needs")?.unwrap_or_default();
        let action = action(&mut inner)?;
        inner.done()?;
        steps.push(StepSpec { name, needs, action });
    }
    if steps.is_empty() {
        return Err(missing("steps", "a list with at least one step"));
    }
    graph::sort_steps(steps).map(JobWork::Steps)
}

fn turns(table: &mut SpecTable) -> Result<LoopSpec, SpecError> {
    let mut inner = table.table("loop")?.ok_or_else(|| missing("loop", "a table"))?;
    let driver_path = inner.at("driver");
    let mut driver =
        inner.table("driver")?.ok_or_else(|| missing(&driver_path, "a table with a `command`"))?;
    let mut actions = BTreeMap::new();
    for (name, mut table) in inner.table("actions")?.map(SpecTable::open).transpose()?.unwrap_or_default() {
        let read = action(&mut table)?;
        table.done()?;
        actions.insert(name, read);
    }
    let read = LoopSpec {
        driver: action(&mut driver)?,
        actions,
        iterations: inner.small("iterations", 1)?,
        failures: inner.small("failures", 1)?,
        repeats: inner.small("repeats", 1)?,
        wall: inner.wall()?.flatten(),
        turn_wall: inner.limit("turn_wall_ms")?.flatten(),
    };
    driver.done()?;
    inner.done()?;
    Ok(read)
}

/// The moment that a store has written into a spec.
fn scheduled(table: &mut SpecTable) -> Result<Option<ScheduledMoment>, SpecError> {
    let (path, Some(value)) = (table.at("scheduled"), table.take("scheduled")) else { return Ok(None) };
    let scheduled = serde_json::from_value(value.clone());
    scheduled.map(Some).map_err(|_| refused(&path, &value, "a schedule with one of its moments"))
}

/// How long a job may be asked to wait.
const MAX_DELAY: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

fn delay(table: &mut SpecTable) -> Result<Option<Duration>, SpecError> {
    let delay = table.span("delay_ms")?;
    match delay.filter(|delay| *delay > MAX_DELAY) {
        Some(delay) => {
            let problem = format!("{} ms is more than ten years; use a shorter delay", delay.as_millis());
            Err(SpecError { path: "delay_ms".to_owned(), problem })
        }
        None => Ok(delay),
    }
}
