//! The attacks again, by a user without privileges: what holds then is what `doctor` says holds,
//! and no process stays.
//!
//! The whole table is run by root in the other suites. The rows here are those whose wall is
//! another one, or none, without root: no uid of the run's own, and where the host grants no
//! control groups, limits by rlimit.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use sandtimer_tests::attack::{AttackSpec, attack_by};
use sandtimer_tests::attack_list::{ALL, BOMBS};
use sandtimer_tests::census::{Census, left_over};
use sandtimer_tests::command::{RunInvocation, Visitor};
use sandtimer_tests::process::{ProcessStat, descendants, marked, start};
use sandtimer_tests::scene::CanaryScene;
use sandtimer_tests::wait::{alone, now, until};

const USER: u32 = 1234;
const ATTACKS: &[&str] = &[
    "A1", "A2", "A4", "A5", "B1", "B3", "B4", "B6", "C1", "C10", "C13", "D1", "E1", "E6", "F1", "F2", "F8",
    "F16", "F18", "H1",
];
/// Attacks that are harmless without a pid namespace, and whose end needs none.
const ON_TIME: &[&str] = &["A1", "A2", "A4", "A5"];

/// What `doctor --json` says to the user.
fn doctor(visitor: &Visitor) -> serde_json::Value {
    let mut command = Command::new(visitor.binary("sandtimer"));
    command.args(["doctor", "--json"]).uid(visitor.user).gid(visitor.user).current_dir("/");
    let finished = start(&mut command, vec![], Duration::from_secs(30)).finish();
    assert_eq!(finished.code(), Some(0), "doctor: {}", finished.errors());
    serde_json::from_str(&finished.text()).unwrap_or_else(|error| panic!("{error} in {}", finished.text()))
}

fn tier(report: &serde_json::Value) -> &str {
    report["tier"].as_str().expect("doctor names a tier")
}

fn missing(report: &serde_json::Value, layer: &str) -> bool {
    let layers = report["layers"].as_array().expect("doctor lists layers");
    layers.iter().any(|entry| entry["layer"] == layer && entry["status"] != "ok")
}

/// The rows that mean something at this tier: without namespaces the payloads refuse what would
/// harm the host.
fn attacks_at_tier(tier: &str) -> Vec<AttackSpec> {
    let attacks = if ["T2", "T3"].contains(&tier) { ATTACKS } else { ON_TIME };
    let all = ALL.iter().copied().chain([BOMBS]).flatten();
    all.filter(|spec| attacks.contains(&spec.attack)).copied().collect()
}

fn run(visitor: &Visitor, flags: &[&str], payload: &[&str]) -> RunInvocation {
    RunInvocation::new().by(visitor).flags(flags).hostile(payload)
}

#[test]
fn the_table_holds_at_the_tier_that_doctor_reports() {
    let _alone = alone("rootless attacks", Duration::from_secs(600));
    let visitor = Visitor::new(USER);
    let report = doctor(&visitor);
    let tier = tier(&report);
    let mut scene = CanaryScene::new();
    let mut failures = vec![];
    let specs = attacks_at_tier(tier);
    assert!(ATTACKS.len() <= specs.len() || tier < "T2", "the table lost rows: {}", specs.len());
    for spec in &specs {
        let before = Census::take();
        let name = format!("{} {}", spec.attack, spec.payload.join(" "));
        match attack_by(RunInvocation::new().by(&visitor), spec, &mut scene) {
            Ok(outcome) if outcome.tier() == tier => {}
            Ok(outcome) => failures.push(format!("{name}: doctor says {tier}: {}", outcome.0["isolation"])),
            Err(error) => failures.push(format!("{name}: {error}")),
        }
        let left = left_over(&before, &[]);
        if !left.is_empty() {
            failures.push(format!("{name}: left behind {}", left.join("; ")));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} rows at {tier}:\n{}",
        failures.len(),
        specs.len(),
        failures.join("\n")
    );
}

/// What root would have and this user has not is said, by doctor and by every Outcome.
#[test]
fn what_is_missing_is_reported() {
    let _alone = alone("rootless report", Duration::from_secs(60));
    let visitor = Visitor::new(USER);
    let report = doctor(&visitor);
    let (outcome, _) =
        RunInvocation::new().by(&visitor).command(&["/bin/true"]).outcome().expect("an Outcome");
    let degraded = outcome.degraded();
    for layer in ["own uid", "cgroup limits", "cgroup kill", "namespaces"] {
        let known_as = if layer == "cgroup kill" { "cgroup.kill" } else { layer };
        assert_eq!(
            degraded.contains(&layer),
            missing(&report, known_as),
            "{layer}: {degraded:?} and {report}"
        );
    }
    assert!(degraded.contains(&"own uid"), "{degraded:?}");
    let required =
        RunInvocation::new().by(&visitor).flags(&["--require", "T3"]).command(&["/bin/true"]).finish();
    let expected = if tier(&report) == "T3" { 0 } else { 125 };
    assert_eq!(required.code(), Some(expected), "{}", required.errors());
}

/// D5.
#[test]
fn output_past_its_limit_is_dropped_and_flagged() {
    let _alone = alone("rootless flood", Duration::from_secs(120));
    let visitor = Visitor::new(USER);
    let flags = ["--wall", "30s", "--output", "1M"];
    let (outcome, _) = run(&visitor, &flags, &["flood-stdout", "64M"]).outcome().expect("an Outcome");
    assert_eq!(outcome.ending(), "exited", "{}", outcome.0);
    assert!(outcome.is_truncated("stdout") && outcome.stdout().len() <= (1 << 20) + 4096);
}

/// I6.
#[test]
fn a_killed_engine_takes_its_runs_along() {
    let _alone = alone("rootless engine killed", Duration::from_secs(120));
    let visitor = Visitor::new(USER);
    for payload in ["spin", "ignore-signals", "setsid-shuffle", "stop-self"] {
        let run = run(&visitor, &[], &[payload]);
        let engine = run.start();
        let payloads = || -> Vec<ProcessStat> {
            marked(&run.marker).into_iter().filter(|process| process.runs("hostile")).collect()
        };
        let up = until(Duration::from_secs(10), || !payloads().is_empty());
        assert!(up, "{payload} was not up within 10 s");
        let helpers = descendants(engine.pid());
        let killed = now();
        engine.signal(Signal::KILL);
        let mut alive = vec![];
        let dead = until(Duration::from_secs(1), || {
            alive = payloads();
            alive.extend(helpers.iter().filter(|helper| !helper.is_dead()).cloned());
            alive.is_empty()
        });
        assert!(dead, "{payload}: alive {:?} after the engine's death: {alive:?}", now() - killed);
    }
}
