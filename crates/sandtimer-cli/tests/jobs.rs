//! `sandtimer jobs`, as a person and a script use it.
#![allow(clippy::disallowed_methods, reason = "the commands under test are started here")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use sandtimer_jobs::SqliteJobs;
use sandtimer_jobs::job::{Finish, JobResult, JobStatus, JobStore, LeaseRequest};
use serde_json::{Value, json};
use tempfile::TempDir;

/// After this a test has failed.
const HARD_STOP: Duration = Duration::from_secs(120);

struct JobsDirectory(TempDir);

impl JobsDirectory {
    fn new() -> Self {
        JobsDirectory(tempfile::tempdir().expect("a directory"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        command
            .arg("jobs")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.env("SANDTIMER_STATE_DIR", self.0.path()).env_remove("SANDTIMER_TIME_SCALE");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it starts")
    }

    /// What it answered, if it could.
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {message}"))
    }

    fn submit_lines(&self, lines: &str) -> Output {
        let mut child =
            self.command(&["submit", "-", "--json"]).stdin(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("written");
        child.wait_with_output().expect("it ends")
    }

    fn submit(&self, spec: &Value) -> String {
        let output = self.submit_lines(&spec.to_string());
        let answer: Value = serde_json::from_slice(&output.stdout).expect("an answer");
        answer["jobs"][0]["id"].as_str().expect("an id").to_owned()
    }

    fn state(&self, id: &str) -> String {
        self.json(&["show", id])["state"].as_str().expect("a state").to_owned()
    }

    fn until_it_is(&self, id: &str, state: &str) {
        let begun = sandtimer_os::clock::monotonic_nanoseconds();
        while self.state(id) != state {
            assert!(since(begun) < HARD_STOP, "{id} is never {state}");
        }
    }
}

/// A worker that is ended with the test.
struct WorkerChild(Child);

impl Drop for WorkerChild {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jobs").join(name)
}

fn since(begun: u64) -> Duration {
    Duration::from_nanos(sandtimer_os::clock::monotonic_nanoseconds() - begun)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn idempotency_key_from_another_directory_is_the_same_job() {
    let jobs = JobsDirectory::new();
    let submit_in = |directory: &Path, line: &str| {
        let mut command = jobs.command(&["submit", "-", "--json"]);
        let mut child = command.current_dir(directory).stdin(Stdio::piped()).spawn().expect("it starts");
        child.stdin.take().expect("piped").write_all(line.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", stderr(&output));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("an answer");
        answer["jobs"][0].clone()
    };
    let one = tempfile::tempdir().expect("a directory");
    let line = r#"{"command": ["cat", "/proc/self/comm"], "idempotency_key": "k"}"#;
    let first = submit_in(one.path(), line);
    std::fs::write(one.path().join("word"), "here").expect("written");
    let reading = submit_in(one.path(), r#"{"command": ["cat", "word"]}"#);
    // The worker that executes the first need not have its submitter's directory.
    let second = submit_in(Path::new("/"), line);
    assert_eq!((&second["id"], &second["existed"]), (&first["id"], &json!(true)));
    let spec = |job: &Value| jobs.json(&["show", job["id"].as_str().expect("an id")])["spec"].clone();
    assert_eq!(spec(&first)["cwd"], Value::Null);
    let here = one.path().canonicalize().expect("a path");
    assert_eq!(spec(&reading)["cwd"], here.to_str().expect("UTF-8"));
}

#[test]
fn answer_that_cannot_be_written_is_an_error() {
    let jobs = JobsDirectory::new();
    let full = std::fs::File::options().write(true).open("/dev/full").expect("there");
    let refused = jobs.command(&["queues"]).stdout(full).output().expect("it starts");
    assert_eq!(refused.status.code(), Some(125));
    let message = stderr(&refused);
    assert!(message.contains("standard output cannot be written: No space left on device"), "{message}");
}

#[test]
fn output_that_is_not_utf8_is_replaced_on_request() {
    let jobs = JobsDirectory::new();
    let spec = jobs.0.path().join("bytes.json");
    std::fs::write(&spec, r#"{"command": ["sh", "-c", "printf 'a\\377b\\n'"]}"#).expect("written");
    let ran = jobs.json(&["run", spec.to_str().expect("text"), "--errors", "replace"]);
    assert_eq!(ran["result"]["outcome"]["stdout"], "a\u{fffd}b\n", "{ran}");
    let id = ran["id"].as_str().expect("an id");
    for command in ["show", "wait", "watch"] {
        let stdout = |more: &[&str]| {
            jobs.json(&[&[command, id], more].concat())["result"]["outcome"]["stdout"].clone()
        };
        assert_eq!(
            (stdout(&["--errors", "replace"]), stdout(&[])),
            (json!("a\u{fffd}b\n"), json!("Yf9iCg==")),
            "{command}"
        );
    }
    let refused = jobs.run(&["show", id, "--errors", "ignore"]);
    assert!(stderr(&refused).contains("strict, replace"), "{}", stderr(&refused));
}

#[test]
fn log_has_both_streams_in_the_sequence_of_writes() {
    let jobs = JobsDirectory::new();
    let file = jobs.0.path().join("spec.json");
    let script = "for n in 1 2 3 4 5 6 7 8 9; do echo out $n; sleep 0.1; echo err $n >&2; sleep 0.1; done";
    std::fs::write(&file, json!({"command": ["sh", "-c", script]}).to_string()).expect("written");
    let ran = jobs.run(&["run", file.to_str().expect("text")]);
    let expected: String = (1..10).map(|n| format!("out {n}\nerr {n}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{}", stderr(&ran));
}

#[test]
fn calculator_is_ended_by_its_jobs_deadline() {
    let jobs = JobsDirectory::new();
    let file = example("calculator.toml");
    let begun = sandtimer_os::clock::monotonic_nanoseconds();
    let output = jobs.run(&["run", file.to_str().expect("text"), "--time-scale", "0.2"]);
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    assert!(since(begun) >= Duration::from_secs(24));
    assert!(stderr(&output).contains("Stopped by the job's wall limit of 24 s"), "{}", stderr(&output));
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        log.contains("[SYSTEM: calculator:calculate circuit breaker open - try different approach]"),
        "{log}"
    );
}

#[test]
fn another_way_prints_its_answer() {
    let jobs = JobsDirectory::new();
    let file = example("another_way.toml");
    let output = jobs.run(&["run", file.to_str().expect("text"), "--time-scale", "0.5"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("\n42\n"));
}

#[test]
fn many_are_submitted_whole_or_not_at_all() {
    let jobs = JobsDirectory::new();
    let refused = jobs.submit_lines("{\"command\": [\"true\"]}\n{\"command\": [\"true\"], \"priorty\": 1}\n");
    assert_eq!(refused.status.code(), Some(125));
    let message = stderr(&refused);
    assert!(
        message.contains(
            "line 2 of standard input: `priorty`: unknown field; the nearest known one is `priority`"
        ),
        "{message}"
    );
    assert_eq!(jobs.json(&["list"])["jobs"], json!([]));
    let taken = jobs.submit_lines(&"{\"command\": [\"true\"], \"queue\": \"q\"}\n".repeat(3));
    assert_eq!(taken.status.code(), Some(0), "{}", stderr(&taken));
    assert_eq!(jobs.json(&["queues"])["queues"][0]["queued"], 3);
    assert_eq!(
        jobs.json(&["list", "--state", "queued", "--most", "2"])["jobs"].as_array().map(Vec::len),
        Some(2)
    );
}

#[test]
fn a_key_with_another_spec_is_a_conflict_that_names_the_job() {
    let jobs = JobsDirectory::new();
    let id = jobs.submit(&json!({"command": ["true"], "idempotency_key": "k"}));
    assert_eq!(jobs.submit(&json!({"command": ["true"], "idempotency_key": "k"})), id);
    let refused = jobs.submit_lines("{\"command\": [\"false\"], \"idempotency_key\": \"k\"}");
    assert_eq!(refused.status.code(), Some(125));
    assert!(
        stderr(&refused).contains(&format!("the idempotency key `k` belongs to job {id}")),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn input_files_are_embedded_and_output_files_are_fetched() {
    let jobs = JobsDirectory::new();
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("words"), "b\na\n").expect("written");
    std::fs::write(directory.path().join("blob"), [0xff, 0, 1]).expect("written");
    let spec = directory.path().join("sort.toml");
    let text = "command = [\"sh\", \"-c\", \"sort words > out; cat blob > copy; exit 3\"]\noutputs = [\"out\", \"copy\", \"more/*\"]\n\
        [inputs]\nwords = { file = \"words\" }\nblob = { file = \"blob\" }\n";
    std::fs::write(&spec, text).expect("written");
    let output = jobs.run(&["run", spec.to_str().expect("text"), "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&output.stdout).expect("a record");
    let id = record["id"].as_str().expect("an id");
    let listed = jobs.json(&["files", id]);
    assert_eq!(listed["files"], record["result"]["files"]);
    assert_eq!((&listed["files"][1]["name"], &listed["files"][1]["bytes"]), (&json!("copy"), &json!(3)));
    assert_eq!(listed["refused"][0]["name"], "more/*");
    assert_eq!(jobs.run(&["get", id, "out"]).stdout, b"a\nb\n");
    let copy = directory.path().join("copy");
    assert!(jobs.run(&["get", id, "copy", "--out", copy.to_str().expect("text")]).status.success());
    assert_eq!(std::fs::read(&copy).expect("there"), [0xff, 0, 1]);
    let shown = String::from_utf8(jobs.run(&["files", id]).stdout).expect("text");
    assert!(
        shown.starts_with("NAME") && shown.contains("not kept: more/*: nothing is there that it names"),
        "{shown}"
    );
    let refused = jobs.run(&["get", id, "other"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(
        stderr(&refused).contains(&format!("has left no file `other`; `sandtimer jobs files {id}` lists"))
    );
    std::fs::remove_file(directory.path().join("blob")).expect("removed");
    let refused = jobs.run(&["submit", spec.to_str().expect("text")]);
    assert!(stderr(&refused).contains("`inputs[\"blob\"].file`: "), "{}", stderr(&refused));
}

#[test]
fn a_worker_takes_jobs_is_cancelled_and_drains() {
    let jobs = JobsDirectory::new();
    let worker = WorkerChild(jobs.command(&["work", "--slots", "2"]).spawn().expect("it starts"));
    let failing = jobs.submit(&json!({"command": ["sh", "-c", "exit 3"]}));
    assert_eq!(jobs.run(&["wait", &failing]).status.code(), Some(1));
    let endless = jobs.submit(&json!({"command": ["sleep", "600"]}));
    jobs.until_it_is(&endless, "leased");
    assert_eq!(jobs.run(&["wait", &endless, "--for", "0.1s"]).status.code(), Some(75));
    assert_eq!(jobs.json(&["cancel", &endless])["cancelled"], "asked");
    assert_eq!(jobs.run(&["wait", &endless]).status.code(), Some(130));
    assert_eq!(jobs.json(&["retry", &failing])["state"], "queued");
    assert_eq!(jobs.run(&["wait", &failing]).status.code(), Some(1));

    let slow = jobs.submit(&json!({"command": ["sh", "-c", "sleep 1; echo all of it"]}));
    jobs.until_it_is(&slow, "leased");
    let pid = rustix::process::Pid::from_child(&worker.0);
    let worker_fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("a pidfd");
    rustix::process::pidfd_send_signal(&worker_fd, rustix::process::Signal::TERM).expect("sent");
    let late = jobs.submit(&json!({"command": ["true"]}));
    let mut worker = worker;
    assert!(worker.0.wait().expect("it ends").success());
    assert_eq!((jobs.state(&slow), jobs.state(&late)), ("ended".to_owned(), "queued".to_owned()));
    let watched = jobs.run(&["watch", &slow]);
    assert!(String::from_utf8_lossy(&watched.stdout).starts_with("all of it\n"));
    assert_eq!(jobs.json(&["purge"])["purged"], 3);
}

fn terminate(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    let child = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("a pidfd");
    rustix::process::pidfd_send_signal(&child, rustix::process::Signal::TERM).expect("sent");
}

/// Ends once the process has ended by itself, after several deployments would have made the job
/// dead.
fn assert_deployments_cost_no_delivery(start: &dyn Fn(&JobsDirectory) -> Child, signals: usize) {
    let jobs = JobsDirectory::new();
    let id = jobs.submit(&json!({"command": ["sleep", "600"], "deliveries": 1}));
    for _ in 0..3 {
        let mut worker = WorkerChild(start(&jobs));
        jobs.until_it_is(&id, "leased");
        (0..signals).for_each(|_| terminate(&worker.0));
        assert!(worker.0.wait().expect("it ends").success());
        let job = jobs.json(&["show", &id]);
        assert_eq!((&job["state"], &job["deliveries"]), (&json!("queued"), &json!(0)), "{job}");
    }
}

#[test]
fn drain_time_of_worker_gives_long_job_back() {
    let work = |jobs: &JobsDirectory| jobs.command(&["work", "--drain", "0.3s"]).spawn().expect("it starts");
    assert_deployments_cost_no_delivery(&work, 1);
}

#[test]
fn drain_time_of_server_gives_long_job_back() {
    let serve = |jobs: &JobsDirectory| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--drain", "0.3s"]);
        command.env("SANDTIMER_STATE_DIR", jobs.0.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().expect("it starts")
    };
    assert_deployments_cost_no_delivery(&serve, 1);
}

#[test]
fn drain_lets_short_job_finish_and_bad_times_are_refused() {
    let jobs = JobsDirectory::new();
    let id = jobs.submit(&json!({"command": ["sh", "-c", "sleep 1; echo done"]}));
    let mut worker = WorkerChild(jobs.command(&["work", "--drain", "10m"]).spawn().expect("it starts"));
    jobs.until_it_is(&id, "leased");
    terminate(&worker.0);
    assert!(worker.0.wait().expect("it ends").success());
    assert_eq!(jobs.json(&["show", &id])["result"]["status"], "ok");
    let refused = jobs.run(&["work", "--drain", "soon"]);
    assert_eq!(refused.status.code(), Some(125));
    let message = stderr(&refused);
    assert!(message.contains("--drain") && message.contains("soon"), "{message}");
}

#[test]
fn a_paused_queue_waits_and_unknown_jobs_are_named() {
    let jobs = JobsDirectory::new();
    jobs.json(&["pause", "q"]);
    let id = jobs.submit(&json!({"command": ["true"], "queue": "q"}));
    assert_eq!(jobs.json(&["queues"])["queues"][0]["paused"], true);
    jobs.json(&["resume", "q"]);
    assert_eq!(jobs.json(&["cancel", &id])["cancelled"], "cancelled");
    let refused = jobs.run(&["show", "nosuchjob"]);
    assert_eq!(refused.status.code(), Some(125));
    assert!(stderr(&refused).contains("there is no job `nosuchjob`"));
}

#[test]
fn invalid_arguments_are_rejected_with_value_and_remedy() {
    let jobs = JobsDirectory::new();
    for (arguments, message) in [
        (
            vec!["list", "--cursor", "junk"],
            "the cursor `junk` is none of a listing; use the `next` of an earlier one",
        ),
        (
            vec!["list", "--state", "runing"],
            "use one of scheduled, queued, running, ending, leased, ok, failed",
        ),
        (vec!["purge", "--state", "queued"], "only records of ended jobs"),
        (vec!["purge", "--state", "leased"], "or cancel the jobs first"),
        (vec!["pause", ""], "'[QUEUE]': use a name of 1 to 200 printable characters"),
        (vec!["requeue", "--queue", "a\tb"], "use a name of 1 to 200 printable characters"),
    ] {
        let refused = jobs.run(&arguments);
        assert_eq!(refused.status.code(), Some(125), "{arguments:?}");
        assert!(stderr(&refused).contains(message), "{arguments:?}: {}", stderr(&refused));
    }
    assert_eq!(jobs.json(&["queues"])["queues"], json!([]));
    let twice = jobs.submit_lines(
        "{\"command\": [\"true\"]}\n{\"command\": [\"true\"], \"priority\": 1, \"priority\": 2}\n",
    );
    assert_eq!(twice.status.code(), Some(125));
    let message = "line 2 of standard input: `priority` is there twice, as 1 and as 2; leave one of them out";
    assert!(stderr(&twice).contains(message), "{}", stderr(&twice));
    let file = jobs.0.path().join("twice.json");
    std::fs::write(&file, "{\"env\": {\"A\": \"1\", \"A\": \"2\"}, \"command\": [\"true\"]}")
        .expect("written");
    let twice = jobs.run(&["submit", file.to_str().expect("text")]);
    assert!(stderr(&twice).contains("`env.A` is there twice, as \"1\" and as \"2\""), "{}", stderr(&twice));
    assert_eq!(jobs.json(&["list"])["jobs"], json!([]));
}

#[test]
fn listing_filters_by_the_states_that_it_prints() {
    let jobs = JobsDirectory::new();
    let in_state = |state: &str| -> Vec<String> {
        let listed = jobs.json(&["list", "--state", state]);
        let ids = listed["jobs"].as_array().expect("a list").iter();
        ids.map(|job| job["id"].as_str().expect("an id").to_owned()).collect()
    };
    let worker = WorkerChild(jobs.command(&["work", "--slots", "4"]).spawn().expect("it starts"));
    let (well, badly) =
        (jobs.submit(&json!({"command": ["true"]})), jobs.submit(&json!({"command": ["false"]})));
    jobs.run(&["wait", &well]);
    jobs.run(&["wait", &badly]);
    let endless = json!({"command": ["sleep", "600"]});
    let (running, ending) = (jobs.submit(&endless), jobs.submit(&endless));
    jobs.until_it_is(&running, "leased");
    jobs.until_it_is(&ending, "leased");
    // A stopped worker does not receive a cancel, and the job stays in `ending` for as long.
    let pid = rustix::process::Pid::from_child(&worker.0);
    let worker_fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("a pidfd");
    rustix::process::pidfd_send_signal(&worker_fd, rustix::process::Signal::STOP).expect("sent");
    assert_eq!(jobs.json(&["cancel", &ending])["cancelled"], "asked");
    for (state, ids) in [
        ("ok", vec![&well]),
        ("failed", vec![&badly]),
        ("ended", vec![&badly, &well]),
        ("running", vec![&running]),
        ("ending", vec![&ending]),
        ("leased", vec![&ending, &running]),
    ] {
        assert_eq!(in_state(state).iter().collect::<Vec<_>>(), ids, "{state}");
    }
    assert_eq!(jobs.json(&["purge", "--state", "failed"])["purged"], 1);
    assert_eq!(in_state("ended"), [well]);
}

#[test]
fn concurrent_creation_of_a_store_succeeds() {
    // One that is refused was refused in one of ten.
    for _ in 0..20 {
        let jobs = JobsDirectory::new();
        let asked: Vec<_> = (0..6)
            .map(|_| {
                jobs.command(&["queues"])
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .expect("it starts")
            })
            .collect();
        for each in asked {
            let output = each.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Ends a delivery of a job that no worker here has the handler for, as a worker does that fails.
fn fail_delivery(store: &SqliteJobs, id: &str) {
    let request = LeaseRequest {
        worker: "failing".to_owned(),
        slots: 1,
        queues: Vec::new(),
        only: Some(id.to_owned()),
        lease: Duration::from_secs(60),
        memory: None,
        handlers: Vec::new(),
    };
    let held = store.lease(&request).expect("leased").remove(0).held;
    let result = JobResult::bare(JobStatus::InfraError, Some("it failed".to_owned()));
    store.finish(&[Finish { held, result, again: true, pause_ms: 0 }]).expect("finished");
}

/// Lets a job's only delivery fail as a worker's failure, so that it is dead.
fn dead(jobs: &JobsDirectory, queue: &str) -> String {
    let spec = json!({"handler": "nobody has it", "queue": queue, "deliveries": 1});
    let id = jobs.submit(&spec);
    fail_delivery(&SqliteJobs::open(jobs.0.path()).expect("opened"), &id);
    assert_eq!(jobs.state(&id), "dead");
    id
}

#[test]
fn the_dead_of_a_queue_are_queued_again_and_no_others() {
    let jobs = JobsDirectory::new();
    let worker = WorkerChild(jobs.command(&["work", "--slots", "2"]).spawn().expect("it starts"));
    let (one, two, other) = (dead(&jobs, "q"), dead(&jobs, "q"), dead(&jobs, "elsewhere"));
    let failed = jobs.submit(&json!({"command": ["false"], "queue": "q"}));
    jobs.run(&["wait", &failed]);
    drop(worker);
    assert_eq!(jobs.json(&["requeue", "--queue", "q"])["requeued"], 2);
    let states = [&one, &two, &other, &failed].map(|id| jobs.state(id));
    assert_eq!(states, ["queued", "queued", "dead", "ended"]);
    assert_eq!(jobs.json(&["requeue"])["requeued"], 1);
    assert_eq!(jobs.run(&["requeue"]).stdout, b"0 dead jobs are queued again\n");
}

#[test]
fn job_in_paused_queue_reports_what_it_waits_for() {
    let jobs = JobsDirectory::new();
    jobs.json(&["pause", "q"]);
    let file = jobs.0.path().join("spec.json");
    std::fs::write(&file, json!({"command": ["echo", "done"], "queue": "q"}).to_string()).expect("written");
    let mut running = jobs.command(&["run", file.to_str().expect("text")]).spawn().expect("it starts");
    let mut message = String::new();
    BufReader::new(running.stderr.as_mut().expect("piped")).read_line(&mut message).expect("readable");
    assert!(message.starts_with("sandtimer: queue q is paused, and job "), "{message}");
    assert!(message.ends_with("`sandtimer jobs resume q` resumes it\n"), "{message}");
    jobs.json(&["resume", "q"]);
    let output = running.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"done\n".as_slice()));
}

#[test]
fn watch_prints_state_changes_without_terminal() {
    let jobs = JobsDirectory::new();
    let well = jobs.submit(&json!({"command": ["echo", "written"]}));
    let badly = jobs.submit(&json!({"command": ["sh", "-c", "exit 3"]}));
    let watching = jobs.command(&["watch", &well, &badly]).spawn().expect("it starts");
    let _worker = WorkerChild(jobs.command(&["work"]).spawn().expect("it starts"));
    let watched = watching.wait_with_output().expect("it ends");
    assert_eq!(watched.status.code(), Some(1), "that of the one that failed");
    let message = stderr(&watched);
    assert!(message.lines().any(|line| line == format!("sandtimer: job {well} is queued")), "{message}");
    assert!(!message.contains('\x1b'), "{message}");
    let ends = String::from_utf8_lossy(&watched.stdout).into_owned();
    let lines: Vec<&str> = ends.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains(&well) && lines[1].contains(&badly), "{ends}");
    let one = jobs.run(&["watch", &well]);
    assert!(one.stdout.starts_with(b"written\n") && one.status.success(), "{one:?}");
    let refused = jobs.run(&["watch", &well, "nosuchjob"]);
    assert!(stderr(&refused).contains("there is no job `nosuchjob`"));
}

#[test]
fn worker_ignores_local_file_that_is_not_valid() {
    let (jobs, here) = (JobsDirectory::new(), tempfile::tempdir().expect("a directory"));
    std::fs::write(here.path().join("sandtimer.toml"), "[limits]\nwal = 1\n").expect("written");
    let id = jobs.submit(&json!({"command": ["echo", "done"]}));
    let mut worker =
        WorkerChild(jobs.command(&["work"]).current_dir(here.path()).spawn().expect("it starts"));
    jobs.until_it_is(&id, "ended");
    let mut line = String::new();
    let stderr = worker.0.stderr.take().expect("piped");
    BufReader::new(stderr).read_line(&mut line).expect("a line");
    assert!(line.starts_with("sandtimer: sandtimer.toml:2: unknown key `wal` in [limits]"), "{line}");
    assert!(line.ends_with("sandtimer.toml is ignored: correct it, or remove it\n"), "{line}");
}

#[test]
fn watching_draws_a_bar_on_a_terminal() {
    let jobs = JobsDirectory::new();
    let script = "for i in 1 2 3 4; do echo epoch $i/4; sleep 0.5; done";
    let id = jobs.submit(&json!({"command": ["sh", "-c", script], "wall_ms": 60_000}));
    let _worker = WorkerChild(jobs.command(&["work"]).spawn().expect("it starts"));
    let master = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY)
        .expect("a terminal");
    rustix::pty::grantpt(&master).expect("granted");
    rustix::pty::unlockpt(&master).expect("unlocked");
    let name = rustix::pty::ptsname(&master, Vec::new()).expect("named");
    let path = name.to_str().expect("text").to_owned();
    let terminal = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("opened");
    let watching = jobs.command(&["watch", &id]).stderr(terminal).spawn().expect("it starts");
    let watched = watching.wait_with_output().expect("it ends");
    let mut drawn = vec![0; 64 << 10];
    // All of it: the writer has ended, and a terminal holds less.
    let count = rustix::io::read(&master, &mut drawn).expect("readable");
    let drawn = String::from_utf8_lossy(&drawn[..count]).into_owned();
    assert!(watched.status.success() && watched.stdout.starts_with(b"epoch 1/4\n"), "{watched:?}");
    assert!(drawn.contains("] 2 of 4, ") || drawn.contains("] 3 of 4, "), "{drawn:?}");
    assert!(drawn.contains(&format!("job {id} running, ")) && drawn.contains("\x1b[1F"), "{drawn:?}");
}
