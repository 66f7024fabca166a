#!/usr/bin/env python3
"""A program that resists every polite attempt to end it, to show that Sandtimer ends it.

It starts a daemon in the usual way (two forks and a session of its own), which keeps stdout open, ignores the
signals that ask a program to end, and sleeps for an hour. Then it ignores the same signals itself and spins.

    sandtimer run --wall 2s -- python3 examples/runaway.py

Without Sandtimer it does no harm: each of its processes ends by itself within 60 seconds.
Needs Python 3.8 or later and nothing else.
"""

import os
import signal
import sys
import time

AN_HOUR = 3600.0
# How long a process lives at most if it is not killed.
MAX_SECONDS = 50.0
POLITE_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def report(text):
    """Prints a line and flushes it: a kill loses what is in a buffer."""
    print("runaway: pid {}: {}".format(os.getpid(), text), flush=True)


def refuse_to_end(end):
    """Ignores the signals that ask for an end. The kernel's timer ends the process after `end` if a loop hangs."""
    for number in POLITE_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # Not inherited by a child, so each process sets its own.
    signal.alarm(max(1, int(end - time.monotonic()) + 5))


def daemon(end):
    """Starts the daemon; returns in the first process only."""
    child = os.fork()
    if child > 0:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork() > 0:
        os._exit(0)
    os.chdir("/")
    refuse_to_end(end)
    report("a daemon in its own session, with stdout open, that sleeps for an hour")
    until = min(time.monotonic() + AN_HOUR, end)
    while time.monotonic() < until:
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))
    os._exit(0)


def main():
    end = time.monotonic() + MAX_SECONDS
    report("starting a daemon, without waiting for it")
    daemon(end)
    refuse_to_end(end)
    report("ignoring SIGTERM and spinning")
    while time.monotonic() < end:
        pass
    report("this program was not killed; it ends by itself")
    return 1


if __name__ == "__main__":
    sys.exit(main())
