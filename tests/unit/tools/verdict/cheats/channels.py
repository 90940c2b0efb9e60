"""Questions whose answers are others where a kernel is judged, and values that C code hands over.

Each has a piece of the refusal, or of Python's own error, as in :mod:`.escapes`.
"""

OPAQUE = "the text of an object"
NO_NUMBER = "what is no number"
NUMPY = "import numpy as np\n---\n"
TEXTS = {
    "str by a keyword": ("len(str(object=nl.add))", OPAQUE),
    "str of a function with an encoding": ("len(str(nl.add, 'utf-8'))", "bytes object"),
    "NumPy's remainder of a text": (
        NUMPY + "raise ValueError(f'leak {len(np.mod(\"%s\", nl.add))}')",
        NO_NUMBER,
    ),
    "a reduction by a remainder": (
        NUMPY + "raise ValueError(f'leak {len(np.mod.reduce([\"%s\", nl.add]))}')",
        NO_NUMBER,
    ),
    "a reduction by a bound method": (
        NUMPY
        + "f = np.mod.reduce\nraise ValueError(f'leak {len(f([\"%s\", nl.add]))}')",
        NO_NUMBER,
    ),
    "a reduction by methodcaller": (
        f"import operator\n{NUMPY}f = operator.methodcaller('reduce', ['%s', nl.add])\n"
        "raise ValueError(f'leak {len(f(np.mod))}')",
        NO_NUMBER,
    ),
    "NumPy's divisor of a mapping": (
        "import numpy as np\nSEEN = []\nclass D:\n    def __getitem__(self, k): return nl.add\n"
        "    def __mod__(self, other): SEEN.append(other)\n---\nnp.gcd('%(k)s', D())",
        NO_NUMBER,
    ),
    "the file of an OSError": ("len(str(OSError(2, 'x', nl.add)))", OPAQUE),
    "the file of an own OSError": (
        "class E(OSError): ...\n---\ne = E(2, 'x', 'y')\ne.filename = nl.add\nlen(str(e))",
        OPAQUE,
    ),
    "a tensor as a member of texts": (
        "from enum import Enum\n---\nclass E(str, Enum):\n    A = a\nlen(E.A)",
        OPAQUE,
    ),
    "an object as a new member of texts": (
        "from enum import Enum\n---\nclass E(str, Enum):\n"
        "    def __new__(cls, n):\n        return str.__new__(cls, [a][n])\n"
        "    A = 0\nlen(E.A)",
        OPAQUE,
    ),
    "an object as a new member of texts, by super": (
        "from enum import Enum\n---\nclass E(str, Enum):\n"
        "    def __new__(cls, n):\n        return super().__new__(cls, [a][n])\n"
        "    A = 0\nlen(E.A)",
        OPAQUE,
    ),
    "a mark of the guards as a note": (
        "try:\n    [].x\nexcept AttributeError as e:\n    e.add_note('\\u00b7own')",
        "a mark of the guards"
        if hasattr(ValueError, "add_note")
        else "no attribute 'add_note'",
    ),
}
"""C code makes a plain text of an object."""
SEQUENCE = "    def __len__(self): return 1\n    def __getitem__(self, k): return [nl.add][k]\n"
RAW = {
    "a property of a function of NumPy": (
        "import numpy as np, dataclasses\n@dataclasses.dataclass\nclass C:\n    p: int = 0\n"
        f"{SEQUENCE}---\nc = C()\nC.p = property(np.array)\n"
        "raise ValueError(f'leak {dataclasses.asdict(c)[\"p\"].dtype}')",
        "an array of objects",
    ),
    "a property's other getter": (
        "import numpy as np, dataclasses\n@dataclasses.dataclass\nclass C:\n    p: int = 0\n"
        f"{SEQUENCE}---\nc = C()\nC.p = property(lambda self: 0).getter(np.array)\n"
        "raise ValueError(f'leak {dataclasses.asdict(c)[\"p\"].dtype}')",
        "an array of objects",
    ),
    "a property in a pattern": (
        f"import numpy as np\nclass C:\n    p = property(np.array)\n{SEQUENCE}---\n"
        "match C():\n    case C(p=x):\n        raise ValueError(f'leak {x.dtype}')",
        "an array of objects",
    ),
    "an inherited method in a pattern": (
        "class E(ValueError): ...\nclass L(list): ...\n---\nmatch E(1):\n"
        "    case E(with_traceback=f) if L([None]).sort(key=f) is None:\n"
        "        raise ValueError('leak')",
        "a value of type builtin_function",
    ),
    "an inherited method by __match_args__": (
        "class E(ValueError):\n    __match_args__ = ('with_traceback',)\nclass L(list): ...\n---\n"
        "match E(1):\n    case E(f):\n        L([None]).sort(key=f)\n"
        "        raise ValueError('leak')",
        "a value of type builtin_function",
    ),
    "__match_args__ with a mark of the guards": (
        "class C:\n    __match_args__ = ('\\u00b7own',)\n---\nC()",
        "__match_args__",
    ),
    "__match_args__ of an own kind of tuple": (
        "import collections\nP = collections.namedtuple('P', 'x')\nclass C:\n"
        "    __match_args__ = P('__dict__')\n---\nC()",
        "__match_args__",
    ),
    "a metaclass by a text of an own class": (
        "from enum import Enum\nHITS = []\nclass S(str, Enum):\n    metaclass = 'metaclass'\n"
        "    def __eq__(self, other):\n        HITS.append(other)\n        return len(HITS) > 1\n"
        "    def __hash__(self): return super().__hash__()\n---\n"
        "class X(**{S.metaclass: lambda *args: SEEN.append(args)}): ...\n"
        "raise ValueError('leak')",
        "the name of an argument",
    ),
}
"""Python or C code hands over a value that no guard has seen."""
ASKED = {
    "the text of its file": ("'/' in __file__", OPAQUE),
    "the text of its name": ("__name__.startswith('k')", OPAQUE),
    "its name compared": ("assert __name__ == 'candidate'", OPAQUE),
    "the type of a function": ("type(print) is type(len)", "the type of a function"),
    "the type of a function asked": (
        "import functools\ndef f(): ...\n---\nisinstance(functools.wraps, type(f))",
        "the type of a function",
    ),
    "the level of a logger": (
        "import logging\n---\nlogging.getLogger().level == 30",
        "of a logger",
    ),
    "warnings recorded": (
        "import warnings\n---\nwith warnings.catch_warnings(record=True) as w: len(w)",
        "record=True",
    ),
    "warnings as errors": (
        "import warnings\n---\nwarnings.simplefilter('error')",
        "warnings that are errors",
    ),
    "an option that is missing": (
        "import dataclasses\n@dataclasses.dataclass\nclass C: ...\n---\ntry:\n"
        "    dataclasses.asdict(C(), dict_factory=dict)\nexcept TypeError:\n    pass",
        "with such arguments",
    ),
    "the names of an object": ("class C: ...\n---\ndir(C())", "dir()"),
    "a default that is missing": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    x: int\n---\n"
        "dataclasses.fields(C)[0].default is None",
        "the attribute default",
    ),
}
"""A kernel asks whether it is judged."""
USES_OF_ABSENT = {
    "compared by is": "os.cpu_count is os.cpu_count",
    "asked for its type": "type(os.getpid) is type(os.path)",
    "in an f-string": "f'{os.cpu_count} x'",
    "by a percent sign": "'%s' % os.cpu_count",
    "by a percent sign of a tuple": "'%s %d' % (os.cpu_count, 1)",
    "in a format": "len('{}'.format(os.cpu_count))",
    "as a class": "isinstance(1, numbers.Number)",
}
ASKED |= {
    f"an absent value {name}": (
        f"import numbers\nimport os\ntry:\n    X = {use}\nexcept TypeError:\n    X = 1\n---\n"
        "raise ValueError(f'leak {X}')",
        "X, which needs ",
    )
    for name, use in USES_OF_ABSENT.items()
} | {
    "an absent class of errors": (
        "import builtins\nX = 0\ntry:\n    try:\n        raise ValueError\n"
        "    except builtins.Exception:\n        X = 1\nexcept ValueError:\n    X = 2\n---\n"
        "raise ValueError(f'leak {X}')",
        "X, which needs builtins.Exception",
    ),
}
CHANNELS = TEXTS | RAW | ASKED
"""All ways, by their names."""
