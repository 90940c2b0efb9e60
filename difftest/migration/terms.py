"""Integer expressions as sums of products, so that ``(k + 1) * T - k * T`` is seen to be ``T``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import add, mul, sub
from typing import cast


class Monomial(tuple[str, ...]):
    """The factors that are no number, none for the constant; their order does not matter."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Monomial) and sorted(self) == sorted(other)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self)))


@dataclass(frozen=True)
class Term:
    """An integer expression: its monomials with their factors, in the order that they came in.

    What is no sum, difference or product counts as one factor, by its text.
    """

    parts: tuple[tuple[Monomial, int], ...]

    @classmethod
    def number(cls, value: int) -> Term:
        return cls(((Monomial(), value),) if value else ())

    @classmethod
    def of(cls, node: ast.expr) -> Term:
        """The term of an expression."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return cls.number(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return Term.number(-1) * cls.of(node.operand)
        if isinstance(node, ast.BinOp):
            sides = cls.of(node.left), cls.of(node.right)
            operation = {ast.Add: add, ast.Sub: sub, ast.Mult: mul}.get(type(node.op))
            if operation is not None:
                return cast(Term, operation(*sides))
        return cls(((Monomial([ast.unparse(node)]), 1),))

    @classmethod
    def parse(cls, text: str) -> Term:
        """The term of an expression's text."""
        return cls.of(ast.parse(text, mode="eval").body)

    @property
    def constant(self) -> int | None:
        """The number that it is; None if it is none."""
        if not self.parts:
            return 0
        [(first, factor), *others] = self.parts
        return None if first or others else factor

    def __add__(self, other: Term) -> Term:
        return _summed([*self.parts, *other.parts])

    def __sub__(self, other: Term) -> Term:
        return self + Term.number(-1) * other

    def __mul__(self, other: Term) -> Term:
        return _summed(
            (Monomial([*first, *second]), one * two)
            for first, one in self.parts
            for second, two in other.parts
        )

    def text(self) -> str:
        """The expression, as Python."""
        written = ""
        # A sum begins with a part that is not subtracted, where there is one.
        for monomial, factor in sorted(self.parts, key=lambda part: part[1] < 0):
            factors = [_wrapped(name) for name in monomial]
            if abs(factor) != 1 or not factors:
                factors.append(str(abs(factor)))
            sign = " - " if factor < 0 else " + "
            written += (sign if written else sign.strip(" +")) + " * ".join(factors)
        return written or "0"

    def names(self) -> set[str]:
        """The names that occur in it."""
        tree = ast.parse(self.text(), mode="eval")
        return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _summed(parts: Iterable[tuple[Monomial, int]]) -> Term:
    totals: dict[Monomial, int] = {}
    for monomial, factor in parts:
        totals[monomial] = totals.get(monomial, 0) + factor
    return Term(tuple((monomial, factor) for monomial, factor in totals.items() if factor))


def _wrapped(text: str) -> str:
    """A factor in parentheses, if its operators bind less than a product does."""
    node = ast.parse(text, mode="eval").body
    loose = isinstance(node, (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.UnaryOp))
    return f"({text})" if loose else text


def least(terms: Iterable[Term]) -> Term:
    """The smallest of some terms: a number where they are numbers, else ``min(...)``."""
    return _extreme(min, terms)


def largest(terms: Iterable[Term]) -> Term:
    """The largest of some terms: a number where they are numbers, else ``max(...)``."""
    return _extreme(max, terms)


def _extreme(function: Callable[[list[int]], int], terms: Iterable[Term]) -> Term:
    different = list(dict.fromkeys(terms))
    numbers = [term.constant for term in different if term.constant is not None]
    others = [Term.number(function(numbers))] if numbers else []
    others += [term for term in different if term.constant is None]
    if len(others) == 1:
        return others[0]
    text = f"{function.__name__}({', '.join(one.text() for one in others)})"
    return Term(((Monomial([text]), 1),))


ZERO, ONE = Term.number(0), Term.number(1)
