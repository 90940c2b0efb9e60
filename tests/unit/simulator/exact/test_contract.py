"""The roundings that an argument's dtype, narrower than the output's, excuses."""

import ml_dtypes
import numpy as np

from difftest.simulator import launch
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.exact.run import ExactSettings
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from tests.every import every

SIZE = 32
RNG = np.random.default_rng(7)
X = RNG.standard_normal((SIZE, SIZE)).astype(np.float32)
W = RNG.standard_normal((SIZE, SIZE)).astype(ml_dtypes.bfloat16)
FLOAT32_RESULT = ExactSettings(results=("float32",))


def made(dtype=nl.bfloat16, buffer=nl.sbuf):
    return nl.ndarray((SIZE, SIZE), dtype, buffer=buffer)


def copied(tile, dtype=nl.bfloat16):
    """A copy in SBUF, rounded into a dtype."""
    copy = made(dtype)
    nisa.tensor_copy(copy, tile)
    return copy


def product(left, right):
    total = made(nl.float32, nl.psum)
    nisa.nc_matmul(total, left, right)
    return copied(total, nl.float32)


def combined(left, right, dtype, op=nl.multiply):
    result = made(dtype)
    nisa.tensor_tensor(result, left, right, op=op)
    return result


def exact_of(compute, settings=FLOAT32_RESULT):
    """The exact run of a kernel of float32 ``x`` and bfloat16 ``w`` that returns float32."""

    @jit
    def kernel(x, w):
        tiles = made(nl.float32), made()
        for tile, array in zip(tiles, (x, w), strict=True):
            nisa.dma_copy(tile, array)
        out = made(nl.float32, nl.shared_hbm)
        nisa.dma_copy(out, compute(*tiles))
        return out

    return launch(kernel, [X, W], exact=settings)


def an_operand(x, w):
    return product(copied(x), w)


def a_transposed_operand(x, w):
    turned = made(nl.bfloat16, nl.psum)
    nisa.nc_transpose(turned, copied(x))
    return product(copied(turned), w)


def an_operand_computed_from_one(x, w):
    """A gain, and a copy in float32 on the way."""
    gained = combined(copied(x), w, nl.bfloat16)
    return product(copied(copied(gained, nl.float32)), w)


