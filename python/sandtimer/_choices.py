"""Types of parameters that take one of a few words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Literal, Optional, TypedDict, Union

Start = Literal["zygote", "fork", "spawn"]
Trust = Literal["data", "pickle"]
Stdout = Literal["capture", "drop"]
# A tier, or a kill class.
Require = Literal["T0", "T1", "T2", "T3", "K0", "K1", "K2", "K3"]
Language = Literal["python", "javascript", "typescript", "bash"]
Stream = Literal["stdout", "stderr"]
Links = Literal["inside", "keep"]
RunStatus = Literal["running", "ended"]
OnOutputLimit = Literal["drop", "end"]
StallBy = Literal["output", "progress"]
OnTaskTimeout = Literal["notify", "end"]
Complexity = Literal["simple", "moderate", "complex"]
BreakerState = Literal["open", "closed"]
JobState = Literal["scheduled", "queued", "leased", "ended", "dead", "cancelled"]
Seconds = Union[int, float, None]
Size = Union[int, str, None]


class SandboxOptions(TypedDict, total=False):
    """The parameters of `Sandbox` besides `timeout`."""

    cpu: Seconds
    stall: Seconds
    grace: Seconds
    memory: Size
    processes: Optional[int]
    output: Size
    network: bool
    preload: Optional[Sequence[str]]
    python: Union[str, "os.PathLike[str]", None]
    start: Start
    trust: Trust
    results: Sequence[type]
    stdout: Stdout
    seed: Optional[int]
    workers: Optional[int]
    require: Optional[Require]
    gpu: bool
    result_bytes: Size
    force: bool
    warn_before: Seconds
    warn_signal: Union[int, str, None]
    paths: Iterable[Union[str, "os.PathLike[str]"]]
