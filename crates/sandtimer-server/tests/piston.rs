//! Piston's `/api/v2`: requests as its clients send them, against a real server and real programs.

use crate::support;

use std::time::Duration;

use sandtimer::Limits;
use serde_json::{Value, json};
use support::{ServerFixture, TestClient, refused_for_its_length, tokens};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn post(client: &TestClient, request: &Value) -> (u16, Value) {
    client.post_with("/api/v2/execute", request, &[JSON])
}

fn run(client: &TestClient, request: &Value) -> Value {
    let (status, answer) = post(client, request);
    assert_eq!(status, 200, "{answer}");
    answer
}

fn program(language: &str, content: &str) -> Value {
    json!({"language": language, "version": "*", "files": [{"content": content}]})
}

/// Whether a language is installed; prints that the test skips it if it is not.
#[allow(clippy::disallowed_macros, reason = "a test says what it skips")]
fn is_served(client: &TestClient, language: &str) -> bool {
    let runtimes = client.get("/api/v2/runtimes").1;
    let runtimes = runtimes.as_array().expect("a list");
    let is_there = runtimes.iter().any(|runtime| runtime["language"] == language);
    if !is_there {
        println!("skipped: this host does not have {language}");
    }
    is_there
}

#[test]
fn runtimes_are_what_is_installed() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for path in ["/api/v2/runtimes", "/api/v2/piston/runtimes"] {
        let (status, runtimes) = client.get(path);
        let runtimes = runtimes.as_array().expect("a list");
        let python = runtimes.iter().find(|runtime| runtime["language"] == "python").expect("python");
        assert_eq!((status, &python["aliases"]), (200, &json!(["py", "py3", "python3"])));
        let version = python["version"].as_str().expect("a version");
        assert_eq!(version.split('.').count(), 3, "{version}");
        let answer =
            run(&client, &json!({"language": "py", "version": version, "files": [{"content": "print(1)"}]}));
        assert_eq!((&answer["language"], &answer["version"]), (&json!("python"), &python["version"]));
    }
    // The interface of Cloudflare's containers is still below /api.
    assert_eq!(client.get("/api/ping").1["message"], "pong");
}

#[test]
fn programs_end_as_clients_read_it() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let mut asked = program("python", "import sys\nprint(sys.argv[1:], input(), sep='|')");
    asked["stdin"] = json!("line");
    asked["args"] = json!(["a", "b c"]);
    let answer = run(&client, &asked);
    let result = &answer["run"];
    assert_eq!(result["stdout"], "['a', 'b c']|line\n", "{answer}");
    assert_eq!(
        (&result["code"], &result["signal"], &result["status"], &result["message"]),
        (&json!(0), &Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!((&result["output"], &answer.get("compile")), (&result["stdout"], &None));
    for key in ["cpu_time", "wall_time", "memory"] {
        assert!(result[key].is_u64(), "{key}: {answer}");
    }
    let answer = run(&client, &program("bash", "echo out; echo err >&2; exit 7"));
    let result = &answer["run"];
    assert_eq!(
        (&result["code"], &result["status"], &result["message"]),
        (&json!(7), &json!("RE"), &json!("Exited with error status 7"))
    );
    assert_eq!((&result["stderr"], &result["output"]), (&json!("err\n"), &json!("out\nerr\n")));
    let answer = run(&client, &program("bash", "kill -ABRT $$"));
    assert_eq!(
        (&answer["run"]["signal"], &answer["run"]["code"], &answer["run"]["status"]),
        (&json!("SIGABRT"), &Value::Null, &json!("SG"))
    );
}

#[test]
fn limits_end_programs_with_their_reason() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let with = |mut asked: Value, name: &str, value: u64| {
        asked[name] = value.into();
        run(&client, &asked)["run"].clone()
    };
    let late = with(program("bash", "echo before; sleep 60"), "run_timeout", 400);
    assert_eq!(
        (&late["status"], &late["signal"], &late["code"], &late["stdout"]),
        (&json!("TO"), &json!("SIGKILL"), &Value::Null, &json!("before\n")),
        "{late}"
    );
    assert!(
        late["message"].as_str().is_some_and(
            |text| text.starts_with("Time limit exceeded (wall clock): ") && text.contains("400 ms")
        ),
        "{late}"
    );
    // Without one it has Piston's own.
    let late = run(&client, &program("bash", "sleep 60"));
    assert!(late["run"]["message"].as_str().is_some_and(|text| text.contains("3 s")), "{late}");
    let busy = with(program("bash", "while :; do :; done"), "run_cpu_time", 300);
    assert!(
        busy["status"] == "TO"
            && busy["message"].as_str().is_some_and(|text| text.starts_with("Time limit exceeded: ")),
        "{busy}"
    );
    let hungry = with(program("python", "x = bytearray(600 << 20)"), "run_memory_limit", 200 << 20);
    assert_eq!((&hungry["status"], &hungry["signal"]), (&json!("SG"), &json!("SIGKILL")), "{hungry}");
    let serving = ServerFixture::with(|settings| {
        settings.defaults = sandtimer_server::Defaults::for_all(vec![(
            sandtimer::model::Source::Config,
            Limits::new().output(4_096),
        )]);
    });
    let long = run(&serving.client(), &program("bash", "while :; do echo xxxxxxxxxxxxxxx; done"));
    assert_eq!(
        (&long["run"]["status"], &long["run"]["signal"]),
        (&json!("OL"), &json!("SIGKILL")),
        "{}",
        long["run"]["message"]
    );
    assert!(long["run"]["message"].as_str().is_some_and(|text| text.starts_with("stdout length exceeded")));
    let long = run(&serving.client(), &program("bash", "while :; do echo xxxxxxxxxxxxxxx >&2; done"));
    assert_eq!(long["run"]["status"], "EL");
}

