"""A kernel's rounding contract: the dtypes it may round into, and those that its sums may use.

A kernel may round into the dtype of its widest output and of its widest argument. The dtype of
another argument, narrower than the outputs, excuses less:

- results of operands that are not wider, because these depend on such arguments;
- operands of a matrix product, because the Tensor Engine needs both operands in one dtype.

The dtype of another output excuses these too, and all that no wider output depends on.

Only later instructions show what becomes of a rounded value. So each rounding of wider values is
noted with its call: the kernel's line, and the lines that called the helper with that line. Each
product notes the calls that its operands depend on, and so does each output. After the kernel, the
calls without an excuse are known. Then the kernel runs again, and those calls count as roundings
into float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.dtypes import FLOAT32, DType, as_nki_dtype
from difftest.simulator.errors import Location, Stack, kernel_location, kernel_stack
from difftest.simulator.exact.bounded import (
    ROUNDINGS,
    UNIT,
    Bounded,
    Rounding,
    into,
    representable,
)
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.tile import Tile

RUNNING_SUM = "a running sum"
MOST_SUMS = 255
"""The most roundings of a running sum that are counted: a tensor holds the number as one byte."""
FREE_SUMS = 4
"""The free roundings of a running sum into a narrow dtype.

A kernel that adds a few tensors in the dtype of its operands rounds within its contract. A kernel
that computes a long sum this way does not: its further roundings count as float32's. The same holds
for a line that adds float32 values to its own rounded result, such as a loop over partial sums.
"""


class Chain(NamedTuple):
    """The roundings that an instruction's operands depend on: of running sums, and of wider values.

    Attributes
    ----------
    lines : the lines that last rounded the running sums.
    wide : whether an operand is float32, such as a product in PSUM.
    products : the lines that last rounded a product of tiles.
    multiplies : whether the instruction computes such a product.
    narrowed : the calls that rounded wider values into the dtype of an argument.
    finest : the unit of the widest float among the operands. 0 for integers and for the result of a
        matrix product; infinity without a tile.
    """

    lines: tuple[Location, ...]
    wide: bool
    products: tuple[Location, ...] = ()
    multiplies: bool = False
    narrowed: frozenset[Stack] = frozenset()
    finest: float = math.inf

    def loops(self, *, adds: bool) -> bool:
        """Return whether the kernel's line adds to its own rounded result, or multiplies it."""
        if not self.lines and not self.products:
            return False
        line = kernel_location()
        if adds and line in self.lines:
            return True
        return self.multiplies and line in self.products


NO_CHAIN = Chain((), wide=False)


def chain_of(operands: Sequence[Any], multiplies: bool = False) -> Chain:
    """Return an instruction's chain of running sums and products."""
    lines: list[Location] = []
    products: list[Location] = []
    wide = False
    for tile in operands:
        if not isinstance(tile, Tile):
            continue
        wide = wide or tile.dtype == FLOAT32
        exact = tile._storage.exact
        if exact is not None and exact.line is not None:
            lines.append(exact.line)
        if exact is not None and exact.product is not None:
            products.append(exact.product)
    if not (lines or multiplies):
        return NO_CHAIN
    return Chain(tuple(lines), wide, tuple(products), multiplies)


def narrowed_of(operands: Sequence[Any]) -> frozenset[Stack]:
    """Return the calls that rounded wider values whose results some operands hold."""
    calls: frozenset[Stack] = frozenset()
    for operand in operands:
        tile = operand._base if isinstance(operand, IndirectTile) else operand
        exact = tile._storage.exact if isinstance(tile, Tile) else None
        if exact is not None and exact.narrowed:
            calls |= exact.narrowed
    return calls


def finest_of(operands: Sequence[Any]) -> float:
    """Return the unit of the widest float among the operands that are tiles; see :class:`Chain`.

    Integers of one byte, such as masks, are as narrow as any float.
    """
    tiles = (one._base if isinstance(one, IndirectTile) else one for one in operands)
    dtypes = [tile.dtype for tile in tiles if isinstance(tile, Tile)]
    wide = [
        _rounding_of(dtype).unit
        for dtype in dtypes
        if dtype.itemsize > 1 or _rounding_of(dtype).unit
    ]
    return min(wide, default=math.inf)


class Narrowing(NamedTuple):
    """A rounding outside the kernel's contract. Its error counts as float32's.

    Attributes
    ----------
    name : the rounded value: an instruction's result, or a running sum.
    location : the kernel's line.
    dtype : the dtype of the rounding.
    of_argument : whether an argument has that dtype without excusing this rounding.
    of_output : whether an output has that dtype, and a wider output depends on this rounding.
    """

    name: str
    location: Location | None
    dtype: DType
    of_argument: bool = False
    of_output: bool = False


