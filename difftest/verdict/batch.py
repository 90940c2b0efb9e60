"""Many kernels against one spec: ``difftest verdict --batch``.

What is known of a kernel is a line of a file, which is on the disk before the next one begins. So a
batch that is ended in any way goes on where it was. Kernels are told apart by what they are: their
source, and all that decides the verdict.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from difftest.cli.kernel_run import write_file
from difftest.plugin.run_report import versions
from difftest.verdict.bench import BatchOrders, serve, unjudged
from difftest.verdict.command import JudgeSettings
from difftest.verdict.outcome import Outcome

START = 120.0
"""Seconds that a process may take to collect the test."""
PATIENCE = 10
"""Times the seconds of a run that all of a kernel may take."""
INTERRUPTED = 130
_FIRST = b'{"key": "'
"""How each line of the results begins."""


class Keyed(NamedTuple):
    """A candidate: FILE.py:KERNEL, and the digest of all that decides its verdict."""

    kernel: str
    key: str


class Results:
    """The objects of keys, in a file that grows by a line for each.

    Parameters
    ----------
    member : what a line calls its object. of : whose results they are, in words.

    Raises
    ------
    click.UsageError : the file holds something else.
    """

    def __init__(self, file: Path, member: str = "verdict", of: str = "a batch") -> None:
        self.file, self.member = file, member
        self.known: dict[str, dict[str, Any]] = {}
        text = file.read_bytes() if file.exists() else b""
        whole, _, torn = text.rpartition(b"\n")
        try:
            for line in whole.splitlines():
                row = json.loads(line)
                self.known[row["key"]] = row[member]
            if not torn.startswith(_FIRST[: len(torn)]):
                raise ValueError(f"its last line is none of {of}")
        except (ValueError, KeyError, TypeError) as error:
            raise click.UsageError(f"{file} holds no results of {of}: {error}") from None
        if torn:
            os.truncate(file, len(text) - len(torn))

    def add(self, key: str, result: dict[str, Any]) -> None:
        """Write a line, and see it on the disk."""
        self.known[key] = result
        with self.file.open("ab") as file:
            file.write(json.dumps({"key": key, self.member: result}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def candidates(batch: str, test: str, sources: Path) -> list[str]:
    """The kernels of a batch, FILE.py:KERNEL: ``DIR:KERNEL``, or the lines of ``FILE.jsonl``.

    Parameters
    ----------
    sources : a folder for the sources that lines hold.
    """
    if batch.endswith(".jsonl"):
        try:
            lines = Path(batch).read_text("utf-8").splitlines()
        except OSError as error:
            raise click.UsageError(str(error)) from None
        found = [_of_line(line, f"{batch}:{n}", sources) for n, line in enumerate(lines, 1)]
    else:
        place, _, name = batch.rpartition(":")
        own = Path(test.partition("::")[0]).resolve()
        files = sorted(one for one in Path(place or batch).glob("*.py") if one.resolve() != own)
        found = [f"{file}:{name}" for file in files if place]
    if not found:
        told = f"--batch takes DIR:KERNEL or FILE.jsonl; {batch} has no candidates"
        raise click.UsageError(told)
    return found


def _of_line(line: str, where: str, sources: Path) -> str:
    try:
        row = json.loads(line)
        if "kernel" in row:
            return str(row["kernel"])
        name, text = row["name"], row["source"]
        file = sources / f"k{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    except (ValueError, KeyError, TypeError, AttributeError):
        told = f'{where}: a line is {{"kernel": "FILE.py:NAME"}} or {{"name": "add", "source": ""}}'
        raise click.UsageError(told) from None
    write_file(file, text)
    return f"{file}:{name}"


def _entry(kernel: str, orders: BatchOrders) -> Keyed:
    file, _, name = kernel.rpartition(":")
    test = orders.test.partition("::")[0]
    try:
        texts = [hashlib.sha256(Path(one).read_bytes()).hexdigest() for one in (file, test)]
    except OSError as error:
        raise click.UsageError(f"{kernel}: {error}") from None
    known = [texts, name, orders.test, asdict(orders.settings), versions()]
    return Keyed(kernel, hashlib.sha256(json.dumps(known).encode()).hexdigest())


def judge_batch(
    batch: str, test: str, settings: JudgeSettings, results: Path, processes: int
) -> int:
    """Judge what is not judged yet, and say what came of all: the exit code of the command."""
    known = Results(results)
    seeds = [settings.seed] if settings.seed is not None else []
    seeds += [int(one["seed"]) for one in known.known.values()]
    seed = next(iter(seeds), random.SystemRandom().randrange(2**32))
    kernels = tuple(candidates(batch, test, results.with_suffix(".sources")))
    columns = TextColumn("judged"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with tempfile.TemporaryDirectory(prefix="difftest-", ignore_cleanup_errors=True) as folder:
        orders = BatchOrders(test, replace(settings, seed=seed, shrink=False), kernels, folder)
        entries = [_entry(kernel, orders) for kernel in kernels]
        left = {one.key: one for one in entries if one.key not in known.known}
        done = len({one.key for one in entries}) - len(left)
        try:
            with Progress(*columns, console=Console(stderr=True)) as progress:
                bar = progress.add_task("", total=done + len(left), completed=done)
                for entry, verdict in _verdicts([*left.values()], orders, processes):
                    known.add(entry.key, verdict)
                    progress.advance(bar)
        except KeyboardInterrupt:
            count = sum(one.key in known.known for one in entries)
            told = f"stopped: {count} of {len(entries)} are in {results}; the same command goes on"
            click.echo(told, err=True)
            return INTERRUPTED
    click.echo("\n".join(summary([(one.kernel, known.known[one.key]) for one in entries])))
    return 0


def summary(judged: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Counts by outcome; then what agrees, the fastest first, with those that do the same."""
    counts = Counter(verdict["outcome"].replace("_", " ") for _, verdict in judged)
    parts = (f"{count} {outcome}" for outcome, count in counts.most_common())
    yield f"{len(judged)} candidates: {', '.join(parts)}"
    alike: dict[str, list[str]] = {}
    times: dict[str, float] = {}
    for kernel, verdict in judged:
        if verdict["outcome"] == Outcome.AGREES.value:
            same = verdict["instructions"] or kernel
            alike.setdefault(same, []).append(kernel)
            times[same] = verdict["time"]["predicted_us"] if verdict["time"] else float("inf")
    for same in sorted(alike, key=lambda one: times[one]):
        kernel, *others = alike[same]
        is_known = times[same] != float("inf")
        time_of = f"{times[same]:10.1f} us (predicted)" if is_known else "no time is predicted"
        yield f"{time_of}  {kernel}"
        yield from (f"    the same instructions: {other}" for other in others)


