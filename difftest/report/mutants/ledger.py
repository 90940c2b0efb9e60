"""What is known of mutants from earlier runs: a line for each, written as soon as it is known."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from difftest.harness.spec import KernelSpec
from difftest.host.journal import Journal
from difftest.report.mutants.judge import Fate
from difftest.report.mutants.mutant import functions_in, functions_of, source_of
from difftest.report.mutants.suite import Death, Suite

FOLDER = Path(".difftest")
FILE = "fates.jsonl"
_ROOMS = ("analysis", "backends", "harness", "inspection", "simulator")


class Ledger:
    """Results by the key of a mutant, in a journal.

    A result counts as long as the suites that could find its mutant are the same: kernels,
    references, cases, refusals, and what runs and judges them. Of one that counts no more, who
    found the mutant is still known: that test is asked first. A ``fresh`` one forgets all.
    """

    def __init__(self, folder: Path, fresh: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        if fresh:
            (folder / FILE).unlink(missing_ok=True)
        self._journal = Journal(folder / FILE, "fate", "mutants")
        self.close = self._journal.close

    def result(self, key: str, digest: str) -> Fate | None:
        """What is known of a mutant under suites with this digest."""
        row = self._journal.known.get(key, {})
        if row.get("digest") != digest:
            return None
        death = Death(**row["death"]) if row["death"] else None
        return Fate(**{field.name: row[field.name] for field in fields(Fate)} | {"death": death})

    def killer(self, key: str) -> tuple[str, str] | None:
        """The suite and the test that found a mutant last time."""
        row = self._journal.known.get(key, {})
        return (row["suite"], row["death"]["test"]) if row.get("death") else None

    def add(self, key: str, digest: str, result: Fate) -> None:
        """Write a result down."""
        self._journal.add(key, {"digest": digest, **asdict(result)})


def digest_of(suites: Iterable[Suite]) -> str:
    """A digest of all that decides what tests find."""
    whole = hashlib.sha256(package_digest().encode())
    for suite in suites:
        for part in (suite.name, *_parts(suite.spec), *(case.to_json() for case in suite.drawn)):
            whole.update(part.encode() + b"\0")
    return whole.hexdigest()[:24]


def _parts(spec: KernelSpec) -> Iterable[str]:
    """The text of what is code in a spec, and what prints its own value."""
    yield from _text(spec.kernel)
    for field in fields(spec):
        value: Any = getattr(spec, field.name)
        if field.name in ("kernel", "others", "domain"):
            continue  # the first is there, the second apart, and the last is in the cases
        if callable(value):
            yield from _text(value)
        elif field.name == "inputs":
            yield repr({name: spec.input(name).dimensions for name in value})
        else:
            yield f"{field.name}={value!r}"


def _text(function: Callable[..., Any]) -> Iterable[str]:
    for part in functions_of(function):
        source, line = source_of(part.__code__.co_filename), part.__code__.co_firstlineno
        yield source.segment(next(node for at, node in functions_in(source.tree) if at == line))


@functools.cache
def package_digest(*rooms: str) -> str:
    """A digest of what runs and judges kernels in this package, and of Python's version."""
    whole = hashlib.sha256(platform.python_version().encode())
    for room in (*_ROOMS, *rooms):
        for file in sorted((Path(__file__).parents[2] / room).rglob("*.py")):
            whole.update(file.read_bytes())
    return whole.hexdigest()
