"""Jobs as bytes: what a child of a zygote reads.

A job is the length of its options (four bytes, little-endian), the options (pickled; the usual ones are left out), and
its body. A body or buffers too long for a packet go into a memory file instead, each part aligned to 64 bytes, with their
lengths in the options.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
from typing import AbstractSet, Any, Callable, Iterator, Optional, Sequence, Union

import cloudpickle

from .._locks import Guard
from ..errors import InvalidArgumentError, InvalidArgumentTypeError, UnserializableError
from ._learned import Learned, imported_by, kind_of, note

MAX_INLINE = 56 * 1024
_LARGE = 64 * 1024
_ALIGNMENT = 64


class Job:
    """A job's bytes, and the files that go with it: its large parts, and its stdin."""

    __slots__ = ("again", "bytes", "call", "files", "has_code", "is_code", "module", "needs", "program", "scope")

    def __init__(
        self, options: dict[str, Any], body: bytes, buffers: Sequence[memoryview] = (), stdin: bytes = b""
    ) -> None:
        self.files: list[int] = []
        # For a fork of this process, which finds it in its memory.
        self.call: Optional[Callable[[], Any]] = None
        # Makes it again, with what is known by then of modules that cannot be imported inside.
        self.again: Optional[Callable[[], Job]] = None
        # The module of what it calls.
        self.module: Optional[str] = None
        # Its function and arguments, and the modules that these come from; None where they are known.
        self.needs: Optional[tuple[Any, set[str]]] = None
        # What bounds it together with other calls.
        self.scope: Any = None
        # Functions or classes of it go with their code, or a string in it looks so.
        self.has_code = False
        self.program = options["kind"] == "program"
        # Its code arrives as text, and not as a function of this process.
        self.is_code = self.program
        if stdin:
            options = {**options, "stdin": True}
        head = _head(options)
        try:
            if not buffers and len(head) + len(body) <= MAX_INLINE:
                self.bytes = head + body
            else:
                parts = [memoryview(body), *buffers]
                self.bytes = _head({**options, "parts": [part.nbytes for part in parts]})
                if len(self.bytes) > MAX_INLINE:
                    raise UnserializableError(f"the arguments hold {len(parts)} large buffers; put them into fewer")
                self.files.append(_write(parts))
            if stdin:
                self.files.append(_write([memoryview(stdin)]))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        while self.files:
            os.close(self.files.pop())

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# MAX_ARG_STRLEN of Linux, without the NUL.
_MAX_ARGUMENT_BYTES = 128 * 1024 - 1


def arguments(argv: Sequence[Union[str, bytes, "os.PathLike[Any]"]]) -> list[bytes]:
    """The arguments of a command as the kernel takes them."""
    if isinstance(argv, (str, bytes)):
        remedy = f'use a list of arguments, or ["sh", "-c", {argv!r}] for a command of a shell'
        raise InvalidArgumentTypeError(f"argv={argv!r} is one string: {remedy}")
    encoded = []
    for argument in argv:
        try:
            # Surrogates that stand for bytes, as in sys.argv and the names of files, become those bytes.
            encoded.append(os.fsencode(argument))
        except TypeError as error:
            raise InvalidArgumentTypeError(f"argv has {argument!r}: use strings, bytes and paths") from error
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"argv has {argument!r}, which is not a string in UTF-8: {error.reason}") from error
        if b"\0" in encoded[-1]:
            raise InvalidArgumentError(f"argv has {argument!r}: an argument cannot hold a NUL byte")
        if len(encoded[-1]) > _MAX_ARGUMENT_BYTES:
            raise InvalidArgumentError(
                f"argv[{len(encoded) - 1}] has {len(encoded[-1])} bytes, and the kernel takes at most {_MAX_ARGUMENT_BYTES} in one "
                "argument: use exec() for a program in Python, or pass the text by stdin= (`python3 -`, `bash -s`, `node -`)"
            )
    if not encoded:
        raise InvalidArgumentError("argv is empty: its first element is the program")
    return encoded


# What a job without options asks for, as its reader knows.
_PLAIN_CALL = {"kind": "call", "seed": None, "stdout": "capture"}


