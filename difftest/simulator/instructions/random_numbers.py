"""Random numbers: rng and rand2 (AWS ``nki.isa`` at tag v2.32.0).

They come from NumPy's generator of the launch, and not from the machine's: the same in every run,
and never the bits that a device would make.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import FLOAT32, FLOATS, INTEGERS, Array
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.instructions.record import (
    Call,
    Result,
    Role,
    Takes,
    choose_engine,
    instruction,
)
from difftest.simulator.instructions.rules import needs_generation, no_gpsimd_in_psum
from difftest.simulator.instructions.values import column
from difftest.simulator.trace import Engine


def _of_dst(call: Call) -> Result:
    dst = call.destinations["dst"]
    return Result(dst.shape, dst.dtype)


# -- rng -------------------------------------------------------------------------------------------


def _rng_engine(call: Call, wanted: Engine) -> Engine:
    """On NeuronCore-v2 the Vector Engine alone."""
    if call.machine.nc_version < 3:
        return choose_engine(call, wanted, (Engine.VECTOR,))
    return choose_engine(call, wanted)


@instruction(
    Engine.VECTOR,
    Engine.GPSIMD,
    operands=(),
    destinations=(Role(name="dst", dtypes=INTEGERS),),
    rules=(no_gpsimd_in_psum,),
    engine=_rng_engine,
    result=_of_dst,
    classic=False,
)
def rng(call: Call) -> Array:
    """Every element of ``dst`` becomes random bits: the lowest of 32."""
    bits = current().numbers().integers(0, 2**32, call.result.shape, dtype=np.uint32)
    dtype = call.result.dtype
    return bits.astype(f"u{dtype.itemsize}").view(dtype)


# -- rand2 -----------------------------------------------------------------------------------------


def _bounds_fit(call: Call) -> None:
    """Each bound is a number, or has one element in each partition of ``dst``."""
    partitions = call.destinations["dst"].partitions
    for name in ("min", "max"):
        bound = call[name]
        if isinstance(bound, Descriptor) and (
            bound.partitions != partitions or bound.size != partitions
        ):
            raise ShapeError(
                f"rand2 takes {name} as a scalar or a vector with one element in each partition",
                happened=f"rand2 got {name} of the shape {list(bound.shape)}",
                received=f"{name} {list(bound.shape)} for dst of {partitions} partitions",
                limit=f"a number, or shape {[partitions, 1]}",
            )


@instruction(
    Engine.VECTOR,
    operands=(
        Role(name="min", takes=Takes.TILE_OR_NUMBER, dtypes=(FLOAT32,)),
        Role(name="max", takes=Takes.TILE_OR_NUMBER, dtypes=(FLOAT32,)),
    ),
    destinations=(Role(name="dst", dtypes=(*FLOATS, *INTEGERS)),),
    rules=(needs_generation(4), _bounds_fit),
    result=_of_dst,
    classic=False,
)
def rand2(call: Call, low: Any, high: Any) -> Array:
    """Every element of ``dst`` becomes uniformly random between two bounds; NeuronCore-v4 on."""
    shape = call.result.shape
    bottom, top = (
        column(bound, len(shape)) if isinstance(bound, np.ndarray) else np.float32(bound)
        for bound in (low, high)
    )
    if not np.all(bottom < top):
        raise KernelError(
            "rand2 takes a min below its max",
            happened=f"rand2 got a min of {np.max(bottom)!s} and a max of {np.min(top)!s}",
            received=f"min up to {np.max(bottom)!s}, max from {np.min(top)!s}",
        )
    share = current().numbers().random(shape, dtype=np.float32)
    return np.clip(bottom + share * (top - bottom), bottom, top)
