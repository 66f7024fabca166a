//! SandboxFusion's `/run_code` and `/run_jupyter`: requests as its clients send them, against a
//! real server and real programs.

use crate::support;

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sandtimer::Limits;
use serde_json::{Value, json};
use support::{ServerFixture, TestClient, refused_for_its_length, tokens};

/// The request of verl's reward function.
fn request(language: &str, code: &str, stdin: &str, timeout: u64) -> Value {
    json!({
        "compile_timeout": timeout, "run_timeout": timeout, "code": code, "stdin": stdin,
        "memory_limit_MB": 1024, "language": language, "files": {}, "fetch_files": [],
    })
}

fn run(client: &TestClient, request: &Value) -> Value {
    let (status, answer) = client.post("/run_code", request);
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Whether a language is installed; prints that the test skips it if it is not.
#[allow(clippy::disallowed_macros, reason = "a test says what it skips")]
fn is_served(client: &TestClient, language: &str) -> bool {
    let answer = run(client, &request(language, "", "", 20));
    let is_there = !answer["message"].as_str().is_some_and(|text| text.contains("does not have"));
    if !is_there {
        println!("skipped: this host does not have {language}");
    }
    is_there
}

#[test]
fn programs_end_as_clients_read_it() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let echo = run(&client, &request("python", "import sys\nprint(sys.stdin.read() + '!')", "a\nb", 10));
    assert_eq!((&echo["status"], &echo["message"]), (&json!("Success"), &json!("")), "{echo}");
    let result = &echo["run_result"];
    assert_eq!((&result["status"], &result["return_code"]), (&json!("Finished"), &json!(0)));
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("a\nb!\n"), &json!("")));
    assert!(result["execution_time"].as_f64().is_some_and(|seconds| seconds < 10.0), "{result}");
    assert!(echo["compile_result"].is_null() && echo["executor_pod_name"].is_null());
    let code = run(&client, &request("bash", "echo out; echo err >&2; exit 3", "", 10));
    assert_eq!((&code["status"], &code["run_result"]["return_code"]), (&json!("Failed"), &json!(3)));
    assert_eq!(code["run_result"]["stderr"], "err\n");
    let raised = run(&client, &request("python", "raise ValueError('no')", "", 10));
    assert_eq!((&raised["status"], &raised["run_result"]["return_code"]), (&json!("Failed"), &json!(1)));
    assert!(raised["run_result"]["stderr"].as_str().is_some_and(|text| text.contains("ValueError: no")));
    let signal = run(&client, &request("bash", "kill -SEGV $$", "", 10));
    assert_eq!(signal["run_result"]["return_code"], -11, "{signal}");
}

#[test]
fn limits_end_programs_with_their_reason() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let sleeps = "print('before', flush=True)\nimport time\ntime.sleep(60)";
    let late = run(&client, &json!({"code": sleeps, "language": "python", "run_timeout": 0.5}));
    assert_eq!(late["status"], "Failed", "{late}");
    let result = &late["run_result"];
    assert_eq!((&result["status"], &result["return_code"]), (&json!("TimeLimitExceeded"), &Value::Null));
    assert_eq!(result["stdout"], "before\n");
    assert!(late["message"].as_str().is_some_and(|text| text.contains("500 ms")), "{late}");
    let hungry = json!({
        "code": "x = bytearray(600 << 20)\nprint(len(x))", "language": "python", "memory_limit_MB": 200,
    });
    let hungry = run(&client, &hungry);
    assert_eq!((&hungry["status"], &hungry["run_result"]["status"]), (&json!("Failed"), &json!("Finished")));
    assert_ne!(hungry["run_result"]["return_code"], 0, "{hungry}");
    // Output that is larger than a pipe does not cause a timeout.
    let long = run(&client, &request("python", "print('x' * 400_000)", "", 10));
    assert_eq!(
        (&long["status"], long["run_result"]["stdout"].as_str().map(str::len)),
        (&json!("Success"), Some(400_001))
    );
    let longer = run(&client, &request("python", "print('x' * 3_000_000)", "", 10));
    assert_eq!(longer["run_result"]["stdout"].as_str().map(str::len), Some(1 << 20), "{}", longer["status"]);
    assert!(longer["message"].as_str().is_some_and(|text| text.contains("stdout")), "{}", longer["message"]);
}

#[test]
fn nothing_of_a_program_survives() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let daemon = "setsid sleep 300 >/dev/null 2>&1 & echo started; sleep 300";
    let late = run(&client, &json!({"code": daemon, "language": "bash", "run_timeout": 0.5}));
    assert_eq!(late["run_result"]["stdout"], "started\n");
    let runs = client.get("/v1/runs?status=ended").1;
    let id = runs["runs"][0]["run_id"].as_str().expect("its run");
    let outcome = client.ended(id)["outcome"].clone();
    assert_eq!(
        (&outcome["ending"], &outcome["tree"]["survivors"]),
        (&json!("timeout"), &json!(0)),
        "{outcome}"
    );
}

