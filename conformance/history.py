"""Since when AWS's stubs of today's dialect have a name or an argument, and until when (README.md).

``python -m conformance.history PATH [--write]``: PATH is a clone, with its tags, of
https://github.com/aws-neuron/aws-neuron-sdk. Each stub is read as it stands at the tag of a
release, one against the next.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import run

TAGS = {
    "0.2": "v2.28.1",
    "0.3": "v2.29.1",
    "0.4": "v2.30.0",
    "0.5": "v2.31.1",
    "0.6": "v2.32.0",
}
"""By level of NKI, the last tag of its release."""
MODULES = {"nl": "language", "nisa": "isa", "ncc": "collectives"}
TABLE = Path(__file__).with_name("history.csv")


def names_at(checkout: Path, tag: str) -> set[str]:
    """Return the names in a tag's stubs: ``nisa.dma_copy``, and ``nisa.dma_copy(src)``."""
    names: set[str] = set()
    for module, folder in MODULES.items():
        path = f"{tag}:nki/api/nki/{folder}/__init__.py"
        shown = run(
            ["git", "-C", str(checkout), "show", path], capture_output=True, check=True
        )
        names.update(_declared(ast.parse(shown.stdout).body, module))
    return names


def _declared(body: Sequence[ast.stmt], owner: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            name = f"{owner}.{node.name}"
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            yield from (
                name,
                *(f"{name}({one.arg})" for one in every if one.arg != "self"),
            )
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield f"{owner}.{node.name}"
            yield from _declared(node.body, f"{owner}.{node.name}")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (f"{owner}.{ast.unparse(one)}" for one in targets)


def history(checkout: Path) -> dict[str, tuple[str, str]]:
    """Return, by name, the first level that has it and the first without it.

    Names of all levels are left out.

    An argument that came and went with its function has no row, nor has a name that came with 0.3:
    the stubs of 0.2 have a few only.
    """
    levels = list(TAGS)
    named = [names_at(checkout, tag) for tag in TAGS.values()]
    rows: dict[str, tuple[str, str]] = {}
    for name in sorted(set.union(*named)):
        has = [name in names for names in named]
        of_function = [name.partition("(")[0] in names for names in named]
        first = has.index(True)
        last = len(has) - has[::-1].index(True)
        ended = levels[last] if last < len(levels) else ""
        if (ended or first > 1) and (has != of_function or "(" not in name):
            rows[name] = levels[first], ended
    return rows


def main(arguments: Sequence[str]) -> int:
    """Print the table, or write it."""
    rows = [
        f"{name},{since},{ended}\n"
        for name, (since, ended) in history(Path(arguments[0])).items()
    ]
    text = "name,since,ended\n" + "".join(rows)
    if "--write" in arguments:
        TABLE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
