"""The findings of campaigns: files for people, and entries in Hypothesis's database.

A team that shares the database in a folder, in Redis or as an artefact of CI also shares the
findings. If a file and an entry differ, the latest change of state is valid.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis.configuration import storage_directory
from hypothesis.database import ExampleDatabase

from difftest.simulator.trace import Location, Trace
from difftest.support.output import write_file
from difftest.testing.contract.case import Case
from difftest.testing.contract.sources import HARDWARE_LIMITS
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.harness.error_groups import raised_at
from difftest.testing.harness.failures import (
    BrokenReferenceError,
    CaseFailure,
    HazardFailure,
)
from difftest.testing.harness.verdict import Mismatch, OneSided
from difftest.testing.harness.writers import last_writer

OPEN = "open"
CLOSED = "closed"


class CampaignFindingError(ValueError):
    """A file or an entry of the database does not hold a finding."""


class CampaignFinding(NamedTuple):
    """A bug that a campaign has found, and the smallest case that shows it.

    Attributes
    ----------
    kind : the id of the broken rule or of the detector, or how the outputs differ.
    file, source : the file of the kernel's line, and the text of the line.
    line : the number of the line when the bug was found; 0 if the line is unknown.
    shapes : the class of the inputs' shapes, from :func:`class_of_shapes`.
    test : the pytest node that replays the case, without parameters.
    case : the case, as ``--case`` takes it.
    setting : the backends, level and strictness that show the bug. A run with another setting does
        not close the finding.
    options : the options of the pytest session that found the bug.
    state : "open" or "closed".
    found, changed : the time of the discovery, and of the last change of the state.
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
        """A digest of the kind, the line's text and the class of shapes."""
        key = "\n".join((self.kind, self.kernel, self.file, self.source, self.shapes))
        return hashlib.sha256(key.encode()).hexdigest()[:10]

    @property
    def place(self) -> str:
        """The file and the line, as ``FILE:LINE``."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def limits(self) -> tuple[str, ...]:
        """The options that limit a case, if the finding is that a case exceeds a limit."""
        is_limit = self.kind.endswith("LimitError")
        return tuple(
            option
            for option in self.options
            if is_limit and option.startswith("--case-")
        )

    @property
    def case_text(self) -> str:
        """The JSON of the case, as ``--case`` takes it."""
        return json.dumps(self.case, separators=(",", ":"))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of pytest that run the case."""
        return (*self.options, self.test, "--case", self.case_text)

    def __str__(self) -> str:
        return f"finding {self.id}: {self.kind} at {self.place}, {self.shapes} ({self.test})"

    def to_json(self) -> str:
        """Return the text of the finding's file."""
        return json.dumps({"id": self.id, **self._asdict()}, indent=2) + "\n"

    def now(self, state: str, commit: str) -> CampaignFinding:
        """Return the finding in another state, changed at the present time."""
        return self._replace(state=state, changed=utc_now(), changed_at=commit)


def found_from_json(text: str | bytes) -> CampaignFinding:
    """Return the finding in a JSON text; raise CampaignFindingError if the text is invalid."""
    try:
        document = json.loads(text)
        members = {name: document[name] for name in CampaignFinding._fields}
    except (ValueError, KeyError, TypeError) as error:
        raise CampaignFindingError(
            f"no finding ({type(error).__name__}: {error})"
        ) from None
    return CampaignFinding(**{**members, "options": tuple(members["options"])})


def utc_now() -> str:
    """Return the present time in UTC, as text that sorts by time."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def commit_of(root: Path) -> str:
    """Return the commit of a working tree; empty if the folder is not a working tree."""
    words = ["git", "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(
            words, cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def found_of(
    failure: CaseFailure,
    test: str,
    root: Path,
    setting: str,
    traces: Mapping[str, Trace],
) -> CampaignFinding:
    """Return the finding of a failing case; file names are relative to ``root``."""
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
    """Return the broken rule or the kind of disagreement, in a few stable words."""
    if isinstance(failure, HazardFailure):
        return failure.findings[0].id
    if isinstance(failure, BrokenReferenceError):
        return "broken reference"
    verdict = getattr(failure, "verdict", None)
    if isinstance(verdict, Mismatch):
        question = f" ({verdict.question})" if verdict.question else ""
        return f"{verdict.kind} differs{question}"
    if isinstance(verdict, OneSided):
        return f"{verdict.failed} {verdict.how}: {type(verdict.error).__name__}"
    return type(failure).__name__


def class_of_size(size: int) -> str:
    """Return the class of a size by the hardware's limits: 1, <128, 128, <512, 512 or >512."""
    if size <= 1:
        return str(size)
    for limit in HARDWARE_LIMITS:
        if size <= limit:
            return str(limit) if size == limit else f"<{limit}"
    return f">{HARDWARE_LIMITS[-1]}"


