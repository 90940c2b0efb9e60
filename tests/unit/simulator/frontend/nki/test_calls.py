"""A signature is bound to its record when its module is imported."""

import pytest

from difftest.simulator.frontend.nki.calls import call
from difftest.simulator.index import as_integer
from difftest.simulator.instructions.search import local_gather
from tests.every import every


def gather_without_index(dst, src_buffer, num_elem_per_idx=1, num_valid_indices=None):
    """A role of the record has no value."""


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
def test_what_a_signature_lacks_is_an_error_at_import(signature, converters, missing):
    said = f"{signature.__name__} and local_gather differ in {missing}$"
    with pytest.raises(TypeError, match=said):
        call(local_gather, **converters)(signature)
