"""Ways out of a candidate's world by what Python and NumPy do themselves, where no guard is called.

Each has a piece of the refusal, or of Python's own error, as in :mod:`.escapes`.
"""

import sys

PATTERNS = {
    "a key of a mapping's pattern": (
        "class D(dict):\n"
        "    def get(self, k, d=None):\n"
        "        SEEN.append(k)\n"
        "        return 1\n"
        "SEEN = []\n"
        "---\n"
        "match D(x=1):\n"
        "    case {a.__class__.__mro__: v}:\n"
        "        pass\n"
        "raise ValueError(f'got {len(SEEN)}')",
        "__mro__",
    ),
    "a helper's globals as a key of a pattern": (
        "class D(dict):\n"
        "    def get(self, k, d=None):\n"
        "        SEEN.append(k)\n"
        "        return 1\n"
        "SEEN = []\n"
        "---\n"
        "match D(x=1):\n"
        "    case {load.__globals__: v}:\n"
        "        pass\n"
        "SEEN[0]['__builtins__']['\\u00b7read'] = 1\n"
        "raise ValueError('%d' % len(SEEN[0]['__builtins__']))",
        "__globals__",
    ),
    "the rest of a mapping's pattern": (
        "match {'x': a}:\n    case {**r}:\n        r['x']._storage",
        "_storage",
    ),
    "a class pattern in a mapping's pattern": (
        "match {'x': [a]}:\n    case {'x': [nl.NkiTensor(_storage=s)]}:\n        pass",
        "in a pattern",
    ),
    "one pattern or another": (
        "match a:\n"
        "    case nl.NkiTensor(_storage=x) | nl.NkiTensor(shape=x):\n"
        "        pass",
        "in a pattern",
    ),
    "the guard of a pattern": (
        "match a:\n    case x if x._storage:\n        pass",
        "_storage",
    ),
    "the guard of a sequence's pattern": (
        "match [a]:\n    case [*x] if x[0]._storage:\n        pass",
        "_storage",
    ),
}
"""Python itself reads the names of a pattern."""

_TWO_NAMES = (
    "class N:\n"
    "    def __init__(self): self.n = 0\n"
    "    def startswith(self, x): return False\n"
    "    def __hash__(self):\n"
    "        self.n += 1\n"
    "        return hash('__builtins__') if self.n == 1 else hash('xyz')\n"
    "    def __eq__(self, o): return True\n"
    "__all__ = [N()]\n"
    "from candidate import *\n"
    "---\n"
)
"""An object in ``__all__`` that is the name of the builtins first, and then ``xyz``."""
NAMES = {
    "an object in __all__": (
        f"{_TWO_NAMES}raise ValueError('%d' % len(xyz))",
        "xyz",
    ),
    "the builtins by an object in __all__": (
        f"{_TWO_NAMES}"
        "xyz['\\u00b7pattern_class'] = lambda k, *m: k\n"
        "match a:\n"
        "    case object(_storage=s):\n"
        "        raise ValueError('leak')",
        "xyz",
    ),
    "attrgetter of a member that is a text": (
        "from enum import Enum\n"
        "import operator\n"
        "class F(str, Enum):\n"
        "    A = '__dict__'\n"
        "    def startswith(self, x): return False\n"
        "    def split(self, x): return [self]\n"
        "class C: ...\n"
        "---\n"
        "c = C()\n"
        "d = operator.attrgetter(F.A)(c)\n"
        "d['__x__'] = 5\n"
        "raise ValueError('leak')if '__x__' in c.__dict__ else ValueError('no')",
        "not a plain str",
    ),
    "attrgetter of a text that has another hash": (
        "from enum import Enum\n"
        "import operator\n"
        "class F(str, Enum):\n"
        "    A = '__class__'\n"
        "    def split(self, x): return [self]\n"
        "    def __hash__(self): return hash('real')\n"
        "    def __eq__(self, o): return True\n"
        "---\n"
        "d = operator.attrgetter(F.A)(3)\n"
        "raise ValueError(f'{d!r}')",
        "not a plain str",
    ),
    "methodcaller of a member that is a text": (
        "from enum import Enum\n"
        "import operator\n"
        "class F(str, Enum):\n"
        "    A = '__dir__'\n"
        "    def __hash__(self): return hash('real')\n"
        "    def __eq__(self, o): return True\n"
        "---\n"
        "d = operator.methodcaller(F.A)(3)\n"
        "raise ValueError(f'{d!r}')",
        "not a plain str",
    ),
    "a namespace's name that has another hash": (
        "import numpy as np\n"
        "I = {'data': (id(5), False), 'shape': (4,), 'typestr': '|u1', 'version': 3}\n"
        "import types\n"
        "from enum import Enum\n"
        "class F(str, Enum):\n"
        "    A = 'x'\n"
        "    def __hash__(self): return hash('__array_interface__')\n"
        "    def __eq__(self, o): return type(o) is str and str.__len__(o) == 19 if 0 else o "
        "in ('__array_interface__',)\n"
        "---\n"
        "x = np.array(types.SimpleNamespace(**{F.A: I}))\n"
        "raise ValueError(f'{x}')",
        "not a plain str",
    ),
    "a namespace's name with an own startswith": (
        "import numpy as np\n"
        "I = {'data': (id(5), False), 'shape': (4,), 'typestr': '|u1', 'version': 3}\n"
        "import types\n"
        "from enum import Enum\n"
        "class F(str, Enum):\n"
        "    A = '__array_interface__'\n"
        "    def startswith(self, x): return False\n"
        "---\n"
        "x = np.array(types.SimpleNamespace(**{F.A: I}))\n"
        "raise ValueError(f'{x}')",
        "not a plain str",
    ),
}
"""A text of an own class decides itself which name it equals."""

