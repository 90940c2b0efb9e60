"""New tensors, random numbers, loops and the launch grid (``nki.language``)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from difftest.simulator.dtypes import FLOAT32, FLOATS, TFLOAT32, as_dtype
from difftest.simulator.errors import DtypeError, KernelError, ShapeError
from difftest.simulator.frontend.arguments import nc_version
from difftest.simulator.frontend.classic.shapes import ParDim, whole
from difftest.simulator.plain import indices, rules
from difftest.simulator.plain.copies import constant
from difftest.simulator.plain.elementwise import each_element
from difftest.simulator.plain.indices import Shape, integer, is_integer
from difftest.simulator.plain.meanings import means
from difftest.simulator.plain.rounding import Array, host_dtype, rounded
from difftest.simulator.plain.running import current
from difftest.simulator.plain.tensors import PlainStorage, PlainTensor
from difftest.simulator.strictness import note
from difftest.simulator.trace import Engine, Space

MOST_ROWS = 2**15
"""Of an identity matrix: 4 GiB of float32."""
ANYWHERE = rules.view(*rules.HBM, *rules.ON_CHIP)


def space(value: Any, name: str, where: str) -> Space:
    """A role: one of NKI's memories; SBUF if none is named."""
    found = Space.SBUF if value is None else getattr(value, "space", None)
    if not isinstance(found, Space):
        raise KernelError(
            f"{where} takes buffer as a memory",
            happened=f"{where} got {value!r:.40} as buffer",
            received=f"{value!r:.80}",
        )
    return found


def sizes(value: Any, name: str, where: str) -> tuple[Shape, int]:
    """A role: a shape of positive sizes, and the axis that ``nl.par_dim`` marks, else 0."""
    given = value if isinstance(value, (tuple, list)) else (value,)
    if not given or not all(is_integer(size) or isinstance(size, float) for size in given):
        raise ShapeError(
            f"{where} takes a shape of integers",
            happened=f"{where} got a shape that is not made of integers",
            received=f"{value!r:.80}",
        )
    try:
        shape = tuple(int(whole(size, f"{size!r}", where).__index__()) for size in given)
    except (AttributeError, TypeError):
        raise ShapeError(
            f"{where} takes a shape of integers",
            happened=f"{where} got a shape that is not made of integers",
            received=f"{value!r}",
        ) from None
    marked = [axis for axis, size in enumerate(given) if isinstance(size, ParDim)]
    if min(shape) < 1 or len(marked) > 1:
        raise ShapeError(
            f"{where} takes positive sizes, one par_dim",
            happened=f"{where} got the shape {value!r:.40}",
            received=f"{value!r:.80}",
        )
    return shape, marked[0] if marked else 0


NEW = {"shape": sizes, "dtype": rules.needed_dtype, "buffer": space}


@means("nl.ndarray", **NEW)
def ndarray(shape: tuple[Shape, int], dtype: Any, buffer: Space, name: str) -> PlainTensor:
    """A new tensor of which nothing is written."""
    extents, axis = shape
    return current().allocate(
        extents, dtype, buffer, partition=0 if buffer.is_hbm else axis, name=name
    )


@means("nl.full", fill_value=rules.number, **NEW)
def full(
    shape: tuple[Shape, int], fill_value: Any, dtype: Any, buffer: Space, name: str
) -> PlainTensor:
    """A new tensor on chip, filled with a number."""
    if buffer.is_hbm:
        error = KernelError(
            "a tensor in HBM is written by DMA",
            happened="a tensor in HBM was created with a value",
            received=buffer.value,
        )
        note(error)
    tensor = ndarray(shape, dtype, buffer, name)
    tensor.put(np.full(tensor.shape, constant(fill_value, dtype)))
    return tensor


@means("nl.zeros", **NEW)
def zeros(shape: tuple[Shape, int], dtype: Any, buffer: Space, name: str) -> PlainTensor:
    """A new tensor on chip of zeros."""
    return full(shape, 0, dtype, buffer, name)


