"""Bugs of convolutions, planted in the production kernel, one change of its source each."""

import types
from dataclasses import replace

import pytest

from difftest.case import Case
from difftest.recipes import Fill, Zeros
from difftest.spec import KernelSpec
from difftest.simulator.frontend.install import embedded
from reference.conv2d_maxpool import conv2d_maxpool
from tests.kernels.layers import DTYPES, INPUTS, PARAMETERS, layer, layers, roundings
from tests.meta.search import smallest_failure

with embedded():
    from kernels import conv2d

SMALLEST = layer(C=128, O=128, F=1, V=1, H=1)
SMALL_BLOCKS = {"BLOCK_BYTES = 16 * 1024": "BLOCK_BYTES = 256"}
"""So that images of a few rows need several blocks."""


def planted(changes: dict[str, str]):
    """The production kernel with these changes of its source; each must fit one place."""
    with open(conv2d.__file__, encoding="utf-8") as file:
        source = file.read()
    for old, new in changes.items():
        assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in the kernel"
        source = source.replace(old, new)
    module = types.ModuleType("planted")
    with embedded():
        exec(compile(source, conv2d.__file__, "exec"), vars(module))
    return module.fused_conv2d_maxpool


def spec_of(kernel) -> KernelSpec:
    return KernelSpec(
        kernel=kernel,
        reference=conv2d_maxpool,
        domain=layers(most_products=2**23),
        inputs=INPUTS,
        parameters=PARAMETERS,
        dtypes=DTYPES,
        reduction=roundings,
    )

