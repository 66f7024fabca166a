"""What all views of a sandbox share: the children that stand ready, and the threads that wait for their answers."""

from __future__ import annotations

import os
import threading
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import _native
from ._locks import Guard
from .errors import SandboxUnavailable

if TYPE_CHECKING:
    from ._context import Context

# Interpreters that stand ready to become contexts, which are opened seldom.
_INTERPRETERS = 1


class Pool:
    """Both are made with the first call, and anew in a forked process."""

    def __init__(self, profile: dict[str, Any], size: int, workers: int) -> None:
        self.profile, self.size, self.workers = profile, size, workers
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

    def get(self) -> Any:
        if self.native is not None and self.process == os.getpid():
            return self.native
        with self.guard.lock:
            self._enter()
            if self.native is None:
                self.native = _native.engine().pool(self.profile, self.size)
            return self.native

    def open_context(self, context: Context, how: dict[str, Any], limits: Any) -> None:
        """Gives a context its native half. It closes with the pool."""
        with self.guard.lock:
            self._enter()
            if self.interpreters is None:
                self.interpreters = _native.engine().contexts(self.profile, _INTERPRETERS)
            interpreters = self.interpreters
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
            raise SandboxUnavailable("the sandbox is closed; make a new one")

    def _enter(self) -> None:
        """Refuses once it is closed, and leaves behind what is another process's. Under the lock."""
        self.check_open()
        if self.process != os.getpid():
            if self.native is not None:
                # Its engine's threads are in the parent process only: it must never be dropped here.
                _native.leave(self.native)
            if self.interpreters is not None:
                _native.leave(self.interpreters)
            self.native, self.queue, self.threads = None, SimpleQueue(), []
            self.interpreters, self.contexts = None, weakref.WeakSet()
            self.process = os.getpid()

    def work(self, task: Callable[[], None]) -> None:
        """Has a thread do it. Whether children stand ready for it is the task's affair."""
        with self.guard.lock:
            self._enter()
            if len(self.threads) < self.workers:
                thread = threading.Thread(target=self._serve, args=(self.queue,), daemon=True, name="sandtimer")
                thread.start()
                self.threads.append(thread)
            # Within the lock: nothing that is put behind the ends of a close would ever be done.
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
            self.native, self.threads, self.interpreters = None, [], None
            for _ in threads:
                self.queue.put(None)
        for context in contexts:
            context.close()
        for each in (native, interpreters):
            if each is not None:
                each.close()

    def __del__(self) -> None:
        # Of a sandbox that nobody closed: its threads would wait for ever.
        for _ in getattr(self, "threads", ()):
            self.queue.put(None)
