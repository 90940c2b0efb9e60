"""Computation on the Vector, Scalar, GpSimd and Tensor Engines in ``nki.isa``.

Sums and searches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.dtypes import BFLOAT16, FLOAT32, TFLOAT32, dtype_name, is_float
from difftest.simulator.errors import DtypeError, kernel_location, not_modelled, warn
from difftest.simulator.frontend.arguments import last_axes, not_taken, reads_out
from difftest.simulator.frontend.dispatch import declare
from difftest.simulator.frontend.levels import check_level, is_before, public
from difftest.simulator.frontend.nki.calls import (
    OperatorName,
    affine,
    average,
    beside,
    call,
    command,
    commands,
    function,
    issue,
    stage,
)
from difftest.simulator.frontend.nki.constants import (
    UNKNOWN,
    matmul_perf_mode,
    member_of,
)
from difftest.simulator.frontend.nki.constants import engine as engines
from difftest.simulator.frontend.nki.constants import reduce_cmd as registers
from difftest.simulator.frontend.nki.tensor import IndirectTensor
from difftest.simulator.index import as_integer, as_integers, is_index_integer
from difftest.simulator.instructions import activation as functions
from difftest.simulator.instructions import gather, matmul, mx, reduce, select
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.checks import is_number, need_number, need_tile
from difftest.simulator.instructions.record import DMA_SPACES, HBM, ON_CHIP
from difftest.simulator.instructions.registers import Accumulate
from difftest.simulator.strictness import report_violation
from difftest.simulator.tile import Tile
from difftest.simulator.trace import Engine, Space

_EQUAL = OperatorName("equal")
_MAXIMUM = OperatorName("maximum")
_FP32_MIN = float(np.finfo(np.float32).min)


def _with_registers(values, where):
    if values["reduce_res"] is None:
        check_level("nisa.tensor_scalar_reduce without reduce_res")
    if values["reverse0"]:
        raise not_modelled(
            f"{where}'s reverse0 (AWS: not supported yet)", "reverse0=True"
        )
    beside(op0="operand0")(values, where)


# fmt: off
class ArithmeticCalls:
    """The signatures of calls that need only a record and converters."""

    def tensor_tensor(dst, data1, data2, op, engine=UNKNOWN, name=None): ...
    def tensor_scalar(dst, data, op0, operand0, reverse0=False, op1=None, operand1=None,
                      reverse1=False, engine=UNKNOWN, name=None): ...
    def scalar_tensor_tensor(dst, data, op0, operand0, op1, operand1, reverse0=False,
                             reverse1=False, name=None): ...
    def reciprocal(dst, data, name=None): ...
    def tensor_tensor_scan(dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False,
                           name=None): ...
    def dropout(dst, data, prob, name=None): ...
    def bn_stats(dst, data, name=None): ...
    def bn_aggr(dst, data, name=None): ...
    def activation(dst, op, data, bias=None, scale=1.0, reduce_op=None, reduce_res=None,
                   reduce_cmd=registers.idle, name=None): ...
    def activation_reduce(dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0,
                          name=None): ...
    def activate2(dst, op, data, imm0, imm1, op0, op1, relu_param=0.0, reverse0=False,
                  reverse1=False, reduce_op=None, reduce_res=None, reduce_cmd=registers.idle,
                  name=None): ...
    def tensor_partition_reduce(dst, op, data, name=None): ...
    def tensor_scalar_reduce(dst, data, op0, operand0, reduce_op, reduce_res=None, reverse0=False,
                             reduce_cmd=registers.reset_reduce, reduce_init=None,
                             reduce_res_negate=False, name=None): ...
    def tensor_scalar_cumulative(dst, src, op0, op1, imm0, imm1=None,
                                 reduce_cmd=registers.reset_reduce, name=None): ...
    def exponential(dst, src, max_value=0.0, reduce_res=None, reduce_cmd=registers.idle,
                    reduce_init=0.0, name=None): ...
    def max8(dst, src, name=None): ...
    def nc_find_index8(dst, data, vals, name=None): ...
    def nc_match_replace8(dst, data, vals, imm, dst_idx=None, name=None): ...
    def local_gather(dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None,
                     name=None): ...
    def nc_stream_shuffle(dst, src, shuffle_mask, name=None): ...
    def sequence_bounds(dst, segment_ids, name=None): ...
    def nc_n_gather(dst, data, indices, name=None): ...
    def nonzero_with_count(dst, src, index_offset=0, padding_val=-1, name=None): ...
    def range_select(dst, on_true_tile, comp_op0, comp_op1, bound0, bound1,
                     reduce_cmd=registers.reset_reduce, reduce_res=None, reduce_op=_MAXIMUM,
                     range_start=0, on_false_value=_FP32_MIN, name=None): ...
    def select_reduce(dst, predicate, on_true, on_false, reduce_res=None,
                      reduce_cmd=registers.idle, reduce_op=_MAXIMUM, reverse_pred=False,
                      name=None): ...
# fmt: on


def _on_false_value(value, where):
    return float(need_number(value, "on_false_value", where))


def _with_start(values, where):
    """Replace the default initial value 0 by None, unless the command loads a value."""
    commands("vector")(values, where)
    start = values["reduce_init"]
    loads = values["reduce_cmd"] is Accumulate.LOAD_REDUCE
    if is_number(start) and start == 0 and not loads:
        values["reduce_init"] = None


_BY_VECTOR = {"prepare": commands("vector")}
_BY_SCALAR = {"prepare": commands("scalar"), "op": function}
declare(
    ArithmeticCalls,
    call,
    tensor_scalar={"prepare": beside(op0="operand0", op1="operand1")},
    scalar_tensor_tensor={"prepare": beside(op0="operand0")},
    activation={"prepare": commands("scalar", infers=True), "op": function},
    activation_reduce={
        "record": functions.activation,
        "prepare": reads_out,
        "op": function,
        "reduce_cmd": Accumulate.RESET_REDUCE,
    },
    activate2={**_BY_SCALAR, "op0": stage, "op1": stage},
    tensor_partition_reduce={"op": average},
    tensor_scalar_reduce={"prepare": _with_registers, "reduce_cmd": command},
    tensor_scalar_cumulative={"prepare": beside(op0="imm0"), "reduce_cmd": command},
    exponential={"prepare": _with_start},
    nc_find_index8={"all_ones": True},
    nc_match_replace8={"backwards": True},
    range_select={**_BY_VECTOR, "on_false_value": _on_false_value, "reduce_op": alu_op},
    select_reduce={**_BY_VECTOR, "reduce_op": alu_op},
)


@call(reduce.tensor_reduce)
def tensor_reduce(dst, op, data, axis, negate=False, keepdims=False, name=None):
    """Reduce the last free axes of data by op; multiply by -1 if ``negate``."""
    need_tile(data, "data", "tensor_reduce", ON_CHIP + HBM)
    axis = last_axes(axis, data, "tensor_reduce")
    return locals()


class TopKWarning(UserWarning):
    """AWS's pages at NKI 0.6 and 0.7 differ on the places of topk's results."""


@public  # by hand: elements behind the results in their last column count as unwritten
def topk(val_dst, idx_dst, src, n, sorted=False, name=None):
    """Find the largest of ``n`` elements in each 16 partitions, and their numbers.

    The number of results is val_dst's free size, k. Results have the layout of the data: they fill
    the first ceil(k / 16) columns, down the partitions. In the last of these columns, elements
    beyond k are undefined. Other columns are unchanged. The order of the results is not documented.
    """
    if sorted:
        raise not_modelled(
            "topk's sorted=True", f"sorted={sorted!r}", "sort with nisa.max8"
        )
    issued = issue(
        gather.topk, val_dst, (src,), (as_integer(n, "n"),), others=(idx_dst,)
    )
    if current().level is None or is_before("0.7"):
        warn(
            TopKWarning(
                f"topk writes its results down 16 partitions ({kernel_location()}), as AWS's page "
                "of NKI 0.7 and its library have it; the page of NKI 0.6 has them in each "
                "partition, ascending. Rely on the values alone, not on their order."
            )
        )
    lanes = current().machine.gpsimd_core_partitions
    for dst in (val_dst, idx_dst):
        rows = dst.shape[0]
        columns = dst.size // dst.shape[0]
        column, used = divmod(columns, lanes)
        if used:
            missing = np.zeros((rows, columns), dtype=np.bool_)
            missing[np.arange(rows) % lanes >= used, column] = True
            dst._forget_written(missing.reshape(dst.shape), dst._origin("left by topk"))
    return issued


@call(select.affine_select)
def affine_select(
    dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op=_EQUAL, offset=0,
    name=None,
):  # fmt: skip
    """Set ``dst = on_true_tile`` where ``cmp_op(affine value, 0)`` holds, else a constant."""
    # ``offset`` was once the third argument, before the multiplier
    if is_index_integer(on_true_tile):
        check_level("nisa.affine_select with offset third")
        offset, channel_multiplier, on_true_tile, on_false_value, cmp_op = (
            channel_multiplier,
            on_true_tile,
            on_false_value,
            cmp_op,
            _EQUAL if is_index_integer(offset) else offset,
        )
    need_tile(on_true_tile, "on_true_tile", "affine_select", DMA_SPACES)
    pred = affine(locals(), "affine_select")
    return locals()


# -- the Tensor Engine -----------------------------------------------------------------------------

_WIDE = (FLOAT32, TFLOAT32)
_NO_MODE = matmul_perf_mode.none
_WHOLE = ()


@public  # by hand: accumulation depends on elements, and indirect operands on groups
def nc_matmul(
    dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False,
    is_transpose=False, accumulate=None, tile_position=(), tile_size=(),
    perf_mode=matmul_perf_mode.none, name=None,
):  # fmt: skip
    """Multiply ``dst = stationary.T @ moving`` in PSUM, or add where a matmul wrote before.

    From NeuronCore-v3 on, with ``is_transpose`` and an identity as ``moving``, it is
    ``nc_transpose``
    of ``stationary``: exact in every bit, NaN and infinities included (Trainium2 architecture
    guide).
    """
    if perf_mode is not _NO_MODE:
        perf_mode = member_of(matmul_perf_mode, perf_mode, "nc_matmul")
    operands = (dst, stationary, moving)
    pe_tile = _pe_tile(tile_position, tile_size)
    dst, stationary, moving = _grouped("nc_matmul", operands, tiles=any(pe_tile))
    if is_transpose and isinstance(moving, IndirectTensor):
        raise not_taken(
            "nc_matmul with is_transpose",
            "no indirect moving operand",
            "an indirect moving operand",
            repr(moving),
        )
    _check_dtypes(dst, stationary, moving, transposes=bool(is_transpose))
    if (
        is_transpose
        and current().machine.nc_version >= 3
        and _is_identity(stationary, moving)
    ):
        return issue(matmul.nc_transpose, dst, (stationary,), engine=Engine.TENSOR)
    options = (accumulate, *pe_tile, perf_mode.name)
    return issue(matmul.nc_matmul, dst, (stationary, moving), options)


@public  # by hand: see nc_matmul
def nc_matmul_mx(
    dst, stationary, moving, stationary_scale, moving_scale, tile_position=None, tile_size=None,
    accumulate=None, name=None,
):  # fmt: skip
    """Multiply MX operands: ``dst = stationary.T @ moving``; add where a matmul wrote before."""
    _check_pair(stationary, stationary_scale, "stationary")
    _check_pair(moving, moving_scale, "moving")
    pe_tile = _pe_tile(tile_position, tile_size)
    accesses = (dst, stationary, moving, stationary_scale, moving_scale)
    dst, *operands = _grouped("nc_matmul_mx", accesses, tiles=any(pe_tile))
    return issue(mx.nc_matmul_mx, dst, tuple(operands), (accumulate, *pe_tile))


@call(mx.quantize_mx)
def quantize_mx(dst, src, dst_scale, name=None):
    """Quantize src to packed float8 in ``dst``, with a scale for each group in ``dst_scale``."""
    if is_before("0.5"):
        raise not_modelled(
            "quantize_mx before NKI 0.5, of scales half as large", f"dst = {dst!r}"
        )
    return locals()


@call(matmul.nc_transpose)
def nc_transpose(dst, data, engine=UNKNOWN, name=None):
    """Transpose ``dst = data.T`` between partitions and the flattened free axes."""
    if isinstance(dst, Tile) and isinstance(data, Tile) and dst.dtype != data.dtype:
        error = DtypeError(
            "nc_transpose's dst has the dtype of its data",
            happened=f"nc_transpose was to cast {dtype_name(data.dtype)} to "
            f"{dtype_name(dst.dtype)}",
            received=f"dst {dtype_name(dst.dtype)}, data {dtype_name(data.dtype)}",
            remedy="transpose into a tile of the data's dtype, then cast with nisa.tensor_copy",
        )
        wide = (
            dst.dtype == FLOAT32 and dst._space is Space.PSUM and is_float(data.dtype)
        )
        if not wide or engine is engines.vector:
            raise error
        # NKI 0.2 accepted this, and NeuronCore-v2's compiler requires it
        report_violation(error)
    return locals()


def _pe_tile(position, size):
    """Return the start and the size of its part of the PE array; ``()`` for the whole array."""
    options = (position, "tile_position"), (size, "tile_size")
    return tuple(
        () if numbers is None or numbers is _WHOLE else as_integers(numbers, name)
        for numbers, name in options
    )


def _check_dtypes(dst, stationary, moving, *, transposes):
    """Raise unless float32 meets float32 alone and dst is float32 (stub of nc_matmul, v2.32.0)."""
    if not all(isinstance(tile, Tile) for tile in (dst, stationary, moving)):
        return  # the record raises the error
    if (stationary.dtype in _WIDE) != (moving.dtype in _WIDE):
        got = f"{dtype_name(stationary.dtype)} with {dtype_name(moving.dtype)}"
        raise not_taken(
            "nc_matmul",
            "float32 and tfloat32 with each other only",
            got,
            got,
            error=DtypeError,
            remedy="cast both operands to one dtype",
        )
    if dst.dtype is FLOAT32:
        return
    version = current().machine.nc_version
    allowed = {FLOAT32} | ({BFLOAT16} if version >= 4 else set())
    if transposes:
        allowed.add(stationary.dtype)
    if dst.dtype not in allowed:
        limit = " or ".join(sorted(dtype_name(dtype) for dtype in allowed))
        raise DtypeError(
            f"nc_matmul dst dtype must be {limit} on gen{version}",
            happened=f"nc_matmul got a dst of {dtype_name(dst.dtype)}",
            received=f"dst = {dst!r}",
            limit=limit,
        )


def _is_identity(stationary, moving):
    """Return whether ``moving`` is the identity that leaves ``stationary`` unchanged."""
    if not (isinstance(stationary, Tile) and isinstance(moving, Tile)):
        return False
    size = stationary.shape[0]
    in_sbuf = moving._space is stationary._space is Space.SBUF
    if not in_sbuf or moving._tile_shape() != (size, size):
        return False
    return bool(np.array_equal(moving._engine_values(), np.eye(size)))


# -- tensor indirection, whose offsets are in groups of 32 partitions (stubs at v2.32.0) -----------


class IndirectionWarning(UserWarning):
    """AWS's pages do not say whether an operand may be indirect."""


