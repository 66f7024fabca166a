//! Programs that are files in runs without namespaces, where there is no root to name them in.
#![cfg(feature = "javascript")]
#![allow(clippy::disallowed_methods, reason = "the files of the test are its own")]

use std::path::Path;
use std::sync::Arc;

use sandtimer::model::{InterpretedCommand, Tier};
use sandtimer::script::JavaScriptProgram;
use sandtimer::{Engine, Options, Outcome, Spec};

const WORKER: &str = "const { Worker, isMainThread } = require('worker_threads');
    const shown = [/^.proc.self.fd.100$/.test(__filename), __dirname === process.cwd(), require('./lib')];
    console.log(isMainThread, require.main === module, ...shown);
    if (isMainThread) new Worker(__filename).on('exit', () => {
      if (!process.argv[2]) require('child_process').fork(__filename, ['again']);
    });";
const MODULE: &str =
    "import lib from './lib.js'; console.log(lib, import.meta.url.endsWith('/[eval1]'), await 1)";
const SHELL: &str = "echo \"$0\"\nif [ -z \"$AGAIN\" ]; then AGAIN=1 bash \"$0\"; fi";

/// Runs code without namespaces, in a directory with a module.
fn run(engine: &Engine, code: InterpretedCommand, directory: &Path) -> Arc<Outcome> {
    let mut spec = Spec::command(code.command);
    spec.program = code.program;
    spec.working_directory = Some(directory.to_owned());
    spec.workspaces = vec![directory.to_owned()];
    let outcome = engine.run_blocking(spec).expect("a run");
    assert_eq!(outcome.isolation.tier, Tier::T1);
    outcome
}

#[test]
fn without_namespaces_programs_are_files() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("lib.js"), "module.exports = 'lib'").expect("written");
    let options = Options { no_namespaces: true, ..Options::default() };
    let engine = Engine::with_options(options).expect("an engine");
    let node = |code: &str| JavaScriptProgram::of(code, false).expect("JavaScript").interpreted();
    let long = format!("{SHELL}\n#{}", "x".repeat(140_000));
    let worker = "true true true true lib\nfalse true true true lib\n".repeat(2);
    for (code, stdout) in [
        (node(WORKER), worker.as_str()),
        (node(MODULE), "lib true 1\n"),
        (node(&format!("{MODULE}\n//{}", "x".repeat(140_000))), "lib true 1\n"),
        (InterpretedCommand::bash(SHELL), "/proc/self/fd/100\n/proc/self/fd/100\n"),
        (InterpretedCommand::bash(&long), "/proc/self/fd/100\n/proc/self/fd/100\n"),
    ] {
        let outcome = run(&engine, code, directory.path());
        assert_eq!((outcome.stdout.as_str(), outcome.exit_code), (stdout, Some(0)), "{outcome:?}");
    }
    let left: Vec<_> = std::fs::read_dir(directory.path())
        .expect("there")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(left, ["lib.js"]);
}
