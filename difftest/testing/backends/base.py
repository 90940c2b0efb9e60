"""The interface between the harness and the backends, which run kernels.

A backend takes a :class:`KernelCall` and returns an :class:`Outcome`. It does not judge the result.
Each backend passes ``tests/unit/testing/backends/test_contract.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from difftest.support.rounding import Array, Mask, is_float_dtype
from difftest.support.signature import bind_kernel

if TYPE_CHECKING:
    from difftest.analysis.finding import Finding
    from difftest.simulator.exact.run import ExactRun, ExactSettings
    from difftest.simulator.trace import Trace

_CANARY = 0xA5
"""Each byte of an integer output before a run."""
_NAN_MARK = 0x25
"""The payload bits of the NaN in a floating-point output before a run."""


def is_among(value: object, others: Iterable[object]) -> bool:
    """Return whether a value is one of others: the same object, not an equal one."""
    return any(value is other for other in others)


class KernelCall(NamedTuple):
    """A kernel and all arguments of its call.

    Attributes
    ----------
    inputs : arrays that the kernel reads. It may change inputs that are among the ``targets``.
    outputs : arrays that the kernel writes and does not read, poisoned (see
        :func:`poisoned_array`).
    targets : the places, in ``arrays``, of the arguments that the kernel writes and that are
        compared, in order; None for all ``outputs``.
    results : the number of the reference's arrays, for returned arrays and targets together; None
        if unknown. Some backends return copies. There it distinguishes a returned argument from
        another array.
    parameters : Python values, passed by name.
    grid : the grid of an SPMD launch; empty without one.
    machine : the name of the generation that the embedded simulator models; None for the kernel's
        own. Other backends ignore it.
    record : whether to record a trace. Only simulators with traces do.
    inspect : whether to look for hazards that a run in order hides. Only the embedded simulator
        does.
    names : the kernel's names of the inputs, then of the outputs; empty to pass by position.
    ranks : the number of ranks, or 0.
    by_rank : the arrays whose first axis has a part for each rank.
    exact : the settings of an exact run; None for no exact run. Only the embedded simulator has
        one.
    """

    kernel: Callable[..., Any]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...] = ()
    parameters: Mapping[str, Any] = {}
    grid: tuple[int, ...] = ()
    machine: str | None = None
    record: bool = False
    inspect: bool = False
    exact: ExactSettings | None = None
    names: tuple[str, ...] = ()
    ranks: int = 0
    by_rank: tuple[str, ...] = ()
    targets: tuple[int, ...] | None = None
    results: int | None = None

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The inputs, then the outputs."""
        return self.inputs + self.outputs

    @property
    def target_places(self) -> tuple[int, ...]:
        """The places of the targets in ``arrays``."""
        if self.targets is None:
            return tuple(range(len(self.inputs), len(self.arrays)))
        return self.targets

    @property
    def written(self) -> tuple[Array, ...]:
        """The targets: the arrays that the kernel writes and that are compared."""
        return tuple(self.arrays[place] for place in self.target_places)

    @property
    def target_names(self) -> tuple[str, ...]:
        """The names of the targets; empty if arrays are passed by position."""
        if not self.names:
            return ()
        return tuple(self.names[place] for place in self.target_places)

    def missing_writes(self, targets: Sequence[Array]) -> tuple[Mask | None, ...]:
        """Return a mask of the elements of each target that are still poisoned."""
        poisoned_from = len(self.inputs)
        places = zip(self.target_places, targets, strict=True)
        return tuple(
            still_poisoned(array) if place >= poisoned_from else None
            for place, array in places
        )

    def arguments(self, rank: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the kernel on a rank: by position and by name."""
        if not self.names:
            return self.arrays, dict(self.parameters)
        named = zip(self.names, self.arrays, strict=True)
        own = {
            name: array[rank] if name in self.by_rank else array
            for name, array in named
        }
        return bind_kernel(self.kernel, own, self.parameters)


class Completed(NamedTuple):
    """The kernel ran to its end.

    Attributes
    ----------
    outputs : the arrays that the kernel returned, in order, then the call's targets. A returned
        target is listed once, among the targets.
    unwritten : for each output None, or a mask that is True where it was never written; empty if
        unknown.
    trace : the trace of the kernel; None if it was not requested, or if the backend has none.
    exact : the exact run of the same call, with the same outputs; None as for the trace.
    findings : the hazards that were found, the worst first; empty without an inspection.
    written : the arrays of the call that the kernel wrote to, with any values; empty if unknown.
    returned : the arrays of the call that the kernel returned; empty if unknown.
    unset : the names of poisoned arguments that the kernel read before it wrote to them; empty if
        unknown.
    untouched : the names of targets that no instruction wrote to; empty if unknown.
    """

    outputs: tuple[Array, ...]
    unwritten: tuple[Mask | None, ...] = ()
    trace: Trace | None = None
    exact: ExactRun | None = None
    findings: tuple[Finding, ...] = ()
    written: tuple[Array, ...] = ()
    returned: tuple[Array, ...] = ()
    unset: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """The kernel did not run to its end."""

    error: BaseException


class Rejected(Refused):
    """The kernel's contract, or a rule of the machine, rejected the call."""


class Unsupported(Refused):
    """The backend lacks a feature that the kernel uses, so the kernel is not judged."""


@dataclass(frozen=True)
class Crashed(Refused):
    """An error that does not state a rule: a bug, for any result of the reference.

    ``in_backend`` is True for a bug of the backend itself, not of the kernel.
    """

    in_backend: bool = False


Outcome: TypeAlias = Completed | Rejected | Unsupported | Crashed

SLIPS = (NameError, AttributeError, ZeroDivisionError, ImportError)
"""Python's errors that no backend uses for a rule: raised by a kernel, they are its bugs."""


class Backend(Protocol):
    """A runner of kernels."""

    @property
    def name(self) -> str:
        """The name of the backend for tables and messages: a single word."""

    @property
    def description(self) -> str:
        """The kind and the version of the backend, in one line."""

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel once. An error of the kernel becomes part of the outcome."""


class BackendMissingError(Exception):
    """A requested backend is missing: the text states what was found, and how to get it."""


class DialectError(BackendMissingError):
    """The backend does not run kernels of this dialect here."""


def poisoned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of poison: a marked NaN, or 0xA5 bytes in integers."""
    array: Array = np.full(shape, np.nan if is_float_dtype(dtype) else 1, dtype)
    if is_float_dtype(dtype):
        bits = array.view(f"u{dtype.itemsize}")
        bits |= bits.dtype.type(_NAN_MARK)
    elif dtype.kind != "b":
        array.view(np.uint8)[...] = _CANARY
    return array


def still_poisoned(array: Array) -> Mask | None:
    """Return a mask of the NaN of :func:`poisoned_array` in ``array``; None if there is none.

    It is for backends that do not know which elements were written. Integers have no spare value
    for a mark, so an unwritten integer shows as a wrong value instead.
    """
    if not is_float_dtype(array.dtype):
        return None
    bits = f"u{array.dtype.itemsize}"
    mask: Mask = array.view(bits) == poisoned_array((1,), array.dtype).view(bits)
    return mask if mask.any() else None


def as_outputs(returned: object) -> tuple[Array, ...]:
    """Return the result of a kernel as a tuple of arrays."""
    if returned is None:
        return ()
    several = returned if isinstance(returned, (tuple, list)) else (returned,)
    return tuple(np.asarray(array) for array in several)
