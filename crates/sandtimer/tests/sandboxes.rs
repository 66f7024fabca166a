//! Sandboxes: files that outlive runs and engines, and that nothing outside reaches.
#![allow(clippy::disallowed_methods)] // tests start programs and look at what is left

use crate::as_user;
use crate::waiting;

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use as_user::as_a_user;
use sandtimer::engine::{
    CellSpec, Context, ContextSpec, Durability, Run, Sandbox, SandboxError, SandboxSpec, Sandboxes, Stream,
    Template,
};
use sandtimer::model::{Ending, Layer, LimitKind, Outcome, RemainingState};
use sandtimer::zygote::Profile;
use sandtimer::{Engine, Error, Limits, Spec};
use waiting::wait_until;

const OWNER: &str = "token-a";

fn open(engine: &Engine, directory: &Path) -> Sandboxes {
    engine.sandboxes(directory, &|_| None, &|reason| panic!("{reason}")).expect("the sandboxes")
}

fn host_spec(owner: &str) -> SandboxSpec {
    SandboxSpec {
        template: Template::Host,
        template_name: "host".to_owned(),
        owner: owner.to_owned(),
        parent: None,
        network: sandtimer::engine::SandboxNetwork::None,
        limits: Limits::new(),
    }
}

fn spec_in(sandbox: &Sandbox, line: &str) -> Spec {
    let limits = Limits::new().wall(Duration::from_secs(30));
    Spec { sandbox: Some(sandbox.clone()), ..Spec::command(["sh", "-c", line]).limits(limits) }
}

/// Runs a line of shell in a sandbox.
#[track_caller]
fn run(engine: &Engine, sandbox: &Sandbox, line: &str) -> Arc<Outcome> {
    engine.run_blocking(spec_in(sandbox, line)).expect("a run")
}

/// The output of a line that succeeds.
#[track_caller]
fn output(engine: &Engine, sandbox: &Sandbox, line: &str) -> String {
    let outcome = run(engine, sandbox, line);
    assert_eq!((outcome.ending, outcome.exit_code), (Ending::Exited, Some(0)), "{outcome:?}");
    outcome.stdout.clone()
}

