//! What cells display and show: what comes while they run, and what is in the Outcome, however they
//! end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sandtimer::engine::{CellEvent, CellSpec, Context, ContextSpec, Contexts};
use sandtimer::zygote::{Language, Profile};
use sandtimer::{Ending, Engine, Limits, Outcome};

fn pool(interpreter: &str, language: Language) -> Contexts {
    let profile = Profile { interpreter: interpreter.into(), language, live: true, ..Profile::default() };
    Engine::new().expect("an engine").contexts(profile, 2).expect("a pool")
}

fn open() -> Context {
    static PYTHON: OnceLock<Contexts> = OnceLock::new();
    let pool = PYTHON.get_or_init(|| pool("python3", Language::Python));
    pool.open(ContextSpec::default(), &mut || false).expect("a context")
}

fn cell(source: &str) -> CellSpec {
    CellSpec {
        source: source.to_owned(),
        limits: Limits::new().wall(Duration::from_secs(20)),
        ..CellSpec::default()
    }
}

fn run(context: &Context, cell: CellSpec) -> Arc<Outcome> {
    context.execute(cell, &mut |_| {}).expect("a run")
}

/// Runs a cell that displays more while the executing thread is blocked until the Outcome is there.
/// Returns that Outcome and the displayed values that the thread received.
fn unread_displays(context: &Context, cell: CellSpec) -> (Arc<Outcome>, Vec<serde_json::Value>) {
    let (mut displayed, mut run) = (Vec::new(), None);
    let outcome = context.execute(cell, &mut |event| match (event, &run) {
        (CellEvent::Started(begun), _) => run = Some(begun),
        (CellEvent::Displayed(value), Some(run)) => {
            displayed.push(value);
            run.wait_blocking();
        }
        _ => {}
    });
    (outcome.expect("a run"), displayed)
}

fn texts(values: &[serde_json::Value]) -> Vec<&str> {
    values.iter().map(|value| value["text/plain"].as_str().expect("a text")).collect()
}

#[test]
fn unread_displays_at_the_end_are_in_the_outcome() {
    let context = open();
    let both = ["'first'", "'second'"];
    let ends = "display('first'); display('second')\nimport os; os._exit(1)";
    let (outcome, displayed) = unread_displays(&context, cell(ends));
    assert_eq!(
        (outcome.exit_code, texts(&outcome.results), texts(&displayed)),
        (Some(1), both.into(), both.into())
    );
    let hangs = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\ndisplay('first'); display('second')\nwhile True: pass";
    let limits = Limits::new().wall(Duration::from_secs(1));
    let (outcome, displayed) = unread_displays(&context, CellSpec { limits, ..cell(hangs) });
    assert_eq!(outcome.ending, Ending::Timeout);
    assert_eq!((texts(&outcome.results), texts(&displayed)), (both.into(), both.into()));
    // What comes next has its own.
    assert_eq!(texts(&run(&context, cell("display('third')\n4")).results), ["'third'", "4"]);
}

#[test]
fn unread_displays_of_a_script_are_in_the_outcome() {
    let pool = pool("node", Language::JavaScript);
    let context = pool.open(ContextSpec::default(), &mut || false).expect("a context");
    let ends = "display('first'); display('second'); process.kill(process.pid, 'SIGKILL')";
    let (outcome, displayed) = unread_displays(&context, cell(ends));
    let both = ["'first'", "'second'"];
    assert_eq!((texts(&outcome.results), texts(&displayed)), (both.into(), both.into()), "{outcome:?}");
    assert_eq!(texts(&run(&context, cell("display('third'); 4")).results), ["'third'", "4"]);
}

#[test]
fn cells_show_what_notebooks_show() {
    let context = open();
    let mut displayed = Vec::new();
    let source = "class Rich:\n    def _repr_html_(self): return '<b>7</b>'\n    def _repr_png_(self): return b'\\x89PNG'\ndisplay(Rich())\nRich()";
    let outcome = context
        .execute(cell(source), &mut |event| {
            if let CellEvent::Displayed(value) = event {
                displayed.push(value);
            }
        })
        .expect("a run");
    for shown in [&displayed[0], &outcome.results[0]] {
        assert_eq!((&shown["text/html"], &shown["image/png"]), (&"<b>7</b>".into(), &"iVBORw==".into()));
    }
    let outcome = run(&context, cell("import asyncio\nawait asyncio.sleep(0)\n{'a': [1, None]}"));
    assert_eq!(outcome.value, Some(serde_json::json!({"a": [1, null]})));
    let stdin = CellSpec { stdin: Some(b"one\ntwo".to_vec()), ..cell("[input(), input()]") };
    assert_eq!(run(&context, stdin).value, Some(serde_json::json!(["one", "two"])));
    assert_eq!(run(&context, cell("input()")).error.as_ref().expect("at its end")["type"], "EOFError");
    let long = format!("x = '{}'\nlen(x)", "y".repeat(300_000));
    assert_eq!(run(&context, cell(&long)).value, Some(300_000.into()));
    assert_eq!(run(&context, cell("'z' * 300_000")).value, Some("z".repeat(300_000).into()));
    let outcome = run(
        &context,
        cell(
            "import os, subprocess\nos.system('echo one')\nsubprocess.run(['echo', 'two'])\nprint('three');",
        ),
    );
    assert_eq!((outcome.stdout.as_str(), outcome.results.len()), ("one\ntwo\nthree\n", 0));
}

