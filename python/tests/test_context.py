"""Contexts, end to end: live interpreters whose state lasts, and lasts through what hostile code does to them."""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import signal
import subprocess
import sys
import threading
from typing import Any, Iterator

import pytest
import sandtimer
from test_fork import run_alone

# Code that does not hear the interrupt before its wall.
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
SWALLOW = "import time\nwhile True:\n    try:\n        while True: time.sleep(0.01)\n    except BaseException: pass\n"


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=30.0) as made:
        yield made


@pytest.fixture
def ctx(box: sandtimer.Sandbox) -> Iterator[sandtimer.Context]:
    with box.context("python") as opened:
        yield opened


def test_what_one_run_defines_the_next_one_sees(ctx: sandtimer.Context) -> None:
    first = ctx.run("import json\nx = [40]\ndef f(): return x[0] + 2\nprint('defined')")
    assert (first.ending, first.ok, first.state, first.value, first.stdout) == ("returned", True, "kept", None, "defined\n")
    second = ctx.run("json.dumps(f())")
    assert (second.value, second.results, second.execution_count) == ("42", [{"application/json": "42", "text/plain": "'42'"}], 2)
    assert (second.tree.survivors, second.error, second.usage.wall_ms < 30_000) == (0, None, True)


def test_contexts_share_nothing(box: sandtimer.Sandbox, ctx: sandtimer.Context) -> None:
    ctx.run("x = 1; open('mine', 'w').close()")
    with box.context() as other:
        outcome = other.run("import os; os.listdir('.'), 'x' in globals()")
        assert outcome.value == [[], False]


def test_a_timeout_costs_nothing_of_what_came_before(ctx: sandtimer.Context) -> None:
    ctx.run("x = [1]")
    outcome = ctx.run(f"x.append(2)\nprint('so far', flush=True)\n{SWALLOW}", timeout=0.5)
    assert (outcome.ending, outcome.state, outcome.stdout) == ("timeout", "rolled_back", "so far\n")
    assert isinstance(outcome.error, sandtimer.DeadlineExceeded)
    assert outcome.verdict is not None and (outcome.verdict.limit_ms, outcome.verdict.source) == (500, "call")
    assert (outcome.tree.survivors, ctx.run("x").value) == (0, [1])


def test_one_that_hears_the_interrupt_before_it_keeps_its_state(ctx: sandtimer.Context) -> None:
    outcome = ctx.run("x = 7\nimport time\ntime.sleep(60)", timeout=1.0)
    assert (outcome.ending, outcome.state) == ("timeout", "kept")
    assert "time.sleep(60)" in str(outcome.error.__cause__)
    assert ctx.run("x").value == 7


def test_limits_that_are_not_given_are_the_sandboxes() -> None:
    with sandtimer.Sandbox(timeout=0.4, output=8) as box, box.context() as ctx:
        outcome = ctx.run("print('0123456789abcdef', flush=True)\nwhile True: pass")
        assert outcome.verdict is not None and (outcome.verdict.limit_ms, outcome.verdict.source) == (400, "session")
        assert outcome.stdout_truncated
        # Not over after the sandbox's limit: explicitly unlimited.
        assert ctx.run("import time; time.sleep(0.8); 'done'", timeout=None).value == "done"
        assert ctx.run("while True: pass", timeout=None, cpu=0.2).verdict.kind == "cpu"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("import os; os._exit(0)", "no_result"),
        ("import ctypes; ctypes.string_at(0)", "signaled"),
        ("import os; os.kill(os.getpid(), 9)", "signaled"),
    ],
)
def test_an_interpreter_that_ends_goes_back_to_before(ctx: sandtimer.Context, code: str, ending: str) -> None:
    ctx.run("x = 7")
    outcome = ctx.run(f"x = 8\n{code}")
    assert (outcome.ending, outcome.state, type(outcome.error).__mro__[1:].count(sandtimer.SandtimerError)) == (ending, "rolled_back", 1)
    assert ctx.run("x").value == 7


def test_one_that_needs_too_much_memory_goes_back_to_before() -> None:
    with sandtimer.Sandbox(timeout=30.0, memory="200MB", processes=20) as box, box.context() as ctx:
        ctx.run("x = 7")
        outcome = ctx.run("x = bytearray(1 << 30)")
        assert (outcome.ending, outcome.state) == ("out_of_memory", "rolled_back")
        assert isinstance(outcome.error, MemoryError)
        assert outcome.verdict is not None and (outcome.verdict.limit, outcome.verdict.source) == (200 << 20, "session")
        assert ctx.run("x").value == 7


