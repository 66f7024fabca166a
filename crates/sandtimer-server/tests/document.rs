//! The API's description matches the server: every path is there, and real answers have its shape.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, wait_until};

/// Follows a reference.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(target) => {
            let name = target.rsplit('/').next().unwrap_or_default();
            &document["components"]["schemas"][name]
        }
        None => schema,
    }
}

/// Describes where `value` does not match `schema`.
fn differences(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let schema = resolved(document, schema);
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = |choice: &&Value| {
            let mut wrong = Vec::new();
            differences(document, choice, value, at, &mut wrong);
            wrong.is_empty()
        };
        if choices.iter().filter(fits).count() != 1 {
            let choice = choices.iter().find(|choice| choice["type"] != "null").unwrap_or(&Value::Null);
            differences(document, choice, value, at, found);
            found.push(format!("{at}: not exactly one of its kinds"));
        }
        return;
    }
    let kinds = match &schema["type"] {
        Value::String(kind) => vec![kind.as_str()],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return,
    };
    let is = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => {
            value.is_string() && schema["enum"].as_array().is_none_or(|allowed| allowed.contains(value))
        }
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => value.is_null(),
    };
    if !kinds.iter().any(|kind| is(kind)) {
        found.push(format!("{at}: {value} is not {kinds:?}"));
    }
    if let (Some(fields), Some(object)) = (schema["properties"].as_object(), value.as_object()) {
        for (name, inner) in object {
            match fields.get(name) {
                Some(schema) => differences(document, schema, inner, &format!("{at}.{name}"), found),
                None => found.push(format!("{at}.{name}: not described")),
            }
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                found.push(format!("{at}.{name}: missing"));
            }
        }
    }
    for (index, inner) in value.as_array().into_iter().flatten().enumerate() {
        differences(document, &schema["items"], inner, &format!("{at}[{index}]"), found);
    }
}

