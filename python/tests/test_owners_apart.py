"""What a server learns of one owner's programs is that owner's alone."""

from __future__ import annotations

import pathlib
import time
from typing import Iterator

import pytest
import sandtimer
from serving import Serving

TOKENS = {"one": "token-of-the-first-owner", "other": "token-of-the-other-owner"}
# Of the standard library, and nothing that an interpreter imports by itself.
MODULE = "imaplib"
ASKS = f"import sys\nprint({MODULE!r} in sys.modules)\n"
USES = f"{ASKS}import {MODULE}\n"


@pytest.fixture
def url(tmp_path: pathlib.Path) -> Iterator[str]:
    serving = Serving(tmp_path, "".join(f"{name} {token}\n" for name, token in TOKENS.items()))
    yield serving.url
    serving.stop()


def printed(client: sandtimer.Client, code: str) -> str:
    outcome = client.run(code=code, timeout=60)
    assert outcome.ok, outcome
    return str(outcome.stdout).strip()


def test_profile_of_one_owner_is_not_the_others(url: str) -> None:
    one, other = (sandtimer.Client(url, token) for token in TOKENS.values())
    assert printed(other, ASKS) == "False"
    end = time.monotonic() + 120
    while printed(one, USES) != "True":
        assert time.monotonic() < end, "the server did not learn what the programs import"
        time.sleep(0.05)
    for _ in range(20):
        assert printed(other, ASKS) == "False", "it was learned from another owner's programs"
    assert printed(one, ASKS) == "True", "the owner still has it"
