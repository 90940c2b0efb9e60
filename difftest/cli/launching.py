"""Launch a kernel that the command line names, on random inputs, and keep its trace."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
import numpy as np

from difftest.cli.run import level_option, machine_option
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
from difftest.simulator.dtypes import FLOAT8_E8M0FNU, as_nki_dtype, packed
from difftest.simulator.entry.install import embedded
from difftest.simulator.entry.nki_kernel import as_nki_kernel
from difftest.simulator.frontend.launchable import MOST_PROGRAMS
from difftest.simulator.trace import Trace
from difftest.support.annotations import signature_shown
from difftest.support.signature import signature_of
from difftest.testing.backends.base import is_among
from difftest.testing.backends.embedded import forget_caller, is_defect
from difftest.testing.backends.sdk import CLASSIC, dialect_of, function_of
from difftest.testing.contract.limits import CaseLimitError, too_large, within_limits
from difftest.testing.contract.reference import raising_line
from difftest.testing.host.loading import (
    load_kernel,
    parse_bounds,
    parse_grid,
    parse_keywords,
    parse_shape,
)
from difftest.testing.host.options import format_call, with_progress

if TYPE_CHECKING:
    from difftest.testing.contract.spec import KernelSpec

Result = TypeVar("Result")


class KernelArguments(NamedTuple):
    """The arguments of a kernel: arrays, keywords, and the SPMD grid."""

    arrays: Sequence[Any]
    keywords: Mapping[str, Any]
    grid: tuple[int, ...] = ()
    outputs: Sequence[str] | None = None
    """Names of the arrays that a kernel test declares as written in place; None without a test."""
    tested: Sequence[str] = ()
    """Names of all arrays in a kernel test, in order; empty without a test."""


class KernelResult(NamedTuple):
    """An array that a kernel returned, or wrote in place.

    Attributes
    ----------
    argument : the name of the argument that the array is; None for a new array.
    is_returned : whether the kernel returned it.
    is_updated : whether the kernel wrote to the argument.
    """

    shape: tuple[int, ...]
    dtype: str
    argument: str | None
    is_returned: bool
    is_updated: bool


class TracedLaunch(NamedTuple):
    """A launch: its trace, the machine that it ran on, the kernel, and its arrays."""

    trace: Trace
    machine: Machine
    kernel: Any
    arrays: Sequence[Any]
    misuses: tuple[str, ...] = ()
    """Uses of its arrays that a kernel test would reject."""
    results: tuple[KernelResult, ...] = ()
    """The returned arrays in order, then arguments that the kernel only wrote to."""


def with_bounds(
    kernel: Any, arguments: KernelArguments, bounds: Mapping[str, int]
) -> KernelArguments:
    """Return the arguments with named inputs drawn from 0 to their bound, the bound excluded.

    If there are enough numbers, none is drawn twice, because most indices name a place once.
    """
    names = input_names(kernel, arguments)
    arrays = list(arguments.arrays)
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
            raise click.BadParameter(
                f"--bound {name}={bound}: {old.dtype} does not hold it"
            )
        rng = np.random.default_rng(0)
        drawn = rng.choice(bound, old.size, replace=old.size > bound)
        arrays[names.index(name)] = drawn.reshape(old.shape).astype(old.dtype)
    return arguments._replace(arrays=arrays)


def input_names(kernel: Any, arguments: KernelArguments) -> list[str]:
    """Return the names of the parameters that take the arrays, in order.

    Arrays of ``*arrays`` have the names of the test, or else ``arrays[0]`` and so on.
    """
    parameters = signature_shown(getattr(kernel, "function", kernel)).parameters
    count = len(arguments.arrays)
    names: list[str] = []
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            numbered = [f"{name}[{place}]" for place in range(count - len(names))]
            names += arguments.tested[len(names) :] or numbered
            break
        names.append(name)
    return names[:count]


def random_arrays(
    shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]
) -> list[Any]:
    """Return random arrays, with one dtype for all or one for each."""
    if len(dtypes) not in (1, len(shapes)):
        raise click.BadParameter(
            f"--dtype names one dtype for all inputs, or one for each: got {len(dtypes)} "
            f"for {len(shapes)}"
        )
    kinds = parse_dtypes(dtypes if len(dtypes) > 1 else list(dtypes) * len(shapes))
    pairs = list(zip(shapes, kinds, strict=True))
    if problem := too_large((shape, dtype.itemsize) for shape, dtype in pairs):
        raise click.BadParameter(f"--shape: {problem}")
    rng = np.random.default_rng(0)
    return [_drawn(rng, shape, dtype) for shape, dtype in pairs]


def _drawn(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Any:
    """Return random numbers of a dtype; a packed dtype has four in each element."""
    if dtype.names:
        return packed(rng.standard_normal((*shape, 4), dtype=np.float32), dtype)
    values = rng.standard_normal(shape, dtype=np.float32)
    if dtype == FLOAT8_E8M0FNU:  # it has powers of two alone
        return np.exp2(np.rint(values)).astype(dtype)
    return (values * 8 if dtype.kind in "iu" else values).astype(dtype)


def parse_dtypes(
    names: Iterable[str], known: Callable[[str], np.dtype[Any]] = as_nki_dtype
) -> list[np.dtype[Any]]:
    """Return the dtypes of these names, which ``known`` resolves.

    A kernel whose dialect lacks a dtype raises when it is launched.
    """
    try:
        return [known(name) for name in names]
    except NkiError as error:
        error.location = None  # the dtype is on the command line, not in a kernel
        raise click.BadParameter(str(error)) from None


_LARGEST_CASE = 2**24
"""The most elements of all arrays of a case that nobody chose."""


def use_case(
    name: str, text: str | None, use: Callable[[Any, KernelArguments], Result]
) -> Result:
    """Call ``use`` with the kernel of the test ``PATH::TEST`` and a case as JSON.

    Without a case, the largest sizes of the test's domain are used, and a line says so.
    """
    # These import pytest and Hypothesis, which only tests need.
    from difftest.testing.contract.spec_arguments import SpecError
    from difftest.testing.drawing.explicit import CaseError, case_from_json
    from difftest.testing.harness.kernel_calls import call_of_case
    from difftest.testing.host.collection import with_spec

    notes: list[str] = []

    def of_spec(spec: KernelSpec) -> Result:
        try:
            if text is None:
                values = _largest_values(spec)
                notes.extend(_describe_largest(spec, values))
                case = case_from_json(values, spec)
            else:
                case = case_from_json(text, spec)
            arrays, keywords = call_of_case(spec, case)
            grid = spec.grid_of(case.values)
        except (CaseError, SpecError) as error:
            raise click.BadParameter(str(error)) from None
        own = tuple(spec.outputs), tuple(spec.arrays)
        return use(spec.kernel, KernelArguments(arrays, keywords, grid, *own))

    try:
        return with_spec(name, of_spec)
    finally:
        for note in notes:  # output is hidden while pytest collects
            click.echo(note, err=True)


def _largest_values(spec: KernelSpec) -> dict[str, Any]:
    """Return the largest sizes of a domain; raise a UsageError if there are none, or too large."""
    from difftest.testing.harness.edges import picked_values

    values = picked_values(spec, max, _LARGEST_CASE)
    if values is None:
        raise click.UsageError(
            f"the test of {spec.name} has no largest case of at most {_LARGEST_CASE:,} elements: "
            "give a --case"
        )
    return values


def _describe_largest(spec: KernelSpec, values: dict[str, Any]) -> Iterator[str]:
    """Yield lines on the case that nobody chose."""
    from difftest.testing.contract.case import to_jsonable

    if spec.inferred:
        yield f"domain inferred: {spec.inferred}"
    text = json.dumps(values, default=to_jsonable)
    yield f"case: {text}, the largest sizes of the domain; --case takes others"


def launch_traced(
    kernel: Any,
    call: KernelArguments,
    machine: Machine | None = None,
    level: str | None = None,
    *,
    ranks: int = 1,
) -> TracedLaunch:
    """Launch a kernel and return the trace of the first rank.

    Without ``machine``, the kernel's own machine is used.

    Raises
    ------
    click.ClickException : the kernel rejects its arguments, or its own code raises.
    """
    if ranks > 1 and dialect_of(kernel) == CLASSIC:
        raise click.UsageError(
            "--ranks takes kernels of `import nki`; this kernel is classic"
        )
    run = functools.partial(launch, kernel, call.arrays, call.keywords, grid=call.grid)
    if ranks > 1:
        run = functools.partial(_on_ranks, kernel, call, ranks=ranks)
    case = format_call(kernel, call.arrays)
    try:
        target = machine or _machine_of(kernel)
        result: LaunchResult = within_limits(
            lambda: run(machine=target, level=level), case
        )
    except CaseLimitError as error:
        raise click.ClickException(f"the kernel {error}: {case}") from None
    except (NkiError, AssertionError) as error:
        raise _rejection(kernel, call, error) from None
    except Exception as error:
        function = function_of(kernel) or kernel
        if is_defect(error, function):
            raise
        raise click.ClickException(
            f"the kernel's own Python crashed: {type(error).__name__}: {error}\n"
            f"  where:    {raising_line(error, function)}\n"
            "  remedy:   correct it, or give other shapes and arguments"
        ) from None
    misuses = tuple(_misuses(kernel, call, result))
    results = tuple(_results(kernel, call, result))
    return TracedLaunch(result.trace, target, kernel, call.arrays, misuses, results)


def _rejection(
    kernel: Any, call: KernelArguments, error: Exception
) -> click.ClickException:
    if isinstance(error, NkiError):
        forget_caller(error, __file__)
    message = f"the kernel rejects this: {error}{_hint(kernel, call, error)}"
    return click.ClickException(message)


def _machine_of(kernel: Any) -> Machine:
    """Return the machine of a kernel. Its decorator may name an unknown machine."""
    machine: Machine = getattr(kernel, "machine", TRN2)
    return machine


def _misuses(
    kernel: Any, arguments: KernelArguments, result: LaunchResult
) -> Iterator[str]:
    """Yield a message for each wrong use of an array.

    A test names the arrays that are written in place. Without a test, a kernel may write to any.
    """
    for name, array in _named_arrays(kernel, arguments).items():
        if arguments.outputs is None:
            misuse = _untested_misuse(array, result)
        else:
            misuse = _tested_misuse(array, result, name in arguments.outputs)
        if misuse is not None:
            yield f"the kernel {misuse.format(name)}"
    if not (result.outputs or result.written):
        yield "the kernel gives nothing back: it returns no tensor, and writes to no input"


def _results(
    kernel: Any, arguments: KernelArguments, result: LaunchResult
) -> Iterator[KernelResult]:
    """Yield the returned arrays in order, then the arguments that were only written to."""
    named = _named_arrays(kernel, arguments)
    updated = [name for name, array in named.items() if is_among(array, result.written)]
    for output, origin in zip(result.outputs, result.origins, strict=True):
        found = [name for name, array in named.items() if array is origin]
        argument = found[0] if found else None
        yield KernelResult(
            output.shape,
            output.dtype.name,
            argument,
            is_returned=True,
            is_updated=argument in updated,
        )
    for name in updated:
        array = named[name]
        if not is_among(array, result.returned):
            yield KernelResult(
                array.shape,
                array.dtype.name,
                name,
                is_returned=False,
                is_updated=True,
            )


def _named_arrays(kernel: Any, arguments: KernelArguments) -> dict[str, Any]:
    """Return the caller's arrays by the names of the kernel's parameters."""
    names = input_names(kernel, arguments)
    arrays = dict(zip(names, arguments.arrays, strict=False))
    keywords = arguments.keywords.items()
    return arrays | {
        name: value for name, value in keywords if isinstance(value, np.ndarray)
    }


_UNWRITTEN = "returns its input {} itself, without a write to it"


def _tested_misuse(array: Any, result: LaunchResult, is_output: bool) -> str | None:
    """Return the wrong use of an array whose test names the arrays written in place."""
    if is_output:
        return None
    if is_among(array, result.written):
        return "writes to its input {}, which its test does not name in outputs="
    return _UNWRITTEN if is_among(array, result.returned) else None


def _untested_misuse(array: Any, result: LaunchResult) -> str | None:
    """Return the wrong use of an array without a test: the kernel may write to it."""
    is_written = is_among(array, result.written)
    is_returned = is_among(array, result.returned)
    return _UNWRITTEN if is_returned and not is_written else None


def _hint(kernel: Any, arguments: KernelArguments, error: Exception) -> str:
    """Return the remedy for a missing argument, or for random integers that are used as indices."""
    if missing := str(error).partition("missing a required ")[2]:
        name = missing.split("'")[1]
        return f"\n  remedy:   give it by --set {name}=VALUE, an array by --shape"
    named = zip(input_names(kernel, arguments), arguments.arrays, strict=False)
    integers = [name for name, value in named if np.asarray(value).dtype.kind in "iu"]
    if not integers or not isinstance(error, OutOfBoundsError):
        return ""
    return (
        f"\n  inputs:   {', '.join(integers)} are random integers around 0; for indices say "
        f"--bound {integers[0]}=N, and they lie in 0 to N - 1"
    )


def _on_ranks(
    kernel: Any,
    arguments: KernelArguments,
    machine: Machine,
    level: str | None,
    *,
    ranks: int,
) -> LaunchResult:
    """Launch a kernel on several ranks and return the result of the first.

    Other ranks get a permutation of the first rank's numbers.
    """
    target = as_nki_kernel(kernel)
    arrays = [arguments.arrays]
    for rank in range(1, ranks):
        rng = np.random.default_rng(rank)
        arrays.append([rng.permuted(array, axis=None) for array in arguments.arrays])
    gridded = target[arguments.grid] if arguments.grid else target
    return launch_ranks(
        gridded, arrays, arguments.keywords, machine=machine, level=level
    )[0]


def machine_by_name(name: str | None) -> Machine | None:
    """Return the machine of that name; None without a name."""
    return MACHINES[name] if name else None


@dataclass(frozen=True, kw_only=True)
class KernelRun:
    """A kernel and its arguments as the command line names them."""

    kernel: str
    """``MODULE:KERNEL``, ``FILE.py:KERNEL``, or the kernel test ``PATH::TEST``."""
    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    keywords: tuple[str, ...]
    case: str | None
    machine: str | None
    level: str | None
    grid: str | None = None
    bounds: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return the last part of the kernel's name."""
        return self.kernel.rpartition(":")[2]

    @property
    def is_test(self) -> bool:
        """Return whether a test decides the arguments: by a case, or by its largest sizes."""
        return bool(self.case) or ("::" in self.kernel and not self.shapes)

    def launch(self, ranks: int = 1) -> TracedLaunch:
        """Run the kernel on the simulator.

        Parameters
        ----------
        ranks : number of ranks that run it together; the trace is the first rank's.
        """
        if ranks > 1 and self.is_test:
            raise click.UsageError(
                "--ranks does not go with a kernel test; give the shapes of MODULE:KERNEL"
            )
        machine = machine_by_name(self.machine)
        return self.use(
            lambda kernel, call: launch_traced(
                kernel, call, machine, self.level, ranks=ranks
            )
        )

    def use(self, action: Callable[[Any, KernelArguments], Result]) -> Result:
        """Call ``action`` with the kernel and its arguments, and return the result."""
        if bool(self.shapes) == self.is_test:
            raise click.UsageError(
                "give a --shape for each array of MODULE:KERNEL, or a --case of PATH::TEST"
            )
        grid = parse_grid(self.grid)
        if self.is_test:
            unused = {
                "--grid": grid,
                "--bound": self.bounds,
                "--dtype": self.dtypes,
                "--set": self.keywords,
            }
            for option, value in unused.items():
                if value:
                    raise click.UsageError(
                        f"{option} does not go with a kernel test: the test's spec decides it"
                    )
            return use_case(self.kernel, self.case, action)
        dtypes = self.dtypes or ("float32",)
        arrays = random_arrays(list(map(parse_shape, self.shapes)), dtypes)
        bounds = parse_bounds(self.bounds)
        arguments = KernelArguments(arrays, parse_keywords(self.keywords), grid)
        with embedded():
            kernel = load_kernel(self.kernel)
            check_words(kernel, arguments.keywords)
            return action(kernel, with_bounds(kernel, arguments, bounds))


