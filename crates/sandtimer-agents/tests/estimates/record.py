#!/usr/bin/env python3
"""Record how long real commands take, idle and beside load: what `history.csv` is made by.

    python3 record.py history.csv                 (as root, for real-time scheduling)

Rounds go through all commands in an order that differs each time: first some rounds idle, then some beside load, and so on,
so that what changes with time changes for both. Idle, a command has one processor to itself (SCHED_FIFO), and on the others
a loop that does nothing keeps everything else away as long as it runs, as on a machine that does nothing else; its load is 0.
Beside load it is scheduled as everything is, beside what else the machine does, or busy loops where that is too little; its
load is how many processes were runnable for each processor when it started. Commands run with a clean environment in a
directory of their own, with their output thrown away.
"""

import os
import platform
import random
import select
import signal
import subprocess
import sys
import tempfile
import time

ROUNDS_AT_A_TIME = 16
PHASES = 8
LEAST_LOAD = 2

PYTHON = sys.executable
DATA = "data.txt"

COMMANDS = [
    ("true", ["true"]),
    ("sleep-20ms", ["sleep", "0.02"]),
    ("sleep-50ms", ["sleep", "0.05"]),
    ("echo-shell", ["sh", "-c", "echo hello"]),
    ("bash-start", ["bash", "-c", ":"]),
    ("bash-loop", ["bash", "-c", "for ((i = 0; i < 8000; i++)); do :; done"]),
    ("shell-forks", ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done"]),
    ("ls-usr-bin", ["ls", "-l", "/usr/bin"]),
    ("find-usr-share-doc", ["find", "/usr/share/doc", "-name", "copyright"]),
    ("find-etc", ["find", "/etc"]),
    ("du-usr-share-doc", ["du", "-s", "/usr/share/doc"]),
    ("cat-data", ["cat", DATA]),
    ("wc-data", ["wc", DATA]),
    ("sort-data", ["sort", DATA]),
    ("sort-numbers", ["sort", "-n", "numbers.txt"]),
    ("uniq-data", ["sh", "-c", f"sort {DATA} | uniq -c"]),
    ("grep-data", ["grep", "-c", "seven", DATA]),
    ("grep-expression", ["grep", "-cE", "(one|two).*(nine|ten)$", DATA]),
    ("sed-data", ["sed", "s/seven/7/g", DATA]),
    ("awk-sum", ["awk", "{s += $1} END {print s}", "numbers.txt"]),
    ("awk-count", ["awk", "{for (i = 1; i <= NF; i++) c[$i]++} END {for (w in c) print w, c[w]}", DATA]),
    ("cut-data", ["cut", "-d ", "-f3", DATA]),
    ("tr-data", ["sh", "-c", f"tr a-z A-Z < {DATA}"]),
    ("rev-data", ["sh", "-c", f"tac {DATA} | tail -n 5"]),
    ("head-random", ["sh", "-c", "head -c 3000000 /dev/urandom | cksum"]),
    ("md5", ["md5sum", "large.bin"]),
    ("sha1", ["sha1sum", "large.bin"]),
    ("sha256", ["sha256sum", "large.bin"]),
    ("sha512", ["sha512sum", "large.bin"]),
    ("cksum", ["cksum", "large.bin"]),
    ("base64", ["base64", "large.bin"]),
    ("od", ["od", "-An", "-tx1", "-N", "200000", "large.bin"]),
    ("cmp", ["cmp", "large.bin", "copy.bin"]),
    ("cp-large", ["cp", "large.bin", "out.bin"]),
    ("dd-write", ["dd", "if=/dev/zero", "of=zero.bin", "bs=64k", "count=200"]),
    ("gzip-1", ["sh", "-c", f"gzip -1 -c {DATA}"]),
    ("gunzip", ["sh", "-c", "gzip -dc data.txt.gz"]),
    ("xz", ["sh", "-c", "xz -1 -c numbers.txt"]),
    ("bzip2", ["sh", "-c", "bzip2 -c numbers.txt"]),
    ("tar-create", ["tar", "cf", "out.tar", "tree"]),
    ("tar-list", ["tar", "tf", "tree.tar"]),
    ("diff", ["diff", "-q", DATA, "other.txt"]),
    ("perl-loop", ["perl", "-e", "my $s = 0; $s += $_ * $_ for 1..150000;"]),
    ("python-start", [PYTHON, "-S", "-c", "pass"]),
    ("python-imports", [PYTHON, "-c", "import json, decimal, argparse, asyncio"]),
    ("python-loop", [PYTHON, "-S", "-c", "s = 0\nfor i in range(200000): s += i * i"]),
    ("python-sort", [PYTHON, "-S", "-c", "import random; random.seed(1); sorted(random.random() for _ in range(20000))"]),
    ("python-primes", [PYTHON, "-S", "-c", "print(sum(all(n % d for d in range(2, int(n ** .5) + 1)) for n in range(2, 4000)))"]),
    ("python-json", [PYTHON, "-c", "import json; d = [{'a': i, 'b': str(i)} for i in range(5000)]; json.loads(json.dumps(d))"]),
    ("git-version", ["git", "--version"]),
    ("factor", ["factor", "1000000016000000063"]),
]


def prepare(directory):
    """The files that commands work on, the same each time."""
    random.seed(7)
    words = "one two three four five six seven eight nine ten".split()
    lines = [" ".join(random.choice(words) for _ in range(9)) for _ in range(8_000)]
    text = "\n".join(lines) + "\n"
    open(os.path.join(directory, DATA), "w").write(text)
    open(os.path.join(directory, "other.txt"), "w").write(text[:-9] + "different")
    open(os.path.join(directory, "numbers.txt"), "w").write("".join(f"{random.randrange(10**9)}\n" for _ in range(20_000)))
    large = random.randbytes(6_000_000)
    for name in ("large.bin", "copy.bin"):
        open(os.path.join(directory, name), "wb").write(large)
    os.makedirs(os.path.join(directory, "tree"))
    for index in range(300):
        open(os.path.join(directory, "tree", f"file{index}"), "wb").write(large[index * 9000 : index * 9000 + 9000])
    subprocess.run("tar cf tree.tar tree; gzip -k data.txt", shell=True, cwd=directory, check=True)


def burn():
    while True:
        pass


def start_busy(count):
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            burn()
        children.append(child)
    return children


def stop(children):
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def timed(command):
    """Milliseconds from the start of a command to its end. subprocess would look for the end in steps of its own."""
    nothing = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in range(3)]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}
    start = time.perf_counter()
    child = os.posix_spawnp(command[0], command, environment, file_actions=nothing)
    end = os.pidfd_open(child)
    waiting = select.poll()
    waiting.register(end, select.POLLIN)
    if not waiting.poll(60_000):
        os.kill(child, signal.SIGKILL)
    took = time.perf_counter() - start
    os.waitpid(child, 0)
    os.close(end)
    return took * 1000


