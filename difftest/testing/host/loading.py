"""A kernel on a command line: MODULE:KERNEL or FILE.py:KERNEL, shapes, a grid, NAME=VALUE."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import math
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from difftest.simulator.frontend.launchable import MOST_PROGRAMS, nc
from difftest.support.tracebacks import PACKAGE, hide_frames
from difftest.testing.contract.limits import within_limits
from difftest.testing.host.naming import function_in
from difftest.testing.host.shipped import import_shipped

SHIPPED = ("kernels", "reference")
_IMPORTING = (PACKAGE, importlib.__file__, "<frozen importlib")
"""The files of the frames between a command and the module that it imports."""
_SIZE = r" *0*[1-9][0-9]* *"
_SHAPE = re.compile(rf"{_SIZE}(,{_SIZE}){{,31}}")
"""NumPy 1 has arrays of at most 32 dimensions."""


def load_kernel(name: str) -> Any:
    """Return the kernel named ``MODULE:KERNEL`` or ``FILE.py:KERNEL``.

    The embedded modules must be installed.
    """
    place, _, function = name.rpartition(":")
    relative = place.startswith(".") and not place.endswith(".py")
    if relative or not place or not function or place.endswith(":"):
        hint = "; a kernel test, PATH::TEST, goes with --case" if "::" in name else ""
        raise click.UsageError(
            "a kernel is named MODULE:KERNEL, as in kernels.classic.transpose:matrix_transpose, "
            f"or FILE.py:KERNEL; got {name}{hint}"
        )
    module = _import_place(place)
    try:
        return function_in(module, function, place)
    except LookupError as error:
        raise click.UsageError(str(error)) from None


def _import_place(place: str) -> ModuleType:
    """Import a module or a file, within the limits of a case; its errors end the command."""
    try:
        module: ModuleType = within_limits(
            lambda: _load(place), f"the import of {place}"
        )
        return module
    except (click.ClickException, KeyboardInterrupt):
        raise
    except SyntaxError as error:
        raise click.ClickException(f"cannot import {place}: {error}") from None
    except BaseException as error:
        # A SystemExit counts too: it would end the command without a word.
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{place}.".startswith(f"{missing}."):
            raise click.UsageError(f"cannot import {place}: {error}") from None
        hide_frames(error, _IMPORTING)
        text = "".join(traceback.format_exception(error)).rstrip()
        raise click.ClickException(f"cannot import {place}\n{text}") from None


def _load(place: str) -> ModuleType:
    """Import a file, a module of the user, or a module of this repository."""
    if place.endswith(".py"):
        return _import_file(Path(place))
    package = place.partition(".")[0]
    if package not in SHIPPED:
        return _import_own(place)
    for folder in _folders():
        path = folder / package
        if path.is_dir() or path.with_suffix(".py").is_file():
            return _import_own(place)
    return import_shipped(place)


def _import_file(path: Path) -> ModuleType:
    """Import the module in a file as a part of its package, so that relative imports work."""
    if not path.is_file():
        raise click.UsageError(f"no file at {path}")
    file = path.resolve()
    folder = file.parent
    name = file.stem
    while (folder / "__init__.py").is_file():
        name = f"{folder.name}.{name}"
        folder = folder.parent
    sys.path.insert(0, str(folder))
    module = importlib.import_module(name)
    if Path(module.__file__ or "").resolve() != file:
        raise click.UsageError(
            f"{name} is also the name of the module at {module.__file__}"
        )
    return module


@contextlib.contextmanager
def in_front(folder: Path, modules: Iterable[str]) -> Iterator[None]:
    """Import a folder's modules within the block, in place of other modules of their names."""
    roots = {name.split(".")[0] for name in modules}

    def take_out() -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name.split(".")[0] in roots]
        return {name: sys.modules.pop(name) for name in names}

    before = take_out()
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()  # files may be newer than the cached list of the folder
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        take_out()
        sys.modules.update(before)


def _import_own(name: str) -> ModuleType:
    """Import a user's module, whose package may have the name of a package of this repository.

    Python prefers a package later on the path to a folder without ``__init__.py``. So such a folder
    is searched only in the user's folders.
    """
    own = [str(folder) for folder in _folders()]
    sys.path[:0] = [folder for folder in own if folder not in sys.path]
    package = name.partition(".")[0]
    spec = PathFinder.find_spec(package, own) if package in SHIPPED else None
    if spec is not None and spec.origin is None and package not in sys.modules:
        sys.modules[package] = importlib.util.module_from_spec(spec)
    return importlib.import_module(name)


def _folders() -> tuple[Path, ...]:
    """Return the folders of the user's modules: the working directory, and ``src`` in it."""
    here = Path.cwd()
    source = here / "src"
    return (here, source) if source.is_dir() else (here,)


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse a shape such as ``128,512``."""
    if not _SHAPE.fullmatch(text):
        raise click.BadParameter(
            f"a shape is 1 to 32 positive sizes, commas between, as in 128,512; got {text!r}"
        )
    return tuple(map(int, text.split(",")))


def parse_grid(text: str | None) -> tuple[int, ...]:
    """Parse an SPMD grid such as ``2`` or ``4,nc2``, where nc2 is ``nl.nc(2)``; empty for None."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    try:
        shape = parse_shape(",".join(part.removeprefix("nc") for part in parts))
    except click.BadParameter:
        raise click.BadParameter(
            f"a grid is positive sizes, as in 4,2, or 4,nc2 for nl.nc(2); got {text!r}"
        ) from None
    if math.prod(shape) > MOST_PROGRAMS:
        raise click.BadParameter(
            f"a grid has at most {MOST_PROGRAMS} programs; got {text!r}"
        )
    grid = []
    for size, part in zip(shape, parts, strict=True):
        grid.append(nc(size) if part.startswith("nc") else size)
    return tuple(grid)


def parse_keywords(texts: Iterable[str]) -> dict[str, Any]:
    """Parse texts ``NAME=VALUE``; a value that is not a Python literal is text."""
    keywords: dict[str, Any] = {}
    for text in texts:
        name, value = _named(text, "an argument is NAME=VALUE", ".*")
        if name in keywords:
            raise click.BadParameter(f"{name} is set twice")
        try:
            keywords[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            keywords[name] = value
    return keywords


def parse_bounds(texts: Iterable[str]) -> dict[str, int]:
    """Parse texts ``NAME=N``, N at least 1."""
    bounds = {}
    for text in texts:
        name, value = _named(text, "a bound is NAME=N, as in rows=64", "0*[1-9][0-9]*")
        bounds[name] = int(value)
    return bounds


def _named(text: str, accepted: str, values: str) -> tuple[str, str]:
    """Split a text ``NAME=VALUE``; the value matches the pattern ``values``."""
    name, _, value = text.partition("=")
    is_named = name.isidentifier() and name != text
    if not is_named or re.fullmatch(values, value, re.DOTALL) is None:
        raise click.BadParameter(f"{accepted}; got {text!r}")
    return name, value
