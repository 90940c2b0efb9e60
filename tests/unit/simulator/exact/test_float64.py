"""The exact run computes in float64, which rounds too: against rational numbers."""

import itertools
import operator
from fractions import Fraction

import numpy as np
import pytest

from difftest.simulator import TRN2, TRN3, launch
from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.exact import bounded
from difftest.simulator.exact.bounded import Bounded
from difftest.simulator.exact.numbers import ARITHMETIC, Numbers, matrix_product
from difftest.simulator.exact.run import ExactSettings, Shadow
from difftest.simulator.frontend.classic import isa as classic_isa
from difftest.simulator.frontend.classic import language as classic
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every

TERMS = np.array(
    [1.0, -1.0, 1e-38, -1e-38, 2.0**60, -(2.0**60), 3.0, 2.0**-40], np.float32
)
"""Float64 may not hold the sum of two; of three it may round to another sum."""
TRIPLES = np.array(list(itertools.product(TERMS, repeat=3)))


def is_deceptive(triple):
    """Return whether float64 makes numbers of float32 of both sums."""
    partial = np.add.accumulate(triple.astype(np.float64))
    return bool((partial.astype(np.float32) == partial).all())


DECEPTIVE = np.array([triple for triple in TRIPLES if is_deceptive(triple)])
"""Triples whose sums a wrong exact run takes for exact, if no other triple is in the batch."""
PARTITIONS = 128
BATCHES = [
    batch[first : first + PARTITIONS]
    for batch in (DECEPTIVE, TRIPLES)
    for first in range(0, len(batch), PARTITIONS)
]
SHARE = 2.0**-28
"""The share of a bound that float64's own error may take: float64 has 29 bits more than float32."""


@pytest.fixture(autouse=True)
def no_warnings():
    """Run without NumPy's floating-point warnings, as a launch does."""
    with np.errstate(all="ignore"):
        yield


def assert_holds(value, error, truth):
    """Assert that an exact value is the truth, or as near to it as a share of its bound."""
    if not np.isfinite(value):
        return
    apart = abs(Fraction(float(value)) - truth)
    assert apart <= Fraction(float(error)) * Fraction(SHARE), (
        value,
        error,
        float(truth),
    )


# -- every instruction that adds -------------------------------------------------------------------


def held(array):
    """Return a new tile in SBUF that holds an array of HBM."""
    tile = nl.ndarray(array.shape, array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, array)
    return tile


def like(tile):
    return nl.ndarray(tile.shape, tile.dtype, buffer=nl.sbuf)


def tensor_tensor(x, y, z):
    total = like(x)
    nisa.tensor_tensor(total, x, y, op=nl.add)
    nisa.tensor_tensor(total, total, z, op=nl.add)
    return total


def tensor_tensor_subtract(x, y, z):
    total = like(x)
    nisa.tensor_scalar(y, y, op0=nl.multiply, operand0=-1.0)
    nisa.tensor_scalar(z, z, op0=nl.multiply, operand0=-1.0)
    nisa.tensor_tensor(total, x, y, op=nl.subtract)
    nisa.tensor_tensor(total, total, z, op=nl.subtract)
    return total


def tensor_scalar(x, y, z):
    total = like(x)
    nisa.tensor_scalar(total, x, nl.add, y[:, 0:1], op1=nl.add, operand1=z[:, 0:1])
    return total


def scalar_tensor_tensor(x, y, z):
    total = like(x)
    nisa.scalar_tensor_tensor(total, x, nl.add, y[:, 0:1], nl.add, z)
    return total


def activation(x, y, z):
    total = like(x)
    nisa.activation(total, nl.copy, x, bias=y[:, 0:1])
    nisa.activation(total, nl.copy, total, bias=z[:, 0:1])
    return total


