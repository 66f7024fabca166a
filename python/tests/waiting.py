"""Waits for descriptors of any number: select(2) accepts none above 1,023, and a process with many sandboxes has more."""

from __future__ import annotations

import select
from typing import Any, Iterable


def readable(files: Iterable[Any], timeout: float) -> list[Any]:
    """The files or descriptors that can be read, or are at their end, after at most `timeout` seconds."""
    poll = select.poll()
    by_number = {}
    for file in files:
        number = file if isinstance(file, int) else file.fileno()
        by_number[number] = file
        poll.register(number, select.POLLIN)
    return [by_number[number] for number, _ in poll.poll(timeout * 1000)]
