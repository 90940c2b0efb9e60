"""Ways out of a candidate's world: each with a piece of the refusal, or of Python's own error.

A text begins the body of the kernel ``add``; lines before ``---`` are of its module. The tests run
each one in the kernel, where a refusal is the verdict.
"""

NUMPY = "import numpy as np\n---\n"
GRAB = (
    "GOT = []\n\n\nclass Grab:\n    def __eq__(self, other):\n        GOT.append(other)\n"
    "        return True\n\n    __hash__ = None\n---\n"
)
"""A class whose comparison keeps the other side."""

FRAMES = {
    "the caller's frame": ("import sys\n---\nsys._getframe()", "sys._getframe"),
    "inspect": ("import inspect\n---\ninspect.stack()", "inspect.stack"),
    "a generator's frame": ("def f():\n    yield 1\n---\nf().gi_frame", "gi_frame"),
    "a generator's code": ("def f():\n    yield 1\n---\nf().gi_code", "gi_code"),
    "a frame by getattr": (
        "def f():\n    yield 1\n---\ngetattr(f(), 'gi_' + 'frame')",
        "gi_frame",
    ),
    "a traceback": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    e.__traceback__",
        "__traceback__",
    ),
    "a context's traceback": (
        "class C:\n    def __enter__(self): ...\n    def __exit__(self, k, e, t):\n"
        "        t.tb_frame\n---\nwith C():\n    {}['x']",
        "NoneType",
    ),
    "an error's context": (
        "try:\n    {}['x']\nexcept KeyError as e:\n    e.__context__",
        "__context__",
    ),
    "gc": ("import gc\n---\ngc.get_objects()", "gc.get_objects"),
    "a trace function": ("import sys\n---\nsys.settrace(None)", "sys.settrace"),
    "threads": ("import threading\n---\nthreading.Thread()", "threading.Thread"),
    "weak references": ("import weakref\n---\nweakref.ref(add)", "weakref.ref"),
}

STORAGE = {
    "a tensor's storage": ("a._storage.data", "_storage"),
    "a tensor's storage by getattr": ("getattr(a, '_storage')", "_storage"),
    "a tensor's storage by a variable": (
        "n = '_sto' + 'rage'\ngetattr(a, n)",
        "_storage",
    ),
    "a tensor's storage by attrgetter": (
        "import operator\n---\noperator.attrgetter('_storage')(a)",
        "_storage",
    ),
    "by a dotted attrgetter": (
        "import operator\n---\noperator.attrgetter('shape.__class__.mro')(a)",
        "mro",
    ),
    "by methodcaller": (
        "import operator\n---\noperator.methodcaller('_elements')(a)",
        "_elements",
    ),
    "by map and getattr": ("list(map(getattr, [a], ['_storage']))", "_storage"),
    "by reduce and getattr": (
        "import functools\n---\nfunctools.reduce(getattr, ['_storage', 'data'], a)",
        "_storage",
    ),
    "by sorted and a key": (
        "import operator\n---\nsorted([a], key=operator.attrgetter('_storage'))",
        "_storage",
    ),
    "by a format text": ("'{0._storage}'.format(a)", "_storage"),
    "by a format text inside a specification": (
        "'{0:{0._storage}}'.format(a)",
        "_storage",
    ),
    "by str.format of a member": (
        "from enum import Enum\nclass F(str, Enum):\n    A = '{0._storage}'\n---\n"
        "str.format(F.A, a)",
        "_storage",
    ),
    "by the format of a member": (
        "from enum import Enum\nclass F(str, Enum):\n    A = '{0._storage}'\n---\n"
        "F.A.format(a)",
        "",
    ),
    "by a format text of a variable": ("t = '{0._storage}'\nt.format(a)", "_storage"),
    "by str.format": ("str.format('{0._storage}', a)", "_storage"),
    "by map and str.format": (
        "list(map(str.format, ['{0._storage}'], [a]))",
        "_storage",
    ),
    "by format_map": ("'{x._storage}'.format_map({'x': a})", "format_map"),
    "by a pattern of object": (
        "match a:\n    case object(_storage=x):\n        x.data",
        "in a pattern",
    ),
    "by a pattern of a tensor": (
        "match a:\n    case nl.NkiTensor(shape=x):\n        ...",
        "in a pattern",
    ),
    "by a value pattern": (
        GRAB + "match Grab():\n    case a._storage:\n        ...",
        "_storage",
    ),
    "by a walrus and a value pattern": (
        GRAB + "x = a\nmatch Grab():\n    case x._storage.data:\n        ...",
        "_storage",
    ),
    "the dictionary of a tensor": ("a.__dict__", "__dict__"),
    "vars of a tensor": ("vars(a)", "__dict__"),
    "dir of a tensor": ("dir(a)", "dir()"),
    "a register's value": (
        "r = nisa.register_alloc(3)\nr.device_value()",
        "device_value",
    ),
    "a register's label": ("nisa.register_alloc(3).label", "label"),
    "another name of AWS's simulator": ("a.sim_value", "sim_value"),
    "deepcopy of a tensor": (
        "import copy\n---\ncopy.deepcopy(a).__dict__",
        "__dict__",
    ),
    "pickle": ("import pickle\n---\npickle.dumps(a)", "pickle.dumps"),
}