def test_the_last_run_can_be_undone(ctx: sandtimer.Context) -> None:
    assert not ctx.info.can_undo
    for code in ("x = 1", "x = 2"):
        ctx.run(code)
    assert ctx.info.can_undo
    assert ctx.undo()
    assert ctx.run("x").value == 1
    ctx.undo()
    assert not ctx.undo()


def test_code_reads_its_stdin(ctx: sandtimer.Context) -> None:
    assert ctx.run("[input(), input()]", stdin="één\ntwee\n").value == ["één", "twee"]
    assert ctx.run("import sys; sys.stdin.buffer.read().hex()", stdin=b"\xff\x00").value == "ff00"
    assert isinstance(ctx.run("input()").error, EOFError)


RICH = """
class Rich:
    def _repr_html_(self): return "<b>7</b>"
    def _repr_png_(self): return b"\\x89PNG"
    def __repr__(self): return "7"
"""


def test_what_is_displayed_is_in_the_results(ctx: sandtimer.Context) -> None:
    heard: list[dict[str, Any]] = []
    outcome = ctx.run(f"{RICH}display(Rich(), [1])\nRich()", on_display=heard.append)
    rich = {"text/plain": "7", "text/html": "<b>7</b>", "image/png": base64.b64encode(b"\x89PNG").decode()}
    listed = {"text/plain": "[1]", "application/json": [1]}
    assert (heard, outcome.results, outcome.value) == ([rich, listed], [rich, listed, rich], None)
    # What was displayed outlives the run's end by force, as its output does.
    assert ctx.run("display({'a': None})\nimport os; os._exit(1)").results == [{"text/plain": "{'a': None}", "application/json": {"a": None}}]
    assert outcome.to_dict()["results"] == outcome.results == pickle.loads(pickle.dumps(outcome)).results


@pytest.mark.parametrize("value", [7, 1.5, True, "é", [1, [None]], {"a": {"b": 2}}])
def test_plain_values_come_back(ctx: sandtimer.Context, value: Any) -> None:
    assert ctx.run(f"{value!r}").value == value


def test_values_that_json_cannot_hold_come_as_text(ctx: sandtimer.Context) -> None:
    for code, text in (("{1, }", "{1}"), ("float('inf')", "inf"), ("object", "<class 'object'>")):
        outcome = ctx.run(code)
        assert (outcome.value, outcome.results) == (None, [{"text/plain": text}])
    assert ctx.run("6 * 7;").results == []


def test_await_may_stand_in_code(ctx: sandtimer.Context) -> None:
    assert ctx.run("import asyncio\nawait asyncio.sleep(0)\nasync def f(): return 5").ok
    assert ctx.run("await f()").value == 5


def test_each_interrupt_is_heard(ctx: sandtimer.Context) -> None:
    code = """
import time
heard = []
try:
    display(1)
    time.sleep(60)
except KeyboardInterrupt:
    heard.append(1)
    display(2)
    time.sleep(60)
"""
    outcome = ctx.run(code, on_display=lambda _: ctx.interrupt())
    assert isinstance(outcome.error, KeyboardInterrupt)
    # What is awaited does not go on behind its interrupt.
    outcome = ctx.run("import asyncio\ndisplay(3)\nawait asyncio.sleep(60)", on_display=lambda _: ctx.interrupt())
    assert isinstance(outcome.error, KeyboardInterrupt)
    assert ctx.run("heard, len(asyncio.all_tasks(asyncio.get_event_loop_policy().get_event_loop()))").value == [[1], 0]


def test_exceptions_are_built_in_ones_or_remote_errors(ctx: sandtimer.Context) -> None:
    outcome = ctx.run("def f(): return {}['k']\nf()")
    assert (outcome.ending, outcome.state, outcome.ok, type(outcome.error), outcome.error.args) == (  # type: ignore[union-attr]
        "raised", "kept", False, KeyError, ("k",))  # fmt: skip
    assert "return {}['k']" in str(outcome.error.__cause__)  # type: ignore[union-attr]
    own = ctx.run("class Own(Exception): pass\nraise Own('mine')").error
    assert isinstance(own, sandtimer.RemoteError) and (own.type_name, own.message) == ("__main__.Own", "mine")
    assert isinstance(ctx.run("x = = 1").error, SyntaxError)
    assert isinstance(ctx.run("raise SystemExit(3)").error, SystemExit)


