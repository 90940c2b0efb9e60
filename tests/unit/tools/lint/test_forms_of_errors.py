"""Documented classic errors in each form that AWS's page gives (nki.errors.rst at v2.26.0)."""

import ast

import pytest

from difftest.tools.lint.check import lint_source
from difftest.tools.lint.rule import SDKS
from difftest.tools.lint.source import Source
from tests.every import every

HEAD = """import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt

"""
PLACED = """
@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((nl.par_dim(128), 64), dtype=x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    tile[...] = nl.load(x)
    {}
    nl.store(out, tile)
    return out
"""
MADE = """
def made(x, buffer):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer)

@nki.jit
def kernel(x):
    out = {}
    nl.store(out, nl.load(x))
    return out
"""
MANY_MADE = """
def made(x, buffer):
{}
    return out

@nki.jit
def kernel(x):
    return made(x, nl.shared_hbm)
"""
OWN = "nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)"
ANNOTATED = """
@nki.jit
def kernel(x):
    out = nl.ndarray((128, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    part: nt.tensor[{}] = {}
    nl.store(out, part)
    return out
"""
TRANSPOSED = """
@nki.jit
def kernel(x):
    out = nl.ndarray((64, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nisa.iota(nl.arange(128)[:, None], dtype=nl.uint32)
    j = nl.arange(64)[None, :]
    nl.store(out, {}(x[{}, j]))
    return out
"""
ROWS = "nl.arange(128)[:, None]"


def found(text, tmp_path, sdk="2.26"):
    return [
        one.id
        for one in lint_source(Source(tmp_path / "kernel.py", HEAD + text), SDKS[sdk])
    ]


@every(
    "text, id, is_wrong",
    [
        (ANNOTATED.format("128, 512", "tile[:, 0:32]"), "NKT206", True),
        (ANNOTATED.format("128, 512", "tile[0:128, 0:32]"), "NKT206", True),
        (ANNOTATED.format("128, 512", "nl.load(x[0:128, 0:32])"), "NKT206", True),
        (
            ANNOTATED.format("128, 512", "nl.zeros((nl.par_dim(128), 32), x.dtype)"),
            "NKT206",
            True,
        ),
        (ANNOTATED.format("128, 32", "tile[:, 0:32]"), "NKT206", False),
        (ANNOTATED.format("128, 32", "tile[:, n:32]"), "NKT206", False),
        (ANNOTATED.format("32", "tile[0, 0:32]"), "NKT206", False),
        (
            PLACED.format("tile[...] = nisa.activation(np.exp, data=tile[...])"),
            "NKT210",
            True,
        ),
        (PLACED.format("tile[...] = nl.exp(tile[...])"), "NKT210", True),
        (PLACED.format("fill(tile)"), "NKT210", False),
        (MADE.format("made(x, nl.shared_hbm)"), "NKT203", True),
        (MADE.format("made(x, buffer=nl.shared_hbm)"), "NKT203", True),
        (MADE.format(OWN), "NKT203", False),
        (TRANSPOSED.format("nl.load_transpose2d", "rows"), "NKT216", True),
        (TRANSPOSED.format("nisa.dma_transpose", "rows"), "NKT216", True),
        (TRANSPOSED.format("nisa.dma_transpose", ROWS), "NKT216", False),
    ],
)
def test_each_form_is_reported_and_its_fix_is_not(text, id, is_wrong, tmp_path):
    assert (id in found(text, tmp_path)) is is_wrong


def test_a_helper_of_a_kernel_that_places_its_tensors_names_its_bias(tmp_path):
    helper = (
        "def fill(tile):\n    tile[...] = nisa.activation(np.exp, data=tile[...])\n"
    )
    assert found(helper + PLACED.format("fill(tile)"), tmp_path) == ["NKT210"]
    plain = PLACED.replace(", buffer=ncc.sbuf.mod_alloc(base_addr=0)", "")
    assert "NKT210" not in found(helper + plain.format("fill(tile)"), tmp_path)


def test_a_transpose_by_indices_is_the_apis_since_2_27(tmp_path):
    text = TRANSPOSED.format("nisa.dma_transpose", "rows")
    assert "NKT216" not in found(text, tmp_path, "2.27")


@pytest.mark.parametrize("count", [4, 64])
def test_a_file_is_walked_no_more_often_for_more_calls(count, tmp_path, monkeypatch):
    walked = []
    walk = ast.walk
    monkeypatch.setattr(ast, "walk", lambda node: walked.append(node) or walk(node))
    text = MANY_MADE.format(
        "    out = nl.zeros(x.shape, x.dtype, buffer=buffer)\n" * count
    )
    source = Source(tmp_path / "kernel.py", HEAD + text)
    assert len(lint_source(source, SDKS["2.26"])) == count
    assert sum(isinstance(node, ast.Module) for node in walked) <= 5
