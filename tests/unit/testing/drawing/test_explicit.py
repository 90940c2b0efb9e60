import json
import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given

import difftest
from difftest.testing.contract.case import Case
from difftest.testing.contract.recipes import Ones, Random, Zeros
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.cases import cases
from difftest.testing.drawing.explicit import (
    CaseError,
    case_from_json,
    explicit_cases,
    minimal_case,
)
from difftest.testing.drawing.sizes import sizes
from tests.every import every
from tests.unit.standin import add_spec

SPEC = add_spec(
    domain={"m": sizes(1, 8), "flag": (False, True), "n": lambda m: sizes(m, 9)},
    inputs={"a": "m n", "b": "n"},
    dtypes=("float32", "bfloat16"),
    kernel=lambda a, b: None,
)
CASE = Case({"m": 2, "flag": True, "n": 3}, "bfloat16", {"a": Ones(), "b": Random(7)})


@given(cases(SPEC))
def test_a_case_comes_back_from_json_and_from_its_text(case):
    for one in (case, replace(case, shapes={"b": (5,)})):
        assert case_from_json(one.to_json(), SPEC) == one
        assert (
            eval(
                repr(one), {name: getattr(difftest, name) for name in difftest.__all__}
            )
            == one
        )


def test_a_text_with_what_is_no_literal_of_python_is_pasted_as_others_are():
    data = {"a": difftest.Fill(-math.inf, ((1, math.nan),)), "b": Ones()}
    case = replace(CASE, data=data)
    again = eval(
        repr(case), {name: getattr(difftest, name) for name in difftest.__all__}
    )
    assert again.data["a"].value == -math.inf
    assert repr(again) == repr(case)


def test_json_is_one_short_line_and_so_is_a_label():
    assert CASE.label() == "m=2-flag=True-n=3-bfloat16"
    assert CASE.to_json() == (
        '{"values":{"m":2,"flag":true,"n":3},"dtype":"bfloat16",'
        '"data":{"a":"ones","b":{"random":{"seed":7,"spread":0}}}}'
    )


def test_what_json_lacks_comes_back_from_it_by_its_name():
    """NumPy's numbers, and arguments that are not data, such as an operator or a tuple."""
    choices = {
        "n": [np.int64(3), np.int64(4)],
        "op": [np.add, np.maximum],
        "pad": [(1, 2), (0, 0)],
    }
    spec = add_spec(domain=choices, inputs={"a": "n", "b": "n"})
    values = {name: several[1] for name, several in choices.items()}
    case = Case(values, "float32", {"a": Ones(), "b": Ones()})
    assert case.to_json().startswith('{"values":{"n":4,"op":"maximum","pad":[0,0]},')
    assert case.label() == "n=4-op=maximum-pad=(0, 0)-float32"
    assert case_from_json(case.to_json(), spec) == case
    assert case_from_json(values, spec).values == values


def test_json_in_another_order_gives_the_specs_order():
    document = json.loads(CASE.to_json())
    document["values"] = dict(reversed(document["values"].items()))
    document["data"] = dict(reversed(document["data"].items()))
    assert list(case_from_json(json.dumps(document), SPEC).values) == ["m", "flag", "n"]
    assert list(case_from_json(json.dumps(document), SPEC).data) == ["a", "b"]


@every(
    "text, message",
    [
        ("{", "received '{', which is not JSON: Expecting property name"),
        ("[]", "received []; accepted: an object of values, dtype, data"),
        (
            '{"values": {}}',
            'received {"values": {}}; accepted: an object of values, dtype, data, or of m, flag, n '
            "alone; it lacks dtype, data",
        ),
        ('{"m": 1}', "or of m, flag, n alone; it lacks flag, n"),
        (
            '{"m": 1, "flag": true, "n": -2}',
            "values: a: dimension n: received -2; accepted: an",
        ),
        (
            '{"values": {"m": 1}, "dtype": "float32", "data": {}}',
            "values: received m; accepted: m, flag, n",
        ),
        (
            '{"values": 3, "dtype": "float32", "data": {}}',
            "values: received 3; accepted: m, flag",
        ),
        (
            '{"values": {"m": 1, "flag": true, "n": 2}, "dtype": "float32", "data": {}}',
            "data: received nothing; accepted: a, b",
        ),
        (
            '{"values": {"m": 1, "flag": true, "n": 2}, "dtype": "float16", '
            '"data": {"a": "ones", "b": "ones"}}',
            "dtype: received 'float16'; accepted: float32, bfloat16",
        ),
        (
            '{"values": {"m": 1, "flag": true, "n": 2}, "dtype": "float32", '
            '"data": {"a": "ones", "b": "twos"}}',
            "data: recipe: received 'twos'; accepted: one of zeros",
        ),
        (
            CASE.to_json()[:-1] + ',"shapes":{"c":[5]}}',
            "shapes: received c; accepted: a, b",
        ),
        (
            CASE.to_json()[:-1] + ',"shapes":{"b":5}}',
            "shapes.b: received 5; accepted: a tuple",
        ),
        (
            '{"values": {"m": 1, "flag": true, "n": 2.5}, "dtype": "float32", '
            '"data": {"a": "ones", "b": "ones"}}',
            "values: a: dimension n: received 2.5; accepted: an integer, at least 0",
        ),
    ],
)
def test_bad_json_names_the_field(text, message):
    with pytest.raises(CaseError, match=re.escape(message)):
        case_from_json(text, SPEC)


def test_names_and_values_alone_are_a_case():
    case = case_from_json('{"n": 3, "m": 2, "flag": true}', SPEC)
    assert case == Case(
        {"m": 2, "flag": True, "n": 3}, "float32", {"a": Random(0), "b": Random(1)}
    )


def test_an_example_of_values_is_checked_in_every_dtype_with_random_data():
    spec = add_spec(examples=({"n": 4},), dtypes=("float32", "float16"))
    first, second = explicit_cases(spec)
    assert first == Case({"n": 4}, "float32", {"a": Random(0), "b": Random(1)})
    assert second.dtype == "float16"


def test_an_example_that_is_a_case_is_taken_as_it_is():
    case = Case({"n": 4}, "float32", {"a": Zeros(), "b": Ones()})
    assert list(explicit_cases(add_spec(examples=(case,)))) == [case]


PARTIALS = (partial(max, 1), partial(max, 2))


@every(
    "choices",
    [
        (lambda x: x + 1, lambda x: x - 1),
        (*(lambda x, n=n: x + n for n in range(3)), abs),
        PARTIALS,
        (max, min),
    ],
)
def test_functions_of_one_choice_have_names_of_their_own_and_are_read_back(choices):
    spec = KernelSpec(
        kernel=lambda a, op: a,
        reference=lambda a, op: a,
        domain={"n": (2,), "op": choices},
        inputs={"a": "n"},
        parameters=["op"],
    )
    texts = [minimal_case(spec, {"n": 2, "op": op}).to_json() for op in choices]
    assert len(set(texts)) == len(choices)
    assert " at 0x" not in "".join(texts), "an address is another one in each process"
    assert [case_from_json(text, spec).values["op"] for text in texts] == list(choices)
    labels = {minimal_case(spec, {"n": 2, "op": op}).label() for op in choices}
    assert len(labels) == len(choices)
