import mmap

memory = mmap.mmap(-1, 4096)


def use() -> int:
    """How often this was called, by all that share the memory."""
    memory[0] += 1
    return memory[0]
