"""A signature is bound to its record when its module is imported."""

import pytest

from difftest.simulator.frontend.classic import isa as classic
from difftest.simulator.frontend.dispatch import declare
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.index import as_integer
from difftest.simulator.instructions.search import local_gather
from tests.every import every


def gather_without_index(dst, src_buffer, num_elem_per_idx=1, num_valid_indices=None):
    """A role of the record lacks a value."""


def local_gather_without_count(dst, src_buffer, index, num_elem_per_idx=1):
    """An option of the record has none."""


def whole(dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None):
    """As the record has it."""


@every(
    "signature, converters, missing",
    [
        (gather_without_index, {}, "index"),
        (local_gather_without_count, {}, "num_valid_indices"),
        (whole, {"indices": as_integer}, "indices"),
    ],
)
def test_an_operand_without_a_parameter_is_an_error_at_import(
    signature, converters, missing
):
    said = f"{signature.__name__} and local_gather differ in {missing}$"
    with pytest.raises(TypeError, match=said):
        call(local_gather, **converters)(signature)


def test_settings_of_no_signature_are_an_error_at_import():
    with pytest.raises(TypeError, match="Rows has no local_gathr"):
        declare(type("Rows", (), {}), call, local_gathr={"index": as_integer})


def test_a_row_passes_arguments_to_its_record():
    made = {}

    def make(record, **settings):
        return lambda stub: made.update({stub.__qualname__: (record, settings)})

    declare(
        type("Rows", (), {"local_gather": whole}),
        make,
        local_gather={"index": as_integer},
    )
    assert made == {"local_gather": (local_gather, {"index": as_integer})}
    documented = "Gather within each 16 partitions"
    assert all(
        isa.local_gather.__doc__.startswith(documented) for isa in (nisa, classic)
    )
