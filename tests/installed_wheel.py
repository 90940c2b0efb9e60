"""Install the built wheel in a virtual environment of its own, and run its commands there.

python tests/installed_wheel.py FOLDER

FOLDER has one wheel. The environment has the wheel and its dependencies, and no extra. The commands
run in an empty folder, so that they cannot import this repository.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HELP_OF_ALL = (
    "from difftest.cli.main import main as all_commands; import click\n"
    "context = click.Context(all_commands)\n"
    "for name in all_commands.list_commands(context):\n"
    "    command = all_commands.get_command(context, name)\n"
    "    print(name, len(command.get_help(click.Context(command))) > 100)\n"
)
"""Imports the module of each command, without the extras."""


class Command(NamedTuple):
    """A command line, a piece of the output, and the exit code."""

    line: str
    shows: str
    code: int = 0


KERNEL = "first/scale.py:scale_rows --shape 130,40 --set factor=2.0"
TEST = "first/test_scale.py::test_scale_rows"
FIRST = Command("difftest init first", "now: pytest --simulate first")
COMMANDS = (
    Command("difftest doctor", "ok  --simulate=embedded", code=1),
    Command("difftest lint first", "nothing found"),
    Command(f"difftest check {KERNEL}", "findings: 0"),
    Command(f"difftest profile {KERNEL}", "predicted for trn2"),
    Command("difftest explain nisa.activation", "instruction activation"),
    Command("difftest explain NKL101", "a comprehension in a kernel"),
    Command("difftest stubs stubs", "files in stubs"),
    Command("difftest bench kernel tiled -n 4096", "vector_add_tiled"),
    Command("difftest migrate first/scale.py", "needs libcst", code=2),
    Command(f"difftest verdict first/scale.py:scale_rows {TEST}", "agrees"),
    Command("pytest --simulate first", "passed"),
)


class Environment:
    """A virtual environment with the wheel, and an empty folder to work in."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        home = folder / "environment"
        self.programs = home / ("Scripts" if os.name == "nt" else "bin")
        subprocess.run(
            ["uv", "venv", "--quiet", "--python", sys.executable, home], check=True
        )
        install = ["uv", "pip", "install", "--quiet", "--python", home, wheel]
        subprocess.run(install, check=True)

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, and capture its output."""
        return subprocess.run(
            [self.programs / program, *arguments],
            cwd=self.work,
            env={**os.environ, "COLUMNS": "100"},
            encoding="utf-8",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def fault(self, command: Command) -> str:
        """Return how a command differs from its expectation; empty if it does not."""
        done = self.run(*shlex.split(command.line))
        if done.returncode == command.code and command.shows in done.stdout:
            return ""
        expected = f"expected {command.shows!r} and the exit code {command.code}"
        received = f"received the exit code {done.returncode} and\n{done.stdout}"
        return f"{command.line}\n{expected}; {received}"


def faults_of(environment: Environment, version: str) -> list[str]:
    """Return a text for each command of the wheel that does not do its work."""
    everywhere = [Command("difftest --version", version), *COMMANDS]
    first = environment.fault(FIRST)
    with ThreadPoolExecutor(max_workers=2) as pool:
        faults = [first, *pool.map(environment.fault, everywhere)]
    helps = environment.run("python", "-c", HELP_OF_ALL)
    if helps.returncode or "False" in helps.stdout or helps.stdout.count("True") < 20:
        faults.append(f"the help of each command: {helps.stdout}")
    return [fault for fault in faults if fault]


def main(folder: str) -> int:
    """Check the one wheel of a folder; return the exit code."""
    (wheel,) = Path(folder).resolve().glob("*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        environment = Environment(wheel, Path(scratch))
        faults = faults_of(environment, wheel.name.split("-")[1])
    for fault in faults:
        print(f"installed wheel: {fault}", file=sys.stderr)
    print(f"{wheel.name}: {len(COMMANDS) + 3} checks, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