SPECIAL_NAMES = {
    "annotations by a decorator, as the code of a dataclass": (
        "import dataclasses\n"
        "def deco(f): return {'x=SEEN.append(SEEN.__class__.__mro__[1].__subclasses__())': in"
        "t}\n"
        "SEEN=[]\n"
        "@dataclasses.dataclass\n"
        "class C:\n"
        "    @deco\n"
        "    def __annotations__(self): ...\n"
        "---\n"
        "raise ValueError('%d' % len(SEEN))",
        "",
    ),
    "annotations by a decorator, with a further field": (
        "import dataclasses\n"
        "def deco(f): return {'x:int=SEEN.append(SEEN.__class__.__mro__[1].__subclasses__()),"
        " y': int}\n"
        "SEEN=[]\n"
        "@dataclasses.dataclass\n"
        "class C:\n"
        "    @deco\n"
        "    def __annotations__(self): ...\n"
        "---\n"
        "raise ValueError('%d' % len(SEEN))",
        "",
    ),
    "__subclasshook__ that is a function of Python": (
        "import abc\n"
        "class T:\n"
        "    def __call__(self, *k): return True\n"
        "def deco(f): return lambda *k: 1\n"
        "class T2:\n"
        "    pass\n"
        "def mk(f): return staticmethod(print)\n"
        "class C(abc.ABC):\n"
        "    @mk\n"
        "    def __subclasshook__(k): ...\n"
        "---\n"
        "match a:\n"
        "    case C(_storage=x):\n"
        "        raise ValueError('leak %d' % (x is not None))",
        "in a pattern",
    ),
    "__subclasshook__ that is callable()": (
        "import abc, itertools\n"
        "T = staticmethod(itertools.repeat(True).__next__) if 0 else None\n"
        "def mk(f): return staticmethod(callable)\n"
        "class C(abc.ABC):\n"
        "    @mk\n"
        "    def __subclasshook__(k): ...\n"
        "---\n"
        "match a:\n"
        "    case C(_storage=x):\n"
        "        raise ValueError('leak %d' % (x is not None))",
        "in a pattern",
    ),
    "__match_args__ by a decorator": (
        "import numpy as np\n"
        "I = {'data': (id(5), False), 'shape': (4,), 'typestr': '|u1', 'version': 3}\n"
        "def mk(f): return ('__dict__',)\n"
        "class C:\n"
        "    @mk\n"
        "    def __match_args__(self): ...\n"
        "---\n"
        "c = C()\n"
        "match c:\n"
        "    case C(d):\n"
        "        d['__array_interface__'] = I\n"
        "raise ValueError(f'{np.array(c)}')",
        "__match_args__",
    ),
    "a protocol that says it is none": (
        "import typing\n"
        "class Flip:\n"
        "    def __init__(self): self.n = 0\n"
        "    def __bool__(self):\n"
        "        self.n += 1\n"
        "        SEEN.append(self.n)\n"
        "        return self.n not in BAD\n"
        "SEEN=[]\n"
        "BAD=[2]\n"
        "class P(typing.Protocol):\n"
        "    _is_protocol = Flip()\n"
        "    _is_runtime_protocol = True\n"
        "    _storage: object\n"
        "---\n"
        "match a:\n"
        "    case P(_storage=x):\n"
        "        raise ValueError('leak')\n"
        "raise ValueError(f'{SEEN}')",
        "in a pattern",
    ),
    "a protocol that says it is none when asked first": (
        "import typing\n"
        "class Flip:\n"
        "    def __init__(self): self.n = 0\n"
        "    def __bool__(self):\n"
        "        self.n += 1\n"
        "        return self.n != 3\n"
        "FLIP=Flip()\n"
        "class P(typing.Protocol):\n"
        "    _is_protocol = FLIP\n"
        "    _is_runtime_protocol = True\n"
        "    _storage: object\n"
        "N = FLIP.n\n"
        "---\n"
        "FLIP.n = 2\n"
        "match a:\n"
        "    case P(_storage=x):\n"
        "        raise ValueError('leak')\n"
        "raise ValueError(f'{N} {FLIP.n}')",
        "in a pattern",
    ),
    "a slot of weak references": (
        "class C:\n    __slots__ = ('x', '__weakref__')\n---\nC().__weakref__",
        "__weakref__",
    ),
}
"""A decorator gives a special name of a class any value."""

