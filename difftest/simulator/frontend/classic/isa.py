"""The module that kernels import as ``neuronxcc.nki.isa`` (usually ``nisa``), classic dialect.

Signatures are those of AWS's documentation at tag v2.26.0. Each call allocates a result, and the
instruction of :mod:`difftest.simulator.instructions` writes to it.
"""
# mypy: allow-untyped-defs

from __future__ import annotations

import types

import numpy as np

from difftest.simulator.frontend.arguments import (
    absent,
    dge_mode,
    engine,
    nc_version,
    oob_mode,
    reads_out,
    reduce_cmd,
)
from difftest.simulator.frontend.classic.calls import ISA, with_registers
from difftest.simulator.frontend.classic.language import fp32
from difftest.simulator.frontend.dispatch import as_called, declare, publish
from difftest.simulator.instructions.activation import activation
from difftest.simulator.instructions.alu import activation_name
from difftest.simulator.instructions.registers import Accumulate


# fmt: off
class IsaCalls:
    """The signatures of calls that need only a record and converters."""

    def tensor_copy(src, *, mask=None, dtype=None, engine=engine.unknown): ...
    def tensor_copy_dynamic_src(src, *, mask=None, dtype=None, engine=engine.unknown): ...
    def tensor_copy_dynamic_dst(*, dst, src, mask=None, dtype=None, engine=engine.unknown): ...
    def tensor_copy_predicated(*, src, dst, predicate, reverse_pred=False, mask=None,
                               dtype=None): ...
    def max8(*, src, mask=None, dtype=None): ...
    def nc_find_index8(*, data, vals, mask=None, dtype=None): ...
    def nc_match_replace8(*, data, vals, imm, dst_idx=None, mask=None, dtype=None): ...
    def local_gather(src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, *,
                     mask=None): ...
    def nc_stream_shuffle(src, dst, shuffle_mask, *, dtype=None, mask=None): ...
    def sequence_bounds(*, segment_ids, dtype=None): ...
    def range_select(*, on_true_tile, comp_op0, comp_op1, bound0, bound1,
                     reduce_cmd=reduce_cmd.idle, reduce_res=None, reduce_op=np.amax, range_start=0,
                     on_false_value=fp32.min, mask=None, dtype=None): ...
    def select_reduce(*, dst, predicate, on_true, on_false, reduce_res=None,
                      reduce_cmd=reduce_cmd.idle, reduce_op=np.amax, reverse_pred=False, mask=None,
                      dtype=None): ...
    def dma_transpose(src, *, axes=None, mask=None, dtype=None, dge_mode=dge_mode.unknown): ...
    def tensor_scalar(data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False,
                      *, dtype=None, mask=None, engine=engine.unknown): ...
    def scalar_tensor_tensor(*, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False,
                             dtype=None, mask=None): ...
    def tensor_tensor_scan(data0, data1, initial, op0, op1, reverse0=False, reverse1=False, *,
                           dtype=None, mask=None): ...
    def reciprocal(data, *, dtype=None, mask=None): ...
    def activation(op, data, *, bias=None, scale=1.0, reduce_op=None, reduce_res=None,
                   reduce_cmd=reduce_cmd.idle, mask=None, dtype=None): ...
    def activation_reduce(op, data, *, reduce_op, reduce_res, bias=None, scale=1.0, mask=None,
                          dtype=None): ...
    def bn_stats(data, *, mask=None, dtype=None): ...
    def bn_aggr(data, *, mask=None, dtype=None): ...
    def dropout(data, prob, *, mask=None, dtype=None): ...
    def tensor_partition_reduce(op, data, *, mask=None, dtype=None): ...
    def nc_transpose(data, *, mask=None, dtype=None, engine=engine.unknown): ...
# fmt: on


declare(
    IsaCalls,
    ISA.issues,
    nc_find_index8={"all_ones": False},
    nc_match_replace8={"backwards": False},
    dma_transpose={"oob_mode": "error"},
    activation={"prepare": with_registers, "op": activation_name},
    activation_reduce={
        "record": activation,
        "prepare": reads_out,
        "op": activation_name,
        "reduce_cmd": Accumulate.RESET_REDUCE,
    },
)
constants = types.SimpleNamespace(
    engine=engine,
    dge_mode=dge_mode,
    oob_mode=oob_mode,
    reduce_cmd=reduce_cmd,
    nc_version=nc_version,
)
__getattr__ = absent(
    "nki.isa", frozenset({"builtin_custom_op", "dma_engine"}), globals()
)
publish(
    globals(),
    {
        **vars(constants),
        **{
            f"{member.name}_engine": member
            for member in engine
            if member is not engine.sync
        },
        **as_called("nisa", ISA),
        "constants": constants,
        "fp32": fp32,
    },
)
