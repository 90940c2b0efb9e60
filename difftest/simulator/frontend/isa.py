"""The module that kernels import as ``neuronxcc.nki.isa`` (usually ``nisa``), classic dialect.

Signatures are those of AWS's documentation at tag v2.26.0; each call allocates a result and lets
the instruction of :mod:`difftest.simulator.instructions` write to it.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import FLOAT32, as_dtype
from difftest.simulator.errors import KernelError, ShapeError, not_modelled
from difftest.simulator.frontend.arguments import (
    absent,
    as_engine,
    as_member,
    dge_mode,
    engine,
    nc_version,
    no_extras,
    oob_mode,
    reduce_cmd,
)
from difftest.simulator.frontend.creation import as_shape
from difftest.simulator.frontend.dispatch import make_dispatching
from difftest.simulator.frontend.gather import (
    local_gather,
    max8,
    nc_find_index8,
    nc_match_replace8,
    nc_stream_shuffle,
    sequence_bounds,
)
from difftest.simulator.frontend.isa_compute import (
    activation,
    activation_reduce,
    bn_aggr,
    bn_stats,
    dropout,
    reciprocal,
    scalar_tensor_tensor,
    tensor_partition_reduce,
    tensor_reduce,
    tensor_scalar,
    tensor_scalar_reduce,
    tensor_tensor,
    tensor_tensor_scan,
)
from difftest.simulator.frontend.isa_select import affine_select, range_select, select_reduce
from difftest.simulator.frontend.language import fp32
from difftest.simulator.frontend.moves import loaded_shape
from difftest.simulator.frontend.tensor import Tensor, issue, issue_into, new_tensor, on_chip
from difftest.simulator.index import Index, as_integers
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import dma
from difftest.simulator.instructions import matmul as products
from difftest.simulator.instructions.alu import ALU_OPS, alu_op
from difftest.simulator.instructions.operands import ON_CHIP, need_number, need_tile
from difftest.simulator.instructions.table import choose_engine
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown
constants = types.SimpleNamespace(engine=engine)
_OobMode = oob_mode

__getattr__ = absent("nki.isa", frozenset({"builtin_custom_op", "dma_engine"}))


def get_nc_version() -> nc_version:
    """The NeuronCore version of the running launch's machine."""
    return nc_version(current().machine.nc_version)


def nc_matmul(
    stationary: Any,
    moving: Any,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: Any = (),
    tile_size: Any = (),
    mask: object = None,
    **kwargs: object,
) -> Tensor:
    """``stationary.T @ moving`` in PSUM, float32; [K, M] and [K, ...N] give [M, ...N].

    The three ``is_...`` arguments are hints about speed and change no value.
    """
    if kwargs:
        no_extras("nisa.nc_matmul", kwargs)
    if not isinstance(stationary, Tile) or not isinstance(moving, Tile):
        raise KernelError(
            "nc_matmul takes two tiles",
            received=f"{type(stationary).__name__} and {type(moving).__name__}",
        )
    shape = products.matmul_shape(stationary, moving)
    whole_array = type(tile_position) is type(tile_size) is tuple and not tile_position + tile_size
    if not whole_array:
        position = as_integers(tile_position, "tile_position")
        products.check_pe_tile(position, as_integers(tile_size, "tile_size"), stationary)
    if mask is None:
        dst = new_tensor(shape, FLOAT32, Space.PSUM, "nc_matmul")
        products.nc_matmul(dst, stationary, moving)
        return dst
    if not isinstance(mask, (bool, np.bool_)):
        raise not_modelled(
            "nc_matmul's mask over index expressions", f"{mask!r}", "slice the operands instead"
        )
    return issue(
        lambda dst, a, b, where: products.nc_matmul(dst, a, b, where=where),
        shape,
        FLOAT32,
        (stationary, moving),
        mask,
        space=Space.PSUM,
        producer="nc_matmul",
    )


def nc_transpose(
    data: Any,
    *,
    mask: object = None,
    dtype: object = None,
    engine: engine = engine.unknown,
    **kwargs: object,
) -> Tensor:
    """``data.T`` between partitions and the collapsed free axes.

    In PSUM on the Tensor Engine (the default for data in SBUF), in SBUF on the Vector Engine.
    """
    no_extras("nisa.nc_transpose", kwargs)
    tile = on_chip(data, "nc_transpose", "data")
    chosen = products.transpose_engine(tile, as_engine(engine, "nc_transpose"))
    if mask is not None and not isinstance(mask, (bool, np.bool_)):
        raise not_modelled("nc_transpose's mask over index expressions", f"{mask!r}", "slice data")
    space = Space.PSUM if chosen is Engine.TENSOR else Space.SBUF
    return issue(
        lambda dst, source, where: products.nc_transpose(dst, source, chosen, where=where),
        products.transpose_shape(tile),
        tile.dtype if dtype is None else as_dtype(dtype),
        (tile,),
        mask,
        space=space,
        producer="nc_transpose",
    )


