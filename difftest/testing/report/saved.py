"""A failure as one file: the sources of its kernel, reference and test, and its case.

``pytest --difftest-save DIR`` writes it, and ``difftest replay FILE`` runs it on any computer with
this package. The file is Python, for readers. A replay does not run the file: it runs only the
modules that the file holds.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from difftest.support.tracebacks import is_installed, is_library
from difftest.testing.contract.case import Edge
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.drawing.explicit import case_from_json
from difftest.testing.harness.decorated import kernel_test_of
from difftest.testing.harness.edges import edge_cases
from difftest.testing.host.installation import embedded_with_predictions
from difftest.testing.host.loading import in_front

EDGE = "at the edges: "
_FIELDS = ("TEST", "CASE", "LEVEL", "STRICTNESS", "MODULES")


class SavedError(ValueError):
    """A file is not a saved failure, or its modules cannot be imported here."""


class SavedFailure(NamedTuple):
    """The contents of a file.

    Attributes
    ----------
    test : ``module:function`` of the kernel test.
    case : the JSON of ``--case``, or :data:`EDGE` and the description of an edge call.
    modules : the source of each module, by name.
    level, strictness : those of the test's run; None for the defaults.
    """

    test: str
    case: str
    modules: Mapping[str, str]
    level: str | None = None
    strictness: str | None = None

    def script(self, title: str) -> str:
        """Return the text of the file; ``title`` is one line on the failure."""
        fields = [self.test, self.case, self.level, self.strictness]
        head = "\n".join(
            f"{name} = {value!r}" for name, value in zip(_FIELDS, fields, strict=False)
        )
        entries = [
            f"    {name!r}: {_quoted(source)}," for name, source in self.modules.items()
        ]
        modules = "\n".join(entries)
        quiet = title.replace("\\", "/").replace('"', "'")
        return (
            f'"""{quiet}\n\n    difftest replay FILE\n\nruns it again, and stops at the '
            f'instruction where a judge first disagrees.\n"""\n\n{head}\n'
            f"MODULES = {{\n{modules}\n}}\n"
        )

    @contextmanager
    def loaded(self) -> Iterator[tuple[KernelSpec, Edge, Path]]:
        """Yield the spec, the call and the folder of the sources, which exist within the block.

        Raises
        ------
        SavedError : the test cannot be imported, or is not a kernel test.
        CaseError : the case does not fit its spec.
        """
        with tempfile.TemporaryDirectory(prefix="difftest-replay-") as name:
            folder = Path(name).resolve()
            self._write_modules(folder)
            with in_front(folder, self.modules), embedded_with_predictions(self.level):
                spec = self._saved_spec()
                yield spec, self._call(spec), folder

    def _call(self, spec: KernelSpec) -> Edge:
        """Return the call. Its ``why`` is empty if it is a case."""
        if not self.case.startswith(EDGE):
            return Edge(case_from_json(self.case, spec), "", inside=True)
        why = self.case.removeprefix(EDGE)
        for edge in edge_cases(spec):
            if edge.why == why:
                return edge
        raise SavedError(f"the spec of {self.test} has no call at its edges with {why}")

    def _write_modules(self, folder: Path) -> None:
        """Write the saved modules as a package tree."""
        for name, source in self.modules.items():
            *parents, last = name.split(".")
            place = folder
            for parent in parents:
                place = place / parent
                place.mkdir(exist_ok=True)
                # Else a package in another folder takes precedence.
                (place / "__init__.py").touch()
            is_package = any(other.startswith(f"{name}.") for other in self.modules)
            file = place / last / "__init__.py" if is_package else place / f"{last}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(source, encoding="utf-8")

    def _saved_spec(self) -> KernelSpec:
        """Return the spec of the saved test, which is imported."""
        module, _, function = self.test.partition(":")
        try:
            test = kernel_test_of(
                getattr(importlib.import_module(module), function, None)
            )
        except Exception as error:
            raise SavedError(
                f"{module} cannot be imported here, {type(error).__name__}: {error}"
            ) from error
        if test is None:
            raise SavedError(f"{module} has no kernel test {function}")
        return test.spec


def read_saved(file: Path) -> SavedFailure:
    """Return the contents of a file.

    Raises
    ------
    SavedError : ``--difftest-save`` did not write the file.
    """
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), file.name)
        values = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        test, case, level, strictness, modules = (values[name] for name in _FIELDS)
    except (OSError, SyntaxError, ValueError, KeyError) as error:
        why = (
            f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        )
        raise SavedError(
            f"{file} was not written by pytest --difftest-save: {why}"
        ) from None
    return SavedFailure(test, case, modules, level, strictness)


def file_name(test: str) -> str:
    """Return the file name for a test: a name that pytest does not collect."""
    return f"failure_{re.sub(r'[^A-Za-z0-9]+', '_', test).strip('_')}.py"


def modules_of(start: ModuleType) -> dict[str, str]:
    """Return the sources of a module and of all the user's modules that it imports, by name."""
    sources: dict[str, str] = {}
    left = [start.__name__]
    modules = {start.__name__: start}
    while left:
        name = left.pop()
        module = modules.get(name) or sys.modules.get(name)
        if name in sources or module is None or not _is_own(module):
            continue
        source = inspect.getsource(module) or "\n"
        sources[name] = source
        left += _imported(source, name, is_package=hasattr(module, "__path__"))
    return sources


def _is_own(module: ModuleType) -> bool:
    """Return whether a module is the user's: not Python's, not installed, not of this package."""
    file = getattr(module, "__file__", None)
    if file is None or not str(file).endswith(".py"):
        return False
    foreign = is_library(file) or is_installed(file)
    return not foreign and bool(Path(file).read_bytes().strip())


def _imported(source: str, name: str, *, is_package: bool) -> Iterable[str]:
    """Yield the modules that a source may import: those in its statements, and their parents."""
    package = name.split(".") if is_package else name.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            yield from _with_parents(module)
            for alias in node.names:
                yield from _with_parents(f"{module}.{alias.name}")


def _with_parents(module: str) -> Iterator[str]:
    """Yield the names of a module's packages, and its own."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _quoted(source: str) -> str:
    """Return a source as a Python literal, readable if possible."""
    plain = source.endswith("\n") and "'''" not in source and "\r" not in source
    return f"r'''{source}'''" if plain and not source.startswith("'") else repr(source)
