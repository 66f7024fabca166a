"""Runs of a server: one that goes on, or has ended, and what can be done to it."""

from __future__ import annotations

import base64
import codecs
import dataclasses
import json
import math
import time
import urllib.parse
from typing import Any, AsyncGenerator, AsyncIterator, Iterator, Optional, Union

from . import _arguments, _results
from ._choices import Stream
from ._client_request import Seconds, _milliseconds, input_fields
from ._client_wire import AWAITING, BLOCKING, Io, Server, iterate, now
from ._outcome import Outcome
from ._vocabulary import named_parameters
from .errors import InvalidArgumentError, ResultTooLargeError, ServerNotFoundError

# How long one request waits for an end, in milliseconds: less than proxies do. And how much longer for its answer, in seconds.
WAIT_MS = 50_000
_LATE = 60.0
# How long telling the server of a cancel may hold it up, in seconds.
_CANCEL = 5.0


@dataclasses.dataclass(frozen=True)
class RunEvent:
    """What a run says of itself: `event` is "started", "stdout", "stderr", "warning", "lagged" or "ended".

    data: as the server sends it; id: the reader's place behind it, for `events(after=id)`.
    """

    event: str
    data: dict[str, Any]
    id: str


@dataclasses.dataclass(frozen=True)
class OutputChunk:
    """A piece of what a run wrote.

    stream: "stdout" or "stderr"; text: characters that are cut between two pieces come whole with the second, and what is
    no UTF-8 is replaced; data: the bytes; cursor: position of the first; dropped: bytes before it that the server no longer
    had, because they were past the run's output limit.
    """

    stream: str
    text: str
    data: bytes
    cursor: int
    dropped: int


class _Ended:
    """The end of a run as a server tells it, for `Outcome`."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.id = str(record["run_id"])
        self._record = record

    def outcome(self, settled: bool) -> str:
        return json.dumps(self._record)


def outcome_of(record: dict[str, Any]) -> Outcome:
    """What became of a run. No exception of the run's own is rebuilt: it is a `RemoteError`."""
    ending, said = str(record["ending"]), record["error"]
    if ending != "raised" or not isinstance(said, dict):
        outcome = Outcome(_Ended(record), ending, record["value"])
        if ending == "timeout" and isinstance(said, dict) and outcome.error is not None:
            # Where the code was when it was interrupted.
            outcome.error.__cause__ = _results.RemoteTraceback(str(said.get("traceback", "")))
        return outcome
    if (said.get("module"), said.get("type")) == ("sandtimer", "ResultTooLargeError"):
        return Outcome(_Ended(record), ending, error=ResultTooLargeError(str(said.get("message", ""))))
    return Outcome(_Ended(record), ending, error=_results.exception(said, "data", {}))


