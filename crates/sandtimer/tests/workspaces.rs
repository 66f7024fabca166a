//! Directories that outlive the runs that work in them.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use sandtimer::engine::{Cell, ContextSpec, make_workspace, workspace_owner};
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
fn interpreters_that_stand_ready_have_directories_and_take_unused_ones_along() {
    let parent = tempfile::tempdir().expect("a directory");
    let engine = Engine::new().expect("an engine");
    let workspaces = Some(parent.path().to_owned());
    let profile = Profile { interpreter: "python3".into(), live: true, workspaces, ..Profile::default() };
    let pool = engine.contexts(profile, 2).expect("a pool");
    pool.warm(2, &mut || false).expect("ready");
    let context = pool.open(ContextSpec::default(), &mut || false).expect("a context");
    let own = context.workspace().expect("its own").to_owned();
    let cell = |source: &str| Cell { source: source.to_owned(), ..Cell::default() };
    context.execute(cell("open('x', 'w').write('kept')"), &mut |_| {}).expect("a run");
    assert_eq!(std::fs::read_to_string(own.join("x")).expect("a file"), "kept");
    context.close();
    drop((context, pool));
    let left: Vec<_> = std::fs::read_dir(parent.path()).expect("a directory").flatten().collect();
    assert_eq!(left.iter().map(|entry| entry.path()).collect::<Vec<_>>(), [own], "the caller's to remove");
}

#[test]
fn a_context_is_there_before_its_first_checkpoint_which_the_first_cell_waits_for() {
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
            let cell = Cell { source: "open('go').read()".to_owned(), ..Cell::default() };
            context.execute(cell, &mut |_| {}).expect("a run")
        });
        std::fs::write(own.join("go"), "now").expect("written");
        let outcome = first.join().expect("an outcome");
        assert_eq!(outcome.value, Some(serde_json::json!("now")), "{outcome:?}");
    });
    assert_eq!(context.info().checkpoint, Ok(()));
    let endless = Cell {
        source: "while True: pass".to_owned(),
        limits: Limits::new().wall(Duration::from_millis(200)),
        ..Cell::default()
    };
    let outcome = context.execute(endless, &mut |_| {}).expect("a run");
    assert_eq!(outcome.ending, Ending::Timeout, "{outcome:?}");
    context.close();
}

#[test]
fn without_a_mount_namespace_it_is_refused() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("workspace");
    make_workspace(&directory).expect("made");
    let engine =
        Engine::with_options(Options { no_namespaces: true, ..Options::default() }).expect("an engine");
    let refused = engine.run_blocking(in_workspace(&directory, "true")).expect_err("refused").to_string();
    assert!(refused.contains("mount namespace"), "{refused}");
}
