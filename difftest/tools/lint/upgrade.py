"""Rules of names and arguments: the SDKs that have them, and their replacements.

The rules use the tables of both dialects: the names of the simulator's modules, and the levels of
:mod:`difftest.simulator.frontend.levels`.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from difftest.simulator.frontend.classic import isa as classic_isa
from difftest.simulator.frontend.classic import language as classic_language
from difftest.simulator.frontend.levels import GONE, LIFETIMES
from difftest.simulator.frontend.nki import collectives, isa, language
from difftest.tools.lint.rule import NEWEST, TODAYS, Frontend, Group, Refusal, rule
from difftest.tools.lint.source import RuleContext
from difftest.tools.syntax import argument_of, base_of, has_expansion, keywords_of

_TODAYS: dict[str, Any] = {"group": Group.UPGRADE, "frontends": TODAYS}
_FUNCTIONS: Mapping[bool, Mapping[str, Mapping[str, Any]]] = {
    True: {"nl": vars(classic_language), "nisa": vars(classic_isa)},
    False: {"nl": language.NAMES, "nisa": isa.NAMES, "ncc": collectives.NAMES},
}
"""The names of all levels, by whether the dialect is classic, and by module."""
_ENGINES = "gpsimd", "scalar", "tensor", "unknown", "vector"
_DEPRECATED = {
    **{f"nisa.{name}_engine": ("0.2", f"nisa.engine.{name}") for name in _ENGINES},
    **dict.fromkeys(("nl.affine_range", "nl.sequential_range"), ("0.3", "range")),
    "nl.dynamic_range": ("0.6", "nl.fori_loop"),
    "nl.static_range": ("0.6", "range"),
    "nl.tile_size.psum_fmax": ("0.4", "nl.tile_size.psum_bank_fmax"),
    "nl.tile_size.total_available_sbuf_size": ("0.4", "nl.tile_size.sbuf_fmax_bytes"),
}
"""Names that are deprecated in v2.32.0: the first NKI that deprecates them, and the replacement."""
_NOT_OF_PSUM = {
    "nl.rsqrt": ("x", 0, "0.5", "nisa.activation(op=nl.rsqrt)"),
    "nisa.dma_copy": ("src", 1, "0.3", "nisa.tensor_copy to SBUF first"),
}
"""Functions that no longer accept a tile in PSUM: argument, position, first NKI, and replacement.

Source: AWS's migration guide.
"""
_PASSED = {
    "nisa.scalar_tensor_tensor(dtype)": NEWEST.minor,
    "nisa.nc_matmul(is_moving_zero)": NEWEST.minor,
    "nisa.nc_matmul(psumAccumulateFlag)": NEWEST.minor,
    "nisa.tensor_copy(dtype)": 29,
}
"""Undocumented arguments that kernels of AWS pass, with the last SDK 2.x of these kernels.

Sources: aws-neuron/nki-library, releases 2.27 to 2.29 (moe_cte_utils.py, mlp_cte_transpose.py,
qkv_cte.py); matrix_multiplication_nki_kernels.py of the documentation at v2.29.0.
"""
_LAST_ASSIGNED = 28
"""The last SDK 2.x for which nki-library assigned an instruction's result (all_expert_impl.py)."""


@rule("NKU301", nodes=(ast.Import, ast.ImportFrom), since="2.29", **_TODAYS)
def _classic_import(
    node: ast.Import | ast.ImportFrom, at: RuleContext
) -> Iterator[Refusal]:
    if node is at.source.names.first_classic:
        yield node, f"{ast.unparse(node)} is of the classic dialect"


@rule("NKU302", nodes=(ast.Attribute, ast.Name), **_TODAYS)
def _ended_name(node: ast.expr, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node)
    row = LIFETIMES.get(name)
    if row is not None and _reached(row.ended, at):
        yield node, f"{name} ended with NKI {row.ended} (now: {row.instead})"
    elif at.source.names.has_classic(node) and name in GONE:
        reason, remedy = GONE[name]
        yield node, f"{name}: {reason} ({remedy})"


@rule("NKU303", nodes=(ast.Attribute, ast.Name), **_TODAYS)
def _future_name(node: ast.expr, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node)
    row = LIFETIMES.get(name)
    if row is not None and not _reached(row[0], at):
        yield node, f"{name} exists since NKI {row[0]} (until then: {row[2]})"


@rule("NKU309", nodes=(ast.Attribute,), since="2.30", **_TODAYS)
def _deprecated(node: ast.Attribute, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node)
    since, instead = _DEPRECATED.get(name, (None, ""))
    if _reached(since, at) and not _has_ended(name, at):
        yield node, f"{name} is deprecated since NKI {since} (now: {instead})"


@rule("NKU310", nodes=(ast.Call,), **_TODAYS)
def _of_psum(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node.func)
    argument, place, ended, instead = _NOT_OF_PSUM.get(name, ("", 0, None, ""))
    tile = argument_of(node, argument, place) if _reached(ended, at) else None
    if tile is not None and at.buffer(base_of(tile)) == "nl.psum":
        yield node, f"{name} of a tile in PSUM ended with NKI {ended} (now: {instead})"


