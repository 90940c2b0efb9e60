"""Values that differed between a device and a simulator: the detectors find the cause.

Each test names its public record: an issue of aws-neuron/aws-neuron-sdk, or a fact in the published
notes on NKI 0.6 (trn1 and trn2).
"""

import ml_dtypes
import numpy as np
import pytest

from difftest.simulator import TRN1, KernelError, RuleWarning, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as nisa32
from difftest.simulator.frontend.nki import language as nl32
from tests.every import every
from tests.unit.analysis.detectors.kernels import (
    detected_in,
    findings_in,
    found_in,
    normal,
)


def test_issue_1308_an_int32_above_two_to_the_24_goes_through_float32():
    def kernel(tokens):
        out = nl.ndarray(tokens.shape, tokens.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.add(nl.load(tokens), 1))
        return out

    assert found_in(kernel, [np.full((4, 8), 2**24 - 2, np.int32)]) == []
    found = found_in(kernel, [np.full((4, 8), 2**24, np.int32)])
    assert found == [("integer-rounded", "warning")]


def test_issue_673_a_run_that_ends_with_a_nan():
    """The runtime's status 1003, "completed with numerical error", names no instruction."""

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        centred = nl.subtract(tile, nl.mean(tile, axis=1))
        spread = nl.sqrt(nl.mean(nl.square(centred), axis=1))
        nl.store(out, nl.divide(centred, spread))
        return out

    assert found_in(kernel, [normal(4, 8)]) == []
    (finding,) = findings_in(kernel, [np.ones((4, 8), np.float32)])
    assert finding.id == "nan-made"
    assert finding.location.text == "nl.store(out, nl.divide(centred, spread))"


def test_issue_1060_a_tensor_that_is_updated_in_place_is_counted_once():
    """198,024 of 196,608 bytes a partition: 888 of a row, and twice 98,568 of one tensor."""

    def kernel(x):
        out = nl.ndarray((128, 24642), nl.float32, buffer=nl.shared_hbm)
        position = nl.zeros((128, 24642), nl.float32, name="position_out")
        position[:, 0:222] += nl.load(x)
        nl.store(out, position)
        return out

    assert found_in(kernel, [normal(128, 222)], machine=TRN1) == []


def test_issue_1060_the_error_names_the_tensors_that_are_live_when_sbuf_is_full():
    """The compiler's error named the places that an instruction needs, and no line of the kernel.

    Here two tensors, each of the size of that one.
    """

    def kernel():
        out = nl.ndarray((128, 222), nl.float32, buffer=nl.shared_hbm)
        position = nl.zeros((128, 24642), nl.float32, name="position_out")
        other = nl.zeros((128, 24642), nl.float32, name="position_in")
        nl.store(out, nisa.tensor_tensor(position[:, 0:222], other[:, 0:222], nl.add))
        return out

    (finding,) = findings_in(kernel, [], machine=TRN1)
    assert finding.id == "sbuf-full"
    assert "position_out [128, 24642] float32 in sbuf" in finding.happened
    assert "position_in [128, 24642] float32 in sbuf" in finding.happened
    assert (
        "198024 bytes a partition of sbuf, which has 180224 (trn1)" in finding.happened
    )
    assert finding.location is not None
    assert "nl.zeros((128, 24642)" in finding.location.text
    assert found_in(kernel, []) == []


def test_issues_1036_and_1118_products_that_need_more_banks_than_there_are():
    def kernel(x, w, count):
        out = nl.ndarray((count, 128, 300), nl.float32, buffer=nl.shared_hbm)
        weights = nl.load(w)
        tile = nl.load(x)
        totals = [
            nl.zeros((128, 300), nl.float32, buffer=nl.psum) for _ in range(count)
        ]
        for total in totals:
            total += nisa.nc_matmul(weights, tile)
        for number, total in enumerate(totals):
            nl.store(out[number], nl.copy(total))
        return out

    operands = [normal(128, 300), normal(128, 128)]
    assert found_in(kernel, [*operands, 8]) == []
    assert found_in(kernel, [*operands, 9]) == [("psum-full", "error")]


