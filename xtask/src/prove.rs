//! `cargo xtask prove`: the proofs at full size, each with a committed record of where and how it
//! was run.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::{Result, compat, conformance, dist, root, setup, step};

/// One proof; its output becomes `docs/results/<name>.txt`.
struct Proof {
    name: &'static str,
    /// Runs in the root of the repository, after a release build, with `SANDTIMER_FULL=1`.
    command: &'static [&'static str],
    /// It is killed after this long.
    minutes: u32,
}

/// A part of the tests at full size, with an option of cargo-nextest and its value, and without
/// optimisation.
const fn tests_of(option: &'static str, value: &'static str, filter: &'static str) -> [&'static str; 11] {
    [
        "cargo",
        "nextest",
        "run",
        "--cargo-quiet",
        "--workspace",
        "--profile",
        "prove",
        option,
        value,
        "--filterset",
        filter,
    ]
}

/// The same for tests that count what they tried, one at a time, with what they print.
const fn counted_tests_of(filter: &'static str) -> [&'static str; 13] {
    let [cargo, nextest, run, quiet, workspace, profile, prove, threads, one, option, filter] =
        tests_of("--test-threads", "1", filter);
    let (output, at_once) = ("--success-output", "immediate");
    [cargo, nextest, run, quiet, workspace, profile, prove, threads, one, output, at_once, option, filter]
}

/// Add a row for each proof.
const PROOFS: &[Proof] = &[
    Proof {
        name: "bench-lateness",
        command: &["target/release/sandtimer", "bench", "lateness"],
        minutes: 60,
    },
    Proof {
        name: "bench-lateness-load",
        command: &["target/release/sandtimer", "bench", "lateness", "--load"],
        minutes: 60,
    },
    Proof { name: "bench-spawn", command: &["target/release/sandtimer", "bench", "spawn"], minutes: 60 },
    Proof { name: "bench-many", command: &["target/release/sandtimer", "bench", "many"], minutes: 60 },
    Proof {
        name: "bench-queue",
        command: &[
            "cargo",
            "run",
            "--quiet",
            "--release",
            "-p",
            "sandtimer-jobs",
            "--features",
            "nats",
            "--example",
            "queue",
        ],
        minutes: 60,
    },
    Proof {
        name: "bench-estimates",
        command: &[
            "cargo",
            "test",
            "--quiet",
            "--release",
            "--package",
            "sandtimer-agents",
            "--test",
            "integration",
            "--",
            "estimates::",
            "--nocapture",
            "--test-threads=1",
        ],
        minutes: 60,
    },
    Proof {
        name: "tests-full-size",
        command: &[
            "cargo",
            "nextest",
            "run",
            "--cargo-quiet",
            "--release",
            "--workspace",
            "--profile",
            "prove",
        ],
        minutes: 240,
    },
    // Suites of other projects with sealed tests and kernels, and of the integrations.
    Proof { name: "suites-python", command: &suites("python/tests/prove_suites.py"), minutes: 120 },
    // Bubblewrap's own suite, and the sandboxes of coding agents over `sandtimer bwrap`.
    Proof { name: "suites-bwrap", command: &suites("python/tests/prove_bwrap.py"), minutes: 60 },
    // Unmodified clients of other judges and sandboxes.
    Proof { name: "suites-clients", command: &suites("python/tests/prove_clients.py"), minutes: 60 },
    // The part of it that kills workers and servers of jobs, and plays their interleavings.
    Proof {
        name: "tests-jobs-full-size",
        command: &tests_of("--test-threads", "4", "package(sandtimer-jobs) or test(/^jobs_machines::/)"),
        minutes: 120,
    },
    // A NATS server whose disk is full.
    Proof {
        name: "jobs-nats-disk",
        command: &tests_of("--run-ignored", "only", "test(/^jobs_disk::/)"),
        minutes: 30,
    },
    // Queues at full size, on both stores: 1,000 webhooks, rates over a minute, a fan-out of 1,000.
    Proof { name: "jobs-webhooks", command: &["python3", QUEUE_PROOFS, "webhooks"], minutes: 60 },
    Proof { name: "jobs-rates", command: &["python3", QUEUE_PROOFS, "rates"], minutes: 30 },
    Proof { name: "jobs-fan-out", command: &["python3", QUEUE_PROOFS, "fan-out"], minutes: 30 },
    // The part of it that inspects what hangs, and what only seems to.
    Proof {
        name: "tests-tasks-full-size",
        command: &tests_of(
            "--test-threads",
            "2",
            "package(/^sandtimer(-agents)?$/) and (test(/^look::/) or test(/^quiet::/) or test(/^estimates::/))",
        ),
        minutes: 60,
    },
    // Ten minutes of deadlines on the one processor that the enforcer shares with the threads that
    // send to it.
    Proof {
        name: "enforcement-one-processor",
        command: &counted_tests_of(
            "test(/^enforcement::/) and test(enforcer_is_on_time_on_one_processor_with_senders)",
        ),
        minutes: 60,
    },
    // The part of it in which another process forges answers of cells and commands: 10,000
    // executions each.
    Proof {
        name: "tests-forgers-full-size",
        command: &counted_tests_of("package(sandtimer) and test(/^forgers::/)"),
        minutes: 60,
    },
    // The part of it that exchanges directories while a run is built on them: 100,000 tries as
    // root, and as many as a user.
    Proof {
        name: "tests-mounts-full-size",
        command: &counted_tests_of("package(sandtimer) and test(/^mounts::/)"),
        minutes: 180,
    },
    Proof { name: "bench-python", command: &[BENCH_PYTHON, "python/benches/calls.py"], minutes: 60 },
    Proof { name: "bench-ray", command: &[BENCH_PYTHON, "python/benches/ray_calls.py"], minutes: 60 },
    Proof { name: "bench-server", command: &[BENCH_PYTHON, "python/benches/server.py"], minutes: 60 },
    Proof {
        name: "overload-server",
        command: &[BENCH_PYTHON, "python/benches/server_overload.py"],
        minutes: 20,
    },
    Proof { name: "soak-python", command: &[BENCH_PYTHON, "python/benches/soak.py"], minutes: 120 },
    Proof { name: "soak-server", command: &[BENCH_PYTHON, "python/benches/server_soak.py"], minutes: 240 },
];

