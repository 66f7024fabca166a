"""The command line on a terminal, compared with the command alone: keys, redirections, job control and loops of a shell."""

from __future__ import annotations

import os
import pathlib
import pty
import signal
import subprocess
import time
from typing import Callable

import pytest
from serving import BINARY
from waiting import readable

PATIENCE = 30.0
# The key would end cat(1), too.
DEAF_CAT = "(trap '' INT; cat)"
LOOP = "for number in 1 2 3; do {}; done; echo the loop is done"


def on_terminal(script: str, key: bytes, is_time: Callable[[str], bool]) -> tuple[str, int]:
    """What bash shows on a terminal of its own where a key is pressed as soon as that is due; its wait status."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-c", script])
    shown, pressed, until = "", False, time.monotonic() + PATIENCE
    while time.monotonic() < until:
        ready = readable([master], 1.0)
        try:
            part = os.read(master, 65536) if ready else b""
        except OSError:
            # The terminal has no process left.
            break
        shown += part.decode("utf-8", "replace")
        if not pressed and is_time(shown):
            os.write(master, key)
            pressed = True
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(master)
    assert pressed, shown
    return shown, status


def is_up(shown: str) -> bool:
    return "up" in shown


COMMANDS = {
    "without Sandtimer": "sh -c 'echo up; exec sleep 50'",
    "run": "{sandtimer} run --wall 50 -- sh -c 'echo up; exec sleep 50'",
    # No terminal of its own, as its output is not on one: the key reaches Sandtimer.
    "run, piped": "{sandtimer} run --wall 50 -- sh -c 'echo up; exec sleep 50' | cat",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_interrupt_ends_the_loop_of_a_shell(name: str) -> None:
    command = COMMANDS[name].format(sandtimer=BINARY)
    shown, status = on_terminal(LOOP.format(command), b"\x03", is_up)
    assert "the loop is done" not in shown, shown
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT, (status, shown)


@pytest.mark.parametrize("output", ["", " </dev/null | cat"])
def test_signal_of_a_process_ends_no_loop(output: str) -> None:
    """The control: no key has sent it."""
    command = f"{BINARY} run --wall 50 -- sh -c 'echo up; kill -INT $$; sleep 50'{output}"
    shown, status = on_terminal(LOOP.format(command), b"\n", is_up)
    assert "the loop is done" in shown and status == 0, (status, shown)


@pytest.mark.parametrize("output", ["", f" | {DEAF_CAT}"])
def test_interrupt_is_first_for_the_command(output: str) -> None:
    inside = "trap \"echo heard; exit 9\" INT; echo up; while :; do sleep 0.1; done"
    command = f"{BINARY} run --wall 50 -- sh -c '{inside}'{output}; echo $? ${{PIPESTATUS[0]}}"
    shown, _ = on_terminal(command, b"\x03", is_up)
    assert "heard" in shown, shown


def test_second_interrupt_ends_a_command_that_is_deaf() -> None:
    """Without a terminal of its own: on one it takes three in a second, as a prompt may want each of them."""
    inside = "trap \"\" INT; echo up; for n in 1 2 3 4 5 6 7 8 9; do sleep 0.5; echo alive; done; exec sleep 50"
    shown = typed_in_bash(f"{BINARY} run --wall 50 -- sh -c '{inside}' | {DEAF_CAT}", [("\nup", b"\x03"), ("alive", b"\x03"), ("interrupted", b""), ("$ ", b"exit\n")])
    assert "interrupted by Ctrl-C" in shown, shown


PROMPT = "PS1='$ '; bind 'set enable-bracketed-paste off'; "


def typed_in_bash(command: str, steps: list[tuple[str, bytes]]) -> str:
    """What an interactive bash shows that executes a command, where each text is typed once the one before it was shown."""
    pid, master = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    os.write(master, f"{PROMPT}\n{command}\n".encode())
    shown, until, left = "", time.monotonic() + PATIENCE, list(steps)
    seen = 0
    try:
        while True:
            while left and left[0][0] in shown[seen:]:
                mark, typed = left.pop(0)
                seen += shown[seen:].index(mark) + len(mark)
                os.write(master, typed)
            ready = readable([master], 1.0)
            assert time.monotonic() < until, (left, shown)
            shown += os.read(master, 65536).decode("utf-8", "replace") if ready else ""
    except OSError:
        # The shell has ended.
        assert not left, (left, shown)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(master)
    return shown.replace("\r\n", "\n")


ASKED = "sh -c 'echo u''p; read x; echo got $x'"


@pytest.mark.parametrize("output", ["", " | cat"])
@pytest.mark.parametrize("runner", ["", f"{BINARY} run --wall 50 -- "])
def test_run_is_stopped_and_continued_as_a_job_of_the_shell(runner: str, output: str) -> None:
    stopped = [("\nup", b"\x1a"), ("Stopped", b""), ("$ ", b"echo betw''een\n"), ("\nbetween", b""), ("$ ", b"fg\n")]
    steps = [*stopped, ("read x", b"hello\n"), ("got hello", b""), ("$ ", b"exit\n")]
    typed_in_bash(f"{runner}{ASKED}{output}", steps)


def test_stopped_run_continues_in_the_background() -> None:
    command = f"{BINARY} run --wall 50 -- sh -c 'echo u''p; sleep 0.5; echo do''ne'"
    shown = typed_in_bash(command, [("\nup", b"\x1a"), ("Stopped", b""), ("$ ", b"bg\n"), ("done", b"wait; echo co''de $?\n"), ("\ncode", b""), ("$ ", b"exit\n")])
    assert "code 0" in shown, shown


def test_limits_are_in_force_while_a_run_is_stopped() -> None:
    """The command is dead before it could be continued."""
    command = f"{BINARY} run --wall 2s -- sh -c 'echo u''p; exec sleep 51.25'"
    look = b"sleep 3; pgrep -f '^sleep 51.2[5]' || echo no''ne\n"
    steps = [("\nup", b"\x1a"), ("Stopped", b""), ("$ ", look), ("\nnone", b"fg\n"), ("wall limit", b""), ("$ ", b"exit\n")]
    shown = typed_in_bash(command, steps)
    assert "wall limit of 2 s" in shown, shown


def test_terminal_is_the_runs_again_after_the_background() -> None:
    """Then what is typed is shown once, by the run's own terminal."""
    command = f"{BINARY} run --wall 50 -- sh -c 'echo u''p; read x; echo got $x; read y; echo got $y'"
    stopped = [("\nup", b"\x1a"), ("Stopped", b""), ("$ ", b"bg\n"), ("$ ", b"fg\n")]
    steps = [*stopped, ("read y", b"first\n"), ("got first", b"second\n"), ("got second", b""), ("$ ", b"exit\n")]
    shown = typed_in_bash(command, steps)
    assert shown.count("second") == 2, shown


