//! Cells as notebooks have them: values, magics, shell commands, what libraries display, and
//! tracebacks of the cell's own.

use crate::live;

use std::time::Duration;

use live::{python_context, run, within};
use sandtimer::Ending;
use sandtimer::engine::Context;
use serde_json::{Value, json};

/// What a cell shows last, by MIME type.
fn shown(context: &Context, source: &str) -> Value {
    let outcome = run(context, source);
    assert!(outcome.ok, "{source}: {outcome:?}");
    outcome.results.last().cloned().map_or(Value::Null, |shown| json!(shown))
}

fn value(context: &Context, source: &str) -> Value {
    shown(context, source)["application/json"].clone()
}

fn traceback(context: &Context, source: &str) -> String {
    let outcome = run(context, source);
    assert_eq!(outcome.ending, Ending::Raised, "{source}: {outcome:?}");
    outcome.error.as_ref().expect("an error")["traceback"].as_str().expect("a text").to_owned()
}

#[test]
fn last_expression_has_its_value() {
    let context = python_context();
    for (source, expected) in [
        ("3  # done;", json!(3)),
        ("x = 2\nx  # a; b;", json!(2)),
        ("'a;'", json!("a;")),
        ("3;", Value::Null),
        ("3;  # done", Value::Null),
        ("(3);", Value::Null),
        ("  x = 1\n  x + 1", json!(2)),
        ("    # indented\n    y = 1\n    if y:\n        y = 5\n    y", json!(5)),
        ("\u{feff}x = 5\nx", json!(5)),
        ("True", json!(true)),
    ] {
        assert_eq!(value(&context, source), expected, "{source:?}");
    }
}

/// Simulates numpy's scalars, which have these names in every version.
const NUMPY: &str = "import sys, types
class generic:
    def __init__(self, own, kind='i'): self.own, self.dtype = own, types.SimpleNamespace(kind=kind)
    def item(self): return self.own
sys.modules.setdefault('numpy', types.SimpleNamespace(generic=generic))";

#[test]
fn numpy_scalars_have_a_value() {
    let context = python_context();
    assert!(run(&context, NUMPY).ok);
    for (source, expected) in [
        ("generic(3)", json!(3)),
        ("generic(True, 'b')", json!(true)),
        ("generic(1.5, 'f')", json!(1.5)),
        ("generic(float('nan'), 'f')", Value::Null),
        ("generic(7, 'M')", Value::Null),
        ("[generic(1), {'a': generic(2)}]", json!([1, {"a": 2}])),
        ("[object()]", Value::Null),
    ] {
        assert_eq!(value(&context, source), expected, "{source}");
    }
}

#[test]
fn shell_commands_and_magics_work() {
    let context = python_context();
    let printed = |source: &str| run(&context, source).stdout.clone();
    assert_eq!(
        printed("name = 'there'\n!echo hello $name {1 + 1} \"it's\" $HOME"),
        format!("hello there 2 it's /tmp\n")
    );
    assert_eq!(value(&context, "files = !printf 'a\\nb\\n'\nfiles"), json!(["a", "b"]));
    assert_eq!(printed("for i in range(2):\n    !echo $i"), "0\n1\n");
    assert_eq!(value(&context, "!exit 3\n_exit_code"), json!(3));
    assert_eq!(printed("%%bash\necho one\necho two"), "one\ntwo\n");
    assert_eq!((printed("%cd /tmp"), value(&context, "%pwd")), ("/tmp\n".to_owned(), json!("/tmp")));
    assert_eq!((printed("%env A=b"), value(&context, "%env A")), ("env: A=b\n".to_owned(), json!("b")));
    assert_eq!(value(&context, "%matplotlib inline\n3"), json!(3));
    assert!(printed("%time sum([1])").contains("Wall time: "));
    assert_eq!(value(&context, "%time sum([1])"), json!(1));
    assert_eq!(value(&context, "%%time\nx = 5\nx + 1"), json!(6));
    assert!(printed("%timeit -n 10 -r 2 1 + 1").contains("2 runs, 10 loops each"));
    assert_eq!(printed("%%writefile /tmp/written\ntext\n!cat /tmp/written"), "Writing /tmp/written\n");
    assert_eq!(printed("!cat /tmp/written"), "text\n!cat /tmp/written\n");
    // What is Python stays Python.
    assert_eq!(value(&context, "s = '''\n!ls\n%time\n'''\n!true\nlen(s)"), json!(11));
    assert_eq!(value(&context, "(5\n% 3)"), json!(2));
}

#[test]
fn unknown_magic_names_what_to_write() {
    let context = python_context();
    let report = traceback(&context, "%load_ext autoreload");
    assert!(report.contains("%load_ext is not available") && report.contains("write an import"), "{report}");
    let report = traceback(&context, "%nope");
    assert!(report.contains("%nope is not available") && report.contains("%timeit"), "{report}");
    assert!(!report.contains("sandtimer>"), "{report}");
    let report = traceback(&context, "x = = 3\n!ls");
    assert!(report.contains("line 1") && report.contains("SyntaxError"), "{report}");
}

