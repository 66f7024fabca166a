//! Commands of `sandtimer jobs` that take several jobs: by ids, by the beginnings of ids, by
//! filters; on each store.
#![allow(clippy::disallowed_methods, reason = "the commands under test are started here")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support;

use support::NatsServer;

/// After this a test has failed.
const HARD_STOP: Duration = Duration::from_secs(120);

/// A store of a test's own.
struct JobsStore {
    directory: TempDir,
    server: Option<NatsServer>,
}

impl JobsStore {
    fn new(server: Option<NatsServer>) -> Self {
        JobsStore { directory: tempfile::tempdir().expect("a directory"), server }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
        command
            .arg("jobs")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.env("SANDTIMER_STATE_DIR", self.directory.path());
        command.env_remove("SANDTIMER_TIME_SCALE").env_remove("SANDTIMER_STORE");
        if let Some(server) = &self.server {
            command.env("SANDTIMER_STORE", server.url());
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it starts")
    }

    /// The objects that it printed, one a line.
    fn lines(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.run(&[arguments, &["--json"]].concat());
        let read = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
        };
        String::from_utf8_lossy(&output.stdout).lines().map(read).collect()
    }

    fn submit(&self, specs: &[Value]) -> Vec<String> {
        let mut child =
            self.command(&["submit", "-", "--json"]).stdin(Stdio::piped()).spawn().expect("it starts");
        let text: String = specs.iter().map(|spec| format!("{spec}\n")).collect();
        child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("it ends");
        let answer: Value = serde_json::from_slice(&output.stdout).expect("an answer");
        let jobs = answer["jobs"].as_array().expect("a list").iter();
        jobs.map(|job| job["id"].as_str().expect("an id").to_owned()).collect()
    }

    fn work(&self) -> WorkerCommand {
        WorkerCommand(
            self.command(&["work", "--slots", "3", "--private-webhooks"]).spawn().expect("it starts"),
        )
    }

    fn state(&self, id: &str) -> String {
        self.lines(&["show", id])[0]["state"].as_str().expect("a state").to_owned()
    }

    fn until_it_is(&self, id: &str, state: &str) {
        let begun = sandtimer_os::clock::monotonic_nanoseconds();
        while self.state(id) != state {
            let waited = Duration::from_nanos(sandtimer_os::clock::monotonic_nanoseconds() - begun);
            assert!(waited < HARD_STOP, "{id} is never {state}");
        }
    }
}

/// A worker that is ended with the test.
struct WorkerCommand(Child);

impl Drop for WorkerCommand {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn on_each_store(test: impl Fn(&JobsStore)) {
    test(&JobsStore::new(None));
    if let Some(server) = NatsServer::start() {
        test(&JobsStore::new(Some(server)));
    }
}

fn shell(script: &str) -> Value {
    json!({"command": ["sh", "-c", script]})
}

#[test]
fn wait_of_several_prints_each_and_exits_with_the_worst() {
    on_each_store(|jobs| {
        let ids = jobs.submit(&[shell("true"), shell("exit 3"), json!({"command": ["sleep", "600"]})]);
        let [well, badly, endless] = &ids[..] else { panic!("{ids:?}") };
        let _worker = jobs.work();
        jobs.until_it_is(endless, "leased");
        let both = jobs.run(&["wait", well, badly, well]);
        assert_eq!(both.status.code(), Some(1), "{}", stderr(&both));
        let text = String::from_utf8_lossy(&both.stdout).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() == 2 && lines[0].contains(well) && lines[1].contains(badly), "{text}");
        let one = jobs.run(&["wait", well]);
        assert_eq!(one.status.code(), Some(0), "{}", stderr(&one));
        let open = jobs.run(&["wait", badly, endless, "--for", "0.3s"]);
        assert_eq!(open.status.code(), Some(75), "one is not over: {}", stderr(&open));
        assert_eq!(jobs.run(&["cancel", endless]).status.code(), Some(0));
        let all = jobs.run(&["wait", endless, badly]);
        assert_eq!(all.status.code(), Some(1), "that of a failure is worse than that of a cancel");
        assert_eq!(jobs.run(&["wait", endless]).status.code(), Some(130));
        assert_eq!(jobs.run(&["watch", endless, badly]).status.code(), Some(1));
    });
}

