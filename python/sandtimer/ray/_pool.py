"""The pool: what `Sandbox` offers, on the machines of a Ray cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, TypeVar

import ray
from ray.exceptions import RayError

from .. import _arguments
from .._outcome import Outcome, Record, gone, lost, never_begun
from ..errors import InvalidArgumentError, RemoteError, SandboxUnavailableError, SandtimerError
from ..sandbox import _job
from ..sandbox._answers import awaited_value_of, value_of
from ..sandbox._futures import CallFuture, ordered_outcomes
from ..sandbox._learned import kind_of
from ..sandbox._sandbox import Sandbox, Seconds
from ._actor import reply_in
from ._nodes import Nodes, RemoteCall
from ._references import refuse, taken_out

T = TypeVar("T")

# Of what may be given in `actor_options`, what a pool relies on.
_OURS = (
    "concurrency_groups", "get_if_exists", "lifetime", "max_concurrency", "max_pending_calls", "max_restarts",
    "max_task_retries", "name", "scheduling_strategy",
)  # fmt: skip
# Kinds of calls whose modules are remembered.
_MAX_KINDS = 1024
# The parameters that an actor is made with; all others go with each call, or stay here.
POOL_OPTIONS = ("gpu", "network", "preload", "python", "require", "start", "workers")
_RECORD = 10.0
# Rebuilds what is not waited for by a thread of the caller's; Ray's own thread must not.
_rebuilders = ThreadPoolExecutor(4, "sandtimer-ray")


@dataclasses.dataclass(frozen=True)
class _Work:
    """A call as its caller gave it."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    # What bounds it together with other calls: a name, and an instant.
    scope: Optional[tuple[str, float]] = None
    # Whether its outcome is to be settled when it is there.
    settle: bool = True
    # Whether it is not sent another time.
    last: bool = False

    def again(self) -> _Work:
        return dataclasses.replace(self, last=True)


