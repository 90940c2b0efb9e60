"""NaN, infinities, integers and float8 codes: planted hazards are found, harmless ones pass."""

import ml_dtypes
import numpy as np
import pytest

from difftest.simulator import TRN2, TRN3, RuleWarning, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as isa32
from difftest.simulator.frontend.nki import language as nl32
from tests.every import every
from tests.unit.analysis.detectors.kernels import findings_in, found_in, normal

F32 = np.float32


def output(x, dtype=None, buffer=nl.shared_hbm):
    return nl.ndarray(x.shape, dtype or x.dtype, buffer=buffer)


def by(compute, dtype=None):
    """A kernel that stores what ``compute`` makes of its one argument."""

    def kernel(x):
        out = output(x, dtype)
        nl.store(out, compute(nl.load(x)))
        return out

    return kernel


# -- NaN and infinities


def normalised(tile):
    return nl.divide(tile, nl.sum(tile, axis=1))


def test_a_row_of_zeros_that_is_divided_by_its_sum():
    rows = normal(4, 8)
    rows[2] = 0
    (finding,) = findings_in(by(normalised), [rows])
    assert (finding.id, finding.severity.value) == ("nan-made", "warning")
    assert finding.happened == (
        "tensor_tensor(divide) made the first NaN of operands that have none (8 of 32 elements, "
        "the first at [2, 0]), and 8 elements that are NaN were stored to tensor 1 [4, 8] float32 "
        "in shared_hbm"
    )
    assert [line.text for line in finding.locations] == [
        "return nl.divide(tile, nl.sum(tile, axis=1))",
        "nl.store(out, compute(nl.load(x)))",
    ]


def test_a_nan_that_came_in_is_not_the_kernels():
    rows = normal(4, 8)
    rows[1, 1] = np.nan
    assert found_in(by(lambda tile: nl.exp(tile)), [rows]) == []


def test_a_nan_in_a_row_that_stays_in_the_kernel():
    def kernel(x):
        out = nl.ndarray((2, 8), x.dtype, buffer=nl.shared_hbm)
        tile = normalised(nl.load(x))
        unused = output(x, buffer=nl.private_hbm)
        nl.store(unused, tile)
        nl.store(out, tile[0:2])
        return out

    rows = normal(4, 8)
    rows[2] = 0
    assert found_in(kernel, [rows]) == []


def test_a_new_nan_is_distinguished_from_an_old_one():
    rows = np.abs(normal(4, 8))
    rows[1, 1], rows[3, 3] = np.nan, -1
    found = findings_in(by(nl.sqrt), [rows])
    made = next(one for one in found if one.id == "nan-made")
    assert "1 of 32 elements, the first at [3, 3]" in made.happened


def test_infinities_that_cancel_make_a_nan():
    rows = np.full((4, 8), -np.inf, F32)
    found = found_in(by(lambda tile: nl.subtract(tile, nl.max(tile, axis=1))), [rows])
    assert found == [("nan-made", "warning")]


@pytest.mark.parametrize(
    ("largest", "found"),
    [(1e5, [("infinity-made", "warning")]), (1e4, [])],
    ids=["lost", "kept"],
)
@pytest.mark.parametrize(
    "hide",
    [lambda t: nl.minimum(t, 60000.0), nl.reciprocal],
    ids=["minimum", "quotient"],
)
def test_a_number_that_a_cast_lost_and_another_instruction_hides(largest, found, hide):
    kernel = by(lambda tile: hide(nl.copy(tile, dtype=nl.float16)), nl.float16)
    assert found_in(kernel, [np.full((4, 8), largest, F32)]) == found


@every("end, found", [(-1e5, []), (1e5, [("infinity-made", "warning")])])
def test_a_maximum_ignores_smaller_elements_that_a_cast_lost(end, found):
    """As in pooling: the rounded largest value is the largest of the rounded values."""
    rows = np.abs(normal(4, 8))
    rows[:, 3] = end

    def largest(tile):
        return nl.max(nl.copy(tile, dtype=nl.float16), axis=1, keepdims=True)

    hidden = by(
        lambda tile: nl.copy(nl.minimum(largest(tile), 1.0).broadcast_to((4, 8)))
    )
    assert found_in(hidden, [rows]) == found


@pytest.mark.parametrize(
    ("decide", "found"),
    [
        (lambda rows: nl.greater(rows, 0.5), [("nan-made", "warning")]),
        (lambda rows: nl.where(nl.equal(rows, rows), rows, 0.0), []),
    ],
    ids=["compared", "asked-for"],
)
def test_a_nan_that_a_comparison_hides(decide, found):
    rows = np.abs(normal(4, 8)) + 1
    kernel = by(lambda tile: nl.copy(decide(normalised(tile)), dtype=nl.float32))
    assert found_in(kernel, [rows]) == []
    rows[2] = 0
    assert found_in(kernel, [rows]) == found


