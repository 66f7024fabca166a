"""Knows which process has imported it."""

import os

IMPORTED_BY = os.getpid()


def is_imported_here() -> bool:
    """Whether the process of this call has imported the module itself, instead of the zygote that it comes from."""
    return os.getpid() == IMPORTED_BY


class Worker:
    def is_imported_here(self) -> bool:
        return is_imported_here()
