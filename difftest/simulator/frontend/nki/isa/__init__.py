"""The module that kernels import as ``nki.isa`` (usually ``nisa``), today's dialect."""

from __future__ import annotations

import sys

from difftest.simulator.core import current
from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.levels import api_of, ending, public
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.constants import NkiInstruction
from difftest.simulator.frontend.nki.dynamic import NkiValidationError
from difftest.simulator.frontend.nki.virtual_registers import VirtualRegister


@public  # by hand: of the launch
def get_nc_version():
    """The generation of the machine that runs: a member of ``nisa.nc_version``."""
    return constants.nc_version(current().machine.nc_version)


@public  # by hand: of the launch
def get_nc_sub_version():
    """The revision of the silicon: the first."""
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
"""All that kernels find in ``nki.isa``."""
globals().update(NAMES)
__all__ = sorted(NAMES)


def __getattr__(name):
    raise missing_name("nki.isa", name, __all__, ended=ending(f"nisa.{name}"))
