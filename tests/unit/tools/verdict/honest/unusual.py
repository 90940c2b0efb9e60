"""Honest kernels in Python style that is unusual and fair, in both dialects."""

import sys
import textwrap

import numpy as np

from difftest import Indices, Input, seeded, sizes
from tests.unit.tools.verdict.cheats.turns import REGISTERS, ROWS
from tests.unit.tools.verdict.honest.table import CLASSIC, FREE, Honest

SUM = "return store(total(a, b))"
OLD_SUM = "out = empty(a)\nnl.store(out, nl.load(a) + nl.load(b))\nreturn out"


def of(before, body=SUM, **more):
    return Honest(body, before=textwrap.dedent(before), **more)


def old(before, body=OLD_SUM, **more):
    return of(before, body, head=CLASSIC, **more)


MATCHED = """
    class Tile:
        __match_args__ = ("rows", "columns")

        def __init__(self, rows, columns):
            self.rows = rows
            self.columns = columns


    def kind_of(tile):
        match tile:
            case Tile(1, 1):
                return "scalar"
            case Tile(1, columns) if columns > 0:
                return "row"
            case Tile(rows=r, columns=1) if r:
                return "column"
            case Tile():
                return "tile"
    """
NOTED = """
    def check(shape):
        try:
            if shape[0] > 128:
                raise ValueError(f"{shape[0]=} rows")
        except ValueError as error:
            error.add_note("split the rows")
            raise


    class PlanError(Exception):
        def __init__(self, shape):
            super().__init__(f"{shape}")
            self.add_note(f"of shape {shape}")


    def seen():
        try:
            raise PlanError((1, 2))
        except PlanError as error:
            return str(error)
    """
GENERIC = """
    from dataclasses import dataclass
    from typing import Generic, TypeVar

    T = TypeVar("T", bound=object)


    @dataclass(frozen=True)
    class Box(Generic[T]):
        value: T

        def map(self, function) -> "Box[T]":
            return Box(function(self.value))
    """
TYPED = """
    from typing import NamedTuple, Protocol, TypeAlias, TypedDict, assert_never


    Shape: TypeAlias = "tuple[int, int]"
    Options = TypedDict("Options", {"op": str, "scale": float})


    class Block(NamedTuple):
        rows: int
        columns: int = 1

        @property
        def size(self) -> int:
            return self.rows * self.columns


    class Loads(Protocol):
        def __call__(self, x) -> object: ...


    def chosen(options: Options):
        match options["op"]:
            case "add":
                return nl.add
            case "subtract":
                return nl.subtract
            case other:
                assert_never(other)
    """
STACK = """
    import contextlib

    LOG = []


    @contextlib.contextmanager
    def phase(name):
        LOG.append(f"begin {name}")
        try:
            yield name
        finally:
            LOG.append(f"end {name}")
    """
