"""`difftest serve`, asked by the client of the SDK."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from difftest.verdict.serve import NAMES
from tests.unit.verdict.kernels import RIGHT

ROOT = Path(__file__).parents[3]


def test_a_client_sees_the_tools_and_gets_their_answers():
    # half a second, which each worker of pytest-xdist would spend
    from mcp import ClientSession, StdioServerParameters, stdio_client

    specs = [{"shape": [4, 2], "dtype": "float32"}] * 2
    given = {"kernel_source": RIGHT, "kernel_name": "add", "input_specs": specs}

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
                await session.call_tool("nki_profile", given | {"warmup_runs": 5}),
                await session.call_tool("nki_verify", given | {"reference_source": "", "atol": 1}),
            )

    tools, profiled, verified = asyncio.run(ask())
    assert {one.name for one in tools.tools} == {*NAMES}
    assert all(one.description for one in tools.tools)
    profile = json.loads(profiled.content[0].text)
    assert profile["success"], profile
    assert profile["low_us"] < profile["predicted_us"] < profile["high_us"]
    assert profile["latency_mean_us"] is None, "nothing is measured"
    assert "reference_source has no function reference" in verified.content[0].text
