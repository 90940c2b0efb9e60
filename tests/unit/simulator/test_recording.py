"""Two steps of the classic API are one instruction: a move is joined with its producer."""

import gc

import numpy as np

from difftest.simulator import Engine, Space, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from difftest.simulator.recording import fuse_moves
from difftest.simulator.trace import Allocation, AnomalyKind, Event, EventKind, Region
from tests.every import every
from tests.unit.simulator.on_tiles import normal

STATIONARY = normal(2, 16, 8)
MOVING = normal(2, 16, 20)


def events_of(kernel, *arrays):
    return launch(kernel, arrays).trace.events


def summary(events):
    return [(event.opcode, event.attributes.accumulate) for event in events]


def matmul(a, b):
    out = nl.ndarray((8, 20), nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((8, 20), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(2):
        total += nisa.nc_matmul(nl.load(a[k]), nl.load(b[k]))
    result = nl.ndarray((8, 20), nl.float32, buffer=nl.sbuf)
    result[...] = nisa.tensor_copy(total)
    nisa.dma_copy(dst=out, src=result)
    return out


def test_a_matmul_accumulates_in_psum():
    events = events_of(matmul, STATIONARY, MOVING)
    assert summary(events) == [
        ("memset", False),
        *[("dma_copy", False), ("dma_copy", False), ("nc_matmul", True)] * 2,
        ("tensor_copy", False),
        ("dma_copy", False),
    ]
    total = events[0].writes[0].allocation
    for product in (events[3], events[6]):
        assert product.engine is Engine.TENSOR
        assert [region.allocation for region in product.writes] == [total]
        assert product.reads[-1].allocation is total
        assert [region.shape for region in product.reads] == [
            (16, 8),
            (16, 20),
            (8, 20),
        ]
        assert product.location.text.startswith("total += nisa.nc_matmul(")
    copied = events[7]
    assert copied.writes[0].allocation is events[8].reads[0].allocation
    assert copied.writes[0].allocation.space is Space.SBUF


def test_a_result_that_went_elsewhere_has_no_allocation():
    trace = launch(matmul, [STATIONARY, MOVING]).trace
    seen = {r.allocation.id for e in trace for r in (*e.writes, *e.reads)}
    assert seen == {a.id for a in trace.allocations}
    # the products; the copy was the last
    assert set(range(max(seen) + 1)) - seen == {
        6,
        9,
    }


def test_a_launch_leaves_nothing_to_the_garbage_collector():
    launch(matmul, [STATIONARY, MOVING], exact=True)
    gc.collect()
    launch(matmul, [STATIONARY, MOVING], exact=True)
    assert gc.collect() == 0


def late_sums(a, b):
    """Both products are there before either is added."""
    total = nl.zeros((8, 20), nl.float32, buffer=nl.psum)
    products = [nisa.nc_matmul(nl.load(a[k]), nl.load(b[k])) for k in range(2)]
    for product in products:
        total += product
    return total


def test_products_accumulate_whenever_they_are_added():
    def kernel(a, b):
        out = nl.ndarray((8, 20), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, late_sums(a, b))
        return out

    result = launch(kernel, [STATIONARY, MOVING])
    matmuls = [event for event in result.trace if event.opcode == "nc_matmul"]
    assert [event.attributes.accumulate for event in matmuls] == [True, True]
    assert [event.operand("stationary").allocation.shape for event in matmuls] == [
        (16, 8)
    ] * 2
    assert result.trace.count("tensor_tensor") == 0
    expected = np.einsum("kpm,kpn->mn", STATIONARY, MOVING)
    np.testing.assert_allclose(result.outputs[0], expected, atol=1e-5)


def test_a_product_that_is_used_elsewhere_too_is_multiplied_there_too():
    def kernel(a, b):
        total = nl.zeros((8, 20), nl.float32, buffer=nl.psum)
        product = nisa.nc_matmul(nl.load(a[0]), nl.load(b[0]))
        total += product
        nl.copy(product)

    events = events_of(kernel, STATIONARY, MOVING)
    assert [e[1] for e in summary(events) if e[0] == "nc_matmul"] == [False, True]


def test_a_product_of_overwritten_operands_is_added_unchanged():
    """Multiplying again would give another value: the Vector Engine adds the existing one."""

    def kernel(a, b):
        out = nl.ndarray((8, 20), nl.float32, buffer=nl.shared_hbm)
        total = nl.zeros((8, 20), nl.float32, buffer=nl.psum)
        stationary = nl.load(a[0])
        moving = nl.load(b[0])
        product = nisa.nc_matmul(stationary, moving)
        stationary[...] = 0.0
        total += product
        nl.store(out, total)
        return out

    result = launch(kernel, [STATIONARY, MOVING])
    assert [e[1] for e in summary(result.trace) if e[0] == "nc_matmul"] == [False]
    assert result.trace.count("tensor_tensor") == 1
    expected = STATIONARY[0].T @ MOVING[0]
    np.testing.assert_allclose(result.outputs[0], expected, atol=1e-5)


@every(
    "body, opcodes",
    [
        (lambda t, x: t.__setitem__(..., _declared(x)), ["activation", "tensor_copy"]),
        (
            lambda t, x: t.__setitem__(..., _used_twice(x)),
            ["activation", "activation", "tensor_copy"],
        ),
        (
            lambda t, x: t.__setitem__(..., nl.exp(_twice_as_wide(x))[:, 0:8]),
            ["tensor_copy", "activation", "tensor_copy"],
        ),
        (
            lambda t, x: t.__setitem__(..., nl.max(x, axis=1)),
            ["tensor_reduce", "tensor_copy"],
        ),
        (lambda t, x: _assigned_later(t, x), ["activation", "memset", "tensor_copy"]),
        (
            lambda t, x: t.__setitem__(..., _twice(t, x)),
            ["activation", "tensor_copy", "tensor_copy"],
        ),
    ],
)
def test_a_copy_of_the_kernel_is_not_fused(body, opcodes):
    def kernel(x):
        body(nl.ndarray((16, 8), nl.float32), nl.load(x))

    events = events_of(kernel, STATIONARY[0])
    assert [event.opcode for event in events] == ["dma_copy", *opcodes]


def _used_twice(x):
    result = nl.exp(x)
    nl.exp(result)
    return result


def _declared(x):
    tile = nl.ndarray((16, 8), nl.float32)
    tile[...] = nl.exp(x)
    return tile


def _twice_as_wide(x):
    return nl.broadcast_to(x[:, None, :], shape=(16, 2, 8)).reshape((16, 16))


def _assigned_later(t, x):
    result = nl.exp(x)
    nl.zeros((2, 2), nl.float32)
    t[...] = result


def _twice(t, x):
    result = nl.exp(x)
    t[...] = result
    return result


def made_and_moved(*, partial=False):
    """A matmul and the move of its result, as they are before they are joined."""
    shape = (8, 20)
    strides = (20, 1)
    product, total = (
        Allocation(number, Space.PSUM, shape, np.dtype(np.float32), 0, None)
        for number in (0, 1)
    )
    product.writes = product.reads = product.moves = 1
    result = Region(product, 0, shape, strides, role="dst")
    target = Region(total, 0, shape, strides, role="dst", whole=not partial)
    events = [
        Event(0, EventKind("nc_matmul", Engine.TENSOR), (result,), ()),
        Event(
            1,
            EventKind("tensor_copy", Engine.VECTOR),
            (target,),
            (result._replace(role="src"),),
        ),
    ]
    return events, {1: product}, target


@every("partial", [False, True])
def test_a_joined_instruction_keeps_its_roles(partial):
    events, moved, target = made_and_moved(partial=partial)
    (joined,) = fuse_moves(events, moved)
    assert joined.opcode == "nc_matmul"
    assert joined.writes == (target,)
    assert joined.reads == ()
    assert joined.writes[0].whole is not partial


def test_a_partial_result_covers_the_same_part_of_the_target():
    events, moved, target = made_and_moved()
    events[0].writes = (events[0].writes[0]._replace(whole=False),)
    (joined,) = fuse_moves(events, moved)
    assert joined.writes == (target._replace(whole=False),)


def test_anomalies_stay_with_the_instruction_that_is_left():
    """For a cast that overflows on its way into place, and for a product that is accumulated."""

    def kernel(a):
        out = nl.ndarray((8, 8), nl.float16, buffer=nl.shared_hbm)
        tile = nl.load(a)
        total = nl.zeros((8, 8), nl.float32, buffer=nl.psum)
        total += nisa.nc_matmul(tile, tile)
        result = nl.ndarray((8, 8), nl.float16, buffer=nl.sbuf)
        result[...] = nl.multiply(total, 1e-20)
        nl.store(out, result)
        return out

    events = events_of(kernel, np.full((4, 8), 1e20, np.float32))
    seen = {
        event.opcode: [anomaly.what for anomaly in event.seen]
        for event in events
        if event.seen
    }
    assert seen["nc_matmul"] == [AnomalyKind.INFINITY_MADE]
    large = events_of(kernel, np.full((4, 8), 1e15, np.float32))
    (cast,) = [
        event for event in large if event.seen and event.opcode == "tensor_scalar"
    ]
    assert [anomaly.what for anomaly in cast.seen] == [AnomalyKind.INFINITY_MADE]


def test_a_tile_has_one_region_for_each_role():
    def kernel(a):
        out = nl.ndarray(a.shape, nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(a)
        for _ in range(2):
            total = nl.add(tile, tile)
        nl.store(out, total)
        return out

    first, second = [
        event.reads
        for event in events_of(kernel, normal(8, 4))
        if event.opcode == "tensor_tensor"
    ]
    assert [region.role for region in first] == ["data1", "data2"]
    assert all(region is other for region, other in zip(first, second, strict=True))
