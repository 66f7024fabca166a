//! Programs as code: each has a file, in a warm interpreter if there is one, and its output is
//! readable at once.
#![allow(clippy::disallowed_methods)] // waits for what sends no event

use crate::support;

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{ServerFixture, TestClient};

/// Runs Python until a warm interpreter executes it.
fn ready(client: &TestClient) {
    let end = Instant::now() + Duration::from_secs(60);
    while python(client, "pass", json!({}))["path"] == "exec" {
        assert!(Instant::now() < end, "no interpreter stands ready");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn python(client: &TestClient, code: &str, more: Value) -> Value {
    code_in(client, "python", code, more)
}

fn code_in(client: &TestClient, language: &str, code: &str, more: Value) -> Value {
    let mut request = json!({"code": code, "language": language, "wall_ms": 60_000});
    request.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    client.run(&request)["outcome"].clone()
}

#[test]
fn python_in_a_ready_interpreter_is_as_python_in_a_file() {
    let serving = ServerFixture::start();
    let client = serving.client();
    ready(&client);
    let expected = [
        ("print(open(__file__).read() == open(__file__).read() != '', __name__)", "True __main__\n"),
        (
            "import os, sys\nprint(sys.argv[1:], sys.path[0] == os.getcwd(), os.getcwd())",
            "[] True /workspace\n",
        ),
        (
            "import os\nprint(os.environ['HOME'], os.environ['TERM'], 'LD_BIND_NOW' in os.environ)",
            "/tmp dumb False\n",
        ),
        ("print(input()); print(input())", "one\ntwo\n"),
        ("import atexit\natexit.register(print, 'bye')", "bye\n"),
        ("import threading\nthreading.Timer(0.1, print, ('timer',)).start()", "timer\n"),
    ];
    for (code, stdout) in expected {
        let outcome = python(&client, code, json!({"stdin": "one\ntwo\n"}));
        assert_eq!(
            (&outcome["stdout"], &outcome["exit_code"]),
            (&json!(stdout), &json!(0)),
            "{code}: {outcome}"
        );
        assert_ne!(outcome["path"], "exec", "{code}: {outcome}");
    }
    let failed = python(&client, "def f():\n    1 / 0\nf()", json!({}));
    let trace = failed["stderr"].as_str().expect("text");
    assert_eq!(failed["exit_code"], 1, "{failed}");
    assert!(trace.starts_with("Traceback (most recent call last):\n  File \"/sandtimer/main.py\", line 3, in <module>\n    f()\n"), "{trace}");
    assert!(trace.ends_with("ZeroDivisionError: division by zero\n"), "{trace}");
    assert_eq!(python(&client, "import sys; sys.exit('no')", json!({}))["stderr"], "no\n");
    assert_eq!(python(&client, "raise KeyboardInterrupt", json!({}))["signal"], "SIGINT");
    let left = python(&client, "import subprocess\nsubprocess.Popen(['sleep', '60'])", json!({}));
    assert_eq!(
        (&left["remarks"][0]["kind"], &left["tree"]["killed"]),
        (&json!("killed_leftovers"), &json!(1)),
        "{left}"
    );
}

#[test]
fn processes_that_start_the_program_again_find_its_file() {
    let serving = ServerFixture::start();
    let client = serving.client();
    ready(&client);
    let code = "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    \
                for way in ('spawn', 'forkserver', 'fork'):\n        with m.get_context(way).Pool(2) as pool:\n            \
                print(way, pool.map(f, [1, 2, 3]))\n";
    let outcome = python(&client, code, json!({}));
    assert_eq!(outcome["stdout"], "spawn [1, 4, 9]\nforkserver [1, 4, 9]\nfork [1, 4, 9]\n", "{outcome}");
}

#[test]
fn code_may_be_longer_than_an_argument() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let long = "x".repeat(300_000);
    let programs = [
        ("python", format!("text = '{long}'\nprint(len(text))")),
        ("bash", format!("text={long}\necho ${{#text}}")),
        ("javascript", format!("const text = '{long}';\nconsole.log(text.length, typeof require)")),
        (
            "javascript",
            format!(
                "import {{ sep }} from 'node:path';\nconst text = '{long}';\nconsole.log(text.length, await sep)"
            ),
        ),
    ];
    for (language, code) in &programs {
        let outcome = code_in(&client, language, code, json!({}));
        let stdout = outcome["stdout"].as_str().unwrap_or_default();
        assert!(stdout.starts_with("300000"), "{language}: {outcome}");
    }
    ready(&client);
    for (more, is_ready) in [(json!({}), true), (json!({"env": {"PYTHONHASHSEED": "1"}}), false)] {
        let outcome = python(&client, &programs[0].1, more.clone());
        assert_eq!(outcome["stdout"], "300000\n", "{more}");
        assert_eq!(outcome["path"] != "exec", is_ready, "{more}: {outcome}");
    }
}

#[test]
fn module_in_program_directory_precedes_learned_one() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let id = client.post("/v1/workspaces", &json!({})).1["workspace_id"].as_str().expect("an id").to_owned();
    let more = json!({"workspace": id});
    python(
        &client,
        "open('decimal.py', 'w').write('Decimal = 7')\nopen('own.py', 'w').write('x = 1')",
        more.clone(),
    );
    let imports = "import decimal\nimport fractions\nprint(decimal.Decimal, fractions.__name__)";
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        // Of the interpreter's, in an empty directory.
        let outcome = python(
            &client,
            &format!("import sys\nhad = 'fractions' in sys.modules\n{imports}\nprint(had)"),
            json!({}),
        );
        let stdout = outcome["stdout"].as_str().expect("text");
        assert!(stdout.starts_with("<class 'decimal.Decimal'> fractions\n"), "{outcome}");
        if stdout.ends_with("True\n") {
            break;
        }
        assert!(Instant::now() < end, "it was not learned: {outcome}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let outcome = python(&client, &format!("import own\n{imports}"), more);
    assert_eq!(
        (&outcome["stdout"], &outcome["path"]),
        (&json!("7 fractions\n"), &json!("cold")),
        "{outcome}"
    );
}

#[test]
fn output_is_streamed_and_kept_at_every_end() {
    let serving = ServerFixture::start();
    let client = serving.client();
    ready(&client);
    let begun = Instant::now();
    let id = client
        .start(json!({"code": "print('first'); print('second'); sum(range(10**12))", "language": "python",
        "wall_ms": 30_000}));
    loop {
        let (_, output) = client.get(&format!("/v1/runs/{id}/output"));
        if output["data"] == "first\nsecond\n" {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{output}");
        std::thread::sleep(Duration::from_millis(20));
    }
    client.delete(&format!("/v1/runs/{id}"));
    let ends = [
        ("import os; os.kill(os.getpid(), 9)", "signaled"),
        ("sum(range(10**12))", "timeout"),
        ("import os; os._exit(0)", "exited"),
        ("x = b'x' * (1 << 30)", "out_of_memory"),
    ];
    for (end, ending) in ends {
        let code = format!("for i in range(1000): print(i)\n{end}");
        let wall = if ending == "timeout" { 1000 } else { 30_000 };
        let outcome = python(&client, &code, json!({"wall_ms": wall, "memory_bytes": "256M"}));
        let expected: String = (0..1000).map(|i| format!("{i}\n")).collect();
        assert_eq!(outcome["ending"], ending, "{outcome}");
        assert_eq!(outcome["stdout"], expected.as_str(), "{end}");
    }
}

/// Python in a command: its output is readable while it sleeps, and it does not stall.
#[test]
fn output_of_python_in_a_command_is_streamed() {
    let serving = ServerFixture::start();
    let client = serving.client();
    let prints = "import time\nprint('first')\nprint('second')\ntime.sleep(100)";
    let observed = |before: &str| {
        let command = format!("{before} python3 -c \"$PRINTS\"; true");
        let request = json!({"command": ["bash", "-c", command], "env": {"PRINTS": prints}, "wall_ms": 3000});
        client.run(&request)["outcome"]["stdout"].as_str().expect("a text").to_owned()
    };
    assert_eq!(observed(""), "first\nsecond\n");
    // The control: plain Python keeps it in a buffer, which is lost at the limit.
    assert_eq!(observed("PYTHONPATH="), "");
    let ticks = "import time\nfor i in range(20):\n    print(i)\n    time.sleep(0.2)";
    let outcome =
        client.run(&json!({"command": ["python3", "-c", ticks], "stall_ms": 1500, "wall_ms": 20_000}));
    assert_eq!(outcome["outcome"]["ending"], "exited", "{outcome}");
    // Another module of this name is executed as ever, and nothing of this one is on sys.path.
    let other = "mkdir m; echo 'print(\"other\")' > m/sitecustomize.py; python3 -c 'import sys; print(\"/sandtimer/python\" in sys.path)'";
    let outcome = client.run(&json!({"command": ["bash", "-c", other], "env": {"PYTHONPATH": "m"}}));
    assert_eq!(outcome["outcome"]["stdout"], "other\nFalse\n", "{outcome}");
}

#[test]
fn redirected_streams_are_written_in_sequence() {
    let serving = ServerFixture::start();
    let client = serving.client();
    ready(&client);
    let programs = [
        "import sys\nprint('a'); print('b'); sys.stdout.buffer.write(b'c\\n'); print('d')",
        "import sys\nprint('a'); print('b'); sys.stdout.reconfigure(line_buffering=True); print('c'); print('d')",
        "import io, sys\nprint('a'); print('b'); sys.stdout = io.TextIOWrapper(sys.stdout.detach(), 'utf-8'); print('c'); print('d')",
        "import os, sys\nprint('a'); print('b'); sys.stdout.flush(); os.write(1, b'c\\n'); print('d')",
        "import os, sys\nprint('a'); print('b', flush=True)\nif os.fork() == 0:\n    print('c'); sys.exit()\nos.wait(); print('d')",
        "import subprocess, sys\nprint('a'); print('b', flush=True); subprocess.run(['echo', 'c']); print('d')",
        "import os, sys\nprint('a'); print('b', flush=True)\nsaved = os.dup(1); f = os.open('f', os.O_CREAT | os.O_RDWR); os.dup2(f, 1)\n\
         print('into the file'); sys.stdout.flush(); os.dup2(saved, 1)\nprint('c' if os.pread(f, 99, 0) == b'into the file\\n' else 'lost'); print('d')",
        "import sys\nsys.stdout.writelines(['a\\n', 'b\\n']); print('c', 'd', sep='\\n')",
        "import threading\nprint('a'); print('b')\nt = threading.Thread(target=print, args=('c',)); t.start(); t.join(); print('d')",
    ];
    for code in programs {
        let outcome = python(&client, code, json!({}));
        assert_eq!((&outcome["stdout"], &outcome["stderr"]), (&json!("a\nb\nc\nd\n"), &json!("")), "{code}");
    }
}

/// A handler that runs while the memory is being emptied writes as well.
#[test]
fn handler_of_a_signal_writes_while_output_is_written() {
    let serving = ServerFixture::start();
    let client = serving.client();
    ready(&client);
    let code = "import signal, sys\nn = 0\ndef handle(*_):\n    global n\n    n += 1\n    print('handled')\n\
                signal.signal(signal.SIGALRM, handle)\nsignal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n\
                for i in range(300000): print('a line of some length')\nsignal.setitimer(signal.ITIMER_REAL, 0)\nprint(n, file=sys.stderr)";
    let outcome = python(&client, code, json!({"output_bytes": "64M"}));
    let stdout = outcome["stdout"].as_str().expect("text");
    let count = |line: &str| stdout.lines().filter(|other| *other == line).count();
    let handled: usize =
        outcome["stderr"].as_str().and_then(|text| text.trim().parse().ok()).expect("a number");
    // A handler may come between the two writes of a print.
    assert_eq!(stdout.matches("a line of some length").count(), 300_000);
    assert_eq!(stdout.matches("handled").count(), handled);
    assert!(count("a line of some length") > 290_000 && handled > 10, "{handled}");
}

#[test]
fn many_clients_at_a_time_have_no_false_timeout() {
    const CLIENTS: usize = 64;
    const PROGRAMS: usize = 4;
    let serving = ServerFixture::start();
    ready(&serving.client());
    let failed: Vec<Value> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let client = serving.client();
                scope.spawn(move || {
                    let code = format!("print(sum(range({number})))");
                    let expected = format!("{}\n", (0..number).sum::<usize>());
                    let limits = json!({"wall_ms": 20_000, "cpu_ms": 5_000});
                    let outcomes = (0..PROGRAMS).map(|_| python(&client, &code, limits.clone()));
                    outcomes.filter(|outcome| outcome["stdout"] != expected.as_str()).collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    assert!(failed.is_empty(), "{} of {}: {}", failed.len(), CLIENTS * PROGRAMS, failed[0]);
    // The control: the limits are in force.
    let looping = python(&serving.client(), "while True: pass", json!({"wall_ms": 20_000, "cpu_ms": 100}));
    assert_eq!(
        (&looping["ending"], &looping["verdict"]["kind"]),
        (&json!("timeout"), &json!("cpu")),
        "{looping}"
    );
}

/// What a program prints of its sandbox: when its private directory was last changed, which is when
/// it was made, and what is in it.
const SANDBOX_PROBE: &str = "import os\nprint(os.stat('/tmp').st_mtime_ns, os.listdir('/tmp'), os.listdir('/workspace'), flush=True)\n";

#[test]
fn sandbox_of_a_program_that_left_nothing_is_the_next_ones() {
    let serving = ServerFixture::start();
    let client = serving.client();
    ready(&client);
    if python(&client, "pass", json!({}))["isolation"]["kill"] != "K3" {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: without a v2 control group a program ends with its sandbox"
        );
        return;
    }
    let run_with_probe = |more: &str| {
        let outcome = python(&client, &format!("{SANDBOX_PROBE}{more}"), json!({}));
        let sandbox =
            outcome["stdout"].as_str().and_then(|text| text.lines().next()).unwrap_or_default().to_owned();
        assert!(sandbox.ends_with(" [] []"), "{more}: {outcome}");
        (sandbox, outcome["tree"]["proof"] == "subreaper sweep", outcome)
    };
    let plain: Vec<_> = (0..12).map(|_| run_with_probe("")).collect();
    let sandboxes: std::collections::BTreeSet<&String> = plain.iter().map(|(sandbox, ..)| sandbox).collect();
    assert!(sandboxes.len() < plain.len(), "{sandboxes:?}");
    assert!(plain.iter().all(|(.., outcome)| outcome["tree"]["survivors"] == 0), "{plain:?}");
    // A program that begins within the tick of the clock in which its jail was made ends with the
    // jail.
    assert!(plain.iter().filter(|(_, is_left, _)| *is_left).count() > plain.len() / 2, "{plain:?}");
    for leaves in [
        "open('/tmp/left', 'w').close()",
        "open('/tmp/left', 'w').close()\nos.unlink('/tmp/left')",
        "import time\nif os.fork() == 0: time.sleep(60)",
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
        "import ctypes\nassert ctypes.CDLL(None).shmget(7, 4096, 0o1666) >= 0",
    ] {
        let (_, is_left, outcome) = run_with_probe(leaves);
        assert!(!is_left && outcome["exit_code"] == 0, "{leaves}: {outcome}");
    }
    // Ends of other kinds are with the sandbox, too.
    let failed: Vec<_> = (0..4).map(|_| run_with_probe("raise SystemExit(3)")).collect();
    assert!(failed.iter().any(|(_, is_left, outcome)| *is_left && outcome["exit_code"] == 3), "{failed:?}");
    let ended = python(&client, "while True: pass", json!({"wall_ms": 200}));
    assert!(ended["tree"]["proof"] != "subreaper sweep" && ended["tree"]["survivors"] == 0, "{ended}");
}