#[test]
fn real_answers_have_the_described_shape() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, document) = client.get("/openapi.json");
    let mut found = Vec::new();
    let mut check = |name: &str, value: &Value| {
        assert!(!value.is_null(), "{name}");
        differences(
            &document,
            &json!({"$ref": format!("#/components/schemas/{name}")}),
            value,
            name,
            &mut found,
        );
    };
    check("Run", &client.run(&json!({"command": ["sh", "-c", "exit 1"]})));
    check("Run", &client.run(&json!({"command": ["sleep", "9"], "wall_ms": 100, "grace_ms": 50})));
    check("Run", &client.run(&json!({"command": ["sh", "-c", "head -c 9 /dev/zero; sleep 9"], "output_bytes": 4, "on_output_limit": "end"})));
    let id = client.start(json!({"command": ["sleep", "20"], "stdin_open": true, "wall_ms": 15_000}));
    check("Run", &client.get(&format!("/v1/runs/{id}")).1);
    check("Processes", &client.get(&format!("/v1/runs/{id}/processes")).1);
    let post = |what: &str, body: Value| client.post(&format!("/v1/runs/{id}/{what}"), &body).1;
    check("Written", &post("stdin", json!({"data": "x"})));
    check("Extended", &post("extend", json!({"by_ms": 5})));
    check("Paused", &post("pause", json!({})));
    check("Paused", &post("resume", json!({})));
    check("Signalled", &post("signal", json!({"signal": "SIGCONT"})));
    check("Output", &client.get(&format!("/v1/runs/{id}/output")).1);
    check("Run", &post("kill", json!({})));
    let (_, context) = client.post("/v1/contexts", &json!({"idle_ms": 0}));
    check("Context", &context);
    let at = format!("/v1/contexts/{}", context["context_id"].as_str().expect("an id"));
    check("Executed", &client.post(&format!("{at}/execute"), &json!({"code": "display(1)\n{'a': 2}"})).1);
    check(
        "Executed",
        &client
            .post(&format!("{at}/execute"), &json!({"code": "import time; time.sleep(0.3)", "wait_ms": 0}))
            .1,
    );
    check("Interrupted", &client.post(&format!("{at}/interrupt"), &json!({})).1);
    check("Context", &client.post(&format!("{at}/undo"), &json!({})).1);
    check("ContextList", &client.post(&format!("{at}/branch"), &json!({"count": 2, "memory_bytes": "1G"})).1);
    check("Context", &client.post("/v1/sessions", &json!({"cwd": "/tmp"})).1);
    check("ContextList", &client.get("/v1/sessions").1);
    let (_, sandbox) = client.post("/v1/sandboxes", &json!({}));
    check("Sandbox", &sandbox);
    check("SandboxList", &client.get("/v1/sandboxes").1);
    let at = format!("/v1/sandboxes/{}/exec", sandbox["sandbox_id"].as_str().expect("an id"));
    check("Run", &client.post(&at, &json!({"command": "sleep 9", "wall_ms": 100})).1);
    let (_, workspace) = client.post("/v1/workspaces", &json!({}));
    check("Workspace", &workspace);
    let id = workspace["workspace_id"].as_str().expect("an id");
    let at = |path: &str| format!("/v1/files{path}&workspace={id}");
    check("FileWritten", &client.put(&at("?path=a/x&parents=true"), b"x").1);
    let archive = client.bytes(&at("/tar?path=a"), &[]).1;
    check("ArchiveUnpacked", &client.put(&at("/tar?path=a"), &archive).1);
    check("FileAppended", &client.post_bytes(&at("/append?path=a/x"), b"y").1);
    check("FileEntry", &client.get(&at("/stat?path=a/x")).1);
    check("FileEntry", &client.post("/v1/files/mkdir", &json!({"workspace": id, "path": "b"})).1);
    check("FileEntry", &client.post("/v1/files/move", &json!({"workspace": id, "from": "b", "to": "c"})).1);
    check("FileListing", &client.get(&at("/list?limit=1")).1);
    check("WorkspaceList", &client.get("/v1/workspaces").1);
    check("WorkspaceDetails", &client.get(&format!("/v1/workspaces/{id}")).1);
    check("Context", &client.post("/v1/contexts", &json!({"workspace": id})).1);
    let asked = json!({"task_type": "load_data", "data_size_mb": 1.5, "budget_ms": 9000});
    check("Estimate", &client.post("/v1/tasks/estimate", &asked).1);
    let (_, task) = client.post("/v1/tasks", &json!({"command": ["sleep", "9"]}));
    check("Task", &task);
    let id = task["task_id"].as_str().expect("an id");
    check("Task", &client.post(&format!("/v1/tasks/{id}/complete"), &json!({})).1);
    check("TaskList", &client.get("/v1/tasks").1);
    check_jobs(&client, &mut check);
    check("RunList", &client.get("/v1/runs").1);
    check("Error", &client.get("/nowhere").1);
    check("Health", &client.get("/healthz").1);
    check("Config", &client.get("/v1/config").1);
    assert!(found.is_empty(), "{found:#?}");
    // The check itself finds what is wrong.
    let mut wrong = Vec::new();
    differences(
        &document,
        &json!({"$ref": "#/components/schemas/Paused"}),
        &json!({"run_id": 1, "more": 2}),
        "x",
        &mut wrong,
    );
    assert_eq!(wrong.len(), 3, "{wrong:?}");
}

fn check_jobs(client: &TestClient, check: &mut impl FnMut(&str, &Value)) {
    let (_, submitted) =
        client.post("/v1/jobs", &json!({"command": ["false"], "attempts": 2, "wall_ms": "1m"}));
    check("JobsSubmitted", &submitted);
    let id = submitted["jobs"][0]["job_id"].as_str().expect("an id");
    check("Job", &client.get(&format!("/v1/jobs/{id}?wait_ms=20000")).1);
    check("JobLog", &client.get(&format!("/v1/jobs/{id}/log")).1);
    let (_, overdue) =
        client.post("/v1/jobs", &json!({"command": ["sleep", "9"], "wall_ms": 300, "queue": "q"}));
    let overdue = overdue["jobs"][0]["job_id"].as_str().expect("an id");
    check("Job", &client.get(&format!("/v1/jobs/{overdue}?wait_ms=20000")).1);
    check("JobRetried", &client.post(&format!("/v1/jobs/{id}/retry"), &json!({})).1);
    check("JobQueuePaused", &client.post("/v1/jobs/pause", &json!({"queue": "q"})).1);
    client.post("/v1/jobs", &json!({"command": ["true"], "queue": "q"}));
    wait_until("its worker has announced itself", || {
        !client.get("/v1/jobs/workers").1["workers"].as_array().expect("a list").is_empty()
    });
    check("JobWorkers", &client.get("/v1/jobs/workers").1);
    check("JobQueues", &client.get("/v1/jobs/queues").1);
    check("JobCancelled", &client.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).1);
    let hook = json!({"url": "http://127.0.0.1:9/", "events": ["dead"]});
    let (_, hooked) = client.post("/v1/jobs", &json!({"command": ["true"], "webhook": hook}));
    let hooked = hooked["jobs"][0]["job_id"].as_str().expect("an id");
    check("Job", &client.get(&format!("/v1/jobs/{hooked}?wait_ms=20000")).1);
    check("JobRedelivered", &client.post(&format!("/v1/jobs/{hooked}/redeliver"), &json!({})).1);
    check("JobList", &client.get("/v1/jobs?limit=1").1);
    check("JobsCancelled", &client.post("/v1/jobs/cancel", &json!({"queue": "q"})).1);
    check("JobsRetried", &client.post("/v1/jobs/retry", &json!({"queue": "q"})).1);
    check("JobsRequeued", &client.post("/v1/jobs/requeue", &json!({})).1);
    check("JobsPurged", &client.post("/v1/jobs/purge", &json!({})).1);
    check("Error", &client.post("/v1/jobs", &json!({"comand": ["true"]})).1);
}

