//! `sandtimer bwrap`, and this program under the name `bwrap`: bubblewrap's command line, with
//! limits and a complete end.
//!
//! The crate `sandtimer-bwrap` parses it and sets up what it asks for, in processes of its own; the
//! engine limits, watches and ends them. Everything here that begins before the engine is
//! single-threaded: the guard is a copy of this process.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{PidfdFlags, Signal, getppid, pidfd_open, set_parent_process_death_signal};
use sandtimer::engine::{AdoptedInit, StartSettings};
use sandtimer::limits::Limits;
use sandtimer::model::{KillClass, LimitKind};
use sandtimer::{Engine, Output, Run, Spec};
use sandtimer_bwrap::{
    BwrapFailure, BwrapGuard, BwrapOptions, Messages, ParseResult, ProcessRlimit, StartRequest, reason,
    usage, version,
};
use sandtimer_os::watchdog::Watchdog;

use crate::config::{Config, Origins, Uses};
use crate::passthrough;
use crate::signals::Signals;

mod request;
mod session;
mod status;
mod without_engine;

use request::{BwrapRequest, CommandHandles, ExitDisposition};
use session::Session;
use status::StatusDescriptors;

/// The name under which this program is bubblewrap's.
const NAME: &str = "bwrap";

/// Whether this program was started as `bwrap`: by that name, or from a file of that name by
/// another one.
pub(crate) fn is_name_of(program: Option<&OsStr>) -> bool {
    let is_bwrap = |path: &Path| path.file_name() == Some(OsStr::new(NAME));
    program.is_some_and(|program| is_bwrap(Path::new(program)))
        || std::env::current_exe().is_ok_and(|file| is_bwrap(&file))
}

/// Runs a command line of bubblewrap's; `name` is what this program was started as.
pub(crate) fn main(name: &OsStr, arguments: Vec<OsString>) -> ExitCode {
    sandtimer_os::thread::share_heap();
    let mut messages = Messages::default();
    match start(name, arguments, &mut messages) {
        Ok(ended) => {
            // Now that nothing is left to take down.
            ended.signal.into_iter().for_each(end_by);
            ExitCode::from(ended.code)
        }
        Err(failure) => {
            messages.error(&failure);
            ExitCode::FAILURE
        }
    }
}

fn end_by(signal: u8) {
    let number = i32::from(signal);
    if sandtimer_os::thread::raise(number).is_ok() {
        sandtimer_os::thread::unblock_signal(number);
    }
}

fn start(
    name: &OsStr,
    arguments: Vec<OsString>,
    messages: &mut Messages,
) -> Result<ExitDisposition, BwrapFailure> {
    let name = name.display().to_string();
    let options = match BwrapOptions::parse(arguments, messages)? {
        ParseResult::Help => {
            crate::render::print(&usage(&name));
            return Ok(ExitDisposition::with(0));
        }
        ParseResult::Version => {
            crate::render::print(&version());
            return Ok(ExitDisposition::with(0));
        }
        ParseResult::NoCommand => {
            eprint(&usage(&name));
            return Ok(ExitDisposition::with(1));
        }
        ParseResult::Run(options) => options,
    };
    let parent = if options.die_with_parent { watch_parent(*messages)? } else { None };
    let config = config(&options)?;
    let request = BwrapRequest::of(&options, config);
    let status = StatusDescriptors::of(&options);
    let mut kept = status.numbers();
    let others = parent.iter().chain(&request.maps_are_written);
    kept.extend(others.map(std::os::fd::AsRawFd::as_raw_fd));
    let guard = BwrapGuard::start(options, &kept)?;
    // Without one the engine starts another.
    let watchdog = Watchdog::fork().ok();
    // Before the engine, whose threads must not get these signals.
    let signals =
        Signals::watch_all().map_err(|error| BwrapFailure::because("cannot watch for signals", error))?;
    request.run(CommandHandles { guard, signals, parent, status }, watchdog)
}

/// Opens the process that this one ends with. Its thread that started this one may end long before,
/// so the kernel's own signal, which is that thread's, is the second choice: for a parent outside
/// of the PID namespace, and if pidfd_open(2) is refused.
///
/// # Errors
/// If the kernel refuses the signal as well, or the parent has ended already.
fn watch_parent(messages: Messages) -> Result<Option<OwnedFd>, BwrapFailure> {
    let before = getppid();
    let reason = match before.map(|parent| pidfd_open(parent, PidfdFlags::empty())) {
        Some(Ok(parent)) => return Ok(Some(parent)),
        Some(Err(error)) => reason(&error.into()),
        None => "it is outside of this PID namespace".to_owned(),
    };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| BwrapFailure::because("--die-with-parent: prctl(PR_SET_PDEATHSIG)", error))?;
    if getppid() != before {
        return Err(BwrapFailure::new("--die-with-parent: the parent process has ended"));
    }
    messages.warning(&format!(
        "--die-with-parent: the parent process cannot be watched ({reason}); the command ends with the thread that started bwrap"
    ));
    Ok(None)
}

