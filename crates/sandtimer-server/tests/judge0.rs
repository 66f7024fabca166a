//! Judge0's `/submissions` and what belongs to them: the documented requests, against a real server
//! and real programs.

use crate::support;

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sandtimer::Limits;
use serde_json::{Value, json};
use support::{ServerFixture, TestClient, refused_for_its_length, tokens, wait_until};

const HELLO: &str = "#include <stdio.h>\n\nint main(void) {\n  char name[10];\n  scanf(\"%s\", name);\n  printf(\"hello, %s\\n\", name);\n  return 0;\n}";
const PYTHON: u64 = 71;
const BASH: u64 = 46;
const C: u64 = 50;

/// A submission that is waited for.
fn submit(client: &TestClient, submission: &Value) -> Value {
    let (status, answer) = client.post("/submissions?wait=true", submission);
    assert_eq!(status, 201, "{answer}");
    answer
}

fn status(answer: &Value) -> u64 {
    answer["status"]["id"].as_u64().expect("a status")
}

/// Whether a language is installed; prints that the test skips it if it is not.
#[allow(clippy::disallowed_macros, reason = "a test says what it skips")]
fn is_served(client: &TestClient, id: u64) -> bool {
    let is_there = client.get(&format!("/languages/{id}")).0 == 200;
    if !is_there {
        println!("skipped: this host does not have the language {id}");
    }
    is_there
}

#[test]
fn documented_submissions_are_answered_as_documented() {
    let serving = ServerFixture::start();
    let client = serving.client();
    if is_served(&client, C) {
        // An identifier may be text.
        let asked = json!({"source_code": HELLO, "language_id": "50", "stdin": "Judge0", "expected_output": "hello, Judge0"});
        let answer = submit(&client, &asked);
        assert_eq!(
            (&answer["stdout"], &answer["stderr"], &answer["compile_output"], &answer["message"]),
            (&json!("hello, Judge0\n"), &Value::Null, &Value::Null, &Value::Null),
            "{answer}"
        );
        assert_eq!(answer["status"], json!({"id": 3, "description": "Accepted"}));
        assert!(
            answer["time"].is_string() && answer["memory"].is_u64() && answer["token"].is_string(),
            "{answer}"
        );
        assert_eq!(answer.as_object().map(|answer| answer.len()), Some(8));
        let encoded =
            json!({"source_code": BASE64_STANDARD.encode(HELLO), "language_id": C, "stdin": "SnVkZ2Uw"});
        let (code, created) = client.post("/submissions?base64_encoded=true", &encoded);
        assert_eq!((code, created.as_object().map(|created| created.len())), (201, Some(1)), "{created}");
        let token = created["token"].as_str().expect("a token");
        wait_until("it is accepted", || status(&client.get(&format!("/submissions/{token}")).1) == 3);
        let (_, answer) = client.get(&format!("/submissions/{token}?base64_encoded=true"));
        assert_eq!(answer["stdout"], "aGVsbG8sIEp1ZGdlMAo=\n");
        let (_, answer) =
            client.get(&format!("/submissions/{token}?fields=stdout,stderr,status_id,language_id"));
        assert_eq!(
            answer,
            json!({"stdout": "hello, Judge0\n", "stderr": null, "status_id": 3, "language_id": 50})
        );
        let (_, all) = client.get(&format!("/submissions/{token}?fields=*"));
        assert_eq!(
            (&all["source_code"], &all["cpu_time_limit"], &all["number_of_runs"]),
            (&json!(HELLO), &json!("5.0"), &json!(1))
        );
        assert!(all["created_at"].is_string() && all["finished_at"].is_string(), "{all}");
        // The official client refuses attributes that version 1.13.1 does not have.
        assert_eq!(all.as_object().map(|all| all.len()), Some(35), "{all}");
    }
    let (code, answer) = client.post("/submissions", &json!({"source_code": HELLO}));
    assert_eq!((code, answer), (422, json!({"language_id": ["can't be blank"]})));
    let (code, answer) = client.post("/submissions", &json!({"source_code": HELLO, "language_id": 150_000}));
    assert_eq!((code, answer), (422, json!({"language_id": ["language with id 150000 doesn't exist"]})));
    let asked = json!({
        "source_code": "1", "language_id": PYTHON, "number_of_runs": 1, "cpu_time_limit": 1, "cpu_extra_time": 0.5,
        "wall_time_limit": 100_000, "memory_limit": 128_000, "stack_limit": 128_000,
        "enable_per_process_and_thread_time_limit": false, "max_file_size": 1024,
    });
    let (code, answer) = client.post("/submissions", &asked);
    assert_eq!((code, answer), (422, json!({"wall_time_limit": ["must be less than or equal to 20"]})));
    let (code, answer) =
        client.post("/submissions?wait=true", &json!({"language_id": BASH, "source_code": "printf '\\xfe'"}));
    let error = "some attributes for this submission cannot be converted to UTF-8, use base64_encoded=true query parameter";
    assert_eq!((code, &answer["error"]), (201, &json!(error)), "{answer}");
    let token = answer["token"].as_str().expect("a token");
    assert_eq!(client.get(&format!("/submissions/{token}")), (400, json!({"error": error})));
    assert_eq!(client.get(&format!("/submissions/{token}?base64_encoded=true")).1["stdout"], "/g==\n");
}

