"""Arguments that are read and written: right kernels agree, wrong ones are red, in words."""

import linecache
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from difftest import Input, check
from difftest.simulator import launch
from difftest.simulator.entry.install import embedded
from difftest.support.signature import function_name
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.testing.backends.sdk import function_of
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.explicit import case_from_json, minimal_case
from difftest.testing.drawing.provider import BACKEND
from difftest.testing.drawing.sizes import multiples, sizes
from difftest.testing.harness.decorator import decorate
from difftest.testing.harness.edges import check_edges
from difftest.testing.harness.failures import DifferentialFailure
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Match
from tests.every import every

with embedded():
    import nki
    import nki.collectives as ncc
    import nki.isa as nisa
    import nki.language as nl

    from tests.meta import in_place_classic as classic
    from tests.meta import in_place_kernels as todays

DIALECTS = (classic, todays)
SQUARE = {"rows": multiples(8, at_most=32), "columns": sizes(1, 40)}


def wide(array):
    return array.astype(np.float64)


def summed(total, x):
    return wide(total) + x


def updated(cache, new, position):
    result = wide(cache)
    result[position : position + len(new)] = new
    return result


def recurred(state, x):
    state = wide(state) / 2 + x
    return 2 * state, state


def stepped(param, grad, velocity, rate):
    velocity = 0.75 * wide(velocity) + grad
    return velocity, param - rate * velocity


def scattered(cache, new, rows):
    result = wide(cache)
    result[rows[:, 0]] = new
    return result


def places(count, length):
    """Different rows of the cache."""
    orders = st.permutations(range(length))
    return orders.map(lambda order: np.int32(order[:count]).reshape(count, 1))


