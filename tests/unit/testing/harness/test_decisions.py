"""Integers that rounded values decide: an open one may differ, a sure one may not."""

import numpy as np
import pytest

from difftest.simulator import TRN2, launch
from difftest.simulator.entry.install import embedded
from difftest.testing.backends.base import Completed
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Fill, Random
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.differential import OPEN, ReferenceResult, compare_exact
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Inconclusive, Match, Mismatch
from tests.every import every

with embedded():
    import neuronxcc.nki as classic
    import neuronxcc.nki.language as cl
    import nki
    import nki.isa as nisa
    import nki.language as nl

ROWS, COLUMNS, AT = 16, 24, (3, 7)
"""The shape of the data, and the element whose decision is open."""


LEAST = -3.4028234663852886e38


def data(value, *, columns=COLUMNS):
    """Values that decide surely, except for the given one. A third of them is computed."""
    x = np.random.default_rng(0).permutation(ROWS * columns).reshape(ROWS, columns)
    x = (3 * x + 0.75 + 0.6 * (x % 2)).astype(np.float32)
    x[AT] = value
    return x


def classic_of(compute, dtype="int32"):
    @classic.jit
    def kernel(x):
        made = compute(cl.multiply(cl.load(x), 1 / 3))
        out = cl.ndarray(made.shape, getattr(cl, dtype), buffer=cl.shared_hbm)
        cl.store(out, cl.copy(made, dtype=getattr(cl, dtype)))
        return out

    return kernel


def todays(compute, dtype="int32"):
    """Today's kernel; ``compute`` writes to the tile that it gets last."""

    @nki.jit
    def kernel(x):
        third = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=third, src=x)
        nisa.tensor_scalar(dst=third, data=third, op0=nl.multiply, operand0=1 / 3)
        made = compute(third)
        out = nl.ndarray(made.shape, dtype=getattr(nl, dtype), buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=made)
        return out

    return kernel


def sbuf(shape, dtype="float32"):
    return nl.ndarray(shape, dtype=getattr(nl, dtype), buffer=nl.sbuf)


def counted(third):
    """The number of elements of a row below a limit."""
    return cl.sum(cl.less(third, 150.0, dtype=cl.float32), axis=1, keepdims=True)


def one_hot(third):
    """Whether an element is the largest of its row, as 0 or 1."""
    return cl.equal(third, cl.max(third, axis=1, keepdims=True))


def scanned(third):
    made = sbuf(third.shape)
    options = {"initial": 0.0, "op0": nl.multiply, "op1": nl.greater}
    zeros = sbuf(third.shape)
    nisa.memset(dst=zeros, value=0.0)
    limit = sbuf(third.shape)
    nisa.memset(dst=limit, value=150.0)
    nisa.tensor_tensor(dst=limit, data1=limit, data2=third, op=nl.subtract)
    nisa.tensor_tensor_scan(dst=made, data0=zeros, data1=limit, **options)
    whole = sbuf(third.shape, "int32")
    nisa.tensor_copy(dst=whole, src=made)
    return whole


def ranges(third):
    """Numbers of the columns whose column number lies within a range that a value sets."""
    bound = sbuf((ROWS, 1))
    nisa.tensor_scalar(dst=bound, data=third[:, 7:8], op0=nl.subtract, operand0=140.0)
    ones = sbuf(third.shape)
    made = sbuf(third.shape)
    nisa.memset(dst=ones, value=1.0)
    large = sbuf((ROWS, 1))
    nisa.memset(dst=large, value=1e9)
    ends = {
        "comp_op0": nl.greater_equal,
        "bound0": bound,
        "comp_op1": nl.less,
        "bound1": large,
    }
    nisa.range_select(dst=made, on_true_tile=ones, on_false_value=LEAST, **ends)
    whole = sbuf(third.shape, "int32")
    nisa.tensor_scalar(dst=whole, data=made, op0=nl.greater, operand0=0.0)
    return whole


def predicated(third):
    chosen, made, two = (sbuf(third.shape, t) for t in ("uint8", "int32", "int32"))
    nisa.tensor_scalar(dst=chosen, data=third, op0=nl.greater, operand0=150.0)
    nisa.memset(dst=made, value=1)
    nisa.memset(dst=two, value=2)
    nisa.tensor_copy_predicated(dst=made, src=two, predicate=chosen)
    return made


def largest_of(third):
    largest = sbuf((ROWS, 8))
    nisa.max8(dst=largest, src=third)
    return largest


