# pytester removes the modules that an in-process run imports, but neither NumPy nor the simulator's
# instruction table can be imported twice. So this module imports all of them first, and the slow
# imports of each run too (libcst, of Hypothesis's patches).
import importlib
import importlib.metadata
import os
import sys

import hypothesis.extra._patching  # noqa: F401
import hypothesis.internal.conjecture.optimiser  # noqa: F401
import ml_dtypes  # noqa: F401
import numpy as np  # noqa: F401
import numpy.random  # noqa: F401
import pytest
import rich._emoji_codes  # noqa: F401
import rich.console  # noqa: F401
import rich.table  # noqa: F401
from hypothesis import core, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

import difftest.testing.backends.sdk  # noqa: F401
from difftest.plugin import failure_output
from difftest.testing.harness.profiles import PROFILES

collect_ignore = ["pages"]  # of test_docs.py

for _name in (
    "testing.backends.absent",
    "testing.backends.embedded",
    "simulator.oracle.comparison",
    "testing.harness.decorator",
    "testing.harness.edges",
    "testing.drawing.explicit",
    "testing.harness.tracer",
    "tools.lint.check",
    "testing.host.installation",
    "plugin.dialects",
    "plugin.profiles",
    "testing.session.pytest_internals",
    "plugin.failure_output",
    "plugin.kernel_call",
    "plugin.summary",
    "testing.report.document",
    "testing.report.performance",
):
    importlib.import_module(f"difftest.{_name}")

KERNEL = '''
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def add(a, b):
    assert len(a.shape) == 2, "add takes matrices"
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(src=a, dst=left)
    nisa.dma_copy(src=b, dst=right)
    nisa.dma_copy(src=nisa.tensor_tensor(left, right, op=nl.add), dst=result)
    return result


@nki.jit
def subtract(a, b):
    """Wrong where it is taken for ``add``."""
    result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(src=a, dst=left)
    nisa.dma_copy(src=b, dst=right)
    nisa.dma_copy(src=nisa.tensor_tensor(left, right, op=nl.subtract), dst=result)
    return result
'''

REFERENCE = """
import numpy as np


def add(a, b):
    return a.astype(np.float64) + b.astype(np.float64)
"""

TEST = """
from difftest import Rejection, kernel_test, sizes
from kernel import {kernel}
from reference_add import add as reference


@kernel_test(
    kernel={kernel},
    reference=reference,
    domain={{"m": sizes(1, 128), "n": sizes(1, 8)}},
    inputs={{"a": "m n", "b": "m n"}},
    dtypes=("float32", "float16"),
    edges={edges},
    {more}
)
def test_add(case):
    case.check()
"""

MORE = """
    rejects=[Rejection({"m": 129, "n": 2}, match="partition")],
    examples=[{"m": 128, "n": 2048}],
"""
"""A rejection, and an example in each dtype, of a test's spec."""


class Project:
    """A user's repository with the installed plugin, in pytester's folder."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        pytester.makepyfile(kernel=KERNEL, reference_add=REFERENCE)
        pytester.makeini("[pytest]\npythonpath = .\n")

    def add_test(
        self,
        kernel: str = "add",
        more: str = "",
        name: str = "test_add",
        *,
        edges: bool = False,
    ) -> None:
        self.pytester.makepyfile(
            **{name: TEST.format(kernel=kernel, more=more, edges=edges)}
        )

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest_inprocess(*arguments)

    def run_apart(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in a new process, which takes six times as long."""
        return self.pytester.runpytest_subprocess(*arguments)


class Plugin:
    """An installed plugin, whose metadata is read once for all runs."""

    def __init__(self, found: importlib.metadata.Distribution) -> None:
        self.files = found.files
        self.metadata = found.metadata
        self.version = found.version
        self.entry_points = found.entry_points


PLUGINS = [
    Plugin(one)
    for one in importlib.metadata.distributions()
    if any(
        entry.group == "pytest11" and entry.name != "anyio"
        for entry in one.entry_points
    )
]
"""The installed plugins, which pytest would otherwise search for in each run."""


@pytest.fixture
def fresh_runs():
    """Let failing cases of a test's runs run again in a new process, which takes a second."""


@pytest.fixture
def whole_profiles():
    """Keep the profiles' numbers of cases; without this fixture, runs draw few cases."""


@pytest.fixture
def in_process(request, pytester, monkeypatch):
    """Run pytest in this process, and restore the state of Hypothesis.

    Failures are stored in pytester's folder. Hypothesis identifies a test by its name and its text,
    so that these tests would find each other's failures in a shared folder. Constants of imported
    modules are hidden from Hypothesis, so that a seed always gives the same cases.
    """
    monkeypatch.delenv("CI", raising=False)
    # see pyproject.toml; of processes, too
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:anyio")
    for name, module in list(sys.modules.items()):
        # another test's
        if str(pytester.path.parent) in str(getattr(module, "__file__", "")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(
        importlib.metadata, "distributions", lambda **given: iter(PLUGINS)
    )
    monkeypatch.setattr(providers, "_get_local_constants", Constants)
    # --hypothesis-seed stays, otherwise
    monkeypatch.setattr(core, "global_force_seed", None)
    if "fresh_runs" not in request.fixturenames:
        monkeypatch.setattr(failure_output, "rerun_alone", lambda config, failure: "")
    if "whole_profiles" not in request.fixturenames:
        monkeypatch.setitem(PROFILES, "quick", {"max_examples": 5})
    default = settings.get_profile("default")
    settings.register_profile("of this session", settings.default)
    database = DirectoryBasedExampleDatabase(pytester.path / ".hypothesis" / "examples")
    settings.register_profile("default", default, database=database)
    yield pytester.runpytest_inprocess
    settings.register_profile("default", default)
    settings.load_profile("of this session")


@pytest.fixture
def project(pytester, in_process, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        # a run in a test is not a worker, though this process may be
        monkeypatch.delenv(name)
    return Project(pytester)
