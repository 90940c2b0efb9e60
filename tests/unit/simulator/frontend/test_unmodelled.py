"""Documented names that the simulator does not have can be named, and not used."""

import copy
import importlib

import pytest

from difftest.simulator import NotModelledError
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.arguments import Unmodelled
from difftest.simulator.frontend.nki import isa, language
from tests.every import every


def test_a_name_is_a_key_and_refuses_a_call():
    assert language._DOCUMENTED
    for name, value in language._DOCUMENTED.items():
        assert {value: 1}[language.__getattr__(name)] == 1
        with pytest.raises(NotModelledError, match=value.name):
            value(1)


@every("module", [isa, language])
def test_undocumented_names_are_no_attributes(module):
    with pytest.raises(AttributeError, match="nothing_such"):
        module.nothing_such  # noqa: B018


@every(
    "module, name",
    [
        ("nki", "FrameworkKernel"),
        ("nki.language", "gemm_grid"),
        ("nki.isa", "builtin_custom_op"),
        ("nki.isa", "dma_engine"),
    ],
)
def test_the_names_of_the_classic_dialect_are_listed_too(module, name):
    with embedded():
        found = importlib.import_module(f"neuronxcc.{module}")
        assert hasattr(found, name)
        assert getattr(found, name) is getattr(found, name)
        with pytest.raises(NotModelledError, match=name):
            getattr(found, name)(1)


def test_a_member_of_one_is_one():
    engine = Unmodelled("nisa.dma_engine")
    assert copy.copy(engine).name == "nisa.dma_engine"
    with pytest.raises(
        NotModelledError, match=r"nisa\.dma_engine\.fast is not modelled"
    ):
        engine.fast()


def test_one_is_no_base_class():
    with pytest.raises(NotModelledError, match=r"nki\.FrameworkKernel is not modelled"):

        class Mine(Unmodelled("nki.FrameworkKernel")): ...
