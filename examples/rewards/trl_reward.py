"""A reward function for TRL's GRPOTrainer: code in completions, judged by tests, each run in a sandbox of its own.

    GRPOTrainer(model, reward_funcs=[tests_pass, compiles], train_dataset=dataset, …)

The data set has a column `tests`: for each prompt a list of [stdin, expected stdout], or its JSON. The trainer hands its
columns over as lists, as long as the completions. The completions of a group are answers to one prompt, so they are judged
together: a matrix of programs by tests, on all processors.
"""

from __future__ import annotations

import functools
import json
import os
import re
from typing import Any, Sequence

import sandtimer

# Each fenced block: what its first line says, and what is in it.
_FENCE = re.compile(r"```([^\n`]*)\n(.*?)```", re.DOTALL)
_LANGUAGES = ("", "python", "python3", "py", "py3")


@functools.lru_cache(maxsize=None)
def _sandbox(process: int) -> sandtimer.Sandbox:
    return sandtimer.Sandbox(timeout=2.0, memory="512MB", processes=16)


def extract_code(completion: Any) -> str | None:
    """The last fenced block of Python of a completion, which is a text or a list of messages."""
    text = completion if isinstance(completion, str) else str(completion[-1]["content"])
    blocks = [code for language, code in _FENCE.findall(text) if language.strip().lower() in _LANGUAGES]
    return blocks[-1] if blocks else None


def _judge(completions: Sequence[Any], tests: Sequence[Any]) -> list[sandtimer.Judgement | None]:
    """A judgement for each completion that holds code; those with the same tests are judged together."""
    judgements: list[sandtimer.Judgement | None] = [None] * len(completions)
    groups: dict[str, list[tuple[int, str]]] = {}
    for index, (completion, cases) in enumerate(zip(completions, tests)):
        code = extract_code(completion)
        if code is not None:
            key = cases if isinstance(cases, str) else json.dumps(cases)
            groups.setdefault(key, []).append((index, code))
    for key, members in groups.items():
        rows = _sandbox(os.getpid()).judge_many([code for _, code in members], json.loads(key), total=30.0)
        # A machine that is too busy is not the model's fault.
        for (index, _), row in zip(members, rows.retry_overloaded()):
            judgements[index] = row
    return judgements


def tests_pass(prompts: Sequence[Any], completions: Sequence[Any], *, tests: Sequence[Any], **kwargs: Any) -> list[float]:
    """The share of the tests that pass; 0 where there is no code."""
    return [0.0 if judgement is None else judgement.score for judgement in _judge(completions, tests)]


def compiles(prompts: Sequence[Any], completions: Sequence[Any], **kwargs: Any) -> list[float]:
    """A little for what is Python at all, and a little less for what is not. Nothing is run."""
    codes = [extract_code(completion) for completion in completions]
    outcomes = _sandbox(os.getpid()).map(
        lambda code: bool(compile(code, "<code>", "exec")), [code for code in codes if code is not None]
    )
    return [0.1 if code is not None and next(outcomes).ok else -0.1 for code in codes]


PROMPTS = ["Print the sum of the numbers on the line.", "Print the line backwards."]
TESTS = [[["1 2", "3"], ["3 4 5", "12"]], [["abc", "cba"], ["level", "level"]]]
COMPLETIONS = [
    ["```python\nprint(sum(map(int, input().split())))\n```", "```python\nprint(sum(input().split()))\n```", "It is 3."],
    ["```python\nprint(input()[::-1])\n```", "```python\nprint(input())\n```", "```python\nwhile 1: pass\n```"],
]


def main() -> None:
    """Two groups of three completions, flat and as messages, as the trainer hands them over."""
    prompts = [[{"role": "user", "content": prompt}] for prompt in PROMPTS for _ in range(3)]
    completions = [[{"role": "assistant", "content": text}] for group in COMPLETIONS for text in group]
    tests = [cases for cases in TESTS for _ in range(3)]
    rewards = tests_pass(prompts, completions, tests=tests, completion_ids=[[0]] * 6)
    for completion, one, other in zip(completions, rewards, compiles(prompts, completions, tests=tests)):
        print(f"{one:.2f} {other:+.1f}  {completion[0]['content']!r}")
    _sandbox(os.getpid()).close()


if __name__ == "__main__":
    main()
