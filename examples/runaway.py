#!/usr/bin/env python3
"""A program that does not want to end, to show that it does.

It starts a daemon in the usual way (two forks and a session of its own), which keeps stdout open, ignores the
signals that ask a program to end and means to stay for an hour. Then it ignores the same signals itself and spins.

    sandtimer run --wall 2s -- python3 examples/runaway.py

Run without Sandtimer it is a nuisance and no more: every process of it ends by itself within 60 seconds.
Needs Python 3.8 or later and nothing else.
"""

import os
import signal
import sys
import time

AN_HOUR = 3600.0
# What keeps the nuisance small where nothing else does.
LONGEST = 50.0
POLITE_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def say(text):
    """Prints a line at once: what is in a buffer when the process is killed is lost."""
    print("runaway: pid {}: {}".format(os.getpid(), text), flush=True)


def refuse_to_end(end):
    """Ignores what asks for an end. The kernel's timer stands behind `end`, should the loop below hang."""
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
    say("a daemon, with a session of its own; stdout stays open; going to sleep for an hour")
    until = min(time.monotonic() + AN_HOUR, end)
    while time.monotonic() < until:
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))
    os._exit(0)


def main():
    end = time.monotonic() + LONGEST
    say("starting a daemon that nobody will wait for")
    daemon(end)
    refuse_to_end(end)
    say("ignoring SIGTERM and spinning")
    while time.monotonic() < end:
        pass
    say("nobody ended this program; it ends by itself")
    return 1


if __name__ == "__main__":
    sys.exit(main())
