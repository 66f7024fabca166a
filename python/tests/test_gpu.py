"""`gpu=True`, with made-up nodes: each test runs in a mount namespace of its own, where /dev is a private one.

The nodes are those of /dev/zero under the names of GPUs. What the driver behind a real one does is shown by the last test, where there is one.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Callable

import pytest
import sandtimer

# The directory; then what runs when /dev is private. Nothing of it is left when the last process of the namespace is gone.
_PRIVATE = """
set -e
mount -t tmpfs -o mode=0755 none "$1"
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/ptmx "$1"
mkdir -m 1777 "$1/shm"
mkdir "$1/pts" "$1/dri" "$1/nvidia-caps"
ln -s /proc/self/fd "$1/fd"
for node in $2; do
    name=${node%%:*} rest=${node#*:}
    mknod -m "${rest%%:*}" "$1/$name" c 1 5
    chgrp "${rest#*:}" "$1/$name"
done
mount --move "$1" /dev
mount -t tmpfs -o mode=1777 none /dev/shm
shift 2
exec "$@"
"""
_UNSHARE = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _PRIVATE, "sh")
_AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")

Run = Callable[..., str]
# Name, mode, group.
NVIDIA = ("nvidia0:0666:0", "nvidiactl:0666:0", "nvidia-uvm:0666:0", "nvidia-caps/nvidia-cap2:0444:0")
OTHERS = ("kvm:0666:0", "nvidia-nvlink:0666:0", "dri/card0:0666:0")

_HEADER = """
import ctypes, fcntl, mmap, os
import sandtimer

def names(directory="/dev"):
    return sorted(os.listdir(directory))

def use(path):
    # What it takes to be a device that is opened for both, asked something, and mapped.
    fd = os.open(path, os.O_RDWR)
    wrote, read = os.write(fd, b"abc"), os.read(fd, 4)
    try:
        fcntl.ioctl(fd, 0xC020462A, bytes(32))
    except OSError as error:
        asked = error.strerror
    mapped = mmap.mmap(fd, 4096)
    mapped[:3] = b"xyz"
    return wrote, read, asked, mapped[:3], os.stat(path).st_rdev == os.makedev(1, 5)

def reserve():
    # Addresses as CUDA takes them: many times the memory limit, and nothing in them.
    return len(mmap.mmap(-1, 1 << 42, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=0)) >> 40

def told(outcome):
    return [each["reason"] for each in outcome.isolation.degraded if each["layer"] == "devices"]
"""


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    """Runs code where /dev has these nodes beside the usual ones, and gives what it printed."""

    def run(nodes: tuple[str, ...], code: str, by: tuple[str, ...] = (sys.executable,)) -> str:
        directory = tmp_path / "dev"
        directory.mkdir(exist_ok=True)
        program = (*by, "-c", _HEADER + textwrap.dedent(code))
        try:
            done = subprocess.run(
                (*_UNSHARE, str(directory), " ".join(nodes), *program), capture_output=True, text=True, timeout=120
            )
        except FileNotFoundError:
            pytest.skip("there is no unshare(1)")
        if done.returncode != 0 and any(word in done.stderr for word in ("unshare failed", "mknod:", "mount:")):
            pytest.skip(f"a private /dev needs root: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        assert list(directory.iterdir()) == []
        return done.stdout

    return run


USED = "(3, b'\\x00\\x00\\x00\\x00', 'Inappropriate ioctl for device', b'xyz', True)"


def test_a_call_is_given_the_gpu_and_is_told_to_have_it(run: Run) -> None:
    said = run(NVIDIA + OTHERS, """
        with sandtimer.Sandbox(timeout=60.0, memory="512MB", start="spawn", gpu=True) as box:
            print(box.call(use, "/dev/nvidia0"))
            print(*box.call(names), *box.call(names, "/dev/nvidia-caps"))
            outcome = box.run(use, "/dev/nvidiactl")
            print(outcome.path, outcome.ending, told(outcome))
            print(box.call(reserve))
            print(box.limits(timeout=0.5).run(exec, "while True: pass").ending, told(box.limits(timeout=30.0).run(abs, -1)) == told(outcome))
            print(box.exec("import os; os.path.exists('/dev/nvidia0')").value)
            print(box.command(["sh", "-c", "ls /dev/nvidia0 && head -c 0 /dev/nvidia-uvm && echo fine"]).stdout.split())
    """).splitlines()
    given = "/dev/nvidia-uvm, /dev/nvidia0, /dev/nvidiactl, /dev/nvidia-caps/nvidia-cap2"
    assert said[0] == USED
    usual = "fd full null nvidia-caps nvidia-uvm nvidia0 nvidiactl random shm stderr stdin stdout urandom zero"
    assert said[1] == usual + " nvidia-cap2", "others are absent"
    assert said[2] == f"spawn returned ['the run was given the GPU: {given}: its driver is reached without a wall']"
    assert said[3:] == ["4", "timeout True", "True", "['/dev/nvidia0', 'fine']"]


def fixes_oom_score() -> bool:
    """Whether an engine has CAP_SYS_RESOURCE."""
    effective = pathlib.Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0]
    return bool(int(effective, 16) >> 24 & 1)


def test_threads_are_named_as_libcuda_names_its_own(run: Run) -> None:
    """From another thread, by a file that is opened to be cut off first: where that fails, libcuda takes the system for broken."""
    said = run(NVIDIA, """
        import threading
        def rename():
            done = threading.Event()
            thread = threading.Thread(target=done.wait)
            thread.start()
            path = f"/proc/self/task/{thread.native_id}/comm"
            try:
                with open(path, "w") as file:
                    file.write("named")
                name = open(path).read()
            except PermissionError:
                name = "PermissionError\\n"
            done.set()
            return name
        with sandtimer.Sandbox(timeout=60.0, start="spawn", gpu=True) as box:
            print(box.call(rename), end="")
        with sandtimer.Sandbox(timeout=60.0) as box:
            print(box.call(rename), end="")
            for line in ("echo me > /proc/self/comm && cat /proc/$$/comm", "echo 0 > /proc/1/oom_score_adj"):
                outcome = box.command(["sh", "-c", line])
                print(outcome.exit_code, outcome.stdout.strip())
    """)
    if fixes_oom_score():
        assert said == "named\nnamed\n0 me\n2 \n", "the last is not its own, and stays shut"
    else:
        # Only a run with the GPU may write there: the right would be one to lower its oom_score_adj too.
        assert said == "named\nPermissionError\n2 \n2 \n"


def test_without_gpu_nothing_of_it_is_there(run: Run) -> None:
    """The control: the same host, calls without it, also after one with it in the same engine."""
    said = run(NVIDIA, """
        with sandtimer.Sandbox(timeout=60.0, start="spawn", gpu=True) as box:
            print(box.call(os.path.exists, "/dev/nvidia0"))
            print(box.call(os.path.exists, "/sys/devices/system/node/online"))
        for start in ("spawn", "zygote"):
            with sandtimer.Sandbox(timeout=60.0, start=start) as box:
                outcome = box.run(names)
                print(*outcome.value, box.call(os.path.exists, "/sys/devices/system/node"), told(outcome))
    """).splitlines()
    usual = "fd full null random shm stderr stdin stdout urandom zero False []"
    assert said == ["True", "True", usual, usual]


def test_a_node_that_only_a_group_opens_is_opened_by_it(run: Run) -> None:
    said = run(("kfd:0660:4321", "dri/renderD128:0660:4321", "dri/renderD129:0600:0"), """
        with sandtimer.Sandbox(timeout=60.0, start="spawn", gpu=True) as box:
            print(box.call(use, "/dev/kfd"), box.call(os.getgroups), box.call(names, "/dev/dri"))
            outcome = box.run(os.getuid)
            print(outcome.value != 0, *told(outcome), sep="\\n")
            print(box.command(["id", "-G"]).stdout.split()[1:])
        with sandtimer.Sandbox(timeout=60.0) as box:
            print(box.call(os.getgroups))
    """).splitlines()
    assert said[0] == f"{USED} [4321] ['renderD128']"
    assert said[1:3] == [
        "True",
        "the run was given the GPU: /dev/kfd, /dev/dri/renderD128, and the group 4321 that opens them: its driver is reached "
        "without a wall",
    ]
    assert said[3].startswith("/dev/dri/renderD129 is not given, for a run cannot open it: its mode is 0600")
    assert said[4:] == ["['4321']", "[]"]


def nobodys_python() -> tuple[str, ...]:
    """An interpreter that a user without privileges can execute, with this package."""
    packages = os.path.dirname(os.path.dirname(sandtimer.__file__))
    probe = "import os, sys; from sandtimer import Sandbox; os.stat(sys.executable)"
    for python in (sys.executable, "/usr/bin/python3"):
        command = (*_AS_NOBODY, "env", f"PYTHONPATH={packages}", "HOME=/tmp", python)
        try:
            if subprocess.run((*command, "-c", probe), capture_output=True).returncode == 0:
                return command
        except FileNotFoundError:
            break
    pytest.skip("there is no setpriv(1), or no interpreter that a user without privileges can reach")


def test_without_root_it_is_given_what_the_caller_can_open(run: Run) -> None:
    said = run((*NVIDIA, "nvidia1:0600:0"), """
        try:
            with sandtimer.Sandbox(timeout=60.0, start="spawn", gpu=True) as box:
                print(os.getuid(), box.call(use, "/dev/nvidia0"), box.call(os.path.exists, "/dev/nvidia1"))
                print(*told(box.run(abs, -1)), sep="\\n")
        except sandtimer.SandtimerError as error:
            print("none", error)
    """, by=nobodys_python()).splitlines()
    if said[0].startswith("none") and "namespaces" in said[0]:
        pytest.skip("without root this host gives no namespaces")
    assert said[0] == f"65534 {USED} False"
    assert said[1].startswith("the run was given the GPU: /dev/nvidia-uvm, /dev/nvidia0, /dev/nvidiactl")
    assert said[2].startswith("/dev/nvidia1 is not given, for a run cannot open it: its mode is 0600")


def test_a_host_without_a_gpu_is_refused_at_once(run: Run) -> None:
    said = run(("kvm:0666:0", "nvidiactl:0666:0"), """
        for make in (sandtimer.Sandbox, sandtimer.sandboxed):
            try:
                make(start="spawn", gpu=True)
            except sandtimer.SandboxUnavailableError as error:
                print(error)
    """).splitlines()
    assert len(said) == 2 and said[0] == said[1]
    for part in ("no GPU", "/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD*", "load its driver"):
        assert part in said[0]


def test_a_node_that_goes_away_refuses_the_next_call(run: Run) -> None:
    said = run(NVIDIA, """
        import time
        with sandtimer.Sandbox(timeout=60.0, start="spawn", gpu=True) as box:
            print(box.call(os.path.exists, "/dev/nvidia0"))
            os.unlink("/dev/nvidia0")
            ends = time.monotonic() + 30
            while time.monotonic() < ends:
                try:
                    box.call(abs, 1)
                except sandtimer.SandtimerError as error:
                    # For a second the call may still be planned as the last one was, and fail to find it.
                    if "no GPU" in str(error):
                        print(type(error).__name__)
                        break
    """)
    assert said == "True\nSandboxUnavailableError\n"


def test_which_gpus_it_is_to_use_is_told_and_nothing_else_of_the_environment(run: Run) -> None:
    said = run(NVIDIA, """
        os.environ.update(CUDA_VISIBLE_DEVICES="3", LD_LIBRARY_PATH="/usr/local/nvidia/lib64", SECRET="x")
        def told():
            return [os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "SECRET")]
        for options in ({"gpu": True}, {}):
            with sandtimer.Sandbox(timeout=60.0, start="spawn", **options) as box:
                print(box.call(told))
    """)
    assert said == "['3', '/usr/local/nvidia/lib64', None]\n[None, None, None]\n"


def test_a_preloaded_module_that_uses_the_gpu_is_refused_by_name(run: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "hasty.py").write_text("device = open('/dev/nvidia-uvm')\n")
    said = run(NVIDIA, f"""
        import sys
        sys.path.append({str(tmp_path / "modules")!r})
        with sandtimer.Sandbox(timeout=60.0, start="spawn", gpu=True, preload=["hasty"]) as box:
            try:
                box.call(abs, 1)
            except sandtimer.ProfileRefusedError as error:
                print(error)
    """)
    assert "uses the GPU once 'hasty' is preloaded" in said and "leave it out of preload" in said


def test_a_context_is_not_given_it(run: Run) -> None:
    said = run(NVIDIA, """
        with sandtimer.Sandbox(start="spawn", gpu=True) as box:
            try:
                box.context()
            except sandtimer.InvalidArgumentError as error:
                print(error)
    """)
    assert "gpu=True: a context is not given the GPU" in said and "without gpu" in said


def test_a_pool_passes_it_on_to_its_nodes(run: Run) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install sandtimer[ray]")
    said = run(NVIDIA, """
        os.environ.update(RAY_USAGE_STATS_ENABLED="0")
        import ray, sandtimer.ray
        ray.init(num_cpus=1, num_gpus=2, include_dashboard=False, object_store_memory=100 << 20, logging_level="ERROR", log_to_driver=False)
        with sandtimer.ray.Pool(timeout=60.0, start="spawn", gpu=True, num_gpus=1) as pool:
            outcome = pool.run(use, "/dev/nvidia0")
            print(outcome.value, told(outcome))
        ray.shutdown()
    """)
    assert USED in said and "the run was given the GPU: /dev/nvidia-uvm, /dev/nvidia0" in said


def test_pools_of_other_machines_check_what_they_can() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install sandtimer[ray]")
    import sandtimer.ray

    for start in ({}, {"start": "zygote"}):
        with pytest.raises(sandtimer.InvalidArgumentError, match='use start="spawn"'):
            sandtimer.ray.Pool(gpu=True, **start)
    # Whether there is one is for the nodes to say, which begin with the first call.
    sandtimer.ray.Pool(gpu=True, start="spawn").close()


class Cuda:
    """A CUDA context of this process, by the driver's own library."""

    def __init__(self) -> None:
        import ctypes

        self.ctypes, self.library = ctypes, ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.do("cuInit", 0)
        self.do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.do("cuCtxSetCurrent", context)

    def do(self, name: str, *arguments: object) -> None:
        error = getattr(self.library, name)(*arguments)
        if error:
            raise OSError(f"{name}: {error}")

    def allocate(self, size: int) -> object:
        address = self.ctypes.c_uint64()
        self.do("cuMemAlloc_v2", self.ctypes.byref(address), self.ctypes.c_size_t(size))
        self.do("cuMemsetD8_v2", address, 7, self.ctypes.c_size_t(size))
        return address

    def read(self, address: object) -> bytes:
        kept = self.ctypes.create_string_buffer(8)
        self.do("cuMemcpyDtoH_v2", kept, address, self.ctypes.c_size_t(8))
        return kept.raw

    def free(self) -> int:
        free, total = self.ctypes.c_size_t(), self.ctypes.c_size_t()
        self.do("cuMemGetInfo_v2", self.ctypes.byref(free), self.ctypes.byref(total))
        return free.value