def _head(options: dict[str, Any]) -> bytes:
    if options == _PLAIN_CALL:
        return bytes(4)
    pickled = pickle.dumps(options, 5)
    return len(pickled).to_bytes(4, "little") + pickled


def _write(parts: Sequence[memoryview]) -> int:
    file = os.memfd_create("sandtimer-job", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        start = 0
        for part in parts:
            rest, at = part.cast("B"), start
            while rest.nbytes:
                written = os.pwrite(file, rest, at)
                rest, at = rest[written:], at + written
            start += -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT
        import fcntl

        f_add_seals, seals = 1033, 0x1 | 0x2 | 0x4 | 0x8
        fcntl.fcntl(file, f_add_seals, seals)
    except BaseException:
        os.close(file)
        raise
    return file


def of_call(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    options: dict[str, Any],
    by_value: AbstractSet[str] = frozenset(),
    learned: Optional[Learned] = None,
) -> Job:
    """A call of a function: by reference where it can be imported, else with its code; so are modules in `by_value`."""
    modules: Optional[set[str]] = None if learned is None or learned.is_known(function, arguments) else set()
    data, buffers = pickled(function, arguments, keywords, by_value, modules)
    job = Job({**options, "kind": "call"}, data, buffers)
    job.module = getattr(function, "__module__", None)
    job.has_code = cloudpickle.Pickler.__module__.encode() in data
    if modules is not None:
        # What goes along with its code is not imported.
        job.needs = kind_of(function, arguments), needed(function, modules, by_value)
    job.again = lambda: of_call(function, arguments, keywords, options, by_value)
    return job


def of_code(
    entering: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], hidden: AbstractSet[str]
) -> Job:
    """A call of a function that a source defines. Raises `UnserializableError` for arguments of modules in `hidden`."""
    data, buffers = pickled(entering, arguments, {})
    if any(name.encode("utf-8", "replace") in data for name in hidden):
        module = next((name for name in _modules_in(arguments) if name in hidden), None)
        if module is not None:
            file = getattr(sys.modules.get(module), "__file__", None) or ""
            directory = os.path.dirname(os.path.abspath(file))
            raise UnserializableError(
                f"the arguments hold something of the module {module!r} in {directory}, which is hidden from code that arrives "
                f"as text; pass plain data, or add paths= of the directory that {module!r} is imported from to the sandbox"
            )
    job = Job({**options, "kind": "call"}, data, buffers)
    job.is_code = True
    return job


def needed(function: Callable[..., Any], modules: set[str], by_value: AbstractSet[str]) -> set[str]:
    """The modules that a call imports: those that pickling it has found, and those of the function's own statements."""
    return {*modules.difference(by_value), *imported_by(function)}