CLASSES = {
    "subclasses": ("().__class__.__base__.__subclasses__()", "__base__"),
    "mro": ("int.mro()", "mro"),
    "the type of a class": ("type(int)('X', (), {})", "type()"),
    "type of three": ("type('X', (int,), {})", "type()"),
    "type by a comparison": (GRAB + "type(int) == Grab()\nGOT[0].mro(int)", "mro"),
    "a class of ours by a comparison": (
        GRAB + "type(a) == Grab()\nGOT[0].__mro__",
        "__mro__",
    ),
    "an internal by a comparison": (
        GRAB + "nl.ndarray(Grab(), dtype=Grab(), buffer=Grab())\nGOT[0].__class__.mro",
        "",
    ),
    "type.__getattribute__": ("type.__getattribute__(int, 'mro')", "__getattribute__"),
    "object.__getattribute__": (
        "object.__getattribute__(a, '_storage')",
        "__getattribute__",
    ),
    "an own __getattribute__ of super": (
        "class C:\n    def f(self):\n        return super().__getattribute__('f')\n---\nC().f()",
        "__getattribute__",
    ),
    "super of another": ("super(int, 1).__init__", "super"),
    "a metaclass": (
        "class C:\n    class M(type): ...\n---\nclass N(metaclass=type): ...",
        "metaclass",
    ),
    "a class of type": ("class N(type(int)): ...", "a class N of"),
    "__init_subclass__": (
        "class C:\n    def __init_subclass__(cls): ...\n---\nC()",
        "__init_subclass__",
    ),
    "__getattr__ by a decorator": (
        "class C:\n    @staticmethod\n    def __getattr__(n): ...\n---\nC().x",
        "__getattr__",
    ),
    "__getattr__ with a default": (
        "class C:\n    def __getattr__(self, n='x'): ...\n---\nC().x",
        "__getattr__",
    ),
    "__getattr__ by a name": (
        "class C:\n    __getattr__ = lambda self, n: {}\n---\nC().x",
        "__getattr__",
    ),
    "__getattr__ of a module": (
        "def __getattr__(self, n): ...\n---\n__getattr__(1, 2)",
        "__getattr__",
    ),
    "an interface by __getattr__": (
        "import numpy as np\nI = {'data': (id(5), False), 'shape': (4,), 'typestr': '|u1', "
        "'version': 3}\nclass C:\n    def __getattr__(self, name):\n        return I\n---\n"
        "np.array(C())",
        "an array of objects",
    ),
    "an interface by a text of an own class": (
        "from enum import Enum\nclass F(str, Enum):\n    A = 'x'\n"
        "class C:\n    def __getattr__(self, name):\n        return name\n---\n"
        "getattr(C(), F.A)",
        "must be string",
    ),
    "__set_name__": (
        "class C:\n    def __set_name__(self, o, n): ...\n---\nC()",
        "__set_name__",
    ),
    "__reduce__": (
        "class C:\n    def __reduce__(self): ...\n---\nC()",
        "__reduce__",
    ),
    "__array_interface__ by a method": (
        "class C:\n    @property\n    def __array_interface__(self): ...\n---\nC()",
        "__array_interface__",
    ),
    "__array_interface__ by an enumeration": (
        "from enum import Enum\n---\nEnum('X', {'__array_interface__': 1})",
        "an enumeration made by a call",
    ),
    "__array_interface__ by IntEnum": (
        "from enum import IntEnum\n---\nIntEnum('X', 'A B')",
        "an enumeration made by a call",
    ),
    "an enumeration of an enumeration": (
        "from enum import Enum\n\nclass E(Enum):\n    A = 1\n---\nE('X', names=['B'])",
        "an enumeration made by a call",
    ),
    "the enumeration's own type": (
        "from enum import Enum\n\nclass E(Enum):\n    A = 1\n---\ntype(E)('X', (), {})",
        "OwnEnumType",
    ),
    "__array_interface__ by setattr": (
        "class C: ...\n---\nsetattr(C, '__array_interface__', 1)",
        "__array_interface__",
    ),
    "__array_interface__ by an attribute": (
        "class C: ...\n---\nC.__array_interface__ = 1",
        "__array_interface__",
    ),
    "__array_interface__ by a name": (
        "class C:\n    __array_interface__ = {}\n---\nC()",
        "__array_interface__",
    ),
    "__array__ of a base": (
        NUMPY + "class C(np.ndarray): ...",
        "a class C of",
    ),
    "a class of a number": ("class C(float): ...", "a class C of"),
    "a swapped class": ("a.__class__ = int", "__class__"),
    "a swapped own class": ("class C: ...\n---\nC().__class__ = int", "__class__"),
    "object.__setattr__ of a tensor": (
        "object.__setattr__(a, 'x', 1)",
        "the attribute x",
    ),
    "object.__setattr__ of a class name": (
        "class C: ...\n---\nobject.__setattr__(C(), '__class__', 1)",
        "__class__",
    ),
    "fields of NKI's objects": (
        "import dataclasses\n---\ndataclasses.fields(a)",
        "the fields",
    ),
    "a dataclass of NKI's class": (
        "import dataclasses\n---\ndataclasses.dataclass(nl.NkiTensor)",
        "a dataclass of a class",
    ),
    "a field's own class": (
        "import dataclasses\n---\ndataclasses.field(default=1).default",
        "default",
    ),
    "make_dataclass": (
        "import dataclasses\n---\ndataclasses.make_dataclass('X', [])",
        "make_dataclass",
    ),
    "get_type_hints": (
        "import typing\n---\ntyping.get_type_hints(add)",
        "get_type_hints",
    ),
    "evaluation of a ForwardRef": (
        "import typing\n---\ntyping.ForwardRef('1')._evaluate({}, {}, frozenset())",
        "ForwardRef",
    ),
    "an alias's origin": (
        "import typing\n---\ntyping.List[int].__origin__",
        "__origin__",
    ),
    "NewType's supertype": (
        "import typing\n---\ntyping.NewType('N', int).__supertype__",
        "__supertype__",
    ),
    "runtime_checkable": (
        "import typing\n---\ntyping.runtime_checkable(1)",
        "runtime_checkable",
    ),
    "a class by a call of an annotation": (
        "list(map(type[int], ['X'], [()], [{}]))",
        "",
    ),
    "a class by typing.Type": (
        "import typing\n---\nlist(map(typing.Type[int], ['X'], [()], [{}]))[0]()",
        "",
    ),
    "a class by ABCMeta": (
        "import abc\n---\nlist(map(abc.ABCMeta, ['X'], [()], [{}]))",
        "ABCMeta()",
    ),
    "a class by ABCMeta itself": (
        "import abc\n---\nabc.ABCMeta('X', (), {})",
        "ABCMeta()",
    ),
    "super of NKI's class": ("super(nl.NkiTensor, a)._storage", "super"),
    "super of a class, by map": (
        "class C: ...\n---\nlist(map(super, [int], [1]))[0].real",
        "real",
    ),
    "a tensor made by hand": ("nl.NkiTensor(1, 2)", "NkiTensor"),
    "a tensor made by hand, by map": ("list(map(nl.NkiTensor, [1], [2]))", "Kind"),
    "a protocol that is asked": (
        "import typing\nclass P(typing.Protocol):\n    _storage: object\n---\n"
        "P._is_runtime_protocol = True",
        "_is_runtime_protocol",
    ),
    "a special name in an expression": (
        "(__import__ := 3)",
        "the name __import__",
    ),
    "an own function of annotations": (
        "class C:\n    def __annotate__(self, format=0):\n        return {'x': open}\n---\nC()",
        "the name __annotate__",
    ),
    "an own function of annotations, as Python stores it": (
        "class C:\n    def __annotate_func__(self, format=0):\n        return {}\n---\nC()",
        "the name __annotate_func__",
    ),
    "isinstance of a protocol": (
        "import typing\nclass P(typing.Protocol):\n    _storage: object\n---\n"
        "isinstance(a, P)",
        "protocol",
    ),
    "__slots__ with a special name": (
        "class C:\n    __slots__ = ('__array_interface__',)\n---\nC()",
        "C",
    ),
    "a type of ml_dtypes that is made wrongly": (
        "import ml_dtypes\n---\nml_dtypes.bfloat16()",
        "takes one number",
    ),
    "register of an abstract class": (
        "import abc\n\nclass C(abc.ABC): ...\n---\nC.register(int)",
        "register",
    ),
}