#[test]
fn filters_name_jobs_to_wait_for_cancel_and_retry() {
    on_each_store(|jobs| {
        let of =
            |queue: &str, delay_ms: u64| json!({"command": ["true"], "queue": queue, "delay_ms": delay_ms});
        let far = 3_600_000;
        let ids = jobs.submit(&[of("a", 0), of("a", far), of("b", 0), of("b", far), of("c", far)]);
        let states = || ids.iter().map(|id| jobs.state(id)).collect::<Vec<_>>();
        let cancelled = jobs.lines(&["cancel", "--queue", "a", "--state", "queued"]);
        assert_eq!(cancelled, [json!({"id": ids[0], "cancelled": "cancelled"})]);
        assert_eq!(jobs.lines(&["cancel", "--queue", "a"]).len(), 1);
        assert_eq!(jobs.lines(&["cancel", "--state", "scheduled"]).len(), 2);
        assert_eq!(states(), ["cancelled", "cancelled", "queued", "cancelled", "cancelled"]);
        let none = jobs.run(&["cancel", "--queue", "nothing is here"]);
        assert_eq!((none.status.code(), none.stdout.as_slice()), (Some(0), &b"no such jobs\n"[..]));
        assert_eq!(jobs.lines(&["cancel", "--all"]), [json!({"id": ids[2], "cancelled": "cancelled"})]);
        let retried = jobs.lines(&["retry", "--queue", "b", "--state", "cancelled"]);
        assert_eq!(retried.len(), 2);
        assert!(retried.iter().all(|line| line["state"] == "queued"), "{retried:?}");
        assert_eq!(states(), ["cancelled", "cancelled", "queued", "queued", "cancelled"]);
        assert!(jobs.lines(&["retry", "--state", "dead"]).is_empty());
        let _worker = jobs.work();
        let waited = jobs.run(&["wait", "--all"]);
        assert_eq!(waited.status.code(), Some(0), "{}", stderr(&waited));
        assert_eq!(states(), ["cancelled", "cancelled", "ended", "ended", "cancelled"]);
        assert_eq!(jobs.lines(&["retry", "--all"]).len(), 3, "those that succeeded stay");
        assert_eq!(jobs.run(&["wait", "--queue", "a"]).status.code(), Some(0));
    });
}

#[test]
fn one_that_cannot_be_done_keeps_no_other_from_it() {
    on_each_store(|jobs| {
        let ids = jobs.submit(&[shell("true"), shell("true"), shell("true")]);
        let [first, second, third] = &ids[..] else { panic!("{ids:?}") };
        jobs.run(&["cancel", first]);
        let late = jobs.run(&["cancel", first, second]);
        assert_eq!(late.status.code(), Some(1), "one was over: {}", stderr(&late));
        assert_eq!(jobs.state(second), "cancelled");
        let retried = jobs.run(&["retry", third, first, second]);
        assert_eq!(retried.status.code(), Some(125));
        assert!(
            stderr(&retried).contains(&format!("job {third} is queued; it has not ended")),
            "{retried:?}"
        );
        assert_eq!([first, second].map(|id| jobs.state(id)), ["queued", "queued"]);
        // What names no job is refused before anything is done.
        let unknown = jobs.run(&["cancel", first, "nosuchjob"]);
        assert_eq!(unknown.status.code(), Some(125));
        assert!(stderr(&unknown).contains("there is no job `nosuchjob`"), "{}", stderr(&unknown));
        assert_eq!(jobs.state(first), "queued");
    });
}

#[test]
fn beginning_of_an_id_is_enough_where_it_is_one_jobs() {
    on_each_store(|jobs| {
        let ids = jobs.submit(&[shell("echo one >&2; echo out > file"), shell("echo two")]);
        let (one, two) = (&ids[0][..6], &ids[1][..6]);
        let _worker = jobs.work();
        assert_eq!(jobs.run(&["wait", one, two]).status.code(), Some(0));
        let shown = jobs.lines(&["show", two, one]);
        assert_eq!([&shown[0]["id"], &shown[1]["id"]], [&json!(ids[1]), &json!(ids[0])]);
        let text = String::from_utf8(jobs.run(&["show", one, two]).stdout).expect("text");
        assert_eq!(text.matches("\n\njob        ").count(), 1, "{text}");
        assert_eq!(jobs.run(&["log", two]).stdout, b"two\n");
        let logs = String::from_utf8(jobs.run(&["log", one, two]).stdout).expect("text");
        assert_eq!(logs, format!("==> job {} <==\none\n\n==> job {} <==\ntwo\n", ids[0], ids[1]));
        let lines = jobs.lines(&["log", one, two]);
        for ((line, id), text) in lines.iter().zip(&ids).zip(["one", "two"]) {
            let expected = json!({"id": id, "at_ms": line["at_ms"], "line": text, "encoding": "utf-8"});
            assert_eq!((line, lines.len()), (&expected, 2));
        }
        assert!(jobs.run(&["files", one]).status.success());
        assert!(jobs.run(&["watch", two]).stdout.starts_with(b"two\n"));
        let refused = |arguments: &[&str], expected: &str| {
            let output = jobs.run(arguments);
            let message = stderr(&output);
            assert!(
                output.status.code() == Some(125) && message.contains(expected),
                "{arguments:?}: {message}"
            );
        };
        refused(&["show", &ids[0][..3]], "is too short for the beginning of a job's id; use 4 characters");
        refused(&["log", "zzzz"], "there is no job `zzzz`");
        refused(&["cancel"], "ID");
        refused(&["cancel", one, "--all"], "cannot be used with");
        refused(&["wait", "--state", "ok"], "use one of scheduled, queued, running, ending, leased");
        refused(&["retry", "--state", "ended"], "use one of failed, dead, cancelled");
    });
}

