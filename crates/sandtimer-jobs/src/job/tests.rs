use sandtimer::limits::Setting;
use sandtimer::model::LimitKind;
use sandtimer_agents::loop_guard::TurnGuard;
use serde_json::{Value, json};

use super::*;

fn refused(source: Value) -> String {
    JobSpec::read(source).expect_err("refused").to_string()
}

fn step(name: &str, needs: &[&str]) -> Value {
    json!({"name": name, "needs": needs, "command": ["true"]})
}

#[test]
fn other_names_of_the_wall_limit_are_as_good() {
    let plain = JobSpec::read(json!({"command": ["true"], "wall_ms": "5s"})).expect("a spec");
    for (name, value) in [("timeout", json!("5s")), ("timeout_ms", json!("5s"))] {
        let spec = JobSpec::read(json!({"command": ["true"], name: value})).expect("a spec");
        assert_eq!(spec.wall, plain.wall, "{name}");
        assert_eq!(spec.stored(), plain.stored(), "{name}");
    }
    let spec = JobSpec::read(json!({"command": ["true"], "limits": {"timeout": "90s"}})).expect("a spec");
    assert_eq!(spec.limits.get(LimitKind::Wall), Setting::At(90_000_000_000));
}

#[test]
fn rejection_names_path_value_and_what_is_allowed() {
    let command = json!(["true"]);
    for (source, expected) in [
        (json!([]), "use a table of named fields"),
        (
            json!({}),
            "`command`: is missing; use one of `command`, `code` with `language`, `handler`, `steps`, `loop`",
        ),
        (
            json!({"command": ["a"], "steps": []}),
            "`command`: cannot be used together with `steps`; a job has exactly one",
        ),
        (
            json!({"command": command, "prioriti": 1}),
            "`prioriti`: unknown field; the nearest known one is `priority`",
        ),
        (
            json!({"command": command, "priority": 101}),
            "`priority`: 101 is not allowed; use a whole number from -100 to 100",
        ),
        (json!({"cmd": command}), "`cmd`: unknown field, which is `command` here"),
        (json!({"comand": command}), "`comand`: unknown field; the nearest known one is `command`"),
        (
            json!({"command": command, "max_retries": 3}),
            "`max_retries`: unknown field, which is `attempts` here",
        ),
        (json!({"command": command, "countdown": 3}), "`countdown`: unknown field, which is `delay_ms` here"),
        (
            json!({"command": command, "non_retryable_error_types": ["ValueError"]}),
            "`non_retryable_error_types`: unknown field, which is `not_retried` here",
        ),
        (
            json!({"command": command, "not_retried": [0]}),
            "use a list of exit codes from 1 to 255 and names of exceptions, such as `ValueError`",
        ),
        (json!({"command": command, "not_retried": ["value error"]}), "`not_retried`: "),
        (json!({"command": command, "not_retried": 3}), "`not_retried`: "),
        (json!({"command": command, "delay_ms": u64::MAX}), "is more than ten years; use a shorter delay"),
        (json!({"command": command, "delay_ms": -1}), "`delay_ms`: `-1`"),
        (json!({"command": command, "delay_ms": "soon"}), "`delay_ms`: `soon` is not a duration"),
        (
            json!({"command": command, "delay_ms": "5m", "not_before_ms": 1000}),
            "`not_before_ms`: cannot be combined with `delay_ms`; use one of them",
        ),
        (
            json!({"command": command, "timeout": 5}),
            "`timeout`: `5` has no unit (from the job's spec); use `5s` or `5ms` as a string, or `wall_ms`",
        ),
        (
            json!({"command": command, "limits": {"timeout": "5"}}),
            "`limits.timeout`: `5` has no unit (from the job's spec); use `5s` or `5ms` as a string, or `wall_ms`",
        ),
        (json!({"command": command, "timeout_ms": "soon"}), "`timeout_ms`: `soon` is not a duration"),
        (
            json!({"command": command, "timeout": "5s", "wall_ms": 5000}),
            "`timeout`: `5s` is given under another name of the same limit as well",
        ),
        (json!({"command": command, "wall_ms": -1}), "`wall_ms`"),
        (json!({"command": command, "limits": {"wall_ms": "soon"}}), "`limits.wall_ms`"),
        (
            json!({"command": command, "limits": {"memory": 1}}),
            "`limits.memory`: unknown field, which is `memory_bytes` here",
        ),
        (json!({"command": command, "cwd": "here"}), "`cwd`: \"here\" is not allowed; use an absolute path"),
        (json!({"command": [""]}), "`command`: is missing; use a program and its arguments"),
        (json!({"command": []}), "`command`: is missing; use a program and its arguments"),
        (json!({"code": "1"}), "`language`: is missing"),
        (json!({"handler": "h", "command": command}), "`command`: cannot be used together with `handler`"),
        (json!({"handler": 7}), "`handler`: 7 is not allowed; use a string"),
        (json!({"command": command, "input": 1}), "`input`: unknown field"),
        (json!({"handler": "h", "network": true}), "`network`: is of commands and code"),
        (json!({"code": "1", "language": "pyton"}), "the nearest is `python`"),
        (json!({"command": command, "concurrency": {"most": 2}}), "`concurrency.key`: is missing"),
        (
            json!({"command": command, "breaker": {"scope": "node"}}),
            "`breaker.scope`: \"node\" is not allowed; use `job` or `store`",
        ),
        (
            json!({"command": command, "breaker": {"rate": {"share": 1.5}}}),
            "`breaker.rate.share`: 1.5 is not allowed; use a number above 0, at most 1",
        ),
        (
            json!({"command": command, "breaker": {"rate": {"share": 0.5, "window": 4, "least": 5}}}),
            "`breaker.rate.least`: 5 is not allowed; use a whole number from 1 to 4",
        ),
        (
            json!({"command": command, "wall_ms": 5, "deadline_ms": 5}),
            "`deadline_ms`: cannot be combined with `wall_ms`; use one of them",
        ),
        (
            json!({"command": command, "fallback": [{"command": ["x"], "attempts": 0}]}),
            "`fallback[0].attempts`: 0 is not allowed",
        ),
        (
            json!({"steps": [step("a", &[]), step("a", &[])]}),
            "`steps[1].name`: `a` is the name of an earlier step",
        ),
        (
            json!({"steps": [step("fetch", &[]), step("b", &["fetsh"])]}),
            "`fetsh` is not a step; the nearest one is `fetch`",
        ),
        (
            json!({"steps": [step("z", &["a"]), step("a", &["b"]), step("b", &["c"]), step("c", &["a"])]}),
            "circle: a → b → c → a",
        ),
        (
            json!({"command": ["bash", "-c", "x".repeat(131_072)]}),
            "`command`: cannot be executed: argument 2 of `bash` has 131072 bytes, and the kernel takes at most 131071",
        ),
        (
            json!({"command": command, "inputs": ["a"]}),
            "`inputs`: [\"a\"] is not allowed; use a table of paths",
        ),
        (json!({"command": command, "inputs": {"../a": ""}}), "`inputs[\"../a\"]`: is not a plain path"),
        (json!({"command": command, "inputs": {"/a": ""}}), "`inputs[\"/a\"]`: is not a plain path"),
        (json!({"command": command, "inputs": {"a/./b": ""}}), "`inputs[\"a/./b\"]`: is not a plain path"),
        (json!({"command": command, "inputs": {"a//b": ""}}), "`inputs[\"a//b\"]`: is not a plain path"),
        (json!({"command": command, "inputs": {"a/": ""}}), "`inputs[\"a/\"]`: is not a plain path"),
        (json!({"command": command, "inputs": {"": ""}}), "`inputs[\"\"]`: is empty"),
        (json!({"command": command, "inputs": {"a\u{0}": ""}}), "`inputs[\"a\\0\"]`: has a NUL byte"),
        (json!({"command": command, "inputs": {"a/".repeat(32) + "a": ""}}), "is too deep; at most 32 names"),
        (json!({"command": command, "inputs": {"a".repeat(256): ""}}), "is too long; at most 1024 bytes"),
        (
            json!({"command": command, "inputs": {"a": "", "a/b": ""}}),
            "`inputs[\"a/b\"]`: lies below `a`, which is a file",
        ),
        (
            json!({"command": command, "inputs": {"a": 7}}),
            "`inputs[\"a\"]`: 7 is not allowed; use a string, or a table",
        ),
        (
            json!({"command": command, "inputs": {"a": {"base64": "_"}}}),
            "`inputs[\"a\"].base64`: is not base64",
        ),
        (
            json!({"command": command, "inputs": {"a": {"text": "x"}}}),
            "`inputs[\"a\"].text`: unknown field; the nearest known one is `base64`",
        ),
        (
            json!({"command": command, "inputs": {"a": {"file": "/etc/passwd"}}}),
            "`inputs[\"a\"].file`: is read where a spec is submitted by the command line",
        ),
        (
            json!({"command": command, "inputs": {"a": {"bytes": 1, "sha256": "0"}}}),
            "`inputs[\"a\"].bytes`: unknown field",
        ),
        (
            json!({"command": command, "inputs": {"a": "x".repeat(8 << 20), "b": "x"}}),
            "`inputs[\"b\"]`: makes the inputs longer than 8388608 bytes",
        ),
        (json!({"command": command, "outputs": "a"}), "`outputs`: \"a\" is not allowed; use a list of paths"),
        (json!({"command": command, "outputs": ["a", "a"]}), "`outputs[1]`: `a` is there twice"),
        (json!({"command": command, "outputs": ["a", "../*"]}), "`outputs[1]`: is not a plain path"),
        (
            json!({"command": command, "outputs": ["[a"]}),
            "`outputs[0]`: is not a pattern: unclosed character class",
        ),
        (
            json!({"command": command, "outputs": ["a"], "cwd": "/tmp"}),
            "`cwd`: cannot be used together with `inputs` or `outputs`",
        ),
        (json!({"handler": "h", "outputs": ["a"]}), "`outputs`: is of commands and code"),
        (json!({"command": command, "webhook": {}}), "`webhook.url`: is missing"),
        (
            json!({"command": command, "webhook": {"url": "ftp://h/"}}),
            "`webhook.url`: \"ftp://h/\" is not allowed; use an address",
        ),
        (json!({"command": command, "webhook": {"url": "http:///x"}}), "`webhook.url`"),
        (json!({"command": command, "webhook": {"url": "http://u:p@h/"}}), "`webhook.url`"),
        (json!({"command": command, "webhook": {"url": "http://h/ x"}}), "`webhook.url`"),
        (
            json!({"command": command, "webhook": {"url": "http://h", "headers": {"Host": "x"}}}),
            "`webhook.headers.\"Host\"`: is set by the sender of",
        ),
        (
            json!({"command": command, "webhook": {"url": "http://h", "headers": {"A": "x\r\nB: y"}}}),
            "`webhook.headers.\"A\"`: has a value",
        ),
        (
            json!({"command": command, "webhook": {"url": "http://h", "headers": {"a b": "x"}}}),
            "is not the name of a header",
        ),
        (
            json!({"command": command, "webhook": {"url": "http://h", "secret": true}}),
            "`webhook.secret`: is not a string",
        ),
        (
            json!({"command": command, "webhook": {"url": "http://h", "secret": "whsec_no key"}}),
            "`webhook.secret`: begins with `whsec_`, and what follows is not a key in base64",
        ),
        (
            json!({"command": command, "webhook": {"url": "http://h", "headers": {"Webhook-Id": "x"}}}),
            "`webhook.headers.\"Webhook-Id\"`: is set by the sender of",
        ),
        (
            json!({"command": command, "webhook": {"url": "http://h", "events": ["ok", "done"]}}),
            "`webhook.events[1]`: \"done\" is not allowed; use one of ok, failed, timeout, budget, cancelled, dead",
        ),
        (
            json!({"command": command, "webhook": {"url": "http://h", "events": []}}),
            "`webhook.events`: is empty; name one or more of ok, failed",
        ),
        (
            json!({"command": command, "webhook": {"url": "http://h", "events": "ok"}}),
            "`webhook.events`: \"ok\" is not allowed; use a list of texts",
        ),
        (
            json!({"command": command, "webhook": {"url": "http://h", "sekret": "x"}}),
            "the nearest known one is `secret`",
        ),
        (json!({"loop": {"iterations": 2}}), "`loop.driver`: is missing"),
        (
            json!({"loop": {"driver": {"command": ["d"]}, "actions": {"x": {"command": ["y"], "atempts": 1}}}}),
            "`loop.actions.x.atempts`: unknown field; the nearest known one is `attempts`",
        ),
    ] {
        let message = refused(source.clone());
        assert!(message.contains(expected), "{source}: {message}");
    }
}

