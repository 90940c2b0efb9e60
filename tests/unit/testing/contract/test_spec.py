import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Iota, Ones
from difftest.testing.contract.sources import values_in
from difftest.testing.contract.spec import Input, KernelSpec, Rejection
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.sizes import source_of
from difftest.testing.harness.runner import Runner
from difftest.testing.harness.verdict import Match
from tests.every import every
from tests.unit.standin import PlainBackend, add_reference, add_spec


def matrix_product(lhsT, rhs, result, TILE=128): ...


def product_spec(**changes) -> KernelSpec:
    fields = {
        "kernel": matrix_product,
        "reference": lambda lhsT, rhs: lhsT.T @ rhs,
        "domain": {
            "TILE": (1, 2),
            "M": st.integers(1, 4),
            "K": lambda TILE: st.just(2 * TILE),
        },
        "inputs": {"lhsT": "K M", "rhs": "K 3"},
        "outputs": {"result": "M 3"},
        "parameters": ("TILE",),
    }
    return KernelSpec(**{**fields, **changes})


def test_shapes_come_from_names_and_numbers():
    spec = product_spec()
    values = {"TILE": 1, "M": 5, "K": 2}
    assert spec.shape("lhsT", values) == (2, 5)
    assert spec.shape("result", values) == (5, 3)
    assert spec.parameters_of(values) == {"TILE": 1}
    assert spec.name == "matrix_product"


MATRIX_AND_VECTOR = Case({"m": 2, "n": 3}, "bfloat16", {"a": Ones(), "b": Ones()})


def matrix_and_vector():
    return add_spec(
        domain={"m": (1, 2), "n": (1, 3)},
        inputs={"a": "m n", "b": "n"},
        dtypes=("float32", "bfloat16"),
    )


def test_inputs_have_the_shapes_and_the_dtype():
    a, b = matrix_and_vector().inputs_of(MATRIX_AND_VECTOR)
    assert (a.shape, b.shape) == ((2, 3), (3,))
    assert a.dtype == b.dtype == np.dtype("bfloat16")


def test_inputs_are_new_at_each_access():
    spec = matrix_and_vector()
    first = spec.inputs_of(MATRIX_AND_VECTOR)[0]
    again = spec.inputs_of(MATRIX_AND_VECTOR)[0]
    assert not np.shares_memory(first, again)


@every("reduction, length", [(7, 7), ("K", 2), (lambda K, M: K * M, 10), (0, 0)])
def test_the_reduction_length_is_a_number_a_name_or_a_function(reduction, length):
    assert (
        product_spec(reduction=reduction).reduction_length({"TILE": 1, "M": 5, "K": 2})
        == length
    )


def test_the_grid_may_depend_on_the_values():
    values = {"TILE": 1, "M": 5, "K": 2}
    assert product_spec().grid_of(values) == ()
    assert product_spec(grid=(2, 2)).grid_of(values) == (2, 2)
    assert product_spec(grid=lambda M: (M,)).grid_of(values) == (5,)


def test_a_kernel_whose_signature_cannot_be_read_is_taken():
    class Compiled:
        @property
        def __signature__(self):
            raise ValueError("no signature")

        def __call__(self, *arrays): ...

    assert add_spec(Compiled()).name == "Compiled"


def test_rejections_have_labels():
    rejection = Rejection(
        {"n": 256, "C": 3}, match="x", dtype="float16", shapes={"b": (1, 2)}
    )
    assert rejection.label() == "rejects-n=256-C=3-b=[1,2]-float16"


VALUES = "TILE, M, K"


