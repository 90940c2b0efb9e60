from difftest.simulator import TRN2
from difftest.simulator.trace import Engine
from difftest.timing.cost_model import SHARED, CostModel
from tests.unit.timing.programs import Builder, whole


def costing():
    return CostModel(TRN2)


def events(*operands, opcode="tensor_copy", engine=Engine.VECTOR):
    """One instruction for each (target, source)."""
    build = Builder()
    for make in operands:
        target, source = make(build)
        build.emit(opcode, engine, [target], [source])
    return build.trace.events


def tiles(columns, dtype="float32", psum=False):
    def make(build):
        source = (
            build.psum((128, columns))
            if psum
            else build.tensor((128, columns), dtype=dtype)
        )
        return whole(build.tensor((128, columns), dtype=dtype)), whole(source)

    return make


def test_instructions_of_one_kind_share_their_cost():
    known = costing()
    one, other = events(tiles(512), tiles(512))
    assert known.of(one) is known.of(other)


def test_instructions_with_different_costs_are_distinct():
    known = costing()
    found = events(tiles(512), tiles(128), tiles(512, "float16"), tiles(512, psum=True))
    intervals = [known.of(event).times[Engine.VECTOR].interval for event in found]
    assert len(set(intervals)) == 4


def test_a_stride_and_a_function_change_the_cost():
    def apart(build):
        wide = build.tensor((128, 512 * 9))
        region = whole(wide)._replace(shape=(128, 512), strides=(512 * 9, 9))
        return whole(build.tensor((128, 512))), region

    known = costing()
    dense, strided = events(tiles(512), apart)
    assert known.of(dense) is not known.of(strided)
    build = Builder()
    for op in ("exp", "copy"):
        tile = whole(build.tensor((128, 512)))
        build.emit("activation", Engine.SCALAR, [tile], [tile], op=op)
    one, other = build.trace.events
    assert known.of(one).times[Engine.SCALAR].cost.variant == "*"
    assert known.of(other).times[Engine.SCALAR].cost.variant == "copy sbuf"


def test_a_copy_without_an_engine_has_a_cost_on_each():
    (event,) = events(tiles(512), engine=Engine.UNKNOWN)
    assert set(costing().of(event).times) == set(SHARED)


def test_products_of_one_kind_are_one():
    build = Builder()
    for columns in (512, 512, 256):
        stationary = build.tensor((128, 128))
        moving = build.tensor((128, columns))
        build.matmul(build.psum((128, columns)), stationary, moving)
    known = costing()
    one, other, narrow = (known.of(event).matmul for event in build.trace.events)
    assert one is other
    assert narrow.rows == one.rows / 2
