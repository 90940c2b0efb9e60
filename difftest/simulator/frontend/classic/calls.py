"""The functions of the classic dialect as data: a stub is AWS's signature, its record the rest.

A parameter that has the name of an operand, an option or a destination of the record stands for it.
A stub has no body, or prepares some of its arguments and returns all of them by name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from difftest.simulator.dtypes import as_dtype
from difftest.simulator.frontend.arguments import (
    as_accumulate,
    as_engine,
    as_flag,
    as_member,
    dge_mode,
    engine,
    same_dtype,
    tuple_of,
)
from difftest.simulator.frontend.classic.masking import issue
from difftest.simulator.frontend.classic.operators import on_chip
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import gate
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.operands import need_number
from difftest.simulator.instructions.record import Instruction, Takes

Converter = Callable[[Any, str], Any]
"""Makes a record's option of an argument; the second word is for errors."""
_OF_CALL: dict[str, Converter] = {
    **dict.fromkeys(("op", "op0", "op1", "comp_op0", "comp_op1"), alu_op),
    **dict.fromkeys(("reduce_op", "dst_rmw_op"), alu_op),
    "reduce_cmd": as_accumulate,
    "range_start": lambda value, where: as_integer(value, f"{where}'s range_start"),
    "on_false_value": lambda value, where: float(need_number(value, "on_false_value", where)),
    "dge_mode": lambda value, where: as_member(dge_mode, value, "a DMA").name,
}
"""Converters whose errors name the function."""
_OF_ARGUMENT: dict[str, Converter] = {
    **dict.fromkeys(("reverse0", "reverse1", "reverse_pred", "negate", "keepdims"), as_flag),
    **dict.fromkeys(("num_elem_per_idx", "num_valid_indices"), as_integer),
    **dict.fromkeys(("shuffle_mask", "axes"), as_integers),
}
"""Converters whose errors name the argument."""


class Functions(dict[str, Callable[..., Any]]):
    """The functions of a module by name."""

    def by_hand(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Add a function that is no call of one record: of several, a view, memory, a launch."""
        self[function.__name__] = function
        return function

    def add(self, name: str, function: Callable[..., Any], doc: str) -> Callable[..., Any]:
        """Add a function of a table, under the name that it has in the module."""
        function.__name__ = function.__qualname__ = name
        function.__doc__ = doc
        return self.by_hand(function)

    def issues(
        self, record: Instruction, **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Make of a stub the function that issues ``record``.

        ``settings`` are converters of options that a kernel gives, and the values of those that it
        does not choose. An argument whose default is None may be None.

        Raises
        ------
        TypeError : an operand or an option of the record is nowhere, or a setting is of none.
        """
        return lambda stub: self.by_hand(_issuing(record, stub, settings))


UNNAMED = engine.unknown
ISA, LANGUAGE = Functions(), Functions()


def _issuing(
    record: Instruction, stub: Callable[..., Any], settings: dict[str, Any]
) -> Callable[..., Any]:
    where, parameters = stub.__name__, inspect.signature(stub).parameters
    known = stub.__code__.co_varnames
    unsaid = {name: one for name, one in record.defaults.items() if name not in known}
    settings = {**unsaid, **settings}
    constants = {name: value for name, value in settings.items() if name not in parameters}
    operands = [role.name for role in record.operands]
    _, *further = (role.name for role in record.destinations)
    needed = {*operands, *record.options, *further}
    if wrong := (needed - {*known, *constants}) | (constants.keys() - needed):
        raise TypeError(f"{where} and {record.name} differ in {', '.join(sorted(wrong))}")
    converted = []
    for name in record.options:
        said = name if name in _OF_ARGUMENT else where
        converter = settings.get(name, _OF_CALL.get(name, _OF_ARGUMENT.get(name)))
        if name in parameters and converter is not None:
            default = parameters[name].default
            simple = default is None or default is inspect.Parameter.empty
            usual = default if simple else converter(default, said)
            converted.append((name, converter, said, default, usual))
    empty, names = inspect.Parameter.empty, tuple(parameters)
    ready = {name: one.default for name, one in parameters.items() if one.default is not empty}
    ready.update(constants)
    take, options, others = tuple_of(operands), tuple_of(record.options), tuple_of(further)
    (only,) = record.options if len(record.options) == 1 else (None,)
    writes, names_engine = "dst" in parameters, "engine" in parameters
    on_tile = record.destinations[0].takes is Takes.TILE

    @functools.wraps(stub)
    def issued(*args: Any, **kwargs: Any) -> Any:
        given = stub(*args, **kwargs)
        if given is None:
            given = {**ready, **kwargs}
            given.update(zip(names, args, strict=False))
        elif constants:
            given.update(constants)
        for name, converter, said, default, usual in converted:
            value = given[name]
            given[name] = usual if value is default else converter(value, said)
        how: dict[str, Any] = {}
        if names_engine and given["engine"] is not UNNAMED:
            how["engine"] = as_engine(given["engine"], where)
        dtype = given.get("dtype")
        if dtype is not None:
            dtype = as_dtype(dtype)
        if writes:
            dst = given["dst"]
            if on_tile or dst is None:
                dst = on_chip(dst, where, "dst")
            same_dtype(dtype, dst, where)
            how["dst"] = dst
        elif dtype is not None:
            how["dtype"] = dtype
        if others:
            how["others"] = others(given)
        taken = take(given) if take else ()
        chosen = (given[only],) if only else options(given) if options else ()
        mask = given.get("mask")
        if mask is None:
            result = gate.issue(record, taken, chosen, **how)
        else:
            result = issue(record, taken, chosen, mask=mask, **how)
        return None if writes else result

    return issued
