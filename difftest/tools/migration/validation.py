"""Run the old and the new kernel on the simulator, and compare their outputs.

Outputs agree bit for bit, agree up to rounding, or differ.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from difftest.simulator import TRN2, LaunchResult, Machine, NkiError, launch
from difftest.simulator.dtypes import as_dtype
from difftest.simulator.entry.install import embedded
from difftest.simulator.exact.run import ExactOutput
from difftest.testing.contract.limits import within_limits
from difftest.testing.host.loading import in_front
from difftest.testing.host.naming import function_in

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from difftest.testing.contract.case import Case
    from difftest.testing.contract.recipes import Recipe
    from difftest.testing.contract.spec import KernelSpec

Array = np.ndarray[Any, np.dtype[Any]]


class ValidationCall(NamedTuple):
    """A call of a kernel. Each run builds new arrays.

    Attributes
    ----------
    dtype : the dtype of the inputs.
    shapes : the shapes of the array arguments.
    arrays : builds the array arguments.
    keywords, grid : the keyword arguments and the launch grid.
    """

    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    arrays: Callable[[], list[Array]]
    keywords: Mapping[str, Any]
    grid: tuple[int, ...] = ()

    def label(self) -> str:
        """Return the dtype, the shapes and the other arguments as text."""
        parts = [self.dtype]
        parts += [str(list(shape)) for shape in self.shapes]
        for name, value in self.keywords.items():
            if not isinstance(value, np.ndarray):
                parts.append(f"{name}={value!r}")
        return ", ".join(parts)


def calls_of_shapes(
    shapes: Sequence[Sequence[int | str]],
    sizes: Mapping[str, SearchStrategy[int]],
    dtypes: Sequence[str],
    keywords: Mapping[str, Any],
    grid: tuple[int, ...],
    count: int,
) -> list[ValidationCall]:
    """Return calls with inputs of these shapes, ``count`` for each dtype.

    A name in a shape is replaced by a size drawn from ``sizes``.
    """
    from hypothesis import strategies as st

    from difftest.testing.drawing.data import recipes
    from difftest.testing.drawing.examples import examples

    @st.composite
    def call(draw: DrawFn, dtype: str) -> ValidationCall:
        values = {name: draw(source) for name, source in sizes.items()}
        own = tuple(_sizes_of(shape, values) for shape in shapes)
        wanted = as_dtype(dtype)
        drawn = [draw(recipes(wanted.name, random=True)) for _ in own]
        arrays = partial(_built, drawn, own, wanted)
        return ValidationCall(dtype, own, arrays, keywords, grid)

    calls: list[ValidationCall] = []
    for dtype in dtypes:
        calls += examples(call(dtype), count)
    return calls


def _sizes_of(shape: Sequence[int | str], values: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape with the values of its names."""
    return tuple(values[dim] if isinstance(dim, str) else dim for dim in shape)


def _built(
    recipes: Sequence[Recipe],
    shapes: Sequence[tuple[int, ...]],
    dtype: np.dtype[Any],
) -> list[Array]:
    """Return new arrays of recipes."""
    pairs = zip(recipes, shapes, strict=True)
    return [recipe.build(shape, dtype) for recipe, shape in pairs]


def calls_of_spec(spec: KernelSpec, count: int) -> list[ValidationCall]:
    """Return calls for ``count`` cases of a kernel test's domain, including output arrays."""
    from difftest.testing.drawing.cases import cases
    from difftest.testing.drawing.examples import examples
    from difftest.testing.harness.kernel_calls import call_of_case

    def call(case: Case) -> ValidationCall:
        shapes = tuple(spec.shape(name, case.values) for name in spec.arrays)
        keywords = call_of_case(spec, case)[1]
        grid = spec.grid_of(case.values)
        return ValidationCall(
            case.dtype, shapes, lambda: call_of_case(spec, case)[0], keywords, grid
        )

    return [call(case) for case in examples(cases(spec), count)]


