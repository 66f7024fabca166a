"""Queues at full size, on both stores: `queue_proofs.py webhooks|rates|fan-out [sqlite|nats]`.

It drives the command line of `target/release/sandtimer`, or of SANDTIMER_BIN, and needs no packages. It prints
what it counted and ends with 1 if a bound was missed.
"""

from __future__ import annotations

import collections
import contextlib
import http.server
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Callable, Iterator

BINARY = os.environ.get("SANDTIMER_BIN", "target/release/sandtimer")
NATS_SERVER = "/usr/sbin/nats-server"
# After this a proof has failed.
HARD_STOP = 1500.0
JOBS = int(os.environ.get("SANDTIMER_PROOF_JOBS", "1000"))


class Store:
    """A store of its own, and the command line on it."""

    def __init__(self, directory: pathlib.Path, url: str | None) -> None:
        self.directory = directory
        self.environment = {**os.environ, "SANDTIMER_STATE_DIR": str(directory / "state")}
        self.environment.pop("SANDTIMER_STORE", None)
        if url is not None:
            self.environment["SANDTIMER_STORE"] = url

    def command(self, *arguments: str, given: str = "") -> str:
        command = [BINARY, "jobs", *arguments]
        done = subprocess.run(
            command, input=given, env=self.environment, capture_output=True, text=True, timeout=300
        )
        if done.returncode != 0:
            raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def submit(self, specs: list[dict[str, Any]]) -> list[str]:
        lines = "".join(json.dumps(spec) + "\n" for spec in specs)
        return self.command("submit", "-", given=lines).split()

    def queue(self) -> dict[str, int]:
        found = json.loads(self.command("queues", "--json"))
        queues = found["queues"] if isinstance(found, dict) else found
        states = ("scheduled", "queued", "leased", "dead")
        return {state: sum(queue[state] for queue in queues) for state in states}

    def records(self, ids: list[str]) -> list[dict[str, Any]]:
        records = []
        for at in range(0, len(ids), 100):
            text = self.command("show", "--json", *ids[at : at + 100])
            records += [json.loads(line) for line in text.splitlines()]
        return records

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        log = (self.directory / "workers.log").open("ab")
        command = [BINARY, "jobs", "work", *options]
        return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)


@contextlib.contextmanager
def opened(kind: str) -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="sandtimer-proof-") as name:
        directory = pathlib.Path(name)
        if kind == "sqlite":
            yield Store(directory, None)
            return
        arguments = ["-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", name, "-js", "-sd", name]
        quiet = subprocess.DEVNULL
        server = subprocess.Popen([NATS_SERVER, *arguments], stdout=quiet, stderr=quiet)
        try:
            ports = directory / f"nats-server_{server.pid}.ports"
            wait_until("the NATS server listens", lambda: ports.exists() and ports.read_text().endswith("}"))
            yield Store(directory, json.loads(ports.read_text())["nats"][0])
        finally:
            server.kill()
            server.wait()


def wait_until(what: str, is_so: Callable[[], Any], seconds: float = HARD_STOP) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"it did not happen within {seconds:.0f} s: {what}")
        time.sleep(0.2)


