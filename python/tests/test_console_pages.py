"""The console blocks of README.md and docs/ run as they are written, and print what they show.

The blocks of a page share a shell, a directory and a server. `…` is any text, and on a line of its own any lines. IDs,
times and other moments may differ; an ID that a command printed replaces that of the page in later commands. What
stays in the foreground (`sandtimer serve`) runs in the background here. Commands whose output the page does not show
must be found and be used rightly.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, NamedTuple, Optional

import pages
import pytest
from serving import BINARY

# What a reader already has: the files of a page. A text names the block of the page that is the file's content.
FILES = {
    "README.md": {"Makefile": "test:\n\ttrue\n"},
    "docs/compare/queues.md": {"part.sh": "#!/bin/sh\nsleep 60\n"},
    "docs/concepts/files.md": {"data.csv": "1,2\n" * 13, "project/src/main.py": "print(1)\n"},
    "docs/guides/jobs.md": {"Makefile": "test:\n\ttrue\n", "part.sh": "#!/bin/sh\n", "join.sh": "#!/bin/sh\n"},
}
FILES_OF_BLOCKS = {
    "docs/guides/jobs.md": {"train.toml": 'command = ["python3", "train.py"]', "nightly.toml": 'name = "nightly"'},
}
# The page whose command prints what its JSON block shows.
OUTCOME = "docs/concepts/outcome.md"
# Pages on which the link is there that `coding-agents.md` makes as root.
WITH_BWRAP = ["docs/guides/coding-agents.md"]

USAGE_ERRORS = (2, 125, 126, 127)
ID = r"\b(?=[0-9a-f]*[a-f])[0-9a-f]{12,16}\b"
# A text of the page, and what may be in its place. Limits are compared as they are.
VARIABLE = re.compile(
    r"(?P<any>…)"
    rf"|(?P<id>{ID})"
    r"|(?P<moment>\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d))"
    r"|(?P<epoch>\b\d{13}\b)"
    r"|(?P<time>(?<!limit of )\b\d+(?:\.\d+)? (?:ms|s|m|h)\b)"
)
PATTERNS = {
    "any": ".*",
    "moment": r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)",
    "epoch": r"\d{13}",
    "time": r"\d+(?:\.\d+)? (?:ms|s|m|h)(?: \d+ (?:m|s))?",
}
DEADLINE = 60.0


class Command(NamedTuple):
    text: str
    output: list[str]


def commands(text: str) -> list[Command]:
    """The commands of a block, each with the lines that it prints."""
    found: list[Command] = []
    end: Optional[str] = None
    for line in text.splitlines():
        if end is not None or (found and found[-1].text.endswith("\\") and not found[-1].output):
            found[-1] = Command(f"{found[-1].text}\n{line}", [])
            end = None if line == end else end
        elif line.startswith("$ "):
            found.append(Command(line[2:], []))
            heredoc = re.search(r"<<'?(\w+)'?", line)
            end = heredoc[1] if heredoc else None
        elif line.strip():
            found[-1].output.append(line)
    return found


class Shell:
    """A shell that executes one command after the other, and keeps its directory and variables."""

    def __init__(self, directory: pathlib.Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )

    def run(self, command: str) -> tuple[int, str]:
        """Returns the exit status and the output."""
        file = self.directory.parent / "command.sh"
        file.write_text(command + "\n", encoding="utf-8")
        mark = "end-of-the-command"
        assert self._process.stdin is not None and self._process.stdout is not None
        keep = f"(exit ${{status-0}}); . '{file}' </dev/null; status=$?; printf '\\n{mark} %s\\n' $status\n"
        self._process.stdin.write(keep.encode())
        self._process.stdin.flush()
        output = b""
        until = time.monotonic() + DEADLINE
        while not (done := re.search(rb"\n%s (\d+)\n" % mark.encode(), output)):
            left = until - time.monotonic()
            ready, _, _ = select.select([self._process.stdout], [], [], max(left, 0))
            assert ready, f"`{command}` did not end within {DEADLINE} s; it printed {output!r}"
            piece = os.read(self._process.stdout.fileno(), 65536)
            assert piece, f"`{command}` ended the shell; it printed {output!r}"
            output += piece
        return int(done[1]), output[: done.start()].decode()

    def close(self) -> None:
        """Ends the shell and what it left in the background."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(30)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


