"""Which modules the functions of a sandbox need, so that its zygote imports each of them once instead of in every call.

Owns what is known of one pool's functions. A module goes through these states:

    used by a call ─▶ used by a second one: due ─▶ preloaded
                                             └───▶ left out, with the reason (it is missing, fails, starts threads, takes too long)

Known is only what this process sends: the modules of functions, of their globals and arguments, and those that a function's own
`import` statements name. What a call answers is never asked, so no call decides what others find imported.
"""

from __future__ import annotations

import dis
import os
import sys
import time
import types
from importlib.machinery import PathFinder
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

from . import _installation

# From this number of calls on a module is imported by the zygote.
_MIN_USES = 2
# Calls and modules that are kept in mind.
_MAX_CALLS, _MAX_MODULES = 1024, 128
# Longer functions are not searched for imports.
_MAX_CODE = 64 * 1024
# The part of the time that looking at source files may take.
_LOOKING_SHARE = 1 / 20
# What every zygote has imported by itself.
_PRESENT = frozenset(
    "__main__ __mp_main__ abc ast bisect cloudpickle codecs collections contextlib copy copyreg dataclasses dis encodings enum "
    "functools genericpath importlib inspect io json keyword linecache logging math opcode operator os pickle platform posixpath "
    "random re reprlib site stat string struct textwrap threading token tokenize traceback types typing uuid warnings "
    "weakref".split()
).union(sys.builtin_module_names)


def note(value: Any, modules: set[str]) -> None:
    """Adds the modules that unpickling this value imports. Executes no code of the value's."""
    modules.add(type(value).__module__)
    if isinstance(value, types.ModuleType):
        modules.add(value.__name__)
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        modules.add(value.__module__)


class Learned:
    """What is known of one pool's functions. All but `is_known` is for one thread at a time."""

    def __init__(self, preloaded: Iterable[str]) -> None:
        self._given = frozenset(preloaded)
        self._calls: dict[Any, int] = {}
        self._uses: dict[str, int] = {}
        #: What the zygote imports by itself, and what it does not, with the reason.
        self.preloaded: list[str] = []
        self.left_out: dict[str, str] = {}

    def is_known(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
        """Whether calls of this function with such arguments have been noted often enough."""
        return self._calls.get(kind_of(function, arguments), 0) >= _MIN_USES

    def note_call(self, kind: Any, modules: Iterable[str]) -> bool:
        """Notes the modules of a call of this kind. Whether there are some now that the zygote should import."""
        if len(self._calls) >= _MAX_CALLS:
            self._calls.clear()
        self._calls[kind] = self._calls.get(kind, 0) + 1
        for name in modules:
            top = name.partition(".")[0] if isinstance(name, str) else "__main__"
            if top in _PRESENT or name in self._given or (name not in self._uses and len(self._uses) >= _MAX_MODULES):
                continue
            self._uses[name] = self._uses.get(name, 0) + 1
        return bool(self.due())

    def due(self) -> list[str]:
        known = {*self.preloaded, *self.left_out}
        return [name for name, uses in self._uses.items() if uses >= _MIN_USES and name not in known]

    def leave_out(self, names: Iterable[str], reason: str) -> None:
        self.left_out.update(dict.fromkeys(names, reason))
        self.preloaded = [name for name in self.preloaded if name not in self.left_out]


def kind_of(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """What calls that need the same modules have in common."""
    return (getattr(function, "__code__", None) or type(function), *map(type, arguments[:8]))


def imported_by(function: Callable[..., Any]) -> Iterator[str]:
    """The modules that a function's own statements import when it is called."""
    first = getattr(function, "__code__", None)
    codes = [first] if isinstance(first, types.CodeType) else []
    while codes:
        code = codes.pop()
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        if len(code.co_code) > _MAX_CODE:
            continue
        before: tuple[Any, Any] = (None, None)
        for instruction in dis.get_instructions(code):
            # The level of an import, 0 where it is absolute, is loaded before the names that it imports.
            if instruction.opname == "IMPORT_NAME" and before[0] == 0:
                yield instruction.argval
            before = before[1], instruction.argval


def not_importable(names: Iterable[str], paths: Optional[Sequence[str]]) -> list[str]:
    """Those that a zygote with this `sys.path` would import from a file that is neither installed nor the one that this process
    has imported: its code would be executed for all calls, and whether it changes would not be seen."""
    where = list(_installation.directories() if paths is None else paths)
    return [name for name in names if not _is_importable(name, where)]


def _is_importable(name: str, paths: list[str]) -> bool:
    top = name.partition(".")[0]
    spec = PathFinder.find_spec(top, paths)
    if spec is None or spec.origin is None:
        # Built in, or found in another way: the zygote reports whether it finds it.
        return top in sys.builtin_module_names or name in sys.modules
    own = getattr(sys.modules.get(top), "__file__", None) if name in sys.modules else None
    origin = os.path.abspath(spec.origin)
    return _installation.is_within(origin) or (own is not None and os.path.abspath(own) == origin)


class Sources:
    """The source files of all modules that this process has imported and that are not installed, as they were."""

    def __init__(self) -> None:
        begun = time.monotonic()
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        self._files = {
            file: _state(file) for file in files if isinstance(file, str) and not _installation.is_within(os.path.abspath(file))
        }
        # What a look takes: the shortest so far, because on a busy machine one takes many times as long.
        self._cost = time.monotonic() - begun
        self._next = 0.0

    def have_changed(self) -> bool:
        """Whether one has; looks so seldom that it takes a twentieth of the time."""
        now = time.monotonic()
        if now < self._next:
            return False
        changed = any(_state(file) != state for file, state in self._files.items())
        self._cost = min(self._cost, time.monotonic() - now)
        self._next = now + self._cost / _LOOKING_SHARE
        return changed


def _state(file: str) -> Optional[tuple[int, int]]:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
