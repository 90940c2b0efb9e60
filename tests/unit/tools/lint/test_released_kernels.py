"""Forms that AWS's released kernels contain are never denied, shown on snippets of each form.

``python -m conformance.linting`` reads the released files themselves (conformance/README.md).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from difftest.tools.lint.check import lint_source, rules
from difftest.tools.lint.files import Level, Levels
from difftest.tools.lint.rule import SDKS, Confidence
from difftest.tools.lint.source import Source
from tests.every import every

TODAY = """import nki
import nki.isa as nisa
import nki.language as nl
{imported}

@nki.jit{jit}
def kernel(x, y{annotation}):
    tile = nl.ndarray((128, 128), nl.float32, nl.sbuf)
    bank = nl.ndarray((128, 128), nl.float32, nl.psum)
    {line}
    return y
"""
CLASSIC = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    i, j = nl.mgrid[0:128, 0:64]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out[i, j], nl.load(x[i, j]), mask=(i < 9 and j < 9))
    return out
"""
BLOCKS = CLASSIC.replace(
    "i, j = nl",
    "a = nl.ndarray((2, nl.par_dim(128), 64), x.dtype, buffer=nl.sbuf)\n    i, j = nl",
).replace("i < 9 and j < 9", "i < 9")
TYPING = "import neuronxcc.nki.typing as nt"
_FORMS = {"imported": "", "jit": "", "annotation": "", "line": "pass"}


def today(**forms: str) -> str:
    return TODAY.format(**{**_FORMS, **forms})


SCALED = (
    "nisa.scalar_tensor_tensor(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, "
    "op1=nl.multiply, operand1=tile, {}=nl.float32)"
)
PRODUCT = "nisa.nc_matmul(dst=bank, stationary=tile, moving=tile, {}=3)"
ASSIGNED = "tile[0:64] = nisa.tensor_tensor(tile[0:64], tile[0:64], op=nl.add)"
DONE = {
    "mode of nki.jit": (today(jit="(mode='torchxla')"), "2.29", {"NKL115"}),
    "mode in a call of nki.jit": (
        today() + "run = nki.jit(kernel, mode='jax')\n",
        "2.32",
        {"NKL115"},
    ),
    "typing alone, 2.29": (
        today(imported=TYPING, annotation=": nt.mutable_tensor"),
        "2.29",
        set(),
    ),
    "typing alone, 2.32": (
        today(
            imported="from neuronxcc.nki import typing as nt",
            annotation=": nt.mutable_tensor",
        ),
        "2.32",
        set(),
    ),
    "is between tensors": (today(line="assert x is y"), "2.29", {"NKL106"}),
    "is with None": (today(line="assert x is not None"), "2.29", set()),
    "dtype of scalar_tensor_tensor": (
        today(line=SCALED.format("dtype")),
        "2.29",
        {"NKU308"},
    ),
    "dtype of tensor_copy, 2.29": (
        today(line="nisa.tensor_copy(dst=tile, src=tile, dtype=nl.float32)"),
        "2.29",
        {"NKU308"},
    ),
    "dtype of tensor_copy, 2.28": (
        today(line="nisa.tensor_copy(dst=tile, src=tile, dtype=nl.float32)"),
        "2.28",
        set(),
    ),
    "blocks before the partitions": (BLOCKS, "2.27", {"NKT205"}),
    "psumAccumulateFlag": (
        today(line=PRODUCT.format("psumAccumulateFlag")),
        "2.28",
        {"NKU308"},
    ),
    "is_moving_zero": (
        today(line=PRODUCT.format("is_moving_zero")),
        "2.28",
        {"NKU308"},
    ),
    "a result that is assigned": (today(line=ASSIGNED), "2.28", {"NKU308"}),
    "masks joined by and": (CLASSIC, "2.26", {"NKT201"}),
}
REFUSED = {
    "dtype of tensor_copy, 2.30": (
        today(line="nisa.tensor_copy(dst=tile, src=tile, dtype=nl.float32)"),
        "2.30",
        "NKU304",
    ),
    "platform_target of nki.jit": (
        today(jit="(platform_target='trn2')"),
        "2.29",
        "NKL113",
    ),
    "platform_target in a call": (
        today() + "run = nki.jit(platform_target='trn2')(kernel)\n",
        "2.29",
        "NKL113",
    ),
    "the classic dialect beside typing": (
        today(imported=f"{TYPING}\nimport neuronxcc.nki.isa as old"),
        "2.30",
        "NKU301",
    ),
    "another argument": (today(line=SCALED.format("reversed")), "2.29", "NKU307"),
    "a result that is assigned since 0.3": (today(line=ASSIGNED), "2.29", "NKU307"),
    "an argument that is missing": (
        today(line="nisa.tensor_tensor(tile)"),
        "2.28",
        "NKU307",
    ),
}


def levels_of(text: str, sdk: str) -> dict[str, Level]:
    levels = Levels({}, is_sdk_named=True, is_target_named=True)
    found = lint_source(Source(Path("kernel.py"), text), SDKS[sdk])
    return {one.id: levels.of(one.rule) for one in found}


@every("name", DONE)
def test_released_kernels_get_at_most_warnings(name: str) -> None:
    text, sdk, told = DONE[name]
    assert levels_of(text, sdk) == dict.fromkeys(told, Level.WARN)


@every("name", REFUSED)
def test_the_nearest_form_that_a_page_refuses_is_denied(name: str) -> None:
    text, sdk, id = REFUSED[name]
    assert levels_of(text, sdk)[id] is Level.DENY


@pytest.mark.parametrize("id", ["NKL106", "NKT201", "NKT205"])
def test_the_page_of_a_disputed_rule_names_the_kernels_that_break_it(id: str) -> None:
    assert rules()[id].confidence is Confidence.DISPUTED
    assert "AWS" in rules()[id].page.partition("```")[0].partition("- Sources")[2]
