"""Read a candidate's files: the kernel's file, and the files of its folder that it imports.

Each file is read once, in the judge's process. The worker runs the text that was read, and reads no
file itself.
"""

from __future__ import annotations

import ast
import codecs
import io
import os
import sys
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NKI = ("nki", "neuronxcc")
"""The packages of NKI. Their modules are the simulator's own."""
MOST_BYTES = 2**20
"""The limit on the bytes of all files of a candidate."""
MOST_FILES = 200
"""The limit on the number of files of a candidate."""
MOST_DEPTH = 120
"""The limit on the nesting depth of a file's statements and expressions."""
ENCODINGS = ("utf-8", "utf-8-sig", "ascii", "iso8859-1")
"""The encodings that a file may have, by the names of their codecs."""
_ELIF_DEPTH = 0.25
"""The depth of an ``elif``. The syntax tree nests each ``elif`` in the one before."""
_MAIN = ("__name__ == '__main__'", "'__main__' == __name__")
_TAKEN = sys.stdlib_module_names | {*NKI, "numpy", "ml_dtypes", "difftest"}
"""Names of modules that the worker itself has or imports."""
_UNREADABLE = (
    OSError,
    ValueError,
    SyntaxError,
    RecursionError,
    MemoryError,
    LookupError,
)


class Violation(NamedTuple):
    """A place in a candidate's source that breaks a rule, and a remedy."""

    file: str
    line: int
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}; {self.remedy}"


class OutsideLanguage(Exception):
    """A candidate breaks a rule of its language."""

    def __init__(self, violation: Violation) -> None:
        self.violation = violation
        super().__init__(str(violation))


