"""Uses every public name of the package, for type checkers only: test_typing.py checks it with mypy and pyright."""

# pyright: strict

from __future__ import annotations

import contextlib
from typing import Any, Optional

import sandtimer
from sandtimer import adtools, errors, jobs
from sandtimer.adtools import auto_server


def double(number: int) -> int:
    return 2 * number


@sandtimer.sandboxed(timeout=2.0, start="spawn", trust="data", stdout="drop", memory="512MB")
def decorated(text: str) -> int:
    return len(text)


@sandtimer.sandboxed
def plain(text: str) -> str:
    return text


def of_decorated() -> tuple[int, str]:
    plain.outcome("a")
    return decorated("a"), plain("a")


def of_sandbox() -> None:
    box = sandtimer.Sandbox(
        2.0, cpu=1, stall=None, grace=0.5, memory="1GB", processes=8, output=1000, network=False, preload=["json"], python=None,
        start="zygote", trust="pickle", results=[complex], stdout="capture", seed=1, workers=2, require="T0", gpu=False,
        result_bytes=1000, force=False, warn_before=1, warn_signal="USR1", paths=["/srv"],
    )  # fmt: skip
    with box:
        box.warm(1)
        stats: dict[str, Any] = box.stats()
        value: int = box.call(double, 21)
        outcome: sandtimer.Outcome = box.run(double, number=value)
        future: sandtimer.CallFuture = box.submit(double, 1)
        how_far: Optional[dict[str, Any]] = future.progress()
        print(future.cancel(), future.running())
        endings: list[str] = [each.ending for each in box.map(double, [1, 2], total=5, progress=False)]
        box.limits(timeout=1.0).exec("1 + 1", language="python", stdin="", name="sum")
        box.command(["true"], stdin=b"")
        print(stats, outcome, how_far, endings)
    box.close()


async def of_awaited_sandbox(box: sandtimer.Sandbox) -> int:
    outcome: sandtimer.Outcome = await box.arun(double, 1)
    print(outcome)
    return await box.acall(double, 1)


def of_outcome(outcome: sandtimer.Outcome) -> None:
    verdict: Optional[sandtimer.Verdict] = outcome.verdict
    if verdict is not None:
        print(verdict.kind, verdict.sentence, verdict.limit_ms, verdict.source)
    tree: sandtimer.Tree = outcome.tree
    usage: sandtimer.Usage = outcome.usage
    isolation: sandtimer.Isolation = outcome.isolation
    print(tree.survivors, usage.wall_ms, isolation.tier)
    exit_code: Optional[int] = outcome.exit_code
    signal: Optional[str] = outcome.signal
    print(outcome.run_id, outcome.ok, outcome.value, outcome.error, exit_code, signal, outcome.stdout, outcome.stderr)
    print(outcome.stdout_truncated, outcome.stderr_truncated, outcome.path, outcome.reported_by, outcome.state)
    print(outcome.results, outcome.execution_count, outcome.notices, outcome.remarks, outcome.to_dict())


def of_judging(box: sandtimer.Sandbox) -> None:
    judgement: sandtimer.Judgement = box.judge("print(1)", [("", "1")], checker="json", timeout=1, total=5, stop_early=True)
    judgements: sandtimer.Judgements = box.judge_many([double], [((1,), 2)], checker=lambda case, outcome: 0.5)
    load: Optional[sandtimer.HostLoad] = judgement.overloaded[0]
    print(judgement.score, judgement.passed, load is not None and load.reasons, judgement.retry_overloaded().verdicts)
    print(judgements.matrix, judgements.verdicts, judgements.scores, judgements.passed, judgements.retry_overloaded())


def of_context(box: sandtimer.Sandbox) -> None:
    with box.context("python", environment={"A": "1"}, directory=None) as context:
        outcome: sandtimer.Outcome = context.run("1", timeout=1, on_stdout=print)
        branches: list[sandtimer.Context] = context.branch(2, memory="1GB")
        info: sandtimer.ContextInfo = context.info
        print(outcome, branches, info.can_undo, context.undo(), context.interrupt())
        context.close()


async def of_awaited_context(context: sandtimer.Context) -> str:
    return (await context.arun("1", stdin="")).ending


