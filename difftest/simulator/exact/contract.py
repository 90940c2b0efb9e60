"""Which roundings a kernel's contract has: into what dtypes, and of sums into which of them.

A kernel may round into the dtypes of its outputs, and of its widest argument. Another argument's
dtype, where it is narrower than the outputs, excuses less. It excuses results of operands that are
no wider, for these stem from such arguments. And it excuses an operand of a matrix product, for the
Tensor Engine wants both operands in one dtype.

Whether a rounded value becomes such an operand, the kernel's later instructions tell. So roundings
of wider values are noted with their calls: the kernel's line, and the lines that called the helper
in which it stands. Each product notes the calls that its operands have behind them. When the kernel
is over, the calls that lead to no product are known. Then the kernel runs once more, and they count
as roundings into float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.dtypes import FLOAT32, DType, as_nki_dtype
from difftest.simulator.errors import Location, Stack, kernel_location, kernel_stack
from difftest.simulator.exact.bounded import ROUNDINGS, UNIT, Bounded, Rounding, into, representable
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.tile import Tile

RUNNING_SUM = "a running sum"
FREE_SUMS = 4
"""Roundings of a running sum into a narrow dtype that are counted as such: a kernel that adds a few
tensors in the dtype of its operands rounds as its contract says; one that adds up a long sum so
does not, and its further roundings count as float32's. So do those of a line that adds float32
values to what it has rounded itself, as a loop over partial sums does."""


class Chain(NamedTuple):
    """The roundings behind an instruction's operands: of running sums, and of wider values.

    Attributes
    ----------
    lines : that rounded them last.
    wide : whether one of the operands is float32, such as a product in PSUM.
    products : lines that rounded a product of tiles last.
    multiplies : whether it makes such a product.
    narrowed : calls that rounded wider values into the dtype of an argument.
    finest : the unit of the widest float among the operands; 0 for integers, and for what a matrix
        product makes; infinity without a tile.
    """

    lines: tuple[Location, ...]
    wide: bool
    products: tuple[Location, ...] = ()
    multiplies: bool = False
    narrowed: frozenset[Stack] = frozenset()
    finest: float = math.inf

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


def narrowed_of(operands: Sequence[Any]) -> frozenset[Stack]:
    """The calls that rounded wider values, of which some operands hold what came of them."""
    calls: frozenset[Stack] = frozenset()
    for operand in operands:
        tile = operand._base if isinstance(operand, IndirectTile) else operand
        exact = tile._storage.exact if isinstance(tile, Tile) else None
        if exact is not None and exact.narrowed:
            calls |= exact.narrowed
    return calls


def finest_of(operands: Sequence[Any]) -> float:
    """The unit of the widest float among the tiles that are operands; see :class:`Chain`.

    Integers of one byte, such as masks, are as narrow as any float.
    """
    tiles = (one._base if isinstance(one, IndirectTile) else one for one in operands)
    dtypes = [tile.dtype for tile in tiles if isinstance(tile, Tile)]
    wide = [_of(dtype).unit for dtype in dtypes if dtype.itemsize > 1 or _of(dtype).unit]
    return min(wide, default=math.inf)


class Narrowing(NamedTuple):
    """A rounding that the kernel's contract does not have, whose error counts as float32's.

    Attributes
    ----------
    name : what was rounded: an instruction's result, or a running sum.
    location : the kernel's line.
    dtype : into what.
    of_argument : whether an argument has that dtype, which does not excuse this rounding.
    """

    name: str
    location: Location | None
    dtype: DType
    of_argument: bool = False


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
    unexcused : calls that round wider values into the dtype of an argument, and lead to no matrix
        product. A launch that finds such calls runs once more with them.
    """

    dtypes: tuple[str, ...] = ()
    results: tuple[str | DType, ...] = ()
    random: bool = False
    losses: bool = False
    unexcused: frozenset[Stack] = frozenset()


def _of(dtype: DType) -> Rounding:
    return ROUNDINGS.get(dtype, Rounding(0.0, 0.0, math.inf))


