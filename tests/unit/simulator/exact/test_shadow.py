"""The exact run of whole kernels: its values, its doubts, and the losses that it reports."""

import ml_dtypes
import numpy as np

from difftest.simulator import launch
from difftest.simulator.exact.run import ExactSettings
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.frontend.classic.typing import mutable_tensor
from tests.every import every

BFLOAT16 = ml_dtypes.bfloat16
X = np.random.default_rng(1).standard_normal((16, 24)).astype(np.float32)


def made_of(compute, dtype=np.float32):
    """Return a kernel that stores ``compute``'s result for its tile."""

    def kernel(x):
        made = compute(nl.load(x))
        out = nl.ndarray(made.shape, dtype, buffer=nl.shared_hbm)
        nl.store(out, made)
        return out

    return kernel


def exact_of(compute, x=X, dtype=np.float32, settings=True):
    return launch(made_of(compute, dtype), [x], exact=settings).exact


def test_integers_that_float32_has_not_are_exact_where_the_machine_is():
    """Beside 2**30 it has every 64th: a kernel that was off by 20 passed."""
    whole = np.full((16, 24), 2**29 + 1, np.int32)
    run = exact_of(lambda x: nisa.tensor_tensor(x, x, np.add), whole, np.int32)
    assert (run.outputs[0].error, run.doubts) == (None, ())
    assert (run.outputs[0].value == 2**30 + 2).all()


def test_an_argument_that_is_written():
    def kernel(x, out):
        nl.store(out, nl.multiply(nl.load(x), 1 / 3))

    kernel.__annotations__ = {"out": mutable_tensor}
    out = np.zeros_like(X)
    run = launch(kernel, [X, out], exact=True).exact
    (output,) = run.of([], [out]).outputs
    assert np.array_equal(output.value, X.astype(np.float64) * (1 / 3))
    assert launch(kernel, [X, out]).exact is None


def test_matmuls_accumulate():
    def compute(tile):
        total = nl.zeros((24, 24), nl.float32, buffer=nl.psum)
        for _ in range(3):
            total += nisa.nc_matmul(tile, tile)
        return nl.copy(total)

    (output,) = exact_of(compute).outputs
    wide = X.astype(np.float64)
    assert np.allclose(output.value, 3 * wide.T @ wide, rtol=1e-14)
    assert 0 < output.error.max() < 1e-4


@every(
    "compute, reason",
    [
        (lambda tile: nisa.dropout(tile, 0.5), "random numbers"),
        (
            lambda tile: nl.multiply(tile, 1 / 3).view(nl.int32),
            "the bits of rounded values are read as another dtype",
        ),
    ],
)
def test_where_it_has_no_meaning(compute, reason):
    run = exact_of(compute, dtype=np.int32 if "bits" in reason else np.float32)
    assert not run.has_meaning
    assert {doubt.reason for doubt in run.doubts} == {reason}
    assert {doubt.location.file for doubt in run.doubts} == {__file__}


def test_bits_that_nothing_has_rounded_keep_their_meaning():
    run = exact_of(lambda tile: tile.view(nl.int32), dtype=np.int32)
    assert run.has_meaning
    assert not run.doubts


def test_a_conversion_to_integers_that_may_go_either_way():
    """Thirds of 1.5 are a half, or nearly."""
    kernel = made_of(
        lambda tile: nl.copy(nl.multiply(tile, 1 / 3), dtype=nl.int32), np.int32
    )
    halves = np.full((2, 2), 1.5, np.float32)
    run = launch(kernel, [halves], exact=True).exact
    (doubt,) = run.doubts
    assert doubt.reason == "a rounded value is converted to int32"
    assert run.has_meaning
    assert (run.outputs[0].error == 1).all()
    assert not launch(kernel, [halves + 0.25], exact=True).exact.doubts


