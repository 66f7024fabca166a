"""The interface of py-adtools, and each of the failures of its version 0.3.8 that this one must not have.

`test_defect_NN_…` is the failure of that number: see the docstring of each.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import pytest
import sandtimer
import subjects
from sandtimer import adtools
from sandtimer.adtools import (
    ExecutionResults,
    PyEvaluator,
    PyEvaluatorRay,
    SandboxExecutor,
    SandboxExecutorRay,
    auto_server,
    sandbox_run,
)
from subjects import Evaluator, Slow, Worker

HERE = os.getpid()
TIMEOUT = "Evaluation timeout."
LONG = 60.0


def do(code: str, timeout: Any = LONG, devnull: bool = False, **parameters: Any) -> ExecutionResults:
    executor = SandboxExecutor(Worker(), **parameters)
    return executor.secure_execute("do", [code], timeout_seconds=timeout, redirect_to_devnull=devnull)


@contextlib.contextmanager
def sooner_than(seconds: float) -> Iterator[None]:
    """Far from what it takes, and far from what it would take."""
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def processes_with(mark: str) -> list[str]:
    found = []
    for each in pathlib.Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (each / "cmdline").read_bytes().split(b"\0"):
                    found.append(each.name)
    return found


def until(condition: Any, seconds: float = 30.0) -> bool:
    """Looks again and again, for so long at most."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def script(source: str, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-c", textwrap.dedent(source), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


# What the interface promises


def test_the_examples_of_the_documentation_run() -> None:
    for each in (SandboxExecutor, sandbox_run, PyEvaluator):
        tests = doctest.DocTestFinder(recurse=False).find(each, each.__name__, globs={})
        failed, tried = doctest.DocTestRunner().run(tests[0])
        assert tried >= 3 and failed == 0


def test_names_parameters_and_defaults_are_those_of_the_interface() -> None:
    def defaults(function: Any) -> dict[str, Any]:
        return {
            name: each.default
            for name, each in inspect.signature(function).parameters.items()
            if each.kind is not each.VAR_KEYWORD
        }

    empty = inspect.Parameter.empty
    execute = {
        "worker_execute_method_name": empty,
        "method_args": None,
        "method_kwargs": None,
        "timeout_seconds": None,
        "redirect_to_devnull": False,
    }
    rotation = {"ray_rotation_max_bytes": 50 * 1024 * 1024, "ray_rotation_backup_count": 1}
    process = {"evaluate_worker": empty, "recur_kill_eval_proc": False, "debug_mode": False, "join_timeout_seconds": 10}
    ours = {"find_and_kill_children_evaluation_process": None, "trust": "data", "results": ()}
    assert defaults(SandboxExecutor) == {**process, **ours}
    assert list(defaults(SandboxExecutor))[:4] == list(process)
    assert defaults(SandboxExecutorRay) == {
        "evaluate_worker": empty,
        "init_ray": True,
        "debug_mode": False,
        **rotation,
    }
    assert list(defaults(SandboxExecutor.secure_execute).items())[1:] == list(execute.items())
    assert list(defaults(SandboxExecutorRay.secure_execute).items())[1:] == [*execute.items(), ("ray_actor_options", None)]
    assert list(defaults(sandbox_run).items()) == [
        ("sandbox_type", "process"),
        ("timeout", None),
        ("redirect_to_devnull", False),
        ("ray_actor_options", None),
        ("return_raw_result", True),
    ]
    assert list(defaults(PyEvaluator).items()) == [
        ("exec_code", True),
        ("find_and_kill_children_evaluation_process", False),
        ("debug_mode", False),
        ("join_timeout_seconds", 10),
    ]
    assert list(defaults(PyEvaluatorRay).items()) == [
        ("init_ray", True),
        ("exec_code", True),
        ("debug_mode", False),
        *rotation.items(),
    ]
    assert set(adtools.__all__) >= {"SandboxExecutor", "ExecutionResults", "SandboxExecutorRay", "sandbox_run"}


def test_results_are_plain_dictionaries() -> None:
    worker = Worker()
    results = SandboxExecutor(worker).secure_execute("add", [2], {"b": 5}, timeout_seconds=LONG)
    assert type(results) is dict
    assert (results["result"], results["error_msg"]) == (7, "")
    assert isinstance(results["evaluate_time"], float) and 0 < results["evaluate_time"] < LONG
    assert worker.calls == 0
    assert SandboxExecutor(worker).secure_execute("add", (2,))["result"] == 3
    assert set(results) == set(ExecutionResults.__annotations__)