class SourceFile(NamedTuple):
    """A file of a candidate: the name of its module, its path, and its bytes."""

    name: str
    file: str
    is_package: bool
    text: bytes

    @property
    def package(self) -> str:
        """The name of the package that relative imports of the file start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


class ImportedName(NamedTuple):
    """A module that a statement imports, or a member of a module.

    Attributes
    ----------
    node : the statement.
    module : the module's whole name; empty if the statement leaves the top package.
    member : the imported member, or an empty text.
    bound : the name after ``as``; None without one.
    file : the candidate's file of the module or of the member; None for another module.
    """

    node: ast.Import | ast.ImportFrom
    module: str
    member: str
    bound: str | None
    file: Path | None
    is_member_file: bool

    @property
    def name(self) -> str:
        """The whole name of the module that has a file."""
        if self.is_member_file:
            return f"{self.module}.{self.member}"
        return self.module


class CandidateFiles:
    """The files of a candidate.

    Attributes
    ----------
    root : the folder that absolute imports start from.
    sources : the files by the names of their modules, the kernel's file first.
    trees : the syntax trees of ``sources``.
    faults : why a file cannot be used, by the name of its module.
    """

    def __init__(self, file: Path) -> None:
        self.sources: dict[str, SourceFile] = {}
        self.trees: dict[str, ast.Module] = {}
        self.faults: dict[str, Violation] = {}
        self.root = file.parent
        name = file.stem
        while (self.root / "__init__.py").is_file():
            name = f"{self.root.name}.{name}"
            self.root = self.root.parent
        pending = [(name, file)]
        while pending:
            name, place = pending.pop(0)
            if name in self.sources or name in self.faults:
                continue
            try:
                self._read(name, place)
            except _UNREADABLE as error:
                self.faults[name] = _fault(place, error)
                continue
            for found in self.imports_of(name):
                if found.file is not None:
                    pending.append((found.name, found.file))

    def _read(self, name: str, file: Path) -> None:
        """Read and parse a file; raise an error of ``_UNREADABLE`` if it breaks a rule."""
        if name.partition(".")[0] in _TAKEN:
            raise ValueError(f"{name} is also the name of an installed module")
        text = _bytes_of(file, self.root)
        source = SourceFile(name, str(file), file.name == "__init__.py", text)
        sizes = [len(other.text) for other in self.sources.values()]
        count = len(sizes) + 1
        total = sum(sizes) + len(text)
        if count > MOST_FILES or total > MOST_BYTES:
            received = f"{count} files of {total:,} bytes"
            raise ValueError(
                f"{received}; accepted: {MOST_FILES} of {MOST_BYTES:,} in all"
            )
        tree = _parse(source)
        self.sources[name] = source
        self.trees[name] = tree

    def imports_of(self, name: str) -> Iterator[ImportedName]:
        """Yield the imports of a file, except imports of a script."""
        source = self.sources[name]
        for node in live_nodes(self.trees[name]):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield self._imported(node, alias.name, "", alias.asname)
            elif isinstance(node, ast.ImportFrom):
                module = _absolute_name(source.package, node)
                for alias in node.names:
                    yield self._imported(node, module, alias.name, alias.asname)

    def _imported(
        self,
        node: ast.Import | ast.ImportFrom,
        module: str,
        member: str,
        bound: str | None,
    ) -> ImportedName:
        member_file = self._file_of(f"{module}.{member}") if member else None
        file = member_file or self._file_of(module)
        return ImportedName(node, module, member, bound, file, member_file is not None)

    def _file_of(self, name: str) -> Path | None:
        """Return the candidate's file of a module; None for a module of others.

        A file beside the kernel never replaces an installed module: in a batch, it may be the file
        of another candidate.
        """
        if not name or name.partition(".")[0] in _TAKEN:
            return None
        place = self.root.joinpath(*name.split("."))
        for file in (place / "__init__.py", place.with_name(f"{place.name}.py")):
            if file.exists() or file.is_symlink():
                return file
        return None


def decoded_text(text: bytes) -> str:
    """Return the text of a file, with its encoding and line ends as Python reads them.

    Raises
    ------
    ValueError, LookupError, SyntaxError : the text has an encoding that is not accepted.
    """
    encoding = tokenize.detect_encoding(io.BytesIO(text).readline)[0]
    if codecs.lookup(encoding).name not in ENCODINGS:
        accepted = "UTF-8, ASCII and Latin-1"
        raise ValueError(f"its encoding is {encoding}; accepted: {accepted}")
    reader = io.IncrementalNewlineDecoder(None, translate=True)
    decoded: str = reader.decode(text.decode(encoding))
    return decoded


def live_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, except the body of ``if __name__ == "__main__":``.

    Raises
    ------
    ValueError : the tree is nested deeper than ``MOST_DEPTH``.
    """
    pending: list[tuple[ast.AST, float]] = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > MOST_DEPTH:
            raise ValueError(f"it is nested more than {MOST_DEPTH} deep")
        yield node
        dead: list[ast.stmt] = []
        if isinstance(node, ast.If) and ast.unparse(node.test) in _MAIN:
            dead = node.body
        for child in ast.iter_child_nodes(node):
            is_elif = isinstance(child, ast.If) and getattr(node, "orelse", []) == [
                child
            ]
            if child not in dead:
                pending.append((child, depth + (_ELIF_DEPTH if is_elif else 1)))


def _parse(source: SourceFile) -> ast.Module:
    text = decoded_text(source.text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text, source.file)
    for _ in live_nodes(tree):  # raises an error for a tree that is nested too deeply
        pass
    return tree


def _absolute_name(package: str, node: ast.ImportFrom) -> str:
    """Return the whole name of the module that an import names; empty above the top package."""
    module = node.module or ""
    if not node.level:
        return module
    parts = package.split(".") if package else []
    if node.level > len(parts):
        return ""
    above = parts[: len(parts) + 1 - node.level]
    return ".".join([*above, module]).strip(".")


def _bytes_of(file: Path, root: Path) -> bytes:
    """Return the bytes of a regular file below a folder; raise ValueError for another file."""
    # Before Python 3.13, Path.resolve raises an error of its own for a loop of links.
    place = Path(os.path.realpath(file))
    if not place.is_relative_to(os.path.realpath(root)):
        raise ValueError("it lies outside of the candidate's folder")
    if not place.is_file() or place.stat().st_size > MOST_BYTES:
        raise ValueError(f"it is not a regular file of at most {MOST_BYTES:,} bytes")
    return place.read_bytes()


def _fault(file: Path, error: BaseException) -> Violation:
    line = error.lineno if isinstance(error, SyntaxError) else 1
    text = f"it cannot be read: {f'{error}' or type(error).__name__}"
    remedy = "let it be a short, plain file with a name of its own"
    return Violation(str(file), line or 1, text, remedy)
