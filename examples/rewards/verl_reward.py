"""A reward function for verl: code in a completion, judged by tests, each run in a sandbox of its own.

    custom_reward_function.path=examples/rewards/verl_reward.py
    custom_reward_function.name=compute_score

`ground_truth` is what code data sets have: {"inputs": [...], "outputs": [...]}, or its JSON; with "fn_name" the inputs are
lists of arguments of that function, without it they are what programs read. What is expected never enters a sandbox.

The function works in any thread and in any process: Ray workers, forked data loaders, next to CUDA. Each process makes its
sandbox with its first reward.
"""

from __future__ import annotations

import functools
import json
import os
import re
from typing import Any

import sandtimer

# Each fenced block: what its first line says, and what is in it.
_FENCE = re.compile(r"```([^\n`]*)\n(.*?)```", re.DOTALL)
_LANGUAGES = ("", "python", "python3", "py", "py3")


@functools.lru_cache(maxsize=None)
def _sandbox(process: int) -> sandtimer.Sandbox:
    return sandtimer.Sandbox(timeout=2.0, memory="512MB", processes=16)


def extract_code(completion: str) -> str | None:
    """The last fenced block of Python: models think in the earlier ones."""
    blocks = [code for language, code in _FENCE.findall(completion) if language.strip().lower() in _LANGUAGES]
    return blocks[-1] if blocks else None


def entry_of(code: str, name: str | None) -> str | None:
    """The function to call: the method of `class Solution` when there is one, as many data sets ask for."""
    if name is None or "." in name:
        return name
    is_method = re.search(r"^class Solution\b", code, re.M) and re.search(rf"^[ \t]+def {re.escape(name)}\b", code, re.M)
    is_function = re.search(rf"^def {re.escape(name)}\b", code, re.M)
    return f"Solution.{name}" if is_method and not is_function else name


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any] | None = None, **kwargs: Any
) -> float:
    """The share of the tests that pass, 0 where there is no code. `extra_info` may hold "timeout" (seconds for each test)."""
    code = extract_code(solution_str)
    if code is None:
        return 0.0
    truth = json.loads(ground_truth) if isinstance(ground_truth, str) else ground_truth
    judgement = _sandbox(os.getpid()).judge(
        code,
        list(zip(truth["inputs"], truth["outputs"])),
        entry=entry_of(code, truth.get("fn_name")),
        # JSON has lists where functions return tuples.
        checker="json" if truth.get("fn_name") else None,
        timeout=(extra_info or {}).get("timeout"),
        total=30.0,
    )
    # A machine that is too busy is not the model's fault.
    return judgement.retry_overloaded().score


SAMPLES = [
    ("sums, right", "Adding them:\n```python\nprint(sum(map(int, input().split())))\n```"),
    ("sums, half right", "```python\nfirst, second = map(int, input().split()[:2])\nprint(first + second)\n```"),
    ("sums, never ends", "```python\nwhile True: pass\n```"),
    ("sums, no code", "The answer is the sum of the numbers."),
    ("sums, not Python", "```python\nprint(sum(\n```"),
]
TRUTH = json.dumps({"inputs": ["1 2", "3 4 5"], "outputs": ["3\n", "12\n"]})


def main() -> None:
    for name, completion in SAMPLES:
        print(f"{name:20} {compute_score('sums', completion, TRUTH, {'timeout': 0.5}):.2f}")
    function = {"fn_name": "mean", "inputs": [[[1, 2]], [[0.1, 0.2, 0.3]]], "outputs": [1.5, 0.2]}
    completion = "```python\ndef mean(numbers):\n    return sum(numbers) / len(numbers)\n```"
    print(f"{'mean, right':20} {compute_score('means', completion, function):.2f}")
    function = {"fn_name": "ends", "inputs": [[[3, 1, 2]]], "outputs": [[3, 2]]}
    completion = "```python3\nclass Solution:\n    def ends(self, numbers):\n        return numbers[0], numbers[-1]\n```"
    print(f"{'ends, a method':20} {compute_score('ends', completion, function):.2f}")
    _sandbox(os.getpid()).close()


if __name__ == "__main__":
    main()