#[test]
fn batches_are_as_documented() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let batch = json!({"submissions": [
        {"language_id": BASH, "source_code": "echo hello from Bash"},
        {"language_id": 123_456_789, "source_code": "print(\"hello from Python\")"},
        {"language_id": PYTHON, "source_code": ""},
        {"language_id": PYTHON, "source_code": "print(\"hello from Python\")"},
    ]});
    let (code, answers) = client.post("/submissions/batch", &batch);
    assert_eq!((code, &answers[2]), (201, &json!({"source_code": ["can't be blank"]})), "{answers}");
    assert_eq!(answers[1], json!({"language_id": ["language with id 123456789 doesn't exist"]}));
    let [bash, python] =
        [0, 3].map(|index: usize| answers[index]["token"].as_str().expect("a token").to_owned());
    let path = format!(
        "/submissions/batch?tokens={bash},00000000-0000-4000-8000-000000000000,{python}&fields=token,stdout,status_id,language_id"
    );
    let is_done =
        |answer: &Value| [0, 2].iter().all(|index: &usize| answer["submissions"][*index]["status_id"] == 3);
    wait_until("both are accepted", || is_done(&client.get(&path).1));
    let shown = client.get(&path).1;
    assert_eq!(
        shown["submissions"][0],
        json!({"token": bash, "stdout": "hello from Bash\n", "status_id": 3, "language_id": BASH})
    );
    assert_eq!(
        (&shown["submissions"][1], &shown["submissions"][2]["stdout"]),
        (&Value::Null, &json!("hello from Python\n"))
    );
    for (batch, message) in [
        (json!({"submissions": []}), "there should be at least one submission in a batch"),
        (json!({}), "there should be at least one submission in a batch"),
        (
            json!({"submissions": vec![json!({}); 21]}),
            "number of submissions in a batch should be less than or equal to 20",
        ),
    ] {
        assert_eq!(client.post("/submissions/batch", &batch), (400, json!({"error": message})));
    }
    assert_eq!(client.post("/submissions/batch", &json!({"submissions": [{}]})).0, 422);
    assert_eq!(client.get("/submissions/batch").0, 400);
}

