"""The axes of ``--over``, and the points of their grid."""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import click
from hypothesis.strategies import SearchStrategy

from difftest.simulator.machine import MACHINES
from difftest.support.choices import LEVELS
from difftest.support.signature import signature_of
from difftest.testing.contract.case import choice_named, to_jsonable
from difftest.testing.contract.recipes import RECIPES, Recipe, RecipeError
from difftest.testing.contract.spec import KernelSpec, is_choice
from difftest.testing.contract.spec_arguments import SpecError
from difftest.testing.drawing.data import seeded
from difftest.testing.harness.bound_case import specs_by_kernel
from difftest.testing.host.loading import parse_keywords
from difftest.testing.host.naming import suggest_names
from difftest.tools.mutants.mutant import code_names, mutable_functions
from difftest.tools.verdict.wire import is_plain

Point: TypeAlias = dict[str, Any]
"""A value for each axis, and for each name that all points share."""
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?::(\d+))?")


def parse_axis(text: str) -> tuple[str, tuple[Any, ...]]:
    """Return the name and the values, in order, of ``NAME=VALUES``.

    Commas separate values. ``a..b`` doubles from ``a``; ``a..b:step`` counts in steps.

    >>> parse_axis("BLOCK_BYTES=2048..16384")
    ('BLOCK_BYTES', (2048, 4096, 8192, 16384))
    >>> parse_axis("n=1..7:3,100")
    ('n', (1, 4, 7, 100))
    """
    name, separator, listed = text.partition("=")
    if not (separator and name.isidentifier() and listed):
        raise click.BadParameter(
            f"an axis is NAME=VALUES, as in pool_size=1,2,3; got {text!r}"
        )
    values: list[Any] = []
    for part in listed.split(","):
        for value in _values(part, text):
            if value in values:
                raise click.BadParameter(f"{name} has the value {value!r} twice")
            values.append(value)
    return name, tuple(values)


def _values(part: str, text: str) -> Sequence[Any]:
    match = _RANGE.fullmatch(part)
    if match is not None:
        return _range_values(match, text)
    if not part or ".." in part:
        raise click.BadParameter(
            f"a value is a word, a number or a range, a..b; got {text!r}"
        )
    return list(parse_keywords([f"value={part}"]).values())


