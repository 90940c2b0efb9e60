"""Judge one kernel by one spec, for the command and for a batch."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import inspect
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import click

from difftest.analysis.finding import COMMENTS_SUPPRESS
from difftest.simulator.errors import frame_at, set_to
from difftest.support.internal_errors import drain_internal_errors, internal_error_scope
from difftest.support.source_lines import lines_shown
from difftest.support.time_limit import TimeLimitError, time_limit
from difftest.support.tracebacks import is_user_file
from difftest.support.versions import versions
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.explicit import CaseError, case_from_json
from difftest.testing.host.collection import with_spec
from difftest.tools.lint.files import LintRequest
from difftest.tools.lint.formats import SEVERITIES
from difftest.tools.verdict.fork_server import RUNS, ForkServer, Limits, Sandbox
from difftest.tools.verdict.judge import Judge
from difftest.tools.verdict.judgement import Judgement
from difftest.tools.verdict.outcome import Outcome, Stage
from difftest.tools.verdict.sources import (
    MOST_BYTES,
    CandidateFiles,
    OutsideLanguage,
    Violation,
    decoded_text,
)
from difftest.tools.verdict.wire import (
    WorkerEnd,
    is_plain,
    one_line,
    own_words,
    violation_of,
)

CASES = 50
PATIENCE = 2 * RUNS
"""The seconds that a whole verdict may take, as a multiple of the seconds of one run."""


@dataclass(frozen=True)
class JudgeSettings:
    """The options of judging a kernel.

    Attributes
    ----------
    cases : number of drawn cases.
    seed : the seed of drawn cases; None draws a seed each time.
    limits : the limits of the kernel's process.
    case : the JSON of the only case to judge; None draws cases.
    shrink : whether to shrink a failing case.
    allow : modules that the kernel may import in addition to the checked language.
    require_isolation : whether to raise an error if the system lacks a restriction.
    original : the file whose constants the candidate's constants must equal.
    """

    cases: int = CASES
    seed: int | None = None
    limits: Limits = field(default_factory=Limits)
    case: str | None = None
    shrink: bool = True
    allow: tuple[str, ...] = ()
    require_isolation: bool = False
    original: str = ""


def judge_candidate(
    kernel: str,
    test: str,
    settings: JudgeSettings | None = None,
    fork_server: ForkServer | None = None,
    spec: KernelSpec | None = None,
) -> Judgement:
    """Judge the kernel named ``FILE.py:KERNEL`` by the kernel test named ``PATH::TEST``.

    Parameters
    ----------
    fork_server : forks the kernel's process; None starts a fork server for this kernel.
    spec : the spec of the test, if it is collected with a stub for the kernel's file.

    Raises
    ------
    click.ClickException : the kernel or the test cannot be used, or do not fit each other.
    """
    began = time.monotonic()
    settings = settings or JudgeSettings()
    file, name = _parse_kernel(kernel, test)
    judgement = new_judgement(kernel, test, settings.seed)
    judgement.evidence.allowed = list(settings.allow)
    if settings.allow:
        options = f"--allow {' --allow '.join(settings.allow)}"
        judgement.evidence.doubts.add(f"`{options}` opens modules to the candidate")
    try:
        files = read_candidate(file, test)
        with quoted(files), Sandbox(settings.limits, fork_server) as worker:
            _check_isolation(worker, judgement, settings)
            with _limited(judgement, settings):
                described = load_candidate(worker, files, name, settings.allow)
                for wanted in described.get("asked", ()):
                    judgement.evidence.doubts.add(_ABSENT.format(one_line(str(wanted))))
                _judge_loaded(worker, file, described, judgement, settings, spec)
    except OutsideLanguage as outside:
        judgement.outcome = Outcome.OUTSIDE_LANGUAGE
        judgement.report = str(outside)
        judgement.reason = str(outside)
    except WorkerEnd as end:
        judgement.has_died = end.is_death
        judgement.outcome = end.outcome
        judgement.reason = str(end)
        judgement.report = end.report
    judgement.notes += drain_internal_errors()
    judgement.seconds = round(time.monotonic() - began, 3)
    return judgement


def _check_isolation(
    worker: Sandbox, judgement: Judgement, settings: JudgeSettings
) -> None:
    """Record the limits and missing restrictions; raise UsageError if all are required."""
    missing = list(worker.missing)
    judgement.limits = {**settings.limits._asdict(), "missing": missing}
    if settings.require_isolation and missing:
        raise click.UsageError(
            f"--require-isolation: this system lacks restrictions: {', '.join(missing)}"
        )


@contextmanager
def _limited(judgement: Judgement, settings: JudgeSettings) -> Iterator[None]:
    """Limit the time of a whole verdict: at its end the outcome is a timeout."""
    seconds = PATIENCE * settings.limits.seconds
    with time_limit(seconds) as limit:
        with contextlib.suppress(TimeLimitError):
            yield
        if limit.is_over:
            factor = f"{PATIENCE} times --timeout"
            text = f"the whole verdict took more than {seconds:g} seconds, {factor}"
            raise WorkerEnd(Outcome.TIMEOUT, text)


_ABSENT = "it asks for {}, which is absent here: a run that has it is not judged"


def new_judgement(kernel: str, test: str, seed: int | None) -> Judgement:
    """Return the judgement of a kernel before it runs; draw a seed if ``seed`` is None."""
    file, _, name = kernel.rpartition(":")
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    own = {"file": file, "name": name, "sha256": _digest_of(Path(file))}
    return Judgement(own, test, seed, versions=versions())


def _digest_of(file: Path) -> str:
    """Return the SHA-256 of a file; empty for a pipe, and for a file that is too large to judge."""
    if not file.is_file() or file.stat().st_size > MOST_BYTES:
        return ""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _parse_kernel(kernel: str, test: str) -> tuple[Path, str]:
    """Return the file and function of a kernel; raise UsageError if the test cannot judge it."""
    place, _, name = kernel.rpartition(":")
    if not place.endswith(".py") or not name:
        raise click.UsageError(f"a kernel is named FILE.py:KERNEL; got {kernel}")
    file = Path(place)
    if not file.is_file():
        raise click.UsageError(f"no regular file at {place}")
    place = os.path.realpath(file)  # Path.resolve fails for a loop of links
    if place == os.path.realpath(test.partition("::")[0]):
        fault = (
            f"{place} is the test's own file: the kernel's author could change the test"
        )
        raise click.UsageError(f"{fault}; put the kernel into a file of its own")
    return Path(place), name


def describe_candidate(
    kernel: str, test: str, settings: JudgeSettings, fork_server: ForkServer | None
) -> Mapping[str, Any]:
    """Return a worker's description of a kernel that a test imports, without judging it."""
    file, name = _parse_kernel(kernel, test)
    try:
        files = read_candidate(file, test)
        with quoted(files), Sandbox(settings.limits, fork_server) as worker:
            return load_candidate(worker, files, name, settings.allow)
    except (OutsideLanguage, WorkerEnd) as error:
        raise click.ClickException(
            f"the test imports the candidate {kernel}: {error}"
        ) from None