#[test]
fn each_end_has_its_status() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let bash = |source: &str, more: Value| {
        let mut asked = json!({"language_id": BASH, "source_code": source});
        asked.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        submit(&client, &asked)
    };
    let begins = |answer: &Value, prefix: &str| {
        answer["message"].as_str().is_some_and(|text| text.starts_with(prefix))
    };
    assert_eq!(status(&bash("echo 1", json!({"expected_output": "1  \n"}))), 3);
    assert_eq!(status(&bash("echo 1", json!({"expected_output": "2"}))), 4);
    let late = bash("echo before; sleep 60", json!({"wall_time_limit": 1}));
    assert_eq!((status(&late), &late["stdout"]), (5, &json!("before\n")), "{late}");
    assert!(begins(&late, "Time limit exceeded (wall clock): Stopped"), "{late}");
    let busy = bash("while :; do :; done", json!({"cpu_time_limit": 0.3, "cpu_extra_time": 0}));
    assert!(status(&busy) == 5 && begins(&busy, "Time limit exceeded: "), "{busy}");
    let extra =
        bash("for i in {1..400000}; do :; done", json!({"cpu_time_limit": 0.01, "cpu_extra_time": 5}));
    assert!(status(&extra) == 5 && extra["message"] == "Time limit exceeded", "{extra}");
    for (signal, id) in [("SEGV", 7), ("XFSZ", 8), ("FPE", 9), ("ABRT", 10), ("TERM", 12)] {
        assert_eq!(status(&bash(&format!("kill -{signal} $$"), json!({}))), id, "{signal}");
    }
    let code = bash("echo err >&2; exit 3", json!({}));
    assert_eq!(
        (status(&code), &code["message"], &code["stderr"]),
        (11, &json!("Exited with error status 3"), &json!("err\n"))
    );
    let long = bash("while :; do echo xxxxxxxxxxxxxxx; done", json!({"max_file_size": 8}));
    assert!(status(&long) == 8 && begins(&long, "Caught fatal signal 25"), "{long}");
    let hungry =
        json!({"language_id": PYTHON, "source_code": "x = bytearray(300 << 20)", "memory_limit": 100_000});
    let hungry = submit(&client, &hungry);
    assert!([11, 12].contains(&status(&hungry)), "{hungry}");
    let joined = bash("echo a; echo b >&2; echo c", json!({"redirect_stderr_to_stdout": true}));
    assert_eq!((&joined["stdout"], &joined["stderr"]), (&json!("a\nb\nc\n"), &Value::Null), "{joined}");
    let arguments = bash("echo \"$1|$2\"", json!({"command_line_arguments": "'a b' c; rm"}));
    assert_eq!(arguments["stdout"], "a b|c\n", "{arguments}");
    let repeated = bash("echo 1", json!({"number_of_runs": 3, "stdin": "x"}));
    assert_eq!(status(&repeated), 3);
    if is_served(&client, C) {
        let wrong = submit(&client, &json!({"language_id": C, "source_code": "int main() { return x; }"}));
        assert_eq!((status(&wrong), &wrong["stdout"]), (6, &Value::Null), "{wrong}");
        assert!(wrong["compile_output"].as_str().is_some_and(|text| text.contains("error")), "{wrong}");
        let deep = "int f(int n) { volatile char a[1000]; a[0] = n; return n ? f(n - 1) + a[0] : 0; }\nint main() { return f(20000) * 0; }";
        assert_eq!(status(&submit(&client, &json!({"language_id": C, "source_code": deep}))), 3);
        assert_eq!(
            status(&submit(&client, &json!({"language_id": C, "source_code": deep, "stack_limit": 4096}))),
            7
        );
        let options =
            json!({"language_id": C, "source_code": "int main() { return N; }", "compiler_options": "-DN=0"});
        assert_eq!(status(&submit(&client, &options)), 3);
    }
}

