"""The driver's side of a pool: an actor on each node that has what it asks for, and the calls sent to them.

Owns the actors and the calls under way. An actor is started on every suitable node, is never restarted by Ray, and is
forgotten once it is lost; the next look at the cluster starts another. A call is sent once: what is lost with its node
is an outcome, not a second attempt. Deadlines are the engine's in the actor. Here is only the last resort: an actor that
gives no sign of itself long after a deadline is killed, and its process with it.

Callbacks of Ray's run in a thread that Ray itself needs, so the lock is never held while Ray is asked for something.
"""

from __future__ import annotations

import functools
import itertools
import re
import threading
import time
from concurrent.futures import Future
from typing import Any, Callable, Iterable, Mapping, Optional

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .. import __version__, _arguments
from ..errors import RemoteError, SandboxUnavailableError, SandtimerError
from ._actor import CALLS, QUESTIONS, Actor, end_process, request_of

# Seconds: for an actor to start in, between looks at the cluster, before a node that refused is asked again.
START = 120.0
_INSPECT_INTERVAL = 5.0
_AGAIN = 30.0
_CLOSE = 5.0
# In Ray's tracebacks.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_end_process: Any = ray.remote(num_cpus=0, max_retries=0)(end_process)


@functools.lru_cache(maxsize=None)
def _actor_class(workers: int) -> Any:
    return ray.remote(concurrency_groups={CALLS: workers, QUESTIONS: 2})(Actor)


class Node:
    """One node's actor, and how many calls it runs at a time."""

    def __init__(self, identity: str, address: str, actor: Any, workers: int) -> None:
        self.identity, self.address, self.actor, self.workers = identity, address, actor, workers
        self.begun = False
        self.process = (0, "")
        self.calls: dict[int, RemoteCall] = {}
        # Why it was abandoned.
        self.why: Optional[str] = None

    def load(self) -> float:
        return len(self.calls) / self.workers


class RemoteCall:
    """A call that was sent to a node. It has its verdict `longest` seconds after it began, at the latest."""

    def __init__(self, key: int, node: Node, longest: Optional[float], inspect_at: float) -> None:
        self.key, self.node, self.longest, self.inspect_at = key, node, longest, inspect_at
        # Of Ray's, to what the actor answers.
        self.reference: Any = None
        # Whether arguments of it are references, which may fail.
        self.refers = False

    def cancel(self, reason: str) -> None:
        self.node.actor.cancel.remote(self.key)


