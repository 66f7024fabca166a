"""Evaluators of Python programs that are given as strings."""

from __future__ import annotations

import ast
import time
import traceback
from abc import ABC, abstractmethod
from typing import Any, Callable, Optional, Union

from .sandbox import ExecutionResults, SandboxExecutor, SandboxExecutorRay

__all__ = ["PyEvaluator", "PyEvaluatorRay"]


class PyEvaluator(ABC):
    """Evaluates programs: override `evaluate_program`, then call `secure_evaluate`.

    The program and `evaluate_program` share a process, so the program can reach what the evaluator
    holds, and can answer in its place, with any score: hold no expected results in it, and check
    what matters after the call; or use `sandtimer.Sandbox.judge(program, cases, entry=…)`, which
    compares outside.

    Args:
        exec_code: Whether the program is executed, and its functions and classes are passed to
            `evaluate_program`; otherwise these are None.
        find_and_kill_children_evaluation_process: As for `SandboxExecutor`.
        debug_mode: As for `SandboxExecutor`.
        join_timeout_seconds: As for `SandboxExecutor`.
        **executor_parameters: The other parameters of `SandboxExecutor`.

    Examples:
        >>> from sandtimer.adtools import PyEvaluator
        >>> class Score(PyEvaluator):
        ...     def evaluate_program(self, program_str, functions, function_list, classes, class_list, **kwargs):
        ...         return sum(functions["play"](move) for move in range(5))
        >>> Score().secure_evaluate("def play(move): return move * move", timeout_seconds=5)["result"]
        30
    """

    def __init__(
        self,
        exec_code: bool = True,
        find_and_kill_children_evaluation_process: bool = False,
        debug_mode: bool = False,
        *,
        join_timeout_seconds: int = 10,
        **executor_parameters: Any,
    ) -> None:
        self.debug_mode = debug_mode
        self.exec_code = exec_code
        flag = executor_parameters.pop("recur_kill_eval_proc", find_and_kill_children_evaluation_process)
        self.sandbox_executor = SandboxExecutor(
            self, flag, debug_mode, join_timeout_seconds=join_timeout_seconds, **executor_parameters
        )

    @abstractmethod
    def evaluate_program(
        self,
        program_str: str,
        callable_functions_dict: Optional[dict[str, Callable[..., Any]]],
        callable_functions_list: Optional[list[Callable[..., Any]]],
        callable_classes_dict: Optional[dict[str, Callable[..., Any]]],
        callable_classes_list: Optional[list[Callable[..., Any]]],
        **kwargs: Any,
    ) -> Any:
        """Evaluates a program. Subclasses override it.

        Args:
            program_str: The source of the program.
            callable_functions_dict: The functions that it defines, by name.
            callable_functions_list: The functions, in their order.
            callable_classes_dict: The classes that it defines, by name.
            callable_classes_list: The classes, in their order.
            **kwargs: The keyword arguments of `evaluate` or `secure_evaluate`.

        Returns:
            The score, or any other value.

        Examples:
            >>> from sandtimer.adtools import PyEvaluator
            >>> class Length(PyEvaluator):
            ...     def evaluate_program(self, program_str, functions, function_list, classes, class_list, **kwargs):
            ...         return len(program_str) + kwargs["bonus"]
            >>> Length().evaluate("x = 1", bonus=10)["result"]
            15
        """

    def _exec_and_get_res(self, program: Any, **kwargs: Any) -> Any:
        text = str(program)
        if not self.exec_code:
            return self.evaluate_program(text, None, None, None, None, **kwargs)
        body = ast.parse(text).body
        names: dict[str, Any] = {}
        exec(text, names)
        functions = [each.name for each in body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
        classes = [each.name for each in body if isinstance(each, ast.ClassDef)]
        return self.evaluate_program(
            text,
            {name: names[name] for name in functions},
            [names[name] for name in functions],
            {name: names[name] for name in classes},
            [names[name] for name in classes],
            **kwargs,
        )

    def evaluate(self, program: Any, **kwargs: Any) -> ExecutionResults:
        """Evaluates a program in this process, without a sandbox and without limits.

        Args:
            program: The source, or an object whose `str` is the source.
            **kwargs: Keyword arguments of `evaluate_program`.

        Examples:
            >>> from sandtimer.adtools import PyEvaluator
            >>> class Count(PyEvaluator):
            ...     def evaluate_program(self, program_str, functions, function_list, classes, class_list, **kwargs):
            ...         return len(functions)
            >>> Count().evaluate("def a(): pass")["result"]
            1
        """
        started = time.perf_counter()
        try:
            value, why_not = self._exec_and_get_res(program, **kwargs), ""
        except Exception:
            value, why_not = None, traceback.format_exc()
        return ExecutionResults(result=value, evaluate_time=time.perf_counter() - started, error_msg=why_not)

    def secure_evaluate(
        self,
        program: Any,
        timeout_seconds: Union[int, float, None] = None,
        redirect_to_devnull: bool = False,
        **kwargs: Any,
    ) -> ExecutionResults:
        """Evaluates a program in a sandbox; see `SandboxExecutor.secure_execute`.

        Args:
            program: The source, or an object whose `str` is the source.
            timeout_seconds: None for unlimited; 0 is an immediate timeout.
            redirect_to_devnull: Whether the output is discarded.
            **kwargs: Keyword arguments of `evaluate_program`.

        Examples:
            >>> from sandtimer.adtools import PyEvaluator
            >>> class Count(PyEvaluator):
            ...     def evaluate_program(self, program_str, functions, function_list, classes, class_list, **kwargs):
            ...         return len(functions)
            >>> Count().secure_evaluate("while True: pass", timeout_seconds=0.2)["error_msg"]
            'Evaluation timeout.'
        """
        return self.sandbox_executor.secure_execute(
            "_exec_and_get_res", [program], kwargs, timeout_seconds, redirect_to_devnull
        )


class PyEvaluatorRay(PyEvaluator):
    """Evaluates programs on the machines of a Ray cluster; see `SandboxExecutorRay`.

    Args:
        init_ray: As for `SandboxExecutorRay`.
        exec_code: As for `PyEvaluator`.
        debug_mode: As for `SandboxExecutor`.
        ray_rotation_max_bytes: As for `SandboxExecutorRay`.
        ray_rotation_backup_count: As for `SandboxExecutorRay`.
        **executor_parameters: The other parameters of `SandboxExecutorRay`.

    Examples:
        >>> from sandtimer.adtools import PyEvaluatorRay
        >>> class Count(PyEvaluatorRay):
        ...     def evaluate_program(self, program_str, functions, function_list, classes, class_list, **kwargs):
        ...         return len(functions)
        >>> Count().secure_evaluate("def a(): pass", timeout_seconds=5)["result"]  # doctest: +SKIP
        1
    """

    sandbox_executor: SandboxExecutorRay

    def __init__(
        self,
        init_ray: bool = True,
        exec_code: bool = True,
        debug_mode: bool = False,
        *,
        ray_rotation_max_bytes: int = 50 * 1024 * 1024,
        ray_rotation_backup_count: int = 1,
        **executor_parameters: Any,
    ) -> None:
        self.debug_mode = debug_mode
        self.exec_code = exec_code
        self.sandbox_executor = SandboxExecutorRay(
            self,
            init_ray,
            debug_mode,
            ray_rotation_max_bytes=ray_rotation_max_bytes,
            ray_rotation_backup_count=ray_rotation_backup_count,
            **executor_parameters,
        )

    def secure_evaluate(
        self,
        program: Any,
        timeout_seconds: Union[int, float, None] = None,
        redirect_to_devnull: bool = False,
        *,
        ray_actor_options: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> ExecutionResults:
        """Evaluates a program in a sandbox on a node of the cluster.

        Args:
            program: The source, or an object whose `str` is the source.
            timeout_seconds: None for unlimited; 0 is an immediate timeout.
            redirect_to_devnull: Whether the output is discarded.
            ray_actor_options: Resources of the actor whose node makes the call.
            **kwargs: Keyword arguments of `evaluate_program`.

        Examples:
            >>> from sandtimer.adtools import PyEvaluatorRay
            >>> class Count(PyEvaluatorRay):
            ...     def evaluate_program(self, program_str, functions, function_list, classes, class_list, **kwargs):
            ...         return len(functions)
            >>> Count().secure_evaluate("def a(): pass", ray_actor_options={"num_cpus": 1})["result"]  # doctest: +SKIP
            1
        """
        return self.sandbox_executor.secure_execute(
            "_exec_and_get_res",
            [program],
            kwargs,
            timeout_seconds,
            redirect_to_devnull,
            ray_actor_options=ray_actor_options,
        )
