"""Ten floors of the package: docs/explanation/imports.md, deferred imports counted."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.every import every
from tests.unit.imports import imports, planted

ROOT = Path(__file__).parents[2]

# A floor of the package imports itself and those before it, at the top of a file or inside a
# function. A module is on the floor that has the longest beginning of its name.
FLOORS = (
    (
        *(
            "annotations",
            "choices",
            "internal_errors",
            "host.pool",
            "host.worker",
            "host.output",
            "host.journal",
        ),
        *("backends.tracebacks", "harness.rounding", "harness.signature"),
    ),
    ("simulator",),
    ("analysis",),
    ("inspection", "timing"),
    ("api", "backends"),
    ("harness",),
    ("backends.selection", "backends.device", "course", "host", "migration", "plugin.options"),
    ("lint", "report"),
    ("plugin.collection", "scale", "verdict"),
    ("__main__", "cli", "plugin"),
)


def floor_of(module: str) -> int | None:
    """The floor of a module, counted from 0; None if it is on none."""
    inside = module.removeprefix("difftest.")
    fitting = {part: at for at, floor in enumerate(FLOORS) for part in floor}
    known = [part for part in fitting if f"{inside}.".startswith(f"{part}.")]
    return fitting[max(known, key=len)] if known else None


def inner_imports(root: Path) -> Iterator[tuple[str, str, str]]:
    """Importing module, imported module and the place, of each import that is ever carried out."""
    modules = {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
        for file in sorted(root.glob("difftest/**/*.py"))
    }
    for file in modules.values():
        for one in imports(root, file):
            name = one.name if one.name in modules else one.name.rpartition(".")[0]
            if name in modules and name != one.importer and not one.typing_only:
                yield one.importer, name, str(one)


def wrong_floors(root: Path) -> list[str]:
    """The imports that lead from a floor to a higher one, and what is on no floor."""
    found = []
    seen = False
    for importer, name, place in inner_imports(root):
        seen = True
        floors = (floor_of(importer), floor_of(name))
        if name == "difftest" or importer == "difftest":  # it gathers public names, when asked
            continue
        if None in floors:
            found.append(f"{place}: one of them is on no floor")
        elif floors[0] < floors[1]:
            found.append(f"{place}, from floor {floors[0] + 1} to floor {floors[1] + 1}")
    return found if seen else ["no module of difftest imports another: the floors hold nothing"]


def circle_in(root: Path) -> list[str]:
    """Modules that import each other in a circle, inside functions too; empty if none do."""
    graph: dict[str, set[str]] = {}
    for importer, name, _ in inner_imports(root):
        graph.setdefault(importer, set()).add(name)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_floor_imports_no_higher_one():
    assert len(FLOORS) == 10
    assert wrong_floors(ROOT) == []


def test_no_modules_import_each_other():
    assert circle_in(ROOT) == []


# Each must be able to fail.
@every(
    "file, source, end",
    [
        ("timing/a.py", "from difftest.harness import case", "from floor 4 to floor 6"),
        ("host/pool.py", "def f():\n    import difftest.simulator", "from floor 1 to floor 2"),
        ("backends/base.py", "from difftest.harness import runner", "from floor 5 to floor 6"),
        ("attic/a.py", "from difftest.harness import case", "one of them is on no floor"),
    ],
)
def test_a_planted_way_up_is_found(tmp_path, file, source, end):
    planted(tmp_path, f"difftest/{file}", source)
    for name in ("harness/case.py", "harness/runner.py", "simulator/__init__.py"):
        place = tmp_path / "difftest" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    (found,) = wrong_floors(tmp_path)
    assert found.endswith(end)


def test_a_planted_circle_is_found(tmp_path):
    planted(tmp_path, "difftest/report/a.py", "def f():\n    from difftest.report import b")
    (tmp_path / "difftest/report/b.py").write_text("from difftest.report import a")
    assert set(circle_in(tmp_path)) == {"difftest.report.a", "difftest.report.b"}


def test_floors_over_no_file_hold_nothing(tmp_path):
    assert "the floors hold nothing" in wrong_floors(tmp_path)[0]
