"""The functions of the API as kernels call them: the launch knows the calling frame.

In the classic dialect, arguments that do not fit raise the simulator's own error, or are renamed
to their documented names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from types import FunctionType
from typing import Any

from difftest.simulator.descriptor import RUNNING
from difftest.simulator.errors import SignatureError, frame_at, is_inside
from difftest.simulator.frontend.arguments import (
    HINTS,
    as_flag,
    fits,
    no_extras,
    not_taken,
    undocumented_argument,
)
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import every_record
from difftest.simulator.instructions.record import Instruction
from difftest.simulator.misuses import MIXED_DIALECTS
from difftest.simulator.strictness import report_violation

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Refit = Callable[[TypeError, tuple[Any, ...], dict[str, Any]], Arguments]
_running = RUNNING.get
ALSO_CALLED = {"nisa.iota": {"pattern": "expr"}}
"""By function: undocumented argument names that kernels use -> the names that AWS documents."""
_CURRENT_ONLY = frozenset({"dst", "offset", "channel_multiplier"})
"""Parameters of instructions in the current dialect; some have the first in both."""
# the import name of a dialect, if it differs from the dialect's name
_HOMES = {"classic": "neuronxcc.nki"}
CLOSED = frozenset(
    (
        "nisa.dma_copy",
        "nisa.get_nc_version",
        "nisa.local_gather",
        "nisa.sequence_bounds",
        "nl.arange",
        "nl.ds",
        "nl.expand_dims",
        "nl.nc",
        "nl.num_programs",
        "nl.program_id",
        "nl.program_ndim",
        "nl.spmd_dim",
        "nl.static_cast",
        "nl.static_range",
    )
)
"""Functions that AWS documents without ``**kwargs``. Others accept arguments that are not modelled.
"""


def entering(
    function: Callable[..., Any], refit: Refit | None = None, dialect: str = "classic"
) -> Callable[..., Any]:
    """Return ``function`` as kernels call it: the launch knows its calling frame meanwhile.

    A search for the kernel's line from within would create a frame object for each frame on the
    way, for each instruction. ``refit`` returns other arguments for those that do not fit, or
    raises.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        core = _running(None)
        if core is not None:
            if core.trace.dialect != dialect:
                called = _HOMES.get(dialect, dialect)
                own = _HOMES.get(core.trace.dialect, core.trace.dialect)
                raise MIXED_DIALECTS(
                    f"{called}'s {function.__name__} in a kernel of {own}"
                )
            lines = core.lines
            outer = lines.caller
            frame = frame_at(1)
            # A function of the API that another one calls keeps the kernel's frame.
            if outer is None or not is_inside(frame.f_code):
                lines.caller = frame
            if lines.tracer is not None:
                lines.watch(kernel=False)
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if refit is None or type(error) is not TypeError:
                raise
            args, kwargs = refit(error, args, kwargs)
            return call(*args, **kwargs)
        finally:
            if core is not None:
                lines.caller = outer
                if lines.tracer is not None:
                    lines.watch(kernel=outer is None)

    return call


def dispatching(
    name: str, function: Callable[..., Any], closed: bool = False
) -> Callable[..., Any]:
    """Return ``function`` under its public ``name``.

    A ``closed`` one accepts no other arguments.
    """
    refit = _refitting(name, function, closed or name in CLOSED)
    updated = () if isinstance(function, type) else ("__dict__",)
    return functools.update_wrapper(
        entering(function, refit), function, updated=updated
    )


fitting = functools.partial(dispatching, closed=True)