FUNCTIONS = {
    "a function's code": ("add.__code__", "__code__"),
    "a helper's globals": ("load.__globals__", "__globals__"),
    "a helper's code set": ("load.__code__ = 1", "__code__"),
    "a helper's builtins": ("load.__builtins__", "__builtins__"),
    "a helper's closure": ("load.__closure__", "__closure__"),
    "a helper's defaults": ("load.__defaults__", "__defaults__"),
    "NKI's globals": ("nl.add.__globals__", "__globals__"),
    "NKI's closure": ("nl.load.__closure__", "__closure__"),
    "NKI's wrapped": ("nisa.dma_copy.__wrapped__", "__wrapped__"),
    "a method's self": ("[].append.__self__", "__self__"),
    "a method's function": (
        "class C:\n    def f(self): ...\n---\nC().f.__func__",
        "__func__",
    ),
    "wraps with attributes": (
        "import functools\n---\nfunctools.wraps(nl.load, assigned=('__globals__',))",
        "wraps with options",
    ),
    "wraps is a partial": (
        "import functools\n---\nfunctools.wraps(load).keywords['wrapped']",
        "keywords",
    ),
    "wraps's function": ("import functools\n---\nfunctools.wraps(load).func", "func"),
    "update_wrapper": (
        "import functools\n---\nfunctools.update_wrapper(load, nl.load)",
        "update_wrapper",
    ),
    "a partial of NKI": ("nki.jit(debug=True).func", "func"),
    "a partial's arguments": ("nki.jit(debug=True).keywords", "keywords"),
    "singledispatch": (
        "import functools\n---\nfunctools.singledispatch(load)",
        "singledispatch",
    ),
    "a cache's function": (
        "import functools\n---\nfunctools.lru_cache(load).__wrapped__",
        "__wrapped__",
    ),
    "a property's function": ("property(load).fget", "fget"),
    "the kernel's function": ("add.function", "function"),
    "the kernel's machine": ("add.machine", "machine"),
    "a kernel's grid": ("add.grid", "grid"),
    "eval": ("eval('1')", "eval"),
    "exec": ("exec('1')", "exec"),
    "compile": ("compile('1', '', 'eval')", "compile"),
    "open": ("open('x')", "open"),
    "globals": ("globals()", "globals"),
    "locals": ("locals()", "locals"),
    "vars": ("vars()", "vars"),
    "input": ("input()", "input"),
    "memoryview": ("memoryview(b'x')", "memoryview"),
    "breakpoint": ("breakpoint()", "breakpoint"),
    "__import__": ("__import__('os')", "__import__"),
    "builtins by name": ("__builtins__['open']", "__builtins__"),
    "builtins bound": ("__builtins__ = {}", "__builtins__"),
    "builtins by an import": ("import math as __builtins__", "__builtins__"),
    "builtins by a global": ("global __builtins__", "a special name"),
    "builtins by a pattern": (
        "match 1:\n    case __builtins__:\n        ...",
        "pattern",
    ),
    "the loader": ("__loader__", "__loader__"),
    "the module's spec": ("__spec__", "__spec__"),
}

