"""Where findings are kept: a file each for people, and an entry each in Hypothesis's database.

Whoever shares the database, in a folder, in Redis or as an artefact of CI, has the findings too.
Where two differ, the one counts whose state changed last.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis.configuration import storage_directory
from hypothesis.database import ExampleDatabase

from difftest.simulator.trace import Location, Trace
from difftest.support.output import write_file
from difftest.testing.harness.case import Case
from difftest.testing.harness.failures import BrokenReferenceError, CaseFailure, HazardFailure
from difftest.testing.harness.spec import KernelSpec
from difftest.testing.harness.strategies import HARDWARE_LIMITS
from difftest.testing.harness.verdict import Mismatch, OneSided
from difftest.testing.harness.writers import last_writer
from difftest.testing.report.failure import raised_at

OPEN = "open"
CLOSED = "closed"


class CampaignFindingError(ValueError):
    """A file or a database's entry is no finding."""


class CampaignFinding(NamedTuple):
    """One bug that a campaign has found, and the smallest case that shows it.

    Attributes
    ----------
    kind : the rule that was broken or the detector, by its id, or how the outputs differ.
    file, source : of the kernel's line; the line's text and not its number, which edits change.
    line : its number when it was found; 0 if no line is known.
    shapes : the class of the inputs' shapes, as :func:`class_of_shapes` has it.
    test, case : the pytest node that replays it, without parameters; what ``--case`` takes.
    setting : the backends, level and strictness that show it; no other run closes it.
    options : of the pytest session that found it.
    state, found, changed : "open" or "closed"; when it was found, and when that changed last.
    """

    kind: str
    file: str
    source: str
    line: int
    shapes: str
    kernel: str
    test: str
    case: Mapping[str, Any]
    setting: str
    options: tuple[str, ...]
    state: str
    found: str
    changed: str
    changed_at: str

    @property
    def id(self) -> str:
        """The same for the same kind, line and class of shapes, whoever finds it and when."""
        key = "\n".join((self.kind, self.kernel, self.file, self.source, self.shapes))
        return hashlib.sha256(key.encode()).hexdigest()[:10]

    @property
    def place(self) -> str:
        """Its line as people write it."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def limits(self) -> tuple[str, ...]:
        """The options without which it may never end, where it is that a case takes too much."""
        is_limit = self.kind.endswith("LimitError")
        return tuple(option for option in self.options if is_limit and option.startswith("--case-"))

    @property
    def case_text(self) -> str:
        """What ``--case`` takes."""
        return json.dumps(self.case, separators=(",", ":"))

    @property
    def arguments(self) -> tuple[str, ...]:
        """What pytest is told to run it."""
        return (*self.options, self.test, "--case", self.case_text)

    def __str__(self) -> str:
        return f"finding {self.id}: {self.kind} at {self.place}, {self.shapes} ({self.test})"

    def to_json(self) -> str:
        """A file's text."""
        return json.dumps({"id": self.id, **self._asdict()}, indent=2) + "\n"

    def now(self, state: str, commit: str) -> CampaignFinding:
        """The same in another state, from now on."""
        return self._replace(state=state, changed=utc_now(), changed_at=commit)


def found_from_json(text: str | bytes) -> CampaignFinding:
    """What :meth:`CampaignFinding.to_json` wrote; FoundError if it is something else."""
    try:
        document = json.loads(text)
        members = {name: document[name] for name in CampaignFinding._fields}
    except (ValueError, KeyError, TypeError) as error:
        raise CampaignFindingError(f"no finding ({type(error).__name__}: {error})") from None
    return CampaignFinding(**{**members, "options": tuple(members["options"])})


def utc_now() -> str:
    """The time now, in UTC; later ones sort behind it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def commit_of(root: Path) -> str:
    """The commit of a working tree; empty if it is none."""
    words = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def found_of(
    failure: CaseFailure, test: str, root: Path, setting: str, traces: Mapping[str, Trace]
) -> CampaignFinding:
    """The finding that a failing case of a pytest node is; files are named from ``root``."""
    at = _line_of(failure, traces)
    now = utc_now()
    return CampaignFinding(
        kind=finding_kind(failure),
        file=_near(at.file, root) if at else failure.spec.name,
        source=at.text if at else "",
        line=at.line if at else 0,
        shapes=class_of_shapes(failure.spec, failure.case),
        kernel=failure.spec.name,
        test=test,
        case=json.loads(failure.case.to_json()),
        setting=setting,
        options=failure.again.options if failure.again else (),
        state=OPEN,
        found=now,
        changed=now,
        changed_at=commit_of(root),
    )


def finding_kind(failure: CaseFailure) -> str:
    """The rule or the kind of disagreement, in a few words that stay the same."""
    if isinstance(failure, HazardFailure):
        return failure.findings[0].id
    if isinstance(failure, BrokenReferenceError):
        return "broken reference"
    verdict = getattr(failure, "verdict", None)
    if isinstance(verdict, Mismatch):
        return f"{verdict.kind} differs" + (f" ({verdict.question})" if verdict.question else "")
    if isinstance(verdict, OneSided):
        return f"{verdict.failed} {verdict.how}: {type(verdict.error).__name__}"
    return type(failure).__name__


def class_of_size(size: int) -> str:
    """Where a size lies among the hardware's limits: 1, <128, 128, <512, 512 or >512."""
    if size <= 1:
        return str(size)
    for limit in HARDWARE_LIMITS:
        if size <= limit:
            return str(limit) if size == limit else f"<{limit}"
    return f">{HARDWARE_LIMITS[-1]}"


