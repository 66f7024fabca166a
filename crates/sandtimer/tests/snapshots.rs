//! Snapshots and forks of sandboxes: what they have, what changes afterwards, and what keeps them
//! from being made.
#![allow(clippy::disallowed_methods)] // tests look at what is left

use crate::as_user;
use crate::waiting;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use as_user::as_a_user;
use sandtimer::engine::{
    Change, ContextSpec, Durability, MAX_FORKS, MAX_LAYERS, Origin, Reading, Sandbox, SandboxError,
    SandboxNetwork, SandboxSpec, Sandboxes, StoredTemplate, Stream, Template,
};
use sandtimer::model::{Ending, Outcome};
use sandtimer::{Engine, Error, Limits, Spec};
use waiting::wait_until;

const OWNER: &str = "token-a";

fn open(engine: &Engine, directory: &Path) -> Sandboxes {
    engine.sandboxes(directory, &|_| None, &|reason| panic!("{reason}")).expect("the sandboxes")
}

fn spec_of(template: Template) -> SandboxSpec {
    SandboxSpec {
        template,
        template_name: "template".to_owned(),
        owner: OWNER.to_owned(),
        parent: None,
        network: SandboxNetwork::None,
        limits: Limits::new(),
    }
}

fn stored(template: &StoredTemplate) -> SandboxSpec {
    spec_of(Template::Stored(template.id.clone()))
}

fn spec_in(sandbox: &Sandbox, line: &str) -> Spec {
    let limits = Limits::new().wall(Duration::from_secs(30));
    Spec { sandbox: Some(sandbox.clone()), ..Spec::command(["sh", "-c", line]).limits(limits) }
}

#[track_caller]
fn run(engine: &Engine, sandbox: &Sandbox, line: &str) -> Arc<Outcome> {
    engine.run_blocking(spec_in(sandbox, line)).expect("a run")
}

#[track_caller]
fn output(engine: &Engine, sandbox: &Sandbox, line: &str) -> String {
    let outcome = run(engine, sandbox, line);
    assert_eq!((outcome.ending, outcome.exit_code), (Ending::Exited, Some(0)), "{outcome:?}");
    outcome.stdout.clone()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn snapshot_keeps_files_and_both_sides_change_alone() {
    if as_a_user("snapshot_keeps_files_and_both_sides_change_alone") {
        // And as root, below.
    }
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    let line = "echo one >file; mkdir -p d/e; echo deep >d/e/deep; touch removed; ln -s file link; chmod 600 file; echo home >~/kept; \
                echo tmp >/tmp/kept; mkdir shut; echo shut >shut/x; chmod 0 shut";
    output(&engine, &sandbox, line);
    let template = sandboxes.snapshot(&sandbox, Some("ready")).expect("a snapshot");
    assert_eq!((template.name.as_str(), template.layers()), ("ready", sandbox.layers()));
    assert_eq!(template.origin, Origin::Snapshot(sandbox.id().to_owned()));

    let change = "echo two >file; rm -r d removed; mkdir d; echo new >d/new; chmod 700 shut; cat shut/x";
    assert_eq!(output(&engine, &sandbox, change), "shut\n");
    let made = sandboxes.create(stored(&template)).expect("a sandbox");
    let check =
        "cat link d/e/deep ~/kept /tmp/kept; stat -c '%U %a' file; ls; ls d; test ! -r shut && echo closed";
    let old = "one\ndeep\nhome\ntmp\nuser 600\nd\nfile\nlink\nremoved\nshut\ne\nclosed\n";
    assert_eq!(output(&engine, &made, check), old);
    output(&engine, &made, "echo three >file; rm -r d; echo x >/tmp/other");
    assert_eq!(output(&engine, &sandbox, "cat file; ls d; ls /tmp"), "two\nnew\nkept\n");
    let again = sandboxes.create(stored(&template)).expect("a sandbox");
    assert_eq!(output(&engine, &again, check), old, "the template is as it was");
    wait_until("the size is counted", || {
        sandboxes.templates(OWNER)[0].size_bytes.is_some_and(|size| size > 4_000)
    });
    let (ids, template_id) = ([&sandbox, &made, &again].map(|one| one.id().to_owned()), template.id.clone());
    drop((sandbox, made, again, sandboxes));
    drop(engine);

    let engine = Engine::new().expect("the next engine");
    let sandboxes = open(&engine, state.path());
    let [sandbox, made, again] = ids.map(|id| sandboxes.find(&id, OWNER).expect("it is there"));
    assert_eq!(output(&engine, &again, check), old);
    assert_eq!(output(&engine, &sandbox, "cat file; ls d"), "two\nnew\n");
    let kept = sandboxes.templates(OWNER);
    assert_eq!((kept.len(), kept[0].id.as_str(), kept[0].is_uncertain()), (1, template_id.as_str(), false));

    // What uses a layer keeps it, whatever else is deleted.
    sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
    sandboxes.delete_template("ready", OWNER).expect("deleted");
    assert_eq!(output(&engine, &made, "cat file; ls"), "three\nfile\nlink\nremoved\nshut\n");
    let missing = sandboxes.create(spec_of(Template::Stored("ready".to_owned()))).expect_err("deleted");
    assert!(matches!(missing, Error::Sandbox(SandboxError::NoTemplate(_))), "{missing}");
    for left in [made, again] {
        sandboxes.delete(left.id(), OWNER).expect("deleted");
    }
    wait_until("no layer is left", || names(&state.path().join(".layers")).is_empty());
    assert_eq!(names(&state.path().join(".templates")), Vec::<String>::new());
}

#[test]
fn snapshot_is_refused_while_something_runs_and_names_it() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    let busy = engine.start(spec_in(&sandbox, "echo ready >file; echo ready; sleep 100")).expect("a run");
    wait_until("it has begun", || {
        busy.output(Stream::Stdout, 0, 100).expect("in memory").bytes.starts_with(b"ready")
    });
    let refused = |error: Error| match error {
        Error::Sandbox(SandboxError::HasRuns { runs, .. }) => runs,
        other => panic!("{other:?}"),
    };
    let snapshot = sandboxes.snapshot(&sandbox, None).expect_err("it has a run");
    assert!(snapshot.to_string().contains(&format!("the run {}", busy.id())), "{snapshot}");
    assert_eq!(refused(snapshot), [busy.id().to_owned()]);
    assert_eq!(refused(sandboxes.fork(&sandbox, 2, None).expect_err("it has a run")), [busy.id().to_owned()]);
    assert_eq!(sandboxes.templates(OWNER).len() + sandboxes.of(OWNER).len(), 1, "nothing was made");
    assert_eq!(sandbox.layers(), Vec::<String>::new());
    busy.cancel("enough");
    busy.wait_blocking();
    // At once: a run that has ended is waited for.
    let forks = sandboxes.fork(&sandbox, 1, None).expect("a fork");
    assert_eq!(output(&engine, &forks[0], "cat file"), "ready\n");
}

