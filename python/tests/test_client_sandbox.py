"""Sandboxes by the client of a server: a real server, which is killed and started again."""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
import subprocess
import time
import urllib.request
from typing import Any, Union

import pytest
import sandtimer
from serving import BINARY, Serving


@pytest.fixture
def client(server: str) -> sandtimer.Client:
    return sandtimer.Client(server)


def test_sandbox_keeps_files_between_runs(client: sandtimer.Client) -> None:
    with client.sandbox() as box:
        assert box.run("echo one >/tmp/file; mkdir ~/d; cd ~/d && pwd", timeout=20.0).stdout == "/home/user/d\n"
        slow = box.run("echo partial >part; sleep 60", timeout=0.3)
        assert (slow.ending, slow.tree.survivors) == ("timeout", 0)
        assert box.run("cat /tmp/file part; ls ~", timeout=20.0).stdout == "one\npartial\nd\n"
        assert box.run(code="print(open('/tmp/file').read())", timeout=20.0).stdout == "one\n\n"
        run = box.start("sleep 60", timeout=60.0)
        # Runs that have ended are counted until what they held is released.
        end = time.monotonic() + 20.0
        while box.info()["runs"] != 1 and time.monotonic() < end:
            time.sleep(0.01)
        assert (box.info()["runs"], box.info()["durability"]) == (1, "certain")
        with client.sandbox() as other:
            assert other.run("ls -A /tmp /workspace ~", timeout=20.0).stdout == "/home/user:\n\n/tmp:\n\n/workspace:\n"
    assert run.wait().ending == "cancelled"
    with pytest.raises(sandtimer.ServerNotFoundError) as missing:
        box.run("true")
    assert missing.value.code == "sandbox_not_found"
    box.delete()
    with pytest.raises(sandtimer.ServerNotFoundError, match="use one of host"):
        client.sandbox("../etc")


def test_sandbox_is_awaited(client: sandtimer.Client) -> None:
    async def main() -> list[str]:
        async with await client.asandbox() as box:
            runs = [box.arun(f"echo {number} >>all; echo {number}", timeout=20.0) for number in range(3)]
            said = [outcome.stdout for outcome in await asyncio.gather(*runs)]
            return [*said, (await box.arun("sort all | tr -d '\\n'", timeout=20.0)).stdout]

    assert asyncio.run(main()) == ["0\n", "1\n", "2\n", "012"]


def test_ports_of_a_sandbox_are_reached_by_a_link(client: sandtimer.Client) -> None:
    async def awaited(box: sandtimer.ClientSandbox) -> tuple[list[dict[str, Any]], bool, str]:
        return await box.aports(), await box.await_for_port(8001, timeout=0.1), await box.aexpose(8000, lifetime=60.0)

    with client.sandbox() as box:
        assert (box.ports(), box.wait_for_port(8000, timeout=0.1)) == ([], False)
        assert box.run("echo served >file", timeout=20.0).ok
        box.start(["python3", "-m", "http.server", "--bind", "127.0.0.1", "8000"], timeout=60.0)
        assert box.wait_for_port(8000, timeout=20.0)
        host = box.expose(8000).removeprefix("http://").split("/")[0]
        assert host.startswith(f"8000-{box.id}.localhost:")
        ports, other, link = asyncio.run(awaited(box))
        assert (ports, other) == ([{"port": 8000, "addresses": ["127.0.0.1"]}], False)
        # Not every system resolves names below localhost.
        address = link.replace(host, f"127.0.0.1:{host.rsplit(':')[-1]}").replace("/?", "/file?")
        with urllib.request.urlopen(urllib.request.Request(address, headers={"Host": host})) as answer:
            assert answer.read() == b"served\n"
        for port in (0, 65536):
            with pytest.raises(sandtimer.ServerError, match=f"port: `{port}` is not a number from 1 to 65535"):
                box.expose(port)


def test_network_of_a_sandbox_is_its_allow_list(client: sandtimer.Client) -> None:
    with client.sandbox(network=["a.example"]) as box:
        assert box.info()["network"] == ["a.example"]
        outcome = box.run("curl -sS -m 20 http://b.example; echo $https_proxy", timeout=30.0)
        assert outcome.stdout.endswith("http://127.0.0.1:3128\n")
        [remark] = outcome.remarks
        assert remark["kind"] == "network_denied" and 'add "b.example" to the list' in remark["message"]
    with pytest.raises(sandtimer.ServerError, match="write the host alone"):
        client.sandbox(network=["https://a.example"])


