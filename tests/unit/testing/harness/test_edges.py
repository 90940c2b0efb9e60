from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from difftest.testing.contract.spec import Input, Rejection
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.explicit import NoDataError, minimal_case
from difftest.testing.drawing.sizes import multiples, sizes
from difftest.testing.harness.edges import check_edges, edge_cases, has_edges
from difftest.testing.harness.failures import NotRejectedError
from difftest.testing.harness.runner import Runner
from tests.every import every
from tests.unit.standin import PlainBackend, add, add_spec

TOO_LONG = Rejection({"n": 9}, match="at most 8")


def checked_add(a, b, CHUNK=4):
    """Adds up to 8 elements of one dtype."""
    assert a.shape == b.shape, f"{a.shape} and {b.shape}"
    assert a.size <= 8, f"at most 8 elements, got {a.size}"
    assert a.dtype == b.dtype == np.float32, f"{a.dtype} and {b.dtype}"
    return add(a, b)


def spec_of(kernel=checked_add, **changes):
    fields = {"domain": {"n": sizes(1, 8)}, "rejects": (TOO_LONG,)}
    return add_spec(kernel, **{**fields, **changes})


def why(spec):
    first, *others = [edge.why for edge in edge_cases(spec)]
    assert first == "the minimal case"
    return others


def run(spec):
    runner = Runner((PlainBackend(),))
    check_edges(runner, spec)
    return runner.tally.rows[spec.name, "plain"]


def test_one_step_at_a_time_from_the_minimal_case():
    two = ("float32", "bfloat16")
    assert why(spec_of(dtypes=two)) == [
        "n=2",
        "n=9, just beyond 8",
        "a of shape (2,)",
        "b of shape (2,)",
        "a of float32 beside bfloat16",
        "a of bfloat16 beside float32",
        "a of int32 beside float32",
        "a of int32 beside bfloat16",
        "b of float32 beside bfloat16",
        "b of bfloat16 beside float32",
        "b of int32 beside float32",
        "b of int32 beside bfloat16",
    ]


def test_a_dependent_name_keeps_its_value_and_the_contract_is_checked():
    domain = {"CHUNK": sizes(1, 4), "n": lambda CHUNK: multiples(CHUNK, at_most=8)}
    spec = spec_of(
        domain=domain,
        parameters=("CHUNK",),
        rejects=(Rejection({"CHUNK": 4, "n": 9}, "at most"),),
    )
    values = {edge.why: edge.case.values for edge in edge_cases(spec)}
    assert values["CHUNK=2"] == {"CHUNK": 2, "n": 1}
    assert values["CHUNK=5, just beyond 4"] == {"CHUNK": 5, "n": 5}
    assert values["the defaults, CHUNK=4"] == {"CHUNK": 4, "n": 4}


def test_a_kernel_that_checks_its_contract_passes():
    counts = run(spec_of())
    assert (counts.rejections, counts.cases) == (5, 2)


def without_size(a, b):
    assert a.shape == b.shape
    assert a.dtype == b.dtype == np.float32
    return add(a, b[:8].copy() if b.size <= 8 else np.zeros_like(b))


def without_shape(a, b):
    assert max(a.size, b.size) <= 8
    return add(a[:1], b[:1])


def without_dtype(a, b):
    assert a.shape == b.shape
    assert a.size <= 8
    return add(a, b.astype(np.float16).astype(np.int32))


@every(
    "kernel, call",
    [
        (without_size, "n=9, just beyond 8"),
        (without_shape, "a of shape"),
        (without_dtype, "b of int32 beside float32"),
    ],
)
def test_an_accepted_call_must_be_correct(kernel, call):
    with pytest.raises(NotRejectedError) as caught:
        run(spec_of(kernel))
    assert f"{kernel.__name__} must" in str(caught.value)


def test_the_report_has_the_call_and_the_remedy():
    with pytest.raises(NotRejectedError) as caught:
        run(spec_of(without_size))
    text = str(caught.value)
    assert text.startswith("without_size must reject this call, or be correct\n")
    assert "  call:        n=9, just beyond 8\n" in text
    assert "edges=False leaves these calls out" in text


def crashing(a, b):
    assert a.shape == b.shape
    return add(a, b) if a.size <= 8 else a.no_such_name


def test_to_break_down_is_no_refusal():
    with pytest.raises(NotRejectedError, match="crashed"):
        run(spec_of(crashing))


def only_even(a, b, CHUNK=4):
    assert CHUNK != 4
    return add(a, b)


def test_the_defaults_have_to_be_accepted():
    spec = add_spec(
        only_even,
        domain={"CHUNK": (1, 2, 4), "n": (4,)},
        parameters=("CHUNK",),
        rejects=(),
    )
    with pytest.raises(NotRejectedError, match="must accept this call, and be correct"):
        run(spec)


