"""Planted bugs in instructions under a mask that is not a box: the plain mode detects each."""

import numpy as np
import pytest

from difftest.simulator import OracleError, UnwrittenError, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.instructions import irregular_masks, masked
from tests.every import every
from tests.unit.simulator.on_tiles import written

DATA = (
    np.random.default_rng(5).permutation(16 * 16).astype(np.float32).reshape(16, 16) + 1
)


def assigned(shape, compute):
    """A kernel that assigns a masked result to a tile of zeros."""

    def kernel(tensor):
        p, x = nl.mgrid[0:16, 0:16]
        target = nl.zeros(shape, nl.float32)
        target[...] = compute(nl.load(tensor), (x + 2 >= p) & (p >= 1))
        return written(target)

    return kernel


def agree(kernel, data=DATA):
    """Return whether the oracle agrees with the kernel."""
    try:
        launch(kernel, [data], plain=True)
    except OracleError:
        return False
    return True


DIFFERENCE = assigned(
    (16, 1), lambda x, mask: nisa.tensor_reduce(np.subtract, x, axis=1, mask=mask)
)
STATISTICS = assigned(
    (16, 6), lambda x, mask: nisa.bn_stats(nl.minimum(x, 9.0), mask=mask)
)
COPY = assigned((16, 16), lambda x, mask: nl.copy(x, mask=mask))
ADDED_UP = assigned((16, 16), lambda x, mask: accumulated(x, mask))


def accumulated(x, mask):
    """Fill registers by two masked instructions; the second leaves partitions out."""
    total = nl.zeros((16, 1), nl.float32)
    reset = nisa.reduce_cmd.reset_reduce
    reduce = nisa.reduce_cmd.reduce
    nisa.activation(nl.copy, x, reduce_op=np.add, reduce_res=total, reduce_cmd=reset)
    nisa.activation(
        nl.copy, x, reduce_op=np.add, reduce_res=total, reduce_cmd=reduce, mask=mask
    )
    return nl.multiply(nl.ones((16, 16), nl.float32), total)


@every("kernel", [DIFFERENCE, STATISTICS, COPY, ADDED_UP])
def test_the_modes_agree_without_a_bug(kernel):
    assert agree(kernel)


@every("name", irregular_masks.NEUTRAL)
def test_an_identity_that_is_none(name, monkeypatch):
    """Replace an identity by a number that decides, or by a zero of the other sign."""

    def reduced(x, mask):
        x = nl.copy(x, dtype=nl.int32) if "bitwise" in name else x
        return nisa.tensor_reduce(
            getattr(np, name), x, axis=1, dtype=x.dtype, mask=mask
        )

    kernel = assigned((16, 1), reduced)
    neutral = irregular_masks.NEUTRAL[name]
    data = -0.0 * DATA if name in ("add", "logical_or", "logical_xor") else DATA + 1024
    assert agree(kernel, data)
    other = {0: -1, -1: 0, 1: 0, np.inf: -np.inf, -np.inf: np.inf}[neutral]
    monkeypatch.setitem(irregular_masks.NEUTRAL, name, 0.0 if name == "add" else other)
    assert not agree(kernel, data)


def test_a_difference_that_begins_with_a_masked_out_element(monkeypatch):
    monkeypatch.setattr(
        irregular_masks, "first_to_front", lambda values, inner, axes: values * inner
    )
    assert not agree(DIFFERENCE)


def test_rows_that_keep_masked_out_elements(monkeypatch):
    by_row = irregular_masks.by_row
    monkeypatch.setattr(
        irregular_masks,
        "by_row",
        lambda call, values, inner: by_row(call, values, inner | True),
    )
    assert not agree(STATISTICS)


def test_a_box_that_is_one_too_small(monkeypatch):
    def small(mask):
        box = masked_box(mask)
        return box and (box[0], slice(box[1].start, max(box[1].stop - 1, 1)))

    masked_box = masked.mask_box
    monkeypatch.setattr(masked, "mask_box", small)
    assert not agree(COPY)


def test_registers_of_other_partitions(monkeypatch):
    registers_of = irregular_masks.registers_of

    def first_ones(core, rows):
        return registers_of(core, None if rows is None else np.arange(len(rows)))

    monkeypatch.setattr(irregular_masks, "registers_of", first_ones)
    monkeypatch.setattr(masked, "registers_of", first_ones)
    assert not agree(ADDED_UP)


@every("by", [lambda p, x: x >= p, lambda p, x: p < 8, lambda p, x: p >= 0])
def test_an_unwritten_operand_is_an_error_under_each_mask(by):
    """It is an error although the mask selects only the other side, as without a mask."""

    def kernel(tensor):
        p, x = nl.mgrid[0:16, 0:16]
        tile = nl.load(tensor)
        never = nl.ndarray((16, 16), nl.float32)
        return written(nl.where(nl.greater(tile, 0), tile, never, mask=by(p, x)))

    with pytest.raises(UnwrittenError, match="read elements that were never written"):
        launch(kernel, [DATA])


@every("more", [0, 1])
def test_masked_out_elements_of_a_repeated_operand_may_be_unwritten(more):
    """Elements that the mask keeps must be written."""

    def kernel(tensor):
        p, _, x = nl.mgrid[0:16, 0:2, 0:4]
        repeats = nl.ndarray((16, 1, 4), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(src=tensor[1:16, 0:4], dst=repeats[1:16, 0, 0:4])
        nisa.dma_copy(src=tensor[0:1, 0:1], dst=repeats[0:1, 0, 0:1])
        made = nl.add(nl.ones((16, 2, 4), nl.float32), repeats, mask=x <= p + more)
        return written(nl.copy(made[0:1, 0:1, 0 : 1 + more]))

    if more:
        with pytest.raises(UnwrittenError):
            launch(kernel, [DATA])
    else:
        assert launch(kernel, [DATA]).outputs[0] == DATA[0, 0] + 1
