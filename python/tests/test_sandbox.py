"""Calls, end to end: real interpreters in real sandboxes."""

from __future__ import annotations

import asyncio
import collections
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Iterator

import pytest
import sandtimer
import subjects


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=20.0) as made:
        yield made


def test_a_call_gives_its_value(box: sandtimer.Sandbox) -> None:
    assert box.call(lambda x: x * 7, 6) == 42
    outcome = box.run(divmod, 7, 3)
    assert (outcome.ending, outcome.ok, outcome.value) == ("returned", True, (2, 1))
    assert outcome.tree.survivors == 0
    assert outcome.isolation.tier in ("T1", "T2", "T3")


def test_it_runs_in_another_process_of_another_namespace(box: sandtimer.Sandbox) -> None:
    assert box.call(os.getpid) == 2 != os.getpid()


def test_a_call_and_its_threads_may_use_all_processors_of_its_caller(box: sandtimer.Sandbox) -> None:
    def processors() -> list[set[int]]:
        from threading import Thread

        found = [os.sched_getaffinity(0)]
        thread = Thread(target=lambda: found.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
        return found

    own = os.sched_getaffinity(0)
    assert [box.call(processors) for _ in range(40)] == 40 * [[own, own]]


def _has_capability(number: int) -> bool:
    with open("/proc/self/status") as file:
        effective = next(line for line in file if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> number & 1)


# Of builtins alone, so that nothing is imported before it looks; proc_pid_stat(5).
_PROCESSOR = "int(open('/proc/self/stat').read().rpartition(')')[2].split()[36])"


def test_a_call_begins_on_its_callers_processor() -> None:
    own = os.sched_getaffinity(0)
    if len(own) < 2:
        pytest.skip("there is one processor")
    if os.geteuid() == 0 and not _has_capability(23):
        pytest.skip("root without CAP_SYS_NICE may not bind a process of another uid")
    with sandtimer.Sandbox(timeout=20.0) as box:
        box.call(eval, _PROCESSOR)
        try:
            for processor in sorted(own)[:2]:
                os.sched_setaffinity(0, {processor})
                found = []
                for _ in range(40):
                    box.warm(2)
                    found.append(box.call(eval, _PROCESSOR))
                # The kernel may have moved one since.
                assert found.count(processor) >= 30, found
        finally:
            os.sched_setaffinity(0, own)


def test_what_is_printed_is_kept(box: sandtimer.Sandbox) -> None:
    def speak() -> None:
        import sys

        print("out")
        print("err", file=sys.stderr)

    outcome = box.run(speak)
    assert (outcome.stdout, outcome.stderr) == ("out\n", "err\n")


def test_an_exception_comes_back_as_itself(box: sandtimer.Sandbox) -> None:
    outcome = box.run(divmod, 1, 0)
    assert (outcome.ending, outcome.ok) == ("raised", False)
    assert isinstance(outcome.error, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError) as caught:
        box.call(divmod, 1, 0)
    assert "ZeroDivisionError" in str(caught.value.__cause__)


def test_one_of_an_unknown_class_comes_back_as_a_remote_error(box: sandtimer.Sandbox) -> None:
    def lose() -> None:
        class Lost(Exception):
            pass

        raise Lost("no move left")

    with pytest.raises(sandtimer.RemoteError, match="no move left") as caught:
        box.call(lose)
    assert caught.value.type_name.endswith("Lost")


def test_a_loop_ends_at_its_deadline(box: sandtimer.Sandbox) -> None:
    def spin() -> None:
        while True:
            pass

    started = time.monotonic()
    with pytest.raises(sandtimer.DeadlineExceeded, match="wall limit of 200 ms") as caught:
        box.limits(timeout=0.2).call(spin)
    assert time.monotonic() - started >= 0.2
    assert caught.value.outcome.tree.survivors == 0


def test_one_that_swallows_everything_ends_as_well(box: sandtimer.Sandbox) -> None:
    def swallow() -> None:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass

    assert box.limits(timeout=0.2, grace=0.1).run(swallow).ending == "timeout"


@pytest.mark.parametrize(
    ("code", "ending", "signal"),
    [
        ("import os; os._exit(0)", "no_result", None),
        ("import os; os.abort()", "signaled", "SIGABRT"),
        ("import os; os.kill(os.getpid(), 11)", "signaled", "SIGSEGV"),
    ],
)
def test_ways_to_die_are_told_apart(box: sandtimer.Sandbox, code: str, ending: str, signal: Any) -> None:
    outcome = box.run(exec, code)
    assert (outcome.ending, outcome.signal) == (ending, signal)
    with pytest.raises(sandtimer.Crashed):
        box.call(exec, code)


def test_system_exit_does_not_end_the_caller(box: sandtimer.Sandbox) -> None:
    outcome = box.run(exec, "raise SystemExit(3)")
    assert (outcome.ending, type(outcome.error)) == ("raised", SystemExit)
    with pytest.raises(sandtimer.RemoteError, match="SystemExit"):
        box.call(exec, "raise SystemExit(3)")


def test_too_much_memory_is_said(box: sandtimer.Sandbox) -> None:
    outcome = box.limits(memory="64MB").run(lambda: len(b"x" * (256 << 20)))
    if outcome.isolation.tier == "T3":
        assert outcome.ending == "out_of_memory"
        with pytest.raises(MemoryError):
            box.limits(memory="64MB").call(lambda: len(b"x" * (256 << 20)))
    else:
        assert outcome.ending in ("out_of_memory", "raised")


def test_a_large_result_is_whole(box: sandtimer.Sandbox) -> None:
    size = 3 << 20
    assert box.call(lambda: bytes(range(256)) * (size // 256)) == bytes(range(256)) * (size // 256)


def test_large_arguments_arrive(box: sandtimer.Sandbox) -> None:
    data = os.urandom(1 << 20)
    assert box.call(lambda first, second: (len(first), second[:3]), data, b"abc" * 100_000) == (1 << 20, b"abc")


def test_a_program_reads_its_stdin(box: sandtimer.Sandbox) -> None:
    outcome = box.exec("name = input()\nprint('hello', name)\nlen(name)", stdin="world\n")
    assert (outcome.value, outcome.stdout, outcome.ending) == (5, "hello world\n", "returned")
    failed = box.exec("import sys; sys.exit(3)")
    assert (failed.ending, failed.exit_code, failed.ok) == ("exited", 3, False)
    assert box.exec("import sys; sys.exit(0)").ok
    broken = box.exec("1 +")
    assert isinstance(broken.error, SyntaxError)


def test_a_generator_is_refused_with_the_remedy(box: sandtimer.Sandbox) -> None:
    outcome = box.run(lambda: (x for x in "abc"))
    assert isinstance(outcome.error, sandtimer.UnserializableError)
    assert "list" in str(outcome.error)


def test_a_future_can_be_cancelled_while_it_runs(box: sandtimer.Sandbox) -> None:
    future = box.submit(time.sleep, 100)
    limit = time.monotonic() + 30
    while not future.running() and time.monotonic() < limit:
        time.sleep(0.01)
    assert future.cancel() and future.cancelled()
    assert box.submit(abs, -3).result(timeout=30) == 3


def test_map_keeps_the_order_and_raises_for_none(box: sandtimer.Sandbox) -> None:
    outcomes = list(box.map(lambda x: 10 // x, [5, 0, 2]))
    assert [outcome.value for outcome in outcomes] == [2, None, 5]
    assert isinstance(outcomes[1].error, ZeroDivisionError)


def test_it_can_be_awaited(box: sandtimer.Sandbox) -> None:
    async def main() -> Any:
        return await asyncio.gather(*(box.acall(pow, 2, each) for each in range(5)))

    assert asyncio.run(main()) == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    "bad",
    [{"timeout": -1}, {"timeout": float("nan")}, {"timeout": True}, {"timeout": "2s"}, {"memory": "abc"}, {"cpu": []}],
)
def test_what_is_no_limit_is_refused_by_name(bad: dict[str, Any]) -> None:
    with pytest.raises(sandtimer.InvalidLimitError, match=next(iter(bad))):
        sandtimer.Sandbox(**bad)


def test_an_argument_that_cannot_be_sent_is_refused(box: sandtimer.Sandbox) -> None:
    import threading

    with pytest.raises(sandtimer.UnserializableError, match="fork"):
        box.call(repr, threading.Lock())
    assert box.call(abs, -1) == 1


def test_an_interpreter_that_is_none_is_refused() -> None:
    with sandtimer.Sandbox(python="/bin/true") as box, pytest.raises(sandtimer.ProfileRefusedError, match="not a Python"):
        box.call(abs, 1)


def test_a_missing_module_is_named() -> None:
    with sandtimer.Sandbox(preload=["no_such_module"]) as box:
        for _ in range(2):
            with pytest.raises(sandtimer.ProfileRefusedError, match="no_such_module"):
                box.call(abs, 1)


def test_a_fork_beside_threads_is_refused_with_the_reason() -> None:
    import threading

    go = threading.Event()
    thread = threading.Thread(target=go.wait, name="other")
    thread.start()
    try:
        with sandtimer.Sandbox(start="fork") as box, pytest.raises(sandtimer.SandboxUnavailableError, match="other"):
            box.call(abs, -1)
        with sandtimer.Sandbox(start="fork", force=True) as box:
            assert box.call(abs, -1) == 1
    finally:
        go.set()
        thread.join()


def test_a_spawned_call_has_an_interpreter_of_its_own() -> None:
    with sandtimer.Sandbox(timeout=20.0, start="spawn") as box:
        outcome = box.run(divmod, 7, 3)
        assert (outcome.value, outcome.path, outcome.tree.survivors) == ((2, 1), "spawn", 0)


def test_all_items_together_have_a_deadline(box: sandtimer.Sandbox) -> None:
    outcomes = list(box.map(time.sleep, [0.0] + [100.0] * 6, total=1.0))
    assert outcomes[0].ending == "returned"
    assert {outcome.ending for outcome in outcomes[1:]} == {"timeout"}
    assert all(isinstance(outcome.error, TimeoutError) for outcome in outcomes[1:])
    verdict = outcomes[1].verdict
    assert verdict is not None and (verdict.layer, verdict.kind) == ("job", "wall")


def test_an_item_that_cannot_be_sent_is_an_outcome(box: sandtimer.Sandbox) -> None:
    import threading

    outcomes = list(box.map(repr, [1, threading.Lock(), 2], progress=True))
    assert [outcome.value for outcome in outcomes] == ["1", None, "2"]
    assert isinstance(outcomes[1].error, sandtimer.UnserializableError)


def test_random_numbers_differ_unless_seeded() -> None:
    def draw() -> Any:
        import random

        try:
            import numpy as np

            arrays = [np.random.rand(), np.random.default_rng().random()]
        except ImportError:
            arrays = []
        return [random.random(), *map(float, arrays)]

    preloads: list[list[str]] = [[], ["random"]]
    try:
        import numpy  # noqa: F401

        preloads += [["numpy"], ["numpy.random"]]
    except ImportError:
        pass
    for preload in preloads:
        with sandtimer.Sandbox(timeout=20.0, preload=preload) as box:
            drawn = [box.call(draw) for _ in range(4)]
            for column in zip(*drawn):
                assert len(set(column)) == 4, preload
        with sandtimer.Sandbox(timeout=20.0, preload=preload, seed=7) as box:
            assert box.call(draw) == box.call(draw), preload
    with sandtimer.Sandbox(timeout=20.0, start="spawn", seed=7) as box:
        assert box.call(draw) == box.call(draw)


def test_a_generator_with_a_constant_seed_is_given_another_when_it_is_imported(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw() -> float:
        import torch

        return float(torch.draw())

    # As torch is: the same numbers in each process that imports it.
    (tmp_path / "torch").mkdir()
    own = "import random\nown = random.Random(5)\ndef manual_seed(seed):\n    own.seed(seed)\ndef draw():\n    return own.random()\n"
    (tmp_path / "torch" / "__init__.py").write_text(own)
    monkeypatch.syspath_prepend(str(tmp_path))
    with sandtimer.Sandbox(timeout=20.0) as box:
        assert box.call(draw) != box.call(draw)
    with sandtimer.Sandbox(timeout=20.0, seed=3) as box:
        assert box.call(draw) == box.call(draw)


def test_a_module_that_cannot_be_imported_inside_goes_along(tmp_path: Any, box: sandtimer.Sandbox) -> None:
    import importlib
    import sys

    (tmp_path / "hidden_module.py").write_text("FACTOR = 3\ndef times(x):\n    return inner(x)\ndef inner(x):\n    return x * FACTOR\n")
    sys.path.insert(0, str(tmp_path))
    try:
        module = importlib.import_module("hidden_module")
    finally:
        sys.path.remove(str(tmp_path))
    try:
        assert box.call(module.times, 14) == 42
        assert box.submit(module.times, 2).result(timeout=30) == 6
        with sandtimer.Sandbox(timeout=20.0) as other:
            assert [outcome.value for outcome in other.map(module.times, range(12))] == [3 * each for each in range(12)]
    finally:
        del sys.modules["hidden_module"]


def test_what_a_job_says_is_missing_is_not_believed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    source = "import threading\nLOCK = threading.Lock()\ndef score(code):\n    names = {}\n    exec(code, names)\n    return names['f']()\n"
    (tmp_path / "scores.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    scores = importlib.import_module("scores")
    forge = """
import os, pickle, time
def f():
    time.sleep(0.5)
    said = pickle.dumps(("module", "scores"), 5)
    for number in range(3, 12):
        try: os.write(number, b"A" + bytes([2]) + bytes(6) + len(said).to_bytes(8, "little") + said)
        except OSError: pass
    time.sleep(60)
"""
    with sandtimer.Sandbox(timeout=10.0) as box:
        outcome = box.limits(timeout=1.0).run(scores.score, forge)
        # That it was told so shows that the forged answer is one.
        assert type(outcome.error).__name__ == "MissingModule" and outcome.usage.wall_ms < 1500
        assert box.call(scores.score, "def f(): return 1") == 1


def test_a_call_that_is_sent_again_has_what_is_left_of_its_time(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util
    import sys

    # The package is found inside, which takes its time; the module in it is not.
    package, elsewhere = tmp_path / "slow_package", tmp_path / "elsewhere.py"
    package.mkdir()
    (package / "__init__.py").write_text("import time\ntime.sleep(0.6)\n")
    elsewhere.write_text("def wait():\n    import time\n    time.sleep(60)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.spec_from_file_location("slow_package.hidden", elsewhere)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, spec.name, module)
    with sandtimer.Sandbox(timeout=1.0) as box:
        outcome = box.run(module.wait)
    assert outcome.ending == "timeout" and outcome.usage.wall_ms < 600


def test_grace_beyond_an_outer_limit_leaves_calls_their_time() -> None:
    with sandtimer.Sandbox(grace=5) as box:
        assert [outcome.value for outcome in box.map(abs, [-1, -2], total=3)] == [1, 2]
        assert box.within(sandtimer.TimeoutManager(max_runtime_seconds=3)).call(abs, -3) == 3


def test_a_grace_is_over_when_the_call_has_left(box: sandtimer.Sandbox) -> None:
    def tidy() -> None:
        import signal

        def leave(*_: object) -> None:
            print("tidied")
            os._exit(0)

        signal.signal(signal.SIGTERM, leave)
        while True:
            time.sleep(1)

    def answer() -> None:
        import signal
        import sys

        signal.signal(signal.SIGTERM, lambda *_: sys.exit("tidied"))
        while True:
            time.sleep(1)

    answered = box.limits(timeout=0.3, grace=30.0).run(answer)
    assert answered.ending == "timeout"
    assert answered.usage.wall_ms < 10_000
    outcome = box.limits(timeout=0.3, grace=30.0).run(tidy)
    assert (outcome.ending, outcome.stdout) == ("timeout", "tidied\n")
    assert outcome.usage.wall_ms < 10_000
    assert outcome.verdict is not None and [each["signal"] for each in outcome.verdict.signals][0] == "SIGTERM"


@pytest.mark.parametrize(
    ("limits", "code", "ending", "kind"),
    [
        ({"cpu": 0.2}, "while True: pass", "timeout", "cpu"),
        ({"stall": 0.3}, "import time; time.sleep(100)", "stalled", "stall"),
    ],
)
def test_other_limits_of_time(
    box: sandtimer.Sandbox, limits: dict[str, Any], code: str, ending: str, kind: str
) -> None:
    outcome = box.limits(**limits).run(exec, code)
    assert (outcome.ending, outcome.verdict and outcome.verdict.kind) == (ending, kind)
    assert isinstance(outcome.error, TimeoutError)


def test_an_outcome_can_be_pickled(box: sandtimer.Sandbox) -> None:
    """Settled, with its value or its error, and the traceback from inside."""

    def divide(a: int, b: int) -> Any:
        print("dividing")
        return {"quotient": a / b}

    for arguments in ((6, 3), (1, 0)):
        outcome = box.run(divide, *arguments)
        again = pickle.loads(pickle.dumps(outcome))
        assert (again.run_id, again.ending, again.value, again.stdout) == (
            outcome.run_id, outcome.ending, outcome.value, "dividing\n",
        )  # fmt: skip
        assert again.tree.survivors == 0 and again.usage == outcome.usage and again.isolation == outcome.isolation
        assert again.to_dict() == outcome.to_dict()
    assert isinstance(again.error, ZeroDivisionError) and "in divide" in str(again.error.__cause__)
    late = pickle.loads(pickle.dumps(box.limits(timeout=0.1).run(time.sleep, 60)))
    assert isinstance(late.error, sandtimer.DeadlineExceeded) and late.error.outcome is late
    assert late.verdict.kind == "wall" and str(late.error) == late.verdict.sentence


def test_an_answer_that_is_refused_leaves_nothing_alive(box: sandtimer.Sandbox) -> None:
    # The exceptions are kept, and with them all that their tracebacks refer to.
    refused = box.run(collections.UserDict)
    assert isinstance(refused.error, sandtimer.ResultRefusedError)
    too_large = box.limits(result_bytes="1MB").run(bytes, 2 << 20)
    assert isinstance(too_large.error, sandtimer.ResultTooLargeError)
    for outcome in (refused, too_large):
        trees: list[Any] = []
        # It waits for as long as something lives.
        waiting = threading.Thread(target=lambda: trees.append(outcome.tree), daemon=True)
        waiting.start()
        waiting.join(30)
        assert [tree.survivors for tree in trees] == [0]


@pytest.mark.parametrize("start", ["zygote", "fork", "spawn"])
def test_signals_that_the_caller_handles_disturb_no_start(start: str) -> None:
    heard = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        with sandtimer.Sandbox(timeout=20.0, start=start, force=True) as box:
            for number in range(3):
                assert box.call(abs, -number) == number
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert heard


def test_a_result_of_too_many_large_buffers_is_refused_with_the_reason() -> None:
    with sandtimer.Sandbox(timeout=60.0) as box:
        outcome = box.run(subjects.many_buffers, 2500)
    assert isinstance(outcome.error, sandtimer.UnserializableError) and "2500 large buffers" in str(outcome.error), outcome


# What a caller pays for in memory and at its start, and what calls that are not awaited do without.
SPARED = ("asyncio", "ssl", "multiprocessing", "http.client", "difflib")


def test_calls_load_no_module_that_only_others_need() -> None:
    code = f"""
import sys, sandtimer
with sandtimer.Sandbox(timeout=60) as box:
    assert box.call(divmod, 7, 3) == (2, 1)
    assert box.exec("print(1)").ok
print([name for name in {SPARED!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("[]\n", "")
