//! Branches of real interpreters: what they know, what keeps them apart, and what is refused.
#![allow(clippy::disallowed_methods)] // one kills a zygote's child by hand, and looks at the machine's processes

use crate::as_user;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use as_user::as_a_user;
use sandtimer::engine::{BranchSpec, CellSpec, Context, ContextSpec, Contexts, make_workspace};
use sandtimer::model::RemainingState;
use sandtimer::zygote::{Language, Prewarm, Profile};
use sandtimer::{Ending, Engine, Error, Limits, Outcome};

fn profile() -> Profile {
    Profile { interpreter: "python3".into(), live: true, ..Profile::default() }
}

fn contexts() -> &'static Contexts {
    static CONTEXTS: OnceLock<Contexts> = OnceLock::new();
    CONTEXTS.get_or_init(|| Engine::new().expect("an engine").contexts(profile(), 2).expect("a pool"))
}

fn open() -> Context {
    contexts().open(ContextSpec::default(), &mut || false).expect("a context")
}

fn within(source: &str, wall: u64) -> CellSpec {
    let limits = Limits::new().wall(Duration::from_millis(wall));
    CellSpec { source: source.to_owned(), limits, ..CellSpec::default() }
}

fn run(context: &Context, cell: CellSpec) -> Arc<Outcome> {
    context.execute(cell, &mut |_| {}).expect("a run")
}

/// What a cell shows last, as text.
fn shown(context: &Context, source: &str) -> String {
    let outcome = run(context, within(source, 20_000));
    assert!(outcome.ok, "{source}: {outcome:?}");
    let last = outcome.results.last().unwrap_or_else(|| panic!("{source} shows nothing: {outcome:?}"));
    last["text/plain"].as_str().expect("a text").to_owned()
}

fn done(context: &Context, source: &str) {
    let outcome = run(context, within(source, 20_000));
    assert!(outcome.ok, "{source}: {outcome:?}");
}

fn branches(context: &Context, count: usize) -> Vec<Context> {
    context.branch(&BranchSpec { count, ..BranchSpec::default() }).expect("branches")
}

