"""Elements of a product depend on the contents of a row and a column, and not on their place."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from difftest.simulator import TRN3, launch
from difftest.simulator.dtypes import BFLOAT16
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import products
from difftest.simulator.instructions.products import (
    PADDINGS,
    chosen_padding,
    is_uniform,
)
from difftest.simulator.program_scheduler import one_thread
from tests.every import every

RANDOM = np.random.default_rng(0)
SIZES = [
    (128, 128, 512),
    (128, 127, 509),
    (61, 13, 300),
    (9, 100, 264),
    (128, 12, 385),
    (256, 90, 70),
    (512, 128, 260),
    (128, 1, 512),
    (128, 128, 1),
    (3, 7, 2),
    (100, 6, 9),
    (1, 5, 5),
]
COMMAND = "from tests.unit.simulator.instructions.test_products import shown; shown()"


def normal(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape).astype(np.float32).astype(dtype)


def computed(left, right):
    """The product on the simulator, of operands of any dtype."""

    def kernel(x, y):
        total = nisa.nc_matmul(nl.load(x), nl.load(y))
        out = nl.ndarray(total.shape, nl.float32, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    return launch(kernel, [left, right], machine=TRN3).outputs[0]


def check_places(multiply, depth, rows, columns, dtype=np.float32):
    """Equal columns, equal rows, and the columns of a narrower product."""
    left = normal(depth, rows, dtype=dtype)
    right = normal(depth, columns, dtype=dtype)
    equal = multiply(left, np.repeat(right[:, :1], columns, axis=1))
    assert_array_equal(equal, np.repeat(equal[:, :1], columns, axis=1))
    equal = multiply(np.repeat(left[:, :1], rows, axis=1), right)
    assert_array_equal(equal, np.repeat(equal[:1], rows, axis=0))
    whole = multiply(left, right)
    for count in {1, 2, columns // 3 + 1, columns}:
        assert_array_equal(
            multiply(left, right[:, columns - count :]), whole[:, columns - count :]
        )
    for count in {1, rows // 2 + 1}:
        assert_array_equal(multiply(left[:, :count], right), whole[:count])
    wide = left.astype(np.float64), right.astype(np.float64)
    exact = np.einsum("km,kn->mn", *wide)
    sizes = np.einsum("km,kn->mn", *map(abs, wide))
    assert (abs(whole - exact) <= depth * 2.0**-24 * sizes * (1 + 2.0**-10)).all()


def framed(padding):
    def multiply(left, right):
        out = np.empty((left.shape[1], right.shape[1]), np.float32)
        products.padded_product(padding, left, right, out)
        return out

    return multiply


def in_order(left, right):
    out = np.empty((left.shape[1], right.shape[1]), np.float32)
    products.added_in_order(left, right, out)
    return out


@every("size", SIZES)
def test_no_element_depends_on_its_place(size):
    with one_thread():
        check_places(products.product, *size)


@every("size", SIZES)
def test_an_element_summed_in_order_does_not_depend_on_its_place(size):
    check_places(in_order, *size)


@every("dtype", [np.float32, np.float16, BFLOAT16])
def test_an_element_of_a_kernels_product_does_not_depend_on_its_place(dtype):
    """On a TRN3, whose products may have as many columns as PSUM has."""
    check_places(computed, 128, 100, 512, dtype)


def test_a_mask_and_a_group_of_products_leave_equal_columns_equal():
    def kernel(x, y):
        total = nl.zeros((96, 512), nl.float32, buffer=nl.psum)
        stationary = nl.load(x)
        moving = nl.load(y)
        for _ in range(3):
            total += nisa.nc_matmul(stationary, moving)
        out = nl.ndarray((96, 512), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    equal = np.repeat(normal(128, 1), 512, axis=1)
    (out,) = launch(kernel, [normal(128, 96), equal]).outputs
    assert_array_equal(out, np.repeat(out[:, :1], 512, axis=1))


def test_infinities_stay_where_they_are():
    left = normal(64, 30)
    right = normal(64, 40)
    right[:, 39] = np.inf
    for multiply in (in_order, *map(framed, PADDINGS)):
        # BLAS multiplies what its registers have beyond
        with np.errstate(invalid="ignore"):
            got = multiply(abs(left), right)
        assert np.isfinite(got[:, :39]).all()
        assert np.isposinf(got[:, 39]).all()


def test_without_a_frame_numpy_adds_the_terms(monkeypatch):
    monkeypatch.setattr(products, "chosen_padding", lambda: None)
    left = normal(128, 16)
    right = normal(128, 24)
    wanted = np.zeros((16, 24), np.float32)
    for one, other in zip(left, right, strict=True):
        wanted += one[:, None] * other
    got = products.product(left, right)
    # an ARM processor rounds a term and its sum at once
    assert abs(got - wanted).max() < 1e-5
    assert_array_equal(got, in_order(left, right))


def test_a_frame_whose_columns_differ_is_not_taken(monkeypatch):
    """The check can fail: BLAS that rounds one column otherwise."""
    real = products.padded_product

    def askew(padding, left, right, out):
        real(padding, left, right, out)
        out[:, 40:41] *= np.float32(1 + 2.0**-23)

    monkeypatch.setattr(products, "padded_product", askew)
    assert not is_uniform(PADDINGS[1])


def shown():
    """Print the padding of this process, and raise if a place counts."""
    with one_thread():
        for size in SIZES:
            check_places(products.product, *size)
        print(chosen_padding())


@pytest.mark.parametrize("core", ["Haswell", "Nehalem"])
def test_kernels_of_other_processors(core):
    """OpenBLAS takes the variable; another BLAS lacks such kernels, and shows its own."""
    variables = {**os.environ, "OPENBLAS_CORETYPE": core}
    how = {"capture_output": True, "text": True, "timeout": 120, "check": False}
    run = subprocess.run([sys.executable, "-c", COMMAND], env=variables, **how)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() in map(str, (None, *PADDINGS))
