"""What the server costs over HTTP on loopback, beside what it is made of and beside a Jupyter kernel, interleaved in one run.

    python python/benches/server.py [--quick] [--json FILE]

The floor of a context is a bare `python3` that evaluates a line from a pipe, that of a session a bare `bash`; neither has a
limit, a wall around it, or a way back. The peer is ipykernel, asked by its own client. The floor of a small program is `python3
FILE`. Calls come 20 ms apart, as from a
person or an agent, and back to back, where each waits for the checkpoint of the one before. What Python's own http.client adds
to a call, which writes a request in two pieces and reads all of an answer's head, is printed beside. The exit code is 1 if a
bound is missed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable

from jupyter_client.manager import KernelManager

import measure
from report import Report, machine, milliseconds
from serving import PATIENCE, Client, Server

#: Seconds between calls that are not back to back.
APART = 0.02
#: Rounds of small calls, new contexts, large outputs, hostile cells, and starts of a server.
SIZES = {"full": (400, 100, 30, 200, 10), "quick": (60, 20, 5, 20, 3)}
LARGE = 10 << 20
BY_LIBRARY = "context, 1+1, asked by http.client"
CLIENTS = 64
#: Prints 42, and imports what small programs import.
PROGRAM = "import json, re\nprint(json.dumps(sum(map(int, re.findall('[0-9]+', '1 22 19')))))\n"
#: Is deaf to the interrupt, swallows what it cannot be deaf to, leaves daemons behind, and does not end.
HOSTILE = """
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("so far", flush=True)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: time.sleep(60)
        os._exit(0)
while True:
    try:
        while True: pass
    except BaseException: pass
