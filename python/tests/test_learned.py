"""Modules that a sandbox's functions need are imported by its zygote, unasked, from their second use on."""

from __future__ import annotations

import decimal
import functools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import sandtimer
from learned_subjects import (
    draws,
    fails_in_zygote,
    opens,
    plain,
    sets_timer,
    shares,
    slow_in_zygote,
    starts_process,
    starts_thread,
)
from sandtimer.sandbox import _learned, _pool

PLAIN = "learned_subjects.plain"


@pytest.fixture
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=20.0) as made:
        yield made


def learn(box: sandtimer.Sandbox, name: str, call: Callable[[], Any]) -> dict[str, Any]:
    """The statistics once the module was learned or left out, after two calls."""
    call()
    call()
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        stats = box.stats()
        if name in (*stats["preloaded"], *stats["not_preloaded"]):
            return stats
        time.sleep(0.01)
    raise AssertionError(f"{name} was not learned: {box.stats()}")


def is_preloaded(box: sandtimer.Sandbox, name: str) -> bool:
    """Whether a child finds the module imported before anything of its call is loaded."""
    return bool(box.call(eval, f"{name!r} in __import__('sys').modules"))


def test_module_of_a_function_is_imported_once(box: sandtimer.Sandbox) -> None:
    assert not is_preloaded(box, PLAIN)
    calls = box.stats()["calls"]
    stats = learn(box, PLAIN, lambda: box.call(plain.ignore))
    assert stats["preloaded"] == [PLAIN]
    assert stats["not_preloaded"] == {}
    assert stats["calls"] == calls + 2, "the calls before count"
    assert is_preloaded(box, PLAIN)


def test_one_use_is_not_enough(box: sandtimer.Sandbox) -> None:
    box.call(plain.ignore)
    time.sleep(0.5)
    assert box.stats()["preloaded"] == []


def test_modules_of_globals_and_arguments_are_imported_once(box: sandtimer.Sandbox) -> None:
    scale = eval("lambda x: decimal.Decimal(x)", {"decimal": decimal, "__name__": "__main__"})
    learn(box, "decimal", lambda: box.call(scale, 2))
    assert is_preloaded(box, "decimal")
    with sandtimer.Sandbox(timeout=20.0) as other:
        learn(other, "decimal", lambda: other.call(len, [decimal.Decimal(1)]))
        assert is_preloaded(other, "decimal")


def test_imports_of_the_function_itself_are_learned(box: sandtimer.Sandbox) -> None:
    learn(box, "fractions", lambda: box.call(plain.import_fractions))
    assert box.call(plain.import_fractions)


@pytest.mark.parametrize("way", ["run", "submit", "map", "partial", "method", "limits"])
def test_every_way_to_call_learns(box: sandtimer.Sandbox, way: str) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "run": lambda: box.run(plain.ignore),
        "submit": lambda: box.submit(plain.ignore).result(),
        "map": lambda: list(box.map(plain.ignore, [1])),
        "partial": lambda: box.call(functools.partial(plain.ignore, 1)),
        "method": lambda: box.call(Holder(plain.ignore).call),
        "limits": lambda: box.limits(timeout=5.0).call(plain.ignore),
    }
    assert PLAIN in learn(box, PLAIN, calls[way])["preloaded"]


class Holder:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def call(self) -> Any:
        return self.function()


def test_module_that_starts_threads_is_left_out(box: sandtimer.Sandbox) -> None:
    stats = learn(box, "learned_subjects.starts_thread", lambda: box.call(starts_thread.one))
    assert "other threads" in stats["not_preloaded"]["learned_subjects.starts_thread"]
    assert box.call(starts_thread.one) == 1


@pytest.mark.parametrize(
    "module, what",
    [(draws, "a generator of random numbers of its own"), (opens, "files open"), (shares, "shared memory")],
    ids=["draws", "opens", "shares"],
)
def test_module_whose_import_leaves_something_shared_is_left_out(box: sandtimer.Sandbox, module: Any, what: str) -> None:
    name = module.__name__
    stats = learn(box, name, lambda: box.call(module.use))
    assert what in stats["not_preloaded"][name]
    first, second = box.call(module.use), box.call(module.use)
    assert first != second if module is draws else first == second, "each call imports it anew"


@pytest.mark.parametrize(
    "module, what",
    [(sets_timer, "a timer"), (starts_process, "processes that it started")],
    ids=["timer", "process"],
)
def test_module_whose_import_leaves_what_calls_would_lack_is_left_out(box: sandtimer.Sandbox, module: Any, what: str) -> None:
    stats = learn(box, module.__name__, lambda: box.call(module.use))
    assert what in stats["not_preloaded"][module.__name__]
    assert box.call(module.use)


@pytest.mark.parametrize("module", [sets_timer, starts_process], ids=["timer", "process"])
def test_named_module_is_preloaded_whatever_calls_lack(module: Any) -> None:
    """The control."""
    with sandtimer.Sandbox(timeout=20.0, preload=[module.__name__]) as box:
        assert not box.call(module.use)


