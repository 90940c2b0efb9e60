"""Rules of imports that import-linter cannot state: allow-lists, single names, and load time.

``test_layers.py`` runs import-linter, which holds the layers and forbids circles.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.every import every
from tests.unit.imports import imports, planted

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Rule:
    """Files that may import the standard library and the named packages alone."""

    files: str  # a pattern, from the root of the repository
    allowed: tuple[str, ...]
    when_loaded: bool = (
        False  # holds what loading the file imports; else every import in it
    )

    def violations(self, root: Path) -> list[str]:
        """Return the imports that break the rule; a rule without files is itself broken."""
        files = sorted(root.glob(self.files))
        if not files:
            return [f"no file matches {self.files}: the rule holds nothing"]
        return [
            str(found)
            for file in files
            for found in imports(root, file)
            if not (self.when_loaded and (found.deferred or found.typing_only))
            and not found.of_standard_library()
            and not found.within(*self.allowed)
        ]


# The oracle and the kernels are independent of each other and of what judges them.
REFERENCE = Rule("reference/**/*.py", ("numpy", "reference"))
CLASSIC = Rule("kernels/classic/**/*.py", ("neuronxcc", "kernels.classic"))
CURRENT = Rule("kernels/nki/**/*.py", ("nki", "kernels.nki"))
# Detectors read the trace alone: their findings do not depend on time.
ANALYSIS = Rule(
    "difftest/analysis/detectors/*.py",
    (
        "numpy",
        "difftest.analysis",
        "difftest.support.internal_errors",
        "difftest.simulator.trace",
        "difftest.simulator.machine",
    ),
)
# The oracle shares names, dtypes, errors and records with the simulator that it judges, but neither
# the arithmetic nor the algebra of patterns.
ORACLE = Rule(
    "difftest/simulator/oracle/**/*.py",
    (
        "numpy",
        "ml_dtypes",
        "difftest.simulator.oracle",
        "difftest.simulator.errors",
        "difftest.simulator.descriptor",
        "difftest.simulator.follower",
        "difftest.simulator.trace",
        "difftest.simulator.core.Core",
        "difftest.simulator.core.current",
        "difftest.simulator.index.Index",
        "difftest.simulator.indirect.IndirectTile",
        "difftest.simulator.instructions.record.InstructionUse",
        "difftest.simulator.instructions.require_rules",
        "difftest.simulator.pattern.Shape",
        "difftest.simulator.tile.Tile",
        *(
            f"difftest.simulator.dtypes.{name}"
            for name in (
                "FLOAT32",
                "TFLOAT32",
                "BOOL",
                "WIDE_INTEGERS",
                "as_nki_dtype",
                "is_float",
            )
        ),
    ),
)
# Semantics never depend on time, so the timing model reads only the trace and the machine.
TIMING = Rule(
    "difftest/timing/**/*.py",
    (
        "numpy",
        "rich",
        "matplotlib",
        "difftest.timing",
        "difftest.analysis",
        "difftest.simulator.trace",
        "difftest.simulator.machine",
        "difftest.support.choices",
        "difftest.support.csv_rows",
    ),
)
# pytest loads the plugin in every run where it is installed, so it must load fast.
PLUGIN = Rule("difftest/plugin/hooks.py", ("pytest", "_pytest"), when_loaded=True)
# A script for the Python of another environment, which has nrtpy and not this package.
NRTPY_HOST = Rule("difftest/testing/backends/device/nrtpy_host.py", ("numpy", "nrtpy"))
# Kernels with a known result, each in one generation of NKI.
PROBES = Rule("difftest/testing/backends/device/probes_*.py", ("neuronxcc", "nki"))
# An external suite uses the simulator as any host of foreign code does.
CONFORMANCE = Rule(
    "conformance/**/*.py",
    (
        "numpy",
        "ml_dtypes",
        "pytest",
        "conformance",
        "difftest.testing.host",
        "difftest.simulator.launch_ranks",
        "difftest.tools.migration",
        "difftest.support.output",
        "difftest.tools.lint",
        "difftest.tools.verdict.sources",
        "difftest.tools.verdict.world",
        "difftest.simulator.entry.install",
        "difftest.simulator.frontend.launchable",
        "difftest.analysis.inspection",
        "difftest.simulator.launch_listeners",
        "jsonschema",
        *(
            f"difftest.simulator.{name}"
            for name in ("MACHINES", "NkiError", "launch", "strictness")
        ),
    ),
)

RULES = [REFERENCE, CLASSIC, CURRENT, ORACLE, ANALYSIS, TIMING, PLUGIN]
RULES += [NRTPY_HOST, PROBES, CONFORMANCE]


@every("rule", RULES)
def test_rule_holds(rule):
    assert rule.violations(ROOT) == []


def a_file_of(rule):
    """The path of a file that a rule holds."""
    return rule.files.replace("**/", "").replace("*", "a")


# Each rule must be able to fail: trees with one planted violation each.
@every("rule", RULES)
def test_an_import_that_no_rule_allows_is_found(tmp_path, rule):
    (found,) = rule.violations(
        planted(tmp_path, a_file_of(rule), "import difftest.cli")
    )
    assert found == f"{a_file_of(rule)}:1 imports difftest.cli"


INNER = "difftest.simulator"


@every(
    "rule, source, name",
    [
        (CONFORMANCE, f"from {INNER} import Engine", f"{INNER}.Engine"),
        (
            REFERENCE,
            "from difftest.testing.contract.case import Case",
            "difftest.testing.contract.case.Case",
        ),
        (REFERENCE, "def f():\n    import kernels.a", "kernels.a"),
        (REFERENCE, "from .. import kernels", "kernels"),
        (CLASSIC, "import reference.matmul as oracle", "reference.matmul"),
        (CLASSIC, "from difftest import simulator", INNER),
        (CLASSIC, "import numpy as np", "numpy"),
        (CLASSIC, "import kernels.nki.matmul", "kernels.nki.matmul"),
        (CURRENT, "import kernels.classic.matmul", "kernels.classic.matmul"),
        (ORACLE, f"from {INNER}.dtypes import round_to", f"{INNER}.dtypes.round_to"),
        (ORACLE, f"from {INNER}.instructions import alu", f"{INNER}.instructions.alu"),
        (
            ORACLE,
            f"def f():\n    from {INNER}.pattern import Pattern",
            f"{INNER}.pattern.Pattern",
        ),
        (TIMING, f"from {INNER}.tile import Tile", f"{INNER}.tile.Tile"),
        (TIMING, "from difftest import simulator", INNER),
        (
            ANALYSIS,
            "from difftest.timing.schedule import Span",
            "difftest.timing.schedule.Span",
        ),
        (ANALYSIS, f"from {INNER}.memory import Storage", f"{INNER}.memory.Storage"),
        (PLUGIN, "import numpy", "numpy"),
        (
            PLUGIN,
            "try:\n    from . import session\nfinally:\n    pass",
            "difftest.plugin.session",
        ),
        (PLUGIN, "class A:\n    import rich", "rich"),
        (PLUGIN, "if TYPE_CHECKING:\n    pass\nelse:\n    import rich", "rich"),
        (
            NRTPY_HOST,
            "def f():\n    from difftest.testing.backends.device import core",
            "difftest.testing.backends.device.core",
        ),
        (PROBES, "import numpy", "numpy"),
    ],
)
def test_a_planted_import_is_found(tmp_path, rule, source, name):
    file = a_file_of(rule)
    (found,) = rule.violations(planted(tmp_path, file, source))
    assert found.startswith(f"{file}:")
    assert found.endswith(f" imports {name}")


def test_an_import_in_a_deeper_folder_is_found(tmp_path):
    (found,) = REFERENCE.violations(
        planted(tmp_path, "reference/deep/a.py", "import ml_dtypes")
    )
    assert found == "reference/deep/a.py:1 imports ml_dtypes"


@every(
    "rule, source",
    [
        (REFERENCE, "import numpy.typing, math\nfrom . import windows"),
        (CLASSIC, "from neuronxcc import nki\nimport kernels.classic.matmul"),
        (ORACLE, f"from {INNER}.trace import Space"),
        (TIMING, f"from {INNER}.trace import Trace"),
        (TIMING, "from difftest.analysis.footprint import footprint"),
        (ANALYSIS, f"from {INNER}.trace import Trace"),
        (PLUGIN, "import pytest\ndef hook():\n    import difftest.testing.harness"),
        (PLUGIN, "if TYPE_CHECKING:\n    from difftest import harness"),
    ],
)
def test_allowed_imports_pass(tmp_path, rule, source):
    assert rule.violations(planted(tmp_path, a_file_of(rule), source)) == []


@every("rule", RULES)
def test_a_rule_over_no_file_fails(tmp_path, rule):
    assert rule.violations(tmp_path) == [
        f"no file matches {rule.files}: the rule holds nothing"
    ]
