"""The sandbox of a session of /mcp, with the official Python client: it probes for the protocol without sessions first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

mcp = pytest.importorskip("mcp", reason="the MCP client has no package for this Python")

HARD_STOP = 60.0


async def protocol_of_client(server: str, mode: str) -> str:
    """The version that a client chooses, whose tools share a sandbox."""
    async with mcp.Client(f"{server}/mcp?sandbox=host", mode=mode) as client:
        await client.call_tool("bash", {"command": "echo 42 >~/answer"})
        code = {"language": "python", "code": "int(open('/home/user/answer').read())"}
        answer = await client.call_tool("run_code", code)
        assert answer.structured_content["value"] == 42, answer
        return str(client.protocol_version)


def test_client_that_probes_opens_a_session(server: str) -> None:
    chosen = asyncio.run(asyncio.wait_for(protocol_of_client(server, "auto"), HARD_STOP))
    assert chosen < "2026", chosen


def test_client_without_sessions_is_refused(server: str) -> None:
    with pytest.raises(BaseException) as refused:
        asyncio.run(asyncio.wait_for(protocol_of_client(server, "2026-07-28"), HARD_STOP))
    error: Any = refused.value
    while hasattr(error, "exceptions"):
        (error,) = error.exceptions
    assert "sandbox: `host` needs a session" in str(error), error
