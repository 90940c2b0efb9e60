import io
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.text import Text

from difftest.support import console
from difftest.support.console import print_table, table_console, titled_table
from tests.every import every


@pytest.fixture
def table():
    table = titled_table(
        "Source lines (predicted)", ("", "Source"), ("Microseconds busy",)
    )
    table.caption = "and 2 more"
    table.add_row(
        Text("add.py:12: nl.load(x[n:128, :])"), "one published write-up", "1,234.5"
    )
    table.add_row(Text("add.py:13: nl.store(y)"), "", "0.5")
    return table


def printed(table, width):
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        print_table(console, table)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_terminal_that_is_wide_enough_shows_a_table(table):
    lines = printed(table, 90)
    row = "│ add.py:12: nl.load(x[n:128, :]) │ one published write-up │           1,234.5 │"
    assert row in lines
    assert lines[-1].strip() == "and 2 more"


@every("width", [64, 52, 40])
def test_words_are_never_cut(table, width):
    text = " ".join(printed(table, width))
    for word in (
        "nl.load(x[n:128,",
        "1,234.5",
        "published",
        "write-up",
        "Microseconds",
        "busy",
    ):
        assert word in text


def test_a_narrow_terminal_shows_row_by_row(table):
    assert printed(table, 36) == [
        "Source lines (predicted)",
        "",
        "add.py:12: nl.load(x[n:128, :])",
        "Source: one published write-up",
        "Microseconds busy: 1,234.5",
        "",
        "add.py:13: nl.store(y)",
        "Microseconds busy: 0.5",
        "and 2 more",
    ]


def test_output_that_is_no_terminal_is_wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert table_console().width == 100
    assert table_console(170).width == 170


def test_off_a_terminal_a_line_each_minute_says_how_far_it_is(monkeypatch):
    clock, text = SimpleNamespace(now=0.0), io.StringIO()
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(console.sys, "__stderr__", text)
    with console.progress("points", 9, 5) as advance:
        for clock.now in (30.0, 60.0, 90.0, 130.0):
            advance()
    assert text.getvalue() == "points: 7 of 9\npoints: 9 of 9\n"


def test_a_bar_on_the_terminal_leaves_output_that_goes_to_a_file(monkeypatch, capsys):
    """``difftest mutate TESTS > FILE``: survivors are printed while the bar is shown."""
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(console.sys, "__stderr__", terminal)
    with console.progress("mutants", 2) as advance:
        print("survived")
        advance()
    assert "survived" not in terminal.getvalue()
    assert capsys.readouterr().out == "survived\n"
