import sys
import time

if "_sandtimer_inside" in sys.modules and not hasattr(sys.modules["_sandtimer_inside"], "channel"):
    time.sleep(600.0)


def one() -> int:
    return 1