/// A Python environment of its own, apart from that of the tests: it has the package in its release
/// build.
struct ReleaseEnvironment {
    directory: &'static str,
    python: &'static str,
    requirements: &'static [&'static str],
}

const BENCH_PYTHON: &str = "target/bench-python/bin/python";
const QUEUE_PROOFS: &str = "python/benches/queue_proofs.py";
const SUITES_PYTHON: &str = "target/suites-python/bin/python";

const RELEASE_ENVIRONMENTS: &[ReleaseEnvironment] = &[
    // With the peers.
    ReleaseEnvironment {
        directory: "target/bench-python",
        python: BENCH_PYTHON,
        requirements: &["python/benches/requirements.txt"],
    },
    // With the clients of other systems.
    ReleaseEnvironment {
        directory: "target/suites-python",
        python: SUITES_PYTHON,
        requirements: &["python/tests/requirements.txt", "python/tests/requirements-prove.txt"],
    },
];

/// A file of tests that run the suites of other projects.
const fn suites(file: &'static str) -> [&'static str; 8] {
    // A suite takes longer than a test may.
    [SUITES_PYTHON, "-m", "pytest", "-q", "-s", "-o", "faulthandler_timeout=3600", file]
}

impl ReleaseEnvironment {
    /// Makes the environment; packages that are already there stay.
    fn prepare(&self) -> Result {
        let wheels = root().join("target/release-wheels");
        dist::clear(&wheels)?;
        let out = wheels.to_string_lossy();
        let mut build =
            setup::in_environment(&["-m", "maturin", "build", "--quiet", "--release", "--out", &out]);
        build.current_dir(root().join("python"));
        step::run(build)?;
        let wheel = setup::only_wheel(&wheels)?;
        step::run(step::command("python3", &["-m", "venv", self.directory]))?;
        let pip = |arguments: &[&str]| {
            let mut command = step::command(self.python, &["-m", "pip", "install", "-qq"]);
            command.args(arguments).env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
            step::run(command)
        };
        for requirements in self.requirements {
            pip(&["--requirement", requirements])?;
        }
        pip(&["--no-index", "--no-deps", "--force-reinstall", &wheel.to_string_lossy()])
    }
}

