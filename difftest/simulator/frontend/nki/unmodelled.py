"""Names that AWS documents and the simulator does not have: they exist, and refuse to be used.

Modules of kernels import them, or hold dtypes in tables, beside kernels that never use them; so
naming one is no error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from difftest.simulator.errors import not_modelled


class Unmodelled:
    """A documented function, operator or dtype that is not modelled."""

    __slots__ = ("name", "nki_name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.nki_name = name.rpartition(".")[2]
        """As instructions know operators; they refuse this one."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise not_modelled(self.name, "its use")

    def __repr__(self) -> str:
        return f"{self.name} (not modelled)"


def unmodelled(module: str, names: Iterable[str]) -> dict[str, Unmodelled]:
    """One object for each name, so that a name equals itself and can be a key."""
    return {name: Unmodelled(f"{module}.{name}") for name in names}
