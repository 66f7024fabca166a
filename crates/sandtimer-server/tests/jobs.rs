//! `/v1/jobs`: from a submission to a result, for one owner and for several, and across the end of
//! a server.

use crate::support;

use std::time::Duration;

use sandtimer_jobs::SqliteJobs;
use sandtimer_jobs::job::{Finish, JobResult, JobStatus, JobStore, LeaseRequest};
use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens, wait_until};

fn submit(client: &TestClient, spec: &Value) -> String {
    let (status, answer) = client.post("/v1/jobs", spec);
    assert_eq!(status, 201, "{answer}");
    answer["jobs"][0]["job_id"].as_str().expect("an id").to_owned()
}

fn show(client: &TestClient, id: &str) -> Value {
    let (status, job) = client.get(&format!("/v1/jobs/{id}"));
    assert_eq!(status, 200, "{job}");
    job
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

/// The job once it has ended.
fn over(client: &TestClient, id: &str) -> Value {
    let (status, job) = client.get(&format!("/v1/jobs/{id}?wait_ms=25000"));
    assert!(status == 200 && !job["ended_ms"].is_null(), "{job}");
    job
}

fn until_it_is(client: &TestClient, id: &str, state: &str) {
    wait_until(state, || show(client, id)["state"] == state);
}

fn post(client: &TestClient, path: &str, body: &Value) -> Value {
    let (status, answer) = client.post(path, body);
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

#[test]
fn executed_job_has_result_and_log_by_cursor() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let spec =
        json!({"name": "said", "command": ["sh", "-c", "echo one; echo two >&2; echo ünd"], "queue": "q"});
    let id = submit(&client, &spec);
    let job = over(&client, &id);
    assert_eq!(
        (&job["state"], &job["ok"], &job["name"], &job["queue"], &job["spec"]),
        (&json!("ended"), &json!(true), &json!("said"), &json!("q"), &spec)
    );
    assert_eq!((&job["result"]["status"], &job["result"]["outcome"]["exit_code"]), (&json!("ok"), &json!(0)));
    let log = client.get(&format!("/v1/jobs/{id}/log")).1;
    let text = log["data"].as_str().expect("text").to_owned();
    for line in ["one\n", "two\n", "ünd\n"] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!((&log["ended"], &log["next_cursor"]), (&json!(true), &json!(text.len())));
    let (mut read, mut cursor, mut pieces) = (String::new(), 0, 0);
    while cursor < text.len() as u64 {
        let piece = client.get(&format!("/v1/jobs/{id}/log?cursor={cursor}&max_bytes=1")).1;
        read.push_str(piece["data"].as_str().expect("text"));
        assert!(piece["next_cursor"].as_u64() > Some(cursor), "{piece}");
        (cursor, pieces) = (piece["next_cursor"].as_u64().expect("a place"), pieces + 1);
    }
    assert_eq!((read, pieces), (text.clone(), text.len().div_ceil(16)));
    let failed = over(
        &client,
        &submit(&client, &json!({"command": ["sh", "-c", "exit 3"], "attempts": 2, "backoff_ms": [1]})),
    );
    assert_eq!((&failed["ok"], &failed["result"]["spent"]["attempts"]), (&json!(false), &json!(2)));
}

#[test]
fn non_utf8_output_is_replaced_on_request() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let command = ["sh", "-c", "printf 'a\\377b\\n'; printf 'c\\377\\n' >&2"];
    let id = submit(&client, &json!({"command": command}));
    let job = over(&client, &id);
    let outcome = &job["result"]["outcome"];
    assert_eq!((&outcome["stdout"], &outcome["stdout_encoding"]), (&json!("Yf9iCg=="), &json!("base64")));
    let get = |what: &str| client.get(&format!("/v1/jobs/{id}{what}"));
    let (_, job) = get("?errors=replace");
    let outcome = &job["result"]["outcome"];
    assert_eq!((&outcome["stdout"], &outcome["stdout_encoding"]), (&json!("a\u{fffd}b\n"), &json!("utf-8")));
    assert_eq!((&outcome["stderr"], &outcome["encoding"]), (&json!("c\u{fffd}\n"), &json!("utf-8")));
    let (_, log) = get("/log?errors=replace");
    assert_eq!(log["encoding"], "utf-8");
    let text = log["data"].as_str().expect("text");
    assert!(text.contains("a\u{fffd}b\n") && text.contains("c\u{fffd}\n"), "{log}");
    assert_eq!(get("/log").1["encoding"], "base64");
    // Positions are of bytes, whatever they are shown as.
    assert_eq!((&log["cursor"], &log["next_cursor"]), (&json!(0), &json!(7)));
    let logs = |query: &str| {
        let events = client.events_at(&format!("/v1/jobs/{id}/events{query}"), &[]);
        events
            .filter(|event| event.name == "log")
            .map(|event| event.data["encoding"].clone())
            .collect::<Vec<_>>()
    };
    assert!(logs("?errors=replace").iter().all(|encoding| encoding == "utf-8"));
    assert!(logs("").iter().any(|encoding| encoding == "base64"));
    for what in ["?errors=ignore", "/log?errors=ignore", "/events?errors=ignore"] {
        let (status, refused) = get(what);
        assert_eq!((status, &refused["code"]), (400, &json!("bad_field")), "{what}: {refused}");
    }
}

