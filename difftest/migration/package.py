"""A folder of classic files that import from one another, rewritten together."""

from __future__ import annotations

from pathlib import Path

from difftest.migration.proof import Sources
from difftest.migration.rewriting import Migrated, migrate
from difftest.migration.scope import KnownTile


class Package:
    """The Python files below a folder, and where their new forms go.

    An import of ``kernels.classic.conv2d`` in ``kernels/classic`` becomes one of
    ``kernels.nki.conv2d`` if the new files go to ``.../kernels/nki``: as many parts of the name
    are taken from the new folder's path as stood for the old one.

    Parameters
    ----------
    folder, output : existing folder, and the one for the new files.
    """

    def __init__(self, folder: Path, output: Path) -> None:
        self.folder, self.output = folder.resolve(), output.resolve()
        self.files = sorted(self.folder.rglob("*.py"))
        self._returns: dict[Path, dict[str, KnownTile]] = {}

    def migrated(self) -> dict[Path, Migrated]:
        """The new files, by their places in the folder.

        Raises
        ------
        libcst.ParserSyntaxError, UnicodeDecodeError : a file is no Python; ``path`` of the error
            names it.
        """
        made: dict[Path, Migrated] = {}
        for _ in range(2):  # what a function returns is known when the files are read again
            for file in self.files:
                text = file.read_text(encoding="utf-8")
                result = migrate(text, Neighbours(self, file))
                self._returns[file] = result.returns
                made[file.relative_to(self.folder)] = result
        return made

    def file_of(self, name: str) -> Path | None:
        """The file of a module's dotted name; None if it is not in the folder."""
        parts = name.split(".")
        found = [self._file(parts)]
        for number, part in enumerate(parts):
            head = tuple(parts[: number + 1])
            if part == self.folder.name and self.folder.parts[-len(head) :] == head:
                found.append(self._file(parts[number + 1 :]))
        return next((file for file in found if file is not None), None)

    def sources(self, folder: Path, place: Path) -> Sources:
        """A file of the old folder or the new one, with what it may import there."""
        folder = folder.resolve()
        depth = max((self._depth(file) for file in self.files), default=0)
        if not depth:
            return Sources(folder / place, folder)
        root = folder.parents[depth - 1]
        return Sources(folder / place, root, folder.relative_to(root).parts[0])

    def _depth(self, file: Path) -> int:
        """How many parts of the folder's path stand in the imports of a file."""
        text = file.read_text(encoding="utf-8")
        depth = 0
        for count in range(1, len(self.folder.parts)):
            name = ".".join(self.folder.parts[-count:])
            if f"from {name}" in text or f"import {name}" in text:
                depth = count
        return depth

    def _file(self, parts: list[str]) -> Path | None:
        place = self.folder.joinpath(*parts)
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file in self.files:
                return file
        return None

    def today(self, name: str) -> str:
        """The dotted name of a module of the folder among the new files."""
        parts = name.split(".")
        for number, part in enumerate(parts):
            head = tuple(parts[: number + 1])
            if part == self.folder.name and self.folder.parts[-len(head) :] == head:
                return ".".join([*self.output.parts[-len(head) :], *parts[number + 1 :]])
        return name

    def returns(self, file: Path) -> dict[str, KnownTile]:
        """What the functions of a file return, as far as that is known yet."""
        return self._returns.get(file, {})


class Neighbours:
    """The files that one file can import from.

    Parameters
    ----------
    package : theirs.
    file : the one that imports.
    """

    def __init__(self, package: Package, file: Path) -> None:
        self.package, self.file = package, file

    def today(self, name: str) -> str | None:
        """The new name of a module; None if it is not among the files."""
        return None if self.package.file_of(name) is None else self.package.today(name)

    def returns(self, name: str) -> dict[str, KnownTile]:
        """What the functions of a module return."""
        file = self.package.file_of(name)
        return {} if file is None else self.package.returns(file)
