"""Other people's test suites: their tests call kernels themselves, without ``kernel_test``."""

import json
import sys

import pytest

from tests.unit.simulator.frontend.nki.torch_standin import standin

KERNELS = '''
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def copy(x):
    """Right on one core; each of two cores writes all of it."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out
'''

PARAMETRIZED = """
import numpy as np
import pytest
from kernels_of_others import copy, double

pytestmark = pytest.mark.neuron


@pytest.fixture(scope="module")
def doubled():
    return double(np.ones((4, 8), np.float32))


@pytest.mark.parametrize("rows", [1, 64, 128])
def test_double(rows):
    assert (double(np.ones((rows, 8), np.float32)) == 2).all()


def test_on_two_cores():
    x = np.ones((4, 8), np.float32)
    assert (copy[2](x) == x).all()


def test_on_two_cores_again():
    x = np.ones((2, 8), np.float32)
    assert (copy[2](x) == x).all()


def test_of_the_fixture(doubled):
    assert (doubled == 2).all()
"""
"""Parametrized launches with a marker, and a launch in a fixture of the module."""

CLASSES = """
import unittest
import numpy as np
from kernels_of_others import double


class TestDouble(unittest.TestCase):
    def setUp(self):
        self.x = np.ones((2, 4), np.float32)
        self.expected = double(self.x)

    def test_sum(self):
        np.testing.assert_allclose(self.expected, self.x + self.x)
"""
"""A class of unittest that launches a kernel before each test."""

SWITCHED = """
import os
import numpy as np

REQUIRE_NKI = os.environ.get("REQUIRE_NKI") == "1"
try:
    import nki
    HAS_NKI = True
except ImportError:
    HAS_NKI = False


def double(x):
    if HAS_NKI:
        try:
            from kernels_of_others import double as kernel

            return kernel({argument})
        except Exception:
            if REQUIRE_NKI:
                raise
    return x + x  # the framework's own operation


def test_double():
    x = np.ones((4, 4), np.float32)
    assert (double(x) == 2).all()
"""
"""A wrapper that falls back without a message unless REQUIRE_NKI is set."""


FALLBACK = """
import numpy as np
import pytest
import torch

try:
    from kernels_of_others import double as kernel
except ImportError:
    kernel = None


def double(x):
    if kernel is not None and len(x.shape) == 2:
        return kernel(x)
    return torch.from_numpy(x.numpy() * 2)


@pytest.mark.parametrize("shape", [(4, 8), (2, 8), (4, 8, 2)])
def test_double(shape):
    result = double(torch.from_numpy(np.ones(shape, np.float32)))
    assert isinstance(result, torch.Tensor)
    assert (result.numpy() == 2).all()
"""
"""An operation on torch's tensors: the kernel for matrices, torch for the others."""


@pytest.fixture
def suite(project):
    project.pytester.makepyfile(kernels_of_others=KERNELS)
    project.pytester.makeini(
        "[pytest]\npythonpath = .\nmarkers = neuron: needs Neuron\n"
    )
    return project


def rows(result):
    """The table of launches: the launches and hazards of each kernel."""
    lines = result.stdout.lines
    title = next(n for n, line in enumerate(lines) if "launched themselves" in line)
    table = {}
    for line in lines[title + 2 :]:
        name, *numbers = line.rsplit(None, 2)
        if len(numbers) < 2 or not "".join(numbers).isdigit():
            break
        table[name] = tuple(map(int, numbers))
    return table


def test_launches_are_counted_and_hazards_reported_once(suite):
    suite.pytester.makepyfile(test_it=PARAMETRIZED, test_classes=CLASSES)
    result = suite.run("--simulate=embedded", "-W", "default")
    result.assert_outcomes(passed=7, warnings=1)
    assert rows(result) == {"copy": (2, 1), "double": (5, 0)}
    result.stdout.fnmatch_lines(["*HazardWarning: warning program-id-ignored: *"])
    assert "no kernel test ran" not in result.stdout.str()


def test_strict_sessions_fail_each_test_with_a_hazard(suite):
    suite.pytester.makepyfile(test_it=PARAMETRIZED)
    result = suite.run("--simulate=embedded", "--difftest-strict")
    result.assert_outcomes(passed=4, failed=2)
    text = result.stdout.str()
    assert "kernels_of_others.py:20: nisa.dma_copy(dst=out, src=x)" in text
    assert "launches.py:" not in text.replace("kernels_of_others.py:", "")


