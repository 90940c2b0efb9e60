"""A long case at a terminal: one line below pytest's dots, which then disappears."""

import os
import pty

from difftest.testing.host import progress


def test_a_live_line_comes_and_goes(monkeypatch):
    """A log's line in its place would break the dots, and leave pytest's percentage alone."""
    ours, theirs = pty.openpty()
    monkeypatch.setattr(
        progress, "_terminal", lambda: os.fdopen(theirs, "w", encoding="utf-8")
    )
    monkeypatch.setattr(progress, "TERMINAL_SECONDS", 0.02)
    monkeypatch.setattr(progress, "CHECK_SECONDS", 0.01)
    monkeypatch.setenv("COLUMNS", "40")
    case = object()
    running = progress.ProgressThread(
        lambda: case, lambda now: "a long case " + "x" * 90
    )
    said = ""
    while "xx" not in said:
        said += os.read(ours, 1000).decode()
    case = None
    while not said.endswith("\x1b[2K\x1b8"):
        said += os.read(ours, 1000).decode()
    running.close()
    os.close(ours)
    assert "\n" not in said
    shown = said.split("\x1b[2K")[1].partition("\x1b8")[0]
    assert shown == ("difftest: a long case " + "x" * 90)[:39]
