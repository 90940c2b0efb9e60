"""Cheats outside of the language, each with a part of the verdict's text.

A text begins the body of the kernel ``add``; what stands before a line ``---`` is of its module.
"""

from difftest.tools.verdict.language import FORBIDDEN

NUMPY = "import numpy as np\n---\n"

OUTSIDE = {
    # the data of the case, where a caller holds them
    "frame walk": ("import sys\n---\nf = sys._getframe()", "sys._getframe"),
    "frame walk by inspect": (
        "import inspect\n---\ninspect.stack()",
        "the import of inspect",
    ),
    "frame of a generator": (
        "def f():\n    yield 1\n---\ng = f()\ng.gi_frame.f_back",
        "the attribute gi_frame",
    ),
    "frame of a generator, by getattr": (
        "def f():\n    yield 1\n---\ngetattr(f(), 'gi_frame')",
        "the attribute gi_frame",
    ),
    "frame of a traceback": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    e.__traceback__.tb_frame",
        "the attribute tb_frame",
    ),
    "the tensor's own storage": ("a._storage.data", "_storage"),
    "a private name that a class of its own has": (
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    other: int = 0\n---\na._storage",
        "_storage",
    ),
    "gc search": ("import gc\n---\ngc.get_objects()", "the import of gc"),
    "a weak reference": ("import weakref\n---", "the import of weakref"),
    "a trace function": ("import sys\n---\nsys.settrace(None)", "sys.settrace"),
    "a local alias of a module": (
        "import numpy\nm = numpy\n---\nm.__loader__",
        "__loader__",
    ),
    # ways to an attribute that is not written as one
    "getattr of a variable": (
        "n = '_sto' + 'rage'\ngetattr(a, n)",
        "getattr of a name",
    ),
    "getattr as a value": (
        "import functools\n---\nfunctools.reduce(getattr, ['x'], a)",
        "a value",
    ),
    "getattr, where a parameter has its name": (
        "def f(getattr): ...\n---\ng = getattr\ng(a, '__class__')",
        "getattr as a value",
    ),
    "operator.attrgetter": (
        "import operator\n---\noperator.attrgetter('x')(a)",
        "attrgetter",
    ),
    "operator.methodcaller": ("from operator import methodcaller\n---", "methodcaller"),
    "str.format": ("'{0.__class__}'.format(a)", "no plain literal"),
    "str.format of an attribute": ("'{0.shape}'.format(a)", "no plain literal"),
    "str.format within a specification": ("'{:{0.x}}'.format(a)", "no plain literal"),
    "format of a variable": ("t = '{0.x}'\nt.format(a)", "no plain literal"),
    "str.format unbound": ("str.format('{0.x}', a)", "no plain literal"),
    "format_map": ("'{x}'.format_map({})", "format_map"),
    "a pattern": (
        "match a:\n    case object(__class__=x):\n        x.mro",
        "__class__",
    ),
    "format by a pattern": (
        "match '{0.__class__}':\n    case str(format=f):\n        f(a)",
        "no plain literal",
    ),
    "a protocol that any object fits": (  # a dataclass of it names what a pattern takes out
        "from typing import runtime_checkable\n---",
        "runtime_checkable",
    ),
    **{
        f"builtins bound by {name}": (text + "\n---", "the name __builtins__")
        for name, text in {
            "a handler": "try:\n    import torch\nexcept ImportError as __builtins__:\n    pass",
            "an import": "import math as __builtins__",
            "a class": "from enum import Enum\nclass __builtins__(Enum): ...",
            "a global": "def f():\n    global __builtins__",
            "a pattern": "match []:\n    case __builtins__: ...",
            "a pattern's rest": "match []:\n    case [*__builtins__]: ...",
            "a mapping's rest": "match {}:\n    case {**__builtins__}: ...",
        }.items()
    },
    "fullwidth underscores": ("a.\uff3f\uff3fclass\uff3f\uff3f", "invalid character"),
    "an f-string": ("f'{a.__class__}'", "__class__"),
    "letters that Python reads as others": ("a.__\uff43lass__", "__class__"),
    "a lambda's default": ("g = lambda x=a.__class__: x", "__class__"),
    # classes, and the objects behind them
    "subclasses": ("().__class__.__base__.__subclasses__()", "__subclasses__"),
    "mro": ("int.mro()", "the attribute mro"),
    "type of three": ("type('X', (int,), {})", "type as a value"),
    "a number that changes": ("class N(float):\n    x = 1\n---", "the class N"),
    "a metaclass": (
        "from enum import Enum\nclass N(Enum, metaclass=Enum):\n    x = 1\n---",
        "a metaclass",
    ),
    "a method that is asked for attributes": (
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n"
        "    def __getattr__(self, n): ...\n---",
        "the method __getattr__",
    ),
    "a swapped class": ("a.__class__ = int", "the attribute __class__"),
    "a function's code": ("add.__code__ = 1", "the attribute __code__"),
    "a function's globals": ("load.__globals__['x'] = 1", "the attribute __globals__"),
    "an object's dictionary": ("a.__dict__", "the attribute __dict__"),
    "dunder assigned": ("__builtins__ = {}\n---", "the name __builtins__"),
    "builtins by name": ("__builtins__['open']('x')", "the name __builtins__"),
    "the loader": ("__loader__.load_module('os')", "the name __loader__"),
    "__import__": ("__import__('os').fork()", "the name __import__"),
    # Python's own ways to run a text, or to see everything
    **{f"{name}": (f"{name}('1')", name) for name in FORBIDDEN},
    "a builtin under another name": ("o = open\n---\no('/etc/passwd')", "open"),
    "a string that is an annotation": (
        "import typing\n---\ntyping.get_type_hints(add)",
        "get_type",
    ),
    "a class made of names": (
        "from dataclasses import make_dataclass\n---",
        "make_data",
    ),
    "dispatch by annotations": (
        "from functools import singledispatch\n---",
        "singledis",
    ),
    # the system
    "fork": ("import os\n---\nos.fork()", "os.fork"),
    "exit without a word": ("import os\n---\nos._exit(0)", "os._exit"),
    "exit": ("import sys\n---\nsys.exit(0)", "sys.exit"),
    "exit by name": ("raise SystemExit", "SystemExit"),
    "all modules": ("import sys\n---\nsys.modules", "sys.modules"),
    "the environment changed": ("import os\n---\nos.putenv('a', 'b')", "os.putenv"),
    "a path of os": ("from os import path\n---", "the import of os.path"),
    "all of os": ("from os import *\n---", "the import of *"),
    "an import in a function": (
        "import socket\nsocket.socket()",
        "the import of socket",
    ),
    "an import where nothing is checked": (
        "import typing\nif not typing.TYPE_CHECKING:\n    import socket\n---",
        "the import of socket",
    ),
    "an import from above": ("from ... import x\n---", "from above"),
    "NumPy's random numbers": (NUMPY + "np.random.default_rng(0)", "numpy.random"),
    "NumPy reads a file": (NUMPY + "np.load('x')", "numpy.load"),
    "NumPy writes a file": (NUMPY + "np.zeros(1).tofile('x')", "the attribute tofile"),
    "NumPy's C types": (NUMPY + "np.zeros(1).ctypes", "the attribute ctypes"),
    "NumPy's memory": (NUMPY + "np.lib.stride_tricks", "numpy.lib"),
    "NumPy's inner modules": (
        "import numpy.lib.format\n---",
        "the import of numpy.lib",
    ),
    "NumPy calls Python": (NUMPY + "np.frompyfunc(print, 1, 1)", "numpy.frompyfunc"),
    "NumPy's tests patched": (NUMPY + "np.testing.assert_allclose = print", "is set"),
    "NumPy patched": (NUMPY + "np.allclose = lambda *a: True", "np.allclose is set"),
    "a class of Python patched": (
        "from collections import Counter\nCounter.update = print\n---",
        "Counter.update is set",
    ),
    "NKI patched": ("nisa.tensor_tensor = print", "nisa.tensor_tensor is set"),
    "NKI's private modules": ("import nki._private\n---", "nki._private is private"),
    # requests to the machine, tried out
    "fall-back in an except": (
        "try:\n    return store(total(a, undefined))\nexcept NameError:\n    return a",
        "an except that catches",
    ),
    "a bare except": ("try:\n    x = 1 / 0\nexcept:\n    pass", "an except"),
    "a try around instructions": (
        "try:\n    nisa.memset(dst=a, value=0.0)\nexcept ValueError:\n    pass",
        "a try around instructions",
    ),
    "async": ("async def f(): ...\n---", "async"),
    "no Python": ("x = (\n---", "it cannot be read"),
    "a null": ("x = '\0'\n---", ""),
    "nested too deeply": ("x = " + "(" * 300 + ")" * 300 + "\n---", ""),
    "attributes of attributes": (
        NUMPY.replace("---", "np" + ".a" * 900 + "\n---"),
        "nested more than",
    ),
    "480 times elif": ("if 1:\n    0\n" + "elif 1:\n    0\n" * 480, "nested more than"),
    "super of another": ("class A: ...\n---\nsuper(A, a)._storage", "super as a value"),
    "a super of its own": (
        "super = lambda: a\nsuper().__init__()",
        "a super of its own",
    ),
    "a super in a module": ("np.super = 1", "a super of its own"),
    "super beside super": ("super().f(super)", "super as a value"),
    "what all have": ("class A:\n    f = lambda s: super().__dir__()\n---", "__dir__"),
    "too large": ("x = '" + "x" * 2**20 + "'\n---", "bytes"),
}
