"""Work for the agent: epochs that take the seconds that are given for each, in several phases.

train.py NAME TOTAL COUNT:SECONDS…: COUNT epochs that take SECONDS each, until TOTAL are told.
"""

import sys
import time

name, total, *phases = sys.argv[1:]
epoch = 0
for phase in phases:
    count, seconds = phase.split(":")
    for _ in range(int(count)):
        time.sleep(float(seconds))
        epoch += 1
        print(f"Epoch {epoch}/{total}: loss={2.4 / (1 + 0.1 * epoch):.3f}", flush=True)
print(f"{name} complete! Best val_acc: 0.847")
