"""A progress bar for `map` and for jobs, by tqdm or rich, whichever is there; a line of text where neither is."""

from __future__ import annotations

import sys
from typing import Any, Optional


class Bar:
    """Counts outcomes and, by kind, those without a value; and shows a note on the rest."""

    def __init__(self, total: Optional[int], unit: str = "call") -> None:
        self._failed: dict[str, int] = {}
        self._done, self._total, self._unit, self._noted = 0, total, unit, ""
        self._tqdm: Any = None
        self._rich: Any = None
        if sys.stderr is None or sys.stderr.closed:
            # It would not be seen.
            return
        try:
            from tqdm.auto import tqdm

            class Quiet(tqdm):  # type: ignore[misc]
                # Without tqdm's thread, with which `start="fork"` would be rejected from then on.
                monitor_interval = 0

            # What the thread is for: that no bar stands still because the first calls were faster.
            self._tqdm = Quiet(total=total, unit=unit, miniters=1)
        except ImportError:
            try:
                from rich.console import Console
                from rich.progress import Progress

                # As tqdm's: what is printed here may be read by a program.
                self._rich = Progress(console=Console(stderr=True))
                self._rich.start()
                self._task = self._rich.add_task(f"{unit}s", total=total)
            except ImportError:
                pass

    def add(self, ending: str, ok: bool) -> None:
        self._done += 1
        if not ok:
            self._failed[ending] = self._failed.get(ending, 0) + 1
        self._show(1)

    def note(self, details: str) -> None:
        """Shows a note after the counts, until the next note."""
        if details != self._noted:
            self._noted = details
            self._show(0)

    def _show(self, more: int) -> None:
        counts = [f"{count} {name}" for name, count in sorted(self._failed.items())]
        details = ", ".join(counts + ([self._noted] if self._noted else []))
        if self._tqdm is not None:
            self._tqdm.set_postfix_str(details, refresh=not more)
            self._tqdm.update(more)
        elif self._rich is not None:
            described = f"{self._unit}s ({details})" if details else f"{self._unit}s"
            self._rich.update(self._task, advance=more, description=described)
        elif _is_terminal():
            of = f"/{self._total}" if self._total is not None else ""
            sys.stderr.write(f"\r{self._done}{of} {self._unit}s{' (' + details + ')' if details else ''}\x1b[K")

    def close(self) -> None:
        if self._tqdm is not None:
            self._tqdm.close()
        elif self._rich is not None:
            self._rich.stop()
        elif self._done and _is_terminal():
            sys.stderr.write("\n")


def _is_terminal() -> bool:
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()
