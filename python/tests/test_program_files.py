"""Programs in JavaScript, TypeScript and bash are files in their run, through each way into Sandtimer that executes code."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Iterator, NamedTuple

import pytest
import sandtimer
from doors import Doors, Ended
from serving import BINARY

NAMES = "/sandtimer/main.cjs /workspace"
# Longer than one argument of a command may be.
FILLER = "//" + "x" * 140_000 + "\n"


class Program(NamedTuple):
    code: str
    stdout: str
    language: str = "javascript"
    exit_code: int = 0
    # A part of stderr.
    stderr: str = ""


# A thread and a process execute the file again.
NODE = {
    "name": Program("console.log(__filename, __dirname)", f"{NAMES}\n"),
    "main": Program("console.log(require.main === module, process.argv.length, this === exports)", "true 2 true\n"),
    "own text": Program("console.log(require('fs').readFileSync(__filename, 'utf8').length)", "66\n"),
    "worker": Program(
        "const { Worker, isMainThread, parentPort } = require('worker_threads');\n"
        "if (isMainThread) new Worker(__filename).on('message', console.log);\nelse parentPort.postMessage([__filename, require('./lib')]);",
        "[ '/sandtimer/main.cjs', 'lib' ]\n",
    ),
    "fork": Program(
        "if (process.argv[2]) process.send([__filename, require('./lib'), require.main === module]);\n"
        "else require('child_process').fork(__filename, ['again']).on('message', (sent) => console.log(sent));",
        "[ '/sandtimer/main.cjs', 'lib', true ]\n",
    ),
    "cluster": Program(
        "const cluster = require('cluster');\nif (cluster.isPrimary) cluster.fork().on('message', (sent) => console.log(sent));\n"
        "else process.send(require('package'), () => process.exit());",
        "package\n",
    ),
    "modules of the directory": Program(
        "console.log(require('./lib'), require('package'), require('./data.json').a, require.resolve('./lib'))",
        "lib package 1 /workspace/lib.js\n",
    ),
    "import": Program("import('./lib.mjs').then((lib) => console.log(lib.default))", "module\n"),
    "order of callbacks": Program(
        "Promise.resolve().then(() => console.log('promise')); process.nextTick(() => console.log('tick'));", "tick\npromise\n"
    ),
    "strict": Program("'use strict';\nconsole.log((function () { return this; })())", "undefined\n"),
    "first line of a script": Program("#!/usr/bin/env node\nconsole.log(1)", "1\n"),
    "built-in modules without require": Program("console.log(os.EOL === '\\n', typeof crypto.createHash)", "true function\n"),
    "command": Program(
        "console.log(require('fs').readFileSync('/proc/self/cmdline', 'utf8').includes('secret'))", "false\n"
    ),
    "error": Program(
        "const a = 1;\nfunction fail() {\n  throw new Error('wrong');\n}\nfail();",
        "",
        exit_code=1,
        stderr="at fail (/sandtimer/main.cjs:3:9)\n    at Object.<anonymous> (/sandtimer/main.cjs:5:1)",
    ),
    "syntax error": Program("const a = 1;\nlet b = ;", "", exit_code=1, stderr="/sandtimer/main.cjs:2\nlet b = ;"),
    "long": Program(FILLER + "console.log(__filename, __dirname, require('./lib'))", f"{NAMES} lib\n"),
    "module": Program(
        "import lib from './lib.mjs';\nimport pack from 'package';\nimport { readFileSync } from 'node:fs';\n"
        "const { default: again } = await import('./lib.mjs');\n"
        "console.log(lib, pack, again, import.meta.url, process.argv[1], readFileSync(0, 'utf8'));\n"
        "console.log(readFileSync('/proc/self/cmdline', 'utf8').includes('secret'));",
        "module package module file:///workspace/[eval1] /workspace/[eval1] \nfalse\n",
    ),
    "error of a module": Program(
        "await null;\nthrow new Error('wrong');", "", exit_code=1, stderr="at file:///workspace/[eval1]:2:7"
    ),
    "worker of a module": Program(
        "import { Worker, isMainThread, parentPort } from 'node:worker_threads';\nimport lib from './lib.mjs';\n"
        "if (isMainThread) new Worker(new URL(import.meta.url)).on('message', console.log);\nelse parentPort.postMessage(lib);",
        "module\n",
    ),
    "worker and child of a module": Program(
        "import { fork } from 'node:child_process';\nimport { Worker } from 'node:worker_threads';\n"
        "await new Promise((done) => new Worker(new URL('./own.mjs', import.meta.url)).on('exit', done));\n"
        "fork('./own.mjs');",
        "own module\nown module\n",
    ),
    "long module": Program(
        FILLER + "import lib from './lib.mjs';\nconsole.log(lib, await 2, import.meta.url);", "module 2 file:///workspace/[eval1]\n"
    ),
    "TypeScript": Program(
        "const name: string = __filename;\nconsole.log(name, require('./lib') as string);", "/sandtimer/main.cjs lib\n", "typescript"
    ),
    "module in TypeScript": Program(
        "import lib from './lib.mjs';\nconst own: string = await lib;\nconsole.log(own);", "module\n", "typescript"
    ),
    "error in TypeScript": Program(
        "interface A {}\nconst a: A = {};\n(null as any).x;", "", "typescript", 1, "/sandtimer/main.cjs:3"
    ),
}
BASH = {
    "name in bash": Program('echo "$0 ${BASH_SOURCE[0]} $(basename "$0")"', "/sandtimer/main.sh /sandtimer/main.sh main.sh\n", "bash"),
    "itself in bash": Program(
        '[ "$AGAIN" ] || { AGAIN=1 bash "$0" one two; exit; }\necho "again $0 $# $LINENO"', "again /sandtimer/main.sh 2 2\n", "bash"
    ),
    "own text in bash": Program('wc -l < "$0"\n', "1\n", "bash"),
    "error in bash": Program("true\nno_such_program", "", "bash", 127, "/sandtimer/main.sh: line 2: no_such_program: command not found"),
    "input in bash": Program("read -r line\necho $?", "1\n", "bash"),
    "descriptors in bash": Program("exec 3</dev/null 4</dev/null\nexec 3<&-\necho end", "end\n", "bash"),
    "command in bash": Program("tr '\\0' ' ' < /proc/$$/cmdline # secret\n", "bash /sandtimer/main.sh ", "bash"),
    "long in bash": Program("#" + "x" * 140_000 + '\necho "$0 $LINENO"', "/sandtimer/main.sh 2\n", "bash"),
}
PROGRAMS = {**NODE, **BASH}
FILES = {
    "lib.js": "module.exports = 'lib'",
    "lib.mjs": "export default 'module'",
    "own.mjs": "import lib from './lib.mjs';\nconsole.log('own', lib)",
    "data.json": '{"a": 1}',
    "node_modules/package/index.js": "module.exports = 'package'",
}


def write(directory: Path) -> None:
    for name, text in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def assert_ended(name: str, ended: Ended, directory: str = "/workspace") -> None:
    program = PROGRAMS[name]
    assert ended.stdout == program.stdout.replace("/workspace", directory), (name, ended.whole)
    assert ended.exit_code == program.exit_code, (name, ended.whole)
    stderr = ended.whole["stderr"] if isinstance(ended.whole, dict) else ended.whole.stderr
    expected = program.stderr.replace("/workspace", directory)
    assert expected in stderr if expected else stderr == "", (name, stderr)


@pytest.fixture(scope="module")
def doors(server: str) -> Iterator[Doors]:
    with sandtimer.Sandbox() as box:
        yield Doors(server, box)


def test_programs_of_a_server_are_files(server: str, doors: Doors) -> None:
    workspace = sandtimer.Client(server).workspace()
    for name, text in FILES.items():
        workspace.files.write(name, text, parents=True)
    for name, program in PROGRAMS.items():
        ended = doors.http_run(code=program.code, language=program.language, workspace=workspace.id)
        assert_ended(name, ended)
    assert sorted(entry["path"] for entry in workspace.files.list()) == sorted({name.split("/")[0] for name in FILES})


# What the other ways have in common with the first, and what they do themselves.
SOME = ("name", "worker", "error", "module", "error in TypeScript", "name in bash", "error in bash")


@pytest.mark.parametrize("name", [name for name in SOME if "TypeScript" not in name])
def test_client_runs_a_file(server: str, name: str) -> None:
    client = sandtimer.Client(server)
    workspace = client.workspace()
    for file, text in FILES.items():
        workspace.files.write(file, text, parents=True)
    program = PROGRAMS[name]
    outcome = client.run(code=program.code, language=program.language, workspace=workspace)
    assert_ended(name, Ended(outcome.stdout, outcome.exit_code, outcome.ending, outcome))


def test_programs_of_jobs_are_files(doors: Doors) -> None:
    for name in SOME:
        if "lib" not in PROGRAMS[name].code:
            assert_ended(name, doors.job_code(PROGRAMS[name].code, PROGRAMS[name].language))


COMMANDS = {"javascript": "node", "typescript": "ts", "bash": "bash"}


def test_programs_of_the_command_line_are_files(tmp_path: Path) -> None:
    """The current directory is read-only."""
    write(tmp_path)
    for name in SOME:
        program = PROGRAMS[name]
        command = [BINARY, COMMANDS[program.language], "--json", "--wall", "40s", "-c", program.code]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, cwd=tmp_path)
        outcome = json.loads(done.stdout)
        assert_ended(name, Ended(outcome["stdout"], outcome["exit_code"], outcome["ending"], outcome), str(tmp_path))


ARGUMENTS = {"javascript": "console.log(...process.argv.slice(2))", "bash": 'echo "$@"'}


@pytest.mark.parametrize("language", ARGUMENTS)
def test_arguments_follow_the_file(tmp_path: Path, language: str) -> None:
    words = [BINARY, COMMANDS[language], "-c", ARGUMENTS[language], "--", "--a", "b c", "-"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("--a b c -\n", 0), done.stderr


@pytest.mark.parametrize("language", ARGUMENTS)
def test_code_is_an_argument_without_mounts(language: str) -> None:
    """A run without a root of its own has no place for what Node.js executes first."""
    words = [BINARY, COMMANDS[language], "--without", "mount", "-c", {"bash": "echo 1", "javascript": "console.log(1)"}[language]]
    environment = {**os.environ, "SANDTIMER_UNSAFE_TESTING": "1"}
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, cwd="/usr", env=environment)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def test_few_open_files_leave_room_for_the_file(doors: Doors) -> None:
    for code, language in (("console.log(__filename)", "javascript"), ('echo "$0"', "bash"), ("await 1; console.log(1)", "javascript")):
        ended = doors.http_run(code=code, language=language, open_files=60)
        assert ended.stdout in ("/proc/self/fd/59\n", "1\n"), ended.whole


def test_few_open_files_leave_room_for_the_text_of_a_python_program(doors: Doors) -> None:
    """With a variable of its own it is executed by an interpreter of its own."""
    code = "def fail():\n    raise ValueError(1)\nfail()"
    ended = doors.http_code(code, open_files=60, env={"PYTHONHASHSEED": "1"})
    assert 'File "/proc/self/fd/59", line 2, in fail\n    raise ValueError(1)' in ended.whole["stderr"], ended.whole


def test_file_leaves_descriptor_three_to_the_progress(doors: Doors) -> None:
    ended = doors.http_run(code='echo "$SANDTIMER_PROGRESS_FD"; echo 1/2 >&3', language="bash", progress_channel=True)
    assert (ended.stdout, ended.exit_code) == ("3\n", 0), ended.whole


def test_records_show_the_code_of_a_run(server: str, doors: Doors) -> None:
    run = doors.http_run(code="echo shown", language="bash").whole["run_id"]
    shown = {each["run_id"]: each["command"] for each in doors.listed_runs()}
    assert shown[run] == ["bash", "-c", "echo shown"]
