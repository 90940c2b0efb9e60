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

SOURCES = ("TRACE", "TODAY", "PROFILES", "WRITEUP", "SWEEP", "DMA", "ARCH3")
OBSERVED = list(rows_of("observed-descriptors"))


def observed_dma(row):
    """The trace of one DMA of an observed form."""
    build = Builder()
    build.trace.dialect = "nki"
    shape = int(row["partitions"]), int(row["row_bytes"])
    width = shape[1] if row["rows_follow"] == "yes" else 4 * shape[1]
    tile = whole(build.tensor(shape, dtype="uint8"))
    tensor = build.hbm((shape[0], width), dtype="uint8")
    part = whole(tensor)._replace(shape=shape)
    ends = (tile, part) if row["direction"] == "load" else (part, tile)
    build.emit("dma_copy", Engine.DMA, [ends[0]], [ends[1]])
    return build.trace


def contradicted(row):
    """Return whether the model's likely source of an observed DMA is another one."""
    schedule = predict(
        observed_dma(row), TRN2, dge=Toolchain(row["toolchain"])
    ).schedule
    (kind,) = schedule.program.dma_kinds
    return schedule.descriptor_sources[kind] is not DescriptorSource(row["likely"])


@pytest.mark.parametrize("row", OBSERVED, ids=lambda row: row["source"])
def test_no_likely_source_contradicts_an_observed_one(row):
    assert not contradicted(row)


def test_a_source_that_contradicts_an_observed_one_is_seen(monkeypatch):
    """Planted: rows apart from the hardware, whatever their length, as once assumed."""
    monkeypatch.setattr("difftest.timing.dma.SHORT_ROW", 0)
    assert [row["source"].split(":")[0] for row in OBSERVED if contradicted(row)] == [
        "PROFILES"
    ]


def test_an_assumed_source_is_of_a_form_that_nobody_observed():
    """Of the current dialect: rows apart of 512 bytes and more. It has another answer, too."""
    assumed = [row for row in rows_of("descriptors") if row["evidence"] == "assumed"]
    assert [(row["toolchain"], row["kind"]) for row in assumed] == [("today", ANY)]
    assert assumed[0]["slowest"] == "software"
    kinds = {
        predict(observed_dma(row), TRN2, dge=Toolchain.TODAY).program.dma_kinds.pop()
        for row in OBSERVED
    }
    assert kinds == {"run", "row", "elements", "short rows"}


def test_each_row_says_from_where():
    for row in rows_of("descriptors"):
        assert row["kind"] in (ANY, *KINDS)
        assert DescriptorSource(row["likely"])
        assert Evidence(row["evidence"])
        assert row["source"].partition(":")[0] in SOURCES
        for end in ("fastest", "slowest"):
            assert not row[end] or DescriptorSource(row[end])


@every("machine", [TRN1, TRN2, TRN3])
def test_every_compiler_keeps_the_requested_descriptors(machine):
    for toolchain in Toolchain:
        found = descriptor_sources(toolchain, machine)
        assert set(found) == set(KINDS)
        asked = [found[kind] for kind in ("none", "swdge", "register", "index")]
        assert asked == [DescriptorSource.LAID_DOWN, *[DescriptorSource.SOFTWARE] * 3]
        generated = DescriptorSource.HARDWARE
        if machine is TRN1:
            generated = DescriptorSource.LAID_DOWN
        assert found["hwdge"] is generated
        assert (found["rows"] is DescriptorSource.HARDWARE) is (
            machine is not TRN1 and toolchain is not Toolchain.CLASSIC_PROFILE
        )


def test_a_dma_of_todays_has_its_own_way():
    """Traced: one partition laid down, a run of HBM by software; else the hardware."""
    found = descriptor_sources(Toolchain.TODAY, TRN2)
    expected = [
        DescriptorSource.LAID_DOWN,
        DescriptorSource.SOFTWARE,
        DescriptorSource.SOFTWARE,
        DescriptorSource.HARDWARE,
        DescriptorSource.HARDWARE,
        DescriptorSource.IN_TURN,
    ]
    kinds = ("row", "run", "short rows", "rows", "elements", "turned")
    assert [found[kind] for kind in kinds] == expected


@pytest.mark.parametrize(
    ("shape", "wide", "each"),
    [
        ((128, 64), 64, 0.58),  # one run: software
        ((128, 64), 128, 0.58),  # short rows apart: software
        ((128, 160), 320, 0.588 / 2),  # long rows apart: two generators
        # one partition: laid down, as fast as its engine takes them
        (
            (1, 64),
            64,
            0.2,
        ),
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


def test_the_default_matches_the_users_own_call():
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
