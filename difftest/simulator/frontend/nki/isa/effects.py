"""``nki.isa``: registers and scalars, random numbers, and what two cores say to each other.

Moves between registers leave no event in a trace: AWS's compiler places them on the engines'
sequencers. Source: the stubs of ``nki.isa`` at v2.32.0; scalars as NKI 0.7 documents them.
"""

from __future__ import annotations

from typing import Any

from difftest.simulator.dtypes import INT32
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.frontend.nki.constants import ISSUED, member_of
from difftest.simulator.frontend.nki.levels import public
from difftest.simulator.frontend.nki.virtual_registers import (
    NkiScalar,
    VirtualRegister,
    new_label,
    thirty_two_bits,
)
from difftest.simulator.index import as_integer
from difftest.simulator.instructions import effects, exchanges, random_numbers
from difftest.simulator.instructions.operands import wrong_kind


@public  # by hand: it makes an object, and no event
def register_alloc(x=None):
    """A register; written with ``x`` unless that is None."""
    if x is None:
        return VirtualRegister(None)
    return VirtualRegister(thirty_two_bits(as_integer(x, "register_alloc of"), "register_alloc"))


@public  # by hand: between registers, without an event
def register_move(dst, src):
    """``dst = src``, an integer that the kernel knows or another register."""
    target = _register(dst, "dst", "register_move")
    known = isinstance(src, VirtualRegister)
    value = src.device_value() if known else as_integer(src, "register_move of")
    target.set(value, "register_move")
    return ISSUED


def _load(record, dst, operands, options, **_):
    """Do the load of a register, which then has its value."""
    (target,) = options
    target.set(effects.issue(record, [(operands, ())], (target.label,)), record.name)
    return ISSUED


def _stored(values, where):
    """What is stored: a register's value now, and its name in the trace."""
    held = values["s"] if "s" in values else _register(values["src"], "src", where)
    if not isinstance(held, (VirtualRegister, NkiScalar)):
        raise wrong_kind(held, "an nl.NkiScalar", where, "s")
    values.update(value=held.device_value(), src=held.label)


@call(effects.register_load, run=_load, dst=lambda value, where: _register(value, "dst", where))
def register_load(dst, src):
    """``dst = src``, a tensor of one integer in HBM or SBUF."""


@call(effects.register_store, prepare=_stored, value=None)
def register_store(dst, src):
    """Write a register to a tensor of one element in HBM or SBUF."""


@public  # by hand: it makes an object of what it loads
def scalar_load(src):
    """An integer in HBM or SBUF as a scalar."""
    label = new_label()
    value = effects.issue(effects.scalar_load, [((src,), ())], (label,))
    return NkiScalar(value, INT32, label)


@call(effects.scalar_store, prepare=_stored, value=None, src=None)
def scalar_store(dst, s):
    """Write a scalar to a tensor of one element in HBM or SBUF."""


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