def of_budget(box: sandtimer.Sandbox) -> None:
    manager = sandtimer.TimeoutManager(7200, 100, 1200, max_failures=3, wrap_up=60, on_task_timeout="end", speed=2.0)
    turn: str = manager.start_turn()
    check: dict[str, Any] = manager.check_timeout()
    manager.register_activity()
    manager.register_failure()
    manager.register_action("ls", "a", failed=False)
    manager.start_task("train", 60, 120, alongside=True, suggested_limit=300)
    print(turn, check, manager.get_task_status("train"), manager.should_warn_user(), manager.parse_estimate_result(""))
    manager.observe_tool("Bash", "", {"command": "ls"})
    manager.complete_task("train")
    print(manager.get_summary(), manager.summary(), manager.seconds_to_next_event(), manager.run_limits("train"))
    box.within(manager, task="train").run(double, 1)
    guard = sandtimer.LoopGuard(24, failures=3, repeats=3)
    for number in guard:
        guard.ended("add", {"number": number}, ok=True)
    stopped: Optional[sandtimer.LoopLimitError] = guard.stopped
    print(guard.turns, guard.failed, stopped is not None and stopped.rule, guard.begin())
    estimate: sandtimer.Estimate = sandtimer.estimate("train", 10.0, complexity="moderate", budget=60)
    print(estimate.typical, sandtimer.progress(1, 2, "epoch"), sandtimer.__version__)


def of_resilience() -> None:
    breaker = sandtimer.CircuitBreaker("api:get", failures=3, rate=None, on=(OSError, ValueError))
    breaker.hold("open")
    breaker.restore(breaker.snapshot())
    print(breaker.state, breaker.retry_after, breaker.call(double, 1))
    retry: sandtimer.Retry = sandtimer.retry(3, [0.1], on=OSError, total=10, fallback=double, breaker=breaker)
    retried: sandtimer.Retried = retry.run(double, 1)
    print(retried.degraded, retry.call(double, 1))


async def of_awaited_resilience(breaker: sandtimer.CircuitBreaker, retry: sandtimer.Retry) -> None:
    async def work() -> int:
        return 1

    print(await breaker.acall(work), await retry.acall(work), (await retry.arun(work)).ok)


def of_client() -> None:
    with sandtimer.Client("http://127.0.0.1:7880", token=None) as client:
        outcome: sandtimer.Outcome = client.run(["true"], timeout=5, on_output_limit="drop", stall_by="output")
        run: sandtimer.ClientRun = client.start(code="1", language="javascript", stdin_open=True)
        with client.attach(run.id) as run, contextlib.suppress(sandtimer.ServerError):
            run.write("a", eof=True)
            for chunk in run.output("stdout"):
                piece: sandtimer.OutputChunk = chunk
                print(piece.text)
            for event in run.events():
                happened: sandtimer.RunEvent = event
                print(happened.event)
            print(run.read_output(0, stream="stderr", max_bytes=10), run.wait_for_line("a", stream="stdout"), run.wait_for_port(80))
            print(run.info(), run.extend(5), run.kill("enough"), run.wait())
            run.pause()
            run.resume()
            run.signal("SIGUSR1")
            run.delete()
        print(outcome, client.runs("running"), client.contexts(), client.sessions(), client.workspaces())
        judged: sandtimer.ClientJudgement = client.judge("print(1)", [("", "1")], language="python", total=5, timeout=1)
        print(judged.passed, judged.score, judged.verdicts, judged.scores, judged.outcomes, judged.errors, judged.error)
        print(client.host(), client.config(), client.health(), client.attach_context("c"), client.attach_workspace("w"))
        context: sandtimer.ClientContext = client.context("python", timeout=5)
        started: sandtimer.ClientRun = context.start("1", stdin_open=False)
        print(started, context.run("1").value, context.branch(2), context.undo(), context.interrupt(), context.info())
        of_files(client.session().files, client.workspace())
        context.close()
        with client.sandbox("host", network=["pypi.org"], timeout=3600, idle=None) as box:
            made: sandtimer.ClientSandbox = client.attach_sandbox(box.id)
            of_files(box.files, client.workspace())
            client.session(sandbox=box).close()
            print(made.run(["true"], timeout=5).ok, client.sandboxes(), box.snapshot("name"), client.templates())
            box.pause()
            box.resume()
            print(box.extend(5.0), box.info())
            print(box.ports(), box.wait_for_port(80, timeout=1.0), box.expose(80, lifetime=60.0))
            forks: list[sandtimer.ClientSandbox] = box.fork(2)
            client.delete_template("name")
            print(forks, box.diff(), list(box.export(changes=True)))
            print(client.import_template("name", b""))


def of_files(files: sandtimer.ClientFiles, workspace: sandtimer.ClientWorkspace) -> None:
    content: bytes = files.read("a", 0, 10)
    print(content, list(files.stream("a")), list(files.list(".", recursive=True)), files.stat("a"))
    print(files.write("a", "b", parents=True, create_only=False, mode="0644"), files.append("a", b"c", create=True))
    print(next(files.watch()), list(files.archive()), files.extract(b"", ".", parents=True, links="keep"))
    print(files.move("a", "b", overwrite=True), files.mkdir("d", parents=True), workspace.info())
    files.delete("b", recursive=True)
    workspace.delete()


