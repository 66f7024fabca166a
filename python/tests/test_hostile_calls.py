"""Jobs that attack their channel, their zygote, their siblings or their caller's patience."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import inspect
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
import sandtimer
from waiting import readable

# The descriptor that a job answers on; any job can find it.
CHANNEL = 3


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=20.0, result_bytes="64MB") as made:
        yield made


def header(kind: int = 0, parts: int = 0, inline: int = 0) -> bytes:
    return b"A" + bytes([kind, 0, 0]) + parts.to_bytes(4, "little") + inline.to_bytes(8, "little")


def part(address: int, length: int) -> bytes:
    return address.to_bytes(8, "little") + length.to_bytes(8, "little")


# System calls by their numbers on x86-64, with what a sandbox answers: the filter, which is in two parts in a zygote's child.
_REFUSED = {
    "mount": ((165, 0, 0, 0, 0, 0), errno.EPERM),
    "setns": ((308, -1, 0), errno.EPERM),
    "unshare a user namespace": ((272, 0x10000000), errno.EPERM),
    "clone3": ((435, 0, 0), errno.ENOSYS),
    "clone a user namespace": ((56, 0x10000011, 0, 0, 0, 0), errno.EPERM),
    "bpf": ((321, 0, 0, 0), errno.EPERM),
    "io_uring_setup": ((425, 1, 0), errno.EPERM),
    "perf_event_open": ((298, 0, 0, -1, -1, 0), errno.EPERM),
    "ptrace": ((101, 16, 1, 0, 0), errno.EPERM),
    "keyctl": ((250, 0, 0, 0, 0), errno.EPERM),
    "mq_open": ((240, 0, 0, 0, 0), errno.EPERM),
    "openat2": ((437, -1, 0, 0, 0), errno.ENOSYS),
    "a call that nobody has": ((999,), errno.ENOSYS),
    "prctl PR_SET_MM": ((157, 35, 1, 0, 0, 0), errno.EPERM),
    "prctl PR_SET_DUMPABLE 1": ((157, 4, 1, 0, 0, 0), errno.EPERM),
    "seccomp with a listener": ((317, 1, 8, 0), errno.EINVAL),
    "a filter by seccomp": ((317, 1, 0, 0), errno.EINVAL),
    "a filter by prctl": ((157, 22, 2, 0), errno.EINVAL),
    "io_setup": ((206, 1, 0), errno.ENOSYS),
    "chmod with set-id bits": ((90, 0, 0o4755), errno.EPERM),
    "fcntl F_SETLEASE": ((72, 1, 1024, 0), errno.EPERM),
    "ioctl TIOCSTI": ((16, 0, 0x5412, 0), errno.EPERM),
    "raw socket of the internet": ((41, 2, 3, 1), errno.ESOCKTNOSUPPORT),
    "netlink socket for auditing": ((41, 16, 3, 9), errno.EPROTONOSUPPORT),
    "urgent data": ((44, -1, 0, 0, 1, 0, 0), errno.EOPNOTSUPP),
    "socket of another family": ((41, 40, 1, 0), errno.EAFNOSUPPORT),
    "setsockopt TCP_ULP": ((54, -1, 6, 31, 0, 0), errno.ENOPROTOOPT),
    "personality": ((135, 0x40000), errno.EPERM),
}


def refusals(calls: dict[str, Any]) -> dict[str, int]:
    """The errno of each."""
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    found = {}
    for name, (arguments, _) in calls.items():
        ctypes.set_errno(0)
        call(*[ctypes.c_long(number) for number in arguments])
        found[name] = ctypes.get_errno()
    return found


@pytest.mark.parametrize("start", ["zygote", "fork", "spawn"])
def test_what_the_filter_refuses_is_refused_in_calls(start: str) -> None:
    with sandtimer.Sandbox(timeout=20.0, start=start, force=start == "fork") as box:
        outcome = box.run(refusals, _REFUSED)
    assert outcome.value == {name: expected for name, (_, expected) in _REFUSED.items()}


def test_what_the_filter_refuses_is_refused_in_contexts() -> None:
    with sandtimer.Sandbox(timeout=20.0) as box, box.context() as context:
        defined = context.run("from typing import Any\n" + inspect.getsource(refusals))
        assert defined.ok, defined
        outcome = context.run(f"refusals({_REFUSED!r})")
    # An interpreter goes on as its checkpoint, which may be looked at again.
    expected = {name: expected for name, (_, expected) in _REFUSED.items()}
    assert outcome.value == {**expected, "prctl PR_SET_DUMPABLE 1": 0}, outcome


def filters(status: str) -> int:
    return int(status.partition("Seccomp_filters:")[2].split()[0])


def test_a_call_is_under_what_its_zygote_carries_and_the_rest() -> None:
    own = filters(Path("/proc/self/status").read_text())
    for start, more in (("zygote", 2), ("spawn", 2), ("fork", 1)):
        with sandtimer.Sandbox(timeout=20.0, start=start, force=start == "fork") as box:
            assert filters(box.call(Path.read_text, Path("/proc/self/status"))) == own + more


UNFILTERED = '''
import sys
inside = sys.modules["_sandtimer_inside"]
inside.restrict = lambda filter: 0
'''


def test_a_zygote_that_does_not_carry_its_part_has_no_children(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unfiltered.py").write_text(UNFILTERED)
    monkeypatch.syspath_prepend(tmp_path)
    with sandtimer.Sandbox(timeout=20.0, preload=["unfiltered"]) as box, pytest.raises(sandtimer.SandtimerError) as refused:
        box.call(max, 1, 2)
    assert "seccomp" in str(refused.value)


def test_without_the_filter_the_kernel_gives_other_answers() -> None:
    # The negative control, of calls that do nothing to whoever makes them: their arguments make no sense.
    names = ("setns", "clone3", "openat2", "mq_open", "seccomp with a listener", "chmod with set-id bits", "setsockopt TCP_ULP")
    harmless = {name: _REFUSED[name] for name in names}
    found = refusals(harmless)
    assert all(found[name] not in (0, expected) for name, (_, expected) in harmless.items()), found


MALFORMED = [
    b"",
    b"A",
    b"R",
    b"\0" * 60000,
    header(kind=9),
    header(parts=2**32 - 1),
    header(parts=3),
    header(inline=2**60),
    header(inline=5) + b"abc",
    header() + b"more than it says",
]


def send_and_wait(packets: list[bytes]) -> None:
    for packet in packets:
        os.write(CHANNEL, packet)
    time.sleep(100)


@pytest.mark.parametrize("packet", [packet for packet in MALFORMED if packet], ids=lambda packet: repr(packet[:20]))
def test_a_malformed_answer_hurts_nobody(box: sandtimer.Sandbox, packet: bytes) -> None:
    outcome = box.run(send_and_wait, [packet])
    assert outcome.ending in ("no_result", "cancelled"), outcome
    assert isinstance(outcome.error, sandtimer.NoResultError)
    assert outcome.tree.survivors == 0
    assert box.call(abs, -1) == 1


@pytest.mark.parametrize(
    ("address", "length"), [(0, 4096), (8, 1), (2**63 - 4096, 4096), (2**64 - 1, 2), (0x400000, 32 << 20)]
)
def test_an_answer_that_points_nowhere_hurts_nobody(box: sandtimer.Sandbox, address: int, length: int) -> None:
    outcome = box.run(send_and_wait, [header(parts=1) + part(address, length)])
    assert outcome.ending != "returned"
    assert outcome.error is not None
    assert box.call(abs, -1) == 1


def test_an_answer_larger_than_allowed_is_refused_unread(box: sandtimer.Sandbox) -> None:
    outcome = box.run(send_and_wait, [header(parts=2) + part(4096, 2**62) + part(4096, 2**62)])
    assert isinstance(outcome.error, sandtimer.ResultTooLargeError)
    assert "result_bytes" in str(outcome.error)
    assert isinstance(box.run(lambda: b"x" * (65 << 20)).error, sandtimer.ResultTooLargeError)


IMMUTABLE = 1 << 63


def name_a_length(flag: int, length: int) -> None:
    import mmap

    there = mmap.mmap(-1, 64 << 10)
    address = ctypes.addressof(ctypes.c_char.from_buffer(there))
    send_and_wait([header(parts=1) + part(address, length | flag)])


def measure_named_length(flag: int) -> None:
    """Prints by how many MiB the peak of this process grows for a length that is not there, and then for bytes that are."""

    def peak() -> int:
        # Not ru_maxrss: a new program inherits that of the process that started it.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) >> 10

    with sandtimer.Sandbox(timeout=20.0, memory="256M") as box:
        assert box.call(abs, -1) == 1
        before = peak()
        outcome = box.run(name_a_length, flag, 1 << 30)
        assert outcome.ending != "returned" and outcome.error is not None
        named = peak() - before
        assert len(box.call(bytes, 192 << 20)) == 192 << 20
        print(named, peak() - before)


@pytest.mark.parametrize("flag", [0, IMMUTABLE], ids=["buffer", "bytes"])
def test_a_length_that_is_not_there_takes_no_memory(flag: int) -> None:
    # In a process of its own: a peak that other tests have reached would hide what this one takes.
    code = f"import test_hostile_calls as tests; tests.measure_named_length({flag})"
    measured = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    named, there = map(int, measured.stdout.split())
    assert named < 128, "megabytes were taken for what never came"
    # The control: what is there is read, and seen by this measure.
    assert there >= 128


def test_only_the_first_answer_counts(box: sandtimer.Sandbox) -> None:
    import pickle

    def twice() -> None:
        for value in (1, 2, 3):
            data = pickle.dumps(value, 5)
            os.write(CHANNEL, b"A\0\0\0\0\0\0\0" + len(data).to_bytes(8, "little") + data)
        time.sleep(100)

    assert box.call(twice) == 1


def test_a_forged_answer_is_only_the_jobs_own(box: sandtimer.Sandbox) -> None:
    def forge() -> int:
        import gc
        import pickle

        # Whatever it finds in its memory, it can only say what it could have returned.
        assert gc.get_objects() is not None
        data = pickle.dumps("forged", 5)
        os.write(CHANNEL, b"A\0\0\0\0\0\0\0" + len(data).to_bytes(8, "little") + data)
        os._exit(3)

    outcome = box.run(forge)
    # Either its answer was taken before it left, or it left without one: never somebody else's result.
    assert outcome.value in ("forged", None)
    assert box.call(abs, -1) == 1


def test_a_flood_of_packets_does_not_delay_the_deadline(box: sandtimer.Sandbox) -> None:
    def flood() -> None:
        os.set_blocking(CHANNEL, False)
        while True:
            try:
                os.write(CHANNEL, b"B")
            except BlockingIOError:
                pass

    outcome = box.limits(timeout=0.3).run(flood)
    assert outcome.error is not None
    assert outcome.tree.survivors == 0


def test_a_job_has_four_descriptors_and_its_own_uid(box: sandtimer.Sandbox) -> None:
    def posture() -> Any:
        with open("/proc/self/status") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        open_ones = sorted(int(name) for name in os.listdir("/proc/self/fd"))
        return (open_ones, os.getuid(), status["CapEff"], status["CapInh"], status["CapAmb"], status["NoNewPrivs"],
                status["Seccomp"], os.listdir("/proc/self/task"))  # fmt: skip

    fds, uid, effective, inheritable, ambient, no_new, seccomp, tasks = box.call(posture)
    # The listing itself has one more open.
    assert fds[:4] == [0, 1, 2, 3] and len(fds) <= 5
    assert uid != 0
    assert int(effective, 16) == int(inheritable, 16) == int(ambient, 16) == 0
    assert (no_new, seccomp) == ("1", "2")
    assert len(tasks) == 1


def test_nothing_of_one_call_is_seen_by_the_next(box: sandtimer.Sandbox) -> None:
    def leave() -> None:
        import builtins
        import json

        builtins.open = None  # type: ignore[assignment]
        json.dumps = None  # type: ignore[assignment]
        for place in ("/tmp", "/dev/shm"):
            with os.fdopen(os.open(place + "/left", os.O_CREAT | os.O_WRONLY), "w") as file:
                file.write("here")

    def look() -> Any:
        import json

        return json.dumps([os.path.exists("/tmp/left"), os.path.exists("/dev/shm/left"), callable(open)])

    assert box.run(leave).ok
    assert box.call(look) == "[false, false, true]"


def test_nothing_is_written_to_the_hosts_shared_memory(box: sandtimer.Sandbox) -> None:
    before = set(os.listdir("/dev/shm"))
    assert len(box.call(lambda: b"x" * (32 << 20))) == 32 << 20
    assert set(os.listdir("/dev/shm")) <= before


def test_kill_of_everything_it_sees_reaches_only_itself(box: sandtimer.Sandbox) -> None:
    def rampage() -> None:
        for target in (-1, 1, os.getppid() or 1):
            try:
                os.kill(target, signal.SIGKILL)
            except OSError:
                pass

    zygotes = box.stats()["zygotes"]
    assert box.run(rampage).tree.survivors == 0
    assert [box.call(abs, -each) for each in range(3)] == [0, 1, 2]
    assert box.stats()["zygotes"] == zygotes


def test_a_daemon_dies_with_its_call(box: sandtimer.Sandbox) -> None:
    def daemonise() -> str:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                while True:
                    time.sleep(1)
            os._exit(0)
        return "left a daemon"

    outcome = box.run(daemonise)
    assert outcome.value == "left a daemon"
    assert (outcome.tree.survivors, outcome.tree.killed >= 1) == (0, True)


ENGINE = """
import sandtimer, sys, time, threading
box = sandtimer.Sandbox(start="zygote")
box.warm(2)
future = box.submit(exec, "while True: pass")
while not future.running():
    time.sleep(0.01)
