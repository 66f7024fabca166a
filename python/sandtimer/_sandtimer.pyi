"""The native half of the package: crates/sandtimer-py."""

from typing import Any

__version__: str

def decode(
    data: bytes,
    buffers: list[bytes | bytearray | memoryview],
    results: dict[tuple[str, str], type],
    max_int_bits: int,
    max_objects: int,
) -> Any: ...