def test_settings_are_public_under_both_names() -> None:
    worker = Worker()
    executor = SandboxExecutor(worker, True, False, join_timeout_seconds=3)
    assert (executor.evaluate_worker, executor.recur_kill_eval_proc, executor.debug_mode) == (worker, True, False)
    assert executor.join_timeout_seconds == 3
    other = SandboxExecutor(worker, find_and_kill_children_evaluation_process=True)
    assert other.recur_kill_eval_proc is other.find_and_kill_children_evaluation_process is True


def test_a_timeout_is_said_in_exactly_these_words() -> None:
    executor = SandboxExecutor(Worker())
    results = executor.secure_execute("spin", timeout_seconds=0.3)
    assert (results["result"], results["error_msg"]) == (None, TIMEOUT)
    assert 0.3 <= results["evaluate_time"] < 20
    none = executor.secure_execute("add", [1], timeout_seconds=0)
    assert (none["result"], none["error_msg"]) == (None, TIMEOUT)


def test_a_limit_of_another_kind_is_not_said_to_be_the_timeout() -> None:
    results = SandboxExecutor(Worker(), cpu=0.2).secure_execute("spin", timeout_seconds=LONG)
    assert results["result"] is None
    assert "cpu" in results["error_msg"] and results["error_msg"] != TIMEOUT


def test_an_exception_is_its_traceback() -> None:
    results = do("def lose():\n    raise KeyError('no move')\nlose()")
    assert results["result"] is None
    assert results["error_msg"].startswith("Traceback (most recent call last):")
    assert "in lose" in results["error_msg"] and "KeyError: 'no move'" in results["error_msg"]
    own = do("class Lost(Exception): pass\nraise Lost('no move')")
    assert "Traceback" in own["error_msg"] and "Lost: no move" in own["error_msg"]
    assert "SystemExit: 3" in do("raise SystemExit(3)")["error_msg"]


def test_output_is_printed_or_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    speak = "import sys; print('said'); print('complained', file=sys.stderr)"
    assert do(speak)["error_msg"] == ""
    assert capsys.readouterr() == ("said\n", "complained\n")
    assert do(speak, devnull=True)["error_msg"] == ""
    assert capsys.readouterr() == ("", "")


def test_debug_mode_prints_why(capsys: pytest.CaptureFixture[str]) -> None:
    do("1 / 0", debug_mode=True)
    assert "ZeroDivisionError" in capsys.readouterr().out
    do("1 / 0")
    assert capsys.readouterr().out == ""


def test_results_obey_trust() -> None:
    make = "import subjects; result = subjects.Reports(3)"
    refused = do(make)
    assert refused["result"] is None
    assert "subjects.Reports" in refused["error_msg"]
    assert "results=" in refused["error_msg"] and 'trust="pickle"' in refused["error_msg"]
    assert do(make, results=[subjects.Reports])["result"].score == 3
    assert do(make, trust="pickle")["result"].score == 3


def test_what_cannot_be_pickled_is_said_and_not_raised() -> None:
    class Stubborn(Worker):
        def __getstate__(self) -> Any:
            raise RuntimeError("not me")

    lock = threading.Lock()

    @sandbox_run(timeout=LONG, return_raw_result=False)
    def hold() -> Any:
        return lock.locked()

    @sandbox_run(timeout=LONG)
    def give(x: Any) -> Any:
        return x

    for results, called, part, why in (
        (SandboxExecutor(Stubborn()).secure_execute("add", [1]), "Stubborn.add", "its worker, of type", "not me"),
        (SandboxExecutor(Worker()).secure_execute("add", [lock]), "Worker.add", "argument 0, of type lock", "cannot pickle"),
        (SandboxExecutor(Worker()).secure_execute("add", [1], {"n": lock}), "Worker.add", "argument n, of type lock", "lock"),
        (hold(), "<locals>.hold", "its function cannot", "lock"),
    ):
        assert results["result"] is None and results["evaluate_time"] < LONG
        said = results["error_msg"]
        assert f"{called} cannot be sent" in said and part in said and why in said, said
        assert "methodcaller" not in said and "__getstate__" in said and 'start="fork"' in said
    assert give(lock) is None


