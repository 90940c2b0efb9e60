"""The oracle: its meaning of each record, and planted bugs that it reports at the kernel's line."""

import functools
import importlib

import numpy as np
import pytest

from difftest.simulator import OracleError, launch
from difftest.simulator.dtypes import FLOAT32
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki import views
from difftest.simulator.instructions import elementwise, gate
from difftest.simulator.oracle import comparison
from difftest.simulator.oracle.use import MEANINGS
from difftest.testing.backends.base import Completed, Crashed, KernelCall
from difftest.testing.backends.embedded import PlainSimulator
from tests.every import every
from tests.unit.simulator.frontend.nki.kernels import on_nki_tiles
from tests.unit.simulator.frontend.nki.kernels import stored as out_of

X = np.arange(96, dtype=np.float32).reshape(4, 24)


judged = functools.partial(on_nki_tiles, plain=True)
"""Return the oracle's results of a kernel that computes a tile from its arguments' tiles."""


def into(shape, dtype, fill):
    made = nl.ndarray(shape, dtype)
    fill(made)
    return made


def test_without_either_the_oracle_cannot_be_imported(monkeypatch):
    monkeypatch.delitem(MEANINGS, "max8")
    with pytest.raises(
        TypeError, match="neither a meaning nor a reason to have none for max8"
    ):
        importlib.reload(comparison)


# -- planted bugs ---------------------------------------------------------------------------------


def doubled(x):
    made = nl.ndarray(x.shape, x.dtype)
    nisa.tensor_scalar(made, x, nl.multiply, 2.0)  # here
    return made


def test_wrong_arithmetic_is_reported_with_its_line(monkeypatch):
    np.testing.assert_array_equal(judged(doubled, X), 2 * X)
    monkeypatch.setattr(
        elementwise, "apply_operator", lambda op, left, right: left + right
    )
    with pytest.raises(OracleError) as error:
        judged(doubled, X)
    happened, received, where = str(error.value).splitlines()
    assert happened.startswith(
        "tensor_scalar wrote other values to dst than it means: 95 of 96"
    )
    assert happened.endswith("elements differ, the first at [0, 0]")
    assert received == "  received: 2.0 in the simulator, 0.0 literally"
    assert "# here" in where


def rounded_wrongly(values, dtype):
    return values if dtype == FLOAT32 else np.trunc(values).astype(np.float32)


def test_wrong_rounding_is_seen(monkeypatch):
    def cast(x):
        return into(
            (4, 24), nl.bfloat16, lambda t: nisa.tensor_scalar(t, x, nl.multiply, 0.3)
        )

    judged(cast, X)
    monkeypatch.setattr(gate, "round_to", rounded_wrongly)
    with pytest.raises(OracleError, match="tensor_scalar"):
        judged(cast, X)


def test_elements_that_are_left_out_are_seen(monkeypatch):
    judged(doubled, X)
    write = gate.write

    def half(dst, values, where=None, **kept):
        chosen = np.zeros(dst.shape, np.bool_)
        chosen[:2] = True
        write(dst, np.broadcast_to(values, dst.shape), chosen)

    monkeypatch.setattr(gate, "write", half)
    with pytest.raises(OracleError, match="48 of 96 elements were not written"):
        judged(doubled, X)


def test_a_wrong_view_is_seen(monkeypatch):
    def turned(x):
        view = x.reshape((4, 4, 6)).permute((0, 2, 1))
        return into((4, 6, 4), nl.float32, lambda t: nisa.tensor_copy(t, view))

    judged(turned, X)
    monkeypatch.setattr(
        views.Views, "permute", lambda self, dims: self.reshape((4, 6, 4))
    )
    with pytest.raises(OracleError, match="tensor_copy"):
        judged(turned, X)


# -- code that the second simulator could not run -------------------------------------------------


def shares_bytes():
    first = nl.ndarray((4, 8), nl.float32, address=(0, 0))
    second = nl.ndarray((4, 16), nl.bfloat16, address=(0, 0))
    nisa.memset(first, 1.0)
    nisa.memset(second[:, 0:2], 0.0)
    return first


