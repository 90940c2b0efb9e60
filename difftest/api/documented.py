"""Every name that AWS documents of the classic dialect, and whether the simulator has it.

Source of ``data/names-v2.26.0.csv``: the summaries of ``general/nki/api/nki.rst``,
``nki.language.rst`` and ``nki.isa.rst`` in the public repository aws-neuron/aws-neuron-sdk at tag
v2.26.0, in their order and sections. Nine dtypes stand there without a page of their own; theirs
is the table of dtypes in ``nki.api.shared.rst``.
"""

from __future__ import annotations

import csv
import sys
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from difftest.simulator import NotModelledError
from difftest.simulator.frontend.install import embedded

TAG = "v2.26.0"
SITE = f"https://awsdocs-neuron.readthedocs-hosted.com/en/{TAG}/general/"


class State(Enum):
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
    """Below :data:`SITE`, without ``.html``."""

    @property
    def url(self) -> str:
        return f"{SITE}{self.page}.html"


@cache
def documented_names() -> tuple[DocumentedName, ...]:
    """Every row of ``data/names-v2.26.0.csv``."""
    text = (files("difftest.api") / "data" / f"names-{TAG}.csv").read_text(encoding="utf-8")
    return tuple(DocumentedName(**row) for row in csv.DictReader(text.splitlines()))


@cache
def states() -> dict[DocumentedName, State]:
    """Each documented name, asked of the embedded modules."""
    with embedded():
        modules = {one.module: sys.modules[f"neuronxcc.{one.module}"] for one in documented_names()}
        return {one: _state(modules[one.module], one.name) for one in documented_names()}


def _state(module: object, name: str) -> State:
    try:
        getattr(module, name)
    except NotModelledError:
        return State.RAISES
    except AttributeError:
        return State.MISSING
    return State.MODELLED
