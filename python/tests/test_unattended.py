"""Runs without a terminal and without a network, through each way in: nothing waits for a person, and what is missing is said."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import time
import traceback
from typing import Any, Iterator

import pytest
import sandtimer
from doors import CLI, EVERY, SHELL, Doors, Ended, named

# Those of docs/concepts/run-environment.md that every run without a terminal and a network has.
VARIABLES = {
    "TERM": "dumb",
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "npm_config_yes": "true",
    "PIP_RETRIES": "1",
    "UV_HTTP_RETRIES": "0",
    "CONDA_REMOTE_MAX_RETRIES": "0",
    "npm_config_fetch_retries": "0",
    "CARGO_NET_RETRY": "0",
}
SHOWS = f"import os\nfor name in {list(VARIABLES)!r}: print(name, os.environ.get(name))"
# Each of these opened an editor and waited for ever.
EDITS = """
cd "$(mktemp -d)" && git init -q && git config user.name a && git config user.email a@b
git commit -q --allow-empty -m first
for edits in "commit --allow-empty --amend" "rebase -i --root" "commit --allow-empty" "tag -a x"; do
  git $edits < /dev/null > out 2>&1 && echo "edited: $edits"
  grep -q "no terminal for an editor: give the message with -m" out || cat out
done
git log --format=%s && GIT_EDITOR=true git commit -q --allow-empty --amend && echo control
"""
PAGES = """
seq 1000 > /tmp/lines; less /tmp/lines | tail -n 1; more /tmp/lines | tail -n 1
python3 -c 'help(len)' 2> /dev/null | head -n 1
"""


@pytest.fixture(scope="module")
def doors(server: str) -> Iterator[Doors]:
    with sandtimer.Sandbox(timeout=60.0) as box:
        yield Doors(server, box)


def remarks(ended: Ended) -> dict[str, str]:
    whole = ended.whole
    of_run = whole.get("remarks") if isinstance(whole, dict) else whole.remarks
    return {remark["kind"]: remark["message"] for remark in of_run or []}


@named(*EVERY)
def test_variables_keep_programs_from_waiting(doors: Doors, door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The caller's own is not handed on.
    monkeypatch.setenv("TERM", "xterm-256color")
    seen = dict(line.split(" ", 1) for line in getattr(doors, door)(SHOWS).stdout.splitlines())
    assert seen == VARIABLES


@pytest.mark.parametrize("door", ["cli_python", "cli_run", "http_code", "http_command", "http_job", "mcp_bash"])
def test_variables_can_be_overridden(doors: Doors, door: str) -> None:
    chosen = {"TERM": "xterm", "PAGER": "less", "GIT_EDITOR": "true", "PIP_RETRIES": "5"}
    if door in CLI:
        more: dict[str, Any] = {"flags": tuple(word for name, value in chosen.items() for word in ("--env", f"{name}={value}"))}
    else:
        more = {"env": chosen}
    code = f"import os\nfor name in {list(chosen)!r}: print(name, os.environ[name])"
    ended = getattr(doors, door)(code, **more)
    assert ended.stdout == "".join(f"{name} {value}\n" for name, value in chosen.items()), ended.whole


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@named(*SHELL)
def test_editors_of_git_end_at_once(doors: Doors, door: str) -> None:
    ended = getattr(doors, door)(EDITS)
    assert ended.stdout == "first\ncontrol\n", ended.whole


@pytest.mark.skipif(shutil.which("vi") is None, reason="vi is not installed")
@named(*SHELL)
def test_editor_of_the_screen_ends_at_once(doors: Doors, door: str) -> None:
    ended = getattr(doors, door)("vi /tmp/file > /dev/null 2>&1; echo $?")
    assert ended.stdout == "1\n", ended.whole


@named(*SHELL)
def test_pagers_end_at_once(doors: Doors, door: str) -> None:
    ended = getattr(doors, door)(PAGES)
    assert ended.ending == "exited" and ended.stdout.endswith("Help on built-in function len in module builtins:\n"), ended.whole


@named(*(door for door in SHELL if door not in ("session_shell", "mcp_session_shell")))
def test_leftovers_that_are_killed_are_told(doors: Doors, door: str) -> None:
    said = remarks(getattr(doors, door)("nohup sleep 300 > /dev/null 2>&1 & echo started"))["killed_leftovers"]
    assert said.startswith("1 process that it had left behind was killed")
    assert '"detach": true' in said and "background: true" in said
    assert remarks(getattr(doors, door)("sleep 0.1 & wait; echo done")) == {}


def test_leftovers_of_a_session_live_on_and_are_not_told(doors: Doors) -> None:
    with sandtimer.Client(doors.server).session() as opened:
        started = opened.run("sleep 300 > /dev/null 2>&1 & echo started")
        assert (started.stdout, list(started.remarks)) == ("started\n", [])
        assert opened.run("kill -0 $! && echo alive").stdout == "alive\n"


def leave_process(count: int = 1) -> int:
    import subprocess

    for _ in range(count):
        subprocess.Popen(["sleep", "300"])
    return count


def leave_and_raise() -> None:
    leave_process()
    raise ValueError("left")


def leave_and_exit() -> None:
    leave_process()
    os._exit(3)


def leave_nothing() -> int:
    import subprocess
    import threading

    subprocess.run(["true"], check=True)
    # Its own threads end with it, and are no processes.
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return 1


STARTS = "import subprocess\nsubprocess.Popen(['sleep', '300'])\n"


def test_leftovers_of_calls_and_programs_are_told() -> None:
    with sandtimer.Sandbox(timeout=60.0) as box:
        outcomes = {
            "run": box.run(leave_process),
            "raised": box.run(leave_and_raise),
            "exited": box.run(leave_and_exit),
            "map": next(iter(box.map(leave_process, [1]))),
            "exec": box.exec(STARTS),
            "value": box.exec(STARTS + "1"),
            "judge": box.judge(STARTS + "print(1)", [("", "1")]).outcomes[0],
        }
        for name, outcome in outcomes.items():
            said = {each["kind"]: each["message"] for each in outcome.remarks}
            assert said.get("killed_leftovers", "").startswith("1 process that it had left behind was killed: a call ends"), name
            assert "Sandbox.context()" in said["killed_leftovers"] and "detach" not in said["killed_leftovers"], name
            assert str(outcome) == f"{outcome!r} {said['killed_leftovers']}", name
        assert box.run(leave_process, 3).remarks[0]["message"].startswith("3 processes that it had left behind were killed")
        command = box.command(["sh", "-c", "sleep 300 & exit 0"])
        assert command.remarks[0]["message"].startswith("1 process that it had left behind was killed") and "context" in str(command)
        for outcome in (box.run(leave_nothing), box.exec("1"), box.command(["true"])):
            assert list(outcome.remarks) == [] and str(outcome) == repr(outcome)


LOOKS = """
import urllib.request
try: urllib.request.urlopen('https://pypi.org', timeout=30)
except OSError as error: print(error); raise SystemExit(1)
"""


@named(*EVERY)
def test_missing_network_is_told_at_once(doors: Doors, door: str) -> None:
    begun = time.monotonic()
    ended = getattr(doors, door)(LOOKS)
    assert time.monotonic() - begun < 30
    said = remarks(ended)["no_network"]
    assert "no network" in said and '"network": true' in said and "--network" in said
    assert remarks(getattr(doors, door)("print(1)")) == {}


def look_for_network() -> None:
    import urllib.request

    urllib.request.urlopen("https://pypi.org", timeout=30)


def test_missing_network_is_told_of_exceptions(doors: Doors) -> None:
    text = "import urllib.request\nurllib.request.urlopen('https://pypi.org', timeout=30)"
    judgement = doors.box.judge(text, [("", "")])
    for outcome in (doors.box.run(look_for_network), doors.box.exec(text), judgement.outcomes[0]):
        assert outcome is not None and outcome.ending == "raised" and outcome.stdout == outcome.stderr == ""
        assert [each["kind"] for each in outcome.remarks] == ["no_network"] == [each["kind"] for each in outcome.to_dict()["remarks"]]
        assert "network=True in its sandbox" in outcome.remarks[0]["message"]
        assert pickle.loads(pickle.dumps(outcome)).remarks == outcome.remarks
    if sys.version_info >= (3, 11):
        with pytest.raises(sandtimer.RemoteError) as caught:
            doors.box.call(look_for_network)
        assert "network=True in its sandbox" in "".join(traceback.format_exception(caught.value))
    assert doors.box.run(divmod, 1, 0).remarks == []
    with sandtimer.Sandbox(timeout=20.0, network=True) as box:
        # With a network this says that the name is not known.
        assert box.exec("raise OSError('Name or service not known')").remarks == []


@named("command_shell", "cli_shell", "http_shell", "job_shell", "session_shell", "mcp_shell")
def test_installers_do_not_wait_for_a_network(doors: Doors, door: str) -> None:
    pip = "python3 -m pip download --no-cache-dir --no-deps -d /tmp/x sandtimer-no-such-package > /dev/null 2>&1; echo pip $?"
    npm = "cd $(mktemp -d) && echo '{}' > package.json && npm install left-pad > out 2>&1; echo npm $?"
    has_npm = shutil.which("npm") is not None
    begun = time.monotonic()
    ended = getattr(doors, door)(pip + (f"\n{npm}" if has_npm else ""))
    # 9 and 70 seconds of tries before.
    assert time.monotonic() - begun < 35
    assert ended.stdout == "pip 1\n" + ("npm 1\n" if has_npm else ""), ended.whole
