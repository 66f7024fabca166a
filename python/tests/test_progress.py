"""How far calls and contexts are, by what they print and what they report; and the notice that they get before a limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types
from typing import Any

import pytest
from serving import BINARY
from subjects import floods, prints_and_waits, reports_and_waits, saves_when_told

import sandtimer

HARD_STOP = 20.0


def seen(future: sandtimer.CallFuture, done: float) -> dict[str, Any]:
    until = time.monotonic() + HARD_STOP
    while time.monotonic() < until:
        told = future.progress()
        if told is not None and told["done"] == done:
            return told
        time.sleep(0.02)
    raise AssertionError(f"it never was at {done}: {future.progress()}")


@pytest.mark.parametrize("start", ["zygote", "spawn", "fork"])
def test_a_call_reports_how_far_it_is(start: str) -> None:
    with sandtimer.Sandbox(start=start, force=start == "fork") as box:
        outcome = box.limits(timeout=1.0).run(reports_and_waits, 8, 15)
    assert outcome.verdict is not None and outcome.verdict.progress is not None
    assert (outcome.verdict.progress["done"], outcome.verdict.progress["total"]) == (8, 15)
    assert "it was at 8 of 15" in outcome.verdict.sentence


def test_a_call_in_the_background_is_followed_by_what_it_prints() -> None:
    with sandtimer.Sandbox(timeout=30.0) as box:
        future = box.submit(prints_and_waits)
        told = seen(future, 3)
        assert told["total"] == 10 and told["eta_ms"] > 0
        assert 0 <= told["p_finish_before_deadline"] <= 1
        endless = box.limits(timeout=None).submit(prints_and_waits)
        assert "p_finish_before_deadline" not in seen(endless, 3), "without a limit there is no chance to miss"
        assert future.cancel() and endless.cancel()
        assert future.progress() is None


def test_a_bar_by_rich_is_not_on_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Console:
        def __init__(self, **parameters: Any) -> None:
            made.append(parameters)

    class Progress:
        def __init__(self, console: Any = None) -> None:
            assert isinstance(console, Console)

        def start(self) -> None:
            pass

        stop = start

        def add_task(self, description: str, total: Any) -> int:
            return 0

        def update(self, task: int, advance: int, description: str) -> None:
            pass

    for name, content in (("rich.console", {"Console": Console}), ("rich.progress", {"Progress": Progress}), ("rich", {})):
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with sandtimer.Sandbox(timeout=30.0) as box:
        assert [each.value for each in box.map(abs, [-1], progress=True)] == [1]
    assert made == [{"stderr": True}]


def test_reports_that_nobody_can_take_cost_the_call_nothing() -> None:
    with sandtimer.Sandbox(timeout=60.0) as box:
        assert 0 < box.call(floods) <= 20_000


def test_a_context_is_followed_by_what_it_prints_and_reports() -> None:
    with sandtimer.Sandbox(timeout=1.0) as box, box.context() as ctx:
        epochs = "import time\nfor n in (1, 2, 3):\n    print(f'Epoch {n}/4: loss 1', flush=True)\n    time.sleep(0.05)\n"
        printed = ctx.run(f"{epochs}time.sleep(60)")
        assert printed.verdict is not None and printed.verdict.progress is not None
        assert (printed.verdict.progress["done"], printed.verdict.progress["total"]) == (3, 4)
        reported = ctx.run("import sandtimer; sandtimer.progress(5, 6)\nwhile True: pass")
        assert reported.verdict is not None and reported.verdict.progress is not None
        assert (reported.verdict.progress["done"], reported.verdict.progress["total"]) == (5, 6)
        # One cell's progress is not the next one's.
        silent = ctx.run("time.sleep(60)")
        assert silent.verdict is not None and silent.verdict.progress is None


@pytest.mark.parametrize("forged", [b'P{"done": 3, "total": 0}', b"P", b"P" + b"x" * 5000, b'P{"done": 1e300}'])
def test_a_report_that_cannot_be_changes_nothing(forged: bytes) -> None:
    with sandtimer.Sandbox(timeout=10.0) as box:
        assert box.call(os.write, 3, forged) == len(forged)


@pytest.mark.parametrize("given", [(-1, 5), (1, 0), (9, 5), (float("inf"), None), (float("nan"), 3), ("1", 2)])
def test_what_is_no_progress_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="progress"):
        sandtimer.progress(*given)


def test_outside_of_a_sandbox_nobody_hears() -> None:
    assert sandtimer.progress(1, 2) is False


def test_a_command_reports_by_its_channel() -> None:
    code = "import sandtimer, time; print(sandtimer.progress(2, 9), flush=True); time.sleep(60)"
    asked = [BINARY, "run", "--json", "--progress-channel", "--wall", "8s", "--", sys.executable, "-c", code]
    # The package may lie where a sandbox shows nothing: then there is nothing to be tried here.
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    outcome = json.loads(ended.stdout)
    if "ModuleNotFoundError" in outcome["stderr"]:
        pytest.skip("the package is not visible inside a command")
    assert outcome["stdout"] == "True\n" and outcome["verdict"]["progress"]["done"] == 2, outcome


def test_a_call_is_told_before_its_limit() -> None:
    with sandtimer.Sandbox(timeout=2.0, warn_before=1.0, warn_signal="SIGUSR1") as box:
        outcome = box.run(saves_when_told, 60)
        assert outcome.ending == "timeout" and outcome.stdout == "saved\n"
        [notice] = outcome.notices
        assert (notice["kind"], notice["signal"], notice["processes"]) == ("wall", "SIGUSR1", 1)
        assert box.run(saves_when_told, 0.1).notices == [], "one that ends before hears nothing"
        deaf = box.run(time.sleep, 60)
        assert deaf.ending == "timeout" and deaf.notices[0]["processes"] == 0, "who does not handle it is not sent it"
        assert box.limits(warn_before=None, warn_signal=None).run(saves_when_told, 60).notices == []


def test_a_program_and_a_command_are_told_before_their_limits() -> None:
    with sandtimer.Sandbox(timeout=3.0, warn_before=2.0, warn_signal=signal.SIGUSR2) as box:
        program = "import signal, time\nsignal.signal(signal.SIGUSR2, lambda *_: print('heard', flush=True))\n"
        assert box.exec(f"{program}for _ in range(600): time.sleep(0.1)").stdout == "heard\n"
        command = box.command(["bash", "-c", "trap 'echo heard' USR2; while :; do sleep 0.1; done"])
        assert command.stdout == "heard\n" and command.notices[0]["signal"] == "SIGUSR2"


def test_a_contexts_code_is_told_before_its_limit_and_keeps_what_it_saved() -> None:
    with sandtimer.Sandbox() as box, box.context() as ctx:
        ctx.run("import signal, time\nsaved = []\nsignal.signal(signal.SIGUSR1, lambda *_: saved.append(1))")
        told = ctx.run("for _ in range(600): time.sleep(0.1)", timeout=2.0, warn_before=1.0, warn_signal="USR1")
        assert told.ending == "timeout" and told.notices[0]["processes"] == 1
        # The wall interrupted the cell, so what it did before is there.
        assert ctx.run("saved").value == ([1] if told.state == "kept" else [])
        assert ctx.run("1", timeout=2.0).notices == []
        # The copy that a run goes back to has the handler, too, and is not told of a limit that was not its own.
        before = ctx.run("len(saved)").value
        spun = ctx.run("signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeout=2.0, warn_before=1.0, warn_signal=10)
        assert spun.state == "rolled_back" and spun.notices[0]["processes"] == 1
        assert ctx.run("time.sleep(0.2); len(saved)").value == before


@pytest.mark.parametrize(
    "given, word",
    [
        ({"warn_before": 1.0}, "give both"),
        ({"warn_signal": "USR1"}, "give both"),
        ({"warn_before": -1, "warn_signal": "USR1"}, "warn_before=-1"),
        ({"warn_before": "soon", "warn_signal": "USR1"}, "a number of seconds"),
        ({"warn_before": 1, "warn_signal": "KILL"}, "can handle"),
        ({"warn_before": 1, "warn_signal": 19}, "can handle"),
        ({"warn_before": 1, "warn_signal": "SIGNOTHING"}, "can handle"),
        ({"warn_before": 1, "warn_signal": 64}, "can handle"),
    ],
)
def test_what_is_no_notice_is_refused(given: dict[str, Any], word: str) -> None:
    with pytest.raises(sandtimer.errors.InvalidLimitError, match=word):
        sandtimer.Sandbox(timeout=5.0, **given)
