"""`NkiTensor`: attributes, indexing and its rank rules, views (NKI Language Guide, v2.32.0)."""

import operator
import re

import numpy as np
import pytest

from difftest.simulator import (
    KernelError,
    NkiError,
    OutOfBoundsError,
    ShapeError,
    launch,
)
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.tensor import TruthWarning
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import (
    on_nki_tiles,
    raised,
    stored,
    values,
)


def shapes(compute, *, buffer=nl.sbuf, shape=(64, 64, 64)):
    """Return the result of `compute` for an unwritten tensor of this shape."""
    seen = []

    def body(x):
        seen.append(compute(nl.ndarray(shape, nl.float32, buffer=buffer, name="t")))
        return x

    on_nki_tiles(body, np.zeros((1, 1), np.float32))
    return seen[0]


@every(
    "key, shape",
    [
        ((0, 0, 10), (1, 1)),
        ((slice(None), 0), (64, 64)),
        ((slice(None), 0, 10), (64, 1)),
        ((slice(None), slice(None), slice(None, None, 2)), (64, 64, 32)),
        (0, (1, 64, 64)),
        ((..., 0), (64, 64)),
        ((..., -1, slice(0, 3)), (64, 3)),
        (nl.ds(3, 5), (5, 64, 64)),
        ((slice(-4, None), slice(None, -60)), (4, 4, 64)),
        ((slice(0, 3), slice(-60, 62)), (3, 58, 64)),
        (..., (64, 64, 64)),
    ],
)
def test_indexing_on_chip_keeps_the_partition_dimension(key, shape):
    assert shapes(lambda t: t[key].shape) == shape


@every(
    "key, shape",
    [((0, 0, 10), (1,)), ((slice(None), 0), (64, 64)), (0, (64, 64)), ((0, 0), (64,))],
)
def test_indexing_in_hbm_drops_dimensions_but_the_last(key, shape):
    assert shapes(lambda t: t[key].shape, buffer=nl.hbm) == shape


def test_the_attributes_of_a_view_are_in_elements_of_its_storage():
    def look(t):
        part = t[8:24, 2:4, ::4]
        assert part.strides == (4096, 64, 4)
        assert part.offset == 8 * 4096 + 2 * 64
        assert part.ndim == 3
        assert part.size == 16 * 2 * 16
        assert part.get_pattern() == [[4096, 16], [64, 2], [4, 16]]
        assert not part.is_contiguous()
        assert t[0:4].is_contiguous()
        assert not t.is_indirect()
        assert t.dtype == nl.float32
        assert t.buffer is nl.sbuf
        assert t.name == "t"
        return t.shape == (64, 64, 64)

    assert shapes(look)


@every(
    "key, kind, text",
    [
        (64, OutOfBoundsError, "index 64 at dimension 0"),
        ((0, slice(60, 65)), OutOfBoundsError, "elements 60 to 64 at dimension 1"),
        ((0, slice(5, 5)), ShapeError, "at least one element"),
        (slice(None, None, -1), KernelError, "step is positive"),
        ((0, 0, 0, 0), ShapeError, "no more indices than dimensions"),
        ((..., ...), ShapeError, "at most one '...'"),
        (None, KernelError, r"expand_dim"),
        (1.5, KernelError, "integers, slices, nl.ds"),
    ],
)
def test_a_wrong_index_is_an_error(key, kind, text):
    with pytest.raises(kind) as error:
        shapes(lambda t: t[key])
    assert text in str(error.value)


@every(
    "key, shape",
    [
        (nl.ds(4, 0), (0, 2)),
        (slice(4, 4), (0, 2)),
        ((slice(None), slice(2, 2)), (4, 0)),
        ((1, nl.ds(0, 0)), (0,)),
    ],
)
@every("plain", [False, True])
def test_a_view_of_no_elements_in_hbm_may_be_made(key, shape, plain):
    """nki-library 2.29 makes one on a core that gets no rows, and then does nothing with it."""
    seen = []

    @jit
    def kernel(x):
        seen.append(x[key])
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out

    result = launch(kernel, [values(4, 2)], plain=plain)
    np.testing.assert_array_equal(result.outputs[0], values(4, 2))
    assert (seen[0].shape, seen[0].ndim, seen[0].size) == (shape, len(shape), 0)


