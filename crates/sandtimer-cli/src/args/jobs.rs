//! `sandtimer jobs`: durable work in a store on this machine, or on a NATS server.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use sandtimer_jobs::job::{OPEN_STATES, RETRIED_STATES, ShownState, is_queue_name};

use super::EncodingErrors;

const SUBMIT_NOTES: &str = "\
FILE is TOML, or JSON if its name ends in .json. `-` reads JSON lines from standard input, one job each, and submits all of them \
or none. Relative paths in a file are relative to its directory, also those of inputs such as {file = \"data.csv\"}, which are \
read now and submitted with the job.";

const RUN_NOTES: &str = "\
Exit codes: 0 when the job succeeded, 1 when it failed, 124 when a limit ended it, 137 when it ran out of memory, 130 when it was cancelled, 125 when Sandtimer \
failed or was used wrongly. Ctrl-C cancels the job; a second one leaves it to another worker. A job without a wall-clock limit may run for ever, \
and keeps its slot during that time.";

const WAIT_NOTES: &str = "\
Exit codes: 0 when the job succeeded, 1 when it failed, 124 when a limit ended it, 137 when it ran out of memory, 130 when it was cancelled, 125 when Sandtimer \
failed or was used wrongly, 75 when it has not ended within `--for`. With several jobs it is the worst of these: of 125, 75, 137, 124, 1, 130 \
and 0 the first that one of the jobs has. Each job is printed when it has ended, in the order of the arguments.";

const CANCEL_NOTES: &str = "\
Exit codes: 0 when all jobs are cancelled or are being ended by their workers, 1 when a named job had already ended, 125 when Sandtimer \
failed or was used wrongly. An id that names no job, or several, is refused before any job is changed.";

const RETRY_NOTES: &str = "\
Exit codes: 0 when all jobs are queued, 125 when a named job has not ended or has succeeded (the others are queued all the same), or \
Sandtimer failed or was used wrongly. An id that names no job, or several, is refused before any job is changed.";

const LOG_NOTES: &str = "\
It prints the log so far, also while the job is running; `sandtimer jobs watch` prints it as it is written. With several jobs a \
line with the id precedes each log. With `--json` there is one object for each line of the log: the job's `id`, the `line` without its end, its `encoding`, which \
is base64 where the line is not UTF-8, and `at_ms`, which is when the store received the beginning of the line, in milliseconds since 1970, or null if an \
earlier version stored it.";

const WORKERS_NOTES: &str = "\
A worker announces itself to the store when it starts and every 30 s, and is removed when it ends; one that was killed is shown for 90 s after its \
last announcement.";

const WATCH_NOTES: &str = "\
On a terminal each job has a progress bar, which shows what the job prints about its progress (bars, epochs, counts) or else its \
time; otherwise a line is printed for each change of a state. Both go to standard error. The exit code is that of `wait`, also with several jobs.";

const WORK_NOTES: &str = "\
SIGTERM or Ctrl-C drains: no more jobs are leased, and those that run continue to their ends. A second one, or the \
end of the `--drain` time, ends the jobs that still run and gives them back, to be handed out again; that does not count as \
a delivery. Choose a `--drain` time that is shorter than the time after which a deployment kills the worker; otherwise a long job is dead \
after three deployments. A job without a wall-clock limit keeps its slot until it ends by itself: give every job of a shared queue a \
`wall_ms`, or bound each run of all jobs (`wall` in sandtimer.toml, SANDTIMER_WALL).";

const SCHEDULE_NOTES: &str = "\
FILE is TOML, or JSON if its name ends in .json: a `name`; `cron`, five fields as in crontab(5) or @daily and the like, with \
`time_zone` (UTC unless given), or `every_ms`; and the spec of the job in `job`. Any worker on the store submits the job when it is \
due. `missed` sets what happens when no worker was running (one: one job for all missed times, skip, all), `overlap` what \
happens when the previous job has not finished (skip: no job this time, queue, allow), `paused = true` pauses the schedule. A \
file that is stored again replaces the schedule of its name; the next time stays unless `cron`, `time_zone` or `every_ms` changed, \
and a file without `paused` leaves the schedule paused, or not, as it was (`sandtimer jobs pause --schedule NAME`, `resume --schedule NAME`).";

