"""A kernel as its judge knows it: a name and a signature; and its file, as a test may import it.

The test that judges a kernel usually imports it. In the judge's process that must not run the
file: a stand-in has its plain constants, and functions with signatures and no code.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

_PLAIN = (int, float, str, bool, type(None))


class Candidate:
    """A kernel that runs in a worker: what a spec asks of a kernel, and no code."""

    def __init__(self, name: str, module: str, signature: Any) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = module
        if signature is not None:
            self.__signature__ = _signature(signature)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"{self.__name__} is under judgement: its code runs in a worker, and is not called here"
        )

    def __getitem__(self, grid: Any) -> Candidate:
        return self


def _signature(rows: Any) -> inspect.Signature:
    kinds, none = inspect.Parameter, inspect.Parameter.empty
    return inspect.Signature(
        [
            kinds(str(name), getattr(kinds, kind), default=none if own is None else (*own, ...)[0])
            for name, kind, own in rows
        ]
    )


Describe: TypeAlias = Callable[[], Mapping[str, Any]]
"""What a worker says of a file that it has loaded."""


class _StandIn(MetaPathFinder, Loader):
    """Finds the modules of files, by whatever names, and runs nothing of them."""

    def __init__(self, files: Mapping[Path, Describe]) -> None:
        self.files = {os.path.realpath(file): describe for file, describe in files.items()}
        self.read: dict[str, Any] = {}
        self._stems = {file.stem for file in map(Path, self.files)}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The stand-in, where Python would take the file."""
        if fullname.rpartition(".")[2] not in self._stems:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        file = os.path.realpath(found.origin) if found is not None and found.origin else ""
        if file not in self.files:
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """The default kind."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the names that the kernel's file has."""
        described = self.files[str(module.__file__)]()
        known = {name: one for name, one in described["constants"].items() if type(one) in _PLAIN}

        def read(name: str) -> Any:
            if name not in known:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return self.read.setdefault(name, known[name])

        vars(module).update(__getattr__=read, __all__=[*described["functions"], *known])
        for name, signature in described["functions"].items():
            setattr(module, name, Candidate(name, module.__name__, signature))


@contextmanager
def stand_in(files: Mapping[Path, Describe]) -> Iterator[Mapping[str, Any]]:
    """A scope in which an import of a file gives its stand-in, and the constants read of it."""
    finder = _StandIn(files)
    before = {
        name: module
        for name, module in sys.modules.items()
        if os.path.realpath(getattr(module, "__file__", None) or "") in finder.files
    }
    known = {*sys.modules}
    for name in before:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield finder.read
    finally:
        sys.meta_path.remove(finder)
        for name in [*sys.modules]:
            loader = getattr(getattr(sys.modules[name], "__spec__", None), "loader", None)
            if loader is finder or (name in before and name not in known):
                del sys.modules[name]
        sys.modules.update(before)
