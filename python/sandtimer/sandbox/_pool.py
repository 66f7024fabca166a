"""What all views of a sandbox share: the warm children, and the threads that wait for their answers.

The children are forks of a zygote with the modules of the profile. Once the pool has learned which modules its functions need,
one thread makes another zygote with these, which takes the place of the first. When one of their files changes, children are
forks of a zygote without them again, until there is a zygote with what the files hold now.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Callable, Optional

from .. import _descriptors, _native
from .._locks import Guard
from ..errors import SandboxUnavailableError
from ._learned import Learned, Sources, not_importable

if TYPE_CHECKING:
    from ._context import Context
    from ._job import Job

# Warm interpreters for contexts, which are opened seldom.
_INTERPRETERS = 1
# Seconds between two zygotes with learned modules, multiplied by how many there were: a caller that sends new modules for ever
# is not to spend its time with imports.
_PAUSE = 0.2
# Seconds within which a zygote must have imported what is learned.
_IMPORT_TIMEOUT = 30.0
_COUNTS = ("calls", "cold", "lost", "zygotes")


class Pool:
    """Both are made with the first call, and again in a forked process. `learns`: its zygote imports what its functions need."""

    def __init__(self, profile: dict[str, Any], size: int, workers: int, learns: bool = False) -> None:
        self.profile = profile
        # As was asked for, and as there is room for in the process that uses it.
        self.wanted = self.room = _descriptors.Room(size, workers)
        self.learned = Learned(profile["preload"]) if learns else None
        # Of the learned modules, while the zygote has them.
        self.sources: Optional[Sources] = None
        self.is_learning, self.builds = False, 0
        # What those have done that it took the place of.
        self.before: dict[str, int] = {}
        self.guard = Guard()
        self.native: Any = None
        # Interpreters that become contexts, and the contexts.
        self.interpreters: Any = None
        self.contexts: weakref.WeakSet[Context] = weakref.WeakSet()
        self.process = 0
        self.closed = False
        # Code has been run in it.
        self.is_used = False
        self.queue: SimpleQueue[Optional[Callable[[], None]]] = SimpleQueue()
        self.threads: list[threading.Thread] = []

    @property
    def workers(self) -> int:
        """How many calls run at a time."""
        return self.room.workers

    def get(self) -> Any:
        if self.native is not None and self.process == os.getpid():
            sources = self.sources
            if sources is None or not sources.have_changed():
                return self.native
            self._forget(sources)
        with self.guard.lock:
            self._enter()
            if self.native is None:
                self.native = _native.engine().pool(self.profile, self.room.size)
            return self.native

    def warm(self, count: int) -> None:
        """Waits until `count` children are ready."""
        native = self.get()
        _descriptors.make_room(count, self.workers)
        native.warm(count)

    def call(self, job: Job, limits: Any) -> Any:
        """Begins a call, and learns from what it needs."""
        while True:
            native = self.get()
            try:
                call = native.call(job, limits)
                break
            except SandboxUnavailableError:
                if native is self.native or self.closed:
                    raise
                # Another has taken its place, and it was closed.
        if job.needs is not None and self.learned is not None:
            with self.guard.lock:
                if self.learned.note_call(*job.needs) and not self.is_learning and not self.closed:
                    self.is_learning = True
                    threading.Thread(target=self._learn, daemon=True, name="sandtimer-learns").start()
        return call

    def _forget(self, sources: Sources) -> None:
        """Goes back to a zygote without the learned modules, for a file has changed, and has another one made with them."""
        with self.guard.lock:
            if self.sources is not sources:
                return
            old = self._replace(None, None)
            if not self.is_learning:
                self.is_learning = True
                threading.Thread(target=self._learn, daemon=True, name="sandtimer-learns").start()
        old.close()

    def _learn(self) -> None:
        """Makes zygotes with the learned modules until none is due."""
        process = os.getpid()
        try:
            while True:
                with self.guard.lock:
                    learned = self.learned
                    if learned is None or self.closed or self.process != process:
                        return
                    names = [*learned.preloaded, *learned.due()]
                    if not names or (self.sources is not None and names == learned.preloaded):
                        self.is_learning = False
                        return
                    self.builds += 1
                self._preload(learned, names)
                time.sleep(_PAUSE * self.builds)
        except Exception:
            # Calls continue with the zygote that there is, or report the error.
            self.is_learning = False

    def _preload(self, learned: Learned, names: list[str]) -> None:
        """Puts a zygote with these modules in the place of the one that there is, or leaves some of them out."""
        unseen = not_importable(names, self.profile["paths"])
        if unseen:
            learned.leave_out(unseen, "the file that would be imported is not installed, and not the one that this process has imported")
            return
        sources = Sources()
        profile = {**self.profile, "learned": names}
        native = _native.engine().pool(profile, self.room.size)
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            native.close()

        timer = threading.Timer(_IMPORT_TIMEOUT, end)
        timer.daemon = True
        timer.start()
        try:
            native.warm(self.workers)
        except Exception as error:
            native.close()
            reason = f"importing takes longer than {_IMPORT_TIMEOUT} s" if is_late.is_set() else str(error)
            named = [name for name in names if repr(name) in reason]
            learned.leave_out(named or [name for name in names if name not in learned.preloaded] or names, reason)
            return
        finally:
            timer.cancel()
        with self.guard.lock:
            old = native
            if not self.closed and self.process == os.getpid():
                old = self._replace(native, sources)
                learned.preloaded = names
        if old is not None:
            old.close()

    def _replace(self, native: Any, sources: Optional[Sources]) -> Any:
        """Puts something else in the place of what makes children, and gives that back, to be closed. Under the lock."""
        old, self.native, self.sources = self.native, native, sources
        if old is not None:
            counts = old.stats()
            self.before = {name: self.before.get(name, 0) + counts[name] for name in _COUNTS}
        return old

    def stats(self) -> dict[str, Any]:
        """What the pool has done so far, and which modules its zygote imports unasked."""
        learned = self.learned or Learned(())
        modules = {"preloaded": list(learned.preloaded), "not_preloaded": dict(learned.left_out)}
        native = self.get()
        with self.guard.lock:
            stats = (self.native or native).stats()
        counts = {name: stats[name] + self.before.get(name, 0) for name in _COUNTS}
        return {**stats, **counts, **modules, "workers": self.workers}

    def open_context(self, context: Context, how: dict[str, Any], limits: Any) -> None:
        """Gives a context its native half. It closes with the pool."""
        with self.guard.lock:
            self._enter()
            if self.interpreters is None:
                self.interpreters = _native.engine().contexts(self.profile, _INTERPRETERS)
            interpreters = self.interpreters
            _descriptors.make_room(_INTERPRETERS + len(self.contexts) + 1, self.workers)
        context._native = interpreters.open(how, limits)
        self.adopt_context(context)

    def adopt_context(self, context: Context) -> None:
        """Has a context close with the pool; at once, if that is closed."""
        with self.guard.lock:
            if not self.closed:
                self.contexts.add(context)
                return
        context._native.close()
        self.check_open()

    def check_open(self) -> None:
        if self.closed:
            raise SandboxUnavailableError("the sandbox is closed; make a new one")

    def _enter(self) -> None:
        """Rejects calls once it is closed, and drops what belongs to another process. Under the lock."""
        self.check_open()
        if self.process != os.getpid():
            if self.native is not None:
                # Its engine's threads are in the parent process only: it must never be dropped here.
                _native.leave(self.native)
            if self.interpreters is not None:
                _native.leave(self.interpreters)
            self.native, self.queue, self.threads = None, SimpleQueue(), []
            self.sources, self.is_learning, self.before = None, False, {}
            if self.learned is not None:
                # Its zygote is warm in the parent process only.
                self.learned = Learned(self.profile["preload"])
            self.interpreters, self.contexts = None, weakref.WeakSet()
            self.room = _descriptors.make_room(*self.wanted)
            self.process = os.getpid()

    def work(self, task: Callable[[], None]) -> None:
        """Runs a task in a thread. The task itself needs a warm child, or none."""
        with self.guard.lock:
            self._enter()
            if len(self.threads) < self.workers:
                thread = threading.Thread(target=self._serve, args=(self.queue,), daemon=True, name="sandtimer")
                thread.start()
                self.threads.append(thread)
            # Within the lock: what is put after the end marks of a close would never be done.
            self.queue.put(task)

    @staticmethod
    def _serve(queue: SimpleQueue[Optional[Callable[[], None]]]) -> None:
        while (task := queue.get()) is not None:
            task()
            del task

    def close(self) -> None:
        with self.guard.lock:
            self.closed = True
            if self.process != os.getpid():
                return
            native, threads = self.native, self.threads
            interpreters, contexts = self.interpreters, list(self.contexts)
            self.native, self.threads, self.interpreters, self.sources = None, [], None, None
            for _ in threads:
                self.queue.put(None)
        for context in contexts:
            context.close()
        for each in (native, interpreters):
            if each is not None:
                each.close()

    def __del__(self) -> None:
        # Of a sandbox that was not closed: its threads would wait for ever.
        for _ in getattr(self, "threads", ()):
            self.queue.put(None)
