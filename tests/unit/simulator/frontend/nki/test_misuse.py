"""Each misuse that AWS's pages of today's dialect name gives one clear error, with the line.

In the order of those pages at v2.32.0: kernels, registers, `NkiTensor` (language guide, access
patterns), memories, functions (`nki.language`), instructions (`nki.isa`), loops. Misuse of single
instructions is in `test_bad_input.py`.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from difftest.simulator import NkiError, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.kernel import simulate
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import stored, tile

PSUM = nl.psum


def hbm(*shape):
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


def offsets(count=1, columns=1):
    return nl.zeros((count, columns), nl.int32)


def register(value=0):
    return nisa.register_alloc(value)


def loop_in_no_reorder():
    with nl.no_reorder():
        nl.fori_loop(0, 2, lambda i: None)


def wide(count):
    return tile((4, count))


MISUSES = {
    # registers in Python, whose values it does not know
    "a register as an index": (lambda: wide(8)[register()], "an index"),
    "a register in a slice": (lambda: wide(8)[:, register() : 4], "an index"),
    "a register as a condition": (lambda: 1 if register() else 2, "if, while, and, or, not"),
    "a register compared": (lambda: register() == 3, "a comparison"),
    "arithmetic of a register": (lambda: 4 * register() + 1, "arithmetic"),
    "a loop's variable in arithmetic": (
        lambda: nl.fori_loop(0, 2, lambda i: wide(8)[:, i * 2 : 8]),
        "arithmetic",
    ),
    # NkiTensor: indexing and views
    "a negative step": (lambda: wide(8)[:, ::-1], "a slice has the step -1"),
    "an index too far": (lambda: wide(8)[:, 8], "index 8 of 8 elements"),
    "a slice too far": (lambda: wide(8)[:, 4:12], "elements 4 to 11 of 8 elements"),
    "too many indices": (lambda: wide(8)[0, 0, 0], "2 dimensions were indexed by [0, 0, 0]"),
    "a float as an index": (lambda: wide(8)[:, 1.5], "indexed with a float"),
    "an array as an index": (lambda: wide(8)[:, np.arange(3)], "no integer"),
    "slice beyond the end": (lambda: wide(8).slice(1, 0, 9), "elements 0 to 8 of 8 elements"),
    "slice of nothing": (lambda: wide(8).slice(1, 3, 3), "slice was to cut 3 to 3"),
    "slice with a step of 0": (lambda: wide(8).slice(1, 0, 4, 0), "a slice has the step 0"),
    "select of no dimension": (lambda: wide(8).select(2, 0), "dimension 2 of 2"),
    "dynamic select of the partitions": (
        lambda: wide(8).select(0, offsets()),
        "select with an index held in SBUF was asked of dimension 0 of 2",
    ),
    "two dynamic selects": (
        lambda: hbm(4, 8, 2).select(0, offsets()).select(0, offsets()),
        "already indirect",
    ),
    "a select by floats": (lambda: hbm(4, 8).select(0, tile((1, 1))), "holds float32"),
    "vector_select on chip": (
        lambda: wide(8).vector_select(0, offsets(4)),
        "a vector of offsets was to index a tensor in sbuf",
    ),
    "vector_select of dimension 1": (
        lambda: hbm(4, 8).vector_select(1, offsets(4)),
        "along dimension 1",
    ),
    "vector_select by two columns": (
        lambda: hbm(4, 8).vector_select(0, offsets(4, 2)),
        "2 offsets in each partition",
    ),
    "permute of the partitions": (lambda: wide(8).permute((1, 0)), "permute keeps the partition"),
    "permute by half the dimensions": (lambda: tile((4, 8, 2)).permute((0, 1, 1)), "(0, 1, 1)"),
    "broadcast of 8 elements": (lambda: wide(8).broadcast(1, 16), "a dimension of 8 to 16"),
    "broadcast of the partitions": (lambda: tile((1, 8)).broadcast(0, 16), "dimension 0 of 2"),
    "expand_dim before the partitions": (lambda: wide(8).expand_dim(0), "a free dimension"),
    "squeeze_dim of the partitions": (lambda: tile((1, 8, 2)).squeeze_dim(0), "a free dimension"),
    "squeeze_dim of two elements": (lambda: tile((1, 8, 2)).squeeze_dim(2), "a dimension of 2"),
    "reshape_dim into another number": (lambda: wide(8).reshape_dim(1, (3, 3)), "8 elements"),
    "reshape_dim of the partitions": (lambda: wide(8).reshape_dim(0, (2, 2)), "the partition"),
    "flatten_dims from the partitions": (lambda: tile((4, 8, 2)).flatten_dims(0, 1), "dimension 0"),
    "flatten_dims of a slice": (
        lambda: tile((4, 8, 4))[:, :, 0:2].flatten_dims(1, 2),
        "contiguous",
    ),
    "reshape into another number": (lambda: wide(8).reshape((4, 9)), "32 elements 36"),
    "reshape of the partitions": (lambda: wide(8).reshape((8, 4)), "dimension 0 stays 4"),
    "reshape of a slice": (lambda: tile((4, 8, 4))[:, :, 0:2].reshape((4, 16)), "not adjacent"),
    "view of every other element": (lambda: wide(8)[:, ::2].view(nl.uint8), "adjacent"),
    "view that does not fill": (lambda: tile((4, 6), nl.uint8).view(nl.float32), "adjacent"),
    "view after a dynamic select": (
        lambda: hbm(4, 8).select(0, offsets()).view(nl.uint8),
        "already indirect",
    ),
    "rearrange by 3 of 8": (
        lambda: wide(8).rearrange(("p", ("a", "b")), ("p", "b", "a"), {"a": 3}),
        "8 elements into [3, 2]",
    ),
    # ap
    "a partition step that is not the tensor's": (
        lambda: wide(8).ap([[16, 2], [1, 8]]),
        "has the first stride 16, not 8",
    ),
    "ap of 129 partitions": (
        lambda: nisa.reciprocal(tile((128, 8)), tile((128, 8)).ap([[8, 129], [1, 8]])),
        "129",
    ),
    "ap beyond a partition": (lambda: nl.copy(wide(8).ap([[8, 4], [1, 9]])), "left its tensor"),
    "ap beyond a tensor in HBM": (
        lambda: nl.load(hbm(4, 8).ap([[8, 4], [1, 9]])),
        "left its tensor",
    ),
    "ap before a tensor": (
        lambda: nl.load(hbm(4, 8).ap([[8, 4], [1, 8]], offset=-1)),
        "left its tensor",
    ),
    "ap's offset on a sliced view": (
        lambda: wide(8)[:, 2:].ap([[8, 4], [1, 2]], offset=1),
        "ap(offset=1) was called on a sliced view",
    ),
    "ap with two dynamic offsets": (
        lambda: hbm(4, 8).ap([[8, 4], [1, 8]], scalar_offset=offsets(), vector_offset=offsets(4)),
        "both scalar_offset and vector_offset",
    ),
    "ap with a vector along dimension 1": (
        lambda: hbm(4, 8).ap([[8, 4], [1, 8]], vector_offset=offsets(4), indirect_dim=1),
        "vector_offset with indirect_dim=1",
    ),
    "ap with a vector on chip": (
        lambda: wide(8).ap([[8, 4], [1, 8]], vector_offset=offsets(4)),
        "a tensor in sbuf",
    ),
    "a dynamic offset along the partitions": (
        lambda: wide(8).ap([[8, 2], [1, 8]], scalar_offset=offsets()),
        "along the partitions of a tensor on chip by scalar_offset",
    ),
    "ap with four scalar offsets": (
        lambda: hbm(4, 8).ap([[8, 4], [1, 8]], scalar_offset=offsets(4)),
        "a scalar offset has 4 elements",
    ),
    "ap along no dimension": (
        lambda: hbm(4, 8).ap([[8, 1], [1, 8]], scalar_offset=offsets(), indirect_dim=2),
        "indirect_dim=2 for a tensor of 2 dimensions",
    ),
    "ap of numbers": (lambda: wide(8).ap([8, 4], [1, 8]), "not a list of pairs"),
    # memories
    "129 partitions": (
        lambda: nl.ndarray((129, 2), nl.float32),
        "partition dimension 129 exceeds maximum 128",
    ),
    "an address within a bank of PSUM": (
        lambda: nl.ndarray((4, 8), nl.float32, buffer=PSUM, address=(0, 100)),
        "address (0, 100)",
    ),
    "an address beyond SBUF": (
        lambda: nl.ndarray((4, 8), nl.float32, address=(0, 10**7)),
        "a tensor with an address leaves sbuf",
    ),
    "more than a partition of SBUF": (
        lambda: nl.ndarray((4, 100000), nl.float32),
        "400000 bytes a partition in sbuf",
    ),
    "more than a partition of PSUM": (
        lambda: nl.ndarray((4, 5000), nl.float32, buffer=PSUM),
        "20000 bytes a partition in psum",
    ),
    "a tensor without a dtype": (lambda: nl.ndarray((4, 8)), "'dtype'"),
    # functions of nki.language
    "a sum of an inner axis": (lambda: nl.sum(tile((4, 8, 2)), 1), "the last consecutive axes"),
    "columns that should broadcast": (lambda: nl.add(wide(8), tile((4, 2))), "different sizes"),
    "nl.store of PSUM": (lambda: nl.store(hbm(4, 8), tile((4, 8), buffer=PSUM)), "value in psum"),
    "two seeds": (lambda: nl.random_seed(tile((2, 1), nl.int32)), "a tensor of 2 elements"),
    "a NumPy function of a tensor": (lambda: np.asarray(wide(8)), "used as a NumPy array"),
    "a number assigned to HBM": (lambda: hbm(4, 8).__setitem__(..., 2.0), "float 2.0"),
    "no dimensions to permute": (lambda: wide(8).permute(0), "dims (0,) for 2 dimensions"),
    "a number for names": (lambda: wide(8).rearrange(16, ("a", "b")), "not made of names"),
    "sizes without names": (lambda: wide(8).rearrange("ab", "ba", [4]), "fixed_sizes=[4]"),
    "scales in a tensor": (
        lambda: nisa.dma_compute(hbm(4, 8), [wide(8)], nl.add, scales=wide(8)),
        "a NkiTensor as scales",
    ),
    "scales in a list of tensors": (
        lambda: nisa.dma_compute(hbm(4, 8), [wide(8)], nl.add, scales=[wide(8)]),
        "a list as scales",
    ),
    "more than this computer has": (
        lambda: nl.ones((2**44,), nl.float32, buffer=nl.hbm),
        "fits the memory of this computer",
    ),
    "more than NumPy can name": (lambda: hbm(2**62), "fits the memory of this computer"),
    # instructions
    "a destination of other partitions": (
        lambda: nisa.tensor_copy(tile((5, 8)), wide(8)),
        "tensor_copy writes dst of shape [4, 8]",
    ),
    "a destination in HBM": (lambda: nisa.tensor_copy(hbm(4, 8), wide(8)), "dst in hbm"),
    "a bit operator of floats": (
        lambda: nisa.tensor_tensor(wide(8), wide(8), wide(8), nl.bitwise_and),
        "bitvec operators work on integers",
    ),
    "an arithmetic operator behind one of bits": (
        lambda: nisa.tensor_scalar(
            *(tile((4, 8), nl.int32), tile((4, 8), nl.int32), nl.bitwise_and, 1, False),
            *(nl.add, 1),
        ),
        "both bitvec or both arithmetic",
    ),
    "tensor_scalar on the GpSimd Engine": (
        lambda: nisa.tensor_scalar(wide(8), wide(8), nl.add, 1.0, engine=nisa.engine.gpsimd),
        "for rsqrt only",
    ),
    "a maximum on the Scalar Engine": (
        lambda: nisa.tensor_scalar(wide(8), wide(8), nl.maximum, 1.0, engine=nisa.engine.scalar),
        "tensor_scalar on the Scalar Engine got maximum",
    ),
    "a tile position without a size": (
        lambda: nisa.nc_matmul(tile((8, 8), buffer=PSUM), wide(8), wide(8), tile_position=(0, 0)),
        "both are set",
    ),
    "a moving operand of 513": (
        lambda: nisa.nc_matmul(tile((8, 512), buffer=PSUM), wide(8), wide(513)),
        "513 elements a partition",
    ),
    "operands of other partitions": (
        lambda: nisa.nc_matmul(tile((8, 8), buffer=PSUM), wide(8), tile((8, 8))),
        "4 and 8 partitions",
    ),
    "bn_stats of 513": (lambda: nisa.bn_stats(wide(6), wide(513)), "513 elements a partition"),
    "max8 of 7": (lambda: nisa.max8(wide(8), wide(7)), "7 elements a partition"),
    "a shuffle mask of 31": (
        lambda: nisa.nc_stream_shuffle(tile((32, 8)), tile((32, 8)), [0] * 31),
        "a shuffle_mask of 31 numbers",
    ),
    "local_gather of 3 elements": (
        lambda: nisa.local_gather(tile((16, 3)), tile((16, 8)), nl.zeros((16, 1), nl.uint16), 3),
        "num_elem_per_idx=3",
    ),
    "sequence_bounds of two partitions": (
        lambda: nisa.sequence_bounds(tile((2, 2, 8)), tile((2, 8))),
        "one partition",
    ),
    "range_select with another false": (
        lambda: nisa.range_select(
            *(wide(8), wide(8), nl.less, nl.less, tile((4, 1)), tile((4, 1))), on_false_value=0.0
        ),
        "on_false_value=0.0",
    ),
    "a predicate of floats": (
        lambda: nisa.tensor_copy_predicated(wide(8), wide(8), wide(8)),
        "predicate of float32",
    ),
    "select_reduce of 32-bit integers": (
        lambda: nisa.select_reduce(
            *(tile((4, 8), nl.int32), tile((4, 8), nl.uint8), tile((4, 8), nl.int32), 0.0)
        ),
        "on_true of int32",
    ),
    "iota of five dimensions": (
        lambda: nisa.iota(tile((4, 8), nl.int32), [[1, 1]] * 4 + [[1, 8]]),
        "a pattern of 5 dimensions",
    ),
    "dma_copy of another number": (lambda: nisa.dma_copy(hbm(4, 8), wide(9)), "36 elements"),
    # loops, cores
    "a loop inside no_reorder": (loop_in_no_reorder, "inside nl.no_reorder"),
    "a step of 0": (lambda: nl.fori_loop(0, 4, lambda i: None, step=0), "step=0"),
    "a body that returns": (lambda: nl.fori_loop(0, 4, lambda i: 3), "returned a int"),
    "a while_loop over an integer": (lambda: nl.while_loop(2, lambda r: r), "a int as init"),
    "a barrier of one core": (
        lambda: nisa.core_barrier(hbm(2, 2), (0, 1)),
        "a program that has no other beside it",
    ),
}


@every("name", MISUSES)
def test_a_misuse_is_one_error_that_has_the_line(name):
    misuse, text = MISUSES[name]
    arguments = np.ones((2, 2), np.float32)

    def kernel(x):
        misuse()
        return stored(nl.load(x))

    with pytest.raises(NkiError) as caught:
        launch(kernel, [arguments])
    assert text in str(caught.value)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert (arguments == 1).all()


def test_a_kernel_returns_tensors_in_hbm():
    for returned, text in ((lambda: tile((2, 2)), "a tile that is on chip"), (lambda: 5, "int 5")):
        with pytest.raises(NkiError, match=text):
            simulate(lambda make=returned: make())()


def test_a_kernel_that_returns_private_hbm_warns():
    def kernel():
        out = nl.ndarray((2, 2), nl.float32, buffer=nl.hbm)
        nisa.dma_copy(out, tile((2, 2)))
        return out

    with pytest.warns(UserWarning, match="not in nl.shared_hbm since NKI 0.3"):
        assert simulate(kernel)().tolist() == [[1, 1]] * 2


def test_no_reorder_may_stand_inside_a_loop_and_around_pythons():
    def kernel():
        total = nl.zeros((1, 1), nl.float32)

        def body(i):
            with nl.no_reorder():
                nisa.tensor_scalar(total, total, nl.add, 1.0)

        nl.fori_loop(0, 3, body)
        with nl.no_reorder():
            for _ in nl.affine_range(2):
                nisa.tensor_scalar(total, total, nl.add, 1.0)
        nl.fori_loop(0, 1, body)
        return stored(total)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert simulate(kernel)().tolist() == [[6]]


def test_while_with_a_register_is_a_loop_that_has_ended():
    """The docs of 0.6 have it, and 0.7 does not: it runs with a warning."""

    def kernel(count):
        left, total = nl.load(count), nl.zeros((1, 1), nl.float32)
        reg = nisa.register_alloc()
        nisa.register_load(reg, left)
        while reg:
            nisa.tensor_scalar(total, total, nl.add, 1.0)
            nisa.tensor_scalar(left, left, nl.subtract, 1.0)
            nisa.register_load(reg, left)
        return stored(total)

    for count in (0, 3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert simulate(kernel)(np.array([[count]], np.int32)).tolist() == [[count]]
        assert "while with a register ended with NKI 0.7: use nl.while_loop" in str(
            caught[0].message
        )
    with pytest.raises(NkiError, match=r"level 0\.7"):
        launch(kernel, [np.array([[1]], np.int32)], level="0.7")