class Contract:
    """The dtypes that a kernel may round into, and what it has rounded into others.

    What is added to again may be as coarse as the outputs, and no coarser.

    Attributes
    ----------
    sums : the unit of a long sum: float32's, or that of the coarsest of ``dtypes``.
    narrowed : the roundings that it does not have.
    excused : the calls of such roundings that a matrix product's operands have behind them.
    rounded : the call of such a rounding, if :meth:`into` has made one since this was emptied.
    """

    def __init__(self, settings: ExactSettings) -> None:
        self.settings = settings
        self.excused: set[Stack] = set()
        self.rounded: frozenset[Stack] = frozenset()
        self._followed: dict[Stack, float] = {}
        self._coarsest = self._sure = UNIT
        self._widest = math.inf  # the unit of the widest float among the arguments
        self._floor = ROUNDINGS[FLOAT32].tiny  # what may be lost near 0
        for name in settings.dtypes:
            self._allow(as_nki_dtype(name, "an exact run's dtypes"))
        self.sums = self._coarsest
        results: list[DType] = [np.dtype(result) for result in settings.results]
        for result in results:
            self._allow(result)
        self._again = self._coarsest if any(_of(result).unit for result in results) else math.inf
        self._own = Rounding(self._coarsest, self._floor, math.inf)
        """What the outputs and ``dtypes`` allow alone; outputs count as float32 until known."""
        self.narrowed: dict[tuple[str, Location | None], Narrowing] = {}

    @property
    def follows(self) -> bool:
        """Whether an argument is narrower than the outputs and than another argument.

        Roundings into its dtype are followed then.
        """
        return self._sure > max(self._own.unit, self._widest)

    def allow(self, dtype: DType) -> None:
        """Let the kernel round into the dtype of an argument."""
        self._allow(dtype)
        self._widest = min(self._widest, _of(dtype).unit or math.inf)

    def _allow(self, dtype: DType) -> None:
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
        units = [_of(output).unit for output in outputs]
        own = max([self._own.unit, *units])
        calls = {call for call, unit in self._followed.items() if unit > own} - self.excused
        unexcused = self.settings.unexcused | calls
        most = max([self._sure, *units])
        known = self._coarsest <= most and (self.settings.results or not self.narrowed)
        if known and unexcused == self.settings.unexcused:
            return None
        results = self.settings.results or tuple(outputs) or (FLOAT32,)
        return self.settings._replace(results=results, unexcused=unexcused)

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
            if not exact:
                rounding = self._counted(dtype, limit, chain, name)
        result = into(numbers, dtype, rounding)
        partial = adds or numbers.partial
        if result.sums != sums or result.adds or result.partial != partial:
            result = Bounded(result.value, result.error, result.dtype, sums, partial=partial)
        return result

    def _counted(self, dtype: DType, limit: float, chain: Chain, name: str) -> Rounding:
        """How a rounding into a narrow dtype counts, where no coarser one than ``limit`` may be."""
        rounding = ROUNDINGS[dtype]
        floor = self._floor
        of_argument = self._is_unexcused(rounding, chain)
        if of_argument:
            limit = min(limit, self._own.unit)
            floor = self._own.tiny
        if rounding.unit <= limit and rounding.tiny <= floor:
            return rounding
        again = limit < rounding.unit <= self._coarsest and not of_argument
        key = (RUNNING_SUM if again else name, kernel_location())
        self.narrowed.setdefault(key, Narrowing(*key, dtype, of_argument))
        unit = self.sums if of_argument or limit == self._coarsest else limit
        unit = min(rounding.unit, unit)
        tiny = min(rounding.tiny, floor)
        return Rounding(unit, tiny, rounding.largest)

    def _is_unexcused(self, rounding: Rounding, chain: Chain) -> bool:
        """Whether an argument alone has the dtype, and this call is known to lead to no product.

        Until that is known, the call is noted.
        """
        free = max(self._own.unit, self._widest)
        if not free < rounding.unit <= self._coarsest:
            return False
        if not chain.narrowed and chain.finest >= rounding.unit:
            return False
        stack = kernel_stack()
        self.rounded = frozenset((stack,))
        self._followed[stack] = rounding.unit
        return stack in self.settings.unexcused
