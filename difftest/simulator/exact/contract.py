"""Which roundings a kernel's contract has: into what dtypes, and of sums into which of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from difftest.simulator.dtypes import DType
from difftest.simulator.errors import Location, kernel_location
from difftest.simulator.exact.bounded import ROUNDINGS, UNIT, Bounded, Rounding, into, representable
from difftest.simulator.exact.chains import FREE_SUMS, RUNNING_SUM, Chain
from difftest.simulator.exact.doubts import Narrowing


class Contract:
    """The dtypes that a kernel may round into, and what it has rounded into others.

    An operand may be rounded into the dtype of an argument, for a matmul wants it so. What is added
    to again may be as coarse as the outputs, and no coarser.

    Parameters
    ----------
    dtypes : that it may round into besides those of its arguments and outputs, its sums too.
    results : of the outputs; empty if they are not known.

    Attributes
    ----------
    sums : the unit of a long sum: float32's, or that of the coarsest of ``dtypes``.
    narrowed : the roundings that it does not have.
    """

    def __init__(self, dtypes: Sequence[DType], results: Sequence[DType]) -> None:
        self._coarsest = UNIT
        for dtype in dtypes:
            self.allow(dtype)
        self.sums = self._coarsest
        units = [ROUNDINGS[dtype].unit for dtype in results if dtype in ROUNDINGS]
        self._again = max((self.sums, *units)) if units else math.inf
        self.narrowed: dict[tuple[str, Location | None], Narrowing] = {}

    def allow(self, dtype: DType) -> None:
        """Let the kernel round into a dtype: one of its arguments or outputs has it."""
        if dtype in ROUNDINGS:
            self._coarsest = max(self._coarsest, ROUNDINGS[dtype].unit)

    def into(self, made: Bounded, dtype: DType, chain: Chain, name: str) -> Bounded:
        """What an instruction of this name writes to a tensor of ``dtype``."""
        rounding = ROUNDINGS[dtype]
        narrow = rounding.unit > UNIT
        adds = narrow and made.adds
        sums = min(made.sums + adds, 255)
        loops = narrow and chain.loops(kernel_location(), adds=adds)
        if loops and adds and chain.wide:
            sums = max(sums, FREE_SUMS + 1)  # a loop adds partial sums of float32 up
        if narrow and dtype != made.dtype:
            limit = self._coarsest if sums <= FREE_SUMS else self.sums
            if loops or made.partial:
                limit = min(limit, self._again)
            exact = made.error is None and representable(made.value, dtype)
            if rounding.unit > limit and not exact:
                what = RUNNING_SUM if rounding.unit <= self._coarsest else name
                key = (what, kernel_location())
                self.narrowed.setdefault(key, Narrowing(*key, dtype))
                unit = self.sums if limit == self._coarsest else limit
                rounding = Rounding(unit, rounding.tiny, rounding.largest)
        result = into(made, dtype, rounding)
        partial = adds or made.partial
        if result.sums != sums or result.adds or result.partial != partial:
            result = Bounded(result.value, result.error, result.dtype, sums, partial=partial)
        return result
