"""The table of detectors, the page that describes them, and what silences a finding."""

import re
from pathlib import Path

from difftest.analysis.detectors import DETECTORS, affine_loops
from difftest.analysis.finding import Severity, is_suppressed
from difftest.simulator.trace import Location
from tests.every import every

ROOT = Path(__file__).parents[4]
PAGES = [
    ROOT / page for page in sorted({one.page.partition("#")[0] for one in DETECTORS})
]
HAZARDS = ROOT / "docs" / "reference" / "hazards.md"


def test_each_detector_has_one_section_on_the_page_of_its_group():
    for page in PAGES:
        title, *sections = re.findall(
            r"^# (?:.+)$|^## [a-z0-9-]+$",
            page.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        group = [f"## {one.id}" for one in DETECTORS if f"# {one.group}" == title]
        assert sections == group, page


def test_each_page_in_the_folder_is_of_a_group():
    assert sorted(PAGES[0].parent.glob("*.md")) == PAGES


def test_each_detector_is_in_the_table_of_hazards():
    table = HAZARDS.read_text(encoding="utf-8")
    rows = re.findall(r"^\|.*$", table, re.MULTILINE)
    told = {
        name
        for row in rows
        for name in re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", row)
    }
    unlike = {"affine-order", "program-order", "program-written-twice"}  # as others are
    assert {one.id for one in DETECTORS} - unlike <= told


def test_ids_are_unique_and_lead_to_the_page():
    ids = [one.id for one in DETECTORS]
    assert len(set(ids)) == len(ids)
    carried = next(one for one in DETECTORS if one.id == affine_loops.CARRIED.id)
    assert (carried.page, carried.severity) == (
        "docs/reference/detectors/order-of-iterations.md#affine-carried",
        Severity.ERROR,
    )


@every(
    "line, ids",
    [
        (1, {"one"}),
        (2, set()),
        (3, {"two", "three"}),  # a statement of three lines, the comment on the last
        (4, {"two", "three"}),
        (5, {"two", "three"}),
        (6, {"four"}),  # the head of a loop, and not its body
        (7, set()),
    ],
)
def test_a_comment_is_about_its_statement(tmp_path, line, ids):
    file = tmp_path / "kernel.py"
    file.write_text(
        "a = 1  # difftest: allow[one]\n"
        "b = '# difftest: allow[text]'\n"
        "c = max(\n"
        "    1,\n"
        "    2)  # difftest: allow[two, three]\n"
        "for i in range(2):  # difftest: allow[four]\n"
        "    d = 1\n"
    )
    known = {"one", "text", "two", "three", "four"}
    assert {id for id in known if is_suppressed(id, Location(str(file), line))} == ids
