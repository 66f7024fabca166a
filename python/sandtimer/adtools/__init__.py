"""The programming interface of py-adtools' sandbox and evaluators, on Sandtimer: change the import, keep the program.

    from adtools.sandbox import SandboxExecutor, sandbox_run           →  from sandtimer.adtools import …
    from adtools.evaluator import PyEvaluator                          →  from sandtimer.adtools import …

Names, parameters, defaults and results are those of py-adtools 0.3.8; both spellings of its flag are taken. What differs:

- `trust` decides on results: "data" (the default) rebuilds plain values, arrays and the classes named in `results=`; of any other
  class the `result` is None, and `error_msg` names the remedy.
- Everything a call started is dead when it has returned, whatever `recur_kill_eval_proc` and `join_timeout_seconds` say.
- Workers and arguments are sent by pickle (cloudpickle where that is needed), unless `start="fork"`. What cannot be pickled,
  such as a worker with a lock, and what goes wrong in a call, is in `error_msg`; a decorated call that gives the raw result is
  then None. What else keeps a call from beginning raises: a parameter that is none, or where no sandbox can be had.
- A call has no network, and sees few files, unless further parameters of `sandtimer.Sandbox` say otherwise; executors,
  evaluators and `sandbox_run` take them by keyword: `SandboxExecutor(worker, memory="1GB", network=True)`.
- What a call prints is printed when it has ended.

As in py-adtools, a program shares a process with the evaluator (`evaluate_program`) that scores it. So it can forge its score: change what
scores it, read what is expected, or write the answer of the whole call. It cannot reach beyond its own call, and its answer is plain data
unless `trust` allows more. For scores that count, use `sandtimer.Sandbox.judge(program, cases, entry=…)`, which keeps what is expected
outside and compares it there with what the program's function returned.

The server of py-adtools is `sandtimer.adtools.auto_server`.
"""

from .evaluator import PyEvaluator, PyEvaluatorRay
from .sandbox import ExecutionResults, SandboxExecutor, SandboxExecutorRay, sandbox_run

__all__ = [
    "ExecutionResults",
    "PyEvaluator",
    "PyEvaluatorRay",
    "SandboxExecutor",
    "SandboxExecutorRay",
    "sandbox_run",
]