#[test]
fn forks_change_alone_and_are_made_whole_or_not() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    output(&engine, &sandbox, "seq 1000 >numbers");
    let forks = sandboxes.fork(&sandbox, 5, None).expect("forks");
    for (number, fork) in forks.iter().enumerate() {
        let line = format!("echo {number} >>numbers; tail -n 2 numbers; wc -l <numbers");
        assert_eq!(output(&engine, fork, &line), format!("1000\n{number}\n1001\n"));
        assert_eq!((fork.owner(), fork.template_name()), (OWNER.to_owned(), "template".to_owned()));
    }
    assert_eq!(output(&engine, &sandbox, "wc -l <numbers"), "1000\n");
    // What has not changed since is not stacked again.
    let more = sandboxes.fork(&sandbox, 1, None).expect("a fork");
    assert_eq!((more[0].layers(), sandbox.layers()), (forks[0].layers(), forks[0].layers()));
    assert_eq!(sandboxes.of(OWNER).len(), 7);
    for count in [0, MAX_FORKS + 1] {
        let refused = sandboxes.fork(&sandbox, count, None).expect_err("refused");
        let expected = format!("count: `{count}` is not a number of sandboxes from 1 to {MAX_FORKS}");
        assert_eq!(refused.to_string(), expected);
    }
    sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
    let deleted = sandboxes.fork(&sandbox, 1, None).expect_err("it is deleted");
    assert!(matches!(deleted, Error::Sandbox(SandboxError::NotFound(_))), "{deleted}");
    assert_eq!(output(&engine, &forks[4], "tail -n 1 numbers"), "4\n");
}

#[test]
fn names_of_templates_belong_to_their_owner() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    sandboxes.snapshot(&sandbox, Some("same")).expect("a snapshot");
    output(&engine, &sandbox, "touch x");
    let again = sandboxes.snapshot(&sandbox, Some("same")).expect_err("it exists");
    assert!(matches!(again, Error::Sandbox(SandboxError::TemplateExists(_))), "{again}");
    let odd = sandboxes.snapshot(&sandbox, Some("../up")).expect_err("no name");
    assert!(odd.to_string().starts_with("name: `../up` is not a name"), "{odd}");
    assert_eq!(sandbox.layers().len(), 1, "nothing was stacked for what is refused");
    let other = sandboxes.create(SandboxSpec { owner: "token-b".to_owned(), ..spec_of(Template::Host) });
    let other = other.expect("a sandbox");
    sandboxes.snapshot(&other, Some("same")).expect("another owner's name");
    let of_b = |name: &str| SandboxSpec {
        owner: "token-b".to_owned(),
        ..spec_of(Template::Stored(name.to_owned()))
    };
    let of_a = sandboxes.templates(OWNER)[0].id.clone();
    for error in [
        sandboxes.create(of_b(&of_a)).map(drop).expect_err("another owner's"),
        sandboxes.delete_template(&of_a, "token-b").map(drop).expect_err("another owner's"),
    ] {
        assert!(matches!(error, Error::Sandbox(SandboxError::NoTemplate(_))), "{error}");
    }
    sandboxes.create(of_b("same")).expect("its own");
}