def dma_copy(
    *,
    dst: Any,
    src: Any,
    mask: object = None,
    dst_rmw_op: object = None,
    oob_mode: oob_mode = oob_mode.error,
    dge_mode: dge_mode = dge_mode.unknown,
) -> None:
    """``dst = src`` between HBM and SBUF; a side indexed by a tile gathers or scatters."""
    rmw = None
    if dst_rmw_op is not None:
        rmw = alu_op(dst_rmw_op, "dma_copy")
        if rmw is not ALU_OPS["add"]:
            raise KernelError(
                "dma_copy's dst_rmw_op is np.add", received=f"{rmw.name}", limit="np.add"
            )
    dge = _dge(dge_mode)
    mode = as_member(_OobMode, oob_mode, "dma_copy")
    if not isinstance(src, IndirectTile) and not isinstance(dst, IndirectTile):
        source, target = dma.dma_tile(src, "src"), dma.dma_tile(dst, "dst")
        if mask is None:
            dma.dma_copy(target, source, rmw=rmw, dge=dge)
            return
        issue_into(
            lambda to, tile, where: dma.dma_copy(to, tile, where=where, rmw=rmw, dge=dge),
            target,
            (source,),
            mask,
            loaded_shape(target),
        )
        return
    skip = mode is _OobMode.skip
    if mask is not None:
        raise not_modelled("dma_copy's mask beside a tile of indices", f"{mask!r}")
    if isinstance(src, IndirectTile):
        if rmw is not None or isinstance(dst, IndirectTile):
            raise not_modelled("a dma_copy that gathers and scatters or adds", f"{src!r}, {dst!r}")
        dma.dma_tile(src.base, "src")
        dma.dma_gather(dma.dma_tile(dst, "dst"), src, skip=skip, dge=dge)
    else:
        dma.dma_tile(dst.base, "dst")
        dma.dma_scatter(dst, dma.dma_tile(src, "src"), skip=skip, rmw=rmw, dge=dge)


def _dge(mode: dge_mode) -> str:
    name = as_member(dge_mode, mode, "a DMA").name
    if name == "hwdge" and current().machine.nc_version < 3:
        raise KernelError(
            "hardware descriptor generation needs NeuronCore-v3",
            received=f"dge_mode.hwdge on {current().machine.name}",
        )
    return name


def dma_transpose(
    src: Any,
    *,
    axes: Any = None,
    mask: object = None,
    dtype: object = None,
    dge_mode: dge_mode = dge_mode.unknown,
    **kwargs: object,
) -> Tensor:
    """``src`` in SBUF with its axes permuted by the DMA engines."""
    no_extras("nisa.dma_transpose", kwargs)
    if mask is not None:
        raise not_modelled("dma_transpose's mask", f"{mask!r}", "slice src")
    source = dma.dma_tile(src, "src", "dma_transpose")
    dst = new_tensor(
        dma.dma_transpose_shape(source, None if axes is None else as_integers(axes, "axes")),
        source.dtype if dtype is None else as_dtype(dtype),
        producer="dma_transpose",
    )
    dma.dma_transpose(dst, source, dge=_dge(dge_mode))
    return dst


def tensor_copy(
    src: Any,
    *,
    mask: object = None,
    dtype: object = None,
    engine: engine = engine.unknown,
    **kwargs: object,
) -> Tensor:
    """A copy of ``src`` in SBUF, cast to ``dtype``."""
    no_extras("nisa.tensor_copy", kwargs)
    source = on_chip(src, "tensor_copy", "src")
    chosen = choose_engine("tensor_copy", as_engine(engine, "tensor_copy"))
    return issue(
        lambda dst, tile, where: copies.tensor_copy(dst, tile, chosen, where=where),
        source.tile_shape(),
        source.dtype if dtype is None else as_dtype(dtype),
        (source,),
        mask,
        producer="tensor_copy",
    )


