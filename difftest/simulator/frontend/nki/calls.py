"""Instructions of ``nki.isa``: a signature, a record, and what converts the arguments.

A signature has no body. Its arguments go to the record's roles and options by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

from difftest.simulator.core import current
from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.arguments import as_flag, tuple_of
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.constants import engine_of, member_of, reduce_cmd
from difftest.simulator.frontend.nki.issue import issue, perform
from difftest.simulator.frontend.nki.objects import NkiInstruction
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions.activation import PRELU
from difftest.simulator.instructions.alu import NKI_OPS, alu_op
from difftest.simulator.instructions.functions import activation_name
from difftest.simulator.instructions.record import EFFECTS, Instruction
from difftest.simulator.instructions.reduce import AVERAGE
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.trace import Engine

Converter = Callable[[Any, str], Any]
"""Makes a record's option of an argument; the second word is for errors."""
Prepare = Callable[[dict[str, Any], str], None]
_COMMANDS = {one: Accumulate[one.name.upper()] for one in reduce_cmd}


def operator(op: Any, where: str) -> Any:
    """An operator of the Vector Engine."""
    try:
        return NKI_OPS[op.nki_name]
    except (AttributeError, KeyError):
        return alu_op(op, where, NKI_OPS)


def stage(op: Any, where: str) -> Any:
    """An operator, or ``nl.bypass`` for none."""
    return None if getattr(op, "nki_name", None) == "bypass" else operator(op, where)


def average(op: Any, where: str) -> Any:
    """An operator, or ``nl.average``."""
    return AVERAGE if getattr(op, "nki_name", None) == AVERAGE.name else operator(op, where)


def function(op: Any, where: str) -> str:
    """A function of the Scalar Engine, by name."""
    return activation_name(op)


def function_or_prelu(op: Any, where: str) -> str:
    """A function of the Scalar Engine, or ``nl.prelu``, by name."""
    return PRELU if getattr(op, "nki_name", None) == PRELU else activation_name(op)


def command(value: Any, where: str) -> Accumulate:
    """What an instruction does with its engine's registers, as ``reduce_cmd`` says."""
    return _COMMANDS[member_of(reduce_cmd, value, where)]


def commands(engine: str) -> Prepare:
    """What makes of ``reduce_cmd`` and ``reduce_res`` what an engine does with its registers."""

    def prepare(values: dict[str, Any], where: str) -> None:
        into = values["reduce_res"]
        values["reduce_cmd"] = given = command(values["reduce_cmd"], where)
        if into is None or given is not Accumulate.IDLE:
            return
        if engine not in current().accumulators:
            raise KernelError(
                f"{where} reads the registers into reduce_res, and nothing was accumulated in them",
                happened=f"{where} was to read registers in which nothing was accumulated",
                received=f"reduce_res = {into!r} with reduce_cmd.idle",
                remedy="pass reduce_cmd=nisa.reduce_cmd.reset_reduce",
            )
        values["reduce_cmd"] = Accumulate.READ

    return prepare


_OF_CALL: dict[str, Converter] = {
    **dict.fromkeys(("op", "op0", "op1", "reduce_op"), operator),
    **dict.fromkeys(("cmp_op", "comp_op0", "comp_op1"), alu_op),
    "engine": engine_of,
}
"""Converters whose errors name the instruction."""
_OF_ARGUMENT: dict[str, Converter] = {
    **dict.fromkeys(("num_elem_per_idx", "num_valid_indices", "range_start"), as_integer),
    **dict.fromkeys(("index_offset", "padding_val", "collective_dim"), as_integer),
    **dict.fromkeys(("send_to_rank", "recv_from_rank", "pipe_id"), as_integer),
    **dict.fromkeys(("axes", "shuffle_mask", "cores", "channel_ids"), as_integers),
}
"""Converters whose errors name the argument."""


