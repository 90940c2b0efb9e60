"""New tensors (``nl.ndarray``, ``nisa.iota``), and functions of the host (``nl.finfo``)."""
# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import (
    FLOAT32,
    TFLOAT32,
    Array,
    as_dtype,
    from_bits,
    is_float,
    round_to,
    to_bits,
)
from difftest.simulator.errors import LimitError
from difftest.simulator.frontend.arguments import as_name, engine, not_taken
from difftest.simulator.frontend.classic.calls import (
    ISA,
    LANGUAGE,
    as_mask,
    as_truth,
    issue,
)
from difftest.simulator.frontend.classic.copies import copy
from difftest.simulator.frontend.classic.memories import Placed, as_shape, memory_of
from difftest.simulator.frontend.loops import of_first_turn
from difftest.simulator.index import Index, as_integer, is_index_integer
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions.checks import (
    is_number,
    need_number,
    need_tile,
    wrong_kind,
)
from difftest.simulator.instructions.dma import dma_copy
from difftest.simulator.instructions.record import HBM, ON_CHIP
from difftest.simulator.misuses import VALUE_IN_HBM
from difftest.simulator.strictness import report_violation
from difftest.simulator.tile import Tile

ANYWHERE = HBM + ON_CHIP
MOST_ROWS = 2**15
"""The limit on the rows of an identity matrix."""
SEED_BITS = 32


@LANGUAGE.by_hand  # memory
def ndarray(shape, dtype, *, buffer=None, name=""):
    """Create a tensor in a memory (SBUF by default); its elements are unwritten."""
    space = memory_of(buffer, "nl.ndarray")
    (sizes, axis) = as_shape(shape, "nl.ndarray")
    core, wanted = current(), as_dtype(dtype)
    if isinstance(buffer, Placed) and not core.memories.auto_alloc:
        places = of_first_turn(
            lambda: buffer.addresses(sizes, axis, wanted.itemsize, core.machine)
        )
    else:
        places = []
    partition_axis = 0 if space.is_hbm else axis
    storage = core.allocate(sizes, wanted, space, partition_axis, name=as_name(name))
    if len(places) == 1:
        storage.allocation.address = places[0]
    else:
        storage.allocation.places = tuple(places)
    return current().tile._whole(storage)


@LANGUAGE.by_hand  # memory, and one or two instructions
def full(shape, fill_value, dtype, *, buffer=None, name=""):
    """Create an on-chip tensor filled with a constant."""
    constant = need_number(fill_value, "fill_value", "nl.full")
    tensor = ndarray(shape, dtype, buffer=buffer, name=name)
    if tensor._in_hbm:
        report_violation(VALUE_IN_HBM(f"buffer={buffer!r}"))
        small: Tile = issue(copies.memset, (constant,), ((1, 1),), dtype=tensor.dtype)
        row = tensor.reshape((1, tensor.size))
        issue(dma_copy, (small._broadcast_to(row.shape),), dst=row)
        return tensor
    issue(copies.memset, (constant,), dst=tensor)
    return tensor


def _filled(name: str, value: int) -> Any:
    """Add a function that creates a tensor of one value."""

    def function(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "") -> Any:
        return full(shape, value, dtype, buffer=buffer, name=name)

    return LANGUAGE.add(name, function, f"Create an on-chip tensor of {name}.")


def _alike(name: str, make: Any, doc: str) -> None:
    """Add a function that creates a tensor like another one."""

    def function(
        a: Any, dtype: Any = None, *, buffer: Any = None, name: str = ""
    ) -> Any:
        like = need_tile(a, "a", where, ANYWHERE)
        return make(
            like.shape, like.dtype if dtype is None else dtype, buffer=buffer, name=name
        )

    where = f"nl.{name}"
    LANGUAGE.add(name, function, f"Create a tensor of ``a``'s shape and dtype; {doc}.")


_filled("ones", 1)
_alike("zeros_like", _filled("zeros", 0), "zeros, on chip")
_alike("empty_like", ndarray, "its elements are unwritten")


@LANGUAGE.by_hand  # on the host
def shared_constant(constant, dtype=None):
    """Create a constant array in HBM before the kernel starts; it cannot be written."""
    array = np.array(constant)
    as_shape(array.shape or (1,), "nl.shared_constant")
    if array.dtype.kind not in "biuf" or dtype is None:
        as_dtype(array.dtype, "nl.shared_constant")
    array = _on_host(array, array.dtype if dtype is None else as_dtype(dtype))
    return current().tile._whole(
        current().adopt(array, name="shared_constant", mutable=False)
    )


