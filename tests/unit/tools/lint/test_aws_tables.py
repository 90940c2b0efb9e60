"""Each row of AWS's two tables for authors of kernels has a counterpart here.

The rows are from aws-neuron/neuron-agentic-development at 1598b060: in
``skills/neuron-nki-writing/references/nki-language-constraint.md`` (NKI 0.4) and in
``skills/neuron-nki-debugging/references/compiler-error-codes.md``, by subject.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from difftest.testing.backends.codes import CODES
from difftest.tools.lint.check import rules

PAGE = Path(__file__).parents[4] / "docs/contributing/lint-aws-tables.md"
ROWS = {
    "Removed from the current dialect": (
        "import neuronxcc.nki",
        "nl.load",
        "nl.store",
        "result = nisa.func(",
        "nl.mgrid",
        "nl.arange",
        "mask=",
        "nl.max",
        "nl.min",
        "nl.reciprocal",
        "nl.rsqrt",
        "negate=",
        "reverse0=",
        "dtype=",
        "np.float32",
        "np.add",
        "@nki.jit",
        "neuronxcc.nki.typing",
    ),
    "From 0.2 to 0.3": (
        "platform_target=",
        "mode=",
        "nisa.dma_copy` from PSUM",
        "dst_rmw_op=",
        "strings",
        "unique_indices=",
        "numbers for enumerations",
        "nl.hbm",
        "imm=",
        "use_gpsimd_dma=",
        "tensor_copy_dynamic_src",
        "tensor_copy_dynamic_dst",
        "nisa.memset",
        "keyword-only",
        "`is`",
        "`is not`",
        "lists as defaults",
        "num_channels=",
        "hwdge",
        "tensor_reduce",
        "dma_compute",
        "affine_select",
    ),
    "From 0.3 to 0.4, and later": (
        "nisa.dma_transpose",
        "neuronxcc.nki",
        "total_available_sbuf_size",
        "nl.dynamic_range",
        "`while`",
        "dge_mode",
        "engine=nisa.dge",
        "accumulate=True",
        "not the degree",
        "carries",
        "loop's variable",
        "nl.no_reorder",
        "made inside",
        "names of operations",
        "register_alloc",
        "nl.tile_size.sbuf_fmax",
    ),
}
AWS_CODES = (
    *(
        f"NCC_EVRF{n:03}"
        for n in (1, 4, 5, 6, 7, 9, 10, 11, 13, 15, 16, 17, 18, 19, 22, 24, 31)
    ),
    "NCC_EOOM001",
    "NCC_EOOM002",
    "NCC_EARG001",
    "NCC_EBVF030",
    "NCC_EHCA005",
    "NCC_ESFH002",
    "NCC_ESPP004",
    "NCC_ESPP047",
    "NCC_EUOC002",
    "NCC_EXSP001",
    "NCC_EXTP004",
)


def unsaid(text: str) -> list[str]:
    """Return the rows of AWS's tables without a counterpart on a page."""
    sections = {
        one.partition("\n")[0]: one for one in re.split(r"^## ", text, flags=re.M)
    }
    first = {
        title: "\n".join(re.findall(r"^\| (.*?) \| ", sections.get(title, ""), re.M))
        for title in ROWS
    }
    return [
        row for title, rows in ROWS.items() for row in rows if row not in first[title]
    ]


def test_each_row_has_one_here() -> None:
    assert unsaid(PAGE.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("row", ["| `mask=` |", "| keyword-only parameters |"])
def test_a_row_that_is_left_out_is_missed(row: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert row in text
    assert len(unsaid(text.replace(row, "| another |"))) == 1


def test_each_row_is_a_rule_or_has_a_reason() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Codes")[0]
    answers = re.findall(r"^\| .*? \| (.+) \|$", text, re.M)
    named = {id for answer in answers for id in re.findall(r"NK[A-Z]\d{3}", answer)}
    assert named <= set(rules())
    # the last heads a table
    said = (
        "no rule: ",
        "the simulator ",
        "difftest ",
        "here",
    )
    silent = [one for one in answers if not re.search(r"NK[A-Z]\d{3}", one)]
    assert [one for one in silent if not any(part in one for part in said)] == []
    assert len(answers) > 40


def test_each_code_is_explained() -> None:
    assert len(AWS_CODES) == 28
    assert [code for code in AWS_CODES if code not in CODES] == []