def test_what_keeps_a_call_from_beginning_raises() -> None:
    with pytest.raises(sandtimer.ProfileRefusedError):
        SandboxExecutor(Worker(), preload=["no_such_module"]).secure_execute("add", [1])
    for bad in (-1, float("nan"), True, "2s"):
        with pytest.raises(sandtimer.InvalidLimitError, match="timeout"):
            SandboxExecutor(Worker()).secure_execute("add", [1], timeout_seconds=bad)  # type: ignore[arg-type]
    for name in ("timeout", "stdout"):
        with pytest.raises(TypeError, match="secure_execute"):
            SandboxExecutor(Worker(), **{name: 1})
    with pytest.raises(TypeError, match="no_such"):
        SandboxExecutor(Worker(), no_such=1)
    assert SandboxExecutor(Worker()).secure_execute("add", [1])["result"] == 2


def test_no_engine_is_started_for_a_call() -> None:
    def engines() -> set[str]:
        """The lock files that are held: each engine has one."""
        held = set()
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                held.add(os.path.basename(os.readlink(f"/proc/self/fd/{number}")))
        return {name for name in held if name.startswith("engine-") and name.endswith(".lock")}

    do("result = 1")
    before, threads, tasks = engines(), threading.active_count(), len(os.listdir("/proc/self/task"))
    for _ in range(20):
        assert do("result = 1")["result"] == 1
    # Those of other tests may go meanwhile, and threads of the engine's come and go.
    assert before and engines() <= before and threading.active_count() <= threads
    assert len(os.listdir("/proc/self/task")) < tasks + 10


def test_decorated_functions_and_methods_run_elsewhere() -> None:
    agent = subjects.Agent()
    assert agent.where() != HERE
    assert agent.depth(30) == 30

    @sandbox_run(timeout=0.3, return_raw_result=False)
    def spin() -> None:
        while True:
            pass

    @sandbox_run(timeout=LONG)
    def fail() -> None:
        raise ValueError("raw results have no place for this")

    assert spin()["error_msg"] == TIMEOUT
    assert fail() is None
    inner = subjects.halve(11)
    # Of the outer call the result is that of the inner one, and so on.
    while isinstance(inner, dict):
        inner = inner["result"]
    assert inner == 0.5
    with pytest.raises(ValueError, match="sandbox_type"):
        sandbox_run("thread")  # type: ignore[arg-type]


def test_a_decorated_async_function_is_awaited() -> None:
    import asyncio

    @sandbox_run(timeout=LONG)
    async def later(x: int) -> list[int]:
        return [x + 1, os.getpid()]

    value, process = asyncio.run(later(2))
    assert (value, process != HERE) == (3, True)


# Evaluators


PROGRAM = "import math\nclass Board: pass\ndef helper(x): return x * 2\ndef play(start=1): return helper(start) + 1\n"


def test_an_evaluator_gets_functions_and_classes() -> None:
    evaluator = Evaluator()
    names, classes, value, process = evaluator.secure_evaluate(PROGRAM, timeout_seconds=LONG, start=20)["result"]
    assert (names, classes, value) == (["helper", "play"], ["Board"], 41)
    assert process != HERE
    assert evaluator.evaluate(PROGRAM)["result"][2:] == [3, HERE]
    assert "ZeroDivisionError" in evaluator.evaluate("1 / 0")["error_msg"]
    assert "SyntaxError" in evaluator.secure_evaluate("def play(:")["error_msg"]
    assert evaluator.sandbox_executor.evaluate_worker is evaluator


def test_an_evaluator_of_scripts_gets_the_text_alone() -> None:
    class Script(PyEvaluator):
        def evaluate_program(self, program_str: str, *given: Any, **kwargs: Any) -> Any:
            return [program_str, *given]

    evaluator = Script(exec_code=False, recur_kill_eval_proc=True)
    assert evaluator.secure_evaluate("1 / 0")["result"] == ["1 / 0", None, None, None, None]
    assert evaluator.sandbox_executor.recur_kill_eval_proc is True


def test_a_program_that_breaks_modules_breaks_its_own_alone() -> None:
    evaluator = Evaluator()
    broken = evaluator.secure_evaluate("import sys\nsys.modules['os'] = None\ndef play(): return 1", timeout_seconds=LONG)
    assert "os" in sys.modules and sys.modules["os"] is os
    assert broken["result"][2] == 1 or broken["error_msg"]
    assert evaluator.secure_evaluate(PROGRAM, timeout_seconds=LONG)["result"][2] == 3


# The failures


