"""What the pages under docs/ show as code is run; the README has a test of its own."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from difftest.backends.device.stage import StageResult
from difftest.harness.spec import KernelSpec
from difftest.simulator import NkiError, launch
from difftest.simulator.frontend.install import embedded
from tests.meta.campaign import drawn

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_HERE = (
    "simulator.md",
    *("testing-your-kernel.md",) * 4,
    "timing.md",
    *("trace.md",) * 2,
)
"""The pages with code in Python, once for each block."""


def blocks(page, language="python"):
    """The code blocks of a page in a language."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [code for name, code in BLOCK.findall(text) if name == language]


def test_each_page_with_code_is_run_here():
    pages = [page.name for page in sorted(DOCS.glob("*.md")) for _ in blocks(page.name)]
    assert pages == list(RUN_HERE)


def test_the_simulators_page_runs_a_kernel():
    (code,) = blocks("simulator.md")
    names = {}
    exec(code, names)
    (output,) = names["result"].outputs
    assert np.array_equal(output, 2 * np.arange(256, dtype=np.float32))
    assert names["result"].unwritten == (None,)
    assert len(names["result"].trace) > 0


def test_the_simulators_page_shows_the_error_as_it_is():
    (shown,) = (code for code in blocks("simulator.md", "") if code.startswith("LimitError"))
    with embedded():
        from kernels.classic.vector_add import vector_add_tiled
    a = np.ones(25_600, np.float32)
    with pytest.raises(NkiError) as caught:
        launch(vector_add_tiled, [a, a], {"ROW_CHUNK": 256})
    said = f"{type(caught.value).__name__}: {caught.value}\n"
    assert re.sub(r"tensor \d+", "tensor 3", said.replace(f"{ROOT}/", "")) == shown


def test_the_timing_page_predicts_a_kernel():
    (code,) = blocks("timing.md")
    with embedded():
        from kernels.classic.vector_add import vector_add_naive
    names = {"kernel": vector_add_naive, "arrays": [np.ones(128, np.float32)] * 2}
    exec(code, names)
    assert names["prediction"].get_latency_percentile(50) > 0


def test_the_test_on_the_page_about_tests_passes(pytester, monkeypatch):
    code, _, _, _ = blocks("testing-your-kernel.md")
    imports = (
        "from hypothesis import settings\n"
        "from difftest import Rejection, kernel_test, multiples\n"
        "from kernels.classic.matmul import nki_matmul_tiled_\n"
        "from reference.matmul import matmul\n\n"
        "@settings(max_examples=3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(test_page=imports + code)
    result = pytester.runpytest_subprocess("--simulate")
    # Drawn cases, the rejection, the edges, the example in 2 dtypes.
    result.assert_outcomes(passed=1 + 1 + 1 + 2)


def test_the_page_on_testing_checks_one_case():
    _, _, _, code = blocks("testing-your-kernel.md")
    names = {}
    exec(code, names)
    assert names["verdict"].elements == 8


def test_several_kernels_on_the_page_about_tests_pass(pytester, monkeypatch):
    _, code, _, _ = blocks("testing-your-kernel.md")
    imports = (
        "from hypothesis import settings\n"
        "from difftest import kernel_test, sizes\n"
        "from kernels.classic import vector_add as classic\n"
        "from kernels.nki import vector_add as todays\n"
        "from reference.vector_add import vector_add\n\n"
        "@settings(max_examples=3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(test_page=imports + code)
    result = pytester.runpytest_subprocess("--simulate")
    result.assert_outcomes(passed=2)  # drawn, edges
    result.stdout.fnmatch_lines(["*on embedded: all bits agree in 3 of 3 cases"])


def test_the_page_on_testing_draws_inputs_of_their_own():
    _, _, code, _ = blocks("testing-your-kernel.md")
    names = {}
    exec(code, names)
    spec = KernelSpec(
        kernel=lambda table, rows, weights, scale, labels: table,
        reference=lambda table, rows, weights, scale, labels: table,
        domain={"V": (9,), "P": (5,), "D": (4,)},
        inputs=names["inputs"],
    )
    (case,) = drawn(spec, 1)
    arrays = dict(zip(spec.inputs, spec.inputs_of(case), strict=True))
    assert arrays["rows"].dtype == np.int32
    assert arrays["rows"].max() == 8
    assert arrays["weights"].dtype in (np.int8, np.uint8)
    assert arrays["scale"].min() > 0


def test_the_devices_page_shows_a_result_in_the_form_that_it_has():
    (shown,) = (code for code in blocks("device.md", "") if code.startswith("224x224"))
    (example,) = doctest.DocTestFinder().find(StageResult.lines, globs={})
    assert shown == example.examples[-1].want