@every(
    "use",
    [
        lambda part, tile, x: nisa.dma_copy(tile[0:1], part),
        lambda part, tile, x: nisa.dma_copy(part, tile[0:1]),
        lambda part, tile, x: nisa.memset(part, 0.0),
        lambda part, tile, x: nisa.tensor_tensor(tile, part, tile, op=nl.add),
        lambda part, tile, x: nl.load(part),
        lambda part, tile, x: nl.store(part, tile),
        lambda part, tile, x: part.reshape((1, 2)),
        lambda part, tile, x: part.ap([[1, 1]]),
        lambda part, tile, x: part[0:1],
        lambda part, tile, x: part.__setitem__(0, tile),
        lambda part, tile, x: x[5:5],
        lambda part, tile, x: x[3:2],
        lambda part, tile, x: x[nl.ds(2, -1)],
        lambda part, tile, x: tile[0:0],
    ],
)
@every("plain", [False, True])
def test_a_view_of_no_elements_is_not_used(use, plain):
    @jit
    def kernel(x):
        tile = nl.zeros((4, 2), x.dtype, buffer=nl.sbuf)
        use(x[2:2], tile, x)
        return x

    with pytest.raises(NkiError):
        launch(kernel, [values(4, 2)], plain=plain)


def test_the_error_for_a_view_of_no_elements_says_where_it_was_made():
    @jit
    def kernel(x):
        part = x[2:2]
        tile = nl.zeros((4, 2), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, part)
        return x

    with pytest.raises(KernelError) as error:
        launch(kernel, [values(4, 2)])
    assert re.search(
        r"\[0, 2\] without elements, made at test_tensor.py:\d+", str(error.value)
    )
    with pytest.raises(KernelError, match="returned"):
        launch(jit(lambda x: x[2:2]), [values(4, 2)])


def test_a_tensor_as_an_index_names_the_dynamic_views():
    text = raised(KernelError, lambda x: x[x], values(2, 2))
    assert "vector_select" in text
    assert "scalar_offset" in text


def placed(array, compute):
    """The elements that a view of `array` in SBUF names, and NumPy's view."""
    return on_nki_tiles(lambda x: compute(x), array)


DATA = np.arange(4 * 24, dtype=np.float32).reshape(4, 2, 3, 4)

VIEWS = {
    "slice": (lambda t: t.slice(2, 1, 3), lambda a: a[:, :, 1:3]),
    "slice with a step": (
        lambda t: t.slice(dim=3, start=0, end=4, step=2),
        lambda a: a[..., ::2],
    ),
    "select": (lambda t: t.select(1, 1), lambda a: a[:, 1]),
    "select from the end": (lambda t: t.select(-1, 2), lambda a: a[..., 2]),
    "permute": (lambda t: t.permute((0, 3, 1, 2)), lambda a: a.transpose(0, 3, 1, 2)),
    "broadcast": (
        lambda t: t[:, 0:1].broadcast(1, 5),
        lambda a: np.broadcast_to(a[:, 0:1], (4, 5, 3, 4)),
    ),
    "expand": (lambda t: t.expand_dim(2), lambda a: a[:, :, None]),
    "squeeze": (lambda t: t[:, 0:1].squeeze_dim(1), lambda a: a[:, 0]),
    "split": (lambda t: t.reshape_dim(3, (2, -1)), lambda a: a.reshape(4, 2, 3, 2, 2)),
    "trivial split of partitions": (lambda t: t.reshape_dim(0, (4,)), lambda a: a),
    "flatten": (lambda t: t.flatten_dims(1, 2), lambda a: a.reshape(4, 6, 4)),
    "flatten a slice": (
        lambda t: t[:, :, :, 1:2].flatten_dims(1, 2),
        lambda a: a[..., 1:2].reshape(4, 6, 1),
    ),
    "reshape": (lambda t: t.reshape((4, 4, 6)), lambda a: a.reshape(4, 4, 6)),
    "reshape with -1": (
        lambda t: t.reshape((4, -1, 12)),
        lambda a: a.reshape(4, 2, 12),
    ),
    "reshape a permuted": (
        lambda t: t.permute((0, 2, 3, 1)).reshape((4, 12, 2)),
        lambda a: a.transpose(0, 2, 3, 1).reshape(4, 12, 2),
    ),
    "reshape with ones": (
        lambda t: t.reshape((4, 1, 6, 1, 4)),
        lambda a: a.reshape(4, 1, 6, 1, 4),
    ),
    "rearrange": (
        lambda t: t.rearrange(
            ("b", "x", ("h", "k"), "w"), ("b", "w", ("x", "h"), "k"), {"k": 1}
        ),
        lambda a: a.transpose(0, 3, 1, 2).reshape(4, 4, 6, 1),
    ),
    "chained": (lambda t: t[1, ...][:, 0:1][..., 0:2], lambda a: a[1:2, 0:1, :, 0:2]),
    "view of the same dtype": (lambda t: t.view(nl.float32), lambda a: a),
}


@every("name", VIEWS)
def test_a_view_names_what_numpys_does(name):
    view, expected = VIEWS[name]
    result = placed(DATA, view)
    np.testing.assert_array_equal(result, expected(DATA))
    assert result.shape == expected(DATA).shape


