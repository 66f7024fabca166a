"""Calls on a real cluster of Ray's: two nodes, on this machine.

Everything is on the loopback address, the object stores are small, and nothing is reported to anyone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from typing import Any, Iterable, Iterator

import pytest

# Read when Ray is imported, and by the processes that it starts.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"
# Else it replaces the loopback address by another of the machine's.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
pytest.importorskip("ray.cluster_utils", reason="Ray is not installed: pip install sandtimer[ray]")

import numpy
import ray
import ray_subjects as subjects
import sandtimer
from learned_subjects import plain
from ray.cluster_utils import Cluster
from sandtimer.sandbox import _job
from waiting import readable
from sandtimer.adtools import SandboxExecutorRay, sandbox_run
from sandtimer.ray import Pool
from sandtimer.ray._pool import _Work
from sandtimer.ray._references import put_back

STORE = 100 << 20
LONG = 60.0


def add_node(cluster: Any, **resources: Any) -> Any:
    return cluster.add_node(
        num_cpus=2,
        object_store_memory=STORE,
        include_dashboard=False,
        node_ip_address="127.0.0.1",
        dashboard_host="127.0.0.1",
        **resources,
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    cluster = Cluster()
    try:
        add_node(cluster, resources={"first": 1})
        add_node(cluster, resources={"second": 1}, num_gpus=1)
        ray.init(cluster.address, _node_ip_address="127.0.0.1", logging_level="ERROR", log_to_driver=False)
        yield cluster
    finally:
        started = pidfds(of_the_cluster())
        ray.shutdown()
        cluster.shutdown()
        dead = die(started)
        for each in started:
            os.close(each)
    assert dead, "something outlived the cluster"


@pytest.fixture(scope="module")
def pool(cluster: Any) -> Iterator[Pool]:
    with Pool(timeout=LONG) as pool:
        pool.warm()
        yield pool


def outcome_of(pool: Pool, fn: Any, *args: Any) -> Any:
    """Its future."""
    return pool._submit(lambda outcome: outcome, _Work(fn, args, {}))


def until(condition: Any, seconds: float = 30.0) -> bool:
    """Looks again and again, for so long at most."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def processes_with(mark: str) -> list[str]:
    found = []
    for each in pathlib.Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (each / "cmdline").read_bytes():
                    found.append(each.name)
    return found


def actors(pool: Pool) -> set[int]:
    return {each["process"] for each in pool.stats().values()}


def pidfds(processes: Iterable[str]) -> list[int]:
    """Of those that are still there."""
    descriptors = []
    for each in processes:
        with contextlib.suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(int(each)))
    return descriptors


def die(descriptors: list[int], seconds: float = 20.0) -> bool:
    """Whether the processes of these pidfds are all dead within so long."""
    limit = time.monotonic() + seconds
    for descriptor in descriptors:
        left = max(0.0, limit - time.monotonic())
        if not readable([descriptor], left):
            return False
    return True


# Calls


def test_a_call_gives_its_value_from_another_process_of_a_node(pool: Pool) -> None:
    offset = 5
    assert pool.call(lambda x, *, y: x + y + offset, 1, y=2) == 8
    outcome = pool.run(subjects.Worker().where)
    assert outcome.ok and outcome.value not in {os.getpid(), *actors(pool)}
    assert outcome.tree.survivors == 0 and outcome.usage.wall_ms >= 0 and outcome.isolation.tier != "T0"


def test_its_outcome_is_settled_and_can_be_pickled(pool: Pool) -> None:
    def divide(a: int, b: int) -> float:
        print("dividing")
        return a / b

    outcome = pickle.loads(pickle.dumps(pool.run(divide, 1, 0)))
    assert outcome.ending == "raised" and isinstance(outcome.error, ZeroDivisionError)
    assert "in divide" in str(outcome.error.__cause__) and outcome.stdout == "dividing\n"
    with pytest.raises(ZeroDivisionError):
        pool.call(divide, 1, 0)


def test_the_actors_stay_and_both_work(pool: Pool) -> None:
    before, counted = actors(pool), {name: each["calls"] for name, each in pool.stats().items()}
    assert len(before) == 2
    places = [each.value for each in pool.map(lambda _: os.getpid(), range(30))]
    assert None not in places
    assert actors(pool) == before
    assert all(each["calls"] > counted[name] for name, each in pool.stats().items())


