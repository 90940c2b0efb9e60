"""``nisa.reduce_cmd`` and ``reduce_res``: what a call does with its engine's registers."""

from __future__ import annotations

from typing import Any

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.nki import constants
from difftest.simulator.frontend.nki.constants import member_of
from difftest.simulator.instructions.registers import Accumulate

_COMMANDS = {
    constants.reduce_cmd.idle: Accumulate.IDLE,
    constants.reduce_cmd.reset: Accumulate.RESET,
    constants.reduce_cmd.reduce: Accumulate.REDUCE,
    constants.reduce_cmd.reset_reduce: Accumulate.RESET_REDUCE,
    constants.reduce_cmd.load_reduce: Accumulate.LOAD_REDUCE,
}


def plain_command(value: Any, where: str) -> Accumulate:
    """What an instruction does that only ever reads the registers after it used them.

    Raises
    ------
    KernelError : ``value`` is no member of ``nisa.reduce_cmd``.
    """
    return _COMMANDS[member_of(constants.reduce_cmd, value, where)]


def command_of(value: Any, where: str, engine: str, into: Any) -> Accumulate:
    """What an instruction does with the registers of ``engine``, read out to ``into`` if any.

    Raises
    ------
    KernelError : ``value`` is no member of ``nisa.reduce_cmd``, or nothing was accumulated that
        could be read.
    """
    command = plain_command(value, where)
    if into is None or command is not Accumulate.IDLE:
        return command
    if engine not in current().accumulators:
        raise KernelError(
            f"{where} reads the registers into reduce_res, and nothing was accumulated in them",
            happened=f"{where} was to read registers in which nothing was accumulated",
            received=f"reduce_res = {into!r} with reduce_cmd.idle",
            remedy="pass reduce_cmd=nisa.reduce_cmd.reset_reduce",
        )
    return Accumulate.READ
