"""``nki.isa``: what the two cores of a logical NeuronCore say to each other."""

from __future__ import annotations

from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.frontend.nki.constants import member_of
from difftest.simulator.instructions import exchanges


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