/// Whether a run has printed `ready`.
fn has_begun(run: &Run) -> bool {
    run.output(Stream::Stdout, 0, 100).expect("in memory").bytes.starts_with(b"ready")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn files_last_from_run_to_run_and_to_the_next_engine() {
    if as_a_user("files_last_from_run_to_run_and_to_the_next_engine") {
        // And as root, below.
    }
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(host_spec(OWNER)).expect("a sandbox");
    let line = "set -e; id -u; id -un; pwd; echo $HOME; for d in /tmp /home/user /workspace /var/tmp; do echo kept >$d/file; done; \
                mkdir d; ln -s file link; chmod 640 file; echo /dev/shm >/dev/shm/x; cat /proc/self/comm; wc -l </proc/meminfo";
    let first = output(&engine, &sandbox, line);
    let lines: Vec<&str> = first.lines().collect();
    assert_eq!(lines[..5], ["1000", "user", "/workspace", "/home/user", "cat"], "{first}");
    assert!(lines[5].parse::<u32>().is_ok_and(|lines| lines > 10), "{first}");
    let check = "cat /tmp/file /home/user/file /workspace/link /var/tmp/file; stat -c '%U %u %a' file; test -d d; ls /dev/shm";
    assert_eq!(output(&engine, &sandbox, check), "kept\nkept\nkept\nkept\nuser 1000 640\n");
    assert_eq!(sandbox.durability(), Durability::Certain);
    assert_eq!(sandbox.runs(), 0, "a run whose outcome is there is in it no more");
    let id = sandbox.id().to_owned();
    drop((sandbox, sandboxes));
    drop(engine);

    let engine = Engine::new().expect("the next engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.find(&id, OWNER).expect("it is there");
    assert_eq!(output(&engine, &sandbox, check), "kept\nkept\nkept\nkept\nuser 1000 640\n");
    assert_eq!((sandbox.template_name().as_str(), sandboxes.of(OWNER).len()), ("host", 1));
}

#[test]
fn each_run_has_its_own_limits_and_proof() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(host_spec(OWNER)).expect("a sandbox");
    let other = engine
        .start(spec_in(&sandbox, "until test -e /workspace/go; do sleep 0.01; done; echo done"))
        .expect("a run");
    let limits = Limits::new().wall(Duration::from_millis(300));
    let line = "echo partial | tee /workspace/partial; setsid sleep 100 & (setsid sleep 100 &) ; while :; do :; done";
    let slow = engine.run_blocking(spec_in(&sandbox, line).limits(limits)).expect("a run");
    assert_eq!((slow.ending, slow.stdout.as_str()), (Ending::Timeout, "partial\n"), "{slow:?}");
    assert_eq!(slow.tree.survivors, Some(0), "{slow:?}");
    let verdict = slow.verdict.as_ref().expect("a verdict");
    assert_eq!(verdict.kind, Some(LimitKind::Wall), "{verdict:?}");
    assert!(verdict.scope.contains(&format!("sandbox-{}", sandbox.id())), "{verdict:?}");
    assert!(slow.isolation.degraded.iter().any(|degraded| degraded.layer == "sandbox"), "{slow:?}");
    // The same walls as a plain run's.
    let plain = engine.run_blocking(Spec::command(["true"])).expect("a run");
    assert_eq!((slow.isolation.tier, slow.isolation.kill), (plain.isolation.tier, plain.isolation.kill));
    assert!(!other.has_finished(), "a limit ends only its own run");
    assert_eq!(output(&engine, &sandbox, "cat partial; touch go"), "partial\n");
    assert_eq!(other.wait_blocking().stdout, "done\n");
}

#[test]
fn commands_are_found_inside() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(host_spec(OWNER)).expect("a sandbox");
    output(
        &engine,
        &sandbox,
        "mkdir -p bin; printf 'echo without a first line: $1\\n' >bin/own; chmod +x bin/own; echo >bin/data",
    );
    let start = |command: &[&str]| {
        let spec = Spec { sandbox: Some(sandbox.clone()), ..Spec::command(command) };
        engine.run_blocking(spec.env("PATH", "/nowhere:/workspace/bin:/usr/bin:/bin")).expect("a run")
    };
    assert_eq!(start(&["own", "x"]).stdout, "without a first line: x\n");
    assert_eq!(start(&["bin/own", "y"]).stdout, "without a first line: y\n");
    assert_eq!(start(&["absent"]).exit_code, Some(127));
    assert_eq!(start(&["data"]).exit_code, Some(126));
    assert_eq!(start(&["/workspace/bin/data"]).exit_code, Some(126));
}

/// What a run writes is in its sandbox alone, and the layers of others are not to be reached.
#[test]
fn nothing_reaches_the_host_or_another_sandbox() {
    let state = tempfile::tempdir().expect("a directory");
    let secret = state.path().join("secret");
    std::fs::write(&secret, "the host's").expect("written");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, &state.path().join("sandboxes"));
    let [one, two] = [OWNER, "token-b"].map(|owner| sandboxes.create(host_spec(owner)).expect("a sandbox"));
    output(&engine, &one, "umask 0; echo private >/workspace/private; echo private >/tmp/private");
    let state_path = state.path().display();
    let attack = format!(
        "ls /workspace /tmp /home/user; cat {state_path}/secret; ls {state_path}; ls -R /sys/layer /sys/own; \
         ln -s {state_path}/secret link; cat link; ln -s ../../../../../../../../../..{state_path} up; ls up/; \
         mkdir -p {state_path} 2>/dev/null; touch /usr/bin/own /etc/own /own; mount -t tmpfs none /tmp; \
         unshare -Ur true; nsenter -t 1 -m true; cat /proc/1/environ; ls /proc/1/root; mknod /tmp/disk b 254 0; \
         for name in /proc/*/root /proc/self/fd/*; do ls $name/workspace; done; exit 0"
    );
    let printed = output(&engine, &two, &attack);
    assert!(
        !printed.contains("private") && !printed.contains("the host's") && !printed.contains("upper"),
        "{printed}"
    );
    assert_eq!(std::fs::read_to_string(&secret).expect("there"), "the host's");
    assert!(!Path::new("/usr/bin/own").exists() && !Path::new("/own").exists());
    // The control: outside of a sandbox it is found there.
    let layer = state.path().join("sandboxes").join(one.id()).join("layer/upper/workspace/private");
    assert_eq!(std::fs::read_to_string(layer).expect("in its layer"), "private\n");
    assert_eq!(output(&engine, &one, "cat /workspace/private"), "private\n");

    let missing = |found: Result<Sandbox, SandboxError>| matches!(found, Err(SandboxError::NotFound(_)));
    assert!(missing(sandboxes.find(one.id(), "token-b")) && missing(sandboxes.find(two.id(), OWNER)));
    assert!(missing(sandboxes.find("../secret", OWNER)) && missing(sandboxes.find("", OWNER)));
    assert_eq!(sandboxes.of("token-b").len(), 1);
}

