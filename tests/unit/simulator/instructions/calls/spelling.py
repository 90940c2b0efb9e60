"""A drawn call as a kernel of each dialect writes it.

Roles and options of records have the names of the functions' parameters in both dialects. The few
that have not are written by hand.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from difftest.simulator import Engine
from difftest.simulator.dtypes import dtype_name
from difftest.simulator.instructions.activation import PRELU
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.registers import Accumulate
from tests.unit.simulator.instructions.calls.tensors import NAMES, Affine, Operand

if TYPE_CHECKING:
    from tests.unit.simulator.instructions.calls.drawn import DrawnCall

COMPARISONS = {"greater_equal": ">=", "greater": ">", "less_equal": "<=", "less": "<"}
COMPARISONS |= {"equal": "==", "not_equal": "!="}
Said = dict[str, str]
"""By role or option, its text."""


def named(dtype: Any) -> str:
    """A dtype's name in ``nki.language``."""
    return dtype_name(dtype).replace("bool", "bool_")


def said(value: Any, name: str) -> str:
    """Return an option, or another value than a tensor, as a kernel writes it."""
    if isinstance(value, AluOp):
        return f"np.{value.name}" if name == "dst_rmw_op" else f"nl.{value.name}"
    if isinstance(value, Accumulate):
        return f"nisa.reduce_cmd.{value.name.lower()}"
    if name in ("oob_mode", "dge_mode"):
        return f"nisa.{name}.{value}"
    if name == "op":
        return "nl.prelu" if value == PRELU else f"nl.{value}"
    return str(list(value) if name in ("axis", "shuffle_mask") else value)


def spelled(
    call: DrawnCall,
    dialect: str,
    names: Mapping[str, str] | None = None,
    more: str = "",
    *,
    dtype: bool = True,
) -> str:
    """The call, its tensors by the ``names`` of their roles, with ``more`` arguments after it.

    ``dtype`` tells whether a classic call names the dtype of its result.
    """
    record = call.record
    tensors = {**call.operands, **call.destinations}
    held = {**call.beside, **tensors}
    known = {role: role for role, one in held.items() if isinstance(one, Operand)}
    known |= names or {}
    for role, one in tensors.items():
        if isinstance(one, Operand) and one.at:
            known[role] = one.at.format(**known)
    values = {**dict(zip(record.options, call.options, strict=True)), **tensors}
    texts = {
        name: known.get(name) or said(value, name) for name, value in values.items()
    }
    by_hand = BY_HAND.get((dialect, record.name))
    if by_hand is not None:
        return by_hand(call, texts, more)
    texts = {name: text for name, text in texts.items() if values[name] is not None}
    return written(record.name, dialect, texts, call, more, dtype=dtype)


def written(
    name: str,
    dialect: str,
    texts: Said,
    call: DrawnCall,
    more: str,
    *,
    dtype: bool = True,
) -> str:
    """Return a call of a function with the texts for its parameters."""
    module, parameters = function(name, dialect)
    given = {one: texts[one] for one in parameters if one in texts}
    for one in parameters.keys() - given.keys():  # no operator
        if one != "dtype" and parameters[one].default is inspect.Parameter.empty:
            given[one] = "nl.bypass"
    said_dtype = dtype or name in ("iota", "memset")
    if "dtype" in parameters and "dst" not in parameters and said_dtype:
        given["dtype"] = f"nl.{named(call.role('dst').dtype)}"
    if "engine" in parameters and (
        call.engine is not Engine.UNKNOWN or not call.record.classic
    ):
        engine = Engine.VECTOR if call.engine is Engine.UNKNOWN else call.engine
        given["engine"] = f"nisa.engine.{engine.value}"
    return f"{module}.{name}({', '.join(f'{one}={text}' for one, text in given.items())}{more})"