def found(third):
    places = sbuf((ROWS, 8), "uint32")
    nisa.nc_find_index8(dst=places, data=third, vals=largest_of(third))
    return places


def replaced(third):
    places = sbuf((ROWS, 8), "uint32")
    made = sbuf(third.shape)
    largest = largest_of(third)
    nisa.nc_match_replace8(dst=made, data=third, vals=largest, imm=0.0, dst_idx=places)
    return places


def places_of(x):
    return np.argsort(-x, axis=1, kind="stable")[:, :8]


def tied():
    """The two largest elements of a row are nearly equal: a third of either may be the larger."""
    x = data(3000.0)
    x[AT[0], 9] = np.nextafter(np.float32(3000.0), np.float32(9e9))
    return x


def compare(name):
    compute = getattr(np, name)
    kernel = classic_of(lambda third: getattr(cl, name)(third, 150.0))
    return kernel, lambda x: compute(x / 3, 150.0), data(450.0)


NAMES = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
DECIDED = {
    **{name: compare(name) for name in NAMES},
    "a count of comparisons": (
        classic_of(counted),
        lambda x: (x / 3 < 150).sum(axis=1, keepdims=True),
        data(450.0),
    ),
    "a conversion to integers": (
        classic_of(lambda third: cl.copy(third, dtype=cl.int32)),
        lambda x: np.rint(x / 3),
        data(4.5),
    ),
    "a rounded quotient": (
        classic_of(lambda third: cl.copy(cl.divide(third, 7.0), dtype=cl.int32)),
        lambda x: np.rint(x / 21),
        data(31.5),
    ),
    "mod": (
        classic_of(lambda third: cl.copy(cl.mod(third, 5.0), dtype=cl.int32)),
        lambda x: np.rint(np.mod(x / 3, 5)),
        data(15.0),
    ),
    "sign": (
        classic_of(lambda third: cl.sign(cl.subtract(third, 150.0))),
        lambda x: np.sign(x / 3 - 150),
        data(450.0),
    ),
    "where": (
        classic_of(
            lambda third: cl.where(cl.greater(third, 150.0), third, 0.0), "float32"
        ),
        lambda x: np.where(x / 3 > 150, x / 3, 0),
        data(450.0),
    ),
    "tensor_tensor_scan": (todays(scanned), lambda x: 150 - x / 3 < 0, data(450.0)),
    "range_select": (
        todays(ranges),
        lambda x: np.arange(COLUMNS) >= x[:, 7:8] / 3 - 140,
        data(450.0),
    ),
    "tensor_copy_predicated": (
        todays(predicated),
        lambda x: 1 + (x / 3 > 150),
        data(450.0),
    ),
    "a one-hot of the largest": (
        classic_of(one_hot),
        lambda x: x == x.max(axis=1, keepdims=True),
        data(450.0),
    ),
    "nc_find_index8": (todays(found, "uint32"), places_of, tied()),
    "nc_match_replace8": (todays(replaced, "uint32"), places_of, tied()),
}
"""A kernel that decides by a third of its input, its reference, and data with an open decision."""


def judged(kernel, reference, x, wrong=None):
    """The verdict on a kernel, with an element of its reference that may be made wrong."""
    result = launch(kernel, [x], machine=TRN2, exact=True)
    (out,) = result.outputs
    said = np.asarray(reference(x.astype(np.float64))).astype(np.float64)
    if wrong is not None:
        said[wrong] += 1
    spec = KernelSpec(
        kernel=kernel,
        reference=reference,
        domain={"P": (ROWS,), "N": (x.shape[1],)},
        inputs={"x": "P N"},
        output_dtype=out.dtype.name,
    )
    case = Case({"P": ROWS, "N": x.shape[1]}, "float32", {"x": Random(0)})
    return compare_exact(
        ReferenceResult(spec, case, {"x": x}, (said,)),
        Completed((out,), exact=result.exact),
    ), result


@every("name", sorted(DECIDED))
def test_either_choice_of_an_open_decision_is_right(name):
    """The reference decides one way, and the other way: its input is moved by half a unit."""
    kernel, reference, x = DECIDED[name]
    for by in (-(2.0**-24), 0.0, 2.0**-24):
        moved = np.ones(x.shape)
        moved[AT] += 3 * by if reference is places_of else by
        verdict, result = judged(kernel, lambda x, moved=moved: reference(x * moved), x)
        assert isinstance(verdict, Match), (by, verdict)
        assert result.exact.doubts
        if result.outputs[0].dtype.kind != "f":
            is_open = result.exact.outputs[0].error >= 1
            assert verdict.nonfinite == is_open.sum() > 0
            assert verdict.elements == is_open.size - is_open.sum()
            assert is_open.sum() <= ROWS


