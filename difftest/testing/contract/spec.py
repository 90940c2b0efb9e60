"""The contract of a kernel: a KernelSpec defines its cases and their expected results."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from types import NoneType
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from hypothesis.strategies import SearchStrategy, integers

from difftest.simulator.dtypes import MX_NAMES, NKI_NAMES
from difftest.simulator.machine import MACHINES
from difftest.support.annotations import signature_shown
from difftest.support.rounding import Array, is_float_dtype
from difftest.support.signature import (
    bind_kernel,
    bind_reference,
    format_signature,
    function_name,
    signature_of,
)
from difftest.testing.contract.case import Case, distinguish_names, value_texts
from difftest.testing.contract.limits import too_large
from difftest.testing.contract.recipes import Recipe
from difftest.testing.contract.spec_arguments import (
    SpecError,
    argument_error,
    validate_arguments,
    validate_grid,
    validate_pattern,
    validate_size,
)

Value: TypeAlias = int | float | str | bool | tuple[tuple[int, ...], ...]
"""A value of a name of the domain; a tuple of tuples is groups of ranks."""
Source: TypeAlias = SearchStrategy[Any] | Sequence[Value] | Callable[..., Any]
"""A source of values: a strategy, or a sequence from simple to complex. Or a function that takes
earlier names of the domain and returns a strategy or a sequence."""


INFERRED_SIZES = 1, 300
"""The least and the largest size of a name that no domain restricts: up to a third tile."""


class InferredDomain(dict[str, "Source"]):
    """The domain of a spec that was given none."""

    def __str__(self) -> str:
        low, high = INFERRED_SIZES
        return f"{', '.join(self)} = sizes({low}, {high})"


def infer_domain(*arrays: Mapping[str, str | Input]) -> InferredDomain:
    """Return a domain in which each name in the dimensions of some arrays has a range of sizes.

    Drawing reads such integers as ``sizes``. Names of wrong arrays are left out: the spec refuses
    the arrays themselves.
    """
    entries: list[str | Input] = []
    for group in arrays:
        if isinstance(group, Mapping):
            entries += group.values()
    domain = InferredDomain()
    for entry in entries:
        dimensions = entry.dimensions if isinstance(entry, Input) else entry
        for name in dimensions.split() if isinstance(dimensions, str) else ():
            if not name.isdecimal():
                domain[name] = integers(*INFERRED_SIZES)
    return domain


@dataclass(frozen=True, kw_only=True)
class Input:
    """An input that has a dtype or data of its own.

    Attributes
    ----------
    dimensions : names of the domain or integers, e.g. ``"K M"``. It is positional.
    dtype : the input's own dtype, or a tuple. For a tuple, one dtype is drawn for each case. None
        means the case's dtype.
    data : a recipe, a strategy of recipes or of arrays of the input's shape, or a function of names
        of the domain that returns one of these. None means any values of the dtype.
    """

    dimensions: str = field(kw_only=False)
    dtype: str | tuple[str, ...] | None = None
    data: Any = None

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The input's own dtypes; empty if it has the case's dtype."""
        return (self.dtype,) if isinstance(self.dtype, str) else tuple(self.dtype or ())


