"""The contracts of [tool.importlinter] in pyproject.toml: kept, and each of them can break."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = "from importlinter.cli import lint_imports_command; lint_imports_command()"
VIOLATIONS = {
    "The eight folders import each other one way": (
        "timing/prediction.py",
        "import difftest.testing.contract.case",
        "difftest.timing.prediction -> difftest.testing.contract.case",
    ),
    "The parts of testing import each other one way": (
        "testing/backends/base.py",
        "def f():\n    import difftest.testing.harness.runner",
        "difftest.testing.backends.base -> difftest.testing.harness.runner",
    ),
    "The parts of the simulator import each other one way": (
        "simulator/errors.py",
        "import difftest.simulator.dtypes",
        "difftest.simulator.errors -> difftest.simulator.dtypes",
    ),
    "No packages or modules import each other in a circle": (
        "tools/lint/type_inference.py",
        "import difftest.tools.lint.source",
        "No cycles are allowed in difftest.tools.lint.",
    ),
    "The two dialects do not import each other": (
        "simulator/frontend/nki/views.py",
        "import difftest.simulator.frontend.classic.calls",
        "difftest.simulator.frontend.nki.views -> difftest.simulator.frontend.classic.calls",
    ),
    "The simulator and what reads its traces need neither pytest nor Hypothesis": (
        "analysis/finding.py",
        "import pytest",
        "difftest.analysis.finding -> pytest",
    ),
    "The package needs nothing of the source tree around it": (
        "testing/contract/spec.py",
        "def f():\n    import reference.conv2d",
        "difftest.testing.contract.spec -> reference",
    ),
}
"""A file, an import that breaks a contract, and the printed line, by the contract's name."""


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the package in a folder."""
    return subprocess.run(
        [sys.executable, "-c", COMMAND, "--no-cache"],
        cwd=root,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_the_contracts_are_kept():
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout
    for contract in VIOLATIONS:
        assert f"{contract} KEPT" in result.stdout
    assert f"Contracts: {len(VIOLATIONS)} kept, 0 broken." in result.stdout


def test_each_contract_can_be_broken(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(
        ROOT / "difftest",
        tmp_path / "difftest",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for file, source, _ in VIOLATIONS.values():
        with (tmp_path / "difftest" / file).open("a", encoding="utf-8") as module:
            module.write(f"\n{source}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1
    printed = " ".join(result.stdout.split())
    for contract, (_, _, violation) in VIOLATIONS.items():
        assert f"{contract} BROKEN" in printed
        assert violation in printed
