"""The client of a server, end to end: a real server, and connections to it that break."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from typing import Any, Callable, Iterator

import pytest
import sandtimer
from sandtimer.client import _io as _client_io, _messages as _client_messages, _run as _client_run, _wire as _client_wire
from serving import Proxy, Serving


@pytest.fixture
def client(server: str) -> sandtimer.Client:
    return sandtimer.Client(server)


def until(holds: Callable[[], Any], tries: int = 1000) -> None:
    pause = threading.Event()
    for _ in range(tries):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never held")


def mine(client: sandtimer.Client, word: str) -> dict[str, Any]:
    """The run whose command ends with this word."""
    return next((run for run in client.runs() if run["command"][-1] == word), {})


# Runs


def test_a_command_runs_to_its_end(client: sandtimer.Client) -> None:
    line = "echo out; echo $WORD >&2; cat; exit 3"
    outcome = client.run(line, environment={"WORD": "ünï"}, stdin="fed", memory="256MB", timeout=None)
    assert (outcome.ending, outcome.exit_code, outcome.ok, outcome.error) == ("exited", 3, False, None)
    assert (outcome.stdout, outcome.stderr, outcome.tree.survivors) == ("out\nfed", "ünï\n", 0)
    assert client.run(["printf", "%s|", "a b", "c"]).stdout == "a b|c|"
    assert client.run(code="print(input())", stdin=b"x").stdout == "x\n"
    assert client.run("od -An -tx1", stdin=b"\0\xff").stdout == " 00 ff\n"
    assert client.run(code="printf '\\377'", language="bash").stdout == "\ufffd"


def test_a_limit_that_fires_is_data(client: sandtimer.Client) -> None:
    outcome = client.run("echo begun; sleep 60 & sleep 60", timeout=0.3)
    assert (outcome.ending, outcome.stdout, outcome.tree.survivors) == ("timeout", "begun\n", 0)
    assert isinstance(outcome.error, sandtimer.DeadlineExceeded) and outcome.error.outcome is outcome
    assert outcome.verdict is not None and (outcome.verdict.limit_ms, outcome.verdict.source) == (300, "call")
    assert isinstance(client.run(code="x = bytearray(1 << 30)", memory="100MB").error, MemoryError)


@pytest.mark.parametrize(
    ("options", "kind", "named"),
    [
        ({"timeout": -1}, sandtimer.InvalidLimitError, "timeout=-1"),
        ({"timeout": float("nan")}, sandtimer.InvalidLimitError, "timeout=nan"),
        ({"cpu": True}, sandtimer.InvalidLimitError, "cpu=True"),
        ({"stall": "2s"}, sandtimer.InvalidLimitError, "stall='2s'"),
        ({"memory": 1.5}, sandtimer.InvalidLimitError, "memory=1.5"),
        ({"memory": "lots"}, sandtimer.ServerLimitRefusedError, "lots"),
        ({"processes": "3"}, sandtimer.InvalidLimitError, "processes='3'"),
        ({"stdin": 1}, TypeError, "stdin"),
        ({"environment": {"A=B": "x"}}, ValueError, "A=B"),
        ({"wall": 1}, TypeError, "wall=1"),
        ({"on_output_limit": "explode"}, sandtimer.ServerError, "explode"),
    ],
)
def test_what_cannot_be_is_refused_by_name(client: sandtimer.Client, options: Any, kind: type[Exception], named: str) -> None:
    with pytest.raises(kind, match=named):
        client.run(["true"], **options)


def test_refusals_say_what_and_what_would_work(client: sandtimer.Client) -> None:
    with pytest.raises(sandtimer.ServerError, match="no-such-program") as refused:
        client.run(["no-such-program"])
    error = refused.value
    assert (error.code, error.retryable, bool(error.hint)) == ("command_not_found", False, True)
    with pytest.raises(sandtimer.ServerNotFoundError, match="nobody") as missing:
        client.attach("nobody").info()
    assert missing.value.code == "run_not_found"
    with pytest.raises(TypeError, match="either"):
        client.run()


def test_code_and_commands_are_given_input_while_they_run(client: sandtimer.Client) -> None:
    with client.context(timeout=20.0) as ctx, client.session() as shell:
        cell = ctx.start("[input(), input()]", stdin="one\n", stdin_open=True)
        assert cell.write("two\n", eof=True)["closed"]
        assert cell.wait().value == ["one", "two"]
        command = shell.start("read word; echo got $word", stdin_open=True, timeout=20.0)
        command.write("three\n")
        assert command.wait().stdout == "got three\n"
        assert shell.run("cat; echo $word", timeout=20.0).stdout == "three\n"
        with pytest.raises(sandtimer.ServerError) as refused:
            command.write("late\n")
        assert refused.value.code == "run_ended"


def test_a_run_is_fed_signalled_paused_extended_and_killed(client: sandtimer.Client) -> None:
    script = "trap 'echo heard' USR1; echo up; read word; echo $word; while :; do sleep 0.02; done"
    with client.start(["bash", "-c", script], stdin_open=True, timeout=60.0) as run:
        output, said = run.output("stdout"), ""

        def hear(word: str) -> None:
            nonlocal said
            while word not in said:
                said += next(output).text

        hear("up\n")
        assert run.write(b"w\xc3") == {"run_id": run.id, "written": 2, "closed": False}
        assert run.write(b"\xb6rd\n", eof=True) == {"run_id": run.id, "written": 4, "closed": True}
        hear("wörd\n")
        run.signal("SIGUSR1")
        hear("heard\n")
        run.pause()
        with pytest.raises(sandtimer.ServerError) as refused:
            run.pause()
        assert refused.value.code == "wrong_state"
        run.resume()
        assert run.extend(3600)["wall_left_ms"] > 3_600_000
        killed = run.kill("seen enough")
        assert "seen enough" in killed["outcome"]["verdict"]["sentence"]
        assert list(output) == []
        assert run.read_output(cursor=3)["data"] == "wörd\nheard\n"
        assert isinstance(run.wait().error, sandtimer.Cancelled)
        run.delete()
        with pytest.raises(LookupError):
            run.info()


def test_leaving_its_scope_ends_a_run(client: sandtimer.Client) -> None:
    with client.start(["sleep", "60"]) as run:
        assert run.info()["status"] == "running"
    assert run.info()["outcome"]["ending"] == "cancelled"


def test_events_can_be_taken_up_behind_any_of_them(client: sandtimer.Client) -> None:
    run = client.start("for i in 1 2 3; do echo out$i; echo err$i >&2; sleep 0.05; done", timeout=60.0, warn=59.99)
    events = list(run.events())

    def text(of: list[sandtimer.RunEvent], name: str) -> str:
        return "".join(event.data["data"] for event in of if event.event == name)

    assert (events[0].event, events[-1].event, text(events, "stdout")) == ("started", "ended", "out1\nout2\nout3\n")
    assert [event.data["kind"] for event in events if event.event == "warning"] == ["wall"]
    for at, event in enumerate(events):
        joined = [*events[: at + 1], *run.events(after=event.id)]
        for name in ("stdout", "stderr"):
            assert text(joined, name) == text(events, name), event.id


def test_output_that_was_dropped_is_said_to_be_gone(client: sandtimer.Client) -> None:
    run = client.start("head -c 3000000 /dev/zero | tr '\\0' a; echo end", output=100_000)
    run.wait()
    chunks = list(run.output())
    assert (sum(len(chunk.data) for chunk in chunks), sum(chunk.dropped for chunk in chunks)) == (100_000, 2_900_004)


def test_characters_that_are_written_in_halves_come_whole(client: sandtimer.Client) -> None:
    code = r"import os, time; [(os.write(1, bytes([byte])), time.sleep(0.03)) for byte in b'\xe2\x82\xac\xff!\xe2']"
    chunks = list(client.start(code=code).output())
    assert "".join(chunk.text for chunk in chunks) == "€\ufffd!\ufffd"
    assert b"".join(chunk.data for chunk in chunks) == b"\xe2\x82\xac\xff!\xe2"


def test_large_output_comes_whole(client: sandtimer.Client) -> None:
    outcome = client.run("head -c 9000000 /dev/zero | tr '\\0' a; echo end", output="20MB")
    assert outcome.stdout == "a" * 9_000_000 + "end\n"


def test_the_server_is_told_of(client: sandtimer.Client) -> None:
    client.run(["true"])
    assert len(client.runs("ended", limit=1)) == 1
    assert client.host()["tier"].startswith("T")
    assert "listen" in client.config()["server"]
    assert client.health() == {"status": "ok"}


# Interrupts


def test_ctrl_c_cancels_a_run_in_the_foreground(client: sandtimer.Client, server: str) -> None:
    program = """
        import sys, sandtimer
        try:
            sandtimer.Client(sys.argv[1]).run(["sleep", sys.argv[2]])
        except KeyboardInterrupt:
            print("interrupted")
    """
    command = [sys.executable, "-c", textwrap.dedent(program), server, "981"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as asking:
        until(lambda: mine(client, "981").get("status") == "running")
        asking.send_signal(signal.SIGINT)
        assert asking.communicate(timeout=30)[0] == "interrupted\n"
    until(lambda: mine(client, "981").get("ending") == "cancelled")


def test_a_client_that_is_killed_behind_its_first_wait_leaves_no_run(client: sandtimer.Client, server: str) -> None:
    program = """
        import sys, sandtimer
        from sandtimer.client import _client, _run as _client_run
        _client.WAIT_MS = _client_run.WAIT_MS = 300
        sandtimer.Client(sys.argv[1]).run(["sleep", sys.argv[2]])
    """
    command = [sys.executable, "-c", textwrap.dedent(program), server, "982"]
    with subprocess.Popen(command, cwd="/") as asking:
        # Many waits long, and longer than the server bears with a client that does not ask.
        until(lambda: mine(client, "982").get("elapsed_ms", 0) > 12_000, tries=3000)
        assert mine(client, "982")["status"] == "running"
        asking.kill()
    until(lambda: mine(client, "982").get("ending") == "cancelled", tries=3000)
    assert "has not waited for it for 10 s" in mine(client, "982")["sentence"]


@pytest.mark.parametrize("wait_ms", [_client_run.WAIT_MS, 100])
def test_a_cancelled_task_cancels_its_run(client: sandtimer.Client, monkeypatch: pytest.MonkeyPatch, wait_ms: int) -> None:
    # In the first wait of its own, or in a later one.
    monkeypatch.setattr(_client_run, "WAIT_MS", wait_ms)
    monkeypatch.setattr("sandtimer.client._client.WAIT_MS", wait_ms)
    word = f"{wait_ms}.981"

    async def main() -> None:
        task = asyncio.create_task(client.arun(["sleep", word]))
        while mine(client, word).get("status") != "running":
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(main(), 30))
    until(lambda: mine(client, word).get("ending") == "cancelled")


def test_a_cancelled_wait_leaves_a_run_in_the_background(client: sandtimer.Client) -> None:
    async def main() -> None:
        async with await client.astart(["sleep", "60"]) as run:
            for waiting in (run.await_(), anext_of(run.aevents(after="1-0-0-0"))):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(waiting, 0.1)
            assert (await run.ainfo())["status"] == "running"

    async def anext_of(events: Any) -> Any:
        return await events.__anext__()

    asyncio.run(main())


def test_a_line_and_a_port_are_waited_for(client: sandtimer.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # One request waits for less than the line takes.
    monkeypatch.setattr(_client_run, "WAIT_MS", 20)
    script = "read _; echo starting; sleep 0.2; echo ready on 8080; echo gone >&2; read _; exit 3"
    with client.start(["bash", "-c", script], stdin_open=True, timeout=60.0) as run:
        late = run.wait_for_line("ready", timeout=0.1)
        assert (late["matched"], late["line"], late["status"], late["ending"]) == (False, None, "running", None)
        run.write("\n")
        found = run.wait_for_line(r"ready on \d+")
        assert (found["matched"], found["line"], found["cursor"], found["next_cursor"]) == (True, "ready on 8080", 9, 23)
        assert run.wait_for_line("g.ne", stream="stderr", timeout=20.0)["line"] == "gone"
        assert run.wait_for_line("ready", cursor=found["next_cursor"], timeout=0.05)["matched"] is False
        run.write("\n")
        over = run.wait_for_line("never")
        assert (over["matched"], over["status"], over["ending"], over["exit_code"]) == (False, "ended", "exited", 3)
        for wrong, named in (({"pattern": "("}, "pattern"), ({"pattern": "x", "stream": "both"}, "stream")):
            with pytest.raises(sandtimer.ServerError, match=named):
                run.wait_for_line(**wrong)
        assert run.wait_for_port(80)["listening"] is False
    listens = "import socket, time; listener = socket.create_server(('127.0.0.1', 80)); time.sleep(60)"
    with client.start(["python3", "-c", listens], timeout=60.0) as run:
        assert run.wait_for_port(80, timeout=30.0)["listening"] is True


def test_runs_contexts_and_sessions_can_have_the_network(client: sandtimer.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code = f"import socket\ntry: socket.create_connection(('127.0.0.1', {port})); print('reached')\nexcept OSError: print('alone')"
        shell = f'(exec 3<>/dev/tcp/127.0.0.1/{port}) 2> /dev/null && echo reached || echo alone'
        for network, expected in ((True, "reached\n"), (False, "alone\n")):
            with client.context(network=network) as context, client.session(network=network) as session:
                seen = [client.run(code=code, network=network), context.run(code), session.run(shell)]
            assert [outcome.stdout for outcome in seen] == [expected] * 3
    with pytest.raises(sandtimer.InvalidArgumentTypeError, match="network='yes'"):
        client.run("true", network="yes")  # type: ignore[arg-type]


# The same, awaited


def test_everything_can_be_awaited(client: sandtimer.Client) -> None:
    async def main() -> None:
        many = [client.arun(code=f"print({number})", timeout=30.0) for number in range(8)]
        assert [outcome.stdout for outcome in await asyncio.gather(*many)] == [f"{number}\n" for number in range(8)]
        async with await client.astart("read word; echo $word; sleep 60", stdin_open=True, timeout=60.0) as run:
            assert (await run.awrite("hello\n", eof=True))["closed"]
            async for chunk in run.aoutput():
                assert chunk.text == "hello\n"
                break
            assert (await run.aextend(60))["wall_left_ms"] > 60_000
            await run.apause()
            await run.aresume()
            await run.asignal("SIGTERM")
            assert (await run.await_()).signal == "SIGTERM"
            assert [event.event async for event in run.aevents()][-1] == "ended"
            assert (await run.aread_output())["data"] == "hello\n"
            assert (await run.akill())["status"] == "ended"
            await run.adelete()
        assert len(await client.aruns(limit=1)) == 1
        async with await client.asession() as shell:
            assert shell.id in [each["context_id"] for each in await client.asessions()]
            assert (await shell.arun("cd /tmp; pwd")).stdout == "/tmp\n"
        async with await client.acontext() as ctx:
            assert ctx.id in [each["context_id"] for each in await client.acontexts()]
            await ctx.arun("x = 1")
            assert (await ctx.ainfo())["executions"] == 1
            (branch,) = await ctx.abranch(timeout=20.0)
            async with branch:
                assert (await branch.arun("x += 1; x")).value == 2
            assert await ctx.aundo() and not await ctx.aundo()
            run = await ctx.astart("import time; print('on', flush=True); time.sleep(60)")
            async for chunk in run.aoutput():
                assert await ctx.ainterrupt()
                break
            assert isinstance((await run.await_()).error, sandtimer.RemoteError)
        for told in (client.ahost(), client.aconfig(), client.ahealth()):
            assert await told
        with pytest.raises(sandtimer.ServerNotFoundError):
            await ctx.arun("1")

    asyncio.run(asyncio.wait_for(main(), 60))


# Contexts and sessions


def test_a_context_keeps_what_runs_leave(client: sandtimer.Client) -> None:
    with client.context(environment={"WORD": "hello"}, directory="/tmp", timeout=30.0) as ctx:
        ctx.run("import os\nx = [1]")
        outcome = ctx.run("print(os.environ['WORD'], os.getcwd())\ndisplay(x)\n{'x': x}")
        assert (outcome.ok, outcome.state, outcome.stdout, outcome.value) == (True, "kept", "hello /tmp\n", {"x": [1]})
        assert [shown["application/json"] for shown in outcome.results] == [[1], {"x": [1]}]
        deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nx.append(2)\nwhile True: pass"
        stuck = ctx.run(deaf, timeout=0.3)
        assert (stuck.ending, stuck.state, ctx.run("x").value) == ("timeout", "rolled_back", [1])
        raised = ctx.run("{}['k']").error
        assert isinstance(raised, sandtimer.RemoteError) and raised.type_name == "KeyError"
        assert "{}['k']" in raised.remote_traceback
        ctx.run("x = 5")
        assert (ctx.undo(), ctx.undo(), ctx.run("x").value) == (True, False, [1])
        assert client.attach_context(ctx.id).run("x[0] + 41").value == 42
        assert not ctx.interrupt()
    assert ctx.id not in [each["context_id"] for each in client.contexts()]
    with pytest.raises(sandtimer.ServerNotFoundError):
        ctx.run("1")


def test_ctrl_c_ends_the_run_and_not_the_context(client: sandtimer.Client) -> None:
    with client.context() as ctx:
        ctx.run("x = 1")
        main = threading.get_ident()

        def interrupt() -> None:
            until(lambda: ctx.info()["status"] == "busy")
            signal.pthread_kill(main, signal.SIGINT)

        waiter = threading.Thread(target=interrupt)
        waiter.start()
        with pytest.raises(KeyboardInterrupt):
            ctx.run("x = 2\nwhile True: pass")
        waiter.join(30)
        assert ctx.run("x").value == 1


def test_a_session_keeps_its_shell(client: sandtimer.Client) -> None:
    with client.session(environment={"A": "1"}, idle=60) as shell:
        shell.run('cd /tmp; f() { echo "f $A"; }')
        assert shell.run("pwd; f; false").stdout == "/tmp\nf 1\n"
        assert shell.run("echo begun; sleep 60", timeout=0.3).stdout == "begun\n"
        assert sorted(chunk.text for chunk in shell.start("f; f >&2").output()) == ["f 1\n", "f 1\n"]
        assert shell.id in [each["context_id"] for each in client.sessions()]


def test_what_waits_long_for_its_turn_is_a_run_all_the_same(
    client: sandtimer.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.context() as ctx:
        busy = ctx.start("import time; time.sleep(60)")
        monkeypatch.setattr("sandtimer.client._context._TURN_MS", 50)
        waits, given = ctx.start("x = 1"), ctx.start("x = 2")
        monkeypatch.undo()
        given.kill()
        assert given.wait().ending == "cancelled"
        busy.kill()
        assert waits.wait().ending == "returned"
        assert ctx.run("x").value == 1


def test_what_happened_to_a_context_since_its_last_run_is_a_warning(
    client: sandtimer.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = _client_wire.Server.ask

    async def noted(*given: Any, **options: Any) -> Any:
        # When an interpreter is lost between two runs is not for a test to say.
        answer = await ask(*given, **options)
        return {**answer, "notes": ["the context started again: it was killed"]} if "notes" in (answer or ()) else answer

    async def awaited(ctx: sandtimer.ClientContext) -> sandtimer.Outcome:
        return await ctx.arun("6 * 7")

    with client.context() as ctx:
        monkeypatch.setattr(_client_wire.Server, "ask", noted)
        with pytest.warns(sandtimer.ContextLostError, match="started again") as warned:
            assert ctx.run("6 * 7").value == 42
            assert asyncio.run(awaited(ctx)).value == 42
        assert [warning.filename for warning in warned] == [__file__] * 2


# Connections


@pytest.fixture
def crashing(tmp_path: pathlib.Path) -> Iterator[Serving]:
    serving = Serving(tmp_path)
    yield serving
    serving.stop()


def lines(count: int) -> str:
    return "".join(f"{number} añ€😀\n" for number in range(1, count + 1))


@pytest.mark.parametrize("awaited", [False, True])
def test_a_stream_that_is_cut_again_and_again_loses_and_repeats_nothing(server: str, awaited: bool) -> None:
    had: dict[int, int] = {}
    cuts = []

    def treat(data: bytes, connection: int) -> tuple[bytes, bool]:
        before, most = had.get(connection, 0), 90_011 + 13 * connection
        had[connection] = before + len(data)
        if had[connection] < most:
            return data, False
        # In the middle of an event, and of a character as often as not.
        cuts.append(connection)
        return data[: most - before], True

    proxy = Proxy(server, treat)
    command = f"for n in $(seq 12); do for i in $(seq 3000); do echo \"$i añ€😀\"; done; done"
    run = sandtimer.Client(proxy.url).attach(sandtimer.Client(server).start(command).id)

    async def collect() -> list[sandtimer.OutputChunk]:
        return [chunk async for chunk in run.aoutput()]

    chunks = asyncio.run(collect()) if awaited else list(run.output())
    proxy.close()
    assert "".join(chunk.text for chunk in chunks) == lines(3000) * 12
    assert len(cuts) >= 5
    assert [chunk.cursor for chunk in chunks] == [sum(len(each.data) for each in chunks[:at]) for at in range(len(chunks))]


def test_whoever_waits_does_so_through_a_crash_of_the_server(crashing: Serving) -> None:
    proxy = Proxy(crashing.url, lambda data, _: (data, False))
    run = sandtimer.Client(proxy.url).start("echo before; sleep 600")
    events = run.events()
    assert [next(events).event, next(events).event] == ["started", "stdout"]
    outcomes: list[sandtimer.Outcome] = []
    waiting = threading.Thread(target=lambda: outcomes.append(run.wait()))
    waiting.start()
    crashing.crash()
    crashing.launch()
    proxy.target = crashing.url
    assert [event.event for event in events] == ["ended"]
    waiting.join(30)
    proxy.close()
    assert [outcome.ending for outcome in outcomes] == ["infra_error"]
    assert isinstance(outcomes[0].error, sandtimer.SandboxUnavailableError)


@pytest.mark.parametrize("awaited", [False, True])
def test_no_server_is_told_from_a_wrong_token(tmp_path: pathlib.Path, awaited: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = Serving(tmp_path, "me a-secret-token-of-mine\n")

    def run(client: sandtimer.Client) -> sandtimer.Outcome:
        return asyncio.run(client.arun(["true"])) if awaited else client.run(["true"])

    monkeypatch.setenv("SANDTIMER_SERVER", serving.url)
    monkeypatch.setenv("SANDTIMER_TOKEN", "a-secret-token-of-mine")
    assert run(sandtimer.Client()).ok
    for wrong in ("", "another"):
        with pytest.raises(sandtimer.ServerUnauthorizedError) as refused:
            run(sandtimer.Client(token=wrong))
        assert (refused.value.code, refused.value.retryable) == ("unauthorized", False)
    serving.stop()
    with pytest.raises(sandtimer.ServerUnreachableError, match="does not answer: .*[Cc]onnect") as gone:
        run(sandtimer.Client())
    assert (gone.value.code, gone.value.retryable) == ("unreachable", True)


def test_a_server_that_is_gone_is_given_up(crashing: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(_: Any, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(_client_io.Blocking, "sleep", sleep)
    crashing.crash()
    run = sandtimer.Client(crashing.url).attach("one")
    with pytest.raises(sandtimer.ServerUnreachableError):
        run.wait()
    assert len(pauses) == 10 and all(pause <= 5 for pause in pauses)


def test_what_is_no_server_is_said() -> None:
    for url in ("127.0.0.1:7880", "ftp://a", "http://"):
        with pytest.raises(ValueError, match="address"):
            sandtimer.Client(url)
    with pytest.raises(ValueError, match="token"):
        sandtimer.Client(token="a\r\nHost: b")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "bad_answer"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nno", "bad_answer"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", "unreachable"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{", "unreachable"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "bad_answer"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "bad_answer"),
        (b"", "unreachable"),
    ],
)
def test_answers_of_something_else_are_errors_of_ours(answer: bytes, kind: str, server: str) -> None:
    proxy = Proxy(server, lambda _, __: (answer, True))
    with pytest.raises(sandtimer.ServerError) as refused:
        sandtimer.Client(proxy.url).host()
    proxy.close()
    assert refused.value.code == kind


def test_an_event_may_be_cut_anywhere() -> None:
    text = ": hello\n\nid: 1\r\nevent: stdout\r\ndata: ä€😀\r\n\r\nid: 2\ndata: a\n\nevent: nothing\n\ndata: cut off\n".encode()
    expected = [("1", "stdout", "ä€😀"), ("2", "message", "a")]
    for at in range(len(text) + 1):
        events = _client_messages.Events()
        assert [tuple(event) for event in [*events.feed(text[:at]), *events.feed(text[at:])]] == expected, at


def test_a_client_outlives_a_fork(client: sandtimer.Client) -> None:
    child = os.fork()
    if child == 0:
        os._exit(client.run(["true"]).exit_code or 0)
    assert os.waitpid(child, 0)[1] == 0


def test_contexts_branch_and_say_why_not(server: str) -> None:
    client = sandtimer.Client(server)
    with client.context(timeout=20.0) as ctx, client.session() as shell:
        ctx.run("x = [1]")
        branches = ctx.branch(3, memory="1GB")
        assert [branch.run(f"x.append({number}); x").value for number, branch in enumerate(branches)] == [[1, 0], [1, 1], [1, 2]]
        assert ctx.run("x").value == [1]
        for branch in branches:
            branch.close()
        for refused, code in ((lambda: ctx.branch(0), "bad_field"), (lambda: shell.branch(), "no_branch")):
            with pytest.raises(sandtimer.ServerError) as raised:
                refused()
            assert raised.value.code == code