#[test]
fn beginning_of_several_ids_is_refused_with_the_candidates() {
    on_each_store(|jobs| {
        // That all begin with other four characters is as likely as one in ten million million.
        let mut ids = jobs.submit(&vec![json!({"command": ["true"], "name": "many"}); 2_000]);
        ids.sort();
        let alike = ids.windows(2).find(|two| two[0][..4] == two[1][..4]).expect("two of them begin alike");
        let refused = jobs.run(&["cancel", &alike[0][..4]]);
        assert_eq!(refused.status.code(), Some(125));
        let message = stderr(&refused);
        let named = format!("{} (many, queued), {} (many, queued)", alike[0], alike[1]);
        assert!(
            message.contains("is the beginning of several jobs' ids") && message.contains(&named),
            "{message}"
        );
        assert_eq!(jobs.state(&alike[0]), "queued");
        let length = (5..).find(|length| alike[0][..*length] != alike[1][..*length]).expect("they differ");
        assert_eq!(jobs.run(&["cancel", &alike[0][..length]]).status.code(), Some(0));
        assert_eq!([&alike[0], &alike[1]].map(|id| jobs.state(id)), ["cancelled", "queued"]);
    });
}

/// Takes every request, and passes on the ids of their messages.
fn receiver(listener: TcpListener) -> std::sync::mpsc::Receiver<String> {
    let (sender, ids) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|length| length > 2) {}
            let header = |name: &str| {
                let mut lines = head.lines().filter_map(|line| line.split_once(": "));
                lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).expect("a header").1.to_owned()
            };
            let mut body = vec![0; header("content-length").parse().expect("a number")];
            reader.read_exact(&mut body).expect("a body");
            let _ = write!(stream, "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
            if sender.send(header("webhook-id")).is_err() {
                return;
            }
        }
    });
    ids
}

#[test]
fn ends_are_redelivered_on_request() {
    on_each_store(|jobs| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let hook =
            json!({"url": format!("http://{}/", listener.local_addr().expect("bound")), "events": ["dead"]});
        let requests = receiver(listener);
        let spec = json!({"command": ["true"], "webhook": hook});
        let ids = jobs.submit(&[spec.clone(), spec, json!({"command": ["true"]})]);
        let _worker = jobs.work();
        assert_eq!(jobs.run(&["wait", &ids[0], &ids[1], &ids[2]]).status.code(), Some(0));
        let text = String::from_utf8(jobs.run(&["show", &ids[0]]).stdout).expect("text");
        assert!(text.contains("/: this end, `ok`, is not among its `events`"), "{text}");
        let answers = jobs.lines(&["redeliver", &ids[0][..8], &ids[1]]);
        assert_eq!([&answers[0]["id"], &answers[1]["id"]], [&json!(ids[0]), &json!(ids[1])], "{answers:?}");
        assert!(answers.iter().all(|answer| answer["webhook"]["due_ms"].is_u64()), "{answers:?}");
        let mut sent = [0; 2].map(|_| requests.recv_timeout(HARD_STOP).expect("a request"));
        let message = |id: &str| format!("{id}-{}", jobs.lines(&["show", id])[0]["ended_ms"]);
        let mut expected = [message(&ids[0]), message(&ids[1])];
        sent.sort();
        expected.sort();
        assert_eq!(sent, expected);
        let refused = jobs.run(&["redeliver", &ids[2]]);
        assert_eq!(refused.status.code(), Some(125));
        assert!(stderr(&refused).contains("it has no `webhook`"), "{}", stderr(&refused));
    });
}

