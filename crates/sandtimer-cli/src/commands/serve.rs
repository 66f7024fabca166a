//! `sandtimer serve`: reads the settings, starts the server, and waits for a signal to stop it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandtimer::limits::Unit;
use sandtimer_jobs::job::JobStore;
use sandtimer_jobs::{NatsAddress, SqliteJobs};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_server::{
    Collector, Defaults, HostProgram, Interpreters, JobSettings, Listen, PoolSettings, Retention,
    ServerHandle, Settings, Tokens, ToolNames,
};
use serde_json::json;
use tracing_subscriber::filter::LevelFilter;

use super::jobs::{is_end_requested, open_server};
use super::{CommandFailure, config, doctor, read};
use crate::args::ServeArguments;
use crate::config::{Config, Uses};
use crate::render;
use crate::signals::{ReceivedSignal, Signals};

mod setting;

use setting::default_state_directory;
pub(super) use setting::{ServerSetting, drain_time, file_bytes, memory, private_webhooks, state_directory};

const LISTEN: &str = "127.0.0.1:7880";
/// How long a client may take for the head of a request, and for its body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stream of events is silent before a comment shows that it lives.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);

/// Jobs that are executed at a time, at most.
const MAX_JOB_SLOTS: usize = 1024;

/// The exit code, for the program that started it, of a server that ends when it is unused, if
/// another server has its records or its socket.
pub(super) const EXIT_IN_USE: u8 = 75;
/// How long an unused server stays if it is to end then, and how often it checks its use.
const UNUSED_TIMEOUT: Duration = Duration::from_secs(60);
const USE_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How often a draining server checks whether its jobs have ended.
const JOBS_CHECK_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn main(arguments: &ServeArguments) -> Result<ExitCode, CommandFailure> {
    if arguments.end_when_unused {
        // What ends the terminal or the group of the client that started it is not to end it. It
        // leads no group, so it can.
        let _ = rustix::process::setsid();
    }
    let settings = settings(arguments)?;
    let drain = drain_time(&ServerSetting::read("drain", arguments.drain.as_ref()))?;
    // Before the engine, whose threads must not get these signals.
    let signals = Signals::watch().map_err(CommandFailure::system("cannot watch for signals"))?;
    let server = ServerHandle::start(settings).map_err(|error| CommandFailure {
        exit_code: if arguments.end_when_unused && error.is_in_use() { EXIT_IN_USE } else { 125 },
        message: error.to_string(),
    })?;
    render::print(&match server.listens() {
        Listen::Address(address) => format!("listening on http://{address}\n"),
        path => format!("listening on {path}\n"),
    });
    if arguments.end_when_unused {
        wait_for_end(&signals, Some(&server));
    } else {
        wait_for_end(&signals, None);
    }
    if let Some(time) = drain {
        drain_jobs(&server, &signals, time);
    }
    server.stop();
    Ok(ExitCode::SUCCESS)
}

/// The server's log on stderr. Its error reports are a line of text, or a record among the others.
struct ServerLog {
    level: ServerSetting,
    format: ServerSetting,
    is_json: bool,
}

impl ServerLog {
    /// Begins it. Nothing of what is asked for or run is ever in it.
    fn begin(arguments: &ServeArguments) -> Result<Self, CommandFailure> {
        let level = ServerSetting::read("log", arguments.log.as_ref());
        let format = ServerSetting::read("log-format", arguments.log_format.as_ref());
        let text = level.text()?.unwrap_or("warn");
        let most = text.parse::<LevelFilter>();
        let most = most.map_err(|_| {
            level.refused(text.as_ref(), "is not one of off, error, warn, info, debug, trace")
        })?;
        let is_json = match format.text()?.unwrap_or("text") {
            "text" => false,
            "json" => true,
            other => return Err(format.refused(other.as_ref(), "is neither text nor json")),
        };
        let builder = tracing_subscriber::fmt().with_max_level(most).with_writer(std::io::stderr);
        // A subscriber that was set before stays; there is one server in a process.
        let _ = match is_json {
            true => tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish()),
            false => tracing::subscriber::set_global_default(builder.with_ansi(false).finish()),
        };
        Ok(ServerLog { level, format, is_json })
    }

    fn error_reporter(&self) -> Box<dyn Fn(&str) + Send + Sync> {
        match self.is_json {
            true => Box::new(|message| tracing::error!("{message}")),
            false => Box::new(render::report_error),
        }
    }
}

