"""The interpreter for DSPy, by DSPy itself. Not collected by itself: requirements-prove.txt has what it needs."""

from __future__ import annotations

import os
import threading
from typing import Any, Iterator

import dspy
import pytest
from dspy.primitives.code_interpreter import CodeExecutionError, CodeInterpreter, CodeInterpreterError, FinalOutput

from sandtimer.integrations.dspy import SandtimerInterpreter


def double(number: int) -> int:
    """Doubles a number, here."""
    if number < 0:
        raise ValueError("not this one")
    return 2 * number


async def slow_double(number: int) -> int:
    return 2 * number


@pytest.fixture
def interpreter() -> Iterator[SandtimerInterpreter]:
    with SandtimerInterpreter({"double": double, "slow_double": slow_double}, timeout=2.0) as made:
        yield made


def test_it_is_an_interpreter_of_dspy(interpreter: SandtimerInterpreter) -> None:
    assert isinstance(interpreter, CodeInterpreter)
    assert interpreter.execute("x = 40") is None
    assert interpreter.execute("x + y", {"y": 2}) == 42
    assert interpreter.execute("print('a')\nprint('b')") == "a\nb"
    assert interpreter.execute("(1, {2})") == "(1, {2})"
    assert interpreter.execute("double(number=x), slow_double(1)") == [80, 2]


def test_submit_ends_an_execution(interpreter: SandtimerInterpreter) -> None:
    assert interpreter.execute("SUBMIT([1, 2])\n1 / 0") == FinalOutput({"output": [1, 2]})
    interpreter.output_fields = [{"name": "answer", "type": "int"}, {"name": "why"}]
    assert interpreter.execute("SUBMIT(1, 'so')") == FinalOutput({"answer": 1, "why": "so"})
    assert interpreter.execute("SUBMIT(why='so', answer=1)") == FinalOutput({"answer": 1, "why": "so"})
    with pytest.raises(CodeExecutionError, match="SUBMIT takes the fields answer, why"):
        interpreter.execute("SUBMIT(1)")


def test_what_code_does_wrong_costs_no_state(interpreter: SandtimerInterpreter) -> None:
    interpreter.execute("x = 1")
    with pytest.raises(SyntaxError):
        interpreter.execute("def f(:")
    with pytest.raises(CodeExecutionError, match="ZeroDivisionError: division by zero"):
        interpreter.execute("x = 2\n1 / 0")
    with pytest.raises(CodeExecutionError, match="double: ValueError: not this one"):
        interpreter.execute("double(-1)")
    with pytest.raises(CodeExecutionError, match="wall limit of 2 s"):
        interpreter.execute("while True: pass")
    with pytest.raises(CodeExecutionError, match="exit code 3.*as before this code"):
        interpreter.execute("x = 9\nimport os\nos._exit(3)")
    assert interpreter.execute("x, double(1)") == [2, 2]


def test_a_lost_session_is_not_continued_silently(interpreter: SandtimerInterpreter) -> None:
    interpreter.execute("import os, threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()")
    with pytest.raises(CodeInterpreterError, match="lost with its state"):
        interpreter.execute("os._exit(1)")
    with pytest.raises(CodeInterpreterError, match="shut down"):
        interpreter.execute("1")


@pytest.mark.parametrize(
    "hostile",
    [
        "def globals():\n    while True: pass",
        "import builtins\ndef __import__(*_):\n    while True: pass\nbuiltins.__import__ = __import__\ndel __import__",
    ],
)
def test_code_cannot_hang_the_next_execution(
    hostile: str, interpreter: SandtimerInterpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandtimer.integrations.dspy.PREPARATION_TIMEOUT", 1.0, raising=False)
    interpreter.execute("x = 40")
    interpreter.execute(hostile)
    with pytest.raises(CodeInterpreterError, match="could not be prepared: .*wall limit of 1 s"):
        interpreter.execute("1", {"y": 2})
    assert interpreter.execute("x") == 40


def test_tools_may_change_between_executions(interpreter: SandtimerInterpreter) -> None:
    interpreter.execute("1")
    interpreter.tools["pid"] = os.getpid
    del interpreter.tools["double"]
    assert interpreter.execute("pid()") == os.getpid()
    with pytest.raises(CodeExecutionError, match="name 'double' is not defined"):
        interpreter.execute("double(1)")


def test_wrong_names_and_values_are_refused(interpreter: SandtimerInterpreter) -> None:
    with pytest.raises(ValueError, match="tool 'SUBMIT' is not a name"):
        SandtimerInterpreter({"SUBMIT": double})
    with pytest.raises(CodeInterpreterError, match="variable 'a b'"):
        interpreter.execute("1", {"a b": 1})
    with pytest.raises(CodeInterpreterError, match="variable 'double' has the name of a tool"):
        interpreter.execute("1", {"double": 1})
    with pytest.raises(CodeInterpreterError, match="value of type object cannot be sent"):
        interpreter.execute("1", {"a": object()})
    with pytest.raises(CodeInterpreterError, match="code=1 is of type int"):
        interpreter.execute(1)  # type: ignore[arg-type]


def test_a_second_execution_at_a_time_is_refused(interpreter: SandtimerInterpreter) -> None:
    entered, go = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        go.wait(30)

    interpreter.tools["wait"] = wait
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(interpreter.execute("wait(); 1")))
    thread.start()
    assert entered.wait(30)
    with pytest.raises(CodeInterpreterError, match="executes other code"):
        interpreter.execute("1")
    go.set()
    thread.join()
    assert results == [1]


class Scripted(dspy.LM):  # type: ignore[misc]
    """A model that says what it was told."""

    def __init__(self, *answers: dict[str, str]) -> None:
        super().__init__("scripted")
        self.answers = list(answers)

    def forward(self, *_: Any, **__: Any) -> Any:
        from litellm import ModelResponse

        fields = self.answers.pop(0)
        text = "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in {**fields, "completed": ""}.items())
        return ModelResponse(choices=[{"message": {"content": text}, "finish_reason": "stop"}])


def test_rlm_solves_a_task_with_it() -> None:
    model = Scripted(
        {"reasoning": "Look.", "code": "```python\nx = double(number=number)\nprint(x)\n```"},
        {"reasoning": "Try.", "code": "```python\nwhile True: pass\n```"},
        {"reasoning": "Done.", "code": "```python\nSUBMIT(x + 2)\n```"},
    )
    module = dspy.RLM(
        "number: int -> answer: int",
        max_iters=5,
        tools=[double],
        interpreter_factory=lambda: SandtimerInterpreter(timeout=1.0),
    )
    with dspy.context(lm=model):
        assert module(number=20).answer == 42
    assert model.answers == []
