"""The types of the values that a candidate can hold, and the attributes that each one has for it.

A type that is not listed here, and is not a class of the candidate's own, never reaches a
candidate. Tables of NKI's types are in :mod:`.nki_names`.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import itertools
import re
import types
import typing
from typing import Any

import ml_dtypes
import numpy as np

from difftest.tools.verdict.world.order import RunFrozenSet, RunSet

_NUMBER = "real imag conjugate"
_INTEGER = (
    f"{_NUMBER} numerator denominator bit_length bit_count to_bytes as_integer_ratio"
)
_SEQUENCE = "count index"
_TEXT = (
    "capitalize casefold center count encode endswith expandtabs find index isalnum isalpha "
    "isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper "
    "join ljust lower lstrip partition removeprefix removesuffix replace rfind rindex rjust "
    "rpartition rsplit rstrip split splitlines startswith strip swapcase title translate upper "
    "zfill"
)
_BYTES = (
    "count decode endswith find hex index isalnum join lower lstrip partition removeprefix "
    "removesuffix replace rfind rindex rpartition rsplit rstrip split startswith strip upper"
)
_SET = "copy difference intersection isdisjoint issubset issuperset symmetric_difference union"
_MUTABLE_SET = (
    f"{_SET} add clear difference_update discard intersection_update pop remove "
    "symmetric_difference_update update"
)
_LIST = "append clear copy count extend index insert pop remove reverse sort"
_DICT = "clear copy get items keys pop popitem setdefault update values"
_ARRAY = (
    "T all any argmax argmin argpartition argsort astype choose clip compress conj conjugate copy "
    "cumprod cumsum diagonal dot dtype fill flags flat flatten imag item itemsize max mean min "
    "nbytes ndim nonzero partition prod put ravel real repeat reshape round searchsorted "
    "shape size sort squeeze std strides sum swapaxes take tobytes tolist trace transpose var view"
)
"""Attributes of arrays and scalars: no files, pointers or owners of memory.