UNIT = 2.0**-40
"""The tolerance between two exact runs, which add in float64 but in different orders."""


class ValidationError(RuntimeError):
    """The kernels cannot be compared, or their outputs differ. The text gives the reason."""


class Sources(NamedTuple):
    """A kernel's file, and the root of its imports.

    Attributes
    ----------
    file : the file of the kernel.
    root : the folder that contains its imported modules. None for the file's own folder.
    package : the package of these modules. Empty for modules directly in ``root``.
    """

    file: Path
    root: Path | None = None
    package: str = ""


class ValidationSettings(NamedTuple):
    """The machine and the NKI level of both kernels, and whether rounding may differ."""

    machine: Machine | None = None
    level: str | None = None
    may_round: bool = False


class ValidationResult(NamedTuple):
    """The calls of a validation by outcome.

    Attributes
    ----------
    same : calls whose outputs agree bit for bit.
    rounded : calls whose outputs differ only by rounding.
    refused : calls that both kernels reject.
    """

    same: list[ValidationCall]
    rounded: list[ValidationCall]
    refused: list[ValidationCall]

    def text(self) -> str:
        """Return how many calls agreed, with their dtypes and shapes."""
        compared = self.same + self.rounded
        text = f"{len(self.same)} cases agree bit for bit"
        if self.rounded:
            text += f", {len(self.rounded)} within rounding"
        if self.refused:
            text += f", {len(self.refused)} are refused by both"
        dtypes = ", ".join(dict.fromkeys(call.dtype for call in compared))
        return f"{text}; {dtypes}; {shapes_text(compared)}"


def shapes_text(calls: Sequence[ValidationCall]) -> str:
    """Return the tested shapes as text: all, or the smallest and the largest."""
    different = sorted(
        {call.shapes for call in calls},
        key=lambda shapes: (sum(int(np.prod(shape)) for shape in shapes), shapes),
    )
    texts = [" ".join(str(list(shape)) for shape in shapes) for shapes in different]
    if len(texts) > 4:
        return f"{len(texts)} shapes from {texts[0]} to {texts[-1]}"
    return f"shapes {'; '.join(texts)}"


def validate_translation(
    old: Sources,
    new: Sources,
    kernel: str,
    calls: Sequence[ValidationCall],
    setting: ValidationSettings,
) -> ValidationResult:
    """Run each call with ``kernel`` of both files, and compare the results.

    Outputs are compared bit for bit. So are the arguments that a kernel writes to.
    """
    proof = ValidationResult([], [], [])
    with embedded():
        before = _loaded(old, "classic", kernel)
        after = _loaded(new, "new", kernel)
        for call in calls:
            old_run = _run(before, call, setting)
            new_run = _run(after, call, setting)
            _compare(old_run, new_run, call, setting, proof)
    if not proof.same and not proof.rounded:
        message = f"both kernels refuse all of {len(calls)} cases: nothing was compared"
        if calls:
            message += f"; the classic: {_run(before, calls[0], setting).refusal}"
        raise ValidationError(message)
    return proof


class _Ran(NamedTuple):
    """The result of one run: outputs and final arguments, or the error."""

    arrays: list[Array]
    exact: list[ExactOutput]
    """Exact outputs. Empty if the exact run has no meaning."""
    refusal: str | None


def _loaded(sources: Sources, dialect: str, kernel: str) -> Any:
    """Import a file under a unique module name, and return its function ``kernel``."""
    file = sources.file
    name = f"difftest_migrated_{dialect}_{file.stem}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValidationError(f"{file} is not a Python module")
    module = module_from_spec(spec)
    with _imports_from(sources, name):
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise ValidationError(
                f"the {dialect} file does not load: {error}"
            ) from error
    try:
        return function_in(module, kernel, f"the {dialect} file")
    except LookupError as error:
        raise ValidationError(str(error)) from None


