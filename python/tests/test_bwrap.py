"""`sandtimer bwrap`: bubblewrap's command line, with limits and a complete end."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Iterator

import pytest
from serving import BINARY
from waiting import readable

WITHIN = 60
HOST = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]


@pytest.fixture(scope="module")
def bwrap(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A link of that name, as an agent finds it in PATH."""
    link = tmp_path_factory.mktemp("bin") / "bwrap"
    link.symlink_to(BINARY)
    return str(link)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """What the machine's user has configured is not tested here."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A work tree in which nothing may be left."""
    made = tmp_path / "tree"
    made.mkdir()
    yield made


def run(bwrap: str, *arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    limits = options.pop("limits", {})
    given = {**os.environ, **{f"SANDTIMER_{name.upper()}": value for name, value in limits.items()}}
    options = {"env": given, "capture_output": True, "text": True, "timeout": WITHIN, **options}
    return subprocess.run([bwrap, *map(str, arguments)], **options)


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + WITHIN
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def alive(marker: str) -> list[int]:
    """Processes that sleep for the marker's time."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (OSError, NotADirectoryError):
            continue
        if entry.name.isdigit() and words[:2] == ["sleep", marker]:
            found.append(int(entry.name))
    return found


@pytest.fixture
def marker() -> Iterator[str]:
    """An argument for `sleep` that no other process has; what still has it is ended."""
    value = f"9{time.monotonic_ns() % 10**9}.{os.getpid()}"
    yield value
    for pid in alive(value):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("more", [["--unshare-all"], ["--unshare-pid"], ["--unshare-pid", "--as-pid-1"], []])
def test_exit_codes_are_the_commands(bwrap: str, more: list[str]) -> None:
    assert run(bwrap, *HOST, *more, "--", "sh", "-c", "exit 7").returncode == 7
    done = run(bwrap, *HOST, *more, "--", "sh", "-c", "echo out; echo err >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "err\n")


def test_signal_of_the_command_is_added_to_128(bwrap: str) -> None:
    assert run(bwrap, *HOST, "--unshare-pid", "sh", "-c", "kill -TERM $$").returncode == 143
    assert run(bwrap, *HOST, "sh", "-c", "kill -KILL $$").returncode == 137


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--nonsense", "true"], "bwrap: Unknown option --nonsense\n"),
        (["--bind", "/nowhere", "/x", "true"], "bwrap: Can't find source path /nowhere: No such file or directory\n"),
        ([*HOST, "--", "/nowhere"], "bwrap: execvp /nowhere: No such file or directory\n"),
        (["--seccomp", "77", "true"], "bwrap: Can't read seccomp data: Bad file descriptor\n"),
        (["--block-fd", "77", "true"], "bwrap: --block-fd: descriptor 77 cannot be used: Bad file descriptor\n"),
        ([*HOST, "--chdir", "/nowhere", "true"], "bwrap: Can't chdir to /nowhere: No such file or directory\n"),
    ],
)
def test_own_errors_exit_with_1(bwrap: str, arguments: list[str], message: str) -> None:
    done = run(bwrap, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_probes_of_the_agents_are_answered(bwrap: str) -> None:
    version = run(bwrap, "--version")
    assert version.returncode == 0
    assert [int(part) for part in version.stdout.split()[1].split(".")] >= [0, 5, 0]
    assert "--disable-userns" in run(bwrap, "--help").stdout
    assert "--argv0" in run(BINARY, "bwrap", "--help").stdout
    assert run(bwrap).returncode == 1


def test_wall_limit_ends_the_command(bwrap: str, marker: str) -> None:
    done = run(bwrap, *HOST, "--unshare-all", "sleep", marker, limits={"wall": "300ms"})
    assert done.returncode == 124
    assert "wall limit" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert alive(marker) == []


def test_memory_limit_ends_the_command(bwrap: str) -> None:
    program = "import sys; kept = [bytearray(1 << 20) for _ in range(512)]; sys.exit(5)"
    done = run(bwrap, *HOST, "--unshare-all", sys.executable, "-c", program, limits={"memory": "64M"})
    if "no control group holds it" in done.stderr:
        assert done.returncode == 137 or "MemoryError" in done.stderr, done.stderr
    else:
        assert done.returncode == 137 and "memory limit" in done.stderr, done.stderr


@pytest.mark.parametrize("more", [["--unshare-all"], ["--unshare-user"]])
def test_fork_bomb_ends_at_the_process_limit(bwrap: str, more: list[str], marker: str) -> None:
    bomb = f"bomb() {{ bomb | bomb & sleep {marker} & }}; bomb; sleep {marker}"
    limits = {"processes": "40", "wall": "2s"}
    done = run(bwrap, *HOST, *more, "bash", "-c", bomb, limits=limits, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, capture_output=False)
    assert done.returncode == 124, done.stderr
    assert alive(marker) == []


def test_output_limit_cuts(bwrap: str) -> None:
    done = run(bwrap, *HOST, "sh", "-c", "yes | head -c 1000000; exit 3", limits={"output": "1000"})
    assert (done.returncode, len(done.stdout)) == (3, 1000)
    assert "output limit" in done.stderr


def test_stall_limit_ends_the_command(bwrap: str, marker: str) -> None:
    done = run(bwrap, *HOST, "sh", "-c", f"echo begun; sleep {marker}", limits={"stall": "500ms"})
    assert (done.returncode, done.stdout) == (124, "begun\n"), done.stderr


@pytest.mark.parametrize("more", [["--unshare-all"], ["--unshare-pid", "--as-pid-1"], []])
def test_daemon_does_not_outlive_its_command(bwrap: str, more: list[str], marker: str) -> None:
    daemon = f"setsid sh -c 'sleep {marker} & sleep {marker}' >/dev/null 2>&1 & sleep 0.2; exit 4"
    assert run(bwrap, *HOST, *more, "sh", "-c", daemon).returncode == 4
    assert alive(marker) == []


def test_status_descriptor_carries_the_outcome(bwrap: str) -> None:
    (read, write), (read_info, write_info) = os.pipe(), os.pipe()
    descriptors = ["--json-status-fd", write, "--info-fd", write_info]
    done = run(bwrap, *HOST, "--unshare-all", *descriptors, "sh", "-c", "exit 42", pass_fds=[write, write_info])
    for fd in (write, write_info):
        os.close(fd)
    with os.fdopen(read) as status, os.fdopen(read_info) as info:
        documents = [json.loads(line) for line in status]
        assert json.load(info) == documents[0]
    assert done.returncode == 42
    assert documents[0]["child-pid"] > 0 and documents[0]["pid-namespace"] > 0
    assert documents[1] == {"exit-code": 42}
    outcome = documents[2]["outcome"]
    assert (outcome["ending"], outcome["exit_code"], outcome["tree"]["survivors"]) == ("exited", 42, 0)


def test_command_that_is_not_executed_has_no_exit_code(bwrap: str) -> None:
    read, write = os.pipe()
    run(bwrap, *HOST, "--json-status-fd", write, "/nowhere", pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as status:
        assert "exit-code" not in status.read()


def test_descriptors_are_passed_on(bwrap: str) -> None:
    read, write = os.pipe()
    done = run(bwrap, *HOST, "--unshare-all", "bash", "-c", f"echo passed >&{write}; ls /proc/self/fd", pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as passed:
        assert passed.read() == "passed\n"
    # `ls` has the directory open as well.
    others = set(done.stdout.split()) - {"0", "1", "2", str(write)}
    assert len(others) == 1, done.stdout


def test_standard_streams_are_the_callers_own(bwrap: str, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "output"
    with target.open("w") as output:
        run(bwrap, *HOST, "readlink", "/proc/self/fd/1", capture_output=False, stdout=output)
    assert target.read_text() == f"{target}\n"


def test_work_tree_stays_as_it_was(bwrap: str, tree: pathlib.Path) -> None:
    (tree / "kept").write_text("")
    names = [".gitconfig", ".claude/agents", "deep/er/file"]
    mounts = [word for name in names for word in ("--ro-bind", "/dev/null", tree / name)]
    directories = ["--tmpfs", tree / "hidden", "--ro-bind", "/dev/null", tree / "kept"]
    command = [*HOST, "--bind", tree, tree, *mounts, *directories, "--unshare-all", "true"]
    started = time.monotonic()
    for _ in range(100):
        done = run(bwrap, *command)
        assert (done.returncode, done.stderr) == (0, "")
        assert os.listdir(tree) == ["kept"]
    # Mount points below one that this command has made wait for no lock: each wait would be half a second.
    assert time.monotonic() - started < 40


def test_links_in_the_work_tree_do_not_lead_out(bwrap: str, tree: pathlib.Path, tmp_path: pathlib.Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    links = [("old", f"/oldroot{outside}"), ("absolute", str(outside)), ("up", f"../../../../../..{outside}")]
    for name, target in links:
        (tree / name).symlink_to(target)
        for make in (["--ro-bind", "/dev/null"], ["--dir"], ["--symlink", "/x"]):
            root = ["--tmpfs", "/", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]
            done = run(bwrap, *root, "--bind", tree, tree, *make, tree / name / "made", "/usr/bin/ls", f"{outside}/made")
            assert os.listdir(outside) == [], (make, done.stderr)


# Exchanges a directory and a link until its stdin is closed.
FLIP = """
import ctypes, select, sys
libc = ctypes.CDLL(None)
one, other = (path.encode() for path in sys.argv[1:])
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100):
        if libc.renameat2(-100, one, -100, other, 2) != 0:
            sys.exit("renameat2 failed")