#[test]
fn past_deadline_and_start_after_deadline_are_rejected() {
    let read = |source| JobSpec::read(source).expect("valid");
    let past = read(json!({"command": ["x"], "deadline_ms": 1000}));
    assert!(past.deadline(1500).expect_err("past").to_string().contains("1000 is 500 ms in the past"));
    assert_eq!(past.deadline(999).expect("ahead"), Some(1000));
    let late = read(json!({"command": ["x"], "wall_ms": "1s", "not_before_ms": 3000}));
    assert!(
        late.deadline(2000).expect_err("late").to_string().contains("`not_before_ms`: 3000 is not before")
    );
    assert_eq!(late.deadline(2001).expect("in time"), Some(3001));
    assert_eq!(read(json!({"command": ["x"], "wall_ms": 0})).deadline(5).expect("no limit"), None);
    let delayed = read(json!({"command": ["x"], "wall_ms": "1s", "delay_ms": "1s"}));
    assert_eq!(
        delayed.deadline(2000).expect_err("late").to_string(),
        "`delay_ms`: a delay of 1000 ms ends at or after the job's deadline, which is in 1000 ms; use a shorter delay"
    );
    let delayed = read(json!({"command": ["x"], "deadline_ms": 3000, "delay_ms": "1s"}));
    assert!(delayed.deadline(2000).is_err());
    assert_eq!(delayed.deadline(1999).expect("in time"), Some(3000));
}