def test_defect_01_calls_from_many_threads_have_no_false_timeouts() -> None:
    """A lock copied while another thread held it: 1.5 % of calls from 4 threads, 3.75 % from 8, timed out."""
    executor = SandboxExecutor(Worker())
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: executor.secure_execute("add", [n], timeout_seconds=LONG), range(240)))
    assert [each["error_msg"] for each in results if each["error_msg"]] == []
    assert [each["result"] for each in results] == [n + 1 for n in range(240)]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os._exit(0)", "NoResultError"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("import os; os.abort()", "SIGABRT"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_defect_02_a_call_that_dies_is_said_at_once(code: str, said: str) -> None:
    """Whatever ended the child, the caller slept through the whole timeout, and then said that it was one."""
    with sooner_than(LONG / 2):
        results = do(code)
    assert results["result"] is None
    assert results["error_msg"] not in ("", TIMEOUT)
    assert said in results["error_msg"]


def test_defect_02_out_of_memory_is_said_at_once() -> None:
    with sooner_than(LONG / 2):
        results = do("result = len(b'x' * (512 << 20))", memory="64MB")
    assert results["result"] is None
    assert "emory" in results["error_msg"] and results["error_msg"] != TIMEOUT


def test_defect_02_a_missing_method_is_said_at_once() -> None:
    with sooner_than(LONG / 2):
        results = SandboxExecutor(Worker()).secure_execute("no_such_method", timeout_seconds=LONG)
    assert results["result"] is None
    assert "no attribute 'no_such_method'" in results["error_msg"]


@pytest.mark.parametrize("devnull", [False, True])
def test_defect_02_stdout_need_not_be_a_file(devnull: bool) -> None:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), sooner_than(LONG / 2):
        results = do("print('said'); result = 1", devnull=devnull)
    assert (results["result"], results["error_msg"]) == (1, "")
    assert stream.getvalue() == ("" if devnull else "said\n")


def test_defect_03_ignoring_sigterm_gains_no_time() -> None:
    """It returned `join_timeout_seconds` late: 10 s."""
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass"
    with sooner_than(8):
        assert do(ignore, timeout=0.3)["error_msg"] == TIMEOUT


@pytest.mark.parametrize("recur", [False, True])
@pytest.mark.parametrize("end", ["while True: pass", "result = 1"])
def test_defect_04_nothing_a_call_started_survives_it(recur: bool, end: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Children survived; with the flag, those did that ignore SIGTERM, daemons, and whatever was started late."""
    mark = f"{100_000 + HERE}.{time.monotonic_ns()}"
    code = f"""
        import os, signal, subprocess, sys
        ignore = lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "{mark}"], preexec_fn=ignore)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                subprocess.Popen(["sleep", "{mark}"], start_new_session=True)
            os._exit(0)
        os.wait()
        print("started", flush=True)
        {end}
    """
    results = do(code, timeout=1.0 if end.startswith("while") else LONG, recur_kill_eval_proc=recur)
    assert capsys.readouterr().out == "started\n"
    assert results["error_msg"] == (TIMEOUT if end.startswith("while") else "")
    assert until(lambda: not processes_with(mark), 5)


def test_defect_05_a_decorated_class_method_does_not_disarm_its_class() -> None:
    """It set a flag on the class, and every later call of any instance ran in the caller's own process."""
    for name in ("where_of_class", "where_of_class_above"):
        kind, process = getattr(subjects.Agent, name)()
        assert (kind, process != HERE) == ("Agent", True)
        assert subjects.Agent().where() != HERE
        assert getattr(subjects.Agent, name)()[1] != HERE
    assert not hasattr(subjects.Agent, "_bypass_sandbox")


def test_defect_06_a_decorated_static_method_works() -> None:
    """Its first argument was taken for `self`."""
    for name in ("where_of_none", "where_of_none_below"):
        for thing in (subjects.Agent, subjects.Agent()):
            value, process = getattr(thing, name)(7)
            assert (value, process != HERE) == (7, True)


def test_defect_07_a_result_runs_nothing_in_the_caller(tmp_path: pathlib.Path) -> None:
    """`pickle.loads` of a result with `__reduce__` ran whatever it named, in the caller."""
    mark = tmp_path / "ran"
    code = f"""
        import os
        class Result:
            def __reduce__(self):
                return os.system, ("touch {mark}",)
        result = [Result()]
    """
    results = do(code)
    assert results["result"] is None
    assert "system" in results["error_msg"]
    assert not mark.exists()
    # The same result does run it where pickles are trusted: the refusal above is of something that works.
    do(code, trust="pickle")
    assert mark.exists()


