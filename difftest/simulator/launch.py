"""The one way in: run a kernel on a machine and get its outputs and its trace."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from difftest.simulator.core import Core, Rank, is_running
from difftest.simulator.dtypes import Array, as_dtype, as_nki_dtype, to_bits
from difftest.simulator.errors import (
    KernelError,
    NkiError,
    ShapeError,
    UnwrittenError,
    not_modelled,
)
from difftest.simulator.exact.run import ExactRun, ExactSettings, exact_run
from difftest.simulator.frontend import foreign
from difftest.simulator.frontend.classic.placement import forces_auto_alloc, note_mixed
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.classic.typing import is_mutable
from difftest.simulator.frontend.grid import grid_shape
from difftest.simulator.frontend.kernel import Kernel, as_kernel, outputs_of
from difftest.simulator.frontend.nki.kernel import (
    NkiKernel,
    as_nki_kernel,
    is_nki,
    warn_of_private,
)
from difftest.simulator.frontend.nki.levels import known_level
from difftest.simulator.frontend.nki.objects import is_record
from difftest.simulator.frontend.nki.programs import run_side_by_side
from difftest.simulator.frontend.nki.tensor import NkiTensor
from difftest.simulator.fuse import fuse_moves
from difftest.simulator.machine import MACHINES, Machine
from difftest.simulator.ordering import FORWARD, Order
from difftest.simulator.plain.api import NkiRun, Run
from difftest.simulator.strictness import Strictness, judging, note, said
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Space, Trace
from difftest.simulator.witness import Testimony, witness


@dataclass(frozen=True)
class LaunchResult:
    """What a launch gives back.

    Attributes
    ----------
    outputs : the returned tensors as arrays, in order; empty if the kernel returned None.
    unwritten : for each output, None if all of it was written, else a bool array, True where
        nothing was (those elements are poison: NaN, or 0xA5 bytes).
    trace : the instructions in program order; empty if they were not recorded.
    exact : what the kernel computes where nothing rounds, and how far rounding may lead from it;
        None if it was not asked for.
    notes : the broken rules that were warnings and no errors (see
        :mod:`difftest.simulator.strictness`), once for each line and rule, in order.
    """

    outputs: tuple[Array, ...]
    unwritten: tuple[Array | None, ...]
    trace: Trace
    exact: ExactRun | None = None
    notes: tuple[NkiError, ...] = ()


class Finished(NamedTuple):
    """A kernel that has run, before the caller's arrays change."""

    core: Core
    arguments: _Arguments
    outputs: tuple[tuple[Array, Array | None], ...]
    exact: ExactRun | None = None

    def trace(self) -> Trace:
        """What it did, each result and its move to its destination as one; made once."""
        trace, moved = self.core.trace, self.core.moved
        trace.events = fuse_moves(trace.events, moved)
        moved.clear()
        trace.allocations = [a for a in trace.allocations if not a.is_temporary]
        return trace

    def result(self) -> LaunchResult:
        """Give mutable arguments their new values; what the launch gives back."""
        self.arguments.copy_back()
        return LaunchResult(
            tuple(array for array, _ in self.outputs),
            tuple(gaps for _, gaps in self.outputs),
            self.trace(),
            self.exact,
            said(),
        )

    def everything(self) -> tuple[Array, ...]:
        """What the kernel returned, then what it wrote to arguments."""
        returned = tuple(array for array, _ in self.outputs)
        return returned + tuple(data for _, data in self.arguments.copies)


