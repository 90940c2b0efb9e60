"""What `difftest serve` offers to agents: each tool runs a command, in a process of its own.

A process a call sees the files as they are now, and what a kernel does to it harms no server.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from difftest.lint.check import rules
from difftest.verdict.agent_kernel import AgentKernel, AgentKernelError

PAGE = 4_000
"""Characters of an answer; what is longer has several pages."""
SECONDS = 600.0
COLUMNS = "100"


class Tools:
    """The tools, by their names; each returns the text of its command.

    Parameters
    ----------
    seconds : a command may take; one that does not end is killed.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._texts: dict[tuple[str, ...], str] = {}

    def verdict(
        self, kernel: str, test: str, cases: int = 50, case: str = "", page: int = 1
    ) -> str:
        """Judge FILE.py:KERNEL by the kernel test PATH::TEST; a case (JSON) is judged alone.

        The first line says what came of it; a failure names its smallest case.
        """
        options = [f"--cases={cases}", *_option("case", case)]
        return self._answer(page, "verdict", *options, "--", kernel, test)

    def check(
        self, kernel: str, shapes: list[str] | None = None, case: str = "", page: int = 1
    ) -> str:
        """Look for hazards that only a device shows: races, PSUM, order of iterations.

        The kernel is FILE.py:KERNEL with a shape ("128,512") for each input, or PATH::TEST with a
        case as JSON.
        """
        return self._answer(page, "check", *_run(shapes, case), "--", kernel)

    def profile(
        self, kernel: str, shapes: list[str] | None = None, case: str = "", page: int = 1
    ) -> str:
        """Predict how long a kernel takes, and what limits it; nothing is measured."""
        return self._answer(page, "profile", *_run(shapes, case), "--", kernel)

    def lint(self, files: list[str], sdk: str = "", target: str = "", page: int = 1) -> str:
        """Tell what the compiler would refuse, from the source: line, rule, remedy."""
        options = [*_option("sdk", sdk), *_option("target", target)]
        return self._answer(page, "lint", *options, "--", *files)

    def explain(self, what: str, page: int = 1) -> str:
        """Explain a lint rule, a code of the compiler (NCC_EBVF030), or the codes in a log file."""
        if what in rules():
            return self._answer(page, "lint", f"--explain={what}")
        return self._answer(page, "explain", "--", what)

    def migrate(
        self, file: str, kernel: str = "", shapes: list[str] | None = None, page: int = 1
    ) -> str:
        """Rewrite a classic kernel file in today's dialect; no file is written.

        With a kernel and the shape of each of its inputs, both forms run and have to agree.
        """
        options = [*_option("kernel", kernel), *(f"--shape={one}" for one in shapes or ())]
        return self._answer(page, "migrate", *options, "--", file)

    def replay(self, file: str, page: int = 1) -> str:
        """Run a saved failure again, up to the instruction where a judge first disagrees."""
        return self._answer(page, "replay", "--", file)

    def nki_verify(
        self,
        kernel_source: str,
        reference_source: str,
        input_specs: list[dict[str, Any]],
        kernel_name: str = "nki_kernel",
        cases: int = 50,
    ) -> dict[str, Any]:
        """Judge the source of a kernel by a NumPy function `reference`, on inputs of these specs.

        Each spec has a `shape` and a `dtype`. No device runs. The bound of the error follows from
        the kernel's arithmetic: `atol` and `rtol` do not count. An error that nobody has worked out
        over all elements is null.
        """
        names = ("max_abs_error", "max_rel_error", "mismatched_elements", "total_elements")
        answer: dict[str, Any] = {"correct": False, **dict.fromkeys(names)}
        given = kernel_source, kernel_name, input_specs
        document, text = self._asked("verdict", given, reference_source, [f"--cases={cases}"])
        if document is None:
            return {**answer, "error": text}
        wrong, agrees = document["first_wrong"], document["exit_code"] == 0
        answer |= {"correct": agrees, "outcome": document["outcome"], "seed": document["seed"]}
        answer["total_elements"] = (wrong or document["evidence"])["elements"]
        answer["mismatched_elements"] = wrong["wrong"] if wrong else 0 if agrees else None
        return {**answer, "error": None if agrees else text}

    def nki_profile(
        self,
        kernel_source: str,
        input_specs: list[dict[str, Any]],
        kernel_name: str = "nki_kernel",
    ) -> dict[str, Any]:
        """Predict the time of the source of a kernel, on inputs of these specs.

        No device runs: what is measured is null, and `predicted_us` lies between `low_us` and
        `high_us`.
        """
        measured = ("mean", "median", "p99", "std")
        answer = {"success": False, **{f"latency_{one}_us": None for one in measured}}
        given = kernel_source, kernel_name, input_specs
        document, text = self._asked("profile", given, None, [])
        if document is None:
            return {**answer, "error": text}
        low, high = document["interval_us"]["nc_latency"]
        times = {"predicted_us": document["nc_latency_us"]["50"], "low_us": low, "high_us": high}
        return {**answer, "success": True, "error": None, **times, "advice": document["advice"]}

    def _answer(self, page: int, *arguments: str) -> str:
        """A page of what a command says; the first page runs it."""
        if page == 1 or arguments not in self._texts:
            self._texts = {arguments: self._said(arguments)}
        text = self._texts[arguments]
        pages = _pages(text)
        page = min(max(page, 1), len(pages))
        shown = pages[page - 1]
        if len(pages) == 1:
            return shown
        more = f"; ask for page={page + 1}" if page < len(pages) else ""
        return f"{shown}\n(page {page} of {len(pages)}{more})"

    def _asked(
        self, command: str, given: tuple[Any, ...], reference: str | None, options: list[str]
    ) -> tuple[Any, str]:
        """The object that a command writes of a kernel's source, or None; and what it says."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                names = AgentKernel(*given).written(Path(folder), reference)
            except AgentKernelError as error:
                return None, str(error)
            said = self._said((command, "--json=out.json", *options, *names), folder)
            file = Path(folder, "out.json")
            document = json.loads(file.read_text("utf-8")) if file.is_file() else None
            return document, _pages(said)[0]

    def _said(self, arguments: tuple[str, ...], folder: str | None = None) -> str:
        """What a command says and ends with."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "difftest", *arguments],
                stdin=subprocess.DEVNULL,  # the server's own is the client's
                capture_output=True,
                text=True,
                cwd=folder,
                timeout=self.seconds,
                env={**os.environ, "COLUMNS": COLUMNS, "NO_COLOR": "1"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"difftest {arguments[0]} took more than {self.seconds:g} s, and was killed"
        said = [part.rstrip() for part in (done.stdout, done.stderr) if part.strip()]
        return "\n".join([*said, f"exit code {done.returncode}"])


def _option(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"] if value else []


def _run(shapes: list[str] | None, case: str) -> list[str]:
    return [*(f"--shape={one}" for one in shapes or ()), *_option("case", case)]


def _pages(text: str) -> list[str]:
    """The text in pages, cut between lines where lines allow it."""
    pages, rest = [], text
    while len(rest) > PAGE:
        end = rest.rfind("\n", 0, PAGE)
        end = PAGE if end <= 0 else end
        pages.append(rest[:end])
        rest = rest[end:].lstrip("\n")
    return [*pages, rest]
