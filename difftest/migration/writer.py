"""The lines that a statement becomes, as they are written."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod

from difftest.migration.scope import Scope


class Writer(ABC):
    """The new lines of one statement.

    Parameters
    ----------
    scope : what is known of the function's names; each line that is written adds to it.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.names = scope.names
        self.lines: list[str] = []

    @abstractmethod
    def value(self, node: ast.expr, wish: str | None = None) -> ast.expr:
        """An expression in today's words; what it is made of comes on lines before it.

        ``wish`` names a new tile, where the whole expression is one.
        """

    def emit(self, text: str) -> None:
        """Write a line."""
        self.lines.append(text)
        self.scope.learn(ast.parse(text).body[0])

    def nl(self, name: str) -> str:
        """A name of today's ``nl``, as the file calls that."""
        return f"{self.names.local('nl')}.{name}"

    def issue(self, name: str, dst: str, operands: dict[str, str]) -> None:
        """Write an instruction, ``nisa.tensor_copy``, with its operands by name."""
        module, function = name.split(".")
        parts = [f"dst={dst}", *(f"{role}={text}" for role, text in operands.items())]
        self.emit(f"{self.names.local(module)}.{function}({', '.join(parts)})")

    def allocate(self, name: str, shape: str, dtype: str, buffer: str = "sbuf") -> str:
        """Write the allocation of a tile; its name."""
        place = self.nl(buffer)
        self.emit(f"{name} = {self.nl('ndarray')}({shape}, dtype={dtype}, buffer={place})")
        return name

    def named(self, text: str, wish: str) -> str:
        """A name for what new lines need more than once."""
        if text.isidentifier():
            return text
        name = self.scope.new_name(wish)
        self.emit(f"{name} = {text}")
        return name

    def fresh(self, wish: str | None, source: ast.AST, name: str) -> str:
        """The name of a new tile: the one that is wished for, unless ``source`` reads it."""
        if wish is None:
            return self.scope.new_name(f"{name}_result")
        used = {one.id for one in ast.walk(source) if isinstance(one, ast.Name)}
        return self.scope.new_name(f"new_{wish}") if wish in used else wish


def expression(text: str) -> ast.expr:
    """The syntax tree of an expression."""
    return ast.parse(text, mode="eval").body