#[test]
fn wrong_submissions_are_refused_by_field() {
    let serving = ServerFixture::with(|settings| {
        settings.maxima = Limits::new().wall(Duration::from_secs(4)).memory(200 << 20);
        settings.tokens = Some(tokens("one first-secret-token-1234\n"));
    });
    let (code, answer) = serving.client().post("/submissions", &json!({}));
    assert!(code == 401 && answer["error"].is_string(), "{answer}");
    let headers = [("X-Auth-Token", "first-secret-token-1234")];
    let refused = |field: &str, value: Value| {
        let mut asked = json!({"language_id": BASH, "source_code": "ZWNobyAx"});
        asked[field] = value;
        let (code, answer) = serving.client().post_with("/submissions?base64_encoded=true", &asked, &headers);
        assert_eq!(code, 422, "{field}: {answer}");
        answer[field][0].as_str().unwrap_or_default().to_owned()
    };
    for (field, value, message) in [
        ("source_code", json!("%%%"), "is not valid base64, which base64_encoded=true asks for"),
        ("stdin", json!("a"), "is not valid base64, which base64_encoded=true asks for"),
        ("language_id", json!("python"), "language with id python doesn't exist"),
        ("cpu_time_limit", json!("soon"), "is not a number"),
        ("cpu_time_limit", json!(-1), "must be greater than or equal to 0"),
        ("wall_time_limit", json!(4.5), "must be less than or equal to 4 (max_wall_ms of this server)"),
        (
            "memory_limit",
            json!(300_000),
            "must be less than or equal to 204800 (max_memory_bytes of this server)",
        ),
        ("memory_limit", json!(1000), "must be greater than or equal to 2048"),
        ("number_of_runs", json!(21), "must be less than or equal to 20"),
        ("enable_network", json!(true), "enabling network is not allowed"),
        ("callback_url", json!("http://127.0.0.1/"), "setting callback is not allowed"),
        ("additional_files", json!("UEsF"), "setting additional files is not allowed"),
        ("enable_per_process_and_thread_time_limit", json!(true), "this option cannot be enabled"),
        ("compiler_options", json!("-O2"), "setting compiler options is only allowed for compiled languages"),
        ("command_line_arguments", json!("x".repeat(513)), "is too long (maximum is 512 characters)"),
    ] {
        assert_eq!(refused(field, value), message, "{field}");
    }
    let client = serving.client_with("first-secret-token-1234");
    assert_eq!(
        client.get("/submissions/unknown?fields=a,token,b"),
        (400, json!({"error": "invalid fields: [a, b]"}))
    );
    let (code, answer) = client.get("/submissions/00000000-0000-4000-8000-000000000000");
    assert!(code == 404 && answer["error"].is_string());
    let (code, answer) = client.post_bytes("/submissions", b"{no JSON");
    assert!(code == 400 && answer["error"].is_string(), "{answer}");
}

#[test]
fn submissions_belong_to_their_token_and_outlive_the_server() {
    let with_tokens = |settings: &mut sandtimer_server::Settings| {
        settings.tokens = Some(tokens("one first-secret-token-1234\ntwo another-secret-token-1\n"));
    };
    let serving = ServerFixture::with(with_tokens);
    let client = serving.client_with("first-secret-token-1234");
    let done = submit(&client, &json!({"language_id": BASH, "source_code": "echo kept"}));
    let path = format!("/submissions/{}", done["token"].as_str().expect("a token"));
    assert_eq!(serving.client_with("another-secret-token-1").get(&path).0, 404);
    let slow = json!({"language_id": BASH, "source_code": "sleep 19", "wall_time_limit": 20});
    let slow = client.post("/submissions", &slow).1["token"].as_str().expect("a token").to_owned();
    wait_until("it is executed", || status(&client.get(&format!("/submissions/{slow}")).1) == 2);
    let again = ServerFixture::at(serving.stop(), with_tokens);
    let client = again.client_with("first-secret-token-1234");
    assert_eq!(client.get(&path), (200, done));
    assert_eq!(status(&client.get(&format!("/submissions/{slow}")).1), 13);
    assert_eq!(again.client_with("another-secret-token-1").get(&path).0, 404);
}