def test_shell_inside_stops_its_own_jobs() -> None:
    """The control: the key is the inner shell's where it has another job in the foreground."""
    inside = f"{BINARY} run --wall 50 -- bash --norc --noprofile -i"
    stopped = [("$ ", b"PS1='in> '\n"), ("in> ", b"sh -c 'echo sl''eeping; exec sleep 40'\n"), ("sleeping", b"\x1a"), ("Stopped", b""), ("in> ", b"exit; exit\n")]
    steps = [*stopped, ("exit\r\n", b""), ("exit\r\n", b""), ("$ ", b"exit\n")]
    typed_in_bash(inside, steps)


REDIRECTIONS = ["", "2>err", ">out", ">out 2>err", ">out 2>&1", "2>err | cat", "2>&1 | cat", ">>out 2>>out", "</dev/null", "</dev/null 2>err"]
SAID = "sh -c 'echo one; echo two >&2'"


@pytest.mark.parametrize("redirections", REDIRECTIONS)
def test_bytes_go_where_each_descriptor_points(redirections: str, tmp_path: pathlib.Path) -> None:
    results = []
    for name, runner in (("timeout", "timeout --foreground 50"), ("run", f"{BINARY} run --wall 50 --")):
        (tmp_path / name).mkdir()
        script = f"cd {tmp_path / name}; echo up; {runner} {SAID} {redirections}"
        shown, status = on_terminal(script, b"", is_up)
        files = {file.name: without_own_lines(file.read_text()) for file in (tmp_path / name).iterdir()}
        results.append((without_own_lines(shown.replace("\r\n", "\n")), files, status))
    assert results[0] == results[1]
    assert "one" in str(results[0]) and "two" in str(results[0])


