"""Validate what `difftest lint --format sarif` writes against SARIF's schema (README.md).

``python -m conformance.sarif SCHEMA PATH…``: SCHEMA is ``sarif-2.1/schema/sarif-schema-2.1.0.json``
of a checkout of https://github.com/oasis-tcs/sarif-spec, PATH are files or folders to lint.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from difftest.tools.lint.files import LintRequest
from difftest.tools.lint.formats import as_sarif
from difftest.tools.lint.rule import NEWEST


def main(arguments: Sequence[str]) -> int:
    """Print schema errors; return 1 for an invalid log and 2 for a log without findings."""
    import jsonschema  # of this recipe alone: pip install jsonschema

    schema = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    request = LintRequest(sdk=NEWEST)
    found = request.of_files([Path(one) for one in arguments[1:]])[0]
    log = json.loads(as_sarif(found, request.levels))
    errors = list(jsonschema.validators.validator_for(schema)(schema).iter_errors(log))
    for error in errors:
        print(f"{'/'.join(map(str, error.absolute_path))}: {error.message}")
    results = log["runs"][0]["results"]
    fixes = sum("fixes" in one for one in results)
    print(
        f"{len(results)} results, {fixes} with fixes, {len(errors)} errors of the schema"
    )
    if errors:
        return 1
    if results:
        return 0
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
