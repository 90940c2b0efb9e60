"""One case: the drawn values, from which the same arrays come each time.

A Case holds values alone and not its spec, so that its repr can be pasted into ``@example`` or
``examples=`` of the very test that found it, and its JSON into ``pytest --case``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from difftest.harness.recipes import Recipe


@dataclass(frozen=True)
class Case:
    """Values for the names of a spec's domain, a dtype, and a recipe for each input."""

    values: Mapping[str, Any]
    dtype: str
    data: Mapping[str, Recipe]

    def label(self) -> str:
        """A test id: values and dtype."""
        parts = [f"{name}={value}" for name, value in self.values.items()]
        return "-".join([*parts, self.dtype])

    def to_json(self) -> str:
        """One line, for ``pytest --case``."""
        return json.dumps(
            {
                "values": dict(self.values),
                "dtype": self.dtype,
                "data": {name: recipe.to_json() for name, recipe in self.data.items()},
            },
            separators=(",", ":"),
        )