#[derive(Debug, Args)]
pub(crate) struct JobsArguments {
    #[command(subcommand)]
    pub(crate) action: JobsAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsAction {
    /// Submit one job, or many from standard input
    #[command(after_long_help = SUBMIT_NOTES)]
    Submit(SubmitArguments),
    /// Submit a job, work on it here, and wait for its end
    #[command(after_long_help = RUN_NOTES)]
    Run(RunArguments),
    /// Execute jobs until SIGTERM or Ctrl-C
    #[command(after_long_help = WORK_NOTES)]
    Work(WorkArguments),
    /// List jobs, the latest first
    List(ListArguments),
    /// Show everything about jobs
    Show(ShowArguments),
    /// Print the output of jobs
    #[command(after_long_help = LOG_NOTES)]
    Log(LogArguments),
    /// List the files of a job
    Files(OneJob),
    /// Write a file of a job to standard output, or to a path
    Get(GetArguments),
    /// Wait until jobs have ended; the exit code is the result
    #[command(after_long_help = WAIT_NOTES)]
    Wait(WaitArguments),
    /// Print the output of a job as it is written, or the progress of several, until they have
    /// ended
    #[command(after_long_help = WATCH_NOTES)]
    Watch(WatchArguments),
    /// End jobs
    #[command(after_long_help = CANCEL_NOTES)]
    Cancel(CancelArguments),
    /// Queue jobs again that failed, are dead or were cancelled; their deadlines start again
    #[command(after_long_help = RETRY_NOTES)]
    Retry(RetryArguments),
    /// Send the webhooks of ended jobs again, at once
    Redeliver(RedeliverArguments),
    /// Queue all dead jobs again, as `retry` does
    Requeue(RequeueArguments),
    /// Remove the records of ended jobs
    Purge(PurgeArguments),
    /// Pause a queue: workers get no more jobs from it; or a schedule: it submits no jobs
    Pause(PauseArguments),
    /// Resume a paused queue or schedule
    Resume(PauseArguments),
    /// Show every queue: its depth and how long the oldest job has waited
    Queues(StoreOnly),
    /// Store a schedule: a job that recurs, by a cron expression or at an interval
    #[command(after_long_help = SCHEDULE_NOTES)]
    Schedule(ScheduleArguments),
    /// List the schedules of all owners, and when each is due next
    Schedules(StoreOnly),
    /// Remove a schedule; jobs that it has submitted stay
    Unschedule(UnscheduleArguments),
    /// List the circuit breakers that jobs of all owners share
    Breakers(BreakersArguments),
    /// Show every live worker: its slots, version, queues, handlers and jobs
    #[command(after_long_help = WORKERS_NOTES)]
    Workers(StoreOnly),
}

/// The store, and the format of the output.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreFlags {
    /// The directory of the store [default: /var/lib/sandtimer for root, else
    /// ~/.local/state/sandtimer]; SANDTIMER_STATE_DIR sets it too
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// The store: nats://[USER:PASSWORD@]HOST[:PORT], tls://…, or a directory as above;
    /// SANDTIMER_STORE sets it too. SANDTIMER_NATS_CREDENTIALS and SANDTIMER_NATS_CA name files of
    /// credentials and certificates
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, conflicts_with = "state_dir")]
    pub(crate) store: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StoreOnly {
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct SubmitArguments {
    /// The job's spec
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// A factor for every duration in the spec; SANDTIMER_TIME_SCALE sets it too
    #[arg(long, value_name = "FACTOR")]
    pub(crate) time_scale: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ScheduleArguments {
    /// The schedule
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct UnscheduleArguments {
    /// The schedule, by its name
    pub(crate) name: String,
    /// The owner of the schedule: a token's name, or `local` for schedules of the command line
    /// [default: local]
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) submission: SubmitArguments,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

/// How the output of jobs is printed.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputFlags {
    /// How --json represents output that is not UTF-8
    #[arg(long, value_name = "ACTION", default_value = "strict")]
    pub(crate) errors: EncodingErrors,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    pub(crate) jobs: JobIds,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    #[command(flatten)]
    pub(crate) jobs: JobIds,
    /// Print before each line when the store received it, such as 2026-11-28T09:31:39.123Z; `-` if
    /// an earlier version stored it
    #[arg(long)]
    pub(crate) timestamps: bool,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct WorkArguments {
    /// Jobs at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) slots: u16,
    /// Only from this queue; may be repeated
    #[arg(long, value_name = "QUEUE", value_parser = queue)]
    pub(crate) queue: Vec<String>,
    /// How long a job stays assigned to this worker after the last renewal [default: 30s]; at least
    /// 1s
    #[arg(long, value_name = "DURATION")]
    pub(crate) lease: Option<String>,
    /// How long jobs may continue after SIGTERM before they are given back, 0 at once [default:
    /// unlimited]; SANDTIMER_DRAIN sets it too
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) drain: Option<OsString>,
    /// How many bytes of the files of a job are kept [default: 64M]; SANDTIMER_JOB_FILES sets it
    /// too
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) files: Option<OsString>,
    /// Memory for jobs that have a memory limit: as many run at a time as fit [default: 80 % of the
    /// machine's memory, or of the limit of the cgroup]; `unlimited` uses all slots;
    /// SANDTIMER_JOB_MEMORY sets it too
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) memory: Option<OsString>,
    /// Allow webhooks to loopback, private and link-local addresses; SANDTIMER_PRIVATE_WEBHOOKS=1
    /// does it too
    #[arg(long)]
    pub(crate) private_webhooks: bool,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RequeueArguments {
    /// Only of this queue [default: of all]
    #[arg(long, value_name = "QUEUE", value_parser = queue)]
    pub(crate) queue: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArguments {
    /// Only of this queue
    #[arg(long, value_name = "QUEUE", value_parser = queue)]
    pub(crate) queue: Option<String>,
    /// Only in this state: ok, failed, dead, cancelled; or ended, which is the first two
    #[arg(long, value_name = "STATE", value_parser = final_state)]
    pub(crate) state: Option<ShownState>,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// The maximum number of jobs
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) most: u32,
    /// Continue an earlier listing at its `next`
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
    /// Only of this queue
    #[arg(long, value_name = "QUEUE", value_parser = queue)]
    pub(crate) queue: Option<String>,
    /// Only in this state: scheduled, queued, running, ending, ok, failed, dead, cancelled; or
    /// leased, which is running and ending, or ended, which is ok and failed
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub(crate) state: Option<ShownState>,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct BreakersArguments {
    /// The maximum number of breakers
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) most: u32,
    /// Continue an earlier listing at its `next`
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OneJob {
    /// The job, by its id or the first 4 or more characters of it
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

/// Jobs by their ids.
#[derive(Debug, Clone, Args)]
pub(crate) struct JobIds {
    /// The jobs, by their ids or the first 4 or more characters of each
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
}

/// Jobs that have not ended: by their ids, or all that match a filter.
#[derive(Debug, Clone, Args)]
pub(crate) struct OpenJobs {
    /// The jobs, by their ids or the first 4 or more characters of each
    #[arg(value_name = "ID", required_unless_present_any = ["queue", "state", "all"])]
    pub(crate) ids: Vec<String>,
    /// All of this queue that have not ended
    #[arg(long, value_name = "QUEUE", value_parser = queue, conflicts_with = "ids")]
    pub(crate) queue: Option<String>,
    /// All in this state: scheduled, queued, running, ending; or leased, which is the last two
    #[arg(long, value_name = "STATE", value_parser = open_state, conflicts_with = "ids")]
    pub(crate) state: Option<ShownState>,
    /// Every job of the store that has not ended, of all owners
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

/// Jobs that can be retried: by their ids, or all that match a filter.
#[derive(Debug, Clone, Args)]
pub(crate) struct RetriedJobs {
    /// The jobs, by their ids or the first 4 or more characters of each
    #[arg(value_name = "ID", required_unless_present_any = ["queue", "state", "all"])]
    pub(crate) ids: Vec<String>,
    /// All of this queue that failed, are dead or were cancelled
    #[arg(long, value_name = "QUEUE", value_parser = queue, conflicts_with = "ids")]
    pub(crate) queue: Option<String>,
    /// All in this state: failed, dead, cancelled
    #[arg(long, value_name = "STATE", value_parser = retried_state, conflicts_with = "ids")]
    pub(crate) state: Option<ShownState>,
    /// All that failed, are dead or were cancelled
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    #[command(flatten)]
    pub(crate) jobs: JobIds,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// The job, by its id or the first 4 or more characters of it
    pub(crate) id: String,
    /// The file, by its name in `sandtimer jobs files`
    pub(crate) name: String,
    /// The path to write to; an existing file is replaced. `-` is standard output
    #[arg(long, value_name = "PATH", default_value = "-", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// The directory of the store, as for the other commands
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// The store, as for the other commands
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url, conflicts_with = "state_dir")]
    pub(crate) store: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArguments {
    /// The maximum time to wait, such as 30s; then the exit code is 75, and the jobs continue
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) max_wait: Option<String>,
    #[command(flatten)]
    pub(crate) output: OutputFlags,
    #[command(flatten)]
    pub(crate) jobs: OpenJobs,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct CancelArguments {
    /// The reason, for the results of the jobs
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    #[command(flatten)]
    pub(crate) jobs: OpenJobs,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RetryArguments {
    #[command(flatten)]
    pub(crate) jobs: RetriedJobs,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RedeliverArguments {
    #[command(flatten)]
    pub(crate) jobs: JobIds,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArguments {
    /// The queue
    #[arg(value_parser = queue, required_unless_present = "schedule", conflicts_with = "schedule")]
    pub(crate) queue: Option<String>,
    /// A schedule, by its name, in place of a queue
    #[arg(long, value_name = "NAME")]
    pub(crate) schedule: Option<String>,
    /// The owner of the schedule: a token's name, or `local` for schedules of the command line
    /// [default: local]
    #[arg(long, value_name = "NAME", requires = "schedule")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreFlags,
}

fn state(text: &str) -> Result<ShownState, String> {
    state_among(text, &ShownState::NAMES)
}

/// One of some states, by name.
fn state_among(text: &str, names: &[&str]) -> Result<ShownState, String> {
    let found = ShownState::from_name(text).filter(|_| names.contains(&text));
    found.ok_or_else(|| format!("use one of {}", names.join(", ")))
}

fn open_state(text: &str) -> Result<ShownState, String> {
    state_among(text, &OPEN_STATES)
}

fn retried_state(text: &str) -> Result<ShownState, String> {
    state_among(text, &RETRIED_STATES)
}

fn final_state(text: &str) -> Result<ShownState, String> {
    let found = state(text);
    match found {
        Ok(shown) if !shown.state.is_over() => {
            Err("only records of ended jobs can be removed: use ok, failed, ended, dead or cancelled, or cancel the jobs \
                 first"
                .to_owned())
        }
        Err(_) => Err("use ok, failed, ended, dead or cancelled".to_owned()),
        over => over,
    }
}

fn queue(text: &str) -> Result<String, String> {
    match is_queue_name(text) {
        true => Ok(text.to_owned()),
        false => Err("use a name of 1 to 200 printable characters".to_owned()),
    }
}
