"""The executor for smolagents, by its real agents with a model that says what it was told."""

from __future__ import annotations

import os
import sys
from typing import Any, Iterator

import pytest

if sys.version_info < (3, 10):
    pytest.skip("smolagents has no package for this Python", allow_module_level=True)

from smolagents import CodeAgent, tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.utils import AgentError

from sandtimer.errors import SandtimerError
from sandtimer.integrations.smolagents import SandtimerExecutor


class Scripted(Model):  # type: ignore[misc]
    def __init__(self, *steps: str) -> None:
        super().__init__()
        self.steps = list(steps)

    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: next\n<code>\n{self.steps.pop(0)}\n</code>")


@tool  # type: ignore[untyped-decorator]
def whereabouts(suffix: str) -> str:
    """Tells the process.

    Args:
        suffix: What is added.
    """
    if suffix == "bad":
        raise ValueError("not this one")
    return f"{os.getpid()}{suffix}"


@pytest.fixture
def executor() -> Iterator[SandtimerExecutor]:
    with SandtimerExecutor(timeout=2.0, memory="300MB") as made:
        yield made


def run(executor: SandtimerExecutor, *steps: str, **options: Any) -> tuple[Any, list[str]]:
    agent = CodeAgent(tools=[whereabouts], model=Scripted(*steps), executor=executor, verbosity_level=-1)
    answer = agent.run("go", **options)
    texts = []
    for step in agent.memory.steps[1:]:
        error = getattr(step, "error", None)
        texts.append(error.message if error is not None else getattr(step, "observations", None) or "")
    return answer, texts


def test_an_agent_outlives_what_its_steps_do(executor: SandtimerExecutor) -> None:
    answer, texts = run(
        executor,
        "x = 40\nprint(whereabouts('!'))\nx",
        "x = 0\nimport os\nos._exit(3)",
        "while True: pass",
        "y = bytearray(400 << 20)",
        "undefined",
        "final_answer({'sum': x + 2, 'by': whereabouts(suffix='?'), 'given': given})",
        additional_args={"given": (1, b"2")},
    )
    assert answer == {"sum": 42, "by": f"{os.getpid()}?", "given": (1, b"2")}
    assert f"{os.getpid()}!" in texts[0] and texts[0].endswith("40")
    assert "exit code 3" in texts[1] and "All variables are as they were before this code." in texts[1]
    assert "wall limit of 2 s" in texts[2]
    assert "memory" in texts[3].lower()
    assert "NameError: name 'undefined' is not defined" in texts[4] and "line 1" in texts[4]


def test_tools_run_here_and_report_their_errors(executor: SandtimerExecutor) -> None:
    executor.send_tools({"whereabouts": whereabouts})
    assert executor("whereabouts('')").output == str(os.getpid())
    with pytest.raises(AgentError, match="whereabouts: ValueError: not this one"):
        executor("whereabouts('bad')")
    with pytest.raises(AgentError, match="cannot be sent: use plain values"):
        executor("whereabouts(object())")
    output = executor("print('a')\ntry:\n    whereabouts('bad')\nexcept RuntimeError as error: print(error)\n[1, {2}]")
    assert (output.output, output.is_final_answer) == ("[1, {2}]", False)
    assert output.logs == "a\nwhereabouts: ValueError: not this one\n"


def test_the_network_and_the_files_of_the_host_are_not_there(executor: SandtimerExecutor) -> None:
    with pytest.raises(AgentError, match="OSError|PermissionError"):
        executor("import socket\nsocket.create_connection(('192.0.2.1', 9), 5)")
    assert executor("import os\nos.path.exists(os.path.expanduser('~/.ssh'))").output is False


def test_what_was_sent_is_there_after_a_reset(executor: SandtimerExecutor) -> None:
    executor.send_tools({"whereabouts": whereabouts})
    executor.send_variables({"given": [1]})
    with pytest.raises(AgentError, match="all variables are lost"):
        executor("import os, threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\nx = 1")
        executor("os._exit(1)")
    assert executor("given, whereabouts('') != ''").output == [[1], True]


@pytest.mark.parametrize(
    "hostile",
    [
        "def globals():\n    while True: pass",
        "import builtins\ndef exec(*_):\n    while True: pass\nbuiltins.exec = exec\ndel exec",
    ],
)
def test_code_cannot_hang_what_is_sent_after_it(hostile: str, executor: SandtimerExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandtimer.integrations.smolagents.PREPARATION_TIMEOUT", 1.0, raising=False)
    executor("x = 40")
    executor(hostile)
    with pytest.raises(AgentError, match="send_variables: .*wall limit of 1 s"):
        executor.send_variables({"y": 2})
    with pytest.raises(AgentError, match="send_tools: .*wall limit of 1 s"):
        executor.send_tools({"whereabouts": whereabouts})
    assert executor("x").output == 40


def test_cleanup_ends_everything() -> None:
    executor = SandtimerExecutor(timeout=5)
    directory = executor._host.directory
    executor("x = 1")
    executor.cleanup()
    assert not os.path.exists(directory)
    with pytest.raises(Exception, match="closed"):
        executor("x")


def test_wrong_arguments_are_refused(executor: SandtimerExecutor) -> None:
    with pytest.raises(SandtimerError, match="much"):
        SandtimerExecutor(memory="much")
    with pytest.raises(AgentError, match="variables given: a value of type object cannot be sent"):
        executor.send_variables({"given": object()})
