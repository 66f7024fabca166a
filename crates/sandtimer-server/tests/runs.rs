//! Runs over HTTP: what is asked for happens, is answered, can be followed and controlled.

use crate::support;

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};
use support::{ReceivedEvent, ServerFixture};

fn outcome(answer: &Value) -> &Value {
    assert_eq!(answer["status"], "ended", "{answer}");
    &answer["outcome"]
}

#[test]
fn commands_lines_and_code_run_in_a_workspace_of_their_own() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let list = client
        .run(&json!({"command": ["sh", "-c", "pwd; echo x > f; cat f; echo $GREETING >&2; exit 3"],
        "env": {"GREETING": "hello"}, "wall_ms": 20_000, "memory_bytes": "256M", "cpu_ms": null}));
    let found = outcome(&list);
    assert_eq!((&found["stdout"], &found["stderr"]), (&json!("/workspace\nx\n"), &json!("hello\n")));
    assert_eq!(
        (&found["ending"], &found["exit_code"], &found["ok"]),
        (&json!("exited"), &json!(3), &json!(false))
    );
    assert_eq!(list["effective"]["wall_ms"], json!({"limit": 20_000, "source": "call"}));
    assert_eq!(list["effective"]["memory_bytes"], json!({"limit": 256 << 20, "source": "call"}));
    assert_eq!(list["run_id"], found["run_id"]);

    let line = client.run(&json!({"command": "ls /workspace | wc -l; cat", "stdin": "fed\u{0}"}));
    assert_eq!(outcome(&line)["stdout"], "0\nfed\u{0}");
    let code = client.run(&json!({"code": "print(6 * 7)", "language": "python"}));
    assert_eq!(outcome(&code)["stdout"], "42\n");
    let bash = client.run(&json!({"code": "a=(1 2); echo ${#a[@]}", "language": "bash"}));
    assert_eq!(outcome(&bash)["stdout"], "2\n");
}

#[test]
fn fired_limit_is_data_with_a_reason() {
    let serving = ServerFixture::start();
    let answer = serving
        .client()
        .run(&json!({"command": ["sh", "-c", "echo begun; sleep 60 & sleep 60"], "wall_ms": 200}));
    let found = outcome(&answer);
    assert_eq!((&found["ending"], &found["stdout"]), (&json!("timeout"), &json!("begun\n")));
    assert_eq!((&found["verdict"]["kind"], &found["tree"]["survivors"]), (&json!("wall"), &json!(0)));
    let (_, metrics) = serving.client().get("/metrics");
    let metrics = metrics.as_str().expect("text");
    assert!(metrics.contains("sandtimer_runs_total{ending=\"timeout\"} 1\n"), "{metrics}");
    assert!(metrics.contains("sandtimer_wall_verdict_late_seconds_count 1\n"), "{metrics}");
    assert!(metrics.contains("sandtimer_verdicts_total{kind=\"wall\",layer=\"run\"} 1\n"), "{metrics}");
    assert!(metrics.contains("sandtimer_survivors_total 0\n"), "{metrics}");
}