def test_exp_of_a_large_number_is_a_note():
    assert found_in(by(nl.exp), [np.full((4, 8), 100, F32)]) == [
        ("infinity-made", "note")
    ]


def test_an_infinity_on_the_way_to_a_finite_result():
    """1 / (1 + exp(-x)), as sigmoids are written."""
    sigmoid = by(lambda tile: nl.divide(1.0, nl.add(nl.exp(nl.negative(tile)), 1.0)))
    assert found_in(sigmoid, [np.full((4, 8), -100, F32)]) == []


@every(
    "dtype, value",
    [(nl.float16, 1e5), (nl.bfloat16, np.finfo(F32).max), (nl.float8_e4m3, 256.0)],
)
@every("way", ["copy", "store"])
def test_a_cast_that_overflows_is_a_warning(dtype, value, way):
    compute = (
        (lambda tile: nl.copy(tile, dtype=dtype))
        if way == "copy"
        else lambda tile: tile
    )
    data = normal(4, 8)
    assert found_in(by(compute, dtype), [data]) == []
    data[3, 1] = value
    (finding,) = findings_in(by(compute, dtype), [data])
    assert (finding.id, finding.severity.value) == ("infinity-made", "warning")
    assert f"1 of 32 elements, the first at [3, 1], of {value:g}" in finding.happened


def ranged(then):
    """The first columns of each row in float16, range_select's fill in the rest, and its users."""

    def kernel(x):
        out = nl.ndarray(x.shape, nl.float16, buffer=nl.shared_hbm)
        tile = nl.load(x)
        chosen = nl.ndarray(x.shape, nl.float16, buffer=nl.sbuf)
        chosen[...] = nisa.range_select(
            on_true_tile=tile,
            comp_op0=np.greater_equal,
            comp_op1=np.less,
            bound0=nl.zeros((4, 1), F32),
            bound1=nl.full((4, 1), 5, F32),
            on_false_value=nl.fp32.min,
            dtype=nl.float16,
        )
        nl.store(out, then(chosen))
        return out

    return kernel


@every(
    "then, severity",
    [(lambda tile: tile, "note"), (lambda tile: nl.multiply(tile, 60000.0), "warning")],
)
def test_the_fill_of_range_select_in_a_narrow_dtype_is_an_infinity_as_documented(
    then, severity
):
    """``on_false_value`` has to be the smallest float32, for any dtype (nisa.range_select).

    The documentation's own test stores it in float8 and bfloat16.
    """
    assert found_in(ranged(then), [np.abs(normal(4, 8)) + 2]) == [
        ("infinity-made", severity)
    ]


# -- arguments of activation functions


def test_an_argument_outside_the_range_is_a_warning_and_the_kernel_runs():
    data = np.abs(normal(4, 8)) + 1
    assert found_in(by(nl.log), [data]) == []
    data[2, 5] = 0
    with pytest.warns(RuleWarning, match="log got 0.0"):
        launch(by(nl.log), [data])  # nobody looks for hazards
    found = findings_in(by(nl.log), [data])
    ranged = next(one for one in found if one.id == "activation-range")
    assert ranged.severity.value == "warning"
    assert (
        "activation(log) got 0.0, outside its range (1 of 32 elements"
        in ranged.happened
    )


# -- integers


def plus(number):
    return by(lambda tile: nisa.tensor_scalar(tile, np.add, number))


def test_an_operand_that_float32_does_not_have():
    data = np.arange(32, dtype=np.int32).reshape(4, 8)
    assert found_in(plus(1), [data]) == []
    data[0, 3] = 2**24 + 1
    (finding,) = findings_in(plus(0), [data])
    assert "16777217" in finding.happened
    assert "1 of 32 elements, the first at [0, 3]" in finding.happened


def by_dma(x):
    out = nl32.ndarray(x.shape, nl32.int32, buffer=nl32.shared_hbm)
    isa32.dma_compute(dst=out, srcs=[x, x, x], reduce_op=nl32.add)
    return out


def added_by_dma(x):
    out = output(x)
    nl.store(out, nl.load(x))
    for _ in range(2):
        nisa.dma_copy(dst=out, src=x, dst_rmw_op=np.add)
    return out


def registered(count):
    """The sum of so many columns in the registers, in each column."""

    def kernel(tile):
        total = nl.ndarray((4, 1), np.int32, buffer=nl.sbuf)
        nisa.tensor_scalar_reduce(
            data=tile[:, 0:count],
            op0=np.add,
            operand0=0,
            reduce_op=np.add,
            reduce_res=total,
        )
        return nl.broadcast_to(total, shape=(4, 8))

    return kernel


