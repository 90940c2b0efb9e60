"""The names that AWS documents for NKI, by dialect, and the simulator's support for each.

Source of ``data/names-v2.26.0.csv``: the summaries of ``general/nki/api/nki.rst``,
``nki.language.rst`` and ``nki.isa.rst`` in the public repository aws-neuron/aws-neuron-sdk at tag
v2.26.0, in their order and sections. Nine dtypes are listed there without an own page. Their page
is the table of dtypes in ``nki.api.shared.rst``.

Sources of ``data/names-v2.32.0.csv``, at tag v2.32.0: these summaries and ``nki.collectives.rst``
under ``nki/api``, and names found only in the stubs (``nki/*/__init__.py``).
"""

from __future__ import annotations

import sys
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from difftest.simulator import NotModelledError
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.arguments import Unmodelled
from difftest.support.csv_rows import csv_rows

_SITE = "https://awsdocs-neuron.readthedocs-hosted.com/en/"


class Dialect(NamedTuple):
    """A dialect of NKI: the tag of its documentation, and the location of its modules."""

    tag: str
    title: str
    package: str
    """The prefix of a documented module's name in imports."""
    folder: str
    """The folder of the pages on the site."""


CLASSIC = Dialect("v2.26.0", "the classic dialect", "neuronxcc.", "general/")
TODAY = Dialect("v2.32.0", "the current dialect", "", "")


class SupportState(Enum):
    """The simulator's support for a documented name."""

    MODELLED = "modelled"
    RAISES = "raises"
    """Using the name raises ``NotModelledError``."""
    MISSING = "missing"
    """The simulator does not have the name."""


class DocumentedName(NamedTuple):
    """A name that AWS documents."""

    module: str
    section: str
    name: str
    page: str
    """The page's path below the dialect's folder, without ``.html``."""
    dialect: Dialect = CLASSIC

    @property
    def url(self) -> str:
        return f"{_SITE}{self.dialect.tag}/{self.dialect.folder}{self.page}.html"


@cache
def documented_names(dialect: Dialect) -> tuple[DocumentedName, ...]:
    """Return the documented names of a dialect, in the order of its list."""
    rows = csv_rows(Path(__file__).parent / "data" / f"names-{dialect.tag}.csv")
    return tuple(DocumentedName(**row, dialect=dialect) for row in rows)


@cache
def support_states(dialect: Dialect) -> dict[DocumentedName, SupportState]:
    """Return the support state of each documented name, determined from the embedded modules."""
    names = documented_names(dialect)
    with embedded():
        modules = {
            entry.module: sys.modules[f"{dialect.package}{entry.module}"]
            for entry in names
        }
        return {
            entry: _support_state(modules[entry.module], entry.name) for entry in names
        }


def _support_state(module: object, name: str) -> SupportState:
    """Return how a module supports a name."""
    try:
        value = getattr(module, name)
    except NotModelledError:
        return SupportState.RAISES
    except AttributeError:
        return SupportState.MISSING
    if isinstance(value, Unmodelled):
        return SupportState.RAISES
    return SupportState.MODELLED