``resize`` is missing: with ``refcheck=False`` it frees memory that a view still has."""
_DTYPE = (
    "alignment byteorder char itemsize kind name names num shape str type newbyteorder"
)

LRU_CACHE: type = type(functools.cache(len))
"""The type of a function that ``functools.lru_cache`` made."""

ATTRIBUTES: dict[type, str] = {
    object: "",
    bool: _INTEGER,
    int: _INTEGER,
    float: f"{_NUMBER} as_integer_ratio hex is_integer",
    complex: _NUMBER,
    str: _TEXT,
    bytes: _BYTES,
    type(None): "",
    type(...): "",
    type(NotImplemented): "",
    tuple: _SEQUENCE,
    list: _LIST,
    dict: _DICT,
    set: _MUTABLE_SET,
    frozenset: _SET,
    RunSet: _MUTABLE_SET,
    RunFrozenSet: _SET,
    slice: "indices start step stop",
    range: f"{_SEQUENCE} start step stop",
    types.GeneratorType: "close send throw",
    types.MappingProxyType: "copy get items keys values",
    type({}.keys()): "isdisjoint mapping",
    type({}.values()): "mapping",
    type({}.items()): "isdisjoint mapping",
    property: "getter setter deleter",
    staticmethod: "",
    classmethod: "",
    super: "",
    map: "",
    filter: "",
    zip: "",
    enumerate: "",
    reversed: "",
    functools.cached_property: "",
    LRU_CACHE: "cache_clear cache_info",
    functools.cmp_to_key(lambda one, other: 0).__class__: "",
    functools.lru_cache(lambda: 0)
    .cache_info()
    .__class__: "currsize hits maxsize misses",
    collections.deque: (
        "append appendleft clear copy count extend extendleft index insert maxlen pop popleft "
        "remove reverse rotate"
    ),
    collections.defaultdict: f"{_DICT} default_factory",
    collections.OrderedDict: f"{_DICT} move_to_end",
    collections.Counter: f"{_DICT} elements most_common subtract total",
    collections.ChainMap: f"{_DICT} maps new_child parents",
    dataclasses.Field: "",
    dataclasses.InitVar: "",
    enum.auto: "",
    re.Pattern: (
        "findall finditer flags fullmatch groupindex groups match pattern search split sub subn"
    ),
    re.Match: "end expand group groupdict groups lastgroup lastindex pos span start string",
    np.ndarray: _ARRAY,
    np.dtype: _DTYPE,
    np.ufunc: "accumulate identity nargs nin nout outer reduce reduceat",
    np.finfo: "bits dtype eps max min smallest_normal smallest_subnormal tiny resolution",
    np.iinfo: "bits dtype max min",
    ml_dtypes.finfo: "bits dtype eps max min smallest_normal smallest_subnormal tiny",
    ml_dtypes.iinfo: "bits dtype max min",
    type(np.s_): "",
    type(np.mgrid): "",
    type(np.ogrid): "",
    type(np.r_): "",
    type(np.c_): "",
    np.ndenumerate: "",
    np.ndindex: "",
    type(np.zeros(1).flat): "coords index",
    type(np.zeros(1).flags): "",
    types.GenericAlias: "",
    types.UnionType: "",
    typing.ForwardRef: "",
    typing.TypeVar: "",
    typing.ParamSpec: "args kwargs",
    **{
        getattr(typing, name): ""
        for name in ("TypeAliasType", "TypeVarTuple")
        if hasattr(typing, name)
    },
    typing.NewType: "",
}
"""The public attributes of types of Python and NumPy that a candidate can hold."""


def _iterators() -> list[type]:
    """Return the types of iterators; they have no attributes."""
    values: list[Any] = [(), [], {}, {}.values(), {}.items(), set(), "", "\xe9", b""]
    values += [range(1), range(2**70), collections.deque(), np.zeros(1).flat]
    kinds = {type(iter(value)) for value in values}
    orders: list[Any] = [[], {}, {}.values(), {}.items(), range(1)]
    kinds |= {type(reversed(order)) for order in orders}
    kinds |= {type(iter(int, 1)), type(re.finditer("", ""))}
    names = [name for name in vars(itertools) if not name.startswith("_")]
    kinds |= {
        kind for kind in map(vars(itertools).get, names) if isinstance(kind, type)
    }
    kinds |= {type(item) for item in [next(itertools.groupby([1]))[1]]}
    return sorted(kinds, key=lambda kind: kind.__name__)


ATTRIBUTES |= dict.fromkeys(_iterators(), "")


def _typing_forms() -> set[type]:
    """Return the types of the forms of :mod:`typing`, plain and with a parameter."""
    names = ("Any", "Callable", "List", "Literal", "Optional", "Tuple", "Union")
    forms = [getattr(typing, name) for name in names]
    forms += [typing.Callable[[int], int], typing.Annotated[int, 1], typing.Literal[1]]
    forms += [getattr(typing, name)[int] for name in ("List", "Optional", "Union")]
    forms += [getattr(typing, "Union")[int, str]]  # noqa: B009
    return {type(form) for form in forms if not isinstance(form, type)}


ATTRIBUTES |= dict.fromkeys(_typing_forms(), "")
SCALARS = tuple(
    {
        *(kind for kind in np.sctypeDict.values() if not issubclass(kind, np.flexible)),
        *(np.dtype(name).type for name in ("bool", "float32")),
        *(
            kind
            for kind in vars(ml_dtypes).values()
            if isinstance(kind, type) and issubclass(kind, np.generic)
        ),
    }
    - {np.object_, np.void}
)
"""The types of scalars of NumPy and ml_dtypes."""
NARROW = frozenset(kind for kind in SCALARS if kind.__module__ == "ml_dtypes")
"""The types of scalars of ml_dtypes."""
ATTRIBUTES |= dict.fromkeys(SCALARS, _ARRAY)
_DTYPES: tuple[Any, ...] = (*SCALARS, "V1", "S1", "U1")
ATTRIBUTES |= {type(np.dtype(kind)): _DTYPE for kind in _DTYPES}

NAMES: dict[type, frozenset[str]] = {
    kind: frozenset(names.split()) for kind, names in ATTRIBUTES.items()
}
"""The attributes of each type, as sets."""

CLASS_ATTRIBUTES: dict[type, frozenset[str]] = {
    int: frozenset({"from_bytes"}),
    float: frozenset({"fromhex"}),
    bytes: frozenset({"fromhex"}),
    dict: frozenset({"fromkeys"}),
    collections.OrderedDict: frozenset({"fromkeys"}),
    itertools.chain: frozenset({"from_iterable"}),
    str: frozenset({"maketrans"}),
}
"""Class methods of listed classes. All methods of a listed type are there as well."""

BASES = (
    object,
    dict,
    list,
    RunSet,
    collections.OrderedDict,
    abc.ABC,
    typing.Generic,
)
"""Classes from which a candidate's class may derive; exceptions and NKI's objects are others."""
VALUE_BASES = (str, int, float, tuple)
"""Classes from which an enumeration of a candidate may derive as well."""
