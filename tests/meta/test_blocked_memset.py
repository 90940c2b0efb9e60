"""The timing model once took a tensor's first block dimension for its partitions.

A property finds that bug: blocks are contiguous in each partition, so a blocked tensor costs the
same as a flat tensor with equal bytes in each partition.
"""

import math

import hypothesis
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from difftest.simulator import TRN2, launch
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.trace import Region
from difftest.timing import predict

SHAPES = st.tuples(
    st.lists(st.integers(1, 4), max_size=2).map(tuple),
    st.sampled_from((1, 2, 3, 32, 127, 128)),
    st.integers(1, 1000),
)
"""Blocks, partitions, and elements of a block in each partition."""


def latency(*shape):
    """Predicted us of a kernel that fills a tensor with zeros."""

    def kernel():
        nl.zeros(shape, nl.float32)

    return predict(launch(kernel).trace, TRN2, dge=True).latency


def check_that_blocks_cost_nothing(case):
    blocks, partitions, free = case
    blocked = latency(*blocks, nl.par_dim(partitions), free)
    flat = latency(nl.par_dim(partitions), math.prod(blocks) * free)
    assert blocked == flat, f"{case}: {blocked} us in blocks, {flat} us in one"


def search():
    """Check drawn cases, the same ones each time."""
    chosen = settings(
        max_examples=50,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
    )
    hypothesis.seed(0)(
        chosen(hypothesis.given(SHAPES)(check_that_blocks_cost_nothing))
    )()


def test_blocks_cost_nothing():
    search()


def test_the_first_block_dimension_for_the_partitions(monkeypatch):
    monkeypatch.setattr(Region, "partitions", property(lambda region: region.shape[0]))
    monkeypatch.setattr(Region, "_inside", lambda region, axes: axes[1:])

    with pytest.raises(AssertionError, match="us in blocks") as failure:
        search()
    assert str(failure.value).startswith("((1,), 2, ")
