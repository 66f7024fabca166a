"""Sandboxes from their making to their close, and behind it, with each way to start."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import time
from typing import Any, Callable

import pytest
import sandtimer

from test_fork import run_alone

STARTS = ("zygote", "spawn", "fork")


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(
    "use",
    [
        lambda box: box.run(abs, -1),
        lambda box: box.call(abs, -1),
        lambda box: box.submit(abs, -1),
        lambda box: box.map(abs, [-1]),
        lambda box: box.exec("1"),
        lambda box: box.limits(timeout=1.0).run(abs, -1),
        lambda box: box.judge("print(1)", [("", "1")]),
        lambda box: box.warm(1),
        lambda box: box.stats(),
    ],
    ids=["run", "call", "submit", "map", "exec", "limits", "judge", "warm", "stats"],
)
def test_a_closed_sandbox_says_so(start: str, use: Callable[[sandtimer.Sandbox], Any]) -> None:
    box = sandtimer.Sandbox(timeout=20.0, start=start, force=True)
    box.close()
    box.close()
    with pytest.raises(sandtimer.SandboxUnavailableError, match="closed; make a new one"):
        use(box)


def test_one_that_was_used_says_so_too() -> None:
    box = sandtimer.Sandbox(timeout=20.0)
    assert box.submit(abs, -1).result(timeout=30) == 1
    box.close()
    for use in (box.run, box.call, box.submit):
        with pytest.raises(sandtimer.SandboxUnavailableError, match="closed"):
            use(abs, -1)


def test_a_refused_call_keeps_no_descriptors() -> None:
    box = sandtimer.Sandbox(timeout=20.0)
    box.close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(sandtimer.SandboxUnavailableError):
            box.submit(len, bytes(1 << 20))
    assert len(os.listdir("/proc/self/fd")) == before


def test_background_calls_of_other_starts_make_no_children_that_wait() -> None:
    """In a process of its own: this one's pools are nobody's business there."""
    said = run_alone("""
        import os, time

        def zygotes():
            found = []
            for name in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{name}/cmdline", "rb") as file:
                        arguments = file.read()
                    with open(f"/proc/{name}/stat") as file:
                        parent = int(file.read().rpartition(")")[2].split()[1])
                except OSError:
                    continue
                if parent == os.getpid() and b"-I\\0-B\\0-u\\0-c\\0" in arguments:
                    found.append(name)
            return found

        def zygotes_that_stay():
            # What has answered may still be dying.
            limit = time.monotonic() + 20
            while zygotes() and time.monotonic() < limit:
                time.sleep(0.01)
            return zygotes()

        for start in ("spawn", "fork"):
            with sandtimer.Sandbox(timeout=20.0, start=start, force=True) as box:
                box.warm(1)
                assert box.submit(abs, -1).result(timeout=30) == 1
                assert [outcome.value for outcome in box.map(abs, [-2, -3])] == [2, 3]
                print(zygotes_that_stay(), box.stats()["ready"], box.stats()["zygotes"])
        with sandtimer.Sandbox(timeout=20.0) as box:
            box.warm(1)
            print(len(zygotes()) > 0)
    """)
    assert said == "[] 0 0\n[] 0 0\nTrue\n"


def test_threads_of_a_dropped_sandbox_end() -> None:
    box = sandtimer.Sandbox(timeout=20.0, workers=2)
    before = set(threading.enumerate())
    assert [box.submit(abs, -1).result(timeout=30) for _ in range(3)] == [1, 1, 1]
    threads = set(threading.enumerate()) - before
    assert threads
    del box
    gc.collect()
    limit = time.monotonic() + 20
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads)


def test_a_call_behind_a_close_is_never_forgotten() -> None:
    """Either it is done, or it says that the sandbox is closed: its future does not wait for ever."""
    for _ in range(5):
        box = sandtimer.Sandbox(timeout=20.0, start="spawn", workers=1)
        futures = []
        closing = threading.Thread(target=box.close)
        closing.start()
        try:
            while len(futures) < 3:
                futures.append(box.submit(abs, -1))
        except sandtimer.SandboxUnavailableError:
            pass
        closing.join()
        for future in futures:
            error = future.exception(timeout=60)
            assert error is None or isinstance(error, sandtimer.SandboxUnavailableError)


@pytest.mark.parametrize("start", STARTS)
def test_a_caller_that_ignores_the_death_of_children_gets_honest_outcomes(start: str) -> None:
    said = run_alone(f"""
        import signal

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with sandtimer.Sandbox(timeout=20.0, start={start!r}) as box:
            for outcome in (
                box.run(abs, -3),
                box.run(divmod, 1, 0),
                box.limits(timeout=0.3).run(exec, "while True: pass"),
                box.exec("print(input())", stdin="read"),
            ):
                print(outcome.ending, outcome.value, outcome.tree.survivors, outcome.stdout.strip())
            # Its exit status is lost: whatever it says, it does not say that all is well.
            outcome = box.run(exec, "import os; os.kill(os.getpid(), 11)")
            print(outcome.ok, outcome.ending in ("infra_error", "signaled"), outcome.tree.survivors)
    """)
    assert said == "returned 3 0 \nraised None 0 \ntimeout None 0 \nreturned None 0 read\nFalse True 0\n"


def test_caller_that_ignores_the_death_of_children_is_told_once() -> None:
    said = run_alone("""
        import signal, warnings

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with sandtimer.Sandbox(timeout=20.0) as box:
                box.exec("raise SystemExit(3)")
                box.limits(timeout=5.0).exec("raise SystemExit(3)")
        for each in caught:
            print(each.category.__name__, each.filename == "<string>", "signal.signal(signal.SIGCHLD, signal.SIG_DFL)" in str(each.message))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        warnings.simplefilter("error")
        with sandtimer.Sandbox(timeout=20.0) as box:
            print(box.exec("raise SystemExit(3)").exit_code)
    """)
    assert said == "RuntimeWarning True True\n3\n"


def test_calls_of_a_caller_that_ignores_the_death_of_children_are_over_as_soon_as_others() -> None:
    said = run_alone("""
        import signal, statistics

        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with sandtimer.Sandbox(timeout=20.0) as box:
            print(statistics.median(box.run(abs, -3).tree.dead_after_ms for _ in range(20)))
    """)
    # Init is asked about a sandbox that is used again, and has 100 ms to answer.
    assert float(said) < 50


@pytest.mark.parametrize("start", STARTS)
def test_a_caller_that_waits_for_every_child_gets_honest_outcomes(start: str) -> None:
    said = run_alone(f"""
        import os, threading, time

        def reap():
            while True:
                try:
                    os.waitpid(-1, 0)
                except ChildProcessError:
                    time.sleep(0.001)

        threading.Thread(target=reap, daemon=True).start()
        with sandtimer.Sandbox(timeout=20.0, start={start!r}, force=True) as box:
            for outcome in (box.run(abs, -3), box.run(divmod, 1, 0), box.limits(timeout=0.3).run(exec, "while True: pass")):
                print(outcome.ending, outcome.value, outcome.tree.survivors)
            outcome = box.run(exec, "import os; os.kill(os.getpid(), 11)")
            print(outcome.ok, outcome.ending in ("infra_error", "signaled"), outcome.tree.survivors)
    """)
    assert said == "returned 3 0\nraised None 0\ntimeout None 0\nFalse True 0\n"


def test_a_sandbox_is_not_sent_anywhere() -> None:
    with sandtimer.Sandbox(timeout=20.0) as box:
        for send in (lambda: pickle.dumps(box), lambda: box.call(lambda: box.call(abs, -1)), lambda: copy.deepcopy(box)):
            with pytest.raises(TypeError, match="belongs to the process.*make another"):
                send()
        assert copy.copy(box).call(abs, -1) == 1


@pytest.mark.parametrize("without", ["sys.stderr = None", "sys.stderr.close()"])
def test_progress_is_not_shown_where_nobody_sees_it(without: str) -> None:
    said = run_alone(f"""
        import sys

        {without}
        with sandtimer.Sandbox(timeout=20.0) as box:
            print([outcome.value for outcome in box.map(abs, [-1, 2], progress=True)])
    """)
    assert said == "[1, 2]\n"
