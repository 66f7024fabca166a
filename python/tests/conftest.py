"""What several files of tests need."""

from __future__ import annotations

from typing import Iterator

import pytest
from serving import Serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server."""
    serving = Serving(tmp_path_factory.mktemp("server"))
    yield serving.url
    serving.stop()