@every("name", sorted(DECIDED))
def test_a_sure_decision_that_is_wrong_is_a_mismatch(name):
    kernel, reference, x = DECIDED[name]
    _, result = judged(kernel, reference, x)
    error = result.exact.outputs[0].error
    for at in map(
        tuple, np.argwhere(np.broadcast_to(error, result.outputs[0].shape) < 0.5)[::37]
    ):
        verdict, _ = judged(kernel, reference, x, wrong=at)
        assert isinstance(verdict, Mismatch), at
        assert verdict.first.index == at


@every("name", sorted(DECIDED))
def test_sure_decisions_are_no_doubt(name):
    """Without the open element all integers are exact. That of the largest knows its own value."""
    kernel, reference, x = DECIDED[name]
    x = x.copy()
    x[AT] = 1000.75
    verdict, result = judged(kernel, reference, x)
    assert isinstance(verdict, Match)
    if name != "a one-hot of the largest":
        assert not result.exact.doubts
        assert verdict.nonfinite == 0


def test_all_open_is_inconclusive():
    kernel, reference, _ = DECIDED["greater"]
    verdict, _ = judged(kernel, reference, np.full((ROWS, COLUMNS), 450.0, np.float32))
    assert verdict == Inconclusive(OPEN, ROWS * COLUMNS)


def nonzeros(third):
    """Numbers of the columns whose value is not 0, in the first partition."""
    made = sbuf((ROWS, COLUMNS + 1), "int32")
    near = sbuf(third.shape)
    nisa.tensor_scalar(dst=near, data=third, op0=nl.subtract, operand0=150.0)
    nisa.nonzero_with_count(dst=made, src=near)
    return made[0:1, :]


def test_places_behind_an_element_that_may_be_0_are_open():
    x = data(1000.75)
    _, result = judged(todays(nonzeros), lambda x: np.zeros((1, COLUMNS + 1)), x)
    assert result.exact.outputs[0].error is None
    x[0, 7] = 450.0
    _, result = judged(todays(nonzeros), lambda x: np.zeros((1, COLUMNS + 1)), x)
    error = result.exact.outputs[0].error[0]
    assert (error[:7] == 0).all()
    assert (error[7:] >= 1).all()
    assert result.exact.has_meaning


@nki.jit
def labelled(x):
    """The number of the column of each row's largest element, by way of a table."""
    logits = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=logits, src=x)
    nisa.tensor_scalar(dst=logits, data=logits, op0=nl.multiply, operand0=1 / 3)
    table = sbuf(x.shape)
    nisa.iota(table, [[1, x.shape[1]]], offset=0, channel_multiplier=0)
    made = sbuf((x.shape[0], 8))
    nisa.nc_n_gather(dst=made, data=table, indices=found(logits))
    out = nl.ndarray(made.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=made)
    return out


def first_of_equal(x):
    return np.argsort(-x.astype(np.float64), axis=1, kind="stable")[:, :8].astype(
        np.float64
    )


def last_of_equal(x):
    turned = np.argsort(-x[:, ::-1].astype(np.float64), axis=1, kind="stable")[:, :8]
    return x.shape[1] - 1.0 - turned


def test_an_element_that_an_open_place_names():
    """A table at an open place: differing values are not judged. Sure places are judged."""

    def verdict(reference, recipe):
        spec = KernelSpec(
            kernel=labelled,
            reference=reference,
            domain={"P": (ROWS,), "N": (COLUMNS,)},
            inputs={"x": "P N"},
            dtypes=("float32",),
        )
        case = Case({"P": ROWS, "N": COLUMNS}, "float32", {"x": recipe})
        (verdict,) = Runner((EmbeddedSimulator(),)).check(spec, case).values()
        return verdict

    assert isinstance(verdict(first_of_equal, Random(3)), Match)
    assert isinstance(verdict(last_of_equal, Fill(7.0)), Inconclusive)
    assert isinstance(verdict(first_of_equal, Fill(7.0)), Match)
    with pytest.raises(DifferentialFailure):
        verdict(lambda x: first_of_equal(x) + 1, Random(3))