def test_a_result_past_its_limit_is_refused(box: sandtimer.Sandbox) -> None:
    with box.limits(result_bytes=200_000).context() as ctx:
        assert isinstance(ctx.run("x = 1\n'y' * 300_000").error, sandtimer.ResultTooLargeError)
        results = ctx.run("for _ in range(9): display('z' * 50_000)\nx").results
        # Each is there as text and as JSON, so one fits.
        assert len(results) == 3 and [len(each["text/plain"]) for each in results[:1]] == [50_002]
        assert "8 more were displayed" in results[1]["text/plain"] and results[2]["application/json"] == 1


def test_progress_bars_keep_no_checkpoint_away(ctx: sandtimer.Context) -> None:
    pytest.importorskip("tqdm")
    outcome = ctx.run("from tqdm import tqdm\nx = 0\nfor x in tqdm(range(3)): pass\nbar = tqdm(total=3)")
    assert outcome.ok and "3/3" in outcome.stderr
    assert ctx.info.checkpoint and ctx.info.can_undo
    assert ctx.run("for x in tqdm(range(9)): pass\nx").value == 8
    ctx.undo()
    assert ctx.run("x").value == 2


def test_threads_stand_in_the_way_of_a_checkpoint(ctx: sandtimer.Context) -> None:
    assert ctx.info == sandtimer.ContextInfo(0, 0, True, None, False, None)
    ctx.run("x = 1\nimport threading\ngo = threading.Event()\nthread = threading.Thread(target=go.wait)\nthread.start()")
    info = ctx.info
    assert not info.checkpoint and "1 other threads" in str(info.why_no_checkpoint)
    ctx.run("go.set()\nthread.join()")
    assert ctx.info.checkpoint
    ctx.run("go = threading.Event()\nthreading.Thread(target=go.wait, daemon=True).start()")
    outcome = ctx.run(f"{DEAF}{SWALLOW}", timeout=0.3)
    assert (outcome.ending, outcome.state, outcome.tree.survivors) == ("timeout", "reset", 0)
    assert isinstance(ctx.run("x").error, NameError)


def test_an_interpreter_lost_between_runs_is_said(ctx: sandtimer.Context) -> None:
    ctx.run("import os, subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 0.3; kill -9 %d' % os.getpid()])")
    # There is no checkpoint beside a child; there is one again when the interpreter was replaced.
    assert not ctx.info.checkpoint
    pause = threading.Event()
    for _ in range(1000):
        if ctx.info.checkpoint:
            break
        pause.wait(0.02)
    with pytest.warns(sandtimer.ContextLostError, match="started again"):
        assert ctx.run("'os' in globals()").value is False
    assert "the interpreter" in str(ctx.info.lost)


def test_what_children_and_the_system_print_is_captured(ctx: sandtimer.Context) -> None:
    outcome = ctx.run("import os, subprocess, sys\nos.system('echo one')\nsubprocess.run('echo two; echo three >&2', shell=True)\nprint('four');")
    assert (outcome.stdout, outcome.stderr) == ("one\ntwo\nfour\n", "three\n")


def test_a_thread_may_print_when_its_run_is_over(ctx: sandtimer.Context) -> None:
    first = ctx.run("""
import threading
over, said = threading.Event(), []
def speak():
    over.wait()
    for number in range(100):
        print("late", number, flush=True)
        said.append(number)
thread = threading.Thread(target=speak, daemon=True)
thread.start()
print("begun")
threading.Timer(0.1, over.set).start()
""")
    assert (first.ok, first.stdout) == (True, "begun\n")
    # It neither fails of that nor waits for ever.
    assert ctx.run("thread.join(20)\nlen(said)").value == 100
    assert ctx.run("print('on')").stdout == "on\n"


def test_output_is_called_back_while_the_code_runs(ctx: sandtimer.Context) -> None:
    heard: list[tuple[str, str]] = []

    def hear(text: str) -> None:
        heard.append(("out", text))
        if "ready" in text:
            # The code goes on only when it was heard.
            assert ctx.interrupt()

    code = "import sys, time\nprint('bad', file=sys.stderr)\nprint('ready', flush=True)\ntime.sleep(60)"
    outcome = ctx.run(code, on_stdout=hear, on_stderr=lambda text: heard.append(("err", text)))
    assert isinstance(outcome.error, KeyboardInterrupt) and outcome.state == "kept"
    assert sorted(heard) == [("err", "bad\n"), ("out", "ready\n")]


