"""The kernel provisioner, by nbclient and jupyter_client themselves, with real kernels."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from typing import Any, AsyncIterator, Callable, Iterator, Optional

import pytest
from serving import BINARY

if sys.version_info < (3, 10):
    pytest.skip("nbclient has no package for this Python", allow_module_level=True)

import nbformat
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import KernelProvisionerFactory
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

from sandtimer.integrations._jupyter_install import main
from sandtimer.integrations.jupyter import SandtimerProvisioner

NAME = "sandtimer-provisioner"


@pytest.fixture(autouse=True)
def provisioner(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[None]:
    """What the entry point of the installed package does."""
    factory = KernelProvisionerFactory.instance()
    monkeypatch.setenv("SANDTIMER_BIN", BINARY)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "prefix/share/jupyter"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    registered = set(factory.provisioners)
    if NAME not in registered:
        point = type("EntryPoint", (), {"name": NAME, "load": staticmethod(lambda: SandtimerProvisioner)})
        factory.provisioners[NAME] = point
    yield
    if NAME not in registered:
        del factory.provisioners[NAME]


@pytest.fixture
def install(tmp_path: pathlib.Path) -> Callable[..., dict[str, Any]]:
    def install(*options: str, env: Optional[dict[str, str]] = None, **config: Any) -> dict[str, Any]:
        assert main(["install", "--prefix", str(tmp_path / "prefix"), "--name", "sealed", *options]) == 0
        path = tmp_path / "prefix/share/jupyter/kernels/sealed/kernel.json"
        spec: dict[str, Any] = json.loads(path.read_text())
        spec["metadata"]["kernel_provisioner"]["config"].update(config)
        spec["env"] = env or {}
        path.write_text(json.dumps(spec))
        return spec

    return install


def execute(directory: pathlib.Path, *cells: str, dies: bool = False, **options: Any) -> list[Any]:
    """The outputs of a notebook's cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    work = directory / "work"
    work.mkdir(exist_ok=True)
    client = NotebookClient(notebook, kernel_name="sealed", timeout=60, resources={"metadata": {"path": str(work)}}, **options)
    if dies:
        with pytest.raises(DeadKernelError):
            client.execute()
    else:
        client.execute()
    return [cell.outputs for cell in notebook.cells]


