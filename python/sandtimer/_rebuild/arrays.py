"""Arrays of numpy and tensors of torch: descriptions that are checked, over bytes that are data whatever they are.

The libraries are imported by their own names when a result has something of theirs. What is refused everywhere is
anything whose bytes are not data: elements that are Python objects, types with code of their own.
"""

from __future__ import annotations

import importlib
import math
import re
from typing import Any

from .common import Arguments, Unbuilt, Value, is_one_of, refuse

_BUFFERS = (bytes, bytearray, memoryview)
_MAX_FIELDS = 10_000
# How often fields may lie over the same bytes, on average.
_MAX_OVERLAP = 64
# A flag of numpy's: the fields lie as a C compiler would put them.
_ALIGNED = 0x80


def _numpy() -> Any:
    return importlib.import_module("numpy")


def _is_dtype(value: object) -> bool:
    return issubclass(type(value), _numpy().dtype)


class _Array:
    """Stands for `numpy.ndarray` among arguments."""


def _is_shape(shape: object) -> bool:
    # More than that no array has, and the product of larger numbers takes its time.
    return type(shape) is tuple and len(shape) <= 64 and all(type(each) is int and 0 <= each < 1 << 63 for each in shape)


_TYPE_CODE = re.compile(r"(?:[biufcSUV][0-9]{1,9}|[mM]8)")
_UNITS = frozenset(["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic"])


def _dtype(arguments: Arguments) -> Unbuilt:
    code = arguments[0] if arguments else None
    if type(code) is not str or not all(is_one_of(each, bool, int) for each in arguments[1:]):
        refuse("a numpy dtype is not made of such arguments")
    if code.startswith("O"):
        refuse(
            'a numpy array of Python objects (dtype object), which trust="data" does not rebuild: '
            'return array.tolist(), or use trust="pickle" if you vouch for the code'
        )
    if not _TYPE_CODE.fullmatch(code):
        refuse(f"numpy's dtype {code[:40]!r} is not known")
    return Unbuilt(lambda state: _build_dtype(code, state))


def _build_dtype(code: str, state: object) -> Any:
    if type(state) is not tuple or len(state) not in (8, 9):
        refuse("the state of a numpy dtype is not known")
    _, order, subarray, names, fields, size, _, flags = state[:8]
    if type(order) is not str or order not in ("<", ">", "|", "="):
        refuse("a numpy dtype has no byte order")
    numpy = _numpy()
    if code in ("M8", "m8"):
        made = numpy.dtype(order.replace("|", "=") + code + _unit(state[8] if len(state) == 9 else None))
    elif subarray is not None:
        made = _subarray(numpy, subarray)
    elif names is not None:
        made = _structure(numpy, names, fields, size, type(flags) is int and flags & _ALIGNED != 0)
    else:
        made = numpy.dtype(order + code)
    if made.hasobject:
        refuse("a numpy dtype has Python objects")
    return made


def _unit(metadata: object) -> str:
    if metadata is None:
        return ""
    if (
        type(metadata) is tuple
        and len(metadata) == 2
        and type(metadata[1]) is tuple
        and len(metadata[1]) == 4
    ):
        unit, number, divisor, events = metadata[1]
        unit = unit.decode("ascii", "replace") if type(unit) is bytes else unit
        whole = type(number) is int and 0 < number < 1 << 31 and divisor == 1 and type(divisor) is int
        if type(unit) is str and unit in _UNITS and whole and type(events) is int:
            return "" if unit == "generic" else f"[{number}{unit}]"
    refuse("a numpy dtype has a unit of time that is not known")


def _subarray(numpy: Any, subarray: object) -> Any:
    if type(subarray) is tuple and len(subarray) == 2:
        base, shape = subarray
        shape = (shape,) if type(shape) is int else shape
        if _is_dtype(base) and _is_shape(shape):
            return numpy.dtype((base, shape))
    refuse("a numpy dtype has a subarray that is not known")


def _structure(numpy: Any, names: object, fields: object, size: object, aligned: bool) -> Any:
    if (
        type(names) is not tuple
        or type(fields) is not dict
        or type(size) is not int
        or len(names) > _MAX_FIELDS
    ):
        refuse("the fields of a numpy dtype are not known")
    formats, offsets = [], []
    for name in names:
        field = fields.get(name) if type(name) is str else None
        if type(field) is not tuple or len(field) != 2:
            refuse("the fields of a numpy dtype are not known")
        if not _is_dtype(field[0]) or type(field[1]) is not int or field[1] < 0:
            refuse("the fields of a numpy dtype are not known")
        formats.append(field[0])
        offsets.append(field[1])
    layout = {"names": list(names), "formats": formats, "offsets": offsets, "itemsize": size}
    return numpy.dtype(layout, align=aligned)