def test_defect_08_a_program_finds_no_queue_to_put_a_result_into() -> None:
    """A program walked the frames to the evaluator's queue and shared memory, and posted a score: there is neither here.

    The next test has what it can do all the same.
    """
    forge = """
        import gc, sys, types
        def play():
            seen, frame = set(), sys._getframe()
            while frame is not None:
                seen |= set(frame.f_locals)
                frame = frame.f_back
            queues = [each for each in gc.get_objects() if type(each).__name__ in ("Queue", "SimpleQueue", "Connection")]
            return sorted(seen & {"meta_queue", "shm_name_id", "queue", "evaluate_worker"}), len(queues)
    """
    results = Evaluator().secure_evaluate(textwrap.dedent(forge), timeout_seconds=LONG)
    assert results["error_msg"] == ""
    assert results["result"][2] == ([], 0)


def test_defect_08_what_a_program_answers_itself_is_its_own_call_and_plain_data(tmp_path: pathlib.Path) -> None:
    """It shares a process with its evaluator, so it can forge its own score, as the package's documentation says.

    But with plain data, in its own call, and nothing else; and what `Sandbox.judge` expects it cannot reach.
    """
    mark = tmp_path / "ran"
    forge = f"""
        import os, pickle, signal, stat, struct
        class Bad:
            def __reduce__(self):
                return os.system, ("touch {mark}",)
        def answer(data):
            packet = b"A" + bytes([0, 0, 0]) + struct.pack("<IQ", 0, len(data)) + data
            for number in range(3, 100):
                try:
                    if stat.S_ISSOCK(os.fstat(number).st_mode):
                        os.write(number, packet)
                except OSError:
                    pass
            signal.pause()
        def play(bad):
            answer(pickle.dumps(Bad() if bad else [[], [], 10**6, 2], 5))
    """
    evaluator = Evaluator()
    forge = textwrap.dedent(forge)

    def forged(_: int) -> Any:
        return evaluator.secure_evaluate(forge, timeout_seconds=LONG, bad=True)

    def honest(start: int) -> Any:
        return evaluator.secure_evaluate(PROGRAM, timeout_seconds=LONG, start=start)["result"][2]

    with ThreadPoolExecutor(4) as pool:
        bad = [pool.submit(forged, n) for n in range(10)]
        good = [pool.submit(honest, n) for n in range(10)]
        assert [each.result() for each in good] == [2 * n + 1 for n in range(10)]
        # What is refused is the forged answer: it did arrive.
        assert all(each.result()["result"] is None and "system" in each.result()["error_msg"] for each in bad)
    assert not mark.exists()
    assert evaluator.secure_evaluate(forge, timeout_seconds=LONG, bad=False)["result"] == [[], [], 10**6, 2]
    with sandtimer.Sandbox(timeout=LONG) as box:
        assert box.judge(forge, [([False], 2)], entry="play").verdicts == ["wrong_answer"]


def test_defect_09_large_results_need_no_shared_memory() -> None:
    """With /dev/shm of 64 MB, 100 MB of result were SIGBUS, said to be a timeout after the whole limit."""
    source = """
        import os
        from sandtimer.adtools import SandboxExecutor
        class Worker:
            def large(self):
                return b"x" * (100 << 20)
        shm = os.statvfs("/dev/shm")
        results = SandboxExecutor(Worker()).secure_execute("large", timeout_seconds=60)
        print(shm.f_blocks * shm.f_frsize >> 20, len(results["result"] or b"") >> 20, results["error_msg"])
    """
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    small = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=16m none /dev/shm && exec "$@"', "sh")
    done = script(source, before=small)
    assert done.stdout == "16 100 \n", done.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_defect_10_the_start_method_of_multiprocessing_does_not_matter(method: str) -> None:
    """Under "spawn" a decorated function could not be pickled, which was said as an AttributeError of None."""
    source = """
        import multiprocessing, os, sys
        from sandtimer.adtools import sandbox_run
        @sandbox_run(timeout=60)
        def where(n):
            return [n, os.getpid()] if n == 0 else where(n - 1)
        if __name__ == "__main__":
            multiprocessing.set_start_method(sys.argv[1])
            n, process = where(3)
            print(n, process != os.getpid())
    """
    assert script(source, method).stdout == "0 True\n"


