"""The server while one tenant sends too much: everybody else is answered in time, and its memory stays bounded.

    python python/benches/server_overload.py [--quick] [--only NAME] [--json FILE]

    bodies        bodies of 60 and 16 MiB of small values, and of 60 MiB of code with a field that is refused
    connections   1,024 connections that say nothing and have shown no token, and 1,030 event streams of one tenant
    together      both at once

Measured are `/healthz` and a run of another tenant, each over a connection of its own. A sample counts where a canary, a process
that wakes every 5 ms, was on time meanwhile: what is late with it, the machine is late with. The exit code is 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import sys
import tempfile
import threading
import time
from typing import Any, Callable

import measure
from report import Report, machine, milliseconds
from serving import PATIENCE, Client, Server

TENANT, OTHER = "first-secret-token-1234", "other-secret-token-1234"
BEARER = f"Authorization: Bearer {TENANT}\r\n"
MIB = 1 << 20
#: How late a canary may be, in seconds, and how often it wakes.
ON_TIME, TICK = 0.005, 0.005
#: The most memory that the server may have had, beyond what it has at rest.
GROWTH_MIB = 1536

Load = Callable[[int, float], None]


def send_bodies(port: int, end: float) -> None:
    """Sends from four threads until the end, and has each body refused."""
    values = [b"[" + b'{"":0},' * (length * MIB // 7) + b"0]" for length in (60, 16, 16)]
    bodies = [b'{"command": ' + each + b"}" for each in values]
    bodies.append(b'{"language": "python", "unknown": 1, "code": "' + b"x" * (60 * MIB) + b'"}')

    def send(body: bytes) -> None:
        while time.monotonic() < end:
            client = Client(port)
            try:
                client.send("POST", "/v1/runs", body, BEARER)
                status, content = client.answer()
                assert status in (400, 413, 429), content[:300]
            except ConnectionError:
                # Refused, and closed, before all of it was sent.
                pass
            client.socket.close()

    together([lambda body=body: send(body) for body in bodies])


def hold_connections(port: int, end: float) -> None:
    """Has so many connections open until the end; those that the server closes are opened again."""
    run = Client(port)
    run.send("POST", "/v1/runs", json.dumps({"command": ["sleep", "600"], "wait_ms": 0, "detach": True}).encode(), BEARER)
    events = f"GET /v1/runs/{json.loads(run.answer()[1])['run_id']}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{BEARER}\r\n"

    def connect(request: bytes) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        connection.sendall(request)
        connection.setblocking(False)
        return connection

    def is_open(connection: socket.socket) -> bool:
        try:
            return connection.recv(1 << 16) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def hold(request: bytes, count: int) -> None:
        connections: list[socket.socket] = []
        while time.monotonic() < end:
            for closed in [each for each in connections if not is_open(each)]:
                closed.close()
                connections.remove(closed)
            for _ in range(min(count - len(connections), 64)):
                try:
                    connections.append(connect(request))
                except OSError:
                    break
            time.sleep(0.05)

    together([lambda: hold(b"", 1024), lambda: hold(events.encode(), 1030)])


def together(works: list[Callable[[], None]]) -> None:
    """Does them all at the same time. A load that ends before its time fails."""
    failed: list[Exception] = []

    def do(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=do, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def watch_canary(end: float, results: Any) -> None:
    """When it was late, from and to."""
    late, due = [], time.monotonic() + TICK
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        now = time.monotonic()
        if now - due > ON_TIME:
            late.append((due, now))
        due = max(due, now) + TICK
    results.put(late)


def probe(end: float, pause: float, ask: Callable[[], None]) -> list[tuple[float, float]]:
    samples = []
    while time.monotonic() < end:
        start = time.monotonic()
        ask()
        samples.append((start, time.monotonic()))
        time.sleep(pause)
    return samples


def measure_under(report: Report, name: str, loads: list[Load], seconds: float) -> None:
    report.head(f"{name}, {seconds:.0f} s")
    with tempfile.NamedTemporaryFile("w") as tokens:
        tokens.write(f"tenant {TENANT}\nother {OTHER}\n")
        tokens.flush()
        os.chmod(tokens.name, 0o600)
        with Server(arguments=("--token-file", tokens.name)) as server:
            answer_under(report, server, loads, seconds)


def answer_under(report: Report, server: Server, loads: list[Load], seconds: float) -> None:
    def ask(method: str, path: str, body: bytes, headers: str = "") -> None:
        client = Client(server.port)
        client.send(method, path, body, headers)
        status, content = client.answer()
        client.socket.close()
        if status != 200:
            raise RuntimeError(f"{path}: {status} {content[:300]!r}")

    def health() -> None:
        ask("GET", "/healthz", b"")

    def run() -> None:
        ask("POST", "/v1/runs", b'{"command": ["true"]}', f"Authorization: Bearer {OTHER}\r\n")

    run()
    before = measure.bytes_of(server.process.pid, "VmHWM")
    end, results = time.monotonic() + seconds, multiprocessing.Queue()
    processes = [multiprocessing.Process(target=load, args=(server.port, end)) for load in loads]
    processes.append(multiprocessing.Process(target=watch_canary, args=(end, results)))
    for process in processes:
        process.start()
    taken: dict[str, list[tuple[float, float]]] = {}
    probes = {"/healthz": (health, 0.02), "a run of another tenant": (run, 0.1)}
    together([
        lambda label=label, ask=ask, pause=pause: taken.__setitem__(label, probe(end, pause, ask))
        for label, (ask, pause) in probes.items()
    ])
    late = results.get(timeout=PATIENCE)
    for process in processes:
        process.join(PATIENCE)
    failed = sum(process.exitcode != 0 for process in processes)
    report.bound("loads that failed", float(failed), 0)
    for label, samples in ((label, taken.get(label, [])) for label in probes):
        on_time = [to - since for since, to in samples if not any(a < to and b > since for a, b in late)]
        report.line(f"  {label:<28}{len(samples):>7} samples, {len(on_time):>6} on time: p50, p90, p99{milliseconds(on_time)} ms")
        slowest = measure.percentile(on_time, 99) * 1000 if on_time else None
        report.bound(f"p99 of {label}, ms", slowest, 100)
    peak = measure.bytes_of(server.process.pid, "VmHWM")
    report.line(f"  the server's memory: {before >> 20} MiB at rest, {peak >> 20} MiB at most")
    report.bound("growth of the server's memory, MiB", (peak - before) / MIB, GROWTH_MIB)


LOADS: dict[str, list[Load]] = {
    "bodies": [send_bodies],
    "connections": [hold_connections],
    "together": [send_bodies, hold_connections],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 s each")
    parser.add_argument("--only", choices=LOADS)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    report = Report()
    report.line(machine())
    for name, loads in LOADS.items():
        if arguments.only in (None, name):
            measure_under(report, name, loads, 10.0 if arguments.quick else 60.0)
    report.conclude(arguments.json)
    return 0 if all(each["met"] for each in report.record["bounds"]) else 1


if __name__ == "__main__":
    sys.exit(main())
