"""The modules of today's dialect by the names under which kernels import them."""

from __future__ import annotations

import types
from importlib.machinery import ModuleSpec
from types import ModuleType

from difftest.simulator.frontend.nki import collectives, constants, isa, kernel, language, typing
from difftest.simulator.frontend.nki.levels import known_level

ROOT = "nki"


def modules(level: str | None = None) -> dict[str, ModuleType]:
    """``nki`` and its submodules, made anew; their kernels are of a level of NKI, if one is named.

    Raises
    ------
    KernelError : there is no such level.
    """
    root = types.ModuleType(ROOT, "NKI on the embedded simulator of nki-difftest.")
    root.__spec__ = ModuleSpec(ROOT, loader=None, is_package=True)
    root.__path__ = []
    names = {
        ROOT: root,
        f"{ROOT}.language": language,
        f"{ROOT}.isa": isa,
        f"{ROOT}.collectives": collectives,
        f"{ROOT}.isa.constants": constants,
        f"{ROOT}.typing": typing,
    }
    for name, value in {
        **kernel.functions_of(known_level(level)),
        "language": language,
        "isa": isa,
        "collectives": collectives,
        "typing": typing,
        "__difftest_embedded__": True,
    }.items():
        setattr(root, name, value)
    return names
