"""Kernels that update an argument, in both dialects: right, wrong update or result, untouched."""

import dataclasses

import numpy as np

from difftest.tools.verdict.outcome import Outcome
from tests.every import every
from tests.unit.tools.verdict.honest.table import CLASSIC
from tests.unit.tools.verdict.kernels import HEAD, judged, spec_of

TODAY_KERNEL = HEAD + "\n\n@nki.jit\ndef add(a, b):\n"
CLASSIC_KERNEL = (
    CLASSIC
    + "import neuronxcc.nki.typing as nt\n\n\ndef load(x):\n    return nl.load(x)\n\n\n"
    + "def total(a, b, op=nl.add):\n    return op(nl.load(a), nl.load(b))\n\n\n"
    + "def store(tile):\n    out = nl.ndarray(tile.shape, dtype=tile.dtype, "
    + "buffer=nl.shared_hbm)\n    nl.store(out, tile)\n    return out\n\n\n"
    + "@nki.jit\ndef add(a: nt.mutable_tensor, b: nt.mutable_tensor):\n"
)
UPDATES = {
    "today": (TODAY_KERNEL, "nisa.dma_copy(dst={to}, src={tile})"),
    "classic": (CLASSIC_KERNEL, "nl.store({to}, {tile})"),
}
SUM = "total(a, b)"
DIFFERENCE = "total(a, b, nl.subtract)"
WRONG = Outcome.WRONG_ALGORITHM


def updated_sum(kernel):
    """Return the contract of a kernel that adds b to a."""
    return dataclasses.replace(spec_of(kernel), outputs={"a": "p n"})


def updated_sum_and_difference(kernel):
    """Return the contract of a kernel that returns a - b and adds b to a."""

    def reference(a, b):
        return a.astype(np.float64) - b, a.astype(np.float64) + b

    return dataclasses.replace(updated_sum(kernel), reference=reference)


def returned_sum(kernel):
    """Return the contract of a kernel that returns a + b, and updates no argument."""
    return spec_of(kernel)


AGREES = Outcome.AGREES
TABLE = {
    "right": (updated_sum, ["update a", SUM, "return a"], AGREES, ""),
    "right, without a return": (updated_sum, ["update a", SUM], AGREES, ""),
    "right, with a result": (
        updated_sum_and_difference,
        [f"less = {DIFFERENCE}", "update a", SUM, "return store(less)"],
        AGREES,
        "",
    ),
    "a wrong update": (updated_sum, ["update a", DIFFERENCE, "return a"], WRONG, ""),
    "a wrong update, a right result": (
        updated_sum_and_difference,
        [f"less = {DIFFERENCE}", "update a", "load(b)", "return store(less)"],
        WRONG,
        "",
    ),
    "a right update, a wrong result": (
        updated_sum_and_difference,
        ["update a", SUM, "return store(load(b))"],
        WRONG,
        "",
    ),
    "a right update, no result": (
        updated_sum_and_difference,
        ["update a", SUM],
        WRONG,
        "returned",
    ),
    "a right update, an undeclared result": (
        updated_sum,
        ["update a", SUM, "return store(load(b))"],
        WRONG,
        "not under outputs=",
    ),
    "untouched": (updated_sum, [SUM, "return a"], WRONG, "wrote nothing to a"),
    "a result in place of the update": (
        updated_sum,
        [f"return store({SUM})"],
        WRONG,
        "",
    ),
    "half of it": (
        updated_sum,
        ["update a[0:1]", "load(b)[0:1]", "return a"],
        WRONG,
        "",
    ),
    "another argument": (updated_sum, ["update a", SUM, "update b", SUM], WRONG, "b"),
    "an update that the contract lacks": (
        returned_sum,
        ["update a", SUM, "return a"],
        WRONG,
        "writes to its input a",
    ),
    "updated twice": (
        updated_sum,
        ["update a", SUM, "update a", SUM, "return a"],
        WRONG,
        "",
    ),
}
"""The contract, the statements, the outcome, and a part of the reason."""


def kernel_text(dialect, statements):
    """Return a file whose kernel has these statements; an update takes two items."""
    head, update = UPDATES[dialect]
    lines = []
    rows = iter(statements)
    for row in rows:
        if row.startswith("update "):
            row = update.format(to=row.removeprefix("update "), tile=next(rows))
        lines.append(f"    {row}\n")
    return head + "".join(lines)


@every("name", TABLE)
@every("dialect", UPDATES)
def test_the_argument_and_the_result_are_judged(worker, tmp_path, dialect, name):
    spec, statements, outcome, reason = TABLE[name]
    text = kernel_text(dialect, statements)
    judgement = judged(worker, tmp_path, text, 4, spec, shrink=False)
    assert judgement.outcome is outcome, judgement.as_mapping()
    assert reason in judgement.reason + judgement.report
