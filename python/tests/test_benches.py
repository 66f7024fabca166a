"""The benches run, with a handful of calls, and print every line that a reader of their results looks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHES = Path(__file__).resolve().parent.parent / "benches"

pytest.importorskip("numpy")


def bench(script: str, *options: str, path: Path) -> tuple[str, dict[str, Any]]:
    command = [sys.executable, str(BENCHES / script), *options, "--json", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd="/")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout, json.loads(path.read_text())


def test_calls_prints_every_contender_section_and_bound(tmp_path: Path) -> None:
    printed, record = bench("calls.py", "--size", "smoke", path=tmp_path / "calls.json")
    for contender in (
        "os.fork + pipe + wait",
        "sandtimer",
        "sandtimer, to the proof of death",
        "pebble.ProcessPool",
        "multiprocessing Process + Queue",
        "pebble.concurrent.process",
        "py-adtools SandboxExecutor",
        "wrapt-timeout-decorator",
        "HumanEval's scheme (own text)",
        "bwrap + python",
        "subprocess.run python",
    ):
        line = next(line for line in printed.splitlines() if line.startswith(f"  {contender:<34}"))
        assert line.endswith("not installed") or len(line.split()) > 6, line
    for section in ("Latency of a call", "Throughput of calls", "as ndarray", "as bytes", "in a caller that holds", "Deadline of", "programs with"):
        assert section in printed
    assert "isolation of sandtimer: T" in printed
    assert printed.count("steal") >= 6
    labels = {bound["label"] for bound in record["bounds"]}
    assert labels >= {
        "call p50 / os.fork p50",
        "call p99 / os.fork p99",
        "call p50 / pebble's reused pool p50",
        "multiprocessing Process + Queue p50 / call p50",
        "calls/s / raw fork loop",
        "calls/s / best peer with fresh processes",
        "ndarray transfer / array.copy()",
        "bytes transfer / bytes(bytearray)",
        "call p50 in the large caller / in a small one",
        "returned late, p99, all runs (ms)",
        *(f"{kind}: call p50 / os.fork p50" for kind in ("function of an own module", "function of a notebook", "method", "lambda")),
        "function of an own module: calls/s / os.fork loops",
        "function of an own module: our SandboxExecutor p50 / py-adtools p50",
        "subprocess.run / judge_many",
    }
    assert all(f"  {label}" in printed for label in labels)
    # Whether bounds on time are met is for the bench at full size to say; these hold whatever the machine does.
    exact = {bound["label"]: bound["measured"] for bound in record["bounds"]}
    assert exact["survivors by the outcomes, and runs without proof"] == 0
    assert exact["survivors by the census of the host"] == 0
    assert exact["runs that ended otherwise"] == 0
    assert record["deadlines"]["control"] >= 2


def test_soak_ends_well_and_prints_what_is_held(tmp_path: Path) -> None:
    printed, record = bench("soak.py", "--calls", "120", "--rest", "0", path=tmp_path / "soak.json")
    assert sum(number for _, _, number in record["endings"]) == 120
    assert {kind for kind, _, _ in record["endings"]} >= {"adds", "daemonises", "leaves a daemon", "storm of forks"}
    for name in ("descriptors", "threads", "memory of the caller", "processes", "mounts of the host", "control groups"):
        assert f"growth of {name}" in printed
    assert all(bound["met"] for bound in record["bounds"])
    assert "good calls that timed out while the machine was stolen from: 0" in printed or "timed out otherwise" in printed


def test_a_census_that_sees_nothing_is_no_proof(tmp_path: Path) -> None:
    program = "import report; r = report.Report(); r.bound('seen', None, 0); r.bound('grown', 2, 1); r.conclude(None)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHES), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path
    )
    assert ended.stdout.count("MISSED") == 2 and "0 met, 2 missed" in ended.stdout, ended.stdout + ended.stderr
