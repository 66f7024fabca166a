"""Runs of a server, active or ended, and the requests that concern them."""

from __future__ import annotations

import base64
import codecs
import dataclasses
import json
import math
import time
import urllib.parse
from typing import Any, AsyncGenerator, AsyncIterator, Iterator, Optional, Union

from .. import _arguments, _results
from .._choices import Stream
from .._outcome import Outcome
from .._vocabulary import named_parameters
from ..errors import InvalidArgumentError, ResultTooLargeError, ServerNotFoundError
from ._request import Seconds, milliseconds, input_fields
from ._wire import AWAITING, BLOCKING, Io, Server, iterate, now

# How long one request waits for an end, in milliseconds: less than proxies do. And how much longer for its answer, in seconds.
WAIT_MS = 50_000
_LATE = 60.0
# How long the request that cancels a run may take, in seconds.
_CANCEL = 5.0


@dataclasses.dataclass(frozen=True)
class RunEvent:
    """An event of a run.

    Attributes:
        event: "started", "stdout", "stderr", "warning", "lagged" or "ended".
        data: The data of the event, as the server sends it.
        id: The position of the reader after this event, for `events(after=id)`.

    Examples:
        >>> import sandtimer
        >>> run = sandtimer.Client().start(["true"], timeout=20.0)
        >>> [event.event for event in run.events()]
        ['started', 'ended']
    """

    event: str
    data: dict[str, Any]
    id: str


@dataclasses.dataclass(frozen=True)
class OutputChunk:
    r"""A part of the output of a run.

    Attributes:
        stream: "stdout" or "stderr".
        text: The text. Characters that are split between two chunks are in the second one, and
            bytes that are not UTF-8 are replaced.
        data: The bytes.
        cursor: The position of the first byte.
        dropped: How many bytes before it are lost, because they exceeded the output limit of the
            run.

    Examples:
        >>> import sandtimer
        >>> run = sandtimer.Client().start("echo one", timeout=20.0)
        >>> [(chunk.stream, chunk.data, chunk.cursor) for chunk in run.output()]
        [('stdout', b'one\n', 0)]
    """

    stream: str
    text: str
    data: bytes
    cursor: int
    dropped: int


class _Ended:
    """The end of a run as a server reports it, for `Outcome`."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.id = str(record["run_id"])
        self._record = record

    def outcome(self, settled: bool) -> str:
        return json.dumps(self._record)


def outcome_of(record: dict[str, Any]) -> Outcome:
    """What became of a run. No exception of the run's own is rebuilt: it is a `RemoteError`."""
    ending, details = str(record["ending"]), record["error"]
    if ending != "raised" or not isinstance(details, dict):
        outcome = Outcome(_Ended(record), ending, record["value"])
        if ending == "timeout" and isinstance(details, dict) and outcome.error is not None:
            # Where the code was when it was interrupted.
            outcome.error.__cause__ = _results.RemoteTraceback(str(details.get("traceback", "")))
        return outcome
    if (details.get("module"), details.get("type")) == ("sandtimer", "ResultTooLargeError"):
        return Outcome(_Ended(record), ending, error=ResultTooLargeError(str(details.get("message", ""))))
    return Outcome(_Ended(record), ending, error=_results.exception(details, "data", {}))