SYSTEM = {
    "fork": ("import os\n---\nos.fork()", "os.fork"),
    "exit without a word": ("import os\n---\nos._exit(0)", "os._exit"),
    "system": ("from os import system\n---\nsystem('x')", "os.system"),
    "exit": ("import sys\n---\nsys.exit(0)", "sys.exit"),
    "exit by name": ("raise SystemExit", "SystemExit"),
    "all modules": ("import sys\n---\nsys.modules", "sys.modules"),
    "the environment changed": ("import os\n---\nos.putenv('a', 'b')", "os.putenv"),
    "sockets": ("import socket\nsocket.socket()", "socket.socket"),
    "ctypes": ("import ctypes\nctypes.CDLL(None)", "ctypes.CDLL"),
    "subprocesses": ("import subprocess\nsubprocess.run('x')", "subprocess.run"),
    "importlib": ("import importlib\nimportlib.import_module('os')", "import_module"),
    "the simulator": ("import difftest\ndifftest.simulator", "difftest.simulator"),
    "the worker": ("from difftest.tools.verdict import worker\nworker.sys", "difftest"),
    "the judge's test": ("import tests.unit\ntests.unit.x", "tests"),
    "pathlib": ("import pathlib\npathlib.Path('x')", "pathlib.Path"),
    "NumPy's files": (NUMPY + "np.load('x')", "numpy.load"),
    "NumPy's text files": (NUMPY + "np.fromfile('x')", "numpy.fromfile"),
    "NumPy writes": (NUMPY + "np.zeros(1).tofile('x')", "tofile"),
    "NumPy pickles": (NUMPY + "np.zeros(1).dump('x')", "dump"),
    "NumPy's pointers": (NUMPY + "np.zeros(1).ctypes", "ctypes"),
    "NumPy's data pointer": (NUMPY + "np.zeros(1).data", "data"),
    "NumPy's owner of memory": (NUMPY + "np.zeros(1).base", "base"),
    "NumPy's interface": (
        NUMPY + "np.zeros(1).__array_interface__",
        "__array_interface__",
    ),
    "NumPy's memory": (NUMPY + "np.lib.stride_tricks", "numpy.lib"),
    "NumPy's inner modules": (
        "from numpy._core import _methods\n---\n_methods.os",
        "_methods",
    ),
    "NumPy's random state": (NUMPY + "np.random.default_rng(0)", "numpy.random"),
    "NumPy calls Python": (NUMPY + "np.frompyfunc(load, 1, 1)", "numpy.frompyfunc"),
    "NumPy's vectorize": (NUMPY + "np.vectorize(load)", "numpy.vectorize"),
    "NumPy's arrays of objects": (NUMPY + "np.array([{}], dtype=object)", "objects"),
    "NumPy's record arrays": (NUMPY + "np.recarray((1,), int)", "numpy.recarray"),
    "NumPy's error callback": (NUMPY + "np.seterrcall(load)", "numpy.seterrcall"),
    "NumPy's print function": (
        NUMPY + "np.set_string_function(load)",
        "numpy.set_string",
    ),
    "NumPy patched": (NUMPY + "np.allclose = load", "numpy.allclose is set"),
    "NumPy patched by setattr": (
        NUMPY + "setattr(np, 'add', load)",
        "numpy.add is set",
    ),
    "NumPy's name deleted": (NUMPY + "del np.add", "deleted"),
    "NKI patched": ("nisa.tensor_tensor = load", "nki.isa.tensor_tensor is set"),
    "NKI patched by another name": (
        "m = nl\nm.add = nl.subtract",
        "nki.language.add is set",
    ),
    "NKI's class patched": ("nl.NkiTensor.x = 1", "the attribute x"),
    "NKI's function patched": ("nl.add.x = 1", "the attribute x"),
    "NKI's member patched": ("nisa.engine.tensor.x = 1", "the attribute x"),
    "NKI's enumeration patched": ("nisa.engine.x = 1", "the attribute x"),
    "Python's class patched": (
        "from collections import Counter\n---\nCounter.update = print",
        "the attribute update",
    ),
    "the output patched": (
        "import sys\n---\nsys.stdout.write = load",
        "the attribute write",
    ),
    "NKI's private modules": ("import nki._private\nnki._private.x", "_private"),
    "a hidden name of a module": ("getattr(nki, '\N{MIDDLE DOT}find')", "find"),
    "a hidden name of a module set": (
        "setattr(nl, '\N{MIDDLE DOT}names', ())\nnl.add = nl.subtract",
        "names is set",
    ),
    "NKI's module's dictionary": ("nl.__dict__", "__dict__"),
    "NKI's loader": ("nl.__spec__", "__spec__"),
    "NKI's simulator": ("nki.simulate(add)", "nki"),
    "what is embedded": ("nki.__difftest_embedded__", "__difftest_embedded__"),
    "names of NKI that AWS has not": (
        "hasattr(nl, 'fused_everything')",
        "fused_everything",
    ),
    "a private name of NKI": ("hasattr(nl, '_cache')", "_cache"),
    "a default for a name of NKI": (
        "getattr(nl, 'fused_everything', None)",
        "fused_everything",
    ),
    "names of a tensor that AWS has not": ("hasattr(a, 'whatever')", "whatever"),
}