@means("nl.ones", **NEW)
def ones(shape: tuple[Shape, int], dtype: Any, buffer: Space, name: str) -> PlainTensor:
    """A new tensor on chip of ones."""
    return full(shape, 1, dtype, buffer, name)


@means("nl.empty_like", a=ANYWHERE, dtype=rules.dtype, buffer=space)
def empty_like(a: PlainTensor, dtype: Any, buffer: Space, name: str) -> PlainTensor:
    """A new tensor of ``a``'s shape."""
    return ndarray((a.shape, 0), dtype or a.dtype, buffer, name)


@means("nl.zeros_like", a=ANYWHERE, dtype=rules.dtype, buffer=space)
def zeros_like(a: PlainTensor, dtype: Any, buffer: Space, name: str) -> PlainTensor:
    """A new tensor on chip of zeros, of ``a``'s shape."""
    return zeros((a.shape, 0), dtype or a.dtype, buffer, name)


@means(
    "nisa.memset",
    shape=sizes,
    value=rules.number,
    dtype=rules.needed_dtype,
    engine=rules.engine(Engine.VECTOR, Engine.GPSIMD),
)
def memset(
    shape: tuple[Shape, int], value: Any, dtype: Any, mask: Any, engine: Engine
) -> PlainTensor:
    """A new SBUF tile filled with a number; its first dimension is the partition."""
    return each_element(shape[0], dtype, (), lambda: constant(value, dtype), mask)


@means("nl.shared_constant", dtype=rules.dtype)
def shared_constant(constant: Any, dtype: Any) -> PlainTensor:
    """An array in HBM that is there when the kernel starts."""
    array = np.array(constant)
    if array.dtype.kind not in "biuf" or dtype is None:
        as_dtype(array.dtype, "nl.shared_constant")
    rules.require(array.size > 0, "nl.shared_constant has at least one element", array)
    return _constant_tensor(array, dtype or as_dtype(array.dtype))


def _constant_tensor(array: Array, dtype: np.dtype[Any]) -> PlainTensor:
    given = array.view(FLOAT32) if array.dtype == TFLOAT32 else array
    data = rounded(given, dtype) if dtype == TFLOAT32 else given.astype(dtype)  # on the host
    storage = PlainStorage(
        array.shape,
        dtype,
        Space.SHARED_HBM,
        data=np.ascontiguousarray(data, host_dtype(dtype)),
        mutable=False,
        name="shared_constant",
    )
    return storage.tensor()


@means("nl.shared_identity_matrix", n=rules.whole, dtype=rules.dtype)
def shared_identity_matrix(n: int, dtype: Any) -> PlainTensor:
    """An identity matrix in HBM."""
    rules.require(0 < n <= MOST_ROWS, "an identity matrix has rows, and not too many", n)
    return shared_constant(np.identity(n, dtype=np.float32), dtype)


# -- random numbers -------------------------------------------------------------------------------


@means("nl.rand", shape=sizes, dtype=rules.needed_dtype)
def rand(shape: tuple[Shape, int], dtype: Any) -> PlainTensor:
    """Uniform random numbers in [0, 1), by NumPy's generator."""
    tensor = current().allocate(shape[0], dtype)
    tensor.put(current().random.random(tensor.shape, dtype=np.float32))
    return tensor


@means("nl.random_seed")
def random_seed(seed: Any, mask: Any) -> None:
    """Seed the launch's generator with an integer of 32 bits, or with a tile that holds one."""
    if not rules.truth(mask, "nl.random_seed"):
        return
    if isinstance(seed, PlainTensor):
        held = seed.read().astype(np.float64).reshape(-1)
        whole = len(held) == 1 and float(held[0]).is_integer()
        rules.require(whole, "a seed is one integer", seed, error=KernelError)
        seed = int(held[0])
    number = integer(seed, "a seed")
    rules.require(0 <= number < 2**32, "a seed has 32 bits", number, error=KernelError)
    current().random = np.random.default_rng(number)


