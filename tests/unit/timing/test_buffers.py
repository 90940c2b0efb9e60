from difftest.simulator.machine import TRN2
from difftest.simulator.trace import Space
from difftest.timing.buffers import Buffers, Memory
from difftest.timing.schedule import schedule
from tests.unit.timing.programs import Builder


def streamed(tiles, kib):
    """Tiles that are loaded and stored, without dependences on each other."""
    build = Builder()
    for _ in range(tiles):
        build.store(build.load((128, kib * 256)))
    return build.program()


def of(program):
    return Buffers(
        program.machine, [(one.opens, one.closes) for one in program.instructions]
    )


def test_each_tile_has_its_own_place_until_none_is_left():
    program = streamed(4, 64)  # 208 KiB hold three
    timeline = schedule(program, dge=False)
    loads = [span for span in timeline.spans if not span.instruction.is_store]
    stores = [span for span in timeline.spans if span.instruction.is_store]
    assert [span.buffer for span in loads] == [False, False, False, True]
    assert loads[3].start > stores[0].end
    assert timeline.timeline.spilled == 0


def test_places_are_given_in_program_order():
    build = Builder()
    memory = Memory(100, 1)
    big = build.tensor((128, 24))
    small = build.tensor((128, 1))
    for one in (big, big, small):
        memory.enter(one)
    assert memory.grant() == [big]
    assert memory.release(big) == [big, small]


def test_psum_is_given_by_banks():
    build = Builder()
    for _ in range(9):
        tile = build.load((128, 128))
        total = build.psum((128, 128))
        build.matmul(total, tile, tile)
        build.store(build.add(tile, tile))
    buffers = of(build.program())
    assert buffers[Space.PSUM].enter(build.psum((128, 128))) == TRN2.psum_bank_bytes


def test_small_tiles_share_banks_if_there_are_not_enough():
    build = Builder()
    tile = build.load((128, 128))
    totals = [build.psum((128, 128)) for _ in range(12)]
    for total in totals:
        build.matmul(total, tile, tile)
    for total in totals:
        build.store(build.add(tile, total))
    assert of(build.program())[Space.PSUM].enter(totals[0]) == 512
    assert len(schedule(build.program(), dge=False).spans) == 1 + 12 + 24
