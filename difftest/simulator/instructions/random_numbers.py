"""Random numbers, and the states of the engines that make them (AWS ``nki.isa`` at tag v2.32.0).

They come from NumPy's generator of the launch, and not from the machine's: the same in every run,
and never the bits that a device would make. Engines have states of 6 words a lane (GpSimd) or 24
(Vector), which kernels set and read. Here all engines draw from the one generator. A state that is
set begins it anew, and one that is read is made up of fresh words from which it then goes on: to
set that state later repeats the numbers that followed the reading.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.descriptor import Descriptor
from difftest.simulator.dtypes import FLOAT32, FLOATS, INTEGERS, TFLOAT32, WIDE_INTEGERS, Array
from difftest.simulator.errors import KernelError, ShapeError
from difftest.simulator.instructions.effects import Act, Sent, effect, of_dst, one_element
from difftest.simulator.instructions.record import (
    SBUF_ONLY,
    Call,
    Role,
    Takes,
    choose_engine,
    instruction,
)
from difftest.simulator.instructions.rules import needs_generation, no_gpsimd_in_psum
from difftest.simulator.instructions.values import column
from difftest.simulator.lifted import is_array, settled
from difftest.simulator.memory import Shape
from difftest.simulator.trace import Engine

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
    result=of_dst,
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
    carries=False,
    result=of_dst,
    classic=False,
)
def rand2(call: Call, low: Any, high: Any) -> Array:
    """Every element of ``dst`` becomes uniformly random between two bounds; NeuronCore-v4 on."""
    shape = call.result.shape
    bottom, top = (
        settled(column(bound, len(shape))) if is_array(bound) else np.float32(bound)
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


# -- seeds and states ------------------------------------------------------------------------------


def _begin(words: Array) -> None:
    """Let the launch's generator begin anew from words of 32 bits."""
    bits = np.ascontiguousarray(words).view(np.uint32)
    current().draws.random = np.random.default_rng(bits.reshape(-1).tolist())


_SEED = Role(name="src_seeds", dtypes=(FLOAT32, TFLOAT32, *WIDE_INTEGERS))


@effect(Engine.VECTOR, operands=(_SEED,), rules=(one_element("src_seeds"),))
def set_rng_seed(act: Act) -> None:
    """Let the numbers begin anew from a seed of 32 bits."""
    _begin(act.reads["src_seeds"]._values())


def _lanes_engine(call: Call, wanted: Engine) -> Engine:
    """The Vector Engine has states since NeuronCore-v4."""
    vector = (Engine.VECTOR,) if call.machine.nc_version >= 4 else ()
    return choose_engine(call, wanted, (Engine.GPSIMD, *vector))


def _lanes(call: Call) -> Shape:
    """A state for each partition."""
    (tile,) = (*call.tiles.values(), *call.destinations.values())
    return (tile.partitions, 6 if call.engine is Engine.GPSIMD else 24)


@effect(
    Engine.GPSIMD,
    Engine.VECTOR,
    operands=(Role(name="src_seeds", buffers=SBUF_ONLY, dtypes=(WIDE_INTEGERS[1],), shape=_lanes),),
    rules=(needs_generation(3),),
    engine=_lanes_engine,
)
def rand_set_state(act: Act) -> None:
    """Let the numbers begin anew from the states of an engine's lanes."""
    _begin(act.reads["src_seeds"]._values())


@effect(
    Engine.GPSIMD,
    Engine.VECTOR,
    destinations=(Role(name="dst", dtypes=(WIDE_INTEGERS[1],), shape=_lanes),),
    rules=(needs_generation(3), no_gpsimd_in_psum),
    engine=_lanes_engine,
)
def rand_get_state(act: Act) -> None:
    """States for the lanes of an engine, from which its numbers go on."""
    words = current().numbers().integers(0, 2**32, act.call.result.shape, dtype=np.uint32)
    act.take(Sent(words))
    _begin(words)