@rule("NKU304", nodes=(ast.Call,), **_TODAYS)
def _argument(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node.func)
    for keyword in node.keywords:
        row = LIFETIMES.get(f"{name}({keyword.arg})")
        if row is None or _is_passed(f"{name}({keyword.arg})", at):
            continue
        argument = f"{name}({keyword.arg}=)"
        if _reached(row.ended, at):
            yield keyword, f"{argument} ended with NKI {row.ended} (now: {row.instead})"
        elif not _reached(row.since, at):
            yield (
                keyword,
                f"{argument} exists since NKI {row.since} (until then: {row.instead})",
            )


@rule("NKU305", group=Group.CORRECTNESS, nodes=(ast.Attribute,))
def _unknown_name(node: ast.Attribute, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node)
    module, _, rest = name.partition(".")
    names = _FUNCTIONS[at.source.names.has_classic(node)].get(module)
    # AWS's last classic tests use names of the current dialect.
    current = _FUNCTIONS[False].get(module, {})
    if names is None or rest in names or rest in current or name in LIFETIMES:
        return
    if rest and "." not in rest:  # neither a module nor a part of a member
        yield node, f"{name} is no name of NKI"


@rule("NKU307", group=Group.CORRECTNESS, nodes=(ast.Call,))
def _signature(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node.func)
    is_classic = at.source.names.has_classic(node.func)
    signature = _signature_of(name, is_classic)
    if signature is None or has_expansion(node):
        return
    if _is_assigned_result(node, signature, at):
        return
    keywords = keywords_of(node)
    for key in list(keywords):
        use = f"{name}({key})"
        if use in LIFETIMES or _is_passed(use, at):
            del keywords[key]
        elif is_classic and key not in signature.parameters:
            del keywords[key]  # AWS's classic stubs have **kwargs: see NKU308
    try:
        signature.bind(*node.args, **keywords)
    except TypeError as error:
        yield node, f"{name}{signature}: {error}"


@rule("NKU308", group=Group.CORRECTNESS, nodes=(ast.Call,))
def _undocumented(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node.func)
    is_classic = at.source.names.has_classic(node.func)
    signature = _signature_of(name, is_classic)
    if signature is None or (is_classic and at.sdk.frontend is not Frontend.CLASSIC):
        return
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in signature.parameters:
            continue
        if is_classic or _is_only_passed(f"{name}({keyword.arg})", at):
            yield keyword, f"{name} got {keyword.arg}="
    if _is_assigned_result(node, signature, at):
        yield node, f"{name} got no dst, and its result is assigned"


def _is_only_passed(use: str, at: RuleContext) -> bool:
    """Return whether AWS's kernels pass an argument that its documentation does not have."""
    is_documented = use in LIFETIMES and not _has_ended(use, at)
    return _is_passed(use, at) and not is_documented


def _is_passed(argument: str, at: RuleContext) -> bool:
    """Return whether kernels that AWS released for this SDK, or a later SDK, pass an argument."""
    return at.sdk.minor <= _PASSED.get(argument, 0)


def _is_assigned_result(
    node: ast.Call, signature: inspect.Signature, at: RuleContext
) -> bool:
    """Return whether a current-dialect call without ``dst`` assigns its result to a subscript.

    NKI 0.3 removes this form.
    """
    parent = at.source.parents[node]
    if at.sdk.minor > _LAST_ASSIGNED or at.source.names.has_classic(node.func):
        return False
    if not isinstance(parent, ast.Assign):
        return False
    given = keywords_of(node)
    if "dst" in given or "dst" not in signature.parameters:
        return False
    if not isinstance(parent.targets[0], ast.Subscript):
        return False
    others = [item for item in signature.parameters.values() if item.name != "dst"]
    try:
        inspect.Signature(others).bind(*node.args, **given)
    except TypeError:
        return False
    return True


@rule("NKU306", nodes=(ast.Call,), **_TODAYS)
def _mask(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node.func)
    for keyword in node.keywords:
        if keyword.arg == "mask" and name.startswith(("nl.", "nisa.", "ncc.")):
            yield keyword, f"{name} got mask="


@cache
def _signature_of(name: str, is_classic: bool) -> inspect.Signature | None:
    """Return the signature of an NKI function with all defaults None, or None if it has none."""
    module, _, own = name.partition(".")
    functions = _FUNCTIONS[is_classic].get(module, {})
    if own not in functions or not callable(functions[own]):
        return None
    try:
        parameters = list(inspect.signature(functions[own]).parameters.values())
    except ValueError:
        return None
    if any(item.kind is item.VAR_POSITIONAL for item in parameters):
        return None  # such as a range, which also takes hints
    shown = []
    for item in parameters:
        bare = item.replace(annotation=item.empty)
        shown.append(bare if item.default is item.empty else bare.replace(default=None))
    return inspect.Signature(shown)


def _has_ended(use: str, at: RuleContext) -> bool:
    """Return whether the selected SDK no longer has a name or an argument."""
    row = LIFETIMES.get(use)
    return row is not None and _reached(row.ended, at)


def _reached(level: str | None, at: RuleContext) -> bool:
    """Return whether the selected SDK has this NKI level or a later level; False for None."""
    return level is not None and at.sdk.level is not None and level <= at.sdk.level
