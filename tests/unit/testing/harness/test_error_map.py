import base64
import struct
import zlib

import numpy as np

from difftest.testing.harness.compare import compare, expected_with_roundings
from difftest.testing.harness.error_map import (
    COLUMNS,
    KINDS,
    ROWS,
    error_maps,
    legend,
    png,
)
from difftest.testing.harness.verdict import Mismatch
from tests.every import every

F32 = np.dtype("float32")


def mismatch(value, got, **more):
    value = np.asarray(value, np.float64)
    bound = expected_with_roundings(value, F32, np.abs(value), (0, F32))
    return compare([bound], [np.asarray(got, F32)], **more)


def one_map(value, got, **more):
    (found,) = error_maps(mismatch(value, got, **more))
    return found


def test_each_element_says_how_far_it_is():
    value = np.full((2, 4), 8.0)
    got = value + np.array([[0, 8, 0.8, 0.01], [1e-5, np.nan, np.inf, 80]])
    found = one_map(value, got)
    assert found["rows"] == (".764", "1nn7")
    assert found["wrong"] == 7
    assert found["title"] == "7 of 8 elements (2 x 4) wrong"
    assert found["spoken"] == (
        "2 NaN or infinity on one side, 2 at least the largest expected value, "
        "1 at least 1e-1 of the largest expected value, "
        "1 at least 1e-3 of the largest expected value, "
        "1 less than 1e-5 of the largest expected value, as rounding is"
    )


def test_unwritten_elements_are_marked_in_the_map():
    hole = np.array([[False, True]])
    assert one_map([[1.0, 2.0]], [[1.0, 2.0]], unwritten=[hole])["rows"] == (".u",)


@every("value, rows", [([3.0, 4.0], ("55",)), ([[[3.0]], [[4.0]]], ("5",))])
def test_any_number_of_dimensions(value, rows):
    value = np.array(value)
    assert {one["rows"] for one in error_maps(mismatch(value, value * 1.02))} == {rows}


def test_slices_with_most_wrong_elements_are_shown():
    value = np.ones((2, 3, 4, 5))
    got = value.copy()
    for count, place in enumerate(np.ndindex(2, 3)):
        got[place].flat[:count] = 9
    found = error_maps(mismatch(value, got))
    assert [one["slice"] for one in found] == [(0, 2), (1, 0), (1, 1), (1, 2)]
    assert found[-1]["title"] == "slice [1, 2, :, :]: 5 of 20 elements (4 x 5) wrong"


def test_a_large_output_shows_the_worst_of_each_block():
    value = np.ones((3 * ROWS, 2 * COLUMNS))
    got = value.copy()
    got[301, 383], got[300, 382] = 9, 1.01
    found = one_map(value, got)
    assert found["block"] == (3, 2)
    assert (len(found["rows"]), len(found["rows"][0])) == (ROWS, COLUMNS)
    assert [
        (n, row.index("7")) for n, row in enumerate(found["rows"]) if "7" in row
    ] == [(100, 191)]
    assert "cells of 3 x 2" in found["spoken"]


def test_a_mismatch_without_arrays_has_no_map():
    assert error_maps(Mismatch("shape", 0, "shapes differ")) == []


def test_the_cells_are_a_png():
    found = one_map(np.ones((200, 600)), np.full((200, 600), 2.0))
    data = base64.b64decode(png(found["rows"]).removeprefix("data:image/png;base64,"))
    width, height = struct.unpack(">II", data[16:24])
    assert (height, width) == (len(found["rows"]), len(found["rows"][0]))
    start = data.index(b"IDAT") + 4
    cells = zlib.decompress(data[start : data.index(b"IEND") - 8])
    assert cells == (b"\0" + b"\7" * width) * height


def test_the_legend_has_the_shown_colours_only():
    maps = [{"rows": (".7",)}, {"rows": ("u.",)}]
    assert [meaning for _, meaning in legend(maps)] == [KINDS["u"][1], KINDS["7"][1]]