def launch(
    kernel: Kernel | NkiKernel | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    grid: tuple[int, ...] = (),
    machine: Machine | None = None,
    record: bool = True,
    plain: bool = False,
    level: str | None = None,
    strictness: str | Strictness | None = None,
    exact: bool | ExactSettings = False,
) -> LaunchResult:
    """Run ``kernel`` once for each instance of ``grid``.

    The instances run one after the other; in today's dialect they take turns where they share
    memory or meet: see :mod:`difftest.simulator.baton`.

    Parameters
    ----------
    kernel : a function decorated with the embedded ``nki.jit`` of either dialect, or a plain
        function, whose dialect is that of the functions it calls.
    args, kwargs : NumPy arrays, torch tensors and JAX arrays become HBM tensors; everything else
        is passed as it is.
    grid : the SPMD grid, as in ``kernel[4, 2]``.
    machine : the NeuronCore to simulate; by default the kernel's own (the ``platform_target`` of
        its ``nki.jit``, trn2 if it names none).
    record : whether to keep a trace.
    plain : whether to run in plain mode, slowly and literally, which keeps no trace.
    level : of today's dialect, "0.3" to "0.7": names, arguments and methods that it does not have
        raise. By default the kernel's own (``embedded(level=...)``), else all exist, and those
        that have ended warn.
    strictness : "documented", "seen" or "relaxed": which broken rules are warnings and not errors.
        By default what :func:`difftest.simulator.strictness` chose, else "seen".
    exact : whether to keep, beside what the machine computes, what it would without rounding. Not
        in plain mode.

    Raises
    ------
    NkiError : the kernel breaks a rule of NKI or of the hardware.
    AssertionError, and whatever else the kernel itself raises.
    """
    _check_call(args, kwargs, machine)
    with judging(strictness):
        return witnessed(
            kernel,
            args,
            kwargs,
            grid=grid,
            machine=machine,
            record=record,
            plain=plain,
            level=level,
            exact=exact,
        ).result()


def witnessed(
    kernel: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    record: bool,
    plain: bool = False,
    exact: bool | ExactSettings = False,
    **options: Any,
) -> Finished:
    """Run a kernel as :func:`run_kernel` does, and tell the witness, if there is one."""
    told = None if plain else witness()
    if told is None:
        return run_kernel(kernel, args, kwargs, record=record, plain=plain, exact=exact, **options)
    finished = run_kernel(kernel, args, kwargs, record=True, exact=exact, **options)

    def again(order: Order) -> tuple[Array, ...]:
        other = run_kernel(kernel, args, kwargs, record=False, order=order, **options)
        return other.everything()

    told(Testimony(finished.trace(), finished.core.machine, finished.everything(), again))
    return finished


def _check_call(args: Any, kwargs: Any, machine: Any) -> None:
    """What a launch is given can be asked further.

    Raises
    ------
    KernelError : an argument of it is of another kind.
    """
    machines = f"one of {', '.join(f'MACHINES[{name!r}]' for name in MACHINES)}"
    accepted: tuple[tuple[str, Any, tuple[type, ...], str, str], ...] = (
        ("args", args, (Sequence,), "a sequence of arguments", "launch(kernel, [array])"),
        ("kwargs", kwargs, (Mapping, NoneType), "a mapping", "launch(kernel, args, {'n': 1})"),
        ("machine", machine, (Machine, NoneType), "a Machine", machines),
    )
    for name, given, kinds, kind, remedy in accepted:
        if not isinstance(given, kinds):
            raise KernelError(
                f"launch takes {kind} as {name}",
                happened=f"launch was called with {name}={given!r:.60}",
                received=f"{name} of type {type(given).__name__}",
                remedy=remedy,
            )


def run_kernel(
    kernel: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    grid: tuple[int, ...] = (),
    machine: Machine | None = None,
    record: bool = True,
    plain: bool = False,
    level: str | None = None,
    rank: Rank | None = None,
    exact: bool | ExactSettings = False,
    order: Order = FORWARD,
) -> Finished:
    """Run a kernel as :func:`launch` does, up to where the caller's arrays change.

    ``rank`` is its place among several launches that talk to each other; ``order`` that of what
    claims to have none.
    """
    if is_running():
        raise KernelError(
            "a kernel is launched from outside kernels",
            happened="a kernel launched another one",
            received="a launch inside a running kernel",
            remedy="call the other kernel directly, without a grid",
        )
    target, tensor = _target(kernel)
    if plain and exact:
        raise not_modelled("an exact run in plain mode", repr(target))
    function = target.function
    grid = grid_shape(grid) or target.grid
    chosen = target.machine if machine is None else machine
    core = Core(chosen, grid, record=record, tile=tensor)
    own = target.level if isinstance(target, NkiKernel) else None
    core.rank, core.level = rank, known_level(level) or own
    core.order = order
    if exact:
        core.shadow = (exact if isinstance(exact, ExactSettings) else ExactSettings()).shadow()
    core.auto_alloc = forces_auto_alloc(function)
    core.trace.kernel = getattr(function, "__qualname__", "")
    core.trace.dialect = "nki" if tensor is NkiTensor else "classic"
    mode: _Fast | Run = _Fast(core)
    if plain:
        mode = core.plain = (NkiRun if tensor is NkiTensor else Run)(chosen, grid)
    with core.running(), mode.running():
        bound = _bind(function, args, dict(kwargs or {}))
        known = as_nki_dtype if tensor is NkiTensor else as_dtype
        arguments = _Arguments(mode, function, known, by_reference=target.by_reference)
        values = {name: arguments.convert(name, value) for name, value in bound.arguments.items()}
        call = inspect.BoundArguments(bound.signature, values)
        kernel_call = functools.partial(function, *call.args, **call.kwargs)
        if tensor is NkiTensor and math.prod(grid) > 1:
            if plain:
                raise not_modelled("two cores in the plain mode", repr(target))
            returned = run_side_by_side(core, kernel_call)
        else:
            returned = None
            for program in order.arranged([*itertools.product(*map(range, grid))]):
                mode.start_program(program)
                returned = kernel_call()
            mode.check_capacity()
            if tensor is Tensor and not plain:
                note_mixed(core)
        leaves = _flatten(returned)
        if tensor is NkiTensor:
            warn_of_private(leaves)
        outputs = mode.outputs(leaves)
        made = None
        if core.shadow is not None:
            made = exact_run(core.shadow, leaves, arguments.written)
    return Finished(core, arguments, outputs, made)


