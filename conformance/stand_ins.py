"""Modules that AWS's wheels bring and a suite imports beside the simulator, as far as it asks.

Each is installed in ``sys.modules`` for the run. What they hold are dtypes, casts between them and
names: nothing here computes what a test compares with.
"""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

TARGET = "NEURON_PLATFORM_TARGET_OVERRIDE"
"""AWS's environment variable that selects the machine of our simulator."""
GENERATION = "NKI_NC_VERSION"
"""The variable for the machine of the suite's simulator (test/utils/simulation_setup.py)."""

_NEURON_DTYPES = (
    "bfloat16",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
)
_PACKED = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
    "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn,
}
"""The packed dtypes' element dtypes; in the embedded ``nki.language`` they are fields by name."""


def package(name: str, **names: Any) -> ModuleType:
    """Return a module that may have submodules, with ``names`` in it."""
    module = types.ModuleType(name, "A stand-in of nki-difftest's conformance runs.")
    module.__spec__ = ModuleSpec(name, loader=None, is_package=True)
    module.__path__ = []
    vars(module).update(names)
    return module


class Absent:
    """A name that kernels import and that is not modelled: an import passes, a use does not."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{self.name} is not modelled")

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.name}.{name}")

    def __repr__(self) -> str:
        return f"<{self.name}, not modelled>"


def absent(name: str) -> ModuleType:
    """Return a module whose names are all :class:`Absent`."""
    module = package(name)

    def attribute(wanted: str) -> Absent:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        return Absent(f"{name}.{wanted}")

    module.__getattr__ = attribute  # type: ignore[method-assign]
    return module


def static_cast(array: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """``array`` with its values rounded to ``dtype``.

    A packed dtype (x4) holds four elements of the last axis in one: [..., 4 F] becomes [..., F],
    and what is packed becomes four times as long, as nki-library's tests have it.
    """
    values = np.asarray(array)
    wanted = np.dtype(dtype)
    if values.dtype == wanted:
        return values
    if element_of(values.dtype) is not None:
        values = unpack(values)
    return values.astype(wanted) if element_of(wanted) is None else pack(values, wanted)


def element_of(dtype: np.dtype[Any]) -> Any:
    """Return the dtype of the four elements in a packed dtype; None for other dtypes."""
    return _PACKED.get(dtype.names[0]) if dtype.names else None


def pack(values: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Numbers [..., 4 F], rounded, as packed elements [..., F]; the first in the lowest bits."""
    codes = values.astype(element_of(dtype)).view(np.uint8)
    fours = codes.reshape(*values.shape[:-1], -1, 4).astype(f"u{dtype.itemsize}")
    return np.bitwise_or.reduce(fours << _places(dtype), axis=-1).view(dtype)


def unpack(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the numbers [..., 4 F] of packed elements [..., F]."""
    places = _places(values.dtype)
    codes = values.view(places.dtype)[..., None] >> places & (1 << int(places[1])) - 1
    numbers = codes.astype(np.uint8).view(element_of(values.dtype))
    return numbers.reshape(*values.shape[:-1], -1)


def _places(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the lowest bit of each of the four elements."""
    return np.arange(4, dtype=f"u{dtype.itemsize}") * (2 * dtype.itemsize)


def is_float_type(dtype: Any) -> bool:
    """Return whether a dtype holds floating-point numbers, including those of ml_dtypes."""
    found = np.dtype(dtype)
    if np.issubdtype(found, np.floating):
        return True
    try:
        ml_dtypes.finfo(found)
    except ValueError:
        return False
    return True


def neuron_dtypes(language: ModuleType) -> ModuleType:
    """``neuron_dtypes``: dtypes that NumPy or ``nki.language`` has, and casts."""
    return package(
        "neuron_dtypes",
        static_cast=static_cast,
        is_float_type=is_float_type,
        sizeinbytes=lambda dtype: np.dtype(dtype).itemsize,
        finfo=ml_dtypes.finfo,
        **{name: np.dtype(getattr(ml_dtypes, name)) for name in _NEURON_DTYPES},
        **{name: getattr(language, name) for name in _PACKED},
    )


@contextmanager
def environment(name: str, value: str | None) -> Iterator[None]:
    """Set an environment variable within the block; None leaves it as it is."""
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


class CpuSimulation:
    """``nki.cpu_simulate(kernel)[cores](**arrays)``, as the suite calls its simulator.

    ``simulate`` is ``nki.simulate`` of the embedded modules.
    """

    def __init__(self, simulate: Any, kernel: Any, cores: int | None = None) -> None:
        self._simulate = simulate
        self._kernel = kernel
        self._cores = cores

    def __getitem__(self, cores: int) -> CpuSimulation:
        return CpuSimulation(self._simulate, self._kernel, cores)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        simulation = self._simulate(self._kernel)
        if self._cores is not None:
            simulation = simulation[self._cores]
        with environment(TARGET, os.environ.get(GENERATION)):
            return simulation(*args, **kwargs)


class TraceFrontend:
    """``ParserFrontend`` of ``nki.compiler.frontend``: to trace a kernel is to run it here.

    Tests that only trace compare nothing: the kernel itself asserts, or must raise.
    """

    simulate: Any
    """``nki.simulate`` of the embedded modules; on the class, as the suite makes the object."""

    def compile(
        self, kernel: Any, *, inputs: dict[str, Any], target: str, lnc: int, **_: Any
    ) -> None:
        """Run ``kernel`` on ``lnc`` cores of ``target``; what the compiler would write is not."""
        with environment(TARGET, target):
            type(self).simulate(kernel)[lnc](**inputs)


def _compiler(simulate: Any) -> dict[str, ModuleType]:
    parser = type(
        "ParserFrontend", (TraceFrontend,), {"simulate": staticmethod(simulate)}
    )
    frontend = package(
        "nki.compiler.frontend", NKIFrontend=TraceFrontend, ParserFrontend=parser
    )
    return {frontend.__name__: frontend}


def nki_parts(modules: dict[str, ModuleType]) -> dict[str, ModuleType]:
    """Return the submodules of ``nki`` that the suite imports and the embedded ``nki`` lacks."""
    language = modules["nki.language"]
    isa = modules["nki.isa"]
    dtypes = package("nki.dtype", **_dtypes_of(language))
    parts = {
        "nki.isa.constants": getattr(isa, "constants", isa),
        "nki.dtype": dtypes,
        "nki.language.dtypes": dtypes,
        "nki.tensor": package("nki.tensor", NkiTensor=language.NkiTensor),
        **_compiler(modules["nki"].simulate),
        "nki.builtin": package("nki.builtin"),
    }
    return {name: part for name, part in parts.items() if name not in modules}


def _dtypes_of(language: ModuleType) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(language).items()
        if isinstance(value, np.dtype)
    }


def as_cpu_simulator(modules: dict[str, ModuleType]) -> dict[str, ModuleType]:
    """``nki`` and its parts once more, under the names that the suite's hook imports.

    ``modules`` are the embedded ones by name, ``nki_parts`` among them.
    """
    nki = modules["nki"]
    simulate = nki.simulate
    nki.cpu_simulate = lambda kernel: CpuSimulation(simulate, kernel)  # type: ignore[attr-defined]
    root = "nki_cpu_simulator"
    named = {
        f"{root}.{name}": module for name, module in modules.items() if _of_nki(name)
    }
    return {root: package(root, nki=nki), **named}


def _of_nki(name: str) -> bool:
    return name.partition(".")[0] == "nki"