@every("matched", [False, True])
def test_places_that_are_looked_up(matched):
    """Only those are a doubt that a rounding may change."""

    def compute(tile):
        third = nl.multiply(tile, 1 / 3)
        largest = nisa.max8(src=third)
        if matched:
            return nisa.nc_match_replace8(data=third, vals=largest, imm=0.0)
        return nl.copy(nisa.nc_find_index8(data=third, vals=largest), dtype=nl.float32)

    run = exact_of(compute)
    assert not run.doubts
    equal = X.copy()
    equal[0, 5:7] = 9.0
    run = exact_of(compute, equal)
    assert len(run.doubts) == 1
    assert run.has_meaning
    is_open = run.outputs[0].error >= 1
    assert is_open.any()
    assert not is_open[1:].any()


def test_a_doubt_names_the_kernels_line():
    """Not on a line of what Python's operators are made of."""

    def compute(tile):
        nearly = nl.subtract(nl.multiply(nl.multiply(tile, 3.0), 1 / 3), 1.0)
        return nl.where(nearly, tile, 2.0)

    (doubt,) = exact_of(compute, np.ones((2, 2), np.float32)).doubts
    assert doubt.location.file == __file__


def test_random_data_let_long_sums_have_narrower_bounds():
    kernel = made_of(lambda tile: nl.sum(tile, axis=1, keepdims=True))
    long = np.random.default_rng(0).standard_normal((4, 8192)).astype(np.float32)
    kinds = (ExactSettings(random=random) for random in (False, True))
    worst, likely = (
        launch(kernel, [long], exact=kind).exact.outputs[0] for kind in kinds
    )
    assert likely.error.max() < worst.error.max() / 5


def test_the_instruction_that_loses_the_digits_comes_first():
    kernel = made_of(lambda x: nl.subtract(nl.multiply(nl.add(x, 1e6), 1 / 3), 1e6 / 3))
    first, *_ = launch(kernel, [X], exact=ExactSettings(losses=True)).exact.losses
    assert (first.name, first.happened > 1e-3) == ("tensor_scalar", True)
    assert "nl.subtract" in first.location.text
    assert not launch(kernel, [X], exact=True).exact.losses


def test_a_copy_has_exact_values_of_its_own():
    def compute(tile):
        tile[:, 0:4] = nl.multiply(tile[:, 0:4], 1 / 3)
        copied = nl.ndarray(tile.shape, tile.dtype)
        copied[...] = tile
        copied[:, 0:2] = nl.multiply(copied[:, 0:2], 2.0)
        return tile

    wanted = X.astype(np.float64)
    wanted[:, 0:4] *= 1 / 3
    assert np.array_equal(exact_of(compute).outputs[0].value, wanted)


def added_up(*parts, dtype=None):
    """The parts added in a loop, in bfloat16; each of ``dtype`` before."""

    def compute(tile):
        total = nl.zeros((16, 24), nl.bfloat16)
        for part in parts:
            total = nl.add(
                total, nl.multiply(tile, part, dtype=dtype), dtype=nl.bfloat16
            )
        return total

    run = exact_of(compute, X.astype(BFLOAT16), BFLOAT16)
    return [narrowing.name for narrowing in run.narrowed]


def test_a_line_that_adds_float32_to_its_own_rounded_result():
    """Tensors of bfloat16 may be added so; partial sums in float32 were not to be rounded."""
    assert added_up(0.3, dtype=nl.float32) == []
    assert added_up(0.3, 0.7, dtype=nl.float32) == ["a running sum"]
    assert added_up(0.3, 0.7, 0.9, dtype=nl.bfloat16) == []
    assert added_up(*[0.1] * 6, dtype=nl.bfloat16) == ["a running sum"]
    # 5 rounded nothing
    assert added_up(*[0.0] * 5, 0.1, dtype=nl.bfloat16) == ["a running sum"]