def test_called_back_text_is_decoded_across_pieces(ctx: sandtimer.Context) -> None:
    heard: list[str] = []
    code = r"import os, time; [(os.write(1, bytes([byte])), time.sleep(0.05)) for byte in b'\xe2\x82\xac\xff!\xe2']; None"
    assert ctx.run(code, on_stdout=heard.append).ok
    assert "".join(heard) == "€\ufffd!\ufffd"
    assert all(heard)
    big = ctx.run("print('é' * 200_000)", on_stdout=heard.append)
    assert "".join(heard).endswith("\ufffd" + big.stdout) and len(big.stdout) == 200_001


def test_what_a_callback_raises_ends_the_run_and_comes_out(ctx: sandtimer.Context) -> None:
    def refuse(_: Any) -> None:
        raise LookupError("enough")

    ctx.run("x = 1")
    for code, callbacks in (("print(1, flush=True)", {"on_stdout": refuse}), ("display(1)", {"on_display": refuse})):
        with pytest.raises(LookupError, match="enough"):
            ctx.run(f"x = 2\n{code}\n{SWALLOW}", timeout=None, **callbacks)  # type: ignore[arg-type]
        assert ctx.run("x").value == 1


def test_a_callback_cannot_wait_for_its_own_context(ctx: sandtimer.Context) -> None:
    for wait in (lambda _: ctx.run("1"), lambda _: ctx.undo()):
        with pytest.raises(sandtimer.SandboxUnavailableError, match="callback"):
            ctx.run("display(1)", on_display=wait)
    heard: list[int] = []
    ctx.run("display(1)", on_display=lambda _: heard.append(ctx.info.waiting))
    assert heard == [0]


def test_a_slow_callback_holds_back_the_code_and_not_its_end(ctx: sandtimer.Context) -> None:
    heard = []

    def close(shown: Any) -> None:
        heard.append(shown)
        ctx.close()

    outcome = ctx.run("while True: display('z' * 100_000)", timeout=None, on_display=close)
    assert outcome.ending == "cancelled" and heard
    with pytest.raises(sandtimer.SandboxUnavailableError, match="closed"):
        ctx.run("1")