#[test]
fn operators_ceilings_bound_programs() {
    let serving = ServerFixture::with(|settings| {
        settings.maxima = Limits::new().wall(std::time::Duration::from_millis(700));
    });
    let late = run(&serving.client(), &request("bash", "sleep 60", "", 50));
    assert_eq!(late["run_result"]["status"], "TimeLimitExceeded", "{late}");
    assert!(late["message"].as_str().is_some_and(|text| text.contains("700 ms")), "{late}");
}

#[test]
fn compiled_programs_are_compiled_once() {
    let serving = ServerFixture::start();
    let client = serving.client();
    if !is_served(&client, "cpp") {
        return;
    }
    let runs = || client.get("/v1/runs").1["total"].as_u64().expect("a count");
    let code = "#include <iostream>\nint main() { long n; std::cin >> n; std::cout << n * n << std::endl; }";
    let before = runs();
    for (index, number) in [7, 9].into_iter().enumerate() {
        let answer = run(&client, &request("cpp", code, &number.to_string(), 30));
        assert_eq!(answer["status"], "Success", "{answer}");
        assert_eq!(answer["run_result"]["stdout"], format!("{}\n", number * number));
        assert_eq!(answer["compile_result"]["return_code"], 0);
        // The first one is compiled and run.
        assert_eq!(runs() - before, 2 + index as u64);
    }
    let wrong = run(&client, &request("cpp", "a=b", "", 30));
    assert_eq!((&wrong["status"], &wrong["run_result"]), (&json!("Failed"), &Value::Null), "{wrong}");
    assert_eq!(
        (&wrong["compile_result"]["status"], &wrong["compile_result"]["return_code"]),
        (&json!("Finished"), &json!(1))
    );
    assert!(wrong["compile_result"]["stderr"].as_str().is_some_and(|text| text.contains("error")));
    let crash = "int main() { int *p = nullptr; *p = 1; }";
    assert_eq!(run(&client, &request("cpp", crash, "", 30))["run_result"]["return_code"], -11);
    let slow = "#include \"/dev/zero\"\nint main() {}";
    let slow =
        run(&client, &json!({"code": slow, "language": "cpp", "compile_timeout": 0.3, "run_timeout": 30}));
    assert_eq!(slow["status"], "Failed", "{slow}");
}

#[test]
fn other_languages_are_served_as_far_as_they_are_installed() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (language, code) in [
        ("nodejs", "console.log('hello')"),
        ("typescript", "const word: string = 'hello'; console.log(word)"),
        ("perl", "print \"hello\\n\""),
        (
            "java",
            "public class Main { public static void main(String[] a) { System.out.println(\"hello\"); } }",
        ),
        ("rust", "fn main() { println!(\"hello\"); }"),
        ("go", "package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"hello\") }"),
    ] {
        if is_served(&client, language) {
            let answer = run(&client, &request(language, code, "", 60));
            assert_eq!(
                (&answer["status"], &answer["run_result"]["stdout"]),
                (&json!("Success"), &json!("hello\n")),
                "{answer}"
            );
        }
    }
    let wrong = run(&client, &request("typescript", "const x: = 1", "", 10));
    assert_eq!(wrong["status"], "Failed", "{wrong}");
}

#[test]
fn files_are_sent_and_fetched() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let code = "print(open('a/in.txt').read()); open('out.bin', 'wb').write(b'\\xff\\x00')";
    let asked = json!({
        "code": code, "language": "python",
        "files": {"a/in.txt": BASE64_STANDARD.encode("within"), "skipped": null},
        "fetch_files": ["out.bin", "missing"],
    });
    let answer = run(&client, &asked);
    assert_eq!(answer["run_result"]["stdout"], "within\n", "{answer}");
    assert_eq!(answer["files"], json!({"out.bin": BASE64_STANDARD.encode(b"\xff\x00")}));
    for (files, reason) in [
        (json!({"a": "%%%"}), "the content of `a` is not base64"),
        (json!({"../a": ""}), "has a `..`"),
        (json!({"/etc/a": ""}), "outside of the workspace"),
    ] {
        let answer = run(&client, &json!({"code": "1", "language": "python", "files": files}));
        assert_eq!(answer["status"], "SandboxError", "{answer}");
        assert!(answer["message"].as_str().is_some_and(|text| text.contains(reason)), "{answer}");
    }
    // Nothing is left of their directories.
    let own = serving.state.path().join("workspaces/own");
    support::wait_until("the directories are removed", || {
        std::fs::read_dir(&own).expect("a directory").count() == 0
    });
}

