"""The module that kernels import as ``nki.language`` (usually ``nl``), current dialect."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from difftest.simulator import dtypes
from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.arguments import unmodelled
from difftest.simulator.frontend.levels import LIFETIMES, api_of, check_name, ending
from difftest.simulator.frontend.nki.constants import MemoryRegion, NKIObject
from difftest.simulator.frontend.nki.language.creation import GRIDS, TileSizes
from difftest.simulator.frontend.nki.language.functions import FUNCTIONS
from difftest.simulator.frontend.nki.tensor import NkiTensor
from difftest.simulator.frontend.nki.virtual_registers import NkiScalar
from difftest.simulator.strictness import report_violation

_PLAIN = ("float32", "float16", "int8", "int16", "int32", "uint8", "uint16", "uint32")
_NARROW = (
    "bfloat16",
    "tfloat32",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fn_x4",
    "float8_e5m2_x4",
    "float4_e2m1fn_x4",
)
_DOCUMENTED = unmodelled("nki.language", ["int64", "uint64"])
"""Names that AWS documents (at v2.33) and the simulator does not model."""
_CHECKED: dict[str, Any] = {
    "float8_e8m0fnu": dtypes.FLOAT8_E8M0FNU,
    **GRIDS,
    **_DOCUMENTED,
    **{
        name: function
        for name, function in FUNCTIONS.items()
        if f"nl.{name}" in LIFETIMES
    },
}
"""Names whose accesses are checked, because some levels lack them."""

NAMES: dict[str, Any] = {
    "DType": np.dtype,  # for annotations; AWS's is a string
    "MemoryRegion": MemoryRegion,
    "NKIObject": NKIObject,
    "NkiScalar": NkiScalar,
    "NkiTensor": NkiTensor,
    "bool_": dtypes.BOOL,
    **{name: np.dtype(name) for name in _PLAIN},
    **{name: getattr(dtypes, name.upper()) for name in _NARROW},
    **{region.name: region for region in MemoryRegion},
    "hbm": MemoryRegion.private_hbm,
    "tile_size": TileSizes(),
    **api_of(sys.modules[__name__], "nl"),
    **FUNCTIONS,
}
"""All names of ``nki.language``, at any level."""
for _name in _CHECKED.keys() & NAMES.keys():
    del NAMES[_name]
globals().update(NAMES)
__all__ = sorted(NAMES)


def __getattr__(name: str) -> Any:
    check_name(f"nl.{name}")
    if name in _CHECKED:
        return _CHECKED[name]
    if name == "range":
        report_violation(
            missing_name(
                "nki.language", name, (), ended=" that AWS documents: use range"
            )
        )
        return range
    names = [*NAMES, *_CHECKED]
    raise missing_name("nki.language", name, names, ended=ending(f"nl.{name}"))