def test_without_rejections_or_defaults_no_edge_is_called():
    backends = (PlainBackend(),)
    assert not has_edges(add_spec(), backends)
    assert why(add_spec()) == []
    assert not has_edges(spec_of(edges=False), backends)
    assert has_edges(spec_of(), backends)


def test_a_memory_can_be_filled_wherever_a_size_is_drawn_and_traces_are_kept():
    embedded = PlainBackend("embedded")
    device = PlainBackend("device")
    drawn = add_spec(domain={"n": sizes(1, 8)})
    assert has_edges(drawn, (device, embedded))
    assert not has_edges(drawn, (device,))
    assert not has_edges(replace(drawn, edges=False), (embedded,))
    assert not has_edges(replace(drawn, inputs={"a": "8", "b": "8"}), (embedded,))
    assert not has_edges(add_spec(), (embedded,))  # whose sizes are a list
    assert not has_edges(spec_of(), (device,))  # where the kernel does not run


def test_an_input_whose_own_data_have_an_end_is_not_called_beyond():
    """Hypothesis draws no array of so many elements, each for itself."""
    each = {"elements": st.floats(-1, 1, width=32), "fill": st.nothing()}
    own = Input("n", data=lambda n: arrays(np.float32, n, **each))
    spec = spec_of(inputs={"a": own, "b": own}, domain={"n": sizes(1, 2000)})
    assert minimal_case(spec, {"n": 8}, "float32").values == {"n": 8}
    with pytest.raises(NoDataError, match="found nothing"):
        minimal_case(spec, {"n": 2000}, "float32")
    assert why(spec)[:2] == ["n=2", "a of shape (2,)"]


def test_an_input_whose_own_data_do_not_fit_outside_the_domain_is_not_called_there():
    """There are no nine distinct indices below eight."""
    own = Input("n", data=lambda n: st.just(np.arange(min(n, 8), dtype=np.float32)))
    spec = spec_of(inputs={"a": own, "b": "n"})
    assert why(spec)[0] == "n=2"
    assert "n=9, just beyond 8" not in why(spec)
    wrong = Input("n", data=lambda n: st.just(np.zeros(n + 1, np.float32)))
    with pytest.raises(SpecError, match="an array of the input's shape"):
        why(spec_of(inputs={"a": wrong, "b": "n"}))


def doubling(a, b):
    return add(a, a)


def test_a_kernel_that_is_wrong_inside_the_domain_is_not_called_outside():
    with pytest.raises(NotRejectedError) as caught:
        run(spec_of(doubling))
    text = str(caught.value)
    assert text.startswith("doubling must accept this call, and be correct\n")
    assert text.endswith("  call:        the minimal case")


def test_the_minimal_case_may_be_rejected_by_kernel_and_reference():
    def refuse(a, b):
        raise AssertionError("none")

    def refuse_too(a, b):
        raise ValueError("none")

    assert run(spec_of(refuse, reference=refuse_too)).both_rejected == 1
    with pytest.raises(NotRejectedError, match="must accept this call"):
        run(spec_of(refuse))


def test_a_default_outside_the_domain_is_not_called():
    """Here no size of n fits CHUNK=4."""
    domain = {"CHUNK": (1, 2), "n": lambda CHUNK: multiples(CHUNK, at_most=2)}
    spec = add_spec(checked_add, domain=domain, parameters=("CHUNK",))
    assert why(spec) == []


@pytest.mark.parametrize("default", [0, None])
@pytest.mark.parametrize(
    "sizes_of",
    [
        lambda CHUNK: multiples(CHUNK, at_most=8),
        lambda CHUNK: sizes(1, 8 // CHUNK),
        lambda CHUNK: {1: (1, 2), 2: (2, 4)}[CHUNK],
    ],
    ids=["multiples", "division", "look-up"],
)
def test_a_default_that_is_no_size_is_called_where_sizes_depend_on_it(
    default, sizes_of
):
    def in_chunks(a, b, CHUNK=default):
        result = np.empty_like(a)
        for start in range(0, a.size, CHUNK):
            result[start : start + CHUNK] = add(a, b)[start : start + CHUNK]
        return result

    domain = {"CHUNK": (1, 2), "n": sizes_of}
    with pytest.raises(NotRejectedError, match=f"the defaults, CHUNK={default}$"):
        run(add_spec(in_chunks, domain=domain, parameters=("CHUNK",)))

    def in_one(a, b, CHUNK=default):
        return add(a, b)

    assert run(add_spec(in_one, domain=domain, parameters=("CHUNK",))).cases == 2
