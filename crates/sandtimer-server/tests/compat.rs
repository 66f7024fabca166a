//! The unmodified npm package `@cloudflare/sandbox`, loaded in Node, against this server's /api.
//!
//! Each test is a scenario of `compat/scenarios.mjs`. `cargo xtask npm` installs the package; without Node they are skipped.

mod support;

use std::time::Duration;

use sandtimer_server::Interpreters;
use serde_json::json;
use support::{Serving, node, tokens};

fn drive(serving: &Serving, scenario: &str, token: &str) {
    let loader = ["--import", "./register.mjs"];
    node::play("compat", "@cloudflare/sandbox", &loader, scenario, &serving.variables(token));
}

macro_rules! scenarios {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            drive(&Serving::start(), stringify!($name), "");
        })+
    };
}

scenarios! {
    exec
    streams
    nothing_is_lost_in_streams
    sessions
    timeouts
    what_times_out_is_dead
    without_sessions
    commands_of_one_session_queue
    clients_that_go_away
    processes
    code
    code_that_takes_too_long
    interface_of_the_wire
    clones
    files
    long_ones_finish
}

#[test]
fn tokens_are_those_of_the_server() {
    let serving = Serving::with(|settings| settings.tokens = Some(tokens("one first-secret-token-1234\n")));
    drive(&serving, "tokens", "first-secret-token-1234");
}

#[test]
fn quiet_streams_are_kept_open() {
    let serving = Serving::with(|settings| settings.heartbeat = Duration::from_millis(100));
    drive(&serving, "quiet_streams_are_kept_open", "");
}

#[test]
fn files_are_there_after_a_restart() {
    let serving = Serving::start();
    drive(&serving, "files_before_a_restart", "");
    let again = Serving::at(serving.stop(), |_| {});
    drive(&again, "files_after_a_restart", "");
}

#[test]
fn one_process_at_a_time_has_an_id() {
    let serving = Serving::start();
    let start = || {
        serving.client().post("/api/process/start", &json!({"command": "sleep 100", "processId": "same"})).0
    };
    let mut answers: Vec<u16> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        asking.into_iter().map(|asked| asked.join().expect("an answer")).collect()
    });
    answers.sort_unstable();
    assert_eq!(answers, [200, 409, 409, 409]);
    let client = serving.client();
    assert_eq!(client.delete("/api/process/kill-all").1["cleanedCount"], 1);
    assert_eq!(client.get("/v1/runs?status=running").1["total"], 0);
    assert_eq!(start(), 200, "its id is free again");
}

#[test]
fn names_that_are_no_text_are_listed() {
    let serving = Serving::start();
    let client = serving.client();
    let command = "touch \"$(printf '\\377%.0s' {1..200})\"";
    let (status, made) = client.post("/api/execute", &json!({"command": command}));
    assert_eq!((status, &made["exitCode"]), (200, &json!(0)), "{made}");
    let (status, listed) = client.post("/api/list-files", &json!({"path": "/workspace"}));
    assert_eq!((status, &listed["count"]), (200, &json!(1)), "{listed}");
}

#[test]
fn an_interpreter_that_is_slow_to_start_is_not_ready() {
    let serving = Serving::with(|settings| {
        let spawn_limit = Duration::from_millis(1);
        settings.interpreters = Interpreters { spawn_limit, ..settings.interpreters.clone() };
    });
    let (status, refused) = serving.client().post("/api/contexts", &json!({"language": "python"}));
    assert_eq!((status, &refused["code"]), (503, &json!("INTERPRETER_NOT_READY")), "{refused}");
    // What the package looks for before it tries again.
    assert!(refused["message"].as_str().is_some_and(|message| message.contains("not ready")), "{refused}");
}

#[test]
fn code_contexts_have_three_languages_and_refusals_name_what_describes_them() {
    let serving = Serving::start();
    let client = serving.client();
    for language in ["python", "javascript", "typescript"] {
        let (status, made) = client.post("/api/contexts", &json!({"language": language}));
        assert_eq!((status, &made["language"]), (200, &json!(language)), "{made}");
        let body = json!({"context_id": made["contextId"], "code": "6 * 7", "language": language});
        let (status, events) = client.post("/api/execute/code", &body);
        assert_eq!(status, 200, "{events}");
        assert!(events.as_str().is_some_and(|events| events.contains("42")), "{events}");
    }
    let (_, refused) = client.post("/api/nowhere", &json!({}));
    assert!(refused["suggestion"].as_str().is_some_and(|hint| hint.contains("docs/compat.md")), "{refused}");
}