#[test]
fn wrong_requests_are_refused_as_there() {
    let serving = ServerFixture::start();
    let client = serving.client();
    for (asked, field) in [
        (json!({"language": "python"}), "code"),
        (json!({"code": "1"}), "language"),
        (json!({"code": "1", "language": "cobol"}), "language"),
        (json!({"code": 1, "language": "python"}), "code"),
        (json!({"code": "1", "language": "python", "run_timeout": "soon"}), "run_timeout"),
        (json!({"code": "1", "language": "python", "run_timeout": -1}), "run_timeout"),
        (json!({"code": "1", "language": "python", "memory_limit_MB": "much"}), "memory_limit_MB"),
        (json!({"code": "1", "language": "python", "files": []}), "files"),
        (json!({"code": "1", "language": "python", "fetch_files": "a"}), "fetch_files"),
    ] {
        let (status, answer) = client.post("/run_code", &asked);
        assert_eq!(status, 422, "{asked}: {answer}");
        assert_eq!(answer["detail"][0]["loc"], json!(["body", field]), "{answer}");
        assert!(answer["detail"][0]["msg"].as_str().is_some_and(|text| text.contains(field)), "{answer}");
    }
    let (status, answer) = client.post_bytes("/run_code", b"{no JSON");
    assert!(status == 422 && answer["detail"][0]["msg"].is_string(), "{answer}");
    let (status, answer) = client.get("/run_code");
    assert!(status == 405 && answer["detail"].is_string(), "{answer}");
    let answer = run(&client, &request("verilog", "module", "", 10));
    assert_eq!(answer["status"], "SandboxError");
    assert!(
        answer["message"]
            .as_str()
            .is_some_and(|text| text.contains("does not have `verilog`; it has python")),
        "{answer}"
    );
    let answer = refused_for_its_length(&serving, "/run_code");
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("\"detail\":"), "{answer}");
}

#[test]
fn tokens_come_as_bearer_or_in_the_address() {
    let serving =
        ServerFixture::with(|settings| settings.tokens = Some(tokens("one first-secret-token-1234\n")));
    let asked = request("bash", "echo hello", "", 10);
    let (status, answer) = serving.client().post("/run_code", &asked);
    assert!(status == 401 && answer["detail"].is_string(), "{answer}");
    let (status, _) = serving.client_with("first-secret-token-1234").post("/run_code", &asked);
    assert_eq!(status, 200);
    let basic = |token: &str| {
        let pair = BASE64_STANDARD.encode(format!("any:{token}"));
        serving.client().post_with("/run_code", &asked, &[("Authorization", &format!("Basic {pair}"))])
    };
    assert_eq!(basic("first-secret-token-1234").0, 200);
    assert_eq!(basic("another").0, 401);
    // Elsewhere it is none.
    let pair = BASE64_STANDARD.encode("any:first-secret-token-1234");
    assert_eq!(serving.client().get_with("/v1/runs", &[("Authorization", &format!("Basic {pair}"))]).0, 401);
}

#[test]
fn quotas_make_programs_wait() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("one first-secret-token-1234 runs=1\n"));
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let client = serving.client_with("first-secret-token-1234");
                let answer = run(&client, &request("bash", "sleep 0.2; echo done", "", 10));
                assert_eq!(answer["run_result"]["stdout"], "done\n", "{answer}");
            });
        }
    });
}