def activation_fused(x, y, z):
    ones = like(x)
    total = like(x)
    nisa.memset(ones, 1.0)
    nisa.activation(total, nl.copy, x, bias=y[:, 0:1], scale=ones[:, 0:1])
    nisa.activation(total, nl.copy, total, bias=z[:, 0:1], scale=ones[:, 0:1])
    return total


def activate2(x, y, z):
    total = like(x)
    nisa.activate2(total, nl.copy, x, 1.0, y[:, 0:1], nl.multiply, nl.add)
    nisa.activate2(total, nl.copy, total, 1.0, z[:, 0:1], nl.multiply, nl.add)
    return total


def dma_compute(x, y, z):
    total = like(x)
    nisa.dma_compute(total, [x, y, z], nl.add)
    return total


def dma_compute_of_rows(x, y, z):
    """Rows of a table in HBM that an index names are added to."""
    table = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(table, x)
    index = nl.ndarray((x.shape[0], 1), nl.int32, buffer=nl.sbuf)
    nisa.iota(index, [[0, 1]], channel_multiplier=1)
    there = table.ap([[x.shape[1], x.shape[0]], [1, x.shape[1]]], vector_offset=index)
    nisa.dma_compute(there, [there, y], nl.add)
    nisa.dma_compute(there, [there, z], nl.add)
    return held(table)


def triples(x, y, z):
    """Return a tile with the three terms of each sum next to each other."""
    joined = nl.ndarray((*x.shape, 3), x.dtype, buffer=nl.sbuf)
    for at, part in enumerate((x, y, z)):
        nisa.tensor_copy(joined[:, :, at], part)
    return joined


def tensor_tensor_scan(x, y, z):
    """The state restarts where it is multiplied by 0."""
    terms = triples(x, y, z)
    factors = triples(x, y, z)
    states = triples(x, y, z)
    nisa.memset(factors, 1.0)
    nisa.memset(factors[:, :, 0], 0.0)
    flat = (x.shape[0], 3 * x.shape[1])
    nisa.tensor_tensor_scan(
        states.reshape(flat),
        factors.reshape(flat),
        terms.reshape(flat),
        0.0,
        nl.multiply,
        nl.add,
    )
    total = like(x)
    nisa.tensor_copy(total, states[:, :, 2])
    return total


def tensor_reduce(x, y, z):
    total = like(x)
    nisa.tensor_reduce(total, nl.add, triples(x, y, z), axis=2)
    return total


def by_columns(reduce):
    """A kernel whose instruction adds the three terms of one sum in each partition."""

    def kernel(x, y, z):
        terms = triples(x, y, z)
        total = like(x)
        for column in range(x.shape[1]):
            reduce(total[:, column : column + 1], terms[:, column])
        return total

    return kernel


@by_columns
def activation_reduce(total, terms):
    kept = like(terms)
    nisa.activation_reduce(kept, nl.copy, terms, nl.add, total)


@by_columns
def tensor_scalar_reduce(total, terms):
    kept = like(terms)
    nisa.tensor_scalar_reduce(kept, terms, nl.multiply, 1.0, nl.add, total)


@by_columns
def tensor_scalar_cumulative(total, terms):
    kept = like(terms)
    nisa.tensor_scalar_cumulative(kept, terms, nl.multiply, nl.add, 1.0)
    nisa.tensor_copy(total, kept[:, 2:3])


def nc_matmul(x, y, z):
    """A product with the identity moves a term, and PSUM adds."""
    size = x.shape[0]
    identity = nl.ndarray((size, size), x.dtype, buffer=nl.sbuf)
    numbers = nl.ndarray((size, size), nl.int32, buffer=nl.sbuf)
    nisa.iota(numbers, [[1, size]], channel_multiplier=-1)
    nisa.tensor_scalar(identity, numbers, op0=nl.equal, operand0=0.0)
    total = nl.ndarray(x.shape, nl.float32, buffer=nl.psum)
    for part in (x, y, z):
        nisa.nc_matmul(total, identity, part)
    kept = like(x)
    nisa.tensor_copy(kept, total)
    return kept


