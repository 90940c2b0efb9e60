"""`difftest serve`: the commands as tools of an MCP server, for agents."""

from __future__ import annotations

import click

from difftest.choices import missing
from difftest.verdict.tools import SECONDS, Tools

NAMES = tuple(name for name in vars(Tools) if not name.startswith("_"))
INSTRUCTIONS = (
    "Judge NKI kernels on a simulator; there is no device here, and every time is predicted. "
    "Ask `lint` first, then `verdict`; a failure names its line, its smallest case and a remedy."
)


@click.command()
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=SECONDS,
    show_default=True,
    help="Seconds that a tool may take.",
)
def serve(timeout: float) -> None:
    """Serve the commands to an agent: an MCP server on stdin and stdout.

    It has no network and no state but the last answer. Needs the extra `serve`.
    """
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        lack = missing("mcp", "serving", "serve") or "serving needs mcp 2 or later"
        raise click.UsageError(lack) from None
    server = MCPServer("nki-difftest", instructions=INSTRUCTIONS)
    tools = Tools(timeout)
    for name in NAMES:
        server.add_tool(getattr(tools, name))
    server.run("stdio")
