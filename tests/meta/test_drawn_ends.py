"""The ends of a dtype are drawn where they tell something, and nowhere else.

Kernels are NumPy here, each with a planted error that only such data find.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from difftest.testing.contract.spec import Input, KernelSpec
from difftest.testing.contract.structured import Bernoulli, Indices
from difftest.testing.drawing.data import seeded
from difftest.testing.drawing.sizes import sizes
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from reference.conv2d_maxpool import conv2d_maxpool
from tests.every import every
from tests.kernels.budget import NIGHTLY
from tests.kernels.layers import INPUTS, PARAMETERS, small_layers
from tests.meta.drawing import drawn
from tests.meta.operators import softmax_of, softmax_reference
from tests.unit.standin import PlainBackend, add_spec

SEEDS = range(2 if NIGHTLY else 1)
TABLE = {"P": sizes(1, 64), "N": sizes(1, 300)}


def rounded(
    reference: Callable[..., Any], change: Callable[[Any], Any] = lambda wide: wide
) -> Any:
    """A kernel that computes as the reference does, changes that, and rounds it once."""

    def kernel(*arrays, **parameters):
        with np.errstate(all="ignore"):
            wide = change(
                reference(*(array.astype(np.float64) for array in arrays), **parameters)
            )
            return wide.astype(arrays[0].dtype)

    return kernel


def rows(
    kernel: Any, reference: Callable[..., Any], dtype: str = "float32", **more
) -> KernelSpec:
    """A spec of a kernel of a table."""
    return KernelSpec(
        kernel=lambda x: kernel(x),
        reference=lambda x: reference(x.astype(np.float64)),
        **{"domain": TABLE, "inputs": {"x": "P N"}, "dtypes": (dtype,), **more},
    )


def first_red(spec: KernelSpec, seed: int = 0, cases: int = 50) -> int:
    """The number of the first case that is red, or 0."""
    runner = Runner((PlainBackend(),))
    red = []

    def is_red(case):
        try:
            runner.check(spec, case)
        except DifferentialFailure:
            red.append(case)
        return bool(red)

    number = len(drawn(spec, cases, seed, is_red))
    return number if red else 0


def largest(x):
    return x.max(axis=1, keepdims=True)


@every("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_integers_of_every_width_reach_both_ends_often(dtype):
    spec = rows(lambda x: x, lambda x: x, inputs={"x": Input("P N", dtype=dtype)})
    arrays = [spec.inputs_of(case)[0] for case in drawn(spec, 60)]
    info = np.iinfo(dtype)
    assert sum(array.min() == info.min for array in arrays) > 6
    assert sum(array.max() == info.max for array in arrays) > 6


def test_wide_integers_whose_sums_a_reference_has_in_float64_fit_their_dtype():
    """NKI's int32 wraps around: nothing could be told of an overflow."""
    spec = add_spec(dtypes=("int32",))
    sums = [spec.reference(*spec.inputs_of(case)) for case in drawn(spec, 100)]
    assert min(one.min() for one in sums) >= -(2**31)
    assert 2**30 <= max(one.max() for one in sums) < 2**31


@every("start", [0.0, -1e4, -65504.0, -3.4e38])
def test_a_maximum_that_starts_at_a_number_is_found(start):
    spec = rows(rounded(lambda x: np.maximum(largest(x), start)), largest)
    assert all(first_red(spec, seed) for seed in SEEDS)


@every(
    "kernel, reference, dtype",
    [
        (rounded(largest), largest, "float32"),
        (rounded(np.transpose), np.transpose, "float32"),
        *(
            (rounded(softmax_reference), softmax_of, dtype)
            for dtype in ("float32", "float16")
        ),
    ],
)
def test_a_right_kernel_is_never_red(kernel, reference, dtype):
    assert not first_red(rows(kernel, reference, dtype), cases=30)


def test_all_elements_of_a_maximum_are_negative_in_a_quarter_of_the_cases():
    spec = rows(rounded(largest), largest)
    negative = sum((spec.inputs_of(case)[0] < 0).all() for case in drawn(spec, 100))
    assert negative > 25


@every("dtype", ["float32", "bfloat16", "float16"])
def test_a_softmax_whose_maximum_starts_at_a_number_is_found(dtype):
    def from_ten_thousand_less(x):
        x = x.astype(np.float64)
        with np.errstate(all="ignore"):
            powers = np.exp(x - np.maximum(largest(x), -1e4))
            return powers / powers.sum(axis=1, keepdims=True)

    wrong = rows(rounded(from_ten_thousand_less), softmax_of, dtype)
    assert all(first_red(wrong, seed) for seed in SEEDS)


def test_a_transposition_that_spreads_nan_is_found():
    """As a product with the identity does."""

    def product_with_identity(x):
        return x.T @ np.eye(x.shape[0])

    assert all(
        first_red(rows(rounded(product_with_identity), np.transpose), s) for s in SEEDS
    )


def test_a_choice_by_a_product_is_never_red():
    """A mask and a one-hot row multiply by 0 what a reference leaves out."""

    def blend(mask, x, y):
        return mask * x + (1 - mask) * y

    def pick(rows, x):
        return np.eye(x.shape[0])[rows.astype(np.int64)[0]] @ x

    blended = KernelSpec(
        kernel=rounded(blend),
        reference=lambda mask, x, y: np.where(mask > 0, x, y),
        domain=TABLE,
        inputs={
            "mask": Input("P N", data=seeded(Bernoulli, share=0.5)),
            "x": "P N",
            "y": "P N",
        },
    )
    picked = KernelSpec(
        kernel=lambda rows, x: pick(rows, x.astype(np.float64)).astype(x.dtype),
        reference=lambda rows, x: x[rows[0]],
        domain=TABLE,
        inputs={
            "rows": Input(
                "1 P", dtype="int32", data=lambda P: seeded(Indices, below=P)
            ),
            "x": "P N",
        },
    )
    for spec in (blended, picked):
        assert not any(first_red(spec, seed) for seed in SEEDS)


@every("reference", [largest, lambda x: np.maximum(x, 0), np.sort, softmax_of])
def test_no_nan_is_drawn_where_values_decide(reference):
    spec = rows(rounded(reference), reference)
    assert all(np.isfinite(spec.inputs_of(case)[0]).all() for case in drawn(spec, 40))


def conv2d(change):
    return KernelSpec(
        kernel=lambda X, W, bias, pool_size: rounded(conv2d_maxpool, change)(
            X, W, bias, pool_size=pool_size
        ),
        reference=conv2d_maxpool,
        domain={**small_layers(), "width": (4,), "height": (4,), "pool_size": (1,)},
        inputs=INPUTS,
        parameters=PARAMETERS,
        dtypes=("float32", "float16", "bfloat16"),
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda wide: np.clip(wide, -65504, 65504),
        lambda wide: np.where(np.abs(wide) < 2.0**-14, 0.0, wide),
    ],
    ids=["saturates", "flushes"],
)
def test_a_float16_that_saturates_or_flushes_is_found_in_convolutions(change):
    def in_float16(wide):
        return change(wide)

    spec = conv2d(in_float16)
    assert all(first_red(spec, seed) for seed in SEEDS)


def test_products_of_a_row_stay_finite():
    spec = rows(
        rounded(lambda x: np.cumprod(x, axis=1)), lambda x: np.cumprod(x, axis=1)
    )
    for case in drawn(spec, 100):
        assert np.isfinite(np.cumprod(spec.inputs_of(case)[0], axis=1)).all()