#[test]
fn a_run_outlives_the_wait_and_is_listed_read_and_purged() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(
        json!({"command": ["sh", "-c", "printf 'ä\\377'; read line; printf $line"], "stdin_open": true}),
    );
    let (_, running) = client.get("/v1/runs?status=running");
    assert_eq!((&running["total"], &running["runs"][0]["run_id"]), (&json!(1), &json!(id)));
    assert_eq!(client.delete(&format!("/v1/runs/{id}")).1["code"], "run_running");

    let (status, written) =
        client.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": "tail\n", "eof": true}));
    assert_eq!((status, &written["written"], &written["closed"]), (200, &json!(5), &json!(true)));
    let found = client.ended(&id);
    assert_eq!(
        (&found["outcome"]["encoding"], &found["outcome"]["stdout"]),
        (&json!("base64"), &json!("w6T/dGFpbA=="))
    );
    assert_eq!(client.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": "x"})).1["code"], "run_ended");

    let (_, piece) = client.get(&format!("/v1/runs/{id}/output?cursor=3"));
    let expected = json!({"run_id": id, "status": "ended", "stream": "stdout", "cursor": 3, "next_cursor": 7, "data": "tail",
        "encoding": "utf-8", "dropped_before": 0, "ended": true});
    assert_eq!(piece, expected);
    let (_, none) = client.get(&format!("/v1/runs/{id}/output?stream=stderr&cursor=99"));
    assert_eq!((&none["data"], &none["next_cursor"], &none["ended"]), (&json!(""), &json!(0), &json!(true)));
    let (_, ended) = client.get("/v1/runs?status=ended&limit=5");
    assert_eq!(
        (&ended["runs"][0]["ending"], &ended["runs"][0]["exit_code"]),
        (&json!("exited"), &json!(0)),
        "{ended}"
    );
    assert_eq!(client.delete(&format!("/v1/runs/{id}")).0, 204);
    assert_eq!(client.get(&format!("/v1/runs/{id}")).1["code"], "run_not_found");
}

#[test]
fn runs_are_paused_extended_signalled_and_killed() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let script = "trap 'echo heard' USR1; echo up; while :; do sleep 0.02; done";
    let id = client.start(json!({"command": ["bash", "-c", script], "wall_ms": 25_000}));
    let mut events = client.events(&id, None);
    let has_output = |events: &mut support::Events, expected: &str| {
        events.any(|event| {
            event.name == "stdout" && event.data["data"].as_str().is_some_and(|data| data.contains(expected))
        })
    };
    assert!(has_output(&mut events, "up"));
    let post = |what: &str, body: Value| client.post(&format!("/v1/runs/{id}/{what}"), &body);
    assert_eq!(post("signal", json!({"signal": "SIGUSR1"})).0, 200);
    assert!(has_output(&mut events, "heard"));
    assert_eq!(post("resume", json!({})).1["code"], "wrong_state");
    assert_eq!(post("pause", json!({})), (200, json!({"run_id": id, "paused": true})));
    assert_eq!(post("pause", json!({})).0, 409);
    assert_eq!(post("resume", json!({})).0, 200);
    let (status, extended) = post("extend", json!({"by_ms": 60_000}));
    assert_eq!(status, 200, "{extended}");
    assert!(extended["wall_left_ms"].as_u64().is_some_and(|left| left > 55_000), "{extended}");
    let (status, killed) = post("kill", json!({"reason": "enough"}));
    assert_eq!((status, &killed["outcome"]["ending"]), (200, &json!("cancelled")), "{killed}");
    assert!(
        killed["outcome"]["verdict"]["sentence"].as_str().is_some_and(|text| text.contains("enough")),
        "{killed}"
    );
    assert_eq!(post("kill", json!({})).0, 200);
    for (what, body) in
        [("pause", json!({})), ("extend", json!({"by_ms": 1})), ("signal", json!({"signal": 10}))]
    {
        assert_eq!(post(what, body).1["code"], "run_ended", "{what}");
    }
}

#[test]
fn verdict_has_the_limit_at_the_time_it_fired() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(json!({"command": ["sleep", "60"], "wall_ms": 1_000}));
    for by in [200, 300] {
        assert_eq!(client.post(&format!("/v1/runs/{id}/extend"), &json!({"by_ms": by})).0, 200);
    }
    let outcome = client.ended(&id)["outcome"].clone();
    let verdict = &outcome["verdict"];
    assert_eq!((&verdict["limit_ms"], &verdict["extended_ms"]), (&json!(1_500), &json!(500)), "{verdict}");
    let sentence = verdict["sentence"].as_str().expect("a sentence");
    let begins = "Stopped by the run's wall limit of 1.50 s (set by the call, extended by 500 ms).";
    assert!(sentence.starts_with(begins), "{sentence}");
    assert!(verdict["elapsed_ms"].as_u64().is_some_and(|elapsed| elapsed >= 1_500), "{verdict}");
}