KERNELS = (
    tensor_tensor,
    tensor_tensor_subtract,
    tensor_scalar,
    scalar_tensor_tensor,
    activation,
    activation_fused,
    activate2,
    dma_compute,
    dma_compute_of_rows,
    tensor_tensor_scan,
    tensor_reduce,
    nc_matmul,
)
REDUCING = {
    "activation_reduce": activation_reduce,
    "tensor_scalar_reduce": tensor_scalar_reduce,
    "tensor_scalar_cumulative": tensor_scalar_cumulative,
}
ON_TRN3 = ("activate2", "tensor_scalar_cumulative")


def assert_sums(kernel, machine=TRN2):
    """Assert that exact runs know the sum of each triple, and that the machine is within bounds."""
    for batch in BATCHES:
        arrays = [np.ascontiguousarray(part) for part in np.split(batch, 3, axis=1)]
        result = launch(kernel, arrays, machine=machine, exact=True)
        (output,), (machines,) = result.exact.outputs, result.outputs
        assert result.exact.has_meaning
        error = np.zeros(machines.shape) if output.error is None else output.error
        for value, bound, triple in zip(
            output.value.flat, error.flat, batch, strict=True
        ):
            assert_holds(value, bound, sum(Fraction(float(term)) for term in triple))
        assert (np.abs(machines - output.value) <= error * (1 + 2.0**-30)).all()


@every("name, kernel", [*((one.__name__, one) for one in KERNELS), *REDUCING.items()])
def test_a_sum_of_three_terms_is_known(name, kernel):
    """For each adding instruction: 1e-38 + 1 - 1 is not 0, and the bound allows that."""

    @jit
    def whole(x, y, z):
        total = kernel(held(x), held(y), held(z))
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, total)
        return out

    assert_sums(whole, TRN3 if name in ON_TRN3 else TRN2)


def test_a_sum_of_three_terms_is_known_to_the_classic_dialect():
    """A DMA that adds to what its destination holds."""

    def kernel(x, y, z):
        out = classic.ndarray(x.shape, x.dtype, buffer=classic.shared_hbm)
        classic.store(out, classic.load(x))
        for part in (y, z):
            classic_isa.dma_copy(dst=out, src=part, dst_rmw_op=np.add)
        return out

    assert_sums(kernel)


# -- every operation -------------------------------------------------------------------------------

FACTORS = np.array(
    [
        1.0,
        -1.0,
        3.0,
        1 / 3,
        1 + 2.0**-23,
        2.0**-40,
        2.0**60,
        -(2.0**60),
        0.0,
        1e-38,
        -1e-38,
        2.0**-149,
        -(2.0**-149),
        1.17549435e-38,
        3.4028235e38,
        -3.4028235e38,
        16777215.0,
        16777213.0,
        4097.0,
        -4095.0,
        1e30,
        1e-30,
    ],
    np.float32,
).astype(np.float64)
LEFT, RIGHT = (side.ravel() for side in np.meshgrid(FACTORS, FACTORS))


