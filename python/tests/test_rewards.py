"""The reward examples, called as verl and TRL call them; neither is needed for that."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest
import sandtimer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "rewards"
if not EXAMPLES.is_dir():
    pytest.skip("examples/rewards is not beside these tests", allow_module_level=True)


def load(name: str, alias: str) -> Any:
    """As verl loads a custom reward function: from its file, as a module that cannot be imported by name."""
    spec = importlib.util.spec_from_file_location(alias, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[alias] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def verl() -> Iterator[Any]:
    module = load("verl_reward", "custom_module")
    yield module
    module._sandbox(os.getpid()).close()
    del sys.modules["custom_module"]


@pytest.fixture(scope="module")
def trl() -> Iterator[Any]:
    module = load("trl_reward", "trl_reward_under_test")
    yield module
    module._sandbox(os.getpid()).close()
    del sys.modules["trl_reward_under_test"]


def fenced(code: str) -> str:
    return f"I think first:\n```\nprint('a draft')\n```\nThen:\n```python\n{code}\n```\n"


SUM = "print(sum(map(int, input().split())))"
TRUTH = json.dumps({"inputs": ["1 2", "3 4 5"], "outputs": ["3", "12"]})


@pytest.mark.parametrize(
    ("solution", "score"),
    [
        (fenced(SUM), 1.0),
        (fenced("print(sum(map(int, input().split()[:2])))"), 0.5),
        (fenced("print(sum("), 0.0),
        (fenced("import os; os._exit(0)"), 0.0),
        ("It is 3.", 0.0),
        ("", 0.0),
    ],
)
def test_verl_calls_with_keywords(verl: Any, solution: str, score: float) -> None:
    given = verl.compute_score(
        data_source="sums", solution_str=solution, ground_truth=TRUTH, extra_info={"split": "train", "index": 3}
    )
    assert isinstance(given, float)
    assert given == score


def test_verl_functions_by_name(verl: Any) -> None:
    truth = {"fn_name": "mean", "inputs": [[[1, 2]], [[0.1, 0.2, 0.3]]], "outputs": [1.5, 0.2]}
    right = fenced("def mean(numbers):\n    return sum(numbers) / len(numbers)")
    assert verl.compute_score("means", right, truth) == 1.0
    assert verl.compute_score("means", right, json.dumps(truth), None) == 1.0
    assert verl.compute_score("means", right.replace("len(numbers)", "2"), truth) == 0.5


def test_verl_finds_methods_of_a_solution(verl: Any) -> None:
    truth = json.dumps({"fn_name": "twoSum", "inputs": [[[2, 7, 11], 9]], "outputs": [[0, 1]]})
    body = "(SELFnumbers, target):\n{0}    return next((i, j) for j in range(9) for i in range(j) if numbers[i] + numbers[j] == target)"
    method = "class Solution:\n    def twoSum" + body.replace("SELF", "self, ").format("    ")
    function = "def twoSum" + body.replace("SELF", "").format("")
    helper = "class Solution:\n    def other(self):\n        pass\n\n"
    both = "class Solution:\n    def twoSum(self, numbers, target):\n        return twoSum(numbers, target)\n\n\n" + function
    for code in (method, function, helper + function, both, "import math\n\n" + method):
        assert verl.compute_score("sums", fenced(code), truth) == 1.0, code
    assert verl.compute_score("sums", fenced(helper), truth) == 0.0


def test_verl_takes_tuples_where_json_has_lists(verl: Any) -> None:
    truth = json.dumps({"fn_name": "count", "inputs": [["abca"]], "outputs": [[["a", 2], ["b", 1], {"1": ["c"]}]]})
    right = "def count(text):\n    return [(each, text.count(each)) for each in 'ab'] + [{1: ('c',)}]"
    assert verl.compute_score("counts", fenced(right), truth) == 1.0
    assert verl.compute_score("counts", fenced(right.replace("('c',)", "('c', 'c')")), truth) == 0.0


@pytest.mark.parametrize("name", ["verl", "trl"])
def test_code_is_found_in_fences_of_every_kind(name: str, verl: Any, trl: Any) -> None:
    extract = {"verl": verl, "trl": trl}[name].extract_code
    for language in ("python3", "python", "py", "Python", "python3 ", "", "py3\r"):
        assert extract(f"Thus:\n```{language}\nprint(1)\n```\n") == "print(1)\n"
    output = "```text\n3\n```\nSo it is:\n```python3\nprint(3)\n```\nwhich prints\n```console\n3\n```\n"
    assert extract(output) == "print(3)\n"
    assert extract("```cpp\nint main() {}\n```\n") is None and extract("a ``` b ``` c") is None


def test_verl_one_that_never_ends(verl: Any) -> None:
    assert verl.compute_score("sums", fenced("while True: pass"), TRUTH, {"timeout": 0.2}) == 0.0


def test_verl_runs_off_the_main_thread(verl: Any) -> None:
    scores: list[Any] = []
    threads = [
        threading.Thread(target=lambda: scores.append(verl.compute_score("sums", fenced(SUM), TRUTH))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert scores == [1.0] * 4


def test_a_busy_machine_is_not_held_against_the_model(verl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sandtimer.sandbox import _host

    retried = []
    again = sandtimer.Judgement.retry_overloaded

    def counted(judgement: sandtimer.Judgement) -> sandtimer.Judgement:
        after = again(judgement)
        retried.append(after is not judgement)
        return after

    monkeypatch.setattr(sandtimer.Judgement, "retry_overloaded", counted)
    monkeypatch.setattr(_host, "load", lambda *_: _host.HostLoad(1.0, None, None, ("it was ready",)))
    # Only what timed out is judged again.
    assert verl.compute_score("sums", fenced("print(3)"), TRUTH) == 0.5
    late = "if input() != '1 2': import time; time.sleep(60)\nprint(3)"
    assert verl.compute_score("sums", fenced(late), TRUTH, {"timeout": 1.0}) == 0.5
    assert retried == [False, True]


def test_trl_calls_with_columns(trl: Any) -> None:
    texts = [fenced(SUM), fenced("print(3)"), "nothing", fenced("print(input()[::-1])"), fenced("print(")]
    sums, words = [["1 2", "3"], ["3 4 5", "12"]], [["abc", "cba"]]
    columns = {"tests": [sums, sums, sums, words, json.dumps(words)], "trainer_state": None, "completion_ids": [[1]] * 5}
    expected = [1.0, 0.5, 0.0, 1.0, 0.0]
    prompts: list[Any] = ["a prompt"] * 5
    assert trl.tests_pass(prompts=prompts, completions=texts, **columns) == expected
    messages = [[{"role": "assistant", "content": text}] for text in texts]
    prompts = [[{"role": "user", "content": "a prompt"}]] * 5
    assert trl.tests_pass(prompts=prompts, completions=messages, **columns) == expected
    assert trl.compiles(prompts=prompts, completions=messages, **columns) == [0.1, 0.1, -0.1, 0.1, -0.1]


@pytest.mark.parametrize("name", ["verl_reward", "trl_reward"])
def test_they_run_as_scripts(name: str) -> None:
    ended = subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "1.00" in ended.stdout
    assert "0.00" in ended.stdout