CONVERSIONS = {
    "the count of sys.stdout.write": (
        "import sys\n---\nn = sys.stdout.write(str(a))\nraise ValueError(f'{n}')",
        "the text of an object",
    ),
    "an own __format__ gets a specification": (
        "class C:\n"
        "    def __format__(self, s):\n"
        "        raise ValueError(f'{len(s)}')\n"
        "---\n"
        "'{0:{1}}'.format(C(), a)",
        "the text of an object",
    ),
    "a member of texts": (
        "from enum import Enum\n"
        "---\n"
        "class E(str, Enum):\n"
        "    A = str(a)\n"
        "raise ValueError(f'{len(E.A.value)}')",
        "the text of an object",
    ),
    "str.__new__ of a member": (
        "from enum import Enum\n"
        "---\n"
        "N=[]\n"
        "class E2(str, Enum):\n"
        "    def __new__(cls, v):\n"
        "        x = super().__new__(cls, v)\n"
        "        N.append(len(x))\n"
        "        return x\n"
        "    A = str(a)\n"
        "raise ValueError(f'{N}')",
        "the text of an object",
    ),
    "an item of an array of texts": (
        "import numpy as np\n"
        "---\n"
        "x = np.zeros(1, 'U99')\n"
        "x[0] = str(a)\n"
        "raise ValueError(f'{len(x[0])}')",
        "of texts",
    ),
    "a function as an item of an array of texts": (
        "import numpy as np\n"
        "---\n"
        "x = np.zeros(1, 'U99')\n"
        "x[0] = nl.add\n"
        "raise ValueError(f'{len(x[0])}')",
        "of texts",
    ),
    "a function as an item of an array of bytes": (
        "import numpy as np\n"
        "---\n"
        "x = np.zeros(1, 'S99')\n"
        "x[0] = nl.add\n"
        "raise ValueError(f'{len(x[0])}')",
        "of texts",
    ),
    "a function in a record of texts": (
        "import numpy as np\n"
        "---\n"
        "x = np.zeros(1, np.dtype([('a', 'U99')]))\n"
        "x['a'][0] = nl.add\n"
        "raise ValueError(f'{len(x[0][0])}')",
        "of texts",
    ),
    "a function in an array of texts": (
        "import numpy as np\n"
        "---\n"
        "x = np.array([nl.add], dtype='U99')\n"
        "raise ValueError(f'{len(x[0])}')",
        "of texts",
    ),
    "an array full of a function's text": (
        "import numpy as np\n"
        "---\n"
        "x = np.full(1, nl.add, dtype='U99')\n"
        "raise ValueError(f'{len(x[0])}')",
        "of texts",
    ),
    "super().__repr__": (
        "class L(list):\n"
        "    def text(self): return super().__repr__()\n"
        "---\n"
        "raise ValueError(f'{len(L([a]).text())}')",
        "the text of an object",
    ),
    "super().__str__ of an error": (
        "class E(Exception):\n"
        "    def text(self): return super().__str__()\n"
        "---\n"
        "raise ValueError(f'{len(E(a).text())}')",
        "the text of an object",
    ),
    "__repr__ of an own set": (
        "class S(set): ...\n---\nraise ValueError(f'{len(S([a]).__repr__())}')",
        "the text of an object",
    ),
    "__str__ of an own list": (
        "class L(list): ...\n---\nraise ValueError(f'{len(L([a]).__str__())}')",
        "the text of an object",
    ),
    "__repr__ of a dataclass": (
        "import dataclasses\n"
        "@dataclasses.dataclass\n"
        "class D:\n"
        "    x: object\n"
        "---\n"
        "raise ValueError(f'{len(D(a).__repr__())}')",
        "the text of an object",
    ),
    "__repr__ of an own OrderedDict": (
        "from collections import OrderedDict\n"
        "class D(OrderedDict): ...\n"
        "---\n"
        "raise ValueError(f'{len(D(x=a).__repr__())}')",
        "the text of an object",
    ),
    "the text of a member": (
        "from enum import Enum\n"
        "class E(Enum):\n"
        "    A = (nl.add, 1)\n"
        "---\n"
        "raise ValueError(f'{len(f\"{E.A!r}\")}')",
        "the text of an object",
    ),
    "a member that is a tuple, with a specification": (
        "from enum import Enum\n"
        "class E(tuple, Enum):\n"
        "    A = (nl.add, 1)\n"
        "---\n"
        "raise ValueError(f'{len(f\"{E.A:>3}\")}')",
        "the text of an object",
    ),
    "a member that is a dataclass": (
        "from enum import Enum\n"
        "import dataclasses\n"
        "@dataclasses.dataclass(frozen=True)\n"
        "class D:\n"
        "    x: object\n"
        "class E(D, Enum):\n"
        "    A = nl.add\n"
        "---\n"
        "raise ValueError(f'{len(repr(E.A))}')",
        "the text of an object",
    ),
    "an own __format__ in an f-string": (
        "class C:\n"
        "    def __format__(self, s):\n"
        "        raise ValueError(f'{len(s)}')\n"
        "---\n"
        "f'{C():{a}}'",
        "the text of an object",
    ),
    "an own __str__ by a percent sign": (
        "class C:\n    def __str__(self): return str(nl.add)\n---\nlen('%s' % C())",
        "the text of an object",
    ),
    "a mapping by a percent sign": ("len('%(x)s' % {'x': a})", "the text of an object"),
    "a text of a defaultdict": (
        "from collections import defaultdict\n"
        "---\n"
        "d = defaultdict(list)\n"
        "d[1].append(a)\n"
        "len(str(d))",
        "the text of an object",
    ),
    "the text of a KeyError": (
        "try:\n"
        "    {}[a]\n"
        "except KeyError as e:\n"
        "    raise ValueError(f'{len(str(e))}')",
        "the text of an object",
    ),
    "a text in an own error": (
        "e = ValueError(str(a))\nlen(e.args[0])",
        "the text of an object",
    ),
    "a text as a keyword": (
        "f = lambda **k: len(k)\nf(**{str(a): 1})",
        "the text of an object",
    ),
    "a text as arguments": (
        "f = lambda *x: len(x)\nf(*str(a))",
        "the text of an object",
    ),
    "a text as name= of an inner kernel": (
        "@nki.jit\n"
        "def helper(t, name):\n"
        "    raise ValueError(f'{len(name)}')\n"
        "---\n"
        "helper(a, name=str(a))",
        "the text of an object",
    ),
    "an own error's __str__": (
        "class E(ValueError):\n"
        "    def __str__(self): return f'{self.args[0]}'\n"
        "---\n"
        "raise ValueError(f'{len(str(E(a)))}')",
        "the text of an object",
    ),
    "texts added by reduce": (
        "import functools, operator\n"
        "---\n"
        "x = functools.reduce(operator.add, [str(a), str(b)])\n"
        "len(x)",
        "the text of an object",
    ),
}
"""Python and NumPy make a text of any object."""

