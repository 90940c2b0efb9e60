"""Every name that AWS documents of NKI, by dialect, and whether the simulator has it.

Source of ``data/names-v2.26.0.csv``: the summaries of ``general/nki/api/nki.rst``,
``nki.language.rst`` and ``nki.isa.rst`` in the public repository aws-neuron/aws-neuron-sdk at tag
v2.26.0, in their order and sections. Nine dtypes stand there without a page of their own; theirs
is the table of dtypes in ``nki.api.shared.rst``. Source of ``data/names-v2.32.0.csv``: the same
summaries and that of ``nki.collectives.rst`` under ``nki/api`` at tag v2.32.0, and the names that
the stubs beside them (``nki/*/__init__.py``) have and no summary lists.
"""

from __future__ import annotations

import csv
import sys
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from difftest.simulator import NotModelledError
from difftest.simulator.entry.install import embedded
from difftest.simulator.frontend.arguments import Unmodelled

_SITE = "https://awsdocs-neuron.readthedocs-hosted.com/en/"


class Dialect(NamedTuple):
    """A dialect of NKI: the tag that documents it, and where its modules are."""

    tag: str
    title: str
    package: str
    """In front of a documented module's name, where kernels import it from."""
    folder: str
    """Of the site, above the pages."""


CLASSIC = Dialect("v2.26.0", "the classic dialect", "neuronxcc.", "general/")
TODAY = Dialect("v2.32.0", "today's dialect", "", "")


class SupportState(Enum):
    """What becomes of a kernel that uses a name."""

    MODELLED = "modelled"
    RAISES = "raises"
    """Its use is an error that says so."""
    MISSING = "missing"
    """The simulator does not know it."""


class DocumentedName(NamedTuple):
    """One documented name."""

    module: str
    section: str
    name: str
    page: str
    """Below the dialect's folder of the site, without ``.html``."""
    dialect: Dialect = CLASSIC

    @property
    def url(self) -> str:
        return f"{_SITE}{self.dialect.tag}/{self.dialect.folder}{self.page}.html"


@cache
def documented_names(dialect: Dialect) -> tuple[DocumentedName, ...]:
    """Every row of the dialect's list."""
    file = files("difftest.tools.api") / "data" / f"names-{dialect.tag}.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return tuple(DocumentedName(**row, dialect=dialect) for row in rows)


@cache
def support_states(dialect: Dialect) -> dict[DocumentedName, SupportState]:
    """Each documented name of a dialect, asked of the embedded modules."""
    names = documented_names(dialect)
    with embedded():
        modules = {entry.module: sys.modules[f"{dialect.package}{entry.module}"] for entry in names}
        return {entry: _state(modules[entry.module], entry.name) for entry in names}


def _state(module: object, name: str) -> SupportState:
    try:
        value = getattr(module, name)
    except NotModelledError:
        return SupportState.RAISES
    except AttributeError:
        return SupportState.MISSING
    return SupportState.RAISES if isinstance(value, Unmodelled) else SupportState.MODELLED
