"""Judge many kernels by one spec: ``difftest verdict --batch``.

Each verdict is a line of a file, written to disk before the next kernel begins. After any kind of
end, run the command again to continue. A verdict has a key: a digest of the candidate's files, the
test's files and the settings.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import pickle
import random
import signal
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import click

from difftest.analysis.finding import group_by
from difftest.support.console import progress
from difftest.support.journal import Journal
from difftest.support.output import write_file
from difftest.support.pool import LostTask, die_with_parent, run_tasks, serve_tasks
from difftest.support.versions import versions
from difftest.support.wording import count_of
from difftest.testing.contract.spec import KernelSpec
from difftest.testing.host.collection import with_spec
from difftest.tools.verdict.candidate import (
    PATIENCE,
    Describe,
    JudgeSettings,
    describe_candidate,
    judge_candidate,
    new_judgement,
    review_constants,
    stub_imports,
)
from difftest.tools.verdict.fork_server import ForkServer
from difftest.tools.verdict.formats import kernel_argument
from difftest.tools.verdict.judgement import Judgement
from difftest.tools.verdict.outcome import Outcome, Stage
from difftest.tools.verdict.sources import CandidateFiles, Violation

_GRACE = 30.0
"""The seconds for a judge to end after the time of a whole verdict."""
OURS = (Outcome.INCONCLUSIVE.value, Stage.IMPORT.value)
"""The outcome and the stage of a failed judge or worker. Such a kernel is judged again."""
KEPT = 64  # reference results that a process keeps
_AGAIN = "its process ended without an answer; it was judged again in a new one"
_COLLECT = 600.0
"""The seconds that the collection of the test may take."""
_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
"""The names of the folders of installed packages, in :mod:`sysconfig`."""
_PACKAGE_FILE = "__init__.py"
_PACKAGE = Path(__file__).resolve().parents[2]
"""The folder of this package."""


class BatchSetup(NamedTuple):
    """The settings of each worker process, and all candidates.

    Attributes
    ----------
    folder : the folder of all candidates; empty if the lines of a file name them.
    """

    test: str
    settings: JudgeSettings
    kernels: tuple[str, ...]
    folder: str = ""


class BatchLine(NamedTuple):
    """A line of the results: its key, and its candidate as FILE.py:KERNEL."""

    key: str
    kernel: str


def candidates(batch: str, test: str, sources: Path) -> list[str]:
    """Return the kernels, FILE.py:KERNEL, of a batch: ``DIR:KERNEL`` or ``FILE.jsonl``."""
    if batch.endswith(".jsonl"):
        kernels = _file_kernels(batch, sources)
    else:
        kernels = _folder_kernels(batch, test)
    if not kernels:
        text = f"--batch takes DIR:KERNEL or FILE.jsonl; {batch} has no candidates"
        raise click.UsageError(text)
    return kernels


def _file_kernels(batch: str, sources: Path) -> list[str]:
    """Return the kernels in the lines of ``FILE.jsonl``."""
    try:
        with Path(batch).open(encoding="utf-8") as file:
            lines = list(file)
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{batch} cannot be read: {error}") from None
    return [
        _line_kernel(line, f"{batch}:{n}", sources) for n, line in enumerate(lines, 1)
    ]


def _folder_kernels(batch: str, test: str) -> list[str]:
    """Return a kernel for each file of the folder in ``DIR:KERNEL``.

    The test's file and the file of a package are no candidates.
    """
    place, _, name = batch.rpartition(":")
    if not place:
        return []
    own = os.path.realpath(test.partition("::")[0])
    files = sorted(Path(place).glob("*.py"))
    return [
        f"{file}:{name}"
        for file in files
        if os.path.realpath(file) != own and file.name != _PACKAGE_FILE
    ]


def _line_kernel(line: str, where: str, sources: Path) -> str:
    """Return the kernel of a line of ``FILE.jsonl``; write its source to a file if it has one."""
    try:
        row = json.loads(line)
        if "kernel" in row:
            return str(row["kernel"])
        name, text = row["name"], row["source"]
        digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
        file = sources / f"k{digest[:16]}.py"
    except (ValueError, KeyError, TypeError, AttributeError):
        form = '{"kernel": "FILE.py:NAME"} or {"name": "add", "source": ""}'
        raise click.UsageError(f"{where}: a line is {form}") from None
    write_file(file, text)
    return f"{file}:{name}"


def _file_of(kernel: str) -> str:
    """Return the path of the kernel FILE.py:KERNEL, without symbolic links."""
    return os.path.realpath(kernel.rpartition(":")[0])


def _digests(kernel: str) -> dict[str, str]:
    """Return the digest of each file that a candidate loads, by the name of its module."""
    files = CandidateFiles(Path(_file_of(kernel)))
    digests = {
        name: hashlib.sha256(source.text).hexdigest()
        for name, source in files.sources.items()
    }
    return digests | {name: fault.what for name, fault in files.faults.items()}


def lines_of(
    setup: BatchSetup, test_files: Mapping[str, str]
) -> dict[str, list[BatchLine]]:
    """Return the lines of the results by their digests; equal candidates share a digest.

    A digest is of everything that decides a verdict.
    """
    settings = asdict(setup.settings)
    lines: dict[str, list[BatchLine]] = {}
    for kernel in setup.kernels:
        name = kernel.rpartition(":")[2]
        parts = [_digests(kernel), name, setup.test, test_files, settings, versions()]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        equal = lines.setdefault(digest, [])
        key = f"{digest}-{len(equal) + 1}" if equal else digest
        equal.append(BatchLine(key, kernel))
    return lines


def collect_test_files(connection: Connection, setup: BatchSetup) -> None:
    """Answer a request with the digests of the files that the test loads."""
    try:
        digests = digests_of_test(setup)
    except click.ClickException as error:
        connection.send(error.message)
        return
    serve_tasks(connection, lambda task: digests)


def digests_of_test(setup: BatchSetup) -> dict[str, str]:
    """Return the digests of the files that the test loads, by their paths."""
    with stub_imports(_stub_descriptions(setup, None)):
        return with_spec(setup.test, lambda spec: _loaded_files())


def _loaded_files() -> dict[str, str]:
    """Return the digest of each loaded Python file that is not of an installed package."""
    folders = sysconfig.get_paths()
    paths = [*(folders[name] for name in _INSTALLED), str(_PACKAGE)]
    installed = tuple(os.path.realpath(path) + os.sep for path in paths)
    files = {getattr(module, "__file__", None) for module in sys.modules.values()}
    own = [
        file
        for file in filter(None, files)
        if os.path.isfile(file) and not os.path.realpath(file).startswith(installed)
    ]
    here = Path.cwd()
    return {
        os.path.relpath(file, here): hashlib.sha256(Path(file).read_bytes()).hexdigest()
        for file in sorted(own)
    }


def judge_batch(
    batch: str, test: str, settings: JudgeSettings, results: Path, processes: int
) -> list[dict[str, Any]]:
    """Judge the kernels without a verdict, print a summary, and return the verdict of each."""
    kernels = tuple(candidates(batch, test, results.with_suffix(".sources")))
    # Opened after candidates(), so that an error there leaves no file.
    journal = Journal(results)
    folder = "" if batch.endswith(".jsonl") else batch.rpartition(":")[0]
    settings = replace(settings, seed=_seed(settings, journal), shrink=False)
    setup = BatchSetup(test, settings, kernels, folder)
    lines = lines_of(setup, _test_files(setup))
    batch_results = BatchResults(journal, lines)
    left = batch_results.reuse()
    try:
        with progress("judged", len(lines), len(lines) - len(left)) as advance:
            for (digest, _), verdict in _verdicts(left, setup, processes):
                batch_results.add(digest, verdict)
                advance()
    except KeyboardInterrupt:
        text = f"stopped: {batch_results.progress()} are in {results}; the same command goes on"
        raise KeyboardInterrupt(text) from None
    documents = [batch_results.document(kernel) for kernel in kernels]
    click.echo("\n".join(batch_summary(documents)))
    return documents


def _seed(settings: JudgeSettings, journal: Journal) -> int:
    """Return the seed of the command, else of the journal's first line, else a random one."""
    if settings.seed is not None:
        return settings.seed
    seeds = (int(row["seed"]) for row in journal.known.values())
    return next(seeds, random.SystemRandom().randrange(2**32))


