"""Whole files as their authors write them: configurations, tests, benchmarks, helpers."""

from tests.unit.tools.verdict.honest.table import CLASSIC, Honest
from tests.unit.tools.verdict.kernels import HEAD

FILES = {
    "argparse main and logging": (
        """import argparse
import logging
import sys
from typing import Optional
import numpy as np""",
        """
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)
handler = logging.StreamHandler(sys.stdout)
handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
logger.addHandler(handler)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=128, choices=[64, 128])
    return parser.parse_args()


def main(argv: Optional[list[str]] = None) -> int:
    args = parse()
    a = np.random.rand(args.rows, 8).astype(np.float32)
    print(f"max error {np.abs(add(a, a) - 2 * a).max():.3e}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
""",
        """logger.info("shape %s", a.shape)
logger.debug(f"{a.dtype=}")""",
    ),
    "dataclass config with validation": (
        """from __future__ import annotations
import enum
from dataclasses import asdict, dataclass, field, fields, replace""",
        """
class Layout(str, enum.Enum):
    ROW = "row"
    COLUMN = "column"

    @classmethod
    def parse(cls, text: "Layout | str") -> "Layout":
        return text if isinstance(text, cls) else cls(text.lower())

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Config:
    \"\"\"The config.\"\"\"

    rows: int = 128
    layout: Layout = Layout.ROW
    names: tuple[str, ...] = field(default_factory=tuple)
    options: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self):
        if self.rows <= 0 or self.rows & (self.rows - 1):
            raise ValueError(f"rows must be a power of two, got {self.rows!r}")
        object.__setattr__(self, "names", tuple(self.names) or ("a", "b"))

    @property
    def label(self) -> str:
        return f"{self.layout}-{self.rows:04d}"

    @staticmethod
    def default() -> "Config":
        return Config(layout=Layout.parse("ROW"))


DEFAULT = Config.default()
""",
        """config = replace(DEFAULT, rows=64)
assert config.label == "row-0064", config
assert asdict(config)["rows"] == 64 and len(fields(config)) == 4
assert config != DEFAULT and hash(config) != 0
assert {str(m) for m in Layout} == {"row", "column"}""",
    ),
    "torch reference and tests": (
        """import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_xla.core.xla_model as xm""",
        """
class Reference(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    @torch.no_grad()
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


@pytest.fixture(scope="module")
def data():
    return torch.randn(128, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_add(data, dtype):
    torch.testing.assert_close(
        add(data, data), Reference(8)(data, data), rtol=1e-5, atol=1e-6
    )


@torch.compile
def wrapped(x):
    return add(x, x)


xm.mark_step()
""",
        """""",
    ),
    "jax wrapper": (
        """from functools import partial
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl""",
        """
@partial(jax.jit, static_argnums=(2,))
def run(a, b, n: int):
    return jax.vmap(lambda x, y: x + y)(a, b)


def loss(p, x):
    return jnp.sum(x)


grad = jax.grad(loss)
KEY = jax.random.PRNGKey(0)
MESH = jax.sharding.Mesh(jax.devices(), ("x",))
""",
        """""",
    ),
    "match on a plan": (
        """from typing import NamedTuple, Optional""",
        """
class Plan(NamedTuple):
    kind: str
    size: int = 1
    extra: Optional[dict] = None


def planned(plan: Plan) -> int:
    match plan:
        case Plan(kind="rows", size=n) if n > 4:
            return 1
        case Plan(kind="rows"):
            return 2
        case Plan("columns", _, {"step": int(step), **rest}) if not rest:
            return step
        case Plan(kind=("x" | "y") as k):
            return len(k)
        case _:
            raise NotImplementedError(f"no plan {plan}")
""",
        """assert planned(Plan("rows", 8)) == 1 and planned(Plan("rows")) == 2
assert planned(Plan("columns", 1, {"step": 3})) == 3 and planned(Plan("x")) == 1
assert Plan("rows")._replace(size=2)._asdict()["size"] == 2""",
    ),
    "helper classes with operators": (
        """import functools""",
        """
@functools.total_ordering
class Dim:
    __slots__ = ("name", "size")
    _seen: dict[str, "Dim"] = {}

    def __init__(self, name, size):
        self.name, self.size = name, size

    def __mul__(self, other):
        return Dim(f"{self.name}*{other.name}", self.size * other.size)

    __rmul__ = __mul__

    def __floordiv__(self, n):
        return Dim(self.name, self.size // n)

    def __eq__(self, other):
        return self.size == other.size

    def __lt__(self, other):
        return self.size < other.size

    def __hash__(self):
        return hash(self.size)

    def __iter__(self):
        return iter(range(self.size))

    def __len__(self):
        return self.size

    def __contains__(self, n):
        return 0 <= n < self.size

    def __bool__(self):
        return self.size > 0

    def __index__(self):
        return self.size

    def __getitem__(self, i):
        return self.size if i == 0 else self.name

    def __call__(self, k=1):
        return self.size * k

    def __repr__(self):
        return f"Dim({self.name}={self.size})"

    @classmethod
    def of(cls, name, size):
        return cls._seen.setdefault((name, size), cls(name, size))
""",
        """p, n = Dim.of("p", a.shape[0]), Dim.of("n", a.shape[1])
assert (p * n).size == a.shape[0] * a.shape[1] and p(2) == 2 * p.size and len(p) == p[0]
assert sorted([Dim("x", 3), Dim("y", 1)])[0] <= Dim("z", 1) and 0 in p and range(p)[0] == 0
assert repr(Dim("k", 2)) == "Dim(k=2)" and f"{n}".startswith("Dim(n") and bool(n)""",
    ),
    "caches and decorators": (
        """import functools
import time
from collections import defaultdict""",
        """
def timed(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        try:
            return fn(*args, **kwargs)
        finally:
            TIMES[fn.__name__].append(time.perf_counter() - start)

    return wrapper


def retry(times=3, exceptions=(ValueError,)):
    def decorate(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            for attempt in range(times):
                try:
                    return fn(*args, **kwargs)
                except exceptions as error:
                    if attempt == times - 1:
                        raise RuntimeError("gave up") from error

        return inner

    return decorate


TIMES = defaultdict(list)


@functools.lru_cache(maxsize=32)
def ceil_div(n: int, d: int) -> int:
    return -(-n // d)


@timed
@retry(times=2)
def tiles(n):
    return [(i, min(i + 128, n)) for i in range(0, n, 128)]
""",
        """assert (
    ceil_div(a.shape[0], 128) == len(tiles(a.shape[0]))
    and ceil_div.cache_info().misses >= 0
)""",
    ),
    "protocols, generics, abstract": (
        """import abc
from collections.abc import Sequence
from typing import ClassVar, Generic, Protocol, TypeVar""",
        """
T = TypeVar("T", bound="Stage")
K = TypeVar("K")


class Stage(abc.ABC):
    registry: ClassVar[dict[str, type]] = {}

    @property
    @abc.abstractmethod
    def name(self) -> str: ...

    @abc.abstractmethod
    def apply(self, n: int) -> int:
        raise NotImplementedError

    def then(self: T, other: "Stage") -> "Chain":
        return Chain([self, other])


class Twice(Stage):
    name = "twice"

    def apply(self, n):
        return 2 * n


class Chain(Stage):
    name = "chain"

    def __init__(self, stages: Sequence[Stage]):
        self.stages = list(stages)

    def apply(self, n):
        for stage in self.stages:
            n = stage.apply(n)
        return n


class Store(Generic[K]):
    def __init__(self) -> None:
        self._items: list[K] = []

    def push(self, item: K) -> "Store[K]":
        self._items.append(item)
        return self


class HasSize(Protocol):
    @property
    def size(self) -> int: ...


def size_of(x: HasSize) -> int:
    return x.size


Stage.registry |= {cls.name: cls for cls in (Twice, Chain)}
""",
        """assert Twice().then(Twice()).apply(1) == 4 and Stage.registry["twice"] is Twice
assert len(Store[int]().push(1).push(2)._items) == 2 and isinstance(Chain([]), Stage)
try:
    Stage()
except TypeError:
    pass
else:
    raise AssertionError""",
    ),
    "a config that updates its own dictionary": (
        """""",
        """
class Options:
    defaults = {"rows": 128, "cols": 512}

    def __init__(self, **overrides):
        self.__dict__.update(self.defaults)
        unknown = set(overrides) - set(self.defaults)
        if unknown:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        vars(self).update(overrides)

    def to_dict(self):
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def __repr__(self):
        shown = ", ".join(f"{k}={v!r}" for k, v in self.to_dict().items())
        return f"{type(self).__name__}({shown})"
""",
        """o = Options(cols=8)
assert (
    o.rows == 128
    and o.to_dict() == {"rows": 128, "cols": 8}
    and repr(o) == "Options(rows=128, cols=8)"
)
for key, value in o.__dict__.items():
    setattr(o, key, getattr(o, key) + 1)
assert o.cols == 9""",
    ),
    "a mapping of its own": (
        """from collections.abc import Mapping, MutableSequence""",
        """
class Registry(Mapping):
    def __init__(self, **items):
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


class Counters(dict):
    def __missing__(self, key):
        self[key] = 0
        return 0


class Ring(MutableSequence):
    def __init__(self, items=()):
        self.items = list(items)

    def __getitem__(self, i):
        return self.items[i % len(self.items)]

    def __setitem__(self, i, v):
        self.items[i] = v

    def __delitem__(self, i):
        del self.items[i]

    def __len__(self):
        return len(self.items)

    def insert(self, i, v):
        self.items.insert(i, v)
""",
        """r = Registry(add="add", sub="sub")
assert (
    r.get("mul", "none") == "none" and "add" in r and list(r.items())[0] == ("add", "add")
)
assert sorted(r.keys()) == ["add", "sub"] and dict(**r) == dict(r) and {**r}
k = Counters()
k["x"] += 1
assert k["x"] == 1 and k["y"] == 0
ring = Ring([1, 2])
ring.append(3)
assert (
    ring[4] == 2
    and ring.pop() == 3
    and list(reversed(ring)) == [2, 1]
    and ring.index(2) == 1
)""",
    ),
    "context managers": (
        """import time
from contextlib import ExitStack, contextmanager, nullcontext, suppress""",
        """
@contextmanager
def scope(name):
    STACK.append(name)
    try:
        yield len(STACK)
    finally:
        STACK.pop()


class Timer:
    def __enter__(self):
        self.begin = time.monotonic()
        return self

    def __exit__(self, exc_type, exc, tb):
        self.seconds = time.monotonic() - self.begin
        return False


STACK = []
""",
        """with scope("outer") as depth, Timer() as timer:
    with scope("inner"), suppress(KeyError), nullcontext():
        assert STACK == ["outer", "inner"] and depth == 1
        {}["x"]
assert not STACK and timer.seconds >= 0""",
    ),
    "generators and itertools": (
        """import itertools as it
from collections.abc import Iterator""",
        """
def chunks(n: int, size: int) -> Iterator[slice]:
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def walk(tree):
    if isinstance(tree, (list, tuple)):
        for item in tree:
            yield from walk(item)
    else:
        yield tree


def averager():
    total, count = 0, 0
    mean = None
    while True:
        got = yield mean
        if got is None:
            return total
        total += got
        count += 1
        mean = total / count
""",
        """assert [s.stop - s.start for s in chunks(10, 4)] == [4, 4, 2]
assert list(walk([1, [2, (3, 4)]])) == [1, 2, 3, 4]
g = averager()
next(g)
assert g.send(2) == 2.0 and g.send(4) == 3.0
try:
    g.send(None)
except StopIteration as stop:
    assert stop.value == 6
pairs = list(it.product(range(2), "ab"))
assert pairs[1] == (0, "b") and list(it.chain.from_iterable([[1], [2]])) == [1, 2]
assert [k for k, _ in it.groupby(sorted("aab"))] == ["a", "b"] and list(
    it.accumulate([1, 2, 3])
)[-1] == 6
cycle = it.cycle([0, 1])
assert [next(cycle) for _ in range(3)] == [0, 1, 0]""",
    ),
    "errors of its own": (
        """""",
        """
class KernelError(Exception):
    \"\"\"Base.\"\"\"


class ShapeError(KernelError, ValueError):
    def __init__(self, message, *, shape=None):
        super().__init__(message)
        self.shape = shape

    def __str__(self):
        return f"{super().__str__()} (shape={self.shape})"


def check(shape):
    if len(shape) != 2:
        raise ShapeError("bad rank", shape=shape)
    return shape
""",
        """check(a.shape)
try:
    check((1,))
except ShapeError as error:
    assert error.shape == (1,) and str(error) == "bad rank (shape=(1,))"
    assert isinstance(error, KernelError) and error.args == ("bad rank",)
else:
    raise AssertionError("no error")""",
    ),
    "numbers and bits": (
        """import math
import numpy as np
import operator as op
from fractions import Fraction
from decimal import Decimal""",
        """
P_MAX = 128


def align(n, to=32):
    return (n + to - 1) // to * to


def log2(n):
    return n.bit_length() - 1


SCALES = np.array([2.0**-i for i in range(4)], dtype=np.float32)
TABLE = np.linspace(0, 1, 5).astype("float32")
EPS = np.finfo(np.float32).eps
""",
        """assert (
    align(33) == 64
    and log2(128) == 7
    and math.prod([2, 3]) == 6
    and math.isclose(SCALES[1], 0.5)
)
assert op.itemgetter(1)([1, 2]) == 2 and divmod(7, 2) == (3, 1) and round(2.5) == 2
assert (
    int(np.prod(a.shape)) == a.shape[0] * a.shape[1]
    and EPS > 0
    and TABLE.tolist()[-1] == 1.0
)
assert f"{EPS:.2e}" == "1.19e-07" and 0b101 ^ 0x3 == 6 and ~0 == -1 and 7 >> 1 << 1 == 6""",
    ),
    "an enum of operators": (
        """import copy
import enum""",
        """
class Op(enum.Enum):
    ADD = "add"
    MAX = "max"

    @property
    def function(self):
        return _FUNCTIONS[self]


class Flags(enum.IntFlag):
    NONE = 0
    VERBOSE = enum.auto()
    CHECK = enum.auto()


@enum.unique
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


_FUNCTIONS = {Op.ADD: nl.add, Op.MAX: nl.maximum}
""",
        """plan = copy.deepcopy({"op": Op.ADD, "flags": Flags.CHECK | Flags.VERBOSE})
assert plan["op"] is Op.ADD and Flags.CHECK in plan["flags"] and Op["MAX"].value == "max"
assert (
    Op("add") is Op.ADD
    and list(Op)[1].name == "MAX"
    and Level.HIGH > Level.LOW
    and Level(2) + 1 == 3
)
assert plan["op"].function is nl.add""",
    ),
    "partials and functions by name": (
        """from functools import partial, reduce
from typing import Callable""",
        """
def scaled(x, factor=1, *, shift=0):
    return x * factor + shift


double = partial(scaled, factor=2)
HANDLERS: dict[str, Callable[..., int]] = {
    n: partial(scaled, shift=i) for i, n in enumerate("abc")
}
compose = lambda *fs: reduce(lambda f, g: lambda x: g(f(x)), fs)
""",
        """assert double(3, shift=1) == 7 and HANDLERS["c"](1) == 3
assert compose(double, double)(1) == 4
assert double.keywords == {"factor": 2} and double.func is scaled""",
    ),
    "json, re and texts": (
        """import json
import re
import textwrap
import string""",
        """
PATTERN = re.compile(r"(?P<rows>\\d+)x(?P<cols>\\d+)")
CONFIG = json.loads('{"rows": 128}') if hasattr(json, "loads") else {"rows": 128}


def parse(text):
    if (m := PATTERN.fullmatch(text)) is None:
        raise ValueError(text)
    return {k: int(v) for k, v in m.groupdict().items()}


BANNER = textwrap.dedent(\"\"\"
    hello
\"\"\")
""",
        """assert parse("12x8") == {"rows": 12, "cols": 8}
assert (
    json.dumps({"a": [1, 2.5, None, True]}, sort_keys=True) == '{"a": [1, 2.5, null, true]}'
)
assert "-".join(str(n) for n in a.shape) == "%d-%d" % a.shape == "{}-{}".format(*a.shape)
assert (
    re.sub(r"[aeiou]", lambda m: m.group().upper(), "nki") == "nkI"
    and "x".center(3, "*") == "*x*"
)""",
    ),
    "environment and paths": (
        """import logging
import os
import sys
import warnings
from pathlib import Path
import numpy as np""",
        """
DEBUG = os.environ.get("KERNEL_DEBUG", "0") == "1"
ROOT = os.path.dirname(os.path.abspath(__file__))
OUT = Path(__file__).resolve().parent / "out"
sys.path.append(ROOT)
try:
    from tqdm import tqdm
except ImportError:
    tqdm = lambda x, **k: x
try:
    import neuronx_distributed

    HAS_NXD = True
except Exception:
    HAS_NXD = False
if DEBUG:
    logging.basicConfig(level=logging.DEBUG)
warnings.filterwarnings("ignore", category=UserWarning)
np.random.seed(0)
RNG = np.random.default_rng(0)
""",
        """assert not HAS_NXD
for _ in tqdm(range(2), desc="x"):
    pass""",
    ),
    "nested functions and nonlocal": (
        """""",
        """
def make_counter(start=0, *, step=1):
    count = start

    def advance(n=None):
        nonlocal count
        count += step if n is None else n
        return count

    advance.reset = lambda: None
    return advance


x: int
x, *rest = 1, 2, 3
(first, second), third = (1, 2), 3
""",
        """advance = make_counter(step=2)
assert [advance() for _ in range(3)] == [2, 4, 6] and advance(10) == 16 and rest == [2, 3]
advance.reset()
fns = [lambda i=i: i for i in range(3)]
assert [f() for f in fns] == [0, 1, 2]
assert (lambda *a, k=1, **kw: (a, k, kw))(1, 2, z=3) == ((1, 2), 1, {"z": 3})""",
    ),
    "typed dictionaries and literals": (
        """from collections import namedtuple
from typing import Final, Literal, NamedTuple, NewType, Tuple, TypedDict, cast, final, overload
from typing_extensions import Required""",
        """
class Spec(TypedDict, total=False):
    rows: Required[int]
    name: str


Mode = Literal["fast", "exact"]
Pair = Tuple[int, int]
Size = NewType("Size", int)
Point = NamedTuple("Point", [("x", int), ("y", int)])
Old = namedtuple("Old", "x y", defaults=(0,))


@overload
def f(x: int) -> int: ...
@overload
def f(x: str) -> str: ...
def f(x):
    return x


@final
class Leaf:
    LIMIT: Final = 3
""",
        """s: Spec = {"rows": 1}
assert (
    Point(1, 2).y == 2
    and Old(1).y == 0
    and Size(3) == 3
    and f("x") == "x"
    and cast(int, 3) == 3
)
p = Point(x=1, y=2)
assert p == (1, 2) and p._replace(x=5).x == 5 and Leaf.LIMIT == 3""",
    ),
}
"""By name: the imports of a file, the lines before its kernel, and the kernel's first lines."""
_ADD = {
    HEAD: "return store(total(a, b))",
    CLASSIC: "out = empty(a)\nnl.store(out, nl.load(a) + nl.load(b))\nreturn out",
}
KERNELS = {
    f"{'classic' if head is CLASSIC else 'today'}, {name}": Honest(
        f"{lines}\n{add}", head=f"{imports}\n{head}", before=before
    )
    for head, add in _ADD.items()
    for name, (imports, before, lines) in FILES.items()
}
