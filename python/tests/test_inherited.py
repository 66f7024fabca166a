"""What calls inherit from their zygote: memory that is laid out for forks, and hooks that forks call."""

from __future__ import annotations

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
    source = """
import hooked, os, random
(len(hooked.called), len(random.called), hooked.called[:1] == [os.getpid()])
"""
    with sandtimer.Sandbox(timeout=20.0, preload=["hooked", "random"]) as box:
        assert box.exec(source).value == (1, 1, True)


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