@every(
    "data, made, narrowed",
    [
        (X, np.float32, ["tensor_copy"]),
        (np.round(X), np.float32, []),
        (X, BFLOAT16, []),
    ],
)
def test_a_narrowing_that_changes_a_value_is_reported(data, made, narrowed):
    """It is none where the output has that dtype, which is made after the tile was rounded."""
    run = exact_of(lambda tile: nl.copy(tile, dtype=nl.bfloat16), data, made)
    assert [narrowing.name for narrowing in run.narrowed] == narrowed


def test_a_sum_that_was_rounded_is_added_to_again_as_the_outputs_are():
    """This holds on another line too. The first term may be rounded as an operand is."""

    def compute(tile):
        first = nl.add(
            tile, nl.multiply(tile, 0.3, dtype=nl.float32), dtype=nl.bfloat16
        )
        second = nl.copy(first)
        return nl.add(second, tile, dtype=nl.bfloat16)

    for results, narrowed in (("float32", ["a running sum"]), ("bfloat16", [])):
        settings = ExactSettings(results=(results,))
        run = exact_of(compute, X.astype(BFLOAT16), settings=settings)
        assert [narrowing.name for narrowing in run.narrowed] == narrowed


@every(
    "first, second",
    [
        (lambda p, f: (p < 12) & (f < 20), lambda p, f: (p >= 4) & (f < 20)),
        (lambda p, f: f <= p, lambda p, f: p + f > 20),
    ],
)
def test_masks_limit_the_terms_of_a_reduction(first, second):
    """Within an instruction and into registers: masks limit the terms and their errors."""
    p, f = np.mgrid[0:16, 0:24]
    far = np.where(first(p, f) | second(p, f), X, 1e30).astype(np.float32)
    reset = nisa.reduce_cmd.reset_reduce
    adds = nisa.reduce_cmd.reduce

    def compute(tile):
        p, f = nl.mgrid[0:16, 0:24]
        third = nl.multiply(tile, 1 / 3)
        both = nl.zeros((16, 2), nl.float32)
        how = {"reduce_op": np.add, "reduce_res": both[:, 0:1]}
        nisa.activation(nl.copy, third, reduce_cmd=reset, mask=first(p, f), **how)
        nisa.activation(nl.copy, third, reduce_cmd=adds, mask=second(p, f), **how)
        both[:, 1:2] = nisa.tensor_reduce(
            np.subtract, third, axis=(1,), mask=first(p, f)
        )
        return both

    result = launch(made_of(compute), [far], exact=True)
    assert result.exact.has_meaning
    (output,) = result.exact.outputs
    one, two = (
        np.where(mask(p, f), X, 0.0).astype(np.float64) / 3 for mask in (first, second)
    )
    exact = np.stack([(one + two).sum(axis=1), 2 * one[:, 0] - one.sum(axis=1)], axis=1)
    np.testing.assert_allclose(output.value, exact, rtol=1e-12, atol=1e-12)
    assert output.error.max() < 1e-4
    assert (np.abs(result.outputs[0] - output.value) <= output.error).all()


def test_registers_that_an_idle_selection_resets():
    def compute(tile):
        third = nl.multiply(tile, 1 / 3)
        kept = nl.zeros((16, 2), nl.float32)
        how = {
            "comp_op0": np.greater_equal,
            "comp_op1": np.less,
            "bound0": kept[:, 0:1],
        }
        how |= {"bound1": nl.add(kept[:, 1:2], 24.0), "reduce_res": kept[:, 0:1]}
        nisa.range_select(on_true_tile=third, **how)
        how = {"reduce_res": kept[:, 1:2], "reduce_cmd": nisa.reduce_cmd.reduce}
        nisa.select_reduce(
            dst=third, predicate=nl.less(tile, 0), on_true=third, on_false=-9.0, **how
        )
        return kept

    largest = exact_of(compute).outputs[0].value[:, 1]
    np.testing.assert_allclose(largest, X.max(axis=1) / 3, rtol=1e-6)