def call(
    record: Instruction,
    *,
    prepare: Prepare | None = None,
    run: Callable[..., NkiInstruction] | None = None,
    **settings: Any,
) -> Callable[[Callable[..., None]], Callable[..., NkiInstruction]]:
    """Make a signature the call of an instruction.

    ``prepare`` makes arguments of others, before those that are given are converted. ``settings``
    are converters, beside the usual ones; of what no argument says, its value. ``run`` is called in
    place of what issues a record of its kind. An option whose default is a bool is a flag, and one
    whose default is None may be None.

    Raises
    ------
    TypeError : a role or an option of the record has no value, or a converter no parameter.
    """

    def make(signature: Callable[..., None]) -> Callable[..., NkiInstruction]:
        issuing = _issuing(record, signature, prepare, run, settings)
        return cast(Callable[..., NkiInstruction], public(signature, issuing))

    return make


def _converter(
    parameter: inspect.Parameter, given: Any, where: str
) -> tuple[Converter, str] | None:
    """What converts an argument, and the word for its errors; None if it stays as it is."""
    name, said = parameter.name, where
    converter: Converter | None = given if callable(given) else _OF_CALL.get(name)
    if isinstance(parameter.default, bool):
        converter, said = as_flag, name
    elif name in _OF_ARGUMENT:
        converter, said = _OF_ARGUMENT[name], name
    if converter is None:
        return None
    convert = converter
    if parameter.default is None:
        return (lambda value, said: None if value is None else convert(value, said)), said
    return convert, said


def _issuing(
    record: Instruction,
    signature: Callable[..., Any],
    prepare: Prepare | None,
    run: Callable[..., NkiInstruction] | None,
    settings: dict[str, Any],
) -> Callable[..., NkiInstruction]:
    """What issues a record with the arguments of a signature."""
    where, parameters = signature.__name__, inspect.signature(signature).parameters
    names, has_engine = tuple(parameters), "engine" in parameters
    roles = [role.name for role in record.operands]
    targets = [role.name for role in record.destinations]
    dst, *others = targets or [""]
    needed = {*targets, *roles, *record.options}
    unsaid = {name: one for name, one in record.defaults.items() if name not in parameters}
    settings = {**unsaid, **settings}
    converters = {name for name, one in settings.items() if callable(one)}
    if unknown := (needed | converters) - {*names, *(settings.keys() - converters)}:
        raise TypeError(f"{where}: the signature has no {', '.join(sorted(unknown))}")
    converts = {
        name: one
        for name in names
        if name in {*record.options, "engine"}
        and (one := _converter(parameters[name], settings.get(name), where))
    }
    ready = {name: one for name, one in settings.items() if name not in converters}
    for name, parameter in parameters.items():
        if parameter.default is not parameter.empty:
            convert, said = converts.get(name, (lambda value, _: value, name))
            ready[name] = convert(parameter.default, said)
    plans: dict[tuple[Any, ...], list[tuple[str, Converter, str]]] = {}
    operands, options, further = tuple_of(roles), tuple_of(record.options), tuple_of(others)
    issues = run or (perform if record.name in EFFECTS else issue)

    def issuing(*args: Any, **kwargs: Any) -> NkiInstruction:
        plan = plans.get((len(args), *kwargs))
        if plan is None:
            signature(*args, **kwargs)  # raises what Python says of arguments that do not fit
            given = {*names[: len(args)], *kwargs}
            plan = [(name, *one) for name, one in converts.items() if name in given]
            plans[(len(args), *kwargs)] = plan
        values = {**ready, **kwargs}
        if args:
            values.update(zip(names, args, strict=False))
        if prepare is not None:
            prepare(values, where)
        for name, convert, said in plan:
            values[name] = convert(values[name], said)
        return issues(
            record,
            values.get(dst),
            operands(values) if operands else (),
            options(values) if options else (),
            others=further(values) if further else (),
            engine=values["engine"] if has_engine else Engine.UNKNOWN,
        )

    return issuing