@contextmanager
def _imports_from(sources: Sources, name: str) -> Iterator[None]:
    """Make the modules around a file importable within the block, and unload them afterwards."""
    root = sources.root or sources.file.parent
    own = {sources.package}
    if not sources.package:
        own = {place.stem for place in root.glob("*.py")}
    with in_front(root, {*own, name}):
        if sources.package and not (root / sources.package / "__init__.py").is_file():
            # Without __init__.py, Python prefers a regular package later on the path.
            package = ModuleType(sources.package)
            package.__path__ = [str(root / sources.package)]
            sys.modules[sources.package] = package
        yield


def _run(kernel: Any, call: ValidationCall, setting: ValidationSettings) -> _Ran:
    """Run one call, and return its outputs and final arguments."""
    arrays = call.arrays()
    keywords = copy.deepcopy(call.keywords)  # a kernel may write to arrays among them
    try:
        options: dict[str, Any] = {"level": setting.level, "grid": call.grid}
        machine = setting.machine or getattr(kernel, "machine", TRN2)
        options |= {"machine": machine, "exact": setting.may_round}
        run = partial(launch, kernel, arrays, keywords, **options)
        result: LaunchResult = within_limits(run, call.label())
    except (NkiError, AssertionError, ValueError) as error:
        return _Ran([], [], str(error) or type(error).__name__)
    except Exception as error:  # user code may raise any exception
        return _Ran([], [], f"{type(error).__name__}: {error}")
    exact: list[ExactOutput] = []
    if result.exact is not None and result.exact.has_meaning:
        exact += result.exact.outputs
        exact += [output for _, output in result.exact.arguments]
    arrays += [value for value in keywords.values() if isinstance(value, np.ndarray)]
    return _Ran([*result.outputs, *arrays], exact, None)


def _compare(
    before: _Ran,
    after: _Ran,
    call: ValidationCall,
    setting: ValidationSettings,
    proof: ValidationResult,
) -> None:
    """Record how two runs of a call agree.

    Raises
    ------
    ValidationError : only one kernel fails, or the outputs differ by more than is accepted.
    """
    refusals = {"classic": before.refusal, "new": after.refusal}
    if all(refusals.values()):
        proof.refused.append(call)
        return
    for dialect, refusal in refusals.items():
        if refusal is not None:
            raise ValidationError(
                f"the {dialect} kernel fails, {call.label()}: {refusal}"
            )
    different = _difference(before.arrays, after.arrays, call.label())
    if different is None:
        proof.same.append(call)
    elif setting.may_round and _is_rounding(before, after):
        proof.rounded.append(call)
    else:
        if not setting.may_round:
            different += "; --rounding accepts differences due to rounding"
        raise ValidationError(different)


def _difference(before: list[Array], after: list[Array], where: str) -> str | None:
    """Return the first difference in bits as text, or None if all arrays agree."""
    if len(before) != len(after):
        raise ValidationError(
            f"{where}: {len(before)} arrays before, {len(after)} after"
        )
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.shape != new.shape or old.dtype != new.dtype:
            raise ValidationError(
                f"{where}: array {number} was {old.dtype}{list(old.shape)}, "
                f"and is {new.dtype}{list(new.shape)}"
            )
        if old.tobytes() != new.tobytes():
            bits = [array.view(f"u{array.dtype.itemsize}") for array in (old, new)]
            place = tuple(int(index) for index in np.argwhere(bits[0] != bits[1])[0])
            values = f"{float(old[place]):.9g} before, {float(new[place]):.9g} after"
            return f"{where}: array {number} differs, first at {place}: {values}"
    return None


def _is_rounding(before: _Ran, after: _Ran) -> bool:
    """Return whether the exact runs of both kernels agree."""
    if not before.exact or len(before.exact) != len(after.exact):
        return False
    for output, other in zip(before.exact, after.exact, strict=True):
        old = output.value
        new = other.value
        if old.shape != new.shape:
            return False
        if not np.allclose(old, new, rtol=UNIT, atol=UNIT, equal_nan=True):
            return False
    return True