def tensor_copy_dynamic_src(
    src: Any,
    *,
    mask: object = None,
    dtype: object = None,
    engine: engine = engine.unknown,
    **kwargs: object,
) -> Tensor:
    """A copy of ``src``, a tile indexed with an offset held in SBUF."""
    no_extras("nisa.tensor_copy_dynamic_src", kwargs)
    if not isinstance(src, IndirectTile) or mask is not None:
        raise KernelError(
            "tensor_copy_dynamic_src takes a tile indexed by a tile, and no mask",
            received=f"src={src!r}, mask={mask!r}",
        )
    need_tile(src.base, "src", "tensor_copy_dynamic_src", ON_CHIP)
    chosen = choose_engine("tensor_copy_dynamic_src", as_engine(engine, "tensor_copy_dynamic_src"))
    shape = src.shape if len(src.shape) > 1 else (*src.shape, 1)
    dst = new_tensor(shape, src.base.dtype if dtype is None else as_dtype(dtype))
    copies.tensor_copy_dynamic_src(dst, src, chosen)
    return dst


def tensor_copy_dynamic_dst(
    *,
    dst: Any,
    src: Any,
    mask: object = None,
    dtype: object = None,
    engine: engine = engine.unknown,
    **kwargs: object,
) -> None:
    """Copy ``src`` to ``dst``, a tile indexed with an offset held in SBUF."""
    no_extras("nisa.tensor_copy_dynamic_dst", kwargs)
    if not isinstance(dst, IndirectTile) or mask is not None or dtype is not None:
        raise KernelError(
            "tensor_copy_dynamic_dst takes a dst indexed by a tile, no mask and no dtype",
            received=f"dst={dst!r}, mask={mask!r}, dtype={dtype!r}",
        )
    need_tile(dst.base, "dst", "tensor_copy_dynamic_dst", ON_CHIP)
    source = on_chip(src, "tensor_copy_dynamic_dst", "src")
    chosen = choose_engine("tensor_copy_dynamic_dst", as_engine(engine, "tensor_copy_dynamic_dst"))
    copies.tensor_copy_dynamic_dst(dst, source, chosen)


def tensor_copy_predicated(
    *,
    src: Any,
    dst: Any,
    predicate: Any,
    reverse_pred: bool = False,
    mask: object = None,
    dtype: object = None,
    **kwargs: object,
) -> None:
    """Copy ``src`` to ``dst`` where ``predicate`` is true."""
    no_extras("nisa.tensor_copy_predicated", kwargs)
    if dtype is not None or mask is not None:
        raise not_modelled("tensor_copy_predicated's dtype and mask", f"{dtype!r}, {mask!r}")
    target = on_chip(dst, "tensor_copy_predicated", "dst")
    chosen = on_chip(predicate, "tensor_copy_predicated", "predicate")
    if not isinstance(src, Tile):
        need_number(src, "src as a tile or", "tensor_copy_predicated")
    copies.tensor_copy_predicated(target, src, chosen, reverse=reverse_pred)


def memset(
    shape: Any,
    value: Any,
    dtype: object,
    *,
    mask: object = None,
    engine: engine = engine.unknown,
    **kwargs: object,
) -> Tensor:
    """A new SBUF tile filled with a constant; the first dimension is the partition dimension."""
    no_extras("nisa.memset", kwargs)
    chosen = choose_engine("memset", as_engine(engine, "memset"))
    sizes, _ = as_shape(shape, "nisa.memset")
    constant = need_number(value, "value", "nisa.memset")
    return issue(
        lambda dst, where: copies.memset(dst, constant, chosen, where=where),
        sizes,
        as_dtype(dtype),
        (),
        mask,
        producer="memset",
    )


def iota(expr: Any, dtype: object, *, mask: object = None, **kwargs: object) -> Tensor:
    """A tile of the values of an index expression."""
    no_extras("nisa.iota", kwargs)
    if not isinstance(expr, Index) or expr.ndim < 2:
        raise ShapeError(
            "iota takes an affine expression of nl.arange with at least two dimensions",
            received=f"{expr!r}",
            remedy="use nl.arange(n)[:, None] or [None, :]",
        )
    if mask is not None:
        raise not_modelled("iota's mask", f"{mask!r}", "make the index smaller")
    return issue(
        lambda dst, where: copies.iota(dst, expr, where=where),
        expr.shape,
        as_dtype(dtype),
        (),
        producer="iota",
    )


__all__ = [
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "constants",
    "dge_mode",
    "dma_copy",
    "dma_transpose",
    "dropout",
    "engine",
    "fp32",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "local_gather",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "oob_mode",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "scalar_engine",
    "scalar_tensor_tensor",
    "select_reduce",
    "sequence_bounds",
    "tensor_copy",
    "tensor_copy_dynamic_dst",
    "tensor_copy_dynamic_src",
    "tensor_copy_predicated",
    "tensor_engine",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "unknown_engine",
    "vector_engine",
]

make_dispatching("nisa", globals(), __all__)
