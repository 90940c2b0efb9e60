"""The source of a DMA's descriptors, by kind of DMA and by toolchain."""

import pytest

from difftest.simulator.machine import TRN1, TRN2, TRN3
from difftest.simulator.trace import Engine
from difftest.timing import predict
from difftest.timing.compiler import (
    ANY,
    KINDS,
    DescriptorSource,
    Toolchain,
    descriptor_sources,
)
from difftest.timing.evidence import Evidence, rows_of
from tests.every import every
from tests.unit.timing.programs import Builder, whole


def test_each_row_says_from_where():
    for row in rows_of("descriptors"):
        assert row["kind"] in (ANY, *KINDS)
        assert DescriptorSource(row["way"])
        assert Evidence(row["evidence"])
        assert row["source"].partition(":")[0] in ("TRACE", "TODAY", "WRITEUP", "SWEEP", "DMA",
                                                   "ARCH3")  # fmt: skip


@every("machine", [TRN1, TRN2, TRN3])
def test_what_the_kernel_asks_for_is_done_whatever_compiles_it(machine):
    for toolchain in Toolchain:
        found = descriptor_sources(toolchain, machine)
        assert set(found) == set(KINDS)
        asked = [found[kind] for kind in ("none", "swdge", "register", "index")]
        assert asked == [DescriptorSource.LAID_DOWN, *[DescriptorSource.SOFTWARE] * 3]
        hardware = DescriptorSource.HARDWARE in found.values()
        assert hardware is (
            machine is not TRN1 and toolchain is not Toolchain.CLASSIC_PROFILE
        )


def test_a_dma_of_todays_has_its_own_way():
    """Traced: one partition laid down, a run of HBM by software; else the hardware."""
    found = descriptor_sources(Toolchain.TODAY, TRN2)
    expected = [
        DescriptorSource.LAID_DOWN,
        DescriptorSource.SOFTWARE,
        DescriptorSource.HARDWARE,
        DescriptorSource.IN_TURN,
    ]
    assert [found[kind] for kind in ("row", "run", "rows", "turned")] == expected


@pytest.mark.parametrize(
    ("shape", "wide", "each"),
    [
        ((128, 64), 64, 0.58),  # one run: software
        ((128, 64), 128, 0.588 / 2),  # rows apart: two generators
        (
            (1, 64),
            64,
            0.2,
        ),  # one partition: laid down, as fast as its engine takes them
    ],
)
def test_a_load_takes_the_time_of_its_way(shape, wide, each):
    def predicted(count):
        build = Builder()
        build.trace.dialect = "nki"
        for _ in range(count):
            tile = build.tensor(shape)
            source = build.hbm((shape[0], wide))
            part = whole(source)._replace(shape=shape)
            build.emit("dma_copy", Engine.DMA, [whole(tile)], [part])
        return predict(build.trace, TRN2).middle

    assert predicted(48) - predicted(8) == pytest.approx(40 * each, rel=0.03)


def test_the_default_is_what_the_users_own_call_gets():
    build = Builder()
    build.store(build.load((128, 64)))
    made = []
    for dialect in ("classic", "nki"):
        build.trace.dialect = dialect
        made.append(predict(build.trace, TRN2).schedule.toolchain)
    assert made == [Toolchain.CLASSIC_BENCHMARK, Toolchain.TODAY]
    asked = [
        predict(build.trace, TRN2, dge=one).schedule.toolchain for one in (True, False)
    ]
    assert asked == [Toolchain.CLASSIC_BENCHMARK, Toolchain.CLASSIC_PROFILE]
