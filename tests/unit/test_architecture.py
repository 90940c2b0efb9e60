"""Who may import whom: docs/explanation/architecture.md, read from the syntax trees."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.every import every
from tests.unit.imports import Import, imports, planted

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
    (
        "numpy",
        "ml_dtypes",
        "threadpoolctl",
        "difftest.simulator",
        "difftest.choices",
        "difftest.annotations",
    ),
)
# What can be said of a trace without knowing how long anything takes: it sees the trace alone.
ANALYSIS = Rule(
    "difftest/analysis/**/*.py",
    (
        "numpy",
        "difftest.analysis",
        "difftest.internal_errors",
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
        "difftest.simulator.instructions.record.InstructionUse",
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
        *("numpy", "difftest.inspection", "difftest.analysis", "difftest.internal_errors"),
        "difftest.simulator",
    ),
)
# The linter reads source and traces: it serves without pytest, and runs no kernel. Its stubs have
# the names that the lists of the documentation have.
LINT = Rule(
    "difftest/lint/**/*.py",
    (
        *("difftest.lint", "difftest.analysis", "difftest.internal_errors", "difftest.migration"),
        *("difftest.simulator.trace", "difftest.simulator.machine", "difftest.simulator.frontend"),
        *("difftest.api.documented", "difftest.choices", "numpy", "tomli"),
    ),
)
# Who judges a kernel stands on all that looks at kernels.
BELOW = (
    "verdict harness backends analysis internal_errors inspection lint timing simulator host plugin"
)
JUDGES = ("numpy", "hypothesis", "click", *(f"difftest.{name}" for name in BELOW.split()))
VERDICT = Rule(
    "difftest/verdict/**/*.py", (*JUDGES, "difftest.report", "difftest.choices", "mcp", "rich")
)
MUTANTS = Rule("difftest/report/mutants/**/*.py", (*JUDGES, "difftest.report", "pytest"))
# Many points of one test: nothing imports it but the command line, by name.
SCALE = Rule(
    "difftest/scale/**/*.py",
    (
        *(*JUDGES, "rich", "difftest.choices", "difftest.scale", "difftest.report"),
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
        "difftest.internal_errors",
        *("difftest.report", "difftest.harness", "difftest.backends", "difftest.analysis"),
        *("difftest.inspection", "difftest.timing", "difftest.simulator", "difftest.host"),
    ),
)
# What commands of several rooms share stands below them all: nothing of a command is in it.
HOST = Rule(
    "difftest/host/**/*.py",
    (
        *("numpy", "click", "rich", "pytest", "difftest.host", "difftest.harness"),
        "difftest.internal_errors",
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
            "difftest.simulator.launch_listeners",
            "jsonschema",
        ),
        *(
            f"difftest.simulator.{name}"
            for name in ("MACHINES", "NkiError", "launch", "strictness")
        ),
    ),
)

RULES = [REFERENCE, CLASSIC, TODAYS, SIMULATOR, ORACLE, ANALYSIS, TIMING, API, PLUGIN]
RULES += [NRTPY_HOST, PROBES, CONFORMANCE, INSPECTION, LINT, VERDICT, MUTANTS, REPORT, SCALE, HOST]

# A floor of the simulator imports itself and floors below it. A module stands on the floor that has
# the longest part of its name.
FLOORS = {
    "errors": "errors misuses",
    "machine": "machine pattern dtypes trace trace_json",
    "arguments": "index strictness capacity descriptor lifted",
    "memory": "memory follower program_scheduler recording core",
    "views": "elements indexing tile indirect partial",
    "instructions": "instructions",
    "followers": "oracle exact",
    "frontend": "frontend",
    "launch": "arrays launch_listeners tape tape_json launch replay",
    "entrance": "frontend.kernel frontend.nki.nki_kernel frontend.install package",
}
"""By name, the lowest first; ``package`` is the package itself, which gathers its public names."""
PLACES = {module: floor for floor, modules in FLOORS.items() for module in modules.split()}


def floor_of(module: str) -> int | None:
    """The number of the floor on which a module of the simulator stands; None if it has none."""
    inside = module.removeprefix("difftest.simulator").lstrip(".") or "package"
    fitting = [place for place in PLACES if f"{inside}.".startswith(f"{place}.")]
    return list(FLOORS).index(PLACES[max(fitting, key=len)]) if fitting else None


def of_simulator(root: Path) -> list[Import]:
    """What the simulator imports of itself, inside functions too, but for types alone."""
    return [
        each
        for file in sorted(root.glob("difftest/simulator/**/*.py"))
        for each in imports(root, file)
        if each.within("difftest.simulator") and not each.typing_only
    ]


def ways_up(root: Path) -> list[str]:
    """The imports inside the simulator that lead from a floor to a higher one."""
    wrong = []
    for each in of_simulator(root):
        importer = floor_of(each.importer)
        imported = floor_of(each.name)
        if importer is None or imported is None:
            wrong.append(f"{each}, and one of them has no floor")
        elif imported > importer:
            wrong.append(f"{each}, a higher floor")
    return wrong


@every("rule", RULES)
def test_rule_holds(rule):
    assert rule.violations(ROOT) == []


def test_no_floor_of_the_simulator_knows_a_higher_one():
    """Nor a circle: that no modules import each other is held in test_floors.py."""
    assert ways_up(ROOT) == []


def test_the_page_names_the_ten_floors():
    page = (ROOT / "docs" / "explanation" / "imports.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) (\w+) \| ([^|]+) \|", page, re.MULTILINE)
    floors = [(f"{at}", *row) for at, row in enumerate(FLOORS.items(), 1)]
    assert [(at, name, modules.replace("`", "")) for at, name, modules in rows] == floors
    assert len(floors) == 10


def test_each_floor_is_there():
    folder = ROOT / "difftest" / "simulator"
    for place in PLACES.keys() - {"package"}:
        path = folder.joinpath(*place.split("."))
        assert path.with_suffix(".py").is_file() or path.is_dir(), f"FLOORS names {place}"


def a_file_of(rule):
    """The path of a file that a rule holds."""
    return rule.files.replace("**/", "").replace("*", "a")


# Each rule must be able to fail: trees with one planted violation each.
@every("rule", RULES)
def test_an_import_that_no_rule_allows_is_found(tmp_path, rule):
    (found,) = rule.violations(planted(tmp_path, a_file_of(rule), "import difftest.cli"))
    assert found == f"{a_file_of(rule)}:1 imports difftest.cli"


INNER = "difftest.simulator"


@every(
    "rule, source, name",
    [
        (CONFORMANCE, f"from {INNER} import Engine", f"{INNER}.Engine"),
        (REFERENCE, "from difftest.harness.case import Case", "difftest.harness.case.Case"),
        (REFERENCE, "def f():\n    import kernels.a", "kernels.a"),
        (REFERENCE, "from .. import kernels", "kernels"),
        (CLASSIC, "import reference.matmul as oracle", "reference.matmul"),
        (CLASSIC, "from difftest import simulator", INNER),
        (CLASSIC, "import numpy as np", "numpy"),
        (CLASSIC, "import kernels.nki.matmul", "kernels.nki.matmul"),
        (TODAYS, "import kernels.classic.matmul", "kernels.classic.matmul"),
        (SIMULATOR, "import pytest", "pytest"),
        (SIMULATOR, "from hypothesis import given", "hypothesis.given"),
        (SIMULATOR, "from ..harness import case", "difftest.harness.case"),
        (SIMULATOR, "import difftest.timing", "difftest.timing"),
        (SIMULATOR, "import difftest.simulators", "difftest.simulators"),
        (ORACLE, f"from {INNER}.dtypes import round_to", f"{INNER}.dtypes.round_to"),
        (ORACLE, f"from {INNER}.instructions import alu", f"{INNER}.instructions.alu"),
        (
            *(ORACLE, f"def f():\n    from {INNER}.pattern import Pattern"),
            f"{INNER}.pattern.Pattern",
        ),
        (TIMING, f"from {INNER}.tile import Tile", f"{INNER}.tile.Tile"),
        (TIMING, "from difftest import simulator", INNER),
        (ANALYSIS, "from difftest.timing.schedule import Span", "difftest.timing.schedule.Span"),
        (ANALYSIS, f"from {INNER}.memory import Storage", f"{INNER}.memory.Storage"),
        (PLUGIN, "import numpy", "numpy"),
        (PLUGIN, "try:\n    from . import options\nfinally:\n    pass", "difftest.plugin.options"),
        (PLUGIN, "class A:\n    import rich", "rich"),
        (PLUGIN, "if TYPE_CHECKING:\n    pass\nelse:\n    import rich", "rich"),
        (
            *(NRTPY_HOST, "def f():\n    from difftest.backends.device import core"),
            "difftest.backends.device.core",
        ),
        (PROBES, "import numpy", "numpy"),
        (VERDICT, "import pytest", "pytest"),
    ],
)
def test_a_planted_import_is_found(tmp_path, rule, source, name):
    file = a_file_of(rule)
    (found,) = rule.violations(planted(tmp_path, file, source))
    assert found.startswith(f"{file}:")
    assert found.endswith(f" imports {name}")


def test_an_import_in_a_deeper_folder_is_found(tmp_path):
    (found,) = REFERENCE.violations(planted(tmp_path, "reference/deep/a.py", "import ml_dtypes"))
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
        (PLUGIN, "import pytest\ndef hook():\n    import difftest.harness"),
        (PLUGIN, "if TYPE_CHECKING:\n    from difftest import harness"),
    ],
)
def test_what_is_allowed_passes(tmp_path, rule, source):
    assert rule.violations(planted(tmp_path, a_file_of(rule), source)) == []


@every("rule", RULES)
def test_a_rule_over_no_file_fails(tmp_path, rule):
    assert rule.violations(tmp_path) == [f"no file matches {rule.files}: the rule holds nothing"]


@every(
    "file, source, message",
    [
        (
            "tile.py",
            "from difftest.simulator.launch import launch",
            "launch.launch, a higher floor",
        ),
        ("errors.py", "def f():\n    from . import dtypes", "simulator.dtypes, a higher floor"),
        ("instructions/gate.py", "from .. import oracle", "simulator.oracle, a higher floor"),
        ("frontend/nki.py", "import difftest.simulator", "difftest.simulator, a higher floor"),
        ("extra.py", "from difftest.simulator import errors", "and one of them has no floor"),
        ("tile.py", "from difftest.simulator import extra", "and one of them has no floor"),
    ],
)
def test_a_planted_way_up_is_found(tmp_path, file, source, message):
    (wrong,) = ways_up(planted(tmp_path, f"difftest/simulator/{file}", source))
    assert wrong.endswith(message)