# Where stdout is a pipe, what reads there may be a pager that uses the terminal itself.
TERMINALS = {"": "0 1 2", "2>err": "0 1", ">out": "0 2", "2>&1 >out": "0 2", ">out 2>err": "", "| cat": "", "</dev/null": ""}


@pytest.mark.parametrize("redirections", TERMINALS)
def test_only_what_is_a_terminal_becomes_one(redirections: str, tmp_path: pathlib.Path) -> None:
    inside = f"for n in 0 1 2; do test -t $n && echo $n >&3; done 3>{tmp_path}/found"
    on_terminal(f"cd {tmp_path}; echo up; {BINARY} run --wall 50 --workspace {tmp_path} -- sh -c '{inside}' {redirections}", b"", is_up)
    assert (tmp_path / "found").read_text().split() == TERMINALS[redirections].split()


def test_other_terminal_gets_what_is_redirected_there(tmp_path: pathlib.Path) -> None:
    master, other = pty.openpty()
    name = os.ttyname(other)
    inside = f"test -t 2 && echo one >{tmp_path}/found; echo two >&2"
    command = f"echo up; {BINARY} run --wall 50 --workspace {tmp_path} -- sh -c '{inside}' 2>{name}"
    shown, _ = on_terminal(command, b"", is_up)
    ready = readable([master], 5.0)
    there = os.read(master, 65536) if ready else b""
    os.close(master)
    os.close(other)
    assert b"two" in there and "two" not in shown, (there, shown)
    assert not (tmp_path / "found").exists(), "it is written to as a file is"


def without_own_lines(text: str) -> str:
    """Without what Sandtimer says of the directory, which is not the command's."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("sandtimer: "))


INPUTS = {
    "a file of the user": "done < lines",
    "a file that can be written": "done <> lines",
    "a pipe": "done < <(cat lines)",
}


@pytest.mark.parametrize("name", INPUTS)
def test_run_leaves_what_it_does_not_read(name: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "lines").write_text("a\nb\nc\n")
    for command, expected in (("true", "a b c "), ("head -c 2", "a c ")):
        said = []
        for runner in ("timeout 50", f"{BINARY} run --wall 50 --"):
            script = f"while read line; do echo -n \"$line \"; {runner} {command} >/dev/null 2>&1; {INPUTS[name]}"
            said.append(subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE).stdout)
        assert said[0] == said[1]
        # head(1) reads more than it shows, and gives back what of a file it did not show.
        assert said[0] == expected or name == "a pipe", said


def test_named_fifo_is_read_ahead_by_a_page_at_most(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    script = f"exec 3<>fifo; head -c 20000 /dev/zero >&3; {BINARY} run -- true <fifo; head -c 15904 <&3 | wc -c"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.strip() == "15904", done


@pytest.mark.parametrize("output", ["2>&1 | cat", ">both 2>&1; cat both", ">>both 2>>both; cat both"])
def test_stdout_and_stderr_of_one_file_keep_their_order(output: str, tmp_path: pathlib.Path) -> None:
    code = "import os\nfor n in range(300): os.write(1 + n % 2, b'%d ' % n)"
    script = f'{BINARY} python --wall 50 -c "{code}" {output}'
    shown = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE).stdout
    assert without_own_lines(shown).startswith("".join(f"{n} " for n in range(300))), shown
