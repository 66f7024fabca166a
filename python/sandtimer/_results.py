"""Answers of jobs as values and exceptions."""

from __future__ import annotations

import ctypes
import functools
import io
import mmap
import pickle
import sys
from typing import Any, Callable, NamedTuple, Optional, Sequence

from .errors import Crashed, RemoteError, ResultTooLargeError, SandtimerError, UnserializableError

_HUGE_PAGE = 2 << 20
# 4,300 decimal digits, as many as CPython converts to text.
_INT_BITS = 14_300
# Rebuilt for one result. An object takes some 70 bytes here and may take one byte in its pickle.
_MAX_OBJECTS = 10_000_000
_MIN_OBJECTS = 100_000
_BYTES_PER_OBJECT = 16
# Copied while one result is rebuilt: what a small limit allows, and no limit.
_MIN_COPIED_BYTES = 16 << 20
_COPIED_BYTES = 1 << 30
# Of processor time: rebuilding may take as long as the call itself, within these.
_MIN_CPU_SECONDS, _MAX_CPU_SECONDS = 10.0, 60.0
# The module of names that stand for functions of the reader.
_TOKENS = "_sandtimer_tokens"


class Bounds(NamedTuple):
    """What rebuilding one result with `trust="data"` may cost its reader."""

    int_bits: int
    objects: int
    # Out of the result's own bytes, which may be used for several values.
    copied_bytes: int
    cpu_seconds: float