def _array(buffer: object, dtype: Any, shape: Any, order: object) -> Any:
    """An array over `buffer`, which has to be exactly as long as its description requires."""
    numpy = _numpy()
    if not is_one_of(buffer, *_BUFFERS) or not _is_dtype(dtype) or dtype.hasobject:
        refuse("a numpy array is not made of a buffer and a dtype")
    if not _is_shape(shape) or type(order) is not str or order not in ("C", "F"):
        refuse("the shape of a numpy array is not known")
    length = memoryview(buffer).nbytes  # type: ignore[arg-type]
    if dtype.itemsize == 0 or math.prod(shape) * dtype.itemsize != length:
        refuse(f"a numpy array's buffer has {length} bytes, which does not match its shape and type")
    if _bytes_inspected(dtype, [_MAX_FIELDS]) > _MAX_OVERLAP * dtype.itemsize:
        refuse("the fields of a numpy array overlap too often")
    array = numpy.ndarray(shape, dtype, buffer=buffer, order=order)
    _check_elements(numpy, array)
    return array


def _bytes_inspected(dtype: Any, fields_left: list[int]) -> int:
    """How many bytes of an element are looked at in all: those where fields overlap, or that are part of many, once for each."""
    base = dtype.base
    if not base.names:
        return int(dtype.itemsize)
    fields_left[0] -= len(base.names)
    if fields_left[0] < 0:
        refuse(f"a numpy array has more than {_MAX_FIELDS} fields")
    each = sum(1 + _bytes_inspected(base.fields[name][0], fields_left) for name in base.names)
    # The bytes of a subarray are those of all its elements.
    return each * int(dtype.itemsize // max(base.itemsize, 1))


# Elements that are not any bytes at all: as what they are read, and the largest there is.
_LARGEST = {"b": ("u1", 1), "U": ("u4", 0x10FFFF)}


def _check_elements(numpy: Any, array: Any) -> None:
    dtype = array.dtype
    for name in dtype.names or ():
        _check_elements(numpy, array[name])
    if dtype.kind in _LARGEST and array.size:
        kind, largest = _LARGEST[dtype.kind]
        swapped = dtype.byteorder == ">"
        plain = numpy.ascontiguousarray(array).reshape(-1).view(">" + kind if swapped else kind)
        if int(plain.max()) > largest:
            refuse("a numpy array has invalid truth values or characters")


def _from_buffer(arguments: Arguments) -> Any:
    if len(arguments) not in (4, 5):
        refuse("a numpy array is not made of such arguments")
    buffer, dtype, shape, order = arguments[:4]
    if len(arguments) == 4 or order != "K":
        return _array(buffer, dtype, shape, order)
    axes = arguments[4]
    if not _is_shape(axes):
        refuse("the axes of a numpy array are not known")
    return _array(buffer, dtype, shape, "C").transpose(axes)


def _reconstruct(arguments: Arguments) -> Unbuilt:
    if len(arguments) != 3 or arguments[0] is not _Array:
        refuse("an array of a class of its own: return numpy.asarray(it)")
    return Unbuilt(_build_array)


def _build_array(state: object) -> Any:
    if type(state) is not tuple or len(state) != 5 or type(state[4]) is not bytes:
        refuse("the state of a numpy array is not known")
    _, shape, dtype, is_fortran, content = state
    return _array(bytearray(content), dtype, shape, "F" if is_fortran is True else "C")


def _scalar(arguments: Arguments) -> Any:
    if len(arguments) != 2 or type(arguments[1]) is not bytes:
        refuse("a numpy scalar is not made of such arguments")
    content, dtype = arguments[1], arguments[0]
    if not content and _is_dtype(dtype) and dtype.kind in "SU" and dtype.itemsize == 0:
        return dtype.type()
    return _array(content, dtype, (), "C")[()]


def _no_array(arguments: Arguments) -> object:
    refuse("a numpy array is not made of such arguments")


VALUES: dict[tuple[str, str], Value] = {
    ("numpy", "ndarray"): Value(_no_array, type_object=_Array),
    ("numpy", "dtype"): Value(_dtype),
}
for _package in ("numpy.core", "numpy._core"):
    VALUES[f"{_package}.numeric", "_frombuffer"] = Value(_from_buffer)
    VALUES[f"{_package}.multiarray", "_reconstruct"] = Value(_reconstruct)
    VALUES[f"{_package}.multiarray", "scalar"] = Value(_scalar, hashable=True)


_TENSORS = {
    "bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2,
    "float32": 4, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


def _tensor(arguments: Arguments) -> Any:
    if len(arguments) != 4:
        refuse("a tensor is not made of such arguments")
    name, shape, requires_grad, buffer = arguments
    if (
        type(name) is not str
        or name not in _TENSORS
        or not _is_shape(shape)
        or not is_one_of(buffer, *_BUFFERS)
    ):
        refuse("a tensor is not made of such arguments")
    view = memoryview(buffer)
    if math.prod(shape) * _TENSORS[name] != view.nbytes:
        refuse(f"a tensor's buffer has {view.nbytes} bytes, which does not match its shape and type")
    if name == "bool" and bytes(view).strip(b"\0\1"):
        refuse("a tensor of truth values has other values")
    torch = importlib.import_module("torch")
    dtype = getattr(torch, name)
    if view.nbytes == 0:
        made = torch.empty(shape, dtype=dtype)
    else:
        # A tensor is always writable, so what may not be written is copied.
        made = torch.frombuffer(bytearray(view) if view.readonly else buffer, dtype=dtype).reshape(shape)
    return made.requires_grad_() if requires_grad is True else made


VALUES["_sandtimer_tokens", "as_tensor"] = Value(_tensor)