COUNTS = {
    "tensor_reduce": by(
        lambda t: nisa.tensor_reduce(np.add, t[:, 0:3], axis=1, keepdims=True)
    ),
    "nl.sum": by(lambda t: nl.sum(t[:, 0:3], axis=1, keepdims=True)),
    "scan": by(lambda t: nisa.tensor_tensor_scan(t, t, 0, np.multiply, np.add)),
    "scalar_tensor_tensor": by(
        lambda t: nisa.scalar_tensor_tensor(
            data=t, op0=np.multiply, operand0=2, op1=np.add, operand1=t
        )
    ),
    "activation": by(lambda t: nisa.activation(nl.copy, t, scale=3.0, dtype=nl.int32)),
    "tensor_scalar": by(lambda t: nisa.tensor_scalar(t, np.multiply, 3)),
    "tensor_scalar_reduce": by(registered(3)),
    "dma_compute": by_dma,
    "dma_copy": added_by_dma,
}


@pytest.mark.parametrize("name", COUNTS)
def test_three_times_an_integer_that_float32_does_not_have(name):
    """2**23 + 1 is odd and its double beyond 2**24, 2**23 is even; float32 has both numbers."""
    for value, found in ((2**23 + 1, [("integer-rounded", "warning")]), (2**23, [])):
        data = np.full((4, 8), value, np.int32)
        if name == "scan":  # x[1] * x[0] + x[1]
            data[:, 0], data[:, 2:] = 2, 0
        assert found_in(COUNTS[name], [data]) == found


def clipped(tile):
    return nisa.tensor_scalar(tile, np.minimum, 100, op1=np.maximum, operand1=-100)


@every("kernel", [clipped, lambda tile: nl.minimum(tile, 7)])
def test_clipping_an_integer_that_float32_does_not_have_is_exact(kernel):
    large = np.full((4, 8), 2**24 + 1, np.int32)
    assert found_in(by(kernel), [large]) == []
    large[0, 0] = -100 - 2**24
    assert found_in(by(lambda tile: nl.maximum(kernel(tile), tile)), [large]) != []


@pytest.mark.parametrize(("number", "lost"), [(2**24 + 1, True), (2**24, False)])
def test_a_number_operand_may_not_fit_float32(number, lost):
    """Their sum is rounded to what float32 makes of the rounded number: no operand shows it."""
    kernel = by(lambda tile: nl.add(tile, number))
    found = found_in(kernel, [np.full((4, 8), 2**25, np.int32)])
    assert found == [("integer-rounded", "warning")] * lost


def summed(terms, result=nl32.int32):
    """The sums of the columns of [128, 8] counts, in products: so many terms of each in PSUM."""

    def kernel(x):
        tile = nl32.ndarray(x.shape, nl32.float32, buffer=nl32.sbuf)
        ones = nl32.ndarray((128, 1), nl32.float32, buffer=nl32.sbuf)
        total = nl32.ndarray((1, 8), nl32.float32, buffer=nl32.psum)
        made = nl32.ndarray((1, 8), result, buffer=nl32.sbuf)
        out = nl32.ndarray((1, 8), result, buffer=nl32.shared_hbm)
        isa32.dma_copy(dst=tile, src=x)
        isa32.memset(dst=ones, value=1.0)
        for _ in range(terms):
            isa32.nc_matmul(dst=total, stationary=ones, moving=tile)
        isa32.tensor_copy(dst=made, src=total)
        isa32.dma_copy(dst=out, src=made)
        return out

    return kernel


def summed_in_classic(terms):
    """PSUM adds the results of so many products, too."""

    def kernel(x):
        tile = nl.copy(nl.load(x), dtype=nl.float32)
        total = nl.zeros((8, 8), nl.float32, buffer=nl.psum)
        for _ in range(terms):
            total += nisa.nc_matmul(tile, nl.ones((128, 8), nl.float32))
        out = nl.ndarray((8, 8), nl.int32, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(total, dtype=nl.int32))
        return out

    return kernel


def counted(value):
    """Counts with an odd sum of a column."""
    data = np.full((128, 8), value, np.int32)
    data[0] += 1 - value % 2 if (128 * value) % 2 else 1
    return data


LOST = [("integer-rounded", "warning")]


@pytest.mark.parametrize(
    ("kernel", "data", "found"),
    [
        (summed(1), counted(2**17 + 1), LOST),
        (summed(1), counted(2**16), []),  # below 2**24
        (summed(1), np.full((128, 8), 2**17, np.int32), []),  # which float32 has
        # each product is below 2**24, and their sum is not
        (
            summed(3),
            counted(2**16),
            LOST,
        ),
        (summed(1, nl32.float32), counted(2**17 + 1), []),  # floats by chance whole
        (summed(1), (counted(2**17 + 1) * 1.0001).astype(F32), []),  # no counts
        (summed_in_classic(2), counted(2**16), []),  # twice an odd sum is even
        (summed_in_classic(3), counted(2**16), LOST),
    ],
    ids=[
        "lost",
        "small",
        "even",
        "accumulated",
        "floats",
        "fractions",
        "twice",
        "thrice",
    ],
)
def test_counts_that_a_product_sums(kernel, data, found):
    assert found_in(kernel, [data]) == found