/// On disk files belong to an id that no process has: a set-id file there grants nothing.
#[test]
fn files_on_disk_have_an_unused_owner_and_no_set_id_bits() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(host_spec(OWNER)).expect("a sandbox");
    let line = "cp /usr/bin/id tool; chmod 4755 tool && echo set; chmod 2755 tool && echo set; ls -l tool; ./tool -u";
    let printed = output(&engine, &sandbox, line);
    assert!(!printed.contains("set\n") && printed.ends_with("1000\n"), "{printed}");
    let tool = state.path().join(sandbox.id()).join("layer/upper/workspace/tool");
    let metadata = std::fs::metadata(&tool).expect("there");
    let owner = sandtimer::engine::workspace_owner().expect("root has one");
    assert_eq!((metadata.uid(), metadata.mode() & 0o6000), (owner, 0));
    // A set-id file of root that lies in the layer all the same is executed as anything else: the
    // control executes it outside.
    let planted = tool.with_file_name("planted");
    std::fs::copy("/usr/bin/id", &planted).expect("copied");
    std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o4755)).expect("set-id");
    let as_another =
        |program: &Path| Command::new(program).arg("-u").uid(as_user::USER).gid(as_user::USER).output();
    assert!(as_another(&planted).is_err(), "other users of the host cannot reach the layer");
    let copy = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir()
        .expect("a directory");
    let control = copy.path().join("planted");
    std::fs::copy(&planted, &control).expect("copied");
    std::fs::set_permissions(&control, std::fs::Permissions::from_mode(0o4755)).expect("set-id");
    let outside = as_another(&control).expect("started");
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "0\n", "the control gains root");
    assert_eq!(output(&engine, &sandbox, "./planted -u"), "1000\n");
}

#[test]
fn deletion_ends_runs_and_leaves_nothing() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let [sandbox, stays] = [0, 1].map(|_| sandboxes.create(host_spec(OWNER)).expect("a sandbox"));
    let line = "mkdir -p a/b/c; chmod 0 a/b; echo ready; exec sleep 100";
    let run = engine
        .start(Spec { sandbox: Some(sandbox.clone()), ..Spec::command(["sh", "-c", line]) })
        .expect("a run");
    wait_until("it has begun", || has_begun(&run));
    assert_eq!(sandbox.runs(), 1);
    sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
    let outcome = run.settled_blocking();
    assert_eq!((outcome.ending, outcome.tree.survivors), (Ending::Cancelled, Some(0)), "{outcome:?}");
    assert!(matches!(sandboxes.delete(sandbox.id(), OWNER), Err(Error::Sandbox(SandboxError::NotFound(_)))));
    let refused = engine.start(spec_in(&sandbox, "true")).expect_err("it is deleted");
    assert!(matches!(refused, Error::Sandbox(SandboxError::NotFound(_))), "{refused}");
    wait_until("its files are removed", || names(state.path()) == [stays.id().to_owned()]);
    assert_eq!(output(&engine, &stays, "echo lives"), "lives\n");
}

/// Every mount namespace of this machine that has an overlay of a sandbox.
fn overlays() -> usize {
    let processes = names(Path::new("/proc"));
    let mounts = processes.iter().filter(|name| name.parse::<u32>().is_ok());
    mounts
        .filter_map(|process| std::fs::read_to_string(format!("/proc/{process}/mountinfo")).ok())
        .filter(|mounts| mounts.lines().any(|line| line.contains("/sys/layer/upper")))
        .count()
}