#[test]
fn languages_and_statuses_are_listed() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, languages) = client.get("/languages");
    let bash =
        languages.as_array().expect("a list").iter().find(|language| language["id"] == BASH).expect("bash");
    assert!(bash["name"].as_str().is_some_and(|name| name.starts_with("Bash (5.")), "{bash}");
    assert_eq!(client.get("/languages/all").1, languages);
    let (_, python) = client.get("/languages/71");
    assert_eq!(
        (&python["source_file"], &python["compile_cmd"], &python["run_cmd"]),
        (&json!("main.py"), &Value::Null, &json!("python3 main.py"))
    );
    assert_eq!(client.get("/languages/92").1["name"], python["name"]);
    let (code, answer) = client.get("/languages/1");
    assert!(code == 404 && answer["error"].is_string());
    let (_, statuses) = client.get("/statuses");
    assert_eq!(
        (statuses.as_array().map(Vec::len), &statuses[2]),
        (Some(14), &json!({"id": 3, "description": "Accepted"}))
    );
    let (_, config) = client.get("/config_info");
    assert_eq!((&config["max_cpu_time_limit"], &config["enable_callbacks"]), (&json!(15), &json!(false)));
    // The official client reads each of these.
    for key in
        ["callbacks_max_tries", "max_extract_size", "max_queue_size", "max_memory_limit", "memory_limit"]
    {
        assert!(config[key].is_u64(), "{key}: {config}");
    }
    assert_eq!(client.get("/about").1["version"], "1.13.1");
    let answer = refused_for_its_length(&serving, "/submissions");
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\"error\":"), "{answer}");
}

/// A token that is a path is unknown: the file that it names is not read, nor are devices and
/// fifos.
#[test]
fn tokens_that_are_paths_are_unknown() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let (_, workspace) = client.post("/v1/workspaces", &json!({}));
    let id = workspace["workspace_id"].as_str().expect("an id");
    let command = ["sh", "-c", "ln -s /dev/zero x.json; mkfifo y.json"];
    let made = client.run(&json!({"command": command, "workspace": id}));
    assert_eq!(made["outcome"]["exit_code"], 0, "{made}");
    let tokens: Vec<String> = ["..", "../..", "%2e%2e"]
        .iter()
        .flat_map(|up| ["x", "y"].map(|name| format!("{up}/workspaces/kept/{id}/{name}")))
        .collect();
    let (code, shown) = client.get(&format!("/submissions/batch?tokens={}", tokens.join(",")));
    assert_eq!((code, shown), (200, json!({"submissions": vec![Value::Null; tokens.len()]})));
    let token = tokens[0].replace('/', "%2f");
    assert_eq!(client.get(&format!("/submissions/{token}")).0, 404);
}

/// The queue of one token does not delay another token.
#[test]
fn queue_of_one_token_leaves_turns_to_others() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("one first-secret-token-1234\ntwo another-secret-token-1\n"));
    });
    let one = serving.client_with("first-secret-token-1234");
    // It computes, so that it keeps its turn.
    let busy = json!({
        "language_id": BASH, "source_code": "while :; do :; done", "wall_time_limit": 8, "cpu_time_limit": 15,
    });
    let processors = std::thread::available_parallelism().expect("a number").get();
    let submit_queued = || {
        let (code, created) = one.post("/submissions", &busy);
        assert_eq!(code, 201, "{created}");
        created["token"].as_str().expect("a token").to_owned()
    };
    let all: Vec<String> = (0..5 * processors).map(|_| submit_queued()).collect();
    let status_of = |token: &String| {
        let shown = one.get(&format!("/submissions/{token}?fields=status_id")).1;
        shown["status_id"].as_u64().expect("a status")
    };
    let count = |wanted: u64| all.iter().filter(|token| status_of(token) == wanted).count();
    wait_until("the turns of the token are taken", || count(2) >= 3 * processors);
    let two = serving.client_with("another-secret-token-1");
    let other = submit(&two, &json!({"language_id": BASH, "source_code": "echo other"}));
    assert_eq!((&other["stdout"], count(5)), (&json!("other\n"), 0), "{other}");
}