#[test]
fn the_result_limit_holds_for_what_is_short_too() {
    let context = open();
    let limited = |source: &str, bytes: u64| {
        let limits = Limits::new().wall(Duration::from_secs(20)).result(bytes);
        let cell = CellSpec { source: source.to_owned(), limits, ..CellSpec::default() };
        context.execute(cell, &mut |_| {}).expect("a run")
    };
    let outcome = limited("x = 'y' * 200; x", 100);
    assert_eq!(outcome.ending, Ending::Raised, "{outcome:?}");
    let error = outcome.error.as_ref().expect("an error");
    assert_eq!(error["type"], "ResultTooLargeError", "{outcome:?}");
    assert!(outcome.results.is_empty() && outcome.value.is_none(), "{outcome:?}");
    // Nothing is shown, and the state is there.
    assert_eq!(limited("assert len(x) == 200", 1).ending, Ending::Returned);
    assert_eq!(limited("len(x)", 100).value, Some(serde_json::json!(200)));
}

/// The most memory that this process has had, in MiB.
fn peak_mebibytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number") >> 10
}

const NOTICE: &str = "application/vnd.sandtimer.notice";

#[test]
fn values_that_take_much_memory_are_left_out_with_a_notice() {
    let context = open();
    let before = peak_mebibytes();
    // Parsed they would take some 200 MiB each.
    let many = "[{'': 0}] * 300_000";
    let outcome = run(&context, cell(&format!("display({many}); {many}")));
    assert_eq!((outcome.ending, outcome.results.len()), (Ending::Returned, 2), "{:?}", outcome.error);
    assert_eq!(outcome.value, None);
    for shown in &outcome.results {
        let notice = shown[NOTICE].as_str().expect("a notice");
        assert!(notice.contains("application/json was left out") && notice.contains("2000000"), "{notice}");
        assert!(shown["text/plain"].is_string() && shown.get("application/json").is_none());
    }
    let grown = peak_mebibytes() - before;
    assert!(grown < 150, "{grown} MiB");
    // The control: as many numbers as that are no trouble, and the state is there.
    let outcome = run(&context, cell("list(range(300_000))"));
    let kept = outcome.value.as_ref().and_then(|value| value.as_array()).map(Vec::len);
    assert_eq!((kept, outcome.results[0].get(NOTICE)), (Some(300_000), None));
}

#[test]
fn what_a_cell_displays_is_bounded_in_all() {
    let context = open();
    let mut displayed = 0;
    let source = "for _ in range(5): display(list(range(600_000)))";
    let outcome = context
        .execute(cell(source), &mut |event| {
            displayed += usize::from(matches!(event, CellEvent::Displayed(_)))
        })
        .expect("a run");
    assert_eq!((outcome.results.len(), displayed), (4, 5), "three are kept, and all were told");
    let last = outcome.results[3]["text/plain"].as_str().expect("a text");
    assert!(last.starts_with("2 more were displayed"), "{last}");
}

/// Each is longer than a packet, of which others' come in between.
#[test]
fn displays_of_several_threads_are_whole() {
    let context = open();
    let both = "import threading\ndef show(letter):\n    for _ in range(20): display(letter * 200_000)\n\
                threads = [threading.Thread(target=show, args=(letter,)) for letter in 'abc']\n\
                for thread in threads: thread.start()\nfor thread in threads: thread.join()";
    let outcome = run(&context, cell(both));
    let mut count = [0; 3];
    for text in texts(&outcome.results) {
        let letter = text.as_bytes()[1];
        assert!(text.len() == 200_002 && text[1..200_001].bytes().all(|byte| byte == letter));
        count[usize::from(letter - b'a')] += 1;
    }
    assert_eq!(count, [20; 3]);
}

#[test]
fn interrupted_display_is_whole() {
    let context = open();
    let shows = "heard = 0\nfor _ in range(50):\n    try:\n        display('a' * 200_000)\n    except KeyboardInterrupt:\n        heard += 1\nheard";
    let outcome = context.execute(cell(shows), &mut |event| {
        if matches!(event, CellEvent::Displayed(_)) {
            context.interrupt();
        }
    });
    let outcome = outcome.expect("a run");
    let texts = texts(&outcome.results);
    // It may also have come between two displays, and ended the cell.
    let (displayed, last): (Vec<&str>, Vec<&str>) = texts.iter().partition(|text| text.starts_with('\''));
    assert!(
        displayed.iter().all(|text| text.len() == 200_002),
        "{:?}",
        displayed.iter().map(|text| text.len())
    );
    let counted = last.first().map_or(0, |last| last.parse::<usize>().expect("a number"));
    let ended = outcome.error.as_ref().is_some_and(|error| error["type"] == "KeyboardInterrupt");
    assert!(counted > 0 || ended, "{last:?}: {outcome:?}");
}
