"""Copies on chip, and views: ``nisa.tensor_copy`` and kin, ``nl.copy``, ``nl.broadcast_to``."""

from __future__ import annotations

from typing import Any

from difftest.simulator.errors import KernelError
from difftest.simulator.frontend.arguments import as_engine, as_flag, engine, no_extras, same_dtype
from difftest.simulator.frontend.classic.issue import issue
from difftest.simulator.frontend.classic.operators import on_chip
from difftest.simulator.frontend.classic.tensor import Tensor
from difftest.simulator.index import as_integers
from difftest.simulator.indirect import IndirectTile
from difftest.simulator.instructions import copy as instructions


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
    result: Tensor = issue(instructions.tensor_copy, (src,), dtype=dtype, engine=chosen, mask=mask)
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
    if not isinstance(src, IndirectTile):
        raise KernelError(
            "tensor_copy_dynamic_src takes a tile indexed by a tile",
            happened="tensor_copy_dynamic_src got a src without dynamic indices",
            received=f"src={src!r}",
        )
    chosen = as_engine(engine, "tensor_copy_dynamic_src")
    result: Tensor = issue(
        instructions.tensor_copy_dynamic_src, (src,), dtype=dtype, engine=chosen, mask=mask
    )
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
    if not isinstance(dst, IndirectTile):
        raise KernelError(
            "tensor_copy_dynamic_dst takes a dst indexed by a tile",
            happened="tensor_copy_dynamic_dst got a dst without dynamic indices",
            received=f"dst={dst!r}",
        )
    same_dtype(dtype, dst, "tensor_copy_dynamic_dst")
    chosen = as_engine(engine, "tensor_copy_dynamic_dst")
    issue(instructions.tensor_copy_dynamic_dst, (src,), dst=dst, engine=chosen, mask=mask)


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
    target = on_chip(dst, "tensor_copy_predicated", "dst")
    same_dtype(dtype, target, "tensor_copy_predicated")
    options = (as_flag(reverse_pred, "reverse_pred"),)
    issue(instructions.tensor_copy_predicated, (src, predicate), options, dst=target, mask=mask)


def copy(src: Any, *, mask: object = None, dtype: object = None, **kwargs: object) -> Tensor:
    """A new SBUF tile with the elements of an on-chip tile."""
    no_extras("nl.copy", kwargs)
    source = on_chip(src, "nl.copy", "src")
    tile: Tensor = issue(instructions.tensor_copy, (source,), dtype=dtype, mask=mask)
    return tile


copy.nki_name = "copy"  # type: ignore[attr-defined]


def broadcast_to(src: Any, *, shape: Any, **kwargs: object) -> Any:
    """A new SBUF tile that repeats ``src`` along its dimensions of size 1."""
    no_extras("nl.broadcast_to", kwargs)
    tile = on_chip(src, "nl.broadcast_to", "src")
    wanted = as_integers(shape, "nl.broadcast_to's shape")
    return tile if tile.shape == wanted else copy(tile.broadcast_to(wanted))


def expand_dims(data: Any, axis: Any) -> Any:
    """A view with dimensions of size 1 more; ``axis`` (or axes) of the result."""
    tile = on_chip(data, "nl.expand_dims", "data")
    axes = as_integers(axis, "nl.expand_dims' axis")
    ndim = tile.ndim + len(axes)
    for at in sorted(number + ndim if number < 0 else number for number in axes):
        tile = tile.expand_dims(at)
    return tile
