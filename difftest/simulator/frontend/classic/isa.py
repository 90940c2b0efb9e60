"""The module that kernels import as ``neuronxcc.nki.isa`` (usually ``nisa``), classic dialect.

Signatures are those of AWS's documentation at tag v2.26.0; each call allocates a result and lets
the instruction of :mod:`difftest.simulator.instructions` write to it.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import as_dtype
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
from difftest.simulator.frontend.classic.creation import as_shape
from difftest.simulator.frontend.classic.gather import (
    local_gather,
    max8,
    nc_find_index8,
    nc_match_replace8,
    nc_stream_shuffle,
    sequence_bounds,
)
from difftest.simulator.frontend.classic.isa_compute import (
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
from difftest.simulator.frontend.classic.isa_select import (
    affine_select,
    range_select,
    select_reduce,
)
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.language import fp32
from difftest.simulator.frontend.classic.operators import on_chip
from difftest.simulator.frontend.classic.products import product
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.frontend.dispatch import make_dispatching
from difftest.simulator.index import Index, as_integers
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import copy as copies
from difftest.simulator.instructions import dma
from difftest.simulator.instructions import matmul as products
from difftest.simulator.instructions.alu import alu_op

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown
constants = types.SimpleNamespace(engine=engine)
_OobMode, _DgeMode = oob_mode, dge_mode

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
    if not (mask is None or isinstance(mask, (bool, np.bool_))):
        raise not_modelled(
            "nc_matmul's mask over index expressions", f"{mask!r}", "slice the operands instead"
        )
    if type(tile_position) is type(tile_size) is tuple and not tile_position + tile_size:
        placement: tuple[Any, ...] = ((), ())
    else:
        placement = (
            as_integers(tile_position, "tile_position"),
            as_integers(tile_size, "tile_size"),
        )
    result: Tensor = product(stationary, moving, placement, mask)
    return result


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
    if mask is not None and not isinstance(mask, (bool, np.bool_)):
        raise not_modelled("nc_transpose's mask over index expressions", f"{mask!r}", "slice data")
    chosen = as_engine(engine, "nc_transpose")
    result: Tensor = issue(products.nc_transpose, (data,), dtype=dtype, engine=chosen, mask=mask)
    return result


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
    rmw = None if dst_rmw_op is None else alu_op(dst_rmw_op, "dma_copy")
    dge = as_member(_DgeMode, dge_mode, "a DMA").name
    skip = as_member(_OobMode, oob_mode, "dma_copy") is _OobMode.skip
    if dst is None:
        raise KernelError("dma_copy takes a tile as dst", received="None")
    gathers, scatters = isinstance(src, IndirectTile), isinstance(dst, IndirectTile)
    if not gathers and not scatters:
        issue(dma.dma_copy, (src,), (rmw, dge), dst=dst, mask=mask)
        return
    if mask is not None:
        raise not_modelled("dma_copy's mask beside a tile of indices", f"{mask!r}")
    if scatters and not gathers:
        issue(dma.dma_scatter, (src,), (rmw, skip, dge), dst=dst)
    elif scatters or rmw is not None:
        raise not_modelled("a dma_copy that gathers and scatters or adds", f"{src!r}, {dst!r}")
    else:
        issue(dma.dma_gather, (src,), (skip, dge), dst=dst)


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
    order = None if axes is None else as_integers(axes, "axes")
    dge = as_member(_DgeMode, dge_mode, "a DMA").name
    result: Tensor = issue(dma.dma_transpose, (src,), (order, dge), dtype=dtype)
    return result


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
    chosen = as_engine(engine, "tensor_copy")
    result: Tensor = issue(copies.tensor_copy, (src,), dtype=dtype, engine=chosen, mask=mask)
    return result


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
    chosen = as_engine(engine, "tensor_copy_dynamic_src")
    result: Tensor = issue(copies.tensor_copy_dynamic_src, (src,), dtype=dtype, engine=chosen)
    return result


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
    chosen = as_engine(engine, "tensor_copy_dynamic_dst")
    issue(copies.tensor_copy_dynamic_dst, (src,), dst=dst, engine=chosen)


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
    issue(copies.tensor_copy_predicated, (src, predicate), (bool(reverse_pred),), dst=target)


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
    sizes, _ = as_shape(shape, "nisa.memset")
    chosen = as_engine(engine, "memset")
    result: Tensor = issue(
        copies.memset, (value,), (sizes,), dtype=as_dtype(dtype), engine=chosen, mask=mask
    )
    return result


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
    result: Tensor = issue(copies.iota, (expr,), dtype=as_dtype(dtype))
    return result


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