def compute() -> bytes:
    cuda = Cuda()
    return cuda.read(cuda.allocate(1 << 20))


def hold() -> None:
    cuda = Cuda()
    held = cuda.allocate(4 << 30)
    print("holds", flush=True)
    while True:
        cuda.read(held)


def beside_cuda() -> None:
    """What the test below does, in a process of its own, which has the CUDA context for good."""
    cuda = Cuda()
    mine = cuda.allocate(1 << 20)
    with pytest.raises(sandtimer.SandboxUnavailableError, match="CUDA is in use"):
        sandtimer.Sandbox(timeout=60.0, start="fork").call(abs, -1)
    with sandtimer.Sandbox(timeout=60.0) as box:
        assert [box.call(abs, -n) for n in range(100)] == list(range(100))
        refused = box.run(compute)
        assert refused.ending == "raised" and "cuInit: " in str(refused.error), "the control: without gpu=True there is none"
        assert box.limits(timeout=0.3).run(exec, "while True: pass").ending == "timeout"
    with sandtimer.Sandbox(timeout=60.0, memory="8GB", start="spawn", gpu=True) as box:
        assert box.call(compute) == bytes([7] * 8)
        before = cuda.free()
        outcome = box.limits(timeout=10.0).run(hold)
        assert (outcome.ending, outcome.stdout, outcome.tree.survivors) == ("timeout", "holds\n", 0), outcome
        assert cuda.free() > before - (1 << 30), "its 4 GiB are free at once"
        assert any("/dev/nvidia0" in each["reason"] for each in outcome.isolation.degraded)
        assert box.call(compute) == bytes([7] * 8)
    assert cuda.read(mine) == bytes([7] * 8), "this process's own is as it was"
    print("as it should be")


@pytest.mark.skipif(not os.path.exists("/dev/nvidia0"), reason="this host has no NVIDIA GPU: no /dev/nvidia0")
def test_a_real_gpu_computes_and_is_free_again_when_a_call_that_holds_it_is_ended() -> None:
    program = (sys.executable, "-c", "import test_gpu; test_gpu.beside_cuda()")
    done = subprocess.run(program, cwd=pathlib.Path(__file__).parent, capture_output=True, text=True, timeout=170)
    assert done.stdout == "as it should be\n", done.stderr