"""


class Pipe:
    """A process that answers each line with one line."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line: bytes) -> bytes:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Kernel:
    """A Jupyter kernel and its client."""

    def __init__(self) -> None:
        self.manager = KernelManager()
        self.manager.start_kernel()
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def ask(self) -> None:
        self.client.execute_interactive("1+1", timeout=60, output_hook=lambda message: None)

    def end(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(report: Report, contenders: dict[str, Callable[[], Any]], rounds: int, apart: float) -> dict[str, float]:
    """Runs all contenders in turn; prints each and returns the medians."""
    return {name: measure.median(values) for name, values in sampled(report, contenders, rounds, apart).items()}


def sampled(report: Report, contenders: dict[str, Callable[[], Any]], rounds: int, apart: float) -> dict[str, list[float]]:
    """Runs all contenders in turn; prints each and returns what each round took, in seconds."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    window = measure.Window()
    for turn in range(rounds + 3):
        for name, work in contenders.items():
            if apart:
                time.sleep(apart)
            seconds = timed(work)
            if turn >= 3:
                samples[name].append(seconds)
    for name, values in samples.items():
        report.line(f"  {name:<54}{milliseconds(values)}")
    report.steal(window)
    return samples


def check(outcome: dict[str, Any], **expected: Any) -> dict[str, Any]:
    for name, value in expected.items():
        if outcome[name] != value:
            raise RuntimeError(f"{name} is {outcome[name]!r}, not {value!r}: {str(outcome)[:600]}")
    return outcome


def stream(client: Client, session: str, command: str, until: str) -> None:
    """Sends a command and reads its events up to one of this name."""
    run = client.ask("POST", f"{session}/execute", {"command": command, "wait_ms": 0})["run_id"]
    names = [name for _, name, _ in client.events(run)]
    if until not in names:
        raise RuntimeError(f"there was no {until}: {names}")


def first_byte(client: Client, session: str) -> float:
    """Seconds from sending a command to its first byte of stdout."""
    start = time.perf_counter()
    run = client.ask("POST", f"{session}/execute", {"command": "echo x; read -t 0.01 _", "wait_ms": 0})["run_id"]
    seconds = 0.0
    for _, name, _ in client.events(run):
        if name == "stdout" and not seconds:
            seconds = time.perf_counter() - start
    return seconds


def by_library(connection: http.client.HTTPConnection, context: str) -> None:
    connection.request("POST", f"{context}/execute", json.dumps({"code": "1+1"}), {"content-type": "application/json"})
    check(json.loads(connection.getresponse().read())["outcome"], value=2)


def small_calls(report: Report, client: Client, rounds: int) -> None:
    context, session = client.open(), client.open("sessions")
    python = Pipe(sys.executable, "-u", "-c", "import sys\nfor line in sys.stdin: print(eval(line))")
    bash, kernel = Pipe("bash"), Kernel()
    execute = lambda: check(client.execute(context, code="1+1"), value=2)
    true = lambda: check(client.execute(session, command="true"), exit_code=0)
    library, other = http.client.HTTPConnection("127.0.0.1", client.port, timeout=PATIENCE), client.open()
    contenders = {
        "floor: bare python3, 1+1": lambda: python.ask(b"1+1\n"),
        "floor: bare bash, true": lambda: bash.ask(b"true; echo $?\n"),
        "peer: ipykernel, 1+1": kernel.ask,
        "context, 1+1": execute,
        BY_LIBRARY: lambda: by_library(library, other),
        "session, true": true,
        "session, true, streamed to its completion": lambda: stream(client, session, "true", "ended"),
    }
    report.line("calls are asked by a client that writes a request in one piece; what http.client takes is printed beside")
    report.head(f"small calls, {APART * 1000:.0f} ms apart: p50, p90, p99 in ms")
    apart = interleaved(report, contenders, rounds, APART)
    report.head("back to back, each kind by itself")
    together: dict[str, float] = {}
    for name in ("context, 1+1", BY_LIBRARY, "session, true"):
        together |= interleaved(report, {name: contenders[name]}, rounds, 0.0)
    report.bound("context, 1+1, apart, p50 ms", 1000 * apart["context, 1+1"], 1.5)
    report.bound("context, 1+1, back to back with its checkpoints, p50 ms", 1000 * together["context, 1+1"], 1.5)
    report.bound("context, 1+1 / ipykernel", apart["context, 1+1"] / apart["peer: ipykernel, 1+1"], 1.0)
    report.bound("session, true, p50 ms", 1000 * apart["session, true"], 4)
    name = "session, true, streamed to its completion"
    report.bound(f"{name}, p50 ms", 1000 * apart[name], 5)
    firsts = [first_byte(client, session) for _ in range(rounds // 4)]
    report.bound("first byte of stdout of a streamed command, p50 ms", 1000 * measure.median(firsts), 5)
    library.close()
    for ended in (python, bash, kernel):
        ended.end()


def run_program(client: Client) -> None:
    asked = {"language": "python", "code": PROGRAM, "wall_ms": 10_000}
    check(client.ask("POST", "/v1/runs", asked)["outcome"], ending="exited", stdout="42\n")


def small_programs(report: Report, client: Client, rounds: int) -> None:
    report.head(f"a small Python program by POST /v1/runs, {APART * 1000:.0f} ms apart: p50, p90, p99 in ms")
    # The server learns the modules that it imports.
    for _ in range(20):
        run_program(client)
        time.sleep(APART)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(PROGRAM)
        file.flush()
        contenders = {
            "floor: python3 FILE": lambda: subprocess.run(["python3", file.name], stdout=subprocess.PIPE, check=True),
            "run of a program": lambda: run_program(client),
        }
        samples = sampled(report, contenders, rounds, APART)
    runs = samples["run of a program"]
    report.bound("run of a small program, p50 ms", 1000 * measure.median(runs), 5)
    report.bound("run of a small program, p99 ms", 1000 * measure.percentile(runs, 99), 15)
    report.bound("run of a small program / python3 FILE", measure.median(runs) / measure.median(samples["floor: python3 FILE"]), 1.0)


def programs_at_once(report: Report, client: Client, count: int) -> None:
    report.head(f"{CLIENTS} clients, each of which runs the program {count} times")

    def run_all(_: int) -> int:
        own, failed = Client(client.port), 0
        for _ in range(count):
            try:
                run_program(own)
            except RuntimeError as error:
                failed += 1
                report.line(f"  {str(error)[:200]}")
        own.socket.close()
        return failed

    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as threads:
        failed = sum(threads.map(run_all, range(CLIENTS)))
    report.line(f"  {CLIENTS * count / (time.perf_counter() - start):.0f} programs/s")
    report.bound(f"programs of {CLIENTS} clients at once that ended otherwise", failed, 0)


def new_contexts(report: Report, client: Client, count: int) -> None:
    report.head("new contexts, 150 ms apart")
    samples = []
    for _ in range(count):
        time.sleep(0.15)
        start = time.perf_counter()
        context = client.open()
        samples.append(time.perf_counter() - start)
        client.ask("DELETE", context)
    report.line(f"  {'created':<54}{milliseconds(samples)}")
    report.bound("new context, p50 ms", 1000 * measure.median(samples), 5)


def branches(report: Report, client: Client, count: int) -> None:
    report.head("branches of a context with 50 MB, 150 ms and a small cell apart; the first of a context writes down all of its memory")
    firsts, samples, cells = [], [], []
    held = "import os\nx = 0\nheld = [bytearray(os.urandom(4096)) for _ in range(12800)];"
    for _ in range(5):
        context = client.open()
        check(client.execute(context, code=held), ok=True)
        for turn in range(1, count // 5 + 2):
            check(client.execute(context, code="x += 1; x"), value=turn)
            time.sleep(0.15)
            start = time.perf_counter()
            made = client.ask("POST", f"{context}/branch", {})["contexts"][0]["context_id"]
            (samples if turn > 1 else firsts).append(time.perf_counter() - start)
            branch = f"/v1/contexts/{made}"
            cells.append(timed(lambda: check(client.execute(branch, code="[x, len(held)]"), value=[turn, 12800])))
            client.ask("DELETE", branch)
        client.ask("DELETE", context)
    report.line(f"  {'the first of a context':<54}{milliseconds(firsts)}")
    report.line(f"  {'later ones':<54}{milliseconds(samples)}")
    report.line(f"  {'the first cell in a branch':<54}{milliseconds(cells)}")
    report.bound("later branch of a context with 50 MB, p50 ms", 1000 * measure.median(samples), 5)


def large_output(report: Report, client: Client, count: int) -> None:
    report.head("10 MiB of stdout in one answer")
    session = client.open("sessions")
    command = f"head -c {LARGE} /dev/zero | tr '\\0' a"
    contenders = {
        "floor: bash and a pipe": lambda: subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, check=True),
        "session": lambda: check(client.execute(session, command=command), stdout="a" * LARGE),
    }
    medians = interleaved(report, contenders, count, 0.0)
    report.bound("10 MiB of stdout, p50 ms", 1000 * medians["session"], 150)


def hostile_cells(report: Report, client: Client, count: int) -> None:
    report.head(f"{count} cells that do not end, with wall_ms 500, one after the other")
    context = client.open()
    check(client.execute(context, code="kept = 41"), ok=True)
    samples, window = [], measure.Window()
    for turn in range(count):
        start = time.perf_counter()
        outcome = client.execute(context, code=HOSTILE, wall_ms=500)
        samples.append(time.perf_counter() - start)
        check(outcome, ending="timeout", state="rolled_back", stdout="so far\n")
        check(outcome["tree"], survivors=0)
        check(client.execute(context, code="kept = kept + 1; kept"), value=42 + turn)
    report.line(f"  {'answered':<54}{milliseconds(samples)}")
    report.steal(window)
    report.bound("a hostile cell of 500 ms is answered, p99 ms", 1000 * measure.percentile(samples, 99), 510)


def starts(report: Report, count: int) -> None:
    report.head("a server's start, to its first answer from a context")
    samples = []
    for _ in range(count):
        start = time.perf_counter()
        with Server() as server:
            client = server.client()
            check(client.execute(client.open(), code="1+1"), value=2)
            samples.append(time.perf_counter() - start)
    report.line(f"  {'answered':<54}{milliseconds(samples)}")
    report.bound("start to first answer, p50 ms", 1000 * measure.median(samples), 500)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there")
    options = parser.parse_args()
    rounds, contexts, large, hostile, begun = SIZES["quick" if options.quick else "full"]
    report = Report()
    report.line(f"{machine()}; others used {measure.wait_for_quiet(10, 60):.0f} % of it")
    with Server() as server:
        client = server.client()
        small_calls(report, client, rounds)
        small_programs(report, client, rounds)
        programs_at_once(report, client, large)
        new_contexts(report, client, contexts)
        branches(report, client, contexts)
        large_output(report, client, large)
        hostile_cells(report, client, hostile)
    starts(report, begun)
    report.conclude(options.json)
    return int(any(not bound["met"] for bound in report.record["bounds"]))


if __name__ == "__main__":
    sys.exit(main())
