"""A `CodeInterpreter` of DSPy on a context, with the host's tools callable from inside.

`dspy.RLM(signature, interpreter_factory=SandtimerInterpreter)`, or `dspy.settings.interpreter_factory`. Described in
docs/guides/dspy.md.
"""

from __future__ import annotations

import keyword
import threading
from typing import Any, Callable, Mapping, Optional, Union

from ._settings import need_python

need_python("sandtimer.integrations.dspy", "dspy", (3, 10))
try:
    from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreterError, FinalOutput
except ImportError as error:
    raise ImportError(f'sandtimer.integrations.dspy needs dspy with its interpreter interface ({error}): pip install "dspy>=3.4"') from error

from .._outcome import Outcome
from ..errors import SandtimerError
from ..sandbox import _sandbox
from . import _tool_values
from ._host_tools import MIME, PREPARATION_TIMEOUT, HostTools

_SUBMITTED = "_sandtimer_submitted"
_SUBMIT = """
class _SandtimerSubmission(BaseException): pass
def _sandtimer_submit(send, names, kind):
    def SUBMIT(*values, **fields):
        if names is None:
            if len(values) != 1 or fields:
                raise TypeError("SUBMIT takes one value")
            fields = {{"output": values[0]}}
        elif values:
            if fields or len(values) != len(names):
                raise TypeError("SUBMIT takes the fields %s, by position or by name" % ", ".join(names))
            fields = dict(zip(names, values))
        elif set(fields) != set(names):
            raise TypeError("SUBMIT takes the fields %s" % ", ".join(names))
        send(fields)
        raise kind()
    return SUBMIT
SUBMIT = _sandtimer_submit({submitted}, {names!r}, _SandtimerSubmission)
del {submitted}, _sandtimer_submit, _SandtimerSubmission
"""