/// Lets the server's jobs continue for this time, or until another signal; what still runs then is
/// given back.
fn drain_jobs(server: &ServerHandle, signals: &Signals, time: Duration) {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let until = monotonic_nanoseconds().saturating_add(time);
    server.drain_jobs();
    while server.running_jobs() > 0 {
        let is_late = monotonic_nanoseconds() >= until;
        if is_late || is_end_requested(signals, JOBS_CHECK_INTERVAL) {
            return server.give_back_jobs();
        }
    }
}

/// Waits for a signal, or until the server has been unused for [`UNUSED_TIMEOUT`], if it is to end
/// then.
fn wait_for_end(signals: &Signals, unless_used: Option<&ServerHandle>) {
    let mut used_at = monotonic_nanoseconds();
    loop {
        let pause = unless_used.map(|_| &USE_CHECK_INTERVAL);
        // An interrupted wait is one that ended early.
        let _ = poll(&mut [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)], pause);
        while let Some(arrived) = signals.next() {
            if let ReceivedSignal::End(_) = arrived {
                return;
            }
        }
        let Some(server) = unless_used else { continue };
        if !server.is_unused() {
            used_at = monotonic_nanoseconds();
        } else if monotonic_nanoseconds() - used_at > UNUSED_TIMEOUT.as_nanos() as u64 {
            return;
        }
    }
}

