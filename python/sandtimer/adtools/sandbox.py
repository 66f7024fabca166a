"""Executors of the methods of a worker object, and the decorator for them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import operator
import sys
import time
import traceback
from typing import Any, Callable, ContextManager, Literal, Mapping, Optional, Sequence, TypedDict, Union

from .. import _arguments
from .._choices import Trust
from .._decorated import Decorated, Way, decorate
from .._outcome import Outcome
from .._results import RemoteTraceback
from .._vocabulary import named_parameters
from ..errors import InvalidArgumentError, InvalidArgumentTypeError, RemoteError, UnserializableError
from ..sandbox import _job, _shared

__all__ = ["ExecutionResults", "SandboxExecutor", "SandboxExecutorRay", "sandbox_run"]

_TIMEOUT = "Evaluation timeout."
_ONLY_PROCESS = ("recur_kill_eval_proc", "find_and_kill_children_evaluation_process", "join_timeout_seconds")
_ONLY_RAY = ("init_ray", "ray_rotation_max_bytes", "ray_rotation_backup_count")


class ExecutionResults(TypedDict):
    """The result of a call.

    Attributes:
        result: The value; None if there is none.
        evaluate_time: How long the call took, in seconds.
        error_msg: "" on success; else why there is no value.

    Examples:
        >>> from sandtimer.adtools import ExecutionResults
        >>> ExecutionResults(result=1, evaluate_time=0.1, error_msg="")["result"]
        1
    """

    result: Any
    evaluate_time: float
    error_msg: str


@named_parameters
class SandboxExecutor:
    """Calls the methods of a worker object, each call in a process of its own.

    Args:
        evaluate_worker: Any object that can be pickled; else `error_msg` has the reason. Changes
            that a call makes to it stay in the sandbox.
        recur_kill_eval_proc: Accepted and stored. All processes of a call are always dead when it
            returns.
        debug_mode: Whether the reason is printed when a call has no result.
        join_timeout_seconds: Accepted and stored, without effect.
        find_and_kill_children_evaluation_process: The earlier name of `recur_kill_eval_proc`.
        trust: As for `sandtimer.Sandbox`.
        results: As for `sandtimer.Sandbox`.
        **sandbox_parameters: The other parameters of `sandtimer.Sandbox`.

    Raises:
        InvalidArgumentError: A parameter has a value that cannot be used.
        InvalidArgumentTypeError: A parameter has a type that cannot be used, or belongs to a call.

    Examples:
        >>> from sandtimer.adtools import SandboxExecutor
        >>> class Worker:
        ...     def divide(self, a, b):
        ...         return a / b
        >>> executor = SandboxExecutor(Worker())
        >>> executor.secure_execute("divide", [7, 2], timeout_seconds=5)["result"]
        3.5
        >>> executor.secure_execute("divide", [7, 0], timeout_seconds=5)["error_msg"].splitlines()[-1]
        'ZeroDivisionError: division by zero'
    """

    def __init__(
        self,
        evaluate_worker: Any,
        recur_kill_eval_proc: bool = False,
        debug_mode: bool = False,
        *,
        join_timeout_seconds: int = 10,
        find_and_kill_children_evaluation_process: Optional[bool] = None,
        trust: Trust = "data",
        results: Sequence[type] = (),
        **sandbox_parameters: Any,
    ) -> None:
        for name, instead in (("timeout", "timeout_seconds"), ("stdout", "redirect_to_devnull")):
            if name in sandbox_parameters:
                raise InvalidArgumentTypeError(f"{name} belongs to a call here: use {instead} of secure_execute")
        if find_and_kill_children_evaluation_process is not None:
            recur_kill_eval_proc = find_and_kill_children_evaluation_process
        self.evaluate_worker = evaluate_worker
        self.debug_mode = debug_mode
        self.recur_kill_eval_proc = recur_kill_eval_proc
        self.join_timeout_seconds = join_timeout_seconds
        self.sandbox_parameters = {**sandbox_parameters, "trust": trust, "results": tuple(_arguments.classes(results))}
        _shared.check(self.sandbox_parameters, self._elsewhere)

    @property
    def find_and_kill_children_evaluation_process(self) -> bool:
        """The earlier name of `recur_kill_eval_proc`."""
        return self.recur_kill_eval_proc

    @find_and_kill_children_evaluation_process.setter
    def find_and_kill_children_evaluation_process(self, value: bool) -> None:
        self.recur_kill_eval_proc = value

    def secure_execute(
        self,
        worker_execute_method_name: str,
        method_args: Union[list[Any], tuple[Any, ...], None] = None,
        method_kwargs: Optional[dict[str, Any]] = None,
        timeout_seconds: Union[int, float, None] = None,
        redirect_to_devnull: bool = False,
    ) -> ExecutionResults:
        """Calls a method of the worker. Never raises for what the method did, or for what cannot be
        pickled.

        Args:
            worker_execute_method_name: The name of the method.
            method_args: Its positional arguments.
            method_kwargs: Its keyword arguments.
            timeout_seconds: None for unlimited. 0 is an immediate timeout, as in py-adtools and
                unlike elsewhere in this package.
            redirect_to_devnull: Whether the output of the call is discarded; else it is printed
                when the call has ended.

        Examples:
            >>> from sandtimer.adtools import SandboxExecutor
            >>> SandboxExecutor([1, 2, 1]).secure_execute("count", [1], timeout_seconds=5)["result"]
            2
        """
        _arguments.text("worker_execute_method_name", worker_execute_method_name, "use the name of a method")
        if method_args is not None:
            _arguments.iterable("method_args", method_args)
        if method_kwargs is not None and not isinstance(method_kwargs, Mapping):
            kind = type(method_kwargs).__name__
            raise InvalidArgumentTypeError(f"method_kwargs={method_kwargs!r:.200} is of type {kind}: use a dict of keywords")
        parameters = {
            **self.sandbox_parameters,
            "timeout": timeout_seconds,
            "stdout": "drop" if redirect_to_devnull else "capture",
        }
        if _is_zero(timeout_seconds):
            return self._results(0.0, None, _TIMEOUT)
        arguments, keywords = tuple(method_args or ()), dict(method_kwargs or {})
        call = operator.methodcaller(worker_execute_method_name, *arguments, **keywords)
        with self._sandbox(parameters) as box:
            started = time.perf_counter()
            try:
                outcome = box.run(call, self.evaluate_worker)
            except UnserializableError as error:
                # As what goes wrong in a call: py-adtools has an error_msg for it, too, where it pickles.
                elapsed = time.perf_counter() - started
                why_not = _why_unsendable(
                    error, self.evaluate_worker, worker_execute_method_name, arguments, keywords, self._without_pickling
                )
                return self._results(elapsed, None, why_not)
            elapsed = time.perf_counter() - started
        if not redirect_to_devnull:
            _print(outcome)
        return self._results(elapsed, outcome.value, _why_not(outcome))

    _without_pickling = ', or use start="fork", which needs no pickling'
    # Whether calls are made on other machines than this.
    _elsewhere = False

    def _sandbox(self, parameters: Mapping[str, Any]) -> ContextManager[Any]:
        """What the call is made in: something with the method `run` of `sandtimer.Sandbox`."""
        return _shared.sandbox(parameters, warm=True)

    def _results(self, elapsed: float, value: Any, error_msg: str) -> ExecutionResults:
        if error_msg and self.debug_mode:
            print(f"DEBUG: {error_msg}")
        return ExecutionResults(result=None if error_msg else value, evaluate_time=elapsed, error_msg=error_msg)


def _is_zero(timeout_seconds: Any) -> bool:
    return isinstance(timeout_seconds, (int, float)) and not isinstance(timeout_seconds, bool) and timeout_seconds == 0


def _why_not(outcome: Outcome) -> str:
    """Why there is no result; "" where there is one."""
    error = outcome.error
    if outcome.ok:
        return ""
    if outcome.ending == "timeout":
        verdict = outcome.verdict
        if verdict is None or verdict.kind == "wall":
            return _TIMEOUT
    if outcome.ending == "raised" and isinstance(error, RemoteError) and error.remote_traceback:
        return error.remote_traceback
    if outcome.ending == "raised" and error is not None and isinstance(error.__cause__, RemoteTraceback):
        return str(error.__cause__.args[0])
    return f"{type(error).__name__}: {error}"


def _why_unsendable(
    error: UnserializableError,
    worker: Any,
    method: str,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    otherwise: str,
) -> str:
    """Which part of a call cannot be pickled, and why; the error's own words where each part can."""
    # A decorated function is called itself.
    function = getattr(worker, "_decorated", worker) if method == "__call__" else None
    name = getattr(function, "__qualname__", None)
    called = name if isinstance(name, str) else f"{type(worker).__qualname__}.{method}"
    what = "its function" if isinstance(name, str) else f"its worker, of type {type(worker).__qualname__},"
    parts = [(what, worker)]
    named = [(str(position), each) for position, each in enumerate(arguments)] + list(keywords.items())
    parts += [(f"argument {position}, of type {type(each).__qualname__},", each) for position, each in named]
    for what, part in parts:
        try:
            _job.written(part, frozenset())
        except Exception as why:
            return (
                f"UnserializableError: the call of {called} cannot be sent to a sandbox: {what} cannot be pickled "
                f"({type(why).__name__}: {why}); make that inside {called}, or leave it out by a __getstate__{otherwise}"
            )
    return f"UnserializableError: {error}"