def test_defect_11_ctrl_c_is_raised_here() -> None:
    """It was swallowed, and came back as a result."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    executor = SandboxExecutor(Worker())
    assert executor.secure_execute("add", [1])["result"] == 2
    timer = threading.Timer(0.5, os.kill, (HERE, signal.SIGINT))
    try:
        with sooner_than(LONG / 2), pytest.raises(KeyboardInterrupt):
            timer.start()
            executor.secure_execute("spin", timeout_seconds=LONG)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert executor.secure_execute("add", [1])["result"] == 2


def test_defect_12_a_call_dies_with_its_caller() -> None:
    """The child of a caller that was killed went on for ever."""
    mark = f"{200_000 + HERE}.{time.monotonic_ns()}"
    source = """
        import sys
        from sandtimer.adtools import SandboxExecutor
        class Worker:
            def work(self, mark):
                import subprocess
                subprocess.Popen(["sleep", mark], start_new_session=True)
                while True:
                    pass
        SandboxExecutor(Worker()).secure_execute("work", [sys.argv[1] + "9"])
    """
    caller = subprocess.Popen([sys.executable, "-c", textwrap.dedent(source), mark])
    try:
        assert until(lambda: processes_with(mark + "9")), "the call did not begin"
    finally:
        caller.kill()
        caller.wait()
    assert until(lambda: not processes_with(mark + "9"), 10)


def test_defect_13_flags_of_either_type_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """`init_ray=False` was given twice, and the flags of processes were refused with Ray."""
    both = {"init_ray": False, "recur_kill_eval_proc": True, "join_timeout_seconds": 1, "debug_mode": False}

    def where() -> int:
        return os.getpid()

    assert sandbox_run("process", timeout=LONG, **both)(where)() != HERE
    started: list[Any] = []
    ray: Any = types.ModuleType("ray")
    ray.is_initialized = lambda: True
    ours: Any = types.ModuleType("sandtimer.ray")
    ours.initialize = lambda *settings: started.append(settings)
    ours.sandbox = lambda parameters, options: sandtimer.sandbox._shared.sandbox(parameters)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "sandtimer.ray", ours)
    assert sandbox_run("ray", timeout=LONG, ray_actor_options={"num_cpus": 1}, **both)(where)() != HERE
    assert started == [(False, 50 * 1024 * 1024, 1)]


def test_without_ray_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install sandtimer\[ray\]"):
        SandboxExecutorRay(Worker())


@contextlib.contextmanager
def served(evaluator: PyEvaluator, **settings: Any) -> Iterator[int]:
    with auto_server.Server(evaluator, port=0, **settings) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_defect_14_the_server_finds_the_timeout_of_a_class() -> None:
    """The names it looked for were one text with commas in it, so a loop ran for ever."""
    loop = "def play():\n    while True: pass"
    with served(Slow()) as port:
        results = auto_server.submit_code("127.0.0.1", port, loop, post_timeout_seconds=60)
        assert results["error_msg"] == TIMEOUT
        assert auto_server.submit_code("127.0.0.1", port, PROGRAM, timeout=LONG)["result"][2] == 3
    for field in ("timeout_seconds", "timeout", "_timeout_seconds", "_timeout"):
        assert auto_server.evaluator_timeout(type("Named", (), {field: 7})()) == 7
    assert auto_server.evaluator_timeout(Evaluator()) is None


def test_the_server_answers_what_it_cannot_use() -> None:
    import asyncio
    import urllib.error
    import urllib.request

    with served(Evaluator(), timeout=LONG) as port:
        assert asyncio.run(auto_server.submit_code_async("127.0.0.1", port, PROGRAM))["result"][2] == 3
        assert "code" in auto_server.submit_code("127.0.0.1", port, "")["error_msg"]
        assert "timeout" in auto_server.submit_code("127.0.0.1", port, PROGRAM, timeout=-1)["error_msg"]
        for kind, body, status in (("text/plain", b"{}", 415), ("application/json", b"{", 200)):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, {"Content-Type": kind})
            try:
                assert urllib.request.urlopen(request, timeout=30).status == status
            except urllib.error.HTTPError as error:
                with error:
                    assert error.code == status


def test_the_server_loads_the_one_evaluator_of_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "my_evaluator_file.py"
    file.write_text(
        "from sandtimer.adtools import PyEvaluator\n"
        "class Mine(PyEvaluator):\n"
        "    timeout_seconds = 60\n"
        "    def evaluate_program(self, program_str, functions, *rest, **kwargs):\n"
        "        return functions['play']()\n"
    )
    with served(auto_server.load(str(file))) as port:
        assert auto_server.submit_code("127.0.0.1", port, "def play(): return 41 + 1")["result"] == 42
    other = tmp_path / "none_in_here.py"
    other.write_text("x = 1\n")
    with pytest.raises(ValueError, match="one public class"):
        auto_server.load(str(other))
