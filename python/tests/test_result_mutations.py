"""Pickles cut short at every byte and changed at random: each is refused, or is a value of a type we know. Nothing else happens."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import carry
import pytest
import result_mutations

from sandtimer import ResultRefusedError

COUNT = 1_000_000


def test_what_is_cut_short_is_refused() -> None:
    cut = 0
    for data in result_mutations.samples():
        for length in range(len(data)):
            with pytest.raises(ResultRefusedError):
                carry.decode(data[:length], (), result_mutations.RESULTS)
            cut += 1
    assert cut > 3000


def test_what_is_changed_is_refused_or_a_value() -> None:
    program = pathlib.Path(result_mutations.__file__)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(program), str(COUNT), "7"],
        capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout)
    assert counts["unexpected"] == {}
    assert counts["decoded"] + counts["refused"] == COUNT
    assert counts["decoded"] > COUNT / 100 and counts["refused"] > COUNT / 10


def test_the_watch_would_have_seen_it() -> None:
    """The control: the same process, with a decoder that calls what it reads."""
    code = (
        "import result_mutations, pickle, sys\n"
        "sys.addaudithook(result_mutations.watch)\n"
        "result_mutations.DECODING = True\n"
        "pickle.loads(b'cos\\nsystem\\nX\\x04\\0\\0\\0true\\x85R.')\n"
        "assert any('os.system' in event for event in result_mutations.EVENTS)\n"
    )
    directory = pathlib.Path(result_mutations.__file__).parent
    subprocess.run([sys.executable, "-c", code], cwd=directory, check=True, timeout=60)
