"""How today's dialect spells the instructions, and a drawn call spelled so.

Each spelling gets the tensors by role and the options by the record's names, as a
:class:`~tests.unit.simulator.instructions.calls.drawn.DrawnCall` has them.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from difftest.simulator import Engine, Space, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.isa.arithmetic import TopKWarning
from difftest.simulator.frontend.nki.kernel import jit
from difftest.simulator.instructions.activation import PRELU
from difftest.simulator.instructions.alu import AluOp
from difftest.simulator.instructions.record import INSTRUCTIONS
from difftest.simulator.instructions.registers import Accumulate
from tests.unit.simulator.instructions.calls.drawn import DrawnCall, Operand

BUFFERS = {
    Space.SHARED_HBM: nl.shared_hbm,
    Space.PRIVATE_HBM: nl.private_hbm,
    Space.SBUF: nl.sbuf,
    Space.PSUM: nl.psum,
}
COMMANDS = {one: getattr(nisa.reduce_cmd, one.name.lower(), None) for one in Accumulate}
ENGINES = {engine: getattr(nisa.engine, engine.value, nisa.engine.unknown) for engine in Engine}


def said(value: Any, name: str) -> Any:
    """What a kernel writes for an option of a record; ``nl.bypass`` for no operator."""
    if value is None:
        return nl.bypass
    if name == "op" and isinstance(value, str):
        return nl.prelu if value == PRELU else getattr(nl, value)
    if isinstance(value, AluOp):
        return getattr(nl, value.name)
    return COMMANDS[value] if isinstance(value, Accumulate) else value


def spelled(name: str) -> Callable[[Any, Any], None]:
    """The call with its arguments by name; None where they have a default is left out."""
    parameters = inspect.signature(getattr(nisa, name)).parameters

    def call(t: Any, o: Any) -> None:
        given = {one: value for one, value in {**vars(o), **vars(t)}.items() if one in parameters}
        for one in [one for one, value in given.items() if value is None]:
            if parameters[one].default is not inspect.Parameter.empty:
                del given[one]
        getattr(nisa, name)(**{one: said(value, one) for one, value in given.items()})

    return call


def dma_compute(t: Any, o: Any) -> None:
    srcs = [x for name, x in vars(t).items() if name.startswith("src") and x is not None]
    nisa.dma_compute(t.dst, srcs, said(o.reduce_op, "reduce_op"), o.scales)


def topk(t: Any, o: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopKWarning)
        nisa.topk(t.dst, t.idx_dst, t.src, o.n)


def nc_matmul(t: Any, o: Any) -> None:
    tiled = {"tile_position": o.tile_position, "tile_size": o.tile_size} if o.tile_size else {}
    nisa.nc_matmul(t.dst, t.stationary, t.moving, accumulate=o.accumulate, **tiled)


def dma_copy(t: Any, o: Any) -> None:
    """Today's dialect adds to a destination by another instruction."""
    if o.dst_rmw_op is None:
        nisa.dma_copy(t.dst, t.src, dge_mode=nisa.dge_mode[o.dge_mode])
    else:
        nisa.dma_compute(t.dst, [t.dst, t.src], said(o.dst_rmw_op, "reduce_op"))


def dma_transpose(t: Any, o: Any) -> None:
    nisa.dma_transpose(t.dst, t.src, o.axes)


def iota(t: Any, o: Any) -> None:
    start, step, along = affine(t.expr())
    nisa.iota(t.dst, [[along, t.dst.shape[1]]], start, step)


def affine_select(t: Any, o: Any) -> None:
    start, step, along = affine(t.pred())
    pattern = [[along, t.dst.shape[1]]]
    compared = {"cmp_op": said(o.cmp_op, "cmp_op"), "offset": start}
    nisa.affine_select(t.dst, pattern, step, t.on_true_tile, t.on_false_value, **compared)


def affine(expression: Any) -> tuple[int, int, int]:
    """The start of a classic index of two axes, and its steps along partitions and columns."""
    values = expression.array()
    last = [min(1, size - 1) for size in values.shape]
    start = int(values[0, 0])
    return start, int(values[last[0], 0]) - start, int(values[0, last[1]]) - start


SPELLINGS: dict[str, Callable[[Any, Any], None]] = {
    **{name: spelled(name) for name in INSTRUCTIONS if hasattr(nisa, name)},
    **{one.__name__: one for one in (dma_compute, topk, nc_matmul, dma_copy, dma_transpose)},
    **{one.__name__: one for one in (iota, affine_select)},
}


def run_spelled(call: DrawnCall) -> list[Any]:
    """What the call leaves in each destination, spelled in today's dialect."""
    tensors = {**call.beside, **call.operands, **call.destinations}
    held = {name: one for name, one in tensors.items() if isinstance(one, Operand)}
    record = call.record
    options = SimpleNamespace(**dict(zip(record.options, call.options, strict=True)))
    first = Engine.UNKNOWN if record.classic else Engine.VECTOR
    options.engine = ENGINES[first if call.engine is Engine.UNKNOWN else call.engine]

    @jit
    def kernel(*arrays: Any) -> Any:
        made = {
            name: _place(array, one)
            for array, (name, one) in zip(arrays, held.items(), strict=True)
        }
        tiles = SimpleNamespace(**{**tensors, **made})
        SPELLINGS[record.name](tiles, options)
        names = [role.name for role in record.destinations if role.name in made]
        return tuple(_returned(made[name]) for name in names if not held[name].is_newer)

    arrays = [one.array for one in held.values()]
    return list(launch(kernel, arrays, machine=call.machine).outputs)


def _place(tensor: Any, operand: Operand) -> Any:
    """The operand in its buffer, with its values if it holds them; zeros of a newer dtype."""
    made = nl.ndarray(tensor.shape, operand.dtype, buffer=BUFFERS[operand.space])
    if operand.is_newer:
        zeros = made if operand.space in (Space.SBUF, Space.PSUM) else None
        assert zeros is not None, "MX tensors of these calls lie on chip"
        nisa.memset(zeros, 0)
    elif operand.written and operand.space is Space.PSUM:
        nisa.tensor_copy(made, nl.load(tensor))
    elif operand.written:
        nisa.dma_copy(made, tensor)
    return made


def _returned(tensor: Any) -> Any:
    """Its elements in an output of the kernel."""
    out = nl.ndarray(tensor.shape, tensor.dtype, buffer=nl.shared_hbm)
    if nl.is_psum(tensor.buffer):
        moved = nl.ndarray(tensor.shape, tensor.dtype)
        nisa.tensor_copy(moved, tensor)
        tensor = moved
    nisa.dma_copy(out, tensor)
    return out