#[test]
fn a_delay_counts_from_the_submission_and_is_scaled() {
    let start = |spec: serde_json::Value| JobSpec::read(spec).expect("valid").times().start(5000);
    assert_eq!(start(json!({"command": ["x"], "delay_ms": "2m"})), 125_000);
    assert_eq!(start(json!({"command": ["x"], "delay_ms": 0})), 5000);
    assert_eq!(start(json!({"command": ["x"], "delay_ms": 1000, "time_scale": 0.1})), 5100);
    assert_eq!(start(json!({"command": ["x"], "not_before_ms": 9000})), 9000);
    assert_eq!(start(json!({"command": ["x"], "not_before_ms": 1})), 5000);
}

#[test]
fn steps_are_sorted_and_times_are_scaled() {
    let spec = JobSpec::read(json!({
        "time_scale": 0.5, "wall_ms": "2m", "limits": {"wall_ms": 100, "memory_bytes": "1M"},
        "steps": [step("c", &["a", "b"]), step("b", &["a"]), step("a", &[])],
    }))
    .expect("valid");
    let JobWork::Steps(steps) = &spec.work else { panic!("steps") };
    assert_eq!(steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(spec.wall.expect("a wall").as_secs(), 60);
    assert_eq!(spec.limits.get(LimitKind::Wall), Setting::At(50_000_000));
    assert_eq!(spec.limits.get(LimitKind::Memory), sandtimer::limits::Setting::At(1 << 20));
}

#[test]
fn toml_is_read_as_the_same_and_its_errors_have_a_line() {
    let text = "name = \"x\"\nwall_ms = \"1s\"\n[[steps]]\nname = \"a\"\ncommand = [\"true\"]\n";
    let spec = JobSpec::read(JobSpec::json_of_toml(text).expect("TOML")).expect("valid");
    assert_eq!(
        spec.source(),
        &json!({"name": "x", "wall_ms": "1s", "steps": [{"name": "a", "command": ["true"]}]})
    );
    assert_eq!(JobSpec::json_of_toml("a = 1\nb = ").expect_err("broken").path, "line 2");
    let endless =
        JobSpec::json_of_toml("command = [\"true\"]\n[limits]\nwall_ms = nan\n").expect_err("no number");
    assert_eq!(endless.path, "limits.wall_ms", "{endless:?}");
}

#[test]
fn a_loop_is_guarded_by_turns_failures_and_repetition() {
    let guard = |fields: Value| {
        let mut source = json!({"driver": {"command": ["d"]}});
        source.as_object_mut().expect("a table").extend(fields.as_object().expect("a table").clone());
        let spec = JobSpec::read(json!({"loop": source})).expect("valid");
        let JobWork::Loop(spec) = spec.work else { panic!("a loop") };
        TurnGuard::of(spec.iterations, spec.failures, spec.repeats)
    };
    let run = |mut guard: TurnGuard, turn: &dyn Fn(u32) -> (&'static str, Value, bool)| {
        for number in 1..100 {
            match guard.begin() {
                Ok(count) => assert_eq!(count, number),
                Err(stop) => return (number - 1, stop.kind),
            }
            let (action, input, ok) = turn(number);
            guard.ended(action, &input, ok);
        }
        (99, LimitKind::Wall)
    };
    let differs = |number: u32| ("a", json!(number), number.is_multiple_of(2));
    assert_eq!(run(guard(json!({"iterations": 24})), &differs), (24, LimitKind::Turns));
    assert_eq!(run(guard(json!({"failures": 3})), &differs), (5, LimitKind::Failures));
    assert_eq!(run(guard(json!({"repeats": 4})), &|_| ("a", json!(1), true)), (4, LimitKind::Turns));
    assert_eq!(run(guard(json!({"repeats": 4})), &differs), (99, LimitKind::Wall));
}

#[test]
fn a_store_keeps_the_digests_of_inputs_and_not_their_content() {
    let source = json!({"command": ["x"], "inputs": {"a": "hello", "d/b": {"base64": "AP8="}}, "outputs": ["out/**", "log.txt"]});
    let spec = JobSpec::read(source.clone()).expect("valid");
    assert_eq!(spec.inputs[1].content.as_deref(), Some(&[0, 255][..]));
    let stored = spec.stored();
    let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(stored["inputs"]["a"], json!({"bytes": 5, "sha256": digest}));
    let again = JobSpec::read_stored(stored).expect("valid");
    assert_eq!((again.inputs[0].bytes, &again.inputs[0].content), (5, &None));
    let [all, log] = &again.outputs[..] else { panic!("two") };
    assert!(all.is_match("out/a/b") && !all.is_match("other/a") && all.base() == "out" && !all.is_name());
    assert!(log.is_name() && log.is_match("log.txt"));
    assert_eq!(spec.source(), &source);
}

#[test]
fn stored_webhook_with_headers_of_today_is_readable() {
    let source = json!({"command": ["x"], "webhook": {"url": "http://h", "headers": {"webhook-id": "mine"}, "secret": true}});
    assert!(JobSpec::read_stored(source).is_ok(), "an earlier version took it in");
}

#[test]
fn secret_of_standard_webhooks_stands_for_its_key() {
    assert_eq!(
        (signing_key("whsec_AQID"), signing_key("whsec_AQI="), signing_key("whsec_AQI")),
        (vec![1, 2, 3], vec![1, 2], vec![1, 2])
    );
    assert_eq!(
        (signing_key("AQID"), signing_key("whsec_no key")),
        (b"AQID".to_vec(), b"whsec_no key".to_vec())
    );
}

#[test]
fn a_store_does_not_show_the_secret_of_a_webhook() {
    let source = json!({"command": ["x"], "webhook": {"url": "https://host/hook", "headers": {"A": "b"}, "secret": "s3cret"}});
    let spec = JobSpec::read(source).expect("valid");
    assert_eq!(spec.webhook.as_ref().expect("one").secret.as_deref(), Some("s3cret"));
    assert!(!format!("{:?}", spec.webhook).contains("s3cret"));
    let stored = spec.stored();
    assert_eq!(stored["webhook"], json!({"url": "https://host/hook", "headers": {"A": "b"}, "secret": true}));
    assert_eq!(JobSpec::read_stored(stored).expect("valid").webhook.expect("one").secret, None);
}

#[test]
fn local_files_are_embedded_at_submission() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("text"), "hello").expect("written");
    std::fs::write(directory.path().join("bytes"), [0xff, 0]).expect("written");
    let read = |file: &str| embedded(json!({"inputs": {"a": {"file": file}, "b": "x"}}), directory.path());
    assert_eq!(read("text").expect("read")["inputs"], json!({"a": "hello", "b": "x"}));
    assert_eq!(read("bytes").expect("read")["inputs"]["a"], json!({"base64": "/wA="}));
    for (file, said) in [("absent", "No such file"), (".", "is not a file; name one")] {
        let refused = read(file).expect_err(file);
        assert!(refused.path == "inputs[\"a\"].file" && refused.problem.contains(said), "{refused}");
    }
}

#[test]
fn parallel_is_for_steps_and_counts_their_memory() {
    let steps = json!([{"name": "a", "command": ["true"]}, {"name": "b", "command": ["true"]}]);
    let read = |parallel: Value| {
        JobSpec::read(json!({"steps": steps, "parallel": parallel, "limits": {"memory_bytes": "1G"}}))
    };
    assert_eq!(read(json!(1)).expect("valid").memory_bytes(), 1 << 30);
    assert_eq!(read(json!(9)).expect("valid").memory_bytes(), 2 << 30, "there are two");
    for wrong in [json!(0), json!(65), json!("many")] {
        assert_eq!(read(wrong).expect_err("refused").path, "parallel");
    }
    let alone = JobSpec::read(json!({"command": ["true"], "parallel": 2})).expect_err("refused");
    assert!(alone.path == "parallel" && alone.problem.contains("`steps`"), "{alone}");
}