def _refitting(name: str, function: Callable[..., Any], closed: bool) -> Refit:
    """Return a function that replaces arguments that do not fit the signature, or raises."""

    def refit(
        error: TypeError, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments:
        own = inspect.signature(function).parameters.values()
        signature = inspect.Signature(
            [one.replace(annotation=one.empty) for one in own]
        )
        if fits(signature, args, kwargs):
            raise error
        for keyword in _CURRENT_ONLY.intersection(kwargs).difference(
            signature.parameters
        ):
            got = f"{keyword}=..., which belongs to nki.isa"
            raise not_taken(name, f"{signature}", got, got, error=SignatureError)
        kwargs = _documented(name, signature, kwargs)
        if fits(signature, args, kwargs):
            return args, kwargs
        if not closed:
            no_extras(
                name,
                {key: kwargs[key] for key in kwargs if key not in signature.parameters},
            )
        arguments = _by_name(name, signature, args, kwargs)
        if arguments is None:
            raise not_taken(
                name,
                f"{signature}",
                "arguments that do not fit it",
                f"{error}",
                error=SignatureError,
            ) from None
        return arguments

    return refit


def _documented(
    where: str, signature: inspect.Signature, kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Rename arguments to their documented names; drop hints that the function does not accept."""
    others = ALSO_CALLED.get(where, {})
    arguments = {}
    for name, value in kwargs.items():
        if name not in signature.parameters and (name in others or name in HINTS):
            undocumented_argument(where, name, value)
        if name in signature.parameters or name not in HINTS:
            arguments[others.get(name, name)] = value
    return arguments


def _needs_name(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is required, and passed by name alone."""
    return (
        parameter.kind is parameter.KEYWORD_ONLY
        and parameter.default is parameter.empty
    )


def _by_name(
    where: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Arguments | None:
    """Move keyword-only arguments that were passed by position; return None if there are none."""
    parameters = signature.parameters.values()
    placed = len([p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD])
    needed = [p.name for p in parameters if _needs_name(p) and p.name not in kwargs]
    beyond = args[placed:]
    named = dict(zip(needed, beyond, strict=False)) | kwargs
    if not 0 < len(beyond) <= len(needed) or not fits(signature, args[:placed], named):
        return None
    takes = f"{', '.join(needed)} by name"
    got = "arguments in place that AWS documents by name"
    remedy = ", ".join(f"{name}=..." for name in needed)
    report_violation(
        not_taken(where, takes, got, f"{len(args)} arguments in place", remedy=remedy)
    )
    return args[:placed], named


def as_called(short: str, functions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a module's functions as kernels call them; ``short`` is nl or nisa."""
    called = dict(functions)
    for name, value in functions.items():
        if name == "ds" or inspect.isfunction(value):
            called[name] = dispatching(f"{short}.{name}", value)
            if short == "nl":  # instructions accept these functions as operators
                called[name].nki_name = name
    return called


def publish(names: dict[str, Any], public: Mapping[str, Any]) -> None:
    """Replace the names of a module by the public ones, so that kernels find nothing else."""
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]
    names.update(public, __all__=sorted(public))


# -- compiled calls --------------------------------------------------------------------------------

Converter = Callable[[Any, str], Any]
"""Converts an argument to a record's option. The second argument is for errors."""
_OF_ARGUMENT: dict[str, Converter] = {
    **dict.fromkeys(
        ("num_elem_per_idx", "num_valid_indices", "range_start"), as_integer
    ),
    **dict.fromkeys(("index_offset", "padding_val", "collective_dim"), as_integer),
    **dict.fromkeys(("send_to_rank", "recv_from_rank", "pipe_id"), as_integer),
    **dict.fromkeys(("axes", "shuffle_mask", "cores", "channel_ids"), as_integers),
}
"""Converters whose errors name the argument. Those of a dialect or a call name the call."""


def _first_call(*args: Any, **kwargs: Any) -> Any:
    """Compile a call when it is first used, and make it. Most calls are never used.

    Each call has this code in a scope of its own, whose ``_made`` compiles it.
    """
    return globals()["_made"]()(*args, **kwargs)


class Binder:
    """Makes a function that issues a record from a stub.

    Parameters
    ----------
    settings : converters of options, which precede those of ``dialect`` by name; and values of
        options without an argument. An argument equal to its default gets the default's converted
        value. None stays None, and an argument whose default is a bool is a flag.
    prepare : changes all arguments by name, before they are converted.

    Raises
    ------
    TypeError : an operand or an option of the record has no value, or a setting is unknown.
    """

    def __init__(
        self,
        stub: Callable[..., Any],
        record: Instruction,
        settings: Mapping[str, Any],
        dialect: Mapping[str, Converter],
        prepare: Callable[[dict[str, Any], str], None] | None = None,
    ) -> None:
        self.stub = stub
        self.where = stub.__name__
        self.record = record
        code = stub.__code__
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        _describe(stub, record, parameters)
        has_body = "locals" in code.co_names
        self.known = code.co_varnames if has_body else parameters
        fixed = {**record.defaults, **settings}
        constants = {n: v for n, v in fixed.items() if n not in self.known}
        self.roles = [role.name for role in record.operands]
        self.dst, *self.further = [role.name for role in record.destinations] or [""]
        needed = {*self.roles, *record.options, *self.further}
        self._check_names(needed, constants)
        self.by_call = {**dialect, **settings}
        self.given: Collection[str] = ()
        if has_body:
            self.given = self.known
        elif prepare is not None:
            self.given = {*needed, self.dst, *self.known}
        self.scope: dict[str, Any] = {f"_{n}": v for n, v in constants.items()}
        self.scope.update(
            _record=record, _where=self.where, _stub=stub, _prepare=prepare
        )
        self.scope["_constants"] = constants

    def _check_names(self, needed: set[str], constants: Mapping[str, Any]) -> None:
        """Raise unless the stub and the settings have the names of the record, and no others."""
        missing = needed - {*self.known, *constants}
        unknown = constants.keys() - {*needed, self.dst}
        if missing or unknown:
            names = ", ".join(sorted(missing | unknown))
            raise TypeError(f"{self.where} and {self.record.name} differ in {names}")

    @functools.cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the stub."""
        return inspect.signature(self.stub).parameters

    def text(self, name: str) -> str:
        """Return the expression of an operand or a destination, unconverted."""
        if name in self.given:
            return f"given[{name!r}]"
        if name in self.parameters:
            return name
        return f"_{name}"

    def value(self, name: str) -> str:
        """Return the expression of an option, with its conversion, if any."""
        parameter = self.parameters.get(name)
        text = self.text(name)
        convert = self.by_call.get(name)
        said = self.where
        if parameter is not None and isinstance(parameter.default, bool):
            convert = as_flag
            said = name
        elif convert is None:
            convert = _OF_ARGUMENT.get(name)
            said = name
        if parameter is None or convert is None:
            return text
        self.scope[f"_as_{name}"], default = convert, parameter.default
        if default is parameter.empty:
            return f"_as_{name}({text}, {said!r})"
        self.scope[f"_default_{name}"] = default
        self.scope[f"_usual_{name}"] = (
            None if default is None else convert(default, said)
        )
        code = f"_usual_{name} if {text} is _default_{name} else _as_{name}({text}, {said!r})"
        return f"({code})"

    def each(self, names: Iterable[str], of: Callable[[str], str]) -> str:
        """Return the expression of a tuple of all names."""
        return f"({''.join(f'{of(name)}, ' for name in names)})"

    def compiled(self, write: Callable[[Binder], str]) -> Callable[..., Any]:
        """Return the function. ``write`` returns its result's expression, at the first call.

        The function is compiled from a text, so that Python itself binds the arguments: a call
        takes 5 to 14 % less time than with a signature that is interpreted, and its errors are
        Python's own.
        """

        def made() -> Any:
            returned = write(self)
            parameters = self.parameters.values()
            placed = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
            named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
            head = ", ".join(placed + (["*"] if named else []) + named)
            prepares = ""
            if self.scope["_prepare"] is not None:
                prepares = (
                    "given = {**_constants, **locals()}; _prepare(given, _where); "
                )
            elif self.given:
                arguments = [*placed, *(f"{name}={name}" for name in named)]
                prepares = f"given = _stub({', '.join(arguments)}); "
            code = self.stub.__code__
            lines = "\n" * (code.co_firstlineno - 1)  # errors name the line of the stub
            source = f"{lines}def {self.where}({head}): {prepares}return {returned}"
            exec(compile(source, code.co_filename, "exec"), self.scope)
            entry.__code__ = self.scope[self.where].__code__
            return entry

        self.scope["_made"] = made
        entry: Any = functools.update_wrapper(
            FunctionType(_first_call.__code__, self.scope), self.stub
        )
        entry.__defaults__ = self.stub.__defaults__
        entry.__kwdefaults__ = self.stub.__kwdefaults__
        return entry  # type: ignore[no-any-return]


def _describe(
    stub: Callable[..., Any], record: Instruction, parameters: Collection[str]
) -> None:
    """Give a stub without a docstring the record's."""
    doc = record.meaning.__doc__
    if stub.__doc__ or not doc:
        return
    stub.__doc__ = doc if "dst" in parameters else doc.replace("dst = ", "")


def declare(
    signatures: type,
    make: Callable[..., Callable[[Callable[..., Any]], Any]],
    **settings: dict[str, Any],
) -> None:
    """Make a call of a record from each signature of a class, by ``make``.

    Parameters
    ----------
    signatures : methods without a body, by the names of their records.
    settings : by call, the parameters of ``make`` besides the record; and ``record``, if its name
        differs.

    Raises
    ------
    TypeError : settings have no signature; or see :class:`Binder`.
    """
    for name, stub in list(vars(signatures).items()):
        if inspect.isfunction(stub):
            stub.__qualname__ = name
            own = settings.pop(name, {})
            make(own.pop("record", None) or every_record()[name], **own)(stub)
    if settings:
        raise TypeError(f"{signatures.__qualname__} has no {', '.join(settings)}")
