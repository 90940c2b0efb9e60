"""Drawn calls of every function of the API, legal or not: each gives a value or an NkiError.

The arguments are drawn without regard to the function's parameters, from tiles, tensors, numbers,
names, operators, indices and unrelated objects. The search is for crashes: errors of Python or
NumPy from inside the simulator.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from difftest.simulator import NkiError, launch
from difftest.simulator.entry import kernel as classic
from difftest.simulator.entry.kernel import baremetal_with, benchmark_with, profile_with
from difftest.simulator.entry.nki_kernel import jit
from difftest.simulator.frontend.classic import compiler as classic_ncc
from difftest.simulator.frontend.classic import isa as classic_isa
from difftest.simulator.frontend.classic import language as classic_nl
from difftest.simulator.frontend.nki import isa as today_isa
from difftest.simulator.frontend.nki import language as today_nl
from difftest.simulator.frontend.nki.tensor import NkiTensor

SHAPES = ((8, 8), (8, 1), (16, 8), (1, 8), (32, 32), (8, 2, 4), (1, 1), (128, 4))
DTYPES = (
    "float32",
    "bfloat16",
    "int32",
    "uint8",
    "uint16",
    "uint32",
    "int8",
    "float8_e5m2",
)
UNDOCUMENTED = (
    "no_such_argument",
    "perf_mode",
    "directives",
    "platform_target",
    "mode",
)
"""Names for where a function takes any."""
WAITING = frozenset({"core_barrier", "sendrecv"})
"""They wait for another core, which these launches do not have."""


@dataclass(frozen=True)
class Dialect:
    """The modules of a dialect, and the launch of one of its kernels."""

    name: str
    nl: Any
    nisa: Any
    kernel: Callable[[Callable[[Any], None]], Any]
    plain: tuple[bool, ...]
    others: tuple[tuple[str, Callable[..., Any]], ...] = ()
    """Further functions, by name."""

    def functions(self) -> list[tuple[str, Callable[..., Any]]]:
        """Every public function, by name."""
        found = []
        for short, module in (("nl", self.nl), ("nisa", self.nisa)):
            for name in sorted(module.__all__):
                value = getattr(module, name)
                if inspect.isfunction(value) and name not in WAITING:
                    found.append((f"{short}.{name}", value))
        return [*found, *self.others]


OF_THE_COMPILER = tuple(
    (f"ncc.{name}", getattr(classic_ncc, name))
    for name in sorted(classic_ncc.__all__)
    if inspect.isfunction(getattr(classic_ncc, name))
)
PLACING = tuple(
    (f"{memory!r}.{name}", getattr(memory, name))
    for memory in (classic_ncc.sbuf, classic_ncc.psum)
    for name in ("alloc", "auto_alloc", "mod_alloc")
)
DECORATORS = (
    *((f"nki.{name}", getattr(classic, name)) for name in ("jit", "trace")),
    ("nki.baremetal", baremetal_with(None)),
    ("nki.profile", profile_with(None)),
    ("nki.benchmark", benchmark_with(None)),
)
ITEMS = ("__getitem__", "__iter__", "__setitem__")
OF_TENSORS = tuple(
    (f"nl.NkiTensor.{name}", getattr(NkiTensor, name))
    for name in sorted(vars(NkiTensor))
    if inspect.isfunction(getattr(NkiTensor, name))
    and (name[0] != "_" or name in ITEMS)
)
DIALECTS = (
    Dialect(
        "classic",
        classic_nl,
        classic_isa,
        lambda function: function,
        (False, True),
        (*OF_THE_COMPILER, *PLACING, *DECORATORS),
    ),
    Dialect("today's", today_nl, today_isa, jit, (False,), OF_TENSORS),
)


class Drawer:
    """Draws arguments for the calls of one launch."""

    def __init__(self, dialect: Dialect, seed: int, tensor: Any) -> None:
        self.random = random.Random(seed)
        self.nl = dialect.nl
        self.nisa = dialect.nisa
        self.tensor = tensor

    def tile(self) -> Any:
        """A tile that is written, in SBUF or PSUM, or a part of one."""
        shape = self.random.choice(SHAPES)
        dtype = getattr(self.nl, self.random.choice(DTYPES))
        buffer = self.random.choice((self.nl.sbuf, self.nl.sbuf, self.nl.psum))
        made = self.nl.full(shape, self.random.choice((0, 1, 2)), dtype, buffer=buffer)
        kind = self.random.randrange(6)
        if kind == 0:
            return made[0 : max(1, shape[0] // 2)]
        if kind == 1 and hasattr(self.nl, "arange") and self.random.random() < 0.5:
            return made[
                self.nl.arange(shape[0])[(slice(None), *[None] * (len(shape) - 1))] < 4
            ]
        return made[:, 0:1] if kind == 1 and len(shape) == 2 else made

    def index(self) -> Any:
        """An index expression or a comparison, in the dialect that has them."""
        if not hasattr(self.nl, "arange"):
            return self.nl.ds(0, 4) if hasattr(self.nl, "ds") else 1
        line = self.nl.arange(self.random.choice((1, 8, 4)))
        spread = self.random.choice((line[:, None], line[None, :], line))
        return (
            spread
            if self.random.random() < 0.5
            else spread < self.random.choice((0, 2, 9))
        )

    def operator(self) -> Any:
        names = (
            "add",
            "multiply",
            "maximum",
            "bitwise_and",
            "exp",
            "logical_not",
            "power",
            "less",
        )
        return getattr(
            self.random.choice((np, self.nl)), self.random.choice(names), np.add
        )

    def odd(self) -> Any:
        """Draw an object that every argument rejects."""
        values: tuple[Any, ...] = (
            None,
            "x",
            b"x",
            1j,
            object(),
            {},
            [],
            (),
            [None],
            (1, "x"),
            ...,
            slice(0, 2),
            int,
            float("nan"),
            float("inf"),
            -1,
            10**12,
            2**70,
            np.arange(3),
            np.float64(2.5),
            np.array("x"),
            np.array([[1.0]]),
            {"a": 1},
            lambda: 1,
            True,
            self.nl,
            range(3),
        )
        return self.random.choice(values)

    def shape(self) -> Any:
        return self.random.choice(
            ((8, 8), [8, 8], 8, (8,), (8, 2, 4), (129, 1), (0, 1), (8, -1))
        )

    def argument(self, name: str) -> Any:
        """For a parameter of this name: what fits often, anything sometimes."""
        choice = self.random.random()
        if name == "self":
            return self.random.choice((self.tile, self.hbm))()
        if choice < 0.12:
            return self.odd()
        if name in ("mask", "pred", "expr") and choice < 0.9:
            return self.index()
        if name == "dtype" or name.endswith("_dtype"):
            return getattr(self.nl, self.random.choice(DTYPES))
        if name in ("op", "op0", "op1", "reduce_op", "comp_op0", "comp_op1", "cmp_op"):
            return self.operator()
        if name in ("shape", "axes", "tile_position", "tile_size", "shuffle_mask"):
            return self.shape()
        if name in ("axis", "axes", "n", "seed", "num", "start", "size", "dim", "dims"):
            return self.random.choice((0, 1, 2, -1, [1, 2], (1,), 8, 1.0))
        if name == "key":
            return self.random.choice(
                (0, -1, (1, slice(0, 8, 3)), (..., range(2)), range(1, 4), ...)
            )
        if name == "engine":
            return self.random.choice(tuple(self.nisa.engine))
        return self.random.choice(
            (self.tile, self.tile, self.tile, self.number, self.hbm)
        )()

    def number(self) -> Any:
        return self.random.choice((0, 1, 2.5, -3, np.float32(0.5), True, 8))

    def hbm(self) -> Any:
        return self.random.choice(
            (self.tensor, self.tensor[0:8], self.tensor[0:8, 0:4])
        )

    def arguments(
        self, function: Callable[..., Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of one call; some are left out, a few are too many."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for one in inspect.signature(function).parameters.values():
            if one.kind is one.VAR_POSITIONAL:
                positional += [
                    self.argument(one.name) for _ in range(self.random.randrange(3))
                ]
            elif one.kind is one.VAR_KEYWORD:
                if self.random.random() < 0.1:
                    named[self.random.choice(UNDOCUMENTED)] = self.odd()
            elif one.default is one.empty or self.random.random() < 0.35:
                left_out = self.random.random() < 0.03
                if left_out and one.name != "self" and function.__name__[0] != "_":
                    continue
                named[one.name] = self.argument(one.name)
        return positional, named


def crashes(dialect: Dialect, count: int, seed: int) -> Iterator[str]:
    """Call every function so many times in each mode; what died, as text."""
    for name, function in dialect.functions():
        for plain in dialect.plain:
            for number in range(count):
                text = _crash(dialect, name, function, seed + number, plain=plain)
                if text is not None:
                    yield text


def _crash(
    dialect: Dialect, name: str, function: Callable[..., Any], seed: int, *, plain: bool
) -> str | None:
    def kernel(tensor: Any) -> None:
        drawer = Drawer(dialect, _seed(name, seed), tensor)
        positional, named = drawer.arguments(function)
        result = function(*positional, **named)
        if inspect.isgenerator(result) or isinstance(result, range):
            list(zip(range(3), result, strict=False))

    array = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            launch(dialect.kernel(kernel), [array], plain=plain)
    except NkiError as error:
        str(error)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        mode = "plain" if plain else "fast"
        return (
            f"{dialect.name} {name}, draw {seed}, {mode}: {type(error).__name__}: {error} "
            f"at {where.filename}:{where.lineno}"
        )
    return None


def _seed(name: str, number: int) -> int:
    """Return a number for a call that is equal in every process."""
    return sum(ord(letter) * 31**k for k, letter in enumerate(name)) % 10**9 + number