@functools.cache
def function(name: str, dialect: str) -> tuple[str, Mapping[str, inspect.Parameter]]:
    """The module that has a function, and its parameters."""
    module = "nisa" if hasattr(NAMES[dialect]["nisa"], name) else "nl"
    parameters = inspect.signature(getattr(NAMES[dialect][module], name)).parameters
    return module, {
        one: p for one, p in parameters.items() if one not in ("name", "kwargs")
    }


# -- by hand ---------------------------------------------------------------------------------------


def _classic_product(call: DrawnCall, t: Said, more: str) -> str:
    """A product lacks its own dtype, and is added to the old contents."""
    tiled = f", tile_position={t['tile_position']}, tile_size={t['tile_size']}"
    product = f"nisa.nc_matmul({t['stationary']}, {t['moving']}{tiled}{more})"
    if call.options[0]:
        return f"{t['dst']} += {product}"
    return f"nisa.tensor_copy({product}, dtype=nl.{named(call.role('dst').dtype)})"


def _classic_select(call: DrawnCall, t: Said, more: str) -> str:
    compared = f"{t['pred']} {COMPARISONS[call.options[0].name]} 0"
    return written("affine_select", "classic", {**t, "pred": compared}, call, more)


def _today_product(call: DrawnCall, t: Said, more: str) -> str:
    tiled = f", tile_position={t['tile_position']}, tile_size={t['tile_size']}"
    tiled = tiled if call.options[2] else ""
    sides = f"{t['dst']}, {t['stationary']}, {t['moving']}"
    return f"nisa.nc_matmul({sides}, accumulate={t['accumulate']}{tiled}{more})"


def _today_copy(call: DrawnCall, t: Said, more: str) -> str:
    """Today's dialect adds to a destination by another instruction."""
    if call.options[0] is None:
        mode = "" if call.options[1] is None else f", oob_mode={t['oob_mode']}"
        return f"nisa.dma_copy({t['dst']}, {t['src']}, dge_mode={t['dge_mode']}{mode}{more})"
    return f"nisa.dma_compute({t['dst']}, [{t['dst']}, {t['src']}], nl.add{more})"


def _today_sum(call: DrawnCall, t: Said, more: str) -> str:
    srcs = ", ".join(t[name] for name, one in call.operands.items() if one is not None)
    return (
        f"nisa.dma_compute({t['dst']}, [{srcs}], {t['reduce_op']}, {t['scales']}{more})"
    )


def _today_transpose(call: DrawnCall, t: Said, more: str) -> str:
    return f"nisa.dma_transpose({t['dst']}, {t['src']}, {t['axes']}{more})"


def _today_topk(call: DrawnCall, t: Said, more: str) -> str:
    return f"nisa.topk({t['dst']}, {t['idx_dst']}, {t['src']}, {t['n']}{more})"


def _today_iota(call: DrawnCall, t: Said, more: str) -> str:
    index: Affine = call.operands["expr"]
    pattern = [[index.along, index.shape[1]]]
    return f"nisa.iota({t['dst']}, {pattern}, {index.start}, {index.step}{more})"


def _today_select(call: DrawnCall, t: Said, more: str) -> str:
    index: Affine = call.operands["pred"]
    where = f"[[{index.along}, {index.shape[1]}]], {index.step}"
    sides = f"{t['on_true_tile']}, {t['on_false_value']}"
    how = f"cmp_op={t['cmp_op']}, offset={index.start}"
    return f"nisa.affine_select({t['dst']}, {where}, {sides}, {how}{more})"


BY_HAND: dict[tuple[str, str], Callable[[DrawnCall, Said, str], str]] = {
    ("classic", "nc_matmul"): _classic_product,
    ("classic", "affine_select"): _classic_select,
    ("nki", "nc_matmul"): _today_product,
    ("nki", "dma_copy"): _today_copy,
    ("nki", "dma_compute"): _today_sum,
    ("nki", "dma_transpose"): _today_transpose,
    ("nki", "topk"): _today_topk,
    ("nki", "iota"): _today_iota,
    ("nki", "affine_select"): _today_select,
}
