"""The linter on the project's kernels, against Python's parser; a file may take a second."""

import ast
import time
from pathlib import Path

from difftest.tools.lint.files import LintRequest
from difftest.tools.lint.rule import NEWEST

KERNELS = Path(__file__).parents[1] / "kernels"
AIM = 1.0
"""Seconds for the slowest file, all rules of sources asked."""


def seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def test_each_file_takes_less_than_a_second(capsys):
    files = sorted(KERNELS.rglob("*.py"))
    parsed = sum(
        seconds(lambda file=file: ast.parse(file.read_bytes())) for file in files
    )
    of_files = LintRequest().of_files
    of_files(files[:1])  # imports
    read = {file: seconds(lambda file=file: of_files([file])) for file in files}
    slowest = max(read, key=read.get)
    upgrade = LintRequest(sdk=NEWEST).of_files
    migrated = seconds(lambda: [one.fix for one in upgrade([slowest])[0]])
    with capsys.disabled():
        print(
            f"\n{len(files)} files: {sum(read.values()) / parsed:.0f} times ast.parse; slowest is "
            f"{slowest.relative_to(KERNELS)}, {read[slowest]:.2f} s; with its fixes for the newest "
            f"SDK {migrated / read[slowest]:.0f} times that"
        )
    assert len(files) > 30
    assert read[slowest] < AIM
