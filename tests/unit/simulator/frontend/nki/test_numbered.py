"""Members of enumerations by their number, as NKI 0.2 had them."""

import pytest

from difftest.simulator import KernelError
from difftest.simulator.frontend.nki.constants import (
    dge_mode,
    matmul_perf_mode,
    member_of,
)
from tests.every import every


def test_a_number_is_the_member():
    assert member_of(dge_mode, 3, "dma_copy") is dge_mode.none


def test_so_is_a_string():
    assert (
        member_of(matmul_perf_mode, "double_row", "nc_matmul")
        is matmul_perf_mode.double_row
    )


@every(
    "kind, value",
    [(dge_mode, 9), (dge_mode, True), (matmul_perf_mode, 0), (dge_mode, 3.0)],
)
def test_a_number_of_no_member_is_rejected(kind, value):
    with pytest.raises(KernelError, match=f"takes {kind.__name__} as a member"):
        member_of(kind, value, "here")