SWALLOWED = {
    "finally with a yield": (
        "def g():\n"
        "    try:\n"
        "        nl.ndarray((129, 8), dtype=nl.float32, buffer=nl.sbuf)\n"
        "    finally:\n"
        "        yield 1\n"
        "---\n"
        "for x in g():\n"
        "    break",
        "129",
    ),
    "an IndexError in __getitem__": (
        "class C:\n"
        "    def __init__(self, a): self.a = a\n"
        "    def __getitem__(self, i):\n"
        "        self.a[500]\n"
        "        return i\n"
        "---\n"
        "list(C(a))",
        "500",
    ),
    "an error in __len__, which NumPy asks": (
        "import numpy as np\n"
        "class C:\n"
        "    def __len__(self):\n"
        "        nl.ndarray((129, 8), dtype=nl.float32, buffer=nl.sbuf)\n"
        "        return 1\n"
        "    def __getitem__(self, i): return 1\n"
        "---\n"
        "np.ndim(C())",
        "129",
    ),
    "finally with a raise": (
        "def f(n):\n"
        "    try:\n"
        "        return f(n + 1)\n"
        "    finally:\n"
        "        raise ValueError(n)\n"
        "---\n"
        "try:\n"
        "    f(0)\n"
        "except ValueError as e:\n"
        "    raise ValueError(f'{e.args}')",
        "recursion",
    ),
    "an except clause of an item": (
        "X = [Exception]\n"
        "---\n"
        "try:\n"
        "    nl.ndarray((129, 8), dtype=nl.float32, buffer=nl.sbuf)\n"
        "except X[0]: pass",
        "129",
    ),
    "an except clause of several classes": (
        "class E(Exception): ...\n"
        "---\n"
        "try:\n"
        "    a._storage\n"
        "except (E, Exception): pass",
        "_storage",
    ),
}
"""A rejection by the machine is swallowed."""

