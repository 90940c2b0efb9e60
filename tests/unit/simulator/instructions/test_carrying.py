"""What was never written, carried on by instructions that work element by element."""

import numpy as np
import pytest

from difftest.simulator import UnwrittenError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.nki import isa as today
from difftest.simulator.frontend.nki import language as today_nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles, raised

MODES = every("plain", [False, True])
A = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)


def half(array):
    """A tile of which the two columns in the middle are written."""
    tile = nl.ndarray(array.shape, array.dtype)
    tile[:, 1:3] = nl.load(array[:, 1:3])
    return tile


COMPUTED = {
    "tensor_copy": (lambda x, y: nisa.tensor_copy(x), lambda x, y: x),
    "cast": (lambda x, y: nisa.tensor_copy(x, dtype=nl.int32), lambda x, y: np.rint(x)),
    "activation": (lambda x, y: nisa.activation(nl.relu, x), lambda x, y: np.maximum(x, 0)),
    "out of the range of log": (lambda x, y: nl.log(nl.abs(x)), lambda x, y: np.log(abs(x))),
    "tensor_tensor": (lambda x, y: nisa.tensor_tensor(x, y, nl.add), lambda x, y: x + y),
    "tensor_scalar": (
        lambda x, y: nisa.tensor_scalar(x, nl.add, y[:, 1:2]),
        lambda x, y: x + y[:, 1:2],
    ),
    "scalar_tensor_tensor": (
        lambda x, y: nisa.scalar_tensor_tensor(
            data=y, op0=nl.add, operand0=1.0, op1=nl.add, operand1=x
        ),
        lambda x, y: y + 1 + x,
    ),
    "reciprocal": (lambda x, y: nisa.reciprocal(x), lambda x, y: 1 / x),
}


@MODES
@every("name", COMPUTED)
def test_the_part_that_was_written_is_computed(plain, name):
    compute, expected = COMPUTED[name]

    def kernel(x, y):
        result = compute(half(x), nl.load(y))
        out = nl.ndarray((6, 2), result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result[:, 1:3])
        return out

    output = launch(kernel, [A, B], plain=plain).outputs[0]
    np.testing.assert_allclose(output, expected(A, B)[:, 1:3], rtol=1e-6)


@MODES
@every("name", COMPUTED)
@every("use", ["store", "sum", "matmul"])
def test_the_rest_cannot_be_used(plain, name, use):
    def kernel(x, y):
        result = COMPUTED[name][0](half(x), nl.load(y))
        if use == "sum":
            nl.sum(result, axis=1)
        elif use == "matmul":
            nisa.nc_matmul(nl.copy(result, dtype=nl.float32), nl.load(y))
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    with pytest.raises(UnwrittenError, match=None if plain else "12 of 24 elements"):
        launch(kernel, [A, B], plain=plain)


def select_reduce(x, y, chosen, **options):
    nisa.select_reduce(dst=y, predicate=chosen, on_true=x, on_false=0.0, **options)
    return y


def copy_predicated(x, y, chosen, **options):
    nisa.tensor_copy_predicated(src=x, dst=y, predicate=chosen, **options)
    return y


SELECTED = {
    "where": lambda x, y, chosen: nl.where(chosen, x, y),
    "where, the other side": lambda x, y, chosen: nl.where(nl.equal(chosen, 0), y, x),
    "select_reduce": select_reduce,
    "select_reduce, reversed": lambda x, y, chosen: select_reduce(
        x, y, nl.equal(chosen, 0, dtype=nl.uint8), reverse_pred=True
    ),
    "tensor_copy_predicated": copy_predicated,
    "tensor_copy_predicated, reversed": lambda x, y, chosen: copy_predicated(
        x, y, nl.equal(chosen, 0, dtype=nl.uint8), reverse_pred=True
    ),
}
"""Of ``x`` what is chosen, of ``y`` or 0 the rest."""
MIDDLE = np.array([[0, 1, 1, 0]] * 6, np.uint8)


@MODES
@every("name", SELECTED)
def test_a_selection_loses_what_it_takes(plain, name):
    def kernel(x, y, chosen, of):
        tiles = [nl.load(x), nl.load(y), nl.load(chosen)]
        if of is not None:
            tiles[of] = half((x, y, chosen)[of])
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, SELECTED[name](*tiles))
        return out

    rest = 0 if "reduce" in name else B
    output = launch(kernel, [A, B, MIDDLE, 0], plain=plain).outputs[0]
    np.testing.assert_array_equal(output, np.where(MIDDLE, A, rest))
    for chosen, of in ((1 - MIDDLE, 0), (MIDDLE, 2)):
        with pytest.raises(UnwrittenError, match=None if plain else "12 of 24 elements"):
            launch(kernel, [A, B, chosen, of], plain=plain)


