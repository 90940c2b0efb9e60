"""Inputs with dtypes and data of their own, and the recipes of such data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import difftest
from difftest import (
    Bernoulli,
    Case,
    Given,
    Indices,
    Input,
    KernelSpec,
    OneHot,
    Ones,
    Permutation,
    Random,
    Sorted,
    SpecError,
    Uniform,
    cases,
    seeded,
    sizes,
)
from difftest.simulator.entry.install import embedded
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.recipes import RecipeError, recipe_from_json
from difftest.testing.drawing.examples import examples
from difftest.testing.drawing.explicit import CaseError, case_from_json, explicit_cases
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Match
from tests.every import every

with embedded():
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

FLOAT32 = np.dtype(np.float32)
INT32 = np.dtype(np.int32)
RECIPES = [
    Uniform(3, low=0.5, high=2.0),
    Indices(3, below=17),
    Bernoulli(3, share=0.25),
    Sorted(3),
    OneHot(3),
    Permutation(3),
    Given((1.0, 2.5, -3.0)),
]


@every("recipe", RECIPES)
def test_a_recipe_travels_as_json_and_as_code(recipe):
    assert recipe_from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
    assert eval(repr(recipe)) == recipe


def test_uniform_data_fill_their_range():
    values = Uniform(0, low=0.5, high=2.0).build((50, 40), FLOAT32)
    assert 0.5 <= values.min() < 0.6
    assert 1.9 < values.max() <= 2.0


def test_indices_reach_the_last_one():
    for seed in range(20):
        values = Indices(seed, below=1000).build((7,), INT32)
        assert 0 <= values.min() <= values.max() == 999
    assert {
        Indices(seed, below=3).build((1, 1), INT32).item() for seed in range(20)
    } == {0, 1, 2}


def test_sorted_one_hot_and_permuted_rows_have_their_form():
    x = Sorted(1).build((5, 30), FLOAT32)
    assert (np.diff(x, axis=1) >= 0).all()
    assert x.std() > 0.5
    hot = OneHot(1).build((5, 30), INT32)
    assert (hot.sum(axis=1) == 1).all()
    assert set(np.unique(hot)) == {0, 1}
    order = Permutation(1).build((5, 30), INT32)
    assert (np.sort(order, axis=1) == np.arange(30)).all()
    assert (order != np.arange(30)).any()


def test_bernoulli_data_have_their_share_of_ones():
    mask = Bernoulli(0, share=0.25).build((100, 100), np.dtype(np.uint8))
    assert set(np.unique(mask)) == {0, 1}
    assert 0.2 < mask.mean() < 0.3


def test_given_elements_must_be_as_many_as_the_array_has():
    with pytest.raises(RecipeError, match="received 3 elements; accepted: 4"):
        Given((1.0, 2.0, 3.0)).build((2, 2), FLOAT32)


def gather(table, rows):
    return table[rows[:, 0]]


def gather_spec(**own):
    """Rows of a table by their numbers: the table float, the numbers integers below its length."""
    return KernelSpec(
        kernel=lookup,
        reference=gather,
        domain={"V": sizes(2, 300), "P": sizes(1, 100), "D": (8,)},
        inputs={
            "table": "V D",
            "rows": Input(
                "P 1", dtype="int32", data=lambda V: seeded(Indices, below=V)
            ),
            **own,
        },
        dtypes=("float32", "bfloat16"),
    )


@nki.jit
def lookup(table, rows):
    out = nl.ndarray((rows.shape[0], table.shape[1]), table.dtype, buffer=nl.shared_hbm)
    places = nl.load(rows)
    picked = nl.load(table[places, nl.arange(table.shape[1])[None, :]])
    nl.store(out, picked)
    return out


def drawn(spec):
    return examples(cases(spec), 30)


def test_indices_with_a_float_table():
    spec = gather_spec()
    runner = Runner((EmbeddedSimulator(),))
    for case in drawn(spec):
        table, rows = spec.inputs_of(case)
        assert rows.dtype == np.int32
        assert table.dtype == case.dtype
        assert isinstance(runner.check(spec, case)["embedded"], Match)


def test_a_case_with_dtypes_of_its_inputs_travels():
    spec = gather_spec()
    case = drawn(spec)[-1]
    assert case.dtypes == {"rows": "int32"}
    assert case_from_json(case.to_json(), spec) == case
    names = {name: getattr(difftest, name) for name in difftest.__all__}
    assert eval(repr(case), names) == case
    assert case.label().endswith("-int32")


def test_a_case_needs_the_dtypes_of_its_inputs():
    spec = gather_spec()
    text = drawn(spec)[-1].to_json()
    document = json.loads(text)
    document["dtypes"] = {"rows": "float32"}
    with pytest.raises(
        CaseError, match=r"dtypes.rows: received 'float32'; accepted: int32"
    ):
        case_from_json(json.dumps(document), spec)
    del document["dtypes"]
    with pytest.raises(
        CaseError, match="accepted: an object of values, dtype, data, dtypes"
    ):
        case_from_json(json.dumps(document), spec)


def test_examples_have_the_simplest_data_of_an_input():
    spec = KernelSpec(
        kernel=lookup,
        reference=gather,
        domain={"V": (5,), "P": (3,)},
        inputs={
            "table": "V 8",
            "rows": Input(
                "P 1", dtype="int32", data=lambda V: seeded(Indices, below=V)
            ),
        },
        examples=[{"V": 5, "P": 3}],
    )
    (case,) = explicit_cases(spec)
    assert case == Case(
        {"V": 5, "P": 3},
        "float32",
        {"table": Random(0), "rows": Indices(0, below=5)},
        {"rows": "int32"},
    )


@nki.jit
def scaled(weights, scale):
    out = nl.ndarray(weights.shape, nl.float32, buffer=nl.shared_hbm)
    wide = nl.load(weights, dtype=nl.float32)
    nl.store(out, nl.multiply(wide, nl.load(scale)))
    return out


@every(
    "data",
    [
        None,
        Ones(),
        st.one_of(st.just(Ones()), seeded(Uniform, low=0.1, high=2.0)),
        lambda P: arrays.arrays(
            np.float32, (P, 1), elements=st.floats(0.5, 2, width=32)
        ),
    ],
)
def test_int8_weights_with_float_scales(data):
    spec = KernelSpec(
        kernel=scaled,
        reference=lambda weights, scale: (
            weights.astype(np.float64) * scale.astype(np.float64)
        ),
        domain={"P": sizes(1, 20), "N": sizes(1, 20)},
        inputs={
            "weights": Input("P N", dtype=("int8", "uint8")),
            "scale": Input("P 1", dtype="float32", data=data),
        },
        output_dtype="float32",
    )
    runner = Runner((EmbeddedSimulator(),))
    seen = set()
    for case in drawn(spec):
        seen.add(case.dtypes["weights"])
        assert isinstance(runner.check(spec, case)["embedded"], Match)
        assert case_from_json(case.to_json(), spec) == case
    assert seen == {"int8", "uint8"}


@nki.jit
def sign_and_size(x):
    signs = nl.ndarray(x.shape, nl.int32, buffer=nl.shared_hbm)
    sizes = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(signs, nl.greater(tile, 0, dtype=nl.int32))
    nl.store(sizes, nl.abs(tile))
    return signs, sizes


def test_outputs_have_dtypes_of_their_own():
    spec = KernelSpec(
        kernel=sign_and_size,
        reference=lambda x: (x > 0, np.abs(x)),
        domain={"P": sizes(1, 20), "N": sizes(1, 20)},
        inputs={"x": "P N"},
        dtypes=("float32", "bfloat16"),
        output_dtype=("int32", None),
    )
    runner = Runner((EmbeddedSimulator(),))
    for case in drawn(spec):
        assert isinstance(runner.check(spec, case)["embedded"], Match)


@every(
    "own, message",
    [
        (
            Input("P 1", dtype="int64"),
            r"inputs\['rows'\].dtype: received 'int64'; accepted: bf",
        ),
        (
            Input("P 1", data=5),
            r"inputs\['rows'\].data: received 5; accepted: a recipe",
        ),
        (
            Input("P 1", data=lambda Q: Ones()),
            r"inputs\['rows'\].data: received the name 'Q'",
        ),
        (Input("", data=Ones()), r"inputs\['rows'\]: received ''; accepted: names"),
    ],
)
def test_an_input_that_contradicts_the_spec(own, message):
    with pytest.raises(SpecError, match=message):
        gather_spec(rows=own)


@every(
    "data, message",
    [
        (lambda V: 5, "its function returned 5; accepted: a recipe"),
        (
            st.just(np.ones(3)),
            r"its strategy drew array\(\[1., 1., 1.\]\); accepted: a recipe",
        ),
        (st.just("ones"), "its strategy drew 'ones'; accepted"),
    ],
)
def test_data_that_are_none(data, message):
    with pytest.raises(SpecError, match=message):
        drawn(gather_spec(rows=Input("P 1", dtype="int32", data=data)))


@every(
    "make, text",
    [
        (lambda: Indices("v"), "indices.seed: received 'v'; accepted: an integer"),
        (
            lambda: Indices(below=2.5),
            "indices.below: received 2.5; accepted: an integer",
        ),
        (lambda: Uniform(low="m"), "uniform.low: received 'm'; accepted: a number"),
        (lambda: Indices(below=0), "indices.below: received 0; accepted: at least 1"),
        (lambda: Random(-1), "random.seed: received -1; accepted: at least 0"),
        (
            lambda: seeded(Uniform, low=3, high=1),
            "uniform: received low=3, high=1; accepted: fin",
        ),
        (
            lambda: Uniform(high=float("inf")),
            "uniform: received low=0.0, high=inf; accepted: fin",
        ),
        (
            lambda: Bernoulli(share=2),
            "bernoulli.share: received 2; accepted: from 0 to 1",
        ),
        (
            lambda: seeded(5),
            "seeded: received 5; accepted: a recipe with a seed, e.g. Uniform",
        ),
        (
            lambda: seeded(Ones),
            "seeded: received <class 'difftest.testing.contract.recipes.Ones'>; accept",
        ),
        (
            lambda: seeded(Uniform, foo=1),
            "recipe uniform: Uniform.__init__() got an unexpected ke",
        ),
        (
            lambda: seeded(Uniform, seed=1),
            "recipe uniform: Uniform.__init__() got multiple val",
        ),
    ],
)
def test_a_field_that_is_no_such_number_is_named(make, text):
    """At the line that makes the recipe, not when its first array is built."""
    with pytest.raises((RecipeError, SpecError)) as raised:
        make()
    assert str(raised.value).startswith(text)
    if "a number" in text or "an integer" in text:
        assert "data=lambda n: seeded(Indices, below=n)" in str(raised.value)


def test_sizes_of_numpy_travel_as_json():
    recipe = Indices(below=np.int64(7))
    assert recipe_from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