def _on_host(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return a constant cast by the host, in ``dtype``'s own bits; NumPy has no tfloat32."""
    if array.dtype == dtype:
        return array
    values = from_bits(array, TFLOAT32) if array.dtype == TFLOAT32 else array
    if dtype == TFLOAT32:
        return to_bits(round_to(values, dtype), dtype)
    return values.astype(dtype)


@LANGUAGE.by_hand  # on the host
def shared_identity_matrix(n, dtype=np.uint8):
    """Create an identity matrix in HBM before the kernel starts."""
    size = as_integer(n, "nl.shared_identity_matrix of")
    as_shape(size, "nl.shared_identity_matrix")
    if size > MOST_ROWS:
        raise not_taken(
            "nl.shared_identity_matrix",
            "a size that the host can make",
            f"{size} rows",
            f"n={size}",
            error=LimitError,
            limit=f"{MOST_ROWS} rows, 4 GiB of float32",
        )
    return shared_constant(np.identity(size, dtype=np.float32), dtype)


@ISA.issues(copies.memset)
def memset(shape, value, dtype, *, mask=None, engine=engine.unknown):
    """Create an SBUF tile filled with a constant.

    The first dimension is the partition dimension.
    """
    (shape, _), dtype = as_shape(shape, "nisa.memset"), as_dtype(dtype)
    return locals()


@ISA.issues(copies.iota)
def iota(expr, dtype, *, mask=None):
    """Create a tile of an index expression's values; [1, 1] for a loop's or a program's index."""
    if is_index_integer(expr):
        expr = Index((1, 1), as_integer(expr, "nisa.iota of"), (0, 0))
    dtype = as_dtype(dtype)
    return locals()


@LANGUAGE.issues(copies.rand)
def rand(shape, dtype=FLOAT32):
    """Create a tile of uniform random values in [0, 1).

    The launch's own seed makes it repeatable.
    """
    shape, _ = as_shape(shape, "nl.rand")
    return locals()


@LANGUAGE.by_hand  # depends on the launch
def random_seed(seed, *, mask=None):
    """Seed the launch's random generator."""
    if not as_truth(mask, "nl.random_seed"):
        return
    held = np.asarray(
        seed._values() if isinstance(seed, Tile) else as_integer(seed, "seed")
    )
    value = held.item() if held.size == 1 else None
    if value is None or not float(value).is_integer() or not 0 <= value < 2**SEED_BITS:
        raise not_taken(
            "nl.random_seed",
            f"one integer, of {SEED_BITS} bits and no sign",
            "a seed that is no such integer",
            f"{seed!r} with {value!r}" if isinstance(seed, Tile) else f"{seed!r}",
            limit=f"0 to {2**SEED_BITS - 1}",
        )
    current().seed(int(value))


# -- on the host -----------------------------------------------------------------------------------


def sizeinbytes(dtype: object) -> int:
    """Return the bytes of an element of a dtype; exists only in ``nki.language.constants``."""
    return as_dtype(dtype, "sizeinbytes").itemsize


@LANGUAGE.by_hand  # on the host
def static_cast(input_data, dtype):
    """Cast a number, or an array of the host, to another dtype."""
    wanted = as_dtype(dtype, "nl.static_cast")
    if isinstance(input_data, Tile):
        return copy(input_data, dtype=wanted)
    array = np.asarray(input_data)
    numbers = array.dtype.kind != "O" and is_number(
        array.reshape(-1)[0] if array.size else 0
    )
    if not numbers or wanted == TFLOAT32:
        raise wrong_kind(
            (input_data, dtype),
            "a number or an array, into a dtype that the host has",
            "nl.static_cast",
        )
    cast = array.astype(wanted)
    if array.ndim:
        return cast
    return cast[()]


@LANGUAGE.by_hand  # a class
class finfo:
    """The limits of a float dtype, as Python numbers: ``nl.finfo(dtype)``."""

    def __init__(self, dtype: object) -> None:
        self.dtype = as_dtype(dtype, "nl.finfo")
        if not is_float(self.dtype):
            raise wrong_kind(self.dtype, "a dtype of floats", "nl.finfo")
        base = FLOAT32 if self.dtype == TFLOAT32 else self.dtype
        limits: Any = ml_dtypes.finfo(base)  # type: ignore[no-untyped-call]
        self.min = float(limits.min)
        self.max = float(limits.max)
        self.eps = float(limits.eps)
        self.tiny = float(limits.tiny)
        self.bits = self.dtype.itemsize * 8


@LANGUAGE.by_hand  # on the host
def device_print(prefix, x, *, mask=None):
    """Print a tile's values that a mask keeps, while the kernel is simulated."""
    chosen = as_mask(mask, x.shape if isinstance(x, Tile) else ())
    if chosen is False:
        return
    if not isinstance(x, Tile):
        print(prefix, x)
    elif chosen is True:
        print(prefix, x._values())
    else:
        masked: Any = np.ma.masked_array  # without types before NumPy 2.3
        print(prefix, masked(x._values(np.asarray(chosen)), ~np.asarray(chosen)))