#[test]
fn long_lines_that_are_no_magic_are_refused_at_once() {
    let context = python_context();
    for line in ["a".repeat(100_000) + " b", "a, ".repeat(30_000) + "b c", "a.b ".repeat(30_000)] {
        let outcome = within(&context, &line, Duration::from_secs(5));
        assert_eq!(outcome.ending, Ending::Raised, "{:.200}", format!("{outcome:?}"));
    }
}

#[test]
fn what_ipython_displays_is_a_result() {
    let context = python_context();
    let source = "from IPython.display import display, HTML, Image, Markdown\ndisplay(HTML('<b>x</b>'))\ndisplay(3)\nMarkdown('*a*')";
    let outcome = run(&context, source);
    assert!(outcome.ok && outcome.stdout.is_empty(), "{outcome:?}");
    let results: Vec<Value> = outcome.results.iter().map(|shown| json!(shown)).collect();
    assert_eq!(results[0]["text/html"], "<b>x</b>");
    assert_eq!((&results[1]["text/plain"], &results[2]["text/markdown"]), (&json!("3"), &json!("*a*")));
    let image = shown(&context, "Image(data=b'\\x89PNG')");
    assert_eq!(image["image/png"], "iVBORw==");
}

/// Simulates the part of Plotly that shows its figures.
const PLOTLY: &str = "import os, sys
os.makedirs('/tmp/lib/plotly/io')
open('/tmp/lib/plotly/__init__.py', 'w').close()
open('/tmp/lib/plotly/io/__init__.py', 'w').close()
open('/tmp/lib/plotly/io/_renderers.py', 'w').write('''
class renderers: default = 'browser'
def show(figure, renderer=None, validate=True, **options): print('opened', renderer)
''')
sys.path.insert(0, '/tmp/lib')
class Figure:
    def _repr_mimebundle_(self, include=None, exclude=None, validate=True, **options):
        from plotly.io._renderers import renderers
        return {'application/vnd.plotly.v1+json': {'data': []}} if renderers.default == 'plotly_mimetype' else {}
    def show(self, *args, **options):
        from plotly.io._renderers import show
        return show(self, *args, **options)";

#[test]
fn plotly_figures_are_shown_as_data() {
    let context = python_context();
    assert!(run(&context, PLOTLY).ok);
    assert_eq!(shown(&context, "Figure()")["application/vnd.plotly.v1+json"], json!({"data": []}));
    let outcome = run(&context, "Figure().show()");
    assert_eq!(outcome.stdout, "", "{outcome:?}");
    assert_eq!(json!(outcome.results[0])["application/vnd.plotly.v1+json"], json!({"data": []}));
    assert_eq!(run(&context, "Figure().show(renderer='png')").stdout, "opened png\n");
}

#[test]
fn tracebacks_begin_with_the_cell() {
    let context = python_context();
    for source in [
        "def f(:",
        "import asyncio\nasync def f(): 1 / 0\nawait f()",
        "class R:\n    def __repr__(self): return 1 / 0\nR()",
    ] {
        let report = traceback(&context, source);
        let first = report.lines().find(|line| line.trim_start().starts_with("File ")).expect("a frame");
        assert!(first.contains("File \"<cell "), "{report}");
        assert!(!report.contains("/asyncio/") && !report.contains("/ast.py"), "{report}");
    }
}

#[test]
fn cells_that_wait_for_nothing_have_a_loop() {
    let context = python_context();
    let source = "import asyncio\nsteps = []\nasync def f():\n    steps.append(1)\n    await asyncio.sleep(0.05)\n    steps.append(2)\n    return 7\ntask = asyncio.create_task(f())";
    assert!(run(&context, source).ok);
    assert_eq!(value(&context, "steps"), json!([1]));
    assert_eq!(value(&context, "await task"), json!(7));
    assert_eq!(value(&context, "steps"), json!([1, 2]));
    assert_eq!(value(&context, "other = asyncio.get_running_loop().create_task(f())\nawait other"), json!(7));
    assert_eq!(value(&context, "asyncio.get_running_loop() is asyncio.get_running_loop()"), json!(true));
    // Programs that bring a loop of their own work as before.
    assert_eq!(value(&context, "asyncio.run(f())"), json!(7));
    let thread = "import threading\nfound = []\ndef ask():\n    try: found.append(asyncio.get_running_loop())\n    except RuntimeError: found.append(None)\nt = threading.Thread(target=ask); t.start(); t.join()\nfound";
    assert_eq!(value(&context, thread), json!([null]));
}

#[test]
fn deep_recursion_is_reported_soon() {
    let context = python_context();
    let source = "import sys\nsys.setrecursionlimit(300_000)\ndef f(n): return f(n + 1)\nf(0)";
    let outcome = within(&context, source, Duration::from_secs(15));
    assert_eq!(outcome.ending, Ending::Raised, "{:.500}", format!("{outcome:?}"));
    let report = outcome.error.as_ref().expect("an error")["traceback"].as_str().expect("a text");
    assert!(
        report.contains("frames are left out") && report.ends_with("maximum recursion depth exceeded\n"),
        "{report}"
    );
    let chained = "try: f(0)\nexcept RecursionError: raise ValueError(1)";
    let outcome = within(&context, chained, Duration::from_secs(15));
    let report = outcome.error.as_ref().expect("an error")["traceback"].as_str().expect("a text");
    assert!(report.contains("frames are left out") && report.ends_with("ValueError: 1\n"), "{report}");
}