#[test]
fn unread_stdin_is_accepted_in_part_with_its_count() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(json!({"command": ["sleep", "20"], "stdin_open": true, "stdin": "first"}));
    let (status, written) = client.post(
        &format!("/v1/runs/{id}/stdin"),
        &json!({"data": "x".repeat(1 << 20), "eof": true, "wait_ms": 100}),
    );
    assert_eq!((status, &written["closed"]), (200, &json!(false)));
    assert!(written["written"].as_u64().is_some_and(|count| count < 1 << 20), "{written}");
    let closed = client.start(json!({"command": ["sleep", "20"]}));
    assert_eq!(
        client.post(&format!("/v1/runs/{closed}/stdin"), &json!({"data": "x"})).1["code"],
        "stdin_closed"
    );
}

fn text(events: &[ReceivedEvent], name: &str) -> String {
    let data = events
        .iter()
        .filter(|event| event.name == name)
        .map(|event| event.data["data"].as_str().expect("text"));
    data.collect()
}

#[test]
fn reconnected_reader_gets_each_event_once() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let script = "for i in 1 2 3 4 5 6; do echo out$i; echo err$i >&2; read go; done";
    let id = client.start(json!({"command": ["bash", "-c", script], "stdin_open": true}));
    let mut whole = Vec::new();
    for event in client.events(&id, None) {
        if event.name == "stdout" {
            client.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": "go\n"}));
        }
        whole.push(event);
    }
    assert_eq!(text(&whole, "stdout"), "out1\nout2\nout3\nout4\nout5\nout6\n");
    assert_eq!(text(&whole, "stderr"), "err1\nerr2\nerr3\nerr4\nerr5\nerr6\n");
    assert_eq!((whole[0].name.as_str(), whole.last().expect("some").name.as_str()), ("started", "ended"));
    for at in 0..whole.len() - 1 {
        let rest: Vec<ReceivedEvent> = client.events(&id, Some(&whole[at].id)).collect();
        let joined = [&whole[..=at], &rest].concat();
        for stream in ["stdout", "stderr"] {
            assert_eq!(text(&joined, stream), text(&whole, stream), "from {}", whole[at].id);
        }
        assert_eq!(rest.iter().filter(|event| event.name == "ended").count(), 1);
        assert!(rest.iter().all(|event| event.name != "started"));
    }
    let last = whole.last().expect("some").id.clone();
    let (status, _) = client.get_with(&format!("/v1/runs/{id}/events"), &[("Last-Event-ID", &last)]);
    assert_eq!(status, 204);
    let (status, refused) = client.get_with(&format!("/v1/runs/{id}/events"), &[("Last-Event-ID", "7-x")]);
    assert_eq!((status, &refused["code"]), (400, &json!("bad_field")));
}

#[test]
fn slow_reader_gets_a_lag_notice_and_all_later_events() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let script = "head -c 3000000 /dev/zero | tr '\\0' a; echo; echo end";
    let id = client.start(json!({"command": ["sh", "-c", script], "output_bytes": 100_000}));
    client.ended(&id);
    let events: Vec<ReceivedEvent> = client.events(&id, None).collect();
    let lagged: Vec<_> = events.iter().filter(|event| event.name == "lagged").collect();
    assert_eq!(lagged.len(), 1);
    assert_eq!(lagged[0].data, json!({"stream": "stdout", "dropped": 2_900_005, "next_cursor": 2_950_005}));
    let kept = text(&events, "stdout");
    assert!(kept.len() == 100_000 && kept.ends_with("a\nend\n"), "{}", kept.len());
    // A stream resumed after the gap does not report the gap again.
    let rest: Vec<ReceivedEvent> = client.events(&id, Some(&lagged[0].id)).collect();
    assert!(rest.iter().all(|event| event.name != "lagged"));
    assert_eq!(text(&rest, "stdout").len(), 50_000);
}

#[test]
fn a_warning_comes_before_the_wall() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(json!({"command": ["sleep", "20"], "wall_ms": 600, "warn_ms": 400}));
    let events: Vec<ReceivedEvent> = client.events(&id, None).collect();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["started", "warning", "ended"]);
    assert_eq!(events[1].data["kind"], "wall");
    assert_eq!(events[2].data["outcome"]["ending"], "timeout");
}