def ended(of: Union[sandtimer.ClientSandbox, sandtimer.ClientContext], code: str = "sandbox_ended") -> sandtimer.ServerError:
    """What its id answers with, once it has ended."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            of.info()
        except sandtimer.ServerError as error:
            assert error.code == code, error
            return error
        time.sleep(0.05)
    raise AssertionError("it has not ended")


def test_limits_end_a_sandbox_and_its_id_says_why(client: sandtimer.Client) -> None:
    with client.sandbox(timeout=0.8) as box, client.sandbox(idle=0.6) as unused, client.sandbox() as control:
        shell = client.session(sandbox=box)
        outcome = box.run("sleep 60", timeout=60.0)
        assert (outcome.ending, outcome.tree.survivors) == ("timeout", 0)
        assert outcome.verdict is not None and f"sandbox-{box.id}" in outcome.verdict.scope
        for each, limit, text, limit_ms in [(box, "wall", "wall-clock limit", 800), (unused, "idle", "idle limit", 600)]:
            error = ended(each)
            assert (error.details["limit"], error.details["limit_ms"]) == (limit, limit_ms), error
            assert text in str(error) and each.id in str(error) and "create another" in error.hint, error
            assert each.id not in {listed["sandbox_id"] for listed in client.sandboxes()}
        assert "reached a limit" in str(ended(shell, "context_ended"))
        shell.close()
        assert (control.info()["wall_ms"], control.info()["idle_ms"]) == (None, None)
        assert control.run("true", timeout=20.0).ok
        with pytest.raises(sandtimer.ServerError) as extended:
            box.extend(60)
        assert extended.value.code == "sandbox_ended"
    for bad in (-1, float("nan"), "soon"):
        with pytest.raises(sandtimer.InvalidLimitError, match="idle="):
            client.sandbox(idle=bad)  # type: ignore[arg-type]
        with pytest.raises(sandtimer.InvalidLimitError, match="timeout="):
            client.sandbox(timeout=bad)  # type: ignore[arg-type]


def test_pause_stops_a_sandbox_and_its_clocks(client: sandtimer.Client) -> None:
    with client.sandbox(timeout=60.0, idle=60.0) as box, client.session(sandbox=box) as shell:
        assert shell.run("x=kept", timeout=20.0).ok
        run = box.start("while :; do echo x; sleep 0.01; done", timeout=2.0)
        assert run.wait_for_line("x", timeout=20.0)["matched"]
        box.pause()
        before = box.info()
        printed = run.read_output()["next_cursor"]
        # Longer than the limit of the run.
        time.sleep(2.2)
        after = box.info()
        assert (after["paused"], after["wall_left_ms"]) == (True, before["wall_left_ms"])
        assert (run.info()["status"], run.read_output()["next_cursor"]) == ("running", printed)
        for use in (lambda: box.run("true"), lambda: shell.run("true"), lambda: box.files.write("a", "b"), box.pause):
            with pytest.raises(sandtimer.ServerError) as refused:
                use()
            assert refused.value.code == "sandbox_paused"
        assert box.files.stat("/workspace")["type"] == "directory"
        box.resume()
        with pytest.raises(sandtimer.ServerError) as again:
            box.resume()
        assert again.value.code == "wrong_state"
        outcome = run.wait()
        assert outcome.ending == "timeout" and outcome.verdict is not None
        assert shell.run("echo $x", timeout=20.0).stdout == "kept\n"
        assert box.extend(30)["wall_ms"] == 90_000
        for bad in (0, None):
            with pytest.raises(sandtimer.ServerError, match="by_ms"):
                box.extend(bad)  # type: ignore[arg-type]
        with pytest.raises(sandtimer.InvalidLimitError, match="seconds=-1"):
            box.extend(-1)


def test_life_of_a_sandbox_is_awaited(client: sandtimer.Client) -> None:
    async def main() -> list[Any]:
        async with await client.asandbox(timeout=60.0, idle=30.0) as box:
            await box.apause()
            paused = (await box.ainfo())["paused"]
            await box.aresume()
            state = await box.aextend(5)
            return [paused, state["paused"], state["wall_ms"], state["idle_ms"], (await box.arun("echo x", timeout=20.0)).stdout]

    assert asyncio.run(main()) == [True, False, 65_000, 30_000, "x\n"]


def test_sandbox_survives_a_killed_server(tmp_path: pathlib.Path) -> None:
    """Its files do, over three kills while it writes; its processes do not."""
    writer = "i=0; while :; do i=$((i + 1)); echo $i >>lines; [ $i != 50 ] || echo far enough; done"
    serving = Serving(tmp_path)
    box_id = sandtimer.Client(serving.url).sandbox().id
    for kills in range(3):
        box = sandtimer.Client(serving.url).attach_sandbox(box_id)
        assert (box.info()["runs"], box.run("cat counts 2>/dev/null | wc -l", timeout=20.0).stdout) == (0, f"{max(0, kills - 1)}\n")
        assert box.run("[ ! -e lines ] || wc -l <lines >>counts; rm -f lines; touch counts", timeout=20.0).ok
        run = box.start(writer, timeout=60.0)
        assert run.wait_for_line("far enough", timeout=20.0)["matched"]
        serving.crash()
        serving.launch()
    box = sandtimer.Client(serving.url).attach_sandbox(box_id)
    counts = box.run("cat counts; wc -l <lines", timeout=20.0).stdout.split()
    assert len(counts) == 3 and all(int(count) >= 50 for count in counts), counts
    box.delete()
    serving.stop()


def test_killed_server_keeps_limits_and_pauses(tmp_path: pathlib.Path) -> None:
    serving = Serving(tmp_path)
    client = sandtimer.Client(serving.url)
    paused, short = client.sandbox(timeout=3600.0, idle=7200.0), client.sandbox(timeout=1.5)
    run = paused.start("echo begun; sleep 60", timeout=60.0)
    assert run.wait_for_line("begun", timeout=20.0)["matched"]
    paused.pause()
    before = paused.info()
    serving.crash()
    # Longer than the limit of the short one.
    time.sleep(1.6)
    serving.launch()
    client = sandtimer.Client(serving.url)
    paused, short = client.attach_sandbox(paused.id), client.attach_sandbox(short.id)
    after = paused.info()
    assert (after["paused"], after["runs"], after["wall_ms"], after["idle_ms"]) == (True, 0, 3_600_000, 7_200_000)
    assert abs(after["wall_left_ms"] - before["wall_left_ms"]) < 100, "its clock stood still"
    with pytest.raises(sandtimer.ServerError, match="is paused"):
        paused.run("true")
    paused.resume()
    assert paused.run("echo there", timeout=20.0).stdout == "there\n"
    assert ended(short).details["limit"] == "wall"
    serving.stop()


def sandbox_command(server: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [BINARY, "sandbox", words[0], "--server", server, *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_command_line_makes_uses_and_deletes_sandboxes(server: str) -> None:
    box_id = sandbox_command(server, "create").stdout.strip()
    written = sandbox_command(server, "exec", box_id, "--", "sh", "-c", "echo kept | tee file; echo said >&2; exit 3")
    assert (written.returncode, written.stdout, written.stderr) == (3, "kept\n", "said\n")
    slow = sandbox_command(server, "exec", "--wall", "300ms", "--cwd", "/tmp", box_id, "--", "sh", "-c", "pwd; sleep 60")
    assert (slow.returncode, slow.stdout) == (124, "/tmp\n") and "300 ms" in slow.stderr, slow
    absent = sandbox_command(server, "exec", box_id, "absent")
    assert absent.returncode == 127 and "absent" in absent.stderr, absent
    nowhere = sandbox_command(server, "exec", "--cwd", "/nowhere", box_id, "pwd")
    assert nowhere.returncode == 125 and "/nowhere" in nowhere.stderr, nowhere
    outcome = json.loads(sandbox_command(server, "exec", "--json", box_id, "cat", "file").stdout)
    assert (outcome["stdout"], outcome["tree"]["survivors"]) == ("kept\n", 0)
    listed = sandbox_command(server, "list").stdout.splitlines()
    assert any(line.split()[:4] == [box_id, "host", "0", "certain"] for line in listed), listed
    deleted = sandbox_command(server, "delete", box_id)
    assert (deleted.returncode, deleted.stdout) == (0, "deleted\n")
    again = sandbox_command(server, "delete", box_id)
    assert again.returncode == 125 and "sandbox_not_found" in again.stderr, again
    odd = sandbox_command(server, "delete", "../runs")
    assert odd.returncode == 125 and "sandtimer sandbox list" in odd.stderr, odd
    unknown = sandbox_command(server, "create", "--template", "nothing")
    assert unknown.returncode == 125 and "use one of host" in unknown.stderr, unknown


def test_command_line_pauses_resumes_and_extends(server: str, client: sandtimer.Client) -> None:
    def line(*words: str) -> list[Any]:
        done = sandbox_command(server, *words)
        return [done.returncode, done.stdout]

    box_id = sandbox_command(server, "create", "--wall", "1h", "--idle", "10m", "--allow", "a.example").stdout.strip()
    box = client.attach_sandbox(box_id)
    info = box.info()
    assert (info["wall_ms"], info["idle_ms"], info["network"]) == (3_600_000, 600_000, ["a.example"])
    assert line("pause", box_id) == [0, "paused\n"]
    assert box.info()["paused"] is True
    refused = sandbox_command(server, "exec", box_id, "true")
    assert refused.returncode == 125 and "sandbox_paused" in refused.stderr, refused
    again = sandbox_command(server, "pause", box_id)
    assert again.returncode == 125 and "resume it first" in again.stderr, again
    assert line("resume", box_id) == [0, "resumed\n"]
    assert sandbox_command(server, "resume", box_id).returncode == 125
    code, text = line("extend", box_id, "30m")
    # An hour and 30 minutes, less what has passed.
    assert code == 0 and re.fullmatch(r"5[0-3][0-9]{2}s left\n", text), text
    shown = json.loads(sandbox_command(server, "extend", "--json", box_id, "60").stdout)
    assert (shown["sandbox_id"], shown["wall_ms"]) == (box_id, 3_600_000 + 31 * 60_000)
    for words in [("create", "--wall", "soon"), ("create", "--idle=-5s"), ("extend", box_id, "0"), ("extend", box_id, "-1s")]:
        odd = sandbox_command(server, *words)
        assert odd.returncode == 125 and odd.stderr, odd
    box.delete()
    endless = sandbox_command(server, "create").stdout.strip()
    assert line("extend", endless, "30m") == [0, "the sandbox has no wall-clock limit\n"]
    client.attach_sandbox(endless).delete()
    short = client.sandbox(timeout=0.3)
    error = ended(short)
    for words in [("exec", short.id, "true"), ("extend", short.id, "1h"), ("pause", short.id)]:
        gone = sandbox_command(server, *words)
        assert gone.returncode == 125 and "reached its wall-clock limit of 300ms" in gone.stderr, (gone, error)
    assert line("delete", short.id) == [0, "deleted\n"]


def test_operator_names_templates(tmp_path: pathlib.Path) -> None:
    def refusal(*templates: str) -> str:
        words = [word for template in templates for word in ("--template", template)]
        command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "state"), *words]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 125, ended
        return ended.stderr

    assert "is not NAME=DIR" in refusal("debian")
    assert "every server has" in refusal(f"host={tmp_path}")
    assert "no usable name" in refusal(f"../up={tmp_path}")
    assert "absolute path" in refusal("debian=srv")
    assert "absolute path" in refusal(f"debian={tmp_path}/absent")
    assert "given twice" in refusal(f"a={tmp_path}", f"a={tmp_path}")


def test_files_are_used_from_outside(client: sandtimer.Client) -> None:
    with client.sandbox() as box:
        entry = box.files.write("/home/user/in/numbers", "1\n2\n", parents=True, mode="0640")
        assert entry["path"] == "/home/user/in/numbers"
        assert box.run("stat -c '%U %a' ~/in/numbers; wc -l <~/in/numbers >/tmp/lines", timeout=20.0).stdout == "user 640\n"
        assert (box.files.read("/tmp/lines"), box.files.stat("/tmp/lines")["size"]) == (b"2\n", 2)
        assert [entry["path"] for entry in box.files.list("/home/user", recursive=True)] == ["/home/user/in", "/home/user/in/numbers"]
        with pytest.raises(sandtimer.ServerError) as refused:
            box.files.read("/proc/self/environ")
        assert refused.value.code == "path_outside"


def test_contexts_are_in_a_sandbox(client: sandtimer.Client) -> None:
    with client.sandbox() as box, client.session(sandbox=box) as shell, client.context(sandbox=box.id, timeout=20.0) as ctx:
        assert shell.run("cd ~; echo 42 >number; x=1", timeout=20.0).ok
        assert ctx.run("x = int(open('/home/user/number').read()); x").value == 42
        stubborn = "x = 0\nimport signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
        assert ctx.run(stubborn, timeout=0.4).state == "rolled_back"
        assert (ctx.run("x + 1").value, ctx.info()["sandbox"]) == (43, box.id)


def test_command_line_copies_files_and_directories(server: str, client: sandtimer.Client, tmp_path: pathlib.Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "file").write_bytes(bytes(range(256)) * 1000)
    (tree / "tool").write_text("#!/bin/sh\necho ran\n")
    (tree / "tool").chmod(0o755)
    (tree / "link").symlink_to("tool")
    with client.sandbox() as box:
        for source, target in [(tree / "tool", f"{box.id}:/home/user/"), (tree, f"{box.id}:tree")]:
            copied = sandbox_command(server, "copy", str(source), target)
            assert (copied.returncode, copied.stderr) == (0, ""), copied
        assert box.run("~/tool; tree/link; stat -c %s tree/deep/file", timeout=20.0).stdout == "ran\nran\n256000\n"
        assert box.run("echo out >tree/out; ln -s /etc/shadow tree/evil", timeout=20.0).ok
        back = tmp_path / "back"
        copied = sandbox_command(server, "copy", f"{box.id}:tree", str(back))
        assert copied.returncode == 0, copied
        assert (back / "deep" / "file").read_bytes() == (tree / "deep" / "file").read_bytes()
        assert ((back / "out").read_text(), (back / "link").readlink(), (back / "evil").is_symlink()) == ("out\n", pathlib.Path("tool"), True)
        copied = sandbox_command(server, "copy", f"{box.id}:/home/user/tool", str(tmp_path))
        assert copied.returncode == 0 and (tmp_path / "tool").stat().st_mode & 0o777 == 0o755, copied
        # A link that leads out of the sandbox leads to nothing there.
        evil = sandbox_command(server, "copy", f"{box.id}:tree/evil", str(tmp_path / "evil"))
        assert evil.returncode == 125 and not (tmp_path / "evil").exists(), evil
        for words in [("a", "b"), (f"{box.id}:a", f"{box.id}:b"), (str(tmp_path / "absent"), f"{box.id}:x"), (f"{box.id}:absent", "x")]:
            assert sandbox_command(server, "copy", *words).returncode == 125, words


def test_limits_of_the_whole_bound_its_runs(client: sandtimer.Client) -> None:
    with client.sandbox(memory="64MB", processes=12) as box:
        info = box.info()
        assert (info["memory_bytes"], info["processes"], info["processes_used"]) == (64 << 20, 12, 0)
        held = box.run(["python3", "-c", "held = b'x' * (80 << 20)"], memory="1GB", timeout=20.0)
        assert held.verdict is not None
        assert (held.ending, held.verdict.layer, held.verdict.limit) == ("out_of_memory", "sandbox", 64 << 20)
        line = "i=0; while [ $i -lt 20 ]; do sleep 20 & i=$((i + 1)); done"
        forks = box.run(["sh", "-c", line], processes=100, timeout=20.0)
        assert forks.verdict is not None
        assert (forks.ending, forks.verdict.layer, forks.verdict.limit) == ("process_limit", "sandbox", 12)
    for unlimited in (None, 0):
        with client.sandbox(memory=unlimited, processes=unlimited) as free:
            assert (free.info()["memory_bytes"], free.info()["processes"]) == (None, None)


@pytest.mark.parametrize("options", [{"memory": -1}, {"memory": "plenty"}, {"memory": True}, {"processes": -1}, {"processes": "12"}])
def test_bad_limits_of_the_whole_are_rejected(client: sandtimer.Client, options: dict[str, Any]) -> None:
    with pytest.raises((sandtimer.InvalidLimitError, sandtimer.ServerError), match=next(iter(options))):
        client.sandbox(**options)
