"""Code that AWS's pages reject or leave open, and that devices or compilers ran.

Each runs in both modes, with a note, and is refused under `documented`; its near misses are refused
under any setting.
"""

import numpy as np
import pytest

from difftest.simulator import TRN1, TRN2, NkiError, RuleWarning, ShapeError, launch
from difftest.simulator.dtypes import BFLOAT16
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import values

A = values(4, 6, 5)
FLAT = A.reshape(4, 30)
COLUMN = A[:, :1, :1]
NARROW = FLAT.astype(BFLOAT16)
WHOLE = np.arange(120, dtype=np.float32).reshape(4, 30)


def out(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def assigned_in_parts(a):
    tile = nl.load(a)
    made = out(a.shape)
    made[:, 0:4] = tile[:, 0:4]
    made[:, 4:] = tile[:, 4:]
    return made


def assigned_from_hbm(a):
    tile = nl.ndarray(a.shape, nl.bfloat16)
    tile[:, ::2] = a[:, ::2]
    tile[:, 1::2] = a[:, 1::2]
    made = out(a.shape, nl.bfloat16)
    nl.store(made, tile)
    return made


def computed(function, x, y):
    """`function` of two parts of the argument, as a kernel."""

    def kernel(a):
        tile = nl.load(a)
        made = function(x(tile), y(tile))
        stored = out(made.shape, made.dtype)
        nl.store(stored, made)
        return stored

    return kernel


def by_loops(a):
    rows = nl.affine_range(4)
    columns = nl.sequential_range(1, 6, 2)
    made = out((4, 3, 5))
    nl.store(made, nl.load(a[rows, columns]))
    return made


def transposed(a):
    tile = nl.load(a)
    turned = nl.ndarray((30, 4), nl.float32, buffer=nl.psum)
    nisa.nc_transpose(turned, tile)
    made = out((30, 4))
    nl.store(made, nl.copy(turned))
    return made


def loaded_with_a_trailing_one(a):
    made = out((30, 4))
    nl.store(made, nl.load_transpose2d(a))
    return made


def sums_without_a_command(a):
    """[2, 4, 1]: of each half of the columns; each call resets the registers."""
    made = out((2, 4, 1))
    for half in range(2):
        tile = nl.load(a[:, 15 * half : 15 * half + 15])
        total = nl.ndarray((4, 1), nl.float32)
        copied = nl.ndarray(tile.shape, tile.dtype)
        nisa.activation(copied, nl.copy, tile, reduce_op=nl.add, reduce_res=total)
        nisa.dma_copy(made[half], total)
    return made


def all_of(tile):
    return tile


def column(tile):
    return tile[:, 0:1, 0:1]


SEEN = {
    "tiles assigned to HBM": (assigned_in_parts, A, A),
    "HBM assigned to a tile": (assigned_from_hbm, FLAT, NARROW),
    "a column of another rank": (
        computed(nl.subtract, all_of, lambda t: t.reshape((4, 30))[:, 0:1]),
        A,
        A - COLUMN,
    ),
    "a column first": (computed(nl.subtract, column, all_of), A, COLUMN - A),
    "a row in each partition": (
        computed(nl.multiply, all_of, lambda t: t[:, 0:1]),
        A,
        A * A[:, :1],
    ),
    "both sides": (
        computed(nl.maximum, lambda t: t[:, 0:1], lambda t: t[:, :, 2:3]),
        A,
        np.maximum(A[:, :1], A[:, :, 2:3]),
    ),
    "loops as an index": (by_loops, A, A[:, 1:6:2]),
    "a transpose that widens": (transposed, NARROW, NARROW.astype(np.float32).T),
    "a transposed load of a trailing 1": (
        loaded_with_a_trailing_one,
        FLAT[:, :, None],
        FLAT.T,
    ),
    "a sum without a command": (
        sums_without_a_command,
        WHOLE,
        np.stack([WHOLE[:, :15].sum(1), WHOLE[:, 15:].sum(1)])[:, :, None],
    ),
}


def test_code_that_was_seen_to_run_runs_with_a_note():
    for name, (kernel, array, expected) in SEEN.items():
        for plain in (False, True):
            with pytest.warns(RuleWarning):
                result = launch(jit(kernel), [array], plain=plain)
            assert result.notes, name
            np.testing.assert_array_equal(
                result.outputs[0], expected, err_msg=f"{name}, {plain}"
            )
            with pytest.raises(NkiError) as caught:
                launch(jit(kernel), [array], plain=plain, strictness="documented")
            assert caught.value.location.file == __file__, name


def test_a_product_of_bfloat16_by_nl_matmul_is_reported_only_on_trn1():
    """nki-samples of AWS: its result is in bfloat16, which fails on gen2."""

    def kernel(a):
        made = out((30, 30))
        nl.store(made, nl.copy(nl.matmul(tile := nl.load(a), tile, transpose_x=True)))
        return made

    with pytest.warns(RuleWarning, match=r"nl\.matmul got bfloat16 on trn1"):
        launch(jit(kernel), [NARROW], machine=TRN1)
    with pytest.raises(NkiError, match=r"use nisa\.nc_matmul with a float32 dst"):
        launch(jit(kernel), [NARROW], machine=TRN1, strictness="documented")
    for array, machine in ((FLAT, TRN1), (NARROW, TRN2)):
        assert launch(jit(kernel), [array], machine=machine).notes == ()


def number_in_hbm(a):
    made = out(a.shape)
    made[...] = 0.0
    return made


def psum_to_hbm(a):
    made = out((4, 6))
    made[...] = nl.zeros((4, 6), nl.float32, buffer=nl.psum)
    return made


def empty_part_of_hbm(a):
    made = out(a.shape)
    made[0:0] = nl.load(a)
    return made


def transposed_by_vector(a):
    turned = nl.ndarray((4, 4), nl.float32, buffer=nl.psum)
    nisa.nc_transpose(turned, nl.load(a[:, 0:4]), engine=nisa.engine.vector)


def line_from_hbm(a):
    """A tensor of two dimensions first: an accepted form is kept for similar calls."""
    nisa.tensor_scalar(nl.ndarray((4, 5), nl.float32), a[:, 0], nl.add, 1.0)
    nisa.tensor_scalar(nl.ndarray((4, 1), nl.float32), a[:, 0, 0], nl.add, 1.0)


def written_in_hbm(a):
    nisa.tensor_scalar(out((4, 5)), nl.load(a[:, 0]), nl.add, 1.0)


def crossing_banks(a):
    """A product of 5 columns that begins in the last bytes of a bank."""
    psum = nl.ndarray((6, 1024), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(psum[:, 510:515], nl.load(a[:, :, 0]), nl.load(a[:, 0]))


REFUSED = {
    "a line of HBM as an operand": (line_from_hbm, A),
    "a destination in HBM": (written_in_hbm, A),
    "a narrow product in two banks": (crossing_banks, A),
    "a number in HBM": (number_in_hbm, A),
    "PSUM to HBM": (psum_to_hbm, A),
    "a part of no elements": (empty_part_of_hbm, A),
    "partitions of two numbers, of which neither is 1": (
        computed(nl.add, all_of, lambda t: t[0:2]),
        A,
    ),
    "two sizes": (computed(nl.add, all_of, lambda t: t[:, 0:2]), A),
    "two moved views": (
        computed(
            nl.add,
            lambda t: t.select(1, nisa.register_alloc(0)),
            lambda t: t[:, 0:3].select(2, nisa.register_alloc(0)),
        ),
        A,
    ),
    "two ranks": (computed(nl.add, all_of, lambda t: t[:, 0]), A),
    "a loop that leaves": (lambda a: nl.load(a[nl.affine_range(5)]), A),
    "a loop from the end": (lambda a: nl.load(a[nl.affine_range(-2, 0)]), A),
    "a loop backwards": (lambda a: nl.load(a[nl.affine_range(3, 0, -1)]), A),
    "a transpose by the Vector Engine": (transposed_by_vector, NARROW),
}


def rows_and_columns(a):
    made = out((4, 5))
    nl.store(made, nl.multiply(nl.load(a[:, 0, 0:1]), nl.load(a[0:1, 0])))
    return made


def added_from_hbm(a):
    made = out((4, 5))
    total = nl.ndarray((4, 5), nl.float32)
    nisa.tensor_tensor(total, a[:, 0], nl.load(a[:, 1]), nl.add)
    nisa.tensor_scalar(total, total, nl.add, a[:, 0, 0:1])
    nl.store(made, total)
    return made


def wide_product(a):
    """A moving operand of 2,048 columns, whose product takes four banks."""
    moving = nl.ndarray((4, 2048), nl.float32)
    nisa.memset(moving, 0.0)
    nisa.dma_copy(moving[:, 2043:], a[:, 0])
    product = nl.ndarray((6, 2048), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(product, nl.load(a[:, :, 0]), moving)
    made = out((6, 5))
    nl.store(made, nl.copy(product[:, 2043:]))
    return made


def more_than_psum(a):
    tile = nl.zeros((4, 8192), nl.float32, buffer=nl.psum)
    nl.store(a[:, 0], nl.copy(tile[:, 8000:8005]))
    return a


RELAXED = {
    "partitions that repeat": (rows_and_columns, A[:, 0, :1] * A[:1, 0]),
    "operands in HBM": (added_from_hbm, A[:, 0] + A[:, 1] + A[:, 0, :1]),
    "a product of 2,048 columns": (wide_product, A[:, :, 0].T @ A[:, 0]),
    "a tile of twice PSUM": (
        more_than_psum,
        np.concatenate([A[:, :1] * 0, A[:, 1:]], axis=1),
    ),
}


@every("name", RELAXED)
@every("plain", [False, True])
def test_code_that_only_aws_simulator_accepts(name, plain):
    kernel, expected = RELAXED[name]
    with pytest.raises(NkiError):
        launch(jit(kernel), [A.copy()], plain=plain)
    with pytest.warns(RuleWarning):
        result, again = (
            launch(jit(kernel), [A.copy()], plain=plain, strictness="relaxed")
            for _ in range(2)
        )
    np.testing.assert_allclose(result.outputs[0], expected, rtol=1e-6)
    assert result.notes
    assert [note.rule for note in again.notes] == [note.rule for note in result.notes]


def test_nl_range_is_pythons_with_a_note():
    with pytest.warns(RuleWarning, match="no attribute 'range' that AWS documents"):
        assert nl.range is range


@pytest.mark.filterwarnings("ignore:a tensor was indexed", "ignore:a loop was an index")
@pytest.mark.filterwarnings("ignore:tensor_scalar got data in hbm")
def test_code_that_never_ran_is_rejected_by_both_modes():
    for name, (kernel, array) in REFUSED.items():
        for plain in (False, True):
            with pytest.raises(NkiError) as caught:
                launch(jit(kernel), [array], plain=plain, strictness="relaxed")
            assert caught.value.location.file == __file__, (name, plain)


def test_instructions_do_not_broadcast():
    def kernel(a):
        tile = nl.load(a)
        nisa.tensor_tensor(nl.ndarray(a.shape, a.dtype), tile, tile[:, 0:1], nl.add)

    for plain in (False, True):
        with pytest.raises(ShapeError):
            launch(jit(kernel), [A], plain=plain)


@pytest.mark.filterwarnings("ignore:a float as nisa.memset")
def test_a_number_beyond_64_bits_saturates():
    def kernel():
        tile = nl.ndarray((1, 3), nl.uint32)
        made = out((1, 3), nl.uint32)
        for column, value in enumerate((1e40, 2**70, -(2**70))):
            nisa.memset(tile[:, column : column + 1], value)
        nl.store(made, tile)
        return made

    for plain in (False, True):
        assert launch(jit(kernel), plain=plain).outputs[0].tolist() == [
            [2**32 - 1] * 2 + [0]
        ]


def test_a_loop_is_like_pythons_range():
    def kernel(a):
        loop = nl.affine_range(1, 8, 3)
        assert (len(loop), loop[-1], list(reversed(loop))) == (3, 7, [7, 4, 1])
        assert list(loop) == list(loop) == [1, 4, 7]
        nl.store(a, nl.load(a))

    result = launch(jit(kernel), [FLAT.copy()])
    assert [len(event.loops) for event in result.trace.events] == [0, 0]


def test_unread_registers_are_read_even_with_a_reduce_op():
    """The page's own meaning: the last call of a chain reads the sum of those before it."""

    def kernel(a):
        tile = nl.load(a)
        total = nl.ndarray((4, 1), nl.float32)
        copied = nl.ndarray(tile.shape, tile.dtype)
        command = nisa.reduce_cmd.reset_reduce
        for half in range(2):
            part = tile[:, 15 * half : 15 * half + 15]
            nisa.activation(
                copied[:, 0:15], nl.copy, part, reduce_op=nl.add, reduce_cmd=command
            )
            command = nisa.reduce_cmd.reduce
        nisa.activation(copied, nl.copy, tile, reduce_op=nl.add, reduce_res=total)
        made = out((4, 1))
        nisa.dma_copy(made, total)
        return made

    for plain in (False, True):
        result = launch(jit(kernel), [WHOLE], plain=plain)
        assert result.notes == ()
        np.testing.assert_array_equal(
            result.outputs[0], WHOLE.sum(axis=1, keepdims=True)
        )
