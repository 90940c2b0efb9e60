"""Rules of the classic tracer: scopes, masks, outputs, indices, placed tensors, and hazards.

Source: the page of errors, ``general/nki/api/nki.errors.rst`` at v2.26.0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeGuard

from difftest.tools.lint.rule import Frontend, Group, Refusal, rule
from difftest.tools.lint.source import RuleContext
from difftest.tools.lint.type_inference import (
    MAKERS,
    TRACED_ONCE,
    Binding,
    ValueType,
    targets_of,
)
from difftest.tools.syntax import (
    annotation_nodes,
    arguments_of,
    base_of,
    bound_names,
    calls_in,
    indices_of,
    keyword_of,
    literal_of,
    names_in,
)

_CLASSIC: dict[str, Any] = {
    "group": Group.CORRECTNESS,
    "frontends": frozenset({Frontend.CLASSIC}),
}
_UNKNOWN = (ValueType.TILE, ValueType.INDEX, ValueType.LINE, ValueType.MASK)
"""Types of expressions whose values are unknown while the kernel is traced."""
_TENSORS = (ValueType.TILE, ValueType.TENSOR)
_PARTS = (ast.Name, ast.Subscript)
_BLOCKS = (ast.If, ast.For, ast.While, ast.With)
_GATHERS_SINCE = {"nl.load_transpose2d": 99, "nisa.dma_transpose": 27}
"""The first SDK 2.x that transposes by indices: test_nki_isa_dma_transpose.py at v2.27.0."""
_WRITERS = ("nl.store", "nisa.dma_copy", "nl.atomic_rmw")

_ALLOCATORS = tuple(
    f"nki.compiler.{memory}.{name}"
    for memory in ("sbuf", "psum")
    for name in ("alloc", "mod_alloc")
)
_WITH_VALUES = ("nl.zeros", "nl.ones", "nl.full")
_ACTIVATED = (
    "nisa.activation",
    "nisa.activation_reduce",
    "nl.exp",
    "nl.log",
    "nl.sin",
    "nl.cos",
    "nl.tan",
    "nl.tanh",
    "nl.arctan",
    "nl.sqrt",
    "nl.rsqrt",
    "nl.sigmoid",
    "nl.relu",
    "nl.gelu",
    "nl.silu",
    "nl.erf",
    "nl.softplus",
    "nl.mish",
    "nl.square",
    "nl.gelu_dx",
    "nl.silu_dx",
    "nl.erf_dx",
    "nl.gelu_apprx_tanh",
)
"""Functions that the Scalar Engine computes as an activation. The compiler creates their bias."""
HAZARDS = ("NKH401", "NKH402")
"""The hazard rules of this module. Detectors that read a trace are more precise."""


@rule(
    "NKT201",
    nodes=(ast.BoolOp, ast.UnaryOp, ast.Compare),
    **{**_CLASSIC, "group": Group.UPGRADE},
)
def _mask(
    node: ast.BoolOp | ast.UnaryOp | ast.Compare, at: RuleContext
) -> Iterator[Refusal]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return
    if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not):
        return
    whole: ast.AST = node
    while isinstance(at.source.parents[whole], (ast.BoolOp, ast.UnaryOp)):
        whole = at.source.parents[whole]
    is_condition = getattr(at.source.parents[whole], "test", None) is whole
    if at.type_of(node) in _UNKNOWN and not is_condition:
        yield node, ast.unparse(node)


@rule("NKT202", nodes=(ast.FunctionDef,), **_CLASSIC)
def _scope(node: ast.FunctionDef, at: RuleContext) -> Iterator[Refusal]:
    if at.function is node:
        yield from _uses_after(node.body, at, set())


@rule("NKT203", nodes=(ast.Call,), **_CLASSIC)
def _shared(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.name(node.func) not in MAKERS:
        return
    if not any(_is_shared(value, at) for value in arguments_of(node)):
        return
    if at.function in at.source.in_kernels - at.source.kernels:
        yield node, f"{ast.unparse(node.func)} makes shared HBM in a helper"
    elif any(_is_scope(block, at) for block in at.source.around(node)):
        yield node, f"{ast.unparse(node.func)} makes shared HBM in a block"


def _is_shared(value: ast.expr, at: RuleContext) -> bool:
    """Return whether an argument is ``nl.shared_hbm``, or a parameter that a call sets to it."""
    if at.name(at.value(value)) == "nl.shared_hbm":
        return True
    if at.function is None or not isinstance(value, ast.Name):
        return False
    if value.id not in {arg.arg for arg in at.function.args.args}:
        return False
    for call in at.source.calls_by_name.get(at.function.name, ()):
        if any(at.name(part) == "nl.shared_hbm" for part in arguments_of(call)):
            return True
    return False


@rule("NKT204", nodes=(ast.FunctionDef,), **_CLASSIC)
def _mutable(node: ast.FunctionDef, at: RuleContext) -> Iterator[Refusal]:
    mutable = {arg.arg for arg in node.args.args if _is_mutable(arg, at)}
    if not mutable or node not in at.source.kernels:
        return
    ends: list[ast.AST] = list(_returns(node))
    for end in ends or [node]:
        value = getattr(end, "value", None)
        returned = names_in(value) if value is not None else set()
        for name in sorted(mutable - returned):
            yield end, f"{node.name} does not return {name}"


def _returns(function: ast.AST) -> Iterator[ast.Return]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Return))


@rule(
    "NKT205",
    nodes=(ast.Call,),
    since="2.27",
    **{**_CLASSIC, "group": Group.PORTABILITY},
)
def _block(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.name(node.func) not in MAKERS or not node.args:
        return
    shape = node.args[0]
    sizes = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else []
    for size in sizes[1:]:
        if isinstance(size, ast.Call) and at.name(size.func) == "nl.par_dim":
            yield size, f"{ast.unparse(size)} is not the first of {ast.unparse(shape)}"


@rule("NKT206", nodes=(ast.AnnAssign,), **_CLASSIC)
def _annotation(node: ast.AnnAssign, at: RuleContext) -> Iterator[Refusal]:
    annotated = node.annotation
    value = node.value
    if not isinstance(annotated, ast.Subscript):
        return
    if at.name(annotated.value) != "nt.tensor":
        return
    shape = _sizes(annotated.slice, at)
    if isinstance(value, ast.Subscript) and _differ_from_slices(shape, value):
        yield annotated, f"{ast.unparse(annotated)} annotates {ast.unparse(value)}"
    if isinstance(value, ast.Call):
        sizes = _sizes_of_result(value, len(shape), at)
        is_known = shape and sizes and None not in shape + sizes
        if is_known and shape != sizes:
            yield annotated, f"{ast.unparse(annotated)} annotates a tensor {sizes}"


def _differ_from_slices(shape: list[int | None], tile: ast.Subscript) -> bool:
    """Return whether a known size differs from the length of a subscript's slice."""
    lengths = [_length(part) for part in indices_of(tile)]
    pairs = zip(shape, lengths, strict=False)
    differ = any(None not in pair and pair[0] != pair[1] for pair in pairs)
    return differ and len(shape) == len(lengths)


