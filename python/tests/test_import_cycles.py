"""No module of the package imports itself through others, at its top or inside a function.

Imports for type checkers only (`if TYPE_CHECKING:`) do not count, and neither does the import of a
package that Python does before that of its modules.
"""

from __future__ import annotations

import ast
import graphlib
import pathlib
from collections.abc import Iterator

import pytest
import sandtimer

PACKAGE = pathlib.Path(sandtimer.__file__).parent


def imports_of(node: ast.AST) -> Iterator[ast.ImportFrom]:
    """The relative imports below a node. The package has no others of its own modules."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.level:
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from imports_of(other)
        else:
            yield from imports_of(child)


def graph_of(package: pathlib.Path) -> dict[str, set[str]]:
    """Each module and those that it imports."""
    files = {file.relative_to(package.parent).with_suffix("").parts: file for file in package.rglob("*.py")}
    names = {".".join(parts[:-1] if parts[-1] == "__init__" else parts): parts for parts in files}
    graph: dict[str, set[str]] = {}
    for name, parts in names.items():
        graph[name] = set()
        for each in imports_of(ast.parse(files[parts].read_text(encoding="utf-8"))):
            origin = ".".join((*parts[: -each.level], *filter(None, [each.module])))
            targets = {f"{origin}.{alias.name}" for alias in each.names} & names.keys()
            others = {alias.name for alias in each.names if f"{origin}.{alias.name}" not in names}
            graph[name] |= targets | ({origin} & names.keys() if others else set())
    return graph


def check(package: pathlib.Path) -> None:
    tuple(graphlib.TopologicalSorter(graph_of(package)).static_order())


def test_package_has_no_import_cycle() -> None:
    assert len(graph_of(PACKAGE)) > 80
    check(PACKAGE)


@pytest.mark.parametrize("imported", ["from ._second import two", "def one():\n    from . import _second"])
def test_planted_cycle_is_found(imported: str, tmp_path: pathlib.Path) -> None:
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "_first.py").write_text(f"{imported}\n", encoding="utf-8")
    second = package / "_second.py"
    second.write_text("if TYPE_CHECKING:\n    from ._first import one\n", encoding="utf-8")
    check(package)
    second.write_text("from ._first import one\n", encoding="utf-8")
    with pytest.raises(graphlib.CycleError):
        check(package)
