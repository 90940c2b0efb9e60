"""``nki.language``: loads, stores and prints; products, selections, and tiles in other shapes."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import BFLOAT16
from difftest.simulator.errors import BufferError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import need_two, not_taken
from difftest.simulator.frontend.nki.binding import public
from difftest.simulator.frontend.nki.dynamic import DynamicView
from difftest.simulator.frontend.nki.isa.moves import dma_copy, dma_transpose
from difftest.simulator.frontend.nki.isa.products import mark
from difftest.simulator.frontend.nki.language.creation import ndarray
from difftest.simulator.frontend.nki.language.functions import wanted
from difftest.simulator.index import as_integer, as_integers
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import gate, scan, search, select
from difftest.simulator.instructions import matmul as products
from difftest.simulator.instructions.operands import need_tile, wrong_kind
from difftest.simulator.misuses import PRODUCT_OF_BFLOAT16
from difftest.simulator.strictness import note
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space


def _check_hbm(tensor: Any, name: str, where: str, ndim: int | None = None) -> None:
    """Raise unless an argument is a tensor in HBM; of ``ndim`` dimensions it does not move."""
    views = (Tile, DynamicView) if ndim is None else Tile
    if isinstance(tensor, views) and tensor._in_hbm and ndim in (None, len(tensor.shape)):
        return
    kind = "" if ndim is None else f"a {ndim}-D tensor "
    takes, got = f"{kind or f'{name} '}in hbm", f"a {name} that is not {kind}in hbm"
    received = f"{name} = {tensor!r:.80}"
    raise not_taken(where, takes, got, received, error=BufferError, limit="hbm")


@public
def load(src, dtype=None):
    """A new tile in SBUF with the elements of a tensor in HBM."""
    _check_hbm(src, "src", "nl.load")
    shape = src.shape if len(src.shape) > 1 else (*src.shape, 1)
    tile = ndarray(shape, wanted(dtype, src))
    dma_copy(tile, src)
    return tile


@public
def load_transpose2d(src, dtype=None):
    """A new tile in SBUF with the transpose of a 2-D tensor in HBM."""
    _check_hbm(src, "src", "nl.load_transpose2d", 2)
    tile = ndarray(src.shape[::-1], src.dtype)
    dma_transpose(tile, src)
    if wanted(dtype, src) == src.dtype:
        return tile
    return gate.issue(copies.tensor_copy, (tile,), dtype=wanted(dtype))


@public
def store(dst, value):
    """Copy a tile in SBUF to a tensor in HBM, which is returned."""
    need_tile(value, "value", "nl.store", (Space.SBUF,))
    _check_hbm(dst, "dst", "nl.store")
    dma_copy(dst, value)
    return dst


@public
def device_print(print_prefix, tensor):
    """Print a tensor's values when the kernel runs."""
    if not isinstance(tensor, Tile):
        raise wrong_kind(tensor, "a tensor", "nl.device_print")
    print(print_prefix, tensor._values())


@public
@contextlib.contextmanager
def no_reorder():
    """``with nl.no_reorder():`` instructions run in program order here anyway.

    A loop on the device cannot run inside it; it can stand inside such a loop's body.
    """
    core = current()
    outer, core.keeps_order = core.keeps_order, True
    try:
        yield
    finally:
        core.keeps_order = outer


@public
def transpose(x, dtype=None):
    """``x.T`` of a 2-D tile in SBUF, in PSUM."""
    tile = need_tile(x, "x", "nl.transpose", (Space.SBUF,))
    need_two(tile, "nl.transpose")
    return gate.issue(
        products.nc_transpose, (tile,), dtype=wanted(dtype, tile), engine=Engine.TENSOR
    )


@public
def matmul(x, y, transpose_x=False):
    """``x @ y``, or ``x.T @ y`` if ``transpose_x``, in PSUM, float32."""
    stationary = x if transpose_x else gate.issue(copies.tensor_copy, (transpose(x),))
    made = gate.issue(products.nc_matmul, (stationary, y), (False, (), (), "none"))
    if BFLOAT16 in (x.dtype, y.dtype) and current().machine.nc_version < 3:
        note(PRODUCT_OF_BFLOAT16(f"{x!r} and {y!r}"))
    mark(made)
    return made


@public
def where(condition, x, y, dtype=None):
    """``x`` where ``condition`` is not 0, else ``y``, element by element."""
    return gate.issue(select.where, (condition, x, y), dtype=wanted(dtype))


@public
def dropout(x, rate, dtype=None):
    """``x`` with elements replaced by 0 at the given probability."""
    return gate.issue(scan.dropout, (x, rate), dtype=wanted(dtype))


@public
def random_seed(seed):
    """Let ``nl.rand`` and ``nl.dropout`` begin anew from a seed, a (1, 1) tensor on chip."""
    tile = need_tile(seed, "seed", "nl.random_seed")
    if tile.size != 1:
        got = f"a tensor of {tile.size} elements"
        raise not_taken("nl.random_seed", "a (1, 1) tensor", got, repr(tile), error=ShapeError)
    value = int(np.asarray(tile._values()).reshape(-1)[0])
    current().seed(value % 2**32)


@public
def gather_flattened(data, indices, axis=0, dtype=None):
    """``data``'s elements at ``indices`` of the flattened free axes, within each partition."""
    if as_integer(axis, "nl.gather_flattened's axis") != 0:
        raise not_modelled("nl.gather_flattened's axis", f"axis={axis!r}")
    return gate.issue(search.gather_flattened, (indices, data), dtype=wanted(dtype))


@public
def expand_dims(x, axis):
    """A view with a dimension of size 1 at ``axis``."""
    if not isinstance(x, Tile):
        raise wrong_kind(x, "a tile", "nl.expand_dims")
    view: Any = x
    return view.expand_dim(axis)


@public
def broadcast_to(x, shape, dtype=None):
    """A tile of ``shape``: dimensions of size 1 repeat; ``x`` itself if it has that shape.

    The partition dimension may repeat too, although an instruction's operand cannot: which
    instructions AWS issues for it is not documented, and the trace has one copy.
    """
    tile: Any = need_tile(x, "x", "nl.broadcast_to")
    sizes = as_integers(shape, "nl.broadcast_to with shape")
    if sizes == tile.shape and wanted(dtype, tile) == tile.dtype:
        return tile
    if len(sizes) != tile.ndim:
        takes, got = f"a shape of {tile.ndim} dimensions, as the tile's", f"a shape of {len(sizes)}"
        received = f"{tile!r} to {list(sizes)}"
        raise not_taken("nl.broadcast_to", takes, got, received, error=ShapeError)
    return gate.issue(copies.tensor_copy, (tile._broadcast_to(sizes),), dtype=wanted(dtype, tile))
