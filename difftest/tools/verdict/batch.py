"""Judge many kernels by one spec: ``difftest verdict --batch``.

Each verdict is a line of a file, written to disk before the next kernel begins. After any kind of
end, run the command again to continue. A digest of a kernel's source, its test and the settings
identifies its verdict.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import pickle
import random
import signal
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
from difftest.testing.harness.spec import KernelSpec
from difftest.testing.host.collection import with_spec
from difftest.tools.verdict.candidate import (
    JudgeSettings,
    describe_candidate,
    judge_candidate,
    new_judgement,
    review_constants,
    stub_imports,
)
from difftest.tools.verdict.fork_server import PATIENCE as RUNS
from difftest.tools.verdict.fork_server import ForkServer
from difftest.tools.verdict.formats import kernel_argument
from difftest.tools.verdict.outcome import Outcome, Stage

PATIENCE = 2 * RUNS
"""The seconds for a kernel and its judge, as a multiple of the seconds of one run."""
OURS = (Outcome.INCONCLUSIVE.value, Stage.IMPORT.value)
"""The outcome and the stage of a failed judge or worker. Such a kernel is judged again."""
KEPT = 64  # reference results that a process keeps


class BatchOrders(NamedTuple):
    """The settings of each worker process, and all candidates."""

    test: str
    settings: JudgeSettings
    kernels: tuple[str, ...]


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
    """Return a kernel for each file of the folder in ``DIR:KERNEL``, except the test's file."""
    place, _, name = batch.rpartition(":")
    own = Path(test.partition("::")[0]).resolve()
    files = sorted(
        path for path in Path(place or batch).glob("*.py") if path.resolve() != own
    )
    return [f"{file}:{name}" for file in files if place]