def _print(outcome: Outcome) -> None:
    """Prints what the call printed; a stream that is closed or cannot write it is not the call's fault."""
    for stream, text in ((sys.stdout, outcome.stdout), (sys.stderr, outcome.stderr)):
        if text and stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.write(text)
                stream.flush()


@named_parameters
class SandboxExecutorRay(SandboxExecutor):
    """Calls the methods of a worker object on the machines of a Ray cluster; see `sandtimer.ray`.

    Args:
        evaluate_worker: Any object that can be pickled.
        init_ray: Whether Ray is started or joined; otherwise it must be initialised already.
        debug_mode: Whether the reason is printed when a call has no result.
        ray_rotation_max_bytes: Size of the files of the workers' output, in bytes.
        ray_rotation_backup_count: How many such files are retained.
        **process_parameters: The other parameters of `SandboxExecutor`.

    Raises:
        ImportError: Ray is not installed.

    Examples:
        >>> from sandtimer.adtools import SandboxExecutorRay
        >>> executor = SandboxExecutorRay([1, 2, 1])  # doctest: +SKIP
        >>> executor.secure_execute("count", [1], timeout_seconds=5)["result"]  # doctest: +SKIP
        2
    """

    def __init__(
        self,
        evaluate_worker: Any,
        init_ray: bool = True,
        debug_mode: bool = False,
        *,
        ray_rotation_max_bytes: int = 50 * 1024 * 1024,
        ray_rotation_backup_count: int = 1,
        **process_parameters: Any,
    ) -> None:
        try:
            import ray  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: F401
        except ImportError as error:
            raise ImportError("SandboxExecutorRay needs Ray: pip install sandtimer[ray]") from error
        super().__init__(evaluate_worker, debug_mode=debug_mode, **process_parameters)
        self.init_ray = init_ray
        self.ray_rotation_max_bytes = ray_rotation_max_bytes
        self.ray_rotation_backup_count = ray_rotation_backup_count
        self._actor_options: Mapping[str, Any] = {}
        _ray().initialize(init_ray, ray_rotation_max_bytes, ray_rotation_backup_count)

    def secure_execute(
        self,
        worker_execute_method_name: str,
        method_args: Union[list[Any], tuple[Any, ...], None] = None,
        method_kwargs: Optional[dict[str, Any]] = None,
        timeout_seconds: Union[int, float, None] = None,
        redirect_to_devnull: bool = False,
        *,
        ray_actor_options: Optional[dict[str, Any]] = None,
    ) -> ExecutionResults:
        """Calls a method of the worker on a node. Never raises for what the method did.

        Args:
            worker_execute_method_name: The name of the method.
            method_args: Its positional arguments.
            method_kwargs: Its keyword arguments.
            timeout_seconds: As for `SandboxExecutor.secure_execute`.
            redirect_to_devnull: As for `SandboxExecutor.secure_execute`.
            ray_actor_options: Resources of the actor whose node makes the call.

        Examples:
            >>> from sandtimer.adtools import SandboxExecutorRay
            >>> executor = SandboxExecutorRay([1, 2, 1])  # doctest: +SKIP
            >>> executor.secure_execute("count", [1], ray_actor_options={"num_cpus": 1})["result"]  # doctest: +SKIP
            2
        """
        executor = object.__new__(type(self))
        executor.__dict__.update(self.__dict__, _actor_options=dict(ray_actor_options or {}))
        return SandboxExecutor.secure_execute(
            executor, worker_execute_method_name, method_args, method_kwargs, timeout_seconds, redirect_to_devnull
        )

    # No actor is a fork of the driver.
    _without_pickling = ""
    _elsewhere = True

    def _sandbox(self, parameters: Mapping[str, Any]) -> ContextManager[Any]:
        box: ContextManager[Any] = _ray().sandbox(parameters, self._actor_options)
        return box