async def of_awaited_client(client: sandtimer.Client) -> None:
    await client.arun(["true"])
    print((await client.ajudge("print(1)", [("", "1")], checker=lambda case, outcome: True, stop_early=True)).passed)
    run = await client.astart(["true"])
    await run.awrite("a")
    async for chunk in run.aoutput():
        print(chunk.data)
    async for event in run.aevents():
        print(event.id)
    print(await run.aread_output(0, stream="stdout"), await run.await_for_line("a"), await run.await_for_port(80))
    print(await run.ainfo(), await run.aextend(5), await run.akill(), await run.await_())
    await run.apause()
    await run.aresume()
    await run.asignal(10)
    await run.adelete()
    print(await client.aruns("ended"), await client.acontexts(), await client.asessions(), await client.aworkspaces())
    print(await client.ahost(), await client.aconfig(), await client.ahealth())
    async with await client.acontext("typescript") as context:
        started = await context.astart("1")
        print(started, await context.arun("1"), await context.abranch(1), await context.aundo(), await context.ainterrupt())
        print(await context.ainfo())
    await (await client.asession()).aclose()
    await of_awaited_files(context.files, await client.aworkspace())
    async with await client.asandbox(network="none", timeout=None, idle=60.0) as box:
        print(await box.arun("true"), await client.asandboxes(), await box.asnapshot(), await client.atemplates())
        await client.adelete_template("name")
        await box.apause()
        await box.aresume()
        print(await box.aextend(5), await box.ainfo())
        print(await box.afork(), await box.adiff(10))
        print(await box.aports(), await box.await_for_port(80), await box.aexpose(80))
        print([piece async for piece in box.aexport()], await client.aimport_template("name", "file.tar"))


async def of_awaited_files(files: sandtimer.ClientFiles, workspace: sandtimer.ClientWorkspace) -> None:
    print(await files.aread("a"), await files.astat("a"), await files.awrite("a", "b"), await files.aappend("a", "c"))
    print([piece async for piece in files.astream("a")], [entry async for entry in files.alist()])
    print([change async for change in files.awatch()], [piece async for piece in files.aarchive()])
    print(await files.aextract(b""), await files.amove("a", "b"), await files.amkdir("d"))
    await files.adelete("b")
    print(await workspace.ainfo())
    await workspace.adelete()


def of_jobs(store: jobs.Jobs) -> None:
    handler = jobs.Handler(double, soft="30s")
    submitted: jobs.Submitted = jobs.submit({"command": ["true"]})
    record: jobs.JobRecord = jobs.run({"handler": "double", "input": 1}, handlers={"double": handler, "other": double})
    result: Optional[jobs.JobResult] = record.result
    if result is not None:
        verdict: Optional[jobs.JobVerdict] = result.verdict
        files: list[jobs.JobFile] = result.files
        refused: list[jobs.JobFileRefused] = result.files_refused
        print(verdict, files, refused)
    webhook: Optional[jobs.JobWebhook] = record.webhook
    listed: list[jobs.Job] = jobs.list(queue="a", state="queued", most=10)
    log: jobs.JobLog = jobs.read_log(submitted.id, 0, 1000)
    timed: jobs.JobLog = jobs.read_log(submitted.id, timestamps=True)
    print(webhook, [job.is_over for job in listed], log.text, timed.text, jobs.show(submitted.id), jobs.files(submitted.id))
    print(jobs.submit_many([]), jobs.wait(submitted.id, 5), jobs.wait_many([]), jobs.read_file(submitted.id, "out"))
    for event in jobs.watch([submitted.id]):
        happened: jobs.JobEvent = event
        print(happened.text)
    queues: list[jobs.JobQueue] = jobs.queues()
    schedule: jobs.JobSchedule = jobs.schedule({"name": "a", "every_ms": "1h", "job": {"command": ["true"]}})
    print(queues, schedule, jobs.schedules(), jobs.pause_schedule("a"), jobs.resume_schedule("a"), jobs.unschedule("a"))
    breakers: list[jobs.JobBreaker] = jobs.breakers(most=10)
    print(breakers)
    workers: list[jobs.JobWorker] = jobs.workers()
    redelivered: jobs.JobWebhook = jobs.redeliver(submitted.id)
    print(workers, redelivered)
    print(jobs.cancel(submitted.id), jobs.retry(submitted.id), jobs.requeue_dead(), jobs.purge(state="dead"))
    jobs.pause("a")
    jobs.resume("a")
    with jobs.Worker(store, 2, queues=["a"], handlers={"double": double}, lease=30) as worker:
        worker.drain()
        worker.give_back()
        print(worker.wait(5))
        worker.close()
    jobs.work(1, queues=["a"])