fn settings(arguments: &ServeArguments) -> Result<Settings, CommandFailure> {
    let listen = ServerSetting::read("listen", arguments.listen.as_ref());
    let state = ServerSetting::read("state-dir", arguments.state_dir.as_ref());
    let tokens = ServerSetting::read("token-file", arguments.token_file.as_ref());
    let keep_runs = ServerSetting::read("keep-runs", arguments.keep_runs.as_ref());
    let keep_for = ServerSetting::read("keep-for", arguments.keep_for.as_ref());
    let store = ServerSetting::read("store", arguments.store.as_ref());
    let job_slots = ServerSetting::read("job-slots", arguments.job_slots.as_ref());
    let slots = slots(&job_slots)?;
    let job_files = ServerSetting::read("job-files", arguments.job_files.as_ref());
    let job_file_bytes = file_bytes(&job_files)?;
    let job_memory = ServerSetting::read("job-memory", arguments.job_memory.as_ref());
    let memory = memory(&job_memory)?;
    let drain = ServerSetting::read("drain", arguments.drain.as_ref());
    let drain_ms = drain_time(&drain)?.map_or(5_000, |time| time.as_millis() as u64);
    let webhooks = ServerSetting::switch("private-webhooks", arguments.private_webhooks);
    let private_webhooks = private_webhooks(&webhooks)?;
    let template_list = ServerSetting::read("template", joined(&arguments.template).as_ref());
    let templates = templates(&template_list)?;
    let log = ServerLog::begin(arguments)?;
    let collector = Collector::from_variables(|name| std::env::var(name).ok())
        .map_err(|error| CommandFailure::usage(error.to_string()))?;
    let address = address(&listen)?;
    let state_directory = match &state.value {
        Some(value) => PathBuf::from(value),
        None => default_state_directory()?,
    };
    let usual = Retention::default();
    let retention = Retention {
        runs: keep_runs.limit(Unit::Count, usual.runs)?,
        age: keep_for
            .limit(Unit::Seconds, usual.age.map(sandtimer::limits::nanoseconds))?
            .map(Duration::from_nanos),
    };
    let shared_store = shared_store(&store, &state_directory)?;
    let config = Config::load_for_server(&arguments.policy)?;
    let [spawn, prewarm] = config.contexts.starts();
    let path = tokens.value.as_ref().map(PathBuf::from);
    let config_facts = json!({
        "limits": config::object(&config.limits()),
        "policy": config::object(&config.policy()),
        "server": {
            "listen": listen.shown(address.to_string()),
            "state_dir": state.shown(state_directory.display().to_string()),
            "token_file": tokens.shown(path.as_ref().map(|path| path.display().to_string())),
            "keep_runs": keep_runs.shown(retention.runs),
            "keep_for_ms": keep_for.shown(retention.age.map(|age| age.as_millis() as u64)),
            "store": store.shown(store.text()?.map(shown_store)),
            "job_slots": job_slots.shown(slots),
            "job_files": job_files.shown(job_file_bytes),
            "job_memory": job_memory.shown(memory),
            "templates": template_list.shown(json!(templates)),
            "private_webhooks": webhooks.shown(private_webhooks),
            "drain_ms": drain.shown(drain_ms),
            "log": log.level.shown(log.level.text()?.unwrap_or("warn")),
            "log_format": log.format.shown(log.format.text()?.unwrap_or("text")),
        },
    });
    Ok(Settings {
        listen: address,
        state_directory,
        tokens: path
            .map(|path| {
                Tokens::read(&path).map_err(|error| CommandFailure::usage(format!("--token-file: {error}")))
            })
            .transpose()?,
        retention,
        defaults: Defaults {
            commands: config.defaults(Uses::Commands),
            code: config.defaults(Uses::Code),
            javascript: config.defaults(Uses::JavaScript),
        },
        maxima: config.maxima(),
        interpreters: Interpreters {
            spawn_limit: spawn.value,
            prewarm_limit: prewarm.value,
            reader: read::reader(),
            python: pool(&config, "python")?,
            javascript: pool(&config, "javascript")?,
            shell_prewarm: prewarm_script(&config, "bash")?,
        },
        jobs: JobSettings {
            store: shared_store,
            slots,
            file_bytes: job_file_bytes,
            memory,
            private_webhooks,
        },
        templates,
        patience: REQUEST_TIMEOUT,
        heartbeat: HEARTBEAT_INTERVAL,
        collector,
        estimate_tools: estimate_tools(),
        tool_names: tool_names(None)?,
        host: HostProgram {
            facts: Box::new(|| doctor::examine().json()),
            config: config_facts,
            log_error: log.error_reporter(),
        },
    })
}

/// Flags that are repeated, as a variable has them.
fn joined(values: &[OsString]) -> Option<OsString> {
    (!values.is_empty()).then(|| values.join(OsStr::new(":")))
}

/// The templates of sandboxes that the operator has named.
fn templates(given: &ServerSetting) -> Result<BTreeMap<String, PathBuf>, CommandFailure> {
    let mut templates = BTreeMap::new();
    for one in given.text()?.unwrap_or_default().split(':').filter(|one| !one.is_empty()) {
        let refused = |problem: &str| Err(given.refused(one.as_ref(), problem));
        let Some((name, path)) = one.split_once('=') else {
            return refused("is not NAME=DIR");
        };
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&letter);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_letter) {
            return refused("has no usable name; use letters, digits, `-`, `_` and `.`");
        }
        if name == "host" {
            return refused("has the name of the template that every server has; use another name");
        }
        let path = PathBuf::from(path);
        if !path.is_absolute() || !path.is_dir() {
            return refused("does not name a directory by its absolute path");
        }
        if templates.insert(name.to_owned(), path).is_some() {
            return refused("has a name that was given twice");
        }
    }
    Ok(templates)
}