def end_all(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
    for worker in workers:
        try:
            worker.wait(60)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def check(is_met: bool, what: str) -> bool:
    print(f"  {'ok    ' if is_met else 'MISSED'} {what}", flush=True)
    return is_met


class Receiver:
    """Three destinations: each refuses a third of the requests, and one is silent until `answers` is set."""

    def __init__(self) -> None:
        self.accepted: collections.Counter[str] = collections.Counter()
        self.refused = 0
        self.unanswered = 0
        self.lock = threading.Lock()
        self.answers = threading.Event()
        self.chance = random.Random(26)
        self.servers = [self._serve(is_silent) for is_silent in (False, False, True)]

    def _serve(self, is_silent: bool) -> http.server.ThreadingHTTPServer:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if is_silent and not outer.answers.is_set():
                    with outer.lock:
                        outer.unanswered += 1
                    outer.answers.wait(HARD_STOP)
                    self.close_connection = True
                    return
                with outer.lock:
                    is_refused = outer.chance.random() < 1 / 3
                    if is_refused:
                        outer.refused += 1
                    else:
                        outer.accepted[body["id"]] += 1
                self.send_response(503 if is_refused else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *_: object) -> None:
                return

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def url(self, number: int) -> str:
        return f"http://127.0.0.1:{self.servers[number % len(self.servers)].server_address[1]}/"


def webhooks(store: Store) -> bool:
    """Every webhook is delivered: workers that may not send it, a receiver that fails, each worker killed."""
    receiver = Receiver()
    options = [("--private-webhooks",), ("--private-webhooks",), ()]
    workers = [store.worker("--slots", "4", "--lease", "2s", *each) for each in options]
    begun = time.monotonic()
    ids = store.submit([{"command": ["true"], "webhook": {"url": receiver.url(number)}} for number in range(JOBS)])
    kills = 0
    try:
        for index, each in enumerate(options):
            share = JOBS * (3 - index) // 4
            wait_until(f"{share} jobs are left", lambda: sum(store.queue().values()) <= share)
            workers[index].kill()
            workers[index].wait()
            kills += 1
            workers[index] = store.worker("--slots", "4", "--lease", "2s", *each)
        wait_until("all jobs have ended", lambda: sum(store.queue().values()) == 0)
        ended = time.monotonic() - begun
        receiver.answers.set()
        wait_until("all webhooks are delivered", lambda: len(receiver.accepted) >= JOBS)
    finally:
        receiver.answers.set()
        end_all(workers)
    took = time.monotonic() - begun
    again = sum(count - 1 for count in receiver.accepted.values())
    print(f"  {JOBS} jobs ended after {ended:.0f} s, {len(receiver.accepted)} webhooks delivered after {took:.0f} s")
    print(f"  {receiver.refused} requests refused, {receiver.unanswered} not answered, {again} delivered again")
    print(f"  {kills} workers killed")
    delivered = [record["webhook"]["delivered_ms"] is not None for record in store.records(ids)]
    results = [
        check(set(receiver.accepted) == set(ids), "every job's end was delivered, and nothing else"),
        check(receiver.refused > JOBS // 5, "about a third of the requests were refused"),
        check(receiver.unanswered > 0, "a destination was silent"),
        check(all(delivered), f"{sum(delivered)} of {len(delivered)} records have the delivery"),
    ]
    return all(results)


def rates(store: Store) -> bool:
    """A rate of 5 starts a second, over a minute, with two workers."""
    most, per_ms, seconds = 5, 1000, 60
    workers = [store.worker("--slots", "8") for _ in range(2)]
    count = most * (seconds + 5)
    try:
        rate = {"key": "proof", "most": most, "per_ms": per_ms}
        ids = store.submit([{"command": ["true"], "rate": rate} for _ in range(count)])
        wait_until("all jobs have ended", lambda: sum(store.queue().values()) == 0, 600)
    finally:
        end_all(workers)
    starts = sorted(record["leased_ms"] for record in store.records(ids))
    minute = sum(start < starts[0] + seconds * 1000 for start in starts)
    busiest = max(sum(start <= other < start + per_ms for other in starts) for start in starts)
    wanted = most * seconds
    print(f"  {minute} starts in the first minute of {wanted} allowed, at most {busiest} in any second")
    results = [
        check(abs(minute - wanted) <= wanted * 0.05, "within 5 % over a minute"),
        check(busiest <= most, "never more than the rate in any period"),
    ]
    return all(results)


def fan_out(store: Store) -> bool:
    """A fan-out of 1,000 jobs, 50 at a time, and the job that has their results."""
    most = 50
    then = {
        "command": ["cat", "results.json"],
        "after_results": "results.json",
        "limits": {"output_bytes": "64M"},
    }
    spec = {
        "name": "square",
        "command": ["sh", "-c", "echo $((SANDTIMER_ITEM * SANDTIMER_ITEM))"],
        "map": {"over": list(range(JOBS)), "most": most, "then": then},
    }
    file = store.directory / "spec.json"
    file.write_text(json.dumps(spec))
    workers = [store.worker("--slots", "40") for _ in range(2)]
    begun = time.monotonic()
    seen = []
    try:
        ids = store.command("submit", str(file)).split()

        def is_over() -> bool:
            depths = store.queue()
            seen.append(depths["leased"])
            return sum(depths.values()) == 0

        wait_until("all jobs have ended", is_over)
    finally:
        end_all(workers)
    took = time.monotonic() - begun
    records = store.records(ids)
    results = json.loads(records[-1]["result"]["outcome"]["stdout"])
    sums = [result["stdout"] for result in results]
    print(f"  {JOBS} jobs and the one after them in {took:.0f} s")
    print(f"  at most {max(seen)} at a time in {len(seen)} samples")
    first_start = records[-1]["leased_ms"]
    checks = [
        check(len(ids) == JOBS + 1 and all(record["ok"] for record in records), "all succeeded"),
        check(0 < max(seen) <= most, f"never more than {most} at a time"),
        check(
            all(record["ended_ms"] <= first_start for record in records[:-1]),
            "the last one began when all others had ended",
        ),
        check(
            sums == [f"{number * number}\n" for number in range(JOBS)],
            "it had all their results in their order",
        ),
    ]
    return all(checks)


PROOFS: dict[str, Callable[[Store], bool]] = {"webhooks": webhooks, "rates": rates, "fan-out": fan_out}


def main(name: str, kinds: list[str]) -> int:
    is_met = True
    for kind in kinds:
        if kind == "nats" and not shutil.which(NATS_SERVER):
            raise SystemExit(f"there is no {NATS_SERVER}; install nats-server")
        print(f"{name} on {kind}", flush=True)
        with opened(kind) as store:
            is_met = PROOFS[name](store) and is_met
    return 0 if is_met else 1


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PROOFS:
        raise SystemExit(f"usage: queue_proofs.py {'|'.join(PROOFS)} [sqlite|nats]")
    sys.exit(main(sys.argv[1], sys.argv[2:] or ["sqlite", "nats"]))