print("running", flush=True)
time.sleep(100)
"""


def children_of(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == parent:
                        found.append(int(name))
            except OSError:
                pass
    return found


def test_nothing_outlives_a_caller_that_is_killed() -> None:
    caller = subprocess.Popen([sys.executable, "-c", ENGINE], stdout=subprocess.PIPE, text=True)
    try:
        assert caller.stdout is not None and caller.stdout.readline() == "running\n"
        pidfds = {}
        for pid in children_of(caller.pid):
            # One that helps to start others may have ended by now.
            with contextlib.suppress(ProcessLookupError):
                pidfds[pid] = os.pidfd_open(pid)
        # Launcher, watchdog, zygote, and an init and a job for each child.
        assert len(pidfds) >= 5
        caller.kill()
        limit = time.monotonic() + 10
        waiting = set(pidfds.values())
        while waiting and time.monotonic() < limit:
            waiting -= set(readable(waiting, 1))
        assert not waiting, [pid for pid, fd in pidfds.items() if fd in waiting]
        for fd in pidfds.values():
            os.close(fd)
    finally:
        caller.kill()
        caller.wait()


def test_an_interrupt_ends_the_call_and_is_raised() -> None:
    code = """
import sandtimer, time, os
box = sandtimer.Sandbox()
box.warm(1)
try:
    print("ready", flush=True)
    box.call(exec, "while True: pass")