def test_a_notebook_runs_sealed(install: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    spec = install("--memory", "1G")
    assert spec["metadata"]["kernel_provisioner"] == {"provisioner_name": NAME, "config": {"memory": "1G", "network": False}}
    network = "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 9), 5)\nexcept OSError as error: print(error.errno)"
    file = "try:\n    open('file', 'w')\nexcept OSError as error: print(type(error).__name__)"
    outputs = execute(tmp_path, "x = 40", "x + 2", network, file, "import os; os.path.exists(os.path.expanduser('~/.ssh'))")
    assert outputs[1][0]["data"]["text/plain"] == "42"
    assert outputs[2][0]["text"].strip() in ("101", "1", "13")
    assert outputs[3][0]["text"].strip() in ("OSError", "PermissionError")
    assert outputs[4][0]["data"]["text/plain"] == "False"


def test_the_notebook_shows_why_its_kernel_died(install: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    install("--memory", "300M")
    # What is flushed shows that the message with the cell's beginning has left the kernel, too.
    outputs = execute(tmp_path, "print('so far')", "print(1, flush=True); data = bytearray(1 << 30)", dies=True)
    assert outputs[0][0]["text"] == "so far\n"
    stream = outputs[1][-1]
    assert stream["name"] == "stderr" and "memory limit of 300 MiB" in stream["text"]
    outputs = execute(tmp_path, "import os; print(1, flush=True); os.kill(os.getpid(), 11)", dies=True)
    assert "ended by SIGSEGV" in outputs[0][-1]["text"]


def test_a_cell_past_its_time_is_interrupted_and_then_ended(install: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    install("--cell-timeout", "1s", cell_grace="1s")
    outputs = execute(tmp_path, "x = 1", "while True: pass", "x + 1", allow_errors=True)
    assert "Interrupted at the cell limit of 1 s" in "".join(each.get("text", "") for each in outputs[1])
    assert outputs[1][-1]["ename"] == "KeyboardInterrupt"
    assert outputs[2][0]["data"]["text/plain"] == "2"
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    outputs = execute(tmp_path, deaf, dies=True)
    assert "Stopped by the cell limit of 1 s" in "".join(each["text"] for each in outputs[0])


def test_workspaces_are_writable(install: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    install("--workspace", ".")
    execute(tmp_path, "open('result', 'w').write('42')")
    assert (tmp_path / "work/result").read_text() == "42"


def kernels() -> set[str]:
    return {name for name in os.listdir(os.environ.get("TMPDIR", "/tmp")) if name.startswith("sandtimer-") and len(name) == 18}


@contextlib.asynccontextmanager
async def live_kernel(**options: Any) -> AsyncIterator[tuple[AsyncKernelManager, Any]]:
    """A manager with a kernel, and its client."""
    manager = AsyncKernelManager(kernel_name="sealed")
    await manager.start_kernel(**options)
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        yield manager, client
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def run(client: Any, code: str) -> Any:
    """What a cell has shown last."""
    found: list[Any] = []
    await client.execute_interactive(code, timeout=60, output_hook=found.append)
    return [each for each in found if each["msg_type"] != "status"][-1]["content"]


async def asleep(client: Any, number: int) -> asyncio.Future[Any]:
    """A cell whose child process sleeps, and which has begun to."""
    duration = f"100.{os.getpid()}{number}"
    cell = asyncio.ensure_future(run(client, f"import subprocess; subprocess.run(['sleep', '{duration}'])"))
    while not any(duration in line for line in processes()):
        await asyncio.sleep(0.05)
    return cell


def test_interrupt_restart_and_shutdown(install: Callable[..., Any]) -> None:
    install()
    before = kernels()

    async def use() -> None:
        async with live_kernel() as (manager, client):
            assert (await run(client, "x = 1; x"))["data"]["text/plain"] == "1"
            for number in range(3):
                # More than one: a second Ctrl-C would end a run.
                sleeping = await asleep(client, number)
                await manager.interrupt_kernel()
                assert (await sleeping)["ename"] == "KeyboardInterrupt"
            assert (await run(client, "x + 1"))["data"]["text/plain"] == "2"
            await manager.restart_kernel()
            await client.wait_for_ready(timeout=60)
            assert (await run(client, "x"))["ename"] == "NameError"
            # One that has died is restarted too, as by Jupyter itself.
            client.execute("import os; os._exit(1)")
            while await manager.is_alive():
                await asyncio.sleep(0.05)
            await manager.restart_kernel(now=True)
            await client.wait_for_ready(timeout=60)
            assert (await run(client, "1 + 1"))["data"]["text/plain"] == "2"
            pid = manager.provisioner.pid
            assert await manager.is_alive()
            await manager.shutdown_kernel()
            assert not await manager.is_alive() and not os.path.exists(f"/proc/{pid}")

    asyncio.run(use())
    assert kernels() == before


def test_a_kernel_cannot_have_the_server_write_elsewhere(install: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    install()
    victim = tmp_path / "victim"
    victim.write_text("as it was")
    attack = f"""
        import os, ipykernel
        path = ipykernel.get_connection_file()
        directory = os.path.dirname(path)
        os.unlink(path)
        os.symlink({str(victim)!r}, path)
        os.makedirs(os.path.join(directory, "started", "below"), exist_ok=True)
        os.path.islink(path)
    """

    async def use() -> None:
        async with live_kernel() as (manager, client):
            for _ in range(2):
                assert (await run(client, textwrap.dedent(attack)))["data"]["text/plain"] == "True"
                await manager.restart_kernel(now=True)
                await client.wait_for_ready(timeout=60)
                shown = await run(client, "import os, ipykernel; oct(os.lstat(ipykernel.get_connection_file()).st_mode)")
                assert shown["data"]["text/plain"] == "'0o100600'"

    asyncio.run(use())
    assert victim.read_text() == "as it was"


def test_values_of_variables_are_not_in_the_arguments(
    install: Callable[..., Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"secret-{os.urandom(8).hex()}"
    monkeypatch.setenv("SAME", "of-both")
    monkeypatch.setenv("OF_THE_SERVER", "alone")
    path = f"/opt/of-the-kernel:{os.environ['PATH']}"
    install(env={"OWN": secret, "SAME": "of-both", "PATH": path})

    async def use() -> None:
        async with live_kernel(env={**os.environ, "GIVEN": secret}) as (_, client):
            code = "import os; [os.environ.get(name) for name in ('OWN', 'SAME', 'GIVEN', 'OF_THE_SERVER', 'PATH')]"
            shown = (await run(client, code))["data"]["text/plain"]
            assert ast.literal_eval(shown) == [secret, "of-both", secret, None, path]
            assert [line for line in processes() if secret in line] == []

    asyncio.run(use())


def test_signals_of_the_kernel_leave_interrupts_possible(install: Callable[..., Any]) -> None:
    install()

    async def use() -> None:
        async with live_kernel() as (manager, client):
            numbers = "signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2"
            await run(client, f"import signal; [signal.signal(each, signal.SIG_IGN) for each in ({numbers})]")
            for number in (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
                await manager.signal_kernel(number)
            sleeping = await asleep(client, 4)
            await manager.interrupt_kernel()
            assert (await asyncio.wait_for(sleeping, 30))["ename"] == "KeyboardInterrupt"

    asyncio.run(use())


def test_wall_ends_a_kernel_that_claims_to_be_idle(
    install: Callable[..., Any], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = install("--wall", "8s", "--cell-timeout", "1s")
    assert spec["metadata"]["kernel_provisioner"]["config"]["wall"] == "8s"
    forged = """
        import time
        kernel = get_ipython().kernel
        kernel.session.send(kernel.iopub_socket, "status", {"execution_state": "idle"}, parent=kernel.get_parent())
        time.sleep(100)
    """
    execute(tmp_path, textwrap.dedent(forged), dies=True)
    assert "cell limit" not in caplog.text and "wall limit of 8 s" in caplog.text


def processes() -> list[str]:
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            found.append(pathlib.Path("/proc", name, "cmdline").read_text().replace("\0", " "))
        except OSError:
            pass
    return found


def test_a_kernel_does_not_outlive_its_server(install: Callable[..., Any], tmp_path: pathlib.Path) -> None:
    install()
    mark = f"mark-{os.getpid()}"
    program = f"""
        import asyncio, os, sys
        from jupyter_client.manager import AsyncKernelManager
        from jupyter_client.provisioning import KernelProvisionerFactory
        from sandtimer.integrations.jupyter import SandtimerProvisioner
        point = type("P", (), dict(name="{NAME}", load=staticmethod(lambda: SandtimerProvisioner)))
        KernelProvisionerFactory.instance().provisioners["{NAME}"] = point

        async def begin():
            manager = AsyncKernelManager(kernel_name="sealed")
            await manager.start_kernel(env={{**os.environ, "MARK": "{mark}"}})
            client = manager.client()
            client.start_channels()
            await client.wait_for_ready(timeout=60)
            client.execute("import subprocess, os; subprocess.Popen(['sh', '-c', 'sleep 1000; : ' + os.environ['MARK']])")
            print("begun", flush=True)
            await asyncio.sleep(1000)

        asyncio.run(begin())
    """
    file = tmp_path / "server.py"
    file.write_text(textwrap.dedent(program))
    server = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None and server.stdout.readline() == "begun\n"
        deadline = time.monotonic() + 30
        while not any(mark in line for line in processes()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        server.kill()
        server.wait()
    deadline = time.monotonic() + 30
    while any(mark in line for line in processes()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"memory": "much"}, "much"),
        ({"cell_timeout": "soon"}, "cell_timeout='soon' of the kernelspec: use seconds"),
        ({"ram": "4G"}, "there is no 'ram'='4G'; use wall, memory"),
        ({"network": "yes"}, "network"),
        ({"workspace": ["/does/not/exist"]}, "/does/not/exist"),
    ],
)
def test_a_sandbox_that_cannot_be_built_is_an_error_of_the_start(
    install: Callable[..., Any], config: dict[str, Any], expected: str
) -> None:
    install(**config)
    before = kernels()

    async def start() -> None:
        manager = AsyncKernelManager(kernel_name="sealed")
        try:
            with pytest.raises(Exception, match=expected.replace("(", r"\(")):
                await manager.start_kernel()
            # Before anything is cleaned up by request.
            assert kernels() == before
        finally:
            await manager.cleanup_resources()

    asyncio.run(start())


def test_a_missing_program_is_named(install: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    monkeypatch.setenv("SANDTIMER_BIN", "/does/not/exist")
    with pytest.raises(RuntimeError, match="SANDTIMER_BIN='/does/not/exist' does not name it"):
        asyncio.run(AsyncKernelManager(kernel_name="sealed").start_kernel())


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--memory", "12Q", "`12Q` is not a size"),
        ("--cell-timeout", "soon", "'soon' is not a duration"),
        ("--wall", "soon", "'soon' is not a duration"),
        ("--name", "two words", "cannot install the kernelspec 'two words'"),
    ],
)
def test_wrong_options_of_install_are_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], option: str, value: str, expected: str
) -> None:
    try:
        code = main(["install", "--prefix", str(tmp_path), option, value])
    except SystemExit as error:
        code = int(error.code or 0)
    assert code != 0 and expected in capsys.readouterr().err
    assert list(tmp_path.rglob("kernel.json")) == []
