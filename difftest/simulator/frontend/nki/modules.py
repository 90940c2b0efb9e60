"""The modules of today's dialect by the names under which kernels import them."""

from __future__ import annotations

import types
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

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
    functions = kernel.functions_of(known_level(level))
    inside: dict[str, dict[str, Any]] = {
        f"{ROOT}.language.tensor": {"NkiTensor": language.NkiTensor},
        f"{ROOT}.simulator": {"simulate_kernel": kernel.simulation_of(functions["simulate"])},
    }
    names = {
        ROOT: root,
        **{name: _module(name, members) for name, members in inside.items()},
        f"{ROOT}.language": language,
        f"{ROOT}.isa": isa,
        f"{ROOT}.collectives": collectives,
        f"{ROOT}.isa.constants": constants,
        f"{ROOT}.typing": typing,
    }
    for name, value in {
        **functions,
        "simulator": names[f"{ROOT}.simulator"],
        "language": language,
        "isa": isa,
        "collectives": collectives,
        "typing": typing,
        "__difftest_embedded__": True,
    }.items():
        setattr(root, name, value)
    return names


def _module(name: str, members: dict[str, Any]) -> ModuleType:
    """A module that no page documents and public code imports from."""
    module = types.ModuleType(name, "Names that public kernels import from here.")
    for member, value in members.items():
        setattr(module, member, value)
    return module
