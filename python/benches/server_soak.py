"""The server for long and under load: nothing is lost, nothing is left alive, nothing grows, nobody waits out of turn.

    python python/benches/server_soak.py [--quick] [--only NAME] [--json FILE]

    patience   a cell and a command of 35 s, with nothing configured
    contexts   1,000 live Python contexts at once, each of which still knows its own variable
    clients    64 clients that execute at once for 10 minutes: no error, no growth, fair shares
    lines      200,000 lines streamed while all processors are busy, 100 times; and to a reader that stops for a minute
    kills      kill -9 of the server under load, 50 times: no process left, finished results readable, the others reported
    requests   schemathesis, from the served OpenAPI document: no 5xx, no hang

The exit code is 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Callable, NamedTuple

import measure
from report import Report, machine
from serving import Server


class Sizes(NamedTuple):
    patience_seconds: int
    contexts: int
    clients_seconds: int
    streams: int
    stop_seconds: int
    kills: int
    examples: int


FULL = Sizes(35, 1000, 600, 100, 60, 50, 200)
QUICK = Sizes(3, 60, 20, 3, 3, 5, 10)
CLIENTS = 64
LINES = 200_000


def patience(report: Report, sizes: Sizes) -> None:
    seconds = sizes.patience_seconds
    report.head(f"{seconds} s of work, with nothing configured")
    with Server() as server, concurrent.futures.ThreadPoolExecutor(2) as pool:

        def cell() -> Any:
            client = server.client()
            return client.execute(client.open(), code=f"import time; time.sleep({seconds}); 'done'")["value"]

        def command() -> Any:
            client = server.client()
            return client.execute(client.open("sessions"), command=f"sleep {seconds}; echo done")["stdout"]

        answers = [each.result() for each in (pool.submit(cell), pool.submit(command))]
    report.bound("neither is ended", float(answers == ["done", "done\n"]), 1, at_least=True)


def contexts(report: Report, sizes: Sizes) -> None:
    count = sizes.contexts
    report.head(f"{count} live contexts")
    with Server() as server:
        client = server.client()
        before, start = measure.available_memory(), time.monotonic()
        places = [client.open() for _ in range(count)]
        opened = time.monotonic()
        for index, place in enumerate(places):
            client.execute(place, code=f"own = {index}")
        report.line(f"  opened in {opened - start:.1f} s, each used once in {time.monotonic() - opened:.1f} s more")
        each = (before - measure.available_memory()) / count / (1 << 20)
        report.line(f"  {each:.1f} MiB each; {len(os.listdir(f'/proc/{server.process.pid}/fd'))} descriptors of the server")
        order = random.Random(1).sample(range(count), count)
        wrong = sum(client.execute(places[index], code="own")["value"] != index for index in order)
        report.bound("contexts that lost their variable", wrong, 0)
        start = time.monotonic()
        for place in places:
            client.ask("DELETE", place)
        report.line(f"  ended in {time.monotonic() - start:.1f} s")


def clients(report: Report, sizes: Sizes) -> None:
    seconds = sizes.clients_seconds
    report.head(f"{CLIENTS} clients at once for {seconds} s")
    # So that their records do not count as growth.
    with Server(arguments=("--keep-runs", "1000")) as server:
        done, errors, grown = [0] * CLIENTS, [], []
        places: list[Any] = [None] * CLIENTS

        def work(index: int, end: float) -> None:
            client = server.client()
            places[index] = places[index] or client.open("contexts" if index % 2 else "sessions")
            while time.monotonic() < end:
                try:
                    if index % 2:
                        answer = client.execute(places[index], code=f"{index} + 1")["value"]
                    else:
                        answer = int(client.execute(places[index], command=f"echo $(({index} + 1))")["stdout"])
                    if answer != index + 1:
                        raise RuntimeError(f"{answer} for client {index}")
                except Exception as error:
                    errors.append(repr(error))
                    client = server.client()
                done[index] += 1

        for _ in range(2):
            end = time.monotonic() + seconds / 2
            threads = [threading.Thread(target=work, args=(index, end)) for index in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(seconds + 60)
            # What the latest runs leave is given back by then.
            time.sleep(1)
            process = server.process.pid
            grown.append((measure.bytes_of(process, "VmRSS"), len(os.listdir(f"/proc/{process}/fd"))))
        report.line(f"  {sum(done)} executed, {sum(done) / seconds:.0f} a second; of one client {min(done)} to {max(done)}")
        for error in errors[:5]:
            report.line(f"  {error}")
        report.bound("errors", len(errors), 0)
        for kind, own in (("contexts", done[1::2]), ("sessions", done[0::2])):
            report.bound(f"fewest / most executed of one client, {kind}", min(own) / max(own), 0.5, at_least=True)
        report.bound("memory of the server, end / half", grown[1][0] / grown[0][0], 1.25)
        report.bound("more descriptors at the end than at half, idle", grown[1][1] - grown[0][1], 16)


def lines(report: Report, sizes: Sizes) -> None:
    count, stop = sizes.streams, sizes.stop_seconds
    report.head(f"{LINES} lines streamed, {count} times, all processors busy")
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    command = f"for ((i = 0; i < {LINES}; i++)); do echo $i; done"
    expected = "".join(f"{number}\n" for number in range(LINES))
    lost, lagged, peak = 0, 0, 0
    try:
        with Server() as server:
            client = server.client()

            def read(pause: float) -> tuple[str, set[str]]:
                begun = {"command": ["bash", "-c", command], "wait_ms": 0, "detach": True}
                run = client.ask("POST", "/v1/runs", begun)["run_id"]
                text, names = [], set()
                for _, name, data in client.events(run):
                    names.add(name)
                    if name == "stdout":
                        text.append(data["data"])
                        if pause:
                            time.sleep(pause)
                            pause = 0
                return "".join(text), names

            start = time.monotonic()
            for _ in range(count):
                text, names = read(0)
                lost += text != expected
            report.line(f"  {count * LINES / (time.monotonic() - start):.0f} lines a second")
            before = measure.bytes_of(server.process.pid, "VmRSS")
            text, names = read(stop)
            peak = measure.bytes_of(server.process.pid, "VmHWM") - before
            lagged += text != expected and "lagged" not in names
    finally:
        for process in busy:
            process.kill()
            process.wait()
    report.bound("streams that lost or changed a byte", lost, 0)
    report.bound(f"a reader that stopped for {stop} s missed something unsaid", lagged, 0)
    report.bound("memory that it cost, MiB", max(0, peak) / (1 << 20), 64)


def kills(report: Report, sizes: Sizes) -> None:
    count = sizes.kills
    report.head(f"kill -9 of the server under load, {count} times")
    left = unreadable = unreported = finished_runs = 0
    with tempfile.TemporaryDirectory(prefix="sandtimer-soak-") as state:
        expected: dict[str, str] = {}
        for turn in range(count):
            marker = f"soak-{os.getpid()}-{turn}"
            with Server(state, ("--keep-runs", "0")) as server:
                begun = load(server, marker, expected)
                server.kill()
                deadline = time.monotonic() + 1
                while remaining(marker) and time.monotonic() < deadline:
                    time.sleep(0.01)
                left += len(remaining(marker))
            with Server(state, ("--keep-runs", "0")) as server:
                client = server.client()
                for run, text in expected.items():
                    finished_runs += 1
                    unreadable += client.ask("GET", f"/v1/runs/{run}")["outcome"]["stdout"] != text
                for run in begun:
                    outcome = client.ask("GET", f"/v1/runs/{run}")["outcome"]
                    unreported += outcome is None or outcome["ending"] != "infra_error"
            expected = dict(list(expected.items())[-200:])
    report.line(f"  {finished_runs} finished results asked for again")
    report.bound("processes left a second after", left, 0)
    report.bound("finished results not readable", unreadable, 0)
    report.bound("unfinished runs not reported as such", unreported, 0)


def load(server: Server, marker: str, expected: dict[str, str]) -> list[str]:
    """Runs of all kinds; notes what finished, and returns those that go on."""

    def work(index: int) -> dict[str, str]:
        client, found = server.client(), {}
        place = client.open() if index % 2 else client.open("sessions")
        for number in range(5):
            text = f"{marker}-{index}-{number}\n"
            source = {"code": f"print({text!r}, end='')"} if index % 2 else {"command": f"echo {text}"}
            found[client.execute(place, **source)["run_id"]] = text
        return found

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for found in pool.map(work, range(8)):
            expected.update(found)
    client = server.client()
    long = {"command": ["bash", "-c", f"exec -a {marker} sleep 600"], "wait_ms": 0, "detach": True}
    return [client.ask("POST", "/v1/runs", long)["run_id"] for _ in range(4)]


def remaining(marker: str) -> list[int]:
    found = []
    for process in measure.processes():
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                if file.read().startswith(marker.encode()):
                    found.append(process)
        except OSError:
            pass
    return found


def requests(report: Report, sizes: Sizes) -> None:
    report.head("schemathesis")
    with Server() as server, tempfile.TemporaryDirectory(prefix="sandtimer-soak-") as directory:
        command = [
            os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "schemathesis"), "run", "--no-color", "--checks",
            "not_a_server_error", "--request-timeout", "30", "--max-examples", str(sizes.examples), "--seed", "1",
            "--exclude-path-regex", "/events$|/watch$", f"http://127.0.0.1:{server.port}/openapi.json",
        ]  # fmt: skip
        found = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=3600)
        for line in found.stdout.splitlines()[-30:]:
            report.line(f"  {line}")
        client = server.client()
        alive = client.execute(client.open(), code="1+1")["value"] == 2
    report.bound("a server error, a hang, or an unanswered request", float(found.returncode != 0), 0)
    report.bound("the server answers afterwards", float(alive), 1, at_least=True)


PARTS: dict[str, Callable[[Report, Sizes], None]] = {
    part.__name__: part for part in (patience, contexts, clients, lines, kills, requests)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; repeatable")
    parser.add_argument("--json", metavar="FILE", help="write the numbers there")
    options = parser.parse_args()
    report = Report()
    report.line(machine())
    for name, part in PARTS.items():
        if not options.only or name in options.only:
            part(report, QUICK if options.quick else FULL)
    report.conclude(options.json)
    return int(any(not bound["met"] for bound in report.record["bounds"]))


if __name__ == "__main__":
    sys.exit(main())