def test_a_row_of_nan_before_a_top_k_whose_indices_address_memory():
    """trn2: all eight indices are 0xFFFFFFFF, and the gather that uses them faults the device."""

    def kernel(scores, table):
        out = nl.ndarray((8, 4), table.dtype, buffer=nl.shared_hbm)
        tile = nl.load(scores)
        places = nisa.nc_find_index8(data=tile, vals=nisa.max8(src=tile))
        first = nl.copy(places[:, 0:1], dtype=nl.int32)
        nl.store(out, nl.load(table[first, nl.arange(4)[None, :]]))
        return out

    scores, table = normal(8, 32), normal(32, 4)
    assert found_in(kernel, [scores, table]) == []
    scores[5, 3] = np.nan
    found = found_in(kernel, [scores, table])
    assert set(found) == {("nan-searched", "error")}
    scores[5] = np.nan
    with pytest.raises(KernelError, match="find a value that is not in the data"):
        launch(kernel, [scores, table])
    scores[5] = -np.inf
    assert found_in(kernel, [scores, table]) == []


@every("code", range(256))
def test_the_float8_codes_that_trn1_does_not_have(code):
    """All 256 codes of float8_e4m3fn on a trn1: 14 become infinities or NaN, all others convert."""
    data = np.full((1, 1), code, np.uint8).view(ml_dtypes.float8_e4m3fn)

    def kernel(x):
        out = nl32.ndarray((1, 1), nl32.float32, buffer=nl32.shared_hbm)
        tile = nl32.ndarray((1, 1), x.dtype, buffer=nl32.sbuf)
        nisa32.dma_copy(dst=tile, src=x)
        wide = nl32.ndarray((1, 1), nl32.float32, buffer=nl32.sbuf)
        nisa32.tensor_copy(dst=wide, src=tile)
        nisa32.dma_copy(dst=out, src=wide)
        return out

    found = {one.id for one in detected_in(kernel, [data], machine=TRN1).findings}
    lost = 0x78 <= code & 0x7F <= 0x7E
    assert found == ({"float8-codes"} if lost else set())


def ring(slots, tiles):
    """Tiles that lie in a ring of slots, all loaded before the first is used."""

    def kernel(x):
        out = nl32.ndarray(x.shape, x.dtype, buffer=nl32.shared_hbm)
        held = []
        for number in range(tiles):
            place = (0, 64 * (number % slots))
            tile = nl32.ndarray((128, 16), x.dtype, buffer=nl32.sbuf, address=place)
            nisa32.dma_copy(dst=tile, src=x[number])
            held.append(tile)
        for number, tile in enumerate(held):
            nisa32.dma_copy(dst=out[number], src=tile)
        return out

    return kernel


@every("slots, tiles, found", [(3, 3, 0), (2, 3, 1)])
def test_a_ring_of_buffers_that_is_too_shallow(slots, tiles, found):
    """On trn1 it was correct for many heads. For fewer than three it read overwritten data."""
    got = findings_in(ring(slots, tiles), [normal(tiles, 128, 16)])
    assert [one.id for one in got] == ["address-alias"] * found


def test_an_argument_out_of_range_in_a_padded_row_stops_nothing():
    def kernel(x):
        out = nl.ndarray((3, 8), x.dtype, buffer=nl.shared_hbm)
        tile = nl.zeros((4, 8), x.dtype)
        tile[0:3] = nl.load(x)
        nl.store(out, nl.log(tile)[0:3])
        return out

    x = np.abs(normal(3, 8)) + 1
    assert found_in(kernel, [x]) == [("activation-range", "warning")]
    with pytest.warns(RuleWarning, match="log got 0.0"):
        (result,) = launch(kernel, [x]).outputs
    np.testing.assert_allclose(result, np.log(x), rtol=1e-6)
