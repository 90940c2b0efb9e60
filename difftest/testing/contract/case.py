"""Cases: drawn values that give the same arrays each time.

A Case holds values, not its spec. So its repr can be pasted into ``@example`` or ``examples=`` of
the test that found it, and its JSON into ``pytest --case``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from difftest.support.signature import distinct_names
from difftest.testing.contract.recipes import Recipe

_RARE = ("dtypes", "shapes")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_DISTINCT_NAMES: dict[int, tuple[Any, str]] = {}
"""The distinct names of values that share a name with another value of their choice."""
_NO_LITERAL = re.compile(r"(?<!')\b(inf|nan)\b")


@dataclass(frozen=True)
class Case:
    """Values for the names of a spec's domain, a dtype, and a recipe for each input.

    ``dtypes`` has the inputs whose dtype is not the case's. ``shapes`` has the arrays whose shape
    differs from their dimensions.
    """

    values: Mapping[str, Any]
    dtype: str
    data: Mapping[str, Recipe]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def dtype_of(self, name: str) -> str:
        """Return the dtype of an input."""
        return self.dtypes.get(name, self.dtype)

    def __repr__(self) -> str:
        text = ", ".join(f"{name}={of!r}" for name, of in self._fields().items())
        return _NO_LITERAL.sub(r"float('\1')", f"Case({text})")

    def label(self) -> str:
        """Return a test id: values and dtype."""
        parts = value_texts(self.values)
        return "-".join([*parts, self.dtype, *self.dtypes.values()])

    def to_json(self) -> str:
        """Return the case as one line, for ``pytest --case``."""
        return json.dumps(self._fields(), default=to_jsonable, separators=(",", ":"))

    def _fields(self) -> dict[str, Any]:
        """Return the fields, without empty ``dtypes`` and ``shapes``."""
        return {name: of for name, of in vars(self).items() if of or name not in _RARE}


def value_texts(values: Mapping[str, Any]) -> list[str]:
    """Return the values of a domain as texts such as ``rows=129``."""
    return [f"{name}={to_jsonable(value)}" for name, value in values.items()]


def to_jsonable(value: Any) -> Any:
    """Encode a value that JSON lacks: recipes, NumPy's numbers, and operators by name."""
    if isinstance(value, (Recipe, Mapping)):
        return value.to_json() if isinstance(value, Recipe) else dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    kept, name = _DISTINCT_NAMES.get(id(value), (None, ""))
    return name if kept is value else _own_name(value)


def _own_name(value: Any) -> str:
    return str(getattr(value, "__name__", None) or _ADDRESS.sub("", str(value)))


def distinguish_names(choices: Iterable[Any]) -> None:
    """Give distinct names to the values of one choice that share a name, such as lambdas."""
    functions = [
        value for value in choices if callable(value) and not hasattr(value, "tolist")
    ]
    names = [_own_name(value) for value in functions]
    for value, own, name in zip(functions, names, distinct_names(names), strict=True):
        if name != own:
            _DISTINCT_NAMES[id(value)] = value, name


def choice_named(choices: Sequence[Any], text: Any) -> Any:
    """Return the value that :func:`to_jsonable` encoded as a text, or the text itself."""
    if isinstance(choices, range):  # of integers alone, and maybe many
        return text
    named = {json.dumps(value, default=to_jsonable): value for value in choices}
    return named.get(json.dumps(text, default=to_jsonable), text)


@dataclass(frozen=True)
class Edge:
    """A call near the contract's edge.

    Attributes
    ----------
    case : the case of the call.
    why : the property that makes it special, e.g. ``"K=129"``.
    inside : whether it is in the domain. Then the kernel must accept it.
    fills : whether it fills a memory. Then its reference may take too long.
    """

    case: Case
    why: str
    inside: bool = False
    fills: bool = False
