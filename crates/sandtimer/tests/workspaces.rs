//! Directories that outlive the runs that work in them.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use sandtimer::engine::{
    BranchSpec, CellSpec, ContextSpec, make_temporary_directory, make_workspace, workspace_owner,
};
use sandtimer::model::Ending;
use sandtimer::zygote::{Prewarm, Profile};
use sandtimer::{Engine, Limits, Options, Spec};

fn in_workspace(directory: &std::path::Path, line: &str) -> Spec {
    Spec { workspace: Some(directory.to_owned()), ..Spec::command(["sh", "-c", line]) }
}

#[test]
fn files_of_one_run_are_the_next_ones_whatever_uids_they_have() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("workspace");
    make_workspace(&directory).expect("made");
    let engine = Engine::new().expect("an engine");
    // Two at a time have two rows, and two uids where the engine is root.
    let script = "umask 077; id -u >$$.$(id -u); mkdir -p d; echo x >>d/log; until [ $(ls | grep -c '[.]') = 2 ]; do sleep 0.01; done";
    let runs: Vec<_> =
        (0..2).map(|_| engine.start(in_workspace(&directory, script)).expect("a run")).collect();
    for run in runs {
        let outcome = run.wait_blocking();
        assert_eq!((outcome.ending, outcome.exit_code), (Ending::Exited, Some(0)), "{outcome:?}");
    }
    let uids: std::collections::BTreeSet<String> = std::fs::read_dir(&directory)
        .expect("a directory")
        .filter_map(|entry| entry.ok()?.path().extension()?.to_str().map(str::to_owned))
        .collect();
    assert_eq!(uids.len(), if workspace_owner().is_some() { 2 } else { 1 }, "{uids:?}");
    let outcome = engine.run_blocking(in_workspace(&directory, "pwd; wc -l <d/log; rm -r d")).expect("a run");
    assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("/workspace\n2\n", Some(0)), "{outcome:?}");
    let owner = workspace_owner().unwrap_or(rustix::process::geteuid().as_raw());
    for entry in std::fs::read_dir(&directory).expect("a directory").flatten() {
        assert_eq!(entry.metadata().expect("metadata").uid(), owner, "{entry:?}");
    }
}

#[test]
fn warm_interpreters_have_directories_and_remove_unused_ones() {
    let parent = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let workspaces = Some(parent.path().to_owned());
    let profile = Profile { interpreter: "python3".into(), live: true, workspaces, ..Profile::default() };
    let pool = engine.contexts(profile, 2).expect("a pool");
    pool.warm(2, &mut || false).expect("ready");
    let context = pool.open(ContextSpec::default(), &mut || false).expect("a context");
    let own = context.workspace().expect("its own").to_owned();
    let cell = |source: &str| CellSpec { source: source.to_owned(), ..CellSpec::default() };
    context.execute(cell("open('x', 'w').write('kept')"), &mut |_| {}).expect("a run");
    assert_eq!(std::fs::read_to_string(own.join("x")).expect("a file"), "kept");
    context.close();
    drop((context, pool));
    let left: Vec<_> = std::fs::read_dir(parent.path()).expect("a directory").flatten().collect();
    assert_eq!(left.iter().map(|entry| entry.path()).collect::<Vec<_>>(), [own], "the caller's to remove");
}

#[test]
fn context_exists_before_its_first_checkpoint() {
    let parent = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    // Its checkpoint is made once there is a file. What it was forked from has no `display`.
    let source = "import os, time\ndef wait():\n  while 'display' in globals() and not os.path.exists('/workspace/go'): time.sleep(0.01)\n\
                  os.register_at_fork(before=wait)";
    let prewarm = Some(Prewarm { source: source.to_owned(), limit: Duration::from_secs(20) });
    let workspaces = Some(parent.path().to_owned());
    let profile =
        Profile { interpreter: "python3".into(), live: true, workspaces, prewarm, ..Profile::default() };
    let pool = engine.contexts(profile, 1).expect("a pool");
    let context = pool.open(ContextSpec::default(), &mut || false).expect("a context");
    let own = context.workspace().expect("its own").to_owned();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let cell = CellSpec { source: "open('go').read()".to_owned(), ..CellSpec::default() };
            context.execute(cell, &mut |_| {}).expect("a run")
        });
        std::fs::write(own.join("go"), "now").expect("written");
        let outcome = first.join().expect("an outcome");
        assert_eq!(outcome.value, Some(serde_json::json!("now")), "{outcome:?}");
    });
    assert_eq!(context.info().checkpoint, Ok(()));
    let endless = CellSpec {
        source: "while True: pass".to_owned(),
        limits: Limits::new().wall(Duration::from_millis(200)),
        ..CellSpec::default()
    };
    let outcome = context.execute(endless, &mut |_| {}).expect("a run");
    assert_eq!(outcome.ending, Ending::Timeout, "{outcome:?}");
    context.close();
}

