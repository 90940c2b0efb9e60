import click
import numpy as np
import pytest

from difftest.testing.contract.spec import KernelSpec
from difftest.tools.scale.axes import Axes, parse_axes, parse_axis, parse_case, spec_at
from tests.every import every


@every(
    "text, values",
    [
        ("pool_size=1,2,3", (1, 2, 3)),
        ("dtype=float16,bfloat16", ("float16", "bfloat16")),
        ("BLOCK_BYTES=2048..16384", (2048, 4096, 8192, 16384)),
        ("BLOCK_BYTES=3..20", (3, 6, 12)),
        ("n=1..7:3,100", (1, 4, 7, 100)),
        ("n=-2..2:2", (-2, 0, 2)),
        ("t=None,True,0.5", (None, True, 0.5)),
        ("n=5..5", (5,)),
    ],
)
def test_values_of_an_axis(text, values):
    _, got = parse_axis(text)
    assert got == values
    assert [type(one) for one in got] == [type(one) for one in values]


@every(
    "text, told",
    [
        ("pool_size", "NAME=VALUES"),
        ("a-b=1", "NAME=VALUES"),
        ("n=", "NAME=VALUES"),
        ("n=8..2", "a range is a..b"),
        ("n=0..8", "at least 1"),
        ("n=1..8:0", "a range is a..b"),
        ("n=1..x", "or a range, a..b"),
        ("n=1,,2", "a value is a word"),
        ("n=1,2,1", "the value 1 twice"),
    ],
)
def test_an_invalid_axis_is_rejected(text, told):
    with pytest.raises(click.BadParameter, match=told):
        parse_axis(text)


def test_an_axis_is_given_once():
    with pytest.raises(click.BadParameter, match="an axis is given twice"):
        parse_axes(["n=1", "n=2"])


def test_points_are_all_combinations_and_the_last_axis_varies_fastest():
    axes = Axes({"a": (1, 2), "b": ("x", "y")}, {"n": 3, "a": 9})
    assert len(axes) == 4
    assert list(axes.points()) == [
        {"n": 3, "a": a, "b": b} for a, b in ((1, "x"), (1, "y"), (2, "x"), (2, "y"))
    ]


def test_a_sample_is_drawn_without_repeats_and_the_same_each_time():
    axes = Axes(parse_axes(["a=1..100:1", "b=1..100:1", "c=1..1000:1"]), {}, sample=50)
    drawn = list(axes.points())
    assert drawn == list(axes.points())
    assert len({tuple(one.values()) for one in drawn}) == 50
    assert len({one["a"] for one in drawn}) > 20
    assert len(list(Axes(parse_axes(["a=1,2"]), {}, sample=5).points())) == 2


def test_a_case_gives_the_values_of_all_points():
    whole = '{"values":{"n":5},"dtype":"float16","data":{"x":"zeros"}}'
    assert parse_case(whole) == {"n": 5, "dtype": "float16"}
    assert parse_case('{"n": 5}') == {"n": 5}
    assert parse_case(None) == {}


@every("text", ["n=5", "[1]", '{"n": [1]}'])
def test_an_invalid_case_is_rejected(text):
    with pytest.raises(click.BadParameter, match="--case"):
        parse_case(text)


def test_a_word_is_the_function_of_the_domain_that_has_this_name():
    spec = KernelSpec(
        kernel=lambda a, op: a,
        reference=lambda a, op: a,
        domain={"n": (2,), "op": (np.add, np.multiply)},
        inputs={"a": "n"},
        parameters=["op"],
    )
    assert spec_at(spec, {"n": 2, "op": "add"}).spec.domain["op"] == (np.add,)
    with pytest.raises(click.UsageError, match="op=ad: accepted: add, multiply"):
        spec_at(spec, {"n": 2, "op": "ad"})
