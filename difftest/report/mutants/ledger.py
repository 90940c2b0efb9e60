"""What is known of mutants from earlier runs: a line for each, written as soon as it is known."""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from difftest.harness.spec import KernelSpec
from difftest.report.mutants.judge import Fate
from difftest.report.mutants.mutant import functions_in
from difftest.report.mutants.reached import functions_of, source_in
from difftest.report.mutants.suite import Death, Suite

FOLDER = Path(".difftest")
FILE = "mutants.jsonl"
_ROOMS = ("analysis", "backends", "harness", "inspection", "simulator")


@dataclass
class Ledger:
    """Results by the key of a mutant, in a file that grows by a line for each.

    A result counts as long as the suites that could find its mutant are the same: kernels,
    references, cases, refusals, and what runs and judges them. Of one that counts no more, who
    found the mutant is still known: that test is asked first. A ``fresh`` one forgets all.
    """

    folder: Path
    fresh: bool = False
    _known: dict[str, tuple[str, Fate]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        file = self.folder / FILE
        if self.fresh:
            file.unlink(missing_ok=True)
        if not file.is_file():
            return
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = _entry(line)
            if entry is not None:
                self._known[entry[0]] = entry[1:]

    def result(self, key: str, digest: str) -> Fate | None:
        """What is known of a mutant under suites with this digest."""
        known = self._known.get(key)
        return known[1] if known is not None and known[0] == digest else None

    def killer(self, key: str) -> tuple[str, str] | None:
        """The suite and the test that found a mutant last time."""
        _, result = self._known.get(key, ("", None))
        return None if result is None or result.death is None else (result.suite, result.death.test)

    def add(self, key: str, digest: str, result: Fate) -> None:
        """Write a result down."""
        self._known[key] = digest, result
        self.folder.mkdir(exist_ok=True)
        with (self.folder / FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "digest": digest, **asdict(result)}) + "\n")


def _entry(line: str) -> tuple[str, str, Fate] | None:
    """A line of the file; None for one that a kill of the process cut off."""
    try:
        given = json.loads(line)
        death = Death(**given["death"]) if given["death"] else None
        values = {one.name: given[one.name] for one in fields(Fate)} | {"death": death}
        return str(given["key"]), str(given["digest"]), Fate(**values)
    except (ValueError, KeyError, TypeError):
        return None


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
    for one in fields(spec):
        value: Any = getattr(spec, one.name)
        if one.name in ("kernel", "others", "domain"):
            continue  # the first is there, the second apart, and the last is in the cases
        if callable(value):
            yield from _text(value)
        elif one.name == "inputs":
            yield repr({name: spec.input(name).dimensions for name in value})
        else:
            yield f"{one.name}={value!r}"


def _text(function: Callable[..., Any]) -> Iterable[str]:
    for one in functions_of(function):
        source, line = source_in(one), one.__code__.co_firstlineno
        yield source.segment(next(node for at, node in functions_in(source.tree) if at == line))


@functools.cache
def package_digest(*rooms: str) -> str:
    """A digest of what runs and judges kernels in this package, and of Python's version."""
    whole = hashlib.sha256(platform.python_version().encode())
    for room in (*_ROOMS, *rooms):
        for file in sorted((Path(__file__).parents[2] / room).rglob("*.py")):
            whole.update(file.read_bytes())
    return whole.hexdigest()