class SandtimerInterpreter:
    """Executes code in a context of its own, under limits as of `sandtimer.Sandbox`.

    After a limit the session continues with its state; `CodeExecutionError` names the limit.

    Args:
        tools: Functions of this process that the code calls by name.
        output_fields: The fields of `SUBMIT`, as DSPy sets them.
        timeout: Elapsed time of each execution, the time of its tools included.
        cpu: Processor time of each execution.
        stall: Time of an execution without output and processor use.
        memory: Memory of the interpreter as a whole.
        processes: Processes and threads of the interpreter as a whole.
        network: Whether the code has the host's network instead of none.
        preload: Modules that are imported before the first execution.

    Examples:
        >>> from sandtimer.integrations.dspy import SandtimerInterpreter
        >>> with SandtimerInterpreter({"double": lambda number: 2 * number}, timeout=5.0) as interpreter:
        ...     interpreter.execute("double(x)", {"x": 21})
        42
    """

    execution_instructions = (
        "Code runs as Python in a persistent sandbox without network and without access to the host's files. State, imports, "
        "functions and variables persist for this session. Host tools and SUBMIT are available as global functions; tools "
        "take and return plain values."
    )

    def __init__(
        self,
        tools: Optional[Mapping[str, Callable[..., Any]]] = None,
        output_fields: Optional[list[dict[str, Any]]] = None,
        *,
        timeout: Union[int, float, None] = None,
        cpu: Union[int, float, None] = None,
        stall: Union[int, float, None] = None,
        memory: Union[int, str, None] = None,
        processes: Optional[int] = None,
        network: bool = False,
        preload: tuple[str, ...] = (),
    ) -> None:
        self.output_fields = output_fields
        self._host = HostTools({})
        self._tools: dict[str, Callable[..., Any]] = dict(tools or {})
        _check_names(self._tools, "tool")
        self._limits: dict[str, Any] = {"cpu": cpu, "stall": stall, "memory": memory, "processes": processes}
        self._limits.update(network=network, preload=preload)
        self._running = threading.Lock()
        self._submitted: Optional[dict[str, Any]] = None
        self._defined: Any = None
        self._context: Any = None
        self._has_ended = False
        try:
            self._box = _sandbox.Sandbox(timeout, paths=[self._host.directory], **self._limits)
        except BaseException:
            self._host.close()
            raise

    @property
    def tools(self) -> dict[str, Callable[..., Any]]:
        """The tools by name; what is added is there in the next execution."""
        return self._tools

    def start(self) -> None:
        """Opens the context, unless it is open."""
        if self._has_ended:
            raise CodeInterpreterError("this interpreter was shut down: make another")
        if self._context is None:
            try:
                self._context = self._box.context()
            except SandtimerError as error:
                raise CodeInterpreterError(str(error)) from error

    def execute(self, code: str, variables: Optional[dict[str, Any]] = None) -> Any:
        """Executes code.

        Returns `FinalOutput` after SUBMIT, else the value of the last expression, else what was
        printed.
        """
        if not isinstance(code, str):
            raise CodeInterpreterError(f"code={code!r:.200} is of type {type(code).__name__}: use a string")
        if not self._running.acquire(blocking=False):
            raise CodeInterpreterError("this interpreter executes other code: use one for each thread")
        try:
            self.start()
            self._define()
            self._assign(variables or {})
            self._submitted = None
            outcome = self._run(code, on_display=self._host.on_display)
            return self._result(outcome)
        finally:
            self._running.release()

    __call__ = execute

    def _run(self, code: str, **options: Any) -> Outcome:
        try:
            outcome: Outcome = self._context.run(code, **options)
        except SandtimerError as error:
            raise CodeInterpreterError(str(error)) from error
        finally:
            self._host.forget()
        if outcome.state == "reset":
            self.shutdown()
            raise CodeInterpreterError(f"the interpreter was lost with its state: {outcome.error}")
        return outcome

    def _prepare(self, code: str) -> None:
        outcome = self._run(code, timeout=PREPARATION_TIMEOUT, cpu=None, stall=None)
        if outcome.ending != "returned":
            raise CodeInterpreterError(f"the session could not be prepared: {outcome.error}")

    def _define(self) -> None:
        """Defines the tools and SUBMIT, where they are not what was defined last."""
        _check_names(self._tools, "tool")
        names = None if self.output_fields is None else [str(field["name"]) for field in self.output_fields]
        self._host.tools = {**self._tools, _SUBMITTED: self._submit}
        wanted = (list(self._tools), names)
        if self._defined != wanted:
            gone = [name for name in (self._defined or ((), None))[0] if name not in self._tools]
            remove = "".join(f"globals().pop({name!r}, None)\n" for name in gone)
            define = self._host.definitions(self._host.tools)
            self._prepare(remove + define + _SUBMIT.format(submitted=_SUBMITTED, names=names))
            self._defined = wanted

    def _submit(self, fields: dict[str, Any]) -> None:
        self._submitted = fields

    def _assign(self, variables: Mapping[str, Any]) -> None:
        _check_names(variables, "variable")
        taken = [name for name in variables if name in self._tools]
        if taken:
            raise CodeInterpreterError(f"variable {taken[0]!r} has the name of a tool: rename one")
        if variables:
            try:
                text = _tool_values.dumps(dict(variables))
            except TypeError as error:
                raise CodeInterpreterError(f"variables {', '.join(variables)}: {error}") from None
            self._prepare(f"globals().update(__import__('sys').modules['_sandtimer_tools'].loads({text!r}))")

    def _result(self, outcome: Outcome) -> Any:
        error = outcome.error
        if outcome.ending == "raised" and self._submitted is not None and "_SandtimerSubmission" in getattr(error, "type_name", ""):
            return FinalOutput(self._submitted)
        if outcome.ending == "raised":
            if isinstance(error, SyntaxError):
                raise error
            name = getattr(error, "type_name", type(error).__name__).rpartition(".")[2]
            raise CodeExecutionError(f"{name}: {getattr(error, 'message', error)}")
        if outcome.ending != "returned":
            # The sentence of a verdict has the state.
            state = "" if outcome.verdict is not None or outcome.state != "rolled_back" else "; the state of the session is as before this code"
            raise CodeExecutionError(f"{error}{state}")
        if outcome.value is not None:
            return outcome.value
        shown = [bundle for bundle in outcome.results if MIME not in bundle]
        return shown[-1].get("text/plain") if shown else (outcome.stdout.rstrip("\n") or None)

    def shutdown(self) -> None:
        """Ends the interpreter and all that it has started."""
        self._has_ended = True
        self._box.close()
        self._host.close()

    def __enter__(self) -> SandtimerInterpreter:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def _check_names(names: Mapping[str, Any], what: str) -> None:
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name in ("SUBMIT", "__builtins__"):
            error = ValueError if what == "tool" else CodeInterpreterError
            raise error(f"{what} {name!r:.100} is not a name that code can use: use an identifier other than SUBMIT")
