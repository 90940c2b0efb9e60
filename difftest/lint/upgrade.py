"""Rules of names and arguments: which SDK has them, since when, and what to write instead.

They follow from the tables of the dialects: what the simulator's modules have, and the levels of
:mod:`difftest.simulator.frontend.nki.levels`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from difftest.lint.rule import Group, Refusal, rule
from difftest.lint.sdk import Frontend
from difftest.lint.source import Spot

_TODAYS = frozenset({Frontend.PARSER, Frontend.TRACER})
_LEVELS = ("0.2", "0.3", "0.4", "0.5", "0.6", "0.7")


@cache
def _functions(is_classic: bool) -> Mapping[str, Mapping[str, Any]]:
    """By module, the names of a dialect, those of all levels together."""
    if is_classic:
        from difftest.simulator.frontend.classic import isa as classic_isa
        from difftest.simulator.frontend.classic import language as classic_language

        modules = {"nl": classic_language, "nisa": classic_isa}
        return {
            short: {name: getattr(module, name) for name in module.__all__}
            for short, module in modules.items()
        }
    from difftest.simulator.frontend.nki import collectives, isa, language

    return {"nl": language.NAMES, "nisa": isa.NAMES, "ncc": collectives.NAMES}


@cache
def _lifetimes() -> Mapping[str, tuple[str, str | None, str]]:
    """By name, the level since which it exists, that in which it ended, and what to do instead."""
    from difftest.simulator.frontend.nki.levels import LIFETIMES

    return LIFETIMES


@cache
def _without_successor() -> Mapping[str, tuple[str, str]]:
    """Classic names that today's dialect does not have: the reason and the remedy."""
    from difftest.migration.rules import GONE

    return GONE


def _is_nl_or_nisa(name: str | None) -> bool:
    return name is not None and name.partition(".")[0] in ("nl", "nisa", "ncc") and "." in name


@rule(
    "NKU301",
    group=Group.UPGRADE,
    nodes=(ast.Import, ast.ImportFrom),
    frontends=_TODAYS,
    since="2.29",
)
def _classic_import(node: ast.Import | ast.ImportFrom, at: Spot) -> Iterator[Refusal]:
    if node is at.source.names.first_classic:
        yield node, f"{ast.unparse(node)} is of the classic dialect"


@rule("NKU302", group=Group.UPGRADE, nodes=(ast.Attribute, ast.Name), frontends=_TODAYS)
def _ended_name(node: ast.expr, at: Spot) -> Iterator[Refusal]:
    name = at.name(node)
    if not _is_nl_or_nisa(name):
        return
    assert name is not None
    row = _lifetimes().get(name)
    if row is not None and row[1] is not None and _reached(row[1], at):
        yield node, f"{name} ended with NKI {row[1]} (now: {row[2]})"
    elif at.source.names.has_classic(node) and name in _without_successor():
        reason, remedy = _without_successor()[name]
        yield node, f"{name}: {reason} ({remedy})"


@rule("NKU303", group=Group.UPGRADE, nodes=(ast.Attribute, ast.Name), frontends=_TODAYS)
def _future_name(node: ast.expr, at: Spot) -> Iterator[Refusal]:
    name = at.name(node)
    row = _lifetimes().get(name or "")
    if row is not None and not _reached(row[0], at):
        yield node, f"{name} exists since NKI {row[0]} (until then: {row[2]})"


@rule("NKU304", group=Group.UPGRADE, nodes=(ast.Call,), frontends=_TODAYS)
def _argument(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    name = at.name(node.func)
    for keyword in node.keywords if name else ():
        row = _lifetimes().get(f"{name}({keyword.arg})")
        if row is None:
            continue
        since, ended, instead = row
        if ended is not None and _reached(ended, at):
            yield keyword, f"{name}({keyword.arg}=) ended with NKI {ended} (now: {instead})"
        elif not _reached(since, at):
            text = f"{name}({keyword.arg}=) exists since NKI {since} (until then: {instead})"
            yield keyword, text


@rule("NKU305", group=Group.CORRECTNESS, nodes=(ast.Attribute,))
def _unknown_name(node: ast.Attribute, at: Spot) -> Iterator[Refusal]:
    name = at.name(node)
    if not _is_nl_or_nisa(name):
        return
    assert name is not None
    module, _, rest = name.partition(".")
    known = _functions(at.source.names.has_classic(node)).get(module)
    if known is not None and "." not in rest and rest not in known and name not in _lifetimes():
        yield node, f"{name} is no name of NKI"


@rule("NKU307", group=Group.CORRECTNESS, nodes=(ast.Call,))
def _signature(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    name = at.name(node.func) or ""
    signature = _signature_of(name, at.source.names.has_classic(node.func))
    arguments = [*node.args, *(one.arg for one in node.keywords)]
    if signature is None or any(one is None or isinstance(one, ast.Starred) for one in arguments):
        return
    known = [one for one in node.keywords if f"{name}({one.arg})" not in _lifetimes()]
    try:
        signature.bind(*node.args, **{one.arg: one for one in known if one.arg})
    except TypeError as error:
        yield node, f"{name}{signature}: {error}"


@rule("NKU306", group=Group.UPGRADE, nodes=(ast.Call,), frontends=_TODAYS)
def _mask(node: ast.Call, at: Spot) -> Iterator[Refusal]:
    if not _is_nl_or_nisa(at.name(node.func)):
        return
    for keyword in node.keywords:
        if keyword.arg == "mask":
            yield keyword, f"{at.name(node.func)} got mask="


@cache
def _signature_of(name: str, is_classic: bool) -> inspect.Signature | None:
    """The signature of a function of NKI with the defaults left out; None for what has none."""
    module, _, own = name.partition(".")
    functions = _functions(is_classic).get(module, {})
    if own not in functions or not callable(functions[own]):
        return None
    try:
        signature = inspect.signature(functions[own])
    except ValueError:
        return None
    if any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values()):
        return None  # a range takes what Python's does, and hints
    parameters = [
        one.replace(
            annotation=one.empty, default=None if one.default is not one.empty else one.empty
        )
        for one in signature.parameters.values()
    ]
    return inspect.Signature(parameters)


def _reached(level: str, at: Spot) -> bool:
    """Whether the SDK that is asked for has this level of NKI, or a later one."""
    own = at.sdk.level
    return own is not None and _LEVELS.index(level) <= _LEVELS.index(own)