class _Chunks:
    """Makes pieces of output from events."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}
        self._dropped = {"stdout": 0, "stderr": 0}

    def of(self, event: RunEvent) -> Optional[OutputChunk]:
        said = event.data
        if event.event == "lagged":
            self._dropped[said["stream"]] += said["dropped"]
            # What comes next does not go on from what came before.
            self._decoders[said["stream"]].reset()
            return None
        if event.event not in self._decoders:
            return None
        data = said["data"].encode() if said["encoding"] == "utf-8" else base64.b64decode(said["data"])
        dropped, self._dropped[event.event] = self._dropped[event.event], 0
        return OutputChunk(event.event, self._decoders[event.event].decode(data), data, said["cursor"], dropped)

    def end(self) -> list[OutputChunk]:
        rest = [(stream, decoder.decode(b"", True)) for stream, decoder in self._decoders.items()]
        return [OutputChunk(stream, text, b"", 0, 0) for stream, text in rest if text]


@named_parameters
class ClientRun:
    """A run of a server's, by its `id`. Its limits are the server's to keep: whoever holds this may go away.

    Made by `Client.start`, `Client.attach` and `ClientContext.start`. As a context manager it ends the run.

    >>> import sandtimer
    >>> client = sandtimer.Client()
    >>> with client.start("read word; echo $word", stdin_open=True, timeout=20.0) as run:
    ...     written = run.write("hello", eof=True)
    ...     print([chunk.text for chunk in run.output()], run.wait().exit_code)
    ['hello\\n'] 0
    """

    def __init__(self, server: Server, id: str) -> None:
        self.id = id
        self._server = server
        self._path = f"/v1/runs/{urllib.parse.quote(_arguments.text('id', id), safe='')}"

    # Its end

    def wait(self) -> Outcome:
        """Waits for its end, however long that takes, also through a restart of the server. Ctrl-C ends the waiting, not the run."""
        return now(self._wait(BLOCKING))

    async def await_(self) -> Outcome:
        """As `wait`, awaited. Cancelling the task leaves the run."""
        return await self._wait(AWAITING)

    async def _wait(self, io: Io) -> Outcome:
        while True:
            path = f"{self._path}?wait_ms={WAIT_MS}"
            info = await self._server.ask_again(io, path, WAIT_MS / 1000 + _LATE)
            if info["outcome"] is not None:
                return outcome_of(info["outcome"])

    async def _wait_or_cancel(self, io: Io) -> Outcome:
        """Of a run in the foreground: whoever is interrupted while it waits cancels it."""
        try:
            return await self._wait(io)
        except Exception:
            raise
        except BaseException as interrupt:
            body = {"reason": f"its client was interrupted by {type(interrupt).__name__}"[:200], "wait_ms": 0}
            try:
                await self._server.ask(io, "POST", f"{self._path}/kill", body, patience=_CANCEL)
            except Exception:
                # The interrupt is what the caller has to hear of.
                pass
            raise

    # What it says

    def events(self, after: Optional[str] = None) -> Iterator[RunEvent]:
        """What happens to it, from the beginning or from behind the event with the id `after`, to its end.

        The connection may break: the reader goes on where it was. Raises `ServerUnreachableError` after eleven tries in a row.
        """
        return iterate(self._events(BLOCKING, after))

    def aevents(self, after: Optional[str] = None) -> AsyncIterator[RunEvent]:
        """As `events`, for `async for`."""
        return self._events(AWAITING, after)

    async def _events(self, io: Io, after: Optional[str]) -> AsyncGenerator[RunEvent, None]:
        events = self._server.events(io, f"{self._path}/events", after, "ended")
        try:
            async for event in events:
                yield RunEvent(event.event, json.loads(event.data), event.id)
        finally:
            await events.aclose()

    def output(self, stream: Optional[Stream] = None) -> Iterator[OutputChunk]:
        """What it writes, as it comes, to its end: both streams, or one. As `events`, through connections that break."""
        return iterate(self._output(BLOCKING, stream))

    def aoutput(self, stream: Optional[Stream] = None) -> AsyncIterator[OutputChunk]:
        """As `output`, for `async for`."""
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
        """What it has written so far, from a position: one piece, with `next_cursor`, where to go on."""
        return now(self._read_output(BLOCKING, cursor, stream, max_bytes))

    async def aread_output(self, cursor: int = 0, *, stream: Stream = "stdout", max_bytes: Optional[int] = None) -> dict[str, Any]:
        """As `read_output`, awaited."""
        return await self._read_output(AWAITING, cursor, stream, max_bytes)

    async def _read_output(self, io: Io, cursor: int, stream: str, max_bytes: Optional[int]) -> dict[str, Any]:
        asked = {"cursor": cursor, "stream": stream, **({} if max_bytes is None else {"max_bytes": max_bytes})}
        return await self._ask(io, "GET", f"/output?{urllib.parse.urlencode(asked)}")

    # Until it is ready

    def wait_for_line(
        self, pattern: str, *, stream: Stream = "stdout", cursor: int = 0, timeout: Seconds = None
    ) -> dict[str, Any]:
        """Waits until it has written a line that matches, or is over, or `timeout` seconds are. `matched` says which; then `line`
        is the first such line from the position `cursor` on, and `next_cursor` where to go on behind it. Else `ending` is
        None while the run goes on.

        pattern: a regular expression of Rust's `regex`, which knows no look-around and no back-references. A line without an
        end, such as a prompt, counts once it has not grown for 0.1 seconds.

        >>> import sandtimer
        >>> with sandtimer.Client().start("echo starting; echo ready on 80; sleep 20", timeout=20.0) as run:
        ...     run.wait_for_line(r"ready on \\d+", timeout=20.0)["line"]
        'ready on 80'
        """
        return now(self._wait_for_line(BLOCKING, pattern, stream, cursor, timeout))

    async def await_for_line(
        self, pattern: str, *, stream: Stream = "stdout", cursor: int = 0, timeout: Seconds = None
    ) -> dict[str, Any]:
        """As `wait_for_line`, awaited. Cancelling the task leaves the run."""
        return await self._wait_for_line(AWAITING, pattern, stream, cursor, timeout)

    async def _wait_for_line(self, io: Io, pattern: str, stream: str, cursor: int, timeout: Seconds) -> dict[str, Any]:
        asked = {"pattern": _arguments.text("pattern", pattern), "stream": stream, "cursor": cursor}
        return await self._wait_for(io, asked, "matched", timeout)

    def wait_for_port(self, port: int, *, timeout: Seconds = None) -> dict[str, Any]:
        """Waits until one of its processes listens on the TCP port, or it is over, or `timeout` seconds are: `listening` says which."""
        return now(self._wait_for(BLOCKING, {"port": port}, "listening", timeout))

    async def await_for_port(self, port: int, *, timeout: Seconds = None) -> dict[str, Any]:
        """As `wait_for_port`, awaited. Cancelling the task leaves the run."""
        return await self._wait_for(AWAITING, {"port": port}, "listening", timeout)

    async def _wait_for(self, io: Io, asked: dict[str, Any], what: str, timeout: Seconds) -> dict[str, Any]:
        left = _milliseconds("timeout", timeout) or math.inf
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
        """What is known of it now: `status`, `effective` limits with their sources, `outcome` once it has ended."""
        return now(self._ask(BLOCKING, "GET", ""))

    async def ainfo(self) -> dict[str, Any]:
        """As `info`, awaited."""
        return await self._ask(AWAITING, "GET", "")

    def kill(self, reason: Optional[str] = None) -> dict[str, Any]:
        """Ends it and all that it started, and gives what is known of it then. Of a run that is over it is no error."""
        return now(self._kill(BLOCKING, reason))

    async def akill(self, reason: Optional[str] = None) -> dict[str, Any]:
        """As `kill`, awaited."""
        return await self._kill(AWAITING, reason)

    async def _kill(self, io: Io, reason: Optional[str]) -> dict[str, Any]:
        return await self._ask(io, "POST", "/kill", {} if reason is None else {"reason": reason})

    def extend(self, seconds: float) -> dict[str, Any]:
        """Moves its timeout by so much; `wall_left_ms` of the answer is what is left."""
        return now(self._ask(BLOCKING, "POST", "/extend", {"by_ms": _milliseconds("seconds", seconds)}))

    async def aextend(self, seconds: float) -> dict[str, Any]:
        """As `extend`, awaited."""
        return await self._ask(AWAITING, "POST", "/extend", {"by_ms": _milliseconds("seconds", seconds)})

    def pause(self) -> None:
        """Stops its processes, and its clock."""
        now(self._ask(BLOCKING, "POST", "/pause", {}))

    async def apause(self) -> None:
        """As `pause`, awaited."""
        await self._ask(AWAITING, "POST", "/pause", {})

    def resume(self) -> None:
        """Has it go on after `pause`."""
        now(self._ask(BLOCKING, "POST", "/resume", {}))

    async def aresume(self) -> None:
        """As `resume`, awaited."""
        await self._ask(AWAITING, "POST", "/resume", {})

    def signal(self, signal: Union[str, int]) -> None:
        """Sends it a signal, such as "SIGUSR1" or `signal.SIGUSR1`."""
        now(self._ask(BLOCKING, "POST", "/signal", {"signal": signal}))

    async def asignal(self, signal: Union[str, int]) -> None:
        """As `signal`, awaited."""
        await self._ask(AWAITING, "POST", "/signal", {"signal": signal})

    def write(self, data: Union[str, bytes], eof: bool = False, wait: Seconds = 10.0) -> dict[str, Any]:
        """Writes to its stdin, which was started with `stdin_open=True`. `written` is how many bytes were taken within `wait`
        seconds; `closed` whether stdin is closed behind them.
        """
        return now(self._write(BLOCKING, data, eof, wait))

    async def awrite(self, data: Union[str, bytes], eof: bool = False, wait: Seconds = 10.0) -> dict[str, Any]:
        """As `write`, awaited."""
        return await self._write(AWAITING, data, eof, wait)

    async def _write(self, io: Io, data: Union[str, bytes], eof: bool, wait: Seconds) -> dict[str, Any]:
        body = {**input_fields("data", "encoding", data), "eof": eof, "wait_ms": _milliseconds("wait", wait)}
        return await self._ask(io, "POST", "/stdin", body)

    def delete(self) -> None:
        """Removes the record of a run that is over."""
        now(self._ask(BLOCKING, "DELETE", ""))

    async def adelete(self) -> None:
        """As `delete`, awaited."""
        await self._ask(AWAITING, "DELETE", "")

    async def _ask(self, io: Io, method: str, what: str, body: Any = None) -> dict[str, Any]:
        answer: dict[str, Any] = await self._server.ask(io, method, self._path + what, body)
        return answer

    async def _leave(self, io: Io) -> None:
        try:
            await self._kill(io, None)
        except ServerNotFoundError:
            # Its record was removed, so it is over.
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
