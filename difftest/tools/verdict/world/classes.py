"""Class statements of a candidate: bases, special methods, enumerations and dataclasses."""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from difftest.simulator.frontend.nki.constants import NKIObject
from difftest.tools.verdict.world import texts
from difftest.tools.verdict.world.attributes import ENUM_CLASS
from difftest.tools.verdict.world.held import CLASSES, HELD, READERS, Facade, kept
from difftest.tools.verdict.world.instances import TEXT
from difftest.tools.verdict.world.kinds import BASES, LRU_CACHE, VALUE_BASES
from difftest.tools.verdict.world.order import RunSet
from difftest.tools.verdict.world.refusal import (
    INTERNAL,
    STATE,
    Absent,
    exact_text,
    is_special,
    need,
    refusal,
    unavailable,
)
from difftest.tools.verdict.world.texts import (
    OWN,
    OWN_METACLASSES,
    SHARED_ENUMERATIONS,
    SHOWS,
    is_own_class,
    is_own_function,
)


def _special(names: str) -> frozenset[str]:
    return frozenset(f"__{name}__" for name in names.split())


METHODS = _special(
    "abs add and bool call class_getitem contains delitem divmod enter eq exit float floordiv "
    "format ge getitem gt hash iadd iand imul index init int invert isub iter le len lshift lt "
    "matmul missing mod mul ne neg new next or pos post_init pow radd rand "
    "repr reversed rfloordiv rlshift rmatmul rmod rmul ror round rpow rrshift rshift rsub "
    "rtruediv rxor setitem str sub truediv xor"
)
"""Special methods that a class of a candidate may define."""
_MADE = (
    METHODS
    | _special(
        "match_args name slots abstractmethods annotate annotate_func annotations "
        "annotations_cache classcell classdictcell callable_proto_members_only closed "
        "conditional_annotations copy dataclass_fields dataclass_params delattr dict "
        "doc extra_items firstlineno getattr getnewargs getnewargs_ex getstate init_subclass "
        "module mutable_keys new_member non_callable_proto_members optional_keys "
        "orig_bases parameters protocol_attrs qualname readonly_keys reduce reduce_ex "
        "replace required_keys setattr setstate static_attributes subclasshook total "
        "type_params weakref"
    )
    | {"_abc_impl", "_is_protocol", "_is_runtime_protocol"}
)
"""Special names of a class: a candidate's methods, and those that Python itself puts there."""


class OwnEnumType(enum.EnumMeta):
    """The type of a candidate's enumerations: a call looks a member up, and makes no class."""

    def __call__(cls, value: Any, *more: Any, **options: Any) -> Any:
        if more or options:
            raise refusal("an enumeration made by a call", "write a class statement")
        return super().__call__(value)

    def __new__(
        cls, name: str, kinds: tuple[type, ...], names: Any, **options: Any
    ) -> Any:
        """Make an enumeration; one of texts would turn an opaque value into a plain text."""
        values = [item for key, item in dict.items(names) if not is_special(key)]
        if texts.has_opaque(values) or (
            any(issubclass(kind, str) for kind in kinds)
            and not all(map(_is_text_or_method, values))
        ):
            raise texts.opaque_refusal()
        return super().__new__(cls, name, kinds, names, **options)


def _is_text_or_method(value: Any) -> bool:
    """Return whether a name of an enumeration of texts has a method, or a plain text."""
    return hasattr(type(value), "__get__") or texts.is_transparent(value)


OwnEnum = types.new_class("Enum", (enum.Enum,), {"metaclass": OwnEnumType})
OwnFlag = types.new_class("Flag", (enum.Flag,), {"metaclass": OwnEnumType})
OwnIntEnum = types.new_class("IntEnum", (enum.IntEnum,), {"metaclass": OwnEnumType})
OwnIntFlag = types.new_class("IntFlag", (enum.IntFlag,), {"metaclass": OwnEnumType})
ENUMERATIONS: dict[str, type] = {
    "Enum": OwnEnum,
    "Flag": OwnFlag,
    "IntEnum": OwnIntEnum,
    "IntFlag": OwnIntFlag,
}
if hasattr(enum, "StrEnum"):
    ENUMERATIONS["StrEnum"] = types.new_class(
        "StrEnum", (enum.StrEnum,), {"metaclass": OwnEnumType}
    )
CLASSES |= set(ENUMERATIONS.values())
SHARED_ENUMERATIONS.update(ENUMERATIONS.values())
OWN_METACLASSES.add(OwnEnumType)
_METACLASSES = (
    type,
    OwnEnumType,
    type(typing.Protocol),
    type(collections.abc.Sized),
    type(typing.Generic),
)
_GENERATORS: tuple[Any, ...] = (typing.NamedTuple, typing.Protocol, typing.TypedDict)