#[test]
fn temporary_directory_is_shared_by_what_is_given_it() {
    let parent = tempfile::tempdir().expect("a directory");
    let (directory, temporary) = (parent.path().join("workspace"), parent.path().join("temporary"));
    make_workspace(&directory).expect("made");
    make_temporary_directory(&temporary).expect("made");
    let engine = Engine::new().expect("an engine");
    let with = |line: &str| Spec { temporary: Some(temporary.clone()), ..in_workspace(&directory, line) };
    let outcome =
        engine.run_blocking(with("umask 077; echo kept >/tmp/a; echo $HOME $TMPDIR")).expect("a run");
    assert_eq!((outcome.stdout.as_str(), outcome.exit_code), ("/tmp /tmp\n", Some(0)), "{outcome:?}");
    let outcome = engine.run_blocking(with("cat ~/a; stat -c %a /tmp")).expect("a run");
    assert_eq!(outcome.stdout, "kept\n1777\n", "{outcome:?}");
    assert_eq!(std::fs::read_to_string(temporary.join("a")).expect("a file"), "kept\n");
    // Without it a run has its own.
    let outcome = engine.run_blocking(in_workspace(&directory, "ls -A /tmp")).expect("a run");
    assert_eq!(outcome.stdout, "", "{outcome:?}");
    // A project keeps its path although it lies below the host's /tmp, and a run cannot have it
    // made elsewhere.
    let project = tempfile::tempdir_in("/tmp").expect("a directory");
    std::fs::write(project.path().join("file"), "of the project").expect("written");
    let below = |line: &str| Spec {
        temporary: Some(temporary.clone()),
        workspaces: vec![project.path().to_owned()],
        ..Spec::command(["sh", "-c", line])
    };
    let line = format!("cat {0}/file; echo; echo x >{0}/made; cat /tmp/a", project.path().display());
    let outcome = engine.run_blocking(below(&line)).expect("a run");
    assert_eq!(outcome.stdout, "of the project\nkept\n", "{outcome:?}");
    assert_eq!(std::fs::read_to_string(project.path().join("made")).expect("a file"), "x\n");
    let name = project.path().file_name().expect("a name").to_str().expect("text");
    let line = format!("rmdir /tmp/{name}; ln -s /etc /tmp/{name}");
    assert_eq!(engine.run_blocking(with(&line)).expect("a run").exit_code, Some(0));
    // A recent plan is used again for a second.
    engine.run_blocking(with("sleep 1.1")).expect("a run");
    let outcome = engine.run_blocking(below("true")).expect("an Outcome");
    assert_eq!(outcome.ending, Ending::InfraError, "a link is in the way: {outcome:?}");
    // What it writes there counts against its limit.
    let limits = Limits::new().disk(8 << 20);
    let spec = Spec {
        limits,
        ..with("head -c 64M /dev/zero >/tmp/large; head -c 64M /dev/zero >/tmp/more; sleep 20")
    };
    let outcome = engine.run_blocking(spec).expect("a run");
    assert!(outcome.ending != Ending::Timeout && outcome.exit_code != Some(0), "{outcome:?}");
}

#[test]
fn contexts_and_branches_share_a_temporary_directory() {
    let parent = tempfile::tempdir().expect("a directory");
    let (directory, temporary) = (parent.path().join("workspace"), parent.path().join("temporary"));
    make_workspace(&directory).expect("made");
    make_temporary_directory(&temporary).expect("made");
    let engine = Engine::new().expect("an engine");
    let profile = Profile { interpreter: "python3".into(), live: true, ..Profile::default() };
    let pool = engine.contexts(profile, 0).expect("a pool");
    let spec = ContextSpec {
        workspace: Some(directory.clone()),
        temporary: Some(temporary.clone()),
        ..ContextSpec::default()
    };
    let origin = pool.open(spec.clone(), &mut || false).expect("a context");
    let session = engine.session(spec).expect("a session");
    let cell = |source: &str| CellSpec { source: source.to_owned(), ..CellSpec::default() };
    // More than a branch is given copies of.
    let outcome =
        origin.execute(cell("open('/tmp/a', 'wb').truncate(80 << 20)"), &mut |_| {}).expect("a run");
    assert_eq!(outcome.ending, Ending::Returned, "{outcome:?}");
    let outcome = session.execute(cell("stat -c %s ~/a; echo 1 >/tmp/b"), &mut |_| {}).expect("a run");
    assert_eq!(outcome.stdout, "83886080\n", "{outcome:?}");
    let shares = BranchSpec { count: 1, shares_workspace: true, ..BranchSpec::default() };
    let branch = origin.branch(&shares).expect("a branch").remove(0);
    let outcome = branch.execute(cell("import os; sorted(os.listdir('/tmp'))"), &mut |_| {}).expect("a run");
    assert_eq!(outcome.value, Some(serde_json::json!(["a", "b"])), "{outcome:?}");
}

#[test]
fn without_a_mount_namespace_it_is_refused() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("workspace");
    make_workspace(&directory).expect("made");
    let engine =
        Engine::with_options(Options { no_namespaces: true, ..Options::default() }).expect("an engine");
    let private = Spec { private_workspace: true, ..Spec::command(["true"]) };
    for spec in [in_workspace(&directory, "true"), Spec { temporary: Some(directory.clone()), ..private }] {
        let refused = engine.run_blocking(spec).expect_err("refused").to_string();
        assert!(refused.contains("mount namespace"), "{refused}");
    }
}