def _line_kernel(line: str, where: str, sources: Path) -> str:
    """Return the kernel of a line of ``FILE.jsonl``; write its source to a file if it has one."""
    try:
        row = json.loads(line)
        if "kernel" in row:
            return str(row["kernel"])
        name, text = row["name"], row["source"]
        file = (
            sources
            / f"k{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}.py"
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        form = '{"kernel": "FILE.py:NAME"} or {"name": "add", "source": ""}'
        raise click.UsageError(f"{where}: a line is {form}") from None
    write_file(file, text)
    return f"{file}:{name}"


def _key_of(kernel: str, orders: BatchOrders) -> str:
    """Return a digest of everything that decides a kernel's verdict."""
    file, _, name = kernel.rpartition(":")
    test = orders.test.partition("::")[0]
    try:
        texts = [
            hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in (file, test)
        ]
    except OSError as error:
        raise click.UsageError(f"{kernel}: {error}") from None
    parts = [texts, name, orders.test, asdict(orders.settings), versions()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def judge_batch(
    batch: str, test: str, settings: JudgeSettings, results: Path, processes: int
) -> list[dict[str, Any]]:
    """Judge the kernels without a verdict, print a summary, and return the verdict of each."""
    kernels = tuple(candidates(batch, test, results.with_suffix(".sources")))
    journal = Journal(
        results
    )  # opened after candidates(), so that an error there leaves no file
    seeds = [settings.seed] if settings.seed is not None else []
    seeds += [int(row["seed"]) for row in journal.known.values()]
    seed = next(iter(seeds), random.SystemRandom().randrange(2**32))
    orders = BatchOrders(test, replace(settings, seed=seed, shrink=False), kernels)
    keys = {kernel: _key_of(kernel, orders) for kernel in kernels}
    settled = {
        key
        for key, row in journal.known.items()
        if (row["outcome"], row["stage"]) != OURS
    }
    left = {key: kernel for kernel, key in keys.items() if key not in settled}
    done = len(set(keys.values())) - len(left)
    try:
        with progress("judged", done + len(left), done) as advance:
            for (key, _), verdict in _verdicts(list(left.items()), orders, processes):
                journal.add(key, verdict)
                advance()
    except KeyboardInterrupt:
        count = sum(keys[kernel] in journal.known for kernel in kernels)
        text = f"stopped: {count} of {len(kernels)} are in {results}; the same command goes on"
        raise KeyboardInterrupt(text) from None
    documents = [_with_file(journal.known[keys[kernel]], kernel) for kernel in kernels]
    click.echo("\n".join(batch_summary(documents)))
    return documents


def _with_file(document: Mapping[str, Any], kernel: str) -> dict[str, Any]:
    """Return a verdict with a kernel's own file: files with equal sources share a verdict."""
    own = {**document["kernel"], "file": kernel.rpartition(":")[0]}
    return {**document, "kernel": own}


def batch_summary(judged: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield counts by outcome, then kernels that agree, the fastest first, grouped if identical."""
    counts = Counter(verdict["outcome"].replace("_", " ") for verdict in judged)
    parts = (f"{outcome}: {count}" for outcome, count in counts.most_common())
    yield f"{len(judged)} candidate{'s' * (len(judged) > 1)}; {', '.join(parts)}"
    right = (
        verdict for verdict in judged if verdict["outcome"] == Outcome.AGREES.value
    )
    alike = group_by(
        right, lambda verdict: verdict["instructions"] or kernel_argument(verdict)
    )
    for verdict, *others in sorted(
        alike.values(), key=lambda rows: _predicted_us(rows[0])
    ):
        time = verdict["time"]
        text = (
            f"{time['predicted_us']:10.1f} us (predicted)"
            if time
            else "no time is predicted"
        )
        yield f"{text}  {kernel_argument(verdict)}"
        yield from (
            f"    the same instructions: {kernel_argument(other)}" for other in others
        )


def _predicted_us(verdict: Mapping[str, Any]) -> float:
    return float(verdict["time"]["predicted_us"]) if verdict["time"] else float("inf")


def _verdicts(
    tasks: Sequence[tuple[str, str]], orders: BatchOrders, count: int
) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield each task with its verdict; raise ClickException if the test cannot be collected."""
    seconds = PATIENCE * orders.settings.limits.seconds
    work = functools.partial(serve_batch, orders=orders)
    count = min(count, len(tasks))
    try:
        for task, row in run_tasks(tasks, work, count, dict, lambda news: seconds):
            yield task, lost(task[1], row, orders) if isinstance(row, LostTask) else row
    except RuntimeError as error:
        raise click.ClickException(str(error)) from None


def lost(kernel: str, loss: LostTask, orders: BatchOrders) -> dict[str, Any]:
    """Return the verdict of a kernel whose judge's process ended."""
    judgement = new_judgement(kernel, orders.test, orders.settings.seed)
    judgement.outcome = Outcome.TIMEOUT if loss.is_late else Outcome.INCONCLUSIVE
    judgement.reason = "the process that judged it ended, or took too long"
    return judgement.as_mapping()


def serve_batch(connection: Connection, orders: BatchOrders) -> None:
    """Judge the kernels that a connection sends, until it sends no more."""
    die_with_parent(signal.SIGTERM)  # the fork server ends with this process
    with contextlib.suppress(EOFError, ConnectionError), ForkServer() as forks:
        try:
            describe = {
                Path(kernel.rpartition(":")[0]): functools.partial(
                    describe_candidate, kernel, orders.test, orders.settings, forks
                )
                for kernel in orders.kernels
            }
            with stub_imports(describe) as read:
                judge = functools.partial(_judge_all, connection, orders, read, forks)
                with_spec(orders.test, judge)
        except click.ClickException as error:
            connection.send(error.message)


def _judge_all(
    connection: Connection,
    orders: BatchOrders,
    read: Mapping[str, Any],
    forks: ForkServer,
    spec: KernelSpec,
) -> None:
    magnitude = None if spec.magnitude is None else memoize_pickled(spec.magnitude)
    spec = replace(spec, reference=memoize_pickled(spec.reference), magnitude=magnitude)

    def answer(task: tuple[str, str]) -> dict[str, Any]:
        try:
            judgement = judge_candidate(
                task[1], orders.test, orders.settings, forks, spec
            )
            review_constants(judgement, read, orders.settings)
        except click.ClickException as error:
            judgement = new_judgement(task[1], orders.test, orders.settings.seed)
            judgement.outcome = Outcome.CRASHED
            judgement.reason = error.message
        return judgement.as_mapping()

    serve_tasks(connection, answer)


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
