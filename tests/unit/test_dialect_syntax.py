"""Below the frontends the simulator knows the machine, and no dialect's syntax."""

from __future__ import annotations

import re
from pathlib import Path

from tests.every import every
from tests.unit.imports import planted
from tests.unit.test_architecture import ROOT

# How a dialect spells its indices and shapes. Below the frontends there are patterns, walks and
# indirect accesses, in any spelling.
SYNTAX = re.compile(r"\b(nl\.(arange|mgrid|ds)|par_dim|DynamicIndex|DynamicSlice)\b")

ABOVE = (
    "entry",
    "frontend",
    "__init__.py",
    "arrays.py",
    "launch.py",
    "launch_listeners.py",
    "replay.py",
    "tape.py",
    "tape_json.py",
    "misuses.py",
)
"""The frontends, the modules above them, and the texts of misuses in both dialects."""


def syntax_below(root: Path) -> list[str]:
    """The lines below the frontends that speak of a dialect's syntax."""
    files = sorted(root.glob("difftest/simulator/**/*.py"))
    inside = [(file, file.relative_to(root / "difftest/simulator")) for file in files]
    below = [file for file, path in inside if path.parts[0] not in ABOVE]
    if not below:
        return ["no file lies below the frontends: the rule holds nothing"]
    return [
        f"{file.relative_to(root)}:{number} has {found[0]}"
        for file in below
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (found := SYNTAX.search(line))
    ]


def test_the_syntax_of_a_dialect_is_in_its_frontend():
    assert syntax_below(ROOT) == []


@every(
    "file, found",
    [
        ("tile.py", ["difftest/simulator/tile.py:2 has nl.mgrid"]),
        ("misuses.py", ["no file lies below the frontends: the rule holds nothing"]),
        (
            "instructions/copy.py",
            ["difftest/simulator/instructions/copy.py:2 has nl.mgrid"],
        ),
        (
            "frontend/classic/tensor.py",
            ["no file lies below the frontends: the rule holds nothing"],
        ),
    ],
)
def test_planted_syntax_is_found(tmp_path, file, found):
    source = "import numpy as np\nremedy = 'use nl.mgrid'\nlines = np.arange(3)\n"
    assert (
        syntax_below(planted(tmp_path, f"difftest/simulator/{file}", source)) == found
    )