def bases(name: str, *wanted: Any) -> tuple[Any, ...]:
    """Return the bases of a class statement: the guard of ``class name(*wanted)``."""
    found = []
    has_enumeration = any(_is_enumeration(base) for base in wanted)
    for base in wanted:
        if type(base) is Absent:
            need(base)
        elif base is TEXT:
            base = str
        elif type(base) is Facade and base in _GENERATED:
            base = _GENERATED[base]
        elif base is set or getattr(base, "__origin__", None) is set:
            base = RunSet
        if not _is_base(base, has_enumeration=has_enumeration):
            raise refusal(f"a class {name} of {base!r:.60}", "derive it from no class")
        found.append(base)
    return tuple(found)


def _is_enumeration(base: Any) -> bool:
    return isinstance(base, OwnEnumType)


def _is_base(base: Any, *, has_enumeration: bool) -> bool:
    if base in _GENERATORS or isinstance(base, _ALIASES):
        return True
    if not isinstance(base, type):
        return False
    if has_enumeration and base in VALUE_BASES:
        return True
    return is_own_class(base) or _is_listed_base(base)


def _is_listed_base(base: type) -> bool:
    """Return whether every class of a candidate may derive from a class of others."""
    is_abstract = base.__module__ in ("collections.abc", "typing", "abc")
    is_error = issubclass(base, Exception) and base in CLASSES
    is_listed = base in (*BASES, NKIObject) or _is_enumeration(base)
    return is_abstract or is_error or is_listed


_ALIASES = (
    types.GenericAlias,
    type(getattr(typing, "List")[int]),  # noqa: B009
    type(typing.Generic[typing.TypeVar("_T")]),  # type: ignore[index]
)


ABC_META = Facade("ABCMeta", lambda *_: unavailable("ABCMeta()"))
"""``abc.ABCMeta`` of a candidate: the metaclass of a class statement only."""


def class_options(**options: Any) -> dict[str, Any]:
    """Return the keywords of a class statement; another metaclass than ABCMeta is refused."""
    found = options.get("metaclass")
    if found is ABC_META:
        options["metaclass"] = abc.ABCMeta
    elif found is not None:
        raise refusal("a metaclass", "leave it out")
    allowed = {"total", "metaclass", "boundary"}
    if options.keys() - allowed:
        raise refusal(f"a class with {', '.join(options)}", "leave them out")
    return options


def made(kind: Any) -> Any:
    """Register the class of a class statement; refuse special names that it may not define."""
    if not isinstance(kind, type):
        return kept(kind)
    if not isinstance(kind, _METACLASSES):
        raise refusal(f"a class of type {type(kind).__name__}")
    for name in vars(kind):
        if is_special(name) and name not in _MADE:
            raise refusal(f"the special method {name} of a class", "use a plain method")
    _check_patterns(vars(kind).get("__match_args__", ()))
    type.__setattr__(kind, OWN, True)
    return kind


def _check_patterns(names: Any) -> None:
    """Refuse ``__match_args__`` that name special attributes: Python itself reads them."""
    if type(names) is not tuple:
        raise refusal("__match_args__ that is no tuple", "use a tuple of names")
    for name in names:
        plain = exact_text(name, "a name of __match_args__")
        if is_special(plain) or plain.startswith(INTERNAL):
            raise refusal(f"{name} in __match_args__")


def made_with(*names: str) -> Callable[[Any], Any]:
    """Return :func:`made` for a class statement that binds these special names.

    C code calls a special method without guards, so it must be the candidate's own function.
    """

    def check(kind: Any) -> Any:
        values = dict(vars(kind)) if isinstance(kind, type) else {}
        if _is_enumeration(kind):  # which keeps an own __new__ under another name
            values["__new__"] = values.get("__new_member__")
        for name in names:
            value = values.get(name)
            function = getattr(value, "__func__", value)
            if not (value is None or is_own_function(function) or _is_guarded(value)):
                what = f"the special method {name} of a class, which is no function"
                raise refusal(what, "use def")
        return made(kind)

    return check


def _is_guarded(value: Any) -> bool:
    """Return whether the call of a value is guarded, whoever calls it."""
    return type(value) in (Facade, LRU_CACHE)


def _own(kind: Any, what: str) -> type:
    if not (isinstance(kind, type) and is_own_class(kind)):
        raise refusal(f"{what} of a class that is not the candidate's own")
    return kind


