"""The words of a candidate's language, of ``data/language.json``."""

from __future__ import annotations

import builtins
import importlib
import json
from importlib import resources
from typing import Any

NKI = ("nki", "neuronxcc")
"""What stands below these is NKI: the simulator's own modules, a closed world."""
_TEXT = resources.files("difftest.verdict").joinpath("data/language.json").read_text("utf-8")
_WORDS: dict[str, Any] = json.loads(_TEXT)


def _names(module: str, names: str) -> frozenset[str]:
    """Those that are listed; of ``*`` all that are public."""
    listed = vars(importlib.import_module(module)) if names == "*" else names.split()
    return frozenset(name for name in listed if not name.startswith("_"))


MODULES = {module: _names(module, names) for module, names in _WORDS["modules"].items()}
"""What a candidate may import beside NKI and the files of its own folder, name by name."""
BUILTINS = frozenset(_WORDS["builtins"].split())
FORBIDDEN = frozenset(name for name in dir(builtins) if name[0] != "_") - BUILTINS
ATTRIBUTES = frozenset(_WORDS["attributes"].split())
"""Attributes that lead out of a value: to its class's ancestors, a frame, a file, raw memory."""
DUNDERS = frozenset(_WORDS["dunders"].split())
"""Special methods that a class of a candidate may have."""
BASES = frozenset(_WORDS["bases"].split())
CAUGHT = frozenset(_WORDS["caught"].split())
"""What `except` may name beside an import."""
ABSENT = frozenset(_WORDS["absent"].split())
"""What `except` names where an import is tried."""
