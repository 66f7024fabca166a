"""A driver that takes another way when it is told to."""

import json
import os
import sys
import time

told = json.load(sys.stdin)
last = told["last"] or {}
time.sleep(float(os.environ.get("SANDTIMER_TIME_SCALE", "1")))

if last.get("ok"):
    answer = {"done": json.loads(last["output"])}
elif "circuit breaker open" in (told["feedback"] or ""):
    answer = {"action": "count", "input": last["input"]}
else:
    answer = {"action": "calculate", "input": {"expression": "6 * 7"}}
print(json.dumps(answer))