def check_words(kernel: Any, keywords: Mapping[str, Any]) -> None:
    """Raise a click.UsageError for a word where a parameter's default is a number or sequence."""
    signature = signature_of(kernel)
    parameters = {} if signature is None else signature.parameters
    for name, value in keywords.items():
        default = parameters[name].default if name in parameters else None
        if isinstance(value, str) and isinstance(default, (int, float, tuple, list)):
            kind = type(default).__name__
            raise click.UsageError(
                f"--set {name}={value}: {name} received a word; accepted: a literal of Python such "
                f"as its default, --set {name}={default} ({kind})"
            )


argument_options = (
    click.option(
        "--shape", "shapes", multiple=True, help="Shape of each input: 128,512."
    ),
    click.option(
        "--dtype",
        "dtypes",
        multiple=True,
        help="Dtype of all inputs, or one for each. Default: float32.",
    ),
    click.option(
        "--bound",
        "bounds",
        multiple=True,
        metavar="NAME=N",
        help="Range of an integer input, such as indices: 0 to N - 1, without repeats if N allows.",
    ),
    click.option(
        "--set",
        "keywords",
        multiple=True,
        metavar="NAME=VALUE",
        help="Another argument of the kernel.",
    ),
    click.option("--grid", help="Grid of an SPMD kernel: 2, or 4,nc2 (nl.nc(2))."),
    click.option(
        "--case",
        help="A case of the kernel test PATH::TEST, as JSON, instead of shapes.",
    ),
)
"""Options for the arguments of a kernel."""
ranks_option = click.option(
    "--ranks",
    type=click.IntRange(1, MOST_PROGRAMS),
    default=1,
    help="Number of ranks, for collectives.",
)
_OPTIONS = (
    click.argument("kernel", metavar="MODULE:KERNEL | FILE.py:KERNEL | PATH::TEST"),
    *argument_options,
    machine_option,
    level_option,
)


def run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a :class:`KernelRun` to a command, and pass it as first argument."""

    @functools.wraps(command)
    def with_run(**values: Any) -> None:
        own = {field.name: values.pop(field.name) for field in fields(KernelRun)}
        command(KernelRun(**own), **values)

    wrapped: Callable[..., None] = with_progress(with_run)
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