@every(
    "view, kind, text",
    [
        (lambda t: t.permute((1, 0, 2, 3)), ShapeError, "partition dimension first"),
        (lambda t: t.permute((0, 1, 1, 2)), ShapeError, "each dimension once"),
        (lambda t: t.broadcast(1, 4), ShapeError, "size 1"),
        (lambda t: t[0].broadcast(0, 4), ShapeError, "free dimension"),
        (lambda t: t.expand_dim(0), ShapeError, "partition dimension"),
        (lambda t: t.squeeze_dim(1), ShapeError, "size 1"),
        (lambda t: t.reshape_dim(0, (2, 2)), ShapeError, "partition dimension"),
        (
            lambda t: t.reshape_dim(3, (3, -1)),
            ShapeError,
            "split 4 elements into [3, 1]",
        ),
        (lambda t: t.flatten_dims(0, 1), ShapeError, "free dimension"),
        (
            lambda t: t.permute((0, 2, 1, 3)).flatten_dims(1, 2),
            ShapeError,
            "contiguous",
        ),
        (lambda t: t.reshape((2, 48)), ShapeError, "dimension 0 stays 4"),
        (lambda t: t.reshape((4, 25)), ShapeError, "96 to 100 elements"),
        (
            lambda t: t.permute((0, 2, 1, 3)).reshape((4, 24)),
            ShapeError,
            "not adjacent",
        ),
        (lambda t: t.slice(1, 1, 1), ShapeError, "start < end"),
        (lambda t: t.slice(1, 0, 3), OutOfBoundsError, "elements 0 to 2"),
        (lambda t: t.select(1, 2), OutOfBoundsError, "index 2"),
        (lambda t: t.rearrange(("a", "b"), ("a", "b")), ShapeError, "each dimension"),
        (
            lambda t: t.view(nl.int8)[..., 0:3].view(nl.int32),
            ShapeError,
            "scales the last",
        ),
        (lambda t: t.indirect(t), KernelError, "NeuronCore-v4"),
        (
            lambda t: t.slice(1, 0),
            TypeError,
            "missing 1 required positional argument: 'end'",
        ),
    ],
)
def test_a_wrong_view_is_an_error(view, kind, text):
    assert text in raised(kind, view, DATA)


def test_an_assignment_copies():
    def fill(x):
        tile = nl.ndarray((4, 24), nl.float32)
        tile[...] = x.reshape((4, 24))
        tile[:, 0:2] = 5.0
        return tile

    expected = DATA.reshape(4, 24).copy()
    expected[:, :2] = 5
    np.testing.assert_array_equal(placed(DATA, fill), expected)


@every(
    "compare, truth",
    [
        (lambda x: nl.equal(x, nl.full((4, 2, 3, 4), 3.0, nl.float32)), False),
        (lambda x: nl.equal(x, nl.copy(x)), True),
        (lambda x: nl.equal(x, nl.copy(x))[0:1, 0], True),
        (lambda x: nl.not_equal(x, 5.0), False),
        (lambda x: nl.less(x, 1000.0), True),
        (lambda x: nl.less_equal(x, 0.0), False),
        (lambda x: nl.greater(x, -1.0), True),
        (lambda x: nl.greater_equal(x, 1.0), False),
    ],
)
def test_a_comparison_has_the_truth_value_that_awss_examples_assert(compare, truth):
    def compute(x):
        with pytest.warns(TruthWarning, match="decides in Python"):
            assert bool(compare(x)) is truth
        return x

    on_nki_tiles(compute, DATA)


@every(
    "use, function",
    [
        (lambda x: x + x, "nl.add"),
        (lambda x: 1.0 - x, "nl.subtract"),
        (lambda x: operator.imul(x, 2.0), "nl.multiply"),
        (lambda x: -x, "nl.negative"),
        (lambda x: x < 1.0, "nl.less"),
        (lambda x: x @ x, "nl.matmul"),
    ],
)
def test_operators_of_python_name_the_function(use, function):
    assert function in raised(KernelError, use, DATA)


def test_a_tensor_is_equal_to_itself_alone():
    """So that kernels may write `x == None`, as the parser of 0.3 wanted it."""

    def compute(x):
        assert x == x
        assert x != None  # noqa: E711
        assert (x == 3) is False
        return x

    on_nki_tiles(compute, DATA)


def test_a_tensor_is_true_as_an_argument_that_was_given():
    """Kernels of aws-neuron/nki-library ask so: `if params.expert_index:`."""

    def kernel(a, bias=None):
        tile = nl.load(a)
        if bias:
            nisa.tensor_tensor(tile, tile, nl.load(bias), nl.add)
        return stored(tile)

    zeros = np.zeros((4, 8), np.float32)
    with pytest.warns(
        TruthWarning, match="is true as a condition, whatever its values are"
    ) as seen:
        launch(kernel, (zeros, zeros))
    assert "if bias:" in str(seen[0].message)
    launch(kernel, (zeros,))
