"""Operations of 32-bit integers are exact, as the stub of `nisa.tensor_tensor` says at v2.32.0."""

import numpy as np

from difftest.simulator import TRN3
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles

BIG = np.array([[2**24 + 1, 2**24, -(2**31), 2**31 - 1, 2**30 + 1, 0, -1, 7]], np.int32)
OTHER = np.array([[2**24, 2**24 + 1, 2**31 - 1, 2**31 - 2, 2**30, 5, 0, 7]], np.int32)


def wide(function):
    return lambda x, y: function(x.astype(np.int64), y.astype(np.int64)).astype(
        np.int32
    )


MEANING = {
    **{name: wide(getattr(np, name)) for name in ("add", "subtract", "multiply")},
    **{
        name: wide(getattr(np, name))
        for name in ("maximum", "minimum", "equal", "not_equal")
    },
    **{name: wide(getattr(np, name)) for name in ("greater", "greater_equal", "less")},
    **{
        name: wide(getattr(np, name))
        for name in ("less_equal", "logical_and", "logical_or")
    },
    **{
        name: wide(getattr(np, name))
        for name in ("logical_xor", "bitwise_and", "bitwise_xor")
    },
    "bitwise_or": wide(np.bitwise_or),
}


@every("name", MEANING)
def test_tensor_tensor_and_the_function_are_exact(name):
    def compute(x, y):
        out = nl.ndarray(x.shape, nl.int32)
        nisa.tensor_tensor(out, x, y, getattr(nl, name))
        return out, getattr(nl, name)(x, y, dtype=nl.int32)

    for result in on_nki_tiles(compute, BIG, OTHER):
        np.testing.assert_array_equal(result, MEANING[name](BIG, OTHER), strict=True)


@every("why", ["the Vector Engine is named", "the result is no 32-bit integer"])
def test_otherwise_integers_go_through_float32(why):
    named = why.startswith("the Vector")

    def compute(x, y):
        out = nl.ndarray(x.shape, nl.int32 if named else nl.uint8)
        engine = nisa.engine.vector if named else nisa.engine.unknown
        nisa.tensor_tensor(out, x, y, nl.equal, engine=engine)
        return out

    assert on_nki_tiles(compute, BIG, OTHER)[0, :2].tolist() == [1, 1]


@every("plain", [False, True])
@every(
    "name, other, expected",
    [
        ("divide", 1, 2**24),
        ("fmod", 2**25, 2**24),
        ("mod", 2**25, 2**24),
        ("power", 1, 2**24),
    ],
)
def test_other_operators_go_through_float32(name, other, expected, plain):
    """The exact result of each is 2**24 + 1, which float32 does not have."""

    def compute(x, y):
        out = nl.ndarray(x.shape, nl.int32)
        nisa.tensor_tensor(out, x, y, getattr(nl, name))
        return out

    x = np.array([[2**24 + 1]], np.int32)
    result = on_nki_tiles(compute, x, np.full_like(x, other), plain=plain)
    assert result.tolist() == [[expected]]


def test_a_column_beside_a_tile_of_abs_max_and_abs_min():
    data = np.array([[-5.0, 1, -1], [0, 3, -2]], np.float32)
    column = np.array([[1.0], [-2]], np.float32)
    larger, smaller = on_nki_tiles(
        lambda x, y: (nl.abs_max(x, y), nl.abs_min(x, y)), data, column, machine=TRN3
    )
    np.testing.assert_array_equal(larger, [[-5, 1, 1], [-2, 3, -2]])
    np.testing.assert_array_equal(smaller, [[1, 1, 1], [0, -2, -2]])
