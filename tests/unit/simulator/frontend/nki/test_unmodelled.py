"""Documented names that the simulator does not have can be named, and not used."""

from __future__ import annotations

import pytest

from difftest.simulator import DtypeError, NotModelledError
from difftest.simulator.frontend.nki import isa, language
from difftest.simulator.frontend.nki.kernel import simulate


@pytest.mark.parametrize("module", [isa, language])
def test_a_name_is_a_key_and_refuses_a_call(module):
    assert module._DOCUMENTED
    for name, value in module._DOCUMENTED.items():
        assert {value: 1}[module.__getattr__(name)] == 1
        with pytest.raises(NotModelledError, match=value.name):
            value(1)


def test_a_dtype_that_is_not_modelled_makes_no_tensor():
    def kernel():
        language.ndarray((128, 4), language.float8_e4m3fn_x4)

    with pytest.raises(DtypeError, match="float8_e4m3fn_x4 \\(not modelled\\)"):
        simulate(kernel)()


@pytest.mark.parametrize("module", [isa, language])
def test_what_nobody_documents_is_no_attribute(module):
    with pytest.raises(AttributeError, match="nothing_such"):
        module.nothing_such  # noqa: B018
