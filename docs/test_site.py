"""Tests of the site: links lead to what they lead to in the repository, and a planted fault fails the build."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/install.md"


class Site(unittest.TestCase):
    """Each test has a copy of the documentation and of the files that its pages lead to."""

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        ignored = shutil.ignore_patterns(".git", "target", "node_modules", "__pycache__")
        shutil.copytree(ROOT, self.root, ignore=ignored, dirs_exist_ok=True)

    def build(self, **environment: str) -> subprocess.CompletedProcess[str]:
        # Not with `--quiet`: the warnings that it hides are not counted either.
        command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
        env = {**os.environ, **environment}
        return subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, timeout=120)

    def append(self, text: str) -> None:
        with open(self.root / PAGE, "a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")

    def test_links_twins_and_llms_txt(self) -> None:
        self.append("[a](../GUARANTEES.md#estimates) `[b](../GUARANTEES.md)` [c](../packaging/nginx.conf)")
        self.append("| a | b |\n|---|---|\n| `x\\|y` | z |")
        self.append("```\n[d](../GUARANTEES.md)\n```\n\n[e]\n\n[e]: ../spec/errors.md")
        built = self.build(SANDTIMER_SITE_WITH_RUST="1")
        self.assertEqual(built.returncode, 0, built.stderr)
        site = self.root / "target/site"
        page = (site / "install.html").read_text(encoding="utf-8")
        self.assertIn('<a href="guarantees.html#estimates">a</a>', page)
        self.assertIn("<code>[b](../GUARANTEES.md)</code>", page)
        self.assertIn('<a href="files/packaging/nginx.conf.txt">c</a>', page)
        self.assertIn("[d](../GUARANTEES.md)", page)
        self.assertIn("<td><code>x|y</code></td>", page)
        self.assertIn('<a href="reference/errors.html">e</a>', page)
        self.assertIn('href="../rust/sandtimer/index.html"', (site / "guides/rust.html").read_text(encoding="utf-8"))
        self.assertTrue((site / "files/packaging/nginx.conf.txt").is_file())
        twin = (site / "install.md").read_text(encoding="utf-8")
        self.assertIn("[a](guarantees.md#estimates) `[b](../GUARANTEES.md)`", twin)

        twin = (site / "reference/python/budgets.md").read_text(encoding="utf-8")
        self.assertIn("### CircuitBreaker.hold\n\n```python\nhold(", twin)
        self.assertNotIn(":::", twin)

        paths = json.loads((ROOT / "spec/openapi.json").read_text(encoding="utf-8"))["paths"]
        operations = (site / "reference/http-operations.md").read_text(encoding="utf-8")
        for method, path in ((method, path) for path, methods in paths.items() for method in methods):
            self.assertIn(f"\n### {method.upper()} `{path}`\n", operations)
        self.assertIn("| `wall_ms` | [Limit](#limit) |", operations)
        self.assertIn("| `calls[].name` | string | yes | The step or action. |", operations)
        self.assertIn("| `policy.*.source` | [Source](#source) | yes |", operations)
        self.assertIn("| `stall_ms` | object or null | yes | Its fields are those of `cpu_ms`. |", operations)
        self.assertIn("**`reason` is `\"queue_paused\"`.** Its queue is paused.\n\n| field |", operations)
        tools = json.loads((ROOT / "spec/mcp-tools.json").read_text(encoding="utf-8"))["tools"]
        shown = (site / "reference/mcp-tools.md").read_text(encoding="utf-8")
        for tool in tools:
            self.assertIn(f"\n## {tool['name']}\n\n{tool['description']}\n", shown)

        lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
        listed = sorted(line.partition("](")[2].rstrip(")") for line in lines if line.startswith("- "))
        pages = {path.relative_to(site).with_suffix(".md").as_posix() for path in site.rglob("*.html")}
        self.assertEqual(listed, sorted(pages - {"404.md"}))
        for name in listed:
            self.assertTrue((site / name).is_file(), name)

    def test_broken_links_and_unlisted_pages_fail(self) -> None:
        faults = ["guides/no-such-page.md", "../NO_SUCH_FILE.md", "concepts/limits.md#no-such-anchor"]
        for fault in faults:
            self.append(f"[there]({fault})")
        (self.root / "docs/orphan.md").write_text("# Orphan\n", encoding="utf-8")
        built = self.build()
        self.assertNotEqual(built.returncode, 0, built.stderr)
        for fault in [*faults, "orphan.md"]:
            self.assertIn(fault, built.stderr)
        self.assertEqual(built.stderr.count("WARNING -"), 4, built.stderr)

    def test_page_that_needs_the_network_fails(self) -> None:
        self.append("![badge](https://example.org/badge.svg)")
        built = self.build()
        self.assertNotEqual(built.returncode, 0, built.stderr)
        self.assertIn("install.md loads something from the network", built.stderr)