#[test]
fn log_has_times_before_its_lines_on_request() {
    on_each_store(|jobs| {
        // Each part is in the log before the next one is written.
        let script = "echo one; printf 'be'; until [ -e /gate/a ]; do sleep 0.05; done; \
            echo gun; until [ -e /gate/b ]; do sleep 0.05; done; printf 'last\\377'";
        let gate = tempfile::tempdir().expect("a directory");
        let gate_path = gate.path().to_str().expect("text");
        let script = script.replace("/gate", gate_path);
        let spec = json!({"command": ["sh", "-c", script], "workspaces": [gate_path]});
        let ids = jobs.submit(&[spec, shell("echo other")]);
        let _worker = jobs.work();
        let until_log_is = |text: &str| {
            let begun = sandtimer_os::clock::monotonic_nanoseconds();
            while jobs.run(&["log", &ids[0]]).stdout != text.as_bytes() {
                let waited = Duration::from_nanos(sandtimer_os::clock::monotonic_nanoseconds() - begun);
                assert!(waited < HARD_STOP, "{:?}", jobs.run(&["log", &ids[0]]));
            }
        };
        until_log_is("one\nbe");
        std::thread::sleep(Duration::from_millis(60));
        std::fs::write(gate.path().join("a"), "").expect("written");
        until_log_is("one\nbegun\n");
        std::thread::sleep(Duration::from_millis(60));
        std::fs::write(gate.path().join("b"), "").expect("written");
        assert_eq!(jobs.run(&["wait", &ids[0], &ids[1]]).status.code(), Some(0));
        let lines = jobs.lines(&["log", &ids[0]]);
        let times: Vec<u64> = lines.iter().map(|line| line["at_ms"].as_u64().expect("a time")).collect();
        let texts: Vec<(&str, &str)> = lines
            .iter()
            .map(|line| (line["line"].as_str().expect("text"), line["encoding"].as_str().expect("a word")))
            .collect();
        assert_eq!(texts, [("one", "utf-8"), ("begun", "utf-8"), ("bGFzdP8=", "base64")]);
        assert_eq!(jobs.lines(&["log", &ids[0], "--errors", "replace"])[2]["line"], "last\u{fffd}");
        // The second line has the time of its beginning, which came long before its end.
        assert!(times[0] <= times[1] && times[1] + 120 <= times[2], "{times:?}");
        let printed = jobs.run(&["log", &ids[0], &ids[1], "--timestamps"]).stdout;
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let stamp = |at_ms: &u64| sandtimer::time::instant(*at_ms);
        let expected = format!(
            "==> job {} <==\n{} one\n{} begun\n{} last\u{fffd}\n\n==> job {} <==\n",
            ids[0],
            stamp(&times[0]),
            stamp(&times[1]),
            stamp(&times[2]),
            ids[1]
        );
        assert!(printed.starts_with(&expected) && printed.ends_with("Z other\n"), "{printed}");
    });
}

