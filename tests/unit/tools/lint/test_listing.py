"""The generated page of all rules is complete, and its table of refusals is correct."""

from __future__ import annotations

import re
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from difftest.simulator import MACHINES, NkiError, launch
from difftest.simulator.entry.install import embedded
from difftest.simulator.strictness import RuleWarning
from difftest.tools.lint.check import rules
from difftest.tools.lint.formats import REFUSALS, rules_page
from tests.every import every


def test_each_rule_has_a_row_and_a_place() -> None:
    page = rules_page()
    assert {*re.findall(r"^\| \[(\w+)\]\(#\1\) ", page, re.MULTILINE)} == set(rules())
    assert re.findall(r'^<a id="(\w+)"></a>$', page, re.MULTILINE) == list(rules())


@every("row", REFUSALS)
def test_each_refusal_is_looked_for_or_says_why_not(row: dict[str, str]) -> None:
    assert (
        bool(row["rules"]) + bool(row["reason"]) + (row["simulator"] != "runs it") == 1
    )
    assert set(row["rules"].split()) <= set(rules())


KERNEL = """
import nki.isa as nisa
import nki.language as nl


def kernel(x):
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    a = nl.ndarray(x.shape, x.dtype, nl.sbuf)
    p = nl.ndarray(x.shape, nl.float32, nl.psum)
    nisa.dma_copy(dst=a, src=x)
    nisa.tensor_copy(dst=p, src=a)
    {body}
    nisa.dma_copy(dst=out, src=a)
    return out
"""
COLUMN = "c = nl.ndarray((128, 1), {}, nl.sbuf); nisa.memset(c, 1.0); "
CAST = "c = nl.ndarray((128, 64), {}, nl.sbuf); nisa.tensor_copy(c, a); "
REFUSED = {
    "two operands of a Vector instruction in PSUM": (
        "trn1",
        "nisa.tensor_tensor(a, p, p, nl.add)",
    ),
    "tensor_copy on the Scalar Engine": (
        "trn1",
        "nisa.tensor_copy(a, p, engine=nisa.engine.scalar)",
    ),
    "operand0 of tensor_scalar in bfloat16": (
        "trn2",
        COLUMN.format("nl.bfloat16") + "nisa.tensor_scalar(a, a, nl.add, c)",
    ),
    "range_select": (
        "trn1",
        COLUMN.format("nl.float32")
        + "nisa.range_select(a, a, nl.greater, nl.less, c, c, reduce_res=c)",
    ),
    "MX matmuls": ("trn2", "nisa.nc_matmul_mx(p[0:64], a, a, a, a)"),
    "tiles of 32 x 32 of the PE array": (
        "trn1",
        "nisa.nc_matmul(p[0:32, 0:32], a[0:32, 0:32], a[0:32, 0:32], "
        "tile_position=(0, 0), tile_size=(32, 32))",
    ),
    "a transpose that changes the dtype": (
        "trn2",
        CAST.format("nl.bfloat16")
        + "q = nl.ndarray((64, 128), nl.float32, nl.psum); nisa.nc_transpose(q, c)",
    ),
    "a float8_e4m3fn operand of a matmul": (
        "trn2",
        CAST.format("nl.float8_e4m3fn") + "nisa.nc_matmul(p[0:64], c, c)",
    ),
    "dge_mode.hwdge; on trn2 with an offset for each row": (
        "trn1",
        "nisa.dma_copy(a, x, dge_mode=nisa.dge_mode.hwdge)",
    ),
    "a pattern on chip whose first step is not the row": (
        "trn2",
        "nisa.tensor_copy(a[:, 0:32], a.ap([[32, 128], [1, 32]]))",
    ),
    "an address over the scratch of software DMAs": (
        "trn2",
        "nl.ndarray((128, 64), nl.float32, nl.sbuf, address=(0, 228864))",
    ),
}


@every("row", [row for row in REFUSALS if row["simulator"] != "runs it"])
def test_the_simulator_rejects_what_the_page_states(
    row: dict[str, str], tmp_path: Path
) -> None:
    machine, body = REFUSED[row["what"]]
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL.format(body=body))
    spec = spec_from_file_location("kernel", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with embedded(), warnings.catch_warnings():
        warnings.simplefilter("error", RuleWarning)
        spec.loader.exec_module(module)
        with pytest.raises((NkiError, RuleWarning)):
            launch(
                module.kernel,
                [np.ones((128, 64), np.float32)],
                machine=MACHINES[machine],
            )
