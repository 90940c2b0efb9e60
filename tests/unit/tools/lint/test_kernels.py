"""Findings of the linter for a kernel that a test runs."""

from __future__ import annotations

from textwrap import indent

import numpy as np
import pytest

from difftest.analysis.finding import Severity
from difftest.simulator.entry.install import embedded
from difftest.support.internal_errors import drain_internal_errors
from difftest.testing.backends.base import Completed, KernelCall
from difftest.testing.backends.embedded import EmbeddedSimulator
from difftest.tools.lint.check import findings_of, lint_source
from difftest.tools.lint.rule import SDKS
from difftest.tools.lint.source import Source
from tests.unit.tools.lint.test_false_alarms import HEAD

FILE = """import nki
import nki.isa as nisa
import nki.language as nl


def double(tile):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    return [tile for _ in range(1)]


def other(tile):
    return [tile for _ in range(1)]


@nki.jit
def kernel(x):
    tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for _ in nl.affine_range(1):
        double(tile)
    return x
"""


def compiled(file):
    names = {}
    text = FILE.replace("import nki", "# import nki").replace("@nki.jit\n", "")
    exec(compile(text, file, "exec"), names)
    return names["kernel"]


def test_a_kernel_and_its_callees_are_read_at_a_level(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(FILE)
    told = [
        (one.id, one.severity, one.location)
        for one in findings_of(compiled(str(file)), "0.6")
    ]
    announced = ("NKU309", Severity.NOTE, (str(file), 19))
    assert told == [("NKL101", Severity.WARNING, (str(file), 8)), announced]
    assert [one.id for one in findings_of(compiled(str(file)), "0.7")] == ["NKU309"]


def test_a_kernel_without_a_file_breaks_no_rule():
    assert findings_of(compiled("<stdin>")) == ()
    assert findings_of(print) == ()


@pytest.mark.parametrize(
    ("id", "line"),
    [
        ("NKI502", "nisa.activation(tile, nl.copy, tile, bias=tile[:, 0:1])"),
        (
            "partition-start",
            "nisa.tensor_scalar(tile[32:96], tile[32:96], nl.add, 1.0)",
        ),
    ],
)
def test_a_backend_reports_each_broken_rule_once(tmp_path, id, line):
    file = tmp_path / "broken.py"
    text = HEAD.format(f"    {line}\n")
    file.write_text(text)
    names = {}
    with embedded():
        exec(compile(text, str(file), "exec"), names)
    inputs = (np.ones((128, 64), np.float32),)
    backend = EmbeddedSimulator()
    backend.reader = findings_of  # as the plugin does
    outcome = backend.run(
        KernelCall(kernel=names["kernel"], inputs=inputs, inspect=True)
    )
    assert isinstance(outcome, Completed)
    [found] = outcome.findings
    assert found.id == id
    assert found.location == (str(file), 11)


LOOPS = """import nki
import nki.language as nl


@nki.jit
def kernel(x):
    def body(i):
        pass

    nl.fori_loop(0, 2, body)
    nl.fori_loop(0, 2, lambda i: None)
    return x
"""


def test_bodies_of_device_loops_are_functions_inside(tmp_path):
    source = Source(tmp_path / "kernel.py", LOOPS)
    assert [one.id for one in lint_source(source, SDKS["2.32"])] == []
    assert [
        one.id for one in lint_source(source, SDKS["2.31"]) if one.id != "NKU303"
    ] == [
        "NKL104",
        "NKL105",
    ]


def test_a_kernel_below_a_condition_is_read(tmp_path):
    kernel = FILE[FILE.index("@nki.jit") :].replace("src=x", "src=x[0:128, 0:64]")
    file = tmp_path / "kernel.py"
    file.write_text(
        FILE[: FILE.index("def double")] + "if True:\n" + indent(kernel, "    ")
    )
    source = Source(file, file.read_text())
    assert [one.id for one in lint_source(source, SDKS["2.33"])] == ["NKU309"]
    assert drain_internal_errors() == []
