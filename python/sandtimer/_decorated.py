"""Functions whose calls go another way: what `sandboxed` and `adtools.sandbox_run` make of a function.

A `Decorated` owns nothing; its `Way` defines what a call does. One that can be imported inside is sent by its name, any other
with its code. Both arrive as the plain function.
"""

from __future__ import annotations

import asyncio
import copyreg
import functools
import importlib
import inspect
import sys
from typing import Any, Callable, Optional

from ._inside import inside
from .errors import InvalidArgumentTypeError, UnserializableError


class Way:
    """How the calls of a decorated function are done. Picklable: it may be sent along."""

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """In a sandbox."""
        raise NotImplementedError

    async def acall(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """In a sandbox, for an async function."""
        raise NotImplementedError

    def inline(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Here, inside a sandbox. For an async function, what is returned is awaited."""
        return function(*args, **kwargs)


class Decorated:
    """A function, or a function bound to the object it was found on, whose calls go a certain way."""

    def __init__(self, function: Callable[..., Any], way: Way, origin: Optional[Decorated] = None, bound: Any = None) -> None:
        self._way = way
        self._origin = origin
        self._bound: tuple[Any, ...] = () if origin is None else (bound,)
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        plain = function if origin is None else function.__get__(bound)
        functools.update_wrapper(self, plain)
        if self._is_async:
            # By this asyncio knows async functions; before Python 3.10 `inspect` knows plain ones alone.
            self._is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", None)

    def __get__(self, instance: Any, owner: Any = None) -> Decorated:
        if instance is None or self._origin is not None or not hasattr(self._function, "__get__"):
            return self
        return type(self)(self._function, self._way, self, instance)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        args = self._bound + args
        if inside():
            return self._way.inline(self._function, args, kwargs)
        if self._is_async:
            return self._way.acall(self._sent(), args, kwargs)
        return self._way.call(self._sent(), args, kwargs)

    def __getattr__(self, name: str) -> Any:
        # What else a function has, `__code__` and `__defaults__` too: by these `inspect` knows async functions.
        if name in ("__wrapped__", "_function"):
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return f"<sandboxed {self.__wrapped__!r}>"

    def _sent(self) -> Any:
        """What is sent in place of the function."""
        origin = self._origin or self
        return _Named(origin) if origin._has_name() else self._function

    def _has_name(self) -> bool:
        """Whether it is found again under its own name, in a module that can be imported."""
        module, name = getattr(self, "__module__", None), getattr(self, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
            return False
        return module in sys.modules and _resolve(sys.modules[module], name) is self

    def __reduce__(self) -> Any:
        if self._origin is not None:
            return getattr, (_Bound(self._origin, self._bound[0]), "made")
        if self._has_name():
            return _find, (self.__module__, self.__qualname__)
        # The state comes after, so that a function may refer to itself.
        return copyreg.__newobj__, (type(self),), self.__dict__  # type: ignore[attr-defined]


class _Bound:
    """Binds again where it is unpickled."""

    def __init__(self, origin: Decorated, instance: Any) -> None:
        self.origin, self.instance = origin, instance

    @property
    def made(self) -> Decorated:
        return self.origin.__get__(self.instance)


class _Named:
    """Is pickled as a decorated function's name, and unpickled as the plain function."""

    def __init__(self, decorated: Decorated) -> None:
        self._decorated = decorated

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._decorated._function(*args, **kwargs)

    def __reduce__(self) -> Any:
        return _find_plain, (self._decorated.__module__, self._decorated.__qualname__)


def _resolve(module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        try:
            found = inspect.getattr_static(found, part)
        except AttributeError:
            return None
    return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found


def _find(module: str, name: str) -> Decorated:
    found = _resolve(importlib.import_module(module), name)
    if not isinstance(found, Decorated):
        raise LookupError(f"{module}.{name} is not the decorated function that it was in the caller's process")
    return found


def _find_plain(module: str, name: str) -> Callable[..., Any]:
    return _find(module, name)._function


class _ClassMethod(classmethod):  # type: ignore[type-arg]
    """Binds as the decorated function does; since Python 3.13 a plain one makes a method that hides what the function has."""

    def __get__(self, instance: Any, owner: Optional[type] = None) -> Any:
        return self.__func__.__get__(type(instance) if owner is None else owner)

    def __reduce__(self) -> Any:
        # Classes of `__main__` are sent with all that they hold.
        return type(self), (self.__func__,)


def decorate(function: Any, kind: type[Decorated], way: Way) -> Any:
    """`function` with its calls going that way; static and class methods stay what they are."""
    if isinstance(function, staticmethod):
        return staticmethod(decorate(function.__func__, kind, way))
    if isinstance(function, classmethod):
        return _ClassMethod(decorate(function.__func__, kind, way))
    if isinstance(function, (property, functools.cached_property)):
        raise InvalidArgumentTypeError("a property cannot be run in a sandbox: decorate the function below @property")
    if isinstance(function, type) or not callable(function):
        raise InvalidArgumentTypeError(f"{function!r} cannot be run in a sandbox: decorate functions and methods")
    if isinstance(function, Decorated):
        raise InvalidArgumentTypeError(f"{function.__qualname__} is decorated already")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UnserializableError(
            f"{function.__qualname__} is a generator, which cannot leave its process; return a list of what it yields"
        )
    return kind(function, way)
