"""Tables, batches and arrays of arrow, from a stream of its own format.

Arrow's reader is made for untrusted streams, if what it read is validated afterwards. Two things it does
on the way are not for a hostile stream: it hands the schema's extension types to whatever code the process has
registered for them, and it allocates what a compressed buffer claims to become. So each message is inspected first.
"""

from __future__ import annotations

import importlib
import struct
from typing import Any, Iterable, Iterator, Optional

from .common import Arguments, Value, is_one_of, refuse

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_EXTENSION = b"ARROW:extension:"
# How much may be claimed without a byte for it.
_FREE_LENGTH = 1 << 20
# Before this one, a type named by the stream was unpickled.
_OLDEST = (14, 0, 1)


class _Table:
    """A table of the flatbuffers format: numbers at places that a table of places gives."""

    def __init__(self, message: memoryview, position: int) -> None:
        self.message = message
        self.position = position
        self.positions = position - self._read("<i", position)

    def _read(self, kind: str, position: int) -> int:
        if position < 0:
            refuse("a message of an arrow stream is not known")
        number: int = struct.unpack_from(kind, self.message, position)[0]
        return number

    def _field(self, index: int) -> Optional[int]:
        offset = 4 + 2 * index
        if offset + 2 > self._read("<H", self.positions):
            return None
        return self._read("<H", self.positions + offset) or None

    def number(self, index: int, kind: str) -> int:
        field = self._field(index)
        return 0 if field is None else self._read(kind, self.position + field)

    def table(self, index: int) -> Optional[_Table]:
        field = self._field(index)
        if field is None:
            return None
        position = self.position + field
        return _Table(self.message, position + self._read("<I", position))

    def lengths(self, index: int) -> Iterator[int]:
        """The first number of each pair in a list of pairs."""
        field = self._field(index)
        if field is not None:
            position = self.position + field
            start = position + self._read("<I", position) + 4
            for each in range(self._read("<I", start - 4)):
                yield self._read("<q", start + 16 * each)


def _messages(stream: memoryview) -> Iterator[tuple[memoryview, _Table]]:
    position = 0
    while position < len(stream):
        mark, length = struct.unpack_from("<Ii", stream, position)
        if mark != 0xFFFFFFFF or length < 0:
            refuse("an arrow stream is not of the present format")
        if length == 0:
            return
        message = stream[position + 8 : position + 8 + length]
        root = _Table(message, struct.unpack_from("<I", message)[0])
        yield message, root
        body = root.number(3, "<q")
        if body < 0 or len(message) != length:
            refuse("an arrow stream has an impossible length")
        position += 8 + length + body


def _check(stream: memoryview) -> None:
    for index, (message, root) in enumerate(_messages(stream)):
        kind, header = root.number(1, "<B"), root.table(2)
        if header is None or kind not in (_SCHEMA, _DICTIONARY, _BATCH) or (kind == _SCHEMA) != (index == 0):
            refuse("an arrow stream has a message that is not known")
        if kind == _SCHEMA and _EXTENSION in bytes(message):
            refuse('an arrow table of extension types: return its storage, or use trust="pickle"')
        batch = header.table(1) if kind == _DICTIONARY else header
        if kind == _SCHEMA:
            continue
        if batch is None or batch.table(3) is not None:
            refuse("an arrow stream is compressed")
        # A column of nulls takes no room, however many it claims to have.
        most = max(_FREE_LENGTH, 8 * len(stream))
        if not all(0 <= length <= most for length in (batch.number(0, "<q"), *batch.lengths(1))):
            refuse("an arrow stream has more elements than its bytes can hold")


def _arrow(arguments: Arguments) -> Any:
    if (
        len(arguments) != 2
        or type(arguments[0]) is not str
        or not is_one_of(arguments[1], bytes, bytearray, memoryview)
    ):
        refuse("an arrow table is not made of such arguments")
    kind, buffer = arguments
    stream = memoryview(buffer).cast("B")
    _check(stream)
    arrow: Any = importlib.import_module("pyarrow")
    version = tuple(int(part) for part in arrow.__version__.split(".")[:3] if part.isdigit())
    if version < _OLDEST:
        refuse("arrow is older than 14.0.1, which runs code that a stream names")
    ipc: Any = importlib.import_module("pyarrow.ipc")
    table = ipc.open_stream(arrow.py_buffer(buffer)).read_all()
    table.validate(full=True)
    _read_names(table.schema)
    return _as(kind, table, arrow)


def _read_names(fields: Iterable[Any]) -> None:
    """Fails if the name of a field is not text, which validation does not look at."""
    for field in fields:
        field.name.encode()
        _read_names([field.type.field(index) for index in range(field.type.num_fields)])


def _as(kind: str, table: Any, arrow: Any) -> Any:
    if kind == "table":
        return table
    if kind == "batch" and len(table.to_batches()) <= 1:
        for batch in table.to_batches():
            return batch
        return arrow.RecordBatch.from_arrays(
            [arrow.array([], each) for each in table.schema.types], schema=table.schema
        )
    if kind == "chunked_array" and table.num_columns == 1:
        return table.column(0)
    if kind == "array" and table.num_columns == 1 and table.column(0).num_chunks <= 1:
        for chunk in table.column(0).chunks:
            return chunk
        return arrow.array([], table.schema.types[0])
    refuse("an arrow table does not match its description")


VALUES: dict[tuple[str, str], Value] = {("_sandtimer_tokens", "as_arrow"): Value(_arrow)}