SPECS = {
    "running_sum": {
        "reference": summed,
        "domain": SQUARE,
        "inputs": dict.fromkeys(("total", "x"), "rows columns"),
        "outputs": {"total": "rows columns"},
    },
    "cache_update": {
        "reference": updated,
        "domain": {
            "count": sizes(1, 8),
            "length": lambda count: sizes(count, 64),
            "width": sizes(1, 40),
            "position": lambda count, length: range(length - count + 1),
        },
        "inputs": {"cache": "length width", "new": "count width"},
        "outputs": {"cache": "length width"},
        "parameters": ("position",),
        "reduction": 0,
    },
    "recurrence": {
        "reference": recurred,
        "domain": {"rows": sizes(1, 128), "columns": sizes(1, 40)},
        "inputs": dict.fromkeys(("state", "x"), "rows columns"),
        "outputs": {"state": "rows columns"},
    },
    "momentum_step": {
        "reference": stepped,
        "domain": {"rows": sizes(1, 128), "columns": sizes(1, 40), "rate": [0.5, 0.1]},
        "inputs": dict.fromkeys(("param", "grad", "velocity"), "rows columns"),
        "outputs": dict.fromkeys(("velocity", "param"), "rows columns"),
        "parameters": ("rate",),
    },
    "scatter": {
        "reference": scattered,
        "domain": {
            "count": sizes(2, 16),
            "length": lambda count: sizes(count, 64),
            "width": sizes(2, 40),
        },
        "inputs": {
            "cache": "length width",
            "new": "count width",
            "rows": Input("count 1", dtype="int32", data=places),
        },
        "outputs": {"cache": "length width"},
        "reduction": 0,
    },
    "grid_sum": {
        "reference": summed,
        "domain": SQUARE,
        "inputs": dict.fromkeys(("total", "x"), "rows columns"),
        "outputs": {"total": "rows columns"},
        "grid": lambda rows: (rows // 8,),
    },
}


def spec_of(kernel, **changes):
    """The spec of a kernel that updates its arguments."""
    shared = {"kernel": kernel, "dtypes": ("float32", "bfloat16")}
    return KernelSpec(**shared | SPECS[function_name(kernel)] | changes)


def checked(spec, *, cases=15, backend=None):
    """Check drawn cases of a spec; the runner that has counted them."""

    def check(case):
        case.check()

    runner = Runner((backend or EmbeddedSimulator(),))
    chosen = settings(
        max_examples=cases,
        phases=(Phase.generate, Phase.shrink),
        database=None,
        deadline=None,
        backend=BACKEND,
    )
    chosen(hypothesis.seed(0)(decorate(spec, check)))(difftest_runner=runner)
    return runner


def hazards_of(runner):
    """Return the hazards of a test, except for a kernel that returns nothing by intent."""
    found = {finding.id for *_, finding in runner.hazards.values()}
    return found - {"argument-not-returned"}


def failure_of(spec, **how):
    with pytest.raises(DifferentialFailure) as caught:
        checked(spec, **how)
    return caught.value


@pytest.mark.parametrize("dialect", DIALECTS, ids=["classic", "nki"])
@pytest.mark.parametrize("name", SPECS)
def test_a_right_kernel_agrees_and_has_no_hazard(name, dialect):
    spec = spec_of(getattr(dialect, name))
    runner = checked(spec)
    (row,) = runner.tally.rows.values()
    assert row.cases > 10
    assert row.inconclusive == 0
    assert hazards_of(runner) == set()
    check_edges(runner, spec)


def changed(kernel, old, new):
    """The kernel with another text at the first place of one."""
    name = function_name(kernel)
    path = Path(function_of(kernel).__code__.co_filename)
    text = path.read_text(encoding="utf-8")
    place = text.index(old, text.index(f"def {name}("))
    text = text[:place] + new + text[place + len(old) :]
    file = f"{path}: {old} -> {new}"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space = {"__name__": f"{path.stem}_changed", "__file__": file}
    with embedded():
        exec(compile(text, file, "exec"), space)
    return space[name]


CLASSIC_SUM = "old = nl.load(total[part, :])"
CLEARED = (
    "tile = loaded(new); "
    "nisa.dma_copy(dst=cache, src=nl.zeros(cache.shape, cache.dtype, nl.sbuf))"
)
WRONG = (
    ("forgets the sum", todays.running_sum, "old = loaded(total[", "old = loaded(x[", "total"),
    ("forgets the sum", classic.running_sum, CLASSIC_SUM, "old = nl.load(x[part, :])", "total"),
    ("puts it nowhere", todays.running_sum, "dst=total[first : first + 8, :]", "dst=more", "total"),
    ("not the first", todays.running_sum, "range(0, rows", "range(8 * (rows > 8), rows", "total"),
    ("a wrong position", todays.cache_update, "position : position + count", "0:count", "cache"),
    ("a wrong position", classic.cache_update, "position : position + count", "0:count", "cache"),
    ("clears the rest", todays.cache_update, "tile = loaded(new)", CLEARED, "cache"),
    ("no new state", todays.recurrence, "dst=state, src=updated", "dst=y, src=updated", "state"),
    ("no new state", classic.recurrence, "nl.store(state, updated)", "pass", "state"),
    ("a wrong result", todays.recurrence, "operand0=2.0", "operand0=3.0", "out"),
    ("a wrong result", classic.recurrence, "nl.multiply(updated, 2.0)", "updated", "out"),
    ("the old velocity", todays.momentum_step, "dst=velocity, src", "dst=param, src", "velocity"),
    ("the old velocity", classic.momentum_step, "nl.store(velocity, updated)", "pass", "velocity"),
    ("the wrong way", todays.momentum_step, "operand0=rate", "operand0=-rate", "param"),
    ("the wrong way", classic.momentum_step, "nl.subtract", "nl.add", "param"),
    ("the first rows", todays.scatter, ", vector_offset=at, indirect_dim=0", "", "cache"),
    ("the first rows", classic.scatter, "at[place, 0]", "place", "cache"),
    ("the first program's rows", todays.grid_sum, "nl.program_id(0) * 8", "0", "total"),
    ("the first program's rows", classic.grid_sum, "nl.program_id(0) * 8", "0", "total"),
)  # fmt: skip


@pytest.mark.parametrize(("kernel", "old", "new", "array"), [row[1:] for row in WRONG])
def test_a_wrong_kernel_is_red_and_the_report_names_the_array(kernel, old, new, array):
    failure = failure_of(spec_of(changed(kernel, old, new)))
    (verdict,) = failure.verdicts.values()
    assert verdict.kind == "value"
    assert verdict.argument == ("" if array == "out" else array)
    assert f" {array}[" in str(failure)


@nki.jit
def returns_sevens(total, x):
    """Add x to total, and return a new array of 7.0."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    old = todays.loaded(total)
    more = todays.loaded(x)
    nisa.tensor_tensor(dst=old, data1=old, data2=more, op=nl.add)
    nisa.dma_copy(dst=total, src=old)
    nisa.memset(dst=more, value=7.0)
    nisa.dma_copy(dst=out, src=more)
    return out


@nki.jit
def nothing(total, x):
    """Change nothing."""
    nisa.dma_copy(dst=todays.loaded(total), src=x)


@nki.jit
def sets_two(total, x):
    """Set both arguments to their sum."""
    old = todays.loaded(total)
    more = todays.loaded(x)
    nisa.tensor_tensor(dst=old, data1=old, data2=more, op=nl.add)
    nisa.dma_copy(dst=total, src=old)
    nisa.dma_copy(dst=x, src=old)


SUM = {**SPECS["running_sum"], "domain": {"rows": sizes(1, 16), "columns": sizes(1, 8)}}
BOTH = dict.fromkeys(("total", "x"), "rows columns")
WORDS = (
    (
        "a returned array that nobody expects",
        returns_sevens,
        {},
        "the kernel returned 1 array that is not under outputs=, and outputs= names total: "
        "2 arrays to compare, and the reference returned 1. A reference returns the arrays that "
        "the kernel returns, then total. An argument under outputs= that the kernel returns counts "
        "once",
    ),
    (
        "a returned array that is wrong",
        returns_sevens,
        {"reference": lambda total, x: (wide(x), wide(total) + x)},
        "out[0, 0]: got 7.0",
    ),
    (
        "no returned array, where the reference has one",
        nothing,
        {"reference": lambda total, x: (wide(x), wide(total) + x)},
        "the kernel returned no other array, and outputs= names total: 1 array to compare, and the "
        "reference returned 2",
    ),
    (
        "a declared argument that is not written",
        nothing,
        {},
        "the kernel wrote nothing to total, which outputs= names",
    ),
    (
        "a write that is not declared, alone",
        todays.running_sum,
        {"outputs": {}, "domain": SQUARE},
        "leave inputs= as it is and pass outputs={'total': 'rows columns'}",
    ),
    (
        "a write that is not declared, of a kernel that returns it",
        todays.cache_update,
        {**SPECS["cache_update"], "outputs": {}},
        "leave inputs= as it is and pass outputs={'cache': 'length width'}",
    ),
    (
        "a write that is not declared, beside one that is",
        sets_two,
        {},
        "pass outputs={'total': 'rows columns', 'x': 'rows columns'}",
    ),
    (
        "two writes that are not declared",
        sets_two,
        {"outputs": {}, "reference": lambda total, x: (wide(total) + x,) * 2},
        "pass outputs={'total': 'rows columns', 'x': 'rows columns'}",
    ),
    (
        "an argument that has no data, and is read",
        todays.running_sum,
        {
            "inputs": {"x": "rows columns"},
            "reference": lambda x: wide(x),
            "domain": SQUARE,
        },
        "the kernel reads total before it writes to it, and an argument that is under outputs= "
        "alone holds no data: name it under inputs= too, 'total': 'rows columns'",
    ),
)


@every("kernel, changes, said", [row[1:] for row in WORDS])
def test_declarations_and_events_are_distinguished(kernel, changes, said):
    spec = KernelSpec(kernel=kernel, **SUM | changes)
    assert said in " ".join(str(failure_of(spec)).split())


@every(
    "kernel, changes",
    [
        (todays.running_sum, {"domain": SQUARE}),
        (todays.cache_update, SPECS["cache_update"]),
        (
            sets_two,
            {"outputs": BOTH, "reference": lambda total, x: (wide(total) + x,) * 2},
        ),
        (
            returns_sevens,
            {"reference": lambda total, x: (0 * wide(x) + 7, wide(total) + x)},
        ),
    ],
)
def test_the_advised_declaration_is_accepted_at_once(kernel, changes):
    (row,) = checked(KernelSpec(kernel=kernel, **SUM | changes)).tally.rows.values()
    assert row.cases > 10


def test_an_argument_has_one_shape():
    received = r"outputs\['total'\]: received 'rows'"
    accepted = f"{received}; accepted: .* inputs has for it, 'rows columns'"
    with pytest.raises(SpecError, match=accepted):
        KernelSpec(kernel=todays.running_sum, **SUM | {"outputs": {"total": "rows"}})


def test_a_case_travels_with_the_data_of_an_argument_that_is_written():
    spec = spec_of(todays.cache_update)
    case = minimal_case(spec, {"count": 2, "length": 8, "width": 3, "position": 5})
    assert case_from_json(case.to_json(), spec) == case
    assert isinstance(check(spec, case), Match)


def test_kernels_of_one_contract_may_return_the_argument_or_not():
    silent = changed(todays.cache_update, "return cache", "return None")
    kernels = (todays.cache_update, silent, classic.cache_update)
    spec = KernelSpec(kernels=kernels, dtypes=("float32",), **SPECS["cache_update"])
    tally = checked(spec, cases=5).tally
    assert len(tally.agreements) == 3
    assert all(row.cases == row.exact > 0 for row in tally.agreements.values())


@nki.jit
def half_each(total, x):
    """Add x to total; each of two cores has half of the columns."""
    width = x.shape[1] // 2
    first = nl.program_id(0) * width
    old = todays.loaded(total[:, first : first + width])
    more = todays.loaded(x[:, first : first + width])
    nisa.tensor_tensor(dst=old, data1=old, data2=more, op=nl.add)
    nisa.dma_copy(dst=total[:, first : first + width], src=old)


@nki.jit
def both_all(total, x):
    """Add x to total on each of two cores, so that the second may read the first one's sum."""
    old = todays.loaded(total)
    more = todays.loaded(x)
    nisa.tensor_tensor(dst=old, data1=old, data2=more, op=nl.add)
    nisa.dma_copy(dst=total, src=old)


CORES = {
    "domain": {"rows": sizes(1, 16), "columns": multiples(2, at_most=16)},
    "lnc": 2,
}


def test_two_cores_update_one_argument():
    runner = checked(KernelSpec(kernel=half_each, **SUM | CORES))
    (row,) = runner.tally.rows.values()
    assert row.cases > 10
    assert hazards_of(runner) == set()


def test_two_cores_that_update_the_same_elements_race():
    runner = Runner((EmbeddedSimulator(),))
    spec = KernelSpec(kernel=both_all, **SUM | CORES)
    try:
        runner.check(spec, minimal_case(spec, {"rows": 2, "columns": 2}))
    except DifferentialFailure as failure:
        found = failure.findings
    else:
        found = hazards_of(runner)
    assert found


@nki.jit
def exchanged(total, x):
    """Add the x of all ranks to each rank's total."""
    terms = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    sums = todays.loaded(x)
    ncc.all_reduce([sums], [terms], ncc.ReplicaGroup(((0, 1),)), nl.add)
    old = todays.loaded(total)
    nisa.tensor_tensor(dst=old, data1=old, data2=terms, op=nl.add)
    nisa.dma_copy(dst=total, src=old)
    return total


@every("wrong", [False, True])
def test_each_rank_updates_its_own_argument(wrong):
    factor = 2 if wrong else 1
    spec = KernelSpec(
        kernel=exchanged,
        reference=lambda total, x: wide(total) + factor * wide(x).sum(axis=0),
        domain={"ranks": [2], "rows": sizes(1, 8), "columns": sizes(1, 8)},
        inputs=dict.fromkeys(("total", "x"), "ranks rows columns"),
        outputs={"total": "ranks rows columns"},
        ranks="ranks",
    )
    case = minimal_case(spec, {"ranks": 2, "rows": 2, "columns": 3})
    if wrong:
        with pytest.raises(DifferentialFailure, match=r"total\[0, 0, 0\]"):
            check(spec, case)
    else:
        assert isinstance(check(spec, case), Match)


@nki.jit
def accumulates(total, x):
    """Add x to total in the DMA engine."""
    nisa.dma_compute(dst=total, srcs=[total, x], reduce_op=nl.add)


def test_a_dma_adds_to_an_argument():
    runner = checked(KernelSpec(kernel=accumulates, **SUM))
    (row,) = runner.tally.rows.values()
    assert row.cases > 10
    assert hazards_of(runner) == set()


def test_one_array_for_two_arguments():
    """A write to one argument is not read from the other, and the caller's array has it."""
    total = np.float32([[1, 2], [3, 4]])
    result = launch(sets_two, [total, total])
    assert total.tolist() == [[2, 4], [6, 8]]
    assert result.outputs == ()


def test_integers_and_a_dtype_of_its_own():
    """Poison shows in integers too, and an argument keeps its dtype."""
    spec = KernelSpec(
        kernel=todays.running_sum,
        reference=lambda total, x: total.astype(np.int64) + x,
        domain=SQUARE,
        inputs={
            "total": Input("rows columns", dtype="int32"),
            "x": Input("rows columns", dtype="int32"),
        },
        outputs={"total": "rows columns"},
        output_dtype="bfloat16",
        dtypes=("float32", "bfloat16"),
    )
    (row,) = checked(spec).tally.rows.values()
    assert row.cases == row.exact > 10


def test_output_dtypes_are_in_the_order_of_the_results():
    spec = KernelSpec(
        kernel=todays.recurrence,
        dtypes=("bfloat16",),
        **SPECS["recurrence"] | {"output_dtype": ("float32", None)},
    )
    failure = failure_of(spec)
    (verdict,) = failure.verdicts.values()
    assert (verdict.kind, verdict.output) == ("dtype", 0)