def _range_values(match: re.Match[str], text: str) -> Sequence[int]:
    first = int(match[1])
    last = int(match[2])
    if first > last or (match[3] is None and first < 1) or match[3] == "0":
        rule = "a range is a..b, which doubles from a, at least 1, or a..b:step"
        raise click.BadParameter(f"{rule}; got {text!r}")
    if match[3] is not None:
        return range(first, last + 1, int(match[3]))
    return [first << n for n in range((last // first).bit_length())]


def parse_axes(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return all axes of a command; raise BadParameter if a name occurs twice."""
    axes = dict(map(parse_axis, texts))
    if len(axes) < len(texts):
        raise click.BadParameter(
            "an axis is given twice; its values go into one --over"
        )
    return axes


def parse_case(text: str | None) -> Point:
    """Return the values that all points share, from a JSON object or the JSON of a whole case.

    A whole case, as a failure prints it, gives its values and dtype. Its data are ignored.
    """
    if text is None:
        return {}
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(
            f"--case: {text!r} is not valid JSON: {error}"
        ) from None
    if isinstance(document, Mapping) and isinstance(document.get("values"), Mapping):
        document = {**document["values"], "dtype": document.get("dtype")}
    if not isinstance(document, Mapping) or not all(map(_is_scalar, document.values())):
        raise click.BadParameter(
            f'--case takes an object such as {{"n": 128}}; got {text!r}'
        )
    return dict(document)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


@dataclass(frozen=True)
class Axes:
    """A grid of points: all combinations of the values of axes.

    Attributes
    ----------
    axes : the values of each axis: a name of the domain, or another name that :func:`spec_at`
        accepts.
    shared : the values that all points share. An axis of the same name has priority.
    sample : number of points to draw from the grid; None means all points.
    """

    axes: dict[str, tuple[Any, ...]]
    shared: Point
    sample: int | None = None

    def __len__(self) -> int:
        return math.prod(map(len, self.axes.values()))

    def __getitem__(self, number: int) -> Point:
        """Return a point by its number; the last axis varies fastest."""
        chosen = {**self.shared, **self.axes}
        for name, values in reversed(self.axes.items()):
            number, index = divmod(number, len(values))
            chosen[name] = values[index]
        return chosen

    def points(self) -> Iterator[Point]:
        """Return an iterator of all points, or of the sample, in order and the same each time."""
        numbers: Sequence[int] = range(len(self))
        if self.sample is not None and self.sample < len(self):
            numbers = sorted(random.Random(0).sample(numbers, self.sample))
        return map(self.__getitem__, numbers)


@dataclass(frozen=True)
class SpecAtPoint:
    """A spec of one kernel at a point.

    Attributes
    ----------
    level : the level of NKI; None allows all names.
    constants : modules of the kernel, and the values of their constants at the point.
    """

    spec: KernelSpec
    level: str | None = None
    constants: Sequence[tuple[dict[str, Any], dict[str, Any]]] = ()

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Set the constants to the point's values within the block; restore them afterwards."""
        before = [
            (module, {name: module[name] for name in own})
            for module, own in self.constants
        ]
        try:
            for module, own in self.constants:
                module.update(own)
            yield
        finally:
            for module, own in before:
                module.update(own)


def spec_at(spec: KernelSpec, point: Mapping[str, Any]) -> SpecAtPoint:
    """Return the spec at a point.

    A name of a point may be:

    - a name of the domain, which gets this one value;
    - ``dtype``, ``machine`` (a generation), ``level`` (of NKI), or ``kernel`` (its name);
    - an input, whose value is the kind of its data;
    - a parameter of the kernel that the spec does not pass, which becomes a name of the domain;
    - a constant that the kernel's code reads, in any of its files.

    Raises
    ------
    click.UsageError : a name is unknown, or does not accept its value.
    """
    left = dict(point)
    own = _kernel_of(
        spec, None if "kernel" in spec.domain else left.pop("kernel", None)
    )
    constants: list[tuple[dict[str, Any], dict[str, Any]]] = []
    level: str | None = None
    for name, value in left.items():
        if name in own.domain:
            own = _with(own, domain={**own.domain, name: (_chosen(own, name, value),)})
        elif name == "dtype":
            own = _with(own, dtypes=(_one_of(name, value, own.dtypes),))
        elif name == "machine":
            own = _with(own, machine=_one_of(name, value, tuple(MACHINES)))
        elif name == "level":
            level = _one_of(name, value, LEVELS)
        elif name in own.inputs:
            declared = replace(own.input(name), data=_data(name, value))
            own = _with(own, inputs={**own.inputs, name: declared})
        elif name in _parameters(own):
            domain = {name: (value,), **own.domain}
            own = _with(own, domain=domain, parameters=(*own.parameters, name))
        else:
            for module in _modules_with(own, name):
                constants.append((module, {name: value}))
    return SpecAtPoint(own, level, constants)


def check_axes(spec: KernelSpec, axes: Axes) -> None:
    """Raise click.UsageError if an axis has an invalid value, with the first values of others."""
    first = axes[0]
    for name, values in axes.axes.items():
        for value in values:
            spec_at(spec, {**first, name: value})


def _chosen(spec: KernelSpec, name: str, value: Any) -> Any:
    """Return the value of the domain that a word of the command names, such as ``nl.add``.

    Numbers may be outside the domain. An unknown function name raises click.UsageError.
    """
    source = spec.domain[name]
    if not is_choice(source):
        return value
    chosen = choice_named(source, value)
    if isinstance(chosen, str) and any(map(callable, source)) and chosen not in source:
        accepted = ", ".join(str(to_jsonable(choice)) for choice in source)
        raise click.UsageError(f"{name}={value}: accepted: {accepted}")
    return chosen


def _with(spec: KernelSpec, **changes: Any) -> KernelSpec:
    """Return the spec with other arguments, without examples and rejections of other values."""
    try:
        return replace(spec, rejects=(), examples=(), **changes)
    except SpecError as error:
        raise click.UsageError(str(error)) from None


def _kernel_of(spec: KernelSpec, name: str | None) -> KernelSpec:
    """Return the spec of one kernel: the first, or the kernel whose title contains the name."""
    single = specs_by_kernel(spec)
    if name is None:
        return single[0]
    fitting = [own for own in single if str(name) in own.name]
    for own in fitting:
        if own.name == name or own.name.endswith(f"({name})"):
            return own
    if len(fitting) != 1:
        names = ", ".join(own.name for own in single)
        raise click.UsageError(f"kernel={name}: the test has {names}")
    return fitting[0]


def _one_of(name: str, value: Any, accepted: Sequence[str]) -> str:
    if str(value) not in accepted:
        raise click.UsageError(f"{name}={value}: accepted: {', '.join(accepted)}")
    return str(value)


def _data(name: str, kind: Any) -> Recipe | SearchStrategy[Recipe]:
    """Return data of a kind, with all seeds if the kind has a seed."""
    try:
        recipe = RECIPES[kind]
        return seeded(recipe) if "seed" in recipe.__dataclass_fields__ else recipe()
    except (KeyError, TypeError, SpecError, RecipeError):
        kinds = ", ".join(RECIPES)
        raise click.UsageError(
            f"{name}={kind}: {name} is an input, whose data are of a kind: {kinds}"
        ) from None


def _parameters(spec: KernelSpec) -> list[str]:
    """Return the kernel's parameters that have a default and that the spec does not pass."""
    shown = signature_of(spec.kernel)
    rows = shown.parameters.values() if shown is not None else ()
    passed = {*spec.arrays, *spec.parameters}
    free = (row for row in rows if row.name not in passed)
    return [row.name for row in free if row.default is not row.empty]


def _modules_with(spec: KernelSpec, name: str) -> list[dict[str, Any]]:
    """Return the modules of a constant that the kernel's code reads when it runs."""
    functions = mutable_functions(spec.kernel)
    modules = {id(function.__globals__): function.__globals__ for function in functions}
    read = {id(f.__globals__) for f in functions if name in code_names(f.__code__)}
    have = {at for at, module in modules.items() if is_plain(module.get(name, module))}
    if have and not have & read:
        raise click.UsageError(
            f"{name}: no function of the kernel reads it when it runs: the import of its file "
            "computed a default or another constant from it; give the name of that constant"
        )
    if not have:
        raise _unknown_name(spec, name, modules.values())
    return [modules[at] for at in have & read]


def _unknown_name(
    spec: KernelSpec, name: str, modules: Iterable[dict[str, Any]]
) -> click.UsageError:
    """Return the error for a name that is neither in the domain, a parameter nor a constant."""
    names = {"dtype", "machine", "level", "kernel"}
    names.update(spec.domain, _parameters(spec))
    for module in modules:
        constants = filter(str.isupper, module)
        names.update(key for key in constants if is_plain(module[key]))
    return click.UsageError(
        f"{name} is not a name of the domain, a parameter or a constant of {spec.name}"
        f"{suggest_names(name, names)}"
    )
