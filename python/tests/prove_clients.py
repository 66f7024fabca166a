"""Unmodified clients of other judges and sandboxes, and 64 of them at once, against a real server.

Not collected by itself; `cargo xtask prove` runs it. It needs git, npm and gcc.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.request
from typing import Any

import judge0
import pytest
from conformance import DIFFERS, PASSED, archive, checkout, npm_packages, record, states_of

PAGE = "other-clients"
VERL = "b178a3cd56f58b2d502255daba591e92833930a7"
VERL_TESTS = "tests/utils/reward_score/reward_score/test_sandbox_fusion_on_cpu.py"
OPEN_R1 = "1416fa0cf21595d2083b399a2a0bbddd7f6e9563"
OPEN_R1_CLIENT = "src/open_r1/utils/competitive_programming/piston_client.py"
LIBRECHAT = "3.2.21"
LIBRECHAT_SHA256 = "fa087bc1b4059a6e4781c3eaa4b8626f0a001717b0f6dbd803c3c6afdde37cf7"
CLIENTS, SECONDS = 64, 60


def state(holds: bool) -> str:
    return PASSED if holds else DIFFERS


def test_verl(server: str, tmp_path: pathlib.Path) -> None:
    # The rest of verl imports torch; without the files that do, these are parts of a namespace package.
    paths = [VERL_TESTS, "verl/utils/reward_score/sandbox_fusion"]
    tree = checkout("volcengine/verl", VERL, paths, tmp_path)
    variables = {**os.environ, "PYTHONPATH": str(tree), "SANDBOX_FUSION_URL": f"{server}/run_code"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", "results.xml", VERL_TESTS]
    done = subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True, timeout=1200)
    assert (tree / "results.xml").exists(), done.stdout + done.stderr
    record(PAGE, "SandboxFusion: verl's `test_sandbox_fusion_on_cpu.py`", VERL[:7], states_of(tree / "results.xml"))


def test_open_r1(server: str, tmp_path: pathlib.Path) -> None:
    file = checkout("huggingface/open-r1", OPEN_R1, [OPEN_R1_CLIENT], tmp_path) / OPEN_R1_CLIENT
    specification = importlib.util.spec_from_file_location("piston_client", file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    record(PAGE, "Piston: open-r1's `PistonClient`", OPEN_R1[:7], asyncio.run(with_piston_client(module, f"{server}/api/v2")))


async def with_piston_client(module: Any, address: str) -> dict[str, str]:
    client = module.PistonClient(address, max_requests_per_endpoint=16)

    async def execute(language: str, name: str, content: str, **more: Any) -> Any:
        files = [{"name": name, "content": content}]
        return await client.send_execute({"files": files, "run_timeout": 20000, **more}, language=language)

    (runtimes,) = await client.get_supported_runtimes()
    results = {"runtimes": state({"python", "c++"} <= {each["language"] for each in runtimes})}
    done = await execute("python", "main.py", "print(sum(map(int, input().split())))", stdin="1 2 3", run_memory_limit=256 << 20)
    results["Python"] = state(done["run"]["stdout"] == "6\n")
    program = "#include <iostream>\nint main(){int a,b;std::cin>>a>>b;std::cout<<a*b;}"
    done = await execute("c++", "main.cpp", program, stdin="6 7", compile_timeout=60000)
    results["C++"] = state(done["run"]["stdout"] == "42")
    done = await execute("python", "main.py", "while True: pass", run_timeout=1000)
    results["a timeout"] = state((done["run"]["signal"], done["run"]["status"]) == ("SIGKILL", "TO"))
    many = await asyncio.gather(*[execute("python", "main.py", f"print({number}**2)") for number in range(200)])
    results["200 programs"] = state([each["run"]["stdout"] for each in many] == [f"{number**2}\n" for number in range(200)])
    await client.session.close()
    return results


def test_judge0(server: str) -> None:
    client = judge0.Client(endpoint=server)
    adds = "print(f'hello {input()}')"
    cases = [judge0.TestCase("a", "hello a"), judge0.TestCase("b", "no")]
    right, wrong = judge0.run(client=client, source_code=adds, language=judge0.PYTHON, test_cases=cases)
    compiled = judge0.run(client=client, source_code='#include <stdio.h>\nint main(){puts("c");}', language=judge0.C)
    broken = judge0.run(client=client, source_code="int main(){", language=judge0.C)
    endless = judge0.run(client=client, source_code="while True: pass", language=judge0.PYTHON, cpu_time_limit=1)
    raises = judge0.run(client=client, source_code="raise SystemExit(3)", language=judge0.PYTHON)
    several = [judge0.Submission(source_code=f"print({number})", language=judge0.PYTHON) for number in range(5)]
    together = judge0.run(client=client, submissions=several)
    results = {
        "languages": state(client.is_language_supported(judge0.PYTHON)),
        "an accepted test case": state(right.status == judge0.Status.ACCEPTED),
        "a wrong answer": state(wrong.status == judge0.Status.WRONG_ANSWER),
        "a C program": state(compiled.stdout == "c\n"),
        "a compile error": state(broken.status == judge0.Status.COMPILATION_ERROR),
        "a time limit": state(endless.status == judge0.Status.TIME_LIMIT_EXCEEDED),
        "an exit code": state(raises.status == judge0.Status.RUNTIME_ERROR_NZEC),
        "a batch": state([each.stdout for each in together] == [f"{number}\n" for number in range(5)]),
    }
    record(PAGE, "Judge0: `judge0`, the official Python SDK", importlib.metadata.version("judge0"), results)


def test_librechat(server: str, tmp_path: pathlib.Path) -> None:
    modules = npm_packages()
    url = f"https://registry.npmjs.org/@librechat/agents/-/agents-{LIBRECHAT}.tgz"
    package = archive(url, LIBRECHAT_SHA256, tmp_path)
    script = "src/scripts/test_code_api.ts"
    (package / "node_modules").symlink_to(modules)
    variables = {**os.environ, "LIBRECHAT_CODE_BASEURL": f"{server}/librechat"}
    variables.pop("PROXY", None)
    command = [str(modules / ".bin/tsx"), script]
    done = subprocess.run(command, cwd=package, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    steps: dict[str, str] = {}
    name = ""
    for line in done.stdout.splitlines():
        if line.startswith("TEST "):
            name = line.partition(": ")[2]
            steps[name] = PASSED
        # What the script prints for what it finds wrong.
        elif name and line.startswith(("❌", "⚠")):
            steps[name] = DIFFERS
    assert len(steps) == done.stdout.count("TEST ") >= 5, done.stdout
    record(PAGE, "LibreChat: `src/scripts/test_code_api.ts` of `@librechat/agents`", LIBRECHAT, steps)


@pytest.mark.parametrize("seconds", [SECONDS])
def test_many_clients_are_served_fairly(server: str, seconds: int) -> None:
    end = time.monotonic() + seconds
    counts, wrong = [0] * CLIENTS, []

    def work(place: int) -> None:
        while time.monotonic() < end:
            body = json.dumps({"language": "python", "code": f"print({place} + {counts[place]})", "run_timeout": 10}).encode()
            asked = urllib.request.Request(f"{server}/run_code", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=120) as answer:
                found = json.load(answer)
            if found["status"] != "Success" or found["run_result"]["stdout"] != f"{place + counts[place]}\n":
                wrong.append(found)
                return
            counts[place] += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{sum(counts)} programs of {CLIENTS} clients; {min(counts)} to {max(counts)} of each")
    results = {"no false timeout": state(not wrong), "fair": state(min(counts) * 2 >= max(counts))}
    record(PAGE, f"SandboxFusion: {CLIENTS} clients of `/run_code` for {seconds} s", "", results)
