"""Writing a result down, inside the sandbox: a pickle, and large buffers beside it.

The reader takes nothing on trust, so nothing here protects anybody: it makes honest results readable. Large buffers are
not copied into the pickle. What pickle would write as a call of a library's own function (tensors, arrow's tables) or
copy whole (bytes) is written as a call of a function named here, which the reader has its own version of.
"""

from __future__ import annotations

import io
import pickle
import sys
import types

# Not read at run time: a bare interpreter starts without `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

LARGE = 65536

# The reader knows these by this module's name; nothing is ever imported by it there.
_TOKENS = types.ModuleType("_sandtimer_tokens")


def _token(name: str) -> Any:
    def token(*_: object) -> object:
        raise RuntimeError("this stands for a function of the reader's")

    token.__module__, token.__name__, token.__qualname__ = _TOKENS.__name__, name, name
    setattr(_TOKENS, name, token)
    return token


_BYTES = _token("as_bytes")
_BYTEARRAY = _token("as_bytearray")
_TENSOR = _token("as_tensor")
_ARROW = _token("as_arrow")


class _Call:
    """Pickled as a call of a token."""

    __slots__ = ("token", "arguments")

    def __init__(self, token: Any, *arguments: object) -> None:
        self.token = token
        self.arguments = arguments

    def __reduce__(self) -> Any:
        return self.token, self.arguments


def encode(value: object, large: int = LARGE) -> tuple[bytes, list[memoryview]]:
    """The pickle of `value`, and the buffers that it leaves out, which belong to the value."""
    buffers: list[memoryview] = []
    file = io.BytesIO()

    def leave_out(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < large:
            return True
        buffers.append(raw)
        return False

    # Pickling a name looks it up in the module it is said to come from.
    sys.modules[_TOKENS.__name__] = _TOKENS
    pickler = _Pickler(file, 5, buffer_callback=leave_out)
    try:
        pickler.dump(_set_aside(value, large))
    # Methods of the value run here, so anything may come.
    except Exception as error:
        raise TypeError(_explain(value, error)) from error
    finally:
        sys.modules.pop(_TOKENS.__name__, None)
    return file.getvalue(), buffers


def _set_aside(value: Any, large: int) -> Any:
    """`value` with large bytes at its top replaced by calls: pickle has no other way to leave exact bytes out."""
    calls: dict[int, _Call] = {}

    def replaced(each: Any) -> Any:
        if not _is_set_aside(each, large):
            return each
        # What is there twice is one object for the reader as well.
        return calls.setdefault(id(each), _Call(*_as_buffer(each)))

    kind = type(value)
    if kind in (tuple, list) and any(_is_set_aside(each, large) for each in value):
        return kind(replaced(each) for each in value)
    if kind is dict and any(_is_set_aside(each, large) for each in value.values()):
        return {key: replaced(each) for key, each in value.items()}
    return replaced(value)


def _is_set_aside(value: Any, large: int) -> bool:
    kind = type(value)
    return kind is memoryview or (kind in (bytes, bytearray) and len(value) >= large)


def _as_buffer(value: Any) -> tuple[Any, object]:
    if type(value) is memoryview:
        # Pickle writes none at all. What is read from it is its bytes.
        value = value.cast("B") if value.c_contiguous and value.nbytes else value.tobytes()
        return _BYTES, pickle.PickleBuffer(value)
    return _BYTES if type(value) is bytes else _BYTEARRAY, pickle.PickleBuffer(value)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        module = getattr(kind, "__module__", None)
        if module == "torch" or module == "torch.nn.parameter":
            torch = sys.modules.get("torch")
            if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
                return _tensor(torch, value)
        elif module == "pyarrow.lib":
            arrow = sys.modules.get("pyarrow")
            if arrow is not None:
                return _arrow(arrow, value)
        return NotImplemented


def _tensor(torch: Any, tensor: Any) -> tuple[Any, tuple[object, ...]]:
    """The elements of a dense tensor in this machine's memory, in order; its strides are not kept."""
    if tensor.device.type != "cpu":
        raise TypeError(f"a tensor on {tensor.device}: return tensor.cpu()")
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(f"a tensor of layout {tensor.layout}: return a dense one")
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    name = str(plain.dtype).partition(".")[2]
    size = plain.numel() * plain.element_size()
    return _TENSOR, (
        name,
        tuple(plain.shape),
        bool(tensor.requires_grad),
        pickle.PickleBuffer(_memory(plain, size)),
    )


def _memory(tensor: Any, size: int) -> Any:
    """The tensor's own memory, without help from numpy, which may not be there."""
    if size == 0:
        return b""
    import ctypes

    memory: Any = (ctypes.c_ubyte * size).from_address(tensor.data_ptr())
    memory.tensor = tensor
    return memory


def _arrow(arrow: Any, value: Any) -> Any:
    """A table, batch or array as a stream of arrow's own format."""
    if isinstance(value, arrow.Table):
        kind, table = "table", value
    elif isinstance(value, arrow.RecordBatch):
        kind, table = "batch", arrow.Table.from_batches([value])
    elif isinstance(value, arrow.ChunkedArray):
        kind, table = "chunked_array", arrow.table({"": value})
    elif isinstance(value, arrow.Array):
        kind, table = "array", arrow.table({"": value})
    else:
        return NotImplemented
    ipc = __import__("pyarrow.ipc").ipc

    sink = arrow.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return _ARROW, (kind, pickle.PickleBuffer(sink.getvalue()))


def _explain(value: object, error: BaseException) -> str:
    """What could not be pickled, and where it is, if that is near the top."""
    place = next((where for where, part in _parts(value) if not _can_be_pickled(part)), "")
    kind = type(value)
    where = f" at {place}" if place else ""
    return f"the result of type {kind.__module__}.{kind.__qualname__} cannot be pickled{where}: {error}"


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """The values directly inside `value`, each with how to get at it."""
    if isinstance(value, dict):
        for key, part in list(value.items())[:1000]:
            yield f"[{key!r:.60}], a {type(part).__qualname__}", part
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, part in enumerate(list(value)[:1000]):
            yield f"[{index}], a {type(part).__qualname__}", part
    else:
        for name, part in list(getattr(value, "__dict__", {}).items())[:1000]:
            yield f".{name}, a {type(part).__qualname__}", part


def _can_be_pickled(value: object) -> bool:
    try:
        _Pickler(io.BytesIO(), 5, buffer_callback=lambda _: False).dump(value)
    except Exception:
        return False
    return True
