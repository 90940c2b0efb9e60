import contextlib

import click
import pytest

from difftest.testing.contract.recipes import Zeros
from difftest.testing.drawing.reference_properties import ReferenceProperties
from difftest.tools.scale.axes import Axes, check_axes, spec_at
from difftest.tools.scale.engine import cases_of
from tests.every import every
from tests.unit.tools.scale import sample
from tests.unit.tools.scale.sample import SPEC


def test_a_point_sets_each_kind_of_name_and_later_names_follow():
    point = {
        "columns": 3,
        "dtype": "bfloat16",
        "machine": "trn1",
        "level": "0.5",
        "x": "zeros",
    }
    one = spec_at(SPEC, {**point, "kernel": "doubled", "columns_at_once": 2})
    assert (one.spec.machine, one.level) == ("trn1", "0.5")
    drawn = cases_of(one.spec, ReferenceProperties(), 8)
    assert {case.dtype for case in drawn} == {"bfloat16"}
    assert {case.values["columns"] for case in drawn} == {3}
    assert {case.values["rows"] for case in drawn} == {1, 2, 3}
    assert {case.data["x"] for case in drawn} == {Zeros()}
    assert one.spec.parameters_of(drawn[0].values) == {"columns_at_once": 2}


def test_a_constant_is_set_for_a_point_alone():
    one = spec_at(SPEC, {"CHUNK": 3})
    with contextlib.suppress(ZeroDivisionError), one.in_place():
        assert sample.CHUNK == 3
        raise ZeroDivisionError
    assert sample.CHUNK == 4


def test_a_kernel_of_several_is_named_by_a_part_of_its_title():
    assert spec_at(SPEC, {}).spec.name == "doubled"
    assert spec_at(SPEC, {"kernel": "classic"}).spec.name == "doubled_classic"


@every(
    "name, value, told",
    [
        ("colums", 3, "did you mean columns"),
        ("OTHER", 3, "no function of the kernel reads it when it runs"),
        ("WIDTH", 3, "no function of the kernel reads it when it runs"),
        ("dtype", "float8", "accepted: float32, bfloat16"),
        ("machine", "trn9", "accepted: trn1, trn2, trn3"),
        ("level", "0.1", "accepted: 0.3"),
        ("x", "wild", "an input, whose data are of a kind"),
        ("kernel", "tripled", "the test has doubled, doubled_classic"),
        ("kernel", "oubled", "the test has doubled, doubled_classic"),
    ],
)
def test_an_axis_without_a_meaning_is_rejected(name, value, told):
    axes = Axes({"columns": (1,), name: (value,)}, {})
    with pytest.raises(click.UsageError, match=told):
        check_axes(SPEC, axes)
