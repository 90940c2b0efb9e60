from hypothesis import given

import difftest
from difftest.harness.case import Case
from difftest.harness.recipes import Ones, Random
from difftest.harness.strategies import cases, sizes
from tests.unit.standin import add_spec

SPEC = add_spec(
    domain={"m": sizes(1, 8), "flag": (False, True), "n": lambda m: sizes(m, 9)},
    inputs={"a": "m n", "b": "n"},
    dtypes=("float32", "bfloat16"),
    kernel=lambda a, b: None,
)
CASE = Case({"m": 2, "flag": True, "n": 3}, "bfloat16", {"a": Ones(), "b": Random(7)})


@given(cases(SPEC))
def test_repr_runs(case):
    assert eval(repr(case), {name: getattr(difftest, name) for name in difftest.__all__}) == case


def test_json_is_one_short_line():
    assert CASE.to_json() == (
        '{"values":{"m":2,"flag":true,"n":3},"dtype":"bfloat16",'
        '"data":{"a":"ones","b":{"random":{"seed":7,"spread":0}}}}'
    )


def test_label():
    assert CASE.label() == "m=2-flag=True-n=3-bfloat16"