@MODES
def test_a_transpose_carries_it_to_the_other_axis(plain):
    def kernel(x):
        turned = nl.copy(nisa.nc_transpose(half(x)))
        out = nl.ndarray((2, 6), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, turned[1:3])
        return out

    np.testing.assert_array_equal(launch(kernel, [A], plain=plain).outputs[0], A.T[1:3])


@MODES
def test_a_gather_carries_it_by_partitions(plain):
    """nki-library gathers of 128 partitions and uses those of its tokens (core/moe/moe_tkg)."""

    def kernel(x, index, used):
        source = nl.ndarray((16, 4), x.dtype)
        source[0:3] = nl.load(x)
        found = nisa.local_gather(source, nl.load(index))
        out = nl.ndarray((used, 16, 1), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, found[0:used])
        return out

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    index = np.arange(16, dtype=np.uint16).reshape(16, 1) % 4
    output = launch(kernel, [x, index, 3], plain=plain).outputs[0]
    np.testing.assert_array_equal(output, x[:, index])
    with pytest.raises(UnwrittenError):
        launch(kernel, [x, index, 4], plain=plain)


@MODES
@every("part", ["source", "index"])
def test_a_gather_needs_its_index_and_something_of_its_source(plain, part):
    def kernel(x):
        source, index = nl.zeros((16, 4), x.dtype), nl.zeros((16, 1), nl.uint16)
        if part == "source":
            source = nl.ndarray((16, 4), x.dtype)
        else:
            index = nl.ndarray((16, 1), nl.uint16)
            index[0:8] = nl.zeros((8, 1), nl.uint16)
        nisa.local_gather(source, index)
        return x

    with pytest.raises(UnwrittenError):
        launch(kernel, [A], plain=plain)


@MODES
@every("assign", [True, False])
def test_what_was_written_before_is_so_no_more(plain, assign):
    def kernel(x):
        target = nl.load(x)
        if assign:
            target[...] = half(x)
        else:
            target += half(x)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, target)
        return out

    with pytest.raises(UnwrittenError):
        launch(kernel, [A], plain=plain)


@MODES
def test_nothing_is_carried_of_a_tile_of_which_nothing_was_written(plain):
    def kernel(x):
        nisa.tensor_tensor(nl.load(x), nl.ndarray(x.shape, x.dtype), nl.add)

    with pytest.raises(UnwrittenError):
        launch(kernel, [A], plain=plain)


@MODES
@every("rows", [5, 6])
def test_nothing_is_carried_into_what_a_mask_leaves_out(plain, rows):
    """Or an element would be taken for one that the mask left out, and kept as it was."""

    def kernel(x):
        i = nl.mgrid[0:6, 0:4]
        target = nl.load(x)
        target[i.p, i.x] = nl.add(half(x), 1.0, mask=i.p < rows)
        out = nl.ndarray((6, 2), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, target[:, 1:3])
        return out

    if rows == 6:
        np.testing.assert_array_equal(launch(kernel, [A], plain=plain).outputs[0], A[:, 1:3] + 1)
    else:
        with pytest.raises(UnwrittenError):
            launch(kernel, [A], plain=plain)


def halved(x):
    part = today_nl.ndarray(x.shape, x.dtype)
    today.tensor_copy(part[:, 1:3], x[:, 1:3])
    return part


def test_the_error_says_whence_it_came():
    def compute(x):
        copied = today_nl.ndarray(x.shape, x.dtype)
        today.tensor_copy(copied, halved(x))  # the line
        total = today_nl.ndarray((6, 1), x.dtype)
        today.tensor_reduce(total, today_nl.add, copied, axis=1)
        return total

    text = raised(UnwrittenError, compute, A)
    assert "they came from [0:6, 0:4] of tensor 3 [6, 4] float32 in sbuf, made at " in text
    line = compute.__code__.co_firstlineno + 2
    assert f"part = today_nl.ndarray(x.shape, x.dtype), called at {__file__}:{line}" in text
    assert f", read by tensor_copy at {__file__}:{line}: today.tensor_copy(copied" in text
    assert "# the line" in text


def test_a_transposing_matmul_moves_what_is_not_finite_and_not_written():
    x = A.copy()
    x[0, 1], x[5, 2] = np.nan, np.inf

    def compute(x):
        identity = today_nl.shared_identity_matrix(6, dtype=today_nl.float32)
        turned = today_nl.ndarray((4, 6), x.dtype, buffer=today_nl.psum)
        today.nc_matmul(turned, halved(x), identity, is_transpose=True)
        return turned[1:3]

    np.testing.assert_array_equal(on_nki_tiles(compute, x), x.T[1:3])


def test_tensors_that_share_an_address_forget_together():
    def compute(x):
        first = today_nl.ndarray((6, 4), x.dtype, address=(0, 0))
        second = today_nl.ndarray((6, 4), x.dtype, address=(0, 0))
        today.tensor_copy(first, x)
        today.tensor_copy(second, halved(x))
        return first

    assert "12 of 24 elements" in raised(UnwrittenError, compute, A)


