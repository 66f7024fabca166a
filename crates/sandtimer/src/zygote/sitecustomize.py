"""What every Python of a command begins with: has standard output that goes to a pipe be there within 20 ms, as fast as a buffer.

Its directory is on PYTHONPATH, and is taken from sys.path again. Another module of this name is executed as if this one were not there.
"""

import os
import sys

DIRECTORY = os.path.dirname(__file__)
# Of st_mode: the type of a file; a pipe, a socket.
TYPE, PIPES = 0o170000, (0o010000, 0o140000)


def is_suitable():
    """Whether this is an interpreter that the native half is for, and its output is one that would be seen late."""
    if sys.version_info < (3, 9) or sys.implementation.name != "cpython" or sys.stdout is None:
        return False
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    is_late = not sys.stdout.write_through and not sys.stdout.line_buffering
    return has_lock and is_late and os.fstat(1).st_mode & TYPE in PIPES


def load_native():
    import _frozen_importlib
    import _imp

    spec = _frozen_importlib.ModuleSpec("_sandtimer_zygote", None, origin=os.path.join(DIRECTORY, "native.so"))
    module = _imp.create_dynamic(spec)
    _imp.exec_dynamic(module)
    return module


def run_other():
    """Runs the module of this name that comes next on sys.path, in the place of this one."""
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = own


sys.path[:] = [path for path in sys.path if path != DIRECTORY]
sys.path_importer_cache.pop(DIRECTORY, None)
try:
    if is_suitable():
        native = load_native()
        share_output(native.open_timed_output)
except Exception:
    # Output is then as late as it is anywhere.
    pass
run_other()