class ExactSettings(NamedTuple):
    """Settings of an exact run: how it counts roundings.

    Attributes
    ----------
    dtypes : dtypes that the kernel may round into, sums included, in addition to the dtypes of its
        arguments and outputs.
    results : the dtypes of the outputs. They limit how coarse a repeatedly added sum may be. Empty
        if unknown: then the limit is any argument or tensor in HBM, and a launch without an output
        of that dtype runs again.
    random : whether rounding errors may be taken as independent, so that the error of a long sum
        grows with the square root of its length.
    losses : whether to note the loss of each instruction, which takes time.
    unexcused : calls that round wider values into the dtype of an argument, and lead to no matrix
        product. A launch that finds such calls runs again with them.
    """

    dtypes: tuple[str, ...] = ()
    results: tuple[str | DType, ...] = ()
    random: bool = False
    losses: bool = False
    unexcused: frozenset[Stack] = frozenset()


def _is_held(numbers: Bounded, dtype: DType) -> bool:
    """Return whether a dtype holds numbers that are exact."""
    return numbers.error is None and representable(numbers.value, dtype)


def _rounding_of(dtype: DType) -> Rounding:
    return ROUNDINGS.get(dtype, Rounding(0.0, 0.0, math.inf))


def _allowed_by_every(results: Sequence[DType], dtypes: Sequence[str]) -> Rounding:
    """Return the rounding that each output of floats allows; ``dtypes`` are allowed anyhow.

    Without outputs of floats it is float32's.
    """
    floats = [one for result in results if (one := _rounding_of(result)).unit]
    finest = min(floats, key=lambda one: one.unit, default=ROUNDINGS[FLOAT32])
    own = [ROUNDINGS[as_nki_dtype(name, "an exact run's dtypes")] for name in dtypes]
    allowed = [finest, *own]
    return Rounding(
        max(one.unit for one in allowed), max(one.tiny for one in allowed), math.inf
    )