class BatchResults:
    """The lines of the results: which candidates have a verdict, and which are left."""

    def __init__(
        self, journal: Journal, lines: Mapping[str, Sequence[BatchLine]]
    ) -> None:
        self._journal = journal
        self._lines = lines
        self._keys = {
            line.kernel: line.key for equal in lines.values() for line in equal
        }
        self._settled = {
            key: row
            for key, row in journal.known.items()
            if (row["outcome"], row["stage"]) != OURS
        }

    def add(self, digest: str, verdict: Mapping[str, Any]) -> None:
        """Write the lines of all candidates with a digest."""
        for line in self._lines[digest]:
            if line.key not in self._settled:
                self._journal.add(line.key, _with_file(verdict, line.kernel))

    def reuse(self) -> list[tuple[str, str]]:
        """Write known verdicts for equal candidates; return the digests and kernels left."""
        left = []
        for digest, equal in self._lines.items():
            known = [
                self._settled[line.key] for line in equal if line.key in self._settled
            ]
            if known:
                self.add(digest, known[0])
            else:
                left.append((digest, equal[0].kernel))
        return left

    def progress(self) -> str:
        """Return the number of candidates with a verdict, of all."""
        keys = [line.key for equal in self._lines.values() for line in equal]
        count = sum(key in self._journal.known for key in keys)
        return f"{count} of {len(keys)}"

    def document(self, kernel: str) -> dict[str, Any]:
        """Return the verdict of a kernel, FILE.py:KERNEL."""
        key = self._keys[kernel]
        return _with_file(self._journal.known[key], kernel)