#[test]
fn batch_is_atomic_and_rejections_name_the_field() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (spec, path, expected) in [
        (json!({"command": ["true"], "priorty": 1}), "priorty", "the nearest known one is `priority`"),
        (json!({"command": ["true"], "priority": 101}), "priority", "100"),
        (json!({"steps": [{"name": "a", "command": ["true"], "attempts": 0}]}), "steps[0].attempts", "0"),
        (json!({"steps": [{"name": "a", "needs": ["a"], "command": ["true"]}]}), "steps", "a → a"),
        (json!({"command": ["true"], "deadline_ms": 1}), "deadline_ms", "in the past"),
        (json!({"command": ["true"], "cwd": "/tmp"}), "cwd", "/workspace"),
        (json!({"command": ["true"], "workspaces": ["/tmp"]}), "workspaces", "/workspace"),
        (json!({}), "command", "one of `command`, `code` with `language`, `handler`, `steps`, `loop`"),
        (json!("true"), "", "a table"),
    ] {
        let (status, answer) = client.post("/v1/jobs", &spec);
        assert_eq!((status, &answer["code"]), (400, &json!("bad_spec")), "{spec}: {answer}");
        assert_eq!(answer["details"]["path"], path, "{answer}");
        assert!(answer["message"].as_str().is_some_and(|message| message.contains(expected)), "{answer}");
        let (status, answer) = client.post("/v1/jobs", &json!([{"command": ["true"]}, spec]));
        assert_eq!(
            (status, &answer["details"]["index"], &answer["details"]["path"]),
            (400, &json!(1), &json!(path))
        );
        assert!(
            answer["message"].as_str().is_some_and(|message| message.starts_with("jobs[1]: ")),
            "{answer}"
        );
    }
    for body in ["", "[]", "{", "{\"command\": [\"true\"]}\n{"] {
        assert_eq!(client.post_bytes("/v1/jobs", body.as_bytes()).0, 400, "{body}");
    }
    assert_eq!(client.get("/v1/jobs").1, json!({"jobs": [], "next": null, "total": null}));
    let lines = "{\"command\": [\"true\"], \"queue\": \"ci\"}\n".repeat(3);
    assert_eq!(client.post_bytes("/v1/jobs", lines.as_bytes()).1["jobs"].as_array().map(Vec::len), Some(3));
    let two = json!([{"command": ["true"]}, {"command": ["true"], "not_before_ms": 9_000_000_000_000_u64}]);
    let submitted = client.post("/v1/jobs", &two).1;
    assert_eq!(submitted["jobs"][1]["state"], "scheduled");
    let list = |query: &str| client.get(&format!("/v1/jobs{query}")).1;
    assert_eq!(list("?queue=ci")["jobs"].as_array().map(Vec::len), Some(3));
    assert_eq!(list("?state=scheduled")["jobs"][0]["job_id"], submitted["jobs"][1]["job_id"]);
    let (mut found, mut next) = (Vec::new(), Value::Null);
    loop {
        let page =
            list(&next.as_str().map_or("?limit=2".to_owned(), |next| format!("?limit=2&cursor={next}")));
        found.extend(page["jobs"].as_array().expect("a list").iter().map(|job| job["job_id"].clone()));
        next = page["next"].clone();
        if next.is_null() {
            break;
        }
    }
    assert_eq!((found.len(), &found[0]), (5, &submitted["jobs"][1]["job_id"]));
    assert_eq!(client.get("/v1/jobs?state=gone").0, 400);
    assert_eq!(client.get("/v1/jobs?cursor=x").1["details"]["key"], "cursor");
    let all = client.get("/v1/jobs?limit=1000&total=true").1;
    let count = all["jobs"].as_array().expect("a list").len();
    assert_eq!(all["total"], count, "{all}");
    let part = client.get("/v1/jobs?limit=1&total=true").1;
    assert_eq!((&part["total"], part["jobs"].as_array().map(Vec::len)), (&json!(count), Some(1)));
    assert_eq!(client.get("/v1/jobs?limit=1").1["total"], Value::Null);
    assert_eq!(client.get("/v1/jobs?state=dead&total=true").1["total"], 0);
}

