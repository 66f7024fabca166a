"""Every adapter of the package learns the modules of its functions, as `Sandbox.call` does."""

from __future__ import annotations

import pathlib
import time
from typing import Any, Callable

import pytest
import sandtimer
from learned_subjects import at_import
from sandtimer import adtools, jobs


def decorated() -> Callable[[], Any]:
    return sandtimer.sandboxed(timeout=30.0)(at_import.is_imported_here)


def executor() -> Callable[[], Any]:
    made = adtools.SandboxExecutor(at_import.Worker())
    return lambda: made.secure_execute("is_imported_here", timeout_seconds=30.0)["result"]


def sandbox_run() -> Callable[[], Any]:
    run = adtools.sandbox_run(timeout=30.0)
    return run(at_import.is_imported_here)  # type: ignore[no-any-return]


def notebook() -> Callable[[], Any]:
    """A function of `__main__` that refers to the module, as in a notebook."""
    function = eval("lambda: at_import.is_imported_here()", {"at_import": at_import, "__name__": "__main__"})
    box = sandtimer.Sandbox(timeout=30.0)
    return lambda: box.call(function)


def closure() -> Callable[[], Any]:
    box, module = sandtimer.Sandbox(timeout=30.0), at_import
    return lambda: box.call(lambda: module.is_imported_here())


def handler() -> Callable[[], Any]:
    box = sandtimer.Sandbox(timeout=30.0)

    def run() -> Any:
        result = jobs.run({"handler": "asks"}, handlers={"asks": asks}, sandbox=box).result
        assert result is not None and result.ok, result
        return result.value

    return run


def asks(_: Any) -> bool:
    return at_import.is_imported_here()


@pytest.mark.parametrize("way", [decorated, executor, sandbox_run, notebook, closure, handler])
def test_way_learns_the_module_of_its_function(
    way: Callable[[], Callable[[], Any]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDTIMER_STATE_DIR", str(tmp_path / "state"))
    call = way()
    assert isinstance(call(), bool)
    end = time.monotonic() + 60.0
    while call() is not False:
        assert time.monotonic() < end, "it is imported in every call"


def test_nothing_is_learned_without_preloading() -> None:
    """The control."""
    with sandtimer.Sandbox(timeout=30.0, preload=None) as box:
        for _ in range(10):
            assert box.call(at_import.is_imported_here) is True
            time.sleep(0.1)