#[test]
fn live_workers_are_listed_until_they_end() {
    on_each_store(|jobs| {
        let workers = || jobs.lines(&["workers"])[0]["workers"].as_array().expect("a list").clone();
        assert!(workers().is_empty());
        assert_eq!(jobs.run(&["workers"]).stdout, b"no live workers\n");
        let id = jobs.submit(&[json!({"command": ["sleep", "600"], "queue": "b"})]).remove(0);
        let start = |arguments: &[&str]| {
            WorkerCommand(jobs.command(&[&["work"], arguments].concat()).spawn().expect("it starts"))
        };
        let mut one = start(&["--slots", "3", "--queue", "a", "--queue", "b"]);
        let two = start(&["--queue", "c"]);
        let begun = sandtimer_os::clock::monotonic_nanoseconds();
        let until = |is: &dyn Fn() -> bool| {
            while !is() {
                let waited = Duration::from_nanos(sandtimer_os::clock::monotonic_nanoseconds() - begun);
                assert!(waited < HARD_STOP, "{:?}", workers());
            }
        };
        until(&|| workers().len() == 2 && jobs.state(&id) == "leased");
        let listed = workers();
        let by_slots = |slots: u64| {
            listed.iter().find(|worker| worker["slots"] == slots).unwrap_or_else(|| panic!("{listed:?}"))
        };
        assert_eq!((&by_slots(3)["queues"], &by_slots(3)["jobs"]), (&json!(["a", "b"]), &json!([id])));
        assert_eq!((&by_slots(1)["queues"], &by_slots(1)["jobs"]), (&json!(["c"]), &json!([])));
        assert_eq!(by_slots(3)["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(by_slots(3)["name"], jobs.lines(&["show", &id])[0]["worker"]);
        let text = String::from_utf8(jobs.run(&["workers"]).stdout).expect("text");
        assert!(text.starts_with("WORKER") && text.contains("1 of 3") && text.contains("a b"), "{text}");
        // Twice: it gives its job back.
        let pid = rustix::process::Pid::from_child(&one.0);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("a pidfd");
        for _ in 0..2 {
            rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::TERM).expect("sent");
            std::thread::sleep(Duration::from_millis(300));
        }
        assert!(one.0.wait().expect("it ends").success());
        assert_eq!(workers().len(), 1, "the one that has ended is gone at once");
        drop(two);
        assert_eq!(workers().len(), 1, "one that was killed is listed until its time has passed");
    });
}

#[test]
fn schedules_are_listed_and_removed_by_owner() {
    on_each_store(|jobs| {
        let spec = json!({"name": "nightly", "cron": "@daily", "job": {"command": ["true"]}});
        let file = tempfile::Builder::new().suffix(".json").tempfile().expect("a file");
        std::fs::write(file.path(), spec.to_string()).expect("written");
        let path = file.path().to_str().expect("text");
        assert_eq!(jobs.run(&["schedule", path]).status.code(), Some(0));
        let listed = &jobs.lines(&["schedules"])[0]["schedules"];
        assert_eq!(
            (&listed[0]["owner"], &listed[0]["name"]),
            (&json!("local"), &json!("nightly")),
            "{listed}"
        );
        let refused = jobs.run(&["unschedule", "nightly", "--owner", "alice"]);
        assert_eq!(refused.status.code(), Some(125));
        assert!(stderr(&refused).contains("owner `alice` has no schedule `nightly`"), "{}", stderr(&refused));
        let paused = &jobs.lines(&["pause", "--schedule", "nightly"])[0];
        assert_eq!((&paused["next_ms"], &paused["spec"]["paused"]), (&Value::Null, &json!(true)), "{paused}");
        let again = jobs.run(&["schedule", path]);
        let remedy = "is paused; `sandtimer jobs resume --schedule nightly` resumes it";
        assert!(stdout(&again).contains(remedy), "{}", stdout(&again));
        let refused = jobs.run(&["resume", "--schedule", "weekly"]);
        assert!(stderr(&refused).contains("owner `local` has no schedule `weekly`"), "{}", stderr(&refused));
        assert!(!jobs.run(&["resume", "queue", "--schedule", "nightly"]).status.success());
        assert!(!jobs.run(&["pause"]).status.success());
        let resumed = jobs.run(&["resume", "--schedule", "nightly"]);
        assert!(stdout(&resumed).starts_with("schedule nightly is due at 2"), "{}", stdout(&resumed));
        assert_eq!(jobs.run(&["unschedule", "nightly"]).status.code(), Some(0));
        assert_eq!(jobs.lines(&["schedules"])[0]["schedules"], json!([]));
    });
}

#[test]
fn breakers_that_jobs_share_are_listed() {
    on_each_store(|jobs| {
        assert_eq!(stdout(&jobs.run(&["breakers"])), "no breakers that jobs share\n");
        let spec = json!({
            "command": ["sh", "-c", "echo no >&2; exit 3"], "key": "mail:send",
            "breaker": {"failures": 1, "open_ms": 600_000, "scope": "store"},
        });
        let file = tempfile::Builder::new().suffix(".json").tempfile().expect("a file");
        std::fs::write(file.path(), spec.to_string()).expect("written");
        jobs.run(&["run", file.path().to_str().expect("text")]);
        let listed = &jobs.lines(&["breakers"])[0]["breakers"];
        let found = (&listed[0]["owner"], &listed[0]["key"], &listed[0]["state"]);
        assert_eq!(found, (&json!("local"), &json!("mail:send"), &json!("open")), "{listed}");
        let listing = &jobs.lines(&["breakers", "--most", "1"])[0];
        let next = listing["next"].as_str().expect("a full part has a cursor");
        assert_eq!(jobs.lines(&["breakers", "--cursor", next])[0], json!({"breakers": [], "next": null}));
        let table = stdout(&jobs.run(&["breakers", "--most", "1"]));
        assert!(table.contains(&format!("more with --cursor {next}")), "{table}");
        assert!(stderr(&jobs.run(&["breakers", "--cursor", "x"])).contains("the cursor `x`"));
        let table = stdout(&jobs.run(&["breakers"]));
        assert!(table.contains("mail:send") && table.contains("open  ") && table.contains(" m "), "{table}");
    });
}