#[test]
fn compiled_programs_have_a_stage_of_their_own() {
    let serving = ServerFixture::start();
    let client = serving.client();
    if is_served(&client, "c++") {
        let files = json!([
            {"name": "main.cpp", "content": "#include \"twice.h\"\n#include <cstdio>\nint main(int n, char **a) { printf(\"%d %s\\n\", twice(21), a[1]); }"},
            {"name": "twice.h", "content": "int twice(int);"},
            {"name": "twice.cpp", "content": "int twice(int n) { return 2 * n; }"},
            {"name": "data.bin", "content": "ff00", "encoding": "hex"},
        ]);
        let asked = json!({"language": "cpp", "version": "*", "files": files, "args": ["x"]});
        let answer = run(&client, &asked);
        assert_eq!(
            (&answer["compile"]["code"], &answer["run"]["stdout"]),
            (&json!(0), &json!("42 x\n")),
            "{answer}"
        );
        assert_eq!(answer["language"], "c++");
        let wrong = run(&client, &program("c++", "int main() { return x; }"));
        assert_eq!((&wrong["compile"]["code"], &wrong["run"]), (&json!(1), &wrong["compile"]), "{wrong}");
        assert!(wrong["compile"]["stderr"].as_str().is_some_and(|text| text.contains("error")));
    }
    if is_served(&client, "c") {
        let answer = run(
            &client,
            &program(
                "gcc",
                "#include <math.h>\n#include <stdio.h>\nint main() { double x; scanf(\"%lf\", &x); printf(\"%f\\n\", sqrt(2)); }",
            ),
        );
        assert_eq!(answer["run"]["stdout"], "1.414214\n", "{answer}");
    }
    if is_served(&client, "java") {
        let asked = json!({"language": "java", "version": "*", "run_timeout": 20_000, "compile_timeout": 60_000, "files": [{
            "name": "Other.java",
            "content": "public class Other { public static void main(String[] a) { System.out.println(\"other\"); } }",
        }]});
        let answer = run(&client, &asked);
        assert_eq!(answer["run"]["stdout"], "other\n", "{answer}");
    }
    if is_served(&client, "typescript") {
        let asked = json!({"language": "ts", "version": "*", "files": [{"content": "console.log(process.argv.slice(2) as string[])"}], "args": ["x"]});
        assert_eq!(run(&client, &asked)["run"]["stdout"], "[ 'x' ]\n");
    }
}