#[test]
fn many_clients_at_once_are_all_served() {
    let serving = ServerFixture::start();
    let wrong = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for index in 0..64 {
            let (serving, wrong) = (&serving, &wrong);
            scope.spawn(move || {
                let client = serving.client();
                for round in 0..3 {
                    let code =
                        "import sys\nn = int(sys.stdin.read())\nprint(sum(range(n % 1000 + 100_000)) and n)";
                    let stdin = (index * 100 + round).to_string();
                    let answer = run(&client, &request("python", code, &stdin, 10));
                    let stdout = answer["run_result"]["stdout"].as_str().unwrap_or_default();
                    wrong.fetch_add(usize::from(stdout.trim_end() != stdin), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(wrong.into_inner(), 0);
}

#[test]
fn cells_of_a_notebook_share_an_interpreter() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let cells = [
        "a = 'hello'",
        "a",
        "print(a)",
        "import sys; sys.stderr.write('err')",
        "assert False",
        "print(a)",
        "open('f', 'w').write(a);",
    ];
    let asked = json!({"cells": cells, "fetch_files": ["f"], "files": {"g": BASE64_STANDARD.encode("x")}});
    let (status, answer) = client.post("/run_jupyter", &asked);
    assert_eq!((status, &answer["status"]), (200, &json!("Success")), "{answer}");
    assert_eq!(answer["driver"]["status"], "Finished");
    let cells = answer["cells"].as_array().expect("cells");
    assert_eq!(cells[1]["display"][0]["text/plain"], "'hello'");
    assert_eq!((&cells[2]["stdout"], &cells[3]["stderr"]), (&json!("hello\n"), &json!("err")));
    assert_eq!(
        (&cells[4]["error"][0]["ename"], &cells[5]["stdout"]),
        (&json!("AssertionError"), &json!("hello\n"))
    );
    assert_eq!(answer["files"]["f"], BASE64_STANDARD.encode("hello"));
    let slow = json!({"cells": ["print(1)", "while True: pass", "print(3)"], "cell_timeout": 0.5});
    let (_, answer) = client.post("/run_jupyter", &slow);
    assert_eq!(
        (&answer["status"], &answer["driver"]["status"]),
        (&json!("Failed"), &json!("TimeLimitExceeded")),
        "{answer}"
    );
    assert_eq!(
        (answer["cells"].as_array().map(Vec::len), &answer["cells"][0]["stdout"]),
        (Some(2), &json!("1\n"))
    );
    let slow = json!({"cells": ["import time; time.sleep(60)"], "total_timeout": 0.5});
    assert_eq!(client.post("/run_jupyter", &slow).1["driver"]["status"], "TimeLimitExceeded");
    for (asked, field) in [(json!({}), "cells"), (json!({"cells": [], "kernel": "r"}), "kernel")] {
        let (status, answer) = client.post("/run_jupyter", &asked);
        assert_eq!((status, &answer["detail"][0]["loc"][1]), (422, &json!(field)), "{answer}");
    }
    support::wait_until("the interpreters are closed", || {
        client.get("/v1/contexts").1["contexts"].as_array().is_some_and(Vec::is_empty)
    });
}

/// A compiler that a limit ends is started once for all requests that wait for it.
#[test]
fn compile_timeout_is_shared_by_requests_that_wait() {
    let serving = ServerFixture::start();
    let client = serving.client();
    if !is_served(&client, "cpp") {
        return;
    }
    let before = client.get("/v1/runs").1["total"].as_u64().expect("a count");
    let code = "template<int N, int M> struct F { enum { v = (F<N-1, M>::v + F<N-1, M+1>::v) & 1 }; };\n\
                template<int M> struct F<0, M> { enum { v = M & 1 }; };\nint main() { return F<850, 0>::v; }";
    let asked = json!({"code": code, "language": "cpp", "compile_timeout": 2, "run_timeout": 5});
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|_| {
                let (client, asked) = (serving.client(), &asked);
                scope.spawn(move || run(&client, asked))
            })
            .collect();
        for answer in asking {
            let answer = answer.join().expect("answered");
            assert_eq!(answer["compile_result"]["status"], "TimeLimitExceeded", "{answer}");
        }
    });
    assert_eq!(client.get("/v1/runs").1["total"], before + 1);
}

#[test]
fn failure_at_a_limit_is_not_cached() {
    let serving = ServerFixture::with(|settings| settings.maxima = Limits::new().processes(1));
    if !is_served(&serving.client(), "cpp") {
        return;
    }
    let asked = request("cpp", "int main() { return 0; }", "", 20);
    let failed = run(&serving.client(), &asked);
    assert_eq!((&failed["status"], &failed["run_result"]), (&json!("Failed"), &Value::Null), "{failed}");
    let again = ServerFixture::at(serving.stop(), |_| {});
    let answer = run(&again.client(), &asked);
    assert_eq!(answer["status"], "Success", "{answer}");
}

/// A cell that only waits releases its turn.
#[test]
fn idle_cells_leave_their_turns() {
    let serving = ServerFixture::start();
    let processors = std::thread::available_parallelism().expect("a number").get();
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 * processors {
            scope.spawn(|| {
                let asked = json!({"cells": ["import time; print('x', flush=True); time.sleep(7)"]});
                let answer = serving.client().post("/run_jupyter", &asked).1;
                ended.fetch_add(1, Ordering::SeqCst);
                assert_eq!(answer["status"], "Success", "{answer}");
            });
        }
        let client = serving.client();
        let executed = || client.get("/v1/runs").1["total"].as_u64().unwrap_or(0) >= 3 * processors as u64;
        support::wait_until("all cells are executed", executed);
        let answer = run(&client, &request("bash", "echo 1", "", 10));
        assert_eq!((&answer["run_result"]["stdout"], ended.load(Ordering::SeqCst)), (&json!("1\n"), 0));
    });
}