@every(
    "changes, message",
    [
        (
            {"domain": {"M": st.integers(1, 4), "K": lambda N: N}},
            "domain['K']: received the name 'N'; accepted: M",
        ),
        (
            {"domain": {"M": lambda M: M}},
            "domain['M']: received the name 'M'; accepted: none, for it is the first of the domain",
        ),
        (
            {"domain": {"M": 3}},
            "domain['M']: received 3; accepted: a Hypothesis strategy, one or more values, "
            "or a function of earlier names",
        ),
        (
            {"domain": {"M": ()}},
            "domain['M']: received (); accepted: a Hypothesis strategy, one or more",
        ),
        ({"domain": {"M": "12"}}, "domain['M']: received '12'; accepted"),
        (
            {"parameters": ("N",)},
            f"parameters: received the name 'N'; accepted: {VALUES}",
        ),
        ({"reduction": "N"}, f"reduction: received the name 'N'; accepted: {VALUES}"),
        (
            {"reduction": lambda N: N},
            f"reduction: received the name 'N'; accepted: {VALUES}",
        ),
        ({"grid": lambda N: (N,)}, f"grid: received the name 'N'; accepted: {VALUES}"),
        (
            {"inputs": {}},
            "inputs: received none; accepted: at least one array argument",
        ),
        (
            {"inputs": {"lhsT": "K N", "rhs": "K"}},
            f"inputs['lhsT']: received the name 'N'; accepted: {VALUES}",
        ),
        (
            {"inputs": {"lhsT": ("K", "M"), "rhs": "K"}},
            "inputs['lhsT']: received ('K', 'M'); accepted: names of dimensions separated by "
            "spaces, e.g. 'K M'",
        ),
        (
            {"inputs": {"lhsT": "K-1 M", "rhs": "K"}},
            f"inputs['lhsT']: received the name 'K-1'; accepted: {VALUES}; give a computed size a "
            "name in the domain, such as 'H': lambda K: [K - 1]",
        ),
        (
            {"inputs": {"lhsT": "\u00b2 K", "rhs": "K"}},
            f"inputs['lhsT']: received the name '\u00b2'; accepted: {VALUES}",
        ),
        ({"outputs": {"result": " "}}, "outputs['result']: received ' '; accepted"),
        ({"dtypes": ()}, "dtypes: received (); accepted: a tuple of dtype names"),
        (
            {"dtypes": "float32"},
            "dtypes: received 'float32'; accepted: a tuple of dtype names",
        ),
        ({"dtypes": None}, "dtypes: received None; accepted: a tuple of dtype names"),
        (
            {"dtypes": ("float64",)},
            "dtypes: received 'float64'; accepted: bfloat16, bool, float16",
        ),
        (
            {"dtypes": ("float8_e4m3fn_x4",)},
            "dtypes: received 'float8_e4m3fn_x4'; accepted: a dtype of numbers: no data are drawn "
            "in float8_e4m3fn_x4; bfloat16",
        ),
        (
            {"output_dtype": "double"},
            "output_dtype: received 'double'; accepted: bfloat16, bool",
        ),
        (
            {"accumulation": "int32"},
            "accumulation: received 'int32'; accepted: a floating-point",
        ),
        (
            {"examples": ({"M": 3},)},
            f"examples: received values for M; accepted: a value for each of {VALUES}",
        ),
        (
            {"examples": (Case({}, "float32", {"lhsT": Ones(), "rhs": Ones()}),)},
            "examples: received values for no name",
        ),
        (
            {"rejects": (Rejection({"M": 3}, match="M"),)},
            f"rejects: received values for M; accepted: a value for each of {VALUES}",
        ),
        (
            {"rejects": (Rejection({"TILE": 1, "M": 3, "K": 2}, match=""),)},
            "rejects: received match=''; accepted: a part of the error's text",
        ),
        (
            {"rejects": (Rejection({"TILE": 1, "M": 3, "K": 2}, match="K=("),)},
            "rejects: received match='K=(', which is no regular expression (missing ), "
            "unterminated subpattern at position 2); accepted: a part of the error's text, in "
            "which re.escape guards brackets and the like",
        ),
        (
            {
                "rejects": (
                    Rejection({"TILE": 1, "M": 3, "K": 2}, match="M", dtype="half"),
                )
            },
            "rejects.dtype: received 'half'; accepted: bfloat16, bool",
        ),
        (
            {
                "rejects": (
                    Rejection({"TILE": 1, "M": 3, "K": 2}, "M", dtypes={"rhs": "half"}),
                )
            },
            "rejects.dtypes: received 'half'; accepted: bfloat16, bool",
        ),
        ({"edges": "no"}, "edges: received 'no'; accepted: True or False"),
        ({"exact": None}, "exact: received None; accepted: True or False"),
        (
            {"rejects": [{}]},
            "rejects: received {}; accepted: Rejections, e.g. Rejection({'n'",
        ),
        (
            {"rejects": Rejection({}, "x")},
            "rejects: received Rejection(values={}, match='x', dtype=None, shapes={}, dtypes={}); "
            "accepted: a sequence of Rejections",
        ),
        (
            {"rejects": [Rejection(None, "x")]},
            f"rejects: received None; accepted: a value for each of {VALUES}",
        ),
        (
            {"examples": [()]},
            f"examples: received (); accepted: a value for each of {VALUES}",
        ),
        (
            {"examples": 5},
            "examples: received 5; accepted: a sequence of Cases, or of mappings",
        ),
        (
            {"examples": [{"TILE": 1, "M": 2.5, "K": 2}]},
            "lhsT: dimension M: received 2.5; accepted: an integer, at least 0",
        ),
        (
            {"domain": 5},
            "domain: received 5; accepted: a mapping of names to where",
        ),
        (
            {"inputs": ["lhsT"]},
            "inputs: received ['lhsT']; accepted: a mapping of the kernel's",
        ),
        (
            {"inputs": ["lhsT"], "domain": None},
            "inputs: received ['lhsT']; accepted: a mapping of the kernel's",
        ),
        (
            {"inputs": {"lhsT": 5}, "domain": None, "parameters": ()},
            "inputs['lhsT']: received 5; accepted: names of dimensions",
        ),
        (
            {"domain": None},
            "parameters: received the name 'TILE'; accepted: K, M",
        ),
        (
            {"domain": None, "ranks": "K"},
            "domain: received none; accepted: a domain, because the number of ranks is not a size",
        ),
        (
            {"inputs": {"lhsT": ...}},
            "inputs['lhsT']: received Ellipsis; accepted: names of",
        ),
        (
            {"outputs": 5},
            "outputs: received 5; accepted: a mapping of the kernel's arguments",
        ),
        (
            {"parameters": "TILE"},
            "parameters: received 'TILE'; accepted: a sequence of names",
        ),
        ({"kernel": 5}, "kernel: received 5; accepted: a function"),
        ({"reference": 5}, "reference: received 5; accepted: a function"),
        ({"magnitude": 5}, "magnitude: received 5; accepted: a function, or None"),
        (
            {"reduction": 1.5},
            "reduction: received 1.5; accepted: a number of roundings (an int",
        ),
        ({"reduction": -1}, "reduction: received -1; accepted: a number of roundings"),
        (
            {"reduction": True},
            "reduction: received True; accepted: a number of roundings",
        ),
        (
            {"grid": 5},
            "grid: received 5; accepted: a tuple of positive integers, or a function",
        ),
        ({"grid": (0,)}, "grid: received (0,); accepted: a tuple of positive integers"),
        (
            {
                "rejects": (
                    Rejection(
                        {"TILE": 1, "M": 3, "K": 2}, match="M", shapes={"x": (1,)}
                    ),
                )
            },
            "rejects.shapes: received the name 'x'; accepted: lhsT, rhs, result",
        ),
        (
            {"outputs": {}},
            "kernel: matrix_product(lhsT, rhs, result, TILE=128) cannot be called with the arrays "
            "(lhsT, rhs) and the parameters (TILE): missing a required argument: 'result'",
        ),
        (
            {"parameters": ("M",)},
            "and the parameters (M): got an unexpected keyword argument 'M'",
        ),
    ],
)
def test_a_contradiction_is_one_clear_error(changes, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        product_spec(**changes)


@every(
    "size, message",
    [
        (2.5, "lhsT: dimension M: received 2.5; accepted: an integer, at least 0"),
        (True, "lhsT: dimension M: received True; accepted: an integer, at least 0"),
        (-1, "lhsT: dimension M: received -1; accepted: an integer, at least 0"),
        ("a", "lhsT: dimension M: received 'a'; accepted: an integer, at least 0"),
    ],
)
def test_a_size_is_an_integer(size, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        product_spec().shape("lhsT", {"TILE": 1, "M": size, "K": 2})


def subtract(minuend, subtrahend): ...


def subtract_reference(minuend, subtrahend): ...


@every("inputs", [{"minuend": "n", "x": "n"}, {"x": "n", "subtrahend": "n"}])
def test_inputs_bear_the_kernels_names(inputs):
    message = (
        "inputs: received the name 'x' for the kernel subtract(minuend, subtrahend); accepted: the "
        "names of the kernel's arrays in any order, minuend, subtrahend"
    )
    with pytest.raises(SpecError, match=re.escape(message)):
        add_spec(subtract, reference=subtract_reference, inputs=inputs)


def into(result, minuend, factor, *, subtrahend):
    result[...] = minuend - factor * subtrahend


def into_reference(subtrahend, minuend, factor):
    return minuend.astype(np.float64) - factor * subtrahend.astype(np.float64)


@every("names", [("minuend", "subtrahend"), ("subtrahend", "minuend")])
def test_arrays_are_matched_by_name(names):
    """The output comes first, a parameter stands between the inputs, one is named only."""
    spec = add_spec(
        into,
        reference=into_reference,
        domain={"n": (5,), "factor": (2.0,)},
        inputs=dict.fromkeys(names, "n"),
        outputs={"result": "n"},
        parameters=("factor",),
    )
    case = Case(
        {"n": 5, "factor": 2.0}, "float32", {"minuend": Iota(), "subtrahend": Ones()}
    )
    (verdict,) = Runner((PlainBackend(),)).check(spec, case).values()
    assert verdict == Match(elements=5, exact=False)


def test_a_kernel_of_any_arrays_has_no_names_to_compare():
    add_spec(lambda *arrays: None)
    add_spec(lambda a, *arrays: None)
    add_spec(lambda *a, **b: None)


@every(
    "reference",
    [
        lambda a, b: None,
        lambda b, a: None,
        lambda x, y: None,
        lambda a, other: None,
        lambda a, b, axis=0: None,
        lambda *, b, a: None,
        lambda a, *rest: None,
        lambda *arrays: None,
    ],
)
def test_a_reference_takes_the_inputs_by_name_or_by_position(reference):
    assert add_spec(reference=reference).reference is reference


@every(
    "reference, why",
    [
        (
            lambda b, other: None,
            "'b' is number 2 of the inputs and number 1 of its parameters",
        ),
        (
            lambda other, a: None,
            "'a' is number 1 of the inputs and number 2 of its parameters",
        ),
        (
            lambda b, *rest: None,
            "'b' is number 2 of the inputs and number 1 of its parameters",
        ),
        (lambda a: None, "too many positional arguments"),
        (lambda: None, "too many positional arguments"),
        (lambda a, b, axis: None, "missing a required argument: 'axis'"),
        (lambda a, b, *, axis: None, "missing a required"),
    ],
)
@every("role", ["reference", "magnitude"])
def test_a_reference_that_cannot_take_the_inputs_is_refused(role, reference, why):
    message = (
        rf"{role}: <lambda>\(.*\) cannot be called with the inputs \(a, b\) of the kernel "
        rf"add\(a, b\) and the parameters \(\): {re.escape(why)}.*; accepted: a function that has "
        r"all names of the inputs, in any order, or that .* such as lambda a, b: \.\.\."
    )
    with pytest.raises(SpecError, match=message):
        add_spec(**{role: reference})


@every(
    "refused, told",
    [
        (lambda: add_spec(lambda: None), "the name 'a' .* none"),
        (
            lambda: product_spec(outputs={"out": "M 3"}),
            r"outputs: .*'out' .* lhsT, rhs, result$",
        ),
        (
            lambda: product_spec(reduction=lambda: 1.5).reduction_length({}),
            "reduction: .*1.5",
        ),
        (
            lambda: product_spec(reduction=lambda: None).reduction_length({}),
            "reduction: .*None",
        ),
        (
            lambda: product_spec(reduction=lambda: -1).reduction_length({}),
            "reduction: .*-1",
        ),
        (lambda: product_spec(grid=lambda: None).grid_of({}), "grid: .*None"),
        (lambda: product_spec(grid=lambda: 4).grid_of({}), "grid: .*4"),
        (lambda: product_spec(grid=lambda: (2.5,)).grid_of({}), "grid: .*2.5"),
    ],
)
def test_wrong_specs_are_rejected(refused, told):
    with pytest.raises(SpecError, match=told):
        refused()


def test_a_spec_is_frozen():
    with pytest.raises(AttributeError):
        add_spec().reference = add_reference


def test_without_a_domain_each_name_has_sizes():
    spec = KernelSpec(
        kernel=matrix_product,
        reference=lambda lhsT, rhs: lhsT.T @ rhs,
        inputs={"lhsT": "K M", "rhs": Input("K 3")},
        outputs={"result": "M 3"},
        dtypes=("float32", "bfloat16"),
    )
    assert list(spec.domain) == ["K", "M"]
    for name in spec.domain:
        assert values_in(source_of(spec, name, {})) == range(1, 301)
    text = "K, M = sizes(1, 300), float32, bfloat16"
    assert spec.inferred == text
    assert replace(spec, title="again").inferred == text
    assert product_spec().inferred == ""


def test_without_names_there_is_nothing_to_infer():
    spec = KernelSpec(
        kernel=lambda x: x, reference=lambda x: x, inputs={"x": "128 512"}
    )
    assert spec.domain == {}
    assert spec.inferred == ""