def test_a_hazard_whose_warning_is_an_error_fails_as_a_report(suite):
    suite.pytester.makepyfile(test_it=PARAMETRIZED)
    result = suite.run("--simulate=embedded", "-W", "error", "-k", "cores_again")
    result.assert_outcomes(failed=1, deselected=5)
    result.stdout.fnmatch_lines(["warning program-id-ignored: *", "  where: *"])
    assert "errors.py" not in result.stdout.str()


def test_the_workers_of_xdist_send_their_launches(suite):
    suite.pytester.makepyfile(test_it=PARAMETRIZED, test_classes=CLASSES)
    result = suite.run_apart("--simulate=embedded", "-n", "1")
    result.assert_outcomes(passed=7, warnings=1)
    assert rows(result) == {"copy": (2, 1), "double": (5, 0)}


def test_the_report_has_the_launches(suite):
    suite.pytester.makepyfile(test_it=PARAMETRIZED)
    suite.run("--simulate=embedded", "--difftest-report=report.json")
    document = json.loads((suite.pytester.path / "report.json").read_text())
    copy, double = document["launches"]
    assert (copy["kernel"], copy["launches"]) == ("copy", 2)
    assert "program-id-ignored" in copy["hazards"][0]
    assert double == {"kernel": "double", "launches": 4, "hazards": []}


def test_the_strictness_of_the_session_applies(suite):
    """AWS's simulator accepts an operand in HBM."""
    in_hbm = KERNELS.replace("data=tile, op0", "data=x, op0")
    suite.pytester.makepyfile(kernels_of_others=in_hbm, test_classes=CLASSES)
    suite.run("--simulate=embedded").assert_outcomes(failed=1)
    relaxed = suite.run(
        "--simulate=embedded", "--nki-strictness=relaxed", "-W", "default"
    )
    relaxed.assert_outcomes(passed=1, warnings=1)


def test_the_level_of_the_session_applies(suite):
    since_0_5 = KERNELS.replace("=2.0)", "=nl.tile_size.psum_num_banks / 4)")
    suite.pytester.makepyfile(kernels_of_others=since_0_5, test_classes=CLASSES)
    suite.run("--simulate=embedded").assert_outcomes(passed=1)
    suite.run("--simulate=embedded", "--nki-level=0.5").assert_outcomes(passed=1)
    early = suite.run("--simulate=embedded", "--nki-level=0.4")
    early.assert_outcomes(failed=1)
    early.stdout.fnmatch_lines(["*psum_num_banks*"])


def test_a_session_that_launches_nothing_says_so(suite, monkeypatch):
    """The kernel's error is swallowed; REQUIRE_NKI shows it."""
    suite.pytester.makepyfile(test_switched=SWITCHED.format(argument="x, 1"))
    result = suite.run("--simulate=embedded")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["no kernel was launched, although the simulator was imported by *switched.py*"]
    )
    monkeypatch.setenv("REQUIRE_NKI", "1")
    suite.run("--simulate=embedded").assert_outcomes(failed=1)


def test_a_wrapper_that_uses_the_kernel_counts(suite):
    suite.pytester.makepyfile(test_switched=SWITCHED.format(argument="x"))
    assert rows(suite.run("--simulate=embedded")) == {"double": (1, 0)}


def test_a_library_that_falls_back_to_torch_shows_which_calls_reached_the_kernel(
    suite, monkeypatch
):
    monkeypatch.setitem(sys.modules, "torch", standin())
    suite.pytester.makepyfile(test_torch=FALLBACK)
    result = suite.run("--simulate=embedded")
    result.assert_outcomes(passed=3)
    assert rows(result) == {"double": (2, 0)}


def test_a_marker_leaves_tests_of_a_device_out(suite):
    suite.pytester.makepyfile(test_it=PARAMETRIZED, test_classes=CLASSES)
    result = suite.run("--simulate=embedded", "-m", "not neuron")
    result.assert_outcomes(passed=1, deselected=6)
    assert rows(result) == {"double": (1, 0)}


def test_a_session_of_kernel_tests_alone_has_no_second_table(suite):
    suite.add_test()
    assert "launched" not in suite.run("--simulate=embedded").stdout.str()


def test_without_a_backend_nothing_is_inspected(suite):
    suite.pytester.makepyfile(test_it="def test_it():\n    pass\n")
    text = suite.run().stdout.str()
    assert "launched" not in text
    text = suite.run("--simulate=embedded").stdout.str()
    assert "no kernel test ran" in text
    assert "launched" not in text
