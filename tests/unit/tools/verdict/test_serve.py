"""`difftest serve`, asked by the client of the SDK."""

import asyncio
import os
import sys
from pathlib import Path

from difftest.tools.verdict.serve import NAMES

ROOT = Path(__file__).parents[4]


def test_a_client_sees_the_tools_and_gets_their_answers():
    # half a second, which each worker of pytest-xdist would spend
    from mcp import ClientSession, StdioServerParameters, stdio_client

    async def ask():
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "difftest", "serve"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            return (
                await session.list_tools(),
                await session.call_tool("explain", {"what": "NCC_EBVF030"}),
                await session.call_tool("explain", {"what": "x" * 10**6}),
                await session.call_tool("explain", {"what": "NCC_EBVF030", "page": 99}),
                await session.call_tool("explain", {"what": "/etc/passwd"}),
            )

    tools, told, *refused = asyncio.run(ask())
    assert {one.name for one in tools.tools} == set(NAMES)
    assert all(one.description for one in tools.tools)
    assert "NCC_EBVF030" in told.content[0].text
    assert "exit code 0" in told.content[0].text
    said = [
        "names of 1,000,009 characters",
        "no page 99; this answer has 1",
        "outside of the folder",
    ]
    for one, text in zip(refused, said, strict=True):
        assert text in one.content[0].text