#[test]
fn warning_signal_arrives_before_the_wall_limit() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let script = "trap 'echo told' USR1; while :; do sleep 0.05; done";
    let asked = |signal: serde_json::Value| json!({"command": script, "wall_ms": 1500, "warn_ms": 700, "warn_signal": signal});
    for signal in [json!("SIGUSR1"), json!("USR1"), json!(10)] {
        let run = client.run(&asked(signal));
        assert_eq!(
            (&run["outcome"]["stdout"], &run["outcome"]["ending"]),
            (&json!("told\n"), &json!("timeout")),
            "{run}"
        );
        let notice = &run["outcome"]["notices"][0];
        assert_eq!(
            (&notice["kind"], &notice["signal"], &notice["processes"]),
            (&json!("wall"), &json!("SIGUSR1"), &json!(1))
        );
    }
    for (wrong, expected) in [
        (asked(json!("SIGKILL")), "no process can handle it"),
        (asked(json!("LOUD")), "warn_signal"),
        (json!({"command": script, "warn_signal": "USR1"}), "a time before"),
    ] {
        let (status, answer) = client.post("/v1/runs", &wrong);
        assert_eq!((status, &answer["code"]), (400, &json!("bad_field")), "{answer}");
        assert!(answer["message"].as_str().is_some_and(|message| message.contains(expected)), "{answer}");
    }
}

#[test]
fn a_silent_stream_shows_that_it_lives() {
    let serving = ServerFixture::with(|settings| settings.heartbeat = std::time::Duration::from_millis(50));
    let client = serving.client();
    let id = client.start(json!({"command": ["sleep", "20"], "wall_ms": 15_000}));
    let request = format!("GET /v1/runs/{id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut lines =
        BufReader::new(support::raw(serving.address, request.as_bytes())).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "event: started"));
    assert_eq!(lines.by_ref().filter(|line| line == ": heartbeat").take(3).count(), 3);
    client.post(&format!("/v1/runs/{id}/kill"), &json!({}));
    assert!(lines.any(|line| line == "event: ended"));
}

#[test]
fn progress_in_output_is_parsed_and_reported() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let script = "for epoch in 1 2 3; do echo \"Epoch $epoch/15: loss=1\"; sleep 0.1; done; sleep 60";
    let id = client.start(json!({"command": script, "wall_ms": 20_000}));
    let snapshots = (0..20_000).map(|_| client.get(&format!("/v1/runs/{id}")).1);
    let mut known = snapshots.filter(|run| run["progress"]["done"] == json!(3.0) || run["status"] == "ended");
    let progress_view = known.next().expect("it ends");
    assert_eq!(progress_view["progress"]["total"], json!(15.0), "{progress_view}");
    assert!(progress_view["progress"]["eta_ms"].as_u64().is_some(), "{progress_view}");
    let chance = progress_view["progress"]["p_finish_before_deadline"].as_f64();
    assert!(chance.is_some_and(|chance| (0.0..=1.0).contains(&chance)), "{progress_view}");
    let snapshot = client.get(&format!("/v1/runs/{id}/processes")).1;
    assert_eq!(snapshot["progress"]["done"], json!(3.0), "{snapshot}");
    assert!(
        snapshot["sentence"]
            .as_str()
            .is_some_and(|has_output| has_output.contains("It is at 3 of 15, done in")),
        "{snapshot}"
    );
    let listed = client.get("/v1/runs?status=running").1;
    assert_eq!(listed["runs"][0]["progress"]["done"], json!(3.0), "{listed}");
    let killed = client.post(&format!("/v1/runs/{id}/kill"), &json!({})).1;
    let progress = &killed["outcome"]["verdict"]["progress"];
    assert_eq!(progress["done"], json!(3.0), "{killed}");
    assert_eq!(progress.get("p_finish_before_deadline"), None, "of what is over there is no chance");
    let endless = client.start(json!({"command": script, "wall_ms": null}));
    let mut snapshot = (0..20_000).map(|_| client.get(&format!("/v1/runs/{endless}")).1);
    let progress_view = snapshot.find(|run| run["progress"]["done"] == json!(3.0)).expect("it gets there");
    assert_eq!(
        progress_view["progress"].get("p_finish_before_deadline"),
        None,
        "it has no limit: {progress_view}"
    );
    client.post(&format!("/v1/runs/{endless}/kill"), &json!({}));
}

