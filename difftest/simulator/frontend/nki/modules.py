"""The modules of today's dialect by the names under which kernels import them.

They hold what AWS documents and nothing else: a helper of ours is an AttributeError there, as any
other name that does not exist.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from difftest.simulator.errors import missing_name
from difftest.simulator.frontend.arguments import Annotation
from difftest.simulator.frontend.nki import collectives, constants, isa, kernel, language
from difftest.simulator.frontend.nki.levels import known_level
from difftest.simulator.frontend.nki.tensor import NkiTensor

ROOT = "nki"
DOCUMENTED = "0.6"
"""The level of AWS's documentation that the dialect follows, v2.32.0: that of no level."""


def modules(level: str | None = None) -> dict[str, ModuleType]:
    """``nki`` and its submodules, made anew; their kernels are of a level of NKI, if one is named.

    Raises
    ------
    KernelError : there is no such level.
    """
    functions = kernel.functions_of(known_level(level))
    made = {"isa.constants": _module("isa.constants", constants.NAMES, constants)}
    made["isa"] = _module("isa", {**isa.NAMES, "constants": made["isa.constants"]}, isa)
    made |= {
        "language": _module("language", language.NAMES, language),
        "language.tensor": _module("language.tensor", {"NkiTensor": NkiTensor}),
        "collectives": _module("collectives", collectives.NAMES, collectives),
        "typing": _module("typing", {"tensor": Annotation("tensor", mutable=False)}),
        "simulator": _module(
            "simulator", {"simulate_kernel": kernel.simulation_of(functions["simulate"])}
        ),
    }
    root = types.ModuleType(ROOT, "NKI on the embedded simulator of nki-difftest.")
    root.__spec__ = ModuleSpec(ROOT, loader=None, is_package=True)
    root.__path__ = []
    vars(root).update(
        **functions,
        **{name: module for name, module in made.items() if "." not in name},
        dtype=np.dtype,
        __version__=f"{level or DOCUMENTED}.0",
        __difftest_embedded__=True,
    )
    root.__getattr__ = lambda name: _missing(name, vars(root))  # type: ignore[method-assign]
    return {ROOT: root, **{f"{ROOT}.{name}": module for name, module in made.items()}}


def _missing(name: str, names: Mapping[str, Any]) -> NoReturn:
    raise missing_name(ROOT, name, names)


def _module(name: str, names: Mapping[str, Any], source: ModuleType | None = None) -> ModuleType:
    """A module of some names; what others are asked for, ``source`` says."""
    module = types.ModuleType(f"{ROOT}.{name}", (source and source.__doc__) or "Names of NKI.")
    vars(module).update(names, __all__=sorted(names))
    other: Callable[[str], Any] | None = getattr(source, "__getattr__", None)
    if other is not None:
        module.__getattr__ = other  # type: ignore[method-assign]
    return module
