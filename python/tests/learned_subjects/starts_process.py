import os

pid = os.posix_spawn("/bin/sleep", ["sleep", "20"], {})


def use() -> bool:
    """Whether it can be waited for: it is not a fork's child."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False