/// The mark is in the options of the overlay, as the kernel shows them.
#[test]
fn census_counts_overlays_of_runs_and_finds_none_afterwards() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(host_spec(OWNER)).expect("a sandbox");
    let run = engine.start(spec_in(&sandbox, "echo ready; sleep 100")).expect("a run");
    wait_until("it has begun", || has_begun(&run));
    assert!(overlays() > 0, "the control: a run in a sandbox has it mounted");
    run.cancel("enough");
    run.settled_blocking();
    sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
    drop((run, sandbox, sandboxes));
    wait_until("no process has it mounted", || overlays() == 0);
    drop(engine);
    assert_eq!(std::fs::read_dir(state.path()).expect("a directory").count(), 0);
}

/// A root tree that is enough for a shell: the host's programs by bind mounts would be submounts,
/// so they are copied.
fn tree(parent: &Path) -> PathBuf {
    let root = parent.join("tree");
    let script = "set -e; mkdir -p $0/bin $0/etc $0/lib $0/srv/open $0/srv/shut; cd $0; \
        for tool in sh cat id ls mkdir touch rm; do path=$(readlink -f $(command -v $tool)); cp $path bin/$tool; \
        for library in $(ldd $path | grep -o '/[^ )]*'); do mkdir -p .$(dirname $library); cp -L $library .$library; done; done; \
        echo 'root:x:0:0:root:/root:/bin/sh' >etc/passwd; echo template >etc/name; echo lower >srv/open/file; \
        chmod 777 srv/open; chmod 600 etc/name; echo hidden >srv/shut/file; chmod 700 srv/shut; chmod 644 etc/name";
    let made = Command::new("sh").args(["-c", script]).arg(&root).status().expect("started");
    assert!(made.success());
    root
}

#[test]
fn directory_template_is_read_and_never_written() {
    let state = tempfile::tempdir().expect("a directory");
    let root = tree(state.path());
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, &state.path().join("sandboxes"));
    let of = |path: &Path| SandboxSpec { template: Template::Directory(path.to_owned()), ..host_spec(OWNER) };
    let [one, two] = [0, 1].map(|_| sandboxes.create(of(&root)).expect("a sandbox"));
    let line = "cat /etc/name; id -un; id -u; echo upper >/srv/open/file; rm /srv/open/file; touch /srv/open/new; ls /usr/bin/python3";
    let outcome = run(&engine, &one, line);
    assert_eq!(outcome.stdout, "template\nuser\n1000\n", "{outcome:?}");
    assert_eq!(output(&engine, &one, "ls /srv/open"), "new\n");
    assert_eq!(output(&engine, &two, "ls /srv/open; cat /srv/open/file"), "file\nlower\n");
    assert_eq!(std::fs::read_to_string(root.join("srv/open/file")).expect("there"), "lower\n");
    if rustix::process::getuid().is_root() {
        let shut = run(&engine, &two, "cat /srv/shut/file");
        assert_eq!((shut.stdout.as_str(), shut.exit_code), ("", Some(1)), "modes hold: {shut:?}");
    }

    // Its programs are its own: no shell of the host's is found there, and a Python zygote's
    // modules are not its own.
    let context = ContextSpec { sandbox: Some(one.clone()), ..ContextSpec::default() };
    let error = engine.session(context.clone()).expect_err("refused").to_string();
    assert!(error.contains("bash cannot be executed in it: No such file"), "{error}");
    let profile = Profile { interpreter: "/usr/bin/python3".into(), live: true, ..Profile::default() };
    let pool = engine.contexts(profile, 0).expect("a pool");
    let error = pool.open(context, &mut || false).expect_err("refused").to_string();
    assert!(error.starts_with("language: ") && error.contains("template `host`"), "{error}");

    let refused = |path: &Path| match sandboxes.create(of(path)) {
        Err(Error::Sandbox(SandboxError::Template { problem, .. })) => problem,
        other => panic!("{other:?}"),
    };
    assert!(refused(&state.path().join("absent")).contains("cannot be used"));
    assert!(refused(&root.join("etc/name")).contains("not a directory"));
    assert!(refused(Path::new("/")).contains("root of this host"));
    assert!(refused(state.path()).contains("shares files"));
    symlink(state.path(), state.path().join("link")).expect("a link");
    assert!(refused(&state.path().join("link")).contains("shares files"));
    assert_eq!(names(&state.path().join("sandboxes")).len(), 2, "nothing is left of them");
}