@dataclass
class _Judge:
    """A process and what it does now."""

    process: BaseProcess
    connection: Connection
    entry: Keyed | None = None
    deadline: float = field(default_factory=lambda: time.monotonic() + START)

    def end(self) -> None:
        """End it and its workers."""
        self.connection.close()
        if self.entry is not None:
            self.process.terminate()
        self.process.join(5)
        self.process.kill()
        self.process.join()

    def told(self, is_ready: bool) -> Any:
        """What it says; an Outcome if it will say no more."""
        if not is_ready:
            return Outcome.TIMEOUT
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError):
            return Outcome.CRASHED


def _start(orders: BatchOrders) -> _Judge:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, orders))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it inherits that
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)
    theirs.close()
    return _Judge(process, ours)


def _verdicts(
    entries: Sequence[Keyed], orders: BatchOrders, count: int
) -> Iterator[tuple[Keyed, dict[str, Any]]]:
    """The object of each kernel, in the order in which they are known.

    Raises
    ------
    click.ClickException : the test cannot be collected.
    """
    left, judges = deque(entries), list[_Judge]()
    try:
        judges += [_start(orders) for _ in range(min(count, len(left)))]
        while judges:
            first = min(one.deadline for one in judges) - time.monotonic()
            ready = wait([one.connection for one in judges], max(0.0, first))
            for one in [*judges]:
                is_ready = one.connection in ready
                if not is_ready and time.monotonic() < one.deadline:
                    continue
                told = one.told(is_ready)
                if one.entry is None and told is not None:
                    text = told if isinstance(told, str) else f"no judge can be started: {told}"
                    raise click.ClickException(text)
                if one.entry is not None:
                    yield one.entry, _object(one.entry, told, orders)
                if isinstance(told, Outcome) or not left:
                    judges.remove(one)
                    one.end()
                    judges += [_start(orders)] if left else []
                    continue
                one.entry = left.popleft()
                one.deadline = time.monotonic() + PATIENCE * orders.settings.limits.seconds
                one.connection.send(one.entry.kernel)
    finally:
        for one in judges:
            one.end()


def _object(entry: Keyed, told: Any, orders: BatchOrders) -> dict[str, Any]:
    if isinstance(told, Outcome):
        reason = "the process that judged it ended, or took too long"
        told = unjudged(entry.kernel, orders, told, reason).as_mapping()
    found: dict[str, Any] = told
    return found
