"""The words of other tools for what has another name here, for the messages that refuse them.

A word in this table leads to a parameter that the called function has, to what does it elsewhere, or to no suggestion: never
to a name that only looks like it. Any other word is taken for a misspelling, and must be close to be corrected.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable
from typing import Any, Callable, TypeVar

from .errors import InvalidArgumentTypeError

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_MAX_LENGTH = 64
#: How alike a misspelling is to what is meant, of 1.
_MIN_LIKENESS = 0.8

#: Other tools' names, and ours: of these, the first that a function has is meant.
_NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "timeout_s timeout_sec timeout_secs timeout_seconds timeout_ms time_limit hard_time_limit job_timeout run_timeout "
        "execution_timeout max_time max_runtime max_execution_time wall wall_ms wall_time walltime ttl deadline time_out",
        ("timeout", "timeout_seconds", "max_runtime_seconds", "total"),
    ),
    ("timeout", ("timeout_seconds", "max_runtime_seconds", "total")),
    ("soft_time_limit soft_timeout soft_limit", ("soft", "warn_before", "warn")),
    ("warn_ms", ("warn_before", "warn")),
    ("warn", ("warn_before",)),
    ("warn_before", ("warn",)),
    ("kill_after kill_after_ms grace_period grace_seconds grace_ms stop_grace_period terminate_timeout", ("grace",)),
    ("cpu_time cpu_limit cpu_time_limit cpu_ms cpu_seconds max_cpu_time rlimit_cpu", ("cpu",)),
    ("mem mem_limit memory_limit memory_bytes memory_mb max_memory ram ram_mb max_ram rlimit_as", ("memory",)),
    ("pids pids_limit nproc max_processes process_limit max_pids ulimit_nproc", ("processes",)),
    ("max_output max_output_bytes output_bytes output_limit max_stdout stdout_limit output_size", ("output",)),
    ("max_result max_result_bytes result_limit result_size max_result_size", ("result_bytes",)),
    ("disk_bytes disk_limit max_disk file_size fsize storage size_limit", ("disk",)),
    ("nofile fds max_open_files open_files_limit", ("open_files",)),
    ("idle_timeout no_output_timeout inactivity_timeout silence_timeout stall_ms stall_timeout", ("stall", "stall_timeout_seconds", "idle")),
    ("idle_ms ttl_idle", ("idle",)),
    ("net internet allow_network enable_network network_enabled network_access allow_internet", ("network",)),
    ("env envs environ env_vars env_var variables", ("environment",)),
    ("cwd workdir work_dir working_dir working_directory chdir dir current_dir", ("directory",)),
    ("cmd cmdline command_line shell_command args argv shell", ("command", "argv")),
    ("command", ("argv",)),
    ("script source source_code snippet python_code cell program", ("code", "program")),
    ("lang runtime kernel kernel_name", ("language",)),
    ("input stdin_data stdin_text", ("stdin",)),
    ("executable python_path python_executable interpreter", ("python",)),
    ("start_method mp_context method", ("start",)),
    ("imports modules preload_modules import_modules preimport", ("preload",)),
    ("max_workers num_workers n_workers pool_size n_jobs parallelism", ("workers", "slots", "num_cpus")),
    ("concurrency worker_concurrency threads num_threads", ("slots", "workers")),
    ("workers", ("slots",)),
    ("random_seed rng_seed", ("seed",)),
    ("cuda gpus use_gpu", ("gpu", "num_gpus")),
    ("volumes volume mount mounts bind binds sys_path pythonpath", ("paths", "workspace")),
    ("isolation min_isolation isolation_level", ("require",)),
    ("base_url address server endpoint host", ("url",)),
    ("api_key apikey auth key bearer", ("token",)),
    ("retries max_retries max_attempts tries max_tries attempt_limit", ("attempts",)),
    ("wait delays backoff delay wait_fixed retry_delay retry_backoff interval", ("pauses",)),
    ("exceptions exception retry_on retry_if expected_exception autoretry_for expected_exceptions", ("on",)),
    ("max_delay max_elapsed total_timeout stop_after_delay", ("total",)),
    ("fallbacks fallback_function default", ("fallback",)),
    ("circuit_breaker", ("breaker",)),
    ("fail_max failure_threshold max_failures threshold failures_threshold", ("failures", "max_failures")),
    ("failures", ("max_failures",)),
    ("reset_timeout recovery_timeout open_timeout timeout_duration", ("open_seconds",)),
    ("success_threshold successes_threshold", ("successes",)),
    ("failure_rate failure_rate_threshold error_rate", ("rate",)),
    ("window_size sliding_window sliding_window_size", ("window",)),
    ("minimum_calls minimum_number_of_calls min_calls volume_threshold", ("least",)),
    ("max_steps max_iterations max_iter recursion_limit steps turns", ("max_turns", "iterations")),
    ("limit count max_results page_size", ("most",)),
    ("job_id task_id run_id uuid", ("id",)),
    ("job_ids task_ids", ("ids",)),
    ("queue queue_name queue_names", ("queues", "queue")),
    ("tasks functions task_map", ("handlers",)),
    ("visibility_timeout ack_wait lock_duration lease_seconds lease_ms ack_timeout stalled_interval", ("lease",)),
    ("status", ("state",)),
    ("database redis_url broker broker_url backend store_url nats_url", ("store", "state_dir")),
    ("directory path state_directory", ("state_dir",)),
    ("job payload task", ("spec",)),
)

#: What a job's spec has instead, for functions that take one.
_IN_SPEC: tuple[tuple[str, str], ...] = (
    ("wall wall_ms timeout time_limit hard_time_limit timeout_ms timeout_seconds job_timeout ttl", "wall_ms"),
    ("eta run_at scheduled_at scheduled_for defer_until not_before_ms", "not_before_ms"),
    ("delay countdown delay_ms defer_by", "delay_ms"),
    ("retries max_retries max_attempts tries attempts autoretry_for", "attempts"),
    ("backoff retry_delay retry_backoff backoff_ms", "backoff_ms"),
    ("cmd command args argv", "command"),
    ("script source source_code code", "code"),
    ("env environment env_vars", "env"),
    ("cwd workdir work_dir working_dir working_directory directory", "cwd"),
    ("mem memory memory_limit mem_limit memory_bytes", "limits.memory_bytes"),
    ("priority", "priority"),
    ("queue queue_name", "queue"),
    ("name title", "name"),
    ("handler function func fn", "handler"),
    ("kwargs input arguments", "input"),
    ("result_ttl keep_result retention retention_ms", "retention_ms"),
    ("dedup_id job_id unique_id idempotency_key", "idempotency_key"),
    ("depends_on dependencies needs after parents", "after"),
    ("rate_limit rate throttle limiter rate_limiter", "rate"),
    ("map fan_out foreach", "map"),
    ("on_failure on_success callback callbacks webhook webhook_url", "webhook"),
)

#: What does it where no parameter does: words, the parameters by which the functions are known, and the remedy.
_ELSEWHERE: tuple[tuple[str, frozenset[str], str], ...] = (
    (
        "retries max_retries max_attempts tries attempts backoff retry_delay retry_backoff",
        frozenset(("timeout", "total", "command", "code")),
        "call it through sandtimer.retry(attempts, pauses)",
    ),
    (
        "soft_time_limit soft_timeout soft_limit",
        frozenset(("timeout",)),
        "use timeout, and grace for what is left until the hard limit",
    ),
    (
        "soft soft_time_limit soft_timeout soft_limit",
        frozenset(("handlers", "spec")),
        "it belongs to the handler: sandtimer.jobs.Handler(function, soft=…)",
    ),
    (
        "cpus num_cpus cores cpu_count nano_cpus",
        frozenset(("cpu",)),
        "the number of processors is not limited; cpu limits the processor time, in seconds",
    ),
    (
        "delay countdown eta run_at scheduled_at cron schedule crontab",
        frozenset(("timeout",)),
        "what begins later is a job: sandtimer.jobs.submit",
    ),
    (
        "cron schedule crontab every repeat time_zone timezone",
        frozenset(("spec",)),
        "a job that recurs is in a schedule: sandtimer.jobs.schedule",
    ),
    (
        "visibility_timeout ack_wait lock_duration acks_late",
        frozenset(("spec", "timeout")),
        "it belongs to the worker: sandtimer.jobs.work(lease=…)",
    ),
)

#: Words of other tools that nothing here has.
_WITHOUT = frozenset("cron schedule crontab every repeat rate_limit user image privileged hostname ulimits swap expires eta".split())

_UNITS = {
    "timeout": ", in seconds",
    "cpu": ", in seconds of processor time",
    "stall": ", in seconds",
    "grace": ", in seconds",
    "idle": ", in seconds",
    "warn": ", in seconds before the timeout",
    "warn_before": ", in seconds before the timeout",
    "total": ", in seconds",
    "soft": ", in seconds",
    "lease": ", in seconds",
    "open_seconds": ", in seconds",
    "pauses": ", a list of seconds",
    "max_runtime_seconds": ", in seconds",
    "memory": ', in bytes or as "512MB"',
    "output": ', in bytes or as "512MB"',
    "disk": ', in bytes or as "512MB"',
}


def remedy(name: str, known: Iterable[str]) -> str:
    """What to use instead of a parameter that a function does not have, for the end of a message; empty without one."""
    known = list(known)
    if len(name) > _MAX_LENGTH:
        return ""
    given = _normal(name)
    if given in known:
        return f"use {given}{_UNITS.get(given, '')}"
    if "spec" in known:
        fields = [field for theirs, field in _IN_SPEC if given in theirs.split()]
        if fields:
            return f"put {fields[0]} into the spec"
    candidates = [ours for theirs, ours in _NAMES if given in theirs.split()]
    found = next((one for ours in candidates for one in ours if one in known), None)
    if found is not None:
        return f"use {found}{_UNITS.get(found, '')}"
    texts = [(where, text) for theirs, where, text in _ELSEWHERE if given in theirs.split()]
    elsewhere = next((text for where, text in texts if where.intersection(known)), None)
    if elsewhere is not None:
        return elsewhere
    if candidates or texts or given in _WITHOUT:
        return ""
    # Costs memory that every process of a caller would have for good.
    import difflib

    near = difflib.get_close_matches(given, known, 1, _MIN_LIKENESS)
    return f"use {near[0]}{_UNITS.get(near[0], '')}" if near else ""


def _normal(name: str) -> str:
    """A name as it is compared: `timeLimit` and `time-limit` are `time_limit`."""
    pieces = []
    for before, character in zip(" " + name, name):
        if character.isupper() and (before.islower() or before.isdigit()):
            pieces.append("_")
        pieces.append("_" if character in "- ." else character.lower())
    return "".join(pieces)


def rejection(function: str, name: str, value: Any, known: Iterable[str]) -> InvalidArgumentTypeError:
    """The exception for a parameter that a function does not have."""
    known = sorted(known)
    text = remedy(name, known) or f"use one of {', '.join(known)}"
    return InvalidArgumentTypeError(f"{name}={value!r:.200}: {function} has no such parameter; {text}")


def named(function: F) -> F:
    """`function`, which refuses parameters that it does not have with what to use instead."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return function
    known = frozenset(each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)) - {"self"}
    shown = function.__qualname__.replace(".__init__", "")

    def check(kwargs: dict[str, Any]) -> None:
        for name, value in kwargs.items():
            if name not in known:
                raise rejection(shown, name, value, known)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def checked(*args: Any, **kwargs: Any) -> Any:
            check(kwargs)
            return await function(*args, **kwargs)

    else:

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            check(kwargs)
            return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


def named_parameters(kind: C) -> C:
    """A class whose constructor and public methods are `named`."""
    for name, function in list(vars(kind).items()):
        if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, named(function))
    return kind