#[test]
fn a_key_with_another_spec_is_a_conflict_that_names_the_job() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let spec = json!({"command": ["true"], "idempotency_key": "k"});
    let id = submit(&client, &spec);
    let again = post(&client, "/v1/jobs", &spec);
    assert_eq!((&again["jobs"][0]["job_id"], &again["jobs"][0]["existed"]), (&json!(id), &json!(true)));
    let (status, refused) = client.post("/v1/jobs", &json!({"command": ["false"], "idempotency_key": "k"}));
    assert_eq!((status, &refused["code"]), (409, &json!("job_conflict")), "{refused}");
    assert_eq!(refused["details"], json!({"key": "k", "job_id": id}));
}

#[test]
fn a_deadline_that_ends_a_job_is_named_with_its_layer() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let step =
        json!({"name": "spin", "command": ["sh", "-c", "sleep 50 & while :; do :; done"], "attempts": 3});
    let job = over(&client, &submit(&client, &json!({"steps": [step], "wall_ms": 700})));
    let result = &job["result"];
    let verdict = &result["verdict"];
    assert_eq!((&job["state"], &result["status"]), (&json!("ended"), &json!("timeout")), "{job}");
    assert_eq!(
        (&verdict["kind"], &verdict["layer"], &verdict["phase"], &verdict["limit_ms"]),
        (&json!("wall"), &json!("job"), &json!("running"), &json!(700))
    );
    assert_eq!(verdict["scope"], json!(format!("job/{}", job["job_id"].as_str().expect("an id"))));
    let sentence = verdict["sentence"].as_str().expect("a sentence");
    assert!(
        sentence.starts_with("Stopped by the job's wall limit of 700 ms (set by the job's spec)"),
        "{sentence}"
    );
    assert_eq!(result["outcome"]["tree"]["survivors"], 0, "{result}");
    // In a queue that is paused it ends there, as such.
    post(&client, "/v1/jobs/pause", &json!({"queue": "still"}));
    let job =
        over(&client, &submit(&client, &json!({"command": ["true"], "queue": "still", "wall_ms": 200})));
    let verdict = &job["result"]["verdict"];
    assert_eq!((&verdict["layer"], &verdict["phase"]), (&json!("job"), &json!("queued")));
}

#[test]
fn running_job_is_cancelled_then_retried_and_purged() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = submit(&client, &json!({"command": ["sleep", "600"]}));
    until_it_is(&client, &id, "leased");
    let answer = post(&client, &format!("/v1/jobs/{id}/cancel"), &json!({"reason": "enough"}));
    assert_eq!(answer, json!({"job_id": id, "cancelled": "asked", "state": "cancelled"}));
    let job = show(&client, &id);
    assert_eq!(job["result"]["error"], "Cancelled: enough.");
    assert_eq!(job["result"]["outcome"]["tree"]["survivors"], 0);
    assert_eq!(post(&client, &format!("/v1/jobs/{id}/cancel"), &json!({}))["cancelled"], "too_late");

    let succeeded = submit(&client, &json!({"command": ["true"]}));
    over(&client, &succeeded);
    let (status, refused) = client.post(&format!("/v1/jobs/{succeeded}/retry"), &json!({}));
    assert_eq!(
        (status, &refused["code"], &refused["details"]["state"]),
        (409, &json!("job_state"), &json!("ended"))
    );
    assert_eq!(post(&client, &format!("/v1/jobs/{id}/retry"), &json!({}))["state"], "queued");
    until_it_is(&client, &id, "leased");
    assert_eq!(post(&client, "/v1/jobs/purge", &json!({"state": "ended"}))["purged"], 1);
    let (status, gone) = client.get(&format!("/v1/jobs/{succeeded}"));
    assert_eq!((status, &gone["code"]), (404, &json!("job_not_found")));
    post(&client, &format!("/v1/jobs/{id}/cancel"), &json!({}));

    post(&client, "/v1/jobs/pause", &json!({"queue": "still"}));
    let waits = submit(&client, &json!({"command": ["true"], "queue": "still"}));
    let queues = client.get("/v1/jobs/queues").1;
    assert_eq!((&queues["queues"][0]["queue"], &queues["queues"][0]["queued"]), (&json!("still"), &json!(1)));
    assert_eq!(queues["queues"][0]["paused"], true);
    let (_, job) = client.get(&format!("/v1/jobs/{waits}?wait_ms=300"));
    assert_eq!(job["state"], "queued");
    post(&client, "/v1/jobs/resume", &json!({"queue": "still"}));
    assert_eq!(over(&client, &waits)["ok"], true);
}

