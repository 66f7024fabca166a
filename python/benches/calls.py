"""Python calls in sandboxes beside their peers and the raw floor, in one interleaved run.

    python python/benches/calls.py [--quick] [--json FILE] [--only SECTION…]

Run it where the package is installed in its release build, together with requirements.txt: peers that are missing are
said to be. A bound that is missed does not fail the run: it is marked, and listed in the end.
"""

from __future__ import annotations

import argparse
import sys

import judging
import measure
import sections
from contenders import CONTENDERS
from report import Report, machine

SECTIONS = {
    "latency": sections.latency,
    "throughput": sections.throughput,
    "ordinary": sections.ordinary,
    "large": sections.large,
    "ballast": sections.ballast,
    "deadlines": sections.deadlines,
    "judging": judging.judging,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=list(sections.SIZES), default="full")
    parser.add_argument("--quick", action="store_const", const="quick", dest="size", help="as --size quick")
    parser.add_argument("--json", metavar="FILE", help="every sample")
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), metavar="SECTION")
    options = parser.parse_args()
    size = sections.SIZES[options.size]
    report = Report()
    report.line(f"Python calls, size {options.size}: {machine()}, Python {sys.version.split()[0]}")
    hosts = sections.Hosts(list(CONTENDERS))
    try:
        sections.facts(report, hosts)
        for name in options.only:
            if options.size != "smoke":
                measure.wait_for_quiet(10, 120)
            SECTIONS[name](report, hosts, size)
    finally:
        hosts.close()
    report.conclude(options.json)


if __name__ == "__main__":
    main()
