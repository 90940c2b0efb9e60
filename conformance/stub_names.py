"""Write the public names of AWS's stubs, by level, as the table of ``difftest verdict``.

``python -m conformance.stub_names REPOSITORY``, where REPOSITORY is a clone of
aws-neuron/aws-neuron-sdk, prints the "modules" and "members" of
``difftest/tools/verdict/data/nki.json``. Nothing of the stubs runs.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

LEVELS = {"0.3": "v2.29.0", "0.4": "v2.30.0", "0.5": "v2.31.0", "0.6": "v2.32.0"}
"""The tags of AWS's documentation by the levels of their stubs."""
_PARTS = ("nki", "nki/language", "nki/isa", "nki/collectives")
Table = dict[str, dict[str, list[str]]]
"""The levels of each name, by the module or class that has it."""


def names_of(node: ast.stmt) -> list[str]:
    """Return the public names that a statement of a module or class binds."""
    names: list[str] = []
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        names = [node.name]
    elif isinstance(node, ast.AnnAssign):
        names = [ast.unparse(node.target)]
    elif isinstance(node, ast.Assign):
        names = [ast.unparse(target) for target in node.targets]
    return [name for name in names if not name.startswith("_")]


def stubs_of(repository: str) -> Iterator[tuple[str, str, ast.Module]]:
    """Yield the stubs: level, name of the module, and syntax tree."""
    for level, tag in LEVELS.items():
        for part in _PARTS:
            place = f"{tag}:nki/api/{part}/__init__.py"
            command = ["git", "-C", repository, "show", place]
            text = subprocess.run(command, capture_output=True, check=True).stdout
            yield level, part.replace("/", "."), ast.parse(text)


def tables_of(repository: str) -> tuple[Table, Table]:
    """Return the names of modules and of classes."""
    modules: Table = {}
    members: Table = {}
    for level, module, tree in stubs_of(repository):
        for node in tree.body:
            for name in names_of(node):
                modules.setdefault(module, {}).setdefault(name, []).append(level)
            if not isinstance(node, ast.ClassDef):
                continue
            own = members.setdefault(f"{module}.{node.name}", {})
            for inner in node.body:
                for name in names_of(inner):
                    own.setdefault(name, []).append(level)
    return modules, members


def main(arguments: Sequence[str]) -> int:
    """Print both tables as JSON: each name with its first and its last level."""
    modules, members = tables_of(arguments[0])
    document = {
        kind: {
            place: {name: [levels[0], levels[-1]] for name, levels in names.items()}
            for place, names in table.items()
        }
        for kind, table in (("modules", modules), ("members", members))
    }
    print(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