@dataclass(frozen=True)
class Rejection:
    """A case outside the contract: each backend must reject it with this text.

    Attributes
    ----------
    values : a value for each name of the domain.
    match : a regular expression that the error's text must contain.
    dtype : the dtype of the inputs; None means the first of the spec's dtypes.
    shapes : shapes of inputs or outputs that differ from their dimensions in the spec.
    dtypes : dtypes of inputs that differ from ``dtype``.
    """

    values: Mapping[str, Value]
    match: str
    dtype: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)

    def label(self) -> str:
        """Return a test id."""
        parts = value_texts(self.values)
        parts += [f"{name}={list(shape)}" for name, shape in self.shapes.items()]
        parts += [f"{name}={dtype}" for name, dtype in self.dtypes.items()]
        if self.dtype:
            parts.append(self.dtype)
        text = "-".join(parts).replace(" ", "")
        return f"rejects-{text}"


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelSpec:
    """A kernel, its reference, and the domain of cases on which they must agree.

    Attributes
    ----------
    kernel : the function under test. It gets the inputs, the outputs and the parameters, under the
        names of its own parameters, in any order.
    reference : a function of the inputs, and of any of the parameters. Inputs are passed by name if
        it has a parameter of each input's name; else by position, in the order of ``inputs``. It
        returns an array, or a tuple with one array for each result, best in float64. The results
        are the arrays that the kernel returns, then the arguments under ``outputs``, both in order.
        An argument that the kernel returns too is one result. The reference must not write to its
        arguments. It rejects a case by its own assert or ValueError.
    domain : name -> source of values, in the order in which they are drawn. A source may depend on
        earlier names. So shapes are constructed, never filtered. Without a domain, each name in the
        dimensions of an array has ``sizes(1, 300)``, and the summary of a session says so.
    inputs : argument -> its dimensions, names of the domain or integers, e.g. ``"K M"``; or an
        :class:`Input` with its own dtype or data.
    outputs : the arguments that the kernel writes, in the same form. An argument under ``inputs``
        too is read and written: the kernel and the reference get its drawn data. Other outputs hold
        poison before the kernel writes them. The reference does not get them.
    parameters : names of the domain that are passed to the kernel by name.
    dtypes : dtypes of the inputs, from simple to complex. One is drawn for each case.
    output_dtype : the dtype of the results, or a tuple with one for each. None means the case's
        dtype. An argument that is read and written keeps its own dtype.
    rejects : explicit cases that must be rejected.
    examples : explicit cases to check. Each is a Case, or a value for each name of the domain. The
        values run once in each dtype.
    edges : whether calls near the kernel's limits must be rejected or correct. If the spec has
        ``rejects``, the calls lie one step outside the domain, for one name at a time. Further
        calls fill SBUF and PSUM to just under and just over the limit. One call uses the kernel's
        defaults.
    exact : whether the embedded simulator also runs each case without rounding. This separates a
        wrong algorithm from rounding (see docs/explanation/tolerance.md).
    reduction : the number of roundings of an element: a number, a name of the domain, or a function
        of names of the domain. 0 means that data only moves and must arrive bit for bit. A number
        gives a bound that outputs must keep too. With None only the exact run gives the bound, and
        without an exact run None means 1.
    accumulation : the dtype of those roundings.
    magnitude : like the reference, but returns the sums of absolute values that error bounds scale
        with. None means the reference over absolute values, which is right for sums of products.
    nonfinite : whether NaN and infinities are drawn too.
    allow_inconclusive : whether the test may pass if half of its drawn cases decide nothing.
    grid : the grid of an SPMD launch, or a function of names of the domain.
    kernels : several kernels of one contract in place of ``kernel``, such as one in each dialect.
        Each runs every case, and their outputs are compared. ``others`` are all but the first.
    lnc : the number of cores of a logical NeuronCore that run a kernel of the current dialect: a
        number, or a name of the domain. A classic kernel runs on one core.
    ranks : a name of the domain. The kernel runs on this number of ranks, which communicate by
        ``nki.collectives``. An array with this name as first dimension has a part for each rank;
        each rank gets all of any other array. All outputs, returned arrays too, have this name as
        first dimension.
    machine : the generation that the embedded simulator models, "trn1", "trn2" or "trn3", or a name
        of the domain. None means the kernel's own. Other backends ignore it.
    title : the kernel's name in reports; the function's name if empty.
    """

    kernel: Callable[..., Any] = None  # type: ignore[assignment]
    reference: Callable[..., Any]
    domain: Mapping[str, Source] = None  # type: ignore[assignment]
    inputs: Mapping[str, str | Input]
    outputs: Mapping[str, str] = field(default_factory=dict)
    parameters: Sequence[str] = ()
    dtypes: Sequence[str] = ("float32",)
    output_dtype: str | tuple[str | None, ...] | None = None
    rejects: Sequence[Rejection] = ()
    examples: Sequence[Case | Mapping[str, Value]] = ()
    edges: bool = True
    exact: bool = True
    reduction: int | str | Callable[..., int] | None = None
    accumulation: str = "float32"
    magnitude: Callable[..., Any] | None = None
    nonfinite: bool = False
    allow_inconclusive: bool = False
    grid: tuple[int, ...] | Callable[..., tuple[int, ...]] = ()
    others: tuple[Callable[..., Any], ...] = ()
    lnc: int | str | None = None
    ranks: str | None = None
    machine: str | None = None
    title: str = ""
    kernels: InitVar[Sequence[Callable[..., Any]]] = ()

    def __post_init__(self, kernels: Sequence[Callable[..., Any]]) -> None:
        derived = self._derived_arguments(kernels)
        for name, value in validate_arguments(vars(self) | derived).items():
            object.__setattr__(self, name, value)
        _check_domain(self)
        _check_arrays(self)
        _check_explicit(self)
        _check_dtypes(self)
        _check_kernel(self)
        _check_references(self)
        _check_numbers(self)
        for source in self.domain.values():
            if is_choice(source) and not isinstance(source, range):
                distinguish_names(source)
        for kernel in self.others:
            replace(self, kernel=kernel, others=())  # raises if the kernel does not fit

    def _derived_arguments(
        self, kernels: Sequence[Callable[..., Any]]
    ) -> dict[str, Any]:
        """Return the kernels of ``kernels=``, and the domain if it is inferred."""
        if (self.kernel is None) == (len(kernels) == 0):
            received = "both" if kernels else "neither"
            raise SpecError(
                f"kernel, kernels: received {received}; accepted: one of them"
            )
        derived: dict[str, Any] = {}
        if kernels:
            derived = {"kernel": kernels[0], "others": tuple(kernels[1:])}
        if self.domain is None:
            if self.ranks is not None:
                raise SpecError(
                    "domain: received none; accepted: a domain, because the number of ranks is "
                    "not a size"
                )
            derived["domain"] = infer_domain(self.inputs, self.outputs)
        return derived

    @cached_property
    def name(self) -> str:
        """The kernel's name."""
        return self.title or function_name(self.kernel)

    @property
    def inferred(self) -> str:
        """The domain and the dtypes in words, if the spec was given no domain; else empty."""
        if not isinstance(self.domain, InferredDomain) or not self.domain:
            return ""
        return f"{self.domain}, {', '.join(self.dtypes)}"

    def shape(self, argument: str, values: Mapping[str, Value]) -> tuple[int, ...]:
        """Return the shape of an input or output, for a value of each name of the domain."""
        shape = []
        for dim in self.dimensions(argument):
            size: Any = dim
            if not dim.isdecimal():
                size = validate_size(f"{argument}: dimension {dim}", values[dim])
            shape.append(int(size))
        return tuple(shape)

    def dimensions(self, argument: str) -> list[str]:
        """Return the dimensions of an input or output."""
        group = self.inputs if argument in self.inputs else self.outputs
        return _dimensions_of(group[argument])

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The names of all array arguments: the inputs, then all other outputs."""
        return tuple(dict.fromkeys((*self.inputs, *self.outputs)))

    @property
    def in_place(self) -> tuple[str, ...]:
        """The arguments that are read and written."""
        return tuple(name for name in self.outputs if name in self.inputs)

    def shape_of(self, case: Case, argument: str) -> tuple[int, ...]:
        """Return the shape of an input or output in a case."""
        return case.shapes.get(argument) or self.shape(argument, case.values)

    @property
    def free_inputs(self) -> list[str]:
        """The inputs without data of their own."""
        return [name for name in self.inputs if self.input(name).data is None]

    @property
    def own_dtypes(self) -> dict[str, tuple[str, ...]]:
        """The inputs that have dtypes of their own, with these."""
        own = {name: self.input(name).dtypes for name in self.inputs}
        return {name: dtypes for name, dtypes in own.items() if dtypes}

    def inputs_of(self, case: Case) -> tuple[Array, ...]:
        """Return new input arrays of a case."""
        return tuple(self.inputs_by_name(case).values())

    def inputs_by_name(self, case: Case) -> dict[str, Array]:
        """Return new input arrays of a case, by their names."""
        forms = {
            n: (self.shape_of(case, n), np.dtype(case.dtype_of(n))) for n in self.inputs
        }
        problem = too_large((shape, dtype.itemsize) for shape, dtype in forms.values())
        if problem:
            raise SpecError(f"inputs of {case.label()}: {problem}")
        return {name: case.data[name].build(*form) for name, form in forms.items()}

    def input(self, name: str) -> Input:
        """Return an input's dimensions, own dtype and own data."""
        entry = self.inputs[name]
        return entry if isinstance(entry, Input) else Input(entry)

    def returned_dtype(self, case: Case, index: int) -> np.dtype[Any]:
        """Return the dtype of returned array ``index``, not counting returned arguments."""
        return self._output_dtype(case, index)

    def written_dtype(self, case: Case, name: str) -> np.dtype[Any]:
        """Return the dtype of an argument under ``outputs``."""
        if name in self.inputs:
            return np.dtype(case.dtype_of(name))
        return self._output_dtype(
            case, self._most_returned + list(self.outputs).index(name)
        )

    def result_dtypes(self, case: Case, count: int) -> tuple[np.dtype[Any], ...]:
        """Return the dtypes of ``count`` results: the returned arrays, then the outputs."""
        written = [self.written_dtype(case, name) for name in self.outputs]
        returned = range(count - len(written))
        return tuple(
            [self.returned_dtype(case, index) for index in returned] + written
        )[:count]

    def possible_dtypes(self, case: Case) -> tuple[np.dtype[Any], ...]:
        """Return the dtypes that results may have, for an unknown number of results."""
        return self.result_dtypes(case, len(self.outputs) + max(1, self._most_returned))

    @property
    def _most_returned(self) -> int:
        """The number of returned arrays that ``output_dtype`` has a dtype for."""
        dtype = self.output_dtype
        return max(0, len(dtype) - len(self.outputs)) if isinstance(dtype, tuple) else 0

    def _output_dtype(self, case: Case, place: int) -> np.dtype[Any]:
        """Return the dtype of a result by its place in ``output_dtype``."""
        dtype = self.output_dtype
        if isinstance(dtype, tuple):
            dtype = dtype[place] if place < len(dtype) else None
        return np.dtype(dtype or case.dtype)

    def reduction_length(self, values: Mapping[str, Value]) -> int:
        """Return the number n of roundings of an element (see ``compare``)."""
        number = 1
        if self.reduction is not None:
            number = resolve_argument(self.reduction, values)
        accepted = (
            "a number of roundings (an integer, at least 0), a name of the domain, or a function "
            "of names of the domain that returns one"
        )
        return validate_size("reduction", number, accepted)

    def grid_of(self, values: Mapping[str, Value]) -> tuple[int, ...]:
        """Return the SPMD grid, or the number of cores of a logical one; empty without either."""
        if self.lnc is not None:
            return validate_grid("lnc", (resolve_argument(self.lnc, values),))
        return validate_grid("grid", resolve_argument(self.grid, values))

    def machine_of(self, values: Mapping[str, Value]) -> str | None:
        """Return the generation that the embedded simulator models; None for the kernel's own."""
        name = values.get(self.machine, self.machine) if self.machine else None
        if name is not None and name not in MACHINES:
            raise argument_error(
                "machine",
                name,
                f"one of {', '.join(MACHINES)}, or a name of the domain",
            )
        return None if name is None else str(name)

    def ranks_of(self, values: Mapping[str, Value]) -> int:
        """Return the number of ranks; 0 without ranks."""
        if self.ranks is None:
            return 0
        return validate_grid("ranks", (values[self.ranks],))[0]

    @property
    def by_rank(self) -> tuple[str, ...]:
        """The arrays that have a part for each rank."""
        return tuple(
            array for array in self.arrays if self.dimensions(array)[0] == self.ranks
        )

    def parameters_of(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the kernel's keyword arguments."""
        return {name: values[name] for name in self.parameters}


def _dimensions_of(entry: str | Input) -> list[str]:
    """Return the dimensions in an entry of ``inputs`` or ``outputs``."""
    return (entry.dimensions if isinstance(entry, Input) else entry).split()


def count_elements(spec: KernelSpec, values: Mapping[str, Value]) -> int:
    """Return the number of elements of all arrays of a case together."""
    return sum(math.prod(spec.shape(name, values)) for name in spec.arrays)


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters of a function of the domain."""
    signature = signature_of(function)
    if signature is None:
        signature = signature_shown(function)  # raises if there is none
    return tuple(signature.parameters)


def call_with_values(function: Callable[..., Any], values: Mapping[str, Value]) -> Any:
    """Call a function of the domain with the values that its parameters name."""
    return function(**{name: values[name] for name in parameter_names(function)})


def resolve_argument(argument: Any, values: Mapping[str, Value]) -> Any:
    """Resolve an argument: a value, the name of a domain variable, or a function of such names."""
    if callable(argument):
        return call_with_values(argument, values)
    return values[argument] if isinstance(argument, str) else argument


def is_function_of_domain(source: object) -> bool:
    """Return whether a source is computed from earlier names."""
    return callable(source) and not isinstance(source, SearchStrategy)


def _check_domain(spec: KernelSpec) -> None:
    """Check each source of the domain, and the names that it and the parameters need."""
    earlier: list[str] = []
    for name, source in spec.domain.items():
        is_drawn = isinstance(source, SearchStrategy) or is_choice(source)
        if not (is_drawn or is_function_of_domain(source)):
            accepted = "a Hypothesis strategy, one or more values, or a function of earlier names"
            raise argument_error(f"domain[{name!r}]", source, accepted)
        _check_names(f"domain[{name!r}]", _names_in(source), earlier)
        earlier.append(name)
    _check_names("parameters", spec.parameters, earlier)


def _names_in(argument: Any) -> tuple[str, ...]:
    """Return the names of the domain that :func:`resolve_argument` needs for an argument."""
    if isinstance(argument, str):
        return (argument,)
    return parameter_names(argument) if is_function_of_domain(argument) else ()


def _check_numbers(spec: KernelSpec) -> None:
    """Check that roundings, cores, ranks and the machine are valid, or names of the domain."""
    if spec.lnc is not None and spec.grid != ():
        raise SpecError("lnc: received both lnc and grid; accepted: one of them")
    cores = "grid" if spec.lnc is None else "lnc"
    for argument, ask in (("reduction", spec.reduction_length), (cores, spec.grid_of)):
        names = _names_in(getattr(spec, argument))
        _check_names(argument, names, tuple(spec.domain))
        if not names:
            ask({})
    if spec.ranks is not None:
        _check_ranks(spec, spec.ranks)
    if spec.machine not in spec.domain:
        spec.machine_of({})


def _check_ranks(spec: KernelSpec, ranks: str) -> None:
    """Check that the ranks are a name of the domain, and share out the arrays."""
    _check_names("ranks", [ranks], tuple(spec.domain))
    own = set(spec.by_rank)
    if ranks and not (own.issuperset(spec.outputs) and own.intersection(spec.inputs)):
        accepted = "the first dimension of each output, and of an input at least"
        raise argument_error("ranks", ranks, accepted)


def is_choice(source: object) -> TypeGuard[Sequence[Any]]:
    """Return whether a source is a sequence of values to choose from."""
    if isinstance(source, str) or not isinstance(source, Sequence):
        return False
    return len(source) > 0


_COMPUTED = (
    "; give a computed size a name in the domain, such as 'H': lambda K: [K - 1]"
)


def _check_names(argument: str, names: Sequence[str], accepted: Sequence[str]) -> None:
    """Check that names are among the accepted ones."""
    for name in names:
        if name not in accepted:
            listed = ", ".join(accepted) or "none, for it is the first of the domain"
            remedy = "" if name.isidentifier() else _COMPUTED
            raise SpecError(
                f"{argument}: received the name {name!r}; accepted: {listed}{remedy}"
            )


def _check_arrays(spec: KernelSpec) -> None:
    """Check that dimensions are in the domain, and that own data are a valid source."""
    if not spec.inputs:
        raise SpecError("inputs: received none; accepted: at least one array argument")
    for argument, entry in spec.inputs.items():
        own = entry if isinstance(entry, Input) else Input(entry)
        _check_array(spec, f"inputs[{argument!r}]", own)
    for argument, dimensions in spec.outputs.items():
        own = dimensions if isinstance(dimensions, Input) else Input(dimensions)
        _check_array(spec, f"outputs[{argument!r}]", own)
    for argument in spec.in_place:
        read = spec.dimensions(argument)
        written = _dimensions_of(spec.outputs[argument])
        if read != written:
            accepted = f"the dimensions that inputs has for it, {' '.join(read)!r}"
            raise argument_error(f"outputs[{argument!r}]", " ".join(written), accepted)


def _check_array(spec: KernelSpec, name: str, array: Input) -> None:
    """Check the dimensions and the data of one array argument."""
    domain = tuple(spec.domain)
    dimensions = array.dimensions
    if not isinstance(dimensions, str) or not dimensions.split():
        accepted = "names of dimensions separated by spaces, e.g. 'K M'"
        raise argument_error(name, dimensions, accepted)
    _check_names(
        name, [part for part in dimensions.split() if not part.isdecimal()], domain
    )
    is_source = isinstance(array.data, (Recipe, SearchStrategy, NoneType))
    if not is_source and not callable(array.data):
        strategy = "a Hypothesis strategy of recipes or of arrays"
        accepted = f"a recipe, {strategy}, or a function of names of the domain"
        raise argument_error(f"{name}.data", array.data, accepted)
    _check_names(f"{name}.data", _names_in(array.data), domain)


def _check_dtypes(spec: KernelSpec) -> None:
    """Check that each dtype is one of NKI's whose data can be drawn."""
    if not spec.dtypes:
        raise argument_error(
            "dtypes", spec.dtypes, "a tuple of dtype names, e.g. ('float32',)"
        )
    moved = (*MX_NAMES, "tfloat32")
    dtypes = sorted(name for name in NKI_NAMES if name not in moved)
    accepted = ", ".join(dtypes)
    for argument, name in _named_dtypes(spec):
        if name in moved:
            numbers = f"a dtype of numbers: no data are drawn in {name}"
            raise argument_error(argument, name, f"{numbers}; {accepted}")
        if name not in dtypes:
            raise argument_error(argument, name, accepted)
    if not is_float_dtype(np.dtype(spec.accumulation)):
        raise argument_error(
            "accumulation", spec.accumulation, "a floating-point dtype"
        )


def _named_dtypes(spec: KernelSpec) -> Iterator[tuple[str, Any]]:
    """Yield each dtype of a spec, after the argument that names it."""
    for name in spec.dtypes:
        yield "dtypes", name
    types = spec.output_dtype
    for output in types if isinstance(types, tuple) else (types,):
        if output:
            yield "output_dtype", output
    for argument in spec.inputs:
        for name in spec.input(argument).dtypes:
            yield f"inputs[{argument!r}].dtype", name
    yield "accumulation", spec.accumulation
    for rejection in spec.rejects:
        if rejection.dtype is not None:
            yield "rejects.dtype", rejection.dtype
        for name in rejection.dtypes.values():
            yield "rejects.dtypes", name


def _check_explicit(spec: KernelSpec) -> None:
    """Check the rejections, and the values of the examples."""
    for rejection in spec.rejects:
        if not isinstance(rejection, Rejection):
            raise argument_error(
                "rejects", rejection, "Rejections, e.g. Rejection({'n': 129}, 'text')"
            )
        validate_pattern("rejects", rejection.match)
        _check_names("rejects.shapes", tuple(rejection.shapes), spec.arrays)
        _check_names("rejects.dtypes", tuple(rejection.dtypes), tuple(spec.inputs))
    for rejection in spec.rejects:
        _check_values(spec, "rejects", rejection.values)
    for example in spec.examples:
        values = example.values if isinstance(example, Case) else example
        _check_values(spec, "examples", values)


def _check_values(spec: KernelSpec, argument: str, values: object) -> None:
    """Check that there is a value for each name of the domain, and that the shapes exist."""
    accepted = f"a value for each of {', '.join(spec.domain)}"
    if not isinstance(values, Mapping):
        raise argument_error(argument, values, accepted)
    if set(values) != set(spec.domain):
        received = ", ".join(values) or "no name"
        raise SpecError(
            f"{argument}: received values for {received}; accepted: {accepted}"
        )
    for name in spec.arrays:
        spec.shape(name, values)


def _check_kernel(spec: KernelSpec) -> None:
    """Check that the call fits the kernel's signature, if it has one.

    Arrays have the names of the kernel's parameters. Arrays of ``*arrays`` are passed by position.
    """
    signature = signature_of(spec.kernel)
    if signature is None:
        return  # for a compiled or wrapped kernel the call itself shows errors
    arrays = spec.arrays
    _check_array_names(spec, signature)
    args, kwargs = bind_kernel(
        spec.kernel, dict.fromkeys(arrays), dict.fromkeys(spec.parameters)
    )
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise SpecError(
            f"kernel: {spec.name}{signature} cannot be called with the arrays "
            f"({', '.join(arrays)}) and the parameters ({', '.join(spec.parameters)}): {error}"
        ) from None


def _role(spec: KernelSpec, array: str) -> str:
    """Return the argument of the spec that names an array."""
    return "inputs" if array in spec.inputs else "outputs"


def _is_positional(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is one of the arguments that a call may pass by position."""
    kinds = (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    return parameter.kind in kinds


def _takes_more(parameters: Iterable[inspect.Parameter]) -> bool:
    """Return whether one of the parameters is ``*arrays``."""
    return any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)


def _check_array_names(spec: KernelSpec, signature: inspect.Signature) -> None:
    """Check that each array has a parameter of the kernel."""
    own = [p for p in signature.parameters.values() if p.name not in spec.parameters]
    names = tuple(parameter.name for parameter in filter(_is_positional, own))
    if _takes_more(own) and names == spec.arrays[: len(names)]:
        return
    wrong = [name for name in spec.arrays if name not in signature.parameters]
    if wrong:
        raise SpecError(
            f"{_role(spec, wrong[0])}: received the name {wrong[0]!r} for the kernel "
            f"{format_signature(spec.kernel)}; accepted: the names of the kernel's arrays "
            f"in any order, {', '.join(names) or 'none'}"
        )


def _check_references(spec: KernelSpec) -> None:
    """Check that the reference and the magnitude take the inputs, by name or by position."""
    for role, function in (
        ("reference", spec.reference),
        ("magnitude", spec.magnitude),
    ):
        if function is None:
            continue
        try:
            bind_reference(function, spec.inputs, dict.fromkeys(spec.parameters))
        except TypeError as error:
            names = ", ".join(spec.inputs)
            raise SpecError(
                f"{role}: {format_signature(function)} cannot be called with the inputs "
                f"({names}) of the kernel {format_signature(spec.kernel)} and the parameters "
                f"({', '.join(spec.parameters)}): {error}; accepted: a function "
                "that has all names of the inputs, in any order, or "
                "that takes the arrays in their order and has none of the names at another place, "
                f"such as lambda {names}: ..."
            ) from None
