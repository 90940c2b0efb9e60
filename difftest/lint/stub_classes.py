"""The text of a declaration in a stub: a function, an enumeration, or a class."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

from difftest.simulator.frontend.classic.tensor import Tensor

_OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"),
    *("lshift", "rshift", "lt", "le", "gt", "ge", "neg", "invert"),
)
_FORMS = ("__{}__", "__r{}__", "__i{}__")
"""Of an operator: as it is, from the right, and with an assignment."""
_DOCUMENTED = json.loads((Path(__file__).parent / "data/stubs.json").read_text(encoding="utf-8"))
_MEMBERS, _RETURNED, _BASES = (_DOCUMENTED[one] for one in ("members", "returned", "bases"))
"""What AWS documents of each class: attributes with their types, and methods by name; what methods
return; classes above it. The simulator's classes have more, which is no kernel's business.
"""
_SAME = frozenset({"NkiTensor", "NkiGrid"})
"""Classes whose views are of the class itself."""


def annotation_of(default: object) -> str:
    """The type of a parameter, from a default that says it."""
    return {bool: "bool", str: "str"}.get(type(default), "Any")


def doc_of(value: object, indent: str = "    ") -> str:
    """The first line of a docstring, as a docstring."""
    line = (inspect.getdoc(value) or "").partition("\n")[0].replace("\\", "\\\\")
    return f'\n{indent}"""{line}"""' if line else ""


def enum_text(name: str, kind: type[Enum]) -> str:
    """An enumeration with its members."""
    base = "IntEnum" if issubclass(kind, IntEnum) else "Enum"
    members = [f"    {one} = {member.value!r}\n" for one, member in kind.__members__.items()]
    return f"class {name}({base}):\n{''.join(members)}"


def function_text(
    name: str,
    function: Callable[..., Any],
    type_of: Callable[[Any], str],
    returned: str,
    ended: str | None = None,
) -> str:
    """A function with its signature; ``type_of`` says a parameter's type by its default."""
    mark = f"@deprecated({ended!r})\n" if ended else ""
    listed = _parameters(inspect.signature(function).parameters.values(), type_of)
    return f"{mark}def {name}({listed}) -> {returned}:{doc_of(function)}\n    ...\n"


def class_text(name: str, value: Any) -> str:
    """A class, or the class of an object, with what is documented of it."""
    owner = Tensor if name == "tensor" else value
    if name in ("_TileSize", "_TileSizes"):
        members = [f"    {one}: int\n" for one in sorted(dir(value))]
    else:
        members = [_member(name, owner, one) for one in _MEMBERS[name]]
    base = f"({_BASES[name]})" if name in _BASES else ""
    doc = doc_of(owner if isinstance(owner, type) else type(owner))
    return f"class {name}{base}:{doc}\n{''.join(members) or '    ...' + chr(10)}"


def _member(kind: str, owner: Any, member: str) -> str:
    if ":" in member:
        return _attribute(owner, *member.split(": "))
    if member == "operators":
        return "".join(f"    {_protocol(kind, one)}\n" for one in _operators(owner))
    if member.startswith("__") and member != "__init__":
        return f"    {_protocol(kind, member)}\n"
    method = getattr(owner, member)
    parameters = list(inspect.signature(method).parameters.values())
    if isinstance(owner, type):
        parameters = parameters[1:]
    listed = ", ".join(filter(None, ["self", _parameters(parameters, annotation_of)]))
    if member == "__init__":
        return f"    def __init__({listed}) -> None: ...\n"
    returned = _RETURNED.get(member, _view_of(kind))
    return f"    def {member}({listed}) -> {returned}:{doc_of(method, ' ' * 8)}\n        ...\n"


def _attribute(owner: Any, name: str, kind: str) -> str:
    if isinstance(inspect.getattr_static(owner, name, None), property):
        return f"    @property\n    def {name}(self) -> {kind}: ...\n"
    return f"    {name}: {kind}\n"


def _operators(owner: type) -> Iterator[str]:
    """The operators that a class has, and ``object`` has not."""
    for form in _FORMS:
        for one in map(form.format, _OPERATORS):
            if any(one in vars(base) for base in owner.__mro__[:-1]):
                yield one


def _view_of(kind: str) -> str:
    return kind if kind in _SAME else "Any"


def _protocol(kind: str, name: str) -> str:
    """What brackets and operators take and return."""
    returned = _view_of(kind)
    return {
        "__getitem__": f"def __getitem__(self, key: Any, /) -> {returned}: ...",
        "__setitem__": "def __setitem__(self, key: Any, value: Any, /) -> None: ...",
        "__class_getitem__": "def __class_getitem__(cls, shape: Any, /) -> Any: ...",
        "__len__": "def __len__(self) -> int: ...",
    }.get(
        name,
        f"def {name}(self) -> Any: ..."
        if name in ("__neg__", "__invert__", "__iter__")
        else f"def {name}(self, other: Any, /) -> Any: ...",
    )


def _parameters(parameters: Iterable[inspect.Parameter], type_of: Callable[[Any], str]) -> str:
    return ", ".join(_listed(list(parameters), type_of))


def _listed(parameters: list[inspect.Parameter], type_of: Callable[[Any], str]) -> Iterator[str]:
    """Each parameter as a signature has it, with the marks ``/`` and ``*``."""
    kinds = inspect.Parameter
    marked = any(one.kind is kinds.VAR_POSITIONAL for one in parameters)
    for number, one in enumerate(parameters):
        if one.kind is kinds.KEYWORD_ONLY and not marked:
            marked = True
            yield "*"
        yield _parameter(one, type_of)
        following = parameters[number + 1 :][:1]
        if one.kind is kinds.POSITIONAL_ONLY and (
            not following or following[0].kind is not kinds.POSITIONAL_ONLY
        ):
            yield "/"


def _parameter(one: inspect.Parameter, type_of: Callable[[Any], str]) -> str:
    stars = "*" * (one.kind is one.VAR_POSITIONAL) + "**" * (one.kind is one.VAR_KEYWORD)
    if one.default is one.empty:
        return f"{stars}{one.name}: Any"
    kind = "str | None" if one.name == "name" else type_of(one.default)
    return f"{one.name}: {kind} = {_default(one.default)}"


def _default(value: object) -> str:
    simple = value is None or isinstance(value, (bool, int, float, str))
    return repr(value) if simple and not isinstance(value, Enum) else "..."
