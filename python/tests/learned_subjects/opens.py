import os

file = os.open(__file__, os.O_RDONLY)


def use() -> int:
    """How far the file was read before, which differs where calls share it."""
    before = os.lseek(file, 0, os.SEEK_CUR)
    os.read(file, 1)
    return before
