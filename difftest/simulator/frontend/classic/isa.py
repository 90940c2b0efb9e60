"""The module that kernels import as ``neuronxcc.nki.isa`` (usually ``nisa``), classic dialect.

Signatures are those of AWS's documentation at tag v2.26.0; each call allocates a result and lets
the instruction of :mod:`difftest.simulator.instructions` write to it.
"""

from __future__ import annotations

import types

from difftest.simulator.frontend.arguments import (
    absent,
    dge_mode,
    engine,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from difftest.simulator.frontend.classic.calls import ISA
from difftest.simulator.frontend.classic.language import fp32
from difftest.simulator.frontend.dispatch import as_called, publish

constants = types.SimpleNamespace(
    engine=engine,
    dge_mode=dge_mode,
    oob_mode=oob_mode,
    reduce_cmd=reduce_cmd,
    nc_version=nc_version,
)
__getattr__ = absent("nki.isa", frozenset({"builtin_custom_op", "dma_engine"}), globals())
publish(
    globals(),
    {
        **vars(constants),
        **{f"{member.name}_engine": member for member in engine if member is not engine.sync},
        **as_called("nisa", ISA),
        "constants": constants,
        "fp32": fp32,
    },
)
