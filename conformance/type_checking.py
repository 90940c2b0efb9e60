"""Check AWS's examples by pyright with the stubs of `difftest stubs` alone (README.md).

``python -m conformance.type_checking PATH [PYRIGHT]``: PATH is a checkout of
https://github.com/aws-neuron/aws-neuron-sdk at v2.32.0, PYRIGHT the command, such as basedpyright.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.aws_documentation import EXAMPLES, SOURCES
from difftest.support.output import write_file
from difftest.tools.lint.stubs import stub_files

_MISSING = "reportMissingImports"
"""Frameworks and neighbours of a file, which are not installed."""


def complaints(checkout: Path, pyright: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of files that pyright read, and its diagnostics.

    Raises
    ------
    FileNotFoundError : the checkout has no examples, or pyright is not installed.
    """
    folders = [
        str(checkout / one) for one in (EXAMPLES, SOURCES) if (checkout / one).is_dir()
    ]
    if not folders:
        raise FileNotFoundError(f"no {EXAMPLES} in {checkout}: is this v2.32.0?")
    with tempfile.TemporaryDirectory() as project:
        for name, text in stub_files().items():
            write_file(Path(project, "typings", name), text)
        settings = {
            "include": folders,
            "stubPath": "typings",
            "typeCheckingMode": "standard",
        }
        own = {**settings, "reportMissingModuleSource": False}
        (Path(project) / "pyrightconfig.json").write_text(
            json.dumps(own), encoding="utf-8"
        )
        command = [pyright, "--project", project, "--outputjson"]
        said = json.loads(
            subprocess.run(command, capture_output=True, text=True).stdout
        )
    return said["summary"]["filesAnalyzed"], said["generalDiagnostics"]


def main(arguments: Sequence[str]) -> int:
    """Print diagnostics of NKI and of files; return 1 if there are any, 2 if no file was read."""
    checkout = Path(arguments[0]).resolve()
    try:
        files, said = complaints(checkout, *(arguments[1:2] or ["pyright"]))
    except FileNotFoundError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    own = [
        one for one in said if one.get("rule") != _MISSING or '"nki' in one["message"]
    ]
    for one in own:
        line = one["range"]["start"]["line"] + 1
        print(f"{Path(one['file']).relative_to(checkout)}:{line}: {one['message']}")
    print(
        f"{files} files, {len(own)} complaints; {len(said) - len(own)} imports of others"
    )
    return int(bool(own)) if files else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
