"""A process that holds one contender and does what the driver says, so that the images of contenders do not mix.

The driver sends `(method, arguments)` and gets `(True, result)` or `(False, message)`.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from queue import SimpleQueue
from socket import socketpair
from typing import Any, Optional

import measure
import workloads
from contenders import CONTENDERS, ORDINARY

PAGE = 4096
#: A host that does not answer for so long has failed.
PATIENCE = 600.0


class Failed(Exception):
    """A contender could not do what it was asked to; the message says why."""


class Host:
    """The driver's end."""

    def __init__(self, name: str, ballast: int = 0) -> None:
        self.name = name
        ours, theirs = socketpair()
        with theirs:
            command = [sys.executable, os.path.abspath(__file__), name, str(ballast), str(theirs.fileno())]
            self.process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if os.environ.get("BENCH_VERBOSE") else subprocess.DEVNULL,
            )
        self.connection = Connection(ours.detach())
        try:
            self.ask("ready")
        except Failed:
            self.close()
            raise

    def send(self, method: str, *arguments: Any) -> None:
        try:
            self.connection.send((method, arguments))
        except OSError as error:
            raise Failed(f"its host is gone: {error}") from error

    def receive(self) -> Any:
        try:
            if not self.connection.poll(PATIENCE):
                raise Failed(f"no answer in {PATIENCE:.0f} s")
            done, result = self.connection.recv()
        except (EOFError, OSError) as error:
            raise Failed(f"its host is gone: {error!r}") from error
        if not done:
            raise Failed(result)
        return result

    def ask(self, method: str, *arguments: Any) -> Any:
        self.send(method, *arguments)
        return self.receive()

    def close(self) -> None:
        # The host ends when its connection does, in good order; it is not waited for without end.
        self.connection.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Served:
    """The methods that the driver may call."""

    def __init__(self, name: str, ballast: int) -> None:
        # First, so that whatever the contender forks at its start comes from the large process too.
        self.ballast = hold(ballast) if ballast else None
        self.contender = {**CONTENDERS, **ORDINARY}[name]()

    def ready(self) -> None:
        for _ in range(3):
            self.contender.call(workloads.nothing)
        self.contender.settle()

    def learn(self, kind: str) -> None:
        """Calls until what the function needs is imported, if the contender does that."""
        for _ in range(3):
            self.contender.call(workloads.ORDINARY[kind])
        time.sleep(3.0)
        self.contender.settle()

    def block(self, calls: int, kind: Optional[str] = None) -> tuple[list[float], float]:
        """Seconds of each call, and processor seconds of all of them, clearing up included."""
        function = workloads.nothing if kind is None else workloads.ORDINARY[kind]
        used = measure.ProcessorTime()
        taken = []
        for _ in range(calls):
            start = time.perf_counter()
            self.contender.call(function)
            taken.append(time.perf_counter() - start)
        self.contender.settle()
        return taken, used.seconds()

    def throughput(self, seconds: float, kind: Optional[str] = None) -> tuple[float, float]:
        """Calls per second, and processor seconds per call."""
        used = measure.ProcessorTime()
        start = time.perf_counter()
        calls = 0
        stream = self.contender.many(workloads.nothing if kind is None else workloads.ORDINARY[kind])
        for outcome in stream:
            if isinstance(getattr(outcome, "ok", None), bool) and not outcome.ok:
                raise RuntimeError(f"a call ended as {outcome.ending}")
            calls += 1
            passed = time.perf_counter() - start
            if passed >= seconds:
                break
        stream.close()  # type: ignore[attr-defined]
        self.contender.settle()
        return calls / passed, used.seconds() / calls

    def large(self, kind: str, size: int) -> dict[str, float]:
        """A large result: until it is there, from when the child had it, and what the caller's peak grew by."""
        self.contender.settle()
        measure.forget_peak()
        held = measure.bytes_of("self", "VmRSS")
        start = time.monotonic()
        value, made = self.contender.call(getattr(workloads, kind), size)
        end = time.monotonic()
        grown = measure.bytes_of("self", "VmHWM") - held
        if memoryview(value).nbytes != size or value[-1] != value[0]:
            raise RuntimeError("the result is not what was returned")
        del value
        self.contender.settle()
        return {"whole": end - start, "transfer": end - made, "grown": grown / size}

    def copy(self, kind: str, size: int) -> float:
        """The floor of a large result: one copy of it here."""
        value, _ = getattr(workloads, kind)(size)
        source = value if kind == "array" else bytearray(value)
        start = time.monotonic()
        copied = source.copy() if kind == "array" else bytes(source)
        taken = time.monotonic() - start
        del copied
        return taken

    def facts(self) -> dict[str, Any]:
        modules, mappings = self.contender.call(workloads.loaded)
        facts: dict[str, Any] = {"modules": modules, "mappings": mappings}
        if hasattr(self.contender, "outcomes"):
            isolation = self.contender.outcomes[-1].isolation
            degraded = ", ".join(each["layer"] for each in isolation.degraded)
            facts["isolation"] = f"{isolation.tier}, {isolation.kill}, degraded: {degraded or 'nothing'}"
            facts["path"] = self.contender.outcomes[-1].path
            self.contender.settle()
        return facts

    def census(self, limit: float) -> int:
        """How many marked processes of a daemonising run the census sees while it runs: it must see them."""
        name = mark_of_this_process()
        box = self.contender.box.limits(timeout=limit)  # type: ignore[attr-defined]
        most = measure.most_named(name, box.submit(workloads.daemonise, name))
        self.contender.call(workloads.nothing)
        return most

    def deadline(self, kind: str, limit: float) -> dict[str, Any]:
        """One run that does not end by itself, and a plain thread that sleeps as long beside it."""
        name = mark_of_this_process()
        box = self.contender.box.limits(timeout=limit)  # type: ignore[attr-defined]
        woken: SimpleQueue[float] = SimpleQueue()

        def canary() -> None:
            instant = time.monotonic() + limit
            time.sleep(max(0.0, instant - time.monotonic()))
            woken.put(time.monotonic() - instant)

        thread = threading.Thread(target=canary)
        thread.start()
        deadline = time.monotonic() + limit
        outcome = box.run(workloads.HOSTILE[kind], name)
        late = time.monotonic() - deadline
        thread.join()
        tree, verdict = outcome.tree, outcome.verdict
        left = measure.named(name)
        self.contender.settle()
        return {
            "ending": outcome.ending,
            "late": late,
            "verdict": verdict.late_ms / 1000 if verdict is not None else None,
            "canary": woken.get(),
            "survivors": tree.survivors,
            "killed": tree.killed,
            "census": len(left),
        }


def mark_of_this_process() -> str:
    return f"mark-{os.getpid()}"


def hold(size: int) -> mmap.mmap:
    """Memory of small pages, each of them touched."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    import numpy

    numpy.frombuffer(memory, dtype=numpy.uint8)[::PAGE] = 1
    return memory


def serve(name: str, ballast: int, connection: Connection) -> None:
    served: Optional[Served] = None
    while True:
        try:
            method, arguments = connection.recv()
        except (EOFError, OSError):
            break
        try:
            if served is None:
                served = Served(name, ballast)
            answer = (True, getattr(served, method)(*arguments))
        except Exception as error:
            answer = (False, f"{type(error).__name__}: {error}")
        connection.send(answer)
    if served is not None:
        served.contender.close()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), Connection(int(sys.argv[3])))
