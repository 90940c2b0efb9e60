"""``nki.isa``: registers and scalars, random numbers, and what two cores say to each other.

Moves between registers leave no event in a trace: AWS's compiler places them on the engines'
sequencers. Source: the stubs of ``nki.isa`` at v2.32.0; scalars as NKI 0.7 documents them.
"""

from __future__ import annotations

from typing import Any

from difftest.simulator.dtypes import INT32
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.frontend.nki.constants import member_of
from difftest.simulator.frontend.nki.objects import ISSUED
from difftest.simulator.frontend.nki.virtual_registers import (
    NkiScalar,
    VirtualRegister,
    new_label,
    thirty_two_bits,
)
from difftest.simulator.index import as_integer
from difftest.simulator.instructions import effects, exchanges, random_numbers
from difftest.simulator.instructions.operands import wrong_kind


@public
def register_alloc(x=None):
    """A register; written with ``x`` unless that is None."""
    if x is None:
        return VirtualRegister(None)
    return VirtualRegister(thirty_two_bits(as_integer(x, "register_alloc of"), "register_alloc"))


@public
def register_move(dst, src):
    """``dst = src``, an integer that the kernel knows or another register."""
    target = _register(dst, "dst", "register_move")
    known = isinstance(src, VirtualRegister)
    value = src.device_value() if known else as_integer(src, "register_move of")
    target.set(value, "register_move")
    return ISSUED


@public
def register_load(dst, src):
    """``dst = src``, a tensor of one integer in HBM or SBUF."""
    target = _register(dst, "dst", "register_load")
    value = effects.issue(effects.register_load, [((src,), ())], (target.label,))
    target.set(value, "register_load")
    return ISSUED


@public
def register_store(dst, src):
    """Write a register to a tensor of one element in HBM or SBUF."""
    held = _register(src, "src", "register_store")
    value = held.device_value()
    effects.issue(effects.register_store, [((value,), (dst,))], (held.label,))
    return ISSUED


@public
def scalar_load(src):
    """An integer in HBM or SBUF as a scalar."""
    label = new_label()
    value = effects.issue(effects.scalar_load, [((src,), ())], (label,))
    return NkiScalar(value, INT32, label)


@public
def scalar_store(dst, s):
    """Write a scalar to a tensor of one element in HBM or SBUF."""
    if not isinstance(s, NkiScalar):
        raise wrong_kind(s, "an nl.NkiScalar", "scalar_store", "s")
    effects.issue(effects.scalar_store, [((s.device_value(),), (dst,))], (s.label,))
    return ISSUED


def _register(value: Any, role: str, where: str) -> VirtualRegister:
    if not isinstance(value, VirtualRegister):
        remedy = "make one with nisa.register_alloc()"
        raise wrong_kind(value, "a register", where, role, remedy)
    return value


# -- random numbers: NumPy's, and the same in every run --------------------------------------------


@call(random_numbers.rng)
def rng(dst, engine=constants.engine.vector, name=None):
    """Every element of ``dst`` becomes random bits."""


@call(random_numbers.rand2)
def rand2(dst, min, max, name=None):
    """Every element of ``dst`` becomes uniformly random between two bounds."""


@call(random_numbers.set_rng_seed)
def set_rng_seed(src_seeds, name=None):
    """Let the numbers begin anew from a seed of 32 bits, a (1, 1) tensor on chip."""


@call(random_numbers.rand_set_state)
def rand_set_state(src_seeds, engine=constants.engine.gpsimd, name=None):
    """Let the numbers begin anew from the states of an engine's lanes, [P, words] in SBUF."""


@call(random_numbers.rand_get_state)
def rand_get_state(dst, engine=constants.engine.gpsimd, name=None):
    """States for the lanes of an engine, from which its numbers go on: [P, words]."""


# -- the two cores of a logical NeuronCore ---------------------------------------------------------


@call(exchanges.core_barrier)
def core_barrier(data, cores, engine=constants.engine.gpsimd, name=None):
    """Wait until both cores are here; ``data`` is what they share, a tensor in shared HBM.

    Of a tile in SBUF, which the cores do not share, it is the same barrier, with a warning: kernels
    of aws-neuron/nki-library have it.
    """


@call(
    exchanges.sendrecv,
    dma_engine=lambda value, where: member_of(constants.dma_engine, value, where).name,
)
def sendrecv(
    src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine=constants.dma_engine.dma, name=None
):
    """Send ``src`` to one core while ``dst`` is filled by one; both tiles in SBUF."""
