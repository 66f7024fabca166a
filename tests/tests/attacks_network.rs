//! Attacks G and H: other runs and the network. Nobody answers, and no canary hears a thing.

use std::time::Duration;

use sandtimer_tests::attack::check;
use sandtimer_tests::attack_list::NETWORK;
use sandtimer_tests::command::{RunInvocation, Visitor};
use sandtimer_tests::outcome::finding;
use sandtimer_tests::process::{ProcessStat, marked, new_marker};
use sandtimer_tests::scene::CanaryScene;
use sandtimer_tests::wait::{alone, until};

#[test]
fn every_attack_of_the_table_comes_to_what_it_must() {
    let _alone = alone("network attacks", Duration::from_secs(300));
    check(NETWORK);
}

#[test]
fn the_network_is_there_when_asked_for_and_reported() {
    let _alone = alone("network granted", Duration::from_secs(60));
    let mut scene = CanaryScene::new();
    let port = scene.fill("{tcp}");
    let run =
        RunInvocation::new().flags(&["--wall", "20s", "--network"]).hostile(&["connect", "127.0.0.1", &port]);
    let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{error}"));
    let reported = finding(outcome.stdout()).expect("a finding");
    assert_eq!(reported["result"], "succeeded", "{}", outcome.0);
    assert_eq!(scene.reached(), ["the TCP canary was connected to"]);
    assert!(outcome.degraded().iter().any(|layer| layer.contains("net")), "not reported: {}", outcome.0);
}

/// Where a run finds what another holds, and what it finds of its own: at the tier of whoever runs
/// it.
fn meet(by: Option<&Visitor>, without: &[&str]) -> (String, serde_json::Value) {
    let run =
        || by.map_or_else(RunInvocation::new, |visitor| RunInvocation::new().by(visitor)).without(without);
    let name = format!("meeting{}", new_marker());
    let both = run().flags(&["--wall", "20s"]).hostile(&["meeting", "both", &name]);
    let (alone, _) = both.outcome().unwrap_or_else(|error| panic!("{error}"));
    let holding = run().flags(&["--wall", "40s"]).hostile(&["meeting", "hold", &name]);
    let holder = holding.start();
    let is_held = |process: &ProcessStat| process.name == "held";
    let up = until(Duration::from_secs(20), || marked(&holding.marker).iter().any(is_held));
    assert!(up, "nothing was held: {}", alone.0);
    let find = run().flags(&["--wall", "20s"]).hostile(&["meeting", "find", &name]);
    let (found, _) = find.outcome().unwrap_or_else(|error| panic!("{error}"));
    assert!(!holder.has_ended(), "the holder ended before it was looked for");
    drop(holder);
    (alone.stdout().to_owned(), finding(found.stdout()).unwrap_or_else(|| panic!("no finding: {}", found.0)))
}

/// G2, G3: two runs at a time have no object of the kernel's in common that both can name, as root
/// and as a user.
#[test]
fn two_runs_cannot_meet() {
    const KINDS: [&str; 9] = [
        "/proc/net/unix",
        "/proc/net/tcp",
        "an abstract name",
        "a TCP port",
        "a System V segment",
        "a System V semaphore",
        "a System V queue",
        "a POSIX segment",
        "a file in /tmp",
    ];
    let _alone = alone("meetings", Duration::from_secs(300));
    let visitor = Visitor::new(1234);
    for by in [None, Some(&visitor)] {
        let (own, found) = meet(by, &[]);
        for kind in KINDS {
            assert!(own.contains(kind), "control: a run does not find {kind} of its own: {own}");
        }
        assert_eq!(found["result"], "denied", "found of another run: {found}");
    }
    // The wall is the namespace, not that nothing was held.
    let (_, found) = meet(None, &["net", "seccomp", "landlock"]);
    let detail = found["detail"].as_str().unwrap_or_default();
    for kind in &KINDS[..4] {
        assert!(detail.contains(kind), "control: without the namespace {kind} is not found: {found}");
    }
}

/// A server and its client in one run, over both families; from outside nothing is there.
#[test]
fn a_run_has_a_loopback_of_its_own() {
    const SERVE_AND_ASK: &str = "
import http.server, socket, threading, urllib.request
for family, address, host in ((socket.AF_INET, '127.0.0.1', '127.0.0.1'), (socket.AF_INET6, '::1', '[::1]')):
    class Server(http.server.ThreadingHTTPServer):
        address_family = family
    server = Server((address, 80), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(urllib.request.urlopen(f'http://{host}:80/').status)
    server.shutdown()
print(sorted(name for _, name in socket.if_nameindex()))
";
    let _alone = alone("loopback", Duration::from_secs(120));
    let visitor = Visitor::new(1234);
    for by in [None, Some(&visitor)] {
        let run = by.map_or_else(RunInvocation::new, |visitor| RunInvocation::new().by(visitor));
        let run = run.flags(&["--wall", "30s"]).command(&["python3", "-c", SERVE_AND_ASK]);
        let (outcome, _) = run.outcome().unwrap_or_else(|error| panic!("{error}"));
        assert!(outcome.stdout().starts_with("200\n200\n['lo'"), "{}", outcome.0);
    }
}

/// G5: what one run leaves in a private directory, the next does not find.
#[test]
fn private_directories_are_fresh_for_each_run() {
    let _alone = alone("leftovers", Duration::from_secs(120));
    for directory in ["/tmp", "/dev/shm", "/var/tmp"] {
        let path = format!("{directory}/hostile-{}", new_marker());
        let leave = RunInvocation::new().flags(&["--wall", "20s"]).hostile(&["create-file", &path, "keep"]);
        let (left, _) = leave.outcome().unwrap_or_else(|error| panic!("{error}"));
        let find = RunInvocation::new().flags(&["--wall", "20s"]).hostile(&["find", &path]);
        let (found, _) = find.outcome().unwrap_or_else(|error| panic!("{error}"));
        let reported = finding(found.stdout()).expect("a finding");
        assert_eq!(reported["result"], "denied", "{path} was found; it was left by {}", left.0);
        assert!(!std::path::Path::new(&path).exists(), "{path} is on the host");
    }
    // Otherwise nothing was left to be found.
    let path = format!("/tmp/hostile-{}", new_marker());
    let leave = RunInvocation::new().flags(&["--wall", "20s"]).hostile(&["create-file", &path, "keep"]);
    let (left, _) = leave.outcome().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(finding(left.stdout()).expect("a finding")["result"], "succeeded", "{}", left.0);
}
