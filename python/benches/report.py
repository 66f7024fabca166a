"""How the benches print: tables, and each bound with what was measured."""

from __future__ import annotations

import json
import os
from typing import Any, Optional, Sequence

import measure


class Report:
    """Prints as it goes, and keeps the numbers for `--json`."""

    def __init__(self) -> None:
        self.record: dict[str, Any] = {"bounds": []}

    def line(self, text: str = "") -> None:
        print(text, flush=True)

    def head(self, title: str) -> None:
        self.line(f"\n{title}")

    def steal(self, window: measure.Window) -> None:
        self.line(f"  {window.seconds():.0f} s, steal {window.steal():.2f} %")

    def bound(self, label: str, measured: Optional[float], target: float, at_least: bool = False) -> None:
        """One bound; None is a measurement that could not be made, which counts as missed."""
        met = measured is not None and (measured >= target if at_least else measured <= target)
        sign = "≥" if at_least else "≤"
        value = "not measured" if measured is None else f"{measured:.3f}"
        self.line(f"  {label:<62} {value:>12}   target {sign} {target:<6g} {'met' if met else 'MISSED'}")
        record = {"label": label, "measured": measured, "target": target, "at_least": at_least, "met": met}
        self.record["bounds"].append(record)

    def conclude(self, path: Optional[str]) -> None:
        bounds = self.record["bounds"]
        missed = [each["label"] for each in bounds if not each["met"]]
        self.line(f"\nbounds: {len(bounds) - len(missed)} met, {len(missed)} missed")
        for label in missed:
            self.line(f"  missed: {label}")
        if path is not None:
            with open(path, "w") as file:
                json.dump(self.record, file, indent=1)


def milliseconds(samples: Sequence[float]) -> str:
    """p50, p90 and p99 of seconds."""
    return "".join(f"{1000 * measure.percentile(samples, share):10.3f}" for share in (50, 90, 99))


def machine() -> str:
    count = len(os.sched_getaffinity(0))
    return f"{count} processors, {measure.available_memory() >> 20} MiB of memory available"
