"""Misuse that AWS's pages of the current dialect name gives one clear error, with the line.

In the order of those pages at v2.32.0: registers, `NkiTensor` (language guide, access patterns),
memories, functions (`nki.language`), instructions (`nki.isa`). Here is what no other test has.
"""

import warnings

import numpy as np
import pytest

from difftest.simulator import NkiError, launch
from difftest.simulator.entry.nki_kernel import simulate
from difftest.simulator.frontend.classic import language as classic
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import stored, tile

PSUM = nl.psum
HWDGE = nisa.dge_mode.hwdge


def hbm(*shape):
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


def offsets(count=1, columns=1):
    return nl.zeros((count, columns), nl.int32)


def register(value=0):
    return nisa.register_alloc(value)


def loop_in_no_reorder():
    with nl.no_reorder():
        nl.fori_loop(0, 2, lambda i: None)


def wide(count, buffer=nl.sbuf):
    return tile((4, count), buffer=buffer)


MISUSES = {
    "a row of a register": (
        lambda: nl.load(hbm(4, 8).ap([[8, 1], [1, 8]], scalar_offset=register(7))),
        "an offset stays inside its tensor\n  received: offset 7 (element 0 of <register 0>) into",
    ),
    "a row beyond the last that fits": (
        lambda: nl.load(hbm(16, 8).ap([[8, 2], [1, 8]], scalar_offset=register(15))),
        "\n  limit:    0 to 14\n",
    ),
    "a row before the first that fits": (
        lambda: nl.load(
            hbm(16, 8).ap([[8, 2], [1, 8]], 16, scalar_offset=register(-3))
        ),
        "\n  limit:    0 to 12\n",
    ),
    "a pattern that fits at no offset": (
        lambda: nl.load(hbm(4, 8).ap([[8, 8], [1, 8]], scalar_offset=register(0))),
        "\n  limit:    no offset fits\n",
    ),
    "an index before the first": (
        lambda: tile((4, 8))[0, -9],
        "\n  limit:    -8 to 7\n",
    ),
    "None as an index": (
        lambda: tile((4, 1))[:, None],
        "remedy:   insert a dimension with tensor.expand_dim(1)",
    ),
    "a tile in place": (
        lambda: tile((4, 8)).__iadd__(tile((4, 8))),
        "remedy:   write nisa.tensor_tensor(tile, tile, other, nl.add), or nisa.tensor_scalar(",
    ),
    "pow with a modulus": (lambda: pow(tile((4, 8)), 2, 5), "in place of nl.power"),
    **{
        f"{name} as classic NKI has it": (
            call,
            f"and it returns no tensor as classic NKI does: dst = nl.ndarray(shape, dtype, "
            f"buffer=nl.{buffer}), then nisa.{name}(dst, ...)",
        )
        for name, call, buffer in (
            ("nc_matmul", lambda: nisa.nc_matmul(tile((4, 8)), tile((4, 8))), "psum"),
            ("nc_transpose", lambda: nisa.nc_transpose(tile((4, 8))), "psum"),
            ("tensor_copy", lambda: nisa.tensor_copy(tile((4, 8))), "sbuf"),
            (
                "activation",
                lambda: nisa.activation(nl.exp, tile((4, 8)), scale=2.0),
                "sbuf",
            ),
            ("reciprocal", lambda: nisa.reciprocal(data=tile((4, 8))), "sbuf"),
            (
                "tensor_scalar",
                lambda: nisa.tensor_scalar(tile((4, 8)), nl.add, 1.0, mask=None),
                "sbuf",
            ),
            ("iota", lambda: nisa.iota([[1, 8]]), "sbuf"),
        )
    },
    "memset of a shape": (
        lambda: nisa.memset((4, 8), 0.0),
        "remedy:   make it first, with nl.nd",
    ),
    # NkiTensor: indexing and views
    "slice with a step of 0": (
        lambda: wide(8).slice(1, 0, 4, 0),
        "a slice has the step 0",
    ),
    "select of no dimension": (lambda: wide(8).select(2, 0), "dimension 2 of 2"),
    "vector_select by two columns": (
        lambda: hbm(4, 8).vector_select(0, offsets(4, 2)),
        "2 offsets in each partition",
    ),
    "permute by half the dimensions": (
        lambda: tile((4, 8, 2)).permute((0, 1, 1)),
        "(0, 1, 1)",
    ),
    "flatten_dims of a slice": (
        lambda: tile((4, 8, 4))[:, :, 0:2].flatten_dims(1, 2),
        "contiguous",
    ),
    # ap
    "a dynamic offset along the partitions": (
        lambda: wide(8).ap([[8, 2], [1, 8]], scalar_offset=offsets()),
        "along the partitions of a tensor on chip by scalar_offset",
    ),
    # memories
    "a tensor without a dtype": (lambda: nl.ndarray((4, 8)), "'dtype'"),
    # functions of nki.language
    "a sum of an inner axis": (
        lambda: nl.sum(tile((4, 8, 2)), 1),
        "the last consecutive axes",
    ),
    "nl.store of PSUM": (
        lambda: nl.store(hbm(4, 8), tile((4, 8), buffer=PSUM)),
        "value in psum",
    ),
    "device_print of PSUM": (
        lambda: nl.device_print("a", wide(8, PSUM)),
        "tensor in psum",
    ),
    "two seeds": (
        lambda: nl.random_seed(tile((2, 1), nl.int32)),
        "a tensor of 2 elements",
    ),
    "a number assigned to HBM": (lambda: hbm(4, 8).__setitem__(..., 2.0), "float 2.0"),
    "no dimensions to permute": (
        lambda: wide(8).permute(0),
        "dims (0,) for 2 dimensions",
    ),
    "a number for names": (
        lambda: wide(8).rearrange(16, ("a", "b")),
        "not made of names",
    ),
    "scales in a tensor": (
        lambda: nisa.dma_compute(hbm(4, 8), [wide(8)], nl.add, scales=wide(8)),
        "a NkiTensor as scales",
    ),
    "scales in a list of tensors": (
        lambda: nisa.dma_compute(hbm(4, 8), [wide(8)], nl.add, scales=[wide(8)]),
        "a list as scales",
    ),
    "more than NumPy can name": (
        lambda: hbm(2**62),
        "fits the memory of this computer",
    ),
    # instructions
    "tensor_scalar on the GpSimd Engine": (
        lambda: nisa.tensor_scalar(
            wide(8), wide(8), nl.add, 1.0, engine=nisa.engine.gpsimd
        ),
        "for rsqrt only",
    ),
    "an operand of a unary operator": (
        lambda: nisa.tensor_scalar(
            wide(8), wide(8), nl.add, 1.0, op1=nl.abs, operand1=2.0
        ),
        "None or 0 as operand1",
    ),
    "max8 of four dimensions": (
        lambda: nisa.max8(wide(8), tile((4, 2, 2, 8))),
        "in up to 3 dimensions",
    ),
    "max8 into three": (
        lambda: nisa.max8(tile((4, 2, 4)), wide(8)),
        "dst is [partitions, 8]",
    ),
    "a pattern that is too long": (
        lambda: nisa.iota(tile((4, 15), nl.int32), [[1, 16]]),
        "1 dimensions and 16 elements",
    ),
    "descriptors from the Vector Engine's queue": (
        lambda: nisa.dma_copy(
            wide(8), wide(8), dge_mode=HWDGE, engine=nisa.engine.vector
        ),
        "nisa.engine.sync, nisa.engine.scalar",
    ),
    "more sources than a DMA adds": (
        lambda: nisa.dma_compute(wide(8), [wide(8)] * 17, nl.add),
        "list of 17 as srcs",
    ),
    # loops, cores
    "a loop inside no_reorder": (loop_in_no_reorder, "inside nl.no_reorder"),
    "a body that returns": (lambda: nl.fori_loop(0, 4, lambda i: 3), "got a int"),
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


FLAGSHIPS = {
    "a register's value was used: range() or an index": lambda: wide(8)[
        :, register() : 4
    ],
    "a register's value was used: if, while, and, or, not": lambda: (
        1 if register() else 2
    ),
    "a register's value was used: arithmetic": lambda: nl.fori_loop(
        0, 2, lambda i: i * 2
    ),
    "a register's value was used: a comparison": lambda: register() == 3,
    "a slice has the step -1": lambda: wide(8)[:, ::-1],
    "an access left its tensor: index 8 of 8 elements": lambda: wide(8)[:, 8],
    "an access left its tensor: elements 4 to 11 of 8 elements": lambda: wide(8)[
        :, 4:12
    ],
    "2 dimensions were indexed by [0, 0, 0]": lambda: wide(8)[0, 0, 0],
    "a tensor was indexed with a float": lambda: wide(8)[:, 1.5],
    "permute was to move dimension 1 to the partitions": lambda: wide(8).permute(
        (1, 0)
    ),
    "reshape was to make 32 elements 36": lambda: wide(8).reshape((4, 9)),
    "reshape would move or resize the partition dimension": lambda: wide(8).reshape(
        (8, 4)
    ),
    "an access pattern left its tensor: elements 0 to 8 of a partition": (
        lambda: nl.copy(wide(8).ap([[8, 4], [1, 9]]))
    ),
    "an access pattern on chip has the first stride 16, not 8": (
        lambda: wide(8).ap([[16, 2], [1, 8]])
    ),
    "nl.ndarray was to make a tile of 129 partitions": lambda: nl.ndarray(
        (129, 2), nl.float32
    ),
    "a tile has 400000 bytes a partition in sbuf": lambda: nl.ndarray(
        (4, 100000), nl.float32
    ),
    "nl.add got tiles of different sizes": lambda: nl.add(wide(8), tile((4, 2))),
    "a tile was used as a NumPy array or a number": lambda: np.sum(wide(8)),
    "a kernel called a function of the other dialect": lambda: classic.zeros(
        (4, 8), np.float32
    ),
    "tensor_copy's dst has the shape [5, 8]": lambda: nisa.tensor_copy(
        tile((5, 8)), wide(8)
    ),
    "tensor_copy got dst in hbm": lambda: nisa.tensor_copy(hbm(4, 8), wide(8)),
    "dma_copy got src and dst of 36 and 32 elements": lambda: nisa.dma_copy(
        hbm(4, 8), wide(9)
    ),
    "nc_matmul got 4 and 8 partitions": (
        lambda: nisa.nc_matmul(tile((8, 8), buffer=PSUM), wide(8), tile((8, 8)))
    ),
    "nc_matmul's moving operand has 513 elements a partition": (
        lambda: nisa.nc_matmul(tile((8, 512), buffer=PSUM), wide(8), wide(513))
    ),
    "nl.fori_loop got step=0": lambda: nl.fori_loop(0, 4, lambda i: None, step=0),
}
"""The headlines of the most common errors of the current dialect, whole."""


@every("headline", FLAGSHIPS)
def test_the_first_line_of_an_error_says_what_happened(headline):
    with pytest.raises(NkiError) as caught:
        simulate(lambda x: FLAGSHIPS[headline]())(np.ones((2, 2), np.float32))
    assert str(caught.value).splitlines()[0] == headline
    assert caught.value.location.file == __file__


def test_a_kernel_returns_tensors_in_hbm():
    for returned, text in (
        (lambda: tile((2, 2)), "a tile that is on chip"),
        (lambda: 5, "int 5"),
    ):
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
        left = nl.load(count)
        total = nl.zeros((1, 1), nl.float32)
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