class Reader:
    """The directory, the shell and the server of a reader who follows a page."""

    def __init__(self, page: str, directory: pathlib.Path, server: str) -> None:
        self.directory = directory / "work"
        self._server = server
        self._ids: dict[str, str] = {}
        self._background = 0
        programs = directory / "bin"
        programs.mkdir()
        for name in ("sandtimer", *(["bwrap"] if page in WITH_BWRAP else [])):
            (programs / name).symlink_to(pathlib.Path(BINARY).resolve())
        shutil.copytree(pages.ROOT / "examples", self.directory / "examples")
        self._write_files(page)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDTIMER_")}
        environment["PATH"] = f"{programs}:{pathlib.Path(sys.executable).parent}:{environment['PATH']}"
        environment["SANDTIMER_STATE_DIR"] = str(directory / "state")
        environment["SANDTIMER_LISTEN"] = "127.0.0.1:0"
        environment["SANDTIMER_SERVER"] = server
        self._shell = Shell(self.directory, environment)

    def close(self) -> None:
        self._shell.close()

    def _write_files(self, page: str) -> None:
        files = dict(FILES.get(page, {}))
        for name, mark in FILES_OF_BLOCKS.get(page, {}).items():
            files[name] = next(block.text for block in pages.all_blocks() if block.page == page and mark in block.text)
        for name, content in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            path.chmod(0o755)

    def follow(self, command: Command) -> tuple[int, str]:
        """Runs a command of the page, and returns its exit status and output."""
        text = command.text.replace("cargo run --release -- ", "sandtimer ")
        text = text.replace("http://127.0.0.1:7880", self._server)
        for shown, found in self._ids.items():
            text = text.replace(shown, found)
        if re.match(r"sandtimer (serve|jobs work)\b", text):
            return self._run_in_background(re.sub(r"\s*&?\s*(#.*)?$", "", text))
        return self._shell.run(text)

    def _run_in_background(self, command: str) -> tuple[int, str]:
        self._background += 1
        file = self.directory.parent / f"background-{self._background}"
        if not command.startswith("sandtimer serve"):
            return self._shell.run(f"{command} >'{file}' 2>&1 &")
        # A reader ends the server of the section before.
        end = "[ -z $serving ] || { kill $serving; wait $serving; }"
        status, _ = self._shell.run(f"{end}\n{command} >'{file}' 2>&1 & serving=$!")
        until = time.monotonic() + DEADLINE
        while not (found := re.search(r"http://\S+", file.read_text() if file.exists() else "")):
            assert time.monotonic() < until, f"`{command}` printed {file.read_text()!r}"
            time.sleep(0.02)
        self._server = found[0]
        self._shell.run(f"export SANDTIMER_SERVER={found[0]}")
        return status, file.read_text().replace(found[0], "http://127.0.0.1:7880")

    def differences(self, command: Command, output: str) -> list[str]:
        """What the page shows and the command did not print, and the reverse. The order of lines does not count."""
        left = [line.replace(str(self.directory), "/app").rstrip() for line in output.splitlines() if line.strip()]
        missing = []
        for shown in (line for line in command.output if line != "…"):
            pattern, ids = self._pattern(shown)
            match = next((match for line in left if (match := re.fullmatch(pattern, line))), None)
            if match is None:
                missing.append(f"not printed: {shown}")
            else:
                left.remove(match[0])
                self._ids.update(zip(ids, match.groups()))
        extra = [] if "…" in command.output else [f"not shown: {line}" for line in left]
        return [*missing, *extra] if missing or command.output else []

    def _pattern(self, shown: str) -> tuple[str, list[str]]:
        """A regular expression for a line of the page, and the IDs that its groups stand for."""
        ids: list[str] = []
        parts, start = [], 0
        for found in VARIABLE.finditer(shown):
            parts.append(re.escape(shown[start : found.start()]))
            start = found.end()
            if not found["id"]:
                parts.append(PATTERNS[found.lastgroup or ""])
            elif found["id"] in self._ids:
                parts.append(re.escape(self._ids[found["id"]]))
            elif found["id"] in ids:
                parts.append(rf"(?:\{ids.index(found['id']) + 1})")
            else:
                ids.append(found["id"])
                parts.append(f"({ID})")
        return "".join([*parts, re.escape(shown[start:])]), ids


def shape(value: Any) -> Any:
    """The keys and the types of a JSON value; of a list those of its first item."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def console_pages() -> list[Any]:
    by_page: dict[str, list[pages.Block]] = {}
    for block in (block for block in pages.blocks("console") if block.page != OUTCOME):
        by_page.setdefault(block.page, []).append(block)
    return [pytest.param(page, found, id=page) for page, found in by_page.items()]


@pytest.mark.parametrize("page, blocks", console_pages())
def test_console_prints_what_it_shows(page: str, blocks: list[pages.Block], server: str, tmp_path: pathlib.Path) -> None:
    reader = Reader(page, tmp_path, server)
    try:
        for block in blocks:
            for command in commands(block.text):
                status, output = reader.follow(command)
                printed = f"{block.location}: `{command.text}` (status {status}) printed:\n{output}"
                assert reader.differences(command, output) == [], printed
                assert command.output or status not in USAGE_ERRORS, printed
    finally:
        reader.close()


def test_json_of_the_outcome_has_the_shape_that_its_page_shows(server: str, tmp_path: pathlib.Path) -> None:
    run, shown = (block for block in pages.all_blocks() if block.page == OUTCOME and block.language in ("console", "json"))
    reader = Reader(OUTCOME, tmp_path, server)
    try:
        _, output = reader.follow(commands(run.text)[0])
    finally:
        reader.close()
    found, expected = json.loads(output), json.loads(shown.text)
    for outcome in (found, expected):
        # Depend on the machine.
        del outcome["isolation"]["degraded"], outcome["usage"]["run_queue_ms"], outcome["verdict"]["python"]
    assert shape(found) == shape(expected)


def test_other_output_than_shown_is_found(tmp_path: pathlib.Path) -> None:
    block = "$ echo 0123456789ab; echo in 3 ms # …\nabcdefabcdef\nin 5 ms\n$ cat <<'END'\nabcdefabcdef\nEND\n$ echo one; false\ntwo\n$ echo $?\n1\n"
    found = commands(block)
    assert [command.output for command in found] == [["abcdefabcdef", "in 5 ms"], [], ["two"], ["1"]]
    reader = Reader("page", tmp_path, "http://127.0.0.1:1")
    try:
        results = [reader.differences(command, reader.follow(command)[1]) for command in found]
        assert reader.follow(found[1])[1].strip() == "0123456789ab"
    finally:
        reader.close()
    assert results == [[], [], ["not printed: two", "not shown: one"], []]
