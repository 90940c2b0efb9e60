"""Below the frontends the simulator knows the machine, and no dialect's syntax."""

from __future__ import annotations

import re
from pathlib import Path

from tests.every import every
from tests.unit.test_architecture import FLOORS, ROOT, floor_of, planted

# The syntax of a dialect's indices and shapes. Below the frontends there are only patterns, walks
# and indirect accesses.
SYNTAX = re.compile(r"\b(nl\.(arange|mgrid|ds)|par_dim|DynamicIndex|DynamicSlice)\b")


def syntax_below(root: Path) -> list[str]:
    """Return the lines below the frontends that name a dialect's syntax."""
    top = list(FLOORS).index("frontend")
    files = sorted(root.glob("difftest/simulator/**/*.py"))
    files = [file for file in files if file.name != "misuses.py"]  # texts for both dialects
    names = [".".join(file.relative_to(root).with_suffix("").parts) for file in files]
    floors = [floor_of(name.removesuffix(".__init__")) for name in names]
    below = [file for file, at in zip(files, floors, strict=True) if at is not None and at < top]
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
        ("instructions/copy.py", ["difftest/simulator/instructions/copy.py:2 has nl.mgrid"]),
        (
            "frontend/classic/tensor.py",
            ["no file lies below the frontends: the rule holds nothing"],
        ),
    ],
)
def test_planted_syntax_is_found(tmp_path, file, found):
    source = "import numpy as np\nremedy = 'use nl.mgrid'\nlines = np.arange(3)\n"
    assert syntax_below(planted(tmp_path, f"difftest/simulator/{file}", source)) == found
