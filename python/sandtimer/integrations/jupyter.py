"""A kernel provisioner: kernels of JupyterLab, VS Code, nbclient and papermill run sealed.

It is registered with jupyter_client by an entry point; `python -m
sandtimer.integrations.jupyter install` writes a kernelspec that uses it. Described in
docs/guides/jupyter.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from typing import Any, Optional

from ._settings import DURATION_REMEDY, need_python, seconds

need_python("sandtimer.integrations.jupyter", "jupyter_client 8", (3, 9))
try:
    from jupyter_client.provisioning import LocalProvisioner
    from traitlets import Bool, List, Unicode
except ImportError as error:
    raise ImportError(f'sandtimer.integrations.jupyter needs jupyter_client ({error}): pip install "jupyter_client>=8"') from error

from ..client._binary import find_binary
from ._jupyter_launch import (
    SealedProcess,
    command,
    connection_path,
    kernel_variables,
    reason,
)

FIELDS = ("wall", "memory", "cpu", "processes", "disk", "network", "workspace", "cell_timeout", "cell_grace")
# Seconds in which a run has begun.
_START_TIMEOUT = 60.0
# Seconds that the end of a kernel may wait for the reason to be published.
_PUBLISH_TIMEOUT = 5.0


class SandtimerProvisioner(LocalProvisioner):  # type: ignore[misc]
    """Runs a kernel by `sandtimer run`.

    The traits are set by `metadata.kernel_provisioner.config` of its kernelspec.
    """

    wall = Unicode(None, allow_none=True, config=True, help='Elapsed time of the kernel as a whole, such as "8h"')
    memory = Unicode(None, allow_none=True, config=True, help='Memory of the kernel and all that it starts, such as "4G"')
    cpu = Unicode(None, allow_none=True, config=True, help='Processor time of the kernel, such as "1h"')
    processes = Unicode(None, allow_none=True, config=True, help="Processes and threads of the kernel")
    disk = Unicode(None, allow_none=True, config=True, help="Bytes in its private directories and workspaces")
    network = Bool(False, config=True, help="Give the kernel the host's network")
    workspace = List(Unicode(), config=True, help='Directories that the kernel may write to; "." is the notebook\'s')
    cell_timeout = Unicode(None, allow_none=True, config=True, help='Longest time of a cell, such as "10m"')
    cell_grace = Unicode("5s", config=True, help="Time between the interrupt of such a cell and the kernel's end")

    def __init__(self, **given: Any) -> None:
        unknown = [name for name in given if name not in (*FIELDS, "kernel_id", "kernel_spec", "parent", "config", "log")]
        if unknown:
            raise ValueError(
                f"kernel_provisioner.config of the kernelspec: there is no {unknown[0]!r}="
                f"{given[unknown[0]]!r:.100}; use {', '.join(FIELDS)}"
            )
        for name in ("wall", "memory", "cpu", "processes", "disk", "cell_timeout", "cell_grace"):
            # Numbers mean bytes, seconds and counts.
            if isinstance(given.get(name), (int, float)) and not isinstance(given[name], bool):
                given[name] = str(given[name])
        super().__init__(**given)
        self.process: Any = None
        self._sealed: Optional[SealedProcess] = None
        self._directory: Optional[str] = None
        self._watching: Optional[threading.Thread] = None
        self._ended_at: Optional[float] = None
        # The end was requested, so that it needs no explanation.
        self._is_expected = False

    def _duration(self, name: str) -> Optional[float]:
        try:
            return seconds(getattr(self, name))
        except ValueError:
            raise ValueError(f"{name}={getattr(self, name)!r} of the kernelspec: {DURATION_REMEDY}") from None

    # Start

    async def pre_launch(self, **given: Any) -> dict[str, Any]:
        manager = self.parent
        if not sys.platform.startswith("linux"):
            raise RuntimeError(f"sealed kernels need Linux, and this is {sys.platform}; use a kernelspec without sandtimer-provisioner")
        find_binary("a sealed kernel")
        self._duration("cell_timeout"), self._duration("cell_grace")
        if manager is not None:
            # Sockets have names of at most 107 bytes, and no other kernel's sockets are there.
            directory = self._make_directory()
            manager.transport, manager.ip = "ipc", os.path.join(directory, "k")
        try:
            result = await super().pre_launch(**given)
        except BaseException:
            self._remove_directory()
            raise
        return dict(result)

    def _make_directory(self) -> str:
        """Makes the directory of the kernel's sockets, whose name clients keep across restarts."""
        if self._directory is None:
            self._directory = tempfile.mkdtemp(prefix="sandtimer-")
            return self._directory
        try:
            os.mkdir(self._directory, 0o700)
        except FileExistsError:
            found = os.lstat(self._directory)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise
        return self._directory

    def _remove_directory(self) -> None:
        if self._directory is not None:
            # Some Pythons cannot remove what is nested more deeply than their stack.
            with contextlib.suppress(RecursionError):
                shutil.rmtree(self._directory, ignore_errors=True)

    def _options(self, cwd: str) -> list[str]:
        names = ("wall", "memory", "cpu", "processes", "disk")
        options = [f"--{name}={value}" for name in names if (value := getattr(self, name))]
        options += ["--network"] if self.network else []
        return options + [f"--workspace={os.path.abspath(os.path.join(cwd, each))}" for each in self.workspace]

    async def launch_kernel(self, cmd: list[str], **given: Any) -> Any:
        manager, directory = self.parent, self._directory
        if manager is None or directory is None:
            raise RuntimeError("sandtimer-provisioner needs a kernel manager of jupyter_client")
        file = os.path.realpath(manager.connection_file)
        inside = connection_path(directory)
        kernel = [argument.replace(file, inside).replace(manager.connection_file, inside) for argument in cmd]
        cwd = str(given.get("cwd") or os.getcwd())
        variables = kernel_variables(given.get("env") or {}, self.kernel_spec.env)
        # Code of an earlier kernel of this directory cannot know the name.
        mark = f"started-{os.urandom(8).hex()}"
        self._is_expected, self._ended_at, self._sealed = False, None, None
        try:
            arguments = command(directory, mark, kernel, self._options(cwd), variables)
            self._sealed = sealed = SealedProcess(arguments, kernel[0], cwd, variables)
            self.process, self.pid, self.pgid, self.cwd = sealed.process, sealed.process.pid, None, cwd
            sealed.connect(file)
            await self._wait_for_start(sealed, os.path.join(directory, mark))
            self._watch(sealed)
        except BaseException:
            self._abandon()
            raise
        return self.connection_info

    async def _wait_for_start(self, sealed: SealedProcess, mark: str) -> None:
        deadline = time.monotonic() + _START_TIMEOUT
        while not os.path.lexists(mark):
            if sealed.process.poll() is not None or time.monotonic() > deadline:
                sealed.end()
                text = sealed.startup_error() or reason(sealed.outcome())
                text = text or f"`sandtimer run` exited with {sealed.process.poll()}"
                raise RuntimeError(f"the kernel's sandbox could not be started: {text}")
            await asyncio.sleep(0.01)
        with contextlib.suppress(OSError):
            os.unlink(mark)

    def _abandon(self) -> None:
        """Ends a kernel that could not be started, and removes its directory."""
        if self._sealed is not None:
            self._sealed.end()
            self._sealed.close()
        self.process = None
        self._remove_directory()

    def _watch(self, sealed: SealedProcess) -> None:
        from ._jupyter_cells import CellWatcher

        url = self.parent._make_url("iopub")
        watcher = CellWatcher(self.parent, url, self._duration("cell_timeout"), self._duration("cell_grace") or 0.0)
        self._watching = threading.Thread(target=self._follow, args=(sealed, watcher), daemon=True, name="sandtimer-kernel")
        self._watching.start()

    def _follow(self, sealed: SealedProcess, watcher: Any) -> None:
        """In a thread: interrupts and ends cells, and shows why a kernel has ended."""

        def interrupt(why: str) -> None:
            sealed.show(why)
            sealed.send_signal(signal.SIGINT)

        watcher.follow(lambda: sealed.process.poll() is not None, interrupt, sealed.end)
        text = watcher.ended_cell or (None if self._is_expected else reason(sealed.outcome()))
        if text is not None:
            self.log.error("Kernel %s: %s", self.kernel_id, text)
            watcher.publish(text)

    # Life

    async def poll(self) -> Optional[int]:
        if self._sealed is None or self.process is None:
            return 0
        code = self.process.poll()
        if code is None:
            return None
        # Its clients are connected until they know of its end.
        self._ended_at = self._ended_at or time.monotonic()
        is_publishing = self._watching is not None and self._watching.is_alive()
        if is_publishing and time.monotonic() < self._ended_at + _PUBLISH_TIMEOUT:
            return None
        return int(code)

    async def wait(self) -> Optional[int]:
        while (code := await self.poll()) is None:
            await asyncio.sleep(0.05)
        if self._sealed is not None:
            self._sealed.close()
        self.process = None
        return code

    async def send_signal(self, signum: int) -> None:
        """Sends a signal to the kernel and the processes of its group, inside.

        SIGKILL ends the run; a dead kernel gets none.
        """
        if self._sealed is None or self.process is None or signum == 0:
            return
        if signum == signal.SIGKILL:
            await self.kill()
            return
        if signum == signal.SIGTERM:
            self._is_expected = True
        self._sealed.send_signal(signum)

    async def shutdown_requested(self, restart: bool = False) -> None:
        self._is_expected = True

    async def kill(self, restart: bool = False) -> None:
        self._is_expected = True
        if self._sealed is not None:
            self._sealed.end()

    async def terminate(self, restart: bool = False) -> None:
        await self.send_signal(signal.SIGTERM)

    async def cleanup(self, restart: bool = False) -> None:
        await super().cleanup(restart=restart)
        if not restart:
            self._remove_directory()
            self._directory = None


if __name__ == "__main__":
    from sandtimer.integrations._jupyter_install import main

    sys.exit(main())
