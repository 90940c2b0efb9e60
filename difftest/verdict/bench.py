"""A process of a batch: it collects the test once, and judges each kernel that comes by it.

What kernels share is the judge's own: the spec, and what the reference said of a case.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click

from difftest.harness.spec import KernelSpec
from difftest.host.collecting import with_spec
from difftest.verdict.candidate import stand_in
from difftest.verdict.command import (
    JudgeSettings,
    described_alone,
    judged,
    unjudged,
    weigh_constants,
)
from difftest.verdict.nursery import Nursery
from difftest.verdict.outcome import Outcome
from difftest.verdict.walls import ends_with_parent

KEPT = 64
"""Cases of which a process keeps what the reference said."""


@dataclass(frozen=True)
class BatchOrders:
    """What each process is told when it starts: all candidates."""

    test: str
    settings: JudgeSettings
    kernels: tuple[str, ...]


def serve(connection: Connection, orders: BatchOrders) -> None:
    """Judge the kernels whose names come, until no more do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it hears Ctrl-C, and ends it
    ends_with_parent(signal.SIGTERM)  # and with it its nursery
    with contextlib.suppress(EOFError, ConnectionError), Nursery() as forks:
        try:
            describe = {
                Path(kernel.rpartition(":")[0]): functools.partial(
                    described_alone, kernel, orders.test, orders.settings, forks
                )
                for kernel in orders.kernels
            }
            with stand_in(describe) as read:
                judge = functools.partial(_judge_all, connection, orders, read, forks)
                with_spec(orders.test, judge)
        except click.ClickException as error:
            connection.send(error.message)


def _judge_all(
    connection: Connection,
    orders: BatchOrders,
    read: Mapping[str, Any],
    forks: Nursery,
    spec: KernelSpec,
) -> None:
    magnitude = None if spec.magnitude is None else remembered(spec.magnitude)
    spec = replace(spec, reference=remembered(spec.reference), magnitude=magnitude)
    connection.send(None)
    while True:
        kernel = connection.recv().kernel
        try:
            judgement = judged(kernel, orders.test, orders.settings, forks, spec)
            weigh_constants(judgement, read, orders.settings)
        except click.ClickException as error:
            judgement = unjudged(kernel, orders.test, orders.settings.seed)
            judgement.outcome, judgement.reason = Outcome.CRASHED, error.message
        connection.send(judgement.as_mapping())


def remembered(function: Callable[..., Any], most: int = KEPT) -> Callable[..., Any]:
    """The function, called once for arguments of the same bytes, if they can be pickled."""

    @functools.lru_cache(most)
    def known(text: bytes) -> bytes:
        args, keywords = pickle.loads(text)
        return pickle.dumps(function(*args, **keywords))

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return pickle.loads(known(pickle.dumps((args, keywords))))
        except (pickle.PicklingError, TypeError, AttributeError):
            return function(*args, **keywords)

    return call
