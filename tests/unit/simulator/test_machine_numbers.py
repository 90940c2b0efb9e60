"""The machine's sizes are its fields, and no other module of the simulator has them as numbers."""

import ast
import re
from pathlib import Path

import difftest.simulator
from tests.every import every

PACKAGE = Path(difftest.simulator.__file__).parent
SIZES = (64, 128, 512, 2048, 4096, 16384)
"""Partitions and their halves, free sizes, bytes of a bank and of PSUM, indices of a gather."""
IN_TEXT = re.compile(rf"\b({'|'.join(map(str, SIZES))})\b")
CACHES = ("maxsize", "_KEPT", "MOST_DEPTH")
"""The sizes of caches are the simulator's own choice."""


def own_choice(node):
    if isinstance(node, ast.keyword):
        return node.arg in CACHES
    if isinstance(node, ast.Assign):
        return any(getattr(target, "id", "") in CACHES for target in node.targets)
    # 2.0**64 is not a size
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)


def documentation(tree):
    """The strings outside of values: docstrings, of functions and of constants."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def numbers(source):
    """The lines of a module that have a size of the machine, as a number or in an error's text."""
    if not IN_TEXT.search(source):
        return []
    tree = ast.parse(source)
    left = [tree]
    found = []
    told = documentation(tree)
    while left:
        node = left.pop()
        if own_choice(node):
            continue
        left += ast.iter_child_nodes(node)
        if not isinstance(node, ast.Constant) or id(node) in told:
            continue
        is_text = isinstance(node.value, str) and IN_TEXT.search(node.value)
        if is_text or (type(node.value) is int and node.value in SIZES):
            found.append(node.lineno)
    return sorted(found)


def test_no_module_but_the_machine_has_its_sizes():
    found = {
        str(file.relative_to(PACKAGE)): lines
        for file in sorted(PACKAGE.rglob("*.py"))
        if file.name != "machine.py"
        and (lines := numbers(file.read_text(encoding="utf-8")))
    }
    assert found == {}


@every(
    "source, lines",
    [
        ("wrong = shape[0] > 128", [1]),
        ("sizes = (32,\n 64)", [2]),
        ("limit = f'at most 512 of {rows}'", [1]),
        ("@lru_cache(maxsize=4096)\ndef f(): ...", []),
        ("'''128 partitions.'''\nlow = 2.0**-64", []),
        ("rows = 1280 + machine.partitions", []),
    ],
)
def test_a_planted_size_is_found(source, lines):
    assert numbers(source) == lines
