"""What comparisons of a candidate's runs look at in a call."""

import nki.isa as nisa
import nki.language as nl
import numpy as np

from difftest.simulator import launch
from difftest.simulator.launch_listeners import recording_tapes
from difftest.simulator.tape_json import tape_from_json, tape_to_json
from difftest.tools.verdict.call_parts import (
    PartKind,
    are_equal_except_names,
    calls_of,
    change_names,
)
from tests.every import every


def tape_of(value=1.0, name="tile", chosen=0):
    """Return the tape of a kernel that writes a constant and stores a loaded register."""

    def kernel(index):
        tile = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.sbuf, name=name)
        nisa.memset(dst=tile, value=value)
        register = nisa.register_alloc()
        number = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=number, src=index)
        nisa.register_load(dst=register, src=number)
        nisa.register_store(dst=number, src=register)
        out = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    with recording_tapes() as tapes:
        launch(kernel, [np.full((1, 1), chosen, np.int32)])
    return tape_from_json(tape_to_json(tapes[0]))


@every(
    "other, is_same",
    [
        ({}, True),
        ({"name": "another"}, True),
        ({"value": 2.0}, False),
        ({"value": 1}, False),  # an integer is no float
    ],
)
def test_names_do_not_count(other, is_same):
    assert are_equal_except_names(tape_of(), tape_of(**other)) == is_same


def test_the_value_that_a_register_loads_and_stores_is_no_part():
    one, other = (
        [call.parts for call in calls_of(tape_of(chosen=chosen))] for chosen in (0, 3)
    )
    assert one == other


def test_the_sign_of_zero_counts_and_nan_equals_itself():
    assert not are_equal_except_names(tape_of(value=0.0), tape_of(value=-0.0))
    assert are_equal_except_names(tape_of(value=np.nan), tape_of(value=np.nan))


def test_a_register_is_a_part_by_its_number():
    kinds = [part.kind for call in calls_of(tape_of()) for part in call.parts]
    assert PartKind.REGISTER in kinds
    assert PartKind.TENSOR in kinds


def test_names_are_changed_at_any_depth():
    taped = ({"name": "a\nb", "op": "a\nb"}, ("name", {"name": 3}))
    changed = change_names(taped, str.upper)
    assert changed == ({"name": "A\nB", "op": "a\nb"}, ("name", {"name": 3}))
