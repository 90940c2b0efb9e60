"""The figures that a test has matplotlib save: tests read their elements, not pixels."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def saved_figures(monkeypatch: Any) -> list[Any]:
    """Return a list that collects each figure saved from now on; its file is written, too."""
    figure = import_module("matplotlib.figure").Figure
    figures = []
    save = figure.savefig

    def savefig(self: Any, *args: Any, **kwargs: Any) -> None:
        figures.append(self)
        save(self, *args, **kwargs)

    monkeypatch.setattr(figure, "savefig", savefig)
    return figures