@pytest.mark.parametrize("module", [draws, opens, shares], ids=["draws", "opens", "shares"])
def test_named_module_is_preloaded_whatever_it_leaves(module: Any) -> None:
    """The control: with it preloaded, calls share what it has left, or find its files closed."""
    with sandtimer.Sandbox(timeout=20.0, preload=[module.__name__]) as box:
        first, second = box.run(module.use), box.run(module.use)
    if module is opens:
        assert isinstance(first.error, OSError)
    else:
        assert first.ok and second.ok
        assert first.value == second.value if module is draws else first.value != second.value


def test_module_that_fails_does_not_keep_others_out(box: sandtimer.Sandbox) -> None:
    box.call(fails_in_zygote.one)
    box.call(plain.ignore)
    learn(box, "learned_subjects.fails_in_zygote", lambda: box.call(fails_in_zygote.one))
    stats = learn(box, PLAIN, lambda: box.call(plain.ignore))
    assert "not in a zygote" in stats["not_preloaded"]["learned_subjects.fails_in_zygote"]
    assert PLAIN in stats["preloaded"]
    assert box.call(fails_in_zygote.one) == 1


def test_module_that_takes_too_long_is_left_out(box: sandtimer.Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pool, "_IMPORT_TIMEOUT", 2.0)
    stats = learn(box, "learned_subjects.slow_in_zygote", lambda: box.call(slow_in_zygote.one))
    assert stats["not_preloaded"]["learned_subjects.slow_in_zygote"] == "importing takes longer than 2.0 s"
    started = time.monotonic()
    assert box.call(slow_in_zygote.one) == 1
    assert time.monotonic() - started < 60.0


def test_slow_look_at_files_delays_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("")
    look = _learned._state
    sources = _learned.Sources()
    sources._files = {str(file): look(str(file))}

    def slow(file: str) -> Any:
        time.sleep(0.5)
        return look(file)

    with monkeypatch.context() as patched:
        patched.setattr(_learned, "_state", slow)
        assert not sources.have_changed()
    file.write_text("changed = True\n")
    # Twenty times the slow look would be ten seconds.
    end = time.monotonic() + 2.0
    while not sources.have_changed():
        assert time.monotonic() < end, "a change was not seen for two seconds"
        time.sleep(0.01)


def test_changed_file_is_imported_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not a temporary directory: sandboxes are not shown those.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as directory:
        os.chmod(directory, 0o755)
        monkeypatch.syspath_prepend(directory)
        file = Path(directory) / "changing_module.py"
        file.write_text("def version():\n    return 1\n")
        import changing_module  # type: ignore[import-not-found]

        try:
            with sandtimer.Sandbox(timeout=20.0) as box:
                stats = learn(box, "changing_module", lambda: box.call(changing_module.version))
                assert stats["preloaded"] == ["changing_module"]
                for version in (20, 300):
                    file.write_text(f"def version():\n    return {version}\n")
                    # Longer than a look at a file counts for.
                    time.sleep(0.1)
                    assert box.call(changing_module.version) == version
                    end = time.monotonic() + 60.0
                    while not is_preloaded(box, "changing_module"):
                        assert time.monotonic() < end
                    assert box.call(changing_module.version) == version
        finally:
            del sys.modules["changing_module"]


def test_without_preloading_nothing_is_learned() -> None:
    with sandtimer.Sandbox(timeout=20.0, preload=None) as box:
        for _ in range(4):
            box.call(plain.ignore)
        time.sleep(0.5)
        assert box.stats()["preloaded"] == []
        assert not is_preloaded(box, PLAIN)


def test_what_a_call_imports_is_not_asked(box: sandtimer.Sandbox) -> None:
    for _ in range(4):
        box.call(exec, "import fractions")
    stats = learn(box, PLAIN, lambda: box.call(plain.ignore))
    assert stats["preloaded"] == [PLAIN]
    assert not is_preloaded(box, "fractions")


def test_text_does_not_find_what_functions_have_imported(box: sandtimer.Sandbox) -> None:
    learn(box, PLAIN, lambda: box.call(plain.ignore))
    look = f"import sys; print({PLAIN!r} in sys.modules)"
    # The control: a function finds it.
    assert box.run(exec, look).stdout == "True\n"
    assert box.exec(look).stdout == "False\n"
    assert box.judge(look, [("", "False")]).verdicts == ["accepted"]
    with box.context() as context:
        assert context.run(look).stdout == "False\n"


def test_fork_of_this_process_learns_for_itself(box: sandtimer.Sandbox) -> None:
    learn(box, PLAIN, lambda: box.call(plain.ignore))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if box.call(len, [1]) == 1 and box.call(plain.has, "sys") else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_file_that_the_caller_has_not_imported_is_not_executed_in_the_zygote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It has the name of a module of the standard library, and comes before that.
    (tmp_path / "colorsys.py").write_text("import json\njson.dumps = lambda value: 'poisoned'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("colorsys", None)

    def imports() -> int:
        import colorsys  # noqa: F401

        return 1

    with sandtimer.Sandbox(timeout=20.0) as box:
        stats = learn(box, "colorsys", lambda: box.call(imports))
        assert "is not installed" in stats["not_preloaded"]["colorsys"]
        assert box.call(eval, "__import__('json').dumps(1)") == "1"
