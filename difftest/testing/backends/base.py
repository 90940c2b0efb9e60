"""The one interface between the harness and whatever runs a kernel.

A backend gets a :class:`KernelCall` and gives an :class:`Outcome`; it judges nothing. Each backend
passes ``tests/unit/testing/backends/test_contract.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
"""Bits that mark the NaN in a floating-point output before a run."""


class KernelCall(NamedTuple):
    """A kernel and all it is called with.

    Attributes
    ----------
    inputs : arrays that the kernel reads. It may change those that are among the ``targets``.
    outputs : arrays that the kernel writes and does not read, poisoned (see :func:`poisoned`).
    targets : the places, in ``arrays``, of the arguments that the kernel writes and that are
        compared, in order; None for all ``outputs``.
    results : how many arrays the reference has for the returned arrays and the targets together;
        None where that is not known. It tells an argument that the kernel returns from another
        array on backends that return copies.
    parameters : Python values, passed by name.
    grid : of an SPMD launch; empty without one.
    machine : the generation that the embedded simulator stands for, by name; None for the kernel's
        own. Other backends run what they are.
    record : whether a trace is wanted of it. Only a simulator that has traces keeps one.
    inspect : whether to look for hazards that a run in order hides. Only the embedded simulator
        does.
    names : of the inputs, then of the outputs, as the kernel names them; empty to pass them by
        position.
    ranks, by_rank : how many ranks, or 0; the arrays of which each has its own, by the first axis.
    exact : how an exact run beside it counts roundings; None if none is wanted. Only the embedded
        simulator has one.
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
        return (*self.inputs, *self.outputs)

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
        return tuple(self.names[place] for place in self.target_places) if self.names else ()

    def missing_writes(self, targets: Sequence[Array]) -> tuple[Mask | None, ...]:
        """Return where each target was never written, as far as poison shows it."""
        poisoned_from = len(self.inputs)
        places = zip(self.target_places, targets, strict=True)
        return tuple(
            still_poisoned(array) if place >= poisoned_from else None for place, array in places
        )

    def arguments(self, rank: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the kernel is called with, on a rank: by position and by name."""
        if not self.names:
            return self.arrays, dict(self.parameters)
        named = zip(self.names, self.arrays, strict=True)
        own = {name: array[rank] if name in self.by_rank else array for name, array in named}
        return bind_kernel(self.kernel, own, self.parameters)


class Completed(NamedTuple):
    """The kernel ran to its end.

    Attributes
    ----------
    outputs : the arrays that the kernel returned, in order, then the call's targets. A target that
        the kernel returned stands among the targets alone.
    unwritten : for each output None, or a mask that is True where it was never written; empty if
        the backend cannot tell.
    trace : what the kernel did; None if none was wanted, or the backend has none.
    exact : the exact run of the same call, with the same outputs; None as for the trace.
    written : the arrays of the call that the kernel wrote to, whatever the values; empty if the
        backend cannot tell.
    returned : those that the kernel returned, written or not; empty if the backend cannot tell.
    findings : the hazards that were found, the worst first; empty if nobody looked.
    unset : the names of poisoned arguments that the kernel read before it wrote to them; empty if
        the backend cannot tell.
    untouched : the names of targets that no instruction wrote to; empty if the backend cannot tell.
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
    """The kernel's contract, or a rule of the machine, refused the call."""


class Unsupported(Refused):
    """The backend lacks what the kernel uses: whether the kernel is correct is not known."""


@dataclass(frozen=True)
class Crashed(Refused):
    """Something broke that is no rule: a bug, whatever the reference says.

    ``in_backend`` says that it is a bug of the backend itself, not of the kernel.
    """

    in_backend: bool = False


Outcome: TypeAlias = Completed | Rejected | Unsupported | Crashed

SLIPS = (NameError, AttributeError, ZeroDivisionError, ImportError)
"""Errors of Python in which no backend states a rule: raised by a kernel, they are bugs in it."""


class Backend(Protocol):
    """Something that runs kernels."""

    @property
    def name(self) -> str:
        """One word, for tables and messages."""

    @property
    def description(self) -> str:
        """One line: what it is, and which version."""

    def run(self, call: KernelCall) -> Outcome:
        """Run the kernel once. Whatever the kernel raises becomes part of the outcome."""


class BackendMissingError(Exception):
    """A backend was asked for and is not here: what was found, and how to get it."""


class DialectError(BackendMissingError):
    """The backend does not run kernels of this dialect here."""


def poisoned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array in which nothing is written yet: a marked NaN, or 0xA5 bytes in integers."""
    array: Array = np.full(shape, np.nan if is_float_dtype(dtype) else 1, dtype)
    if is_float_dtype(dtype):
        bits = array.view(f"u{dtype.itemsize}")
        bits |= bits.dtype.type(_NAN_MARK)
    elif dtype.kind != "b":
        array.view(np.uint8)[...] = _CANARY
    return array


def still_poisoned(array: Array) -> Mask | None:
    """Where ``array`` still holds the NaN that :func:`poisoned` put there; None if nowhere.

    For backends that cannot tell what was written. Integers have no value to spare for a mark: an
    unwritten integer shows as a wrong value instead.
    """
    if not is_float_dtype(array.dtype):
        return None
    bits = f"u{array.dtype.itemsize}"
    mask: Mask = array.view(bits) == poisoned_array((1,), array.dtype).view(bits)
    return mask if mask.any() else None


def as_outputs(returned: object) -> tuple[Array, ...]:
    """What a kernel returned, as a tuple of arrays."""
    if returned is None:
        return ()
    several = returned if isinstance(returned, (tuple, list)) else (returned,)
    return tuple(np.asarray(array) for array in several)