#[test]
fn events_report_states_and_output_and_resume_by_id() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let script = "echo first; sleep 0.5; echo second; exit 4";
    let id = submit(&client, &json!({"command": ["sh", "-c", script]}));
    let at = format!("/v1/jobs/{id}/events");
    let all: Vec<support::ReceivedEvent> = client.events_at(&at, &[]).collect();
    let names: Vec<&str> = all.iter().map(|event| event.name.as_str()).collect();
    assert!(names.contains(&"state") && names.last() == Some(&"ended"), "{names:?}");
    let log_output = |events: &[support::ReceivedEvent]| -> String {
        let logs = events.iter().filter(|event| event.name == "log");
        logs.map(|event| event.data["data"].as_str().expect("text")).collect()
    };
    assert!(log_output(&all).starts_with("first\nsecond\n"), "{}", log_output(&all));
    let end = &all.last().expect("an end").data;
    assert_eq!((&end["ok"], &end["result"]["status"]), (&json!(false), &json!("failed")));
    assert_eq!(
        (&end["result"]["outcome"]["exit_code"], end["result"]["outcome"].get("stdout")),
        (&json!(4), None)
    );
    for (index, event) in all.iter().enumerate() {
        let rest: Vec<support::ReceivedEvent> = match index + 1 == all.len() {
            true => {
                assert_eq!(client.get_with(&at, &[("Last-Event-ID", &event.id)]).0, 204);
                Vec::new()
            }
            false => client.events_at(&at, &[("Last-Event-ID", &event.id)]).collect(),
        };
        let before = log_output(&all[..=index]);
        assert_eq!(before + &log_output(&rest), log_output(&all), "behind {}", event.id);
    }
    assert_eq!(client.get_with(&at, &[("Last-Event-ID", "nonsense")]).0, 400);
}

#[test]
fn other_tokens_jobs_are_hidden_and_ceilings_apply() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("alice one max_wall_ms=500ms\nbob two network\n"));
    });
    let (alice, bob) = (serving.client_with("one"), serving.client_with("two"));
    let spec =
        json!({"command": ["true"], "queue": "ci", "idempotency_key": "k", "concurrency": {"key": "c"}});
    post(&bob, "/v1/jobs/pause", &json!({"queue": "ci"}));
    let (alice_job, bob_job) = (
        submit(&alice, &spec),
        submit(&bob, &json!({"command": ["echo", "x"], "queue": "ci", "idempotency_key": "k"})),
    );
    // Bob has paused his own queue of that name, and not Alice's.
    assert_eq!(over(&alice, &alice_job)["queue"], "ci");
    assert_eq!(show(&bob, &bob_job)["state"], "queued");
    for path in ["", "/log", "/events"] {
        let (status, answer) = alice.get(&format!("/v1/jobs/{bob_job}{path}"));
        assert_eq!((status, &answer["code"]), (404, &json!("job_not_found")), "{path}: {answer}");
    }
    for path in ["cancel", "retry"] {
        let (status, answer) = alice.post(&format!("/v1/jobs/{bob_job}/{path}"), &json!({}));
        assert_eq!((status, &answer["code"]), (404, &json!("job_not_found")), "{path}: {answer}");
    }
    assert_eq!(alice.get("/v1/jobs").1["jobs"].as_array().map(Vec::len), Some(1));
    assert_eq!(alice.get("/v1/jobs?queue=ci").1["jobs"][0]["job_id"], json!(alice_job));
    assert_eq!(alice.get("/v1/jobs/queues").1, json!({"queues": []}));
    assert_eq!(post(&alice, "/v1/jobs/purge", &json!({}))["purged"], 1);
    let metrics = |client: &TestClient| client.get("/metrics").1.as_str().expect("text").to_owned();
    assert!(metrics(&bob).contains("sandtimer_queue_jobs{queue=\"ci\",state=\"queued\"} 1\n"));
    assert!(!metrics(&alice).contains("sandtimer_queue_jobs{"), "{}", metrics(&alice));
    post(&bob, "/v1/jobs/resume", &json!({"queue": "ci"}));
    assert_eq!(over(&bob, &bob_job)["ok"], true);

    let (status, refused) = alice.post("/v1/jobs", &json!({"command": ["true"], "network": true}));
    assert_eq!((status, &refused["code"]), (403, &json!("network_refused")), "{refused}");
    assert_eq!(over(&bob, &submit(&bob, &json!({"command": ["true"], "network": true})))["ok"], true);
    let bounded = over(
        &alice,
        &submit(
            &alice,
            &json!({"command": ["sleep", "20"], "limits": {"wall_ms": 0}, "wall_ms": "15s", "attempts": 2, "backoff_ms": [1]}),
        ),
    );
    let verdict = &bounded["result"]["outcome"]["verdict"];
    assert_eq!(
        (&verdict["kind"], &verdict["source"], &verdict["limit_ms"]),
        (&json!("wall"), &json!("ceiling"), &json!(500)),
        "{bounded}"
    );
}

