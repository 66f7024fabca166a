"""The Python examples of README.md and docs/ run as they are written, and print what their comments show.

A comment after a `print`, or on the line below it, is its output; `…` is any text. Several lines are joined by ", ".
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

import pages
import pytest

# What a reader already has, by a line of the example.
PRELUDES = {
    "for judgement in box.judge_many(programs, [((1, 2), 3)": "box = sandtimer.Sandbox()",
    'judgement = box.judge("print(int(input()) ** 2)"': 'programs, cases = ["print(1)"], [("", "1")]; box = sandtimer.Sandbox()',
    "def train():": "import signal; save_checkpoint = lambda *_: None",
    "breaker = sandtimer.CircuitBreaker(": "box = sandtimer.Sandbox(); approximate = lambda text: 0; calculate = eval",
    "guard = sandtimer.LoopGuard(": (
        "box = sandtimer.Sandbox(); actions = {'add': sum}; inputs = iter([[1], [2], [3], [3], [3]]); "
        "driver = lambda turn: ('add', next(inputs))"
    ),
}

# Executes a file, and writes as JSON what each of its lines printed.
RUNNER = """
import builtins, json, sys
path, prelude = sys.argv[1:]
printed = []
def show(*values, sep=" ", **_):
    caller = sys._getframe(1)
    if caller.f_code.co_filename == path:
        printed.append((caller.f_lineno, sep.join(map(str, values))))
builtins.print = show
names = {"__name__": "__main__"}
exec("import sandtimer\\n" + prelude, names)
with open(path) as file:
    exec(compile(file.read(), path, "exec"), names)
sys.__stdout__.write(json.dumps(printed))
"""


class Example(NamedTuple):
    page: str
    line: int
    code: str

    def expected(self) -> dict[int, str]:
        """The outputs that the comments show, by the line of their `print`."""
        found = {}
        lines = self.code.splitlines()
        for number, (line, after) in enumerate(zip(lines, [*lines[1:], ""]), start=1):
            statement = re.match(r"(\s*)print\(", line)
            if statement:
                comment = re.search(r"\)\s+# (.+)$", line) or re.match(statement[1] + "# (.+)$", after)
                if comment:
                    found[number] = comment[1]
        return found


def examples() -> list[Example]:
    return [Example(block.page, block.line, block.text) for block in pages.blocks("python")]


def outputs(code: str, prelude: str, directory: pathlib.Path) -> dict[int, str]:
    file = directory / "example.py"
    file.write_text(code, encoding="utf-8")
    command = [sys.executable, "-c", RUNNER, str(file), prelude]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[int, list[str]] = {}
    for line, text in json.loads(done.stdout):
        found.setdefault(line, []).extend(text.strip().splitlines())
    return {line: ", ".join(texts) for line, texts in found.items()}


def differences(expected: dict[int, str], found: dict[int, str]) -> list[str]:
    wrong = []
    for line, text in expected.items():
        pattern = ".*".join(re.escape(part) for part in text.split("…"))
        if not re.fullmatch(pattern, found.get(line, "")):
            wrong.append(f"line {line}: expected {text!r}, printed {found.get(line)!r}")
    return wrong


@pytest.mark.parametrize("example", examples(), ids=lambda example: f"{example.page}:{example.line}")
def test_example_prints_what_it_shows(
    example: Example, server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    if any(f"from {package} " in example.code for package in ("smolagents", "mcp")) and sys.version_info < (3, 10):
        pytest.skip("the package that the example imports does not exist for this Python")
    monkeypatch.setenv("SANDTIMER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("SANDTIMER_SERVER", server)
    preludes = [prelude for mark, prelude in PRELUDES.items() if mark in example.code]
    code = example.code.replace("http://127.0.0.1:7880", server)
    found = outputs(code, "\n".join(preludes), tmp_path)
    assert differences(example.expected(), found) == []


def test_every_prelude_belongs_to_an_example() -> None:
    code = "\n".join(example.code for example in examples())
    assert [mark for mark in PRELUDES if mark not in code] == []


def test_examples_that_are_not_tested_compile() -> None:
    found = [block for block in pages.all_blocks() if block.language == "python" and (block.reason or block.tested_elsewhere)]
    for block in found:
        compile(block.text, block.location, "exec")
    assert found != []


def test_other_output_than_shown_is_found(tmp_path: pathlib.Path) -> None:
    code = 'print(6 * 7)    # 42\nfor word in ("a", "b"):\n    print(word)\n    # a, b\nprint("one two")    # one …\nprint(1)    # 2\n'
    expected = Example("page", 1, code).expected()
    assert expected == {1: "42", 3: "a, b", 5: "one …", 6: "2"}
    assert differences(expected, outputs(code, "", tmp_path)) == ["line 6: expected '2', printed '1'"]


def test_every_block_is_executed_parsed_or_marked_with_a_reason() -> None:
    faults = [fault for fault in map(pages.fault, pages.all_blocks()) if fault]
    assert faults == [], "\n".join(faults)


def test_unmarked_blocks_are_found() -> None:
    text = """
```sh
make
```
```toml
a =
```
```ts title="example"
run();
```
```rust
fn main() {}
```
```console title="Docker (not run in tests: needs Docker)"
$ docker ps
```
```yaml title="not run in tests: "
a: 1
```
"""
    found = [pages.fault(block) for block in pages.parse("docs/page.md", text)]
    assert [(fault or "").partition(": ")[0] for fault in found] == [
        "docs/page.md:2",
        "docs/page.md:5",
        "docs/page.md:8",
        "docs/page.md:11",
        "",
        "docs/page.md:17",
    ]


def test_every_test_elsewhere_has_the_example() -> None:
    texts = [block.text for block in pages.all_blocks()]
    for mark, (text, test) in pages.TESTED_ELSEWHERE.items():
        assert any(mark in found for found in texts), f"no block has {mark}"
        assert text in (pages.ROOT / test).read_text(encoding="utf-8"), f"{test} does not have {text}"