BOUND = {
    "__len__ by a decorator": (
        "def deco(f): return 3\n"
        "class C:\n"
        "    @deco\n"
        "    def __len__(self): ...\n"
        "---\n"
        "C()",
        "__len__",
    ),
    "__getitem__ that is a function of C": (
        "import numpy as np\n"
        "class C:\n"
        "    __getitem__ = np.zeros(1).astype\n"
        "---\n"
        "C()['O']",
        "__getitem__",
    ),
    "__call__ that is a class": (
        "class C:\n    __call__ = dict\n---\nC()()",
        "__call__",
    ),
    "__call__ that is a partial": (
        "import functools\n"
        "class C:\n"
        "    __call__ = functools.partial(print, 1)\n"
        "---\n"
        "C()()",
        "__call__",
    ),
    "__len__ that is a property": (
        "class C:\n"
        "    @property\n"
        "    def __len__(self): return lambda: 3\n"
        "---\n"
        "len(C())",
        "__len__",
    ),
    "__len__ by a starred target": (
        "class C:\n    *__len__, y = print, 1\n---\nC()",
        "__len__",
    ),
    "__len__ by a loop": (
        "class C:\n    for __len__ in [print]: ...\n---\nlen(C())",
        "",
    ),
    "__len__ by an import": (
        "class C:\n    from math import sqrt as __len__\n---\nlen(C())",
        "has no len",
    ),
    "__len__ after the class statement": (
        "class C: ...\n---\nC.__len__ = print",
        "__len__",
    ),
    "an item of vars": ("class C: ...\n---\nvars(C())['__class__'] = 1", "__class__"),
    "vars joined by |=": (
        "class C: ...\n---\nd = vars(C())\nd |= {'__array_interface__': 1}",
        "__array_interface__",
    ),
    "setdefault of vars": (
        "class C: ...\n---\nvars(C()).setdefault('__array_interface__', 1)",
        "setdefault",
    ),
    "the owner of vars": ("class C: ...\n---\nvars(C())._owner", "_owner"),
    "vars of an own error": (
        "class E(Exception): ...\n---\nvars(E())['__notes__'] = ['x']",
        "__notes__",
    ),
}
"""A class or an object gets a name in another way."""

