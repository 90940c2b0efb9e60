"""``nki.isa``: random numbers. They are NumPy's, and the same in every run.

Engines have states of 6 words a lane (GpSimd) or 24 (Vector), which kernels set and read. Here all
engines draw from one generator of the launch. A state that is set begins it anew, and one that is
read is made up of fresh words from which it then goes on: to set that state later repeats the
numbers that followed the reading. Source: the stubs of ``nki.isa`` at v2.32.0.
"""

from __future__ import annotations

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import Array
from difftest.simulator.errors import DtypeError, KernelError, ShapeError
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.frontend.nki.constants import engine_of
from difftest.simulator.frontend.nki.objects import ISSUED
from difftest.simulator.instructions import random_numbers
from difftest.simulator.instructions.effects import note
from difftest.simulator.instructions.operands import need_tile
from difftest.simulator.instructions.record import ON_CHIP, SBUF_ONLY
from difftest.simulator.instructions.writing import write
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine

_GPSIMD = constants.engine.gpsimd
_WORDS = {Engine.GPSIMD: 6, Engine.VECTOR: 24}
"""Of a lane's state; the Vector Engine has four states, since NeuronCore-v4."""
_SINCE = {Engine.GPSIMD: 3, Engine.VECTOR: 4}


@call(random_numbers.rng)
def rng(dst, engine=constants.engine.vector, name=None):
    """Every element of ``dst`` becomes random bits."""


@call(random_numbers.rand2)
def rand2(dst, min, max, name=None):
    """Every element of ``dst`` becomes uniformly random between two bounds."""


@public
def set_rng_seed(src_seeds, name=None):
    """Let the numbers begin anew from a seed of 32 bits, a (1, 1) tensor on chip."""
    seeds = need_tile(src_seeds, "src_seeds", "set_rng_seed")
    if seeds.size != 1 or seeds.dtype.itemsize != 4:
        raise ShapeError(
            "set_rng_seed takes a (1, 1) tensor of 32 bits",
            happened=f"set_rng_seed got {seeds.size} elements of {seeds.dtype.itemsize} bytes",
            received=f"src_seeds = {seeds!r}",
        )
    _begin(seeds.values())
    note("set_rng_seed", Engine.VECTOR, reads=[("src_seeds", seeds)])
    return ISSUED


@public
def rand_set_state(src_seeds, engine=_GPSIMD, name=None):
    """Let the numbers begin anew from the states of an engine's lanes, [P, words] in SBUF."""
    chosen = engine_of(engine, "rand_set_state")
    seeds = need_tile(src_seeds, "src_seeds", "rand_set_state", SBUF_ONLY)
    _check_state(seeds, "src_seeds", "rand_set_state", chosen)
    _begin(seeds.values())
    note("rand_set_state", chosen, reads=[("src_seeds", seeds)])
    return ISSUED


@public
def rand_get_state(dst, engine=_GPSIMD, name=None):
    """States for the lanes of an engine, from which its numbers go on: [P, words]."""
    chosen = engine_of(engine, "rand_get_state")
    either = current().machine.nc_version >= 4 and chosen is Engine.VECTOR
    target = need_tile(dst, "dst", "rand_get_state", ON_CHIP if either else SBUF_ONLY)
    _check_state(target, "dst", "rand_get_state", chosen)
    words = current().numbers().integers(0, 2**32, target.shape, dtype=np.uint32)
    write(target, words)
    _begin(words)
    note("rand_get_state", chosen, writes=[("dst", target)])
    return ISSUED


def _begin(words: Array) -> None:
    """Let the launch's generator begin anew from words of 32 bits."""
    bits = np.ascontiguousarray(words).view(np.uint32)
    current().random = np.random.default_rng(bits.reshape(-1).tolist())


def _check_state(tile: Tile, role: str, where: str, engine: Engine) -> None:
    """Raise unless the engine has states, and the tile one for each of its partitions."""
    machine = current().machine
    if engine not in _WORDS or machine.nc_version < _SINCE[engine]:
        raise KernelError(
            f"{where} runs on the GpSimd Engine from NeuronCore-v3 on, on the Vector Engine "
            "from NeuronCore-v4 on",
            happened=f"{where} was to run on the engine {engine.value} of {machine.name}",
            received=f"engine={engine.value} on {machine.name}",
        )
    if tile.dtype != np.uint32:
        raise DtypeError(
            f"{where} takes {role} as uint32",
            happened=f"{where} got {role} of {tile.dtype}",
            received=f"{role} = {tile!r}",
        )
    words = _WORDS[engine]
    if len(tile.shape) != 2 or tile.shape[1] != words:
        raise ShapeError(
            f"{where} takes {words} words a partition for the engine {engine.value}",
            happened=f"{where} got {role} of shape {list(tile.shape)}",
            received=f"{role} = {tile!r}",
            limit=f"[partitions, {words}]",
        )
