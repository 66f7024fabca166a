"""`start="fork"`: a call in a fork of this process, which sees its objects without pickling.

The fork becomes a zygote: it serves the engine's orders, and each child enters the sandbox, seals itself and runs the call. This process's threads do not exist there, so whatever they hold stays held: forking is refused where that
is likely, unless it is forced.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.machinery
import importlib.util
import os
import re
import socket
import sys
import threading
import time
import warnings
from typing import Any, Callable, Optional

from .._locks import Guard
from ..errors import SandboxUnavailableError

# The engine's own threads touch nothing of Python's.
_OWN = ("st-enforcer", "st-collector", "st-recycler", "st-starter", "st-refiller", "st-disk")
# How long a thread of the engine may take to name itself, on a busy machine.
_NAMING_SECONDS = 0.5
# Python 3.12 and later warn of every thread, the engine's too; what matters is looked at here.
warnings.filterwarnings("ignore", message=r".*use of fork\(\) may lead to deadlocks", module=__name__.replace(".", r"\."))

_guard = Guard()
_loaded: Optional[dict[str, Any]] = None


def _program() -> dict[str, Any]:
    """The names of the children's program, with its native half."""
    global _loaded
    with _guard.lock:
        if _loaded is None:
            from .._sandtimer import child_source

            source, library = child_source()
            names: dict[str, Any] = {"__name__": "_sandtimer_child", "__file__": "<sandtimer>"}
            exec(compile(source, "<sandtimer>", "exec"), names)
            name = "_sandtimer_zygote"
            loader = importlib.machinery.ExtensionFileLoader(name, f"/proc/self/fd/{library}")
            spec = importlib.util.spec_from_file_location(name, loader.path, loader=loader)
            assert spec is not None
            names["native"] = importlib.util.module_from_spec(spec)
            loader.exec_module(names["native"])
            _loaded = names
        return _loaded


_CUDA = "CUDA is in use, and a forked process cannot use it"
# libcuda's own, whichever library initialised it.
_OF_CUDA = re.compile("cuda(-EvtHandlr|[0-9a-f]{11})")