#[test]
fn next_server_continues_jobs_without_loss() {
    let serving = ServerFixture::with(|settings| settings.jobs.slots = 3);
    let client = serving.client();
    let brief = submit(&client, &json!({"command": ["sh", "-c", "sleep 1; echo done"]}));
    let long = submit(&client, &json!({"command": ["sh", "-c", "echo begun; sleep 7"], "wall_ms": "1h"}));
    let once = submit(&client, &json!({"command": ["sleep", "600"], "deliveries": 1}));
    let waits = submit(
        &client,
        &json!({"command": ["true"], "queue": "late", "not_before_ms": 9_000_000_000_000_u64}),
    );
    for id in [&brief, &long, &once] {
        until_it_is(&client, id, "leased");
    }
    let deadline = show(&client, &long)["deadline_ms"].clone();
    let mut events = client.events_at(&format!("/v1/jobs/{long}/events"), &[]);
    assert_eq!(events.next().map(|event| event.name).as_deref(), Some("state"));
    let state = serving.stop();
    // What could end in time has; a reader of the others is let go, to come back.
    assert!(events.all(|event| event.name != "ended"));

    let serving = ServerFixture::at(state, |settings| settings.jobs.slots = 1);
    let client = serving.client();
    let done = show(&client, &brief);
    assert_eq!((&done["ok"], &done["deliveries"]), (&json!(true), &json!(1)), "{done}");
    let drained = show(&client, &once);
    assert_eq!(
        (&drained["result"], &drained["earlier"][0]["status"]),
        (&Value::Null, &json!("drained")),
        "{drained}"
    );
    assert!(
        drained["deliveries"].as_u64() <= Some(1),
        "the end of a server is no fault of the job: {drained}"
    );
    assert_eq!(show(&client, &waits)["state"], "scheduled");
    let continued = over(&client, &long);
    assert_eq!((&continued["ok"], &continued["deliveries"]), (&json!(true), &json!(1)), "{continued}");
    assert_eq!(
        (&continued["deadline_ms"], continued["earlier"].as_array().map(Vec::len)),
        (&deadline, Some(1))
    );
    assert_eq!(client.get(&format!("/v1/jobs/{long}/log")).1["data"], "begun\nbegun\n");
    until_it_is(&client, &once, "leased");
    post(&client, &format!("/v1/jobs/{once}/cancel"), &json!({}));
    let store = SqliteJobs::open(serving.state.path()).expect("opened");
    let dead = submit(&client, &json!({"handler": "absent", "deliveries": 1}));
    fail_delivery(&store, &dead);
    assert_eq!(over(&client, &dead)["state"], "dead");
    assert_eq!(post(&client, "/v1/jobs/requeue", &json!({"queue": "other"}))["requeued"], 0);
    assert_eq!(post(&client, "/v1/jobs/requeue", &json!({}))["requeued"], 1);
    fail_delivery(&store, &dead);
    assert_eq!(over(&client, &dead)["earlier"].as_array().map(Vec::len), Some(1));
}

#[test]
fn files_go_in_with_a_job_and_what_it_leaves_is_listed_and_read() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens =
            Some(tokens("alice 0123456789abcdef0123456789abcdef\nbob fedcba9876543210fedcba9876543210\n"));
    });
    let client = serving.client_with("0123456789abcdef0123456789abcdef");
    let script = "tr a-z A-Z < in/words > 'out/two words'; head -c 600000 /dev/zero | tr '\\0' x > out/large; head -c 2000000 /dev/zero > out/huge";
    let spec = json!({
        "command": ["sh", "-c", script],
        "inputs": {"in/words": "hello\n", "out/.keep": {"base64": ""}},
        "outputs": ["out/*", "absent"],
    });
    let id = submit(&client, &spec);
    let job = over(&client, &id);
    assert_eq!(job["result"]["status"], "ok", "{job}");
    assert_eq!(job["spec"]["inputs"]["in/words"]["bytes"], 6, "the content is not repeated: {job}");
    let (status, files) = client.get(&format!("/v1/jobs/{id}/files"));
    assert_eq!((status, &files["files"]), (200, &job["result"]["files"]), "{files}");
    let names: Vec<&Value> =
        files["files"].as_array().expect("a list").iter().map(|file| &file["name"]).collect();
    assert_eq!(names, ["out/.keep", "out/large", "out/two words"]);
    let refused: Vec<&Value> =
        files["refused"].as_array().expect("a list").iter().map(|file| &file["name"]).collect();
    assert_eq!(refused, ["out/huge", "absent"], "{files}");
    let read = |client: &TestClient, name: &str| client.get(&format!("/v1/jobs/{id}/files/{name}"));
    assert_eq!(read(&client, "out/two%20words"), (200, json!("HELLO\n")));
    assert_eq!(read(&client, "out/large"), (200, json!("x".repeat(600_000))));
    assert_eq!(read(&client, "out/.keep"), (200, json!("")));
    for name in ["absent", "out/huge", "in/words", "../out/large"] {
        let (status, answer) = read(&client, name);
        assert_eq!((status, &answer["code"]), (404, &json!("job_file_not_found")), "{name}: {answer}");
    }
    let bob = serving.client_with("fedcba9876543210fedcba9876543210");
    for path in ["files", "files/out/large"] {
        let (status, answer) = bob.get(&format!("/v1/jobs/{id}/{path}"));
        assert_eq!((status, &answer["code"]), (404, &json!("job_not_found")), "{path}");
    }
    // A client must not name a file of the server's machine.
    let (status, answer) =
        client.post("/v1/jobs", &json!({"command": ["true"], "inputs": {"a": {"file": "/etc/shadow"}}}));
    assert_eq!((status, &answer["details"]["path"]), (400, &json!("inputs[\"a\"].file")), "{answer}");
    post(&client, "/v1/jobs/purge", &json!({}));
    assert_eq!(read(&client, "out/large").0, 404);
}

