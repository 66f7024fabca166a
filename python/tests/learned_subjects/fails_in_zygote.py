import sys

# In a call the package has a channel to its engine; in a zygote it has none yet.
if "_sandtimer_inside" in sys.modules and not hasattr(sys.modules["_sandtimer_inside"], "channel"):
    raise RuntimeError("not in a zygote")



def one() -> int:
    return 1
