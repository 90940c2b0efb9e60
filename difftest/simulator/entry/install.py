"""Install the embedded modules where kernels import them, temporarily.

Within ``with embedded():``, ``import neuronxcc.nki`` (the classic dialect) and ``import nki`` (the
newer one) find the simulator. Afterwards ``sys.modules`` is restored. Kernels imported in between
continue to work, because they hold the modules themselves.
"""

from __future__ import annotations

import logging
import sys
import types
from importlib.machinery import ModuleSpec
from types import ModuleType

from difftest.simulator.entry import kernel
from difftest.simulator.entry import nki_kernel as newer
from difftest.simulator.entry.kernel import (
    Predictor,
    baremetal_with,
    benchmark_with,
    profile_with,
)
from difftest.simulator.frontend.arguments import AnyTensor, absent
from difftest.simulator.frontend.classic import compiler, isa, language
from difftest.simulator.frontend.classic import typing as nki_typing

ROOT = "neuronxcc"
ROOTS = (ROOT, newer.ROOT)
"""The packages that the embedded modules replace."""
TILE_SIZE = language.tile_size
"""Kernels' modules may set its attributes; uninstalling resets them."""
LEVEL = "OFF"
"""A level that importing the SDK adds to ``logging``, above all others: the course's starter code
(stanford-cs149/asst4-trainium2, ``part2/test_harness.py``) uses it."""


def _package(name: str, doc: str) -> ModuleType:
    """Return an empty package that the import system accepts."""
    module = types.ModuleType(name, doc)
    module.__spec__ = ModuleSpec(name, loader=None, is_package=True)
    module.__path__ = []
    return module


def _nki(predictor: Predictor | None) -> ModuleType:
    """Return the module ``neuronxcc.nki``."""
    module = _package(f"{ROOT}.nki", "NKI on the embedded simulator (classic dialect).")
    names = frozenset({"FrameworkKernel"})
    module.__getattr__ = absent("nki", names, vars(module))  # type: ignore[method-assign]
    for name in ("jit", "trace", "simulate_kernel"):
        setattr(module, name, getattr(kernel, name))
    module.benchmark = benchmark_with(predictor)  # type: ignore[attr-defined]
    module.baremetal = baremetal_with(predictor)  # type: ignore[attr-defined]
    module.profile = profile_with(predictor)  # type: ignore[attr-defined]
    module.tensor = AnyTensor  # type: ignore[attr-defined]
    for name, part in _PARTS.items():
        setattr(module, name, part)
    return module


_PARTS = {"language": language, "isa": isa, "compiler": compiler, "typing": nki_typing}


def _inner_modules() -> dict[str, ModuleType]:
    """Return the undocumented inner modules that kernels import from.

    Classic kernels of AWS import ``nki.language.constants`` too.
    """
    table = {}
    for name, source in (
        (f"{ROOT}.nki.language.constants", language.constants),
        (f"{newer.ROOT}.language.constants", language.constants),
        (f"{ROOT}.nki.isa.constants", isa.constants),
    ):
        table[name] = types.ModuleType(
            name, "The constants of the module that contains this one."
        )
        vars(table[name]).update(vars(source))
    return table


def embedded_modules(
    predictor: Predictor | None = None, level: str | None = None
) -> dict[str, ModuleType]:
    """Return the embedded modules by the names that kernels import."""
    nki = _nki(predictor)
    root = _package(
        ROOT, "The embedded NKI simulator of nki-difftest, not the Neuron SDK."
    )
    root.nki = nki  # type: ignore[attr-defined]
    names: dict[str, ModuleType] = {ROOT: root, f"{ROOT}.nki": nki}
    names |= {f"{ROOT}.nki.{name}": part for name, part in _PARTS.items()}
    names |= _inner_modules() | newer.modules(level)
    for package in ROOTS:
        names[package].__difftest_embedded__ = True  # type: ignore[attr-defined]
    return names


def _replaced_modules() -> dict[str, ModuleType]:
    """Return the loaded modules that the embedded ones replace, by name."""
    inside = tuple(f"{root}." for root in ROOTS)
    names = [name for name in sys.modules if name.startswith(inside) or name in ROOTS]
    return {name: sys.modules[name] for name in names}


def is_embedded(module: ModuleType) -> bool:
    """Return whether a module ``neuronxcc`` or ``nki`` is the embedded simulator's."""
    return bool(getattr(module, "__difftest_embedded__", False))


class embedded:
    """Install the embedded ``neuronxcc`` and ``nki`` modules; undo it at the end.

    ``predictor`` predicts latencies for ``nki.benchmark``. Without one, ``nki.benchmark`` raises,
    and no profile is written. ``level``, "0.3" to "0.7", is the level of the newer dialect's
    kernels: names that it lacks raise. By default all names exist.

    Without a block: ``installation = embedded(); installation.install(); installation.uninstall()``
    """

    def __init__(
        self, predictor: Predictor | None = None, level: str | None = None
    ) -> None:
        self._predictor = predictor
        self._level = level
        self._saved: dict[str, ModuleType] | None = None
        self._placed: dict[str, ModuleType] = {}
        self._added_level = False

    def install(self) -> embedded:
        """Replace every ``neuronxcc`` and ``nki`` entry of ``sys.modules`` by the embedded ones.

        Raises
        ------
        RuntimeError : this installation is already in place.
        """
        if self._saved is not None:
            raise RuntimeError(
                "the embedded modules are already installed by this object"
            )
        # first, because it rejects a wrong level
        self._placed = embedded_modules(self._predictor, self._level)
        self._saved = _replaced_modules()
        for name in self._saved:
            del sys.modules[name]
        sys.modules.update(self._placed)
        self._added_level = not hasattr(logging, LEVEL)
        if self._added_level:
            setattr(logging, LEVEL, logging.CRITICAL + 10)
        return self

    def uninstall(self) -> None:
        """Restore ``sys.modules``.

        Raises
        ------
        RuntimeError : nothing is installed, or another installation is on top of this one.
        """
        if self._saved is None:
            raise RuntimeError(
                "the embedded neuronxcc modules are not installed by this object"
            )
        if sys.modules.get(ROOT) is not self._placed[ROOT]:
            raise RuntimeError(
                "another neuronxcc was installed on top of the embedded one; uninstall that first"
            )
        for name in _replaced_modules():
            del sys.modules[name]
        sys.modules.update(self._saved)
        if self._added_level:
            delattr(logging, LEVEL)
        language.tile_size = TILE_SIZE
        TILE_SIZE.reset()
        self._saved = None
        self._placed = {}

    def __enter__(self) -> embedded:
        return self.install()

    def __exit__(self, *error: object) -> None:
        self.uninstall()