class _Chunks:
    """Makes pieces of output from events."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}
        self._dropped = {"stdout": 0, "stderr": 0}

    def of(self, event: RunEvent) -> Optional[OutputChunk]:
        content = event.data
        if event.event == "lagged":
            self._dropped[content["stream"]] += content["dropped"]
            # The next piece does not continue the one before.
            self._decoders[content["stream"]].reset()
            return None
        if event.event not in self._decoders:
            return None
        data = content["data"].encode() if content["encoding"] == "utf-8" else base64.b64decode(content["data"])
        dropped, self._dropped[event.event] = self._dropped[event.event], 0
        return OutputChunk(event.event, self._decoders[event.event].decode(data), data, content["cursor"], dropped)

    def end(self) -> list[OutputChunk]:
        rest = [(stream, decoder.decode(b"", True)) for stream, decoder in self._decoders.items()]
        return [OutputChunk(stream, text, b"", 0, 0) for stream, text in rest if text]


@named_parameters
class ClientRun:
    r"""A run of a server. The server enforces its limits, whether or not a client is connected.

    Made by `Client.start`, `Client.attach` and `ClientContext.start`. It is a context manager; at
    its end the run is killed.

    Attributes:
        id: The id of the run.

    Examples:
        >>> import sandtimer
        >>> client = sandtimer.Client()
        >>> with client.start("read word; echo $word", stdin_open=True, timeout=20.0) as run:
        ...     written = run.write("hello", eof=True)
        ...     print([chunk.text for chunk in run.output()], run.wait().exit_code)
        ['hello\n'] 0
    """

    def __init__(self, server: Server, id: str) -> None:
        self.id = id
        self._server = server
        self._path = f"/v1/runs/{urllib.parse.quote(_arguments.text('id', id), safe='')}"

    # Its end

    def wait(self) -> Outcome:
        """Waits for the end of the run, also through a restart of the server. Ctrl-C ends the wait,
        not the run.

        Examples:
            >>> import sandtimer
            >>> sandtimer.Client().start("exit 3", timeout=20.0).wait().exit_code
            3
        """
        return now(self._wait(BLOCKING))

    async def await_(self) -> Outcome:
        """Awaited form of `wait`. Cancelling the task does not end the run."""
        return await self._wait(AWAITING)

    async def _wait(self, io: Io) -> Outcome:
        while True:
            path = f"{self._path}?wait_ms={WAIT_MS}"
            info = await self._server.ask_again(io, path, WAIT_MS / 1000 + _LATE)
            if info["outcome"] is not None:
                return outcome_of(info["outcome"])

    async def _wait_or_cancel(self, io: Io) -> Outcome:
        """Waits for a run in the foreground; an interrupt of the wait cancels the run."""
        try:
            return await self._wait(io)
        except Exception:
            raise
        except BaseException as interrupt:
            body = {"reason": f"its client was interrupted by {type(interrupt).__name__}"[:200], "wait_ms": 0}
            try:
                await self._server.ask(io, "POST", f"{self._path}/kill", body, patience=_CANCEL)
            except Exception:
                # The caller needs the interrupt, not this error.
                pass
            raise

    # Events and output

    def events(self, after: Optional[str] = None) -> Iterator[RunEvent]:
        """Iterates over the events of the run, to its end.

        If the connection breaks, the reader connects again and continues at its position.

        Args:
            after: The id of an event, to begin after it; None for the first event.

        Raises:
            ServerUnreachableError: Eleven attempts in a row to connect failed.

        Examples:
            >>> import sandtimer
            >>> run = sandtimer.Client().start("echo hello", timeout=20.0)
            >>> [event.event for event in run.events()]
            ['started', 'stdout', 'ended']
        """
        return iterate(self._events(BLOCKING, after))

    def aevents(self, after: Optional[str] = None) -> AsyncIterator[RunEvent]:
        """Awaited form of `events`, for `async for`."""
        return self._events(AWAITING, after)

    async def _events(self, io: Io, after: Optional[str]) -> AsyncGenerator[RunEvent, None]:
        events = self._server.events(io, f"{self._path}/events", after, "ended")
        try:
            async for event in events:
                yield RunEvent(event.event, json.loads(event.data), event.id)
        finally:
            await events.aclose()

    def output(self, stream: Optional[Stream] = None) -> Iterator[OutputChunk]:
        r"""Iterates over the output of the run, to its end.

        If the connection breaks, the reader connects again and continues at its position.

        Args:
            stream: "stdout" or "stderr"; None for both.

        Raises:
            ServerUnreachableError: Eleven attempts in a row to connect failed.

        Examples:
            >>> import sandtimer
            >>> run = sandtimer.Client().start("echo one; echo two >&2", timeout=20.0)
            >>> [chunk.text for chunk in run.output("stderr")]
            ['two\n']
        """
        return iterate(self._output(BLOCKING, stream))

    def aoutput(self, stream: Optional[Stream] = None) -> AsyncIterator[OutputChunk]:
        """Awaited form of `output`, for `async for`."""
        return self._output(AWAITING, stream)

    async def _output(self, io: Io, stream: Optional[str]) -> AsyncGenerator[OutputChunk, None]:
        if stream not in (None, "stdout", "stderr"):
            raise InvalidArgumentError(f'stream={stream!r}: use "stdout", "stderr", or None for both')
        chunks, events = _Chunks(), self._events(io, None)
        try:
            async for event in events:
                chunk = chunks.of(event)
                if chunk is not None and stream in (None, chunk.stream):
                    yield chunk
        finally:
            await events.aclose()
        for chunk in chunks.end():
            if stream in (None, chunk.stream):
                yield chunk

    def read_output(self, cursor: int = 0, *, stream: Stream = "stdout", max_bytes: Optional[int] = None) -> dict[str, Any]:
        r"""Returns a part of the output so far.

        Args:
            cursor: The position to read from.
            stream: "stdout" or "stderr".
            max_bytes: How many bytes at most; None for the default of the server.

        Returns:
            A dictionary of `data`, `encoding`, and `next_cursor`, where the next part begins.

        Examples:
            >>> import sandtimer
            >>> run = sandtimer.Client().start("echo hello", timeout=20.0)
            >>> outcome = run.wait()
            >>> run.read_output(1)["data"]
            'ello\n'
        """
        return now(self._read_output(BLOCKING, cursor, stream, max_bytes))

    async def aread_output(self, cursor: int = 0, *, stream: Stream = "stdout", max_bytes: Optional[int] = None) -> dict[str, Any]:
        """Awaited form of `read_output`."""
        return await self._read_output(AWAITING, cursor, stream, max_bytes)

    async def _read_output(self, io: Io, cursor: int, stream: str, max_bytes: Optional[int]) -> dict[str, Any]:
        asked = {"cursor": cursor, "stream": stream, **({} if max_bytes is None else {"max_bytes": max_bytes})}
        return await self._ask(io, "GET", f"/output?{urllib.parse.urlencode(asked)}")

    # Until it is ready

    def wait_for_line(
        self, pattern: str, *, stream: Stream = "stdout", cursor: int = 0, timeout: Seconds = None
    ) -> dict[str, Any]:
        r"""Waits until the run has written a line that matches, has ended, or the timeout has passed.

        A line without an end, such as a prompt, counts when it has not grown for 0.1 seconds.

        Args:
            pattern: A regular expression of Rust's `regex`, which has no look-around and no
                back-references.
            stream: "stdout" or "stderr".
            cursor: The position to search from.
            timeout: Seconds; None and 0 for unlimited.

        Returns:
            A dictionary: `matched`; if it is true `line`, the first such line, and `next_cursor`,
            the position after it; else `ending`, None while the run is active.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().start("echo starting; echo ready on 80; sleep 20", timeout=20.0) as run:
            ...     run.wait_for_line(r"ready on \d+", timeout=20.0)["line"]
            'ready on 80'
        """
        return now(self._wait_for_line(BLOCKING, pattern, stream, cursor, timeout))

    async def await_for_line(
        self, pattern: str, *, stream: Stream = "stdout", cursor: int = 0, timeout: Seconds = None
    ) -> dict[str, Any]:
        """Awaited form of `wait_for_line`. Cancelling the task does not end the run."""
        return await self._wait_for_line(AWAITING, pattern, stream, cursor, timeout)

    async def _wait_for_line(self, io: Io, pattern: str, stream: str, cursor: int, timeout: Seconds) -> dict[str, Any]:
        asked = {"pattern": _arguments.text("pattern", pattern), "stream": stream, "cursor": cursor}
        return await self._wait_for(io, asked, "matched", timeout)

    def wait_for_port(self, port: int, *, timeout: Seconds = None) -> dict[str, Any]:
        """Waits until a process of the run listens on a TCP port, the run has ended, or the timeout
        has passed.

        Args:
            port: The port.
            timeout: Seconds; None and 0 for unlimited.

        Returns:
            A dictionary: `listening`, and `status` of the run.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().start("sleep 20", timeout=20.0) as run:
            ...     run.wait_for_port(8000, timeout=0.1)["listening"]
            False
        """
        return now(self._wait_for(BLOCKING, {"port": port}, "listening", timeout))

    async def await_for_port(self, port: int, *, timeout: Seconds = None) -> dict[str, Any]:
        """Awaited form of `wait_for_port`. Cancelling the task does not end the run."""
        return await self._wait_for(AWAITING, {"port": port}, "listening", timeout)

    async def _wait_for(self, io: Io, asked: dict[str, Any], what: str, timeout: Seconds) -> dict[str, Any]:
        left = milliseconds("timeout", timeout) or math.inf
        end = time.monotonic() + left / 1000
        while True:
            body = {**asked, "wait_ms": int(min(WAIT_MS, left))}
            answer: dict[str, Any] = await self._server.ask_again(io, f"{self._path}/wait", WAIT_MS / 1000 + _LATE, body)
            left = (end - time.monotonic()) * 1000
            if answer[what] or answer["status"] == "ended" or left <= 0:
                return answer
            # What was looked through is not looked through again.
            asked = {**asked, "cursor": answer["next_cursor"]} if "cursor" in asked else asked

    # What can be done to it

    def info(self) -> dict[str, Any]:
        """Returns the state of the run: `status`, `effective` limits with their sources, `outcome`
        once it has ended, and more.

        Examples:
            >>> import sandtimer
            >>> run = sandtimer.Client().start(["true"], timeout=20.0)
            >>> outcome = run.wait()
            >>> run.info()["status"]
            'ended'
        """
        return now(self._ask(BLOCKING, "GET", ""))

    async def ainfo(self) -> dict[str, Any]:
        """Awaited form of `info`."""
        return await self._ask(AWAITING, "GET", "")

    def kill(self, reason: Optional[str] = None) -> dict[str, Any]:
        """Ends the run and all processes that it started. If it has ended, the call has no effect.

        Args:
            reason: The reason, for the record of the run.

        Returns:
            The state of the run afterwards, as `info`.

        Examples:
            >>> import sandtimer
            >>> run = sandtimer.Client().start("sleep 20", timeout=20.0)
            >>> run.kill("no longer needed")["outcome"]["ending"]
            'cancelled'
        """
        return now(self._kill(BLOCKING, reason))

    async def akill(self, reason: Optional[str] = None) -> dict[str, Any]:
        """Awaited form of `kill`."""
        return await self._kill(AWAITING, reason)

    async def _kill(self, io: Io, reason: Optional[str]) -> dict[str, Any]:
        return await self._ask(io, "POST", "/kill", {} if reason is None else {"reason": reason})

    def extend(self, seconds: float) -> dict[str, Any]:
        """Extends the timeout of the run.

        Args:
            seconds: By how many seconds.

        Returns:
            A dictionary; `wall_left_ms` is the time that is left.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().start("sleep 20", timeout=20.0) as run:
            ...     run.extend(60)["wall_left_ms"] > 60_000
            True
        """
        return now(self._ask(BLOCKING, "POST", "/extend", {"by_ms": milliseconds("seconds", seconds)}))

    async def aextend(self, seconds: float) -> dict[str, Any]:
        """Awaited form of `extend`."""
        return await self._ask(AWAITING, "POST", "/extend", {"by_ms": milliseconds("seconds", seconds)})

    def pause(self) -> None:
        """Stops the processes of the run, and its clock.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().start("sleep 20", timeout=20.0) as run:
            ...     run.pause()
            ...     run.resume()
        """
        now(self._ask(BLOCKING, "POST", "/pause", {}))

    async def apause(self) -> None:
        """Awaited form of `pause`."""
        await self._ask(AWAITING, "POST", "/pause", {})

    def resume(self) -> None:
        """Continues a run after `pause`.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().start("sleep 20", timeout=20.0) as run:
            ...     run.pause()
            ...     run.resume()
        """
        now(self._ask(BLOCKING, "POST", "/resume", {}))

    async def aresume(self) -> None:
        """Awaited form of `resume`."""
        await self._ask(AWAITING, "POST", "/resume", {})

    def signal(self, signal: Union[str, int]) -> None:
        """Sends a signal to the run.

        Args:
            signal: A name such as "SIGUSR1", or a number.

        Examples:
            >>> import sandtimer
            >>> run = sandtimer.Client().start("trap 'exit 4' USR1; echo ready; while :; do sleep 0.1; done", timeout=20.0)
            >>> found = run.wait_for_line("ready")
            >>> run.signal("SIGUSR1")
            >>> run.wait().exit_code
            4
        """
        now(self._ask(BLOCKING, "POST", "/signal", {"signal": signal}))

    async def asignal(self, signal: Union[str, int]) -> None:
        """Awaited form of `signal`."""
        await self._ask(AWAITING, "POST", "/signal", {"signal": signal})

    def write(self, data: Union[str, bytes], eof: bool = False, wait: Seconds = 10.0) -> dict[str, Any]:
        """Writes to the stdin of the run, which was started with `stdin_open=True`.

        Args:
            data: Text, sent as UTF-8, or bytes.
            eof: Whether stdin is closed after the data.
            wait: Seconds until the run must have taken the data.

        Returns:
            A dictionary: `written`, how many bytes were taken, and `closed`.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Client().start("cat", stdin_open=True, timeout=20.0) as run:
            ...     run.write("hello", eof=True)["written"]
            5
        """
        return now(self._write(BLOCKING, data, eof, wait))

    async def awrite(self, data: Union[str, bytes], eof: bool = False, wait: Seconds = 10.0) -> dict[str, Any]:
        """Awaited form of `write`."""
        return await self._write(AWAITING, data, eof, wait)

    async def _write(self, io: Io, data: Union[str, bytes], eof: bool, wait: Seconds) -> dict[str, Any]:
        body = {**input_fields("data", "encoding", data), "eof": eof, "wait_ms": milliseconds("wait", wait)}
        return await self._ask(io, "POST", "/stdin", body)

    def delete(self) -> None:
        """Removes the record of a run that has ended.

        Raises:
            ServerError: The run is active, or unknown.

        Examples:
            >>> import sandtimer
            >>> run = sandtimer.Client().start(["true"], timeout=20.0)
            >>> outcome = run.wait()
            >>> run.delete()
        """
        now(self._ask(BLOCKING, "DELETE", ""))

    async def adelete(self) -> None:
        """Awaited form of `delete`."""
        await self._ask(AWAITING, "DELETE", "")

    async def _ask(self, io: Io, method: str, what: str, body: Any = None) -> dict[str, Any]:
        answer: dict[str, Any] = await self._server.ask(io, method, self._path + what, body)
        return answer

    async def _leave(self, io: Io) -> None:
        try:
            await self._kill(io, None)
        except ServerNotFoundError:
            # Its record was removed, so it has ended.
            pass

    def __enter__(self) -> ClientRun:
        return self

    def __exit__(self, *_: object) -> None:
        now(self._leave(BLOCKING))

    async def __aenter__(self) -> ClientRun:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave(AWAITING)

    def __repr__(self) -> str:
        return f"<ClientRun {self.id}>"
