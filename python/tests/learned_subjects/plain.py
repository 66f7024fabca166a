import sys

ANSWERS = "the expected answers"


def has(name: str) -> bool:
    return name in sys.modules


def ignore(*_: object) -> None:
    pass


def import_fractions() -> bool:
    was_there = "fractions" in sys.modules
    import fractions  # noqa: F401

    return was_there
