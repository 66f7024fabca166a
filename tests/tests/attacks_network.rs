//! Attacks G and H: other runs and the network. Nobody answers, and no canary hears a thing.

use std::time::Duration;

use sandtimer_tests::attack::check;
use sandtimer_tests::command::Run;
use sandtimer_tests::outcome::finding;
use sandtimer_tests::process::new_marker;
use sandtimer_tests::rows::NETWORK;
use sandtimer_tests::scene::Scene;
use sandtimer_tests::wait::alone;

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("network attacks", Duration::from_secs(300));
    check(NETWORK);
}

#[test]
fn the_network_is_there_when_asked_for_and_reported() {
    let _alone = alone("network granted", Duration::from_secs(60));
    let mut scene = Scene::new();
    let port = scene.fill("{tcp}");
    let run = Run::new().flags(&["--wall", "20s", "--network"]).hostile(&["connect", "127.0.0.1", &port]);
    let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{error}"));
    let said = finding(outcome.stdout()).expect("a finding");
    assert_eq!(said["result"], "succeeded", "{}", outcome.0);
    assert_eq!(scene.reached(), ["the TCP canary was connected to"]);
    assert!(outcome.degraded().iter().any(|layer| layer.contains("net")), "not reported: {}", outcome.0);
}

/// G5: what one run leaves in a private directory, the next does not find.
#[test]
fn private_directories_are_fresh_for_each_run() {
    let _alone = alone("leftovers", Duration::from_secs(120));
    for directory in ["/tmp", "/dev/shm", "/var/tmp"] {
        let path = format!("{directory}/hostile-{}", new_marker());
        let leave = Run::new().flags(&["--wall", "20s"]).hostile(&["create-file", &path, "keep"]);
        let (left, _) = leave.outcome().unwrap_or_else(|error| panic!("{error}"));
        let find = Run::new().flags(&["--wall", "20s"]).hostile(&["find", &path]);
        let (found, _) = find.outcome().unwrap_or_else(|error| panic!("{error}"));
        let said = finding(found.stdout()).expect("a finding");
        assert_eq!(said["result"], "denied", "{path} was found; it was left by {}", left.0);
        assert!(!std::path::Path::new(&path).exists(), "{path} is on the host");
    }
    // Otherwise nothing was left to be found.
    let path = format!("/tmp/hostile-{}", new_marker());
    let leave = Run::new().flags(&["--wall", "20s"]).hostile(&["create-file", &path, "keep"]);
    let (left, _) = leave.outcome().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(finding(left.stdout()).expect("a finding")["result"], "succeeded", "{}", left.0);
}