#[test]
fn only_progress_resets_a_stall_limit_that_is_by_progress() {
    let serving = ServerFixture::start();
    let client = serving.client();
    // A spinner: output, and no progress.
    let spinner = "echo '[1/9] a'; echo '[2/9] b'; while :; do echo working; sleep 0.1; done";
    let asked =
        |by: &str, wall| json!({"command": spinner, "stall_ms": 1500, "stall_by": by, "wall_ms": wall});
    let stalled = client.run(&asked("progress", 60_000));
    let verdict = &outcome(&stalled)["verdict"];
    assert_eq!(
        (&stalled["outcome"]["ending"], &verdict["kind"]),
        (&json!("stalled"), &json!("stall")),
        "{stalled}"
    );
    assert!(verdict["sentence"].as_str().is_some_and(|text| text.contains("it was at 2 of 9")), "{stalled}");
    let unstalled = client.run(&asked("output", 4000));
    assert_eq!(outcome(&unstalled)["verdict"]["kind"], "wall", "{unstalled}");
}

fn wait(client: &support::TestClient, id: &str, body: Value) -> Value {
    let (status, answer) = client.post(&format!("/v1/runs/{id}/wait"), &body);
    assert_eq!(status, 200, "{answer}");
    answer
}

#[test]
fn non_utf8_bytes_are_read_from_stdin() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let counted = json!({"command": "od -An -tx1", "stdin": "AP8K", "stdin_encoding": "base64"});
    assert_eq!(client.run(&counted)["outcome"]["stdout"], " 00 ff 0a\n");
    let id = client.start(
        json!({"command": "od -An -tx1", "stdin": "/w==", "stdin_encoding": "base64", "stdin_open": true}),
    );
    let more = json!({"data": "AA==", "encoding": "base64", "eof": true});
    assert_eq!(client.post(&format!("/v1/runs/{id}/stdin"), &more).1["written"], 1);
    assert_eq!(client.ended(&id)["outcome"]["stdout"], " ff 00\n");
    let (_, context) = client.post("/v1/contexts", &json!({}));
    let path = format!("/v1/contexts/{}/execute", context["context_id"].as_str().expect("an id"));
    let cell = json!({"code": "import sys; sys.stdin.buffer.read()[0]", "stdin": "/w==", "stdin_encoding": "base64"});
    assert_eq!(client.post(&path, &cell).1["outcome"]["value"], 255);
    for (key, wrong) in [("stdin", "AP8"), ("stdin", "no base64"), ("stdin_encoding", "hex")] {
        let mut body = counted.clone();
        body[key] = wrong.into();
        let (status, refused) = client.post("/v1/runs", &body);
        assert_eq!((status, &refused["details"]["key"]), (400, &json!(key)), "{refused}");
    }
}

