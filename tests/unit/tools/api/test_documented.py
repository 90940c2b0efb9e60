"""The list of documented names, and the simulator's support for each."""

from collections import Counter

from difftest.tools.api import documented
from difftest.tools.api.documented import (
    CLASSIC,
    TODAY,
    SupportState,
    documented_names,
    support_states,
)
from tests.every import every


@every(
    "dialect, modules",
    [
        (CLASSIC, {"nki", "nki.language", "nki.isa"}),
        (TODAY, {"nki", "nki.language", "nki.isa", "nki.collectives"}),
    ],
)
def test_every_documented_name_is_there_once(dialect, modules):
    names = [(one.module, one.name) for one in documented_names(dialect)]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert {module for module, _ in names} == modules


@every(
    "dialect, page",
    [
        (CLASSIC, "/en/v2.26.0/general/nki/api/generated/nki.isa.nc_matmul.html"),
        (TODAY, "/en/v2.32.0/nki/api/generated/nki.isa.nc_matmul.html"),
    ],
)
def test_a_name_has_its_page(dialect, page):
    (matmul,) = (one for one in documented_names(dialect) if one.name == "nc_matmul")
    assert matmul.section == "NKI ISA"
    assert matmul.url.endswith(page)


def by_name(dialect):
    return {
        f"{one.module}.{one.name}": state
        for one, state in support_states(dialect).items()
    }


def test_the_states_are_the_modules_own():
    classic = by_name(CLASSIC)
    today = by_name(TODAY)
    assert set(classic.values()) == {SupportState.MODELLED}
    assert set(today.values()) == {SupportState.MODELLED}
    assert "nki.isa.topk" in today


def test_a_name_that_refuses_to_be_used_raises(monkeypatch):
    later = documented_names(TODAY)[0]._replace(module="nki.language", name="int64")
    monkeypatch.setattr(documented, "documented_names", lambda dialect: (later,))
    assert documented.support_states.__wrapped__(TODAY) == {later: SupportState.RAISES}


def test_a_name_that_the_simulator_does_not_know_is_missing(monkeypatch):
    unknown = documented_names(TODAY)[0]._replace(name="no_such_name")
    monkeypatch.setattr(documented, "documented_names", lambda dialect: (unknown,))
    assert documented.support_states.__wrapped__(TODAY) == {
        unknown: SupportState.MISSING
    }