TEXTS = {
    "a tensor's text as a number": ("int(f'{a}')", "the text of an object"),
    "a tensor's text's length": ("len(str(a))", "the text of an object"),
    "a tensor's text compared": ("str(a) == 'x'", "the text of an object"),
    "a text in a text": ("'sbuf' in repr(a)", "the text of an object"),
    "a text's truth": ("bool(str(nl.add))", "the text of an object"),
    "a text's hash": ("{str(a): 1}", "the text of an object"),
    "a text's method": ("str(a).startswith('x')", "the text of an object"),
    "a text's letters": ("str(a)[0]", "the text of an object"),
    "a text's letters one by one": ("list(str(a))", "the text of an object"),
    "texts sorted": ("sorted([str(a), str(b)])", "the text of an object"),
    "a text by a percent sign": ("len('%s' % a)", "the text of an object"),
    "a text by a percent sign of a tuple": (
        "len('%s%r' % (1, a))",
        "the text of an object",
    ),
    "a text by operator.mod": (
        "import operator\n---\nlen(operator.mod('%s', a))",
        "the text of an object",
    ),
    "a text by %=": ("t = '%s'\nt %= a\nlen(t)", "the text of an object"),
    "a text by format": ("len('{}'.format(a))", "the text of an object"),
    "a text by the function format": ("len(format(a, ''))", "the text of an object"),
    "a text by join": ("len(''.join([str(a)]))", "the text of an object"),
    "a text by addition": ("len('x' + str(a))", "the text of an object"),
    "a text by a list": ("len(str([a]))", "the text of an object"),
    "a text by a dictionary": ("len(repr({'x': a}))", "the text of an object"),
    "a text by a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    x: object\n---\nlen(str(C(a)))",
        "the text of an object",
    ),
    "a text by a named tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'x')\n---\nlen(str(P(a)))",
        "the text of an object",
    ),
    "a text by an own method": (
        "class C:\n    def __str__(self):\n        return f'{nl.add}'\n---\nlen(str(C()))",
        "the text of an object",
    ),
    "an address": ("int(f'{object()}'[-6:-1], 16)", "the text of an object"),
    "an own object's address": (
        "class C: ...\n---\nlen(str(C()))",
        "the text of an object",
    ),
    "an error's text": (
        "try:\n    [].x\nexcept AttributeError as e:\n    len(str(e))",
        "the text of an object",
    ),
    "an error's arguments": (
        "try:\n    int('x')\nexcept ValueError as e:\n    len(e.args[0])",
        "the text of an object",
    ),
    "a text by NumPy": (NUMPY + "np.array([str(a)])", "the text of an object"),
    "a text by re": ("import re\n---\nre.search('x', str(a))", "the text of an object"),
    "a text by map and re": (
        "import re\n---\nlist(map(re.escape, [str(a)]))",
        "",
    ),
    "an error that says that a text is opaque": (
        "import re\n---\ntry:\n    list(map(re.compile, [str(a)]))\nexcept TypeError:\n    pass",
        "the text of an object",
    ),
    "a text suppressed": (
        "import contextlib, re\n---\nwith contextlib.suppress(TypeError):\n"
        "    list(map(re.compile, [str(a)]))",
        "the text of an object",
    ),
    "a text as a number of a sort": ("max([str(a)], key=len)", "the text of an object"),
    "a text as an option": (
        "nl.ndarray((1, 1), dtype=str(a), buffer=nl.sbuf)",
        "the text of an object",
    ),
    "a text in json": ("import json\n---\njson.dumps([str(a)])", "serializable"),
    "a text in a match": (
        "match str(a):\n    case 'x':\n        ...",
        "the text of an object",
    ),
    "a text by a member's percent sign": (
        "from enum import Enum\nclass F(str, Enum):\n    A = '%s'\n---\nlen(F.A % a)",
        "the text of an object",
    ),
    "a text by bytes": ("b'%a' % a", "the text of an object"),
    "a text of a slice": ("len(str(slice(a)))", "the text of an object"),
    "a text by NumPy and map": (
        NUMPY.replace("---", "---\nlist(map(np.isscalar, [str(a)]))").rstrip("\n"),
        "the text of an object",
    ),
    "a text in a pattern": (
        "match [str(a)]:\n    case [str(x)]:\n        ...",
        "the text of an object",
    ),
    "a class's name": ("type(nl.tile_size).__name__ == 'x'", "the text of an object"),
    "a function's name": ("nl.add.__name__ == 'add'", "the text of an object"),
}

