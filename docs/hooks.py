"""MkDocs hooks: pages from files outside docs/, links between all files of the repository, Markdown twins, llms.txt.

A page links to any file of the repository by its relative path, as on GitHub. On the site such a link leads to the page
made from that file, or to a copy of the file below `files/`.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
from pathlib import Path

import api_pages
import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Link, Navigation, Section
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parent.parent

# Files that are pages of the site elsewhere than at their path below docs/: path in the repository, path in the site.
PAGES = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "docs/results/README.md": "results/index.md",
    "GUARANTEES.md": "guarantees.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "SECURITY.md": "security.md",
    "spec/cli.md": "reference/cli-help.md",
    "spec/config.md": "reference/config-keys.md",
    "spec/errors.md": "reference/errors.md",
    "spec/sentences.md": "reference/sentences.md",
    "spec/typescript.md": "reference/typescript-api.md",
    "typescript/README.md": "reference/typescript.md",
}

# Pages that are made from spec/.
MADE_PAGES = {
    "reference/http-operations.md": api_pages.http_operations,
    "reference/mcp-tools.md": api_pages.mcp_tools,
}

# A block of code, a span of code, or the target of a link or picture; only the target is captured.
LINKS = re.compile(
    r"^(?P<fence> *(?:```+|~~~+)).*?^(?P=fence)[`~]*[ ]*$"
    r"|(?P<ticks>(?<!`)`+(?!`)).+?(?<!`)(?P=ticks)(?!`)"
    r"|\]\((?P<target>[^()\s]+)(?=[)\s])"
    r"|^ {0,3}\[[^\]]+\]: +(?P<defined>\S+)",
    re.MULTILINE | re.DOTALL,
)

# A name of the Python package whose documentation mkdocstrings puts here, and its options.
NAMES = re.compile(r"^::: (?P<name>[\w.]+)\n(?: {4}.*\n?)*", re.MULTILINE)

# Where the guide of the Rust library links to its documentation, if `cargo xtask docs --rust` adds it to the site.
RUST_GUIDE = "guides/rust.md"
RUST_LINK = '\n\n<a href="../rust/sandtimer/index.html">The documentation of every public name</a> is on this site.\n'

TABLE_ROWS = re.compile(r"^\|.*$", re.MULTILINE)
CODE = re.compile(r"`[^`]+`")

SUMMARY = (
    "Sandtimer runs untrusted code for exactly as long as it is allowed: when a limit is reached it kills the whole "
    "process tree, proves that no process is left, and reports which limit it was and why."
)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from files outside docs/."""
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(REPOSITORY / path)))
    for uri, made in MADE_PAGES.items():
        files.append(File.generated(config, uri, content=made()))
    return files


def on_nav(nav: Navigation, *, config: MkDocsConfig, files: Files) -> Navigation:
    """Keeps the navigation for llms.txt."""
    config.extra["navigation"] = nav
    return nav


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes the links of the page lead to pages and files of the site."""

    def replace(match: re.Match[str]) -> str:
        name = "target" if match["target"] else "defined"
        target = match[name]
        if not target:
            return match[0]
        start, end = (index - match.start() for index in match.span(name))
        return match[0][:start] + site_link(target, page.file, config, files) + match[0][end:]

    if page.file.src_uri == RUST_GUIDE and os.environ.get("SANDTIMER_SITE_WITH_RUST"):
        markdown += RUST_LINK
    # A side bar that would be empty leaves its room to the text.
    empty = {"navigation": page.parent is None, "toc": not re.search("^(##|:::)", markdown, re.MULTILINE)}
    page.meta["hide"] = [name for name, is_empty in empty.items() if is_empty]
    linked = LINKS.sub(replace, markdown)
    page.meta["twin"] = NAMES.sub(lambda match: documentation(match["name"]), linked)
    # GitHub needs a backslash before each of these; MkDocs would show it.
    return TABLE_ROWS.sub(lambda row: CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), linked)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Writes the Markdown twin of the page; fails if the page needs the network to be read."""
    loaded = re.search(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?https?://[^\s>]*", output)
    if loaded:
        raise PluginError(f"{page.file.src_uri} loads something from the network: {loaded[0]}")
    twin = Path(config.site_dir, page.file.src_uri)
    twin.parent.mkdir(parents=True, exist_ok=True)
    twin.write_text(page.meta["twin"], encoding="utf-8")
    return output


@functools.cache
def python_package() -> griffe.Object:
    """Returns what the sources of the Python package define."""
    return griffe.load("sandtimer", search_paths=[str(REPOSITORY / "python")], resolve_aliases=True)


def documentation(name: str) -> str:
    """Returns the docstring of a public name, and those of its members, for the Markdown twin of a page."""
    found = python_package()[name.partition(".")[2]]
    thing = found.final_target if found.is_alias else found
    members = [member for member in thing.members.values() if not member.name.startswith("_") and member.has_docstring]
    parts = [(f"## {name}", thing), *((f"### {thing.name}.{member.name}", member) for member in members)]
    return "\n".join(f"{title}\n\n{described(part)}\n" for title, part in parts)


def described(part: griffe.Object) -> str:
    """Returns the signature of a function, and the docstring."""
    signature = f"```python\n{part.signature()}\n```\n\n" if part.is_function else ""
    return signature + (part.docstring.value if part.docstring is not None else "")


def on_post_build(*, config: MkDocsConfig) -> None:
    """Writes llms.txt: the Markdown twins in the order of the navigation."""
    items = config.extra["navigation"].items
    pages = llms_entries([item for item in items if not isinstance(item, Section)])
    lines = [f"# {config.site_name}", "", f"> {SUMMARY}", "", *pages]
    for section in (item for item in items if isinstance(item, Section)):
        lines += ["", f"## {section.title}", "", *llms_entries(section.children)]
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def llms_entries(items: list[Page | Section | Link]) -> list[str]:
    """Returns one line for each page below `items`."""
    lines = []
    for item in items:
        if isinstance(item, Section):
            lines += llms_entries(item.children)
        elif isinstance(item, Page):
            lines.append(f"- [{item.title}]({item.file.src_uri})")
    return lines


def site_link(target: str, source: File, config: MkDocsConfig, files: Files) -> str:
    """Returns the link from the page `source` to what its link `target` leads to in the repository.

    What cannot be found is returned as it is: MkDocs reports it.
    """
    path, mark, anchor = target.partition("#")
    if not path or ":" in path or path.startswith("/") or source.abs_src_path is None:
        return target
    origin = Path(source.abs_src_path).relative_to(REPOSITORY)
    wanted = posixpath.normpath(posixpath.join(origin.parent.as_posix(), path))
    uri = site_path(wanted, config, files)
    if uri is None:
        return target
    return posixpath.relpath(uri, posixpath.dirname(source.src_uri) or ".") + mark + anchor


def site_path(path: str, config: MkDocsConfig, files: Files) -> str | None:
    """Returns the place in the site of a file of the repository, which is added if it has none yet."""
    if path in PAGES:
        return PAGES[path]
    within = path.removeprefix("docs/")
    if within != path:
        return within if files.get_file_from_path(within) else None
    if path.startswith("..") or path.endswith(".md") or not (REPOSITORY / path).is_file():
        return None
    # Browsers show text; many other types they would only offer to save.
    uri = f"files/{path}" if path.endswith((".txt", ".json")) else f"files/{path}.txt"
    if not files.get_file_from_path(uri):
        files.append(File.generated(config, uri, abs_src_path=str(REPOSITORY / path)))
    return uri