def _sizes_of_result(call: ast.Call, rank: int, at: RuleContext) -> list[int | None]:
    """Return the sizes of an allocated or loaded tensor; empty if they are unknown."""
    name = at.name(call.func)
    if name in MAKERS and call.args:
        return _sizes(call.args[0], at)
    if name == "nl.load" and call.args:
        return _sliced(call.args[0], rank)
    return []


@rule("NKT207", nodes=(ast.If, ast.While, ast.IfExp), **_CLASSIC)
def _condition(
    node: ast.If | ast.While | ast.IfExp, at: RuleContext
) -> Iterator[Refusal]:
    kind = at.type_of(node.test)
    if kind in _UNKNOWN:
        yield node.test, f"{ast.unparse(node.test)}, a condition, is {kind.value}"


@rule("NKT208", nodes=(ast.Call,), **_CLASSIC)
def _outside(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.is_module_level and at.source.is_instruction(node):
        yield node, f"{at.name(node.func)} is called outside of a function"


@rule("NKT209", nodes=(ast.Call,), **_CLASSIC)
def _inner_grid(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    called = node.func.value if isinstance(node.func, ast.Subscript) else None
    own = at.source.functions.get(getattr(called, "id", ""), ())
    if at.function is not None and not at.source.kernels.isdisjoint(own):
        yield node, f"{at.function.name} calls {ast.unparse(node.func)}"


@rule("NKT214", nodes=(ast.Call, ast.Assign, ast.AugAssign), **_CLASSIC)
def _parameter(
    node: ast.Call | ast.Assign | ast.AugAssign, at: RuleContext
) -> Iterator[Refusal]:
    if isinstance(node, ast.Call):
        name = at.name(node.func)
        written = at.argument(node, "dst", 0) if name in _WRITERS else None
        if written is not None:
            yield from _written_parameter(node, written, f"{name}", at)
    else:
        for target in targets_of(node):
            if _is_slice(target):
                yield from _written_parameter(node, target, "an assignment", at)


def _is_slice(target: ast.expr) -> bool:
    """Return whether a target is a slice. Other subscripts may be items of a list."""
    return isinstance(target, ast.Subscript) and any(
        isinstance(index, ast.Slice) or literal_of(index) is ...
        for index in indices_of(target)
    )


def _written_parameter(
    node: ast.AST, written: ast.AST, did: str, at: RuleContext
) -> Iterator[Refusal]:
    """Yield a refusal if ``written`` is a parameter that the kernel may not change."""
    root = at.value(base_of(written))  # resolve other names of the parameter
    if at.function not in at.source.kernels or not isinstance(root, ast.Name):
        return
    if at.value(root) is not root:
        return
    if not any(end.value is not None for end in _returns(at.function)):
        return
    for arg in at.function.args.args:
        if arg.arg == root.id and not _is_mutable(arg, at):
            yield node, f"{did} writes to {arg.arg}, a parameter"


@rule("NKT215", nodes=(ast.Subscript,), **_CLASSIC)
def _line(node: ast.Subscript, at: RuleContext) -> Iterator[Refusal]:
    if at.type_of(node.value) is ValueType.LINE:
        return
    for index in indices_of(node):
        if at.type_of(index) is ValueType.LINE:
            text = f"{ast.unparse(node)} has {ast.unparse(index)}"
            yield index, f"{text}, an index of one dimension"


@rule("NKT216", nodes=(ast.Call,), **_CLASSIC)
def _gathers(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node.func)
    if at.sdk.minor >= _GATHERS_SINCE.get(name, 0):
        return
    moved = at.argument(node, "src", 0)
    indices = indices_of(moved) if isinstance(moved, ast.Subscript) else []
    if moved and any(at.type_of(index) is ValueType.TILE for index in indices):
        yield moved, f"{name} got {ast.unparse(moved)}"


def _uses_after(
    body: list[ast.stmt], at: RuleContext, lost: set[str]
) -> Iterator[Refusal]:
    """Yield uses of tensors after the block that created them.

    ``lost`` holds the tensors of earlier blocks.
    """
    for statement in body:
        assigned = bound_names(statement)
        if isinstance(statement, _BLOCKS):
            for part in (statement.body, getattr(statement, "orelse", [])):
                yield from _uses_after(part, at, set(lost))
            if not _is_scope(statement, at):
                lost -= assigned
            lost |= _made(statement, at, False)
        else:
            for use in _reads(statement):
                if use.id in lost:
                    yield use, f"{use.id} is used after the block that makes it"
            lost -= assigned


def _made(node: ast.AST, at: RuleContext, is_inside: bool) -> set[str]:
    """Return the names of new tensors inside a block that has its own scope."""
    if isinstance(node, ast.Assign):
        is_new = is_inside and not isinstance(node.value, _PARTS)
        if not is_new or at.type_of(node.value) is not ValueType.TILE:
            return set()
        return {item.id for item in node.targets if isinstance(item, ast.Name)}
    is_inside |= _is_scope(node, at)
    names: set[str] = set()
    for child in ast.iter_child_nodes(node):
        names |= _made(child, at, is_inside)
    return names


def _is_scope(node: ast.AST, at: RuleContext) -> bool:
    """Return whether a block has its own scope. Blocks that Python values control have none."""
    if isinstance(node, ast.For):
        called = node.iter.func if isinstance(node.iter, ast.Call) else node.iter
        return (at.name(called) or ast.unparse(called)) in (*TRACED_ONCE, "range")
    if isinstance(node, ast.If):
        return at.type_of(node.test) in (*_UNKNOWN, ValueType.TURN)
    return isinstance(node, ast.While)


def _reads(node: ast.AST) -> Iterator[ast.Name]:
    """Yield the uses of names in a node."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            yield part


def _is_mutable(parameter: ast.arg, at: RuleContext) -> bool:
    """Return whether a parameter's annotation names a mutable NKI tensor."""
    if parameter.annotation is None:
        return False
    names = map(at.name, annotation_nodes(parameter.annotation))
    return any(name in ("nt.mutable_tensor", "nt.mutable") for name in names)


def _sizes(node: ast.expr, at: RuleContext) -> list[int | None]:
    """Return the sizes of a shape, with None for each size that is not a literal."""
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [_size(part, at) for part in parts]


def _size(node: ast.expr, at: RuleContext) -> int | None:
    if isinstance(node, ast.Call) and at.name(node.func) == "nl.par_dim" and node.args:
        node = node.args[0]
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) else None


def _sliced(node: ast.expr, rank: int) -> list[int | None]:
    """Return the length of the slice of each dimension; empty unless all are known."""
    parts = indices_of(node) if isinstance(node, ast.Subscript) else []
    lengths = [_length(part) for part in parts]
    return lengths if len(parts) == rank and None not in lengths else []


def _length(part: ast.expr) -> int | None:
    """Return the length of a slice with literal ends, or None for any other index."""
    if not isinstance(part, ast.Slice) or part.step is not None:
        return None
    low = 0 if part.lower is None else getattr(part.lower, "value", None)
    high = getattr(part.upper, "value", None)
    if type(low) is not int or type(high) is not int or low < 0 or high < low:
        return None
    return high - low


@rule("NKT210", nodes=(ast.Call,), **_CLASSIC)
def _bias(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.name(node.func) not in _ACTIVATED or not _places(at):
        return
    has_bias = any(keyword.arg in ("bias", None) for keyword in node.keywords)
    if not has_bias and len(node.args) < 3:
        yield node, f"{ast.unparse(node.func)} got no bias"


@rule("NKT211", nodes=(ast.Call,), **_CLASSIC)
def _transpose(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    name = at.name(node.func)
    if name not in ("nisa.nc_transpose", "nl.matmul") or not _places(at):
        return
    needed = "engine" if name == "nisa.nc_transpose" else "transpose_x"
    value = at.argument(node, needed)
    if value is None:
        yield node, f"{name} got no {needed}"
    elif at.name(value) == "nisa.tensor_engine":
        yield node, f"{name} got engine={ast.unparse(value)}"


@rule("NKT212", nodes=(ast.Call,), **_CLASSIC)
def _value(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    buffer = at.argument(node, "buffer")
    if buffer is None or at.name(node.func) not in _WITH_VALUES:
        return
    if _is_allocator(buffer, at):
        yield node, f"{ast.unparse(node.func)} got buffer={ast.unparse(buffer)}"


@rule("NKT213", nodes=(ast.Call,), **_CLASSIC)
def _free_index(node: ast.Call, at: RuleContext) -> Iterator[Refusal]:
    if at.name(node.func) not in ("nl.load", "nl.store") or not node.args:
        return
    moved = at.value(node.args[0])
    if not isinstance(moved, ast.Subscript) or len(indices_of(moved)) < 2:
        return
    text = ast.unparse(moved)
    first, *rest = indices_of(moved)
    if at.type_of(first) is ValueType.TILE:
        for index in filter(partial(_is_of_grid, at=at), rest):
            yield index, f"{text} has an index of nl.mgrid beside a tile of indices"
    *before, last = indices_of(moved)
    if at.type_of(last) is ValueType.TILE and any(map(partial(_spans, at=at), before)):
        yield last, f"{text} has a tile of indices in its last dimension"


def _spans(part: ast.AST, at: RuleContext) -> bool:
    """Return whether an index may select more than one element.

    In ``x[block, rows, j]``, a tile of indices after single blocks selects the partitions.
    """
    several = (ValueType.TILE, ValueType.INDEX, ValueType.LINE)
    return isinstance(part, ast.Slice) or at.type_of(part) in several


def _is_of_grid(node: ast.AST, at: RuleContext) -> bool:
    """Return whether an index is a part of an ``nl.mgrid``."""
    value = at.value(node)
    is_part = isinstance(value, (ast.Subscript, ast.Attribute))
    return is_part and at.type_of(value.value) is ValueType.GRID  # type: ignore[attr-defined]


def _places(at: RuleContext) -> bool:
    """Return whether the function, or a kernel that reaches it, allocates tensors explicitly."""
    if at.function is None:
        return False
    if any(_is_allocator(call, at) for call in calls_in(at.function)):
        return True
    for kernel in at.source.kernels:
        allocates = any(_is_allocator(call, at) for call in calls_in(kernel))
        if allocates and at.function in at.source.reached([kernel]):
            return True
    return False


def _is_allocator(node: ast.AST, at: RuleContext) -> bool:
    return at.called(node) in _ALLOCATORS


@rule("NKH401", nodes=(ast.For,), **_CLASSIC)
def _one_place(node: ast.For, at: RuleContext) -> Iterator[Refusal]:
    if at.function is None or at.called(node.iter) != "nl.affine_range":
        return
    if _runs_once(node, at):
        return
    own = at.source.types_in(at.function).bound_in(node)
    for written, mask in _written(node, at):
        name = getattr(written.value, "id", None)
        chosen = [written.slice, *mask, *_conditions(written, node, at)]
        if name and name not in own and not _follows(chosen, node, at):
            target = ast.unparse(node.target)
            yield written, f"each iteration over {target} writes {ast.unparse(written)}"


def _runs_once(loop: ast.For, at: RuleContext) -> bool:
    """Return whether a loop is over ``range(1)``."""
    ends = loop.iter.args if isinstance(loop.iter, ast.Call) else []
    return len(ends) == 1 and getattr(at.value(ends[0]), "value", None) == 1


def _conditions(node: ast.AST, loop: ast.For, at: RuleContext) -> Iterator[ast.AST]:
    """Yield the conditions inside a loop that a node depends on."""
    for block in at.source.around(node):
        if block is loop:
            return
        if isinstance(block, (ast.If, ast.While, ast.IfExp)):
            yield block.test


def _follows(chosen: list[ast.AST], loop: ast.For, at: RuleContext) -> bool:
    """Return whether an index, a mask or a condition may differ between iterations of a loop.

    It may if it is computed from the loop variable, or from a tile of indices that the loop or a
    function of the file may fill.
    """
    if at.function is None:
        return False
    varying = names_in(loop.target) | _filled(loop, at)
    types = at.source.types_in(at.function)
    return any(types.origins(part) & varying for part in chosen)


def _filled(loop: ast.For, at: RuleContext) -> set[str]:
    """Return the names of tensors whose contents the statements of a loop may change."""
    filled: list[ast.expr] = []
    for node in ast.walk(loop):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            filled += filter(_is_subscript, targets_of(node))
        elif isinstance(node, ast.Call):
            filled += _filled_by_call(node, at)
    bases = map(base_of, filled)
    return {base.id for base in bases if isinstance(base, ast.Name)}


def _is_subscript(node: ast.expr) -> TypeGuard[ast.Subscript]:
    return isinstance(node, ast.Subscript)


def _filled_by_call(call: ast.Call, at: RuleContext) -> list[ast.expr]:
    """Return the arguments that a call may change: ``dst`` of NKI, all of other functions."""
    if not at.name(call.func):
        return arguments_of(call)
    dst = keyword_of(call, "dst")
    return [] if dst is None else [dst]


@rule("NKH402", nodes=(ast.For,), **_CLASSIC)
def _carried(node: ast.For, at: RuleContext) -> Iterator[Refusal]:
    if at.function is None or at.called(node.iter) not in TRACED_ONCE:
        return
    for name, bindings in at.source.types_in(at.function).bound_in(node).items():
        first = min(bindings, key=lambda binding: binding.end)
        if first.by is node or first.value is None:
            continue
        is_number = at.type_of(first.value) in (ValueType.NUMBER, ValueType.TURN)
        if is_number and _is_read(name, node, first, at):
            target = ast.unparse(node.target)
            yield first.by, f"{name} is carried between iterations over {target}"


def _is_read(name: str, loop: ast.For, first: Binding, at: RuleContext) -> bool:
    """Return whether an iteration uses the previous iteration's value of a name.

    Uses that only place tensors do not count.
    """
    reads = [use for use in _reads(loop) if use.id == name]
    is_before = any((use.lineno, use.col_offset) < first.end for use in reads)
    if not is_before and not isinstance(first.by, ast.AugAssign):
        return False
    for read in reads:
        if not any(_is_excused(block, name, at) for block in at.source.around(read)):
            return True
    return False


def _is_excused(node: ast.AST, name: str, at: RuleContext) -> bool:
    """Return whether a node computes the name's next value, or allocates a tensor."""
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        return name in [getattr(target, "id", "") for target in targets_of(node)]
    return at.called(node) in _ALLOCATORS


def _written(
    loop: ast.For, at: RuleContext
) -> Iterator[tuple[ast.Subscript, list[ast.expr]]]:
    """Yield the parts of tensors that a loop assigns or stores to, each with its masks.

    ``+=`` and ``nl.loop_reduce`` are excluded, because they accumulate.
    """
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign):
            if _is_call(node.value, "nl.loop_reduce", at):
                continue
            for part in filter(_is_subscript, targets_of(node)):
                if at.type_of(part.value) in _TENSORS:
                    yield part, _masks_in(node.value)
        elif _is_call(node, "nl.store", at):
            for part in filter(_is_subscript, node.args[:1]):
                yield part, _masks_in(node)


def _is_call(node: ast.AST, name: str, at: RuleContext) -> TypeGuard[ast.Call]:
    return at.called(node) == name


def _masks_in(node: ast.expr) -> list[ast.expr]:
    """Return the masks of an expression's calls."""
    masks = (keyword_of(call, "mask") for call in calls_in(node))
    return [mask for mask in masks if mask is not None]
