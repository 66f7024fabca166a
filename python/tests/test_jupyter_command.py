"""`sandtimer jupyter install`, with the interpreter of these tests as the first python3 of PATH."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

from serving import BINARY


def install(directory: pathlib.Path, python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    programs = directory / "bin"
    programs.mkdir()
    program = programs / "python3"
    program.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin"}
    command = [BINARY, "jupyter", "install", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def test_a_kernelspec_is_written(tmp_path: pathlib.Path) -> None:
    prefix = tmp_path / "environment"
    done = install(tmp_path, sys.executable, f"--prefix={prefix}", "--name=sealed", "--memory", "1G", "--cell-timeout", "10m", "--network")
    assert done.returncode == 0, done.stderr
    spec = json.loads((prefix / "share/jupyter/kernels/sealed/kernel.json").read_text())
    assert spec["metadata"]["kernel_provisioner"] == {
        "provisioner_name": "sandtimer-provisioner",
        "config": {"memory": "1G", "cell_timeout": "10m", "network": True},
    }


def test_refusals_name_the_remedy(tmp_path: pathlib.Path) -> None:
    (tmp_path / "without").mkdir()
    without = install(tmp_path / "without", f"{sys.executable} -S -E")
    assert without.returncode == 125
    assert "the first python3 in PATH cannot install the kernelspec" in without.stderr and "activate the environment" in without.stderr
    (tmp_path / "wrong").mkdir()
    wrong = install(tmp_path / "wrong", sys.executable, f"--prefix={tmp_path}", "--memory=much")
    assert wrong.returncode == 125 and "much" in wrong.stderr
    both = subprocess.run([BINARY, "jupyter", "install", "--user", "--prefix=/x"], capture_output=True, text=True, timeout=60)
    assert both.returncode == 125 and "--prefix" in both.stderr