def counted(rows, read):
    """The nonzero elements of the first partition of each GpSimd core, of two cores."""

    def compute(x):
        source = today_nl.ndarray((32, 4), x.dtype)
        for row in rows:
            today.dma_copy(source[row : row + 1], x)
        found = today_nl.zeros((32, 5), today_nl.int32)
        today.nonzero_with_count(found, source)
        return found[read : read + 1]

    return compute


def test_what_a_core_makes_of_nothing_counts_as_never_written():
    row = np.array([[0, 2, 0, 3]], np.float32)
    compute = counted([0], 0)
    expected = [[1, 3, -1, -1, 2]]
    np.testing.assert_array_equal(launch(copied_out, [row, compute]).outputs[0], expected)
    with pytest.raises(UnwrittenError, match="by nonzero_with_count at"):
        launch(copied_out, [row, counted([0], 16)])
    with pytest.raises(UnwrittenError, match="4 of 4 elements"):
        launch(copied_out, [row, counted([1], 0)])


def copied_out(x, compute):
    result = compute(x)
    out = today_nl.ndarray(result.shape, result.dtype, buffer=today_nl.shared_hbm)
    today.dma_copy(out, result)
    return out


@every("rows", [4, 6])
def test_registers_that_are_loaded_with_what_was_never_written_are_lost(rows):
    def compute(x):
        start = today_nl.ndarray((6, 1), x.dtype)
        today.tensor_copy(start[0:4], x[0:4, 0:1])
        out, total = today_nl.ndarray(x.shape, x.dtype), today_nl.ndarray((6, 1), x.dtype)
        command = today.reduce_cmd.load_reduce
        today.tensor_scalar_reduce(
            out, x, today_nl.add, 0.0, today_nl.add, total, reduce_cmd=command, reduce_init=start
        )
        return out, total[0:rows]

    if rows == 4:
        out, total = on_nki_tiles(compute, A)
        np.testing.assert_array_equal(out, A)
        np.testing.assert_allclose(total, (A.sum(axis=1) + A[:, 0])[:4, None], rtol=1e-5)
    else:
        assert "2 of 6 elements" in raised(UnwrittenError, compute, A)


@every("rows, columns", [(4, 4), (4, 3)])
def test_a_reduction_carries_it_where_something_of_a_sum_was_never_written(rows, columns):
    """Lanes that a kernel does not use (attention_tkg of nki-library), not a part of each sum."""

    def compute(x):
        part = today_nl.ndarray(x.shape, x.dtype)
        today.tensor_copy(part[0:rows, 0:columns], x[0:rows, 0:columns])
        total = today_nl.ndarray((6, 1), x.dtype)
        today.tensor_reduce(total, today_nl.add, part, axis=1)  # the line
        return total[0:rows]

    if columns == 4:
        expected = A[:rows].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(on_nki_tiles(compute, A), expected, rtol=1e-5)
    else:
        with pytest.raises(UnwrittenError) as caught:
            on_nki_tiles(compute, A)
        assert "# the line" in caught.value.location.text


RELAXED = {
    "nothing times it, plus one": lambda x: nl.add(nl.multiply(x, 0.0), 1.0),
    "a copy": nl.copy,
    "an integer": lambda x: nl.add(nl.copy(x, dtype=nl.int32), 1),
    "a comparison": lambda x: nl.where(nl.greater(x, 0.0), 1.0, 2.0),
    "a maximum": lambda x: nl.maximum(x, 5.0),
    "a row's sum": lambda x: nl.broadcast_to(
        nl.sum(nl.multiply(x, 0.0), axis=1, keepdims=True), shape=(6, 4)
    ),
}


@pytest.mark.filterwarnings("ignore::difftest.simulator.RuleWarning")
@pytest.mark.parametrize("some", [True, False], ids=["half", "nothing"])
def test_where_that_is_no_error_both_modes_go_on_with_the_same(some):
    """What was never written is carried on, or NaN: a result does not hide that it was read."""
    for name, compute in RELAXED.items():

        def kernel(x, compute=compute):
            result = compute(half(x) if some else nl.ndarray(x.shape, x.dtype))
            out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
            nl.store(out, result)
            return out

        fast, plain = (launch(kernel, [A], plain=one, strictness="relaxed") for one in (0, 1))
        np.testing.assert_array_equal(fast.outputs[0], plain.outputs[0], err_msg=name)
        if name == "nothing times it, plus one":
            assert np.isnan(fast.outputs[0]).sum() == (12 if some else 24)
        missing = [one.unwritten[0] for one in (fast, plain)]
        assert (missing[0] is None) == (missing[1] is None), name
        np.testing.assert_array_equal(*[np.zeros(1) if m is None else m for m in missing])
