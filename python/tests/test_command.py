"""Programs of the host in a sandbox: `Sandbox.command`."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any, Iterator

import pytest
import sandtimer


@pytest.fixture(scope="module")
def box() -> Iterator[sandtimer.Sandbox]:
    with sandtimer.Sandbox(timeout=20.0) as made:
        yield made


def test_it_gives_exit_code_and_output(box: sandtimer.Sandbox) -> None:
    outcome = box.command(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (outcome.ending, outcome.ok, outcome.exit_code) == ("exited", False, 3)
    assert (outcome.stdout, outcome.stderr) == ("out\n", "err\n")
    assert (outcome.path, outcome.value, outcome.error, outcome.verdict) == ("exec", None, None, None)
    assert outcome.tree.survivors == 0
    assert box.command(["true"]).ok


@pytest.mark.parametrize("stdin", ["two\nlines", b"two\nlines"])
def test_stdin_is_what_was_given(box: sandtimer.Sandbox, stdin: Any) -> None:
    assert box.command(["cat"], stdin=stdin).stdout == "two\nlines"


@pytest.mark.parametrize("stdin", [None, "", b""])
def test_stdin_is_empty_where_none_was_given(box: sandtimer.Sandbox, stdin: Any) -> None:
    outcome = box.command(["cat"], stdin=stdin)
    assert (outcome.ok, outcome.stdout) == (True, "")


def test_a_large_stdin_arrives_whole(box: sandtimer.Sandbox) -> None:
    assert box.command(["wc", "-c"], stdin=b"x" * (3 << 20)).stdout.split() == [str(3 << 20)]


def test_argument_that_the_kernel_does_not_take_is_refused(box: sandtimer.Sandbox) -> None:
    text = "#" * (128 << 10)
    for argv in (["python3", "-c", text], ["bash", "-c", text.encode()]):
        with pytest.raises(sandtimer.InvalidArgumentError, match=r"argv\[2\] has 131072 bytes.*at most 131071.*exec\(\).*stdin="):
            box.command(argv)
    assert box.command(["true", text[1:]]).ok
    assert box.command(["bash", "-s"], stdin=text + "\nexit 3").exit_code == 3
    every = box.command(["true", *[text[1:]] * 20])
    assert every.exit_code == 126 and "all arguments and variables together" in every.to_dict()["error"]["message"]


def test_elements_may_be_texts_bytes_and_paths(box: sandtimer.Sandbox) -> None:
    name = os.fsdecode(b"not utf-8: \xff")
    argv = ["printf", b"%s|%s|%s", pathlib.Path("a/b"), b"\xfe", name]
    # As base64 in the outcome, for it is no text.
    assert box.command(argv).stdout == "a/b|\ufffd|not utf-8: \ufffd"
    assert box.command(["sh", "-c", 'test "$1" = "$(printf "\\376")"', "sh", b"\xfe"]).exit_code == 0
    assert box.command(("echo", "", "ü")).stdout == " ü\n"


@pytest.mark.parametrize("argv", ["make test", b"make test"])
def test_one_text_is_refused_with_the_remedy(box: sandtimer.Sandbox, argv: Any) -> None:
    with pytest.raises(TypeError, match='use a list of arguments, or \\["sh", "-c", .*make test'):
        box.command(argv)


@pytest.mark.parametrize(
    ("argv", "error", "text"),
    [
        ([], ValueError, "empty"),
        (["echo", "a\0b"], ValueError, "NUL"),
        ([b"ec\0ho"], ValueError, "NUL"),
        (["echo", "\ud800"], ValueError, "UTF-8"),
        (["echo", 3], TypeError, "use strings, bytes and paths"),
        (["echo", None], TypeError, "use strings, bytes and paths"),
    ],
)
def test_what_is_no_argument_is_refused(
    box: sandtimer.Sandbox, argv: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        box.command(argv)


def test_a_command_that_is_not_there_is_an_outcome(box: sandtimer.Sandbox, tmp_path: pathlib.Path) -> None:
    outcome = box.command(["no-such-command", "x"])
    assert (outcome.ending, outcome.ok, outcome.exit_code, outcome.error) == ("exited", False, 127, None)
    assert "no-such-command" in outcome.stderr
    assert (outcome.path, outcome.tree.survivors) == ("exec", 0)
    assert outcome.to_dict()["exit_code"] == 127
    no_program = tmp_path / "text"
    no_program.write_text("echo hello\n")
    outcome = box.command([no_program])
    assert (outcome.ending, outcome.exit_code) == ("exited", 126)
    no_program.write_text("#!/no/such/interpreter\n")
    no_program.chmod(0o755)
    outcome = box.command([no_program])
    assert outcome.exit_code in (126, 127)


def test_a_crash_says_by_which_signal(box: sandtimer.Sandbox) -> None:
    outcome = box.command(["sh", "-c", "kill -SEGV $$"])
    assert (outcome.ending, outcome.signal, outcome.exit_code) == ("signaled", "SIGSEGV", None)
    assert isinstance(outcome.error, sandtimer.Crashed)


def test_its_limit_ends_all_it_started(box: sandtimer.Sandbox) -> None:
    script = "echo begun; setsid sleep 1000 & (trap '' TERM; sleep 1000) & while :; do :; done"
    outcome = box.limits(timeout=0.5).command(["sh", "-c", script])
    assert (outcome.ending, outcome.ok, outcome.stdout) == ("timeout", False, "begun\n")
    assert isinstance(outcome.error, sandtimer.DeadlineExceeded)
    assert outcome.verdict is not None and outcome.verdict.kind == "wall"
    assert outcome.tree.killed >= 3 and outcome.tree.survivors == 0


def test_output_past_its_limit_is_dropped(box: sandtimer.Sandbox) -> None:
    outcome = box.limits(output="64KB").command(["head", "-c", "1000000", "/dev/zero"])
    assert outcome.ok and outcome.stdout_truncated and len(outcome.stdout) <= 70_000


def test_it_sees_neither_the_host_nor_what_another_left(box: sandtimer.Sandbox) -> None:
    assert os.path.exists("/etc/shadow")
    outcome = box.command(["sh", "-c", "pwd; id -u; echo kept > kept; ls -A; test -e /etc/shadow || echo no shadow"])
    directory, uid, *seen = outcome.stdout.splitlines()
    assert (directory, seen) == ("/workspace", ["kept", "no shadow"])
    assert uid != "0"
    assert box.command(["ls", "-A"]).stdout == ""


def test_output_may_go_nowhere() -> None:
    with sandtimer.Sandbox(timeout=20.0, stdout="drop") as box:
        outcome = box.command(["sh", "-c", "echo out; echo err >&2; test -c /dev/stdout"])
        assert (outcome.exit_code, outcome.stdout, outcome.stderr) == (0, "", "")


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_it_is_the_same_however_calls_start(start: str) -> None:
    with sandtimer.Sandbox(timeout=20.0, start=start) as box:
        assert box.command(["echo", "same"]).stdout == "same\n"


def test_a_closed_sandbox_runs_none() -> None:
    box = sandtimer.Sandbox()
    box.close()
    with pytest.raises(sandtimer.SandboxUnavailableError, match="closed"):
        box.command(["true"])


def test_what_is_required_and_missing_is_said() -> None:
    with sandtimer.Sandbox(require="K3") as box:
        try:
            assert box.command(["true"]).isolation.kill == "K3"
        except sandtimer.IsolationRefusedError as refused:
            assert "K3" in str(refused)


def test_an_interrupt_ends_it() -> None:
    code = """
import signal, sandtimer

class Rang(Exception):
    pass

def ring(*_):
    raise Rang

signal.signal(signal.SIGALRM, ring)
with sandtimer.Sandbox() as box:
    box.command(["true"])
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        box.command(["sleep", "1000"])
    except Rang:
        print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted\n", done.stderr
