"""The decorator `sandboxed`."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Callable, Mapping, TypeVar, overload

from .._decorated import Decorated, Way, decorate
from .._inside import inside
from .._outcome import Outcome
from . import _shared

R = TypeVar("R")
if TYPE_CHECKING:
    from typing import ParamSpec, Protocol

    from typing_extensions import Unpack

    from .._choices import SandboxOptions, Seconds

    P = ParamSpec("P")
    S = TypeVar("S", covariant=True)

    class Sandboxed(Protocol[P, S]):
        """A decorated function, as a type checker sees it. `outcome` of an async function is awaited."""

        @property
        def __wrapped__(self) -> Callable[..., S]: ...
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> S: ...
        def outcome(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
        # Through a class or an object: a checker does not know whether there is a first argument to be bound.
        def __get__(self, instance: Any, owner: Any = None) -> Sandboxed[..., S]: ...

    class Decorator(Protocol):
        """What `sandboxed(…)` gives."""

        def __call__(self, function: Callable[P, R], /) -> Sandboxed[P, R]: ...


@overload
def sandboxed(timeout: Callable[P, R], /) -> Sandboxed[P, R]: ...
@overload
def sandboxed(timeout: Seconds = None, **parameters: Unpack[SandboxOptions]) -> Decorator: ...
def sandboxed(timeout: Any = None, **parameters: Any) -> Any:
    """Runs each call of the decorated function in a sandbox.

    For functions, methods, static and class methods (above or below `@staticmethod` and
    `@classmethod`), and async functions, whose calls are then awaited. A call returns the value of
    the function, or raises what `Sandbox.call` raises. `f.outcome(…)` returns an `Outcome`, and
    never raises for what the function did. `f.__wrapped__` is the function itself.

    - Inside a sandbox the function, and every other decorated one, is plain: it may call itself, in
      the same process and under the limits of the outermost call.
    - Arguments, including `self`, are copies: changes of a method to its object stay in the
      sandbox.
    - A function of a module is imported inside, with its module, as `Sandbox.call` does; if that
      takes long, name the module in `preload`. A function of `__main__`, or one defined in a
      function, is sent with its code.
    - Generators are rejected: they cannot leave their process.
    - `outcome` of a class method needs the decorator above `@classmethod`, since Python 3.13.
    - Functions with the same interpreter and preloaded modules share the warm processes.

    Args:
        timeout: Elapsed time of each call, in seconds; None for unlimited. Or the function, if the
            decorator is used without parentheses.
        **parameters: The other parameters of `Sandbox`.

    Raises:
        InvalidArgumentError: A parameter has a value that cannot be used.
        InvalidArgumentTypeError: A parameter has a type that cannot be used, or a generator is
            decorated.

    Examples:
        >>> import sandtimer
        >>> @sandtimer.sandboxed(timeout=5.0)
        ... def product(numbers):
        ...     result = 1
        ...     for number in numbers:
        ...         result *= number
        ...     return result
        >>> product([2, 3, 7])
        42
        >>> product.outcome(["a", None]).ending
        'raised'
    """
    if callable(timeout) or isinstance(timeout, (staticmethod, classmethod, property, functools.cached_property)):
        return decorate(timeout, _Function, _InSandbox(parameters))
    parameters["timeout"] = timeout
    _shared.check(parameters)
    return lambda function: decorate(function, _Function, _InSandbox(parameters))


class _InSandbox(Way):
    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = parameters

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with _shared.sandbox(self.parameters) as box:
            return box.call(function, *args, **kwargs)

    async def acall(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with _shared.sandbox(self.parameters) as box:
            return await box.acall(function, *args, **kwargs)

    def outcome(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        with _shared.sandbox(self.parameters) as box:
            return box.run(function, *args, **kwargs)

    async def aoutcome(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        with _shared.sandbox(self.parameters) as box:
            return await box.arun(function, *args, **kwargs)


class _Function(Decorated):
    _way: _InSandbox

    def outcome(self, /, *args: Any, **kwargs: Any) -> Any:
        """As a call, but gives an Outcome, and never raises for what the function did."""
        args = self._bound + args
        if self._is_async:
            return self._inline_async(args, kwargs) if inside() else self._way.aoutcome(self._sent(), args, kwargs)
        if not inside():
            return self._way.outcome(self._sent(), args, kwargs)
        try:
            return _inline_outcome(value=self._function(*args, **kwargs))
        except Exception as error:
            return _inline_outcome(error=error)

    async def _inline_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        try:
            return _inline_outcome(value=await self._function(*args, **kwargs))
        except Exception as error:
            return _inline_outcome(error=error)


def _inline_outcome(value: Any = None, error: Any = None) -> Outcome:
    return Outcome(_Inline(), "returned" if error is None else "raised", value, error)


class _Inline:
    """The end of a call that had no process of its own: whatever is known of it, its caller's outcome will say."""

    id = "inline"

    def outcome(self, settled: bool) -> str:
        return json.dumps(
            {
                "run_id": self.id,
                "ending": "returned",
                "ok": True,
                "exit_code": None,
                "signal": None,
                "stdout": "",
                "stderr": "",
                "stdout_truncated": False,
                "stderr_truncated": False,
                "encoding": "utf-8",
                "verdict": None,
                "tree": {"killed": 0, "survivors": None, "proof": "inline", "dead_after_ms": None},
                "state": "none",
                "usage": dict.fromkeys(
                    ("wall_ms", "user_ms", "system_ms", "memory_peak_bytes", "processes_peak", "run_queue_ms", "queued_ms", "spawn_ms")
                ),
                "isolation": {"tier": "unknown", "kill": "unknown", "deadline_layers": [], "degraded": []},
                "path": "inline",
            }
        )
