"""Names that AWS documents and the simulator does not have: they exist, and refuse to be used.

Modules of kernels import them, or hold dtypes in tables, beside kernels that never use them; so
naming one is no error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from difftest.simulator.errors import not_modelled


class Unmodelled:
    """A documented function, operator or dtype that is not modelled, and why if there is more."""

    __slots__ = ("name", "nki_name", "why")

    def __init__(self, name: str, why: str | None = None) -> None:
        self.name, self.why = name, why
        self.nki_name = name.rpartition(".")[2]
        """As instructions know operators; they refuse this one."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        given = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
        raise not_modelled(self.name, ", ".join(f"{one:.60}" for one in given) or "()", self.why)

    def __getattr__(self, name: str) -> Unmodelled:
        if name.startswith("__") or name in self.__slots__:
            raise AttributeError(name)  # Python's own protocols, such as copying
        return Unmodelled(f"{self.name}.{name}", self.why)

    def __mro_entries__(self, bases: tuple[object, ...]) -> NoReturn:
        raise not_modelled(self.name, "a class that is based on it", self.why)

    def __repr__(self) -> str:
        return f"{self.name} (not modelled)"


def unmodelled(module: str, names: Iterable[str]) -> dict[str, Unmodelled]:
    """One object for each name, so that a name equals itself and can be a key."""
    return {name: Unmodelled(f"{module}.{name}") for name in names}