def _remainder(left, right):
    return left - right * (left // right)


def _truncated(left, right):
    size = abs(left) - abs(right) * (abs(left) // abs(right))
    return size if left >= 0 else -size


EXACTLY = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.maximum: max,
    np.minimum: min,
    np.mod: _remainder,
    np.fmod: _truncated,
}
OF_ONE = {
    "square": lambda x: x * x,
    "reciprocal": lambda x: 1 / x,
    "abs": abs,
    "relu": lambda x: max(x, Fraction(0)),
    "copy": lambda x: x,
}


def made_by(ufunc, *operands):
    lifted = [
        Numbers(Shadow(ExactSettings()), Bounded(one, None, FLOAT32))
        for one in operands
    ]
    return ufunc(*lifted).held


@every("ufunc", EXACTLY)
def test_an_operation_on_two_numbers_is_known(ufunc):
    """Each pair is computed alone, so that a pair that rounds is never hidden by others."""
    by_zero = ufunc in (np.divide, np.mod, np.fmod)
    for left, right in zip(LEFT, RIGHT, strict=True):
        if by_zero and not right:
            continue
        made = made_by(ufunc, np.array([left]), np.array([right]))
        truth = EXACTLY[ufunc](Fraction(left), Fraction(right))
        error = 0.0 if made.error is None else made.error[0]
        if made.error is None:
            assert np.float32(made.value[0]) == made.value[0]
        assert_holds(made.value[0], error, truth)


@every("name", OF_ONE)
def test_an_operation_on_one_number_is_known(name):
    for one in FACTORS:
        if name == "reciprocal" and not one:
            continue
        made = bounded.FUNCTIONS[name](Bounded(np.array([one]), None, FLOAT32))
        error = 0.0 if made.error is None else made.error[0]
        assert_holds(made.value[0], error, OF_ONE[name](Fraction(one)))


def test_a_square_root_is_known():
    """The argument is between the squares of the result's ends."""
    for one in FACTORS[FACTORS >= 0]:
        made = bounded.FUNCTIONS["sqrt"](Bounded(np.array([one]), None, FLOAT32))
        value = Fraction(made.value[0])
        error = Fraction(0)
        if made.error is not None:
            error = Fraction(made.error[0]) * Fraction(SHARE)
        assert max(value - error, 0) ** 2 <= Fraction(one) <= (value + error) ** 2


@every("ufunc, start", [(np.add, 0), (np.multiply, 1), (np.subtract, 0)])
def test_a_reduction_is_known(ufunc, start):
    """Reduce three numbers; a difference is the first minus the others."""
    for triple in itertools.product(FACTORS[:12], repeat=3):
        lifted = Numbers(
            Shadow(ExactSettings()), Bounded(np.array(triple), None, FLOAT32)
        )
        made = ufunc.reduce(lifted, axis=0).held
        first, *others = map(Fraction, triple)
        truth = first
        for other in others:
            truth = EXACTLY[ufunc](truth, other)
        error = 0.0 if made.error is None else made.error
        assert_holds(made.value, error, truth)


def test_a_product_of_matrices_is_known():
    """Rows of very different sizes: float32 cannot hold the sizes of the other rows."""
    left, right = (
        np.array([[1e-38, 3e38], [1e-30, 1e-30]]).T,
        np.array([[1e10], [-3e-8]]),
    )
    left, right = (side.astype(np.float32).astype(np.float64) for side in (left, right))
    made = matrix_product(Shadow(ExactSettings()), Bounded(left), Bounded(right))
    for row in range(2):
        terms = [Fraction(left[k, row]) * Fraction(right[k, 0]) for k in range(2)]
        assert_holds(made.value[row, 0], made.error[row, 0], sum(terms))
        least = sum(map(abs, terms)) * Fraction(bounded.UNIT)
        assert made.error[row, 0] >= least


@every(
    "value",
    [2**60 + 1, -(2**60) - 1, 2**24 + 1, 2**24, 0.1, 1e-46, np.int64(2**60 + 1)],
)
def test_a_constant_is_known(value):
    """An integer that float64 rounds to a number of float32 is not that number."""
    made = bounded.number(value)
    truth = (
        Fraction(int(value))
        if isinstance(value, (int, np.integer))
        else Fraction(value)
    )
    exact = made.error is None
    assert exact == (Fraction(float(np.float32(float(value)))) == truth)
    assert_holds(made.value, 0.0 if exact else made.error, truth)


def test_every_operation_with_a_rule_is_looked_at():
    """Powers and exponentials count as rounded wherever they are computed."""
    assert set(ARITHMETIC) - {np.power, np.exp, np.negative} <= {
        *EXACTLY,
        *(getattr(np, name) for name in OF_ONE if hasattr(np, name)),
    }