def dataclass(kind: Any = None, /, **options: Any) -> Any:
    """Return an own class as a dataclass; its text comes from the world's guards."""
    if kind is None:
        return Facade("dataclass", functools.partial(dataclass, **options))
    if type(kind) is Absent:
        return kind
    own = _own(kind, "a dataclass")
    shows = options.pop("repr", True) and "__repr__" not in vars(own)
    with _module_of(own):
        result: Any = dataclasses.dataclass(own, repr=False, **options)
    if shows:
        type.__setattr__(result, SHOWS, True)
    return result


class FieldName:
    """A field of a dataclass, as ``dataclasses.fields`` gives it to a candidate."""

    __slots__ = ("default", "name", "type")

    def __init__(self, field: Any) -> None:
        self.name = field.name
        self.type = kept(field.type)
        if field.default is not dataclasses.MISSING:
            self.default = kept(field.default)


HELD.add(FieldName)


def _read_field(value: FieldName, name: str) -> Any:
    if name in FieldName.__slots__ and hasattr(value, name):
        return getattr(value, name)
    return unavailable(f"the attribute {name} of a field")


READERS[FieldName] = _read_field


def fields(value: Any) -> tuple[FieldName, ...]:
    """Return the fields of an own dataclass or of its object."""
    own = _own(value if isinstance(value, type) else type(value), "the fields")
    return tuple(map(FieldName, dataclasses.fields(own)))


def as_dict(value: Any) -> Any:
    """Return an own dataclass object as a dictionary, as ``dataclasses.asdict`` does."""
    return _plain(value, dict)


def as_tuple(value: Any) -> Any:
    """Return an own dataclass object as a tuple, as ``dataclasses.astuple`` does."""
    return _plain(value, lambda pairs: tuple(item for _, item in pairs))


def _plain(value: Any, make: Callable[[Any], Any]) -> Any:
    if is_own_class(type(value)) and dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return make([(name, _plain(getattr(value, name), make)) for name in names])
    if type(value) in (list, tuple):
        return type(value)(_plain(item, make) for item in value)
    if type(value) is dict:
        return {name: _plain(item, make) for name, item in value.items()}
    return value


def replace(value: Any, /, **changes: Any) -> Any:
    """Return ``dataclasses.replace(value, **changes)`` of an own object."""
    _own(type(value), "replace")
    return dataclasses.replace(value, **changes)


def is_dataclass(value: Any) -> bool:
    """Return whether a value is an own dataclass or an object of one."""
    kind = value if isinstance(value, type) else type(value)
    return is_own_class(kind) and dataclasses.is_dataclass(kind)


def namedtuple(name: str, names: Any, **options: Any) -> Any:
    """Return ``collections.namedtuple(name, names, ...)`` as an own class."""
    if options.keys() - {"rename", "defaults"}:
        return unavailable("namedtuple with a module")
    return made(collections.namedtuple(name, names, **options))


def typed_tuple(name: str, pairs: Any = ()) -> Any:
    """Return ``typing.NamedTuple(name, pairs)`` as an own class."""
    return made(typing.NamedTuple(name, pairs))


def typed_dict(name: str, pairs: Any, *, total: bool = True) -> Any:
    """Return ``typing.TypedDict(name, pairs)`` as an own class."""
    make: Any = typing.TypedDict
    return made(make(name, pairs, total=total))


NAMED_TUPLE = Facade("NamedTuple", typed_tuple)
TYPED_DICT = Facade("TypedDict", typed_dict)
_GENERATED = {NAMED_TUPLE: typing.NamedTuple, TYPED_DICT: typing.TypedDict}
"""``typing.NamedTuple`` and ``TypedDict`` of a candidate: bases, and functions; Python's own."""
ENUM_CLASS |= {
    kind: frozenset({"_value2member_map_", "_member_map_", "_member_names_"})
    for kind in ENUMERATIONS.values()
}


_REAL = {"typing": typing, "dataclasses": dataclasses}


@contextlib.contextmanager
def _module_of(kind: type) -> Iterator[None]:
    """Put the module of a class into ``sys.modules``: dataclasses read annotations there."""
    module = types.ModuleType(kind.__module__)
    names = vars(STATE.modules.get(kind.__module__, module))
    for name, value in names.items():
        is_library = isinstance(value, types.ModuleType)
        real = _REAL.get(value.__name__) if is_library else None
        vars(module)[name] = value if real is None else real
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        del sys.modules[module.__name__]
        if before is not None:
            sys.modules[module.__name__] = before
