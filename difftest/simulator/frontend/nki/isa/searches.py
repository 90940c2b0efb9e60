"""``nki.isa``: searches within partitions, gathers, shuffles and selections."""

from __future__ import annotations

import numpy as np

from difftest.simulator.core import current
from difftest.simulator.errors import kernel_location, not_modelled, warn
from difftest.simulator.frontend.nki.calls import OperatorName, affine, call, commands, issue
from difftest.simulator.frontend.nki.constants import reduce_cmd as registers
from difftest.simulator.frontend.nki.levels import check_level, is_before, public
from difftest.simulator.index import as_integer, is_integer
from difftest.simulator.instructions import gather, search, select
from difftest.simulator.instructions import topk as snakes
from difftest.simulator.instructions.alu import alu_op
from difftest.simulator.instructions.operands import need_number, need_tile
from difftest.simulator.trace import Space

_EQUAL, _MAXIMUM = OperatorName("equal"), OperatorName("maximum")
_FP32_MIN = float(np.finfo(np.float32).min)


@call(search.max8)
def max8(dst, src, name=None):
    """The 8 largest values of each partition, descending."""


@call(search.nc_find_index8, all_ones=True)
def nc_find_index8(dst, data, vals, name=None):
    """The index of each of 8 values in its partition; all ones for one that is not there."""


@call(search.nc_match_replace8, backwards=True)
def nc_match_replace8(dst, data, vals, imm, dst_idx=None, name=None):
    """``dst = data`` with the first occurrence of each of 8 values replaced by ``imm``."""


@call(search.local_gather)
def local_gather(dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, name=None):
    """Gather within each GpSimd core's 16 partitions: [P, indices, elements]."""


@call(search.nc_stream_shuffle)
def nc_stream_shuffle(dst, src, shuffle_mask, name=None):
    """``dst[q + i] = src[q + shuffle_mask[i]]`` in each quadrant of 32 partitions."""


@call(search.sequence_bounds)
def sequence_bounds(dst, segment_ids, name=None):
    """Start and end of each element's segment: [1, 2, n] for ids [1, n]."""


@call(gather.nc_n_gather)
def nc_n_gather(dst, data, indices, name=None):
    """``dst[p, i] = data[p, indices[p, i]]``, the free axes of each taken as one."""


@call(gather.nonzero_with_count)
def nonzero_with_count(dst, src, index_offset=0, padding_val=-1, name=None):
    """Indices of what is not 0, padding, and their count; in each 16th partition."""


class TopKWarning(UserWarning):
    """AWS's pages at NKI 0.6 and 0.7 say different things of where topk's results lie."""


@public  # by hand: what lies beyond the results in their last column counts as never written
def topk(val_dst, idx_dst, src, n, sorted=False, name=None):
    """The largest of ``n`` elements in each 16 partitions, and their numbers, in the same layout.

    How many there are is val_dst's free size, k. Results fill the first ceil(k / 16) columns, down
    the partitions; what the last of these has beyond k is undefined, the others stay. Their order
    is not documented.
    """
    if sorted:
        remedy = "sort with nisa.max8 and its kin"
        raise not_modelled("nki.isa.topk's sorted=True", f"sorted={sorted!r}", remedy)
    issued = issue(snakes.topk, val_dst, (src,), (as_integer(n, "n"),), others=(idx_dst,))
    if current().level is None or is_before("0.7"):
        warn(
            TopKWarning(
                f"topk writes its results down 16 partitions ({kernel_location()}), as AWS's page "
                "of NKI 0.7 and its library have it; the page of NKI 0.6 has them in each "
                "partition, ascending. Rely on the values alone, not on their order."
            )
        )
    for dst in (val_dst, idx_dst):
        _forget_rest(dst)
    return issued


def _forget_rest(dst):
    """Let what topk's last column has beyond the results count as never written."""
    lanes = current().machine.gpsimd_core_partitions
    column, used = divmod(dst.size // dst.shape[0], lanes)
    if not used:
        return
    missing = np.zeros((dst.shape[0], dst.size // dst.shape[0]), dtype=np.bool_)
    missing[np.arange(dst.shape[0]) % lanes >= used, column] = True
    dst._forget_written(missing.reshape(dst.shape), dst._origin("left by topk"))


def _predicate(values, where):
    """The affine expression; ``offset`` came third once, before the multiplier."""
    if is_integer(values["on_true_tile"]):
        check_level("nisa.affine_select with offset third")
        order = ("channel_multiplier", "on_true_tile", "on_false_value", "cmp_op", "offset")
        offset, multiplier, tile, value, op = (values[name] for name in order)
        given = (multiplier, tile, value, _EQUAL if is_integer(op) else op, offset)
        values.update(zip(order, given, strict=True))
    need_tile(values["on_true_tile"], "on_true_tile", where, (Space.SBUF,))
    values["pred"] = affine(values, where)


@call(select.affine_select, prepare=_predicate, pred=None)
def affine_select(
    dst,
    pattern,
    channel_multiplier,
    on_true_tile,
    on_false_value,
    cmp_op=_EQUAL,
    offset=0,
    name=None,
):
    """``dst = on_true_tile`` where ``cmp_op(affine value, 0)`` holds, else a constant."""


@call(
    select.range_select,
    prepare=commands("vector"),
    on_false_value=lambda value, where: float(
        np.float32(need_number(value, "on_false_value", where))
    ),
    reduce_op=alu_op,
)
def range_select(
    dst,
    on_true_tile,
    comp_op0,
    comp_op1,
    bound0,
    bound1,
    reduce_cmd=registers.reset_reduce,
    reduce_res=None,
    reduce_op=_MAXIMUM,
    range_start=0,
    on_false_value=_FP32_MIN,
    name=None,
):
    """``dst = on_true_tile`` where the free index lies between two bounds held in tiles."""


@call(select.select_reduce, prepare=commands("vector"), reduce_op=alu_op)
def select_reduce(
    dst,
    predicate,
    on_true,
    on_false,
    reduce_res=None,
    reduce_cmd=registers.idle,
    reduce_op=_MAXIMUM,
    reverse_pred=False,
    name=None,
):
    """``dst = predicate ? on_true : on_false``, and optionally its maximum a partition."""
