"""A process of a batch that judges: it collects the test once, and judges what comes by it.

Each candidate has a worker of its own, forked from one :class:`~difftest.verdict.nursery.Nursery`.
What candidates share is the judge's own: the spec, and what the reference said of a case.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import numpy as np

from difftest.cli.collecting import with_spec
from difftest.harness.spec import KernelSpec
from difftest.plugin.run_report import versions
from difftest.verdict.candidate import stand_in
from difftest.verdict.command import JudgeSettings, described_alone, judged
from difftest.verdict.judgement import Judgement
from difftest.verdict.nursery import Nursery
from difftest.verdict.outcome import Outcome

KEPT = 2**27
"""Bytes of a reference's outputs that a process keeps."""
_PLAIN = (int, float, str, bool, type(None))


@dataclass(frozen=True)
class BatchOrders:
    """What each process is told when it starts.

    Attributes
    ----------
    kernels : all candidates, FILE.py:KERNEL. folder : for what is temporary.
    """

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
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_follow, daemon=True).start()
    tempfile.tempdir = orders.folder
    with contextlib.suppress(KeyboardInterrupt, EOFError, ConnectionError), _nursery() as nursery:
        try:
            describe = {
                Path(kernel.rpartition(":")[0]): functools.partial(
                    described_alone, kernel, orders.test, orders.settings, nursery
                )
                for kernel in orders.kernels
            }
            with stand_in(describe):
                with_spec(orders.test, lambda spec: _judge_all(connection, orders, spec, nursery))
        except click.ClickException as error:
            connection.send(error.message)


def _follow() -> None:
    """End this process and its workers when what started it is no more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _nursery() -> Iterator[Nursery | None]:
    """One, where the system can fork."""
    if not (hasattr(os, "fork") and hasattr(socket, "send_fds")):
        yield None
        return
    with Nursery() as nursery:
        yield nursery


def _judge_all(
    connection: Connection, orders: BatchOrders, spec: KernelSpec, nursery: Nursery | None
) -> None:
    magnitude = None if spec.magnitude is None else remembered(spec.magnitude)
    spec = replace(spec, reference=remembered(spec.reference), magnitude=magnitude)
    connection.send(None)
    while True:
        kernel = connection.recv()
        try:
            judgement = judged(kernel, orders.test, orders.settings, nursery, spec)
        except click.ClickException as error:
            judgement = unjudged(kernel, orders, Outcome.CRASHED, error.message)
        connection.send(judgement.as_mapping())


def unjudged(kernel: str, orders: BatchOrders, outcome: Outcome, reason: str) -> Judgement:
    """The object of a kernel that could not be judged to the end."""
    file, _, name = kernel.rpartition(":")
    digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    judgement = Judgement(
        {"file": file, "name": name, "sha256": digest}, orders.test, orders.settings.seed or 0
    )
    judgement.outcome, judgement.reason, judgement.versions = outcome, reason, versions()
    return judgement


def remembered(function: Callable[..., Any], most: int = KEPT) -> Callable[..., Any]:
    """The function, which is called once for arguments of the same bytes.

    Arguments other than arrays and plain values, and results other than arrays, are not kept.

    Parameters
    ----------
    most : bytes of results that are kept; the oldest go first.
    """
    known: OrderedDict[bytes, Any] = OrderedDict()

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        key = _key((*enumerate(args), *keywords.items()))
        if key is None:
            return function(*args, **keywords)
        if key not in known:
            result = function(*args, **keywords)
            if not _arrays(result):
                return result
            known[key] = _copy(result)
            while sum(one.nbytes for held in known.values() for one in _arrays(held)) > most:
                known.popitem(last=False)
            return result
        return _copy(known[key])

    return call


def _key(arguments: tuple[tuple[Any, Any], ...]) -> bytes | None:
    """A digest of arguments; None if their values are not all there is to them."""
    whole = hashlib.sha256()
    for name, value in arguments:
        if isinstance(value, np.ndarray):
            whole.update(repr((name, value.dtype.name, value.shape)).encode())
            whole.update(value.tobytes())
        elif type(value) in _PLAIN:
            whole.update(repr((name, value)).encode())
        else:
            return None
    return whole.digest()


def _arrays(result: Any) -> tuple[Any, ...]:
    """The arrays that a result is made of; none if it is made of something else."""
    parts = (result,) if isinstance(result, np.ndarray) else result
    if type(parts) not in (tuple, list) or not all(type(one) is np.ndarray for one in parts):
        return ()
    return tuple(parts)


def _copy(result: Any) -> Any:
    arrays = (one.copy() for one in _arrays(result))
    return next(arrays) if isinstance(result, np.ndarray) else type(result)(arrays)