class Nodes:
    def __init__(self, parameters: dict[str, Any], options: dict[str, Any], patience: float) -> None:
        self._parameters, self._options, self._patience = parameters, options, patience
        self._changed = threading.Condition()
        self._looking = threading.Lock()
        self._nodes: dict[str, Node] = {}
        # Why a node makes no calls, and since when.
        self._refused: dict[str, tuple[BaseException, float]] = {}
        self._inspected_at = float("-inf")
        self._keys = itertools.count(1)
        self._closed = False
        self._guard: Optional[threading.Thread] = None

    # Nodes

    def _known(self) -> list[Node]:
        with self._changed:
            return list(self._nodes.values())

    def ready(self) -> list[Node]:
        return [node for node in self._known() if node.begun]

    def _inspect_nodes(self) -> None:
        """Starts an actor on each suitable node that has none."""
        with self._looking:
            if time.monotonic() - self._inspected_at < _INSPECT_INTERVAL:
                return
            if not ray.is_initialized():
                raise SandboxUnavailableError("Ray is not initialised: call ray.init(), with the cluster's address if there is one")
            cluster: Any = ray
            alive = {each["NodeID"]: each for each in cluster.nodes() if each["Alive"]}
            self._inspected_at = time.monotonic()
            for node in self._known():
                if node.identity not in alive:
                    self._lose(node)
            for identity, each in alive.items():
                error, since = self._refused.get(identity, (None, 0.0))
                if error is not None and time.monotonic() - since < _AGAIN:
                    continue
                if identity not in self._nodes and _has(each["Resources"], self._options):
                    self._start(identity, each["NodeManagerAddress"], int(each["Resources"].get("CPU", 0)))
            with self._changed:
                for identity in self._refused.keys() - alive.keys():
                    del self._refused[identity]
                if not self._nodes and not self._refused:
                    self._inspected_at = float("-inf")
                    raise SandboxUnavailableError(f"no node of the cluster has the resources of the pool: {self._options}")

    def _start(self, identity: str, address: str, processors: int) -> None:
        workers = self._parameters.get("workers") or max(processors, 1)
        actor = _actor_class(workers).options(
            **self._options,
            scheduling_strategy=NodeAffinitySchedulingStrategy(identity, soft=False),
            max_restarts=0,
            max_task_retries=0,
            # Of neither group, and used for nothing. From 2 on, calls overtake those whose references are not there yet.
            max_concurrency=2,
        ).remote(self._parameters, _arguments.paths())
        node = Node(identity, address, actor, workers)
        with self._changed:
            self._nodes[identity] = node
            self._refused.pop(identity, None)
        actor.begin.remote().future().add_done_callback(lambda begun: self._begun(node, begun))

    def _begun(self, node: Node, begun: Future[dict[str, Any]]) -> None:
        error = begun.exception()
        facts = {} if error is not None else begun.result()
        error = error or facts.get("refused")
        if error is None and facts["version"] != __version__:
            error = SandboxUnavailableError(f"node {node.address} has version {facts['version']}, and this is {__version__}")
        with self._changed:
            if error is not None:
                self._nodes.pop(node.identity, None)
                self._refused[node.identity] = (error, time.monotonic())
            else:
                node.begun, node.process = True, (facts["process"], facts["started"])
            self._changed.notify_all()

    def wait(self, every: bool = False) -> None:
        """Until a node can make calls, or until each has begun or refused."""
        limit = time.monotonic() + START
        while True:
            with self._changed:
                if self._closed:
                    raise SandboxUnavailableError("the pool is closed; make a new one")
                known = bool(self._nodes) and time.monotonic() - self._inspected_at < _INSPECT_INTERVAL
            if not known:
                self._inspect_nodes()
            with self._changed:
                begun = [node.begun for node in self._nodes.values()]
                if any(begun) and (all(begun) or not every):
                    return
                if not self._nodes and self._refused:
                    raise self._rejection()
                if time.monotonic() > limit:
                    raise SandboxUnavailableError(
                        f"no actor started within {START:.0f} s: the cluster has the resources of the pool, but they may be in use: {self._options}"
                    )
                self._changed.wait(1.0)

    def _rejection(self) -> SandtimerError:
        error = next(iter(self._refused.values()))[0]
        if isinstance(error, SandtimerError):
            return error
        rejection = SandboxUnavailableError(f"no node can make calls: {_first_line(error)}")
        rejection.__cause__ = error
        return rejection

    def _lose(self, node: Node) -> None:
        with self._changed:
            if self._nodes.get(node.identity) is node:
                del self._nodes[node.identity]
                self._inspected_at = float("-inf")

    # Calls

    def send(self, message: tuple[Any, ...], longest: Optional[float]) -> RemoteCall:
        """Sends a call to the node with most room. It must be followed by `reply`, or by `later`."""
        self.wait()
        with self._changed:
            node = min((each for each in self._nodes.values() if each.begun), key=Node.load, default=None)
            if node is None:
                raise SandboxUnavailableError("the last node was lost just now; try again")
            inspect_at = float("inf") if longest is None else time.monotonic() + longest + self._patience
            call = RemoteCall(next(self._keys), node, longest, inspect_at)
            if longest is not None:
                self._guarded()
            node.calls[call.key] = call
        try:
            request = request_of(call.key, *message)
            call.refers = isinstance(request[-1], ray.ObjectRef)
            call.reference = node.actor.call.remote(*request)
        except BaseException as error:
            self._done(call, error)
            raise
        return call

    def reply(self, call: RemoteCall) -> Any:
        """Waits for what the actor answers. Raises what `_why` gives if it does not."""
        error: Optional[BaseException] = None
        try:
            return ray.get(call.reference)
        except RayError as lost:
            error = lost
        except BaseException:
            call.cancel("its caller was interrupted")
            raise
        finally:
            self._done(call, error)
        raise self._why(call, error) from error

    def later(self, call: RemoteCall, notify: Callable[[Any, Optional[SandtimerError]], Any]) -> None:
        """Passes on what the actor answers, or why it does not, in a thread that Ray needs."""

        def answered(future: Future[Any]) -> None:
            error = future.exception()
            self._done(call, error)
            notify(None if error else future.result(), None if error is None else self._why(call, error))

        call.reference.future().add_done_callback(answered)

    def _why(self, call: RemoteCall, error: BaseException) -> SandtimerError:
        """Why a call has no answer: a RemoteError where it was not begun, because what an argument refers to failed."""
        node = call.node
        if node.why is not None:
            return SandboxUnavailableError(f"node {node.address} was removed from the pool: {node.why}")
        if call.refers and not _of_actor(error, node):
            cause = getattr(error, "cause", error)
            if isinstance(error, RayTaskError) and not isinstance(cause, RayError):
                return RemoteError(type(cause).__name__, str(cause), _COLOURS.sub("", str(error)))
            return SandboxUnavailableError(f"the object that an argument refers to is not available: {_first_line(cause)}")
        return SandboxUnavailableError(f"node {node.address} was lost: {_first_line(error)}")

    def _done(self, call: RemoteCall, error: Optional[BaseException]) -> None:
        if _of_actor(error, call.node):
            self._lose(call.node)
        with self._changed:
            call.node.calls.pop(call.key, None)
            if self._closed:
                self._changed.notify_all()

    # The last resort

    def _guarded(self) -> None:
        if self._guard is None:
            self._guard = threading.Thread(target=self._watch, daemon=True, name="sandtimer-ray")
            self._guard.start()

    def _watch(self) -> None:
        """Ends with the last call."""
        while True:
            time.sleep(min(1.0, self._patience))
            with self._changed:
                calls = [call for node in self._nodes.values() for call in node.calls.values()]
                if not calls:
                    self._guard = None
                    return
            now = time.monotonic()
            overdue: dict[Node, list[RemoteCall]] = {}
            for call in calls:
                if call.inspect_at < now:
                    overdue.setdefault(call.node, []).append(call)
            # Each use of Ray from here on would connect to the cluster again after a ray.shutdown().
            if overdue and ray.is_initialized():
                try:
                    self._ask(overdue)
                except Exception:
                    # Ray itself is going.
                    time.sleep(1.0)

    def _ask(self, overdue: Mapping[Node, list[RemoteCall]]) -> None:
        """Has each node say for how long its calls have been under way. One that does not say is killed."""
        asked = {node.actor.elapsed.remote([each.key for each in calls]): node for node, calls in overdue.items()}
        ready, silent = ray.wait(list(asked), num_returns=len(asked), timeout=self._patience)
        for reference in silent:
            self._end(asked[reference], f"its actor did not respond for {self._patience} s after a call's deadline")
        for reference in ready:
            node = asked[reference]
            try:
                elapsed = ray.get(reference)
            except RayActorError:
                continue
            for call in overdue[node]:
                seconds, call.inspect_at = elapsed.get(call.key), time.monotonic() + self._patience
                if seconds is not None and call.longest is not None and seconds > call.longest + self._patience:
                    self._end(node, f"its engine ran a call for {seconds:.0f} s, which was allowed {call.longest} s")
                    break

    def _end(self, node: Node, why: str) -> None:
        self._lose(node)
        node.why = why
        if not ray.is_initialized():
            return
        ray.kill(node.actor, no_restart=True)
        # Ray asks the process to end, and a stopped process does not receive it.
        here = NodeAffinitySchedulingStrategy(node.identity, soft=False)
        _end_process.options(scheduling_strategy=here).remote(*node.process)

    # The end

    def stats(self, seconds: float) -> dict[str, Any]:
        asked = {node.actor.stats.remote(): node for node in self.ready()} if ray.is_initialized() else {}
        ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=seconds) if asked else ([], [])
        found: dict[str, Any] = {}
        for node in asked.values():
            found[node.identity] = {"address": node.address, "workers": node.workers, "under_way": len(node.calls)}
        for reference in ready:
            try:
                found[asked[reference].identity].update(ray.get(reference))
            except RayActorError:
                continue
        return found

    def close(self) -> None:
        """Ends each actor when its last call is done."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            nodes = list(self._nodes.values())
            busy = [node for node in nodes if node.calls]
        _end_actors(node for node in nodes if node not in busy)
        if busy:
            threading.Thread(target=self._close_later, args=(busy,), daemon=True, name="sandtimer-ray").start()

    def _close_later(self, nodes: list[Node]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not any(node.calls for node in nodes))
        _end_actors(nodes)


def _end_actors(nodes: Iterable[Node]) -> None:
    ending = list(nodes)
    if not ending or not ray.is_initialized():
        return
    ray.wait([node.actor.close.remote() for node in ending], num_returns=len(ending), timeout=_CLOSE)
    for node in ending:
        # A ray.shutdown() during the wait ended the actors; ray.kill would connect to the cluster again.
        if ray.is_initialized():
            ray.kill(node.actor, no_restart=True)


def _of_actor(error: Optional[BaseException], node: Node) -> bool:
    """Whether it is this node's actor that was lost, and not one that an argument refers to."""
    return isinstance(error, RayActorError) and error.actor_id in (None, node.actor._actor_id.hex())


def _has(resources: Mapping[str, float], options: Mapping[str, Any]) -> bool:
    """Whether a node with these resources could ever hold an actor with these options."""
    wanted = {"CPU": options.get("num_cpus"), "GPU": options.get("num_gpus"), "memory": options.get("memory")}
    wanted.update(options.get("resources") or {})
    return all(not amount or resources.get(name, 0) >= amount for name, amount in wanted.items())


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join([*lines[:1], *lines[-1:]][: len(lines)]) or type(error).__name__
