"""The use of the memories, as text."""

import re

import numpy as np

from difftest.analysis.inspection import memory_text
from difftest.simulator import TRN2, launch
from difftest.simulator.frontend.classic import isa as nisa
from difftest.simulator.frontend.classic import language as nl
from tests.every import every

SBUF = "sbuf: 512 of 212,992 bytes a partition at the peak (0%), 212,480 free"
PSUM = "psum: 512 of 16,384 bytes a partition at the peak (3%), 15,872 free"


def kernel(x):
    out = nl.ndarray((128, 128), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    product = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    product[...] = nisa.nc_matmul(tile, tile)
    nl.store(out, nl.copy(product))
    return out


def test_each_memory_has_its_peak_and_a_chart():
    trace = launch(kernel, [np.ones((128, 128), np.float32)]).trace
    lines = memory_text(trace, TRN2).splitlines()
    sbuf = lines.index(SBUF)
    psum = lines.index(PSUM)
    assert lines[sbuf + 1] == "          ▁▁ ▁▁ how full, events 0 to 4"
    assert lines[psum + 1] == "            ▁▁  how full, events 0 to 4"
    assert re.fullmatch(
        r"      512 ──    test_memory.py:\d+: tensor 2 \[128, 128\] float32, tile = nl.load\(x\)",
        lines[sbuf + 2],
    )
    assert lines[sbuf + 3].startswith("    (512)    ── test_memory.py:")
    assert ": tensor 5 [128, 128] float32, nl.store(out" in lines[sbuf + 3]
    assert lines[sbuf + 4] == "          ^     the peak, at event 0"


def test_a_result_that_is_only_moved_at_the_end_has_its_place():
    """The last instruction assigns into a tile: the move of its result has no event."""

    def totals(x):
        out = nl.ndarray((128, 1), x.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((128, 1), x.dtype)
        for _ in nl.affine_range(2):
            nl.store(out, total)
            total[...] = nl.sum(nl.load(x), axis=1, keepdims=True)
        return out

    lines = memory_text(
        launch(totals, [np.ones((128, 64), np.float32)]).trace, TRN2
    ).splitlines()
    assert lines[1].endswith("how full, events 0 to 8")


def test_the_chart_rises_and_falls():
    """Half of SBUF, then all of it, then next to nothing."""

    def halves():
        out = nl.ndarray((128, 2), nl.float32, buffer=nl.shared_hbm)
        one = nl.zeros((128, 26_000), nl.float32)
        other = nl.zeros((128, 26_000), nl.float32)
        nl.store(out[:, 0:1], nl.max(one, axis=1))
        nl.store(out[:, 1:2], nl.max(other, axis=1))
        return out

    trace = launch(halves).trace
    lines = memory_text(trace, TRN2).splitlines()
    assert lines[0].startswith(
        "sbuf: 208,004 of 212,992 bytes a partition at the peak (98%)"
    )
    assert lines[1] == "          ▄██▄▄▁ how full, events 0 to 5"
    assert lines[2].startswith("  104,000 ───    test_memory.py:")
    assert lines[3].startswith("  104,000  ────  test_memory.py:")
    assert ": tensor 2 [128, 26000] float32, other = nl.zeros(" in lines[3]


def test_nothing_on_chip_is_nothing_to_say():
    def empty(x):
        return x

    trace = launch(empty, [np.ones((2, 2), np.float32)]).trace
    assert memory_text(trace, TRN2) == ""


def rows_of(count, lines, width):
    """The chart of ``count`` tensors made by so many lines of a kernel, all live at the end."""
    source = [
        "def kernel():",
        "    out = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)",
    ]
    source += ["    held = []"]
    for number in range(lines):
        source += [
            f"    for _ in range({count // lines}):",
            f"        held.append(nl.zeros((128, {10 * (number + 1)}), nl.float32))",
        ]
    source += [
        "    for tile in held:",
        "        nl.store(out, tile[:, 0:1])",
        "    return out",
    ]
    scope = {"nl": nl}
    exec("\n".join(source), scope)  # a kernel with the requested number of lines
    return memory_text(launch(scope["kernel"]).trace, TRN2, width).splitlines()


@every("width", [80, 120])
def test_tensors_of_one_line_are_one_row_and_no_line_is_wider(width):
    lines = rows_of(200, 2, width)
    assert all(len(line) <= width for line in lines)
    (large, small) = lines[2:4]
    assert large.startswith("    8,000 ")
    assert "100 tensors [128, 20] float32" in large
    assert small.startswith("    4,000 ")
    ranges = small[10 : 10 + (width - 9) // 3]
    assert "+" in ranges, "more than nine in a column"
    assert ranges.rstrip("+─ 23456789") == ""


def test_rows_that_are_too_many_are_counted():
    lines = rows_of(40, 20, 100)
    assert len(lines) == 2 + 12 + 2
    assert lines[2].startswith("    1,600 ")
    rest = sum(2 * 4 * 10 * (number + 1) for number in range(20 - 12))
    assert lines[-2].split() == f"{rest:,} 16 more, of 8 lines".split()


def test_the_error_of_a_full_memory_states_the_excess():
    def kernel():
        out = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)
        one, other = (nl.zeros((128, 30_000), nl.float32) for _ in range(2))
        nl.store(out, nl.add(one[:, 0:1], other[:, 0:1]))
        return out

    lines = memory_text(launch(kernel).trace, TRN2).splitlines()
    assert lines[0].startswith(
        "sbuf: 240,004 of 212,992 bytes a partition at the peak (113%)"
    )
    assert lines[0].endswith(", 27,012 too many")


def test_tensors_that_a_helper_makes_have_a_row_for_each_call():
    def helper(x):
        return nl.load(x)

    def kernel(x):
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        one = helper(x)
        other = helper(x)
        nl.store(out, nl.add(one, other))
        return out

    lines = memory_text(
        launch(kernel, [np.ones((128, 8), np.float32)]).trace, TRN2
    ).splitlines()
    first = kernel.__code__.co_firstlineno
    rows = [
        line
        for line in lines
        if f":{helper.__code__.co_firstlineno + 1}, called at" in line
    ]
    assert [int(row.partition("called at line ")[2].split(":")[0]) for row in rows] == [
        first + 2,
        first + 3,
    ]