class Contract:
    """The dtypes that a kernel may round into, and its roundings into other dtypes.

    A repeatedly added sum may be as coarse as the outputs, and no coarser.

    Attributes
    ----------
    sums : the unit of a long sum: float32's, or the unit of the coarsest of ``dtypes``.
    narrowed : the roundings outside the contract.
    excused : the calls of such roundings that operands of a matrix product depend on.
    rounded : the call of such a rounding, if :meth:`into` made one since this was emptied.
    """

    def __init__(self, settings: ExactSettings) -> None:
        self.settings = settings
        self.excused: set[Stack] = set()
        self.rounded: frozenset[Stack] = frozenset()
        self._followed: dict[Stack, float] = {}
        self._coarsest = self._sure = UNIT
        self._widest = math.inf  # the unit of the widest float among the arguments
        self._floor = ROUNDINGS[FLOAT32].tiny  # the largest loss near 0
        for name in settings.dtypes:
            self._allow(as_nki_dtype(name, "an exact run's dtypes"))
        self.sums = self._coarsest
        results: list[DType] = [np.dtype(result) for result in settings.results]
        for result in results:
            self._allow(result)
        self._again = math.inf
        """The coarsest unit of a sum that is added to repeatedly; infinity if outputs are unknown.
        """
        if any(_rounding_of(result).unit for result in results):
            self._again = self._coarsest
        self._own = Rounding(self._coarsest, self._floor, math.inf)
        """The rounding that the outputs and ``dtypes`` alone allow; unknown outputs count as
        float32.
        """
        self._every = _allowed_by_every(results, settings.dtypes)
        """The rounding that each of them allows."""
        self.narrowed: dict[tuple[str, Location | None], Narrowing] = {}

    @property
    def follows(self) -> bool:
        """Return whether an argument or an output is narrower than another of each.

        If so, roundings into its dtype are followed.
        """
        return self._coarsest > max(self._every.unit, self._widest)

    def allow(self, dtype: DType) -> None:
        """Let the kernel round into the dtype of an argument."""
        self._allow(dtype)
        self._widest = min(self._widest, _rounding_of(dtype).unit or math.inf)

    def _allow(self, dtype: DType) -> None:
        self._sure = max(self._sure, _rounding_of(dtype).unit)
        self._coarsest = max(self._coarsest, self._sure)
        self._floor = max(self._floor, _rounding_of(dtype).tiny)

    def may_return(self, dtype: DType) -> None:
        """Allow the dtype of a tensor in HBM: it may be an output, or scratch."""
        if not self.settings.results:
            self._coarsest = max(self._coarsest, _rounding_of(dtype).unit)
            self._floor = max(self._floor, _rounding_of(dtype).tiny)

    def without_scratch(self, outputs: Sequence[Tile]) -> ExactSettings | None:
        """Return the settings of a second run that knows the outputs; None if it is not needed.

        It is needed if scratch tensors excused roundings, or if an output came after its roundings.
        """
        units = [_rounding_of(output.dtype).unit for output in outputs]
        unexcused = self.settings.unexcused | self._unexcused_calls(outputs)
        most = max([self._sure, *units])
        known = self._coarsest <= most and (self.settings.results or not self.narrowed)
        if known and unexcused == self.settings.unexcused:
            return None
        dtypes = tuple(output.dtype for output in outputs)
        results = self.settings.results or dtypes or (FLOAT32,)
        return self.settings._replace(results=results, unexcused=unexcused)

    def _unexcused_calls(self, outputs: Sequence[Tile]) -> frozenset[Stack]:
        """Return the calls that no output excuses, or that an output of a wider dtype needs."""
        own = max([self._own.unit, *(_rounding_of(one.dtype).unit for one in outputs)])
        calls = {call for call, unit in self._followed.items() if unit > own}
        for output in outputs:
            unit = _rounding_of(output.dtype).unit
            for call in narrowed_of([output]):
                if 0 < unit < self._followed.get(call, 0):
                    calls.add(call)
        return frozenset(calls - self.excused)

    def into(self, numbers: Bounded, dtype: DType, chain: Chain, name: str) -> Bounded:
        """Return the numbers that an instruction of this name writes to a tensor of ``dtype``."""
        rounding = ROUNDINGS[dtype]
        if dtype == FLOAT32 and not numbers.adds and numbers.sums <= MOST_SUMS:
            return into(numbers, dtype, rounding)
        adds = False
        sums = min(numbers.sums, MOST_SUMS)
        if rounding.unit > UNIT:
            adds = numbers.adds
            rounding, sums = self._narrow(numbers, dtype, chain, name)
        result = into(numbers, dtype, rounding)
        partial = adds or numbers.partial
        if (result.sums, result.adds, result.partial) == (sums, False, partial):
            return result
        return Bounded(result.value, result.error, result.dtype, sums, partial=partial)

    def _narrow(
        self, numbers: Bounded, dtype: DType, chain: Chain, name: str
    ) -> tuple[Rounding, int]:
        """Return how a rounding into a narrow dtype counts, and the roundings of its sum."""
        adds = numbers.adds
        loops = chain.loops(adds=adds)
        sums = min(numbers.sums + adds, MOST_SUMS)
        if loops and adds and chain.wide:
            # a loop that adds up partial sums of float32
            sums = max(sums, FREE_SUMS + 1)
        if dtype == numbers.dtype or _is_held(numbers, dtype):
            return ROUNDINGS[dtype], sums
        limit = self._coarsest if sums <= FREE_SUMS else self.sums
        if loops or numbers.partial:
            limit = min(limit, self._again)
        return self._counted(dtype, limit, chain, name), sums

    def _counted(self, dtype: DType, limit: float, chain: Chain, name: str) -> Rounding:
        """Return how a rounding into a narrow dtype counts: no coarser than ``limit``."""
        rounding = ROUNDINGS[dtype]
        floor = self._floor
        is_unexcused = self._is_unexcused(rounding, chain)
        if is_unexcused:
            limit = min(limit, self._every.unit)
            floor = self._every.tiny
        if rounding.unit <= limit and rounding.tiny <= floor:
            return rounding
        again = limit < rounding.unit <= self._coarsest and not is_unexcused
        key = (RUNNING_SUM if again else name, kernel_location())
        of_output = is_unexcused and rounding.unit <= self._own.unit
        of_argument = is_unexcused and not of_output
        self.narrowed.setdefault(key, Narrowing(*key, dtype, of_argument, of_output))
        unit = self.sums if is_unexcused or limit == self._coarsest else limit
        unit = min(rounding.unit, unit)
        tiny = min(rounding.tiny, floor)
        return Rounding(unit, tiny, rounding.largest)

    def _is_unexcused(self, rounding: Rounding, chain: Chain) -> bool:
        """Return whether only an argument or a narrow output has the dtype, without an excuse.

        Until then, the call is noted.
        """
        free = max(self._every.unit, self._widest)
        if not free < rounding.unit <= self._coarsest:
            return False
        if not chain.narrowed and chain.finest >= rounding.unit:
            return False
        stack = kernel_stack()
        self.rounded = frozenset((stack,))
        self._followed[stack] = rounding.unit
        return stack in self.settings.unexcused