#[test]
fn depth_is_bounded_with_the_remedy() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    for number in 0..MAX_LAYERS {
        // As a run would: each layer has a file of its own.
        let upper = state.path().join(sandbox.id()).join("layer/upper");
        std::fs::write(upper.join(format!("layer-{number}")), "x").expect("written");
        sandboxes.snapshot(&sandbox, None).expect("a snapshot");
    }
    assert_eq!(output(&engine, &sandbox, "ls / | grep -c '^layer-'"), format!("{MAX_LAYERS}\n"));
    output(&engine, &sandbox, "touch more");
    let refused = sandboxes.snapshot(&sandbox, None).expect_err("too deep");
    assert!(matches!(refused, Error::Sandbox(SandboxError::TooDeep { most: MAX_LAYERS, .. })), "{refused}");
    assert!(refused.to_string().contains("make a new sandbox"), "{refused}");
    assert_eq!(output(&engine, &sandbox, "ls"), "more\n", "it is as before");
}

/// What a power cut may have taken stays uncertain in all that is made of it.
#[test]
fn uncertain_files_stay_uncertain_in_snapshots_and_forks() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    output(&engine, &sandbox, "touch file");
    let (id, record) = (sandbox.id().to_owned(), state.path().join(sandbox.id()).join("record.json"));
    drop((sandbox, sandboxes));
    // As if the machine had been started again since.
    let text = std::fs::read_to_string(&record).expect("a record");
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("an id");
    std::fs::write(&record, text.replace(boot_id.trim(), "another")).expect("written");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.find(&id, OWNER).expect("there");
    let forks = sandboxes.fork(&sandbox, 1, None).expect("a fork");
    let template = sandboxes.snapshot(&sandbox, None).expect("a snapshot");
    let of = sandboxes.create(stored(&template)).expect("a sandbox");
    assert!(template.is_uncertain());
    assert_eq!([&sandbox, &forks[0], &of].map(Sandbox::durability), [Durability::Uncertain; 3]);
    let control = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    assert!(!sandboxes.snapshot(&control, None).expect("a snapshot").is_uncertain());
}

/// Contexts, sessions and work with files are named as what they are, not as runs.
#[test]
fn refused_snapshot_names_sessions_and_open_files() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    let refused = || {
        let error = sandboxes.snapshot(&sandbox, None).expect_err("it is in use");
        let text = error.to_string();
        match error {
            Error::Sandbox(SandboxError::HasRuns { runs, contexts, files, .. }) => {
                assert_eq!(runs, Vec::<String>::new(), "{text}");
                (contexts, files, text)
            }
            other => panic!("{other:?}"),
        }
    };
    let open_session = || {
        let spec = ContextSpec { sandbox: Some(sandbox.clone()), ..ContextSpec::default() };
        engine.session(spec).expect("a session")
    };
    let session = open_session();
    let (contexts, files, text) = refused();
    assert_eq!((contexts, files), (1, 0), "{text}");
    assert!(text.contains("has 1 live context or session; ") && text.contains(": close its"), "{text}");
    let (other, held) = (open_session(), sandbox.files().expect("held"));
    let (contexts, files, text) = refused();
    assert_eq!((contexts, files), (2, 1), "{text}");
    let both = "has 2 live contexts or sessions and has files that are being read or written; ";
    assert!(text.contains(both), "{text}");
    drop((session, other));
    wait_until("the sessions end", || sandbox.runs() == 0);
    let (contexts, files, text) = refused();
    assert_eq!((contexts, files), (0, 1), "{text}");
    assert!(text.contains("when the reads and writes of its files have ended"), "{text}");
    drop(held);
    sandboxes.snapshot(&sandbox, None).expect("nothing uses it");
}

/// What a sandbox has changed, as `A path`, `C path` and `D path`.
fn changes(sandbox: &Sandbox) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    sandbox.read_files(Reading::Changes, &mut |file| {
        let letter = match file.change {
            Change::Added => 'A',
            Change::Changed => 'C',
            Change::Deleted => 'D',
        };
        found.push(format!("{letter} {}", file.path.display()));
        Ok(())
    })?;
    found.sort();
    Ok(found)
}

