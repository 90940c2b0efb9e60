"""The list of documented names, and what the simulator says of each."""

from __future__ import annotations

from collections import Counter

from difftest.api.documented import State, documented_names, states


def test_every_documented_name_is_there_once():
    """111 names and 9 dtypes of nki.language, 37 of nki.isa, 6 of nki."""
    names = [(one.module, one.name) for one in documented_names()]
    assert len(set(names)) == len(names) == 163
    assert Counter(one.module for one in documented_names()) == {
        "nki": 6,
        "nki.language": 120,
        "nki.isa": 37,
    }


def test_a_name_has_its_page():
    (matmul,) = (one for one in documented_names() if one.name == "nc_matmul")
    assert matmul.section == "NKI ISA"
    assert matmul.url.endswith("/en/v2.26.0/general/nki/api/generated/nki.isa.nc_matmul.html")


def test_the_states_are_the_modules_own():
    by_name = {f"{one.module}.{one.name}": state for one, state in states().items()}
    assert by_name["nki.isa.nc_matmul"] is State.MODELLED
    assert by_name["nki.language.fp32"] is State.MODELLED
    assert by_name["nki.language.all_reduce"] is State.MODELLED
    assert set(by_name.values()) == {State.MODELLED}


def test_no_documented_name_is_missing():
    missing = [one for one, state in states().items() if state is State.MISSING]
    assert missing == []


def test_a_name_that_the_simulator_does_not_know_is_missing(monkeypatch):
    from difftest.api import documented

    unknown = documented_names()[0]._replace(name="no_such_name")
    monkeypatch.setattr(documented, "documented_names", lambda: (unknown,))
    assert documented.states.__wrapped__() == {unknown: State.MISSING}
