"""Programs that never end by themselves: each ends by its limit, nothing of it is left, and what comes next is not slower for it."""

from __future__ import annotations

import time
from typing import Iterator

import pytest
import sandtimer

ENDLESS = {
    "loop": "while True: pass",
    "sleep": "import time; time.sleep(10**6)",
    "pause": "import signal; signal.pause()",
    "one call into C": "sum(range(10**15))",
    "one large number": "x = 9 ** 10**9",
    "regular expression": "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')",
    "sort": "import functools; sorted(range(10**6), key=functools.cmp_to_key(lambda a, b: [x for x in range(10**5)] and 0))",
    "catches everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "finally that continues": "while True:\n    try: 1 / 0\n    finally: continue",
    "ignores signals": "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass",
    "handlers that go on": "import signal, time\nfor n in (1, 2, 15): signal.signal(n, lambda *_: None)\nwhile True: time.sleep(1)",
    "blocks signals": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
    "waits for a lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "waits for a thread": "import threading, time\nthread = threading.Thread(target=time.sleep, args=(10**6,)); thread.start(); thread.join()",
    "thread that outlives it": "import threading, time\nthreading.Thread(target=time.sleep, args=(10**6,)).start()",
    "waits for a child": "import os\nif os.fork() == 0:\n    while True: pass\nos.wait()",
    "child that its parent never waits for": "import os, time\nif os.fork() == 0: time.sleep(10**6)\nwhile True: pass",
    "child in a session of its own": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(10**6)\nos.wait()",
    "command": "import subprocess; subprocess.run(['sleep', '1000000'])",
    "reads a pipe": "import os\nread, write = os.pipe()\nos.read(read, 1)",
    "accepts a connection": "import socket\ns = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); s.accept()",
    "event loop": "import asyncio; asyncio.run(asyncio.Event().wait())",
    "at exit": "import atexit, time\natexit.register(time.sleep, 10**6)",
    "destructor": "class Endless:\n    def __del__(self):\n        while True: pass\nx = Endless()",
}


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=1.0, memory="256M") as made:
        yield made


def test_there_are_24() -> None:
    assert len(ENDLESS) == 24


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_program_ends_by_its_limit(box: sandtimer.Sandbox, name: str) -> None:
    begun = time.monotonic()
    outcome = box.exec(ENDLESS[name])
    assert outcome.ending == "timeout", outcome
    assert outcome.tree.survivors == 0, outcome
    # The limit, and what a busy machine takes to start and to end it.
    assert time.monotonic() - begun < 20.0, outcome
    assert box.exec("6 * 7").value == 42


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_command_ends_by_its_limit(box: sandtimer.Sandbox, name: str) -> None:
    outcome = box.command(["python3", "-c", ENDLESS[name]])
    assert (outcome.ending, outcome.tree.survivors) == ("timeout", 0), outcome


def test_endless_programs_are_judged_beside_one_that_is_right(box: sandtimer.Sandbox) -> None:
    texts = [*ENDLESS.values(), "print(42)"]
    judged = box.judge_many(texts, [("", "42")])
    verdicts = [judgement.verdicts[0] for judgement in judged]
    assert verdicts == ["timeout"] * len(ENDLESS) + ["accepted"], dict(zip([*ENDLESS, "right"], verdicts))