def available():
    for name, command in COMMANDS:
        try:
            timed(command)
            yield name, command
        except FileNotFoundError:
            print(f"{name}: not here, left out", file=sys.stderr)


class Idle:
    """The machine as if it did nothing else. Others have as much time between two commands as one took."""

    SOURCE = "int main(void) { for (;;) __builtin_ia32_pause(); }"

    def __init__(self):
        subprocess.run(["cc", "-O1", "-x", "c", "-", "-o", "nothing"], input=self.SOURCE, text=True, check=True)
        self.loops = []
        for processor in range(1, os.cpu_count()):
            child = os.fork()
            if child == 0:
                os.sched_setaffinity(0, {processor})
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
                os.kill(os.getpid(), signal.SIGSTOP)
                os.execv("nothing", ["nothing"])
            os.waitpid(child, os.WUNTRACED)
            self.loops.append(child)
        os.sched_setaffinity(0, {0})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))

    def run(self, command):
        for loop in self.loops:
            os.kill(loop, signal.SIGCONT)
        took = timed(command)
        for loop in self.loops:
            os.kill(loop, signal.SIGSTOP)
        time.sleep(took / 1000)
        return 0, took

    def end(self):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, range(os.cpu_count()))
        stop(self.loops)


class Loaded:
    """The machine beside other work."""

    def __init__(self):
        self.busy = start_busy(LEAST_LOAD * os.cpu_count()) if runnable() < LEAST_LOAD else []

    def run(self, command):
        return runnable(), timed(command)

    def end(self):
        stop(self.busy)


def runnable():
    """Processes that want a processor, this one left out, for each of them."""
    with open("/proc/loadavg") as file:
        return (int(file.read().split()[3].split("/")[0]) - 1) / os.cpu_count()


def record(output):
    commands = list(available())
    output.write(f"# {len(commands)} commands, {os.cpu_count()} processors, Linux {platform.release()}; by record.py\n")
    output.write("command,load,milliseconds\n")
    chosen = random.Random(11)
    for phase in range(PHASES):
        machine = Loaded() if phase % 2 else Idle()
        try:
            for _ in range(ROUNDS_AT_A_TIME):
                for name, command in chosen.sample(commands, len(commands)):
                    load, milliseconds = machine.run(command)
                    output.write(f"{name},{load:g},{milliseconds:.3f}\n")
        finally:
            machine.end()
        print(f"phase {phase + 1} of {PHASES} done", file=sys.stderr, flush=True)


def main():
    with tempfile.TemporaryDirectory() as directory, open(sys.argv[1], "w") as output:
        prepare(directory)
        os.chdir(directory)
        record(output)


if __name__ == "__main__":
    main()