def an_operand_that_is_summed_before(x, w):
    """As the sum of a softmax: it is of the numbers that the product takes."""
    operand = copied(x)
    sums = nl.ndarray((SIZE, 1), nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(sums, nl.add, operand, axis=1)
    total = product(operand, w)
    nisa.tensor_scalar(total, total, op0=nl.add, operand0=sums)
    return total


def an_operand_from_hbm(x, w):
    scratch = made(nl.bfloat16, nl.private_hbm)
    nisa.dma_copy(scratch, x)
    operand = made()
    nisa.dma_copy(operand, scratch)
    return product(operand, w)


def an_operand_from_registers(x, w):
    rounded = copied(x)
    kept = made()
    sums = nl.ndarray((SIZE, 1), nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(kept, nl.copy, rounded, nl.add, sums)
    operand = made()
    nisa.tensor_scalar(operand, w, op0=nl.multiply, operand0=sums)
    return product(operand, w)


def the_arguments_own_path(x, w):
    """Return ``x * (1 + w)``, with the sum in the dtype of w."""
    gain = made()
    nisa.tensor_scalar(gain, w, op0=nl.add, operand0=1.0)
    return combined(x, gain, nl.float32)


def exact_numbers(x, w):
    """Multiply by a mask, which bfloat16 holds exactly."""
    mask = made()
    nisa.tensor_scalar(mask, x, op0=nl.greater, operand0=0.0)
    return combined(x, mask, nl.float32)


LEGAL = (
    an_operand,
    a_transposed_operand,
    an_operand_computed_from_one,
    an_operand_from_hbm,
    an_operand_that_is_summed_before,
    an_operand_from_registers,
    the_arguments_own_path,
    exact_numbers,
)


def a_factor(x, w):
    return combined(copied(x), w, nl.float32)


def a_result(x, w):
    return copied(combined(x, w, nl.bfloat16), nl.float32)


def everything(x, w):
    return copied(combined(copied(x), w, nl.bfloat16), nl.float32)


def a_result_of_a_product(x, w):
    """PSUM is rounded on its way to SBUF."""
    total = made(nl.float32, nl.psum)
    nisa.nc_matmul(total, w, w)
    return copied(copied(total), nl.float32)


def what_a_product_has_made(x, w):
    total = product(copied(x), w)
    return copied(copied(total), nl.float32)


def a_term_beside_a_product(x, w):
    """One line of a helper rounds both operands, in two calls."""
    residual = copied(x)
    return combined(product(copied(x), w), residual, nl.float32, nl.add)


def a_sum_in_registers(x, w):
    """The rounded values go through the registers, and to no product."""
    sums = nl.ndarray((SIZE, 1), nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(made(), nl.copy, copied(x), nl.add, sums)
    result = made(nl.float32)
    nisa.tensor_scalar(result, x, op0=nl.multiply, operand0=sums)
    return result


WRONG = {
    a_factor: 1,
    a_result: 1,
    everything: 2,
    a_result_of_a_product: 1,
    what_a_product_has_made: 1,
    a_term_beside_a_product: 1,
}


BESIDE_AN_OPERAND = (what_a_product_has_made, a_term_beside_a_product)
"""The bound of an operand that is rounded legally is larger than their sum."""


def is_inside(result):
    """Return whether the machine is within the bound and its last float32 rounding."""
    (output,), (machine,) = result.exact.outputs, result.outputs
    error = np.zeros(output.value.shape) if output.error is None else output.error
    return bool((np.abs(machine - output.value) <= error * (1 + 2.0**-20)).all())


@every("compute, settings", [(c, s) for c in LEGAL for s in (FLOAT32_RESULT, True)])
def test_the_path_of_an_argument_is_excused(compute, settings):
    """Operands of a product are excused, also indirect ones, and results of arguments alone."""
    result = exact_of(compute, settings)
    assert result.exact.narrowed == ()
    assert is_inside(result)


@every("compute, settings", [(c, s) for c in WRONG for s in (FLOAT32_RESULT, True)])
def test_wider_values_are_not(compute, settings):
    """Each counts as rounded into float32, at its own line, also where the outputs are unknown."""
    result = exact_of(compute, settings)
    found = result.exact.narrowed
    assert len(found) == WRONG[compute], found
    assert {(narrowing.dtype, narrowing.of_argument) for narrowing in found} == {
        (np.dtype(ml_dtypes.bfloat16), True)
    }
    if compute not in BESIDE_AN_OPERAND:
        assert not is_inside(result)


def test_a_sum_in_registers_does_not_narrow():
    (narrowing,) = exact_of(a_sum_in_registers).exact.narrowed
    assert narrowing.location.text == "nisa.tensor_copy(copy, tile)"


BOTH_RESULTS = ExactSettings(results=("float32", "bfloat16"))


def test_an_output_of_the_dtype_excuses_nothing_that_a_wider_output_depends_on():
    """As the master weights of an optimizer, beside their copy in bfloat16."""
    for compute, count in WRONG.items():
        result = exact_of(compute, BOTH_RESULTS)
        assert len(result.exact.narrowed) == count
        assert all(one.of_output for one in result.exact.narrowed)


@every("settings", [BOTH_RESULTS, True])
def test_an_output_of_the_dtype_excuses_its_own_path(settings):
    @jit
    def kernel(x):
        tile = made(nl.float32)
        nisa.dma_copy(tile, x)
        wide = made(nl.float32, nl.shared_hbm)
        narrow = made(nl.bfloat16, nl.shared_hbm)
        nisa.dma_copy(wide, combined(tile, tile, nl.float32))
        rounded = copied(tile)
        nisa.dma_copy(narrow, combined(rounded, rounded, nl.bfloat16))
        return wide, narrow

    assert launch(kernel, [X], exact=settings).exact.narrowed == ()


@every("settings", [BOTH_RESULTS, True])
def test_a_wider_output_that_is_updated_in_place_counts_too(settings):
    @jit
    def kernel(x):
        tile = made(nl.float32)
        nisa.dma_copy(tile, x)
        narrow = made(nl.bfloat16, nl.shared_hbm)
        rounded = copied(tile)
        nisa.dma_copy(narrow, rounded)
        nisa.dma_copy(x, copied(rounded, nl.float32))
        return narrow

    (narrowing,) = launch(kernel, [X.copy()], exact=settings).exact.narrowed
    assert (narrowing.of_argument, narrowing.of_output) == (False, True)


def test_an_accumulation_of_the_dtype_excuses_all():
    settings = ExactSettings(dtypes=("bfloat16",), results=("float32",))
    for compute in WRONG:
        assert exact_of(compute, settings).exact.narrowed == ()


def test_an_only_argument_excuses_its_dtype():
    """No other is wider: all that a kernel computes is the path of this one."""

    @jit
    def kernel(w):
        tile = made()
        out = made(nl.float32, nl.shared_hbm)
        nisa.dma_copy(tile, w)
        wide = combined(tile, tile, nl.float32)
        nisa.dma_copy(out, copied(copied(wide), nl.float32))
        return out

    result = launch(kernel, [W], exact=FLOAT32_RESULT)
    assert result.exact.narrowed == ()
    assert is_inside(result)
