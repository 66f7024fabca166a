"""`start="fork"`, in processes of its own: a test runner has threads and libraries that forking is refused beside."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Mapping, Optional

import pytest


def run_alone(code: str, environment: Optional[Mapping[str, str]] = None) -> str:
    program = "import sandtimer\n" + textwrap.dedent(code)
    added = {**os.environ, **(environment or {})}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=added)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fork_sees_live_objects() -> None:
    said = run_alone("""
        import threading

        class Game:
            def __init__(self):
                self.lock, self.moves = threading.Lock(), 3

            def play(self):
                self.moves += 1
                print("played")
                return self.moves

        game = Game()
        with sandtimer.Sandbox(timeout=20.0, start="fork") as box:
            outcome = box.run(game.play)
            print(outcome.ending, outcome.value, outcome.stdout.strip(), outcome.path, outcome.tree.survivors, game.moves)
            print([each["layer"] for each in outcome.isolation.degraded if each["layer"] == "memory"])
            print(box.limits(timeout=0.2).run(lambda: exec("while True: pass")).ending)
            print(type(box.run(lambda: game.missing).error).__name__)
    """)
    assert said == "returned 4 played fork 0 3\n['memory']\ntimeout\nAttributeError\n"


def test_a_fork_has_the_modules_of_its_caller_and_preloads_none() -> None:
    said = run_alone("""
        import colorsys, sys

        try:
            sandtimer.Sandbox(start="fork", preload=["colorsys"])
        except ValueError as refusal:
            print("preload" in str(refusal), "colorsys" in str(refusal), "import them here" in str(refusal))
        try:
            sandtimer.sandboxed(start="fork", preload=["colorsys"])
        except ValueError as refusal:
            print("preload" in str(refusal))
        with sandtimer.Sandbox(timeout=20.0, start="fork", preload=()) as box:
            print(box.call(lambda: "colorsys" in sys.modules))

        @sandtimer.sandboxed(timeout=20.0, start="fork")
        def seven():
            return 7

        print(seven())
    """)
    assert said == "True True True\nTrue\nTrue\n7\n"


def test_a_fork_beside_threads_is_refused_with_the_reason() -> None:
    said = run_alone("""
        import threading

        go = threading.Event()
        thread = threading.Thread(target=go.wait, name="other")
        thread.start()
        with sandtimer.Sandbox(start="fork") as box:
            try:
                box.call(abs, -1)
            except sandtimer.SandboxUnavailableError as refusal:
                print("other" in str(refusal), "force" in str(refusal))
        with sandtimer.Sandbox(start="fork", force=True) as box:
            print(box.call(abs, -1))
        go.set()
        thread.join()
    """)
    assert said == "True True\n1\n"


def test_a_fork_is_possible_behind_a_progress_bar() -> None:
    said = run_alone("""
        import tqdm.auto

        with sandtimer.Sandbox(timeout=20.0) as box:
            print([outcome.value for outcome in box.map(abs, [-1, -2], progress=True)])
        with sandtimer.Sandbox(timeout=20.0, start="fork") as box:
            print(box.call(abs, -3))
            for _ in tqdm.auto.tqdm([1]):
                pass
            try:
                box.call(abs, -4)
            except sandtimer.SandboxUnavailableError as refusal:
                print("tqdm.tqdm.monitor_interval = 0" in str(refusal))
    """)
    assert said == "[1, 2]\n3\nTrue\n"


def test_threads_of_a_library_that_computes_are_named_with_the_remedy() -> None:
    pytest.importorskip("numpy")
    call = """
        import os

        os.environ.update({settings})
        import numpy

        with sandtimer.Sandbox(timeout=20.0, start="fork") as box:
            try:
                print(box.call(lambda: int(numpy.ones(3).sum())))
            except sandtimer.SandboxUnavailableError as refusal:
                print(refusal)
    """
    assert run_alone(call.format(settings={"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})) == "3\n"
    said = run_alone(call.format(settings={}))
    if said == "3\n":
        pytest.skip("numpy starts no threads here")
    assert "native thread" in said and "set before what loads it" in said
    assert "OPENBLAS_NUM_THREADS=1" in said or "MKL_NUM_THREADS=1" in said
    assert "force=True" in said and 'start="zygote"' in said


def test_threads_of_cuda_are_told_from_others_by_their_names() -> None:
    said = run_alone("""
        import ctypes
        library = ctypes.CDLL(None)
        thread = ctypes.c_ulong()
        library.pthread_create(ctypes.byref(thread), None, library.pause, None)
        for name in (b"cuda_train.py", b"cuda-EvtHandlr", b"cuda00001400006"):
            library.pthread_setname_np(thread, name)
            with sandtimer.Sandbox(timeout=20.0, start="fork") as box:
                try:
                    box.call(abs, -3)
                except sandtimer.SandboxUnavailableError as error:
                    print(error)
    """).splitlines()
    assert "1 native thread runs (cuda_train.py, " in said[0] and "CUDA" not in said[0]
    for refused in said[1:3]:
        assert 'start="fork" is refused: CUDA is in use, and a forked process cannot use it' in refused


def test_a_worker_that_was_forked_has_an_engine_of_its_own() -> None:
    said = run_alone("""
        import os

        box = sandtimer.Sandbox(timeout=20.0)
        print(box.call(abs, -1), flush=True)
        for worker in range(2):
            pid = os.fork()
            if pid == 0:
                print(box.call(abs, -2), [outcome.value for outcome in box.map(abs, [-3, -4])], flush=True)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        print(box.call(abs, -5))
        box.close()
    """)
    assert said == "1\n2 [3, 4]\n2 [3, 4]\n5\n"


def test_a_worker_that_leaves_in_good_order_takes_nothing_along() -> None:
    said = run_alone("""
        import os, sys

        box = sandtimer.Sandbox(timeout=20.0, start="spawn")
        print(box.call(abs, -1), flush=True)
        for worker in range(3):
            pid = os.fork()
            if pid == 0:
                # The interpreter is finalised: everything of the engine's that was copied is dropped.
                sys.exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        print([box.call(abs, -each) for each in range(4)])
        box.close()
    """)
    assert said == "1\n[0, 1, 2, 3]\n"


def test_a_lock_that_another_thread_holds_is_free_in_a_forked_process() -> None:
    said = run_alone("""
        import contextlib, importlib, operator, os, pkgutil, threading
        from sandtimer._locks import Guard

        for module in pkgutil.walk_packages(sandtimer.__path__, "sandtimer."):
            # Ray need not be there.
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)

        def locks():
            import sys

            modules = [each for name, each in sys.modules.items() if name.split(".")[0] == "sandtimer"]
            kinds = (type(threading.Lock()), type(threading.RLock()))
            found = []
            for module in modules:
                for name, it in vars(module).items():
                    name += ".lock" if isinstance(it, Guard) else ""
                    if isinstance(it, (Guard, *kinds)):
                        found.append((module.__name__, name))
            return found

        def lock(module, name):
            return operator.attrgetter(name)(importlib.import_module(module))

        # As a sandbox has one too.
        sandtimer._of_a_pool = sandtimer.Sandbox()._pool.guard
        names = locks()
        # What the walk found was worth it.
        known = ("sandbox._job._registering", "sandbox._fork._guard", "_native._guard", "_of_a_pool")
        assert {f"sandtimer.{each}.lock" for each in known} <= {".".join(each) for each in names}
        held, go = threading.Event(), threading.Event()

        def hold():
            with contextlib.ExitStack() as stack:
                for module, name in names:
                    stack.enter_context(lock(module, name))
                held.set()
                go.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        pid = os.fork()
        if pid == 0:
            taken = [each for each in names if not lock(*each).acquire(blocking=False)]
            print(taken, flush=True)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        go.set()
        thread.join()
        assert status == 0
    """)
    assert said == "[]\n"


def test_a_fork_beside_the_first_result_can_rebuild_its_own() -> None:
    said = run_alone("""
        import os, pickle, signal, sys, threading, types
        from sandtimer import _sandtimer
        import sandtimer._rebuild as real

        bounds = types.SimpleNamespace(int_bits=100, objects=100, copied_bytes=100, cpu_seconds=1.0)

        def decode():
            return _sandtimer.decode(pickle.dumps([1, "two"], 5), [], {}, bounds)

        blocked, go = threading.Event(), threading.Event()

        class Slow(types.ModuleType):
            # What the first result asks of it takes until the fork is over.
            def __getattr__(self, name):
                if threading.current_thread() is first:
                    blocked.set()
                    go.wait()
                return getattr(real, name)

        sys.modules["sandtimer._rebuild"] = Slow("sandtimer._rebuild")

        def begin():
            decode()
            blocked.set()

        first = threading.Thread(target=begin)
        first.start()
        blocked.wait()
        pid = os.fork()
        if pid == 0:
            # Blocked in native code it hears of no handler.
            signal.alarm(20)
            print(decode(), flush=True)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        go.set()
        print(status)
        first.join()
    """)
    assert said == "[1, 'two']\n0\n"


def test_a_generator_that_was_there_before_repeats_its_numbers_in_each_call() -> None:
    """docs/python.md says so; what draws from a module does not."""
    said = run_alone("""
        import random

        mine = random.Random()
        with sandtimer.Sandbox(timeout=20.0, start="fork") as box:
            print(box.call(mine.random) == box.call(mine.random), box.call(random.random) == box.call(random.random))
    """)
    assert said == "True False\n"


def test_background_calls_say_why_they_cannot_fork() -> None:
    said = run_alone("""
        import asyncio

        with sandtimer.Sandbox(timeout=20.0, start="fork") as box:
            for call in (
                lambda: box.submit(abs, -1).result(timeout=30),
                lambda: list(box.map(abs, [-1])),
                lambda: asyncio.run(box.acall(abs, -1)),
                lambda: asyncio.run(box.arun(abs, -1)),
            ):
                try:
                    call()
                except sandtimer.SandboxUnavailableError as refusal:
                    print(all(word in str(refusal) for word in ("submit", "map", "awaited", "zygote", "force=True", "run and call")))
            print(box.call(abs, -1))
    """)
    assert said == "True\n" * 4 + "1\n"


def test_tracebacks_show_the_callers_frames_alone() -> None:
    said = run_alone("""
        def divide():
            return 1 / 0

        with sandtimer.Sandbox(timeout=20.0, start="fork") as box:
            print(str(box.run(divide).error.__cause__).count("File "))
    """)
    assert said == "1\n"


def test_objects_of_the_parent_are_dropped_in_its_forks() -> None:
    said = run_alone("""
        import os, signal, threading, time
        from sandtimer import _native
        from sandtimer.sandbox import _job
        from sandtimer.sandbox._answers import answer_of

        box = sandtimer.Sandbox(timeout=100.0)
        box.warm(1)
        stop = threading.Event()
        # Opening a run's scope walks these, under the engine's lock and without the interpreter's.
        scopes = [_native.engine().scope("outermost", 500.0)]
        for _ in range(3000):
            scopes.append(_native.engine().scope("nested", 500.0, scopes[-1]))

        def call():
            while not stop.is_set():
                with _job.of_call(abs, (-1,), {}, box._options) as job:
                    job.scope = scopes[-1]
                    box._finish(box._begin(job))

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        held = {
            "call": box._begin(_job.of_call(time.sleep, (2,), {}, box._options)),
            "scope": _native.engine().scope("kept", 50.0),
            "context": box.context(),
        }
        ends = []
        while len(ends) < 40 and not any(ends):
            pid = os.fork()
            if pid == 0:
                # For a lock that no thread gives back in this process.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(20)
                held.clear()
                os._exit(0)
            ends.append(os.waitpid(pid, 0)[1])
        stop.set()
        for thread in threads:
            thread.join()
        # Nothing of the parent's was ended by any of them.
        print(set(ends), answer_of(held["call"]).kind, held["context"].run("6 * 7").value)
        box.close()
    """)
    assert said == "{0} value 42\n"
