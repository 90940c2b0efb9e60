"""How today's dialect spells the instructions that it alone has, and a drawn call spelled so.

Each spelling gets the tensors by role and the options by the record's names, as a
:class:`~tests.unit.simulator.instructions.calls.drawn.DrawnCall` has them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from difftest.simulator import Engine, Space, launch
from difftest.simulator.frontend.nki import isa as nisa
from difftest.simulator.frontend.nki import language as nl
from difftest.simulator.frontend.nki.isa.searches import TopKWarning
from difftest.simulator.frontend.nki.kernel import jit
from difftest.simulator.instructions.activation import PRELU
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


def token(op: Any) -> Any:
    """The function of ``nl`` that stands for an operator; for None, no operation."""
    return nl.bypass if op is None else getattr(nl, op.name)


def exponential(t: Any, o: Any) -> None:
    start = 0.0 if t.reduce_init is None else t.reduce_init
    nisa.exponential(t.dst, t.src, t.max_value, t.reduce_res, COMMANDS[o.reduce_cmd], start)


def tensor_scalar_cumulative(t: Any, o: Any) -> None:
    command = COMMANDS[o.reduce_cmd]
    ops = (token(o.op0), token(o.op1))
    nisa.tensor_scalar_cumulative(t.dst, t.src, *ops, t.imm0, t.imm1, command)


def activate2(t: Any, o: Any) -> None:
    function = nl.prelu if o.op == PRELU else getattr(nl, o.op)
    nisa.activate2(
        *(t.dst, function, t.data, t.imm0, t.imm1, token(o.op0), token(o.op1), t.relu_param),
        *(o.reverse0, o.reverse1, token(o.reduce_op), t.reduce_res, COMMANDS[o.reduce_cmd]),
    )


def dma_compute(t: Any, o: Any) -> None:
    srcs = [x for name, x in vars(t).items() if name.startswith("src") and x is not None]
    nisa.dma_compute(t.dst, srcs, token(o.reduce_op), o.scales)


def nc_matmul_mx(t: Any, o: Any) -> None:
    scales = (t.stationary_scale, t.moving_scale)
    nisa.nc_matmul_mx(t.dst, t.stationary, t.moving, *scales, accumulate=o.accumulate)


def topk(t: Any, o: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopKWarning)
        nisa.topk(t.dst, t.idx_dst, t.src, o.n)


SPELLINGS: dict[str, Callable[[Any, Any], None]] = {
    "exponential": exponential,
    "tensor_scalar_cumulative": tensor_scalar_cumulative,
    "activate2": activate2,
    "nc_n_gather": lambda t, o: nisa.nc_n_gather(t.dst, t.data, t.indices),
    "nonzero_with_count": lambda t, o: nisa.nonzero_with_count(
        t.dst, t.src, o.index_offset, o.padding_val
    ),
    "topk": topk,
    "dma_compute": dma_compute,
    "quantize_mx": lambda t, o: nisa.quantize_mx(t.dst, t.src, t.dst_scale),
    "nc_matmul_mx": nc_matmul_mx,
    "rng": lambda t, o: nisa.rng(t.dst, engine=o.engine),
    "rand2": lambda t, o: nisa.rand2(t.dst, t.min, t.max),
}


def run_spelled(call: DrawnCall) -> list[Any]:
    """What the call leaves in each destination, spelled in today's dialect."""
    tensors = {**call.beside, **call.operands, **call.destinations}
    held = {name: one for name, one in tensors.items() if isinstance(one, Operand)}
    record = call.record
    options = SimpleNamespace(**dict(zip(record.options, call.options, strict=True)))
    chosen = Engine.VECTOR if call.engine is Engine.UNKNOWN else call.engine
    options.engine = ENGINES[chosen]

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
