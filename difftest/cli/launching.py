"""Launch a kernel that is named on the command line, on random inputs, and keep its trace."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
import numpy as np

from difftest.backends.dialect import function_of
from difftest.cli.loading import load_kernel
from difftest.harness.frames import entries, is_own, place_of
from difftest.simulator import (
    MACHINES,
    TRN2,
    LaunchResult,
    Machine,
    NkiError,
    OutOfBoundsError,
    launch,
    launch_ranks,
)
from difftest.simulator.dtypes import as_dtype
from difftest.simulator.frontend.grid import nc
from difftest.simulator.frontend.install import embedded
from difftest.simulator.frontend.nki.kernel import as_nki_kernel
from difftest.simulator.trace import Trace

if TYPE_CHECKING:
    from difftest.harness.spec import KernelSpec

Result = TypeVar("Result")


class KernelArguments(NamedTuple):
    """What a kernel is called with: arrays, keywords, and the SPMD grid."""

    arrays: Sequence[Any]
    keywords: Mapping[str, Any]
    grid: tuple[int, ...] = ()


def call_of_case(spec: KernelSpec, text: str) -> tuple[list[Any], dict[str, Any], tuple[int, ...]]:
    """What the kernel is called with in the case that ``text`` describes, and on which grid.

    Raises
    ------
    click.BadParameter : it is no case of the spec.
    """
    from difftest.harness.explicit import CaseError, case_from_json

    try:
        case = case_from_json(text, spec)
    except CaseError as error:
        raise click.BadParameter(str(error)) from None
    outputs = [
        np.zeros(spec.shape(name, case.values), spec.output_dtype_of(case, index))
        for index, name in enumerate(spec.outputs)
    ]
    parameters = dict(spec.parameters_of(case.values))
    return [*spec.inputs_of(case), *outputs], parameters, spec.grid_of(case.values)


def parse_shape(text: str) -> tuple[int, ...]:
    """``128,512`` or ``128x512`` as a shape.

    Raises
    ------
    click.BadParameter : it is not that.
    """
    parts = text.replace("x", ",").strip("()[]").split(",")
    try:
        shape = tuple(int(part) for part in parts if part.strip())
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise click.BadParameter(f"a shape is positive sizes, as in 128,512; got {text!r}")
    return shape


def parse_grid(text: str | None) -> tuple[int, ...]:
    """``2`` or ``4,nc2`` as an SPMD grid, where nc2 is ``nl.nc(2)``; empty for None.

    Raises
    ------
    click.BadParameter : it is not that.
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.replace("x", ",").split(",") if part.strip()]
    try:
        shape = parse_shape(",".join(part.removeprefix("nc") for part in parts))
    except click.BadParameter:
        raise click.BadParameter(
            f"a grid is positive sizes, as in 4,2, or 4,nc2 for nl.nc(2); got {text!r}"
        ) from None
    return tuple(
        nc(size) if part.startswith("nc") else size for size, part in zip(shape, parts, strict=True)
    )


