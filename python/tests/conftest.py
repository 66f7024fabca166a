"""What several files of tests need."""

from __future__ import annotations

import signal
from typing import Iterator

import pytest
from serving import Serving


# A shell has what it puts into the background ignore Ctrl-C, and what that starts, too: tests of Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server."""
    serving = Serving(tmp_path_factory.mktemp("server"))
    yield serving.url
    serving.stop()