def test_nodes_learn_the_modules_of_functions(cluster: Any) -> None:
    with Pool(timeout=LONG) as pool:
        pool.warm()
        # Whether it was there before the function's own statement has imported it.
        assert pool.call(plain.import_fractions) is False
        assert until(lambda: pool.call(plain.import_fractions), 120), pool.stats()
        learned = [each["preloaded"] for each in pool.stats().values()]
        assert ["fractions"] in learned
        # A file that a node's own process has not imported may change unseen.
        assert any("learned_subjects.plain" in each["not_preloaded"] for each in pool.stats().values())


def test_nodes_learn_nothing_without_preloading(cluster: Any) -> None:
    with Pool(timeout=LONG, preload=None) as pool:
        assert not any(pool.call(plain.import_fractions) for _ in range(20))


def test_many_calls_run_in_one_actor_at_a_time(cluster: Any) -> None:
    with Pool(timeout=LONG, workers=4, resources={"first": 1}) as pool:
        futures = [pool.submit(subjects.interval, 2.0) for _ in range(4)]
        intervals = [future.result(LONG) for future in futures]
        assert len(pool.stats()) == 1
        assert max(begun for begun, _ in intervals) < min(ended for _, ended in intervals)


def test_what_the_engine_ends_costs_no_actor(pool: Pool) -> None:
    before = actors(pool)
    outcome = pool.limits(timeout=0.2).run(subjects.spin)
    assert outcome.ending == "timeout" and outcome.verdict.kind == "wall" and outcome.tree.survivors == 0
    assert outcome.verdict.limit_ms == 200
    with pytest.raises(sandtimer.DeadlineExceeded, match="wall limit"):
        pool.limits(timeout=0.2).call(subjects.spin)
    assert pool.run(os._exit, 3).ending == "no_result"
    assert pool.run(lambda: os.kill(os.getpid(), signal.SIGSEGV)).ending == "signaled"
    assert pool.limits(memory="256MB").run(lambda: b"x" * (1 << 30)).ending == "out_of_memory"
    assert actors(pool) == before and pool.call(abs, -1) == 1


