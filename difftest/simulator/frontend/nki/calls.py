"""Instructions of ``nki.isa``: a signature, a record, and what converts the arguments.

A signature has no body. Its arguments go to the record's roles and options by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.arguments import as_flag, tuple_of
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import engine_of, member_of, reduce_cmd
from difftest.simulator.frontend.nki.issue import issue
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions.activation import PRELU
from difftest.simulator.instructions.alu import NKI_OPS, alu_op
from difftest.simulator.instructions.functions import activation_name
from difftest.simulator.instructions.record import Instruction
from difftest.simulator.instructions.reduce import AVERAGE
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.trace import Engine

Convert = Callable[[Any], Any]
Converter = Callable[[str, str], Convert]
"""Makes what converts an argument, of the instruction's name and the parameter's."""
Prepare = Callable[[dict[str, Any], str], None]
_EMPTY = inspect.Parameter.empty


_COMMANDS = {one: Accumulate[one.name.upper()] for one in reduce_cmd}


def plain_command(value: Any, where: str) -> Accumulate:
    """What an instruction does with its engine's registers, as ``reduce_cmd`` says.

    Raises
    ------
    KernelError : ``value`` is no member of ``nisa.reduce_cmd``.
    """
    return _COMMANDS[member_of(reduce_cmd, value, where)]


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


def by_instruction(convert: Callable[..., Any]) -> Converter:
    """The converter of a function that takes a value and the instruction's name."""
    return lambda where, name: partial(convert, where=where)


def operator(where: str, name: str) -> Convert:
    """An operator of the Vector Engine."""

    def convert(op: Any) -> Any:
        try:
            return NKI_OPS[op.nki_name]
        except (AttributeError, KeyError):
            return alu_op(op, where, NKI_OPS)

    return convert


comparison = by_instruction(alu_op)
command = by_instruction(plain_command)
_ENGINE = by_instruction(engine_of)


def function(where: str, name: str) -> Convert:
    """A function of the Scalar Engine, or ``nl.prelu`` of an instruction that has it, by name."""
    if where != "activate2":
        return activation_name
    return lambda value: (
        PRELU if getattr(value, "nki_name", None) == PRELU else activation_name(value)
    )


def average(where: str, name: str) -> Convert:
    """An operator, or ``nl.average``."""
    convert = operator(where, name)
    return lambda value: (
        AVERAGE if getattr(value, "nki_name", None) == AVERAGE.name else convert(value)
    )


def flag(where: str, name: str) -> Convert:
    """True or False."""
    return partial(as_flag, name=name)


def integer(where: str, name: str) -> Convert:
    """A Python integer."""
    return partial(as_integer, what=name)


def integers(where: str, name: str) -> Convert:
    """A tuple of Python integers."""
    return partial(as_integers, what=name)


def member(kind: Any) -> Converter:
    """The name of a member of an enumeration."""
    return lambda where, name: lambda value: member_of(kind, value, where).name


def optional(converter: Converter) -> Converter:
    """None, or what a converter makes."""

    def make(where: str, name: str) -> Convert:
        convert = converter(where, name)
        return lambda value: None if value is None else convert(value)

    return make


def stage(where: str, name: str) -> Convert:
    """An operator, or ``nl.bypass`` for none."""
    convert = operator(where, name)
    return lambda value: None if getattr(value, "nki_name", None) == "bypass" else convert(value)


def commands(engine: str) -> Prepare:
    """What makes of ``reduce_cmd`` and ``reduce_res`` what an engine does with its registers."""

    def prepare(values: dict[str, Any], where: str) -> None:
        value, into = values["reduce_cmd"], values["reduce_res"]
        idle = value is reduce_cmd.idle and into is None
        values["reduce_cmd"] = Accumulate.IDLE if idle else command_of(value, where, engine, into)

    return prepare


def call(
    record: Instruction, *, prepare: Prepare | None = None, **converters: Any
) -> Callable[[Callable[..., None]], Callable[..., NkiInstruction]]:
    """Make a signature the call of an instruction.

    Parameters
    ----------
    prepare : makes arguments of others, before those that are given are converted.
    converters : by parameter, beside :data:`_USUAL`; of an option that no argument says, its value.
        A parameter ``engine`` is the instruction's, and an option whose default is a bool a flag.
    """

    def make(signature: Callable[..., None]) -> Callable[..., NkiInstruction]:
        called: Any = public(signature, _issuing(record, signature, prepare, converters))
        return cast(Callable[..., NkiInstruction], called)

    return make


def _issuing(
    record: Instruction,
    signature: Callable[..., Any],
    prepare: Prepare | None,
    converters: dict[str, Any],
) -> Callable[..., NkiInstruction]:
    """What issues a record with the arguments of a signature.

    Raises
    ------
    TypeError : a role or an option of the record has no value, or a converter no parameter.
    """
    where, parameters = signature.__name__, inspect.signature(signature).parameters
    names = tuple(parameters)
    fixed = {name: value for name, value in converters.items() if not callable(value)}
    by_name = {
        **{name: flag for name in record.options if _is_flag(parameters.get(name))},
        **{one: _usual(parameters[one]) for one in names if one in {*_USUAL} & {*record.options}},
        **{name: value for name, value in converters.items() if callable(value)},
        **({"engine": _ENGINE} if "engine" in names else {}),
    }
    roles = [role.name for role in record.operands]
    dst, *others = (role.name for role in record.destinations)
    unknown = {dst, *others, *roles, *record.options, *by_name} - {*names, *fixed}
    if unknown:
        raise TypeError(f"{where}: the signature has no {', '.join(sorted(unknown))}")
    defaults = {name: one.default for name, one in parameters.items() if one.default is not _EMPTY}
    converts = {name: converter(where, name) for name, converter in by_name.items()}
    ready = fixed | {
        name: converts[name](value) if name in converts else value
        for name, value in defaults.items()
    }
    plans: dict[tuple[Any, ...], list[tuple[str, Convert]]] = {}
    operands, options, further = tuple_of(roles), tuple_of(record.options), tuple_of(others)
    has_engine = "engine" in names

    def issuing(*args: Any, **kwargs: Any) -> NkiInstruction:
        plan = plans.get((len(args), *kwargs))
        if plan is None:
            signature(*args, **kwargs)  # raises what Python says of arguments that do not fit
            given = {*names[: len(args)], *kwargs}
            plan = [(name, convert) for name, convert in converts.items() if name in given]
            plans[(len(args), *kwargs)] = plan
        values = {**ready, **kwargs}
        if args:
            values.update(zip(names, args, strict=False))
        if prepare is not None:
            prepare(values, where)
        for name, convert in plan:
            values[name] = convert(values[name])
        return issue(
            record,
            values[dst],
            operands(values) if operands else (),
            options(values) if options else (),
            others=further(values) if further else (),
            engine=values["engine"] if has_engine else Engine.UNKNOWN,
        )

    return issuing


_USUAL = {
    **dict.fromkeys(("op", "op0", "op1", "reduce_op"), operator),
    **dict.fromkeys(("num_elem_per_idx", "num_valid_indices"), integer),
    **dict.fromkeys(("index_offset", "padding_val"), integer),
    "shuffle_mask": integers,
}
"""Converters of options that have these names, where a call names none."""


def _usual(parameter: inspect.Parameter) -> Converter:
    converter = _USUAL[parameter.name]
    return optional(converter) if parameter.default is None else converter


def _is_flag(parameter: inspect.Parameter | None) -> bool:
    return parameter is not None and isinstance(parameter.default, bool)