class Pool:
    """Runs functions on the machines of a Ray cluster, each call in a process of its own, under hard
    limits.

    One actor on each node has an engine, which makes the calls and enforces their deadlines; a call
    needs no actor of its own. Ray must be initialised at the first call, and this package installed
    on each node.

    Arguments that are an ObjectRef are resolved on the node, as those of Ray's tasks are; if its
    task failed, the call ends with a RemoteError. Calls that are lost with their node end as
    "infra_error"; no call is made twice. Arrays in results are in Ray's object store and read-only;
    copy them to change them.

    Args:
        timeout: Elapsed time of each call, in seconds; None for unlimited.
        num_cpus: Processors that Ray reserves for the actor on a node. Nodes without them make no
            calls.
        num_gpus: GPUs that Ray reserves for the actor on a node.
        resources: Further resources that Ray reserves for the actor on a node.
        actor_options: Further options of the actors, such as {"memory": 4 << 30}; `memory` itself
            is the limit of each call.
        patience: Seconds that an actor may be silent after the deadline of a call before it is
            killed with all of its calls.
        **parameters: The other parameters of `Sandbox`; `workers` is for each node, and its
            processors as Ray counts them by default.

    Examples:
        >>> import sandtimer.ray
        >>> with sandtimer.ray.Pool(timeout=10.0) as pool:  # doctest: +SKIP
        ...     pool.call(lambda x: x * 7, 6)
        42
    """

    def __init__(
        self,
        timeout: Seconds = None,
        *,
        num_cpus: float = 0,
        num_gpus: float = 0,
        resources: Optional[Mapping[str, float]] = None,
        actor_options: Optional[Mapping[str, Any]] = None,
        patience: float = 30.0,
        **parameters: Any,
    ) -> None:
        if parameters.get("start") == "fork":
            raise InvalidArgumentError('start="fork" forks the calling process, which is not on the node; use "zygote" or "spawn"')
        for name in _OURS:
            if name in (actor_options or {}):
                raise InvalidArgumentError(f"actor_options[{name!r}] is the pool's own to set")
        if not patience > 0:
            raise InvalidArgumentError(f"patience={patience!r}: use a number of seconds above 0")
        # It starts no engine here: it checks, and rebuilds. Whether there is a GPU is for the nodes to say.
        self._box = Sandbox(timeout, **{**parameters, "gpu": False})
        _arguments.gpu(parameters.get("gpu", False), parameters.get("start", "zygote"))
        options = {"num_cpus": num_cpus, "num_gpus": num_gpus, "resources": dict(resources or {}), **(actor_options or {})}
        self._nodes = Nodes({name: parameters[name] for name in POOL_OPTIONS if name in parameters}, options, patience)
        # The modules of each kind of call.
        self._needs: dict[Any, tuple[str, ...]] = {}

    def limits(self, **limits: Any) -> Pool:
        """Returns a view of the same pool with other limits; those that are not given stay.

        Args:
            **limits: As for `Sandbox.limits`.

        Examples:
            >>> import sandtimer.ray
            >>> with sandtimer.ray.Pool(timeout=10.0) as pool:  # doctest: +SKIP
            ...     pool.limits(timeout=1.0).call(abs, -1)
            1
        """
        return self._view(self._box.limits(**limits))

    def _view(self, box: Sandbox) -> Pool:
        view = object.__new__(type(self))
        view.__dict__.update(self.__dict__, _box=box)
        return view

    def warm(self) -> None:
        """Waits until every node that can make calls is ready; otherwise the first calls go to the
        first ready nodes.

        Examples:
            >>> import sandtimer.ray
            >>> with sandtimer.ray.Pool() as pool:  # doctest: +SKIP
            ...     pool.warm()
        """
        self._nodes.wait(every=True)

    def stats(self) -> dict[str, Any]:
        """Returns the figures of `Sandbox.stats` for each node that answers, by Ray's name of the
        node.

        Examples:
            >>> import sandtimer.ray
            >>> with sandtimer.ray.Pool() as pool:  # doctest: +SKIP
            ...     len(pool.stats())
            1
        """
        return self._nodes.stats(10.0)

    def close(self) -> None:
        """Ends the actors. Active calls run to their end.

        Examples:
            >>> import sandtimer.ray
            >>> sandtimer.ray.Pool().close()  # doctest: +SKIP
        """
        self._nodes.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Calls

    def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Outcome:
        """Calls a function on a node. Never raises for what the function did.

        Args:
            fn: The function.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Examples:
            >>> import sandtimer.ray
            >>> with sandtimer.ray.Pool() as pool:  # doctest: +SKIP
            ...     pool.run(abs, -1).value
            1
        """
        return self._wait(_Work(fn, args, kwargs))

    def call(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Calls a function on a node, and returns its value, or raises as `Sandbox.call` does.

        Args:
            fn: The function.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Examples:
            >>> import sandtimer.ray
            >>> with sandtimer.ray.Pool() as pool:  # doctest: +SKIP
            ...     pool.call(abs, -1)
            1
        """
        return value_of(self._wait(_Work(fn, args, kwargs, settle=False)))  # type: ignore[no-any-return]

    def _send(self, work: _Work) -> RemoteCall:
        args, kwargs, positions, references = taken_out(work.args, work.kwargs)
        data, buffers, needs = self._pickled(work.fn, args, kwargs)
        refuse(data, work.fn, args, kwargs)
        options = {**self._box._options, "kind": "call"}
        left = None if work.scope is None else (work.scope[0], work.scope[1] - time.monotonic())
        limits = {name: value for name, value in self._box._limits.items() if name != "require"}
        message = (options, data, buffers, positions, references, limits, left, work.settle, needs)
        return self._nodes.send(message, self._longest(left))

    def _pickled(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, list[memoryview], tuple[str, ...]]:
        """A call as bytes, its large buffers, and the modules that the zygotes of the nodes learn from it."""
        by_value = self._box._by_value
        if self._box._pool.learned is None:
            return (*_job.pickled(fn, args, kwargs, by_value), ())
        kind = kind_of(fn, args)
        needs = self._needs.get(kind)
        if needs is not None:
            return (*_job.pickled(fn, args, kwargs, by_value), needs)
        modules: set[str] = set()
        data, buffers = _job.pickled(fn, args, kwargs, by_value, modules)
        if len(self._needs) >= _MAX_KINDS:
            self._needs.clear()
        needs = self._needs[kind] = tuple(sorted(_job.needed(fn, modules, by_value)))
        return data, buffers, needs

    def _longest(self, scope: Optional[tuple[str, float]]) -> Optional[float]:
        wall, grace = self._box._limits["timeout"], self._box._limits["grace"] or 0.0
        bounds = [] if not wall else [float(wall) + float(grace)]
        return min([*bounds, *([] if scope is None else [max(scope[1], 0.0)])], default=None)

    def _wait(self, work: _Work) -> Outcome:
        call = self._send(work)
        try:
            reply = self._nodes.reply(call)
        except (RemoteError, SandboxUnavailableError) as error:
            return _without_answer(error)
        outcome = self._outcome(call, reply)
        return self._wait(work.again()) if self._is_to_be_sent_again(work, outcome) else outcome

    def _is_to_be_sent_again(self, work: _Work, outcome: Outcome) -> bool:
        """With the code of its function's module, which cannot be imported inside."""
        module = getattr(work.fn, "__module__", None)
        return not work.last and self._box._lacks(outcome.error, module, lambda name: self.run(importlib.util.find_spec, name))

    def _outcome(self, call: RemoteCall, reply: Any) -> Outcome:
        """The outcome in an actor's reply."""
        kind, *rest = reply_in(reply)
        if kind == "refused":
            raise rest[0]
        if kind == "cancelled":
            return lost(SandboxUnavailableError("the call was cancelled"))
        record, answer = rest
        ended = _Unsettled(call) if record is None else Record(json.loads(record))
        return self._box._rebuild(ended, answer)

    # Many at a time

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> CallFuture:
        """Calls a function on a node in the background. Waiting on the node does not count as run
        time.

        Args:
            fn: The function.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Examples:
            >>> import sandtimer.ray
            >>> with sandtimer.ray.Pool() as pool:  # doctest: +SKIP
            ...     pool.submit(abs, -1).result()
            1
        """
        return self._submit(awaited_value_of, _Work(fn, args, kwargs, settle=False))

    def _submit(self, finish: Callable[[Outcome], Any], work: _Work) -> CallFuture:
        future = CallFuture()
        self._begin(future, finish, work)
        return future

    def _begin(self, future: CallFuture, finish: Callable[[Outcome], Any], work: _Work) -> None:
        call = self._send(work)
        future._call = call
        if future.cancelled():
            call.cancel("its future was cancelled")

        def rebuild(reply: Any, error: Optional[SandtimerError]) -> None:
            try:
                outcome = self._outcome(call, reply) if error is None else _without_answer(error)
                if not future.cancelled() and self._is_to_be_sent_again(work, outcome):
                    return self._begin(future, finish, work.again())
                result = finish(outcome)
            except BaseException as raised:
                if future.set_running_or_notify_cancel():
                    future.set_exception(raised)
            else:
                if future.set_running_or_notify_cancel():
                    future.set_result(result)
            # It holds what is in Ray's store.
            future._call = None

        self._nodes.later(call, lambda *reply: _rebuilders.submit(rebuild, *reply))

    async def arun(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Outcome:
        """Awaited form of `run`. Cancelling the task ends the call."""
        return await self._asubmit(_Work(fn, args, kwargs))

    async def acall(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Awaited form of `call`. Cancelling the task ends the call."""
        outcome = await self._asubmit(_Work(fn, args, kwargs, settle=False))
        return awaited_value_of(outcome)  # type: ignore[no-any-return]

    async def _asubmit(self, work: _Work) -> Outcome:
        if not self._nodes.ready():
            await asyncio.to_thread(self._nodes.wait)
        return await asyncio.wrap_future(self._submit(_itself, work))

    def map(
        self, fn: Callable[..., Any], items: Iterable[Any], *, total: Seconds = None, progress: bool = False
    ) -> Iterator[Outcome]:
        """Calls a function with each item, on all nodes. Never raises for one item.

        Args:
            fn: The function.
            items: The items.
            total: Seconds for all items together.
            progress: Whether a bar is shown, by tqdm or rich.

        Returns:
            An iterator over the outcomes, in the order of the items.

        Examples:
            >>> import sandtimer.ray
            >>> with sandtimer.ray.Pool() as pool:  # doctest: +SKIP
            ...     [outcome.value for outcome in pool.map(abs, [-1, -2])]
            [1, 2]
        """
        self._nodes.wait()
        scope = (uuid.uuid4().hex, time.monotonic() + total) if total else None

        def submit(args: tuple[Any, ...]) -> CallFuture:
            return self._submit(_itself, _Work(fn, args, {}, scope))

        yield from ordered_outcomes(submit, items, lambda: 2 * sum(node.workers for node in self._nodes.ready()), progress)


class _Unsettled:
    """The end of a call whose value came first. It is asked for only where the value is refused here."""

    id = ""

    def __init__(self, call: RemoteCall) -> None:
        self._call = call

    def outcome(self, settled: bool) -> str:
        try:
            record = ray.get(self._call.node.actor.record.remote(self._call.key), timeout=_RECORD)
        except RayError:
            record = None
        return record or gone("its record is no longer kept")


def _without_answer(error: SandtimerError) -> Outcome:
    """The outcome of a call for which there is no reply; see `Nodes`."""
    return never_begun("raised", error) if isinstance(error, RemoteError) else lost(error)


def _itself(outcome: Outcome) -> Outcome:
    return outcome
