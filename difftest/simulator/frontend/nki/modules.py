"""The modules of today's dialect by the names under which kernels import them."""

from __future__ import annotations

import types
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.nki import collectives, constants, isa, kernel, language, typing
from difftest.simulator.frontend.nki.levels import known_level

ROOT = "nki"
DOCUMENTED = "0.6"
"""The level of AWS's documentation that the dialect follows, v2.32.0: that of no level."""


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
        "dtype": language.DType,
        "__version__": f"{level or DOCUMENTED}.0",
        "simulator": names[f"{ROOT}.simulator"],
        "language": language,
        "isa": isa,
        "collectives": collectives,
        "typing": typing,
        "__difftest_embedded__": True,
    }.items():
        setattr(root, name, value)
    root.__getattr__ = lambda name: _missing(name, vars(root))  # type: ignore[method-assign]
    return names


def _missing(name: str, names: Mapping[str, Any]) -> NoReturn:
    raise missing_name(ROOT, name, names)


def _module(name: str, members: dict[str, Any]) -> ModuleType:
    """A module that no page documents and public code imports from."""
    module = types.ModuleType(name, "Names that public kernels import from here.")
    for member, value in members.items():
        setattr(module, member, value)
    return module