def read_candidate(file: Path, test: str) -> CandidateFiles:
    """Return a candidate's files; raise OutsideLanguage if the kernel's file cannot be used."""
    files = CandidateFiles(file)
    own = os.path.realpath(test.partition("::")[0])
    for source in files.sources.values():
        if os.path.realpath(source.file) == own:
            what = f"it imports {source.file}, which judges it"
            raise OutsideLanguage(Violation(str(file), 1, what, "leave it out"))
    for fault in files.faults.values():
        if fault.file == str(file):
            raise OutsideLanguage(fault)
    return files


@contextmanager
def quoted(files: CandidateFiles) -> Iterator[None]:
    """Let reports within the block quote the text of a candidate's files that was read.

    The candidate's own comments suppress no finding there.
    """
    shown = {}
    for source in files.sources.values():
        # splitlines() also splits elsewhere
        lines = decoded_text(source.text).split("\n")
        shown[source.file] = [f"{line}\n" for line in lines]
    with lines_shown(shown), set_to(COMMENTS_SUPPRESS, False):
        yield


def load_candidate(
    worker: Sandbox, files: CandidateFiles, name: str, allowed: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Load a kernel in a worker and return its description; raise WorkerEnd if it fails."""
    sources = files.sources.values()
    faults = {key: fault.what for key, fault in files.faults.items()}
    request = {
        "request": "load",
        "name": name,
        "allowed": list(allowed),
        "faults": faults,
    }
    modules = [[source.name, source.file, source.is_package] for source in sources]
    answer = worker.ask(
        {**request, "modules": modules}, [source.text for source in sources]
    ).header
    how = answer.get("how")
    error = str(answer.get("error", ""))
    if how == "usage":
        raise click.UsageError(error)
    if how == "outside":
        raise OutsideLanguage(violation_of(answer))
    if how != "loaded":
        outcome = Outcome.OUT_OF_MEMORY if how == "memory" else Outcome.CRASHED
        words = one_line(f"{answer.get('kind', '')}: {answer.get('message', '')}")
        raise WorkerEnd(outcome, own_words(words), own_words(error))
    return answer


def _judge_loaded(
    worker: Sandbox,
    file: Path,
    described: Mapping[str, Any],
    judgement: Judgement,
    settings: JudgeSettings,
    collected: KernelSpec | None,
) -> None:
    judgement.stage = Stage.LINT
    judgement.kernel = {**judgement.kernel, "dialect": str(described["dialect"])}
    request = LintRequest()
    with internal_error_scope("the linter"):
        for finding in request.of_files([file])[0]:
            rule = finding.rule
            place = {"file": finding.path, "line": finding.line}
            row = {"id": finding.id, "severity": SEVERITIES[request.levels.of(rule)]}
            row |= {
                "happened": finding.happened,
                "rule": rule.rule,
                "remedy": rule.remedy,
            }
            judgement.findings.append({"source": "lint", **row, "locations": [place]})

    def use(spec: KernelSpec) -> None:
        try:
            candidate = Candidate(
                judgement.kernel["name"], file.stem, described["signature"]
            )
        except (ValueError, TypeError, AttributeError, LookupError):
            raise WorkerEnd(
                Outcome.CRASHED, "its process describes no signature"
            ) from None
        try:
            own = spec_for(spec, candidate, str(described["dialect"]))
            only = None if settings.case is None else case_from_json(settings.case, own)
        except (SpecError, CaseError) as error:
            raise click.UsageError(str(error)) from None
        Judge(own, worker, judgement, settings.cases, only, settings.shrink).run()

    if collected is not None:
        use(collected)
        return
    with stub_imports({file: lambda: described}) as read:
        with_spec(judgement.test, use)
    review_constants(judgement, read, settings)


def spec_for(spec: KernelSpec, candidate: Candidate, dialect: str) -> KernelSpec:
    """Return the spec with a candidate as its kernel; raise SpecError if it does not fit."""
    if spec.ranks:
        raise SpecError(
            "ranks: received a test of several ranks; accepted: a test without ranks"
        )
    lnc = None if dialect == "classic" else spec.lnc
    return replace(spec, kernel=candidate, others=(), title="", lnc=lnc)


def review_constants(
    judgement: Judgement, read: Mapping[str, Any], settings: JudgeSettings
) -> None:
    """Note the constants of a candidate's file that its test reads: the original must have them."""
    judgement.evidence.constants = dict(read)
    originals: Mapping[str, Any] = {}
    if settings.original and read:
        name = f"{settings.original}:{judgement.kernel['name']}"
        originals = constants_of(
            describe_candidate(name, judgement.test, settings, None)
        )
    other = [
        f"{key} = {item!r}"
        for key, item in read.items()
        if repr(originals.get(key, ...)) != repr(item)
    ]
    if other and judgement.outcome is Outcome.AGREES:
        judgement.outcome = Outcome.OWN_CONSTANTS
        judgement.stage = Stage.COMPARE
        advice = "keep them in the test, or compare them: --original FILE"
        if originals:
            advice = f"{settings.original} has others"
        fault = f"its test reads {', '.join(other)} of a candidate's own file"
        judgement.reason = f"{fault}; {advice}"


class Candidate:
    """A stub of a kernel that runs in a worker: it has the kernel's name and signature only."""

    def __init__(self, name: str, module: str, signature: Any) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = module
        self._rows = signature
        self._shown: inspect.Signature | None = None
        if signature is not None:
            self.__signature__ = _signature(signature)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f"{self.__name__} is under judgement: its code runs in a worker, and is not called here"
        )

    def __getitem__(self, grid: Any) -> Candidate:
        return self


