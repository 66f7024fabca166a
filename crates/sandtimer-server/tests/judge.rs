//! `POST /v1/judge`: programs and cases against a real server.

use crate::support;

use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens};

fn judge(client: &TestClient, request: &Value) -> Value {
    let (status, judgement) = client.post("/v1/judge", request);
    assert_eq!(status, 200, "{judgement}");
    judgement
}

fn verdicts(judgement: &Value) -> Vec<&str> {
    let cases = judgement["cases"].as_array().expect("cases");
    cases.iter().map(|case| case["verdict"].as_str().expect("a verdict")).collect()
}

fn cases(expected: &[(&str, &str)]) -> Value {
    expected.iter().map(|(stdin, expected)| json!({"stdin": stdin, "expected": expected})).collect()
}

#[test]
fn cases_have_verdicts_outcomes_and_scores() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let code =
        "import sys\nline = input()\nif line == 'hang':\n    while True: pass\nprint(int(line) ** 2)\n";
    let given = cases(&[("3", "9\n\n"), ("4", "15"), ("x", "0"), ("hang", "0"), ("5", " 25")]);
    let judgement = judge(&client, &json!({"code": code, "cases": given, "wall_ms": 2_000}));
    let expected = ["accepted", "wrong_answer", "runtime_error", "timeout", "accepted"];
    assert_eq!(verdicts(&judgement), expected, "{judgement}");
    assert_eq!((&judgement["passed"], &judgement["score"]), (&json!(false), &json!(0.4)));
    let hang = &judgement["cases"][3];
    assert_eq!(
        (&hang["outcome"]["ending"], &hang["outcome"]["tree"]["survivors"]),
        (&json!("timeout"), &json!(0))
    );
    let run_id = judgement["cases"][0]["run_id"].as_str().expect("an id");
    assert_eq!(client.get(&format!("/v1/runs/{run_id}")).1["outcome"]["stdout"], "9\n");
}

#[test]
fn expected_answers_never_enter_a_run() {
    let serving = ServerFixture::start();
    let client = serving.client();
    // All that a program may read of itself and of its environment.
    let code = "import glob, os, sys\n\
        parts = [sys.stdin.read(), repr(dict(os.environ)), repr(sys.argv)]\n\
        for path in glob.glob('/proc/*/cmdline') + glob.glob('/proc/*/environ') + glob.glob('/tmp/**', recursive=True):\n\
        \x20   try: parts.append(open(path, errors='replace').read())\n\
        \x20   except OSError: pass\n\
        print('found' if 'forty' + '-two' in ''.join(parts) else 'nothing')\n";
    let given = json!([{"stdin": "given", "expected": "forty-two"}]);
    let judgement = judge(&client, &json!({"code": code, "cases": given, "wall_ms": 20_000}));
    assert_eq!(judgement["cases"][0]["outcome"]["stdout"], "nothing\n", "{judgement}");
    let control = json!([{"stdin": "forty-two", "expected": "found"}]);
    let judgement = judge(&client, &json!({"code": code, "cases": control, "wall_ms": 20_000}));
    assert_eq!(verdicts(&judgement), ["accepted"], "{judgement}");
}

#[test]
fn judging_stops_early_and_within_its_total() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let given = cases(&[("1", "1"), ("2", "3"), ("3", "3"), ("4", "4")]);
    let request = json!({"code": "print(input())", "cases": given, "wall_ms": 20_000, "stop_early": true});
    assert_eq!(verdicts(&judge(&client, &request)), ["accepted", "wrong_answer", "not_run", "not_run"]);
    let given = cases(&[("", ""); 40]);
    let request =
        json!({"code": "import time; time.sleep(60)", "cases": given, "wall_ms": 60_000, "total_ms": 500});
    let judgement = judge(&client, &request);
    let verdicts = verdicts(&judgement);
    assert_eq!((verdicts[0], verdicts[39]), ("timeout", "not_run"), "{verdicts:?}");
    let verdict = &judgement["cases"][0]["outcome"]["verdict"];
    assert_eq!((&verdict["layer"], &verdict["scope"]), (&json!("call"), &json!("judge")), "{verdict}");
    assert_eq!(verdict["limit_ms"], 500, "the limit of all cases is the one that is named: {verdict}");
}

