"""A progress bar for `map`, by tqdm or rich, whichever is there; a line of text where neither is."""

from __future__ import annotations

import sys
from typing import Any, Optional


class Bar:
    """Counts outcomes and, by kind, those that are no values."""

    def __init__(self, total: Optional[int]) -> None:
        self._failed: dict[str, int] = {}
        self._done, self._total = 0, total
        self._tqdm: Any = None
        self._rich: Any = None
        if sys.stderr is None or sys.stderr.closed:
            # Nobody would see one.
            return
        try:
            from tqdm.auto import tqdm

            self._tqdm = tqdm(total=total, unit="call")
        except ImportError:
            try:
                from rich.progress import Progress

                self._rich = Progress()
                self._rich.start()
                self._task = self._rich.add_task("calls", total=total)
            except ImportError:
                pass

    def add(self, ending: str, ok: bool) -> None:
        self._done += 1
        if not ok:
            self._failed[ending] = self._failed.get(ending, 0) + 1
        words = ", ".join(f"{count} {name}" for name, count in sorted(self._failed.items()))
        if self._tqdm is not None:
            if words:
                self._tqdm.set_postfix_str(words, refresh=False)
            self._tqdm.update(1)
        elif self._rich is not None:
            self._rich.update(self._task, advance=1, description=f"calls ({words})" if words else "calls")
        elif _is_seen():
            of = f"/{self._total}" if self._total is not None else ""
            sys.stderr.write(f"\r{self._done}{of} calls{' (' + words + ')' if words else ''}\x1b[K")

    def close(self) -> None:
        if self._tqdm is not None:
            self._tqdm.close()
        elif self._rich is not None:
            self._rich.stop()
        elif self._done and _is_seen():
            sys.stderr.write("\n")


def _is_seen() -> bool:
    return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()
