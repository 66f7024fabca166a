"""Arguments that are references to objects of Ray's.

A call's own arguments are resolved on its node, by Ray, as those of Ray's tasks are: their values reach the actor next to
the call, which stays the bytes that the driver wrote, and both are put together inside the job. References within other
arguments mean nothing in a job, which has no connection to Ray, and are refused.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Mapping, Sequence, Union

import cloudpickle
import ray

from ..errors import UnserializableError
from ..sandbox import _job

# Positions and names of arguments.
Positions = Sequence[Union[int, str]]


def taken_out(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Positions, list[Any]]:
    """Arguments without the references among them, the places of these, and they."""
    all_of_them: list[tuple[Union[int, str], Any]] = [*enumerate(args), *kwargs.items()]
    found = {position: each for position, each in all_of_them if isinstance(each, ray.ObjectRef)}
    if not found:
        return args, dict(kwargs), (), []
    positional = tuple(None if position in found else each for position, each in enumerate(args))
    named = {name: None if name in found else each for name, each in kwargs.items()}
    return positional, named, tuple(found), list(found.values())


def refuse(data: bytes, *pickled: Any) -> None:
    """Raises if these, which have the pickle `data`, hold a reference."""
    # The name of its class is in each such pickle, and most others are known by that.
    if b"ObjectRef" in data:
        _Finding(io.BytesIO(), protocol=5, buffer_callback=lambda _: None).dump(pickled)


class _Finding(cloudpickle.Pickler):  # type: ignore[misc,unused-ignore]
    def reducer_override(self, each: Any) -> Any:
        if isinstance(each, ray.ObjectRef):
            raise UnserializableError(
                "an ObjectRef within an argument or a function cannot be resolved in a sandbox: pass it as an argument of its "
                "own, or pass what ray.get returns for it"
            )
        return super().reducer_override(each)


def put_back(data: Any, buffers: Sequence[Any], positions: Positions, values: Sequence[Any]) -> tuple[bytes, list[memoryview]]:
    """The call that `data` describes, with these values as arguments, as bytes and large buffers; see `_job.pickled`."""
    separate = [pickle.PickleBuffer(each) for each in buffers]
    body, large = _job.written(_Whole(bytes(data), separate, positions, values), {__name__})
    refuse(body, *values)
    return body, large


class _Whole:
    """Becomes, where it is unpickled, what `_whole` gives; nothing of this package can be imported there."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __reduce__(self) -> Any:
        return _whole, self.parts


def _whole(data: Any, buffers: Sequence[Any], positions: Positions, values: Sequence[Any]) -> Any:
    import pickle

    # Copies, because these are not to be written where they lie, and a call may write to its arguments.
    function, args, kwargs = pickle.loads(data, buffers=[bytearray(each) for each in buffers])
    args = list(args)
    for position, value in zip(positions, values):
        if isinstance(position, int):
            args[position] = value
        else:
            kwargs[position] = value
    return function, args, kwargs
