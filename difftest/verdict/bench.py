"""A process of a batch: it collects the test once, and judges each kernel that comes by it.

What kernels share is the judge's own: the spec, and what the reference said of a case.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click

from difftest.harness.spec import KernelSpec
from difftest.host.collecting import with_spec
from difftest.verdict.candidate import stand_in
from difftest.verdict.command import JudgeSettings, described_alone, judged, unjudged
from difftest.verdict.nursery import Nursery, nursery
from difftest.verdict.outcome import Outcome

KEPT = 2**27
"""Bytes of a reference's outputs that a process keeps."""
_NOTHING = hashlib.sha256().digest()


@dataclass(frozen=True)
class BatchOrders:
    """What each process is told when it starts: all candidates, and where temporary files go."""

    test: str
    settings: JudgeSettings
    kernels: tuple[str, ...]
    folder: str


def serve(connection: Connection, orders: BatchOrders) -> None:
    """Judge the kernels whose names come, until no more do.

    What is sent is None when the test has been collected, a text if it cannot be, and then the
    object of each kernel.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it hears Ctrl-C, and ends it
    threading.Thread(target=_follow, args=(orders.folder,), daemon=True).start()
    tempfile.tempdir = orders.folder
    with contextlib.suppress(EOFError, ConnectionError), nursery() as forks:
        try:
            describe = {
                Path(kernel.rpartition(":")[0]): functools.partial(
                    described_alone, kernel, orders.test, orders.settings, forks
                )
                for kernel in orders.kernels
            }
            with stand_in(describe):
                with_spec(orders.test, lambda spec: _judge_all(connection, orders, spec, forks))
        except click.ClickException as error:
            connection.send(error.message)


def _follow(folder: str) -> None:
    """End this process, and with it its nursery, when what started it is no more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        shutil.rmtree(folder, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGTERM)


def _judge_all(
    connection: Connection, orders: BatchOrders, spec: KernelSpec, forks: Nursery | None
) -> None:
    magnitude = None if spec.magnitude is None else remembered(spec.magnitude)
    spec = replace(spec, reference=remembered(spec.reference), magnitude=magnitude)
    connection.send(None)
    while True:
        kernel = connection.recv().kernel
        try:
            judgement = judged(kernel, orders.test, orders.settings, forks, spec)
        except click.ClickException as error:
            judgement = unjudged(kernel, orders.test, orders.settings.seed)
            judgement.outcome, judgement.reason = Outcome.CRASHED, error.message
        connection.send(judgement.as_mapping())


def remembered(function: Callable[..., Any], most: int = KEPT) -> Callable[..., Any]:
    """The function, which is called once for arguments of the same bytes.

    What cannot be pickled is not kept.

    Parameters
    ----------
    most : bytes of results that are kept; the oldest go first.
    """
    known: OrderedDict[bytes, bytes] = OrderedDict()

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        key = hashlib.sha256(_pickled((args, keywords))).digest()
        if key in known:
            return pickle.loads(known[key])
        result = function(*args, **keywords)
        text = _pickled(result)
        if key != _NOTHING and text:
            known[key] = text
        while sum(map(len, known.values())) > most:
            known.popitem(last=False)
        return result

    return call


def _pickled(value: Any) -> bytes:
    """Empty where it cannot be."""
    with contextlib.suppress(pickle.PicklingError, TypeError, AttributeError):
        return pickle.dumps(value)
    return b""
