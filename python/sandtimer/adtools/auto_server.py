"""Serves an evaluator over HTTP, and submits programs to it.

    python -m sandtimer.adtools.auto_server -d FILE [--host HOST] [--port PORT] [-t SECONDS] [--max-workers N]

POST {"code": …, "timeout": …} answers with ExecutionResults as JSON. A timeout that is not given is that of the command
line, else the evaluator's own: `timeout_seconds`, `timeout`, `_timeout_seconds` or `_timeout` of its class or object. There
is no authentication, so unlike py-adtools it listens on this machine alone by default.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional, Sequence, Union

from .. import _values
from ..errors import InvalidArgumentError
from .evaluator import PyEvaluator
from .sandbox import ExecutionResults

__all__ = ["Server", "submit_code", "submit_code_async"]

_FIELDS = ("timeout_seconds", "timeout", "_timeout_seconds", "_timeout")
_MAX_BYTES = 64 << 20
# Characters of a result that is not JSON.
_MAX_CHARACTERS = 1 << 20


def submit_code(
    host: str,
    port: Union[int, str],
    code: str,
    timeout: Optional[float] = None,
    *,
    post_timeout_seconds: float = 1800,
) -> dict[str, Any]:
    """Sends a program to a server, which evaluates it.

    Args:
        host: The host of the server.
        port: Its port.
        code: The source of the program.
        timeout: Seconds for the evaluation; None for the timeout of the server.
        post_timeout_seconds: Seconds to wait for the answer.

    Returns:
        `ExecutionResults` as a dictionary.

    Examples:
        >>> import threading
        >>> from sandtimer.adtools import PyEvaluator, auto_server
        >>> class Count(PyEvaluator):
        ...     def evaluate_program(self, program_str, functions, function_list, classes, class_list, **kwargs):
        ...         return len(functions)
        >>> with auto_server.Server(Count(), port=0) as server:
        ...     threading.Thread(target=server.serve_forever, daemon=True).start()
        ...     host, port = server.server_address[:2]
        ...     print(auto_server.submit_code(host, port, "def a(): pass", timeout=5)["result"])
        ...     server.shutdown()
        1
    """
    body = json.dumps({"code": code, "timeout": timeout}).encode()
    request = urllib.request.Request(f"http://{host}:{port}/", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=post_timeout_seconds) as answer:
        results: dict[str, Any] = json.load(answer)
    return results


async def submit_code_async(
    host: str,
    port: Union[int, str],
    code: str,
    timeout: Optional[float] = None,
    *,
    post_timeout_seconds: float = 1800,
) -> dict[str, Any]:
    """Awaited form of `submit_code`."""
    return await asyncio.to_thread(submit_code, host, port, code, timeout, post_timeout_seconds=post_timeout_seconds)


def evaluator_timeout(evaluator: Any) -> Any:
    """The timeout that an evaluator's class or object names; None where there is none."""
    named = (getattr(evaluator, field, None) for field in _FIELDS)
    return next((value for value in named if value is not None), None)


class Server(ThreadingHTTPServer):
    """An HTTP server of one evaluator: `serve_forever` serves, `shutdown` and `server_close` end it.

    Args:
        evaluator: The evaluator.
        host: The address to listen on.
        port: The port to listen on; 0 for a free one.
        timeout: Seconds for requests without a timeout; None for that of the evaluator.
        max_workers: How many evaluations run at a time.

    Examples:
        >>> from sandtimer.adtools import PyEvaluator, auto_server
        >>> class Count(PyEvaluator):
        ...     def evaluate_program(self, program_str, functions, function_list, classes, class_list, **kwargs):
        ...         return len(functions)
        >>> with auto_server.Server(Count(), port=0, timeout=5) as server:
        ...     server.evaluate({"code": "def a(): pass"})["result"]
        1
    """

    def __init__(
        self,
        evaluator: PyEvaluator,
        host: str = "127.0.0.1",
        port: int = 8000,
        timeout: Optional[float] = None,
        max_workers: int = 4,
    ) -> None:
        super().__init__((host, port), _Handler)
        self.evaluator = evaluator
        self.default_timeout = timeout if timeout is not None else evaluator_timeout(evaluator)
        self.slots = threading.Semaphore(max_workers)

    def evaluate(self, request: Any) -> Any:
        """Returns the results of a request.

        Args:
            request: The JSON data of the request: a dictionary of `code` and `timeout`.

        Examples:
            >>> from sandtimer.adtools import PyEvaluator, auto_server
            >>> class Count(PyEvaluator):
            ...     def evaluate_program(self, program_str, functions, function_list, classes, class_list, **kwargs):
            ...         return len(functions)
            >>> with auto_server.Server(Count(), port=0) as server:
            ...     server.evaluate({})["error_msg"]
            "the request has no string 'code'"
        """
        code = request.get("code") if isinstance(request, dict) else None
        if not isinstance(code, str) or not code:
            return _failed("the request has no string 'code'")
        timeout = request.get("timeout")
        if timeout is None:
            timeout = self.default_timeout
        try:
            with self.slots:
                return self.evaluator.secure_evaluate(code, timeout_seconds=timeout)
        except Exception as error:
            return _failed(f"{type(error).__name__}: {error}")


def _failed(why_not: str) -> ExecutionResults:
    return ExecutionResults(result=None, evaluate_time=0.0, error_msg=why_not)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    # Of a client that sends nothing.
    timeout = 10

    def do_POST(self) -> None:
        # A page in a browser on this machine cannot send this type to it.
        if self.headers.get_content_type() != "application/json":
            return self._answer(415, _failed("the request's Content-Type must be application/json"))
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > _MAX_BYTES:
            return self._answer(413, _failed(f"the request needs a Content-Length of at most {_MAX_BYTES}"))
        try:
            request = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return self._answer(200, _failed("the request is not JSON"))
        self._answer(200, self.server.evaluate(request))

    def _answer(self, status: int, results: Any) -> None:
        try:
            text = _values.encode_json(results, allow_nan=True)
        except (TypeError, ValueError, RecursionError):
            text = json.dumps({**results, "result": _values.shortened(results["result"], _MAX_CHARACTERS)})
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the results go to the client."""


def load(path: str) -> PyEvaluator:
    """An object of the one evaluator class that a file defines."""
    directory, file = os.path.split(os.path.abspath(path))
    name = os.path.splitext(file)[0]
    # The sandboxes import it by this name too.
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module = importlib.import_module(name)
    classes = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, PyEvaluator) and each.__module__ == name
    ]
    public = [each for each in classes if not each.__name__.startswith("_")]
    if len(public) != 1:
        names = ", ".join(each.__name__ for each in public) or "none"
        raise InvalidArgumentError(f"{path} must define one public class derived from PyEvaluator; it defines: {names}")
    evaluator: PyEvaluator = public[0]()
    return evaluator


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m sandtimer.adtools.auto_server")
    parser.add_argument("-d", "--dir", required=True, help="file that defines the evaluator")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", default=8000, type=int, help="port to listen on; 0 takes a free one")
    parser.add_argument("-t", "--timeout", default=None, type=float, help="seconds for requests that name none")
    parser.add_argument("--max-workers", default=4, type=int, help="most evaluations at a time")
    given = parser.parse_args(arguments)
    server = Server(load(given.dir), given.host, given.port, given.timeout, given.max_workers)
    with server:
        host, port = server.server_address[:2]
        print(f"serving {given.dir} at http://{host!s}:{port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