async def of_awaited_jobs() -> None:
    submitted = await jobs.asubmit("job.toml")
    print(await jobs.asubmit_many([]), await jobs.alist(), await jobs.ashow(submitted.id), await jobs.afiles(submitted.id))
    print(await jobs.await_(submitted.id), await jobs.await_many([]), await jobs.aread_log(submitted.id))
    print(await jobs.aread_file(submitted.id, "out"), await jobs.acancel(submitted.id), await jobs.aretry(submitted.id))
    print([event.data async for event in jobs.awatch(submitted.id)], await jobs.arequeue_dead(), await jobs.apurge())
    print(await jobs.aqueues(), await jobs.aschedule({}), await jobs.aschedules(), await jobs.aunschedule("a"))
    print(await jobs.apause_schedule("a"), await jobs.aresume_schedule("a"))
    print(await jobs.abreakers(), await jobs.aworkers(), await jobs.aredeliver(submitted.id))
    await jobs.apause("a")
    await jobs.aresume("a")
    await jobs.arun({"command": ["true"]})


class Score(adtools.PyEvaluator):
    def evaluate_program(
        self,
        program_str: str,
        callable_functions_dict: Any,
        callable_functions_list: Any,
        callable_classes_dict: Any,
        callable_classes_list: Any,
        **kwargs: Any,
    ) -> int:
        return len(program_str)


class ScoreOnRay(adtools.PyEvaluatorRay, Score):
    pass


@adtools.sandbox_run("process", timeout=5.0, redirect_to_devnull=True)
def by_executor(number: int) -> int:
    return number


async def of_adtools() -> None:
    results: adtools.ExecutionResults = adtools.SandboxExecutor(Score(), trust="data").secure_execute("evaluate", ["1"], timeout_seconds=5)
    executor = adtools.SandboxExecutorRay(Score(), init_ray=False)
    print(results["result"], executor.find_and_kill_children_evaluation_process, by_executor(1), ScoreOnRay())
    print(Score().secure_evaluate("1", timeout_seconds=5), Score().evaluate("1"))
    server = auto_server.Server(Score(), "127.0.0.1", 0, timeout=5, max_workers=2)
    print(server.evaluate({"code": "1"}), auto_server.submit_code("127.0.0.1", 8000, "1"))
    print(await auto_server.submit_code_async("127.0.0.1", 8000, "1", 5))


def of_errors(error: sandtimer.SandtimerError) -> object:
    """The attributes of exceptions, and every class."""
    outcome: Optional[sandtimer.Outcome] = error.outcome
    if isinstance(error, sandtimer.CircuitOpen):
        return error.name, error.retry_after, error.feedback
    if isinstance(error, sandtimer.LoopLimitError):
        return error.rule, error.limit, error.turns, error.failed
    if isinstance(error, sandtimer.RemoteError):
        return error.type_name, error.message, error.remote_traceback
    if isinstance(error, sandtimer.JobSpecRefusedError):
        return error.path
    if isinstance(error, sandtimer.JobConflictError):
        return error.key, error.existing, error.job
    if isinstance(error, sandtimer.JobFileUnknownError):
        return error.id, error.name
    if isinstance(error, sandtimer.JobScheduleNotFoundError):
        return error.name
    if isinstance(error, sandtimer.JobStateRefusedError):
        return error.id, error.state
    if isinstance(error, sandtimer.ServerError):
        return error.code, error.hint, error.retryable, error.details
    return outcome, errors.SandtimerError, (
        sandtimer.BranchRefusedError,
        sandtimer.Cancelled,
        sandtimer.ContextLostError,
        sandtimer.Crashed,
        sandtimer.DeadlineExceeded,
        sandtimer.EstimateRefusedError,
        sandtimer.InvalidArgumentError,
        sandtimer.InvalidArgumentTypeError,
        sandtimer.InvalidLimitError,
        sandtimer.IsolationRefusedError,
        sandtimer.JobError,
        sandtimer.JobNotFoundError,
        sandtimer.JobStillRunningError,
        sandtimer.JobStoreBusyError,
        sandtimer.JobStoreFullError,
        sandtimer.JobStoreNewerError,
        sandtimer.JobStoreUnavailableError,
        sandtimer.JobStoreUnreachableError,
        sandtimer.LimitExceededError,
        sandtimer.NoResultError,
        sandtimer.OutOfMemory,
        sandtimer.ProfileRefusedError,
        sandtimer.ResultRefusedError,
        sandtimer.ResultTooLargeError,
        sandtimer.SandboxUnavailableError,
        sandtimer.ServerLimitRefusedError,
        sandtimer.ServerNotFoundError,
        sandtimer.ServerUnauthorizedError,
        sandtimer.ServerUnreachableError,
        sandtimer.SoftTimeLimitError,
        sandtimer.UnserializableError,
        sandtimer.UnsupportedPlatform,
    )
