"""Arrays of numpy, tensors of torch, tables of arrow: the same elements come back, and what is not data is refused."""

from __future__ import annotations

import pickle
import time
from typing import Any

import carry
import pytest
from test_result_hostile import PROTO, name, text

from sandtimer import ResultRefusedError

np = pytest.importorskip("numpy")

KINDS = [
    "?", "i1", "u1", "i2", "<i4", ">i4", "u8", "f2", "f4", "f8", ">f8", "c8", "c16", "S5", "U3", ">U3", "V7",
    "M8[D]", "M8[ns]", "m8[25s]", ">M8[us]", "M8", "m8",
    [("a", "i4"), ("b", "U3", (2,)), ("c", [("d", "f8"), ("e", "?")])],
    {"names": ["a", "b"], "formats": ["i4", "u1"], "offsets": [4, 0], "itemsize": 16},
    np.dtype([("a", "u1"), ("b", "f8")], align=True),
]  # fmt: skip
if np.dtype("g").itemsize == 16:
    KINDS += ["g", "G"]


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other) or one.dtype != other.dtype or one.shape != other.shape:
        return False
    # What lies between fields is nobody's.
    return repr(one.tolist()) == repr(other.tolist()) if one.dtype.names else one.tobytes() == other.tobytes()


@pytest.mark.parametrize("large", [1, 10**9], ids=["beside", "inside"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_array_comes_back(kind: Any, large: int) -> None:
    rng = np.random.default_rng(1)
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        flat = rng.integers(0, 2, 24).astype("?")
    elif dtype.kind == "U":
        flat = np.array(["", "ä", "abc", "x"] * 6, dtype)
    else:
        flat = np.frombuffer(rng.bytes(24 * dtype.itemsize), dtype).copy()
        if dtype.kind == "V":
            flat = np.zeros(24, dtype)
    for array in (
        flat, flat.reshape(2, 3, 4), flat[:0], flat[:1].reshape(()), flat.reshape(4, 6).T, flat[::2], flat.reshape(2, 3, 4)[:, ::2],
        np.asfortranarray(flat.reshape(4, 6)), flat.reshape(2, 3, 4).transpose(1, 0, 2), flat.reshape(0, 3) if not flat.size else flat[:0].reshape(0, 3),
    ):  # fmt: skip
        back = carry.carried(array, large=large)
        assert same(back, array)
        assert back.flags.writeable == array.flags.writeable or large == 10**9


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_scalar_comes_back(kind: Any) -> None:
    scalar = np.zeros(1, kind)[0]
    back = carry.carried(scalar)
    assert type(back) is type(scalar) and back == scalar and back.dtype == scalar.dtype


def test_arrays_lie_in_values() -> None:
    value = {
        "scores": np.arange(5),
        np.int64(3): [np.float32(0.5), (np.datetime64("2020-01-01"),)],
        np.str_("x"): None,
    }
    back = carry.carried(value)
    assert (
        list(back) == list(value)
        and (back["scores"] == value["scores"]).all()
        and back[np.int64(3)] == value[np.int64(3)]
    )
    shared = np.arange(3)
    one, other = carry.carried([shared, shared])
    assert one is other
    assert carry.carried(np.dtype("f4")) == np.dtype("f4")


def test_a_large_array_is_not_copied() -> None:
    data, buffers = carry.encode(np.arange(100_000.0))
    assert len(data) < 500
    held = bytearray(buffers[0])
    array = carry.decode(data, [held])
    held[:8] = b"\0" * 7 + b"\x40"
    assert array[0] == 2.0
    locked = carry.decode(data, [bytes(held)])
    assert not locked.flags.writeable


class Evil:
    def __reduce__(self) -> Any:
        return print, ("HARM",)


def test_an_array_of_objects_is_refused() -> None:
    for array in (
        np.array([Evil(), 1], dtype=object),
        np.array([(Evil(), 1)], dtype=[("a", object), ("b", "i4")]),
    ):
        data = pickle.dumps(array, 5)
        with pytest.raises(ResultRefusedError, match="dtype object|O8"):
            carry.decode(data)
        assert carry.does_harm(data)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_subclass_is_refused() -> None:
    for array in (
        np.ma.masked_array([1, 2], [0, 1]),
        np.matrix([[1]]),
        np.rec.array([(1, 2)], dtype="i4,i4"),
    ):
        with pytest.raises(ResultRefusedError):
            carry.pickled(array)


DTYPE = (
    name("numpy", "dtype")
    + text("f8")
    + b"\x89\x88\x87R(K\x03"
    + text("<")
    + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
)
OBJECTS = DTYPE.replace(b"f8", b"O8").replace(text("<"), text("|"))


def array(
    shape: bytes, dtype: bytes = DTYPE, content: bytes = b"B\x10\0\0\0" + bytes(16), order: bytes = text("C")
) -> bytes:
    return (
        PROTO + name("numpy._core.numeric", "_frombuffer") + b"(" + content + dtype + shape + order + b"tR."
    )


HUGE = b"\x8a\x08" + (2**62).to_bytes(8, "little")
MALFORMED = {
    "a shape that is too large": array(b"K\x03\x85"),
    "a shape that is too small": array(b"K\x01\x85"),
    "a shape below zero": array(b"J\xff\xff\xff\xffJ\xfe\xff\xff\xff\x86"),
    "a shape that overflows to fit": array(HUGE + b"K\x04K\x02\x87"),
    "a shape that overflows to nothing": array(HUGE + b"K\x08\x86", content=b"B\0\0\0\0"),
    "a shape of floats": array(b"G" + b"\x40" + b"\0" * 7 + b"\x85"),
    "a shape of truth values": array(b"\x88K\x02\x86"),
    "a list for a shape": array(b"]K\x02a"),
    "too many dimensions": array(b"(K\x02" + b"K\x01" * 100 + b"t"),
    "nothing in a huge shape": array(HUGE + HUGE + b"K\x00\x87", content=b"B\0\0\0\0"),
    "a list for a buffer": array(b"K\x00\x85", content=b"]"),
    "text for a type": array(b"K\x02\x85", dtype=text("f8")),
    "objects": array(b"K\x02\x85", dtype=OBJECTS),
    "a type not complete": array(b"K\x02\x85", dtype=DTYPE[: DTYPE.index(b"(K\x03")]),
    "another order": array(b"K\x02\x85", order=text("A")),
    "an order of bytes": array(b"K\x02\x85", order=b"C\x01C"),
    "axes that are not there": array(b"K\x02\x85", order=text("K") + b"K\x07\x85"),
    "elements without a size": array(HUGE + b"\x85", DTYPE.replace(b"f8", b"V0"), b"B\0\0\0\0"),
    "a size of elements that overflows": array(b"K\x02\x85", DTYPE.replace(text("f8"), text("V999999999"))),
    "a type with code": array(b"K\x02\x85", DTYPE.replace(text("f8"), text("f8,O8"))),
    "truth values that are none": array(b"K\x10\x85", DTYPE.replace(text("f8"), text("b1")), b"B\x10\0\0\0" + b"\x02" * 16),
    "characters that are none": array(b"K\x02\x85", DTYPE.replace(text("f8"), text("U2")), b"B\x10\0\0\0" + b"\xff" * 16),
    "characters of the other order that are none": array(
        b"K\x02\x85", DTYPE.replace(text("f8"), text("U2")).replace(text("<"), text(">")), b"B\x10\0\0\0" + b"\x01\0\0\0" * 4
    ),
    "fields beyond the element": array(
        b"K\x02\x85", DTYPE.replace(b"NNNJ", b"N" + text("a") + b"\x85}" + text("a") + DTYPE + b"K\x64\x86sJ").replace(b"J\xff\xff\xff\xffJ\xff", b"K\x08J\xff", 1)
    ),
    "a scalar of the wrong size": PROTO + name("numpy._core.multiarray", "scalar") + DTYPE + b"C\x04abcd\x86R.",
    "a scalar of objects": PROTO + name("numpy._core.multiarray", "scalar") + OBJECTS + b"C\x08abcdefgh\x86R.",
    "another class of array": PROTO + name("numpy._core.multiarray", "_reconstruct") + name("builtins", "list") + b"K\x00\x85C\x01b\x87R.",
    "an array without a state": PROTO + name("numpy._core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R.",
    "a state of objects": PROTO + name("numpy._core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R(K\x01K\x01\x85"
    + OBJECTS + b"\x89]Natb.",
    "pointers for objects": PROTO + name("numpy._core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"K\x00\x85C\x01b\x87R(K\x01K\x01\x85"
    + OBJECTS + b"\x89C\x08abcdefghtb.",
}  # fmt: skip


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_what_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(ResultRefusedError):
        carry.decode(data)


def test_the_well_formed_one_is_taken() -> None:
    assert (carry.decode(array(b"K\x02\x85")) == np.zeros(2)).all()
    assert carry.decode(array(b"K\x00\x85", content=b"B\0\0\0\0")).shape == (0,)


def test_a_buffer_of_another_length_is_refused() -> None:
    data, buffers = carry.encode(np.arange(100_000.0))
    for length in (
        0,
        1,
        buffers[0].nbytes - 8,
        buffers[0].nbytes - 1,
        buffers[0].nbytes + 1,
        buffers[0].nbytes + 8,
    ):
        with pytest.raises(ResultRefusedError, match="bytes"):
            carry.decode(data, [bytearray(length)])
    with pytest.raises(ResultRefusedError, match="more buffers"):
        carry.decode(data, [])


def test_what_takes_long_to_check_is_refused_at_once() -> None:
    begun = time.monotonic()
    # Large numbers take their time to be multiplied, and fields in fields in fields to be looked at.
    number = (2**14000).to_bytes(1751, "little")
    large = b"(" + 65 * (b"\x8b" + len(number).to_bytes(4, "little") + number) + b"t"
    with pytest.raises(ResultRefusedError, match="not made of such arguments"):
        carry.decode(PROTO + name("_sandtimer_tokens", "as_tensor") + b"(" + text("float64") + large + b"\x89B\x10\0\0\0" + bytes(16) + b"tR.")
    nested = np.dtype("u1")
    for _ in range(4):
        names = [f"a{index}" for index in range(12)]
        nested = np.dtype({"names": names, "formats": [nested] * 12, "offsets": [0] * 12, "itemsize": 1})
    with pytest.raises(ResultRefusedError, match="more than 10000 fields"):
        carry.carried(np.zeros(1, nested))
    names = [f"a{index}" for index in range(100)]
    piled = np.dtype({"names": names, "formats": ["U9"] * 100, "offsets": [0] * 100, "itemsize": 36})
    with pytest.raises(ResultRefusedError, match="overlap"):
        carry.carried(np.zeros(1, piled))
    wide = np.dtype({"names": ["a", "b", "c"], "formats": ["U3", "U2", "S12"], "offsets": [0, 4, 0], "itemsize": 12})
    assert carry.carried(np.zeros(3, wide)).dtype == wide
    assert time.monotonic() - begun < 10


def test_the_older_spelling_is_read() -> None:
    data = pickle.dumps(np.arange(3), 5).replace(
        b"\x8c\x13numpy._core.numeric", b"\x8c\x12numpy.core.numeric"
    )
    data = data[:2] + data[11:]
    assert (carry.decode(data) == np.arange(3)).all()


class TestTensors:
    torch: Any

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        type(self).torch = pytest.importorskip("torch")

    @pytest.mark.parametrize("large", [1, 10**9], ids=["beside", "inside"])
    def test_a_tensor_comes_back(self, large: int) -> None:
        torch = self.torch
        for kind in (
            torch.bool,
            torch.uint8,
            torch.int64,
            torch.float16,
            torch.bfloat16,
            torch.float32,
            torch.complex64,
        ):
            flat = torch.arange(24).remainder(2).to(kind)
            for tensor in (flat, flat.reshape(2, 3, 4), flat.reshape(4, 6).T, flat[:0], flat[0]):
                back = carry.carried(tensor, large=large)
                assert (
                    type(back) is torch.Tensor
                    and back.dtype == kind
                    and back.shape == tensor.shape
                    and torch.equal(back, tensor)
                )
        assert carry.carried(torch.ones(2, requires_grad=True)).requires_grad

    def test_what_is_not_dense_is_not_written(self) -> None:
        with pytest.raises(TypeError, match="dense"):
            carry.encode(self.torch.eye(2).to_sparse())


def test_a_tensor_that_is_malformed_is_refused() -> None:
    good = text("float64") + b"K\x02\x85\x89B\x10\0\0\0" + bytes(16)
    for old, new in (
        (b"K\x02\x85", b"K\x03\x85"),
        (b"K\x02\x85", b"J\xfe\xff\xff\xff\x85"),
        (text("float64"), text("qint8")),
        (text("float64"), text("load")),
    ):
        with pytest.raises(ResultRefusedError, match="tensor"):
            carry.decode(
                PROTO + name("_sandtimer_tokens", "as_tensor") + b"(" + good.replace(old, new) + b"tR."
            )