def reason_against() -> Optional[str]:
    """Why forking this process now may go wrong; None where nothing is known against it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return _CUDA
    ours = [thread for thread in threading.enumerate() if thread.name == "sandtimer"]
    others = [thread.name for thread in threading.enumerate() if thread not in (*ours, threading.current_thread())]
    if threading.current_thread() in ours:
        return "submit, map and the awaited forms fork while the calling thread runs, and locks that it holds would stay held"
    if others:
        # It may be drawing, with its lock and that of stderr.
        tqdm = "; tqdm_monitor is tqdm's, which tqdm.tqdm.monitor_interval = 0 before its first bar keeps from starting"
        return f"{_threads(len(others), 'other')} ({', '.join(others[:3])}), and locks held there would stay held" + (
            tqdm if "tqdm_monitor" in others else ""
        )
    end = time.monotonic() + _NAMING_SECONDS
    while True:
        foreign = [name for name in _native_threads() if name not in _OWN]
        surplus = len(foreign) - len(ours) - 1
        if surplus <= 0:
            return None
        # A thread of the engine that has just been started has the name of the process at first.
        if foreign.count(_process_name()) <= len(ours) + 1 or time.monotonic() >= end:
            break
        time.sleep(0.002)
    if any(map(_OF_CUDA.fullmatch, foreign)):
        return _CUDA
    names = ", ".join(sorted(set(foreign))[:3])
    return f"{_threads(surplus, 'native')} ({names}), and locks held there would stay held{_likely_of()}"


# Libraries that start threads for their computations: in their files' names, and what keeps them to the caller's own.
_COMPUTING = {
    "openblas": ("OpenBLAS", "OPENBLAS_NUM_THREADS"),
    "libmkl": ("MKL", "MKL_NUM_THREADS"),
    "libgomp": ("OpenMP", "OMP_NUM_THREADS"),
    "libiomp": ("OpenMP", "OMP_NUM_THREADS"),
    "libomp": ("OpenMP", "OMP_NUM_THREADS"),
}


def _likely_of() -> str:
    """Whose native threads those may be: a thread does not show which library started it."""
    try:
        with open("/proc/self/maps") as file:
            loaded = {os.path.basename(line.rstrip("\n").rpartition("/")[2]) for line in file if ".so" in line}
    except OSError:
        return ""
    found = dict.fromkeys(what for part, what in _COMPUTING.items() if any(part in name for name in loaded))
    if not found:
        return ""
    names = " and ".join(name for name, _ in found)
    settings = " and ".join(f"{variable}=1" for _, variable in found)
    return f"; likely they are of {names}, which starts none with {settings} set before what loads it (numpy, torch) is imported"


def _threads(count: int, kind: str) -> str:
    return f"1 {kind} thread runs" if count == 1 else f"{count} {kind} threads run"


def _process_name() -> str:
    with open("/proc/self/comm") as file:
        return file.read().strip()


def _native_threads() -> list[str]:
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as file:
                names.append(file.read().strip())
        except OSError:
            pass
    return names


class Server:
    """A fork of this process that makes children of itself for the engine, each in a sandbox, where it does `call`.

    The children see this process as it was at the fork, and what `prepare` has done in the fork. Closing it ends the
    fork, and none of its children.
    """

    def __init__(self, call: Callable[[], Any], many: bool = False, prepare: Optional[Callable[[], None]] = None) -> None:
        names = _program()
        self._commands, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except Exception:
                    pass
            try:
                self._pid = os.fork()
            except BaseException:
                self._commands.close()
                raise
            if self._pid == 0:
                _serve(names, theirs.fileno(), call, many, prepare)

    def begin(self, engine: Any, profile: dict[str, Any], job: Any, limits: Any) -> Any:
        """Begins a call in a child of the fork. A child finds the job's stdin on descriptor 0."""
        return engine.fork(profile, self._commands.fileno(), job, limits)

    def close(self) -> None:
        """Ends the fork, and waits for it."""
        self._commands.close()
        # It ends when its socket does. A caller that ignores SIGCHLD, or waits for every child, has its status.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def begin(engine: Any, profile: dict[str, Any], job: Any, limits: Any, call: Callable[[], Any]) -> Any:
    """Forks, and has the engine put the fork's child into a sandbox, where it does `call`."""
    server = Server(call)
    try:
        return server.begin(engine, profile, job, limits)
    finally:
        server.close()


def _serve(names: dict[str, Any], commands: int, call: Callable[[], Any], many: bool, prepare: Optional[Callable[[], None]]) -> None:
    """In the fork: serves orders until its socket ends; in a child: the call. Never returns."""
    try:
        # The other end of `commands` above all: it would never see its end.
        os.closerange(3, commands)
        os.closerange(commands + 1, os.sysconf("SC_OPEN_MAX"))
        hooks = _prepare_children(names) if many else None
        if prepare is not None:
            prepare()
        channel, _ = names["native"].serve(commands)
        gc.disable()
        if hooks is not None:
            hooks.restore()
        for name, number in (("stdout", 1), ("stderr", 2)):
            stream = open(number, "w", buffering=1, closefd=False, errors="backslashreplace")
            stream.reconfigure(write_through=True)
            setattr(sys, name, stream)
        names["forked_child"](channel, call)
    except BaseException as error:
        try:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(1)
    os._exit(0)


def _prepare_children(names: dict[str, Any]) -> Any:
    """In a fork that is to have many children: makes them cheaper, as in a zygote. Gives the hooks that a child restores."""
    native, heap = names["native"], names["uses_glibc"]()
    native.lay_out()
    hooks = names["Hooks"]()
    hooks.spare()
    gc.collect()
    gc.freeze()
    gc.disable()
    native.shelve(4096 if sys.version_info < (3, 10) else 16384, heap)
    return hooks


def refuse(reason: str) -> SandboxUnavailableError:
    return SandboxUnavailableError(
        f'start="fork" is refused: {reason}; use start="zygote", or run and call in a process without other threads, '
        "or force=True if you know that it is safe"
    )
