"""Loads, stores, prints, products, selections, loops and programs in ``nki.language``.

Loops over Python integers are unrolled and run in order (NKI Language Guide, v2.32.0). Loops on the
device (stubs ``nl.fori_loop``, ``nl.while_loop`` and ``nl.dynamic_range``) run as the kernel runs.
Their bounds may be registers. Their variable is a register, which Python's control flow rejects.
The launch records each loop, so that the trace has its iterations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import BFLOAT16
from difftest.simulator.errors import (
    BufferError,
    ShapeError,
    kernel_location,
    not_modelled,
)
from difftest.simulator.frontend.arguments import need_two, not_taken
from difftest.simulator.frontend.levels import named, public
from difftest.simulator.frontend.loops import (
    LoopRange,
    iterate,
    program_along,
    programs_along,
)
from difftest.simulator.frontend.nki.constants import NkiInstruction
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.isa.moves import dma_copy, dma_transpose
from difftest.simulator.frontend.nki.language.creation import ndarray
from difftest.simulator.frontend.nki.language.functions import wanted
from difftest.simulator.frontend.nki.virtual_registers import (
    DeviceValue,
    NkiScalar,
    VirtualRegister,
    note_origins,
)
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import gate, reduce, search, select
from difftest.simulator.instructions import matmul as products
from difftest.simulator.instructions.checks import need_tile, wrong_kind
from difftest.simulator.instructions.record import DMA_SPACES
from difftest.simulator.misuses import LOOP_IN_ORDER, PRODUCT_OF_BFLOAT16
from difftest.simulator.strictness import report_violation
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, LoopKind, Space


def _check_hbm(tensor: Any, name: str, where: str, ndim: int | None = None) -> None:
    """Raise unless an argument is a tensor in HBM; with ``ndim``, it must also be static."""
    views = (Tile, DynamicView) if ndim is None else Tile
    if (
        isinstance(tensor, views)
        and tensor._in_hbm
        and ndim in (None, len(tensor.shape))
    ):
        return
    kind = "" if ndim is None else f"a {ndim}-D tensor "
    raise not_taken(
        where,
        f"{kind or f'{name} '}in hbm",
        f"a {name} that is not {kind}in hbm",
        f"{name} = {tensor!r:.80}",
        error=BufferError,
        limit="hbm",
    )


@public
def load(src, dtype=None):
    """Load a tensor in HBM into a new tile in SBUF."""
    _check_hbm(src, "src", "nl.load")
    shape = src.shape if len(src.shape) > 1 else (*src.shape, 1)
    tile = ndarray(shape, wanted(dtype, src))
    dma_copy(tile, src)
    return tile


@public
def load_transpose2d(src, dtype=None):
    """Load the transpose of a 2-D tensor in HBM into a new tile in SBUF."""
    src = _without_trailing_one(src)
    _check_hbm(src, "src", "nl.load_transpose2d", 2)
    tile = ndarray(src.shape[::-1], src.dtype)
    dma_transpose(tile, src)
    if wanted(dtype, src) == src.dtype:
        return tile
    return gate.issue(copies.tensor_copy, (tile,), dtype=wanted(dtype))


def _without_trailing_one(src: Any) -> Any:
    """Return ``src`` [n, m, 1] in HBM as [n, m], with a note: compilers accept it."""
    is_seen = isinstance(src, Tile) and src._in_hbm and src.shape[2:] == (1,)
    if not is_seen:
        return src
    takes = "a 2-D tensor in hbm"
    got = f"a tensor of {src.ndim} dimensions"
    remedy = "write src[:, :, 0]"
    received = f"src = {src!r:.80}"
    report_violation(
        not_taken(
            "nl.load_transpose2d", takes, got, received, error=ShapeError, remedy=remedy
        )
    )
    return src[:, :, 0]


@public
def store(dst, value):
    """Copy a tile in SBUF to a tensor in HBM, and return the tensor."""
    need_tile(value, "value", "nl.store", (Space.SBUF,))
    _check_hbm(dst, "dst", "nl.store")
    dma_copy(dst, value)
    return dst


@public
def device_print(print_prefix, tensor):
    """Print a tensor's values when the kernel runs."""
    need_tile(tensor, "tensor", "nl.device_print", DMA_SPACES)
    print(print_prefix, tensor._values())


