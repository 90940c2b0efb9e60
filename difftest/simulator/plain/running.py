"""A launch in plain mode: its memories, and what each call of the API means."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from difftest.simulator.dtypes import name_of
from difftest.simulator.errors import (
    KernelError,
    LimitError,
    UnwrittenError,
    kernel_location,
    not_modelled,
)
from difftest.simulator.frontend.arguments import as_flag, no_extras
from difftest.simulator.machine import Machine
from difftest.simulator.plain.indices import Shape, elements_of, inside
from difftest.simulator.plain.meanings import MEANINGS
from difftest.simulator.plain.rounding import Array
from difftest.simulator.plain.tensors import PlainStorage, PlainTensor
from difftest.simulator.strictness import doubt, note
from difftest.simulator.trace import Space

_CURRENT: contextvars.ContextVar[Run] = contextvars.ContextVar("difftest_plain")

FLAGS = frozenset({"keepdims", "negate", "reverse0", "reverse1", "reverse_pred", "transpose_x"})
"""Arguments that switch something."""
EXTRA = {"nisa.nc_matmul": ("perf_mode",)}
"""Arguments beyond the signature that a meaning takes."""


class Run:
    """One launch in plain mode."""

    def __init__(self, machine: Machine, grid: Shape) -> None:
        self.machine, self.grid = machine, grid
        self.program: Shape = (0,) * len(grid)
        self.random = np.random.default_rng(0)
        self.registers: dict[str, Array] = {}
        """The engines' accumulators (``nisa.reduce_cmd``), by engine."""
        self.lost_registers: dict[str, Array] = {}
        """Of which partitions they hold what follows from what nothing wrote."""
        self._shared: list[PlainStorage] = []
        self._next_shared = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Run]:
        """Make this the launch that the API's functions find."""
        token = _CURRENT.set(self)
        try:
            with np.errstate(all="ignore"):
                yield self
        finally:
            _CURRENT.reset(token)

    def start_program(self, program: Shape) -> None:
        """Begin one instance of the grid."""
        self.program, self._next_shared = program, 0

    def call(
        self, name: str, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What the function ``name`` does, with its arguments as ``signature`` binds them.

        Raises
        ------
        NotModelledError : the plain mode does not have it, or not with these arguments.
        """
        if name not in MEANINGS:
            raise not_modelled(f"{name} in plain mode", "its use")
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = {key: inside(value) for key, value in bound.arguments.items()}
        for extra, value in arguments.pop("kwargs", {}).items():
            if extra in EXTRA.get(name, ()):
                arguments[extra] = value
            else:
                no_extras(name, {extra: value})
        for flag in FLAGS & arguments.keys():
            arguments[flag] = as_flag(arguments[flag], flag)
        return MEANINGS[name](name, arguments)

    def allocate(
        self,
        shape: Shape,
        dtype: np.dtype[Any],
        space: Space = Space.SBUF,
        *,
        partition: int = 0,
        name: str = "",
    ) -> PlainTensor:
        """A new tensor of which nothing is written.

        Raises
        ------
        LimitError : more partitions, or more bytes in each, than the memory has.
        """
        if space is Space.SHARED_HBM and self.grid:
            return self._shared_tensor(shape, dtype, name)
        if not space.is_hbm:
            self._check_size(shape, dtype, space, partition)
        location = kernel_location()
        return PlainStorage(
            shape, dtype, space, partition=partition, name=name, location=location
        ).tensor()

    def _shared_tensor(self, shape: Shape, dtype: np.dtype[Any], name: str) -> PlainTensor:
        """The instances of a grid see the same shared tensors, in order of creation."""
        if self._next_shared == len(self._shared):
            location = kernel_location()
            self._shared.append(
                PlainStorage(shape, dtype, Space.SHARED_HBM, name=name, location=location)
            )
        storage = self._shared[self._next_shared]
        self._next_shared += 1
        if storage.shape != shape or storage.dtype != dtype:
            raise KernelError(
                "every instance of a grid creates the same shared_hbm tensors",
                happened="two instances of a grid created a shared_hbm tensor differently",
                received=f"{shape} {dtype} in program {self.program}",
            )
        return storage.tensor()

    def _check_size(self, shape: Shape, dtype: np.dtype[Any], space: Space, partition: int) -> None:
        what = f"{list(shape)} {name_of(dtype)} in {space.value}"
        self.check_partitions(shape[partition], what)
        machine = self.machine
        most = machine.psum_partition_bytes if space is Space.PSUM else machine.sbuf_usable_bytes
        received = elements_of(shape[partition + 1 :]) * dtype.itemsize
        if received > most:
            raise LimitError(
                f"a tile fits the bytes of a partition of {space.value}",
                happened=f"a tile has {received} bytes a partition in {space.value}",
                received=f"{what}: {received} bytes a partition",
                limit=f"{most} bytes a partition ({machine.name})",
            )

    def check_partitions(self, partitions: int, what: str) -> None:
        """Raise :class:`LimitError` beyond the partitions of a memory."""
        if partitions > self.machine.partitions:
            raise LimitError(
                f"the partition size of a tile is at most {self.machine.partitions}",
                happened=f"a tile has {partitions} partitions",
                received=f"{what}: {partitions} partitions",
                limit=f"{self.machine.partitions} partitions ({self.machine.name})",
            )

    def argument(self, array: Array, name: str, mutable: bool) -> PlainTensor:
        """A kernel's argument, an array in its dtype's own bits, which is not copied."""
        return PlainStorage(
            array.shape, array.dtype, Space.SHARED_HBM, data=array, mutable=mutable, name=name
        ).tensor()

    def check_capacity(self) -> None:
        """Whether the tensors live at one time fit their memories."""

    def outputs(self, returned: list[Any]) -> tuple[tuple[Array, Array | None], ...]:
        """The returned tensors as arrays, and where each was never written."""
        return tuple(self._output(value) for value in returned)

    def _output(self, value: Any) -> tuple[Array, Array | None]:
        """A returned tensor as an array, and where it was never written."""
        if not isinstance(value, PlainTensor):
            raise KernelError(
                "a kernel returns tensors",
                happened="the kernel returned something that is no tensor",
                received=f"{value!r:.80}",
            )
        made = value.storage.location
        if not value.in_hbm:
            error = KernelError(
                "a kernel returns tensors in HBM",
                happened="the kernel returned a tile that is on chip",
                received=repr(value),
                location=made,
            )
            note(error)
        value.check_bounds()
        missing = value.missing()
        if missing.all():
            raise UnwrittenError(
                "a kernel writes what it returns",
                happened="the kernel returned a tensor that nothing wrote",
                received=repr(value),
                location=made,
            )
        if value.lost().any():
            lost = UnwrittenError(
                "a kernel writes what it returns",
                happened="the kernel returned what nothing had written",
                received=repr(value),
                location=value.storage.lost_at,
            )
            doubt(lost)
        elements = value.storage.elements(value.dtype)[value.positions]
        return elements.view(value.dtype), missing if missing.any() else None


def current() -> Run:
    """The launch in plain mode that is running."""
    run = _CURRENT.get(None)
    assert run is not None, "a plain tensor was used outside its launch"
    return run
