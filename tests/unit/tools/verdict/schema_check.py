"""Violations of a JSON Schema in a document, for the parts of the standard that ours uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import difftest.tools.verdict

FILE = Path(difftest.tools.verdict.__file__).with_name("data") / "verdict.schema.json"
SCHEMA = json.loads(FILE.read_text("utf-8"))

KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
KNOWN = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
}
ABOUT = {"description", "title", "$schema", "$id"}


def breaches(value: Any, schema: dict[str, Any], where: str = "") -> Iterator[str]:
    """Each place where a value is not as the schema says; a keyword that we do not know is one."""
    yield from (f"{where}: keyword {one}" for one in schema.keys() - KNOWN - ABOUT)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fits = [isinstance(value, KINDS[one]) and type(value) is not bool for one in kinds]
    if kinds and not any(fits):
        yield f"{where}: {value!r:.40} is no {' or '.join(kinds)}"
        return
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{where}: {value!r:.40} is none of those accepted"
    if isinstance(value, dict):
        yield from _of_object(value, schema, where)
    for at, one in enumerate(value if isinstance(value, list) else []):
        yield from breaches(one, schema.get("items", {}), f"{where}[{at}]")


def _of_object(
    value: dict[str, Any], schema: dict[str, Any], where: str
) -> Iterator[str]:
    known = schema.get("properties", {})
    more = schema.get("additionalProperties", {})
    yield from (
        f"{where}.{name} is missing"
        for name in schema.get("required", [])
        if name not in value
    )
    for name, one in value.items():
        if name in known:
            yield from breaches(one, known[name], f"{where}.{name}")
        elif more is False:
            yield f"{where}.{name} is not known"
        else:
            yield from breaches(one, more, f"{where}.{name}")