@public
@contextlib.contextmanager
def no_reorder():
    """Keep the order of instructions within the block; here they run in program order anyway.

    A loop on the device cannot run inside the block. The block may be inside such a loop's body.
    """
    loops = current().loops
    outer = loops.keeps_order
    loops.keeps_order = True
    try:
        yield
    finally:
        loops.keeps_order = outer


@public
def transpose(x, dtype=None):
    """Transpose a 2-D tile in SBUF to PSUM."""
    tile = need_tile(x, "x", "nl.transpose", (Space.SBUF,))
    need_two(tile, "nl.transpose")
    return gate.issue(
        products.nc_transpose, (tile,), dtype=wanted(dtype, tile), engine=Engine.TENSOR
    )


@public
def matmul(x, y, transpose_x=False):
    """Multiply ``x @ y``, or ``x.T @ y`` if ``transpose_x``, in PSUM, float32."""
    stationary = x if transpose_x else gate.issue(copies.tensor_copy, (transpose(x),))
    product = gate.issue(products.nc_matmul, (stationary, y), (False, (), (), "none"))
    if BFLOAT16 in (x.dtype, y.dtype) and current().machine.nc_version < 3:
        report_violation(PRODUCT_OF_BFLOAT16(f"{x!r} and {y!r}"))
    return product


@public
def where(condition, x, y, dtype=None):
    """Select ``x`` where ``condition`` is not 0, else ``y``, element by element."""
    return gate.issue(select.where, (condition, x, y), dtype=wanted(dtype))


@public
def dropout(x, rate, dtype=None):
    """Replace elements of ``x`` by 0 at the given probability."""
    return gate.issue(reduce.dropout, (x, rate), dtype=wanted(dtype))


@public
def random_seed(seed):
    """Restart ``nl.rand`` and ``nl.dropout`` from a seed, a (1, 1) tensor on chip."""
    tile = need_tile(seed, "seed", "nl.random_seed")
    if tile.size != 1:
        raise not_taken(
            "nl.random_seed",
            "a (1, 1) tensor",
            f"a tensor of {tile.size} elements",
            repr(tile),
            error=ShapeError,
        )
    value = int(np.asarray(tile._values()).reshape(-1)[0])
    current().seed(value % 2**32)


@public
def gather_flattened(data, indices, axis=0, dtype=None):
    """Gather ``data``'s elements at ``indices`` of the flattened free axes, in each partition."""
    if as_integer(axis, "nl.gather_flattened's axis") != 0:
        raise not_modelled("nl.gather_flattened's axis", f"axis={axis!r}")
    return gate.issue(search.gather_flattened, (indices, data), dtype=wanted(dtype))


@public
def expand_dims(x, axis):
    """Return a view with a dimension of size 1 at ``axis``."""
    if not isinstance(x, Tile):
        raise wrong_kind(x, "a tile", "nl.expand_dims")
    view: Any = x
    return view.expand_dim(axis)


@public
def broadcast_to(x, shape, dtype=None):
    """Repeat dimensions of size 1 to ``shape``; return ``x`` itself if it has that shape.

    The partition dimension may repeat too, although an instruction's operand cannot. AWS does not
    document the instructions for it, and the trace has one copy.
    """
    tile: Any = need_tile(x, "x", "nl.broadcast_to")
    sizes = as_integers(shape, "nl.broadcast_to with shape")
    if sizes == tile.shape and wanted(dtype, tile) == tile.dtype:
        return tile
    if len(sizes) != tile.ndim:
        raise not_taken(
            "nl.broadcast_to",
            f"a shape of {tile.ndim} dimensions, as the tile's",
            f"a shape of {len(sizes)}",
            f"{tile!r} to {list(sizes)}",
            error=ShapeError,
        )
    return gate.issue(
        copies.tensor_copy, (tile._broadcast_to(sizes),), dtype=wanted(dtype, tile)
    )


def _unrolled(kind: LoopKind, summary: str) -> None:
    """Add a loop over the integers of ``range`` to the API; a single argument is the stop."""

    def function(start: Any, stop: Any = None, step: Any = 1) -> LoopRange:
        return LoopRange(
            kind, (0, start, step) if stop is None else (start, stop, step)
        )

    named(function, f"{kind.value}_range", summary)


for _kind, _summary in (
    (LoopKind.AFFINE, "Iterate over independent iterations; unrolled, in order."),
    (LoopKind.SEQUENTIAL, "Iterate over iterations that run in order."),
    (LoopKind.STATIC, "Iterate over unrolled iterations."),
):
    _unrolled(_kind, _summary)


