//! An engine that is killed between two steps of a snapshot or a fork: no file is lost, and no
//! layer is left.

#![allow(
    clippy::disallowed_methods,
    reason = "the test starts engines as processes of its own, and ends this one"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::super::{Engine, Spec};
use super::record::TEMPLATES;
use super::{Sandbox, SandboxNetwork, SandboxSpec, Sandboxes, Template};
use crate::limits::Limits;
use crate::model::Ending;

const OWNER: &str = "owner";
/// The step at which this process kills itself, and the directory of its sandboxes.
const STEP: &str = "SANDTIMER_TEST_STEP";
const STATE: &str = "SANDTIMER_TEST_STATE";
const SNAPSHOT_STEPS: [&str; 5] = ["next made", "recorded", "moved", "renewed", "template recorded"];
const FORK_STEPS: [&str; 5] = ["next made", "recorded", "moved", "renewed", "fork made"];

fn open(engine: &Engine, directory: &Path) -> Sandboxes {
    engine.sandboxes(directory, &|_| None, &|reason| panic!("{reason}")).expect("the sandboxes")
}

fn host() -> SandboxSpec {
    SandboxSpec {
        template: Template::Host,
        template_name: "host".to_owned(),
        owner: OWNER.to_owned(),
        parent: None,
        network: SandboxNetwork::None,
        limits: Limits::new(),
    }
}

fn output(engine: &Engine, sandbox: &Sandbox, line: &str) -> String {
    let limits = Limits::new().wall(Duration::from_secs(30));
    let spec = Spec { sandbox: Some(sandbox.clone()), ..Spec::command(["sh", "-c", line]).limits(limits) };
    let outcome = engine.run_blocking(spec).expect("a run");
    assert_eq!((outcome.ending, outcome.exit_code), (Ending::Exited, Some(0)), "{outcome:?}");
    outcome.stdout.clone()
}

fn kill_at(wanted: &str) -> impl Fn(&str) {
    move |step| {
        if step == wanted {
            let this = rustix::process::getpid();
            let _ = rustix::process::kill_process(this, rustix::process::Signal::KILL);
        }
    }
}

/// Makes a sandbox of two layers, writes to it, and is killed in the next snapshot or fork.
fn be_killed(step: &str) {
    let state = PathBuf::from(std::env::var_os(STATE).expect("a directory"));
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, &state);
    let sandbox = sandboxes.create(host()).expect("a sandbox");
    output(&engine, &sandbox, "echo one >one; echo one >both; mkdir d; echo gone >d/gone; touch removed");
    sandboxes.snapshot(&sandbox, Some("first")).expect("a snapshot");
    output(&engine, &sandbox, "echo two >two; echo two >both; rm -r d removed; mkdir d; touch d/new");
    match step.split_once(": ").expect("what and step") {
        ("snapshot", step) => drop(sandboxes.snapshot_by_steps(&sandbox, Some("second"), &kill_at(step))),
        (_, step) => drop(sandboxes.fork_by_steps(&sandbox, 2, None, &kill_at(step))),
    }
    panic!("it was not killed at {step}");
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within ten seconds: {what}");
}

#[test]
fn kill_at_each_step_loses_no_file_and_leaks_no_layer() {
    if let Ok(step) = std::env::var(STEP) {
        return be_killed(&step);
    }
    let test = std::thread::current().name().expect("a test").to_owned();
    let snapshots = SNAPSHOT_STEPS.map(|step| format!("snapshot: {step}"));
    for step in snapshots.into_iter().chain(FORK_STEPS.map(|step| format!("fork: {step}"))) {
        let state = tempfile::tempdir().expect("a directory");
        let mut child = Command::new(std::env::current_exe().expect("a path"));
        child.args(["--exact", &test, "--nocapture"]).env(STEP, &step).env(STATE, state.path());
        let killed = child.output().expect("it starts");
        let is_killed = std::os::unix::process::ExitStatusExt::signal(&killed.status) == Some(9);
        assert!(is_killed, "{step}: {}", String::from_utf8_lossy(&killed.stderr));

        let engine = Engine::new().expect("the next engine");
        let sandboxes = open(&engine, state.path());
        let named: Vec<String> =
            sandboxes.templates(OWNER).into_iter().map(|template| template.name).collect();
        let expected: &[&str] =
            if step.ends_with("template recorded") { &["first", "second"] } else { &["first"] };
        assert_eq!(named, expected, "{step}");
        let all = sandboxes.all();
        assert_eq!(all.len(), if step == "fork: fork made" { 2 } else { 1 }, "{step}");
        for sandbox in &all {
            let found =
                output(&engine, sandbox, "cat one two both; ls; ls d; rm two; echo three >three; cat three");
            assert_eq!(found, "one\ntwo\ntwo\nboth\nd\none\ntwo\nnew\nthree\n", "{step}");
        }
        // The first template is as it was.
        let first = SandboxSpec { template: Template::Stored("first".to_owned()), ..host() };
        let first = sandboxes.create(first).expect("a sandbox");
        assert_eq!(
            output(&engine, &first, "cat one both d/gone; ls"),
            "one\none\ngone\nboth\nd\none\nremoved\n",
            "{step}"
        );
        // What can be done before can be done now.
        let again = sandboxes.snapshot(&all[0], Some("third")).expect("a snapshot");
        assert_eq!(sandboxes.fork(&all[0], 1, None).expect("a fork").len(), 1);
        let used: std::collections::BTreeSet<String> =
            sandboxes.all().iter().flat_map(Sandbox::layers).collect();
        assert!(again.stack.references().all(|layer| used.contains(layer)), "{step}");
        wait_until("layers without a record go", || names(&state.path().join(".layers")).len() == used.len());

        for sandbox in sandboxes.all() {
            sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
        }
        for template in sandboxes.all_templates() {
            sandboxes.delete_template(&template.id, OWNER).expect("deleted");
        }
        drop((all, first, sandboxes));
        drop(engine);
        let left = [state.path().join(".layers"), state.path().join(TEMPLATES)].map(|path| names(&path));
        assert_eq!(left, [Vec::<String>::new(), Vec::new()], "{step}");
        assert_eq!(names(state.path()).len(), 2, "{step}: only the two directories are left");
    }
}
