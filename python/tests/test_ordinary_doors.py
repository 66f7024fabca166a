"""What people do first, through more than one way in: long code, magics, progress, wrong names, ids of a server that was killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
import sandtimer
from doors import Doors, named, request
from serving import BINARY, Serving

LONG = "x" * 300_000


@pytest.fixture(scope="module")
def doors(server: str) -> Iterator[Doors]:
    with sandtimer.Sandbox(timeout=60.0) as box:
        yield Doors(server, box)


@named("exec", "judge", "context", "http_code", "http_context", "http_job", "mcp_run_code")
def test_python_may_be_longer_than_an_argument(doors: Doors, door: str) -> None:
    assert getattr(doors, door)(f"text = '{LONG}'\nprint(len(text))").stdout == "300000\n"


@named("session_shell", "mcp_session_shell")
def test_commands_of_sessions_may_be_longer_than_an_argument(doors: Doors, door: str) -> None:
    assert getattr(doors, door)(f"text={LONG}; echo ${{#text}}").stdout == "300000\n"


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_typescript_has_at_most_a_mebibyte(doors: Doors) -> None:
    code = "const text: string = 'TEXT';\nconsole.log(text.length)"
    fits = code.replace("TEXT", "y" * 1_000_000)
    assert doors.http_run(code=fits, language="typescript").stdout == "1000000\n"
    refused = request(f"{doors.server}/v1/runs", {"code": code.replace("TEXT", "y" * 1_100_000), "language": "typescript"})
    assert "1048576" in refused["message"], refused


MAGICS = {
    "!echo hi": "hi\n",
    "files = !printf 'a\\nb\\n'\nprint(files)": "['a', 'b']\n",
    "%%bash\necho one; echo two": "one\ntwo\n",
    # Clients without a session share an interpreter: the next ones are to find its working directory as it was, and a variable of
    # Python's of this name would be put in place of the shell's.
    "%cd /tmp": "/tmp\n",
    "%cd /workspace": "/workspace\n",
    "%env OF_MAGICS=b\n!echo $OF_MAGICS": "env: OF_MAGICS=b\nb\n",
}


@named("context", "http_context", "mcp_run_code")
def test_magics_of_notebooks_work(doors: Doors, door: str) -> None:
    for source, expected in MAGICS.items():
        ended = getattr(doors, door)(source)
        assert ended.stdout == expected, (source, ended.whole)


@named("context", "http_context")
def test_what_is_displayed_is_a_result(doors: Doors, door: str) -> None:
    ended = getattr(doors, door)("from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>'))")
    results = ended.whole["results"] if isinstance(ended.whole, dict) else ended.whole.results
    assert results[0]["text/html"] == "<b>x</b>" and ended.stdout == "", ended.whole


LIMIT = 300 << 20
LOOKS = """
import os, psutil
memory = psutil.virtual_memory()
print(memory.total, memory.available <= memory.total, psutil.cpu_count() == len(os.sched_getaffinity(0)), psutil.cpu_percent(0.1) >= 0)
print(psutil.Process().pid in psutil.pids(), len(psutil.pids()) < 9)
"""


def test_psutil_shows_the_limits_of_the_run() -> None:
    pytest.importorskip("psutil")
    command = [BINARY, "run", "--json", "--wall", "60s", "--memory", str(LIMIT), "--", sys.executable, "-c", LOOKS]
    of_cli = json.loads(subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=90).stdout)
    with sandtimer.Sandbox(timeout=60.0, memory=LIMIT) as box:
        seen = [of_cli["stdout"], box.command([sys.executable, "-c", LOOKS]).stdout, box.run(exec, LOOKS).stdout]
    assert seen == [f"{LIMIT} True True True\nTrue True\n"] * 3, of_cli


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
@named("http_shell", "cli_shell")
def test_node_shows_the_processors_and_memory_of_the_run(doors: Doors, door: str) -> None:
    more: dict[str, Any] = {"flags": ("--memory", str(LIMIT))} if door == "cli_shell" else {"memory_bytes": LIMIT}
    script = "os.cpus().length + ' ' + os.totalmem() + ' ' + (os.freemem() <= os.totalmem()) + ' ' + os.loadavg()[0]"
    ended = getattr(doors, door)(f'echo $(nproc) $(node -p "{script}")', **more)
    processors, listed, *rest = ended.stdout.split()
    assert processors == listed and rest == [str(LIMIT), "true", "0"], ended.whole


def test_progress_of_what_python_prints_is_known(doors: Doors) -> None:
    code = "import time\nfor epoch in range(1, 6):\n    print(f'Epoch {epoch}/9')\n    time.sleep(0.3)\ntime.sleep(100)"
    asked = {"command": ["python3", "-c", code], "wait_ms": 0, "wall_ms": 60_000}
    run = request(f"{doors.server}/v1/runs", asked)["run_id"]
    try:
        end = time.monotonic() + 40
        while True:
            progress = request(f"{doors.server}/v1/runs/{run}?wait_ms=0")["progress"]
            # The fifth has begun.
            if progress and progress["done"] == 4:
                break
            assert time.monotonic() < end, progress
            time.sleep(0.05)
        assert progress["total"] == 9 and 0 <= progress["p_finish_before_deadline"] <= 1, progress
    finally:
        request(f"{doors.server}/v1/runs/{run}/kill", {})


def test_unknown_command_has_no_estimate_of_its_own(doors: Doors) -> None:
    estimate = doors.tool("estimate_duration", {"command": f"never-seen-{time.monotonic_ns()} --x"}).structured_content
    assert (estimate["basis"], estimate["runs"]) == ("unknown", 0), estimate
    assert estimate["best_ms"] < estimate["worst_ms"] <= 24 * 3_600_000, estimate


@pytest.mark.parametrize(
    ("path", "given", "ours"),
    [
        ("contexts", {"lang": "python"}, "language"),
        ("contexts", {"time_limit": 5}, "wall_ms"),
        ("sessions", {"workdir": "/tmp"}, "cwd"),
    ],
)
def test_names_of_other_tools_are_named_by_ours(doors: Doors, path: str, given: dict[str, Any], ours: str) -> None:
    refused = request(f"{doors.server}/v1/{path}", given)
    assert refused["details"]["nearest"] == ours and f"`{ours}`" in refused["message"], refused


def test_ids_of_a_server_that_was_killed_say_so(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    try:
        made = [request(f"{serving.url}/v1/{kind}", {})["context_id"] for kind in ("contexts", "sessions")]
        serving.crash()
        serving.launch()
        for kind, each in zip(("contexts", "sessions"), made):
            ended = request(f"{serving.url}/v1/{kind}/{each}/execute", {"code": "1"})
            assert ended["code"] == "context_ended" and "killed" in ended["message"], ended
        unknown = request(f"{serving.url}/v1/contexts/0123456789abcdef")
        assert unknown["code"] == "context_not_found", unknown
    finally:
        serving.stop()
