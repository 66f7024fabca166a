import signal

signal.setitimer(signal.ITIMER_VIRTUAL, 1_000_000.0)


def use() -> bool:
    """Whether there is a timer: a fork has none."""
    return signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0.0
