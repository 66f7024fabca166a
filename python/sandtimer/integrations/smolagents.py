"""A `PythonExecutor` of smolagents on a context: a limit ends a step, and not the interpreter.

`CodeAgent(executor=SandtimerExecutor(timeout=10))`. Tools run on the host, and code calls them over a
channel. Described in docs/guides/smolagents.md.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Union

from ._settings import need_python

need_python("sandtimer.integrations.smolagents", "smolagents", (3, 10))
try:
    from smolagents.local_python_executor import CodeOutput, PythonExecutor
    from smolagents.monitoring import AgentLogger, LogLevel
    from smolagents.utils import AgentError
except ImportError as error:
    raise ImportError(f'sandtimer.integrations.smolagents needs smolagents ({error}): pip install "smolagents>=1.26"') from error

from .._outcome import Outcome
from ..sandbox import _sandbox
from . import _tool_values
from ._host_tools import MIME, PREPARATION_TIMEOUT, HostTools

# Raised by `final_answer` in the context, so that the code ends there.
_FINAL = "FinalAnswerException"
_FINAL_ANSWER = f"""
class {_FINAL}(BaseException): pass
def _sandtimer_final(call):
    def final_answer(*arguments, **keywords):
        raise {_FINAL}(str(call(*arguments, **keywords)))
    return final_answer
final_answer = _sandtimer_final(final_answer)
del _sandtimer_final
"""


class SandtimerExecutor(PythonExecutor):  # type: ignore[misc]
    """Executes an agent's code in a context of its own, under limits as of `sandtimer.Sandbox`.

    Args:
        timeout: Elapsed time of each step, the time of its tools included.
        cpu: Processor time of each step.
        stall: Time of a step without output and processor use.
        memory: Memory of the interpreter as a whole.
        processes: Processes and threads of the interpreter as a whole.
        output: Bytes of a step's output that are kept.
        network: Whether the code has the host's network instead of none.
        preload: Modules that are imported before the first step.
        logger: A logger of errors besides the agent's own.

    Examples:
        >>> from sandtimer.integrations.smolagents import SandtimerExecutor
        >>> with SandtimerExecutor(timeout=5.0, memory="1GB") as executor:
        ...     executor("x = 40").output
        ...     executor("x + 2").output
        42
    """

    def __init__(
        self,
        timeout: Union[int, float, None] = None,
        *,
        cpu: Union[int, float, None] = None,
        stall: Union[int, float, None] = None,
        memory: Union[int, str, None] = None,
        processes: Optional[int] = None,
        output: Union[int, str, None] = "10MB",
        network: bool = False,
        preload: tuple[str, ...] = (),
        logger: Any = None,
    ) -> None:
        self.logger = AgentLogger(level=LogLevel.OFF) if logger is None else logger
        self._final: Any = None
        # The interpreter was replaced by one that has neither tools nor variables.
        self._is_lost = False
        self._variables: dict[str, Any] = {}
        self._host = HostTools({})
        self._box: Any = None
        try:
            self._box = _sandbox.Sandbox(
                timeout,
                cpu=cpu,
                stall=stall,
                memory=memory,
                processes=processes,
                output=output,
                network=network,
                preload=preload,
                paths=[self._host.directory],
            )
            self._context = self._box.context()
        except BaseException:
            self.cleanup()
            raise

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """Defines the tools in the context. They run here, in the agent's process."""
        self._host.tools.update(tools)
        answer = self._host.tools.get("final_answer")
        if answer is not None and not isinstance(answer, _FinalAnswer):
            self._host.tools["final_answer"] = _FinalAnswer(self, answer)
        self._define()

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Sets variables in the context: plain values."""
        if variables:
            assignment = self._assignment(variables)
            self._variables.update(variables)
            self._prepare(assignment, "send_variables")

    def _assignment(self, variables: Mapping[str, Any]) -> str:
        try:
            text = _tool_values.dumps(dict(variables))
        except TypeError as error:
            raise AgentError(f"variables {', '.join(variables)}: {error}", self.logger) from None
        module = f"import types as _m; _m = _m.ModuleType('m'); exec({_source()!r}, _m.__dict__)"
        return f"{module}; globals().update(_m.loads({text!r})); del _m"

    def _define(self) -> None:
        code = self._host.definitions(self._host.tools)
        if "final_answer" in self._host.tools:
            code += _FINAL_ANSWER
        self._prepare(code, "send_tools")

    def _prepare(self, code: str, step: str) -> None:
        outcome = self._context.run(code, timeout=PREPARATION_TIMEOUT, cpu=None, stall=None)
        if outcome.state == "reset":
            self._is_lost = True
        if outcome.ending != "returned":
            raise AgentError(f"{step}: {_explain(outcome)}", self.logger)

    def __call__(self, code_action: str) -> CodeOutput:
        """Executes a step. Raises `AgentError` for an error of the code, and for a limit."""
        if self._is_lost:
            self._restore()
        self._final = None
        try:
            outcome = self._context.run(code_action, on_display=self._host.on_display)
        finally:
            self._host.forget()
        self._is_lost = outcome.state == "reset"
        logs = outcome.stdout
        if outcome.ending == "raised" and self._final is not None and getattr(outcome.error, "type_name", "").endswith(_FINAL):
            return CodeOutput(output=self._final[0], logs=logs, is_final_answer=True)
        if outcome.ending != "returned":
            raise AgentError(f"{logs}\nExecuting code yielded an error:\n{_explain(outcome)}", self.logger)
        return CodeOutput(output=_output(outcome), logs=logs, is_final_answer=False)

    def _restore(self) -> None:
        """Defines the tools and variables that were sent in an interpreter that has nothing."""
        self._is_lost = False
        try:
            self._define()
            if self._variables:
                self._prepare(self._assignment(self._variables), "send_variables")
        except AgentError:
            self._is_lost = True
            raise

    def cleanup(self) -> None:
        """Ends the interpreter and all that it has started."""
        if self._box is not None:
            self._box.close()
        self._host.close()

    def __enter__(self) -> SandtimerExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()


class _FinalAnswer:
    """The tool `final_answer`, whose value is kept here."""

    def __init__(self, executor: SandtimerExecutor, tool: Any) -> None:
        self._executor, self._tool = executor, tool

    def __call__(self, *arguments: Any, **keywords: Any) -> None:
        self._executor._final = (self._tool(*arguments, **keywords),)


_STATES = {
    "rolled_back": "All variables are as they were before this code.",
    "reset": "The interpreter was started again: all variables are lost, apart from tools and what was sent.",
    "kept": "All variables are kept.",
}


def _explain(outcome: Outcome) -> str:
    error = outcome.error
    if outcome.ending == "raised" and error is not None:
        name = getattr(error, "type_name", type(error).__name__)
        cause = str(getattr(error, "remote_traceback", "") or error.__cause__ or "").strip().strip('"').strip()
        return f"{name}: {getattr(error, 'message', error)}\n{cause}"
    if outcome.verdict is not None:
        return str(error)
    return f"{str(error).rstrip('.')}. {_STATES.get(outcome.state, '')}".strip()


def _output(outcome: Outcome) -> Any:
    """The value of the last expression; its text where it is not plain."""
    if outcome.value is not None:
        return outcome.value
    shown = [bundle for bundle in outcome.results if MIME not in bundle]
    return shown[-1].get("text/plain") if shown else None


def _source() -> str:
    import inspect

    return inspect.getsource(_tool_values)
