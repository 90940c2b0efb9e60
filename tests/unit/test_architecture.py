"""Who may import whom: docs/explanation/architecture.md, read from the syntax trees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.every import every
from tests.unit.imports import imports, planted

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Rule:
    """Files that may import the standard library, the packages named, and nothing else."""

    files: str  # a pattern, from the root of the repository
    allowed: tuple[str, ...]
    when_loaded: bool = False  # holds what loading the file imports; else every import in it

    def violations(self, root: Path) -> list[str]:
        """The imports that break the rule; a rule over no file is itself broken."""
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
TODAYS = Rule("kernels/nki/**/*.py", ("nki", "kernels.nki"))
# The simulator serves from a REPL: no pytest, no Hypothesis, nothing of the harness.
SIMULATOR = Rule(
    "difftest/simulator/**/*.py",
    ("numpy", "ml_dtypes", "threadpoolctl", "difftest.simulator", "difftest.choices"),
)
# What can be said of a trace without knowing how long anything takes: it sees the trace alone.
ANALYSIS = Rule(
    "difftest/analysis/**/*.py",
    (
        "numpy",
        "difftest.analysis",
        "difftest.breakdown",
        "difftest.simulator.trace",
        "difftest.simulator.machine",
    ),
)
# The oracle shares with what it judges the names, dtypes, errors and records, and neither the
# arithmetic nor the algebra of patterns.
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
        "difftest.simulator.instructions.record.Issue",
        "difftest.simulator.instructions.require_rules",
        "difftest.simulator.pattern.Shape",
        "difftest.simulator.tile.Tile",
        *(
            f"difftest.simulator.dtypes.{name}"
            for name in (
                *("FLOAT32", "TFLOAT32", "BOOL", "WIDE_INTEGERS"),
                *("as_nki_dtype", "is_float"),
            )
        ),
    ),
)
# Meaning never depends on time, so time sees of meaning only what happened and on what machine.
TIMING = Rule(
    "difftest/timing/**/*.py",
    (
        *("numpy", "rich", "matplotlib", "difftest.timing", "difftest.analysis"),
        *("difftest.simulator.trace", "difftest.simulator.machine", "difftest.choices"),
    ),
)
# Who looks at launches for hazards, without pytest, so that commands can too.
INSPECTION = Rule(
    "difftest/inspection/**/*.py",
    (
        *("numpy", "difftest.inspection", "difftest.analysis", "difftest.breakdown"),
        "difftest.simulator",
    ),
)
# The linter reads source and traces: it serves without pytest, and runs no kernel. Its stubs have
# the names that the lists of the documentation have.
LINT = Rule(
    "difftest/lint/**/*.py",
    (
        *("difftest.lint", "difftest.analysis", "difftest.breakdown", "difftest.migration"),
        *("difftest.simulator.trace", "difftest.simulator.machine", "difftest.simulator.frontend"),
        *("difftest.api.documented", "difftest.choices", "numpy", "tomli"),
    ),
)
# Who judges a kernel stands on all that looks at kernels.
BELOW = "verdict harness backends analysis breakdown inspection lint timing simulator host plugin"
JUDGES = ("numpy", "hypothesis", "click", *(f"difftest.{name}" for name in BELOW.split()))
VERDICT = Rule(
    "difftest/verdict/**/*.py", (*JUDGES, "difftest.report", "difftest.choices", "mcp", "rich")
)
MUTANTS = Rule("difftest/report/mutants/**/*.py", (*JUDGES, "difftest.report", "pytest"))
# Many points of one test: nothing imports it but the command line, by name.
SCALE = Rule(
    "difftest/scale/**/*.py",
    (
        *(*JUDGES, "rich", "difftest.choices", "difftest.scale", "difftest.report.mutants"),
        *("hypofuzz", "pytest", "pyarrow", "distributed", "optuna", "scipy", "matplotlib"),
    ),
)
# What the documentation lists is compared with what the simulator and the timing model have.
API = Rule("difftest/api/**/*.py", ("difftest.api", "difftest.simulator", "difftest.timing"))
# A page stands on the harness and what that stands on; commands and the plugin stand on it.
REPORT = Rule(
    "difftest/report/*.py",
    (
        *("numpy", "pytest", "click", "jinja2", "markupsafe", "difftest.choices"),
        "difftest.breakdown",
        *("difftest.report", "difftest.harness", "difftest.backends", "difftest.analysis"),
        *("difftest.inspection", "difftest.timing", "difftest.simulator", "difftest.host"),
    ),
)
# What commands of several rooms share stands below them all: nothing of a command is in it.
HOST = Rule(
    "difftest/host/**/*.py",
    (
        *("numpy", "click", "rich", "pytest", "difftest.host", "difftest.harness"),
        "difftest.breakdown",
        *("difftest.backends", "difftest.analysis", "difftest.inspection", "difftest.timing"),
        *("difftest.simulator", "difftest.plugin.options"),
    ),
)
# pytest loads the plugin in every run of anyone who has it installed: it must cost nothing.
PLUGIN = Rule("difftest/plugin/hooks.py", ("pytest", "_pytest"), when_loaded=True)
# A script for the Python of another environment, which has nrtpy and not this package.
NRTPY_HOST = Rule("difftest/backends/device/nrtpy_host.py", ("numpy", "nrtpy"))
# Kernels whose result is known, each in the words of one generation of NKI.
PROBES = Rule("difftest/backends/device/probes_*.py", ("neuronxcc", "nki"))
# A suite of others meets the simulator as any host of foreign code does.
CONFORMANCE = Rule(
    "conformance/**/*.py",
    (
        *("numpy", "ml_dtypes", "pytest", "conformance"),
        *("difftest.host", "difftest.simulator.launch_ranks", "difftest.migration"),
        *(
            "difftest.lint",
            "difftest.verdict.language",
            "difftest.inspection",
            "difftest.simulator.witness",
            "jsonschema",
        ),
        *(f"difftest.simulator.{name}" for name in ("MACHINES", "NkiError", "launch")),
    ),
)

RULES = [REFERENCE, CLASSIC, TODAYS, SIMULATOR, ORACLE, ANALYSIS, TIMING, API, PLUGIN]
RULES += [NRTPY_HOST, PROBES, CONFORMANCE, INSPECTION, LINT, VERDICT, MUTANTS, REPORT, SCALE, HOST]

# A part of the simulator imports the parts before it, itself, and no part after it.
LAYERS = (
    "errors",
    "misuses",
    "pattern",
    "machine",
    "trace",
    "dtypes",
    "lifted",
    "trace_json",
    "descriptor",
    "index",
    "strictness",
    "capacity",
    "memory",
    "follower",
    "baton",
    "recording",
    "state",
    "core",
    "indexing",
    "elements",
    "tile",
    "indirect",
    "instructions.record",
    "instructions.carrying",
    "instructions.observing",
    "instructions.operands",
    "instructions.alu",
    "instructions.values",
    "instructions.unboxed",
    "instructions.definedness",
    "instructions.checks",
    "instructions.gate",
    "instructions",
    "oracle",
    "exact",
    "frontend",
    "frontend.classic",
    "arrays",
    "witness",
    "tape",
    "tape_json",
    "launch",
    "replay",
    "frontend.kernel",  # kernels as objects: a call launches them
    "frontend.on_device",
    "frontend.nki.kernel",
    "frontend.install",  # which puts every dialect's modules in place
    "",  # the package itself, which gathers its public names
)


def layer_of(module: str) -> int | None:
    """Where a module of the simulator stands in LAYERS; None if it has no place there."""
    inside = module.removeprefix("difftest.simulator").lstrip(".")
    fitting = [layer for layer in LAYERS if f"{inside}.".startswith(f"{layer}.")]
    return LAYERS.index(max(fitting, key=len)) if fitting else None


def ways_back(root: Path) -> list[str]:
    """The imports inside the simulator that lead from a layer to a later one."""
    files = sorted(root.glob("difftest/simulator/**/*.py"))
    if not files:
        return ["no file matches difftest/simulator: the rule holds nothing"]
    found = []
    for file in files:
        inside = [one for one in imports(root, file) if one.within("difftest.simulator")]
        for one in inside:
            importer, imported = layer_of(one.importer), layer_of(one.name)
            if importer is None:
                found.append(f"{one.file} has no place in LAYERS")
                break
            if imported is None:
                found.append(f"{one}, which has no place in LAYERS")
            elif imported > importer and not one.typing_only:
                found.append(f"{one}, a later layer")
    return found


@every("rule", RULES)
def test_rule_holds(rule):
    assert rule.violations(ROOT) == []


def test_the_simulator_has_no_way_back():
    assert ways_back(ROOT) == []


def test_each_layer_is_there():
    folder = ROOT / "difftest" / "simulator"
    for layer in filter(None, LAYERS):
        path = folder.joinpath(*layer.split("."))
        assert path.with_suffix(".py").is_file() or path.is_dir(), f"LAYERS names {layer}"


# Each rule must be able to fail: trees with one planted violation each.
@every(
    "rule, file, source, name",
    [
        (
            CONFORMANCE,
            "conformance/a.py",
            "from difftest.simulator import Engine",
            "difftest.simulator.Engine",
        ),
        (
            REFERENCE,
            "reference/a.py",
            "from difftest.harness.case import Case",
            "difftest.harness.case.Case",
        ),
        (REFERENCE, "reference/a.py", "def f():\n    import kernels.a", "kernels.a"),
        (REFERENCE, "reference/deep/a.py", "import ml_dtypes", "ml_dtypes"),
        (REFERENCE, "reference/a.py", "from .. import kernels", "kernels"),
        (
            CLASSIC,
            "kernels/classic/a.py",
            "import reference.matmul as oracle",
            "reference.matmul",
        ),
        (
            CLASSIC,
            "kernels/classic/a.py",
            "from difftest import simulator",
            "difftest.simulator",
        ),
        (CLASSIC, "kernels/classic/a.py", "import numpy as np", "numpy"),
        (CLASSIC, "kernels/classic/a.py", "import kernels.nki.matmul", "kernels.nki.matmul"),
        (TODAYS, "kernels/nki/a.py", "import kernels.classic.matmul", "kernels.classic.matmul"),
        (SIMULATOR, "difftest/simulator/a.py", "import pytest", "pytest"),
        (
            SIMULATOR,
            "difftest/simulator/b/a.py",
            "from hypothesis import given",
            "hypothesis.given",
        ),
        (
            SIMULATOR,
            "difftest/simulator/a.py",
            "from ..harness import case",
            "difftest.harness.case",
        ),
        (SIMULATOR, "difftest/simulator/a.py", "import difftest.timing", "difftest.timing"),
        (SIMULATOR, "difftest/simulator/a.py", "import difftest.simulators", "difftest.simulators"),
        (
            ORACLE,
            "difftest/simulator/oracle/a.py",
            "from difftest.simulator.dtypes import round_to",
            "difftest.simulator.dtypes.round_to",
        ),
        (
            ORACLE,
            "difftest/simulator/oracle/a.py",
            "from difftest.simulator.instructions import alu",
            "difftest.simulator.instructions.alu",
        ),
        (
            ORACLE,
            "difftest/simulator/oracle/a.py",
            "def f():\n    from difftest.simulator.pattern import Pattern",
            "difftest.simulator.pattern.Pattern",
        ),
        (
            TIMING,
            "difftest/timing/a.py",
            "from difftest.simulator.tile import Tile",
            "difftest.simulator.tile.Tile",
        ),
        (TIMING, "difftest/timing/a.py", "from difftest import simulator", "difftest.simulator"),
        (
            ANALYSIS,
            "difftest/analysis/a.py",
            "from difftest.timing.schedule import Span",
            "difftest.timing.schedule.Span",
        ),
        (
            ANALYSIS,
            "difftest/analysis/a.py",
            "from difftest.simulator.memory import Storage",
            "difftest.simulator.memory.Storage",
        ),
        (HOST, "difftest/host/a.py", "from difftest.cli import check", "difftest.cli.check"),
        (MUTANTS, "difftest/report/mutants/a.py", "import difftest.cli", "difftest.cli"),
        (SCALE, "difftest/scale/a.py", "import difftest.cli", "difftest.cli"),
        (VERDICT, "difftest/verdict/a.py", "import difftest.cli", "difftest.cli"),
        (PLUGIN, "difftest/plugin/hooks.py", "import numpy", "numpy"),
        (
            PLUGIN,
            "difftest/plugin/hooks.py",
            "try:\n    from . import options\nfinally:\n    pass",
            "difftest.plugin.options",
        ),
        (PLUGIN, "difftest/plugin/hooks.py", "class A:\n    import rich", "rich"),
        (
            NRTPY_HOST,
            "difftest/backends/device/nrtpy_host.py",
            "def f():\n    from difftest.backends.device import faults",
            "difftest.backends.device.faults",
        ),
        (PROBES, "difftest/backends/device/probes_a.py", "import numpy", "numpy"),
        (VERDICT, "difftest/verdict/a.py", "import pytest", "pytest"),
        (
            PLUGIN,
            "difftest/plugin/hooks.py",
            "if TYPE_CHECKING:\n    pass\nelse:\n    import rich",
            "rich",
        ),
    ],
)
def test_a_planted_import_is_found(tmp_path, rule, file, source, name):
    (found,) = rule.violations(planted(tmp_path, file, source))
    assert found.startswith(f"{file}:")
    assert found.endswith(f" imports {name}")


@every(
    "rule, file, source",
    [
        (REFERENCE, "reference/a.py", "import numpy.typing, math\nfrom . import windows"),
        (
            CLASSIC,
            "kernels/classic/a.py",
            "from neuronxcc import nki\nimport kernels.classic.matmul",
        ),
        (ORACLE, "difftest/simulator/oracle/a.py", "from difftest.simulator.trace import Space"),
        (TIMING, "difftest/timing/a.py", "from difftest.simulator.trace import Trace"),
        (TIMING, "difftest/timing/a.py", "from difftest.analysis.footprint import footprint"),
        (ANALYSIS, "difftest/analysis/a.py", "from difftest.simulator.trace import Trace"),
        (
            PLUGIN,
            "difftest/plugin/hooks.py",
            "import pytest\ndef hook():\n    import difftest.harness",
        ),
        (
            PLUGIN,
            "difftest/plugin/hooks.py",
            "if TYPE_CHECKING:\n    from difftest import harness",
        ),
    ],
)
def test_what_is_allowed_passes(tmp_path, rule, file, source):
    assert rule.violations(planted(tmp_path, file, source)) == []


@every("rule", RULES)
def test_a_rule_over_no_file_fails(tmp_path, rule):
    assert rule.violations(tmp_path) == [f"no file matches {rule.files}: the rule holds nothing"]


@every(
    "file, source, message",
    [
        ("tile.py", "from difftest.simulator.launch import launch", "launch.launch, a later layer"),
        ("errors.py", "def f():\n    from . import dtypes", "simulator.dtypes, a later layer"),
        ("instructions/gate.py", "from . import dma", "instructions.dma, a later layer"),
        ("frontend/nki.py", "import difftest.simulator", "difftest.simulator, a later layer"),
        ("frontend/loops.py", "from .classic import issue", "classic.issue, a later layer"),
        ("extra.py", "from difftest.simulator import errors", "extra.py has no place in LAYERS"),
        ("tile.py", "from difftest.simulator import extra", "extra, which has no place in LAYERS"),
    ],
)
def test_a_planted_way_back_is_found(tmp_path, file, source, message):
    (found,) = ways_back(planted(tmp_path, f"difftest/simulator/{file}", source))
    assert found.endswith(message)


def test_a_way_forward_passes(tmp_path):
    source = "from difftest.simulator.errors import NkiError\nfrom . import operands, record"
    assert ways_back(planted(tmp_path, "difftest/simulator/instructions/dma.py", source)) == []


def test_a_simulator_without_files_fails(tmp_path):
    assert ways_back(tmp_path) == ["no file matches difftest/simulator: the rule holds nothing"]