@means(
    "nisa.dropout",
    data=rules.tile(),
    prob=rules.number_or(rules.tile(dtypes=FLOATS)),
    dtype=rules.dtype,
)
def dropout(data: PlainTensor, prob: Any, mask: Any, dtype: Any) -> PlainTensor:
    """``data`` with elements replaced by 0 at the probability ``prob``; see :func:`rand`.

    Both modes draw one float32 number for each element of the smallest box that holds the mask, in
    row-major order: a masked instruction is a smaller one.
    """
    result = dtype or data.dtype
    if data.dtype.kind in "iub":
        rules.require(
            result == data.dtype, "dropout of integers keeps their dtype", result, error=DtypeError
        )
    chance = rules.one_element_each(prob, data, "dropout")
    vectors = (chance,) if isinstance(chance, PlainTensor) else ()
    exact = not vectors or data.dtype.kind not in "iub" or chance.dtype == FLOAT32
    rules.require(exact, "dropout of integers takes a float32 prob", prob, error=DtypeError)
    where = indices.mask_over(mask, data.shape)
    box = tuple(slice(at.min(), at.max() + 1) if at.size else slice(0) for at in np.nonzero(where))
    drawn = np.zeros(data.shape, np.float32)
    drawn[box] = current().random.random(drawn[box].shape, dtype=np.float32)

    gone = np.zeros(data.shape, np.bool_)

    def lost(*holes: Array) -> Array:
        gone[...] = functools.reduce(np.logical_or, holes)
        return gone

    def compute(x: Array, *given: Array) -> Array:
        limit = given[0].astype(np.float32) if given else np.float32(chance)
        return np.where(drawn[where & ~gone] >= limit, x, np.zeros_like(x))

    return each_element(data.shape, result, (data, *vectors), compute, mask, lost=lost)


# -- indices, loops and the grid ------------------------------------------------------------------


@means("nl.arange")
def arange(args: tuple[Any, ...] = ()) -> indices.PlainIndex:
    """See :func:`indices.arange`."""
    return indices.arange(*args)


@means("nl.mgrid")
def mgrid(key: Any) -> indices.Grid:
    """See :func:`indices.mgrid`."""
    return indices.mgrid(key)


@means("nl.ds")
def ds(start: Any, size: Any, least: int = 1) -> indices.Slice:
    """See :class:`indices.Slice`."""
    return indices.Slice(start, size, least)


@means("nl.affine_range", "nl.sequential_range", "nl.static_range")
def loop(args: tuple[Any, ...] = ()) -> Iterator[int]:
    """Python's range: iterations run in order."""
    known = 1 <= len(args) <= 3 and all(map(is_integer, args))
    numbers = tuple(integer(value, "a loop's argument") for value in args) if known else ()
    if not known or numbers[2:] == (0,):
        raise KernelError(
            "a loop takes integers: ([start,] stop[, step])",
            happened="a loop got a step of 0, or what is not an integer",
            received=f"{args}",
        )
    return iter(range(*numbers))


def _axis(axis: Any) -> int:
    number = integer(axis, "an axis of the launch grid")
    inside = 0 <= number < len(current().grid)
    rules.require(inside, "an axis of the launch grid", axis, error=KernelError)
    return number


@means("nl.program_id")
def program_id(axis: Any) -> int:
    """The index of this instance along an axis of the grid."""
    return current().program[_axis(axis)]


@means("nl.num_programs")
def num_programs(axes: Any) -> int:
    """The number of instances along these axes, or in all."""
    run = current()
    several = axes if isinstance(axes, (tuple, list)) else (axes,)
    chosen = range(len(run.grid)) if axes is None else map(_axis, several)
    return indices.elements_of(tuple(run.grid[axis] for axis in chosen))


@means("nl.program_ndim")
def program_ndim() -> int:
    """The number of dimensions of the grid."""
    return len(current().grid)


@means("nisa.get_nc_version")
def get_nc_version() -> nc_version:
    """The NeuronCore version of the launch's machine."""
    return nc_version(current().machine.nc_version)