def test_runs_from_many_threads_come_one_after_the_other(ctx: sandtimer.Context) -> None:
    ctx.run("order, on = [], 0")
    code = "on += 1\nassert on == 1\nimport time\ntime.sleep(0.02)\norder.append({})\non -= 1"
    outcomes: list[sandtimer.Outcome] = []
    threads = [threading.Thread(target=lambda number=number: outcomes.append(ctx.run(code.format(number)))) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [outcome.ok for outcome in outcomes] == [True] * 8
    assert sorted(ctx.run("order").value) == list(range(8))
    assert (ctx.info.executions, ctx.info.waiting) == (10, 0)


def test_others_run_while_one_waits(box: sandtimer.Sandbox, ctx: sandtimer.Context) -> None:
    # The interpreter's lock is given up: what this thread does lets the code end.
    began, outcomes = threading.Event(), []
    thread = threading.Thread(target=lambda: outcomes.append(ctx.run("display(1)\nimport time\ntime.sleep(60)", on_display=lambda _: began.set())))
    thread.start()
    assert began.wait(20)
    with box.context() as other:
        assert other.run("1").value == 1
    waiting = threading.Thread(target=lambda: outcomes.append(ctx.run("2")))
    waiting.start()
    while not ctx.info.waiting:
        pass
    assert ctx.interrupt()
    thread.join(60)
    waiting.join(60)
    assert [type(outcome.error) for outcome in outcomes] == [KeyboardInterrupt, type(None)]
    assert not ctx.interrupt()


def test_it_can_be_awaited(box: sandtimer.Sandbox) -> None:
    async def use() -> list[Any]:
        heard: list[Any] = []

        async def hear(text: str) -> None:
            await asyncio.sleep(0)
            heard.append(text)

        async with box.context() as ctx:
            await ctx.arun("order = []")
            running = [asyncio.create_task(ctx.arun(f"order.append({number}); {number}")) for number in range(5)]
            values = [outcome.value for outcome in await asyncio.gather(*running)]
            # In the order of asking.
            assert (await ctx.arun("order")).value == values
            shown = await ctx.arun("print('é', flush=True)\ndisplay(1)\n2", on_stdout=hear, on_display=heard.append)
            with pytest.raises(LookupError):
                await ctx.arun(f"x = 1; display(1)\n{SWALLOW}", timeout=None, on_display=lambda _: [].__getitem__(0))
            assert isinstance((await ctx.arun("x")).error, NameError)
        with pytest.raises(sandtimer.SandboxUnavailableError):
            await ctx.arun("1")
        # A text comes in pieces as it was written.
        text = "".join(said for said in heard if isinstance(said, str))
        return [*values, shown.value, text, *(said for said in heard if not isinstance(said, str))]

    assert asyncio.run(use()) == [0, 1, 2, 3, 4, 2, "é\n", {"application/json": 1, "text/plain": "1"}]


def test_cancelling_its_task_ends_the_run(ctx: sandtimer.Context) -> None:
    async def use() -> Any:
        await ctx.arun("x = 1")
        began = asyncio.Event()
        task = asyncio.create_task(ctx.arun(f"x = 2\ndisplay(1)\n{SWALLOW}", timeout=None, on_display=lambda _: began.set()))
        queued = asyncio.create_task(ctx.arun("x = 3"))
        await asyncio.wait_for(began.wait(), 20)
        queued.cancel()
        task.cancel()
        for cancelled in (task, queued):
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        return (await ctx.arun("x")).value

    assert asyncio.run(use()) == 1


CALLER = f"""
import sandtimer, signal

with sandtimer.Sandbox() as box, box.context() as ctx:
    ctx.run("x = 0")
    for number, code in enumerate(("x = 1\\nimport time\\nprint('ready', flush=True)\\ntime.sleep(600)",
                                   "x = 2\\nprint('ready', flush=True)\\n" + {SWALLOW!r})):
        try:
            ctx.run(code, on_stdout=lambda text: print(text, end="", flush=True))
        except KeyboardInterrupt:
            print("interrupted", ctx.run("x").value, ctx.info.executions, flush=True)
"""


def test_ctrl_c_interrupts_the_code_and_a_second_one_ends_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", CALLER], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        # It kept its state.
        assert process.stdout.readline() == "interrupted 1 3\n"
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        # It was ended by force, and went back.
        assert process.stdout.readline() == "interrupted 1 5\n"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_an_interrupt_while_it_waits_for_its_turn_leaves_the_code_undone() -> None:
    said = run_alone("""
        import os, signal, threading, time

        with sandtimer.Sandbox() as box, box.context() as ctx:
            began = threading.Event()
            first = threading.Thread(target=lambda: ctx.run("display(1); import time; time.sleep(600)", on_display=lambda _: began.set()))
            first.start()
            began.wait()

            def interrupt():
                while not ctx.info.waiting:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=interrupt).start()
            try:
                ctx.run("x = 1")
            except KeyboardInterrupt:
                print("interrupted", ctx.interrupt())
            first.join()
            print(type(ctx.run("x").error).__name__)
    """)
    assert said == "interrupted True\nNameError\n"


def test_what_another_handler_raises_ends_the_run() -> None:
    said = run_alone(f"""
        import signal

        class Late(Exception):
            pass

        def late(*_):
            raise Late

        with sandtimer.Sandbox() as box, box.context() as ctx:
            ctx.run("x = 1")
            signal.signal(signal.SIGALRM, late)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            try:
                ctx.run("x = 2\\n" + {SWALLOW!r})
            except Late:
                print("late", ctx.run("x").value)
    """)
    assert said == "late 1\n"


def test_in_a_forked_process_it_refuses_and_stays_alive() -> None:
    said = run_alone("""
        import gc, os, sys

        box = sandtimer.Sandbox(timeout=20.0)
        ctx = box.context()
        ctx.run("x = 7")
        for way in ("leave", "close", "exit"):
            pid = os.fork()
            if pid == 0:
                for use in (lambda: ctx.run("x"), ctx.undo, ctx.interrupt, lambda: ctx.info):
                    try:
                        use()
                    except sandtimer.SandboxUnavailableError as refusal:
                        assert "forked" in str(refusal)
                    else:
                        os._exit(1)
                if way == "close":
                    ctx.close()
                    with box.context() as own:
                        assert own.run("1").value == 1
                    box.close()
                if way != "exit":
                    del ctx
                    gc.collect()
                    os._exit(0)
                sys.exit(0)
            print(os.waitpid(pid, 0)[1], ctx.run("x").value, flush=True)
        box.close()
    """)
    assert said == "0 7\n" * 3


def test_a_sandbox_closes_its_contexts() -> None:
    box = sandtimer.Sandbox(timeout=30.0)
    first, second = box.context(), box.limits(timeout=5.0).context()
    assert [each.run("1").value for each in (first, second)] == [1, 1]
    box.close()
    for each in (first, second):
        with pytest.raises(sandtimer.SandboxUnavailableError, match="context is closed"):
            each.run("1")
        each.close()
    with pytest.raises(sandtimer.SandboxUnavailableError, match="sandbox is closed"):
        box.context()


def test_a_context_outlives_the_name_of_its_sandbox() -> None:
    ctx = sandtimer.Sandbox(timeout=30.0).context()
    outcome = ctx.run(f"import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n{DEAF}{SWALLOW}", timeout=0.5)
    assert (outcome.state, ctx.run("1").value) == ("rolled_back", 1)
    ctx.close()


def test_it_has_the_sandboxes_profile(box: sandtimer.Sandbox) -> None:
    with sandtimer.Sandbox(timeout=30.0, preload=["decimal"]) as other:
        with other.context(environment={"SHADE": "green"}, directory="/workspace/deep/er") as ctx:
            code = "import os, sys; 'decimal' in sys.modules, os.environ['SHADE'], os.getcwd(), sys.version"
            assert ctx.run(code).value == [True, "green", "/workspace/deep/er", sys.version]
            # After a loss too.
            ctx.run("os.kill(-1, 9)", timeout=5.0)
            assert ctx.run(code).value[1:3] == ["green", "/workspace/deep/er"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"language": "cobol"}, ValueError, '"python"'),
        ({"environment": ["A"]}, TypeError, "environment"),
        ({"environment": {"A": 1}}, TypeError, "environment"),
        ({"environment": {"A=B": "1"}}, ValueError, "environment"),
        ({"directory": 3}, TypeError, "directory"),
        ({"directory": ""}, ValueError, "directory"),
    ],
)
def test_wrong_parameters_are_named(box: sandtimer.Sandbox, arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        box.context(**arguments)


def test_a_directory_that_cannot_be_made_is_refused(box: sandtimer.Sandbox) -> None:
    with pytest.raises(sandtimer.SandboxUnavailableError, match="directory"):
        box.context(directory="/usr/not-there")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"code": b"1"}, TypeError, "code"),
        ({"code": "'\ud800'"}, ValueError, "code"),
        ({"code": "1", "stdin": 1}, TypeError, "stdin"),
        ({"code": "1", "timeout": -1}, sandtimer.InvalidLimitError, "timeout"),
        ({"code": "1", "cpu": "fast"}, sandtimer.InvalidLimitError, "cpu"),
        ({"code": "1", "on_stdout": 1}, TypeError, "on_stdout"),
    ],
)
def test_wrong_parameters_of_a_run_are_named(
    ctx: sandtimer.Context, arguments: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ctx.run(**arguments)
    with pytest.raises(error, match=words):
        asyncio.run(ctx.arun(**arguments))
    assert ctx.info.executions == 0


def test_a_context_is_not_copied_to_elsewhere(ctx: sandtimer.Context) -> None:
    with pytest.raises(TypeError, match="process"):
        pickle.dumps(ctx)


def test_runs_leave_nothing_in_the_caller() -> None:
    """In a process of its own: interpreters that are laid in for others have descriptors too, about twenty each."""
    said = run_alone("""
        import asyncio, os, threading

        def use(count):
            for _ in range(count):
                ctx.run("1", on_stdout=print)
                asyncio.run(ctx.arun("1"))
            return len(os.listdir("/proc/self/fd")), threading.active_count()

        with sandtimer.Sandbox(timeout=30.0) as box, box.context("python") as ctx:
            before = use(10)
            after = use(100)
            print(after[0] - before[0], after[1] - before[1])
    """)
    files, threads = map(int, said.split())
    # What the engine has open for a moment may be among them, and is of no run.
    assert files < 50 and threads <= 0, said


def test_runs_have_a_proof_of_what_they_left(ctx: sandtimer.Context) -> None:
    # Checkpoints that are no longer needed die beside them.
    assert {ctx.run("1").tree.survivors for _ in range(40)} == {0}
    left = ctx.run("import subprocess; child = subprocess.Popen(['sleep', '600'])")
    assert (left.ok, left.tree.survivors) == (True, None)
