"""The table of instructions: one record each, from which names, docs and costs are derived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from difftest.simulator.errors import KernelError
from difftest.simulator.trace import Engine

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction of the machine."""

    name: str
    engines: tuple[Engine, ...]
    """Where it can run; the first is where it runs if the kernel does not say."""
    execute: Callable[..., Any]
    summary: str


INSTRUCTIONS: dict[str, Instruction] = {}


def instruction(name: str, *engines: Engine) -> Callable[[F], F]:
    """Register a function as an instruction's meaning; its docstring's first line sums it up."""

    def register(function: F) -> F:
        if name in INSTRUCTIONS:
            raise ValueError(f"instruction {name} is registered twice")
        summary = (function.__doc__ or "").strip().splitlines()[0]
        INSTRUCTIONS[name] = Instruction(
            name=name, engines=engines, execute=function, summary=summary
        )
        return function

    return register


def choose_engine(name: str, wanted: Engine, allowed: tuple[Engine, ...] | None = None) -> Engine:
    """The engine on which ``name`` runs; UNKNOWN lets the table's first choice stand.

    Raises
    ------
    KernelError : the instruction does not run on the engine that the kernel names.
    """
    engines = allowed or INSTRUCTIONS[name].engines
    if wanted is Engine.UNKNOWN:
        return engines[0]
    if wanted not in engines:
        raise KernelError(
            f"{name} runs on the engines that implement it",
            received=f"engine={wanted.value}",
            limit=", ".join(engine.value for engine in engines),
        )
    return wanted
