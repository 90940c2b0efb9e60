"""Fixes by rule: the edits for a node that breaks it.

Each fix is tested on its rule's page (tests/unit/tools/lint/test_fixes.py): the fixed kernel breaks
no rule, and runs on the simulator with the same result.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from difftest.analysis.finding import Suppression
from difftest.simulator.frontend.levels import LIFETIMES
from difftest.simulator.frontend.nki import isa, language
from difftest.support.wording import count_of
from difftest.tools.lint.source import Edit, Fix, RuleContext, Source
from difftest.tools.syntax import literal_of, names_in

Fixer = Callable[[Any, RuleContext], Fix | None]
_FIXERS: dict[str, Fixer] = {}
REWRITES = frozenset({"NKU301"})
"""Rules whose fix rewrites the whole file."""
_BUFFERS = ("sbuf", "psum", "hbm", "private_hbm", "shared_hbm")
_RENAMED = {
    "nl.tile_size.psum_bank_fmax": "nl.tile_size.psum_fmax",
    "nl.tile_size.sbuf_fmax_bytes": "nl.tile_size.total_available_sbuf_size",
    "nl.tile_size.sbuf_size_bytes": "nl.tile_size.total_available_sbuf_size",
}
"""Earlier names of the same number, by the name in later levels."""
_SEQUENCES = (ast.List, ast.ListComp, ast.Tuple)
_NEW_NAME = re.compile(r"write (\w+)=$")
_NEW_VALUE = re.compile(r"write (\w+)=(nisa\.[\w.]+)$")
_LEFT_OUT = re.compile(r"leave it out(?:$|[:;])|no (?:name|priority)$")


def fixer(id: str) -> Callable[[Fixer], Fixer]:
    """Register the decorated function as the fixer of a rule."""

    def enter(function: Fixer) -> Fixer:
        _FIXERS[id] = function
        return function

    return enter


def fix_of(id: str, node: ast.AST, at: RuleContext) -> Fix | None:
    """Return the fix for a node that breaks a rule, or None if there is no automatic fix.

    A classic file is only fixed as a whole, because a file must not mix dialects.
    """
    is_migrated = at.source.names.is_classic and at.sdk.level is not None
    if id not in _FIXERS or (is_migrated and id not in REWRITES):
        return None
    return _FIXERS[id](node, at)


@fixer("NKL101")
def _loop(node: ast.expr, at: RuleContext) -> Fix | None:
    """Rewrite ``tiles = [make(i) for i in range(n)]`` as a loop that appends."""
    parent = at.source.parents[node]
    if not isinstance(node, ast.ListComp) or not isinstance(parent, ast.Assign):
        return None
    indent = _indent_before(at.source.span(parent)[0], at)
    name = getattr(parent.targets[0], "id", None)
    if name is None or name in names_in(node) or len(parent.targets) > 1:
        return None
    if indent is None or "\n" in at.source.segment(parent) or len(node.generators) > 1:
        return None
    text = f"\n{indent}".join(_loop_lines(name, node, at))
    is_safe = not _is_used_outside(names_in(node.generators[0].target), parent, at)
    return _rewritten(parent, "write a loop that appends", text, at, is_safe)


def _is_used_outside(names: set[str], statement: ast.AST, at: RuleContext) -> bool:
    """Return whether a function uses names outside of a statement.

    Unlike a comprehension, a loop leaves its variable bound.
    """
    assert at.function is not None
    others = set(ast.walk(at.function)).difference(ast.walk(statement))
    return any(getattr(part, "id", "") in names for part in others)


def _loop_lines(name: str, node: ast.ListComp, at: RuleContext) -> list[str]:
    """Return the lines of a loop that appends the items of a comprehension to a list."""
    source = at.source
    clause = node.generators[0]
    lines = [f"{name} = []"]
    lines.append(
        f"for {source.segment(clause.target)} in {source.segment(clause.iter)}:"
    )
    indent = "    "
    for test in clause.ifs:
        lines.append(f"{indent}if {source.segment(test)}:")
        indent += "    "
    lines.append(f"{indent}{name}.append({source.segment(node.elt)})")
    return lines


def _indent_before(start: int, at: RuleContext) -> str | None:
    """Return the indentation of a statement, or None if its line has code before it."""
    line = at.source.text.rfind("\n", 0, start) + 1
    indent = at.source.text[line:start]
    return None if indent.strip() else indent


@fixer("NKL102")
def _no_star(node: ast.arg, at: RuleContext) -> Fix | None:
    function = at.function
    # A parameter without a default cannot follow one that has a default.
    if function is None or function.args.vararg or None in function.args.kw_defaults:
        return None
    start = at.source.span(function)[0]
    for part in (*function.args.args, *function.args.defaults):
        start = max(start, at.source.span(part)[1])
    end = at.source.span(node)[0]
    text = re.sub(r"\*\s*,\s*", "", at.source.text[start:end], count=1)
    return Fix("leave the * out", (at.source.edit(start, end, text),))


@fixer("NKL103")
def _counted(node: ast.expr, at: RuleContext) -> Fix | None:
    """Rewrite ``for i, tile in enumerate(tiles):`` as a loop over ``range``."""
    loop = at.source.parents[node]
    assert isinstance(loop, ast.For)
    names = [
        name.id for name in getattr(node, "elts", ()) if isinstance(name, ast.Name)
    ]
    match = re.match(r"enumerate\((\w+)\)$", at.source.segment(loop.iter))
    body = at.source.span(loop.body[0])[0]
    indent = _indent_before(body, at)
    if match is None or len(names) != 2 or indent is None or at.function is None:
        return None
    number, item = names
    listed = match[1]
    start = at.source.span(node)[0]
    end = at.source.span(loop.iter)[1]
    line = body - len(indent)
    head = at.source.edit(start, end, f"{number} in range(len({listed}))")
    first = at.source.edit(line, line, f"{indent}{item} = {listed}[{number}]\n")
    # Other iterables may not have a length.
    is_list = isinstance(at.value(loop.iter.args[0]), _SEQUENCES)  # type: ignore[attr-defined]
    return Fix("count with range", (head, first), is_list)


@fixer("NKL106")
def _equality(node: ast.Compare, at: RuleContext) -> Fix | None:
    edits = []
    sides = [node.left, *node.comparators]
    for operator, left, right in zip(node.ops, sides, node.comparators, strict=False):
        start = at.source.span(left)[1]
        end = at.source.span(right)[0]
        between = at.source.text[start:end]
        if isinstance(operator, (ast.Is, ast.IsNot)):
            sign = "==" if isinstance(operator, ast.Is) else "!="
            edits.append(
                at.source.edit(start, end, re.sub(r"\bis(\s+not)?\b", sign, between))
            )
    return Fix("compare values", tuple(edits), is_safe=False)


@fixer("NKL108")
def _tuple(node: ast.expr, at: RuleContext) -> Fix | None:
    if not isinstance(node, ast.List):
        return None
    inside = at.source.segment(node)[1:-1].rstrip().rstrip(",")
    text = f"({inside},)" if len(node.elts) == 1 else f"({inside})"
    return _rewritten(node, "write a tuple", text, at, is_safe=False)


@fixer("NKL109")
def _name_of_nl(node: ast.Attribute, at: RuleContext) -> Fix | None:
    if node.attr not in language.NAMES:
        return None
    return _replaced(node, f"nl.{node.attr}", at)


@fixer("NKL110")
def _buffer(node: ast.keyword, at: RuleContext) -> Fix | None:
    name = literal_of(node.value)
    return _replaced(node.value, f"nl.{name}", at) if name in _BUFFERS else None


@fixer("NKL111")
def _member(node: ast.keyword, at: RuleContext) -> Fix | None:
    number = literal_of(node.value)
    for member in isa.NAMES.get(node.arg or "", ()):
        if member.value == number:
            return _replaced(node.value, f"nisa.{node.arg}.{member.name}", at)
    return None


@fixer("NKL112")
def _shared(node: ast.Name, at: RuleContext) -> Fix | None:
    call = at.value(node)
    for keyword in call.keywords if isinstance(call, ast.Call) else ():
        if at.name(keyword.value) == "nl.hbm":
            return _replaced(keyword.value, "nl.shared_hbm", at)
    return None


@fixer("NKL113")
@fixer("NKL115")
def _bare_jit(node: ast.keyword, at: RuleContext) -> Fix | None:
    call = at.source.parents[node]
    assert isinstance(call, ast.Call)
    # Without platform_target, the machine is no longer specified.
    is_safe = node.arg == "mode"
    if len(call.keywords) + len(call.args) > 1:
        return _without(node, at, is_safe)
    name = at.source.segment(call.func)
    return _rewritten(call, f"leave {node.arg}= out", name, at, is_safe)


@fixer("NKT201")
def _and(node: ast.expr, at: RuleContext) -> Fix | None:
    if not isinstance(node, ast.BoolOp):
        return None
    sign = "&" if isinstance(node.op, ast.And) else "|"
    text = f" {sign} ".join(f"({at.source.segment(value)})" for value in node.values)
    return _rewritten(node, f"join masks by {sign}", text, at, is_safe=False)


@fixer("NKU301")
def _migrated(node: ast.AST, at: RuleContext) -> Fix | None:
    """Rewrite the whole file in the current dialect, as ``difftest migrate`` does."""
    if find_spec("libcst") is None:
        return None
    from difftest.tools.migration.rewriting import migrate_source

    text = at.source.text
    result = migrate_source(text)
    edits: tuple[Edit, ...] = ()
    if result.text != text:
        edits = (at.source.edit(0, len(text), result.text),)
    left = len(result.left)
    title = "rewrite the file as `difftest migrate` does"
    if left:
        title += f", which leaves {count_of(left, 'place')} to do by hand"
    return Fix(title, edits, is_safe=not left)


@fixer("NKU302")
def _partitions(node: ast.expr, at: RuleContext) -> Fix | None:
    """Replace ``nl.par_dim(128)`` at the start of a shape with the size itself."""
    call = at.source.parents[node]
    if at.name(node) != "nl.par_dim" or not isinstance(call, ast.Call):
        return None
    shape = at.source.parents[call]
    if not isinstance(shape, (ast.Tuple, ast.List)) or shape.elts[0] is not call:
        return None
    if len(call.args) != 1:
        return None
    return _rewritten(call, "write the size", at.source.segment(call.args[0]), at)


@fixer("NKU303")
def _earlier_name(node: ast.expr, at: RuleContext) -> Fix | None:
    new = _RENAMED.get(at.name(node))
    return _replaced(node, new, at) if new else None


@fixer("NKU304")
def _argument(node: ast.keyword, at: RuleContext) -> Fix | None:
    """Apply the replacement that :mod:`~difftest.simulator.frontend.levels` names."""
    call = at.source.parents[node]
    assert isinstance(call, ast.Call)
    instead = LIFETIMES[f"{at.name(call.func)}({node.arg})"].instead
    start, end = at.source.span(node)
    if new := _NEW_NAME.match(instead):
        edit = at.source.edit(start, start + len(node.arg or ""), new[1])
        return Fix(instead, (edit,))
    value = _NEW_VALUE.match(instead)
    if value is not None and literal_of(node.value) is True:
        own = at.source.names.spelled(value[2])
        if own is None:
            return None
        edit = at.source.edit(start, end, f"{value[1]}={own}")
        return Fix(instead, (edit,))
    return _without(node, at) if _LEFT_OUT.match(instead) else None


def fix_of_comment(source: Source, comment: Suppression, id: str) -> Fix | None:
    """Return the fix that removes an id from a comment that suppresses no such finding."""
    start = source.offset(comment.line, comment.column)
    line = source.text[start:].partition("\n")[0]
    listed = re.match(r"#\s*difftest:\s*\w+\[([^\]]*)\]", line)
    if listed is None:
        return None
    left = [part.strip() for part in listed[1].split(",") if part.strip() != id]
    if left:
        span = start + listed.start(1), start + listed.end(1)
        return Fix(f"take {id} out", (source.edit(*span, ", ".join(left)),))
    before = source.text[:start].rstrip(" \t")
    return Fix(
        "take the comment out", (source.edit(len(before), start + len(line), ""),)
    )


def _replaced(node: ast.AST, name: str, at: RuleContext) -> Fix | None:
    """Return the fix that replaces a node with an NKI name, qualified as in the file."""
    own = at.source.names.spelled(name)
    return None if own is None else _rewritten(node, f"write {own}", own, at)


def _rewritten(
    node: ast.AST, title: str, text: str, at: RuleContext, is_safe: bool = True
) -> Fix:
    """Return the fix that replaces a node with a text."""
    start, end = at.source.span(node)
    return Fix(title, (at.source.edit(start, end, text),), is_safe)


def _without(node: ast.keyword, at: RuleContext, is_safe: bool = True) -> Fix | None:
    """Return the fix that removes an argument and the comma after or before it."""
    start, end = at.source.span(node)
    text = at.source.text
    behind = re.compile(r"\s*,\s*").match(text, end)
    before = re.search(r"\s*,\s*$", text[:start])
    edit: Edit | None = None
    if behind and not text[behind.end()].startswith(")"):
        edit = at.source.edit(start, behind.end(), "")
    elif before:
        edit = at.source.edit(before.start(), end, "")
    return Fix(f"leave {node.arg}= out", (edit,), is_safe) if edit else None
