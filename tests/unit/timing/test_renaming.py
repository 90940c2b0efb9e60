import numpy as np
import pytest

from difftest.simulator import TRN2, launch
from difftest.simulator.trace import Engine, Region
from difftest.timing import predict
from difftest.timing.renaming import Renaming, refills
from tests.every import every
from tests.unit.timing import convolutions
from tests.unit.timing.programs import Builder, whole

V = Engine.VECTOR


def predicted(kernel, dtype="float32", size=20):
    arrays = [np.ones((128, size, 130), dtype), np.ones((9, 128, 128), dtype)]
    return predict(launch(kernel, arrays).trace, TRN2, dge=False)


@every("dtype", ["float32", "float16"])
def test_a_refilled_tile_costs_as_much_as_a_tile_of_each_iteration(dtype):
    fresh = predicted(convolutions.tile_in_each_turn, dtype)
    again = predicted(convolutions.one_tile, dtype)
    assert again.middle == pytest.approx(fresh.middle, rel=0.001)


def test_a_tile_with_a_live_part_is_one_tile():
    program = predicted(convolutions.rolling_tile).program
    copies = [
        i for i in program.instructions if i.opcode == "dma_copy" and not i.is_store
    ]
    waiting = [one for one in copies if one.order]
    assert len(waiting) == 18  # each row: its old contents are copied on first


def part(allocation, start, stop):
    """Columns ``start`` to ``stop`` of a [128, n] tile."""
    return Region(allocation, start, (128, stop - start), (allocation.shape[1], 1))


class Turns(Builder):
    """Fills a tile and reads it, again and again."""

    def __init__(self):
        super().__init__()
        self.tile = self.tensor((128, 8))

    def fill(self, region, **attributes):
        return self.emit("memset", V, [region], value=1.0, **attributes)

    def read(self, region):
        self.emit("tensor_copy", V, [whole(self.tensor(region.shape))], [region])

    def tiles(self):
        """The tile of each fill, counted from 0."""
        renaming = Renaming(self.trace, refills(self.trace))
        found = []
        for number, event in enumerate(self.trace.events):
            renaming.enter(number, event)
            if event.writes[0].allocation is self.tile:
                found.append(renaming.renamed(event.writes)[0].allocation.id)
        return [sorted(set(found)).index(one) for one in found]


def test_a_fill_in_two_halves_begins_one_tile():
    build = Turns()
    for _ in range(3):
        build.fill(part(build.tile, 0, 4))
        build.fill(part(build.tile, 4, 8))
        build.read(whole(build.tile))
    assert build.tiles() == [0, 0, 1, 1, 2, 2]


def test_a_half_that_is_read_later_keeps_the_tile():
    build = Turns()
    build.fill(whole(build.tile))
    build.read(whole(build.tile))
    build.fill(part(build.tile, 0, 4))
    build.read(whole(build.tile))
    build.fill(whole(build.tile))
    assert build.tiles() == [0, 0, 1]


def test_a_tile_that_is_never_read_again_keeps_no_place():
    build = Turns()
    build.fill(whole(build.tile))
    build.read(part(build.tile, 0, 4))
    build.fill(part(build.tile, 0, 4))
    build.read(part(build.tile, 0, 4))
    assert build.tiles() == [0, 1]


def test_a_masked_fill_keeps_the_other_elements():
    build = Turns()
    build.fill(whole(build.tile))
    build.read(whole(build.tile))
    build.fill(whole(build.tile)._replace(whole=False))
    build.read(whole(build.tile))
    assert build.tiles() == [0, 0]


def test_every_second_partition_is_not_every_partition():
    build = Turns()
    build.fill(whole(build.tile))
    build.read(whole(build.tile))
    for first in (0, 1):
        build.fill(Region(build.tile, 8 * first, (64, 8), (16, 1)))
    build.read(whole(build.tile))
    assert build.tiles() == [0, 0, 0]


def test_windows_that_overlap_are_counted_once():
    build = Turns()
    windows = Region(build.tile, 0, (128, 5, 4), (8, 1, 1))
    for _ in range(2):
        build.fill(whole(build.tile))
        build.read(windows)
    assert build.tiles() == [0, 1]


def test_an_accumulation_reads_its_sum():
    build = Turns()
    for _ in range(2):
        build.fill(whole(build.tile))
        total = whole(build.tile)
        build.emit("tensor_tensor", V, [total], [total, total], op="add")
        build.read(whole(build.tile))
    assert build.tiles() == [0, 0, 1, 1]


def test_a_tile_with_an_address_stays_where_the_kernel_put_it():
    build = Turns()
    build.tile.address = (0, 0)
    for _ in range(2):
        build.fill(whole(build.tile))
        build.read(whole(build.tile))
    assert build.tiles() == [0, 0]


def test_todays_compiler_renames_nothing():
    build = Turns()
    build.trace.dialect = "nki"
    for _ in range(2):
        build.fill(whole(build.tile))
        build.read(whole(build.tile))
    assert build.tiles() == [0, 0]


def test_there_are_as_many_tiles_at_once_as_memory_has_room_for():
    """Tiles of 96 KiB a partition: two fit SBUF, the third waits for the first."""
    build = Builder()
    tile = build.tensor((128, 24 * 1024))
    for _ in range(4):
        build.dma(tile, build.hbm((128, 24 * 1024)))
        build.store(tile)
    prediction = predict(build.trace, TRN2, dge=False)
    spans = prediction.schedule.spans
    loads = [span for span in spans if not span.instruction.is_store]
    assert [span.buffer for span in loads] == [False, False, True, True]
