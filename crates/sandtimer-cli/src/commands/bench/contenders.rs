//! Ways of running /bin/true to its end, and the processor time they take.
//!
//! The floor and the peers are started by the standard library here, and only here: a bare process
//! is what a sandbox is compared with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sandtimer::{Engine, Error, Limits, Run, Spec};
use sandtimer_os::clock::monotonic_nanoseconds;
use sandtimer_os::process::own_cpu_microseconds;

use super::hostile::has_program;

/// What is started.
const PROGRAM: &str = "/bin/true";
/// How bubblewrap is asked to start it.
const BUBBLEWRAP_ARGUMENTS: [&str; 5] = ["--unshare-all", "--ro-bind", "/", "/", PROGRAM];

/// One way of running it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contender {
    Bare,
    Bubblewrap,
    Library,
    Parked,
    CommandLine,
    BubblewrapFrontDoor,
}

impl Contender {
    pub(super) const ALL: [Contender; 6] = [
        Contender::Bare,
        Contender::Bubblewrap,
        Contender::Library,
        Contender::Parked,
        Contender::CommandLine,
        Contender::BubblewrapFrontDoor,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Contender::Bare => "a  bare vfork, exec, wait",
            Contender::Bubblewrap => "b  bwrap --unshare-all",
            Contender::Library => "c  library, new sandbox",
            Contender::Parked => "d  library, parked sandbox",
            Contender::CommandLine => "e  sandtimer run, whole process",
            Contender::BubblewrapFrontDoor => "f  sandtimer bwrap, as b",
        }
    }

    /// Name in JSON.
    pub(super) fn key(self) -> &'static str {
        match self {
            Contender::Bare => "bare",
            Contender::Bubblewrap => "bwrap",
            Contender::Library => "library",
            Contender::Parked => "parked",
            Contender::CommandLine => "command_line",
            Contender::BubblewrapFrontDoor => "bwrap_front_door",
        }
    }

    /// What its processor time is made of.
    pub(super) fn counted(self) -> &'static str {
        match self {
            Contender::Bare => "this thread and the child",
            Contender::Bubblewrap => "this thread and bwrap, which does not wait for the end of its sandbox",
            Contender::Library => "the engine, its helpers and the sandbox's control group",
            Contender::Parked => "as c, and the building of the sandbox ahead of need as well",
            Contender::CommandLine => "the process and what it waited for; not the processes in its sandbox",
            Contender::BubblewrapFrontDoor => "the process and what it waited for",
        }
    }

    /// Why it cannot be measured here.
    pub(super) fn unavailable(self) -> Option<String> {
        (self == Contender::Bubblewrap && !has_program("bwrap")).then(|| "bwrap is not installed".to_owned())
    }

    /// Runs it once; nanoseconds from request to known end.
    pub(super) fn run(self, engine: &Engine) -> Result<u64, Error> {
        match self {
            Contender::Bare => process(&mut Command::new(PROGRAM)),
            Contender::Bubblewrap => process(Command::new("bwrap").args(BUBBLEWRAP_ARGUMENTS)),
            Contender::Library => {
                let begun = monotonic_nanoseconds();
                ended_well(&engine.start(spec())?, begun)
            }
            Contender::Parked => {
                let parked = engine.park(&spec())?;
                let begun = monotonic_nanoseconds();
                ended_well(&parked.start(spec())?, begun)
            }
            Contender::CommandLine => {
                let program = std::env::current_exe().map_err(system("cannot find this program's file"))?;
                process(Command::new(program).args(["run", "--wall", "10s", "--", PROGRAM]))
            }
            Contender::BubblewrapFrontDoor => {
                let program = std::env::current_exe().map_err(system("cannot find this program's file"))?;
                process(Command::new(program).arg("bwrap").args(BUBBLEWRAP_ARGUMENTS))
            }
        }
    }
}

fn spec() -> Spec {
    Spec::command([PROGRAM]).limits(Limits::new().wall(Duration::from_secs(10)))
}

/// Waits for the outcome; nanoseconds since `begun`.
fn ended_well(run: &Run, begun: u64) -> Result<u64, Error> {
    let outcome = run.wait_blocking();
    let took = monotonic_nanoseconds() - begun;
    if outcome.ok { Ok(took) } else { Err(bad_end(&format!("{:?}", outcome.ending))) }
}

fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { doing, source }
}

fn bad_end(how: &str) -> Error {
    Error::System {
        doing: "a contender of the bench did not end well",
        source: std::io::Error::other(how.to_owned()),
    }
}

/// The library starts it with posix_spawn(3), which is vfork and exec: nothing asks for more here.
#[expect(clippy::disallowed_methods, reason = "the floor and the peers that sandboxes are compared with")]
fn process(command: &mut Command) -> Result<u64, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = monotonic_nanoseconds();
    let status = command.status().map_err(system("cannot start a contender of the bench"))?;
    let took = monotonic_nanoseconds() - begun;
    if status.success() {
        Ok(took)
    } else {
        Err(bad_end(&format!("{}: {status}", command.get_program().display())))
    }
}

/// Reads all processor time that a contender may have used: own, waited-for children, helpers, the
/// engine's group.
#[derive(Debug)]
pub(super) struct CpuMeter {
    group: Option<PathBuf>,
}

impl CpuMeter {
    pub(super) fn new() -> Self {
        CpuMeter { group: engine_group() }
    }

    /// Whether what sandboxes use is counted at all.
    pub(super) fn counts_sandboxes(&self) -> bool {
        self.group.is_some()
    }

    /// Microseconds so far.
    pub(super) fn microseconds(&self) -> u64 {
        let group = self.group.as_ref().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let used = group
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))
            .and_then(|text| text.parse().ok());
        own_cpu_microseconds() + helpers() + used.unwrap_or(0)
    }
}

/// Processor time of the living children of all threads: launchers and watchdog.
fn helpers() -> u64 {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return 0 };
    let children =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let nanoseconds = |pid: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    children.map(|pids| pids.split_whitespace().filter_map(nanoseconds).sum::<u64>()).sum::<u64>() / 1000
}

/// cpu.stat of this process's engine in the v2 hierarchy: it counts sandboxes that are gone as
/// well. The engine's number is that of the lock file it holds.
fn engine_group() -> Option<PathBuf> {
    let number = fs::read_dir("/proc/self/fd").ok()?.flatten().find_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        let name = target.file_name()?.to_str()?;
        name.strip_prefix("engine-")?.strip_suffix(".lock")?.parse::<u32>().ok()
    })?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let point = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        right.starts_with("cgroup2 ").then(|| left.split(' ').nth(4)).flatten()
    })?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let inside = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/');
    let name = format!("sandtimer-{}-{number}", rustix::process::getuid().as_raw());
    let path = Path::new(point).join(inside).join(name).join("cpu.stat");
    path.exists().then_some(path)
}
