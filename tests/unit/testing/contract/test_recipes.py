import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from difftest.testing.contract.recipes import (
    RECIPES,
    Fill,
    Integers,
    Iota,
    Ones,
    Outliers,
    Random,
    RecipeError,
    Zeros,
    recipe_from_json,
)
from difftest.testing.drawing.data import recipes
from tests.every import every

FLOATS = ("float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2")
DTYPES = (*FLOATS, "int8", "uint8", "int32", "bool")
KINDS = (
    Zeros(),
    Ones(),
    Iota(),
    Fill(0.1),
    Fill(1.0, ((2, 0.5), (-1, 7.0))),
    Integers(3, 4),
    Random(5, 2),
)


@every("dtype", DTYPES)
@every("recipe", KINDS)
def test_build_gives_the_shape_and_dtype_and_the_same_array_each_time(recipe, dtype):
    first = recipe.build((3, 5), np.dtype(dtype))
    assert first.shape == (3, 5)
    assert first.dtype == np.dtype(dtype)
    assert first.tobytes() == recipe.build((3, 5), np.dtype(dtype)).tobytes()


def test_zeros_ones_and_iota_build_their_data():
    assert Zeros().build((2,), np.dtype("float32")).tolist() == [0, 0]
    assert Ones().build((2,), np.dtype("float32")).tolist() == [1, 1]
    assert Iota().build((2, 2), np.dtype("float32")).tolist() == [[0, 1], [2, 3]]


@every("dtype", DTYPES)
def test_iota_is_exact_in_every_dtype_and_its_period_divides_no_tile(dtype):
    values = Iota().build((4096,), np.dtype(dtype)).astype(np.float64)
    period = int(values.max()) + 1
    assert np.array_equal(values, np.arange(4096) % period)
    assert 128 % period or dtype == "bool"


def test_fill_counts_positions_modulo_the_size():
    filled = Fill(1.0, ((1, 5.0), (-1, 7.0), (6, 9.0))).build(
        (2, 2), np.dtype("float32")
    )
    assert filled.tolist() == [[1, 5], [9, 7]]


def test_fill_rounds_into_the_dtype():
    assert float(Fill(0.1).build((1,), np.dtype("bfloat16"))[0]) == 0.10009765625


def test_integers_are_within_the_bound_and_both_signs_occur():
    values = Integers(0, 4).build((1000,), np.dtype("float16")).astype(int)
    assert values.min() == -4
    assert values.max() == 4
    assert Integers(0, 4).build((1000,), np.dtype("uint8")).max() == 4


def test_random_values_need_every_bit_of_the_mantissa():
    values = Random(0).build((1000,), np.dtype("float32"))
    assert np.mean(values == values.astype(np.float16)) < 0.01


def test_spread_widens_the_range_of_exponents():
    narrow, wide = (
        Random(0, spread).build((1000,), np.dtype("float32")) for spread in (0, 8)
    )
    assert np.ptp(np.frexp(wide)[1]) > np.ptp(np.frexp(narrow)[1])


@given(st.sampled_from(DTYPES).flatmap(lambda dtype: recipes(dtype, nonfinite=True)))
def test_repr_runs_and_json_comes_back(recipe):
    names = {kind.__name__: kind for kind in RECIPES.values()}
    same = eval(repr(recipe), names, {"nan": float("nan"), "inf": float("inf")})
    assert repr(same) == repr(recipe)
    assert repr(recipe_from_json(json.loads(json.dumps(recipe.to_json())))) == repr(
        recipe
    )


def test_json_is_strict_where_values_are_not_finite():
    text = json.dumps(
        Fill(float("nan"), ((0, float("-inf")),)).to_json(), allow_nan=False
    )
    assert text == '{"fill": {"value": "nan", "overrides": [[0, "-inf"]]}}'


@every(
    "document, message",
    [
        (
            "twos",
            "received 'twos'; accepted: one of zeros, ones, iota, fill, integers, random",
        ),
        (
            {"zeros": {}, "ones": {}},
            "received {'zeros': {}, 'ones': {}}; accepted: one of",
        ),
        ({"ones": 3}, "received {'ones': 3}"),
        ({"ones": {"cls": 2}}, "recipe ones: .* argument 'cls'; accepted: no fields"),
        (
            {"random": {"sed": 2}},
            "recipe random: .* argument 'sed'.*; accepted: seed, spread",
        ),
        ({"random": {"seed": 1.5}}, "random.seed: received 1.5; accepted: an integer"),
        (
            {"random": {"seed": True}},
            "random.seed: received True; accepted: an integer",
        ),
        ({"fill": {}}, "recipe fill: .* argument: 'value'; accepted: value, overrides"),
        (
            {"fill": {"value": None}},
            "fill.value: received None; accepted: a number, in JSON 'nan'",
        ),
        ({"fill": {"value": "big"}}, "fill.value: received 'big'"),
        (
            {"fill": {"value": 1, "overrides": [3]}},
            r"fill.overrides: received \(3,\); accepted: a tuple of pairs",
        ),
        (
            {"fill": {"value": 1, "overrides": [["a", 3]]}},
            r"fill.overrides: received \(\('a', 3\),\); accepted: a tu",
        ),
    ],
)
def test_bad_json_names_the_field(document, message):
    with pytest.raises(RecipeError, match=message.replace("{", r"\{")):
        recipe_from_json(document)


def test_outliers_are_few_and_each_is_another():
    recipe = Outliers(seed=3, values=(1e30, -1e30))
    values = recipe.build((4096,), np.dtype("float32"))
    outliers = values[np.abs(values) > 1e20]
    assert 0.05 < outliers.size / values.size < 0.2
    assert np.unique(outliers).size > 0.9 * outliers.size
    assert np.abs(outliers).min() >= 5e29
    assert {-1.0, 1.0} == set(np.sign(outliers))


@every("size", [2, 3, 4])
def test_there_are_outliers_and_other_elements(size):
    for seed in range(50):
        values = Outliers(seed, (math.nan,)).build((size,), np.dtype("float32"))
        assert 0 < np.isnan(values).sum() < size