#[test]
fn what_a_sandbox_cannot_give_is_refused_by_name() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(host_spec(OWNER)).expect("a sandbox");
    let refused = |spec: Spec| {
        engine.start(Spec { sandbox: Some(sandbox.clone()), ..spec }).expect_err("refused").to_string()
    };
    let named = refused(Spec::command(["true"]).workspace(state.path()));
    assert!(named.starts_with("workspaces: ") && named.contains("write them there"), "{named}");
    assert!(refused(Spec { gpu: true, ..Spec::command(["true"]) }).starts_with("gpu: "));
    // Without namespaces there is no sandbox, and no directory of one.
    let options = sandtimer::Options { no_namespaces: true, ..sandtimer::Options::default() };
    let weak = Engine::with_options(options).expect("an engine");
    let weak_path = state.path().join("weak");
    let error = open(&weak, &weak_path).create(host_spec(OWNER)).expect_err("refused");
    assert!(matches!(error, Error::Sandbox(SandboxError::NoNamespaces(_))), "{error}");
    assert_eq!(names(&weak_path), Vec::<String>::new());
}

/// Two engines never mount one layer: the second is refused until the first has let it go.
#[test]
fn a_layer_is_mounted_by_one_engine_at_a_time() {
    let state = tempfile::tempdir().expect("a directory");
    let [first, second] = [0, 1].map(|_| Engine::new().expect("an engine"));
    let sandboxes = open(&first, state.path());
    let sandbox = sandboxes.create(host_spec(OWNER)).expect("a sandbox");
    let others = open(&second, state.path());
    let other = others.find(sandbox.id(), OWNER).expect("there");
    let waiting = std::thread::spawn(move || second.run_blocking(spec_in(&other, "cat x")).expect("a run"));
    assert_eq!(output(&first, &sandbox, "sleep 0.2; echo first >x"), "");
    assert!(!waiting.is_finished(), "it is mounted by the first");
    drop((sandbox, sandboxes, first));
    assert_eq!(waiting.join().expect("no panic").stdout, "first\n");
}

#[test]
fn unfinished_and_deleted_directories_go_at_the_next_start() {
    let state = tempfile::tempdir().expect("a directory");
    for name in [".new-aaa", ".trash-bbb"] {
        std::fs::create_dir_all(state.path().join(name).join("layer/upper/deep")).expect("made");
    }
    std::fs::create_dir_all(state.path().join("ccc/layer/upper")).expect("made");
    let engine = Engine::new().expect("an engine");
    let reports = std::sync::Mutex::new(Vec::new());
    let report = |reason: &str| reports.lock().expect("whole").push(reason.to_owned());
    let sandboxes = engine.sandboxes(state.path(), &|_| None, &report).expect("the sandboxes");
    assert_eq!(sandboxes.of(OWNER).len(), 0);
    wait_until("they are removed", || names(state.path()) == ["ccc"]);
    let reports = reports.into_inner().expect("whole");
    assert!(
        reports.len() == 1 && reports[0].contains("ccc is left out"),
        "files without a record stay: {reports:?}"
    );
}

/// Runs one of the tests of this suite in a mount namespace of its own; false when this process is
/// in one already.
fn in_own_mounts(test: &str) -> bool {
    const MARK: &str = "SANDTIMER_TEST_OWN_MOUNTS";
    if std::env::var_os(MARK).is_some() {
        return false;
    }
    let test_program = std::env::current_exe().expect("a path");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(test_program).args([
        "--exact",
        &format!("sandboxes::{test}"),
        "--nocapture",
    ]);
    let output = command.env(MARK, "1").output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    true
}

fn mount(arguments: &[&str], target: &Path) {
    let mounted = Command::new("mount").args(arguments).arg(target).status().expect("started");
    assert!(mounted.success(), "{arguments:?}");
}

/// Starts processes that stay, at most 300, and prints how many there are after each.
const FORKS: &str = "i=0; while [ $i -lt 300 ]; do sleep 60 & i=$((i + 1)); echo $i; done";