def _test_files(setup: BatchSetup) -> dict[str, str]:
    """Return the digests of the test's files; a process of its own collects the test."""
    work = functools.partial(collect_test_files, setup=setup)
    try:
        for _, files in run_tasks([setup.test], work, 1, dict, lambda news: _COLLECT):
            if isinstance(files, dict):
                return files
    except RuntimeError as error:
        raise click.ClickException(str(error)) from None
    raise click.ClickException(f"{setup.test}: the process that collects it ended")


def _with_file(document: Mapping[str, Any], kernel: str) -> dict[str, Any]:
    """Return a verdict with the file's path of this command: a folder may have moved."""
    own = {**document["kernel"], "file": kernel.rpartition(":")[0]}
    return {**document, "kernel": own}


def batch_summary(judged: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield counts by outcome, then kernels that agree, the fastest first, grouped if identical."""
    counts = Counter(verdict["outcome"].replace("_", " ") for verdict in judged)
    parts = (f"{outcome}: {count}" for outcome, count in counts.most_common())
    yield f"{count_of(len(judged), 'candidate')}; {', '.join(parts)}"
    right = (
        verdict for verdict in judged if verdict["outcome"] == Outcome.AGREES.value
    )
    alike = group_by(
        right, lambda verdict: verdict["instructions"] or kernel_argument(verdict)
    )
    groups = sorted(alike.values(), key=lambda rows: _predicted_us(rows[0]))
    for verdict, *others in groups:
        text = "no time is predicted"
        if verdict["time"]:
            text = f"{verdict['time']['predicted_us']:10.1f} us (predicted)"
        yield f"{text}  {kernel_argument(verdict)}"
        for other in others:
            yield f"    the same instructions: {kernel_argument(other)}"


def _predicted_us(verdict: Mapping[str, Any]) -> float:
    return float(verdict["time"]["predicted_us"]) if verdict["time"] else float("inf")


def _verdicts(
    tasks: Sequence[tuple[str, str]], setup: BatchSetup, count: int
) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield each task with its verdict; raise ClickException if the test cannot be collected."""
    seconds = PATIENCE * setup.settings.limits.seconds + _GRACE
    work = functools.partial(serve_batch, setup=setup)
    count = min(count, len(tasks))
    try:
        for task, row in run_tasks(tasks, work, count, dict, lambda news: seconds):
            yield task, lost(task[1], row, setup) if isinstance(row, LostTask) else row
    except RuntimeError as error:
        raise click.ClickException(str(error)) from None


def lost(kernel: str, loss: LostTask, setup: BatchSetup) -> dict[str, Any]:
    """Return the verdict of a kernel whose judge's process ended."""
    judgement = new_judgement(kernel, setup.test, setup.settings.seed)
    judgement.outcome = Outcome.TIMEOUT if loss.is_late else Outcome.INCONCLUSIVE
    judgement.reason = "the process that judged it ended, or took too long"
    return judgement.as_mapping()


def serve_batch(connection: Connection, setup: BatchSetup) -> None:
    """Judge the kernels that a connection sends, until it sends no more."""
    die_with_parent(signal.SIGTERM)  # the fork server ends with this process
    with contextlib.suppress(EOFError, ConnectionError), ForkServer() as forks:
        try:
            with stub_imports(_stub_descriptions(setup, forks)) as read:
                judge = functools.partial(_judge_all, connection, setup, read, forks)
                with_spec(setup.test, judge)
        except click.ClickException as error:
            connection.send(error.message)


def _stub_descriptions(
    setup: BatchSetup, forks: ForkServer | None
) -> dict[Path, Describe]:
    """Return for each candidate's file a function that describes it, for its stub.

    A package of candidates is empty: their authors can write its file.
    """
    files: dict[Path, Describe] = {}
    if setup.folder:
        package = Path(setup.folder, _PACKAGE_FILE)
        files[package] = lambda: {"constants": {}, "functions": {}}
    return files | {
        Path(kernel.rpartition(":")[0]): functools.partial(
            describe_candidate, kernel, setup.test, setup.settings, forks
        )
        for kernel in setup.kernels
    }


def _judge_all(
    connection: Connection,
    setup: BatchSetup,
    read: Mapping[str, Any],
    forks: ForkServer,
    spec: KernelSpec,
) -> None:
    magnitude = None if spec.magnitude is None else memoize_pickled(spec.magnitude)
    spec = replace(spec, reference=memoize_pickled(spec.reference), magnitude=magnitude)

    def answer(task: tuple[str, str]) -> dict[str, Any]:
        kernel = task[1]
        if violation := link_violation(kernel, setup):
            judgement = new_judgement(kernel, setup.test, setup.settings.seed)
            judgement.outcome = Outcome.OUTSIDE_LANGUAGE
            judgement.reason = str(violation)
            return judgement.as_mapping()
        try:
            judgement = judge_candidate(kernel, setup.test, setup.settings, forks, spec)
            # an earlier candidate may have harmed the fork server
            if judgement.has_died:
                with ForkServer() as fresh:
                    judgement = judge_candidate(
                        kernel, setup.test, setup.settings, fresh, spec
                    )
                judgement.notes.append(_AGAIN)
            review_constants(judgement, read, setup.settings)
            review_imports(judgement, kernel, setup)
        except click.ClickException as error:
            judgement = new_judgement(kernel, setup.test, setup.settings.seed)
            judgement.outcome = Outcome.CRASHED
            judgement.reason = error.message
        return judgement.as_mapping()

    serve_tasks(connection, answer)


def link_violation(kernel: str, setup: BatchSetup) -> Violation | None:
    """Return a violation if a candidate is a link to a file outside of the batch's folder."""
    folder = os.path.realpath(setup.folder)
    if not setup.folder or Path(_file_of(kernel)).is_relative_to(folder):
        return None
    file = kernel.rpartition(":")[0]
    what = f"it is a symbolic link to a file outside of {setup.folder}"
    return Violation(file, 1, what, "copy the file")


def review_imports(judgement: Judgement, kernel: str, setup: BatchSetup) -> None:
    """Name the other candidates whose files a candidate imports; its agreement is not its own."""
    own = _file_of(kernel)
    others: dict[str, str] = {}
    for other in setup.kernels:
        others.setdefault(_file_of(other), other.rpartition(":")[0])
    sources = CandidateFiles(Path(own)).sources.values()
    files = {os.path.realpath(source.file) for source in sources} - {own}
    shared = sorted(others[file] for file in files & others.keys())
    if not shared:
        return
    text = f"it imports {', '.join(shared)}, another candidate of the batch"
    judgement.notes.append(text)
    if judgement.outcome is Outcome.AGREES:
        judgement.outcome = Outcome.IMPORTS_CANDIDATE
        judgement.stage = Stage.COMPARE
        judgement.reason = f"{text}; put the shared code into a file of its own"


def memoize_pickled(
    function: Callable[..., Any], most: int = KEPT
) -> Callable[..., Any]:
    """Return a function that caches results by the pickled bytes of its arguments."""

    @functools.lru_cache(most)
    def result(text: bytes) -> bytes:
        args, keywords = pickle.loads(text)
        return pickle.dumps(function(*args, **keywords))

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return pickle.loads(result(pickle.dumps((args, keywords))))
        except (pickle.PicklingError, TypeError, AttributeError):
            return function(*args, **keywords)

    return call