def parse_keywords(texts: Iterable[str]) -> dict[str, Any]:
    """``NAME=VALUE`` each, values as Python literals or, failing that, text.

    Raises
    ------
    click.BadParameter : there is no ``=`` in one.
    """
    keywords: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier():
            raise click.BadParameter(f"an argument is NAME=VALUE; got {text!r}")
        try:
            keywords[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            keywords[name] = value
    return keywords


def parse_bounds(texts: Iterable[str]) -> dict[str, int]:
    """``NAME=N`` each, N at least 1.

    Raises
    ------
    click.BadParameter : one is not that.
    """
    bounds: dict[str, int] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (separator and name.isidentifier() and value.isdigit() and int(value)):
            raise click.BadParameter(f"a bound is NAME=N, as in rows=64; got {text!r}")
        bounds[name] = int(value)
    return bounds


def bounded(kernel: Any, given: KernelArguments, bounds: Mapping[str, int]) -> KernelArguments:
    """The same arguments, the named inputs drawn from 0 to their bound, the bound excluded.

    No number is drawn twice where there are enough of them: most indices name a place once.

    Raises
    ------
    click.BadParameter : there is no such input, or it holds no integers.
    """
    names = input_names(kernel, given.arrays)
    arrays = list(given.arrays)
    for name, bound in bounds.items():
        if name not in names:
            raise click.BadParameter(
                f"--bound {name}={bound}: the inputs are {', '.join(names) or 'none'}"
            )
        old = arrays[names.index(name)]
        if old.dtype.kind not in "iu":
            raise click.BadParameter(
                f"--bound {name}={bound}: {name} is {old.dtype}; give it a --dtype of integers"
            )
        if bound - 1 > np.iinfo(old.dtype).max:
            raise click.BadParameter(f"--bound {name}={bound}: {old.dtype} does not hold it")
        rng = np.random.default_rng(0)
        drawn = rng.choice(bound, old.size, replace=old.size > bound)
        arrays[names.index(name)] = drawn.reshape(old.shape).astype(old.dtype)
    return given._replace(arrays=arrays)


def input_names(kernel: Any, arrays: Sequence[Any]) -> list[str]:
    """The parameters that arrays in this order go to."""
    parameters = inspect.signature(getattr(kernel, "function", kernel)).parameters
    return list(parameters)[: len(arrays)]


def random_arrays(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> list[Any]:
    """Random arrays; one dtype for all or one for each.

    Raises
    ------
    click.BadParameter : a dtype is unknown, or there are neither one nor as many as shapes.
    """
    if len(dtypes) not in (1, len(shapes)):
        raise click.BadParameter(f"{len(dtypes)} dtypes for {len(shapes)} shapes")
    rng = np.random.default_rng(0)
    arrays = []
    for number, shape in enumerate(shapes):
        name = dtypes[number] if len(dtypes) > 1 else dtypes[0]
        try:
            dtype = as_dtype(name)
        except (NkiError, TypeError) as error:
            raise click.BadParameter(str(error)) from None
        values = rng.standard_normal(shape, dtype=np.float32)
        arrays.append((values * 8 if dtype.kind in "iu" else values).astype(dtype))
    return arrays


def with_kernel(
    name: str,
    arrays: Sequence[Any],
    keywords: Mapping[str, Any],
    grid: tuple[int, ...],
    use: Callable[[Any, KernelArguments], Result],
) -> Result:
    """What ``use`` makes of the kernel named, and of what to call it with.

    Raises
    ------
    click.ClickException : it does not load.
    """
    with embedded():
        return use(load_kernel(name), KernelArguments(arrays, keywords, grid))


def with_case(name: str, text: str, use: Callable[[Any, KernelArguments], Result]) -> Result:
    """The same for the kernel of the test ``PATH::TEST`` and a case of it, as JSON.

    Raises
    ------
    click.ClickException : there is no such test, or the case is not its.
    """
    from difftest.cli.collecting import with_spec  # pytest and Hypothesis: for tests alone

    return with_spec(
        name, lambda spec: use(spec.kernel, KernelArguments(*call_of_case(spec, text)))
    )


def launched(
    kernel: Any,
    given: KernelArguments,
    machine: Machine | None = None,
    level: str | None = None,
    *,
    ranks: int = 1,
) -> tuple[Trace, Machine, Any]:
    """Launch a kernel, on its own machine if none is named; the trace of the first of its ranks.

    Raises
    ------
    click.ClickException : it refuses its arguments, or its own Python raises an error.
    """
    target = machine if machine else _own_machine(kernel)
    try:
        if ranks > 1:
            result = _on_ranks(kernel, given, target, level, ranks)
        else:
            result = launch(
                kernel, given.arrays, given.keywords, machine=target, level=level, grid=given.grid
            )
    except (NkiError, AssertionError) as error:
        hint = _hint(kernel, given) if isinstance(error, OutOfBoundsError) else ""
        raise click.ClickException(f"the kernel refuses this: {error}{hint}") from None
    except Exception as error:
        function = function_of(kernel) or kernel
        if not is_own(entries(error)[0], function):  # a bug of the simulator's, or of a library's
            raise
        raise click.ClickException(
            f"the kernel's own Python broke down: {type(error).__name__}: {error}\n"
            f"  where:    {place_of(error, function)}\n"
            "  remedy:   correct it, or give other shapes and arguments"
        ) from None
    return result.trace, target, kernel


def _hint(kernel: Any, given: KernelArguments) -> str:
    """What to do if random integers were taken as indices."""
    names = input_names(kernel, given.arrays)
    integers = [
        name
        for name, one in zip(names, given.arrays, strict=False)
        if isinstance(one, np.ndarray) and one.dtype.kind in "iu"
    ]
    if not integers:
        return ""
    return (
        f"\n  inputs:   {', '.join(integers)} are random integers around 0; for indices say "
        f"--bound {integers[0]}=N, and they lie in 0 to N - 1"
    )


def _on_ranks(
    kernel: Any, given: KernelArguments, machine: Machine, level: str | None, ranks: int
) -> LaunchResult:
    """What the first rank has; the others get the same numbers in other places."""
    target = as_nki_kernel(kernel)
    arrays = [given.arrays]
    for rank in range(1, ranks):
        rng = np.random.default_rng(rank)
        arrays.append([rng.permuted(one, axis=None) for one in given.arrays])
    gridded = target[given.grid] if given.grid else target
    return launch_ranks(gridded, arrays, given.keywords, machine=machine, level=level)[0]


def _own_machine(kernel: Any) -> Machine:
    """The machine that the kernel names (``platform_target``), else trn2."""
    machine = getattr(kernel, "machine", TRN2)
    assert isinstance(machine, Machine)
    return machine


def machine_named(name: str | None) -> Machine | None:
    """The machine of that name; None if none is named."""
    return MACHINES[name] if name else None