/// Without control groups the kernel counts processes of a uid, and runs of a sandbox share one.
#[test]
fn limit_of_processes_is_each_runs_without_control_groups() {
    if !rustix::process::getuid().is_root()
        || in_own_mounts("limit_of_processes_is_each_runs_without_control_groups")
    {
        return;
    }
    mount(&["-t", "tmpfs", "none"], Path::new("/sys/fs/cgroup"));
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(host_spec(OWNER)).expect("a sandbox");
    let limits = Limits::new().wall(Duration::from_secs(30)).processes(50);
    let forks = |spec: Spec| {
        let outcome = engine.run_blocking(spec.limits(limits.clone())).expect("a run");
        assert_eq!(outcome.isolation.tier, sandtimer::model::Tier::T2, "{outcome:?}");
        assert_eq!(outcome.tree.survivors, Some(0), "{outcome:?}");
        outcome.stdout.lines().count()
    };
    let outside = forks(Spec::command(["sh", "-c", FORKS]));
    assert!((40..50).contains(&outside), "a run outside of sandboxes: {outside}");
    // One more run of the sandbox has processes of the same uid: neither takes from the other's
    // limit.
    let line = "i=0; while [ $i -lt 40 ]; do sleep 60 & i=$((i + 1)); done; echo ready; wait";
    let other = engine.start(spec_in(&sandbox, line).limits(limits.clone())).expect("a run");
    wait_until("it has begun", || has_begun(&other));
    let inside = forks(spec_in(&sandbox, FORKS));
    assert!((40..50).contains(&inside), "a run in a sandbox: {inside}");
    assert!(!other.has_finished());
    other.cancel("enough");
    let unlimited = engine.run_blocking(spec_in(&sandbox, FORKS)).expect("a run");
    assert_eq!(unlimited.stdout.lines().count(), 300, "the control: without a limit they are all made");
}

/// A run has the limits of its sandbox's scope and of its own parent, if one is inside the other.
#[test]
fn parent_scope_bounds_a_run_in_a_sandbox() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let work = engine
        .open_scope(None, Layer::Job, "job", &Limits::new().wall(Duration::from_secs(60)))
        .expect("a scope");
    let sandboxes = engine.sandboxes(state.path(), &|_| None, &|reason| panic!("{reason}")).expect("all");
    let spec = SandboxSpec { parent: Some(work.id()), ..host_spec(OWNER) };
    let sandbox = sandboxes.create(spec).expect("a sandbox");
    let short = Limits::new().wall(Duration::from_millis(300));
    let inside = engine.open_scope(Some(sandbox.scope()), Layer::Loop, "loop", &short).expect("a scope");
    let slow = engine
        .run_blocking(Spec { parent: Some(inside.id()), ..spec_in(&sandbox, "sleep 60") })
        .expect("a run");
    assert_eq!(slow.ending, Ending::Timeout, "{slow:?}");
    let scope = &slow.verdict.as_ref().expect("a verdict").scope;
    assert_eq!(*scope, format!("job/sandbox-{}/loop", sandbox.id()), "{slow:?}");
    // One around the sandbox bounds it in any case.
    let around = Spec { parent: Some(work.id()), ..spec_in(&sandbox, "echo done") };
    assert_eq!(engine.run_blocking(around).expect("a run").stdout, "done\n");
    let elsewhere = engine.open_scope(None, Layer::Loop, "elsewhere", &short).expect("a scope");
    let error = engine
        .start(Spec { parent: Some(elsewhere.id()), ..spec_in(&sandbox, "true") })
        .expect_err("refused")
        .to_string();
    assert!(error.starts_with("parent: ") && error.contains("inside the sandbox's"), "{error}");
}