def test_tensors_at_one_address_are_one_memory():
    expected = np.ones((4, 8), np.float32)
    expected[:, 0] = 0

    @jit
    def kernel():
        return out_of(shares_bytes())

    np.testing.assert_array_equal(launch(kernel, plain=True).outputs[0], expected)


def test_two_cores_are_followed():
    @jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        half = x.shape[1] // 2
        first = nl.program_id(0) * half
        tile = nl.ndarray((4, half), nl.float32)
        nisa.dma_copy(tile, x[:, first : first + half])
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        nisa.dma_copy(out[:, first : first + half], tile)
        return out

    np.testing.assert_array_equal(
        launch(kernel, (X,), grid=(2,), plain=True).outputs[0], X + 1
    )


# -- the three errors of the second simulator ------------------------------------------------------

NEAR = np.array([[2**24, 2**24 + 1]], np.int32)


def test_integers_of_32_bits_are_compared_exactly_where_the_engine_does():
    """On the GpSimd Engine; the Vector Engine compares in float32."""
    equal = judged(
        lambda x, y: into(
            (1, 2), nl.int32, lambda t: nisa.tensor_tensor(t, x, y, nl.equal)
        ),
        NEAR,
        NEAR[:, ::-1].copy(),
    )
    assert not equal.any()
    largest = judged(
        lambda x, y: into(
            (1, 2), nl.int32, lambda t: nisa.tensor_tensor(t, x, y, nl.maximum)
        ),
        NEAR,
        NEAR[:, ::-1].copy(),
    )
    assert (largest == 2**24 + 1).all()


def test_a_product_whose_partial_sums_overflow_is_left_open():
    """The order of its sum decides whether it is an infinity, NaN or a number."""
    x = np.ones((128, 8), np.float32)
    # each product is beyond float32
    x[:, 0] = np.where(np.arange(128) % 3, -2e19, 2e19)

    def product(x):
        made = nl.ndarray((8, 8), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(made, abs_of(x), x)
        return into((8, 8), nl.float32, lambda t: nisa.tensor_copy(t, made))

    def abs_of(x):
        return into(x.shape, x.dtype, lambda t: nisa.activation(t, nl.abs, x))

    made = judged(product, x)
    assert not np.isfinite(made[0, 0])
    assert made[1, 1] == 128


@every("dtype", [nl.int32, nl.uint8, nl.float8_e4m3])
def test_a_bias_of_any_dtype_is_added(dtype):
    def biased(x):
        bias = nl.full((4, 1), 3, dtype)
        return into(
            (4, 24), nl.float32, lambda t: nisa.activation(t, nl.relu, x, bias=bias)
        )

    np.testing.assert_array_equal(judged(biased, X), X + 3)


def test_the_derivative_of_the_sigmoid_gelu_is_known():
    def derived(x):
        op = nl.gelu_apprx_sigmoid_dx
        return into((4, 6), nl.float32, lambda t: nisa.activation(t, op, x))

    x = np.linspace(-4, 4, 24, dtype=np.float32).reshape(4, 6)
    gate = 1 / (1 + np.exp(-1.702 * x.astype(np.float64)))
    expected = gate + 1.702 * x * gate * (1 - gate)
    np.testing.assert_allclose(judged(derived, x), expected, rtol=1e-5, atol=1e-6)


def test_the_backend_calls_a_disagreement_a_crash_of_its_own(monkeypatch):
    """Neither a rejection nor a bug of the kernel."""

    @jit
    def kernel(x):
        return out_of(doubled(nl.load(x)))

    call = KernelCall(kernel=kernel, inputs=(X,))
    assert isinstance(PlainSimulator().run(call), Completed)
    monkeypatch.setattr(
        elementwise, "apply_operator", lambda op, left, right: left + right
    )
    outcome = PlainSimulator().run(call)
    assert isinstance(outcome, Crashed)
    assert isinstance(outcome.error, OracleError)
    assert outcome.in_backend