@public
def fori_loop(lower, upper, body_fun, step=1):
    """Call ``body_fun(i)`` for ``i`` from ``lower`` to ``upper``, exclusive.

    The bounds may be registers.
    """
    values = _range(lower, upper, step, "nl.fori_loop")
    if not callable(body_fun):
        raise wrong_kind(body_fun, "a function", "nl.fori_loop", "body_fun")
    scalar = isinstance(lower, NkiScalar) or isinstance(upper, NkiScalar)
    for variable in _turns(values, body_fun, scalar=scalar):
        returned = body_fun(variable)
        if returned is not None and not isinstance(returned, NkiInstruction):
            raise wrong_kind(
                returned,
                "a body_fun that returns nothing",
                "nl.fori_loop",
                remedy="keep the values of the next iteration in SBUF or HBM",
            )


@public
def while_loop(init, body_fun):
    """Set ``r = init``, then ``r = body_fun(r)`` while ``r`` is not 0."""
    register = _condition(init, "init")
    note_origins("while", register)

    def values() -> Iterator[int]:
        while (value := register.device_value()) != 0:
            yield value

    for variable in _turns(values(), body_fun, frozen=False):
        register = _condition(body_fun(variable), "what body_fun returns")
        note_origins("while", register)


@public
def dynamic_range(start, stop=None, step=1):
    """Loop on the device over registers; deprecated in NKI 0.6, and removed in 0.7."""
    first, last = (0, start) if stop is None else (start, stop)
    return _on_device(_range(first, last, step, "nl.dynamic_range"))


@public
def program_id(axis=0):
    """Return the number of this program along an axis of the launch grid; 0 without a grid."""
    return program_along(axis, current().grid or (1,))


@public
def num_programs(axes=0):
    """Return the number of programs along the given axes; 1 without a launch grid."""
    return programs_along(axes, current().grid or (1,))


@public
def program_ndim():
    """Return the number of dimensions of the launch grid; 0 without a grid."""
    return len(current().grid)


def _turns(values: Any, body: Any, **how: bool) -> Iterator[DeviceValue]:
    """Yield as :func:`_on_device` for a body function; its tensors are invalid after the loop.

    The migration guide says so ("Tensors declared inside a body function cannot be referenced
    outside of the loop"). For the bodies of ``nl.dynamic_range``, no page says it.
    """
    core = current()
    with core.body(kernel_location()):
        for variable in _on_device(values, body, **how):
            core.lines.caller = (
                None  # the kernel's next calls come from the loop's body
            )
            if core.lines.tracer is not None:
                core.lines.watch(kernel=True)
            yield variable


def _on_device(
    values: Any, body: Any = None, *, scalar: bool = False, frozen: bool = True
) -> Iterator[DeviceValue]:
    """Yield the variable of a device loop for each iteration: a register, or a scalar."""
    loops = current().loops
    if loops.keeps_order:
        raise LOOP_IN_ORDER("the loop, in a with block of nl.no_reorder()")
    if loops.is_single_turn:
        values = [next(iter(values), 0)]
    current().note_on_tape("begin")
    has_turned = False
    for value in iterate(LoopKind.DYNAMIC, values, body):
        has_turned = True
        current().note_on_tape("turn")
        variable: NkiScalar | VirtualRegister
        if scalar:
            variable = NkiScalar(value, np.dtype(np.int32))
        else:
            variable = VirtualRegister(value, frozen=frozen)
        yield variable.of_turn(loops.turns[-1])
    if has_turned:
        current().note_on_tape("end")


def _range(lower: Any, upper: Any, step: Any, where: str) -> range:
    if isinstance(step, DeviceValue) or as_integer(step, f"{where} with step") < 1:
        takes = "step as a positive integer that is known when the kernel is built"
        raise not_taken(where, takes, f"step={step!r:.40}", f"step={step!r}")
    note_origins("range", lower, upper, step)
    return range(_bound(lower, where), _bound(upper, where), step)


def _bound(value: Any, where: str) -> int:
    if isinstance(value, DeviceValue):
        return value.device_value()
    return as_integer(value, where)


def _condition(value: Any, what: str) -> VirtualRegister:
    """Return the register of a while loop; raise for other values."""
    if not isinstance(value, VirtualRegister):
        raise wrong_kind(
            value,
            "a register",
            "nl.while_loop",
            what,
            "make one with nisa.register_alloc(), and return it from the body",
        )
    return value