#[test]
fn every_described_path_is_served() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, document) = client.get("/openapi.json");
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() >= 15);
    for (path, operations) in paths {
        let real = path.replace("{id}", "nobody");
        for method in operations.as_object().expect("operations").keys() {
            let (_, answer) = match method.as_str() {
                "get" => client.get(&real),
                "post" => client.post(&real, &json!({})),
                "delete" => client.delete(&real),
                "put" => client.put(&real, b""),
                other => panic!("{other}"),
            };
            let code = answer["code"].as_str().unwrap_or_default();
            assert!(code != "not_found" && code != "method_not_allowed", "{method} {path}: {answer}");
        }
    }
}

#[test]
fn the_statuses_of_successes_are_the_described_ones() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, document) = client.get("/openapi.json");
    let check = |method: &str, path: &str, expected: u16, status: u16| {
        assert_eq!(status, expected, "{method} {path}");
        let described = document["paths"][path][method]["responses"].as_object().expect("responses");
        let successes: Vec<&String> = described.keys().filter(|status| status.starts_with('2')).collect();
        assert!(successes.contains(&&status.to_string()), "{method} {path}: {status}, not {successes:?}");
    };
    let id = |answer: &Value, name: &str| answer[name].as_str().expect("an id").to_owned();
    for path in ["/v1/contexts", "/v1/sessions"] {
        let (status, opened) = client.post(path, &json!({}));
        check("post", path, 201, status);
        let at = format!("{path}/{}", id(&opened, "context_id"));
        let (status, _) = client.post(&format!("{at}/execute"), &json!({"code": "1"}));
        check("post", &format!("{path}/{{id}}/execute"), 200, status);
        check("delete", &format!("{path}/{{id}}"), 204, client.delete(&at).0);
    }
    let (status, task) = client.post("/v1/tasks", &json!({"task_type": "load_data"}));
    check("post", "/v1/tasks", 201, status);
    let complete = format!("/v1/tasks/{}/complete", id(&task, "task_id"));
    check("post", "/v1/tasks/{id}/complete", 200, client.post(&complete, &json!({})).0);
    let (status, workspace) = client.post("/v1/workspaces", &json!({}));
    check("post", "/v1/workspaces", 201, status);
    let workspace = id(&workspace, "workspace_id");
    let file = format!("/v1/files?workspace={workspace}&path=x");
    check("put", "/v1/files", 200, client.put(&file, b"words").0);
    check("get", "/v1/files", 200, client.get(&file).0);
    check("get", "/v1/files", 206, client.get(&format!("{file}&length=2")).0);
    check("delete", "/v1/files", 204, client.delete(&file).0);
    check("delete", "/v1/workspaces/{id}", 204, client.delete(&format!("/v1/workspaces/{workspace}")).0);
    let job = json!({"command": ["true"], "idempotency_key": "once"});
    check("post", "/v1/jobs", 201, client.post("/v1/jobs", &job).0);
    check("post", "/v1/jobs", 200, client.post("/v1/jobs", &job).0);
    let run = client.run(&json!({"command": ["true"]}));
    let run = format!("/v1/runs/{}", id(&run, "run_id"));
    let last = client.events_at(&format!("{run}/events"), &[]).last().expect("an event").id;
    let following = client.get_with(&format!("{run}/events"), &[("Last-Event-ID", &last)]);
    check("get", "/v1/runs/{id}/events", 204, following.0);
    check("delete", "/v1/runs/{id}", 204, client.delete(&run).0);
}