#[test]
fn depth_age_and_outcomes_are_counted() {
    let serving = ServerFixture::start();
    let client = serving.client();
    over(&client, &submit(&client, &json!({"command": ["true"]})));
    over(&client, &submit(&client, &json!({"command": ["false"]})));
    over(&client, &submit(&client, &json!({"command": ["sleep", "9"], "wall_ms": 200})));
    post(&client, "/v1/jobs/pause", &json!({"queue": "a \"b\""}));
    submit(&client, &json!({"command": ["true"], "queue": "a \"b\""}));
    let running = submit(&client, &json!({"command": ["sleep", "600"]}));
    until_it_is(&client, &running, "leased");
    let (_, text) = client.get("/metrics");
    let text = text.as_str().expect("text");
    for line in [
        "sandtimer_jobs{state=\"queued\"} 1",
        "sandtimer_jobs{state=\"leased\"} 1",
        "sandtimer_jobs_running 1",
        "sandtimer_jobs_ended_total{status=\"ok\"} 1",
        "sandtimer_jobs_ended_total{status=\"failed\"} 1",
        "sandtimer_jobs_ended_total{status=\"timeout\"} 1",
        "sandtimer_queue_jobs{queue=\"a \\\"b\\\"\",state=\"queued\"} 1",
        "sandtimer_queue_paused{queue=\"a \\\"b\\\"\"} 1",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
    }
    let oldest =
        text.lines().find_map(|line| line.strip_prefix("sandtimer_jobs_oldest_seconds ")).expect("there");
    assert!(oldest.parse::<f64>().expect("a number") > 0.0);
    // A server without slots keeps jobs, and executes none.
    let serving = ServerFixture::with(|settings| settings.jobs.slots = 0);
    let client = serving.client();
    let id = submit(&client, &json!({"command": ["true"], "wall_ms": 700}));
    let (_, job) = client.get(&format!("/v1/jobs/{id}?wait_ms=300"));
    assert_eq!(job["state"], "queued");
    assert_eq!(over(&client, &id)["result"]["verdict"]["phase"], "queued");
}

#[test]
fn filter_cancels_and_retries_only_the_owners_jobs() {
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens("alice one\nbob two\n")));
    let (alice, bob) = (serving.client_with("one"), serving.client_with("two"));
    let of =
        |queue: &str, delay: &str| json!({"command": ["sleep", "600"], "queue": queue, "delay_ms": delay});
    let running = submit(&alice, &of("a", "0s"));
    until_it_is(&alice, &running, "leased");
    let waiting: Vec<String> = ["a", "b", "c"].map(|queue| submit(&alice, &of(queue, "1h"))).into();
    let bob_job = submit(&bob, &of("a", "1h"));
    for (path, body) in [
        ("cancel", json!({})),
        ("retry", json!({})),
        ("cancel", json!({"all": false})),
        ("cancel", json!({"state": "ok"})),
        ("retry", json!({"state": "queued"})),
        ("retry", json!({"all": "yes"})),
    ] {
        let (status, refused) = alice.post(&format!("/v1/jobs/{path}"), &body);
        assert_eq!((status, &refused["code"]), (400, &json!("bad_field")), "{path} {body}: {refused}");
    }
    let done = post(&alice, "/v1/jobs/cancel", &json!({"queue": "a", "reason": "enough"}));
    assert_eq!(done, json!({"cancelled": 1, "asked": 1}));
    assert_eq!(over(&alice, &running)["result"]["error"], "Cancelled: enough.");
    let scheduled = json!({"state": "scheduled"});
    assert_eq!(post(&alice, "/v1/jobs/cancel", &scheduled), json!({"cancelled": 2, "asked": 0}));
    assert!(waiting.iter().all(|id| show(&alice, id)["state"] == "cancelled"));
    assert_eq!(show(&bob, &bob_job)["state"], "scheduled");
    assert_eq!(post(&alice, "/v1/jobs/retry", &json!({"queue": "b"})), json!({"retried": 1}));
    assert_eq!(post(&bob, "/v1/jobs/retry", &json!({"all": true})), json!({"retried": 0}));
    // It is queued, or a worker has it already.
    let done = post(&alice, "/v1/jobs/cancel", &json!({"all": true}));
    assert_eq!(
        done["cancelled"].as_u64().zip(done["asked"].as_u64()).map(|(one, other)| one + other),
        Some(1)
    );
    assert_eq!(over(&alice, &waiting[1])["state"], "cancelled");
}

