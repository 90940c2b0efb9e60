"""The report of wrong values names the kernel's line that wrote the first wrong element last."""

import re
from pathlib import Path

import numpy as np
import pytest

import difftest
from difftest import DifferentialFailure, KernelSpec
from difftest.simulator.entry.install import embedded
from tests.every import every

with embedded():
    import nki
    import nki.isa as nisa
    import nki.language as nl

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


def loaded(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def outputs_of(x, count=1):
    made = [
        nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(count)
    ]
    return made if count > 1 else made[0]


@nki.jit
def twice(x):
    """Its right half is written once more."""
    out = outputs_of(x)
    tile = loaded(x)
    nisa.dma_copy(dst=out, src=tile)
    nisa.dma_copy(dst=out[:, 4:8], src=tile[:, 0:4])  # last: twice
    return out


@nki.jit
def swapped(x):
    """Returns the tensor that it made last first, of the same shape."""
    (first, second), tile = outputs_of(x, 2), loaded(x)
    nisa.dma_copy(dst=second[:, 0:8], src=tile)
    nisa.dma_copy(dst=second[:, 4:8], src=tile[:, 0:4])  # last: swapped
    nisa.dma_copy(dst=first, src=tile)
    return second, first


@nki.jit
def part(x):
    """Returns the right part of a wider tensor, in an order of its own."""
    out = nl.ndarray((4, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = loaded(x)
    nisa.dma_copy(dst=out[:, 0:8], src=tile)
    nisa.dma_copy(dst=out[:, 8:16], src=tile)
    nisa.dma_copy(dst=out[:, 12:16], src=tile[:, 0:4])  # last: part
    return out[:, 8:16]


@nki.jit
def viewed(x):
    """Writes the bits of its right half as numbers of another dtype."""
    out = outputs_of(x)
    tile = loaded(x)
    nisa.dma_copy(dst=out, src=tile)
    words = tile.view(nl.uint32)
    nisa.dma_copy(dst=out.view(nl.uint32)[:, 4:8], src=words[:, 0:4])  # last: viewed
    return out


@nki.jit
def given(x, out):
    """Writes to an argument."""
    tile = loaded(x)
    nisa.dma_copy(dst=out, src=tile)
    nisa.dma_copy(dst=out[:, 4:8], src=tile[:, 0:4])  # last: given


@nki.jit
def updated(x, total):
    """Returns one tensor, and writes to an argument of the same shape last."""
    out = outputs_of(x)
    tile = loaded(x)
    nisa.dma_copy(dst=out, src=tile)
    nisa.dma_copy(dst=total, src=tile)
    nisa.dma_copy(dst=total[:, 4:8], src=tile[:, 0:4])  # last: updated
    return total, out


@nki.jit
def beside(x, total):
    """Returns a wrong tensor after an argument that it updates."""
    out = outputs_of(x)
    tile = loaded(x)
    nisa.dma_copy(dst=total, src=tile)
    nisa.dma_copy(dst=out, src=tile)
    nisa.dma_copy(dst=out[:, 4:8], src=tile[:, 0:4])  # last: beside
    return total, out


def spec_of(kernel, **more):
    return KernelSpec(
        kernel=kernel,
        reference=lambda x: (x, x) if kernel in (swapped, updated, beside) else x,
        domain={"n": (8,)},
        inputs={"x": "4 n"},
        **more,
    )


@every(
    "kernel, more",
    [
        (twice, {}),
        (swapped, {}),
        (viewed, {}),
        (part, {}),
        (given, {"outputs": {"out": "4 n"}}),
        (updated, {"outputs": {"total": "4 n"}}),
        (beside, {"outputs": {"total": "4 n"}}),
    ],
)
def test_the_report_names_the_last_writer(kernel, more):
    with pytest.raises(DifferentialFailure) as failure:
        difftest.check(spec_of(kernel, **more), {"n": 8})
    text = str(failure.value)
    written = re.search(
        r"^  written by:  \S*test_writers\.py:(\d+): nisa\.", text, re.M
    )
    assert written, text
    assert LINES[int(written[1]) - 1].endswith(f"# last: {kernel.__name__}")


@nki.jit
def half(x):
    out = outputs_of(x)
    tile = loaded(x)
    nisa.dma_copy(dst=out[:, 0:4], src=tile[:, 0:4])
    return out


def test_an_unwritten_element_names_no_line():
    with pytest.raises(DifferentialFailure, match="never wrote") as failure:
        difftest.check(spec_of(half), {"n": 8})
    assert "written by" not in str(failure.value)


def test_no_line_is_named_where_elements_are_not_compared():
    spec = spec_of(twice, output_dtype="float16")
    with pytest.raises(DifferentialFailure) as failure:
        difftest.check(spec, {"n": 8})
    assert "written by" not in str(failure.value)
    assert np.dtype("float16").name in str(failure.value)
