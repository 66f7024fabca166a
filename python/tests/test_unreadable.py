"""Large results where the engine may not read a job's memory: root without CAP_SYS_PTRACE, as in containers.

The calls are made in a process without the right to trace. A user who is not root needs no right to trace what is his own;
there each job says itself that it is not to be read.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap

import pytest

CAP_SYS_PTRACE = 19
# What jobs use; by value, for they run in another process.
COMMON = """
import ctypes, os, sys, time
import sandtimer

def shut():
    # prctl(2): PR_SET_DUMPABLE. What nobody may read needs the right to trace, whoever's it is.
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)

def header(*lengths, kind=0):
    parts = b"".join((4096).to_bytes(8, "little") + length.to_bytes(8, "little") for length in lengths)
    return b"A" + bytes([kind, 0, 0]) + len(lengths).to_bytes(4, "little") + bytes(8) + parts

def announce(*lengths):
    # What the engine then asks for; it comes only where it cannot read.
    shut()
    os.write(3, header(*lengths))
    assert os.read(3, 1) == b"S"
"""


def without_the_right_to_trace() -> None:
    # prctl(2): PR_CAPBSET_DROP. Root gets what the bounding set has when it executes a program.
    if os.getuid() == 0 and ctypes.CDLL(None).prctl(24, CAP_SYS_PTRACE, 0, 0, 0) != 0:
        raise OSError("the bounding set cannot be changed")


def run_alone(code: str) -> str:
    program = COMMON + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=without_the_right_to_trace,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_right_is_gone() -> None:
    said = run_alone("""
        capabilities = dict(line.split(":\\t") for line in open("/proc/self/status") if line.startswith("Cap"))
        print(int(capabilities["CapEff"], 16) >> 19 & 1)
    """)
    assert said == "0\n"


def test_large_results_come_whole() -> None:
    said = run_alone("""
        def large(size):
            shut()
            return bytes(range(256)) * (size // 256)

        def parts():
            shut()
            # Some inline, some empty, some not a multiple of a packet, and the description itself larger than one.
            return [b"", b"a" * 65_537, bytearray(b"b" * 200_001), ["c" * 10] * 20_000 + [str(n) for n in range(20_000)]]

        with sandtimer.Sandbox(timeout=30.0) as box:
            print(box.call(large, 5 << 20) == bytes(range(256)) * (5 << 12))
            first, second, third, rest = box.call(parts)
            print(first, second == b"a" * 65_537, third == b"b" * 200_001, rest[0], rest[-1])
            outcome = box.limits(result_bytes="1MB").run(large, 5 << 20)
            print(type(outcome.error).__name__, outcome.tree.survivors)
            outcome = box.run(exec, "raise ValueError('x' * 90_000)")
            print(type(outcome.error).__name__, len(str(outcome.error)))
    """)
    assert said == "True\nb'' True True cccccccccc 19999\nResultTooLargeError 0\nValueError 90000\n"


def test_arrays_come_whole() -> None:
    pytest.importorskip("numpy")
    said = run_alone("""
        import numpy

        def arrays():
            shut()
            import numpy

            return numpy.arange(700_000), numpy.ones((300, 300))

        with sandtimer.Sandbox(timeout=30.0, preload=["numpy"]) as box:
            numbers, ones = box.call(arrays)
            print(numbers.sum() == 700_000 * 699_999 // 2, ones.shape, ones.sum(), ones.flags.writeable)
    """)
    assert said == "True (300, 300) 90000.0 True\n"


def test_a_fork_sends_them_too() -> None:
    said = run_alone("""
        def large():
            shut()
            return b"x" * (1 << 20)

        with sandtimer.Sandbox(timeout=30.0, start="fork") as box:
            print(len(box.call(large)))
    """)
    assert said == "1048576\n"


HOSTILE = {
    "a packet that is too short": "announce(100_000); os.write(3, b'x' * 1000); time.sleep(100)",
    "a packet that is too long": "announce(1000); os.write(3, b'x' * 1001); time.sleep(100)",
    "an empty packet": "announce(100_000); os.write(3, b''); time.sleep(100)",
    "its header again": "announce(100_000); os.write(3, header(100_000)); time.sleep(100)",
    "half of it and an exit": "announce(100_000); os.write(3, b'x' * 49_152); os._exit(0)",
    "half of it and a closed channel": "announce(100_000); os.write(3, b'x' * 49_152); os.close(3); time.sleep(100)",
    "no pickle": "announce(1000); os.write(3, b'x' * 1000); time.sleep(100)",
}


@pytest.mark.parametrize("sent", HOSTILE)
def test_a_job_that_sends_something_else_ends(sent: str) -> None:
    said = run_alone(f"""
        with sandtimer.Sandbox(timeout=60.0) as box:
            def job():
                {HOSTILE[sent]}

            outcome = box.run(job)
            print(outcome.value, isinstance(outcome.error, sandtimer.SandtimerError), outcome.ending == "timeout")
            print(outcome.tree.survivors, outcome.usage.wall_ms < 50_000, box.call(abs, -1))
    """)
    assert said == "None True False\n0 True 1\n"


def test_a_job_that_sends_nothing_or_never_stops_is_ended_by_its_limit() -> None:
    said = run_alone("""
        def silent():
            announce(100_000)
            time.sleep(100)

        def slow():
            announce(10 << 20)
            while True:
                os.write(3, b"x" * 49_152)
                time.sleep(0.1)

        with sandtimer.Sandbox(timeout=1.0) as box:
            for job in (silent, slow):
                outcome = box.run(job)
                print(outcome.ending, outcome.value, outcome.tree.survivors)
    """)
    assert said == "timeout None 0\ntimeout None 0\n"


def test_what_comes_behind_the_answer_is_not_read() -> None:
    said = run_alone("""
        def job():
            import pickle

            data = pickle.dumps("said", 5)
            announce(len(data))
            os.write(3, data)
            for _ in range(3):
                os.write(3, pickle.dumps("more", 5))
            time.sleep(100)

        with sandtimer.Sandbox(timeout=60.0) as box:
            outcome = box.run(job)
            print(outcome.value, outcome.ending, outcome.tree.survivors, box.call(abs, -1))
    """)
    assert said == "said returned 0 1\n"


def test_an_interrupt_reaches_a_caller_that_waits_for_the_rest() -> None:
    said = run_alone("""
        import signal

        def silent():
            announce(100_000)
            time.sleep(100)

        class Rang(Exception):
            pass

        def ring(*_):
            raise Rang

        signal.signal(signal.SIGALRM, ring)
        with sandtimer.Sandbox() as box:
            box.warm(1)
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            try:
                box.run(silent)
            except Rang:
                print("interrupted", box.call(abs, -1))
    """)
    assert said == "interrupted 1\n"