def bounds(result_bytes: Optional[int], wall_seconds: Optional[float], size: int) -> Bounds:
    """The bounds of a result of `size` bytes from a call with these limits (None: unlimited)."""
    if result_bytes is None:
        objects, copied = _MAX_OBJECTS, max(_COPIED_BYTES, size)
    else:
        objects = min(max(result_bytes // _BYTES_PER_OBJECT, _MIN_OBJECTS), _MAX_OBJECTS)
        copied = max(result_bytes, _MIN_COPIED_BYTES)
    seconds = min(max(wall_seconds or _MAX_CPU_SECONDS, _MIN_CPU_SECONDS), _MAX_CPU_SECONDS)
    return Bounds(_INT_BITS, objects, copied, seconds)


# Of a result that is small: an exception.
SMALL = bounds(0, _MIN_CPU_SECONDS, 0)


class RemoteTraceback(Exception):
    """The traceback inside the sandbox, shown as the cause of what is raised here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class MissingModule(UnserializableError):
    """The call needs a module that cannot be imported inside."""

    def __init__(self, name: str, why: Optional[str] = None) -> None:
        super().__init__(
            why
            or f"the call needs the module {name}, which cannot be imported inside: its directory is hidden, because it is a "
            "home or temporary, or it is not on sys.path; move it, or preload the module or its package"
        )
        self.name = name
        self.why = why

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.why), self.__dict__


def fetch(call: Any, parts: Sequence[tuple[int, bool]], inline: bytes) -> tuple[bytes, list[Any]]:
    """The written-down answer and its large buffers, each copied once: from the job's memory to where they stay."""
    limit = call.result_limit()
    size = sum([length for length, _ in parts], len(inline)) if parts else len(inline)
    if limit is not None and size > limit:
        raise ResultTooLargeError(
            f"the result has {size} bytes, more than the {limit} of result_bytes; return less, or allow more"
        )
    buffers: list[Any] = []
    for index, (length, immutable) in enumerate(parts):
        if immutable or length == 0:
            try:
                buffers.append(call.read_bytes(index))
            except (MemoryError, OverflowError) as error:
                raise _no_room(length, error) from error
            continue
        try:
            memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise _no_room(length, error) from error
        if length >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        view = (ctypes.c_char * length).from_buffer(memory)
        call.read(index, ctypes.addressof(view))
        del view
        buffers.append(memoryview(memory))
    if inline or not buffers:
        return inline, buffers
    return bytes(buffers[0]), buffers[1:]


def _no_room(length: int, error: Exception) -> ResultTooLargeError:
    return ResultTooLargeError(f"there is no room here for a part of {length} bytes of the result: {error!r}")


def value(
    data: bytes,
    buffers: Sequence[Any],
    trust: str,
    results: dict[tuple[str, str], type],
    within: Bounds = SMALL,
) -> Any:
    """The value that was written down; with `trust="data"` within these bounds."""
    if trust == "pickle":
        # Most results have none, and this is faster.
        unpickler = _Unpickler if _TOKENS.encode() in data else pickle.Unpickler
        return unpickler(io.BytesIO(data), buffers=buffers).load()
    return decode(data, buffers, results, within)


class _Unpickler(pickle.Unpickler):
    """Knows what the encoder inside writes in place of large bytes, tensors and arrow's tables, which lie in the buffers."""

    def find_class(self, module: str, name: str) -> Any:
        if module != _TOKENS:
            return super().find_class(module, name)
        from ._rebuild import VALUES

        if (module, name) not in VALUES:
            raise pickle.UnpicklingError(f"the result names {name!r:.100} among what stands for large values, which is not there")
        known = VALUES[module, name]
        return known.rebuild if known.signatures else lambda *arguments: known.rebuild(arguments)


def decode(
    data: bytes, buffers: Sequence[Any], results: dict[tuple[str, str], type], within: Bounds
) -> Any:
    """As `trust="data"` allows: built by our own machine, without running anything that the job named."""
    return _native_decode()(data, list(buffers), results, within)


@functools.lru_cache(maxsize=None)
def _native_decode() -> Any:
    from ._sandtimer import decode as native

    return native


def exception(description: Any, trust: str, results: dict[tuple[str, str], type]) -> BaseException:
    """What the job raised: itself where it may be rebuilt, else a RemoteError."""
    if not isinstance(description, dict):
        return SandtimerError("the job described its exception in an unknown form")
    text = {name: str(description.get(name, "")) for name in ("type", "module", "message", "traceback")}
    pickled = description.get("pickled")
    error: Any = None
    if isinstance(pickled, bytes):
        try:
            error = value(pickled, [], trust, results, SMALL)
        except Exception:
            error = None
    if not isinstance(error, BaseException):
        name = text["type"] if text["module"] in ("builtins", "") else f"{text['module']}.{text['type']}"
        return RemoteError(name, text["message"], text["traceback"])
    error.__cause__ = RemoteTraceback(text["traceback"])
    return error


def _versions(version: str) -> tuple[str, str]:
    """The minor versions of Python here and inside; the second is "" where it is not known."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}", ".".join(version.split(".")[:2])


def explain_unread_code(error: BaseException, ending: str, interpreter: str, version: str) -> Optional[SandtimerError]:
    """What to say in place of the error of a call that went with its code to another interpreter, where that cannot read the code."""
    ours, inside = _versions(version)
    trace = str(error.__cause__.args[0]) if isinstance(error.__cause__, RemoteTraceback) else ""
    # No frame of the call's own was there yet.
    is_unread = ending == "raised" and isinstance(error, (AttributeError, TypeError)) and '  File "' not in trace
    goes_with = "lambdas, and functions and classes of __main__ or of modules that are not found inside, are sent with their code: that needs the same"
    remedy = "or put the function into a module that this interpreter finds"
    if inside and inside != ours and (is_unread or ending == "signaled"):
        why = f"{error}: {goes_with} Python as here ({ours}), and {interpreter} is Python {inside}; use python= of a Python {ours}, {remedy}"
        return Crashed(why) if ending == "signaled" else UnserializableError(why)
    if is_unread and "cloudpickle" in str(error):
        import cloudpickle

        known = cloudpickle.__version__
        return UnserializableError(
            f"{error}: {goes_with} cloudpickle as here ({known}), and {interpreter} has another one; install cloudpickle=={known} there, {remedy}"
        )
    return None


def _no_code_there(name: str, interpreter: str, version: str) -> MissingModule:
    """What a function that goes with its code meets in another interpreter, which has no cloudpickle."""
    ours, inside = _versions(version)
    is_another = f"that is Python {inside} instead of {ours}, and" if inside and inside != ours else "it"
    return MissingModule(
        name,
        "lambdas, and functions and classes of __main__ or of modules that are not found inside, are sent with their code: that needs "
        f"cloudpickle, and the same Python as here ({ours}), in {interpreter}; {is_another} has no cloudpickle; put the function "
        f"into a module that this interpreter finds, or use python= of a Python {ours} with cloudpickle",
    )


def rejection(reason: Any, other: Callable[[], Optional[tuple[str, str]]] = lambda: None) -> SandtimerError:
    """Why a value could not be written down, or a call not begun; `other`: path and version of another interpreter."""
    if isinstance(reason, tuple) and len(reason) == 2 and reason[0] == "generator":
        return UnserializableError(
            f"the call returned a {reason[1]}, which cannot leave its process; return a list of what it yields"
        )
    if isinstance(reason, tuple) and len(reason) == 2 and reason[0] == "module":
        name, inside = str(reason[1]), other()
        is_of_code = name.partition(".")[0] == "cloudpickle"
        return _no_code_there(name, *inside) if is_of_code and inside is not None else MissingModule(name)
    if isinstance(reason, tuple) and len(reason) == 3:
        return UnserializableError(
            f"the result, a {reason[1]}, cannot be sent back: {reason[2]}; return plain data instead"
        )
    return SandtimerError("the result could not be sent back, and the job gave no known reason")