class StubFunction(Candidate):
    """A function of a stub module: it notes the defaults that a test reads from its signature."""

    read: dict[str, Any]

    @property  # type: ignore[override]
    def __signature__(self) -> inspect.Signature | None:
        if self._shown is not None and _is_asked_by_test():
            self.read.update(_defaults(self.__name__, self._rows))
        return self._shown

    @__signature__.setter
    def __signature__(self, shown: inspect.Signature) -> None:
        self._shown = shown


def _is_asked_by_test() -> bool:
    """Return whether code outside of this package asks for a signature."""
    frame = frame_at(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") == "inspect":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).partition(".")[0] != "difftest"


def _defaults(function: str, rows: Any) -> dict[str, Any]:
    """Return the defaults of a function's parameters as constants of its file."""
    return {f"{function}({name})": own[0] for name, _, own in rows or () if own}


def constants_of(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants of a described file, and the defaults of its functions."""
    constants = dict(described["constants"])
    for name, rows in described["functions"].items():
        constants |= _defaults(name, rows)
    return constants


def _signature(rows: Any) -> inspect.Signature:
    kinds = inspect.Parameter
    none = inspect.Parameter.empty
    return inspect.Signature(
        [
            kinds(
                str(name),
                getattr(kinds, kind),
                default=none if own is None else (*own, ...)[0],
            )
            for name, kind, own in rows
        ]
    )


Describe: TypeAlias = Callable[[], Mapping[str, Any]]
"""A function that returns a worker's description of a file."""


class _StubFinder(MetaPathFinder, Loader):
    """A finder that imports stubs for files under any module name, without running their code."""

    def __init__(self, files: Mapping[Path, Describe]) -> None:
        self.files = {
            os.path.realpath(file): describe for file, describe in files.items()
        }
        self.read: dict[str, Any] = {}
        self.absent: dict[str, str] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        file = os.path.realpath(spec.origin) if spec is not None and spec.origin else ""
        if spec is None or file not in self.files:
            return None
        folders = spec.submodule_search_locations
        return importlib.util.spec_from_file_location(
            fullname, file, loader=self, submodule_search_locations=folders
        )

    def exec_module(self, module: ModuleType) -> None:
        described = self.files[str(module.__file__)]()
        constants = {
            name: value
            for name, value in described["constants"].items()
            if is_plain(value)
        }

        def read(name: str) -> Any:
            if name not in constants:
                if not name.startswith("__"):
                    self.absent[name] = os.path.basename(str(module.__file__))
                raise AttributeError(
                    f"module {module.__name__!r} has no attribute {name!r}"
                )
            return self.read.setdefault(name, constants[name])

        vars(module).update(
            __getattr__=read, __all__=[*described["functions"], *constants]
        )
        for name, signature in described["functions"].items():
            stub = StubFunction(name, module.__name__, signature)
            stub.read = self.read
            setattr(module, name, stub)


def _absent_text(name: str, file: str) -> str:
    """Return the rule and the remedy for a name that a stub does not have."""
    return (
        f"The test reads {name} of {file}, which the candidate replaces: a test can import only "
        "its functions, and constants that are plain values. Move other objects to another file."
    )


@contextmanager
def stub_imports(files: Mapping[Path, Describe]) -> Iterator[Mapping[str, Any]]:
    """Import stubs in place of files within the block; yield the constants read from them.

    The user's modules that are imported within the block may hold stubs, so they are forgotten.
    """
    finder = _StubFinder(files)
    before = {
        name: module
        for name, module in sys.modules.items()
        if os.path.realpath(getattr(module, "__file__", None) or "") in finder.files
    }
    for name in before:
        del sys.modules[name]
    known = set(sys.modules)
    sys.meta_path.insert(0, finder)
    try:
        yield finder.read
    except click.ClickException as error:
        if not finder.absent:
            raise
        texts = [_absent_text(name, file) for name, file in finder.absent.items()]
        raise type(error)("\n".join([error.message, *texts])) from error
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None) or "<"
            if is_user_file(file) or os.path.realpath(file) in finder.files:
                del sys.modules[name]
        sys.modules.update(before)
