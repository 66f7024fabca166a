"""The pytest plug-in: tests that each run in a sealed process of their own, under hard limits.

`pytest --sandtimer` seals every test, `@pytest.mark.sandtimer(wall=…, memory=…)` the marked ones.
Without either, nothing of the engine is imported and tests run as without the plug-in, also by a
pytest that is older than sealed tests need. Described in docs/guides/pytest.md.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Optional

import pytest

from ._pytest_limits import FIELDS, from_ini, of_item

if TYPE_CHECKING:
    from ._pytest_limits import TestLimits
    from ._pytest_session import SealedTests

# None for a pytest that cannot seal tests: it has this plug-in because the package is installed.
_LIMITS: Any = pytest.StashKey["TestLimits"]() if hasattr(pytest, "StashKey") else None
_HELP = {
    "wall": "Elapsed time of each sealed test, such as 10s",
    "cpu": "Processor time of each sealed test",
    "stall": "Time that a sealed test may neither write output nor compute",
    "memory": "Memory of a sealed test and all that it starts, such as 512MB",
    "processes": "Processes of a sealed test",
    "network": "Whether sealed tests have the host's network",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sandtimer", "sealed tests (sandtimer)")
    group.addoption("--sandtimer", action="store_true", help="run each test in a sealed process of its own")
    parser.addini("sandtimer", "Run each test in a sealed process of its own", type="bool", default=False)
    for name in FIELDS:
        parser.addini(f"sandtimer_{name}", _HELP[name], default=None)


def pytest_configure(config: pytest.Config) -> None:
    fields = "=, ".join(FIELDS)
    config.addinivalue_line("markers", f"sandtimer({fields}=): run the test in a sealed process of its own, under these limits.")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    every = bool(config.option.sandtimer or config.getini("sandtimer"))
    sealed = [item for item in items if every or item.get_closest_marker("sandtimer") is not None]
    if not sealed:
        return
    if _LIMITS is None:
        raise pytest.UsageError(
            f"sealed tests need pytest 7.0 or newer, and this is {pytest.__version__}; use a newer pytest, "
            "or leave out --sandtimer and its marks"
        )
    defaults = from_ini(config)
    for item in sealed:
        item.stash[_LIMITS] = of_item(item, defaults)
    if not config.option.collectonly:
        _refuse_debuggers(config)
        from ._pytest_inside import RUNNER
        from ._pytest_session import SealedTests

        tests = SealedTests(config, items)
        config.pluginmanager.register(_Runner(tests), RUNNER)
        config.pluginmanager.register(_Preparer(tests), "sandtimer-preparer")


def _refuse_debuggers(config: pytest.Config) -> None:
    for option, name in (("usepdb", "--pdb"), ("trace", "--trace")):
        if getattr(config.option, option, False):
            raise pytest.UsageError(
                f"{name} with sealed tests: their processes have no terminal; leave out {name}, "
                "or --sandtimer and its marks"
            )


class _Preparer:
    """Forks outside of everything that other plug-ins put around a test.

    Later tests must not be within what is around this one.
    """

    def __init__(self, tests: SealedTests) -> None:
        self._tests = tests

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        tests = self._tests
        if tests.is_outside and _LIMITS in item.stash:
            tests.prepare(item)
        yield
        if tests.is_outside and _LIMITS not in item.stash:
            tests.note_ordinary_test()


class _Runner:
    """Takes over the protocol of sealed tests, and notes in their processes what happens."""

    def __init__(self, tests: SealedTests) -> None:
        self._tests = tests
        # Of the session's items, by their identity.
        self._positions: dict[int, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: Optional[pytest.Item]) -> Optional[bool]:
        tests = self._tests
        if not tests.is_outside:
            return tests.run_inside(item)
        limits = item.stash.get(_LIMITS, None)
        if limits is None:
            return None
        tests.run(item, limits, nextitem, self._following(item))
        return True

    def _following(self, item: pytest.Item) -> list[tuple[pytest.Item, TestLimits]]:
        """The sealed tests right after it, as many as may start ahead."""
        items = item.session.items
        if id(item) not in self._positions:
            self._positions = {id(each): position for position, each in enumerate(items)}
        found = []
        position = self._positions.get(id(item), len(items))
        for each in items[position + 1 : position + 1 + self._tests.tests_ahead]:
            limits = each.stash.get(_LIMITS, None)
            if limits is None:
                break
            found.append((each, limits))
        return found

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, None]:
        result = yield
        self._tests.note_report(item, result.get_result())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests.note_partial_report(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        self._tests.note_warning(warning_message, when, nodeid, location)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        self._tests.note_phase("setup")
        yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        self._tests.note_phase("call")
        yield

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        self._tests.note_phase("teardown")
        yield

    def pytest_sessionfinish(self) -> None:
        self._tests.close()
