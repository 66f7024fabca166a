"""What `sandtimer.adtools.SandboxExecutorRay` runs on: pools that its calls share.

Owns those pools: one for each set of actor options and of parameters of the pool. They end with Ray, and those unused the
longest are closed.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import OrderedDict
from typing import Any, Iterator, Mapping

import ray

from .._locks import Guard
from ..sandbox._sandbox import Sandbox
from ..sandbox._shared import PRELOAD
from ._pool import POOL_OPTIONS, Pool

_MAX_IDLE_POOLS = 4

class _Kept:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.users = 0


_guard = Guard()
_kept: OrderedDict[str, _Kept] = OrderedDict()


def initialize(init_ray: bool, rotation_max_bytes: int, backup_count: int) -> None:
    """Starts Ray, or joins it.

    Args:
        init_ray: Whether this is wanted at all.
        rotation_max_bytes: Size of the files of the workers' output, in bytes.
        backup_count: How many such files are retained.

    Examples:
        >>> from sandtimer import ray
        >>> ray.initialize(True, 50 << 20, 1)  # doctest: +SKIP
    """
    if not init_ray or ray.is_initialized():
        return
    os.environ["RAY_ROTATION_MAX_BYTES"] = str(rotation_max_bytes)
    os.environ["RAY_ROTATION_BACKUP_COUNT"] = str(backup_count)
    ray.init(ignore_reinit_error=True, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=True)


@contextlib.contextmanager
def sandbox(parameters: Mapping[str, Any], actor_options: Mapping[str, Any]) -> Iterator[Pool]:
    """Provides a shared pool with these parameters for one call, when its actors are ready.

    Args:
        parameters: The parameters of `Sandbox`.
        actor_options: The options of the actors.

    Examples:
        >>> from sandtimer import ray
        >>> with ray.sandbox({"timeout": 5}, {}) as pool:  # doctest: +SKIP
        ...     pool.call(abs, -1)
        1
    """
    pool_options = {name: parameters[name] for name in POOL_OPTIONS if name in parameters}
    if pool_options.get("python") is None and pool_options.get("preload", ()) is not None:
        pool_options["preload"] = (PRELOAD, *pool_options.get("preload", ()))
    kept, stale = _take(pool_options, actor_options)
    for pool in stale:
        pool.close()
    try:
        kept.pool._nodes.wait()
        yield kept.pool._view(Sandbox(**{**parameters, "gpu": False}))
    finally:
        with _guard.lock:
            kept.users -= 1


def _take(pool_options: Mapping[str, Any], actor_options: Mapping[str, Any]) -> tuple[_Kept, list[Pool]]:
    # Actors end with the connection to Ray that they were made through.
    session = ray.get_runtime_context().get_worker_id() if ray.is_initialized() else ""
    key = repr((session, sorted(pool_options.items()), sorted(actor_options.items())))
    with _guard.lock:
        kept = _kept.pop(key, None) or _Kept(Pool(actor_options=actor_options, **pool_options))
        _kept[key] = kept
        kept.users += 1
        idle = [name for name, each in _kept.items() if each.users == 0]
        return kept, [_kept.pop(name).pool for name in idle[: max(0, len(_kept) - _MAX_IDLE_POOLS)]]