ERRORS = {
    "NKI's error caught": (
        "try:\n    nl.ndarray((129, 8), dtype=a.dtype, buffer=nl.sbuf)\n"
        "except Exception:\n    pass",
        "129",
    ),
    "NKI's error caught by a bare except": (
        "try:\n    nl.ndarray((129, 8), dtype=a.dtype, buffer=nl.sbuf)\nexcept:\n    pass",
        "129",
    ),
    "NKI's error suppressed": (
        "import contextlib\n---\nwith contextlib.suppress(Exception):\n"
        "    nl.ndarray((129, 8), dtype=a.dtype, buffer=nl.sbuf)",
        "129",
    ),
    "NKI's error swallowed by a manager": (
        "class C:\n    def __enter__(self): ...\n    def __exit__(self, *e):\n        return True\n"
        "---\nwith C():\n    nl.ndarray((129, 8), dtype=a.dtype, buffer=nl.sbuf)",
        "129",
    ),
    "a refusal caught": (
        "try:\n    a._storage\nexcept BaseException:\n    pass",
        "_storage",
    ),
    "a refusal swallowed in finally": (
        "def f():\n    try:\n        a._storage\n    finally:\n        return 1\nf()",
        "_storage",
    ),
    "a refusal swallowed by a generator": (
        "def f():\n    try:\n        yield\n    except BaseException:\n        yield\n---\n"
        "import contextlib\nwith contextlib.contextmanager(f)():\n    a._storage",
        "_storage",
    ),
    "a recursion counted": (
        "def f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n"
        "        return n\n---\nf(0)",
        "recursion",
    ),
    "async": ("async def f(): ...", "AsyncFunctionDef"),
    "an absent module": ("import torch\n---\ntorch.zeros(3)", "torch.zeros"),
    "an absent module's truth": ("import torch\n---\nif torch: ...", "torch"),
    "an absent value as an argument": (
        "import torch\nX = torch.zeros(3)\n---\nnl.ndarray(X, dtype=a.dtype, buffer=nl.sbuf)",
        "torch.zeros",
    ),
}

