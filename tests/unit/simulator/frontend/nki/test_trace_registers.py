"""The trace has the register of an access, and the arguments of a collective."""

import numpy as np

from difftest.simulator import launch, trace_from_json, trace_to_json
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every


def moved_by(second):
    """The arguments of a load, and of the users of the first or the second of two registers."""

    def kernel(x, places):
        held = [nisa.register_alloc(), nisa.register_alloc()]
        for number, register in enumerate(held):
            nisa.register_load(register, places[number : number + 1])
        tile = nl.ndarray((1, 8), nl.float32, buffer=nl.sbuf)
        source = x.ap([[8, 1], [1, 8]], scalar_offset=held[second], indirect_dim=0)
        nisa.dma_copy(tile, source)
        nisa.tensor_copy(tile, tile)

    arrays = np.zeros((4, 8), np.float32), np.full(2, 3, np.int32)
    trace = launch(kernel, arrays).trace
    again = trace_from_json(trace_to_json(trace))
    assert [one.arguments for one in again] == [one.arguments for one in trace]
    loads = [one.arguments["dst"] for one in again if one.opcode == "register_load"]
    (move,) = [one.arguments for one in again if one.opcode == "dma_copy"]
    (copy,) = [one.arguments for one in again if one.opcode == "tensor_copy"]
    assert "register of src" not in copy
    return loads, move["register of src"]


@every("second", [0, 1])
def test_an_access_says_which_of_two_equal_registers_it_follows(second):
    loads, followed = moved_by(second)
    assert loads == ["register 0", "register 1"]
    assert followed == loads[second]
