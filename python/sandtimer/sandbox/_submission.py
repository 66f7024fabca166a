"""A submission inside the sandbox: compiled once, in a process that runs nothing of it, and run from its code in others.

Shipped as text, never imported here, and so for itself: standard library only, every CPython from 3.9 on. The code of a
submission is as trustworthy as the submission: it is passed on as bytes, and only sandboxes ever load it.
"""

# Not read at run time: each case would import `typing` and `__future__` again, which is why annotations are quoted.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Callable


def compile_submission(source: str, name: str, launcher: "str | None") -> "bytes | tuple[Any, ...]":
    """The submission's source and code, marshalled; with a launcher, that one's code, the source, the name and the code. A tuple is
    the reason why it cannot be compiled.

    The launcher's code has the file name of the caller's, whose frames tracebacks leave out.
    """
    import marshal
    import sys

    try:
        code = compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        return (type(error).__name__, error.msg, error.lineno, error.offset, error.text)
    except (ValueError, OverflowError, MemoryError, RecursionError) as error:
        return (type(error).__name__, str(error), None, None, None)
    if launcher is None:
        return marshal.dumps((source, code))
    hidden = sys._getframe(1).f_code.co_filename
    launch = compile(launcher, hidden, "exec", dont_inherit=True, optimize=2)
    return marshal.dumps((launch, source, name, code))


def show_source(source: str, name: str) -> None:
    """Lets tracebacks show its lines."""
    import linecache

    linecache.cache[name] = (len(source), None, source.splitlines(True), name)


def entering(source: str, name: str, code: "CodeType") -> "Callable[..., Any]":
    """What runs the definitions, then calls one."""

    def enter(entry: str, arguments: "tuple[Any, ...]", keywords: "dict[str, Any]") -> "Any":
        leave_out_frames()
        return find_entry(source, name, code, entry)(*arguments, **keywords)

    return enter


def leave_out_frames() -> None:
    """Raises the limit of recursion by the frames below the submission's own, but for the one that a script would have there."""
    import sys

    frame: "Any" = sys._getframe(1)
    count = 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    # Until Python 3.11 the exec() that started the interpreter's program counts too.
    sys.setrecursionlimit(sys.getrecursionlimit() + count - (sys.version_info >= (3, 12)))


# The name of a program in tracebacks, unless another is given.
USUAL_NAME = "/sandtimer/main.py"
# A submission with one of these may ask for its file, or start processes that import it.
NEEDS_FILE = "__file__", "multiprocessing", "concurrent", "joblib", "numba"


def keep_file(module: "Any", source: str) -> "str | None":
    """Makes a submission a file in its directory, and returns its path; None if there is no room."""
    import os
    import sys

    directory = os.getcwd()
    path = os.path.join(directory, module.__name__ + ".py")
    try:
        with open(path, "wb") as file:
            file.write(source.encode("utf-8", "surrogatepass"))
    except OSError:
        return None
    module.__file__ = path
    sys.path.insert(0, directory)
    return path


def find_entry(source: str, name: str, code: "CodeType", entry: str) -> "Any":
    """What `entry` names among the definitions: "solve", or "Solution.solve" for a method of a new object."""
    import sys
    import types

    show_source(source, name)
    # Of this name, so that `if __name__ == "__main__":` does not run; known to the system, as dataclasses need it.
    module = sys.modules["submission"] = types.ModuleType("submission")
    if any(name in source for name in NEEDS_FILE):
        path = keep_file(module, source)
        if path is not None and name == USUAL_NAME:
            # Functions name the file that they are from.
            code = compile(source, path, "exec", dont_inherit=True)
    exec(code, module.__dict__)
    found: "Any" = module
    for part in entry.split("."):
        if isinstance(found, type):
            found = found()
        if not hasattr(found, part):
            raise NameError("the submission defines no %r" % entry)
        found = getattr(found, part)
    return found