fn eprint(text: &str) {
    use std::io::Write;
    // Without a stderr there is no place for it.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The settings that apply: the environment and the files, as for `sandtimer run`.
fn config(options: &BwrapOptions) -> Result<Config, BwrapFailure> {
    let writable = options.writable();
    let origins = Origins { file: None, writable: &writable };
    Config::load_for_run(&Limits::new(), false, origins).map_err(|failure| BwrapFailure::new(failure.message))
}

impl BwrapRequest {
    /// The limits that were chosen, as a spec.
    fn spec(&self) -> Spec {
        // Only what is read here can be limited or watched; else the command has the caller's own
        // descriptors.
        let (stdout, stderr) = match self.reads_output() {
            false => (Output::Null, Output::Null),
            true if passthrough::is_same_sink() => (Output::Piped, Output::SameAsStdout),
            true => (Output::Piped, Output::Piped),
        };
        Spec {
            command: vec![NAME.into()],
            defaults: self.config.defaults(Uses::Commands),
            stdout,
            stderr,
            ..Spec::default()
        }
    }

    fn reads_output(&self) -> bool {
        self.config.is_chosen(LimitKind::Output) || self.config.is_chosen(LimitKind::Stall)
    }

    fn run(
        self,
        handles: CommandHandles,
        watchdog: Option<Watchdog>,
    ) -> Result<ExitDisposition, BwrapFailure> {
        let options = sandtimer::Options {
            maxima: self.config.maxima(),
            only_adopts: true,
            ..sandtimer::Options::default()
        };
        let made = match watchdog {
            Some(watchdog) => Engine::with_watchdog(options, watchdog),
            None => Engine::with_options(options),
        };
        let engine = match made {
            Ok(engine) => engine,
            // In a sandbox there may be no place for an engine; its limits are those of the engine
            // outside.
            Err(error) => return without_engine::run(&self, handles, &error),
        };
        let run = self.adopt(&engine, &handles.guard)?;
        handles.status.report_start(run.1)?;
        self.wait_for_maps();
        // A setup that has ended has reported the reason, and the run ends with it.
        let _ = handles.guard.proceed();
        Session::new(run.0, self, handles)?.conduct()
    }

    fn adopt(&self, engine: &Engine, guard: &BwrapGuard) -> Result<(Run, i32), BwrapFailure> {
        let copy = |fd: &OwnedFd| {
            fd.try_clone().map_err(|error| BwrapFailure::because("cannot copy a descriptor", error))
        };
        let adopted = AdoptedInit {
            control: copy(&guard.control)?,
            pidfd: copy(&guard.pidfd)?,
            kill: if self.has_pid_namespace { KillClass::K2 } else { KillClass::K1 },
            has_uncounted: self.has_init,
            has_own_users: self.has_user_namespace,
            layers: "as the command line asks, and no more".to_owned(),
        };
        let mut child = 0;
        let run = engine.adopt(self.spec(), adopted, |settings| {
            let limits = limits(settings);
            child = guard.begin(&StartRequest {
                cgroup: settings.cgroup,
                tasks: settings.tasks,
                outputs: settings.outputs,
                wall: settings.wall,
                grace: settings.grace,
                limits: &limits,
            })?;
            Ok(())
        });
        match run {
            Ok(run) => Ok((run, child)),
            // The guard has reported what failed.
            Err(sandtimer::Error::System { source, .. })
                if source.kind() == std::io::ErrorKind::BrokenPipe =>
            {
                Err(BwrapFailure::new(""))
            }
            Err(error) => Err(BwrapFailure::new(error.to_string())),
        }
    }
}

/// What the command's processes limit for themselves.
fn limits(settings: &StartSettings<'_>) -> Vec<(ProcessRlimit, u64)> {
    let given = &settings.limits;
    let list = [
        (ProcessRlimit::CpuSeconds, given.cpu_seconds),
        (ProcessRlimit::FileBytes, given.disk_bytes),
        (ProcessRlimit::OpenFiles, given.open_files),
        (ProcessRlimit::DataBytes, given.memory_bytes),
        (ProcessRlimit::Processes, given.processes),
    ];
    list.into_iter().filter_map(|(which, most)| Some((which, most?))).collect()
}