def class_of_shapes(spec: KernelSpec, case: Case) -> str:
    """Return the classes of all sizes of the inputs: ``a (<128, 1), b (1,)``."""
    shapes = ((name, spec.shape(name, case.values)) for name in spec.inputs)
    return ", ".join(
        f"{name} ({', '.join(map(class_of_size, shape))})" for name, shape in shapes
    )


def _line_of(failure: CaseFailure, traces: Mapping[str, Trace]) -> Location | None:
    """Return the kernel's line that was rejected, that crashed, or that wrote a wrong element."""
    if isinstance(failure, HazardFailure):
        return failure.findings[0].location
    verdict = getattr(failure, "verdict", None)
    spec = failure.spec
    at = None
    if isinstance(verdict, Mismatch) and verdict.first is not None:
        writers = (last_writer(trace, spec, verdict) for trace in traces.values())
        event = next(filter(None, writers), None)
        at = event and event.location
    elif failure.raised is not None:
        at = raised_at(failure.raised, spec)
    return at or Location.of_definition(inspect.unwrap(_failing_function(failure)))


def _failing_function(failure: CaseFailure) -> Callable[..., Any]:
    """Return the reference if it failed, else the kernel."""
    verdict = getattr(failure, "verdict", None)
    is_of_reference = getattr(verdict, "failed", "kernel") == "reference"
    if is_of_reference or isinstance(failure, BrokenReferenceError):
        return failure.spec.reference
    return failure.spec.kernel


def _near(file: str, root: Path) -> str:
    path = Path(os.path.realpath(file))
    home = Path(os.path.realpath(root))
    return path.relative_to(home).as_posix() if path.is_relative_to(home) else path.name


KEY = b"difftest.findings"
"""The key of the entries in the database."""
FOLDER = "difftest-findings"
"""The folder's name. Hypothesis's default database, ``examples``, is in the same folder."""


class FindingStore:
    """The store of findings, in the files of a folder and in Hypothesis's database.

    The default folder is next to the database. It is created for the first finding.
    """

    def __init__(self, folder: Path | None = None) -> None:
        # Older versions of Hypothesis return the path itself.
        default: Any = storage_directory(FOLDER, intent_to_write=False)
        self.folder = folder or getattr(default, "path", default)

    @property
    def database(self) -> ExampleDatabase | None:
        """The database of Hypothesis's loaded profile; None if the profile has none."""
        profile = settings.default
        return None if profile is None else profile.database

    def __iter__(self) -> Iterator[CampaignFinding]:
        """Return an iterator of the findings in their latest states, the oldest first."""
        newest = _newest([*self._files(), *(finding for _, finding in self._entries())])
        return iter(
            sorted(newest.values(), key=lambda finding: (finding.found, finding.id))
        )

    def get(self, id: str) -> CampaignFinding | None:
        """Return the finding of an id or of an unambiguous prefix; None if it is not unique."""
        fitting = [finding for finding in self if finding.id.startswith(id)]
        return fitting[0] if len(fitting) == 1 else None

    def put(self, finding: CampaignFinding) -> None:
        """Store a finding, and replace its earlier version."""
        write_file(self._file(finding), finding.to_json())
        self._forget(finding)
        if self.database is not None:
            self.database.save(KEY, finding.to_json().encode())

    def drop(self, finding: CampaignFinding) -> None:
        """Forget a finding."""
        self._file(finding).unlink(missing_ok=True)
        self._forget(finding)

    def exchange(self) -> None:
        """Copy findings between the files and the database until both are equal."""
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
                    f"{file}: {error}; delete the file, or restore it"
                ) from None

    def _entries(self) -> Iterator[tuple[bytes, CampaignFinding]]:
        for entry in () if self.database is None else self.database.fetch(KEY):
            # An entry of another version is skipped: its file raises the error.
            with contextlib.suppress(CampaignFindingError):
                yield entry, found_from_json(entry)


def _newest(several: Iterable[CampaignFinding]) -> dict[str, CampaignFinding]:
    """Return by id the finding whose state changed last."""
    return {
        finding.id: finding
        for finding in sorted(several, key=lambda finding: finding.changed)
    }
