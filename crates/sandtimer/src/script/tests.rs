//! Code as it is given and as interpreters get it.

use super::{JavaScriptProgram, MAX_CODE_BYTES, SyntaxError, cell, javascript};

fn is_module(code: &str) -> bool {
    JavaScriptProgram::of(code, false).expect("JavaScript is not read").is_module
}

fn plain(source: &str) -> String {
    let code = javascript(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    assert_eq!(code.matches('\n').count(), source.matches('\n').count(), "{source} becomes {code}");
    code.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn types_are_blanked_out_where_they_stand() {
    let source = "const a: number = 1 as number;\nfunction f<T>(x: T, y?: string): T { return x! }";
    let code = javascript(source).expect("TypeScript");
    assert_eq!(code.len(), source.len());
    assert_eq!(plain(source), "const a = 1 ; function f (x , y ) { return x }");
    assert_eq!(plain("interface A { b: string }\ntype C = A | null;\n1"), "; 1");
    assert_eq!(plain("import type { A } from './a';\nlet b: A;"), "; let b ;");
}

#[test]
fn what_is_more_than_types_becomes_javascript_on_its_lines() {
    let code = plain("enum Color {\n  Red,\n  Green = 5,\n}\nColor.Green");
    assert!(code.contains("var Color") && code.contains("Green") && code.ends_with("Color.Green"), "{code}");
    assert!(plain("const enum A {\n B }\nA.B").contains("var A"));
    assert!(plain("namespace N {\n export const a = 1\n}\nN.a").starts_with("var N; "));
    assert_eq!(plain("import fs = require('fs');"), "const fs = require('fs');");
    let code = plain("class A { constructor(private readonly x: number, public y = 2) { } }");
    assert_eq!(code, "class A { constructor( x , y = 2) { this.x = x; this.y = y; } }");
    let code = plain("class B extends A {\n constructor(private z: number) {\n super(1)\n f()\n } }");
    assert!(code.contains("super(1); this.z = z; f()"), "{code}");
}

#[test]
fn syntax_error_names_its_position() {
    let error = javascript("let a = 1;\nlet b: = 2;").expect_err("no type");
    assert_eq!((error.line, error.column), (2, 8), "{error}");
    let SyntaxError { line, .. } = javascript("enum A {\n B = ,\n}").expect_err("no value");
    assert_eq!(line, 2);
    assert_eq!(cell("const = 1", true).lines().next(), Some("e1:7"));
    assert_eq!(cell("const = 1", false), "xconst = 1");
}

#[test]
fn imports_of_a_cell_are_expressions_with_their_bindings() {
    let script = |source: &str| cell(source, false);
    for (source, code) in [
        ("import fs from 'fs'", "xconst { default: fs } = await _$imp_('fs');"),
        ("import { a, b as c } from 'd';", "xconst { a, b: c } = await _$imp_('d');"),
        ("import * as e from \"e\"", "xconst e = await _$imp_(\"e\");"),
        ("import 'f'", "xawait _$imp_('f');"),
        (
            "import g from './g.json' with { type: 'json' }",
            "xconst { default: g } = await _$imp_('./g.json', { with: { type: 'json' } });",
        ),
        ("const h = await import('h')", "xconst h = await _$imp_('h')"),
        ("'import(1)' // import(2)", "x'import(1)' // import(2)"),
    ] {
        assert_eq!(script(source), code);
    }
    assert_eq!(script("import {\n a\n} from 'b'\na"), "xconst { a } = await _$imp_('b');\n\n\na");
    assert_eq!(script("export const a = import('b')"), "x       const a = _$imp_('b')");
    assert_eq!(script("export default 5"), "x;(             5);");
    assert_eq!(script("export default class A {}"), "x               class A {}");
    assert_eq!(script("a\nexport default class {}\n[1]"), "xa\n;(             class {});\n[1]");
    assert_eq!(script("export default async function () {}"), "x;(             async function () {});");
}

#[test]
fn code_that_only_a_module_may_be_is_one() {
    for code in
        ["import a from 'a'", "export {}", "await 1", "for await (const a of b) {}", "import.meta.url"]
    {
        assert!(is_module(code), "{code}");
    }
    for code in ["async function f() { await 1 }", "import('a')", "'await'", "const export_ = 1", "await ("] {
        assert!(!is_module(code), "{code}");
    }
    let made = JavaScriptProgram::of("1 as any", true).expect("TypeScript");
    assert_eq!(made.clone().interpreted().command, ["node", "--eval=1       ", "--"]);
    for program in [made, JavaScriptProgram { code: "a\nb".to_owned(), is_module: true }] {
        assert_eq!(JavaScriptProgram::from_reply(&program.text()), Ok(program));
    }
    let error = SyntaxError { line: 2, column: 8, message: "a\nb".to_owned() };
    assert_eq!(JavaScriptProgram::from_reply(&error.text()), Err(error));
}

/// Reading goes as deep as code is nested, and the process that reads is the host's.
#[test]
fn code_that_is_as_deep_as_it_is_long_is_read_or_refused() {
    let times = |text: &str, rest: &str| text.repeat((MAX_CODE_BYTES - rest.len()) / text.len()) + rest;
    for deep in ["!", "(", "[", "a+", "if(1)", "a."] {
        let _ = (cell(&times(deep, "import('a')"), false), cell(&times(deep, "import('a')"), true));
    }
    for slow in ["x<", "<T>("] {
        assert!(cell(&times(slow, ""), true).contains("in one another"), "{slow}");
    }
    assert!(cell(&"a;".repeat(MAX_CODE_BYTES), true).starts_with("e1:1\nthe code has"));
}

/// Patterns in types are read once to see what they are, and again; in one another that doubles
/// with each.
#[test]
fn reading_that_takes_too_long_is_given_up_and_steps_back() {
    let levels = 60;
    let slow = format!("let x: {}0{}", "({a=(y:".repeat(levels), ")=>0})=>void".repeat(levels));
    assert!(cell(&slow, true).starts_with("e1:1\nreading the code took longer than 5s"), "it has an end");
    let stat =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks");
    let readers = tasks.flatten().map(stat).filter(|stat| stat.contains("(st-reader)"));
    // proc_pid_stat(5): the 19th field, the 17th after the name.
    let nice =
        |stat: String| stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(16)).map(str::to_owned);
    assert_eq!(readers.map(nice).collect::<Vec<_>>(), [Some("19".to_owned())]);
}

/// JavaScript is read once: what may be a pattern is made one afterwards.
#[test]
fn javascript_is_read_in_time_whatever_is_nested_in_it() {
    use sandtimer_os::clock::monotonic_nanoseconds;
    for (open, close) in [
        ("(a,b=", ")=>0"),
        ("async ({a=", "})=>0"),
        ("(async (a=", "))"),
        ("a?(b):c=>", ""),
        ("`${", "}`"),
        ("[...", "]"),
        ("(function(){", "})"),
    ] {
        let source = format!("import('b');{}a=>0{}", open.repeat(4_000), close.repeat(4_000));
        let begun = monotonic_nanoseconds();
        let _ = cell(&source, false);
        assert!(monotonic_nanoseconds() - begun < 4_000_000_000, "{open}");
    }
    let html = format!("import a from 'a'\nconst b = '{}'", "<br>".repeat(1_000));
    assert!(
        cell(&html, false).starts_with("xconst { default: a }"),
        "what begins types is nothing in JavaScript"
    );
}
