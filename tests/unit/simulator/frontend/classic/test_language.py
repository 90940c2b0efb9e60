"""The modules' names: all that AWS documents are there, or say that they are not modelled."""

import importlib

import ml_dtypes
import numpy as np
import pytest

from difftest.simulator import NotModelledError
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.classic import language as nl
from tests.every import every
from tests.unit.simulator.frontend.classic.documented_names import DOCUMENTED

NOT_MODELLED = {
    "nki": {"FrameworkKernel"},
    "nki.language": {"gemm_grid", "gemm_stationary_grid"},
    "nki.isa": {"builtin_custom_op", "dma_engine"},
    "nki.compiler": set(),
    "nki.typing": set(),
}


@every("name", DOCUMENTED)
def test_every_documented_name_is_there_or_says_that_it_is_not(name):
    with embedded():
        module = importlib.import_module(f"neuronxcc.{name}")
        for documented in sorted(set(DOCUMENTED[name]) - NOT_MODELLED[name]):
            assert getattr(module, documented) is not None
        for documented in sorted(NOT_MODELLED[name]):
            with pytest.raises(NotModelledError) as caught:
                getattr(module, documented)()
            assert caught.value.happened == (
                f"{name}.{documented} is not modelled by the embedded simulator"
            )


@every("name", DOCUMENTED)
def test_a_name_that_nobody_documents_is_an_attribute_error(name):
    with embedded():
        module = importlib.import_module(f"neuronxcc.{name}")
        with pytest.raises(AttributeError, match="no_such_name"):
            _ = module.no_such_name
        assert not hasattr(module, "no_such_name"), name


@every("name", ["nki.language", "nki.isa", "nki.compiler"])
def test_all_lists_what_a_star_import_gives(name):
    with embedded():
        module = importlib.import_module(f"neuronxcc.{name}")
        assert len(set(module.__all__)) == len(module.__all__)
        for one in module.__all__:
            assert getattr(module, one) is not None


@every("name", ["nki.language", "nki.isa"])
def test_helpers_of_a_module_are_no_public_names(name):
    with embedded():
        module = importlib.import_module(f"neuronxcc.{name}")
        assert {one for one in vars(module) if not one.startswith("__")} == set(
            module.__all__
        )
        assert not hasattr(module, "np")


def test_dtypes_are_the_documented_objects():
    assert nl.float32 is np.float32
    assert nl.int32 is np.int32
    assert nl.bool_ is np.bool_
    assert nl.bfloat16 == np.dtype(ml_dtypes.bfloat16)
    assert nl.float8_e4m3 == np.dtype(ml_dtypes.float8_e4m3)
    assert nl.float8_e5m2 == np.dtype(ml_dtypes.float8_e5m2)
    assert nl.tfloat32 == np.dtype("V4")


def test_fp32_min_is_the_smallest_float32():
    assert np.float32(nl.fp32.min).view(np.uint32) == 0xFF7FFFFF