except KeyboardInterrupt:
    print("interrupted", box.call(abs, -1), flush=True)
"""
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert caller.stdout is not None and caller.stdout.readline() == "ready\n"
        # Long enough for most to be in the call; one that comes before is raised by the same handler.
        readable([caller.stdout], 0.3)
        caller.send_signal(signal.SIGINT)
        assert readable([caller.stdout], 30)
        assert caller.stdout.readline() == "interrupted 1\n"
    finally:
        caller.kill()
        caller.wait()


def test_the_pool_serves_on_when_its_zygote_is_killed() -> None:
    with sandtimer.Sandbox(timeout=20.0) as box:
        assert box.call(abs, -1) == 1
        mine = set(children_of(os.getpid()))
        zygotes = [pid for pid in mine if is_zygote(pid)]
        assert zygotes
        slow = box.submit(time.sleep, 0.5)
        limit = time.monotonic() + 10
        while not slow.running() and time.monotonic() < limit:
            time.sleep(0.01)
        for pid in zygotes:
            os.kill(pid, signal.SIGKILL)
        assert [box.call(abs, -each) for each in range(20)] == list(range(20))
        assert slow.result(timeout=20) is None


def is_zygote(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"-I\0-B\0-u\0-c\0" in file.read() and os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(
                "/proc/self/ns/pid"
            )
    except OSError:
        return False