fn rejection(context: &Context) -> String {
    match context.branch(&BranchSpec { count: 1, ..BranchSpec::default() }) {
        Err(Error::NoBranch(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

/// A cell that ignores the interrupt before its wall.
const IGNORES_INTERRUPT: &str = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n";

const FIFTY_MEGABYTES: &str = "import os, random, decimal\nheld = [bytearray(os.urandom(4096)) for _ in range(12800)]\nsums = [sum(page) for page in held[:100]]\nrandom.seed(7)\nx = {'a': [1, 2]}\ndef twice(value): return value * 2\n_ = random.random()";

#[test]
fn eight_branches_have_all_state_and_share_none() {
    let origin = open();
    done(&origin, FIFTY_MEGABYTES);
    let all = branches(&origin, 8);
    let known =
        "len(held), sums == [sum(page) for page in held[:100]], x, twice(21), decimal.Decimal(2).sqrt() > 1";
    let next = shown(&origin, "random.random()");
    for (number, branch) in all.iter().enumerate() {
        assert_eq!(shown(branch, known), "(12800, True, {'a': [1, 2]}, 42, True)");
        assert_eq!(
            shown(branch, "random.random()"),
            next,
            "its random numbers go on where the origin's were"
        );
        done(branch, &format!("x['a'].append({number}); held[5][:] = bytes([{number}]) * 4096"));
    }
    done(&origin, "x['a'] = 'mine'; held[5][:] = b'o' * 4096");
    for (number, branch) in all.iter().enumerate() {
        let own = format!("({{'a': [1, 2, {number}]}}, {{{number}}})");
        assert_eq!(shown(branch, "x, set(held[5])"), own);
    }
    assert_eq!(shown(&origin, "x, set(held[5])"), "({'a': 'mine'}, {111})");
    // None needs another, the origin neither.
    drop(origin);
    let mut all = all;
    drop(all.remove(0));
    assert_eq!(shown(&all[0], "x, len(held)"), "({'a': [1, 2, 1]}, 12800)");
}

#[test]
fn a_branch_is_a_context_like_every_other() {
    let origin = open();
    done(&origin, "x = 1");
    let branch = branches(&origin, 1).remove(0);
    let outcome = run(
        &branch,
        within(&format!("{IGNORES_INTERRUPT}x = 2\nprint('so far', flush=True)\nwhile True: pass"), 300),
    );
    assert_eq!((outcome.ending, outcome.state), (Ending::Timeout, RemainingState::RolledBack), "{outcome:?}");
    assert_eq!((outcome.stdout.as_str(), outcome.tree.survivors), ("so far\n", Some(0)));
    done(&branch, "x += 10");
    assert_eq!(shown(&branch, "x"), "11");
    assert!(branch.undo().expect("the interpreter lives") && branch.undo().is_ok());
    let threads = "import threading, time\nthread = threading.Thread(target=time.sleep, args=(0.1,))\nthread.start(); thread.join()\nimport subprocess\nsubprocess.run(['echo', 'a child'])\nimport asyncio\nawait asyncio.sleep(0)";
    assert_eq!(run(&branch, within(threads, 20_000)).stdout, "a child\n");
    // Branches of branches, over the same image and over a new one.
    done(&branch, "y = 5");
    let second = branches(&branch, 2).remove(1);
    assert_eq!(shown(&second, "x, y"), "(11, 5)");
    done(&second, "import os\nlarge = [os.urandom(4096) for _ in range(4096)]");
    let third = branches(&second, 1).remove(0);
    assert_eq!(shown(&third, "x, y, len(large), large[17] == large[17]"), "(11, 5, 4096, True)");
    assert_eq!(shown(&origin, "x"), "1");
}

#[test]
fn an_interpreter_that_grows_between_two_askings_is_asked_again() {
    let origin = open();
    done(&origin, "x = 1");
    let growing = |pieces: &str| {
        let branch = branches(&origin, 1).remove(0);
        // The interpreter looks where it is each time it is asked.
        let grows = format!(
            "import os\nheld, more, where = [os.urandom(1 << 19)], {pieces}, os.getcwd\ndef grow():\n    if more: held.append(os.urandom(more.pop() << 19))\n    return where()\nos.getcwd = grow"
        );
        done(&branch, &grows);
        branch
    };
    // By half a megabyte each time, and by so much at the second that its image is no longer a
    // delta over its origin's.
    for (pieces, length) in [("[1, 1]", 3), ("[1, 12, 1]", 4)] {
        let second = branches(&growing(pieces), 1).remove(0);
        assert_eq!(shown(&second, "x, len(held), more"), format!("(1, {length}, [])"));
    }
    let branch = growing("[1] * 100");
    assert_eq!(rejection(&branch), "it grows while its image is written");
    assert_eq!(shown(&branch, "x"), "1", "it goes on");
}

/// A branch lays ahead what it expects: the image before, whose memory is none of the origin's any
/// more here.
#[test]
fn changes_since_the_last_image_match_the_origin() {
    let pool = Engine::new().expect("an engine").contexts(profile(), 2).expect("a pool");
    let origin = pool.open(ContextSpec::default(), &mut || false).expect("a context");
    done(
        &origin,
        "import ctypes, mmap, os, hashlib\n\
         blocks = [mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(8)]\n\
         for block in blocks: block[:] = os.urandom(1 << 20)\n\
         small = [os.urandom(3000) for _ in range(2000)]\n\
         def digest():\n    \
             total = hashlib.sha256()\n    \
             for part in (*blocks, *small): total.update(part[:] if part is not None else b'-')\n    \
             return total.hexdigest()",
    );
    drop(branches(&origin, 1));
    let changes = [
        // Memory of the base is gone: holes, and what is mapped into them again.
        "for index in (1, 3, 4): blocks[index].close(); blocks[index] = None",
        "blocks[3] = mmap.mmap(-1, 300_000, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\nblocks[3][5000:5003] = b'abc'",
        // Half of a mapping has another protection.
        "libc = ctypes.CDLL(None, use_errno=True)\n\
         at = ctypes.addressof(ctypes.c_char.from_buffer(blocks[0]))\n\
         assert libc.mprotect(ctypes.c_void_p(at + (512 << 10)), ctypes.c_size_t(256 << 10), 1) == 0",
        // More and less heap, more libraries, a deeper stack.
        "libc.malloc.restype = ctypes.c_void_p\nheld = [libc.malloc(ctypes.c_size_t(100_000)) for _ in range(20)]",
        "for pointer in held: libc.free(ctypes.c_void_p(pointer))\nlibc.malloc_trim(0)",
        "import sys, sqlite3, decimal, xml.dom.minidom, curses, lzma",
        "sys.setrecursionlimit(6000)\ndef deep(n): return max([n, deep(n - 1)]) if n else 0\ndeep(1500)\ndel small[::3]",
        // Where images are usually written.
        "libc.mmap.restype = ctypes.c_void_p\n\
         taken = libc.mmap(ctypes.c_void_p(0x1000_0000_0000), ctypes.c_size_t(8 << 20), 3, 0x100022, -1, ctypes.c_size_t(0))\n\
         assert taken == 0x1000_0000_0000, ctypes.get_errno()\n\
         ctypes.memset(ctypes.c_void_p(taken + 12345), 7, 9)",
    ];
    for change in changes {
        done(&origin, change);
        let expected = shown(&origin, "digest()");
        let mut branch = branches(&origin, 1).remove(0);
        for _ in 0..2 {
            assert_eq!(shown(&branch, "digest()"), expected, "{change}");
            done(&branch, "small.append(b'its own')");
            assert_eq!(shown(&branch, "digest() == 1, small.pop()"), "(False, b'its own')");
            branch = branches(&branch, 1).remove(0);
        }
        done(&branch, "import fractions, csv\nassert sum(range(100_000)) == 4999950000");
    }
    let taken = "ctypes.string_at(taken + 12345, 10)";
    assert_eq!(shown(&branches(&origin, 1)[0], taken), r"b'\x07\x07\x07\x07\x07\x07\x07\x07\x07\x00'");
    done(&origin, "assert libc.munmap(ctypes.c_void_p(taken), ctypes.c_size_t(8 << 20)) == 0");
    assert_eq!(shown(&branches(&origin, 1)[0], "digest()"), shown(&origin, "digest()"));
    assert_eq!(pool.stats().lost, 0, "nothing that was laid ahead was in the way");
}

#[test]
fn many_branches_one_after_the_other() {
    let origin = open();
    done(&origin, "import os\nx = 0\nheld = [os.urandom(4096) for _ in range(2000)]");
    for round in 1..=12 {
        done(&origin, "x += 1");
        let branch = branches(&origin, 1).remove(0);
        assert_eq!(shown(&branch, "x, len(held)"), format!("({round}, 2000)"));
    }
}

#[test]
fn the_end_of_one_leaves_the_others() {
    let origin = open();
    done(&origin, "x = 7");
    let limits = Limits::new().memory(300 << 20).processes(30);
    let all = origin.branch(&BranchSpec { count: 4, limits, ..BranchSpec::default() }).expect("branches");
    let hostile = [
        ("x = bytearray(1 << 30)", Ending::OutOfMemory),
        ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", Ending::Timeout),
        ("while True: pass", Ending::Timeout),
        ("import os; os._exit(3)", Ending::NoResult),
    ];
    std::thread::scope(|scope| {
        for (branch, (source, ending)) in all.iter().zip(hostile) {
            scope.spawn(move || {
                // What must come to its wall has a short one.
                let wall = if ending == Ending::Timeout { 1500 } else { 20_000 };
                let outcome = run(branch, within(&format!("{IGNORES_INTERRUPT}{source}"), wall));
                assert_eq!(
                    (outcome.ending, outcome.tree.survivors, outcome.state),
                    (ending, Some(0), RemainingState::RolledBack),
                    "{source}: {outcome:?}"
                );
                assert_eq!(shown(branch, "x"), "7", "{source}");
            });
        }
        assert_eq!(shown(&origin, "x"), "7");
    });
    let outcome = run(&all[0], within("x = bytearray(1 << 30)", 5000));
    let sentence = &outcome.verdict.as_ref().expect("a verdict").sentence;
    assert!(sentence.contains("300 MiB"), "its own limit: {sentence}");
}

#[test]
fn limits_are_the_origins_unless_others_are_given() {
    let spec = ContextSpec { limits: Limits::new().memory(200 << 20), ..ContextSpec::default() };
    let origin = contexts().open(spec, &mut || false).expect("a context");
    done(&origin, "x = 1");
    let outcome = run(&branches(&origin, 1)[0], within("x = bytearray(1 << 30)", 5000));
    assert_eq!(
        (outcome.ending, outcome.state),
        (Ending::OutOfMemory, RemainingState::RolledBack),
        "{outcome:?}"
    );
    let sentence = &outcome.verdict.as_ref().expect("a verdict").sentence;
    assert!(sentence.contains("200 MiB"), "{sentence}");
}

/// What a hostile branch tries with everything it can name.
const ATTACK: &str = "import os, signal, ctypes
libc = ctypes.CDLL(None, use_errno=True)
reached = []
def attempt(name, act):
    try:
        if act() not in (None, -1): reached.append(name)
    except OSError: pass
attempt('kill(-1)', lambda: os.kill(-1, signal.SIGSTOP))
for pid in range(1, 600):
    if pid != os.getpid():
        attempt('kill', lambda: os.kill(pid, signal.SIGSTOP) or 1)
        attempt('group', lambda: os.killpg(pid, signal.SIGSTOP) or 1)
        attempt('ptrace', lambda: libc.ptrace(16, pid, 0, 0))
        attempt('memory', lambda: open('/proc/%d/mem' % pid, 'rb').close() or 1)
        attempt('memory to write', lambda: open('/proc/%d/mem' % pid, 'r+b').close() or 1)
        attempt('directory', lambda: os.listdir('/proc/%d/root' % pid) and 1)
for key in range(20):
    attempt('shared memory', lambda: libc.shmat(key, None, 0))
open('/tmp/mine', 'w').write('hostile'); open('/workspace/mine', 'w').write('hostile')
reached";

#[test]
fn without_root_a_hostile_branch_reaches_no_other() {
    if as_a_user("without_root_a_hostile_branch_reaches_no_other") {
        return;
    }
    hostile_branch();
}

#[test]
fn a_hostile_branch_reaches_no_other() {
    hostile_branch();
}

fn hostile_branch() {
    let origin = open();
    done(&origin, "x = 7");
    let all = branches(&origin, 3);
    let beat = "import time\nticks = 0\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end:\n    ticks += 1\n    time.sleep(0.01)\nticks > 20, os_is_mine()";
    let mine =
        "import os\ndef os_is_mine(): return [os.path.exists(p) for p in ('/tmp/mine', '/workspace/mine')]";
    for context in [&origin, &all[1], &all[2]] {
        done(context, mine);
    }
    std::thread::scope(|scope| {
        let victims: Vec<_> = [&origin, &all[1], &all[2]]
            .into_iter()
            .map(|victim| scope.spawn(|| shown(victim, beat)))
            .collect();
        for _ in 0..3 {
            // It finds itself and its own processes, and nothing to signal.
            assert_eq!(shown(&all[0], ATTACK), "[]");
        }
        for victim in victims {
            assert_eq!(victim.join().expect("no panic"), "(True, [False, False])");
        }
    });
    // The same attempts reach what is in the same sandbox: that is how they are known to be
    // attempts.
    let own = format!("import subprocess\nown = subprocess.Popen(['sleep', '600'])\n{ATTACK}");
    let reached = shown(&all[0], &own);
    assert!(reached.contains("'kill'") && reached.contains("'memory'"), "{reached}");
}

#[test]
fn each_branch_has_copies_of_the_files() {
    let parent = std::env::temp_dir().join(format!("sandtimer-branches-{}", std::process::id()));
    std::fs::create_dir(&parent).expect("a directory");
    let at = Profile { workspaces: Some(parent.clone()), ..profile() };
    let engine = Engine::new().expect("an engine");
    let pool = engine.contexts(at, 1).expect("a pool");
    for pool in [contexts(), &pool] {
        let origin = pool.open(ContextSpec::default(), &mut || false).expect("a context");
        done(
            &origin,
            "import os\nos.makedirs('/workspace/a/b')\nos.chdir('/workspace/a')\nopen('b/text', 'w').write('one')\nos.symlink('b/text', 'link')\nopen('run.sh', 'w').write('#!/bin/sh\\n')\nos.chmod('run.sh', 0o755)\nopen('/tmp/large', 'wb').write(bytes(3 << 20))\nopen('module.py', 'w').write('value = 9')\nimport module",
        );
        let branch = branches(&origin, 1).remove(0);
        done(&branch, "open('b/text', 'a').write(' two'); import mmap");
        done(&origin, "open('b/text', 'a').write(' three')");
        let inspects = "open('link').read(), os.access('run.sh', os.X_OK), os.path.getsize('/tmp/large'), os.getcwd(), module.value";
        assert_eq!(shown(&branch, inspects), "('one two', True, 3145728, '/workspace/a', 9)");
        assert_eq!(shown(&origin, inspects), "('one three', True, 3145728, '/workspace/a', 9)");
        done(&origin, "open('/tmp/large', 'wb').write(bytes(65 << 20))");
        assert!(rejection(&origin).contains("64 MiB"), "{}", rejection(&origin));
    }
    let named = parent.join("named");
    make_workspace(&named).expect("a workspace");
    let spec = ContextSpec { workspace: Some(named), ..ContextSpec::default() };
    let origin = pool.open(spec, &mut || false).expect("a context");
    done(&origin, "open('/workspace/text', 'w').write('one')");
    let shares = BranchSpec { count: 1, shares_workspace: true, ..BranchSpec::default() };
    let branch = origin.branch(&shares).expect("a branch").remove(0);
    done(&branch, "open('/workspace/text', 'a').write(' two')");
    assert_eq!(shown(&origin, "open('/workspace/text').read()"), "'one two'");
    // The first one fails when it has the image, and another one takes its place.
    done(
        &origin,
        "import os\nreal = os.chdir\n\
         def chdir(path):\n    \
             if not os.path.exists('/workspace/failed'):\n        \
                 os.mkdir('/workspace/failed')\n        \
                 raise OSError('for once')\n    \
             real(path)\n\
         os.chdir = chdir",
    );
    let another = origin.branch(&shares).expect("a branch").remove(0);
    assert_eq!(shown(&another, "sorted(os.listdir('/workspace'))"), "['failed', 'text']");
    assert_eq!(pool.stats().lost, 1);
    drop((another, branch, origin, pool, engine));
    std::fs::remove_dir_all(parent).expect("it is ours");
}

#[test]
fn what_would_not_be_the_same_is_refused_with_its_reason() {
    let cases = [
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "1 other threads",
        ),
        ("import subprocess\nchild = subprocess.Popen(['sleep', '60'])", "1 processes"),
        ("file = open('/workspace/held', 'w')", "/workspace/held"),
        ("import socket\npair = socket.socketpair()", "2 files or sockets"),
        ("import mmap\nmemory = mmap.mmap(-1, 4096)", "shares memory"),
        (
            "import asyncio\nasync def begin():\n    global task\n    task = asyncio.ensure_future(asyncio.sleep(60))\nawait begin()",
            "coroutines",
        ),
    ];
    for (source, reason) in cases {
        let origin = open();
        done(&origin, source);
        let reason_shown = rejection(&origin);
        assert!(reason_shown.contains(reason), "{source}: {reason_shown}");
        assert_eq!(shown(&origin, "1 + 1"), "2", "it is as it was");
    }
    let session = Engine::new().expect("an engine").session(ContextSpec::default()).expect("a session");
    assert!(rejection(&session).contains("session"));
    for count in [0, 65, usize::MAX] {
        let asked = open().branch(&BranchSpec { count, ..BranchSpec::default() });
        assert!(matches!(asked, Err(Error::BranchCount(reported)) if reported == count));
    }
    let node = Profile { interpreter: "node".into(), language: Language::JavaScript, ..profile() };
    let pool = Engine::new().expect("an engine").contexts(node, 1).expect("a pool");
    let context =
        pool.open(ContextSpec::default(), &mut || false).expect("a context; this test needs Node.js");
    assert!(rejection(&context).contains("only Python"));
}

#[test]
fn an_event_loop_goes_on_in_each() {
    let origin = open();
    done(&origin, "import asyncio\nawait asyncio.sleep(0.01)");
    let branch = branches(&origin, 1).remove(0);
    for context in [&origin, &branch] {
        assert_eq!(shown(context, "await asyncio.sleep(0.01, 'awake')"), "'awake'");
        done(
            context,
            "import gc; gc.collect(); file = open('/tmp/later', 'w')\nimport socket\nother = socket.socketpair()",
        );
        assert_eq!(
            shown(context, "await asyncio.sleep(0.01); file.write('x'), other[0].send(b'y')"),
            "(1, 1)"
        );
    }
}

#[test]
fn a_forged_image_gains_a_process_that_ends() {
    let found = "import sys, os
frame = sys._getframe()
while frame:
    found = frame.f_locals.get('self')
    if type(found).__name__ == 'Context': context = found
    frame = frame.f_back
";
    let forge = "def forged(context, packet, files, kind=KIND):
    os.pwrite(files[0], FORGED, 0)
    for file in files: os.close(file)
    os.write(3, b'B' + packet[1:9] + (1 << 22 << 2 | kind).to_bytes(8, 'little'))
    return False
type(context).serve.__globals__['image'] = forged";
    for (bytes, kind) in
        [("bytes(4096)", 1), ("b'\\xff' * (1 << 20)", 1), ("os.urandom(1 << 20)", 1), ("b''", 2), ("b''", 3)]
    {
        let origin = open();
        let forged = forge.replace("KIND", &kind.to_string()).replace("FORGED", bytes);
        done(&origin, &format!("{found}{forged}"));
        let asked = origin.branch(&BranchSpec { count: 2, ..BranchSpec::default() });
        assert!(asked.is_err(), "{bytes}: {asked:?}");
        assert_eq!(shown(&origin, "1 + 1"), "2");
    }
    // Over one that is not forged, and longer than any over another is: the engine would hold on to
    // it.
    let origin = open();
    drop(branches(&origin, 1));
    let long = "def forged(context, packet, files):
    said = 16 << 20 << 2 | (2 if os.fstat(files[0]).st_size >= 16 << 20 else 3)
    for file in files: os.close(file)
    os.write(3, b'B' + packet[1:9] + said.to_bytes(8, 'little'))
    return False
type(context).serve.__globals__['image'] = forged";
    done(&origin, &format!("{found}{long}"));
    let reason = rejection(&origin);
    assert_eq!(reason, "its image has no size that can be right");
}

/// Interpreters of this process under this name that are in pid namespaces of their own.
fn ready_ones(name: &str) -> Vec<rustix::process::Pid> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let ready = |entry: std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let of = |field: &str| status.lines().find_map(|line| line.strip_prefix(field));
        let is_inside = of("NSpid:")?.split_whitespace().count() > 1;
        let is_ours = of("PPid:")?.trim() == std::process::id().to_string();
        let pid = rustix::process::Pid::from_raw(of("Pid:")?.trim().parse().ok()?)?;
        (of("Name:")?.trim() == name && is_inside && is_ours).then_some(pid)
    };
    processes.filter_map(ready).collect()
}

#[test]
fn interpreters_that_died_while_they_stood_ready_are_replaced() {
    let named = |name: &str| format!("import ctypes; ctypes.CDLL(None).prctl(15, b'{name}')");
    let mark = format!("ready-{}", std::process::id());
    let prewarm = Prewarm { source: named(&mark), limit: Duration::from_secs(20) };
    let engine = Engine::new().expect("an engine");
    let pool = engine.contexts(Profile { prewarm: Some(prewarm), ..profile() }, 2).expect("a pool");
    let origin = pool.open(ContextSpec::default(), &mut || false).expect("a context");
    done(&origin, &format!("{}\nx = 1", named("origin")));
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while pool.stats().ready < 2 {
        assert!(std::time::Instant::now() < until, "{:?}", pool.stats());
        std::thread::sleep(Duration::from_millis(10));
    }
    for pid in ready_ones(&mark) {
        // A child that was being made may be gone already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let all = branches(&origin, 3);
    assert_eq!(all.iter().map(|branch| shown(branch, "x")).collect::<Vec<_>>(), ["1"; 3]);
    assert!(pool.stats().lost > 0, "{:?}", pool.stats());
}

#[test]
fn nothing_is_left_of_closed_branches() {
    let engine = Engine::new().expect("an engine");
    let pool = engine.contexts(profile(), 1).expect("a pool");
    let origin = pool.open(ContextSpec::default(), &mut || false).expect("a context");
    let mark = format!("sandtimer-left-{}", std::process::id());
    done(&origin, "x = 1");
    let all = branches(&origin, 3);
    for branch in &all {
        let daemon = format!(
            "import os, subprocess\nsubprocess.Popen(['bash', '-c', 'exec -a {mark} sleep 600'], start_new_session=True)\nimport time\ntime.sleep(0.3)"
        );
        done(branch, &daemon);
    }
    let alive = || {
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        let named = |entry: &std::fs::DirEntry| {
            std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.starts_with(mark.as_bytes()))
        };
        processes.filter(named).count()
    };
    assert_eq!(alive(), 3, "the census finds what there is");
    drop(all);
    assert_eq!(alive(), 0);
}
