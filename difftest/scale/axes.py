"""What varies: axes from ``--over``, and the points of their grid."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import click

from difftest.host.loading import parse_keywords

Point: TypeAlias = dict[str, Any]
"""A value for each axis, and for each name that all points share."""
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?::(\d+))?")


@dataclass(frozen=True)
class SweepAxis:
    """A name and its values, in order: of the domain, or what ``placing`` knows beside it."""

    name: str
    values: tuple[Any, ...]


def parse_axis(text: str) -> SweepAxis:
    """``NAME=VALUES``: values with commas between; ``a..b`` doubles, ``a..b:step`` counts.

    >>> parse_axis("BLOCK_BYTES=2048..16384")
    SweepAxis(name='BLOCK_BYTES', values=(2048, 4096, 8192, 16384))
    >>> parse_axis("n=1..7:3,100").values
    (1, 4, 7, 100)

    Raises
    ------
    click.BadParameter : it is none of that.
    """
    name, separator, given = text.partition("=")
    if not (separator and name.isidentifier() and given):
        raise click.BadParameter(f"an axis is NAME=VALUES, as in pool_size=1,2,3; got {text!r}")
    values = tuple(itertools.chain.from_iterable(_values(part, text) for part in given.split(",")))
    twice = [one for at, one in enumerate(values) if one in values[:at]]
    if twice:
        raise click.BadParameter(f"{name} has the value {twice[0]!r} twice")
    return SweepAxis(name, values)


def _values(part: str, text: str) -> Sequence[Any]:
    found = _RANGE.fullmatch(part)
    if found is None and part and ".." not in part:
        return [*parse_keywords([f"value={part}"]).values()]
    if found is None:
        raise click.BadParameter(f"a value is a word, a number or a range, a..b; got {text!r}")
    first, last = int(found[1]), int(found[2])
    if first > last or (found[3] is None and first < 1) or found[3] == "0":
        told = "a range is a..b, which doubles from a, at least 1, or a..b:step"
        raise click.BadParameter(f"{told}; got {text!r}")
    if found[3] is not None:
        return range(first, last + 1, int(found[3]))
    return [first << n for n in range((last // first).bit_length())]


def parse_axes(texts: Sequence[str]) -> tuple[SweepAxis, ...]:
    """All axes of a command; no name is there twice."""
    axes = {axis.name: axis for axis in map(parse_axis, texts)}
    if len(axes) < len(texts):
        raise click.BadParameter("an axis is given twice; its values go into one --over")
    return tuple(axes.values())


def parse_case(text: str | None) -> Point:
    """What all points share: a JSON object of names and values, or the JSON of a whole case.

    Of a case, as a failure prints it, the values and the dtype count; its data do not.
    """
    if text is None:
        return {}
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"--case: {text!r} is no JSON: {error}") from None
    if isinstance(given, Mapping) and isinstance(given.get("values"), Mapping):
        given = {**given["values"], "dtype": given.get("dtype")}
    if not isinstance(given, Mapping) or not all(
        one is None or isinstance(one, (bool, int, float, str)) for one in given.values()
    ):
        raise click.BadParameter(f'--case takes an object such as {{"n": 128}}; got {text!r}')
    return dict(given)


@dataclass(frozen=True)
class Axes:
    """A grid of points: all combinations of the values of axes, with what all points share.

    Attributes
    ----------
    shared : names that have one value; an axis of the same name has priority.
    """

    axes: tuple[SweepAxis, ...]
    shared: Point

    def __len__(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def __getitem__(self, number: int) -> Point:
        """A point by its number; the last axis varies fastest."""
        chosen = dict.fromkeys((*self.shared, *(axis.name for axis in self.axes))) | self.shared
        for axis in reversed(self.axes):
            number, at = divmod(number, len(axis.values))
            chosen[axis.name] = axis.values[at]
        return chosen

    def points(self, sample: int | None = None) -> Iterator[Point]:
        """All points in order; or so many of them, drawn evenly and the same each time."""
        numbers: Iterable[int] = range(len(self))
        if sample is not None and sample < len(self):
            numbers = sorted(random.Random(0).sample(range(len(self)), sample))
        return (self[number] for number in numbers)