#[test]
fn wait_finds_a_line_in_any_chunk_and_position() {
    let serving = ServerFixture::start();
    let client = serving.client();
    // One byte at a time; on stderr too, which is another stream.
    let drops = "import sys\nsys.stdin.readline()\nfor byte in 'starting\\nready on 8080\\nmore\\n':\n  sys.stdout.write(byte); sys.stdout.flush()\n\
                 sys.stderr.write('ready on 1\\n'); sys.stderr.flush(); sys.stdin.readline()";
    let id =
        client.start(json!({"code": drops, "language": "python", "stdin_open": true, "wall_ms": 25_000}));
    let waiting = std::thread::spawn({
        let (client, id) = (serving.client(), id.clone());
        move || wait(&client, &id, json!({"pattern": r"^ready on \d{4}$"}))
    });
    client.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": "\n"}));
    let found = waiting.join().expect("an answer");
    assert_eq!(
        found,
        json!({"run_id": id, "status": "running", "ending": null, "exit_code": null, "sentence": null,
            "pattern": r"^ready on \d{4}$", "stream": "stdout", "matched": true, "line": "ready on 8080",
            "cursor": 9, "next_cursor": 23, "dropped_before": 0})
    );
    let following =
        wait(&client, &id, json!({"pattern": "r", "cursor": found["next_cursor"], "wait_ms": 20_000}));
    assert_eq!((&following["line"], &following["next_cursor"]), (&json!("more"), &json!(28)));
    let other = wait(&client, &id, json!({"pattern": "ready", "stream": "stderr", "wait_ms": 20_000}));
    assert_eq!((&other["line"], &other["stream"]), (&json!("ready on 1"), &json!("stderr")));
    client.post(&format!("/v1/runs/{id}/kill"), &json!({}));

    // Across the end of what is read at a time, of a run that has ended; without an end of its own;
    // as the last one.
    let straddling =
        json!({"command": "head -c 262140 /dev/zero | tr '\\0' '\\n'; printf 'needle 42\\nlast'"});
    let id = client.run(&straddling)["run_id"].as_str().expect("an id").to_owned();
    let found = wait(&client, &id, json!({"pattern": r"needle \d+"}));
    assert_eq!((&found["line"], &found["cursor"]), (&json!("needle 42"), &json!(262_140)));
    assert_eq!(wait(&client, &id, json!({"pattern": "^last$"}))["next_cursor"], 262_154);
}

#[test]
fn a_prompt_counts_as_it_is_and_a_line_that_grows_as_a_whole() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let asks = "printf 'name: '; read name; printf 'hello '; printf \"$name\\n\"; read more";
    let id = client.start(json!({"command": ["bash", "-c", asks], "stdin_open": true, "wall_ms": 25_000}));
    let prompt = wait(&client, &id, json!({"pattern": "name: $", "wait_ms": 20_000}));
    assert_eq!((&prompt["line"], &prompt["next_cursor"]), (&json!("name: "), &json!(6)));
    client.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": "you\n"}));
    let hello =
        wait(&client, &id, json!({"pattern": "hello .", "cursor": prompt["next_cursor"], "wait_ms": 20_000}));
    assert_eq!(hello["line"], "hello you");
}

#[test]
fn line_wait_ends_at_timeout_or_run_end_and_reports_it() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id =
        client.start(json!({"command": "echo one; echo two; read _", "stdin_open": true, "wall_ms": 25_000}));
    wait(&client, &id, json!({"pattern": "two", "wait_ms": 20_000}));
    let late = wait(&client, &id, json!({"pattern": "three", "wait_ms": 150}));
    assert_eq!(
        (&late["matched"], &late["line"], &late["status"]),
        (&json!(false), &Value::Null, &json!("running"))
    );
    // The cursor is after the searched output.
    assert_eq!(
        (&late["cursor"], &late["next_cursor"], &late["ending"]),
        (&json!(8), &json!(8), &Value::Null)
    );
    let there = wait(&client, &id, json!({"pattern": "one", "wait_ms": 0}));
    assert_eq!((&there["matched"], &there["next_cursor"]), (&json!(true), &json!(4)));
    let waiting = std::thread::spawn({
        let (client, id) = (serving.client(), id.clone());
        move || wait(&client, &id, json!({"pattern": "three"}))
    });
    client.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": "\n"}));
    let over = waiting.join().expect("an answer");
    assert_eq!((&over["matched"], &over["status"]), (&json!(false), &json!("ended")));
    assert_eq!(
        (&over["ending"], &over["exit_code"], &over["sentence"]),
        (&json!("exited"), &json!(0), &Value::Null)
    );

    let stopped = client.start(json!({"command": "sleep 20", "wall_ms": 200}));
    let over = wait(&client, &stopped, json!({"pattern": "."}));
    assert_eq!((&over["matched"], &over["ending"]), (&json!(false), &json!("timeout")));
    let sentence = over["sentence"].as_str().expect("of its verdict");
    assert!(sentence.starts_with("Stopped by the run's wall limit"), "{sentence}");

    // A line that was past the output limit cannot be found, and the answer notes that.
    let flood = json!({"command": "seq 100000; echo needle; seq 100000", "output_bytes": 10_000});
    let id = client.run(&flood)["run_id"].as_str().expect("an id").to_owned();
    let lost = wait(&client, &id, json!({"pattern": "needle"}));
    assert_eq!(lost["matched"], false);
    assert!(lost["dropped_before"].as_u64() > Some(1_000_000), "{lost}");
}

