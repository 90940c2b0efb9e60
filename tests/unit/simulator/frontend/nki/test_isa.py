"""`nki.isa` of the current dialect: its additions to the classic one, and bad input."""

import numpy as np
import pytest

from difftest.simulator import TRN1, KernelError, UnwrittenError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.instructions.matmul import AccumulationWarning
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import (
    on_nki_tiles,
    raised,
    stored,
    tile,
    values,
)

A = values(16, 8)
B = values(16, 24, seed=1)
PRODUCT = (A.astype(np.float64).T @ B).astype(np.float32)


# -- nc_matmul -------------------------------------------------------------------------------------


def summed(*flags, before=None):
    """A matmul for each accumulate flag into one part of a PSUM tile; `before` prepares that."""

    def compute(a, b):
        total = nl.ndarray((8, 40), nl.float32, buffer=nl.psum)[:, 8:32]
        if before is not None:
            before(total)
        for flag in flags:
            nisa.nc_matmul(total, a, b, accumulate=flag)
        return total

    return on_nki_tiles(compute, A, B)


@every(
    "flags, times",
    [
        ((False, False), 1),
        ((False, True, True), 3),
        ((None,), 1),
        ((None, None, None), 3),
        ((None, False, None), 2),
        ((False, None), 2),
    ],
)
def test_matmuls_accumulate_by_their_flags(flags, times):
    np.testing.assert_allclose(summed(*flags), PRODUCT * times, rtol=1e-5, atol=1e-5)


@every("dtype, count", [(nl.float32, 1), (nl.bfloat16, 1), (nl.float8_e5m2, 3)])
@every("plain", [False, True])
def test_an_overwrite_by_another_dtype_ends_a_sum(plain, dtype, count):
    def compute(a, b):
        total = nl.ndarray((8, 24), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(total, a, b)
        nisa.memset(total.view(dtype)[:, 0:count], 1.0)
        nisa.nc_matmul(total, a, b)
        return total

    expected = PRODUCT * np.where(np.arange(24) < 1, 1, 2)
    result = on_nki_tiles(compute, A, B, plain=plain)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_adding_to_a_memset_warns():
    with pytest.warns(AccumulationWarning, match="another instruction wrote"):
        result = summed(True, before=lambda t: nisa.memset(t, 0.0))
    np.testing.assert_allclose(result, PRODUCT, rtol=1e-5, atol=1e-5)


def test_only_an_accumulating_matmul_reads_its_tile():
    def kernel(a, b):
        total = nl.ndarray((8, 24), nl.float32, buffer=nl.psum)
        left = nl.load(a)
        right = nl.load(b)
        for flag in (False, True, None):
            nisa.nc_matmul(total, left, right, accumulate=flag)
        return stored(total)

    events = [e for e in launch(kernel, (A, B)).trace.events if e.opcode == "nc_matmul"]
    roles = [[region.role for region in event.reads] for event in events]
    assert roles == [["stationary", "moving"], *[["stationary", "moving", "dst"]] * 2]
    assert [event.attributes.inferred for event in events] == [False, False, True]


# -- what differs from the classic calls -----------------------------------------------------------


def test_a_bias_may_be_a_number_from_trn2_on():
    def compute(x):
        out = tile((16, 8))
        nisa.activation(out, nl.copy, x, bias=2.0, scale=3.0)
        return out

    expected = (A.astype(np.float64) * 3 + 2).astype(np.float32)  # rounded once
    np.testing.assert_array_equal(on_nki_tiles(compute, A), expected)
    assert "activation takes bias as a vector" in raised(
        KernelError, compute, A, machine=TRN1
    )


def test_a_value_that_is_not_there_has_an_index_of_all_ones():
    """As AWS's simulator has it since NKI 0.6."""
    vals = np.array([[0.5, 100, 3, 3, 3, 7, 8, 9]], np.float32)
    data = np.array([[3, 9, 3, 8, 7, 0.5, 1, 2]], np.float32)

    def compute(x, v):
        wide = nl.ndarray((1, 8), nl.uint32)
        narrow = nl.ndarray((1, 8), nl.uint16)
        nisa.nc_find_index8(wide, x, v)
        nisa.nc_find_index8(narrow, x, v)
        return wide, narrow

    wide, narrow = on_nki_tiles(compute, data, vals)
    assert wide[0].tolist() == [5, 0xFFFFFFFF, 0, 2, 0xFFFFFFFF, 4, 3, 1]
    assert narrow[0].tolist() == [5, 0xFFFF, 0, 2, 0xFFFF, 4, 3, 1]


def test_match_replace_pairs_duplicates_backwards():
    """The example of AWS's stub."""
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)

    def compute(x, v):
        out = tile((1, 11))
        places = nl.ndarray((1, 8), nl.uint32)
        nisa.nc_match_replace8(out, x, v, -1.0, dst_idx=places)
        return out, places

    out, places = on_nki_tiles(compute, data, vals)
    assert places[0].tolist() == [2, 10, 9, 8, 7, 6, 5, 4]
    assert out[0].tolist() == [1, 2, -1, 4] + [-1] * 7


def test_instructions_return_handles_that_depend_on_each_other():
    def compute(x):
        first, register, inner = (
            nisa.memset(x, 1.0, name="first"),
            nisa.register_alloc(1),
            [],
        )
        second = nisa.memset(x, 2.0)
        assert second.depends_on(first, first).depends_on(first) is second
        # is unrolled
        second.depends_on(*[nisa.memset(x, 2.0) for _ in nl.affine_range(1)])

        def body(i):
            inner.extend(
                (nisa.memset(x, 2.0).depends_on(first), nisa.register_move(register, 1))
            )
            one = nl.zeros((1, 1), nl.int32)
            inner.extend(
                (nisa.register_load(register, one), nisa.register_store(one, register))
            )

        nl.fori_loop(0, 1, body)
        for producer in inner:
            with pytest.raises(
                KernelError, match="depends_on takes producers of its own loop"
            ):
                second.depends_on(first, producer, kind=nisa.dependency.runtime)
        nisa.register_move(register, 1).depends_on(
            *inner, kind=nisa.dependency.schedule
        )
        with pytest.raises(KernelError, match="depends_on got a NkiTensor"):
            second.depends_on(x)
        return x

    assert (on_nki_tiles(compute, A) == 2).all()


# -- a destination that names an element more than once -------------------------------------------


def thrown_away(a, keep):
    """The row sums of squares; the squares go to one element a partition, by a step of 0."""
    sink = nl.zeros((4, 1), nl.float32)
    total = nl.ndarray((4, 1), nl.float32)
    zero = nl.zeros((4, 1), nl.float32)
    target = sink.ap(pattern=[[1, 4], [0, 8]])
    nisa.activation_reduce(target, nl.square, a, nl.add, total, bias=zero)  # the line
    return sink if keep else total


def test_elements_with_different_values_count_as_unwritten():
    text = raised(UnwrittenError, lambda x: thrown_away(x, True), values(4, 8))
    assert "4 of 4 elements" in text
    assert ", given two values at " in text
    assert "# the line" in text