class _Collector(cloudpickle.Pickler):  # type: ignore[misc]
    """Notes the modules of the classes and functions in what it pickles."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), protocol=5, buffer_callback=lambda _: False)
        self.modules: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        for each in (value, type(value)):
            module = getattr(each, "__module__", None) if callable(each) else None
            if isinstance(module, str):
                self.modules.add(module)
        return super().reducer_override(value)


def _modules_in(value: Any) -> set[str]:
    collector = _Collector()
    collector.dump(value)
    return collector.modules


def pickled(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    by_value: AbstractSet[str] = frozenset(),
    modules: Optional[set[str]] = None,
) -> tuple[bytes, list[memoryview]]:
    """A call of a function as bytes, and the large buffers of its arguments, which are not copied; adds the modules that it needs."""
    try:
        return written((function, arguments, keywords), by_value, modules)
    except Exception as error:
        raise UnserializableError(
            f"the call of {_named(function)} cannot be sent to a sandbox: {type(error).__name__}: {error}; "
            'pass what can be pickled, or use start="fork", which needs no pickling'
        ) from error


class _Noting(pickle.Pickler):
    """Notes the modules of what it pickles."""

    def __init__(self, modules: set[str], *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._modules = modules

    def reducer_override(self, value: Any) -> Any:
        note(value, self._modules)
        return NotImplemented


def _by_reference(
    value: Any, keep: Callable[[pickle.PickleBuffer], bool], modules: Optional[set[str]]
) -> Optional[bytes]:
    try:
        if modules is None:
            return pickle.dumps(value, 5, buffer_callback=keep)
        stream = io.BytesIO()
        _Noting(modules, stream, 5, buffer_callback=keep).dump(value)
        return stream.getvalue()
    except Exception:
        return None


def written(
    value: Any, by_value: AbstractSet[str], modules: Optional[set[str]] = None
) -> tuple[bytes, list[memoryview]]:
    """A value as bytes, and its large buffers: by reference where that can be imported, else with its code."""
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LARGE:
            return True
        buffers.append(raw)
        return False

    # Most calls are of something importable, and this is twenty times faster than finding out what is not.
    data = None if by_value else _by_reference(value, keep, modules)
    if data is None or b"__main__" in data:
        buffers.clear()
        stream = io.BytesIO()
        with _with_code(by_value):
            _Pickler(modules, stream, protocol=5, buffer_callback=keep).dump(value)
        data = stream.getvalue()
    return data, buffers


def _named(function: Any) -> str:
    try:
        return str(getattr(function, "__qualname__", None) or f"{function!r:.200}")
    except Exception:
        # Its own code may fail, where that is why it cannot be sent.
        return type(function).__name__


# Run inside, which needs nothing of this package there.
_NAMED = (
    "(lambda kind, sys: (setattr([sys.modules.setdefault(each, type(sys)(each)) for each in modules][-1], name, kind), kind))"
    "(make(*of), __import__('sys'))[1]"
)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Classes that go along with their code are found inside under their names, so that results may be of them."""

    def __init__(self, modules: Optional[set[str]], *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._modules = modules
        self._named: dict[tuple[str, str], type] = {}

    def reducer_override(self, value: Any) -> Any:
        if self._modules is not None:
            note(value, self._modules)
        reduced = super().reducer_override(value)
        # Of these six parts are the classes that are rebuilt, and nothing else.
        if not isinstance(value, type) or not isinstance(reduced, tuple) or len(reduced) != 6 or "." in value.__qualname__:
            return reduced
        first = self._named.setdefault((value.__module__, value.__qualname__), value)
        if first is not value and getattr(sys.modules.get(value.__module__), value.__qualname__, None) is not value:
            # A frozen dataclass with slots holds, in its methods, the class of the same name that it was made from.
            return reduced
        make, of, *rest = reduced
        parts = value.__module__.split(".")
        modules = [".".join(parts[: length + 1]) for length in range(len(parts))]
        names = {"make": make, "of": of, "modules": modules, "name": value.__qualname__}
        return (eval, (_NAMED, names), *rest)


_registering = Guard()


@contextlib.contextmanager
def _with_code(names: AbstractSet[str]) -> Iterator[None]:
    """Within it, functions and classes of these modules are pickled with their code."""
    if not names:
        yield
        return
    with _registering.lock:
        # What others have registered stays.
        ours = [sys.modules[name] for name in names if name in sys.modules and name not in cloudpickle.list_registry_pickle_by_value()]
        for module in ours:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in ours:
                cloudpickle.unregister_pickle_by_value(module)


def strip_bom(source: str) -> str:
    """A program's text without the byte order mark that editors of Windows put in front of it."""
    return source[1:] if source.startswith("\ufeff") else source


def of_program(source: str, stdin: bytes, name: str, options: dict[str, Any]) -> Job:
    """A whole program."""
    body = strip_bom(source).encode("utf-8", "surrogatepass")
    return Job({**options, "kind": "program", "name": name}, body, stdin=stdin)


def of_compiled(code: bytes, stdin: bytes, name: str, options: dict[str, Any]) -> Job:
    """A whole program that was compiled by `_submission` in the same interpreter: its marshalled source and code."""
    return Job({**options, "kind": "program", "name": name, "compiled": True}, code, stdin=stdin)


def of_fork(call: Callable[[], Any], options: dict[str, Any]) -> Job:
    """A call that a fork of this process finds in its memory."""
    job = Job({**options, "kind": "call"}, b"")
    job.call = call
    return job
