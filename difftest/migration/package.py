"""A folder of classic files that import from one another, rewritten together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from difftest.migration.proof import Sources
from difftest.migration.rewriting import Migrated, migrate
from difftest.migration.scope import KnownTile


class Package:
    """The Python files below a folder, and where their new forms go.

    An import of ``kernels.classic.conv2d`` in ``kernels/classic`` becomes one of
    ``kernels.nki.conv2d`` if the new files go to ``.../kernels/nki``: as many parts of the name
    are taken from the new folder's path as stood for the old one.
    """

    def __init__(self, folder: Path, output: Path) -> None:
        self.folder, self.output = folder.resolve(), output.resolve()
        self.files = sorted(self.folder.rglob("*.py"))
        self._returns: dict[Path, dict[str, KnownTile]] = {}

    def migrated(self) -> dict[Path, Migrated]:
        """The new files, by their places in the folder."""
        made: dict[Path, Migrated] = {}
        for _ in range(2):  # what a function returns is known when the files are read again
            for file in self.files:
                text = file.read_text(encoding="utf-8")
                result = migrate(text, self)
                self._returns[file] = result.returns
                made[file.relative_to(self.folder)] = result
        return made

    def _named(self, name: str) -> Iterator[tuple[int, list[str]]]:
        """Where the folder stands in a module's dotted name, and what follows it there."""
        parts = name.split(".")
        for count, part in enumerate(parts, 1):
            if part == self.folder.name and list(self.folder.parts[-count:]) == parts[:count]:
                yield count, parts[count:]

    def file_of(self, name: str) -> Path | None:
        """The file of a module's dotted name; None if it is not in the folder."""
        parts = [name.split("."), *(rest for _, rest in self._named(name))]
        places = [self.folder.joinpath(*one) for one in parts]
        files = [one for at in places for one in (at.with_suffix(".py"), at / "__init__.py")]
        return next((file for file in files if file in self.files), None)

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

    def today(self, name: str) -> str | None:
        """The dotted name of a module among the new files; None if it is not in the folder."""
        if self.file_of(name) is None:
            return None
        for count, rest in self._named(name):
            return ".".join([*self.output.parts[-count:], *rest])
        return name

    def returns(self, name: str) -> dict[str, KnownTile]:
        """What the functions of a module return, as far as that is known yet."""
        file = self.file_of(name)
        return {} if file is None else self._returns.get(file, {})
