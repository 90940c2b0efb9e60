"""The rows of a sweep on disk: a journal with a line for each row, and Parquet at the end.

Each row is written to disk before the next row is judged. After any kind of end, the same command
judges the rows that are left. A digest of everything that decides a row identifies it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from difftest.support.choices import install_hint
from difftest.support.journal import Journal
from difftest.support.output import atomic_write
from difftest.support.versions import versions
from difftest.testing.contract.spec import KernelSpec, is_function_of_domain
from difftest.tools.mutants.campaign import package_digest
from difftest.tools.mutants.mutant import mutable_functions
from difftest.tools.scale.axes import Point

Row = dict[str, Any]
IDENTITY = MappingProxyType(
    {
        "kernel_digest": "the kernel's files",
        "spec_digest": "the test, the reference or the domain",
        "versions": "the versions of what runs and judges it",
    }
)
"""The columns that identify the code behind a row, each with its description in messages."""
COLUMNS = MappingProxyType(
    {
        **dict.fromkeys(("key", "kernel", "outcome", "reason"), "string"),
        "findings": "list",
        "cases": "int64",
        "case": "string",
        **dict.fromkeys(("predicted_us", "low_us", "high_us", "bound_us"), "float64"),
        "limited_by": "string",
        **dict.fromkeys(("sbuf_bytes", "psum_bytes"), "int64"),
        "caution": "string",
        "seconds": "float64",
        **dict.fromkeys(IDENTITY, "string"),
    }
)
"""The columns of each row after the axes, and their types."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def require_extra(module: str, what: str, extra: str = "scale") -> None:
    """Raise click.UsageError if an extra is not installed."""
    if lack := install_hint(module, what, extra):
        raise click.UsageError(lack)


def identity_of(spec: KernelSpec, test: str) -> dict[str, str]:
    """Return digests of the code that decides the outcome of a point, and the versions."""
    kernels = [spec.kernel, *spec.others]
    functions: list[Any] = [spec.reference]
    if spec.magnitude is not None:
        functions.append(spec.magnitude)
    functions += filter(is_function_of_domain, spec.domain.values())
    domain = {
        name: _ADDRESS.sub("", repr(source)) for name, source in spec.domain.items()
    }
    own = Path(test.partition("::")[0])
    return {
        "kernel_digest": _digest(_files(kernels)),
        "spec_digest": _digest(
            [*_files(functions), own.read_bytes(), json.dumps(domain).encode()]
        ),
        "versions": json.dumps({**versions(), "build": package_digest()[:12]}),
    }


def _files(functions: Iterable[Any]) -> list[bytes]:
    """Return the contents of the files of functions and of user functions that they call."""
    files: set[str] = set()
    for function in functions:
        files.update(own.__code__.co_filename for own in mutable_functions(function))
    return [Path(file).read_bytes() for file in sorted(files)]


def _digest(parts: Iterable[bytes]) -> str:
    own = b"".join(hashlib.sha256(part).digest() for part in parts)
    return hashlib.sha256(own).hexdigest()[:16]


def key_of(identity: Mapping[str, str], test: str, cases: int, point: Point) -> str:
    """Return the key that identifies a row."""
    name = test.rpartition("::")[2]
    return _digest([json.dumps([dict(identity), name, point, cases]).encode()])


class Store:
    """The rows of a sweep by key, in ``FILE.parquet`` and the journal ``FILE.parquet.jsonl``.

    The journal exists while a sweep is not finished. A file with other contents raises
    click.UsageError.
    """

    def __init__(self, file: Path, *, fresh: bool = False) -> None:
        require_extra("pyarrow", "a sweep")
        self.file = file
        journal = file.with_name(f"{file.name}.jsonl")
        if fresh:
            journal.unlink(missing_ok=True)
        before = read_rows(file) if file.exists() and not fresh else []
        self.journal = Journal(journal, "row", "a sweep")
        self.rows: dict[str, Row] = {
            row["key"]: row for row in before
        } | self.journal.known

    def check(self, identity: Mapping[str, str], keys: Iterable[str]) -> None:
        """Raise click.UsageError if the rows are of another kernel, test, version or grid."""
        reason = ""
        for name, words in IDENTITY.items():
            if {row[name] for row in self.rows.values()} - {identity[name]}:
                reason = reason or f"{words} changed since then"
        foreign = len(self.rows.keys() - set(keys))
        if foreign and not reason:
            reason = f"{foreign} of its points are not among those of this command"
        if reason:
            raise click.UsageError(
                f"{self.file} holds an earlier sweep: {reason}; pass another -o and compare with "
                "--compare, or pass --fresh to replace it"
            )

    def add(self, row: Row) -> None:
        """Keep a row, and write it to disk."""
        self.rows[row["key"]] = row
        self.journal.add(row["key"], row)

    def finish(self, keys: Sequence[str], axes: Sequence[str]) -> list[Row]:
        """Write the rows as Parquet in the order of their keys, and remove the journal.

        The file is replaced atomically.
        """
        rows = [self.rows[key] for key in keys]
        with atomic_write(self.file) as path:
            write_rows(path, rows, axes)
        self.journal.close()  # Windows cannot remove an open file
        self.journal.file.unlink(missing_ok=True)
        return rows


def write_rows(file: Path, rows: Sequence[Row], axes: Sequence[str]) -> None:
    """Write rows as Parquet: a column for each axis, then the columns that every row has."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    def column(name: str) -> Any:
        values = [row[name] for row in rows]
        kind = COLUMNS.get(name)
        if kind is not None:
            return pa.array(values, pa.list_(pa.string()) if kind == "list" else kind)
        try:
            return pa.array(values)
        except pa.ArrowException:  # values of several types
            return pa.array([None if value is None else str(value) for value in values])

    table = pa.table({name: column(name) for name in dict.fromkeys([*axes, *COLUMNS])})
    parquet.write_table(table, file)
    with file.open("rb+") as written:
        os.fsync(written.fileno())


def read_rows(file: Path) -> list[Row]:
    """Return the rows of a sweep; raise click.UsageError if the file does not hold a sweep."""
    require_extra("pyarrow", "a sweep")
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        rows: list[Row] = parquet.read_table(file).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise click.UsageError(f"{file} holds no results of a sweep: {error}") from None
    if rows and not COLUMNS.keys() <= rows[0].keys():
        raise click.UsageError(f"{file} holds no results of a sweep: it lacks columns")
    return rows