def _ray() -> Any:
    import importlib

    return importlib.import_module("sandtimer.ray")


def sandbox_run(
    sandbox_type: Literal["ray", "process"] = "process",
    timeout: Optional[float] = None,
    redirect_to_devnull: bool = False,
    ray_actor_options: Optional[dict[str, Any]] = None,
    return_raw_result: bool = True,
    **executor_init_kwargs: Any,
) -> Callable[[Any], Any]:
    """Runs each call of the decorated function or method by an executor.

    It decorates whatever `sandtimer.sandboxed` does. Inside a sandbox the function runs inline, as
    it does there.

    Args:
        sandbox_type: "process" or "ray".
        timeout: Elapsed time of each call, in seconds; None for unlimited.
        redirect_to_devnull: Whether the output of a call is discarded.
        ray_actor_options: Resources of the actor whose node makes the call.
        return_raw_result: Whether a call returns the value, or None if there is none; otherwise it
            returns `ExecutionResults`.
        **executor_init_kwargs: The parameters of the executor; those of the other type are ignored.

    Raises:
        InvalidArgumentError: A parameter has a value that cannot be used.

    Examples:
        >>> from sandtimer.adtools import sandbox_run
        >>> @sandbox_run(timeout=5.0, return_raw_result=False)
        ... def reciprocal(x):
        ...     return 1 / x
        >>> reciprocal(4)["result"], reciprocal(4)["error_msg"]
        (0.25, '')
        >>> reciprocal(0)["result"] is None
        True
    """
    if sandbox_type not in ("ray", "process"):
        raise InvalidArgumentError(f'sandbox_type={sandbox_type!r}: use "process" or "ray"')
    _arguments.limits({"timeout": timeout})
    others = _ONLY_RAY if sandbox_type == "process" else _ONLY_PROCESS
    kept = {name: value for name, value in executor_init_kwargs.items() if name not in others}
    way = _ByExecutor(sandbox_type, timeout, redirect_to_devnull, ray_actor_options, return_raw_result, kept)
    if sandbox_type == "process":
        way.executor(None)
    return lambda function: decorate(function, Decorated, way)


