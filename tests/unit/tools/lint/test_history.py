"""Names and arguments have the levels of AWS's stubs, as ``conformance.history`` reads them."""

from __future__ import annotations

import ast
import csv
import re

from conformance.history import TABLE, TAGS, _declared
from difftest.simulator.frontend.levels import LIFETIMES
from difftest.tools.lint.check import rules
from difftest.tools.lint.files import Level, Levels
from tests.every import every
from tests.unit.tools.lint.test_type_inference import broken

with TABLE.open(encoding="utf-8", newline="") as _file:
    STUBS = {
        row["name"]: (row["since"], row["ended"] or None)
        for row in csv.DictReader(_file)
    }
NAME = re.compile(r"(nl|nisa|ncc)\.[\w.]+(\(\w+\))?$")
GUIDE = {
    "nl.par_dim",
    "nl.dynamic_range",
    "nisa.tensor_copy(dtype)",
    "nisa.sendrecv(use_gpsimd_dma)",
    "nisa.tensor_copy_dynamic_dst",
    "nisa.tensor_copy_dynamic_src",
}
"""Names of the migration guide and the pages: stubs declare none of them, or all."""
NO_ROW = {
    "ncc.NKIObject",
    "nisa.NKIObject",
    "nisa.NkiInstruction",
    "nisa.NkiInstruction.depends_on",
    "nl.DType",
    "nl.shared_constant(dtype)",
    *(f"nl.NkiTensor.{name}" for name in ("device_value", "is_identity", "sim_value")),
}
"""Names without a page: classes of annotations, methods of one stub, a function without a 0.3."""


@every(
    "name",
    [name for name in LIFETIMES if NAME.match(name) and LIFETIMES[name].since < "0.7"],
)
def test_each_row_matches_the_stubs(name: str) -> None:
    since, ended, _ = LIFETIMES[name]
    # the stubs of 0.4 and 0.5 do not declare its numbers
    if name.startswith("nl.tile_size."):
        return
    if name in GUIDE:
        assert name not in STUBS
    elif name == "nl.NkiTensor.reshape(new_shape)":  # older than the stub's class
        assert STUBS[name][1] == ended
    else:
        assert STUBS[name] == (since, ended)


def test_each_change_of_the_stubs_has_a_row() -> None:
    rest = {name for name in STUBS if name not in LIFETIMES and "tile_size" not in name}
    early = {
        name
        for name in rest
        if name.startswith("nl.NkiTensor.") and STUBS[name][1] is None
    }
    assert {STUBS[name][0] for name in early} == {"0.4", "0.6"}, (
        "what tensors always had"
    )
    assert rest - early == NO_ROW
    assert list(TAGS) == sorted(TAGS)


def test_a_stub_is_read() -> None:
    text = "def f(a, *, b=1): ...\nclass C:\n    def m(self, x): ...\n    def _n(self): ...\n"
    names = {"nl.f", "nl.f(a)", "nl.f(b)", "nl.C", "nl.C.m", "nl.C.m(x)"}
    assert set(_declared(ast.parse(text).body, "nl")) == names


IMPORTS = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n"
HEAD = f"{IMPORTS}\n\n@nki.jit\ndef kernel(x):\n"
PRODUCT = "    p = nl.ndarray((2, 2), nl.float32, buffer=nl.psum)\n"


@every(
    "line, told",
    [
        (
            "nisa.dma_copy(dst=x, src=x, dst_rmw_op=nl.add)",
            {"2.29": "NKU304", "2.33": "NKU304"},
        ),
        ("nisa.dma_copy(dst=x, src=p)", {"2.29": "NKU310", "2.33": "NKU310"}),
        ("nl.rsqrt(p[:, 0:1])", {"2.31": "NKU310"}),
        ("for i in nl.dynamic_range(2): pass", {"2.32": "NKU309", "2.33": "NKU302"}),
        (
            "n = nl.tile_size.total_available_sbuf_size",
            {"2.30": "NKU309", "2.33": "NKU309"},
        ),
        *(
            (f"n = {name}", {"2.30": "NKU309"})
            for name in ("nl.affine_range", "nisa.vector_engine")
        ),
        ("n = nl.tile_size.psum_fmax", {"2.30": "NKU309"}),
        ("for i in nl.static_range(2): pass", {"2.32": "NKU309"}),
    ],
)
def test_an_ended_name_is_reported_from_its_release_on(
    line: str, told: dict[str, str]
) -> None:
    before = "2.28"
    for sdk in ("2.28", "2.29", "2.30", "2.31", "2.32", "2.33"):
        before = told.get(sdk, before)
        assert broken(f"{HEAD}{PRODUCT}    {line}\n", sdk) == {before} - {"2.28"}, sdk


def test_an_announced_end_is_a_warning() -> None:
    assert Levels({}, True, True).of(rules()["NKU309"]) is Level.WARN
    assert Levels({}, True, True).of(rules()["NKU310"]) is Level.DENY
