"""What no module of difftest imports: what the wheel does not have, and what imports it back."""

from __future__ import annotations

from pathlib import Path

from tests.every import every
from tests.unit.imports import imports, planted

ROOT = Path(__file__).parents[2]

# What stands beside difftest in the source tree. The commands that show or grade it ask
# difftest.host.shipped for it by name; the harness itself never does.
TREE = ("reference", "kernels", "tests", "benchmarks", "conformance")
ASK_FOR_SHIPPED = ("difftest.cli", "difftest.course", "difftest.host.loading")


def imports_of_tree(root: Path) -> list[str]:
    """The imports in difftest of what the wheel does not have under that name."""
    files = sorted(root.glob("difftest/**/*.py"))
    if not files:
        return ["no file matches difftest: the rule holds nothing"]
    return [
        str(one)
        for file in files
        for one in imports(root, file)
        if one.within(*TREE)
        or (one.within("difftest.host.shipped") and not one.importer.startswith(ASK_FOR_SHIPPED))
    ]


def circles(root: Path, package: str) -> list[str]:
    """The modules of a package that import each other, for types alone or when loaded."""
    files = sorted(root.glob(f"{package}/**/*.py"))
    if not files:
        return [f"no file matches {package}: the rule holds nothing"]
    graph: dict[str, set[str]] = {}
    for file in files:
        for one in imports(root, file):
            graph.setdefault(one.importer, set())
            if not one.deferred:
                graph[one.importer] |= {one.name, one.name.rpartition(".")[0]}

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        left = [start]
        while left:
            fresh = (graph[left.pop()] & graph.keys()) - found
            found |= fresh
            left += fresh
        return found

    return [f"{module} imports itself, on the way" for module in graph if module in reached(module)]


def test_the_wheel_needs_nothing_of_the_source_tree():
    assert imports_of_tree(ROOT) == []


@every(
    "package", ["difftest/harness", "difftest/backends", "difftest/simulator", "difftest/timing"]
)
def test_no_modules_import_each_other(package):
    assert circles(ROOT, package) == []


@every(
    "source, name",
    [
        ("def f():\n    from reference.conv2d import conv2d", "reference.conv2d.conv2d"),
        ("import kernels", "kernels"),
        (
            "from difftest.host.shipped import import_shipped",
            "difftest.host.shipped.import_shipped",
        ),
    ],
)
def test_a_planted_import_of_the_tree_is_found(tmp_path, source, name):
    (found,) = imports_of_tree(planted(tmp_path, "difftest/harness/runner.py", source))
    assert found.endswith(f" imports {name}")


def test_a_package_without_files_fails(tmp_path):
    assert imports_of_tree(tmp_path) == ["no file matches difftest: the rule holds nothing"]


@every("importing", ["from a.case import Case", "from a import case"])
@every("way", ["{}", "if TYPE_CHECKING:\n    {}"])
def test_a_planted_circle_is_found(tmp_path, importing, way):
    planted(tmp_path, "a/case.py", way.format("import a.spec"))
    (tmp_path / "a/spec.py").write_text("import a.strategies")
    (tmp_path / "a/strategies.py").write_text(importing)
    assert len(circles(tmp_path, "a")) == 3
    (tmp_path / "a/strategies.py").write_text(f"def f():\n    {importing}")
    assert circles(tmp_path, "a") == []


def test_a_circle_in_no_package_fails(tmp_path):
    assert circles(tmp_path, "a") == ["no file matches a: the rule holds nothing"]