class _ByExecutor(Way):
    def __init__(
        self,
        sandbox_type: str,
        timeout: Optional[float],
        redirect_to_devnull: bool,
        ray_actor_options: Optional[dict[str, Any]],
        raw: bool,
        parameters: dict[str, Any],
    ) -> None:
        self.sandbox_type, self.timeout, self.redirect_to_devnull = sandbox_type, timeout, redirect_to_devnull
        self.ray_actor_options, self.raw, self.parameters = ray_actor_options, raw, parameters

    def executor(self, worker: Any) -> SandboxExecutor:
        if self.sandbox_type == "process":
            return SandboxExecutor(worker, **self.parameters)
        import ray

        init_ray = {"init_ray": not ray.is_initialized(), **self.parameters}
        return SandboxExecutorRay(worker, **init_ray)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        options: dict[str, Any] = {"ray_actor_options": self.ray_actor_options} if self.sandbox_type == "ray" else {}
        results = self.executor(function).secure_execute(
            "__call__", args, kwargs, self.timeout, self.redirect_to_devnull, **options
        )
        return results["result"] if self.raw else results

    async def acall(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return await asyncio.to_thread(self.call, function, args, kwargs)

    def inline(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.raw:
            return function(*args, **kwargs)
        if inspect.iscoroutinefunction(function):
            return self._ainline(function, args, kwargs)
        started = time.perf_counter()
        try:
            value, why_not = function(*args, **kwargs), ""
        except Exception:
            value, why_not = None, traceback.format_exc()
        return ExecutionResults(result=value, evaluate_time=time.perf_counter() - started, error_msg=why_not)

    async def _ainline(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        started = time.perf_counter()
        try:
            value, why_not = await function(*args, **kwargs), ""
        except Exception:
            value, why_not = None, traceback.format_exc()
        return ExecutionResults(result=value, evaluate_time=time.perf_counter() - started, error_msg=why_not)
