"""The cases drawn for the project's own kernels: new, random, and in every part of a loop."""

import pytest
from hypothesis import Phase, find, settings

from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.provider import BACKEND
from tests.every import every
from tests.kernels.budget import NIGHTLY
from tests.meta.drawing import counted, drawn, kernel_tests, needs_of

SPECS = dict(kernel_tests())
LAYER_SEEDS = range(5) if NIGHTLY else (0,)
deterministic = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=2000,
    backend=BACKEND,
)


def is_another(name):
    """Return whether a test has its own domain: the ladder's rungs share one."""
    return not name.startswith("test_conv2d_") or name == "test_conv2d_row_tiles"


def is_drawn(spec, need):
    """Return whether a layer that needs it is drawn before 2000 others."""
    first = settings(deterministic, phases=[Phase.generate])
    return find(cases(spec), lambda case: need(needs_of([case])) > 0, settings=first)


@every("name", list(filter(is_another, SPECS))[:: 1 if NIGHTLY else 4])
def test_cases_differ_and_are_random_in_at_least_half(name):
    counts = counted(drawn(SPECS[name], 20))  # the number of a user's run
    assert counts.distinct == counts.cases >= 19
    assert counts.telling >= 13
    assert counts.random >= 10


def test_a_harness_that_repeats_itself_would_be_seen():
    spec = SPECS["test_matrix_transpose"]
    ten = drawn(spec, 10)
    assert counted(ten + ten).distinct == counted(ten).distinct > 8


def test_layers_need_several_of_everything():
    spec = SPECS["test_fused_conv2d_maxpool"]
    needs = needs_of(
        [layer for seed in LAYER_SEEDS for layer in drawn(spec, 120, seed)]
    )
    assert needs.blocks > 0.1 * needs.layers
    assert needs.halos > 0.03 * needs.layers
    assert needs.tiles > 0.3 * needs.layers
    assert is_drawn(spec, lambda needs: needs.far)  # one layer in 50


def test_the_ladders_layers_need_a_second_tile():
    # once in 200 cases
    assert is_drawn(SPECS["test_conv2d_row_tiles"], lambda needs: needs.tiles)


@pytest.mark.parametrize(("name", "least"), [("pool_size", 2), ("width", 249)])
def test_layers_shrink_in_order(name, least):
    spec = SPECS["test_fused_conv2d_maxpool"]
    smallest = find(
        cases(spec), lambda case: case.values[name] >= least, settings=deterministic
    )
    assert smallest.values[name] == least
    for other, value in {"c_in": 128, "c_out": 128, "batch": 1, "pool_size": 1}.items():
        assert other == name or smallest.values[other] == value