def test_map_keeps_the_order_and_raises_for_none(pool: Pool) -> None:
    outcomes = list(pool.map(lambda x: 10 // x, [5, 0, 2, 1]))
    assert [each.value for each in outcomes] == [2, None, 5, 10]
    assert isinstance(outcomes[1].error, ZeroDivisionError)
    outcomes = list(pool.map(time.sleep, [0.0] + [LONG] * 8, total=1.0))
    assert [each.ending for each in outcomes] == ["returned"] + ["timeout"] * 8
    assert outcomes[1].verdict.scope.startswith("map")


def test_a_future_and_a_task_end_their_calls_when_cancelled(pool: Pool) -> None:
    mark = uuid.uuid4().hex
    future = pool.submit(subjects.family, mark)
    assert until(lambda: len(processes_with(mark)) == 2)
    assert future.cancel() and future.cancelled()
    assert until(lambda: not processes_with(mark))

    async def both() -> None:
        assert await pool.acall(abs, -3) == 3 and (await pool.arun(abs, -3)).value == 3
        task = asyncio.ensure_future(pool.arun(subjects.family, mark))
        while len(processes_with(mark)) < 2:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(both(), LONG))
    assert until(lambda: not processes_with(mark))
    assert until(lambda: all(each["running"] == 0 == each["under_way"] for each in pool.stats().values()))


def test_bad_input_is_refused_where_it_is_given(pool: Pool) -> None:
    with pytest.raises(sandtimer.InvalidLimitError):
        Pool(timeout=-1)
    with pytest.raises(TypeError, match="colour"):
        Pool(colour="red")
    with pytest.raises(ValueError, match="fork"):
        Pool(start="fork")
    with pytest.raises(ValueError, match="lifetime"):
        Pool(actor_options={"lifetime": "detached"})
    with pytest.raises(ValueError, match="patience"):
        Pool(patience=0)
    with pytest.raises(sandtimer.UnserializableError):
        pool.run(lambda x: x, (each for each in ()))
    assert pool.call(abs, -1) == 1


def test_a_node_that_cannot_is_asked_why(cluster: Any) -> None:
    with Pool(preload=["no_such_module"], resources={"first": 1}) as pool:
        with pytest.raises(sandtimer.ProfileRefusedError, match="no_such_module"):
            pool.run(abs, -1)


def test_a_module_that_cannot_be_imported_there_goes_along(pool: Pool, tmp_path: pathlib.Path) -> None:
    (tmp_path / "hidden_from_nodes.py").write_text("FACTOR = 3\ndef times(x):\n    return inner(x)\ndef inner(x):\n    return x * FACTOR\n")
    sys.path.insert(0, str(tmp_path))
    try:
        import hidden_from_nodes as module
    finally:
        sys.path.remove(str(tmp_path))
    try:
        assert pool.submit(module.times, 14).result(LONG) == 42
        assert pool.call(module.times, 2) == 6 and [each.value for each in pool.map(module.times, [1, 2])] == [3, 6]
        assert pool.limits(timeout=LONG).run(module.times, ray.put(5)).value == 15
    finally:
        del sys.modules["hidden_from_nodes"]


# References


def test_references_are_resolved_on_the_node(pool: Pool) -> None:
    array = numpy.arange(1_000_000, dtype=numpy.float64)
    given = ray.put(array)

    def use(a: Any, plain: Any, *, b: int, c: Any) -> Any:
        plain += 1
        return a.sum() + plain.sum() + b, c

    def not_in(process: int) -> int:
        if process == os.getpid():
            raise RuntimeError("not in this process")
        return process

    class Elsewhere:
        def __reduce__(self) -> Any:
            return not_in, (os.getpid(),)

    elsewhere = ray.put(Elsewhere())
    value, kind = pool.call(use, given, array.copy(), b=ray.put(3), c=elsewhere)
    assert value == 2 * array.sum() + 1_000_000 + 3 and kind == os.getpid()
    with pytest.raises(Exception, match="not in this process"):
        ray.get(elsewhere)
    assert [each.value for each in pool.map(len, [given, ray.put("four")])] == [1_000_000, 4]
    assert asyncio.run(pool.acall(len, given)) == 1_000_000


def test_large_arrays_go_beside_a_call_that_is_put_together() -> None:
    direct, referred = (numpy.arange(100_000, dtype=numpy.float64) for _ in range(2))
    data, buffers = _job.pickled(numpy.dot, (direct, None), {})
    body, large = put_back(data, buffers, (1,), [referred])
    assert len(body) < 8192
    given = [numpy.frombuffer(each, numpy.float64) for each in large]
    assert [numpy.shares_memory(*each) for each in zip(given, (direct, referred))] == [True, True]


def test_calls_overtake_one_whose_reference_is_not_there_yet(cluster: Any, tmp_path: pathlib.Path) -> None:
    go = tmp_path / "go"

    @ray.remote(num_cpus=0)
    def later() -> int:
        while not go.exists():
            time.sleep(0.02)
        return 7

    with Pool(timeout=1.0, workers=1, resources={"first": 0.1}, patience=0.2) as pool:
        pool.warm()
        awaited, given_up = pool.submit(abs, later.remote()), pool.submit(abs, later.remote())
        assert pool.limits(timeout=LONG).call(abs, -1) == 1
        assert not awaited.done() and given_up.cancel()
        go.touch()
        # What it waited was not run time.
        assert awaited.result(LONG) == 7


def test_a_failed_reference_is_the_failure_of_its_call_alone(pool: Pool) -> None:
    @ray.remote(num_cpus=0, max_retries=0)
    def fail() -> int:
        return 1 // 0

    @ray.remote(num_cpus=0)
    class Dead:
        def value(self) -> int:
            os._exit(1)

    before = actors(pool)
    outcome = pool.run(abs, fail.remote())
    assert outcome.ending == "raised" and not outcome.ok and outcome.tree.survivors == 0
    with pytest.raises(sandtimer.RemoteError, match="ZeroDivisionError") as raised:
        pool.call(abs, fail.remote())
    assert "in fail" in raised.value.remote_traceback
    dead = Dead.remote()
    outcome = pool.run(abs, dead.value.remote())
    assert outcome.ending == "infra_error" and "argument" in str(outcome.error)
    assert actors(pool) == before


def test_a_reference_elsewhere_is_refused_with_what_to_do(pool: Pool) -> None:
    reference = ray.put(1)
    for call in (lambda: pool.run(len, [reference]), lambda: pool.submit(lambda: reference), lambda: pool.call(len, {1: reference})):
        with pytest.raises(sandtimer.UnserializableError, match="ray.get"):
            call()
    with pytest.raises(sandtimer.UnserializableError, match="ray.get"):
        pool.call(len, ray.put([reference]))
    assert pool.call(len, "ObjectRef") == 9


# Large data


def test_large_arrays_are_not_pickled(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    send = pool._nodes.send
    monkeypatch.setattr(pool._nodes, "send", lambda message, longest: sent.append(message) or send(message, longest))
    array = numpy.arange(2_000_000, dtype=numpy.float64)
    total, back = pool.call(lambda given: (given.sum(), given * 2), array)
    (_, body, (beside,), *_) = sent[0]
    assert len(body) < 4096
    assert numpy.shares_memory(numpy.frombuffer(beside, numpy.float64), array)
    assert total == array.sum() and numpy.array_equal(back, array * 2)
    # It lies where Ray put it: in a mapping of the object store's, which cannot be written.
    assert "plasma" in mapping_of(back.__array_interface__["data"][0]) and not back.flags.writeable
    assert "plasma" not in mapping_of(array.__array_interface__["data"][0])


def mapping_of(address: int) -> str:
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(each, 16) for each in line.split()[0].split("-"))
        if low <= address < high:
            return line
    return ""


def test_large_values_of_all_kinds_arrive(pool: Pool) -> None:
    value = {"bytes": b"x" * 300_000, "bytearray": bytearray(300_000), "text": "y" * 300_000, "many": [b"z" * 70_000] * 3}
    assert pool.call(lambda given: given, value) == value
    too_large = pool.limits(result_bytes="1MB").run(bytes, 2 << 20)
    assert isinstance(too_large.error, sandtimer.ResultTooLargeError) or too_large.ending != "returned"


# Trust


@pytest.fixture
def unharmed() -> Iterator[None]:
    os.environ.pop(subjects.MARK, None)
    yield
    assert subjects.MARK not in os.environ


def harmed_actors(pool: Pool) -> int:
    """Of the actors, how many have unpickled what they should not. Environments are read as the processes began, so ask."""
    mark = subjects.MARK
    return sum(ray.get([each.actor.__ray_call__.remote(lambda _: mark in os.environ) for each in pool._nodes.ready()]))


def test_a_hostile_result_runs_nothing_here_or_there(pool: Pool, unharmed: None) -> None:
    outcome = pool.run(subjects.Harm)
    assert isinstance(outcome.error, sandtimer.ResultRefusedError) and outcome.value is None
    with pytest.raises(sandtimer.ResultRefusedError) as refused:
        pool.call(subjects.Harm)
    assert refused.value.outcome.tree.survivors == 0 and refused.value.outcome.usage.wall_ms > 0
    assert harmed_actors(pool) == 0


def test_control_it_runs_where_pickle_is_trusted(pool: Pool) -> None:
    trusting = pool._view(sandtimer.Sandbox(timeout=LONG, trust="pickle"))
    trusting.run(subjects.Harm)
    assert os.environ.pop(subjects.MARK) == str(os.getpid())
    assert harmed_actors(pool) == 0


def test_a_named_class_is_rebuilt_here_without_calling_it(pool: Pool, unharmed: None) -> None:
    """Sent on by pickle from the actor, its `__reduce__` would have run its field here."""
    naming = pool._view(sandtimer.Sandbox(timeout=LONG, results=[subjects.Named]))
    value = naming.call(subjects.forged)
    assert type(value) is subjects.Named and subjects.MARK in value.code
    assert harmed_actors(pool) == 0


# Resources


def test_resources_are_set_aside_where_they_are(cluster: Any) -> None:
    options = {"memory": 64 << 20}
    free = ray.available_resources()
    with Pool(timeout=LONG, num_gpus=1, num_cpus=1, resources={"second": 0.5}, actor_options=options) as pool:
        assert pool.call(abs, -1) == 1
        (node,) = pool.stats()
        assert [each["Resources"].get("second") for each in ray.nodes() if each["NodeID"] == node] == [1.0]

        def taken() -> dict[str, float]:
            now = ray.available_resources()
            return {name: free[name] - now.get(name, 0) for name in ("GPU", "CPU", "second", "memory")}

        expected = {"GPU": 1.0, "CPU": 1.0, "second": 0.5, "memory": 64 << 20}
        assert until(lambda: taken() == pytest.approx(expected)), taken()
    assert until(lambda: ray.available_resources().get("GPU") == 1.0)
    with Pool(num_gpus=7) as nowhere, pytest.raises(sandtimer.SandboxUnavailableError, match="no node.*num_gpus"):
        nowhere.run(abs, -1)


# What is lost


def test_a_killed_actor_costs_its_calls_and_no_others(cluster: Any) -> None:
    mark = uuid.uuid4().hex
    with Pool(timeout=LONG, resources={"first": 0.1}) as pool:
        future = outcome_of(pool, subjects.family, mark)
        assert until(lambda: len(processes_with(mark)) == 2)
        (process,) = actors(pool)
        os.kill(process, signal.SIGKILL)
        outcome = future.result(LONG)
        assert outcome.ending == "infra_error" and outcome.tree.survivors is None
        assert isinstance(outcome.error, sandtimer.SandboxUnavailableError) and "127.0.0.1" in str(outcome.error)
        assert until(lambda: not processes_with(mark)), "the engine's jobs outlived it"
        assert pool.call(abs, -1) == 1 and actors(pool) != {process}


def test_an_actor_that_gives_no_sign_is_killed_at_last(cluster: Any) -> None:
    mark = uuid.uuid4().hex
    with Pool(timeout=LONG, resources={"first": 0.1}, patience=1.0) as pool:
        pool.warm()
        (process,) = actors(pool)
        stopped = os.pidfd_open(process)
        try:
            late = outcome_of(pool.limits(timeout=2.0), subjects.family, mark)
            assert until(lambda: len(processes_with(mark)) == 2 or late.done())
            os.kill(process, signal.SIGSTOP)
            outcome = late.result(LONG)
            assert outcome.ending == "infra_error" and "did not respond" in str(outcome.error)
            assert die([stopped]), "the stopped process is still there"
        finally:
            os.close(stopped)
        assert until(lambda: not processes_with(mark))
        assert pool.call(abs, -1) == 1


def test_one_that_is_only_busy_is_not(cluster: Any) -> None:
    """Control: calls that wait for their turn longer than their deadline and patience together."""
    with Pool(timeout=1.5, resources={"first": 0.1}, workers=1, patience=0.2) as pool:
        pool.warm()
        before = actors(pool)
        futures = [pool.submit(subjects.interval, 1.0) for _ in range(4)]
        intervals = [future.result(LONG) for future in futures]
        assert intervals[-1][1] - intervals[0][0] > 1.5 + 2 * 0.2
        assert actors(pool) == before


def test_a_killed_driver_leaves_nothing_running(cluster: Any) -> None:
    mark = uuid.uuid4().hex
    source = """
        import os, sys, ray, ray_subjects, sandtimer.ray
        ray.init(sys.argv[1], _node_ip_address="127.0.0.1", logging_level="ERROR", log_to_driver=False)
        pool = sandtimer.ray.Pool(workers=2)
        pool.warm()
        futures = [pool.submit(ray_subjects.family, sys.argv[2]) for _ in range(4)]
        print("engines", *[each["process"] for each in pool.stats().values()], flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(source), cluster.address, mark]
    path = os.pathsep.join(each for each in sys.path if each)
    environment = {**os.environ, "PYTHONPATH": path}
    driver = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    descriptors: list[int] = []
    try:
        # Four calls that do not end, each with two processes beside its own.
        assert until(lambda: len(processes_with(mark)) == 9 or driver.poll() is not None, LONG), processes_with(mark)
        # Ray says things there too.
        engines = next(line for line in driver.stdout if line.startswith("engines")).split()[1:]
        jobs = [each for each in processes_with(mark) if each != str(driver.pid)]
        assert len(engines) >= 2 and len(jobs) == 8
        below = [each for engine in engines for each in descendants(engine)]
        assert set(jobs) <= set(below)
        descriptors = pidfds({*engines, *below})
        assert len(descriptors) > len(jobs) + len(engines)
        driver.kill()
        assert die(descriptors), "something of the driver's is still running"
    finally:
        driver.kill()
        driver.communicate()
        for descriptor in descriptors:
            os.close(descriptor)
    assert until(lambda: not processes_with(mark))


def descendants(process: str) -> list[str]:
    children: dict[str, list[str]] = {}
    for each in pathlib.Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                parent = (each / "stat").read_text().rpartition(")")[2].split()[1]
                children.setdefault(parent, []).append(each.name)
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def of_the_cluster() -> list[str]:
    """Ray's processes below this one, with all that is below them: this process may have an engine of its own."""
    found = []
    for each in descendants(str(os.getpid())):
        with contextlib.suppress(OSError):
            if b"/site-packages/ray/" in pathlib.Path("/proc", each, "cmdline").read_bytes():
                found += [each, *descendants(each)]
    # A cluster has at least what keeps its state, and what runs on its first node.
    assert len(found) > 1
    return found


def test_a_closed_pool_finishes_and_ends_its_actors(cluster: Any) -> None:
    pool = Pool(timeout=LONG, resources={"first": 0.1})
    pool.warm()
    (process,) = actors(pool)
    engine = os.pidfd_open(process)
    try:
        future = pool.submit(subjects.interval, 1.0)
        pool.close()
        assert len(future.result(LONG)) == 2
        assert die([engine])
    finally:
        os.close(engine)
    with pytest.raises(sandtimer.SandboxUnavailableError, match="closed"):
        pool.run(abs, -1)


# The interface of py-adtools


def test_the_executor_of_adtools_runs_on_a_pool(cluster: Any) -> None:
    executor = SandboxExecutorRay(subjects.Worker())
    found = executor.secure_execute("divide", [7, 2], timeout_seconds=LONG)
    assert found["result"] == 3.5 and found["error_msg"] == "" and found["evaluate_time"] > 0
    assert "ZeroDivisionError" in executor.secure_execute("divide", [7, 0], timeout_seconds=LONG)["error_msg"]
    late = executor.secure_execute("sleep", [LONG], timeout_seconds=0.2)
    assert late["error_msg"] == "Evaluation timeout." and late["result"] is None
    assert executor.secure_execute("where", timeout_seconds=LONG)["result"] != os.getpid()


def test_its_decorator_too_with_options_of_the_actor(cluster: Any) -> None:
    @sandbox_run("ray", timeout=LONG, init_ray=False, ray_actor_options={"num_gpus": 1})
    def gpu_taken() -> int:
        return os.getpid()

    assert gpu_taken() != os.getpid()
    assert until(lambda: "GPU" not in ray.available_resources())

    @sandbox_run("ray", timeout=0.3, return_raw_result=False)
    def late() -> None:
        subjects.spin()

    assert late()["error_msg"] == "Evaluation timeout."


# Last, for Ray is slow to forget a node.


def test_a_lost_node_costs_its_calls_and_the_others_go_on(cluster: Any) -> None:
    third = add_node(cluster, resources={"third": 1, "either": 1})
    fourth = add_node(cluster, resources={"either": 1})
    try:
        with Pool(timeout=LONG, workers=2, resources={"either": 0.1}) as pool:
            pool.warm()
            futures = [outcome_of(pool, time.sleep, 3) for _ in range(4)]
            assert [each["under_way"] for each in pool.stats().values()] == [2, 2]
            cluster.remove_node(third, allow_graceful=False)
            endings = sorted(future.result(LONG).ending for future in futures)
            assert endings == ["infra_error", "infra_error", "returned", "returned"]
            assert [each.value for each in pool.map(abs, [-1, -2, -3])] == [1, 2, 3] and len(pool.stats()) == 1
    finally:
        for node in {third, fourth} & cluster.worker_nodes:
            cluster.remove_node(node)
