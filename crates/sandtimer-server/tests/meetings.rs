//! Two tokens of one server cannot meet: no name, port, table, IPC object, key or namespace of
//! one's run is another's.
#![allow(clippy::disallowed_methods)] // one starts this process as another user, and a program outside of any run

use crate::as_user;
use crate::support;

use std::process::Command;

use as_user::as_a_user;
use serde_json::{Value, json};
use support::{ServerFixture, TestClient, tokens};

const MEET: &str = include_str!("meetings/meet.py");

const KINDS: [&str; 12] = [
    "abstract name",
    "line of tcp",
    "line of udp",
    "line of unix",
    "message queue of System V",
    "port of TCP",
    "port of UDP",
    "segment of POSIX",
    "segment of System V",
    "semaphore of POSIX",
    "semaphore of System V",
    "server",
];
/// What each run has alone.
const NAMESPACES: [&str; 6] = ["ipc", "mnt", "net", "pid", "uts", "cgroup"];

fn program(role: &str, name: &str) -> String {
    format!("ROLE, NAME = '{role}', '{name}'\n{MEET}")
}

fn body(role: &str, name: &str) -> Value {
    json!({"code": program(role, name), "language": "python", "stdin_open": role == "hold", "wall_ms": 25_000, "wait_ms": 25_000})
}

fn printed_json(run: &Value) -> Value {
    let stdout = run["outcome"]["stdout"].as_str().unwrap_or_else(|| panic!("{run}"));
    serde_json::from_str(stdout).unwrap_or_else(|error| panic!("{error}: {run}"))
}

/// The port that the holder of a name listens on last.
fn port(name: &str) -> u64 {
    20_000 + (1 + name.bytes().map(u64::from).sum::<u64>()) % 10_000
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap_or_else(|| panic!("{value}")).iter().filter_map(Value::as_str).collect()
}

/// One run holds everything while the other looks for it.
fn meet(holder: &TestClient, finder: &TestClient, tiers: &[&str]) {
    let name = "meeting-of-two";
    let id = holder.start(body("hold", name));
    let (_, answer) =
        holder.post(&format!("/v1/runs/{id}/wait"), &json!({"port": port(name), "wait_ms": 20_000}));
    assert_eq!(answer["listening"], true, "{answer}: {}", holder.get(&format!("/v1/runs/{id}")).1);
    let run = finder.run(&body("look", name));
    let tier = run["outcome"]["isolation"]["tier"].as_str().expect("a tier");
    assert!(tiers.contains(&tier), "{run}");
    let found = printed_json(&run);
    holder.post(&format!("/v1/runs/{id}/stdin"), &json!({"data": "enough\n"}));
    let held = printed_json(&holder.ended(&id));
    assert_eq!(strings(&found["found"]), [""; 0], "{found}");
    assert_eq!(strings(&found["made"]), [""; 0], "namespaces that a run can make: {found}");
    assert_eq!(strings(&held["refused"]), ["key", "message queue of POSIX"], "{held}");
    let observed = strings(&held["seen"]);
    assert!(
        observed.iter().all(|directory| ["/usr/bin", "/etc"].contains(directory)),
        "notified of {observed:?}"
    );
    for kind in NAMESPACES {
        assert_ne!(held["namespaces"][kind], found["namespaces"][kind], "{kind}: {held} {found}");
    }
}

/// The negative control: a run finds what it holds itself.
fn is_found_by_its_holder(client: &TestClient) {
    let both = printed_json(&client.run(&body("both", "meeting-of-one")));
    assert_eq!(strings(&both["found"]), KINDS, "{both}");
    let observed = strings(&both["seen"]);
    assert!(observed.contains(&"/tmp") && observed.contains(&"/dev/shm") && observed.len() >= 3, "{both}");
}

/// The negative control: outside of a run the same program makes namespaces of every kind that the
/// host lets its user make.
fn namespaces_are_made_outside() {
    let outside = Command::new("python3").args(["-c", &program("outside", "")]).output().expect("python3");
    let found: Value = serde_json::from_slice(&outside.stdout).unwrap_or_else(|_| panic!("{outside:?}"));
    assert!(strings(&found["made"]).contains(&"net") && strings(&found["made"]).contains(&"user"), "{found}");
}

fn two_tokens(tiers: &[&str]) {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("one first-secret-token-1234\ntwo second-secret-token-567\n"));
    });
    let clients =
        ["first-secret-token-1234", "second-secret-token-567"].map(|token| serving.client_with(token));
    is_found_by_its_holder(&clients[0]);
    for (holder, finder) in [(0, 1), (1, 0), (0, 0)] {
        meet(&clients[holder], &clients[finder], tiers);
    }
}

#[test]
fn runs_of_two_tokens_do_not_meet() {
    namespaces_are_made_outside();
    // Without control groups root has no more than T2 either.
    two_tokens(&["T3", "T2"]);
}

#[test]
fn runs_of_two_tokens_do_not_meet_as_user() {
    if !as_a_user("runs_of_two_tokens_do_not_meet_as_user") {
        namespaces_are_made_outside();
        two_tokens(&["T2"]);
    }
}
