"""Which roundings a kernel's contract has: into what dtypes, and of sums into which of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.dtypes import FLOAT32, DType, as_nki_dtype
from difftest.simulator.errors import Location, kernel_location
from difftest.simulator.exact.bounded import ROUNDINGS, UNIT, Bounded, Rounding, into, representable
from difftest.simulator.tile import Tile

RUNNING_SUM = "a running sum"
FREE_SUMS = 4
"""Roundings of a running sum into a narrow dtype that are counted as such: a kernel that adds a few
tensors in the dtype of its operands rounds as its contract says; one that adds up a long sum so
does not, and its further roundings count as float32's. So do those of a line that adds float32
values to what it has rounded itself, as a loop over partial sums does."""


class Chain(NamedTuple):
    """What an instruction's operands are of running sums that are rounded.

    Attributes
    ----------
    lines : that rounded them last.
    wide : whether one of the operands is float32, such as a product in PSUM.
    products : lines that rounded a product of tiles last.
    multiplies : whether it makes such a product.
    """

    lines: tuple[Location, ...]
    wide: bool
    products: tuple[Location, ...] = ()
    multiplies: bool = False

    def loops(self, line: Location | None, *, adds: bool) -> bool:
        """Whether a line adds to what it has rounded itself, or multiplies it."""
        return (adds and line in self.lines) or (self.multiplies and line in self.products)


NO_CHAIN = Chain((), wide=False)


def chain_of(operands: Sequence[Any], multiplies: bool = False) -> Chain:
    """What an instruction takes of running sums and products."""
    tiles = [operand for operand in operands if isinstance(operand, Tile)]
    held = [tile._storage.exact for tile in tiles if tile._storage.exact is not None]
    lines = [exact.line for exact in held if exact.line is not None]
    if not (lines or multiplies):
        return NO_CHAIN
    products = tuple(exact.product for exact in held if exact.product is not None)
    return Chain(tuple(lines), any(tile.dtype == FLOAT32 for tile in tiles), products, multiplies)


class Narrowing(NamedTuple):
    """A rounding that the kernel's contract does not have, whose error counts as float32's.

    Attributes
    ----------
    name : what was rounded: an instruction's result, or a running sum.
    location : the kernel's line.
    dtype : into what.
    """

    name: str
    location: Location | None
    dtype: DType


class ExactSettings(NamedTuple):
    """How an exact run counts roundings.

    Attributes
    ----------
    dtypes : dtypes that the kernel may round into, its sums too, besides those of its arguments
        and outputs.
    results : the dtypes of the outputs: what is added to again may be as coarse as they are. Empty
        if they are not known; then it may be as coarse as any argument or tensor in HBM, and a
        launch that returns no tensor as coarse as that runs once more.
    random : whether rounding errors may be taken as independent, so that those of long sums grow
        with the root of their length.
    losses : whether to note what each instruction lost; takes time.
    """

    dtypes: tuple[str, ...] = ()
    results: tuple[str | DType, ...] = ()
    random: bool = False
    losses: bool = False


def _of(dtype: DType) -> Rounding:
    return ROUNDINGS.get(dtype, Rounding(0.0, 0.0, math.inf))


class Contract:
    """The dtypes that a kernel may round into, and what it has rounded into others.

    An operand may be rounded into the dtype of an argument, for a matmul wants it so. What is added
    to again may be as coarse as the outputs, and no coarser.

    Attributes
    ----------
    sums : the unit of a long sum: float32's, or that of the coarsest of ``dtypes``.
    narrowed : the roundings that it does not have.
    """

    def __init__(self, settings: ExactSettings) -> None:
        self.settings = settings
        self._coarsest = self._sure = UNIT
        self._floor = ROUNDINGS[FLOAT32].tiny  # what may be lost near 0
        for name in settings.dtypes:
            self.allow(as_nki_dtype(name, "an exact run's dtypes"))
        self.sums = self._coarsest
        results: list[DType] = [np.dtype(result) for result in settings.results]
        for result in results:
            self.allow(result)
        self._again = self._coarsest if any(_of(result).unit for result in results) else math.inf
        self.narrowed: dict[tuple[str, Location | None], Narrowing] = {}

    def allow(self, dtype: DType) -> None:
        """Let the kernel round into a dtype: one of its arguments or outputs has it."""
        self._sure = max(self._sure, _of(dtype).unit)
        self._coarsest = max(self._coarsest, self._sure)
        self._floor = max(self._floor, _of(dtype).tiny)

    def may_return(self, dtype: DType) -> None:
        """A tensor in HBM, which is an output or scratch: nobody knows before the kernel ends."""
        if not self.settings.results:
            self._coarsest = max(self._coarsest, _of(dtype).unit)
            self._floor = max(self._floor, _of(dtype).tiny)

    def without_scratch(self, outputs: Sequence[DType]) -> ExactSettings | None:
        """The settings of a run that knows the outputs, if roundings of this one want them.

        Scratch has excused those, or an output of that dtype was not there yet.
        """
        most = max([self._sure, *(_of(output).unit for output in outputs)])
        if self._coarsest <= most and (self.settings.results or not self.narrowed):
            return None
        return self.settings._replace(results=tuple(outputs) or (FLOAT32,))

    def into(self, numbers: Bounded, dtype: DType, chain: Chain, name: str) -> Bounded:
        """What an instruction of this name writes to a tensor of ``dtype``."""
        rounding = ROUNDINGS[dtype]
        if dtype == FLOAT32 and not numbers.adds and numbers.sums < 256:
            return into(numbers, dtype, rounding)
        narrow = rounding.unit > UNIT
        adds = narrow and numbers.adds
        sums = min(numbers.sums + adds, 255)
        loops = narrow and chain is not NO_CHAIN and chain.loops(kernel_location(), adds=adds)
        if loops and adds and chain.wide:
            sums = max(sums, FREE_SUMS + 1)  # a loop adds partial sums of float32 up
        if narrow and dtype != numbers.dtype:
            limit = self._coarsest if sums <= FREE_SUMS else self.sums
            if loops or numbers.partial:
                limit = min(limit, self._again)
            exact = numbers.error is None and representable(numbers.value, dtype)
            if (rounding.unit > limit or rounding.tiny > self._floor) and not exact:
                what = RUNNING_SUM if limit < rounding.unit <= self._coarsest else name
                key = (what, kernel_location())
                self.narrowed.setdefault(key, Narrowing(*key, dtype))
                unit = self.sums if limit == self._coarsest else limit
                unit, tiny = min(rounding.unit, unit), min(rounding.tiny, self._floor)
                rounding = Rounding(unit, tiny, rounding.largest)
        result = into(numbers, dtype, rounding)
        partial = adds or numbers.partial
        if result.sums != sums or result.adds or result.partial != partial:
            result = Bounded(result.value, result.error, result.dtype, sums, partial=partial)
        return result
