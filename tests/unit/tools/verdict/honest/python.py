"""Honest kernels that use much of Python: classes, errors, texts, libraries that are absent."""

from tests.unit.tools.verdict.honest.table import CLASSIC, Honest

SUM = "return store(total(a, b))"


def written(body: str, before: str = "") -> Honest:
    """Return a kernel of today's dialect that adds, with lines before it."""
    return Honest(f"{body}\n{SUM}" if "return" not in body else body, before=before)


def classic(body: str, before: str = "") -> Honest:
    """Return a kernel of the classic dialect that adds, with lines before it."""
    return Honest(
        f"{body}\nout = empty(a)\nnl.store(out, nl.load(a) + nl.load(b))\nreturn out",
        head=CLASSIC,
        before=before,
    )


KERNELS = {
    "torch beside the kernel": written(
        "",
        "import torch\nimport torch.nn as nn\n\n\nclass Layer(nn.Module):\n"
        "    def forward(self, x):\n        return torch.relu(x)\n\n\n"
        "def test_add():\n    assert torch.equal(torch.zeros(3), torch.zeros(3))\n",
    ),
    "torch used while the file loads": written(
        "",
        "import torch\n\nDEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        "torch.manual_seed(0)\nSEED = torch.initial_seed() + 1\n",
    ),
    "a benchmark beside the kernel": written(
        "",
        "import argparse\nimport subprocess\nimport time\nfrom pathlib import Path\n\n"
        "HERE = Path(__file__).parent\n\n\ndef bench(n):\n    began = time.perf_counter()\n"
        "    subprocess.run(['ls'])\n    return time.perf_counter() - began\n",
    ),
    "an optional library": written(
        "assert torch is None",
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
    ),
    "types of a library": written(
        "",
        "from typing import TYPE_CHECKING, Optional\n\nif TYPE_CHECKING:\n    import torch\n\n\n"
        "def f(x: 'torch.Tensor', y: Optional[int] = None) -> list[int]:\n    return [1]\n",
    ),
    "an async function beside the kernel": written(
        "", "import asyncio\n\n\nasync def main():\n    await asyncio.sleep(1)\n"
    ),
    "sys.path": written(
        "",
        "import os\nimport sys\n\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))\n",
    ),
    "pytest beside the kernel": written(
        "",
        "import pytest\n\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_n(n):\n    assert n\n",
    ),
    "a script at the end": written(
        "",
        "if __name__ == '__main__':\n    import torch\n    open('x').read(torch.zeros(3))\n",
    ),
    "an enumeration of texts": written(
        "assert Op('plus') is Op.PLUS and Op.PLUS == 'plus' and len(Op) == 2\n"
        "assert [op.name for op in Op] == ['PLUS', 'MINUS'] and Op['MINUS'].value == 'minus'\n"
        "assert f'{Op.PLUS.value}' == 'plus'",
        "from enum import Enum\n\n\nclass Op(str, Enum):\n    PLUS = 'plus'\n    MINUS = 'minus'\n",
    ),
    "flags and automatic values": written(
        "assert (Mode.A | Mode.B) & Mode.B == Mode.B and Level.LOW < Level.HIGH",
        "from enum import Flag, IntEnum, auto\n\n\nclass Mode(Flag):\n    A = auto()\n"
        "    B = auto()\n\n\nclass Level(IntEnum):\n    LOW = 1\n    HIGH = 2\n",
    ),
    "an enumeration with methods": written(
        "assert Size.SMALL.twice() == 2 and Size.SMALL in Size.__members__.values()",
        "from enum import Enum\n\n\nclass Size(Enum):\n    SMALL = 1\n\n    def twice(self):\n"
        "        return 2 * self.value\n",
    ),
    "a dataclass with everything": written(
        "plan = Plan(a.shape[0], [1])\nassert plan.total == a.shape[0] + 1\n"
        "assert plan == Plan(a.shape[0], [1]) \n"
        "assert f'{plan}' == f'Plan(rows={a.shape[0]}, cols=[1])'\n"
        "assert dataclasses.asdict(plan)['cols'] == [1]\n"
        "assert [f.name for f in dataclasses.fields(plan)] == ['rows', 'cols', 'note']\n"
        "assert dataclasses.replace(plan, rows=3).rows == 3",
        "import dataclasses\nfrom dataclasses import dataclass, field\n\n\n"
        "@dataclass(frozen=True)\nclass Plan:\n    rows: int\n"
        "    cols: list = field(default_factory=list)\n"
        "    note: str = field(default='', repr=False)\n\n"
        "    def __post_init__(self):\n        object.__setattr__(self, '_sum', sum(self.cols))\n\n"
        "    @property\n    def total(self):\n        return self.rows + self._sum\n",
    ),
    "a dataclass of annotations that are texts": written(
        "assert Plan(3).both() == (3, 128)",
        "import dataclasses\nimport typing as t\n\n\n@dataclasses.dataclass(order=True)\n"
        "class Plan:\n    rows: 'int'\n    parts: 't.ClassVar[int]' = 128\n\n"
        "    def both(self):\n        return self.rows, self.parts\n",
    ),
    "inheritance and super": written(
        "c = C(2)\nassert c.area() == 5 and isinstance(c, B) and C.__name__ == 'C'\n"
        "assert type(c) is C and c.__class__.__name__ == 'C' and issubclass(C, B)",
        "class B:\n    def __init__(self, n):\n        self.n = n\n\n    def area(self):\n"
        "        return self.n * 2\n\n\nclass C(B):\n    def __init__(self, n):\n"
        "        super().__init__(n)\n\n    def area(self):\n        return super().area() + 1\n",
    ),
    "operators of a class": written(
        "v = V(1) + V(2) * 3\nassert v == V(7) and -v < V(0) and bool(v) and hash(v) == 7\n"
        "assert len(v) == 7 and v[3] == 3 and 3 in v and v(1) == 8 and [*iter(v)] == [0, 1]",
        "class V:\n    def __init__(self, n):\n        self.n = n\n    def __add__(self, o):\n"
        "        return V(self.n + o.n)\n    def __mul__(self, k):\n        return V(self.n * k)\n"
        "    def __neg__(self):\n        return V(-self.n)\n    def __eq__(self, o):\n"
        "        return self.n == o.n\n    def __lt__(self, o):\n        return self.n < o.n\n"
        "    def __hash__(self):\n        return self.n\n    def __bool__(self):\n"
        "        return self.n != 0\n    def __len__(self):\n        return self.n\n"
        "    def __getitem__(self, i):\n        return i\n    def __contains__(self, i):\n"
        "        return i < self.n\n    def __call__(self, x):\n        return self.n + x\n"
        "    def __iter__(self):\n        yield from (0, 1)\n",
    ),
    "class methods, static methods and properties": written(
        "t = T.of(3)\nt.n = 4\nassert t.n == 4 and T.twice(2) == 4 and T.COUNT",
        "class T:\n    COUNT = 0\n    def __init__(self, n):\n        self._n = n\n"
        "        T.COUNT += 1\n    @classmethod\n    def of(cls, n):\n        return cls(n)\n"
        "    @staticmethod\n    def twice(n):\n        return 2 * n\n    @property\n"
        "    def n(self):\n        return self._n\n    @n.setter\n    def n(self, n):\n"
        "        self._n = n\n",
    ),
    "an abstract class": written(
        "assert Square().area() == 4",
        "from abc import ABC, abstractmethod\n\n\nclass Shape(ABC):\n    @abstractmethod\n"
        "    def area(self): ...\n\n\nclass Square(Shape):\n    def area(self):\n"
        "        return 4\n",
    ),
    "a protocol and a generic": written(
        "assert Box(3).get() == 3",
        "from typing import Generic, Protocol, TypeVar\n\nT = TypeVar('T')\n\n\n"
        "class Has(Protocol):\n    def get(self) -> int: ...\n\n\nclass Box(Generic[T]):\n"
        "    def __init__(self, x: T):\n        self.x = x\n    def get(self) -> T:\n"
        "        return self.x\n",
    ),
    "a context manager of its own": written(
        "with Scope('x') as s:\n    s.count += 1\nassert s.left == 1\n"
        "with scoped(3) as n:\n    assert n == 3",
        "import contextlib\n\n\nclass Scope:\n    def __init__(self, name):\n"
        "        self.count = 0\n        self.left = 0\n    def __enter__(self):\n"
        "        return self\n    def __exit__(self, *error):\n        self.left += 1\n\n\n"
        "@contextlib.contextmanager\ndef scoped(n):\n    yield n\n",
    ),
    "an error of its own": written(
        "try:\n    check(0)\nexcept ShapeError as error:\n    assert f'{error}' == 'zero'\n"
        "else:\n    raise RuntimeError('no')",
        "class ShapeError(ValueError):\n    pass\n\n\ndef check(n):\n    if not n:\n"
        "        raise ShapeError('zero')\n",
    ),
    "errors of Python": written(
        "try:\n    x = {}['k']\nexcept (KeyError, IndexError):\n    x = 1\nfinally:\n    y = 2\n"
        "try:\n    int('q')\nexcept ValueError as error:\n    try:\n"
        "        raise RuntimeError('wrapped') from error\n    except RuntimeError:\n"
        "        y = 3\n"
        "assert (x, y) == (1, 3)"
    ),
    "texts of all kinds": written(
        "n = a.shape[1]\nassert f'{n:>4}|{n!r}' == '%4d|%s' % (n, n)\n"
        "assert '{:.2f} {name}'.format(1.5, name='x') == '1.50 x'\n"
        "assert '-'.join(str(i) for i in range(3)) == '0-1-2' and 'a%sb' % 1 == 'a1b'\n"
        "assert ' Ab '.strip().lower().replace('a', 'c').split('c') == ['', 'b']\n"
        "assert str(a.dtype) in ('float32',) and f'{a.shape}'.startswith('(')\n"
        "assert '%(x)s' % {'x': 1} == '1' and str([1, 'x']) == \"[1, 'x']\"\n"
        "assert list(map(str.upper, ['a'])) == ['A'] and isinstance('x', str)\n"
        "assert type('x') is str and type('x') == str and str('x') == 'x' and repr('x') == \"'x'\""
    ),
    "messages that show tensors": written(
        "tile = total(a, b)\nassert tile.shape == a.shape, f'{tile} is not {a}'\n"
        "print(tile, 'of', nl.add, sep=', ')\nlabel = 'tile ' + str(tile) + '!'\n"
        "log = ', '.join([label, repr(a)])\nreturn store(tile)"
    ),
    "texts that are asked for other attributes": written(
        "shown = [str(a), 1]\n"
        "assert not any(hasattr(one, 'value') for one in shown)\n"
        "print('-'.join(f'{one}' for one in shown))"
    ),
    "names of tensors": written(
        "tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf, name=f'{a.dtype}_{id(a)}')\n"
        "nisa.tensor_tensor(dst=tile, data1=load(a), data2=load(b), op=nl.add)\nreturn store(tile)"
    ),
    "functions of functions": written(
        "add_n = functools.partial(combine, nl.add)\n"
        "assert compose(lambda x: x + 1, len)('ab') == 3\n"
        "assert sorted(['bb', 'a'], key=len) == ['a', 'bb'] and counted(3) == 3\n"
        "assert functools.reduce(lambda x, y: x + y, [1, 2, 3]) == 6 and add_n.args\n"
        "return store(add_n(a, b))",
        "import functools\n\n\ndef combine(op, x, y):\n    return total(x, y, op)\n\n\n"
        "def compose(f, g):\n    return lambda x: f(g(x))\n\n\ndef log(f):\n"
        "    @functools.wraps(f)\n    def call(*args, **kwargs):\n"
        "        return f(*args, **kwargs)\n    return call\n\n\n@log\n@functools.cache\n"
        "def counted(n):\n    return n\n",
    ),
    "collections and iterators": written(
        "d = defaultdict(list)\nfor i, x in enumerate('aba'):\n    d[x].append(i)\n"
        "assert d['a'] == [0, 2] and Counter('aba').most_common(1) == [('a', 2)]\n"
        "q = deque([1, 2], maxlen=2)\nq.append(3)\nassert [*q] == [2, 3]\n"
        "assert [*itertools.chain.from_iterable([[1], [2]])] == [1, 2]\n"
        "assert [*zip(range(2), itertools.count(5))] == [(0, 5), (1, 6)]\n"
        "assert {**{'x': 1}, 'y': 2}.get('z', 3) == 3 and {1, 2} | {3} == {1, 2, 3}\n"
        "assert any(x > 1 for x in [1, 2]) and max([3, 1], key=lambda x: -x) == 1\n"
        "first, *rest = [1, 2, 3]\nassert rest == [2, 3] and dict.fromkeys('ab', 0)['a'] == 0",
        "import itertools\nfrom collections import Counter, defaultdict, deque\n",
    ),
    "generators that are sent to": written(
        "g = echo()\nnext(g)\nassert g.send(3) == 3\ng.close()",
        "def echo():\n    x = None\n    while True:\n        x = yield x\n",
    ),
    "match of classes and mappings": written(
        "assert describe(Point(0, 3)) == 'y 3' and describe({'k': 1}) == 'k 1'\n"
        "assert describe([1, 2, 3]) == 'list 2' and describe(nl.float32) == 'dtype'\n"
        "assert describe(7) == 'int 7' and describe(Color.RED) == 'red'",
        "import dataclasses\nfrom enum import Enum\n\n\n@dataclasses.dataclass\nclass Point:\n"
        "    x: int\n    y: int\n\n\nclass Color(Enum):\n    RED = 1\n\n\ndef describe(v):\n"
        "    match v:\n        case Point(x=0, y=y):\n            return f'y {y}'\n"
        "        case {'k': k}:\n            return f'k {k}'\n        case [_, *rest]:\n"
        "            return f'list {len(rest)}'\n        case nl.float32:\n"
        "            return 'dtype'\n        case Color.RED:\n            return 'red'\n"
        "        case int(n) if n > 5:\n            return f'int {n}'\n",
    ),
    "numbers of NumPy": written(
        "m = np.arange(12).reshape(3, 4)\nassert m.sum() == 66 and m.T.shape == (4, 3)\n"
        "assert np.prod(a.shape) == a.size and int(np.ceil(1.2)) == 2 and m[1:, ::2].tolist()\n"
        "assert np.float32(0.5).item() == 0.5 and np.dtype('float32').itemsize == 4\n"
        "assert np.lcm(4, 6) == 12 and (m % 5).max() == 4 and np.add.reduce([1, 2]) == 3\n"
        "assert math.prod([2, 3]) == 6 and np.iinfo(np.int8).max == 127"
    ),
    "types asked": written(
        "assert isinstance(a, nl.NkiTensor) and not isinstance(3, nl.NkiTensor)\n"
        "assert isinstance(3, (int, float)) and callable(load) and hasattr(nl, 'add')\n"
        "assert getattr(nl, 'add') is nl.add and getattr(Box(), 'x', 4) == 4\n"
        "box = Box()\nsetattr(box, 'x', 5)\nassert box.x == 5 and hasattr(box, 'x')\n"
        "assert type(3) in (int, bool) and isinstance(int, type) and type(3).__name__ == 'int'",
        "class Box: ...\n",
    ),
    "constants of NKI in tables": written(
        "assert OPS['+'] is nl.add and SIZES[nl.float32] == 4 and nl.sbuf in BUFFERS\n"
        "assert nl.tile_size.pmax == 128 and nisa.get_nc_version() >= nisa.nc_version.gen2\n"
        "return store(total(a, b, OPS['+']))",
        "OPS = {'+': nl.add, '-': nl.subtract}\nSIZES = {nl.float32: 4, nl.bfloat16: 2}\n"
        "BUFFERS = [nl.sbuf, nl.psum]\n",
    ),
    "a name of its own in NKI's table": written(
        "return store(nl.my_total(a, b))", "nl.my_total = total\n"
    ),
    "recursion, closures and nonlocal": written(
        "count = 0\ndef up():\n    nonlocal count\n    count += 1\nup()\nup()\n"
        "fact = lambda n: 1 if n < 2 else n * fact(n - 1)\nassert (count, fact(5)) == (2, 120)"
    ),
    "loops of all kinds": written(
        "n = 0\nfor i in range(10):\n    if i % 2:\n        continue\n    if i > 6:\n"
        "        break\n"
        "    n += i\nelse:\n    n = -1\nwhile n > 3:\n    n -= 1\n"
        "assert n == 3 and [i for i in range(4) if i % 2] == [1, 3]\n"
        "assert {k: v for k, v in zip('ab', (1, 2))} == {'a': 1, 'b': 2}"
    ),
    "a sentinel and a default": written(
        "assert pick({}, 'x') == 0 and pick({'x': 1}, 'x') == 1",
        "_MISSING = object()\n\n\ndef pick(table, key, default=_MISSING):\n"
        "    found = table.get(key, _MISSING)\n    return 0 if found is _MISSING else found\n",
    ),
    "copies and json": written(
        "plan = {'x': [1, 2]}\nother = copy.deepcopy(plan)\nother['x'].append(3)\n"
        "assert plan == {'x': [1, 2]} and json.dumps(plan) == '{\"x\": [1, 2]}'\n"
        "assert re.match(r'a(\\d+)', 'a12').group(1) == '12'",
        "import copy\nimport json\nimport re\n",
    ),
    "logging and warnings": written(
        "LOG.debug('%s', a)\nwarnings.warn('old')\nLOG.setLevel(logging.INFO)\n"
        "with contextlib.suppress(KeyError):\n    {}['x']",
        "import contextlib\nimport logging\nimport warnings\n\n"
        "LOG = logging.getLogger(__name__)\nlogging.basicConfig(level=logging.INFO)\n",
    ),
    "caches with and without options": written(
        "assert square(3) == 9 and cube(2) == 8 and square.cache_info().hits >= 0",
        "import functools\n\n\n@functools.lru_cache(maxsize=None)\ndef square(n):\n"
        "    return n * n\n\n\n@functools.lru_cache\ndef cube(n):\n    return n**3\n",
    ),
    "functions given to functions": written(
        "assert [*map(str, [1])] == ['1'] and [*map(int, '12')] == [1, 2]\n"
        "assert [*filter(None, [0, 1])] == [1] and sorted('bA', key=str.lower) == ['A', 'b']\n"
        "assert functools.reduce(operator.mul, a.shape, 1) == a.size\n"
        "assert defaultdict(int)['x'] == 0 and [*itertools.accumulate([1, 2])] == [1, 3]\n"
        "assert min([3, 1]) == 1 and max([], default=4) == 4 and next(iter([5])) == 5\n"
        "rows = [2, 1]\nrows.sort(key=abs)\nassert rows == [1, 2]\n"
        "assert re.sub('a', lambda m: 'b', 'ca') == 'cb'",
        "import functools\nimport itertools\nimport operator\nimport re\n"
        "from collections import defaultdict\n",
    ),
    "an object that asks another one": written(
        "settings = Settings({'rows': 3})\n"
        "assert settings.rows == 3 and not hasattr(settings, 'columns')\n"
        "assert getattr(settings, 'columns', 5) == 5",
        "class Settings:\n    def __init__(self, values):\n        self._values = values\n\n"
        "    def __getattr__(self, name):\n        try:\n            return self._values[name]\n"
        "        except KeyError:\n            raise AttributeError(name) from None\n",
    ),
    "private names of a class": written(
        "assert _Count().advance() == 4 and not hasattr(_Count(), '__n')",
        "class _Count:\n    __step = 3\n\n    def __init__(self):\n        self.__n = 0\n\n"
        "    def __more(self):\n        return self.__n + _Count.__step\n\n"
        "    def advance(self):\n        self.__n += 1\n        return self.__more()\n",
    ),
    "an enumeration with values of its own": written(
        "assert Unit.KILO.factor == 1000 and Unit('k') is Unit.KILO",
        "from enum import Enum\n\n\nclass Unit(Enum):\n    def __new__(cls, word, factor):\n"
        "        member = object.__new__(cls)\n        member._value_ = word\n"
        "        member.factor = factor\n        return member\n\n    KILO = 'k', 1000\n",
    ),
    "an abstract class by its metaclass": written(
        "assert Square().area() == 4",
        "from abc import ABCMeta, abstractmethod\n\n\nclass Shape(metaclass=ABCMeta):\n"
        "    @abstractmethod\n    def area(self): ...\n\n\nclass Square(Shape):\n"
        "    def area(self):\n        return 4\n",
    ),
    "a namespace of options": written(
        "OPTIONS.rows = 4\nassert vars(OPTIONS)['rows'] == 4",
        "from types import SimpleNamespace\n\nOPTIONS = SimpleNamespace(rows=3)\n",
    ),
    "named tuples": written(
        "pair = Pair(1, y=2)\nassert pair._asdict() == {'x': 1, 'y': 2} and pair.x + pair.y == 3\n"
        "assert Pair._fields == ('x', 'y') and Pair._make([3, 4]) == (3, 4) and pair[0] == 1\n"
        "x, y = Row(5)\nassert (x, y) == (5, 1)",
        "from collections import namedtuple\nfrom typing import NamedTuple\n\n"
        "Pair = namedtuple('Pair', ['x', 'y'])\n\n\nclass Row(NamedTuple):\n    x: int\n"
        "    y: int = 1\n",
    ),
    "a dictionary and a list of its own": written(
        "t = Table(x=1)\nt['y'] = 2\nassert t.total() == 3 and t.get('z') is None",
        "class Table(dict):\n    def total(self):\n        return sum(self.values())\n",
    ),
    "a cached property and an order": written(
        "v = Version(1, 2)\nassert v.text == '1.2' and v.text == '1.2' and v < Version(2, 0)",
        "import functools\n\n\n@functools.total_ordering\nclass Version:\n"
        "    def __init__(self, *parts):\n        self.parts = parts\n"
        "    def __eq__(self, o):\n        return self.parts == o.parts\n"
        "    def __lt__(self, o):\n        return self.parts < o.parts\n"
        "    @functools.cached_property\n    def text(self):\n"
        "        return '.'.join(map(str, self.parts))\n",
    ),
    "a kernel of NKI's objects": written(
        "s = State(2)\ns.tile = total(a, b)\nassert s.count == 2\nreturn store(s.tile)",
        "class State(nl.NKIObject):\n    def __init__(self, count):\n        self.count = count\n"
        "        self.tile = None\n",
    ),
    "time and random numbers without weight": written(
        "began = time.time()\nrandom.seed(0)\nassert random.random() < 1\n"
        "spent = time.time() - began",
        "import random\nimport time\n",
    ),
    "classic: torch beside the kernel": classic(
        "", "import torch\n\n\ndef golden(x):\n    return torch.softmax(x, -1)\n"
    ),
    "classic: a dataclass and an enumeration": classic(
        "assert Plan(a.shape[0]).mode is Mode.FAST",
        "import dataclasses\nfrom enum import Enum\n\n\nclass Mode(Enum):\n    FAST = 1\n\n\n"
        "@dataclasses.dataclass\nclass Plan:\n    rows: int\n    mode: Mode = Mode.FAST\n",
    ),
    "classic: dtypes compared": classic(
        "assert a.dtype == nl.float32 and a.dtype in (nl.float32, nl.bfloat16)\n"
        "name = f'{a.dtype}_{a.shape}'\nassert isinstance(a.shape, tuple)"
    ),
    "classic: NumPy on the host": classic(
        "rows, cols = a.shape\nassert np.arange(rows).sum() == rows * (rows - 1) // 2\n"
        "print('a', a, nl.tile_size.pmax)"
    ),
    "classic: try and messages": classic(
        "try:\n    n = {'x': 1}['y']\nexcept KeyError as error:\n    n = 0\n"
        "assert n == 0, f'{a} {n}'"
    ),
    "classic: benchmark beside the kernel": classic(
        "",
        "import time\nfrom pathlib import Path\n\nOUT = Path('/tmp') / 'x'\n\n\n"
        "def bench():\n    began = time.time()\n    OUT.write_text('x')\n    return began\n",
    ),
}