def _launch_kernel(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], record: bool
) -> LaunchResult:
    return launch(kernel, args, kwargs, record=record)


def _launch_nki_kernel(kernel: NkiKernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    finished = witnessed(kernel, args, kwargs, record=False)
    foreign.check_outputs([args, kwargs], [array for array, _ in finished.outputs])
    return foreign.like([args, kwargs], outputs_of(finished.result()))


Kernel.launcher = staticmethod(_launch_kernel)
NkiKernel.launcher = staticmethod(_launch_nki_kernel)

_NKI = NkiTensor.__module__.rpartition(".")[0]
"""The package of the newer dialect's names."""


def _target(kernel: Any) -> tuple[Kernel | NkiKernel, type[Tile]]:
    """A kernel of either dialect, and what its tensors are."""
    if is_nki(kernel, _NKI):
        return as_nki_kernel(kernel), NkiTensor
    return as_kernel(kernel), Tensor


def _bind(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> inspect.BoundArguments:
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise KernelError(
            f"{function.__name__} takes {signature}",
            happened=f"{function.__name__} was called with arguments that do not fit it",
            received=f"arguments that do not fit: {error}",
        ) from None
    bound.apply_defaults()
    return bound


class _Fast:
    """What a launch asks of the fast mode; :class:`Run` answers the same of the plain one."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.start_program = core.start_program
        self.check_capacity = core.check_capacity

    def running(self) -> contextlib.AbstractContextManager[object]:
        """The functions of the API run fast where nothing else is said."""
        return contextlib.nullcontext()

    def argument(self, array: Array, name: str, mutable: bool) -> Tile:
        """An array as an HBM tensor; it is not copied.

        In today's dialect it lies in ``nl.hbm``, of two programs in ``nl.shared_hbm``
        (``nki_simulator.rst`` at v2.32.0); in the classic one in ``nl.shared_hbm``.
        """
        core = self.core
        if core.shadow is not None:
            core.shadow.allow(array.dtype)
        alone = core.tile is NkiTensor and math.prod(core.grid) == 1
        space = Space.PRIVATE_HBM if alone else Space.SHARED_HBM
        return core.tile.whole(core.adopt(array, name=name, mutable=mutable, space=space))

    def outputs(self, returned: list[Any]) -> tuple[tuple[Array, Array | None], ...]:
        """The returned tensors as arrays of their own, and where each was never written."""
        self.core.check_bodies(returned)
        return _outputs(returned)


class _Arguments:
    """The kernel's arguments: arrays become HBM tensors, mutable ones are copied back."""

    def __init__(
        self,
        mode: _Fast | Run,
        function: Callable[..., Any],
        known: Callable[[object, str], Any],
        *,
        by_reference: bool,
    ) -> None:
        self.mode = mode
        self.known = known
        """Raises for a dtype that the kernel's dialect does not have."""
        self.parameters = inspect.signature(function).parameters
        self.by_reference = by_reference
        self.copies: list[tuple[Array, Array]] = []
        self.written: list[tuple[Array, Any]] = []
        """The caller's arrays that the kernel may write to, and the tensors that it does."""

    def convert(self, name: str, value: Any) -> Any:
        array = value if isinstance(value, np.ndarray) else foreign.as_array(value)
        if array is not None:
            return self._tensor(name, array)
        dtype = foreign.named_dtype(value)
        if dtype is not None:
            return self.known(dtype, f"argument {name!r}")
        if isinstance(value, (list, tuple)):
            items = [self.convert(name, item) for item in value]
            if all(item is old for item, old in zip(items, value, strict=True)):
                return value
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, dict):
            return {key: self.convert(name, item) for key, item in value.items()}
        if is_record(value):
            return self._record(name, value)
        return value

    def _record(self, name: str, value: Any) -> Any:
        """A dataclass or ``NKIObject`` with its arrays converted; itself if it has none."""
        fields = vars(value)
        items = {key: self.convert(name, item) for key, item in fields.items()}
        if all(items[key] is old for key, old in fields.items()):
            return value
        clone = copy.copy(value)
        vars(clone).update(items)
        return clone

    def _tensor(self, name: str, array: Array) -> Any:
        self.known(array.dtype, f"argument {name!r}")
        if not array.size:
            raise ShapeError(
                "a kernel's tensors have at least one element",
                happened="an argument has no elements",
                received=f"argument {name!r} of shape {array.shape}",
            )
        mutable = is_mutable(self.parameters[name].annotation)
        if mutable and not array.flags.writeable:
            raise KernelError(
                "an nt.mutable_tensor is written in place",
                happened="a read-only array was given for an nt.mutable_tensor",
                received=f"argument {name!r}, an array that is read-only",
                remedy="pass a copy: array.copy()",
            )
        mutable = mutable or (self.by_reference and array.flags.writeable)
        data = np.ascontiguousarray(array).reshape(array.shape)
        if mutable:
            if np.shares_memory(data, array):
                data = data.copy()
            self.copies.append((array, data))
        tensor = self.mode.argument(data, name, mutable)
        if mutable:
            self.written.append((array, tensor))
        return tensor

    def copy_back(self) -> None:
        """Give the caller's arrays what the kernel wrote; one array may be several arguments."""
        changed = [one for one in self.copies if one[0].tobytes() != one[1].tobytes()]
        for array, data in changed:
            array[...] = data


def _flatten(returned: Any) -> list[Any]:
    if returned is None:
        return []
    if isinstance(returned, (tuple, list)):
        return [leaf for value in returned for leaf in _flatten(value)]
    return [returned]


def _outputs(returned: list[Any]) -> tuple[tuple[Array, Array | None], ...]:
    """The returned tensors as arrays of their own, and where each was never written."""
    outputs = []
    given: set[int] = set()
    for value in returned:
        missing = _never_written(value)
        storage = value.storage
        # A whole tensor's memory is given away, once; a parameter's may be the caller's array.
        own = value.is_whole() and storage.mutable and id(storage) not in given
        given.add(id(storage))
        elements = value.elements() if own else value.elements().copy()
        if not value.holds_bits:
            elements = to_bits(elements, value.dtype)
        outputs.append((elements, missing))
    return tuple(outputs)


def _never_written(value: Any) -> Array | None:
    """Where a returned tensor was never written; raises if it cannot be returned."""
    if not isinstance(value, Tile):
        raise KernelError(
            "a kernel returns tensors",
            happened="the kernel returned something that is no tensor",
            received=f"{type(value).__name__} {value!r:.80}",
            remedy="return the tensors created with buffer=nl.shared_hbm",
        )
    if not value.space.is_hbm:
        error = KernelError(
            "a kernel returns tensors in HBM",
            happened="the kernel returned a tile that is on chip",
            received=repr(value),
            remedy="store it into a tensor with buffer=nl.shared_hbm and return that",
            location=value.storage.allocation.location,
        )
        if not isinstance(value, Tensor):
            raise error
        note(error)  # AWS's simulator gives it, and its documentation returns such tiles
    value.check_bounds()
    missing = value.unwritten()
    if missing is not None and missing.all():
        raise UnwrittenError(
            "a kernel writes what it returns",
            happened="the kernel returned a tensor that nothing wrote",
            received=f"{value!r}, of which nothing was ever written",
            remedy="check the loops' trip counts (M // TILE is 0 if M is smaller than TILE), "
            "or store a default first",
            location=value.storage.allocation.location,
        )
    gaps: Array | None = missing
    return gaps