def class_of_shapes(spec: KernelSpec, case: Case) -> str:
    """The classes of all sizes of the inputs: ``a (<128, 1), b (1,)``."""
    shapes = ((name, spec.shape(name, case.values)) for name in spec.inputs)
    return ", ".join(f"{name} ({', '.join(map(class_of_size, shape))})" for name, shape in shapes)


def _line_of(failure: CaseFailure, traces: Mapping[str, Trace]) -> Location | None:
    """The kernel's line: where it was refused or broke down, or what wrote the wrong element."""
    if isinstance(failure, HazardFailure):
        return failure.findings[0].location
    verdict = getattr(failure, "verdict", None)
    spec = failure.spec
    at = None
    if isinstance(verdict, Mismatch) and verdict.first is not None:
        events = filter(None, (last_writer(trace, spec, verdict) for trace in traces.values()))
        at = next((event.location for event in events), None)
    elif failure.raised is not None:
        at = raised_at(failure.raised, spec)
    is_kernel = not isinstance(failure, BrokenReferenceError) and (
        getattr(verdict, "failed", "kernel") != "reference"
    )
    code = getattr(inspect.unwrap(spec.kernel if is_kernel else spec.reference), "__code__", None)
    return at or (None if code is None else Location(code.co_filename, code.co_firstlineno))


def _near(file: str, root: Path) -> str:
    path = Path(os.path.realpath(file))
    home = Path(os.path.realpath(root))
    return path.relative_to(home).as_posix() if path.is_relative_to(home) else path.name


KEY = b"difftest.findings"
"""Of the database's entries."""
FOLDER = "difftest-findings"
"""Beside ``examples``, the folder of Hypothesis's usual database."""


class FindingStore:
    """All findings that are known here, in the files of a folder and in Hypothesis's database.

    The folder is that beside the database, if none is named, and is made when the first finding is.
    """

    def __init__(self, folder: Path | None = None) -> None:
        beside: Any = storage_directory(FOLDER, intent_to_write=False)
        self.folder = folder or getattr(beside, "path", beside)  # older Hypotheses give the path

    @property
    def database(self) -> ExampleDatabase | None:
        """That of the profile of Hypothesis that is loaded by now; None if it has none."""
        profile = settings.default
        return None if profile is None else profile.database

    def __iter__(self) -> Iterator[CampaignFinding]:
        """Each finding, in the state that it came to last; the oldest first."""
        newest = _newest([*self._files(), *(finding for _, finding in self._entries())])
        return iter(sorted(newest.values(), key=lambda finding: (finding.found, finding.id)))

    def get(self, id: str) -> CampaignFinding | None:
        """The finding of an id, or of its first digits if one alone begins so."""
        fitting = [finding for finding in self if finding.id.startswith(id)]
        return fitting[0] if len(fitting) == 1 else None

    def put(self, finding: CampaignFinding) -> None:
        """Keep a finding, in the place of what was known of it."""
        write_file(self._file(finding), finding.to_json())
        self._forget(finding)
        if self.database is not None:
            self.database.save(KEY, finding.to_json().encode())

    def drop(self, finding: CampaignFinding) -> None:
        """Forget a finding."""
        self._file(finding).unlink(missing_ok=True)
        self._forget(finding)

    def exchange(self) -> None:
        """Let the files have what the database has, and the other way round."""
        files = _newest(self._files())
        entries = _newest(finding for _, finding in self._entries())
        for finding in self:
            is_entered = self.database is None or entries.get(finding.id) == finding
            if files.get(finding.id) != finding or not is_entered:
                self.put(finding)

    def _forget(self, finding: CampaignFinding) -> None:
        for entry, stored in tuple(self._entries()):
            if stored.id == finding.id and self.database is not None:
                self.database.delete(KEY, entry)

    def _file(self, finding: CampaignFinding) -> Path:
        return self.folder / f"{finding.id}.json"

    def _files(self) -> Iterator[CampaignFinding]:
        for file in sorted(self.folder.glob("*.json")):
            try:
                yield found_from_json(file.read_bytes())
            except CampaignFindingError as error:
                raise CampaignFindingError(
                    f"{file}: {error}; delete it, or put back what it was"
                ) from None

    def _entries(self) -> Iterator[tuple[bytes, CampaignFinding]]:
        for entry in () if self.database is None else self.database.fetch(KEY):
            with contextlib.suppress(CampaignFindingError):  # of another version: its file says so
                yield entry, found_from_json(entry)


def _newest(several: Iterable[CampaignFinding]) -> dict[str, CampaignFinding]:
    """By id the one whose state changed last."""
    return {finding.id: finding for finding in sorted(several, key=lambda finding: finding.changed)}