#[test]
fn log_has_times_before_its_lines_on_request() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = submit(&client, &json!({"command": ["sh", "-c", "echo first; echo; echo süß; printf rest"]}));
    over(&client, &id);
    let log = |query: &str| {
        let (status, log) = client.get(&format!("/v1/jobs/{id}/log?{query}"));
        assert_eq!(status, 200, "{query}: {log}");
        log
    };
    let (plain, timed) = (log(""), log("timestamps=true"));
    let data = timed["data"].as_str().expect("text").to_owned();
    let lines: Vec<&str> = data.split('\n').collect();
    let texts: Vec<&str> = lines.iter().map(|line| line.split_at(25).1).collect();
    assert_eq!(texts, ["first", "", "süß", "rest"], "{data}");
    for line in &lines {
        let time = line.split_at(25).0;
        assert!(time.starts_with("20") && time.ends_with("Z ") && &time[10..11] == "T", "{line}");
    }
    for field in ["cursor", "next_cursor", "encoding", "ended"] {
        assert_eq!(plain[field], timed[field], "{field}");
    }
    // In parts it is the same: what begins in the middle of a line has no time before it.
    let (mut read, mut cursor) = (String::new(), 0);
    while cursor < timed["next_cursor"].as_u64().expect("a place") {
        let part = log(&format!("timestamps=true&cursor={cursor}&max_bytes=16"));
        read.push_str(part["data"].as_str().expect("text"));
        assert!(part["next_cursor"].as_u64() > Some(cursor), "{part}");
        cursor = part["next_cursor"].as_u64().expect("a place");
    }
    assert_eq!(read, data);
    assert_eq!(client.get(&format!("/v1/jobs/{id}/log?timestamps=yes")).1["code"], "bad_field");
}

#[test]
fn live_workers_are_listed_for_operators() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("alice one\nboss two operator\n"));
        settings.jobs.slots = 3;
    });
    let (alice, boss) = (serving.client_with("one"), serving.client_with("two"));
    let id = submit(&alice, &json!({"command": ["sleep", "600"], "queue": "q"}));
    until_it_is(&alice, &id, "leased");
    let listed = || boss.get("/v1/jobs/workers").1["workers"].clone();
    wait_until("it is listed with its job", || listed()[0]["jobs"] == json!([id]));
    let worker = &listed()[0];
    assert_eq!(
        (&worker["name"], &worker["slots"], &worker["queues"]),
        (&json!("server"), &json!(3), &json!([]))
    );
    assert_eq!(worker["version"], env!("CARGO_PKG_VERSION"));
    let (status, refused) = alice.get("/v1/jobs/workers");
    assert_eq!((status, &refused["code"]), (403, &json!("operator_only")), "{refused}");
}

#[test]
fn schedules_are_their_owners_and_submit_jobs() {
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens("alice one\nbob two\n")));
    let (alice, bob) = (serving.client_with("one"), serving.client_with("two"));
    let path = "/v1/jobs/schedules/tick%20tock";
    let put = |client: &TestClient, path: &str, body: &Value| client.put(path, body.to_string().as_bytes());
    let spec = json!({"every_ms": "1s", "job": {"command": ["true"], "queue": "q"}});
    let (status, stored) = put(&alice, path, &spec);
    assert_eq!(
        (status, &stored["name"], &stored["queue"]),
        (200, &json!("tick tock"), &json!("q")),
        "{stored}"
    );
    let list = |client: &TestClient| client.get("/v1/jobs/schedules").1["schedules"].clone();
    wait_until("it has submitted a job", || list(&alice)[0]["submitted"] != 0);
    assert_eq!((list(&bob), bob.delete(path).1["removed"].clone()), (json!([]), json!(false)));
    let id = list(&alice)[0]["last_job"].as_str().expect("an id").to_owned();
    let job = over(&alice, &id);
    assert_eq!(
        (&job["ok"], &job["queue"], &job["spec"]["scheduled"]["schedule"]),
        (&json!(true), &json!("q"), &json!("tick tock"))
    );
    let turn = |client: &TestClient, verb: &str| client.post(&format!("{path}/{verb}"), &json!({}));
    let (status, refused) = turn(&bob, "pause");
    assert_eq!((status, &refused["code"]), (404, &json!("schedule_not_found")), "{refused}");
    let (status, paused) = turn(&alice, "pause");
    let found = (status, &paused["next_ms"], &paused["queue"], &paused["spec"]["paused"]);
    assert_eq!(found, (200, &Value::Null, &json!("q"), &json!(true)), "{paused}");
    assert_eq!(put(&alice, path, &spec).1["next_ms"], Value::Null, "stored again it stays paused");
    let (status, resumed) = turn(&alice, "resume");
    assert_eq!((status, resumed["next_ms"].is_u64()), (200, true), "{resumed}");
    assert_eq!(alice.delete(path), (200, json!({"name": "tick tock", "removed": true})));
    for (body, code, at) in [
        (json!({"every_ms": 5, "job": {"command": ["true"]}}), "bad_spec", "every_ms"),
        (json!({"every_ms": 5000}), "bad_spec", "job"),
        (json!({"name": "other", "every_ms": 5000, "job": {"command": ["true"]}}), "bad_spec", "name"),
        (json!({"every_ms": 5000, "job": {"command": ["true"], "cwd": "/root"}}), "bad_spec", "job.cwd"),
        (json!({"every_ms": 5000, "job": {"command": ["true"], "after": ["x"]}}), "bad_spec", "job.after"),
    ] {
        let (status, refused) = put(&alice, path, &body);
        assert_eq!(
            (status, &refused["code"], &refused["details"]["path"]),
            (400, &json!(code), &json!(at)),
            "{refused}"
        );
    }
    let (status, refused) =
        put(&alice, path, &json!({"every_ms": 5000, "job": {"command": ["true"], "network": true}}));
    assert_eq!((status, &refused["code"]), (403, &json!("network_refused")), "{refused}");
    assert_eq!(alice.put(path, b"{").1["code"], "bad_json");
}