#[test]
fn line_wait_uses_bounded_memory() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let long = "head -c 150000000 /dev/zero | tr '\\0' x; echo; echo needle";
    let id = client.run(&json!({"command": long, "output_bytes": 0, "wait_ms": 0}))["run_id"].clone();
    let id = id.as_str().expect("an id");
    client.ended(id);
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").expect("of this process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    let before = peak();
    let found = wait(&client, id, json!({"pattern": "^needle$"}));
    assert_eq!((&found["line"], &found["cursor"]), (&json!("needle"), &json!(150_000_001)));
    assert!(peak() - before < 16 << 10, "{} KiB more", peak() - before);
}

#[test]
fn what_cannot_be_waited_for_is_refused_by_name() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.start(json!({"command": "sleep 20", "wall_ms": 15_000}));
    for (wrong, code, named) in [
        (json!({"pattern": "("}), "bad_field", "pattern"),
        (json!({"pattern": "(\\w{1000}){1000}"}), "bad_field", "pattern"),
        (json!({"pattern": "(?=x)"}), "bad_field", "pattern"),
        (json!({"pattern": 1}), "bad_field", "pattern"),
        (json!({"pattern": "x", "port": 80}), "bad_field", "pattern"),
        (json!({"pattern": "x", "stream": "both"}), "bad_field", "stream"),
        (json!({"pattern": "x", "cursor": -1}), "bad_field", "cursor"),
        (json!({"pattern": "x", "wait_ms": "long"}), "bad_field", "wait_ms"),
        (json!({"port": 80, "stream": "stdout"}), "unknown_field", "stream"),
    ] {
        let (status, answer) = client.post(&format!("/v1/runs/{id}/wait"), &wrong);
        assert_eq!((status, &answer["code"]), (400, &json!(code)), "{wrong}: {answer}");
        assert_eq!(answer["details"]["key"], named, "{wrong}: {answer}");
    }
}

#[test]
fn listing_continues_after_its_cursor() {
    let serving = ServerFixture::start();
    let client = serving.client();
    // Each begins and ends some milliseconds after the one before.
    let run = || client.post("/v1/runs", &json!({"command": ["sleep", "0.005"]})).1["run_id"].clone();
    let mut ids: Vec<Value> = (0..7).map(|_| run()).collect();
    ids.reverse();
    for status in ["", "status=ended&"] {
        let (mut listed, mut cursor) = (Vec::new(), String::new());
        loop {
            let part = client.get(&format!("/v1/runs?{status}limit=3{cursor}")).1;
            assert_eq!(part["total"], 7, "{part}");
            listed.extend(part["runs"].as_array().expect("a list").iter().map(|run| run["run_id"].clone()));
            let Some(next) = part["next"].as_str() else { break };
            // What begins or ends later is not in the next part.
            cursor = format!("&cursor={next}");
        }
        assert_eq!(listed, ids, "each once, the newest first");
    }
    let summary = client.get("/v1/runs?status=ended&limit=1").1["runs"][0].clone();
    assert!(summary["queued_ms"].is_u64() && summary["spawn_ms"].is_u64(), "{summary}");
    assert_eq!(summary["context_id"], Value::Null);
    for cursor in ["x", "1-", "-a", "a-b"] {
        let (status, refused) = client.get(&format!("/v1/runs?cursor={cursor}"));
        assert_eq!((status, &refused["details"]["key"]), (400, &json!("cursor")), "{refused}");
    }
}
