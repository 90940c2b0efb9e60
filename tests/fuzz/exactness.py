"""How exact a tile's values are: what may be added up in any order, and what is only close.

Three kinds. *Grid* values are multiples of ``2**-fraction`` of magnitude at most
``2**magnitude``: as long as they fit float32's 24 bits, sums and products of them are exact in
any order. *Rough* values are the same in both modes but have no such bound; only operations of
one rounding take them. *Loose* values come from a function that the two modes may compute in
different ways (exp, a power): they are only copied and compared within a few units in the last
place, so that no comparison or cast to an integer ever turns a last bit into another value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FLOAT32_BITS = 24
MANTISSA_AND_EXPONENT = {
    "float32": (24, 127),
    "tfloat32": (11, 127),
    "bfloat16": (8, 127),
    "float16": (11, 15),
    "float8_e4m3": (4, 7),
    "float8_e5m2": (3, 15),
}
INTEGER_BITS = {
    "int8": 7,
    "uint8": 8,
    "int16": 15,
    "uint16": 16,
    "int32": 31,
    "uint32": 32,
    "bool_": 1,
}


@dataclass(frozen=True)
class Quality:
    """Grid values; or, with ``magnitude`` None, rough or loose ones."""

    magnitude: int | None
    fraction: int = 0
    loose: bool = False

    @property
    def exact(self) -> bool:
        """Whether float32 holds the values and so any order of exact operations."""
        return self.magnitude is not None and self.magnitude + self.fraction <= FLOAT32_BITS

    def rounded(self, dtype: str) -> Quality:
        """After rounding into ``dtype``."""
        if self.magnitude is None:
            return self
        if dtype in INTEGER_BITS:
            return Quality(min(self.magnitude, INTEGER_BITS[dtype]), 0)
        _, exponent = MANTISSA_AND_EXPONENT[dtype]
        return self if self.magnitude <= exponent and self.exact else ROUGH


ROUGH = Quality(None)
LOOSE = Quality(None, loose=True)


def constant(value: float) -> Quality:
    """The quality of a number; fractions of at most 10 bits count as a grid."""
    if not math.isfinite(value):
        return ROUGH
    for fraction in range(11):
        if float(value * 2**fraction).is_integer():
            return Quality(max(0, math.ceil(math.log2(abs(value) + 1))), fraction)
    return ROUGH


def either(*qualities: Quality) -> Quality:
    """Values that come from any of several tiles."""
    if any(quality.loose for quality in qualities):
        return LOOSE
    if any(quality.magnitude is None for quality in qualities):
        return ROUGH
    return Quality(
        max(quality.magnitude or 0 for quality in qualities),
        max(quality.fraction for quality in qualities),
    )


def total(quality: Quality, count: int) -> Quality:
    """A sum of ``count`` values."""
    if quality.magnitude is None:
        return quality
    return exact_or_rough(
        Quality(quality.magnitude + math.ceil(math.log2(max(count, 1))), quality.fraction)
    )


def product(a: Quality, b: Quality) -> Quality:
    """A product of two values."""
    if a.magnitude is None or b.magnitude is None:
        return either(a, b)
    return exact_or_rough(Quality(a.magnitude + b.magnitude, a.fraction + b.fraction))


def exact_or_rough(quality: Quality) -> Quality:
    """Grid values that outgrow float32 are rounded: still the same in both modes, once."""
    return quality if quality.exact else ROUGH
