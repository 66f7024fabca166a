"""What calls inherit from their zygote: memory that is laid out for forks, and hooks that forks call."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

import pytest

import sandtimer

LIBRARY = ["random", "threading", "logging"]


def forked_random() -> tuple[str, str]:
    """The next number here, and in a fork of its own."""
    import random

    random.seed(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, repr(random.random()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return repr(random.random()), os.read(reader, 100).decode()


def thread_in_fork() -> int:
    """Whether threads, and what locks there are, work in a fork of its own."""
    import logging
    import threading

    child = os.fork()
    if child == 0:
        thread = threading.Thread(target=logging.getLogger().setLevel, args=(10,))
        thread.start()
        thread.join(5)
        ok = threading.main_thread() is threading.current_thread() and not thread.is_alive()
        os._exit(0 if ok and threading.active_count() == 1 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


#: How often the hooks of two modules were called, and whether it was here. This file's own modules need the library's `random`.
CALLS_OF_HOOKS = """
(lambda hooked, random, here: (len(hooked.called), len(random.called), hooked.called[:1] == [here]))(
    __import__("hooked"), __import__("random"), __import__("os").getpid()
)
"""


def numbers() -> list[float]:
    import random

    return [random.random(), random.gauss(0, 1)]


def maps() -> str:
    return Path("/proc/self/maps").read_text()


@pytest.fixture(scope="module")
def box():
    with sandtimer.Sandbox(timeout=20.0, preload=LIBRARY) as box:
        yield box


def test_a_fork_of_a_job_has_numbers_of_its_own(box):
    here, there = box.call(forked_random)
    assert here != there


def test_a_fork_of_a_job_can_have_threads(box):
    assert box.call(thread_in_fork) == 0


def test_calls_have_numbers_of_their_own(box):
    drawn = [tuple(box.call(numbers)) for _ in range(20)]
    assert len(set(drawn)) == 20
    assert len({gauss for _, gauss in drawn}) == 20


def test_a_module_of_the_callers_own_keeps_its_hooks(tmp_path, monkeypatch):
    # One has the name of one of the library's.
    for name in ("hooked", "random"):
        (tmp_path / f"{name}.py").write_text(
            "import os\ncalled = []\nos.register_at_fork(after_in_child=lambda: called.append(os.getpid()))\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    with sandtimer.Sandbox(timeout=20.0, preload=["hooked", "random"]) as box:
        assert box.call(eval, CALLS_OF_HOOKS.strip()) == (1, 1, True)


def test_nothing_that_is_inherited_is_writable_and_executable(box):
    assert not re.search(r"^\S+ .wx", box.call(maps), re.MULTILINE)


def test_libraries_have_few_mappings(box):
    # Of what the interpreter had loaded before the call: what a call loads is laid out as everywhere.
    known = r"^\S+ (\S+) \S+ \S+ [1-9]\d* +(/\S*/(?:libpython3|python3|libc\.)[^/\s]*)$"
    files = re.findall(known, box.call(maps), re.MULTILINE)
    assert files
    for name in {name for _, name in files}:
        # What may be executed, in two parts where large pages lie between, and what may be written to.
        kinds = [rights for rights, other in files if other == name]
        assert len(kinds) <= 4 and set(kinds) <= {"r-xp", "rw-p"}, (name, kinds)


def shelf() -> list[tuple[int, int, str, int]]:
    """Start, end, rights and place in the file of what is mapped from the zygote's data."""
    lines = re.findall(r"^(\w+)-(\w+) (\S+) (\w+) \S+ \d+ +/memfd:sandtimer-zygote-data", maps(), re.MULTILINE)
    return [(int(start, 16), int(end, 16), rights, int(at, 16)) for start, end, rights, at in lines]


#: How many pages of it there are, how many are a process's own, and what may be done to them. Imports nothing.
PAGES_OF_SHELF = """
total, own, rights = 0, 0, set()
with open("/proc/self/maps") as maps, open("/proc/self/pagemap", "rb") as pagemap:
    for line in [line for line in maps if "sandtimer-zygote-data" in line]:
        start, end = (int(address, 16) for address in line.split()[0].split("-"))
        pagemap.seek(start // 4096 * 8)
        entries = memoryview(pagemap.read((end - start) // 4096 * 8)).cast("Q")
        total, own = total + len(entries), own + sum(entry >> 61 == 0b100 for entry in entries)
        rights.add(line.split()[1])
(total, own, sorted(rights))
"""


def map_more_than_there_is() -> None:
    """Has the last part of the zygote's data grow, and touches what lies behind."""
    import ctypes

    start, end, _, _ = max(shelf(), key=lambda line: line[3])
    remap = ctypes.CDLL(None).mremap
    remap.restype = ctypes.c_void_p
    length = end - start
    moved = remap(ctypes.c_void_p(start), ctypes.c_size_t(length), ctypes.c_size_t(length + (1 << 20)), 1)
    assert moved not in (None, ctypes.c_void_p(-1).value)
    ctypes.memset(moved + length, 1, 1)


def file_of_data() -> int:
    """A descriptor of the file that the zygotes of this process have their data in."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            found = re.search(r"^(\w+-\w+) .*/memfd:sandtimer-zygote-data", Path(f"/proc/{pid}/maps").read_text(), re.M)
        except OSError:
            continue
        if found and parent == os.getpid():
            return os.open(f"/proc/{pid}/map_files/{found[1]}", os.O_RDONLY)
    raise LookupError("no zygote")


def zeros_behind_trimming() -> bool:
    """Whether memory is zeroed that the zygote used and freed, that is given back to the kernel, and asked for with zeros."""
    import ctypes

    library = ctypes.CDLL(None)
    library.calloc.restype = ctypes.c_void_p
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)
    zeroed = [library.calloc(1, size) for size in range(9000, 9500) for _ in range(3)]
    return all(ctypes.string_at(address, 9000) == bytes(9000) for address in zeroed)


def test_data_is_a_jobs_own_only_once_it_is_touched(box):
    total, own, rights = box.exec(PAGES_OF_SHELF).value
    assert total > 500 and rights == ["rw-p"]
    assert 0 < own < total / 2


def test_there_is_nothing_behind_the_end_of_the_zygotes_data(box):
    outcome = box.run(map_more_than_there_is)
    assert (outcome.ending, outcome.signal) == ("signaled", "SIGBUS")


def test_nothing_can_be_changed_in_or_left_behind_the_zygotes_data(box):
    try:
        file = file_of_data()
    except PermissionError:
        pytest.skip("the seals are read by /proc/PID/map_files, which takes CAP_CHECKPOINT_RESTORE: run this as root")
    every = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    assert fcntl.fcntl(file, fcntl.F_GET_SEALS) & every == every
    before = os.fstat(file)
    assert before.st_size == before.st_blocks * 512, "it has no holes"
    assert box.run(map_more_than_there_is).signal == "SIGBUS"
    after = os.fstat(file)
    os.close(file)
    assert (after.st_size, after.st_blocks) == (before.st_size, before.st_blocks)


def test_memory_that_was_given_back_is_zeroed_for_whom_that_is_promised(tmp_path, monkeypatch):
    (tmp_path / "freed.py").write_text(
        """
import ctypes
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
used = [library.malloc(9000) for _ in range(2000)]
kept = library.malloc(100)
for address in used:
    ctypes.memset(address, 1, 9000)
    library.free(ctypes.c_void_p(address))
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with sandtimer.Sandbox(timeout=20.0, preload=["freed"]) as box:
        assert box.call(zeros_behind_trimming)
