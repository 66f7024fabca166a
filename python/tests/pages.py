"""The blocks of code of the pages, and what executes them.

Every block of a language is executed or parsed by a test, or its fence has the reason why not in its title, which the
site shows above the block: ```console title="not run in tests: needs Docker".
"""

from __future__ import annotations

import configparser
import json
import pathlib
import re
import sys
from typing import Any, NamedTuple, Optional

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = pathlib.Path(__file__).parents[2]
TYPESCRIPT_TEST = "typescript/tests/pages.test.ts"

# Blocks that tests of their own execute: a text of the block, and the test, which has the text as well.
TESTED_ELSEWHERE = {
    "sandtimer run --stall 500ms": ("docs/concepts/failure-atlas.md", "python/tests/test_failure_atlas.py"),
    "examples/jobs/calculator.toml": ("calculator.toml", "crates/sandtimer-cli/tests/jobs.rs"),
    "examples/agent_loop/agent_loop.py": ("agent_loop.py", "python/tests/test_agent_loop.py"),
    "examples/rewards/verl_reward.py": ("verl_reward", "python/tests/test_rewards.py"),
    "examples/2048/evolve.py": ("evolve.py", "python/tests/test_2048.py"),
    "ray.init()": ("ray.init", "python/tests/test_ray.py"),
    "import dspy": ("import dspy", "python/tests/prove_dspy.py"),
    "commands.execute(": ("commands.execute(", "crates/sandtimer-server/tests/compat/scenarios.mjs"),
    "pytest --sandtimer": ("--sandtimer", "python/tests/test_pytest_plugin.py"),
}

# Titles and drawings, or the output of a program that the text describes.
NO_LANGUAGE = ("", "text")


class Block(NamedTuple):
    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def location(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reason(self) -> Optional[str]:
        """Why the block is not tested, as its title has it."""
        found = re.search(r"not run in tests: ([^)]*[^) ])\)?$", self.title)
        return found[1] if found else None

    @property
    def tested_elsewhere(self) -> bool:
        return any(mark in self.text for mark in TESTED_ELSEWHERE)


def pages() -> list[str]:
    names = ["README.md", "python/README.md", "typescript/README.md", "CONTRIBUTING.md", "SECURITY.md", "GUARANTEES.md"]
    return [*names, *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]


def parse(page: str, text: str) -> list[Block]:
    found = []
    fences = r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[^\s`]*)(?P<rest>[^\n`]*)\n(?P<text>.*?)^(?P=indent)(?P=fence) *$"
    for match in re.finditer(fences, text, re.MULTILINE | re.DOTALL):
        title = re.search(r'title="([^"]*)"', match["rest"])
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page, line, match["language"], title[1] if title else "", match["text"]))
    return found


def blocks(language: str) -> list[Block]:
    """The blocks of a language that a test is to execute."""
    found = (block for page in pages() for block in parse(page, (ROOT / page).read_text(encoding="utf-8")))
    return [block for block in found if block.language == language and not block.reason and not block.tested_elsewhere]


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in parse(page, (ROOT / page).read_text(encoding="utf-8"))]


def fault(block: Block) -> Optional[str]:
    """What is wrong with a block that is neither executed, nor parsed, nor marked; None if nothing is."""
    if block.language in NO_LANGUAGE or block.reason or block.tested_elsewhere:
        return None
    if block.language in ("python", "console"):
        return None
    if block.language in ("ts", "js"):
        known = (ROOT / TYPESCRIPT_TEST).read_text(encoding="utf-8")
        return None if f'"{block.page}"' in known else f"{block.location}: {TYPESCRIPT_TEST} does not execute this page"
    if block.language == "rust":
        known = (ROOT / "crates/sandtimer/src/lib.rs").read_text(encoding="utf-8")
        return None if f'{block.page}")]' in known else f"{block.location}: no documentation test includes this page"
    parsers: dict[str, Any] = {"json": json.loads, "toml": tomllib.loads, "ini": configparser.ConfigParser().read_string}
    if block.language not in parsers:
        return f'{block.location}: nothing executes blocks of {block.language}; give it title="not run in tests: REASON"'
    try:
        parsers[block.language](block.text)
    except (ValueError, configparser.Error) as error:
        return f"{block.location}: not {block.language}: {error}"
    return None
