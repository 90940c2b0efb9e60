"""Right kernels that resemble the wrong kernel of a rule's page: no rule reports them."""

from __future__ import annotations

from pathlib import Path

from difftest.tools.lint.check import lint_source, lint_trace, rules
from difftest.tools.lint.files import rule_ids
from difftest.tools.lint.rule import NEWEST
from difftest.tools.lint.source import Source
from tests.every import every
from tests.unit.tools.lint.test_pages import launched

HEAD = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
{}    nisa.dma_copy(dst=out, src=tile)
    return out
"""
RUNS = [
    # A scatter: the offset is dst's, in HBM. nki-library 2.29, subkernels/indexed_flatten.py.
    (
        "NKI529",
        """
    at = nl.ndarray((1, 1), nl.int32, nl.sbuf)
    nisa.memset(at, 0)
    nisa.dma_copy(dst=out, src=tile)
    part = nl.ndarray((64, 32), x.dtype, nl.sbuf)
    nisa.tensor_copy(part, tile[0:64, 0:32])
    nisa.dma_copy(dst=out.ap([[64, 64], [1, 32]], scalar_offset=at, indirect_dim=1), src=part)
""",
    ),
    # The rows of SBUF are partitions. nki-library 2.29, subkernels/norm_tkg_utils.py, 24 columns.
    (
        "NKI527",
        """
    short = nl.ndarray((24, 64), nl.bfloat16, nl.sbuf)
    nisa.tensor_copy(short, tile[0:24])
    turned = nl.ndarray((64, 24), nl.bfloat16, nl.sbuf)
    nisa.dma_transpose(turned, short)
""",
    ),
]
MOVES = [
    f"    for i in range(2):\n        {body}\n"
    for body in (
        "nisa.dma_copy(dst=tile[:, i : i + 1], src=x[:, i : i + 1])",  # a column
        "nisa.dma_copy(dst=tile[0:1, i : i + 2], src=x[0:1, i : i + 2])",  # two elements
        "nisa.dma_copy(dst=tile[0:1, i : i + 1], src=tile[1:2, i : i + 1])",  # inside SBUF
        "nisa.dma_copy(dst=tile, src=x[i : i + 1])",  # another row each time
        "row = nl.load(x[0:1]) if i else None",  # not in each turn
        "nisa.dma_copy(dst=tile, src=x); nisa.tensor_copy(dst=tile, src=out)",  # filled again
        "nisa.dma_copy(dst=x, src=tile); nisa.dma_copy(dst=tile, src=x)",  # written before
        "first += 1; nisa.dma_copy(dst=tile, src=x[first : first + 1])",
        "nisa.dma_copy(dst=tile, src=out)",  # no argument: the loop may write it elsewhere
    )
]
MOVES.append(
    "    for row in range(2):\n        if row:\n            nisa.dma_copy(dst=tile, src=x)\n"
)


@every("run", RUNS)
def test_no_rule_of_traces_is_broken(run: tuple[str, str], tmp_path: Path) -> None:
    id, body = run
    result = launched(HEAD.format(body.lstrip("\n")), rules()[id], tmp_path)
    assert len(result.trace) > 3
    assert lint_trace(result.trace) == []


@every("body", MOVES)
def test_no_rule_of_performance_is_broken(body: str) -> None:
    source = Source(Path("kernel.py"), HEAD.format(body))
    assert lint_source(source, NEWEST, None, rule_ids(["performance"])) == []


@every(
    "body",
    [
        "    for i in range(2):\n        row = nl.load(x[0:1])\n",
        "    for i in range(2):\n        nisa.dma_copy(tile, x)\n",
        "    for i in range(2):\n        nisa.dma_copy(tile[0:1, 3:4], x[i : i + 1, 3:4])\n",
        "    for i in range(2):\n        nl.store(out[0:1, i : i + 1], tile)\n",
    ],
)
def test_slow_code_is_reported_in_each_form(body: str) -> None:
    source = Source(Path("kernel.py"), HEAD.format(body))
    assert [
        one.line for one in lint_source(source, NEWEST, None, rule_ids(["performance"]))
    ] == [12]