/// Runs the proofs named, or all. A failed proof is recorded, and the others still run.
pub(crate) fn run(names: &[&str]) -> Result {
    if let Some(unknown) = names.iter().find(|name| !PROOFS.iter().any(|proof| proof.name == **name)) {
        let known: Vec<&str> = PROOFS.iter().map(|proof| proof.name).collect();
        return Err(format!("no proof is called `{unknown}`; there are: {}", known.join(", ")));
    }
    step::timed("system packages", setup::system_packages)?;
    step::timed("tools", setup::tools)?;
    step::timed("python environment", setup::python_environment)?;
    step::timed("npm packages", compat::packages)?;
    let chosen: Vec<&Proof> =
        PROOFS.iter().filter(|proof| names.is_empty() || names.contains(&proof.name)).collect();
    // What cargo starts it also builds.
    if chosen.iter().any(|proof| proof.command[0] != "cargo") {
        step::timed("release build", || step::cargo(&["build", "--release", "--workspace"]))?;
    }
    let run = |proof: &&Proof| step::timed(proof.name, || prepared(proof)).err();
    let failures: Vec<String> = chosen.iter().filter_map(run).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn prepared(proof: &Proof) -> Result {
    if let Some(environment) =
        RELEASE_ENVIRONMENTS.iter().find(|environment| environment.python == proof.command[0])
    {
        environment.prepare()?;
    }
    if proof.command[0] == SUITES_PYTHON {
        setup::suite_packages()?;
        record(proof)?;
        // They have recorded their results.
        return conformance::write();
    }
    record(proof)
}

/// Runs one proof with its output shown and written down.
fn record(proof: &Proof) -> Result {
    let directory = root().join("docs/results");
    let path = directory.join(format!("{}.txt", proof.name));
    let failed = |error: io::Error| format!("cannot record {}: {error}", path.display());
    fs::create_dir_all(&directory).map_err(failed)?;
    let mut file = File::create(&path).map_err(failed)?;
    write!(file, "{}", heading(proof)).map_err(failed)?;

    let start = Instant::now();
    let ending = tee(timed_command(proof), &file).map_err(failed)?;
    let seconds = start.elapsed().as_secs_f64();
    writeln!(file, "\nresult: {} after {seconds:.0} s", ending.as_ref().err().map_or("ok", String::as_str))
        .map_err(failed)?;
    ending
}

/// The proof's command under timeout(1), which also ends processes that the command has left.
fn timed_command(proof: &Proof) -> Command {
    let minutes = format!("{}m", proof.minutes);
    let mut command = step::command("timeout", &["--kill-after=30s", &minutes]);
    let inner = step::command(proof.command[0], &proof.command[1..]);
    command.arg(inner.get_program()).args(inner.get_args());
    let (name, modules) = compat::variable();
    if proof.command[0] == SUITES_PYTHON {
        command.env("SANDTIMER_BIN", root().join("target/release/sandtimer"));
    }
    command
        .env("SANDTIMER_FULL", "1")
        .env("SANDTIMER_TEST_PYTHON", setup::python(&root()))
        .env(name, modules);
    // What is installed is what is proven, wherever the caller's variables point.
    command.env_remove("PYTHONPATH").env_remove("PYTHONHOME");
    command
}

/// How long after its command's end the output is waited for. Something left alive may hold the
/// pipe for ever.
const DRAIN: Duration = Duration::from_secs(10);

/// Runs `command`, with both its streams going to `file` and to this process's output, and returns
/// how it ended.
fn tee(mut command: Command, file: &File) -> io::Result<Result> {
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    let shown = step::shown(&command);
    // It holds this process's ends of the pipe, and with them the output would never end.
    drop(command);
    let (copied, copying) = mpsc::channel();
    let file = file.try_clone()?;
    std::thread::spawn(move || copied.send(copy(reader, file)));
    let status = child.wait()?;
    match copying.recv_timeout(DRAIN) {
        Ok(copied) => copied?,
        Err(_) => return Ok(Err(format!("`{shown}` left something alive that holds its output open"))),
    }
    Ok(match status.code() {
        Some(0) => Ok(()),
        Some(124) => Err(format!("`{shown}` did not end in time")),
        _ => Err(format!("`{shown}` failed: {status}")),
    })
}

fn copy(reader: io::PipeReader, mut file: File) -> io::Result<()> {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        file.write_all(&line)?;
        io::stdout().write_all(&line)?;
        line.clear();
    }
    Ok(())
}

/// What a reader must know to judge or repeat the numbers.
fn heading(proof: &Proof) -> String {
    let asked = |program: &str, arguments: &[&str]| {
        step::output(step::command(program, arguments)).unwrap_or_else(|_| "unknown".to_owned())
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let information = read("/proc/cpuinfo");
    let model = information.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let changed = if asked("git", &["status", "--porcelain"]).is_empty() { "" } else { ", with changes" };
    format!(
        "date:    {}\nkernel:  {}\ncpus:    {processors} ({})\ncommit:  {}{changed}\ncommand: SANDTIMER_FULL=1 {}\n\n",
        asked("date", &["--utc", "+%Y-%m-%dT%H:%M:%SZ"]),
        read("/proc/sys/kernel/osrelease").trim(),
        model.unwrap_or("unknown"),
        asked("git", &["rev-parse", "HEAD"]),
        proof.command.join(" "),
    )
}