PLACES = {
    "a default": ("def f(x=a._storage): ...", "_storage"),
    "a default of a lambda": ("f = lambda x=a._storage: 1", "_storage"),
    "a decorator": ("@a._storage\ndef f(): ...", "_storage"),
    "a comprehension": ("[x._storage for x in [a]]", "_storage"),
    "an f-string": ("f'{a._storage!r}'", "_storage"),
    "a specification of an f-string": ("f'{1:{a._storage}}'", "_storage"),
    "an index": ("[1][a._storage]", "_storage"),
    "a starred argument": ("f = lambda *x: x\nf(*a._storage)", "_storage"),
    "the message of an assertion": ("assert False, a._storage", "_storage"),
    "del": ("del a._storage", "_storage"),
    "the target of with": (
        "import contextlib\n---\nwith contextlib.nullcontext(1) as a._storage: pass",
        "_storage",
    ),
    "the target of for": ("for a._storage in [1]: pass", "_storage"),
    "the target of +=": ("a._storage += 1", "_storage"),
    "an annotated target": ("a._storage: int = 1", "_storage"),
    "a walrus": ("[y := a._storage]", "_storage"),
    "a yield in a lambda": ("f = lambda: (yield a._storage)\nlist(f())", "_storage"),
    "an own operator gets a class's method": (
        "class R:\n"
        "    def __radd__(self, o): SEEN.append(o)\n"
        "SEEN = []\n"
        "class C: ...\n"
        "---\n"
        "C.mro += R()",
        "builtin_function",
    ),
    "a static method of map": (
        "import numpy as np\n"
        "---\n"
        "x = list(staticmethod(map)(np.zeros(1).astype, ['O']))[0]\n"
        "raise ValueError('leak' if x.dtype == 'O' else 'no')",
        "objects",
    ),
    "a thrown error's traceback, out of a generator": (
        "def g():\n"
        "    try:\n"
        "        yield 1\n"
        "    except Exception as e:\n"
        "        yield e\n"
        "---\n"
        "x = g()\n"
        "next(x)\n"
        "e = x.throw(ValueError('x'))\n"
        "e.__traceback__",
        "__traceback__",
    ),
}
"""Each place of an expression asks the guards."""
if sys.version_info < (
    3,
    14,
):  # later Pythons evaluate only annotations that something reads
    PLACES["an annotation of a result"] = ("def f() -> a._storage: ...", "_storage")

UNGUARDED = PATTERNS | NAMES | SPECIAL_NAMES | CONVERSIONS | SWALLOWED | BOUND | PLACES
"""All ways, by their names."""
