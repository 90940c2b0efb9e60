"""`difftest serve`: the commands as tools of an MCP server, for agents.

Each tool runs a command in a new process, which reads the current files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from difftest.support.choices import install_hint
from difftest.tools.verdict.wire import printable

PAGE = 4_000
"""Characters of a page of an answer."""
SECONDS = 600.0
MOST = 20_000
"""Characters of all arguments of a tool."""
MOST_FILES = 2_000
COLUMNS = "100"


class Tools:
    """The tools of the server. Each returns the output of its command within a time limit."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._texts: dict[tuple[str, ...], str] = {}

    def verdict(
        self, kernel: str, test: str, cases: int = 50, case: str = "", page: int = 1
    ) -> str:
        """Judge FILE.py:KERNEL by the kernel test PATH::TEST; a case (JSON) is judged alone.

        The first line names the outcome. A failure names its smallest case.
        """
        return self._answer(page, "verdict", kernel, test, cases=str(cases), case=case)

    def check(
        self,
        kernel: str,
        shapes: list[str] | None = None,
        case: str = "",
        page: int = 1,
    ) -> str:
        """Look for hazards that only a device shows: races, PSUM, order of iterations.

        The kernel is FILE.py:KERNEL with a shape ("128,512") for each input, or PATH::TEST with a
        case as JSON.
        """
        return self._answer(page, "check", kernel, shape=shapes, case=case)

    def profile(
        self,
        kernel: str,
        shapes: list[str] | None = None,
        case: str = "",
        page: int = 1,
    ) -> str:
        """Predict a kernel's latency and its limiting resource, without measurement."""
        return self._answer(page, "profile", kernel, shape=shapes, case=case)

    def lint(
        self, files: list[str], sdk: str = "", target: str = "", page: int = 1
    ) -> str:
        """Report errors that the compiler would raise, from the source: line, rule, remedy."""
        from difftest.tools.lint.files import python_files

        count = len(python_files([Path(file) for file in files if _is_short(file)]))
        if count > MOST_FILES:
            return f"error: {count:,} files; accepted: {MOST_FILES:,}"
        return self._answer(page, "lint", *files, sdk=sdk, target=target)

    def explain(self, what: str, page: int = 1) -> str:
        """Explain a lint rule, a detector, a name of NKI (nisa.activation), or codes of AWS.

        A code is one such as NCC_EBVF030 or NRT_TIMEOUT, or those in a log file.
        """
        here = Path.cwd().resolve()
        if _is_short(what) and not Path(what).resolve().is_relative_to(here):
            return f"error: {what} is outside of the folder of this server"
        return self._answer(page, "explain", what)

    def migrate(
        self,
        file: str,
        kernel: str = "",
        shapes: list[str] | None = None,
        page: int = 1,
    ) -> str:
        """Rewrite a classic kernel file in the current dialect; no file is written.

        With a kernel and the shape of each of its inputs, both forms run and have to agree.
        """
        return self._answer(page, "migrate", file, kernel=kernel, shape=shapes)

    def replay(self, file: str, page: int = 1) -> str:
        """Run a saved failure again, up to the instruction where a judge first disagrees."""
        return self._answer(page, "replay", file)

    def _answer(
        self, page: int, command: str, *names: str, **texts: str | list[str] | None
    ) -> str:
        """Return a page of a command's output; a request for the first page runs the command."""
        arguments = command, *_options(texts), "--", *names
        size = sum(map(len, arguments))
        if size > MOST or not all(map(_is_short, arguments)):
            return f"error: names of {size:,} characters; accepted: {MOST:,}, without nulls"
        if page == 1 or arguments not in self._texts:
            self._texts = {arguments: self._run(arguments)}
        return _page(self._texts[arguments], page)

    def _run(self, arguments: tuple[str, ...]) -> str:
        """Run a command and return its output and exit code, or that it exceeded the time limit."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "difftest", *arguments],
                stdin=subprocess.DEVNULL,  # the server's stdin belongs to the client
                capture_output=True,
                text=True,
                timeout=self.seconds,
                env={**os.environ, "COLUMNS": COLUMNS, "NO_COLOR": "1"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"difftest {arguments[0]} took more than {self.seconds:g} s, and was killed"
        output = [part.rstrip() for part in (done.stdout, done.stderr) if part.strip()]
        return printable("\n".join([*output, f"exit code {done.returncode}"]))


def _is_short(text: str) -> bool:
    """Return whether a text is short enough, and without nulls, for a command's argument."""
    return len(text) <= MOST and "\0" not in text


def _options(texts: Mapping[str, str | list[str] | None]) -> list[str]:
    """Return the options of a command line; an option without a text is left out."""
    lists = {
        name: [text] if isinstance(text, str) else text for name, text in texts.items()
    }
    return [
        f"--{name}={text}" for name, row in lists.items() for text in row or () if text
    ]


def _page(text: str, page: int) -> str:
    """Return a page of a text, with a last line that names the next page."""
    pages = _pages(text)
    if not 1 <= page <= len(pages):
        return f"error: there is no page {page}; this answer has {len(pages)}"
    shown = pages[page - 1]
    if len(pages) == 1:
        return shown
    more = f"; ask for page={page + 1}" if page < len(pages) else ""
    return f"{shown}\n(page {page} of {len(pages)}{more})"


def _pages(text: str) -> list[str]:
    """Return the text in pages; a page ends between two lines where it can."""
    pages = []
    rest = text
    while len(rest) > PAGE:
        end = rest.rfind("\n", 0, PAGE)
        end = PAGE if end <= 0 else end
        pages.append(rest[:end])
        rest = rest[end:].lstrip("\n")
    return [*pages, rest]


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
    """Serve the commands to an agent: an MCP server.

    On stdin and stdout; no network, no state but the last answer. Needs the extra `serve`.
    """
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        lack = install_hint("mcp", "serving", "serve") or "serving needs mcp 2 or later"
        raise click.UsageError(lack) from None
    server = MCPServer("nki-difftest", instructions=INSTRUCTIONS)
    tools = Tools(timeout)
    for name in NAMES:
        server.add_tool(getattr(tools, name))
    server.run("stdio")
