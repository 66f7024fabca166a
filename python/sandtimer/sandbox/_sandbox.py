"""The public class `Sandbox`: its parameters, and what its users call. Calls take the path of
`_calls`.
"""

from __future__ import annotations

import os
import signal
import warnings
from typing import Any, Callable, Iterable, Iterator, Literal, Mapping, Optional, Sequence, TypeVar, Union

from .. import _arguments, _native
from .._choices import Require, Start, Stdout, Trust
from .._outcome import Outcome, not_executed
from .._vocabulary import named_parameters
from ..agents._run_budget import RunBudget, noted_run
from ..agents._timeouts import TimeoutManager
from ..errors import InvalidArgumentError, InvalidArgumentTypeError
from . import _context, _installation, _job, _judge
from ._answers import awaited_value_of, value_of
from ._calls import Calls, outcome_itself
from ._futures import CallFuture
from ._pool import Pool

T = TypeVar("T")
Seconds = Union[int, float, None]
Size = Union[int, str, None]

_UNSET: Any = object()


@named_parameters
class Sandbox(Calls):
    """Runs functions, programs and commands in processes of their own, under hard limits.

    Durations are in seconds. Sizes are bytes, or strings such as "512MB" in powers of 1024. None
    and 0 mean unlimited.

    Functions can import from the directories of this process's `sys.path`. Code that is given as a
    string (`exec`, `judge`, `context`) and commands see only the standard library and the installed
    packages, not the directory of the calling script; `paths` adds directories.

    A sandbox is a context manager; at its end it is closed.

    Args:
        timeout: Elapsed time of each call.
        cpu: Processor time of each call.
        stall: Time without output and without use of the processor.
        grace: Time between SIGTERM and SIGKILL when a limit ends a call.
        memory: Memory of a call and of all processes that it starts.
        processes: Number of processes of a call.
        output: How much is stored of stdout and of stderr each.
        network: Whether calls have the network of the host; otherwise they have none.
        preload: Modules that are imported before calls arrive, besides those that the functions
            need. None imports neither. With `start="fork"` the modules are those of this process.
        python: Another interpreter: a path, or a name on PATH.
        start: How the process of a call is made: "zygote" forks a warm interpreter; "fork" forks
            this process, so that the call has its objects and all of its memory (rejected if this
            process has threads or uses CUDA, unless `force`); "spawn" starts an interpreter.
        trust: "data" rebuilds only plain values, arrays and the classes of `results`. "pickle"
            unpickles what the call returns, which can execute code in this process: only for
            trusted code.
        results: Classes that "data" rebuilds too.
        stdout: "capture" stores what a call prints; "drop" discards it.
        seed: Seed of the random numbers, the same in every call; None for different ones.
        workers: How many calls `submit`, `map` and `arun` run at a time; None for one on each
            processor.
        require: The least isolation: a tier such as "T3", or a kill class such as "K2".
        gpu: Whether calls and commands have the GPUs of the host. Needs `start="spawn"`; rejected
            if the host has none.
        result_bytes: Size of a result.
        force: Forks also if this process has threads or uses CUDA.
        warn_before: How long before the timeout and the cpu limit `warn_signal` is sent to the
            processes that handle it; `outcome.notices` has their number.
        warn_signal: That signal, by number or name.
        paths: Directories that all code of this sandbox may read and import from. Files that only
            their owner may read are not shown.

    Raises:
        InvalidArgumentError: A parameter has a value that cannot be used.
        InvalidArgumentTypeError: A parameter has a type that cannot be used.
        InvalidLimitError: The value of a limit cannot be enforced.
        SandboxUnavailableError: `gpu=True`, and the host has no GPU that a run could open.
        UnsupportedPlatform: This is not Linux.

    Examples:
        >>> import sandtimer
        >>> box = sandtimer.Sandbox(timeout=2.0, memory="512MB")
        >>> box.call(lambda x: x * 7, 6)
        42
        >>> box.close()
    """

    def __init__(
        self,
        timeout: Seconds = None,
        *,
        cpu: Seconds = None,
        stall: Seconds = None,
        grace: Seconds = 0.0,
        memory: Size = None,
        processes: Optional[int] = None,
        output: Size = "10MB",
        network: bool = False,
        preload: Optional[Sequence[str]] = (),
        python: Union[str, "os.PathLike[str]", None] = None,
        start: Start = "zygote",
        trust: Trust = "data",
        results: Sequence[type] = (),
        stdout: Stdout = "capture",
        seed: Optional[int] = None,
        workers: Optional[int] = None,
        require: Optional[Require] = None,
        gpu: bool = False,
        result_bytes: Size = "1GB",
        force: bool = False,
        warn_before: Seconds = None,
        warn_signal: Union[int, str, None] = None,
        paths: Iterable[Union[str, "os.PathLike[str]"]] = (),
    ) -> None:
        _check_start(start, python)
        if workers is not None:
            _arguments.count("workers", workers, 1, ", or None for one each processor")
        if _arguments.gpu(gpu, start):
            _native.check_gpu()
        learns = preload is not None and start == "zygote"
        modules = _arguments.modules(() if preload is None else preload)
        if start == "fork" and modules:
            raise InvalidArgumentError(
                f'preload={modules!r:.200}: start="fork" forks this process with the modules that it has; '
                "import them here, and leave preload out"
            )
        _check_answers(trust, stdout)
        self._limits = {
            "timeout": timeout,
            "cpu": cpu,
            "stall": stall,
            "grace": grace,
            "memory": memory,
            "processes": processes,
            "output": output,
            "result_bytes": result_bytes,
            "warn_before": warn_before,
            "warn_signal": warn_signal,
            "require": require,
        }
        self._checked = _arguments.limits(self._limits)
        self._start, self._force = start, _arguments.flag("force", force)
        self._options = {"seed": _arguments.seed(seed), "stdout": stdout}
        self._by_value, self._budget = set(), None
        self._trust = trust
        self._results = {(kind.__module__, kind.__qualname__): kind for kind in _arguments.classes(results)}
        profile: dict[str, Any] = {
            "interpreter": _arguments.interpreter(python),
            "preload": modules,
            "learned": [],
            "paths": _arguments.paths() if python is None else None,
            "network": _arguments.flag("network", network),
            "gpu": gpu,
            "shown": _arguments.shown_directories(paths),
        }
        _warn_if_sigchld_is_ignored()
        self._make_pools(profile, workers, learns)

    def _make_pools(self, profile: dict[str, Any], workers: Optional[int], learns: bool) -> None:
        """Makes the pool of calls, and another one for text if that is shown less, or must not have
        what functions need.
        """
        processors = len(os.sched_getaffinity(0))
        self._pool = self._code_pool = Pool(profile, 2 * processors, workers or processors, learns)
        installed = None if profile["paths"] is None else _installation.of_installed(profile["paths"])
        if learns or installed != profile["paths"]:
            self._code_pool = Pool({**profile, "paths": installed}, 2 * processors, workers or processors)

    # Views and life

    def limits(
        self,
        *,
        timeout: Seconds = _UNSET,
        cpu: Seconds = _UNSET,
        stall: Seconds = _UNSET,
        grace: Seconds = _UNSET,
        memory: Size = _UNSET,
        processes: Optional[int] = _UNSET,
        output: Size = _UNSET,
        result_bytes: Size = _UNSET,
        warn_before: Seconds = _UNSET,
        warn_signal: Union[int, str, None] = _UNSET,
    ) -> Sandbox:
        """Returns a view of the same pool with other limits.

        Limits that are not given are those of this sandbox. Closing the view closes the pool.

        Args:
            timeout: Elapsed time of each call, in seconds.
            cpu: Processor time of each call, in seconds.
            stall: Seconds without output and without use of the processor.
            grace: Seconds between SIGTERM and SIGKILL.
            memory: Memory of a call, in bytes or as "512MB".
            processes: Number of processes of a call.
            output: How much is stored of stdout and of stderr each.
            result_bytes: Size of a result.
            warn_before: Seconds before the limits at which `warn_signal` is sent.
            warn_signal: That signal, by number or name.

        Raises:
            InvalidLimitError: The value of a limit cannot be enforced.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=60.0) as box:
            ...     box.limits(timeout=0.1).run(exec, "while True: pass").ending
            'timeout'
        """
        limits = {
            "timeout": timeout,
            "cpu": cpu,
            "stall": stall,
            "grace": grace,
            "memory": memory,
            "processes": processes,
            "output": output,
            "result_bytes": result_bytes,
            "warn_before": warn_before,
            "warn_signal": warn_signal,
        }
        return self._with_limits({name: value for name, value in limits.items() if value is not _UNSET})

    def within(self, budget: TimeoutManager, *, task: Optional[str] = None) -> Sandbox:
        """Returns a view of the same pool whose runs belong to an agent with this budget.

        The engine ends each run also at the limits of the budget: early enough for the wrap-up
        turn, if there is one. While a run is active, the agent is not idle. Contexts cannot be
        opened by such a view.

        Args:
            budget: The budget, whose clock is that of the system.
            task: The task that the runs are part of, or None. With `on_task_timeout="end"` the task
                ends its runs.

        Raises:
            InvalidArgumentError: The budget has a `clock` of its own.
            InvalidArgumentTypeError: The budget is not a `TimeoutManager`, or the task is not a
                string.

        Examples:
            >>> import sandtimer
            >>> manager = sandtimer.TimeoutManager(max_runtime_seconds=20.5, wrap_up=20.0)
            >>> with sandtimer.Sandbox() as box:
            ...     outcome = box.within(manager).command(["sleep", "60"])
            >>> outcome.ending, outcome.verdict.layer, manager.check_timeout()["state"]
            ('timeout', 'loop', 'wrap_up')
        """
        if not isinstance(budget, TimeoutManager):
            raise InvalidArgumentTypeError(f"budget={budget!r:.200} is of type {type(budget).__name__}: use a TimeoutManager")
        budget._check_engine()
        if task is not None:
            _arguments.text("task", task, "use the name of a task that was started, or None")
        view = self._with_limits({})
        view._budget = RunBudget(budget, task)
        return view

    def warm(self, count: int = 1) -> None:
        """Waits until processes are warm for calls of functions.

        Only `start="zygote"` has warm processes. Code that is given as a string has others, from
        its first run on.

        Args:
            count: How many processes.

        Raises:
            ProfileRefusedError: The interpreter, or a module of `preload`, cannot be used.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox() as box:
            ...     box.warm(2)
            ...     box.stats()["ready"] >= 2
            True
        """
        self._pool.check_open()
        _arguments.count("count", count, 0)
        if self._start == "zygote":
            self._pool.warm(count)

    def stats(self) -> dict[str, Any]:
        """Returns figures of the pool.

        Returns:
            A dictionary: "ready" and "wanted" processes; "calls"; "cold" calls, which found no warm
            process; "lost" processes, which ended while they waited; "zygotes" that were started;
            "version" of the interpreter; "workers", how many calls of `submit`, `map` and `judge`
            run at a time; "preloaded" modules, which functions need and which are imported once for
            all calls; "not_preloaded", those that cannot be, each with the reason. Zeros unless
            `start="zygote"`.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(workers=3) as box:
            ...     value = box.call(abs, -1)
            ...     box.stats()["calls"], box.stats()["workers"]
            (1, 3)
        """
        self._pool.check_open()
        if self._start == "zygote":
            return self._pool.stats()
        counts = dict.fromkeys(("ready", "wanted", "calls", "cold", "lost", "zygotes"), 0)
        return {**counts, "version": "", "preloaded": [], "not_preloaded": {}, "workers": self._pool.workers}

    def close(self) -> None:
        """Ends the warm processes and the contexts.

        Active calls run to their end; later ones raise `SandboxUnavailableError`.

        Examples:
            >>> import sandtimer
            >>> box = sandtimer.Sandbox()
            >>> box.close()
        """
        for pool in {self._pool, self._code_pool}:
            pool.close()

    def __copy__(self) -> Sandbox:
        return self._with_limits({})

    def __reduce__(self) -> Any:
        raise InvalidArgumentTypeError("a sandbox belongs to the process that made it: make another where it is needed")

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Calls

    def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Outcome:
        """Calls a function in a process of its own. Never raises for what the function did.

        Args:
            fn: The function.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Raises:
            UnserializableError: An argument cannot be sent.
            ProfileRefusedError: The interpreter, or a module of `preload`, cannot be used.
            IsolationRefusedError: The host cannot provide the isolation that `require` names.
            SandboxUnavailableError: The sandbox is closed, or the system rejected an operation.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0) as box:
            ...     outcome = box.run(divmod, 1, 0)
            >>> outcome.ending, type(outcome.error).__name__
            ('raised', 'ZeroDivisionError')
        """
        return self._perform(self._make(fn, args, kwargs), lambda _: None)

    def call(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Calls a function in a process of its own, and returns its value.

        Args:
            fn: The function.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Raises:
            DeadlineExceeded: A time limit ended the call.
            OutOfMemory: The call needed too much memory.
            LimitExceededError: A limit of processes, output or disk ended the call.
            Crashed: The process ended without a result.
            Exception: What the function raised; a `RemoteError` if its class is not rebuilt here.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0) as box:
            ...     box.call(divmod, 7, 3)
            (2, 1)
        """
        return value_of(self.run(fn, *args, **kwargs))  # type: ignore[no-any-return]

    def exec(
        self,
        code: str,
        *,
        language: Literal["python"] = "python",
        stdin: Union[str, bytes, None] = None,
        name: str = "/sandtimer/main.py",
    ) -> Outcome:
        r"""Runs a whole program. Never raises for what the program did.

        The value of the outcome is that of the last line, if it is an expression.

        Args:
            code: The source of the program.
            language: The language: "python".
            stdin: What the program reads from its standard input.
            name: The name of the program in tracebacks.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0) as box:
            ...     outcome = box.exec("print('hello', input())\n6 * 7", stdin="world")
            >>> outcome.stdout, outcome.value
            ('hello world\n', 42)
        """
        if language != "python":
            raise InvalidArgumentError(f'language={language!r}: use "python"')
        _arguments.text("code", code, "use the program's text")
        text = b"" if stdin is None else _arguments.encoded("stdin", stdin)
        job = _job.of_program(code, text, _arguments.text("name", name), self._options)
        return self._perform(job, lambda _: None)

    def command(
        self, argv: Sequence[Union[str, bytes, "os.PathLike[Any]"]], *, stdin: Union[str, bytes, None] = None
    ) -> Outcome:
        """Runs a program of the host, under the limits of the sandbox. Never raises for what it did.

        The program sees the same files as programs of `exec`, and starts in an empty directory of
        its own. If there is no such program the exit code is 127, and if it cannot be executed 126;
        `stderr` has the reason. `start`, `preload`, `trust` and `seed` have no effect on it.

        Args:
            argv: The program and its arguments.
            stdin: What it reads from its standard input; None for no input.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0) as box:
            ...     outcome = box.command(["sh", "-c", "tr a-z A-Z; exit 3"], stdin="hello")
            >>> outcome.stdout, outcome.exit_code
            ('HELLO', 3)
        """
        text = None if stdin is None else _arguments.encoded("stdin", stdin)
        command = {"argv": _job.arguments(argv), "stdin": text, "drop": self._options["stdout"] == "drop"}
        self._pool.check_open()
        command["scope"] = self._bound()
        with noted_run(self._budget):
            try:
                call = _native.engine().command(self._code_pool.profile, command, self._checked)
            except FileNotFoundError as error:
                return not_executed(127, str(error))
            except PermissionError as error:
                return not_executed(126, str(error))
            return self._finish(call)

    def context(
        self,
        language: Literal["python"] = "python",
        *,
        environment: Optional[Mapping[str, str]] = None,
        directory: Union[str, "os.PathLike[str]", None] = None,
    ) -> _context.Context:
        """Opens a live interpreter, which retains its variables between runs.

        It has the interpreter, the preloaded modules, the network and the limits of the sandbox:
        `memory` and `processes` for the context as a whole, all others for each run that has none
        of its own. It closes with the sandbox. `start`, `seed`, `stdout` and `workers` have no
        effect on it.

        Args:
            language: The language: "python".
            environment: Variables that are added to the clean environment.
            directory: The directory inside in which it starts; None for an empty one of its own.

        Raises:
            InvalidArgumentError: The sandbox has `gpu=True` or a budget, or a parameter cannot be
                used.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0, memory="512MB") as box, box.context("python") as ctx:
            ...     outcome = ctx.run("x = 40")
            ...     ctx.run("x + 2").value
            42
        """
        if self._pool.profile["gpu"]:
            raise InvalidArgumentError(
                "gpu=True: a context is not given the GPU: its interpreter is sealed before it is opened, and copied between "
                "its runs; use calls, or open it by a sandbox without gpu"
            )
        if self._budget is not None:
            raise InvalidArgumentError("a context outlives the runs of a budget: open it by the sandbox itself")
        return _context.open_context(self, language, environment, directory)

    # Many at a time

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> CallFuture:
        """Calls a function in the background.

        Waiting for a worker does not count as run time.

        Args:
            fn: The function.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.

        Returns:
            A `concurrent.futures.Future`, whose result is what `call` returns or raises.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0) as box:
            ...     future = box.submit(pow, 2, 10)
            ...     future.result()
            1024
        """
        return self._submit(awaited_value_of, fn, args, kwargs)

    async def arun(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Outcome:
        """Awaited form of `run`. Cancelling the task ends the call."""
        # Not with the module: it takes 4 MB, which callers that await nothing can do without.
        from asyncio import wrap_future

        return await wrap_future(self._submit(outcome_itself, fn, args, kwargs))

    async def acall(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Awaited form of `call`. Cancelling the task ends the call.

        Examples:
            >>> import asyncio, sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0) as box:
            ...     asyncio.run(box.acall(pow, 2, 10))
            1024
        """
        return awaited_value_of(await self.arun(fn, *args, **kwargs))  # type: ignore[no-any-return]

    def map(
        self, fn: Callable[..., Any], items: Iterable[Any], *, total: Seconds = None, progress: bool = False
    ) -> Iterator[Outcome]:
        """Calls a function with each item. Never raises for one item.

        Each item has the limits of the sandbox.

        Args:
            fn: The function.
            items: The items.
            total: Seconds for all items together, from the first one on. Items for which no time is
                left are not started, and are timeouts.
            progress: Whether a bar is shown, by tqdm or rich.

        Returns:
            An iterator over the outcomes, in the order of the items.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0) as box:
            ...     [outcome.value for outcome in box.map(lambda x: 10 // x, [5, 0, 2])]
            [2, None, 5]
        """
        _arguments.function("fn", fn)
        _arguments.iterable("items", items)
        self._pool.check_open()
        return self._mapped(fn, items, _arguments.total(total), _arguments.flag("progress", progress))

    # Judging

    def judge(
        self,
        program: _judge.Program,
        cases: Iterable[Any],
        *,
        checker: Optional[_judge.Checker] = None,
        entry: Optional[str] = None,
        timeout: Seconds = None,
        total: Seconds = None,
        stop_early: bool = False,
        name: str = "/sandtimer/main.py",
    ) -> _judge.Judgement:
        """Runs a program or function on each case, and compares its answers here.

        Each case has a process of its own. What is expected never enters a sandbox. A program that
        is given as a string is compiled once for all cases; name the modules that it imports in
        `preload` of the sandbox, so that they are imported once. Values are always plain data:
        `trust="pickle"` is rejected.

        Args:
            program: The source of a program, with cases `(stdin, expected stdout)`; or a function,
                or the source that defines the function named by `entry`, with cases `(arguments,
                expected value)`, where the arguments are a list, a tuple, or a dictionary of
                keywords.
            cases: The cases: tuples, or dictionaries with those names.
            checker: A function `checker(case, outcome)` that returns True, False or a score, for
                runs that ended normally; or "json", which compares values as they are in JSON:
                tuples equal lists, and keys that are numbers equal their text. None: programs must
                print the same words on the same lines, and functions return an equal value, or one
                within 1e-6 of an expected float.
            entry: The name of the function, such as "solve" or "Solution.solve".
            timeout: Seconds of each case; None for the timeout of the sandbox.
            total: Seconds of all cases; the remaining ones are "not_run".
            stop_early: Whether to stop at the first case, in their order, that is not accepted.
            name: The name of the program in tracebacks.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=2.0) as box:
            ...     judgement = box.judge("print(int(input()) ** 2)", [("3", "9"), ("4", "15")])
            >>> judgement.verdicts, judgement.score
            (['accepted', 'wrong_answer'], 0.5)
        """
        return self.judge_many(
            [program],
            cases,
            checker=checker,
            entry=entry,
            timeout=timeout,
            total=total,
            stop_early=stop_early,
            name=name,
        )[0]

    def judge_many(
        self,
        programs: Iterable[_judge.Program],
        cases: Iterable[Any],
        *,
        checker: Optional[_judge.Checker] = None,
        entry: Optional[str] = None,
        timeout: Seconds = None,
        total: Seconds = None,
        stop_early: bool = False,
        name: str = "/sandtimer/main.py",
    ) -> _judge.Judgements:
        """Judges several programs by the same cases.

        Args:
            programs: The programs, each as for `judge`.
            cases: The cases, as for `judge`.
            checker: As for `judge`.
            entry: As for `judge`.
            timeout: Seconds of each case; None for the timeout of the sandbox.
            total: Seconds of all cases of each program.
            stop_early: Whether to stop each program at its first case that is not accepted.
            name: The name of the programs in tracebacks.

        Examples:
            >>> import sandtimer
            >>> with sandtimer.Sandbox(timeout=5.0) as box:
            ...     box.judge_many(["print(9)", "print(8)"], [("", "9")]).passed
            [True, False]
        """
        options = _judge.JudgingOptions(checker, entry, timeout, total, stop_early, name)
        return _judge.judge_all(self, programs, cases, options)


def _check_start(start: str, python: Any) -> None:
    if start not in ("zygote", "fork", "spawn"):
        raise InvalidArgumentError(f'start={start!r}: use "zygote", "fork" or "spawn"')
    if start == "fork" and python is not None:
        raise InvalidArgumentError('start="fork" forks this process, so python= cannot name another interpreter')


def _check_answers(trust: str, stdout: str) -> None:
    if trust not in ("data", "pickle"):
        raise InvalidArgumentError(f'trust={trust!r}: use "data" or "pickle"')
    if stdout not in ("capture", "drop"):
        raise InvalidArgumentError(f'stdout={stdout!r}: use "capture" or "drop"')


def _warn_if_sigchld_is_ignored() -> None:
    if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        warnings.warn(
            "this process ignores SIGCHLD, so the kernel keeps no exit codes of its children: programs that exit by themselves, or "
            "by a signal, end as infra_error; call signal.signal(signal.SIGCHLD, signal.SIG_DFL)",
            RuntimeWarning,
            # Names the line that makes the sandbox: above this function are the constructor and its
            # check of names.
            stacklevel=4,
        )
