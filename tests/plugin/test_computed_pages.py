"""Numbers that a command computes are the same on a page, wherever the page shows them."""

import re
import subprocess
import sys
from pathlib import Path

from tests.kernels.budget import NIGHTLY

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUNE = DOCS / "how-to" / "tune.md"
ORDER = DOCS / "contributing" / "timing-order.md"
PRODUCTION = DOCS / "explanation" / "production-kernels.md"
ADVICE = DOCS / "reference" / "advice.md"
ACCURACY = DOCS / "explanation" / "timing-accuracy.md"


def rows_after(page, head):
    """Return the rows of the page's tables whose header begins with a text, as lists of cells."""
    tables = page.read_text(encoding="utf-8").split(f"\n{head}")[1:]
    rows = [
        row for table in tables for row in table.partition("\n\n")[0].split("\n")[2:]
    ]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def printed_by(*command):
    """Return the lines that a command of this Python prints."""
    run = [sys.executable, "-m", *command]
    done = subprocess.run(run, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def numbers_of(cells):
    """Return the numbers among the cells of a row, without thousands' commas."""
    plain = (cell.strip().replace(",", "") for cell in cells)
    return [float(cell) for cell in plain if re.fullmatch(r"\d+(\.\d+)?", cell)]


def test_a_search_that_the_page_shows_twice_has_one_result():
    text = TUNE.read_text(encoding="utf-8")
    sizes, time = re.search(r"^best: (.+)\n +([\d.]+) us", text, re.MULTILINE).groups()
    (row,) = (row for row in rows_after(TUNE, "| kernel, case |") if "matmul" in row[0])
    assert row[2] == f"{sizes}: {time} us"


def test_the_rows_of_a_page_are_found():
    assert len(rows_after(TUNE, "| kernel, case |")) == 4
    assert [numbers_of(row)[0] for row in rows_after(ORDER, "| kernel | desc")][1] > 1
    assert len(rows_after(ADVICE, "| rung | own part")) == 7
    assert len(rows_after(PRODUCTION, "| kernel | shape")) == 7
    assert len(rows_after(ACCURACY, "| measured | shape")) == 11
    assert len(rows_after(ACCURACY, "| document | rung")) == 13


if NIGHTLY:

    def test_the_table_of_searches_is_the_output_of_the_benchmark():
        printed = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in printed_by("benchmarks.tuning")
        ]
        rows = rows_after(TUNE, "| kernel, case |")
        assert [row for row in rows if row not in printed] == []

    def test_the_tables_of_orders_are_the_output_of_the_benchmark():
        printed = [
            numbers_of(line.split("|")) for line in printed_by("benchmarks.orders")
        ]
        rows = [
            numbers_of(row) for row in rows_after(ORDER, "| kernel | description | us")
        ]
        assert rows == [numbers for numbers in printed if numbers]

    def test_the_table_of_advice_is_the_output_of_the_benchmark():
        printed = [line.split(" | ") for line in printed_by("benchmarks.ladder_advice")]
        shown = [
            [name.strip("`"), own, finding.strip("`").partition("`")[0], savings]
            for name, own, finding, savings, _ in rows_after(
                ADVICE, "| rung | own part"
            )
        ]
        assert shown == [[cell.strip() for cell in row] for row in printed[1:]]

    def test_the_table_of_production_kernels_is_the_output_of_the_benchmark():
        printed = [
            line.split(" | ")[1:] for line in printed_by("benchmarks.production")
        ]
        rows = rows_after(PRODUCTION, "| kernel | shape")
        assert [[row[4], row[6]] for row in rows] == printed[1:]

    def test_the_tables_of_accuracy_are_the_output_of_the_command():
        lines = printed_by("difftest", "timing", "validate", "--all", "--rows")
        printed = {
            (float(measured), float(predicted), error)
            for measured, predicted, error in re.findall(
                r"│ +([\d.]+) │ +([\d.]+) │[^│]*│ +([+-][\d.]+%) │$",
                "\n".join(lines).replace(",", ""),
                re.MULTILINE,
            )
        }
        rows = [
            *rows_after(ACCURACY, "| measured | shape"),
            *rows_after(ACCURACY, "| document | rung"),
        ]
        lost = [row for row in rows if not any(map(_shows(row), printed))]
        assert lost == []


def _shows(row):
    """Return whether a printed row has the rounded numbers of a row of the page."""
    *_, measured, predicted, error = (cell.replace(",", "") for cell in row)
    digits = len(predicted.partition(".")[2])

    def same(printed):
        return (
            float(measured) == printed[0]
            and float(predicted) == round(printed[1], digits)
            and error.replace(" ", "") == printed[2]
        )

    return same