#[test]
fn compile_error_is_reported() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let request = json!({"code": "const x: = 1", "language": "ts", "cases": cases(&[("", ""), ("", "")]), "wall_ms": 20_000});
    let judgement = judge(&client, &request);
    assert_eq!(verdicts(&judgement), ["compile_error", "compile_error"], "{judgement}");
    assert!(judgement["error"].as_str().is_some_and(|text| text.contains("main.ts:1")), "{judgement}");
    // The error is Python's own, and nothing of the program is executed.
    let request =
        json!({"code": "print('SyntaxError')\nprint((", "cases": cases(&[("", "")]), "wall_ms": 20_000});
    let judgement = judge(&client, &request);
    assert_eq!(verdicts(&judgement), ["compile_error"], "{judgement}");
    let error = judgement["error"].as_str().expect("text");
    assert!(error.contains("File \"main.py\", line 2") && error.contains("\nSyntaxError: "), "{error}");
    let request =
        json!({"code": "raise SyntaxError('mine')", "cases": cases(&[("", "")]), "wall_ms": 20_000});
    assert_eq!(verdicts(&judge(&client, &request)), ["runtime_error"]);
}

#[test]
fn long_output_is_shortened_and_judged_whole() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let line = "0123456789".repeat(10);
    let expected = format!("{}end", format!("{line}\n").repeat(2_000));
    let code = format!("print('{line}\\n' * 2000 + 'end')");
    let judgement =
        judge(&client, &json!({"code": code, "cases": [{"expected": expected}], "wall_ms": 20_000}));
    let case = &judgement["cases"][0];
    assert_eq!(case["verdict"], "accepted");
    assert_eq!(case["outcome"]["stdout"].as_str().map(str::len), Some(64 << 10));
    assert_eq!(
        (&case["outcome"]["stdout_truncated"], &case["outcome"]["remarks"][0]["kind"]),
        (&json!(true), &json!("shortened"))
    );
    let changed = expected.replacen("end", "ent", 1);
    let judgement =
        judge(&client, &json!({"code": code, "cases": [{"expected": changed}], "wall_ms": 20_000}));
    assert_eq!(verdicts(&judgement), ["wrong_answer"]);
    let request =
        json!({"code": code, "cases": [{"expected": expected}], "wall_ms": 20_000, "output_bytes": 1_000});
    assert_eq!(
        verdicts(&judge(&client, &request)),
        ["output_limit"],
        "what it printed in between is not known"
    );
}

#[test]
fn cases_without_comparison_are_the_clients() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let request =
        json!({"code": "print(input())", "checker": "none", "cases": [{"stdin": "a"}], "wall_ms": 20_000});
    let judgement = judge(&client, &request);
    assert_eq!(
        (verdicts(&judgement), &judgement["passed"]),
        (vec!["not_compared"], &json!(false)),
        "{judgement}"
    );
    assert_eq!(judgement["cases"][0]["outcome"]["stdout"], "a\n");
}

#[test]
fn bad_requests_start_nothing() {
    let serving =
        ServerFixture::with(|settings| settings.tokens = Some(tokens("a secret-of-a-0123456789\n")));
    let client = serving.client_with("secret-of-a-0123456789");
    let (status, error) = client.post("/v1/judge", &json!({"code": "x", "cases": [{"stdin": "1"}]}));
    assert_eq!(
        (status, &error["code"], &error["details"]["case"]),
        (400, &json!("bad_field"), &json!(0)),
        "{error}"
    );
    let (status, error) =
        client.post("/v1/judge", &json!({"code": "x", "cases": cases(&[("", "")]), "wall_ms": -1}));
    assert_eq!((status, &error["code"]), (400, &json!("bad_limit")), "{error}");
    assert_eq!(client.get("/v1/runs").1["total"], 0);
    assert_eq!(serving.client().post("/v1/judge", &json!({})).0, 401);
}