#[test]
fn breakers_are_listed_to_their_owner() {
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens("alice one\nbob two\n")));
    let (alice, bob) = (serving.client_with("one"), serving.client_with("two"));
    let breaker = json!({"failures": 1, "open_ms": 600_000, "scope": "store"});
    over(&alice, &submit(&alice, &json!({"command": ["false"], "key": "mail:send", "breaker": breaker})));
    let listed = alice.get("/v1/jobs/breakers").1["breakers"].clone();
    assert_eq!((&listed[0]["key"], &listed[0]["state"]), (&json!("mail:send"), &json!("open")), "{listed}");
    assert!(listed[0]["retry_after_ms"].as_u64().is_some_and(|left| left > 60_000), "{listed}");
    assert_eq!(bob.get("/v1/jobs/breakers"), (200, json!({"breakers": [], "next": null})));
    over(&alice, &submit(&alice, &json!({"command": ["false"], "key": "mail:sent", "breaker": breaker})));
    let (_, first) = alice.get("/v1/jobs/breakers?limit=1");
    assert_eq!(first["breakers"].as_array().map(Vec::len), Some(1), "{first}");
    let next = first["next"].as_str().expect("there is more");
    let (_, second) = alice.get(&format!("/v1/jobs/breakers?cursor={next}"));
    assert_eq!(
        (&second["breakers"][0]["key"], &second["next"]),
        (&json!("mail:sent"), &json!(null)),
        "{second}"
    );
    let (status, refused) = alice.get("/v1/jobs/breakers?cursor=mail:send");
    let found = (status, &refused["code"], &refused["details"]["key"]);
    assert_eq!(found, (400, &json!("bad_field"), &json!("cursor")), "{refused}");
}

#[test]
fn removed_store_directory_is_named() {
    let serving = ServerFixture::start();
    let (client, file) = (serving.client(), serving.state.path().join("jobs.sqlite"));
    let (kept, job) = (file.with_extension("kept"), json!({"command": ["true"]}));
    over(&client, &submit(&client, &job));
    std::fs::rename(&file, &kept).expect("moved");
    let (status, refused) = client.post("/v1/jobs", &job);
    let found = (status, &refused["code"], &refused["retryable"]);
    assert_eq!(found, (503, &json!("store_gone"), &json!(false)), "{refused}");
    let message = refused["message"].as_str().expect("text");
    assert!(message.contains("is gone") && !message.contains("jobs.sqlite"), "{message}");
    assert!(refused["hint"].as_str().is_some_and(|hint| hint.contains("put the directory")), "{refused}");
    std::fs::rename(&kept, &file).expect("moved back");
    over(&client, &submit(&client, &job));
}

#[test]
fn jobs_wait_only_for_jobs_of_their_owner() {
    let serving = ServerFixture::with(|settings| settings.tokens = Some(tokens("alice one\nbob two\n")));
    let (alice, bob) = (serving.client_with("one"), serving.client_with("two"));
    let first = submit(&alice, &json!({"command": ["true"]}));
    let after = json!({"command": ["true"], "after": [first]});
    let (status, refused) = bob.post("/v1/jobs", &after);
    assert_eq!((status, &refused["details"]["path"]), (400, &json!("after[0]")), "{refused}");
    assert_eq!(over(&alice, &submit(&alice, &after))["ok"], true);
    let (status, many) = alice.post(
        "/v1/jobs",
        &json!({"command": ["true"], "map": {"over": [1, 2], "then": {"command": ["true"]}}}),
    );
    assert_eq!((status, many["jobs"].as_array().map(Vec::len)), (201, Some(3)), "{many}");
    assert_eq!(over(&alice, many["jobs"][2]["job_id"].as_str().expect("an id"))["ok"], true);
}