"""


@pytest.mark.parametrize("make", ["bind", "file", "chmod"])
def test_directory_that_becomes_a_link_does_not_lead_out(bwrap: str, tree: pathlib.Path, tmp_path: pathlib.Path, make: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("")
    (outside / "secret").chmod(0o600)
    (tree / "flipped").mkdir()
    (tree / "flipped" / "secret").write_text("")
    (tree / "link").symlink_to(f"/oldroot{outside}")
    target = tree / "flipped" / "made"
    words = {
        "bind": ["--ro-bind", "/dev/null", target],
        "file": ["--file", 0, target],
        "chmod": ["--chmod", "0644", tree / "flipped" / "secret"],
    }[make]
    command = [sys.executable, "-c", FLIP, tree / "flipped", tree / "link"]
    with subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE) as flipping:
        for _ in range(15):
            # Some fail, because what they find changes.
            run(bwrap, *HOST, "--bind", tree, tree, *words, "true", stdin=subprocess.DEVNULL)
            assert flipping.poll() is None
            assert os.listdir(outside) == ["secret"]
            assert (outside / "secret").stat().st_mode & 0o777 == 0o600
        flipping.communicate()


@pytest.mark.parametrize("more", [["--unshare-pid"], ["--unshare-user", "--unshare-pid"]])
def test_mount_points_are_removed_from_a_read_only_work_tree(bwrap: str, tree: pathlib.Path, more: list[str]) -> None:
    mounts = ["--ro-bind", "/", "/", "--bind", tree, tree, "--ro-bind", "/dev/null", tree / "x/y/.env"]
    done = run(bwrap, *mounts, "--remount-ro", tree, *more, "sh", "-c", f"ls {tree}/x/y/.env; touch {tree}/z")
    assert done.stdout == f"{tree}/x/y/.env\n" and "Read-only" in done.stderr
    assert os.listdir(tree) == []


def test_mount_points_are_removed_when_the_caller_is_killed(bwrap: str, tree: pathlib.Path, marker: str) -> None:
    command = [*HOST, "--bind", tree, tree, "--ro-bind", "/dev/null", tree / "made", "sleep", marker]
    with subprocess.Popen([bwrap, *map(str, command)]) as process:
        assert eventually(lambda: (tree / "made").exists() and alive(marker) != [])
        process.kill()
    assert eventually(lambda: os.listdir(tree) == [] and alive(marker) == [])


def test_shared_mount_point_stays_until_the_last_command_ends(bwrap: str, tree: pathlib.Path) -> None:
    command = [bwrap, *HOST, "--bind", tree, tree, "--ro-bind", "/dev/null", tree / "made", "cat"]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    with start() as first:
        assert first.stdin and first.stdout
        first.stdin.write(b"x\n")
        first.stdin.flush()
        assert first.stdout.readline() == b"x\n"
        with start() as second:
            assert second.stdin and second.stdout
            second.stdin.write(b"y\n")
            second.stdin.flush()
            assert second.stdout.readline() == b"y\n"
            first.communicate(timeout=WITHIN)
            assert (tree / "made").exists()
            second.communicate(timeout=WITHIN)
    assert os.listdir(tree) == []


def test_command_lives_on_when_the_thread_that_started_it_ends(bwrap: str) -> None:
    started: list[subprocess.Popen[bytes]] = []
    command = [bwrap, *HOST, "--unshare-all", "--die-with-parent", "cat"]

    def start() -> None:
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with started[0] as process:
        output, _ = process.communicate(b"still here\n", timeout=WITHIN)
    assert (process.returncode, output) == (0, b"still here\n")


def test_command_ends_with_the_process_that_started_it(bwrap: str, marker: str) -> None:
    words = [bwrap, *HOST, "--unshare-all", "--die-with-parent", "sleep", marker]
    program = f"import subprocess, sys; subprocess.Popen({words!r}); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as parent:
        assert eventually(lambda: alive(marker) != [])
        parent.kill()
    assert eventually(lambda: alive(marker) == [])


def test_sigterm_ends_everything(bwrap: str, marker: str) -> None:
    with subprocess.Popen([bwrap, *HOST, "--unshare-all", "sleep", marker]) as process:
        assert eventually(lambda: alive(marker) != [])
        process.terminate()
        assert process.wait(WITHIN) == -signal.SIGTERM
    assert alive(marker) == []


def test_interrupt_from_the_terminal_ends_both(bwrap: str, marker: str) -> None:
    # What follows is not reached by a shell whose command an interrupt has ended.
    line = f"{bwrap} {' '.join(HOST)} --unshare-all sleep {marker}; echo reached"
    shell, terminal = pty.fork()
    if shell == 0:
        os.execvp("bash", ["bash", "-c", line])
    assert eventually(lambda: alive(marker) != [])
    os.write(terminal, b"\x03")
    output = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(terminal, 4096):
            output += chunk
    os.close(terminal)
    _, status = os.waitpid(shell, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT
    assert b"reached" not in output and alive(marker) == []


def test_stopped_bwrap_does_not_stop_the_deadline(bwrap: str, marker: str) -> None:
    environment = {**os.environ, "SANDTIMER_WALL": "1s"}
    command = [bwrap, *HOST, "--unshare-all", "sleep", marker]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert eventually(lambda: alive(marker) != [])
        process.send_signal(signal.SIGSTOP)
        is_dead = eventually(lambda: alive(marker) == [])
        process.send_signal(signal.SIGCONT)
        assert is_dead
        _, message = process.communicate(timeout=WITHIN)
    assert process.returncode == 124 and "wall limit" in message, message


@pytest.mark.parametrize("more", [["--unshare-all"], []])
def test_command_does_not_outlive_its_guard(bwrap: str, more: list[str], marker: str) -> None:
    command = [bwrap, *HOST, *more, "sh", "-c", f"setsid sleep {marker} & sleep {marker}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        assert eventually(lambda: len(alive(marker)) >= 2)
        os.kill(guard_of(process), signal.SIGKILL)
        assert process.wait(WITHIN) not in (0, None)
    # Without a PID namespace and without a control group nothing is left that could find the daemon.
    if more or os.getuid() == 0:
        assert eventually(lambda: alive(marker) == [])


def guard_of(process: subprocess.Popen[Any]) -> int:
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    guards = [int(pid) for pid in children if pathlib.Path(f"/proc/{pid}/comm").read_text() == "st-guard\n"]
    assert len(guards) == 1
    return guards[0]


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("more", [[], ["--unshare-pid", "--as-pid-1"], ["--unshare-pid"]])
def test_guard_of_an_idle_command_uses_no_cpu(bwrap: str, more: list[str], marker: str) -> None:
    with subprocess.Popen([bwrap, *HOST, *more, "sleep", marker]) as process:
        assert eventually(lambda: alive(marker) != [])
        guard = guard_of(process)
        time.sleep(1)
        used = cpu_seconds(guard)
        process.terminate()
    assert used < 0.2


def test_userns_block_fd_waits_for_the_maps(bwrap: str) -> None:
    (read_block, write_block), (read_info, write_info) = os.pipe(), os.pipe()
    descriptors = ["--userns-block-fd", read_block, "--info-fd", write_info]
    words = [bwrap, *HOST, "--unshare-user", *descriptors, "id", "-u"]
    with subprocess.Popen(list(map(str, words)), pass_fds=[read_block, write_info], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(read_block)
        os.close(write_info)
        assert process.stdout
        with os.fdopen(read_info) as info:
            child = pathlib.Path(f"/proc/{json.load(info)['child-pid']}")
        assert readable([process.stdout], 0.3) == []
        (child / "setgroups").write_text("deny")
        (child / "uid_map").write_text(f"4321 {os.getuid()} 1")
        (child / "gid_map").write_text(f"4321 {os.getgid()} 1")
        os.write(write_block, b"1")
        output, message = process.communicate(timeout=WITHIN)
        os.close(write_block)
    assert (process.returncode, output) == (0, b"4321\n"), message


def test_parent_outside_of_the_pid_namespace_is_followed(bwrap: str, marker: str, tmp_path: pathlib.Path) -> None:
    words = ["unshare", "--user", "--map-root-user", "--pid", "--mount-proc", "--fork"]
    command = [*words, bwrap, "--bind", "/", "/", "--die-with-parent", "sleep", marker]
    messages = tmp_path / "messages"
    with messages.open("w") as stderr, subprocess.Popen(command, stderr=stderr) as parent:
        assert eventually(lambda: alive(marker) != [])
        parent.kill()
    assert "the parent process cannot be watched (it is outside of this PID namespace)" in messages.read_text()
    assert eventually(lambda: alive(marker) == [])


@pytest.mark.parametrize("grace", ["0s", "200ms"])
def test_wall_limit_holds_without_an_engine(bwrap: str, grace: str, marker: str) -> None:
    outer = ["--ro-bind", "/", "/", "--proc", "/proc", "--unshare-user", "--unshare-pid"]
    limits = ["env", "SANDTIMER_WALL=300ms", f"SANDTIMER_GRACE={grace}", "SANDTIMER_OUTPUT=1000", "SANDTIMER_OPEN_FILES=77"]
    script = f"ulimit -n; trap '' TERM; sleep {marker} & while true; do wait; done"
    done = run(bwrap, *outer, "--", *limits, bwrap, "--bind", "/", "/", "--unshare-pid", "sh", "-c", script)
    assert (done.returncode, done.stdout) == (124, "77\n"), done.stderr
    assert "no engine can start (" in done.stderr
    assert "only the limits of a surrounding sandbox apply to output\n" in done.stderr
    assert "stopped by the wall-clock limit of 300ms" in done.stderr
    assert alive(marker) == []


def test_sandboxes_nest(bwrap: str) -> None:
    inner = [bwrap, "--bind", "/", "/", "--unshare-all", "--", "echo", "inside"]
    outer = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-user", "--unshare-pid"]
    done = run(bwrap, *outer, "--", *inner)
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr


def test_nothing_is_added_to_what_was_asked(bwrap: str) -> None:
    done = run(bwrap, *HOST, "grep", "-E", "^(Seccomp|NoNewPrivs):", "/proc/self/status")
    assert done.stdout.split() == ["NoNewPrivs:", "1", "Seccomp:", "0"]
    namespaces = ["pid", "net", "ipc", "uts", "cgroup"]
    done = run(bwrap, *HOST, "readlink", *[f"/proc/self/ns/{name}" for name in namespaces])
    assert done.stdout.split() == [os.readlink(f"/proc/self/ns/{name}") for name in namespaces]


def test_doctor_names_the_first_in_path(bwrap: str) -> None:
    found = run(BINARY, "doctor", "--bwrap", "--json", env={**os.environ, "PATH": os.path.dirname(bwrap)})
    report = json.loads(found.stdout)
    assert (found.returncode, report["first_is_sandtimer"]) == (0, True)
    none = run(BINARY, "doctor", "--bwrap", env={**os.environ, "PATH": "/nowhere"})
    assert none.returncode == 125
    assert "ln -s" in none.stdout and "sandbox-runtime" in none.stdout
