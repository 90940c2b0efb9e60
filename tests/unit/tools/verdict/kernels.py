"""Kernels of one contract, as sources that a worker loads: right ones, wrong ones, hostile ones."""

from __future__ import annotations

import numpy as np

from difftest import sizes
from difftest.testing.contract.spec import KernelSpec
from difftest.tools.verdict.candidate import (
    Candidate,
    load_candidate,
    quoted,
    read_candidate,
)
from difftest.tools.verdict.judge import Judge
from difftest.tools.verdict.judgement import Judgement
from difftest.tools.verdict.outcome import Outcome
from difftest.tools.verdict.sources import OutsideLanguage
from difftest.tools.verdict.wire import WorkerEnd

HEAD = """
import nki
import nki.isa as nisa
import nki.language as nl

PARTS = 128


def load(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def store(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def total(a, b, op=nl.add):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=tile, data1=load(a), data2=load(b), op=op)
    return tile

"""

KERNEL = """
@nki.jit
def add(a, b):
{body}
"""


def source(body: str, before: str = "") -> str:
    """A file with the kernel ``add``, of this body, after these lines."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return HEAD + before + KERNEL.format(body=lines)


RIGHT = source("return store(total(a, b))")
WRONG = source("return store(total(a, b, nl.subtract))")


def reference(a, b):
    """The results that the kernels must compute, in float64."""
    return a.astype(np.float64) + b


def spec_of(kernel) -> KernelSpec:
    """The contract."""
    return KernelSpec(
        kernel=kernel,
        reference=reference,
        domain={"p": sizes(1, 128), "n": sizes(1, 8)},
        inputs={"a": "p n", "b": "p n"},
    )


def judged(
    worker, folder, text, cases=5, spec=spec_of, *, shrink=True, allow=()
) -> Judgement:
    """Return the verdict on the kernel ``add`` in a file of this text.

    Half of the time that a wrong kernel costs goes into making its case smaller.
    """
    file = folder / f"candidate_{abs(hash(text))}.py"
    file.write_text(text)
    judgement = Judgement(
        {"file": str(file), "name": "add"}, "test_add.py::test_add", 7
    )
    try:
        files = read_candidate(file, judgement.test)
    except OutsideLanguage as outside:
        judgement.outcome = Outcome.OUTSIDE_LANGUAGE
        judgement.reason = str(outside)
        return judgement
    with quoted(files):
        try:
            described = load_candidate(worker, files, "add", allow)
        except OutsideLanguage as outside:
            judgement.outcome = Outcome.OUTSIDE_LANGUAGE
            judgement.reason = str(outside)
            return judgement
        except WorkerEnd as end:
            judgement.outcome = end.outcome
            judgement.reason = str(end)
            judgement.report = end.report
            return judgement
        candidate = Candidate("add", "candidate", described["signature"])
        return Judge(spec(candidate), worker, judgement, cases, shrink=shrink).run()
