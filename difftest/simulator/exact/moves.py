"""Error rules of what moves data, makes constants, looks up places and draws random numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import Bounded
from difftest.simulator.exact.elementwise import doubtful_truth
from difftest.simulator.exact.shadow import Shadow, rule
from difftest.simulator.instructions.dma import turned
from difftest.simulator.instructions.record import Call, Masked


@rule("tensor_copy", "dma_copy", copies=True)
@rule("tensor_copy_dynamic_src", "tensor_copy_dynamic_dst", copies=True)
def copied(run: Shadow, call: Call, src: Bounded, held: Bounded | None = None) -> Bounded:
    """The numbers of ``src``, or their sum with what ``dst`` holds."""
    if held is None:
        return src
    return bounded.add(held, src.shaped(lambda array: array.reshape(held.value.shape)))


@rule("dma_transpose", copies=True)
def dma_transpose(run: Shadow, call: Call, src: Bounded) -> Bounded:
    """The numbers of ``src`` with their axes permuted."""
    return src.shaped(functools.partial(turned, call))


@rule("nc_transpose", "nc_stream_shuffle", "local_gather", "gather_flattened", "nc_n_gather")
def moved(run: Shadow, call: Call, *operands: Bounded) -> Any:
    """Numbers go where the record's own meaning takes them, and so do their errors.

    An operand that the record has of some dtypes only says where.
    """
    roles = call.instruction.operands
    run.sure(*(one for role, one in zip(roles, operands, strict=True) if role.dtypes))
    chosen: Any = None

    def move(plane: Any) -> Any:
        nonlocal chosen
        values = [
            one.value if role.dtypes else plane for role, one in zip(roles, operands, strict=True)
        ]
        made = call.instruction.meaning(call, *values)
        if type(made) is not Masked:
            return made
        chosen = made.chosen
        return made.values

    (source,) = (one for role, one in zip(roles, operands, strict=True) if not role.dtypes)
    numbers = source.shaped(move)
    return numbers if chosen is None else Masked(numbers, chosen)  # type: ignore[arg-type]


@rule("tensor_copy_predicated")
def tensor_copy_predicated(run: Shadow, call: Call, src: Any, predicate: Bounded) -> Any:
    """The numbers of ``src``, or one number, where an integer predicate holds."""
    number = run.operand(src)
    if not number.value.ndim:
        number = number.shaped(lambda array: np.broadcast_to(array, call.result.shape))
    return moved(run, call, number, predicate)


@rule("dma_compute")
def dma_compute(run: Shadow, call: Call, *srcs: Bounded | None) -> Bounded:
    """The sum of all sources, in their order."""
    given = [src.shaped(np.ravel) for src in srcs if src is not None]
    return functools.reduce(bounded.add, given)


@rule("memset")
def memset(run: Shadow, call: Call, value: Any) -> Bounded:
    """A constant."""
    return bounded.number(value)


@rule("iota")
def iota(run: Shadow, call: Call, expr: Any) -> Bounded:
    """Whole numbers."""
    return Bounded(expr.array().astype(np.float64), None)


@rule("rng", "rand", "rand2", "dropout")
def drawn(run: Shadow, call: Call, *operands: Any) -> None:
    """Random numbers, of which no reference knows."""
    run.doubt("random numbers", lost=True)


_LOOKED_UP = {
    "nc_find_index8": ("places of rounded values are looked up", False),
    "nc_match_replace8": ("rounded values are matched and replaced", True),
    "nonzero_with_count": ("places of rounded values are looked up", True),
    "sequence_bounds": ("rounded values name segments", True),
}
"""Of instructions whose results are the machine's: the doubt where they come of rounded values, and
whether all meaning is lost then."""


@rule(*_LOOKED_UP)
def looked_up(run: Shadow, call: Call, *operands: Any) -> None:
    """Places, which could be others if rounded values stood in another order, or were 0 or not."""
    rounded = [one for one in operands if isinstance(one, Bounded) and one.error is not None]
    if call.name == "nonzero_with_count":
        rounded = [one for one in rounded if doubtful_truth(one).any()]
    if rounded:
        reason, lost = _LOOKED_UP[call.name]
        run.doubt(reason, lost=lost)
