"""Carries a value the way a result goes: encoded by the source that is shipped to the sandbox, decoded by the module."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any, Callable, Iterable

from sandtimer import _results, _sandtimer

BOUNDS = _results.bounds(None, None, 0)


def _encoder() -> Callable[..., tuple[bytes, list[memoryview]]]:
    source, _ = _sandtimer.child_source()
    names: dict[str, Any] = {"__name__": "sandtimer_child", "__file__": "child.py"}
    exec(compile(source, "child.py", "exec"), names)
    return names["encode"]


encode = _encoder()


def decode(
    data: bytes,
    buffers: Iterable[Any] = (),
    results: Iterable[type] = (),
    **bounds: Any,
) -> Any:
    classes = {(each.__module__, each.__qualname__): each for each in results}
    return _sandtimer.decode(data, list(buffers), classes, BOUNDS._replace(**bounds))


def copied(buffers: Iterable[memoryview]) -> list[bytes | bytearray]:
    """As the caller holds them: memory of its own, writable unless they were bytes."""
    return [bytes(each) if each.readonly else bytearray(each) for each in buffers]


def carried(value: Any, results: Iterable[type] = (), large: int = 65536) -> Any:
    data, buffers = encode(value, large)
    return decode(data, copied(buffers), results)


def pickled(value: Any, results: Iterable[type] = (), **bounds: int) -> Any:
    return decode(pickle.dumps(value, 5), (), results, **bounds)


def does_harm(data: bytes, mark: str = "HARM", before: str = "") -> bool:
    """The control: whether plain `pickle.loads` of `data`, in a process of its own, prints the mark."""
    code = f"{before}\nimport pickle, sys\npickle.loads(sys.stdin.buffer.read())"
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, timeout=120)
    return mark.encode() in done.stdout