/// A live interpreter in a sandbox, with and without root: its state outlives a limit, and its
/// files are those of runs.
#[test]
fn live_interpreters_work_with_the_sandboxs_files() {
    if as_a_user("live_interpreters_work_with_the_sandboxs_files") {
        // And as root, below.
    }
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(host_spec(OWNER)).expect("a sandbox");
    let context = ContextSpec { sandbox: Some(sandbox.clone()), ..ContextSpec::default() };
    let execute = |context: &Context, source: &str, milliseconds: u64| {
        let limits = Limits::new().wall(Duration::from_millis(milliseconds));
        let cell = CellSpec { source: source.to_owned(), limits, ..CellSpec::default() };
        context.execute(cell, &mut |_| {}).expect("a run")
    };
    let session = engine.session(context.clone()).expect("a session");
    let first = execute(&session, "id -u; pwd; x=kept; cd ~; echo session >file", 30_000);
    assert_eq!(first.stdout, "1000\n/workspace\n", "{first:?}");
    assert_eq!(output(&engine, &sandbox, "cat ~/file"), "session\n");
    let slow = execute(&session, "setsid sleep 60 & while :; do :; done", 300);
    assert_eq!(
        (slow.ending, slow.state, slow.tree.survivors),
        (Ending::Timeout, RemainingState::RolledBack, Some(0))
    );
    assert_eq!(execute(&session, "echo $x $PWD", 30_000).stdout, "kept /home/user\n");
    let profile = Profile { interpreter: "/usr/bin/python3".into(), live: true, ..Profile::default() };
    let pool = engine.contexts(profile, 0).expect("a pool");
    let python = pool.open(context, &mut || false).expect("a context");
    let first = execute(
        &python,
        "import os\nx = open('/home/user/file').read()\nprint(os.getuid(), os.getcwd(), x)",
        30_000,
    );
    assert_eq!(first.stdout, "1000 /workspace session\n\n", "{first:?}");
    let slow = execute(
        &python,
        "x = ''\nimport signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        300,
    );
    assert_eq!((slow.ending, slow.state), (Ending::Timeout, RemainingState::RolledBack), "{slow:?}");
    assert_eq!(execute(&python, "print(x)\nopen('/tmp/python', 'w').write(x)", 30_000).stdout, "session\n\n");
    assert_eq!(output(&engine, &sandbox, "cat /tmp/python"), "session\n");
    drop((session, python));
    sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
}

/// However far making a sandbox has come when the disk is full: the error names the remedy, and
/// nothing is left.
#[test]
fn full_disk_is_reported_and_leaves_nothing() {
    if !rustix::process::getuid().is_root() || in_own_mounts("full_disk_is_reported_and_leaves_nothing") {
        return;
    }
    let mut results = Vec::new();
    for inodes in (2..24).step_by(2) {
        let state = tempfile::tempdir().expect("a directory");
        mount(&["-t", "tmpfs", "-o", &format!("nr_inodes={inodes},size=1m"), "none"], state.path());
        // An engine has what was mounted when it started.
        let engine = Engine::new().expect("an engine");
        let sandboxes = open(&engine, state.path());
        let created = sandboxes.create(host_spec(OWNER));
        results.push(created.is_ok());
        match created {
            Ok(sandbox) => assert_eq!(output(&engine, &sandbox, "echo runs"), "runs\n"),
            Err(error) => {
                assert!(error.to_string().contains("free space"), "{inodes} inodes: {error}");
                assert_eq!(names(state.path()), Vec::<String>::new(), "{inodes} inodes");
            }
        }
    }
    assert!(
        results.contains(&false) && results.last() == Some(&true),
        "the control: with room it is made: {results:?}"
    );
}

#[test]
fn state_directory_on_an_overlay_is_refused_with_the_remedy() {
    let name = "state_directory_on_an_overlay_is_refused_with_the_remedy";
    if !rustix::process::getuid().is_root() || in_own_mounts(name) {
        return;
    }
    let parts = tempfile::tempdir().expect("a directory");
    let state = tempfile::tempdir().expect("a directory");
    let part = |name: &str| {
        let path = parts.path().join(name);
        std::fs::create_dir(&path).expect("made");
        path.display().to_string()
    };
    let options = format!("lowerdir={},upperdir={},workdir={}", part("lower"), part("upper"), part("work"));
    mount(&["-t", "overlay", "-o", &options, "none"], state.path());
    let engine = Engine::new().expect("an engine");
    let error = open(&engine, state.path()).create(host_spec(OWNER)).expect_err("refused");
    assert!(matches!(error, Error::Sandbox(SandboxError::OnOverlay { .. })), "{error}");
    assert!(error.to_string().contains("another file system"), "{error}");
    assert_eq!(names(state.path()), Vec::<String>::new());
}

/// At any moment between a run's start and its first process.
#[test]
fn deletion_ends_runs_that_are_being_started() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    for milliseconds in 0..12 {
        let sandbox = sandboxes.create(host_spec(OWNER)).expect("a sandbox");
        std::thread::scope(|scope| {
            let starting = scope.spawn(|| engine.start(spec_in(&sandbox, "sleep 100")));
            std::thread::sleep(Duration::from_millis(milliseconds));
            sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
            if let Ok(run) = starting.join().expect("no panic") {
                assert_eq!(run.settled_blocking().ending, Ending::Cancelled);
            }
        });
    }
}
