from dataclasses import replace

import numpy as np

from difftest.testing.contract.spec import Input, KernelSpec
from difftest.testing.contract.structured import Bernoulli, Indices
from difftest.testing.drawing.cases import SAMPLES, cases, cases_like
from difftest.testing.drawing.data import seeded
from difftest.testing.drawing.examples import examples, examples_or_none
from difftest.testing.drawing.reference_properties import (
    ReferenceProperties,
    infer_properties,
)
from difftest.testing.drawing.sizes import sizes
from tests.unit.standin import add, add_spec


def seen(reference, **more):
    table = {
        "domain": {"P": sizes(1, 20), "N": sizes(1, 100)},
        "inputs": {"x": "P N"},
        **more,
    }
    spec = KernelSpec(kernel=lambda *arrays: arrays, reference=reference, **table)
    return infer_properties(
        spec, lambda: examples_or_none(cases_like(spec, ReferenceProperties()), SAMPLES)
    )


def test_properties_of_a_reference_are_inferred():
    moves = ReferenceProperties(moves=True, keeps_nonfinite=True, selects=True)
    selects = ReferenceProperties(selects=True)
    for reference, nature in (
        (lambda x: x.T, moves),
        (lambda x: (x[:, ::-1], x), moves),
        (lambda x: x.max(axis=1), selects),
        (lambda x: np.sort(np.abs(x)), selects),
        (lambda x: np.where(np.tri(*x.shape), x, -10000), selects),
        (lambda x: x > 0, selects),
        (lambda x: x.sum(axis=1), ReferenceProperties()),
        (
            lambda x: np.minimum(np.maximum(x, x.mean(axis=1, keepdims=True)), x),
            ReferenceProperties(),
        ),
        (lambda x: x / np.sqrt((x * x).mean()), ReferenceProperties()),
        (lambda x: np.exp(x), ReferenceProperties()),
        (lambda x: x.prod(axis=1), ReferenceProperties(multiplies=True)),
    ):
        assert replace(seen(reference), exponents={}, far={}) == nature


def test_inputs_of_one_shape_differ():
    """Or else a difference would be 0, and 0 a number that was chosen."""
    two = {"inputs": {"x": "P N", "y": "P N"}}
    assert seen(lambda x, y: np.maximum(x, y), **two).selects
    assert not seen(lambda x, y: x - y, **two).selects


def test_places_are_chosen_and_rounded_numbers_are_not():
    assert seen(lambda x: x.argmax(axis=1), output_dtype="int32").selects
    assert not seen(lambda x: np.rint(x), output_dtype="int32").selects


def test_inputs_with_data_of_their_own_keep_them():
    rows = Input("N", dtype="int32", data=lambda P: seeded(Indices, below=P))
    assert seen(lambda x, rows: x[rows], inputs={"x": "P N", "rows": rows}).moves


def test_where_the_tensor_engine_spreads_nan_none_is_drawn():
    for more in ({}, {"reduction": 0}):
        nature = seen(lambda x: x.T, machine="trn1", **more)
        assert (nature.moves, nature.keeps_nonfinite) == (True, False)


def test_where_an_input_may_choose_elements_no_nan_is_drawn():
    """A kernel multiplies by a mask or by a one-hot row, and 0 times NaN is NaN."""
    rows = Input("N", dtype="int32", data=lambda P: seeded(Indices, below=P))
    mask = Input("P N", data=seeded(Bernoulli, share=0.5))
    for reference, inputs in (
        (lambda x, rows: x[rows], {"x": "P N", "rows": rows}),
        (
            lambda x, y, mask: np.where(mask > 0, x, y),
            {"x": "P N", "y": "P N", "mask": mask},
        ),
    ):
        nature = seen(reference, inputs=inputs)
        assert (nature.moves, nature.keeps_nonfinite) == (True, False)
        stated = seen(reference, inputs=inputs, reduction=0)
        assert stated.keeps_nonfinite


def test_outputs_of_a_narrow_dtype_have_sizes_at_which_they_overflow_or_are_subnormal():
    product = {"inputs": {"x": "P N", "y": "N P"}, "dtypes": ("float32", "float16")}
    *small, large = seen(lambda x, y: x.astype(float) @ y, **product).exponents[
        "float16"
    ]
    assert max(small) < -5
    assert 6 <= large < 12


def test_data_whose_results_overflow_give_way_to_smaller_ones():
    """A quarter of these cases proved nothing: a sum on the way, or each result, was infinite."""

    def total(x):
        return x.sum(axis=1, keepdims=True)

    for dtype, reference, made in (
        (
            "float32",
            lambda x: np.minimum(np.maximum(x, total(x) / x.shape[1]), x),
            total,
        ),
        ("float16", lambda x: x * x, lambda x: x * x),
        ("float16", lambda x: x + total(x), lambda x: x + total(x)),
    ):
        spec = KernelSpec(
            kernel=lambda x: x,
            reference=lambda x, of=reference: of(x.astype(float)),
            domain={"P": sizes(1, 128), "N": sizes(1, 600)},
            inputs={"x": "P N"},
            dtypes=(dtype,),
        )
        arrays = [
            spec.inputs_of(case)[0].astype(float) for case in examples(cases(spec), 50)
        ]
        with np.errstate(over="ignore"):
            results = [made(array).astype(dtype) for array in arrays]
        assert sum(not np.isfinite(one).any() for one in results) <= 2


def test_a_reference_that_refuses_or_breaks_down_shows_nothing():
    def refuses(x):
        assert x.shape[0] < 5, "too long"
        return x.T

    assert seen(refuses) == seen(lambda x: x[99]) == ReferenceProperties()


def test_the_reference_is_called_when_cases_are_drawn_and_not_before():
    """Not where a module of tests is imported, then."""
    calls = []
    spec = add_spec(add, reference=lambda a, b: calls.append(1) or a + b)
    strategy = cases(spec)
    assert not calls
    strategy.validate()
    assert calls