def test_counts_that_a_product_sums_are_reported_at_the_product():
    (finding,) = findings_in(summed(1), [counted(2**17 + 1)])
    assert "nc_matmul" in finding.happened
    assert "isa32.nc_matmul" in finding.locations[0].text


def test_sums_of_int32_tiles_are_exact():
    kernel = by(lambda tile: nisa.tensor_tensor(tile, tile, np.add))
    assert found_in(kernel, [np.full((4, 8), 2**24 + 1, np.int32)]) == []


def test_integers_that_are_moved_are_not_computed():
    assert found_in(by(nl.copy), [np.full((4, 8), 2**24 + 1, np.int32)]) == []


@pytest.mark.parametrize(("drawn", "lost"), [(True, 0), (False, 1)])
def test_random_bits_that_are_scaled_to_floats_have_no_right_value(drawn, lost):
    def kernel(x):
        out = nl32.ndarray(x.shape, nl32.float32, buffer=nl32.shared_hbm)
        bits = nl32.ndarray(x.shape, nl32.uint32, buffer=nl32.sbuf)
        scaled = nl32.ndarray(x.shape, nl32.float32, buffer=nl32.sbuf)
        if drawn:
            isa32.rng(dst=bits)
        else:
            isa32.dma_copy(dst=bits, src=x)
        isa32.tensor_scalar(dst=scaled, data=bits, op0=nl32.multiply, operand0=2.0**-32)
        isa32.dma_copy(dst=out, src=scaled)
        return out

    found = found_in(kernel, [np.full((4, 8), 2**24 + 1, np.uint32)])
    assert found == [("integer-rounded", "warning")] * lost


# -- float8


def moved(x):
    out = nl32.ndarray(x.shape, nl32.float32, buffer=nl32.shared_hbm)
    tile = nl32.ndarray(x.shape, x.dtype, buffer=nl32.sbuf)
    wide = nl32.ndarray(x.shape, nl32.float32, buffer=nl32.sbuf)
    isa32.dma_copy(dst=tile, src=x)
    isa32.tensor_copy(dst=wide, src=tile)
    isa32.dma_copy(dst=out, src=wide)
    return out


@every("value, machine, found", [(256, TRN2, 1), (240, TRN2, 0), (256, TRN3, 0)])
def test_float8_codes_that_a_machine_does_not_have(value, machine, found):
    data = np.full((4, 8), value, ml_dtypes.float8_e4m3fn)
    got = findings_in(moved, [data], machine=machine)
    assert [one.id for one in got] == ["float8-codes"] * (2 * found)
    if found:
        assert got[0].severity.value == "error"
        assert "dma_copy read 256.0 as float8_e4m3fn on trn2" in got[0].happened


# -- searches


def largest(gathers):
    def kernel(x, table):
        out = nl.ndarray((4, 8), F32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        values = nisa.max8(src=tile)
        if not gathers:
            nl.store(out, values)
            return out
        places = nisa.nc_find_index8(data=tile, vals=values)
        first = nl.copy(places[:, 0:1], dtype=nl.int32)
        nl.store(out, nl.load(table[first, nl.arange(8)[None, :]]))
        return out

    return kernel


def test_the_remedy_for_nan_in_a_search():
    def kernel(x):
        out = nl.ndarray((4, 8), F32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, nisa.max8(src=nl.where(nl.equal(tile, tile), tile, nl.fp32.min)))
        return out

    data = normal(4, 16)
    data[3, 5] = np.nan
    assert found_in(kernel, [data]) == []


def test_a_search_among_nan_is_a_warning():
    data = normal(4, 16)
    table = normal(16, 8)
    assert found_in(largest(gathers=False), [data, table]) == []
    data[3, 5] = np.nan
    (finding,) = findings_in(largest(gathers=False), [data, table])
    assert (finding.id, finding.severity.value) == ("nan-searched", "warning")
    assert "1 of 64 elements, the first at [3, 5] of its src" in finding.happened


def test_indices_found_among_nan_that_address_memory():
    data = normal(4, 16)
    table = normal(16, 8)
    assert found_in(largest(gathers=True), [data, table]) == []
    data[3, 5] = np.nan
    found = findings_in(largest(gathers=True), [data, table])
    assert {one.severity.value for one in found} == {"error"}
    assert all(
        "dma_gather takes the indices that came of it" in one.happened for one in found
    )
