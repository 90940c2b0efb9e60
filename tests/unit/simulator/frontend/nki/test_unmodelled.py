"""Documented names that the simulator does not have can be named, and not used."""

from __future__ import annotations

import pytest

from difftest.simulator import NotModelledError
from difftest.simulator.frontend.nki import isa, language


def test_a_name_is_a_key_and_refuses_a_call():
    assert language._DOCUMENTED
    for name, value in language._DOCUMENTED.items():
        assert {value: 1}[language.__getattr__(name)] == 1
        with pytest.raises(NotModelledError, match=value.name):
            value(1)


@pytest.mark.parametrize("module", [isa, language])
def test_what_nobody_documents_is_no_attribute(module):
    with pytest.raises(AttributeError, match="nothing_such"):
        module.nothing_such  # noqa: B018