def _grouped(name: str, operands: tuple[Any, ...], *, tiles: bool) -> tuple[Any, ...]:
    """Return the operands, ``dst`` first, with indirect offsets in groups of 32.

    Raises
    ------
    KernelError : an operand is indirect, and the product uses a tile of the PE array (``tiles``).
    """
    indirect = [operand for operand in operands if isinstance(operand, IndirectTensor)]
    if not indirect:
        return operands
    if tiles:
        raise not_taken(
            name,
            "no PE tile with an indirect operand",
            "tile_position or tile_size beside one",
            repr(indirect[0]),
        )
    _check_indirect(name, operands[0], indirect)
    return tuple(
        item._grouped() if isinstance(item, IndirectTensor) else item
        for item in operands
    )


def _check_indirect(name: str, dst: Any, indirect: list[IndirectTensor]) -> None:
    """Raise, or warn, unless a product takes indirect operands of these dtypes."""
    for operand in indirect:
        if operand.dtype in _WIDE and operand is not dst:
            raise not_taken(
                name,
                "indirect operands of two bytes or one",
                f"one of {dtype_name(operand.dtype)}",
                repr(operand),
                error=DtypeError,
            )
    if isinstance(dst, IndirectTensor) and dst.dtype == FLOAT32:
        warn(
            IndirectionWarning(
                f"{name} scatters into float32 ({kernel_location()}): AWS's page lets dst be "
                "indirect, and names float16, bfloat16 and float8 as the dtypes of indirect "
                "operands"
            )
        )


def _check_pair(data: Any, scale: Any, role: str) -> None:
    """Raise unless an MX operand and its scales are indirect by the same index, or neither is.

    Raises
    ------
    KernelError : they differ.
    """
    indirect = [isinstance(tensor, IndirectTensor) for tensor in (data, scale)]
    if not any(indirect):
        return
    if all(indirect) and _index(data) == _index(scale):
        return
    raise not_taken(
        "nc_matmul_mx",
        f"{role} and its scales indirect by one index, or neither",
        f"{role} and {role}_scale by other indices, or one without",
        f"{role} = {data!r}, {role}_scale = {scale!r}",
    )


def _index(view: IndirectTensor) -> tuple[Any, ...]:
    index = view._index
    return index._storage.allocation.id, index._pattern, len(view._places)
