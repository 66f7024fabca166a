"""Tools of the host that code in a context calls.

A call leaves the context as a display, which the host receives while the code runs; its answer is a
file in a directory that the context is shown read-only. The tool runs in the thread that waits for
the code, and its time counts as the code's.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import pathlib
import re
import shutil
import tempfile
import weakref
from typing import Any, Callable, Iterable, Mapping

from . import _tool_values

MIME = "application/vnd.sandtimer.tool-call"
# Seconds that definitions of tools and variables may take. They are executed in the namespace of
# untrusted code, which may have replaced each name that they use.
PREPARATION_TIMEOUT = 10.0
# What the context's half is called there.
_MODULE = "_sandtimer_tools"
_CALL = re.compile(r"[0-9a-f]{16}")

# Executed in the context, after the functions of _tool_values.
_INSIDE = '''
import os
import threading
import time


class Call:
    def __init__(self, text):
        self.text = text

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {MIME: self.text}


one_at_a_time = threading.Lock()


def call(name, arguments, keywords):
    number = os.urandom(8).hex()
    with one_at_a_time:
        display(Call(dumps([number, name, list(arguments), keywords])))
    path, pause = os.path.join(directory, number), 0.0005
    while True:
        try:
            with open(path, encoding="utf-8") as file:
                kind, value = loads(file.read())
            break
        except FileNotFoundError:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
    if kind == "error":
        raise RuntimeError(value)
    return value


def function(name):
    def tool(*arguments, **keywords):
        return call(name, arguments, keywords)

    tool.__name__ = tool.__qualname__ = name
    return tool
'''


class HostTools:
    """Tools by name, and the directory of their answers."""

    def __init__(self, tools: Mapping[str, Callable[..., Any]]) -> None:
        self.tools = dict(tools)
        # Its parent keeps the other users of the machine out.
        self._private = tempfile.mkdtemp(prefix="sandtimer-tools-")
        self._finalizer = weakref.finalize(self, _remove, self._private, os.getpid())
        self.directory = os.path.join(self._private, "answers")
        os.mkdir(self.directory)
        os.chmod(self.directory, 0o755)

    def definitions(self, names: Iterable[str]) -> str:
        """Code that defines these tools in a context, and nothing else there."""
        source = pathlib.Path(_tool_values.__file__).read_text(encoding="utf-8") + _INSIDE
        lines = [
            "def _sandtimer_define(names):",
            "    import sys, types",
            f"    module = sys.modules[{_MODULE!r}] = types.ModuleType({_MODULE!r})",
            f"    module.__dict__.update(display=display, directory={self.directory!r}, MIME={MIME!r})",
            f"    exec(compile({source!r}, '<sandtimer>', 'exec'), module.__dict__)",
            "    globals().update({name: module.function(name) for name in names})",
            f"_sandtimer_define({list(names)!r})",
            "del _sandtimer_define",
        ]
        return "\n".join(lines)

    def on_display(self, bundle: dict[str, Any]) -> None:
        """Answers a call; for `on_display` of a run."""
        text = bundle.get(MIME)
        if text is None:
            return
        try:
            number, name, arguments, keywords = _tool_values.loads(text)
            is_call = _CALL.fullmatch(number) and isinstance(name, str) and isinstance(keywords, dict)
        except (TypeError, ValueError, LookupError, RecursionError):
            is_call = None
        if is_call:
            self._answer(number, self._call(name, arguments, keywords))

    def _call(self, name: str, arguments: Any, keywords: dict[str, Any]) -> str:
        tool = self.tools.get(name)
        try:
            if tool is None:
                raise NameError(f"there is no tool {name!r}; there are {', '.join(self.tools)}")
            value = tool(*arguments, **keywords)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            return _tool_values.dumps(["value", value])
        except Exception as error:
            return json.dumps(["error", f"{name}: {type(error).__name__}: {error}"])

    def _answer(self, number: str, text: str) -> None:
        path = os.path.join(self.directory, number)
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path + ".part", 0o644)
        os.rename(path + ".part", path)

    def forget(self) -> None:
        """Removes the answers of code that has ended."""
        # Gone, once it is closed.
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.directory):
                os.unlink(entry.path)

    def close(self) -> None:
        """Removes the directory. Garbage collection and the end of the process do it too."""
        self._finalizer()


def _remove(directory: str, owner: int) -> None:
    # A forked child has the finalizer, and not the directory.
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)


async def _awaited(value: Any) -> Any:
    return await value