LINES = {
    "classes matched by position": of(
        MATCHED,
        "assert kind_of(Tile(1, 1)) == 'scalar' and kind_of(Tile(1, 2)) == 'row'\n"
        "assert kind_of(Tile(3, 1)) == 'column' and kind_of(Tile(*a.shape)) is not None\n"
        + SUM,
    ),
    "a dataclass matched": of(
        """
        import dataclasses

        @dataclasses.dataclass
        class Plan:
            rows: int
            op: object = None
            names: tuple = ()
        """,
        "match Plan(a.shape[0], nl.add, ('x', 'y')):\n"
        "    case Plan(rows, op=op, names=(first, *rest)) if rows > 0 and rest:\n"
        "        assert first == 'x'\n        return store(total(a, b, op))",
    ),
    "a typed table": of(
        TYPED,
        "block = Block(*a.shape)\nassert block.size == a.shape[0] * a.shape[1]\n"
        "assert '%d x %d' % block and block._replace(rows=1).rows == 1\n"
        "options = Options(op='add', scale=1.0)\n"
        "return store(total(a, b, chosen({**options, 'scale': 2.0})))",
    ),
    "a box of a generic": of(
        GENERIC,
        "x = Box(load(a)).map(lambda t: t)\nassert isinstance(x, Box) and Box[int](3).value == 3\n"
        "y = load(b)\nnisa.tensor_tensor(dst=y, data1=x.value, data2=y, op=nl.add)\n"
        "return store(y)",
    ),
    "managers in a stack": of(
        STACK,
        "LOG.clear()\nwith contextlib.ExitStack() as stack:\n"
        "    names = [stack.enter_context(phase(n)) for n in ('load', 'add')]\n"
        "    stack.callback(LOG.append, 'last')\n    tile = total(a, b)\n"
        "assert names == ['load', 'add'] and LOG[-1] == 'end load' and 'last' in LOG\n"
        "with contextlib.nullcontext(3) as n, contextlib.suppress(KeyError):\n"
        "    assert n == 3\n    {}['x']\nreturn store(tile)",
    ),
    "tiles reduced": of(
        """
        import functools
        import operator


        def add_into(x, y):
            nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
            return x


        area = functools.partial(functools.reduce, operator.mul)
        """,
        "assert area(a.shape) == area(a.shape, 1) and area.func is functools.reduce\n"
        "return store(functools.reduce(add_into, [load(x) for x in (a, b)]))",
    ),
    "strict zips and pairs": of(
        """
        import itertools
        """,
        "out, tiles = None, []\n"
        "for x, name in zip((a, b), ('left', 'right'), strict=True):\n    tiles.append(load(x))\n"
        "try:\n    list(zip([1], [], strict=True))\nexcept ValueError:\n    out = 1\n"
        "assert out == 1 and list(itertools.pairwise('abc')) == [('a', 'b'), ('b', 'c')]\n"
        "first, second = tiles\n"
        "starts = list(itertools.accumulate(itertools.repeat(2, 3), initial=0))\n"
        "assert starts == [0, 2, 4, 6]\n"
        "one, two = itertools.tee(range(3))\n"
        "assert [*one] == [*two] and [*itertools.chain.from_iterable([[1], [2]])] == [1, 2]\n"
        "assert [k for k, _ in itertools.groupby('aab')] == ['a', 'b']\n"
        "nisa.tensor_tensor(dst=first, data1=first, data2=second, op=nl.add)\n"
        "return store(first)",
    ),
    "messages that debug": of(
        "",
        "rows, columns = a.shape\n"
        "assert rows <= 128, f'{rows=} {columns = :>4} {a.dtype!s:^10} {a!r} {load.__name__}'\n"
        "assert f'{rows=}' == 'rows=' + str(rows) and f'{3.14159:.{1 + 1}f}' == '3.14'\n"
        "assert f'{rows:{chr(48)}>{4}}'.isdigit(), f'{{}}'\n" + SUM,
    ),
    "a set of names": of(
        """
        KNOWN = frozenset({"add", "sub"}) | {"mul"}
        OPS = {"add": nl.add}
        """,
        "wanted = {'add'}\nwanted |= {'add', 'sub'}\n"
        "assert wanted <= KNOWN and 'add' in {'add', 'mul'} and not wanted - KNOWN\n"
        "assert sorted(wanted ^ KNOWN) == ['mul'] and len({*a.shape} | {3}) >= 1\n"
        "for name in sorted(OPS.keys() & wanted):\n    tile = total(a, b, OPS[name])\n"
        "return store(tile)",
    ),
    "numbers of an enumeration": of(
        """
        from enum import Enum, IntEnum, IntFlag


        class Scale(float, Enum):
            HALF = 0.5
            ONE = 1.0


        class Lanes(IntEnum):
            ALL = 128


        class Flags(IntFlag):
            NONE = 0
            KEEP = 1


        class Name(str, Enum):
            def __new__(cls, text, op):
                member = str.__new__(cls, text)
                member._value_ = text
                member.op = op
                return member

            ADD = ("add", 0)
            SUB = ("sub", 1)
        """,
        "assert a.shape[0] <= Lanes.ALL and Flags.KEEP | Flags.NONE == 1\n"
        "assert Name('add') is Name.ADD and Name.SUB.op == 1 and Name.ADD.upper() == 'ADD'\n"
        "x = total(a, b)\nnisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=Scale.HALF)\n"
        "return store(x)",
        reference=lambda a, b: (a.astype(np.float64) + b) / 2,
    ),
    "arguments by a mapping": of(
        """
        from collections import ChainMap, OrderedDict

        DEFAULTS = {"op": nl.add}
        """,
        "x, y = load(a), load(b)\nchosen = ChainMap({'data1': x, 'data2': y}, DEFAULTS)\n"
        "nisa.tensor_tensor(dst=x, **chosen)\n"
        "assert {**DEFAULTS, 'z': 1}['z'] == 1 and dict(**{'k': 2}) == {'k': 2}\n"
        "assert list(OrderedDict(p=1, q=2)) == ['p', 'q']\nreturn store(x)",
    ),
    "special methods of a view": of(
        """
        class Rows:
            def __init__(self, tile):
                self._tile = tile
                self._at = 0

            def __len__(self):
                return self._tile.shape[0]

            def __getitem__(self, place):
                match place:
                    case slice(start=None, stop=None):
                        return self._tile
                    case int():
                        return self._tile[place : place + 1]
                raise TypeError(place)

            def __contains__(self, row):
                return 0 <= row < len(self)

            def __iter__(self):
                return (self[row] for row in range(len(self)))

            def __reversed__(self):
                return (self[row] for row in range(len(self) - 1, -1, -1))

            def __format__(self, spec):
                return f"{len(self):{spec or 'd'}}"

            def __index__(self):
                return len(self)

            def __iadd__(self, other):
                nisa.tensor_tensor(dst=self[:], data1=self[:], data2=other[:], op=nl.add)
                return self

            def __lt__(self, other):
                return len(self) < len(other)
        """,
        "x, y = Rows(load(a)), Rows(load(b))\nx += y\n"
        "assert 0 in x and f'{x:>4}' and range(x) and len(list(reversed(y))) == len([*y])\n"
        "assert sorted([x, y]) and not x < y\nreturn store(x[:])",
    ),
    "generators that are closed": of(
        """
        def tiles(*tensors):
            count = 0
            try:
                for tensor in tensors:
                    got = yield load(tensor)
                    count += got or 0
            finally:
                assert count >= 0


        def both(*tensors):
            return (yield from tiles(*tensors))
        """,
        "source = both(a, b)\nx = next(source)\ny = source.send(2)\nsource.close()\n"
        "nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)\nreturn store(x)",
    ),
    "a walrus in a comprehension": of(
        "",
        "parts = [last := p for p in a.shape if (half := p // 2) >= 0]\n"
        "assert last == parts[-1] and half == last // 2 and (n := len(parts)) == 2\n"
        "x = load(a)\nwhile (n := n - 1) > 0:\n"
        "    nisa.tensor_tensor(dst=x, data1=x, data2=load(b), op=nl.add)\nreturn store(x)",
    ),
    "names of the file": of(
        """
        import logging
        import warnings
        from pathlib import Path

        LOG = logging.getLogger(__name__)
        HERE = Path(__file__).resolve().parent


        class Layer:
            log = logging.getLogger(__name__).getChild("layer")


        if __name__ != "__main__":
            READY = True
        """,
        "LOG.debug('%s of %s', a.shape, __name__)\n"
        "if LOG.isEnabledFor(logging.DEBUG):\n    LOG.debug(f'{a} in {__file__}')\n"
        "warnings.warn(f'{__name__}: {a}')\nassert READY, f'{__file__}'\n" + SUM,
    ),
    "copies of containers": of(
        """
        import copy


        class Table(dict):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
                self.used = []


        BASE = Table(op=[nl.add])
        """,
        "mine = copy.deepcopy(BASE)\nmine['op'].append(nl.subtract)\nmine.used.append(1)\n"
        "assert len(BASE['op']) == 1 and not BASE.used and type(mine) is Table\n"
        "return store(total(a, b, mine['op'][0]))",
    ),
    "the version of Python": of(
        """
        import sys
        import types

        if sys.version_info >= (3, 8) and sys.version_info.major == 3:
            OPTIONS = types.SimpleNamespace(op=nl.add)
        """,
        "assert OPTIONS == types.SimpleNamespace(op=nl.add) and type(OPTIONS) is not dict\n"
        "return store(total(a, b, OPTIONS.op))",
    ),
    "a cached table with keys of its own": of(
        """
        class Key:
            def __init__(self, shape):
                self.shape = shape

            def __hash__(self):
                return hash((Key, self.shape))

            def __eq__(self, other):
                return isinstance(other, Key) and self.shape == other.shape


        TABLE = {Key((1, 1)): "one"}
        """,
        "assert TABLE[Key((1, 1))] == 'one'\nTABLE.setdefault(Key(tuple(a.shape)), 'more')\n"
        "assert Key(tuple(a.shape)) in TABLE and id(a) != id(b) and id(a) == id(a)\n"
        + SUM,
    ),
    "tiles in a set": of(
        "",
        "x, y = load(a), load(b)\nseen = {id(x): x, id(y): y}\nassert len(seen) == 2\n"
        "assert len({id(t) for t in (x, y, x)}) == 2\n"
        "nisa.tensor_tensor(dst=x, data1=x, data2=seen[id(y)], op=nl.add)\nreturn store(x)",
    ),
    "properties and descriptors": of(
        """
        import functools


        class Plan:
            def __init__(self, shape):
                self._shape = shape

            @property
            def rows(self):
                return self._shape[0]

            @rows.setter
            def rows(self, value):
                self._shape = (value, *self._shape[1:])

            @functools.cached_property
            def size(self):
                return functools.reduce(lambda p, q: p * q, self._shape, 1)

            columns = property(lambda self: self._shape[1])

            @classmethod
            def of(cls, tensor):
                return cls(tuple(tensor.shape))

            @staticmethod
            def limit():
                return 128
        """,
        "plan = Plan.of(a)\nassert plan.rows <= plan.limit() and plan.size and plan.columns\n"
        "plan.rows = 3\nassert plan.rows == 3\n" + SUM,
    ),
    "two outputs by stars": of(
        "",
        "one, *more = (total(a, b, op) for op in (nl.add, nl.subtract))\n"
        "return store(one), *map(store, more)",
        reference=lambda a, b: (a.astype(np.float64) + b, a.astype(np.float64) - b),
    ),
    "decorators with arguments": of(
        """
        import functools


        def repeated(times):
            def decorate(function):
                @functools.wraps(function)
                def inner(*args, **kwargs):
                    inner.calls += 1
                    result = None
                    for _ in range(times):
                        result = function(*args, **kwargs)
                    return result

                inner.calls = 0
                return inner

            return decorate


        @repeated(times=2)
        def plus(x, y, /, *, op=nl.add):
            nisa.tensor_tensor(dst=x, data1=x, data2=y, op=op)
            return x
        """,
        "assert plus.__name__ == 'plus'\nreturn store(plus(load(a), load(b)))",
        reference=lambda a, b: a.astype(np.float64) + 2 * b.astype(np.float64),
    ),
    "starred indices": of(
        "",
        "x, y = load(a), load(b)\nplace = (slice(0, a.shape[0]), slice(None))\n"
        "nisa.tensor_tensor(dst=x[*place], data1=x[place], data2=y[...], op=nl.add)\n"
        "return store(x)"
        if sys.version_info >= (3, 11)
        else SUM,
    ),
    "an abstract family": of(
        """
        from abc import ABC, abstractmethod
        from typing import ClassVar


        class Step(ABC):
            count: ClassVar[int] = 0

            @property
            @abstractmethod
            def op(self): ...

            def __call__(self, x, y):
                nisa.tensor_tensor(dst=x, data1=x, data2=y, op=self.op)
                return x


        class Add(Step):
            op = nl.add


        STEPS = {kind.__name__.lower(): kind for kind in (Add,)}
        """,
        "try:\n    Step()\nexcept TypeError as error:\n    said = f'{error}'\n"
        "return store(STEPS['add']()(load(a), load(b)))",
    ),
    "several errors": of(
        NOTED if sys.version_info >= (3, 11) else "def check(shape): ...\n",
        ("assert seen() == '(1, 2)'\n" if sys.version_info >= (3, 11) else "")
        + "check(a.shape)\ntry:\n    try:\n        {}['x']\n"
        "    except KeyError as error:\n        raise ValueError('no x') from error\n"
        "except (ValueError, TypeError) as error:\n    assert str(error) == 'no x'\n"
        "else:\n    raise AssertionError\nfinally:\n    done = True\nassert done\n"
        + SUM,
    ),
}
LOOPS = {
    "turns in turns of three loops": of(
        "",
        "x, y = load(a), load(b)\ndef inner(_):\n"
        "    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)\n"
        "def middle(_):\n    for _ in nl.dynamic_range(0, 2):\n        inner(_)\n"
        "nl.fori_loop(0, 2, lambda i: nl.fori_loop(0, 1, middle))\nreturn store(x)",
        reference=lambda a, b: a.astype(np.float64) + 4 * b.astype(np.float64),
    ),
    "a tile of each turn": of(
        "",
        "x = load(a)\ndef body(i):\n    y = load(b)\n    z = nl.ndarray(a.shape, dtype=a.dtype, "
        "buffer=nl.sbuf)\n    nisa.tensor_copy(dst=z, src=y)\n"
        "    nisa.tensor_tensor(dst=x, data1=x, data2=z, op=nl.add)\n"
        "nl.fori_loop(0, 3, body)\nreturn store(x)",
        reference=lambda a, b: a.astype(np.float64) + 3 * b.astype(np.float64),
    ),
    "a static loop of Python around turns": of(
        "",
        "tiles = {n: load(x) for n, x in enumerate((a, b))}\nfor n in nl.static_range(2):\n"
        "    def body(i, tile=tiles[n]):\n"
        "        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)\n"
        "    nl.fori_loop(0, n + 1, body)\nx, y = tiles.values()\n"
        "nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)\nreturn store(x)",
        reference=lambda a, b: 2 * a.astype(np.float64) + 4 * b.astype(np.float64),
    ),
    "psum in turns": of(
        "",
        "x, y = load(a), load(b)\n"
        "out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.sbuf)\n"
        "nisa.memset(dst=out, value=0.0)\ndef body(i):\n"
        "    t = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum)\n"
        "    nisa.nc_matmul(dst=t, stationary=x, moving=y)\n"
        "    nisa.tensor_tensor(dst=out, data1=out, data2=t, op=nl.add)\n"
        "nl.fori_loop(0, 2, body)\nreturn store(out)",
        reference=lambda a, b: 2 * (a.astype(np.float64).T @ b.astype(np.float64)),
        domain={"p": sizes(1, 64), "n": FREE},
        more={"dtypes": ("float32",)},
    ),
    "rows by a scalar's product": Honest(
        f"{ROWS}one = nisa.scalar_load(number(1))\nfor i in range(3):\n    take(one * i)\n"
        "return store(tile)",
        lambda a, b: a.astype(np.float64)[[0, 1, 2]].sum(0, keepdims=True),
        domain={"p": sizes(4, 4), "n": FREE},
        before=REGISTERS,
    ),
    "a table of registers": Honest(
        f"{ROWS}registers = {{n: register_of(n) for n in (3, 1)}}\n"
        "def body(i):\n    for n, register in registers.items():\n        take(register)\n"
        "nl.fori_loop(0, 2, body)\nreturn store(tile)",
        lambda a, b: a.astype(np.float64)[[3, 1, 3, 1]].sum(0, keepdims=True),
        domain={"p": sizes(4, 4), "n": FREE},
        before=REGISTERS,
    ),
}
RAGGED = """x = load(a)
def more(i):
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
def count(i):
    bits = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(
        dst=bits, src=b.ap([[1, 1], [1, 1]], offset=0, scalar_offset=i, indirect_dim=0)
    )
    r = nisa.register_alloc(0)
    nisa.register_load(r, bits)
    return r
nl.fori_loop(0, 4, lambda i: nl.fori_loop(0, count(i), more))
return store(x)
"""
WHILE_COUNTED = """x = load(a)
bits = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
r = nisa.register_alloc(0)
for m in range(4):
    nisa.dma_copy(dst=bits, src=b[m : m + 1, 0:1])
    nisa.register_load(r, bits)
    while r:
        nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(dst=bits, data=bits, op0=nl.subtract, operand0=1)
        nisa.register_load(r, bits)
return store(x)
"""
COUNTS = Input("4 1", dtype="int32", data=seeded(Indices, below=3))
LOOPS |= {
    name: of(
        "",
        body,
        reference=lambda a, b: a.astype(np.float64) + b.sum(),
        inputs={"a": "p n", "b": COUNTS},
        domain={"p": sizes(1, 4), "n": FREE},
    )
    for name, body in {
        "inner loops with other numbers of turns, and none": RAGGED,
        "while loops with and without turns": WHILE_COUNTED,
    }.items()
}
OLD = {
    "classic: classes matched": old(
        MATCHED, f"assert kind_of(Tile(*a.shape)) is not None\n{OLD_SUM}"
    ),
    "classic: a stack of managers": old(
        STACK,
        "with contextlib.ExitStack() as stack:\n    stack.enter_context(phase('x'))\n"
        "    tile = nl.load(a) + nl.load(b)\n"
        "out = empty(a)\nnl.store(out, tile)\nreturn out",
    ),
    "classic: a set of names": old(
        "NAMES = {'x', 'y'}\n",
        f"assert {{'x'}} < NAMES and len(NAMES) == 2\n{OLD_SUM}",
    ),
    "classic: partials and a reduction": old(
        "import functools\n\nplus = functools.partial(functools.reduce, nl.add)\n",
        "out = empty(a)\nnl.store(out, plus([nl.load(x) for x in (a, b)]))\nreturn out",
    ),
    "classic: masks by a helper": old(
        """
        def inside(p, f, shape, *, limit=None):
            rows, columns = shape
            return (p < min(rows, limit or rows)) & (f < columns)
        """,
        "out = empty(a)\np, f = nl.mgrid[0:128, 0:8]\nmask = inside(p, f, a.shape)\n"
        "x = nl.load(a[p, f], mask=mask)\ny = nl.load(b[p, f], mask=mask)\n"
        "nl.store(out[p, f], nl.add(x, y, mask=mask), mask=mask)\nreturn out",
    ),
    "classic: a dataclass of options": old(
        """
        from dataclasses import dataclass, field, replace


        @dataclass(frozen=True, order=True)
        class Options:
            factor: float = 1.0
            names: list = field(default_factory=list, compare=False)
        """,
        "options = replace(Options(), factor=3.0)\nassert Options() < options\nout = empty(a)\n"
        "nl.store(out, nl.load(a) * options.factor + nl.load(b))\nreturn out",
        reference=lambda a, b: 3 * a.astype(np.float64) + b,
    ),
    "classic: a loop of closures": old(
        "",
        "out = empty(a)\nx = nl.load(a)\nsteps = [lambda t, n=n: t + float(n) for n in range(3)]\n"
        "for step in steps:\n    x = step(x)\nnl.store(out, x + nl.load(b))\nreturn out",
        reference=lambda a, b: a.astype(np.float64) + 3 + b,
    ),
    "classic: enumerated columns": old(
        "",
        "out = empty(a)\nx, y = nl.load(a), nl.load(b)\nfor f in nl.affine_range(a.shape[1]):\n"
        "    nl.store(out[:, nl.ds(f, 1)], x[:, nl.ds(f, 1)] + y[:, nl.ds(f, 1)])\nreturn out",
    ),
}
NEW = {
    "type parameters": of(
        """
        type Pair[T] = tuple[T, T]
        type Number = int | float


        class Box[T: (int, object)]:
            def __init__(self, value: T) -> None:
                self.value = value

            def swapped[U](self, other: U) -> "Box[U]":
                return Box(other)


        def first[T](pair: Pair[T]) -> T:
            return pair[0]
        """,
        "x = Box(load(a)).swapped(load(b)).value\nassert first((1, 2)) == 1\n"
        "nisa.tensor_tensor(dst=x, data1=load(a), data2=x, op=nl.add)\nreturn store(x)",
    ),
}
KERNELS = LINES | LOOPS | OLD | (NEW if sys.version_info >= (3, 12) else {})
