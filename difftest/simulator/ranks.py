"""Several ranks: one kernel on machines of their own, which talk in ``nki.collectives``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from difftest.simulator.baton import Baton, Order
from difftest.simulator.core import Rank
from difftest.simulator.dtypes import Array
from difftest.simulator.frontend.launchable import Launchable
from difftest.simulator.instructions.operands import wrong_kind
from difftest.simulator.launch import Finished, Launch, LaunchResult
from difftest.simulator.machine import Machine
from difftest.simulator.witness import Testimony, witness


def launch_ranks(
    kernel: Launchable | Callable[..., Any],
    args: Sequence[Sequence[Any]],
    kwargs: Mapping[str, Any] | None = None,
    *,
    machine: Machine | None = None,
    record: bool = True,
    level: str | None = None,
) -> tuple[LaunchResult, ...]:
    """Run a kernel once on each rank; the ranks take turns where they meet in a collective.

    Parameters
    ----------
    kernel : of today's dialect. With a grid (``kernel[2]``) its programs call the same collectives
        in the same order on all ranks.
    args : of each rank, in the order of the ranks, what :func:`difftest.simulator.launch` takes.
    kwargs, machine, record, level : as there, the same for all ranks.

    Raises
    ------
    KernelError : there is no rank. DeadlockError : ranks wait for each other. Whatever one of
        them raises ends all of them, and no rank's arguments are changed.
    """
    if not args or not all(isinstance(one, (list, tuple)) for one in args):
        raise wrong_kind(args, "a list of arguments for each rank", "launch_ranks")
    told = witness()

    recorded = record or told is not None
    run = Launch(kernel, (), kwargs, machine=machine, level=level, record=recorded)
    finished = _run(run, args)
    if told is not None:
        others = functools.cache(
            lambda order: [
                one.everything() for one in _run(replace(run, record=False, order=order), args)
            ]
        )
        for number, one in enumerate(finished):
            told(_testimony(number, one, others))
    return tuple(one.result() for one in finished)


def _testimony(
    number: int, finished: Finished, others: Callable[[Order], list[tuple[Array, ...]]]
) -> Testimony:
    """What a rank did; ``others`` runs all ranks in another order, once for all of them."""
    return Testimony(
        finished.trace(),
        finished.core.machine,
        finished.everything(),
        lambda order: others(order)[number],
        rank=number,
    )


def _run(run: Launch, args: Sequence[Sequence[Any]]) -> list[Finished]:
    """Run the ranks to their ends, before a caller's array changes."""
    baton = Baton([f"rank {number}" for number in range(len(args))], lambda before, after: None)
    ranks = [Rank(number, len(args), baton) for number in range(len(args))]
    finished: list[Finished] = baton.run(
        [replace(run, args=args[rank.number], rank=rank).finished for rank in ranks]
    )
    return finished