/// Whether agents are shown the tools that estimate: as the published description of task-aware
/// timeouts has it, 0 is no.
pub(super) fn estimate_tools() -> bool {
    std::env::var_os("ENABLE_ESTIMATE_DURATION").is_none_or(|value| value != "0")
}

/// The variable that chooses the names of the tools that agents see.
const TOOLS_VARIABLE: &str = "SANDTIMER_MCP_TOOLS";

/// The names under which agents see tools: from the flag, or that variable.
pub(super) fn tool_names(flag: Option<&str>) -> Result<ToolNames, CommandFailure> {
    let variable = std::env::var_os(TOOLS_VARIABLE).map(|value| value.to_string_lossy().into_owned());
    let (origin, given) = match (flag, variable) {
        (Some(given), _) => ("--tools", given.to_owned()),
        (None, Some(given)) if !given.is_empty() => (TOOLS_VARIABLE, given),
        _ => return Ok(ToolNames::default()),
    };
    ToolNames::parse(&given).ok_or_else(|| {
        let names = ToolNames::NAMES.join(", ");
        CommandFailure::usage(format!(
            "{origin}: `{given}` is not a choice of tool names; use one of {names}"
        ))
    })
}

/// Where jobs are, unless that is the state directory.
fn shared_store(
    given: &ServerSetting,
    state_directory: &Path,
) -> Result<Option<Arc<dyn JobStore>>, CommandFailure> {
    let Some(value) = given.value.as_ref().filter(|value| Path::new(value) != state_directory) else {
        return Ok(None);
    };
    match value.to_str().filter(|text| NatsAddress::is_meant(text)) {
        Some(url) => open_server(url, |problem| tracing::error!("{problem}")).map(Some),
        None => Ok(Some(Arc::new(SqliteJobs::open(Path::new(value))?))),
    }
}

/// Without a password.
fn shown_store(text: &str) -> String {
    NatsAddress::parse(text).map_or_else(|_| text.to_owned(), |address| address.to_string())
}

/// Jobs at a time: a whole number, of which 0 is none.
fn slots(given: &ServerSetting) -> Result<usize, CommandFailure> {
    let Some(text) = given.text()? else {
        return Ok(std::thread::available_parallelism().map_or(1, std::num::NonZero::get));
    };
    let slots = text.parse().ok().filter(|slots| *slots <= MAX_JOB_SLOTS);
    slots.ok_or_else(|| given.refused(text.as_ref(), "is not a whole number from 0 to 1024"))
}

/// The most bytes of a pre-warm script.
const MAX_PREWARM_SCRIPT_BYTES: u64 = 1 << 20;

fn pool(config: &Config, language: &str) -> Result<PoolSettings, CommandFailure> {
    let ready = usize::try_from(config.contexts.pool(language).value).unwrap_or(usize::MAX);
    Ok(PoolSettings { ready, prewarm: prewarm_script(config, language)? })
}

fn prewarm_script(config: &Config, language: &str) -> Result<Option<String>, CommandFailure> {
    let Some(set) = config.contexts.prewarm(language) else { return Ok(None) };
    let refused = |problem: String| {
        let path = set.value.display();
        CommandFailure::usage(format!("prewarm.{language}: {path} {problem} (from {})", set.origin))
    };
    let kind = std::fs::metadata(&set.value).map_err(|error| refused(format!("cannot be read: {error}")))?;
    if !kind.is_file() || kind.len() > MAX_PREWARM_SCRIPT_BYTES {
        return Err(refused("is not a file of at most 1 MiB".to_owned()));
    }
    let text = std::fs::read_to_string(&set.value);
    text.map(Some).map_err(|error| refused(format!("cannot be read: {error}")))
}

fn address(given: &ServerSetting) -> Result<Listen, CommandFailure> {
    let text = given.text()?.unwrap_or(LISTEN);
    text.parse()
        .map_err(|problem: String| given.refused(text.as_ref(), &format!("is not an address: {problem}")))
}