#[test]
fn diff_has_deletions_below_new_directories() {
    if as_a_user("diff_has_deletions_below_new_directories") {
        // And as root, below.
    }
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let origin = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    output(&engine, &origin, "mkdir -p d/x/y d/kept; touch d/g d/x/f d/x/y/z d/kept/file");
    let template = sandboxes.snapshot(&origin, None).expect("a snapshot");
    let sandbox = sandboxes.create(stored(&template)).expect("a sandbox");
    assert_eq!(changes(&sandbox).expect("read"), Vec::<String>::new());
    // The kernel marks only the topmost of the new directories as opaque.
    output(&engine, &sandbox, "rm -r d; mkdir -p d/x/y; touch d/x/new");
    let expected = [
        "A workspace/d/x/new",
        "D workspace/d/g",
        "D workspace/d/kept",
        "D workspace/d/x/f",
        "D workspace/d/x/y/z",
    ];
    assert_eq!(changes(&sandbox).expect("read"), expected);
}

#[test]
fn path_too_long_to_read_is_named_and_permanent() {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    // As a run would make them, each below the one before.
    let upper = state.path().join(sandbox.id()).join("layer/upper");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut directory = openat(CWD, &upper, flags, Mode::empty()).expect("open");
    for number in 0..21 {
        let name = format!("{number}\n{}", "x".repeat(200));
        mkdirat(&directory, &name, Mode::from_raw_mode(0o755)).expect("made");
        directory = openat(&directory, &name, flags, Mode::empty()).expect("open");
    }
    let error = changes(&sandbox).expect_err("too deep");
    assert!(matches!(error, Error::Sandbox(SandboxError::PathTooLong { .. })), "{error:?}");
    let text = error.to_string();
    assert!(!error.is_retryable() && !text.contains("disk"), "{text}");
    assert!(text.contains("the path `/0\\nxxx") && !text.contains('\n') && text.len() < 500, "{text}");
}

/// A record that cannot be read may name any layer, also after the start at which it was not read.
#[test]
fn unreadable_template_keeps_layers_on_delete() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    output(&engine, &sandbox, "echo kept >file");
    let template = sandboxes.snapshot(&sandbox, Some("ready")).expect("a snapshot");
    // Else the record may be written once more.
    wait_until("the size is counted", || sandboxes.templates(OWNER)[0].size_bytes.is_some());
    drop((sandbox, sandboxes, engine));
    let record = state.path().join(".templates").join(format!("{}.json", template.id));
    let text = std::fs::read(&record).expect("a record");
    std::fs::write(&record, "{").expect("written");

    let engine = Engine::new().expect("the next engine");
    let sandboxes = engine.sandboxes(state.path(), &|_| None, &|_| {}).expect("the sandboxes");
    assert_eq!((sandboxes.templates(OWNER).len(), sandboxes.of(OWNER).len()), (0, 1));
    for sandbox in sandboxes.of(OWNER) {
        sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
    }
    drop((sandboxes, engine));
    std::fs::write(&record, &text).expect("written");

    let engine = Engine::new().expect("the last engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(stored(&template)).expect("a sandbox");
    assert_eq!(output(&engine, &sandbox, "cat file"), "kept\n");
    // All records are read again: the layer goes with the last that names it.
    sandboxes.delete(sandbox.id(), OWNER).expect("deleted");
    sandboxes.delete_template("ready", OWNER).expect("deleted");
    wait_until("no layer is left", || names(&state.path().join(".layers")).is_empty());
}

/// A record that cannot be read may name any layer.
#[test]
fn unreadable_record_keeps_all_layers() {
    let state = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.create(spec_of(Template::Host)).expect("a sandbox");
    output(&engine, &sandbox, "echo kept >file");
    sandboxes.fork(&sandbox, 1, None).expect("a fork");
    let layer = sandbox.layers().remove(0);
    let (kept, record) = (sandbox.id().to_owned(), state.path().join(sandbox.id()).join("record.json"));
    for other in sandboxes.of(OWNER).iter().filter(|other| other.id() != kept) {
        sandboxes.delete(other.id(), OWNER).expect("deleted");
    }
    drop((sandbox, sandboxes));
    let text = std::fs::read(&record).expect("a record");
    std::fs::write(&record, &text[..20]).expect("written");
    let reports = std::sync::Mutex::new(Vec::new());
    let report = |reason: &str| reports.lock().expect("whole").push(reason.to_owned());
    let sandboxes = engine.sandboxes(state.path(), &|_| None, &report).expect("the sandboxes");
    assert_eq!((sandboxes.all().len(), reports.lock().expect("whole").len()), (0, 1));
    drop(sandboxes);
    std::fs::write(&record, &text).expect("written");
    let sandboxes = open(&engine, state.path());
    let sandbox = sandboxes.find(&kept, OWNER).expect("there");
    assert_eq!((output(&engine, &sandbox, "cat file").as_str(), sandbox.layers()), ("kept\n", vec![layer]));
}
