"""Jobs as bytes: what a child of a zygote reads.

A job is the length of its options (four bytes, little-endian), the options (pickled), and its body. A body or buffers too
long for a packet go into a memory file instead, each part aligned to 64 bytes, with their lengths in the options.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from typing import Any, Callable, Optional, Sequence

import cloudpickle

from .errors import Unserializable

MOST_INLINE = 56 * 1024
_LARGE = 64 * 1024
_ALIGNMENT = 64


class Job:
    """A job's bytes, and the files that go with it: its large parts, and its stdin."""

    __slots__ = ("bytes", "call", "files", "program", "scope")

    def __init__(
        self, options: dict[str, Any], body: bytes, buffers: Sequence[memoryview] = (), stdin: bytes = b""
    ) -> None:
        self.files: list[int] = []
        # For a fork of this process, which finds it in its memory.
        self.call: Optional[Callable[[], Any]] = None
        # What bounds it together with other calls.
        self.scope: Any = None
        self.program = options["kind"] == "program"
        if stdin:
            options = {**options, "stdin": True}
        head = _head(options)
        try:
            if not buffers and len(head) + len(body) <= MOST_INLINE:
                self.bytes = head + body
            else:
                parts = [memoryview(body), *buffers]
                self.bytes = _head({**options, "parts": [part.nbytes for part in parts]})
                if len(self.bytes) > MOST_INLINE:
                    raise Unserializable(f"the arguments hold {len(parts)} large buffers; put them into fewer")
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


def _head(options: dict[str, Any]) -> bytes:
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
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any], options: dict[str, Any]
) -> Job:
    """A call of a function: by reference where it can be imported, else with its code."""
    data, buffers = pickled(function, arguments, keywords)
    return Job({**options, "kind": "call"}, data, buffers)


def pickled(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[bytes, list[memoryview]]:
    """A call of a function as bytes, and the large buffers of its arguments, which are not copied."""
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LARGE:
            return True
        buffers.append(raw)
        return False

    stream = io.BytesIO()
    with contextlib.suppress(Exception):
        # Most calls are of something importable, and this is twenty times faster than finding out what is not.
        data = pickle.dumps((function, arguments, keywords), 5, buffer_callback=keep)
        if b"__main__" not in data:
            return data, buffers
    buffers.clear()
    try:
        cloudpickle.Pickler(stream, protocol=5, buffer_callback=keep).dump((function, arguments, keywords))
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        raise Unserializable(
            f"the call of {name} cannot be sent to a sandbox: {type(error).__name__}: {error}; "
            'pass what can be pickled, or use start="fork", which needs no pickling'
        ) from error
    return stream.getvalue(), buffers


def of_program(source: str, stdin: bytes, name: str, options: dict[str, Any]) -> Job:
    """A whole program."""
    body = source.encode("utf-8", "surrogatepass")
    return Job({**options, "kind": "program", "name": name}, body, stdin=stdin)


def of_fork(call: Callable[[], Any], options: dict[str, Any]) -> Job:
    """A call that a fork of this process finds in its memory."""
    job = Job({**options, "kind": "call"}, b"")
    job.call = call
    return job
