"""Tables of arrow: what was written comes back, and streams made to do harm are refused."""

from __future__ import annotations

import random
from typing import Any

import carry
import pytest
from test_result_hostile import PROTO, name, text

from sandtimer import ResultRefusedError

arrow: Any = pytest.importorskip("pyarrow")
ipc: Any = pytest.importorskip("pyarrow.ipc")

TABLE = arrow.table(
    {
        "a": [1, None, 3],
        "b": ["x", "yy", None],
        "c": [[1.5], [], None],
        "d": arrow.array(["u", "v", "u"]).dictionary_encode(),
        "e": [{"f": 1}, None, {"f": 2}],
        "g": arrow.nulls(3),
    }
)


@pytest.mark.parametrize("large", [1, 10**9], ids=["beside", "inside"])
@pytest.mark.parametrize(
    "value",
    [TABLE, TABLE.slice(1, 1), TABLE.slice(0, 0), TABLE.to_batches()[0], TABLE.column(1), arrow.array([1, None]), arrow.array([]),
     arrow.chunked_array([[1], [2, 3]]), TABLE.to_batches()[0].slice(1, 1), arrow.array(["a", "b", "c"]).slice(1)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_it_comes_back(value: Any, large: int) -> None:
    back = carry.carried(value, large=large)
    assert type(back) is type(value) and back.equals(value)
    assert carry.carried({"a": [value]}, large=large)["a"][0].equals(value)


def written(table: Any, **options: Any) -> bytes:
    sink = arrow.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def call(stream: bytes, kind: str = "table") -> Any:
    data = PROTO + name("_sandtimer_tokens", "as_arrow") + text(kind) + b"\x97\x86R."
    return carry.decode(data, [stream])


def test_the_well_formed_one_is_taken() -> None:
    assert call(written(TABLE)).equals(TABLE)


def test_a_compressed_stream_is_refused() -> None:
    with pytest.raises(ResultRefusedError, match="compressed"):
        call(written(arrow.table({"a": [0] * 100_000}), compression="lz4"))
    compressed_dictionary = arrow.table({"a": arrow.array(["x" * 100] * 1000).dictionary_encode()})
    with pytest.raises(ResultRefusedError, match="compressed"):
        call(written(compressed_dictionary, compression="lz4"))


def test_code_registered_for_a_type_is_not_called() -> None:
    calls = []

    class Noted(arrow.ExtensionType):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(arrow.int64(), "noted")

        def __arrow_ext_serialize__(self) -> bytes:
            return b"harm"

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> Any:
            calls.append(serialized)
            return cls()

    arrow.register_extension_type(Noted())
    try:
        stream = written(arrow.table({"a": arrow.ExtensionArray.from_storage(Noted(), arrow.array([1]))}))
        with pytest.raises(ResultRefusedError, match="extension"):
            call(stream)
        assert calls == []
        ipc.open_stream(stream).read_all()
        assert calls == [b"harm"]
    finally:
        arrow.unregister_extension_type("noted")


def test_more_nulls_than_bytes_are_refused() -> None:
    with pytest.raises(ResultRefusedError, match="more elements"):
        call(written(arrow.table({"a": arrow.nulls(1 << 24)})))
    assert call(written(arrow.table({"a": arrow.nulls(1 << 20)}))).num_rows == 1 << 20


def test_another_kind_is_refused() -> None:
    for kind in ("array", "batches", "", "chunked_array"):
        with pytest.raises(ResultRefusedError):
            call(written(TABLE), kind)


def test_a_stream_that_ends_anywhere_is_refused_or_shorter() -> None:
    stream = written(TABLE)
    for length in range(len(stream)):
        try:
            assert call(stream[:length]).num_rows in (0, 3)
        except ResultRefusedError:
            pass


def test_changed_streams_never_do_worse_than_fail() -> None:
    stream = written(TABLE)
    source = random.Random(5)
    refused = 0
    for _ in range(20_000):
        changed = bytearray(stream)
        for _ in range(source.randrange(1, 4)):
            changed[source.randrange(len(changed))] = source.choice(
                [0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)]
            )
        try:
            call(bytes(changed)).to_pylist()
        except ResultRefusedError:
            refused += 1
    assert refused > 1000
