//! `sandtimer node` and `sandtimer ts`.
#![allow(
    clippy::disallowed_methods,
    reason = "the command under test is started here; the engine is inside it"
)]

use std::path::Path;
use std::process::{Command, Stdio};

fn sandtimer(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandtimer"));
    command.args(arguments).current_dir(directory).env("SANDTIMER_CONFIG", "").stdin(Stdio::null());
    let output = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn code_and_files_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    std::fs::write(here.join("own.cjs"), "module.exports = 40").expect("written");
    let arguments = "console.log(process.argv.slice(2).join())";
    std::fs::write(here.join("a.js"), arguments).expect("written");
    std::fs::write(here.join("b.ts"), format!("enum A {{ B = 2 }}\nconst own: number = require('./own.cjs');\n{arguments}\nconsole.log(own + A.B);")).expect("written");
    std::fs::write(
        here.join("c.ts"),
        "import own from './own.cjs';\nconst x: number = await Promise.resolve(own);\nconsole.log(x);",
    )
    .expect("written");
    for (arguments, expected) in [
        (&["node", "-c", "console.log(1 + 1)"][..], "2\n"),
        (&["node", "a.js", "x", "y"], "x,y\n"),
        (&["ts", "-c", "const a: number = await 3; console.log(a)"], "3\n"),
        (&["ts", "b.ts", "x", "y"], "x,y\n42\n"),
        (&["ts", "c.ts"], "40\n"),
    ] {
        assert_eq!(
            sandtimer(here, arguments),
            (Some(0), expected.to_owned(), String::new()),
            "{arguments:?}"
        );
    }
    let (code, _, errors) = sandtimer(here, &["node", "--wall", "300ms", "-c", "for (;;) {}"]);
    assert_eq!(code, Some(124), "{errors}");
}

#[test]
fn errors_name_their_location() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    std::fs::write(here.join("a.ts"), "let a = 1;\nlet b: = 2;").expect("written");
    std::fs::write(here.join("b.ts"), "interface A {}\nconst b: A = {};\n(null as any).x;").expect("written");
    let (code, _, errors) = sandtimer(here, &["ts", "a.ts"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("a.ts:2:8: SyntaxError"), "{errors}");
    let (code, _, errors) = sandtimer(here, &["ts", "b.ts"]);
    assert!(code == Some(1) && errors.contains("b.ts:3:15"), "{errors}");
    let (code, _, errors) = sandtimer(here, &["node"]);
    assert!(code == Some(125) && errors.contains("-c CODE"), "{errors}");
}

#[test]
fn a_file_may_be_long_and_one_that_is_too_long_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let line = "export const text: string = 'abcdefghijklmnopqrstuvwxyz';\n";
    let long = |most: usize| {
        let lines =
            (0..most / line.len()).map(|n| line.replace("text", &format!("t{n:06}"))).collect::<String>();
        lines
            + "import { sep } from 'path';\nenum A { B = 40 }\nconsole.log((await 2) as number + A.B, sep);\n"
    };
    std::fs::write(here.join("long.ts"), long(800_000)).expect("written");
    std::fs::write(here.join("longer.ts"), long(1_200_000)).expect("written");
    assert_eq!(sandtimer(here, &["ts", "long.ts"]), (Some(0), "42 /\n".to_owned(), String::new()));
    let (code, _, errors) = sandtimer(here, &["ts", "longer.ts"]);
    assert!(code == Some(1) && errors.contains("at most 1048576 are read"), "{errors}");
}

#[test]
fn reading_has_the_limits_of_the_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let levels = 60;
    let endless = format!("let x: {}0{}", "({a=(y:".repeat(levels), ")=>0})=>void".repeat(levels));
    let (code, _, errors) = sandtimer(directory.path(), &["ts", "--wall", "600ms", "-c", &endless]);
    assert!(code == Some(1) && errors.contains("took longer than 600ms"), "{errors}");
    let deep = "(".repeat(100_000);
    let (code, _, errors) = sandtimer(directory.path(), &["ts", "-c", &deep]);
    assert!(code == Some(1) && errors.contains("SyntaxError"), "{errors}");
}
