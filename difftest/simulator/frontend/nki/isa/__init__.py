"""The module that kernels import as ``nki.isa`` (usually ``nisa``), current dialect."""

from __future__ import annotations

import sys

from difftest.simulator.core import current
from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.levels import api_of, ending, public
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.constants import NkiInstruction
from difftest.simulator.frontend.nki.dynamic import NkiValidationError
from difftest.simulator.frontend.nki.virtual_registers import VirtualRegister


@public  # by hand: depends on the launch
def get_nc_version():
    """Return the generation of the running machine: a member of ``nisa.nc_version``."""
    return constants.nc_version(current().machine.nc_version)


@public  # by hand: depends on the launch
def get_nc_sub_version():
    """Return the revision of the silicon: the first."""
    return 0


NAMES = {
    "NkiInstruction": NkiInstruction,
    "NkiValidationError": NkiValidationError,
    "VirtualRegister": VirtualRegister,
    "constants": constants,
    "dependency": constants.dependency,
    **constants.ENUMERATIONS,
    **{
        f"{name}_engine": constants.engine[name]
        for name in ("tensor", "vector", "scalar", "gpsimd", "unknown")
    },
    **api_of(sys.modules[__name__], "nisa"),
}
"""All names of ``nki.isa``."""
globals().update(NAMES)
__all__ = sorted(NAMES)


def __getattr__(name):
    raise missing_name("nki.isa", name, __all__, ended=ending(f"nisa.{name}"))