INTERFACE = (
    "import numpy as np\nI = {'data': (id(5), False), 'shape': (4,), 'typestr': '|u1', "
    "'version': 3}\n"
)
"""A description of memory at an address, which NumPy reads from an object's attribute."""
OBJECTS = {
    "an interface in a namespace": (
        INTERFACE
        + "import types\n---\nnp.array(types.SimpleNamespace(**{'__array_interface__': I}))",
        "__array_interface__ is set",
    ),
    "an array function in a namespace": (
        INTERFACE
        + "import types\n---\nnp.array(types.SimpleNamespace(**{'__array__': lambda: 0}))",
        "__array__ is set",
    ),
    "an interface in a dataclass": (
        INTERFACE
        + "import dataclasses\n@dataclasses.dataclass\nclass C:\n    __array_interface__: dict\n"
        "---\nnp.array(C(I))",
        "positional argument",
    ),
    "an interface in an object's dictionary": (
        INTERFACE
        + "class C: ...\n---\nc = C()\nc.__dict__.update(__array_interface__=I)\n"
        "np.array(c)",
        "__array_interface__ is set",
    ),
    "a dictionary by __match_args__": (
        INTERFACE
        + "class C:\n    __match_args__ = ('__dict__',)\n---\nmatch C():\n    case C(x):\n"
        "        x['__array_interface__'] = I",
        "",
    ),
    "a dictionary by a text of __match_args__": (
        INTERFACE
        + "class C:\n    __match_args__ = tuple(['__dict' + '__'])\n---\nmatch C():\n"
        "    case C(x):\n        x['__array_interface__'] = I",
        "",
    ),
    "a traceback by __match_args__": (
        "class E(Exception):\n    __match_args__ = ('__traceback__',)\n---\ntry:\n"
        "    raise E()\nexcept E as e:\n    match e:\n        case E(t):\n            t.tb_frame",
        "",
    ),
    "an alias of a member": (
        "from enum import Enum\nclass E(Enum):\n    A = 1\n---\n"
        "E.A._add_alias_('__array_interface__')",
        "",
    ),
    "an array's memory freed under a view": (
        NUMPY + "x = np.zeros(9999)\ny = x[:]\nx.resize((1,), refcheck=False)",
        "the attribute resize",
    ),
    "an array's memory freed by a function": (
        NUMPY + "np.ndarray.resize(np.zeros(9), (1,), refcheck=False)",
        "resize",
    ),
    "strides beyond an array": (
        NUMPY + "np.ndarray((4,), np.float64, np.zeros(4), 0, (4096,))",
        "strides",
    ),
    "strides set": (NUMPY + "x = np.zeros(4)\nx.strides = (4096,)", "strides"),
    "a dtype set": (NUMPY + "x = np.zeros(1, np.int64)\nx.dtype = object", "dtype"),
    "bytes that can be written": (
        NUMPY
        + "x = np.ndarray((8,), np.uint8, b'abcdefgh')\nx.flags['WRITEABLE'] = True",
        "WRITEABLE",
    ),
    "a dtype's subclass": (NUMPY + "class D(np.dtype): ...", "a class D of"),
    "a scalar's subclass": (NUMPY + "class D(np.float32): ...", "a class D of"),
    "a record with objects": (
        NUMPY + "np.zeros(1, np.dtype([('a', 'O')]))",
        "an array of objects",
    ),
    "a record's methods": (
        NUMPY + "np.zeros(1, np.dtype([('a', 'i4')]))[0].setfield",
        "setfield",
    ),
    "a matrix": (NUMPY + "np.r_['r', 1, 2].A", "matrix"),
    "a dtype's metadata": (
        NUMPY + "np.dtype('i4', metadata={'x': 1}).metadata",
        "metadata",
    ),
    "the shared class of namespaces": (
        "import types\n---\ntypes.SimpleNamespace.calls = 1",
        "the attribute calls",
    ),
    "a partial's slot": ("import functools\n---\nfunctools.partial.func", "func"),
    "a manager's method": (
        "import contextlib\n---\ncontextlib.suppress.__init__",
        "__init__",
    ),
    "an injected field": (
        "import dataclasses\n---\n@dataclasses.dataclass\nclass C:\n"
        "    __annotations__ = {'y=print(1)': int}",
        "__annotations__",
    ),
    "a finalizer": ("class C:\n    def __del__(self): ...\n---\nC()", "__del__"),
    "a descriptor": ("class C:\n    def __get__(self, o, k): ...\n---\nC()", "__get__"),
    "a buffer": ("class C:\n    def __buffer__(self, f): ...\n---\nC()", "__buffer__"),
    "other bases": (
        "class C:\n    def __mro_entries__(self, b): ...\n---\nC()",
        "__mro_entries__",
    ),
    "a special name of a class by a loop": (
        "class C:\n    for __reduce__ in [1]: ...\n---\nC()",
        "__reduce__",
    ),
    "an error's notes": ("class E(Exception): ...\n---\nE().__notes__", "__notes__"),
    "an error's method": ("class E(Exception): ...\n---\nE().with_traceback", ""),
    "a native error's object": (
        "try:\n    [].foo\nexcept AttributeError as e:\n    e.obj",
        "obj",
    ),
    "the traceback of a thrown error": (
        "def g():\n    try:\n        yield 1\n    except ValueError as e:\n        yield e\n---\n"
        "x = g()\nnext(x)\nx.throw(ValueError).__traceback__",
        "__traceback__",
    ),
    "a sort's key": (
        "class L(list): ...\n---\nL([a, b]).sort(key=nl.NkiTensor)",
        "",
    ),
    "a random number's generator": (
        "import random\n---\nrandom.choice.__self__",
        "__self__",
    ),
    "a key's object": (
        "import functools\n---\nfunctools.cmp_to_key(lambda p, q: 0)(a).obj",
        "obj",
    ),
    "a cached property's function": (
        "import functools\nclass C:\n    @functools.cached_property\n"
        "    def f(self): ...\n---\nC.f.func",
        "func",
    ),
    "another's class cell": (
        "class C:\n    def f(self):\n        nonlocal __class__\n        __class__ = int\n---\n"
        "C().f()",
        "a special name",
    ),
    "a tensor's protocol": (
        "import collections.abc\n---\nisinstance(a, collections.abc.Sized)",
        "whether an object of NKI is",
    ),
    "a tensor's protocols": (
        "import collections.abc\n---\nisinstance(a, (int, collections.abc.Hashable))",
        "whether an object of NKI is",
    ),
}
_NAMED = {
    "dict(name={})['name']": "",
    "dict.fromkeys([1], {})[1]": "",
    "nl.ndarray((1, 1), dtype=a.dtype, buffer=nl.sbuf, name={}).name": "",
    "functools.partial(dict, name={})()['name']": "import functools\n---\n",
    "list(collections.Counter(name={}).values())[0]": "import collections\n---\n",
    "collections.OrderedDict(name={})['name']": "import collections\n---\n",
}
"""Ways of a text through ``name=``, and the lines before each."""
OBJECTS |= {
    f"a text through {way}": (
        f"{before}len({way.format('str(nl.add)')})",
        "the text of an object",
    )
    for way, before in _NAMED.items()
}

ESCAPES = FRAMES | STORAGE | CLASSES | FUNCTIONS | SYSTEM | TEXTS | OBJECTS | ERRORS
"""All ways, by their names."""