#[test]
fn wrong_requests_are_refused_as_there() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let file = json!([{"content": "1"}]);
    for (asked, message) in [
        (json!({"version": "*", "files": file}), "language is required as a string"),
        (json!({"language": "python", "files": file}), "version is required as a string"),
        (json!({"language": "python", "version": "*"}), "files is required as an array"),
        (
            json!({"language": "python", "version": "*", "files": [{}]}),
            "files[0].content is required as a string",
        ),
        (json!({"language": "python", "version": "1.2.3", "files": file}), "python-1.2.3 runtime is unknown"),
        (json!({"language": "cobol", "version": "*", "files": file}), "cobol-* runtime is unknown"),
        (
            json!({"language": "python", "version": "*", "files": [{"content": "", "encoding": "base64"}]}),
            "files must include at least one utf8 encoded file",
        ),
        (
            json!({"language": "python", "version": "*", "files": file, "run_timeout": "1"}),
            "If specified, run_timeout must be a number",
        ),
        (
            json!({"language": "python", "version": "*", "files": file, "run_timeout": -5}),
            "run_timeout must be non-negative",
        ),
        (
            json!({"language": "python", "version": "*", "files": [{"content": "1"}, {"content": "%%", "encoding": "base64"}]}),
            "files[1].content is not base64",
        ),
        (
            json!({"language": "python", "version": "*", "files": [{"content": "1"}, {"content": "f", "encoding": "hex"}]}),
            "files[1].content is not hex",
        ),
    ] {
        let (status, answer) = post(&client, &asked);
        assert_eq!((status, &answer["message"]), (400, &json!(message)), "{asked}");
    }
    let (status, answer) = post(
        &client,
        &json!({"language": "python", "version": "*", "files": [{"name": "../a", "content": "1"}]}),
    );
    assert!(
        status == 400 && answer["message"].as_str().is_some_and(|text| text.starts_with("files[0].name: ")),
        "{answer}"
    );
    let (status, answer) =
        client.post_with("/api/v2/execute", &program("python", "1"), &[("Content-Type", "text/plain")]);
    assert_eq!((status, &answer["message"]), (415, &json!("requests must be of type application/json")));
    let (status, answer) = client.get("/api/v2/packages");
    assert_eq!((status, answer), (404, json!({"message": "Not Found"})));
    let answer = refused_for_its_length(&serving, "/api/v2/execute");
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\"message\":"), "{answer}");
}

#[test]
fn ceilings_are_those_of_the_server_and_the_token() {
    let serving = ServerFixture::with(|settings| {
        settings.maxima = Limits::new().wall(Duration::from_secs(5));
        settings.tokens = Some(tokens("one first-secret-token-1234 max_wall_ms=2s max_memory_bytes=100M\n"));
    });
    let asked = |name: &str, value: u64| {
        let mut asked = program("bash", "echo hello");
        asked[name] = value.into();
        asked
    };
    let (status, answer) = post(&serving.client(), &asked("run_timeout", 1));
    assert!(status == 401 && answer["message"].is_string(), "{answer}");
    let headers = [JSON, ("Authorization", "Bearer first-secret-token-1234")];
    let post = |asked: &Value| serving.client().post_with("/api/v2/execute", asked, &headers);
    let (status, answer) = post(&asked("run_timeout", 2_001));
    assert_eq!(
        (status, &answer["message"]),
        (400, &json!("run_timeout cannot exceed the configured limit of 2000 (max_wall_ms of this server)"))
    );
    let (status, answer) = post(&asked("run_memory_limit", 200 << 20));
    assert_eq!(
        (status, &answer["message"]),
        (
            400,
            &json!(
                "run_memory_limit cannot exceed the configured limit of 104857600 (max_memory_bytes of this server)"
            )
        )
    );
    assert_eq!(post(&asked("run_timeout", 2_000)).1["run"]["stdout"], "hello\n");
}
