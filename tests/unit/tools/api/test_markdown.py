"""docs/reference/generated/api.md is generated, complete and fresh."""

import re
from pathlib import Path

from difftest.tools.api.documented import CLASSIC, TODAY, documented_names
from difftest.tools.api.markdown import COMMAND, api_page, every_instruction

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "generated" / "api.md"


def test_the_page_is_fresh():
    assert PAGE.read_text(encoding="utf-8") == api_page(), f"stale: {COMMAND}"


def test_every_name_and_every_instruction_has_a_row():
    page = api_page()
    for name in documented_names(CLASSIC) + documented_names(TODAY):
        assert page.count(f"[`{name.name}`]({name.url})") == 1
    for name in every_instruction():
        assert page.count(f'<a id="{name}"></a>') == 1


def test_each_link_inside_the_page_has_its_anchor():
    page = api_page()
    links = set(re.findall(r"\]\(#(\w+)\)", page))
    assert links == set(every_instruction())


def test_tables_are_rectangular():
    """A bar inside a cell would move the rest of the row."""
    tables = re.findall(r"(?:^\|.*\n)+", api_page(), re.MULTILINE)
    assert len(tables) > 10
    for table in tables:
        assert (
            len({len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
        )


def test_an_instruction_shows_the_fields_of_its_record():
    (row,) = (
        line for line in api_page().splitlines() if '<a id="range_select">' in line
    )
    cells = row.split(" | ")
    assert cells[1] == "vector"
    assert "`on_true_tile`: sbuf/psum, floats<br>" in cells[2]
    assert (
        "`bound0`: a vector with one element in each partition, sbuf/psum, float32"
        in cells[2]
    )
    assert "`reduce_res?`" in cells[3]
    assert cells[5] == "vector: documented |"
    (row,) = (line for line in api_page().splitlines() if '<a id="rand">' in line)
    assert row.endswith("gpsimd: assumed |")
