"""A signature and a record, compiled to the function that kernels call: one binder, two dialects.

A stub is a function with AWS's signature. A parameter that has the name of an operand, an option or
a destination of the record stands for it. A stub has no body, or it prepares some of its arguments
and returns all of them: ``return locals()``. What is compiled has the stub's own parameters, so
that Python binds them, and one expression, in which each option is converted where it stands.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from difftest.simulator.frontend.arguments import as_flag
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions.record import Instruction

Converter = Callable[[Any, str], Any]
"""Makes a record's option of an argument; the second word is for errors."""
_OF_ARGUMENT: dict[str, Converter] = {
    **dict.fromkeys(("num_elem_per_idx", "num_valid_indices", "range_start"), as_integer),
    **dict.fromkeys(("index_offset", "padding_val", "collective_dim"), as_integer),
    **dict.fromkeys(("send_to_rank", "recv_from_rank", "pipe_id"), as_integer),
    **dict.fromkeys(("axes", "shuffle_mask", "cores", "channel_ids"), as_integers),
}
"""Converters whose errors name the argument; those of a dialect, or of a call, name the call."""


class Binder:
    """What makes of a stub the function that issues a record.

    Parameters
    ----------
    settings : converters of options, before those of ``dialect`` by name, and the values of options
        that no argument says. An argument that is its default is that default converted; None
        stays, and one whose default is a bool is a flag.
    prepare : changes all arguments by name, before they are converted.

    Raises
    ------
    TypeError : an operand or an option of the record has no value, or a setting is of none.
    """

    def __init__(
        self,
        stub: Callable[..., Any],
        record: Instruction,
        settings: Mapping[str, Any],
        dialect: Mapping[str, Converter],
        prepare: Callable[[dict[str, Any], str], None] | None = None,
    ) -> None:
        self.stub, self.where = stub, stub.__name__
        self.parameters = inspect.signature(stub).parameters
        has_body = "locals" in stub.__code__.co_names
        self.known = stub.__code__.co_varnames if has_body else tuple(self.parameters)
        unsaid = {name: value for name, value in record.defaults.items() if name not in self.known}
        constants = {n: v for n, v in {**unsaid, **settings}.items() if n not in self.known}
        roles = [role.name for role in record.operands]
        self.dst, *self.further = [role.name for role in record.destinations] or [""]
        needed = {*roles, *record.options, *self.further}
        if wrong := (needed - {*self.known, *constants}) | (constants.keys() - {*needed, self.dst}):
            raise TypeError(f"{self.where} and {record.name} differ in {', '.join(sorted(wrong))}")
        self.by_call = {**dialect, **settings}
        self.given = (
            self.known if has_body else () if prepare is None else {*needed, self.dst, *self.known}
        )
        self.scope: dict[str, Any] = {f"_{name}": value for name, value in constants.items()}
        self.scope.update(_record=record, _where=self.where, _stub=stub, _prepare=prepare)
        self.scope["_constants"] = constants
        self.operands = self.each(roles, self.text)
        self.options = self.each(record.options, self.value)

    def text(self, name: str) -> str:
        """An operand or a destination as it was given."""
        if name in self.given:
            return f"given[{name!r}]"
        return name if name in self.parameters else f"_{name}"

    def value(self, name: str) -> str:
        """An option, converted if something converts it."""
        parameter, text = self.parameters.get(name), self.text(name)
        convert, said = self.by_call.get(name), self.where
        if parameter is not None and isinstance(parameter.default, bool):
            convert, said = as_flag, name
        elif convert is None:
            convert, said = _OF_ARGUMENT.get(name), name
        if parameter is None or convert is None:
            return text
        self.scope[f"_as_{name}"], default = convert, parameter.default
        if default is parameter.empty:
            return f"_as_{name}({text}, {said!r})"
        self.scope[f"_default_{name}"] = default
        self.scope[f"_usual_{name}"] = None if default is None else convert(default, said)
        made = f"_usual_{name} if {text} is _default_{name} else _as_{name}({text}, {said!r})"
        return f"({made})"

    def each(self, names: Iterable[str], of: Callable[[str], str]) -> str:
        """A tuple of all of them."""
        return f"({''.join(f'{of(name)}, ' for name in names)})"

    def compiled(self, expression: str, **names: Any) -> Callable[..., Any]:
        """The function, which gives what an expression does of these names."""
        placed = [one.name for one in self.parameters.values() if one.kind is not one.KEYWORD_ONLY]
        named = [name for name in self.parameters if name not in placed]
        head = ", ".join([*placed, *(["*"] if named else []), *named])
        prepares = ""
        if self.scope["_prepare"] is not None:
            prepares = "given = {**_constants, **locals()}; _prepare(given, _where); "
        elif self.given:
            given = (f"{name}={name}" if name in named else name for name in self.parameters)
            prepares = f"given = _stub({', '.join(given)}); "
        code, scope = self.stub.__code__, {**self.scope, **names}
        lines = "\n" * (code.co_firstlineno - 1)  # an error names the stub's
        source = f"{lines}def {self.where}({head}): {prepares}return {expression}"
        exec(compile(source, code.co_filename, "exec"), scope)
        made: Any = functools.update_wrapper(scope[self.where], self.stub)
        if wrong := {*made.__code__.co_names} - {*scope, "locals"}:
            raise TypeError(f"{self.where} says nothing of {', '.join(sorted(wrong))}")
        made.__defaults__, made.__kwdefaults__ = self.stub.__defaults__, self.stub.__kwdefaults__
        return made  # type: ignore[no-any-return]
