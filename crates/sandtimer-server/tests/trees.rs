//! Watching a tree: what is made, moved and removed at any depth, and how much of it there may be.

use crate::support;

use std::io::Read;

use serde_json::Value;
use support::workspace::Workspace;
use support::{ServerFixture, tokens};

/// Reads events up to the one that is wanted; returns all as `name path`.
fn until(events: &mut impl Iterator<Item = support::ReceivedEvent>, wanted: &str) -> Vec<String> {
    let mut observed: Vec<String> = Vec::new();
    for event in events {
        observed.push(format!("{} {}", event.name, event.data["path"].as_str().unwrap_or_default()));
        if observed.last().is_some_and(|last| last == wanted) {
            return observed;
        }
    }
    panic!("{wanted} did not come: {observed:?}");
}

#[test]
fn changes_at_every_depth_are_reported() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.sh("mkdir -p d/a/b e; touch d/a/b/f; ln -s ../e d/link");
    let mut events = workspace.client.events_at(&workspace.at("/watch", "path=d&recursive=true"), &[]);
    let ready = events.next().expect("an event");
    assert_eq!((ready.name.as_str(), &ready.data["directories"]), ("ready", &Value::from(3)));
    workspace
        .sh("echo x >d/a/b/f; mkdir d/new; sleep 0.3; echo y >d/new/g; rm d/new/g; touch e/h; touch d/end");
    let observed = until(&mut events, "created d/end");
    for wanted in
        ["modified d/a/b/f", "created d/new", "created d/new/g", "modified d/new/g", "deleted d/new/g"]
    {
        let count = observed.iter().filter(|event| *event == wanted).count();
        // Opening a file to replace its content, and writing it, are two changes.
        assert!(count == 1 || (count == 2 && wanted.starts_with("modified")), "{wanted}: {observed:?}");
    }
    assert!(!observed.iter().any(|event| event.contains("e/h")), "links are not followed: {observed:?}");
    // What is in a new directory before it is watched is reported all the same, and once.
    for round in 0..20 {
        workspace.sh(&format!("mkdir -p d/r{round}/x/y; touch d/r{round}/x/y/f; touch d/end{round}"));
        let mut observed = until(&mut events, &format!("created d/end{round}"));
        if !observed.iter().any(|event| *event == format!("created d/r{round}/x/y/f")) {
            observed.extend(until(&mut events, &format!("created d/r{round}/x/y/f")));
        }
        for name in ["", "/x", "/x/y", "/x/y/f"] {
            let wanted = format!("created d/r{round}{name}");
            assert_eq!(
                observed.iter().filter(|event| **event == wanted).count(),
                1,
                "{wanted}: {observed:?}"
            );
        }
    }
}

#[test]
fn moved_directories_are_followed_within_the_tree() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.sh("mkdir -p d/a/b d/c away in/deep");
    let mut events = workspace.client.events_at(&workspace.at("/watch", "path=d&recursive=true"), &[]);
    assert_eq!(events.next().expect("an event").name, "ready");
    workspace.sh("mv d/a d/c/moved; sleep 0.3; touch d/c/moved/b/f");
    let observed = until(&mut events, "created d/c/moved/b/f");
    assert!(
        observed.contains(&"moved_from d/a".to_owned())
            && observed.contains(&"moved_to d/c/moved".to_owned()),
        "{observed:?}"
    );
    workspace.sh("mv d/c/moved away; sleep 0.3; touch away/moved/b/g away/moved/h; mv in d/in; sleep 0.3; touch d/in/deep/f; rm -r d/in");
    let observed = until(&mut events, "deleted d/in");
    assert!(!observed.iter().any(|event| event.contains("/b/g") || event.ends_with("/h")), "{observed:?}");
    assert!(observed.contains(&"created d/in/deep/f".to_owned()), "{observed:?}");
    workspace.sh("rm -r d");
    assert!(events.by_ref().all(|event| event.name != "ready"), "it ends with its directory");
}

#[test]
fn full_watch_reports_it_and_leaves_room_for_others() {
    let serving = ServerFixture::with(|settings| {
        settings.tokens = Some(tokens("one first-secret-token-1234\nother other-secret-token-1234\n"));
    });
    let client = serving.client_with("first-secret-token-1234");
    let (_, made) = client.post("/v1/workspaces", &serde_json::json!({}));
    let id = made["workspace_id"].as_str().expect("an id");
    let many = serde_json::json!({"command": ["bash", "-c", "mkdir -p d/{1..45}/{1..100}"], "workspace": id, "wall_ms": 25_000});
    assert_eq!(client.run(&many)["outcome"]["exit_code"], 0);
    let address = format!("/v1/files/watch?workspace={id}&path=d&recursive=true");
    let mut events = client.events_at(&address, &[]);
    let ready = events.next().expect("an event");
    assert_eq!(
        (ready.name.as_str(), &ready.data["directories"]),
        ("ready", &Value::from(4_096)),
        "{:?}",
        ready.data
    );
    let full = events.next().expect("an event");
    assert_eq!(
        (full.name.as_str(), full.data["reason"].as_str()),
        ("unwatched", Some("full")),
        "{:?}",
        full.data
    );
    // Nothing is left for this owner, but for another one.
    let (status, refused) = client.get(&format!("/v1/files/watch?workspace={id}&path=d/1"));
    assert_eq!((status, &refused["code"]), (503, &Value::from("capacity")), "{refused}");
    let other = serving.client_with("other-secret-token-1234");
    let (_, made) = other.post("/v1/workspaces", &serde_json::json!({}));
    let other_id = made["workspace_id"].as_str().expect("an id");
    let mut others = other.events_at(&format!("/v1/files/watch?workspace={other_id}&recursive=true"), &[]);
    assert_eq!(others.next().expect("an event").name, "ready");
    drop((events, others));
    let request = format!(
        "GET /v1/files/watch?workspace={id}&path=d/1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer first-secret-token-1234\r\n\r\n"
    );
    support::wait_until("the watches are free again", || {
        let mut status = [0; 12];
        support::raw(serving.address, request.as_bytes()).read_exact(&mut status).expect("an answer");
        status == *b"HTTP/1.1 200"
    });
}

#[test]
fn directories_that_are_shut_are_named() {
    let serving = ServerFixture::start();
    let workspace = Workspace::of(&serving);
    workspace.sh("mkdir -p d/shut d/open; chmod 0 d/shut");
    let mut events = workspace.client.events_at(&workspace.at("/watch", "recursive=true"), &[]);
    let ready = events.next().expect("an event");
    assert_eq!(ready.data["directories"], 3, "{:?}", ready.data);
    let unwatched = events.next().expect("an event");
    assert_eq!((unwatched.name.as_str(), unwatched.data["path"].as_str()), ("unwatched", Some("d/shut")));
    assert_eq!(unwatched.data["reason"], "closed");
}
