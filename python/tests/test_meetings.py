"""Two calls, candidates or branches at a time cannot meet: no name, port, table or IPC object of one is found by the other."""

from __future__ import annotations

import secrets
import time
import textwrap
from pathlib import Path

import pytest
import sandtimer

# Makes an object of each kind, says when they stand, looks for them where `look` says so, and waits.
MEET = '''
def meet(name, hold, look, seconds):
    import ctypes, socket, time
    key, library, path = sum(name.encode()) + 1, ctypes.CDLL(None), "/dev/shm/" + name
    port, held = 20000 + key % 10000, []
    if hold:
        unix = socket.socket(socket.AF_UNIX)
        unix.bind("\\0" + name)
        held += [unix, socket.create_server(("127.0.0.1", port))]
        assert library.shmget(key, 4096, 0o1666) >= 0
        open(path, "w").close()
    began, found = time.monotonic(), set()
    while True:
        if look:
            if name in open("/proc/self/net/unix").read():
                found.add("a line of a table")
            other = socket.socket(socket.AF_UNIX)
            try:
                other.bind("\\0" + name)
            except OSError:
                found.add("an abstract name")
            other.close()
            client = socket.socket()
            client.settimeout(2)
            if client.connect_ex(("127.0.0.1", port)) == 0:
                found.add("a port")
            client.close()
            if library.shmget(key, 0, 0) >= 0:
                found.add("a segment of System V")
            try:
                open(path).close()
                found.add("a segment of POSIX")
            except OSError:
                pass
        if time.monotonic() >= began + seconds:
            return sorted(found), began, time.monotonic()
        time.sleep(0.02)
'''
KINDS = ["a line of a table", "a port", "a segment of POSIX", "a segment of System V", "an abstract name"]


@pytest.fixture
def meetings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    name = f"meetings_{secrets.token_hex(4)}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MEET))
    monkeypatch.syspath_prepend(tmp_path)
    return __import__(name).meet


def test_what_is_held_is_found_by_who_holds_it(meetings: object) -> None:
    # The negative control of all that follow.
    with sandtimer.Sandbox(timeout=60.0) as box:
        assert box.call(meetings, "alone", True, True, 0)[0] == KINDS


def test_two_calls_do_not_meet(meetings: object) -> None:
    with sandtimer.Sandbox(timeout=60.0) as box:
        box.warm(2)
        for _ in range(5):
            name = secrets.token_hex(8)
            holder = box.submit(meetings, name, True, False, 3)
            time.sleep(0.2)
            finder = box.submit(meetings, name, False, True, 1)
            (_, held, until), (found, began, ended) = holder.result(60), finder.result(60)
            assert found == []
            if held < began and ended < until:
                return
        pytest.fail("the two were never there at one time")


def test_a_call_finds_nothing_of_the_one_before(meetings: object) -> None:
    with sandtimer.Sandbox(timeout=60.0, workers=1) as box:
        for _ in range(20):
            name = secrets.token_hex(8)
            box.call(meetings, name, True, False, 0)
            assert box.call(meetings, name, False, True, 0)[0] == []


CANDIDATE = """
import socket, time
end = time.monotonic() + 3
name = "answer-of-" + input()
mine = socket.socket(socket.AF_UNIX)
told = []
try:
    mine.bind("\\0" + name)
except OSError:
    told.append("taken")
while time.monotonic() < end:
    told += [line for line in open("/proc/self/net/unix") if "answer-of-" in line and not {own}]
    time.sleep(0.05)
print("met" if told else "alone")
"""


def test_candidates_do_not_meet() -> None:
    first, second = CANDIDATE.format(own="line.endswith(name + '\\n')"), CANDIDATE.format(own="line.endswith(name + '\\n')")
    case = secrets.token_hex(4)
    with sandtimer.Sandbox(timeout=60.0) as box:
        box.warm(2)
        for judgement in box.judge_many([first, second], [(case, "alone")]):
            assert judgement.passed, judgement.outcomes
        # The control: a table in which the own name is found.
        assert not box.judge(CANDIDATE.format(own="False"), [(case, "alone")]).passed


def test_branches_do_not_meet() -> None:
    with sandtimer.Sandbox(timeout=60.0) as box, box.context() as context:
        context.run(MEET)
        one, other = context.branch(2)
        # Held from one cell to the next.
        hold = "import socket; held = [socket.socket(socket.AF_UNIX), socket.create_server(('127.0.0.1', 20001))]"
        assert one.run(f"{hold}; held[0].bind('\\0branch-of-one')").ok
        look = "'branch-of-one' in open('/proc/self/net/unix').read(), socket.socket().connect_ex(('127.0.0.1', 20001)) == 0"
        assert one.run(f"import socket; ({look})").value == [True, True]
        for elsewhere in (other, context):
            assert elsewhere.run(f"import socket; ({look})").value == [False, False]
